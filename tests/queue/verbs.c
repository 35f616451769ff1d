/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs.c: verbs.h: what is taken over, what is refused and with which answer, what a refusal leaves behind, registers of one's own. What
 * taken-over queues then do is in queue.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <infiniband/mlx5dv.h>

/* What inlay asks the libraries for: theirs, or what a test makes of it */
static struct {
	int init_obj, query_qp, query_device; /* errors, when not 0 */
	void (*spoil)(struct mlx5dv_obj *obj);
	int signals_all;
} fake;

static int fake_init_obj(struct mlx5dv_obj *obj, uint64_t type)
{
	int err = fake.init_obj ? fake.init_obj : mlx5dv_init_obj(obj, type);

	if (!err && fake.spoil)
		fake.spoil(obj);
	return err;
}

static int fake_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	int err = fake.query_qp ? fake.query_qp : ibv_query_qp(qp, attr, mask, init);

	init->sq_sig_all |= fake.signals_all;
	return err;
}

static int fake_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	return fake.query_device ? fake.query_device : ibv_query_device(ctx, attr);
}

#define mlx5dv_init_obj fake_init_obj
#define ibv_query_qp fake_query_qp
#define ibv_query_device fake_query_device
#include "common.h"
#include <endian.h>
#include <inlay/devx/call.h>

/* Calls and asserts the refusal, and that the object is as it was */
#define refused(object, call, answer)                                                                                            \
	do {                                                                                                                     \
		unsigned char was_[sizeof(object)];                                                                              \
		memcpy(was_, &(object), sizeof(object));                                                                         \
		assert_int_equal(call, answer);                                                                                  \
		assert_memory_equal(&(object), was_, sizeof(object));                                                            \
	} while (0)

static struct opt small(void)
{
	struct opt opt = usual;

	opt.cap.max_send_wr = opt.cap.max_recv_wr = 16;
	opt.cqe = 63;
	opt.bytes = 4096;
	return opt;
}

/* WQs, SRQs, and PDs, each of which has the number that libmlx5 tells the device. Once posted to, by either, a queue is not fresh */
TEST(others_taken)
{
	struct opt opt = small();
	struct ibv_cq *cq = cq_make(&opt);
	struct ibv_wq *wq = new_wq(cq, 32, 2);
	struct ibv_pd *pd = ibv_alloc_pd(dev.ctx);
	struct ibv_recv_wr wr = {}, *bad;
	struct mlx5dv_rwq dv;
	struct inlay_srq srq;
	struct mlx5dv_pd pdv;
	struct inlay_rq rq;
	uint32_t pdn[2], n;

	view(PD, pd, pd, &pdv);
	must(inlay_pdn_from_pd(&pdn[0], pd));
	must(inlay_pdn_from_pd(&pdn[1], dev.pd));
	assert_int_equal(pdn[0], pdv.pdn);
	assert_int_not_equal(pdn[0], pdn[1]);
	must(ibv_dealloc_pd(pd));
	for (n = 0; n < 2; n++) {
		struct ibv_srq *ib = made(new_srq(100, 3));

		must(inlay_srq_from_srq(&srq, ib, NULL, NULL));
		must(inlay_srq_from_srq(&srq, ib, NULL, NULL));
		assert_true(inlay_srq_room(&srq) >= 100 && srq.max_sge >= 3);
		if (n) {
			must(inlay_post_srq_recv(&srq, NULL, 0, 0));
			inlay_srq_ring(&srq);
		} else {
			must(ibv_post_srq_recv(ib, &wr, &bad));
		}
		refused(srq, inlay_srq_from_srq(&srq, ib, NULL, NULL), -EBUSY);
		must(ibv_destroy_srq(ib));
	}
	if (wq) {
		view(RWQ, rwq, wq, &dv);
		must(inlay_rq_from_wq(&rq, wq, NULL, NULL));
		assert_ptr_equal(rq.buf, dv.buf);
		assert_int_equal(rq.stride, dv.stride);
		assert_int_equal(inlay_rq_room(&rq), dv.wqe_cnt);
		must(ibv_post_wq_recv(wq, &wr, &bad));
		refused(rq, inlay_rq_from_wq(&rq, wq, NULL, NULL), -EBUSY);
		must(ibv_destroy_wq(wq));
	}
	must(ibv_destroy_cq(cq));
}

