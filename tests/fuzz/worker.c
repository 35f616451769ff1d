/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * worker.c: a worker of command tasks with two connections, whose hosts say any bytes, and a plugin that does with its commands whatever a
 * plugin may. A model decides from the bytes what becomes of each; a device does what the worker has posted, and looks at every WQE. For
 * libFuzzer (make fuzz), and for tests/task/fuzz.c.
 *
 * Input: two bytes that say what the worker is like, then steps: a byte, of which the low 3 bits say what is done and the highest for which
 * connection, and what it needs; a byte whenever the plugin is called.
 *
 *   0 .. 3  a command: form; a whole message, or plugin, length and keys with what is not as it should be
 *   4       progress, so many        5  device: so many WQEs
 *   6       answers one that is kept 7  what breaks or confuses a connection
 */
#include "fuzz.h"

#define WORKER_CREDITS 4u
#define WORKER_MESSAGE 128u
#define WORKER_RESPONSE 96u
#define WORKER_ELEMENT 256u
#define WORKER_ELEMENTS 4u
#define WORKER_COMMANDS 512u

enum worker_fate {
	WORKER_BAD,
	WORKER_TOO_BIG,
	WORKER_NO_PLUGIN,
	WORKER_HANDLED,
};

enum worker_state {
	WORKER_COME,
	WORKER_KEPT,
	WORKER_ANSWERED,        /* what is to be on the wire is known */
	WORKER_SENT,
	WORKER_DROPPED,         /* with its connection */
};

struct worker_command {
	enum worker_fate fate;
	enum worker_state state;
	uint32_t conn, what, length, kind;
	int status;
	uint64_t context, plugin, destination;
	uint32_t read_key, write_key, granted;
	uint32_t answer;        /* bytes of response */
	uint32_t read;          /* done once */
	struct inlay_task_cmd *cmd;
	uint8_t payload[WORKER_MESSAGE], response[WORKER_ELEMENT];
};

static struct {
	struct fuzz_worker f;
	uint8_t elements[WORKER_ELEMENTS * WORKER_ELEMENT] __attribute__((aligned(4096)));
	struct worker_command commands[WORKER_COMMANDS];
	uint32_t num, come[FUZZ_CONNS], down[FUZZ_CONNS], strays[FUZZ_CONNS], all_strays;
	uint32_t written_key[FUZZ_CONNS], written[FUZZ_CONNS];
	uint8_t written_bytes[FUZZ_CONNS][WORKER_ELEMENT];
	struct fuzz_in *in;
} worker __attribute__((aligned(4096)));

/* ---- The model ---- */

static int worker_key(const uint8_t *at, uint32_t *rkey, uint64_t *bytes)
{
	*rkey = (uint32_t)fuzz_le(at, 4);
	*bytes = fuzz_le(at + 8, 8);
	return !fuzz_le(at + 4, 4) && *bytes && *bytes < 1ull << 31;
}

/* What becomes of a message. */
static void worker_judge(struct worker_command *c, const uint8_t *msg, uint32_t n)
{
	uint32_t flags, head = 32;
	uint64_t bytes = 0, granted = 0;

	c->fate = WORKER_BAD;
	c->context = UINT64_MAX;
	c->plugin = c->destination = 0;
	/* Longer than what it came to: nothing of it is believed */
	if (n < 32 || n > WORKER_MESSAGE || msg[0] != INLAY_TASK_VERSION)
		return;
	flags = (uint32_t)fuzz_le(msg + 2, 2);
	c->length = (uint32_t)fuzz_le(msg + 4, 4);
	c->context = fuzz_le(msg + 8, 8);
	c->plugin = fuzz_le(msg + 16, 8);
	c->destination = fuzz_le(msg + 24, 8);
	if (msg[1] != INLAY_TASK_COMMAND || flags > 3)
		return;
	head += (flags & 1) * 16 + (flags >> 1) * 16;
	if (n < head || (flags & 1 && !worker_key(msg + 32, &c->read_key, &bytes)) ||
	    (flags & 2 && !worker_key(msg + head - 16, &c->write_key, &granted)))
		return;
	if (flags & 1 ? n != head || bytes != c->length : n - head != c->length)
		return;
	c->granted = (uint32_t)granted;
	c->fate = WORKER_HANDLED;
	if (c->plugin != 1 && c->plugin != 2)
		c->fate = WORKER_NO_PLUGIN;
	if (flags & 1 && (!worker.f.w.params.pool || c->length > WORKER_ELEMENT))
		c->fate = WORKER_TOO_BIG;
	if (!(flags & 1))
		memcpy(c->payload, msg + head, c->length);
}

