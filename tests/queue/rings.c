/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rings.c: queue.h on plain memory, without a device: arguments, send queues, receive queues of all kinds, arming, each rule that
 * INLAY_CHECKED holds. Random steps against models that know nothing of how the header keeps its state. Completion rings: compressed.c.
 */
#include "rig.h"
#include <endian.h>

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
	struct mlx5_cqe64 cqe = {};

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

/* A completion ring as a new one comes from libmlx5, all CQEs invalid */
struct rawcq { struct mlx5_cqe64 cqes[64]; uint32_t dbrec[2], uar[32]; struct inlay_cq cq; };

static struct rawcq *rawcq_make(uint32_t cnt)
{
	struct rawcq *c = (struct rawcq *)pages(sizeof(*c));

	for (uint32_t i = 0; i < cnt; i++)
		c->cqes[i].op_own = 0xf0;
	must(inlay_cq_init(&c->cq, c->cqes, cnt, 64, c->dbrec, c->uar, 0x123456));
	return c;
}

/* The device's part: CQE number n */
static void produce(struct rawcq *c, uint32_t n)
{
	const uint32_t cnt = c->cq.mask + 1;
	struct mlx5_cqe64 *cqe = &c->cqes[n % cnt];

	memset(cqe, 0, sizeof(*cqe));
	memcpy(&cqe->byte_cnt, &n, 4);
	cqe->signature = (uint8_t)(n / cnt); /* enhanced: the lap */
	cqe->op_own = (uint8_t)(MLX5_CQE_RESP_SEND << 4 | (n / cnt & 1));
}

enum { UAR, SQ, RQ, SRQ, CQ };
enum { NO_BUF = -9, NO_RECORD, NO_UAR, UNSET_UAR, OTHER_ABI };
#define END 0x7777777u
#define ALL_ONES 0xffffffffu

/* What each kind takes and does not take: entries; units, stride or CQE size, or a register's mode; number; where the ring begins */
static const struct {
	const char *name;
	uint32_t kind, good_cnt[12], good_size[10], good_number[3], cnt[8], size[10], number[3];
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

TEST(arguments)
{
	uint32_t k, i, n, s;

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

/* The types of QP that have each */
enum { RC = 1, UC = 2, UD = 4, TO = 8 | 16, PACKETS = 32 };

/* Every operation: its units with an empty list, or all of them when it takes no list; the lists may be inline */
#define OPS 17u
static const struct { uint8_t opcode, ds, types; bool list, inlines; } ops[OPS] = {
	{MLX5_OPCODE_SEND, 1, RC | UC, true, true}, {MLX5_OPCODE_SEND_IMM, 1, RC | UC, true, true}, {MLX5_OPCODE_SEND_INVAL, 1, RC, true, true},
	{MLX5_OPCODE_RDMA_WRITE, 2, RC | UC, true, true}, {MLX5_OPCODE_RDMA_WRITE_IMM, 2, RC | UC, true, true},
	{MLX5_OPCODE_RDMA_READ, 2, RC, true, false}, {MLX5_OPCODE_ATOMIC_FA, 4, RC, false, false}, {MLX5_OPCODE_ATOMIC_CS, 4, RC, false, false},
	{MLX5_OPCODE_UMR, 12, RC | UC | TO, false, false}, {MLX5_OPCODE_UMR, 8, RC | UC | TO, false, false}, {MLX5_OPCODE_SEND, 4, UD | TO, true, true},
	{MLX5_OPCODE_SEND_IMM, 4, UD | TO, true, true}, {MLX5_OPCODE_SEND, 5, UD | TO, false, false}, {MLX5_OPCODE_SEND, 2, RC | UC, false, false},
	{MLX5_OPCODE_RDMA_WRITE, 3, RC | UC, false, false}, {MLX5_OPCODE_RDMA_WRITE, 5, TO, true, true},
	{MLX5_OPCODE_NOP, 1, RC | UC | UD | TO | PACKETS, false, false},
};

INLAY_ALWAYS int post_list(struct inlay_sq *sq, uint32_t op, const struct ibv_sge *sge, uint32_t num, uint32_t flags)
{
	struct remote there = {1, 1};
	struct inlay_av av = {};
	struct ibv_mr mr = {};
	struct ibv_mw mw = {};
	struct ibv_mw_bind_info bind = {&mr, 0x1000, 8, IBV_ACCESS_REMOTE_READ};

	av.av.dqp_dct = htobe32(MLX5_EXTENDED_UD_AV);
	mw.type = IBV_MW_TYPE_2;
	switch (op) {
	case 0: return inlay_post_send(sq, sge, num, flags);
	case 1: return wr_post(sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_sge(sge, num), 1), flags);
	case 2: return wr_post(sq, MLX5_OPCODE_SEND_INVAL, wr_at(wr_sge(sge, num), 0, 1), flags);
	case 3: return inlay_post_write(sq, 1, 1, sge, num, flags);
	case 4: return wr_post(sq, MLX5_OPCODE_RDMA_WRITE_IMM, wr_imm(wr_at(wr_sge(sge, num), 1, 1), 1), flags);
	case 5: return inlay_post_read(sq, 1, 1, sge, num, flags);
	case 6: return wr_atomic(sq, inlay_atomic_add(1), wr_at(wr_sge(sge, 1), 1, 1), flags);
	case 7: return wr_atomic(sq, inlay_atomic_cmp_swap(1, 1), wr_at(wr_sge(sge, 1), 1, 1), flags);
	case 8: return inlay_post_bind_mw(sq, &mw, 1, &bind, flags);
	case 9: return inlay_post_local_inv(sq, 1, flags);
	case 10: return wr_post(sq, MLX5_OPCODE_SEND, wr_to(wr_sge(sge, num), &av), flags);
	case 11: return wr_post(sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_to(wr_sge(sge, num), &av), 1), flags);
	case 12: return wr_post(sq, MLX5_OPCODE_SEND, wr_to(wr_buf(&av, 8, 0), &av), flags | INLAY_INLINE);
	case 13: return inlay_post_send_inline(sq, &av, 8, flags);
	case 14: return inlay_post_write_inline(sq, 1, 1, &av, 8, flags);
	case 15: return wr_post(sq, MLX5_OPCODE_RDMA_WRITE, wr_there(wr_to(wr_sge(sge, num), &av), &there), flags);
	default: return inlay_post(sq, MLX5_OPCODE_NOP, NULL, flags);
	}
}

/* With one SGE */
INLAY_ALWAYS int post_op(struct inlay_sq *sq, uint32_t op, uint32_t flags)
{
	struct ibv_sge sge = {0x1000, 8, 5};

	return post_list(sq, op, &sge, 1, flags);
}

/* Lists of any length, inline or not; *ds becomes what the WQE must be long. The bytes are compared with libmlx5's in oracle_*.h */
static int post_any(struct inlay_sq *sq, uint32_t op, uint32_t flags, uint32_t *ds)
{
	static const uint8_t payload[2048] = {1};
	bool in = ops[op].inlines && rnd_below(2);
	uint32_t num = in ? rnd_below(5) : ops[op].list ? rnd_below(rnd_below(4) ? 6 : 65) : 1, i, total = 0, full = 0, len;
	struct ibv_sge sge[64] = {{0}};

	/* Inline lengths that are no constants; the bell is one to the compiler, too */
	if (op == 13 || op == 14) {
		len = rnd_below(rnd_below(2) ? 48 : rnd_below(4) ? 300 : 2000);
		*ds = op - 12 + (len ? (len + 4 + 15) / 16 : 0);
		if (flags == INLAY_RING)
			return op == 13 ? inlay_post_send_inline(sq, payload, len, INLAY_RING) :
					  inlay_post_write_inline(sq, 1, 1, payload, len, INLAY_RING);
		if (!flags)
			return op == 13 ? inlay_post_send_inline(sq, payload, len, 0) : inlay_post_write_inline(sq, 1, 1, payload, len, 0);
		return op == 13 ? inlay_post_send_inline(sq, payload, len, flags) : inlay_post_write_inline(sq, 1, 1, payload, len, flags);
	}
	for (i = 0; i < num; i++) {
		sge[i].addr = in ? (uintptr_t)payload + rnd_below(1024) : rnd();
		sge[i].length = in ? rnd_below(rnd_below(4) ? 30 : 200) : rnd_below(5) ? 1 + rnd_below(0x7fffffff) : 0;
		sge[i].lkey = (uint32_t)rnd();
		total += sge[i].length;
		full += sge[i].length != 0;
	}
	*ds = num > 63 ? num : ops[op].ds + (!ops[op].list ? 0 : !in ? full : total ? (total + 4 + 15) / 16 : 0);
	flags |= in ? INLAY_INLINE : 0;
	/* One SGE as a constant to the compiler, too */
	return op == 0 && num == 1 ? inlay_post_send(sq, sge, 1, flags) : post_list(sq, op, sge, num, flags);
}

