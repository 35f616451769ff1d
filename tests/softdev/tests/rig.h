/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: what the tests of the software device share. They drive it through libibverbs and libmlx5
 * alone.
 *
 * Two sides of this process talk to each other over one port, the first, of one device: $INLAY_TEST_DEVICE, or
 * the first. Every function here fails the running test by itself.
 */
#ifndef SOFTDEV_TESTS_RIG_H
#define SOFTDEV_TESTS_RIG_H

#include "../../cases.h"
#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include "softdev.h"

#define SIZE (1u << 20)           /* bytes of each side's buffer */
#define HALF (SIZE / 2)
#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define QKEY 0x11223344
#define GRH_BYTES 40
#define PATIENCE 60               /* seconds until what must come has come, on a machine that has much else to do */

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | \
		  IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

/* A sanitizer stands where the device would keep its SIGSEGV from cmocka, and traps are x86-64's */
#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NO_TRAPS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NO_TRAPS 1
#endif
#endif
#ifndef NO_TRAPS
#define NO_TRAPS 0
#endif

/* A call that must give NULL, and this error */
#define must_refuse(call, error)               \
	do {                                   \
		errno = 0;                     \
		assert_null(call);             \
		assert_int_equal(errno, error); \
	} while (0)

/* A test that this device cannot have; all of a program's, in main() */
#define skip_if(condition, why)                             \
	do {                                                \
		if (condition) {                            \
			print_message("# skipped: %s\n", why); \
			skip();                             \
		}                                           \
	} while (0)
#define skip_all_if(condition, why)                                \
	do {                                                       \
		if (condition)                                     \
			return printf("# skipped: %s\n1..0\n", why) < 0; \
	} while (0)

static struct ibv_device **list;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_port_attr port;
static uint8_t port_num = 1;
static union ibv_gid gid;
static int sgid;

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq;
	uint8_t *buf;
	struct ibv_mr *mr;
};

/* What a test wants different from the usual */
struct how {
	enum ibv_qp_type type;
	struct ibv_qp_cap cap;
	int cqe;
	bool sig_all;
	uint64_t ops;             /* send_ops_flags: for ibv_wr_* */
	uint32_t create;          /* create_flags */
	int access;               /* of the memory regions */
	int qp_access;
	int rnr_retry, retry_cnt, timeout;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct ibv_cq *cq;        /* for both queues; close_side() destroys it */
};

UNUSED static const struct how usual = {
	.type = IBV_QPT_RC,
	.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64 },
	.cqe = 256, .access = ALL_ACCESS, .qp_access = ALL_ACCESS, .rnr_retry = 7, .retry_cnt = 3, .timeout = 1,
};

/* ---- tools ---- */

UNUSED static uint32_t rnd(void)
{
	static uint64_t x = 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x >> 16;
}

UNUSED static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

/* What must come */
#define until(come) for (double end_ = now() + PATIENCE; !(come); usleep(20)) assert_true(now() < end_)

/* The next completion */
UNUSED static struct ibv_wc next_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc = {};
	int n;

	until((n = ibv_poll_cq(cq, 1, &wc)));
	assert_int_equal(n, 1);
	return wc;
}

UNUSED static struct ibv_wc expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next_wc(cq);

	if (wc.status != status)
		print_error("wr %d: %s, not %s\n", (int)wc.wr_id, ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.wr_id, wr_id);
	return wc;
}

UNUSED static struct ibv_wc expect_op(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = expect(cq, wr_id, IBV_WC_SUCCESS);

	assert_int_equal(wc.opcode, opcode);
	return wc;
}

UNUSED static void expect_nothing(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	usleep(5000);
	must(ibv_poll_cq(cq, 1, &wc));
}

/* The next asynchronous event of a kind, taken and acknowledged; what it is about */
UNUSED static void *expect_event(struct ibv_context *c, enum ibv_event_type type)
{
	struct ibv_async_event ev;
	void *about;

	assert_true(readable(c->async_fd, PATIENCE * 1000));
	must(ibv_get_async_event(c, &ev));
	if (ev.event_type != type)
		print_error("event %s, not %s\n", ibv_event_type_str(ev.event_type), ibv_event_type_str(type));
	assert_int_equal(ev.event_type, type);
	about = ev.element.qp;
	ibv_ack_async_event(&ev);
	return about;
}

