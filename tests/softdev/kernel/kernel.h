/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel.h: the uverbs commands: a command while it runs, the functions that run each, by file, and what
 * these files share.
 *
 * Objects have handles, as in the kernel. A handle is an index into one table. It is valid only in
 * the context that made it and only for the kind of object that it was made for. All functions are
 * called with sd_lock held, unless said otherwise.
 */
#ifndef SOFTDEV_KERNEL_H
#define SOFTDEV_KERNEL_H

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include "../firmware/firmware.h"

/* Objects in the order in which a closed context gets rid of what is left */
enum sd_kind { SD_NONE, SD_FLOW, SD_MATCHER, SD_DEVX, SD_UMEM, SD_QP, SD_IND_TBL, SD_WQ, SD_SRQ, SD_CQ, SD_MW, SD_MR, SD_DM, SD_AH, SD_XRCD,
	       SD_PD, SD_UAR, SD_KINDS };

/* ---- uverbs.c: a command while it runs, with its attributes ---- */
/* Methods that later headers have */
#define SD_METHOD_QUERY_PORT_SPEED 7
enum { SD_ATTR_QUERY_PORT_SPEED_PORT_NUM, SD_ATTR_QUERY_PORT_SPEED_RESP };
#define SD_METHOD_REG_MR 5
/* 2: a DMA handle, 7 and 8: a dma-buf */
enum { SD_ATTR_REG_MR_HANDLE, SD_ATTR_REG_MR_PD_HANDLE, SD_ATTR_REG_MR_IOVA = 3, SD_ATTR_REG_MR_ADDR, SD_ATTR_REG_MR_LENGTH,
       SD_ATTR_REG_MR_ACCESS_FLAGS, SD_ATTR_REG_MR_RESP_LKEY = 9, SD_ATTR_REG_MR_RESP_RKEY };

#define SD_ATTRS 32               /* attributes of the core's and of the driver's name space */

struct sd_cmd {
	struct sd_ctx *ctx;
	struct ib_uverbs_attr *at[2 * SD_ATTRS];
};

/* All that return an int: 0 or a positive errno */
int sd_copy(void *here, uint64_t there, size_t len, bool out);
struct ib_uverbs_attr *sd_attr(const struct sd_cmd *c, unsigned id); /* NULL: not there */
uint64_t sd_in_u64(const struct sd_cmd *c, unsigned id, uint64_t otherwise);
int sd_in(const struct ib_uverbs_attr *a, void *to, size_t size);
int sd_out(struct ib_uverbs_attr *a, const void *from, size_t size);
#define SD_OUT(c, id, value) sd_out(sd_attr(c, id), &(value), sizeof(value))
void *sd_in_obj(const struct sd_cmd *c, unsigned id, enum sd_kind kind);
void sd_out_obj(const struct sd_cmd *c, unsigned id, uint32_t handle);
/* EFAULT: the object's maker cannot be told of it */
int sd_undo(const struct sd_cmd *c, enum sd_kind kind, uint32_t handle);
int sd_event_fd(struct sd_cmd *c, unsigned id, struct sd_channel **ch);
int sd_cmd_destroy(struct sd_cmd *c, enum sd_kind kind, unsigned id);   /* what has neither events nor an answer */
/* Takes sd_lock; 0 or a positive errno. In a context that fork() inherited, only questions to the device and device memory are left */
int sd_ioctl(struct sd_ctx *ctx, void *arg, bool inherited);

/* ---- objects.c ---- */
void sd_ctx_free(struct sd_ctx *ctx);            /* with all that was made in it */
int sd_handle_new(struct sd_ctx *ctx, enum sd_kind kind, void *obj, uint32_t *handle);
void *sd_handle_get(struct sd_ctx *ctx, enum sd_kind kind, uint32_t handle);
void *sd_handle_any(struct sd_ctx *ctx, uint32_t handle, enum sd_kind *kind);
void sd_handle_free(uint32_t handle);

int sd_ctx_open(unsigned dev, bool cloexec);    /* takes sd_lock; an fd or -errno */

/* All answer 0 or a positive errno, as the ioctl does */
int sd_pd_create(struct sd_ctx *ctx, uint32_t *handle, uint32_t *pdn);
int sd_uid_new(struct sd_ctx *ctx);
void sd_uid_free(struct sd_ctx *ctx);
int sd_uar_create(struct sd_ctx *ctx, uint32_t *handle, uint32_t *page_id);
int sd_ah_create(struct sd_ctx *ctx, struct sd_pd *pd, const struct ib_uverbs_ah_attr *at, uint32_t *handle, uint8_t dmac[6]);
int sd_destroy(struct sd_ctx *ctx, enum sd_kind kind, uint32_t handle, uint32_t *events, uint32_t *async_events);

