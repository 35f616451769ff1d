/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * growth.c: what set-up costs, and what more queue pairs on one CQ cost.
 *
 *   set-up   1000 RC queue pairs created and connected, each to itself, through libibverbs and through device
 *            commands (DEVX): the CPU's part on the software device, whose kernel and firmware are functions of the
 *            process
 *   growth   a completion of one of N queue pairs, at random, on rings in plain memory: QP lookup, credit, advance;
 *            by one thread, and by two at the same time that share nothing
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
#include <infiniband/mlx5dv.h>
#include <inlay/inlay.h>
#include <inlay/devx.h>
#include "bench.h"
#include "softdev.h"

#define MOST 10000u
#define MADE 1000u
#define LAP 256u

/* ---- growth ---- */

struct ep {
	struct inlay_sq sq;
} __attribute__((aligned(64)));

/* All that a thread has; arrived: CQEs so far */
struct side {
	uint8_t reg[4096], ring[LAP * 64];
	struct mlx5_cqe64 cqes[LAP];
	struct inlay_qpn_table table;
	struct inlay_uar uar;
	struct inlay_cq cq;
	struct ep *eps;
	uint32_t record[2], cq_record[2], arrived, num;
	uint64_t n, state;
	double seconds;
} __attribute__((aligned(4096)));

static struct side sides[2];
static pthread_barrier_t start_line;

COUNTED int count_done_(struct inlay_cq *from, struct inlay_qpn_table *of)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(from);
	struct ep *ep;

	if (!cqe || INLAY_UNLIKELY(inlay_cqe_is_error(cqe)))
		return -1;
	ep = (struct ep *)inlay_qpn_table_find(of, inlay_cqe_qpn(cqe));
	if (INLAY_UNLIKELY(!ep) || INLAY_UNLIKELY(inlay_sq_release(&ep->sq, cqe) < 0))
		return -1;
	inlay_cq_advance(from, 1);
	return 0;
}

/* n completions of num QPs, at random */
static double complete(struct side *s, uint32_t num, uint64_t n)
{
	double seconds = 0, start;
	uint32_t i;

	for (uint64_t k = 0; k < n; k += LAP) {
		int bad = 0;

		for (i = 0; i < LAP; i++, s->arrived++) {
			struct mlx5_cqe64 *cqe = &s->cqes[s->arrived % LAP];
			uint32_t which = (uint32_t)(rnd_of(&s->state) % num);
			struct inlay_sq *sq = &s->eps[which].sq;

			memset(cqe, 0, 63);
			cqe->sop_drop_qpn = inlay_to_be32(0x100 + which);
			cqe->wqe_counter = inlay_to_be16((uint16_t)inlay_sq_index(sq));
			cqe->op_own = (uint8_t)(MLX5_CQE_REQ << 4 | ((s->arrived / LAP) & 1));
			bad |= inlay_post_write_inline(sq, 0x1000, 7, &s->state, 8, INLAY_SIGNALED);
		}
		start = now();
		for (i = 0; i < LAP; i++)
			bad |= count_done_(&s->cq, &s->table);
		seconds += now() - start;
		NEED(!bad, "a completion");
	}
	return seconds;
}

static double by_one(void *arg, uint64_t n)
{
	return complete(&sides[0], *(const uint32_t *)arg, n);
}

static void *other(void *arg)
{
	struct side *s = (struct side *)arg;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(1, &cpus);
	NEED(!pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus), "moving to the second CPU");
	pthread_barrier_wait(&start_line);
	s->seconds = complete(s, s->num, s->n);
	return NULL;
}

/* Two threads, n completions each: a thread's time */
static double by_two(void *arg, uint64_t n)
{
	pthread_t thread;
	double seconds;

	sides[1].num = *(const uint32_t *)arg;
	sides[1].n = n;
	NEED(!pthread_create(&thread, NULL, other, &sides[1]), "pthread_create");
	pthread_barrier_wait(&start_line);
	seconds = by_one(arg, n);
	NEED(!pthread_join(thread, NULL), "pthread_join");
	return (seconds + sides[1].seconds) / 2;
}

static void make(struct side *s)
{
	size_t bytes = (MOST / 4096 + 2) * INLAY_QPN_PAGE;
	void *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
	uint32_t i;

	s->eps = (struct ep *)aligned_alloc(64, MOST * sizeof(*s->eps));
	NEED(s->eps && memory, "aligned_alloc");
	s->state = 88172645463325252u;
	memset(s->cqes, 0xf0, sizeof(s->cqes));
	inlay_qpn_table_init(&s->table, memory, bytes);
	NEED(!inlay_uar_init(&s->uar, s->reg, 256, INLAY_UAR_SERIAL), "a register");
	NEED(!inlay_cq_init(&s->cq, s->cqes, LAP, 64, s->cq_record, NULL, 3), "a CQ");
	for (i = 0; i < MOST; i++)
		NEED(!inlay_sq_init(&s->eps[i].sq, s->ring, LAP, s->record, 0x100 + i, 16, &s->uar) &&
		     !inlay_qpn_table_add(&s->table, 0x100 + i, &s->eps[i]), "making a queue pair");
}

