/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rings.c: queue.h on plain memory, without a device: arguments, credit, what a doorbell writes where, indices that come round, the
 * receive ring, the shared receive queue's list, the completion ring. Each against a model that knows nothing of how the header keeps its
 * state.
 */
#include "rig.h"
#include <endian.h>

static struct mlx5_cqe64 a_cqe; /* of a receive queue, which looks at nothing but its opcode */

#define QPN 0xabcdefu
#define REG 256

/* A send queue on plain memory */
struct raw {
	uint8_t reg[2 * REG] __attribute__((aligned(2 * REG)));
	uint32_t dbrec[2];
	uint8_t *buf;
	uint32_t bbs;
	struct inlay_uar uar;
	struct inlay_sq sq;
};

static struct raw *raw_make(uint32_t bbs, uint32_t max_ds, uint32_t mode)
{
	struct raw *r = (struct raw *)pages(sizeof(*r));

	r->buf = (uint8_t *)pages((size_t)bbs * 64);
	r->bbs = bbs;
	must(inlay_uar_init(&r->uar, r->reg, REG, mode));
	must(inlay_sq_init(&r->sq, r->buf, bbs, r->dbrec, QPN, max_ds, &r->uar));
	return r;
}

static void raw_free(struct raw *r)
{
	free(r->buf);
	free(r);
}

static struct mlx5_cqe64 cqe_of(uint32_t opcode, uint32_t qpn, uint32_t counter)
{
	struct mlx5_cqe64 cqe;

	memset(&cqe, 0, sizeof(cqe));
	cqe.sop_drop_qpn = htobe32(qpn);
	cqe.wqe_counter = htobe16((uint16_t)counter);
	cqe.op_own = (uint8_t)(opcode << 4);
	return cqe;
}

/* Byte `offset` of the WQE that starts at WQEBB `index`, seen as what a ring is */
static uint8_t byte_at(const struct raw *r, uint32_t index, uint32_t offset)
{
	return r->buf[((size_t)index % r->bbs * 64 + offset) % ((size_t)r->bbs * 64)];
}

static uint32_t be32_at(const struct raw *r, uint32_t index, uint32_t offset)
{
	return (uint32_t)byte_at(r, index, offset) << 24 | (uint32_t)byte_at(r, index, offset + 1) << 16 |
	       (uint32_t)byte_at(r, index, offset + 2) << 8 | byte_at(r, index, offset + 3);
}

/* A completion ring, likewise */
struct rawcq {
	uint32_t dbrec[2];
	uint32_t uar[32];
	uint8_t *buf;
	uint32_t cnt, size;
	uint32_t pi; /* the producer's: the device writes here next */
	uint32_t ci; /* what the model says is freed */
	struct inlay_cq cq;
};

/* As a new CQ comes from libmlx5, all CQEs invalid; or as if `at` CQEs had come and gone */
static struct rawcq *rawcq_make(uint32_t cnt, uint32_t size, uint32_t at)
{
	struct rawcq *c = (struct rawcq *)pages(sizeof(*c));
	uint32_t i;

	c->cnt = cnt;
	c->size = size;
	c->buf = (uint8_t *)pages((size_t)cnt * size);
	for (i = 0; i < cnt; i++)
		c->buf[(size_t)i * size + size - 1] = 0xf0;
	must(inlay_cq_init(&c->cq, c->buf, cnt, size, c->dbrec, c->uar, 0x123456));
	c->cq.ci = c->ci = c->pi = at;
	c->dbrec[0] = htobe32(at & 0xffffff);
	c->cq.next = c->cq.begin + (size_t)(at % cnt) * size;
	c->cq.lap = (uint16_t)((at / cnt & 1) << 8);
	for (i = 0; at && i < cnt; i++)
		c->buf[(size_t)i * size + size - 1] = (uint8_t)(0x20 | ((at / cnt - (i >= at % cnt)) & 1));
	return c;
}

static void rawcq_free(struct rawcq *c)
{
	free(c->buf);
	free(c);
}

/* The device's part: CQE number pi, its body first and its owner bit last */
static void produce(struct rawcq *c, uint8_t opcode, uint32_t qpn, uint32_t tag, uint32_t counter)
{
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)(c->buf + (size_t)(c->pi % c->cnt) * c->size + c->size - 64);

	assert_true(c->pi - c->ci < c->cnt);
	if (c->size == 128)
		fill(cqe - 1, 64, tag);
	fill(cqe, 32, tag);
	cqe->byte_cnt = htobe32(tag);
	cqe->srqn_uidx = htobe32(tag << 24 | (qpn ^ 0x5555));
	cqe->sop_drop_qpn = htobe32(tag << 24 | qpn);
	cqe->wqe_counter = htobe16((uint16_t)counter);
	cqe->op_own = (uint8_t)(opcode << 4 | (c->pi / c->cnt & 1));
	c->pi++;
}

/* ---- arguments ---- */

enum { UAR, SQ, RQ, SRQ, CYCLIC, CQ };
enum { NO_BUF = -9, NO_RECORD, NO_UAR, UNSET_UAR, OTHER_ABI };
#define END 0x7777777u
#define ALL_ONES 0xffffffffu

/* What each kind takes and does not take: entries; units, stride or CQE size, or a register's mode; number; where the ring begins */
static const struct {
	const char *name;
	uint32_t kind, good_cnt[12], good_size[10], good_number[3];
	uint32_t cnt[8], size[10], number[3];
	int at[7];
} arguments_of[] = {
	{"uar", UAR, {256, 0, 64, 128, 512, END}, {INLAY_UAR_DOORBELL, INLAY_UAR_SERIAL, INLAY_UAR_LOCKED, END}, {0, END},
	 {32, 96, 255, END}, {INLAY_UAR_LOCKED + 1, ALL_ONES, END}, {END}, {NO_BUF, 4, 256}},
	{"sq", SQ, {16, 1, 2, 4, 8, 4096, 32768, END}, {16, 1, 63, END}, {1, 0xffffff, END},
	 {0, 3, 5, 63, 65536, 0x80000000, ALL_ONES, END}, {0, 64, ALL_ONES, END}, {0x1000000, ALL_ONES, END},
	 {NO_BUF, NO_RECORD, 32, NO_UAR, UNSET_UAR, OTHER_ABI}},
	{"rq", RQ, {16, 1, 2, 4, 8, 4096, 32768, END}, {64, 16, 32, 128, 256, 512, 1024, END}, {0, END},
	 {0, 3, 33, 65536, ALL_ONES, END}, {0, 8, 24, 48, 2048, ALL_ONES, END}, {END}, {NO_BUF, NO_RECORD, 8}},
	{"srq", SRQ, {16, 2, 3, 33, 4097, 32768, END}, {32, 64, 128, 256, 512, 1024, END}, {0, END},
	 {0, 1, 32769, 65536, ALL_ONES, END}, {0, 8, 16, 24, 48, 96, 2048, 0x80000000, ALL_ONES, END}, {END}, {NO_BUF, NO_RECORD, 8}},
	{"cq", CQ, {8, 1, 2, 4096, END}, {64, 128, END}, {1, 0xffffff, END},
	 {0, 3, 100, (1u << 22) + 1, 1u << 23, ALL_ONES, END}, {0, 32, 63, 65, 96, 256, END}, {0x1000000, END}, {NO_BUF, NO_RECORD, 32}},
};

/* A set-up function on memory that is large enough; refused, it has changed neither its object nor the memory */
static int set_up(uint32_t kind, uint32_t cnt, uint32_t size, uint32_t number, int where)
{
	static uint8_t mem[32768 * 64] __attribute__((aligned(4096))), reg[1024] __attribute__((aligned(1024)));
	uint8_t *buf = where == NO_BUF ? NULL : (kind == UAR ? reg : mem) + (where > 0 ? where : 0);
	struct inlay_uar uar;
	union {
		struct inlay_uar uar;
		struct inlay_sq sq;
		struct inlay_rq rq;
		struct inlay_srq srq;
		struct inlay_cq cq;
		uint8_t bytes[512];
	} object, was;
	uint32_t record[2] = {5, 5}, *dbrec = where == NO_RECORD ? NULL : record;
	int ret;

	must(inlay_uar_init(&uar, reg, REG, INLAY_UAR_SERIAL));
	memset(&object, 0x5a, sizeof(object));
	was = object;
	if (where == UNSET_UAR)
		memset(&uar, 0, sizeof(uar));
	uar.abi += where == OTHER_ABI;
	switch (kind) {
	case UAR: ret = inlay_uar_init(&object.uar, buf, cnt, size); break;
	case SQ: ret = inlay_sq_init(&object.sq, buf, cnt, dbrec, number, size, where == NO_UAR ? NULL : &uar); break;
	case RQ: ret = inlay_rq_init(&object.rq, buf, cnt, size, dbrec); break;
	case SRQ: ret = inlay_srq_init(&object.srq, buf, cnt, size, dbrec); break;
	default: ret = inlay_cq_init(&object.cq, buf, cnt, size, dbrec, NULL, number);
	}
	assert_int_equal(uar.queues, kind == SQ && !ret);
	if (ret) {
		assert_memory_equal(&object, &was, sizeof(was));
		assert_true(all_bytes(mem, sizeof(mem), 0));
		assert_int_equal(record[0], 5);
	} else {
		memset(mem, 0, sizeof(mem));
	}
	return ret;
}

