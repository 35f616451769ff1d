/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queues.h: what tag_pingpong.c sends and receives with: memory, queues with the NIC's list behind
 * an XRQ (open_nic), plain ones (open_software), and the receive buffers.
 */
#ifndef TAG_QUEUES_H
#define TAG_QUEUES_H

#include <sys/random.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include <inlay/devx.h>
#include <inlay/match.h>
#include <inlay/tag.h>
#include "../common/pattern.h"
#include "../common/peer.h"

#define INLINE_MAX 28u             /* payload bytes that still fit into one WQEBB after the TMH */
#define EAGER_MAX 8192u            /* beyond: rendezvous */
#define OFFLOAD_MIN 1024u          /* smaller receives stay in software */
#define TAGS 64u                   /* of the NIC's list */
#define ENTRIES 64u                /* of the receive queue */
#define BOUNCES 127u               /* receive buffers: those posted, and those that hold unexpected messages */
#define BOUNCE (INLAY_TMH_BYTES + EAGER_MAX)
#define SENDS 256u                 /* WQEBBs of the send queue */
#define SENDS_KEPT 64u             /* of which new messages leave these to reads and FINs */
#define SLOTS 1024u                /* no ring has more */
#define RNDVS 16u                  /* rendezvous that are waiting for their FIN */
#define LANDINGS 8u
#define ORDER_MAX 32768u
#define LENGTH_MAX (16u << 20)
#define ITERATIONS_MAX 1000000ul
#define WAIT 20                    /* seconds for one message: a deadline */
#define COMM 1u                    /* the one communicator that there is */

static int rank = -1;

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
	/* With the NIC's list */
	int nic;
	struct inlay_devx_umem umem;
	struct inlay_devx_uar register_;
	struct inlay_devx_cq devx_cq;
	struct inlay_devx_srq xrq;
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
	void *table, *list_memory;
	struct counts counts;
	struct request *sends[SLOTS];   /* by WQE: whose end its completion is */
	struct request *rndvs[RNDVS];   /* by app_ctx */
	uint32_t spare[BOUNCES], spares;
	uint32_t held[BOUNCES];         /* bytes of the unexpected message in it */
	uint8_t *memory, *pattern, *landing;
	size_t bytes, landing_bytes;
};

/* Both say where a queue pair is, and hear where the peer's is */
static void swap_record(const struct inlay_connect_record *mine, struct inlay_connect_record *theirs)
{
	uint8_t out[INLAY_CONNECT_SIZE], in[INLAY_CONNECT_SIZE];

	inlay_connect_pack(mine, out);
	peer_swap(out, in, sizeof(out));
	must(!inlay_connect_unpack(theirs, in, sizeof(in), &why), "reading the peer's record");
}

static uint8_t *bounce(const struct side *s, uint32_t b)
{
	return s->memory + (size_t)b * BOUNCE;
}

/*
 * Bounce buffers, then what is sent, then where it lands. A transport registers its user's memory,
 * with a cache as in regcache.c
 */
static void make_memory(struct side *s, uint32_t longest)
{
	s->landing_bytes = (longest + 4095) & ~(size_t)4095;
	s->bytes = (BOUNCES * BOUNCE + pattern_bytes(longest) + 4095) & ~(size_t)4095;
	s->memory = memory(s->bytes + LANDINGS * s->landing_bytes);
	s->pattern = s->memory + BOUNCES * BOUNCE;
	s->landing = s->memory + s->bytes;
	s->bytes += LANDINGS * s->landing_bytes;
	pattern_fill(s->pattern, longest);
	s->mr = ibv_reg_mr(s->pd, s->memory, s->bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	must(s->mr != NULL, "ibv_reg_mr");
}

/* Message k begins there: no two of a row look alike */
static uint8_t *message_of(const struct side *s, uint32_t k)
{
	return pattern_message(s->pattern, k);
}

static uint8_t *landing(const struct side *s, uint32_t i)
{
	return s->landing + i * s->landing_bytes;
}

/* ---- Queues with the NIC's list ---- */

/* Opens the device, for commands if it can match tags. Returns NULL if so, or the reason why not */
static const char *open_best(struct side *s, const char *name, int software)
{
	struct inlay_query_hca_cap_out out;
	const struct inlay_hca_cap *cap = &out.cap;
	struct ibv_context *commands;

	s->ctx = open_device(name);
	if (software)
		return "--software";
	if (inlay_devx_open(s->ctx->device, &commands))
		return "no device commands";
	if (inlay_devx_query_cap(commands, INLAY_CAP_GENERAL, &out, NULL) ||
	    !inlay_hca_cap_get(cap, INLAY_HCA_CAP_TAG_MATCHING) ||
	    1u << inlay_hca_cap_get(cap, INLAY_HCA_CAP_LOG_TAG_MATCHING_LIST_SZ) < 2 * TAGS) {
		ibv_close_device(commands);
		return "the device has no tag matching, or a shorter list";
	}
	ibv_close_device(s->ctx);
	s->ctx = commands;
	s->nic = inlay_hca_cap_get(cap, INLAY_HCA_CAP_RNDV_OFFLOAD_RC) ? 2 : 1;
	return NULL;
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
					    .rq_type = INLAY_RQ_TYPE_SHARED, .srqn = s->xrq.srqn,
					    .send_cq = s->cq, .recv_cq = s->cq};

	place(s, &want.ring, &want.record, sq_bbs * INLAY_WQEBB);
	must(!inlay_devx_qp_create(qp, s->ctx, &want), "a queue pair");
}

