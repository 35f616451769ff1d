/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fabric.c: hostile peers of the libfabric provider. They send any messages and hellos while receives
 * are posted, sends wait for an acknowledgement, and memory is open to atomic operations. The provider
 * is the real one. Below it are verbs in plain memory and a device that works step by step. For
 * libFuzzer (make fuzz).
 *
 * Receives lie in poisoned memory: a sanitizer sees a write beside them, or after their completion.
 *
 * The input is one byte, then steps. Bits of that byte: 0 receives name their sender, 1 DC, 2 the
 * device matches tags, 1 and 2 two devices, 3 InfiniBand, 4 the device has atomics, 5 the first peer
 * is connected, 6 its device has atomics, 7 its device matches tags. A step is a byte that says which,
 * and its arguments. Over two devices the last peer is not hostile, and is heard at the end.
 */
#include <inlay/tag.h>
#include "../../examples/fabric/fabric.h"
#include "fuzz.h"

#define FABRIC_QPS 12u
#define FABRIC_ENTRIES 128u
#define FABRIC_KEYS 64u
#define FABRIC_SLOTS 16u
#define FABRIC_SLOT 512u          /* bytes, of which a receive takes at most half */
#define FABRIC_NAMES 5u
#define FABRIC_HONEST 4u
#define FABRIC_TAG 77
#define FABRIC_HANDLES 8u
#define FABRIC_INCARNATION 1000u

#define UNUSED FUZZ_UNUSED

/* ---- The device ---- */

static struct ibv_device the_device;
static bool infiniband;

struct qp {
	struct ibv_qp qp;
	uint8_t ring[128 * 64] __attribute__((aligned(64)));
	uint32_t record[2], wqebbs, done;
	struct ibv_qp_cap cap;
	int used, last;                 /* last: IBV_EVENT_QP_LAST_WQE_REACHED is due */
};

struct fabric_key {
	struct ibv_mr mr;
	int used;
};

static struct {
	struct verbs_context context;
	struct ibv_pd pd;
	struct ibv_cq_ex cqs[2];
	struct fuzz_cq done[2] __attribute__((aligned(4096)));
	uint64_t page[512] __attribute__((aligned(4096)));
	struct qp qps[FABRIC_QPS];
	uint8_t entries[2][FABRIC_ENTRIES * 32] __attribute__((aligned(64)));
	struct fabric_key keys[FABRIC_KEYS];
	uint64_t now;                   /* nanoseconds */
	uint64_t tick;                  /* for each look at the clock */
	struct qp *honest;              /* no hostile peer is behind it */
} nic;

int fabric_clock_gettime(clockid_t clock, struct timespec *t)
{
	nic.now += nic.tick;
	t->tv_sec = (time_t)(nic.now / 1000000000) + (clock == CLOCK_REALTIME ? 1000 : 1);
	t->tv_nsec = (long)(nic.now % 1000000000);
	return 0;
}

ssize_t fabric_getrandom(void *at, size_t bytes, UNUSED unsigned flags)
{
	memset(at, 0x5a, bytes);
	return (ssize_t)bytes;
}

/* ---- Verbs: what the provider calls ---- */

#define fabric_context() (&nic.context.context)

static struct qp *qp_of(struct ibv_qp *qp)
{
	struct qp *q = (struct qp *)(void *)qp;

	sure(q->used);
	return q;
}

static struct fuzz_cq *cq_of(const struct ibv_cq *cq)
{
	return &nic.done[cq == ibv_cq_ex_to_cq(&nic.cqs[1])];
}

static uint64_t *page_of(UNUSED struct ibv_context *context)
{
	return nic.page;
}

#include "../fabric/standins.h"

static struct srq fabric_srqs[2];

static struct ibv_qp *fabric_qp_make(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct qp *q = nic.qps;

	while (q < nic.qps + FABRIC_QPS && q->used)
		q++;
	if (q == nic.qps + FABRIC_QPS) {
		errno = ENOMEM;
		return NULL;
	}
	sure(pd == &nic.pd && inlay_send_cqes(init) <= 128);
	q->used = 1;
	q->done = 0;
	q->last = 0;
	return qp_fill(q, pd, init, 0x100 + (uint32_t)(q - nic.qps));
}

RETURNS(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *pd, struct ibv_qp_init_attr *init), fabric_qp_make(pd, init))

/* Its attributes begin as the other one's */
RETURNS(struct ibv_qp *, mlx5dv_create_qp, (UNUSED struct ibv_context *context, struct ibv_qp_init_attr_ex *init,
	UNUSED struct mlx5dv_qp_init_attr *dv), fabric_qp_make(init->pd, (struct ibv_qp_init_attr *)(void *)init))

int ibv_destroy_qp(struct ibv_qp *qp)
{
	qp_of(qp)->used = 0;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	sure(mask & IBV_QP_STATE);
	if (attr->qp_state == IBV_QPS_ERR && qp->state != IBV_QPS_ERR)
		qp_of(qp)->last = 1;
	qp->state = attr->qp_state;
	return 0;
}

