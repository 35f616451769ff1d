/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmconn.c: connections of the connection manager.
 *
 *   requester            listener's process
 *   REQ            ->    a new id, and an event; MRA: it was received
 *                  <-    REP: accepted
 *   RTU            ->    established
 *   DREQ           ->    <- DREP when that side has disconnected too; either may begin
 *
 *   SIDR_REQ       ->    the same for datagrams
 *                  <-    SIDR_REP: a QP number and a key, or a refusal
 *
 * Nothing is lost on the way, so there are no repetitions, but for a listener whose backlog is full
 * (BUSY). What no process answers fails after CM_SERVICE_TIMEOUT, unless it has not even been read:
 * on a busy machine that process may get no turn for long. A process that ends is as one whose
 * kernel destroys all its ids.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cm.h"

/* Bytes of private data that a message has room for; the addresses of IP take 36 of a request's */
#define ROOM_REQ 92u
#define ROOM_REP 196u
#define ROOM_REJ 148u
#define ROOM_SIDR_REQ 216u
#define ROOM_SIDR_REP 136u
#define IP_HEADER 36u

struct unsent {
	struct unsent *next;
	unsigned slot;
	uint64_t inst;
	struct cm_msg m;
};
static SD_OWN struct unsent *unsent;
static SD_OWN uint64_t next_due;        /* 0: no timer runs */

static unsigned room_of(uint32_t kind, unsigned family)
{
	const unsigned ip = family == AF_IB ? 0 : IP_HEADER;

	switch (kind) {
	case CM_REQ:
		return ROOM_REQ - ip;
	case CM_SIDR_REQ:
		return ROOM_SIDR_REQ - ip;
	case CM_REP:
		return ROOM_REP;
	case CM_REJ:
		return ROOM_REJ;
	case CM_SIDR_REP:
		return ROOM_SIDR_REP;
	}
	return 0;
}

/* ---- messages ---- */

/* False: there is no room for it now */
static bool send_now(unsigned slot, uint64_t inst, const struct cm_msg *m)
{
	int err;

	if (slot == sd_slot) {
		sd_cm_message(slot, inst, m, sizeof(*m));
		return true;
	}
	err = sd_fabric_send(slot, inst, m, sizeof(*m));
	if (err == -EPIPE)
		sd_cm_peer_dead(slot, inst);
	return err != -EAGAIN;
}

static void send_to(unsigned slot, uint64_t inst, const struct cm_msg *m)
{
	struct unsent **at = &unsent, *u;

	while ((u = *at) && u->slot != slot)
		at = &u->next;
	/* None overtakes another */
	if (!u && send_now(slot, inst, m))
		return;
	while (*at)
		at = &(*at)->next;
	u = calloc(1, sizeof(*u));
	if (!u)
		return;
	u->slot = slot;
	u->inst = inst;
	u->m = *m;
	*at = u;
	eng_wake();
}

static void send_unsent(void)
{
	struct unsent **at = &unsent, *u = *at;

	while (u && send_now(u->slot, u->inst, &u->m)) {
		*at = u->next;
		free(u);
		u = *at;
	}
}

static void put(struct cm_id *id, struct cm_msg *m, enum cm_kind kind)
{
	m->kind = kind;
	m->from = id->num;
	m->to = id->peer;
	m->attempt = id->attempt;
	send_to(id->slot, id->inst, m);
}

static void say(struct cm_id *id, enum cm_kind kind, unsigned status)
{
	struct cm_msg m = { .status = status };

	put(id, &m, kind);
}

static void answer(unsigned slot, uint64_t inst, const struct cm_msg *to, enum cm_kind kind, unsigned status)
{
	struct cm_msg m = { .kind = kind, .to = to->from, .attempt = to->attempt, .status = status };

	send_to(slot, inst, &m);
}

/* ---- timers ---- */