static void arguments(void **state)
{
	uint32_t k, i, n, s;

	(void)state;
	for (k = 0; k < ARRAY(arguments_of); k++) {
		const uint32_t *cnt = arguments_of[k].good_cnt, *size = arguments_of[k].good_size, *number = arguments_of[k].good_number;

#define ANSWERS(answer, ...)                                                                                                     \
	if (set_up(arguments_of[k].kind, __VA_ARGS__) != (answer))                                                               \
	fail_msg("%s(%s), %u", arguments_of[k].name, #__VA_ARGS__, i)
		i = 0;
		for (n = 0; cnt[n] != END; n++)
			ANSWERS(0, cnt[n], size[0], number[0], 0);
		for (s = 0; size[s] != END; s++)
			ANSWERS(0, cnt[0], size[s], number[0], 0);
		ANSWERS(0, cnt[0], size[0], number[number[1] != END], 0);
		for (i = 0; arguments_of[k].cnt[i] != END; i++)
			ANSWERS(-EINVAL, arguments_of[k].cnt[i], size[0], number[0], 0);
		for (i = 0; arguments_of[k].size[i] != END; i++)
			ANSWERS(-EINVAL, cnt[0], arguments_of[k].size[i], number[0], 0);
		for (i = 0; arguments_of[k].number[i] != END; i++)
			ANSWERS(-EINVAL, cnt[0], size[0], arguments_of[k].number[i], 0);
		for (i = 0; arguments_of[k].at[i]; i++)
			ANSWERS(arguments_of[k].at[i] == OTHER_ABI ? -EPROTO : -EINVAL, cnt[0], size[0], number[0], arguments_of[k].at[i]);
	}
	must(set_up(UAR, 0, INLAY_UAR_LOCKED, 0, 8)); /* without BlueFlame */
}

/* ---- what a post writes ---- */

/* The types of QP that have each */
enum { RC = 1, UC = 2, UD = 4, TO = 8 | 16 };

/* Every operation: its units with an empty list, or all of them when it takes no list; the lists may be inline */
#define OPS 17u
static const struct {
	uint8_t opcode, ds, types;
	bool list, inlines;
} ops[OPS] = {
	{MLX5_OPCODE_SEND, 1, RC | UC, true, true}, {MLX5_OPCODE_SEND_IMM, 1, RC | UC, true, true}, {MLX5_OPCODE_SEND_INVAL, 1, RC, true, true},
	{MLX5_OPCODE_RDMA_WRITE, 2, RC | UC, true, true}, {MLX5_OPCODE_RDMA_WRITE_IMM, 2, RC | UC, true, true},
	{MLX5_OPCODE_RDMA_READ, 2, RC, true, false}, {MLX5_OPCODE_ATOMIC_FA, 4, RC, false, false}, {MLX5_OPCODE_ATOMIC_CS, 4, RC, false, false},
	{MLX5_OPCODE_UMR, 12, RC | UC | TO, false, false}, {MLX5_OPCODE_UMR, 8, RC | UC | TO, false, false}, {MLX5_OPCODE_SEND, 4, UD | TO, true, true},
	{MLX5_OPCODE_SEND_IMM, 4, UD | TO, true, true}, {MLX5_OPCODE_SEND, 5, UD | TO, false, false}, {MLX5_OPCODE_SEND, 2, RC | UC, false, false},
	{MLX5_OPCODE_RDMA_WRITE, 3, RC | UC, false, false}, {MLX5_OPCODE_RDMA_WRITE, 5, TO, true, true},
	{MLX5_OPCODE_NOP, 1, RC | UC | UD | TO, false, false},
};

INLAY_ALWAYS int post_list(struct inlay_sq *sq, uint32_t op, const struct ibv_sge *sge, uint32_t num, uint32_t flags)
{
	struct inlay_remote there = {1, 1};
	struct ibv_mw_bind_info bind;
	struct inlay_av av;
	struct ibv_mr mr;
	struct ibv_mw mw;

	memset(&av, 0, sizeof(av));
	av.av.dqp_dct = htobe32(MLX5_EXTENDED_UD_AV);
	memset(&mr, 0, sizeof(mr));
	memset(&mw, 0, sizeof(mw));
	mw.type = IBV_MW_TYPE_2;
	bind.mr = &mr;
	bind.addr = 0x1000;
	bind.length = 8;
	bind.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	switch (op) {
	case 0: return inlay_post_send(sq, sge, num, flags);
	case 1: return inlay_post_send_imm(sq, 1, sge, num, flags);
	case 2: return inlay_post_send_inv(sq, 1, sge, num, flags);
	case 3: return inlay_post_write(sq, 1, 1, sge, num, flags);
	case 4: return inlay_post_write_imm(sq, 1, 1, 1, sge, num, flags);
	case 5: return inlay_post_read(sq, 1, 1, sge, num, flags);
	case 6: return inlay_post_fetch_add(sq, 1, 1, 1, sge, flags);
	case 7: return inlay_post_cmp_swap(sq, 1, 1, 1, 1, sge, flags);
	case 8: return inlay_post_bind_mw(sq, &mw, 1, &bind, flags);
	case 9: return inlay_post_local_inv(sq, 1, flags);
	case 10: return inlay_post_ud_send(sq, &av, sge, num, flags);
	case 11: return inlay_post_ud_send_imm(sq, &av, 1, sge, num, flags);
	case 12: return inlay_post_ud_send_inline(sq, &av, &av, 8, flags);
	case 13: return inlay_post_send_inline(sq, &av, 8, flags);
	case 14: return inlay_post_write_inline(sq, 1, 1, &av, 8, flags);
	case 15: return inlay_post_to_write(sq, &av, &there, sge, num, flags);
	default: return inlay_post_nop(sq, flags);
	}
}

/* With one SGE */
INLAY_ALWAYS int post_op(struct inlay_sq *sq, uint32_t op, uint32_t flags)
{
	struct ibv_sge sge = {0x1000, 8, 5};

	return post_list(sq, op, &sge, 1, flags);
}

/* Posts one thing of many, at random; *ds becomes what the WQE must be long. Its bytes are compared with libmlx5's in oracle_*.c */
static int post_any(struct raw *r, uint32_t max_ds, uint32_t flags, uint32_t *ds)
{
	static const uint8_t payload[2048] = {1};
	uint32_t index = r->sq.pi, op = rnd_below(OPS), num = rnd_below(rnd_below(4) ? 6 : 64), i, total = 0, full = 0;
	bool in = ops[op].inlines && rnd_below(2);
	struct ibv_sge sge[64] = {{0}};
	int ret;

	num = in ? rnd_below(5) : ops[op].list ? num : 1;
	for (i = 0; i < num; i++) {
		sge[i].addr = in ? (uintptr_t)payload + rnd_below(1024) : rnd();
		sge[i].length = in ? rnd_below(rnd_below(4) ? 30 : 200) : rnd_below(5) ? 1 + rnd_below(0x7fffffff) : 0;
		sge[i].lkey = (uint32_t)rnd();
		total += sge[i].length;
		full += sge[i].length != 0;
	}
	flags |= in ? INLAY_INLINE : 0;
	/* One SGE as a constant to the compiler, too */
	ret = op == 0 && num == 1 ? inlay_post_send(&r->sq, sge, 1, flags) : post_list(&r->sq, op, sge, num, flags);
	*ds = ops[op].ds + (!ops[op].list ? 0 : !in ? full : total ? (total + 4 + 15) / 16 : 0);
	if (*ds > 4 && *ds > max_ds && ops[op].opcode != MLX5_OPCODE_UMR)
		assert_int_equal(ret, -EINVAL);
	if (ret)
		return ret;
	assert_int_equal(be32_at(r, index, 0), (index & 0xffff) << 8 | ops[op].opcode);
	assert_int_equal(be32_at(r, index, 4), QPN << 8 | *ds);
	assert_int_equal(be32_at(r, index, 8), flags >> 24);
	assert_int_equal(r->sq.pi, index + (*ds + 3) / 4);
	return 0;
}

/* ---- credit ---- */

/* What is outstanding: at each index the length of the WQE that begins there, or 0 */
struct credit {
	uint8_t begins[65536];
	uint32_t pi, rung, pending;
};

static void forget(struct credit *m, uint32_t from, uint32_t to)
{
	for (; from != to; from++)
		m->begins[(uint16_t)from] = 0;
}

/* The index of a WQE in [from, to], or to */
static uint32_t some_begin(const struct credit *m, uint32_t from, uint32_t to)
{
	uint32_t at = from + rnd_below(to - from + 1);

	while (at != to && !m->begins[(uint16_t)at])
		at++;
	return at;
}

/* What was posted is rung for: the record, and a doorbell that names the last WQE */
static void rung(struct raw *r, struct credit *m)
{
	uint32_t last = m->pi - 1, i;

	if (m->pi == m->rung)
		return;
	while (!m->begins[(uint16_t)last])
		last--;
	assert_int_equal(r->dbrec[1], htobe32(m->pi & 0xffff));
	for (i = 0; i < 8; i++)
		assert_int_equal(r->reg[i], byte_at(r, last, i));
	m->rung = m->pi;
}

/* A WQE of any length and of bytes that could be lengths themselves, begun and ended in all ways */
static int post_raw(struct raw *r, const struct credit *m, uint32_t max_ds, uint32_t flags, uint32_t *ds)
{
	uint32_t way = rnd_below(3), lkey = 0x01010101 * rnd_below(256), bbs;
	struct inlay_cursor at;
	int ret = 0;

	*ds = rnd_below(3) ? 1 + rnd_below(max_ds) : 1 + rnd_below(4);
	bbs = (*ds + 3) / 4;
	if (way == 0)
		ret = inlay_sq_begin(&r->sq, bbs, &at);
	else if (way == 1 || bbs > r->bbs - m->pending)
		ret = inlay_sq_begin_ds(&r->sq, *ds, &at);
	else
		at = inlay_sq_begin_counted(&r->sq, bbs);
	if (ret)
		return ret;
	while (at.ds < *ds)
		at = inlay_seg_data(at, 0x0101010101010101u * rnd_below(256), lkey & 0x7fffffff, lkey);
	return flags & INLAY_RING ? inlay_sq_commit_ring(&r->sq, at, MLX5_OPCODE_SEND, 0, flags, 0) :
				    inlay_sq_commit(&r->sq, at, MLX5_OPCODE_SEND, 0, flags, 0);
}

/*
 * Random posts, doorbells, completions, posts taken back on one ring, against a list of what is outstanding. The first posts
 * come to lie before the index comes round, whichever way: at 2^16 and at 2^32. A CQE may name anything; only the first WQEBB of a WQE that
 * is outstanding is taken, and gives back that WQE and those before it.
 */
static void credit_model(uint32_t bbs, uint32_t preset, uint32_t steps, uint32_t max_ds, bool bodies)
{
	static struct credit model, *const m = &model;
	struct raw *r = raw_make(bbs, max_ds, INLAY_UAR_DOORBELL);
	uint8_t before[16 * 64];
	uint32_t s, at, to, i;
	struct inlay_sq was;

	memset(m, 0, sizeof(*m));
	r->sq.pi = m->pi = m->rung = preset;
	for (s = 0; s < steps; s++) {
		/* In long stretches that fill it and that drain it, so that full and empty happen in rings of any size */
		bool filling = (s / (bbs + 7)) % 2 == 0;

		was = r->sq;
		if (bbs <= 16)
			memcpy(before, r->buf, (size_t)bbs * 64);
		assert_int_equal(inlay_sq_pending(&r->sq), m->pending);
		assert_int_equal(inlay_sq_room(&r->sq), bbs - m->pending);
		assert_int_equal(inlay_sq_index(&r->sq), m->pi);
		assert_int_equal(inlay_sq_rung(&r->sq), m->rung);
		if (rnd_below(8) < (filling ? 6 : 1)) {
			uint32_t flags = (rnd_below(4) ? 0 : INLAY_SIGNALED) | (m->pi == m->rung && rnd_below(2) ? INLAY_RING : 0), ds, need;
			int ret = bodies ? post_any(r, max_ds, flags, &ds) : post_raw(r, m, max_ds, flags, &ds);

			need = (ds + 3) / 4;
			if (ret != -EINVAL)
				assert_int_equal(ret, need > bbs ? -E2BIG : need > bbs - m->pending ? -EAGAIN : 0);
			if (ret) {
				/* Nothing is written, neither into the ring nor into its state */
				assert_memory_equal(&r->sq, &was, sizeof(was));
				if (bbs <= 16)
					assert_memory_equal(r->buf, before, (size_t)bbs * 64);
				continue;
			}
			m->begins[(uint16_t)m->pi] = (uint8_t)need;
			m->pi += need;
			m->pending += need;
			if (flags & INLAY_RING)
				rung(r, m);
		} else if (rnd_below(4) == 0) {
			inlay_sq_ring(&r->sq);
			rung(r, m);
		} else if (rnd_below(8) == 0) {
			at = some_begin(m, m->rung, m->pi);
			inlay_sq_undo(&r->sq, at);
			forget(m, at, m->pi);
			m->pending -= m->pi - at;
			m->pi = at;
		} else if (rnd_below(16) == 0) {
			at = some_begin(m, m->pi - m->pending, m->rung);
			assert_int_equal(inlay_sq_release_until(&r->sq, m->pi + 1), -EPROTO);
			assert_int_equal(inlay_sq_release_until(&r->sq, m->pi - m->pending - 1), -EPROTO);
			assert_int_equal(inlay_sq_release_until(&r->sq, at), at - (m->pi - m->pending));
			forget(m, m->pi - m->pending, at);
			m->pending = m->pi - at;
		} else if (!m->pending && rnd_below(8) == 0) {
			/* As if so many short ones had come and gone */
			i = rnd_below(2) ? (uint32_t)rnd() : 0x80000000u - rnd_below(2 * bbs);
			r->sq.pi += i;
			m->pi = m->rung = r->sq.pi;
		} else {
			/* Near to what is outstanding, or anywhere */
			at = rnd_below(4) ? m->pi - m->pending - rnd_below(9) + rnd_below(m->pending + 18) : (uint32_t)rnd();
			at = m->pi - (uint16_t)(m->pi - at);
			if (m->rung != m->pi && m->pi - at <= m->pi - m->rung)
				continue; /* no device knows of it */
			{
				struct mlx5_cqe64 cqe = cqe_of(rnd_below(2) ? MLX5_CQE_REQ : MLX5_CQE_REQ_ERR, QPN, at);
				bool known = m->pi != at && m->pi - at <= m->pending && m->begins[(uint16_t)at];
				int ret = inlay_sq_release(&r->sq, &cqe);

				if (!known) {
					assert_int_equal(ret, -EPROTO);
					assert_memory_equal(&r->sq, &was, sizeof(was));
					continue;
				}
				to = at + m->begins[(uint16_t)at];
				assert_int_equal(ret, to - (m->pi - m->pending));
				forget(m, m->pi - m->pending, to);
				m->pending = m->pi - to;
			}
		}
	}
	raw_free(r);
}

static void credit(void **state)
{
	static const uint32_t presets[] = {0, 0xfff0, 0xfffffff0, 0x7ffffff3, 0xfffe0001};
	uint32_t bbs;
	size_t i;

	(void)state;
	for (bbs = 1; bbs <= 32768; bbs *= 2) {
		for (i = 0; i < ARRAY(presets); i++)
			credit_model(bbs, presets[i], bbs < 4096 ? 20000 : 150000, 63, false);
		credit_model(bbs, 0xfffffff0 - bbs, 20000, 63, true);
		credit_model(bbs, 0xfff0, 20000, 1 + rnd_below(30), true);
	}
}

/* The longest WQE that there is, and lengths whose sums or sizes have no place in 32 bits */
static void limits(void **state)
{
	struct raw *r = raw_make(16, 63, INLAY_UAR_DOORBELL);
	static uint8_t data[1024];
	struct ibv_sge sge[64];
	uint32_t i;

	(void)state;
	for (i = 0; i < 64; i++) {
		sge[i].addr = i;
		sge[i].length = 1;
		sge[i].lkey = 3;
	}
	must(inlay_post_send(&r->sq, sge, 62, 0));
	inlay_sq_undo(&r->sq, 0);
	must(inlay_post_send_inline(&r->sq, data, 988, 0));
	inlay_sq_undo(&r->sq, 0);
	assert_int_equal(inlay_post_send(&r->sq, sge, 63, 0), -EINVAL);
	assert_int_equal(inlay_post_send(&r->sq, sge, 64, 0), -EINVAL);
	assert_int_equal(inlay_post_send_inline(&r->sq, data, 989, 0), -EINVAL);
	assert_int_equal(inlay_post_send_inline(&r->sq, data, 0xffffffff, 0), -EINVAL);
	for (i = 0; i < 64; i++)
		sge[i].length = 0x40000001;
	assert_int_equal(inlay_post_send(&r->sq, sge, 4, INLAY_INLINE), -EINVAL);
	assert_int_equal(inlay_post_send(&r->sq, sge, 64, INLAY_INLINE), -EINVAL);
	assert_int_equal(inlay_sq_pending(&r->sq), 0);
	raw_free(r);
}

/* Flags that the compiler does not know and an SGE at 0: it must not warn of a NULL that would be copied */
static __attribute__((noinline)) int post_from_zero(struct inlay_sq *sq, uint32_t flags)
{
	struct ibv_sge sge = {0, 64, 7};

	return inlay_post_write(sq, 0, 8, &sge, 1, flags);
}

static void from_zero(void **state)
{
	struct raw *r = raw_make(64, 63, INLAY_UAR_DOORBELL);

	(void)state;
	must(post_from_zero(&r->sq, rnd_below(2) ? INLAY_SIGNALED : 0));
	assert_int_equal(be32_at(r, 0, 32), 64);
	assert_int_equal(be32_at(r, 0, 36), 7);
	assert_int_equal(be32_at(r, 0, 40) | be32_at(r, 0, 44), 0);
	raw_free(r);
}

/* ---- the register ---- */

/* Begins, fills and commits a WQE of that many units, in any way */
static void post_ds(struct inlay_sq *sq, uint32_t ds, uint32_t opcode, uint32_t flags)
{
	struct inlay_cursor at;

	if (rnd_below(2))
		must(inlay_sq_begin(sq, (ds + 3) / 4, &at));
	else if (rnd_below(2))
		must(inlay_sq_begin_ds(sq, ds, &at));
	else
		at = inlay_sq_begin_counted(sq, (ds + 3) / 4);
	while (at.ds < ds)
		at = inlay_seg_data(at, rnd(), 1 + rnd_below(100), 3);
	must(flags & INLAY_RING ? inlay_sq_commit_ring(sq, at, opcode, 0, flags, 0) : inlay_sq_commit(sq, at, opcode, 0, flags, 0));
}

/* What one half of a register holds: a doorbell or a copy of the WQE at index; the rest is untouched. Paints it again */
static void reg_is(uint8_t *reg, uint32_t half, uint32_t bytes, const struct raw *r, uint32_t index)
{
	uint32_t i;

	for (i = 0; i < bytes; i++)
		assert_int_equal(reg[half * REG + i], byte_at(r, index, i));
	assert_true(all_bytes(reg + half * REG + bytes, REG - bytes, 0xee));
	assert_true(all_bytes(reg + !half * REG, REG, 0xee));
	memset(reg, 0xee, 2 * REG);
}

/*
 * Two queues on one register: one WQE or several of any length at any place, rung for in each way. One alone is copied if it fits and the
 * mode has copies, into the half that the last ring, whoever's, has not written; else the doorbell names the last WQE.
 */
static void registers_model(uint32_t mode, uint32_t size, uint32_t steps)
{
	struct raw *two[2] = {raw_make(16, 63, mode), raw_make(16, 63, mode)};
	bool copies = (mode & ~INLAY_UAR_FULL_FENCE) != INLAY_UAR_DOORBELL && size;
	struct inlay_uar *uar = &two[0]->uar;
	uint8_t *reg = two[0]->reg;
	uint32_t half = 0, i, s;

	must(inlay_uar_init(uar, reg, size, mode));
	for (i = 0; i < 2; i++) {
		must(inlay_sq_init(&two[i]->sq, two[i]->buf, 16, two[i]->dbrec, QPN, 63, uar));
		assert_int_equal(two[i]->sq.next != NULL, mode == INLAY_UAR_SERIAL);
		two[i]->sq.pi = 0xffffff00;
	}
	memset(reg, 0xee, 2 * REG);
	for (s = 0; s < steps; s++) {
		struct raw *r = two[rnd_below(2)];
		uint32_t waiting = rnd_below(3) ? 0 : 1 + rnd_below(3), ds = rnd_below(4) ? 1 + rnd_below(8) : 1 + rnd_below(40), op = rnd_below(OPS);
		uint32_t opcode = rnd_below(256), more = rnd_below(2) ? INLAY_SIGNALED : INLAY_SIGNALED | INLAY_FENCE, way = rnd_below(7), last;

		for (i = 0; i < waiting; i++)
			post_ds(&r->sq, 1 + rnd_below(8), MLX5_OPCODE_SEND, INLAY_SIGNALED);
		last = r->sq.pi;
		switch (way) {
		case 0: post_ds(&r->sq, ds, opcode, more); inlay_sq_ring(&r->sq); break;
		case 1: post_ds(&r->sq, ds, opcode, more); inlay_sq_ring_doorbell(&r->sq); break;
		case 2: post_ds(&r->sq, ds, opcode, more | INLAY_RING); break;
		case 3: must(post_op(&r->sq, op, more)); inlay_sq_ring(&r->sq); break;
		case 4: must(post_op(&r->sq, op, more)); inlay_sq_ring_doorbell(&r->sq); break;
		case 5: must(post_op(&r->sq, op, more | INLAY_RING)); break;
		default: must(post_op(&r->sq, op, INLAY_RING)); more = 0; /* a constant to the compiler */
		}
		ds = byte_at(r, last, 7);
		if (way < 3)
			assert_int_equal(be32_at(r, last, 0), (last & 0xffff) << 8 | opcode);
		assert_int_equal(be32_at(r, last, 8), more >> 24);
		assert_int_equal(inlay_sq_rung(&r->sq), last + (ds + 3) / 4);
		assert_int_equal(r->dbrec[1], htobe32((last + (ds + 3) / 4) & 0xffff));
		assert_int_equal(r->dbrec[0], 0);
		reg_is(reg, half, copies && !waiting && way != 1 && way != 4 && ds > 1 && ds <= REG / 16 ? (ds + 3) / 4 * 64 : 8, r, last);
		half ^= copies;
		inlay_sq_ring(&r->sq); /* once only */
		reg_is(reg, 0, 0, r, 0);
		assert_true(0 < inlay_sq_release_until(&r->sq, r->sq.pi));
		if (rnd_below(50) == 0) { /* another queue in its place goes on with the other half; or it is reset, and is that queue */
			struct inlay_sq was = r->sq, fresh;

			inlay_sq_fini(&r->sq);
			must(inlay_sq_init(&r->sq, r->buf, 16, r->dbrec, QPN, 63, uar));
			fresh = r->sq;
			if (rnd_below(2)) {
				r->sq = was;
				post_ds(&r->sq, 5, MLX5_OPCODE_SEND, 0);
				r->dbrec[1] = htobe32(5);
				inlay_sq_reset(&r->sq);
				assert_memory_equal(&r->sq, &fresh, sizeof(fresh));
				assert_int_equal(r->dbrec[1], 0);
				inlay_sq_ring(&r->sq); /* nothing is left to ring for */
				reg_is(reg, 0, 0, r, 0);
			}
		}
		assert_int_equal(uar->queues, 2);
	}
	for (i = 2; i--;) {
		inlay_sq_fini(&two[i]->sq);
		inlay_sq_fini(&two[i]->sq); /* twice does no harm */
		assert_int_equal(uar->queues, i);
	}
	raw_free(two[0]);
	raw_free(two[1]);
}

static void registers(void **state)
{
	uint32_t mode;

	(void)state;
	for (mode = INLAY_UAR_DOORBELL; mode <= INLAY_UAR_LOCKED; mode++) {
		registers_model(mode, REG, 20000);
		registers_model(mode | INLAY_UAR_FULL_FENCE, REG, 5000);
		registers_model(mode, 0, 5000);
	}
}

static char *printed(const struct raw *r, const struct mlx5_cqe64 *cqe, uint32_t index)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (cqe)
		inlay_sq_print(out, &r->sq, cqe);
	else
		inlay_wqe_print(out, r->buf, 16 * 64, index, r->sq.type);
	fclose(out);
	return text;
}

