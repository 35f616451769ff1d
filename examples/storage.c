/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * storage.c: a storage target that does not know where its callers' memory is. A request names
 * blocks of the disk, and pieces of memory with the memory domain that they lie in. The target
 * pulls what is written, and pushes what is read, through buffers of a pool: by RDMA where the
 * domain is another host's memory, with the CPU where it is this process's. Here the initiator is
 * a second queue pair of this process; its memory comes as an exported map.
 */
#include "common/program.h"
#include <sys/uio.h>
#include <inlay/buf.h>
#include <inlay/inlay.h>
#include <inlay/memdomain.h>
#include <inlay/mmap.h>

#define BLOCK 4096u
#define SLOTS 8u                  /* requests at a time, each on its own part of the disk */
#define PART 16u                  /* blocks of a part */
#define MOST 6u                   /* blocks of a request */
#define BUFS 20u                  /* fewer than all requests may want */

struct target {
	struct inlay_cq cq;
	struct inlay_sq sq;
	struct inlay_memdomain_registry reg;
	struct inlay_memdomain_rdma rdma;
	struct inlay_memdomain_rdma_op ops[SLOTS];
	struct inlay_mmap map;    /* of the buffers */
	struct inlay_pool *pool;
	uint8_t *disk;
};

struct request {
	/* The caller's */
	struct inlay_memdomain *domain;
	void *domain_ctx;         /* for its callbacks: the keys of another host's memory */
	struct iovec iov[2];      /* in that domain */
	uint32_t iovcnt;
	uint32_t block, blocks;
	int write;
	/* The answer: 1 until then */
	int rc;
	/* The target's */
	struct target *target;
	struct inlay_buf *bufs[MOST];
	struct iovec ours[MOST];
};

/* ---- The target ---- */

/* All bytes are there, or the copy failed. */
static void copied(void *arg, int rc)
{
	struct request *r = (struct request *)arg;
	uint32_t i;

	for (i = 0; r->write && !rc && i < r->blocks; i++)
		memcpy(r->target->disk + (r->block + i) * (size_t)BLOCK, r->ours[i].iov_base, BLOCK);
	inlay_buf_dec_refcounts(NULL, r->bufs, r->blocks);
	r->rc = rc;
}

/* Begins a request. Returns 0: it will be answered; -EAGAIN: try again later; else why it cannot be. */
static int serve(struct target *t, struct request *r)
{
	struct inlay_memdomain_copy copy;
	uint32_t i;
	int err = inlay_pool_alloc_bulk(t->pool, r->bufs, r->blocks);

	if (err)
		return err;
	r->target = t;
	r->rc = 1;
	for (i = 0; i < r->blocks; i++) {
		r->ours[i].iov_base = inlay_buf_head(r->bufs[i]);
		r->ours[i].iov_len = BLOCK;
		if (!r->write)
			memcpy(r->ours[i].iov_base, t->disk + (r->block + i) * (size_t)BLOCK, BLOCK);
	}
	memset(&copy, 0, sizeof(copy));
	copy.src_iov = r->write ? r->iov : r->ours;
	copy.src_iovcnt = r->write ? r->iovcnt : r->blocks;
	copy.dst_iov = r->write ? r->ours : r->iov;
	copy.dst_iovcnt = r->write ? r->blocks : r->iovcnt;
	copy.src_ctx = r->write ? r->domain_ctx : NULL;
	copy.dst_ctx = r->write ? NULL : r->domain_ctx;
	copy.done = copied;
	copy.arg = r;
	err = r->write ? inlay_memdomain_pull(r->domain, &copy) : inlay_memdomain_push(r->domain, &copy);
	if (err)
		inlay_buf_dec_refcounts(NULL, r->bufs, r->blocks);
	return err;
}

/* Handles completions */
static void progress(struct target *t)
{
	const struct mlx5_cqe64 *cqe;

	while ((cqe = inlay_cq_peek(&t->cq))) {
		must(inlay_sq_release(&t->sq, cqe) >= 0, "releasing");
		must(inlay_memdomain_rdma_complete(&t->rdma, cqe) >= 0, "completing");
		inlay_cq_advance(&t->cq, 1);
	}
}

