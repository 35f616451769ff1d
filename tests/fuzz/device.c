/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.c: hostile programs on the software device, which is stepped. They put WQEs of every kind into
 * the rings of two queue pairs, and issue uverbs commands, device commands and commands of the connection
 * manager with any attributes and lengths. For libFuzzer (make fuzz).
 *
 * All of the program's memory is one mapping. A pointer to anywhere else fails with EFAULT, as a pointer to an
 * unmapped page does in the kernel. A sanitizer sees what the device copies beyond its own memory.
 *
 * The input is one byte, then steps. Bits 0-2 of that byte are the type of the queue pairs
 * (device_types), bit 3 asks for an SRQ. A step is a byte that says which, and its arguments.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "fuzz.h"
#include "../softdev/engine/eng.h"
#include "../softdev/host/host.h"
#include "../softdev/softdev.h"
#include <rdma/rdma_user_cm.h>

#define DEVICE_BASE 0x10000000u
#define DEVICE_MEMORY 0x10000u
#define DEVICE_CQ 0x0u            /* offsets: rings and records */
#define DEVICE_RECORDS 0x1000u
#define DEVICE_QP 0x2000u         /* each 0x2000 bytes: receives, then sends from 0x400 on */
#define DEVICE_SRQ 0x6000u
#define DEVICE_FRAME 0x7000u      /* of an ioctl; what it points to follows */
#define DEVICE_IN 0x8000u
#define DEVICE_OUT 0x9000u
#define DEVICE_DATA 0xb000u
#define DEVICE_HANDLES 32u
#define DEVICE_BBS 64u

enum { DEVICE_DRIVER = 0x1000, DEVICE_DC_KEY = 77, DEVICE_QKEY = 0x11111111 };

static const struct {
	uint8_t ours, peers;            /* enum ib_uverbs_qp_type */
} device_types[8] = {
	{IB_UVERBS_QPT_RC, IB_UVERBS_QPT_RC}, {IB_UVERBS_QPT_UC, IB_UVERBS_QPT_UC}, {IB_UVERBS_QPT_UD, IB_UVERBS_QPT_UD},
	{IB_UVERBS_QPT_RAW_PACKET, IB_UVERBS_QPT_RAW_PACKET},
	{IB_UVERBS_QPT_DRIVER, IB_UVERBS_QPT_DRIVER}, /* DCI and DCT */
	{IB_UVERBS_QPT_XRC_INI, IB_UVERBS_QPT_XRC_TGT},
	{IB_UVERBS_QPT_RC, IB_UVERBS_QPT_RC}, /* with tag matching; the first is for list operations */
	{IB_UVERBS_QPT_RC, IB_UVERBS_QPT_RC},
};

static struct {
	uint8_t *memory;
	struct sd_ctx *ctx;
	int fd, cm;
	uint32_t pd, cq, srq, xrcd, uar_page, lkey, rkey, srqn, pdn, cqn;
	uint32_t qps[2], qpns[2], pi[2], received[2];
	uint32_t handles[DEVICE_HANDLES], num;
	uint32_t type;
	uint32_t in;                    /* bytes taken of what a command points to */
} host;

/* ---- The program's memory ---- */

static int device_inside(const struct iovec *v)
{
	const uint64_t at = (uintptr_t)v->iov_base;

	return at >= DEVICE_BASE && at <= DEVICE_BASE + DEVICE_MEMORY && v->iov_len <= DEVICE_BASE + DEVICE_MEMORY - at;
}

#define DEVICE_VM(name, to, from)                                                                                                     \
	ssize_t name(pid_t pid, const struct iovec *here, unsigned long a, const struct iovec *there, unsigned long b,                  \
		     unsigned long flags)                                                                                              \
	{                                                                                                                              \
		sure(pid && a == 1 && b == 1 && !flags && here->iov_len == there->iov_len);                                            \
		if (!device_inside(there))                                                                                             \
			return errno = EFAULT, -1;                                                                                     \
		memmove((to)->iov_base, (from)->iov_base, there->iov_len);                                                             \
		return (ssize_t)there->iov_len;                                                                                        \
	}

DEVICE_VM(device_vm_readv, here, there)
DEVICE_VM(device_vm_writev, there, here)