void cm_timer(struct cm_id *id, uint64_t ns)
{
	id->due = ns && !sd_stepped() ? eng_now() + ns : 0;
	if (id->due && (!next_due || id->due < next_due)) {
		next_due = id->due;
		eng_wake();
	}
}

static void over(struct cm_id *id)
{
	id->conn = CM_OVER;
	cm_timer(id, 0);
	id->resend = 0;
}

static void timewait(struct cm_id *id)
{
	id->conn = CM_TIMEWAIT;
	cm_timer(id, 4096ull << CM_LIFETIME);
}

static bool drained(const struct sd_cq *cq)
{
	return !((be32toh(__atomic_load_n(&cq->dbrec[0], __ATOMIC_ACQUIRE)) ^ cq->pi) & 0xffffff);
}

/*
 * Beside an adapter, what came before the end is in the CQs long before the end is told. A program
 * that has to share a processor with its own device sees both at once, and may have looked into its
 * CQs just before: it has its turn first, unless it has ended its QP itself
 */
static bool end_told(struct cm_id *id, uint64_t now)
{
	const struct sd_qp *qp = sd_qp_find(id->qpn);

	if (qp && now < id->held && !(drained(qp->send_cq) && drained(qp->recv_cq)))
		return false;
	id->held = 0;
	cm_event(id, CM_DISCONNECTED, id->held_status, NULL, 0);
	return true;
}

static void look_again(uint64_t at)
{
	if (!next_due || at < next_due)
		next_due = at;
}

static void disconnected(struct cm_id *id, int status)
{
	const struct sd_qp *qp = sd_qp_find(id->qpn);
	const uint64_t now = eng_now();

	id->state = CM_DISCONNECT;
	id->held_status = status;
	id->held = sd_stepped() || (qp && qp->state == IBV_QPS_ERR) ? now : now + CM_TURN;
	if (!end_told(id, now))
		look_again(now);
}

/* The same refusal has another number for datagrams */
static int refusal(bool ud, int why)
{
	return !ud ? why : why == CM_REJ_SERVICE ? CM_SIDR_UNSUPPORTED : CM_SIDR_REJECT;
}

/* And it has another event: nobody is there who wants them */
static void refused(struct cm_id *id, int status, const struct cm_msg *m)
{
	static const struct cm_msg none;
	const bool ud = id->qp_type == IBV_QPT_UD;

	over(id);
	cm_event(id, ud ? CM_UNREACHABLE : CM_REJECTED, status, m ? m : &none, ud ? ROOM_SIDR_REP : ROOM_REJ);
}

static bool unread(const struct cm_id *id)
{
	const struct unsent *u = unsent;

	while (u && u->slot != id->slot)
		u = u->next;
	return u || sd_fabric_unread(id->slot);
}

static void expired(struct cm_id *id)
{
	id->due = 0;
	if (id->state == CM_ADDR_QUERY) {
		cm_addr_failed(id, -ETIMEDOUT);
		return;
	}
	if ((id->conn == CM_REQ_SENT || id->conn == CM_SIDR_SENT || id->conn == CM_DREQ_SENT) && unread(id)) {
		cm_timer(id, CM_SERVICE_TIMEOUT);
		return;
	}
	switch (id->conn) {
	case CM_REQ_SENT:
	case CM_SIDR_SENT:
		over(id);
		cm_event(id, CM_UNREACHABLE, -ETIMEDOUT, NULL, 0);
		break;
	case CM_DREQ_SENT:
		timewait(id);
		disconnected(id, -ETIMEDOUT);
		break;
	case CM_TIMEWAIT:
		over(id);
		if (id->state == CM_DISCONNECT)
			cm_event(id, CM_TIMEWAIT_EXIT, 0, NULL, 0);
		break;
	default:
		break;
	}
}

