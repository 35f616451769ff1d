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

/* As if that many WQEBBs had been posted and completed before */
static void raw_preset(struct raw *r, uint32_t pi)
{
	r->sq.pi = pi;
	r->sq.unrung = 0;
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

static uint64_t be64_at(const struct raw *r, uint32_t index, uint32_t offset)
{
	return (uint64_t)be32_at(r, index, offset) << 32 | be32_at(r, index, offset + 4);
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

static struct rawcq *rawcq_make(uint32_t cnt, uint32_t size)
{
	struct rawcq *c = (struct rawcq *)pages(sizeof(*c));
	uint32_t i;

	c->cnt = cnt;
	c->size = size;
	c->buf = (uint8_t *)pages((size_t)cnt * size);
	/* As a new CQ comes from libmlx5: all CQEs invalid, owner bit 0 */
	for (i = 0; i < cnt; i++)
		c->buf[(size_t)i * size + size - 1] = 0xf0;
	must(inlay_cq_init(&c->cq, c->buf, cnt, size, c->dbrec, c->uar, 0x123456));
	return c;
}

static void rawcq_free(struct rawcq *c)
{
	free(c->buf);
	free(c);
}

/* The device's part: CQE number pi, its body first and its owner bit last */
static void produce(struct rawcq *c, uint32_t qpn, uint32_t tag)
{
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)(c->buf + (size_t)(c->pi % c->cnt) * c->size + c->size - 64);

	assert_true(c->pi - c->ci < c->cnt);
	if (c->size == 128)
		fill(cqe - 1, 64, tag);
	fill(cqe, 32, tag);
	cqe->byte_cnt = htobe32(tag);
	cqe->sop_drop_qpn = htobe32(tag << 24 | qpn);
	cqe->wqe_counter = htobe16((uint16_t)tag);
	cqe->op_own = (uint8_t)(MLX5_CQE_RESP_SEND << 4 | (c->pi / c->cnt & 1));
	c->pi++;
}

/* ---- arguments ---- */

static void uar_arguments(void **state)
{
	static uint8_t mem[1024] __attribute__((aligned(1024)));
	struct inlay_uar uar;
	uint32_t mode, size;

	(void)state;
	for (mode = INLAY_UAR_DOORBELL; mode <= INLAY_UAR_LOCKED; mode++) {
		must(inlay_uar_init(&uar, mem, 0, mode));
		must(inlay_uar_init(&uar, mem + 8, 0, mode));
		for (size = 64; size <= 512; size *= 2)
			must(inlay_uar_init(&uar, mem, size, mode));
		assert_int_equal(inlay_uar_init(&uar, NULL, 256, mode), -EINVAL);
		assert_int_equal(inlay_uar_init(&uar, mem + 4, 0, mode), -EINVAL);
		assert_int_equal(inlay_uar_init(&uar, mem + 256, 256, mode), -EINVAL);
		assert_int_equal(inlay_uar_init(&uar, mem, 32, mode), -EINVAL);
		assert_int_equal(inlay_uar_init(&uar, mem, 96, mode), -EINVAL);
		assert_int_equal(inlay_uar_init(&uar, mem, 255, mode), -EINVAL);
	}
	assert_int_equal(inlay_uar_init(&uar, mem, 256, INLAY_UAR_LOCKED + 1), -EINVAL);
	assert_int_equal(inlay_uar_init(&uar, mem, 256, 0xffffffff), -EINVAL);
}

static void sq_arguments(void **state)
{
	static const uint32_t cnt_bad[] = {0, 3, 5, 63, 65536, 0x80000000, 0xffffffff}, ds_bad[] = {0, 64, 0xffffffff};
	static const uint32_t qpn_bad[] = {0x1000000, 0xffffffff};
	uint8_t mem[2 * REG] __attribute__((aligned(2 * REG))), *buf = (uint8_t *)pages(32768 * 64);
	struct inlay_uar uar, uar_was, none;
	struct inlay_sq sq, was;
	uint32_t dbrec[2], cnt;
	size_t i;

	(void)state;
	memset(&none, 0, sizeof(none));
	must(inlay_uar_init(&uar, mem, REG, INLAY_UAR_SERIAL));
	for (cnt = 1; cnt <= 32768; cnt *= 2) {
		must(inlay_sq_init(&sq, buf, cnt, dbrec, 0xffffff, 63, &uar));
		assert_int_equal(inlay_sq_room(&sq), cnt);
		assert_int_equal(inlay_sq_pending(&sq), 0);
		inlay_sq_fini(&sq);
	}
	memset(&sq, 0x5a, sizeof(sq));
	was = sq;
	uar_was = uar;
	for (i = 0; i < ARRAY(cnt_bad); i++)
		assert_int_equal(inlay_sq_init(&sq, buf, cnt_bad[i], dbrec, 1, 16, &uar), -EINVAL);
	for (i = 0; i < ARRAY(ds_bad); i++)
		assert_int_equal(inlay_sq_init(&sq, buf, 64, dbrec, 1, ds_bad[i], &uar), -EINVAL);
	for (i = 0; i < ARRAY(qpn_bad); i++)
		assert_int_equal(inlay_sq_init(&sq, buf, 64, dbrec, qpn_bad[i], 16, &uar), -EINVAL);
	assert_int_equal(inlay_sq_init(&sq, NULL, 64, dbrec, 1, 16, &uar), -EINVAL);
	assert_int_equal(inlay_sq_init(&sq, buf, 64, NULL, 1, 16, &uar), -EINVAL); /* no send record */
	assert_int_equal(inlay_sq_init(&sq, buf + 32, 64, dbrec, 1, 16, &uar), -EINVAL);
	assert_int_equal(inlay_sq_init(&sq, buf, 64, dbrec, 1, 16, NULL), -EINVAL);
	assert_int_equal(inlay_sq_init(&sq, buf, 64, dbrec, 1, 16, &none), -EINVAL);
	uar.abi++; /* another version's */
	assert_int_equal(inlay_sq_init(&sq, buf, 64, dbrec, 1, 16, &uar), -EPROTO);
	uar.abi--;
	assert_memory_equal(&sq, &was, sizeof(sq));
	assert_memory_equal(&uar, &uar_was, sizeof(uar));
	free(buf);
}

/* Whatever its mode, a register takes any number of queues, and counts them */
static void uar_owners(void **state)
{
	uint8_t mem[2 * REG] __attribute__((aligned(2 * REG))), buf[256] __attribute__((aligned(64)));
	struct inlay_uar uar;
	struct inlay_sq sq[5];
	uint32_t dbrec[2], mode, i;

	(void)state;
	for (mode = INLAY_UAR_DOORBELL; mode <= INLAY_UAR_LOCKED; mode++) {
		must(inlay_uar_init(&uar, mem, REG, mode));
		for (i = 0; i < 5; i++) {
			must(inlay_sq_init(&sq[i], buf, 4, dbrec, i, 16, &uar));
			assert_int_equal(uar.queues, i + 1);
			assert_int_equal(inlay_sq_qpn(&sq[i]), i);
		}
		for (i = 5; i--;) {
			inlay_sq_fini(&sq[i]);
			inlay_sq_fini(&sq[i]); /* twice does no harm */
			assert_int_equal(uar.queues, i);
		}
	}
}

static void rq_arguments(void **state)
{
	static const uint32_t cnt_bad[] = {0, 3, 33, 65536, 0xffffffff}, stride_bad[] = {0, 8, 24, 48, 2048, 0xffffffff};
	uint8_t *buf = (uint8_t *)pages(4096);
	struct inlay_rq rq;
	uint32_t dbrec[2], n;
	size_t i;

	(void)state;
	for (n = 1; n <= 32768; n *= 2)
		must(inlay_rq_init(&rq, buf, n, 64, dbrec));
	for (n = 16; n <= 1024; n *= 2)
		must(inlay_rq_init(&rq, buf, 4, n, dbrec));
	for (i = 0; i < ARRAY(cnt_bad); i++)
		assert_int_equal(inlay_rq_init(&rq, buf, cnt_bad[i], 64, dbrec), -EINVAL);
	for (i = 0; i < ARRAY(stride_bad); i++)
		assert_int_equal(inlay_rq_init(&rq, buf, 4, stride_bad[i], dbrec), -EINVAL);
	assert_int_equal(inlay_rq_init(&rq, NULL, 4, 64, dbrec), -EINVAL);
	assert_int_equal(inlay_rq_init(&rq, buf + 8, 4, 64, dbrec), -EINVAL);
	assert_int_equal(inlay_rq_init(&rq, buf, 4, 64, NULL), -EINVAL);
	free(buf);
}

static void cq_arguments(void **state)
{
	static const uint32_t cnt_bad[] = {0, 3, 100, (1u << 22) + 1, 1u << 23, 0xffffffff}, size_bad[] = {0, 32, 63, 65, 96, 256};
	uint8_t *buf = (uint8_t *)pages(4096);
	struct inlay_cq cq;
	uint32_t dbrec[2];
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY(cnt_bad); i++)
		assert_int_equal(inlay_cq_init(&cq, buf, cnt_bad[i], 64, dbrec, NULL, 1), -EINVAL);
	for (i = 0; i < ARRAY(size_bad); i++)
		assert_int_equal(inlay_cq_init(&cq, buf, 8, size_bad[i], dbrec, NULL, 1), -EINVAL);
	assert_int_equal(inlay_cq_init(&cq, NULL, 8, 64, dbrec, NULL, 1), -EINVAL);
	assert_int_equal(inlay_cq_init(&cq, buf + 32, 8, 64, dbrec, NULL, 1), -EINVAL);
	assert_int_equal(inlay_cq_init(&cq, buf, 8, 64, NULL, NULL, 1), -EINVAL);
	assert_int_equal(inlay_cq_init(&cq, buf, 8, 64, dbrec, NULL, 0x1000000), -EINVAL);
	assert_true(all_bytes(buf, 4096, 0));
	must(inlay_cq_init(&cq, buf, 8, 64, dbrec, NULL, 0xffffff));
	free(buf);
}

/* ---- what a post writes ---- */