/* A WQE of so many units, of bytes that could be lengths themselves, begun and ended in all ways */
static int post_raw(struct inlay_sq *sq, uint32_t ds, uint32_t opcode, uint32_t flags)
{
	uint32_t way = rnd_below(3), lkey = 0x01010101 * rnd_below(256), bbs = (ds + 3) / 4;
	struct inlay_cursor at;
	int ret = 0;

	if (way == 0)
		ret = inlay_sq_begin(sq, bbs, &at);
	else if (way == 1 || bbs > inlay_sq_room(sq))
		ret = inlay_sq_begin_ds(sq, ds, &at);
	else
		at = inlay_sq_begin_counted(sq, bbs);
	if (ret)
		return ret;
	while (at.ds < ds)
		at = inlay_seg_data(at, 0x0101010101010101u * rnd_below(256), lkey & 0x7fffffff, lkey);
	assert_int_equal(inlay_sq_commit(sq, at, opcode, 0, flags, 0), bbs);
	return 0;
}

/* One of two queues on one register. At each index the length of the WQE that begins there, or 0 */
struct sender { struct raw *raw; uint8_t begins[65536]; uint32_t pi, rung, pending; };

/* The register that they share */
static struct {
	uint8_t *at;
	bool copies;
	uint32_t half; /* that comes next */
} reg;

static void forget(struct sender *m, uint32_t from, uint32_t to)
{
	for (; from != to; from++)
		m->begins[(uint16_t)from] = 0;
}

/* The index of a WQE in [from, to], or to */
static uint32_t some_begin(const struct sender *m, uint32_t from, uint32_t to)
{
	uint32_t at = from + rnd_below(to - from + 1);

	while (at != to && !m->begins[(uint16_t)at])
		at++;
	return at;
}

/*
 * What was posted is rung for, or there was nothing. One WQE alone is copied if it fits and the mode has copies, into the half that the last
 * ring, whichever queue's, has not written; else a doorbell names the last WQE. The rest of the register is as it was.
 */
static void rung(struct sender *m, bool doorbell)
{
	uint32_t last = m->pi - 1, bytes = 0, ds, i;

	if (m->pi != m->rung) {
		while (!m->begins[(uint16_t)last])
			last--;
		ds = byte_at(m->raw, last, 7);
		bytes = reg.copies && !doorbell && last == m->rung && ds > 1 && ds <= REG / 16 ? (ds + 3) / 4 * 64 : 8;
		assert_int_equal(m->raw->dbrec[1], htobe32(m->pi & 0xffff));
	}
	for (i = 0; i < bytes; i++)
		assert_int_equal(reg.at[reg.half * REG + i], byte_at(m->raw, last, i));
	assert_true(all_bytes(reg.at + reg.half * REG + bytes, REG - bytes, 0xee) && all_bytes(reg.at + !reg.half * REG, REG, 0xee));
	memset(reg.at + reg.half * REG, 0xee, bytes);
	reg.half ^= bytes && reg.copies;
	m->rung = m->pi;
	assert_int_equal(m->raw->dbrec[0], 0);
}

/* Something is posted to the queue or a copy of it, or refused: then nothing is written, neither into the ring nor into its state */
static void send_post_to(struct sender *m, struct inlay_sq *sq, uint32_t max_ds, bool may_ring)
{
	static uint8_t before[16 * 64];
	struct raw *r = m->raw;
	const struct inlay_sq was = *sq;
	uint32_t flags = rnd_below(4) ? 0 : INLAY_SIGNALED | INLAY_FENCE, op = rnd_below(OPS), ds, bbs, opcode = ops[op].opcode;
	const size_t small = r->bbs <= 16 ? r->bbs * 64 : 0;
	int ret, want;

	memcpy(before, r->buf, small);
	flags |= !may_ring || rnd_below(3) ? 0 : INLAY_RING;
	ds = ops[op].ds + ops[op].list;
	switch (rnd_below(6)) {
	case 0: ret = post_op(sq, op, flags); break;
	case 1: ret = may_ring ? post_op(sq, op, flags = INLAY_RING) : post_op(sq, op, flags = 0); break; /* constants to the compiler */
	case 2: case 3: ret = post_any(sq, op, flags, &ds); break;
	default:
		ds = rnd_below(3) ? 1 + rnd_below(8) : 1 + rnd_below(max_ds);
		opcode = rnd_below(256);
		ret = post_raw(sq, ds, opcode, flags);
	}
	bbs = (ds + 3) / 4;
	want = ds > max_ds ? -EINVAL : bbs > r->bbs ? -E2BIG : bbs > r->bbs - m->pending ? -EAGAIN : 0;
	assert_int_equal(ret, want);
	if (ret) {
		assert_memory_equal(sq, &was, sizeof(was));
		assert_memory_equal(r->buf, before, small);
		return;
	}
	assert_int_equal(be32_at(r, m->pi, 0), (m->pi & 0xffff) << 8 | opcode);
	assert_int_equal(be32_at(r, m->pi, 4), QPN << 8 | ds);
	assert_int_equal(be32_at(r, m->pi, 8), flags >> 24);
	m->begins[(uint16_t)m->pi] = (uint8_t)bbs;
	m->pi += bbs;
	m->pending += bbs;
	if (flags & INLAY_RING)
		rung(m, false);
}

/* One WQE, perhaps rung for; or a burst, which is in every respect as if its WQEs had been posted to the queue itself */
static void send_post(struct sender *m, uint32_t max_ds)
{
	struct inlay_sq burst = m->raw->sq;
	uint32_t n = rnd_below(4);

	if (rnd_below(3)) {
		send_post_to(m, &m->raw->sq, max_ds, true);
		return;
	}
	while (n--)
		send_post_to(m, &burst, max_ds, false);
	inlay_sq_join(&m->raw->sq, &burst);
	assert_memory_equal(&m->raw->sq, &burst, sizeof(burst));
}

/* A CQE may name anything; only the first WQEBB of a WQE that is outstanding is taken, and gives back that WQE and those before it */
static void send_done(struct sender *m)
{
	/* Near to what is outstanding, or anywhere */
	uint32_t at = rnd_below(4) ? m->pi - m->pending - rnd_below(9) + rnd_below(m->pending + 18) : (uint32_t)rnd(), to;
	const struct inlay_sq was = m->raw->sq;
	struct mlx5_cqe64 cqe;
	int ret;

	at = m->pi - (uint16_t)(m->pi - at);
	if (m->rung != m->pi && m->pi - at <= m->pi - m->rung)
		return; /* no device knows of it */
	cqe = cqe_of(rnd_below(2) ? MLX5_CQE_REQ : MLX5_CQE_REQ_ERR, QPN, at);
	ret = inlay_sq_release(&m->raw->sq, &cqe);
	if (m->pi == at || m->pi - at > m->pending || !m->begins[(uint16_t)at]) {
		assert_int_equal(ret, -EPROTO);
		assert_memory_equal(&m->raw->sq, &was, sizeof(was));
		return;
	}
	to = at + m->begins[(uint16_t)at];
	assert_int_equal(ret, to - (m->pi - m->pending));
	forget(m, m->pi - m->pending, to);
	m->pending = m->pi - to;
}

