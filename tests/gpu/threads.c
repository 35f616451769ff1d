/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h's functions in threads of the CPU, on a device: a QP made by commands with a collapsed CQ, several threads on one send queue,
 * a register that another thread forwards to, a queue that fails and goes on after a reset; and what is refused.
 */
#include "../devx/rig.h"
#include <inlay/gpu.h>
#include <pthread.h>

enum { THREADS = 4, PARTS = 300, BBS = 16, WORDS = THREADS * PARTS };

static struct {
	struct inlay_devx_cq cq;
	struct inlay_devx_qp qp;
	struct inlay_devx_path path;
	struct inlay_gpu_sq sq;
	struct inlay_gpu_map map;
	uint64_t mail, *words; /* mail: what stands for the register when it is forwarded; words: sources, then targets */
	struct ibv_mr *mr;
	uint32_t failed, wrong;
	int stop, forwarded;
} it;

static void make(int forward)
{
	struct inlay_devx_cq_attr attr = cq_want(1, 64);
	struct inlay_devx_qp_attr want;

	memset(&it, 0, sizeof(it));
	attr.flags = INLAY_DEVX_CQ_COLLAPSED;
	must(inlay_devx_cq_create(&it.cq, dev.ctx, &attr));
	want = qp_want(it.cq.cq.cqn, it.cq.cq.cqn, BBS, 16);
	must(inlay_devx_qp_create(&it.qp, dev.ctx, &want));
	it.path = path_usual();
	must(qp_to_itself(&it.qp, &it.path));
	it.words = (uint64_t *)pages(2 * WORDS * sizeof(uint64_t));
	it.mr = made(ibv_reg_mr(dev.pd, it.words, 2 * WORDS * sizeof(uint64_t), ALL_ACCESS));
	it.map.ring = it.qp.sq.buf, it.map.cqe = it.cq.cq.begin, it.map.record = rig.memory + want.record.offset;
	it.map.reg = forward ? (void *)&it.mail : (void *)rig.uar.uar.reg;
	must(inlay_gpu_sq_init(&it.sq, &it.qp.sq, &it.map));
}

static void unmake(void)
{
	must(inlay_devx_qp_destroy(&it.qp));
	must(inlay_devx_cq_destroy(&it.cq));
	must(ibv_dereg_mr(it.mr));
	free(it.words);
}

static int begin(uint32_t bbs, struct inlay_sq *part)
{
	int err;

	while ((err = inlay_gpu_begin(&it.sq, bbs, part)) == -EAGAIN)
		if (inlay_gpu_poll(&it.sq) < 0)
			return -EIO;
		else
			sched_yield();
	return err;
}

