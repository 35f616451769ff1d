/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task.c: what a command task costs at the host, beside a plain inlay send, receive and two polls, and the same by
 * libmlx5.
 *
 * One operation is a command and its answer of 40 bytes, from another queue pair of this process. The device is
 * stepped: it works, and the other side answers, between what is measured. A lap is 32 operations: all are submitted,
 * by count_go_*, the device works, and all are completed, by count_take_*. With batches of 1 each has a doorbell and a
 * call of its own. These functions are what is measured.
 *
 *   task        inlay_task_submit, inlay_task_host_progress, a callback; the length is known at run time
 *   plain       a receive posted, a send posted and signaled, two polls, of inlay; the compiler knows the length
 *   run         the same; the length is known at run time
 *   message     the same of payload and head: 32 bytes more
 *   mlx5        as plain, by ibv_post_recv, ibv_post_send, ibv_poll_cq twice
 *
 * One row is the worker's side: 32 commands are taken, handled and answered in one progress.
 */
#include <inlay/inlay.h>
#include <inlay/task.h>
#include "../bench.h"
#include "softdev.h"

#define LAP 32u                /* operations between two visits of the device */
#define RING 128u
#define ANSWER 40u             /* as long as a task's answer of 8 bytes */
#define PLUGIN 9u
#define ROOM 256u              /* bytes of a message of the others */

static struct ibv_context *ctx;
static struct ibv_pd *pd;

static void step(void)
{
	NEED(softdev_run() >= 0, "softdev_run");
}

static void *memory(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	NEED(p, "memory");
	memset(p, 0, (bytes + 4095) & ~(size_t)4095);
	return p;
}

/* ---- queue pairs of verbs: those of libmlx5, the far sides, and what inlay takes over ---- */

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq;
	struct ibv_mr *mr;
	uint8_t *buffer;       /* RING of ROOM bytes to receive to, and as much to send from */
};

static void side_make(struct side *s, struct ibv_pd *of)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {RING, RING, 1, 1, 96}};

	s->buffer = memory(2 * RING * ROOM);
	s->mr = ibv_reg_mr(pd, s->buffer, 2 * RING * ROOM, IBV_ACCESS_LOCAL_WRITE);
	NEED(s->mr, "ibv_reg_mr");
	s->scq = ibv_create_cq(ctx, RING, NULL, NULL, 0);
	s->rcq = ibv_create_cq(ctx, RING, NULL, NULL, 0);
	NEED(s->scq && s->rcq, "ibv_create_cq");
	attr.send_cq = s->scq;
	attr.recv_cq = s->rcq;
	s->qp = ibv_create_qp(of, &attr);
	NEED(s->qp, "ibv_create_qp");
}

static void side_recv(struct side *s, uint32_t slot)
{
	struct ibv_sge sge = {(uintptr_t)s->buffer + slot % RING * ROOM, ROOM, s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot % RING, .sg_list = &sge, .num_sge = 1}, *bad;

	NEED(!ibv_post_recv(s->qp, &wr, &bad), "ibv_post_recv");
}

/* The far side: takes what has come, and answers each with its first bytes */
static void side_answer(struct side *s, uint32_t bytes)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .num_sge = 1}, *bad;
	struct ibv_sge sge = {0, ANSWER, s->mr->lkey};
	struct ibv_wc wc[LAP];
	uint32_t got = 0;
	int i, n;

	step();
	while ((n = ibv_poll_cq(s->rcq, LAP, wc)) > 0)
		for (i = 0; i < n; i++, got++) {
			NEED(!wc[i].status && wc[i].byte_len == bytes, "a message of that length");
			sge.addr = (uintptr_t)s->buffer + (RING + wc[i].wr_id) * ROOM;
			memcpy(s->buffer + (RING + wc[i].wr_id) * ROOM, s->buffer + wc[i].wr_id * ROOM, 8);
			wr.sg_list = &sge;
			NEED(!ibv_post_send(s->qp, &wr, &bad), "ibv_post_send");
			side_recv(s, (uint32_t)wc[i].wr_id);
		}
	NEED(got == LAP, "every message arrives");
	step();
	NEED(ibv_poll_cq(s->scq, LAP, wc) == (int)LAP, "every answer is sent");
}

/* ---- contenders ---- */

static uint32_t answered;      /* since the lap began */
static uint32_t run_len;       /* the length that is known at run time */

/* inlay, plain */
static struct plain {
	struct inlay_sq sq;
	struct inlay_rq rq __attribute__((aligned(64)));
	struct inlay_cq scq __attribute__((aligned(64))), rcq __attribute__((aligned(64)));
	uint64_t from, to;     /* addresses of payload and answers */
	uint32_t lkey;
	struct inlay_uar uar;
	struct side near, far;
} plain;