/* Posted to, by either, polled or not: it is not taken over, but its other side is; after RESET it is fresh, whoever used it */
TEST(used)
{
	static const struct {
		enum ibv_qp_type type;
		bool inlay;
		int cqe_size;
		bool polled;
		uint32_t fixed;
	} rows[] = {
		{IBV_QPT_RC, false, 64, false, 3}, {IBV_QPT_RC, false, 64, true, 3}, {IBV_QPT_RC, false, 128, false, 3},
		{IBV_QPT_RC, false, 128, true, 3}, {IBV_QPT_RC, true, 64, false, 3}, {IBV_QPT_UC, true, 64, false, 2},
		{IBV_QPT_UD, true, 64, false, 4},
	};
	struct ibv_recv_wr rwr = {}, *rbad;
	struct ibv_send_wr swr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *sbad;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct opt opt = small();
	struct inlay_cq looks, cq;
	struct inlay_sq sq;
	struct inlay_rq rq;
	struct mlx5dv_cq dv;
	struct end a, b;
	struct ibv_wc wc;
	uint32_t i, in;

	for (i = 0; i < ARRAY(rows); i++) {
		opt.type = rows[i].type;
		opt.cqe_size = rows[i].cqe_size;
		ends_make(&a, &b, &opt);
		must(inlay_uar_from_qp(&a.uar, a.qp, NULL));
		must(inlay_uar_from_qp(&b.uar, b.qp, NULL));
		must(inlay_cq_from_cq(&looks, a.scq, NULL));
		memset(&sq, 0x5a, sizeof(sq));
		memset(&rq, 0x5a, sizeof(rq));
		memset(&cq, 0x5a, sizeof(cq));
		if (rows[i].inlay) {
			must(inlay_sq_from_qp(&a.sq, a.qp, &a.uar, NULL, NULL));
			must(inlay_rq_from_qp(&b.rq, b.qp, NULL, NULL));
			must(inlay_post_recv(&b.rq, NULL, 0));
			inlay_rq_ring(&b.rq);
			must(inlay_post(&a.sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING));
		} else {
			must(ibv_post_recv(b.qp, &rwr, &rbad));
			swr.wr.rdma.remote_addr = raddr_of(&b, 0);
			swr.wr.rdma.rkey = b.mr->rkey;
			must(ibv_post_send(a.qp, &swr, &sbad));
		}
		assert_int_equal(inlay_cqe_opcode(cqe_wait(&looks)), MLX5_CQE_REQ);
		if (rows[i].polled)
			assert_int_equal(ibv_poll_cq(a.scq, 1, &wc), 1);
		refused(sq, inlay_sq_from_qp(&sq, a.qp, &a.uar, NULL, NULL), -EBUSY);
		refused(rq, inlay_rq_from_qp(&rq, b.qp, NULL, NULL), -EBUSY);
		refused(cq, inlay_cq_from_cq(&cq, a.scq, NULL), -EBUSY);
		assert_int_equal(a.uar.queues, rows[i].inlay);
		/* libmlx5 still polls it, as it was */
		if (!rows[i].polled && !rows[i].inlay)
			assert_int_equal(ibv_poll_cq(a.scq, 1, &wc), 1);
		assert_true(rows[i].inlay || wc.status == IBV_WC_SUCCESS);
		must(inlay_sq_from_qp(&b.sq, b.qp, &b.uar, NULL, NULL));
		must(inlay_rq_from_qp(&a.rq, a.qp, NULL, NULL));
		must(inlay_cq_from_cq(&cq, a.rcq, NULL));
		view(CQ, cq, a.rcq, &dv);
		assert_int_equal(inlay_cq_cqn(&cq), dv.cqn);
		assert_int_equal(inlay_cq_cqe_size(&cq), opt.cqe_size);
		assert_int_equal(b.sq.type, opt.type);
		assert_int_equal(!!b.sq.atomics, opt.type == IBV_QPT_RC);
		must(ibv_query_qp(b.qp, &attr, IBV_QP_CAP, &init));
		in = (init.cap.max_inline_data + 4 + 15) / 16;
		assert_int_equal(inlay_sq_max_ds(&b.sq), rows[i].fixed + (in > init.cap.max_send_sge ? in : init.cap.max_send_sge));
		assert_true(inlay_rq_room(&a.rq) >= opt.cap.max_recv_wr);
		if (rows[i].inlay)
			inlay_sq_fini(&a.sq);
		qp_to(a.qp, IBV_QPS_RESET);
		qp_to(b.qp, IBV_QPS_RESET);
		must(inlay_sq_from_qp(&a.sq, a.qp, &a.uar, NULL, NULL));
		must(inlay_rq_from_qp(&b.rq, b.qp, NULL, NULL));
		assert_int_equal(a.sq.pi, 0);
		end_free(&a);
		end_free(&b);
	}
}