int ibv_get_async_event(UNUSED struct ibv_context *context, struct ibv_async_event *event)
{
	for (struct qp *q = nic.qps; q < nic.qps + FABRIC_QPS; q++)
		if (q->used && q->last) {
			q->last = 0;
			event->event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
			event->element.qp = &q->qp;
			return 0;
		}
	return -1;
}

static struct ibv_srq *fabric_srq_make(struct ibv_pd *pd, uint32_t max_wr)
{
	const int second = fabric_srqs[0].count != 0;

	sure(inlay_srq_cqes(max_wr) <= FABRIC_ENTRIES);
	return srq_fill(&fabric_srqs[second], pd, inlay_srq_cqes(max_wr), nic.entries[second]);
}

RETURNS(struct ibv_srq *, ibv_create_srq, (struct ibv_pd *pd, struct ibv_srq_init_attr *init), fabric_srq_make(pd, init->attr.max_wr))

static struct ibv_srq *fabric_create_srq_ex(UNUSED struct ibv_context *context, struct ibv_srq_init_attr_ex *init)
{
	sure(init->srq_type == IBV_SRQT_TM);
	return fabric_srq_make(init->pd, init->attr.max_wr);
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	srq_of(srq)->count = 0;
	return 0;
}

static struct ibv_cq_ex *fabric_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *init)
{
	const int second = nic.cqs[0].context != NULL;

	fuzz_cq_clear(&nic.done[second], 1u << inlay_log2_ceil(init->cqe + 1));
	nic.cqs[second].context = context;
	return &nic.cqs[second];
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	sure(cq->context);
	cq->context = NULL;
	return 0;
}

static int fabric_query_device_ex(UNUSED struct ibv_context *context, UNUSED const struct ibv_query_device_ex_input *input,
				  struct ibv_device_attr_ex *attr, size_t size)
{
	memset(attr, 0, size);
	attr->tm_caps.flags = IBV_TM_CAP_RC;
	attr->tm_caps.max_num_tags = 127;
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, UNUSED int access)
{
	for (uint32_t i = 0; i < FABRIC_KEYS; i++)
		if (!nic.keys[i].used) {
			nic.keys[i].used = 1;
			return key_fill(&nic.keys[i].mr, pd, at, bytes, 0x1000 + i, 0x2000 + i);
		}
	errno = ENOMEM;
	return NULL;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	sure(((struct fabric_key *)(void *)mr)->used--);
	return 0;
}

/* ---- What the provider calls of libfabric, which has signal handlers of its own ---- */

RETURNS(int, fi_log_enabled, (UNUSED const struct fi_provider *p, UNUSED enum fi_log_level level, UNUSED enum fi_log_subsys subsystem), 0)
RETURNS(const char *, fi_strerror, (int err), strerror(err))
RETURNS(int, fi_param_define, (UNUSED const struct fi_provider *p, UNUSED const char *name, UNUSED enum fi_param_type type,
			       UNUSED const char *help, ...), -FI_ENOSYS)
RETURNS(int, fi_param_get, (UNUSED struct fi_provider *p, UNUSED const char *name, UNUSED void *value), -FI_ENOSYS)
RETURNS(struct fi_info *, fi_dupinfo, (UNUSED const struct fi_info *info), NULL)
RETURNS(void, fi_freeinfo, (UNUSED struct fi_info *info), )

RETURNS(void, fi_log, (UNUSED const struct fi_provider *p, UNUSED enum fi_log_level level, UNUSED enum fi_log_subsys s,
	UNUSED const char *function, UNUSED int line, UNUSED const char *format, ...), abort())

/* ---- What the device does ---- */

/* A message, from the GRH on if it is a datagram from QP number imm; into the completion if it is short. No receive: nothing comes. */
static void fabric_arrive(struct endpoint *ep, struct qp *q, const uint8_t *msg, uint32_t n, uint32_t imm)
{
	struct fuzz_cq *done = cq_of(q->qp.recv_cq);
	struct srq *s = srq_of(q->qp.srq);
	const int tagged = ep->offload && q->qp.srq == ep->rc_srq;
	uint32_t entry, room;
	struct mlx5_cqe64 *cqe;
	const uint8_t *at;
	const uint32_t opcode = q->qp.qp_type == IBV_QPT_DRIVER ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND;

	if (!srq_has(s) || fuzz_cq_room(done) < 2 || q->qp.state < IBV_QPS_RTR || q->qp.state > IBV_QPS_SQE)
		return;
	entry = srq_take(s);
	at = s->entries + 32 * entry;
	room = fuzz_be32(at + 16);
	if (n > room) {
		fuzz_cqe_error(done, q->qp.qp_num, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, entry);
		return;
	}
	cqe = fuzz_cqe(done, q->qp.qp_num, opcode, n, entry);
	cqe->imm_inval_pkey = inlay_to_be32(imm);
	if (q->qp.qp_type == IBV_QPT_UD)
		cqe->flags_rqpn = inlay_to_be32(1u << 28 | (imm & 0xffffff)); /* with a GRH */
	if (tagged) {
		cqe->app = INLAY_CQE_APP_TAG;
		cqe->app_op = n && !msg[0] ? INLAY_TAG_NO_TAG : INLAY_TAG_UNEXPECTED;
	}
	if (n <= 32 && q->qp.qp_type == IBV_QPT_RC && !tagged) {
		memcpy(cqe, msg, n);
		cqe->op_own |= INLAY_CQE_SCATTER_32;
	} else {
		memcpy((void *)(uintptr_t)fuzz_be64(at + 24), msg, n);
	}
}

