/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm.c: /dev/infiniband/rdma_cm: files, ids, events and the commands that are written to it.
 *
 * To poll(), epoll, O_NONBLOCK and signals such a file is a pipe that holds one byte for each event.
 * GET_EVENT takes a byte first, with the flags of the program's own end, and then an event. A reader
 * whose event was taken back meanwhile goes on waiting.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cm.h"

struct event {
	struct event *next;
	struct cm_id *id;         /* on which it counts */
	struct cm_id *child;      /* CM_CONNECT_REQUEST: of which it tells */
	struct cm_mc *mc;
	struct rdma_ucm_event_resp resp;
};

struct cm_file {
	struct sd_channel *ch;
	struct event *events;
};

static SD_OWN struct sd_numbers numbers = { .max = CM_MAX_ID, .first = 1 };
static SD_OWN struct sd_numbers mc_numbers = { .max = CM_MAX_ID, .first = 1 };
static SD_OWN struct cm_id *ids;

struct cm_id *cm_id_next(struct cm_id *id)
{
	return id ? id->next : ids;
}

struct cm_id *cm_id_find(uint32_t num)
{
	return sd_number_get(&numbers, num);
}

struct cm_id *cm_id_new(struct cm_file *file, uint16_t ps, uint8_t qp_type)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	if (!id || sd_number_new(&numbers, id, &id->num)) {
		free(id);
		return NULL;
	}
	id->file = file;
	id->ps = ps;
	id->qp_type = qp_type;
	id->dev = id->rdev = SD_NO_DEV;
	id->psn = (id->num * 0x9e3779b1u) >> 8;
	id->next = ids;
	ids = id;
	return id;
}

/* ---- events ---- */

static void queue(struct cm_file *f, struct event *e)
{
	struct event **at = &f->events;

	while (*at)
		at = &(*at)->next;
	*at = e;
	sd_channel_send(f->ch, "");
}

static void take_token(struct cm_file *f)
{
	char token;

	if (read(f->ch->rfd, &token, 1) < 0)
		return;
}

/* Of an id that goes away, or of a membership */
static void drop_events(struct cm_file *f, const struct cm_id *id, const struct cm_mc *mc)
{
	struct event **at = &f->events, *e;

	while ((e = *at)) {
		if (id ? e->id != id : e->mc != mc) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		take_token(f);
		if (e->child) {
			e->child->listener = NULL;
			cm_id_free(e->child);
			/* That has changed the list */
			at = &f->events;
		}
		free(e);
	}
}

static struct event *event_new(struct cm_id *id, enum cm_event_type type, int status)
{
	struct event *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->id = id;
	e->resp.uid = id->uid;
	e->resp.id = id->num;
	e->resp.event = type;
	e->resp.status = status;
	return e;
}

/* What one side grants the other wants, so the two numbers change places */
static void fill(struct event *e, const struct cm_msg *m, unsigned room, bool ud)
{
	struct rdma_ucm_conn_param *c = &e->resp.param.conn;
	unsigned len = m->p.private_data_len;

	if (ud) {
		memcpy(e->resp.param.ud.private_data, m->p.private_data, len);
		e->resp.param.ud.private_data_len = room;
		return;
	}
	memcpy(c->private_data, m->p.private_data, len);
	c->private_data_len = room;
	e->resp.ece = m->ece;
	if (m->kind != CM_REQ && m->kind != CM_REP)
		return;
	c->responder_resources = m->p.initiator_depth;
	c->initiator_depth = m->p.responder_resources;
	c->flow_control = m->p.flow_control;
	c->retry_count = m->kind == CM_REQ ? m->p.retry_count : 0;
	c->rnr_retry_count = m->p.rnr_retry_count;
	c->srq = m->p.srq;
	c->qp_num = m->p.qp_num;
}

void cm_event(struct cm_id *id, enum cm_event_type type, int status, const struct cm_msg *m, unsigned room)
{
	struct event *e = id->uid ? event_new(id, type, status) : NULL;

	if (!e)
		return;
	if (m)
		fill(e, m, room, id->qp_type == IBV_QPT_UD);
	if (m && type == CM_ESTABLISHED && id->qp_type == IBV_QPT_UD) {
		cm_ah(id, &e->resp.param.ud.ah_attr);
		e->resp.param.ud.qp_num = m->p.qp_num;
		e->resp.param.ud.qkey = m->p.qkey;
	}
	queue(id->file, e);
}