/* Objects of a device that is not mlx5: all that is looked at is whose it is, which each of libibverbs' structs begins with */
TEST(not_mlx5)
{
	static uint8_t device[4096] __attribute__((aligned(64)));
	struct ibv_context context = {.device = (struct ibv_device *)(void *)device};
	union {
		struct ibv_context *context;
		struct ibv_qp qp;
		struct ibv_wq wq;
		struct ibv_srq srq;
		struct ibv_cq cq;
		struct ibv_ah ah;
		struct ibv_pd pd;
		struct ibv_dm dm;
	} ib;
	union {
		struct inlay_uar uar;
		struct inlay_srq srq;
		struct inlay_av av;
		struct inlay_sq sq;
		struct inlay_rq rq;
		struct inlay_cq cq;
		struct inlay_dm dm;
		uint32_t n;
	} in;

	memset(&ib, 0, sizeof(ib));
	ib.context = &context;
	memset(&in, 0x5a, sizeof(in));
	refused(in, inlay_uar_create(&in.uar, &ib.pd, INLAY_UAR_SERIAL, NULL), -ENOTSUP);
	refused(in, inlay_rq_from_wq(&in.rq, &ib.wq, NULL, NULL), -ENOTSUP);
	refused(in, inlay_srq_from_srq(&in.srq, &ib.srq, NULL, NULL), -ENOTSUP);
	refused(in, inlay_cq_from_cq(&in.cq, &ib.cq, NULL), -ENOTSUP);
	refused(in, inlay_av_from_ah(&in.av, &ib.ah, 1, 1), -ENOTSUP);
	refused(in, inlay_pdn_from_pd(&in.n, &ib.pd), -ENOTSUP);
	refused(in, inlay_dm_from_dm(&in.dm, &ib.dm, NULL), -ENOTSUP);
	ib.qp.qp_type = IBV_QPT_RC;
	refused(in, inlay_uar_from_qp(&in.uar, &ib.qp, NULL), -ENOTSUP);
	refused(in, inlay_qp_user_index(&ib.qp, &in.n, NULL), -ENOTSUP);
	refused(in, inlay_wq_user_index(&ib.wq, &in.n, NULL), -ENOTSUP);
	refused(in, inlay_sq_from_qp(&in.sq, &ib.qp, &in.uar, NULL, NULL), -ENOTSUP);
	refused(in, inlay_rq_from_qp(&in.rq, &ib.qp, NULL, NULL), -ENOTSUP);
}

/* One's own takes any queues, and goes when none and no QP is left; a borrowed one has 8-byte doorbells only */
TEST(modes)
{
	struct opt opt = small();
	struct inlay_uar uar, borrowed;
	struct inlay_sq left;
	struct end e[3];

	memset(&uar, 0x5a, sizeof(uar));
	for (uint32_t mode = INLAY_UAR_LOCKED + 1; mode < 8; mode++)
		refused(uar, inlay_uar_create(&uar, dev.pd, mode, NULL), -EINVAL);
	for (uint32_t mode = INLAY_UAR_DOORBELL; mode <= INLAY_UAR_LOCKED; mode++) {
		must(inlay_uar_create(&uar, dev.pd, mode, NULL));
		assert_true(uar.pd && uar.pd != dev.pd);
		opt.pd = uar.pd;
		for (uint32_t i = 0; i < 3; i++) {
			end_make(&e[i], &opt);
			must(inlay_sq_from_qp(&e[i].sq, e[i].qp, &uar, NULL, NULL));
			assert_int_equal(uar.mode, mode);
			assert_int_equal(uar.queues, i + 1);
			assert_ptr_equal(e[i].sq.uar, &uar);
			assert_ptr_equal(e[i].sq.next, mode == INLAY_UAR_SERIAL ? &uar.next : NULL);
		}
		left = e[0].sq;
		for (uint32_t i = 0; i < 3; i++) {
			must(inlay_uar_from_qp(&borrowed, e[i].qp, NULL));
			assert_int_equal(borrowed.mode, INLAY_UAR_DOORBELL);
			assert_int_equal(borrowed.queues, 0);
			assert_null(borrowed.td);
			if (i || mode == INLAY_UAR_SERIAL)
				inlay_sq_fini(&e[i].sq);
			assert_int_equal(inlay_uar_destroy(&uar, NULL), -EBUSY);
			end_free(&e[i]);
		}
		if (mode != INLAY_UAR_SERIAL) { /* the queue stays longer */
			assert_int_equal(inlay_uar_destroy(&uar, NULL), -EBUSY);
			inlay_sq_fini(&left);
		}
		must(inlay_uar_destroy(&uar, NULL));
		assert_int_equal(inlay_uar_destroy(&uar, NULL), -EINVAL);
	}
}

