/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plugin.c: the plugins echo, rdma and rdmo (examples/plugins) in a worker with two connections: requests of any bytes, by message and by key,
 * with handles of their own, of each other and of nobody. Their endpoints' queues lie in memory as well: verbs and the set-up of links are
 * replaced here. What an endpoint posts must come from the payload of a command of its connection, or go to its response, and reach
 * nothing but what that connection has mapped. For libFuzzer (make fuzz), and for tests/task/fuzz.c.
 *
 * Input: a byte, then steps: a byte, of which the low 3 bits say what is done and the highest for which connection, and what it needs.
 *
 *   0 .. 3  a request       4  a device: a connection's, or an endpoint's
 *   5       a message to an endpoint, or its failure
 *   6       progress        7  a connection breaks, but seldom
 */
#include "fuzz.h"

#define PLUGIN_CREDITS 8u
#define PLUGIN_MESSAGE 1024u
#define PLUGIN_RESPONSE 256u
#define PLUGIN_ELEMENT 2048u
#define PLUGIN_ELEMENTS 8u
#define PLUGIN_EP_LKEY 77u
#define PLUGIN_COMMANDS 256u
#define PLUGIN_EPS 40u          /* all that there may be at a time */
#define PLUGIN_OBJECTS 256u     /* of all time */
#define PLUGIN_RANGES 4u
#define PLUGIN_BASE 0x10000u    /* about here maps begin */

/* ---- What stands for verbs ---- */

struct plugin_ep {
	struct fuzz_qp qp;
	struct ibv_qp ibqp;
	uint32_t used, owner, entry;
	uint32_t failed;        /* all that is outstanding is flushed */
};

enum plugin_state {
	PLUGIN_COME,
	PLUGIN_SENT,
	PLUGIN_DROPPED,
};

/* A command, and what it asks for */
struct plugin_command {
	enum plugin_state state;
	uint32_t conn, plugin, length, read, granted;
	uint32_t op, bytes;     /* as the plugin is to see them */
	uint8_t payload[PLUGIN_ELEMENT];
};

/* What a connection was given by a plugin */
struct plugin_object {
	uint32_t conn, plugin, map, live, num;
	uint64_t handle;
	struct inlay_blob_range ranges[PLUGIN_RANGES];
};

static struct {
	struct fuzz_worker f;
	struct fuzz_cq ep_cqs[2];
	struct plugin_ep eps[PLUGIN_EPS];
	struct ibv_cq ibcqs[2];
	struct ibv_pd pd;
	uint32_t num_cqs, ep_qpn, mrs;
	uint32_t busy;          /* so often nothing is let go of */
	uint8_t elements[PLUGIN_ELEMENTS * PLUGIN_ELEMENT] __attribute__((aligned(4096)));
	struct plugin_command commands[PLUGIN_COMMANDS];
	struct plugin_object objects[PLUGIN_OBJECTS];
	uint32_t num, num_objects;
	struct fuzz_in *in;
} plug __attribute__((aligned(4096)));

static struct inlay_connect_record plugin_record(uint32_t qpn)
{
	struct inlay_connect_record r = {};

	r.type = IBV_QPT_RC;
	r.link = INLAY_CONNECT_ROCE_V2;
	r.gid[0] = 0xfe;
	r.mtu = IBV_MTU_1024;
	r.qpn = qpn;
	return r;
}

static int plugin_link_create(struct inlay_task_link *l, const struct inlay_task_caps *caps,
			      FUZZ_UNUSED const struct inlay_connect_attr *path)
{
	uint32_t i;

	for (i = 0; i < PLUGIN_EPS && plug.eps[i].used; i++)
		;
	sure(i < PLUGIN_EPS);
	memset(&plug.eps[i].ibqp, 0, sizeof(plug.eps[i].ibqp));
	plug.eps[i].ibqp.qp_num = plug.ep_qpn++;
	plug.eps[i].used = 1;
	plug.eps[i].failed = 0;
	fuzz_qp_make(&plug.eps[i].qp, l, &plug.ep_cqs[caps->ibcq - plug.ibcqs], plug.eps[i].ibqp.qp_num, 64, l->self.receives);
	l->qp = &plug.eps[i].ibqp;
	l->at = plugin_record(l->qp->qp_num);
	inlay_connect_pack(&l->at, l->self.at);
	inlay_task_address_seal_(&l->self);
	return 0;
}