int cm_request_event(struct cm_id *listener, struct cm_id *id, const struct cm_msg *m, unsigned room)
{
	struct event *e = event_new(listener, CM_CONNECT_REQUEST, 0);

	if (!e)
		return ENOMEM;
	fill(e, m, room, id->qp_type == IBV_QPT_UD);
	e->child = id;
	e->resp.id = id->num;
	id->listener = listener;
	listener->backlog--;
	queue(listener->file, e);
	return 0;
}

static int get_event(int fd, const struct rdma_ucm_get_event *c, size_t out)
{
	const size_t least = offsetof(struct rdma_ucm_event_resp, reserved);
	struct cm_file *f;
	struct event *e;
	ssize_t n;
	void *ptr;
	char token;
	int err;

	if (out < least)
		return ENOSPC;
	for (;;) {
		/* Without the lock; a thread may be cancelled here */
		n = read(fd, &token, 1);
		/* The file was closed: who is in here waits for a signal, as in the kernel */
		if (!n)
			poll(NULL, 0, -1);
		if (n != 1)
			return n < 0 ? errno : EINTR;
		pthread_mutex_lock(&sd_lock);
		f = sd_fd_get(fd, &ptr) == SD_FD_CM ? ptr : NULL;
		e = f ? f->events : NULL;
		if (e)
			break;
		pthread_mutex_unlock(&sd_lock);
		if (!f)
			return EBADF;
	}
	err = sd_copy(&e->resp, c->response, out < sizeof(e->resp) ? out : sizeof(e->resp), true);
	if (err) {
		sd_channel_send(f->ch, "");
	} else {
		f->events = e->next;
		e->id->reported++;
		if (e->mc)
			e->mc->reported++;
		if (e->child) {
			e->child->listener = NULL;
			e->id->backlog++;
		}
		free(e);
	}
	pthread_mutex_unlock(&sd_lock);
	return err;
}

/* ---- ids ---- */

static void mc_free(struct cm_mc *mc)
{
	struct cm_mc **at = &mc->id->mcs;

	while (*at != mc)
		at = &(*at)->next;
	*at = mc->next;
	mc_numbers.at[mc->num] = NULL;
	free(mc);
}

void cm_id_free(struct cm_id *id)
{
	struct cm_id **at = &ids;

	cm_hang_up(id);
	cm_unbind(id);
	drop_events(id->file, id, NULL);
	while (id->mcs)
		mc_free(id->mcs);
	while (*at != id)
		at = &(*at)->next;
	*at = id->next;
	numbers.at[id->num] = NULL;
	free(id->req);
	free(id);
}

/* One that an unread event is about is not there yet */
static int get(struct cm_file *f, uint32_t num, struct cm_id **id)
{
	*id = cm_id_find(num);
	if (!*id || (*id)->listener)
		return ENOENT;
	return (*id)->file == f ? 0 : EINVAL;
}

static int create_id(struct cm_file *f, const struct rdma_ucm_create_id *c)
{
	struct rdma_ucm_create_id_resp resp;
	struct cm_id *id;
	uint8_t type;
	int err;

	switch (c->ps) {
	case RDMA_PS_TCP:
		type = IBV_QPT_RC;
		break;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		type = IBV_QPT_UD;
		break;
	case RDMA_PS_IB:
		type = c->qp_type;
		break;
	default:
		return EINVAL;
	}
	id = cm_id_new(f, c->ps, type);
	if (!id)
		return ENOMEM;
	id->uid = c->uid;
	resp.id = id->num;
	err = sd_copy(&resp, c->response, sizeof(resp), true);
	if (err)
		cm_id_free(id);
	return err;
}

static int destroy_id(struct cm_id *id, const struct rdma_ucm_destroy_id *c)
{
	struct rdma_ucm_destroy_id_resp resp = { id->reported };

	cm_id_free(id);
	return sd_copy(&resp, c->response, sizeof(resp), true);
}

