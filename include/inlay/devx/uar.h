/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/uar.h: a doorbell register for queues made by device commands.
 *
 *   struct inlay_devx_uar uar;
 *
 *   inlay_devx_uar_alloc(&uar, ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL);
 *   qp_attr.uar = cq_attr.uar = &uar;            QPs ring it; CQs are armed in its page
 *   inlay_devx_uar_free(&uar);                   after all queues made with it are destroyed
 *
 * The device silently drops a doorbell in another page than the queue's own.
 *
 * Threads: as queue/uar.h, by mode.
 * Sources: mlx5dv_devx_alloc_uar(3); libmlx5's verbs.c (registers in a page).
 */
#ifndef INLAY_DEVX_UAR_H
#define INLAY_DEVX_UAR_H /* a trial: names may change */

#include <inlay/devx/call.h>
#include <inlay/queue/uar.h>

/* A register. Keep it as long as a queue rings it. */
struct inlay_devx_uar {
	struct inlay_uar uar;
	struct mlx5dv_devx_uar *devx; /* NULL: not allocated */
	uint8_t *page;                /* its page, in which CQs are armed */
	uint32_t page_id;             /* in commands */
	uint32_t reserved;
};

/*
 * Allocates a register.
 *
 * type  MLX5DV_UAR_ALLOC_TYPE_BF: write-combining, not shared, for BlueFlame copies.
 *       MLX5DV_UAR_ALLOC_TYPE_NC: for doorbells only; libmlx5 44 has one for each context
 * mode  enum inlay_uar_mode
 *
 * Returns 0; -EINVAL for an impossible mode or register; else the negative errno of
 * mlx5dv_devx_alloc_uar (BF fails on machines that cannot map write-combining pages; try NC) or,
 * for BF, of the query for the registers' size. On failure uar->devx is NULL.
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
		if (inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_BF))
			size = (1u << inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_LOG_BF_REG_SIZE)) / 2;
	}
	errno = 0;
	uar->devx = mlx5dv_devx_alloc_uar(ctx, type);
	if (!uar->devx)
		return errno ? -errno : -ENOMEM;
	uar->page = (uint8_t *)uar->devx->base_addr;
	uar->page_id = uar->devx->page_id;
	err = inlay_uar_init(&uar->uar, uar->devx->reg_addr, size, mode);
	if (err) {
		mlx5dv_devx_free_uar(uar->devx);
		uar->devx = NULL;
	}
	return err;
}

/*
 * Frees the register. Returns 0, or -EBUSY while a send queue uses it. CQs are not counted: destroy
 * them first.
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

#endif
