/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way in. A preloaded function takes precedence over libibverbs' and libmlx5's of the same
 * name. The function pointers in a context are replaced when it is opened. Each replacement calls
 * what it replaces.
 */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shim.h"

pthread_mutex_t shim_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	uint64_t qps, sends, recvs, completions, left;
} total;

static bool verbose;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("inlay-shim: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

int (*shim_real_init_obj)(struct mlx5dv_obj *obj, uint64_t type);

__attribute__((constructor)) static void begin(void)
{
	const char *env = getenv("INLAY_SHIM_VERBOSE");

	verbose = env && *env && strcmp(env, "0");
	shim_real_init_obj = NEXT(mlx5dv_init_obj);
}

/*
 * The program's own calls of mlx5dv_init_obj. From then on the program may poll and clean the CQ
 * without verbs; libmlx5 assumes the same. It will also fill the SRQ, if that has no owner yet. The
 * SRQ's owner is therefore settled here, before a QP on it could make CQs inlay's and then fail.
 */
EXPORT int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t type)
{
	struct shim_cq *cq = type & MLX5DV_OBJ_CQ ? shim_find(obj->cq.in) : NULL;
	struct shim_srq *srq = type & MLX5DV_OBJ_SRQ ? shim_find(obj->srq.in) : NULL;

	pthread_mutex_lock(&shim_lock);
	if (srq && srq->owner == SHIM_NOBODY)
		__atomic_store_n(&srq->owner, SHIM_LIBMLX5, __ATOMIC_RELEASE);
	if (cq)
		cq->programs = true;
	if (cq && cq->second)
		say("a CQ that stands for two is looked into: of the QPs of libmlx5's on it nothing is seen there");
	pthread_mutex_unlock(&shim_lock);
	return NEXT(mlx5dv_init_obj)(obj, type);
}

/* ---- Completion queues ---- */

static void count_cq(const struct shim_cq *cq)
{
	total.completions += cq->q.ci - cq->resized;
}

static void remember_cq(struct ibv_cq *ibcq, const struct ibv_cq_init_attr_ex *attr, bool extended, bool covered)
{
	struct shim_cq *cq = ibcq ? calloc(1, sizeof(*cq)) : NULL;

	if (!cq)
		return; /* not even noticed: libmlx5's */
	cq->kind = SHIM_CQ;
	cq->context = shim_find(ibcq->context);
	cq->cq = ibcq;
	cq->attr = *attr;
	cq->extended = extended;
	cq->owner = covered ? SHIM_NOBODY : SHIM_LIBMLX5;
	pthread_mutex_lock(&shim_lock);
	shim_insert(ibcq, cq);
	pthread_mutex_unlock(&shim_lock);
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = NEXT(ibv_create_cq)(context, cqe, cq_context, channel, vector);
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe, .cq_context = cq_context, .channel = channel, .comp_vector = vector,
	};

	if (shim_find(context))
		remember_cq(cq, &attr, false, true);
	return cq;
}

/* What inlay's CQs cannot report: wall clock time, and tags. */
static bool covers_cq(const struct ibv_cq_init_attr_ex *attr)
{
	return !(attr->wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_TM_INFO));
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct shim_context *c = shim_find(context);
	struct ibv_cq_ex *cq = c->create_cq_ex(context, attr);

	if (cq)
		remember_cq(ibv_cq_ex_to_cq(cq), attr, true, covers_cq(attr));
	return cq;
}

EXPORT struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr,
					  struct mlx5dv_cq_init_attr *dv)
{
	struct ibv_cq_ex *cq = NEXT(mlx5dv_create_cq)(context, attr, dv);

	if (cq && shim_find(context))
		remember_cq(ibv_cq_ex_to_cq(cq), attr, true,
			    covers_cq(attr) && !(dv && dv->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE));
	return cq;
}

/* Describes a CQ that may hold completions already: inlay_cq_from_cq would refuse it. */
static int look_at_cq(struct inlay_cq *q, struct ibv_cq *ibcq)
{
	struct mlx5dv_cq dv = {};
	struct mlx5dv_obj obj = {.cq = {.in = ibcq, .out = &dv}};

	if (shim_real_init_obj(&obj, MLX5DV_OBJ_CQ))
		return -EINVAL;
	return inlay_cq_init(q, dv.buf, dv.cqe_cnt, dv.cqe_size, (volatile uint32_t *)dv.dbrec, dv.cq_uar, dv.cqn);
}

static bool lost_cq(struct ibv_cq *ibcq)
{
	struct shim_cq *cq = ibcq ? shim_find(ibcq) : NULL;

	return !cq || cq->owner == SHIM_LIBMLX5;
}

/* Gives a CQ without an owner to inlay. Returns whether it is inlay's now. */
static bool take_cq(struct ibv_cq *ibcq)
{
	struct shim_cq *cq = shim_find(ibcq);

	if (cq->owner == SHIM_INLAY)
		return true;
	if (inlay_cq_from_cq(&cq->q, ibcq, NULL)) {
		cq->owner = SHIM_LIBMLX5;
		return false;
	}
	__atomic_store_n(&cq->owner, SHIM_INLAY, __ATOMIC_RELEASE);
	if (cq->extended)
		shim_poll_install((struct ibv_cq_ex *)ibcq);
	return true;
}

/*
 * The CQ to which an object of libmlx5's completes when the program names ibcq. NULL and errno if
 * there can be none. The owner of ibcq is settled once the object has been made, by left_cq.
 */
