/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rendezvous.c: a large message is read by its receiver.
 *
 *   sender                                       receiver
 *   registers its buffer
 *   RENDEZVOUS(address, key, handle)  -->        finds the receive, registers its buffer
 *                                                RDMA reads, FI_INLAY_PIECE bytes each, FI_INLAY_WINDOW at a time
 *   completes                         <--        FIN(handle), completes
 *
 * A read that finds no room in the ring, or no registration, waits in a list. A message longer than its
 * receive is read as far as it fits; one that nobody wants is not read, and its sender gets FIN all the
 * same.
 */
#include "fabric.h"

void wait_for_room(struct endpoint *ep, struct op *op)
{
	op->next = NULL;
	*ep->waiting_tail = op;
	ep->waiting_tail = &op->next;
}

/* ---- FIN ---- */

/* Says FIN for op, which is over. */
static void fin(struct endpoint *ep, struct op *op)
{
	if (peer_open_to(op->peer) && send_fin(op->peer, op->remote_handle) == -FI_EAGAIN) {
		op->kind = OP_FIN;
		wait_for_room(ep, op);
	} else {
		op_give(ep, op);
	}
}

void fin_later(struct endpoint *ep, struct peer *p, uint64_t handle)
{
	struct op *op = op_take(ep, OP_FIN);

	if (!op) {
		WARN(FI_LOG_EP_DATA, "no memory for an acknowledgement\n");
		return;
	}
	op->peer = p;
	op->remote_handle = handle;
	fin(ep, op);
}

/* ---- Reads ---- */

/* Registers the buffers that are read into. The sender may read from them, too: they are often sent next. */
static int register_buffers(struct endpoint *ep, struct op *op)
{
	int err = 0;

	while (!err && op->regions < op->iovs) {
		const struct iovec *v = &op->iov[op->regions];

		err = region_get(ep->domain, v->iov_base, v->iov_len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
				 &op->region[op->regions]);
		op->regions += !err;
	}
	return err;
}

/* The next piece: from where op has got to, to the end of a segment, a buffer or a piece. */
static int read_piece(struct peer *p, struct op *op)
{
	size_t len = op->want - op->asked, at_segment = op->asked, at_buffer = op->asked;
	struct ibv_sge sge;
	struct slot *slot;
	uint32_t s, b;

	if (peer_begin(p))
		return -FI_EAGAIN;
	slot = peer_slot(p);
	for (s = 0; at_segment >= op->segment[s].len; s++)
		at_segment -= op->segment[s].len;
	for (b = 0; at_buffer >= op->iov[b].iov_len; b++)
		at_buffer -= op->iov[b].iov_len;
	if (len > op->segment[s].len - at_segment)
		len = op->segment[s].len - at_segment;
	if (len > op->iov[b].iov_len - at_buffer)
		len = op->iov[b].iov_len - at_buffer;
	if (len > settings.piece)
		len = settings.piece;
	sge.addr = (uintptr_t)op->iov[b].iov_base + at_buffer;
	sge.length = (uint32_t)len;
	sge.lkey = op->region[b]->lkey;
	if (peer_read(p, op->segment[s].addr + at_segment, op->segment[s].rkey, &sge, INLAY_SIGNALED | INLAY_RING))
		return -FI_EAGAIN;
	slot->kind = SLOT_OP;
	slot->what = op;
	op->asked += len;
	op->pieces++;
	return 0;
}

static void read_end(struct endpoint *ep, struct op *op)
{
	op_let_go(ep, op);
	recv_end(ep, op, op->err);
	fin(ep, op);
}

/* Asks for as much as it may; ends the read when all is there, or has failed. */
static void read_more(struct endpoint *ep, struct op *op)
{
	int err = op->err;

	if (!err && !peer_open_to(op->peer))
		err = op->peer->err ? op->peer->err : FI_ECONNRESET;
	if (!err)
		err = -register_buffers(ep, op);
	while (!err && op->asked < op->want && op->pieces < (uint32_t)settings.window)
		err = -read_piece(op->peer, op);
	if (err == FI_EAGAIN && !op->pieces) {
		wait_for_room(ep, op);
		return;
	}
	if (err && err != FI_EAGAIN)
		op->err = err;
	if (!op->pieces && (op->err || op->asked == op->want))
		read_end(ep, op);
}

void read_start(struct endpoint *ep, const struct message *m, struct op *op)
{
	op->kind = OP_READ;
	op->remote_handle = m->handle;
	op->segments = (uint8_t)m->segments;
	memcpy(op->segment, m->payload, m->segments * sizeof(*op->segment));
	op->asked = 0;
	op->pieces = 0;
	op->err = 0;
	op->regions = 0;
	if (op->iovs == 1) {
		op->iov[0].iov_base = op->buf;
		op->iov[0].iov_len = op->want;
	}
	if (!op->want)
		op->iovs = 0; /* nothing to register */
	read_more(ep, op);
}

void read_done(struct endpoint *ep, struct op *op, int err)
{
	op->pieces--;
	if (err && !op->err)
		op->err = err;
	read_more(ep, op);
}

void read_waiting(struct endpoint *ep)
{
	struct op *op = ep->waiting_head, *next;

	ep->waiting_head = NULL;
	ep->waiting_tail = &ep->waiting_head;
	for (; op; op = next) {
		next = op->next;
		if (cq_room(ep->rx_cq, 2))
			wait_for_room(ep, op);
		else if (op->kind == OP_FIN)
			fin(ep, op);
		else if (op->kind == OP_NATIVE || op->kind == OP_MESSAGE)
			atomic_again(ep, op);
		else
			read_more(ep, op);
	}
}
