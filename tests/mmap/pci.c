/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pci.c: a memory map exported over PCI by one function and imported by another: what the other may
 * do with it and what not, and when it is over; states, arguments; devices that cannot. Failures
 * half-way are in connect/faults.c.
 *
 * Both functions are in this process. Of libmlx5's calls this program has its own, which pass on
 * what they are given, count, take capabilities away and fail when told to.
 */
#include "rig.h"

#define AREA (16 * PAGE)

/* ---- Calls in between ---- */

static struct {
	int fail_destroy;         /* as many of the next fail */
	int live;
	/*
	 * Bit 0: no general 2, 1: no KSM, 2: no alias of a key, 3: keys are not allowed to others,
	 * 4: no relaxed ordering of writes, 5: of reads
	 */
	uint32_t no_cap;
	int fail_cap; /* the errno of each QUERY_HCA_CAP */
	uint32_t relaxed;         /* that the last CREATE_MKEY asked for: as no_cap */
} mid;

int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t inlen, void *out, size_t outlen)
{
	const uint8_t *box = (const uint8_t *)in;
	uint8_t *cap = (uint8_t *)out + 16;
	int err;

	if (mid.fail_cap && box[0] == 0x01 && box[1] == 0x00)
		return mid.fail_cap;
	err = NEXT(mlx5dv_devx_general_cmd)(context, in, inlen, out, outlen);
	if (!err && box[0] == 0x01 && box[1] == 0x00) {
		if (box[7] == 0x01) {
			cap[4] &= mid.no_cap & 1 ? 0x7f : 0xff;
			cap[0x21] &= mid.no_cap & 2 ? 0x7f : 0xff;
			cap[0x1d] &= (uint8_t)~((mid.no_cap & 16 ? 0x80 : 0) | (mid.no_cap & 32 ? 0x40 : 0));
		} else if (box[7] == 0x41) {
			if (mid.no_cap & 4)
				cap[0x1e] = 0;
			if (mid.no_cap & 8)
				memset(cap + 0x20, 0, 8);
		}
	}
	return err;
}

struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t inlen, void *out,
					       size_t outlen)
{
	const uint8_t *box = (const uint8_t *)in;
	struct mlx5dv_devx_obj *obj;

	/* CREATE_MKEY asks for relaxed ordering, as firmware refuses where it has none: of writes or of reads */
	if (box[0] == 0x02 && box[1] == 0x00) {
		mid.relaxed = (box[16 + 1] & 0x04 ? 16 : 0) | (box[16 + 0x3b] & 0x40 ? 32 : 0);
		if (mid.relaxed & mid.no_cap) {
			errno = EINVAL;
			return NULL;
		}
	}
	obj = NEXT(mlx5dv_devx_obj_create)(context, in, inlen, out, outlen);
	mid.live += obj != NULL;
	return obj;
}

int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj)
{
	int err;

	if (mid.fail_destroy) {
		mid.fail_destroy--;
		return EBUSY;
	}
	err = NEXT(mlx5dv_devx_obj_destroy)(obj);
	mid.live -= !err;
	return err;
}

/* ---- Two functions ---- */

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct end e; /* a QP that is its own peer */
} at[2];

static uint8_t *area; /* the owner's */

static int open_both(UNUSED void **state)
{
	struct ibv_device **list;
	int n = 0, d;

	rnd_seed();
	list = ibv_get_device_list(&n);
	if (!list || n < 2) {
		print_error("two devices, please\n");
		return -1;
	}
	area = (uint8_t *)pages(AREA);
	for (d = 0; d < 2; d++) {
		struct opt opt = usual;

		at[d].ctx = dev.ctx = ibv_open_device(list[d]);
		at[d].pd = dev.pd = at[d].ctx ? ibv_alloc_pd(at[d].ctx) : NULL;
		if (!at[d].pd)
			return -1;
		opt.bytes = AREA;
		end_make(&at[d].e, &opt);
		end_take(&at[d].e, INLAY_UAR_DOORBELL);
		if (inlay_connect_pair(at[d].e.qp, at[d].e.qp, NULL, NULL))
			return -1;
	}
	ibv_free_device_list(list);
	return 0;
}

