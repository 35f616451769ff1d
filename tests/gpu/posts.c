/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels in the interpreter post the bytes that the CPU posts: ring, record and doorbell, for random requests of each kind, at
 * random indices; parts that are too large end in NOPs; wrong parts and tickets are refused and change nothing.
 */
#include "../common.h"
#include <inlay/gpu.h>
#include <inlay/wqe/sync.h>
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

/* Runs a kernel in these lanes of a warp. Returns what they did together. */
static struct ptx_thread run_kernel(const char *name, uint32_t mask, const uint64_t *args)
{
	static struct ptx_thread lanes[32];
	struct ptx_thread sum = {0};
	uint32_t i, running = 0, steps = 0;

	memset(lanes, 0, sizeof(lanes));
	for (i = 0; i < 32; i++) {
		lanes[i].lane = i, lanes[i].memory = &ptx_plain;
		if (mask >> i & 1)
			ptx_start(&lanes[i], &ptx, name, args), running++;
	}
	for (; running; ptx_meet(lanes))
		for (i = 0; i < 32; i++)
			running -= lanes[i].depth && !ptx_step(&lanes[i]), assert_true(steps++ < 1000000);
	for (i = 0; i < 32; i++) {
		sum.executed += lanes[i].executed, sum.net += lanes[i].net;
		sum.atomics += lanes[i].atomics, sum.fences += lanes[i].fences, sum.doorbells += lanes[i].doorbells;
	}
	return sum;
}

#define kernel(name, mask, ...)                              \
	({                                                   \
		const uint64_t args_[] = {__VA_ARGS__};      \
		run_kernel(name, mask, args_);               \
	})

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

TEST(test_posts)
{
	struct answer answer;
	struct request r;
	uint32_t i, bbs, extra;

	for (const struct kind *kind = kinds; kind < kinds + ARRAY(kinds); kind++)
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
			kernel(kind->name, 1, (uintptr_t)&gq, (uintptr_t)&r, bbs + extra, (uintptr_t)&answer);
			must(answer.begin);
			assert_int_equal(answer.post, (int)answer.wrong);
			assert_int_equal(answer.ticket, sq.pi);
			same_sides();
		}
}

/* Parts of any lanes of a warp; some fill one WQEBB of two or three. Then all are refused alike, and nothing changes. */
TEST(test_warps)
{
	static const struct { uint32_t bbs, word; int err; } wrong[] = {
		{0, 0xf0000000, -EINVAL}, {3, 0xf0000000, -EINVAL}, {(1u << 27) + 1, 0xf0000000, -EINVAL}, {~0u, 0xf0000000, -EINVAL},
		{1, 0xf0000000, -EAGAIN}, {1, 0xd0000000, -EIO}};
	struct answer answer[32];
	uint32_t i, k, lane, mask, bbs;

	for (i = 0; i < cases; i++) {
		mask = i ? (uint32_t)rnd() & (uint32_t)(i % 2 ? ~0u : rnd()) : 0;
		mask = mask ? mask : ~0u;
		queues(IBV_QPT_RC, (uint32_t)rnd());
		bbs = 1 + (uint32_t)rnd() % (__builtin_popcount(mask) > 20 ? 2 : 3);
		for (lane = 0; lane < 32; lane++) {
			uint64_t raddr = 0x100000000ull * i + lane;

			if (!(mask >> lane & 1))
				continue;
			must(inlay_post_write_inline(&sq, raddr, 7, &raddr, 8, INLAY_SIGNALED));
			for (k = 1; k < bbs; k++)
				must(inlay_post(&sq, MLX5_OPCODE_NOP, NULL, k == bbs - 1 ? INLAY_SIGNALED : 0));
		}
		inlay_sq_ring_doorbell(&sq);
		kernel("warp_writes", mask, (uintptr_t)&gq, mask, bbs, (uintptr_t)answer, 0x100000000ull * i);
		for (lane = 0; lane < 32; lane++)
			if (mask >> lane & 1 && (answer[lane].begin || answer[lane].post || answer[lane].ticket != sq.pi))
				fail_msg("lane %u of %x: %d, %d, ticket %u", lane, mask, answer[lane].begin, answer[lane].post, answer[lane].ticket);
		same_sides();
	}
	for (i = 0; i < ARRAY(wrong); i++) {
		queues(IBV_QPT_RC, 0);
		gq.reserved = wrong[i].bbs == 1 ? BBS - 31 : 0;
		memcpy(&cpu, &gpu, sizeof(cpu));
		inlay_put32(gpu.cqe + 60, wrong[i].word);
		kernel("warp_writes", ~0u, (uintptr_t)&gq, ~0u, wrong[i].bbs, (uintptr_t)answer, 0);
		for (lane = 0; lane < 32; lane++)
			assert_int_equal(answer[lane].begin, wrong[i].err);
		assert_int_equal(gq.reserved, wrong[i].bbs == 1 ? BBS - 31 : 0);
		same_sides();
	}
}

