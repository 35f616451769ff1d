/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * host.c: a host of command tasks and a worker that says any bytes. A model decides from the bytes which task completes, if any, and how;
 * a device does what the host has posted, and looks at every WQE. For libFuzzer (make fuzz), and for tests/task/fuzz.c.
 *
 * Input: two bytes that say what the host is like, then steps: a byte, of which the low 4 bits say what is done, and what it needs.
 *
 *   0 .. 3  submit        task, how, then: what its callback does
 *   4 .. 7  a message     task, form; a whole message, or kind, status, length and a bit of the context that are not as they should be
 *   8       flush         9  device: so many WQEs     10  a probe; progress          11  progress, so many
 *   12      cancel        13  cancel and revoke       14  release, or alloc          15  what breaks or confuses the connection
 */
#include "fuzz.h"

#define HOST_TASKS 6u
#define HOST_WINDOWS (2 * HOST_TASKS)
#define HOST_QPN 5u
#define HOST_MESSAGE 128u
#define HOST_ROOM (HOST_MESSAGE - INLAY_TASK_HEAD)
#define HOST_PAYLOAD 160u
#define HOST_LARGEST 200u
#define HOST_LKEY 7u
#define USER_LKEY 8u
#define USER_BYTES 1024u        /* of a task: a 64, b 64, big 256, small response 40, big response 256 */
#define HOST_MESSAGES 64u
#define HOST_COMMANDS 256u       /* as many as WQEBBs in the ring at least */

enum host_state {
	HOST_FREE,
	HOST_IDLE,
	HOST_OUT,               /* submitted; nobody has said anything of it */
	HOST_SETTLED,           /* its result is known; its callback is to come */
	HOST_EARLY,             /* cancelled, likewise */
};

struct host_model {
	struct inlay_task *t;
	enum host_state state;
	uint64_t context;
	uint32_t end;           /* of its WQEs */
	uint32_t what, length;  /* its payload */
	uint32_t command;       /* its number */
	uint32_t gathers;       /* the device is yet to look at its memory */
	uint32_t granted;       /* for a response by key */
	uint32_t after, how;    /* what its callback does */
	int status;
	uint32_t len, told;     /* told: the response is that of the last completion, and lies in data */
	uint8_t data[256];
};

/* A command as it was submitted */
struct host_command {
	uint64_t context;
	uint64_t payload;       /* address */
	uint32_t lkey;
	uint32_t task, what, length, granted;
};

struct host_window {
	uint32_t rkey, open, owner, lkey;
	uint64_t addr;
	uint32_t bytes;
};

/* A message as it went to the host */
struct host_message {
	uint32_t cqe, opcode, bytes, syndrome;
	uint8_t at[HOST_MESSAGE];
};

static struct {
	struct fuzz_cq cq __attribute__((aligned(4096)));
	struct fuzz_qp qp;
	struct inlay_task_host h;
	uint8_t memory[65536] __attribute__((aligned(4096)));
	uint8_t user[HOST_TASKS * USER_BYTES] __attribute__((aligned(4096)));
	uint8_t user_map[8192] __attribute__((aligned(4096)));
	uint8_t user_inventory[32768] __attribute__((aligned(4096)));
	struct inlay_mmap map;
	struct inlay_inventory *inventory;
	struct inlay_buf *bufs[HOST_TASKS][5];
	struct host_model m[HOST_TASKS];
	struct host_window windows[HOST_WINDOWS];
	struct host_message messages[HOST_MESSAGES];
	uint32_t num_messages;
	struct host_command commands[HOST_COMMANDS];
	uint32_t submitted, sent;       /* of them, by their number */
	uint32_t outstanding, late, strays, broken;
	uint32_t dead, receives_first;  /* the device gives back what was posted, unused */
	uint32_t patterns;
	uint32_t depth;                 /* inside callbacks */
} host __attribute__((aligned(4096)));

/* ---- The model ---- */

static void host_result(struct host_model *m, int status, uint32_t len)
{
	m->status = status;
	m->len = len;
}

/* Whether the device has done it. */
static int host_is_sent(const struct host_model *m)
{
	return (int32_t)(host.sent - m->command) > 0;
}

/* The task whose answer, in time or late, a message with this context is, or NULL. */
static struct host_model *host_concerns(uint64_t context)
{
	for (uint32_t i = 0; i < HOST_TASKS; i++)
		if (host.m[i].context == context && (host.m[i].state == HOST_OUT || host.m[i].state == HOST_EARLY))
			return &host.m[i];
	return NULL;
}

