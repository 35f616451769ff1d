/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tag_pingpong.c: two processes exchange tagged messages as MPI has them. The matching is inlay_tag_rx's: the software's table, and where
 * the device has tag matching and allows device commands the NIC's list as well. Copy from it what you need:
 *
 *   open_nic, open_software   queues with the NIC's list behind an XRQ, and plain ones
 *   isend, irecv, cancel      requests: eager, rendezvous beyond EAGER_MAX; exact and wildcard receives
 *   progress                  peek, complete, arrive, advance; then flush
 *   order                     what MPI promises, tried: order, unexpected messages, cancel
 *   pingpong                  latency, each message verified
 *
 * With the NIC's list each process has two QPs, both of which receive through the XRQ. What it posts goes out on one of them; the other,
 * to which the peer's is connected, has no send queue of ours: the NIC reads the payload of a rendezvous on it, and sends the FIN.
 *
 *     rank 0   out --------> in    rank 1          messages, reads and FINs of software; back come the FINs of the NIC
 *              in  <-------- out
 *
 * Without it there is one QP, and an ordinary shared receive queue. The bytes on the wire are the same.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include <inlay/devx.h>
#include <inlay/match.h>
#include <inlay/tag.h>

#define INLINE_MAX 28u             /* bytes that fit into one WQEBB behind the TMH */
#define EAGER_MAX 8192u            /* beyond: rendezvous */
#define OFFLOAD_MIN 1024u          /* smaller receives stay in software */
#define TAGS 64u                   /* of the NIC's list */
#define ENTRIES 64u                /* of the receive queue; one is never posted */
#define BOUNCES 127u               /* receive buffers: those posted, and those that hold unexpected messages */
#define BOUNCE (INLAY_TMH_BYTES + EAGER_MAX)
#define SENDS 256u                 /* WQEBBs of the send queue */
#define SENDS_KEPT 64u             /* of which new messages leave these to reads and FINs */
#define SLOTS 1024u                /* no ring has more */
#define RNDVS 16u                  /* rendezvous that are waiting for their FIN */
#define LANDINGS 8u
#define STEPS 251u
#define ORDER_MAX 32768u
#define LENGTH_MAX (16u << 20)
#define ITERATIONS_MAX 1000000ul
#define WAIT 20                    /* seconds for one message: a deadline */
#define COMM 1u                    /* the one communicator that there is */

static int rank = -1;

static const char *why; /* the reason, from a function of inlay that has refused */

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "tag_pingpong: rank %d: %s failed%s%s\n", rank, what, why ? ": " : "", why ? why : "");
		exit(1);
	}
}

struct request {
	uint8_t *buf;
	uint32_t len, got;              /* bytes: of the buffer, of the message */
	uint64_t handle, tag;           /* of the posted receive; all 64 bits of the message's */
	int done, cancelled;
};

struct counts {
	uint64_t nic, software, reads;  /* receives matched by either; rendezvous that software has read */
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	int wire;                       /* to the other process, for set-up and barriers */
	/* With the NIC's list */
	int nic;
	struct inlay_devx_umem umem;
	struct inlay_devx_uar register_;
	struct inlay_devx_cq devx_cq;
	struct inlay_devx_xrq xrq;
	struct inlay_devx_qp command, out, in;
	struct inlay_tag_list list;
	uint8_t *rings;
	uint64_t records, rings_used;   /* bytes of it */
	/* Without */
	struct inlay_uar uar;
	struct ibv_cq *ibcq;
	struct ibv_qp *qp;
	struct inlay_sq plain_sq;
	struct inlay_cq plain_cq;
	struct inlay_srq plain_srq;
	struct ibv_srq *ibsrq;
	/* Of either */
	struct inlay_sq *sq;
	struct inlay_cq *cq;
	struct inlay_srq *srq;
	struct inlay_match match;
	struct inlay_tag_rx rx;
	void *table, *list_memory, *rx_memory;
	struct counts counts;
	struct request *sends[SLOTS];   /* by WQE: whose end its completion is */
	struct request *rndvs[RNDVS];   /* by app_ctx */
	uint32_t posted[SLOTS];         /* by entry of the receive queue: its bounce buffer */
	uint32_t spare[BOUNCES], spares;
	uint32_t held[BOUNCES];         /* bytes of the unexpected message in it */
	uint8_t *memory, *pattern, *landing;
	size_t bytes, landing_bytes;
};

/* ---- The other process, and the memory ---- */

/* Both say and hear as much; with NULL it is a word, and so a barrier */
static void swap(struct side *s, const void *mine, void *peer, size_t len)
{
	uint8_t word[2] = {0, 0};

	need(send(s->wire, mine ? mine : &word[0], len, MSG_NOSIGNAL) == (ssize_t)len, "talking to the other process");
	need(recv(s->wire, peer ? peer : &word[1], len, MSG_WAITALL) == (ssize_t)len, "hearing from the other process");
}