static struct ibv_cq *other_cq(struct ibv_cq *ibcq)
{
	struct shim_cq *cq = ibcq ? shim_find(ibcq) : NULL;

	if (!cq || cq->owner != SHIM_INLAY)
		return ibcq;
	if (!cq->second) {
		struct ibv_cq *second;
		uint32_t armed;

		if (cq->programs) {
			say("refused: a QP of libmlx5's on a CQ that is inlay's and that the program looks "
			    "into itself");
			errno = ENOTSUP;
			return NULL;
		}
		second = cq->extended ? (struct ibv_cq *)cq->context->create_cq_ex(ibcq->context, &cq->attr) :
			 NEXT(ibv_create_cq)(ibcq->context, cq->attr.cqe, cq->attr.cq_context, cq->attr.channel,
					     cq->attr.comp_vector);
		if (!second)
			return NULL;
		shim_insert(second, cq);
		__atomic_store_n(&cq->second, second, __ATOMIC_SEQ_CST);
		/*
		 * If the program has armed the first CQ, the second must be armed too. A thread that
		 * arms at this moment either sees the second CQ, or its request is seen here.
		 */
		armed = __atomic_load_n(&cq->armed, __ATOMIC_SEQ_CST);
		if (armed)
			cq->context->ops.req_notify_cq(second, !(armed & SHIM_ARMED));
	}
	return cq->second;
}

static void left_cq(struct ibv_cq *ibcq)
{
	struct shim_cq *cq = ibcq ? shim_find(ibcq) : NULL;

	if (cq && cq->owner == SHIM_NOBODY)
		cq->owner = SHIM_LIBMLX5;
}

/*
 * libmlx5 copies the unpolled CQEs, starting at its own consumer index. For one of inlay's CQs that
 * index is still 0. So a resize works until the first completion has been polled, and is refused
 * afterwards. The device's mark of the resize takes one slot.
 */
static int resize(struct shim_cq *cq, int cqe)
{
	struct inlay_cq q;
	uint32_t i;
	int before = cq->cq->cqe, err;

	if (cq->q.ci != cq->resized) {
		say("a CQ that inlay has polled is not resized");
		return ENOTSUP;
	}
	err = NEXT(ibv_resize_cq)(cq->cq, cqe);
	if (err || cq->cq->cqe == before)
		return err;
	if (look_at_cq(&q, cq->cq))
		return EIO;
	q.arm_sn = cq->q.arm_sn;
	cq->resized++;
	/* The slots of the marks are empty and belong to the past in this lap. */
	for (i = 0; i < cq->resized; i++)
		((struct mlx5_cqe64 *)(uintptr_t)inlay_cq_slot_(&q, i))->op_own = MLX5_CQE_INVALID << 4;
	inlay_cq_advance_quiet(&q, cq->resized);
	cq->q = q;
	return 0;
}

EXPORT int ibv_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct shim_cq *cq = shim_find(ibcq);
	int err;

	if (!cq)
		return NEXT(ibv_resize_cq)(ibcq, cqe);
	if (cq->owner != SHIM_INLAY) {
		err = NEXT(ibv_resize_cq)(ibcq, cqe);
	} else {
		shim_acquire(&cq->lock);
		err = resize(cq, cqe);
		shim_release(&cq->lock);
		if (!err && cq->second)
			err = NEXT(ibv_resize_cq)(cq->second, cqe);
	}
	if (!err) {
		pthread_mutex_lock(&shim_lock);
		cq->attr.cqe = (uint32_t)cqe; /* a second one will be as large */
		pthread_mutex_unlock(&shim_lock);
	}
	return err;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct shim_cq *cq = shim_find(ibcq);
	int err;

	if (!cq)
		return NEXT(ibv_destroy_cq)(ibcq);
	if (cq->second) {
		err = NEXT(ibv_destroy_cq)(cq->second);
		if (err)
			return err;
		pthread_mutex_lock(&shim_lock);
		shim_remove(cq->second);
		pthread_mutex_unlock(&shim_lock);
		cq->second = NULL;
	}
	pthread_mutex_lock(&shim_lock);
	shim_remove(ibcq);
	pthread_mutex_unlock(&shim_lock);
	err = NEXT(ibv_destroy_cq)(ibcq);
	pthread_mutex_lock(&shim_lock);
	if (err) {
		shim_insert(ibcq, cq);
	} else {
		count_cq(cq);
		free(cq);
	}
	pthread_mutex_unlock(&shim_lock);
	return err;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ibcq, void **cq_context)
{
	int err = NEXT(ibv_get_cq_event)(channel, ibcq, cq_context);
	struct shim_cq *cq = err ? NULL : shim_find(*ibcq);

	if (cq && cq->owner == SHIM_INLAY)
		*ibcq = shim_event(cq, *ibcq);
	return err;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *ibcq, unsigned int events)
{
	struct shim_cq *cq = shim_find(ibcq);

	if (cq && cq->second) {
		uint32_t there = __atomic_load_n(&cq->second_events, __ATOMIC_RELAXED), its;

		do
			its = events < there ? events : there;
		while (!__atomic_compare_exchange_n(&cq->second_events, &there, there - its, 0, __ATOMIC_RELAXED,
						    __ATOMIC_RELAXED));
		NEXT(ibv_ack_cq_events)(cq->second, its);
		events -= its;
	}
	NEXT(ibv_ack_cq_events)(ibcq, events);
}

/* ---- The CQs of a QP ---- */