static void open_nic(struct side *s)
{
	struct inlay_connect_record mine[2], theirs[2];
	struct inlay_devx_path path;
	const size_t bytes = 1 << 20;
	uint32_t pdn = 0;

	s->rings = aligned_alloc(INLAY_DEVX_PAGE, bytes);
	must(s->rings && !inlay_pdn_from_pd(&pdn, s->pd), "memory for rings");
	must(!inlay_devx_umem_reg(&s->umem, s->ctx, s->rings, bytes, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE),
	     "registering rings");
	must(!inlay_devx_uar_alloc(&s->register_, s->ctx, MLX5DV_UAR_ALLOC_TYPE_NC, INLAY_UAR_DOORBELL),
	     "a doorbell register");

	/* For each tag three completions, one for each entry, one for each WQE */
	struct inlay_devx_cq_attr cq = {.uar = &s->register_, .cqes = 1024};
	place(s, &cq.ring, &cq.record, 1024 * 64);
	must(!inlay_devx_cq_create(&s->devx_cq, s->ctx, &cq), "a completion queue");
	struct inlay_devx_srq_attr xrq = {.cq = &s->devx_cq.cq, .pdn = pdn, .entries = ENTRIES, .stride = 32,
					  .tags = TAGS,
					  .user_index = 1,
					  .flags = s->nic == 2 ? INLAY_DEVX_SRQ_RNDV : 0};
	place(s, &xrq.ring, &xrq.record, ENTRIES * 32);
	must(!inlay_devx_srq_create(&s->xrq, s->ctx, &xrq), "an XRQ");
	s->cq = &s->devx_cq.cq;
	s->srq = &s->xrq.srq;
	make_qp(s, &s->command, pdn, 4 * TAGS, 0);
	make_qp(s, &s->out, pdn, SENDS, 0);
	make_qp(s, &s->in, pdn, 0, s->nic == 2 ? INLAY_DEVX_QP_RNDV : 0);
	s->sq = &s->out.sq;

	path = inlay_devx_path_defaults();
	path.access = IBV_ACCESS_REMOTE_READ;
	must(!inlay_connect_port(&mine[0], s->ctx, path.port, -1, &why), "the best GID");
	path.gid_index = mine[0].gid_index;
	must(!inlay_devx_qp_address(&s->command, &path, &mine[0]) &&
	     !inlay_devx_qp_connect(&s->command, &path, &mine[0]), "connecting the command queue");
	must(!inlay_devx_qp_address(&s->out, &path, &mine[0]) && !inlay_devx_qp_address(&s->in, &path, &mine[1]),
	     "an address");
	for (int i = 0; i < 2; i++) {
		swap_record(&mine[i], &theirs[i]);
		must(!inlay_devx_address_resolve(&theirs[i], s->pd, &path), "finding the way");
	}
	must(!inlay_devx_qp_connect(&s->out, &path, &theirs[1]) && !inlay_devx_qp_connect(&s->in, &path, &theirs[0]),
	     "connecting");

	const size_t list_bytes = inlay_tag_list_size(TAGS, 4 * TAGS);
	s->list_memory = aligned_alloc(64, (list_bytes + 63) & ~(size_t)63);
	must(s->list_memory && !inlay_tag_list_init(&s->list, s->list_memory, list_bytes, TAGS, &s->command.sq, 1),
	     "the NIC's list");
}

/* ---- Queues without ---- */

