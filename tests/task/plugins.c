/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plugins.c: the plugins rdma and rdmo of examples/plugins: two hosts, a worker and the memory that it works on, in one process on one
 * device. Every operation, every refusal, endpoints that fail, connections that end with commands kept. examples/worker.c and its host are
 * tests/task/offload.t's.
 */
#include "far.h"

#define MEM (64u << 10)

struct side {
	struct line line;
	struct inlay_task *t[TASKS];
};

struct bench {
	struct desk *desk;
	struct side side[2];
	struct far far;
};

static struct bench *bench_make(void)
{
	struct inlay_task_host_params hp = inlay_task_host_default();
	struct bench *b = (struct bench *)pages(sizeof(*b));

	b->desk = plugins_desk();
	for (uint32_t i = 0; i < 2; i++) {
		line_make(&b->side[i].line, b->desk, &hp);
		for (uint32_t k = 0; k < TASKS; k++)
			must(inlay_task_alloc(&b->side[i].line.host, RDMA_ID, NULL, &b->side[i].t[k]));
	}
	far_make(&b->far, MEM, 4096, INLAY_RDMA_READ | INLAY_RDMA_WRITE | INLAY_RDMA_ATOMIC);
	return b;
}

static void both(struct bench *b)
{
	step();
	inlay_task_worker_progress(&b->desk->worker, 64);
	step();
	inlay_task_host_progress(&b->side[0].line.host, 64);
	inlay_task_host_progress(&b->side[1].line.host, 64);
}

static void bench_free(struct bench *b)
{
	for (uint32_t i = 0; i < 2; i++)
		must(inlay_task_link_break(&b->side[i].line.host.link));
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t k = 0; k < b->side[i].line.host.num; k++)
			await_by(both(b), b->side[i].line.host.tasks[k].state <= INLAY_TASK_IDLE);
	for (uint32_t i = 0; i < 2; i++) {
		struct side *s = &b->side[i];

		assert_int_equal(s->line.host.strays, 0);
		line_free(&s->line);
		assert_int_equal(s->line.conn.kept, 0);
	}
	desk_free(b->desk);
	far_free(&b->far);
	free(b);
}

static int until_done(struct bench *b, const struct inlay_task *t)
{
	await_by(both(b), inlay_task_status(t) != -EINPROGRESS);
	return inlay_task_status(t);
}

static int call(struct bench *b, uint32_t side, uint64_t plugin, struct rdma_request r)
{
	struct inlay_task *t = b->side[side].t[0];

	request(t, plugin, &r);
	must(inlay_task_submit(t, INLAY_RING));
	return until_done(b, t);
}

static const uint8_t *answer(struct bench *b, uint32_t side, uint32_t len)
{
	struct inlay_task *t = b->side[side].t[0];

	assert_int_equal(t->response_len, len);
	return (const uint8_t *)inlay_buf_data(inlay_task_response(t));
}

static uint64_t endpoint(struct bench *b, uint32_t side, uint64_t plugin, uint8_t *address)
{
	const uint8_t *at;

	must(call(b, side, plugin, ask(RDMA_EP, 0, 0, 0, 0, NULL)));
	at = answer(b, side, 8 + INLAY_TASK_ADDRESS);
	memcpy(address, at + 8, INLAY_TASK_ADDRESS);
	return inlay_task_get64_(at);
}

/* An endpoint that is connected to the far memory */
static uint64_t reach(struct bench *b, uint32_t side, uint64_t plugin, struct far *f)
{
	uint8_t address[INLAY_TASK_ADDRESS];
	uint64_t ep = endpoint(b, side, plugin, address);

	must(inlay_task_link_connect(&f->link, address, sizeof(address), INLAY_TASK_HOST, NULL));
	memcpy(address, &f->link.self, sizeof(address));
	must(call(b, side, plugin, ask(RDMA_CONNECT, ep, 0, 0, sizeof(address), address)));
	return ep;
}

static uint64_t map_of(struct bench *b, uint32_t side, uint64_t plugin, struct far *f)
{
	must(call(b, side, plugin, ask(RDMA_MAP, 0, 0, 0, (uint32_t)f->blob_len, f->blob)));
	return inlay_task_get64_(answer(b, side, 8));
}