/* Both CQs of a QP, in the order of their addresses. */
static void lock_cqs(struct shim_qp *qp)
{
	struct shim_cq *a = qp->send_cq < qp->recv_cq ? qp->send_cq : qp->recv_cq;
	struct shim_cq *b = a == qp->send_cq ? qp->recv_cq : qp->send_cq;

	shim_acquire(&a->lock);
	if (b != a)
		shim_acquire(&b->lock);
}

/*
 * As above, for a caller that holds shim_lock. It drops the lock while it waits for a poll to end,
 * because the program may need it in the meantime.
 */
static void lock_cqs_too(struct shim_qp *qp)
{
	while (!shim_try(&qp->send_cq->lock) || (qp->recv_cq != qp->send_cq && !shim_try(&qp->recv_cq->lock) &&
						 (shim_release(&qp->send_cq->lock), true))) {
		pthread_mutex_unlock(&shim_lock);
		sched_yield();
		pthread_mutex_lock(&shim_lock);
	}
}

static void unlock_cqs(struct shim_qp *qp)
{
	shim_release(&qp->send_cq->lock);
	if (qp->recv_cq != qp->send_cq)
		shim_release(&qp->recv_cq->lock);
}

/*
 * Removes the completions and numbers of a QP that is gone. A new QP with one of these numbers waits
 * in place_of until then. The caller holds shim_lock.
 */
static void leave_cqs(struct shim_qp *qp)
{
	lock_cqs_too(qp);
	shim_clean(qp);
	if (qp->qpn)
		qp->context->by_number[qp->qpn >> 12][qp->qpn & 0xfff] = NULL;
	if (qp->indexed)
		qp->context->by_index[qp->index >> 12][qp->index & 0xfff] = NULL;
	unlock_cqs(qp);
}

/* ---- Shared receive queues ---- */

static void count_srq(const struct shim_srq *srq)
{
	total.recvs += srq->q.pi;
}

static void remember_srq(struct ibv_srq *ibsrq)
{
	struct shim_srq *srq = ibsrq ? calloc(1, sizeof(*srq)) : NULL;

	if (!srq)
		return;
	srq->kind = SHIM_SRQ;
	if (getenv("MLX5_SRQ_SIGNATURE"))
		srq->owner = SHIM_LIBMLX5;
	pthread_mutex_lock(&shim_lock);
	shim_insert(ibsrq, srq);
	pthread_mutex_unlock(&shim_lock);
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq = NEXT(ibv_create_srq)(pd, attr);

	if (shim_find(pd->context))
		remember_srq(srq);
	return srq;
}

static struct shim_qp **place_of(struct shim_qp **parts[4096], uint32_t number);

/*
 * The CQEs of an XRC SRQ carry its user index, and the number of a QP that may belong to another
 * process. So a stand-in for the QP is found by the index. Returns whether the SRQ is inlay's now.
 */
static bool take_xrc_srq(struct shim_context *c, struct ibv_srq *ibsrq, struct ibv_cq *cq)
{
	struct shim_srq *srq = calloc(1, sizeof(*srq));
	struct shim_qp *qp = aligned_alloc(INLAY_CACHE_LINE, sizeof(*qp)), **place;

	if (!srq || !qp)
		goto no;
	memset(qp, 0, sizeof(*qp));
	if (inlay_srq_user_index(ibsrq, &qp->index, NULL) || inlay_srq_from_srq(&srq->q, ibsrq, NULL, NULL))
		goto no;
	place = place_of(c->by_index, qp->index);
	if (!place || !take_cq(cq))
		goto no;
	srq->kind = SHIM_SRQ;
	srq->owner = SHIM_INLAY;
	srq->stand_in = qp;
	qp->indexed = c->indexed = true;
	qp->context = c;
	qp->srq = srq;
	qp->send_cq = qp->recv_cq = shim_find(cq);
	__atomic_store_n(place, qp, __ATOMIC_RELEASE);
	shim_insert(ibsrq, srq);
	return true;
no:
	free(srq);
	free(qp);
	return false;
}

/* An SRQ of a kind that inlay does not know may complete to a CQ by itself. */
static struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct shim_context *c = shim_find(context);
	bool basic = !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) || attr->srq_type == IBV_SRQT_BASIC;
	struct ibv_cq *cq = attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ ? attr->cq : NULL;
	struct ibv_srq *srq = NULL;

	if (basic) {
		srq = c->create_srq_ex(context, attr);
		remember_srq(srq);
		return srq;
	}
	pthread_mutex_lock(&shim_lock);
	if (attr->srq_type == IBV_SRQT_XRC && cq && !lost_cq(cq) && !getenv("MLX5_SRQ_SIGNATURE")) {
		srq = c->create_srq_ex(context, attr);
		if (!srq || take_xrc_srq(c, srq, cq)) {
			pthread_mutex_unlock(&shim_lock);
			return srq;
		}
		NEXT(ibv_destroy_srq)(srq);
	}
	if (cq)
		attr->cq = other_cq(cq);
	srq = cq && !attr->cq ? NULL : c->create_srq_ex(context, attr);
	if (cq)
		attr->cq = cq;
	if (srq)
		left_cq(cq);
	pthread_mutex_unlock(&shim_lock);
	return srq;
}

static bool lost_srq(struct ibv_srq *ibsrq)
{
	struct shim_srq *srq = shim_find(ibsrq);

	return !srq || srq->owner == SHIM_LIBMLX5;
}

