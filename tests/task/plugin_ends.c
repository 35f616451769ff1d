/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plugin_ends.c: the life of what a host has with the plugins rdma and rdmo of examples/plugins: connections that end in mid-operation, many
 * of them, with everything counted; a device that does not let go at once; what a hostile host or peer may try. What the operations do,
 * plugins.c looks at.
 *
 * Environment
 *   TASK_ENDS  connections that end in mid-operation, 60
 */
#include "far.h"
#include "holds.h"

#define MEM 4096u

/* A host of a worker's, and the memory that it has it work on, with a queue pair that lets it in */
struct side {
	struct line line;
	struct inlay_task *t[TASKS];
	struct far far;
	uint64_t ep, mapped;
};

static struct desk *desk;

/* ---- the rig ---- */

static struct rdma *plugin(uint32_t i)
{
	return (struct rdma *)desk->worker.plugins[i].argument;
}

static int start(UNUSED void **state)
{
	desk = plugins_desk();
	return 0;
}

static int stop(UNUSED void **state)
{
	assert_int_equal(plugin(0)->num_eps + plugin(1)->num_eps, 0);
	desk_free(desk);
	return 0;
}

static void worker(void)
{
	step();
	if (softdev_present())
		softdev_run(); /* on the trapping device what waits for a receive is tried again */
	inlay_task_worker_progress(&desk->worker, 64);
}

static void turn(struct side *s)
{
	worker();
	step();
	inlay_task_host_progress(&s->line.host, 64);
}

static int until_done(struct side *s, const struct inlay_task *t)
{
	await_by(turn(s), inlay_task_status(t) != -EINPROGRESS);
	return inlay_task_status(t);
}

/* Submits a request; without data, with any */
static struct inlay_task *give(struct side *s, uint32_t i, uint64_t id, struct rdma_request r)
{
	request(s->t[i], id, &r);
	must(inlay_task_submit(s->t[i], INLAY_RING));
	return s->t[i];
}

static int call(struct side *s, uint64_t id, struct rdma_request r)
{
	return until_done(s, give(s, 0, id, r));
}

static uint64_t endpoint(struct side *s, uint64_t id, uint8_t *address)
{
	const uint8_t *at;

	must(call(s, id, ask(RDMA_EP, 0, 0, 0, 0, NULL)));
	at = (const uint8_t *)inlay_buf_data(inlay_task_response(s->t[0]));
	memcpy(address, at + 8, INLAY_TASK_ADDRESS);
	return inlay_task_get64_(at);
}

static void connect_ep(struct side *s, uint64_t id, uint64_t ep, const uint8_t *address)
{
	must(call(s, id, ask(RDMA_CONNECT, ep, 0, 0, INLAY_TASK_ADDRESS, address)));
}

static uint64_t map_of(struct side *s, uint64_t id)
{
	must(call(s, id, ask(RDMA_MAP, 0, 0, 0, (uint32_t)s->far.blob_len, s->far.blob)));
	return inlay_task_get64_((const uint8_t *)inlay_buf_data(inlay_task_response(s->t[0])));
}

/* A host with an endpoint and a map at plugin id; message: what the endpoint is told that the other side takes */
static struct side *side_make(uint64_t id, uint32_t message)
{
	struct inlay_task_host_params hp = inlay_task_host_default();
	struct side *s = (struct side *)pages(sizeof(*s));
	uint8_t address[INLAY_TASK_ADDRESS];

	line_make(&s->line, desk, &hp);
	for (uint32_t i = 0; i < TASKS; i++)
		must(inlay_task_alloc(&s->line.host, 0, NULL, &s->t[i]));
	far_make(&s->far, MEM, message, INLAY_RDMA_READ | INLAY_RDMA_WRITE | INLAY_RDMA_ATOMIC);
	s->ep = endpoint(s, id, address);
	must(inlay_task_link_connect(&s->far.link, address, sizeof(address), INLAY_TASK_HOST, NULL));
	memcpy(address, &s->far.link.self, sizeof(address));
	connect_ep(s, id, s->ep, address);
	s->mapped = map_of(s, id);
	return s;
}