static uint64_t far_at(const struct far *f, size_t offset)
{
	return (uintptr_t)f->mem + offset;
}

/* ---- rdma ---- */

/* Puts, gets and atomics anywhere, beside a model */
TEST(puts_gets)
{
	struct bench *b = bench_make();
	uint64_t ep = reach(b, 0, RDMA_ID, &b->far), map = map_of(b, 0, RDMA_ID, &b->far), was;
	uint8_t *model = (uint8_t *)pages(MEM), data[1900];
	struct rdma_request r;
	uint32_t i, len, at;

	for (i = 0; i < 150; i++) {
		len = 1 + rnd_below(sizeof(data));
		at = rnd_below(MEM - len);
		fill(data, len, i);
		switch (rnd_below(4)) {
		case 0:
			must(call(b, 0, RDMA_ID, ask(RDMA_GET, ep, map, far_at(&b->far, at), len, NULL)));
			assert_memory_equal(answer(b, 0, len), model + at, len);
			break;
		case 1:
			at &= ~7u;
			memcpy(&was, model + at, 8);
			r = ask(rnd_below(2) ? RDMA_ADD : RDMA_SWAP, ep, map, far_at(&b->far, at), 0, NULL);
			r.a = r.op == RDMA_ADD || rnd_below(2) ? rnd() : was;
			r.b = rnd();
			must(call(b, 0, RDMA_ID, r));
			assert_int_equal(inlay_task_get64_(answer(b, 0, 8)), was);
			was = r.op == RDMA_ADD ? was + r.a : was == r.a ? r.b : was;
			memcpy(model + at, &was, 8);
			break;
		default:
			must(call(b, 0, RDMA_ID, ask(RDMA_PUT, ep, map, far_at(&b->far, at), len, data)));
			memcpy(model + at, data, len);
		}
		assert_memory_equal(b->far.mem, model, MEM);
	}
	free(model);
	bench_free(b);
}

/* Many puts and a flush behind them: when it is answered, they are there */
TEST(flush)
{
	struct bench *b = bench_make();
	uint64_t ep = reach(b, 0, RDMA_ID, &b->far), map = map_of(b, 0, RDMA_ID, &b->far);
	struct inlay_task **t = b->side[0].t;
	struct rdma_request r;
	uint32_t i, round;

	for (round = 0; round < 5; round++) {
		for (i = 0; i + 1 < TASKS; i++) {
			r = ask(RDMA_PUT, ep, map, far_at(&b->far, i * 1024), 1000, NULL);
			fill(request(t[i], RDMA_ID, &r), 1000, round * 100 + i);
			must(inlay_task_submit(t[i], 0));
		}
		r = ask(RDMA_FLUSH, ep, 0, 0, 0, NULL);
		request(t[i], RDMA_ID, &r);
		must(inlay_task_submit(t[i], INLAY_RING));
		must(until_done(b, t[i]));
		for (i = 0; i + 1 < TASKS; i++) {
			must(inlay_task_status(t[i]));
			assert_int_equal(differs(b->far.mem + i * 1024, 1000, round * 100 + i), 1000);
		}
	}
	bench_free(b);
}

