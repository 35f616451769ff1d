/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/wire.h: the messages between host and worker, the address that each side gives the
 * other, and one end of their connection. No other header knows the messages' layout.
 *
 *   command, host to worker                       answer, worker to host
 *
 *   +0   version      1   INLAY_TASK_VERSION       +0   version      1
 *   +1   kind         1   INLAY_TASK_COMMAND       +1   kind         1   ANSWER or WRITTEN
 *   +2   flags        2   INLAY_TASK_PAYLOAD_KEY   +2   status       2   0, or an errno of Linux
 *   +4   length       4   bytes of payload         +4   length       4   bytes of response
 *   +8   context      8   the host's               +8   context      8   the command's
 *   +16  plugin       8   plugin id                +16  plugin       8   the command's
 *   +24  destination  8   for the plugin           +24  destination  8   the command's
 *   +32  payload key  16  if flagged               +32  response         unless WRITTEN
 *   +..  response key 16  if flagged
 *   +..  payload          unless by key            key:  rkey 4 | zero 4 | bytes 8
 *
 * A message is one send on a reliable connection. Fields are little-endian. It holds neither
 * addresses nor lkeys. The head's length and the device's byte count agree exactly.
 *
 *   Key      the rkey of a type 2 memory window that the host bound for this command, with
 *            addresses from 0. Only the worker's end of this queue pair may use it
 *   Context  a task's index and generation, which the worker echoes. First generations are far
 *            apart, so that one flipped bit names no other task
 *   Credit   a worker posts as many receives as its address says, and reposts one before it
 *            answers. So each answer, whatever it holds, is the credit for one more command
 *
 * One end is a struct inlay_task_link: an RC queue pair, its queues and its address. A host, a
 * worker's connection and a plugin with its own queue pair each use one:
 *
 *   link.self.role = INLAY_TASK_HOST; ...                 what self does not get from create
 *   inlay_task_link_create(&link, &caps, &path, &why);    a QP in INIT: post receives now
 *   ... pass link.self, INLAY_TASK_ADDRESS bytes, to the other side ...
 *   inlay_task_link_connect(&link, theirs, len, role, &why);
 *   inlay_task_link_break(&link);                         everything is flushed
 *   inlay_task_link_destroy(&link);
 */
#ifndef INLAY_TASK_WIRE_H
#define INLAY_TASK_WIRE_H /* a trial: names may change */

#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
#include <inlay/connect.h>
#include <inlay/mmap/blob.h>
#include <inlay/verbs.h>

#define INLAY_TASK_VERSION 1u            /* of messages, addresses and plugins */
#define INLAY_TASK_HEAD 32u
#define INLAY_TASK_KEY 16u
#define INLAY_TASK_SHORT 12u             /* bytes of data in an inline WQE of one WQEBB */
#define INLAY_TASK_ADDRESS 76u
#define INLAY_TASK_MESSAGE_MIN 64u      /* a head and both keys */
#define INLAY_TASK_MESSAGE_MAX (1u << 24)
#define INLAY_TASK_RECEIVES_MAX 32768u
#define INLAY_TASK_STATUS_MAX 4095
#define INLAY_TASK_GATHER 16u           /* SGEs of a payload or a response, at most */

enum inlay_task_kind {
	INLAY_TASK_COMMAND = 1,
	INLAY_TASK_ANSWER = 2,          /* the response is in the message */
	INLAY_TASK_WRITTEN = 3,         /* the response was written through the response key */
};

enum inlay_task_flags {
	INLAY_TASK_PAYLOAD_KEY = 1,     /* the worker reads the payload through a key */
	INLAY_TASK_RESPONSE_KEY = 2,    /* the worker may write the response through a key */
};

enum inlay_task_role { INLAY_TASK_HOST = 1, INLAY_TASK_WORKER = 2 };

struct inlay_task_key {
	uint32_t rkey;
	uint64_t bytes;
};

/* Identifies a command; echoed by its answer */
struct inlay_task_ids {
	uint64_t context;
	uint64_t plugin;
	uint64_t destination;
};

/* A message's head and keys, in host order */
struct inlay_task_message {
	struct inlay_task_ids ids;
	uint32_t kind;                  /* enum inlay_task_kind */
	uint32_t flags;                 /* of a command: enum inlay_task_flags */
	int status;                     /* of an answer: 0 or a negative errno */
	uint32_t length;                /* of the payload or the response */
	struct inlay_task_key payload;  /* 0 without its flag, like response */
	struct inlay_task_key response;
	uint32_t at;                    /* offset of the data */
};