/* The first one of a connection that no handler has seen; NULL: none. */
static struct worker_command *worker_next(uint32_t conn)
{
	for (uint32_t i = 0; i < worker.num; i++)
		if (worker.commands[i].conn == conn && worker.commands[i].fate == WORKER_HANDLED && worker.commands[i].state == WORKER_COME)
			return &worker.commands[i];
	return NULL;
}

static struct worker_command *worker_kept(uint32_t conn, uint32_t skip)
{
	struct worker_command *last = NULL;

	for (uint32_t i = 0; i < worker.num; i++)
		if (worker.commands[i].conn == conn && worker.commands[i].state == WORKER_KEPT) {
			last = &worker.commands[i];
			if (!skip--)
				break;
		}
	return last;
}

static void worker_look_payload(const struct worker_command *c)
{
	if (c->cmd->pulled)
		fuzz_same(c->cmd->payload, c->length, c->what);
	else
		sure(!memcmp(c->cmd->payload, c->payload, c->length));
}

/* ---- The plugin ---- */

static uint32_t worker_is(const struct inlay_task_conn *conn)
{
	return (uint32_t)(conn - worker.f.conns);
}

static void worker_answers(struct worker_command *c, int status, const void *data, uint32_t len)
{
	c->state = worker.down[c->conn] ? WORKER_DROPPED : WORKER_ANSWERED;
	c->kind = INLAY_TASK_ANSWER;
	c->status = status;
	c->answer = len;
	memcpy(c->response, data, len);
}

/* Answers from the payload's buffer, or another of the pool. Returns what that returns. */
static int worker_answer_buf(struct worker_command *c, uint32_t size)
{
	struct inlay_task_cmd *cmd = c->cmd;
	struct inlay_buf *buf = cmd->pulled;
	uint64_t largest = cmd->response_key.bytes > cmd->conn->answer_max ? cmd->response_key.bytes : cmd->conn->answer_max;
	uint8_t copy[WORKER_ELEMENT];
	int err, own = !buf;

	if (own && (!worker.f.w.params.pool || inlay_pool_alloc(worker.f.pool.pool, &buf)))
		return -ENOMEM;
	size %= WORKER_ELEMENT + 1;
	if (!own && size > c->length)
		size = c->length;
	if (own) {
		inlay_buf_set_data(buf, inlay_buf_head(buf), size);
		fuzz_allow(inlay_buf_head(buf), WORKER_ELEMENT);
		fuzz_fill((uint8_t *)inlay_buf_head(buf), size, c->what ^ 0x55);
	} else {
		inlay_buf_set_data(buf, inlay_buf_head(buf), size);
	}
	memcpy(copy, inlay_buf_data(buf), size);
	err = inlay_task_cmd_answer_buf(cmd, -3, buf);
	sure((err == -E2BIG) == (size > largest));
	if (own)
		inlay_buf_dec_refcount(buf, NULL);
	if (err && err != -ENOTCONN)
		return err;
	sure((err == -ENOTCONN) == !!worker.down[c->conn]);
	worker_answers(c, -3, copy, size);
	if (size > cmd->conn->answer_max)
		c->kind = INLAY_TASK_WRITTEN;
	return 0;
}

/* Answers a command that is the plugin's, as the byte says. 0: it could not. */
static int worker_answer(struct worker_command *c, uint32_t how)
{
	struct inlay_task_cmd *cmd = c->cmd;
	uint32_t len = how >> 3, room = cmd->conn->response_max;
	uint8_t data[512];
	int err, status = -(int)(how & 1) * 5;

	worker_look_payload(c);
	switch (how >> 1 & 3) {
	case 0:
		len = len * 13;
		fuzz_fill(data, len, c->what ^ 0xaa);
		err = inlay_task_cmd_answer(cmd, status, data, len);
		sure((err == -E2BIG) == (len > room));
		if (err == -E2BIG)
			return 0;
		worker_answers(c, status, data, len);
		break;
	case 1:
		len = len * 4;
		cmd->response_len = len < room ? len : room;
		fuzz_fill(cmd->response, cmd->response_len, c->what ^ 0xbb);
		memcpy(data, cmd->response, cmd->response_len);
		len = cmd->response_len;
		err = inlay_task_cmd_answer(cmd, how & 1 ? -70000 : 0, cmd->response, cmd->response_len);
		worker_answers(c, how & 1 ? -EIO : 0, data, len);
		break;
	case 2: return !worker_answer_buf(c, fuzz_8(worker.in) + (how >> 7));
	default:
		err = inlay_task_cmd_answer(cmd, status, cmd->payload, len < room && len < c->length ? len : 0);
		worker_answers(c, status, cmd->payload, len < room && len < c->length ? len : 0);
	}
	sure(err == (worker.down[c->conn] ? -ENOTCONN : 0));
	return 1;
}

