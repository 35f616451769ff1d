/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faults.c: every set-up function, with the k-th call that it makes failing, for each k until none fails.
 *
 * The calls that the headers make to libibverbs, libmlx5 and the kernel are macros here. One of them fails on demand, and what they
 * open and close is counted. After a failure the function has returned the errno of that call, not of an earlier one, and a reason;
 * nothing is left open, objects that must not change have not, and the same call succeeds once nothing fails. buf, match and tag make
 * no such calls.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/userfaultfd.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#define ERROR EUCLEAN /* nobody else's */
#define STALE ESTALE  /* an earlier call's */

static struct {
	unsigned calls, k;      /* the k-th call fails; 0: none */
	const char *failed;     /* its name */
	bool quiet, unsaid;     /* calls that return a pointer do not set errno; the one that failed did not */
	int live;               /* opened less closed */
	unsigned remote;        /* permissions of peers that were asked for */
	const char *all[64];    /* what has failed so far */
	unsigned num;
} faults;

static int fails(const char *name)
{
	unsigned i;

	if (!faults.k || ++faults.calls != faults.k) {
		errno = faults.quiet ? STALE : errno;
		return 0;
	}
	faults.failed = name;
	for (i = 0; i < faults.num && strcmp(faults.all[i], name); i++)
		;
	if (i == faults.num)
		faults.all[faults.num++] = name;
	errno = ERROR;
	return 1;
}

static int fails_quietly(const char *name)
{
	int was = errno, failed = fails(name);

	if (failed && faults.quiet) {
		errno = was;
		faults.unsaid = true;
	}
	return failed;
}

/* By what a call returns: an errno, a truth, a pointer, a descriptor. Calls that close never fail */
#define ERRNO(name, ...) (fails(#name) ? ERROR : name(__VA_ARGS__))
#define TRUTH(name, ...) (!fails(#name) && name(__VA_ARGS__))
#define COUNTED(name, none, call) (fails(name) ? (none) : (faults.live++, (call)))
#define OPENED(name, call) (fails_quietly(name) ? NULL : (faults.live++, (call)))
#define OPENS(name, ...) ((__typeof__(name(__VA_ARGS__)))OPENED(#name, name(__VA_ARGS__)))
#define MINUS(name, ...) (fails(#name) ? -1 : name(__VA_ARGS__))
#define CLOSES(name, ...) (faults.live--, name(__VA_ARGS__))

/* None of the memory here is a peer's to read or write */
static unsigned granted(unsigned access)
{
	faults.remote |= access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	return access;
}

/* Not a macro with arguments: structs have members of this name */
static int close_counted(int fd)
{
	return CLOSES(close, fd);
}

/* The software device has no dmabufs: memory of this process instead */
static uint8_t memory[4096] __attribute__((aligned(4096)));

static struct mlx5dv_devx_umem *umem_reg_here(struct ibv_context *ctx, const struct mlx5dv_devx_umem_in *in)
{
	struct mlx5dv_devx_umem_in here = *in;

	here.addr = in->comp_mask ? memory : in->addr;
	here.comp_mask = 0;
	return mlx5dv_devx_umem_reg_ex(ctx, &here);
}

#undef ibv_query_port
#undef ibv_reg_mr
#define ibv_query_port(c, p, a) (fails("ibv_query_port") ? ERROR : ___ibv_query_port(c, p, a))
#define ibv_reg_mr(p, a, l, f) ((struct ibv_mr *)OPENED("ibv_reg_mr", __ibv_reg_mr(p, a, l, granted(f), 0)))
#define ibv_reg_dmabuf_mr(p, o, l, v, fd, f) \
	COUNTED("ibv_reg_dmabuf_mr", (struct ibv_mr *)NULL, __ibv_reg_mr(p, (void *)(v), l, granted((unsigned)(f)), 0))
#define ibv_query_device(...) ERRNO(ibv_query_device, __VA_ARGS__)
#define ibv_query_device_ex(...) ERRNO(ibv_query_device_ex, __VA_ARGS__)
#define ibv_query_ece(...) ERRNO(ibv_query_ece, __VA_ARGS__)
#define ibv_query_gid_ex(...) ERRNO(ibv_query_gid_ex, __VA_ARGS__)
#define ibv_query_qp(...) ERRNO(ibv_query_qp, __VA_ARGS__)
#define ibv_get_srq_num(...) ERRNO(ibv_get_srq_num, __VA_ARGS__)
#define ibv_modify_qp(...) ERRNO(ibv_modify_qp, __VA_ARGS__)
#define ibv_modify_wq(...) ERRNO(ibv_modify_wq, __VA_ARGS__)
#define ibv_set_ece(qp, ece) (fails("ibv_set_ece") ? ERROR : 0) /* the software device has no such options */
#define mlx5dv_init_obj(...) ERRNO(mlx5dv_init_obj, __VA_ARGS__)
#define mlx5dv_query_device(...) ERRNO(mlx5dv_query_device, __VA_ARGS__)
#define mlx5dv_devx_general_cmd(...) ERRNO(mlx5dv_devx_general_cmd, __VA_ARGS__)
#define mlx5dv_devx_obj_modify(...) ERRNO(mlx5dv_devx_obj_modify, __VA_ARGS__)
#define mlx5dv_devx_obj_query(...) ERRNO(mlx5dv_devx_obj_query, __VA_ARGS__)
#define mlx5dv_devx_obj_query_async(...) ERRNO(mlx5dv_devx_obj_query_async, __VA_ARGS__)
#define mlx5dv_devx_qp_query(...) ERRNO(mlx5dv_devx_qp_query, __VA_ARGS__)
#define mlx5dv_devx_srq_query(...) ERRNO(mlx5dv_devx_srq_query, __VA_ARGS__)
#define mlx5dv_devx_wq_query(...) ERRNO(mlx5dv_devx_wq_query, __VA_ARGS__)
#define mlx5dv_devx_query_eqn(...) ERRNO(mlx5dv_devx_query_eqn, __VA_ARGS__)
#define mlx5dv_devx_subscribe_devx_event(...) ERRNO(mlx5dv_devx_subscribe_devx_event, __VA_ARGS__)
#define mlx5dv_is_supported(...) TRUTH(mlx5dv_is_supported, __VA_ARGS__)
#define ibv_alloc_mw(...) OPENS(ibv_alloc_mw, __VA_ARGS__)
#define ibv_alloc_parent_domain(...) OPENS(ibv_alloc_parent_domain, __VA_ARGS__)
#define ibv_alloc_td(...) OPENS(ibv_alloc_td, __VA_ARGS__)
#define ibv_create_ah(...) OPENS(ibv_create_ah, __VA_ARGS__)
#define ibv_create_cq(...) OPENS(ibv_create_cq, __VA_ARGS__)
#define ibv_create_flow(...) OPENS(ibv_create_flow, __VA_ARGS__)
#define ibv_create_qp_ex(...) OPENS(ibv_create_qp_ex, __VA_ARGS__)
#define ibv_create_rwq_ind_table(...) OPENS(ibv_create_rwq_ind_table, __VA_ARGS__)
#define ibv_reg_dm_mr(...) OPENS(ibv_reg_dm_mr, __VA_ARGS__)
#define mlx5dv_create_cq(...) OPENS(mlx5dv_create_cq, __VA_ARGS__)
#define mlx5dv_create_flow(...) OPENS(mlx5dv_create_flow, __VA_ARGS__)
#define mlx5dv_create_flow_matcher(...) OPENS(mlx5dv_create_flow_matcher, __VA_ARGS__)
#define mlx5dv_create_qp(...) OPENS(mlx5dv_create_qp, __VA_ARGS__)
#define mlx5dv_create_wq(...) OPENS(mlx5dv_create_wq, __VA_ARGS__)
#define ibv_get_device_list(...) OPENS(ibv_get_device_list, __VA_ARGS__)
#define ibv_open_device(...) OPENS(ibv_open_device, __VA_ARGS__)
#define mlx5dv_open_device(...) OPENS(mlx5dv_open_device, __VA_ARGS__)
#define mlx5dv_devx_alloc_uar(...) OPENS(mlx5dv_devx_alloc_uar, __VA_ARGS__)
#define mlx5dv_devx_obj_create(...) OPENS(mlx5dv_devx_obj_create, __VA_ARGS__)
#define mlx5dv_devx_umem_reg(...) OPENS(mlx5dv_devx_umem_reg, __VA_ARGS__)
#define mlx5dv_devx_umem_reg_ex(...) \
	COUNTED("mlx5dv_devx_umem_reg_ex", (struct mlx5dv_devx_umem *)NULL, umem_reg_here(__VA_ARGS__))