static void host_free(struct side *s)
{
	must(inlay_task_link_break(&s->line.host.link));
	await_by((step(), inlay_task_host_progress(&s->line.host, 64)), !inlay_task_host_destroy(&s->line.host));
	free(s->line.host_memory);
	free(s);
}

static void side_free(struct side *s)
{
	must(inlay_task_conn_destroy(&s->line.conn));
	free(s->line.conn_memory);
	far_free(&s->far);
	host_free(s);
}

static uint64_t at(const struct side *s, uint32_t offset)
{
	return (uintptr_t)s->far.mem + offset;
}

/* ---- ends ---- */

/* Everything that can be under way at once: messages that nobody has taken, receives that nothing comes for, puts, gets, appends */
static void much(struct side *s, uint64_t id)
{
	uint8_t address[2][INLAY_TASK_ADDRESS];
	uint64_t ep[2], next = at(s, 64);
	struct rdma_request r;

	for (uint32_t i = 0; i < 2; i++)
		ep[i] = endpoint(s, id, address[i]);
	for (uint32_t i = 0; i < 2; i++)
		connect_ep(s, id, ep[i], address[!i]);
	memcpy(s->far.mem, &next, 8);
	for (uint32_t i = 1; i < TASKS; i++) {
		r = ask(RDMA_PUT, s->ep, s->mapped, at(s, 1024), 1000, NULL);
		switch (rnd_below(6)) {
		case 0: r = ask(RDMA_TAG_RECV, 0, i, ~0ull, 100, NULL); break;
		case 1: r = ask(RDMA_TAG_SEND, ep[rnd_below(2)], 1000 + i, 0, rnd_below(500), NULL); break;
		case 2: r.op = RDMA_GET; break;
		case 3:
			if (id == RDMO_ID) {
				r = ask(RDMO_APPEND, s->ep, s->mapped, at(s, 0), 8, NULL);
				r.a = s->mapped;
			}
			break;
		case 4: r = ask(RDMA_ADD, s->ep, s->mapped, at(s, 16), 0, NULL); break;
		}
		give(s, i, id, r);
	}
}

/* Connections end at any moment of what is under way: by the worker, or since their host or the memory's other side has gone */
TEST_WITH(mid_operation, start, stop)
{
	const char *env = getenv("TASK_ENDS");
	uint32_t rounds = env && *env ? (uint32_t)atoi(env) : 60, round, i;

	for (round = 0; round < rounds; round++) {
		uint64_t id = round & 1 ? RDMO_ID : RDMA_ID;
		uint32_t qps = gone_qp, mrs = gone_mr, hold = rnd_below(3);
		struct side *s = side_make(id, 4096);

		much(s, id);
		for (i = rnd_below(6); i--;)
			worker();
		if (rnd_below(3) == 0)
			must(inlay_task_link_break(&s->far.link));
		if (rnd_below(3) == 0)
			must(inlay_task_link_break(&s->line.host.link));
		for (i = rnd_below(4); i--;)
			worker();
		hold_qp = hold;
		hold_mr = rnd_below(3);
		await_by(worker(), !inlay_task_conn_destroy(&s->line.conn));
		/* Its memory is nobody's any more: all of it is written */
		memset(s->line.conn_memory, 0xa5, inlay_task_conn_size(&desk->params));
		free(s->line.conn_memory);
		for (i = 0; i < 10 && plugin(round & 1)->num_eps; i++)
			worker();
		hold_qp = hold_mr = 0;
		assert_int_equal(plugin(round & 1)->num_eps, 0);
		assert_int_equal(plugin(round & 1)->num_ending, 0);
		assert_int_equal(desk->worker.num_conns, 0);
		/* The connection's, and three endpoints' */
		assert_int_equal(gone_qp - qps, 4);
		assert_int_equal(gone_mr - mrs, 4);
		assert_int_equal(inlay_pool_num_free(desk->pull), 4);
		far_free(&s->far);
		host_free(s);
	}
}