struct sd_cq_args {
	uint64_t buf, db, user_handle;
	uint32_t entries, cqe_size, page_id;
	bool ignore_overrun, timestamp, padded;
	uint8_t compression, mini_format;
	struct sd_channel *channel, *async;
};
int sd_cq_create(struct sd_ctx *ctx, const struct sd_cq_args *a, uint32_t *handle, uint32_t *cqn);
int sd_cq_resize(struct sd_cq *cq, uint32_t cqe, uint64_t buf, uint32_t cqe_size);

/* Events; sd_hooks */
void sd_cq_event(struct sd_cq *cq);
void sd_async_cq(struct sd_cq *cq, enum ibv_event_type type);
void sd_async_qp(struct sd_qp *qp, enum ibv_event_type type);
void sd_async_srq(struct sd_srq *srq, enum ibv_event_type type);
void sd_async_port_down(unsigned dev);
void sd_async_wq(struct host_wq *wq);           /* it has stopped */

/* ---- qp.c ---- */
struct sd_qp_args {
	enum ibv_qp_type type;
	struct sd_pd *pd;
	struct sd_cq *send_cq, *recv_cq;
	struct sd_srq *srq;
	struct sd_channel *async;
	uint64_t user_handle;
	struct ibv_qp_cap cap;
	bool sig_all, strip_vlan, no_self;
	const struct mlx5_ib_create_qp *drv;
	struct sd_domain *xrcd;   /* of an XRC receive QP, which has no PD and no CQ */
};
int sd_qp_create(struct sd_ctx *ctx, struct sd_qp_args *a, uint32_t *handle, uint32_t *qpn);
/* A DCT or an XRC receive QP, which have no queue of their own */
int sd_qp_create_target(struct sd_ctx *ctx, struct sd_qp_args *a, uint32_t *handle, uint32_t *qpn);
/* A QP that spreads packets over a table's WQs, and has no number */
int sd_qp_create_rss(struct sd_ctx *ctx, struct sd_qp_args *a, struct sd_tir *tir, uint32_t *handle);
int sd_qp_modify(struct sd_qp *qp, const struct ib_uverbs_modify_qp *cmd);
void sd_qp_query(struct sd_qp *qp, struct ib_uverbs_query_qp_resp *resp);
int sd_qp_mcast(struct sd_qp *qp, const uint8_t gid[16], uint16_t lid, bool attach);

/* ---- mr.c: EBUSY for what is in use ---- */
int sd_dm_free(struct host_dm *dm);
uint64_t *sd_dm_map(unsigned dev);
int sd_dm_start(void);                           /* before the first context; 0 or -errno */
int sd_cmd_mr_reg(struct sd_cmd *c);
int sd_cmd_mr_reg_legacy(struct sd_cmd *c);
int sd_cmd_mr_rereg(struct sd_cmd *c);
int sd_cmd_mr_query(struct sd_cmd *c);
int sd_cmd_mr_advise(struct sd_cmd *c);
int sd_cmd_mr_destroy(struct sd_cmd *c);
int sd_cmd_mw_alloc(struct sd_cmd *c);
int sd_cmd_mw_destroy(struct sd_cmd *c);
int sd_cmd_dm_alloc(struct sd_cmd *c);
int sd_cmd_dm_free(struct sd_cmd *c);
int sd_cmd_dm_query(struct sd_cmd *c);
int sd_cmd_dm_reg(struct sd_cmd *c);

/* ---- xrc.c ---- */
void sd_xrcd_put(struct sd_domain *d);
int sd_cmd_xrcd_open(struct sd_cmd *c);
int sd_cmd_xrcd_destroy(struct sd_cmd *c);

/* ---- flow.c ---- */
struct sd_flow;
void sd_flow_free(struct sd_flow *f);
void sd_flow_deliver(const uint8_t *p, uint32_t len, void (*to)(struct sd_qp *qp, const struct raw_hit *hit, const void *arg),
		     const void *arg); /* sd_hooks */
int sd_cmd_flow_create(struct sd_cmd *c);
int sd_cmd_flow_destroy(struct sd_cmd *c);
int sd_cmd_flow_match(struct sd_cmd *c);