INLAY_STATIC_ASSERT(INLAY_TASK_MESSAGE_MIN == INLAY_TASK_HEAD + 2 * INLAY_TASK_KEY, "a command by keys always fits");

/* ---- Set-up: addresses ---- */

/* An address: INLAY_TASK_ADDRESS bytes, little-endian, as one side passes them to the other */
struct inlay_task_address {
	char magic[8];                  /* "inlaytsk" */
	uint16_t version;               /* INLAY_TASK_VERSION */
	uint16_t role;                  /* enum inlay_task_role */
	uint32_t bytes;                 /* INLAY_TASK_ADDRESS */
	uint8_t at[INLAY_CONNECT_SIZE]; /* the queue pair, by inlay_connect_pack */
	uint32_t message;               /* longest message it receives */
	uint32_t receives;              /* posted receives */
	uint64_t largest;               /* worker: largest payload by key */
	uint32_t crc;                   /* CRC-32C of all before it */
	uint32_t unused;                /* not passed */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_address, crc) + 4 == INLAY_TASK_ADDRESS, "no holes");

/* Fills in what all addresses have, and the checksum. */
INLAY_COLD void inlay_task_address_seal_(struct inlay_task_address *a)
{
	__builtin_memcpy(a->magic, "inlaytsk", 8);
	a->version = INLAY_TASK_VERSION;
	a->bytes = INLAY_TASK_ADDRESS;
	a->crc = inlay_crc32c(a, INLAY_TASK_ADDRESS - 4);
}

/* Reads a peer's address. Errors as inlay_task_link_connect; on failure *a and *at are undefined. */
INLAY_COLD int inlay_task_address_read_(struct inlay_task_address *a, struct inlay_connect_record *at, const void *blob,
					size_t len, uint32_t role, const char **why)
{
	__builtin_memset(a, 0, sizeof(*a));
	if (blob && len >= INLAY_TASK_ADDRESS)
		__builtin_memcpy(a, blob, INLAY_TASK_ADDRESS);
	if (__builtin_memcmp(a->magic, "inlaytsk", 8) || a->version != INLAY_TASK_VERSION)
		return inlay_refuse_(-EPROTO, why, "not an address of this version of command tasks");
	if (len != INLAY_TASK_ADDRESS || a->bytes != INLAY_TASK_ADDRESS)
		return inlay_refuse_(-EINVAL, why, "the address has a wrong length");
	if (a->crc != inlay_crc32c(a, INLAY_TASK_ADDRESS - 4))
		return inlay_refuse_(-EBADMSG, why, "the address has a wrong checksum");
	if (inlay_connect_unpack(at, a->at, INLAY_CONNECT_SIZE, why))
		return -EINVAL;
	if (at->type != IBV_QPT_RC || a->role != role || a->message < INLAY_TASK_MESSAGE_MIN ||
	    a->message > INLAY_TASK_MESSAGE_MAX || !a->receives || a->receives > INLAY_TASK_RECEIVES_MAX ||
	    (role == INLAY_TASK_HOST && a->largest))
		return inlay_refuse_(-EINVAL, why, "the address has another role, or a number out of its range");
	return 0;
}

/* ---- Set-up: one end of a connection ---- */

/* What inlay_task_link_create makes a link from. */
struct inlay_task_caps {
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;            /* of both directions */
	struct inlay_cq *cq;            /* of ibcq, to reserve CQEs in; NULL: the caller keeps count */
	struct inlay_uar *uar;          /* from inlay_uar_create; NULL: the link's own, or else the QP's */
	uint32_t sends;                 /* messages of the greatest length in the send queue */
	uint32_t max_inline;            /* bytes */
	uint32_t max_gather;            /* SGEs of a message besides its inline part */
	uint32_t access;                /* IBV_ACCESS_REMOTE_*: what the peer may do through the QP */
};

/* CQEs for each of `sends`: up to 12 WQEBBs, and the ring is rounded up to a power of two. */
#define INLAY_TASK_CQES_ 24u

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_link {
	struct inlay_sq sq;
	struct inlay_rq rq __attribute__((aligned(INLAY_CACHE_LINE)));
	struct inlay_uar own __attribute__((aligned(INLAY_CACHE_LINE)));
	struct ibv_qp *qp;              /* NULL: the queues have no verbs object */
	struct inlay_connect_attr path;
	struct inlay_connect_record at;
	struct inlay_task_address self;
	struct inlay_task_address peer; /* zero until connected */
	uint8_t drained;                /* inlay_task_link_drain_ has posted */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_link, sq) == 0, "a short post touches one line of its queue");

