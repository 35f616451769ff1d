/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rdma.c: the RDMA domain: keys of a map by both ways, pulls and pushes between two ends
 * against a byte model, everything that is refused, errors. The device is stepped.
 */
#include "rig.h"

#define BYTES 65536u
#define EDGE1 6001u              /* where a's map goes from one range to the next */
#define EDGE2 30001u
#define READ_ONLY 60000u         /* a's last range, which is not written */
#define FAR_EDGE 11111u          /* where b's map does */
#define OPS_MAX 8u

static struct inlay_memdomain_registry reg;
static struct inlay_memdomain_rdma r;
static struct inlay_memdomain_rdma_op ops[OPS_MAX];
static struct inlay_mmap map, theirs, imported;
static uint8_t map_memory[16384] __attribute__((aligned(64))), their_memory[16384] __attribute__((aligned(64)));
static uint8_t import_memory[16384] __attribute__((aligned(64))), blob[1024];
static struct end a, b;

static struct inlay_memdomain_peer peer_of(const uint32_t *rkeys, uint32_t n, uint32_t flags)
{
	return (struct inlay_memdomain_peer){sizeof(struct inlay_memdomain_peer), rkeys, n, flags, NULL};
}

static struct iovec vec(const struct end *e, size_t at, size_t len)
{
	return (struct iovec){e->buf + at, len};
}

/* The domain's three ways to copy; far is the peer's side, near is ours */
static int pull(struct inlay_memdomain_peer *peer, const struct iovec *far, uint32_t n, const struct iovec *near,
		uint32_t m, struct word *w)
{
	struct inlay_memdomain_copy copy = copy_of(far, n, near, m, w);

	copy.src_ctx = peer;
	return inlay_memdomain_pull(&r.domain, &copy);
}

static int push(struct inlay_memdomain_peer *peer, const struct iovec *far, uint32_t n, const struct iovec *near,
		uint32_t m, struct word *w)
{
	struct inlay_memdomain_copy copy = copy_of(near, m, far, n, w);

	copy.dst_ctx = peer;
	return inlay_memdomain_push(&r.domain, &copy);
}

/* Of two pieces to two */
static int transfer(struct inlay_memdomain_peer *peer, const struct iovec *far, struct inlay_memdomain *src,
		    const struct iovec *near, struct inlay_memdomain_result *res, struct word *w)
{
	struct inlay_memdomain_copy copy = copy_of(near, 2, far, 2, w);

	copy.dst_ctx = peer;
	copy.src = src;
	copy.translation = res;
	return inlay_memdomain_transfer(&r.domain, &copy);
}

/* A map of an end's buffer that is cut at these edges, of which the last range is only read */
static void map_of(struct inlay_mmap *m, void *memory, size_t size, const struct end *e, const size_t *edges, uint32_t permissions)
{
	size_t from = 0;

	must(inlay_mmap_create(m, memory, size, 2, 8));
	must(inlay_mmap_add_dev(m, dev.pd));
	for (; from < READ_ONLY; from = *edges++)
		must(inlay_mmap_add(m, inlay_source_host(e->buf + from, *edges - from)));
	must(inlay_mmap_add(m, limited(inlay_source_host(e->buf + READ_ONLY, BYTES - READ_ONLY), INLAY_RDMA_READ)));
	must(inlay_mmap_set_permissions(m, INLAY_LOCAL_READ_WRITE | permissions));
	must(inlay_mmap_start(m));
}

/* Both ends, maps of both, the domain over a's */
static void up(uint32_t max_send_wr, uint32_t num_ops)
{
	static const size_t near_edges[] = {EDGE1, EDGE2, READ_ONLY}, far_edges[] = {FAR_EDGE, READ_ONLY};
	struct opt opt = usual;
	size_t len = sizeof(blob);

	opt.bytes = BYTES;
	opt.cap.max_inline_data = 0;
	opt.cap.max_send_wr = max_send_wr;
	opt.cap.max_send_sge = 6;
	ends_make(&a, &b, &opt);
	end_take(&a, INLAY_UAR_DOORBELL);
	map_of(&map, map_memory, sizeof(map_memory), &a, near_edges, INLAY_RDMA_READ);
	map_of(&theirs, their_memory, sizeof(their_memory), &b, far_edges, INLAY_RDMA_READ | INLAY_RDMA_WRITE);
	must(inlay_mmap_export_rdma(&theirs, dev.pd, blob, &len));
	must(inlay_mmap_create_from_export(&imported, import_memory, sizeof(import_memory), dev.pd, blob, len, NULL));
	must(inlay_memdomain_registry_init(&reg));
	must(inlay_memdomain_rdma_create(&r, &reg, &map, dev.pd, "rdma"));
	if (num_ops)
		must(inlay_memdomain_rdma_attach(&r, &a.sq, ops, num_ops));
}

static void down(void)
{
	assert_int_equal(pending(&r), 0);
	must(inlay_memdomain_rdma_destroy(&r));
	assert_true(unused(&reg));
	must(inlay_mmap_destroy(&imported));
	must(inlay_mmap_destroy(&theirs));
	must(inlay_mmap_destroy(&map));
	inlay_sq_fini(&a.sq);
	end_free(&a);
	end_free(&b);
}

/* The next completion as a poll loop takes it; what the domain says to it */
static int take(void)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&a.cq);
	int rc;

	assert_true(0 < inlay_sq_release(&a.sq, cqe));
	rc = inlay_memdomain_rdma_complete(&r, cqe);
	inlay_cq_advance(&a.cq, 1);
	return rc;
}