/* Gives an SRQ without an owner to inlay. Returns whether it is inlay's now. */
static bool take_srq(struct ibv_srq *ibsrq)
{
	struct shim_srq *srq = shim_find(ibsrq);
	bool ours;

	if (!srq || srq->owner != SHIM_NOBODY)
		return srq && srq->owner == SHIM_INLAY;
	ours = !inlay_srq_from_srq(&srq->q, ibsrq, NULL, NULL);
	__atomic_store_n(&srq->owner, ours ? SHIM_INLAY : SHIM_LIBMLX5, __ATOMIC_RELEASE);
	return ours;
}

/* For the first receive. */
bool shim_take_srq(struct ibv_srq *ibsrq)
{
	bool taken;

	if (lost_srq(ibsrq))
		return false;
	pthread_mutex_lock(&shim_lock);
	taken = take_srq(ibsrq);
	pthread_mutex_unlock(&shim_lock);
	return taken;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct shim_srq *srq = shim_find(ibsrq);
	int err;

	if (!srq)
		return NEXT(ibv_destroy_srq)(ibsrq);
	pthread_mutex_lock(&shim_lock);
	shim_remove(ibsrq);
	pthread_mutex_unlock(&shim_lock);
	err = NEXT(ibv_destroy_srq)(ibsrq);
	pthread_mutex_lock(&shim_lock);
	if (err) {
		shim_insert(ibsrq, srq);
	} else {
		count_srq(srq);
		if (srq->stand_in) {
			srq->stand_in->srq = NULL; /* its entries are gone */
			leave_cqs(srq->stand_in);
			free(srq->stand_in);
		}
		free(srq);
	}
	pthread_mutex_unlock(&shim_lock);
	return err;
}

/* ---- Address handles: libmlx5 is asked once for the address vector of each ---- */

const struct mlx5_wqe_av *shim_av(struct ibv_ah *ibah)
{
	struct shim_ah *ah = shim_find(ibah);
	struct mlx5dv_ah dv = {};
	struct mlx5dv_obj obj = {.ah = {.in = ibah, .out = &dv}};

	if (INLAY_LIKELY(ah != NULL))
		return ah->av;
	ah = shim_real_init_obj(&obj, MLX5DV_OBJ_AH) ? NULL : calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	ah->kind = SHIM_AH;
	ah->av = dv.av;
	pthread_mutex_lock(&shim_lock);
	if (shim_find(ibah))
		free(ah); /* another thread was faster */
	else
		shim_insert(ibah, ah);
	pthread_mutex_unlock(&shim_lock);
	return dv.av;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ibah)
{
	struct shim_ah *ah = shim_find(ibah);

	if (ah) {
		pthread_mutex_lock(&shim_lock);
		shim_remove(ibah);
		pthread_mutex_unlock(&shim_lock);
		free(ah);
	}
	return NEXT(ibv_destroy_ah)(ibah);
}

/* ---- Queue pairs ---- */

static bool has_dv(const struct mlx5dv_qp_init_attr *dv, uint64_t mask)
{
	return dv && dv->comp_mask & mask;
}

static bool is_dct(const struct ibv_qp_init_attr_ex *attr, const struct mlx5dv_qp_init_attr *dv)
{
	return attr->qp_type == IBV_QPT_DRIVER && has_dv(dv, MLX5DV_QP_INIT_ATTR_MASK_DC) &&
	       dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
}

/* The CQs of its sends and receives; the same one twice if it has only sends or only receives. */
static struct ibv_cq *send_cq(const struct ibv_qp_init_attr_ex *attr, const struct mlx5dv_qp_init_attr *dv)
{
	return is_dct(attr, dv) ? attr->recv_cq : attr->send_cq;
}

static struct ibv_cq *recv_cq(const struct ibv_qp_init_attr_ex *attr)
{
	return attr->qp_type == IBV_QPT_XRC_SEND ? attr->send_cq : attr->recv_cq;
}

/*
 * Why inlay cannot drive such a QP; NULL if it can. Settles no owner, so that a creation that fails
 * changes nothing.
 */
static const char *uncovered(const struct ibv_qp_init_attr_ex *attr, const struct mlx5dv_qp_init_attr *dv)
{
	const uint64_t dv_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS |
				 MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
	const uint64_t dv_flags = MLX5DV_QP_CREATE_TUNNEL_OFFLOADS | MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC |
				  MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC |
				  MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
				  MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE | MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE;
	const uint64_t dv_ops = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED |
				MLX5DV_QP_EX_WITH_MKEY_CONFIGURE |
				MLX5DV_QP_EX_WITH_RAW_WQE | MLX5DV_QP_EX_WITH_MEMCPY;
	const uint32_t flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_SCATTER_FCS |
			       IBV_QP_CREATE_CVLAN_STRIPPING |
			       IBV_QP_CREATE_PCI_WRITE_END_PADDING;

	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC && attr->qp_type != IBV_QPT_UD &&
	    attr->qp_type != IBV_QPT_XRC_SEND && attr->qp_type != IBV_QPT_RAW_PACKET &&
	    !(attr->qp_type == IBV_QPT_DRIVER && has_dv(dv, MLX5DV_QP_INIT_ATTR_MASK_DC)))
		return "its type";
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) ||
	    attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
					IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
					  IBV_QP_INIT_ATTR_MAX_TSO_HEADER))
		return "its attributes";
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags & ~flags)
		return "its creation flags";
	if (has_dv(dv, ~dv_mask) ||
	    (has_dv(dv, MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) && dv->send_ops_flags & ~dv_ops) ||
	    (has_dv(dv, MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) && dv->create_flags & ~dv_flags))
		return "its mlx5 attributes";
	if (getenv("MLX5_QP_SIGNATURE"))
		return "signatures";
	if (lost_cq(send_cq(attr, dv)) || lost_cq(recv_cq(attr)))
		return "its CQ";
	return attr->srq && lost_srq(attr->srq) ? "its SRQ" : NULL;
}