/* Many at once, until the device or the library has no more. Each is another one, and none is one that libmlx5 gives to QPs */
TEST(own)
{
	enum { QPS = 16 };
	static struct inlay_uar uars[64];
	struct opt opt = small();
	struct end e[2 * QPS];
	uint32_t i, k, n;
	int ret = 0;

	for (n = 0; n < ARRAY(uars) && !ret; n += !ret)
		ret = inlay_uar_create(&uars[n], dev.pd, INLAY_UAR_SERIAL, NULL);
	assert_true(ret <= 0 && n >= QPS);
	for (i = 0; i < 2 * QPS; i++) {
		opt.pd = i < QPS ? uars[i].pd : NULL;
		end_make(&e[i], &opt);
		must(inlay_uar_from_qp(&e[i].uar, e[i].qp, NULL));
		if (i < QPS) {
			must(inlay_sq_from_qp(&e[i].sq, e[i].qp, &uars[i], NULL, NULL));
			assert_ptr_equal(uars[i].reg, e[i].uar.reg);
		}
		for (k = 0; k < i && k < QPS; k++)
			assert_ptr_not_equal(e[i].uar.reg, e[k].uar.reg);
	}
	for (i = 0; i < 2 * QPS; i++) {
		if (i < QPS)
			inlay_sq_fini(&e[i].sq);
		end_free(&e[i]);
	}
	for (i = 0; i < n; i++)
		must(inlay_uar_destroy(&uars[i], NULL));
}

/* A striding WQ: attributes that cannot be, too small a CQ; once posted to, it is not fresh. What is posted, devices take in steer.c */
TEST(striding_taken)
{
	struct mlx5dv_wq_init_attr dvattr = {
		.comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ,
		.striding_rq_attrs = {.single_stride_log_num_of_bytes = 11, .single_wqe_log_num_of_strides = 9, .two_byte_shift_en = 1},
	};
	struct mlx5dv_striding_rq_init_attr *strides = &dvattr.striding_rq_attrs;
	struct ibv_cq *ibcq = made(ibv_create_cq(dev.ctx, 4095, NULL, NULL, 0));
	struct ibv_wq_init_attr attr = {.wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = dev.pd, .cq = ibcq};
	struct inlay_striding rq;
	struct inlay_cq cq;
	struct ibv_wq *wq;
	const char *why;

	wq = mlx5dv_create_wq(dev.ctx, &attr, &dvattr);
	if (!wq) {
		must(ibv_destroy_cq(ibcq));
		print_message("this device has no striding WQs\n");
		skip();
	}
	must(inlay_cq_from_cq(&cq, ibcq, NULL));
	memset(&rq, 0x5a, sizeof(rq));
	must(inlay_cq_reserve(&cq, 1, NULL));
	refused(rq, inlay_striding_from_wq(&rq, wq, strides, &cq, &why), -ENOSPC);
	inlay_cq_unreserve(&cq, 1);
	strides->single_wqe_log_num_of_strides = 17;
	refused(rq, inlay_striding_from_wq(&rq, wq, strides, NULL, &why), -EINVAL);
	strides->single_wqe_log_num_of_strides = 9;
	strides->single_stride_log_num_of_bytes = 5;
	refused(rq, inlay_striding_from_wq(&rq, wq, strides, NULL, &why), -EINVAL);
	strides->single_stride_log_num_of_bytes = 11;
	must(inlay_striding_from_wq(&rq, wq, strides, &cq, &why));
	assert_int_equal(inlay_cq_reserve(&cq, 1, NULL), -ENOSPC);
	while (inlay_rq_room(&rq.rq))
		must(inlay_striding_post(&rq, 0x123456789000, 0x55667788));
	inlay_rq_ring(&rq.rq);
	refused(rq, inlay_striding_from_wq(&rq, wq, strides, NULL, &why), -EBUSY);
	must(ibv_destroy_wq(wq));
	must(ibv_destroy_cq(ibcq));
}