#define syscall(...) COUNTED("syscall", -1, syscall(__VA_ARGS__))
#define eventfd(...) COUNTED("eventfd", -1, eventfd(__VA_ARGS__))
#define ioctl(...) MINUS(ioctl, __VA_ARGS__)
#define getrandom(...) MINUS(getrandom, __VA_ARGS__)
#define close close_counted
#define ibv_close_device(...) CLOSES(ibv_close_device, __VA_ARGS__)
#define ibv_free_device_list(...) CLOSES(ibv_free_device_list, __VA_ARGS__)
#define ibv_dealloc_mw(...) CLOSES(ibv_dealloc_mw, __VA_ARGS__)
#define ibv_dealloc_pd(...) CLOSES(ibv_dealloc_pd, __VA_ARGS__)
#define ibv_dealloc_td(...) CLOSES(ibv_dealloc_td, __VA_ARGS__)
#define ibv_dereg_mr(...) CLOSES(ibv_dereg_mr, __VA_ARGS__)
#define ibv_destroy_ah(...) CLOSES(ibv_destroy_ah, __VA_ARGS__)
#define ibv_destroy_cq(...) CLOSES(ibv_destroy_cq, __VA_ARGS__)
#define ibv_destroy_flow(...) CLOSES(ibv_destroy_flow, __VA_ARGS__)
#define ibv_destroy_qp(...) CLOSES(ibv_destroy_qp, __VA_ARGS__)
#define ibv_destroy_rwq_ind_table(...) CLOSES(ibv_destroy_rwq_ind_table, __VA_ARGS__)
#define ibv_destroy_wq(...) CLOSES(ibv_destroy_wq, __VA_ARGS__)
#define mlx5dv_destroy_flow_matcher(...) CLOSES(mlx5dv_destroy_flow_matcher, __VA_ARGS__)
#define mlx5dv_devx_free_uar(...) CLOSES(mlx5dv_devx_free_uar, __VA_ARGS__)
#define mlx5dv_devx_obj_destroy(...) CLOSES(mlx5dv_devx_obj_destroy, __VA_ARGS__)
#define mlx5dv_devx_umem_dereg(...) CLOSES(mlx5dv_devx_umem_dereg, __VA_ARGS__)

#include "common.h"
#include "devx/rig.h"
#include <inlay/devx/packets.h>
#include <inlay/mmap/pci.h>
#include <inlay/task.h>

/* What a set-up function is given, and makes */
static struct {
	struct end a, b;
	struct ibv_cq *ibcq, *wqcq;
	struct ibv_qp *rc, *raw, *dci, *dct;
	struct ibv_srq *ibsrq, *xrc;
	struct ibv_xrcd *xrcd;
	struct ibv_wq *wqs[3], *strides;
	struct ibv_dm *ibdm;
	struct inlay_uar uar, rawuar, dciuar;
	struct inlay_cq cq;
	struct inlay_sq sq;
	struct inlay_rq rq;
	struct inlay_srq srq;
	struct inlay_striding striding;
	struct inlay_av av;
	struct inlay_dm dm;
	struct inlay_atomics atomics;
	struct inlay_connect_record here, there, datagrams;
	struct inlay_connect_attr attr;
	struct inlay_packet_queue queue;
	struct inlay_rss rss;
	struct ibv_flow *flow;
	struct inlay_mmap map, pci, theirs;
	struct inlay_cache_region region;
	struct inlay_monitor monitor;
	struct inlay_task_host host;
	struct inlay_task_worker worker;
	struct inlay_task_conn conn;
	struct inlay_task_host_params hp;
	struct inlay_task_worker_params wp;
	void *host_memory, *worker_memory, *conn_memory, *map_memory, *pci_memory, *pci_keys, *their_memory;
	uint8_t *page, blob[1024];
	size_t blob_len;
	uint32_t number;
	struct ibv_context *opened, *commands, *other;
	struct ibv_pd *other_pd;
	struct inlay_devx_uar duar;
	struct inlay_devx_umem umem;
	struct inlay_devx_cq dcq;
	struct inlay_devx_cq_attr dcqa;
	struct inlay_devx_qp dqp;
	struct inlay_devx_qp_attr dqpa;
	struct inlay_devx_srq rmp;
	struct inlay_devx_srq_attr rmpa;
	struct inlay_devx_rq drq;
	struct inlay_devx_rq_attr drqa;
	struct inlay_devx_rss drss;
	struct inlay_devx_flow dflow;
	struct inlay_devx_dct ddct;
	struct inlay_devx_dct_attr dcta;
	struct inlay_devx_mkey key;
	struct inlay_devx_mkey_attr keya, uma;
	struct inlay_devx_srq xrq;
	struct inlay_devx_srq_attr xrqa;
	struct inlay_devx_error error;
	struct mlx5dv_devx_cmd_comp *answers;
	struct inlay_devx_psv psv;
	struct inlay_devx_path path;
	struct mlx5dv_devx_event_channel *channel;
} s;

