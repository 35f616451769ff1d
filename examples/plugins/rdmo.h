/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rdmo.h: the plugin for remote memory operations that one RDMA operation cannot do: append and scatter. It knows all of rdma.h's commands
 * too, with endpoints and maps of its own.
 *
 *   RDMO_APPEND    data goes to where the 8 bytes at `addr` of the map `a` point, which are moved on by as much: one fetch-and-add and one
 *                  write, so that any number of workers may append to one log. What they point to lies in `map`. The response is where
 *                  the data went, 8 bytes
 *   RDMO_SCATTER   `b` pieces, each to its place in `map`, at most RDMO_PIECES
 *
 *   request as rdma.h has it; data of a scatter, little-endian
 *
 *   +0     addr      8     of the first piece
 *   +8     bytes     4     1 or more
 *   +12    reserved  4     0
 *   +16    the next piece's;  after the last: the pieces themselves, in this order, without gaps
 *
 * Errors. All of rdma.h's. Nothing of a scatter is written when one of its pieces is refused. An append whose data does not fit its map
 * where the pointer points is answered with -ENOSPC, and nothing is written; the pointer has moved on nevertheless, since others may have
 * appended since: a full log stays full.
 *
 * RDMA_FLUSH is answered when both halves of every append, and all pieces, are at the other side; with the first error since the last
 * flush, such as a map that is not known, when there was one. Appends of one endpoint take place in their order; a put that comes after
 * may overtake an append's second half, unless a flush is between them.
 */
#ifndef PLUGINS_RDMO_H
#define PLUGINS_RDMO_H

#include "rdma.h"

#define RDMO_ID 3u
#define RDMO_APPEND 100u
#define RDMO_SCATTER 101u
#define RDMO_PIECES 32u
#define RDMO_PIECE 16u          /* bytes of a piece's head */
#define RDMO_WRITTEN 102u       /* no request: the second half of an append */

/* Writes a piece's head. */
static inline void rdmo_piece_write(uint8_t *at, uint64_t addr, uint32_t bytes)
{
	inlay_put64(at, addr);
	inlay_put64(at + 8, bytes);
}

static inline int rdmo_append(struct rdma_host *h, struct rdma_ep *ep, const struct rdma_request *r, struct inlay_task_cmd *cmd)
{
	struct inlay_wr wr = {.raddr = r->addr, .data = cmd->response, .lkey = cmd->conn->lkey};
	uint32_t rkey = 0;
	int err;

	if (!r->bytes || r->addr % 8 || r->b)
		return -EINVAL;
	if (!handles_find(&h->maps, r->map))
		return -EBADF;
	err = rdma_remote(h, r->a, r->addr, 8, INLAY_RDMA_ATOMIC, &rkey);
	if (err)
		return err;
	wr.rkey = rkey;
	if (inlay_post_atomic(&ep->link.sq, inlay_atomic_add(r->bytes), &wr, INLAY_SIGNALED))
		return INLAY_TASK_STALL;
	cmd->user[1] = 8;
	cmd->user[2] = RDMO_APPEND;
	return rdma_posted(ep, cmd);
}

static inline int rdmo_scatter(struct rdma_host *h, struct rdma_ep *ep, const struct rdma_request *r, struct inlay_task_cmd *cmd)
{
	uint32_t rkeys[RDMO_PIECES], num = (uint32_t)r->b, i;
	const uint8_t *head = r->data, *data;
	uint64_t sum = 0;
	int err;

	if (!r->b || r->b > RDMO_PIECES || (uint64_t)num * RDMO_PIECE > r->bytes || r->addr || r->a)
		return -EINVAL;
	for (i = 0; i < num; i++, head += RDMO_PIECE) {
		uint32_t bytes = rdma_get32(head + 8);

		if (!bytes || rdma_get32(head + 12))
			return -EINVAL;
		sum += bytes;
		err = rdma_remote(h, r->map, rdma_get64(head), bytes, INLAY_RDMA_WRITE, &rkeys[i]);
		if (err)
			return err;
	}
	if (sum + (uint64_t)num * RDMO_PIECE != r->bytes)
		return -EINVAL;
	if (inlay_sq_room(&ep->link.sq) < num)
		return INLAY_TASK_STALL;
	data = head;
	for (i = 0, head = r->data; i < num; i++, head += RDMO_PIECE) {
		struct ibv_sge out = {(uintptr_t)data, rdma_get32(head + 8), rdma_payload_lkey(cmd)};

		/* One completion for all: they are done in their order. There is room. */
		if (inlay_post_write(&ep->link.sq, rdma_get64(head), rkeys[i], &out, 1, i + 1 == num ? INLAY_SIGNALED : 0))
			return -EIO;
		data += out.length;
	}
	cmd->user[1] = 0;
	cmd->user[2] = RDMO_SCATTER;
	return rdma_posted(ep, cmd);
}

/* An append's pointer is there: its data goes to where it points. What was given back with the pointer's completion is room for it. */
static inline int rdmo_more(struct rdma *p, struct rdma_ep *ep, struct inlay_task_cmd *cmd)
{
	struct rdma_request r;
	struct ibv_sge out;
	uint64_t where;
	uint32_t rkey = 0;
	int err;

	(void)p;
	if (cmd->user[2] != RDMO_APPEND)
		return 0;
	err = rdma_request_read(&r, cmd->payload, cmd->payload_len);
	where = rdma_get64(cmd->response);
	if (!err)
		err = rdma_remote(ep->host, r.map, where, r.bytes, INLAY_RDMA_WRITE, &rkey);
	if (err == -ENOENT)
		err = -ENOSPC;
	if (!err) {
		out.addr = (uintptr_t)r.data;
		out.length = r.bytes;
		out.lkey = rdma_payload_lkey(cmd);
		err = inlay_post_write(&ep->link.sq, where, rkey, &out, 1, INLAY_SIGNALED);
	}
	if (err) {
		rdma_remember(ep, err);
		inlay_task_cmd_answer(cmd, err, cmd->response, 0);
		return 1;
	}
	cmd->user[2] = RDMO_WRITTEN;
	rdma_posted(ep, cmd);
	return 1;
}

static inline int rdmo_open(void *argument, struct inlay_task_worker *w, void **plugin)
{
	int err = rdma_open(argument, w, plugin);

	if (!err)
		((struct rdma *)*plugin)->more = rdmo_more;
	return err;
}

static inline int rdmo_command(void *plugin, struct inlay_task_cmd *cmd)
{
	struct rdma *p = (struct rdma *)plugin;
	struct rdma_host *h;
	struct rdma_request r;
	struct rdma_ep *ep;
	int err;

	if (rdma_request_read(&r, cmd->payload, cmd->payload_len))
		return -EBADMSG;
	if (r.op != RDMO_APPEND && r.op != RDMO_SCATTER)
		return rdma_command(plugin, cmd);
	h = rdma_host_of(p, cmd);
	ep = h ? (struct rdma_ep *)handles_find(&h->eps, r.ep) : NULL;
	if (!ep)
		return h ? -EBADF : -ENOMEM;
	if (cmd->response_max < 8)
		return -E2BIG;
	if (ep->broken || !ep->connected)
		err = -ENOTCONN;
	else
		err = r.op == RDMO_APPEND ? rdmo_append(h, ep, &r, cmd) : rdmo_scatter(h, ep, &r, cmd);
	rdma_remember(ep, err);
	return err;
}

static const struct inlay_task_plugin rdmo_plugin = {INLAY_TASK_VERSION, "rdmo", rdmo_open, rdma_close, NULL,
						     rdma_connection, rdmo_command, rdma_progress};

#endif