static int close_both(UNUSED void **state)
{
	for (int d = 0; d < 2; d++) {
		end_free(&at[d].e);
		if (ibv_dealloc_pd(at[d].pd) || ibv_close_device(at[d].ctx))
			return -1;
	}
	free(area);
	return mid.live;
}

static int fresh(UNUSED void **state)
{
	memset(&mid, 0, sizeof(mid));
	rkeys_apart = true;
	return 0;
}

static bool capable(void)
{
	uint32_t vhca;

	return !inlay_mmap_cap_pci(at[0].ctx, &vhca);
}

#define need_aliases()                                                                                      \
	do {                                                                                                \
		if (!capable()) {                                                                           \
			print_message("# skipped: no device commands, or no keys of other functions\n");   \
			skip();                                                                             \
		}                                                                                           \
	} while (0)

/*
 * From memory by lkey into the device's own, through a write to itself; or the other way, through a
 * read. Its syndrome, or 0; the QP is well afterwards
 */
static uint8_t outcome(int d, bool give, uint64_t addr, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = {addr, len, lkey};
	struct end *e = &at[d].e;
	const struct mlx5_cqe64 *cqe;
	uint8_t syndrome;

	must(give ? inlay_post_read(&e->sq, (uintptr_t)e->buf, e->mr->rkey, &sge, 1, INLAY_SIGNALED | INLAY_RING) :
		    inlay_post_write(&e->sq, (uintptr_t)e->buf, e->mr->rkey, &sge, 1, INLAY_SIGNALED | INLAY_RING));
	cqe = cqe_wait(&e->cq);
	syndrome = inlay_cqe_is_error(cqe) ? inlay_cqe_syndrome(cqe) : 0;
	assert_true(0 < inlay_sq_release(&e->sq, cqe));
	inlay_cq_advance(&e->cq, 1);
	if (syndrome) {
		qp_to(e->qp, IBV_QPS_RESET);
		inlay_cq_clean(&e->cq, e->qp->qp_num, NULL, NULL);
		inlay_sq_reset(&e->sq);
		must(inlay_connect_pair(e->qp, e->qp, NULL, NULL));
	}
	return syndrome;
}

#define take(d, from, len, lkey) outcome(d, false, from, len, lkey)
#define give(d, to, len, lkey) outcome(d, true, to, len, lkey)
/* As above, of bytes that the other end then has */
static void moves(int d, bool give, uint64_t addr, uint8_t *at_owner, uint32_t len, uint32_t lkey, uint32_t seed)
{
	uint8_t *mine = at[d].e.buf;

	fill(give ? mine : at_owner, len, seed);
	assert_true(outcome(d, give, addr, len, lkey) == 0 && differs(give ? at_owner : mine, len, seed) == len);
}

#define REFUSED MLX5_CQE_SYNDROME_LOCAL_PROT_ERR

/* ---- Maps ---- */

/* A map, and what an export of it takes and gives */
struct shared {
	struct inlay_mmap m;
	void *memory, *keys[2];
	size_t keys_size;
	uint8_t blob[1024];
	size_t len;
};

/* Not yet started: ranges of a page each, one page apart; own: one that is not for the other side, 0: none */
static void shared_make(struct shared *x, uint32_t ranges, uint32_t own, uint32_t permissions)
{
	size_t size = inlay_mmap_size(2, 8);

	memset(x, 0, sizeof(*x));
	x->memory = given(size);
	must(inlay_mmap_create(&x->m, x->memory, size, 2, 8));
	must(inlay_mmap_add_dev(&x->m, at[0].pd));
	for (uint32_t i = 0; i < ranges; i++)
		must(inlay_mmap_add(&x->m, limited(inlay_source_host(area + 2 * i * PAGE, PAGE),
						   i && i == own ? (uint32_t)INLAY_LOCAL_READ_WRITE : INLAY_ACCESS_ALL)));
	must(inlay_mmap_set_permissions(&x->m, permissions));
}