/* Posts one thing of many, at random; *ds becomes what the WQE must be long. Checks the WQE in the ring, byte for byte */
static int post_any(struct raw *r, uint32_t max_ds, uint32_t flags, uint32_t *ds)
{
	static uint8_t payload[2048];
	uint32_t index = r->sq.pi, opcode, num = rnd_below(rnd_below(4) ? 6 : 64), i, total = 0, at, imm = (uint32_t)rnd(), want_imm = 0;
	uint64_t raddr = rnd(), one = rnd(), two = rnd();
	uint32_t rkey = (uint32_t)rnd(), what = rnd_below(14), access = rnd_below(16), qpn = 0, key = rkey;
	bool remote = false, atomic = false, in = false, ud = false, umr = false;
	struct ibv_mw_bind_info bind;
	struct inlay_av av;
	struct ibv_mr mr;
	struct ibv_mw mw;
	struct ibv_sge sge[64] = {{0}};
	int ret;

	if (!*payload)
		fill(payload, sizeof(payload), 77);
	if (what == 9)
		num = 0;
	for (i = 0; i < num; i++) {
		sge[i].addr = rnd();
		sge[i].length = rnd_below(5) ? 1 + rnd_below(0x7fffffff) : 0;
		sge[i].lkey = (uint32_t)rnd();
	}
	if ((what < 5 || what == 10 || what == 11) && rnd_below(2)) {
		in = true;
		flags |= INLAY_INLINE;
		num = rnd_below(5);
		for (i = 0; i < num; i++) {
			sge[i].addr = (uintptr_t)payload + rnd_below(1024);
			sge[i].length = rnd_below(rnd_below(4) ? 30 : 200);
			total += sge[i].length;
		}
	}
	switch (what) {
	case 0:
		opcode = MLX5_OPCODE_SEND;
		ret = inlay_post_send(&r->sq, sge, num, flags);
		break;
	case 1:
		opcode = MLX5_OPCODE_SEND_IMM;
		want_imm = imm;
		ret = inlay_post_send_imm(&r->sq, htobe32(imm), sge, num, flags);
		break;
	case 2:
		opcode = MLX5_OPCODE_SEND_INVAL;
		want_imm = imm;
		ret = inlay_post_send_inv(&r->sq, imm, sge, num, flags);
		break;
	case 3:
		opcode = MLX5_OPCODE_RDMA_WRITE;
		remote = true;
		ret = inlay_post_write(&r->sq, raddr, rkey, sge, num, flags);
		break;
	case 4:
		opcode = MLX5_OPCODE_RDMA_WRITE_IMM;
		remote = true;
		want_imm = imm;
		ret = inlay_post_write_imm(&r->sq, raddr, rkey, htobe32(imm), sge, num, flags);
		break;
	case 5:
		opcode = MLX5_OPCODE_RDMA_READ;
		remote = true;
		ret = inlay_post_read(&r->sq, raddr, rkey, sge, num, flags);
		break;
	case 6:
		opcode = MLX5_OPCODE_ATOMIC_FA;
		remote = atomic = true;
		num = 1;
		two = 0;
		ret = inlay_post_fetch_add(&r->sq, raddr, rkey, one, sge, flags);
		sge[0].length = 8;
		break;
	case 7:
		opcode = MLX5_OPCODE_ATOMIC_CS;
		remote = atomic = true;
		num = 1;
		ret = inlay_post_cmp_swap(&r->sq, raddr, rkey, two, one, sge, flags);
		sge[0].length = 8;
		break;
	case 8: /* one SGE, a constant to the compiler */
		opcode = MLX5_OPCODE_SEND;
		num = 1;
		sge[0].addr = raddr;
		sge[0].length = rnd_below(3) ? 64 : 0;
		sge[0].lkey = rkey;
		ret = inlay_post_send(&r->sq, sge, 1, flags);
		break;
	case 10:
	case 11:
		ud = true;
		fill(&av, sizeof(av), imm);
		opcode = what == 10 ? MLX5_OPCODE_SEND : MLX5_OPCODE_SEND_IMM;
		want_imm = what == 10 ? 0 : imm;
		((uint8_t *)&av)[8] |= 0x80; /* the long form */
		ret = what == 10 ? inlay_post_ud_send(&r->sq, &av, sge, num, flags) :
				   inlay_post_ud_send_imm(&r->sq, &av, htobe32(imm), sge, num, flags);
		break;
	case 12:
		umr = true;
		opcode = MLX5_OPCODE_UMR;
		memset(&mw, 0, sizeof(mw));
		mw.rkey = want_imm = imm;
		mw.type = rnd_below(2) ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1;
		qpn = mw.type == IBV_MW_TYPE_2 ? QPN : 0;
		mr.lkey = (uint32_t)two;
		bind.mr = &mr;
		bind.addr = raddr;
		bind.length = num = rnd_below(4) ? 1 + rnd_below(0x80000000) : 0;
		bind.mw_access_flags = (access & 1 ? IBV_ACCESS_REMOTE_READ : 0) | (access & 2 ? IBV_ACCESS_REMOTE_WRITE : 0) |
				       (access & 4 ? IBV_ACCESS_REMOTE_ATOMIC : 0) | (access & 8 ? IBV_ACCESS_ZERO_BASED : 0);
		ret = inlay_post_bind_mw(&r->sq, &mw, rkey, &bind, flags);
		break;
	case 13:
		umr = true;
		opcode = MLX5_OPCODE_UMR;
		want_imm = rkey;
		qpn = QPN;
		key = num = 0;
		ret = inlay_post_local_inv(&r->sq, rkey, flags);
		break;
	default:
		opcode = MLX5_OPCODE_NOP;
		ret = inlay_post_nop(&r->sq, flags);
	}
	*ds = 1 + remote + atomic + 3 * ud;
	if (umr)
		*ds = num ? 12 : 8;
	else if (in)
		*ds += total ? (total + 4 + 15) / 16 : 0;
	else
		for (i = 0; i < num; i++)
			*ds += sge[i].length != 0;
	if (*ds > 4 && *ds > max_ds && !umr) {
		assert_int_equal(ret, -EINVAL);
		return ret;
	}
	if (ret)
		return ret;
	assert_int_equal(be32_at(r, index, 0), (index & 0xffff) << 8 | opcode);
	assert_int_equal(be32_at(r, index, 4), QPN << 8 | *ds);
	assert_int_equal(be32_at(r, index, 8), flags >> 24);
	assert_int_equal(be32_at(r, index, 12), want_imm);
	at = 16;
	if (umr) {
		const bool zero = access & 8;

		/* flags | KLMs | mask; free and rights | QPN and key | start, length; length, key and address of the memory */
		assert_int_equal(be32_at(r, index, at), num ? qpn ? 0xb0000000 : 0x90000000 : qpn ? 0x98000000 : 0x90000000);
		assert_int_equal(be32_at(r, index, at + 4), num ? 4 << 16 : 0);
		assert_true(be64_at(r, index, at + 8) == ((num ? 0x3c0041u : 0) | 0x20002000u | (qpn ? 0x4000u : 0)));
		assert_int_equal(be32_at(r, index, at + 48),
				 num ? (access & 1) << 12 | (access & 2) << 12 | (access & 4) << 12 : 0x40000000);
		assert_int_equal(be32_at(r, index, at + 52), (num && qpn ? qpn : 0xffffff) << 8 | (key & 0xff));
		assert_true(be64_at(r, index, at + 64) == (num && !zero ? raddr : 0));
		assert_true(be64_at(r, index, at + 72) == num);
		for (i = 16; i < 48; i += 8)
			assert_true(be64_at(r, index, at + i) == 0 && be64_at(r, index, at + 64 + i) == 0);
		assert_true(be64_at(r, index, at + 56) == 0);
		if (num) {
			assert_int_equal(be32_at(r, index, at + 112), num);
			assert_int_equal(be32_at(r, index, at + 116), mr.lkey);
			assert_true(be64_at(r, index, at + 120) == raddr);
			for (i = 128; i < 176; i += 8)
				assert_true(be64_at(r, index, at + i) == 0);
		}
		num = 0;
	}
	if (ud)
		for (i = 0; i < 48; i++)
			assert_int_equal(byte_at(r, index, at++), ((const uint8_t *)&av)[i]);
	if (remote) {
		assert_true(be64_at(r, index, at) == raddr);
		assert_int_equal(be32_at(r, index, at + 8), rkey);
		assert_int_equal(be32_at(r, index, at + 12), 0);
		at += 16;
	}
	if (atomic) {
		assert_true(be64_at(r, index, at) == one);
		assert_true(be64_at(r, index, at + 8) == two);
		at += 16;
	}
	if (in && total) {
		uint32_t k;

		assert_int_equal(be32_at(r, index, at), 0x80000000 | total);
		at += 4;
		for (i = 0; i < num; i++)
			for (k = 0; k < sge[i].length; k++)
				assert_int_equal(byte_at(r, index, at++), ((const uint8_t *)(uintptr_t)sge[i].addr)[k]);
	}
	for (i = 0; i < num && !in; i++) {
		if (!sge[i].length)
			continue;
		assert_int_equal(be32_at(r, index, at), sge[i].length);
		assert_int_equal(be32_at(r, index, at + 4), sge[i].lkey);
		assert_true(be64_at(r, index, at + 8) == sge[i].addr);
		at += 16;
	}
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
	uint32_t s, at, to, i;
	struct inlay_sq was;

	memset(m, 0, sizeof(*m));
	raw_preset(r, preset);
	m->pi = m->rung = preset;
	for (s = 0; s < steps; s++) {
		/* In long stretches that fill it and that drain it, so that full and empty happen in rings of any size */
		bool filling = (s / (bbs + 7)) % 2 == 0;

		was = r->sq;
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
				assert_memory_equal(&r->sq, &was, sizeof(was));
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
	for (bbs = 1; bbs <= 32768; bbs *= 2)
		for (i = 0; i < ARRAY(presets); i++)
			credit_model(bbs, presets[i], bbs < 4096 ? 50000 : 200000, 63, false);
}

static void credit_bodies(void **state)
{
	uint32_t bbs;

	(void)state;
	for (bbs = 1; bbs <= 32768; bbs *= 2) {
		credit_model(bbs, 0xfffffff0 - bbs, 20000, 63, true);
		credit_model(bbs, 0xfff0, 20000, 5 + rnd_below(20), true);
	}
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
	assert_true(!be64_at(r, 0, 40));
	raw_free(r);
}

/* A queue that is reset is the queue that was made, whatever has happened to it; only its place in the register stays */
static void resets(void **state)
{
	uint32_t mode, i, ds, lap;

	(void)state;
	for (mode = INLAY_UAR_DOORBELL; mode <= INLAY_UAR_LOCKED; mode++) {
		struct raw *r = raw_make(64, 63, mode);
		struct inlay_sq fresh = r->sq;

		for (lap = 0; lap < 200; lap++) {
			for (i = rnd_below(300); i; i--) {
				post_any(r, 63, 0, &ds);
				if (rnd_below(3) == 0)
					inlay_sq_ring(&r->sq);
			}
			assert_int_not_equal(r->uar.queues, 0);
			inlay_sq_reset(&r->sq);
			assert_int_equal(r->dbrec[1], 0);
			assert_int_equal(inlay_sq_room(&r->sq), 64);
			assert_int_equal(inlay_sq_pending(&r->sq), 0);
			assert_memory_equal(&r->sq, &fresh, sizeof(fresh));
			/* Nothing is left to ring, and the first WQE is WQE 0 again */
			memset(r->reg, 0xee, sizeof(r->reg));
			inlay_sq_ring(&r->sq);
			assert_true(all_bytes(r->reg, sizeof(r->reg), 0xee));
			must(inlay_post_nop(&r->sq, 0));
			assert_int_equal(be32_at(r, 0, 0), MLX5_OPCODE_NOP);
			inlay_sq_ring(&r->sq);
			assert_int_equal(r->dbrec[1], htobe32(1));
		}
		raw_free(r);
	}
}

/*
 * A counter outside of what is outstanding, whatever the ring holds there: the slot of an old WQE may by now be the middle of a new one,
 * and its payload is the program's. Nothing of it may pass for a length.
 */
static void release_stale(void **state)
{
	struct raw *r = raw_make(16, 63, INLAY_UAR_DOORBELL);
	uint8_t payload[256];
	struct inlay_sq was;
	uint32_t byte, back;

	(void)state;
	for (byte = 0; byte < 256; byte++) {
		struct mlx5_cqe64 cqe;
		uint32_t i;

		for (i = 0; i < 4; i++) {
			memset(payload, (int)byte, sizeof(payload));
			must(inlay_post_send_inline(&r->sq, payload, 236, 0));
		}
		/* All 16 are outstanding: the 16 before them are not, and lie in the same slots */
		for (back = 17; back <= 32; back++) {
			cqe = cqe_of(MLX5_CQE_REQ, QPN, r->sq.pi - back);
			was = r->sq;
			assert_int_equal(inlay_sq_release(&r->sq, &cqe), -EPROTO);
			assert_memory_equal(&r->sq, &was, sizeof(was));
		}
		cqe = cqe_of(MLX5_CQE_REQ, QPN, r->sq.pi - 4);
		assert_true(0 < inlay_sq_release(&r->sq, &cqe));
		assert_int_equal(inlay_sq_pending(&r->sq), 0);
	}
	raw_free(r);
}

/* A counter that was never posted, whose slot has not been written yet */
static void release_future(void **state)
{
	uint32_t posted, ahead;

	(void)state;
	for (posted = 0; posted < 8; posted++) {
		struct raw *r = raw_make(8, 16, INLAY_UAR_DOORBELL);
		struct inlay_sq was;
		uint32_t i;

		for (i = 0; i < posted; i++)
			must(inlay_post_nop(&r->sq, 0));
		was = r->sq;
		for (ahead = 0; ahead < 8 - posted; ahead++) {
			struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_REQ, QPN, posted + ahead);

			assert_int_equal(inlay_sq_release(&r->sq, &cqe), -EPROTO);
			assert_memory_equal(&r->sq, &was, sizeof(was));
		}
		raw_free(r);
	}
}

