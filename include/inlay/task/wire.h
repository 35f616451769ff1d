/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/wire.h: what host and worker say to each other: one definition of every message, written and read by the functions here alone.
 *
 * A message is one send of a reliable connection: a head of 32 bytes and what belongs to it. All fields are little-endian, at fixed places,
 * whatever compiler, language or machine either side has. No address of either side's memory, no local key and no struct of a compiler is
 * in it.
 *
 *   command, host to worker                                     answer, worker to host
 *
 *   +0   version      1   INLAY_TASK_WIRE                       +0   version      1
 *   +1   kind         1   INLAY_TASK_COMMAND                    +1   kind         1   INLAY_TASK_ANSWER, _WRITTEN, _REFUSED
 *   +2   flags        2   INLAY_TASK_PAYLOAD_KEY, ...           +2   status       2   0, or an errno of Linux, 1 .. 4095
 *   +4   length       4   bytes of payload                      +4   length       4   bytes of response
 *   +8   context      8   the host's, echoed                    +8   context      8   the command's
 *   +16  plugin       8   whom it is for                        +16  plugin       8   the command's
 *   +24  destination  8   for the plugin, echoed                +24  destination  8   the command's
 *   +32  payload key  16  with INLAY_TASK_PAYLOAD_KEY           +32  response         the message's rest, none of it
 *   +..  response key 16  with INLAY_TASK_RESPONSE_KEY                                with INLAY_TASK_WRITTEN
 *   +..  payload          the message's rest, none of it
 *                         with INLAY_TASK_PAYLOAD_KEY
 *
 *   key
 *   +0   rkey         4   of a memory window of type 2
 *   +4   reserved     4   0
 *   +8   bytes        8   what may be reached, from address 0 of the window on
 *
 * Keys. What a key on the wire may be: the key of a memory window of type 2 that the host has bound on this very connection, for this very
 * command, with addresses from 0 on. So it says nothing about where the host's memory is; nobody can use it but the worker's end of this
 * queue pair; it opens the bytes of one payload for reading, or of one response buffer for writing; and the host closes it before it
 * completes the task. A payload's window has `length` bytes.
 *
 * Context. An index and a generation, made by the host and found there in a table: see inlay_task_context. To the worker it is eight bytes
 * to be given back. It is never a pointer, and a task that the host completes is the one that its table holds under index and generation,
 * or none. First generations are far from each other, so that one flipped bit names nobody. The context alone decides: what an answer
 * echoes of plugin and destination is for who reads the wire, and is not compared.
 *
 * Lengths. A message says its length twice: by its head, and by the device's byte count. Both must agree to the byte. What is added is
 * compared before it is added, in 64 bits, so that nothing wraps.
 *
 * Status. By kind: an ANSWER's or WRITTEN's is the handler's own (0: success). REFUSED: no handler has seen the command to its end;
 * the worker itself says why:
 *
 *   EBADMSG   malformed: the head, a flag, a length or a key that cannot be
 *   ENOENT    no such plugin
 *   E2BIG     a payload by key larger than the worker takes
 *
 * Credit. A worker has so many receives posted for a connection as its address says, and posts one anew before it answers a command. So an
 * answer is also the credit for one command, and needs no field. A host has at least as many receives posted as it may have commands
 * outstanding.
 *
 * The address blob, by which both sides find each other, is passed by the caller through a channel of his own:
 *
 *   +0   magic        8   "inlaytsk"
 *   +8   version      2   INLAY_TASK_WIRE
 *   +10  role         1   INLAY_TASK_HOST or INLAY_TASK_WORKER
 *   +11  link         1   1 InfiniBand, 2 Ethernet
 *   +12  length       4   of the blob: INLAY_TASK_ADDRESS
 *   +16  GID          16  as the network has it
 *   +32  LID          2
 *   +34  MTU          1   enum ibv_mtu
 *   +35  reads        1   RDMA reads and atomics that it answers at once, as ibv_qp_attr.max_dest_rd_atomic
 *   +36  QPN          4   24 bits
 *   +40  PSN          4   24 bits
 *   +44  message      4   bytes of the longest message that it receives
 *   +48  receives     4   that it has posted: a worker's credits, a host's most commands outstanding
 *   +52  reserved     4   0
 *   +56  largest      8   a worker's: largest payload by key that it reads; 0: none. A host's: 0
 *   +64  id           8   the worker's, or whatever the caller says
 *   +72  checksum     4   CRC-32C of all before it
 *
 * Threads: pure functions of their arguments.
 * Sources: DOCA's documentation of doca_urom (urom_worker_cmd, urom_worker_notify); the errno numbers of Linux on x86-64 and aarch64; RFC
 * 3720, appendix B.4 (CRC-32C).
 */