/* A refusal leaves the queue alone */
static void same_queue(const struct inlay_sq *was)
{
	assert_true(inlay_sq_index(&a.sq) == inlay_sq_index(was) && inlay_sq_pending(&a.sq) == inlay_sq_pending(was));
	assert_int_equal(inlay_sq_rung(&a.sq), inlay_sq_rung(was));
}

/* The WQE at a WQEBB of the ring, decoded; bytes: the sum of its SGEs' */
struct wqe {
	uint8_t opcode, signaled;
	uint64_t raddr, bytes, first_addr;
	uint32_t rkey, lkey, sges, bbs;
};

static uint64_t big_endian(const uint8_t *at, uint32_t bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *at++;
	return value;
}

static struct wqe wqe_at(const uint8_t *ring, uint32_t bb)
{
	const uint8_t *at = ring + bb * 64;
	const uint32_t ds = at[7] & 0x3f, lkey = (uint32_t)big_endian(at + 36, 4), rkey = (uint32_t)big_endian(at + 24, 4);
	struct wqe w = {at[3], (at[11] & 8) != 0, big_endian(at + 16, 8), 0, big_endian(at + 40, 8), rkey, lkey, ds - 2, (ds + 3) / 4};

	for (uint32_t i = 0; i < w.sges; i++)
		w.bytes += big_endian(at + 32 + 16 * i, 4);
	return w;
}

/* ---- set-up ---- */

TEST(setup_answers)
{
	static struct inlay_memdomain_registry other_reg;
	struct ibv_pd *pd = ibv_alloc_pd(dev.ctx);
	struct inlay_memdomain_rdma other;
	struct inlay_memdomain_rdma_ctx *ctx;
	struct inlay_memdomain_peer peer;
	char id[INLAY_MEMDOMAIN_ID + 1];
	struct inlay_memdomain *d;
	struct iovec near, far;
	struct inlay_sq sq;
	uint32_t record[2], rkey, i;
	size_t size;

	up(64, 0);
	must(inlay_memdomain_registry_init(&other_reg));
	memset(id, 'x', sizeof(id));
	id[INLAY_MEMDOMAIN_ID] = 0;
	other_reg.abi++;
	const struct {
		struct inlay_memdomain_rdma *r; struct inlay_memdomain_registry *reg; struct inlay_mmap *map;
		struct ibv_pd *pd; const char *id; int err;
	} creates[] = {
		{NULL, &reg, &map, dev.pd, "x", -EINVAL}, {&other, NULL, &map, dev.pd, "x", -EINVAL},
		{&other, &reg, NULL, dev.pd, "x", -EINVAL}, {&other, &reg, &map, NULL, "x", -EINVAL},
		{&other, &reg, &map, pd, "x", -ENOENT}, {&other, &reg, &imported, dev.pd, "x", -ENOTSUP},
		{&other, &reg, &map, dev.pd, id, -E2BIG}, {&other, &other_reg, &map, dev.pd, "x", -EPROTO},
		{&other, &reg, &map, dev.pd, id + 1, 0}, {&other, &reg, &map, dev.pd, NULL, 0},
	};
	for (i = 0; i < ARRAY(creates); i++) {
		assert_int_equal(inlay_memdomain_rdma_create(creates[i].r, creates[i].reg, creates[i].map, creates[i].pd, creates[i].id),
				 creates[i].err);
		assert_int_equal(domains(&reg), creates[i].err ? 2 : 3);
		if (creates[i].err)
			continue;
		assert_true(creates[i].id ? !strcmp(inlay_memdomain_id(&other.domain), creates[i].id) : !inlay_memdomain_id(&other.domain));
		must(inlay_memdomain_rdma_destroy(&other));
	}
	must(inlay_memdomain_rdma_destroy(NULL));

	/* Found and read as SPDK's users do */
	d = inlay_memdomain_first(&reg, "rdma");
	assert_true(d == &r.domain && inlay_memdomain_type(d) == INLAY_MEMDOMAIN_RDMA);
	ctx = (struct inlay_memdomain_rdma_ctx *)inlay_memdomain_user_context(d, &size);
	assert_true(size == sizeof(*ctx) && ctx->size == sizeof(*ctx) && ctx->ibv_pd == dev.pd);
	assert_int_equal(inlay_memdomain_rdma_destroy(&r), -EBUSY);
	inlay_memdomain_put(d);
	must(inlay_memdomain_rdma_destroy(&r));
	must(inlay_memdomain_rdma_create(&r, &reg, &map, dev.pd, "rdma"));

	/* A queue: of each type of QP, 0 where it is not known */
	for (i = 0; i < 5; i++)
		assert_int_equal(inlay_memdomain_rdma_attach(i < 2 ? NULL : &r, i == 1 ? NULL : &a.sq, i == 2 ? NULL : ops,
							     (const uint32_t[]){8, 0, 8, 0, 6}[i]), -EINVAL);
	for (i = 0; i < 3; i++) {
		static const enum ibv_qp_type types[] = {IBV_QPT_UD, IBV_QPT_UC, IBV_QPT_RC};
		struct opt opt = usual;
		struct end e;

		opt.type = types[i];
		end_make(&e, &opt);
		end_take(&e, INLAY_UAR_DOORBELL);
		assert_int_equal(inlay_memdomain_rdma_attach(&r, &e.sq, ops, 8), i ? 0 : -ENOTSUP);
		assert_true(!r.domain.pull == (i < 2) && !r.domain.push == !i && !r.domain.transfer == !i && r.domain.translate);
		inlay_sq_fini(&e.sq);
		end_free(&e);
	}
	must(inlay_sq_init(&sq, map_memory, 1, record, 1, 63, &a.uar));
	must(inlay_memdomain_rdma_attach(&r, &sq, ops, 1));
	assert_true(r.domain.pull && r.domain.push && r.domain.transfer && !r.domain.memzero && !r.domain.invalidate);
	inlay_sq_fini(&sq);
	must(inlay_memdomain_rdma_attach(&r, &a.sq, ops, 1));
	rkey = b.mr->rkey;
	peer = peer_of(&rkey, 1, 0);
	far = vec(&b, 0, 8);
	near = vec(&a, 0, 8);
	must(push(&peer, &far, 1, &near, 1, NULL));
	assert_int_equal(inlay_memdomain_rdma_attach(&r, &a.sq, ops, 1), -EBUSY);
	assert_int_equal(inlay_memdomain_rdma_attach(&r, NULL, NULL, 0), -EBUSY);
	assert_int_equal(inlay_memdomain_rdma_destroy(&r), -EBUSY);
	assert_int_equal(take(), 1);
	must(inlay_memdomain_rdma_attach(&r, NULL, NULL, 0));
	assert_true(!r.domain.pull && !r.domain.push && !r.domain.transfer && r.domain.translate);
	down();
	must(ibv_dealloc_pd(pd));
}