/* One thread: parts of no or too many WQEBBs, a post that does not fit, tickets, and what a look at the CQE says */
TEST(test_refused)
{
	static const struct { uint32_t ticket, word; int poll, test; } looks[] = {
		{1, 0xf0000000, 0, 0}, {1, 0x00000000, 1, 1}, {2, 0x00000000, 1, 0}, {0, 0xf0000000, 0, 1}, {5, 0x00000000, 1, -EINVAL},
		{0x80000000, 0xf0000000, 0, -EINVAL}, {0x80000001, 0xf0000000, 0, 1}, {1, 0xd0000002, -EIO, -EIO}, {1, 0x0000ffff, 0, 0}};
	const uint32_t at = 0x1fffe; /* of the first WQE; a look's counter is its distance from there */
	struct answer answer;
	struct request r = {0};
	int said[4] = {0};

	r.wr.data = &r, r.wr.len = 100, r.flags = INLAY_INLINE | INLAY_SIGNALED;
	for (uint32_t i = 0; i < 2; i++) {
		queues(IBV_QPT_RC, 0);
		memcpy(&cpu, &gpu, sizeof(cpu));
		kernel("post_write", 1, (uintptr_t)&gq, (uintptr_t)&r, (uint64_t)(i ? BBS + 1 : 0), (uintptr_t)&answer);
		assert_int_equal(answer.begin, -EINVAL);
		assert_int_equal(gq.reserved, 0);
		same_sides();
	}
	queues(IBV_QPT_RC, 0);
	must(inlay_post(&sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED));
	inlay_sq_ring_doorbell(&sq);
	kernel("post_write", 1, (uintptr_t)&gq, (uintptr_t)&r, 1, (uintptr_t)&answer);
	assert_int_equal(answer.post, -EAGAIN);
	assert_int_equal(answer.ticket, 1);
	same_sides();
	for (uint32_t i = 0; i < ARRAY(looks); i++)
		for (uint32_t is = 0; is < 2; is++) {
			queues(IBV_QPT_RC, at);
			gq.reserved = gq.published = at + 3; /* the first of them has one WQEBB */
			gpu.ring[at % BBS * INLAY_WQEBB + 7] = 3;
			inlay_put32(gpu.cqe + 60, (looks[i].word & 0xff000000) | inlay_to_be16((uint16_t)(at + looks[i].word)));
			kernel(is ? "test" : "poll", 1, (uintptr_t)&gq, is ? at + looks[i].ticket : (uintptr_t)said, (uintptr_t)said);
			assert_int_equal(said[0], is ? looks[i].test : looks[i].poll);
			if (is)
				continue;
			assert_int_equal(said[1], looks[i].poll == 1 ? 2 : 3);
			assert_int_equal(said[2], looks[i].poll < 0 ? 0xa5 : 0);
			if (looks[i].poll < 0)
				assert_int_equal(said[3], at + 2);
		}
	kernel("reset", 1, (uintptr_t)&gq);
	assert_int_equal(gq.reserved | gq.published | gq.done | gq.error | gpu.record[MLX5_SND_DBR], 0);
}