static struct plugin_ep *plugin_ep_of(const struct inlay_task_link *l)
{
	uint32_t i;

	for (i = 0; i < PLUGIN_EPS && l->qp != &plug.eps[i].ibqp; i++)
		;
	sure(i < PLUGIN_EPS && plug.eps[i].used);
	return &plug.eps[i];
}

static int plugin_busy(void)
{
	return plug.busy ? plug.busy-- : 0;
}

static int plugin_link_destroy(struct inlay_task_link *l)
{
	if (!l->qp)
		return 0;
	if (plugin_busy())
		return -EBUSY;
	plugin_ep_of(l)->used = 0;
	l->qp = NULL;
	return 0;
}

static int plugin_link_connect(struct inlay_task_link *l, const void *blob, size_t len, uint32_t role)
{
	struct inlay_connect_record at;
	int err = inlay_task_address_read_(&l->peer, &at, blob, len, role, NULL);

	return err ? err : at.link == l->at.link ? 0 : -EINVAL;
}

static struct ibv_cq *plugin_create_cq(FUZZ_UNUSED struct ibv_context *ctx, int cqe, FUZZ_UNUSED void *context,
				       FUZZ_UNUSED struct ibv_comp_channel *channel, int vector)
{
	sure(cqe > 0 && !vector && plug.num_cqs < 2);
	return &plug.ibcqs[plug.num_cqs++];
}

static int plugin_destroy_cq(FUZZ_UNUSED struct ibv_cq *cq)
{
	plug.num_cqs--;
	return 0;
}

static struct ibv_mr *plugin_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	struct ibv_mr *mr = (struct ibv_mr *)calloc(1, sizeof(*mr));

	sure(mr && pd == &plug.pd && access == IBV_ACCESS_LOCAL_WRITE);
	mr->addr = addr;
	mr->length = len;
	mr->lkey = PLUGIN_EP_LKEY;
	plug.mrs++;
	return mr;
}

static int plugin_dereg_mr(struct ibv_mr *mr)
{
	if (plugin_busy())
		return EBUSY;
	free(mr);
	plug.mrs--;
	return 0;
}

#undef ibv_reg_mr
#define inlay_task_link_create(l, caps, path, why) plugin_link_create(l, caps, path)
#define inlay_task_link_destroy plugin_link_destroy
#define inlay_task_link_connect(l, blob, len, role, why) plugin_link_connect(l, blob, len, role)
#define inlay_task_link_break(l) ((void)(plugin_ep_of(l)->failed = 1))
#define ibv_create_cq plugin_create_cq
#define ibv_destroy_cq plugin_destroy_cq
#define inlay_cq_from_cq(cq, ibcq, why) (fuzz_cq_make(&plug.ep_cqs[(ibcq) - plug.ibcqs], cq), 0)
#define ibv_reg_mr plugin_reg_mr
#define ibv_dereg_mr plugin_dereg_mr
#include "../../examples/plugins/echo.h"
#include "../../examples/plugins/rdmo.h"
#undef inlay_task_link_create
#undef inlay_task_link_destroy
#undef inlay_task_link_connect
#undef inlay_task_link_break
#undef ibv_create_cq
#undef ibv_destroy_cq
#undef inlay_cq_from_cq
#undef ibv_dereg_mr

/* ---- The model ---- */

static struct plugin_object *plugin_find(uint32_t conn, uint32_t plugin, uint32_t map, uint64_t handle)
{
	for (uint32_t i = 0; i < plug.num_objects; i++) {
		struct plugin_object *o = &plug.objects[i];

		if (o->live && o->conn == conn && o->plugin == plugin && o->map == map && o->handle == handle)
			return o;
	}
	return NULL;
}

/* Bytes that a command in the hands of a plugin of this connection has as its payload, or, out, for its response. */
static struct inlay_task_cmd *plugin_owner(uint32_t conn, const struct fuzz_piece *p, int out)
{
	const struct inlay_task_conn *c = &plug.f.conns[conn];