/* ---- translation ---- */

/* The map with a second device; where bytes lie, and by which keys they are reached in each way that there is to name a device */
TEST(translations)
{
	static uint8_t other_memory[2][128] __attribute__((aligned(64))), ring[64] __attribute__((aligned(64)));
	static const struct { size_t at, len; int range; } places[] = {
		{0, 1, 0}, {0, EDGE1, 0}, {EDGE1 - 1, 1, 0}, {EDGE1 - 1, 2, -1}, {EDGE1, 64, 1}, {EDGE1 - 1, EDGE2, -1}, {EDGE2, READ_ONLY - EDGE2, 2},
		{READ_ONLY, 7, 3}, {BYTES - 1, 1, 3}, {BYTES - 1, 2, -1}, {BYTES, 1, -1}, {(size_t)0 - 1, 2, -1},
	};
	const size_t edges[] = {0, EDGE1, EDGE2, READ_ONLY, BYTES};
	struct ibv_pd *pd = ibv_alloc_pd(dev.ctx), *pd3 = ibv_alloc_pd(dev.ctx);
	struct inlay_memdomain_translation_ctx ctx;
	struct inlay_memdomain_rdma far;
	struct inlay_memdomain *plain, *accel;
	struct inlay_memdomain_result res;
	struct inlay_memdomain_copy copy;
	struct inlay_memdomain_peer peer;
	struct inlay_keys want;
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct ibv_qp qps[4] = {};
	struct iovec near;
	uint32_t record[2], rkey = 0, i, k;

	up(64, 0);
	must(inlay_mmap_stop(&map));
	assert_int_equal(inlay_memdomain_translate(&r.domain, NULL, &r.domain, NULL, a.buf, 1, &res), -ENOENT);
	must(inlay_memdomain_rdma_destroy(&r));
	must(inlay_mmap_destroy(&map));
	must(inlay_mmap_create(&map, map_memory, sizeof(map_memory), 2, 8));
	must(inlay_mmap_add_dev(&map, dev.pd));
	must(inlay_mmap_add_dev(&map, pd));
	for (i = 0; i < 4; i++)
		must(inlay_mmap_add(&map, inlay_source_host(a.buf + edges[i], edges[i + 1] - edges[i])));
	must(inlay_mmap_start(&map));
	must(inlay_memdomain_rdma_create(&r, &reg, &map, dev.pd, "rdma"));
	must(inlay_memdomain_rdma_create(&far, &reg, &map, pd, "second"));
	must(inlay_memdomain_create(&reg, other_memory[0], 128, INLAY_MEMDOMAIN_RDMA, NULL, NULL, &plain));
	must(inlay_memdomain_create(&reg, other_memory[1], 128, INLAY_MEMDOMAIN_ACCEL, NULL, NULL, &accel));
	must(inlay_uar_create(&uar, pd, INLAY_UAR_DOORBELL, NULL));
	qps[0].pd = pd;
	qps[1].pd = uar.pd;
	qps[2].pd = dev.pd;
	qps[3].pd = pd3;
	const struct {
		struct inlay_memdomain *src, *dst;
		struct inlay_memdomain_translation_ctx ctx; /* size 0: none */
		int dev; /* -1: no keys */
	} ways[] = {
		{&r.domain, &r.domain, {0, NULL}, 0},
		/* The second device, in every way it can be named; qps[1]'s PD is a parent domain over it */
		{&far.domain, plain, {0, NULL}, 1}, {&r.domain, &far.domain, {0, NULL}, 1},
		{&r.domain, &r.domain, {sizeof(ctx), &qps[0]}, 1}, {&r.domain, &r.domain, {sizeof(ctx), &qps[1]}, 1},
		/* The QP says more than the domain; a context too short says nothing */
		{&r.domain, &far.domain, {sizeof(ctx), &qps[2]}, 0}, {&r.domain, &far.domain, {sizeof(ctx) - 1, &qps[2]}, 1},
		{&r.domain, inlay_memdomain_system(&reg), {0, NULL}, -1}, /* to this process */
	};
	for (k = 0; k < ARRAY(places); k++)
		for (i = 0; i < ARRAY(ways); i++) {
			uint8_t *addr = (uint8_t *)((uintptr_t)a.buf + places[k].at);

			ctx = ways[i].ctx;
			assert_int_equal(inlay_memdomain_translate(ways[i].src, NULL, ways[i].dst, ctx.size ? &ctx : NULL, addr, places[k].len, &res),
					 places[k].range < 0 ? -ENOENT : 0);
			if (places[k].range < 0)
				continue;
			want.lkey = want.rkey = 0;
			if (ways[i].dev >= 0)
				must(inlay_mmap_keys(&map, (uint32_t)places[k].range, map.devs[ways[i].dev], &want));
			assert_memory_equal(&res.lkey, &want, sizeof(want));
			assert_true(res.iov.iov_base == addr && res.iov.iov_len == places[k].len && res.iov_count == 1 && res.size == sizeof(res));
			assert_true(!res.iovs && res.dst_domain == ways[i].dst);
		}
	/* A copy by the second device's keys */
	must(inlay_sq_init(&sq, ring, 1, record, 0x123, 4, &a.uar));
	must(inlay_memdomain_rdma_attach(&far, &sq, ops, 1));
	near = vec(&a, EDGE1, 8);
	peer = peer_of(&rkey, 1, INLAY_MEMDOMAIN_NO_RING);
	copy = copy_of(&near, 1, &near, 1, NULL);
	copy.dst_ctx = &peer;
	must(inlay_memdomain_push(&far.domain, &copy));
	must(inlay_mmap_keys(&map, 1, map.devs[1], &want));
	assert_int_equal(wqe_at(ring, 0).lkey, want.lkey);
	assert_int_equal(inlay_memdomain_rdma_abort(&far), 1);
	inlay_sq_fini(&sq);
	/* A device that the map has not, another kind of domain */
	assert_int_equal(inlay_memdomain_translate(&r.domain, NULL, accel, NULL, a.buf, 8, &res), -ENOTSUP);
	ctx.size = sizeof(ctx);
	ctx.ibv_qp = &qps[3];
	assert_int_equal(inlay_memdomain_translate(&r.domain, NULL, &r.domain, &ctx, a.buf, 8, &res), -ENOENT);
	must(inlay_memdomain_destroy(plain));
	must(inlay_memdomain_destroy(accel));
	must(inlay_memdomain_rdma_destroy(&far));
	must(inlay_uar_destroy(&uar, NULL));
	down();
	must(ibv_dealloc_pd(pd));
	must(ibv_dealloc_pd(pd3));
}

