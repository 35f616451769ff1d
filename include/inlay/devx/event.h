/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/event.h: asynchronous queries, and events of objects and of the device.
 *
 *   uint16_t types[] = {INLAY_EVENT_WQ_CATAS_ERROR, INLAY_EVENT_SRQ_LAST_WQE};
 *   struct inlay_devx_event event;
 *
 *   channel = mlx5dv_devx_create_event_channel(ctx, 0);
 *   inlay_devx_subscribe(channel, qp.obj, types, 2, 42);             42: the cookie, in every event
 *   ... poll(channel->fd) ...
 *   if (inlay_devx_event_get(channel, &event) == 0)
 *           if (event.cookie == 42 && event.type == INLAY_EVENT_SRQ_LAST_WQE) ...
 *
 *   uint64_t buf[(INLAY_DEVX_ANSWER + 0x110) / 8];                  8 bytes, and an outbox
 *
 *   answers = mlx5dv_devx_create_cmd_comp(ctx);
 *   inlay_devx_query_async(obj, in, sizeof(in), 0x110, 7, answers);  7 comes back as wr_id
 *   ... poll(answers->fd) ...
 *   inlay_devx_answer(answers, buf, sizeof(buf), &wr_id, &error);    the outbox is at buf + 1
 *
 * Channels and mlx5dv_devx_cmd_comp are libmlx5's. Reading waits, unless the fd has O_NONBLOCK.
 *
 * Invariants:
 *   - Answers arrive in the order in which the device finishes.
 *   - Subscribe to DEVX objects only; verbs objects have ibv_get_async_event. An armed CQ
 *     (inlay_cq_arm) reports INLAY_EVENT_COMP. An eventfd can count events instead:
 *     mlx5dv_devx_subscribe_devx_event_fd.
 *   - On a channel made with MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA an event is its
 *     cookie alone, and a subscription reports once until it is read.
 *   - Destroying an object or a channel ends its subscriptions.
 *
 * Threads: one thread may read a channel or answers while others subscribe or ask.
 * Sources: mlx5dv_devx_obj_query_async(3), mlx5dv_devx_subscribe_devx_event(3); Linux,
 * infiniband/hw/mlx5/devx.c (limits, types), mlx5/device.h (entries).
 */
#ifndef INLAY_DEVX_EVENT_H
#define INLAY_DEVX_EVENT_H /* a trial: names may change */

#include <inlay/devx/call.h>

#define INLAY_DEVX_ANSWER 8u         /* bytes before the outbox of an answer */
#define INLAY_DEVX_SUBSCRIBE_MAX 16u /* types in one call */

struct inlay_devx_event {
	uint64_t cookie;
	uint32_t number;      /* of the object; PORT_CHANGE: the port; 0: unknown */
	uint16_t object_type; /* of newer events: 0xff00 + n, or a general object's type; else 0 */
	uint8_t kind;         /* of the object: QP 0, RQ 1, SQ 2, DCT 6; else 0 */
	uint8_t syndrome;     /* CQ_ERROR */
	uint8_t type;         /* enum inlay_event_type */
	uint8_t subtype;      /* PORT_CHANGE: 1 down, 4 up */
	uint8_t bytes;        /* that came after the cookie, 0 .. 64; the rest of eqe is 0 */
	uint8_t reserved[5];
	struct inlay_eqe eqe;
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_devx_event) == 24 + 64, "no holes");
INLAY_STATIC_ASSERT(offsetof(struct mlx5dv_devx_async_cmd_hdr, out_data) == INLAY_DEVX_ANSWER, "outbox of an answer");
INLAY_STATIC_ASSERT(offsetof(struct mlx5dv_devx_async_event_hdr, out_data) == 8, "an event after its cookie");

/* ---- Queries ---- */

/*
 * Asks for an object's state without waiting. The inbox is as inlay_devx_query's, and not needed
 * afterwards; outlen counts the bytes of the answer's outbox; wr_id comes back with the answer, as
 * does the device's status.
 *
 * Returns 0; -EINVAL for a mailbox of an impossible length; -EAGAIN when more than 1 MiB of
 * outboxes are outstanding; else the negative errno of mlx5dv_devx_obj_query_async.
 */
INLAY_COLD int inlay_devx_query_async(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, size_t outlen,
				      uint64_t wr_id, struct mlx5dv_devx_cmd_comp *answers)
{
	INLAY_CHECK(obj && answers, "no argument is NULL");
	if (!in || !inlay_devx_length_ok_(inlen) || !inlay_devx_length_ok_(outlen))
		return -EINVAL;
	return -mlx5dv_devx_obj_query_async(obj, in, inlen, outlen, wr_id, answers);
}

/*
 * Takes an answer. buf is aligned to 8; the outbox begins at buf + 1, and the rest is 0. wr_id is
 * the query's, or UINT64_MAX if no answer was taken. error is filled in, except opcode and op_mod,
 * or NULL.
 *
 * Returns 0 or the negative errno of the answer's status (-EIO, and error->status 0xff, for an
 * answer that ends before its status). If no answer was taken: -ENOBUFS for too short a buffer,
 * -EAGAIN when there is none, -EIO when the device is gone.
 */
INLAY_COLD int inlay_devx_answer(struct mlx5dv_devx_cmd_comp *answers, uint64_t *buf, size_t len, uint64_t *wr_id,
				 struct inlay_devx_error *error)
{
	int err = ENOSPC;