static int worker_command(void *plugin, struct inlay_task_cmd *cmd)
{
	uint32_t how = fuzz_8(worker.in), conn = worker_is(cmd->conn), room;
	struct worker_command *c;

	sure(plugin == &worker && conn < FUZZ_CONNS && !worker.down[conn]);
	c = worker_next(conn);
	sure(c && cmd->ids.context == c->context && cmd->ids.plugin == c->plugin && cmd->ids.destination == c->destination);
	sure(cmd->payload_len == c->length && !cmd->response_len && cmd->response_max == cmd->conn->response_max);
	sure(!cmd->pulled == !c->read_key && cmd->state == &cmd->conn->states[c->plugin - 1]);
	c->cmd = cmd;
	worker_look_payload(c);
	/* Nobody reads beyond it */
	if (cmd->pulled)
		fuzz_forbid(cmd->payload + c->length, WORKER_ELEMENT - c->length);
	else
		fuzz_forbid(cmd->payload + c->length, (size_t)(cmd->response - cmd->payload) - c->length);
	c->state = WORKER_KEPT;
	room = cmd->response_max;
	switch (how & 7) {
	case 0:
	case 1:
		cmd->response_len = (how >> 3) * 3 < room ? (how >> 3) * 3 : room;
		fuzz_fill(cmd->response, cmd->response_len, c->what ^ 0xcc);
		worker_answers(c, -(int)(how & 1) * 7, cmd->response, cmd->response_len);
		return -(int)(how & 1) * 7;
	case 2: return INLAY_TASK_LATER;
	case 3:
		c->state = WORKER_COME;
		return INLAY_TASK_STALL;
	case 4:
		cmd->response_len = room + 1 + how;
		worker_answers(c, -E2BIG, cmd->response, 0);
		return 0;
	case 5:
		worker_answers(c, -EIO, cmd->response, 0);
		return -4096 - (int)how;
	default:
		if (worker_answer(c, how >> 3 | (fuzz_8(worker.in) << 5 & 0xff)))
			return how & 8 ? 0 : INLAY_TASK_LATER;
		return INLAY_TASK_LATER;
	}
}

static uint32_t worker_turn(void *plugin)
{
	sure(plugin == &worker);
	return 0;
}

static void worker_connection(void *plugin, struct inlay_task_conn *conn, void **state, int up)
{
	uint32_t i, c = worker_is(conn);

	sure(plugin == &worker && c < FUZZ_CONNS && state >= conn->states && state < conn->states + 2);
	if (up)
		return;
	/* Both plugins are told */
	if (worker.down[c])
		return;
	worker.down[c] = 1;
	for (i = 0; i < worker.num; i++)
		if (worker.commands[i].conn == c && worker.commands[i].state != WORKER_KEPT)
			worker.commands[i].state = WORKER_DROPPED;
}

/* ---- The device ---- */

static int worker_within(const struct fuzz_piece *p, uint32_t conn)
{
	uintptr_t at = (uintptr_t)p->at, end = at + p->bytes, pool = (uintptr_t)worker.elements, own = (uintptr_t)worker.f.conn_memory[conn];

	if (p->lkey == FUZZ_POOL_LKEY)
		return at >= pool && end <= pool + sizeof(worker.elements);
	return p->lkey == FUZZ_LKEY + 2 * conn && at >= own && end <= own + worker.f.conn_size;
}