static const struct mlx5dv_striding_rq_init_attr shape = {.single_stride_log_num_of_bytes = 6, .single_wqe_log_num_of_strides = 9};

/* ---- the functions ---- */

#define RUN(name, call)                             \
	static int name(UNUSED const char **why)    \
	{                                           \
		return call;                        \
	}
#define UNDO(name, call)                            \
	static void name(void)                      \
	{                                           \
		call;                               \
	}

static int device_open(UNUSED const char **why)
{
	s.opened = inlay_device_open(ibv_get_device_name(dev.ctx->device), why);
	return s.opened ? 0 : -errno;
}
UNDO(device_close, must(ibv_close_device(s.opened)))
RUN(uar_create, inlay_uar_create(&s.uar, dev.pd, INLAY_UAR_SERIAL, why))
UNDO(uar_destroy, must(inlay_uar_destroy(&s.uar, NULL)))
RUN(uar_from_qp, inlay_uar_from_qp(&s.uar, s.rc, why))
RUN(cq_from_cq, inlay_cq_from_cq(&s.cq, s.ibcq, why))
RUN(sq_from_qp, inlay_sq_from_qp(&s.sq, s.rc, &s.uar, &s.cq, why))
RUN(sq_from_raw, inlay_sq_from_qp(&s.sq, s.raw, &s.rawuar, &s.cq, why))
RUN(sq_from_dci, inlay_sq_from_qp(&s.sq, s.dci, &s.dciuar, NULL, why))
UNDO(sq_fini, inlay_sq_fini(&s.sq))
RUN(rq_from_qp, inlay_rq_from_qp(&s.rq, s.rc, &s.cq, why))
RUN(rq_from_wq, inlay_rq_from_wq(&s.rq, s.wqs[0], NULL, why))
UNDO(rq_fini, inlay_rq_fini(&s.rq))
RUN(striding_from_wq, inlay_striding_from_wq(&s.striding, s.strides, &shape, NULL, why))
RUN(srq_from_srq, inlay_srq_from_srq(&s.srq, s.ibsrq, &s.cq, why))
UNDO(srq_fini, inlay_srq_fini(&s.srq))
RUN(dm_from_dm, inlay_dm_from_dm(&s.dm, s.ibdm, why))
RUN(atomics_query, inlay_atomics_query(&s.atomics, dev.ctx, why))
RUN(qp_user_index, inlay_qp_user_index(s.rc, &s.number, why))
RUN(wq_user_index, inlay_wq_user_index(s.wqs[0], &s.number, why))
RUN(srq_user_index, inlay_srq_user_index(s.xrc, &s.number, why))
RUN(pdn_from_pd, inlay_pdn_from_pd(&s.number, dev.pd))
RUN(srqn_from_srq, inlay_srqn_from_srq(&s.number, s.ibsrq))

RUN(connect_port, inlay_connect_port(&s.here, dev.ctx, 1, dev.gid_index, why))
RUN(connect_best, inlay_connect_port(&s.here, dev.ctx, 1, -1, why))
RUN(connect_local, inlay_connect_local(&s.here, s.rc, &s.attr, why))
RUN(connect_rts, inlay_connect_rts(s.rc, &s.here, &s.there, &s.attr, why))
RUN(connect_pair, inlay_connect_pair(s.a.qp, s.b.qp, &s.attr, why))
RUN(connect_dci, inlay_connect_dc(&s.here, s.dci, 0, &s.attr, why))
RUN(connect_dct, inlay_connect_dc(&s.here, s.dct, 1, &s.attr, why))
RUN(connect_av, inlay_connect_av(&s.av, dev.pd, &s.datagrams, &s.datagrams, NULL, why))
UNDO(rc_reset, qp_to(s.rc, IBV_QPS_RESET))
static void rc_init(void)
{
	rc_reset();
	must(inlay_connect_local(&s.here, s.rc, &s.attr, NULL));
	s.here.ece_vendor = s.there.ece_vendor = 0x15b3;
	s.here.ece_options = s.there.ece_options = 1;
}
static void pair_reset(void)
{
	qp_to(s.a.qp, IBV_QPS_RESET);
	qp_to(s.b.qp, IBV_QPS_RESET);
}
UNDO(dci_reset, qp_to(s.dci, IBV_QPS_RESET))

/* A DC target goes up only once, and one that failed is good for nothing */
static void dct_again(void)
{
	struct ibv_qp_init_attr_ex a = {};
	struct mlx5dv_qp_init_attr dv = {};

	if (s.dct)
		must(ibv_destroy_qp(s.dct));
	a.qp_type = IBV_QPT_DRIVER;
	a.send_cq = a.recv_cq = s.ibcq;
	a.srq = s.ibsrq;
	a.pd = dev.pd;
	a.comp_mask = IBV_QP_INIT_ATTR_PD;
	dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
	dv.dc_init_attr.dct_access_key = 1;
	s.dct = made(mlx5dv_create_qp(dev.ctx, &a, &dv));
}

static int packet_queue(UNUSED const char **why)
{
	struct inlay_strides strides = {9, 6, 2};

	return inlay_packet_queue_create(&s.queue, dev.pd, 3, &strides, INLAY_PACKETS_STRIP_VLAN | INLAY_PACKETS_COMPRESSED, why);
}
UNDO(packet_queue_destroy, must(inlay_packet_queue_destroy(&s.queue, NULL)))
RUN(rss_create, inlay_rss_create(&s.rss, dev.pd, s.wqs, 3, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4, why))
UNDO(rss_destroy, must(inlay_rss_destroy(&s.rss, NULL)))
static int flow_create(UNUSED const char **why)
{
	struct inlay_flow_match match = {};

	match.type = 0x0800;
	return inlay_flow_create(&s.flow, s.raw, &match, why);
}
UNDO(flow_destroy, must(ibv_destroy_flow(s.flow)))