/* Both say where n queue pairs are, and hear where the peer's are */
static void swap_records(struct side *s, const struct inlay_connect_record *mine, struct inlay_connect_record *peer, uint32_t n)
{
	uint8_t out[INLAY_CONNECT_SIZE], in[INLAY_CONNECT_SIZE];

	for (uint32_t i = 0; i < n; i++) {
		inlay_connect_pack(&mine[i], out);
		swap(s, out, in, sizeof(out));
		need(!inlay_connect_unpack(&peer[i], in, sizeof(in), &why), "reading the peer's record");
	}
}

static uint8_t *bounce(const struct side *s, uint32_t b)
{
	return s->memory + (size_t)b * BOUNCE;
}

/* Bounce buffers, then what is sent, then where it lands. A transport registers its user's memory, with a cache as in regcache.c */
static void make_memory(struct side *s, uint32_t longest)
{
	uint64_t x = 88172645463325252u;

	s->landing_bytes = (longest + 4095) & ~(size_t)4095;
	s->bytes = (BOUNCES * BOUNCE + longest + 64 * STEPS + 4095) & ~(size_t)4095;
	s->memory = aligned_alloc(4096, s->bytes + LANDINGS * s->landing_bytes);
	need(s->memory != NULL, "getting memory");
	s->pattern = s->memory + BOUNCES * BOUNCE;
	s->landing = s->memory + s->bytes;
	s->bytes += LANDINGS * s->landing_bytes;
	memset(s->memory, 0, s->bytes);
	for (uint8_t *at = s->pattern; at < s->pattern + longest + 64 * STEPS; at++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		*at = (uint8_t)(x >> 32);
	}
	s->mr = ibv_reg_mr(s->pd, s->memory, s->bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	need(s->mr != NULL, "ibv_reg_mr");
}

/* Message k begins there: no two of a row look alike */
static uint8_t *message_of(const struct side *s, uint32_t k)
{
	return s->pattern + 64 * (k % STEPS);
}

static uint8_t *landing(const struct side *s, uint32_t i)
{
	return s->landing + i * s->landing_bytes;
}

/* ---- Queues with the NIC's list ---- */

/* NULL, and the device is open for commands: it can. Else why not */
static const char *can_nic(struct side *s, struct ibv_device *device)
{
	struct inlay_query_hca_cap_out out;
	const struct inlay_hca_cap *cap = &out.cap.general;
	const char *cannot = NULL;

	if (inlay_devx_open(device, &s->ctx))
		return "no device commands";
	if (inlay_devx_query_cap(s->ctx, INLAY_CAP_GENERAL, &out, NULL))
		cannot = "no answer to device commands";
	else if (!inlay_hca_cap_get(cap, INLAY_HCA_CAP_TAG_MATCHING) ||
		 1u << inlay_hca_cap_get(cap, INLAY_HCA_CAP_LOG_TAG_MATCHING_LIST_SZ) < 2 * TAGS)
		cannot = "the device has no tag matching, or a shorter list";
	if (cannot)
		ibv_close_device(s->ctx);
	s->nic = cannot ? 0 : inlay_hca_cap_get(cap, INLAY_HCA_CAP_RNDV_OFFLOAD_RC) ? 2 : 1;
	return cannot;
}

/* A ring of so many bytes, and in the first page its record */
static void place(struct side *s, struct inlay_devx_place *ring, struct inlay_devx_place *record, size_t bytes)
{
	*record = (struct inlay_devx_place){&s->umem, s->records += 64};
	*ring = (struct inlay_devx_place){&s->umem, s->rings_used += INLAY_DEVX_PAGE};
	s->rings_used += bytes & ~(size_t)(INLAY_DEVX_PAGE - 1);
}

/* All QPs receive through the XRQ, and all of them complete where it does */
static void make_qp(struct side *s, struct inlay_devx_qp *qp, uint32_t pdn, uint32_t sq_bbs, uint32_t flags)
{
	struct inlay_devx_qp_attr want = {.uar = &s->register_, .pdn = pdn, .sq_bbs = sq_bbs, .flags = flags,
					    .rq_type = INLAY_RQ_TYPE_SHARED, .srqn = s->xrq.xrqn,
					    .send_cqn = s->cq->cqn, .recv_cqn = s->cq->cqn};

	place(s, &want.ring, &want.record, inlay_devx_qp_size(sq_bbs, 0, 0));
	need(!inlay_devx_qp_create(qp, s->ctx, &want), "a queue pair");
}

static void open_nic(struct side *s)
{
	struct inlay_connect_record mine[2], peer[2];
	struct inlay_devx_path path;
	const size_t bytes = 1 << 20;
	uint32_t pdn = 0;

	s->rings = aligned_alloc(INLAY_DEVX_PAGE, bytes);
	need(s->rings && !inlay_pdn_from_pd(&pdn, s->pd), "memory for rings");
	need(!inlay_devx_umem_reg(&s->umem, s->ctx, s->rings, bytes, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE), "registering rings");
	need(!inlay_devx_uar_alloc(&s->register_, s->ctx, MLX5DV_UAR_ALLOC_TYPE_NC, INLAY_UAR_DOORBELL), "a doorbell register");

	/* For each tag three completions, one for each entry, one for each WQE */
	struct inlay_devx_cq_attr cq = {.uar = &s->register_, .cqes = 1024};
	place(s, &cq.ring, &cq.record, inlay_devx_cq_size(1024, 64));
	need(!inlay_devx_cq_create(&s->devx_cq, s->ctx, &cq), "a completion queue");
	struct inlay_devx_xrq_attr xrq = {.shared = {.pdn = pdn, .entries = ENTRIES, .stride = 32}, .cqn = s->devx_cq.cq.cqn, .tags = TAGS,
					  .user_index = 1, .flags = s->nic == 2 ? INLAY_DEVX_XRQ_RNDV : 0};
	place(s, &xrq.shared.ring, &xrq.shared.record, inlay_devx_rmp_size(ENTRIES, 32));
	need(!inlay_devx_xrq_create(&s->xrq, s->ctx, &xrq), "an XRQ");
	s->cq = &s->devx_cq.cq;
	s->srq = &s->xrq.srq;
	make_qp(s, &s->command, pdn, 4 * TAGS, 0);
	make_qp(s, &s->out, pdn, SENDS, 0);
	make_qp(s, &s->in, pdn, 0, s->nic == 2 ? INLAY_DEVX_QP_RNDV : 0);
	s->sq = &s->out.sq;

	inlay_devx_path_init(&path);
	path.access = IBV_ACCESS_REMOTE_READ;
	need(!inlay_connect_port(&mine[0], s->ctx, path.port, -1, &why), "the best GID");
	path.gid_index = mine[0].gid_index;
	need(!inlay_devx_qp_connect_self(&s->command, &path), "connecting the command queue");
	need(!inlay_devx_qp_address(&s->out, &path, &mine[0]) && !inlay_devx_qp_address(&s->in, &path, &mine[1]), "an address");
	swap_records(s, mine, peer, 2);
	need(!inlay_devx_address_resolve(&peer[0], s->pd, &path) && !inlay_devx_address_resolve(&peer[1], s->pd, &path), "finding the way");
	need(!inlay_devx_qp_connect(&s->out, &path, &peer[1]) && !inlay_devx_qp_connect(&s->in, &path, &peer[0]), "connecting");

	const size_t list_bytes = inlay_tag_list_size(TAGS, 4 * TAGS);
	s->list_memory = aligned_alloc(64, (list_bytes + 63) & ~(size_t)63);
	s->rx_memory = malloc(inlay_tag_rx_size(TAGS));
	need(s->list_memory && s->rx_memory && !inlay_tag_list_init(&s->list, s->list_memory, TAGS, &s->command.sq, 1), "the NIC's list");
}

/* ---- Queues without ---- */

static void open_software(struct side *s)
{
	struct inlay_connect_record mine, peer;

	need(!inlay_uar_create(&s->uar, s->pd, INLAY_UAR_SERIAL, NULL), "a doorbell register");
	s->ibcq = ibv_create_cq(s->ctx, 1023, NULL, NULL, 0);
	s->ibsrq = ibv_create_srq(s->pd, &(struct ibv_srq_init_attr){.attr = {.max_wr = ENTRIES - 1, .max_sge = 1}});
	struct ibv_qp_init_attr init = {.send_cq = s->ibcq, .recv_cq = s->ibcq, .srq = s->ibsrq, .qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = SENDS / 2, .max_send_sge = 1, .max_inline_data = 64}};
	s->qp = s->ibcq && s->ibsrq ? ibv_create_qp(s->uar.pd, &init) : NULL;
	need(s->qp != NULL, "a queue pair");
	need(!inlay_connect_local(&mine, s->qp, NULL, &why), "a connection record");
	swap_records(s, &mine, &peer, 1);
	need(!inlay_connect_rts(s->qp, &mine, &peer, NULL, &why), "connecting");
	s->sq = &s->plain_sq;
	s->cq = &s->plain_cq;
	s->srq = &s->plain_srq;
	need(!inlay_sq_from_qp(s->sq, s->qp, &s->uar, NULL, NULL) && !inlay_srq_from_srq(s->srq, s->ibsrq, NULL, NULL) && !inlay_cq_from_cq(s->cq, s->ibcq, NULL) &&
	     s->sq->mask < SLOTS && s->srq->wqe_cnt <= SLOTS, "taking over the queues");
}