/* The WQE that a completion names is printed as it stands in the ring, a datagram's with its vector */
static void prints(void **state)
{
	struct raw *r = raw_make(16, 63, INLAY_UAR_DOORBELL);
	uint32_t i;

	(void)state;
	r->sq.type = IBV_QPT_UD;
	assert_int_equal(inlay_sq_qpn(&r->sq), QPN);
	r->sq.pi = 0xfff8;
	for (i = 0; i < 40; i++) {
		struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_REQ_ERR, QPN, inlay_sq_index(&r->sq));
		char *said, *stands;

		must(post_op(&r->sq, 10 + i % 3, 0));
		must(inlay_post_nop(&r->sq, 0));
		said = printed(r, &cqe, 0);
		stands = printed(r, NULL, be16toh(cqe.wqe_counter));
		assert_string_equal(said, stands);
		assert_non_null(strstr(said, "av "));
		free(said);
		free(stands);
		inlay_sq_release_until(&r->sq, inlay_sq_index(&r->sq));
	}
	raw_free(r);
}

#if INLAY_CHECKED
/* ---- every rule of INLAY_CHECKED that a queue has, broken once ---- */

struct rule {
	uint32_t which;
	const char *text;     /* what the abort says */
	struct raw *r;        /* 4 WQEBBs, QP's longest 5 units; one NOP posted and not rung for */
	struct rawcq *c;      /* one CQE in it */
	struct inlay_rq *rq;
	struct inlay_srq *srq;
	struct inlay_qpn_table *table;
	bool breaks;          /* or only tells its text */
};