#ifndef INLAY_TASK_WIRE_H
#define INLAY_TASK_WIRE_H

#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/mmap/blob.h>
#include <inlay/wqe.h>

#define INLAY_TASK_WIRE 1u              /* version */
#define INLAY_TASK_HEAD 32u             /* bytes of a head */
#define INLAY_TASK_KEY 16u              /* bytes of a key */
#define INLAY_TASK_AT (INLAY_DS + 4 + INLAY_TASK_HEAD) /* where payload or response begins in a WQE that has it inline */
#define INLAY_TASK_ADDRESS 76u          /* bytes of an address blob */
#define INLAY_TASK_MESSAGE_MIN 64u      /* a message may be so long at least: a head and both keys */
#define INLAY_TASK_MESSAGE_MAX (1u << 24)
#define INLAY_TASK_RECEIVES_MAX 32768u
#define INLAY_TASK_STATUS_MAX 4095

enum inlay_task_kind {
	INLAY_TASK_COMMAND = 1,
	INLAY_TASK_ANSWER = 2,          /* the response is in the message */
	INLAY_TASK_WRITTEN = 3,         /* the response was written to the response key */
	INLAY_TASK_REFUSED = 4,         /* the worker's own word: no response */
};

enum inlay_task_flags {
	INLAY_TASK_PAYLOAD_KEY = 1,     /* the payload is to be read by a key */
	INLAY_TASK_RESPONSE_KEY = 2,    /* a response may be written by a key */
};

enum inlay_task_role {
	INLAY_TASK_HOST = 1,
	INLAY_TASK_WORKER = 2,
};

struct inlay_task_key {
	uint32_t rkey;                  /* host order */
	uint64_t bytes;
};

/* A command's head, in host order */
struct inlay_task_command {
	uint64_t context;
	uint64_t plugin;
	uint64_t destination;
	uint32_t flags;                 /* enum inlay_task_flags */
	uint32_t length;                /* of the payload */
	struct inlay_task_key payload;  /* with INLAY_TASK_PAYLOAD_KEY, else 0 */
	struct inlay_task_key response; /* with INLAY_TASK_RESPONSE_KEY, else 0 */
	uint32_t at;                    /* where in the message the payload begins, or would */
};

/* An answer's head, in host order */
struct inlay_task_answer {
	uint64_t context;
	uint64_t plugin;
	uint64_t destination;
	uint32_t kind;                  /* INLAY_TASK_ANSWER, _WRITTEN or _REFUSED */
	uint32_t length;                /* of the response */
	int status;                     /* 0 or a negative errno */
};

/* What an address blob says */
struct inlay_task_address {
	union ibv_gid gid;
	uint64_t largest;
	uint64_t id;
	uint32_t qpn;
	uint32_t psn;
	uint32_t message;
	uint32_t receives;
	uint16_t lid;
	uint8_t role;                   /* enum inlay_task_role */
	uint8_t link;                   /* IBV_LINK_LAYER_INFINIBAND or IBV_LINK_LAYER_ETHERNET */
	uint8_t mtu;                    /* enum ibv_mtu */
	uint8_t reads;
};

INLAY_STATIC_ASSERT(IBV_LINK_LAYER_INFINIBAND == 1 && IBV_LINK_LAYER_ETHERNET == 2, "the blob's numbers are verbs'");
INLAY_STATIC_ASSERT(INLAY_TASK_MESSAGE_MIN == INLAY_TASK_HEAD + 2 * INLAY_TASK_KEY, "every command that is sent by keys fits");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: addresses
 */