/* What the engine copies has been checked when it was registered: it must be there. */
long device_syscall(long number, ...)
{
	const int to = number == SYS_process_vm_writev;
	struct iovec v[2], *list[2];    /* the device's, the program's */
	unsigned long n[2];
	long done = 0, part;
	va_list ap;

	sure(to || number == SYS_process_vm_readv);
	va_start(ap, number);
	(void)va_arg(ap, long);
	for (int i = 0; i < 2; i++) {
		list[i] = va_arg(ap, struct iovec *);
		n[i] = va_arg(ap, unsigned long);
		v[i].iov_len = 0;
	}
	va_end(ap);
	for (;; done += part) {
		for (int i = 0; i < 2; i++)
			while (!v[i].iov_len) {
				if (!n[i]--)
					return done;
				v[i] = *list[i]++;
			}
		part = (long)(v[0].iov_len < v[1].iov_len ? v[0].iov_len : v[1].iov_len);
		memmove(v[to].iov_base, v[!to].iov_base, (size_t)part);
		for (int i = 0; i < 2; i++) {
			v[i].iov_base = (uint8_t *)v[i].iov_base + part;
			v[i].iov_len -= (size_t)part;
		}
	}
}

/* /proc/self/maps: there is nothing else. */
FILE *device_fopen(const char *path, const char *mode)
{
	static char map[] = "10000000-10010000 rw-p 00000000 00:00 0\n";

	(void)mode;
	sure(!strcmp(path, "/proc/self/maps"));
	return fmemopen(map, sizeof(map) - 1, "r");
}

/* ---- Commands ---- */

static struct ib_uverbs_ioctl_hdr *device_frame(void)
{
	return (struct ib_uverbs_ioctl_hdr *)(void *)(host.memory + DEVICE_FRAME);
}

static void device_start(uint32_t object, uint32_t method)
{
	struct ib_uverbs_ioctl_hdr *h = device_frame();

	memset(h, 0, sizeof(*h));
	h->object_id = (uint16_t)object;
	h->method_id = (uint16_t)method;
	h->driver_id = RDMA_DRIVER_MLX5;
	host.in = 0;
}

static struct ib_uverbs_attr *device_attr(uint32_t id, uint32_t len, uint64_t data)
{
	struct ib_uverbs_ioctl_hdr *h = device_frame();
	struct ib_uverbs_attr *a = &h->attrs[h->num_attrs++];

	memset(a, 0, sizeof(*a));
	a->attr_id = (uint16_t)id;
	a->len = (uint16_t)len;
	a->flags = UVERBS_ATTR_F_MANDATORY;
	a->data = data;
	return a;
}

/* Bytes for a command: in the attribute if there are at most 8 of them */
static void device_attr_in(uint32_t id, const void *bytes, uint32_t len)
{
	uint64_t data = DEVICE_BASE + DEVICE_IN + host.in;

	sure(host.in + len <= DEVICE_OUT - DEVICE_IN);
	memcpy(host.memory + DEVICE_IN + host.in, bytes, len);
	if (len <= 8) {
		data = 0;
		memcpy(&data, bytes, len);
	}
	host.in += (len + 7) / 8 * 8;
	device_attr(id, len, data);
}

static int device_run(void)
{
	struct ib_uverbs_ioctl_hdr *h = device_frame();

	h->length = (uint16_t)(sizeof(*h) + h->num_attrs * sizeof(h->attrs[0]));
	return sd_ioctl(host.ctx, h, false);
}