/* A queue pair that cannot be destroyed at once keeps its commands, and the connection, until it is; and a region its memory */
TEST_WITH(busy_ends, start, stop)
{
	struct side *s = side_make(RDMA_ID, 4096);
	uint32_t i, qps = gone_qp, mrs = gone_mr;
	uint64_t other;
	uint8_t address[INLAY_TASK_ADDRESS];

	/* Closed by its host: the handle goes at once, the rest when it can */
	other = endpoint(s, RDMA_ID, address);
	hold_qp = 2;
	hold_mr = 1;
	must(call(s, RDMA_ID, ask(RDMA_CLOSE, other, 0, 0, 0, NULL)));
	assert_int_equal(call(s, RDMA_ID, ask(RDMA_CLOSE, other, 0, 0, 0, NULL)), -EBADF);
	for (i = 0; i < 10; i++)
		worker();
	assert_int_equal(hold_qp + hold_mr, 0);
	assert_int_equal(plugin(0)->num_eps, 1);
	assert_int_equal(gone_qp - qps, 1);
	assert_int_equal(gone_mr - mrs, 1);
	/* With the connection. Nothing is stepped in between: the device still has the gets */
	for (i = 1; i < 5; i++)
		give(s, i, RDMA_ID, ask(RDMA_GET, s->ep, s->mapped, at(s, 0), 2000, NULL));
	worker();
	hold_qp = 3;
	assert_int_equal(inlay_task_conn_destroy(&s->line.conn), -EBUSY);
	assert_int_equal(plugin(0)->num_eps, 1);
	/* The plugin has tried; the connection only when nothing is kept, which is so when the device was faster */
	assert_int_equal(hold_qp, s->line.conn.kept ? 2 : 1);
	if (stepped())
		assert_int_equal(s->line.conn.kept, 4);
	for (i = 0; i < 10; i++)
		worker();
	assert_int_equal(plugin(0)->num_eps, 0);
	side_free(s);
}

/* The end of a map is answered behind all that still uses its key */
TEST_WITH(map_ends, start, stop)
{
	struct side *s = side_make(RDMA_ID, 4096);
	uint32_t i;

	for (i = 1; i < 9; i++)
		give(s, i, RDMA_ID, ask(RDMA_PUT, s->ep, s->mapped, at(s, i), 1, NULL));
	give(s, i, RDMA_ID, ask(RDMA_UNMAP, 0, s->mapped, 0, 0, NULL));
	must(until_done(s, s->t[i]));
	while (i-- > 1)
		must(inlay_task_status(s->t[i]));
	assert_int_equal(call(s, RDMA_ID, ask(RDMA_PUT, s->ep, s->mapped, at(s, 0), 1, NULL)), -EBADF);
	side_free(s);
}

/* An append whose map ends between its halves: rdmo looks it up again, and so UNMAP waits for it */
TEST_WITH(append_ends, start, stop)
{
	struct side *s = side_make(RDMO_ID, 4096);
	uint64_t next = at(s, 64), pointer = map_of(s, RDMO_ID);
	uint8_t data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct rdma_request r = ask(RDMO_APPEND, s->ep, s->mapped, at(s, 0), 8, data);

	memcpy(s->far.mem, &next, 8);
	r.a = pointer;
	give(s, 1, RDMO_ID, r);
	give(s, 2, RDMO_ID, ask(RDMA_UNMAP, 0, s->mapped, 0, 0, NULL));
	must(until_done(s, s->t[2]));
	must(inlay_task_status(s->t[1]));
	assert_memory_equal(s->far.mem + 64, data, 8);
	assert_int_equal(call(s, RDMO_ID, r), -EBADF);
	side_free(s);
}

/* ---- hostile peers and hosts ---- */