#define UNSAID ((size_t)-1)

/* An address of a command, which says how long it is, or has but room for it */
static bool addr_in(union cm_addr *to, const void *from, size_t room, size_t size)
{
	memset(to, 0, sizeof(*to));
	memcpy(to, from, room < sizeof(*to) ? room : sizeof(*to));
	return cm_addr_size(to) && (size == UNSAID ? cm_addr_size(to) <= room : cm_addr_size(to) == size);
}
#define ADDR_IN(to, field, size) addr_in(to, &(field), sizeof(field), size)

static int set_path(struct cm_id *id, const struct ib_path_rec_data *d, size_t len)
{
	const uint32_t wanted = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;

	if (len % sizeof(*d))
		return EINVAL;
	while (len && d->flags != wanted) {
		len -= sizeof(*d);
		d++;
	}
	if (!len || id->state != CM_HAS_ADDR)
		return EINVAL;
	memcpy(&id->path, d->path_rec, sizeof(id->path));
	_Static_assert(sizeof(id->path) == sizeof(d->path_rec), "one layout");
	id->has_path = true;
	id->state = CM_HAS_ROUTE;
	cm_event(id, CM_ROUTE_RESOLVED, 0, NULL, 0);
	return 0;
}

static int set_option(struct cm_id *id, const struct rdma_ucm_set_option *c)
{
	union {
		uint8_t byte;
		int number;
		struct ib_path_rec_data path[8];
	} v;
	int err;

	if (c->optlen > sizeof(v))
		return EINVAL;
	err = sd_copy(&v, c->optval, c->optlen, false);
	if (err)
		return err;
	if (c->level == RDMA_OPTION_IB && c->optname == RDMA_OPTION_IB_PATH)
		return set_path(id, v.path, c->optlen);
	if (c->level != RDMA_OPTION_ID || c->optname > RDMA_OPTION_ID_ACK_TIMEOUT)
		return ENOSYS;
	if (c->optlen != (c->optname == RDMA_OPTION_ID_TOS || c->optname == RDMA_OPTION_ID_ACK_TIMEOUT ? sizeof(v.byte) : sizeof(v.number)))
		return EINVAL;
	switch (c->optname) {
	case RDMA_OPTION_ID_TOS:
		id->tos = v.byte;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		if (!v.number && id->state != CM_IDLE)
			return EINVAL;
		id->reuse = v.number;
		return 0;
	case RDMA_OPTION_ID_AFONLY:
		if (id->state != CM_IDLE && id->state != CM_BOUND)
			return EINVAL;
		id->afonly = v.number;
		id->afonly_set = true;
		return 0;
	default:
		if (id->qp_type != IBV_QPT_RC)
			return EINVAL;
		id->timeout = v.byte;
		id->timeout_set = true;
		return 0;
	}
}

static int migrate(struct cm_file *to, const struct rdma_ucm_migrate_id *c)
{
	struct rdma_ucm_migrate_resp resp;
	struct event **at, *e;
	struct cm_file *from;
	struct cm_id *id;
	void *ptr;
	int err;

	if (fcntl(c->fd, F_GETFD) < 0)
		return ENOENT;
	if (sd_fd_get(c->fd, &ptr) != SD_FD_CM)
		return EINVAL;
	from = ptr;
	err = get(from, c->id, &id);
	if (err)
		return err;
	resp.events_reported = id->reported;
	id->file = to;
	for (at = &from->events; from != to && (e = *at);) {
		if (e->id != id) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		e->next = NULL;
		take_token(from);
		if (e->child)
			e->child->file = to;
		queue(to, e);
	}
	return sd_copy(&resp, c->response, sizeof(resp), true);
}

/* ---- groups ---- */

