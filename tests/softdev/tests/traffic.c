/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * traffic.c: RC, UC and UD QPs. Batches of requests at random leave memory and completions as a model says; a table says what
 * each wrong request does to both sides; two processes meet what only the wire between them shows.
 */
#include "rig.h"
#include <signal.h>

static struct ibv_ah *ah;

static int setup_traffic(void **state)
{
	if (setup(state))
		return -1;
	ah = own_ah();
	return 0;
}

static int teardown_traffic(void **state)
{
	return ibv_destroy_ah(ah) || teardown(state);
}

/* ---- against a model ---- */

/* Each buffer has four parts: what is sent, what READs and atomics bring, what may be read, and what is written and received */
#define PART (SIZE / 4)
#define BATCH 8

enum { RESULTS = PART, READABLE = 2 * PART, TARGETS = 3 * PART };

static const struct kind {
	const char *name;
	enum ibv_qp_type type;
	bool sig_all, wide, self, srq;
} kinds[] = {
	{ .name = "RC", .type = IBV_QPT_RC },
	{ .name = "RC, all signaled", .type = IBV_QPT_RC, .sig_all = true }, /* libmlx5 then asks for small READs in the CQE */
	{ .name = "RC, CQEs of 128 bytes", .type = IBV_QPT_RC, .sig_all = true, .wide = true },
	{ .name = "RC, its own peer", .type = IBV_QPT_RC, .self = true },
	{ .name = "RC, SRQ", .type = IBV_QPT_RC, .srq = true },
	{ .name = "UC", .type = IBV_QPT_UC },
	{ .name = "UC, SRQ", .type = IBV_QPT_UC, .srq = true },
	{ .name = "UD", .type = IBV_QPT_UD },
	{ .name = "UD, its own peer", .type = IBV_QPT_UD, .self = true },
	{ .name = "UD, SRQ", .type = IBV_QPT_UD, .srq = true },
};

static uint8_t model[2][SIZE], flat[PART];

static uint8_t *shadow(const struct side *of, uint64_t addr)
{
	return model[of - s] + (addr - (uintptr_t)of->buf);
}

/* Cuts len bytes at *at of a buffer into up to 4 pieces with gaps; none is empty but one of nothing */
static int cut(struct ibv_sge sg[4], const struct side *of, size_t *at, uint32_t len)
{
	int n = 0;

	do {
		uint32_t part = n == 3 || rnd() % 2 || len < 2 ? len : 1 + rnd() % (len - 1);

		sg[n++] = sge(of, *at, part);
		*at += part + 1 + rnd() % 8;
		len -= part;
	} while (len);
	return n;
}

static void gather(const struct side *of, const struct ibv_sge *sg, int n)
{
	uint8_t *to = flat;

	for (int i = 0; i < n; to += sg[i++].length)
		memcpy(to, shadow(of, sg[i].addr), sg[i].length);
}

static void scatter(const struct side *of, const struct ibv_sge *sg, uint32_t skip, uint32_t len)
{
	const uint8_t *from = flat;

	for (; len; sg++) {
		uint32_t part = sg->length <= skip ? 0 : sg->length - skip < len ? sg->length - skip : len;

		memcpy(shadow(of, sg->addr + skip), from, part);
		skip -= sg->length <= skip ? sg->length : skip;
		from += part;
		len -= part;
	}
}

/* A datagram's header is not the model's business */
static void take_header(const struct side *of, const struct ibv_sge *sg)
{
	for (uint32_t left = GRH_BYTES, part; left; sg++, left -= part) {
		part = sg->length < left ? sg->length : left;
		memcpy(shadow(of, sg->addr), (const void *)(uintptr_t)sg->addr, part);
	}
}

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static uint32_t any_length(enum ibv_qp_type type, bool alone)
{
	static const uint32_t lengths[] = { 0, 1, 3, 4, 31, 32, 33, 60, 63, 64, 65, 255, 1023, 1024, 1025, 2048, 4096, 5000, 20000 };

	if (alone && type != IBV_QPT_UD)
		return rnd() % (PART - 5000);
	return lengths[rnd() % (ARRAY(lengths) - (type == IBV_QPT_UD ? 2 : 0))];
}

