/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common.h: what the headers' tests share: the device, pairs of QPs, waiting that ends, randomness.
 *
 * Include it first, as cases.h. Every function fails the running test by itself: callers need not
 * look at results. Both ends of a pair are in this process, on the first port of one device.
 *
 * Environment
 *   INLAY_TEST_DEVICE     name of the device; else the first mlx5 one
 *   INLAY_TEST_GID_INDEX  GID of RoCE's address, 0
 *   INLAY_TEST_SEED       where the random numbers begin, 1
 *   INLAY_TEST_PATIENCE   seconds to wait for what must come, 60
 *   INLAY_TEST_AGAIN      set by again_with: this is the second run
 */
#ifndef TESTS_COMMON_H
#define TESTS_COMMON_H

#include "cases.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include <inlay/buf.h>
#include <inlay/cqe/packet.h>
#include <inlay/dm.h>
#include <inlay/match.h>
#include <inlay/mmap.h>
#include <inlay/queue/batch.h>
#include <inlay/queue/masked.h>
#include <inlay/queue/ooo.h>
#include <inlay/queue/packet.h>
#include <inlay/queue/raw.h>
#include <inlay/queue/striding.h>
#include <inlay/queue/sync.h>
#include <inlay/queue/umr.h>
#include <inlay/queue/user_index.h>
#include <inlay/steer.h>
#include <inlay/tag.h>
#include "posts.h"
#include "softdev.h"

#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define QKEY 0x11223344         /* of all UD queue pairs */
#define DEADLINE patience()     /* seconds until what must come has come, on a machine that has much else to do */

/* Tests that need the software device's controls; the reason is printed, the test counts as skipped */
#define need_softdev(why)                                                                                                        \
	do {                                                                                                                     \
		if (!softdev_present()) {                                                                                        \
			print_message("# skipped: %s needs the software device\n", why);                                         \
			skip();                                                                                                  \
		}                                                                                                                \
	} while (0)

/* ---- random numbers and patterns ---- */

static uint64_t rnd_state = 1;

/* splitmix64 */
static inline uint64_t rnd(void)
{
	uint64_t z = rnd_state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* 0 .. n - 1 */
static inline uint32_t rnd_below(uint32_t n)
{
	return (uint32_t)((rnd() >> 32) * n >> 32);
}

UNUSED static void rnd_seed(void)
{
	const char *env = getenv("INLAY_TEST_SEED");

	rnd_state = env && *env ? strtoull(env, NULL, 0) : 1;
}

/* Where the bytes of fill(at, len, seed) differ, or len */
UNUSED static size_t differs(const void *at, size_t len, uint32_t seed)
{
	const uint8_t *p = (const uint8_t *)at;
	uint32_t x = seed * 2654435761u + 1;
	size_t i;

	for (i = 0; i < len; i++) {
		x = x * 1103515245 + 12345;
		if (p[i] != (uint8_t)(x >> 16))
			break;
	}
	return i;
}

/* Zeroed memory of its own pages; free() */
UNUSED static void *pages(size_t len)
{
	void *p = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);

	assert_non_null(p);
	memset(p, 0, (len + 4095) & ~(size_t)4095);
	return p;
}

/* ---- time and the device's ---- */

static inline double patience(void)
{
	const char *env = getenv("INLAY_TEST_PATIENCE");

	return env && *env ? atof(env) : 60;
}

static inline bool stepped(void)
{
	return softdev_present() && softdev_execute(0, 0) != -EPERM;
}

/* Lets the device work: to the end of what there is when it is stepped, else for a moment */
static inline void step(void)
{
	if (stepped())
		softdev_run();
	else
		sched_yield();
}

/* Time for something that must not happen */
UNUSED static void settle(void)
{
	for (int i = 0; i < 5; i++) {
		step();
		if (!stepped())
			usleep(1000);
	}
}

/* ---- the device ---- */

struct dev {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index;
};

static struct dev dev;