static int shared_export(struct shared *x, int d)
{
	x->keys_size = inlay_mmap_pci_size(&x->m);
	if (!x->keys[d])
		x->keys[d] = pages(x->keys_size ? x->keys_size : 64);
	x->len = sizeof(x->blob);
	return inlay_mmap_export_pci(&x->m, at[d].pd, x->keys[d], x->keys_size, x->blob, &x->len);
}

static void shared_free(struct shared *x)
{
	must(inlay_mmap_destroy(&x->m));
	given_free(x->memory);
	free(x->keys[0]);
	free(x->keys[1]);
}

static int shared_import(struct shared *x, int d, const uint8_t *blob, size_t len)
{
	size_t size = inlay_mmap_import_size(blob, len);
	int err;

	memset(x, 0, sizeof(*x));
	x->memory = given(size ? size : 64);
	err = inlay_mmap_create_from_export_pci(&x->m, x->memory, size, at[d].pd, blob, len, NULL);
	if (err)
		given_free(x->memory);
	else
		assert_true((uint8_t *)x->m.pci_ >= (uint8_t *)x->memory + inlay_mmap_size(1, x->m.num_ranges)); /* behind the map's */
	return err;
}

/* A map of one page, started and exported by the first device, imported by the second */
static void share_both(struct shared *x, struct shared *y, uint32_t permissions)
{
	shared_make(x, 1, 0, permissions);
	must(inlay_mmap_start(&x->m));
	must(shared_export(x, 0));
	must(shared_import(y, 1, x->blob, x->len));
}

/* ---- Tests ---- */

static void memory_of_the_other_side(UNUSED void **state)
{
	const struct inlay_range *r;
	struct inlay_keys keys;
	struct shared x, y;
	uint32_t i, k, rkey;

	need_aliases();
	shared_make(&x, 3, 1, INLAY_PCI_READ_WRITE);
	must(inlay_mmap_start(&x.m));
	must(shared_export(&x, 0));
	assert_int_equal(x.len, 64 + 2 * 24 + 4); /* two ranges, no code */
	assert_true(x.m.exported && mid.live == 2);
	must(shared_import(&y, 1, x.blob, x.len));
	assert_int_equal(mid.live, 4);
	assert_true(y.m.num_ranges == 2 && y.m.permissions == INLAY_PCI_READ_WRITE && y.m.imported);
	assert_null(inlay_mmap_find(&y.m, area + 2 * PAGE, 1)); /* the owner's */
	for (i = 0; i < 3; i += 2) {
		uint8_t *page = area + 2 * i * PAGE;
		static const uint32_t wants[] = {INLAY_RDMA_READ, INLAY_PCI_READ_WRITE, 0};

		r = inlay_mmap_find(&y.m, page + 100, 1000);
		assert_true(r && r->access == INLAY_PCI_READ_WRITE && r->rkey == INLAY_NO_KEY);
		must(inlay_mmap_keys(&y.m, r->id, y.m.devs[0], &keys));
		assert_true(keys.lkey == r->lkey && keys.rkey == INLAY_NO_KEY);
		moves(1, false, (uintptr_t)page, page, PAGE, r->lkey, 70 + i);
		moves(1, true, (uintptr_t)page + 100, page + 100, 1000, r->lkey, 90 + i);
		/* Not a byte before and behind it; there is no rkey, whatever is granted */
		assert_int_equal(take(1, (uintptr_t)page - 1, 2, r->lkey), REFUSED);
		assert_int_equal(take(1, (uintptr_t)page + PAGE - 1, 2, r->lkey), REFUSED);
		for (k = 0; k < ARRAY(wants); k++)
			assert_int_equal(inlay_mmap_remote(&y.m, (uintptr_t)page, 8, wants[k], &rkey), -EPERM);
	}
	/* An alias gone is gone; the owner's keys stay */
	r = inlay_mmap_find(&y.m, area, 1);
	keys.lkey = r->lkey;
	shared_free(&y);
	assert_int_equal(mid.live, 2);
	assert_int_equal(take(1, (uintptr_t)area, 8, keys.lkey), REFUSED);
	must(shared_import(&y, 1, x.blob, x.len));
	r = inlay_mmap_find(&y.m, area, 1);
	assert_int_equal(take(1, (uintptr_t)area, 8, r->lkey), 0);

	/* Stopped: it is over, for who has it and for who wants it */
	must(inlay_mmap_stop(&x.m));
	assert_int_equal(mid.live, 2); /* the aliases */
	assert_int_equal(take(1, (uintptr_t)area, 8, r->lkey), REFUSED);
	shared_free(&y);
	assert_true(shared_import(&y, 1, x.blob, x.len) == -EPERM && !mid.live);
	assert_int_equal(inlay_mmap_start(&x.m), -EBADFD);
	assert_int_equal(shared_export(&x, 0), -EBADFD);
	shared_free(&x);
}