/* ---- Receive buffers ---- */

static void post_bounce(struct side *s, uint32_t b)
{
	struct ibv_sge sge = {.addr = (uintptr_t)bounce(s, b), .length = BOUNCE, .lkey = s->mr->lkey};

	s->posted[inlay_srq_index(s->srq)] = b;
	need(!inlay_post_srq_recv(s->srq, &sge, 1), "posting a receive buffer");
}

static void open_side(struct side *s, const char *name, int software, uint32_t longest)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *device = NULL;
	const char *cannot = "--software";
	uint64_t seed = 0;
	int peer;

	for (int i = 0; list && list[i] && !device; i++)
		if (mlx5dv_is_supported(list[i]) && (!name || !strcmp(name, ibv_get_device_name(list[i]))))
			device = list[i];
	need(device != NULL, name ? "finding that mlx5 device" : "finding an mlx5 device");
	if (!software)
		cannot = can_nic(s, device);
	if (cannot)
		s->ctx = ibv_open_device(device);
	need(s->ctx != NULL, "opening the device");
	if (!rank && cannot)
		printf("%s: tags are matched in software (%s)\n", ibv_get_device_name(device), cannot);
	else if (!rank)
		printf("%s: tags are matched by the NIC, of receives from %u bytes, and in software\n", ibv_get_device_name(device),
		       OFFLOAD_MIN);
	ibv_free_device_list(list);
	swap(s, &s->nic, &peer, sizeof(peer));
	need(peer == s->nic, "having the same on both sides");
	s->pd = ibv_alloc_pd(s->ctx);
	need(s->pd != NULL, "ibv_alloc_pd");
	make_memory(s, longest);
	(s->nic ? open_nic : open_software)(s);

	/* A seed that nobody else knows: nobody can choose tags that meet in the table */
	s->table = aligned_alloc(64, (inlay_match_size(256) + 63) & ~(size_t)63);
	need(s->table && getrandom(&seed, sizeof(seed), 0) == sizeof(seed), "memory for the table");
	need(!inlay_match_init(&s->match, s->table, inlay_match_size(256), 256, 0, seed), "the table");
	need(!inlay_tag_rx_init(&s->rx, s->rx_memory, &s->match, s->nic ? &s->list : NULL, OFFLOAD_MIN), "table and list together");
	for (uint32_t b = 0; b < BOUNCES; b++)
		if (b < ENTRIES - 1)
			post_bounce(s, b);
		else
			s->spare[s->spares++] = b;
	inlay_srq_ring(s->srq);
	swap(s, NULL, NULL, 1); /* both are ready */
}