static void worker_answer_seen(uint32_t conn, const uint8_t *msg, uint32_t n)
{
	uint32_t i, kind = msg[1], length = (uint32_t)fuzz_le(msg + 4, 4);
	int status = -(int)fuzz_le(msg + 2, 2);

	sure(n >= 32 && msg[0] == INLAY_TASK_VERSION && n <= worker.f.conns[conn].link.peer.message);
	sure(kind == INLAY_TASK_ANSWER ? n == 32 + length : n == 32);
	for (i = 0; i < worker.num; i++) {
		struct worker_command *c = &worker.commands[i];

		if (c->conn != conn || c->context != fuzz_le(msg + 8, 8) || c->plugin != fuzz_le(msg + 16, 8) ||
		    c->destination != fuzz_le(msg + 24, 8))
			continue;
		if (c->state == WORKER_COME && c->fate != WORKER_HANDLED) {
			sure(kind == INLAY_TASK_ANSWER && !length);
			sure(status == (c->fate == WORKER_BAD ? -EBADMSG : c->fate == WORKER_TOO_BIG ? -E2BIG : -ENOENT));
		} else if (c->state == WORKER_ANSWERED) {
			sure(c->kind == kind && length == c->answer && status == c->status);
			if (kind == INLAY_TASK_ANSWER)
				sure(!memcmp(msg + 32, c->response, length));
			if (kind == INLAY_TASK_WRITTEN) {
				sure(length <= c->granted && worker.written[conn] == length);
				sure(worker.written_key[conn] == c->write_key);
				sure(!memcmp(worker.written_bytes[conn], c->response, length));
			}
		} else {
			continue;
		}
		worker.written[conn] = 0;
		c->state = WORKER_SENT;
		return;
	}
	sure(!"an answer to no command");
}

/* A read: of a payload, by the key that the command has, as long as that says. */
static void worker_read(uint32_t conn, const struct fuzz_wqe *w, const struct fuzz_piece *p, uint32_t num)
{
	uint32_t i, rkey = fuzz_be32(w->at + 24);

	sure(num == 1 && !p->in_wqe && p->lkey == FUZZ_POOL_LKEY && !fuzz_be64(w->at + 16));
	sure(!(((uintptr_t)p->at - (uintptr_t)worker.elements) % WORKER_ELEMENT));
	for (i = 0; i < worker.num; i++) {
		struct worker_command *c = &worker.commands[i];

		if (c->conn == conn && c->state == WORKER_COME && (c->fate == WORKER_HANDLED || c->fate == WORKER_NO_PLUGIN) &&
		    c->read_key == rkey && c->length == p->bytes && !c->read) {
			c->read = 1;
			fuzz_allow(p->at, WORKER_ELEMENT);
			fuzz_fill((uint8_t *)(uintptr_t)p->at, p->bytes, c->what);
			return;
		}
	}
	sure(!"a read for no command");
}

static void worker_device(uint32_t conn, uint32_t most)
{
	struct fuzz_piece p[20];
	struct fuzz_wqe w;
	uint8_t msg[512];
	uint32_t num, i, n;

	if (worker.f.dead[conn]) {
		fuzz_flush(&worker.f.qps[conn], most, 0);
		return;
	}
	while (most-- && fuzz_cq_room(&worker.f.cq) > 50 && fuzz_next(&worker.f.qps[conn], &w)) {
		num = fuzz_pieces(&w, w.opcode == MLX5_OPCODE_SEND ? 1 : 2, p);
		for (i = 0; i < num; i++)
			sure(p[i].in_wqe || worker_within(&p[i], conn));
		if (w.opcode == MLX5_OPCODE_SEND) {
			n = fuzz_gather(p, num, msg, sizeof(msg));
			worker_answer_seen(conn, msg, n);
		} else if (w.opcode == MLX5_OPCODE_RDMA_READ) {
			worker_read(conn, &w, p, num);
		} else {
			sure(w.opcode == MLX5_OPCODE_RDMA_WRITE && !fuzz_be64(w.at + 16));
			sure(!worker.written[conn] && !num == !fuzz_be32(w.at + 24));
			worker.written_key[conn] = fuzz_be32(w.at + 24);
			worker.written[conn] = fuzz_gather(p, num, worker.written_bytes[conn], WORKER_ELEMENT);
		}
		fuzz_done(&worker.f.qps[conn], &w);
	}
}

/* ---- Messages ---- */