/*
 * Relaxed ordering is asked of the indirect key where the device knows it, and is no reason to fail where it does not. Who may only read,
 * may not write
 */
static void what_is_granted(UNUSED void **state)
{
	static const struct { uint32_t permissions, lacks, relaxed; bool writes; } rows[] = {
		{INLAY_PCI_READ_WRITE | INLAY_RELAXED_ORDERING, 0, 48, true}, {INLAY_PCI_READ_WRITE | INLAY_RELAXED_ORDERING, 16, 32, true},
		{INLAY_PCI_READ_WRITE | INLAY_RELAXED_ORDERING, 32, 16, true}, {INLAY_PCI_READ_WRITE | INLAY_RELAXED_ORDERING, 48, 0, true},
		{INLAY_LOCAL_READ_WRITE | INLAY_PCI_READ_ONLY, 0, 0, false},
	};
	const struct inlay_range *r;
	struct shared x, y;

	need_aliases();
	for (size_t i = 0; i < ARRAY(rows); i++) {
		mid.no_cap = rows[i].lacks;
		share_both(&x, &y, rows[i].permissions);
		assert_int_equal(mid.relaxed, rows[i].relaxed);
		r = inlay_mmap_find(&y.m, area, PAGE);
		assert_int_equal(r->access, rows[i].writes ? INLAY_PCI_READ_WRITE : INLAY_PCI_READ_ONLY);
		moves(1, false, (uintptr_t)area, area, PAGE, r->lkey, 3);
		assert_int_equal(give(1, (uintptr_t)area, 8, r->lkey), rows[i].writes ? 0 : REFUSED);
		shared_free(&y);
		shared_free(&x);
	}
}

