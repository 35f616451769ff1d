/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rdma.h: the plugin that moves data for its host, on queue pairs of the worker's own: puts, gets, atomics, sends, and sends with tags that
 * are matched at the other side by match.h.
 *
 *   RDMA_EP        an endpoint: a queue pair of the worker's. The response is its handle and its address for the other side
 *   RDMA_CONNECT   connects it: data is the address of the other side's queue pair, in whose protection domain the memory is
 *   RDMA_CLOSE     the endpoint's end; -EBUSY while commands are under way on it
 *   RDMA_MAP       memory of the other side, by its export blob (inlay_mmap_export_rdma). The response is a handle
 *   RDMA_UNMAP     its end, answered when nothing is under way on the host's endpoints any more that could still use its key
 *   RDMA_PUT       data goes to `addr` of a map
 *   RDMA_GET       `bytes` from `addr` of a map are the response
 *   RDMA_ADD, _SWAP  8 bytes at `addr` of a map: a is added; or b put there if a is there. The response is what was there
 *   RDMA_FLUSH     answered when all that was given to this endpoint before is done
 *   RDMA_SEND      data is one message, to whatever the other side is; -EMSGSIZE when that says that it takes no such long ones
 *   RDMA_TAG_SEND  the request, as it is, is one message to the other side, which is another endpoint, of this worker or another one
 *   RDMA_TAG_RECV  takes the first message to any of the host's endpoints whose tag fits (map is the tag, addr the mask): the response is
 *                  its tag, and its data, of at most `bytes`; -EMSGSIZE when it is longer, and gone
 *
 *   request, little-endian                          response
 *
 *   +0   op     2   enum rdma_op                    RDMA_EP       handle 8, address INLAY_TASK_ADDRESS
 *   +2   flags  2   0                               RDMA_MAP      handle 8
 *   +4   bytes  4   of data, or wanted              RDMA_GET      the data
 *   +8   ep     8   handle                          RDMA_ADD ...  8
 *   +16  map    8   handle, or the tag              RDMA_TAG_RECV tag 8, data
 *   +24  addr   8                                   all others    nothing
 *   +32  a      8
 *   +40  b      8
 *   +48  data
 *
 * A command is answered when it is done: RC's acknowledgement is there. What is refused, for a handle or a range or a right that is not the
 * host's, is answered with -EBADF, -ENOENT or -EPERM and touches no queue. An endpoint that fails stays so: -EIO for the one that failed,
 * -ECANCELED for those behind it, -ENOTCONN from then on. The first error on an endpoint since the last flush is also the flush's: who
 * looks at the flush only is told.
 *
 * A flush holds back the later commands of its host until it is answered, and so does the end of a map. Handles are the connection's:
 * another host's are not found. What has arrived unexpected waits in the receive that it came in, RDMA_RECEIVES for each endpoint; then the
 * sender waits, and in the end fails.
 *
 * No command is answered while the device may still read or write its memory: on an endpoint that fails, each waits for the completion of
 * its own WQE, or for the queue pair's end. An endpoint whose queue pair or memory the device does not let go of is kept, commands and all,
 * and tried again in each progress.
 */
#ifndef PLUGINS_RDMA_H
#define PLUGINS_RDMA_H

#include <stdlib.h>
#include <inlay/match.h>
#include <inlay/task.h>
#include "handles.h"

#define RDMA_ID 2u
#define RDMA_HEAD 48u
#define RDMA_EPS 8u             /* of a host, or its share of RDMA_ALL_EPS, or RDMA_EPS_SURE: the middle one of them */
#define RDMA_EPS_SURE 4u
#define RDMA_MAPS 32u           /* likewise */
#define RDMA_RECEIVES 32u       /* of an endpoint */
#define RDMA_ENTRIES 1024u      /* of the matcher */
#define RDMA_ALL_EPS 64u        /* of a worker */
#define RDMA_WQEBBS 128u        /* of an endpoint, which may turn out 4 times as large */