RUN(mmap_start, inlay_mmap_start(&s.map))
UNDO(mmap_stop, must(inlay_mmap_stop(&s.map)))
static int export_pci(UNUSED const char **why)
{
	s.blob_len = sizeof(s.blob);
	return inlay_mmap_export_pci(&s.pci, dev.pd, s.pci_keys, inlay_mmap_pci_size(&s.pci), s.blob, &s.blob_len);
}
static void pci_make(void)
{
	must(inlay_mmap_create(&s.pci, s.pci_memory, inlay_mmap_size(1, 2), 1, 2));
	must(inlay_mmap_set_permissions(&s.pci, INLAY_PCI_READ_WRITE));
	must(inlay_mmap_add_dev(&s.pci, dev.pd));
	must(inlay_mmap_add(&s.pci, inlay_source_host(s.page, 4096)));
	must(inlay_mmap_add(&s.pci, inlay_source_host(s.page + 4096, 4096)));
	must(inlay_mmap_start(&s.pci));
}
static void pci_again(void) /* an exported map cannot be started again */
{
	must(inlay_mmap_destroy(&s.pci));
	pci_make();
}
static int import_pci(UNUSED const char **why)
{
	return inlay_mmap_create_from_export_pci(&s.theirs, s.their_memory, inlay_mmap_import_size(s.blob, s.blob_len),
						 s.other_pd, s.blob, s.blob_len, NULL);
}
UNDO(import_destroy, must(inlay_mmap_destroy(&s.theirs)))
RUN(cache_reg, inlay_cache_reg_mr(dev.pd, &s.region))
UNDO(cache_dereg, must(inlay_cache_dereg_mr(dev.pd, &s.region)))
RUN(monitor_init, inlay_monitor_init(&s.monitor, NULL, 0, why))
RUN(monitor_watch, inlay_monitor_watch(&s.monitor, (uintptr_t)s.page, 4096))
UNDO(monitor_fini, inlay_monitor_fini(&s.monitor))

RUN(host_create, inlay_task_host_create(&s.host, s.host_memory, inlay_task_host_size(&s.hp), dev.pd, &s.hp, why))
UNDO(host_destroy, must(inlay_task_host_destroy(&s.host)))
RUN(worker_create, inlay_task_worker_create(&s.worker, dev.pd, &s.wp, why))
UNDO(worker_destroy, must(inlay_task_worker_destroy(&s.worker)))
RUN(conn_create, inlay_task_conn_create(&s.conn, s.conn_memory, inlay_task_conn_size(&s.wp), &s.worker, &s.host.link.self,
					INLAY_TASK_ADDRESS, why))
UNDO(conn_destroy, must(inlay_task_conn_destroy(&s.conn)))
static int host_connect(UNUSED const char **why)
{
	return inlay_task_host_connect(&s.host, &s.conn.link.self, INLAY_TASK_ADDRESS, why);
}
static void host_again(void) /* one that failed half-way is good for nothing */
{
	host_destroy();
	must(host_create(NULL));
}

/* Of objects that keep the reason: as a text */
static int told(int err, const struct inlay_devx_error *error, const char **why)
{
	static char text[INLAY_DEVX_TEXT];

	if (err && error->err == err)
		*why = inlay_devx_error_text(error, text, sizeof(text));
	return err;
}