/* What is no request, and what names something that is not there, not the host's, or not to be done so */
TEST(refusals)
{
	struct bench *b = bench_make();
	uint64_t ep = reach(b, 0, RDMA_ID, &b->far), map = map_of(b, 0, RDMA_ID, &b->far), at = far_at(&b->far, 0), read_only;
	uint8_t data[64] = {1}, address[INLAY_TASK_ADDRESS];
	struct inlay_task *t = b->side[0].t[1];
	struct inlay_buf *buf = inlay_task_payload(t);
	struct rdma_request r;
	struct far other = {};

	r = ask(RDMA_PUT, ep, map, at, sizeof(data), data);
	request(t, RDMA_ID, &r);
	for (uint32_t i = 0; i < RDMA_HEAD + sizeof(data); i += i < RDMA_HEAD ? 1 : 13) {
		must(inlay_buf_set_data(buf, inlay_buf_head(buf), i));
		must(inlay_task_submit(t, INLAY_RING));
		assert_int_equal(until_done(b, t), -EBADMSG);
	}
	request(t, RDMA_ID, &r);
	inlay_put32((uint8_t *)inlay_buf_head(buf) + 4, 0xffffffff);
	must(inlay_task_submit(t, INLAY_RING));
	assert_int_equal(until_done(b, t), -EBADMSG);
	request(t, RDMA_ID, &r);
	((uint8_t *)inlay_buf_head(buf))[2] = 1; /* a flag */
	must(inlay_task_submit(t, INLAY_RING));
	assert_int_equal(until_done(b, t), -EBADMSG);
	assert_int_equal(call(b, 0, RDMA_ID, ask(0, ep, map, at, 0, NULL)), -EOPNOTSUPP);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMO_APPEND, ep, map, at, 0, NULL)), -EOPNOTSUPP);

	/* Each one's first error is the next flush's */
	must(call(b, 0, RDMA_ID, ask(RDMA_FLUSH, ep, 0, 0, 0, NULL)));
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_PUT, ep, map + 1, at, 8, data)), -EBADF);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_PUT, ep, map, at - 1, 8, data)), -ENOENT);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_FLUSH, ep, 0, 0, 0, NULL)), -EBADF);
	must(call(b, 0, RDMA_ID, ask(RDMA_FLUSH, ep, 0, 0, 0, NULL)));
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_PUT, ep, map, at + MEM - 7, 8, data)), -ENOENT);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_GET, ep, map, UINT64_MAX - 3, 8, NULL)), -ENOENT);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_GET, ep, map, at, 4096, NULL)), -E2BIG);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_GET, ep, map, at, 0xffffffff, NULL)), -E2BIG);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_PUT, ep, map, at, 0, NULL)), -EINVAL);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_ADD, ep, map, at + 4, 0, NULL)), -EINVAL);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_ADD, ep, map, at, 8, data)), -EINVAL);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_FLUSH, ep, 0, 0, 0, NULL)), -ENOENT);

	/* Another host's handles are nothing; nor are another plugin's */
	assert_int_equal(call(b, 1, RDMA_ID, ask(RDMA_PUT, ep, map, at, 8, data)), -EBADF);
	assert_int_equal(call(b, 1, RDMA_ID, ask(RDMA_UNMAP, 0, map, 0, 0, NULL)), -EBADF);
	assert_int_equal(call(b, 0, RDMO_ID, ask(RDMA_PUT, ep, map, at, 8, data)), -EBADF);
	assert_true(all_bytes(b->far.mem, MEM, 0));

	/* A map that may only be read */
	far_make(&other, MEM, 4096, INLAY_RDMA_READ);
	read_only = map_of(b, 0, RDMA_ID, &other);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_PUT, ep, read_only, far_at(&other, 0), 8, data)), -EPERM);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_ADD, ep, read_only, far_at(&other, 0), 0, NULL)), -EPERM);
	must(call(b, 0, RDMA_ID, ask(RDMA_GET, ep, read_only, far_at(&other, 0), 8, NULL)));
	must(call(b, 0, RDMA_ID, ask(RDMA_UNMAP, 0, read_only, 0, 0, NULL)));
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_GET, ep, read_only, far_at(&other, 0), 8, NULL)), -EBADF);
	other.blob[other.blob_len - 1] ^= 1;
	assert_true(call(b, 0, RDMA_ID, ask(RDMA_MAP, 0, 0, 0, (uint32_t)other.blob_len, other.blob)) < 0);
	assert_true(call(b, 0, RDMA_ID, ask(RDMA_MAP, 0, 0, 0, 0, NULL)) < 0);
	far_free(&other);

	/* Endpoints: not connected, an address that is none, more than there may be */
	read_only = endpoint(b, 0, RDMA_ID, address);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_PUT, read_only, map, at, 8, data)), -ENOTCONN);
	address[4] ^= 1;
	assert_true(call(b, 0, RDMA_ID, ask(RDMA_CONNECT, read_only, 0, 0, sizeof(address), address)) < 0);
	for (uint32_t i = 2; i < RDMA_EPS; i++)
		endpoint(b, 0, RDMA_ID, address);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_EP, 0, 0, 0, 0, NULL)), -ENOSPC);
	must(call(b, 0, RDMA_ID, ask(RDMA_CLOSE, read_only, 0, 0, 0, NULL)));
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_CLOSE, read_only, 0, 0, 0, NULL)), -EBADF);
	endpoint(b, 0, RDMA_ID, address);
	must(call(b, 0, RDMA_ID, ask(RDMA_PUT, ep, map, at, 8, data)));
	assert_memory_equal(b->far.mem, data, 8);
	bench_free(b);
}