/* Bytes from afar go to one piece of local memory, which a key that is in use covers. */
static void fabric_land(const uint8_t *segment, uint32_t what, uint32_t most)
{
	const uint32_t bytes = fuzz_be32(segment), key = fuzz_be32(segment + 4) - 0x1000;
	uint8_t *at = (uint8_t *)(uintptr_t)fuzz_be64(segment + 8);
	const struct fabric_key *k = &nic.keys[key % FABRIC_KEYS];

	sure(key < FABRIC_KEYS && k->used && bytes <= most);
	sure(at >= (uint8_t *)k->mr.addr && at + bytes <= (uint8_t *)k->mr.addr + k->mr.length);
	fuzz_fill(at, bytes, what);
}

static struct {
	uint64_t handles[FABRIC_HANDLES]; /* in messages of the provider's */
	uint32_t num;
} fabric_seen;

static void fabric_look(const uint8_t *at, uint32_t bytes)
{
	const uint32_t head = bytes < sizeof(struct wire) || at[0] ? 0 : header_bytes(at[1]);

	if (head && at[1] & FLAG_HANDLE && bytes >= head)
		memcpy(&fabric_seen.handles[fabric_seen.num++ % FABRIC_HANDLES], at + head - 8, 8);
}

/* Does up to n WQEs of a queue pair, all of them well, or fails the first one. */
static void fabric_work(struct qp *q, uint32_t n, uint32_t syndrome)
{
	const uint32_t far = q->qp.qp_type == IBV_QPT_DRIVER;
	struct fuzz_cq *done = cq_of(q->qp.recv_cq);
	struct fuzz_piece pieces[20];
	struct fuzz_wqe w;
	uint32_t at;

	if (!q->used || q->qp.state < IBV_QPS_RTS || !q->wqebbs || (syndrome && q == nic.honest))
		return;
	while (n-- && (uint16_t)q->done != inlay_from_be16((uint16_t)(q->record[1] >> 16)) && fuzz_cq_room(done) > 2) {
		q->done += fuzz_wqe_at(q->ring, q->wqebbs - 1, q->done, q->qp.qp_num, &w);
		at = q->qp.qp_type == IBV_QPT_UD || (far && w.at[24] >> 7) ? 4 : 1 + far;
		if (q->qp.state != IBV_QPS_RTS)
			syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
		if (syndrome) {
			fuzz_cqe_error(done, q->qp.qp_num, MLX5_CQE_REQ_ERR, syndrome, w.index);
			q->qp.state = IBV_QPS_ERR;
			q->last = q->qp.qp_type == IBV_QPT_RC;
			continue;
		}
		switch (w.opcode) {
		case MLX5_OPCODE_SEND:
		case MLX5_OPCODE_SEND_IMM:
			sure(fuzz_pieces(&w, at, pieces) >= 1);
			fabric_look(pieces[0].at, pieces[0].bytes);
			break;
		case MLX5_OPCODE_RDMA_READ:
			sure(w.ds == at + 2);
			fabric_land(w.at + 16 * (at + 1), w.index, UINT32_MAX);
			break;
		case MLX5_OPCODE_ATOMIC_CS:
		case MLX5_OPCODE_ATOMIC_FA:
		case MLX5_OPCODE_ATOMIC_MASKED_CS:
		case MLX5_OPCODE_ATOMIC_MASKED_FA:
			fabric_land(w.at + 16 * (w.ds - 1), w.index, 8);
			break;
		default:
			sure(w.opcode == MLX5_OPCODE_RDMA_WRITE || w.opcode == MLX5_OPCODE_NOP);
		}
		if (w.flags & MLX5_WQE_CTRL_CQ_UPDATE)
			fuzz_cqe(done, q->qp.qp_num, MLX5_CQE_REQ, 0, w.index);
	}
}

/* ---- The application ---- */

/* A call whose context this is, and its memory, in pieces with poison around them */
struct fabric_slot {
	struct fi_context context;
	enum { SLOT_IDLE, SLOT_RECEIVES, SLOT_MULTI, SLOT_SPENT, SLOT_OTHER, SLOT_PEEKS, SLOT_CLAIMED } state;
	uint8_t *at;
	struct iovec iov[IOV_LIMIT];
	size_t iovs;
};