/* Destroys the QP and the link's own register. Returns 0; -EBUSY when one is in use: call again. */
INLAY_COLD int inlay_task_link_destroy(struct inlay_task_link *l)
{
	if (l->qp && ibv_destroy_qp(l->qp))
		return -EBUSY;
	l->qp = NULL;
	inlay_sq_fini(&l->sq);
	inlay_rq_fini(&l->rq);
	return l->own.td && inlay_uar_destroy(&l->own, NULL) ? -EBUSY : 0;
}

/* The negative errno of a verbs call that failed; sets *why. */
INLAY_COLD int inlay_task_errno_(const char **why, const char *text)
{
	return inlay_refuse_(errno ? -errno : -ENOMEM, why, text);
}

/*
 * Makes one end: a QP in INIT, its queues and its address, l->self.
 *
 * l     zeroed, but for role, message, receives (a power of two) and largest of l->self
 * path  copied, with access from caps
 *
 * Returns 0; -EINVAL for a path that is out of range, or without timeout; -ENOTSUP when the device
 * is not mlx5; -ENOSPC when the CQ has too few CQEs left; else an error of inlay_connect_local, or
 * the negative errno of the verbs call that failed.
 */
INLAY_COLD int inlay_task_link_create(struct inlay_task_link *l, const struct inlay_task_caps *caps,
				      const struct inlay_connect_attr *path, const char **why)
{
	struct inlay_uar *uar = caps->uar ? caps->uar : &l->own;
	struct ibv_qp_init_attr_ex init;
	struct mlx5dv_qp_init_attr dv;
	int err = 0;

	if (!path->timeout)
		return inlay_refuse_(-EINVAL, why, "without a timeout a dead peer is never noticed");
	l->path = *path;
	l->path.access = caps->access;
	if (!caps->uar)
		err = inlay_uar_create(uar, caps->pd, INLAY_UAR_SERIAL, why);
	if (err && err != -ENOTSUP)
		return err;
	__builtin_memset(&init, 0, sizeof(init));
	__builtin_memset(&dv, 0, sizeof(dv));
	init.qp_type = IBV_QPT_RC;
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	init.pd = uar->td ? uar->pd : caps->pd;
	init.send_cq = init.recv_cq = caps->ibcq;
	init.cap.max_inline_data = caps->max_inline;
	init.cap.max_send_sge = caps->max_gather + 1;
	init.cap.max_recv_sge = 1;
	init.cap.max_recv_wr = l->self.receives;
	init.cap.max_send_wr = caps->sends;
	/* No message may be scattered to its CQE. */
	dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
	dv.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
	errno = 0;
	l->qp = mlx5dv_create_qp(caps->pd->context, &init, &dv);
	err = l->qp ? 0 : inlay_task_errno_(why, "mlx5dv_create_qp failed");
	if (!err && !uar->td)
		err = inlay_uar_from_qp(&l->own, l->qp, why);
	if (!err)
		err = inlay_sq_from_qp(&l->sq, l->qp, uar->td ? uar : &l->own, caps->cq, why);
	if (!err)
		err = inlay_rq_from_qp(&l->rq, l->qp, caps->cq, why);
	if (!err)
		err = inlay_connect_local(&l->at, l->qp, &l->path, why);
	if (err) {
		inlay_task_link_destroy(l);
		return err;
	}
	inlay_connect_pack(&l->at, l->self.at);
	inlay_task_address_seal_(&l->self);
	return 0;
}

/*
 * Connects the QP, to RTS, to a peer of this role, by its address. Post receives first.
 *
 * Returns 0. Nothing has changed after -EBADFD, it was connected before; -EPROTO, less than an
 * address, another magic or version; -EBADMSG, a wrong checksum; -EINVAL, a wrong length, another
 * role, or a field out of range. After an error of inlay_connect_rts, destroy the link.
 */
INLAY_COLD int inlay_task_link_connect(struct inlay_task_link *l, const void *blob, size_t len, uint32_t role, const char **why)
{
	struct inlay_connect_record at;
	struct inlay_task_address peer;
	int err;

	if (l->peer.role)
		return inlay_refuse_(-EBADFD, why, "it was connected before");
	err = inlay_task_address_read_(&peer, &at, blob, len, role, why);
	if (!err)
		err = inlay_connect_rts(l->qp, &l->at, &at, &l->path, why);
	if (!err)
		l->peer = peer;
	return err;
}