/* ---- set-up ---- */

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *ibcq;
static struct inlay_uar own;
static struct inlay_devx_umem umem;
static struct inlay_devx_uar devx_uar;
static uint32_t pdn, cqn;
static struct inlay_devx_path path;
static struct ibv_qp *qps[MADE];
static struct inlay_sq sqs[MADE];
static struct inlay_devx_qp devx_qps[MADE];
static const size_t qp_bytes = 64 * 64; /* a page */

static double by_verbs(void *arg, uint64_t n)
{
	struct ibv_qp_init_attr attr = {.send_cq = ibcq, .recv_cq = ibcq, .cap = {64, 1, 1, 1, 8},
		.qp_type = IBV_QPT_RC};
	int taken = arg != NULL;
	double seconds = 0, start;
	unsigned i;

	for (uint64_t k = 0; k < n; k += MADE) {
		start = now();
		for (i = 0; i < MADE; i++) {
			qps[i] = ibv_create_qp(taken ? own.pd : pd, &attr);
			NEED(qps[i] && !inlay_connect_pair(qps[i], qps[i], NULL, NULL), "a queue pair");
			NEED(!taken || !inlay_sq_from_qp(&sqs[i], qps[i], &own, NULL, NULL), "taking it over");
		}
		seconds += now() - start;
		for (i = 0; i < MADE; i++) {
			NEED(!ibv_destroy_qp(qps[i]), "ibv_destroy_qp");
			if (taken)
				inlay_sq_fini(&sqs[i]);
		}
	}
	return seconds;
}

static double by_devx(void *arg, uint64_t n)
{
	struct inlay_connect_record mine;
	struct inlay_devx_qp_attr attr;
	double seconds = 0, start;
	unsigned i;

	(void)arg;
	memset(&attr, 0, sizeof(attr));
	attr.pdn = pdn;
	attr.send_cqn = attr.recv_cqn = cqn;
	attr.ring.umem = attr.record.umem = &umem;
	attr.uar = &devx_uar;
	attr.sq_bbs = 64;
	for (uint64_t k = 0; k < n; k += MADE) {
		start = now();
		for (i = 0; i < MADE; i++) {
			attr.ring.offset = (uint64_t)i * qp_bytes;
			attr.record.offset = MADE * qp_bytes + 64 * i;
			NEED(!inlay_devx_qp_create(&devx_qps[i], ctx, &attr) &&
			     !inlay_devx_qp_address(&devx_qps[i], &path, &mine) &&
			     !inlay_devx_qp_connect(&devx_qps[i], &path, &mine), "a queue pair");
		}
		seconds += now() - start;
		for (i = 0; i < MADE; i++)
			NEED(!inlay_devx_qp_destroy(&devx_qps[i]), "inlay_devx_qp_destroy");
	}
	return seconds;
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct mlx5dv_obj obj;
	struct mlx5dv_cq dv;
	size_t bytes;
	void *memory;

	NEED(softdev_present() && list && list[0] && !inlay_devx_open(list[0], &ctx), "opening the device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	ibcq = ibv_create_cq(ctx, 1024, NULL, NULL, 0);
	NEED(pd && ibcq && !inlay_pdn_from_pd(&pdn, pd) && !inlay_uar_create(&own, pd, INLAY_UAR_SERIAL, NULL),
	     "a PD, a CQ, a register");
	memset(&dv, 0, sizeof(dv));
	obj.cq.in = ibcq;
	obj.cq.out = &dv;
	NEED(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	cqn = dv.cqn;
	bytes = MADE * (qp_bytes + 64);
	bytes = (bytes + 4095) & ~(size_t)4095;
	memory = aligned_alloc(4096, bytes);
	NEED(memory, "aligned_alloc");
	memset(memory, 0, bytes);
	NEED(!inlay_devx_umem_reg(&umem, ctx, memory, bytes, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE), "a umem");
	NEED(!inlay_devx_uar_alloc(&devx_uar, ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL), "a register");
	path = inlay_devx_path_defaults();
	path.access = IBV_ACCESS_REMOTE_WRITE;
}

int main(void)
{
	static const struct way setup[] = {{"libibverbs", by_verbs, NULL, "ibv_create_qp, ibv_modify_qp three times"},
		{"libibverbs, taken over", by_verbs, &own, "the same, inlay_sq_from_qp"},
		{"DEVX", by_devx, NULL, "inlay_devx_qp_create, inlay_devx_qp_connect"}};
	static uint32_t counts[] = {1, 100, 1000, 10000};
	int two = !bench_counts() && sysconf(_SC_NPROCESSORS_ONLN) > 1;
	char row[64];

	make(&sides[0]);
	make(&sides[1]);
	NEED(!pthread_barrier_init(&start_line, NULL, 2), "pthread_barrier_init");
	for (unsigned i = 0; i < 4; i++) {
		struct way ways[] = {{"inlay", by_one, &counts[i], "QP lookup, credit, record"},
			{"inlay, two threads", by_two, &counts[i], "the same, a thread's time"}};

		snprintf(row, sizeof(row), "a completion of %u QPs", counts[i]);
		bench_row("growth", row, ways, two ? 2 : 1, LAP);
	}
	if (bench_counts())
		return 0;
	open_device();
	bench_row("set-up", "1000 QPs, each", setup, 3, MADE);
	return 0;
}