static void close_side(struct side *s)
{
	if (s->nic) {
		need(!inlay_devx_qp_destroy(&s->in) && !inlay_devx_qp_destroy(&s->out) && !inlay_devx_qp_destroy(&s->command) &&
		     !inlay_devx_xrq_destroy(&s->xrq) && !inlay_devx_cq_destroy(&s->devx_cq) && !inlay_devx_uar_free(&s->register_) &&
		     !inlay_devx_umem_dereg(&s->umem), "destroying the queues");
	} else {
		inlay_sq_fini(s->sq);
		need(!ibv_destroy_qp(s->qp) && !ibv_destroy_srq(s->ibsrq) && !ibv_destroy_cq(s->ibcq) && !inlay_uar_destroy(&s->uar, NULL),
		     "destroying the queues");
	}
	need(!ibv_dereg_mr(s->mr) && !ibv_dealloc_pd(s->pd) && !ibv_close_device(s->ctx), "closing down");
	free(s->memory);
	free(s->rings);
	free(s->list_memory);
	free(s->rx_memory);
	free(s->table);
}

/* ---- The data path ---- */

static void post_done(struct side *s, int err, uint16_t index, struct request *whose)
{
	/* A transport queues what gets -EAGAIN; here SENDS_KEPT is more than there can be */
	need(!err, "posting to the send queue");
	s->sends[index & s->sq->mask] = whose;
	inlay_sq_ring(s->sq);
}

/* A rendezvous that software ends: reads, then tells the sender, in one queue. The FIN's completion is that of both */
static void read_payload(struct side *s, struct request *r, const struct inlay_tmh *tmh, const uint8_t *at, uint32_t len)
{
	struct inlay_rvh rvh;

	need(!inlay_rvh_get(at, len, &rvh) && rvh.len <= r->len, "taking a rendezvous no longer than its receive");
	struct ibv_sge sge = {.addr = (uintptr_t)r->buf, .length = rvh.len, .lkey = s->mr->lkey};
	need(!inlay_post_read(s->sq, rvh.va, rvh.rkey, &sge, 1, 0), "the rendezvous' read");
	const uint16_t index = inlay_sq_index(s->sq);
	post_done(s, inlay_tag_send_fin(s->sq, tmh->app_ctx, tmh->tag, &rvh, INLAY_SIGNALED | INLAY_FENCE_STRONG), index, r);
	r->tag = tmh->tag;
	r->got = rvh.len;
	s->counts.reads++;
}