#define REASONS_OF(X)                                                                                                            \
	X(Y_MODE, -EINVAL) X(Y_PD, -ENOTSUP) X(Y_TD, -EOPNOTSUPP) X(Y_PARENT, -EOPNOTSUPP) X(Y_NOT_MADE, -EINVAL)                \
	X(Y_ATTACHED, -EBUSY) X(Y_QP_LEFT, -EBUSY) X(Y_TD_LEFT, -EIO) X(Y_NOT_MLX5, -ENOTSUP) X(Y_INIT_OBJ, -EIO)                \
	X(Y_TYPE, -ENOTSUP) X(Y_REGISTER, -EINVAL) X(Y_OTHER_CQ, -EINVAL) X(Y_SMALL_CQ, -ENOSPC)                                 \
	X(Y_CQE_SIZE, -ENOTSUP) X(Y_CQ_USED, -EBUSY) X(Y_CQ_RING, -EINVAL) X(Y_NO_SQ, -EINVAL) X(Y_SQ_UNITS, -ENOTSUP)           \
	X(Y_SQ_POSTED, -EBUSY) X(Y_SQ_PD, -EINVAL) X(Y_SQ_REGISTER, -EINVAL) X(Y_QUERY_QP, -EIO)                                 \
	X(Y_QUERY_DEVICE, -EIO) X(Y_SIG_ALL, -ENOTSUP) X(Y_SQ_RING, -EINVAL) X(Y_NO_RQ, -EINVAL)                                 \
	X(Y_RQ_POSTED, -EBUSY) X(Y_RQ_RING, -EINVAL) X(Y_SRQ_POSTED, -EBUSY) X(Y_SRQ_RING, -ENOTSUP)                             \
	X(Y_WQ_POSTED, -EBUSY)
#define REASON(name, err) name,
#define REASON_SAYS(name, err) {#name, err},
enum { REASONS_OF(REASON) REASONS };

static const struct { const char *name; int err; } reason_of[] = {REASONS_OF(REASON_SAYS)};

/* What there is to be refused */
struct scene {
	struct end a, b, c;                /* a: of dev.pd; b and c: of registers of their own, b's taken over */
	struct inlay_uar borrowed, b_uar, c_uar, third, elsewhere;
	struct ibv_srq *srq;
	struct ibv_wq *wq;
};

static uint32_t spoiling;

static void spoil(struct mlx5dv_obj *obj)
{
	static uint8_t cqes[64 * 1024];
	static uint32_t record[2];

	record[0] = record[1] = 1;
	switch (spoiling) {
	case Y_REGISTER: obj->qp.out->bf.size = 96; break;
	case Y_CQE_SIZE: obj->cq.out->cqe_size = 32; break;
	case Y_CQ_USED: obj->cq.out->buf = cqes; break;
	case Y_CQ_RING: obj->cq.out->cqe_cnt = 3; break;
	case Y_NO_SQ: obj->qp.out->sq.wqe_cnt = 0; break;
	case Y_SQ_UNITS: obj->qp.out->sq.stride = 32; break;
	case Y_SQ_POSTED: case Y_RQ_POSTED: obj->qp.out->dbrec = (__be32 *)record; break;
	case Y_SQ_RING: obj->qp.out->sq.wqe_cnt = 3; break;
	case Y_NO_RQ: obj->qp.out->rq.wqe_cnt = 0; break;
	case Y_RQ_RING: obj->qp.out->rq.wqe_cnt = 3; break;
	case Y_WQ_POSTED: obj->rwq.out->dbrec = (__be32 *)record; break;
	case Y_SRQ_POSTED: obj->srq.out->head = 1; break;
	case Y_SRQ_RING: obj->srq.out->stride = 48; break;
	}
}