static int join(struct cm_id *id, uint64_t uid, uint64_t response, const union cm_addr *a, unsigned flags)
{
	struct rdma_ucm_create_id_resp resp;
	struct ib_uverbs_ah_attr *ah;
	uint8_t mgid[16];
	struct cm_mc *mc;
	struct event *e;
	uint16_t mlid;
	int err;

	if (flags >= RDMA_MC_JOIN_FLAG_RESERVED || id->dev == SD_NO_DEV || (id->state != CM_BOUND && id->state != CM_HAS_ADDR) ||
	    id->qp_type != IBV_QPT_UD)
		return EINVAL;
	err = cm_group(id, a, mgid, &mlid);
	/* On InfiniBand it is the subnet's manager that refuses, later */
	if (err && !sd_link_ib())
		return err;
	mc = calloc(1, sizeof(*mc));
	e = event_new(id, err ? CM_MULTICAST_ERROR : CM_MULTICAST_JOIN, -err);
	if (!mc || !e || sd_number_new(&mc_numbers, mc, &mc->num)) {
		free(mc);
		free(e);
		return ENOMEM;
	}
	mc->uid = uid;
	mc->id = id;
	mc->next = id->mcs;
	id->mcs = mc;
	cm_set_qkey(id);
	e->mc = mc;
	e->resp.uid = uid;
	e->resp.id = resp.id = mc->num;
	e->resp.param.ud.qp_num = 0xffffff;
	e->resp.param.ud.qkey = id->qkey;
	ah = &e->resp.param.ud.ah_attr;
	memcpy(ah->grh.dgid, mgid, sizeof(mgid));
	ah->grh.sgid_index = cm_gid_index(id);
	ah->grh.hop_limit = 64;
	ah->grh.traffic_class = sd_link_ib() ? 0 : id->tos;
	ah->dlid = mlid;
	ah->is_global = 1;
	ah->port_num = id->dev % sd_ports() + 1;
	queue(id->file, e);
	err = sd_copy(&resp, response, sizeof(resp), true);
	if (err) {
		drop_events(id->file, NULL, mc);
		mc_free(mc);
	}
	return err;
}

static int leave(struct cm_file *f, const struct rdma_ucm_destroy_id *c)
{
	struct cm_mc *mc = sd_number_get(&mc_numbers, c->id);
	struct rdma_ucm_destroy_id_resp resp;

	if (!mc)
		return ENOENT;
	if (mc->id->file != f)
		return EINVAL;
	resp.events_reported = mc->reported;
	drop_events(f, NULL, mc);
	mc_free(mc);
	return sd_copy(&resp, c->response, sizeof(resp), true);
}

/* ---- queries ---- */

void cm_ah(const struct cm_id *id, struct ib_uverbs_ah_attr *ah)
{
	const struct ibv_path_record *p = &id->path;
	uint32_t flow = be32toh(p->flowlabel_hoplimit);

	memset(ah, 0, sizeof(*ah));
	ah->dlid = be16toh(p->dlid);
	ah->sl = be16toh(p->qosclass_sl) & 0xf;
	ah->port_num = id->dev % sd_ports() + 1;
	ah->is_global = !sd_link_ib() || (flow & 0xff) > 1;
	if (!ah->is_global)
		return;
	memcpy(ah->grh.dgid, p->dgid.raw, 16);
	ah->grh.flow_label = flow >> 8 & 0xfffff;
	ah->grh.hop_limit = flow;
	ah->grh.sgid_index = cm_gid_index(id);
	ah->grh.traffic_class = p->tclass;
}

static uint64_t node_guid(const struct cm_id *id)
{
	uint64_t guid;

	sd_node_guid(id->dev - id->dev % sd_ports(), (uint8_t *)&guid);
	return guid;
}

static void user_path(struct ib_user_path_rec *to, const struct ibv_path_record *p)
{
	uint32_t flow = be32toh(p->flowlabel_hoplimit);

	memcpy(to->dgid, p->dgid.raw, 16);
	memcpy(to->sgid, p->sgid.raw, 16);
	to->dlid = p->dlid;
	to->slid = p->slid;
	to->flow_label = htobe32(flow >> 8 & 0xfffff);
	to->reversible = p->reversible_numpath >> 7;
	to->mtu = p->mtu & 0x3f;
	to->pkey = p->pkey;
	to->hop_limit = flow;
	to->traffic_class = p->tclass;
	to->numb_path = p->reversible_numpath & 0x7f;
	to->sl = be16toh(p->qosclass_sl) & 0xf;
	to->mtu_selector = p->mtu >> 6;
	to->rate_selector = p->rate >> 6;
	to->rate = p->rate & 0x3f;
	to->packet_life_time_selector = p->packetlifetime >> 6;
	to->packet_life_time = p->packetlifetime & 0x3f;
	to->preference = p->preference;
}

