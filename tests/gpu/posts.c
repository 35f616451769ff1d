/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels in the interpreter post the bytes that the CPU posts: ring, record and doorbell, for random requests of each kind, at
 * random indices; parts that are too large end in NOPs; wrong parts and tickets are refused and change nothing.
 */
#include "../common.h"
#include <inlay/gpu.h>
#include "kernels.h"
#include "ptx.h"

enum { BBS = 64, MOST = 200 };

static struct ptx ptx;
static char path[4096];
static uint32_t cases;
static int by_nvcc;

struct side {
	uint8_t ring[BBS * INLAY_WQEBB] __attribute__((aligned(64)));
	uint8_t cqe[64] __attribute__((aligned(64)));
	uint8_t reg[1024] __attribute__((aligned(1024)));
	uint32_t record[2];
};
static struct side gpu, cpu;
static struct inlay_gpu_sq gq;
static struct inlay_sq sq;
static struct inlay_uar uar;

#define CPU_POST(name, type, call)                                                                                               \
	static int cpu_##name(const struct request *r)                                                                           \
	{                                                                                                                        \
		struct inlay_sq part = sq;                                                                                       \
		int err = call;                                                                                                  \
                                                                                                                                 \
		inlay_sq_join(&sq, &part);                                                                                       \
		return err;                                                                                                      \
	}
KERNELS(CPU_POST)

#define ROW(name, type, call) {#name, type, cpu_##name},
static const struct kind {
	const char *name;
	uint32_t type;
	int (*post)(const struct request *);
} kinds[] = {KERNELS(ROW)};

/* Both queues, empty, with the next WQE at `at` */
static void queues(uint32_t type, uint32_t at)
{
	struct inlay_gpu_map map = {gpu.ring, gpu.record, gpu.reg, gpu.cqe};

	memset(&gpu, 0xa5, sizeof(gpu));
	memcpy(&cpu, &gpu, sizeof(cpu));
	must(inlay_uar_init(&uar, cpu.reg, 512, INLAY_UAR_SERIAL));
	must(inlay_sq_init(&sq, cpu.ring, BBS, cpu.record, (uint32_t)rnd() & 0xffffff, INLAY_MAX_DS, &uar));
	inlay_sq_set_type(&sq, type, 1);
	sq.atomics = ~0u;
	must(inlay_gpu_sq_init(&gq, &sq, &map));
	inlay_gpu_reset(&gq);
	sq.pi = sq.short_from = gq.reserved = gq.published = gq.done = at;
}

/* Runs a kernel of the queue and these arguments, in n lanes of a warp. */
static void kernel(const char *name, uint32_t n, const uint64_t *more, uint64_t *executed, uint64_t *net)
{
	const uint64_t args[] = {(uintptr_t)&gq, more[0], more[1], more[2], more[3]};
	static struct ptx_thread lanes[32];
	uint32_t i, running = n, steps = 0;

	memset(lanes, 0, sizeof(lanes));
	for (i = 0; i < n; i++) {
		lanes[i].lane = i, lanes[i].memory = &ptx_plain;
		ptx_start(&lanes[i], &ptx, name, args);
	}
	for (; running; ptx_meet(lanes))
		for (i = 0; i < n; i++)
			running -= lanes[i].depth && !ptx_step(&lanes[i]), assert_true(steps++ < 1000000);
	for (*executed = *net = i = 0; i < n; i++)
		*executed += lanes[i].executed, *net += lanes[i].net;
}

static void random_request(struct request *r, const struct kind *kind)
{
	static const uint32_t fences[] = {0, INLAY_FENCE_INITIATOR_SMALL, INLAY_FENCE_STRONG};
	static uint8_t data[4096];
	static struct ibv_sge sge[8];
	static struct iovec iov[8];
	static struct inlay_iov list;
	static struct inlay_av av;
	int masked = strstr(kind->name, "masked") != NULL;
	uint32_t i, n = (uint32_t)rnd() % 6;

	memset(r, 0, sizeof(*r));
	for (i = 0; i < sizeof(data); i += 8)
		inlay_put64(data + i, rnd());
	for (i = 0; i < sizeof(av); i++)
		((uint8_t *)&av)[i] = (uint8_t)rnd();
	av.av.dqp_dct |= rnd() & 1 ? inlay_to_be32(MLX5_EXTENDED_UD_AV) : 0;
	r->flags = (rnd() & 1 ? INLAY_SIGNALED : 0) | (rnd() & 1 ? INLAY_SOLICITED : 0) | fences[rnd() % ARRAY(fences)] |
		   (rnd() & 1 ? INLAY_INLINE : 0);
	r->a = rnd(), r->b = rnd(), r->c = rnd(), r->d = rnd();
	r->wr.raddr = rnd(), r->wr.rkey = (uint32_t)rnd(), r->wr.imm_be = (uint32_t)rnd(), r->wr.lkey = (uint32_t)rnd();
	r->wr.data = data + (rnd() & 1 ? rnd() % 8 : 0);
	r->wr.len = masked ? 4u << (rnd() & 1) : (uint32_t)rnd() % MOST;
	if (kind->type != IBV_QPT_RC)
		r->wr.to = &av;
	if (strstr(kind->name, "add") || strstr(kind->name, "cas"))
		return;
	for (i = 0; i < n; i++) {
		sge[i].addr = (uintptr_t)data + rnd() % 100, sge[i].length = (uint32_t)rnd() % (MOST / 6), sge[i].lkey = (uint32_t)rnd();
		iov[i].iov_base = (void *)(uintptr_t)sge[i].addr, iov[i].iov_len = sge[i].length;
	}
	list.iov = iov, list.num = n, list.lkey = (uint32_t)rnd();
	if (rnd() % 3 == 0)
		r->wr.iov = &list;
	else if (rnd() & 1)
		r->wr.sge = sge, r->wr.num_sge = n;
}

