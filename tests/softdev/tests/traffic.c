/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * traffic.c: RC, UC and UD QPs: a table says what each wrong request does to both sides; two processes meet what only the wire
 * between them shows. That right ones move what they should is shown by queue/queue.c, storm.c, atomics.c and srq.c on this device.
 */
#include "rig.h"
#include <signal.h>

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* ---- requests that fail, or are lost ---- */

enum { W = 1, S = 2, R = 4, CAS = 8, ADD = 16, REMOTE = W | R | CAS | ADD, ALL = REMOTE | S };
enum { NOT_POSTED = UINT32_MAX };
enum twist {
	NONE, NO_RIGHT, NO_QP_RIGHT, READ_ONLY, RIGHT_TAKEN, OTHER_PD, OTHER_PD_THERE, RKEY_HERE, LKEY_THERE, RKEY_IN_RECEIVE, STALE,
	UNMAPPED, NOBODY, PEER_INIT, PEER_RC, WRONG_QKEY, WRONG_QPN, WRONG_PORT, WRONG_HEADER, SECOND_PIECE, BAD_RECEIVE,
};

#define RC IBV_QPT_RC
#define UC IBV_QPT_UC
#define UD IBV_QPT_UD
#define PROT IBV_WC_LOC_PROT_ERR
#define ACCESS .send = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR
#define INVALID .send = IBV_WC_REM_INV_REQ_ERR, .event = IBV_EVENT_QP_REQ_ERR

/* The request is wr; a row's twist spoils it, or what it meets */
static struct how how;
static int right;                 /* that it needs */
static struct ibv_sge from[2], to; /* its pieces; what the second side's receives have */
static uint32_t *rkey;
static struct ibv_pd *other_pd;
static struct ibv_mr *mr;
static struct side third;

static uint32_t registered(struct ibv_pd *of, void *at, size_t len, bool local)
{
	mr = made(ibv_reg_mr(of, at, len, ALL_ACCESS));
	return local ? mr->lkey : mr->rkey;
}

/* Datagrams to a strange GID, by this LID */
static void way_to(uint16_t lid, bool global)
{
	struct ibv_ah_attr a = { .port_num = 1, .dlid = lid, .is_global = global, .grh.hop_limit = 64 };

	must(ibv_query_gid(ctx, 1, 0, &a.grh.dgid));
	a.grh.dgid.raw[13] ^= 0x55;
	wr.wr.ud.ah = made(ibv_create_ah(pd, &a));
}

/* To a QP of this type in this state, which takes nothing */
static void to_third(enum ibv_qp_type type, enum ibv_qp_state state)
{
	const struct how theirs = how_of_type(type);

	open_side(&third, &theirs);
	for (enum ibv_qp_state at = IBV_QPS_INIT; at <= state; at++)
		must(move(third.qp, at, third.qp->qp_num, &theirs));
	recv_at(&third, 1, 0, 100);
	wr.wr.ud.remote_qpn = third.qp->qp_num;
}