/* Of our own port and of the peer's, when they are known */
static void gids(const struct cm_id *id, uint8_t sgid[16], uint8_t dgid[16])
{
	union ibv_gid g;

	if (id->has_path) {
		memcpy(sgid, id->path.sgid.raw, 16);
		memcpy(dgid, id->path.dgid.raw, 16);
		return;
	}
	if (id->dev != SD_NO_DEV && !sd_gid(id->dev, cm_gid_index(id), &g, NULL))
		memcpy(sgid, g.raw, 16);
	if (id->rdev != SD_NO_DEV && !sd_gid(id->rdev, cm_gid_index(id), &g, NULL))
		memcpy(dgid, g.raw, 16);
}

static int query_route(struct cm_id *id, const struct rdma_ucm_query *c, size_t out)
{
	struct rdma_ucm_query_route_resp resp;

	memset(&resp, 0, sizeof(resp));
	memcpy(&resp.src_addr, &id->src, sizeof(resp.src_addr));
	memcpy(&resp.dst_addr, &id->dst, sizeof(resp.dst_addr));
	if (id->dev != SD_NO_DEV) {
		resp.node_guid = node_guid(id);
		resp.ibdev_index = id->dev / sd_ports();
		resp.port_num = id->dev % sd_ports() + 1;
		resp.num_paths = id->has_path;
		gids(id, resp.ib_route[0].sgid, resp.ib_route[0].dgid);
		resp.ib_route[0].pkey = htobe16(0xffff);
		if (id->has_path)
			user_path(&resp.ib_route[0], &id->path);
	}
	return sd_copy(&resp, c->response, out < sizeof(resp) ? out : sizeof(resp), true);
}

/* by_gid: as InfiniBand addresses, whatever they are */
static int query_addr(struct cm_id *id, const struct rdma_ucm_query *c, size_t out, bool by_gid)
{
	union cm_addr src = id->src, dst = id->dst;
	struct rdma_ucm_query_addr_resp resp;

	memset(&resp, 0, sizeof(resp));
	if (id->dev != SD_NO_DEV) {
		resp.node_guid = node_guid(id);
		resp.ibdev_index = id->dev / sd_ports();
		resp.port_num = id->dev % sd_ports() + 1;
		resp.pkey = htobe16(0xffff);
	}
	if (by_gid && src.sa.sa_family != AF_IB) {
		src.ib = (struct sockaddr_ib){ .sib_family = AF_IB, .sib_pkey = resp.pkey, .sib_sid = htobe64(cm_service(id, &id->src)) };
		dst.ib = (struct sockaddr_ib){ .sib_family = AF_IB, .sib_pkey = resp.pkey, .sib_sid = htobe64(cm_service(id, &id->dst)) };
		gids(id, src.ib.sib_addr.sib_raw, dst.ib.sib_addr.sib_raw);
	}
	resp.src_size = cm_addr_size(&src);
	resp.dst_size = cm_addr_size(&dst);
	memcpy(&resp.src_addr, &src, resp.src_size);
	memcpy(&resp.dst_addr, &dst, resp.dst_size);
	return sd_copy(&resp, c->response, out < sizeof(resp) ? out : sizeof(resp), true);
}

static int query_path(struct cm_id *id, const struct rdma_ucm_query *c, size_t out)
{
	const size_t head = sizeof(struct rdma_ucm_query_path_resp);
	const struct rdma_ucm_query_path_resp resp = { .num_paths = id->has_path };
	struct ib_path_rec_data path = { .flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL };
	int err = out < head ? ENOSPC : sd_copy((void *)&resp, c->response, head, true);

	if (err || !id->has_path || out - head <= sizeof(path))
		return err;
	memcpy(path.path_rec, &id->path, sizeof(id->path));
	return sd_copy(&path, c->response + head, sizeof(path), true);
}