/* A plain message to who is no endpoint */
TEST(sends)
{
	struct bench *b = bench_make();
	uint64_t ep = reach(b, 0, RDMA_ID, &b->far);
	const struct mlx5_cqe64 *cqe;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	uint8_t data[500];

	mr = made(ibv_reg_mr(dev.pd, b->far.mem, MEM, IBV_ACCESS_LOCAL_WRITE));
	for (uint32_t i = 0; i < 20; i++) {
		sge.addr = (uintptr_t)b->far.mem;
		sge.length = sizeof(data);
		sge.lkey = mr->lkey;
		must(inlay_post_recv(&b->far.link.rq, &sge, 1));
		inlay_rq_ring(&b->far.link.rq);
		fill(data, sizeof(data), i);
		must(call(b, 0, RDMA_ID, ask(RDMA_SEND, ep, 0, 0, i * 25, data)));
		cqe = cqe_wait(&b->far.cq);
		assert_false(inlay_cqe_is_error(cqe));
		assert_int_equal(inlay_cqe_byte_count(cqe), i * 25);
		assert_memory_equal(b->far.mem, data, i * 25);
		assert_true(0 < inlay_rq_release(&b->far.link.rq, cqe));
		inlay_cq_advance(&b->far.cq, 1);
	}
	must(ibv_dereg_mr(mr));
	bench_free(b);
}

/* Two endpoints of two hosts, connected to each other */
static void pair_up(struct bench *b, uint64_t *ep)
{
	uint8_t address[2][INLAY_TASK_ADDRESS];

	for (uint32_t i = 0; i < 2; i++)
		ep[i] = endpoint(b, i, RDMA_ID, address[i]);
	for (uint32_t i = 0; i < 2; i++)
		must(call(b, i, RDMA_ID, ask(RDMA_CONNECT, ep[i], 0, 0, INLAY_TASK_ADDRESS, address[!i])));
}

static void tag_send(struct bench *b, uint64_t ep, uint64_t tag, uint32_t len, uint32_t seed)
{
	uint8_t data[1900];

	fill(data, len, seed);
	must(call(b, 0, RDMA_ID, ask(RDMA_TAG_SEND, ep, tag, 0, len, data)));
}

static void tag_recv(struct inlay_task *t, uint64_t tag, uint64_t mask, uint32_t most)
{
	struct rdma_request r = ask(RDMA_TAG_RECV, 0, tag, mask, most, NULL);

	request(t, RDMA_ID, &r);
	must(inlay_task_submit(t, INLAY_RING));
}

static void tag_check(struct bench *b, const struct inlay_task *t, uint64_t tag, uint32_t len, uint32_t seed)
{
	const uint8_t *at;

	must(until_done(b, t));
	assert_int_equal(t->response_len, 8 + len);
	at = (const uint8_t *)inlay_buf_data(inlay_task_response(t));
	assert_int_equal(inlay_task_get64_(at), tag);
	assert_int_equal(differs(at + 8, len, seed), len);
}