/* Writes the blob, INLAY_TASK_ADDRESS bytes. */
INLAY_COLD void inlay_task_address_write(uint8_t *blob, const struct inlay_task_address *a)
{
	__builtin_memcpy(blob, "inlaytsk", 8);
	inlay_blob_put(blob + 8, INLAY_TASK_WIRE, 2);
	inlay_blob_put(blob + 10, a->role, 1);
	inlay_blob_put(blob + 11, a->link, 1);
	inlay_blob_put(blob + 12, INLAY_TASK_ADDRESS, 4);
	__builtin_memcpy(blob + 16, a->gid.raw, 16);
	inlay_blob_put(blob + 32, a->lid, 2);
	inlay_blob_put(blob + 34, a->mtu, 1);
	inlay_blob_put(blob + 35, a->reads, 1);
	inlay_blob_put(blob + 36, a->qpn, 4);
	inlay_blob_put(blob + 40, a->psn, 4);
	inlay_blob_put(blob + 44, a->message, 4);
	inlay_blob_put(blob + 48, a->receives, 4);
	inlay_blob_put(blob + 52, 0, 4);
	inlay_blob_put(blob + 56, a->largest, 8);
	inlay_blob_put(blob + 64, a->id, 8);
	inlay_blob_put(blob + 72, inlay_crc32c(blob, 72), 4);
}

/*
 * Reads a blob and believes nothing of it before it is checked.
 *
 * role  which one it must be of: INLAY_TASK_HOST or INLAY_TASK_WORKER
 * len   bytes that there are
 *
 * Returns 0; -EPROTO when it is shorter than a blob, or has another magic or version; -EBADMSG for a wrong checksum; -EINVAL for a length,
 * role or any other field that cannot be. On failure *a is undefined.
 */
INLAY_COLD int inlay_task_address_read(struct inlay_task_address *a, const void *blob, size_t len, uint32_t role)
{
	const uint8_t *at = (const uint8_t *)blob;

	if (!at || len < INLAY_TASK_ADDRESS || __builtin_memcmp(at, "inlaytsk", 8) || inlay_blob_get(at + 8, 2) != INLAY_TASK_WIRE)
		return -EPROTO;
	if (len != INLAY_TASK_ADDRESS || inlay_blob_get(at + 12, 4) != INLAY_TASK_ADDRESS)
		return -EINVAL;
	if (inlay_blob_get(at + 72, 4) != inlay_crc32c(at, 72))
		return -EBADMSG;
	__builtin_memset(a, 0, sizeof(*a));
	a->role = at[10];
	a->link = at[11];
	__builtin_memcpy(a->gid.raw, at + 16, 16);
	a->lid = (uint16_t)inlay_blob_get(at + 32, 2);
	a->mtu = at[34];
	a->reads = at[35];
	a->qpn = (uint32_t)inlay_blob_get(at + 36, 4);
	a->psn = (uint32_t)inlay_blob_get(at + 40, 4);
	a->message = (uint32_t)inlay_blob_get(at + 44, 4);
	a->receives = (uint32_t)inlay_blob_get(at + 48, 4);
	a->largest = inlay_blob_get(at + 56, 8);
	a->id = inlay_blob_get(at + 64, 8);
	if (a->role != role || (a->link != IBV_LINK_LAYER_INFINIBAND && a->link != IBV_LINK_LAYER_ETHERNET) || inlay_blob_get(at + 52, 4))
		return -EINVAL;
	if (a->mtu < IBV_MTU_256 || a->mtu > IBV_MTU_4096 || a->qpn >> 24 || a->psn >> 24)
		return -EINVAL;
	if (a->message < INLAY_TASK_MESSAGE_MIN || a->message > INLAY_TASK_MESSAGE_MAX)
		return -EINVAL;
	if (!a->receives || a->receives > INLAY_TASK_RECEIVES_MAX)
		return -EINVAL;
	return role == INLAY_TASK_HOST && a->largest ? -EINVAL : 0;
}

/* ------------------------------------------------------------------------------------------------------------------------
 * Data path
 */

/* Little-endian words at any place; the machine is little-endian (base.h). */
INLAY_ALWAYS uint64_t inlay_task_get64(const uint8_t *at)
{
	uint64_t value;

	__builtin_memcpy(&value, at, sizeof(value));
	return value;
}