static int query(struct cm_id *id, const struct rdma_ucm_query *c, size_t out)
{
	const size_t least = offsetof(struct rdma_ucm_query_addr_resp, ibdev_index);

	switch (c->option) {
	case RDMA_USER_CM_QUERY_ADDR:
	case RDMA_USER_CM_QUERY_GID:
		return out < least ? ENOSPC : query_addr(id, c, out, c->option == RDMA_USER_CM_QUERY_GID);
	case RDMA_USER_CM_QUERY_PATH:
		return query_path(id, c, out);
	}
	return ENOSYS;
}

static int init_qp_attr(struct cm_id *id, const struct rdma_ucm_init_qp_attr *c)
{
	struct ib_uverbs_qp_attr resp = { .qp_state = c->qp_state };
	int err;

	if (c->qp_state > IBV_QPS_ERR || id->dev == SD_NO_DEV)
		return EINVAL;
	err = cm_qp_attr(id, &resp);
	return err ? err : sd_copy(&resp, c->response, sizeof(resp), true);
}

/* ---- commands ---- */

union command {
	struct rdma_ucm_create_id create_id;
	struct rdma_ucm_destroy_id destroy_id;
	struct rdma_ucm_bind_ip bind_ip;
	struct rdma_ucm_bind bind;
	struct rdma_ucm_resolve_ip resolve_ip;
	struct rdma_ucm_resolve_addr resolve_addr;
	struct rdma_ucm_resolve_route resolve_route;
	struct rdma_ucm_query query;
	struct rdma_ucm_connect connect;
	struct rdma_ucm_listen listen;
	struct rdma_ucm_accept accept;
	struct rdma_ucm_reject reject;
	struct rdma_ucm_disconnect disconnect;
	struct rdma_ucm_init_qp_attr init_qp_attr;
	struct rdma_ucm_get_event get_event;
	struct rdma_ucm_set_option set_option;
	struct rdma_ucm_notify notify;
	struct rdma_ucm_join_ip_mcast join_ip_mcast;
	struct rdma_ucm_join_mcast join_mcast;
	struct rdma_ucm_migrate_id migrate_id;
};

#define NO_ID 0xffffu

/* Where a command names its id, how much of it there must be, and of the answer */
#define FORM(name, type, out) [RDMA_USER_CM_CMD_##name] = { offsetof(struct type, id), sizeof(struct type), out }
static const struct {
	uint16_t id, in, out;
} forms[] = {
	[RDMA_USER_CM_CMD_CREATE_ID] = { NO_ID, sizeof(struct rdma_ucm_create_id), sizeof(struct rdma_ucm_create_id_resp) },
	FORM(DESTROY_ID, rdma_ucm_destroy_id, sizeof(struct rdma_ucm_destroy_id_resp)),
	FORM(BIND_IP, rdma_ucm_bind_ip, 0),
	FORM(RESOLVE_IP, rdma_ucm_resolve_ip, 0),
	FORM(RESOLVE_ROUTE, rdma_ucm_resolve_route, 0),
	FORM(QUERY_ROUTE, rdma_ucm_query, offsetof(struct rdma_ucm_query_route_resp, ibdev_index)),
	[RDMA_USER_CM_CMD_CONNECT] = { offsetof(struct rdma_ucm_connect, id), offsetof(struct rdma_ucm_connect, ece), 0 },
	FORM(LISTEN, rdma_ucm_listen, 0),
	[RDMA_USER_CM_CMD_ACCEPT] = { offsetof(struct rdma_ucm_accept, id), offsetof(struct rdma_ucm_accept, ece), 0 },
	FORM(REJECT, rdma_ucm_reject, 0),
	FORM(DISCONNECT, rdma_ucm_disconnect, 0),
	FORM(INIT_QP_ATTR, rdma_ucm_init_qp_attr, sizeof(struct ib_uverbs_qp_attr)),
	[RDMA_USER_CM_CMD_GET_EVENT] = { NO_ID, sizeof(struct rdma_ucm_get_event), 0 },
	FORM(SET_OPTION, rdma_ucm_set_option, 0),
	FORM(NOTIFY, rdma_ucm_notify, 0),
	FORM(JOIN_IP_MCAST, rdma_ucm_join_ip_mcast, sizeof(struct rdma_ucm_create_id_resp)),
	[RDMA_USER_CM_CMD_LEAVE_MCAST] = { NO_ID, sizeof(struct rdma_ucm_destroy_id), sizeof(struct rdma_ucm_destroy_id_resp) },
	[RDMA_USER_CM_CMD_MIGRATE_ID] = { NO_ID, sizeof(struct rdma_ucm_migrate_id), sizeof(struct rdma_ucm_migrate_resp) },
	FORM(QUERY, rdma_ucm_query, 0),
	FORM(BIND, rdma_ucm_bind, 0),
	FORM(RESOLVE_ADDR, rdma_ucm_resolve_addr, 0),
	FORM(JOIN_MCAST, rdma_ucm_join_mcast, sizeof(struct rdma_ucm_create_id_resp)),
};