/* Opens one more context on the device; NULL when there is none */
UNUSED static struct ibv_context *dev_context(void)
{
	const char *name = getenv("INLAY_TEST_DEVICE");
	struct ibv_context *ctx = NULL;
	struct ibv_device **list;
	int n = 0, i;

	list = ibv_get_device_list(&n);
	for (i = 0; list && i < n && !ctx; i++)
		if (name && *name ? !strcmp(ibv_get_device_name(list[i]), name) : mlx5dv_is_supported(list[i]))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

/* libmlx5's rings of any object: view(CQ, cq, ibv_cq, &dv) */
#define view(KIND, member, object, into)                                                                                         \
	do {                                                                                                                     \
		struct mlx5dv_obj obj_;                                                                                          \
		memset(&obj_, 0, sizeof(obj_));                                                                                  \
		memset(into, 0, sizeof(*(into)));                                                                                \
		obj_.member.in = object;                                                                                         \
		obj_.member.out = into;                                                                                          \
		must(mlx5dv_init_obj(&obj_, MLX5DV_OBJ_##KIND));                                                                 \
	} while (0)

/* libmlx5's rings of a QP */
UNUSED static struct mlx5dv_qp view_qp(struct ibv_qp *qp)
{
	struct mlx5dv_qp dv;

	view(QP, qp, qp, &dv);
	return dv;
}

/* cmocka's group set-up and tear-down */
UNUSED static int dev_open(void **state)
{
	const char *index = getenv("INLAY_TEST_GID_INDEX");

	(void)state;
	rnd_seed();
	memset(&dev, 0, sizeof(dev));
	dev.ctx = dev_context();
	if (!dev.ctx) {
		print_error("no mlx5 device: run on tests/softdev/run, or set INLAY_TEST_DEVICE\n");
		return -1;
	}
	dev.pd = ibv_alloc_pd(dev.ctx);
	dev.gid_index = index && *index ? atoi(index) : 0;
	if (!dev.pd || ibv_query_device(dev.ctx, &dev.attr) || ibv_query_port(dev.ctx, 1, &dev.port) ||
	    ibv_query_gid(dev.ctx, 1, dev.gid_index, &dev.gid))
		return -1;
	if (dev.port.state != IBV_PORT_ACTIVE) {
		print_error("port 1 is not active\n");
		return -1;
	}
	return 0;
}

UNUSED static int dev_close(UNUSED void **state)
{
	/* That it can be closed tells that every test has cleaned up behind itself */
	return ibv_dealloc_pd(dev.pd) || ibv_close_device(dev.ctx) ? -1 : 0;
}

/* ---- queue pairs ---- */

/* What a test wants of a pair; start from usual */
struct opt {
	enum ibv_qp_type type;            /* 0: RC */
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	int cqe;                          /* of each CQ */
	int cqe_size;                     /* 64 or 128 */
	bool ignore_overrun;
	uint8_t compressed;               /* MLX5DV_CQE_RES_FORMAT_*; 0: not */
	bool scatter;                     /* let the device scatter small payloads to the CQE */
	bool one_cq;                      /* send and receive side complete into one CQ */
	struct ibv_comp_channel *channel; /* of the CQs */
	struct ibv_pd *pd;                /* NULL: dev.pd */
	uint64_t dv_ops;                  /* MLX5DV_QP_EX_WITH_* */
	size_t bytes;                     /* of each end's buffer */
	int access;                       /* of the memory regions */
	int qp_access;
	enum ibv_mtu mtu;
	uint8_t timeout, retry_cnt, rnr_retry, rd_atomic;
};

UNUSED static const struct opt usual = {
	.cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 128},
	.cqe = 255,
	.cqe_size = 64,
	.bytes = 1 << 20,
	.access = ALL_ACCESS,
	.qp_access = ALL_ACCESS,
	.mtu = IBV_MTU_1024,
	.timeout = 10,
	.retry_cnt = 7,
	.rnr_retry = 7,
	.rd_atomic = 16,
};

/* One end of a pair. The verbs objects are made by end_make; what inlay takes over is the test's choice */
struct end {
	struct opt opt;
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq;
	uint8_t *buf;
	struct ibv_mr *mr;
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct inlay_rq rq;
	struct inlay_cq cq;   /* of scq; of both sides when opt.one_cq */
	struct inlay_cq rxcq; /* of rcq */
};

UNUSED static struct ibv_cq *cq_make(const struct opt *opt)
{
	struct ibv_cq_init_attr_ex attr = {};
	struct mlx5dv_cq_init_attr dv = {};
	struct ibv_cq_ex *cq;

	attr.cqe = (uint32_t)opt->cqe;
	attr.channel = opt->channel;
	if (opt->ignore_overrun) {
		attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
		attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	}
	dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
	dv.cqe_size = (uint16_t)opt->cqe_size;
	if (opt->compressed) {
		dv.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
		dv.cqe_comp_res_format = opt->compressed;
	}
	cq = made(mlx5dv_create_cq(dev.ctx, &attr, &dv));
	return ibv_cq_ex_to_cq(cq);
}

UNUSED static struct ibv_qp *qp_make(const struct opt *opt, struct ibv_cq *scq, struct ibv_cq *rcq)
{
	struct ibv_qp_init_attr_ex attr = {};
	struct mlx5dv_qp_init_attr dv = {};

	attr.qp_type = opt->type ? opt->type : IBV_QPT_RC;
	attr.srq = opt->srq;
	attr.send_cq = scq;
	attr.recv_cq = rcq;
	attr.cap = opt->cap;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	attr.pd = opt->pd ? opt->pd : dev.pd;
	if (!opt->scatter) {
		dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
		dv.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
	}
	dv.comp_mask |= opt->dv_ops ? MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS : 0;
	dv.send_ops_flags = opt->dv_ops;
	return made(mlx5dv_create_qp(dev.ctx, &attr, &dv));
}

UNUSED static void qp_init(struct ibv_qp *qp, const struct opt *opt)
{
	struct ibv_qp_attr a = {};

	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	a.qkey = QKEY;
	a.qp_access_flags = (unsigned int)opt->qp_access;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
}

/* The way to the port itself: to a GID on RoCE, to the LID on InfiniBand */
UNUSED static struct ibv_ah_attr own_path(void)
{
	struct ibv_ah_attr ah = {};

	ah.port_num = 1;
	ah.dlid = dev.port.lid;
	if (dev.port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		ah.is_global = 1;
		ah.grh.dgid = dev.gid;
		ah.grh.sgid_index = (uint8_t)dev.gid_index;
		ah.grh.hop_limit = 64;
	}
	return ah;
}

/* INIT to RTS; the other end has number dest */
UNUSED static void qp_connect(struct ibv_qp *qp, uint32_t dest, const struct opt *opt)
{
	const bool rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_attr a = {};

	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = opt->mtu < dev.port.active_mtu ? opt->mtu : dev.port.active_mtu;
	a.dest_qp_num = dest;
	a.rq_psn = 0xfffff0; /* so that it comes round early */
	a.max_dest_rd_atomic = opt->rd_atomic;
	a.min_rnr_timer = 1;
	a.ah_attr = own_path();
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | (ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
			   (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	a.qp_state = IBV_QPS_RTS;
	a.timeout = opt->timeout;
	a.retry_cnt = opt->retry_cnt;
	a.rnr_retry = opt->rnr_retry;
	a.sq_psn = 0xfffff0;
	a.max_rd_atomic = opt->rd_atomic;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN |
			   (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)));
}

UNUSED static void qp_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = {};

	a.qp_state = state;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE));
}