static void host_break(void)
{
	for (uint32_t i = 0; i < HOST_TASKS; i++) {
		struct host_model *m = &host.m[i];

		if (m->state != HOST_OUT)
			continue;
		m->state = HOST_SETTLED;
		m->told = 0;
		host_result(m, host.h.broken, 0);
	}
	host.broken = 1;
	host.outstanding = host.late = 0;
}

/* What a message says: only of a task that waits for it. */
static void host_answered(struct host_model *m, const uint8_t *msg, uint32_t bytes)
{
	uint32_t kind = msg[1], status = (uint32_t)fuzz_le(msg + 2, 2), length = (uint32_t)fuzz_le(msg + 4, 4);

	m->state = HOST_SETTLED;
	m->told = 0;
	host_result(m, -EBADMSG, 0);
	if (status > 4095 || kind < INLAY_TASK_ANSWER || kind > INLAY_TASK_WRITTEN)
		return;
	if (kind == INLAY_TASK_WRITTEN && bytes == 32 && length > HOST_ROOM && length <= m->granted) {
		host_result(m, -(int)status, length);
		m->told = 1;
		memcpy(m->data, host.user + (m - host.m) * USER_BYTES + 512, length);
	}
	if (kind == INLAY_TASK_ANSWER && bytes == 32 + (uint64_t)length) {
		host_result(m, -(int)status, length);
		m->told = 1;
		memcpy(m->data, msg + 32, length);
	}
}

/* What the completions mean that the host has taken since it was asked last. */
static void host_sync(void)
{
	struct host_model *m;
	uint64_t context;
	uint32_t n, i;

	for (n = 0; n < host.num_messages && (int32_t)(host.h.cq.ci - host.messages[n].cqe) > 0; n++) {
		struct host_message *msg = &host.messages[n];

		if (host.broken)
			continue;
		if (msg->opcode == MLX5_CQE_REQ) {
			host.strays++;
		} else if (msg->opcode == MLX5_CQE_REQ_ERR || msg->opcode == MLX5_CQE_RESP_ERR) {
			int reset = msg->syndrome == MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR ||
				    msg->syndrome == MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR;

			sure(host.h.broken == (reset ? -ECONNRESET : -ECONNABORTED));
			host_break();
		} else {
			/* What cannot be an answer says nothing. Each is the credit for one command. */
			context = UINT64_MAX;
			if (msg->opcode == MLX5_CQE_RESP_SEND && msg->bytes <= HOST_MESSAGE && msg->bytes >= 32 &&
			    msg->at[0] == INLAY_TASK_VERSION)
				context = fuzz_le(msg->at + 8, 8);
			m = host_concerns(context);
			if (m && m->state == HOST_OUT)
				host_answered(m, msg->at, msg->bytes);
			else if (host.late)
				host.late--;
			else
				host.strays++;
			host.outstanding = host.late;
			for (i = 0; i < HOST_TASKS; i++)
				host.outstanding += host.m[i].state == HOST_OUT;
		}
	}
	memmove(host.messages, host.messages + n, (host.num_messages - n) * sizeof(*host.messages));
	host.num_messages -= n;
}

/* ---- Submitting ---- */

static void host_fill(struct inlay_buf *buf, uint32_t n, struct host_model *m)
{
	uint8_t *at = (uint8_t *)inlay_buf_head(buf);

	inlay_buf_set_data(buf, at, n);
	for (uint32_t i = 0; i < n; i++)
		at[i] = fuzz_pattern(m->what, m->length + i);
	m->length += n;
}

/* Lists of the task's buffers before: taken apart. */
static void host_unchain(uint32_t i)
{
	struct inlay_buf *list = host.bufs[i][0], *own = host.m[i].t->own_payload;

	inlay_buf_unchain_list(list, host.bufs[i][1]);
	inlay_buf_unchain_list(own, host.bufs[i][1]);
	inlay_buf_unchain_list(own, host.bufs[i][2]);
}

static void host_callback(struct inlay_task *t, uint64_t user_data, uint64_t host_user_data);