/* ---- pulls and pushes against a byte model ---- */

static uint8_t model_a[BYTES], model_b[BYTES];

TEST(end_to_end)
{
	enum { MAX = 40, SLICE = 7000 };
	struct iovec ours[OPS_MAX][MAX], far[OPS_MAX][MAX];
	uint32_t rkeys[MAX], posted = 0, full = 0, big = 0, most = 0, n_wqes = 0, turn, i, k, own = 0;
	struct word words[OPS_MAX];
	struct inlay_sq was;
	struct ibv_mr *mr2;

	up(1, OPS_MAX / 2); /* small enough to be full at times, as the table of operations is */
	mr2 = made(ibv_reg_mr(dev.pd, b.buf, BYTES, ALL_ACCESS));
	fill(a.buf, BYTES, 1);
	fill(b.buf, BYTES, 2);
	memcpy(model_a, a.buf, BYTES);
	memcpy(model_b, b.buf, BYTES);
	for (turn = 0; turn < 300; turn++) {
		uint32_t burst = 1 + rnd_below(OPS_MAX), done = 0, accepted = 0;
		bool quiet = rnd() & 1;

		memset(words, 0, sizeof(words));
		for (i = 0; i < burst; i++) {
			uint32_t total = rnd_below(4) ? rnd_below(300) : rnd_below(6000), way = rnd_below(4), n, m;
			struct inlay_memdomain_peer peer = peer_of(rkeys, 1, quiet ? INLAY_MEMDOMAIN_NO_RING : 0);
			int rc;

			/* A slice for each: their order in a burst does not matter */
			n = cut(ours[i], a.buf, (size_t)i * SLICE, total, MAX);
			m = cut(far[i], b.buf, (size_t)i * SLICE, total, rnd_below(4) ? 3 : MAX);
			for (k = 0; k < MAX; k++)
				rkeys[k] = rnd() & 1 ? b.mr->rkey : mr2->rkey;
			if (way == 1) {
				peer.num_rkeys = m;
			} else if (way == 2) {
				peer.num_rkeys = 0;
				peer.map = &imported;
			}
			if (rnd_below(16) == 0 && inlay_sq_room(&a.sq) > 3) { /* the queue's owner posts between */
				must(inlay_post(&a.sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED));
				own++;
			}
			was = a.sq;
			if (rnd() & 1) {
				rc = pull(&peer, far[i], m, ours[i], n, &words[i]);
				if (!rc)
					model_copy(ours[i], a.buf, model_a, far[i], m, b.buf, model_b);
			} else {
				rc = push(&peer, far[i], m, ours[i], n, &words[i]);
				if (!rc)
					model_copy(far[i], b.buf, model_b, ours[i], n, a.buf, model_a);
			}
			if (rc) { /* a copy is refused whole, and for ever where the empty queue is too small */
				assert_int_equal(rc, inlay_sq_pending(&was) ? -EAGAIN : -E2BIG);
				same_queue(&was);
				words[i].calls = -1;
				big += rc == -E2BIG;
				full++;
				continue;
			}
			assert_true(!total || accepted < OPS_MAX / 2);
			most = accepted + 1 > most ? accepted + 1 : most;
			assert_int_equal(words[i].calls, total ? 0 : 1);
			if (total) {
				accepted++;
				n_wqes += inlay_sq_index(&a.sq) - inlay_sq_index(&was) > 1;
				assert_int_equal(inlay_sq_rung(&a.sq), quiet ? inlay_sq_rung(&was) : inlay_sq_index(&a.sq));
			}
		}
		posted += accepted;
		assert_true(pending(&r) == accepted && inlay_mmap_num_bufs(&map) == accepted);
		if (accepted)
			assert_int_equal(inlay_mmap_stop(&map), -EBUSY);
		inlay_sq_ring(&a.sq);
		while (done < accepted || own) {
			int rc = take();

			assert_true(rc == 1 || (rc == -ENOENT && own));
			done += rc == 1;
			own -= rc == -ENOENT;
		}
		for (i = 0; i < burst; i++)
			if (words[i].calls >= 0)
				said(&words[i], 1, 0);
		expect_nothing(&a.cq);
		assert_int_equal(inlay_sq_pending(&a.sq), 0);
		if (memcmp(a.buf, model_a, BYTES) || memcmp(b.buf, model_b, BYTES))
			fail_msg("turn %u: memory is not as the model says", turn);
	}
	assert_true(posted > 100 && n_wqes > 10 && full > 3 && big > 0 && most >= OPS_MAX / 2);
	assert_int_equal(inlay_mmap_num_bufs(&map), 0);
	must(ibv_dereg_mr(mr2));
	must(inlay_memdomain_rdma_attach(&r, NULL, NULL, 0));
	down();
}

