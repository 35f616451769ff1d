/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared_memory.c: an exported map, end to end: what a peer that imports the blob reaches with
 * inlay's posts. Every range, every operation, what lies beyond, blobs that are stale. Permissions: map.c.
 * The owner's QP and the peer's are in one process: examples/shared_memory.c has two.
 */
#include "rig.h"

#define MAX_RANGES 4
#define BUF (64 * 1024u)
#define ALL (INLAY_LOCAL_READ_WRITE | REMOTE)

static struct end owner, e;             /* e: the peer's */
static struct map map, theirs;
static uint8_t *host;                   /* 32 pages: the first range, the odd one, the hidden one */
static struct ibv_dm *ibdm;
static struct inlay_dm dm;
static uint8_t blob[512];
static size_t blob_len;

static int open_here(void **state)
{
	struct ibv_alloc_dm_attr attr;

	if (dev_open(state))
		return -1;
	host = (uint8_t *)pages(32 * PAGE);
	memset(&attr, 0, sizeof(attr));
	attr.length = 2 * PAGE;
	ibdm = ibv_alloc_dm(dev.ctx, &attr);
	return ibdm ? inlay_dm_from_dm(&dm, ibdm, NULL) : 0;
}

static int close_here(void **state)
{
	map_free(&map);
	map_free(&theirs);
	end_free(&owner);
	end_free(&e);
	free(host);
	return (ibdm && ibv_free_dm(ibdm)) || dev_close(state) ? -1 : 0;
}

/* Fresh QPs on both sides: an error costs the pair */
static void meet(void)
{
	struct opt opt = usual;

	opt.cap.max_send_wr = opt.cap.max_recv_wr = 16;
	opt.cqe = 63;
	opt.bytes = BUF;
	if (e.qp) {
		end_free(&owner);
		end_free(&e);
	}
	ends_make(&owner, &e, &opt);
	end_take(&e, INLAY_UAR_DOORBELL);
}

static void import(bool coded)
{
	if (theirs.memory)
		map_free(&theirs);
	map_import(&theirs, dev.pd, blob, blob_len, coded ? &right : NULL);
}

/* The owner makes a map anew and exports it, the peer imports */
static void share(uint32_t permissions, bool coded)
{
	if (map.memory)
		map_free(&map);
	map_make(&map, 1, MAX_RANGES);
	must(inlay_mmap_add_dev(&map.m, dev.pd));
	must(inlay_mmap_add(&map.m, inlay_source_host(host, 16 * PAGE)));
	must(inlay_mmap_add(&map.m, inlay_source_host(host + 20 * PAGE + 40, 12344)));
	if (ibdm)
		must(inlay_mmap_add(&map.m, inlay_source_dm(ibdm, 256, 1024)));
	must(inlay_mmap_add(&map.m, limited(inlay_source_host(host + 30 * PAGE, PAGE), INLAY_LOCAL_READ_WRITE)));
	must(inlay_mmap_set_permissions(&map.m, permissions));
	map.m.mac = coded ? &right : NULL;
	must(inlay_mmap_start(&map.m));
	blob_len = sizeof(blob);
	must(inlay_mmap_export_rdma(&map.m, dev.pd, blob, &blob_len));
	import(coded);
}

/* The owner looks at a range, or writes to it */
static const uint8_t *peek(uint32_t range, uint32_t offset, uint32_t len)
{
	static uint8_t bytes[BUF];

	if (range == 2)
		must(inlay_dm_read(&dm, 256 + offset, bytes, len));
	else
		memcpy(bytes, (range ? host + 20 * PAGE + 40 : host) + offset, len);
	return bytes;
}

static void fill_range(uint32_t range, uint32_t len, uint32_t seed)
{
	static uint8_t bytes[BUF];

	fill(bytes, len, seed);
	if (range == 2)
		must(inlay_dm_write(&dm, 256, bytes, len));
	else
		memcpy(range ? host + 20 * PAGE + 40 : host, bytes, len);
}

/* One operation of the three, with a key; how it ended */
static enum ibv_wc_status reach(uint32_t op, uint64_t raddr, uint32_t rkey, uint32_t len)
{
	struct ibv_sge sge = sge_of(&e, 0, op == INLAY_RDMA_ATOMIC ? 8 : len);
	const struct mlx5_cqe64 *cqe;
	enum ibv_wc_status status;

	if (op == INLAY_RDMA_READ)
		must(inlay_post_read(&e.sq, raddr, rkey, &sge, 1, INLAY_SIGNALED));
	else if (op == INLAY_RDMA_WRITE)
		must(inlay_post_write(&e.sq, raddr, rkey, &sge, 1, INLAY_SIGNALED));
	else
		must(inlay_post_fetch_add(&e.sq, raddr, rkey, 0x100000001, &sge, INLAY_SIGNALED));
	inlay_sq_ring(&e.sq);
	cqe = cqe_wait(&e.cq);
	status = inlay_cqe_status(cqe);
	assert_true(0 < inlay_sq_release(&e.sq, cqe));
	inlay_cq_advance(&e.cq, 1);
	return status;
}

static void reached(uint32_t op, uint64_t raddr, uint32_t rkey, uint32_t len)
{
	assert_int_equal(reach(op, raddr, rkey, len), IBV_WC_SUCCESS);
}

/* The remote device refuses it; new QPs afterwards */
static void refused(uint32_t op, uint64_t raddr, uint32_t rkey, uint32_t len)
{
	assert_int_equal(reach(op, raddr, rkey, len), IBV_WC_REM_ACCESS_ERR);
	meet();
}

