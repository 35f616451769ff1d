/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * endpoint.c: an endpoint: queues, options, closing.
 *
 * An endpoint has one device CQ, one shared receive queue and one UD queue pair for hellos. Queue pairs of
 * connections are made on demand (peer.c) or shared (dc.c). All of them ring the domain's one register.
 */
#include <sys/random.h>
#include "fabric.h"

#define UD_RING 64u

/* ---- Set-up ---- */

int pair_make(struct endpoint *ep, enum ibv_qp_type type, uint32_t sends, uint32_t inline_bytes, struct ibv_qp **qp,
	      struct inlay_sq *sq, struct inlay_connect_record *here, const char **why)
{
	struct ibv_qp_init_attr init = {
		.send_cq = ep->ibcq, .recv_cq = ep->ibcq, .srq = type == IBV_QPT_RC ? ep->rc_srq : ep->ibsrq, .qp_type = type,
		.cap = {.max_send_wr = sends, .max_send_sge = 1, .max_inline_data = inline_bytes}};
	int err;

	*qp = ibv_create_qp(ep->domain->uar.pd, &init);
	if (!*qp)
		return inlay_refuse_(-errno, why, "no queue pair");
	/* CQEs of connections are reserved for those that hold slots. */
	err = inlay_sq_from_qp(sq, *qp, &ep->domain->uar, type == IBV_QPT_RC ? NULL : &ep->cq, why);
	return err ? err : inlay_connect_local(here, *qp, &ep->attr, why);
}

/* The CQ, sized for the peers that may be sent to at a time, and the shared receive queue, filled. */
static int make_queues(struct endpoint *ep, const char **why)
{
	const uint32_t holders = settings.dc ? INITIATORS : (uint32_t)settings.peers;
	struct ibv_cq_init_attr_ex cq = {.cqe = offload_cqes(ep) + UD_RING * 4 + holders * PEER_RING};
	struct ibv_srq_init_attr srq = {.attr = {ep->offload ? UD_RING : (uint32_t)settings.receives, 1, 0}};
	struct ibv_cq_ex *made;
	int err;

	if (wait_attach(ep))
		return inlay_refuse_(-errno, why, "no completion channel");
	cq.cqe += inlay_srq_cqes(srq.attr.max_wr);
	cq.channel = ep->channel;
	made = ibv_create_cq_ex(ep->domain->context, &cq); /* extended: the kind that tag matching asks for */
	if (!made)
		return inlay_refuse_(-errno, why, "no CQ for so many connections: lower FI_INLAY_PEERS");
	ep->ibcq = ibv_cq_ex_to_cq(made);
	err = inlay_cq_from_cq(&ep->cq, ep->ibcq, why);
	if (err)
		return err;
	ep->ibsrq = ep->rc_srq = ibv_create_srq(ep->domain->uar.pd, &srq);
	if (!ep->ibsrq)
		return inlay_refuse_(-errno, why, "no shared receive queue: lower FI_INLAY_RECEIVES");
	err = inlay_srq_from_srq(&ep->srq, ep->ibsrq, &ep->cq, why);
	err = err ? err : progress_feed(ep, &ep->srq);
	return err || !ep->offload ? err : offload_open(ep, why);
}

static int enable(struct endpoint *ep);
static void endpoint_free(struct endpoint *ep);

/* If its device does not start now, the other one is enough. */
static void enable_second(struct endpoint *ep, struct endpoint *second)
{
	second->av = ep->av;
	second->tx_cq = ep->tx_cq;
	second->rx_cq = ep->rx_cq;
	if (enable(second)) {
		WARN(FI_LOG_EP_CTRL, "there is no second connection to peers\n");
		endpoint_free(second);
		ep->second = NULL;
		return;
	}
	ep->looks.kind = OP_SECOND;
	wait_for_room(ep, &ep->looks);
}