static const char *type_name(const struct shim_qp *qp)
{
	switch ((uint32_t)qp->qp->qp_type) {
	case IBV_QPT_RC: return "RC";
	case IBV_QPT_UC: return "UC";
	case IBV_QPT_UD: return "UD";
	case IBV_QPT_XRC_SEND: return "XRC";
	case IBV_QPT_RAW_PACKET: return "raw packet";
	default: return qp->target ? "DCT" : "DCI";
	}
}

/* Which of the three functions creates the QP; they take the same attributes. */
struct maker {
	struct shim_context *context;
	struct mlx5dv_qp_init_attr *dv;
	enum { PLAIN, EX, DV } how;
};

static struct ibv_qp *make(const struct maker *maker, struct ibv_qp_init_attr_ex *attr)
{
	switch (maker->how) {
	case PLAIN:
		return NEXT(ibv_create_qp)(attr->pd, (struct ibv_qp_init_attr *)attr);
	case EX:
		return maker->context->create_qp_ex(maker->context->context, attr);
	default:
		return NEXT(mlx5dv_create_qp)(maker->context->context, attr, maker->dv);
	}
}

/* Resets the shim's counters and limits to those of a QP in RESET. */
static void restart(struct shim_qp *qp)
{
	qp->sq.head = qp->sq.tail = qp->sq.done = qp->sq.room = 0;
	qp->sq.fence = 0;
	qp->sq.max_sge = -1;
	qp->rq.head = qp->rq.tail = 0;
	qp->rq.ready = false;
}

/*
 * Not inlay_sq_from_qp, which refuses sq_sig_all because it leaves INLAY_SIGNALED to its caller. The
 * shim passes the flag with every post.
 */
static int take_qp(struct shim_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct inlay_uar uar;
	struct mlx5dv_qp dv = {};
	struct mlx5dv_obj obj = {.qp = {.in = qp->qp, .out = &dv}};
	uint32_t type = qp->qp->qp_type;

	if (shim_real_init_obj(&obj, MLX5DV_OBJ_QP) || ibv_query_qp(qp->qp, &attr, IBV_QP_CAP, &init))
		return -1;
	if (inlay_uar_init(&uar, dv.bf.reg, dv.bf.size, qp->uar.pd ? INLAY_UAR_SERIAL : INLAY_UAR_DOORBELL))
		return -1;
	uar.td = qp->uar.td;
	uar.pd = qp->uar.pd;
	qp->uar = uar;
	if (dv.sq.wqe_cnt) {
		qp->sq.sends = calloc(dv.sq.wqe_cnt, sizeof(*qp->sq.sends));
		if (!qp->sq.sends || dv.sq.stride != INLAY_WQEBB || !init.cap.max_send_wr)
			return -1;
		qp->sq.max_sends = init.cap.max_send_wr;
		qp->sq.longest = dv.sq.wqe_cnt / qp->sq.max_sends;
		if (qp->sq.longest > 16)
			qp->sq.longest = 16;
		if (inlay_sq_init(&qp->sq.q, dv.sq.buf, dv.sq.wqe_cnt, (volatile uint32_t *)dv.dbrec, qp->qpn,
				  INLAY_MAX_DS, &qp->uar))
			return -1;
		inlay_sq_set_type(&qp->sq.q, qp->qp->qp_type, qp->context->atomics);
		qp->sq.connected = type == IBV_QPT_RC || type == IBV_QPT_UC;
		qp->sq.to = type == IBV_QPT_UD || type == IBV_QPT_DRIVER ? 3 : type == IBV_QPT_XRC_SEND;
		if (type == IBV_QPT_RAW_PACKET)
			inlay_sq_query_packet_(&qp->sq.q, qp->context->context);
	}
	if (type == IBV_QPT_RAW_PACKET) {
		if (inlay_qp_user_index(qp->qp, &qp->index, NULL))
			return -1;
		qp->indexed = true;
		qp->csum = qp->context->csum;
	}
	qp->max_send_sge = (int32_t)init.cap.max_send_sge;
	qp->sq.max_inline = init.cap.max_inline_data;
	qp->sq.always = init.sq_sig_all ? INLAY_SIGNALED : 0;
	if (dv.rq.wqe_cnt && !qp->qp->srq) {
		qp->rq.wr_ids = calloc(dv.rq.wqe_cnt, sizeof(*qp->rq.wr_ids));
		if (!qp->rq.wr_ids || inlay_rq_from_qp(&qp->rq.q, qp->qp, NULL, NULL))
			return -1;
	}
	restart(qp);
	return 0;
}

static void count_qp(const struct shim_qp *qp)
{
	total.sends += qp->sq.head;
	total.recvs += qp->rq.head;
}

/* What mlx5's own operations need. */
static int take_dv(struct shim_qp *qp)
{
	if (qp->dv_ops & MLX5DV_QP_EX_WITH_MEMCPY) {
		qp->opaque_mr = ibv_reg_mr(qp->pd, qp->opaque, sizeof(qp->opaque), IBV_ACCESS_LOCAL_WRITE);
		if (!qp->opaque_mr)
			return -1;
	}
	qp->change = calloc(1, sizeof(*qp->change));
	return qp->change ? 0 : -1;
}