void sd_cm_work(uint64_t now)
{
	struct cm_id *id;

	send_unsent();
	if (!next_due || now < next_due)
		return;
	next_due = 0;
	for (id = cm_id_next(NULL); id; id = cm_id_next(id)) {
		if (id->held && !end_told(id, now))
			look_again(now);
		if (id->due && id->due <= now)
			expired(id);
		if (id->resend && id->resend <= now) {
			id->resend = 0;
			put(id, id->req, id->req->kind);
		}
		if (id->due)
			look_again(id->due);
		if (id->resend)
			look_again(id->resend);
	}
}

/* ---- the program's side ---- */

void cm_set_qkey(struct cm_id *id)
{
	if (!id->qkey)
		id->qkey = id->ps == RDMA_PS_IPOIB ? CM_IPOIB_QKEY : CM_UDP_QKEY;
}

static uint8_t least(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

int cm_connect(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece)
{
	const bool ud = id->qp_type == IBV_QPT_UD;
	const enum cm_kind kind = ud ? CM_SIDR_REQ : CM_REQ;
	static uint32_t attempts;
	struct cm_msg *m;
	uint64_t sid;
	int why;

	if (id->state != CM_HAS_ROUTE || p->private_data_len > room_of(kind, id->src.sa.sa_family))
		return EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return ENOMEM;
	sid = cm_service(id, &id->dst);
	m->kind = kind;
	m->psn = id->psn;
	m->ps = sid >> 16;
	m->port = sid;
	m->qp_type = id->qp_type;
	m->dev = id->dev;
	m->to_dev = id->rdev;
	m->p = *p;
	m->p.retry_count = least(p->retry_count, 7);
	m->p.rnr_retry_count = least(p->rnr_retry_count, 7);
	m->ece = *ece;
	m->src = id->src;
	m->dst = id->dst;
	m->path = id->path;
	free(id->req);
	id->req = m;
	id->attempt = ++attempts;
	id->peer = 0;
	id->qpn = p->qp_num;
	id->responder_resources = p->responder_resources;
	id->initiator_depth = p->initiator_depth;
	id->retry_count = m->p.retry_count;
	id->state = CM_CONNECT;
	id->conn = ud ? CM_SIDR_SENT : CM_REQ_SENT;
	cm_timer(id, CM_SERVICE_TIMEOUT);
	why = cm_find_service(m, &id->slot, &id->inst);
	if (!why)
		put(id, m, kind);
	else
		refused(id, refusal(ud, why), NULL);
	return 0;
}

static int accept_ud(struct cm_id *id, const struct rdma_ucm_conn_param *p)
{
	struct cm_msg m = { .status = CM_SIDR_OK };

	if (id->conn != CM_SIDR_RCVD || (p && p->private_data_len > ROOM_SIDR_REP))
		return EINVAL;
	cm_set_qkey(id);
	if (p)
		m.p = *p;
	m.p.qkey = id->qkey;
	id->conn = CM_OVER;
	put(id, &m, CM_SIDR_REP);
	return 0;
}

int cm_accept(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece)
{
	struct cm_msg m = { .kind = 0 };

	if (id->state != CM_CONNECT)
		return EINVAL;
	if (id->qp_type == IBV_QPT_UD) {
		if (!accept_ud(id, p))
			return 0;
	} else if (!p && id->conn == CM_REP_RCVD) {
		id->conn = CM_UP;
		put(id, &m, CM_RTU);
		return 0;
	} else if (p && id->conn == CM_REQ_RCVD && p->private_data_len <= ROOM_REP) {
		m.p = *p;
		m.p.rnr_retry_count = least(p->rnr_retry_count, 7);
		m.ece = *ece;
		m.psn = id->psn;
		id->qpn = p->qp_num;
		id->responder_resources = p->responder_resources;
		id->initiator_depth = p->initiator_depth;
		id->conn = CM_REP_SENT;
		put(id, &m, CM_REP);
		return 0;
	}
	/* What cannot be accepted is refused */
	cm_reject(id, 0, NULL, 0);
	return EINVAL;
}

int cm_reject(struct cm_id *id, uint8_t reason, const void *data, uint8_t len)
{
	const bool ud = id->qp_type == IBV_QPT_UD;
	struct cm_msg m = { .status = reason ? reason : CM_REJ_CONSUMER };

	if (id->conn == CM_NONE || (m.status != CM_REJ_CONSUMER && m.status != CM_REJ_OPTION) || len > (ud ? ROOM_SIDR_REP : ROOM_REJ))
		return EINVAL;
	if (len)
		memcpy(m.p.private_data, data, len);
	m.p.private_data_len = len;
	if (ud) {
		if (id->conn != CM_SIDR_RCVD)
			return EINVAL;
		m.status = CM_SIDR_REJECT;
		over(id);
		put(id, &m, CM_SIDR_REP);
		return 0;
	}
	if (id->conn < CM_REQ_SENT || id->conn > CM_REP_RCVD)
		return EINVAL;
	over(id);
	put(id, &m, CM_REJ);
	return 0;
}

int cm_disconnect(struct cm_id *id)
{
	if (id->conn == CM_NONE)
		return EINVAL;
	if (id->conn == CM_UP) {
		id->conn = CM_DREQ_SENT;
		cm_timer(id, CM_SERVICE_TIMEOUT);
		say(id, CM_DREQ, 0);
	} else if (id->conn == CM_DREQ_RCVD) {
		timewait(id);
		say(id, CM_DREP, 0);
	}
	return 0;
}

int cm_notify(struct cm_id *id, uint32_t event)
{
	if (id->dev == SD_NO_DEV || id->conn == CM_NONE || event != IBV_EVENT_COMM_EST)
		return EINVAL;
	if (id->conn == CM_UP)
		return EISCONN;
	if (id->conn != CM_REP_SENT)
		return EINVAL;
	id->conn = CM_UP;
	cm_event(id, CM_ESTABLISHED, 0, NULL, 0);
	return 0;
}

void cm_hang_up(struct cm_id *id)
{
	const enum cm_conn was = id->conn;

	over(id);
	switch (was) {
	case CM_REQ_SENT:
		say(id, CM_REJ, CM_REJ_TIMEOUT);
		break;
	case CM_REQ_RCVD:
	case CM_REP_SENT:
	case CM_REP_RCVD:
		say(id, CM_REJ, CM_REJ_CONSUMER);
		break;
	case CM_UP:
		say(id, CM_DREQ, 0);
		break;
	case CM_DREQ_RCVD:
		say(id, CM_DREP, 0);
		break;
	case CM_SIDR_RCVD:
		say(id, CM_SIDR_REP, CM_SIDR_REJECT);
		break;
	default:
		break;
	}
}

int cm_qp_attr(struct cm_id *id, struct ib_uverbs_qp_attr *a)
{
	const bool ud = id->qp_type == IBV_QPT_UD, rc = id->qp_type == IBV_QPT_RC;
	const struct ibv_path_record *p = &id->path;

	a->port_num = id->dev % sd_ports() + 1;
	if (ud || id->conn == CM_NONE) {
		a->qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
		if (ud)
			cm_set_qkey(id);
		a->qkey = id->qkey;
		return 0;
	}
	if (id->conn > CM_UP || (id->conn == CM_REQ_SENT && a->qp_state != IBV_QPS_INIT))
		return EINVAL;
	switch (a->qp_state) {
	case IBV_QPS_INIT:
		a->qp_attr_mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
		a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (id->responder_resources)
			a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
		return 0;
	case IBV_QPS_RTR:
		a->qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		cm_ah(id, &a->ah_attr);
		a->path_mtu = p->mtu & 0x3f;
		a->dest_qp_num = id->peer_qpn;
		a->rq_psn = id->peer_psn;
		if (rc)
			a->qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		a->max_dest_rd_atomic = id->responder_resources;
		return 0;
	case IBV_QPS_RTS:
		a->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
		a->sq_psn = id->psn;
		if (rc)
			a->qp_attr_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		a->timeout = id->timeout_set ? id->timeout : (p->packetlifetime & 0x3f) + 1;
		a->retry_cnt = id->retry_count;
		a->rnr_retry = id->rnr_retry_count;
		a->max_rd_atomic = id->initiator_depth;
		return 0;
	}
	return EINVAL;
}

/* ---- what comes ---- */

static void request(unsigned slot, uint64_t inst, const struct cm_msg *m)
{
	const bool ud = m->kind == CM_SIDR_REQ;
	struct cm_id *l = cm_id_next(NULL), *id;

	while (l && !cm_listens(l, m))
		l = cm_id_next(l);
	if (!l || l->qp_type != m->qp_type) {
		answer(slot, inst, m, ud ? CM_SIDR_REP : CM_REJ, refusal(ud, l ? CM_REJ_CONSUMER : CM_REJ_SERVICE));
		return;
	}
	id = l->backlog ? cm_id_new(l->file, l->ps, l->qp_type) : NULL;
	if (!id) {
		answer(slot, inst, m, CM_BUSY, 0);
		return;
	}
	id->src = m->dst;
	id->dst = m->src;
	id->dev = m->to_dev;
	id->rdev = m->dev;
	id->tos = l->tos;
	id->path = m->path;
	id->path.sgid = m->path.dgid;
	id->path.dgid = m->path.sgid;
	id->path.slid = m->path.dlid;
	id->path.dlid = m->path.slid;
	id->has_path = !ud;
	id->state = CM_CONNECT;
	id->conn = ud ? CM_SIDR_RCVD : CM_REQ_RCVD;
	id->slot = slot;
	id->inst = inst;
	id->peer = m->from;
	id->attempt = m->attempt;
	id->peer_psn = m->psn;
	id->peer_qpn = m->p.qp_num;
	id->responder_resources = m->p.initiator_depth;
	id->initiator_depth = m->p.responder_resources;
	id->retry_count = m->p.retry_count;
	id->rnr_retry_count = m->p.rnr_retry_count;
	if (cm_request_event(l, id, m, room_of(m->kind, m->src.sa.sa_family))) {
		id->conn = CM_OVER;
		cm_id_free(id);
		answer(slot, inst, m, CM_BUSY, 0);
		return;
	}
	say(id, CM_MRA, 0);
}

static void reply(struct cm_id *id, const struct cm_msg *m)
{
	cm_timer(id, 0);
	id->resend = 0;
	id->peer = m->from;
	id->conn = CM_REP_RCVD;
	id->peer_psn = m->psn;
	id->peer_qpn = m->p.qp_num;
	id->responder_resources = m->p.initiator_depth;
	id->initiator_depth = m->p.responder_resources;
	id->rnr_retry_count = m->p.rnr_retry_count;
	cm_event(id, CM_CONNECT_RESPONSE, 0, m, ROOM_REP);
}

static void sidr_reply(struct cm_id *id, const struct cm_msg *m)
{
	if (m->status) {
		refused(id, m->status, m);
		return;
	}
	over(id);
	id->qkey = m->p.qkey;
	cm_event(id, CM_ESTABLISHED, 0, m, ROOM_SIDR_REP);
}

static void told_to_disconnect(struct cm_id *id)
{
	/* Both at once: each takes the other's for the answer */
	if (id->conn == CM_DREQ_SENT)
		timewait(id);
	else
		id->conn = CM_DREQ_RCVD;
	disconnected(id, 0);
}

/* To an id that has the sender for a peer */
static void message(struct cm_id *id, const struct cm_msg *m)
{
	const bool asked = id->conn == CM_REQ_SENT || id->conn == CM_SIDR_SENT;
	const bool up = id->conn == CM_UP || id->conn == CM_DREQ_SENT || id->conn == CM_REP_SENT || id->conn == CM_REP_RCVD;

	switch (m->kind) {
	case CM_MRA:
		if (!asked)
			return;
		/* Only the end of that process is waited for; with datagrams, not for ever */
		id->peer = m->from;
		cm_timer(id, id->conn == CM_SIDR_SENT ? CM_TRIES * CM_SERVICE_TIMEOUT : 0);
		return;
	case CM_BUSY:
		if (!asked)
			return;
		if (!id->busy)
			cm_timer(id, CM_TRIES * CM_SERVICE_TIMEOUT);
		id->busy = true;
		id->resend = eng_now() + CM_RESEND;
		look_again(id->resend);
		return;
	case CM_REP:
		if (id->conn == CM_REQ_SENT)
			reply(id, m);
		return;
	case CM_SIDR_REP:
		if (id->conn == CM_SIDR_SENT)
			sidr_reply(id, m);
		return;
	case CM_RTU:
		if (id->conn == CM_REP_SENT) {
			id->conn = CM_UP;
			cm_event(id, CM_ESTABLISHED, 0, NULL, 0);
		}
		return;
	case CM_REJ:
		if (id->conn >= CM_REQ_SENT && id->conn <= CM_REP_RCVD)
			refused(id, m->status, m);
		return;
	case CM_DREQ:
		if (up)
			told_to_disconnect(id);
		return;
	case CM_DREP:
		if (id->conn == CM_DREQ_SENT) {
			timewait(id);
			disconnected(id, 0);
		}
		return;
	}
}

/* ---- for the engine ---- */

/* The id of a request that its sender takes back before it knows it */
static struct cm_id *of_request(unsigned slot, uint64_t inst, const struct cm_msg *m)
{
	struct cm_id *id = cm_id_next(NULL);

	while (id && (id->slot != slot || id->inst != inst || id->peer != m->from || id->attempt != m->attempt))
		id = cm_id_next(id);
	return id;
}

void sd_cm_message(unsigned slot, uint64_t inst, const void *data, size_t len)
{
	struct cm_msg m;
	struct cm_id *id;

	if (len != sizeof(m))
		return;
	memcpy(&m, data, sizeof(m));
	if (m.kind < CM_REQ || m.kind > CM_SIDR_REP)
		return;
	if (m.kind == CM_REQ || m.kind == CM_SIDR_REQ) {
		if (m.dev < SD_MAX_DEVICES && m.to_dev < sd_all_ports() && cm_addr_size(&m.src) && cm_addr_size(&m.dst) &&
		    m.p.private_data_len <= room_of(m.kind, m.src.sa.sa_family))
			request(slot, inst, &m);
		return;
	}
	id = m.to ? cm_id_find(m.to) : of_request(slot, inst, &m);
	if (!id || id->slot != slot || id->inst != inst || id->attempt != m.attempt || (id->peer && m.from && id->peer != m.from) ||
	    m.p.private_data_len > room_of(m.kind, AF_IB))
		return;
	message(id, &m);
}

void sd_cm_peer_dead(unsigned slot, uint64_t inst)
{
	struct cm_id *id;

	for (id = cm_id_next(NULL); id; id = cm_id_next(id)) {
		if (id->slot != slot || id->inst != inst)
			continue;
		switch (id->conn) {
		case CM_REQ_SENT:
		case CM_REQ_RCVD:
		case CM_REP_SENT:
		case CM_REP_RCVD:
		case CM_SIDR_SENT:
			refused(id, refusal(id->conn == CM_SIDR_SENT, CM_REJ_CONSUMER), NULL);
			break;
		case CM_SIDR_RCVD:
			over(id);
			break;
		case CM_UP:
		case CM_DREQ_SENT:
			timewait(id);
			disconnected(id, 0);
			break;
		case CM_DREQ_RCVD:
			timewait(id);
			break;
		default:
			break;
		}
	}
}