/* A write command. Returns the first word of the answer. */
static uint32_t device_write(uint32_t command, const void *in, uint32_t len)
{
	uint32_t answer;

	device_start(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	device_attr(UVERBS_ATTR_WRITE_CMD, 8, command);
	device_attr_in(UVERBS_ATTR_CORE_IN, in, len);
	device_attr(UVERBS_ATTR_CORE_OUT, 128, DEVICE_BASE + DEVICE_OUT);
	sure(!device_run());
	memcpy(&answer, host.memory + DEVICE_OUT, 4);
	return answer;
}

static void device_keep(uint32_t handle)
{
	host.handles[host.num++ % DEVICE_HANDLES] = handle;
}

/* ---- What is there before the first step ---- */

static void device_context(void)
{
	struct mlx5_ib_alloc_ucontext_req_v2 req = {
		.max_cqe_version = 1, .lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
		.flags = MLX5_IB_ALLOC_UCTX_DEVX,
	};
	struct ib_uverbs_reg_mr mr = {
		.start = DEVICE_BASE, .length = DEVICE_MEMORY, .hca_va = DEVICE_BASE,
		.access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	};
	struct ib_uverbs_alloc_pd pd = {.response = 0};
	void *ctx;

	sure(!sd_start());
	host.fd = sd_ctx_open(0, true);
	sure(host.fd >= 0 && sd_fd_get(host.fd, &ctx) == SD_FD_CMD);
	host.ctx = (struct sd_ctx *)ctx;
	device_start(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
	device_attr_in(UVERBS_ATTR_UHW_IN, &req, sizeof(req));
	device_attr(UVERBS_ATTR_UHW_OUT, sizeof(struct mlx5_ib_alloc_ucontext_resp), DEVICE_BASE + DEVICE_OUT);
	sure(!device_run());
	device_start(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
	device_attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0, 0);
	device_attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 8, 0);
	device_attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, 8, DEVICE_BASE + DEVICE_OUT);
	device_attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, 4, DEVICE_BASE + DEVICE_OUT + 8);
	device_attr(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, 4, DEVICE_BASE + DEVICE_OUT + 16);
	sure(!device_run());
	memcpy(&host.uar_page, host.memory + DEVICE_OUT + 16, 4);
	device_keep((uint32_t)device_frame()->attrs[0].data);
	host.pd = device_write(IB_USER_VERBS_CMD_ALLOC_PD, &pd, sizeof(pd));
	host.pdn = ((struct sd_pd *)sd_handle_get(host.ctx, SD_PD, host.pd))->pdn;
	mr.pd_handle = host.pd;
	device_keep(device_write(IB_USER_VERBS_CMD_REG_MR, &mr, sizeof(mr)));
	memcpy(&host.lkey, host.memory + DEVICE_OUT + 4, 4);
	memcpy(&host.rkey, host.memory + DEVICE_OUT + 8, 4);
}