/*
 * Gives to inlay all the objects that a new QP will use. Returns what could not be taken, or NULL.
 */
static const char *take_all(struct shim_qp *qp, const struct ibv_qp_init_attr_ex *attr,
			    const struct mlx5dv_qp_init_attr *dv)
{
	if (!qp->target && (take_qp(qp) || (qp->dv_ops && take_dv(qp))))
		return "what is to be known of it";
	if (!take_cq(send_cq(attr, dv)) || !take_cq(recv_cq(attr)))
		return "its CQ";
	return attr->srq && !take_srq(attr->srq) ? "its SRQ" : NULL;
}

static void free_qp(struct shim_qp *qp)
{
	inlay_sq_fini(&qp->sq.q);
	inlay_uar_destroy(&qp->uar, NULL);
	if (qp->opaque_mr)
		ibv_dereg_mr(qp->opaque_mr);
	free(qp->change);
	free(qp->sq.sends);
	free(qp->rq.wr_ids);
	free(qp);
}

/*
 * The slot for the QP of this number; NULL if there is no memory. The previous QP of the number may
 * still have completions in its CQs.
 */
static struct shim_qp **place_of(struct shim_qp **parts[4096], uint32_t qpn)
{
	struct shim_qp ***part = &parts[qpn >> 12], **place;

	if (!*part)
		*part = calloc(4096, sizeof(**part));
	if (!*part)
		return NULL;
	place = &(*part)[qpn & 0xfff];
	while (*place) {
		pthread_mutex_unlock(&shim_lock);
		sched_yield();
		pthread_mutex_lock(&shim_lock);
	}
	return place;
}

/*
 * Lets completions find a QP by its number, unless that is 0 as a DC target's is at first. Returns
 * whether there was memory for it.
 */
static bool enter_numbers(struct shim_qp *qp)
{
	struct shim_qp **place = qp->qpn ? place_of(qp->context->by_number, qp->qpn) : NULL;
	struct shim_qp **by_index = qp->indexed ? place_of(qp->context->by_index, qp->index) : NULL;

	if ((qp->qpn && !place) || (qp->indexed && !by_index))
		return false;
	if (place)
		__atomic_store_n(place, qp, __ATOMIC_RELEASE);
	if (by_index)
		__atomic_store_n(by_index, qp, __ATOMIC_RELEASE);
	if (by_index)
		__atomic_store_n(&qp->context->indexed, true, __ATOMIC_RELEASE);
	return true;
}

/*
 * Makes one of inlay's QPs, in a parent domain of its own if possible, else in the program's PD.
 * Returns NULL with *why NULL if libmlx5 refuses it too, and NULL with *why set if it turns out only
 * now that inlay cannot drive it.
 */
static struct ibv_qp *create_inlay(const struct maker *maker, struct ibv_qp_init_attr_ex *attr, const char **why)
{
	struct shim_qp *qp = aligned_alloc(INLAY_CACHE_LINE, sizeof(*qp));
	const char *shut = getenv("MLX5_SHUT_UP_BF");
	struct ibv_qp_init_attr_ex asked = *attr;
	struct mlx5dv_qp_init_attr *dv = maker->how == DV ? maker->dv : NULL;

	*why = qp ? NULL : "memory";
	if (!qp)
		return NULL;
	memset(qp, 0, sizeof(*qp));
	qp->kind = SHIM_QP;
	qp->context = maker->context;
	qp->pd = attr->pd;
	qp->target = is_dct(attr, dv);
	qp->dv_ops = has_dv(dv, MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) ? dv->send_ops_flags : 0;
	qp->sq.max_tso_header = attr->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER ? attr->max_tso_header : 0;
	if (!(shut && strcmp(shut, "0")) && attr->cap.max_send_wr && !qp->target &&
	    !inlay_uar_create(&qp->uar, attr->pd, INLAY_UAR_SERIAL, NULL)) {
		attr->pd = qp->uar.pd;
		qp->qp = make(maker, attr);
		attr->pd = qp->pd;
		if (!qp->qp) {
			inlay_uar_destroy(&qp->uar, NULL);
			*attr = asked;
		}
	}
	if (!qp->qp)
		qp->qp = make(maker, attr);
	if (!qp->qp) {
		free(qp);
		return NULL;
	}
	qp->qpn = qp->qp->qp_num;
	*why = take_all(qp, attr, dv);
	if (!*why && !enter_numbers(qp))
		*why = "memory";
	if (*why) {
		NEXT(ibv_destroy_qp)(qp->qp);
		free_qp(qp);
		*attr = asked;
		return NULL;
	}
	qp->qp->pd = qp->pd;
	shim_insert(qp->qp, qp);
	qp->srq = attr->srq ? shim_find(attr->srq) : NULL;
	qp->send_cq = shim_find(send_cq(attr, dv));
	qp->recv_cq = shim_find(recv_cq(attr));
	qp->extended = !qp->target && ibv_qp_to_qp_ex(qp->qp);
	if (qp->extended)
		shim_wr_install(ibv_qp_to_qp_ex(qp->qp));
	if (qp->extended && dv)
		shim_dv_install(qp);
	total.qps++;
	if (verbose)
		say("QP 0x%x is inlay's: %s, %u sends%s, %s%u receives, %s", qp->qpn, type_name(qp), qp->sq.max_sends,
		    qp->extended ? " with ibv_wr_*" : "", qp->srq ? "an SRQ's " : "",
		    qp->srq ? qp->srq->q.wqe_cnt - 1 : qp->rq.wr_ids ? qp->rq.q.mask + 1 : 0,
		    qp->sq.q.next ? "a register of its own" : "a shared register");
	return qp->qp;
}

