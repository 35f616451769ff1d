/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects.c: umems, registers and whole objects by device commands, as their builders make
 * them: what is refused, what a failure leaves behind (nothing), in which order all of it goes, and
 * that what comes out is a queue.
 */
#include "common.h"
#include "rig.h"
#include <poll.h>
#include <sys/eventfd.h>

#define PAGE 4096u
#define DATA (ARENA - 16 * PAGE) /* the end of the arena: what is sent and received */

static struct ibv_mr *mr; /* the whole arena */

static int open_all(void **state)
{
	if (rig_open(state))
		return -1;
	mr = ibv_reg_mr(dev.pd, rig.memory, ARENA, ALL_ACCESS);
	return mr ? 0 : -1;
}

static int close_all(void **state)
{
	return ibv_dereg_mr(mr) ? -1 : rig_close(state);
}

static struct inlay_devx_cq_attr cq_attr(const struct inlay_devx_uar *uar, uint32_t cqes, uint32_t cqe_size)
{
	struct inlay_devx_cq_attr attr = cq_want(cqes, cqe_size);

	attr.uar = uar;
	return attr;
}

static struct inlay_devx_qp_attr qp_attr(struct inlay_devx_uar *uar, uint32_t cqn, uint32_t type)
{
	struct inlay_devx_qp_attr attr = qp_want(cqn, cqn, 64, 64);

	attr.uar = uar;
	attr.type = type;
	return attr;
}

static void said(const struct inlay_devx_error *error, uint8_t status, int err)
{
	char text[INLAY_DEVX_TEXT];

	if (error->status != status || error->err != err)
		fail_msg("%s", inlay_devx_error_text(error, text, sizeof(text)));
}

/* A call on a builder must do; else the device's own words */
#define made(call, object) \
	do { \
		char text_[INLAY_DEVX_TEXT]; \
		int err_ = (call); \
 \
		if (err_) \
			fail_msg("%s: %d: %s", #call, err_, inlay_devx_error_text(&(object)->error, text_, sizeof(text_))); \
	} while (0)

/* ---- Umems, registers ---- */

/* Where a ring of so many bytes is that begins there, with its record at the umem's beginning */
static uint8_t *ring_at(struct inlay_devx_place place, uint64_t bytes)
{
	struct inlay_devx_place first = {place.umem, 0};
	uint32_t *record;
	uint8_t *ring;

	return inlay_devx_places_(place, bytes, first, &ring, &record) ? NULL : ring;
}

static void *record_at(struct inlay_devx_place place)
{
	uint32_t *record;
	uint8_t *ring;

	return inlay_devx_places_(place, 0, place, &ring, &record) ? NULL : record;
}

static void umems(void **state)
{
	struct inlay_devx_umem umem, again;
	struct inlay_devx_place place;

	(void)state;
	must(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, 3 * PAGE, IBV_ACCESS_LOCAL_WRITE, 0));
	assert_ptr_equal(umem.addr, rig.memory);
	assert_int_equal(umem.len, 3 * PAGE);
	assert_int_equal(umem.page, 0);
	must(inlay_devx_umem_reg(&again, dev.ctx, rig.memory, 3 * PAGE, 0, 0));
	assert_int_not_equal(again.id, umem.id);
	/* Records anywhere, rings at the beginning */
	place.umem = &umem;
	place.offset = 0;
	assert_ptr_equal(ring_at(place, 3 * PAGE), rig.memory);
	assert_null(ring_at(place, 3 * PAGE + 1));
	place.offset = PAGE;
	assert_null(ring_at(place, 64));
	assert_ptr_equal(record_at(place), rig.memory + PAGE);
	place.offset = PAGE + 4;
	assert_null(record_at(place));
	place.offset = 3 * PAGE - 8;
	assert_non_null(record_at(place));
	place.offset = 3 * PAGE;
	assert_null(record_at(place));
	place.offset = UINT64_MAX - 7;
	assert_null(record_at(place));
	place.umem = NULL;
	place.offset = 0;
	assert_null(record_at(place));
	must(inlay_devx_umem_dereg(&umem));
	must(inlay_devx_umem_dereg(&umem)); /* nothing */
	assert_null(umem.umem);
	place.umem = &umem;
	assert_null(record_at(place));
	must(inlay_devx_umem_dereg(&again));

	/* Pages */
	must(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, PAGE, 0, 0)); /* any size */
	assert_int_equal(umem.page, 0);
	must(inlay_devx_umem_dereg(&umem));
	assert_int_equal(inlay_devx_umem_reg_dmabuf(&umem, dev.ctx, 0, 0, PAGE, 0, 0), -EINVAL);
	assert_int_equal(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, PAGE, 0, PAGE | 2048), -EINVAL);
	assert_null(umem.umem);
	must(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, 8 * PAGE, 0, 2 * PAGE | PAGE));
	assert_int_equal(umem.page, 2 * PAGE);
	place.offset = 2 * PAGE;
	assert_ptr_equal(ring_at(place, 64), rig.memory + 2 * PAGE);
	place.offset = PAGE;
	assert_null(ring_at(place, 64));
	must(inlay_devx_umem_dereg(&umem));
	/* A ring begins on a page, wherever its umem does */
	must(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory + 64, 8 * PAGE, 0, PAGE));
	assert_null(ring_at(place, 64));
	place.offset = 0;
	assert_null(ring_at(place, 64));
	assert_ptr_equal(record_at(place), rig.memory + 64);
	must(inlay_devx_umem_dereg(&umem));

	/* What cannot be */
	assert_int_equal(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, PAGE, IBV_ACCESS_REMOTE_WRITE, 0), -EINVAL);
	assert_null(umem.umem);
	assert_int_equal(inlay_devx_umem_reg_dmabuf(&umem, dev.ctx, -1, 0, PAGE, 0, PAGE), -EBADF);
	assert_null(umem.umem);
	must(inlay_devx_umem_dereg(&umem));
}

