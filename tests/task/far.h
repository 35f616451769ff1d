/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far.h: what tests of the plugins rdma and rdmo share: the memory that a host has them work on, and their commands.
 */
#ifndef TESTS_TASK_FAR_H
#define TESTS_TASK_FAR_H

#include "common.h"
#include "../../examples/plugins/rdma.h"
#include "../../examples/plugins/rdmo.h"
#include "rig.h"

#define TASKS 24u

/* Memory, a queue pair that lets others into it, and a map of it */
struct far {
	struct inlay_task_link link;
	struct ibv_cq *ibcq;
	struct inlay_cq cq;
	struct inlay_mmap map;
	void *map_mem;
	uint8_t *around, *mem;          /* as much on both sides, which nothing may write to */
	size_t bytes;
	uint8_t blob[256];
	size_t blob_len;
};

static const struct inlay_task_entry entries[] = {{RDMA_ID, &rdma_plugin, NULL}, {RDMO_ID, &rdmo_plugin, NULL}};

/* A worker of two connections with both plugins */
UNUSED static struct desk *plugins_desk(void)
{
	struct inlay_task_worker_params p = inlay_task_worker_default();

	p.connections = 2;
	p.path.timeout = 8;
	p.path.retry_count = 1;
	p.message = 2048;
	return desk_make(&p, entries, ARRAY(entries), 4);
}

/* message: what the endpoint is told that this side takes */
UNUSED static void far_make(struct far *f, size_t bytes, uint32_t message, uint32_t permissions)
{
	struct inlay_connect_attr path = inlay_task_host_default().path;
	struct inlay_task_caps caps = {};

	f->around = (uint8_t *)pages(3 * bytes);
	f->mem = f->around + bytes;
	f->bytes = bytes;
	f->map_mem = pages(inlay_mmap_size(1, 1));
	must(inlay_mmap_create(&f->map, f->map_mem, inlay_mmap_size(1, 1), 1, 1));
	must(inlay_mmap_add_dev(&f->map, dev.pd));
	must(inlay_mmap_add(&f->map, inlay_source_host(f->mem, bytes)));
	must(inlay_mmap_set_permissions(&f->map, INLAY_LOCAL_READ_WRITE | permissions));
	must(inlay_mmap_start(&f->map));
	f->blob_len = sizeof(f->blob);
	must(inlay_mmap_export_rdma(&f->map, dev.pd, f->blob, &f->blob_len));
	f->ibcq = made(ibv_create_cq(dev.pd->context, 256, NULL, NULL, 0));
	must(inlay_cq_from_cq(&f->cq, f->ibcq, NULL));
	caps.pd = dev.pd;
	caps.ibcq = f->ibcq;
	caps.cq = &f->cq;
	caps.sends = 8;
	f->link.self.role = INLAY_TASK_HOST;
	f->link.self.message = message;
	f->link.self.receives = 16;
	caps.max_gather = 1;
	caps.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	path.timeout = 8;
	path.retry_count = 1;
	must(inlay_task_link_create(&f->link, &caps, &path, NULL));
}

UNUSED static void far_free(struct far *f)
{
	must(inlay_task_link_destroy(&f->link));
	must(ibv_destroy_cq(f->ibcq));
	must(inlay_mmap_destroy(&f->map));
	free(f->map_mem);
	assert_true(all_bytes(f->around, f->bytes, 0) && all_bytes(f->mem + f->bytes, f->bytes, 0));
	free(f->around);
}

UNUSED static struct rdma_request ask(uint32_t op, uint64_t ep, uint64_t map, uint64_t addr, uint32_t bytes, const void *data)
{
	struct rdma_request r = {};

	r.op = op;
	r.ep = ep;
	r.map = map;
	r.addr = addr;
	r.bytes = bytes;
	r.data = (const uint8_t *)data;
	return r;
}

/* Fills a task; returns where its data goes */
UNUSED static uint8_t *request(struct inlay_task *t, uint64_t plugin, const struct rdma_request *r)
{
	struct inlay_buf *buf = inlay_task_payload(t);
	uint8_t *at = (uint8_t *)inlay_buf_head(buf);

	must(inlay_task_set_plugin(t, plugin));
	rdma_request_write(at, r);
	must(inlay_buf_set_data(buf, at, RDMA_HEAD + (rdma_has_data(r->op) ? r->bytes : 0)));
	if (r->data)
		memcpy(at + RDMA_HEAD, r->data, r->bytes);
	return at + RDMA_HEAD;
}

#endif