static struct {
	struct domain domain, second;
	struct fabric fabric;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *fid;
	struct endpoint *ep;
	struct fid_mr *mr;
	fi_addr_t addrs[FABRIC_NAMES];
	uint8_t names[FABRIC_NAMES][sizeof(struct name)];
	uint32_t removed[FABRIC_NAMES];
	struct fabric_slot slots[FABRIC_SLOTS];
	uint8_t arena[FABRIC_SLOTS * FABRIC_SLOT] __attribute__((aligned(64)));
	uint8_t open[192] __attribute__((aligned(64))); /* to peers: the middle */
	struct fi_context honest;  /* a receive of the honest peer's message, */
	bool heard;                /* which has come */
} app;

static struct fabric_slot *fabric_slot(uint32_t i, size_t pieces, uint32_t bytes)
{
	struct fabric_slot *s = &app.slots[i % FABRIC_SLOTS];
	const size_t each = FABRIC_SLOT / IOV_LIMIT / 2;

	if (s->state != SLOT_IDLE)
		return NULL;
	s->iovs = pieces;
	for (size_t k = 0; k < pieces; k++) {
		s->iov[k].iov_base = s->at + 2 * k * each;
		s->iov[k].iov_len = pieces == 1 ? bytes : (bytes * (k + 3)) % (each + 1);
		fuzz_allow(s->iov[k].iov_base, s->iov[k].iov_len);
		fuzz_fill((uint8_t *)s->iov[k].iov_base, (uint32_t)s->iov[k].iov_len, i);
	}
	return s;
}

static void fabric_free(struct fabric_slot *s)
{
	s->state = SLOT_IDLE;
	fuzz_forbid(s->at, FABRIC_SLOT);
}

/* A call has returned: its slot is taken if it succeeded. */
static void fabric_called(struct fabric_slot *s, ssize_t result, int state)
{
	if (result)
		fabric_free(s);
	else
		s->state = state;
}

/* A completion is of a call under way, and the last of it. */
static void fabric_completed(void *context, uint64_t flags, int err)
{
	struct fabric_slot *s = (struct fabric_slot *)context;

	app.heard |= context == &app.honest;
	if (!context || context == &app.honest)
		return; /* of a write of the peer's, or of a call that wanted none */
	sure(s >= app.slots && s < app.slots + FABRIC_SLOTS && s->state != SLOT_IDLE && s->state != SLOT_CLAIMED);
	sure(s->state != SLOT_SPENT || err);
	if (s->state == SLOT_SPENT) /* of a message into it: errors come after all good completions */
		return;
	if (s->state == SLOT_PEEKS && !err && s->iovs) {
		s->state = SLOT_CLAIMED;
	} else if (s->state != SLOT_MULTI) {
		fabric_free(s);
	} else if (flags & FI_MULTI_RECV || err == FI_ECANCELED) {
		fabric_free(s);
		s->state = SLOT_SPENT;
	}
}

static void fabric_read(size_t most)
{
	struct fi_cq_tagged_entry e[80];
	struct fi_cq_err_entry bad;
	ssize_t n = fi_cq_read(app.cq, e, most), i;

	sure(n == -FI_EAGAIN || n == -FI_EAVAIL || (n > 0 && (size_t)n <= most));
	for (i = 0; i < n; i++)
		fabric_completed(e[i].op_context, e[i].flags, 0);
	if (n == -FI_EAVAIL) {
		memset(&bad, 0, sizeof(bad));
		sure(fi_cq_readerr(app.cq, &bad, 0) == 1 && bad.err);
		fabric_completed(bad.op_context, bad.flags, bad.err);
	}
}

static void fabric_record(uint8_t *at, enum ibv_qp_type type, uint32_t qpn)
{
	const struct inlay_connect_record r = {
		.type = type, .link = infiniband ? INLAY_CONNECT_IB : INLAY_CONNECT_ROCE_V2, .qpn = qpn,
		.mtu = IBV_MTU_1024, .lid = infiniband ? 7 : 0, .gid = {0xfd, [15] = 2}};

	inlay_connect_pack(&r, at);
}

/* As in connect.c of the provider */
struct fabric_hello {
	uint32_t magic;
	uint8_t kind, flags;
	uint16_t eager;
	uint32_t attempt, your_attempt;
	uint8_t from[sizeof(struct name)];
	uint64_t to, source;
	uint8_t record[INLAY_CONNECT_SIZE], beyond[sizeof(struct name)];
};

#define TO_SECOND 0x80u /* in flags. There its name is of another incarnation */
#define BY_HONEST 0x100u

