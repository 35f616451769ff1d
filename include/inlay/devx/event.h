/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/event.h: queries that are answered later, and what the device tells unasked.
 *
 * Queries.  Any number of queries of objects under way at once, each with a number of the caller's that comes back with its answer, in the
 * order in which the device is done with them:
 *
 *   struct mlx5dv_devx_cmd_comp *answers;
 *   uint64_t buf[(INLAY_DEVX_ANSWER + 0x110) / 8];                    8 bytes, and the longest outbox
 *
 *   inlay_devx_answers_open(&answers, ctx);
 *   inlay_devx_query_async(obj, in, sizeof in, 0x110, 42, answers);   QUERY_QP
 *   ... poll(answers->fd) ...
 *   err = inlay_devx_answer(answers, buf, sizeof buf, &wr_id, &error);
 *   ... the outbox is at buf + 1, of the query that wr_id names ...
 *
 * Events.  A channel, what is subscribed to on it, and a file descriptor to poll:
 *
 *   struct mlx5dv_devx_event_channel *channel;
 *   struct inlay_devx_event event;
 *   uint16_t types[] = {INLAY_EVENT_WQ_CATAS_ERROR, INLAY_EVENT_SRQ_LAST_WQE};
 *
 *   inlay_devx_channel_open(&channel, ctx, INLAY_DEVX_NONBLOCK);
 *   inlay_devx_subscribe(channel, qp.obj, types, 2, 42);              42 is the cookie, which every event brings back
 *   ... poll(channel->fd) ...
 *   while (inlay_devx_event_get(channel, &event) == 0)
 *           if (event.cookie == 42 && event.type == INLAY_EVENT_SRQ_LAST_WQE) ...
 *
 * Where no more is needed than the cookie, INLAY_DEVX_OMIT_DATA leaves out what the device says, and of a subscription that has fired tells
 * once until it is read. An event of an object's own number needs a DEVX object: those of verbs have their own way, ibv_get_async_event.
 * A CQ's completions (type 0) are told when the CQ is armed: inlay_cq_arm.
 *
 * What the device says is an event queue's entry of 64 bytes:
 *
 *   +1   type      +3  subtype     +32  28 bytes of data, which depend on the type      +63  owner
 *
 * Destroying an object ends its subscriptions, closing a channel those on it.
 *
 * Threads: a channel, and an object for answers, may be read by one thread and subscribed to or asked by another.
 * Sources: mlx5dv_devx_obj_query_async(3), mlx5dv_devx_subscribe_devx_event(3), mlx5dv_devx_get_event(3); Linux,
 * infiniband/hw/mlx5/devx.c (what is read, limits, types), include/linux/mlx5/device.h (entries).
 */
#ifndef INLAY_DEVX_EVENT_H
#define INLAY_DEVX_EVENT_H

#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/devx/call.h>
#include <inlay/devx/ifc/cmd.h>

#define INLAY_DEVX_ANSWER 8u        /* bytes before the outbox of an answer */
#define INLAY_DEVX_SUBSCRIBE_MAX 16u /* types in one call */

enum inlay_devx_channel_flags {
	INLAY_DEVX_OMIT_DATA = 1,
	INLAY_DEVX_NONBLOCK = 2
};

/* What is known of an event. */
struct inlay_devx_event {
	uint64_t cookie;
	uint32_t number;      /* of the object; port of a port change; 0: not told */
	uint16_t object_type; /* of what is none of the above: type of the object (0xff00 + n, or a general object's); else 0 */
	uint8_t kind;         /* QP 0, RQ 1, SQ 2, DCT 6 where number is of one of these, else 0 */
	uint8_t syndrome;     /* CQ_ERROR */
	uint8_t type;         /* enum inlay_event_type */
	uint8_t subtype;      /* PORT_CHANGE: 1 down, 4 up */
	uint8_t bytes;        /* that came beside the cookie, 0 .. 64; what they do not hold is 0 here */
	uint8_t reserved[5];
	struct inlay_eqe eqe;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_devx_event) == 24 + 64, "no holes");