/* A message, TMH in front, that software has matched with a receive */
static void deliver(struct side *s, struct request *r, const uint8_t *at, uint32_t len)
{
	struct inlay_tmh tmh;

	need(!inlay_tmh_get(at, len, &tmh), "the header of a message");
	s->counts.software++;
	if (tmh.opcode == IBV_TMH_RNDV) {
		read_payload(s, r, &tmh, at, len);
		return;
	}
	need(len - INLAY_TMH_BYTES <= r->len, "taking a message no longer than its receive");
	r->tag = tmh.tag;
	r->got = len - INLAY_TMH_BYTES;
	memcpy(r->buf, at + INLAY_TMH_BYTES, r->got);
	r->done = 1;
}

/* The peer has read what we sent: what it says is looked at before it is believed */
static void finished(struct side *s, const struct inlay_tmh *tmh, const uint8_t *at, uint32_t len)
{
	struct request *r = tmh->app_ctx < RNDVS ? s->rndvs[tmh->app_ctx] : NULL;
	struct inlay_rvh rvh;

	need(r && !inlay_rvh_get(at, len, &rvh) && rvh.va == (uintptr_t)r->buf && rvh.len == r->len, "knowing what a FIN is of");
	s->rndvs[tmh->app_ctx] = NULL;
	r->done = 1;
}

/* A message in an entry of the receive queue, or in its CQE. Afterwards the entry is posted again */
static void arrived(struct side *s, const struct mlx5_cqe64 *cqe, const void *in_cqe, uint32_t len, int from_nic)
{
	const uint32_t entry = inlay_cqe_wqe_counter(cqe);
	struct inlay_match_found found;
	struct inlay_tmh tmh;

	need(entry < s->srq->wqe_cnt && len <= BOUNCE, "the receive queue");
	uint32_t b = s->posted[entry];
	const uint8_t *at = in_cqe ? in_cqe : bounce(s, b);

	need(!inlay_tmh_get(at, len, &tmh) && tmh.opcode != IBV_TMH_NO_TAG, "the header of a message");
	if (tmh.opcode == IBV_TMH_FIN) {
		finished(s, &tmh, at, len);
	} else {
		switch (inlay_tag_rx_arrive(&s->rx, tmh.tag, b, from_nic, &found)) {
		case 1:
			deliver(s, (struct request *)(uintptr_t)found.cookie, at, len);
			break;
		case 0: /* Unexpected: it stays where it is, and another buffer takes its place. A transport has flow control here */
			if (in_cqe)
				memcpy(bounce(s, b), in_cqe, len);
			s->held[b] = len;
			need(s->spares != 0, "having buffers for unexpected messages");
			b = s->spare[--s->spares];
			break;
		default: need(0, "the table of receives");
		}
	}
	need(0 < inlay_srq_release(s->srq, cqe), "giving back an entry");
	post_bounce(s, b);
}

/* A completion of the NIC's list */
static void matched(struct side *s, const struct mlx5_cqe64 *cqe)
{
	struct inlay_tag_rx_event ev;
	int kind = inlay_tag_rx_complete(&s->rx, cqe, s->cq->stride, &ev);
	struct request *r = (struct request *)(uintptr_t)ev.cookie;
	struct inlay_tmh tmh;

	switch (kind) {
	case INLAY_TAG_RX_NOTHING:
	case INLAY_TAG_RX_MATCHED: /* The payload is to come */
		break;
	case INLAY_TAG_RX_DONE:
		if (ev.wc.payload)
			memcpy(r->buf, ev.wc.payload, ev.wc.byte_len);
		r->got = ev.wc.byte_len;
		r->tag = ev.wc.tag;
		r->done = 1;
		s->counts.nic++;
		break;
	case INLAY_TAG_RX_RNDV: /* The NIC leaves the reading to us */
		need(!inlay_tmh_get(r->buf, ev.wc.byte_len, &tmh), "the header of a rendezvous");
		s->counts.nic++;
		read_payload(s, r, &tmh, r->buf, ev.wc.byte_len);
		break;
	case INLAY_TAG_RX_CANCELED:
		r->done = r->cancelled = 1;
		break;
	case INLAY_TAG_RX_MESSAGE:
	case INLAY_TAG_RX_PLAIN:
		need(ev.wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(ev.wc.status));
		arrived(s, cqe, ev.wc.payload, ev.wc.byte_len, kind == INLAY_TAG_RX_MESSAGE);
		break;
	default:
		inlay_cqe_print(stderr, cqe);
		need(0, kind < 0 ? "a completion of the NIC's list" : ibv_wc_status_str(ev.wc.status));
	}
}