static int enable(struct endpoint *ep)
{
	const char *why = "no memory";
	int err;

	if (ep->enabled)
		return 0;
	if (!ep->av || !ep->tx_cq || !ep->rx_cq || ep->holders) /* holders: it has failed before */
		return -FI_EOPBADSTATE;
	ep->attr = inlay_connect_defaults();
	ep->attr.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	ep->attr.port = (uint8_t)settings.port;
	ep->attr.gid_index = settings.gid_index;
	ep->attr.sl = (uint8_t)settings.sl;
	ep->attr.traffic_class = (uint8_t)settings.traffic_class;
	ep->attr.timeout = (uint8_t)settings.timeout;
	inlay_qpn_table_init(&ep->qpns, NULL, 0);
	ep->holders = (struct peer **)calloc(settings.dc ? INITIATORS : (size_t)settings.peers, sizeof(*ep->holders));
	ep->name.incarnation = nanoseconds(CLOCK_REALTIME);
	err = ep->holders ? match_init(ep) : -FI_ENOMEM;
	if (!err)
		why = "no registered memory for receives: lower FI_INLAY_RECEIVES";
	err = err ? err : pool_init(&ep->small, SMALL_MESSAGE, NULL);
	err = err ? err : pool_init(&ep->bounce, INLAY_GRH + WIRE_MAX + settings.eager, ep->domain);
	err = err ? err : make_queues(ep, &why);
	err = err ? err : pair_make(ep, IBV_QPT_UD, UD_RING / 4, HELLO_SIZE, &ep->ud_qp, &ep->ud, &ep->here, &why);
	err = err ? err : inlay_connect_rts(ep->ud_qp, &ep->here, NULL, &ep->attr, &why);
	err = err || !settings.dc ? err : dc_target(ep, &why);
	if (err) {
		WARN(FI_LOG_EP_CTRL, "%s\n", why);
		return err;
	}
	if (ep->second)
		enable_second(ep, ep->second);
	inlay_connect_pack(&ep->here, ep->name.record);
	ep->now = milliseconds();
	ep->late.kind = OP_LATE;
	progress_late(ep);
	ep->enabled = true;
	send_defaults(ep);
	return 0;
}

/* ---- Closing ---- */

int endpoints_add(struct endpoints *all, struct endpoint *ep)
{
	struct endpoint **list = (struct endpoint **)realloc(all->list, (all->count + 1) * sizeof(*list));

	if (!list)
		return -FI_ENOMEM;
	all->list = list;
	list[all->count++] = ep;
	return 0;
}

void endpoints_remove(struct endpoints *all, const struct endpoint *ep)
{
	for (uint32_t i = 0; i < all->count; i++)
		if (all->list[i] == ep) {
			all->list[i] = all->list[--all->count];
			return;
		}
}

static void endpoint_free(struct endpoint *ep)
{
	if (ep->enabled) {
		recv_settle(ep->rx_cq);
		connect_bye(ep);
	}
	if (ep->second)
		endpoint_free(ep->second);
	peer_free_all(ep);
	if (ep->ud_qp)
		ibv_destroy_qp(ep->ud_qp);
	inlay_sq_fini(&ep->ud);
	if (ep->dct)
		ibv_destroy_qp(ep->dct);
	if (ep->offload)
		offload_close(ep);
	if (ep->ibsrq)
		ibv_destroy_srq(ep->ibsrq);
	if (ep->ibcq)
		ibv_destroy_cq(ep->ibcq);
	if (ep->channel)
		ibv_destroy_comp_channel(ep->channel);
	free(ep->match_memory);
	ops_fini(ep); /* some hold what the pools have registered */
	pool_fini(&ep->bounce);
	pool_fini(&ep->small);
	for (uint32_t i = 0; i < COUNTERS; i++)
		if (ep->counters[i])
			endpoints_remove(&ep->counters[i]->endpoints, ep);
	if (ep->tx_cq)
		endpoints_remove(&ep->tx_cq->endpoints, ep);
	if (ep->rx_cq)
		endpoints_remove(&ep->rx_cq->endpoints, ep);
	if (ep->av)
		endpoints_remove(&ep->av->endpoints, ep);
	ep->domain->users--;
	free(ep);
}

static int endpoint_close(struct fid *fid)
{
	struct domain *d = container_of(fid, struct endpoint, fid.fid)->domain;

	enter(d);
	endpoint_free(container_of(fid, struct endpoint, fid.fid));
	return (int)leave(d, 0);
}

/* ---- Binding ---- */

static int bind_cq(struct endpoint *ep, struct cq *cq, uint64_t flags)
{
	const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;

	if (!(flags & (FI_TRANSMIT | FI_RECV)))
		return -FI_EINVAL;
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->tx_selective = selective;
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		ep->rx_selective = selective;
	}
	endpoints_remove(&cq->endpoints, ep);
	return endpoints_add(&cq->endpoints, ep);
}

static int endpoint_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
	int err;

	if (ep->enabled)
		return -FI_EOPBADSTATE;
	enter(ep);
	if (other->fclass == FI_CLASS_CQ) {
		err = bind_cq(ep, container_of(other, struct cq, fid.fid), flags);
	} else if (other->fclass == FI_CLASS_CNTR) {
		err = counter_bind(ep, other, flags);
	} else if (other->fclass == FI_CLASS_AV && !ep->av) {
		ep->av = container_of(other, struct av, fid.fid);
		err = endpoints_add(&ep->av->endpoints, ep);
	} else {
		err = eq_bind(fid, other, flags);
	}
	return (int)leave(ep, err);
}