/* Moves the QP to the error state: everything is flushed. Returns 0 or a negative errno. */
INLAY_COLD int inlay_task_link_break(struct inlay_task_link *l)
{
	struct ibv_qp_attr a;

	__builtin_memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_ERR;
	return -ibv_modify_qp(l->qp, &a, IBV_QP_STATE);
}

/* Posts a NOP whose completion returns all before it, signaled or not. Returns 1 if there was room. */
INLAY_COLD uint8_t inlay_task_link_mark_(struct inlay_task_link *l)
{
	return !inlay_post(&l->sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED | INLAY_RING);
}

/* The same once, behind all else, when the queue has failed: unsignaled WQEs may have no CQE. */
INLAY_COLD void inlay_task_link_drain_(struct inlay_task_link *l)
{
	if (!l->drained)
		l->drained = inlay_task_link_mark_(l);
}

/* Whether all WQEs before `index` are done. An index 2^32 old may briefly look pending. */
INLAY_ALWAYS int inlay_task_link_done_(const struct inlay_task_link *l, uint32_t index)
{
	return inlay_sq_index(&l->sq) - index >= inlay_sq_pending(&l->sq);
}

/* Places an object at *at, and moves *at past it. */
INLAY_COLD void *inlay_task_place_(uintptr_t *at, uint64_t bytes)
{
	uintptr_t begin = *at;

	*at += (uintptr_t)inlay_round_up(bytes, INLAY_CACHE_LINE);
	return (void *)begin;
}

/* A CQ of n CQEs; channel may be NULL. Returns 0 or a negative errno. */
INLAY_COLD int inlay_task_cq_make_(struct inlay_cq *cq, struct ibv_cq **ibcq, struct ibv_comp_channel *channel,
				   struct ibv_pd *pd, uint64_t n, const char **why)
{
	errno = 0;
	*ibcq = ibv_create_cq(pd->context, (int)n, NULL, channel, 0);
	return *ibcq ? inlay_cq_from_cq(cq, *ibcq, why) : inlay_task_errno_(why, "ibv_create_cq failed");
}

INLAY_COLD int inlay_task_cq_free_(struct ibv_cq **ibcq)
{
	if (*ibcq && ibv_destroy_cq(*ibcq))
		return -EBUSY;
	*ibcq = NULL;
	return 0;
}

/* ---- Data path: messages ---- */

INLAY_ALWAYS uint64_t inlay_task_get64_(const uint8_t *at)
{
	uint64_t value;

	__builtin_memcpy(&value, at, sizeof(value));
	return value;
}

INLAY_ALWAYS uint32_t inlay_task_get32_(const uint8_t *at)
{
	uint32_t value;

	__builtin_memcpy(&value, at, sizeof(value));
	return value;
}

/* The first 8 bytes of a head. */
INLAY_ALWAYS uint64_t inlay_task_first_(uint32_t kind, uint32_t flags_or_status, uint32_t length)
{
	return (uint64_t)length << 32 | (flags_or_status << 16 | kind << 8 | INLAY_TASK_VERSION);
}

INLAY_ALWAYS void inlay_task_head_write_(uint8_t *at, uint64_t first, const struct inlay_task_ids *ids)
{
	inlay_put64(at, first);
	__builtin_memcpy(at + 8, ids, sizeof(*ids));
}

/* Writes a key at *at, and moves *at past it. */
INLAY_FN void inlay_task_key_write_(uint8_t **at, uint32_t rkey, uint64_t bytes)
{
	inlay_put64(*at, rkey);
	inlay_put64(*at + 8, bytes);
	*at += INLAY_TASK_KEY;
}

/* Reads a key, and subtracts its bytes from *left. Returns 0 or -EBADMSG. */
INLAY_FN int inlay_task_key_read_(struct inlay_task_key *key, const uint8_t *at, uint32_t *left)
{
	if (*left < INLAY_TASK_KEY)
		return -EBADMSG;
	key->rkey = inlay_task_get32_(at);
	key->bytes = inlay_task_get64_(at + 8);
	*left -= INLAY_TASK_KEY;
	return inlay_task_get32_(at + 4) || !key->bytes || key->bytes > INLAY_SGE_MAX ? -EBADMSG : 0;
}

/*
 * Reads a message; bytes: the device's count. Returns 0 if head, keys and lengths agree, else
 * -EBADMSG. Then m->ids are the head's if it is whole and of this version, so that it can be
 * answered; otherwise the context is all ones, which no task has.
 */
