/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * arrive.c: incoming messages of every protocol, and unexpected messages, which are kept until a receive
 * matches them. The receiver reads a large message:
 *
 *   sender                                       receiver
 *   registers its buffer
 *   RENDEZVOUS(address, key, handle)  -->        finds the receive, registers its buffer
 *                                                RDMA reads, FI_INLAY_PIECE bytes each, FI_INLAY_WINDOW at a time
 *   completes                         <--        FIN(handle), completes
 *
 * A read that finds no room in the ring waits in a list. Of a message longer than its receive, only what fits is
 * read. A discarded message is not read, but its sender still gets FIN. The sender's buffer is its own again when
 * the connection ends, so a read that belongs to an earlier connection fails.
 */
#include "message.h"

void wait_for_room(struct endpoint *ep, struct op *op)
{
	op->next = NULL;
	*ep->waiting_tail = op;
	ep->waiting_tail = &op->next;
}

/* Whether the connection that op's message came on is open. */
static bool connected(const struct op *op)
{
	return op->attempt == op->peer->attempt && peer_open_to(op->peer);
}

/* ---- FIN ---- */

/* Sends FIN for op, which is complete. */
static void fin(struct endpoint *ep, struct op *op)
{
	if (connected(op) && send_fin(op->peer, op->remote_handle) == -FI_EAGAIN) {
		op->kind = OP_FIN;
		wait_for_room(ep, op);
	} else {
		op_give(ep, op);
	}
}

void fin_later(struct endpoint *ep, struct peer *p, const struct message *m)
{
	struct op *op = op_take(ep, OP_FIN);

	if (!op) {
		WARN(FI_LOG_EP_DATA, "no memory for an acknowledgement\n");
		return;
	}
	op->peer = p;
	op->attempt = m->attempt;
	op->remote_handle = m->handle;
	fin(ep, op);
}

/* ---- Reads ---- */

/* Peers may read the buffers of messages too, because they are often sent next. */
static int register_buffers(struct endpoint *ep, struct op *op)
{
	int err = 0;

	while (!err && op->regions < op->iovs) {
		const struct iovec *v = &op->iov[op->regions];
		const uint32_t access = op->kind == OP_READ ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ :
					op->writes ? 0 : IBV_ACCESS_LOCAL_WRITE;

		err = region_get(ep->domain, op->mr[op->regions], v->iov_base, v->iov_len, access, &op->region[op->regions]);
		op->regions += !err;
	}
	return err;
}

int op_post(struct peer *p, struct op *op, uint32_t opcode, const struct segment *s, size_t at, const struct ibv_sge *sge)
{
	const uint32_t flags = INLAY_SIGNALED | INLAY_RING, rkey = rail_rkey(p, s);
	struct slot *slot;

	if (peer_begin(p))
		return -FI_EAGAIN;
	slot = peer_slot(p);
	if (opcode == MLX5_OPCODE_SEND ? peer_post(p, MLX5_OPCODE_SEND, 0, 0, sge, 1, flags) :
	    opcode == MLX5_OPCODE_RDMA_READ ? peer_post(p, MLX5_OPCODE_RDMA_READ, s->addr + at, rkey, sge, 1, flags) :
	    peer_post(p, MLX5_OPCODE_RDMA_WRITE, s->addr + at, rkey, sge, 1, flags)) /* constants, so that each is short */
		return -FI_EAGAIN;
	*slot = (struct slot){op, SLOT_OP, 0};
	op->pieces++;
	return 0;
}