static void registers(void **state)
{
	struct inlay_devx_uar a, b, nc;
	uint32_t eqn = 99;

	(void)state;
	must(inlay_devx_uar_alloc(&a, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	must(inlay_devx_uar_alloc(&b, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_LOCKED));
	must(inlay_devx_uar_alloc(&nc, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_NC, INLAY_UAR_DOORBELL));
	assert_ptr_not_equal(a.uar.reg, b.uar.reg);
	assert_ptr_not_equal(a.uar.reg, nc.uar.reg);
	assert_true(a.uar.size >= 64 && inlay_is_pow2(a.uar.size));
	assert_int_equal(nc.uar.size, 0);
	assert_int_equal((uintptr_t)a.uar.reg % (2 * a.uar.size), 0);
	assert_true(a.uar.reg >= a.page && a.uar.reg < a.page + PAGE);
	assert_int_equal(a.uar.mode, INLAY_UAR_SERIAL);
	a.uar.queues = 1;
	assert_int_equal(inlay_devx_uar_free(&a), -EBUSY);
	a.uar.queues = 0;
	must(inlay_devx_uar_free(&a));
	must(inlay_devx_uar_free(&a));
	must(inlay_devx_uar_free(&b));
	must(inlay_devx_uar_free(&nc));
	assert_int_equal(inlay_devx_uar_alloc(&a, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, 77), -EINVAL);
	assert_null(a.devx);
	must(mlx5dv_devx_query_eqn(dev.ctx, 0, &eqn));
	assert_true(eqn < 256 && eqn != 99);
}

/* ---- CQ ---- */

static void completion_queues(void **state)
{
	struct inlay_devx_cq_attr attr, bad;
	struct inlay_query_cq_out out;
	struct inlay_devx_umem mute;
	struct inlay_devx_uar uar;
	struct inlay_devx_cq cq;
	uint32_t size, i;

	(void)state;
	assert_int_equal(inlay_devx_cq_size(256, 64), 16384);
	assert_int_equal(inlay_devx_cq_size(256, 128), 32768);
	assert_int_equal(inlay_devx_cq_size(255, 64), 0);
	assert_int_equal(inlay_devx_cq_size(256, 32), 0);
	assert_int_equal(inlay_devx_cq_size(1u << 23, 64), 0);
	must(inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_NC, INLAY_UAR_DOORBELL));
	for (size = 64; size <= 128; size += 64) {
		attr = cq_attr(&uar, 64, size);
		memset(rig.memory + attr.ring.offset, 0, inlay_devx_cq_size(64, size)); /* 0 would be a completion */
		memset(rig.memory + attr.record.offset, 0xff, 8);
		made(inlay_devx_cq_create(&cq, dev.ctx, &attr), &cq);
		said(&cq.error, 0, 0);
		assert_null(inlay_cq_peek(&cq.cq));
		assert_true(all_bytes(rig.memory + attr.record.offset, 4, 0));
		for (i = 0; i < 64; i++)
			assert_int_equal(rig.memory[attr.ring.offset + (i + 1) * size - 1] >> 4, 0xf);
		made(context(&cq, CQ, cq.cqn, &out), &cq);
		assert_int_equal(inlay_cqc_get(&out.cqc, INLAY_CQC_LOG_CQ_SIZE), 6);
		assert_int_equal(inlay_cqc_get(&out.cqc, INLAY_CQC_STATUS), 0);
		/* The umem is in use */
		assert_int_equal(inlay_devx_umem_dereg(&rig.umem), -EBUSY);
		must(inlay_devx_cq_destroy(&cq));
		must(inlay_devx_cq_destroy(&cq));
		assert_int_equal(context(&cq, CQ, cq.cqn, &out), -EINVAL);
	}

	/* What cannot be */
#define REFUSED(change, result) \
	do { \
		bad = attr; \
		change; \
		assert_int_equal(inlay_devx_cq_create(&cq, dev.ctx, &bad), result); \
		assert_null(cq.obj); \
		must(inlay_devx_cq_destroy(&cq)); \
	} while (0)
	must(inlay_devx_umem_reg(&mute, dev.ctx, rig.memory, PAGE, 0, 0));
	REFUSED(bad.cqes = 0, -EINVAL);
	REFUSED(bad.cqes = 63, -EINVAL);
	REFUSED(bad.cqe_size = 32, -EINVAL);
	REFUSED(bad.uar = NULL, -EINVAL);
	REFUSED(bad.flags = 2, -EINVAL);
	REFUSED(bad.period = 4096, -EINVAL);
	REFUSED(bad.ring.umem = NULL, -EINVAL);
	REFUSED(bad.ring.offset += 64, -EINVAL);
	REFUSED(bad.ring.offset = ARENA - PAGE, -EINVAL);
	REFUSED(bad.record.offset += 4, -EINVAL);
	REFUSED((bad.ring.umem = &mute, bad.ring.offset = 0, bad.cqes = 8), -EPERM);
	REFUSED(bad.vector = 1u << 20, -ENOENT);
#undef REFUSED
	must(inlay_devx_umem_dereg(&mute));
	must(inlay_devx_uar_free(&uar));
}

/* ---- QP ---- */

struct pair {
	struct inlay_devx_uar uar[2];
	struct inlay_devx_cq cq[2];
	struct inlay_devx_qp qp[2];
	struct inlay_devx_path path;
};

static void pair_make(struct pair *p, uint32_t type, uint32_t flags)
{
	struct inlay_connect_record address[2];
	struct inlay_devx_cq_attr cq;
	struct inlay_devx_qp_attr qp;
	int i;

	p->path = inlay_devx_path_defaults();
	p->path.gid_index = (uint8_t)dev.gid_index;
	p->path.access = ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE;
	p->path.psn = 0xfffffe;
	p->path.qkey = QKEY;
	for (i = 0; i < 2; i++) {
		must(inlay_devx_uar_alloc(&p->uar[i], dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
		cq = cq_attr(&p->uar[i], 256, 64);
		made(inlay_devx_cq_create(&p->cq[i], dev.ctx, &cq), &p->cq[i]);
		qp = qp_attr(&p->uar[i], p->cq[i].cq.cqn, type);
		qp.flags = flags;
		made(inlay_devx_qp_create(&p->qp[i], dev.ctx, &qp), &p->qp[i]);
		made(inlay_devx_qp_address(&p->qp[i], &p->path, &address[i]), &p->qp[i]);
	}
	for (i = 0; i < 2; i++)
		made(inlay_devx_qp_connect(&p->qp[i], &p->path, type == INLAY_QP_ST_UD ? NULL : &address[!i]),
		     &p->qp[i]);
}

static void pair_free(struct pair *p)
{
	int i;

	for (i = 0; i < 2; i++)
		must(inlay_devx_qp_destroy(&p->qp[i]));
	for (i = 0; i < 2; i++) {
		must(inlay_devx_cq_destroy(&p->cq[i]));
		must(inlay_devx_uar_free(&p->uar[i]));
	}
}

static struct ibv_sge data(size_t offset, uint32_t len)
{
	struct ibv_sge sge;

	sge.addr = (uintptr_t)rig.memory + DATA + offset;
	sge.length = len;
	sge.lkey = mr->lkey;
	return sge;
}

/* A good completion of this kind, freed; its credit goes back */
static void done(struct inlay_devx_cq *cq, struct inlay_devx_qp *qp)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&cq->cq);

	if (inlay_cqe_is_error(cqe)) {
		inlay_cqe_print(stderr, cqe);
		fail();
	}
	assert_int_equal(inlay_cqe_qpn(cqe), qp->qpn);
	if (inlay_cqe_is_send(cqe))
		assert_true(0 < inlay_sq_release(&qp->sq, cqe));
	else
		assert_true(0 < inlay_rq_release(&qp->rq, cqe));
	inlay_cq_advance(&cq->cq, 1);
}

static void a_pair_talks(void **state)
{
	static const uint32_t types[] = {INLAY_QP_ST_RC, INLAY_QP_ST_UC};
	struct inlay_query_qp_out out;
	struct ibv_sge to, from;
	struct pair p;
	uint32_t t, i, round;

	(void)state;
	for (t = 0; t < ARRAY(types); t++) {
		rig_empty(NULL);
		pair_make(&p, types[t], 0);
		for (i = 0; i < 2; i++) {
			made(context(&p.qp[i], QP, qpn, &out), &p.qp[i]);
			assert_int_equal(inlay_qpc_get(&out.qpc, INLAY_QPC_STATE), INLAY_QP_STATE_RTS);
			assert_int_equal(inlay_qpc_get(&out.qpc, INLAY_QPC_REMOTE_QPN), p.qp[!i].qpn);
			assert_int_equal(p.qp[i].state, INLAY_QP_STATE_RTS);
		}
		for (round = 0; round < 300; round++) { /* several times around */
			i = round & 1;
			fill(rig.memory + DATA, 1000, round);
			from = data(0, 1000);
			to = data(8192, 1024);
			must(inlay_post_recv(&p.qp[!i].rq, &to, 1));
			inlay_rq_ring(&p.qp[!i].rq);
			must(inlay_post_send(&p.qp[i].sq, &from, 1, INLAY_SIGNALED));
			inlay_sq_ring(&p.qp[i].sq);
			done(&p.cq[i], &p.qp[i]);
			done(&p.cq[!i], &p.qp[!i]);
			assert_int_equal(differs(rig.memory + DATA + 8192, 1000, round), 1000);
			must(inlay_post_write_inline(&p.qp[i].sq, to.addr, mr->rkey, &round, 4, INLAY_SIGNALED));
			inlay_sq_ring(&p.qp[i].sq);
			done(&p.cq[i], &p.qp[i]);
			step();
			assert_memory_equal(rig.memory + DATA + 8192, &round, 4);
		}
		/* Into the error state and out of it */
		made(inlay_devx_qp_to_error(&p.qp[0]), &p.qp[0]);
		must(inlay_post_nop(&p.qp[0].sq, INLAY_SIGNALED));
		inlay_sq_ring(&p.qp[0].sq);
		assert_true(inlay_cqe_is_error(cqe_wait(&p.cq[0].cq)));
		made(inlay_devx_qp_to_reset(&p.qp[0]), &p.qp[0]);
		assert_int_equal(inlay_cq_clean(&p.cq[0].cq, p.qp[0].qpn, NULL, NULL), 1);
		assert_int_equal(inlay_sq_pending(&p.qp[0].sq), 0);
		pair_free(&p);
	}
}

static void one_talks_to_itself(void **state)
{
	struct inlay_devx_cq_attr cqa;
	struct inlay_devx_qp_attr qpa;
	struct inlay_devx_path path;
	struct inlay_devx_uar uar;
	struct inlay_devx_cq cq;
	struct inlay_devx_qp qp;
	struct ibv_sge sge;
	uint64_t *word = (uint64_t *)(void *)(rig.memory + DATA + 4096);

	(void)state;
	path = inlay_devx_path_defaults();
	path.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	must(inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	cqa = cq_attr(&uar, 64, 64);
	made(inlay_devx_cq_create(&cq, dev.ctx, &cqa), &cq);
	qpa = qp_attr(&uar, cq.cq.cqn, INLAY_QP_ST_RC);
	qpa.rq_wqes = 0;
	made(inlay_devx_qp_create(&qp, dev.ctx, &qpa), &qp);
	made(inlay_devx_qp_connect_self(&qp, &path), &qp);
	*word = 40;
	sge = data(0, 8);
	must(inlay_post_fetch_add(&qp.sq, (uintptr_t)word, mr->rkey, 2, &sge, INLAY_SIGNALED));
	inlay_sq_ring(&qp.sq);
	done(&cq, &qp);
	assert_int_equal(*word, 42);
	assert_int_equal(*(uint64_t *)(void *)(rig.memory + DATA), 40);
	/* A register with a queue, and a CQ with a QP, are not to be had */
	assert_int_equal(inlay_devx_uar_free(&uar), -EBUSY);
	assert_int_equal(inlay_devx_cq_destroy(&cq), -EBUSY);
	must(inlay_devx_qp_destroy(&qp));
	must(inlay_devx_qp_destroy(&qp));
	must(inlay_devx_cq_destroy(&cq));
	must(inlay_devx_uar_free(&uar));
}

static void queue_pairs_that_cannot_be(void **state)
{
	struct inlay_query_hca_cap_out cap;
	struct inlay_devx_qp_attr attr, bad;
	struct inlay_connect_record peer;
	bool no_dbr;
	struct inlay_devx_cq_attr cqa;
	struct inlay_devx_path path;
	struct inlay_devx_uar uar;
	struct inlay_devx_cq cq;
	struct inlay_devx_qp qp;

	(void)state;
	assert_int_equal(inlay_devx_qp_size(64, 64, 64), 8192);
	assert_int_equal(inlay_devx_qp_size(64, 0, 0), 4096);
	assert_int_equal(inlay_devx_qp_size(0, 4, 16), 64);
	assert_int_equal(inlay_devx_qp_size(0, 2, 16), 0);
	assert_int_equal(inlay_devx_qp_size(63, 0, 0), 0);
	assert_int_equal(inlay_devx_qp_size(65536, 0, 0), 0);
	must(inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	cqa = cq_attr(&uar, 64, 64);
	made(inlay_devx_cq_create(&cq, dev.ctx, &cqa), &cq);
	attr = qp_attr(&uar, cq.cq.cqn, INLAY_QP_ST_RC);
#define REFUSED(change) \
	do { \
		bad = attr; \
		change; \
		assert_int_equal(inlay_devx_qp_create(&qp, dev.ctx, &bad), -EINVAL); \
		assert_null(qp.obj); \
		assert_int_equal(uar.uar.queues, 0); \
		must(inlay_devx_qp_destroy(&qp)); \
	} while (0)
	REFUSED(bad.type = INLAY_QP_ST_DCT);
	REFUSED(bad.type = INLAY_QP_ST_RAW);
	REFUSED(bad.type = INLAY_QP_ST_DCI); /* without a shared queue */
	REFUSED(bad.sq_bbs = 65);
	REFUSED(bad.rq_stride = 8);
	REFUSED(bad.rq_wqes = 3);
	REFUSED(bad.uar = NULL);
	REFUSED(bad.max_ds = 64);
	REFUSED(bad.rq_type = INLAY_RQ_TYPE_SHARED); /* and a queue of its own */
	REFUSED(bad.rq_type = INLAY_RQ_TYPE_NONE);
	REFUSED(bad.scatter_req = 16);
	REFUSED(bad.flags = 8);
	REFUSED(bad.flags = INLAY_DEVX_QP_RNDV); /* and a send queue */
	REFUSED(bad.user_index = 1u << 24);
	REFUSED(bad.ring.offset += 64);
	REFUSED(bad.ring.umem = NULL);
	REFUSED(bad.record.umem = NULL);
	/* These the device refuses */
	REFUSED(bad.send_cqn = 0xfffff0);
	said(&qp.error, INLAY_CMD_STATUS_BAD_RES, -EINVAL);
	assert_int_equal(qp.error.opcode, INLAY_CMD_OP_CREATE_QP);
	REFUSED(bad.pdn = 0xfffff0);
	said(&qp.error, INLAY_CMD_STATUS_BAD_RES, -EINVAL);
#undef REFUSED
	/* Without a record, where the device cannot */
	must(inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL, &cap, NULL));
	no_dbr = inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_HCA_CAP_2) &&
		 !inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL_2, &cap, NULL) &&
		 inlay_hca_cap_2_get(&cap.cap.general_2, INLAY_HCA_CAP_2_SEND_DBR_MODE_NO_DBR_INT);
	bad = attr;
	bad.flags = INLAY_DEVX_QP_NO_SEND_RECORD;
	if (no_dbr) {
		made(inlay_devx_qp_create(&qp, dev.ctx, &bad), &qp);
		must(inlay_devx_qp_destroy(&qp));
	} else {
		assert_int_equal(inlay_devx_qp_create(&qp, dev.ctx, &bad), -ENOTSUP);
		assert_null(qp.obj);
	}
	/* Steps that do not fit */
	path = inlay_devx_path_defaults();
	made(inlay_devx_qp_create(&qp, dev.ctx, &attr), &qp);
	memset(&peer, 0, sizeof(peer));
	must(inlay_devx_qp_address(&qp, &path, &peer));
	assert_int_equal(inlay_devx_qp_to_rts(&qp, &path), -EINVAL);
	said(&qp.error, INLAY_CMD_STATUS_BAD_QP_STATE, -EINVAL);
	assert_int_equal(qp.state, INLAY_QP_STATE_RST);
	made(inlay_devx_qp_to_init(&qp, &path), &qp);
	assert_int_equal(inlay_devx_qp_to_rtr(&qp, &path, NULL), -EINVAL);
	peer.link = peer.link == INLAY_CONNECT_IB ? INLAY_CONNECT_ROCE_V2 : INLAY_CONNECT_IB;
	assert_int_equal(inlay_devx_qp_to_rtr(&qp, &path, &peer), -EINVAL);
	peer.link = peer.link == INLAY_CONNECT_IB ? INLAY_CONNECT_ROCE_V2 : INLAY_CONNECT_IB;
	if (peer.link != INLAY_CONNECT_IB) {
		memset(peer.mac, 0, sizeof(peer.mac));
		assert_int_equal(inlay_devx_qp_to_rtr(&qp, &path, &peer), -EINVAL);
		must(inlay_devx_address_resolve(&peer, dev.pd, &path));
		assert_false(all_bytes(peer.mac, sizeof(peer.mac), 0));
	}
	made(inlay_devx_qp_to_rtr(&qp, &path, &peer), &qp);
	made(inlay_devx_qp_to_reset(&qp), &qp);
	made(inlay_devx_qp_connect(&qp, &path, &peer), &qp);
	assert_int_equal(inlay_devx_qp_connect(&qp, &path, &peer), -EINVAL); /* is there */
	assert_int_equal(qp.state, INLAY_QP_STATE_RTS);
	must(inlay_devx_qp_destroy(&qp));
	assert_int_equal(inlay_devx_qp_to_error(&qp), -EINVAL);
	assert_int_equal(inlay_devx_qp_to_init(&qp, &path), -EINVAL);
	must(inlay_devx_cq_destroy(&cq));
	must(inlay_devx_uar_free(&uar));
}