static uint32_t worker_message(struct fuzz_in *in, uint32_t form, uint8_t *msg)
{
	uint32_t n, flags = form >> 1 & 3, length, i;

	if (form & 1) {
		n = fuzz_8(in) % 136;
		fuzz_bytes(in, msg, n);
		return n;
	}
	msg[0] = INLAY_TASK_VERSION;
	msg[1] = INLAY_TASK_COMMAND;
	msg[2] = (uint8_t)flags;
	i = fuzz_8(in);
	msg[16] = (uint8_t)(i & 3);
	fuzz_fill(msg + 8, 8, i);
	n = 32;
	length = fuzz_8(in);
	if (flags & 1) {
		length += i & 64; /* larger than an element, perhaps */
		if (!length)
			length = 1;
		msg[n] = (uint8_t)(i | 1);
		msg[n + 1] = 1;
		msg[n + 8] = (uint8_t)length;
		msg[n + 9] = (uint8_t)(length >> 8);
		n += 16;
	}
	if (flags & 2) {
		msg[n] = (uint8_t)(i | 1);
		msg[n + 1] = 2;
		msg[n + 8] = (uint8_t)(fuzz_8(in) | 1);
		msg[n + 9] = (uint8_t)(i >> 7);
		n += 16;
	}
	if (!(flags & 1)) {
		length %= WORKER_MESSAGE - n + 1;
		fuzz_fill(msg + n, length, worker.num);
		n += length;
	}
	msg[4] = (uint8_t)length;
	msg[5] = (uint8_t)(length >> 8);
	if (form & 8)
		fuzz_spoil(in, msg, 64);
	if (form & 64)
		n = fuzz_8(in);
	return n;
}

static void worker_come(uint32_t conn, struct fuzz_in *in)
{
	uint32_t form = fuzz_8(in), n, opcode = MLX5_CQE_RESP_SEND;
	struct worker_command *c;
	uint64_t serial = worker.num + 1;
	uint8_t msg[256] = {};

	n = worker_message(in, form, msg);
	if (worker.f.dead[conn] || worker.num == WORKER_COMMANDS || !fuzz_receive(&worker.f.qps[conn]) || fuzz_cq_room(&worker.f.cq) < 10)
		return;
	memcpy(msg + 24, &serial, 8);
	if (form & 32 && form & 128) {
		opcode = form & 2 ? MLX5_CQE_RESP_WR_IMM : form & 4 ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND_INV;
		worker.strays[conn]++;
	}
	c = &worker.commands[worker.num++];
	memset(c, 0, sizeof(*c));
	c->conn = conn;
	c->what = (uint32_t)serial;
	/* What does not come by a plain send says nothing */
	worker_judge(c, msg, opcode == MLX5_CQE_RESP_SEND ? n : 0);
	worker.come[conn]++;
	fuzz_arrive(&worker.f.qps[conn], opcode, msg, n);
	if (!(form & 16))
		inlay_task_worker_progress(&worker.f.w, 8);
}

static void worker_fault(uint32_t conn, uint32_t which)
{
	uint32_t pi = worker.f.conns[conn].link.sq.pi;

	if (fuzz_cq_room(&worker.f.cq) < 10)
		return;
	switch (which & 3) {
	case 0: message_probe(&worker.f.conns[conn].link); break;
	case 1:
		fuzz_cqe(&worker.f.cq, FUZZ_CONN_QPN + FUZZ_CONNS + which, which >> 4, 40, 0);
		worker.all_strays++;
		break;
	case 2:
		if (worker.f.dead[conn])
			break;
		fuzz_cqe(&worker.f.cq, FUZZ_CONN_QPN + conn, MLX5_CQE_REQ, 0, pi + 1000 + which);
		worker.strays[conn]++;
		break;
	default:
		if (worker.f.dead[conn])
			break;
		worker.f.dead[conn] = 1;
		if (!(which & 4) || !fuzz_flush_receive(&worker.f.qps[conn]))
			worker_device(conn, 1);
	}
}

/* ---- What holds at any time ---- */

static uint32_t worker_list(const struct inlay_task_conn *c, const struct inlay_task_cmd *first)
{
	uint32_t n = 0;

	for (; first; first = first->next)
		sure(first >= c->cmds && first < c->cmds + c->num && n++ <= c->num);
	return n;
}

static void worker_look(void)
{
	uint32_t i, k, kept, lists;

	for (i = 0; i < FUZZ_CONNS; i++) {
		struct inlay_task_conn *c = &worker.f.conns[i];

		sure(c->broken == (int)worker.down[i]);
		for (k = kept = 0; k < worker.num; k++)
			kept += worker.commands[k].conn == i && worker.commands[k].state == WORKER_KEPT;
		sure(c->kept == kept);
		sure(c->pulls <= worker.f.w.share);
		if (worker.f.dead[i])
			continue;
		lists = worker_list(c, c->waiting.first) + worker_list(c, c->answered.first) + worker_list(c, c->sending.first);
		sure(lists + worker_list(c, c->spare.first) + kept + (c->link.rq.pi - c->taken) == c->num);
		/* As many receives as commands have been answered */
		lists = worker_list(c, c->waiting.first) + worker_list(c, c->answered.first);
		sure(c->taken == c->link.rq.pi - WORKER_CREDITS + kept + lists && worker.come[i] - c->taken <= WORKER_CREDITS);
	}
}