	for (uint32_t i = 0; i < c->num; i++) {
		struct inlay_task_cmd *cmd = &c->cmds[i];
		const uint8_t *from = out ? cmd->response : cmd->payload;
		uint32_t size = out ? cmd->response_max : cmd->payload_len;
		uint32_t lkey = !out && cmd->pulled ? FUZZ_POOL_LKEY : FUZZ_LKEY + 2 * conn;

		if (cmd->kept && p->lkey == lkey && p->at >= from && p->bytes <= size &&
		    (uintptr_t)(p->at - from) <= size - p->bytes)
			return cmd;
	}
	return NULL;
}

/* The ranges of what a command asks to map. Returns how many. */
static uint32_t plugin_ranges(const struct plugin_command *c, struct inlay_blob_range ranges[PLUGIN_RANGES])
{
	struct inlay_blob head;
	uint32_t i;

	if (inlay_blob_head_(&head, c->payload + RDMA_HEAD, c->bytes))
		return 0;
	for (i = 0; i < head.ranges && i < PLUGIN_RANGES; i++)
		memcpy(&ranges[i], c->payload + RDMA_HEAD + inlay_blob_at_(i), sizeof(ranges[i]));
	return i;
}

static int plugin_within(const struct inlay_blob_range *r, uint32_t num, uint32_t rkey, uint64_t addr, uint64_t bytes, uint32_t access)
{
	for (; num--; r++)
		if (r->rkey == rkey && addr >= r->start && bytes <= r->len && addr - r->start <= r->len - bytes &&
		    (r->access & access) == access)
			return 1;
	return 0;
}

/* Whether a connection has mapped this, with that right, by this key, and has not been told that it is unmapped. */
static int plugin_mapped(uint32_t conn, uint32_t plugin, uint32_t rkey, uint64_t addr, uint64_t bytes, uint32_t access)
{
	struct inlay_blob_range ranges[PLUGIN_RANGES];

	for (uint32_t i = 0; i < plug.num_objects; i++) {
		const struct plugin_object *o = &plug.objects[i];

		if ((o->live || plug.f.dead[conn]) && o->conn == conn && o->plugin == plugin && o->map &&
		    plugin_within(o->ranges, o->num, rkey, addr, bytes, access))
			return 1;
	}
	/* A broken connection may have been given what it was never told. */
	for (uint32_t i = 0; plug.f.dead[conn] && i < plug.num; i++) {
		const struct plugin_command *c = &plug.commands[i];

		if (c->conn == conn && c->plugin == plugin && c->op == RDMA_MAP && c->state == PLUGIN_DROPPED &&
		    plugin_within(ranges, plugin_ranges(c, ranges), rkey, addr, bytes, access))
			return 1;
	}
	return 0;
}

/* ---- Answers; that each is the right one is tests/task/plugins.c's matter ---- */

static void plugin_object(const struct plugin_command *c, uint64_t handle)
{
	struct plugin_object *o = &plug.objects[plug.num_objects];
	const int map = c->op == RDMA_MAP;

	sure(handle >> 32 && plug.num_objects < PLUGIN_OBJECTS && !plugin_find(c->conn, c->plugin, (uint32_t)map, handle));
	memset(o, 0, sizeof(*o));
	o->conn = c->conn;
	o->plugin = c->plugin;
	o->handle = handle;
	o->live = 1;
	o->map = (uint32_t)map;
	plug.num_objects++;
	if (map)
		sure((o->num = plugin_ranges(c, o->ranges)));
}

static void plugin_answered(struct plugin_command *c, int status, const uint8_t *response, uint32_t length)
{
	struct plugin_object *o;

	if (c->plugin == ECHO_ID)
		sure(status || (length == c->length && !memcmp(response, c->payload, length)));
	else
		sure((!status || !length) && (c->plugin == RDMA_ID || c->plugin == RDMO_ID || status == -ENOENT));
	if (status || c->plugin == ECHO_ID)
		return;
	switch (c->op) {
	case RDMA_EP:
	case RDMA_MAP: plugin_object(c, inlay_task_get64_(response)); break;
	case RDMA_CLOSE:
	case RDMA_UNMAP: /* only what it was given */
		o = plugin_find(c->conn, c->plugin, c->op == RDMA_UNMAP, inlay_task_get64_(c->payload + (c->op == RDMA_UNMAP ? 16 : 8)));
		sure(o);
		o->live = 0;
		break;
	case RDMA_GET: fuzz_same(response, length, (uint32_t)inlay_task_get64_(c->payload + 24)); break;
	}
}