/* ---- what is refused, and leaves the queue as it was ---- */

TEST(refusals)
{
	enum { PULL, PUSH, TRANSFER };
	uint8_t *memory = (uint8_t *)pages(4096);
	struct inlay_memdomain_peer peer, small_peer, bare, three, none, mapped;
	struct inlay_memdomain_result translated, elsewhere, longer, two;
	struct inlay_memdomain *other;
	struct word w = {0, 0};
	struct inlay_sq was;
	uint32_t i, rkey;

	up(64, 4);
	rkey = b.mr->rkey;
	peer = small_peer = peer_of(&rkey, 1, 0);
	small_peer.size--;
	bare = peer_of(NULL, 1, 0);
	three = peer_of(&rkey, 3, 0);
	none = mapped = peer_of(&rkey, 0, 0);
	mapped.map = &imported;
	must(inlay_memdomain_create(&reg, memory, 128, 1000, NULL, NULL, &other));
	must(inlay_memdomain_translate(&r.domain, NULL, &r.domain, NULL, a.buf + 1000, 200, &translated));
	elsewhere = longer = translated;
	elsewhere.dst_domain = other;
	longer.iov.iov_len = 201;
	two = longer;
	two.iov_count = 2;
	/* Two pieces each side: of near the second is as the row says, of far too */
	const struct {
		const char *name; int way; struct inlay_memdomain_peer *peer; struct iovec near[2], far[2];
		struct inlay_memdomain_result *translation; int err;
	} rows[] = {
#define NEAR {vec(&a, 0, 100), vec(&a, 200, 100)}
#define FAR {vec(&b, 0, 150), vec(&b, 300, 50)}
		{"pull without a peer", PULL, NULL, NEAR, FAR, NULL, -EINVAL},
		{"push without a peer", PUSH, NULL, NEAR, FAR, NULL, -EINVAL},
		{"a short context", PULL, &small_peer, NEAR, FAR, NULL, -EINVAL},
		{"no keys", PULL, &bare, NEAR, FAR, NULL, -EINVAL},
		{"three keys", PUSH, &three, NEAR, FAR, NULL, -EINVAL},
		{"neither keys nor map", PUSH, &none, NEAR, FAR, NULL, -EINVAL},
		{"nearer is shorter", PULL, &peer, {vec(&a, 0, 100), vec(&a, 200, 99)}, FAR, NULL, -EINVAL},
		{"farther is shorter", PUSH, &peer, NEAR, {vec(&b, 0, 150), vec(&b, 300, 49)}, NULL, -EINVAL},
		{"too much to push", PUSH, &peer, {vec(&a, 0, SIZE_MAX), vec(&a, 0, 1)}, FAR, NULL, -EINVAL},
		{"too much to pull", PULL, &peer, {vec(&a, 0, SIZE_MAX), vec(&a, 0, 1)}, FAR, NULL, -EINVAL},
		/* In the last piece, after a WQE was written */
		{"beyond the map", PUSH, &peer, {vec(&a, 0, 150), vec(&a, BYTES - 49, 50)}, FAR, NULL, -ENOENT},
		{"not in the map", PUSH, &peer, {vec(&a, 0, 150), {memory, 50}}, FAR, NULL, -ENOENT},
		{"a pull into what is only read", PULL, &peer, {vec(&a, 0, 150), vec(&a, READ_ONLY, 50)}, FAR, NULL, -EPERM},
		{"beyond the peer's map", PULL, &mapped, NEAR, {vec(&b, 0, 100), vec(&b, BYTES - 99, 100)}, NULL, -ENOENT},
		{"a push to what it only reads", PUSH, &mapped, NEAR, {vec(&b, 0, 100), vec(&b, READ_ONLY, 100)}, NULL, -EPERM},
		{"from another domain", TRANSFER, &peer, NEAR, FAR, NULL, -ENOTSUP},
		{"a translation to another domain", TRANSFER, &peer, NEAR, FAR, &elsewhere, -EINVAL},
		{"transfer without a peer", TRANSFER, NULL, NEAR, FAR, &translated, -EINVAL},
		{"a translation that is too long", TRANSFER, &peer, NEAR, FAR, &longer, -EINVAL},
		{"a translation without its pieces", TRANSFER, &peer, NEAR, FAR, &two, -EINVAL},
	};
	was = a.sq;
	for (i = 0; i < ARRAY(rows); i++) {
		int err = rows[i].way == PULL ? pull(rows[i].peer, rows[i].far, 2, rows[i].near, 2, &w) :
			  rows[i].way == PUSH ? push(rows[i].peer, rows[i].far, 2, rows[i].near, 2, &w) :
			  transfer(rows[i].peer, rows[i].far, other, rows[i].near, rows[i].translation, &w);

		if (err != rows[i].err)
			fail_msg("%s: %d, not %d", rows[i].name, err, rows[i].err);
		same_queue(&was);
	}
	struct iovec far[2] = FAR;
	assert_int_equal(inlay_memdomain_memzero(&r.domain, &peer, far, 2, word, &w), -ENOTSUP);
	said(&w, 0, 0);
	assert_true(!inlay_mmap_num_bufs(&map) && !pending(&r));

	expect_nothing(&a.cq);
	must(inlay_memdomain_destroy(other));
	down();
	free(memory);
}