RUN(devx_open, inlay_devx_open(dev.ctx->device, &s.commands))
UNDO(devx_close, must(ibv_close_device(s.commands)))
RUN(devx_uar_alloc, inlay_devx_uar_alloc(&s.duar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL))
UNDO(devx_uar_free, must(inlay_devx_uar_free(&s.duar)))
RUN(umem_reg, inlay_devx_umem_reg(&s.umem, dev.ctx, s.page, 4096, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE))
RUN(umem_any, inlay_devx_umem_reg(&s.umem, dev.ctx, s.page, 4096, IBV_ACCESS_LOCAL_WRITE, 0))
RUN(umem_dmabuf, inlay_devx_umem_reg_dmabuf(&s.umem, dev.ctx, 0, 0, 4096, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE))
UNDO(umem_dereg, must(inlay_devx_umem_dereg(&s.umem)))
RUN(devx_cq, told(inlay_devx_cq_create(&s.dcq, dev.ctx, &s.dcqa), &s.dcq.error, why))
UNDO(devx_cq_destroy, must(inlay_devx_cq_destroy(&s.dcq)))
RUN(devx_qp, told(inlay_devx_qp_create(&s.dqp, dev.ctx, &s.dqpa), &s.dqp.error, why))
UNDO(devx_qp_destroy, must(inlay_devx_qp_destroy(&s.dqp)))
RUN(devx_up, told(qp_to_itself(&s.dqp, &s.path), &s.dqp.error, why))
UNDO(devx_down, must(inlay_devx_qp_modify(&s.dqp, INLAY_QP_STATE_RST, NULL, NULL)))
RUN(devx_rmp, told(inlay_devx_srq_create(&s.rmp, dev.ctx, &s.rmpa), &s.rmp.error, why))
UNDO(devx_rmp_destroy, must(inlay_devx_srq_destroy(&s.rmp)))
RUN(devx_rq, told(inlay_devx_rq_create(&s.drq, dev.ctx, &s.drqa), &s.drq.error, why))
UNDO(devx_rq_destroy, must(inlay_devx_rq_destroy(&s.drq)))
RUN(devx_rq_reset, told(inlay_devx_rq_reset(&s.drq), &s.drq.error, why))
static int devx_rss(UNUSED const char **why)
{
	return told(inlay_devx_rss_create(&s.drss, dev.ctx, &s.drq.rqn, 1, IBV_RX_HASH_SRC_IPV4), &s.drss.error, why);
}
UNDO(devx_rss_destroy, must(inlay_devx_rss_destroy(&s.drss)))
static int devx_flow(UNUSED const char **why)
{
	struct inlay_flow_match match = {};

	match.type = 0x0800;
	return inlay_devx_flow_create(&s.dflow, dev.ctx, &s.drss, &match, why);
}
UNDO(devx_flow_destroy, must(inlay_devx_flow_destroy(&s.dflow)))
RUN(devx_dct, told(inlay_devx_dct_create(&s.ddct, dev.ctx, &s.dcta, &s.path), &s.ddct.error, why))
UNDO(devx_dct_destroy, must(inlay_devx_dct_destroy(&s.ddct)))
RUN(devx_mkey, told(inlay_devx_mkey_create(&s.key, dev.ctx, &s.keya), &s.key.error, why))
UNDO(devx_mkey_destroy, must(inlay_devx_mkey_destroy(&s.key)))
static int devx_mkey_list(UNUSED const char **why)
{
	static uint64_t box[256];
	struct ibv_sge sge = {s.keya.addr, (uint32_t)s.keya.len, 1};

	return told(inlay_devx_mkey_create_list(&s.key, dev.ctx, &s.keya, &sge, 1, box, sizeof(box)), &s.key.error, why);
}
RUN(devx_mkey_umr, told(inlay_devx_mkey_create_umr(&s.key, dev.ctx, &s.uma, 4, 1), &s.key.error, why))
RUN(devx_psv, told(inlay_devx_psv_create(&s.psv, dev.ctx, rig.pdn), &s.psv.error, why))
UNDO(devx_psv_destroy, must(inlay_devx_psv_destroy(&s.psv)))
RUN(devx_xrq, told(inlay_devx_srq_create(&s.xrq, dev.ctx, &s.xrqa), &s.xrq.error, why))
UNDO(devx_xrq_destroy, must(inlay_devx_srq_destroy(&s.xrq)))
RUN(devx_xrq_arm, told(inlay_devx_srq_arm(&s.xrq, 1), &s.xrq.error, why))
RUN(devx_rmp_arm, told(inlay_devx_srq_arm(&s.rmp, 1), &s.rmp.error, why))
static int devx_cap(UNUSED const char **why)
{
	struct inlay_query_hca_cap_out out;

	return told(inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL, &out, &s.error), &s.error, why);
}
static int devx_query(UNUSED const char **why)
{
	struct inlay_query_qp_out out;

	return told(context(&s.dqp, QP, qpn, &out), &s.dqp.error, why);
}
static int devx_address(UNUSED const char **why)
{
	struct inlay_connect_record at;

	return told(inlay_devx_qp_address(&s.dqp, &s.path, &at), &s.dqp.error, why);
}
static void devx_known(void)
{
	devx_down();
	must(inlay_devx_qp_address(&s.dqp, &s.path, &s.here));
}
RUN(devx_connect, told(inlay_devx_qp_connect(&s.dqp, &s.path, &s.here), &s.dqp.error, why))
RUN(devx_error, told(inlay_devx_qp_modify(&s.dqp, INLAY_QP_STATE_ERR, NULL, NULL), &s.dqp.error, why))
static int devx_ask(UNUSED const char **why)
{
	struct inlay_cmd_in in;

	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_QUERY_QP, s.dqp.qpn);
	return inlay_devx_query_async(s.dqp.obj, &in, sizeof(in), sizeof(struct inlay_query_qp_out), 1, s.answers);
}
RUN(devx_resolve, inlay_devx_address_resolve(&s.there, dev.pd, &s.path))
static int devx_subscribe(UNUSED const char **why)
{
	const uint16_t type = 0; /* completions */

	return inlay_devx_subscribe(s.channel, s.dcq.obj, &type, 1, 1);
}

/* What rows need that follow */
static void on_cq(void)
{
	s.dqpa = qp_want(0, 0, 16, 16);
	s.dqpa.flags = INLAY_DEVX_QP_MMO;
	s.dqpa.send_cq = s.dqpa.recv_cq = s.rmpa.cq = s.xrqa.cq = &s.dcq.cq;
}

static void on_qp(void)
{
	s.channel = channel_open(false);
	s.answers = made(mlx5dv_devx_create_cmd_comp(dev.ctx));
}

static void on_qp_end(void)
{
	mlx5dv_devx_destroy_cmd_comp(s.answers);
	mlx5dv_devx_destroy_event_channel(s.channel);
}

static void on_rmp(void)
{
	s.dcta.pdn = rig.pdn;
	s.dcta.cqn = s.dcq.cq.cqn;
	s.dcta.srqn = s.rmp.srqn;
	s.dcta.flags = INLAY_DEVX_DCT_OOO;
}

/* ---- the table ---- */

/*
 * run       the function; undo takes down what it made, before comes before each run
 * object    what a failure must not change
 * may_fail  calls whose failure the function tolerates
 * maps      calls whose failure it may report as `otherwise`; else mlx5dv_is_supported is -ENOTSUP
 * silent    it has no way to give a reason
 * calls     that it makes, at least
 * keep      what it makes is for the next rows, until a row without `run` calls what takes it down, and what comes before the next
 */