static void send_until(struct sender *m)
{
	uint32_t oldest = m->pi - m->pending, at = some_begin(m, oldest, m->rung), i, n = 0;

	for (i = oldest; m->raw->bbs <= 256 && i != m->pi; i++)
		n += m->begins[(uint16_t)i] != 0;
	assert_true(m->raw->bbs > 256 || inlay_sq_wqes(&m->raw->sq) == n);
	assert_int_equal(inlay_sq_release_until(&m->raw->sq, m->pi + 1), -EPROTO);
	assert_int_equal(inlay_sq_release_until(&m->raw->sq, oldest - 1), -EPROTO);
	assert_int_equal(inlay_sq_release_until(&m->raw->sq, at), at - oldest);
	forget(m, oldest, at);
	m->pending = m->pi - at;
}

/* Another queue in its place goes on with the other half of the register; or it is reset, and is that queue */
static void send_anew(struct sender *m, uint32_t max_ds)
{
	struct inlay_sq was = m->raw->sq, fresh;

	inlay_sq_fini(&m->raw->sq);
	must(inlay_sq_init(&m->raw->sq, m->raw->buf, m->raw->bbs, m->raw->dbrec, QPN, max_ds, was.uar));
	fresh = m->raw->sq;
	if (rnd_below(2)) {
		m->raw->sq = was;
		m->raw->dbrec[1] = htobe32(5);
		inlay_sq_reset(&m->raw->sq);
		assert_memory_equal(&m->raw->sq, &fresh, sizeof(fresh));
		assert_int_equal(m->raw->dbrec[1], 0);
	}
	assert_int_equal(was.uar->queues, 2);
	memset(m->begins, 0, sizeof(m->begins));
	m->pi = m->rung = m->pending = 0;
}

/* Random posts, doorbells, completions, posts taken back. First just before the index comes round, at 2^16 and at 2^32 */
static void send_model(uint32_t mode, uint32_t size, uint32_t bbs, uint32_t preset, uint32_t steps)
{
	static struct sender two[2];
	const uint32_t max_ds = rnd_below(2) ? 63 : 16 + rnd_below(48);
	struct inlay_uar *uar;
	uint32_t s, i;

	for (i = 0; i < 2; i++) {
		two[i].raw = raw_make(bbs, max_ds, mode);
		uar = &two[0].raw->uar;
		must(inlay_uar_init(i ? &two[1].raw->uar : uar, two[i].raw->reg, size, mode));
		must(inlay_sq_init(&two[i].raw->sq, two[i].raw->buf, bbs, two[i].raw->dbrec, QPN, max_ds, uar));
		assert_int_equal(two[i].raw->sq.next != NULL, mode == INLAY_UAR_SERIAL);
		memset(two[i].begins, 0, sizeof(two[i].begins));
		two[i].raw->sq.pi = two[i].pi = two[i].rung = preset;
		two[i].pending = 0;
	}
	assert_int_equal(uar->queues, 2);
	reg.at = two[0].raw->reg;
	reg.copies = (mode & ~INLAY_UAR_FULL_FENCE) != INLAY_UAR_DOORBELL && size;
	reg.half = 0;
	memset(reg.at, 0xee, 2 * REG);
	for (s = 0; s < steps; s++) {
		struct sender *m = &two[rnd_below(8) == 0];
		struct raw *r = m->raw;
		/* In long stretches that fill it and that drain it, so that full and empty happen in rings of any size */
		bool filling = (s / (bbs + 7)) % 2 == 0;

		assert_int_equal(inlay_sq_pending(&r->sq), m->pending);
		assert_int_equal(inlay_sq_room(&r->sq), bbs - m->pending);
		assert_int_equal(inlay_sq_index(&r->sq), m->pi);
		assert_int_equal(inlay_sq_rung(&r->sq), m->rung);
		if (rnd_below(8) < (filling ? 6 : 1)) {
			send_post(m, max_ds);
		} else if (rnd_below(4) == 0) {
			bool doorbell = rnd_below(4) == 0;

			must(doorbell ? inlay_sq_ring_doorbell(&r->sq) : inlay_sq_ring(&r->sq));
			rung(m, doorbell);
		} else if (rnd_below(8) == 0) {
			i = some_begin(m, m->rung, m->pi);
			inlay_sq_undo(&r->sq, i);
			forget(m, i, m->pi);
			m->pending -= m->pi - i;
			m->pi = i;
		} else if (rnd_below(16) == 0) {
			send_until(m);
		} else if (!m->pending && rnd_below(8) == 0) {
			/* As if so many short ones had come and gone */
			r->sq.pi += rnd_below(2) ? (uint32_t)rnd() : 0x80000000u - rnd_below(2 * bbs);
			m->pi = m->rung = r->sq.pi;
		} else if (rnd_below(200) == 0) {
			send_anew(m, max_ds);
		} else {
			send_done(m);
		}
	}
	for (i = 2; i--;) {
		inlay_sq_fini(&two[i].raw->sq);
		inlay_sq_fini(&two[i].raw->sq); /* twice does no harm */
		assert_int_equal(uar->queues, i);
	}
	raw_free(two[1].raw);
	raw_free(two[0].raw);
}

TEST(sends)
{
	static const uint32_t presets[] = {0, 0xfff0, 0xfffffff0, 0x7ffffff3, 0xfffe0001};

	for (uint32_t bbs = 1; bbs <= 32768; bbs *= 2)
		for (size_t i = 0; i < ARRAY(presets); i++)
			send_model(i % 3, REG, bbs, presets[i], bbs < 4096 ? 25000 : 150000);
	for (uint32_t mode = INLAY_UAR_DOORBELL; mode <= INLAY_UAR_LOCKED; mode++) {
		send_model(mode, REG, 16, 0xffffff00, 20000);
		send_model(mode | INLAY_UAR_FULL_FENCE, REG, 16, 0, 5000);
		send_model(mode, 0, 16, 0, 5000);
	}
}

/* Flags that the compiler does not know and an SGE at 0: it must not warn of a NULL that would be copied */
static __attribute__((noinline)) int post_from_zero(struct inlay_sq *sq, uint32_t flags)
{
	struct ibv_sge sge = {0, 64, 7};

	return inlay_post_write(sq, 0, 8, &sge, 1, flags);
}

/* Where a program signals as inlay_sq_signal says, a full ring is never without a completion to come */
static bool is_signaled(const struct raw *r, uint32_t index)
{
	return byte_at(r, index, 11) & MLX5_WQE_CTRL_CQ_UPDATE;
}

TEST(moderation)
{
	uint32_t bbs, every, round, index, k, head, tail, oldest, stuck = 0, start[256];
	static const uint8_t payload[64] = {1};
	struct inlay_cursor at;
	struct raw *one;

	for (bbs = 2; bbs <= 256; bbs *= 2)
		for (every = 1; every <= bbs / 2; every *= 2) {
			struct raw *r = raw_make(bbs, 63, INLAY_UAR_SERIAL);

			for (round = head = tail = 0; round < 2000; round++) {
				k = 1 + rnd_below(rnd_below(2) || every > 16 ? (every > 15 ? 15 : every) : 1);
				/* An upper bound does as well */
				if (!inlay_sq_begin(&r->sq, k, &at)) {
					uint32_t bound = k + rnd_below(2) * rnd_below(every - k + 1), n;

					for (n = 1; n < k; n++) /* one unit in each further WQEBB at least */
						at = inlay_seg_inline(at, payload, 60);
					start[head++ % 256] = inlay_sq_index(&r->sq);
					inlay_sq_commit(&r->sq, at, MLX5_OPCODE_SEND, 0, inlay_sq_signal(&r->sq, bound, every), 0);
					continue;
				}
				stuck++;
				for (oldest = tail; oldest != head && !is_signaled(r, start[oldest % 256]); oldest++)
					;
				assert_int_not_equal(oldest, head);
				assert_true(inlay_sq_release_until(&r->sq, start[oldest % 256] + inlay_sq_bbs_(&r->sq, start[oldest % 256])) > 0);
				tail = oldest + 1;
			}
			raw_free(r);
		}
	assert_true(stuck > 1000);
	/* WQEs of one WQEBB: exactly every eighth */
	one = raw_make(64, 63, INLAY_UAR_SERIAL);
	for (index = 0; index < 64; index++) {
		must(inlay_post(&one->sq, MLX5_OPCODE_NOP, NULL, inlay_sq_signal(&one->sq, 1, 8)));
		assert_int_equal(is_signaled(one, index), index % 8 == 7);
	}
	raw_free(one);
}