/* The MAC that the device tells of its own GID, and that the kernel finds for it, are one */
static void addresses(void **state)
{
	struct inlay_connect_record mine, found;
	struct inlay_devx_path path;
	struct pair p;

	(void)state;
	pair_make(&p, INLAY_QP_ST_RC, 0);
	path = p.path;
	must(inlay_devx_qp_address(&p.qp[0], &path, &mine));
	assert_int_equal(mine.lid, dev.port.lid);
	assert_int_equal(mine.mtu, dev.port.active_mtu);
	assert_int_equal(mine.link == INLAY_CONNECT_IB, dev.port.link_layer != IBV_LINK_LAYER_ETHERNET);
	assert_memory_equal(mine.gid, dev.gid.raw, 16);
	found = mine;
	memset(found.mac, 0, sizeof(found.mac));
	must(inlay_devx_address_resolve(&found, dev.pd, &path));
	assert_memory_equal(&mine, &found, sizeof(mine));
	path.port = 9;
	assert_true(inlay_devx_qp_address(&p.qp[0], &path, &mine) < 0);
	path.port = 1;
	path.gid_index = 15;
	if (found.link != INLAY_CONNECT_IB)
		assert_int_equal(inlay_devx_qp_address(&p.qp[0], &path, &mine), -ENOENT);
	pair_free(&p);
}