static void fabric_hello(struct fuzz_in *in, uint32_t how, uint32_t flags, uint32_t attempts)
{
	struct endpoint *ep = flags & TO_SECOND && app.ep->second ? app.ep->second : app.ep;
	const uint32_t n = flags & BY_HONEST ? FABRIC_HONEST : how % FABRIC_HONEST;
	struct { uint8_t grh[INLAY_GRH]; struct fabric_hello h; } d = {.grh = {[8] = 0xfd, [23] = 2}, .h = {
		.magic = 0x796c6e69, .kind = (uint8_t)(1 + (how >> 2 & 3)), .to = ep->name.incarnation,
		.flags = (uint8_t)(flags ^ (settings.dc ? 4 : 0)), .your_attempt = attempts >> 4,
		.eager = (uint16_t)(settings.eager / 16 | (settings.rails - 1u) << 15), .attempt = attempts & 15}};

	INLAY_STATIC_ASSERT(sizeof(d.h) == HELLO_SIZE, "as the provider's");
	memcpy(d.h.from, app.names[n], sizeof(d.h.from));
	memcpy(d.h.beyond, app.names[how == 0x60 ? 0 : n], sizeof(d.h.beyond));
	(ep == app.ep ? d.h.beyond : d.h.from)[INLAY_CONNECT_SIZE] ^= 0x80;
	d.h.source = ep != app.ep ? (1 + (uint64_t)(how >> 5 & 1)) << 32 | (1 + (how >> 6 & 1)) :
		     how >> 5 & 3 ? (uint64_t)how << 56 | 16 : 0;
	fabric_record(d.h.record, IBV_QPT_RC, 0x300 + n);
	if (how & 0x10)
		fuzz_spoil(in, (uint8_t *)&d.h, sizeof(d.h));
	if (how & 0x80)
		fuzz_bytes(in, (uint8_t *)&d.h, fuzz_8(in) % sizeof(d.h));
	fabric_arrive(ep, qp_of(ep->ud_qp), (const uint8_t *)&d, sizeof(d) - (how == 0xff), 0x200 + n / 2);
}

/* ---- Messages ---- */

/* Over two devices most have a number, and that of the next message or one about it. */
static void fabric_numbered(struct fuzz_in *in, struct qp *q, const uint8_t *msg, uint32_t n, uint32_t imm)
{
	const uint32_t how = settings.rails > 1 ? fuzz_8(in) : 0xff;
	struct peer *p = how < 0xe0 && q->qp.qp_context ? rail_first((struct peer *)q->qp.qp_context) : NULL;
	struct { struct wire wire; uint8_t msg[384]; } d = {{0, WIRE_RAIL | (how >= 0xe8 ? how & 7 : 0), 1, 0}, {0}};

	if (p) {
		d.wire.segments = (uint16_t)p->their_attempt;
		d.wire.tag = p->received + (!(how & 8) ? 0 : how & 4 ? (uint64_t)how << (how & 48) : how % 4 - 1u);
	}
	memcpy(d.msg, msg, n);
	fabric_arrive(app.ep, q, how < 0xf0 ? (uint8_t *)&d : msg, n + (how < 0xf0 ? sizeof(d.wire) : 0), imm);
}

static void fabric_message(struct fuzz_in *in, uint32_t which)
{
	static const uint8_t kinds[] = {WIRE_EAGER, WIRE_EAGER, WIRE_RENDEZVOUS, WIRE_FIN, WIRE_WRITTEN, WIRE_ATOMIC,
					WIRE_ANSWER, WIRE_STAND_IN};
	const uint32_t how = fuzz_8(in), flags = fuzz_8(in), kind = kinds[how & 7];
	struct wire wire = {0, (uint8_t)(kind | (flags & 31)), 0, fuzz_8(in) & 7};
	struct { uint32_t key, count; } target;
	uint64_t handle = fabric_seen.handles[flags >> 5];
	struct segment segment;
	uint32_t n = 0, i, imm, types;
	struct qp *q = NULL;
	uint8_t msg[384] = {};

	/* On the which-th connection, or to the target */
	for (i = 0; i < 2 * FABRIC_QPS && !q; i++) {
		q = &nic.qps[(which + i) % FABRIC_QPS];
		if (!q->used || (settings.dc ? &q->qp != app.ep->dct : q->qp.qp_type != IBV_QPT_RC) ||
		    q == nic.honest || (app.ep->offload && q == &nic.qps[0])) /* of the list's commands */
			q = NULL;
	}
	if (!q)
		return;
	imm = settings.dc ? (which & 3) | (1 + (which >> 2)) << 20 : 0;
	if (how & 8) { /* any bytes */
		n = fuzz_8(in) + (how & 16 ? 64 : 0);
		fuzz_bytes(in, msg, n);
		fabric_numbered(in, q, msg, n, imm);
		return;
	}
	if (kind == WIRE_RENDEZVOUS)
		wire.segments = how >> 5;
	if (kind == WIRE_FIN)
		wire.tag = handle;
	if (kind == WIRE_ANSWER)
		wire.segments = how & 32 ? how : 0;
	if (kind == WIRE_ATOMIC) {
		types = fuzz_8(in);
		wire.segments = (uint16_t)(types % 15 | fuzz_8(in) % 20 << 8);
		wire.tag = (uintptr_t)app.open + 64 + (types & 16 ? 0 : fuzz_8(in) - 8);
	}
	if (how & 16 && app.ep->offload) { /* as a device that matches tags sends it: TMH */
		wire.op = IBV_TMH_EAGER;
		wire.segments = 0;
		msg[0] = IBV_TMH_EAGER;
		msg[4] = (uint8_t)flags;
		msg[15] = (uint8_t)(wire.tag & 7);
		n = INLAY_TMH_BYTES;
	} else {
		memcpy(msg, &wire, sizeof(wire));
		n = sizeof(wire);
		if (wire.flags & FLAG_DATA)
			n += 8;
		if (wire.flags & FLAG_HANDLE) {
			memcpy(msg + n, &handle, 8);
			n += 8;
		}
	}
	if (kind == WIRE_RENDEZVOUS) {
		for (i = 0; i < wire.segments; i++, n += sizeof(segment)) {
			segment.addr = fuzz_8(in);
			segment.len = fuzz_8(in);
			segment.len <<= segment.len & 1 ? 0 : segment.len & 2 ? 34 : 1;
			segment.rkey[0] = segment.rkey[1] = 5;
			memcpy(msg + n, &segment, sizeof(segment));
		}
	} else if (kind == WIRE_ATOMIC) {
		target.key = (uint32_t)app.mr->key + (how >> 6 == 3);
		target.count = how >> 5 & 1 ? fuzz_8(in) : 1;
		memcpy(msg + n, &target, sizeof(target));
		n += sizeof(target);
		i = fuzz_8(in);
		fuzz_bytes(in, msg + n, i);
		n += i;
	} else {
		i = fuzz_8(in);
		fuzz_fill(msg + n, i, which);
		n += i;
	}
	if (flags >> 5 == 7)
		fuzz_spoil(in, msg, n);
	if (how >> 5 == 6)
		n = fuzz_8(in);
	fabric_numbered(in, q, msg, n, imm);
}