/* ---- Devices ---- */

static void plugin_answer_seen(uint32_t conn, const uint8_t *msg, uint32_t n)
{
	uint64_t context;
	struct plugin_command *c;

	sure(n >= 32 && n <= PLUGIN_MESSAGE && msg[0] == INLAY_TASK_VERSION);
	context = inlay_task_get64_(msg + 8);
	sure(context < plug.num);
	c = &plug.commands[context];
	sure(c->conn == conn && c->state == PLUGIN_COME);
	c->state = PLUGIN_SENT;
	if (msg[1] == INLAY_TASK_WRITTEN) {
		sure(inlay_task_get32_(msg + 4) <= c->granted && c->plugin == ECHO_ID);
		return;
	}
	sure(msg[1] == INLAY_TASK_ANSWER && n - 32 == inlay_task_get32_(msg + 4));
	plugin_answered(c, -(int)(inlay_task_get32_(msg) >> 16), msg + 32, n - 32);
}

static void plugin_device(uint32_t conn, uint32_t most)
{
	struct fuzz_piece p[20];
	struct fuzz_wqe w;
	uint8_t msg[PLUGIN_ELEMENT];
	uint32_t num, key;

	while (most-- && !plug.f.dead[conn] && fuzz_cq_room(&plug.f.cq) > 50 && fuzz_next(&plug.f.qps[conn], &w)) {
		num = fuzz_pieces(&w, w.opcode == MLX5_OPCODE_SEND ? 1 : 2, p);
		if (w.opcode == MLX5_OPCODE_SEND) {
			plugin_answer_seen(conn, msg, fuzz_gather(p, num, msg, sizeof(msg)));
		} else if (w.opcode == MLX5_OPCODE_RDMA_READ) {
			struct plugin_command *c;

			key = fuzz_be32(w.at + 24);
			sure(key < plug.num && num == 1);
			c = &plug.commands[key];
			sure(c->conn == conn && c->read && p->bytes == c->length && p->lkey == FUZZ_POOL_LKEY);
			fuzz_allow(p->at, PLUGIN_ELEMENT);
			memcpy((uint8_t *)(uintptr_t)p->at, c->payload, c->length);
			fuzz_forbid(p->at + c->length, PLUGIN_ELEMENT - c->length);
		} else {
			sure(w.opcode == MLX5_OPCODE_RDMA_WRITE);
			key = fuzz_be32(w.at + 24);
			sure(key < plug.num && plug.commands[key].conn == conn);
			sure(fuzz_gather(p, num, msg, sizeof(msg)) <= plug.commands[key].granted);
		}
		fuzz_done(&plug.f.qps[conn], &w);
	}
}

/* Whose an endpoint is: it was asked for by the command that is answered with it, or is about to be. */
static void plugin_adopt(struct plugin_ep *ep)
{
	const struct rdma_ep *e = (const struct rdma_ep *)(const void *)ep->qp.link;

	for (uint32_t i = 0; i < FUZZ_CONNS; i++)
		for (ep->entry = 1; ep->entry <= 2; ep->entry++)
			if (plug.f.conns[i].states[ep->entry] == e->host) {
				ep->owner = i;
				return;
			}
	sure(!"an endpoint of no connection");
}