static uint32_t key(uint64_t addr, uint64_t len, uint32_t access)
{
	uint32_t rkey = 0;

	must(inlay_mmap_remote(&theirs.m, addr, len, access, &rkey));
	return rkey;
}

static void every_range(void **unused)
{
	uint32_t i, pass;
	uint64_t old;

	(void)unused;
	meet();
	for (pass = 0; pass < 2; pass++) {
		share(ALL, pass);
		/* The hidden one has not come along */
		assert_int_equal(theirs.m.num_ranges, ibdm ? 3 : 2);
		for (i = 0; i < theirs.m.num_ranges; i++) {
			const struct inlay_range *r = range_of(&theirs.m, i);
			const uint32_t len = (uint32_t)r->len, seed = 10 * pass + i + 1;
			const uint64_t word = (r->start + 8 * 25 + 7) & ~(uint64_t)7;

			assert_int_equal(len, i == 0 ? 16 * PAGE : i == 1 ? 12344 : 1024);
			assert_int_equal(r->access, REMOTE);
			/* Write all of it, and the owner sees it */
			fill(e.buf, len, seed);
			reached(INLAY_RDMA_WRITE, r->start, key(r->start, len, INLAY_RDMA_WRITE), len);
			assert_int_equal(differs(peek(i, 0, len), len, seed), len);
			/* The owner writes all of it, and the peer reads it */
			fill_range(i, len, seed + 100);
			memset(e.buf, 0, len);
			reached(INLAY_RDMA_READ, r->start, key(r->start, len, INLAY_RDMA_READ), len);
			assert_int_equal(differs(e.buf, len, seed + 100), len);
			/* An atomic: what was there comes back, what is there the owner sees */
			memcpy(&old, peek(i, (uint32_t)(word - r->start), 8), 8);
			reached(INLAY_RDMA_ATOMIC, word, key(word, 8, INLAY_RDMA_ATOMIC), 8);
			assert_memory_equal(e.buf, &old, 8);
			old += 0x100000001;
			assert_memory_equal(peek(i, (uint32_t)(word - r->start), 8), &old, 8);
		}
	}
}

static const uint32_t kinds[] = {INLAY_RDMA_READ, INLAY_RDMA_WRITE, INLAY_RDMA_ATOMIC};

static void out_of_range(void **unused)
{
	const struct inlay_range *r;
	struct inlay_keys hidden = {0, 0};
	uint64_t addr;
	uint32_t i, rkey;

	(void)unused;
	meet();
	share(ALL, false);
	for (i = 0; i < theirs.m.num_ranges; i++) {
		r = range_of(&theirs.m, i);
		assert_int_equal(inlay_mmap_remote(&theirs.m, r->start + r->len - 8, 9, INLAY_RDMA_WRITE, &rkey), -ENOENT);
		refused(INLAY_RDMA_WRITE, r->start + r->len - 8, r->rkey, 9);
		assert_int_equal(inlay_mmap_remote(&theirs.m, r->start - 1, 8, INLAY_RDMA_READ, &rkey), -ENOENT);
		refused(INLAY_RDMA_READ, r->start - 1, r->rkey, 8);
		/* Another range's key */
		refused(INLAY_RDMA_WRITE, r->start, range_of(&theirs.m, !i)->rkey, 8);
	}
	/* What is not granted is not in the blob; who guesses both address and key gets no further */
	addr = (uintptr_t)host + 30 * PAGE;
	must(inlay_mmap_keys(&map.m, map.m.num_ranges - 1, 0, &hidden));
	assert_int_equal(inlay_mmap_remote(&theirs.m, addr, 8, INLAY_RDMA_READ, &rkey), -ENOENT);
	refused(INLAY_RDMA_READ, addr, hidden.rkey, 8);
	refused(INLAY_RDMA_WRITE, addr, hidden.rkey, 8);
}

/* A blob outlives its map: it is imported, and what it names is there no more, whether the memory is exported anew or not */
static void stale(void **unused)
{
	uint8_t old[512];
	uint32_t i, k, op;
	size_t len;

	(void)unused;
	meet();
	share(ALL, true);
	memcpy(old, blob, sizeof(old));
	len = blob_len;
	for (i = 0; i < theirs.m.num_ranges; i++)
		fill_range(i, (uint32_t)range_of(&theirs.m, i)->len, 99);
	must(inlay_mmap_stop(&map.m));
	/* Of a map that was imported before, of one that is imported now, and of one while a new blob opens the memory */
	for (k = 0; k < 3; k++) {
		if (k == 2) {
			share(ALL, false);
			reached(INLAY_RDMA_READ, range_of(&theirs.m, 0)->start, range_of(&theirs.m, 0)->rkey, 8);
			memcpy(blob, old, sizeof(old));
			blob_len = len;
		}
		if (k)
			import(true);
		for (i = 0; i < theirs.m.num_ranges; i++) {
			const struct inlay_range *r = range_of(&theirs.m, i);

			for (op = 0; op < 3; op++)
				refused(kinds[op], r->start, key(r->start, 8, kinds[op]), 8);
			assert_int_equal(differs(peek(i, 0, (uint32_t)r->len), r->len, 99), r->len);
		}
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_range),
		cmocka_unit_test(out_of_range),
		cmocka_unit_test(stale),
	};

	return cmocka_run_group_tests_name("shared_memory", tests, open_here, close_here) || again_with("SOFTDEV_LINK", "ib");
}