static const struct row {
	const char *name;
	int (*run)(const char **);
	void (*undo)(void), (*before)(void);
	void *object;
	size_t size;
	const char *may_fail, *maps;
	int otherwise;
	bool silent;
	unsigned calls;
	bool keep;
} rows[] = {
#define SAME(object) &object, sizeof(object)
	{"device_open", device_open, device_close, NULL, NULL, 0, "mlx5dv_is_supported", "mlx5dv_is_supported", -ENODEV, false, 3, false},
	{"uar_create", uar_create, uar_destroy, NULL, NULL, 0, "", "", 0, false, 3, false},
	{"uar_from_qp", uar_from_qp, NULL, NULL, NULL, 0, "", "", 0, false, 2, false},
	{"cq_from_cq", cq_from_cq, NULL, NULL, SAME(s.cq), "", "", 0, false, 2, true},
	{"sq_from_qp", sq_from_qp, sq_fini, NULL, SAME(s.sq), "", "", 0, false, 4, false},
	{"sq_from_qp, raw", sq_from_raw, sq_fini, NULL, SAME(s.sq), "mlx5dv_devx_general_cmd mlx5dv_query_device", "", 0, false, 6, false},
	{"sq_from_qp, DCI", sq_from_dci, sq_fini, NULL, SAME(s.sq), "mlx5dv_is_supported", "ibv_query_qp", -EINVAL, false, 6, false},
	{"rq_from_qp", rq_from_qp, rq_fini, NULL, SAME(s.rq), "", "", 0, false, 2, false},
	{"rq_from_wq", rq_from_wq, rq_fini, NULL, SAME(s.rq), "", "", 0, false, 2, false},
	{"striding_from_wq", striding_from_wq, NULL, NULL, SAME(s.striding), "", "", 0, false, 2, false},
	{"srq_from_srq", srq_from_srq, srq_fini, NULL, SAME(s.srq), "", "", 0, false, 2, false},
	{"dm_from_dm", dm_from_dm, NULL, NULL, SAME(s.dm), "", "", 0, false, 2, false},
	{"atomics_query", atomics_query, NULL, NULL, NULL, 0, "", "mlx5dv_devx_general_cmd", -ENOTSUP, false, 2, false},
	{"qp_user_index", qp_user_index, NULL, NULL, NULL, 0, "", "mlx5dv_devx_qp_query", -ENOTSUP, false, 3, false},
	{"wq_user_index", wq_user_index, NULL, NULL, NULL, 0, "", "mlx5dv_devx_wq_query", -ENOTSUP, false, 2, false},
	{"srq_user_index", srq_user_index, NULL, NULL, NULL, 0, "", "mlx5dv_devx_srq_query", -ENOTSUP, false, 3, false},
	{"pdn_from_pd", pdn_from_pd, NULL, NULL, SAME(s.number), "", "", 0, true, 2, false},
	{"srqn_from_srq", srqn_from_srq, NULL, NULL, SAME(s.number), "", "", 0, true, 2, false},
	{"connect_port", connect_port, NULL, NULL, NULL, 0, "", "", 0, false, 2, false},
	{"connect_port, the best GID", connect_best, NULL, NULL, NULL, 0, "ibv_query_gid_ex", "", 0, false, 2, false},
	{"connect_local", connect_local, NULL, rc_reset, NULL, 0, "ibv_query_ece", "", 0, false, 5, false},
	{"connect_rts", connect_rts, NULL, rc_init, NULL, 0, "ibv_query_ece", "", 0, false, 4, false},
	{"connect_pair", connect_pair, NULL, pair_reset, NULL, 0, "ibv_query_ece", "", 0, false, 14, false},
	{"connect_dc, DCI", connect_dci, NULL, dci_reset, NULL, 0, "", "", 0, false, 5, false},
	{"connect_dc, DCT", connect_dct, NULL, dct_again, NULL, 0, "", "", 0, false, 4, false},
	{"connect_av", connect_av, NULL, NULL, NULL, 0, "", "", 0, false, 2, false},
	{"packet_queue_create", packet_queue, packet_queue_destroy, NULL, NULL, 0, "", "", 0, false, 6, false},
	{"rss_create", rss_create, rss_destroy, NULL, NULL, 0, "", "", 0, false, 4, false},
	{"flow_create", flow_create, flow_destroy, NULL, NULL, 0, "", "", 0, false, 1, false},
	{"mmap_start", mmap_start, mmap_stop, NULL, SAME(s.map), "", "", 0, true, 4, false},
	{"mmap_export_pci", export_pci, pci_again, NULL, SAME(s.pci), "", "mlx5dv_devx_general_cmd", -ENOTSUP, true, 10, true},
	{"mmap_create_from_export_pci", import_pci, import_destroy, NULL, SAME(s.theirs), "", "mlx5dv_devx_general_cmd", -ENOTSUP, true, 7, false},
	{"cache_reg_mr", cache_reg, cache_dereg, NULL, NULL, 0, "", "", 0, true, 1, false},
	{"monitor_init", monitor_init, monitor_fini, NULL, NULL, 0, "ioctl", "", 0, false, 3, true},
	{"monitor_watch", monitor_watch, NULL, NULL, NULL, 0, "", "", 0, true, 1, false},
	{"monitor_fini", NULL, monitor_fini, NULL, NULL, 0, "", "", 0, true, 0, false},
	{"task_host_create", host_create, host_destroy, NULL, NULL, 0, "mlx5dv_is_supported ibv_query_ece", "", 0, false, 20, true},
	{"task_worker_create", worker_create, worker_destroy, NULL, NULL, 0, "mlx5dv_is_supported", "", 0, false, 6, true},
	{"task_conn_create", conn_create, conn_destroy, NULL, NULL, 0, "ibv_query_ece", "", 0, false, 12, true},
	{"task_host_connect", host_connect, NULL, host_again, SAME(s.host.limit), "", "", 0, false, 2, false},
	{"task_conn_destroy", NULL, conn_destroy, NULL, NULL, 0, "", "", 0, true, 0, false},
	{"task_host_destroy", NULL, host_destroy, worker_destroy, NULL, 0, "", "", 0, true, 0, false},
	{"devx_open", devx_open, devx_close, NULL, NULL, 0, "", "", 0, true, 1, false},
	{"devx_uar_alloc", devx_uar_alloc, devx_uar_free, NULL, NULL, 0, "", "", 0, true, 2, false},
	{"devx_umem_reg", umem_reg, umem_dereg, NULL, NULL, 0, "", "", 0, true, 1, false},
	{"devx_umem_reg, pages of any size", umem_any, umem_dereg, NULL, NULL, 0, "", "", 0, true, 1, false},
	{"devx_umem_reg_dmabuf", umem_dmabuf, umem_dereg, NULL, NULL, 0, "", "", 0, true, 1, false},
	{"devx_query_cap", devx_cap, NULL, NULL, NULL, 0, "", "", 0, false, 1, false},
	{"devx_cq_create", devx_cq, devx_cq_destroy, NULL, NULL, 0, "", "", 0, false, 2, true},
	{"a CQ for all", NULL, NULL, on_cq, NULL, 0, "", "", 0, true, 0, false},
	{"devx_qp_create", devx_qp, devx_qp_destroy, NULL, NULL, 0, "", "", 0, false, 3, true},
	{"on a QP", NULL, NULL, on_qp, NULL, 0, "", "", 0, true, 0, false},
	{"devx_qp_to_itself", devx_up, devx_down, devx_down, NULL, 0, "", "", 0, false, 8, false},
	{"devx_qp_connect", devx_connect, devx_down, devx_known, NULL, 0, "", "", 0, false, 5, false},
	{"devx_qp_modify", devx_error, devx_down, NULL, NULL, 0, "", "", 0, false, 1, false},
	{"devx_query_async", devx_ask, NULL, NULL, NULL, 0, "", "", 0, true, 1, false},
	{"devx_query_context", devx_query, NULL, NULL, NULL, 0, "", "", 0, false, 1, false},
	{"devx_qp_address", devx_address, NULL, NULL, NULL, 0, "", "", 0, false, 2, false},
	{"devx_address_resolve", devx_resolve, NULL, NULL, NULL, 0, "", "", 0, true, 3, false},
	{"devx_subscribe", devx_subscribe, NULL, NULL, NULL, 0, "", "", 0, true, 1, false},
	{"devx_qp_destroy", NULL, devx_qp_destroy, on_qp_end, NULL, 0, "", "", 0, true, 0, false},
	{"devx_rq_create", devx_rq, devx_rq_destroy, NULL, NULL, 0, "", "", 0, false, 2, true},
	{"devx_rq_reset", devx_rq_reset, NULL, NULL, NULL, 0, "", "", 0, false, 3, false},
	{"devx_rss_create", devx_rss, devx_rss_destroy, NULL, NULL, 0, "", "", 0, false, 3, true},
	{"devx_flow_create", devx_flow, devx_flow_destroy, NULL, NULL, 0, "", "", 0, false, 2, false},
	{"devx_rss_destroy", NULL, devx_rq_destroy, devx_rss_destroy, NULL, 0, "", "", 0, true, 0, false},
	{"devx_rmp_create", devx_rmp, devx_rmp_destroy, NULL, NULL, 0, "", "", 0, false, 1, true},
	{"an RMP for all", NULL, NULL, on_rmp, NULL, 0, "", "", 0, true, 0, false},
	{"devx_dct_create", devx_dct, devx_dct_destroy, NULL, NULL, 0, "", "", 0, false, 3, false},
	{"devx_rmp_arm", devx_rmp_arm, NULL, NULL, NULL, 0, "", "", 0, false, 1, false},
	{"devx_xrq_create", devx_xrq, devx_xrq_destroy, NULL, NULL, 0, "", "", 0, false, 1, true},
	{"devx_xrq_arm", devx_xrq_arm, NULL, NULL, NULL, 0, "", "", 0, false, 1, false},
	{"devx_xrq_destroy", NULL, devx_xrq_destroy, NULL, NULL, 0, "", "", 0, true, 0, false},
	{"devx_mkey_create", devx_mkey, devx_mkey_destroy, NULL, NULL, 0, "", "", 0, false, 2, false},
	{"devx_mkey_create_list", devx_mkey_list, devx_mkey_destroy, NULL, NULL, 0, "", "", 0, false, 2, false},
	{"devx_mkey_create_umr", devx_mkey_umr, devx_mkey_destroy, NULL, NULL, 0, "", "", 0, false, 2, false},
	{"devx_psv_create", devx_psv, devx_psv_destroy, NULL, NULL, 0, "", "", 0, false, 1, false},
};