/* ---- Calls ---- */

static void fabric_receive(struct fuzz_in *in, uint32_t how)
{
	struct fabric_slot *s = fabric_slot(fuzz_8(in), how & 8 ? 1 + (how >> 4 & 3) : 1, fuzz_8(in));
	const uint64_t tag = fuzz_8(in) & 7, ignore = how & 0x80 ? 3 : 0;
	fi_addr_t from = how & 0x40 ? app.addrs[tag & 3] : FI_ADDR_UNSPEC;
	struct fi_msg_tagged m;
	struct fi_msg u;
	int state = SLOT_RECEIVES;
	ssize_t r;

	if (!s)
		return;
	m = (struct fi_msg_tagged){.msg_iov = s->iov, .iov_count = s->iovs, .addr = from, .tag = tag, .ignore = ignore, .context = &s->context};
	u = (struct fi_msg){.msg_iov = s->iov, .iov_count = 1, .addr = from, .context = &s->context};
	switch (how & 7) {
	case 0 ... 1:
		r = fi_trecv(app.fid, s->iov[0].iov_base, s->iov[0].iov_len, NULL, from, tag, ignore, &s->context);
		break;
	case 2: r = fi_trecvmsg(app.fid, &m, FI_COMPLETION); break;
	case 3: /* the slot's iovs say whether it claims */
		state = SLOT_PEEKS;
		s->iovs = how >> 4 & 1;
		r = fi_trecvmsg(app.fid, &m, FI_PEEK | (s->iovs ? FI_CLAIM : how & 0x20 ? FI_DISCARD : 0));
		break;
	case 4: r = fi_recv(app.fid, s->iov[0].iov_base, s->iov[0].iov_len, NULL, from, &s->context); break;
	default:
		state = s->iovs == 1 ? SLOT_MULTI : SLOT_RECEIVES;
		r = fi_recvmsg(app.fid, &u, FI_COMPLETION | (s->iovs == 1 ? FI_MULTI_RECV : 0));
	}
	fabric_called(s, r, state);
}

static void fabric_claim(struct fuzz_in *in, uint64_t how)
{
	struct fabric_slot *s = app.slots;
	struct fi_msg_tagged m;
	uint32_t i;

	for (i = 0; i < FABRIC_SLOTS && s->state != SLOT_CLAIMED; i++)
		s++;
	if (i == FABRIC_SLOTS) {
		s = &app.slots[how % FABRIC_SLOTS];
		if (s->state == SLOT_RECEIVES || s->state == SLOT_MULTI)
			fi_cancel(&app.fid->fid, &s->context);
		return;
	}
	s->state = SLOT_IDLE;
	sure(fabric_slot(i, 1, fuzz_8(in)) == s);
	m = (struct fi_msg_tagged){.msg_iov = s->iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &s->context};
	how = FI_CLAIM | FI_COMPLETION | (how & 1 ? FI_DISCARD : 0);
	s->state = fi_trecvmsg(app.fid, &m, how) ? SLOT_CLAIMED : SLOT_RECEIVES;
}