/* What a post of struct iovec refuses leaves the queue as it was. What it writes is compared with libmlx5's in oracle.c */
TEST(lists)
{
	static const struct {
		const char *name;
		uint32_t opcode, num, flags;
		size_t len; /* of each entry */
		int want;
	} posts[] = {
		{"an entry that no data segment holds", MLX5_OPCODE_RDMA_WRITE, 1, 0, 0x80000000u, -EINVAL},
		{"more bytes than there are", MLX5_OPCODE_SEND, 1, INLAY_INLINE, SIZE_MAX, -EINVAL},
		{"more bytes than a WQE holds", MLX5_OPCODE_SEND, 2, INLAY_INLINE, 600, -EINVAL},
		{"one entry more than a WQE holds", MLX5_OPCODE_SEND, 63, 0, 1, -EINVAL},
		{"more entries than are looked at", MLX5_OPCODE_SEND, 70, 0, 1, -EINVAL},
		{"the same, all empty", MLX5_OPCODE_SEND, 70, 0, 0, -EINVAL},
		{"inline so many fit", MLX5_OPCODE_SEND, 70, INLAY_INLINE, 1, 0},
		{"as pointers 62", MLX5_OPCODE_SEND, 62, 0, 1, 0},
		{"again", MLX5_OPCODE_SEND, 62, 0, 1, 0}, {"and again", MLX5_OPCODE_SEND, 62, 0, 1, 0},
		{"a full ring", MLX5_OPCODE_SEND, 62, 0, 1, -EAGAIN},
	};
	struct raw *r = raw_make(64, 63, INLAY_UAR_SERIAL);
	static uint8_t payload[1024];
	static struct iovec iov[70];
	struct inlay_iov from = {iov, 1, 5, NULL};
	struct remote to = {0x1000, 77};
	struct inlay_sq before;

	for (uint32_t k = 0; k < ARRAY(posts); k++) {
		for (uint32_t i = 0; i < ARRAY(iov); i++) {
			iov[i].iov_base = payload;
			iov[i].iov_len = posts[k].len;
		}
		from.num = posts[k].num;
		before = r->sq;
		if (wr_post(&r->sq, posts[k].opcode, wr_iov(&from, NULL, posts[k].opcode == MLX5_OPCODE_RDMA_WRITE ? &to : NULL, 0), posts[k].flags) != posts[k].want ||
		    (posts[k].want && memcmp(&before, &r->sq, sizeof(before))))
			fail_msg("%s", posts[k].name);
		if (posts[k].flags && !posts[k].want)
			assert_int_equal(inlay_sq_pending(&r->sq), 2);
	}
	raw_free(r);
}

/* A list whose length is a constant to the compiler */
static int post_constant(struct inlay_sq *sq, uint32_t op, const struct ibv_sge *sge, uint32_t num)
{
	switch (num) {
	case 1: return post_list(sq, op, sge, 1, 0);
	case 2: return post_list(sq, op, sge, 2, 0);
	case 3: return post_list(sq, op, sge, 3, 0);
	default: return post_list(sq, op, sge, 4, 0);
	}
}

/* Which SGEs are empty and how many there are makes the same WQE, and the same answer, whether or not the compiler knows the number */
TEST(same_room)
{
	static uint8_t once[16 * 64];
	struct ibv_sge sge[4] = {{0x1000, 8, 5}, {0x2000, 8, 5}, {0x3000, 8, 5}, {0x4000, 8, 5}};
	uint32_t turn, op, i, refused = 0;

	for (turn = 0; turn < 16 * 4 * 12 * 4; turn++) {
		const uint32_t num = 1 + turn / 16 % 4, full = turn / 16 / 4 / 12; /* WQEBBs in use */
		struct raw *r = raw_make(4, 1 + turn / 16 / 4 % 12, INLAY_UAR_DOORBELL);

		r->sq.pi = r->sq.pending = full;
		for (i = 0; i < 4; i++)
			sge[i].length = turn >> i & 1 ? 8 : 0;
		for (op = 0; op < OPS; op++) {
			struct inlay_sq a = r->sq, b = r->sq;
			int got;

			if (!ops[op].list)
				continue;
			got = post_constant(&a, op, sge, num);
			memcpy(once, r->buf, 4 * 64);
			memset(r->buf, 0, 4 * 64);
			assert_int_equal(post_list(&b, op, sge, num, 0), got);
			assert_memory_equal(&a, &b, sizeof(a));
			assert_memory_equal(once, r->buf, 4 * 64);
			memset(r->buf, 0, 4 * 64);
			refused += got == -EINVAL;
		}
		raw_free(r);
	}
	assert_true(refused > 100);
}