static void plain_make(void)
{
	NEED(!inlay_uar_create(&plain.uar, pd, INLAY_UAR_SERIAL, NULL), "inlay_uar_create");
	side_make(&plain.near, plain.uar.pd);
	side_make(&plain.far, pd);
	NEED(!inlay_connect_pair(plain.near.qp, plain.far.qp, NULL, NULL), "connecting");
	NEED(!inlay_sq_from_qp(&plain.sq, plain.near.qp, &plain.uar, NULL, NULL) &&
	     !inlay_rq_from_qp(&plain.rq, plain.near.qp, NULL, NULL) &&
	     !inlay_cq_from_cq(&plain.scq, plain.near.scq, NULL) &&
	     !inlay_cq_from_cq(&plain.rcq, plain.near.rcq, NULL), "taking over the queues");
	plain.from = (uintptr_t)plain.near.buffer + RING * ROOM;
	plain.to = (uintptr_t)plain.near.buffer;
	plain.lkey = plain.near.mr->lkey;
	for (uint32_t i = 0; i < RING; i++)
		side_recv(&plain.far, i);
}

static __attribute__((noinline, cold)) void plain_error(const struct mlx5_cqe64 *cqe)
{
	fprintf(stderr, "status %d\n", (int)inlay_cqe_status(cqe));
	die("an error completion");
}

static inline __attribute__((always_inline)) void plain_recv(struct plain *p)
{
	struct ibv_sge sge = {p->to, ROOM, p->lkey};

	if (inlay_post_recv(&p->rq, &sge, 1))
		die("post receive");
}

static inline __attribute__((always_inline)) void plain_send(struct plain *p, uint32_t len, int inl)
{
	struct ibv_sge sge = {p->from, len, p->lkey};

	if (inl ? inlay_post_send_inline(&p->sq, (const void *)(uintptr_t)p->from, len, INLAY_SIGNALED) :
		  inlay_post_send(&p->sq, &sge, 1, INLAY_SIGNALED))
		die("post send");
}

static inline __attribute__((always_inline)) void plain_go(struct plain *p, uint32_t len, int inl, uint32_t batch)
{
	uint32_t i;

	for (i = 0; i < batch; i++)
		plain_recv(p);
	inlay_rq_ring(&p->rq);
	for (i = 0; i < batch; i++)
		plain_send(p, len, inl);
	inlay_sq_ring(&p->sq);
}

static inline __attribute__((always_inline)) void plain_take(struct plain *p, uint32_t batch)
{
	const struct mlx5_cqe64 *cqe;
	uint32_t i;

	for (i = 0; i < batch; i++) {
		cqe = inlay_cq_peek(&p->scq);
		if (!cqe)
			die("a send completion is missing");
		if (inlay_cqe_is_error(cqe) || inlay_sq_release(&p->sq, cqe) < 0)
			plain_error(cqe);
		inlay_cq_advance(&p->scq, 1);
	}
	for (i = 0; i < batch; i++) {
		cqe = inlay_cq_peek(&p->rcq);
		if (!cqe)
			die("a receive completion is missing");
		if (inlay_cqe_is_error(cqe) || inlay_rq_release(&p->rq, cqe) < 0)
			plain_error(cqe);
		inlay_cq_advance(&p->rcq, 1);
		answered++;
	}
}

#define device_plain(size) side_answer(&plain.far, size)
#define device_run(size) side_answer(&plain.far, size)
#define device_message(size) side_answer(&plain.far, size + INLAY_TASK_HEAD)

/* inlay, tasks */
static struct task {
	struct inlay_task_host host;
	struct inlay_task *task[LAP];
	struct inlay_task_worker worker;
	struct inlay_task_conn conn;
} task;

static int handle(void *plugin, struct inlay_task_cmd *cmd)
{
	memcpy(cmd->response, cmd->payload, 8);
	cmd->response_len = 8;
	return 0;
}

/* A user's callback does something; a call that does next to nothing is counted with the rest */
static __attribute__((noinline)) void done(struct inlay_task *task, uint64_t user_data, uint64_t host_user_data)
{
	answered++;
}