/* ---- Options ---- */

static int endpoint_control(struct fid *fid, int command, void *arg)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
	uint64_t *flags = (uint64_t *)arg;
	int err = 0;

	enter(ep);
	if (command == FI_ENABLE) {
		err = enable(ep);
	} else if (command == FI_SETOPSFLAG) {
		if (*flags & FI_TRANSMIT)
			ep->tx_flags = *flags & ~(uint64_t)FI_TRANSMIT;
		if (*flags & FI_RECV)
			ep->rx_flags = *flags & ~(uint64_t)FI_RECV;
		send_defaults(ep);
	} else if (command == FI_GETOPSFLAG) {
		*flags = *flags & FI_TRANSMIT ? ep->tx_flags : ep->rx_flags;
	} else {
		err = -FI_ENOSYS;
	}
	return (int)leave(ep, err);
}

static int endpoint_getopt(fid_t fid, int level, int name, void *value, size_t *len)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);

	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (*len < sizeof(ep->min_multi_recv))
		return -FI_ETOOSMALL;
	*(size_t *)value = ep->min_multi_recv;
	*len = sizeof(ep->min_multi_recv);
	return 0;
}

static int endpoint_setopt(fid_t fid, int level, int name, const void *value, size_t len)
{
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (len != sizeof(size_t))
		return -FI_EINVAL;
	container_of(fid, struct endpoint, fid.fid)->min_multi_recv = *(const size_t *)value;
	return 0;
}

static ssize_t endpoint_cancel(fid_t fid, void *context)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);

	enter(ep);
	return leave(ep, recv_stop(ep, NULL, context, FI_ECANCELED));
}

static int endpoint_getname(fid_t fid, void *addr, size_t *len)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
	size_t room = *len;

	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	*len = sizeof(ep->name);
	memcpy(addr, &ep->name, room < sizeof(ep->name) ? room : sizeof(ep->name));
	return room < sizeof(ep->name) ? -FI_ETOOSMALL : 0;
}

static struct fi_ops fid_ops = FID_OPS(endpoint_close, endpoint_bind, endpoint_control);
static struct fi_ops_ep ep_ops = {sizeof(struct fi_ops_ep), endpoint_cancel, endpoint_getopt, endpoint_setopt,
	no_tx_ctx, no_rx_ctx, no_size_left, no_size_left};
static struct fi_ops_cm cm_ops = {sizeof(struct fi_ops_cm), no_setname, endpoint_getname, no_getpeer, no_connect,
	NULL, no_accept, NULL, no_shutdown, NULL};

int endpoint_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **out, void *context)
{
	struct endpoint *ep = (struct endpoint *)aligned_alloc(64, inlay_round_up(sizeof(*ep), 64));
	const uint64_t format = info->ep_attr ? info->ep_attr->mem_tag_format : 0;
	const uint32_t left = format ? (uint32_t)__builtin_clzll(format) : SOURCE_BITS; /* beside so many tag bits */

	if (!ep)
		return -FI_ENOMEM;
	memset(ep, 0, sizeof(*ep));
	ep->domain = container_of(fid, struct domain, fid);
	if (ep->domain->second && endpoint_open(&ep->domain->second->fid, info, out, NULL)) {
		free(ep);
		return -FI_ENOMEM;
	}
	if (ep->domain->second) {
		ep->second = container_of(*out, struct endpoint, fid);
		ep->second->first = ep;
		ep->second->directed = false;
	}
	ep->first = ep;
	ep->domain->users++;
	ep->lock = ep->domain->lock;
	ep->directed = ((info->caps | (info->rx_attr ? info->rx_attr->caps : 0)) & FI_DIRECTED_RECV) != 0;
	if (ep->directed)
		ep->source_bits = left > SOURCE_BITS ? SOURCE_BITS : left < LEAST_SOURCE_BITS ? LEAST_SOURCE_BITS : left;
	ep->tag_bits = UINT64_MAX >> ep->source_bits;
	ep->tx_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
	ep->rx_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
	ep->min_multi_recv = 64;
	ep->seed = nanoseconds(CLOCK_REALTIME);
	(void)!getrandom(&ep->seed, sizeof(ep->seed), 0);
	ep->recv_tail = &ep->recv_head;
	ep->kept_tail = &ep->kept_head;
	ep->late_tail = &ep->late_head;
	ep->waiting_tail = &ep->waiting_head;
	ep->fid = (struct fid_ep){
		.fid = {FI_CLASS_EP, context, &fid_ops}, .ops = &ep_ops, .cm = &cm_ops, .msg = &msg_ops,
		.rma = &rma_ops, .tagged = &tagged_ops, .atomic = &atomic_ops,
	};
	*out = &ep->fid;
	return 0;
}