/* Takes in what there is. Each completion is dealt with before the next is looked at. Returns how many there were */
static int progress(struct side *s)
{
	const struct mlx5_cqe64 *cqe;
	struct request *r;
	int n = 0;

	for (; (cqe = inlay_cq_peek(s->cq)); n++) {
		if (s->nic && inlay_tag_owns(&s->list, cqe)) {
			matched(s, cqe);
		} else if (inlay_cqe_is_error(cqe)) {
			inlay_cqe_print(stderr, cqe);
			need(0, "the connection");
		} else if (inlay_cqe_is_send(cqe)) {
			r = s->sends[inlay_cqe_wqe_counter(cqe) & s->sq->mask];
			need(0 < inlay_sq_release(s->sq, cqe), "a send's completion");
			if (r)
				r->done = 1;
		} else {
			arrived(s, cqe, inlay_cqe_payload(cqe, s->cq->stride), inlay_cqe_byte_count(cqe), 0);
		}
		inlay_cq_advance(s->cq, 1);
	}
	if (n)
		inlay_srq_ring(s->srq);
	inlay_tag_rx_flush(&s->rx); /* With or without completions: it also rings for the receives that were posted */
	return n;
}

static void wait_for(struct side *s, const struct request *r)
{
	time_t end = time(NULL) + WAIT;
	uint8_t word;

	for (uint32_t idle = 1; !r->done; idle++) {
		if (progress(s))
			continue;
		if (idle % 64 == 0)
			sched_yield(); /* Where there are fewer processors than processes and devices of software */
		if (idle % 4096 == 0)
			need(recv(s->wire, &word, 1, MSG_PEEK | MSG_DONTWAIT) != 0 && time(NULL) < end,
			     "hearing of a message before the deadline");
	}
}

/* The buffer stays as it is until r->done: at once, when it was acknowledged, or with the FIN */
static void isend(struct side *s, struct request *r, int32_t tag, uint8_t *buf, uint32_t len)
{
	struct inlay_rvh rvh = {.va = (uintptr_t)buf, .rkey = s->mr->rkey, .len = len};
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = len, .lkey = s->mr->lkey};
	const time_t end = time(NULL) + WAIT;
	uint32_t slot = 0;
	uint64_t bits;

	*r = (struct request){.buf = buf, .len = len};
	need(!inlay_mpi_pack(inlay_mpi_usual(), COMM, rank, tag, &bits), "a tag of this size");
	while (inlay_sq_room(s->sq) < SENDS_KEPT)
		need(progress(s) || time(NULL) < end, "getting on before the deadline");
	const uint16_t index = inlay_sq_index(s->sq);
	if (len <= INLINE_MAX) {
		post_done(s, inlay_tag_send_eager_inline(s->sq, 0, bits, buf, len, INLAY_SIGNALED), index, NULL);
		r->done = 1;
	} else if (len <= EAGER_MAX) {
		post_done(s, inlay_tag_send_eager(s->sq, 0, bits, &sge, 1, INLAY_SIGNALED), index, r);
	} else {
		while (slot < RNDVS && s->rndvs[slot])
			slot++;
		need(slot < RNDVS, "having room for one more rendezvous");
		s->rndvs[slot] = r;
		post_done(s, inlay_tag_send_rndv(s->sq, slot, bits, &rvh, NULL, 0, INLAY_SIGNALED), index, NULL);
	}
}

/* source and tag: what is wanted, or INLAY_MPI_ANY */
static void irecv(struct side *s, struct request *r, int32_t source, int32_t tag, uint8_t *buf, uint32_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = len, .lkey = s->mr->lkey};
	struct inlay_match_found found;
	uint64_t bits, mask;
	int err;

	*r = (struct request){.buf = buf, .len = len};
	need(!inlay_mpi_pack_recv(inlay_mpi_usual(), COMM, source, tag, &bits, &mask), "a tag of this size");
	err = inlay_tag_rx_post(&s->rx, bits, mask, &sge, (uintptr_t)r, &found);
	need(err >= 0, "posting a receive");
	if (!err) {
		r->handle = found.handle;
		return;
	}
	deliver(s, r, bounce(s, (uint32_t)found.cookie), s->held[found.cookie]); /* It was here before */
	s->spare[s->spares++] = (uint32_t)found.cookie;
}

/* Either r is cancelled, at once or when the NIC says so, or its message was faster and it ends as any other: r->done tells, not this */
static void cancel(struct side *s, struct request *r)
{
	struct inlay_match_found found;

	if (inlay_tag_rx_cancel(&s->rx, r->handle, &found) == 1)
		r->done = r->cancelled = 1;
}

static void barrier(struct side *s)
{
	progress(s); /* What was posted is visible to the NIC before the peer goes on */
	swap(s, NULL, NULL, 1);
}