/* tags: 1: the SRQ matches tags, -1: it is for XRC */
static void device_queues(int tags)
{
	const uint32_t records = DEVICE_BASE + DEVICE_RECORDS, out = DEVICE_BASE + DEVICE_OUT;
	struct mlx5_ib_create_cq cq = {
		.buf_addr = DEVICE_BASE + DEVICE_CQ, .db_addr = records, .cqe_size = 64,
		.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX, .uar_page_index = (uint16_t)host.uar_page,
	};
	struct mlx5_ib_create_srq srq = {.buf_addr = DEVICE_BASE + DEVICE_SRQ, .db_addr = records + 8};
	struct ib_uverbs_open_xrcd xrcd = {.fd = (uint32_t)-1, .oflags = O_CREAT};
	const uint64_t type = tags < 0 ? IB_UVERBS_SRQT_XRC : tags ? IB_UVERBS_SRQT_TM : IB_UVERBS_SRQT_BASIC;

	device_start(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
	device_attr(UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0);
	device_attr(UVERBS_ATTR_CREATE_CQ_CQE, 4, 63);
	device_attr(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, 1);
	device_attr_in(UVERBS_ATTR_UHW_IN, &cq, sizeof(cq));
	device_attr(UVERBS_ATTR_UHW_OUT, sizeof(struct mlx5_ib_create_cq_resp), out);
	device_attr(UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, out + 64);
	sure(!device_run());
	host.cq = (uint32_t)device_frame()->attrs[0].data;
	host.cqn = ((struct sd_cq *)sd_handle_get(host.ctx, SD_CQ, host.cq))->cqn;
	host.xrcd = device_write(IB_USER_VERBS_CMD_OPEN_XRCD, &xrcd, sizeof(xrcd));
	device_start(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);
	device_attr(UVERBS_ATTR_CREATE_SRQ_HANDLE, 0, 0);
	device_attr(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, 0, host.pd);
	device_attr(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 8, 2);
	device_attr(UVERBS_ATTR_CREATE_SRQ_MAX_WR, 4, 15);
	device_attr(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 4, 3);
	device_attr(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, 0, host.cq);
	device_attr(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, 0, host.xrcd);
	device_attr(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, 4, 15);
	device_attr(UVERBS_ATTR_CREATE_SRQ_TYPE, 8, type);
	device_attr_in(UVERBS_ATTR_UHW_IN, &srq, sizeof(srq));
	device_attr(UVERBS_ATTR_UHW_OUT, 8, out);
	device_attr(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, 4, out + 16);
	device_attr(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, 4, out + 20);
	device_attr(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, 4, out + 24);
	sure(!device_run());
	host.srq = (uint32_t)device_frame()->attrs[0].data;
	memcpy(&host.srqn, host.memory + DEVICE_OUT, 4);
}

static void device_pair(uint32_t i, uint32_t type, int shared)
{
	const uint64_t at = DEVICE_BASE + DEVICE_QP * (i + 1), out = DEVICE_BASE + DEVICE_OUT;
	const int target = i && type == IB_UVERBS_QPT_DRIVER;
	const int xrc = type == IB_UVERBS_QPT_XRC_TGT, ini = type == IB_UVERBS_QPT_XRC_INI;
	const int own = !target && !xrc, receives = own && !ini && type != IB_UVERBS_QPT_DRIVER && !shared;
	struct ib_uverbs_qp_cap cap = {};
	struct mlx5_ib_create_qp qp = {};

	if (own) {
		cap.max_send_wr = 16;
		cap.max_send_sge = 1;
		qp.buf_addr = at + (receives ? 0 : 0x400);
		qp.db_addr = DEVICE_BASE + DEVICE_RECORDS + 0x40 * (i + 1);
		qp.sq_wqe_count = DEVICE_BBS;
		qp.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX;
		qp.bfreg_index = host.uar_page;
	}
	if (receives) {
		cap.max_recv_wr = qp.rq_wqe_count = 16;
		cap.max_recv_sge = 1;
		qp.rq_wqe_shift = 6;
	}
	if (type == IB_UVERBS_QPT_RAW_PACKET)
		qp.sq_buf_addr = at + 0x400;
	if (type == IB_UVERBS_QPT_RC)
		qp.flags |= MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE;
	if (type == IB_UVERBS_QPT_DRIVER)
		qp.flags |= target ? MLX5_QP_FLAG_TYPE_DCT : MLX5_QP_FLAG_TYPE_DCI;
	if (target)
		qp.access_key = DEVICE_DC_KEY;
	device_start(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
	device_attr(UVERBS_ATTR_CREATE_QP_HANDLE, 0, 0);
	device_attr(UVERBS_ATTR_CREATE_QP_USER_HANDLE, 8, 3);
	device_attr(UVERBS_ATTR_CREATE_QP_TYPE, 8, type);
	device_attr_in(UVERBS_ATTR_CREATE_QP_CAP, &cap, sizeof(cap));
	device_attr_in(UVERBS_ATTR_UHW_IN, &qp, sizeof(qp));
	device_attr(UVERBS_ATTR_UHW_OUT, sizeof(struct mlx5_ib_create_qp_resp), out);
	device_attr(UVERBS_ATTR_CREATE_QP_RESP_CAP, sizeof(cap), out + 64);
	device_attr(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4, out + 128);
	if (xrc) {
		device_attr(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, 0, host.xrcd);
	} else {
		device_attr(UVERBS_ATTR_CREATE_QP_PD_HANDLE, 0, host.pd);
		device_attr(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, 0, host.cq);
		if (!ini)
			device_attr(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, 0, host.cq);
	}
	if (shared || target)
		device_attr(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, 0, host.srq);
	sure(!device_run());
	host.qps[i] = (uint32_t)device_frame()->attrs[0].data;
	memcpy(&host.qpns[i], host.memory + DEVICE_OUT + 128, 4);
}

/* The next state up, with what that takes of this type */
static void device_move(uint32_t i, uint32_t type, uint32_t to, enum ibv_qp_state state)
{
	const int connected = type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_UC || type == IB_UVERBS_QPT_XRC_INI ||
			      type == IB_UVERBS_QPT_XRC_TGT;
	const int dc = type == IB_UVERBS_QPT_DRIVER, target = dc && i, raw = type == IB_UVERBS_QPT_RAW_PACKET;
	const int responds = type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_XRC_TGT;
	const int requests = type == IB_UVERBS_QPT_RC || type == IB_UVERBS_QPT_XRC_INI || dc;
	struct ib_uverbs_modify_qp m = {
		.qp_handle = host.qps[i], .qp_state = (uint8_t)state, .qkey = DEVICE_QKEY, .port_num = 1, .path_mtu = IBV_MTU_1024,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				   (type == IB_UVERBS_QPT_UC ? 0 : IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC),
		.dest_qp_num = to, .max_rd_atomic = 4, .max_dest_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 1, .retry_cnt = 1,
		.rnr_retry = 1, .dest = {.port_num = 1, .is_global = 1, .sgid_index = 3, .hop_limit = 1},
	};
	union ibv_gid gid;
	int mask = 0;

	sure(!sd_gid(0, 3, &gid, &(unsigned){0}));
	memcpy(m.dest.dgid, &gid, 16);
	if (state == IBV_QPS_INIT)
		mask = IBV_QP_PORT | (raw ? 0 : IBV_QP_PKEY_INDEX) | (connected || target ? IBV_QP_ACCESS_FLAGS : 0) |
		       (type == IB_UVERBS_QPT_UD ? IBV_QP_QKEY : 0);
	else if (state == IBV_QPS_RTR && connected)
		mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       (responds ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	else if (state == IBV_QPS_RTR && dc)
		mask = IBV_QP_PATH_MTU | (target ? IBV_QP_AV | IBV_QP_MIN_RNR_TIMER : 0);
	else if (state == IBV_QPS_RTS && !raw)
		mask = IBV_QP_SQ_PSN | (requests || responds ? IBV_QP_TIMEOUT : 0) |
		       (requests ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0);
	m.attr_mask = (uint32_t)(IBV_QP_STATE | mask);
	device_write(IB_USER_VERBS_CMD_MODIFY_QP, &m, offsetof(struct ib_uverbs_modify_qp, driver_data));
	if (target && state == IBV_QPS_RTR)
		memcpy(&host.qpns[1], host.memory + DEVICE_OUT + offsetof(struct mlx5_ib_modify_qp_resp, dctn), 4);
}

/* ---- WQEs ---- */

static void device_be32(uint8_t *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, 4);
}

static void device_be64(uint8_t *at, uint64_t value)
{
	value = htobe64(value);
	memcpy(at, &value, 8);
}

/* A segment of a kind, at most `room` units of 16 bytes. Returns how many it has. */
static uint32_t device_segment(struct fuzz_in *in, uint8_t *at, uint32_t room)
{
	const uint32_t kind = fuzz_8(in), more = kind >> 4;
	union ibv_gid gid;
	uint32_t n;

	switch (kind & 15) {
	case 0: /* data */
	case 1:
		device_be32(at, fuzz_16(in) >> (more & 7));
		device_be32(at + 4, more & 8 ? host.lkey ^ 1 : host.lkey);
		device_be64(at + 8, DEVICE_BASE + DEVICE_DATA + fuzz_16(in) % 0x5000);
		return 1;
	case 2: /* a remote address */
	case 3:
		device_be64(at, DEVICE_BASE + DEVICE_DATA + (fuzz_16(in) % 0x5000 & ~(more & 7)));
		device_be32(at + 8, more & 8 ? host.rkey ^ 1 : host.rkey);
		return 1;
	case 4: /* inline */
		n = fuzz_8(in);
		if (n + 4 > 16 * room)
			n = 16 * room - 4;
		device_be32(at, 0x80000000 | n);
		fuzz_bytes(in, at + 4, n);
		return (n + 4 + 15) / 16;
	case 5: /* an address vector */
		if (room < 3)
			return 1;
		device_be32(at, host.type == IB_UVERBS_QPT_DRIVER ? 0 : DEVICE_QKEY);
		device_be32(at + 4, host.type == IB_UVERBS_QPT_DRIVER ? DEVICE_DC_KEY : 0);
		device_be32(at + 8, 1u << 31 | host.qpns[more & 1 ? 0 : 1]);
		sure(!sd_gid(0, 3, &gid, &(unsigned){0}));
		memcpy(at + 32, &gid, 16);
		sd_port_mac(0, at + 20);
		at[27] = 1;
		return 3;
	case 6: /* an SRQ's number */
		device_be32(at, host.srqn);
		return 1;
	case 7: /* a handful of keys and numbers where commands and UMRs have them */
		device_be32(at + 4 * (more & 3), more & 4 ? host.lkey : more & 8 ? host.qpns[1] : host.rkey);
		return 1;
	case 8:
		fuzz_bytes(in, at, 16);
		return 1;
	case 9:
		n = more + 1 < room ? more + 1 : room;
		fuzz_bytes(in, at, 16 * n);
		return n;
	case 10:
		memset(at, (int)(more * 17), 16);
		return 1;
	default:
		device_be32(at + 4 * (more & 3), fuzz_8(in));
		return 1;
	}
}

static void device_wqe(struct fuzz_in *in, uint32_t i)
{
	static const uint8_t ops[] = {0x00, 0x05, 0x08, 0x09, 0x0a, 0x0b, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13,
				      0x14, 0x15, 0x17, 0x18, 0x1f, 0x20, 0x22, 0x23, 0x25, 0x28, 0x29, 0x2d};
	uint32_t op = fuzz_8(in), flags = fuzz_8(in), n = fuzz_8(in) & 63, ds = 1, b;
	uint8_t wqe[1024], *ring = host.memory + DEVICE_QP * (i + 1) + 0x400;

	memset(wqe, 0, sizeof(wqe));
	op = op & 0x80 ? op & 0x7f : ops[op % sizeof(ops)];
	device_be32(wqe, (flags & 0x11 ? 0 : fuzz_8(in)) << 24 | (host.pi[i] & 0xffff) << 8 | op);
	wqe[11] = (uint8_t)(flags & 0xee);
	device_be32(wqe + 12, flags & 0x10 ? host.rkey : fuzz_8(in));
	while (ds < n && in->at < in->end)
		ds += device_segment(in, wqe + 16 * ds, n - ds);
	device_be32(wqe + 4, host.qpns[i] << 8 | (flags & 1 && !(flags & 0x10) ? fuzz_8(in) & 63 : ds));
	if (flags & 1)
		fuzz_spoil(in, wqe, 16 * ds);
	for (b = 0; b < (ds + 3) / 4; b++)
		memcpy(ring + 64 * ((host.pi[i] + b) % DEVICE_BBS), wqe + 64 * b, 64);
	host.pi[i] += b;
}

static void device_ring(struct fuzz_in *in, uint32_t how)
{
	const uint32_t i = how & 1, n = how >> 1 & 7;
	uint8_t *record = host.memory + DEVICE_RECORDS + 0x40 * (i + 1);

	device_be32(record + 4, how & 0x40 ? fuzz_16(in) : host.pi[i] & 0xffff);
	if (how & 0x10)
		softdev_execute(host.qpns[i], n);
	else
		softdev_execute(0, 1 + 16 * n);
	if (!(how & 0x20))
		softdev_complete(0, 64);
	if (how & 0x80)
		device_be32(host.memory + DEVICE_RECORDS, fuzz_16(in)); /* CQEs that were taken */
}

static void device_receive(struct fuzz_in *in, uint32_t i, int shared)
{
	const uint32_t stride = 64, at = shared ? DEVICE_SRQ : DEVICE_QP * (i + 1), slot = host.received[i] & 15;
	uint8_t *wqe = host.memory + at + stride * slot;
	uint32_t units = 1 + (fuzz_8(in) & 3), k;

	memset(wqe, 0, stride);
	if (shared)
		wqe[3] = (uint8_t)((slot + 1) & 15);
	for (k = (uint32_t)shared; k < units; k++)
		device_segment(in, wqe + 16 * k, 1);
	if (k < 4)
		device_be32(wqe + 16 * k + 4, 0x100);
	host.received[i]++;
	device_be32(host.memory + DEVICE_RECORDS + (shared ? 8 : 0x40 * (i + 1)), host.received[i] & 0xffff);
}

/* ---- Any command ---- */

/* What a command may want to find in its input, at some offset, in either byte order */
static uint64_t device_known(uint32_t what, uint32_t more)
{
	switch (what & 15) {
	case 0: return DEVICE_BASE + DEVICE_DATA + 64 * more;
	case 1: return DEVICE_BASE + DEVICE_OUT + more;
	case 2: return DEVICE_BASE + DEVICE_RECORDS + 0x100 + 8 * more;
	case 3: return host.pd;
	case 4: return host.cq;
	case 5: return host.qps[more & 1];
	case 6: return host.srq;
	case 7: return host.uar_page;
	case 8: return host.lkey;
	case 9: return host.rkey;
	case 10: return host.qpns[more & 1];
	case 11: return host.srqn;
	case 12: return host.handles[more % DEVICE_HANDLES];
	case 13: return host.pdn;
	case 14: return more;
	default: return more & 1 ? host.xrcd : host.cqn;
	}
}

static void device_patch(struct fuzz_in *in, uint8_t *at, uint32_t len)
{
	uint32_t n = fuzz_8(in), what, offset, bytes;
	uint64_t value;

	for (n &= 15; n && in->at < in->end; n--) {
		offset = fuzz_8(in) * 4;
		what = fuzz_8(in);
		value = device_known(what, fuzz_8(in));
		bytes = what & 16 ? 8 : 4;
		if (offset + bytes > len)
			continue;
		if (what & 32)
			value = bytes == 8 ? htobe64(value) : htobe32((uint32_t)value);
		memcpy(at + offset, &value, bytes);
	}
}

/* Input: a byte: how many words; the words; what is put over them */
static uint32_t device_payload(struct fuzz_in *in)
{
	uint32_t len = fuzz_8(in) * 4;

	if (host.in + len > DEVICE_OUT - DEVICE_IN)
		len = 0;
	fuzz_bytes(in, host.memory + DEVICE_IN + host.in, len);
	device_patch(in, host.memory + DEVICE_IN + host.in, len);
	return len;
}

/* In the driver's name space or the core's */
static uint32_t device_id(uint32_t id, uint32_t mask)
{
	return (id & 0x80 ? DEVICE_DRIVER : 0) | (id & mask);
}

static void device_attr_any(struct fuzz_in *in)
{
	const uint32_t id = fuzz_8(in), form = fuzz_8(in);
	uint32_t len;
	uint64_t data = 0;

	switch (form & 7) {
	case 0: /* nothing, to be answered with a handle */
		len = 0;
		break;
	case 1:
		len = 0;
		data = device_known(form >> 4, fuzz_8(in));
		break;
	case 2:
		len = 8 >> (form >> 3 & 1);
		data = device_known(form >> 4, fuzz_8(in));
		break;
	case 3: /* room for an answer */
		len = fuzz_8(in) * (form & 8 ? 16 : 1);
		data = DEVICE_BASE + DEVICE_OUT + fuzz_8(in) * 16;
		break;
	case 4: /* not all of it is there */
		len = fuzz_16(in);
		data = form & 8 ? 8 : DEVICE_BASE + DEVICE_MEMORY - 16 * (form >> 4);
		break;
	case 5:
		len = fuzz_8(in);
		fuzz_bytes(in, (uint8_t *)&data, 8);
		break;
	default:
		data = DEVICE_BASE + DEVICE_IN + host.in;
		len = device_payload(in);
		if (len <= 8)
			memcpy(&data, host.memory + DEVICE_IN + host.in, 8);
		host.in += (len + 7) / 8 * 8;
	}
	device_attr(device_id(id, 0x3f), len, data)->flags = id & 0x40 ? 0 : UVERBS_ATTR_F_MANDATORY;
}

/* What it answers with is kept: handles, and a number */
static void device_go(void)
{
	struct ib_uverbs_ioctl_hdr *h = device_frame();
	uint32_t i, number;

	if (device_run())
		return;
	for (i = 0; i < h->num_attrs; i++)
		if (!h->attrs[i].len && h->attrs[i].flags & UVERBS_ATTR_F_VALID_OUTPUT)
			device_keep((uint32_t)h->attrs[i].data);
	memcpy(&number, host.memory + DEVICE_OUT, 4);
	device_keep(number);
}

static void device_any(struct fuzz_in *in)
{
	const uint32_t object = fuzz_8(in), method = fuzz_8(in);
	uint32_t n = fuzz_8(in) & 15;

	device_start(device_id(object, 31), device_id(method, 31));
	while (n-- && in->at < in->end)
		device_attr_any(in);
	device_go();
}

static void device_any_write(struct fuzz_in *in)
{
	const uint32_t command = fuzz_8(in), out = fuzz_8(in);
	uint32_t i, len, at;

	device_start(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
	device_attr(UVERBS_ATTR_WRITE_CMD, 8, (command & 0x80 ? 1u << 31 : 0) | (command & 0x7f));
	for (i = 0; i < 2; i++) {
		at = host.in;
		len = device_payload(in);
		host.in = at;
		if (len)
			device_attr_in(i ? UVERBS_ATTR_UHW_IN : UVERBS_ATTR_CORE_IN, host.memory + DEVICE_IN + at, len);
	}
	device_attr(UVERBS_ATTR_CORE_OUT, out, DEVICE_BASE + DEVICE_OUT);
	device_attr(UVERBS_ATTR_UHW_OUT, 64, DEVICE_BASE + DEVICE_OUT + 256);
	memset(host.memory + DEVICE_OUT, 0, 256);
	if (!device_run() && out >= 4) {
		memcpy(&i, host.memory + DEVICE_OUT, 4);
		device_keep(i);
	}
}

/* A device command: 0 other, 1 create, 2 modify, 3 query; an asynchronous one is device_any's. */
static void device_command(struct fuzz_in *in, uint32_t how)
{
	static const struct {
		uint16_t object, method, handle, in, out;
	} forms[] = {
		{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, 0,
		 MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT},
		{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE,
		 MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT},
		{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE,
		 MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT},
		{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE,
		 MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT},
	};
	const uint32_t f = how & 3, opcode = fuzz_16(in), extra = fuzz_8(in), out = fuzz_8(in) * 4;
	uint32_t at, len;

	device_start(forms[f].object, forms[f].method);
	if (f)
		device_attr(forms[f].handle, 0, f == 1 ? 0 : device_known(how & 4 ? 5 : 12, extra));
	at = DEVICE_IN;
	len = device_payload(in);
	if (len < 4)
		return;
	host.memory[at] = (uint8_t)(opcode >> 8 & 15);
	host.memory[at + 1] = (uint8_t)opcode;
	device_attr_in(forms[f].in, host.memory + at, len > 8 ? len + extra % 4 * 64 : len);
	device_attr(forms[f].out, how & 8 ? out * 4 : out, DEVICE_BASE + DEVICE_OUT);
	memset(host.memory + DEVICE_OUT, 0, 64);
	device_go();
	if (f == 1) /* the object's number */
		device_keep(fuzz_be32(host.memory + DEVICE_OUT + 8) & 0xffffff);
}

/* A command of the connection manager. Most begin with where the answer goes. */
static void device_cm(struct fuzz_in *in, uint32_t how)
{
	struct rdma_ucm_cmd_hdr h = {.cmd = fuzz_8(in) & 31, .out = (uint16_t)fuzz_16(in)};
	const uint64_t answer = DEVICE_BASE + DEVICE_OUT;
	uint32_t len;

	host.in = sizeof(h);
	len = device_payload(in);
	if (!(how & 1) && len >= 8)
		memcpy(host.memory + DEVICE_IN + sizeof(h), &answer, 8);
	h.in = (uint16_t)(how & 2 ? fuzz_16(in) : len);
	memcpy(host.memory + DEVICE_IN, &h, sizeof(h));
	memset(host.memory + DEVICE_OUT, 0, 64);
	if (sd_cm_write(host.cm, host.memory + DEVICE_IN, sizeof(h) + len) > 0) {
		memcpy(&len, host.memory + DEVICE_OUT, 4);
		device_keep(len);
	}
}

/* ---- One input ---- */

static void device_step(struct fuzz_in *in)
{
	const uint32_t op = fuzz_8(in), more = op >> 4;

	switch (op & 15) {
	case 0:
	case 1:
	case 2: device_wqe(in, more & 1); break;
	case 3:
	case 4: device_ring(in, fuzz_8(in)); break;
	case 5: device_receive(in, more & 1, more >> 1 & 1); break;
	case 6:
	case 7: device_any(in); break;
	case 8: device_any_write(in); break;
	case 9:
	case 10:
	case 11: device_command(in, more); break;
	case 12:
	case 13: device_cm(in, more); break;
	case 14: fuzz_bytes(in, host.memory + DEVICE_DATA + 256 * fuzz_8(in) % 0x4f00, 16 * more); break;
	default:
		softdev_execute(0, 64);
		softdev_complete(0, 64);
	}
}

static void device_input(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, data + size};
	const uint32_t what = fuzz_8(&in), ours = device_types[what & 7].ours, peers = device_types[what & 7].peers;
	const int tags = (what & 7) == 6, own = ours == IB_UVERBS_QPT_RAW_PACKET || ours == IB_UVERBS_QPT_XRC_INI ||
						ours == IB_UVERBS_QPT_DRIVER;
	const int shared = tags || (what & 8 && !own);

	if (!host.memory) {
		host.memory = (uint8_t *)mmap((void *)(uintptr_t)DEVICE_BASE, DEVICE_MEMORY, PROT_READ | PROT_WRITE,
					      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		sure(host.memory == (uint8_t *)(uintptr_t)DEVICE_BASE && !softdev_manual(1));
	}
	memset(host.memory, 0, DEVICE_MEMORY);
	host.num = host.pi[0] = host.pi[1] = host.received[0] = host.received[1] = 0;
	host.type = ours;
	device_context();
	device_queues(ours == IB_UVERBS_QPT_XRC_INI ? -1 : tags);
	device_pair(0, ours, shared);
	device_pair(1, peers, shared);
	for (enum ibv_qp_state s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) {
		device_move(0, ours, host.qpns[tags ? 0 : 1], s);
		if (peers != IB_UVERBS_QPT_DRIVER || s < IBV_QPS_RTS)
			device_move(1, peers, host.qpns[0], s);
	}
	host.cm = sd_cm_open(O_CLOEXEC | O_NONBLOCK);
	sure(host.cm >= 0);
	while (in.at < in.end)
		device_step(&in);
	softdev_execute(0, 64);
	softdev_complete(0, 64);
	for (int fd = 1024; fd--;) /* what it was given, and the context, whose number is lower, after it */
		if (sd_fd_get(fd, NULL) != SD_FD_NONE) {
			sd_fd_closing(fd);
			close(fd);
		}
	sure(!sd_qp_next(NULL) && !sd_cq_next(NULL) && !sd_srq_next(NULL) && !sd_uar_next(NULL));
}

FUZZ_TARGET(device_input)