INLAY_ALWAYS uint32_t inlay_task_get32(const uint8_t *at)
{
	uint32_t value;

	__builtin_memcpy(&value, at, sizeof(value));
	return value;
}

/* A task's context: its index below its generation. */
INLAY_ALWAYS uint64_t inlay_task_context(uint32_t index, uint32_t generation)
{
	return (uint64_t)generation << 32 | index;
}

INLAY_ALWAYS uint32_t inlay_task_context_index(uint64_t context)
{
	return (uint32_t)context;
}

/* The first 8 bytes of a head: version, kind, flags or status, length. */
INLAY_ALWAYS uint64_t inlay_task_first(uint32_t kind, uint32_t flags_or_status, uint32_t length)
{
	return (uint64_t)length << 32 | (flags_or_status << 16 | kind << 8 | INLAY_TASK_WIRE);
}

/* Writes a head: both sides' and both kinds'. The flags or the status must fit 16 bits. */
INLAY_ALWAYS void inlay_task_head_write(uint8_t *at, uint64_t first, uint64_t context, uint64_t plugin, uint64_t destination)
{
	inlay_put64(at, first);
	inlay_put64(at + 8, context);
	inlay_put64(at + 16, plugin);
	inlay_put64(at + 24, destination);
}

INLAY_ALWAYS void inlay_task_key_write(uint8_t *at, const struct inlay_task_key *key)
{
	inlay_put64(at, key->rkey);
	inlay_put64(at + 8, key->bytes);
}

/* Bytes of a command's head with the keys that these flags add. */
INLAY_ALWAYS uint32_t inlay_task_command_head(uint32_t flags)
{
	return INLAY_TASK_HEAD + (flags & INLAY_TASK_PAYLOAD_KEY ? INLAY_TASK_KEY : 0) +
	       (flags & INLAY_TASK_RESPONSE_KEY ? INLAY_TASK_KEY : 0);
}

/* Bytes of payload that a message of this many bytes has room for beside a head without keys; likewise of response. */
INLAY_ALWAYS uint32_t inlay_task_room(uint32_t message)
{
	return message - INLAY_TASK_HEAD;
}

/*
 * Writes a command's head and keys to inlay_task_command_head(c->flags) bytes at `at`; c->at is not looked at. Returns how many bytes that
 * were. The payload, if it is not by key, is to follow.
 */
INLAY_ALWAYS uint32_t inlay_task_command_write(uint8_t *at, const struct inlay_task_command *c)
{
	uint32_t bytes = INLAY_TASK_HEAD;

	inlay_task_head_write(at, inlay_task_first(INLAY_TASK_COMMAND, c->flags, c->length), c->context, c->plugin, c->destination);
	if (c->flags & INLAY_TASK_PAYLOAD_KEY) {
		inlay_task_key_write(at + bytes, &c->payload);
		bytes += INLAY_TASK_KEY;
	}
	if (c->flags & INLAY_TASK_RESPONSE_KEY) {
		inlay_task_key_write(at + bytes, &c->response);
		bytes += INLAY_TASK_KEY;
	}
	return bytes;
}

/* Reads the key at this place of a message, which has been found long enough. Returns 0, or -EBADMSG for one that cannot be. */
INLAY_FN int inlay_task_key_read(struct inlay_task_key *key, const uint8_t *at)
{
	key->rkey = inlay_task_get32(at);
	key->bytes = inlay_task_get64(at + 8);
	return inlay_task_get32(at + 4) || !key->bytes || key->bytes > 1ull << 31 ? -EBADMSG : 0;
}

/*
 * Reads a command.
 *
 * bytes  of the message, by the device's count
 *
 * Returns 0 when head, keys and lengths are right: then c->at + c->length == bytes, or, with INLAY_TASK_PAYLOAD_KEY, c->at == bytes and
 * c->length == c->payload.bytes. Else -EBADMSG: then c->context, plugin and destination are what the head says as far as there is a whole
 * head of this version, so that it can be answered; if not, the context is all ones, which no task has, and the others are 0. The rest is
 * undefined.
 */