/* A full ring refuses and writes nothing, neither into the ring nor into its own state */
static void full(void **state)
{
	uint32_t bbs, i;

	(void)state;
	for (bbs = 1; bbs <= 32768; bbs *= 2) {
		struct raw *r = raw_make(bbs, 63, INLAY_UAR_SERIAL);
		uint8_t *copy = (uint8_t *)pages((size_t)bbs * 64), data[1024] = {1};
		struct ibv_sge sge[64];
		struct inlay_cursor at;
		struct inlay_sq was;
		struct mlx5_cqe64 cqe;

		for (i = 0; i < 64; i++) {
			sge[i].addr = i;
			sge[i].length = 1;
			sge[i].lkey = 3;
		}
		for (i = 0; i < bbs; i++)
			must(inlay_post_write_inline(&r->sq, i, i, data, 8, 0));
		assert_int_equal(inlay_sq_room(&r->sq), 0);
		memcpy(copy, r->buf, (size_t)bbs * 64);
		was = r->sq;
		assert_int_equal(inlay_post_write_inline(&r->sq, 1, 2, data, 8, 0), -EAGAIN);
		assert_int_equal(inlay_post_nop(&r->sq, 0), -EAGAIN);
		assert_int_equal(inlay_post_send(&r->sq, sge, 3, 0), -EAGAIN);
		assert_int_equal(inlay_post_fetch_add(&r->sq, 0, 0, 1, sge, 0), -EAGAIN);
		assert_int_equal(inlay_post_cmp_swap(&r->sq, 0, 0, 1, 2, sge, 0), -EAGAIN);
		assert_int_equal(inlay_post_read(&r->sq, 0, 0, sge, 1, 0), -EAGAIN);
		assert_int_equal(inlay_post_send(&r->sq, sge, 62, 0), bbs < 16 ? -E2BIG : -EAGAIN);
		assert_int_equal(inlay_post_send(&r->sq, sge, 63, 0), -EINVAL);
		assert_int_equal(inlay_post_send(&r->sq, sge, 64, 0), -EINVAL);
		assert_int_equal(inlay_post_send_inline(&r->sq, data, 988, 0), bbs < 16 ? -E2BIG : -EAGAIN);
		assert_int_equal(inlay_post_send_inline(&r->sq, data, 989, 0), -EINVAL);
		assert_int_equal(inlay_post_send_inline(&r->sq, data, 0xffffffff, 0), -EINVAL);
		for (i = 0; i < 64; i++)
			sge[i].length = 0x40000001; /* their sum passes 2^32 */
		assert_int_equal(inlay_post_send(&r->sq, sge, 4, INLAY_INLINE), -EINVAL);
		assert_int_equal(inlay_post_send(&r->sq, sge, 64, INLAY_INLINE), -EINVAL);
		for (i = 1; i <= 16; i++) {
			assert_int_equal(inlay_sq_begin(&r->sq, i, &at), i > bbs ? -E2BIG : -EAGAIN);
			assert_int_equal(inlay_sq_begin_ds(&r->sq, 4 * i - 1, &at), i > bbs ? -E2BIG : -EAGAIN);
		}
		assert_memory_equal(&r->sq, &was, sizeof(was));
		assert_memory_equal(r->buf, copy, (size_t)bbs * 64);
		inlay_sq_ring(&r->sq);
		/* One comes back, one goes in */
		cqe = cqe_of(MLX5_CQE_REQ, QPN, 0);
		assert_true(0 < inlay_sq_release(&r->sq, &cqe));
		assert_int_equal(inlay_sq_room(&r->sq), 1);
		must(inlay_post_nop(&r->sq, 0));
		assert_int_equal(inlay_post_nop(&r->sq, 0), -EAGAIN);
		free(copy);
		raw_free(r);
	}
}

/* The QP's longest WQE is the limit, one WQEBB excepted */
static void longest(void **state)
{
	uint8_t data[1024] = {0};
	struct ibv_sge sge[64];
	uint32_t max_ds, n;

	(void)state;
	for (n = 0; n < 64; n++) {
		sge[n].addr = n;
		sge[n].length = 7;
		sge[n].lkey = 1;
	}
	for (max_ds = 1; max_ds <= 63; max_ds++) {
		struct raw *r = raw_make(32768, max_ds, INLAY_UAR_DOORBELL);
		uint32_t most = max_ds > 4 ? max_ds : 4;

		for (n = 0; n <= 64; n++) {
			assert_int_equal(inlay_post_send(&r->sq, sge, n, 0), 1 + n <= most ? 0 : -EINVAL);
			assert_int_equal(inlay_post_write(&r->sq, 0, 0, sge, n, 0), 2 + n <= most ? 0 : -EINVAL);
			assert_int_equal(inlay_post_read(&r->sq, 0, 0, sge, n, 0), 2 + n <= most ? 0 : -EINVAL);
		}
		for (n = 0; n <= 1020; n++) {
			uint32_t ds = n ? (n + 4 + 15) / 16 : 0;

			assert_int_equal(inlay_post_send_inline(&r->sq, data, n, 0), 1 + ds <= most ? 0 : -EINVAL);
			assert_int_equal(inlay_post_write_inline(&r->sq, 0, 0, data, n, 0), 2 + ds <= most ? 0 : -EINVAL);
		}
		raw_free(r);
	}
}

/* ---- the register ---- */

enum { NOTHING, DOORBELL, COPY };

/* Which half of a register was written, and what: fails when anything else was */
static void reg_is(struct raw *r, uint32_t half, int what, uint32_t index, uint32_t ds)
{
	uint32_t bytes = what == NOTHING ? 0 : what == DOORBELL ? 8 : (ds + 3) / 4 * 64, i;

	for (i = 0; i < bytes; i++)
		assert_int_equal(r->reg[half * REG + i], byte_at(r, index, i));
	assert_true(all_bytes(r->reg + half * REG + bytes, REG - bytes, 0xee));
	assert_true(all_bytes(r->reg + !half * REG, REG, 0xee));
	memset(r->reg, 0xee, sizeof(r->reg));
}

static void post_ds(struct raw *r, uint32_t ds)
{
	struct inlay_cursor at;

	must(inlay_sq_begin(&r->sq, (ds + 3) / 4, &at));
	while (at.ds < ds)
		at = inlay_seg_data(at, rnd(), 1 + rnd_below(100), 3);
	inlay_sq_commit(&r->sq, at, MLX5_OPCODE_SEND, 0, INLAY_SIGNALED, 0);
}

static void drain(struct raw *r, uint32_t index)
{
	struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_REQ, QPN, index);

	assert_true(0 < inlay_sq_release(&r->sq, &cqe));
	assert_int_equal(inlay_sq_pending(&r->sq), 0);
}

/* Every WQE length at every place of a small ring: what is copied, what only rings, and into which half */
static void doorbells(uint32_t mode)
{
	struct raw *r = raw_make(16, 63, mode);
	uint32_t half = 0, ds, i, index, first;

	memset(r->reg, 0xee, sizeof(r->reg));
	raw_preset(r, 0xffffff00);
	inlay_sq_ring(&r->sq); /* nothing was posted */
	reg_is(r, 0, NOTHING, 0, 0);
	assert_int_equal(r->dbrec[1], 0);
	for (ds = 1; ds <= 63; ds++)
		for (i = 0; i < 32; i++) {
			int what = mode != INLAY_UAR_DOORBELL && ds > 1 && ds <= REG / 16 ? COPY : DOORBELL;

			/* One: copied if it fits */
			index = r->sq.pi;
			post_ds(r, ds);
			inlay_sq_ring(&r->sq);
			assert_int_equal(r->dbrec[1], htobe32(r->sq.pi & 0xffff));
			assert_int_equal(r->dbrec[0], 0);
			reg_is(r, half, what, index, ds);
			half ^= mode != INLAY_UAR_DOORBELL;
			inlay_sq_ring(&r->sq); /* and once only */
			reg_is(r, 0, NOTHING, 0, 0);
			drain(r, index);

			/* One, with nothing but the doorbell */
			index = r->sq.pi;
			post_ds(r, ds);
			inlay_sq_ring_doorbell(&r->sq);
			assert_int_equal(r->dbrec[1], htobe32(r->sq.pi & 0xffff));
			reg_is(r, half, DOORBELL, index, ds);
			half ^= mode != INLAY_UAR_DOORBELL;
			inlay_sq_ring(&r->sq);
			reg_is(r, 0, NOTHING, 0, 0);
			drain(r, index);

			/* Several: the doorbell names the last one */
			first = r->sq.pi;
			post_ds(r, 1 + rnd_below(8));
			if (inlay_sq_room(&r->sq) < (ds + 3) / 4) {
				inlay_sq_ring_doorbell(&r->sq);
				half ^= mode != INLAY_UAR_DOORBELL;
				memset(r->reg, 0xee, sizeof(r->reg));
				drain(r, first);
				continue;
			}
			index = r->sq.pi;
			post_ds(r, ds);
			inlay_sq_ring(&r->sq);
			assert_int_equal(r->dbrec[1], htobe32(r->sq.pi & 0xffff));
			reg_is(r, half, DOORBELL, index, ds);
			half ^= mode != INLAY_UAR_DOORBELL;
			drain(r, index);
		}
	raw_free(r);
}

static void doorbells_shared(void **state)
{
	(void)state;
	doorbells(INLAY_UAR_DOORBELL);
}

static void doorbells_serial(void **state)
{
	(void)state;
	doorbells(INLAY_UAR_SERIAL);
}

static void doorbells_locked(void **state)
{
	(void)state;
	doorbells(INLAY_UAR_LOCKED);
}

/* A page without BlueFlame: 8 bytes whatever the mode, always at the same place */
static void doorbells_no_bf(void **state)
{
	uint8_t *buf = (uint8_t *)pages(16 * 64), data[8] = {5};
	uint64_t reg[2];
	uint32_t dbrec[2], mode, i;
	struct inlay_uar uar;
	struct inlay_sq sq;

	(void)state;
	for (mode = 0; mode <= INLAY_UAR_LOCKED; mode++) {
		must(inlay_uar_init(&uar, &reg[0], 0, mode));
		must(inlay_sq_init(&sq, buf, 16, dbrec, QPN, 16, &uar));
		for (i = 0; i < 4; i++) {
			reg[0] = reg[1] = 0xeeeeeeeeeeeeeeee;
			must(inlay_post_send_inline(&sq, data, 8, 0));
			if (i & 1)
				inlay_sq_ring(&sq);
			else
				inlay_sq_ring_doorbell(&sq);
			assert_memory_equal(&reg[0], buf + i * 64, 8);
			assert_true(reg[1] == 0xeeeeeeeeeeeeeeee);
			assert_int_equal(dbrec[1], htobe32(i + 1));
		}
	}
	free(buf);
}

/* Queues that follow each other on a register, or share it under the lock, never write the same half twice in a row */
static void halves(void **state)
{
	uint8_t reg[2 * REG] __attribute__((aligned(2 * REG))), *buf = (uint8_t *)pages(2 * 64 * 64);
	uint32_t dbrec[2][2], i, half = 0, mode;
	struct inlay_uar uar;
	struct inlay_sq sq[2];

	(void)state;
	for (mode = INLAY_UAR_SERIAL; mode <= INLAY_UAR_LOCKED; mode++, half = 0) {
		must(inlay_uar_init(&uar, reg, REG, mode));
		for (i = 0; i < 2; i++)
			must(inlay_sq_init(&sq[i], buf + i * 64 * 64, 64, dbrec[i], i, 16, &uar));
		for (i = 0; i < 64; i++, half ^= 1) {
			struct inlay_sq *one = &sq[rnd_below(2)];

			memset(reg, 0xee, sizeof(reg));
			must(inlay_post_send_inline(one, "abcd", 4, 0));
			inlay_sq_ring(one);
			assert_true(all_bytes(reg + !half * REG, REG, 0xee));
			assert_memory_equal(reg + half * REG, one->buf + (one->pi - 1) * 64, 64);
		}
	}
	half = 0;
	must(inlay_uar_init(&uar, reg, REG, INLAY_UAR_SERIAL));
	for (i = 0; i < 64; i++, half ^= 1) {
		memset(reg, 0xee, sizeof(reg));
		must(inlay_sq_init(&sq[0], buf, 64, dbrec[0], 1, 16, &uar));
		must(inlay_post_send_inline(&sq[0], "abcd", 4, 0));
		inlay_sq_ring(&sq[0]);
		assert_true(all_bytes(reg + !half * REG, REG, 0xee));
		assert_memory_equal(reg + half * REG, buf, 64);
		inlay_sq_fini(&sq[0]);
	}
	free(buf);
}

/* Every operation */
#define OPS 16u
INLAY_ALWAYS int post_op(struct inlay_sq *sq, uint32_t op, uint32_t flags)
{
	struct ibv_sge sge = {0x1000, 8, 5};
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
	case 0: return inlay_post_send(sq, &sge, 1, flags);
	case 1: return inlay_post_send_imm(sq, 1, &sge, 1, flags);
	case 2: return inlay_post_send_inv(sq, 1, &sge, 1, flags);
	case 3: return inlay_post_write(sq, 1, 1, &sge, 1, flags);
	case 4: return inlay_post_write_imm(sq, 1, 1, 1, &sge, 1, flags);
	case 5: return inlay_post_read(sq, 1, 1, &sge, 1, flags);
	case 6: return inlay_post_fetch_add(sq, 1, 1, 1, &sge, flags);
	case 7: return inlay_post_cmp_swap(sq, 1, 1, 1, 1, &sge, flags);
	case 8: return inlay_post_bind_mw(sq, &mw, 1, &bind, flags);
	case 9: return inlay_post_local_inv(sq, 1, flags);
	case 10: return inlay_post_ud_send(sq, &av, &sge, 1, flags);
	case 11: return inlay_post_ud_send_imm(sq, &av, 1, &sge, 1, flags);
	case 12: return inlay_post_ud_send_inline(sq, &av, &av, 8, flags);
	case 13: return inlay_post_send_inline(sq, &av, 8, flags);
	case 14: return inlay_post_write_inline(sq, 1, 1, &av, 8, flags);
	default: return inlay_post_nop(sq, flags);
	}
}