/* What a thread that owns a receive queue and a CQ does with them */
TEST(test_receives)
{
	static struct receiver side[2];
	struct ibv_sge sge[4];

	for (uint32_t k = 0; k < ARRAY(sge); k++)
		sge[k].addr = rnd(), sge[k].length = 1 + (uint32_t)rnd() % 1000, sge[k].lkey = (uint32_t)rnd();
	for (uint32_t k = 0; k < 5; k++) {
		memset(side, 0, sizeof(side));
		for (uint32_t i = 0; i < 2; i++) {
			must(inlay_rq_init(&side[i].rq, side[i].ring, 2, 64, side[i].record));
			must(inlay_cq_init(&side[i].cq, side[i].cqes, 2, 64, side[i].cq_record, side[i].cqes, 5));
			inlay_put32(side[i].cqes + 44, 0x4d000000);
			side[i].cqes[63] = k == 4 ? 0xf1 : MLX5_CQE_RESP_SEND << 4;
		}
		receive(&side[0], sge, k);
		kernel("receives", 1, (uintptr_t)&side[1], (uintptr_t)sge, k);
		assert_memory_equal(side[0].cqes, side[1].cqes, sizeof(side[0]) - offsetof(struct receiver, cqes));
		assert_int_equal(side[1].rq.pi, 1);
		assert_int_equal(side[1].bytes, k == 4 ? 0 : 0x4d);
	}
}

/*
 * PTX instructions of one thread that nobody else disturbs, with all that rings, but moves, conversions and parameters. Ceilings, by
 * clang 14 and nvcc 13. A warp shares atomic, fences and doorbell.
 */
TEST(test_counts)
{
	static const struct {
		const char *name;
		uint32_t lanes, most[2], atomics, fences, doorbells;
	} rows[] = {{"count_write", 1, {53, 54}, 1, 2, 1}, {"count_inline", 1, {53, 51}, 1, 2, 1}, {"count_add", 1, {72, 74}, 1, 2, 1},
		    {"count_warp", 32, {41, 44}, 1, 2, 1}, {"count_poll", 1, {28, 30}, 1, 1, 0}};
	struct ptx_thread did;

	for (uint32_t i = 0; i < ARRAY(rows); i++) {
		int poll = !strcmp(rows[i].name, "count_poll");

		queues(IBV_QPT_RC, 0);
		gq.reserved = gq.published = poll ? 1 : 0; /* one read, which is done */
		gpu.ring[7] = 3;
		inlay_put32(gpu.cqe + 60, poll ? 0 : 0xf0000000);
		did = kernel(rows[i].name, (uint32_t)((1ull << rows[i].lanes) - 1), (uintptr_t)&gq, 0x1000, 1, 0x2000, 2);
		print_message("# %s: %.1f instructions, %.1f of them counted\n", rows[i].name, (double)did.executed / rows[i].lanes,
			      (double)did.net / rows[i].lanes);
		assert_true(did.net <= (uint64_t)rows[i].most[by_nvcc] * rows[i].lanes);
		assert_int_equal(did.atomics, rows[i].atomics);
		assert_int_equal(did.fences, rows[i].fences);
		assert_int_equal(did.doorbells, rows[i].doorbells);
	}
}

static int read_kernels(UNUSED void **state)
{
	ptx_read(&ptx, path);
	return 0;
}

int main(void)
{
	const char *cases_of = getenv("GPU_CASES");
	int failed = 0;

	cases = cases_of ? (uint32_t)atoi(cases_of) : 300;
	for (by_nvcc = 0; by_nvcc < 2; by_nvcc++)
		if (ptx_find_file(by_nvcc ? "nvcc" : "clang", path, sizeof(path))) {
			print_message("# kernels by %s\n", by_nvcc ? "nvcc" : "clang");
			failed += run_all(read_kernels, NULL);
		} else {
			print_message("# skipped: no kernels by %s\n", by_nvcc ? "nvcc" : "clang");
		}
	return failed;
}