INLAY_FN int inlay_task_command_read(struct inlay_task_command *c, const uint8_t *msg, uint32_t bytes)
{
	uint32_t kind;

	c->context = UINT64_MAX;
	c->plugin = c->destination = 0;
	c->flags = c->length = c->at = 0;
	c->payload.rkey = c->response.rkey = 0;
	c->payload.bytes = c->response.bytes = 0;
	if (bytes < INLAY_TASK_HEAD || msg[0] != INLAY_TASK_WIRE)
		return -EBADMSG;
	kind = msg[1];
	c->flags = inlay_task_get32(msg) >> 16;
	c->length = inlay_task_get32(msg + 4);
	c->context = inlay_task_get64(msg + 8);
	c->plugin = inlay_task_get64(msg + 16);
	c->destination = inlay_task_get64(msg + 24);
	if (kind != INLAY_TASK_COMMAND || c->flags & ~(uint32_t)(INLAY_TASK_PAYLOAD_KEY | INLAY_TASK_RESPONSE_KEY))
		return -EBADMSG;
	c->at = inlay_task_command_head(c->flags);
	if (bytes < c->at)
		return -EBADMSG;
	if (c->flags & INLAY_TASK_PAYLOAD_KEY && inlay_task_key_read(&c->payload, msg + INLAY_TASK_HEAD))
		return -EBADMSG;
	if (c->flags & INLAY_TASK_RESPONSE_KEY && inlay_task_key_read(&c->response, msg + c->at - INLAY_TASK_KEY))
		return -EBADMSG;
	if (c->flags & INLAY_TASK_PAYLOAD_KEY)
		return bytes == c->at && c->payload.bytes == c->length ? 0 : -EBADMSG;
	return bytes - c->at == c->length ? 0 : -EBADMSG;
}

/* A status as the wire has it: of a negative errno; what is none becomes EIO. */
INLAY_ALWAYS uint32_t inlay_task_status_wire(int status)
{
	return status <= 0 && status >= -INLAY_TASK_STATUS_MAX ? (uint32_t)-status : EIO;
}

/*
 * Writes an answer's head, INLAY_TASK_HEAD bytes. The response, if the kind is INLAY_TASK_ANSWER, is to follow.
 */
INLAY_ALWAYS void inlay_task_answer_write(uint8_t *at, const struct inlay_task_answer *a)
{
	uint64_t first = inlay_task_first(a->kind, inlay_task_status_wire(a->status), a->length);

	inlay_task_head_write(at, first, a->context, a->plugin, a->destination);
}

/*
 * Reads an answer.
 *
 * bytes  of the message, by the device's count
 *
 * Returns 0 when kind, status and lengths are right: INLAY_TASK_HEAD + a->length == bytes for INLAY_TASK_ANSWER; bytes == INLAY_TASK_HEAD
 * for the two others, and a->length is 0 and a->status is not for INLAY_TASK_REFUSED. Else -EBADMSG: a->context is what the head says as
 * far as there is a whole head of this version, and else all ones, which no task has; the rest is undefined.
 */
INLAY_FN int inlay_task_answer_read(struct inlay_task_answer *a, const uint8_t *msg, uint32_t bytes)
{
	uint32_t status;

	a->context = UINT64_MAX;
	a->plugin = a->destination = 0;
	a->kind = a->length = 0;
	a->status = 0;
	if (bytes < INLAY_TASK_HEAD || msg[0] != INLAY_TASK_WIRE)
		return -EBADMSG;
	a->kind = msg[1];
	status = inlay_task_get32(msg) >> 16;
	a->status = -(int)status;
	a->length = inlay_task_get32(msg + 4);
	a->context = inlay_task_get64(msg + 8);
	a->plugin = inlay_task_get64(msg + 16);
	a->destination = inlay_task_get64(msg + 24);
	if (status > INLAY_TASK_STATUS_MAX)
		return -EBADMSG;
	switch (a->kind) {
	case INLAY_TASK_ANSWER: return bytes - INLAY_TASK_HEAD == a->length ? 0 : -EBADMSG;
	case INLAY_TASK_WRITTEN: return bytes == INLAY_TASK_HEAD ? 0 : -EBADMSG;
	case INLAY_TASK_REFUSED: return bytes == INLAY_TASK_HEAD && !a->length && status ? 0 : -EBADMSG;
	default: return -EBADMSG;
	}
}

#endif