/* The next piece: from op's position to the end of a segment, a buffer or a piece, whichever comes first. */
static int read_piece(struct op *op)
{
	size_t len = settings.rails < 2 && op->kind == OP_RMA ? LARGEST_PIECE : settings.piece;
	size_t at_segment = op->asked, at_buffer = op->asked;
	struct peer *p = INLAY_UNLIKELY(settings.rails > 1) ? rail_next(op) : op->peer;
	struct ibv_sge sge;
	uint32_t s, b;

	if (!p)
		return -FI_EAGAIN;
	for (s = 0; at_segment >= op->segment[s].len; s++)
		at_segment -= op->segment[s].len;
	for (b = 0; at_buffer >= op->iov[b].iov_len; b++)
		at_buffer -= op->iov[b].iov_len;
	if (len > op->want - op->asked)
		len = op->want - op->asked;
	if (len > op->segment[s].len - at_segment)
		len = op->segment[s].len - at_segment;
	if (len > op->iov[b].iov_len - at_buffer)
		len = op->iov[b].iov_len - at_buffer;
	sge = (struct ibv_sge){(uintptr_t)op->iov[b].iov_base + at_buffer, (uint32_t)len, rail_lkey(p, op->region[b])};
	if (op_post(p, op, op->kind == OP_RMA && op->writes ? MLX5_OPCODE_RDMA_WRITE : MLX5_OPCODE_RDMA_READ, &op->segment[s],
		    at_segment, &sge))
		return -FI_EAGAIN;
	op->asked += len;
	return 0;
}

static void read_end(struct endpoint *ep, struct op *op)
{
	if (op->kind == OP_RMA) {
		op_end(ep, op, op->err);
		return;
	}
	op_let_go(ep, op);
	recv_end(ep, op, op->err);
	fin(ep, op);
}

/* Posts as many pieces as the window allows. Ends the operation when all have completed, or one has failed. */
static void read_more(struct endpoint *ep, struct op *op)
{
	int err;

	if (INLAY_UNLIKELY(op->err == FI_EAGAIN) && !op->pieces) { /* its connection is dead: once more from the beginning */
		if (op->kind == OP_RMA && op->writes && connected(op) && !rail_ended(op->peer)) {
			wait_for_room(ep, op);
			return;
		}
		op->err = 0;
		op->asked = 0;
	}
	err = op->err;
	if (!err && op->asked < op->end)
		err = connected(op) ? -register_buffers(ep, op) : peer_why(op->peer);
	while (!err && op->asked < op->want && op->pieces < (uint32_t)settings.window)
		err = -read_piece(op);
	while (!err && op->asked >= op->want && op->asked < op->end && (settings.rails < 2 || !op->pieces))
		err = -rma_follow(op);
	if (err == FI_EAGAIN && !op->pieces) {
		wait_for_room(ep, op);
		return;
	}
	if (err && err != FI_EAGAIN)
		op->err = err;
	if (!op->pieces && (op->err || op->asked == op->end))
		read_end(ep, op);
}

void read_begin(struct endpoint *ep, struct op *op)
{
	op->asked = 0;
	op->pieces = 0;
	op->err = 0;
	read_more(ep, op);
}

static void read_start(struct endpoint *ep, const struct message *m, struct op *op)
{
	op->kind = OP_READ;
	op->attempt = m->attempt;
	op->remote_handle = m->handle;
	op->segments = (uint8_t)m->segments;
	memcpy(op->segment, m->payload, m->segments * sizeof(*op->segment));
	op->regions = 0;
	if (op->iovs == 1)
		op->iov[0] = (struct iovec){op->buf, op->want};
	op->end = op->want;
	read_begin(ep, op);
}

void read_done(struct endpoint *ep, struct op *op, int err)
{
	op->pieces--;
	if (err && !op->err)
		op->err = err;
	if (INLAY_LIKELY(!op->err) && !op->pieces && op->asked == op->end)
		read_end(ep, op);
	else
		read_more(ep, op);
}

void read_waiting(struct endpoint *ep)
{
	struct op *op = ep->waiting_head, *next;

	ep->waiting_head = NULL;
	ep->waiting_tail = &ep->waiting_head;
	for (; op; op = next) {
		next = op->next;
		if (op->kind == OP_SECOND)
			progress(ep->second);
		if (op->kind == OP_SECOND || cq_room(ep->rx_cq, 2))
			wait_for_room(ep, op);
		else if (op->kind == OP_FIN)
			fin(ep, op);
		else if (op->kind == OP_LATE)
			progress_late(ep);
		else if (op->kind == OP_BOUNCED)
			rail_retry(op);
		else if (op->kind == OP_NATIVE || op->kind == OP_MESSAGE)
			atomic_again(ep, op);
		else
			read_more(ep, op);
	}
}