static struct ibv_qp *create_libmlx5(const struct maker *maker, struct ibv_qp_init_attr_ex *attr, const char *why)
{
	struct ibv_cq *scq = attr->send_cq, *rcq = attr->recv_cq;
	struct shim_srq *srq = attr->srq ? shim_find(attr->srq) : NULL;
	struct ibv_qp *qp = NULL;

	if (srq && srq->owner == SHIM_INLAY) {
		say("refused: a QP of libmlx5's (because of %s) on an SRQ that is inlay's already", why);
		errno = ENOTSUP;
		return NULL;
	}
	attr->send_cq = other_cq(scq);
	attr->recv_cq = !attr->send_cq == !scq ? other_cq(rcq) : NULL;
	if (!attr->send_cq == !scq && !attr->recv_cq == !rcq)
		qp = make(maker, attr);
	attr->send_cq = scq;
	attr->recv_cq = rcq;
	if (qp) {
		left_cq(scq);
		left_cq(rcq);
		if (srq)
			__atomic_store_n(&srq->owner, SHIM_LIBMLX5, __ATOMIC_RELEASE);
	}
	if (qp && (verbose || !total.left))
		say("QP 0x%x is libmlx5's, because of %s%s", qp->qp_num, why,
		    verbose ? "" : " (others are not mentioned)");
	total.left += qp != NULL;
	return qp;
}

static struct ibv_qp *create_qp(const struct maker *maker, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp = NULL;
	const char *why;

	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return make(maker, attr);
	pthread_mutex_lock(&shim_lock);
	why = uncovered(attr, maker->dv);
	if (!why)
		qp = create_inlay(maker, attr, &why);
	if (why)
		qp = create_libmlx5(maker, attr, why);
	pthread_mutex_unlock(&shim_lock);
	return qp;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct maker maker = {shim_find(pd->context), NULL, PLAIN};
	struct ibv_qp_init_attr_ex ex = {.pd = pd};
	struct ibv_qp *qp;

	if (!maker.context)
		return NEXT(ibv_create_qp)(pd, attr);
	memcpy(&ex, attr, sizeof(*attr)); /* which begins like the other, and whose padding is where comp_mask lies */
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	qp = create_qp(&maker, &ex);
	if (qp)
		memcpy(attr, &ex, sizeof(*attr));
	return qp;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct maker maker = {shim_find(context), NULL, EX};

	return create_qp(&maker, attr);
}

EXPORT struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				       struct mlx5dv_qp_init_attr *dv)
{
	struct maker maker = {shim_find(context), dv, DV};

	return maker.context ? create_qp(&maker, attr) : NEXT(mlx5dv_create_qp)(context, attr, dv);
}

/*
 * A QP that was reset: it has no more completions, and all its posts fail. Locks are taken in the
 * same order as by posts.
 */
static void reset_qp(struct shim_qp *qp)
{
	lock_cqs(qp);
	shim_clean(qp);
	unlock_cqs(qp);
	shim_acquire(&qp->sq.lock);
	shim_acquire(&qp->rq.lock);
	count_qp(qp);
	if (qp->sq.sends)
		inlay_sq_reset(&qp->sq.q);
	if (qp->rq.wr_ids)
		inlay_rq_reset(&qp->rq.q);
	restart(qp);
	shim_release(&qp->rq.lock);
	shim_release(&qp->sq.lock);
}

/* A DC target gets its number in RTR; before that it cannot receive anything. */
static int learn_dct(struct shim_qp *qp)
{
	bool entered;

	pthread_mutex_lock(&shim_lock);
	qp->qpn = qp->qp->qp_num;
	qp->indexed = !inlay_qp_user_index(qp->qp, &qp->index, NULL);
	entered = enter_numbers(qp);
	pthread_mutex_unlock(&shim_lock);
	return entered ? 0 : ENOMEM;
}

/*
 * At a transition to RESET or RTS libmlx5 stores its own ibv_wr_complete in the QP, which does not
 * know our lock. So no thread may be between ibv_wr_start and ibv_wr_complete until ours is back.
 */
EXPORT int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct shim_qp *qp = mask & IBV_QP_STATE ? shim_find(ibqp) : NULL;
	bool puts = qp && (attr->qp_state == IBV_QPS_RESET || attr->qp_state == IBV_QPS_RTS);
	int err;

	if (puts)
		shim_acquire(&qp->sq.lock);
	err = NEXT(ibv_modify_qp)(ibqp, attr, mask);
	if (puts) {
		if (!err)
			qp->sq.max_sge = attr->qp_state == IBV_QPS_RTS ? qp->max_send_sge : -1;
		if (qp->extended)
			shim_wr_install(ibv_qp_to_qp_ex(ibqp));
		shim_release(&qp->sq.lock);
	}
	if (qp && !err && attr->qp_state == IBV_QPS_INIT) {
		shim_acquire(&qp->rq.lock);
		qp->rq.ready = true;
		shim_release(&qp->rq.lock);
	}
	if (qp && !err && qp->target && attr->qp_state == IBV_QPS_RTR)
		err = learn_dct(qp);
	if (qp && !err && attr->qp_state == IBV_QPS_RESET)
		reset_qp(qp);
	return err;
}