enum rdma_op {
	RDMA_EP = 1,
	RDMA_CONNECT,
	RDMA_CLOSE,
	RDMA_MAP,
	RDMA_UNMAP,
	RDMA_PUT,
	RDMA_GET,
	RDMA_ADD,
	RDMA_SWAP,
	RDMA_FLUSH,
	RDMA_SEND,
	RDMA_TAG_SEND,
	RDMA_TAG_RECV,
	RDMA_OPS
};

struct rdma_request {
	uint32_t op, bytes;
	uint64_t ep, map, addr, a, b;
	const uint8_t *data;            /* bytes, for the operations that have some; rdma_request_write does not look at it */
};

/* Writes a request's RDMA_HEAD bytes; data is to follow. */
static inline void rdma_request_write(uint8_t *at, const struct rdma_request *r)
{
	inlay_put32(at, r->op);
	inlay_put32(at + 4, r->bytes);
	inlay_put64(at + 8, r->ep);
	inlay_put64(at + 16, r->map);
	inlay_put64(at + 24, r->addr);
	inlay_put64(at + 32, r->a);
	inlay_put64(at + 40, r->b);
}

static inline uint32_t rdma_get32(const void *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static inline uint64_t rdma_get64(const void *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* Whether `bytes` are in the request. */
static inline int rdma_has_data(uint32_t op)
{
	return op != RDMA_GET && op != RDMA_TAG_RECV;
}

/* Reads a request of len bytes. 0, or -EBADMSG for what is none; which operations there are is not looked at. */
static inline int rdma_request_read(struct rdma_request *r, const uint8_t *at, uint32_t len)
{
	if (len < RDMA_HEAD || rdma_get32(at) >> 16)
		return -EBADMSG;
	r->op = rdma_get32(at);
	r->bytes = rdma_get32(at + 4);
	r->ep = rdma_get64(at + 8);
	r->map = rdma_get64(at + 16);
	r->addr = rdma_get64(at + 24);
	r->a = rdma_get64(at + 32);
	r->b = rdma_get64(at + 40);
	r->data = at + RDMA_HEAD;
	return len - RDMA_HEAD == (rdma_has_data(r->op) ? r->bytes : 0) ? 0 : -EBADMSG;
}

/* ---- The worker's part ---- */

struct rdma_host;

/* An endpoint, and in their order its commands that are with the device */
struct rdma_ep {
	struct inlay_task_link link;
	struct rdma_host *host;         /* NULL: it is ending */
	struct inlay_task_cmd *first, *last;
	struct ibv_mr *mr;
	uint8_t *slots;
	uint32_t message;               /* bytes of a slot */
	uint32_t num_free;              /* slots not posted */
	uint32_t taken;                 /* receives completed */
	uint32_t posted;
	uint32_t connected, broken;
	uint32_t told;                  /* the first command that failed was */
	int failed;                     /* the first error since the last flush */
	uint32_t strays;                /* messages that were none */
	uint32_t order[RDMA_RECEIVES];  /* which slot a receive has */
	uint32_t free[RDMA_RECEIVES];
};

struct rdma_map {
	struct inlay_mmap map;
	void *memory;
};

/* What a connection has; made with its first command. */
struct rdma_host {
	struct handles eps, maps;
	struct handle ep_table[RDMA_EPS], map_table[RDMA_MAPS];
	struct inlay_match match;
	void *match_memory;
};

struct rdma;

/* What is done with a command whose WQE has completed well: 0: answer it with cmd->response_len bytes; 1: there is more to do. */
typedef int (*rdma_more)(struct rdma *p, struct rdma_ep *ep, struct inlay_task_cmd *cmd);

/* The plugin. */
struct rdma {
	struct inlay_task_worker *worker;
	struct ibv_cq *ibcq;
	struct inlay_cq cq;
	struct rdma_ep *eps[RDMA_ALL_EPS];
	uint32_t num_eps;
	uint32_t num_ending;            /* of them, those that the device has not let go of */
	uint32_t share;                 /* of a host */
	rdma_more more;                 /* of another plugin that builds on this one, or NULL */
};

static inline int rdma_open(void *argument, struct inlay_task_worker *w, void **plugin)
{
	struct rdma *p = (struct rdma *)calloc(1, sizeof(*p));
	int err = p ? 0 : -ENOMEM;

	(void)argument;
	if (p) {
		p->worker = w;
		p->share = RDMA_ALL_EPS / w->params.connections;
		p->share = p->share < RDMA_EPS_SURE ? RDMA_EPS_SURE : p->share > RDMA_EPS ? RDMA_EPS : p->share;
		p->ibcq = ibv_create_cq(w->pd->context, (int)(RDMA_ALL_EPS * (4 * RDMA_WQEBBS + RDMA_RECEIVES)), NULL, NULL, 0);
		err = p->ibcq ? inlay_cq_from_cq(&p->cq, p->ibcq, NULL) : -ENOMEM;
	}
	if (err && p && p->ibcq)
		ibv_destroy_cq(p->ibcq);
	if (err) {
		free(p);
		p = NULL;
	}
	*plugin = p;
	return err;
}

/* ---- Endpoints ---- */

static inline void rdma_receive(struct rdma_ep *ep)
{
	while (ep->num_free) {
		uint32_t slot = ep->free[ep->num_free - 1];
		struct ibv_sge sge = {(uintptr_t)(ep->slots + (size_t)slot * ep->message), ep->message, ep->mr->lkey};

		if (inlay_post_recv(&ep->link.rq, &sge, 1))
			break;
		ep->num_free--;
		ep->order[ep->posted++ % RDMA_RECEIVES] = slot;
	}
	inlay_rq_ring(&ep->link.rq);
}

/*
 * Frees an endpoint that is ending. Its QP goes first, so that nothing reads or writes what comes then: its commands, which are answered,
 * and its slots. Returns 0, or -EBUSY when the device has not let go: it may be called again.
 */
static inline int rdma_ep_free(struct rdma *p, struct rdma_ep *ep)
{
	uint32_t qpn = ep->link.qp ? ep->link.qp->qp_num : 0, i;
	int busy = inlay_task_link_destroy(&ep->link);
	struct inlay_task_cmd *cmd;

	if (ep->link.qp)
		return -EBUSY;
	if (qpn)
		inlay_cq_clean(&p->cq, qpn, NULL, NULL);
	while ((cmd = ep->first)) {
		ep->first = (struct inlay_task_cmd *)(uintptr_t)cmd->user[0];
		inlay_task_cmd_answer(cmd, -ECANCELED, cmd->response, 0);
	}
	if (busy || (ep->mr && ibv_dereg_mr(ep->mr)))
		return -EBUSY;
	for (i = 0; p->eps[i] != ep; i++)
		;
	p->eps[i] = p->eps[--p->num_eps];
	free(ep->slots);
	free(ep);
	return 0;
}

/* Ends an endpoint, whose handle is gone: now, or as soon as it can be. Its host's state may be freed after that. */
static inline void rdma_ep_end(struct rdma *p, struct rdma_ep *ep)
{
	struct inlay_match_found found;
	uint32_t at = 0;

	while (inlay_match_next(&ep->host->match, &at, &found)) {
		const uint8_t *msg = (const uint8_t *)(uintptr_t)found.cookie;

		if ((uintptr_t)msg - (uintptr_t)ep->slots < (uintptr_t)RDMA_RECEIVES * ep->message)
			inlay_match_remove(&ep->host->match, found.handle, &found);
	}
	ep->host = NULL;
	if (!rdma_ep_free(p, ep))
		return;
	p->num_ending++;
	if (ep->link.qp)
		inlay_task_link_break(&ep->link);
}

/* Those that could not be freed, once more. */
static inline void rdma_end_again(struct rdma *p)
{
	uint32_t i;

	/* From the last one down: the place of one that goes is taken by one that has been looked at. */
	for (i = p->num_eps; p->num_ending && i--;)
		if (!p->eps[i]->host && !rdma_ep_free(p, p->eps[i]))
			p->num_ending--;
}

/* What the device does not let go of now is never freed: it may still be written to. */
static inline void rdma_close(void *plugin)
{
	struct rdma *p = (struct rdma *)plugin;

	rdma_end_again(p);
	if (p->num_eps || ibv_destroy_cq(p->ibcq))
		return;
	free(p);
}

static inline int rdma_ep_create(struct rdma *p, struct rdma_host *h, struct inlay_task_cmd *cmd)
{
	struct inlay_task_worker *w = p->worker;
	struct inlay_task_caps caps;
	struct rdma_ep *ep;
	uint64_t handle;
	uint32_t i;
	int err;

	if (p->num_eps == RDMA_ALL_EPS || h->eps.free == HANDLES_NONE)
		return -ENOSPC;
	ep = (struct rdma_ep *)aligned_alloc(INLAY_CACHE_LINE, sizeof(*ep));
	if (!ep)
		return -ENOMEM;
	memset(ep, 0, sizeof(*ep));
	p->eps[p->num_eps++] = ep;
	ep->host = h;
	ep->message = (w->params.message + INLAY_CACHE_LINE - 1) / INLAY_CACHE_LINE * INLAY_CACHE_LINE;
	ep->slots = (uint8_t *)aligned_alloc(INLAY_CACHE_LINE, (size_t)RDMA_RECEIVES * ep->message);
	memset(&caps, 0, sizeof(caps));
	caps.pd = w->pd;
	caps.ibcq = p->ibcq;
	caps.cq = &p->cq;
	caps.uar = w->uar.td ? &w->uar : NULL;
	caps.sends = RDMA_WQEBBS / 2;
	caps.max_gather = 1;
	ep->link.self.role = INLAY_TASK_HOST;
	ep->link.self.message = ep->message;
	ep->link.self.receives = RDMA_RECEIVES;
	err = ep->slots ? inlay_task_link_create(&ep->link, &caps, &w->params.path, NULL) : -ENOMEM;
	if (!err && inlay_sq_size(&ep->link.sq) > 4 * RDMA_WQEBBS)
		err = -ENOMEM; /* The completion queue has no room for it. */
	if (!err) {
		ep->mr = ibv_reg_mr(w->pd, ep->slots, (size_t)RDMA_RECEIVES * ep->message, IBV_ACCESS_LOCAL_WRITE);
		err = ep->mr ? 0 : -ENOMEM;
	}
	if (err) {
		rdma_ep_end(p, ep);
		return err;
	}
	handle = handles_add(&h->eps, ep);
	for (i = 0; i < RDMA_RECEIVES; i++)
		ep->free[i] = i;
	ep->num_free = RDMA_RECEIVES;
	rdma_receive(ep);
	inlay_put64(cmd->response, handle);
	memcpy(cmd->response + 8, &ep->link.self, INLAY_TASK_ADDRESS);
	cmd->response_len = 8 + INLAY_TASK_ADDRESS;
	return 0;
}

static inline int rdma_ep_connect(struct rdma_ep *ep, const struct rdma_request *r)
{
	int err;

	if (ep->connected)
		return -EBADFD;
	err = inlay_task_link_connect(&ep->link, r->data, r->bytes, INLAY_TASK_HOST, NULL);
	ep->connected = !err;
	return err;
}

/* ---- Maps ---- */

static inline void rdma_map_end(struct rdma_map *m)
{
	inlay_mmap_destroy(&m->map);
	free(m->memory);
	free(m);
}

static inline int rdma_map_create(struct rdma *p, struct rdma_host *h, const struct rdma_request *r, struct inlay_task_cmd *cmd)
{
	size_t size = inlay_mmap_import_size(r->data, r->bytes);
	struct rdma_map *m = size && size <= 1u << 20 ? (struct rdma_map *)calloc(1, sizeof(*m)) : NULL;
	uint64_t handle = 0;
	int err = -EINVAL;

	if (!m)
		return size ? -ENOMEM : -EINVAL;
	m->memory = aligned_alloc(INLAY_CACHE_LINE, (size + INLAY_CACHE_LINE - 1) / INLAY_CACHE_LINE * INLAY_CACHE_LINE);
	err = m->memory ? inlay_mmap_create_from_export(&m->map, m->memory, size, p->worker->pd, r->data, r->bytes, NULL) : -ENOMEM;
	if (err) {
		free(m->memory);
		free(m);
		return err;
	}
	handle = handles_add(&h->maps, m);
	if (!handle) {
		rdma_map_end(m);
		return -ENOSPC;
	}
	inlay_put64(cmd->response, handle);
	cmd->response_len = 8;
	return 0;
}

/* ---- The connection's state ---- */

static inline struct rdma_host *rdma_host_create(const struct rdma *p)
{
	struct rdma_host *h = (struct rdma_host *)aligned_alloc(INLAY_CACHE_LINE, (sizeof(*h) + 63) / 64 * 64);
	size_t size = (inlay_match_size(RDMA_ENTRIES) + 63) / 64 * 64;
	struct timespec t;

	if (!h)
		return NULL;
	memset(h, 0, sizeof(*h));
	h->match_memory = aligned_alloc(INLAY_CACHE_LINE, size);
	timespec_get(&t, TIME_UTC);
	if (!h->match_memory || inlay_match_init(&h->match, h->match_memory, size, RDMA_ENTRIES, 0, (uint64_t)t.tv_nsec * 2654435761u)) {
		free(h->match_memory);
		free(h);
		return NULL;
	}
	handles_init(&h->eps, h->ep_table, p->share);
	handles_init(&h->maps, h->map_table, RDMA_MAPS);
	return h;
}

/* A connection has ended: all that its host had goes, and what is kept is given back. */
static inline void rdma_connection(void *plugin, struct inlay_task_conn *conn, void **state, int up)
{
	struct rdma *p = (struct rdma *)plugin;
	struct rdma_host *h = (struct rdma_host *)*state;
	struct inlay_match_found found;
	uint32_t i, at = 0;

	(void)conn;
	if (up || !h)
		return;
	for (i = 0; i < RDMA_EPS; i++)
		if (h->ep_table[i].object)
			rdma_ep_end(p, (struct rdma_ep *)h->ep_table[i].object);
	/* All messages have gone with their endpoints: these are receives. */
	while (inlay_match_next(&h->match, &at, &found)) {
		struct inlay_task_cmd *cmd = (struct inlay_task_cmd *)(uintptr_t)found.cookie;

		inlay_match_remove(&h->match, found.handle, &found);
		inlay_task_cmd_answer(cmd, -ECANCELED, cmd->response, 0);
	}
	for (i = 0; i < RDMA_MAPS; i++)
		if (h->map_table[i].object)
			rdma_map_end((struct rdma_map *)h->map_table[i].object);
	*state = NULL;
	free(h->match_memory);
	free(h);
}

/* ---- Messages with tags ---- */

/* A message for a receive, the one or the other of which has just come. */
static inline void rdma_deliver(struct inlay_task_cmd *cmd, const uint8_t *msg)
{
	struct rdma_request r;
	uint64_t most = cmd->user[1];

	/* It was found whole when it came, and reads so again. */
	if (rdma_request_read(&r, msg, RDMA_HEAD + rdma_get32(msg + 4)) || r.bytes > most || r.bytes + 8ull > cmd->response_max) {
		inlay_task_cmd_answer(cmd, -EMSGSIZE, cmd->response, 0);
		return;
	}
	inlay_put64(cmd->response, r.map);
	memcpy(cmd->response + 8, r.data, r.bytes);
	cmd->response_len = 8 + r.bytes;
	inlay_task_cmd_answer(cmd, 0, cmd->response, cmd->response_len);
}

static inline void rdma_slot_free(struct rdma_ep *ep, const uint8_t *msg)
{
	ep->free[ep->num_free++] = (uint32_t)((size_t)(msg - ep->slots) / ep->message);
}

static inline int rdma_tag_recv(struct rdma *p, struct rdma_host *h, const struct rdma_request *r, struct inlay_task_cmd *cmd)
{
	struct inlay_match_found found;
	uint32_t i;
	int n = inlay_match_post(&h->match, r->map, r->addr, (uintptr_t)cmd, &found);

	if (n < 0)
		return n;
	cmd->user[1] = r->bytes;
	if (n) {
		const uint8_t *msg = (const uint8_t *)(uintptr_t)found.cookie;

		rdma_deliver(cmd, msg);
		for (i = 0; i < p->num_eps; i++)
			if ((uintptr_t)msg - (uintptr_t)p->eps[i]->slots < (uintptr_t)RDMA_RECEIVES * p->eps[i]->message) {
				rdma_slot_free(p->eps[i], msg);
				rdma_receive(p->eps[i]);
				break;
			}
	}
	return INLAY_TASK_LATER;
}

/* A receive has completed. bytes: of the message that is in it; 0: there is none. */
static inline void rdma_arrived(struct rdma_ep *ep, const struct mlx5_cqe64 *cqe)
{
	const uint8_t *msg = ep->slots + (size_t)ep->order[ep->taken++ % RDMA_RECEIVES] * ep->message;
	struct inlay_match_found found;
	uint32_t bytes = inlay_cqe_opcode(cqe) == MLX5_CQE_RESP_SEND ? inlay_cqe_byte_count(cqe) : 0;
	struct rdma_request r;
	int n = -1;

	inlay_rq_release(&ep->link.rq, cqe);
	if (bytes <= ep->message && !rdma_request_read(&r, msg, bytes) && r.op == RDMA_TAG_SEND)
		n = inlay_match_arrive(&ep->host->match, r.map, (uintptr_t)msg, &found);
	if (n == 1)
		rdma_deliver((struct inlay_task_cmd *)(uintptr_t)found.cookie, msg);
	ep->strays += n < 0;
	if (n)
		rdma_slot_free(ep, msg);
	rdma_receive(ep);
}

/* ---- Commands that are WQEs ---- */

/* The command's last WQE has been posted; its completion finds it. */
static inline int rdma_posted(struct rdma_ep *ep, struct inlay_task_cmd *cmd)
{
	cmd->user[0] = 0;
	cmd->user[3] = inlay_sq_index(&ep->link.sq);
	if (ep->first)
		ep->last->user[0] = (uintptr_t)cmd;
	else
		ep->first = cmd;
	ep->last = cmd;
	inlay_sq_ring(&ep->link.sq);
	return INLAY_TASK_LATER;
}

/* The key of a command's payload. */
static inline uint32_t rdma_payload_lkey(const struct inlay_task_cmd *cmd)
{
	return cmd->pulled ? inlay_buf_sge(cmd->pulled).lkey : cmd->conn->lkey;
}

/* The key of what a request names. 0, or -EBADF for no such map, -ENOENT for a range that it has not, -EPERM. */
static inline int rdma_remote(const struct rdma_host *h, uint64_t map, uint64_t addr, uint64_t len, uint32_t access, uint32_t *rkey)
{
	struct rdma_map *m = (struct rdma_map *)handles_find(&h->maps, map);

	return m ? inlay_mmap_remote(&m->map, addr, len, access, rkey) : -EBADF;
}

static inline int rdma_post(struct rdma_host *h, struct rdma_ep *ep, const struct rdma_request *r, struct inlay_task_cmd *cmd)
{
	uint32_t atomic = r->op == RDMA_ADD || r->op == RDMA_SWAP, len = atomic ? 8 : r->bytes, access, rkey = 0;
	struct inlay_sq *sq = &ep->link.sq;
	struct ibv_sge out = {(uintptr_t)r->data, len, rdma_payload_lkey(cmd)}, in = {(uintptr_t)cmd->response, len, cmd->conn->lkey};
	struct inlay_wr word = {.raddr = r->addr, .data = cmd->response, .lkey = cmd->conn->lkey};
	int err;

	if (r->op == RDMA_PUT || r->op == RDMA_GET || atomic) {
		access = atomic ? INLAY_RDMA_ATOMIC : r->op == RDMA_PUT ? INLAY_RDMA_WRITE : INLAY_RDMA_READ;
		if (!len || (atomic && (r->addr % 8 || r->bytes)))
			return -EINVAL;
		if (r->op != RDMA_PUT && len > cmd->response_max)
			return -E2BIG;
		err = rdma_remote(h, r->map, r->addr, len, access, &rkey);
		if (err)
			return err;
	}
	if ((r->op == RDMA_SEND && len > ep->link.peer.message) || (r->op == RDMA_TAG_SEND && cmd->payload_len > ep->link.peer.message))
		return -EMSGSIZE;
	cmd->user[1] = r->op == RDMA_PUT || r->op == RDMA_SEND || r->op == RDMA_TAG_SEND ? 0 : len;
	cmd->user[2] = r->op;
	word.rkey = rkey;
	switch (r->op) {
	case RDMA_PUT: err = inlay_post_write(sq, r->addr, rkey, &out, 1, INLAY_SIGNALED); break;
	case RDMA_GET: err = inlay_post_read(sq, r->addr, rkey, &in, 1, INLAY_SIGNALED); break;
	case RDMA_ADD: err = inlay_post_atomic(sq, inlay_atomic_add(r->a), &word, INLAY_SIGNALED); break;
	case RDMA_SWAP: err = inlay_post_atomic(sq, inlay_atomic_cmp_swap(r->a, r->b), &word, INLAY_SIGNALED); break;
	case RDMA_TAG_SEND:
		out.addr = (uintptr_t)cmd->payload;
		out.length = cmd->payload_len;
		/* fallthrough */
	default: err = inlay_post_send(sq, &out, 1, INLAY_SIGNALED);
	}
	return err ? INLAY_TASK_STALL : rdma_posted(ep, cmd);
}

/* The first error of an endpoint is kept for its next flush. err: 0, a negative errno, or a handler's answer that is none. */
static inline void rdma_remember(struct rdma_ep *ep, int err)
{
	if (err < 0 && !ep->failed)
		ep->failed = err;
}

/* A command for an endpoint that is there. */
static inline int rdma_ep_command(struct rdma *p, struct rdma_host *h, struct rdma_ep *ep, const struct rdma_request *r,
				  struct inlay_task_cmd *cmd)
{
	int err;

	switch (r->op) {
	case RDMA_CONNECT: return rdma_ep_connect(ep, r);
	case RDMA_CLOSE:
		if (ep->first)
			return -EBUSY;
		handles_remove(&h->eps, r->ep);
		rdma_ep_end(p, ep);
		return 0;
	case RDMA_FLUSH:
		if (ep->first)
			return INLAY_TASK_STALL;
		err = ep->failed;
		ep->failed = 0;
		return err;
	default:
		err = ep->broken || !ep->connected ? -ENOTCONN : rdma_post(h, ep, r, cmd);
		rdma_remember(ep, err);
		return err;
	}
}

/* Whether commands are under way on any of a host's endpoints. */
static inline int rdma_under_way(const struct rdma_host *h)
{
	uint32_t i;

	for (i = 0; i < RDMA_EPS; i++) {
		const struct rdma_ep *ep = (const struct rdma_ep *)h->ep_table[i].object;

		if (ep && ep->first)
			return 1;
	}
	return 0;
}

/* The connection's state, made if it is not there; NULL: no memory. */
static inline struct rdma_host *rdma_host_of(const struct rdma *p, struct inlay_task_cmd *cmd)
{
	if (!*cmd->state)
		*cmd->state = rdma_host_create(p);
	return (struct rdma_host *)*cmd->state;
}

static inline int rdma_command(void *plugin, struct inlay_task_cmd *cmd)
{
	struct rdma *p = (struct rdma *)plugin;
	struct rdma_host *h = rdma_host_of(p, cmd);
	struct rdma_request r;
	struct rdma_map *m;
	struct rdma_ep *ep;

	if (rdma_request_read(&r, cmd->payload, cmd->payload_len))
		return -EBADMSG;
	if (!h)
		return -ENOMEM;
	/* Every response but data's own is no longer than this. */
	if (cmd->response_max < 8 + INLAY_TASK_ADDRESS)
		return -E2BIG;
	if (!r.op || r.op >= RDMA_OPS)
		return -EOPNOTSUPP;
	switch (r.op) {
	case RDMA_EP: return rdma_ep_create(p, h, cmd);
	case RDMA_MAP: return rdma_map_create(p, h, &r, cmd);
	case RDMA_UNMAP:
		if (rdma_under_way(h))
			return INLAY_TASK_STALL;
		m = (struct rdma_map *)handles_remove(&h->maps, r.map);
		if (!m)
			return -EBADF;
		rdma_map_end(m);
		return 0;
	case RDMA_TAG_RECV: return rdma_tag_recv(p, h, &r, cmd);
	default:
		ep = (struct rdma_ep *)handles_find(&h->eps, r.ep);
		return ep ? rdma_ep_command(p, h, ep, &r, cmd) : -EBADF;
	}
}

/* ---- Completions ---- */

/* The commands whose WQEs are done; failed: with an error, and the first one of them is told which. Returns how many. */
static inline uint32_t rdma_done(struct rdma *p, struct rdma_ep *ep, int failed)
{
	struct inlay_task_cmd *cmd;
	uint32_t n;

	for (n = 0; (cmd = ep->first) && (int32_t)((inlay_sq_index(&ep->link.sq) - inlay_sq_pending(&ep->link.sq)) - (uint32_t)cmd->user[3]) >= 0; n++) {
		ep->first = (struct inlay_task_cmd *)(uintptr_t)cmd->user[0];
		if (failed || !ep->host) {
			inlay_task_cmd_answer(cmd, ep->told || !ep->host ? -ECANCELED : -EIO, cmd->response, 0);
			ep->told = 1;
		} else if (!p->more || !p->more(p, ep, cmd)) {
			cmd->response_len = (uint32_t)cmd->user[1];
			inlay_task_cmd_answer(cmd, 0, cmd->response, cmd->response_len);
		}
	}
	return n;
}

static inline uint32_t rdma_complete(struct rdma *p, struct rdma_ep *ep, const struct mlx5_cqe64 *cqe)
{
	int failed = inlay_cqe_is_error(cqe);

	/* An endpoint that fails in either direction does so as a whole: all that is outstanding is flushed. */
	if (failed && !ep->broken) {
		ep->broken = 1;
		rdma_remember(ep, -EIO);
		inlay_task_link_break(&ep->link);
	}
	if (inlay_cqe_is_send(cqe))
		return inlay_sq_release(&ep->link.sq, cqe) < 0 ? 0 : rdma_done(p, ep, failed);
	if (failed || !ep->host)
		return 0;
	/* A receive that a write has taken has no message in it. */
	rdma_arrived(ep, cqe);
	return 1;
}

static inline uint32_t rdma_progress(void *plugin)
{
	struct rdma *p = (struct rdma *)plugin;
	const struct mlx5_cqe64 *cqe;
	uint32_t n = 0, polls, i;

	for (polls = 0; polls < 64 && (cqe = inlay_cq_peek(&p->cq)); polls++) {
		uint32_t qpn = inlay_cqe_qpn(cqe);

		for (i = 0; i < p->num_eps && (!p->eps[i]->link.qp || p->eps[i]->link.qp->qp_num != qpn); i++)
			;
		if (i < p->num_eps)
			n += rdma_complete(p, p->eps[i], cqe);
		inlay_cq_advance(&p->cq, 1);
	}
	if (p->num_ending)
		rdma_end_again(p);
	return n;
}

static const struct inlay_task_plugin rdma_plugin = {INLAY_TASK_VERSION, "rdma", rdma_open, rdma_close, NULL,
						     rdma_connection, rdma_command, rdma_progress};

#endif