static void same_sides(void)
{
	assert_memory_equal(gpu.ring, cpu.ring, sizeof(cpu.ring));
	assert_int_equal(gpu.record[MLX5_SND_DBR], cpu.record[MLX5_SND_DBR]);
	assert_memory_equal(gpu.reg, cpu.reg, 8);
}

static void test_posts(void **state)
{
	const struct kind *kind;
	struct answer answer;
	struct request r;
	uint64_t args[4] = {0}, executed, net;
	uint32_t i, bbs, extra;

	(void)state;
	for (kind = kinds; kind < kinds + ARRAY(kinds); kind++)
		for (i = 0; i < cases; i++) {
			uint32_t at = rnd() & 1 ? (uint32_t)rnd() : (uint32_t)(rnd() % 200) - 100;

			queues(kind->type, at);
			random_request(&r, kind);
			memset(&answer, 0xee, sizeof(answer));
			answer.wrong = (uint32_t)kind->post(&r);
			bbs = sq.pi - at;
			extra = !bbs || rnd() % 4 == 0 ? 1 + (uint32_t)rnd() % 3 : 0;
			for (; bbs + extra > sq.pi - at;)
				must(inlay_post(&sq, MLX5_OPCODE_NOP, NULL, bbs + extra - 1 == sq.pi - at ? INLAY_SIGNALED : 0));
			inlay_sq_ring_doorbell(&sq);
			args[0] = (uintptr_t)&r, args[1] = bbs + extra, args[2] = (uintptr_t)&answer;
			kernel(kind->name, 1, args, &executed, &net);
			must(answer.begin);
			assert_int_equal(answer.post, (int)answer.wrong);
			assert_int_equal(answer.ticket, sq.pi);
			same_sides();
		}
}

/*
 * PTX instructions of one thread that nobody else disturbs, with all that rings, but moves, conversions and parameters. Ceilings, by
 * clang 14 and nvcc 13.
 */
static void test_counts(void **state)
{
	static const struct {
		const char *name;
		uint32_t lanes, most[2];
	} rows[] = {{"count_write", 1, {56, 60}}, {"count_inline", 1, {55, 57}}, {"count_add", 1, {77, 81}}, {"count_warp", 32, {42, 45}},
		    {"count_poll", 1, {28, 30}}};
	const uint64_t args[4] = {0x1000, 1, 0x2000, 2};
	uint64_t executed, net;
	uint32_t i;

	(void)state;
	for (i = 0; i < ARRAY(rows); i++) {
		int poll = !strcmp(rows[i].name, "count_poll");

		queues(IBV_QPT_RC, 0);
		gq.reserved = gq.published = poll ? 1 : 0; /* one read, which is done */
		gpu.ring[7] = 3;
		inlay_put32(gpu.cqe + 60, poll ? 0 : 0xf0000000);
		kernel(rows[i].name, rows[i].lanes, args, &executed, &net);
		print_message("# %s: %.1f instructions, %.1f of them counted\n", rows[i].name, (double)executed / rows[i].lanes,
			      (double)net / rows[i].lanes);
		assert_true(net <= (uint64_t)rows[i].most[by_nvcc] * rows[i].lanes);
	}
}

static int read_kernels(void **state)
{
	(void)state;
	ptx_read(&ptx, path);
	return 0;
}

int main(void)
{
	const char *cases_of = getenv("GPU_CASES");
	int failed = 0;

	cases = cases_of ? (uint32_t)atoi(cases_of) : 300;
	for (by_nvcc = 0; by_nvcc < 2; by_nvcc++)
		if (ptx_find_file(by_nvcc ? "nvcc" : "clang", path, sizeof(path)))
			failed += test_group(by_nvcc ? "gpu/posts by nvcc" : "gpu/posts by clang", read_kernels, NULL, TEST(test_posts),
					     TEST(test_counts));
		else
			print_message("# skipped: no kernels by %s\n", by_nvcc ? "nvcc" : "clang");
	return failed;
}