/* ---- Messages ---- */

void arrive_meet(struct endpoint *ep, struct peer *p, const struct message *m, struct op *op)
{
	op->peer = p;
	op->tag = m->tag & ep->tag_bits;
	op->data = m->data;
	op->flags |= m->flags & FLAG_DATA ? FI_REMOTE_CQ_DATA : 0;
	op->total = m->len;
	op->want = m->len < op->len ? m->len : op->len;
	if (m->kind == WIRE_RENDEZVOUS) {
		read_start(ep, m, op);
		return;
	}
	if (m->payload)
		message_scatter(op, m->payload, op->want);
	recv_end(ep, op, m->payload ? 0 : FI_EIO);
	op_give(ep, op);
}

void arrive_matched(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct op *op)
{
	struct message m;

	message_parse(at, bytes, p->attempt, &m);
	arrive_meet(ep, p, &m, op);
}

void arrive_meet_kept(struct endpoint *ep, struct buf *kept, struct op *op)
{
	struct message m;

	message_parse(kept->data, kept->len, kept->attempt, &m);
	arrive_meet(ep, kept->peer, &m, op);
	unkeep(ep, kept);
}

void arrive_discard(struct endpoint *ep, struct buf *kept)
{
	struct message m;

	message_parse(kept->data, kept->len, kept->attempt, &m);
	if (m.kind == WIRE_RENDEZVOUS)
		fin_later(ep, kept->peer, &m);
	unkeep(ep, kept);
}

static int tagged(struct endpoint *ep, struct peer *p, const struct message *m, const void *at, uint32_t bytes, struct buf *b)
{
	const uint64_t key = (m->tag & ep->tag_bits) | p->source;
	struct buf *place = keep_place(ep, bytes, b);
	struct inlay_match_found found;
	int r;

	if (m->flags & FLAG_AHEAD) { /* its stand-in's place counts */
		if (!place)
			return -FI_EAGAIN;
		r = keep(ep, p, at, bytes, b, place);
		if (p->content)
			unkeep(ep, p->content);
		p->content = place;
		return r;
	}
	do
		r = place ? inlay_match_arrive(&ep->match, key, (uintptr_t)place, &found) : inlay_match_meet(&ep->match, key, &found);
	while (r == -EAGAIN && !match_grow(ep));
	if (r == 1)
		arrive_meet(ep, p, m, (struct op *)(uintptr_t)found.cookie);
	return r == 1 ? 0 : r || !place ? -FI_EAGAIN : keep(ep, p, at, bytes, b, place);
}

int arrive_any(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b)
{
	struct message m;
	int r;

	if (message_parse(at, bytes, p->attempt, &m)) {
		WARN(FI_LOG_EP_DATA, "a message of %u bytes is not one of this provider's\n", bytes);
		return 0;
	}
	switch (m.kind) {
	case WIRE_EAGER:
	case WIRE_RENDEZVOUS:
		r = m.flags & FLAG_TAGGED ? tagged(ep, p, &m, at, bytes, b) : untagged_arrived(ep, p, &m, at, bytes, b);
		if (m.flags & FLAG_HANDLE && m.kind == WIRE_EAGER && r >= 0)
			fin_later(ep, p, &m);
		return r;
	case WIRE_FIN:
		send_finished(ep, p, m.tag);
		return 0;
	case WIRE_WRITTEN:
		if (cq_room(ep->rx_cq, 1))
			return -FI_EAGAIN;
		cq_add(ep->rx_cq, NULL, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, m.tag, NULL, m.data, 0, p->addr);
		return 0;
	case WIRE_ATOMIC:
	case WIRE_ANSWER:
		return atomic_arrived(ep, p, &m);
	case WIRE_RAIL:
		return rail_arrived(p, &m);
	default:
		WARN(FI_LOG_EP_DATA, "a message of unknown kind %u\n", m.kind);
		return 0;
	}
}