/* ---- transfers, and what done may do ---- */

static struct inlay_memdomain_copy again;
static int left;

/* Begins the next one, in a table of one */
static void next(void *arg, int rc)
{
	*(int *)arg |= rc;
	if (left-- > 0)
		*(int *)arg |= inlay_memdomain_push(&r.domain, &again);
}

TEST(transfers)
{
	struct iovec near[2], far[2];
	struct inlay_memdomain_peer peer;
	struct inlay_memdomain_copy copy;
	struct inlay_memdomain_result res;
	struct inlay_memdomain *sys;
	struct word w = {0, 0};
	uint32_t rkey;
	int i, rc = 0;

	up(64, 1);
	sys = inlay_memdomain_system(&reg);
	must(inlay_memdomain_system_attach(sys));
	rkey = b.mr->rkey;
	peer = peer_of(&rkey, 1, 0);
	fill(a.buf, BYTES, 3);
	near[0] = vec(&a, 10, 100);
	near[1] = vec(&a, 500, 50);
	far[0] = vec(&b, 0, 30);
	far[1] = vec(&b, 1000, 200);
	must(inlay_memdomain_translate(&r.domain, NULL, &r.domain, NULL, a.buf + 2000, 60, &res));
	res.lkey = a.mr->lkey;
	/* From here; out of what was translated, in both forms: by its key, not by the map's, and src_iov is not looked at */
	for (i = 0; i < 3; i++) {
		must(transfer(&peer, far, i ? &r.domain : NULL, near, i ? &res : NULL, &w));
		assert_int_equal(take(), 1);
		said(&w, i + 1, 0);
		assert_memory_equal(b.buf, a.buf + (i == 1 ? 2000 : 10), 30);
		assert_memory_equal(b.buf + 1000, a.buf + (i == 1 ? 2030 : 40), 30);
		if (i != 1)
			assert_memory_equal(b.buf + 1070, a.buf + 500, 50);
		memset(b.buf, 0, BYTES);
		res.iov_count = i + 1;
		res.iovs = near;
		if (!i)
			res.iovs = NULL;
	}
	/* From the peer to the system domain: the domain's pull */
	fill(b.buf, BYTES, 4);
	copy = copy_of(far, 1, near, 2, &w);
	copy.src = &r.domain;
	copy.src_ctx = &peer;
	must(inlay_memdomain_transfer(sys, &copy));
	assert_int_equal(w.calls, 3);
	assert_int_equal(take(), 1);
	said(&w, 4, 0);
	assert_true(!memcmp(a.buf + 10, b.buf, 30) && differs(a.buf, 10, 3) == 10);
	/* Nobody wants the word */
	must(push(&peer, far + 1, 1, near, 1, NULL));
	assert_int_equal(take(), 1);
	near[0].iov_len = 0;
	must(push(&peer, far, 1, near, 1, NULL));
	expect_nothing(&a.cq);
	/* The map stopped, and started again: other keys, and the same range is remembered */
	near[0].iov_len = 30;
	must(inlay_mmap_stop(&map));
	assert_int_equal(push(&peer, far, 1, near, 1, &w), -ENOENT);
	must(inlay_mmap_start(&map));
	must(push(&peer, far, 1, near, 1, &w));
	assert_int_equal(take(), 1);
	said(&w, 5, 0);
	assert_memory_equal(b.buf, a.buf + 10, 30);
	again = copy_of(near, 1, far, 1, NULL);
	again.dst_ctx = &peer;
	again.done = next;
	again.arg = &rc;
	left = 20;
	must(inlay_memdomain_push(&r.domain, &again));
	for (i = 0; pending(&r); i++)
		assert_int_equal(take(), 1);
	assert_true(i == 21 && !rc);
	down();
}

/* ---- errors ---- */