/* Breaks rule number u->which. Arguments are variables to the compiler. Each line: how the rule is broken, and what the rule is called */
static void rule_break(void *arg)
{
	struct rule *u = (struct rule *)arg;
	struct inlay_sq *sq = &u->r->sq, *volatile no_sq = NULL;
	struct inlay_cursor at = inlay_cursor_init(sq->buf, 4, sq->pi, 2), two;
	const struct mlx5_cqe64 *volatile no_cqe = NULL, *cqes;
	struct ibv_sge sge[8] = {{0x1000, 8, 5}}, *volatile no_sge = NULL;
	struct inlay_av *volatile no_av = NULL;
	struct inlay_cq *volatile no_cq = NULL;
	struct inlay_rq *volatile no_rq = NULL;
	struct inlay_srq *volatile no_srq = NULL;
	struct inlay_cursor *volatile no_at = NULL;
	volatile uint32_t zero = 0, two_of = 2, four = 4, seventeen = 17, big = 0x1000000, huge = 0x80000001, flags;
	struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_REQ, QPN, 0);
	struct inlay_iov list = {NULL, 0, 0, NULL};
	struct inlay_remote there = {0, 0};
	struct inlay_template made;
	struct mlx5_wqe_av from;
	struct inlay_av av;
	const char *says;
	uint32_t number = 0, n;
	uint8_t *p;

	memset(&from, 0, sizeof(from));
	inlay_av_init(&av, &from, 1, 0);
	u->text = NULL;
#define AGAIN(...)                                                                                                               \
	if (number++ == u->which) {                                                                                              \
		u->text = says;                                                                                                  \
		if (u->breaks) {                                                                                                 \
			__VA_ARGS__;                                                                                             \
		}                                                                                                                \
		return;                                                                                                          \
	}
#define RULE(text_, ...)                                                                                                         \
	says = text_;                                                                                                            \
	AGAIN(__VA_ARGS__)
	RULE("inlay_sq_begin: queue and cursor are not NULL", (void)!inlay_sq_begin(no_sq, 1, &at))
	AGAIN((void)!inlay_sq_begin(sq, 1, no_at))
	RULE("inlay_sq_begin: a WQE has 1 to 16 WQEBBs", (void)!inlay_sq_begin(sq, zero, &at))
	AGAIN((void)!inlay_sq_begin(sq, seventeen, &at))
	RULE("inlay_sq_begin_counted: a WQE has 1 to 16 WQEBBs", inlay_sq_begin_counted(sq, zero))
	AGAIN(inlay_sq_begin_counted(sq, seventeen))
	RULE("inlay_sq_begin_counted: the ring has room for the WQE", inlay_sq_begin_counted(sq, four))
	RULE("inlay_seg_at: a WQE has no more WQEBBs than it was begun with",
	     must(inlay_sq_begin(sq, 1, &at)); for (n = 0; n < 4; n++) at = inlay_seg_data(at, 0, 1, 1);
	     inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0))
	RULE("inlay_sq_commit_: a WQE is no longer than the QP's longest",
	     for (n = 0; n < 5; n++) at = inlay_seg_data(at, 0, 1, 1); inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0))
	RULE("inlay_sq_commit_: a WQE is committed before the next is begun",
	     must(inlay_sq_begin(sq, 1, &two)); inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0);
	     inlay_sq_commit(sq, two, MLX5_OPCODE_SEND, 0, 0, 0))
	RULE("inlay_sq_commit_: an open inline segment is filled before the commit",
	     at = inlay_seg_inline_append(inlay_seg_inline_open(at, 20, 4, &p), &sge, 15);
	     inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0))
	AGAIN(inlay_sq_ring(sq); inlay_sq_commit_ring(sq, inlay_seg_inline_open(at, 13, 12, &p), MLX5_OPCODE_SEND, 0, 0, 0))
	RULE("inlay_seg_inline_open: an inline segment is not empty", inlay_seg_inline_open(at, 0, 0, &p))
	RULE("inlay_seg_inline_open: the first 12 bytes of an inline segment are written in place",
	     inlay_seg_inline_open(at, 20, 13, &p))
	AGAIN(inlay_seg_inline_open(at, 5, 6, &p))
	RULE("inlay_seg_inline_open: one inline segment is filled before the next is opened",
	     inlay_seg_inline_open(inlay_seg_inline_open(at, 5, 4, &p), 5, 5, &p))
	RULE("inlay_seg_inline_append: no more is appended than the segment was opened for",
	     inlay_seg_inline_append(inlay_seg_inline_open(at, 5, 4, &p), &sge, 2))
	RULE("inlay_seg_av_: an address vector follows the control segment", inlay_seg_av(inlay_seg_raddr(at, 0, 0), &av))
	RULE("inlay_av_init: a QPN has 24 bits", inlay_av_init(&av, &from, 0x1000000, 0))
	RULE("inlay_wqe_data: a data segment holds at most 2^31 - 1 bytes",
	     sge[0].length = 0x80000000; (void)!inlay_post_send(sq, sge, 1, 0))
	RULE("inlay_post_gather_: the queue is not NULL", (void)!inlay_post_send(no_sq, sge, 1, 0))
	RULE("inlay_post_gather_: sge is not NULL unless num_sge is 0", (void)!inlay_post_send(sq, no_sge, 1, 0))
	RULE("inlay_post_read: a read has no payload to inline", (void)!inlay_post_read(sq, 0, 0, sge, 1, INLAY_INLINE))
	RULE("inlay_post_atomic_: an atomic has no payload to inline", (void)!inlay_post_fetch_add(sq, 0, 0, 1, sge, INLAY_INLINE))
	RULE("inlay_post_datagram_: the address vector is not NULL", (void)!inlay_post_ud_send(sq, no_av, sge, 1, 0))
	RULE("inlay_sq_release: queue and CQE are not NULL", inlay_sq_release(no_sq, &cqe))
	AGAIN(inlay_sq_release(sq, no_cqe))
	RULE("inlay_sq_undo: only what was not rung for is taken back", inlay_sq_ring(sq); inlay_sq_undo(sq, 0))
	RULE("inlay_sq_undo: a WQE is taken back whole", (void)!inlay_post_send_inline(sq, sge, 60, 0); inlay_sq_undo(sq, 2))
	RULE("inlay_cq_peek: the queue is not NULL", inlay_cq_peek(no_cq))
	RULE("inlay_cq_advance_quiet: only completions that have arrived are freed",
	     inlay_cq_advance(&u->c->cq, 1); inlay_cq_advance(&u->c->cq, 1))
	AGAIN(inlay_cq_advance(&u->c->cq, two_of))
	AGAIN(inlay_cq_advance_quiet(&u->c->cq, huge))
	RULE("inlay_rq_release: queue and CQE are not NULL", inlay_rq_release(no_rq, &cqe))
	AGAIN(inlay_rq_release(u->rq, no_cqe))
	RULE("inlay_rq_recycle: a receive is outstanding", inlay_rq_recycle(u->rq, 0))
	RULE("inlay_rq_recycle: WQEs complete in their order",
	     inlay_rq_set_ooo(u->rq); must(inlay_post_recv(u->rq, sge, 1)); inlay_rq_recycle(u->rq, 0))
	RULE("inlay_srq_user: there is such an entry", inlay_srq_user(u->srq, four))
	RULE("inlay_srq_set_user: there is such an entry", inlay_srq_set_user(u->srq, four, 1))
	RULE("inlay_srq_release: queue and CQE are not NULL", inlay_srq_release(no_srq, &cqe))
	AGAIN(inlay_srq_release(u->srq, no_cqe))
	RULE("inlay_srq_repost: an entry is posted again after it was posted or prepared once", inlay_srq_repost(u->srq))
	RULE("inlay_srq_take_: nobody else writes the entries' links", u->srq->buf[3] = 4; (void)!inlay_post_srq_recv(u->srq, sge, 1))
	RULE("inlay_qpn_table_find: a QPN has 24 bits", inlay_qpn_table_find(u->table, big))
	RULE("inlay_flags_check_: flags are INLAY_*, not IBV_SEND_*, with one fence at most",
	     flags = IBV_SEND_SIGNALED; (void)!inlay_post_send(sq, sge, 1, flags))
	AGAIN(flags = INLAY_FENCE | INLAY_FENCE_STRONG; (void)!inlay_post_send(sq, sge, 1, flags))
	AGAIN(flags = 1u << 20; (void)!inlay_post_send(sq, sge, 1, flags))
	AGAIN(flags = 3u << 29; (void)!inlay_post_send(sq, sge, 1, flags))
	AGAIN(flags = IBV_SEND_SIGNALED; (void)!inlay_post_dump(sq, sge, 1, flags))
	AGAIN(flags = IBV_SEND_SIGNALED; (void)!inlay_post_iov(sq, MLX5_OPCODE_SEND, NULL, NULL, &list, 0, flags))
	RULE("inlay_sq_ring: the queue is not NULL", inlay_sq_ring(no_sq))
	RULE("inlay_sq_ring_doorbell: the queue is not NULL", inlay_sq_ring_doorbell(no_sq))
	RULE("inlay_sq_begin_counted: the queue is not NULL", inlay_sq_begin_counted(no_sq, 1))
	RULE("inlay_sq_undo: the queue is not NULL", inlay_sq_undo(no_sq, 0))
	RULE("inlay_cq_peek_many: the queue is not NULL", inlay_cq_peek_many(no_cq, &cqes, 1))
	RULE("inlay_cq_advance_quiet: the queue is not NULL", inlay_cq_advance(no_cq, 1))
	RULE("inlay_cq_update: the queue is not NULL", inlay_cq_update(no_cq))
	RULE("inlay_cq_arm: the queue is not NULL", inlay_cq_arm(no_cq, 0))
	RULE("inlay_cq_clean: the queue is not NULL", inlay_cq_clean(no_cq, 1, NULL, NULL))
	RULE("inlay_cq_reserve: the queue is not NULL", inlay_cq_reserve(no_cq, 1, NULL))
	RULE("inlay_post_recv: queue and SGEs are not NULL", (void)!inlay_post_recv(no_rq, sge, 1))
	AGAIN((void)!inlay_post_recv(u->rq, no_sge, 1))
	RULE("inlay_rq_ring: the queue is not NULL", inlay_rq_ring(no_rq))
	RULE("inlay_rq_recycle: the queue is not NULL", inlay_rq_recycle(no_rq, 0))
	RULE("inlay_post_srq_recv: queue and SGEs are not NULL", (void)!inlay_post_srq_recv(no_srq, sge, 1))
	RULE("inlay_srq_ring: the queue is not NULL", inlay_srq_ring(no_srq))
	RULE("inlay_srq_repost: the queue is not NULL", inlay_srq_repost(no_srq))
	RULE("inlay_srq_recycle: queue and CQE are not NULL", inlay_srq_recycle(no_srq, &cqe))
	RULE("inlay_post_atomic_: queue, remote address and SGE are not NULL", (void)!inlay_post_fetch_add(sq, 0, 0, 1, no_sge, 0))
	RULE("inlay_post_local_inv: the queue is not NULL", (void)!inlay_post_local_inv(no_sq, 1, 0))
	RULE("inlay_post_bind_mw: no argument is NULL", (void)!inlay_post_bind_mw(sq, NULL, 1, NULL, 0))
	RULE("inlay_post_datagram_: the destination has 48 bytes",
	     inlay_av_init_xrc(&av, 1); (void)!inlay_post_ud_send(sq, &av, sge, 1, 0))
	RULE("inlay_seg_av: the destination has 48 bytes", inlay_av_init_xrc(&av, 1); inlay_seg_av(at, &av))
	RULE("inlay_sq_commit_: only a DCI has streams",
	     sq->type = IBV_QPT_RC; (void)!inlay_post_fetch_add(sq, 0, 0, 1, sge, INLAY_STREAM(5)))
	RULE("inlay_post_dump: only inlay_post_to_* take a stream", (void)!inlay_post_dump(sq, sge, 1, INLAY_STREAM(5)))
	RULE("inlay_post_template_: only inlay_post_to_* take a stream",
	     must(inlay_template_init(&made, sq, MLX5_OPCODE_SEND, 0, 5));
	     (void)!inlay_post_template_send(sq, &made, 0, 8, 0, INLAY_STREAM(5)))
	RULE("inlay_sync_flags_: no payload to inline, and no peer's CQE", (void)!inlay_post_wait_cq(sq, 1, 1, INLAY_INLINE))
	AGAIN((void)!inlay_post_send_enable(sq, 1, 1, INLAY_SOLICITED))
	AGAIN((void)!inlay_post_dump(sq, sge, 1, INLAY_INLINE))
	RULE("inlay_post_umr: a UMR has no payload to inline", (void)!inlay_post_local_inv(sq, 1, INLAY_INLINE))
	RULE("inlay_post_set_psv: a PSV has no payload to inline", (void)!inlay_post_set_psv(sq, 1, 1, INLAY_INLINE))
	RULE("inlay_post_iov_: a send has no remote address, writes and reads have one",
	     (void)!inlay_post_iov(sq, MLX5_OPCODE_SEND, NULL, &there, &list, 0, 0))
	AGAIN((void)!inlay_post_iov(sq, MLX5_OPCODE_RDMA_WRITE, NULL, NULL, &list, 0, 0))
	AGAIN((void)!inlay_post_iov(sq, MLX5_OPCODE_ATOMIC_FA, NULL, &there, &list, 0, 0))
	RULE("inlay_post_wait_data: the word is not NULL", (void)!inlay_post_wait_data(sq, no_sge, INLAY_WAIT_EQUAL, 0, 0, 0))
	RULE("inlay_post_memcpy: the QP's type has the operation",
	     sq->type = IBV_QPT_UD; (void)!inlay_post_memcpy(sq, sge, sge, sge, 0))
	RULE("inlay_post_packets_multi: a packet is not empty",
	     inlay_sq_set_packet(sq, 0, 1); (void)!inlay_post_packets_multi(sq, inlay_eth_csum(0), sge, 2, 0))
	AGAIN(inlay_sq_set_packet(sq, 0, 1); (void)!inlay_post_packets_multi(sq, inlay_eth_csum(0), sge, 2, INLAY_INLINE))
	RULE("inlay_sq_begin: the queue is attached to a register", inlay_sq_fini(sq); (void)!inlay_sq_begin(sq, 1, &at))
	RULE("inlay_sq_begin_counted: the queue is attached to a register", inlay_sq_fini(sq); inlay_sq_begin_counted(sq, 1))
	RULE("inlay_post_recv: the queue is not finished", inlay_rq_fini(u->rq); (void)!inlay_post_recv(u->rq, sge, 1))
	RULE("inlay_post_srq_recv: the queue is not finished", inlay_srq_fini(u->srq); (void)!inlay_post_srq_recv(u->srq, sge, 1))
}