/* The payload, of the kind that `how` says. */
static void host_payload(uint32_t i, uint32_t how, uint32_t size)
{
	struct host_model *m = &host.m[i];
	struct inlay_buf **b = host.bufs[i], *own;

	host_unchain(i);
	inlay_task_set_payload(m->t, NULL);
	own = inlay_task_payload(m->t);
	m->what = ++host.patterns;
	m->length = m->gathers = 0;
	switch (how & 7) {
	case 0: host_fill(own, size % 13, m); break;
	case 1: host_fill(own, 13 + size % 20, m); break;
	case 2: host_fill(own, size % 96, m); break;
	case 3: host_fill(own, size % (HOST_PAYLOAD + 1), m); break;
	case 4:
		host_fill(b[0], size % 65, m);
		inlay_task_set_payload(m->t, b[0]);
		break;
	case 5:
		host_fill(b[0], size % 48, m);
		host_fill(b[1], size / 5, m);
		sure(!inlay_buf_chain_list(b[0], b[1]));
		inlay_task_set_payload(m->t, b[0]);
		break;
	case 6:
		host_fill(b[2], size, m);
		inlay_task_set_payload(m->t, b[2]);
		break;
	default:
		/* An empty head of another map: all is in the second, which may be large */
		host_fill(own, size % 48, m);
		host_fill(size % 48 ? b[1] : b[2], size % 48 ? size / 5 : size, m);
		sure(!inlay_buf_chain_list(own, size % 48 ? b[1] : b[2]));
	}
}

/* Whether the device is yet to look at memory for what was posted last: to gather, or to open windows. */
static uint32_t host_gathers(struct host_model *m, uint32_t at)
{
	const struct inlay_sq *sq = &host.h.link.sq;
	struct fuzz_piece p[20];
	struct fuzz_wqe w;
	uint32_t i, num, gathers = (m->t->held & INLAY_TASK_HELD_KEYS) != 0;

	do
		at += fuzz_wqe_at(host.qp.ring, sq->mask, at, HOST_QPN, &w);
	while (w.opcode != MLX5_OPCODE_SEND);
	sure(at == m->end);
	num = fuzz_pieces(&w, 1, p);
	for (i = 0; i < num; i++)
		gathers |= !p[i].in_wqe;
	return gathers;
}

static void host_submit(uint32_t i, uint32_t how, uint32_t size, uint32_t after)
{
	struct host_model *m = &host.m[i];
	uint32_t outstanding = host.h.outstanding, rung = inlay_sq_rung(&host.h.link.sq);
	uint32_t first = inlay_sq_index(&host.h.link.sq);
	const struct inlay_buf *buf;
	struct host_command *c;
	int err;

	if (m->state == HOST_FREE)
		return;
	if (m->state == HOST_IDLE) {
		m->told = 0;
		host_payload(i, how, size);
		inlay_task_set_response(m->t, how & 8 ? host.bufs[i][how & 16 ? 4 : 3] : NULL);
	} else {
		sure(inlay_task_set_plugin(m->t, 1) == -EBUSY && inlay_task_set_payload(m->t, NULL) == -EBUSY);
		sure(inlay_task_set_response(m->t, NULL) == -EBUSY && inlay_task_release(m->t) != 0);
	}
	err = inlay_task_submit(m->t, how & 32 ? 0 : INLAY_RING);
	if (m->state != HOST_IDLE) {
		sure(err == -EBUSY);
		return;
	}
	if (err) {
		sure(err == -EAGAIN || err == -E2BIG || err == -ENOTCONN);
		sure((err == -ENOTCONN) == !host.h.limit);
		sure(host.h.outstanding == outstanding && m->t->state == INLAY_TASK_IDLE);
		return;
	}
	sure(outstanding < host.h.limit && host.h.outstanding == outstanding + 1);
	sure(inlay_task_status(m->t) == -EINPROGRESS);
	sure(how & 32 ? inlay_sq_rung(&host.h.link.sq) == rung : inlay_sq_rung(&host.h.link.sq) == host.h.link.sq.pi);
	m->state = HOST_OUT;
	host.outstanding++;
	m->context = m->t->ids.context;
	m->end = host.h.link.sq.pi;
	m->gathers = host_gathers(m, first);
	m->granted = (how & 24) == 24 ? 256 : 0;
	m->after = after;
	m->how = how;
	m->command = host.submitted++;
	c = &host.commands[m->command % HOST_COMMANDS];
	c->context = m->context;
	c->task = i;
	c->what = m->what;
	c->length = m->length;
	c->granted = m->granted;
	for (buf = m->t->payload; inlay_buf_next(buf) && !inlay_buf_data_len(buf);)
		buf = inlay_buf_next(buf);
	c->payload = (uintptr_t)inlay_buf_data(buf);
	c->lkey = buf == m->t->own_payload ? HOST_LKEY : USER_LKEY;
}