/* The longest WQE that there is; lengths whose sums or sizes have no place in 32 bits; what a device without atomics cannot do */
TEST(limits)
{
	struct raw *r = raw_make(16, 63, INLAY_UAR_DOORBELL);
	const struct mlx5_cqe64 early = cqe_of(MLX5_CQE_REQ, QPN, 0);
	static const struct inlay_av *volatile nobody;
	const volatile uint32_t huge = 0xffffffff;
	static uint8_t data[1024];
	struct ibv_sge sge[64];
	struct inlay_sq was;

	must(post_from_zero(&r->sq, rnd_below(2) ? INLAY_SIGNALED : 0));
	assert_true(be32_at(r, 0, 32) == 64 && be32_at(r, 0, 36) == 7 && !be32_at(r, 0, 40) && !be32_at(r, 0, 44));
	inlay_sq_undo(&r->sq, 0);
	/* A destination that is none, which the compiler does not know */
	must(wr_post(&r->sq, MLX5_OPCODE_SEND, wr_to(wr_buf(data, 8, 0), nobody), INLAY_INLINE));
	assert_true(be32_at(r, 0, 4) == (QPN << 8 | 2) && be32_at(r, 0, 16) == 0x80000008);
	inlay_sq_undo(&r->sq, 0);
	for (uint32_t i = 0; i < 64; i++) {
		sge[i].addr = i;
		sge[i].length = 1;
		sge[i].lkey = 3;
	}
	must(inlay_post_send_inline(&r->sq, data, 988, 0));
	assert_int_equal(inlay_sq_wqes(&r->sq), 1);
	inlay_sq_undo(&r->sq, 0);
	must(inlay_post(&r->sq, MLX5_OPCODE_NOP, NULL, 0));
	r->buf[7] = 0; /* something else has written to the ring */
	assert_int_equal(inlay_sq_wqes(&r->sq), 0);
	r->buf[7] = 1;
	inlay_sq_undo(&r->sq, 0);
	must(inlay_post(&r->sq, MLX5_OPCODE_NOP, NULL, 0));
	assert_int_equal(inlay_sq_release(&r->sq, &early), 1); /* before it was rung for */
	inlay_sq_undo(&r->sq, 0);
	assert_int_equal(inlay_sq_pending(&r->sq), 0);
	r->sq.atomics = 0;
	memset(r->buf, 0, 16 * 64);
	was = r->sq;
	assert_int_equal(wr_atomic(&r->sq, inlay_atomic_add(1), wr_at(wr_sge(sge, 1), 0x2000, 7), 0), -ENOTSUP);
	assert_int_equal(wr_atomic(&r->sq, inlay_atomic_cmp_swap(1, 2), wr_at(wr_sge(sge, 1), 0x2000, 7), 0), -ENOTSUP);
	assert_int_equal(inlay_post_send(&r->sq, sge, 63, 0), -EINVAL);
	assert_int_equal(inlay_post_send(&r->sq, sge, 64, 0), -EINVAL);
	assert_int_equal(inlay_post_send_inline(&r->sq, data, 989, 0), -EINVAL);
	assert_int_equal(inlay_post_send_inline(&r->sq, data, 0xffffffff, 0), -EINVAL);
	assert_int_equal(inlay_post_send_inline(&r->sq, data, huge, 0), -EINVAL);
	for (uint32_t i = 0; i < 64; i++)
		sge[i].length = 0x40000001;
	assert_int_equal(inlay_post_send(&r->sq, sge, 4, INLAY_INLINE), -EINVAL);
	assert_int_equal(inlay_post_send(&r->sq, sge, 64, INLAY_INLINE), -EINVAL);
	r->sq.pending = 16; /* other posts to a full ring: send_model, atomics.c, umr.c, packet.c */
	assert_int_equal(inlay_post_memcpy(&r->sq, sge, sge, sge, 0), -EAGAIN);
	r->sq.pending = 0;
	assert_memory_equal(&r->sq, &was, sizeof(was));
	assert_true(all_bytes(r->buf, 16 * 64, 0));
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
	const struct mlx5_cqe64 *volatile no_cqe = NULL;
	struct ibv_sge sge[8] = {{0x1000, 8, 5}}, *volatile no_sge = NULL;
	struct inlay_cq *volatile no_cq = NULL;
	struct inlay_rq *volatile no_rq = NULL;
	struct inlay_srq *volatile no_srq = NULL;
	struct inlay_cursor *volatile no_at = NULL;
	volatile uint32_t zero = 0, two_of = 2, four = 4, seventeen = 17, big = 0x1000000, huge = 0x80000001, flags;
	struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_REQ, QPN, 0);
	struct inlay_iov list = {NULL, 0, 0, NULL};
	struct inlay_atomic other = {0, 0, 0, 0, MLX5_OPCODE_NOP};
	const struct inlay_wr *volatile no_wr = NULL;
	struct mlx5_wqe_av from = {};
	struct inlay_av av;
	const char *says;
	uint32_t number = 0, n;
	uint8_t *p;

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
	RULE("inlay_sq_finish_: a WQE is no longer than the QP's longest",
	     for (n = 0; n < 5; n++) at = inlay_seg_data(at, 0, 1, 1); inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0))
	RULE("inlay_sq_end_: a WQE is committed before the next is begun",
	     must(inlay_sq_begin(sq, 1, &two)); inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0);
	     inlay_sq_commit(sq, two, MLX5_OPCODE_SEND, 0, 0, 0))
	RULE("inlay_sq_end_: an open inline segment is filled before the commit",
	     at = inlay_seg_inline_append(inlay_seg_inline_open(at, 20, 4, &p), &sge, 15);
	     inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0))
	AGAIN(inlay_sq_ring(sq); inlay_sq_commit(sq, inlay_seg_inline_open(at, 13, 12, &p), MLX5_OPCODE_SEND, 0, INLAY_RING, 0))
	RULE("inlay_seg_inline_open: an inline segment is not empty", inlay_seg_inline_open(at, 0, 0, &p))
	RULE("inlay_seg_inline_open: the first 12 bytes of an inline segment are written in place",
	     inlay_seg_inline_open(at, 20, 13, &p))
	AGAIN(inlay_seg_inline_open(at, 5, 6, &p))
	RULE("inlay_seg_inline_open: one inline segment is filled before the next is opened",
	     inlay_seg_inline_open(inlay_seg_inline_open(at, 5, 4, &p), 5, 5, &p))
	RULE("inlay_seg_inline_append: no more is appended than the segment was opened for",
	     inlay_seg_inline_append(inlay_seg_inline_open(at, 5, 4, &p), &sge, 2))
	RULE("inlay_seg_av: an address vector follows the control segment", inlay_seg_av(inlay_seg_raddr(at, 0, 0), &av, 3))
	RULE("inlay_av_init: a QPN has 24 bits", inlay_av_init(&av, &from, 0x1000000, 0))
	RULE("inlay_av_to_dct: a DCTN has 24 bits", inlay_av_to_dct(&av, 1 << 24, 1))
	RULE("inlay_av_init_xrc: an SRQN has 24 bits", inlay_av_init_xrc(&av, 1 << 24))
	RULE("inlay_seg_av: the destination has as many units", inlay_seg_av(at, &av, 1))
	RULE("inlay_wqe_data: a data segment holds at most 2^31 - 1 bytes",
	     sge[0].length = 0x80000000; (void)!inlay_post_send(sq, sge, 1, 0))
	RULE("inlay_post: the queue is not NULL", (void)!inlay_post_send(no_sq, sge, 1, 0))
	RULE("inlay_post: sge is not NULL unless num_sge is 0", (void)!inlay_post_send(sq, no_sge, 1, 0))
	RULE("inlay_post: a read has no payload to inline", (void)!inlay_post_read(sq, 0, 0, sge, 1, INLAY_INLINE))
	RULE("inlay_post_atomic: an atomic has no payload to inline", (void)!wr_atomic(sq, inlay_atomic_add(1), wr_at(wr_sge(sge, 1), 0, 0), INLAY_INLINE))
	RULE("inlay_sq_release: queue and CQE are not NULL", inlay_sq_release(no_sq, &cqe))
	AGAIN(inlay_sq_release(sq, no_cqe))
	RULE("inlay_sq_undo: only what was not rung for is taken back", inlay_sq_ring(sq); inlay_sq_undo(sq, 0))
	RULE("inlay_sq_undo: a WQE is taken back whole", (void)!inlay_post_send_inline(sq, sge, 60, 0); inlay_sq_undo(sq, 2))
	RULE("inlay_cq_peek: the queue is not NULL", inlay_cq_peek(no_cq))
	RULE("inlay_cq_advance_quiet: only completions that have arrived are freed",
	     inlay_cq_advance(&u->c->cq, 1); inlay_cq_advance(&u->c->cq, 1))
	AGAIN(inlay_cq_advance(&u->c->cq, two_of)) AGAIN(inlay_cq_advance_quiet(&u->c->cq, huge))
	RULE("inlay_rq_release: queue and CQE are not NULL", inlay_rq_release(no_rq, &cqe))
	AGAIN(inlay_rq_release(u->rq, no_cqe))
	RULE("inlay_rq_recycle: a receive is outstanding", inlay_rq_recycle(u->rq, 0))
	RULE("inlay_rq_recycle: WQEs complete in their order",
	     inlay_rq_set_ooo(u->rq); must(inlay_post_recv(u->rq, sge, 1)); inlay_rq_recycle(u->rq, 0))
	RULE("inlay_srq_release: queue and CQE are not NULL", inlay_srq_release(no_srq, &cqe))
	AGAIN(inlay_srq_release(u->srq, no_cqe))
	RULE("inlay_srq_fill_: nobody else writes the entries' links", u->srq->buf[3] = 4; (void)!inlay_post_srq_recv(u->srq, sge, 1, 0))
	RULE("inlay_qpn_table_find: a QPN has 24 bits", inlay_qpn_table_find(u->table, big))
	RULE("inlay_flags_check_: flags are INLAY_*, not IBV_SEND_*, with one fence at most",
	     flags = IBV_SEND_SIGNALED; (void)!inlay_post_send(sq, sge, 1, flags))
	AGAIN(flags = INLAY_FENCE | INLAY_FENCE_STRONG; (void)!inlay_post_send(sq, sge, 1, flags))
	AGAIN(flags = 1u << 20; (void)!inlay_post_send(sq, sge, 1, flags))
	AGAIN(flags = 3u << 29; (void)!inlay_post_send(sq, sge, 1, flags))
	AGAIN(flags = IBV_SEND_SIGNALED; (void)!inlay_post_memcpy(sq, sge, sge, sge, flags))
	AGAIN(flags = IBV_SEND_SIGNALED; (void)!wr_post(sq, MLX5_OPCODE_SEND, wr_iov(&list, NULL, NULL, 0), flags))
	RULE("inlay_sq_ring: the queue is not NULL", inlay_sq_ring(no_sq))
	RULE("inlay_sq_ring_doorbell: the queue is not NULL", inlay_sq_ring_doorbell(no_sq))
	RULE("inlay_sq_begin_counted: the queue is not NULL", inlay_sq_begin_counted(no_sq, 1))
	RULE("inlay_sq_undo: the queue is not NULL", inlay_sq_undo(no_sq, 0))
	RULE("inlay_cq_decode: no argument is NULL", inlay_cq_decode(no_cq, NULL, NULL, 0))
	RULE("inlay_cq_advance_quiet: the queue is not NULL", inlay_cq_advance(no_cq, 1))
	RULE("inlay_cq_update: the queue is not NULL", inlay_cq_update(no_cq))
	RULE("inlay_cq_arm: the queue is not NULL", inlay_cq_arm(no_cq, 0))
	RULE("inlay_cq_clean: the queue is not NULL", inlay_cq_clean(no_cq, 1, NULL, NULL))
	RULE("inlay_cq_reserve: the queue is not NULL", (void)!inlay_cq_reserve(no_cq, 1, NULL))
	RULE("inlay_post_recv: queue and SGEs are not NULL", (void)!inlay_post_recv(no_rq, sge, 1))
	AGAIN((void)!inlay_post_recv(u->rq, no_sge, 1))
	RULE("inlay_rq_ring: the queue is not NULL", inlay_rq_ring(no_rq))
	RULE("inlay_rq_recycle: the queue is not NULL", inlay_rq_recycle(no_rq, 0))
	RULE("inlay_post_srq_recv: queue and SGEs are not NULL", (void)!inlay_post_srq_recv(no_srq, sge, 1, 0))
	RULE("inlay_srq_ring: the queue is not NULL", inlay_srq_ring(no_srq))
	RULE("inlay_srq_recycle: queue and CQE are not NULL", inlay_srq_recycle(no_srq, &cqe))
	RULE("inlay_post: only a NOP has no request", (void)!inlay_post(sq, MLX5_OPCODE_SEND, no_wr, 0))
	RULE("inlay_post_atomic: queue and request are not NULL", (void)!inlay_post_atomic(sq, inlay_atomic_add(1), no_wr, 0))
	AGAIN((void)!wr_atomic(no_sq, inlay_atomic_add(1), wr_sge(sge, 1), 0))
	RULE("inlay_post_atomic: the operation is an atomic", (void)!wr_atomic(sq, other, wr_sge(sge, 1), 0))
	RULE("inlay_post_atomic: the answer goes to one place", (void)!wr_atomic(sq, inlay_atomic_add(1), wr_sge(sge, 2), 0))
	AGAIN((void)!wr_atomic(sq, inlay_atomic_add(1), wr_iov(&list, NULL, NULL, 0), 0))
	RULE("inlay_post_local_inv: the queue is not NULL", (void)!inlay_post_local_inv(no_sq, 1, 0))
	RULE("inlay_post_bind_mw: no argument is NULL", (void)!inlay_post_bind_mw(sq, NULL, 1, NULL, 0))
	RULE("inlay_seg_av: the destination has as many units", inlay_av_init_xrc(&av, 1); inlay_seg_av(at, &av, 3))
	RULE("inlay_sq_finish_: only a DCI has streams",
	     sq->type = IBV_QPT_RC; (void)!wr_atomic(sq, inlay_atomic_add(1), wr_at(wr_sge(sge, 1), 0, 0), INLAY_STREAM(5)))
	RULE("inlay_post: only a DCI has streams",
	     sq->type = IBV_QPT_RC; (void)!inlay_post_send(sq, sge, 1, INLAY_STREAM(5)))
	RULE("inlay_post_memcpy: a copy has no payload to inline", (void)!inlay_post_memcpy(sq, sge, sge, sge, INLAY_INLINE))
	RULE("inlay_post_umr: a UMR has no payload to inline", (void)!inlay_post_local_inv(sq, 1, INLAY_INLINE))
	RULE("inlay_post_set_psv: a PSV has no payload to inline", (void)!inlay_post_set_psv(sq, 1, 1, INLAY_INLINE))
	RULE("inlay_post_memcpy: the QP's type has the operation",
	     sq->type = IBV_QPT_UD; (void)!inlay_post_memcpy(sq, sge, sge, sge, 0))
	RULE("inlay_packet_check_: the QP's type has the operation",
	     sq->type = IBV_QPT_RC; (void)!inlay_post_packet(sq, inlay_eth_csum(0), sge, 1, 0))
	RULE("inlay_post_packets_multi: a packet is not empty",
	     inlay_sq_set_packet_(sq, 0, 1); (void)!inlay_post_packets_multi(sq, inlay_eth_csum(0), sge, 2, 0))
	AGAIN(inlay_sq_set_packet_(sq, 0, 1); (void)!inlay_post_packets_multi(sq, inlay_eth_csum(0), sge, 2, INLAY_INLINE))
	RULE("inlay_sq_begin: the queue is attached to a register", inlay_sq_fini(sq); (void)!inlay_sq_begin(sq, 1, &at))
	RULE("inlay_sq_begin_counted: the queue is attached to a register", inlay_sq_fini(sq); inlay_sq_begin_counted(sq, 1))
	RULE("inlay_post_recv: inlay_rq_fini was not called", inlay_rq_fini(u->rq); (void)!inlay_post_recv(u->rq, sge, 1))
	RULE("inlay_post_srq_recv: inlay_srq_fini was not called", inlay_srq_fini(u->srq); (void)!inlay_post_srq_recv(u->srq, sge, 1, 0))
}