static void checks(void **state)
{
	static struct inlay_qpn_table table;
	uint8_t buf[4 * 64] __attribute__((aligned(64)));
	uint32_t dbrec[2];
	struct inlay_srq srq;
	struct inlay_rq rq;
	struct rule u;

	(void)state;
	memset(buf, 0, sizeof(buf));
	memset(&u, 0, sizeof(u));
	u.r = raw_make(4, 5, INLAY_UAR_SERIAL);
	must(inlay_post_nop(&u.r->sq, 0));
	u.c = rawcq_make(4, 64, 0);
	produce(u.c, MLX5_CQE_RESP_SEND, 1, 1, 1);
	must(inlay_rq_init(&rq, buf, 4, 64, dbrec));
	must(inlay_srq_init(&srq, buf, 4, 32, dbrec));
	inlay_qpn_table_init(&table, NULL, 0);
	u.rq = &rq;
	u.srq = &srq;
	u.table = &table;
	for (;; u.which++) {
		u.breaks = false;
		rule_break(&u);
		if (!u.text)
			break;
		u.breaks = true;
		assert_aborts(rule_break, &u, u.text);
	}
	assert_true(u.which > 80);
	raw_free(u.r);
	rawcq_free(u.c);
}

struct op_on {
	struct raw *r;
	uint32_t op;
};

static void post_unknown(void *arg)
{
	struct op_on *o = (struct op_on *)arg;

	post_op(&o->r->sq, o->op, 0);
}

static void operations(void **state)
{
	static const uint32_t types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_DRIVER};
	uint32_t t, op;

	(void)state;
	for (t = 0; t < ARRAY(types); t++)
		for (op = 0; op < OPS; op++) {
			struct op_on o = {raw_make(16, 16, INLAY_UAR_DOORBELL), op};

			o.r->sq.type = types[t];
			if (ops[op].types & 1 << t)
				must(post_op(&o.r->sq, op, 0));
			else
				assert_aborts(post_unknown, &o, "the QP's type has the operation\n");
			/* A queue of which it is not known takes all */
			o.r->sq.type = 0;
			must(post_op(&o.r->sq, op, 0));
			raw_free(o.r);
		}
}
#endif

/* ---- the receive ring ---- */

static void rq_seg_is(const uint8_t *at, const struct ibv_sge *sge)
{
	struct mlx5_wqe_data_seg seg, end = {0, htobe32(0x100), 0};

	if (sge) {
		seg.byte_count = htobe32(sge->length);
		seg.lkey = htobe32(sge->lkey);
		seg.addr = htobe64(sge->addr);
	}
	assert_memory_equal(at, sge ? &seg : &end, sizeof(seg));
}

/* SGEs at random, some of them empty */
static uint32_t some_sges(struct ibv_sge *sge, uint32_t most)
{
	uint32_t n = rnd_below(most + 1), i;

	for (i = 0; i < n; i++) {
		sge[i].addr = rnd();
		sge[i].length = rnd_below(4) ? 1 + rnd_below(0x7fffffff) : 0;
		sge[i].lkey = (uint32_t)rnd();
	}
	return n;
}

/* The data segments of a receive, from `at` to `end` */
static void recv_is(const uint8_t *at, const uint8_t *end, const struct ibv_sge *sge, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (sge[i].length) {
			rq_seg_is(at, &sge[i]);
			at += 16;
		}
	if (at < end)
		rq_seg_is(at, NULL);
}

/* Random posts, rings and completions against two counters; the WQE's bytes at every post. What is refused changes nothing */
static void rq_model(uint32_t cnt, uint32_t stride, uint32_t preset, uint32_t steps)
{
	uint8_t *buf = (uint8_t *)pages((size_t)cnt * stride), before[1024];
	uint32_t dbrec[2] = {0, 0x5a5a5a5a}, posted = preset, done = preset, i, k, n, s;
	struct ibv_sge sge[80];
	struct inlay_rq rq, was, fresh;

	must(inlay_rq_init(&rq, buf, cnt, stride, dbrec));
	fresh = rq;
	sge[0].addr = 0;
	sge[0].length = 0x01020304;
	sge[0].lkey = 0xa5b6c7d8;
	fill(buf, (size_t)cnt * stride, stride);
	inlay_rq_prepare(&rq, sge[0].length, sge[0].lkey);
	for (i = 0; i < cnt; i++)
		recv_is(buf + (size_t)i * stride, buf + (size_t)(i + 1) * stride, sge, 1);
	/* As if so many had come and gone */
	rq.pi += preset;
	rq.limit += preset;
	for (s = 0; s < steps; s++) {
		bool filling = (s / (cnt + 5)) % 2 == 0;
		uint8_t *wqe = buf + (size_t)(posted % cnt) * stride;
		int ret;

		was = rq;
		memcpy(before, wqe, stride);
		if (rnd_below(8) < (filling ? 6 : 1)) {
			n = some_sges(sge, stride / 16 + 1);
			ret = inlay_post_recv(&rq, sge, n);
			if (posted - done == cnt || n > stride / 16) {
				assert_int_equal(ret, posted - done == cnt ? -EAGAIN : -EINVAL);
				assert_memory_equal(&rq, &was, sizeof(rq));
				assert_memory_equal(wqe, before, stride);
				continue;
			}
			must(ret);
			posted++;
			recv_is(wqe, wqe + stride, sge, n);
		} else if (rnd_below(3) == 0) {
			inlay_rq_ring(&rq);
			assert_int_equal(dbrec[0], htobe32(posted & 0xffff));
			assert_int_equal(dbrec[1], 0x5a5a5a5a);
		} else if (rnd_below(8) == 0) {
			/* More than is outstanding */
			k = posted + 1 + (rnd_below(2) ? rnd_below(9) : rnd_below(0x80000000));
			assert_int_equal(inlay_rq_release_until(&rq, rnd_below(2) ? k : done - (k - posted)), -EPROTO);
			assert_memory_equal(&rq, &was, sizeof(rq));
		} else if (posted != done && rnd_below(4) == 0) {
			/* Anew, as it was but for the address */
			sge[0].addr = rnd();
			inlay_rq_recycle(&rq, sge[0].addr);
			sge[0].addr = htobe64(sge[0].addr);
			memcpy(before + 8, &sge[0].addr, 8);
			assert_memory_equal(wqe, before, stride);
			posted++;
			done++;
		} else if (posted != done) {
			/* One by one, or several at once */
			k = rnd_below(4) ? 1 : rnd_below(posted - done + 1);
			if (k == 1)
				assert_int_equal(inlay_rq_release(&rq, &a_cqe), 1);
			else
				assert_int_equal(inlay_rq_release_until(&rq, done + k), k);
			done += k;
		} else {
			assert_int_equal(inlay_rq_release(&rq, &a_cqe), -EPROTO);
			assert_memory_equal(&rq, &was, sizeof(rq));
		}
		assert_int_equal(inlay_rq_room(&rq), cnt - (posted - done));
		assert_int_equal(inlay_rq_pending(&rq), posted - done);
	}
	/* Reset, it is the queue that was made */
	inlay_rq_reset(&rq);
	assert_memory_equal(&rq, &fresh, sizeof(rq));
	assert_int_equal(dbrec[0], 0);
	assert_int_equal(dbrec[1], 0x5a5a5a5a);
	free(buf);
}

static void rq_random(void **state)
{
	uint32_t cnt, stride;

	(void)state;
	for (cnt = 1; cnt <= 32768; cnt *= 4)
		for (stride = 16; stride <= 1024; stride *= 4)
			rq_model(cnt, stride, 0xfffff000, 10000 + 4 * cnt); /* past 2^32 */
	rq_model(32768, 64, 0, 400000); /* past 2^16 */
	rq_model(2, 32, 0, 300000);
}