/* Receive r is to hold message k, of that length and tag */
static void expect(struct side *s, struct request *r, int32_t tag, uint32_t k, uint32_t len)
{
	wait_for(s, r);
	need(!r->cancelled && r->got == len && !memcmp(r->buf, message_of(s, k), len), "finding each byte of a message");
	need(inlay_mpi_tag(inlay_mpi_usual(), r->tag) == tag && inlay_mpi_source(inlay_mpi_usual(), r->tag) == !rank, "tag and source");
}

/* ---- What MPI promises ---- */

static void order_sender(struct side *s)
{
	static const struct { int32_t tag; uint32_t len; } out[] = {{5, 100}, {6, 20000}, {5, 3000}, {1, 8}, {8, 2000},
								     {8, 30000}, {7, 8192}, {9, 64}, {9, 0}};
	struct request r[9], late;

	for (uint32_t k = 0; k < 9; k++) {
		isend(s, &r[k], out[k].tag, message_of(s, k), out[k].len);
		if (k == 3)
			barrier(s); /* Up to here: before there are receives but the last one's */
	}
	for (uint32_t k = 0; k < 9; k++)
		wait_for(s, &r[k]);
	barrier(s);
	isend(s, &late, 11, message_of(s, 9), 20000);
	wait_for(s, &late);
}

static void order_receiver(struct side *s)
{
	const int32_t any = INLAY_MPI_ANY;
	struct inlay_match_found found;
	struct request r[LANDINGS];

	/* Unexpected: in the order in which they were sent, of those that match */
	irecv(s, &r[0], !rank, 1, landing(s, 0), 8);
	expect(s, &r[0], 1, 3, 8);
	need(inlay_match_unexpected(&s->match) == 3, "keeping what nobody waits for");
	need(inlay_match_probe(&s->match, 0, 0, &found) == 1 && inlay_mpi_tag(inlay_mpi_usual(), found.tag) == 5, "a probe for anything");
	irecv(s, &r[0], !rank, any, landing(s, 0), ORDER_MAX);
	irecv(s, &r[1], !rank, 5, landing(s, 1), ORDER_MAX);
	irecv(s, &r[2], any, any, landing(s, 2), ORDER_MAX);
	expect(s, &r[0], 5, 0, 100);
	expect(s, &r[1], 5, 2, 3000);
	expect(s, &r[2], 6, 1, 20000);

	/* Expected: by the oldest receive that matches, wherever it is. The fourth is too small for the NIC, and keeps the fifth from it */
	irecv(s, &r[0], any, any, landing(s, 0), ORDER_MAX);
	irecv(s, &r[1], !rank, 7, landing(s, 1), ORDER_MAX);
	irecv(s, &r[2], !rank, 8, landing(s, 2), ORDER_MAX);
	irecv(s, &r[3], any, 9, landing(s, 3), 64);
	irecv(s, &r[4], !rank, any, landing(s, 4), ORDER_MAX);
	irecv(s, &r[5], !rank, 10, landing(s, 5), ORDER_MAX);
	irecv(s, &r[6], any, 10, landing(s, 6), 512);
	barrier(s);
	expect(s, &r[2], 8, 5, 30000);
	expect(s, &r[0], 8, 4, 2000);
	expect(s, &r[4], 9, 8, 0);
	expect(s, &r[3], 9, 7, 64);
	expect(s, &r[1], 7, 6, 8192);

	/* Cancelled, from list and table: nothing was sent to them */
	cancel(s, &r[5]);
	cancel(s, &r[6]);
	wait_for(s, &r[5]);
	wait_for(s, &r[6]);
	need(r[5].cancelled && r[6].cancelled, "cancelling what nothing was sent to");

	/* A cancel that races with the message has one outcome: cancelled and the message is still there, or received */
	irecv(s, &r[0], !rank, 11, landing(s, 0), ORDER_MAX);
	barrier(s);
	cancel(s, &r[0]);
	wait_for(s, &r[0]);
	if (r[0].cancelled)
		irecv(s, &r[0], any, 11, landing(s, 0), ORDER_MAX);
	expect(s, &r[0], 11, 9, 20000);
}

/* ---- Latency ---- */