static void spoil(enum twist twist)
{
	switch (twist) {
	case SECOND_PIECE:
		from[1] = sge(&s[0], SIZE - 4, 8);
		wr.num_sge = 2;
		break;
	case OTHER_PD: from[0].lkey = registered(other_pd, s[0].buf, SIZE, true); break;
	case OTHER_PD_THERE: *rkey = registered(other_pd, s[1].buf, SIZE, false); break;
	case RKEY_HERE: from[0].lkey = s[0].mr->rkey; break;
	case LKEY_THERE: *rkey = s[1].mr->lkey; break;
	case RKEY_IN_RECEIVE: to.lkey = s[1].mr->rkey; break;
	case BAD_RECEIVE: to.lkey ^= 0x40; break;
	case UNMAPPED: /* under the device's feet: a NIC would have the page still */
		from[0].addr = (uintptr_t)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		from[0].lkey = registered(pd, (void *)(uintptr_t)from[0].addr, 4096, true);
		munmap((void *)(uintptr_t)from[0].addr, 4096);
		break;
	case STALE:
		must(ibv_rereg_mr(s[1].mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, s[1].buf, SIZE, 0));
		assert_int_not_equal(s[1].mr->rkey, *rkey);
		break;
	case RIGHT_TAKEN:
		post_done(&s[0], &wr);
		memset(s[1].buf, 0xaa, SIZE);
		must(ibv_rereg_mr(s[1].mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS & ~right));
		assert_int_equal(s[1].mr->rkey, *rkey);
		break;
	case NOBODY: must(move(s[1].qp, IBV_QPS_RESET, 0, &how)); break;
	case WRONG_QKEY: wr.wr.ud.remote_qkey++; break;
	case WRONG_QPN: wr.wr.ud.remote_qpn ^= 0x800; break;
	case WRONG_PORT: way_to(port.lid ^ 0x55, is_roce()); break;
	case WRONG_HEADER: way_to(port.lid, true); break;
	case PEER_RC: to_third(IBV_QPT_RC, IBV_QPS_RTS); break;
	case PEER_INIT: to_third(IBV_QPT_UD, IBV_QPS_INIT); break;
	default: break; /* the row itself says it */
	}
}

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
	{ "no such variant of the key", RC, ALL, NONE, .send = PROT, .lkey = 0x80 },
	{ "over the end", RC, ALL, NONE, .send = PROT, .off = SIZE - 7 },
	{ "before the start", RC, ALL, NONE, .send = PROT, .off = -1 },
	{ "address wraps", RC, ALL, NONE, .send = PROT, .at = UINT64_MAX - 3 },
	{ "second of two pieces", RC, W | S | R, SECOND_PIECE, .send = PROT },
	{ "another domain's", RC, ALL, OTHER_PD, .send = PROT },
	{ "the rkey, of memory here", RC, ALL, RKEY_HERE, .send = PROT },
	{ "unmapped", RC, W | S, UNMAPPED, .send = PROT },
	{ "not to be written here", RC, R | CAS | ADD, READ_ONLY, .send = PROT },
	{ "not to be written there", RC, S, READ_ONLY, .send = IBV_WC_REM_OP_ERR, .recv = PROT },
	{ "the rkey, in the receive", RC, S, RKEY_IN_RECEIVE, .send = IBV_WC_REM_OP_ERR, .recv = PROT },
	{ "the receive's key", RC, S, BAD_RECEIVE, .send = IBV_WC_REM_OP_ERR, .recv = PROT },
	{ "receive too short", RC, S, NONE, .send = IBV_WC_REM_INV_REQ_ERR, .recv = IBV_WC_LOC_LEN_ERR, .len = 100, .room = 99 },
	{ "no right", RC, REMOTE, NO_RIGHT, ACCESS },
	{ "right taken away", RC, REMOTE, RIGHT_TAKEN, ACCESS },
	{ "no right of the QP", RC, REMOTE, NO_QP_RIGHT, INVALID },
	{ "beyond the end there", RC, REMOTE, NONE, ACCESS, .roff = SIZE },
	{ "over the end there", RC, W | R, NONE, ACCESS, .roff = SIZE - 7 },
	{ "no such key there", RC, REMOTE, NONE, ACCESS, .rkey = 0x40 },
	{ "address wraps there", RC, W | R, NONE, ACCESS, .rat = UINT64_MAX - 3 },
	{ "the last address", RC, CAS | ADD, NONE, ACCESS, .rat = UINT64_MAX - 7 },
	{ "another domain's there", RC, REMOTE, OTHER_PD_THERE, ACCESS },
	{ "the lkey there", RC, REMOTE, LKEY_THERE, ACCESS },
	{ "a key of before", RC, REMOTE, STALE, ACCESS },
	{ "unaligned", RC, CAS | ADD, NONE, INVALID, .roff = 4 },
	{ "no receive", RC, S, NONE, .send = IBV_WC_RNR_RETRY_EXC_ERR, .room = NOT_POSTED },
	{ "nobody there", RC, W | S, NOBODY, .send = IBV_WC_RETRY_EXC_ERR },
	/* Unreliable connections: the sender never hears of it */
	{ "key", UC, W | S, NONE, .send = PROT, .lkey = 0x80 },
	{ "over the end", UC, W | S, NONE, .send = PROT, .off = SIZE - 7 },
	{ "no answers", UC, R | CAS | ADD, NONE, .send = IBV_WC_LOC_QP_OP_ERR },
	{ "no right", UC, W, NO_RIGHT, .send = 0 },
	{ "no right of the QP", UC, W, NO_QP_RIGHT, .send = 0 },
	{ "over the end there", UC, W, NONE, .roff = SIZE - 7 },
	{ "no such key there", UC, W, NONE, .rkey = 0x40 },
	{ "no receive", UC, S, NONE, .room = NOT_POSTED },
	{ "no receive for more than a frame", UC, S, NONE, .len = 70000, .room = NOT_POSTED },
	{ "receive too short", UC, S, NONE, .len = 9, .room = 8 }, /* the next message just fits */
	{ "receive too short", UC, S, NONE, .len = 70000, .room = 69999 },
	{ "nobody there", UC, W | S, NOBODY, .send = 0 },
	/* Datagrams */
	{ "key", UD, S, NONE, .send = PROT, .lkey = 0x80 },
	{ "over the end", UD, S, NONE, .send = PROT, .off = SIZE - 7 },
	{ "more than the MTU", UD, S, NONE, .send = IBV_WC_LOC_LEN_ERR, .len = 4097 },
	{ "another key", UD, S, WRONG_QKEY, .send = 0 },
	{ "no such QP", UD, S, WRONG_QPN, .send = 0 },
	{ "another port", UD, S, WRONG_PORT, .send = 0 },
	{ "a header that means another port", UD, S, WRONG_HEADER, .send = 0 },
	{ "a QP of another kind", UD, S, PEER_RC, .send = 0 },
	{ "a QP that is not ready", UD, S, PEER_INIT, .send = 0 },
	{ "no receive", UD, S, NONE, .room = NOT_POSTED },
	{ "receive too short for the header too", UD, S, NONE, .recv = IBV_WC_LOC_LEN_ERR, .room = GRH_BYTES + 7 },
	{ "the receive's key", UD, S, BAD_RECEIVE, .recv = PROT },
};