/* What can be seen of a ring, and what its queue thinks of it */
static void same_rings(const struct raw *a, const struct raw *b)
{
	assert_memory_equal(a->buf, b->buf, (size_t)a->bbs * 64);
	assert_memory_equal(a->reg, b->reg, sizeof(a->reg));
	assert_memory_equal(a->dbrec, b->dbrec, sizeof(a->dbrec));
	assert_int_equal(a->uar.next - a->reg, b->uar.next - b->reg);
	assert_int_equal(inlay_sq_index(&a->sq), inlay_sq_index(&b->sq));
	assert_int_equal(inlay_sq_rung(&a->sq), inlay_sq_rung(&b->sq));
	assert_int_equal(inlay_sq_pending(&a->sq), inlay_sq_pending(&b->sq));
}

/* Four rings posted to alike: commit and ring in two calls or in one, with the register's full fence or without */
struct four {
	struct raw *r[4];
	uint32_t half;
};

static void four_make(struct four *f, uint32_t mode)
{
	uint32_t i;

	for (i = 0, f->half = 0; i < 4; i++) {
		f->r[i] = raw_make(16, 63, mode | (i & 1 ? INLAY_UAR_FULL_FENCE : 0));
		assert_int_equal(f->r[i]->sq.next != NULL, mode == INLAY_UAR_SERIAL && !(i & 1));
		raw_preset(f->r[i], 0xfffffff0);
		memset(f->r[i]->reg, 0xee, sizeof(f->r[i]->reg));
	}
}

/* All four are alike, and the register holds what it must for a WQE of ds units at index */
static void four_same(struct four *f, uint32_t mode, uint32_t index, uint32_t ds)
{
	uint32_t i;

	assert_int_equal(inlay_sq_rung(&f->r[0]->sq), inlay_sq_index(&f->r[0]->sq));
	assert_int_equal(f->r[0]->dbrec[1], htobe32((uint16_t)(index + (ds + 3) / 4)));
	for (i = 1; i < 4; i++)
		same_rings(f->r[0], f->r[i]);
	for (i = 0; i < 4; i++) {
		reg_is(f->r[i], f->half, mode != INLAY_UAR_DOORBELL && ds > 1 && ds <= REG / 16 ? COPY : DOORBELL, index, ds);
		drain(f->r[i], index);
	}
	f->half ^= mode != INLAY_UAR_DOORBELL;
}

static void four_free(struct four *f)
{
	uint32_t i;

	for (i = 0; i < 4; i++)
		raw_free(f->r[i]);
}

/* Every length of WQE at every place, begun in each way, with any opcode, modifier, flags and immediate */
static void commit_rings(void **state)
{
	static const uint32_t some[] = {0, INLAY_SIGNALED, INLAY_SOLICITED | INLAY_FENCE, INLAY_SIGNALED | INLAY_FENCE_STRONG};
	uint32_t mode, ds, lap, i, n, index;
	struct four f;

	(void)state;
	for (mode = INLAY_UAR_DOORBELL; mode <= INLAY_UAR_LOCKED; mode++) {
		four_make(&f, mode);
		for (ds = 1; ds <= 63; ds++)
			for (lap = 0; lap < 48; lap++) {
				uint32_t opcode = rnd_below(256), opmod = rnd_below(256), flags = some[rnd_below(4)], imm = (uint32_t)rnd();
				uint64_t addr = rnd();

				index = inlay_sq_index(&f.r[0]->sq);
				for (i = 0; i < 4; i++) {
					struct inlay_sq *sq = &f.r[i]->sq;
					struct inlay_cursor at;

					if ((lap + i) % 3 == 0)
						must(inlay_sq_begin(sq, (ds + 3) / 4, &at));
					else if ((lap + i) % 3 == 1)
						must(inlay_sq_begin_ds(sq, ds, &at));
					else
						at = inlay_sq_begin_counted(sq, (ds + 3) / 4);
					for (n = 1; n < ds; n++)
						at = inlay_seg_data(at, addr + n, n, imm);
					if (i < 2) {
						must(inlay_sq_commit(sq, at, opcode, opmod, flags, imm));
						inlay_sq_ring(sq);
					} else {
						must(inlay_sq_commit_ring(sq, at, opcode, opmod, flags, imm));
					}
				}
				assert_int_equal(be32_at(f.r[3], index, 0), opmod << 24 | (index & 0xffff) << 8 | opcode);
				assert_int_equal(be32_at(f.r[3], index, 8), flags >> 24);
				four_same(&f, mode, index, ds);
			}
		four_free(&f);
	}
}

/* A commit that rings while others wait for their doorbell: one of 8 bytes for all of them, as post and ring would */
static void commit_takes_along(void **state)
{
	static const uint8_t payload[256] = {1, 2, 3};
	uint32_t mode, waiting, bbs, n;

	(void)state;
	for (mode = INLAY_UAR_DOORBELL; mode <= INLAY_UAR_LOCKED; mode++)
		for (waiting = 0; waiting < 4; waiting++)
			for (bbs = 1; bbs <= 3; bbs++) {
				struct raw *a = raw_make(16, 63, mode), *b = raw_make(16, 63, mode);
				uint32_t index;

				for (n = 0; n < 100; n++) {
					struct raw *both[2] = {a, b};
					uint32_t i, k;

					memset(a->reg, 0xee, sizeof(a->reg));
					memset(b->reg, 0xee, sizeof(b->reg));
					index = inlay_sq_index(&a->sq) + waiting;
					for (i = 0; i < 2; i++) {
						for (k = 0; k < waiting; k++)
							must(inlay_post_send_inline(&both[i]->sq, &n, 4, INLAY_SIGNALED));
						must(inlay_post_send_inline(&both[i]->sq, payload, bbs * 64 - 24, INLAY_SIGNALED | (i ? INLAY_RING : 0)));
						inlay_sq_ring(&both[i]->sq); /* and of the second nothing is left to ring for */
					}
					assert_int_equal(inlay_sq_rung(&b->sq), inlay_sq_index(&b->sq));
					same_rings(a, b);
					drain(a, index);
					drain(b, index);
				}
				raw_free(a);
				raw_free(b);
			}
}

/* INLAY_RING on every post, as a constant and as a variable */
static void posts_ring(void **state)
{
	uint32_t mode, op, lap, i, index;
	struct four f;

	(void)state;
	for (mode = INLAY_UAR_DOORBELL; mode <= INLAY_UAR_LOCKED; mode++) {
		four_make(&f, mode);
		for (lap = 0; lap < 64; lap++)
			for (op = 0; op < OPS; op++) {
				uint32_t more = lap & 1 ? INLAY_SIGNALED | INLAY_FENCE : 0;

				index = inlay_sq_index(&f.r[0]->sq);
				for (i = 0; i < 4; i++) {
					must(i < 2 ? post_op(&f.r[i]->sq, op, more) : i == 2 || lap & 1 ?
						     post_op(&f.r[i]->sq, op, more | INLAY_RING) : post_op(&f.r[i]->sq, op, INLAY_RING));
					if (i < 2)
						inlay_sq_ring(&f.r[i]->sq);
				}
				four_same(&f, mode, index, byte_at(f.r[0], index, 7));
			}
		four_free(&f);
	}
}

/* The WQE that a completion names is printed as it stands in the ring */
static void prints(void **state)
{
	uint32_t ud, i, n, index;

	(void)state;
	for (ud = 0; ud < 2; ud++) {
		struct raw *r = raw_make(16, 63, INLAY_UAR_DOORBELL);

		r->sq.type = ud ? IBV_QPT_UD : 0;
		assert_int_equal(inlay_sq_qpn(&r->sq), QPN);
		raw_preset(r, 0xfff8);
		for (i = n = 0; i < 40; i++) {
			struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_REQ_ERR, QPN, index = inlay_sq_index(&r->sq));
			char *text[2] = {NULL, NULL};
			size_t len[2] = {0, 0};
			FILE *out;

			must(post_op(&r->sq, ud ? 10 + i % 3 : i % 10, 0));
			must(inlay_post_nop(&r->sq, 0));
			out = open_memstream(&text[0], &len[0]);
			inlay_sq_print(out, &r->sq, &cqe);
			fclose(out);
			out = open_memstream(&text[1], &len[1]);
			inlay_wqe_print(out, r->buf, 16 * 64, index, r->sq.type);
			fclose(out);
			assert_true(len[0] > 40);
			assert_string_equal(text[0], text[1]);
			n += strstr(text[0], "av ") != NULL;
			free(text[0]);
			free(text[1]);
			inlay_sq_release_until(&r->sq, inlay_sq_index(&r->sq));
		}
		assert_int_equal(n, ud ? 40 : 0);
		raw_free(r);
	}
}

/* More posts than the index in a WQE, a record and a CQE can count */
static void indices(void **state)
{
	struct raw *r = raw_make(64, 16, INLAY_UAR_SERIAL);
	uint32_t i, index;

	(void)state;
	raw_preset(r, 0xffff0000);
	for (i = 0; i < 200000; i++) {
		index = r->sq.pi;
		must(inlay_post_write_inline(&r->sq, i, 1, &i, 4, INLAY_SIGNALED));
		inlay_sq_ring(&r->sq);
		assert_int_equal(index, 0xffff0000 + i);
		assert_int_equal(be32_at(r, index, 0), (i & 0xffff) << 8 | MLX5_OPCODE_RDMA_WRITE);
		assert_int_equal(be64_at(r, index, 16), i);
		assert_int_equal(r->dbrec[1], htobe32((i + 1) & 0xffff));
		drain(r, i);
	}
	raw_free(r);
}

#if INLAY_CHECKED
/* ---- every rule of INLAY_CHECKED that a queue has, broken once ---- */

enum {
	R_BEGIN_SQ, R_BEGIN_AT, R_BEGIN_0, R_BEGIN_17, R_COUNTED_0, R_COUNTED_17, R_COUNTED_ROOM, R_LONGER, R_LONGEST, R_TWO_BEGUN, R_UNFILLED,
	R_UNFILLED_RING, R_OPEN_EMPTY, R_OPEN_13, R_OPEN_HEAD, R_OPEN_TWICE, R_APPEND, R_AV, R_AV_QPN, R_SEGMENT,
	R_POST_SQ, R_POST_SGE, R_READ, R_ATOMIC, R_DATAGRAM, R_RELEASE_SQ, R_RELEASE_CQE, R_UNDO_RUNG, R_UNDO_PART,
	 R_PEEK, R_ADVANCE_1, R_ADVANCE_N, R_QUIET, R_RQ_NULL, R_RQ_CQE, R_RECYCLE, R_RECYCLE_OOO, R_SRQ_USER, R_SRQ_SET_USER, R_SRQ_NULL, R_SRQ_CQE, R_REPOST, R_LINK, R_QPN,
	R_FLAG_LOW, R_FLAG_TWO, R_FLAG_UNKNOWN, R_FLAG_MODE, R_NULL_RING, R_NULL_DOORBELL, R_NULL_COUNTED, R_NULL_UNDO,
	R_NULL_MANY, R_NULL_ADVANCE, R_NULL_UPDATE, R_NULL_ARM, R_NULL_CLEAN, R_NULL_RESERVE, R_NULL_RECV, R_NULL_RECV_SGE, R_NULL_RQ_RING, R_NULL_RECYCLE,
	R_NULL_SRQ, R_NULL_SRQ_RING, R_NULL_REPOST, R_NULL_SRQ_RECYCLE, R_NULL_ATOMIC, R_NULL_INV, R_NULL_BIND,
	R_COMPACT_UD, R_COMPACT_SEGMENT, R_STREAM, R_STREAM_DUMP, R_STREAM_TEMPLATE, R_FLAG_DUMP, R_WAIT_INLINE, R_WAIT_SOLICITED, R_DUMP_INLINE,
	R_UMR_INLINE, R_PSV_INLINE, R_FLAG_IOV, R_IOV_REMOTE, R_IOV_NO_REMOTE, R_IOV_OPCODE, R_WAIT_WORD, R_COPY_TYPE, R_FINI_SQ, R_FINI_COUNTED,
	R_FINI_RQ, R_FINI_SRQ, RULES
};