/* ---- One input ---- */

static void worker_begin(uint32_t one, uint32_t two)
{
	static const struct inlay_task_plugin plugins[2] = {
		{INLAY_TASK_VERSION, "a", NULL, NULL, NULL, worker_connection, worker_command, NULL},
		{INLAY_TASK_VERSION, "b", NULL, NULL, NULL, worker_connection, worker_command, worker_turn},
	};
	const struct inlay_task_entry entries[2] = {{1, &plugins[0], &worker}, {2, &plugins[1], &worker}};
	struct inlay_task_worker_params p = inlay_task_worker_default();

	fuzz_pool_make(&worker.f.pool, (struct ibv_pd *)(void *)&worker, worker.elements, WORKER_ELEMENTS, WORKER_ELEMENT, FUZZ_POOL_LKEY);
	p.plugins = entries;
	p.num_plugins = 2;
	p.credits = WORKER_CREDITS;
	p.spare = one & 1 ? 1 : 3;
	p.message = WORKER_MESSAGE;
	p.response = WORKER_RESPONSE;
	p.max_inline = one & 2 ? 64 : 16;
	fuzz_worker_make(&worker.f, NULL, &p, one & 4 ? NULL : worker.f.pool.pool, two & 1 ? 8 : 64, one & 16 ? 64 : WORKER_MESSAGE, 8);
	worker.num = worker.all_strays = 0;
	for (uint32_t i = 0; i < FUZZ_CONNS; i++)
		worker.come[i] = worker.down[i] = worker.strays[i] = worker.written[i] = 0;
}

static void worker_step(struct fuzz_in *in)
{
	uint32_t op = fuzz_8(in), conn = op >> 7;
	struct worker_command *c;

	switch (op & 7) {
	case 0:
	case 1:
	case 2:
	case 3: worker_come(conn, in); break;
	case 4: inlay_task_worker_progress(&worker.f.w, 1 + (op >> 3 & 7)); break;
	case 5: worker_device(conn, 1 + (op >> 3 & 15)); break;
	case 6:
		c = worker_kept(conn, op >> 3 & 3);
		if (c)
			worker_answer(c, fuzz_8(in));
		break;
	default: worker_fault(conn, fuzz_8(in));
	}
}

/* Whether a command is still to be answered. */
static int worker_owes(void)
{
	uint32_t i, owes = 0;

	for (i = 0; i < worker.num; i++)
		owes |= worker.commands[i].state != WORKER_SENT && worker.commands[i].state != WORKER_DROPPED;
	return owes || inlay_cq_peek(&worker.f.w.cq);
}

static void worker_input(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, data + size};
	uint32_t one = fuzz_8(&in), i, k;
	struct worker_command *c;

	worker.in = &in;
	worker_begin(one, fuzz_8(&in));
	while (in.at < in.end) {
		worker_step(&in);
		worker_look();
	}
	/* All that may be done is done: each command has been answered, once. */
	for (i = 0; i < 200 && worker_owes(); i++) {
		for (k = 0; k < FUZZ_CONNS; k++) {
			while ((c = worker_kept(k, 0)))
				sure(worker_answer(c, 0));
			worker_device(k, 64);
		}
		inlay_task_worker_progress(&worker.f.w, 64);
	}
	/* Those that have ended have got everything back. */
	for (i = 0; i < 20; i++) {
		for (k = 0; k < FUZZ_CONNS; k++)
			worker_device(k, 64);
		inlay_task_worker_progress(&worker.f.w, 64);
	}
	worker_look();
	sure(inlay_pool_num_free(worker.f.pool.pool) == WORKER_ELEMENTS);
	for (i = 0; i < worker.num; i++)
		sure(worker.commands[i].state == (worker.down[worker.commands[i].conn] ? WORKER_DROPPED : WORKER_SENT) ||
		     worker.commands[i].state == WORKER_SENT);
	for (i = 0; i < FUZZ_CONNS; i++) {
		sure(worker.f.conns[i].strays == worker.strays[i]);
		sure(!inlay_task_conn_destroy(&worker.f.conns[i]) && !worker.f.conns[i].pulls);
	}
	sure(worker.f.w.strays == worker.all_strays && !inlay_task_worker_destroy(&worker.f.w));
	fuzz_pool_end(&worker.f.pool, WORKER_ELEMENTS);
}

FUZZ_TARGET(worker_input)