/* ---- Completing ---- */

/* No window is open for the task, and the device has read what it gathers; or it is dead and has given back all, and the host knows. */
static void host_untouched(uint32_t i)
{
	const struct host_model *m = &host.m[i];

	if (host.broken) {
		sure(host.dead && host.qp.done == host.h.link.sq.pi && !fuzz_receive(&host.qp) && host.h.cq.ci == host.cq.produced);
		return;
	}
	for (uint32_t w = 0; w < HOST_WINDOWS; w++)
		sure(!host.windows[w].open || host.windows[w].owner != i);
	sure(!m->gathers || host_is_sent(m));
}

static void host_idle(uint32_t i)
{
	struct host_model *m = &host.m[i];

	host_untouched(i);
	m->state = HOST_IDLE;
	/* Whoever has it may write to it */
	memset(inlay_buf_head(m->t->own_payload), 0xee, HOST_PAYLOAD);
	memset(host.user + i * USER_BYTES, 0xee, 384);
}

static void host_response(const struct host_model *m)
{
	const struct inlay_buf *buf = inlay_task_response(m->t);

	sure(m->t->response_len == m->len);
	if (!m->told) {
		sure(!inlay_buf_data_len(buf));
		return;
	}
	sure(inlay_buf_data_len(buf) == m->len && !memcmp(inlay_buf_data(buf), m->data, m->len));
}

static void host_callback(struct inlay_task *t, uint64_t user_data, uint64_t host_user_data)
{
	uint32_t i = (uint32_t)user_data;
	struct host_model *m = &host.m[i];

	sure(i < HOST_TASKS && m->t == t && host_user_data == 77);
	host_sync();
	sure(m->state == HOST_SETTLED || m->state == HOST_EARLY);
	sure(t->state == INLAY_TASK_IDLE && inlay_task_status(t) == m->status);
	host_response(m);
	host_idle(i);
	if (m->after & 1 && host.depth < 20) {
		host.depth++;
		host_submit(i, m->how ^ (m->after >> 4), m->after * 5 & 0xff, m->after >> 1);
	} else if (m->after & 2) {
		sure(!inlay_task_release(t));
		m->state = HOST_FREE;
	} else if (m->after & 4) {
		inlay_sq_ring(&host.h.link.sq);
	}
}

static void host_progress(uint32_t max)
{
	host_sync();
	host.depth = 0;
	inlay_task_host_progress(&host.h, max);
	host_sync();
}

/* ---- The device ---- */

static void host_bind(const struct fuzz_wqe *w)
{
	uint32_t old = w->imm, i = (old >> 8) - 0x100;
	struct host_window *win;

	sure(i < HOST_WINDOWS);
	win = &host.windows[i];
	sure(old == win->rkey);
	if (w->ds == 12) {
		sure(!win->open);
		win->rkey = (old & ~0xffu) | w->at[71];
		sure(win->rkey != old);
		win->open = 1;
		sure((w->at[66] & 0x70) == (i & 1 ? 0x20 : 0x10)); /* remote writes, remote reads */
		win->owner = HOST_TASKS;
		win->bytes = fuzz_be32(w->at + 128);
		win->addr = fuzz_be64(w->at + 136);
		win->lkey = fuzz_be32(w->at + 132);
	} else {
		sure(w->ds == 8 && win->open);
		win->open = 0;
	}
}

/* A key of a command: its window is open over what it should be. */
static void host_key(const uint8_t *at, const struct host_command *c, uint64_t addr, uint32_t bytes, uint32_t lkey)
{
	uint32_t rkey = (uint32_t)fuzz_le(at, 4), i = (rkey >> 8) - 0x100;

	sure(i < HOST_WINDOWS && host.windows[i].open && host.windows[i].rkey == rkey && host.windows[i].owner == HOST_TASKS);
	sure(!fuzz_le(at + 4, 4) && fuzz_le(at + 8, 8) == bytes && host.windows[i].bytes == bytes && host.windows[i].addr == addr);
	sure(host.windows[i].lkey == lkey);
	host.windows[i].owner = c->task;
}

