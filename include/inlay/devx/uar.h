/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/uar.h: a doorbell register for queues that are made by device commands, and the number of a completion vector's event queue.
 *
 *   struct inlay_devx_uar uar;
 *
 *   inlay_devx_uar_alloc(&uar, ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL);
 *   qp_attr.uar = cq_attr.uar = &uar;                  QPs ring it as its mode allows (queue/uar.h); CQs are armed in its page
 *   ...
 *   inlay_devx_uar_free(&uar);                         when all that was made with it is destroyed
 *
 * A register is the only thing that no command gives: libmlx5 asks the kernel for it. The device drops a doorbell that is rung in another
 * page than its queue was created with, silently.
 *
 * Threads: as queue/uar.h has it.
 * Sources: mlx5dv_devx_alloc_uar(3), mlx5dv_devx_query_eqn(3); libmlx5's verbs.c (where the registers are in a page).
 */
#ifndef INLAY_DEVX_UAR_H
#define INLAY_DEVX_UAR_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/devx/call.h>
#include <inlay/devx/ifc/hca.h>
#include <inlay/queue/uar.h>

/* A register, and what commands call it. In caller memory; lives as long as a queue was created with it. */
struct inlay_devx_uar {
	struct inlay_uar uar;
	struct mlx5dv_devx_uar *devx;
	uint8_t *page;    /* where its page begins: CQs are armed there */
	uint32_t page_id; /* its number in commands */
	uint32_t reserved;
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/*
 * Asks for a register.
 *
 * ctx   from inlay_devx_open
 * type  MLX5DV_UAR_ALLOC_TYPE_BF: write-combining, of nobody else's, for BlueFlame copies; MLX5DV_UAR_ALLOC_TYPE_NC: for doorbells only.
 *       All who ask libmlx5 44 for NC on one context get the same
 * mode  enum inlay_uar_mode
 *
 * Returns 0; -EINVAL for a mode or register that cannot be; else the negative errno of mlx5dv_devx_alloc_uar (where the machine cannot map
 * write-combining pages, BF fails and NC is left) or, for BF, that of asking the device how large its registers are. On failure nothing is
 * left behind, and uar->devx is NULL.
 */
INLAY_COLD int inlay_devx_uar_alloc(struct inlay_devx_uar *uar, struct ibv_context *ctx, uint32_t type, uint32_t mode)
{
	struct inlay_query_hca_cap_out cap;
	uint32_t size = 0;
	int err;

	INLAY_CHECK(uar && ctx, "no argument is NULL");
	__builtin_memset(uar, 0, sizeof(*uar));
	if (type == MLX5DV_UAR_ALLOC_TYPE_BF) {
		err = inlay_devx_query_cap(ctx, INLAY_CAP_GENERAL, &cap, NULL);
		if (err)
			return err;
		if (inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_BF))
			size = (1u << inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_LOG_BF_REG_SIZE)) / 2;
	}
	errno = 0;
	uar->devx = mlx5dv_devx_alloc_uar(ctx, type);
	if (!uar->devx)
		return errno ? -errno : -ENOMEM;
	err = inlay_uar_init(&uar->uar, uar->devx->reg_addr, size, mode);
	if (err) {
		mlx5dv_devx_free_uar(uar->devx);
		uar->devx = NULL;
		return err;
	}
	uar->page = (uint8_t *)uar->devx->base_addr;
	uar->page_id = uar->devx->page_id;
	return 0;
}

/*
 * Gives it back: libmlx5 keeps it for who asks next. Nothing happens to one that is zeroed or was never allocated.
 *
 * Returns 0; -EBUSY when a send queue is left on it, and then it is as it was. CQs are not counted: destroy them first.
 */
INLAY_COLD int inlay_devx_uar_free(struct inlay_devx_uar *uar)
{
	INLAY_CHECK(uar, "no argument is NULL");
	if (!uar->devx)
		return 0;
	if (uar->uar.queues)
		return -EBUSY;
	mlx5dv_devx_free_uar(uar->devx);
	__builtin_memset(uar, 0, sizeof(*uar));
	return 0;
}

/*
 * The event queue of a completion vector, 0 .. ctx->num_comp_vectors - 1: what CREATE_CQ asks for. Returns 0, or a negative errno: -ENOENT
 * when there is no such vector.
 */
INLAY_COLD int inlay_devx_eqn(uint32_t *eqn, struct ibv_context *ctx, uint32_t vector)
{
	INLAY_CHECK(eqn && ctx, "no argument is NULL");
	return -mlx5dv_devx_query_eqn(ctx, vector, eqn);
}

#endif