static int later(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double microseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Every fourth receive takes anything */
static void irecv_next(struct side *s, struct request *r, uint32_t k, uint32_t len)
{
	irecv(s, r, k % 4 == 3 ? INLAY_MPI_ANY : !rank, k % 4 == 3 ? INLAY_MPI_ANY : (int32_t)(k % 1024), landing(s, k % 2), len);
}

/* Rank 0 verifies what rank 1 sends back from where it has received it. Receives are there before their messages */
static void pingpong(struct side *s, uint32_t len, uint32_t iterations, double *times)
{
	struct request ping[2] = {{.done = 1}, {.done = 1}}, pong[2];
	struct counts all, peer;

	s->counts = (struct counts){0};
	irecv_next(s, &pong[0], 0, len);
	barrier(s);
	for (uint32_t k = 0; k < iterations; k++) {
		struct request *in = &pong[k % 2], *out = &ping[k % 2];
		double begin = microseconds();

		if (!rank)
			isend(s, out, (int32_t)(k % 1024), message_of(s, k), len);
		wait_for(s, in);
		times[k] = (microseconds() - begin) / 2;
		wait_for(s, &ping[(k + 1) % 2]); /* of rank 1: from the buffer that is the next receive's */
		if (k + 1 < iterations)
			irecv_next(s, &pong[(k + 1) % 2], k + 1, len);
		if (rank)
			isend(s, out, (int32_t)(k % 1024), in->buf, len);
		expect(s, in, (int32_t)(k % 1024), k, len);
	}
	wait_for(s, &ping[0]);
	wait_for(s, &ping[1]);
	swap(s, &s->counts, &peer, sizeof(peer));
	all = (struct counts){s->counts.nic + peer.nic, s->counts.software + peer.software, s->counts.reads + peer.reads};
	need(all.nic + all.software == 2 * (uint64_t)iterations, "counting the messages");
	if (rank)
		return;
	qsort(times, iterations, sizeof(*times), later);
	printf("%9u  %-10s  %10.2f  %10llu  %10llu  %10llu\n", len, len > EAGER_MAX ? "rendezvous" : "eager", times[iterations / 2],
	       (unsigned long long)all.nic, (unsigned long long)all.software, (unsigned long long)all.reads);
	fflush(stdout);
}

/* ---- */

static void help(void)
{
	printf("usage: tag_pingpong [OPTION]...\n\n"
	       "Two processes exchange tagged messages through the first mlx5 device, as MPI would.\n\n"
	       "  --iterations N  messages each way for a size, 1 to %lu; the default is 200\n"
	       "  --size N        that many bytes only, 0 to %u; the default is a table of sizes\n"
	       "  --device NAME   that device\n"
	       "  --software      matches in software alone, where the device could do it too\n"
	       "  --help          this text\n\n"
	       "Up to %u bytes a message is eager, beyond a rendezvous. The latency is the median of half a round trip.\n",
	       ITERATIONS_MAX, LENGTH_MAX, EAGER_MAX);
}

/* A number within bounds, or the end */
static uint32_t number(const char *option, const char *text, unsigned long min, unsigned long max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text >= '0' && *text <= '9' && !*end && n >= min && n <= max)
		return (uint32_t)n;
	fprintf(stderr, "tag_pingpong: --%s is from %lu to %lu, not '%s'\n", option, min, max, text);
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"iterations", 1, NULL, 'i'}, {"size", 1, NULL, 's'}, {"device", 1, NULL, 'd'},
						{"software", 0, NULL, 'w'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
	static uint32_t sizes[] = {0, 8, 64, 512, 1024, 4096, 8192, 16384, 65536, 262144, 1048576};
	uint32_t n = sizeof(sizes) / sizeof(sizes[0]), iterations = 200;
	int c, software = 0, ends[2], status = 0;
	const char *device = NULL;
	static struct side s;
	double *times;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'i': iterations = number("iterations", optarg, 1, ITERATIONS_MAX); break;
		case 's': sizes[0] = number("size", optarg, 0, LENGTH_MAX); n = 1; break;
		case 'd': device = optarg; break;
		case 'w': software = 1; break;
		case 'h': help(); return 0;
		default: return 2; /* getopt_long has said why */
		}
	}
	if (optind < argc) {
		fprintf(stderr, "tag_pingpong: no arguments, but '%s' (try --help)\n", argv[optind]);
		return 2;
	}

	/* Two processes before there is a device: none survives a fork */
	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	fflush(stdout);
	pid_t child = fork();
	need(child >= 0, "fork");
	rank = child ? 0 : 1;
	s.wire = ends[rank];
	close(ends[!rank]);
	setsockopt(s.wire, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 3 * WAIT}, sizeof(struct timeval));
	times = malloc(iterations * sizeof(*times));
	need(times != NULL, "getting memory");
	open_side(&s, device, software, sizes[n - 1] > ORDER_MAX ? sizes[n - 1] : ORDER_MAX);

	for (int receiver = 0; receiver < 2; receiver++) {
		(rank == receiver ? order_receiver : order_sender)(&s);
		barrier(&s);
	}
	if (!rank)
		printf("order, unexpected messages, cancel: as MPI has them\n%9s  %-10s  %10s  %10s  %10s  %10s\n", "bytes", "protocol",
		       "usec", "by NIC", "software", "read by it");
	for (uint32_t i = 0; i < n; i++)
		pingpong(&s, sizes[i], iterations, times);
	barrier(&s);
	close_side(&s);
	free(times);
	if (!rank)
		need(waitpid(child, &status, 0) == child && !status, "the other process");
	return 0;
}