static int host_within(const uint8_t *at, uint32_t n, const uint8_t *from, size_t size)
{
	return (uintptr_t)at >= (uintptr_t)from && (uintptr_t)at - (uintptr_t)from <= size && size - ((uintptr_t)at - (uintptr_t)from) >= n;
}

static void host_look_at(const struct fuzz_wqe *w)
{
	struct fuzz_piece p[20];
	uint8_t msg[512];
	uint32_t num = fuzz_pieces(w, 1, p), n, i, flags, at = 32;
	const struct host_command *c;

	for (i = 0; i < num; i++)
		sure(p[i].in_wqe ||
		     (p[i].lkey == HOST_LKEY && host_within(p[i].at, p[i].bytes, host.memory, sizeof(host.memory))) ||
		     (p[i].lkey == USER_LKEY && host_within(p[i].at, p[i].bytes, host.user, sizeof(host.user))));
	n = fuzz_gather(p, num, msg, HOST_MESSAGE);
	sure(n >= 32 && msg[0] == INLAY_TASK_VERSION && msg[1] == INLAY_TASK_COMMAND);
	/* Each goes out once, in order. */
	sure(host.sent != host.submitted);
	c = &host.commands[host.sent++ % HOST_COMMANDS];
	sure(fuzz_le(msg + 8, 8) == c->context);
	flags = (uint32_t)fuzz_le(msg + 2, 2);
	sure(!(flags & ~3u) && fuzz_le(msg + 4, 4) == c->length && fuzz_le(msg + 16, 8) == 1 && !fuzz_le(msg + 24, 8));
	sure(!(flags & INLAY_TASK_RESPONSE_KEY) == !c->granted);
	/* It waits for the binds */
	sure(!flags || (w->flags & 0xe0) == INLAY_FENCE_INITIATOR_SMALL >> 24);
	if (flags & INLAY_TASK_PAYLOAD_KEY) {
		host_key(msg + at, c, c->payload, c->length, c->lkey);
		at += 16;
	}
	if (flags & INLAY_TASK_RESPONSE_KEY) {
		host_key(msg + at, c, (uintptr_t)host.user + (uintptr_t)c->task * USER_BYTES + 512, c->granted, USER_LKEY);
		at += 16;
	}
	sure(n == at + (flags & INLAY_TASK_PAYLOAD_KEY ? 0 : c->length));
	if (flags & INLAY_TASK_PAYLOAD_KEY)
		fuzz_same((const uint8_t *)(uintptr_t)c->payload, c->length, c->what);
	else
		fuzz_same(msg + at, c->length, c->what);
}

static void host_device(uint32_t most)
{
	struct fuzz_wqe w;

	if (host.dead) {
		fuzz_flush(&host.qp, most, (int)host.receives_first);
		return;
	}
	while (most-- && fuzz_cq_room(&host.cq) > 100 && fuzz_next(&host.qp, &w)) {
		switch (w.opcode) {
		case MLX5_OPCODE_SEND: host_look_at(&w); break;
		case MLX5_OPCODE_UMR: host_bind(&w); break;
		case MLX5_OPCODE_RDMA_WRITE: sure(w.ds == 2 && !fuzz_be64(w.at + 16) && !fuzz_be32(w.at + 24)); break;
		default: sure(w.opcode == MLX5_OPCODE_NOP);
		}
		fuzz_done(&host.qp, &w);
	}
}

/* ---- Messages ---- */

static void host_keep(uint32_t opcode, const uint8_t *at, uint32_t bytes, uint32_t syndrome)
{
	struct host_message *msg = &host.messages[host.num_messages++];

	msg->cqe = host.cq.produced;
	msg->opcode = opcode;
	msg->bytes = bytes;
	msg->syndrome = syndrome;
	memset(msg->at, 0, sizeof(msg->at));
	if (at)
		memcpy(msg->at, at, HOST_MESSAGE);
}

/* What the worker writes to an open window, before it says so. */
static void host_written(struct host_model *m, uint32_t length)
{
	for (uint32_t i = 0; i < HOST_WINDOWS; i++)
		if (host.windows[i].open && host.windows[i].owner == (uint32_t)(m - host.m) && m->granted &&
		    host.windows[i].addr == (uintptr_t)host.user + (uintptr_t)(m - host.m) * USER_BYTES + 512)
			fuzz_fill(host.user + (m - host.m) * USER_BYTES + 512, length < m->granted ? length : m->granted, ++host.patterns);
}