/* A raw packet QP, from RESET to RTS */
UNUSED static void raw_up(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {};

	a.qp_state = IBV_QPS_INIT;
	a.port_num = 1;
	must(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT));
	qp_to(qp, IBV_QPS_RTR);
	qp_to(qp, IBV_QPS_RTS);
}

UNUSED static void end_make(struct end *e, const struct opt *opt)
{
	memset(e, 0, sizeof(*e));
	e->opt = *opt;
	e->scq = cq_make(opt);
	e->rcq = opt->one_cq ? e->scq : cq_make(opt);
	e->qp = qp_make(opt, e->scq, e->rcq);
	e->buf = (uint8_t *)pages(opt->bytes);
	e->mr = made(ibv_reg_mr(dev.pd, e->buf, opt->bytes, opt->access));
}

UNUSED static void end_free(struct end *e)
{
	if (e->qp)
		must(ibv_destroy_qp(e->qp));
	must(ibv_destroy_cq(e->scq));
	if (e->rcq != e->scq)
		must(ibv_destroy_cq(e->rcq));
	must(ibv_dereg_mr(e->mr));
	free(e->buf);
	memset(e, 0, sizeof(*e));
}

/* From RESET to RTS, both */
UNUSED static void ends_connect(struct end *a, struct end *b)
{
	qp_init(a->qp, &a->opt);
	qp_init(b->qp, &b->opt);
	qp_connect(a->qp, b->qp->qp_num, &a->opt);
	qp_connect(b->qp, a->qp->qp_num, &b->opt);
}