INLAY_STATIC_ASSERT(offsetof(struct mlx5dv_devx_async_cmd_hdr, out_data) == INLAY_DEVX_ANSWER, "the outbox of an answer");
INLAY_STATIC_ASSERT(offsetof(struct mlx5dv_devx_async_event_hdr, out_data) == 8, "an event behind its cookie");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/* ---- Queries ---- */

/* A place for answers. Returns 0, or the negative errno of mlx5dv_devx_create_cmd_comp. */
INLAY_COLD int inlay_devx_answers_open(struct mlx5dv_devx_cmd_comp **answers, struct ibv_context *ctx)
{
	INLAY_CHECK(answers && ctx, "no argument is NULL");
	errno = 0;
	*answers = mlx5dv_devx_create_cmd_comp(ctx);
	return *answers ? 0 : errno ? -errno : -ENOMEM;
}

/* Gives it back, with the answers that were not read. NULL: nothing. */
INLAY_COLD void inlay_devx_answers_close(struct mlx5dv_devx_cmd_comp *answers)
{
	if (answers)
		mlx5dv_devx_destroy_cmd_comp(answers);
}

/*
 * Asks for an object's state, and does not wait.
 *
 * in, inlen  inbox, as inlay_devx_query's; not needed afterwards
 * outlen     bytes of the outbox that is to come: 16 at least, whole dwords
 * wr_id      comes back with the answer
 *
 * Returns 0; -EINVAL for a box of a length that cannot be; -EAGAIN when more than 1 MiB of outboxes are outstanding there: read some; else
 * the negative errno of mlx5dv_devx_obj_query_async. What the device thinks of it comes with the answer.
 */
INLAY_COLD int inlay_devx_query_async(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, size_t outlen, uint64_t wr_id,
				      struct mlx5dv_devx_cmd_comp *answers)
{
	INLAY_CHECK(obj && answers, "no argument is NULL");
	if (!in || inlen < INLAY_DEVX_BOX || inlen > INLAY_DEVX_BOX_MAX || inlen % 4 || outlen < INLAY_DEVX_BOX ||
	    outlen > INLAY_DEVX_BOX_MAX || outlen % 4)
		return -EINVAL;
	return -mlx5dv_devx_obj_query_async(obj, in, inlen, outlen, wr_id, answers);
}

/*
 * Takes an answer; waits for it, unless the file descriptor was made not to.
 *
 * buf, len  aligned to 8. Its first 8 bytes are for inlay, the outbox is behind them and as long as was asked for; what is behind that is 0
 * wr_id     of the query that is answered
 * error     as inlay_devx_query's, but for opcode and op_mod, which an answer does not tell
 *
 * Returns 0; -EINVAL for a buffer of less than 8 + 16 bytes; -ENOSPC when this answer is longer than the buffer: it stays; -EAGAIN when
 * there is none; -EIO when the device is gone; else the negative errno of the outbox's status, and *wr_id is set: -EIO, and status 0xff,
 * for an answer without one. *wr_id is UINT64_MAX, and error->status 0, when no answer was taken.
 */
INLAY_COLD int inlay_devx_answer(struct mlx5dv_devx_cmd_comp *answers, uint64_t *buf, size_t len, uint64_t *wr_id,
				 struct inlay_devx_error *error)
{
	int err = -EINVAL;

	INLAY_CHECK(answers && buf && wr_id, "no argument is NULL");
	*wr_id = UINT64_MAX;
	if (error)
		__builtin_memset(error, 0, sizeof(*error));
	if (len >= INLAY_DEVX_ANSWER + INLAY_DEVX_BOX) {
		__builtin_memset(buf, 0, len);
		/* libmlx5 does not say how much it has read: an answer that ends before its status must not look like a good one. */
		((uint8_t *)(buf + 1))[0] = 0xff;
		err = -mlx5dv_devx_get_async_cmd_comp(answers, (struct mlx5dv_devx_async_cmd_hdr *)(void *)buf, len);
	}
	if (err) {
		if (error)
			error->err = err;
		return err;
	}
	*wr_id = buf[0];
	return inlay_devx_end(0, buf + 1, error);
}

/* ---- Events ---- */