static void host_message(struct fuzz_in *in)
{
	uint32_t who = fuzz_8(in), form = fuzz_8(in), n, kind, length, flip, odd, opcode = MLX5_CQE_RESP_SEND;
	uint8_t msg[256] = {};
	struct host_model *m = NULL;

	if (who % 8 < HOST_TASKS)
		m = &host.m[who % 8];
	if (form & 1) {
		n = fuzz_8(in) % 136;
		fuzz_bytes(in, msg, n);
		kind = msg[1];
	} else {
		n = 32 + (form >> 1) % 104;
		kind = fuzz_8(in);
		msg[0] = INLAY_TASK_VERSION ^ (kind >> 6);
		msg[1] = (uint8_t)(kind % 8 < 5 ? (uint32_t)INLAY_TASK_ANSWER : kind % 8 - 2);
		length = fuzz_16(in);
		memcpy(msg + 2, &length, 2);
		flip = fuzz_8(in);
		length = (msg[1] == INLAY_TASK_ANSWER ? n - 32 : msg[1] == INLAY_TASK_WRITTEN ? form * 2 : 0) ^ flip;
		if (msg[1] != INLAY_TASK_ANSWER && !(kind & 8))
			n = 32;
		memcpy(msg + 4, &length, 4);
		flip = fuzz_8(in);
		if (flip < 64)
			msg[8 + flip / 8] ^= (uint8_t)(1u << flip % 8);
		fuzz_fill(msg + 32, n - 32, ++host.patterns);
	}
	/* The context in it is the task's, with bits that differ; or the one that it had before. */
	if (m) {
		uint64_t context = (m->context - (who & 8 ? (uint64_t)1 << 32 : 0)) ^ fuzz_le(msg + 8, 8);

		memcpy(msg + 8, &context, 8);
	}
	if (who & 128 && who & 64)
		n += 100;
	odd = who & 128 && form & 128;
	/* What is nobody's now comes now, so that no task takes it that is submitted before it is looked at. */
	m = host_concerns(fuzz_le(msg + 8, 8));
	if (!m) {
		who &= 15;
		for (kind = 0; kind < 4; kind++)
			host_progress(64);
	}
	/* Nobody answers what has not come. */
	m = host_concerns(fuzz_le(msg + 8, 8));
	if (m && !host_is_sent(m)) {
		inlay_sq_ring(&host.h.link.sq);
		host_device(FUZZ_BBS);
	}
	if (m && msg[1] == INLAY_TASK_WRITTEN)
		host_written(m, (uint32_t)fuzz_le(msg + 4, 4));
	if (host.dead || !fuzz_receive(&host.qp) || host.num_messages == HOST_MESSAGES)
		return;
	if (odd) {
		opcode = form & 2 ? MLX5_CQE_RESP_WR_IMM : form & 4 ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND_INV;
	}
	host_keep(opcode, msg, n, 0);
	fuzz_arrive(&host.qp, opcode, msg, n);
	if (!(who & 16))
		host_progress(who & 32 ? 1 : 16);
}

static void host_fault(uint32_t which)
{
	static const uint8_t syndromes[4] = {MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR,
					     MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR};
	uint32_t opcode = which & 4 ? MLX5_CQE_RESP_ERR : MLX5_CQE_REQ_ERR, pi = host.h.link.sq.pi;
	struct fuzz_wqe w;

	if (host.dead || host.num_messages == HOST_MESSAGES)
		return;
	if (which & 8) {
		host_keep(MLX5_CQE_REQ, NULL, 0, 0);
		fuzz_cqe(&host.cq, HOST_QPN, MLX5_CQE_REQ, 0, pi + 1000 + (which >> 4)); /* of what was not posted */
		return;
	}
	/* What fails is the next thing that the device has; the rest follows. */
	if (opcode == MLX5_CQE_REQ_ERR && !fuzz_next(&host.qp, &w))
		opcode = MLX5_CQE_RESP_ERR;
	if (opcode == MLX5_CQE_RESP_ERR) {
		if (!fuzz_receive(&host.qp))
			return;
		host.qp.taken++;
		w.index = 0;
	}
	host_keep(opcode, NULL, 0, syndromes[which & 3]);
	fuzz_cqe_error(&host.cq, HOST_QPN, opcode, syndromes[which & 3], w.index);
	host.dead = 1;
	host.receives_first = which >> 5 & 1;
}