/* Across an address that is a multiple of 2 GiB: two pieces in the key. The address space there is taken for the test */
static void a_range_of_two_pieces(UNUSED void **state)
{
	const uint64_t border = 0x200080000000;
	const struct inlay_range *r;
	struct inlay_source probe;
	struct inlay_keys keys;
	struct ibv_mr *mr;
	struct shared x, y;

	need_aliases();
	probe = (struct inlay_source){.start = border - PAGE, .len = PAGE};
	assert_int_equal(inlay_mmap_pci_pieces_(&probe), 1);
	probe.len = PAGE + 1;
	assert_int_equal(inlay_mmap_pci_pieces_(&probe), 2);
	probe.start = 0;
	probe.len = UINT64_MAX;
	assert_true(inlay_mmap_pci_pieces_(&probe) == 1ull << 33);
	/* Memory that the device knows by such an address */
	mr = ibv_reg_mr_iova(at[0].pd, area, 2 * PAGE, border - PAGE, ALL_ACCESS);
	if (!mr) {
		print_message("# skipped: no memory by another address\n");
		skip();
	}
	keys.lkey = mr->lkey;
	keys.rkey = mr->rkey;
	shared_make(&x, 0, 0, INLAY_PCI_READ_WRITE);
	must(inlay_mmap_add(&x.m, inlay_source_keys(border - PAGE, 2 * PAGE, keys)));
	must(inlay_mmap_start(&x.m));
	must(shared_export(&x, 0));
	must(shared_import(&y, 1, x.blob, x.len));
	r = made(inlay_mmap_find(&y.m, (void *)(uintptr_t)(border - PAGE), 2 * PAGE));
	moves(1, false, border - PAGE, area, 2 * PAGE, r->lkey, 44);
	moves(1, true, border - 100, area + PAGE - 100, 200, r->lkey, 45);
	assert_int_equal(take(1, border - PAGE - 1, 8, r->lkey), REFUSED);
	shared_free(&y);
	shared_free(&x);
	must(ibv_dereg_mr(mr));
}

/* Again for the same device, and for the other one of the map */
static void exported_twice(UNUSED void **state)
{
	struct shared x, y[2], z;
	uint8_t first[1024];
	size_t len, size;

	need_aliases();
	shared_make(&x, 1, 0, INLAY_PCI_READ_WRITE | INLAY_RDMA_READ);
	must(inlay_mmap_add_dev(&x.m, at[1].pd));
	must(inlay_mmap_start(&x.m));
	must(shared_export(&x, 0));
	memcpy(first, x.blob, len = x.len);
	x.len = sizeof(x.blob);
	must(inlay_mmap_export_pci(&x.m, at[0].pd, NULL, 0, x.blob, &x.len));
	assert_true(x.len == len && !memcmp(x.blob, first, len) && mid.live == 1);
	must(shared_export(&x, 1));
	assert_memory_not_equal(x.blob, first, len);
	assert_int_equal(mid.live, 2);
	must(shared_import(&y[1], 1, first, len));
	must(shared_import(&y[0], 0, x.blob, x.len));
	/* A function does not import its own */
	assert_true(shared_import(&z, 0, first, len) == -EINVAL && shared_import(&z, 1, x.blob, x.len) == -EINVAL);
	for (int d = 0; d < 2; d++)
		moves(d, false, (uintptr_t)area, area, PAGE, inlay_mmap_find(&y[d].m, area, PAGE)->lkey, 9);
	/* A blob for RDMA of the same map is another thing, and neither is taken for the other */
	x.len = sizeof(x.blob);
	must(inlay_mmap_export_rdma(&x.m, at[0].pd, x.blob, &x.len));
	assert_int_equal(shared_import(&z, 1, x.blob, x.len), -ENOTSUP);
	size = inlay_mmap_import_size(first, len);
	z.memory = given(size);
	assert_int_equal(inlay_mmap_create_from_export(&z.m, z.memory, size, at[1].pd, first, len, NULL), -ENOTSUP);
	given_free(z.memory);
	shared_free(&y[0]);
	shared_free(&y[1]);
	shared_free(&x);
	assert_int_equal(mid.live, 0);
}