UNUSED static void ends_make(struct end *a, struct end *b, const struct opt *opt)
{
	end_make(a, opt);
	end_make(b, opt);
	ends_connect(a, b);
}

/* A QP's register in any mode: here nobody else rings it */
UNUSED static void uar_of(struct inlay_uar *uar, struct ibv_qp *qp, uint32_t mode)
{
	must(inlay_uar_from_qp(uar, qp, NULL));
	must(inlay_uar_init(uar, uar->reg, uar->size, mode));
}

/* Takes everything over, the register in the given mode */
UNUSED static void end_take(struct end *e, uint32_t mode)
{
	uar_of(&e->uar, e->qp, mode);
	must(inlay_sq_from_qp(&e->sq, e->qp, &e->uar, NULL, NULL));
	if (e->opt.cap.max_recv_wr && !e->opt.srq)
		must(inlay_rq_from_qp(&e->rq, e->qp, NULL, NULL));
	must(inlay_cq_from_cq(&e->cq, e->scq, NULL));
	if (!e->opt.one_cq)
		must(inlay_cq_from_cq(&e->rxcq, e->rcq, NULL));
}

static inline struct ibv_sge sge_of(const struct end *e, size_t offset, size_t len)
{
	struct ibv_sge sge;

	sge.addr = (uintptr_t)e->buf + offset;
	sge.length = (uint32_t)len;
	sge.lkey = e->mr->lkey;
	return sge;
}

static inline uint64_t raddr_of(const struct end *e, size_t offset)
{
	return (uintptr_t)e->buf + offset;
}

/* Takes turns until the condition holds, or fails after DEADLINE */
#define await_by(turn, condition)                                                                   \
	do {                                                                                        \
		double end_ = now() + DEADLINE;                                                     \
		while (!(condition)) {                                                              \
			if (now() > end_)                                                           \
				fail_msg("%s: not within %d s", #condition, (int)DEADLINE);         \
			turn;                                                                       \
		}                                                                                   \
	} while (0)

/* Lets the device work until it holds */
#define await(condition) await_by(step(), condition)

/* ---- completions ---- */

/* The next completion, not yet freed. Ends: within DEADLINE, or the test fails */
UNUSED static const struct mlx5_cqe64 *cqe_wait(struct inlay_cq *cq)
{
	const struct mlx5_cqe64 *cqe;

	await((cqe = inlay_cq_peek(cq)));
	return cqe;
}

/* A good completion of the send side; its credit and slot go back */
UNUSED static void sent(struct end *e)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&e->cq);

	if (inlay_cqe_is_error(cqe))
		inlay_cqe_print(stderr, cqe);
	assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_REQ);
	assert_int_equal(inlay_cqe_qpn(cqe), e->qp->qp_num);
	assert_true(0 < inlay_sq_release(&e->sq, cqe));
	inlay_cq_advance(&e->cq, 1);
}