/* Messages by other operations than sends, and sends that are no messages with tags: each gives its receive back, none is delivered */
TEST_WITH(odd_messages, start, stop)
{
	struct side *s = side_make(RDMA_ID, 4096);
	const struct mlx5_cqe64 *cqe;
	struct inlay_task *t;
	struct rdma_request r;
	struct ibv_sge sge;
	struct ibv_mr *mr;

	mr = made(ibv_reg_mr(dev.pd, s->far.mem, MEM, IBV_ACCESS_LOCAL_WRITE));
	t = give(s, 1, RDMA_ID, ask(RDMA_TAG_RECV, 0, 0, 0, 100, NULL));
	for (uint32_t i = 0; i < 3 * RDMA_RECEIVES; i++) {
		/* What would be right, but with an immediate value; of another operation; cut off, or not as long as it says */
		r = ask(i % 5 == 1 ? RDMA_PUT : RDMA_TAG_SEND, 0, 0, 0, i % 5 == 2 ? 0xffffffffu : 4, NULL);
		rdma_request_write(s->far.mem, &r);
		sge.addr = (uintptr_t)s->far.mem;
		sge.length = i % 5 == 3 ? RDMA_HEAD - 1 : RDMA_HEAD + (i % 5 == 4 ? 5 : 4);
		sge.lkey = mr->lkey;
		if (i % 5 == 0)
			must(wr_post(&s->far.link.sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_sge(&sge, 1), inlay_to_be32(i)), INLAY_SIGNALED));
		else
			must(inlay_post_send(&s->far.link.sq, &sge, 1, INLAY_SIGNALED));
		inlay_sq_ring(&s->far.link.sq);
		cqe = cqe_wait(&s->far.cq);
		assert_false(inlay_cqe_is_error(cqe));
		assert_true(0 < inlay_sq_release(&s->far.link.sq, cqe));
		inlay_cq_advance(&s->far.cq, 1);
		worker();
	}
	for (uint32_t i = 0; i < 20; i++)
		worker();
	assert_int_equal(plugin(0)->eps[0]->strays, 3 * RDMA_RECEIVES);
	assert_int_equal(inlay_task_status(t), -EINPROGRESS);
	must(ibv_dereg_mr(mr));
	side_free(s);
}

/* What the other side says that it cannot take is not sent to it: it would cost the endpoint */
TEST_WITH(long_messages, start, stop)
{
	struct side *s = side_make(RDMA_ID, INLAY_TASK_MESSAGE_MIN);

	assert_int_equal(call(s, RDMA_ID, ask(RDMA_SEND, s->ep, 0, 0, INLAY_TASK_MESSAGE_MIN + 1, NULL)), -EMSGSIZE);
	assert_int_equal(call(s, RDMA_ID, ask(RDMA_TAG_SEND, s->ep, 0, 0, INLAY_TASK_MESSAGE_MIN - RDMA_HEAD + 1, NULL)), -EMSGSIZE);
	assert_int_equal(call(s, RDMA_ID, ask(RDMA_FLUSH, s->ep, 0, 0, 0, NULL)), -EMSGSIZE);
	must(call(s, RDMA_ID, ask(RDMA_PUT, s->ep, s->mapped, at(s, 0), 1000, NULL)));
	side_free(s);
}

/* On an endpoint that has failed, a command is answered when its own WQE's completion is there, and not before */
TEST_WITH(failed_wait, start, stop)
{
	struct side *s = side_make(RDMA_ID, 4096);
	uint32_t i, kept;

	must(inlay_task_link_break(&s->far.link));
	for (i = 1; i < 9; i++)
		give(s, i, RDMA_ID, ask(RDMA_GET, s->ep, s->mapped, at(s, 0), 1000, NULL));
	if (stepped()) {
		softdev_execute(s->line.host.link.qp->qp_num, 8);
		softdev_complete(desk->worker.cq.cqn, 8);
		inlay_task_worker_progress(&desk->worker, 64);
		assert_int_equal(s->line.conn.kept, 8);
		for (i = 0; i < 100 && (kept = s->line.conn.kept); i++) {
			/* One more completion of the endpoint's is shown */
			softdev_execute(plugin(0)->eps[0]->link.qp->qp_num, 100);
			softdev_complete(plugin(0)->cq.cqn, 1);
			inlay_task_worker_progress(&desk->worker, 64);
			assert_true(s->line.conn.kept + 1 >= kept);
		}
		assert_int_equal(s->line.conn.kept, 0);
	}
	assert_int_equal(until_done(s, s->t[1]), -EIO);
	for (i = 2; i < 9; i++)
		assert_int_equal(until_done(s, s->t[i]), -ECANCELED);
	assert_int_equal(call(s, RDMA_ID, ask(RDMA_FLUSH, s->ep, 0, 0, 0, NULL)), -EIO);
	must(call(s, RDMA_ID, ask(RDMA_CLOSE, s->ep, 0, 0, 0, NULL)));
	side_free(s);
}

int main(void)
{
	return run_all(dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
