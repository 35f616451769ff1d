/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shared_memory.c: two processes, and memory maps between them, end to end. A, the child, makes
 * maps and exports them; B, which runs the tests, imports the blobs, which come through a socket,
 * and reaches A's memory with inlay's posts: every range, every operation, every permission and
 * what violates it, blobs that are stale. Each process has its own device; both are on one fabric.
 */
#include "rig.h"
#include <sys/socket.h>

#define MAX_RANGES 4
#define BUF (64 * 1024u)

enum what { CONNECT, EXPORT, FILL, PEEK, STOP, QUIT };

/* Where a QP is */
struct place {
	uint32_t qpn;
	uint16_t lid;
	union ibv_gid gid;
};

struct question {
	enum what what;
	struct place place;             /* CONNECT: B's */
	uint32_t permissions;           /* EXPORT */
	uint32_t coded;                 /* EXPORT: with a code? */
	uint32_t range;                 /* FILL, PEEK */
	uint32_t offset, len;           /* PEEK */
	uint32_t seed;                  /* FILL */
};

struct answer {
	struct place place;             /* CONNECT: A's */
	uint8_t blob[512];              /* EXPORT */
	size_t blob_len;
	uint64_t hidden;                /* EXPORT: a range that is not granted, and its key */
	uint32_t hidden_rkey;
	uint8_t bytes[BUF];             /* PEEK */
};

static int wire;
static struct place own;                /* but for the QP */
static struct end e;                    /* this process's */