static const char *const rule_text[RULES] = {
	"inlay_sq_begin: queue and cursor are not NULL", "inlay_sq_begin: queue and cursor are not NULL",
	"inlay_sq_begin: a WQE has 1 to 16 WQEBBs", "inlay_sq_begin: a WQE has 1 to 16 WQEBBs",
	"inlay_sq_begin_counted: a WQE has 1 to 16 WQEBBs", "inlay_sq_begin_counted: a WQE has 1 to 16 WQEBBs",
	"inlay_sq_begin_counted: the ring has room for the WQE",
	"inlay_seg_at: a WQE has no more WQEBBs than it was begun with",
	"inlay_sq_commit_: a WQE is no longer than the QP's longest",
	"inlay_sq_commit_: a WQE is committed before the next is begun",
	"inlay_sq_commit_: an open inline segment is filled before the commit",
	"inlay_sq_commit_: an open inline segment is filled before the commit",
	"inlay_seg_inline_open: an inline segment is not empty",
	"inlay_seg_inline_open: the first 12 bytes of an inline segment are written in place",
	"inlay_seg_inline_open: the first 12 bytes of an inline segment are written in place",
	"inlay_seg_inline_open: one inline segment is filled before the next is opened",
	"inlay_seg_inline_append: no more is appended than the segment was opened for",
	"inlay_seg_av_: an address vector follows the control segment",
	"inlay_av_init: a QPN has 24 bits",
	"inlay_wqe_data: a data segment holds at most 2^31 - 1 bytes",
	"inlay_post_gather_: the queue is not NULL",
	"inlay_post_gather_: sge is not NULL unless num_sge is 0",
	"inlay_post_read: a read has no payload to inline",
	"inlay_post_atomic_: an atomic has no payload to inline",
	"inlay_post_datagram_: the address vector is not NULL",
	"inlay_sq_release: queue and CQE are not NULL", "inlay_sq_release: queue and CQE are not NULL",
	"inlay_sq_undo: only what was not rung for is taken back",
	"inlay_sq_undo: a WQE is taken back whole",
	"inlay_cq_peek: the queue is not NULL",
	"inlay_cq_advance_quiet: only completions that have arrived are freed", "inlay_cq_advance_quiet: only completions that have arrived are freed",
	"inlay_cq_advance_quiet: only completions that have arrived are freed",
	"inlay_rq_release: queue and CQE are not NULL", "inlay_rq_release: queue and CQE are not NULL",
	"inlay_rq_recycle: a receive is outstanding",
	"inlay_rq_recycle: WQEs complete in their order",
	"inlay_srq_user: there is such an entry", "inlay_srq_set_user: there is such an entry",
	"inlay_srq_release: queue and CQE are not NULL", "inlay_srq_release: queue and CQE are not NULL",
	"inlay_srq_repost: an entry is posted again after it was posted or prepared once",
	"inlay_srq_take_: nobody else writes the entries' links",
	"inlay_qpn_table_find: a QPN has 24 bits",
	"inlay_flags_check_: flags are INLAY_*, not IBV_SEND_*, with one fence at most",
	"inlay_flags_check_: flags are INLAY_*, not IBV_SEND_*, with one fence at most",
	"inlay_flags_check_: flags are INLAY_*, not IBV_SEND_*, with one fence at most",
	"inlay_flags_check_: flags are INLAY_*, not IBV_SEND_*, with one fence at most",
	"inlay_sq_ring: the queue is not NULL", "inlay_sq_ring_doorbell: the queue is not NULL", "inlay_sq_begin_counted: the queue is not NULL",
	"inlay_sq_undo: the queue is not NULL", "inlay_cq_peek_many: the queue is not NULL",
	"inlay_cq_advance_quiet: the queue is not NULL", "inlay_cq_update: the queue is not NULL", "inlay_cq_arm: the queue is not NULL",
	"inlay_cq_clean: the queue is not NULL", "inlay_cq_reserve: the queue is not NULL", "inlay_post_recv: queue and SGEs are not NULL",
	"inlay_post_recv: queue and SGEs are not NULL", "inlay_rq_ring: the queue is not NULL", "inlay_rq_recycle: the queue is not NULL",
	"inlay_post_srq_recv: queue and SGEs are not NULL", "inlay_srq_ring: the queue is not NULL",
	"inlay_srq_repost: the queue is not NULL", "inlay_srq_recycle: queue and CQE are not NULL", "inlay_post_atomic_: queue, remote address and SGE are not NULL",
	"inlay_post_local_inv: the queue is not NULL", "inlay_post_bind_mw: no argument is NULL",
	"inlay_post_datagram_: the destination has 48 bytes", "inlay_seg_av: the destination has 48 bytes",
	"inlay_sq_commit_: only a DCI has streams", "inlay_post_dump: only inlay_post_to_* take a stream",
	"inlay_post_template_: only inlay_post_to_* take a stream",
	"inlay_flags_check_: flags are INLAY_*, not IBV_SEND_*, with one fence at most",
	"inlay_sync_flags_: no payload to inline, and no peer's CQE", "inlay_sync_flags_: no payload to inline, and no peer's CQE",
	"inlay_sync_flags_: no payload to inline, and no peer's CQE", "inlay_post_umr: a UMR has no payload to inline",
	"inlay_post_set_psv: a PSV has no payload to inline",
	"inlay_flags_check_: flags are INLAY_*, not IBV_SEND_*, with one fence at most",
	"inlay_post_iov_: a send has no remote address, writes and reads have one",
	"inlay_post_iov_: a send has no remote address, writes and reads have one",
	"inlay_post_iov_: a send has no remote address, writes and reads have one",
	"inlay_post_wait_data: the word is not NULL", "inlay_post_memcpy: the QP's type has the operation",
	"inlay_sq_begin: the queue is attached to a register", "inlay_sq_begin_counted: the queue is attached to a register",
	"inlay_post_recv: the queue is not finished", "inlay_post_srq_recv: the queue is not finished",
};

struct rule {
	uint32_t which;
	uint32_t n;           /* what is 1 where the rule is kept */
	struct raw *r;        /* 4 WQEBBs, QP's longest 5 units; one NOP posted and not rung for */
	struct rawcq *c;      /* one CQE in it */
	struct inlay_rq *rq;
	struct inlay_srq *srq;
	struct inlay_qpn_table *table;
};

/* Breaks a rule: see rule_text. Arguments are variables to the compiler */
static void rule_break(void *arg)
{
	const struct rule *u = (const struct rule *)arg;
	struct inlay_sq *sq = &u->r->sq, *volatile no_sq = NULL;
	struct inlay_cursor at = inlay_cursor_init(sq->buf, 4, sq->pi, 2), two;
	const struct mlx5_cqe64 *volatile no_cqe = NULL, *cqes;
	struct ibv_sge sge[8] = {{0x1000, 8, 5}}, *volatile no_sge = NULL;
	struct inlay_av *volatile no_av = NULL;
	struct inlay_cq *volatile no_cq = NULL;
	struct inlay_rq *volatile no_rq = NULL;
	struct inlay_srq *volatile no_srq = NULL;
	struct inlay_cursor *volatile no_at = NULL;
	volatile uint32_t n = u->which, flags = 0;
	struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_REQ, QPN, 0);
	struct inlay_iov list = {NULL, 0, 0, NULL};
	struct inlay_remote there = {0, 0};
	struct inlay_template made;
	struct mlx5_wqe_av from;
	struct inlay_av av;
	uint8_t *p;

	memset(&from, 0, sizeof(from));
	inlay_av_init(&av, &from, 1, 0);
	switch (u->which) {
	case R_BEGIN_SQ: (void)!inlay_sq_begin(no_sq, 1, &at); break;
	case R_BEGIN_AT: (void)!inlay_sq_begin(sq, 1, no_at); break;
	case R_BEGIN_0: n = 0; (void)!inlay_sq_begin(sq, n, &at); break;
	case R_BEGIN_17: n = 17; (void)!inlay_sq_begin(sq, n, &at); break;
	case R_COUNTED_0: n = 0; inlay_sq_begin_counted(sq, n); break;
	case R_COUNTED_17: n = 17; inlay_sq_begin_counted(sq, n); break;
	case R_COUNTED_ROOM: n = 4; inlay_sq_begin_counted(sq, n); break;
	case R_LONGER:
		must(inlay_sq_begin(sq, 1, &at));
		for (n = 0; n < 4; n++)
			at = inlay_seg_data(at, 0, 1, 1);
		inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0);
		break;
	case R_LONGEST:
		for (n = 0; n < 5; n++)
			at = inlay_seg_data(at, 0, 1, 1);
		inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0);
		break;
	case R_TWO_BEGUN:
		must(inlay_sq_begin(sq, 1, &two));
		inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0);
		inlay_sq_commit(sq, two, MLX5_OPCODE_SEND, 0, 0, 0);
		break;
	case R_UNFILLED:
		at = inlay_seg_inline_append(inlay_seg_inline_open(at, 20, 4, &p), &sge, 15);
		inlay_sq_commit(sq, at, MLX5_OPCODE_SEND, 0, 0, 0);
		break;
	case R_UNFILLED_RING:
		inlay_sq_ring(sq);
		inlay_sq_commit_ring(sq, inlay_seg_inline_open(at, 13, 12, &p), MLX5_OPCODE_SEND, 0, 0, 0);
		break;
	case R_OPEN_EMPTY: inlay_seg_inline_open(at, 0, 0, &p); break;
	case R_OPEN_13: inlay_seg_inline_open(at, 20, 13, &p); break;
	case R_OPEN_HEAD: inlay_seg_inline_open(at, 5, 6, &p); break;
	case R_OPEN_TWICE: inlay_seg_inline_open(inlay_seg_inline_open(at, 5, 4, &p), 5, 5, &p); break;
	case R_APPEND: inlay_seg_inline_append(inlay_seg_inline_open(at, 5, 4, &p), &sge, 2); break;
	case R_AV: inlay_seg_av(inlay_seg_raddr(at, 0, 0), &av); break;
	case R_AV_QPN: inlay_av_init(&av, &from, 0x1000000, 0); break;
	case R_SEGMENT: sge[0].length = 0x80000000; (void)!inlay_post_send(sq, sge, 1, 0); break;
	case R_POST_SQ: (void)!inlay_post_send(no_sq, sge, 1, 0); break;
	case R_POST_SGE: (void)!inlay_post_send(sq, no_sge, 1, 0); break;
	case R_READ: (void)!inlay_post_read(sq, 0, 0, sge, 1, INLAY_INLINE); break;
	case R_ATOMIC: (void)!inlay_post_fetch_add(sq, 0, 0, 1, sge, INLAY_INLINE); break;
	case R_DATAGRAM: (void)!inlay_post_ud_send(sq, no_av, sge, 1, 0); break;
	case R_RELEASE_SQ: inlay_sq_release(no_sq, &cqe); break;
	case R_RELEASE_CQE: inlay_sq_release(sq, no_cqe); break;
	case R_UNDO_RUNG: inlay_sq_ring(sq); inlay_sq_undo(sq, 0); break;
	case R_UNDO_PART: (void)!inlay_post_send_inline(sq, sge, 60, 0); inlay_sq_undo(sq, 2); break;
	case R_PEEK: inlay_cq_peek(no_cq); break;
	case R_ADVANCE_1: inlay_cq_advance(&u->c->cq, 1); inlay_cq_advance(&u->c->cq, 1); break;
	case R_ADVANCE_N: n = 2; inlay_cq_advance(&u->c->cq, n); break;
	case R_QUIET: n = 0x80000001; inlay_cq_advance_quiet(&u->c->cq, n); break;
	case R_RQ_NULL: inlay_rq_release(no_rq, &cqe); break;
	case R_RQ_CQE: inlay_rq_release(u->rq, no_cqe); break;
	case R_RECYCLE: inlay_rq_recycle(u->rq, 0); break;
	case R_RECYCLE_OOO:
		inlay_rq_set_ooo(u->rq);
		must(inlay_post_recv(u->rq, sge, 1));
		inlay_rq_recycle(u->rq, 0);
		break;
	case R_SRQ_USER: n = 4; inlay_srq_user(u->srq, n); break;
	case R_SRQ_SET_USER: n = 4; inlay_srq_set_user(u->srq, n, 1); break;
	case R_SRQ_NULL: inlay_srq_release(no_srq, &cqe); break;
	case R_SRQ_CQE: inlay_srq_release(u->srq, no_cqe); break;
	case R_REPOST: inlay_srq_repost(u->srq); break;
	case R_LINK: u->srq->buf[3] = 4; (void)!inlay_post_srq_recv(u->srq, sge, 1); break;
	case R_QPN: n = 0x1000000; inlay_qpn_table_find(u->table, n); break;
	case R_FLAG_LOW: flags = IBV_SEND_SIGNALED; (void)!inlay_post_send(sq, sge, 1, flags); break;
	case R_FLAG_TWO: flags = INLAY_FENCE | INLAY_FENCE_STRONG; (void)!inlay_post_send(sq, sge, 1, flags); break;
	case R_FLAG_UNKNOWN: flags = 1u << 20; (void)!inlay_post_send(sq, sge, 1, flags); break;
	case R_FLAG_MODE: flags = 3u << 29; (void)!inlay_post_send(sq, sge, 1, flags); break;
	case R_NULL_RING: inlay_sq_ring(no_sq); break;
	case R_NULL_DOORBELL: inlay_sq_ring_doorbell(no_sq); break;
	case R_NULL_COUNTED: inlay_sq_begin_counted(no_sq, 1); break;
	case R_NULL_UNDO: inlay_sq_undo(no_sq, 0); break;
	case R_NULL_MANY: inlay_cq_peek_many(no_cq, &cqes, 1); break;
	case R_NULL_ADVANCE: inlay_cq_advance(no_cq, 1); break;
	case R_NULL_UPDATE: inlay_cq_update(no_cq); break;
	case R_NULL_ARM: inlay_cq_arm(no_cq, 0); break;
	case R_NULL_CLEAN: inlay_cq_clean(no_cq, 1, NULL, NULL); break;
	case R_NULL_RESERVE: inlay_cq_reserve(no_cq, 1, NULL); break;
	case R_NULL_RECV: (void)!inlay_post_recv(no_rq, sge, 1); break;
	case R_NULL_RECV_SGE: (void)!inlay_post_recv(u->rq, no_sge, 1); break;
	case R_NULL_RQ_RING: inlay_rq_ring(no_rq); break;
	case R_NULL_RECYCLE: inlay_rq_recycle(no_rq, 0); break;
	case R_NULL_SRQ: (void)!inlay_post_srq_recv(no_srq, sge, 1); break;
	case R_FINI_SQ: inlay_sq_fini(sq); (void)!inlay_sq_begin(sq, 1, &at); break;
	case R_FINI_COUNTED: inlay_sq_fini(sq); inlay_sq_begin_counted(sq, 1); break;
	case R_FINI_RQ: inlay_rq_fini(u->rq); (void)!inlay_post_recv(u->rq, sge, 1); break;
	case R_FINI_SRQ: inlay_srq_fini(u->srq); (void)!inlay_post_srq_recv(u->srq, sge, 1); break;
	case R_NULL_SRQ_RING: inlay_srq_ring(no_srq); break;
	case R_NULL_REPOST: inlay_srq_repost(no_srq); break;
	case R_NULL_SRQ_RECYCLE: inlay_srq_recycle(no_srq, &cqe); break;
	case R_NULL_ATOMIC: (void)!inlay_post_fetch_add(sq, 0, 0, 1, no_sge, 0); break;
	case R_NULL_INV: (void)!inlay_post_local_inv(no_sq, 1, 0); break;
	case R_NULL_BIND: (void)!inlay_post_bind_mw(sq, NULL, 1, NULL, 0); break;
	case R_COMPACT_UD: inlay_av_init_xrc(&av, 1); (void)!inlay_post_ud_send(sq, &av, sge, 1, 0); break;
	case R_COMPACT_SEGMENT: inlay_av_init_xrc(&av, 1); inlay_seg_av(at, &av); break;
	case R_STREAM: sq->type = IBV_QPT_RC; (void)!inlay_post_fetch_add(sq, 0, 0, 1, sge, INLAY_STREAM(5)); break;
	case R_STREAM_DUMP: (void)!inlay_post_dump(sq, sge, 1, INLAY_STREAM(5)); break;
	case R_STREAM_TEMPLATE:
		must(inlay_template_init(&made, sq, MLX5_OPCODE_SEND, 0, 5));
		(void)!inlay_post_template_send(sq, &made, 0, 8, 0, INLAY_STREAM(5));
		break;
	case R_FLAG_DUMP: flags = IBV_SEND_SIGNALED; (void)!inlay_post_dump(sq, sge, 1, flags); break;
	case R_WAIT_INLINE: (void)!inlay_post_wait_cq(sq, 1, 1, INLAY_INLINE); break;
	case R_WAIT_SOLICITED: (void)!inlay_post_send_enable(sq, 1, 1, INLAY_SOLICITED); break;
	case R_DUMP_INLINE: (void)!inlay_post_dump(sq, sge, 1, INLAY_INLINE); break;
	case R_UMR_INLINE: (void)!inlay_post_local_inv(sq, 1, INLAY_INLINE); break;
	case R_PSV_INLINE: (void)!inlay_post_set_psv(sq, 1, 1, INLAY_INLINE); break;
	case R_FLAG_IOV: flags = IBV_SEND_SIGNALED; (void)!inlay_post_iov(sq, MLX5_OPCODE_SEND, NULL, NULL, &list, 0, flags); break;
	case R_IOV_REMOTE: (void)!inlay_post_iov(sq, MLX5_OPCODE_SEND, NULL, &there, &list, 0, 0); break;
	case R_IOV_NO_REMOTE: (void)!inlay_post_iov(sq, MLX5_OPCODE_RDMA_WRITE, NULL, NULL, &list, 0, 0); break;
	case R_IOV_OPCODE: (void)!inlay_post_iov(sq, MLX5_OPCODE_ATOMIC_FA, NULL, &there, &list, 0, 0); break;
	case R_WAIT_WORD: (void)!inlay_post_wait_data(sq, no_sge, INLAY_WAIT_EQUAL, 0, 0, 0); break;
	case R_COPY_TYPE: sq->type = IBV_QPT_UD; (void)!inlay_post_memcpy(sq, sge, sge, sge, 0); break;
	}
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
	u.r = raw_make(4, 5, INLAY_UAR_SERIAL);
	must(inlay_post_nop(&u.r->sq, 0));
	u.c = rawcq_make(4, 64);
	produce(u.c, 1, 1);
	must(inlay_rq_init(&rq, buf, 4, 64, dbrec));
	must(inlay_srq_init(&srq, buf, 4, 32, dbrec));
	inlay_qpn_table_init(&table, NULL, 0);
	u.rq = &rq;
	u.srq = &srq;
	u.table = &table;
	for (u.which = 0; u.which < RULES; u.which++)
		assert_aborts(rule_break, &u, rule_text[u.which]);
	raw_free(u.r);
	rawcq_free(u.c);
}