UNUSED static void expect_nothing(struct inlay_cq *cq)
{
	settle();
	assert_null(inlay_cq_peek(cq));
}

/* ---- another device ---- */

/* The whole program once more on the software device that one variable makes another one: what a device is, is settled when it is opened */
UNUSED static int again_with(const char *name, const char *value)
{
	int status;
	pid_t pid;

	if (!softdev_present() || getenv(name) || getenv("INLAY_TEST_AGAIN"))
		return 0;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		setenv("INLAY_TEST_AGAIN", "1", 1);
		setenv(name, value, 1);
		execl("/proc/self/exe", name, NULL);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* And on the one that works only when its doorbell page is written to: whoever posts and does not ring waits for ever */
UNUSED static int again_trapped(void)
{
#if defined(__x86_64__) && !SANITIZED
	return again_with("SOFTDEV_TRAP", "1");
#else
	return 0;
#endif
}

/* ---- maps ---- */

/* Range i of a started map, in the order of adding, as lookups give it */
UNUSED static const struct inlay_range *range_of(const struct inlay_mmap *m, uint32_t i)
{
	return i < m->num_ranges ? inlay_mmap_find(m, (const void *)(uintptr_t)m->sources[i].start, 1) : NULL;
}

/* A source with a limit */
UNUSED static struct inlay_source limited(struct inlay_source s, uint32_t limit)
{
	s.limit = limit;
	return s;
}

/* ---- aborts ---- */

struct aborting {
	pid_t pid;
	int said;
};

/* Forks. In the child, whose stderr is heard, true */
UNUSED static bool abort_begin(struct aborting *a)
{
	struct rlimit none = {0, 0};
	int p[2];

	must(pipe(p));
	fflush(NULL);
	a->pid = fork();
	assert_true(a->pid >= 0);
	if (!a->pid) {
		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		dup2(p[1], STDERR_FILENO);
		close(p[0]);
	}
	close(p[1]);
	a->said = p[0];
	return !a->pid;
}

UNUSED static void abort_end(const struct aborting *a, const char *text)
{
	char said[1024];
	size_t len = 0;
	ssize_t n;
	int status;

	while (len < sizeof(said) - 1 && (n = read(a->said, said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = 0;
	close(a->said);
	assert_int_equal(waitpid(a->pid, &status, 0), a->pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(said, text))
		fail_msg("status 0x%x, \"%s\" where an abort with \"%s\" was due", status, said, text);
}

/* These statements, in a child, abort and say `text` on stderr. For raw memory: a child has no device */
#define assert_aborts(text, ...)                \
	do {                                    \
		struct aborting a_;             \
		if (abort_begin(&a_)) {         \
			__VA_ARGS__;            \
			_exit(0);               \
		}                               \
		abort_end(&a_, text);           \
	} while (0)

/* ---- receive queues of their own ---- */

UNUSED static struct ibv_srq *new_srq(uint32_t wr, uint32_t sge)
{
	struct ibv_srq_init_attr attr = {};

	attr.attr.max_wr = wr;
	attr.attr.max_sge = sge;
	return ibv_create_srq(dev.pd, &attr);
}

UNUSED static struct ibv_wq *new_wq(struct ibv_cq *cq, uint32_t wr, uint32_t sge)
{
	struct ibv_wq_init_attr attr = {};

	attr.wq_type = IBV_WQT_RQ;
	attr.max_wr = wr;
	attr.max_sge = sge;
	attr.pd = dev.pd;
	attr.cq = cq;
	return ibv_create_wq(dev.ctx, &attr);
}

#endif