static int run(struct cm_file *f, unsigned cmd, const union command *c, size_t out)
{
	struct cm_id *id = NULL;
	union cm_addr a, b;
	uint32_t num;
	bool good;
	int err;

	if (forms[cmd].id != NO_ID) {
		memcpy(&num, (const uint8_t *)c + forms[cmd].id, sizeof(num));
		err = get(f, num, &id);
		if (err)
			return err;
	}
	switch (cmd) {
	case RDMA_USER_CM_CMD_CREATE_ID:
		return create_id(f, &c->create_id);
	case RDMA_USER_CM_CMD_DESTROY_ID:
		return destroy_id(id, &c->destroy_id);
	case RDMA_USER_CM_CMD_BIND_IP:
		return ADDR_IN(&a, c->bind_ip.addr, UNSAID) ? cm_bind(id, &a) : EINVAL;
	case RDMA_USER_CM_CMD_BIND:
		return !c->bind.reserved && ADDR_IN(&a, c->bind.addr, c->bind.addr_size) ? cm_bind(id, &a) : EINVAL;
	case RDMA_USER_CM_CMD_RESOLVE_IP:
		/* A source of no family is none */
		good = ADDR_IN(&b, c->resolve_ip.dst_addr, UNSAID) && (ADDR_IN(&a, c->resolve_ip.src_addr, UNSAID) || !a.sa.sa_family);
		return good ? cm_resolve_addr(id, &a, &b, c->resolve_ip.timeout_ms) : EINVAL;
	case RDMA_USER_CM_CMD_RESOLVE_ADDR:
		good = !c->resolve_addr.reserved && ADDR_IN(&b, c->resolve_addr.dst_addr, c->resolve_addr.dst_size) &&
		       (ADDR_IN(&a, c->resolve_addr.src_addr, c->resolve_addr.src_size) || !c->resolve_addr.src_size);
		if (!c->resolve_addr.src_size)
			a.sa.sa_family = AF_UNSPEC;
		return good ? cm_resolve_addr(id, &a, &b, c->resolve_addr.timeout_ms) : EINVAL;
	case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
		return cm_resolve_route(id);
	case RDMA_USER_CM_CMD_QUERY_ROUTE:
		return query_route(id, &c->query, out);
	case RDMA_USER_CM_CMD_QUERY:
		return query(id, &c->query, out);
	case RDMA_USER_CM_CMD_CONNECT:
		if (!c->connect.conn_param.valid)
			return EINVAL;
		return cm_connect(id, &c->connect.conn_param, &c->connect.ece);
	case RDMA_USER_CM_CMD_LISTEN:
		id->backlog = c->listen.backlog && c->listen.backlog < 1024 ? c->listen.backlog : 1024;
		return cm_listen(id);
	case RDMA_USER_CM_CMD_ACCEPT:
		err = cm_accept(id, c->accept.conn_param.valid ? &c->accept.conn_param : NULL, &c->accept.ece);
		if (!err && c->accept.conn_param.valid)
			id->uid = c->accept.uid;
		return err;
	case RDMA_USER_CM_CMD_REJECT:
		return cm_reject(id, c->reject.reason, c->reject.private_data, c->reject.private_data_len);
	case RDMA_USER_CM_CMD_DISCONNECT:
		return cm_disconnect(id);
	case RDMA_USER_CM_CMD_INIT_QP_ATTR:
		return init_qp_attr(id, &c->init_qp_attr);
	case RDMA_USER_CM_CMD_SET_OPTION:
		return set_option(id, &c->set_option);
	case RDMA_USER_CM_CMD_NOTIFY:
		return cm_notify(id, c->notify.event);
	case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
		if (!ADDR_IN(&a, c->join_ip_mcast.addr, UNSAID))
			return EINVAL;
		return join(id, c->join_ip_mcast.uid, c->join_ip_mcast.response, &a, RDMA_MC_JOIN_FLAG_FULLMEMBER);
	case RDMA_USER_CM_CMD_JOIN_MCAST:
		if (!ADDR_IN(&a, c->join_mcast.addr, c->join_mcast.addr_size))
			return EINVAL;
		return join(id, c->join_mcast.uid, c->join_mcast.response, &a, c->join_mcast.join_flags);
	case RDMA_USER_CM_CMD_LEAVE_MCAST:
		return leave(f, &c->destroy_id);
	case RDMA_USER_CM_CMD_MIGRATE_ID:
		return migrate(f, &c->migrate_id);
	}
	return ENOSYS;
}