/* ---- What holds at any time ---- */

static void host_slots(void)
{
	uint64_t seen = 0;
	uint32_t i, n = HOST_TASKS + host.h.mask + 1;

	for (i = 0; i < n; i++) {
		const uint8_t *slot = i < HOST_TASKS ? host.h.tasks[i].slot : host.h.slot_of[i - HOST_TASKS];
		uint64_t at = (uint64_t)(slot - host.h.slots) / HOST_MESSAGE;

		sure(at < n && host.h.slots + at * HOST_MESSAGE == slot && !(seen >> at & 1));
		seen |= (uint64_t)1 << at;
	}
}

static void host_look(void)
{
	static const uint8_t states[5] = {INLAY_TASK_FREE, INLAY_TASK_IDLE, INLAY_TASK_SUBMITTED, INLAY_TASK_ENDING, INLAY_TASK_ENDING};

	for (uint32_t i = 0; i < HOST_TASKS; i++) {
		struct host_model *m = &host.m[i];
		uint32_t state = m->t->state;

		/* What is settled at once is called at once; else it waits, or its callback does. */
		sure(state == states[m->state]);
		if (m->state == HOST_IDLE && m->told)
			host_response(m);
		sure(state > INLAY_TASK_IDLE || !m->t->held);
	}
	sure(host.h.outstanding == host.outstanding && host.h.strays == host.strays);
	sure(!host.h.broken == !host.broken);
	host_slots();
}

/* ---- One input ---- */

static void host_bufs(void)
{
	static const uint32_t from[5] = {0, 64, 128, 384, 512}, bytes[5] = {64, 64, 256, 40, 256};

	sure(inlay_inventory_size(5 * HOST_TASKS) <= sizeof(host.user_inventory));
	fuzz_map(&host.map, host.user_map, (struct ibv_pd *)(void *)&host, host.user, sizeof(host.user), USER_LKEY,
		 INLAY_LOCAL_READ_WRITE | INLAY_MW_BIND);
	sure(!inlay_inventory_create(host.user_inventory, inlay_inventory_size(5 * HOST_TASKS), 5 * HOST_TASKS, &host.inventory));
	sure(!inlay_inventory_start(host.inventory));
	for (uint32_t i = 0; i < HOST_TASKS; i++)
		for (uint32_t b = 0; b < 5; b++)
			sure(!inlay_inventory_get_by_addr(host.inventory, &host.map, host.user + i * USER_BYTES + from[b], bytes[b],
							  &host.bufs[i][b]));
}

static void host_begin(uint32_t one, uint32_t two)
{
	struct inlay_task_host_params p = inlay_task_host_default();
	struct inlay_keys keys = {HOST_LKEY, INLAY_NO_KEY};
	struct inlay_task_address peer = {};

	p.tasks = HOST_TASKS;
	p.in_flight = one & 1 ? 8 : 4;
	p.message = HOST_MESSAGE;
	p.payload = HOST_PAYLOAD;
	p.max_inline = one & 2 ? 64 : 16;
	p.max_gather = one & 4 ? 2 : 4;
	p.user_data = 77;
	peer.message = HOST_MESSAGE;
	peer.receives = one & 128 ? 3 : 8;
	peer.largest = HOST_LARGEST;
	sure(inlay_task_host_size(&p) <= sizeof(host.memory));
	memset(&host.h, 0, sizeof(host.h));
	memset(host.m, 0, sizeof(host.m));
	memset(host.windows, 0, sizeof(host.windows));
	fuzz_cq_make(&host.cq, &host.h.cq);
	fuzz_qp_make(&host.qp, &host.h.link, &host.cq, HOST_QPN, two & 1 ? 32 : 128, p.in_flight);
	host.h.pd = (struct ibv_pd *)(void *)&host;
	sure(!inlay_task_host_init_(&host.h, host.memory, &p, inlay_source_keys((uintptr_t)host.memory, sizeof(host.memory), keys)));
	host.h.link.peer = peer;
	inlay_task_host_begin_(&host.h);
	host.submitted = host.sent = host.num_messages = host.patterns = 0;
	host.outstanding = host.late = host.strays = host.dead = host.broken = 0;
	host.receives_first = 0;
	host_bufs();
	for (uint32_t i = 0; i < HOST_TASKS; i++) {
		sure(!inlay_task_alloc(&host.h, 1, host_callback, &host.m[i].t));
		sure((uint32_t)host.m[i].t->ids.context == i);
		host.m[i].t->user_data = i;
		host.m[i].state = HOST_IDLE;
		host.m[i].context = host.m[i].t->ids.context;
		/* Some of the tasks have keys; without a device there is no ibv_alloc_mw */
		host.windows[2 * i].rkey = (0x100 + 2 * i) << 8;
		host.windows[2 * i + 1].rkey = (0x101 + 2 * i) << 8;
		if (i < (one >> 3 & 1 ? HOST_TASKS : one >> 4 & 3))
			for (uint32_t k = 0; k < 2; k++)
				host.m[i].t->rkey[k] = host.windows[2 * i + k].rkey;
	}
}

