/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * library.c: a library with inlay inside, as an MPI or an RPC system would be. versions.t compiles it
 * with headers of several versions.
 */
#ifndef _GNU_SOURCE /* C++ has it */
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <inlay/inlay.h>
#include <inlay/buf.h>
#include <inlay/memdomain.h>
#include "library.h"

#define NEED(ok, what) \
	do { \
		if (!(ok)) { \
			fprintf(stderr, "library of version %u: %s failed: %s\n", INLAY_VERSION, what, why ? why : ""); \
			return 0; \
		} \
	} while (0)

struct self {
	struct inlay_sq sq;
	struct inlay_uar uar;
	struct inlay_cq cq;
	struct inlay_mmap map;
	struct inlay_memdomain_registry registry;
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;
	struct ibv_qp *qp, *peer, *third;
	struct ibv_mr *mr;
	uint64_t target;
	void *map_memory;
};

static void *open_library(struct ibv_pd *pd)
{
	struct self *s = (struct self *)aligned_alloc(64, (sizeof(*s) + 63) / 64 * 64);
	struct ibv_qp_init_attr init = {};
	const char *why = NULL;

	memset(s, 0, sizeof(*s));
	s->pd = pd;
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = 16;
	init.cap.max_send_sge = 1;
	init.cap.max_inline_data = 16;
	NEED(!inlay_uar_create(&s->uar, pd, INLAY_UAR_SERIAL, &why), "a register");
	s->mr = ibv_reg_mr(pd, &s->target, sizeof(s->target), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	s->ibcq = ibv_create_cq(pd->context, 3 * (int)inlay_send_cqes(&init), NULL, NULL, 0);
	init.send_cq = init.recv_cq = s->ibcq;
	s->qp = ibv_create_qp(s->uar.pd, &init);
	s->third = ibv_create_qp(s->uar.pd, &init);
	s->peer = ibv_create_qp(pd, &init);
	NEED(s->mr && s->ibcq && s->qp && s->peer && s->third, "verbs");
	NEED(!inlay_connect_pair(s->qp, s->peer, NULL, &why), "connecting");
	NEED(!inlay_cq_from_cq(&s->cq, s->ibcq, &why) && !inlay_sq_from_qp(&s->sq, s->qp, &s->uar, &s->cq, &why), "taking over");
	s->map_memory = aligned_alloc(64, inlay_mmap_size(1, 1));
	NEED(!inlay_mmap_create(&s->map, s->map_memory, inlay_mmap_size(1, 1), 1, 1), "a map");
	NEED(!inlay_memdomain_registry_init(&s->registry), "a registry");
	return s;
}

static int close_library(void *self)
{
	struct self *s = (struct self *)self;
	const char *why = NULL;

	NEED(!inlay_mmap_destroy(&s->map), "a map that goes");
	NEED(!ibv_destroy_qp(s->qp) && !ibv_destroy_qp(s->third) && !ibv_destroy_qp(s->peer), "destroying the queue pairs");
	inlay_sq_fini(&s->sq);
	NEED(!ibv_destroy_cq(s->ibcq) && !ibv_dereg_mr(s->mr) && !inlay_uar_destroy(&s->uar, &why), "closing");
	free(s->map_memory);
	free(s);
	return 1;
}

static int write_values(void *self, unsigned n)
{
	struct self *s = (struct self *)self;
	const struct mlx5_cqe64 *cqe;
	const char *why = NULL;
	time_t end = time(NULL) + 60;

	for (uint64_t i = 1; i <= n; i++) {
		NEED(!inlay_post_write_inline(&s->sq, (uintptr_t)&s->target, s->mr->rkey, &i, sizeof(i), INLAY_SIGNALED), "a post");
		inlay_sq_ring(&s->sq);
		while (!(cqe = inlay_cq_peek(&s->cq)))
			NEED(time(NULL) < end, "a completion");
		NEED(!inlay_cqe_is_error(cqe) && inlay_sq_release(&s->sq, cqe) == 1, "a write");
		inlay_cq_advance(&s->cq, 1);
		NEED(*(volatile uint64_t *)&s->target == i, "finding the value");
	}
	return 1;
}

static void *object(void *self, int which)
{
	struct self *s = (struct self *)self;

	switch (which) {
	case OBJECT_UAR:
		return &s->uar;
	case OBJECT_CQ:
		return &s->cq;
	case OBJECT_MAP:
		return &s->map;
	default:
		return &s->registry;
	}
}

static int attach(void *self, int which, void *object, const char **why)
{
	static uint8_t memory[1 << 16] __attribute__((aligned(64)));
	struct self *s = (struct self *)self;
	struct inlay_memdomain *domain;
	struct inlay_pool *pool;
	struct inlay_sq sq;
	int err;

	switch (which) {
	case OBJECT_UAR:
		err = inlay_sq_from_qp(&sq, s->third, (struct inlay_uar *)object, NULL, why);
		if (!err)
			inlay_sq_fini(&sq);
		break;
	case OBJECT_CQ:
		err = inlay_cq_reserve((struct inlay_cq *)object, 1, why);
		if (!err)
			inlay_cq_unreserve((struct inlay_cq *)object, 1);
		break;
	case OBJECT_MAP:
		err = inlay_pool_create(memory, inlay_pool_size(4), 4, 64, (struct inlay_mmap *)object, &pool);
		*why = "a pool";
		break;
	default:
		err = inlay_memdomain_create((struct inlay_memdomain_registry *)object, memory, sizeof(memory),
					     INLAY_MEMDOMAIN_DMA, NULL, NULL, &domain);
		*why = "a domain";
		if (!err)
			err = inlay_memdomain_destroy(domain);
	}
	return err;
}

extern const struct library library;
const struct library library = {INLAY_VERSION, INLAY_CHECKED, offsetof(struct inlay_sq, mask), open_library, close_library, write_values,
				object, attach};