/* ---- what preload.c calls, without the lock ---- */

ssize_t sd_cm_write(int fd, const void *buf, size_t len)
{
	struct rdma_ucm_cmd_hdr h;
	union command c;
	void *ptr;
	int err;

	if (len < sizeof(h))
		return -EINVAL;
	if (sd_copy(&h, (uintptr_t)buf, sizeof(h), false))
		return -EFAULT;
	if (h.cmd > RDMA_USER_CM_CMD_JOIN_MCAST || h.in + sizeof(h) > len)
		return -EINVAL;
	if (!forms[h.cmd].in)
		return -ENOSYS;
	if (h.out < forms[h.cmd].out)
		return -ENOSPC;
	if (h.in < forms[h.cmd].in)
		return -EINVAL;
	memset(&c, 0, sizeof(c));
	if (sd_copy(&c, (uintptr_t)buf + sizeof(h), h.in < sizeof(c) ? h.in : sizeof(c), false))
		return -EFAULT;
	if (h.cmd == RDMA_USER_CM_CMD_GET_EVENT) {
		err = get_event(fd, &c.get_event, h.out);
	} else {
		pthread_mutex_lock(&sd_lock);
		err = sd_fd_get(fd, &ptr) == SD_FD_CM ? run(ptr, h.cmd, &c, h.out) : EBADF;
		pthread_mutex_unlock(&sd_lock);
	}
	return err ? -err : (ssize_t)len;
}

int sd_cm_open(int flags)
{
	struct cm_file *f = calloc(1, sizeof(*f));
	int err = f ? 0 : ENOMEM, fd;

	pthread_mutex_lock(&sd_lock);
	if (!err)
		f->ch = sd_channel_new(1, &err);
	if (!f || !f->ch) {
		pthread_mutex_unlock(&sd_lock);
		free(f);
		return -err;
	}
	fd = f->ch->fd;
	sd_fd_set(fd, SD_FD_CM, f);
	/* The pipe closes itself at exec */
	if (!(flags & O_CLOEXEC))
		fcntl(fd, F_SETFD, 0);
	if (flags & O_NONBLOCK)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	pthread_mutex_unlock(&sd_lock);
	return fd;
}

/* With the lock, as the next */
void sd_cm_closed(struct cm_file *f)
{
	struct cm_id *id = ids;

	while (id) {
		if (id->file == f && !id->listener) {
			cm_id_free(id);
			/* Others may have gone along */
			id = ids;
		} else {
			id = id->next;
		}
	}
	f->ch->fd = -1;
	sd_channel_put(f->ch);
	free(f);
}