TEST(checks)
{
	static struct inlay_qpn_table table;
	uint8_t buf[4 * 64] __attribute__((aligned(64)));
	uint32_t dbrec[2];
	struct inlay_srq srq;
	struct inlay_rq rq;
	struct rule u = {.rq = &rq, .srq = &srq, .table = &table};

	memset(buf, 0, sizeof(buf));
	u.r = raw_make(4, 5, INLAY_UAR_SERIAL);
	must(inlay_post(&u.r->sq, MLX5_OPCODE_NOP, NULL, 0));
	u.c = rawcq_make(4);
	produce(u.c, 0);
	must(inlay_rq_init(&rq, buf, 4, 64, dbrec));
	must(inlay_srq_init(&srq, buf, 4, 32, dbrec));
	inlay_qpn_table_init(&table, NULL, 0);
	for (;; u.which++) {
		u.breaks = false;
		rule_break(&u);
		if (!u.text)
			break;
		u.breaks = true;
		assert_aborts(u.text, rule_break(&u));
	}
	assert_true(u.which > 80);
	raw_free(u.r);
	free(u.c);
}

struct op_on { struct raw *r; uint32_t op; };

static void post_unknown(void *arg)
{
	struct op_on *o = (struct op_on *)arg;

	post_op(&o->r->sq, o->op, 0);
}

TEST(operations)
{
	static const uint32_t types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_DRIVER, IBV_QPT_RAW_PACKET};

	for (uint32_t t = 0; t < ARRAY(types); t++)
		for (uint32_t op = 0; op < OPS; op++) {
			struct op_on o = {raw_make(16, 16, INLAY_UAR_DOORBELL), op};

			o.r->sq.type = types[t];
			if (ops[op].types & 1 << t)
				must(post_op(&o.r->sq, op, 0));
			else
				assert_aborts("the QP's type has the operation\n", post_unknown(&o));
			/* A queue of which it is not known takes all */
			o.r->sq.type = 0;
			must(post_op(&o.r->sq, op, 0));
			raw_free(o.r);
		}
}
#endif

enum { IN_ORDER, ANY_ORDER };           /* in which the device takes its WQEs. Shared queues: srq_ring.c */

struct receiver {
	struct inlay_rq rq;
	uint32_t kind, cnt, stride;
	uint8_t *buf;
	uint32_t dbrec[2];
	uint8_t *is;                    /* of each entry: whether it is posted */
	uint32_t posted, came, oldest;  /* oldest: all before it have come back */
};