static void plugin_endpoint(struct plugin_ep *ep, uint32_t most)
{
	struct fuzz_piece p[20];
	struct fuzz_wqe w;
	uint8_t msg[PLUGIN_ELEMENT];
	uint32_t num, rkey, access, bytes, i, from;
	uint64_t addr, value;

	if (ep->failed) {
		while (fuzz_cq_room(ep->qp.cq) > 50 && fuzz_next(&ep->qp, &w))
			fuzz_cqe_error(ep->qp.cq, ep->qp.qpn, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, w.index);
		return;
	}
	/* What connections have been given and told is known. */
	for (i = 0; i < FUZZ_CONNS; i++)
		plugin_device(i, 64);
	plugin_adopt(ep);
	while (most-- && fuzz_cq_room(ep->qp.cq) > 50 && fuzz_next(&ep->qp, &w)) {
		from = w.opcode == MLX5_OPCODE_SEND ? 1 : w.opcode == MLX5_OPCODE_RDMA_READ || w.opcode == MLX5_OPCODE_RDMA_WRITE ? 2 : 3;
		sure(w.opcode == MLX5_OPCODE_SEND || from == 2 || w.opcode == MLX5_OPCODE_ATOMIC_FA || w.opcode == MLX5_OPCODE_ATOMIC_CS);
		num = fuzz_pieces(&w, from, p);
		for (i = bytes = 0; i < num; i++) {
			sure(plugin_owner(ep->owner, &p[i], w.opcode == MLX5_OPCODE_RDMA_READ || from == 3));
			bytes += p[i].bytes;
		}
		if (from == 1 || w.opcode == MLX5_OPCODE_RDMA_WRITE)
			fuzz_gather(p, num, msg, sizeof(msg));
		if (from > 1) {
			addr = fuzz_be64(w.at + 16);
			rkey = fuzz_be32(w.at + 24);
			access = from == 3 ? INLAY_RDMA_ATOMIC : w.opcode == MLX5_OPCODE_RDMA_READ ? INLAY_RDMA_READ : INLAY_RDMA_WRITE;
			sure(rkey >> 24 == 0xc0 + ep->owner && num == 1);
			sure(plugin_mapped(ep->owner, ep->entry + 1, rkey, addr, bytes, access));
			if (w.opcode == MLX5_OPCODE_RDMA_READ)
				fuzz_fill((uint8_t *)(uintptr_t)p->at, bytes, (uint32_t)addr);
			if (from == 3) {
				sure(bytes == 8 && addr % 8 == 0);
				value = PLUGIN_BASE + fuzz_8(plug.in) * 16u;
				memcpy((uint8_t *)(uintptr_t)p->at, &value, 8);
			}
		}
		fuzz_done(&ep->qp, &w);
	}
}

/* ---- Requests ---- */

static uint64_t plugin_name(struct fuzz_in *in, uint32_t map)
{
	uint32_t which = fuzz_8(in), i, n;

	/* One of all that were given, to whomever; the high bits: spoiled */
	for (i = n = 0; i < plug.num_objects; i++)
		if (plug.objects[i].map == map && n++ == (which & 15))
			return plug.objects[i].handle ^
			       (which & 128 ? (uint64_t)1 << (which >> 2 & 31) : which & 64 ? (uint64_t)1 << 32 : 0);
	return which;
}

static uint32_t plugin_blob(struct fuzz_in *in, uint32_t conn, uint8_t *at)
{
	struct inlay_blob head = {};
	struct inlay_blob_range r;
	uint32_t form = fuzz_8(in), i, bytes, crc;

	memcpy(head.magic, "inlaymap", 8);
	head.version = INLAY_BLOB_VERSION;
	head.kind = INLAY_BLOB_RDMA;
	head.ranges = 1 + (form & 3);
	head.permissions = INLAY_RDMA_ANY;
	head.bytes = bytes = (uint32_t)inlay_blob_bytes_(&head);
	for (i = 0; i < head.ranges; i++) {
		r.start = PLUGIN_BASE + fuzz_8(in) * 16u;
		r.len = fuzz_8(in) * 8u + 8;
		r.rkey = 0xc0000000u + (conn << 24) + plug.num * 8 + i;
		r.access = form & 4 ? INLAY_RDMA_ANY : fuzz_8(in) & INLAY_RDMA_ANY;
		memcpy(at + inlay_blob_at_(i), &r, sizeof(r));
	}
	sure(!inlay_blob_seal_(at, &head, NULL));
	if (form & 8) {
		fuzz_spoil(in, at, 32);
		crc = inlay_crc32c(at, bytes - 4);
		memcpy(at + bytes - 4, &crc, 4);
	}
	if (form & 16)
		at[fuzz_8(in) % bytes] ^= 1;
	return bytes;
}