/*
 * A channel for events.
 *
 * flags  INLAY_DEVX_OMIT_DATA, INLAY_DEVX_NONBLOCK, both or neither
 *
 * Returns 0; -EINVAL for other flags; else the negative errno of mlx5dv_devx_create_event_channel or fcntl. On failure *channel is NULL.
 */
INLAY_COLD int inlay_devx_channel_open(struct mlx5dv_devx_event_channel **channel, struct ibv_context *ctx, uint32_t flags)
{
	int mode, err;

	INLAY_CHECK(channel && ctx, "no argument is NULL");
	*channel = NULL;
	if (flags & ~(uint32_t)(INLAY_DEVX_OMIT_DATA | INLAY_DEVX_NONBLOCK))
		return -EINVAL;
	errno = 0;
	*channel = mlx5dv_devx_create_event_channel(ctx, (enum mlx5dv_devx_create_event_channel_flags)(flags & INLAY_DEVX_OMIT_DATA));
	if (!*channel)
		return errno ? -errno : -ENOMEM;
	if (flags & INLAY_DEVX_NONBLOCK) {
		mode = fcntl((*channel)->fd, F_GETFL);
		if (mode < 0 || fcntl((*channel)->fd, F_SETFL, mode | O_NONBLOCK)) {
			err = -errno;
			mlx5dv_devx_destroy_event_channel(*channel);
			*channel = NULL;
			return err;
		}
	}
	return 0;
}

/* Closes it, and with it ends all that was subscribed to on it. NULL: nothing. */
INLAY_COLD void inlay_devx_channel_close(struct mlx5dv_devx_event_channel *channel)
{
	if (channel)
		mlx5dv_devx_destroy_event_channel(channel);
}

/*
 * Subscribes.
 *
 * obj       whose events; NULL: those of no object, a port's for instance
 * types, n  enum inlay_event_type, 1 .. INLAY_DEVX_SUBSCRIBE_MAX of them
 * cookie    comes back with each event
 *
 * Returns 0; -EINVAL for a number of types that cannot be, or a type that the kernel or the device does not give; else the negative errno
 * of mlx5dv_devx_subscribe_devx_event. On failure nothing is subscribed to.
 */
INLAY_COLD int inlay_devx_subscribe(struct mlx5dv_devx_event_channel *channel, struct mlx5dv_devx_obj *obj, const uint16_t *types,
				    uint32_t n, uint64_t cookie)
{
	uint16_t copy[INLAY_DEVX_SUBSCRIBE_MAX];

	INLAY_CHECK(channel && types, "no argument is NULL");
	if (!n || n > INLAY_DEVX_SUBSCRIBE_MAX)
		return -EINVAL;
	__builtin_memcpy(copy, types, n * sizeof(*types));
	return -mlx5dv_devx_subscribe_devx_event(channel, obj, (uint16_t)(n * sizeof(*types)), copy, cookie);
}

/*
 * Subscribes an eventfd, whose counter goes up by one with each event of this type; the channel then tells nothing of it, but must stay
 * open.
 *
 * fd  of eventfd(2)
 *
 * Returns as inlay_devx_subscribe does, -EBADF for a file descriptor that is not open, -EINVAL for one that is not an eventfd.
 */
INLAY_COLD int inlay_devx_subscribe_fd(struct mlx5dv_devx_event_channel *channel, int fd, struct mlx5dv_devx_obj *obj, uint16_t type)
{
	INLAY_CHECK(channel, "no argument is NULL");
	return -mlx5dv_devx_subscribe_devx_event_fd(channel, fd, obj, type);
}

/*
 * Takes an event queue's entry apart.
 *
 * event       filled, but for the cookie
 * eqe, bytes  the entry; fewer than 64 bytes are taken for the beginning of one, whose rest is 0, and of more the first 64. 0: nothing is
 *             known
 */