static uint8_t *entry(const struct receiver *m, uint32_t index)
{
	return m->buf + (size_t)index * m->stride;
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

/* The data segments of a receive, and the one that ends them if there is room */
static void recv_is(const struct receiver *m, uint32_t index, const struct ibv_sge *sge, uint32_t n)
{
	const struct mlx5_wqe_data_seg last = {0, htobe32(0x100), 0};
	const uint8_t *at = entry(m, index);

	for (uint32_t i = 0; i < n; i++)
		if (sge[i].length) {
			struct mlx5_wqe_data_seg seg = {htobe32(sge[i].length), htobe32(sge[i].lkey), htobe64(sge[i].addr)};

			assert_memory_equal(at, &seg, sizeof(seg));
			at += 16;
		}
	if (at < entry(m, index + 1))
		assert_memory_equal(at, &last, sizeof(last));
}

static uint32_t recv_room(const struct receiver *m)
{
	uint32_t half = m->cnt / 2 - (m->posted - m->came), there = m->oldest + m->cnt - m->posted;

	/* Half the ring at a time, and no WQE before all older ones are back */
	return m->kind == ANY_ORDER && half < there ? half : there;
}

static void recv_post(struct receiver *m)
{
	const uint32_t most = m->stride / 16, index = m->posted % m->cnt;
	const struct inlay_rq rq = m->rq;
	uint8_t before[1024], *wqe = entry(m, index);
	struct ibv_sge sge[80];
	uint32_t n = some_sges(sge, most + 1);
	int got, want = !recv_room(m) ? -EAGAIN : n > most ? -EINVAL : 0;

	memcpy(before, wqe, m->stride);
	got = inlay_post_recv(&m->rq, sge, n);
	assert_int_equal(got, want);
	if (got) {
		assert_memory_equal(&m->rq, &rq, sizeof(rq));
		assert_memory_equal(wqe, before, m->stride);
		return;
	}
	recv_is(m, index, sge, n);
	m->is[index] = 1;
	m->posted++;
}

static void recv_ring(struct receiver *m)
{
	inlay_rq_ring(&m->rq);
	assert_int_equal(m->dbrec[0], htobe32(m->posted & 0xffff));
	assert_int_equal(m->dbrec[1], 0x5a5a5a5a);
}

/* A completion of any entry, mostly of one that is out. What cannot be changes nothing: not posted, for the second time */
static void recv_done(struct receiver *m)
{
	uint32_t index = m->kind == IN_ORDER ? m->oldest % m->cnt : rnd_below(m->cnt), named, i;
	const struct inlay_rq rq = m->rq;
	struct mlx5_cqe64 cqe;
	bool out;
	int got;

	for (i = rnd_below(4) ? 0 : m->cnt; i < m->cnt && !m->is[index]; i++)
		index = (index + 1) % m->cnt;
	if (m->kind == ANY_ORDER && index == m->oldest % m->cnt && rnd_below(20))
		return; /* the oldest takes its time */
	named = rnd_below(8) ? index : index + m->cnt * rnd_below(65536 / m->cnt);
	out = m->is[index];
	cqe = cqe_of(rnd_below(2) ? MLX5_CQE_RESP_SEND : MLX5_CQE_RESP_ERR, 1 + rnd_below(5), named);
	got = m->kind == IN_ORDER ? inlay_rq_release(&m->rq, &cqe) : inlay_rq_release_ooo(&m->rq, &cqe);
	if (!out) {
		assert_int_equal(got, -EPROTO);
		assert_memory_equal(&m->rq, &rq, sizeof(rq));
		return;
	}
	assert_int_equal(got, 1);
	m->is[index] = 0;
	m->came++;
	while (m->oldest != m->posted && !m->is[m->oldest % m->cnt])
		m->oldest++;
}

/* Of a plain queue: several at once, more than is outstanding, and the oldest anew, as it was but for the address */
static void recv_in_order(struct receiver *m)
{
	uint32_t n = m->posted - m->oldest, k = rnd_below(n + 1), i;
	const struct inlay_rq was = m->rq;
	uint8_t before[1024], *wqe = entry(m, m->posted % m->cnt);
	uint64_t addr = rnd();

	i = m->posted + 1 + (rnd_below(2) ? rnd_below(9) : rnd_below(0x80000000));
	assert_int_equal(inlay_rq_release_until(&m->rq, rnd_below(2) ? i : m->oldest - (i - m->posted)), -EPROTO);
	assert_memory_equal(&m->rq, &was, sizeof(was));
	if (n && rnd_below(2)) {
		memcpy(before, wqe, m->stride);
		inlay_rq_recycle(&m->rq, addr);
		addr = htobe64(addr);
		memcpy(before + 8, &addr, 8);
		assert_memory_equal(wqe, before, m->stride);
		m->is[m->oldest++ % m->cnt] = 0;
		m->is[m->posted++ % m->cnt] = 1;
		return;
	}
	assert_int_equal(inlay_rq_release_until(&m->rq, m->oldest + k), k);
	for (; k; k--)
		m->is[m->oldest++ % m->cnt] = 0;
}

static void receiver_open(struct receiver *m, uint32_t kind, uint32_t cnt, uint32_t stride, uint32_t preset)
{
	struct ibv_sge sge = {0, 0x01020304, 0xa5b6c7d8};

	memset(m, 0, sizeof(*m));
	m->kind = kind;
	m->cnt = cnt;
	m->stride = stride;
	m->buf = (uint8_t *)pages((size_t)cnt * stride);
	m->is = (uint8_t *)pages(cnt);
	m->dbrec[1] = 0x5a5a5a5a;
	fill(m->buf, (size_t)cnt * stride, preset);
	must(inlay_rq_init(&m->rq, m->buf, cnt, stride, m->dbrec));
	inlay_rq_prepare(&m->rq, sge.length, sge.lkey);
	if (kind == ANY_ORDER)
		inlay_rq_set_ooo(&m->rq);
	assert_int_equal(inlay_rq_size(&m->rq), kind == ANY_ORDER ? cnt / 2 : cnt);
	for (uint32_t i = 0; i < cnt; i++)
		recv_is(m, i, &sge, 1);
	/* As if so many had come and gone */
	m->posted = m->oldest = m->came = preset;
	m->rq.pi += preset;
	m->rq.limit += preset;
}

/* Reset, it is the queue that was made, and nothing is outstanding: twice round, one at a time */
static void receiver_close(struct receiver *m)
{
	inlay_rq_reset(&m->rq);
	assert_int_equal(m->dbrec[0], 0);
	assert_int_equal(inlay_rq_pending(&m->rq), 0);
	assert_int_equal(inlay_rq_room(&m->rq), m->kind == IN_ORDER ? m->cnt : m->cnt / 2);
	for (uint32_t i = 0; i < 2 * m->cnt; i++) {
		struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_RESP_SEND, 1, i);

		must(inlay_post_recv(&m->rq, NULL, 0));
		assert_int_equal(m->kind == IN_ORDER ? inlay_rq_release(&m->rq, &cqe) : inlay_rq_release_ooo(&m->rq, &cqe), 1);
	}
	free(m->buf);
	free(m->is);
}

/* Random posts, rings, completions. Returns how often there was less room than came back */
static uint32_t recv_model(uint32_t kind, uint32_t cnt, uint32_t stride, uint32_t preset, uint32_t steps)
{
	static struct receiver model, *const m = &model;
	uint32_t s, waited = 0;

	receiver_open(m, kind, cnt, stride, preset);
	for (s = 0; s < steps; s++) {
		bool filling = (s / (2 * cnt + 5)) % 2 == 0;

		if (rnd_below(8) < (filling ? 5 : 1))
			recv_post(m);
		else if (rnd_below(4) == 0)
			recv_ring(m);
		else if (kind == IN_ORDER && rnd_below(2))
			recv_in_order(m);
		else
			recv_done(m);
		assert_int_equal(inlay_rq_room(&m->rq), recv_room(m));
		if (kind == IN_ORDER || m->came == m->oldest)
			assert_int_equal(inlay_rq_pending(&m->rq), m->posted - (kind == IN_ORDER ? m->oldest : m->came));
		waited += kind == ANY_ORDER && recv_room(m) < cnt / 2 - (m->posted - m->came);
	}
	receiver_close(m);
	return waited;
}