static uint32_t plugin_address(struct fuzz_in *in, uint8_t *at)
{
	uint32_t form = fuzz_8(in), crc;
	struct inlay_connect_record r = plugin_record(1);
	struct inlay_task_address a = {};

	a.role = INLAY_TASK_HOST;
	inlay_connect_pack(&r, a.at);
	a.message = 1024;
	a.receives = 32;
	inlay_task_address_seal_(&a);
	memcpy(at, &a, INLAY_TASK_ADDRESS);
	if (form & 1)
		fuzz_spoil(in, at, INLAY_TASK_ADDRESS - 4);
	crc = inlay_crc32c(at, INLAY_TASK_ADDRESS - 4);
	if (!(form & 2))
		memcpy(at + INLAY_TASK_ADDRESS - 4, &crc, 4);
	return INLAY_TASK_ADDRESS;
}

/* A request's bytes. Returns how many. */
static uint32_t plugin_request(struct fuzz_in *in, uint32_t conn, uint8_t *at)
{
	uint32_t form = fuzz_8(in), i, n;
	struct rdma_request r;

	if (form == 255) {
		n = fuzz_8(in);
		fuzz_bytes(in, at, n);
		return n;
	}
	memset(&r, 0, sizeof(r));
	r.op = form & 31;
	if (r.op >= 28)
		r.op = RDMO_APPEND + (r.op & 3);
	r.ep = r.op == RDMA_EP || r.op == RDMA_MAP ? 0 : plugin_name(in, 0);
	if (r.op == RDMA_CONNECT) {
		r.bytes = plugin_address(in, at + RDMA_HEAD);
	} else if (r.op == RDMA_MAP) {
		r.bytes = plugin_blob(in, conn, at + RDMA_HEAD);
	} else if (r.op == RDMA_TAG_RECV || r.op == RDMA_TAG_SEND) {
		r.map = fuzz_8(in) & 3;
		r.addr = fuzz_8(in) & 1 ? UINT64_MAX : 0;
		r.bytes = fuzz_8(in);
	} else if (r.op >= RDMA_UNMAP && r.op != RDMA_FLUSH) {
		r.map = plugin_name(in, 1);
		r.addr = PLUGIN_BASE + fuzz_8(in) * 8u;
		r.bytes = r.op == RDMA_ADD || r.op == RDMA_SWAP || r.op == RDMA_UNMAP ? 0 : fuzz_8(in);
		r.a = r.op == RDMO_APPEND ? plugin_name(in, 1) : fuzz_8(in) & 1;
	}
	n = RDMA_HEAD + (r.op == RDMA_GET || r.op == RDMA_TAG_RECV ? 0 : r.bytes);
	if (r.op == RDMO_SCATTER) {
		uint32_t left, sum = 0;

		r.b = fuzz_8(in) % 36;
		r.addr = r.a = 0;
		for (i = 0; i < r.b; i++) {
			left = 1 + fuzz_8(in) % 40;
			sum += left;
			rdmo_piece_write(at + RDMA_HEAD + RDMO_PIECE * i, PLUGIN_BASE + fuzz_8(in) * 8u, left);
		}
		r.bytes = (uint32_t)r.b * RDMO_PIECE + sum;
		n = RDMA_HEAD + r.bytes;
		if (form & 128)
			fuzz_spoil(in, at + RDMA_HEAD, 256);
	} else if (n > RDMA_HEAD && r.op != RDMA_CONNECT && r.op != RDMA_MAP) {
		fuzz_fill(at + RDMA_HEAD, n - RDMA_HEAD, plug.num);
	}
	rdma_request_write(at, &r);
	if (form & 64)
		fuzz_spoil(in, at, RDMA_HEAD);
	if (form & 32)
		n = n / 2 + fuzz_8(in);
	return n < PLUGIN_ELEMENT ? n : PLUGIN_ELEMENT - 1;
}