static void task_make(void)
{
	static const struct inlay_task_plugin plugin = {INLAY_TASK_VERSION, "bench", NULL, NULL,
							NULL, NULL, handle, NULL};
	static const struct inlay_task_entry entry = {PLUGIN, &plugin, NULL};
	struct inlay_task_worker_params wp = inlay_task_worker_default();
	struct inlay_task_host_params hp = inlay_task_host_default();
	size_t size;
	uint32_t i;

	wp.plugins = &entry;
	wp.num_plugins = 1;
	hp.in_flight = wp.credits = LAP;
	NEED(!inlay_task_worker_create(&task.worker, pd, &wp, NULL), "inlay_task_worker_create");
	size = inlay_task_host_size(&hp);
	NEED(!inlay_task_host_create(&task.host, memory(size), size, pd, &hp, NULL), "inlay_task_host_create");
	size = inlay_task_conn_size(&wp);
	NEED(!inlay_task_conn_create(&task.conn, memory(size), size, &task.worker, &task.host.link.self, INLAY_TASK_ADDRESS,
				     NULL), "inlay_task_conn_create");
	NEED(!inlay_task_host_connect(&task.host, &task.conn.link.self, INLAY_TASK_ADDRESS, NULL), "connecting");
	for (i = 0; i < LAP; i++)
		NEED(!inlay_task_alloc(&task.host, PLUGIN, done, &task.task[i]), "inlay_task_alloc");
}

static void task_before(uint32_t len)
{
	for (uint32_t i = 0; i < LAP; i++) {
		struct inlay_buf *buf = inlay_task_payload(task.task[i]);

		NEED(!inlay_buf_set_data(buf, inlay_buf_head(buf), len), "inlay_buf_set_data");
	}
}

static void device_task(uint32_t len)
{
	uint32_t n = 0;

	step();
	for (int i = 0; i < 4 && n < LAP; i++)
		n += inlay_task_worker_progress(&task.worker, LAP);
	step();
	inlay_task_worker_progress(&task.worker, LAP);
}

static inline __attribute__((always_inline)) void task_go(struct task *p, uint32_t i, uint32_t batch)
{
	if (batch == 1) {
		if (inlay_task_submit(p->task[i], INLAY_RING))
			die("submit");
		return;
	}
	for (i = 0; i < batch; i++)
		if (inlay_task_submit(p->task[i], 0))
			die("submit");
	inlay_sq_ring(&p->host.link.sq);
}

/* Completions of sends, one in a quarter of the ring, come between the answers, and are none */
static inline __attribute__((always_inline)) void task_take(struct task *p, uint32_t batch)
{
	uint32_t n = 0;

	if (batch == 1) {
		while (!inlay_task_host_progress(&p->host, 1))
			;
		return;
	}
	do
		n += inlay_task_host_progress(&p->host, 2 * batch);
	while (n < batch);
}

/* The worker's side: commands of 8 B, all there at once */
COUNTED void count_worker_(struct task *p)
{
	if (inlay_task_worker_progress(&p->worker, LAP) != LAP)
		die("not every command has come");
}

static double lap_worker(void *arg, uint64_t n)
{
	double seconds = 0, t;

	task_before(8);
	for (uint64_t laps = 0; laps < n; laps += LAP) {
		for (uint32_t i = 0; i < LAP; i++)
			NEED(!inlay_task_submit(task.task[i], 0), "submit");
		inlay_sq_ring(&task.host.link.sq);
		step();
		t = now();
		count_worker_(&task);
		seconds += now() - t;
		step();
		inlay_task_worker_progress(&task.worker, LAP);
		for (answered = 0; answered < LAP;)
			inlay_task_host_progress(&task.host, LAP);
	}
	return seconds;
}

/* libmlx5 */
static struct mlx5 {
	struct side near, far;
	struct ibv_sge to, from;
	struct ibv_recv_wr recv[LAP];
	struct ibv_send_wr send[LAP];
} mlx5;

static void mlx5_make(void)
{
	uint32_t i;

	side_make(&mlx5.near, pd);
	side_make(&mlx5.far, pd);
	NEED(!inlay_connect_pair(mlx5.near.qp, mlx5.far.qp, NULL, NULL), "connecting");
	for (i = 0; i < RING; i++)
		side_recv(&mlx5.far, i);
}

/* The requests of one batch, made once */
static void mlx5_before(uint32_t len, int inl, uint32_t batch)
{
	uint32_t i;

	mlx5.to = (struct ibv_sge){(uintptr_t)mlx5.near.buffer, ROOM, mlx5.near.mr->lkey};
	mlx5.from = (struct ibv_sge){(uintptr_t)mlx5.near.buffer + RING * ROOM, len, mlx5.near.mr->lkey};
	for (i = 0; i < batch; i++) {
		mlx5.recv[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = &mlx5.to, .num_sge = 1,
						    .next = i + 1 < batch ? &mlx5.recv[i + 1] : NULL};
		mlx5.send[i] = (struct ibv_send_wr){.wr_id = i, .sg_list = &mlx5.from, .num_sge = 1,
						    .opcode = IBV_WR_SEND,
						    .send_flags = IBV_SEND_SIGNALED | (inl ? IBV_SEND_INLINE : 0),
						    .next = i + 1 < batch ? &mlx5.send[i + 1] : NULL};
	}
}