static void states_and_arguments(UNUSED void **state)
{
	uint8_t blob[1024], keys[2048] __attribute__((aligned(64)));
	struct shared x, y;
	size_t len, need, told, i;

	need_aliases();
	shared_make(&x, 1, 0, INLAY_PCI_READ_WRITE);
	need = inlay_mmap_pci_size(&x.m);
	assert_true(need && need <= sizeof(keys));
	len = sizeof(blob);
	assert_int_equal(inlay_mmap_export_pci(&x.m, at[0].pd, keys, need, blob, &len), -EBADFD); /* not started */
	must(inlay_mmap_start(&x.m));
	const struct { struct ibv_pd *pd; void *keys; size_t size; void *blob; size_t *len; int err; } exports[] = {
		{NULL, keys, need, blob, &len, -EINVAL}, {at[1].pd, keys, need, blob, &len, -ENOENT},
		{at[0].pd, keys, need, blob, NULL, -EINVAL}, {at[0].pd, keys, need, NULL, &len, -EINVAL},
		{at[0].pd, keys, need - 1, blob, &len, -ENOBUFS}, {at[0].pd, NULL, need, blob, &len, -EINVAL},
		{at[0].pd, keys + 8, need, blob, &len, -EINVAL},
	};
	for (i = 0; i < ARRAY(exports); i++)
		assert_int_equal(inlay_mmap_export_pci(&x.m, exports[i].pd, exports[i].keys, exports[i].size,
						       exports[i].blob, exports[i].len), exports[i].err);
	len = 0;
	assert_int_equal(inlay_mmap_export_pci(&x.m, at[0].pd, NULL, 0, NULL, &len), -ENOBUFS);
	told = len;
	len = told - 1;
	assert_int_equal(inlay_mmap_export_pci(&x.m, at[0].pd, keys, need, blob, &len), -ENOBUFS);
	assert_true(len == told && !x.m.exported && !mid.live);
	must(inlay_mmap_export_pci(&x.m, at[0].pd, keys, need, blob, &len));

	need = inlay_mmap_import_size(blob, len);
	y.memory = given(need);
	const struct {
		struct inlay_mmap *m; void *memory; size_t size; struct ibv_pd *pd; const void *blob; size_t len;
		int err;
	} imports[] = {
		{NULL, y.memory, need, at[1].pd, blob, len, -EINVAL},
		{&y.m, y.memory, need - 1, at[1].pd, blob, len, -ENOBUFS},
		{&y.m, y.memory, need, NULL, blob, len, -EINVAL}, {&y.m, y.memory, need, at[1].pd, NULL, len, -EINVAL},
		{&y.m, NULL, need, at[1].pd, blob, len, -EINVAL}, {&y.m, y.memory, need, at[1].pd, blob, 8, -EPROTO},
		{&y.m, y.memory, need, at[1].pd, blob, len, 0},
	};
	for (i = 0; i < ARRAY(imports); i++)
		assert_int_equal(inlay_mmap_create_from_export_pci(imports[i].m, imports[i].memory, imports[i].size,
								   imports[i].pd, imports[i].blob, imports[i].len,
								   NULL), imports[i].err);
	/* Closed to everything that an imported one is closed to */
	assert_int_equal(inlay_mmap_pci_size(&y.m), 0);
	assert_int_equal(inlay_mmap_export_pci(&y.m, at[1].pd, keys, sizeof(keys), blob, &len), -EBADFD);
	assert_int_equal(inlay_mmap_stop(&y.m), -EBADFD);
	/* An alias that will not go. A map that is stuck may be stopped, and never started */
	mid.fail_destroy = 1;
	assert_int_equal(inlay_mmap_destroy(&y.m), -EBUSY);
	assert_null(inlay_mmap_find(&y.m, area, 1));
	must(inlay_mmap_stop(&y.m));
	assert_int_equal(inlay_mmap_start(&y.m), -EBADFD);
	must(inlay_mmap_destroy(&y.m));
	given_free(y.memory);
	/* A key of the owner that will not */
	mid.fail_destroy = 1;
	assert_int_equal(inlay_mmap_stop(&x.m), -EBUSY);
	assert_null(inlay_mmap_find(&x.m, area, 1));
	must(inlay_mmap_stop(&x.m));
	assert_int_equal(mid.live, 0);
	shared_free(&x);
	/* Nothing granted */
	shared_make(&x, 1, 0, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ);
	assert_int_equal(inlay_mmap_pci_size(&x.m), 0);
	must(inlay_mmap_start(&x.m));
	assert_int_equal(inlay_mmap_export_pci(&x.m, at[0].pd, keys, sizeof(keys), blob, &len), -EPERM);
	shared_free(&x);
}