/* From one host's endpoint to the other's: receives first, messages first, masks, order, messages that are too long */
TEST(tags)
{
	struct bench *b = bench_make();
	struct inlay_task **t = b->side[1].t;
	uint64_t ep[2];

	pair_up(b, ep);
	for (uint32_t i = 0; i < 8; i++)
		tag_recv(t[1 + i], 100 + i, INLAY_MATCH_EXACT, 1900);
	for (uint32_t i = 8; i--;)
		tag_send(b, ep[0], 100 + i, i * 200, i);
	for (uint32_t i = 0; i < 8; i++)
		tag_check(b, t[1 + i], 100 + i, i * 200, i);
	/* Unexpected, as many as there are receives; then taken in order by receives that take any of them */
	for (uint32_t i = 0; i < RDMA_RECEIVES; i++)
		tag_send(b, ep[0], 0x500 + i % 4, 10 + i, i);
	for (uint32_t i = 0; i < RDMA_RECEIVES; i++) {
		tag_recv(t[1], 0x500, ~0xffull, 1900);
		tag_check(b, t[1], 0x500 + i % 4, 10 + i, i);
	}
	/* The same tag twice, oldest first on both sides; nothing of it for the other tag */
	tag_recv(t[1], 7, INLAY_MATCH_EXACT, 100);
	tag_recv(t[2], 7, INLAY_MATCH_EXACT, 100);
	tag_recv(t[3], 8, INLAY_MATCH_EXACT, 100);
	tag_send(b, ep[0], 7, 20, 1);
	tag_send(b, ep[0], 7, 30, 2);
	tag_check(b, t[1], 7, 20, 1);
	tag_check(b, t[2], 7, 30, 2);
	assert_int_equal(inlay_task_status(t[3]), -EINPROGRESS);
	tag_send(b, ep[0], 8, 101, 3);
	assert_int_equal(until_done(b, t[3]), -EMSGSIZE);
	tag_send(b, ep[0], 9, 101, 3);
	tag_recv(t[3], 9, INLAY_MATCH_EXACT, 100);
	assert_int_equal(until_done(b, t[3]), -EMSGSIZE);
	tag_recv(t[3], 9, INLAY_MATCH_EXACT, 100);
	tag_send(b, ep[0], 9, 100, 4);
	tag_check(b, t[3], 9, 100, 4);
	/* Plain messages are none with tags: they are dropped, and give their receive back */
	for (uint32_t i = 0; i < 2 * RDMA_RECEIVES; i++)
		must(call(b, 0, RDMA_ID, ask(RDMA_SEND, ep[0], 0, 0, i, b->far.mem)));
	tag_recv(t[3], 10, INLAY_MATCH_EXACT, 100);
	tag_send(b, ep[0], 10, 100, 5);
	tag_check(b, t[3], 10, 100, 5);
	/* What was never taken goes with its endpoint; receives that nothing came for go with the connection */
	tag_send(b, ep[0], 11, 100, 6);
	must(call(b, 1, RDMA_ID, ask(RDMA_CLOSE, ep[1], 0, 0, 0, NULL)));
	tag_recv(t[3], 11, INLAY_MATCH_EXACT, 100);
	await_by(both(b), b->side[1].line.conn.kept);
	assert_int_equal(b->side[1].line.conn.kept, 1);
	assert_int_equal(inlay_task_status(t[3]), -EINPROGRESS);
	bench_free(b);
}

/* The other side breaks: the first command is told so, those behind it are cancelled, later ones refused; others go on */
TEST(broken)
{
	struct bench *b = bench_make();
	uint64_t ep = reach(b, 0, RDMA_ID, &b->far), map = map_of(b, 0, RDMA_ID, &b->far), good;
	struct inlay_task **t = b->side[0].t;
	uint8_t data[8] = {9};
	struct rdma_request r;
	struct far other;

	memset(&other, 0, sizeof(other));
	far_make(&other, MEM, 4096, INLAY_RDMA_READ | INLAY_RDMA_WRITE);
	good = reach(b, 0, RDMA_ID, &other);
	must(call(b, 0, RDMA_ID, ask(RDMA_PUT, ep, map, far_at(&b->far, 0), 8, data)));
	must(inlay_task_link_break(&b->far.link));
	for (uint32_t i = 1; i < 6; i++) {
		r = ask(RDMA_PUT, ep, map, far_at(&b->far, 8), 8, data);
		request(t[i], RDMA_ID, &r);
		must(inlay_task_submit(t[i], 0));
	}
	inlay_sq_ring(&b->side[0].line.host.link.sq);
	assert_int_equal(until_done(b, t[1]), -EIO);
	for (uint32_t i = 2; i < 6; i++)
		assert_int_equal(until_done(b, t[i]), -ECANCELED);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_PUT, ep, map, far_at(&b->far, 0), 8, data)), -ENOTCONN);
	assert_int_equal(call(b, 0, RDMA_ID, ask(RDMA_FLUSH, ep, 0, 0, 0, NULL)), -EIO);
	map = map_of(b, 0, RDMA_ID, &other);
	must(call(b, 0, RDMA_ID, ask(RDMA_PUT, good, map, far_at(&other, 0), 8, data)));
	assert_memory_equal(other.mem, data, 8);
	must(call(b, 0, RDMA_ID, ask(RDMA_CLOSE, ep, 0, 0, 0, NULL)));
	bench_free(b);
	far_free(&other);
}