/* What a device without atomics or a CQ without its page cannot do is refused, and nothing is written */
static void missing(void **state)
{
	struct raw *r = raw_make(8, 63, INLAY_UAR_SERIAL);
	struct ibv_sge sge = {0x1000, 8, 5};
	struct rawcq *c = rawcq_make(8, 64, 0);
	struct inlay_sq was;

	(void)state;
	r->sq.atomics = 0;
	was = r->sq;
	assert_int_equal(inlay_post_fetch_add(&r->sq, 0x2000, 7, 1, &sge, 0), -ENOTSUP);
	assert_int_equal(inlay_post_cmp_swap(&r->sq, 0x2000, 7, 1, 2, &sge, 0), -ENOTSUP);
	assert_memory_equal(&r->sq, &was, sizeof(was));
	assert_true(all_bytes(r->buf, 8 * 64, 0));
	must(inlay_cq_init(&c->cq, c->buf, 8, 64, c->dbrec, NULL, 1));
	c->dbrec[1] = 2;
	assert_int_equal(inlay_cq_arm(&c->cq, 0), -ENOTSUP);
	assert_int_equal(inlay_cq_arm(&c->cq, 1), -ENOTSUP);
	assert_int_equal(c->dbrec[1], 2);
	raw_free(r);
	rawcq_free(c);
}

/* ---- the shared receive queue ---- */

enum { AT_HOME, POSTED, TAKEN };
#define FREE 5 /* the byte of an entry that is inlay's own */

struct srq_model {
	struct inlay_srq srq;
	uint8_t *buf;
	uint32_t dbrec[2];
	uint32_t cnt, stride;
	uint8_t *is;              /* of each entry: free, posted, taken by the device */
	uint8_t *once;            /* of each entry: it was posted before */
	uint64_t *user;           /* of each entry: what the caller put into its own bytes */
	uint32_t *home, homes;    /* those free ones that are in libmlx5's list, from the one that is posted next */
	uint32_t back;            /* the other free ones: they came back since */
	uint32_t *line, lines;    /* the posted ones in the order in which the device takes them */
	uint32_t *out, outs;      /* the taken ones */
	uint32_t device;          /* the entry that the device takes next */
	uint32_t pi, rung, taken; /* posted, shown, taken so far */
};

static uint32_t next_of(const struct srq_model *m, uint32_t index)
{
	const uint8_t *at = m->buf + (size_t)index * m->stride;

	return (uint32_t)at[2] << 8 | at[3];
}

/* The list in memory begins as libmlx5's; what is free is in it or marked as having come back, once */
static void srq_whole(const struct srq_model *m)
{
	uint32_t i, at = m->srq.head, there = 0;

	for (i = 0;; i++, at = next_of(m, at)) {
		assert_true(i < m->cnt && m->is[at] == AT_HOME && !(m->srq.back[at / 64] >> at % 64 & 1));
		if (i < m->homes)
			assert_int_equal(at, m->home[i]);
		there++;
		if (m->srq.tail == m->buf + (size_t)at * m->stride)
			break;
	}
	for (i = 0; i < 512; i++)
		there += (uint32_t)__builtin_popcountll(m->srq.back[i]);
	assert_int_equal(there, m->homes + m->back);
	/* What is posted is linked in order and leads on to what is free */
	for (i = 0, at = m->device; i < m->lines; i++) {
		assert_int_equal(at, m->line[i]);
		assert_int_equal(m->buf[(size_t)at * m->stride + FREE], 0);
		at = next_of(m, at);
	}
	assert_int_equal(at, m->home[0]);
	assert_int_equal(m->homes + m->back + m->lines + m->outs, m->cnt);
	for (i = 0; i < m->cnt; i++) {
		assert_int_equal(m->buf[(size_t)i * m->stride + FREE], m->is[i] == AT_HOME);
		assert_true(inlay_srq_user(&m->srq, i) == m->user[i]);
		assert_memory_equal(m->buf + (size_t)i * m->stride + 8, &m->user[i], 8);
	}
}

/*
 * "SRQ order", as libmlx5's since 2023 (set_next_contig_wqes): when the last entry of the list would be posted, the first run of free
 * neighbours after it follows, or else the first from entry 0 on
 */
static void srq_next_run(struct srq_model *m)
{
	uint32_t last = m->home[0], at = last, i;

	for (i = 1; i < m->cnt; i++) {
		at = (last + i) % m->cnt;
		if (m->is[at] == AT_HOME)
			break;
	}
	do {
		m->home[m->homes++] = at++;
		m->back--;
	} while (at < m->cnt && m->is[at] == AT_HOME && at != last);
}

/* The first free one */
static void srq_is_posted(struct srq_model *m)
{
	const uint32_t index = m->home[0];

	m->once[index] = 1;
	memmove(m->home, m->home + 1, --m->homes * sizeof(m->home[0]));
	m->line[m->lines++] = index;
	m->is[index] = POSTED;
	m->pi++;
}

/* Segments for the next time an entry is posted, if it is free and they fit */
static void srq_prepare(struct srq_model *m)
{
	uint32_t index = rnd_below(8) ? rnd_below(m->cnt) : m->cnt, n;
	uint8_t *wqe = m->buf + (size_t)index * m->stride;
	struct ibv_sge sge[80];

	n = some_sges(sge, m->stride / 16);
	if (index < m->cnt && m->is[index] == AT_HOME && n < m->stride / 16) {
		must(inlay_srq_prepare(&m->srq, index, sge, n));
		recv_is(wqe + 16, wqe + m->stride, sge, n);
		m->once[index] = 1;
	} else {
		assert_int_equal(inlay_srq_prepare(&m->srq, index, sge, n), -EINVAL);
	}
}

static void srq_post(struct srq_model *m)
{
	uint32_t index = m->home[0], n;
	uint8_t *wqe = m->buf + (size_t)index * m->stride, link[16];
	struct inlay_srq was = m->srq;
	struct ibv_sge sge[80];
	int ret;

	n = some_sges(sge, m->stride / 16);
	if (m->homes == 1 && m->back && n <= m->stride / 16 - 1)
		srq_next_run(m);
	assert_int_equal(inlay_srq_index(&m->srq), index);
	memcpy(link, wqe, 16);
	if (m->homes > 1) {
		link[2] = (uint8_t)(m->home[1] >> 8);
		link[3] = (uint8_t)m->home[1];
	}
	if (m->once[index] && n <= m->stride / 16 - 1 && rnd_below(2)) {
		/* Once more, as it was */
		uint8_t segments[1024];

		memcpy(segments, wqe + 16, m->stride - 16);
		ret = inlay_srq_repost(&m->srq);
		assert_memory_equal(wqe + 16, segments, m->stride - 16);
		if (m->homes == 1) {
			assert_int_equal(ret, -EAGAIN);
			assert_memory_equal(&m->srq, &was, sizeof(was));
			assert_memory_equal(wqe, link, 16);
			return;
		}
		must(ret);
		link[FREE] = 0;
		assert_memory_equal(wqe, link, 16);
		goto posted;
	}
	ret = inlay_post_srq_recv(&m->srq, sge, n);
	if (m->homes == 1 || n > m->stride / 16 - 1) {
		assert_int_equal(ret, n > m->stride / 16 - 1 ? -EINVAL : -EAGAIN);
		assert_memory_equal(&m->srq, &was, sizeof(was));
		assert_int_equal(wqe[FREE], 1);
		return;
	}
	must(ret);
	link[FREE] = 0;
	assert_memory_equal(wqe, link, 16);
	recv_is(wqe + 16, wqe + m->stride, sge, n);
posted:
	srq_is_posted(m);
}

/* A completion that names that entry, whoever took it */
static void srq_give(struct srq_model *m, uint32_t index)
{
	struct mlx5_cqe64 cqe = cqe_of(rnd_below(2) ? MLX5_CQE_RESP_SEND : MLX5_CQE_RESP_ERR, 1 + rnd_below(5), index);
	struct inlay_srq was = m->srq;

	if (index < m->cnt && m->is[index] != AT_HOME) {
		const bool both = m->once[m->home[0]] && rnd_below(2);

		assert_int_equal(both ? inlay_srq_recycle(&m->srq, &cqe) : inlay_srq_release(&m->srq, &cqe), !both);
		m->is[index] = AT_HOME;
		m->back++;
		if (both && m->homes == 1)
			srq_next_run(m);
		if (both)
			srq_is_posted(m);
		was = m->srq;
	}
	/* Not posted, beyond the end, or for the second time */
	assert_int_equal(rnd_below(2) ? inlay_srq_recycle(&m->srq, &cqe) : inlay_srq_release(&m->srq, &cqe), -EPROTO);
	assert_memory_equal(&m->srq, &was, sizeof(was));
}

static void srq_model(uint32_t cnt, uint32_t stride, uint32_t preset, uint32_t steps)
{
	struct srq_model model, *m = &model;
	uint32_t s, i, n;

	memset(m, 0, sizeof(*m));
	m->cnt = cnt;
	m->stride = stride;
	m->buf = (uint8_t *)pages((size_t)(cnt + 1) * stride); /* one is beyond the end */
	m->is = (uint8_t *)pages(cnt);
	m->once = (uint8_t *)pages(cnt);
	m->user = (uint64_t *)pages(cnt * 8);
	m->home = (uint32_t *)pages(cnt * 4);
	m->line = (uint32_t *)pages(cnt * 4);
	m->out = (uint32_t *)pages(cnt * 4);
	m->dbrec[1] = 0x5a5a5a5a;
	fill(m->buf, (size_t)cnt * stride, preset);
	must(inlay_srq_init(&m->srq, m->buf, cnt, stride, m->dbrec));
	for (i = 0; i < cnt; i++) {
		m->home[m->homes++] = i;
		m->user[i] = inlay_srq_user(&m->srq, i);
	}
	/* As if so many had come and gone */
	m->pi = m->rung = m->taken = m->srq.pi = preset;
	for (s = 0; s < steps; s++) {
		bool filling = (s / (2 * cnt + 5)) % 2 == 0;

		if (rnd_below(4) == 0) {
			/* In any state of the entry */
			i = rnd_below(cnt);
			inlay_srq_set_user(&m->srq, i, m->user[i] = rnd());
		}
		if (rnd_below(16) == 0)
			srq_prepare(m);
		if (rnd_below(8) < (filling ? 5 : 1)) {
			srq_post(m);
		} else if (rnd_below(4) == 0) {
			inlay_srq_ring(&m->srq);
			m->rung = m->pi;
			assert_int_equal(m->dbrec[0], htobe32(m->pi & 0xffff));
		} else if (rnd_below(2) && m->taken != m->rung) {
			/* The device goes along the list that is in memory, as far as it has been shown */
			for (n = 1 + rnd_below(m->rung - m->taken); n; n--, m->taken++) {
				assert_int_equal(m->device, m->line[0]);
				m->is[m->device] = TAKEN;
				m->out[m->outs++] = m->device;
				m->device = next_of(m, m->device);
				memmove(m->line, m->line + 1, --m->lines * sizeof(m->line[0]));
			}
		} else if (m->outs && rnd_below(8)) {
			i = rnd_below(m->outs);
			n = m->out[i];
			m->out[i] = m->out[--m->outs];
			srq_give(m, n);
		} else {
			n = rnd_below(2) ? m->home[rnd_below(m->homes)] : rnd_below(2) ? cnt : cnt + rnd_below(65536 - cnt);
			srq_give(m, n);
		}
		assert_int_equal(inlay_srq_room(&m->srq), m->homes + m->back - 1);
		assert_int_equal(inlay_srq_pending(&m->srq), m->lines + m->outs);
		if (rnd_below(cnt) < 4)
			srq_whole(m);
	}
	assert_int_equal(m->dbrec[1], 0x5a5a5a5a);
	free(m->buf);
	free(m->is);
	free(m->once);
	free(m->user);
	free(m->home);
	free(m->line);
	free(m->out);
}

