/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: workers and hosts in one process, for the tests of command tasks: each worker with two pools, one that payloads are read to
 * and one that answers are made in; each line a host and its connection at a worker. Include common.h first.
 */
#ifndef TESTS_TASK_RIG_H
#define TESTS_TASK_RIG_H

#include <inlay/task.h>
#include "messages.h"

#define LARGE 16384u            /* bytes of the longest payload and the longest response */
#define NEAR 16u                /* buffers that can be chained with a task's own: their descriptors lie near */

/* Registered memory with a map over it */
struct region {
	uint8_t *at;
	void *map_memory;
	struct ibv_mr *mr;
	struct inlay_mmap map;
};

struct desk {
	struct inlay_task_worker worker;
	struct inlay_task_worker_params params;
	struct region pulled, answers;
	struct inlay_pool *pull, *pool;
	void *pull_memory, *pool_memory;
};

struct line {
	struct inlay_task_host host;
	struct inlay_task_conn conn;
	struct desk *desk;
	void *host_memory, *conn_memory;
	void *near_memory;      /* behind the host's: for an inventory of NEAR buffers */
};

static void region_make(struct region *r, size_t len, int windows)
{
	struct inlay_keys keys;

	r->at = (uint8_t *)pages(len);
	r->map_memory = pages(inlay_mmap_size(1, 1));
	must(inlay_mmap_create(&r->map, r->map_memory, inlay_mmap_size(1, 1), 1, 1));
	if (windows) {
		r->mr = ibv_reg_mr(dev.pd, r->at, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
		must(inlay_mmap_set_permissions(&r->map, INLAY_LOCAL_READ_WRITE | INLAY_MW_BIND));
	} else {
		r->mr = ibv_reg_mr(dev.pd, r->at, len, IBV_ACCESS_LOCAL_WRITE);
	}
	assert_non_null(r->mr);
	keys.lkey = r->mr->lkey;
	keys.rkey = INLAY_NO_KEY;
	must(inlay_mmap_add_dev(&r->map, dev.pd));
	must(inlay_mmap_add(&r->map, inlay_source_keys((uintptr_t)r->at, len, keys)));
	must(inlay_mmap_start(&r->map));
}

static void region_free(struct region *r)
{
	must(inlay_mmap_destroy(&r->map));
	must(ibv_dereg_mr(r->mr));
	free(r->map_memory);
	free(r->at);
}

static void pool_make(struct inlay_pool **pool, void **memory, struct region *r, uint32_t num)
{
	region_make(r, num * LARGE, 0);
	*memory = pages(inlay_pool_size(num));
	must(inlay_pool_create(*memory, inlay_pool_size(num), num, LARGE, &r->map, pool));
	must(inlay_pool_start(*pool));
}

/* num: elements of each pool */
UNUSED static struct desk *desk_make(const struct inlay_task_worker_params *p, const struct inlay_task_entry *entries, uint32_t num_entries,
				     uint32_t num)
{
	struct desk *d = (struct desk *)pages(sizeof(*d));

	pool_make(&d->pull, &d->pull_memory, &d->pulled, num);
	pool_make(&d->pool, &d->pool_memory, &d->answers, num);
	d->params = *p;
	d->params.plugins = entries;
	d->params.num_plugins = num_entries;
	d->params.pool = d->pull;
	must(inlay_task_worker_create(&d->worker, dev.pd, &d->params, NULL));
	return d;
}

UNUSED static void desk_free(struct desk *d)
{
	must(inlay_task_worker_destroy(&d->worker));
	must(inlay_pool_destroy(d->pull));
	must(inlay_pool_destroy(d->pool));
	region_free(&d->pulled);
	region_free(&d->answers);
	free(d->pull_memory);
	free(d->pool_memory);
	free(d);
}

/* Answers with what the handler has left in the command */
UNUSED static int respond(struct inlay_task_cmd *cmd, int status)
{
	return inlay_task_cmd_answer(cmd, status, cmd->response, cmd->response_len);
}

UNUSED static void line_make(struct line *l, struct desk *d, const struct inlay_task_host_params *p)
{
	l->desk = d;
	l->host_memory = pages(inlay_task_host_size(p) + INLAY_CACHE_LINE + inlay_inventory_size(NEAR));
	l->near_memory = (uint8_t *)l->host_memory + inlay_round_up(inlay_task_host_size(p), INLAY_CACHE_LINE);
	l->conn_memory = pages(inlay_task_conn_size(&d->params));
	must(inlay_task_host_create(&l->host, l->host_memory, inlay_task_host_size(p), dev.pd, p, NULL));
	must(inlay_task_conn_create(&l->conn, l->conn_memory, inlay_task_conn_size(&d->params), &d->worker, &l->host.link.self,
				    INLAY_TASK_ADDRESS, NULL));
	must(inlay_task_host_connect(&l->host, &l->conn.link.self, INLAY_TASK_ADDRESS, NULL));
}

UNUSED static void line_free(struct line *l)
{
	must(inlay_task_host_destroy(&l->host));
	must(inlay_task_conn_destroy(&l->conn));
	free(l->host_memory);
	free(l->conn_memory);
}

#endif