static int failing_dealloc_td(UNUSED struct ibv_td *td)
{
	return EIO;
}

/* Asks for what is refused for that reason */
static int refusal(struct scene *s, uint32_t reason, const char **why)
{
	static uint8_t device[4096] __attribute__((aligned(64)));
	struct verbs_context *vctx = verbs_get_ctx(dev.ctx), saved = *vctx;
	struct ibv_context other = {};
	struct inlay_uar uar;
	struct inlay_srq srq;
	struct inlay_sq sq;
	struct inlay_rq rq;
	struct inlay_cq cq;
	struct ibv_cq ib_cq;
	struct ibv_pd pd;
	int ret = 0;

	other.device = (struct ibv_device *)(void *)device;
	pd.context = ib_cq.context = &other;
	memset(&uar, 0, sizeof(uar));
	memset(&fake, 0, sizeof(fake));
	fake.spoil = spoil;
	spoiling = reason;
	switch (reason) {
	case Y_MODE: ret = inlay_uar_create(&uar, dev.pd, 3, why); break;
	case Y_PD: ret = inlay_uar_create(&uar, &pd, INLAY_UAR_SERIAL, why); break;
	case Y_TD: case Y_PARENT:
		if (reason == Y_TD)
			vctx->alloc_td = NULL;
		else
			vctx->alloc_parent_domain = NULL;
		ret = inlay_uar_create(&uar, dev.pd, INLAY_UAR_SERIAL, why);
		break;
	case Y_NOT_MADE: ret = inlay_uar_destroy(&s->borrowed, why); break;
	case Y_ATTACHED: ret = inlay_uar_destroy(&s->b_uar, why); break;
	case Y_QP_LEFT: ret = inlay_uar_destroy(&s->c_uar, why); break;
	case Y_TD_LEFT: vctx->dealloc_td = failing_dealloc_td; ret = inlay_uar_destroy(&s->third, why); break;
	case Y_NOT_MLX5: ret = inlay_cq_from_cq(&cq, &ib_cq, why); break;
	case Y_INIT_OBJ: fake.init_obj = EIO; ret = inlay_cq_from_cq(&cq, s->a.scq, why); break;
	case Y_TYPE:
		s->a.qp->qp_type = IBV_QPT_XRC_RECV;
		ret = inlay_uar_from_qp(&uar, s->a.qp, why);
		assert_int_equal(inlay_sq_from_qp(&sq, s->a.qp, &s->borrowed, NULL, NULL), ret);
		assert_int_equal(inlay_rq_from_qp(&rq, s->a.qp, NULL, NULL), ret);
		s->a.qp->qp_type = IBV_QPT_RC;
		break;
	case Y_REGISTER: ret = inlay_uar_from_qp(&uar, s->a.qp, why); break;
	case Y_OTHER_CQ: ret = inlay_rq_from_qp(&rq, s->a.qp, &s->a.cq, why); break;
	case Y_SMALL_CQ:
		s->a.cq.reserved += s->a.cq.mask + 1;
		ret = inlay_sq_from_qp(&sq, s->a.qp, &s->borrowed, &s->a.cq, why);
		s->a.cq.reserved -= s->a.cq.mask + 1;
		break;
	case Y_CQE_SIZE: case Y_CQ_USED: case Y_CQ_RING: ret = inlay_cq_from_cq(&cq, s->a.scq, why); break;
	case Y_SQ_PD: /* its register known, or not yet */
		ret = inlay_sq_from_qp(&sq, s->a.qp, &s->b_uar, &s->a.cq, why);
		assert_int_equal(inlay_sq_from_qp(&sq, s->a.qp, &s->c_uar, &s->a.cq, NULL), ret);
		assert_int_equal(inlay_sq_from_qp(&sq, s->c.qp, &s->b_uar, NULL, NULL), ret);
		break;
	case Y_SQ_REGISTER: ret = inlay_sq_from_qp(&sq, s->a.qp, &s->elsewhere, &s->a.cq, why); break;
	case Y_NO_RQ: case Y_RQ_POSTED: case Y_RQ_RING: ret = inlay_rq_from_qp(&rq, s->a.qp, &s->a.rxcq, why); break;
	case Y_SRQ_POSTED: case Y_SRQ_RING: ret = inlay_srq_from_srq(&srq, s->srq, &s->a.cq, why); break;
	case Y_WQ_POSTED: ret = inlay_rq_from_wq(&rq, s->wq, &s->a.cq, why); break;
	case Y_SQ_RING: /* the first of its register, which is then as it was */
		uar = s->c_uar;
		ret = inlay_sq_from_qp(&sq, s->c.qp, &s->c_uar, NULL, why);
		assert_memory_equal(&s->c_uar, &uar, sizeof(uar));
		break;
	default:
		fake.query_qp = reason == Y_QUERY_QP ? EIO : 0;
		fake.query_device = reason == Y_QUERY_DEVICE ? EIO : 0;
		fake.signals_all = reason == Y_SIG_ALL;
		ret = inlay_sq_from_qp(&sq, s->a.qp, &s->borrowed, &s->a.cq, why);
	}
	memset(&fake, 0, sizeof(fake));
	*vctx = saved;
	return ret;
}