static void fabric_send(struct fuzz_in *in, uint32_t how)
{
	static const enum fi_datatype types[] = {FI_UINT64, FI_INT32, FI_UINT8, FI_DOUBLE};
	static const enum fi_op ops[] = {FI_SUM, FI_MIN, FI_BOR, FI_ATOMIC_WRITE};
	static uint8_t bytes[1024];
	struct fabric_slot *s = fabric_slot(fuzz_8(in), 1, 128);
	fi_addr_t to = app.addrs[how >> 3 & 3];
	struct fi_msg_tagged m;
	struct iovec iov = {bytes, (size_t)fuzz_8(in) * (how & 0x80 ? 3 : 1)};
	struct fi_rma_iov remote = {0x5000, 64, 5};
	struct fi_msg_rma rma;
	ssize_t r;

	if (!s)
		return;
	m = (struct fi_msg_tagged){.msg_iov = &iov, .iov_count = 1, .addr = to, .context = &s->context, .data = how};
	rma = (struct fi_msg_rma){.msg_iov = s->iov, .iov_count = 1, .addr = to, .rma_iov = &remote, .rma_iov_count = 1,
				  .context = &s->context};
	s->iov[0].iov_len = 64;
	switch (how & 7) {
	case 0: r = fi_tsend(app.fid, bytes, iov.iov_len, NULL, to, 1, &s->context); break;
	case 1: r = fi_tsendmsg(app.fid, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE); break;
	case 2: r = fi_tsendmsg(app.fid, &m, FI_COMPLETION | FI_MATCH_COMPLETE | FI_REMOTE_CQ_DATA); break;
	case 3: r = fi_readmsg(app.fid, &rma, FI_COMPLETION); break;
	case 4: r = fi_writemsg(app.fid, &rma, FI_COMPLETION | FI_REMOTE_CQ_DATA); break;
	case 5:
		r = fi_fetch_atomic(app.fid, bytes, 8, NULL, s->iov[0].iov_base, NULL, to, 0x5000, 5,
				    types[iov.iov_len & 3], ops[iov.iov_len >> 2 & 3], &s->context);
		break;
	case 6:
		r = fi_compare_atomic(app.fid, bytes, 4, NULL, bytes + 64, NULL, s->iov[0].iov_base, NULL, to, 0x5000,
				      5, types[iov.iov_len & 3], FI_CSWAP, &s->context);
		break;
	default: r = fi_send(app.fid, bytes, iov.iov_len, NULL, to, &s->context);
	}
	fabric_called(s, r, SLOT_OTHER);
}

static void fabric_step(struct fuzz_in *in)
{
	static const uint8_t syndromes[] = {MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR};
	const uint32_t op = fuzz_8(in), more = op >> 4;
	uint32_t i;

	switch (op & 15) {
	case 0 ... 3: fabric_message(in, more); break;
	case 4 ... 5: fabric_receive(in, fuzz_8(in)); break;
	case 6: fabric_send(in, fuzz_8(in)); break;
	case 7: fabric_hello(in, fuzz_8(in), fuzz_8(in), fuzz_8(in)); break;
	case 8: fabric_work(&nic.qps[more & 7], 1 + (more >> 3), 0); break;
	case 9:
		for (i = 0; i < FABRIC_QPS; i++)
			fabric_work(&nic.qps[i], 64, 0);
		break;
	case 10: fabric_work(&nic.qps[more & 7], 1, syndromes[more >> 3]); break;
	case 11: fabric_claim(in, more); break;
	case 12: nic.now += (uint64_t)(1 + more) * 3000000000; break;
	case 13:
		i = more & 3;
		if (more & 4 && app.addrs[i] != FI_ADDR_NOTAVAIL && !app.removed[i]) {
			sure(!fi_av_remove(app.av, &app.addrs[i], 1, 0));
			app.removed[i] = 1;
		} else if (app.addrs[i] == FI_ADDR_NOTAVAIL || app.removed[i]) {
			sure(fi_av_insert(app.av, app.names[i], 1, &app.addrs[i], 0, NULL) == 1);
			app.removed[i] = 0;
		}
		break;
	default: fabric_read(more & 1 ? 80 : 1 + more);
	}
}

/* ---- One input ---- */