/* The types of QP that have each */
enum { RC = 1, UC = 2, UD = 4 };

static const uint8_t knows[] = {RC | UC, RC | UC, RC, RC | UC, RC | UC, RC, RC, RC, RC | UC, RC | UC, UD, UD, UD, RC | UC, RC | UC,
				RC | UC | UD};

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
	static const uint32_t types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	uint32_t t, op;

	(void)state;
	for (t = 0; t < 3; t++)
		for (op = 0; op < ARRAY(knows); op++) {
			struct op_on o = {raw_make(16, 16, INLAY_UAR_DOORBELL), op};

			o.r->sq.type = types[t];
			if (knows[op] & 1 << t)
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

/* Random posts, rings and completions against two counters; the WQE's bytes at every post */
static void rq_model(uint32_t cnt, uint32_t stride, uint32_t preset, uint32_t steps)
{
	uint8_t *buf = (uint8_t *)pages((size_t)cnt * stride);
	uint32_t dbrec[2] = {0, 0x5a5a5a5a}, posted = preset, done = preset, i, k, n, s;
	struct ibv_sge sge[80];
	struct inlay_rq rq, was, fresh;

	must(inlay_rq_init(&rq, buf, cnt, stride, dbrec));
	fresh = rq;
	/* As if so many had come and gone */
	rq.pi += preset;
	rq.limit += preset;
	for (s = 0; s < steps; s++) {
		bool filling = (s / (cnt + 5)) % 2 == 0;

		if (rnd_below(8) < (filling ? 6 : 1)) {
			uint8_t *wqe = buf + (size_t)(posted % cnt) * stride;
			int ret;

			n = rnd_below(stride / 16 + 2);
			for (i = 0; i < n; i++) {
				sge[i].addr = rnd();
				sge[i].length = rnd_below(4) ? 1 + rnd_below(0x7fffffff) : 0;
				sge[i].lkey = (uint32_t)rnd();
			}
			was = rq;
			ret = inlay_post_recv(&rq, sge, n);
			if (posted - done == cnt || n > stride / 16) {
				assert_int_equal(ret, posted - done == cnt ? -EAGAIN : -EINVAL);
				assert_memory_equal(&rq, &was, sizeof(rq));
				continue;
			}
			must(ret);
			posted++;
			for (i = k = 0; i < n; i++)
				if (sge[i].length)
					rq_seg_is(wqe + 16 * k++, &sge[i]);
			if (k < stride / 16)
				rq_seg_is(wqe + 16 * k, NULL);
		} else if (rnd_below(3) == 0) {
			inlay_rq_ring(&rq);
			assert_int_equal(dbrec[0], htobe32(posted & 0xffff));
			assert_int_equal(dbrec[1], 0x5a5a5a5a);
		} else if (posted != done) {
			/* One by one, or several at once */
			k = rnd_below(4) ? 1 : 1 + rnd_below(posted - done);
			if (k == 1)
				assert_int_equal(inlay_rq_release(&rq, &a_cqe), 1);
			else
				assert_int_equal(inlay_rq_release_until(&rq, done + k), k);
			done += k;
		} else {
			was = rq;
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
			rq_model(cnt, stride, 0xfffff000, 20000 + 4 * cnt); /* past 2^32 */
	rq_model(32768, 64, 0, 400000); /* past 2^16 */
	rq_model(2, 32, 0, 400000);
}

/* A full ring writes nothing */
static void rq_full(void **state)
{
	uint8_t *buf = (uint8_t *)pages(8 * 64), copy[8 * 64];
	struct ibv_sge sge = {0x1000, 64, 5};
	struct inlay_rq rq;
	uint32_t dbrec[2];
	int i;

	(void)state;
	must(inlay_rq_init(&rq, buf, 8, 64, dbrec));
	for (i = 0; i < 8; i++)
		must(inlay_post_recv(&rq, &sge, 1));
	memcpy(copy, buf, sizeof(copy));
	sge.addr = 0x2000;
	assert_int_equal(inlay_post_recv(&rq, &sge, 1), -EAGAIN);
	assert_int_equal(inlay_post_recv(&rq, NULL, 0), -EAGAIN);
	assert_memory_equal(buf, copy, sizeof(copy));
	assert_true(0 < inlay_rq_release(&rq, &a_cqe));
	must(inlay_post_recv(&rq, &sge, 1));
	rq_seg_is(buf, &sge);
	assert_int_equal(inlay_post_recv(&rq, &sge, 1), -EAGAIN);
	free(buf);
}

/* More than is outstanding is refused whole */
static void rq_release_wrong(void **state)
{
	uint8_t *buf = (uint8_t *)pages(8 * 64);
	struct ibv_sge sge = {0x1000, 64, 5};
	struct inlay_rq rq, was;
	uint32_t dbrec[2], n, i;

	(void)state;
	must(inlay_rq_init(&rq, buf, 8, 64, dbrec));
	for (i = 0; i < 5; i++)
		must(inlay_post_recv(&rq, &sge, 1));
	assert_int_equal(inlay_rq_release_until(&rq, 2), 2);
	was = rq;
	for (n = 4; n; n = n < 0x80000000u ? n * 2 + n % 3 : 0) {
		assert_int_equal(inlay_rq_release_until(&rq, 2 + n), -EPROTO);
		assert_memory_equal(&rq, &was, sizeof(rq));
	}
	assert_int_equal(inlay_rq_release_until(&rq, 1), -EPROTO);
	assert_int_equal(inlay_rq_release_until(&rq, 2), 0);
	assert_int_equal(inlay_rq_release_until(&rq, 5), 3);
	assert_int_equal(inlay_rq_release(&rq, &a_cqe), -EPROTO);
	assert_int_equal(inlay_rq_room(&rq), 8);
	free(buf);
}

/* A prepared ring is one SGE everywhere; posting it anew writes an address and nothing else, and the record tells of it */
static void rq_recycles(void **state)
{
	uint32_t stride, cnt, i, n;

	(void)state;
	for (stride = 16; stride <= 1024; stride *= 2)
		for (cnt = 1; cnt <= 64; cnt *= 4) {
			uint8_t *buf = (uint8_t *)pages((size_t)cnt * stride), *want = (uint8_t *)pages((size_t)cnt * stride);
			struct ibv_sge sge = {0, 0x01020304, 0xa5b6c7d8};
			uint32_t dbrec[2] = {0, 5};
			struct inlay_rq rq;

			must(inlay_rq_init(&rq, buf, cnt, stride, dbrec));
			fill(buf, (size_t)cnt * stride, stride);
			memcpy(want, buf, (size_t)cnt * stride);
			inlay_rq_prepare(&rq, sge.length, sge.lkey);
			for (i = 0; i < cnt; i++) {
				rq_seg_is(buf + (size_t)i * stride, &sge);
				if (stride > 16)
					rq_seg_is(buf + (size_t)i * stride + 16, NULL);
				if (stride > 32)
					assert_memory_equal(buf + (size_t)i * stride + 32, want + (size_t)i * stride + 32, stride - 32);
			}
			for (i = 0; i < cnt; i++)
				must(inlay_post_recv(&rq, &sge, 1));
			rq.pi += 0xfffffff0;
			rq.limit += 0xfffffff0;
			n = rq.pi;
			for (i = 0; i < 200; i++, n++) {
				uint64_t addr = rnd(), be = htobe64(addr);

				memcpy(want, buf, (size_t)cnt * stride);
				memcpy(want + (size_t)(n % cnt) * stride + 8, &be, 8);
				inlay_rq_recycle(&rq, addr);
				assert_memory_equal(buf, want, (size_t)cnt * stride);
				assert_int_equal(inlay_rq_pending(&rq), cnt);
				inlay_rq_ring(&rq);
				assert_int_equal(dbrec[0], htobe32((uint16_t)(n + 1)));
			}
			free(buf);
			free(want);
		}
}

/* On a device without atomics they are refused and nothing is written; the index of what comes next is what a completion will say */
static void no_atomics(void **state)
{
	struct raw *r = raw_make(8, 63, INLAY_UAR_SERIAL);
	struct ibv_sge sge = {0x1000, 8, 5};
	uint8_t copy[8 * 64];
	struct inlay_sq was;
	uint32_t i;

	(void)state;
	r->sq.atomics = 0;
	was = r->sq;
	memcpy(copy, r->buf, sizeof(copy));
	assert_int_equal(inlay_post_fetch_add(&r->sq, 0x2000, 7, 1, &sge, 0), -ENOTSUP);
	assert_int_equal(inlay_post_cmp_swap(&r->sq, 0x2000, 7, 1, 2, &sge, 0), -ENOTSUP);
	assert_memory_equal(&r->sq, &was, sizeof(was));
	assert_memory_equal(r->buf, copy, sizeof(copy));
	for (i = 0; i < 3; i++) {
		uint16_t index = inlay_sq_index(&r->sq);

		must(inlay_post_write(&r->sq, 0x2000, 7, &sge, 1, INLAY_SIGNALED));
		assert_int_equal(be32_at(r, index, 0) >> 8 & 0xffff, index);
	}
	raw_free(r);
}

/* ---- the shared receive queue ---- */

static void srq_arguments(void **state)
{
	static const uint32_t cnt_bad[] = {0, 1, 32769, 65536, 0xffffffff},
		stride_bad[] = {0, 8, 16, 24, 48, 96, 2048, 0x80000000, 0xffffffff};
	uint8_t *buf = (uint8_t *)pages(32768 * 32);
	uint32_t dbrec[2] = {5, 5}, n;
	struct inlay_srq srq;
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY(cnt_bad); i++)
		assert_int_equal(inlay_srq_init(&srq, buf, cnt_bad[i], 32, dbrec), -EINVAL);
	for (i = 0; i < ARRAY(stride_bad); i++)
		assert_int_equal(inlay_srq_init(&srq, buf, 16, stride_bad[i], dbrec), -EINVAL);
	assert_int_equal(inlay_srq_init(&srq, NULL, 16, 32, dbrec), -EINVAL);
	assert_int_equal(inlay_srq_init(&srq, buf + 8, 16, 32, dbrec), -EINVAL);
	assert_int_equal(inlay_srq_init(&srq, buf, 16, 32, NULL), -EINVAL);
	assert_true(all_bytes(buf, 32768 * 32, 0));
	assert_int_equal(dbrec[0], 5);
	for (n = 32; n <= 1024; n *= 2)
		must(inlay_srq_init(&srq, buf, 16, n, dbrec));
	for (n = 2; n <= 32768; n += 1 + n / 3) {
		must(inlay_srq_init(&srq, buf, n, 32, dbrec));
		assert_int_equal(inlay_srq_room(&srq), n - 1);
		assert_int_equal(inlay_srq_pending(&srq), 0);
		assert_int_equal(inlay_srq_index(&srq), 0);
		assert_int_equal(dbrec[0], 0);
	}
	assert_int_equal(dbrec[1], 5);
	free(buf);
}

enum { AT_HOME, POSTED, TAKEN };
#define FREE 5 /* All entries are written before any is posted, the one that is held back too; reposted, each has its own */
static void srq_prepared(void **state)
{
	uint8_t *buf = (uint8_t *)pages(4 * 32);
	struct ibv_sge sge[2] = {{0x1000, 64, 5}, {0x2000, 64, 5}};
	struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_RESP_SEND, QPN, 0);
	struct inlay_srq srq;
	uint32_t dbrec[1], i;

	(void)state;
	must(inlay_srq_init(&srq, buf, 4, 32, dbrec));
	assert_int_equal(inlay_srq_size(&srq), 3);
	for (i = 0; i <= inlay_srq_size(&srq); i++) {
		assert_int_equal(inlay_srq_user(&srq, i), 0);
		sge[0].addr = 0x1000 * (i + 1);
		must(inlay_srq_prepare(&srq, i, sge, 1));
		rq_seg_is(buf + 32 * i + 16, &sge[0]);
	}
	assert_int_equal(inlay_srq_prepare(&srq, 4, sge, 1), -EINVAL);
	assert_int_equal(inlay_srq_prepare(&srq, 0, sge, 2), -EINVAL);
	for (i = 0; i < 3; i++)
		must(inlay_srq_repost(&srq));
	assert_int_equal(inlay_srq_repost(&srq), -EAGAIN);
	assert_int_equal(inlay_srq_prepare(&srq, 1, sge, 1), -EINVAL);
	for (i = 0; i < 40; i++) {
		cqe.wqe_counter = htobe16((uint16_t)(i % 4));
		assert_int_equal(inlay_srq_release(&srq, &cqe), 1);
		assert_int_equal(inlay_srq_index(&srq), (i + 3) % 4);
		must(inlay_srq_repost(&srq));
		sge[0].addr = 0x1000 * ((i + 3) % 4 + 1);
		rq_seg_is(buf + 32 * ((i + 3) % 4) + 16, &sge[0]);
	}
	free(buf);
}

/* the byte of an entry that is inlay's own */

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

static void srq_post(struct srq_model *m)
{
	uint32_t n = rnd_below(m->stride / 16 + 2), i, k, index = m->home[0];
	uint8_t *wqe = m->buf + (size_t)index * m->stride, link[16];
	struct inlay_srq was = m->srq;
	struct ibv_sge sge[80];
	int ret;

	if (m->homes == 1 && m->back && n <= m->stride / 16 - 1)
		srq_next_run(m);
	for (i = 0; i < n; i++) {
		sge[i].addr = rnd();
		sge[i].length = rnd_below(4) ? 1 + rnd_below(0x7fffffff) : 0;
		sge[i].lkey = (uint32_t)rnd();
	}
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
	for (i = k = 0; i < n; i++)
		if (sge[i].length)
			rq_seg_is(wqe + 16 + 16 * k++, &sge[i]);
	if (k < m->stride / 16 - 1)
		rq_seg_is(wqe + 16 + 16 * k, NULL);
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
	m->buf = (uint8_t *)pages((size_t)cnt * stride);
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
			n = rnd_below(2) ? m->home[rnd_below(m->homes)] : cnt + rnd_below(65536 - cnt);
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
			srq_model(cnt + (i == 1 && cnt > 2 ? rnd_below(cnt) : 0), 32u << rnd_below(6), presets[i], 30000);
	for (i = 0; i < 2; i++)
		srq_model(1 + 64 * i + 2, 32, 5, 70000);
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
		for (s = 0; s < 60000; s++) {
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
 * A device gone mad: completions name entries that it has not taken, in any order and many times over. What is refused changes nothing, and
 * whatever is accepted, each free entry is in the list or waits for it, once.
 */
static void srq_mad(void **state)
{
	uint8_t buf[64 * 32] __attribute__((aligned(64))), seen[64];
	uint32_t dbrec[2] = {0, 0}, s, i, at;
	struct ibv_sge sge = {1, 1, 1};
	struct inlay_srq srq;

	(void)state;
	must(inlay_srq_init(&srq, buf, 64, 32, dbrec));
	for (s = 0; s < 300000; s++) {
		struct mlx5_cqe64 cqe = cqe_of(MLX5_CQE_RESP_SEND, 1, rnd_below(4) ? rnd_below(70) : (uint32_t)rnd());
		uint32_t room = inlay_srq_room(&srq);
		bool give = rnd_below(2);
		int ret = give ? inlay_srq_release(&srq, &cqe) : inlay_post_srq_recv(&srq, &sge, 1);

		assert_int_equal(inlay_srq_room(&srq), ret < 0 ? room : give ? room + 1 : room - 1);
		if (s % 16)
			continue;
		memset(seen, 0, sizeof(seen));
		for (at = srq.head;; at = (uint32_t)buf[32 * at + 2] << 8 | buf[32 * at + 3]) {
			assert_in_range(at, 0, 63);
			assert_int_equal(seen[at]++, 0);
			if (srq.tail == buf + 32 * at)
				break;
		}
		for (i = 0, room = 0; i < 64; i++) {
			seen[i] = (uint8_t)(seen[i] + (srq.back[0] >> i & 1));
			assert_int_equal(buf[32 * i + FREE], seen[i]);
			room += seen[i];
		}
		assert_int_equal(inlay_srq_room(&srq), room - 1);
	}
}

/*
 * "Releases trust any CQE": of each opcode, of the queue's own QP and of another, to each release. Whatever is refused changes nothing.
 * Only INLAY_CHECKED looks at the QPN. A receive queue that does not know its own takes any, an SRQ always
 */
static void release_of_another(void **state)
{
	static const uint8_t good[] = {MLX5_CQE_RESP_WR_IMM, MLX5_CQE_RESP_SEND, MLX5_CQE_RESP_SEND_IMM, MLX5_CQE_RESP_SEND_INV, MLX5_CQE_RESP_ERR};
	static const uint8_t ops[] = {MLX5_CQE_REQ, MLX5_CQE_REQ_ERR, MLX5_CQE_SIG_ERR, MLX5_CQE_INVALID};
	enum { SQ, SHARED, RQ, NAMELESS, OOO, SRQ, RECYCLE, KINDS };
	uint8_t ring[4 * 64] __attribute__((aligned(64)));
	struct ibv_sge sge = {0x1000, 64, 5};
	uint32_t dbrec[2], kind, op, other;

	(void)state;
	for (kind = 0; kind < KINDS; kind++)
		for (op = 0; op < ARRAY(good) + ARRAY(ops); op++)
			for (other = 0; other < 2; other++) {
				uint8_t opcode = op < ARRAY(good) ? good[op] : ops[op - ARRAY(good)];
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
				if (kind >= SRQ) {
					must(inlay_srq_init(&srq, ring, 4, 32, dbrec));
					must(inlay_post_srq_recv(&srq, &sge, 1));
					must(inlay_srq_prepare(&srq, 1, &sge, 1));
				}
				want = fits && !(INLAY_CHECKED && other && kind != NAMELESS && kind < SRQ) ? kind != RECYCLE : -EPROTO;
				got = kind == SQ ? inlay_sq_release(&r->sq, &cqe) : kind == SHARED ? inlay_shared_sq_release(&shared, &cqe) :
				      kind == OOO ? inlay_rq_release_ooo(&rq, &cqe) : kind <= OOO ? inlay_rq_release(&rq, &cqe) :
				      kind == SRQ ? inlay_srq_release(&srq, &cqe) : inlay_srq_recycle(&srq, &cqe);
				pending = (int)(kind == SQ ? inlay_sq_pending(&r->sq) : kind == SHARED ? inlay_shared_sq_pending(&shared) :
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

static void is_tag(const struct rawcq *c, const struct mlx5_cqe64 *cqe, uint32_t qpn, uint32_t tag)
{
	assert_non_null(cqe);
	assert_int_equal(inlay_cqe_byte_count(cqe), tag);
	assert_int_equal(inlay_cqe_qpn(cqe), qpn);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), tag & 0xffff);
	assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
	assert_int_equal(differs(cqe, 32, tag), 32);
	if (c->size == 128)
		assert_int_equal(differs(cqe - 1, 64, tag), 64);
}

/* Random arrivals and batches over many laps, in all ways to look and to free */
static void cq_model(uint32_t cnt, uint32_t size, uint32_t steps)
{
	const struct mlx5_cqe64 *cqes[70];
	struct rawcq *c = rawcq_make(cnt, size);
	uint32_t told = 0, s, i, n, max;

	for (s = 0; s < steps; s++) {
		bool filling = (s / (cnt / 4 + 5)) % 2 == 0;

		if (rnd_below(8) < (filling ? 6 : 2) && c->pi - c->ci < c->cnt) {
			for (n = rnd_below(3) ? 1 : 1 + rnd_below(cnt); n && c->pi - c->ci < c->cnt; n--)
				produce(c, c->pi & 0xffff, c->pi);
			continue;
		}
		switch (rnd_below(4)) {
		case 0:
			for (i = 0; i < 2; i++) { /* looking twice shows the same */
				const struct mlx5_cqe64 *cqe = inlay_cq_peek(&c->cq);

				if (c->pi == c->ci)
					assert_null(cqe);
				else
					is_tag(c, cqe, c->ci & 0xffff, c->ci);
			}
			if (c->pi == c->ci)
				break;
			if (rnd_below(2)) {
				inlay_cq_advance(&c->cq, 1);
				told = ++c->ci;
			} else {
				inlay_cq_advance_quiet(&c->cq, 1);
				c->ci++;
			}
			break;
		default:
			max = rnd_below(70);
			n = inlay_cq_peek_many(&c->cq, cqes, max);
			assert_int_equal(n, c->pi - c->ci < max ? c->pi - c->ci : max);
			for (i = 0; i < n; i++)
				is_tag(c, cqes[i], (c->ci + i) & 0xffff, c->ci + i);
			i = rnd_below(n + 1); /* freeing less than was shown is fine, nothing too */
			if (rnd_below(2)) {
				inlay_cq_advance(&c->cq, i);
				told = c->ci + i;
			} else {
				inlay_cq_advance_quiet(&c->cq, i);
			}
			c->ci += i;
		}
		assert_int_equal(inlay_cq_index(&c->cq), c->ci);
		assert_int_equal(c->dbrec[0], htobe32(told & 0xffffff));
		if (rnd_below(16) == 0) {
			inlay_cq_update(&c->cq);
			told = c->ci;
			assert_int_equal(c->dbrec[0], htobe32(told & 0xffffff));
		}
	}
	rawcq_free(c);
}

static void cq_random(void **state)
{
	uint32_t cnt;

	(void)state;
	for (cnt = 1; cnt <= 4096; cnt *= 2) {
		cq_model(cnt, 64, 20000);
		cq_model(cnt, 128, 20000);
	}
}

/* The consumer index passes 24 and 32 bits, in both steps: one by one and in a batch */
static void cq_indices(void **state)
{
	static const uint32_t at[] = {0xffffff - 20, 0x7fffffff - 20, 0xffffffff - 20};
	struct rawcq *c;
	uint32_t i, k;

	(void)state;
	for (k = 0; k < ARRAY(at); k++) {
		c = rawcq_make(8, 64);
		/* As if so many had come and gone */
		c->cq.ci = c->ci = c->pi = at[k];
		c->cq.next = c->cq.begin + at[k] % 8 * 64;
		c->cq.lap = (uint16_t)((at[k] / 8 & 1) << 8);
		for (i = 0; i < 8; i++)
			c->buf[i * 64 + 63] = (uint8_t)(0x20 | ((at[k] / 8 - (i >= at[k] % 8)) & 1));
		for (i = 0; i < 64; i++) {
			assert_null(inlay_cq_peek(&c->cq));
			produce(c, 7, c->pi);
			produce(c, 7, c->pi);
			is_tag(c, inlay_cq_peek(&c->cq), 7, at[k] + 2 * i);
			if (i & 1) {
				inlay_cq_advance(&c->cq, 2);
			} else {
				inlay_cq_advance(&c->cq, 1);
				is_tag(c, inlay_cq_peek(&c->cq), 7, at[k] + 2 * i + 1);
				inlay_cq_advance(&c->cq, 1);
			}
			c->ci += 2;
			assert_int_equal(c->dbrec[0], htobe32((at[k] + 2 * i + 2) & 0xffffff));
		}
		rawcq_free(c);
	}
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

/* ---- cleaning ---- */

struct entry {
	uint32_t qpn, tag;
};

/* What inlay_cq_clean has told of, newest first */
struct gone {
	uint32_t n, tag[256];
};

static void note_gone(const struct mlx5_cqe64 *cqe, void *arg)
{
	struct gone *g = (struct gone *)arg;

	assert_in_range(g->n, 0, 255);
	g->tag[g->n++] = inlay_cqe_byte_count(cqe);
}

/* Random CQEs of a few QPs, now and then one of them is cleaned out; what stays, and its order, must be the model's */
static void clean_model(uint32_t cnt, uint32_t size, uint32_t steps)
{
	struct rawcq *c = rawcq_make(cnt, size);
	struct entry list[256];
	uint32_t n = 0, s, i, k, tag = 0, qpn, removed, lost[256];
	struct gone g;

	assert_true(cnt <= ARRAY(list));
	for (s = 0; s < steps; s++) {
		switch (rnd_below(4)) {
		case 0:
		case 1:
			for (i = rnd_below(rnd_below(3) ? 4 : 2 * cnt); i && n < cnt; i--, n++) {
				list[n].qpn = 0xfffff0 + rnd_below(3);
				list[n].tag = ++tag;
				produce(c, list[n].qpn, tag);
			}
			break;
		case 2:
			for (i = rnd_below(cnt + 1); i && n; i--) {
				is_tag(c, inlay_cq_peek(&c->cq), list[0].qpn, list[0].tag);
				inlay_cq_advance(&c->cq, 1);
				c->ci++;
				memmove(list, list + 1, --n * sizeof(list[0]));
			}
			break;
		default:
			qpn = 0xfffff0 + rnd_below(4); /* one of which has none */
			for (i = k = removed = 0; i < n; i++)
				if (list[i].qpn == qpn)
					lost[removed++] = list[i].tag;
				else
					list[k++] = list[i];
			n = k;
			g.n = 0;
			if (rnd_below(4)) {
				assert_int_equal(inlay_cq_clean(&c->cq, qpn, note_gone, &g), removed);
				assert_int_equal(g.n, removed);
				for (i = 0; i < removed; i++)
					assert_int_equal(g.tag[i], lost[removed - 1 - i]);
			} else {
				assert_int_equal(inlay_cq_clean(&c->cq, qpn, NULL, NULL), removed);
			}
			c->ci += removed;
			if (removed)
				assert_int_equal(c->dbrec[0], htobe32(c->ci & 0xffffff));
		}
		/* All that is there, and nothing behind it */
		{
			const struct mlx5_cqe64 *cqes[257];

			assert_int_equal(inlay_cq_peek_many(&c->cq, cqes, 257), n);
			for (i = 0; i < n; i++)
				is_tag(c, cqes[i], list[i].qpn, list[i].tag);
		}
	}
	rawcq_free(c);
}

static void clean(void **state)
{
	uint32_t cnt;

	(void)state;
	for (cnt = 1; cnt <= 256; cnt *= 2) {
		clean_model(cnt, 64, cnt < 64 ? 20000 : 2000);
		clean_model(cnt, 128, cnt < 64 ? 5000 : 1000);
	}
}

/*
 * QPs that receive through one shared queue leave completions behind: what is removed gives its entry back, once, and what stays keeps it.
 * Send completions, whose counters mean something else, give none.
 */
static void clean_srq(void **state)
{
	uint8_t buf[64 * 32] __attribute__((aligned(64)));
	uint32_t dbrec[2] = {0, 0}, s, i, n, qpn, removed, receives;
	struct ibv_sge sge = {1, 1, 1};
	struct rawcq *c = rawcq_make(64, 64);
	struct entry list[64];
	struct inlay_srq srq;
	bool send[64];

	(void)state;
	must(inlay_srq_init(&srq, buf, 64, 32, dbrec));
	for (s = n = 0; s < 20000; s++) {
		struct mlx5_cqe64 *cqe;

		while (n < 60 && inlay_srq_room(&srq) && rnd_below(8)) {
			cqe = (struct mlx5_cqe64 *)(c->buf + (size_t)(c->pi % 64) * 64);
			list[n].qpn = 0x100 + rnd_below(4);
			list[n].tag = inlay_srq_index(&srq);
			send[n] = rnd_below(4) == 0;
			produce(c, list[n].qpn, list[n].tag);
			if (send[n])
				cqe->op_own = (uint8_t)((cqe->op_own & 1) | (rnd_below(2) ? MLX5_CQE_REQ : MLX5_CQE_REQ_ERR) << 4);
			else if (rnd_below(4) == 0)
				cqe->op_own = (uint8_t)((cqe->op_own & 1) | MLX5_CQE_RESP_ERR << 4);
			if (!send[n])
				must(inlay_post_srq_recv(&srq, &sge, 1));
			n++;
		}
		qpn = 0x100 + rnd_below(5);
		for (i = removed = receives = 0; i < n; i++) {
			removed += list[i].qpn == qpn;
			receives += list[i].qpn == qpn && !send[i];
		}
		i = inlay_srq_pending(&srq);
		assert_int_equal(inlay_cq_clean(&c->cq, qpn, inlay_srq_gone, &srq), removed);
		c->ci += removed;
		assert_int_equal(inlay_srq_pending(&srq), i - receives);
		for (i = removed = 0; i < n; i++) {
			if (list[i].qpn == qpn)
				continue;
			send[removed] = send[i];
			list[removed++] = list[i];
		}
		n = removed;
		/* The oldest one or two are polled as ever */
		for (i = rnd_below(3); i && n; i--, n--) {
			const struct mlx5_cqe64 *got = inlay_cq_peek(&c->cq);

			assert_non_null(got);
			assert_int_equal(inlay_cqe_qpn(got), list[0].qpn);
			assert_int_equal(inlay_cqe_wqe_counter(got), list[0].tag);
			assert_int_equal(inlay_cqe_is_send(got), send[0]);
			if (!send[0])
				assert_true(0 < inlay_srq_release(&srq, got));
			inlay_cq_advance(&c->cq, 1);
			c->ci++;
			memmove(send, send + 1, (n - 1) * sizeof(send[0]));
			memmove(list, list + 1, (n - 1) * sizeof(list[0]));
		}
		for (i = receives = 0; i < n; i++)
			receives += !send[i];
		assert_int_equal(inlay_srq_pending(&srq), receives);
	}
	rawcq_free(c);
}

/* ---- arming ---- */

static void arm(void **state)
{
	struct rawcq *c = rawcq_make(8, 64);
	uint32_t sn, i;

	(void)state;
	for (sn = 0; sn < 9; sn++)
		for (i = 0; i < 2; i++) {
			uint32_t word = (sn & 3) << 28 | i << 24 | (c->ci & 0xffffff);

			produce(c, 1, c->pi);
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

static void arm_without_page(void **state)
{
	uint8_t *buf = (uint8_t *)pages(8 * 64);
	uint32_t dbrec[2] = {1, 2};
	struct inlay_cq cq;

	(void)state;
	must(inlay_cq_init(&cq, buf, 8, 64, dbrec, NULL, 1));
	assert_int_equal(inlay_cq_arm(&cq, 0), -ENOTSUP);
	assert_int_equal(inlay_cq_arm(&cq, 1), -ENOTSUP);
	assert_int_equal(dbrec[1], 2);
	free(buf);
}

/*
 * A reader that frees nothing while the device goes round: CQE n lies in slot n % size with lap n / size, as one bit or eight. What peek
 * must say follows from the last CQE that the slot took.
 */
static void lapped_by(uint32_t size, bool enhanced, uint32_t start, uint32_t laps)
{
	struct rawcq *c = rawcq_make(size, 64);
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

		raw_preset(r, pi);
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
		cmocka_unit_test(uar_arguments),
		cmocka_unit_test(sq_arguments),
		cmocka_unit_test(uar_owners),
		cmocka_unit_test(rq_arguments),
		cmocka_unit_test(cq_arguments),
		cmocka_unit_test(credit),
		cmocka_unit_test(credit_bodies),
		cmocka_unit_test(from_zero),
		cmocka_unit_test(resets),
		cmocka_unit_test(release_stale),
		cmocka_unit_test(release_future),
		cmocka_unit_test(full),
		cmocka_unit_test(no_atomics),
		cmocka_unit_test(longest),
		cmocka_unit_test(doorbells_shared),
		cmocka_unit_test(doorbells_serial),
		cmocka_unit_test(doorbells_locked),
		cmocka_unit_test(doorbells_no_bf),
		cmocka_unit_test(halves),
		cmocka_unit_test(commit_rings),
		cmocka_unit_test(commit_takes_along),
		cmocka_unit_test(posts_ring),
		cmocka_unit_test(prints),
		cmocka_unit_test(indices),
#if INLAY_CHECKED
		cmocka_unit_test(checks),
		cmocka_unit_test(operations),
#endif
		cmocka_unit_test(rq_random),
		cmocka_unit_test(rq_full),
		cmocka_unit_test(rq_release_wrong),
		cmocka_unit_test(rq_recycles),
		cmocka_unit_test(srq_arguments),
		cmocka_unit_test(srq_prepared),
		cmocka_unit_test(srq_random),
		cmocka_unit_test(rq_out_of_order),
		cmocka_unit_test(srq_cyclic),
		cmocka_unit_test(srq_mad),
		cmocka_unit_test(cq_random),
		cmocka_unit_test(cq_indices),
		cmocka_unit_test(cq_init_arrived),
		cmocka_unit_test(lapped),
		cmocka_unit_test(clean),
		cmocka_unit_test(clean_srq),
		cmocka_unit_test(arm),
		cmocka_unit_test(arm_without_page),
	};

	a_cqe = cqe_of(MLX5_CQE_RESP_SEND, QPN, 0);
	return cmocka_run_group_tests_name("rings", tests, open_nothing, NULL);
}