static void put(const void *data, size_t len)
{
	assert_int_equal(send(wire, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* false: the other has gone */
static bool get(void *data, size_t len)
{
	return recv(wire, data, len, MSG_WAITALL) == (ssize_t)len;
}

static struct opt small(void)
{
	struct opt opt = usual;

	opt.cap.max_send_wr = opt.cap.max_recv_wr = 16;
	opt.cqe = 63;
	opt.bytes = BUF;
	return opt;
}

/* A new QP in place of the one there may be */
static struct place fresh_qp(void)
{
	struct opt opt = small();
	struct place p = own;

	if (e.qp)
		end_free(&e);
	end_make(&e, &opt);
	p.qpn = e.qp->qp_num;
	return p;
}

static void connect_to(const struct place *peer)
{
	/* common.h connects to its own port: from here on, that is the peer's */
	dev.port.lid = peer->lid;
	dev.gid = peer->gid;
	qp_init(e.qp, &e.opt);
	qp_connect(e.qp, peer->qpn, &e.opt);
	end_take(&e, INLAY_UAR_DOORBELL);
}

static int open_here(void **state)
{
	if (dev_open(state))
		return -1;
	own.lid = dev.port.lid;
	own.gid = dev.gid;
	return 0;
}

/* ---- A ---- */

static struct map map;
static uint8_t *host;                   /* 32 pages: the first range, the odd one, the hidden one */
static struct ibv_dm *ibdm;
static struct inlay_dm dm;

static uint8_t *range_memory(uint32_t i)
{
	return i == 0 ? host : host + 20 * PAGE + 40;
}

static void export_anew(const struct question *q, struct answer *a)
{
	struct inlay_keys keys = {0, 0};

	if (map.memory)
		map_free(&map);
	map_make(&map, 1, MAX_RANGES);
	must(inlay_mmap_add_dev(&map.m, dev.pd));
	must(inlay_mmap_add(&map.m, inlay_source_host(host, 16 * PAGE)));
	must(inlay_mmap_add(&map.m, inlay_source_host(host + 20 * PAGE + 40, 12344)));
	if (ibdm)
		must(inlay_mmap_add(&map.m, inlay_source_dm(ibdm, 256, 1024)));
	must(inlay_mmap_add(&map.m, limited(inlay_source_host(host + 30 * PAGE, PAGE), INLAY_LOCAL_READ_WRITE)));
	must(inlay_mmap_set_permissions(&map.m, q->permissions));
	map.m.mac = q->coded ? &right : NULL;
	must(inlay_mmap_start(&map.m));
	a->blob_len = sizeof(a->blob);
	must(inlay_mmap_export_rdma(&map.m, dev.pd, a->blob, &a->blob_len));
	a->hidden = (uintptr_t)host + 30 * PAGE;
	must(inlay_mmap_keys(&map.m, map.m.num_ranges - 1, 0, &keys));
	a->hidden_rkey = keys.rkey;
}

static void serve(void)
{
	static struct answer a;
	static uint8_t pattern[BUF];
	struct ibv_alloc_dm_attr attr;
	struct question q;

	must(open_here(NULL));
	host = (uint8_t *)pages(32 * PAGE);
	memset(&attr, 0, sizeof(attr));
	attr.length = 2 * PAGE;
	ibdm = ibv_alloc_dm(dev.ctx, &attr);
	if (ibdm)
		must(inlay_dm_from_dm(&dm, ibdm, NULL));
	while (get(&q, sizeof(q))) {
		memset(&a, 0, sizeof(a));
		switch (q.what) {
		case CONNECT:
			a.place = fresh_qp();
			connect_to(&q.place);
			break;
		case EXPORT:
			export_anew(&q, &a);
			break;
		case FILL:
			fill(pattern, BUF, q.seed);
			if (q.range == 2)
				must(inlay_dm_write(&dm, 256, pattern, 1024));
			else
				memcpy(range_memory(q.range), pattern, q.len);
			break;
		case PEEK:
			if (q.range == 2)
				must(inlay_dm_read(&dm, 256 + q.offset, a.bytes, q.len));
			else
				memcpy(a.bytes, range_memory(q.range) + q.offset, q.len);
			break;
		case STOP:
			must(inlay_mmap_stop(&map.m));
			assert_int_equal(inlay_mmap_start(&map.m), -EBADFD);
			break;
		default:
			map_free(&map);
			end_free(&e);
			if (ibdm)
				must(ibv_free_dm(ibdm));
			free(host);
			must(dev_close(NULL));
			put(&a, sizeof(a));
			return;
		}
		put(&a, sizeof(a));
	}
	fprintf(stderr, "the tests' process has gone\n");
	exit(1);
}

/* ---- B ---- */

static struct answer a;
static struct map theirs;

static struct answer *ask(const struct question *q)
{
	put(q, sizeof(*q));
	if (!get(&a, sizeof(a)))
		fail_msg("the exporting process has gone: see what it said");
	return &a;
}

static struct question about(enum what what)
{
	struct question q;

	memset(&q, 0, sizeof(q));
	q.what = what;
	return q;
}

/* Fresh QPs on both sides: an error costs the pair */
static void meet(void)
{
	struct question q = about(CONNECT);

	q.place = fresh_qp();
	connect_to(&ask(&q)->place);
}

static void import(const uint8_t *blob, size_t len, bool coded)
{
	if (theirs.memory)
		map_free(&theirs);
	map_import(&theirs, dev.pd, blob, len, coded ? &right : NULL);
}

/* A exports with these permissions, B imports */
static void share(uint32_t permissions, bool coded)
{
	struct question q = about(EXPORT);

	q.permissions = permissions;
	q.coded = coded;
	ask(&q);
	import(a.blob, a.blob_len, coded);
}

static const uint8_t *peek(uint32_t range, uint32_t offset, uint32_t len)
{
	struct question q = about(PEEK);

	q.range = range;
	q.offset = offset;
	q.len = len;
	return ask(&q)->bytes;
}

static void fill_theirs(uint32_t range, uint32_t len, uint32_t seed)
{
	struct question q = about(FILL);

	q.range = range;
	q.len = len;
	q.seed = seed;
	ask(&q);
}

/* One operation of the three, with a key; how it ended */
static enum ibv_wc_status reach(uint32_t op, uint64_t raddr, uint32_t rkey, uint32_t len)
{
	struct ibv_sge sge = sge_of(&e, 0, op == INLAY_RDMA_ATOMIC ? 8 : len);
	const struct mlx5_cqe64 *cqe;
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	if (op == INLAY_RDMA_READ)
		must(inlay_post_read(&e.sq, raddr, rkey, &sge, 1, INLAY_SIGNALED));
	else if (op == INLAY_RDMA_WRITE)
		must(inlay_post_write(&e.sq, raddr, rkey, &sge, 1, INLAY_SIGNALED));
	else
		must(inlay_post_fetch_add(&e.sq, raddr, rkey, 1, &sge, INLAY_SIGNALED));
	inlay_sq_ring(&e.sq);
	cqe = cqe_wait(&e.cq);
	if (inlay_cqe_is_error(cqe))
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
	uint64_t compare, old;
	uint32_t i, n, pass;

	(void)unused;
	meet();
	for (pass = 0; pass < 2; pass++) {
		share(INLAY_LOCAL_READ_WRITE | REMOTE, pass);
		n = theirs.m.num_ranges;
		/* The hidden one has not come along */
		assert_true(n == 2 || n == 3);
		if (softdev_present())
			assert_int_equal(n, 3);
		for (i = 0; i < n; i++) {
			const struct inlay_range *r = range_of(&theirs.m, i);
			const uint32_t len = (uint32_t)r->len, seed = 10 * pass + i + 1;
			const uint64_t word = (r->start + 8 * 25 + 7) & ~(uint64_t)7;
			struct ibv_sge sge = sge_of(&e, 0, 8);

			assert_int_equal(len, i == 0 ? 16 * PAGE : i == 1 ? 12344 : 1024);
			assert_int_equal(r->access, REMOTE);
			/* Write all of it, and A sees it */
			fill(e.buf, len, seed);
			reached(INLAY_RDMA_WRITE, r->start, key(r->start, len, INLAY_RDMA_WRITE), len);
			assert_int_equal(differs(peek(i, 0, len), len, seed), len);
			/* Its last word alone, inline, and nothing before */
			compare = 0x0123456789abcdef ^ seed;
			must(inlay_post_write_inline(&e.sq, r->start + len - 8, r->rkey, &compare, 8, INLAY_SIGNALED));
			inlay_sq_ring(&e.sq);
			sent(&e);
			peek(i, 0, len);
			assert_int_equal(differs(a.bytes, len - 8, seed), len - 8);
			assert_memory_equal(a.bytes + len - 8, &compare, 8);
			/* A writes all of it, and B reads it */
			fill_theirs(i, len, seed + 100);
			memset(e.buf, 0, len);
			reached(INLAY_RDMA_READ, r->start, key(r->start, len, INLAY_RDMA_READ), len);
			assert_int_equal(differs(e.buf, len, seed + 100), len);
			/* Atomics: what was there comes back, what is there A sees */
			memcpy(&old, peek(i, (uint32_t)(word - r->start), 8), 8);
			must(inlay_post_fetch_add(&e.sq, word, key(word, 8, INLAY_RDMA_ATOMIC), 0x100000001, &sge,
						  INLAY_SIGNALED));
			inlay_sq_ring(&e.sq);
			sent(&e);
			assert_memory_equal(e.buf, &old, 8);
			old += 0x100000001;
			assert_memory_equal(peek(i, (uint32_t)(word - r->start), 8), &old, 8);
			must(inlay_post_cmp_swap(&e.sq, word, r->rkey, old + 1, 5, &sge, INLAY_SIGNALED));
			must(inlay_post_cmp_swap(&e.sq, word, r->rkey, old, 77, &sge, INLAY_SIGNALED));
			inlay_sq_ring(&e.sq);
			sent(&e);
			sent(&e);
			assert_memory_equal(e.buf, &old, 8);
			old = 77;
			assert_memory_equal(peek(i, (uint32_t)(word - r->start), 8), &old, 8);
		}
	}
}

/*
 * Each set of permissions against each operation, in each range: what inlay_mmap_remote says, the
 * remote device does
 */
static void every_permission(void **unused)
{
	static const uint32_t ops[] = {INLAY_RDMA_READ, INLAY_RDMA_WRITE, INLAY_RDMA_ATOMIC};
	uint32_t mask, i, k, rkey;

	(void)unused;
	meet();
	for (mask = 2; mask <= 14; mask += 2) {
		share(mask, false);
		assert_int_equal(theirs.m.permissions, mask);
		for (i = 0; i < theirs.m.num_ranges; i++) {
			const struct inlay_range *r = range_of(&theirs.m, i);

			for (k = 0; k < 3; k++) {
				int err = inlay_mmap_remote(&theirs.m, r->start, 8, ops[k], &rkey);

				assert_int_equal(err, mask & ops[k] ? 0 : -EPERM);
				if (err)
					refused(ops[k], r->start, r->rkey, 8);
				else
					reached(ops[k], r->start, rkey, 8);
			}
		}
	}
}

static void out_of_range(void **unused)
{
	const struct inlay_range *r, *s;
	uint64_t hidden;
	uint32_t i, hidden_rkey, rkey;

	(void)unused;
	meet();
	share(INLAY_LOCAL_READ_WRITE | REMOTE, false);
	hidden = a.hidden;
	hidden_rkey = a.hidden_rkey;
	for (i = 0; i < theirs.m.num_ranges; i++) {
		r = range_of(&theirs.m, i);
		s = range_of(&theirs.m, !i);
		assert_int_equal(inlay_mmap_remote(&theirs.m, r->start + r->len - 8, 9, INLAY_RDMA_WRITE, &rkey), -ENOENT);
		refused(INLAY_RDMA_WRITE, r->start + r->len - 8, r->rkey, 9);
		assert_int_equal(inlay_mmap_remote(&theirs.m, r->start - 1, 8, INLAY_RDMA_READ, &rkey), -ENOENT);
		refused(INLAY_RDMA_READ, r->start - 1, r->rkey, 8);
		/* Another range's key */
		refused(INLAY_RDMA_WRITE, r->start, s->rkey, 8);
	}
	/* What is not granted is not in the blob; who guesses both address and key gets no further */
	assert_int_equal(inlay_mmap_remote(&theirs.m, hidden, 8, INLAY_RDMA_READ, &rkey), -ENOENT);
	refused(INLAY_RDMA_READ, hidden, hidden_rkey, 8);
	refused(INLAY_RDMA_WRITE, hidden, hidden_rkey, 8);
}

/* A blob outlives its map: it is imported, and what it names is there no more */
static void stale(void **unused)
{
	static const uint32_t ops[] = {INLAY_RDMA_READ, INLAY_RDMA_WRITE, INLAY_RDMA_ATOMIC};
	struct question stop = about(STOP);
	uint8_t blob[512];
	size_t len;
	uint32_t i, k, seed = 99;

	(void)unused;
	meet();
	share(INLAY_LOCAL_READ_WRITE | REMOTE, true);
	memcpy(blob, a.blob, sizeof(blob));
	len = a.blob_len;
	for (i = 0; i < theirs.m.num_ranges; i++) {
		const struct inlay_range *r = range_of(&theirs.m, i);

		fill_theirs(i, (uint32_t)r->len, seed);
		reached(INLAY_RDMA_READ, r->start, r->rkey, 8);
	}
	ask(&stop);
	/* Of a map that was imported before, and of one that is imported now */
	for (k = 0; k < 2; k++) {
		if (k)
			import(blob, len, true);
		for (i = 0; i < theirs.m.num_ranges; i++) {
			const struct inlay_range *r = range_of(&theirs.m, i);

			refused(ops[0], r->start, key(r->start, 8, ops[0]), 8);
			refused(ops[1], r->start, key(r->start, 8, ops[1]), 8);
			refused(ops[2], r->start, key(r->start, 8, ops[2]), 8);
			assert_int_equal(differs(peek(i, 0, (uint32_t)r->len), r->len, seed), r->len);
		}
	}
	/* The same memory, exported by a new map: the new blob opens it, the old one still does not */
	share(INLAY_LOCAL_READ_WRITE | REMOTE, false);
	reached(INLAY_RDMA_READ, range_of(&theirs.m, 0)->start, range_of(&theirs.m, 0)->rkey, 8);
	import(blob, len, true);
	for (i = 0; i < theirs.m.num_ranges; i++)
		refused(INLAY_RDMA_WRITE, range_of(&theirs.m, i)->start, range_of(&theirs.m, i)->rkey, 8);
}

static int close_here(void **state)
{
	struct question q = about(QUIT);

	if (theirs.memory)
		map_free(&theirs);
	if (e.qp)
		end_free(&e);
	put(&q, sizeof(q));
	if (!get(&a, sizeof(a)))
		return -1;
	return dev_close(state);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_range),
		cmocka_unit_test(every_permission),
		cmocka_unit_test(out_of_range),
		cmocka_unit_test(stale),
	};
	int ends[2], status = 0, failed;
	pid_t child;

	/* Before any device is opened: none survives a fork */
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return 1;
	fflush(NULL);
	child = fork();
	wire = ends[child == 0];
	close(ends[child != 0]);
	if (!child) {
		serve();
		exit(0);
	}
	failed = cmocka_run_group_tests_name("shared_memory", tests, open_here, close_here);
	close(wire);
	if (child < 0 || waitpid(child, &status, 0) != child || status) {
		printf("not ok - the exporting process: status 0x%x\n", (unsigned)status);
		failed++;
	}
	return failed + again_with("SOFTDEV_LINK", "ib");
}