static void srq_random(void **state)
{
	static const uint32_t presets[] = {0, 0xfff0, 0xfffffff0};
	uint32_t cnt, i;

	(void)state;
	for (cnt = 2; cnt <= 1024; cnt *= 2)
		for (i = 0; i < ARRAY(presets); i++)
			srq_model(cnt + (i == 1 && cnt > 2 ? rnd_below(cnt) : 0), 32u << rnd_below(6), presets[i], 20000);
	for (i = 0; i < 2; i++)
		srq_model(1 + 64 * i + 2, 32, 5, 40000);
}

/*
 * Out of order: the device takes any posted WQE for a message, and completes messages in their order. No WQE is posted again before all
 * older ones are back; half the ring is out at a time; completions of WQEs that are not out are refused.
 */
static void rq_out_of_order(void **state)
{
	uint32_t cnt, s, refused = 0, waited = 0;

	(void)state;
	for (cnt = 2; cnt <= 256; cnt *= 2) {
		uint8_t *buf = (uint8_t *)pages(cnt * 32), out[256] = {0};
		uint32_t posted = 0, came = 0, oldest = 0, dbrec[2], i;
		struct ibv_sge sge[2] = {{1, 1, 1}, {2, 0x7fffffff, 2}};
		struct inlay_rq rq, was;

		must(inlay_rq_init(&rq, buf, cnt, 32, dbrec));
		inlay_rq_set_ooo(&rq);
		assert_int_equal(inlay_rq_size(&rq), cnt / 2);
		for (s = 0; s < 30000; s++) {
			uint32_t room = cnt / 2 - (posted - came), there = oldest + cnt - posted;

			assert_in_range(inlay_rq_room(&rq), 0, room < there ? room : there);
			if (came - oldest <= cnt / 2)
				assert_int_equal(inlay_rq_room(&rq), room < there ? room : there);
			if (oldest == came)
				assert_int_equal(inlay_rq_pending(&rq), posted - came);
			if (rnd_below(2)) {
				uint32_t sges = rnd_below(3);
				int err = inlay_post_recv(&rq, sge, sges);

				if (!err) {
					assert_true(room && there);
					out[posted++ % cnt] = 1;
				} else {
					assert_int_equal(err, -EAGAIN);
					waited += room != 0;
				}
			} else {
				/* Mostly one of the oldest, so that some wait long */
				uint32_t index = rnd_below(4) ? oldest + rnd_below(1 + rnd_below(posted - oldest + 1)) : (uint32_t)rnd();
				struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_RESP_SEND, 1, index & 0xffff);
				int ret;

				if (index % cnt == oldest % cnt && posted != oldest && rnd_below(20))
					continue; /* the oldest takes its time */
				was = rq;
				ret = inlay_rq_release_ooo(&rq, &cqe);
				if (!out[index % cnt]) {
					assert_int_equal(ret, -EPROTO);
					assert_memory_equal(&rq, &was, sizeof(rq));
					refused++;
					continue;
				}
				assert_int_equal(ret, 1);
				out[index % cnt] = 0;
				came++;
				while (oldest != posted && !out[oldest % cnt])
					oldest++;
			}
			was = rq;
		}
		/* A flush brings all back */
		for (i = 0; i < cnt; i++) {
			struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_RESP_ERR, 1, i);

			assert_int_equal(inlay_rq_release_ooo(&rq, &cqe), out[i] ? 1 : -EPROTO);
		}
		assert_int_equal(inlay_rq_pending(&rq), 0);
		assert_int_equal(inlay_rq_room(&rq), cnt / 2);
		inlay_rq_reset(&rq);
		assert_int_equal(inlay_rq_room(&rq), cnt / 2);
		free(buf);
	}
	printf("# %u refused, %u waited for the oldest\n", refused, waited);
	assert_true(refused > 1000 && waited > 1000);
}

/* A queue that the device walks cyclically: what comes back before its predecessors waits for them, and says so */
static void srq_cyclic(void **state)
{
	uint32_t cnt, s, i, n, index;

	(void)state;
	for (cnt = 2; cnt <= 256; cnt *= 2) {
		uint8_t *buf = (uint8_t *)pages(cnt * 32), back[256];
		uint32_t posted = 0, freed = 0, dbrec[2];
		struct ibv_sge sge = {1, 1, 1};
		struct inlay_srq srq, was;

		must(inlay_srq_init_cyclic(&srq, buf, cnt, 32, dbrec));
		for (s = 0; s < 30000; s++) {
			assert_int_equal(inlay_srq_room(&srq), cnt - 1 - (posted - freed));
			if (rnd_below(2)) {
				assert_int_equal(inlay_srq_index(&srq), posted % cnt);
				i = inlay_post_srq_recv(&srq, &sge, 1) == 0;
				assert_int_equal(i, posted - freed < cnt - 1);
				if (i)
					back[posted++ % cnt] = 0;
				continue;
			}
			index = rnd_below(8) ? (freed + rnd_below(posted - freed + 1)) & 0xffff : rnd_below(65536);
			{
				struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_RESP_SEND, 1, index);
				bool out = (index - freed) % cnt < posted - freed && !back[index % cnt];
				bool both = posted >= cnt && rnd_below(2);
				int ret;

				was = srq;
				ret = both ? inlay_srq_recycle(&srq, &cqe) : inlay_srq_release(&srq, &cqe);
				if (!out) {
					assert_int_equal(ret, -EPROTO);
					assert_memory_equal(&srq, &was, sizeof(srq));
					continue;
				}
				back[index % cnt] = 1;
				for (n = 0; freed != posted && back[freed % cnt]; n++)
					freed++;
				assert_int_equal(ret, both ? 0 : n);
				for (; both && n; n--)
					back[posted++ % cnt] = 0;
			}
		}
		free(buf);
	}
}

/*
 * "Releases trust any CQE": of each opcode, of the queue's own QP and of another, to each release. Whatever is refused changes nothing.
 * Only INLAY_CHECKED looks at the QPN. A receive queue that does not know its own takes any, an SRQ always
 */
static void release_of_another(void **state)
{
	static const uint8_t good[] = {MLX5_CQE_RESP_WR_IMM, MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM, MLX5_CQE_RESP_SEND_INV, MLX5_CQE_RESP_ERR};
	static const uint8_t bad[] = {MLX5_CQE_REQ, MLX5_CQE_REQ_ERR, MLX5_CQE_SIG_ERR, MLX5_CQE_INVALID};
	enum { OF_SQ, SHARED, OF_RQ, NAMELESS, OOO, OF_SRQ, RECYCLE, RECYCLE_MORE, KINDS };
	uint8_t ring[4 * 64] __attribute__((aligned(64)));
	struct ibv_sge sge = {0x1000, 64, 5};
	uint32_t dbrec[2], kind, op, other;

	(void)state;
	for (kind = 0; kind < KINDS; kind++)
		for (op = 0; op < ARRAY(good) + ARRAY(bad); op++)
			for (other = 0; other < 2; other++) {
				uint8_t opcode = op < ARRAY(good) ? good[op] : bad[op - ARRAY(good)];
				struct mlx5_cqe64 cqe = cqe_of(opcode, QPN + other, 0);
				bool send = opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_REQ_ERR;
				bool fits = kind <= SHARED ? send : op < ARRAY(good);
				struct raw *r = raw_make(4, 16, INLAY_UAR_SERIAL);
				struct inlay_shared_sq shared;
				int got, pending, want;
				struct inlay_sq part;
				struct inlay_srq srq;
				struct inlay_rq rq;

				inlay_shared_sq_init(&shared, &r->sq);
				must(inlay_shared_sq_reserve(&shared, 1, &part));
				inlay_shared_sq_publish(&shared, &part);
				must(inlay_post_nop(&r->sq, 0));
				must(inlay_rq_init(&rq, ring, 4, 64, dbrec));
				if (kind != NAMELESS)
					inlay_rq_set_qpn_(&rq, QPN);
				if (kind == OOO)
					inlay_rq_set_ooo(&rq);
				must(inlay_post_recv(&rq, &sge, 1));
				if (kind >= OF_SRQ) { /* recycled without and with a free entry */
					must(inlay_srq_init(&srq, ring, kind == RECYCLE ? 2 : 4, 32, dbrec));
					must(inlay_post_srq_recv(&srq, &sge, 1));
					must(inlay_srq_prepare(&srq, 1, &sge, 1));
				}
				want = fits && !(INLAY_CHECKED && other && kind != NAMELESS && kind < OF_SRQ) ? kind < RECYCLE : -EPROTO;
				got = kind == OF_SQ ? inlay_sq_release(&r->sq, &cqe) : kind == SHARED ? inlay_shared_sq_release(&shared, &cqe) :
				      kind == OOO ? inlay_rq_release_ooo(&rq, &cqe) : kind <= OOO ? inlay_rq_release(&rq, &cqe) :
				      kind == OF_SRQ ? inlay_srq_release(&srq, &cqe) : inlay_srq_recycle(&srq, &cqe);
				pending = (int)(kind == OF_SQ ? inlay_sq_pending(&r->sq) : kind == SHARED ? inlay_shared_sq_pending(&shared) :
						kind <= OOO ? inlay_rq_pending(&rq) : inlay_srq_pending(&srq));
				if (got != want || pending != (want != 1))
					fail_msg("release %u of opcode %u, other %u: %d, pending %d", kind, opcode, other, got, pending);
				raw_free(r);
			}
}

/* INLAY_RING given to inlay_sq_commit */
static void commit_with_ring(void **state)
{
	struct raw *r = raw_make(4, 16, INLAY_UAR_SERIAL);
	struct inlay_cursor at;

	(void)state;
	must(inlay_sq_begin(&r->sq, 1, &at));
	must(inlay_sq_commit(&r->sq, at, MLX5_OPCODE_NOP, 0, INLAY_RING, 0));
	assert_int_equal(inlay_sq_rung(&r->sq), 1);
	assert_int_equal(be32toh(r->dbrec[MLX5_SND_DBR]), 1);
	raw_free(r);
}

/* ---- the completion ring ---- */

/* A CQE of the model: a receive's counter is its entry in a shared queue, a send's means something else */
struct entry {
	uint32_t qpn, tag, counter;
	uint8_t opcode;
};

static bool is_receive(const struct entry *e)
{
	return e->opcode != MLX5_CQE_REQ && e->opcode != MLX5_CQE_REQ_ERR;
}

static void is_entry(const struct rawcq *c, const struct mlx5_cqe64 *cqe, const struct entry *e)
{
	assert_non_null(cqe);
	assert_int_equal(inlay_cqe_byte_count(cqe), e->tag);
	assert_int_equal(inlay_cqe_qpn(cqe), e->qpn);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), e->counter & 0xffff);
	assert_int_equal(inlay_cqe_opcode(cqe), e->opcode);
	assert_int_equal(differs(cqe, 32, e->tag), 32);
	if (c->size == 128)
		assert_int_equal(differs(cqe - 1, 64, e->tag), 64);
}

/* How many of them peek_many shows: an error comes alone */
static uint32_t shown(const struct entry *list, uint32_t n, uint32_t max)
{
	uint32_t i;

	for (i = 0; i < n && i < max; i++)
		if (list[i].opcode == MLX5_CQE_REQ_ERR || list[i].opcode == MLX5_CQE_RESP_ERR)
			return i ? i : 1;
	return i;
}

/* What inlay_cq_clean has told of, newest first; the entries of receives go back */
struct gone {
	uint32_t n, *tag;
	struct inlay_srq *srq;
};

static void note_gone(const struct mlx5_cqe64 *cqe, void *arg)
{
	struct gone *g = (struct gone *)arg;

	g->tag[g->n++] = inlay_cqe_byte_count(cqe);
	inlay_srq_gone(cqe, g->srq);
}