#define device_mlx5(size) side_answer(&mlx5.far, size)

static inline __attribute__((always_inline)) void mlx5_go(struct mlx5 *p)
{
	struct ibv_recv_wr *bad_recv;
	struct ibv_send_wr *bad_send;

	if (ibv_post_recv(p->near.qp, p->recv, &bad_recv) || ibv_post_send(p->near.qp, p->send, &bad_send))
		die("ibv_post");
}

static inline __attribute__((always_inline)) void mlx5_take(struct mlx5 *p, uint32_t batch)
{
	struct ibv_wc wc[LAP];
	uint32_t i;

	if (ibv_poll_cq(p->near.scq, (int)batch, wc) != (int)batch)
		die("send completions are missing");
	for (i = 0; i < batch; i++)
		if (wc[i].status)
			die("an error completion");
	if (ibv_poll_cq(p->near.rcq, (int)batch, wc) != (int)batch)
		die("receive completions are missing");
	for (i = 0; i < batch; i++) {
		if (wc[i].status)
			die("an error completion");
		answered++;
	}
}

/* ---- the measured functions of each case, and laps of them ---- */

#define INLINE(bytes) ((bytes) <= 96)

#define WAY(name, of, size, batch, before, go, take)								\
	COUNTED void count_go_##name##_##size##_##batch##_(struct of *p, uint32_t i) { (void)i; go; }		\
	COUNTED void count_take_##name##_##size##_##batch##_(struct of *p) { take; }				\
	static double lap_##name##_##size##_##batch(void *arg, uint64_t n)					\
	{													\
		double seconds = 0, t;										\
		(void)arg;											\
		before;												\
		for (uint64_t done = 0; done < n; done += LAP) {						\
			answered = 0;										\
			t = now();										\
			for (uint32_t i = 0; i < LAP; i += batch)						\
				count_go_##name##_##size##_##batch##_(&of, i);					\
			seconds += now() - t;									\
			device_##name(size);									\
			t = now();										\
			for (uint32_t i = 0; i < LAP; i += batch)						\
				count_take_##name##_##size##_##batch##_(&of);					\
			seconds += now() - t;									\
			if (answered != LAP)									\
				die(#name ": not every operation was answered");				\
		}												\
		return seconds;											\
	}

#define PLAIN(name, size, batch, before, len)									\
	WAY(name, plain, size, batch, before, plain_go(p, len, INLINE(size), batch), plain_take(p, batch))

#define CASE(size, batch, text)											\
	WAY(task, task, size, batch, task_before(size), task_go(p, i, batch), task_take(p, batch))		\
	PLAIN(plain, size, batch, (void)0, size)								\
	PLAIN(run, size, batch, run_len = size, run_len)							\
	PLAIN(message, size, batch, run_len = size + INLAY_TASK_HEAD, run_len)					\
	WAY(mlx5, mlx5, size, batch, mlx5_before(size, INLINE(size), batch), mlx5_go(p), mlx5_take(p, batch))	\
	static void row_##size##_##batch(void)									\
	{													\
		static const char four[] = "receive, send, two polls";						\
		static const struct way ways[] = {								\
			{"inlay", lap_task_##size##_##batch, NULL, "a command task, callback"},			\
			{"plain send", lap_run_##size##_##batch, NULL, four},					\
			{"plain send, constant length", lap_plain_##size##_##batch, NULL, four},		\
			{"plain send, 32 B longer", lap_message_##size##_##batch, NULL, four},			\
			{"libmlx5", lap_mlx5_##size##_##batch, NULL, four}};					\
		bench_row("task", text, ways, 5, LAP);								\
	}

CASE(8, 1, "8 B inline")
CASE(64, 1, "64 B inline")
CASE(200, 1, "200 B gathered")
CASE(8, 32, "8 B inline, 32 a bell")
CASE(64, 32, "64 B inline, 32 a bell")
CASE(200, 32, "200 B gathered, 32 a bell")

int main(void)
{
	static const struct way worker = {"inlay", lap_worker, NULL, "receive, handler, answer"};
	struct ibv_device **list;

	if (!softdev_present() || softdev_manual(1))
		die("needs the stepped software device: start it with tests/softdev/run --manual");
	list = ibv_get_device_list(NULL);
	ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	NEED(ctx, "opening the device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	NEED(pd, "ibv_alloc_pd");
	plain_make();
	task_make();
	mlx5_make();
	row_8_1();
	row_64_1();
	row_200_1();
	row_8_32();
	row_64_32();
	row_200_32();
	bench_row("task", "worker, 8 B, 32 a bell", &worker, 1, LAP);
	return 0;
}