TEST(errors)
{
	struct iovec near, far[4];
	struct inlay_memdomain_peer peer, wrong;
	struct word w[4];
	uint32_t rkey, none, bad_at, i, taken, ended;

	for (bad_at = 0; bad_at < 4; bad_at++) {
		uint32_t keys[4];

		up(64, 4);
		memset(w, 0, sizeof(w));
		rkey = b.mr->rkey;
		none = rkey ^ 0x5500;
		for (i = 0; i < 4; i++) {
			keys[i] = i == bad_at ? none : rkey;
			far[i] = vec(&b, i * 100, 25);
		}
		peer = peer_of(&rkey, 1, INLAY_MEMDOMAIN_NO_RING);
		wrong = peer_of(keys, 4, INLAY_MEMDOMAIN_NO_RING);
		near = vec(&a, 0, 100);
		/* Four operations of four WQEs: a good one, one with a wrong key, two after it */
		for (i = 0; i < 4; i++)
			must(push(i == 1 ? &wrong : &peer, far, 4, &near, 1, &w[i]));
		inlay_sq_ring(&a.sq);
		for (taken = ended = 0; ended < 4; taken++) {
			int rc = take();

			assert_true(rc == 0 || rc == 1);
			ended += rc == 1;
			for (i = 0; i < 4; i++)
				assert_int_equal(w[i].calls, i < ended);
			assert_true(taken < 16);
		}
		/* The good one's; of the bad one what came from the error on; all of the others */
		assert_int_equal(taken, 1 + (4 - bad_at) + 8);
		said(&w[0], 1, 0);
		for (i = 1; i < 4; i++)
			said(&w[i], 1, -EIO);
		assert_true(!inlay_sq_pending(&a.sq) && !inlay_mmap_num_bufs(&map));
		expect_nothing(&a.cq);
		/* A queue in error: accepted, and fails */
		must(pull(&peer, far, 1, &near, 1, &w[0]));
		inlay_sq_ring(&a.sq);
		assert_int_equal(take(), 1);
		said(&w[0], 2, -EIO);
		/* Reset with operations under way */
		for (i = 0; i < 3; i++)
			must(push(&peer, far, 4, &near, 1, &w[i]));
		assert_int_equal(inlay_memdomain_rdma_attach(&r, NULL, NULL, 0), -EBUSY);
		assert_int_equal(inlay_memdomain_rdma_destroy(&r), -EBUSY);
		qp_to(a.qp, IBV_QPS_RESET);
		qp_to(b.qp, IBV_QPS_RESET);
		inlay_cq_clean(&a.cq, a.qp->qp_num, NULL, NULL);
		inlay_sq_reset(&a.sq);
		assert_true(inlay_memdomain_rdma_abort(&r) == 3 && !inlay_memdomain_rdma_abort(&r));
		said(&w[0], 3, -ECANCELED);
		said(&w[1], 2, -ECANCELED);
		said(&w[2], 2, -ECANCELED);
		assert_int_equal(inlay_mmap_num_bufs(&map), 0);
		/* And on */
		ends_connect(&a, &b);
		must(push(&peer, far, 4, &near, 1, &w[3]));
		inlay_sq_ring(&a.sq);
		assert_int_equal(take(), 1);
		said(&w[3], 2, 0);
		down();
	}
}

/* ---- how operations are cut into WQEs ---- */

/* No memory stands behind these addresses: nothing is rung */
TEST(shapes)
{
	const uint64_t gib = 1u << 30, near_at = 0, far_at = 0x7000000000;
	uint8_t *ring = (uint8_t *)pages(256 * 64), page[1024] __attribute__((aligned(1024)));
	uint32_t record[2] = {0, 0}, rkey = 0x1234, i, bb;
	struct inlay_memdomain_peer peer = peer_of(&rkey, 1, INLAY_MEMDOMAIN_NO_RING);
	struct inlay_memdomain_result res;
	struct inlay_keys keys = {77, 78};
	struct iovec near, far, many[100];
	struct word w = {0, 0};
	struct inlay_uar uar;
	struct inlay_mmap m;
	struct inlay_sq sq;
	uint64_t done;

	must(inlay_memdomain_registry_init(&reg));
	must(inlay_mmap_create(&m, map_memory, sizeof(map_memory), 1, 1));
	must(inlay_mmap_add_dev(&m, dev.pd));
	must(inlay_mmap_add(&m, inlay_source_keys(near_at, 16 * gib, keys)));
	must(inlay_mmap_set_permissions(&m, INLAY_LOCAL_READ_WRITE));
	must(inlay_mmap_start(&m));
	must(inlay_uar_init(&uar, page, 256, INLAY_UAR_DOORBELL));
	must(inlay_memdomain_rdma_create(&r, &reg, &m, dev.pd, NULL));
	for (uint32_t max_ds = 1; max_ds <= 63; max_ds += max_ds < 5 || (max_ds > 30 && max_ds < 33) ? 1 : 13) {
		const uint32_t sges = max_ds < 4 ? 2 : max_ds - 2 < 30 ? max_ds - 2 : 30;

		must(inlay_sq_init(&sq, ring, 256, record, 0x123, max_ds, &uar));
		must(inlay_memdomain_rdma_attach(&r, &sq, ops, 2));
		/* Longer than a message: from address 0 */
		near.iov_base = NULL;
		near.iov_len = 3 * gib + 5;
		far.iov_base = (void *)(uintptr_t)far_at;
		far.iov_len = near.iov_len;
		must(push(&peer, &far, 1, &near, 1, &w));
		for (i = 0; i < 4; i++) {
			struct wqe q = wqe_at(ring, i);

			assert_true(q.opcode == MLX5_OPCODE_RDMA_WRITE && q.raddr == far_at + i * gib && q.first_addr == near_at + i * gib);
			assert_true(q.bytes == (i == 3 ? 5 : gib) && q.sges == 1 && q.rkey == rkey && q.lkey == 77 && q.signaled == (i == 3));
		}
		assert_true(inlay_sq_index(&sq) == 4 && !inlay_sq_rung(&sq));
		/* Many pieces here, one there */
		for (i = 0; i < 100; i++) {
			many[i].iov_base = (void *)(uintptr_t)(near_at + 1000 * i);
			many[i].iov_len = i + 1;
		}
		far.iov_len = 5050;
		must(pull(&peer, &far, 1, many, 100, &w));
		for (i = 0, bb = 4, done = 0; i < 100; i += sges) {
			struct wqe q = wqe_at(ring, bb);

			assert_true(q.opcode == MLX5_OPCODE_RDMA_READ && q.sges == (100 - i < sges ? 100 - i : sges));
			assert_true(q.raddr == far_at + done && q.first_addr == near_at + 1000 * i && q.signaled == (i + sges >= 100));
			done += q.bytes;
			bb += q.bbs;
		}
		assert_true(done == 5050 && inlay_sq_index(&sq) == bb);
		assert_int_equal(inlay_memdomain_rdma_abort(&r), 2);
		said(&w, 2, -ECANCELED);
		w.calls = 0;
		inlay_sq_fini(&sq);
		must(inlay_memdomain_rdma_attach(&r, NULL, NULL, 0));
	}
	/* What the CPU may not reach is not the system domain's */
	assert_int_equal(inlay_memdomain_translate(&r.domain, NULL, inlay_memdomain_system(&reg), NULL,
						   many[1].iov_base, 8, &res), -ENOTSUP);
	must(inlay_memdomain_rdma_destroy(&r));
	assert_true(unused(&reg));
	must(inlay_mmap_destroy(&m));
	free(ring);
}