/* ---- Shared queues ---- */

static void shared_receive_queues(void **state)
{
	struct inlay_devx_rmp_attr attr;
	struct inlay_devx_qp_attr qpa;
	struct inlay_query_rmp_out out;
	struct inlay_connect_record mine;
	struct inlay_devx_cq_attr cqa;
	struct inlay_devx_path path;
	struct inlay_devx_rmp rmp;
	struct inlay_devx_uar uar;
	struct inlay_devx_cq cq;
	struct inlay_devx_qp qp;
	struct ibv_sge sge;
	uint32_t cyclic, i, got, n;

	(void)state;
	assert_int_equal(inlay_devx_rmp_size(16, 64), 1024);
	assert_int_equal(inlay_devx_rmp_size(17, 64), 0);
	assert_int_equal(inlay_devx_rmp_size(16, 16), 0);
	must(inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	cqa = cq_attr(&uar, 256, 64);
	made(inlay_devx_cq_create(&cq, dev.ctx, &cqa), &cq);
	for (cyclic = 0; cyclic < 2; cyclic++) {
		memset(&attr, 0, sizeof(attr));
		attr.ring = place_ring(inlay_devx_rmp_size(16, 64));
		attr.record = place_record();
		attr.pdn = rig.pdn;
		attr.entries = 16;
		attr.stride = 64;
		attr.flags = cyclic ? INLAY_DEVX_RMP_CYCLIC : 0;
		made(inlay_devx_rmp_create(&rmp, dev.ctx, &attr), &rmp);
		assert_int_equal(inlay_srq_room(&rmp.srq), 15);
		qpa = qp_attr(&uar, cq.cq.cqn, INLAY_QP_ST_RC);
		qpa.rq_wqes = 0;
		qpa.rq_type = INLAY_RQ_TYPE_SHARED;
		qpa.srqn = rmp.rmpn;
		made(inlay_devx_qp_create(&qp, dev.ctx, &qpa), &qp);
		assert_int_equal(inlay_devx_rmp_destroy(&rmp), -EBUSY);
		path = inlay_devx_path_defaults();
		made(inlay_devx_qp_address(&qp, &path, &mine), &qp);
		made(inlay_devx_qp_connect(&qp, &path, &mine), &qp);
		for (i = 0; i < 100; i += n) {
			n = 1 + rnd_below(15);
			for (got = 0; got < n; got++) {
				sge = data(4096 + 64 * inlay_srq_index(&rmp.srq), 64);
				must(inlay_post_srq_recv(&rmp.srq, &sge, 1));
			}
			inlay_srq_ring(&rmp.srq);
			for (got = 0; got < n; got++) {
				uint32_t what = i + got;

				must(inlay_post_send_inline(&qp.sq, &what, 4, INLAY_SIGNALED));
			}
			inlay_sq_ring(&qp.sq);
			for (got = 0; got < 2 * n; got++) {
				const struct mlx5_cqe64 *cqe = cqe_wait(&cq.cq);

				assert_false(inlay_cqe_is_error(cqe));
				if (inlay_cqe_is_send(cqe)) {
					assert_true(0 < inlay_sq_release(&qp.sq, cqe));
				} else if (cyclic) {
					assert_true(0 < inlay_srq_release(&rmp.srq, cqe));
					assert_int_equal(inlay_srq_release(&rmp.srq, cqe), -EPROTO);
				} else {
					assert_true(0 < inlay_srq_release(&rmp.srq, cqe));
				}
				inlay_cq_advance(&cq.cq, 1);
			}
			assert_int_equal(inlay_srq_room(&rmp.srq), 15);
		}
		made(context(&rmp, RMP, rmpn, &out), &rmp);
		assert_int_equal(inlay_rmpc_get(&out.rmpc, INLAY_RMPC_STATE), INLAY_WQ_STATE_RDY);
		assert_int_equal(inlay_wqc_get(&out.rmpc.wq, INLAY_WQC_WQ_TYPE), cyclic);
		made(inlay_devx_rmp_arm(&rmp, 4), &rmp);
		assert_int_equal(inlay_devx_rmp_arm(&rmp, 16), -EINVAL);
		must(inlay_devx_qp_destroy(&qp));
		must(inlay_devx_rmp_destroy(&rmp));
		must(inlay_devx_rmp_destroy(&rmp));
	}
	attr.entries = 12;
	assert_int_equal(inlay_devx_rmp_create(&rmp, dev.ctx, &attr), -EINVAL);
	must(inlay_devx_cq_destroy(&cq));
	must(inlay_devx_uar_free(&uar));
}

/*
 * A cyclic queue against a model: entries come back in any order, what is posted next is always the
 * next, no entry is posted twice, completions of free entries are refused.
 */
static void cyclic_queues_in_any_order(void **state)
{
	enum { ENTRIES = 16, STRIDE = 32 };
	static uint8_t memory[ENTRIES * STRIDE] __attribute__((aligned(64)));
	struct mlx5_cqe64 cqe;
	struct inlay_srq srq;
	bool posted[ENTRIES] = {false};
	uint32_t next = 0, dbrec = 0, i, round;
	struct ibv_sge sge;

	(void)state;
	memset(&cqe, 0, sizeof(cqe));
	memset(&sge, 0, sizeof(sge));
	sge.length = 8;
	assert_int_equal(inlay_srq_init_cyclic(&srq, memory, 12, STRIDE, &dbrec), -EINVAL);
	assert_int_equal(inlay_srq_init_cyclic(&srq, memory, 1, STRIDE, &dbrec), -EINVAL);
	must(inlay_srq_init_cyclic(&srq, memory, ENTRIES, STRIDE, &dbrec));
	for (round = 0; round < 100000; round++) {
		uint32_t run = 0;

		/*
		 * What may be posted: the free ones from here on, but for the last, which is kept
		 */
		while (run < ENTRIES && !posted[(next + run) % ENTRIES])
			run++;
		assert_int_equal(inlay_srq_room(&srq), run - 1);
		if (rnd_below(2)) {
			int err = inlay_post_srq_recv(&srq, &sge, 1);

			assert_int_equal(err, run > 1 ? 0 : -EAGAIN);
			if (!err) {
				posted[next] = true;
				next = (next + 1) % ENTRIES;
				assert_int_equal(inlay_srq_index(&srq), next);
				inlay_srq_ring(&srq);
				assert_int_equal(inlay_from_be32(dbrec), (uint16_t)srq.pi);
			}
		} else {
			i = rnd_below(ENTRIES + 2);
			cqe.wqe_counter = inlay_to_be16((uint16_t)i);
			if (i < ENTRIES && posted[i]) {
				uint32_t after = run;

				/* As many as may be posted more: none while one before it is out */
				posted[i] = false;
				while (after < ENTRIES && !posted[(next + after) % ENTRIES])
					after++;
				assert_int_equal(inlay_srq_release(&srq, &cqe), after - run);
			} else {
				assert_int_equal(inlay_srq_release(&srq, &cqe), -EPROTO);
			}
		}
	}
}

/* ---- Datagrams, dynamic connections ---- */

/* An address vector to the port itself */
static struct inlay_av own_av(uint32_t qpn)
{
	struct ibv_ah_attr attr = own_path();
	struct ibv_ah *ah = ibv_create_ah(dev.pd, &attr);
	struct inlay_av av;

	assert_non_null(ah);
	must(inlay_av_from_ah(&av, ah, qpn, QKEY));
	must(ibv_destroy_ah(ah));
	return av;
}

static void datagrams(void **state)
{
	struct ibv_sge from, to;
	struct inlay_av av;
	struct pair p;

	(void)state;
	pair_make(&p, INLAY_QP_ST_UD, 0);
	av = own_av(p.qp[1].qpn);
	to = data(4096, 1024);
	from = data(0, 500);
	fill(rig.memory + DATA, 500, 5);
	must(inlay_post_recv(&p.qp[1].rq, &to, 1));
	inlay_rq_ring(&p.qp[1].rq);
	must(inlay_post_ud_send(&p.qp[0].sq, &av, &from, 1, INLAY_SIGNALED));
	inlay_sq_ring(&p.qp[0].sq);
	done(&p.cq[0], &p.qp[0]);
	done(&p.cq[1], &p.qp[1]);
	assert_int_equal(differs(rig.memory + DATA + 4096 + INLAY_GRH, 500, 5), 500);
	pair_free(&p);
}

static void dynamic_connections(void **state)
{
	const uint64_t key = 0x1122334455667788;
	struct inlay_query_hca_cap_out cap;
	struct inlay_devx_rmp_attr rmpa;
	struct inlay_devx_dct_attr dcta;
	struct inlay_devx_qp_attr qpa;
	struct inlay_devx_cq_attr cqa;
	struct inlay_devx_path path;
	struct inlay_devx_rmp rmp;
	struct inlay_devx_dct dct;
	struct inlay_devx_uar uar;
	struct inlay_devx_cq cq, rxcq;
	struct inlay_devx_qp dci;
	struct inlay_cursor at;
	struct ibv_sge from, to;
	struct inlay_av av;
	const struct mlx5_cqe64 *cqe;

	(void)state;
	must(inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL, &cap, NULL));
	if (!inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_DCT)) {
		print_message("# skipped: the device has no DC\n");
		skip();
	}
	must(inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	cqa = cq_attr(&uar, 64, 64);
	made(inlay_devx_cq_create(&cq, dev.ctx, &cqa), &cq);
	cqa = cq_attr(&uar, 64, 64);
	made(inlay_devx_cq_create(&rxcq, dev.ctx, &cqa), &rxcq);
	memset(&rmpa, 0, sizeof(rmpa));
	rmpa.ring = place_ring(inlay_devx_rmp_size(16, 64));
	rmpa.record = place_record();
	rmpa.pdn = rig.pdn;
	rmpa.entries = 16;
	rmpa.stride = 64;
	made(inlay_devx_rmp_create(&rmp, dev.ctx, &rmpa), &rmp);
	path = inlay_devx_path_defaults();
	path.access = IBV_ACCESS_REMOTE_WRITE;
	memset(&dcta, 0, sizeof(dcta));
	dcta.key = key;
	dcta.pdn = rig.pdn;
	dcta.cqn = rxcq.cq.cqn;
	assert_int_equal(inlay_devx_dct_create(&dct, dev.ctx, &dcta, &path), -EINVAL); /* no shared queue */
	dcta.srqn = rmp.rmpn;
	made(inlay_devx_dct_create(&dct, dev.ctx, &dcta, &path), &dct);
	qpa = qp_attr(&uar, cq.cq.cqn, INLAY_QP_ST_DCI);
	qpa.rq_wqes = 0;
	qpa.rq_type = INLAY_RQ_TYPE_SHARED;
	qpa.srqn = rmp.rmpn;
	made(inlay_devx_qp_create(&dci, dev.ctx, &qpa), &dci);
	made(inlay_devx_qp_connect(&dci, &path, NULL), &dci);
	assert_int_equal(inlay_devx_rmp_destroy(&rmp), -EBUSY);

	av = own_av(dct.dctn);
	inlay_av_to_dct(&av, dct.dctn, key);
	fill(rig.memory + DATA, 100, 61);
	from = data(0, 100);
	to = data(4096, 1024);
	must(inlay_post_srq_recv(&rmp.srq, &to, 1));
	inlay_srq_ring(&rmp.srq);
	must(inlay_post_ud_send(&dci.sq, &av, &from, 1, INLAY_SIGNALED));
	inlay_sq_ring(&dci.sq);
	done(&cq, &dci);
	cqe = cqe_wait(&rxcq.cq);
	assert_false(inlay_cqe_is_error(cqe));
	assert_true(0 < inlay_srq_release(&rmp.srq, cqe));
	inlay_cq_advance(&rxcq.cq, 1);
	assert_int_equal(differs(rig.memory + DATA + 4096, 100, 61), 100);
	must(inlay_sq_begin(&dci.sq, 2, &at));
	at = inlay_seg_av(at, &av);
	at = inlay_seg_raddr(at, to.addr + 512, mr->rkey);
	at = inlay_seg_data(at, from.addr, from.length, from.lkey);
	inlay_sq_commit(&dci.sq, at, MLX5_OPCODE_RDMA_WRITE, 0, INLAY_SIGNALED, 0);
	inlay_sq_ring(&dci.sq);
	done(&cq, &dci);
	assert_int_equal(differs(rig.memory + DATA + 4096 + 512, 100, 61), 100);

	must(inlay_devx_qp_destroy(&dci));
	must(inlay_devx_dct_destroy(&dct));
	must(inlay_devx_dct_destroy(&dct));
	must(inlay_devx_rmp_destroy(&rmp));
	must(inlay_devx_cq_destroy(&cq));
	must(inlay_devx_cq_destroy(&rxcq));
	must(inlay_devx_uar_free(&uar));
}