/* ---- Maps ---- */

static void map_make(struct inlay_mmap *m, struct ibv_pd *pd, void *at, size_t bytes, uint32_t permissions)
{
	size_t size = inlay_mmap_size(1, 1);

	need(inlay_mmap_create(m, memory(size), size, 1, 1), "a map");
	need(inlay_mmap_add_dev(m, pd), "its device");
	need(inlay_mmap_add(m, inlay_source_host(at, bytes)), "its range");
	need(inlay_mmap_set_permissions(m, permissions), "its permissions");
	need(inlay_mmap_start(m), "registering");
}

int main(int argc, char **argv)
{
	static struct target t;
	static struct request requests[SLOTS], *r, beyond;
	static uint8_t disk_is[SLOTS * PART], want[SLOTS][MOST]; /* what each block holds; what a read should find */
	uint64_t end = now_ns() + 20000000000, rnd = 1;
	uint32_t count = 2000, begun = 0, ended = 0, waited = 0, remote = 0, i;
	size_t bytes = SLOTS * MOST * BLOCK, len = 0;
	struct inlay_memdomain_peer peer = {sizeof(peer), NULL, 0, 0, NULL};
	struct inlay_mmap theirs, imported;
	struct inlay_uar uar;
	uint8_t *there, *here, *buffers;
	const struct option_of options[] = {{.name = "requests", .value = "N", .help = "how many (2000)", .number = &count,
					     .min = 1, .max = 1 << 20}, {0}};

	arguments(argc, argv, "A storage target over memory domains, and its initiator.", "", options);

	/* Two connected queue pairs */
	struct ibv_context *ctx = inlay_device_open(NULL, &why);
	must(ctx != NULL, "no mlx5 device: opening");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	must(pd && !inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 64, .max_send_sge = 4}};
	struct ibv_cq *ibcq = ibv_create_cq(ctx, (int)inlay_send_cqes(&init), NULL, NULL, 0);
	must(ibcq != NULL, "ibv_create_cq");
	init.send_cq = init.recv_cq = ibcq;
	struct ibv_qp *initiator = ibv_create_qp(pd, &init), *qp = ibv_create_qp(uar.pd, &init);
	must(qp && initiator, "ibv_create_qp");
	must(!inlay_connect_pair(qp, initiator, NULL, &why), "connecting");
	must(!inlay_cq_from_cq(&t.cq, ibcq, &why) && !inlay_sq_from_qp(&t.sq, qp, &uar, &t.cq, &why), "taking over");

	/* The initiator exports its memory; the target's blob would come over the wire. */
	there = (uint8_t *)memory(bytes);
	map_make(&theirs, pd, there, bytes, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE);
	must(inlay_mmap_export_rdma(&theirs, pd, NULL, &len) == -ENOBUFS, "asking for the export's length");
	void *blob = memory(len);
	need(inlay_mmap_export_rdma(&theirs, pd, blob, &len), "exporting");
	size_t size = inlay_mmap_import_size(blob, len);
	need(inlay_mmap_create_from_export(&imported, memory(size), size, pd, blob, len, NULL), "importing");
	peer.map = &imported;

	/* The target: buffers, and a domain for each kind of memory */
	buffers = (uint8_t *)memory(BUFS * BLOCK);
	map_make(&t.map, pd, buffers, BUFS * BLOCK, INLAY_LOCAL_READ_WRITE);
	size = inlay_pool_size(BUFS);
	need(inlay_pool_create(memory(size), size, BUFS, BLOCK, &t.map, &t.pool), "a pool");
	need(inlay_pool_start(t.pool), "cutting buffers");
	t.disk = (uint8_t *)memory(SLOTS * PART * BLOCK);
	here = (uint8_t *)memory(bytes);
	need(inlay_memdomain_registry_init(&t.reg), "a registry");
	need(inlay_memdomain_system_attach(inlay_memdomain_system(&t.reg)), "the system's domain");
	need(inlay_memdomain_rdma_create(&t.rdma, &t.reg, &t.map, pd, "initiator"), "the initiator's domain");
	need(inlay_memdomain_rdma_attach(&t.rdma, &t.sq, t.ops, SLOTS), "its queue");

	/* Requests at random: each slot has one at a time, for its part of the disk. */
	while (ended < count) {
		must(now_ns() < end, "serving in time");
		progress(&t);
		for (i = 0; i < SLOTS; i++) {
			uint8_t *at;
			uint32_t k, cut;
			int err;

			r = &requests[i];
			if (r->blocks && r->rc == 1)
				continue;
			if (r->blocks) { /* answered */
				need(r->rc, "a request");
				at = r->domain_ctx ? there + i * MOST * BLOCK : here + i * MOST * BLOCK;
				for (k = 0; k < r->blocks; k++)
					must(at[k * BLOCK] == want[i][k] && at[k * BLOCK + BLOCK - 1] == want[i][k], "finding the data");
				ended++;
				r->blocks = 0;
			}
			if (begun == count)
				continue;
			rnd = rnd * 6364136223846793005u + 1442695040888963407u;
			r->domain_ctx = rnd >> 63 ? &peer : NULL;
			r->domain = r->domain_ctx ? &t.rdma.domain : inlay_memdomain_system(&t.reg);
			r->write = rnd >> 62 & 1;
			r->blocks = 1 + (uint32_t)(rnd >> 40) % MOST;
			r->block = i * PART + (uint32_t)(rnd >> 50) % (PART - r->blocks + 1);
			at = r->domain_ctx ? there + i * MOST * BLOCK : here + i * MOST * BLOCK;
			for (k = 0; k < r->blocks; k++) {
				want[i][k] = r->write ? (uint8_t)(rnd >> (k + 33)) : disk_is[r->block + k];
				memset(at + k * BLOCK, r->write ? want[i][k] : 0xee, BLOCK);
			}
			cut = (uint32_t)(rnd >> 33) % (r->blocks * BLOCK); /* two pieces, of any length */
			r->iov[0].iov_base = at;
			r->iov[0].iov_len = cut;
			r->iov[1].iov_base = at + cut;
			r->iov[1].iov_len = r->blocks * BLOCK - cut;
			r->iovcnt = 2;
			err = serve(&t, r);
			if (err == -EAGAIN) { /* no buffers, or no room on the queue: another one, later */
				waited++;
				r->blocks = 0;
				continue;
			}
			need(err, "serving");
			begun++;
			remote += r->domain_ctx != NULL;
			for (k = 0; r->write && k < r->blocks; k++)
				disk_is[r->block + k] = want[i][k];
		}
	}
	/* Memory that the initiator did not export is refused before anything is posted. */
	beyond = (struct request){.domain = &t.rdma.domain, .domain_ctx = &peer, .iov = {{there + bytes, BLOCK}},
				  .iovcnt = 1, .blocks = 1, .write = 1};
	must(serve(&t, &beyond) == -ENOENT, "refusing memory that was not exported");
	must(inlay_pool_num_free(t.pool) == BUFS, "having all buffers back");
	printf("storage: %u requests, %s waited for buffers; data as written\n", ended, waited ? "some" : "none");
	must(remote && remote < count, "requests of both kinds of memory");

	need(inlay_memdomain_rdma_destroy(&t.rdma), "the domain's end");
	need(inlay_pool_destroy(t.pool), "the pool's end");
	need(inlay_mmap_destroy(&imported) || inlay_mmap_destroy(&theirs) || inlay_mmap_destroy(&t.map), "the maps' end");
	must(!ibv_destroy_qp(qp) && !ibv_destroy_qp(initiator), "destroying the queue pairs");
	inlay_sq_fini(&t.sq);
	must(!ibv_destroy_cq(ibcq) && !inlay_uar_destroy(&uar, &why) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx),
	     "closing down");
	return 0;
}
