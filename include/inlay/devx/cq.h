/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/cq.h: a completion queue made by device commands. cq.cq is a queue of queue/cq.h, with
 * the number inlay_cq_cqn(&cq.cq).
 *
 *   struct inlay_devx_cq_attr attr;
 *   struct inlay_devx_cq cq;
 *
 *   memset(&attr, 0, sizeof(attr));
 *   attr.ring.umem = attr.record.umem = &umem;           registered with IBV_ACCESS_LOCAL_WRITE
 *   attr.record.offset = 256 * 64;                       the ring at 0, the record after it
 *   attr.uar = &uar;
 *   attr.cqes = 256;
 *   inlay_devx_cq_create(&cq, ctx, &attr);
 *   inlay_devx_cq_destroy(&cq);                          after its QPs
 *
 * inlay_cq_arm arms the CQ's event: INLAY_EVENT_COMP on a DEVX channel (devx/event.h).
 *
 * Threads: as queue/cq.h; creating and destroying as device commands.
 * Sources: devx/ifc.h; libmlx5's verbs.c (a ring before its first completion).
 */
#ifndef INLAY_DEVX_CQ_H
#define INLAY_DEVX_CQ_H /* a trial: names may change */

#include <inlay/devx/ifc.h>
#include <inlay/devx/uar.h>
#include <inlay/devx/umem.h>
#include <inlay/queue/cq.h>

enum inlay_devx_cq_flags {
	INLAY_DEVX_CQ_IGNORE_OVERRUN = 1, /* the device does not check for room: inlay_cq_advance_quiet suffices */
	/* Also: each CQE overwrites the one before, so one entry suffices. Set the QP's send_cqn; no CQEs are reserved. */
	INLAY_DEVX_CQ_COLLAPSED = 2,
	/* The device may compress CQEs (inlay_cq_unzip), in the basic or the enhanced layout. */
	INLAY_DEVX_CQ_COMPRESSED = 4, INLAY_DEVX_CQ_ENHANCED = 8
};

/* What to create. Zero it first. */
struct inlay_devx_cq_attr {
	struct inlay_devx_place ring;     /* cqes * cqe_size bytes that the device may write */
	struct inlay_devx_place record;   /* 8 bytes */
	const struct inlay_devx_uar *uar; /* the CQ is armed in its page */
	uint32_t cqes;                    /* a power of two, 1 .. 2^22 */
	uint32_t cqe_size;                /* 64 or 128 bytes; 0: 64 */
	uint32_t vector;                  /* completion vector */
	uint32_t flags;                   /* enum inlay_devx_cq_flags */
	uint16_t period;                  /* event moderation: microseconds, 0 .. 4095, */
	uint16_t count;                   /* and completions; 0: none */
	uint32_t mini;                    /* of a compressed CQ: enum inlay_mini_format */
};

/* The queue and its object. */
struct inlay_devx_cq {
	struct inlay_cq cq;
	struct mlx5dv_devx_obj *obj;   /* NULL if not created */
	struct inlay_devx_error error; /* of the last call on it */
};

/*
 * Creates a CQ, and initialises ring and record. Returns 0; -EINVAL for an impossible attribute,
 * ring or record; -EPERM when the device may not write the ring; -ENOENT for a vector that does not
 * exist; else the negative errno of CREATE_CQ. On failure cq->obj is NULL.
 */