INLAY_COLD void inlay_devx_event_parse(struct inlay_devx_event *event, const void *eqe, size_t bytes)
{
	const struct inlay_eqe *at;
	uint64_t cookie;

	INLAY_CHECK(event && (eqe || !bytes), "no argument is NULL");
	at = &event->eqe;
	cookie = event->cookie;
	__builtin_memset(event, 0, sizeof(*event));
	event->cookie = cookie;
	event->bytes = (uint8_t)(bytes < sizeof(*at) ? bytes : sizeof(*at));
	if (!event->bytes)
		return;
	__builtin_memcpy(&event->eqe, eqe, event->bytes);
	event->type = (uint8_t)inlay_eqe_get(at, INLAY_EQE_EVENT_TYPE);
	event->subtype = (uint8_t)inlay_eqe_get(at, INLAY_EQE_EVENT_SUB_TYPE);
	switch (event->type) {
	case INLAY_EVENT_COMP:
		event->number = (uint32_t)inlay_eqe_get(at, INLAY_EQE_NUMBER);
		break;
	case INLAY_EVENT_PATH_MIG:
	case INLAY_EVENT_COMM_EST:
	case INLAY_EVENT_SQ_DRAINED:
	case INLAY_EVENT_WQ_CATAS_ERROR:
	case INLAY_EVENT_PATH_MIG_FAILED:
	case INLAY_EVENT_WQ_INVAL_REQ_ERROR:
	case INLAY_EVENT_WQ_ACCESS_ERROR:
	case INLAY_EVENT_SRQ_CATAS_ERROR:
	case INLAY_EVENT_SRQ_LAST_WQE:
	case INLAY_EVENT_SRQ_RQ_LIMIT:
		event->number = (uint32_t)inlay_eqe_get(at, INLAY_EQE_NUMBER);
		event->kind = (uint8_t)inlay_eqe_get(at, INLAY_EQE_QP_TYPE);
		break;
	case INLAY_EVENT_CQ_ERROR:
		event->number = (uint32_t)inlay_eqe_get(at, INLAY_EQE_CQ_ERROR_CQN);
		event->syndrome = (uint8_t)inlay_eqe_get(at, INLAY_EQE_CQ_ERROR_SYNDROME);
		break;
	case INLAY_EVENT_PORT_CHANGE:
		event->number = (uint32_t)inlay_bits_get(at, INLAY_BITS(0x140, 4));
		break;
	case INLAY_EVENT_XRQ_ERROR:
		event->number = (uint32_t)inlay_eqe_get(at, INLAY_EQE_XRQ_ERROR_XRQN);
		break;
	case INLAY_EVENT_DCT_DRAINED:
	case INLAY_EVENT_DCT_KEY_VIOLATION:
		event->number = (uint32_t)inlay_eqe_get(at, INLAY_EQE_NUMBER);
		event->kind = 6;
		break;
	default:
		event->object_type = (uint16_t)inlay_eqe_get(at, INLAY_EQE_OBJ_TYPE);
		event->number = (uint32_t)inlay_eqe_get(at, INLAY_EQE_OBJ_ID);
		break;
	}
}

/*
 * Takes an event from the channel; waits for it unless the channel is INLAY_DEVX_NONBLOCK. On a channel with INLAY_DEVX_OMIT_DATA the
 * cookie is all that is filled in.
 *
 * Returns 0; -EAGAIN when there is none; -EOVERFLOW, once, when the kernel had to drop some; -EIO when the device is gone, and for less
 * than a cookie; else the negative errno of mlx5dv_devx_get_event.
 */
INLAY_COLD int inlay_devx_event_get(struct mlx5dv_devx_event_channel *channel, struct inlay_devx_event *event)
{
	uint64_t buf[1 + sizeof(struct inlay_eqe) / 8];
	ssize_t n;

	INLAY_CHECK(channel && event, "no argument is NULL");
	__builtin_memset(event, 0, sizeof(*event));
	errno = 0; /* libmlx5 leaves it alone when what it read was too short */
	n = mlx5dv_devx_get_event(channel, (struct mlx5dv_devx_async_event_hdr *)(void *)buf, sizeof(buf));
	if (n < (ssize_t)sizeof(buf[0]))
		return errno ? -errno : -EIO;
	event->cookie = buf[0];
	inlay_devx_event_parse(event, buf + 1, (size_t)n - sizeof(buf[0]));
	return 0;
}

#endif