/* A host goes while its puts are under way and its receives wait: the worker is left with nothing */
TEST(ends)
{
	struct bench *b = bench_make();
	uint64_t ep = reach(b, 0, RDMA_ID, &b->far), map = map_of(b, 0, RDMA_ID, &b->far);
	struct inlay_task **t = b->side[0].t;
	struct rdma_request r;
	uint32_t i;

	for (i = 1; i < 6; i++)
		tag_recv(t[i], i, 0xff, 100);
	for (; i < TASKS; i++) {
		r = ask(RDMA_PUT, ep, map, far_at(&b->far, i * 1024), 1000, NULL);
		fill(request(t[i], RDMA_ID, &r), 1000, i);
		must(inlay_task_submit(t[i], INLAY_RING));
	}
	step();
	inlay_task_worker_progress(&b->desk->worker, 64);
	must(inlay_task_conn_destroy(&b->side[0].line.conn));
	assert_int_equal(b->side[0].line.conn.kept, 0);
	assert_int_equal(b->desk->worker.num_conns, 1);
	bench_free(b);
}

/* ---- rdmo ---- */

/* Two hosts append to one log, through an endpoint each, until it is full */
TEST(appends)
{
	struct bench *b = bench_make();
	uint64_t ep[2], map[2], pointer = far_at(&b->far, 0), next = far_at(&b->far, 64), where;
	struct rdma_request r;
	struct far other = {};
	uint8_t data[300];
	uint32_t i, len, full = 0;
	int err;

	far_make(&other, MEM, 4096, INLAY_RDMA_READ);
	memcpy(b->far.mem, &next, 8);
	ep[0] = reach(b, 0, RDMO_ID, &b->far);
	ep[1] = reach(b, 1, RDMO_ID, &other);
	map[0] = map_of(b, 0, RDMO_ID, &b->far);
	map[1] = map_of(b, 1, RDMO_ID, &b->far);
	for (i = 0; full < 4; i++) {
		len = 1 + rnd_below(sizeof(data));
		fill(data, len, i);
		r = ask(RDMO_APPEND, ep[i & 1], map[i & 1], pointer, len, data);
		r.a = map[i & 1];
		err = call(b, i & 1, RDMO_ID, r);
		if (next + len > far_at(&b->far, MEM)) {
			assert_int_equal(err, -ENOSPC);
			full++;
		} else {
			must(err);
			where = inlay_task_get64_(answer(b, i & 1, 8));
			assert_int_equal(where, next);
			assert_memory_equal(b->far.mem + (next - pointer), data, len);
		}
		next += len;
		assert_memory_equal(b->far.mem, &next, 8);
	}
	assert_int_equal(call(b, 0, RDMO_ID, ask(RDMA_FLUSH, ep[0], 0, 0, 0, NULL)), -ENOSPC);
	must(call(b, 0, RDMO_ID, ask(RDMA_FLUSH, ep[0], 0, 0, 0, NULL)));
	bench_free(b);
	far_free(&other);
}

/* Many appends at a time, with a flush behind them */
TEST(append_flush)
{
	struct bench *b = bench_make();
	uint64_t ep = reach(b, 0, RDMO_ID, &b->far), map = map_of(b, 0, RDMO_ID, &b->far), next = far_at(&b->far, 64);
	struct inlay_task **t = b->side[0].t;
	struct rdma_request r;
	uint32_t i, round;

	memcpy(b->far.mem, &next, 8);
	for (round = 0; round < 3; round++) {
		for (i = 0; i + 1 < TASKS; i++) {
			r = ask(RDMO_APPEND, ep, map, far_at(&b->far, 0), 100, NULL);
			r.a = map;
			fill(request(t[i], RDMO_ID, &r), 100, round * 100 + i);
			must(inlay_task_submit(t[i], 0));
		}
		r = ask(RDMA_FLUSH, ep, 0, 0, 0, NULL);
		request(t[i], RDMO_ID, &r);
		must(inlay_task_submit(t[i], INLAY_RING));
		must(until_done(b, t[i]));
		for (i = 0; i + 1 < TASKS; i++) {
			must(inlay_task_status(t[i]));
			assert_int_equal(differs(b->far.mem + 64 + (round * (TASKS - 1) + i) * 100, 100, round * 100 + i), 100);
		}
	}
	bench_free(b);
}