TEST(receives)
{
	uint32_t cnt, stride, waited = 0;

	for (cnt = 1; cnt <= 32768; cnt *= 4)
		for (stride = 16; stride <= 1024; stride *= 4)
			recv_model(IN_ORDER, cnt, stride, 0xffff0000 - 2 * cnt, 10000 + 4 * cnt); /* past 2^16 */
	for (cnt = 2; cnt <= 256; cnt *= 2)
		waited += recv_model(ANY_ORDER, cnt, 32, 0xffffffff - 4 * cnt + 1, 20000); /* past 2^32 */
	assert_true(waited > 1000);
}

/*
 * "Releases trust any CQE": of each opcode, of the queue's own QP and of another, to each release. Whatever is refused changes nothing.
 * Only INLAY_CHECKED looks at the QPN. A receive queue that does not know its own takes any, an SRQ always
 */
TEST(release_of_another)
{
	static const uint8_t good[] = {MLX5_CQE_RESP_WR_IMM, MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM, MLX5_CQE_RESP_SEND_INV, MLX5_CQE_RESP_ERR};
	static const uint8_t bad[] = {MLX5_CQE_REQ, MLX5_CQE_REQ_ERR, MLX5_CQE_SIG_ERR, MLX5_CQE_INVALID};
	enum { OF_SQ, OF_RQ, NAMELESS, OOO, OF_SRQ, RECYCLE, RECYCLE_FULL, KINDS };
	uint8_t ring[4 * 64] __attribute__((aligned(64)));
	struct ibv_sge sge = {0x1000, 64, 5};
	uint32_t dbrec[2], turn;

	for (turn = 0; turn < KINDS * (ARRAY(good) + ARRAY(bad)) * 2; turn++) {
		const uint32_t kind = turn / 2 % KINDS, other = turn % 2, op = turn / 2 / KINDS;
		const uint8_t opcode = op < ARRAY(good) ? good[op] : bad[op - ARRAY(good)];
		struct mlx5_cqe64 cqe = cqe_of(opcode, QPN + other, 0);
		bool send = opcode == MLX5_CQE_REQ || opcode == MLX5_CQE_REQ_ERR;
		bool fits = kind == OF_SQ ? send : op < ARRAY(good);
		struct raw *r = raw_make(4, 16, INLAY_UAR_SERIAL);
		struct inlay_srq srq;
		uint32_t pending, left;
		struct inlay_rq rq;
		int got, want;

		must(inlay_post(&r->sq, MLX5_OPCODE_NOP, NULL, 0));
		must(inlay_rq_init(&rq, ring, 4, 64, dbrec));
		if (kind != NAMELESS)
			inlay_rq_set_qpn_(&rq, QPN);
		if (kind == OOO)
			inlay_rq_set_ooo(&rq);
		must(inlay_post_recv(&rq, &sge, 1));
		must(inlay_srq_init(&srq, ring, 2, 32, dbrec));
		must(inlay_post_srq_recv(&srq, &sge, 1, 0));
		if (kind == RECYCLE_FULL)
			must(inlay_post_srq_recv(&srq, &sge, 1, 0));
		want = !fits || (INLAY_CHECKED && other && kind != NAMELESS && kind < OF_SRQ) ? -EPROTO : kind < OF_SRQ;
		got = kind == OF_SQ ? inlay_sq_release(&r->sq, &cqe) : kind == OOO ? inlay_rq_release_ooo(&rq, &cqe) :
		      kind < OOO ? inlay_rq_release(&rq, &cqe) : kind == OF_SRQ ? inlay_srq_release(&srq, &cqe) : inlay_srq_recycle(&srq, &cqe);
		left = want >= 0 && kind < RECYCLE ? 0 : 1 + (kind == RECYCLE_FULL);
		pending = kind == OF_SQ ? inlay_sq_pending(&r->sq) : kind <= OOO ? inlay_rq_pending(&rq) : 2 - inlay_srq_room(&srq);
		if (got != want || pending != left)
			fail_msg("release %u of opcode %u, other %u: %d, pending %u", kind, opcode, other, got, pending);
		raw_free(r);
	}
}

/* The consumer index that the arm word speaks of is in the record, too. Without a page there is no arming */
TEST(arm)
{
	struct rawcq *c = rawcq_make(8);
	uint32_t n, word;

	for (n = 0; n < 18; n++) {
		word = (n / 2 & 3) << 28 | (n & 1) << 24 | (n + 1);
		produce(c, n);
		inlay_cq_advance_quiet(&c->cq, 1);
		memset(c->uar, 0xee, sizeof(c->uar));
		must(inlay_cq_arm(&c->cq, (int)(n & 1)));
		assert_int_equal(c->dbrec[0], htobe32(n + 1));
		assert_int_equal(c->dbrec[1], htobe32(word));
		assert_int_equal(c->uar[8], htobe32(word));
		assert_int_equal(c->uar[9], htobe32(0x123456));
		assert_true(all_bytes(c->uar, 0x20, 0xee) && all_bytes(c->uar + 10, sizeof(c->uar) - 0x28, 0xee));
		if (n & 1)
			inlay_cq_event(&c->cq);
	}
	must(inlay_cq_init(&c->cq, c->cqes, 8, 64, c->dbrec, NULL, 1));
	c->dbrec[1] = 2;
	assert_int_equal(inlay_cq_arm(&c->cq, 0), -ENOTSUP);
	assert_int_equal(c->dbrec[1], 2);
	free(c);
}

/* A reader that frees nothing, and a device that goes round: CQE n is in slot n % size with lap n / size, of one bit or eight */
static void lapped_by(uint32_t size, bool enhanced, uint32_t start)
{
	const uint32_t laps = enhanced ? 256 : 2;
	struct rawcq *c = rawcq_make(size);
	uint32_t n, k, wrong = 0, nothing = 0;

	if (enhanced)
		must(inlay_cq_set_compression(&c->cq, INLAY_MINI_HASH, 1));
	for (n = 0; n < start + laps * size + 2; n++) {
		const uint32_t last = n - (n - start) % size; /* of the slot that is read */
		const struct mlx5_cqe64 *cqe;

		produce(c, n);
		cqe = inlay_cq_peek(&c->cq);
		for (k = 1; k <= size && n < start + size; k++)
			assert_int_equal(inlay_cq_holds(&c->cq, k), k <= (n < start ? 1 : n - start + 1));
		if (n < start) {
			assert_non_null(cqe);
			inlay_cq_advance(&c->cq, 1);
		} else if ((last - start) / size % laps) {
			assert_null(cqe);
			assert_int_equal(inlay_cq_count_(&c->cq, 4), 0);
			nothing++;
		} else {
			assert_int_not_equal(inlay_cq_count_(&c->cq, 4), 0);
			assert_memory_equal(&cqe->byte_cnt, &last, 4);
			wrong += last != start;
		}
	}
	/* Nothing for a lap, or for 255, and then one that is too young */
	assert_int_equal(nothing, (laps - 1) * size);
	assert_int_equal(wrong, 2);
	free(c);
}

TEST(lapped)
{
	for (uint32_t size = 2; size <= 64; size *= 2)
		for (uint32_t i = 0; i < 3 * size; i++) {
			lapped_by(size, false, i);
			if (i % 16 < 3)
				lapped_by(size, true, i);
		}
}

/* CQEs that came before the take-over are kept, slots without one are not taken for CQEs */
TEST(arrived)
{
	for (uint32_t n = 0; n <= 8; n++) {
		struct rawcq *c = rawcq_make(8);

		for (uint32_t i = 0; i < n; i++)
			produce(c, i);
		must(inlay_cq_init(&c->cq, c->cqes, 8, 64, c->dbrec, NULL, 1));
		for (uint32_t i = 0; i < n; i++) {
			assert_ptr_equal(inlay_cq_peek(&c->cq), &c->cqes[i]);
			inlay_cq_advance(&c->cq, 1);
		}
		assert_null(inlay_cq_peek(&c->cq));
		free(c);
	}
}

int main(void)
{
	return run_all(open_nothing, NULL);
}