/* A message of 8 bytes, and no more than that */
static struct ibv_send_wr message(enum ibv_qp_type type, uint64_t id, const struct side *by, const struct side *at, struct ibv_sge *sg)
{
	struct ibv_send_wr wr = request(IBV_WR_SEND, id, sg, 1, at, 0);

	*sg = sge(by, 0, 8);
	if (type == UD)
		address(&wr, ah, at->qp->qp_num);
	return wr;
}

/* The other side works on, and the first does when it is asked to; so does the next message */
static void goes_on(const struct refusal *r, bool posted)
{
	static struct ibv_qp_attr to_rts = { .qp_state = IBV_QPS_RTS };
	struct ibv_send_wr good;
	struct ibv_sge sg;

	if (r->send) {
		assert_int_equal(state_of(s[1].qp), IBV_QPS_RTS);
		good = message(r->type, 104, &s[1], &s[0], &sg);
		post_done(&s[1], &good);
		expect(s[0].rcq, 100, IBV_WC_SUCCESS);
		must(ibv_modify_qp(s[0].qp, &to_rts, IBV_QP_STATE));
	}
	if (r->twist == NOBODY)
		reconnect(s, &how);
	if (!posted || r->twist == NOBODY)
		recv_at(&s[1], 1, 0, 4096);
	good = message(r->type, 105, &s[0], &s[1], &sg);
	fill(s[0].buf, 8, 105);
	post_done(&s[0], &good);
	expect(s[1].rcq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(s[1].buf + (r->type == UD ? GRH_BYTES : 0), s[0].buf, 8);
}

static void one_refusal(const struct refusal *r, enum ibv_wr_opcode op)
{
	const uint32_t room = r->room == NOT_POSTED ? 0 : r->room ? r->room : 4096, may_change = r->room ? room : 0;
	const bool dies = r->type == RC && r->send;
	struct ibv_send_wr good[2];
	struct ibv_sge sg[2];
	uint64_t *raddr;

	how = how_of_type(r->type);
	how.rnr_retry = 2;
	how.retry_cnt = 1;
	how.access = r->twist == READ_ONLY ? IBV_ACCESS_REMOTE_READ : ALL_ACCESS & ~(r->twist == NO_RIGHT ? right : 0);
	how.qp_access &= ~(r->twist == NO_QP_RIGHT ? right : 0);
	other_pd = ibv_alloc_pd(ctx);
	mr = NULL;
	third.qp = NULL;
	open_pair(s, &how);
	memset(s[1].buf, 0xaa, SIZE);
	to = sge(&s[1], 0, room);
	from[0] = sge(&s[0], r->off, r->len ? r->len : 8);
	from[0].addr = r->at ? r->at : from[0].addr;
	from[0].lkey ^= r->lkey;
	wr = request(op, 77, from, 1, &s[1], r->roff);
	rkey = is_atomic(op) ? &wr.wr.atomic.rkey : &wr.wr.rdma.rkey;
	raddr = is_atomic(op) ? &wr.wr.atomic.remote_addr : &wr.wr.rdma.remote_addr;
	*raddr = r->rat ? r->rat : *raddr;
	*rkey ^= r->rkey;
	if (r->type == UD)
		address(&wr, ah, s[1].qp->qp_num);
	spoil(r->twist);
	for (int i = 1; room && r->twist != NOBODY && i < 3; i++)
		must(post_recv(&s[1], i, &to, 1));
	recv_at(&s[0], 100, HALF, 64);

	/* It fails, what is behind it flushes, and the QP has stopped; of an unreliable one the send queue only */
	for (int i = 0; i < 2; i++)
		good[i] = message(r->type, 101 + i, &s[0], &s[1], &sg[i]);
	wr.next = r->send ? &good[0] : NULL;
	post(&s[0], &wr);
	expect(s[0].scq, 77, r->send);
	if (r->send)
		expect(s[0].scq, 101, IBV_WC_WR_FLUSH_ERR);
	if (dies) {
		expect(s[0].rcq, 100, IBV_WC_WR_FLUSH_ERR);
		good[1].send_flags = 0;
		post(&s[0], &good[1]);
		expect(s[0].scq, 102, IBV_WC_WR_FLUSH_ERR);
		recv_at(&s[0], 103, 0, 64);
		expect(s[0].rcq, 103, IBV_WC_WR_FLUSH_ERR);
		if (r->twist != NOBODY) /* what the peer finds wrong stops it too */
			assert_int_equal(state_of(s[1].qp), r->event || r->recv ? IBV_QPS_ERR : IBV_QPS_RTS);
	}
	assert_int_equal(state_of(s[0].qp), dies ? IBV_QPS_ERR : r->send ? IBV_QPS_SQE : IBV_QPS_RTS);
	if (r->event)
		assert_ptr_equal(expect_event(ctx, r->event), s[1].qp);
	if (r->recv)
		expect(s[1].rcq, 1, r->recv);
	if (r->recv && r->type != UC)
		expect(s[1].rcq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_true(all_bytes(s[1].buf + may_change, SIZE - may_change, 0xaa));
	if (!dies && !r->recv)
		goes_on(r, room);
	if (third.qp) {
		assert_int_equal(ibv_poll_cq(third.rcq, 1, &wc), 0);
		assert_int_equal(state_of(third.qp), r->twist == PEER_RC ? IBV_QPS_RTS : IBV_QPS_INIT);
		close_side(&third);
	}
	close_pair(s);
	assert_true(r->type != UD || wr.wr.ud.ah == ah || !ibv_destroy_ah(wr.wr.ud.ah));
	assert_true(!mr || !ibv_dereg_mr(mr));
	must(ibv_dealloc_pd(other_pd));
	assert_false(readable(ctx->async_fd, 0));
}

TEST(wrong_requests)
{
	static const struct {
		enum ibv_wr_opcode op;
		int right;
	} ops[] = { { IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE }, { IBV_WR_SEND, 0 }, { IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ },
		    { IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC }, { IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC } };

	for (const struct refusal *r = refusals; r < refusals + ARRAY(refusals); r++)
		for (unsigned op = 0; op < ARRAY(ops); op++) {
			/* Adapters have one key for both sides; here each is good for its own, so that swapped ones are seen */
			bool two_keys = r->twist == RKEY_HERE || r->twist == LKEY_THERE || r->twist == RKEY_IN_RECEIVE;

			if (!(r->ops & 1u << op) || (two_keys && !softdev_present()))
				continue;
			print_message("# %s, type %d, operation %d\n", r->name, r->type, ops[op].op);
			right = ops[op].right;
			one_refusal(r, ops[op].op);
		}
}

/* Of a message in pieces whose last page has gone, what lies before it has arrived */
TEST(partly_unmapped)
{
	open_pair(s, &usual);
	fill(s[0].buf, 4096, 3);
	munmap(s[0].buf + 4096, 4096);
	struct ibv_sge out[3] = { sge(&s[0], 0, 100), sge(&s[0], 3896, 200), sge(&s[0], 4096, 100) };
	struct ibv_sge in[2] = { sge(&s[1], 0, 50), sge(&s[1], 1000, 400) };
	must(post_recv(&s[1], 1, in, 2));
	wr = request(IBV_WR_SEND, 5, out, 3, &s[1], 0);
	post(&s[0], &wr);
	expect(s[0].scq, 5, PROT);
	assert_memory_equal(s[1].buf, s[0].buf, 50);
	assert_memory_equal(s[1].buf + 1000, s[0].buf + 50, 50);
	assert_memory_equal(s[1].buf + 1050, s[0].buf + 3896, 200);
	assert_true(all_bytes(s[1].buf + 50, 950, 0) && all_bytes(s[1].buf + 1250, 150, 0));
	close_pair(s);
}

/* The program's own way into the error state, and back */
TEST(flush_by_modify)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (unsigned t = 0; t < ARRAY(types); t++) {
		how = how_of_type(types[t]);
		open_pair(s, &how);
		for (int i = 0; i < 5; i++)
			recv_at(&s[0], i, 0, 100);
		must(move(s[0].qp, IBV_QPS_ERR, 0, &how));
		for (int i = 0; i < 5; i++)
			expect(s[0].rcq, i, IBV_WC_WR_FLUSH_ERR);
		wr = message(types[t], 9, &s[0], &s[1], &sg);
		post(&s[0], &wr);
		expect(s[0].scq, 9, IBV_WC_WR_FLUSH_ERR);
		expect_nothing(s[0].rcq);
		reconnect(s, &how);
		recv_at(&s[1], 10, 0, 100);
		usleep(10000); /* the device naps */
		post(&s[0], &wr);
		must(move(s[0].qp, IBV_QPS_ERR, 0, &how)); /* has left by then, as on a NIC */
		expect_op(s[1].rcq, 10, IBV_WC_RECV);
		close_pair(s);
	}
}

/* Small READ results come in the CQE where every WQE has one, and libmlx5 copies them at the poll; else the device writes them */
TEST(scatter_to_cqe)
{
	how = usual;
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
	const enum ibv_qp_state state = then[0] - '0';

	if (setup(NULL))
		return 1;
	open_remote(&first_process, s, &usual);
	if (state < IBV_QPS_RTS)
		must(move(s->qp, IBV_QPS_RESET, 0, &usual));
	if (state == IBV_QPS_INIT)
		must(move(s->qp, IBV_QPS_INIT, 0, &usual));
	tell(&first_process);
	hear(&first_process);
	return state_of(s->qp) != state;
}

static struct peer other;
static struct card theirs;

static void reach(enum ibv_qp_state then, const struct how *as)
{
	other = start_peer("peer", (char[]){ '0' + then, 0 });
	theirs = open_remote(&other, s, as);
	hear(&other);
	sg = sge(s, 0, 8);
}

static void part(void)
{
	tell(&other);
	must(end_peer(&other));
	close_side(s);
}

static void read_theirs(uint64_t id)
{
	wr = request(IBV_WR_RDMA_READ, id, &sg, 1, s, 0);
	aim(&wr, theirs.addr, theirs.rkey);
	post(s, &wr);
}

/* A READ finds a QP that was connected once: it gets no answer, and changes nothing there */
TEST(read_of_reset)
{
	how = usual;
	how.retry_cnt = 1;
	for (enum ibv_qp_state then = IBV_QPS_RESET; then <= IBV_QPS_INIT; then++) {
		reach(then, &how);
		read_theirs(1);
		expect(s->scq, 1, IBV_WC_RETRY_EXC_ERR);
		part();
	}
}

/* A younger request fails before the elder is sent again: it has to wait for how that one ends */
TEST(elder_not_received)
{
	struct ibv_send_wr two;
	struct ibv_sge none;

	how = usual;
	how.rnr_retry = 2;
	reach(IBV_QPS_RTS, &how);
	none = sg;
	none.lkey ^= 0x80;
	wr = request(IBV_WR_SEND, 1, &sg, 1, s, 0);
	two = request(IBV_WR_SEND, 2, &none, 1, s, 0);
	wr.next = &two;
	post(s, &wr);
	expect(s->scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	expect(s->scq, 2, IBV_WC_WR_FLUSH_ERR);
	part();
}

/* Up again, and what it sends next has this PSN; its peer expects that of attr_for() */
static void connect_again(struct ibv_qp *qp, uint32_t dest, uint32_t psn)
{
	struct ibv_qp_attr a = attr_for(IBV_QPS_RTS, dest, &usual);

	a.sq_psn = psn;
	for (enum ibv_qp_state to = IBV_QPS_RESET; to <= IBV_QPS_RTR; to++)
		must(move(qp, to, dest, &usual));
	must(ibv_modify_qp(qp, &a, RTS_MASK));
}

/*
 * A process that was stopped finds requests of an earlier connection, and must refuse each of them. It still has room for its answers
 * to the next connection: as many READs as may be under way, or another refusal.
 */
TEST(many_refused)
{
	struct side own[2];

	open_pair(own, &usual);
	for (unsigned reads = 1; reads <= 16; reads += 15) {
		int status;

		reach(IBV_QPS_RTS, &usual);
		must(kill(other.pid, SIGSTOP));
		assert_int_equal(waitpid(other.pid, &status, WUNTRACED), other.pid);
		connect_again(s->qp, theirs.qpn, 1);
		wr = request(IBV_WR_RDMA_WRITE, 0, &sg, 1, s, 0);
		wr.send_flags = 0;
		for (unsigned i = 0; i < 40; i++)
			post(s, &wr);
		writes(own, 8, false); /* by then those have left */
		connect_again(s->qp, theirs.qpn, reads == 1 ? 1 : 0x123456);
		for (unsigned i = 0; i < reads; i++)
			read_theirs(i);
		writes(own, 8, false);
		must(kill(other.pid, SIGCONT));
		for (unsigned i = 0; i < reads; i++)
			expect(s->scq, i, reads == 1 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
		part();
	}
	close_pair(own);
}

/* Between two WQEs of the same index all others were flushed: what was read of the first is not taken for the second */
TEST(a_lap_flushed)
{
	const struct how how = how_of_type(IBV_QPT_UC);
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS };
	struct ibv_sge four[4]; /* which take two WQEBBs */

	open_pair(s, &how);
	for (unsigned i = 0; i < 4; i++)
		four[i] = sge(s, 64 * i, 8);
	wr = request(IBV_WR_RDMA_WRITE, 1, four, 4, &s[1], HALF);
	four[0].lkey ^= 0x100;
	post(s, &wr);
	expect(s->scq, 1, IBV_WC_LOC_PROT_ERR);
	four[0].lkey ^= 0x100;
	for (unsigned i = 0; i < 32767; i++) {
		post(s, &wr);
		for (unsigned k = 0; i % 31 == 30 && k < 31; k++)
			expect(s->scq, 1, IBV_WC_WR_FLUSH_ERR);
	}
	must(ibv_modify_qp(s[0].qp, &rts, IBV_QP_STATE));
	post_done(s, &wr);
	close_pair(s);
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return peer(argv[2]);
	return run_all(setup_ah, teardown_ah) + again_with("SOFTDEV_LINK", "ib");
}