static void plugin_come(uint32_t conn, struct fuzz_in *in)
{
	struct plugin_command *c = &plug.commands[plug.num];
	struct inlay_task_message head;
	uint32_t form = fuzz_8(in), n, room;
	uint8_t msg[PLUGIN_MESSAGE], *slot;

	if (plug.num == PLUGIN_COMMANDS)
		return;
	memset(c, 0, sizeof(*c));
	n = plugin_request(in, conn, c->payload);
	if (plug.f.dead[conn] || !fuzz_receive(&plug.f.qps[conn]) || fuzz_cq_room(&plug.f.cq) < 10)
		return;
	c->conn = conn;
	c->plugin = form & 128 ? ECHO_ID + (form >> 5 & 3) * 3 : RDMA_ID + (form & 1);
	c->length = n;
	memset(&head, 0, sizeof(head));
	head.kind = INLAY_TASK_COMMAND;
	head.ids.context = plug.num;
	head.ids.plugin = c->plugin;
	head.length = n;
	if ((n > PLUGIN_MESSAGE - 64 || form & 2) && n) {
		head.flags |= INLAY_TASK_PAYLOAD_KEY;
		head.payload.rkey = plug.num;
		head.payload.bytes = n;
		c->read = 1;
	}
	if (form & 4) {
		head.flags |= INLAY_TASK_RESPONSE_KEY;
		head.response.rkey = plug.num;
		head.response.bytes = c->granted = PLUGIN_ELEMENT;
	}
	c->op = inlay_task_get32_(c->payload);
	c->bytes = inlay_task_get32_(c->payload + 4);
	plug.num++;
	n = message_write(msg, &head);
	if (!c->read) {
		memcpy(msg + n, c->payload, c->length);
		n += c->length;
	}
	slot = fuzz_receive(&plug.f.qps[conn]);
	room = fuzz_receive_room(&plug.f.qps[conn]);
	fuzz_arrive(&plug.f.qps[conn], MLX5_CQE_RESP_SEND, msg, n);
	fuzz_forbid(slot + n, room - n);
	if (!(form & 8))
		inlay_task_worker_progress(&plug.f.w, 8);
}

/* A message to an endpoint, from whomever. */
static void plugin_arrive(struct fuzz_in *in, struct plugin_ep *ep)
{
	uint32_t form = fuzz_8(in), n, room;
	uint8_t msg[PLUGIN_MESSAGE], *slot = fuzz_receive(&ep->qp);
	struct rdma_request r;
	struct fuzz_wqe w;

	if (fuzz_cq_room(ep->qp.cq) < 10)
		return;
	if (form > 250) {
		ep->failed = 1;
		if (form > 252 && fuzz_next(&ep->qp, &w)) {
			fuzz_cqe_error(ep->qp.cq, ep->qp.qpn, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, w.index);
			return;
		}
		fuzz_cqe_error(ep->qp.cq, ep->qp.qpn, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0);
		return;
	}
	if (!slot || ep->failed)
		return;
	memset(msg, 0, sizeof(msg));
	memset(&r, 0, sizeof(r));
	r.op = RDMA_TAG_SEND;
	r.map = form & 3;
	r.bytes = fuzz_8(in);
	rdma_request_write(msg, &r);
	n = RDMA_HEAD + r.bytes;
	if (form & 4)
		fuzz_spoil(in, msg, RDMA_HEAD);
	if (form & 8)
		n = fuzz_8(in);
	fuzz_fill(msg + RDMA_HEAD, r.bytes, form);
	room = fuzz_receive_room(&ep->qp);
	fuzz_arrive(&ep->qp, MLX5_CQE_RESP_SEND, msg, n);
	fuzz_forbid(slot + n, room - n);
}

/* ---- One input ---- */

static struct plugin_ep *plugin_pick(uint32_t which)
{
	for (uint32_t i = 0; i < PLUGIN_EPS; i++)
		if (plug.eps[i].used && !which--)
			return &plug.eps[i];
	return NULL;
}

static void plugin_break(uint32_t conn)
{
	if (plug.f.dead[conn])
		return;
	fuzz_cqe_error(&plug.f.cq, FUZZ_CONN_QPN + conn, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0);
	plug.f.dead[conn] = 1;
	for (uint32_t i = 0; i < plug.num; i++)
		if (plug.commands[i].conn == conn && plug.commands[i].state == PLUGIN_COME)
			plug.commands[i].state = PLUGIN_DROPPED;
	for (uint32_t i = 0; i < plug.num_objects; i++)
		if (plug.objects[i].conn == conn)
			plug.objects[i].live = 0;
}