UNUSED static bool is_roce(void)
{
	return port.link_layer == IBV_LINK_LAYER_ETHERNET;
}

/* ---- sides ---- */

UNUSED static struct ibv_qp_attr attr_for(enum ibv_qp_state state, uint32_t dest, const struct how *how)
{
	struct ibv_qp_attr a = {
		.qp_state = state, .cur_qp_state = IBV_QPS_RTS, .port_num = port_num, .qkey = QKEY, .qp_access_flags = how->qp_access,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = dest, .rq_psn = 0x123456, .sq_psn = 0x123456, .max_dest_rd_atomic = 16,
		.max_rd_atomic = 16, .min_rnr_timer = 1, .timeout = how->timeout, .retry_cnt = how->retry_cnt, .rnr_retry = how->rnr_retry,
		.ah_attr = { .port_num = port_num, .dlid = port.lid }, .path_mig_state = IBV_MIG_MIGRATED,
	};

	if (is_roce()) {
		a.ah_attr.is_global = 1;
		a.ah_attr.grh.dgid = gid;
		a.ah_attr.grh.sgid_index = sgid;
		a.ah_attr.grh.hop_limit = 64;
	}
	return a;
}

/* What the way up to a state requires of a QP of this type */
UNUSED static int mask_for(enum ibv_qp_type type, enum ibv_qp_state state)
{
	static const int masks[][3] = {
		[IBV_QPT_RC] = { INIT_MASK, RTR_MASK, RTS_MASK },
		[IBV_QPT_UC] = { INIT_MASK, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
				 IBV_QP_STATE | IBV_QP_SQ_PSN },
		[IBV_QPT_UD] = { IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, IBV_QP_STATE, IBV_QP_STATE | IBV_QP_SQ_PSN },
		[IBV_QPT_RAW_PACKET] = { IBV_QP_STATE | IBV_QP_PORT, IBV_QP_STATE, IBV_QP_STATE },
	};
	const int *mask = masks[type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV ? IBV_QPT_RC : type];

	return state >= IBV_QPS_INIT && state <= IBV_QPS_RTS ? mask[state - IBV_QPS_INIT] : IBV_QP_STATE;
}

UNUSED static int move(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t dest, const struct how *how)
{
	struct ibv_qp_attr a = attr_for(state, dest, how);

	return ibv_modify_qp(qp, &a, mask_for(qp->qp_type, state));
}

UNUSED static void bring_up(struct ibv_qp *qp, uint32_t dest, const struct how *how)
{
	for (enum ibv_qp_state to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++)
		must(move(qp, to, dest, how));
}

UNUSED static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	must(ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

UNUSED static void open_side(struct side *s, const struct how *how)
{
	struct ibv_qp_init_attr_ex init;

	s->buf = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(s->buf, MAP_FAILED);
	s->mr = made(ibv_reg_mr(pd, s->buf, SIZE, how->access));
	s->scq = how->cq ? how->cq : ibv_create_cq(ctx, how->cqe, s, how->channel, 0);
	s->rcq = how->cq ? how->cq : ibv_create_cq(ctx, how->cqe, s, how->channel, 0);
	assert_non_null(s->scq);
	assert_non_null(s->rcq);
	init = (struct ibv_qp_init_attr_ex){ .send_cq = s->scq, .recv_cq = s->rcq, .srq = how->srq, .cap = how->cap, .qp_type = how->type,
					     .sq_sig_all = how->sig_all, .pd = pd, .send_ops_flags = how->ops,
					     .create_flags = how->create,
					     .comp_mask = IBV_QP_INIT_ATTR_PD | (how->ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0) |
							  (how->create ? IBV_QP_INIT_ATTR_CREATE_FLAGS : 0) };
	s->qp = made(ibv_create_qp_ex(ctx, &init));
}

UNUSED static void open_pair(struct side s[2], const struct how *how)
{
	open_side(&s[0], how);
	open_side(&s[1], how);
	bring_up(s[0].qp, s[1].qp->qp_num, how);
	bring_up(s[1].qp, s[0].qp->qp_num, how);
}

/* A side that is its own peer */
UNUSED static void open_self(struct side *s, const struct how *how)
{
	open_side(s, how);
	bring_up(s->qp, s->qp->qp_num, how);
}

UNUSED static void close_side_but_cqs(struct side *s)
{
	must(ibv_destroy_qp(s->qp) || ibv_dereg_mr(s->mr));
	munmap(s->buf, SIZE);
}

UNUSED static void close_side(struct side *s)
{
	close_side_but_cqs(s);
	must(ibv_destroy_cq(s->scq));
	if (s->rcq != s->scq)
		must(ibv_destroy_cq(s->rcq));
}

UNUSED static void close_pair(struct side s[2])
{
	close_side(&s[0]);
	close_side(&s[1]);
}

UNUSED static struct ibv_sge sge(const struct side *s, size_t off, uint32_t len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)s->buf + off, .length = len, .lkey = s->mr->lkey };
}