	INLAY_CHECK(answers && buf && wr_id, "no argument is NULL");
	*wr_id = UINT64_MAX;
	if (len >= INLAY_DEVX_ANSWER + INLAY_DEVX_BOX) {
		__builtin_memset(buf, 0, len);
		/* libmlx5 hides how much it read. An answer without a status is an error. */
		((uint8_t *)(buf + 1))[0] = 0xff;
		err = mlx5dv_devx_get_async_cmd_comp(answers, (struct mlx5dv_devx_async_cmd_hdr *)(void *)buf, len);
	}
	if (err)
		return inlay_devx_refuse_(error, err == ENOSPC ? -ENOBUFS : -err, "no answer was taken");
	*wr_id = buf[0];
	return inlay_devx_result(0, NULL, buf + 1, error);
}

/* ---- Events ---- */

/*
 * Subscribes to 1 .. INLAY_DEVX_SUBSCRIBE_MAX types of events (enum inlay_event_type) of an object,
 * or without one (NULL), such as a port's. cookie comes back with each event.
 *
 * Returns 0; -EINVAL for another n, or a type that kernel or device do not offer; else the negative
 * errno of mlx5dv_devx_subscribe_devx_event. On failure there is no subscription.
 */
INLAY_COLD int inlay_devx_subscribe(struct mlx5dv_devx_event_channel *channel, struct mlx5dv_devx_obj *obj,
				    const uint16_t *types, uint32_t n, uint64_t cookie)
{
	uint16_t copy[INLAY_DEVX_SUBSCRIBE_MAX];

	INLAY_CHECK(channel && types, "no argument is NULL");
	if (!n || n > INLAY_DEVX_SUBSCRIBE_MAX)
		return -EINVAL;
	__builtin_memcpy(copy, types, n * sizeof(*types));
	return -mlx5dv_devx_subscribe_devx_event(channel, obj, (uint16_t)(n * sizeof(*types)), copy, cookie);
}

/* Decodes the first `bytes` bytes of an EQE. Keeps event->cookie. */
INLAY_COLD void inlay_devx_event_parse_(const void *eqe, size_t bytes, struct inlay_devx_event *event)
{
	const struct inlay_eqe *at = &event->eqe;
	uint64_t cookie = event->cookie;

	__builtin_memset(event, 0, sizeof(*event));
	event->cookie = cookie;
	event->bytes = (uint8_t)(bytes < sizeof(*at) ? bytes : sizeof(*at));
	if (!event->bytes)
		return;
	__builtin_memcpy(&event->eqe, eqe, event->bytes);
	event->type = (uint8_t)inlay_eqe_get(at, INLAY_EQE_EVENT_TYPE);
	event->subtype = (uint8_t)inlay_eqe_get(at, INLAY_EQE_EVENT_SUB_TYPE);
	event->number = (uint32_t)inlay_eqe_get(at, INLAY_EQE_NUMBER);
	switch (event->type) {
	case INLAY_EVENT_COMP: break;
	case INLAY_EVENT_PATH_MIG: case INLAY_EVENT_PATH_MIG_FAILED: case INLAY_EVENT_COMM_EST:
	case INLAY_EVENT_SQ_DRAINED: case INLAY_EVENT_WQ_CATAS_ERROR: case INLAY_EVENT_WQ_INVAL_REQ_ERROR:
	case INLAY_EVENT_WQ_ACCESS_ERROR: case INLAY_EVENT_SRQ_CATAS_ERROR: case INLAY_EVENT_SRQ_LAST_WQE:
	case INLAY_EVENT_SRQ_RQ_LIMIT:
		event->kind = (uint8_t)inlay_eqe_get(at, INLAY_EQE_QP_TYPE);
		break;
	case INLAY_EVENT_DCT_DRAINED: case INLAY_EVENT_DCT_KEY_VIOLATION:
		event->kind = 6;
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
	default:
		event->object_type = (uint16_t)inlay_eqe_get(at, INLAY_EQE_OBJ_TYPE);
		event->number = (uint32_t)inlay_eqe_get(at, INLAY_EQE_OBJ_ID);
		break;
	}
}

/*
 * Takes an event; from a channel without data, only its cookie. Returns 0; -EAGAIN when there is
 * none; -EOVERFLOW, once, when the kernel has dropped some; -EIO when the device is gone, and for
 * less than a cookie; else the negative errno of mlx5dv_devx_get_event.
 */
INLAY_COLD int inlay_devx_event_get(struct mlx5dv_devx_event_channel *channel, struct inlay_devx_event *event)
{
	uint64_t buf[1 + sizeof(struct inlay_eqe) / 8];
	ssize_t n;

	INLAY_CHECK(channel && event, "no argument is NULL");
	__builtin_memset(event, 0, sizeof(*event));
	errno = 0; /* libmlx5 does not set it for a short read */
	n = mlx5dv_devx_get_event(channel, (struct mlx5dv_devx_async_event_hdr *)(void *)buf, sizeof(buf));
	if (n < (ssize_t)sizeof(buf[0]))
		return errno ? -errno : -EIO;
	event->cookie = buf[0];
	inlay_devx_event_parse_(buf + 1, (size_t)n - sizeof(buf[0]), event);
	return 0;
}

#endif