/*
 * CQEs of a few QPs, sends and receives through one shared queue, arrive at random over many laps, and are looked at and freed in all ways.
 * Now and then one QP is cleaned out: what stays, and its order, is the model's, and each receive gives its entry back once.
 */
static void cq_model(uint32_t cnt, uint32_t size, uint32_t at, uint32_t steps)
{
	static const uint8_t opcodes[] = {MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM, MLX5_CQE_REQ, MLX5_CQE_RESP_ERR, MLX5_CQE_REQ_ERR};
	static struct entry list[4096];
	static uint32_t tags[4096], lost[4096];
	const struct mlx5_cqe64 *cqes[257];
	struct rawcq *c = rawcq_make(cnt, size, at);
	uint8_t *entries = (uint8_t *)pages((size_t)(cnt + 1) * 32);
	uint32_t srq_dbrec[2], told = at, s, i, k, n = 0, max, tag = at, removed, qpn, receives = 0;
	struct ibv_sge sge = {1, 1, 1};
	struct inlay_srq srq;
	struct gone g = {0, tags, &srq};

	must(inlay_srq_init(&srq, entries, cnt + 1, 32, srq_dbrec));
	for (s = 0; s < steps; s++) {
		bool filling = (s / (cnt / 4 + 5)) % 2 == 0;

		if (rnd_below(8) < (filling ? 6 : 2)) {
			for (k = rnd_below(3) ? 1 : 1 + rnd_below(cnt); k && n < cnt; k--, n++) {
				list[n].opcode = opcodes[rnd_below(rnd_below(4) ? 3 : 5)];
				list[n].qpn = 0xfffff0 + rnd_below(3);
				list[n].tag = ++tag;
				list[n].counter = tag & 0xff;
				if (is_receive(&list[n])) {
					list[n].counter = inlay_srq_index(&srq);
					must(inlay_post_srq_recv(&srq, &sge, 1));
					receives++;
				}
				produce(c, list[n].opcode, list[n].qpn, list[n].tag, list[n].counter);
			}
		} else if (rnd_below(16) == 0) {
			qpn = 0xfffff0 + rnd_below(4); /* one of which has none */
			for (i = k = removed = g.n = 0; i < n; i++)
				if (list[i].qpn == qpn) {
					lost[removed++] = list[i].tag;
					receives -= is_receive(&list[i]);
				} else {
					list[k++] = list[i];
				}
			n = k;
			if (!removed && rnd_below(2))
				assert_int_equal(inlay_cq_clean(&c->cq, qpn, NULL, NULL), 0);
			else if (rnd_below(2))
				assert_int_equal(inlay_cq_clean_index(&c->cq, qpn ^ 0x5555, inlay_srq_gone, &srq), removed);
			else {
				assert_int_equal(inlay_cq_clean(&c->cq, qpn, note_gone, &g), removed);
				assert_int_equal(g.n, removed);
				for (i = 0; i < removed; i++)
					assert_int_equal(tags[i], lost[removed - 1 - i]);
			}
			c->ci += removed;
			told = removed ? c->ci : told;
		} else {
			max = rnd_below(70);
			k = shown(list, n, max);
			if (rnd_below(4)) {
				assert_int_equal(inlay_cq_peek_many(&c->cq, cqes, max), k);
				k = rnd_below(k + 1); /* freeing less than was shown is fine, nothing too */
			} else {
				k = n != 0;
				cqes[0] = inlay_cq_peek(&c->cq);
				assert_ptr_equal(inlay_cq_peek(&c->cq), cqes[0]);
				assert_int_equal(cqes[0] != NULL, k);
			}
			for (i = 0; i < k; i++) {
				is_entry(c, cqes[i], &list[i]);
				if (is_receive(&list[i])) {
					assert_int_equal(inlay_srq_release(&srq, cqes[i]), 1);
					receives--;
				}
			}
			c->ci += k;
			if (rnd_below(2)) {
				inlay_cq_advance(&c->cq, k);
				told = c->ci;
			} else {
				inlay_cq_advance_quiet(&c->cq, k);
			}
			memmove(list, list + k, (n -= k) * sizeof(list[0]));
		}
		if (rnd_below(16) == 0) {
			inlay_cq_update(&c->cq);
			told = c->ci;
		}
		assert_int_equal(inlay_cq_index(&c->cq), c->ci);
		assert_int_equal(c->dbrec[0], htobe32(told & 0xffffff));
		assert_int_equal(inlay_srq_pending(&srq), receives);
		/* All that is there, and nothing behind it */
		if (cnt <= 256 && rnd_below(cnt) < 4) {
			k = shown(list, n, 257);
			assert_int_equal(inlay_cq_peek_many(&c->cq, cqes, 257), k);
			for (i = 0; i < k; i++)
				is_entry(c, cqes[i], &list[i]);
		}
	}
	free(entries);
	rawcq_free(c);
}

/* From the start, and where the index passes 24 and 32 bits */
static void cq_random(void **state)
{
	static const uint32_t at[] = {0, 0xffffff - 20, 0x7fffffff - 20, 0xffffffff - 20};
	uint32_t cnt, size, k;

	(void)state;
	for (cnt = 1; cnt <= 4096; cnt *= 2)
		for (size = 64; size <= 128; size += 64)
			for (k = 0; k < ARRAY(at); k++)
				cq_model(cnt, size, at[k], 5000);
}

/* CQEs that came before the take-over are kept, slots without one are not taken for CQEs */
static void cq_init_arrived(void **state)
{
	uint32_t n, size, i, dbrec[2];

	(void)state;
	for (size = 64; size <= 128; size += 64)
		for (n = 0; n <= 8; n++) {
			uint8_t *buf = (uint8_t *)pages((size_t)8 * size);
			struct inlay_cq cq;

			for (i = 0; i < 8; i++)
				buf[(size_t)i * size + size - 1] = i < n ? 0x20 : 0xf0;
			must(inlay_cq_init(&cq, buf, 8, size, dbrec, NULL, 1));
			for (i = 0; i < n; i++) {
				assert_ptr_equal(inlay_cq_peek(&cq), buf + (size_t)i * size + size - 64);
				inlay_cq_advance(&cq, 1);
			}
			assert_null(inlay_cq_peek(&cq));
			free(buf);
		}
}

/* ---- arming ---- */

static void arm(void **state)
{
	struct rawcq *c = rawcq_make(8, 64, 0);
	uint32_t sn, i;

	(void)state;
	for (sn = 0; sn < 9; sn++)
		for (i = 0; i < 2; i++) {
			uint32_t word = (sn & 3) << 28 | i << 24 | (c->ci & 0xffffff);

			produce(c, MLX5_CQE_RESP_SEND, 1, c->pi, 0);
			inlay_cq_advance_quiet(&c->cq, 1);
			c->ci++;
			word++;
			memset(c->uar, 0xee, sizeof(c->uar));
			must(inlay_cq_arm(&c->cq, (int)i));
			/* The consumer index that the arm word speaks of is in the record too */
			assert_int_equal(c->dbrec[0], htobe32(c->ci & 0xffffff));
			assert_int_equal(c->dbrec[1], htobe32(word));
			assert_int_equal(c->uar[8], htobe32(word));
			assert_int_equal(c->uar[9], htobe32(0x123456));
			assert_true(all_bytes(c->uar, 0x20, 0xee) && all_bytes(c->uar + 10, sizeof(c->uar) - 0x28, 0xee));
			if (i)
				inlay_cq_event(&c->cq);
		}
	rawcq_free(c);
}

/*
 * A reader that frees nothing while the device goes round: CQE n lies in slot n % size with lap n / size, as one bit or eight. What peek
 * must say follows from the last CQE that the slot took.
 */
static void lapped_by(uint32_t size, bool enhanced, uint32_t start, uint32_t laps)
{
	struct rawcq *c = rawcq_make(size, 64, 0);
	uint32_t n, wrong = 0, nothing = 0;

	if (enhanced)
		must(inlay_cq_set_compression(&c->cq, INLAY_MINI_HASH, 1));
	for (n = 0; n < start + laps * size + 2; n++) {
		uint8_t *slot = c->buf + (size_t)(n % size) * 64;
		const struct mlx5_cqe64 *cqe, *many[4];
		uint32_t last = n - (n - start) % size, got;

		memset(slot, 0, 64);
		memcpy(slot + 44, &n, 4);
		slot[62] = enhanced ? (uint8_t)(n / size) : 0x5a;
		slot[63] = (uint8_t)(MLX5_CQE_RESP_SEND << 4 | (n / size & 1));
		cqe = inlay_cq_peek(&c->cq);
		if (n < start) {
			assert_non_null(cqe);
			inlay_cq_advance(&c->cq, 1);
			continue;
		}
		got = inlay_cq_peek_many(&c->cq, many, 4);
		if ((last - start) / size % (enhanced ? 256 : 2)) {
			assert_null(cqe);
			assert_int_equal(got, 0);
			nothing++;
			continue;
		}
		assert_non_null(cqe);
		assert_int_not_equal(got, 0);
		assert_ptr_equal(many[0], cqe);
		assert_memory_equal(&cqe->byte_cnt, &last, 4);
		wrong += last != start;
	}
	/* Nothing for a lap, or for 255, and then one that is too young */
	assert_int_equal(nothing, (laps - 1) * size);
	assert_int_equal(wrong, 2);
	rawcq_free(c);
}

static void lapped(void **state)
{
	uint32_t size, i;

	(void)state;
	for (size = 2; size <= 64; size *= 2)
		for (i = 0; i < 3 * size; i++) {
			lapped_by(size, false, i, 2);
			if (i % 16 < 3)
				lapped_by(size, true, i, 256);
		}
}

/* A WQE whose length is a constant, piece by piece, at each place of the ring */
static void pieces_of_a_constant_length(void **state)
{
	uint8_t data[100], *head;
	uint32_t pi, i;

	(void)state;
	fill(data, sizeof(data), 7);
	for (pi = 0; pi < 8; pi++) {
		struct raw *r = raw_make(4, 63, INLAY_UAR_SERIAL);
		struct inlay_cursor at;

		r->sq.pi = pi;
		must(inlay_sq_begin(&r->sq, 2, &at));
		at = inlay_seg_inline_open(at, 100, 10, &head);
		memcpy(head, data, 10);
		at = inlay_seg_inline_append(at, data + 10, 60);
		at = inlay_seg_inline_append(at, data + 70, 30);
		inlay_sq_commit(&r->sq, at, MLX5_OPCODE_SEND, 0, INLAY_SIGNALED, 0);
		assert_int_equal(be32_at(r, pi, 16), 100 | 0x80000000u);
		for (i = 0; i < 100; i++)
			assert_int_equal(byte_at(r, pi, 20 + i), data[i]);
		raw_free(r);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(release_of_another),
		cmocka_unit_test(commit_with_ring),
		cmocka_unit_test(pieces_of_a_constant_length),
		cmocka_unit_test(arguments),
		cmocka_unit_test(credit),
		cmocka_unit_test(limits),
		cmocka_unit_test(from_zero),
		cmocka_unit_test(registers),
		cmocka_unit_test(prints),
#if INLAY_CHECKED
		cmocka_unit_test(checks),
		cmocka_unit_test(operations),
#endif
		cmocka_unit_test(rq_random),
		cmocka_unit_test(missing),
		cmocka_unit_test(srq_random),
		cmocka_unit_test(rq_out_of_order),
		cmocka_unit_test(srq_cyclic),
		cmocka_unit_test(cq_random),
		cmocka_unit_test(cq_init_arrived),
		cmocka_unit_test(lapped),
		cmocka_unit_test(arm),
	};

	a_cqe = cqe_of(MLX5_CQE_RESP_SEND, QPN, 0);
	return cmocka_run_group_tests_name("rings", tests, open_nothing, NULL);
}
