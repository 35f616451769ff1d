/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd.h: a command while it runs: its attributes in and out, and the functions that run each, by
 * file.
 */
#ifndef SOFTDEV_CMD_H
#define SOFTDEV_CMD_H

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include "kernel.h"

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

/* ---- mr.c ---- */
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

/* ---- wq.c ---- */
int sd_cmd_wq_create(struct sd_cmd *c);
int sd_cmd_wq_destroy(struct sd_cmd *c);
int sd_cmd_wq_modify(struct sd_cmd *c);
int sd_cmd_ind_tbl_create(struct sd_cmd *c);
int sd_cmd_ind_tbl_destroy(struct sd_cmd *c);

/* ---- flow.c ---- */
int sd_cmd_flow_create(struct sd_cmd *c);
int sd_cmd_flow_destroy(struct sd_cmd *c);
int sd_cmd_flow_match(struct sd_cmd *c);

/* ---- matcher.c ---- */
int sd_cmd_matcher_create(struct sd_cmd *c);
int sd_cmd_matcher_destroy(struct sd_cmd *c);
int sd_match_params(const struct ib_uverbs_attr *a, uint8_t fte[SD_FTE]);

/* ---- devx.c, umem.c ---- */
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

/* ---- xrc.c ---- */
int sd_cmd_xrcd_open(struct sd_cmd *c);
int sd_cmd_xrcd_destroy(struct sd_cmd *c);

/* ---- srq.c ---- */
int sd_cmd_srq_create(struct sd_cmd *c);
int sd_cmd_srq_destroy(struct sd_cmd *c);
int sd_cmd_srq_modify(struct sd_cmd *c);
int sd_cmd_srq_query(struct sd_cmd *c);

#endif