/* ---- matcher.c ---- */
#define SD_FTE 64u                /* bytes of a packet's outer headers, as rules of commands see them */
struct sd_matcher {
	uint16_t priority;
	uint8_t mask[SD_FTE];
	int refs;                 /* rules */
};
void sd_fte_of(const uint8_t *p, const struct raw_headers *h, uint8_t fte[SD_FTE]);
int sd_cmd_matcher_create(struct sd_cmd *c);
int sd_cmd_matcher_destroy(struct sd_cmd *c);
int sd_match_params(const struct ib_uverbs_attr *a, uint8_t fte[SD_FTE]);

/* ---- devx.c, devxfd.c, umem.c ---- */
int sd_devx_errno(uint8_t status);        /* as the kernel maps it for its own commands */
int sd_devx_free(struct sd_devx_obj *o);  /* 0 or a positive errno */
void sd_devx_drop(struct sd_devx_obj *o); /* its subscriptions */
uint16_t sd_devx_event_type(enum ibv_event_type type); /* the same as an EQE has it */
void sd_devx_event(struct sd_devx_obj *o, uint16_t type, uint8_t syndrome); /* sd_hooks */
struct sd_devx_file;
bool sd_devx_on(void);            /* needs no lock */
ssize_t sd_devx_read(int fd, void *buf, size_t size); /* takes sd_lock; bytes or -errno */
void sd_devx_file_closed(struct sd_devx_file *f);
void sd_devx_files_orphan(struct sd_ctx *ctx);
struct sd_devx_file *sd_devx_file_get(struct sd_ctx *ctx, int fd, bool commands);
int sd_devx_file_new(struct sd_ctx *ctx, bool commands, bool omit_data, int *fd);
int sd_devx_file_async(struct sd_devx_file *f, uint64_t wr_id, const uint8_t *out, size_t outlen);
bool sd_devx_file_room(const struct sd_devx_file *f, size_t outlen);
int sd_devx_subscribe(struct sd_devx_file *f, struct sd_devx_obj *o, const uint16_t *types, unsigned n, uint64_t cookie, int eventfd);
int sd_cmd_devx_other(struct sd_cmd *c);
int sd_cmd_devx_create(struct sd_cmd *c);
int sd_cmd_devx_modify(struct sd_cmd *c);
int sd_cmd_devx_query(struct sd_cmd *c);
int sd_cmd_devx_query_async(struct sd_cmd *c);
int sd_cmd_devx_destroy(struct sd_cmd *c);
int sd_cmd_devx_query_uar(struct sd_cmd *c);
int sd_cmd_devx_query_eqn(struct sd_cmd *c);
int sd_cmd_devx_async_cmd_fd(struct sd_cmd *c);
int sd_cmd_devx_async_event_fd(struct sd_cmd *c);
int sd_cmd_devx_subscribe(struct sd_cmd *c);
int sd_cmd_umem_reg(struct sd_cmd *c);
int sd_cmd_umem_dereg(struct sd_cmd *c);

/* ---- device.c ---- */
int sd_cmd_get_context(struct sd_cmd *c);
int sd_cmd_query_context(struct sd_cmd *c);
int sd_cmd_query_port(struct sd_cmd *c);
int sd_cmd_query_port_speed(struct sd_cmd *c);
int sd_cmd_query_vport(struct sd_cmd *c);
int sd_cmd_query_gid_entry(struct sd_cmd *c);
int sd_cmd_query_gid_table(struct sd_cmd *c);
int sd_cmd_query_device(struct sd_cmd *c);
int sd_cmd_query_device_ex(struct sd_cmd *c);
int sd_cmd_query_port_legacy(struct sd_cmd *c);

/* ---- wq.c ---- */
int sd_cmd_wq_create(struct sd_cmd *c);
int sd_cmd_wq_destroy(struct sd_cmd *c);
int sd_cmd_wq_modify(struct sd_cmd *c);
int sd_cmd_ind_tbl_create(struct sd_cmd *c);
int sd_cmd_ind_tbl_destroy(struct sd_cmd *c);

/* ---- srq.c ---- */
int sd_cmd_srq_create(struct sd_cmd *c);
int sd_cmd_srq_destroy(struct sd_cmd *c);
int sd_cmd_srq_modify(struct sd_cmd *c);
int sd_cmd_srq_query(struct sd_cmd *c);

#endif