UNUSED static int post_recv(struct side *s, uint64_t id, struct ibv_sge *sg, int n)
{
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = sg, .num_sge = n }, *bad;

	return ibv_post_recv(s->qp, &wr, &bad);
}

UNUSED static void recv_at(struct side *s, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sg = sge(s, off, len);

	must(post_recv(s, id, &sg, 1));
}

/* Where a write, a read or an atomic goes */
UNUSED static uint32_t *rkey_of(struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? &wr->wr.atomic.rkey : &wr->wr.rdma.rkey;
}

UNUSED static void aim(struct ibv_send_wr *wr, uint64_t addr, uint32_t rkey)
{
	wr->wr.rdma.remote_addr = addr; /* the atomics' lies there too */
	*rkey_of(wr) = rkey;
}

/* A request whose remote side is at offset roff of the other's buffer */
UNUSED static struct ibv_send_wr request(enum ibv_wr_opcode op, uint64_t id, struct ibv_sge *sg, int n, const struct side *to, size_t roff)
{
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = sg, .num_sge = n, .opcode = op, .send_flags = IBV_SEND_SIGNALED };

	aim(&wr, (uintptr_t)to->buf + roff, to->mr->rkey);
	return wr;
}

UNUSED static void post(struct side *s, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	must(ibv_post_send(s->qp, wr, &bad));
}

/* For the test functions; a function that tests call has its own */
UNUSED static struct side s[2];
UNUSED static struct ibv_send_wr wr;
UNUSED static struct ibv_sge sg;
UNUSED static struct ibv_wc wc;

UNUSED static struct ibv_send_wr first_to_second(enum ibv_wr_opcode op, uint64_t id, size_t off, uint32_t len, size_t roff)
{
	sg = sge(&s[0], off, len);
	return request(op, id, &sg, 1, &s[1], roff);
}

UNUSED static void open_request(const struct how *how, enum ibv_wr_opcode op, uint64_t id, uint32_t len, size_t roff)
{
	open_pair(s, how);
	wr = first_to_second(op, id, 0, len, roff);
}

/* A new pair on the same QPs */
UNUSED static void reconnect(struct side s[2], const struct how *how)
{
	must(move(s[0].qp, IBV_QPS_RESET, 0, how));
	must(move(s[1].qp, IBV_QPS_RESET, 0, how));
	bring_up(s[0].qp, s[1].qp->qp_num, how);
	bring_up(s[1].qp, s[0].qp->qp_num, how);
}

UNUSED static struct how how_of_type(enum ibv_qp_type type)
{
	struct how how = usual;

	how.type = type;
	if (type == IBV_QPT_UC)
		how.qp_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	return how;
}

/* The way to the port itself, by the GID in use, or on InfiniBand by its LID alone */
UNUSED static struct ibv_ah *own_ah(void)
{
	struct ibv_qp_attr a = attr_for(IBV_QPS_RTR, 0, &usual);
	struct ibv_ah *ah = ibv_create_ah(pd, &a.ah_attr);

	assert_non_null(ah);
	return ah;
}

/* A request to the second of a pair; datagrams go by ah */
UNUSED static void address(struct ibv_send_wr *wr, struct ibv_ah *ah, uint32_t qpn)
{
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = QKEY;
}