/* ---- Beside verbs ---- */

/*
 * A QP of commands under a verbs CQ and on a verbs SRQ, its peer a verbs QP under a CQ of commands'
 */
static void objects_of_both_kinds(void **state)
{
	struct inlay_connect_record mine;
	struct ibv_qp_init_attr verbs;
	struct ibv_srq_init_attr srqa;
	struct inlay_devx_qp_attr qpa;
	struct inlay_devx_path path;
	struct inlay_devx_uar uar;
	struct inlay_devx_qp qp;
	struct inlay_uar their_uar;
	struct ibv_srq *ibsrq;
	struct inlay_srq srq;
	struct inlay_sq their_sq;
	struct inlay_cq cq, their_cq;
	struct ibv_cq *ibcq, *their_ibcq;
	struct ibv_qp_attr a;
	struct ibv_qp *ibqp;
	struct ibv_sge sge;
	const struct mlx5_cqe64 *cqe;
	uint32_t i;

	(void)state;
	ibcq = ibv_create_cq(dev.ctx, 63, NULL, NULL, 0);
	their_ibcq = ibv_create_cq(dev.ctx, 63, NULL, NULL, 0);
	memset(&srqa, 0, sizeof(srqa));
	srqa.attr.max_wr = 16;
	srqa.attr.max_sge = 1;
	ibsrq = ibv_create_srq(dev.pd, &srqa);
	memset(&verbs, 0, sizeof(verbs));
	verbs.qp_type = IBV_QPT_RC;
	verbs.send_cq = verbs.recv_cq = their_ibcq;
	verbs.cap.max_send_wr = verbs.cap.max_recv_wr = 16;
	verbs.cap.max_send_sge = verbs.cap.max_recv_sge = 1;
	ibqp = ibv_create_qp(dev.pd, &verbs);
	assert_true(ibcq && their_ibcq && ibsrq && ibqp);
	must(inlay_cq_from_cq(&cq, ibcq, NULL));
	must(inlay_cq_from_cq(&their_cq, their_ibcq, NULL));
	must(inlay_srq_from_srq(&srq, ibsrq, NULL, NULL));
	must(inlay_uar_from_qp(&their_uar, ibqp, NULL));
	must(inlay_sq_from_qp(&their_sq, ibqp, &their_uar, NULL, NULL));

	must(inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	qpa = qp_attr(&uar, cq.cqn, INLAY_QP_ST_RC);
	qpa.rq_wqes = 0;
	qpa.rq_type = INLAY_RQ_TYPE_SHARED;
	must(inlay_srqn_from_srq(&qpa.srqn, ibsrq));
	made(inlay_devx_qp_create(&qp, dev.ctx, &qpa), &qp);
	path = inlay_devx_path_defaults();
	path.gid_index = (uint8_t)dev.gid_index;
	made(inlay_devx_qp_address(&qp, &path, &mine), &qp);
	mine.qpn = ibqp->qp_num; /* on the same port */
	made(inlay_devx_qp_connect(&qp, &path, &mine), &qp);
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	must(ibv_modify_qp(ibqp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = dev.port.active_mtu;
	a.dest_qp_num = qp.qpn;
	a.max_dest_rd_atomic = 16;
	a.ah_attr = own_path();
	must(ibv_modify_qp(ibqp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 10;
	a.retry_cnt = a.rnr_retry = 7;
	a.max_rd_atomic = 16;
	must(ibv_modify_qp(ibqp, &a,
			   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			   IBV_QP_MAX_QP_RD_ATOMIC));

	for (i = 0; i < 200; i++) {
		sge = data(4096, 64);
		must(inlay_post_srq_recv(&srq, &sge, 1));
		inlay_srq_ring(&srq);
		must(inlay_post_send_inline(&their_sq, &i, 4, INLAY_SIGNALED));
		inlay_sq_ring(&their_sq);
		cqe = cqe_wait(&their_cq);
		assert_false(inlay_cqe_is_error(cqe));
		assert_true(0 < inlay_sq_release(&their_sq, cqe));
		inlay_cq_advance(&their_cq, 1);
		cqe = cqe_wait(&cq);
		assert_false(inlay_cqe_is_error(cqe));
		assert_int_equal(inlay_cqe_qpn(cqe), qp.qpn);
		assert_int_equal(inlay_cqe_byte_count(cqe), 4);
		assert_true(0 < inlay_srq_release(&srq, cqe));
		inlay_cq_advance(&cq, 1);
	}
	must(inlay_devx_qp_destroy(&qp));
	inlay_sq_fini(&their_sq);
	must(ibv_destroy_qp(ibqp));
	must(ibv_destroy_srq(ibsrq));
	must(ibv_destroy_cq(ibcq));
	must(ibv_destroy_cq(their_ibcq));
	must(inlay_devx_uar_free(&uar));
}

/* ---- Tag matching ---- */

/* The queue, and its command QP: what is done with them is tag.h's */
static void tag_matching_queues(void **state)
{
	struct inlay_query_hca_cap_out cap;
	struct inlay_devx_xrq_attr attr;
	struct inlay_devx_qp_attr qpa;
	struct inlay_query_xrq_out out;
	struct inlay_devx_cq_attr cqa;
	struct inlay_devx_path path;
	struct inlay_devx_uar uar;
	struct inlay_devx_xrq xrq;
	struct inlay_devx_cq cq;
	struct inlay_devx_qp qp;

	(void)state;
	must(inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL, &cap, NULL));
	if (!inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_TAG_MATCHING)) {
		print_message("# skipped: the device has no tag matching by command\n");
		skip();
	}
	must(inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	cqa = cq_attr(&uar, 64, 64);
	made(inlay_devx_cq_create(&cq, dev.ctx, &cqa), &cq);
	memset(&attr, 0, sizeof(attr));
	attr.shared.ring = place_ring(inlay_devx_rmp_size(64, 64));
	attr.shared.record = place_record();
	attr.shared.pdn = rig.pdn;
	attr.shared.entries = 64;
	attr.shared.stride = 64;
	attr.cqn = cq.cq.cqn;
	assert_int_equal(inlay_devx_xrq_create(&xrq, dev.ctx, &attr), -EINVAL); /* no tags */
	attr.tags = 20;
	attr.flags = inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_RNDV_OFFLOAD_RC) ? INLAY_DEVX_XRQ_RNDV : 0;
	made(inlay_devx_xrq_create(&xrq, dev.ctx, &attr), &xrq);
	assert_int_equal(xrq.log_list, 6);
	assert_int_equal(inlay_srq_room(&xrq.srq), 63);
	made(context(&xrq, XRQ, xrqn, &out), &xrq);
	assert_int_equal(inlay_xrqc_get(&out.xrqc, INLAY_XRQC_LOG_MATCHING_LIST_SZ), 6);
	qpa = qp_attr(&uar, cq.cq.cqn, INLAY_QP_ST_RC);
	qpa.rq_wqes = 0;
	qpa.rq_type = INLAY_RQ_TYPE_SHARED;
	qpa.srqn = xrq.xrqn;
	made(inlay_devx_qp_create(&qp, dev.ctx, &qpa), &qp);
	path = inlay_devx_path_defaults();
	made(inlay_devx_qp_connect_self(&qp, &path), &qp);
	assert_int_equal(inlay_devx_xrq_destroy(&xrq), -EBUSY);
	must(inlay_devx_qp_destroy(&qp));
	must(inlay_devx_xrq_destroy(&xrq));
	must(inlay_devx_xrq_destroy(&xrq));
	must(inlay_devx_cq_destroy(&cq));
	must(inlay_devx_uar_free(&uar));
}

/* ---- Memory keys ---- */

static void memory_keys(void **state)
{
	struct inlay_devx_mkey_attr attr, bad;
	uint64_t box[64];
	struct inlay_devx_mkey key, list;
	struct inlay_query_mkey_out out;
	struct ibv_sge sge[4];
	struct pair p;
	uint64_t value;
	int i;

	(void)state;
	memset(&attr, 0, sizeof(attr));
	attr.addr = 0x7000000000;
	attr.len = 2 * PAGE;
	attr.memory.umem = &rig.umem;
	attr.memory.offset = DATA;
	attr.pdn = rig.pdn;
	attr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	attr.tag = 0x42;
	made(inlay_devx_mkey_create(&key, dev.ctx, &attr), &key);
	assert_int_equal(key.key & 0xff, 0x42);
	made(context(&key, MKEY, key >> 8, &out), &key);
	assert_true(inlay_mkc_get(&out.mkc, INLAY_MKC_LEN) == attr.len);
	assert_true(inlay_mkc_get(&out.mkc, INLAY_MKC_START_ADDR) == attr.addr);
	pair_make(&p, INLAY_QP_ST_RC, 0);
	value = 0x1122334455667788;
	must(inlay_post_write_inline(&p.qp[0].sq, attr.addr + PAGE, key.key, &value, 8, INLAY_SIGNALED));
	inlay_sq_ring(&p.qp[0].sq);
	done(&p.cq[0], &p.qp[0]);
	assert_memory_equal(rig.memory + DATA + PAGE, &value, 8);

	/* Two pieces in the other order, of different lengths; then of one */
	for (i = 0; i < 2; i++) {
		sge[0] = data(3 * PAGE, 4096);
		sge[1] = data(PAGE, i ? 4096 : 100);
		attr.addr = 0x10000000;
		attr.len = 4096 + (i ? 4096 : 100);
		attr.log_entity = i ? 12 : 0;
		attr.tag = (uint8_t)(7 + i);
		assert_int_equal(inlay_devx_mkey_create_list(&list, dev.ctx, &attr, sge, 2, box,
							     inlay_devx_mkey_size(2) - 1), -ENOBUFS);
		made(inlay_devx_mkey_create_list(&list, dev.ctx, &attr, sge, 2, box, sizeof(box)), &list);
		memset(rig.memory + DATA + PAGE, 0, 8);
		memset(rig.memory + DATA + 3 * PAGE, 0, PAGE);
		/* Across the border of both */
		must(inlay_post_write_inline(&p.qp[0].sq, attr.addr + 4096 - 4, list.key, &value, 8, INLAY_SIGNALED));
		inlay_sq_ring(&p.qp[0].sq);
		done(&p.cq[0], &p.qp[0]);
		assert_memory_equal(rig.memory + DATA + 3 * PAGE + 4092, &value, 4);
		assert_memory_equal(rig.memory + DATA + PAGE, (uint8_t *)&value + 4, 4);
		must(inlay_devx_mkey_destroy(&list));
		must(inlay_devx_mkey_destroy(&list));
	}

	attr.log_entity = 0;
	attr.addr = 0x7000000000;
	attr.len = 2 * PAGE;
#define REFUSED(change, result) \
	do { \
		bad = attr; \
		change; \
		assert_int_equal(inlay_devx_mkey_create(&list, dev.ctx, &bad), result); \
		assert_null(list.obj); \
	} while (0)
	REFUSED(bad.len = 0, -EINVAL);
	REFUSED(bad.addr += 8, -EINVAL);
	REFUSED(bad.memory.umem = NULL, -EINVAL);
	REFUSED(bad.memory.offset = ARENA, -EINVAL);
	REFUSED(bad.memory.offset = 64, -EINVAL);
	REFUSED(bad.access = IBV_ACCESS_REMOTE_WRITE, -EINVAL);
	REFUSED(bad.access = IBV_ACCESS_MW_BIND, -EINVAL);
	REFUSED(bad.pdn = 0xfffff0, -EINVAL);
#undef REFUSED
	assert_int_equal(inlay_devx_mkey_create_list(&list, dev.ctx, &attr, sge, 0, box, sizeof(box)), -EINVAL);
	assert_int_equal(inlay_devx_mkey_create_list(&list, dev.ctx, &attr, sge, 1, box, sizeof(box)),
			 -EINVAL); /* too short */
	assert_int_equal(inlay_devx_mkey_size(0), 0);
	assert_int_equal(inlay_devx_mkey_size(INLAY_DEVX_PIECES + 1), 0);
	assert_true(inlay_devx_mkey_size(INLAY_DEVX_PIECES) <= INLAY_DEVX_BOX_MAX);
	/* Gone is gone */
	must(inlay_devx_mkey_destroy(&key));
	must(inlay_post_write_inline(&p.qp[0].sq, attr.addr, key.key, &value, 8, INLAY_SIGNALED));
	inlay_sq_ring(&p.qp[0].sq);
	assert_int_equal(inlay_cqe_syndrome(cqe_wait(&p.cq[0].cq)), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	pair_free(&p);
}

/* ---- Half-way ---- */

/*
 * Everything of a connection, up to where it fails; then all of it down, whatever there is. Returns
 * the error
 */
static int up_and_down(void)
{
	struct mlx5dv_devx_event_channel *channel = NULL;
	struct mlx5dv_devx_cmd_comp *answers = NULL;
	uint16_t last = INLAY_EVENT_SRQ_LAST_WQE;
	struct inlay_devx_rmp_attr rmpa;
	struct inlay_devx_mkey_attr keya;
	struct inlay_devx_qp_attr qpa;
	struct inlay_devx_cq_attr cqa;
	struct inlay_devx_path path;
	struct inlay_devx_umem umem;
	struct inlay_devx_mkey key;
	struct inlay_devx_rmp rmp;
	struct inlay_devx_uar uar;
	struct inlay_devx_cq cq;
	struct inlay_devx_qp qp;
	int err;

	rig_empty(NULL);
	memset(&umem, 0, sizeof(umem));
	memset(&key, 0, sizeof(key));
	memset(&rmp, 0, sizeof(rmp));
	memset(&uar, 0, sizeof(uar));
	memset(&cq, 0, sizeof(cq));
	memset(&qp, 0, sizeof(qp));
	path = inlay_devx_path_defaults();
	err = inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, ARENA, IBV_ACCESS_LOCAL_WRITE, PAGE);
	if (!err)
		err = inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL);
	if (!err) {
		memset(&keya, 0, sizeof(keya));
		keya.addr = 0x7000;
		keya.len = PAGE;
		keya.memory.umem = &umem;
		keya.pdn = rig.pdn;
		err = inlay_devx_mkey_create(&key, dev.ctx, &keya);
	}
	if (!err) {
		cqa = cq_attr(&uar, 64, 64);
		cqa.ring.umem = cqa.record.umem = &umem;
		err = inlay_devx_cq_create(&cq, dev.ctx, &cqa);
	}
	if (!err) {
		memset(&rmpa, 0, sizeof(rmpa));
		rmpa.ring = place_ring(inlay_devx_rmp_size(16, 64));
		rmpa.record = place_record();
		rmpa.ring.umem = rmpa.record.umem = &umem;
		rmpa.pdn = rig.pdn;
		rmpa.entries = 16;
		rmpa.stride = 64;
		err = inlay_devx_rmp_create(&rmp, dev.ctx, &rmpa);
	}
	if (!err) {
		qpa = qp_attr(&uar, cq.cq.cqn, INLAY_QP_ST_RC);
		qpa.rq_wqes = 0;
		qpa.rq_type = INLAY_RQ_TYPE_SHARED;
		qpa.srqn = rmp.rmpn;
		qpa.ring.umem = qpa.record.umem = &umem;
		err = inlay_devx_qp_create(&qp, dev.ctx, &qpa);
	}
	if (!err)
		err = (channel = mlx5dv_devx_create_event_channel(dev.ctx, (enum mlx5dv_devx_create_event_channel_flags)0)) ? 0 : -errno;
	if (!err)
		err = inlay_devx_subscribe(channel, qp.obj, &last, 1, 1);
	if (!err)
		err = (answers = mlx5dv_devx_create_cmd_comp(dev.ctx)) ? 0 : -errno;
	if (!err)
		err = inlay_devx_qp_connect_self(&qp, &path);
	if (!err)
		err = inlay_devx_rmp_arm(&rmp, 3);
	if (!err)
		err = inlay_devx_qp_to_error(&qp);

	softdev_fault(NULL);
	/* In this order, with nothing left that would keep the next from going */
	must(inlay_devx_qp_destroy(&qp));
	must(inlay_devx_rmp_destroy(&rmp));
	must(inlay_devx_cq_destroy(&cq));
	must(inlay_devx_mkey_destroy(&key));
	must(inlay_devx_uar_free(&uar));
	must(inlay_devx_umem_dereg(&umem));
	if (answers)
		mlx5dv_devx_destroy_cmd_comp(answers);
	if (channel)
		mlx5dv_devx_destroy_event_channel(channel);
	return err;
}

static void whatever_fails_nothing_is_left(void **state)
{
	char fault[64];
	int n, err = -1;

	(void)state;
	need_softdev("the n-th call that fails");
	must(up_and_down()); /* what is made once is made */
	for (n = 1; err && n < 64; n++) {
		snprintf(fault, sizeof(fault), "setup=EACCES@%d", n);
		must(softdev_fault(fault));
		err = up_and_down();
		assert_int_equal(err, err ? -EACCES : 0);
	}
	assert_true(n > 10 && n < 64);
	print_message("# %d calls, each failed once\n", n - 2);
}

/* ---- Queries and events ---- */

static void queries_come_back_with_their_numbers(void **state)
{
	struct mlx5dv_devx_cmd_comp *answers;
	struct inlay_devx_error error;
	struct inlay_cmd_in in;
	uint64_t buf[(INLAY_DEVX_ANSWER + 0x110) / 8], wr_id, seen = 0;
	struct pair p;
	uint32_t i;

	(void)state;
	pair_make(&p, INLAY_QP_ST_RC, 0);
	answers = mlx5dv_devx_create_cmd_comp(dev.ctx);
	assert_non_null(answers);
	for (i = 0; i < 32; i++) {
		struct inlay_devx_qp *qp = &p.qp[i & 1];

		memset(&in, 0, sizeof(in));
		inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_QUERY_QP);
		inlay_cmd_in_set(&in, INLAY_CMD_IN_NUMBER, qp->qpn);
		must(inlay_devx_query_async(qp->obj, &in, sizeof(in), 0x110, 1000 + i, answers));
	}
	assert_int_equal(inlay_devx_query_async(p.qp[0].obj, &in, 12, 0x110, 0, answers), -EINVAL);
	assert_int_equal(inlay_devx_query_async(p.qp[0].obj, &in, 16, 12, 0, answers), -EINVAL);
	for (i = 0; i < 32; i++) {
		struct inlay_query_qp_out out;
		struct pollfd pfd = {answers->fd, POLLIN, 0};

		assert_int_equal(poll(&pfd, 1, 10000), 1);
		if (!i) { /* too short: it stays */
			assert_int_equal(inlay_devx_answer(answers, buf, 24, &wr_id, &error), -ENOBUFS);
			assert_true(wr_id == UINT64_MAX);
			assert_int_equal(inlay_devx_answer(answers, buf, 16, &wr_id, &error), -ENOBUFS);
		}
		must(inlay_devx_answer(answers, buf, sizeof(buf), &wr_id, &error));
		assert_true(wr_id >= 1000 && wr_id < 1032);
		assert_false(seen >> (wr_id - 1000) & 1);
		seen |= 1ull << (wr_id - 1000);
		memcpy(&out, buf + 1, sizeof(out));
		assert_int_equal(inlay_qpc_get(&out.qpc, INLAY_QPC_REMOTE_QPN), p.qp[!(wr_id & 1)].qpn);
	}
	assert_true(seen == 0xffffffff);
	must(fcntl(answers->fd, F_SETFL, fcntl(answers->fd, F_GETFL) | O_NONBLOCK));
	assert_int_equal(inlay_devx_answer(answers, buf, sizeof(buf), &wr_id, &error), -EAGAIN);
	mlx5dv_devx_destroy_cmd_comp(answers);
	pair_free(&p);
}

static void events_of_objects(void **state)
{
	uint16_t comp = INLAY_EVENT_COMP, bad = 0x55, many[17];
	struct mlx5dv_devx_event_channel *full, *bare;
	struct inlay_devx_event event;
	struct pollfd pfd;
	struct pair p;
	uint64_t count;
	int fd;

	(void)state;
	pair_make(&p, INLAY_QP_ST_RC, 0);
	full = channel_open(false);
	bare = channel_open(true);
	fd = eventfd(0, EFD_NONBLOCK);
	assert_true(fd >= 0);
	must(inlay_devx_subscribe(full, p.cq[0].obj, &comp, 1, 0x1234567890));
	must(inlay_devx_subscribe(bare, p.cq[0].obj, &comp, 1, 77));
	must(-mlx5dv_devx_subscribe_devx_event_fd(full, fd, p.cq[0].obj, comp));
	memset(many, 0, sizeof(many));
	assert_int_equal(inlay_devx_subscribe(full, p.cq[0].obj, many, 17, 0), -EINVAL);
	assert_int_equal(inlay_devx_subscribe(full, p.cq[0].obj, many, 0, 0), -EINVAL);
	assert_int_equal(inlay_devx_subscribe(full, p.cq[0].obj, &bad, 1, 0), -EINVAL);
	assert_int_equal(inlay_devx_event_get(full, &event), -EAGAIN);

	must(inlay_cq_arm(&p.cq[0].cq, 0));
	must(inlay_post_nop(&p.qp[0].sq, INLAY_SIGNALED));
	inlay_sq_ring(&p.qp[0].sq);
	done(&p.cq[0], &p.qp[0]);
	pfd.fd = full->fd;
	pfd.events = POLLIN;
	assert_int_equal(poll(&pfd, 1, 10000), 1);
	must(inlay_devx_event_get(full, &event));
	assert_true(event.cookie == 0x1234567890);
	assert_int_equal(event.type, INLAY_EVENT_COMP);
	if (event.bytes)
		assert_int_equal(event.number, p.cq[0].cq.cqn);
	assert_int_equal(inlay_devx_event_get(full, &event), -EAGAIN);
	pfd.fd = bare->fd;
	assert_int_equal(poll(&pfd, 1, 10000), 1);
	must(inlay_devx_event_get(bare, &event));
	assert_true(event.cookie == 77);
	assert_int_equal(event.bytes, 0);
	assert_int_equal(inlay_devx_event_get(bare, &event), -EAGAIN);
	assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
	assert_int_equal(count, 1);
	close(fd);
	mlx5dv_devx_destroy_event_channel(full);
	mlx5dv_devx_destroy_event_channel(bare);
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		devx_test(umems),
		devx_test(registers),
		devx_test(completion_queues),
		devx_test(addresses),
		devx_test(queue_pairs_that_cannot_be),
		devx_test(a_pair_talks),
		devx_test(one_talks_to_itself),
		devx_test(shared_receive_queues),
		cmocka_unit_test(cyclic_queues_in_any_order),
		devx_test(datagrams),
		devx_test(dynamic_connections),
		devx_test(objects_of_both_kinds),
		devx_test(tag_matching_queues),
		devx_test(memory_keys),
		devx_test(whatever_fails_nothing_is_left),
		devx_test(queries_come_back_with_their_numbers),
		devx_test(events_of_objects),
	};
	int failed;

	if (!rig_here())
		return 0;
	failed = cmocka_run_group_tests(tests, open_all, close_all);
	failed += again_with("SOFTDEV_LINK", "ib");
	return failed + again_trapped();
}