static void host_step(struct fuzz_in *in)
{
	uint32_t op = fuzz_8(in), i = op >> 4, a, n;
	struct host_model *m = &host.m[i % HOST_TASKS];
	struct inlay_task *t;

	switch (op & 15) {
	case 0:
	case 1:
	case 2:
	case 3:
		a = fuzz_8(in);
		if (m->state == HOST_IDLE && op & 1)
			fuzz_8(in); /* a deadline in older inputs */
		n = fuzz_8(in);
		host_submit(i % HOST_TASKS, a, n, op & 2 ? fuzz_8(in) : 0);
		break;
	case 4:
	case 5:
	case 6:
	case 7: host_message(in); break;
	case 8: inlay_sq_ring(&host.h.link.sq); break;
	case 9: host_device(i + 1); break;
	case 10:
		if (fuzz_8(in) & 1 && !host.broken)
			message_probe(&host.h.link);
		host_progress(16);
		break;
	case 11: host_progress(i + 1); break;
	case 12:
	case 13:
		a = (uint32_t)-inlay_task_cancel(m->t, op & 1);
		sure(a == (m->state < HOST_OUT ? EBADFD : m->state == HOST_OUT || op & 1 ? 0 : EBUSY));
		if (m->state != HOST_OUT)
			break;
		m->state = HOST_EARLY;
		m->told = 0;
		host.late++;
		host_result(m, -ECANCELED, 0);
		break;
	case 14:
		if (m->state == HOST_FREE) {
			/* The one that was given back last */
			sure(!inlay_task_alloc(&host.h, 1, host_callback, &t));
			m = &host.m[(uint32_t)t->ids.context];
			sure(m->t == t && m->state == HOST_FREE);
			t->user_data = (uint32_t)t->ids.context;
			m->state = HOST_IDLE;
			m->told = m->len = 0;
		} else {
			int err = m->state == HOST_IDLE ? 0 : -EPERM;

			sure(inlay_task_release(m->t) == err);
			if (!err)
				m->state = HOST_FREE;
		}
		break;
	default: host_fault(fuzz_8(in) ^ 8);
	}
}

static void host_input(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, data + size};
	uint32_t one = fuzz_8(&in), i;

	host_begin(one, fuzz_8(&in));
	while (in.at < in.end) {
		host_step(&in);
		host_look();
	}
	/* All that the device may do is done: only those are left that wait for an answer. */
	for (i = 0; i < 40; i++) {
		host_device(FUZZ_BBS);
		host_progress(64);
		/* After the end the host itself shows the device what was not rung for */
		if (!host.broken)
			inlay_sq_ring(&host.h.link.sq);
	}
	host_look();
	for (i = 0; i < HOST_TASKS; i++)
		sure(host.m[i].state != HOST_SETTLED && (host.m[i].state != HOST_EARLY || host.m[i].t->held & INLAY_TASK_HELD_KEYS));
	/* The end of the connection completes what is left, once. */
	host_fault(16 | 4);
	for (i = 0; i < 40; i++) {
		host_progress(64);
		host_device(FUZZ_BBS);
	}
	host_look();
	for (i = 0; i < HOST_TASKS; i++)
		sure(host.m[i].state == HOST_FREE || host.m[i].state == HOST_IDLE);
	sure(!host.h.outstanding);
	sure(!inlay_task_host_destroy(&host.h));
	for (i = 0; i < HOST_TASKS; i++)
		host_unchain(i);
	inlay_inventory_destroy(host.inventory);
	inlay_mmap_destroy(&host.map);
}

FUZZ_TARGET(host_input)
