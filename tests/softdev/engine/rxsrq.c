/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rxsrq.c: receive WQEs of many QPs in one ring.
 *
 * The ring is a linked list. The device starts at entry 0 and follows the index that each entry
 * holds. In a cyclic ring it takes the next entry, and CQEs have its count rather than its place:
 * UCX's reader masks it. The record counts what was posted. The device reads an entry's successor
 * when it takes the entry: the program wrote it long before and does not touch it until the CQE
 * gives the entry back. An index beyond the ring breaks the SRQ, and so do more entries posted than
 * it holds: one IBV_EVENT_SRQ_ERR is reported, and each QP that wants to receive stops. A list that
 * runs in a circle harms only the program.
 */
#include <stdlib.h>
#include "eng.h"

struct srqs {
	uint16_t head;                  /* the entry to be taken next */
	uint16_t taken;                 /* so many so far */
	bool broken;
	/* striding: the WQE whose strides are being used */
	bool open;
	uint16_t index;
	uint32_t stride;
	struct seglist rx;
};

static struct srqs *srqs_get(struct sd_srq *srq)
{
	if (!srq->eng)
		srq->eng = calloc(1, sizeof(struct srqs));
	return srq->eng;
}

static uint16_t left(struct sd_srq *srq, const struct srqs *s)
{
	return be32toh(__atomic_load_n(&srq->dbrec[0], __ATOMIC_ACQUIRE)) - s->taken;
}

static int breaks(struct sd_srq *srq, struct srqs *s)
{
	if (!s->broken)
		sd_up.async_srq(srq, IBV_EVENT_SRQ_ERR);
	s->broken = true;
	return RX_BAD;
}

static void limit_check(struct sd_srq *srq, const struct srqs *s)
{
	if (!srq->limit || s->broken || left(srq, s) >= srq->limit)
		return;
	srq->limit = 0;
	sd_up.async_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
}

bool srq_empty(struct sd_srq *srq)
{
	struct srqs *s = srqs_get(srq);

	return !s || (!s->broken && !s->open && !left(srq, s));
}

int srq_take(struct rcq *q)
{
	struct sd_srq *srq = q->qp->srq;
	struct srqs *s = srqs_get(srq);
	struct {
		struct mlx5_wqe_srq_next_seg next;
		struct mlx5_wqe_data_seg d[ENG_SEGS];
	} w;
	unsigned skip = srq->bare ? 0 : sizeof w.next, max = ((1u << srq->wqe_shift) - skip) / sizeof w.d[0];
	struct iovec v, r;

	if (srq_empty(srq))
		return RX_NONE;
	if (s->broken || left(srq, s) > srq->wqe_cnt || s->head >= srq->wqe_cnt)
		return breaks(srq, s);
	max = max < ENG_SEGS ? max : ENG_SEGS;
	v = (struct iovec){ (uint8_t *)&w + sizeof w.next - skip, skip + max * sizeof w.d[0] };
	r = (struct iovec){ srq->buf + ((size_t)s->head << srq->wqe_shift), v.iov_len };
	if (mem_copy(&v, 1, &r, 1, v.iov_len) != MEM_OK)
		return breaks(srq, s);
	rx_scatter(q, w.d, max);
	q->wqe_idx = srq->cyclic ? s->taken : s->head;
	q->wqe_held = true;
	q->starves = 0;
	s->head = srq->cyclic ? (s->head + 1u) & (srq->wqe_cnt - 1) : be16toh(w.next.next_wqe_index);
	s->taken++;
	limit_check(srq, s);
	return 0;
}

int srq_take_strides(struct rcq *q)
{
	struct srqs *s = srqs_get(q->qp->srq);
	int r = 0;

	if (s && s->open) {
		q->rx = s->rx;
		q->wqe_idx = s->index;
		q->stride = s->stride;
	} else {
		r = srq_take(q);
		q->stride = 0;
		if (!r) {
			s->rx = q->rx;
			s->index = q->wqe_idx;
		}
	}
	q->wqe_held = !r;
	return r;
}

uint32_t srq_packets(struct sd_srq *srq, uint32_t strides)
{
	const uint32_t all = 1u << srq->strides.log_count;
	const struct srqs *s = srqs_get(srq);

	if (!s || s->broken || strides > all)
		return UINT32_MAX;
	return left(srq, s) * (all / strides) + (s->open ? (all - s->stride) / strides : 0);
}

void srq_put_strides(struct rcq *q)
{
	struct srqs *s = srqs_get(q->qp->srq);

	s->open = q->wqe_held;
	s->stride = q->stride;
	q->wqe_held = false;
}

void sd_engine_srq_changed(struct sd_srq *srq)
{
	struct srqs *s = srqs_get(srq);

	if (s)
		limit_check(srq, s);
}

void sd_engine_srq_look(struct sd_srq *srq, uint32_t *hw, uint32_t *sw, bool *broken)
{
	const struct srqs *s = srqs_get(srq);

	*hw = s ? s->taken : 0;
	*sw = be32toh(__atomic_load_n(&srq->dbrec[0], __ATOMIC_ACQUIRE)) & 0xffff;
	*broken = s && s->broken;
}

void sd_engine_srq_destroyed(struct sd_srq *srq)
{
	xrc_srq_destroyed(srq);
	sd_tm_free(srq);
	free(srq->eng);
	srq->eng = NULL;
}