/* ---- completions that the device did not make ---- */

static int completed(uint32_t index, uint8_t opcode, uint32_t qpn, uint8_t bits)
{
	struct mlx5_cqe64 cqe = {.sop_drop_qpn = inlay_to_be32(qpn), .wqe_counter = inlay_to_be16((uint16_t)index),
				 .op_own = (uint8_t)(opcode << 4 | bits)};

	return inlay_memdomain_rdma_complete(&r, &cqe);
}

TEST(strange_completions)
{
	struct inlay_memdomain_peer peer;
	struct iovec near, far[3];
	struct word w[3] = {};
	uint32_t rkey, qpn, i, p;

	up(64, 4);
	qpn = a.qp->qp_num;
	rkey = b.mr->rkey;
	peer = peer_of(&rkey, 1, INLAY_MEMDOMAIN_NO_RING);
	near = vec(&a, 0, 30);
	for (i = 0; i < 3; i++)
		far[i] = vec(&b, i * 100, 10);
	/* So that the indices come round within the first */
	for (p = 0; p < 65535; p++) {
		must(inlay_post(&a.sq, MLX5_OPCODE_NOP, NULL, 0));
		inlay_sq_release_until(&a.sq, inlay_sq_index(&a.sq));
	}
	assert_int_equal(completed(p, MLX5_CQE_REQ, qpn, 0), -ENOENT); /* none under way */
	must(push(&peer, far, 3, &near, 1, &w[0])); /* p .. p + 2 */
	must(inlay_post(&a.sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED));                               /* p + 3 */
	must(push(&peer, far, 3, &near, 1, &w[1])); /* p + 4 .. p + 6 */
	must(push(&peer, far, 3, &near, 1, &w[2])); /* p + 7 .. p + 9 */
	assert_int_equal(inlay_sq_index(&a.sq), p + 10);
	const struct { uint32_t at, qpn; uint8_t opcode; int err; } strange[] = {
		{2, qpn + 1, MLX5_CQE_REQ, -ENOENT}, {2, qpn, MLX5_CQE_RESP_SEND, -ENOENT}, {2, qpn, MLX5_CQE_RESP_ERR, -ENOENT},
		{UINT32_MAX, qpn, MLX5_CQE_REQ, -ENOENT}, {3, qpn, MLX5_CQE_REQ, -ENOENT}, {10, qpn, MLX5_CQE_REQ, -ENOENT},
		{0, qpn, MLX5_CQE_REQ, -EPROTO}, {1, qpn, MLX5_CQE_REQ, -EPROTO}, /* good, and not signaled */
	};
	for (i = 0; i < ARRAY(strange); i++)
		assert_int_equal(completed(p + strange[i].at, strange[i].opcode, strange[i].qpn, 0), strange[i].err);
	for (i = 4; i < 10; i++) {
		assert_int_equal(completed(p + i, MLX5_CQE_REQ, qpn, 0), -ENOENT);
		assert_int_equal(completed(p + i, MLX5_CQE_REQ_ERR, qpn, 0), -ENOENT);
	}
	assert_int_equal(pending(&r), 3);
	said(&w[0], 0, 0);
	assert_int_equal(completed(p + 2, MLX5_CQE_REQ, qpn, 0), 1);
	said(&w[0], 1, 0);
	assert_int_equal(completed(p + 2, MLX5_CQE_REQ, qpn, 0), -ENOENT); /* twice */
	/* Data in the CQE */
	assert_int_equal(completed(p + 6, MLX5_CQE_REQ, qpn, INLAY_CQE_SCATTER_32), 1);
	said(&w[1], 1, -EIO);
	/* An error before the last one */
	assert_int_equal(completed(p + 8, MLX5_CQE_REQ_ERR, qpn, 0), 0);
	said(&w[2], 0, 0);
	assert_int_equal(completed(p + 9, MLX5_CQE_REQ, qpn, 0), 1);
	said(&w[2], 1, -EIO);
	inlay_sq_reset(&a.sq);
	must(inlay_memdomain_rdma_attach(&r, NULL, NULL, 0));
	assert_int_equal(completed(p, MLX5_CQE_REQ, qpn, 0), -ENOENT);
	down();
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