/* Each is a sentence of its own, and leaves neither a queue on a register nor a CQE reserved */
TEST(reasons)
{
	static uint8_t page[512] __attribute__((aligned(512)));
	struct opt opt = small();
	const char *why[REASONS] = {NULL};
	struct scene s = {};

	opt.cqe = 1000;
	must(inlay_uar_create(&s.b_uar, dev.pd, INLAY_UAR_SERIAL, NULL));
	must(inlay_uar_create(&s.c_uar, dev.pd, INLAY_UAR_SERIAL, NULL));
	must(inlay_uar_create(&s.third, dev.pd, INLAY_UAR_SERIAL, NULL));
	must(inlay_uar_init(&s.elsewhere, page, 256, INLAY_UAR_DOORBELL));
	end_make(&s.a, &opt);
	opt.pd = s.b_uar.pd;
	end_make(&s.b, &opt);
	opt.pd = s.c_uar.pd;
	end_make(&s.c, &opt);
	must(inlay_uar_from_qp(&s.borrowed, s.a.qp, NULL));
	must(inlay_sq_from_qp(&s.b.sq, s.b.qp, &s.b_uar, NULL, NULL));
	must(inlay_cq_from_cq(&s.a.cq, s.a.scq, NULL));
	must(inlay_cq_from_cq(&s.a.rxcq, s.a.rcq, NULL));
	s.srq = new_srq(1, 1);
	s.wq = new_wq(s.a.scq, 1, 1);
	for (uint32_t i = 0; i < REASONS; i++) {
		if ((!s.srq && (i == Y_SRQ_POSTED || i == Y_SRQ_RING)) || (!s.wq && i == Y_WQ_POSTED))
			continue;
		if (refusal(&s, i, &why[i]) != reason_of[i].err)
			fail_msg("%s", reason_of[i].name);
		if (!why[i] || strlen(why[i]) < 16)
			fail_msg("%s is not given", reason_of[i].name);
		for (uint32_t k = 0; k < i; k++)
			if (why[k] && !strcmp(why[k], why[i]))
				fail_msg("%s and %s: \"%s\"", reason_of[k].name, reason_of[i].name, why[i]);
		/* It may be NULL; the third register has lost its domain by now, and is asked for the rest again */
		assert_int_equal(refusal(&s, i, NULL), reason_of[i].err);
		assert_int_equal(s.a.cq.reserved + s.a.rxcq.reserved, 0);
		assert_int_equal(s.borrowed.queues + s.c_uar.queues + s.elsewhere.queues, 0);
		assert_int_equal(s.b_uar.queues, 1);
	}
	inlay_sq_fini(&s.b.sq);
	if (s.wq)
		must(ibv_destroy_wq(s.wq));
	if (s.srq)
		must(ibv_destroy_srq(s.srq));
	end_free(&s.a);
	end_free(&s.b);
	end_free(&s.c);
	must(inlay_uar_destroy(&s.b_uar, NULL));
	must(inlay_uar_destroy(&s.c_uar, NULL));
	must(inlay_uar_destroy(&s.third, NULL));
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