static void open_software(struct side *s)
{
	struct inlay_connect_record mine, theirs;

	must(!inlay_uar_create(&s->uar, s->pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	s->ibsrq = ibv_create_srq(s->pd, &(struct ibv_srq_init_attr){.attr = {.max_wr = ENTRIES - 1, .max_sge = 1}});
	struct ibv_qp_cap cap = {.max_send_wr = SENDS / 2, .max_send_sge = 1, .max_inline_data = 64};
	struct ibv_qp_init_attr init = {.srq = s->ibsrq, .qp_type = IBV_QPT_RC, .cap = cap};
	uint32_t cqes = inlay_send_cqes(&init) + inlay_srq_cqes(ENTRIES - 1);
	s->ibcq = ibv_create_cq(s->ctx, (int)cqes, NULL, NULL, 0);
	init.send_cq = init.recv_cq = s->ibcq;
	s->qp = s->ibcq && s->ibsrq ? ibv_create_qp(s->uar.pd, &init) : NULL;
	must(s->qp != NULL, "a queue pair");
	must(!inlay_connect_local(&mine, s->qp, NULL, &why), "a connection record");
	swap_record(&mine, &theirs);
	must(!inlay_connect_rts(s->qp, &mine, &theirs, NULL, &why), "connecting");
	s->sq = &s->plain_sq;
	s->cq = &s->plain_cq;
	s->srq = &s->plain_srq;
	must(!inlay_cq_from_cq(s->cq, s->ibcq, &why), "taking over the completion queue");
	must(!inlay_sq_from_qp(s->sq, s->qp, &s->uar, s->cq, &why), "taking over the send queue");
	must(!inlay_srq_from_srq(s->srq, s->ibsrq, s->cq, &why), "taking over the receive queue");
	must(inlay_sq_size(s->sq) <= SLOTS && inlay_srq_size(s->srq) < SLOTS, "having room for the rings");
}

/* ---- Receive buffers ---- */

static void post_bounce(struct side *s, uint32_t b)
{
	struct ibv_sge sge = {.addr = (uintptr_t)bounce(s, b), .length = BOUNCE, .lkey = s->mr->lkey};

	must(!inlay_post_srq_recv(s->srq, &sge, 1, b), "posting a receive buffer");
}

static void open_side(struct side *s, const char *name, int software, uint32_t longest)
{
	const char *cannot = open_best(s, name, software), *device = ibv_get_device_name(s->ctx->device);
	uint64_t seed = 0;
	int theirs;

	if (!rank && cannot)
		printf("%s: tags are matched in software (%s)\n", device, cannot);
	else if (!rank)
		printf("%s: tags are matched by the NIC, of receives from %u bytes, and in software\n", device,
		       OFFLOAD_MIN);
	peer_swap(&s->nic, &theirs, sizeof(theirs));
	must(theirs == s->nic, "having the same on both sides");
	s->pd = ibv_alloc_pd(s->ctx);
	must(s->pd != NULL, "ibv_alloc_pd");
	make_memory(s, longest);
	(s->nic ? open_nic : open_software)(s);

	/* A seed that nobody else knows: nobody can choose tags that meet in the table */
	s->table = aligned_alloc(64, (inlay_match_size(256) + 63) & ~(size_t)63);
	must(s->table && getrandom(&seed, sizeof(seed), 0) == sizeof(seed), "memory for the table");
	must(!inlay_match_init(&s->match, s->table, inlay_match_size(256), 256, 0, seed), "the table");
	must(!inlay_tag_rx_init(&s->rx, &s->match, s->nic ? &s->list : NULL, OFFLOAD_MIN),
	     "table and list together");
	for (uint32_t b = 0; b < BOUNCES; b++)
		if (b < ENTRIES - 1)
			post_bounce(s, b);
		else
			s->spare[s->spares++] = b;
	inlay_srq_ring(s->srq);
	peer_meet(0); /* both are ready */
}

static void close_side(struct side *s)
{
	if (s->nic) {
		must(!inlay_devx_qp_destroy(&s->in) && !inlay_devx_qp_destroy(&s->out) &&
			     !inlay_devx_qp_destroy(&s->command) && !inlay_devx_srq_destroy(&s->xrq) &&
			     !inlay_devx_cq_destroy(&s->devx_cq) && !inlay_devx_uar_free(&s->register_) &&
			     !inlay_devx_umem_dereg(&s->umem),
		     "destroying the queues");
	} else {
		inlay_sq_fini(s->sq);
		must(!ibv_destroy_qp(s->qp) && !ibv_destroy_srq(s->ibsrq) && !ibv_destroy_cq(s->ibcq) &&
			     !inlay_uar_destroy(&s->uar, &why),
		     "destroying the queues");
	}
	must(!ibv_dereg_mr(s->mr) && !ibv_dealloc_pd(s->pd) && !ibv_close_device(s->ctx), "closing down");
	free(s->memory);
	free(s->rings);
	free(s->list_memory);
	free(s->table);
}

#endif