/* To libmlx5 this, too, is a transition to RTS. */
EXPORT int mlx5dv_dci_stream_id_reset(struct ibv_qp *ibqp, uint16_t stream_id)
{
	struct shim_qp *qp = shim_find(ibqp);
	int err;

	if (!qp)
		return NEXT(mlx5dv_dci_stream_id_reset)(ibqp, stream_id);
	shim_acquire(&qp->sq.lock);
	err = NEXT(mlx5dv_dci_stream_id_reset)(ibqp, stream_id);
	if (qp->extended)
		shim_wr_install(ibv_qp_to_qp_ex(ibqp));
	shim_release(&qp->sq.lock);
	return err;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct shim_qp *qp = shim_find(ibqp);
	int err;

	if (!qp)
		return NEXT(ibv_destroy_qp)(ibqp);
	pthread_mutex_lock(&shim_lock);
	shim_remove(ibqp);
	pthread_mutex_unlock(&shim_lock);
	if (qp->uar.pd)
		ibqp->pd = qp->uar.pd;
	err = NEXT(ibv_destroy_qp)(ibqp);
	pthread_mutex_lock(&shim_lock);
	if (err) {
		ibqp->pd = qp->pd;
		shim_insert(ibqp, qp);
	} else {
		leave_cqs(qp);
		count_qp(qp);
		free_qp(qp);
	}
	pthread_mutex_unlock(&shim_lock);
	return err;
}

/* ---- Other objects that complete to a CQ ---- */

static struct ibv_wq *create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	struct shim_context *c = shim_find(context);
	struct ibv_cq *cq = attr->cq;
	struct ibv_wq *wq;

	pthread_mutex_lock(&shim_lock);
	attr->cq = other_cq(cq);
	wq = attr->cq ? c->create_wq(context, attr) : NULL;
	attr->cq = cq;
	if (wq)
		left_cq(cq);
	pthread_mutex_unlock(&shim_lock);
	return wq;
}

/* ---- Contexts ---- */

static struct ibv_mr *alloc_null_mr(struct ibv_pd *pd)
{
	struct shim_context *c = shim_find(pd->context);
	struct ibv_mr *mr = c->alloc_null_mr(pd);

	if (mr) {
		c->null_lkey = mr->lkey;
		c->has_null_mr = true;
	}
	return mr;
}

static struct ibv_context *opened(struct ibv_context *context)
{
	struct verbs_context *vctx = context ? verbs_get_ctx(context) : NULL;
	struct mlx5dv_context dv = {.comp_mask = MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH};
	struct ibv_device_attr_ex attr;
	struct shim_context *c;

	if (!vctx || !mlx5dv_is_supported(context->device) || ibv_query_device_ex(context, NULL, &attr) ||
	    mlx5dv_query_device(context, &dv))
		return context;
	c = calloc(1, sizeof(*c));
	if (!c)
		return context;
	c->context = context;
	c->ops = context->ops;
	c->atomics = attr.orig_attr.atomic_cap != IBV_ATOMIC_NONE;
	c->csum = attr.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM;
	c->max_tso = attr.tso_caps.max_tso;
	c->max_copy = dv.comp_mask & MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH ? dv.max_wr_memcpy_length : 0;
	context->ops.post_send = shim_post_send;
	context->ops.post_recv = shim_post_recv;
	context->ops.post_srq_recv = shim_post_srq_recv;
	context->ops.bind_mw = shim_bind_mw;
	context->ops.poll_cq = shim_poll_cq;
	context->ops.req_notify_cq = shim_req_notify_cq;
#define REPLACE(name) (c->name = vctx->name, vctx->name = name)
	REPLACE(create_qp_ex);
	REPLACE(create_cq_ex);
	REPLACE(create_srq_ex);
	REPLACE(create_wq);
	REPLACE(alloc_null_mr);
	pthread_mutex_lock(&shim_lock);
	shim_insert(context, c);
	pthread_mutex_unlock(&shim_lock);
	return context;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return opened(NEXT(ibv_open_device)(device));
}

EXPORT struct ibv_context *mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr)
{
	return opened(NEXT(mlx5dv_open_device)(device, attr));
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct shim_context *c = shim_find(context);
	int err = NEXT(ibv_close_device)(context), i;

	if (err || !c)
		return err;
	pthread_mutex_lock(&shim_lock);
	shim_remove(context);
	pthread_mutex_unlock(&shim_lock);
	for (i = 0; i < 4096; i++) {
		free(c->by_number[i]);
		free(c->by_index[i]);
	}
	free(c);
	return 0;
}

/* ---- The summary for INLAY_SHIM_VERBOSE ---- */

static void count(const void *object, void *value)
{
	if (*(enum shim_kind *)value == SHIM_QP && ((struct shim_qp *)value)->qp == object)
		count_qp(value);
	else if (*(enum shim_kind *)value == SHIM_SRQ)
		count_srq(value);
	else if (*(enum shim_kind *)value == SHIM_CQ && ((struct shim_cq *)value)->cq == object)
		count_cq(value);
}

__attribute__((destructor)) static void end(void)
{
	if (!verbose)
		return;
	shim_each(count);
	say("by inlay: %llu QPs, %llu sends, %llu receives, %llu completions; by libmlx5: %llu QPs",
	    (unsigned long long)total.qps,
	    (unsigned long long)total.sends, (unsigned long long)total.recvs, (unsigned long long)total.completions,
	    (unsigned long long)total.left);
}