static void one_batch(const struct kind *k, struct side *a, struct side *b, struct ibv_srq *srq)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						  IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD };
	static const enum ibv_wc_opcode done[] = { IBV_WC_SEND, IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ,
						   IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD };
	const unsigned n = rnd() % 8 ? 1 + rnd() % BATCH : 1, kinds_of_op = k->type == IBV_QPT_RC ? 7 : k->type == IBV_QPT_UC ? 4 : 2,
		       head = k->type == IBV_QPT_UD ? GRH_BYTES : 0;
	size_t results = RESULTS, targets = TARGETS;
	struct ibv_send_wr wr[BATCH] = { 0 };
	struct ibv_sge sg[BATCH][4], to[BATCH][4];
	uint32_t len[BATCH];
	unsigned op[BATCH];
	struct ibv_wc wc;

	for (unsigned i = 0; i < n; i++) {
		size_t at = rnd() % 4096, there = 0;
		bool after_read = i && wr[i - 1].opcode == IBV_WR_RDMA_READ && len[i - 1] && rnd() % 2 &&
				  (!k->sig_all || len[i - 1] > 64); /* a short one of those is not in memory before the poll */

		op[i] = rnd() % kinds_of_op;
		len[i] = is_atomic(ops[op[i]]) ? 8 : any_length(k->type, n == 1);
		if (op[i] >= 4) {
			wr[i].num_sge = is_atomic(ops[op[i]]) ? 1 : cut(sg[i], a, &results, len[i]);
			there = op[i] == 4 ? READABLE + rnd() % 4096 : (targets + 7) & ~(size_t)7;
			if (op[i] > 4) {
				sg[i][0] = sge(a, results, 8);
				results += 9;
				targets = there + 9;
			}
		} else if (after_read && op[i] < 4) { /* sends on what it has read: that has to wait for it */
			sg[i][0] = sg[i - 1][0];
			len[i] = sg[i][0].length;
			wr[i].num_sge = 1;
			wr[i].send_flags = IBV_SEND_FENCE;
		} else {
			wr[i].num_sge = len[i] ? cut(sg[i], a, &at, len[i]) : 0;
			wr[i].send_flags = len[i] <= 64 && rnd() % 2 ? IBV_SEND_INLINE : 0;
		}
		if (op[i] == 2 || op[i] == 3) {
			there = targets;
			targets += len[i] + 1;
		}
		wr[i] = (struct ibv_send_wr){ .wr_id = 100 + i, .opcode = ops[op[i]], .sg_list = sg[i], .num_sge = wr[i].num_sge,
					      .send_flags = wr[i].send_flags | (i == n - 1 || rnd() % 2 ? IBV_SEND_SIGNALED : 0),
					      .imm_data = rnd(), .next = i < n - 1 ? &wr[i + 1] : NULL };
		if (is_atomic(wr[i].opcode)) {
			uint64_t *word = (uint64_t *)(model[b - s] + there), old = *word;

			wr[i].wr.atomic.remote_addr = (uintptr_t)b->buf + there;
			wr[i].wr.atomic.rkey = b->mr->rkey;
			wr[i].wr.atomic.compare_add = rnd() % 2 ? old : rnd();
			wr[i].wr.atomic.swap = (uint64_t)rnd() << 32 | rnd();
			*word = op[i] == 6 ? old + wr[i].wr.atomic.compare_add : old == wr[i].wr.atomic.compare_add ? wr[i].wr.atomic.swap : old;
			memcpy(shadow(a, sg[i][0].addr), &old, 8);
		} else if (k->type == IBV_QPT_UD) {
			address(&wr[i], ah, b->qp->qp_num);
		} else {
			wr[i].wr.rdma.remote_addr = (uintptr_t)b->buf + there;
			wr[i].wr.rdma.rkey = len[i] ? b->mr->rkey : 0; /* an empty access needs no key */
		}
		if (op[i] == 4) {
			memcpy(flat, model[b - s] + there, len[i]);
			scatter(a, sg[i], 0, len[i]);
		} else if (op[i] < 4) {
			gather(a, sg[i], wr[i].num_sge);
		}
		if (op[i] < 4 && op[i] != 2) {
			uint32_t room = op[i] == 3 ? 1 : head + len[i] + rnd() % 2;
			struct ibv_recv_wr r = { .wr_id = 200 + i, .sg_list = to[i], .num_sge = room ? cut(to[i], b, &targets, room) : 0 }, *bad;

			must(srq ? ibv_post_srq_recv(srq, &r, &bad) : ibv_post_recv(b->qp, &r, &bad));
			if (op[i] < 2)
				scatter(b, to[i], head, len[i]);
		}
		if (op[i] == 2 || op[i] == 3)
			memcpy(model[b - s] + there, flat, len[i]);
		for (int j = 0; wr[i].send_flags & IBV_SEND_INLINE && j < wr[i].num_sge; j++)
			sg[i][j].lkey = rnd();
	}
	post(a, wr);
	for (unsigned i = 0; i < n; i++) {
		if (!k->sig_all && !(wr[i].send_flags & IBV_SEND_SIGNALED))
			continue;
		wc = expect_op(a->scq, 100 + i, done[op[i]]);
		assert_int_equal(wc.qp_num, a->qp->qp_num);
		if (op[i] >= 4)
			assert_int_equal(wc.byte_len, len[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		if (op[i] == 2 || op[i] >= 4)
			continue;
		wc = expect_op(b->rcq, 200 + i, op[i] == 3 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
		assert_int_equal(wc.byte_len, len[i] + head);
		assert_int_equal(wc.qp_num, b->qp->qp_num);
		assert_int_equal(!!(wc.wc_flags & IBV_WC_WITH_IMM), op[i] % 2);
		assert_true(op[i] % 2 == 0 || wc.imm_data == wr[i].imm_data);
		if (head) {
			assert_int_equal(wc.src_qp, a->qp->qp_num);
			take_header(b, to[i]);
		}
	}
	/* The sender's completion of an unreliable write does not say that it has arrived */
	for (double end = now() + PATIENCE; k->type == IBV_QPT_UC && memcmp(b->buf, model[b - s], SIZE) && now() < end;)
		usleep(20);
	assert_memory_equal(a->buf, model[a - s], SIZE);
	assert_memory_equal(b->buf, model[b - s], SIZE);
}

/* Small rings, so that WQEs of every size go round; now and then they start afresh */
static void at_random(UNUSED void **state)
{
	for (unsigned i = 0; i < ARRAY(kinds); i++) {
		struct ibv_srq_init_attr init = { .attr = { .max_wr = 2 * BATCH, .max_sge = 4 } };
		const struct kind *k = &kinds[i];
		struct how how = how_of_type(k->type);

		print_message("# %s\n", k->name);
		how.cap.max_send_wr = how.cap.max_recv_wr = BATCH;
		how.cqe = 2 * BATCH - 1;
		how.sig_all = k->sig_all;
		how.srq = k->srq ? ibv_create_srq(pd, &init) : NULL;
		if (k->wide)
			setenv("MLX5_CQE_SIZE", "128", 1);
		open_pair(s, &how);
		unsetenv("MLX5_CQE_SIZE");
		if (k->self) {
			must(move(s[0].qp, IBV_QPS_RESET, 0, &how));
			bring_up(s[0].qp, s[0].qp->qp_num, &how);
		}
		for (unsigned side = 0; side < 2; side++) {
			fill(s[side].buf, SIZE, 2 * i + side);
			memcpy(model[side], s[side].buf, SIZE);
		}
		for (unsigned n = 0; n < 150; n++) {
			unsigned from = k->self ? 0 : rnd() % 2;

			one_batch(k, &s[from], &s[k->self ? 0 : !from], how.srq);
			if (n % 50 == 49 && !k->self) {
				if (!k->srq)
					recv_at(&s[1], 1, 0, 64); /* stays in the ring */
				reconnect(s, &how);
			}
		}
		expect_nothing(s[0].scq);
		expect_nothing(s[1].rcq);
		close_pair(s);
		assert_true(!how.srq || !ibv_destroy_srq(how.srq));
	}
}

/* ---- requests that fail, or are lost ---- */

enum { W = 1, S = 2, R = 4, CAS = 8, ADD = 16, REMOTE = W | R | CAS | ADD, ALL = REMOTE | S };
#define RC IBV_QPT_RC
#define UC IBV_QPT_UC
#define UD IBV_QPT_UD

enum { NOT_POSTED = UINT32_MAX };

enum twist {
	NONE, NO_RIGHT, NO_QP_RIGHT, READ_ONLY, RIGHTS_TAKEN, OTHER_PD, OTHER_PD_THERE, RKEY_HERE, LKEY_THERE, RKEY_IN_RECEIVE, STALE,
	UNMAPPED, PEER_RESET, PEER_INIT, PEER_RC, WRONG_QKEY, WRONG_QPN, WRONG_PORT, SECOND_PIECE, BAD_RECEIVE,
};

/* Requests of 8 bytes (len: of others) on a queue pair that has two receives of 4096 (room: of others) */
static const struct refusal {
	const char *name;
	enum ibv_qp_type type;
	unsigned ops;
	enum twist twist;
	int send, recv;           /* statuses; no recv: the next message has the receive */
	enum ibv_event_type event; /* of the peer */
	int64_t off, roff;        /* from the buffers' starts; at: an address instead */
	uint64_t at, rat;
	uint32_t lkey, rkey, len, room;
} refusals[] = {
	{ "no such variant of the key", RC, ALL, NONE, .send = IBV_WC_LOC_PROT_ERR, .lkey = 0x80 },
	{ "over the end", RC, ALL, NONE, .send = IBV_WC_LOC_PROT_ERR, .off = SIZE - 7 },
	{ "before the start", RC, ALL, NONE, .send = IBV_WC_LOC_PROT_ERR, .off = -1 },
	{ "address wraps", RC, ALL, NONE, .send = IBV_WC_LOC_PROT_ERR, .at = UINT64_MAX - 3 },
	{ "second of two pieces", RC, W | S | R, SECOND_PIECE, .send = IBV_WC_LOC_PROT_ERR },
	{ "another domain's", RC, ALL, OTHER_PD, .send = IBV_WC_LOC_PROT_ERR },
	{ "the rkey, of memory here", RC, ALL, RKEY_HERE, .send = IBV_WC_LOC_PROT_ERR },
	{ "unmapped", RC, W | S, UNMAPPED, .send = IBV_WC_LOC_PROT_ERR },
	{ "not to be written here", RC, R | CAS | ADD, READ_ONLY, .send = IBV_WC_LOC_PROT_ERR },
	{ "not to be written there", RC, S, READ_ONLY, .send = IBV_WC_REM_OP_ERR, .recv = IBV_WC_LOC_PROT_ERR },
	{ "the rkey, in the receive", RC, S, RKEY_IN_RECEIVE, .send = IBV_WC_REM_OP_ERR, .recv = IBV_WC_LOC_PROT_ERR },
	{ "the receive's key", RC, S, BAD_RECEIVE, .send = IBV_WC_REM_OP_ERR, .recv = IBV_WC_LOC_PROT_ERR },
	{ "receive too short", RC, S, NONE, .send = IBV_WC_REM_INV_REQ_ERR, .recv = IBV_WC_LOC_LEN_ERR, .len = 100, .room = 99 },
	{ "no right", RC, REMOTE, NO_RIGHT, .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR },
	{ "right taken away", RC, REMOTE, RIGHTS_TAKEN, .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR },
	{ "no right of the QP", RC, REMOTE, NO_QP_RIGHT, .send = IBV_WC_REM_INV_REQ_ERR, .event = IBV_EVENT_QP_REQ_ERR },
	{ "beyond the end there", RC, REMOTE, NONE, .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR, .roff = SIZE },
	{ "over the end there", RC, W | R, NONE, .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR, .roff = SIZE - 7 },
	{ "no such key there", RC, REMOTE, NONE, .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR, .rkey = 0x40 },
	{ "address wraps there", RC, W | R, NONE, .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR, .rat = UINT64_MAX - 3 },
	{ "the last address", RC, CAS | ADD, NONE, .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR, .rat = UINT64_MAX - 7 },
	{ "another domain's there", RC, REMOTE, OTHER_PD_THERE, .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR },
	{ "the lkey there", RC, REMOTE, LKEY_THERE, .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR },
	{ "a key of before", RC, REMOTE, STALE, .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR },
	{ "unaligned", RC, CAS | ADD, NONE, .send = IBV_WC_REM_INV_REQ_ERR, .event = IBV_EVENT_QP_REQ_ERR, .roff = 4 },
	{ "no receive", RC, S, NONE, .send = IBV_WC_RNR_RETRY_EXC_ERR, .room = NOT_POSTED },
	{ "nobody there", RC, W | S, PEER_RESET, .send = IBV_WC_RETRY_EXC_ERR },
	/* Unreliable connections: the sender never hears of it */
	{ "key", UC, W | S, NONE, .send = IBV_WC_LOC_PROT_ERR, .lkey = 0x80 },
	{ "over the end", UC, W | S, NONE, .send = IBV_WC_LOC_PROT_ERR, .off = SIZE - 7 },
	{ "no answers", UC, R | CAS | ADD, NONE, .send = IBV_WC_LOC_QP_OP_ERR },
	{ "no right", UC, W, NO_RIGHT, .send = IBV_WC_SUCCESS },
	{ "no right of the QP", UC, W, NO_QP_RIGHT, .send = IBV_WC_SUCCESS },
	{ "over the end there", UC, W, NONE, .roff = SIZE - 7 },
	{ "no such key there", UC, W, NONE, .rkey = 0x40 },
	{ "no receive", UC, S, NONE, .room = NOT_POSTED },
	{ "no receive for more than a frame", UC, S, NONE, .len = 70000, .room = NOT_POSTED },
	{ "receive too short", UC, S, NONE, .len = 100, .room = 99 },
	{ "receive too short", UC, S, NONE, .len = 70000, .room = 69999 },
	{ "nobody there", UC, W | S, PEER_RESET, .send = IBV_WC_SUCCESS },
	/* Datagrams */
	{ "key", UD, S, NONE, .send = IBV_WC_LOC_PROT_ERR, .lkey = 0x80 },
	{ "over the end", UD, S, NONE, .send = IBV_WC_LOC_PROT_ERR, .off = SIZE - 7 },
	{ "more than the MTU", UD, S, NONE, .send = IBV_WC_LOC_LEN_ERR, .len = 4097 },
	{ "another key", UD, S, WRONG_QKEY, .send = IBV_WC_SUCCESS },
	{ "no such QP", UD, S, WRONG_QPN, .send = IBV_WC_SUCCESS },
	{ "another port", UD, S, WRONG_PORT, .send = IBV_WC_SUCCESS },
	{ "a QP of another kind", UD, S, PEER_RC, .send = IBV_WC_SUCCESS },
	{ "a QP that is not ready", UD, S, PEER_INIT, .send = IBV_WC_SUCCESS },
	{ "no receive", UD, S, NONE, .room = NOT_POSTED },
	{ "receive too short for the header too", UD, S, NONE, .recv = IBV_WC_LOC_LEN_ERR, .room = GRH_BYTES + 7 },
	{ "the receive's key", UD, S, BAD_RECEIVE, .recv = IBV_WC_LOC_PROT_ERR },
};

static struct ibv_send_wr good_request(const struct refusal *r, uint64_t id, struct ibv_sge *sg)
{
	struct ibv_send_wr wr;

	*sg = sge(&s[0], 0, 8);
	wr = request(IBV_WR_SEND, id, sg, 1, &s[1], 0);
	if (r->type == IBV_QPT_UD)
		address(&wr, ah, s[1].qp->qp_num);
	return wr;
}

static void one_refusal(const struct refusal *r, enum ibv_wr_opcode op, int right)
{
	static struct ibv_qp_attr to_rts = { .qp_state = IBV_QPS_RTS };
	const uint32_t len = r->len ? r->len : 8, room = r->room == NOT_POSTED ? 0 : r->room ? r->room : 4096;
	const bool dies = r->type == IBV_QPT_RC && r->send;
	struct ibv_pd *other_pd = ibv_alloc_pd(ctx);
	struct how how = how_of_type(r->type);
	struct ibv_mr *mr = NULL;
	struct ibv_ah *strange = NULL;
	struct side third;
	struct ibv_sge good_sg, from[2], to;
	struct ibv_send_wr wr, good;
	uint32_t *rkey, keys[2];
	uint64_t *raddr;

	how.rnr_retry = 2;
	how.retry_cnt = 1;
	if (r->twist == NO_RIGHT)
		how.access &= ~right;
	if (r->twist == NO_QP_RIGHT)
		how.qp_access &= ~right;
	if (r->twist == READ_ONLY)
		how.access = IBV_ACCESS_REMOTE_READ;
	open_pair(s, &how);
	keys[0] = s[0].mr->rkey;
	keys[1] = s[1].mr->rkey;
	memset(s[1].buf, 0xaa, SIZE);
	to = sge(&s[1], 0, room);
	if (r->twist == BAD_RECEIVE)
		to.lkey ^= 0x40;
	if (r->twist == RKEY_IN_RECEIVE)
		to.lkey = keys[1];
	for (int i = 1; room && i < 3; i++)
		must(post_recv(&s[1], i, &to, 1));
	from[0] = sge(&s[0], r->off, len);
	from[0].addr = r->at ? r->at : from[0].addr;
	from[0].lkey ^= r->lkey;
	if (r->twist == SECOND_PIECE) {
		from[1] = sge(&s[0], SIZE - 4, 8);
	} else if (r->twist == RKEY_HERE) {
		from[0].lkey = keys[0];
	} else if (r->twist == OTHER_PD || r->twist == OTHER_PD_THERE) {
		mr = ibv_reg_mr(other_pd, s[r->twist == OTHER_PD_THERE].buf, SIZE, ALL_ACCESS);
		assert_non_null(mr);
		if (r->twist == OTHER_PD)
			from[0].lkey = mr->lkey;
	} else if (r->twist == UNMAPPED) { /* under the device's feet: a NIC would have the page still */
		void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		mr = ibv_reg_mr(pd, p, 4096, ALL_ACCESS);
		assert_non_null(mr);
		munmap(p, 4096);
		from[0].addr = (uintptr_t)p;
		from[0].lkey = mr->lkey;
	}
	wr = request(op, 77, from, 1 + (r->twist == SECOND_PIECE), &s[1], r->roff);
	rkey = is_atomic(op) ? &wr.wr.atomic.rkey : &wr.wr.rdma.rkey;
	raddr = is_atomic(op) ? &wr.wr.atomic.remote_addr : &wr.wr.rdma.remote_addr;
	*raddr = r->rat ? r->rat : *raddr;
	*rkey = r->twist == OTHER_PD_THERE ? mr->rkey : r->twist == LKEY_THERE ? s[1].mr->lkey : *rkey ^ r->rkey;
	if (r->type == IBV_QPT_UD)
		address(&wr, ah, s[1].qp->qp_num ^ (r->twist == WRONG_QPN ? 0x800 : 0));
	if (r->twist == WRONG_QKEY)
		wr.wr.ud.remote_qkey++;
	if (r->twist == WRONG_PORT) {
		struct ibv_qp_attr a = attr_for(IBV_QPS_RTR, 0, &how);

		a.ah_attr.grh.sgid_index = 0;
		must(ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid));
		a.ah_attr.grh.dgid.raw[13] ^= 0x55;
		a.ah_attr.dlid ^= 0x55;
		strange = ibv_create_ah(pd, &a.ah_attr);
		assert_non_null(strange);
		wr.wr.ud.ah = strange;
	}
	if (r->twist == PEER_RC || r->twist == PEER_INIT) {
		const struct how theirs = how_of_type(r->twist == PEER_RC ? IBV_QPT_RC : IBV_QPT_UD);

		open_side(&third, &theirs);
		must(move(third.qp, IBV_QPS_INIT, 0, &theirs));
		recv_at(&third, 1, 0, 100);
		if (r->twist == PEER_RC) {
			must(move(third.qp, IBV_QPS_RTR, third.qp->qp_num, &theirs));
			must(move(third.qp, IBV_QPS_RTS, 0, &theirs));
		}
		wr.wr.ud.remote_qpn = third.qp->qp_num;
	}
	if (r->twist == PEER_RESET)
		must(move(s[1].qp, IBV_QPS_RESET, 0, &how));
	if (r->twist == STALE) {
		must(ibv_rereg_mr(s[1].mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, s[1].buf, SIZE, 0));
		assert_int_not_equal(s[1].mr->rkey, keys[1]);
	}
	if (r->twist == RIGHTS_TAKEN) {
		post_done(&s[0], &wr);
		memset(s[1].buf, 0xaa, SIZE);
		must(ibv_rereg_mr(s[1].mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS & ~right));
		assert_int_equal(s[1].mr->rkey, keys[1]);
	}
	recv_at(&s[0], 100, HALF, 64);

	/* It fails, what is behind it flushes, and the QP has stopped; of an unreliable one the send queue only */
	good = good_request(r, 101, &good_sg);
	wr.next = r->send ? &good : NULL;
	post(&s[0], &wr);
	expect(s[0].scq, 77, r->send);
	if (r->send)
		expect(s[0].scq, 101, IBV_WC_WR_FLUSH_ERR);
	if (dies) {
		expect(s[0].rcq, 100, IBV_WC_WR_FLUSH_ERR);
		good.wr_id = 102;
		good.send_flags = 0;
		post(&s[0], &good);
		expect(s[0].scq, 102, IBV_WC_WR_FLUSH_ERR);
		recv_at(&s[0], 103, 0, 64);
		expect(s[0].rcq, 103, IBV_WC_WR_FLUSH_ERR);
		if (r->twist != PEER_RESET) /* what the peer finds wrong stops it too */
			assert_int_equal(state_of(s[1].qp), r->event || r->recv ? IBV_QPS_ERR : IBV_QPS_RTS);
	}
	assert_int_equal(state_of(s[0].qp), dies ? IBV_QPS_ERR : r->send ? IBV_QPS_SQE : IBV_QPS_RTS);
	if (r->event)
		assert_ptr_equal(expect_event(ctx, r->event), s[1].qp);
	if (r->recv) {
		expect(s[1].rcq, 1, r->recv);
		if (r->type != IBV_QPT_UC)
			expect(s[1].rcq, 2, IBV_WC_WR_FLUSH_ERR);
	}
	assert_true(all_bytes(s[1].buf + (r->room ? room : 0), SIZE - (r->room ? room : 0), 0xaa));
	if (!dies && !r->recv) { /* all goes on */
		if (r->send) {
			assert_int_equal(state_of(s[1].qp), IBV_QPS_RTS);
			good = good_request(r, 104, &good_sg);
			good_sg = sge(&s[1], 0, 8);
			if (r->type == IBV_QPT_UD)
				address(&good, ah, s[0].qp->qp_num);
			post_done(&s[1], &good);
			expect(s[0].rcq, 100, IBV_WC_SUCCESS);
			must(ibv_modify_qp(s[0].qp, &to_rts, IBV_QP_STATE));
		}
		if (r->twist == PEER_RESET)
			reconnect(s, &how);
		if (!room || r->twist == PEER_RESET)
			recv_at(&s[1], 1, 0, 4096);
		good = good_request(r, 105, &good_sg);
		fill(s[0].buf, 8, 105);
		post_done(&s[0], &good);
		expect(s[1].rcq, 1, IBV_WC_SUCCESS);
		assert_memory_equal(s[1].buf + (r->type == IBV_QPT_UD ? GRH_BYTES : 0), s[0].buf, 8);
	}
	if (r->twist == PEER_RC || r->twist == PEER_INIT) {
		assert_int_equal(ibv_poll_cq(third.rcq, 1, &wc), 0);
		assert_int_equal(state_of(third.qp), r->twist == PEER_RC ? IBV_QPS_RTS : IBV_QPS_INIT);
		close_side(&third);
	}
	close_pair(s);
	assert_true(!strange || !ibv_destroy_ah(strange));
	assert_true(!mr || !ibv_dereg_mr(mr));
	must(ibv_dealloc_pd(other_pd));
	assert_false(readable(ctx->async_fd, 0));
}

static void wrong_requests(UNUSED void **state)
{
	static const struct {
		enum ibv_wr_opcode op;
		int right;
	} ops[] = { { IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE }, { IBV_WR_SEND, 0 }, { IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ },
		    { IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC }, { IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC } };

	for (unsigned i = 0; i < ARRAY(refusals); i++)
		for (unsigned op = 0; op < ARRAY(ops); op++) {
			/* Adapters have one key for both sides; here each is good for its own, so that swapped ones are seen */
			bool two_keys = refusals[i].twist != RKEY_HERE && refusals[i].twist != LKEY_THERE && refusals[i].twist != RKEY_IN_RECEIVE;

			if (refusals[i].ops & 1u << op && (two_keys || softdev_present())) {
				print_message("# %s, type %d, operation %d\n", refusals[i].name, refusals[i].type, ops[op].op);
				one_refusal(&refusals[i], ops[op].op, ops[op].right);
			}
		}
}

/* What was done before the error completes before it, and nothing twice */
static void error_in_the_middle(UNUSED void **state)
{
	static const enum ibv_wc_status status[] = { 0, 0, 0, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR };
	struct ibv_send_wr wr[6];
	struct ibv_sge sg[6];

	open_pair(s, &usual);
	fill(s[0].buf, 4096, 9);
	memset(s[1].buf, 0xaa, 4096);
	for (int i = 0; i < 6; i++) {
		sg[i] = sge(&s[0], 8 * i, 8);
		wr[i] = request(IBV_WR_RDMA_WRITE, i, &sg[i], 1, &s[1], 8 * i);
		wr[i].send_flags = i == 1 || i == 4 ? 0 : IBV_SEND_SIGNALED;
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
	}
	wr[3].wr.rdma.rkey ^= 1;
	post(&s[0], wr);
	for (int i = 0; i < 6; i++)
		if (i != 1)
			expect(s[0].scq, i, status[i]);
	expect_nothing(s[0].scq);
	assert_memory_equal(s[1].buf, s[0].buf, 24);
	assert_true(all_bytes(s[1].buf + 24, 24, 0xaa));
	close_pair(s);
}

/* The program's own way into the error state, and back */
static void flush_by_modify(UNUSED void **state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (unsigned t = 0; t < ARRAY(types); t++) {
		const struct refusal r = { .type = types[t] };
		struct how how = how_of_type(types[t]);

		open_pair(s, &how);
		for (int i = 0; i < 5; i++)
			recv_at(&s[0], i, 0, 100);
		must(move(s[0].qp, IBV_QPS_ERR, 0, &how));
		for (int i = 0; i < 5; i++)
			expect(s[0].rcq, i, IBV_WC_WR_FLUSH_ERR);
		wr = good_request(&r, 9, &sg);
		post(&s[0], &wr);
		expect(s[0].scq, 9, IBV_WC_WR_FLUSH_ERR);
		expect_nothing(s[0].rcq);
		reconnect(s, &how);
		recv_at(&s[1], 10, 0, 100);
		post_done(&s[0], &wr);
		expect_op(s[1].rcq, 10, IBV_WC_RECV);
		close_pair(s);
	}
}

/* With 7 retries, which is for ever, the receive may come late */
static void late_receive(UNUSED void **state)
{
	open_request(&usual, IBV_WR_SEND, 3, 8, 0);
	post(&s[0], &wr);
	expect_nothing(s[0].scq);
	recv_at(&s[1], 1, 0, 8);
	expect_op(s[0].scq, 3, IBV_WC_SEND);
	expect_op(s[1].rcq, 1, IBV_WC_RECV);
	close_pair(s);
}

/* Small READ results come in the CQE where every WQE has one, and libmlx5 copies them at the poll; else the device writes them */
static void scatter_to_cqe(UNUSED void **state)
{
	struct how how = usual;

	for (int all = 0; all < 2 && !getenv("MLX5_SCATTER_TO_CQE"); all++) {
		how.sig_all = all;
		open_pair(s, &how);
		fill(s[1].buf, 16, 4);
		wr = first_to_second(IBV_WR_RDMA_READ, 5, 0, 16, 0);
		post(&s[0], &wr);
		for (double end = now() + (all ? 0.02 : PATIENCE); memcmp(s[0].buf, s[1].buf, 16) && now() < end;)
			usleep(20);
		assert_int_equal(all_bytes(s[0].buf, 16, 0), all);
		expect_op(s[0].scq, 5, IBV_WC_RDMA_READ);
		assert_memory_equal(s[0].buf, s[1].buf, 16);
		close_pair(s);
	}
}

/* ---- two processes ---- */

/* The other process: connects, and is then in this state */
static int peer(const char *then)
{
	struct side s;

	if (setup(NULL))
		return 1;
	open_remote(&first_process, &s, &usual);
	if (strcmp(then, "rts"))
		must(move(s.qp, IBV_QPS_RESET, 0, &usual));
	if (!strcmp(then, "init"))
		must(move(s.qp, IBV_QPS_INIT, 0, &usual));
	tell(&first_process);
	hear(&first_process);
	return state_of(s.qp) != (!strcmp(then, "rts") ? IBV_QPS_RTS : !strcmp(then, "init") ? IBV_QPS_INIT : IBV_QPS_RESET);
}

static struct card reach(struct peer *other, struct side *s, const struct how *how)
{
	struct card theirs = open_remote(other, s, how);

	hear(other);
	return theirs;
}

static void part(struct peer *other, struct side *s)
{
	tell(other);
	must(end_peer(other));
	close_side(s);
}

/* A READ finds a QP that was connected once: it gets no answer, and changes nothing there */
static void read_of_reset(UNUSED void **state)
{
	static const char *const states[] = { "reset", "init" };
	struct how how = usual;

	how.retry_cnt = 1;
	for (unsigned i = 0; i < ARRAY(states); i++) {
		struct peer other = start_peer("peer", states[i]);
		struct card theirs = reach(&other, &s[0], &how);

		sg = sge(&s[0], 0, 8);
		wr = request(IBV_WR_RDMA_READ, 1, &sg, 1, &s[0], 0);
		wr.wr.rdma.remote_addr = theirs.addr;
		wr.wr.rdma.rkey = theirs.rkey;
		post(&s[0], &wr);
		expect(s[0].scq, 1, IBV_WC_RETRY_EXC_ERR);
		part(&other, &s[0]);
	}
}

/* A younger request fails before the elder is sent again: it has to wait for how that one ends */
static void elder_not_received(UNUSED void **state)
{
	struct peer other = start_peer("peer", "rts");
	struct how how = usual;
	struct ibv_send_wr two;
	struct ibv_sge none;

	how.rnr_retry = 2;
	reach(&other, &s[0], &how);
	sg = none = sge(&s[0], 0, 8);
	none.lkey ^= 0x80;
	wr = request(IBV_WR_SEND, 1, &sg, 1, &s[0], 0);
	two = request(IBV_WR_SEND, 2, &none, 1, &s[0], 0);
	wr.next = &two;
	post(&s[0], &wr);
	expect(s[0].scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	expect(s[0].scq, 2, IBV_WC_WR_FLUSH_ERR);
	part(&other, &s[0]);
}

#define READS 16 /* as many as may be under way */

/* Up again, and what it sends next has this PSN; its peer expects that of attr_for() */
static void connect_again(struct ibv_qp *qp, uint32_t dest, uint32_t psn)
{
	struct ibv_qp_attr a = attr_for(IBV_QPS_RTS, dest, &usual);

	a.sq_psn = psn;
	must(move(qp, IBV_QPS_RESET, 0, &usual));
	must(move(qp, IBV_QPS_INIT, 0, &usual));
	must(move(qp, IBV_QPS_RTR, dest, &usual));
	must(ibv_modify_qp(qp, &a, RTS_MASK));
}

/*
 * A process that was stopped finds requests of an earlier connection, and must refuse each of them.
 * It still has room for its answers to the next connection: READs, and another refusal
 */
static void many_refused(UNUSED void **state)
{
	struct side own[2];

	open_pair(own, &usual);
	for (unsigned refused = 0; refused < 2; refused++) {
		struct peer other = start_peer("peer", "rts");
		struct card theirs = reach(&other, &s[0], &usual);
		int status;

		must(kill(other.pid, SIGSTOP));
		assert_int_equal(waitpid(other.pid, &status, WUNTRACED), other.pid);
		connect_again(s[0].qp, theirs.qpn, 1);
		sg = sge(&s[0], 0, 8);
		wr = request(IBV_WR_RDMA_WRITE, 0, &sg, 1, &s[0], 0);
		wr.send_flags = 0;
		for (unsigned i = 0; i < 40; i++)
			post(&s[0], &wr);
		writes(own, 8, false); /* by then those have left */
		connect_again(s[0].qp, theirs.qpn, refused ? 1 : 0x123456);
		wr = request(IBV_WR_RDMA_READ, 0, &sg, 1, &s[0], 0);
		wr.wr.rdma.remote_addr = theirs.addr;
		wr.wr.rdma.rkey = theirs.rkey;
		for (; wr.wr_id < (refused ? 1 : READS); wr.wr_id++)
			post(&s[0], &wr);
		writes(own, 8, false);
		must(kill(other.pid, SIGCONT));
		for (unsigned i = 0; i < wr.wr_id; i++)
			expect(s[0].scq, i, refused ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
		part(&other, &s[0]);
	}
	close_pair(own);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(at_random), TEST(wrong_requests), TEST(error_in_the_middle), TEST(flush_by_modify), TEST(late_receive),
		TEST(scatter_to_cqe), TEST(read_of_reset), TEST(elder_not_received), TEST(many_refused),
	};

	if (argc == 3)
		return peer(argv[2]);
	return cmocka_run_group_tests(tests, setup_traffic, teardown_traffic) + again_with("SOFTDEV_LINK", "ib");
}