static void plugin_begin(uint32_t one)
{
	const struct inlay_task_entry entries[3] = {{ECHO_ID, &echo_plugin, NULL}, {RDMA_ID, &rdma_plugin, NULL},
						    {RDMO_ID, &rdmo_plugin, NULL}};
	struct inlay_task_worker_params p = inlay_task_worker_default();

	fuzz_pool_make(&plug.f.pool, &plug.pd, plug.elements, PLUGIN_ELEMENTS, PLUGIN_ELEMENT, FUZZ_POOL_LKEY);
	p.plugins = entries;
	p.num_plugins = 3;
	p.credits = PLUGIN_CREDITS;
	p.spare = 4;
	p.message = PLUGIN_MESSAGE;
	p.response = one & 1 ? 64 : PLUGIN_RESPONSE;
	p.max_inline = 64;
	plug.busy = plug.num = plug.num_objects = plug.num_cqs = plug.mrs = 0;
	plug.ep_qpn = 100;
	fuzz_worker_make(&plug.f, &plug.pd, &p, plug.f.pool.pool, 128, PLUGIN_MESSAGE, PLUGIN_CREDITS);
}

static void plugin_step(struct fuzz_in *in)
{
	uint32_t op = fuzz_8(in), conn = op >> 7, i;
	struct plugin_ep *ep = plugin_pick(op >> 3 & 7);

	switch (op & 7) {
	case 0:
	case 1:
	case 2:
	case 3: plugin_come(conn, in); break;
	case 4:
		if (ep && op & 64)
			plugin_endpoint(ep, 1 + fuzz_8(in));
		else
			plugin_device(conn, 64);
		break;
	case 5:
		if (ep)
			plugin_arrive(in, ep);
		break;
	case 6: inlay_task_worker_progress(&plug.f.w, 1 + (op >> 3)); break;
	default:
		i = fuzz_8(in);
		if (i > 250)
			plugin_break(conn);
		else
			plug.busy = i & 7;
	}
}

static void plugin_input(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, data + size};
	uint32_t i, k, held[FUZZ_CONNS] = {0, 0}, waits[FUZZ_CONNS] = {0, 0};

	plug.in = &in;
	plugin_begin(fuzz_8(&in));
	while (in.at < in.end)
		plugin_step(&in);
	plug.busy = 0;
	for (i = 0; i < 40; i++) {
		for (k = 0; k < PLUGIN_EPS; k++)
			if (plug.eps[k].used)
				plugin_endpoint(&plug.eps[k], 64);
		for (k = 0; k < FUZZ_CONNS; k++)
			plugin_device(k, 64);
		inlay_task_worker_progress(&plug.f.w, 64);
	}
	/*
	 * Each was answered, but for those that wait for a message. When such hold all elements of their connection, one by key waits, and
	 * what came after it.
	 */
	for (i = 0; i < plug.num; i++) {
		const struct plugin_command *c = &plug.commands[i];

		if (c->state != PLUGIN_COME || waits[c->conn])
			continue;
		if (c->read && held[c->conn] == PLUGIN_ELEMENTS / FUZZ_CONNS) {
			waits[c->conn] = 1;
			continue;
		}
		sure(c->op == RDMA_TAG_RECV && (c->plugin == RDMA_ID || c->plugin == RDMO_ID));
		held[c->conn] += c->read;
	}
	for (i = 0; i < FUZZ_CONNS; i++)
		plugin_break(i);
	for (i = 0; i < 10; i++)
		inlay_task_worker_progress(&plug.f.w, 64);
	for (i = 0; i < FUZZ_CONNS; i++)
		sure(!plug.f.conns[i].kept && !inlay_task_conn_destroy(&plug.f.conns[i]));
	for (i = 0; i < PLUGIN_EPS; i++)
		sure(!plug.eps[i].used);
	sure(!inlay_task_worker_destroy(&plug.f.w) && !plug.mrs && !plug.num_cqs);
	fuzz_pool_end(&plug.f.pool, PLUGIN_ELEMENTS);
}

FUZZ_TARGET(plugin_input)