/* What is open, and CQEs that are promised to queues */
static int held(void)
{
	return faults.live + (int)(s.cq.reserved + s.dcq.cq.reserved + s.worker.cq.reserved);
}

static void each_call(const struct row *r, bool quiet)
{
	uint8_t was[8192];
	const char *why;
	int err, live;
	unsigned k;

	assert_in_range(r->size, 0, sizeof(was));
	faults.remote = 0;
	faults.quiet = quiet;
	for (k = 1;; k++) {
		if (r->before)
			r->before();
		memcpy(was, r->object ? r->object : was, r->size);
		live = held();
		why = NULL;
		faults.failed = NULL;
		faults.unsaid = false;
		faults.calls = 0;
		faults.k = k;
		err = r->run(&why);
		faults.k = 0;
		if (faults.failed && err) {
			const char *name = faults.failed;

			/* Unsaid: neither an earlier call's errno nor a 1 */
			if (faults.unsaid ? err == -STALE || err == -1 :
			    err != (strcmp(name, "mlx5dv_is_supported") ? -ERROR : -ENOTSUP) &&
			    !(strstr(r->maps, name) && err == r->otherwise))
				fail_msg("%s answers %d when call %u fails, %s", r->name, err, k, name);
			if (!r->silent && (!why || !*why))
				fail_msg("%s has no reason when call %u fails, %s", r->name, k, name);
			if (held() != live)
				fail_msg("%s leaves %d open when call %u fails, %s", r->name, held() - live, k, name);
			if (r->object && memcmp(was, r->object, r->size))
				fail_msg("%s changes its object when call %u fails, %s", r->name, k, name);
			if (r->before)
				r->before();
			live = held();
			err = r->run(&why);
		} else if (faults.failed && !strstr(r->may_fail, faults.failed)) {
			fail_msg("%s does not notice when call %u fails, %s", r->name, k, faults.failed);
		}
		if (err)
			fail_msg("%s answers %d although nothing fails, after call %u: %s", r->name, err, k, why);
		if (r->undo)
			r->undo();
		if (held() != live)
			fail_msg("%s leaves %d open in the end", r->name, held() - live);
		if (!faults.failed)
			break;
	}
	if (faults.remote)
		fail_msg("%s lets a peer access memory, 0x%x", r->name, faults.remote);
	if (k <= r->calls)
		fail_msg("%s makes %u calls, less than %u", r->name, k - 1, r->calls);
}

static struct ibv_wq *wq_make(bool strides)
{
	struct mlx5dv_wq_init_attr dv = {};
	struct ibv_wq_init_attr init = {};

	init.wq_type = IBV_WQT_RQ;
	init.max_wr = 4;
	init.max_sge = 1;
	init.pd = dev.pd;
	init.cq = s.wqcq;
	dv.comp_mask = strides ? MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ : 0;
	dv.striding_rq_attrs = shape;
	return made(strides ? mlx5dv_create_wq(dev.ctx, &init, &dv) : ibv_create_wq(dev.ctx, &init));
}

static struct ibv_srq *srq_make(struct ibv_xrcd *xrcd)
{
	struct ibv_srq_init_attr_ex init = {};

	init.attr.max_wr = 16;
	init.attr.max_sge = 1;
	init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | (xrcd ? IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ : 0);
	init.srq_type = xrcd ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
	init.pd = dev.pd;
	init.xrcd = xrcd;
	init.cq = s.ibcq;
	return made(ibv_create_srq_ex(dev.ctx, &init));
}