INLAY_FN int inlay_task_message_read_(struct inlay_task_message *m, const uint8_t *msg, uint32_t bytes)
{
	uint32_t word, left = bytes - INLAY_TASK_HEAD;

	/* One by one: compilers would call memset. */
	m->ids.context = UINT64_MAX;
	m->ids.plugin = m->ids.destination = m->payload.bytes = m->response.bytes = 0;
	m->payload.rkey = m->response.rkey = m->kind = m->flags = m->length = m->at = 0;
	m->status = 0;
	if (bytes < INLAY_TASK_HEAD || msg[0] != INLAY_TASK_VERSION)
		return -EBADMSG;
	m->kind = msg[1];
	word = inlay_task_get32_(msg) >> 16;
	m->length = inlay_task_get32_(msg + 4);
	__builtin_memcpy(&m->ids, msg + 8, sizeof(m->ids));
	if (m->kind == INLAY_TASK_COMMAND) {
		m->flags = word;
		if (word > (INLAY_TASK_PAYLOAD_KEY | INLAY_TASK_RESPONSE_KEY) ||
		    (word & INLAY_TASK_PAYLOAD_KEY && inlay_task_key_read_(&m->payload, msg + bytes - left, &left)) ||
		    (word & INLAY_TASK_RESPONSE_KEY && inlay_task_key_read_(&m->response, msg + bytes - left, &left)))
			return -EBADMSG;
	} else if (m->kind < INLAY_TASK_ANSWER || m->kind > INLAY_TASK_WRITTEN || word > INLAY_TASK_STATUS_MAX) {
		return -EBADMSG;
	} else {
		m->status = -(int)word;
	}
	m->at = bytes - left;
	if (m->kind == INLAY_TASK_WRITTEN)
		return left ? -EBADMSG : 0;
	if (m->flags & INLAY_TASK_PAYLOAD_KEY)
		return left || m->payload.bytes != m->length ? -EBADMSG : 0;
	return left != m->length ? -EBADMSG : 0;
}

/* WQEBBs of a message with so many bytes inline, and SGEs. */
INLAY_ALWAYS uint32_t inlay_task_bbs_(uint32_t bytes, uint32_t sges)
{
	return (1 + (4 + bytes + INLAY_DS - 1) / INLAY_DS + sges + 3) / 4;
}

/*
 * Posts a message with its data inline. One that reaches the end of a half of the ring, of half + 1
 * WQEBBs, is signaled, to return credit. Returns 0, or -EAGAIN when the ring is full.
 *
 *   +0   ctrl     SEND, index, QPN, DS
 *   +16  inline   byte count | head of 32 bytes | 12 bytes of data, and more
 */
INLAY_ALWAYS int inlay_task_post_inline_(struct inlay_sq *sq, uint64_t first, const struct inlay_task_ids *ids, const void *data,
				     uint32_t len, uint32_t half, uint32_t flags)
{
	uint32_t bbs = inlay_task_bbs_(INLAY_TASK_HEAD + len, 0);
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(inlay_sq_begin(sq, bbs, &at)))
		return -EAGAIN;
	inlay_copy_wrap_(at, at.wqe + INLAY_WQEBB - INLAY_TASK_SHORT, data, len);
	inlay_put32(at.wqe + INLAY_DS, inlay_to_be32((INLAY_TASK_HEAD + len) | (uint32_t)MLX5_INLINE_SEG));
	inlay_task_head_write_(at.wqe + INLAY_DS + 4, first, ids);
	at.ds = (INLAY_DS + 4 + INLAY_TASK_HEAD + len + INLAY_DS - 1) / INLAY_DS;
	if ((at.index & half) + bbs > half)
		flags |= INLAY_SIGNALED;
	return inlay_sq_finish_(sq, at, MLX5_OPCODE_SEND, 0, flags, 0);
}

/* As above: head, `bytes` long with its keys, inline, then num SGEs, none empty. */
INLAY_APART int inlay_task_post_sges_(struct inlay_sq *sq, const uint8_t *head, uint32_t bytes, const struct ibv_sge *sge,
				      uint32_t num, uint32_t half, uint32_t flags)
{
	uint32_t bbs = inlay_task_bbs_(bytes, num);
	struct inlay_cursor at;

	if (INLAY_UNLIKELY(inlay_sq_begin(sq, bbs, &at)))
		return -EAGAIN;
	at = inlay_seg_sges(inlay_seg_inline(at, head, bytes), sge, num);
	if ((at.index & half) + bbs > half)
		flags |= INLAY_SIGNALED;
	return inlay_sq_finish_(sq, at, MLX5_OPCODE_SEND, 0, flags, 0);
}

#endif
