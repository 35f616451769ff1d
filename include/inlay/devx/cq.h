/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/cq.h: a completion queue made by device commands.
 *
 *   struct inlay_devx_cq_attr attr;
 *   struct inlay_devx_cq cq;
 *
 *   memset(&attr, 0, sizeof(attr));
 *   attr.ring.umem = attr.record.umem = &umem;         of IBV_ACCESS_LOCAL_WRITE
 *   attr.record.offset = inlay_devx_cq_size(256, 64);  the ring at 0, the record behind it
 *   attr.uar = &uar;
 *   attr.cqes = 256;
 *   inlay_devx_cq_create(&cq, ctx, &attr);
 *   ...
 *   cqe = inlay_cq_peek(&cq.cq);                       cq.cq is a queue of queue/cq.h, cq.cq.cqn its number
 *   ...
 *   inlay_devx_cq_destroy(&cq);                        after its QPs
 *
 * Any QP of the same context may complete to it, of verbs too only by device commands; and a QP made here may complete to a CQ of verbs, if
 * that is polled by inlay: inlay_cq_from_cq, whose cqn it takes. libmlx5 knows nothing of such a QP and fails at its completions.
 *
 * Events of it are a DEVX channel's (event.h), of type INLAY_EVENT_COMP, and armed by inlay_cq_arm.
 *
 * Threads: as queue/cq.h; creating and destroying as device commands.
 * Sources: devx/ifc/cq.h; libmlx5's verbs.c (how a ring looks before its first completion).
 */
#ifndef INLAY_DEVX_CQ_H
#define INLAY_DEVX_CQ_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/devx/call.h>
#include <inlay/devx/ifc/cmd.h>
#include <inlay/devx/ifc/cq.h>
#include <inlay/devx/uar.h>
#include <inlay/devx/umem.h>
#include <inlay/queue/cq.h>

enum inlay_devx_cq_flags {
	INLAY_DEVX_CQ_IGNORE_OVERRUN = 1 /* the device does not look whether there is room: inlay_cq_advance_quiet is enough */
};

/* What is wanted. Zero it first: 0 is a default where it says so. */
struct inlay_devx_cq_attr {
	struct inlay_devx_place ring;      /* inlay_devx_cq_size() bytes, which the device may write */
	struct inlay_devx_place record;    /* 8 bytes */
	const struct inlay_devx_uar *uar;  /* in whose page it is armed */
	uint32_t cqes;                     /* a power of two, 1 .. 2^22 */
	uint32_t cqe_size;                 /* 64 or 128 bytes; 0: 64 */
	uint32_t vector;                   /* completion vector */
	uint32_t flags;                    /* enum inlay_devx_cq_flags */
	uint16_t period;                   /* moderation of events: microseconds, less than 4096, and completions. 0: none */
	uint16_t count;
	uint32_t reserved;
};