static void verbs_make(void)
{
	struct ibv_xrcd_init_attr xrcd = {};
	struct ibv_qp_init_attr_ex a = {};
	struct mlx5dv_qp_init_attr dv = {};
	struct ibv_alloc_dm_attr dm = {};
	struct ibv_device **list;
	struct opt opt = usual;

	memset(&s, 0, sizeof(s));
	opt.cqe = 2047;
	end_make(&s.a, &opt);
	end_make(&s.b, &opt);
	s.ibcq = cq_make(&opt);
	s.wqcq = cq_make(&opt);
	s.ibsrq = srq_make(NULL);
	xrcd.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	xrcd.fd = -1;
	xrcd.oflags = O_CREAT;
	s.xrcd = made(ibv_open_xrcd(dev.ctx, &xrcd));
	s.xrc = srq_make(s.xrcd);
	for (uint32_t i = 0; i < ARRAY(s.wqs); i++)
		s.wqs[i] = wq_make(false);
	s.strides = wq_make(true);
	s.rc = qp_make(&opt, s.ibcq, s.ibcq);
	opt.type = IBV_QPT_RAW_PACKET;
	opt.cap.max_inline_data = 0;
	opt.scatter = true;
	s.raw = qp_make(&opt, s.ibcq, s.ibcq);
	raw_up(s.raw);
	a.qp_type = IBV_QPT_DRIVER;
	a.send_cq = a.recv_cq = s.ibcq;
	a.pd = dev.pd;
	a.comp_mask = IBV_QP_INIT_ATTR_PD;
	a.cap.max_send_wr = 4;
	a.cap.max_send_sge = 1;
	dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	s.dci = mlx5dv_create_qp(dev.ctx, &a, &dv);
	dm.length = 4096;
	s.ibdm = ibv_alloc_dm(dev.ctx, &dm);
	assert_true(s.dci && s.ibdm);
	s.page = (uint8_t *)pages(8192);

	/* The peer of s.rc, of datagrams too */
	s.attr = inlay_connect_defaults();
	s.attr.gid_index = dev.gid_index;
	must(inlay_connect_local(&s.there, s.a.qp, &s.attr, NULL));
	s.datagrams = s.there;
	s.datagrams.type = IBV_QPT_UD;
	s.number = 77;
	uar_of(&s.uar, s.rc, INLAY_UAR_DOORBELL);
	uar_of(&s.rawuar, s.raw, INLAY_UAR_DOORBELL);
	uar_of(&s.dciuar, s.dci, INLAY_UAR_DOORBELL);
	s.map_memory = pages(inlay_mmap_size(1, 4));
	must(inlay_mmap_create(&s.map, s.map_memory, inlay_mmap_size(1, 4), 1, 4));
	must(inlay_mmap_add_dev(&s.map, dev.pd));
	must(inlay_mmap_add(&s.map, inlay_source_host(s.page, 4096)));
	must(inlay_mmap_add(&s.map, inlay_source_host(s.page + 4096, 4096)));
	must(inlay_mmap_add(&s.map, inlay_source_dm(s.ibdm, 0, 4096)));
	must(inlay_mmap_add(&s.map, inlay_source_dmabuf(0, memory, 0, 4096)));
	s.pci_memory = pages(inlay_mmap_size(1, 2));
	pci_make();
	s.pci_keys = pages(inlay_mmap_pci_size(&s.pci));
	s.their_memory = pages(65536);
	list = ibv_get_device_list(NULL);
	assert_true(list[0] && list[1]);
	must(inlay_devx_open(list[1], &s.other));
	ibv_free_device_list(list);
	s.other_pd = made(ibv_alloc_pd(s.other));
	s.region.start = (uintptr_t)s.page;
	s.region.len = 4096;
	s.region.access = IBV_ACCESS_LOCAL_WRITE;
}

static int command(UNUSED void *plugin, UNUSED struct inlay_task_cmd *cmd)
{
	return 0;
}

static const struct inlay_task_plugin plugin = {INLAY_TASK_VERSION, "none", NULL, NULL, NULL, NULL, command,
						NULL};
static const struct inlay_task_entry entry = {1, &plugin, NULL};

static void tasks_make(void)
{
	s.hp = inlay_task_host_default();
	s.hp.tasks = s.hp.windows = 1;
	s.hp.path.gid_index = dev.gid_index;
	s.wp = inlay_task_worker_default();
	s.wp.path.gid_index = dev.gid_index;
	s.wp.connections = 1;
	s.wp.plugins = &entry;
	s.wp.num_plugins = 1;
	s.host_memory = pages(inlay_task_host_size(&s.hp));
	s.conn_memory = pages(inlay_task_conn_size(&s.wp));
}

static void commands_make(void)
{
	s.path = path_usual();
	s.dcqa = cq_want(64, 64);
	s.rmpa = srq_want(16, 64, 0);
	s.drqa.cq = &s.dcq.cq;
	s.drqa.pdn = rig.pdn;
	s.drqa.ring = place_ring(16 * 16);
	s.drqa.record = place_record();
	s.drqa.wqes = s.drqa.stride = 16;
	s.keya.addr = 0x100000;
	s.keya.len = 8192;
	s.keya.memory = place_ring(8192);
	s.keya.pdn = rig.pdn;
	s.keya.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
	s.uma.pdn = rig.pdn;
	s.uma.access = s.keya.access;
	s.xrqa = srq_want(16, 64, 0);
	s.xrqa.tags = 16;
}

devx_test(every_function)
{
	bool watches;

	need_softdev("every kind of object");
	verbs_make();
	tasks_make();
	commands_make();
	watches = !monitor_init(NULL); /* a container may forbid it */
	if (watches)
		monitor_fini();
	for (const struct row *r = rows; r < rows + ARRAY(rows); r++) {
		if (!strncmp(r->name, "monitor", 7) && !watches)
			continue;
		if (r->run) {
			each_call(r, false);
			each_call(r, true);
			must(r->keep ? r->run(NULL) : 0);
			continue;
		}
		if (r->before)
			r->before();
		if (r->undo)
			r->undo();
	}
	assert_int_equal(faults.num, watches ? 49 : 46); /* as many as there are macros above that can fail */
}

int main(void)
{
	if (!rig_here())
		return 0;
	return run_all(rig_open, NULL); /* the end of the process takes what all rows share */
}
