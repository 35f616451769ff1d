/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dc.c: dynamically connected transport.
 *
 * A DCI is a requester that is connected to one DCT at a time. Each WQE names the DCT, its address
 * and its key. When a WQE names another DCT than the one before, the DCI waits for all answers and
 * then connects anew. That is a new epoch in its requests and takes no message of its own. A DCT
 * answers each DCI with a responder of its own, which starts at the PSN of the epoch's first
 * request. A bad request ends that connection and the DCI, but not the DCT. A DCI with the wrong
 * key gets no answer.
 *
 * A DCI with streams executes all WQEs in their order, which streams permit. An error ends its own
 * stream: that stream's WQEs are flushed until it is reset, and the others go on. The DCI stops when
 * as many streams have failed as it was made for.
 */
#include <stdlib.h>
#include <string.h>
#include "eng.h"

#define EVENT_KEY_VIOLATION 0x1d

static unsigned device_of(const struct ud_path *p)
{
	unsigned dev = sd_port_at(p->l3 ? p->dgid : NULL, p->dlid);
	uint8_t mac[6];

	if (dev == SD_NO_DEV || p->ib)
		return dev;
	sd_port_mac(dev, mac);
	return memcmp(mac, p->dmac, sizeof mac) ? SD_NO_DEV : dev;
}

bool dc_aim(struct rcq *q)
{
	unsigned dev = device_of(&q->body.path);

	if (q->peer == q->body.dqpn && q->dc_key == q->body.dc_key && q->path_dev == dev)
		return true;
	if (q->count)
		return false;
	q->peer = q->body.dqpn;
	q->dc_key = q->body.dc_key;
	q->path_dev = dev;
	q->slot = q->peer >> 16;
	q->inst = eng_is_stepped ? 0 : wire_peer(q->slot);
	q->epoch++;
	return true;
}

bool dc_stream_failed(const struct rcq *q, uint16_t stream)
{
	return q->failed && q->failed[stream / 8] >> stream % 8 & 1;
}

bool dc_stream_fails(struct rcq *q, uint16_t stream)
{
	if (!q->failed)
		q->failed = calloc(1, 65536 / 8);
	if (!q->failed || q->failures + 1 >= q->qp->streams)
		return false;
	q->failed[stream / 8] |= 1 << stream % 8;
	q->failures++;
	/* Whoever it was connected to: the next WQE connects anew */
	q->peer = UD_MCAST;
	return true;
}

bool sd_engine_stream_reset(struct sd_qp *qp, uint16_t stream)
{
	struct rcq *q = qp->eng;

	if (!q || !dc_stream_failed(q, stream))
		return false;
	q->failed[stream / 8] &= ~(1 << stream % 8);
	q->failures--;
	return true;
}

void dc_streams_forget(struct rcq *q)
{
	free(q->failed);
	q->failed = NULL;
	q->failures = 0;
}

static struct rcq *find(struct sd_qp *dct, unsigned slot, uint32_t dci)
{
	struct rcq *q;

	for (q = eng_all; q; q = q->next)
		if (q->qp == dct && q->slot == slot && q->peer == dci)
			return q;
	return NULL;
}

struct rcq *dc_responder(struct sd_qp *dct, unsigned slot, uint64_t inst, const struct frame *f)
{
	struct rcq *q;

	if (f->type != SD_QPT_DCI)
		return NULL;
	if (f->dc_key != dct->dc_key) {
		dct->dc_violations++;
		if (dct->violation_armed)
			sd_up.devx_event(dct->devx, EVENT_KEY_VIOLATION, 0);
		dct->violation_armed = false;
		return NULL;
	}
	q = find(dct, slot, f->src);
	if (q && q->inst == inst && q->epoch == f->epoch)
		return q;
	/* No connection in the middle of a message */
	if (f->off || f->dup)
		return NULL;
	if (!q)
		q = eng_rcq_new(dct);
	if (!q)
		return NULL;
	q->slot = slot;
	q->inst = inst;
	q->peer = f->src;
	q->epoch = f->epoch;
	q->rpsn = f->psn;
	q->in_msg = q->nak_wait = q->nak_fatal = q->ack_due = false;
	q->njobs = 0;
	return q;
}

void dc_destroyed(struct sd_qp *qp)
{
	struct rcq *q, *next;

	for (q = eng_all; q; q = next) {
		next = q->next;
		if (q->qp == qp ? qp->type != SD_QPT_DCT : q->qp->type != SD_QPT_DCT || q->peer != qp->qpn || q->slot != sd_slot)
			continue;
		eng_forget(q);
		eng_rcq_free(q);
	}
}