/* Whose blob is changed and sealed anew gets in nowhere */
static void not_permitted(UNUSED void **state)
{
	struct inlay_blob head;
	struct shared x, y;
	uint8_t blob[1024];

	need_aliases();
	share_both(&x, &y, INLAY_PCI_READ_WRITE);
	shared_free(&y);
	/* Another secret, another function, another key */
	for (unsigned i = 0; i < 40; i++) {
		memcpy(blob, x.blob, x.len);
		if (i < 32)
			blob[32 + i] ^= 0x10;
		else if (i < 34)
			blob[28] ^= (uint8_t)(0x40u >> (i - 32)); /* a function that is not there */
		else
			blob[64 + 16 + 1] ^= (uint8_t)(1u << (i - 34)); /* the key's index */
		must(inlay_blob_head_(&head, blob, x.len));
		must(inlay_blob_seal_(blob, &head, NULL));
		assert_int_equal(shared_import(&y, 1, blob, x.len), -EPERM);
	}
	assert_int_equal(mid.live, 1);
	shared_free(&x);
}

/*
 * A device that says no, that lacks any one of the capabilities, or has no device commands (the second run) cannot; one that does not
 * answer just now fails by its own errno, and may be asked again
 */
static void devices_that_cannot(UNUSED void **state)
{
	static const struct { uint32_t lacks; int says, is; } rows[] = {
		{0, EINVAL, ENOTSUP}, {0, EOPNOTSUPP, ENOTSUP}, {0, EPERM, ENOTSUP}, {0, EIO, EIO}, {0, ENOMEM, ENOMEM}, {0, EAGAIN, EAGAIN},
		{0, EBUSY, EBUSY}, {1, 0, ENOTSUP}, {2, 0, ENOTSUP}, {4, 0, ENOTSUP}, {8, 0, ENOTSUP}, {0, 0, 0},
	};
	struct shared x, y;
	uint32_t vhca;

	shared_make(&x, 1, 0, INLAY_PCI_READ_WRITE);
	must(inlay_mmap_start(&x.m));
	if (!capable()) {
		assert_true(shared_export(&x, 0) == -ENOTSUP && !x.m.exported);
		assert_int_equal(inlay_mmap_cap_pci(at[1].ctx, &vhca), -ENOTSUP);
		shared_free(&x);
		return;
	}
	for (size_t i = 0; i < 2 * ARRAY(rows); i++) {
		const size_t row = i % ARRAY(rows);

		mid.fail_cap = rows[row].says;
		mid.no_cap = rows[row].lacks;
		assert_int_equal(inlay_mmap_cap_pci(at[i == row].ctx, &vhca), -rows[row].is);
		assert_int_equal(i == row ? shared_export(&x, 0) : shared_import(&y, 1, x.blob, x.len), -rows[row].is);
		assert_int_equal(x.m.exported, i >= ARRAY(rows) - 1);
	}
	shared_free(&y);
	shared_free(&x);
	assert_int_equal(mid.live, 0);
}

#define pci_test(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
	const struct CMUnitTest tests[] = {
		pci_test(memory_of_the_other_side), pci_test(what_is_granted), pci_test(a_range_of_two_pieces),
		pci_test(exported_twice), pci_test(states_and_arguments), pci_test(not_permitted),
		pci_test(devices_that_cannot),
	};
	const struct CMUnitTest without[] = {pci_test(devices_that_cannot)};
	int failed;

	if (getenv("INLAY_TEST_AGAIN"))
		return cmocka_run_group_tests_name("without device commands", without, open_both, close_both);
	failed = cmocka_run_group_tests(tests, open_both, close_both);
	if (softdev_present()) {
		unsetenv("SOFTDEV_DEVX");
		failed += again_with("SOFTDEV_DEVX", "0");
	}
	return failed;
}