/* The next event of a channel is this CQ's */
UNUSED static void expect_cq_event(struct ibv_comp_channel *ch, const struct ibv_cq *cq)
{
	struct ibv_cq *of;
	void *arg;

	assert_true(readable(ch->fd, PATIENCE * 1000));
	must(ibv_get_cq_event(ch, &of, &arg));
	assert_ptr_equal(of, cq);
	ibv_ack_cq_events(of, 1);
}

/* Posts one signaled request, which succeeds */
UNUSED static struct ibv_wc post_done(struct side *s, struct ibv_send_wr *wr)
{
	static const enum ibv_wc_opcode opcode[] = {
		[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE, [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE, [IBV_WR_SEND] = IBV_WC_SEND,
		[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND, [IBV_WR_SEND_WITH_INV] = IBV_WC_SEND, [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
		[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP, [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	};

	post(s, wr);
	return expect_op(s->scq, wr->wr_id, opcode[wr->opcode]);
}

/* ---- messages, and whether each byte of them came where it should, and none elsewhere ---- */

UNUSED static void moves(struct side s[2], enum ibv_wr_opcode op, uint32_t len)
{
	bool read = op == IBV_WR_RDMA_READ, send = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM,
	     imm = op == IBV_WR_RDMA_WRITE_WITH_IMM || op == IBV_WR_SEND_WITH_IMM;
	struct side *from = &s[read], *to = &s[!read];
	struct ibv_sge sg = sge(&s[0], read ? 64 : 8, len);
	struct ibv_send_wr wr = request(op, 7, &sg, 1, &s[1], read ? 8 : 64);
	struct ibv_wc wc;

	fill(from->buf, SIZE, len);
	memset(to->buf, 0xaa, SIZE);
	wr.imm_data = htobe32(0x11223344);
	if (send || imm)
		recv_at(&s[1], 9, send ? 64 : HALF + 4096, send ? len + 1 : 16);
	wc = post_done(&s[0], &wr);
	if (read)
		assert_int_equal(wc.byte_len, len);
	if (send || imm) {
		wc = expect_op(s[1].rcq, 9, send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
		assert_int_equal(!!(wc.wc_flags & IBV_WC_WITH_IMM), imm);
		assert_true(!imm || be32toh(wc.imm_data) == 0x11223344);
		assert_int_equal(wc.byte_len, len);
		assert_int_equal(wc.qp_num, s[1].qp->qp_num);
	}
	assert_memory_equal(to->buf + 64, from->buf + 8, len);
	assert_true(all_bytes(to->buf, 64, 0xaa) && all_bytes(to->buf + 64 + len, SIZE - 64 - len, 0xaa));
}

UNUSED static void writes(struct side s[2], uint32_t len, bool imm)
{
	moves(s, imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, len);
}

UNUSED static void sends(struct side s[2], uint32_t len, bool imm)
{
	moves(s, imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, len);
}

UNUSED static void reads(struct side s[2], uint32_t len)
{
	moves(s, IBV_WR_RDMA_READ, len);
}

/* ---- the group ---- */

UNUSED static int setup(UNUSED void **state)
{
	const char *name = getenv("INLAY_TEST_DEVICE");
	struct ibv_device *first;
	int n, at = 0;

	list = ibv_get_device_list(&n);
	while (list && name && *name && at < n && strcmp(ibv_get_device_name(list[at]), name))
		at++;
	if (!list || at >= n)
		return -1;
	/* The one that is meant comes first */
	first = list[at];
	list[at] = list[0];
	list[0] = first;
	ctx = ibv_open_device(list[0]);
	if (!ctx || ibv_query_port(ctx, 1, &port))
		return -1;
	sgid = is_roce() ? 3 : 0;
	pd = ibv_alloc_pd(ctx);
	return !pd || ibv_query_gid(ctx, 1, sgid, &gid);
}

UNUSED static int teardown(UNUSED void **state)
{
	if (ibv_dealloc_pd(pd) || ibv_close_device(ctx))
		return -1;
	ibv_free_device_list(list);
	return 0;
}

/* With the way to the port itself */
UNUSED static struct ibv_ah *ah;

UNUSED static int setup_ah(void **state)
{
	if (setup(state))
		return -1;
	ah = own_ah();
	return 0;
}

UNUSED static int teardown_ah(void **state)
{
	return ibv_destroy_ah(ah) || teardown(state);
}

/* Several devices, or several ports; the first is in ctx, pd and port */
UNUSED static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_port_attr port;
	uint8_t port_num;
} devices[3];

UNUSED static void at_device(int i)
{
	ctx = devices[i].ctx;
	pd = devices[i].pd;
	port = devices[i].port;
	port_num = devices[i].port_num;
}

UNUSED static int open_devices(UNUSED void **state)
{
	int n, ports = getenv("SOFTDEV_PORTS") ? atoi(getenv("SOFTDEV_PORTS")) : 1;

	list = ibv_get_device_list(&n);
	if (!list || n != atoi(getenv("SOFTDEV_DEVICES")))
		return -1;
	for (int i = 0; i < n * ports && i < (int)ARRAY(devices); i++) {
		devices[i].port_num = i % ports + 1;
		if (!(devices[i].ctx = ibv_open_device(list[i / ports])) ||
		    ibv_query_port(devices[i].ctx, devices[i].port_num, &devices[i].port) || !(devices[i].pd = ibv_alloc_pd(devices[i].ctx)))
			return -1;
	}
	at_device(0);
	sgid = is_roce() ? 3 : 0;
	return 0;
}

UNUSED static int close_devices(UNUSED void **state)
{
	for (unsigned i = 0; i < ARRAY(devices) && devices[i].ctx; i++)
		if (ibv_dealloc_pd(devices[i].pd) || ibv_close_device(devices[i].ctx))
			return -1;
	ibv_free_device_list(list);
	return 0;
}

/* ---- a second process: this program again, with arguments of its own. Its standard input and output are pipes to the first ---- */

struct card {
	uint32_t qpn, rkey;
	uint64_t addr;
};

UNUSED static struct card card_of(const struct side *s)
{
	return (struct card){ .qpn = s->qp->qp_num, .rkey = s->mr->rkey, .addr = (uintptr_t)s->buf };
}

struct peer {
	pid_t pid;
	int in, out;
};

UNUSED static const struct peer first_process = { .in = 0, .out = 1 };

UNUSED static struct peer start_peer(const char *what, const char *how)
{
	int in[2], out[2];
	struct peer p;

	must(pipe2(in, O_CLOEXEC));
	must(pipe2(out, O_CLOEXEC));
	fflush(NULL);
	p = (struct peer){ .pid = fork(), .in = in[0], .out = out[1] };
	assert_true(p.pid >= 0);
	if (!p.pid) {
		dup2(out[0], 0);
		dup2(in[1], 1);
		execl("/proc/self/exe", "peer", what, how, NULL);
		_exit(127);
	}
	close(out[0]);
	close(in[1]);
	return p;
}

/* The status with which it ended */
UNUSED static int end_peer(struct peer *p)
{
	int status;

	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	close(p->in);
	close(p->out);
	return status;
}

UNUSED static void tell(const struct peer *p)
{
	assert_int_equal(write(p->out, "!", 1), 1);
}

UNUSED static void hear(const struct peer *p)
{
	char c;

	assert_true(readable(p->in, PATIENCE * 1000));
	assert_int_equal(read(p->in, &c, 1), 1);
}

UNUSED static struct card exchange(const struct peer *p, struct card ours)
{
	struct card theirs;

	assert_int_equal(write(p->out, &ours, sizeof(ours)), sizeof(ours));
	assert_true(readable(p->in, PATIENCE * 1000));
	assert_int_equal(read(p->in, &theirs, sizeof(theirs)), sizeof(theirs));
	return theirs;
}

/* A side that is connected to one of another process */
UNUSED static struct card open_remote(const struct peer *p, struct side *s, const struct how *how)
{
	struct card theirs;

	open_side(s, how);
	theirs = exchange(p, card_of(s));
	bring_up(s->qp, theirs.qpn, how);
	return theirs;
}

/* Once more in a process of its own, with one variable of the environment set, which is read when a device is opened */
UNUSED static int again_with(const char *name, const char *value)
{
	int status;
	pid_t pid;

	if (!softdev_present() || getenv(name))
		return 0;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		setenv(name, value, 1);
		execl("/proc/self/exe", "again", NULL);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

#endif