static void fabric_begin(uint32_t how)
{
	struct fi_rx_attr rx = {.caps = 0};
	struct fi_ep_attr attr = {.protocol = 0};
	struct fi_info info = {.caps = how & 1 ? FI_DIRECTED_RECV : 0, .rx_attr = &rx, .ep_attr = &attr};
	struct fi_av_attr av = {.count = 0};
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};

	memset(fabric_srqs, 0, sizeof(fabric_srqs));
	memset(&fabric_seen, 0, sizeof(fabric_seen));
	nic.context = (struct verbs_context){
		.context = {.abi_compat = __VERBS_ABI_IS_EXTENDED, .device = &the_device}, .sz = sizeof(nic.context),
		.create_cq_ex = fabric_create_cq_ex, .create_srq_ex = fabric_create_srq_ex,
		.query_device_ex = fabric_query_device_ex, .query_port = query_port,
	};
	nic.pd.context = fabric_context();
	infiniband = how >> 3 & 1;
	nic.now = nic.tick = 0;
	settings.receives = 16;
	settings.peers = 3;
	settings.eager = 256;
	settings.cache_regions = 16;
	settings.connect_ms = 20000;
	settings.rails = (how & 6) == 6 ? 2 : 1;
	settings.dc = (how & 6) == 2;
	settings.tag_offload = (how & 6) == 4 ? 16 : 0;
	app.domain = (struct domain){.fabric = &app.fabric, .pd = &nic.pd, .watch = WATCH_OFF};
	app.domain.context = fabric_context();
	app.domain.able = how & 16 && settings.rails < 2 ? ABLE_8 | ABLE_4 : 0;
	app.domain.atomics.sizes = app.domain.able ? 12 : 0;
	sure(!inlay_uar_init(&app.domain.uar, nic.page, 256, INLAY_UAR_SERIAL));
	app.domain.uar.pd = &nic.pd;
	app.second = app.domain;
	app.domain.second = settings.rails > 1 ? &app.second : NULL;
	sure(!regions_init(&app.domain));
	sure(!av_open(&app.domain.fid, &av, &app.av, NULL) && !cq_open(&app.domain.fid, &cq, &app.cq, NULL));
	sure(!endpoint_open(&app.domain.fid, &info, &app.fid, NULL));
	app.ep = container_of(app.fid, struct endpoint, fid);
	nic.done[0].cq = &app.ep->cq;
	nic.done[1].cq = app.ep->second ? &app.ep->second->cq : NULL;
	sure(!fi_ep_bind(app.fid, &app.av->fid, 0) && !fi_ep_bind(app.fid, &app.cq->fid, FI_TRANSMIT | FI_RECV));
	sure(!fi_enable(app.fid));
	sure(!mr_ops.reg(&app.domain.fid.fid, app.open + 64, 64, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &app.mr,
			 NULL));
	for (uint32_t i = 0; i < FABRIC_NAMES; i++) {
		const uint64_t incarnation = FABRIC_INCARNATION + i;

		fabric_record(app.names[i], IBV_QPT_UD, 0x200 + i / 2); /* two incarnations of each */
		memcpy(app.names[i] + INLAY_CONNECT_SIZE, &incarnation, 8);
		app.addrs[i] = FI_ADDR_NOTAVAIL;
		app.removed[i] = 0;
	}
	for (uint32_t i = 0; i < FABRIC_SLOTS; i++) {
		app.slots[i].at = app.arena + i * FABRIC_SLOT;
		fabric_free(&app.slots[i]);
	}
	fuzz_forbid(app.open, 64);
	fuzz_forbid(app.open + 128, 64);
}

/* All that was posted completes, so closing waits for nothing. Nothing is left then. */
static void fabric_end(void)
{
	const struct wire m[2] = {{0, WIRE_RAIL, 1, 0}, {0, WIRE_EAGER | FLAG_TAGGED, 0, FABRIC_TAG}};

	for (uint32_t k = 0; k < 4; k++) {
		for (uint32_t i = 0; i < FABRIC_QPS; i++)
			fabric_work(&nic.qps[i], 128, 0);
		fabric_read(80);
	}
	app.heard = !nic.honest;
	sure(app.heard || !fi_trecv(app.fid, &app.honest, 0, NULL, FI_ADDR_UNSPEC, FABRIC_TAG, 0, &app.honest));
	if (nic.honest)
		fabric_arrive(app.ep, nic.honest, (const uint8_t *)m, sizeof(m), 0);
	for (uint32_t k = 0; k < 64 && !app.heard; k++)
		fabric_read(80);
	sure(app.heard);
	nic.tick = 1000000000;
	sure(!fi_close(&app.fid->fid) && !fi_close(&app.mr->fid));
	sure(!fi_close(&app.cq->fid) && !fi_close(&app.av->fid) && !app.domain.users);
	regions_fini(&app.domain);
	for (uint32_t i = 0; i < FABRIC_QPS; i++)
		sure(!nic.qps[i].used);
	for (uint32_t i = 0; i < FABRIC_KEYS; i++)
		sure(!nic.keys[i].used);
	fuzz_allow(app.open, sizeof(app.open));
}

static void fabric_input(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, data + size};
	const uint32_t how = fuzz_8(&in);

	fabric_begin(how);
	if (how & 0x20) {
		sure(fi_av_insert(app.av, app.names[0], 1, &app.addrs[0], 0, NULL) == 1);
		fabric_hello(&in, 0, 1 | (how & 0x40 ? 0x70 : 0) | (how & 0x80 ? 8 : 0), 0x11);
		fabric_read(1);
	}
	nic.honest = NULL;
	if (settings.rails > 1) {
		fabric_hello(&in, 0, TO_SECOND | 3, 0x11); /* which needs its first connection */
		sure(fi_av_insert(app.av, app.names[FABRIC_HONEST], 1, &app.addrs[FABRIC_HONEST], 0, NULL) == 1);
		fabric_hello(&in, 0, BY_HONEST | 3, 0x11);
		fabric_read(1);
		nic.honest = qp_of(peer_of(app.ep, app.addrs[FABRIC_HONEST])->qp);
	}
	while (in.at < in.end)
		fabric_step(&in);
	fabric_end();
}

FUZZ_TARGET(fabric_input)