INLAY_COLD int inlay_devx_cq_create(struct inlay_devx_cq *cq, struct ibv_context *ctx,
				    const struct inlay_devx_cq_attr *attr)
{
	uint32_t enhanced, zip, cqe_size, cqn, eqn = 0, *record, collapsed;
	struct inlay_create_cq_in in;
	const char *why;
	size_t bytes, i;
	uint8_t *ring;
	int err;

	INLAY_CHECK(cq && ctx && attr, "no argument is NULL");
	__builtin_memset(cq, 0, sizeof(*cq));
	cqe_size = attr->cqe_size ? attr->cqe_size : 64;
	collapsed = !!(attr->flags & INLAY_DEVX_CQ_COLLAPSED);
	enhanced = !!(attr->flags & INLAY_DEVX_CQ_ENHANCED);
	zip = enhanced || attr->flags & INLAY_DEVX_CQ_COMPRESSED;
	bytes = inlay_devx_ring_(attr->cqes, 1, 1u << 22, cqe_size, 64, 128);
	if (!bytes || !attr->uar || !attr->uar->devx || attr->flags > 15 || (collapsed && zip) || attr->period > 4095 ||
	    !inlay_mini_ok_(attr->mini))
		return inlay_devx_refuse_(&cq->error, -EINVAL, "impossible CQEs, register, flags, period or format");
	why = inlay_devx_places_(attr->ring, bytes, attr->record, &ring, &record);
	if (why)
		return inlay_devx_refuse_(&cq->error, -EINVAL, why);
	if (!(attr->ring.umem->access & IBV_ACCESS_LOCAL_WRITE))
		return inlay_devx_refuse_(&cq->error, -EPERM, "the device may not write the ring's umem");
	err = mlx5dv_devx_query_eqn(ctx, attr->vector, &eqn);
	if (err)
		return inlay_devx_refuse_(&cq->error, -err, "mlx5dv_devx_query_eqn failed");

	__builtin_memset(ring, 0, bytes);
	for (i = 64; i <= bytes; i += 64)
		ring[i - 1] = MLX5_CQE_INVALID << 4 | INLAY_CQE_OWNER;
	record[0] = record[1] = 0;

	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_CREATE_CQ, 0);
	inlay_create_cq_in_set(&in, INLAY_CREATE_CQ_IN_CQ_UMEM_ID, attr->ring.umem->id);
	inlay_create_cq_in_set(&in, INLAY_CREATE_CQ_IN_CQ_UMEM_OFFSET, attr->ring.offset);
	inlay_create_cq_in_set(&in, INLAY_CREATE_CQ_IN_CQ_UMEM_VALID, 1);
	inlay_cqc_set(&in.cqc, INLAY_CQC_DBR_UMEM_VALID, 1);
	inlay_cqc_set(&in.cqc, INLAY_CQC_DBR_UMEM_ID, attr->record.umem->id);
	inlay_cqc_set(&in.cqc, INLAY_CQC_DBR_ADDR, attr->record.offset);
	inlay_cqc_set(&in.cqc, INLAY_CQC_CQE_SZ, cqe_size == 128 ? INLAY_CQE_SZ_128 : INLAY_CQE_SZ_64);
	inlay_cqc_set(&in.cqc, INLAY_CQC_CC, collapsed);
	inlay_cqc_set(&in.cqc, INLAY_CQC_OI, collapsed | !!(attr->flags & INLAY_DEVX_CQ_IGNORE_OVERRUN));
	inlay_cqc_set(&in.cqc, INLAY_CQC_CQE_COMP_EN, zip);
	inlay_cqc_set(&in.cqc, INLAY_CQC_CQE_COMPRESSION_LAYOUT, enhanced);
	inlay_cqc_set(&in.cqc, INLAY_CQC_MINI_CQE_RES_FORMAT, attr->mini % INLAY_MINI_L34H_STRIDX);
	inlay_cqc_set(&in.cqc, INLAY_CQC_MINI_CQE_RES_FORMAT_EXT, attr->mini == INLAY_MINI_L34H_STRIDX);
	inlay_cqc_set(&in.cqc, INLAY_CQC_LOG_CQ_SIZE, inlay_log2_ceil(attr->cqes));
	inlay_cqc_set(&in.cqc, INLAY_CQC_UAR_PAGE, attr->uar->page_id);
	inlay_cqc_set(&in.cqc, INLAY_CQC_CQ_PERIOD, attr->period);
	inlay_cqc_set(&in.cqc, INLAY_CQC_CQ_MAX_COUNT, attr->count);
	inlay_cqc_set(&in.cqc, INLAY_CQC_C_EQN_OR_APU_ELEMENT, eqn);
	err = inlay_devx_make_(ctx, &in, sizeof(in), &cq->obj, &cqn, &cq->error);
	if (err)
		return err;
	err = inlay_cq_init(&cq->cq, ring, attr->cqes, cqe_size, record, attr->uar->page, cqn);
	if (err)
		inlay_devx_drop_(&cq->obj);
	else if (zip)
		(void)!inlay_cq_set_compression(&cq->cq, attr->mini, (int)enhanced);
	return err;
}

/* Destroys the CQ. Returns 0, or a negative errno: -EBUSY while a QP, XRQ or DCT uses it. */
INLAY_COLD int inlay_devx_cq_destroy(struct inlay_devx_cq *cq)
{
	INLAY_CHECK(cq, "no argument is NULL");
	return inlay_devx_drop_(&cq->obj);
}

#endif