static uint32_t pieces(uint8_t *data, const struct far *f, uint32_t num, uint32_t seed)
{
	uint32_t i, at = num * RDMO_PIECE;

	for (i = 0; i < num; i++) {
		rdmo_piece_write(data + i * RDMO_PIECE, far_at(f, 1024 + i * 1000), 1 + i);
		fill(data + at, 1 + i, seed + i);
		at += 1 + i;
	}
	return at;
}

TEST(scatters)
{
	struct bench *b = bench_make();
	uint64_t ep = reach(b, 0, RDMO_ID, &b->far), map = map_of(b, 0, RDMO_ID, &b->far);
	struct rdma_request r;
	uint8_t data[1900];
	uint32_t i, num, len;

	for (num = 1; num <= RDMO_PIECES; num++) {
		memset(b->far.mem, 0, MEM);
		len = pieces(data, &b->far, num, num);
		r = ask(RDMO_SCATTER, ep, map, 0, len, data);
		r.b = num;
		must(call(b, 0, RDMO_ID, r));
		for (i = 0; i < num; i++) {
			assert_int_equal(differs(b->far.mem + 1024 + i * 1000, 1 + i, num + i), 1 + i);
			assert_true(all_bytes(b->far.mem + 1024 + i * 1000 + 1 + i, 1000 - 1 - i, 0));
		}
	}
	/* Nothing is written when anything is wrong; and each is the next flush's error */
	memset(b->far.mem, 0, MEM);
	num = 8;
	len = pieces(data, &b->far, num, 5);
	r = ask(RDMO_SCATTER, ep, map, 0, len, data);
	r.b = num + 1;
	assert_true(call(b, 0, RDMO_ID, r) < 0);
	r.b = num - 1;
	assert_int_equal(call(b, 0, RDMO_ID, r), -EINVAL);
	r.b = UINT64_MAX;
	assert_int_equal(call(b, 0, RDMO_ID, r), -EINVAL);
	r.b = num;
	r.bytes = len - 1;
	assert_int_equal(call(b, 0, RDMO_ID, r), -EINVAL);
	r.bytes = len;
	assert_true(call(b, 0, RDMO_ID, ask(RDMA_FLUSH, ep, 0, 0, 0, NULL)) < 0);
	r.map = map + 1;
	assert_int_equal(call(b, 0, RDMO_ID, r), -EBADF);
	assert_int_equal(call(b, 0, RDMO_ID, ask(RDMA_FLUSH, ep, 0, 0, 0, NULL)), -EBADF);
	r.map = map;
	rdmo_piece_write(data + 7 * RDMO_PIECE, far_at(&b->far, MEM - 7), 8);
	assert_int_equal(call(b, 0, RDMO_ID, r), -ENOENT);
	rdmo_piece_write(data + 7 * RDMO_PIECE, far_at(&b->far, 0), 0);
	assert_int_equal(call(b, 0, RDMO_ID, r), -EINVAL);
	assert_int_equal(call(b, 0, RDMO_ID, ask(RDMA_FLUSH, ep, 0, 0, 0, NULL)), -ENOENT);
	assert_true(all_bytes(b->far.mem, MEM, 0));
	/* Appends that cannot be */
	r = ask(RDMO_APPEND, ep, map, far_at(&b->far, 4), 8, data);
	r.a = map;
	assert_int_equal(call(b, 0, RDMO_ID, r), -EINVAL);
	r.addr = far_at(&b->far, 0);
	r.a = map + 1;
	assert_int_equal(call(b, 0, RDMO_ID, r), -EBADF);
	r.a = map;
	r.map = map + 1;
	assert_int_equal(call(b, 0, RDMO_ID, r), -EBADF);
	assert_true(all_bytes(b->far.mem, MEM, 0)); /* the pointer has not moved */
	r.map = map;
	assert_int_equal(call(b, 0, RDMO_ID, r), -ENOSPC); /* it points to 0 */
	bench_free(b);
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