/* Writes its words one by one; every eighth part has a WQEBB too many */
static void *writes(void *arg)
{
	uint32_t first = (uint32_t)(uintptr_t)arg * PARTS, i;
	struct inlay_sq part;

	for (i = first; i < first + PARTS; i++) {
		struct inlay_wr wr = {0};
		uint32_t ticket;
		int done;

		wr.raddr = (uintptr_t)&it.words[WORDS + i], wr.rkey = it.mr->rkey;
		wr.data = &it.words[i], wr.len = 8, wr.lkey = it.mr->lkey;
		if (begin(1 + (i % 8 == 0), &part)) {
			__atomic_fetch_add(&it.failed, 1, __ATOMIC_RELAXED);
			return NULL;
		}
		if (inlay_post(&part, MLX5_OPCODE_RDMA_WRITE, &wr, INLAY_SIGNALED))
			__atomic_fetch_add(&it.wrong, 1, __ATOMIC_RELAXED);
		ticket = inlay_gpu_end(&it.sq, &part);
		while (!(done = inlay_gpu_test(&it.sq, ticket)))
			sched_yield();
		if (done < 0) {
			__atomic_fetch_add(&it.failed, 1, __ATOMIC_RELAXED);
			return NULL;
		}
		if (it.words[WORDS + i] != it.words[i])
			__atomic_fetch_add(&it.wrong, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *forwards(UNUSED void *arg)
{
	while (!__atomic_load_n(&it.stop, __ATOMIC_ACQUIRE))
		if (inlay_gpu_forward(&it.mail, &rig.uar.uar))
			it.forwarded++;
		else
			sched_yield();
	return NULL;
}

/* Starts the thread that forwards, if any does, or ends it */
static void forwarder(int forward, int start)
{
	static pthread_t thread;

	__atomic_store_n(&it.stop, !start, __ATOMIC_RELEASE);
	if (forward)
		must(start ? pthread_create(&thread, NULL, forwards, NULL) : pthread_join(thread, NULL));
}

static void all_write(void)
{
	pthread_t thread[THREADS];

	for (uint32_t i = 0; i < 2 * WORDS; i++)
		it.words[i] = i < WORDS ? rnd() : 0;
	for (uint32_t i = 0; i < THREADS; i++)
		must(pthread_create(&thread[i], NULL, writes, (void *)(uintptr_t)i));
	for (uint32_t i = 0; i < THREADS; i++)
		must(pthread_join(thread[i], NULL));
	assert_int_equal(it.wrong, 0);
}

static void all_well(int forward)
{
	make(forward);
	forwarder(forward, 1);
	all_write();
	forwarder(forward, 0);
	assert_int_equal(it.failed, 0);
	assert_int_equal(inlay_gpu_pending(&it.sq), 0);
	assert_int_equal(it.forwarded > 0, forward);
	unmake();
}

/* A wrong key among good ones: every thread ends, the queue says why, and goes on after a reset */
static void fails(int forward)
{
	uint32_t index, good = 0, i;
	struct inlay_sq part;

	make(forward);
	forwarder(forward, 1);
	assert_int_equal(inlay_gpu_error(&it.sq, &index), 0);
	for (i = 0; i < 4; i++) { /* the fourth part has a good one and a wrong one */
		must(begin(1 + i / 3, &part));
		good = it.mr->rkey;
		must(inlay_post_write_inline(&part, (uintptr_t)it.words, good, &good, 4, INLAY_SIGNALED));
		if (i == 3)
			must(inlay_post_write_inline(&part, (uintptr_t)it.words, good ^ 0x100, &good, 4, INLAY_SIGNALED));
		assert_int_equal(inlay_gpu_wait(&it.sq, inlay_gpu_end(&it.sq, &part)), i == 3 ? -EIO : 0);
	}
	assert_int_equal(inlay_gpu_error(&it.sq, &index), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	assert_int_equal(index, 4);
	all_write();
	assert_int_equal(it.failed, THREADS);
	assert_int_equal(inlay_gpu_begin_warp(&it.sq, 1, BBS, &part), -EIO);

	while (forward && __atomic_load_n(&it.mail, __ATOMIC_RELAXED))
		sched_yield();
	forwarder(forward, 0);
	must(inlay_devx_qp_modify(&it.qp, INLAY_QP_STATE_RST, NULL, NULL));
	inlay_gpu_reset(&it.sq);
	must(qp_to_itself(&it.qp, &it.path));
	forwarder(forward, 1);
	it.failed = 0;
	all_write();
	assert_int_equal(it.failed, 0);
	assert_int_equal(inlay_gpu_error(&it.sq, &index), 0);
	forwarder(forward, 0);
	unmake();
}

devx_test(test_threads)
{
	all_well(0);
	fails(0);
}

devx_test(test_forwarded)
{
	all_well(1);
	fails(1);
}

devx_test(test_refused)
{
	struct inlay_gpu_sq other;
	struct inlay_gpu_map map;
	struct inlay_sq part;
	struct ibv_sge none[5];
	uint32_t ticket, i;

	make(0);
	for (i = 0; i < 8; i++) {
		void **field = i / 2 == 0 ? &map.ring : i / 2 == 1 ? &map.record : i / 2 == 2 ? &map.reg : &map.cqe;

		map = it.map;
		*field = i % 2 ? NULL : (void *)((uintptr_t)*field + 2);
		assert_int_equal(inlay_gpu_sq_init(&other, &it.qp.sq, &map), -EINVAL);
	}
	must(inlay_post(&it.qp.sq, MLX5_OPCODE_NOP, NULL, 0));
	assert_int_equal(inlay_gpu_sq_init(&other, &it.qp.sq, &it.map), -EBUSY);
	inlay_sq_reset(&it.qp.sq);

	assert_int_equal(inlay_gpu_begin(&it.sq, 0, &part), -EINVAL);
	assert_int_equal(inlay_gpu_begin(&it.sq, BBS + 1, &part), -EINVAL);
	assert_int_equal(inlay_gpu_begin_warp(&it.sq, 1, 0, &part), -EINVAL);
	assert_int_equal(inlay_gpu_pending(&it.sq), 0);
	assert_int_equal(inlay_gpu_test(&it.sq, 1), -EINVAL);
	assert_int_equal(inlay_gpu_wait(&it.sq, BBS), -EINVAL);
	assert_int_equal(inlay_gpu_test(&it.sq, 0), 1);

	/* A post that does not fit its part leaves it to NOPs */
	for (i = 0; i < 5; i++)
		none[i].addr = (uintptr_t)it.words, none[i].length = 8, none[i].lkey = it.mr->lkey;
	must(inlay_gpu_begin(&it.sq, 1, &part));
	assert_int_equal(inlay_post_write(&part, (uintptr_t)it.words, it.mr->rkey, none, 5, INLAY_SIGNALED), -EAGAIN);
	must(inlay_gpu_wait(&it.sq, inlay_gpu_end(&it.sq, &part)));

	/* A full ring: no room until someone looks at the CQE */
	must(inlay_gpu_begin_warp(&it.sq, 1, BBS, &part));
	assert_int_equal(inlay_gpu_begin(&it.sq, 1, &other.part), -EAGAIN);
	assert_int_equal(inlay_gpu_begin_warp(&it.sq, 1, 1, &other.part), -EAGAIN);
	assert_int_equal(inlay_gpu_pending(&it.sq), BBS);
	ticket = inlay_gpu_end_warp(&it.sq, 1, &part);
	assert_int_equal(ticket, 1 + BBS);
	must(inlay_gpu_wait(&it.sq, ticket));
	must(begin(BBS, &part));
	must(inlay_gpu_wait(&it.sq, inlay_gpu_end(&it.sq, &part)));
	assert_int_equal(inlay_gpu_pending(&it.sq), 0);
	unmake();
}

int main(void)
{
	if (!rig_here())
		return 0;
	return run_all(rig_open, rig_close);
}