/* The queue, and its object. */
struct inlay_devx_cq {
	struct inlay_cq cq;
	struct mlx5dv_devx_obj *obj;   /* NULL: there is none */
	struct inlay_devx_error error; /* of the last command on it */
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/* Bytes of a ring of that many CQEs of cqe_size bytes, a multiple of 64; 0 when there cannot be one. */
INLAY_COLD size_t inlay_devx_cq_size(uint32_t cqes, uint32_t cqe_size)
{
	if (!inlay_is_pow2(cqes) || cqes > 1u << 22 || (cqe_size != 64 && cqe_size != 128))
		return 0;
	return (size_t)cqes * cqe_size;
}

/*
 * Creates a CQ. The ring is made one that holds no completion, and the record zeroed, before the device is told of them.
 *
 * ctx  from inlay_devx_open
 *
 * Returns 0; -EINVAL for an attribute that cannot be, and for a ring or record that is outside of its umem or lies where it must not
 * (umem.h); -EPERM when the device may not write to the ring's umem; -ENOENT for a vector that is not there; else the negative errno of
 * CREATE_CQ, which cq->error has more of. On failure there is no object: cq->obj is NULL.
 */
INLAY_COLD int inlay_devx_cq_create(struct inlay_devx_cq *cq, struct ibv_context *ctx, const struct inlay_devx_cq_attr *attr)
{
	uint32_t cqe_size, eqn = 0, i, *record;
	size_t bytes;
	struct inlay_create_cq_in in;
	struct inlay_cmd_out out;
	uint8_t *ring;
	int err;

	INLAY_CHECK(cq && ctx && attr, "no argument is NULL");
	__builtin_memset(cq, 0, sizeof(*cq));
	cqe_size = attr->cqe_size ? attr->cqe_size : 64;
	bytes = inlay_devx_cq_size(attr->cqes, cqe_size);
	if (!bytes || !attr->uar || !attr->uar->devx || attr->flags & ~(uint32_t)INLAY_DEVX_CQ_IGNORE_OVERRUN || attr->period > 4095)
		return -EINVAL;
	ring = inlay_devx_ring_at(attr->ring, bytes);
	record = inlay_devx_record_at(attr->record);
	if (!ring || !record)
		return -EINVAL;
	if (!(attr->ring.umem->access & IBV_ACCESS_LOCAL_WRITE))
		return -EPERM;
	err = inlay_devx_eqn(&eqn, ctx, attr->vector);
	if (err)
		return err;

	__builtin_memset(ring, 0, bytes);
	for (i = 1; i <= bytes / 64; i++)
		ring[i * 64 - 1] = MLX5_CQE_INVALID << 4 | INLAY_CQE_OWNER;
	record[0] = record[1] = 0;

	__builtin_memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in.cmd, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_CREATE_CQ);
	inlay_create_cq_in_set(&in, INLAY_CREATE_CQ_IN_CQ_UMEM_ID, attr->ring.umem->id);
	inlay_create_cq_in_set(&in, INLAY_CREATE_CQ_IN_CQ_UMEM_OFFSET, attr->ring.offset);
	inlay_create_cq_in_set(&in, INLAY_CREATE_CQ_IN_CQ_UMEM_VALID, 1);
	inlay_cqc_set(&in.cqc, INLAY_CQC_DBR_UMEM_VALID, 1);
	inlay_cqc_set(&in.cqc, INLAY_CQC_DBR_UMEM_ID, attr->record.umem->id);
	inlay_cqc_set(&in.cqc, INLAY_CQC_DBR_ADDR, attr->record.offset);
	inlay_cqc_set(&in.cqc, INLAY_CQC_CQE_SZ, cqe_size == 128 ? INLAY_CQE_SZ_128 : INLAY_CQE_SZ_64);
	inlay_cqc_set(&in.cqc, INLAY_CQC_OI, !!(attr->flags & INLAY_DEVX_CQ_IGNORE_OVERRUN));
	inlay_cqc_set(&in.cqc, INLAY_CQC_LOG_CQ_SIZE, inlay_devx_log2(attr->cqes));
	inlay_cqc_set(&in.cqc, INLAY_CQC_UAR_PAGE, attr->uar->page_id);
	inlay_cqc_set(&in.cqc, INLAY_CQC_CQ_PERIOD, attr->period);
	inlay_cqc_set(&in.cqc, INLAY_CQC_CQ_MAX_COUNT, attr->count);
	inlay_cqc_set(&in.cqc, INLAY_CQC_C_EQN_OR_APU_ELEMENT, eqn);
	err = inlay_devx_create(ctx, &in, sizeof(in), &out, sizeof(out), &cq->obj, &cq->error);
	if (err)
		return err;
	err = inlay_cq_init(&cq->cq, ring, attr->cqes, cqe_size, record, attr->uar->page,
			    (uint32_t)inlay_cmd_out_get(&out, INLAY_CMD_OUT_NUMBER));
	if (err) {
		inlay_devx_destroy(cq->obj);
		cq->obj = NULL;
	}
	return err;
}

/*
 * Asks the device how the CQ stands. out: the answer, whatever became of the command. Returns 0, -EINVAL when there is no object, or the
 * negative errno of QUERY_CQ.
 */
INLAY_COLD int inlay_devx_cq_query(struct inlay_devx_cq *cq, struct inlay_query_cq_out *out)
{
	struct inlay_cmd_in in;

	INLAY_CHECK(cq && out, "no argument is NULL");
	if (!cq->obj)
		return -EINVAL;
	__builtin_memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_QUERY_CQ);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_NUMBER, cq->cq.cqn);
	return inlay_devx_query(cq->obj, &in, sizeof(in), out, sizeof(*out), &cq->error);
}

/*
 * Destroys the CQ; its memory is the caller's again. Nothing happens where there is no object.
 *
 * Returns 0, or a negative errno: -EBUSY while a QP, an XRQ or a DCT completes to it; then it is as it was.
 */
INLAY_COLD int inlay_devx_cq_destroy(struct inlay_devx_cq *cq)
{
	int err;

	INLAY_CHECK(cq, "no argument is NULL");
	err = cq->obj ? inlay_devx_destroy(cq->obj) : 0;
	if (!err)
		cq->obj = NULL;
	return err;
}

#endif
