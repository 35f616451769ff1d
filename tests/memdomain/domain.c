/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * domain.c: every function of domain.h with each of its answers; the registry
 * against a plain model; copies between vectors of unequal splits against a byte model. Threads are
 * in threads.c.
 */
#include "rig.h"

#define MEMORY 512
#define SLOTS 24

/* SPDK's layouts */
#define AT(type, field, place) (offsetof(struct inlay_memdomain_##type, field) == (place))
INLAY_STATIC_ASSERT(AT(result, iov_count, 8) && AT(result, iov, 16) && AT(result, iovs, 32), "result");
INLAY_STATIC_ASSERT(AT(result, dst_domain, 40) && AT(result, lkey, 48) && AT(result, rkey, 52), "result");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_result) == 56, "result");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_translation_ctx) == 16 && AT(translation_ctx, ibv_qp, 8), "translation context");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_rdma_ctx) == 16 && AT(rdma_ctx, ibv_pd, 8), "RDMA context");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_ctx) == 24 && AT(ctx, user_ctx, 8) && AT(ctx, user_ctx_size, 16), "context");

static struct inlay_memdomain_registry reg;
static uint8_t memory[SLOTS][MEMORY] __attribute__((aligned(64)));

static struct inlay_memdomain *make(uint32_t slot, int type, const struct inlay_memdomain_ctx *ctx, const char *id)
{
	struct inlay_memdomain *d = NULL;

	must(inlay_memdomain_create(&reg, memory[slot], MEMORY, type, ctx, id, &d));
	assert_ptr_equal(d, memory[slot]);
	return d;
}

/* ---- creation ---- */

TEST(type_names)
{
	static const struct { int type; const char *name; } rows[] = {
		{0, "RDMA"}, {1, "DMA"}, {2, "ACCEL"}, {3, "UNKNOWN"}, {-1, "UNKNOWN"}, {999, "UNKNOWN"}, {1000, "VENDOR_SPECIFIC"},
		{1999, "VENDOR_SPECIFIC"}, {2000, "UNKNOWN"},
	};

	for (size_t i = 0; i < ARRAY(rows); i++)
		assert_string_equal(inlay_memdomain_type_name(rows[i].type), rows[i].name);
}

TEST(create_answers)
{
	char user[80];
	struct inlay_memdomain_ctx good = {sizeof(good), user, sizeof(user)}, empty = {0, user, sizeof(user)};
	struct inlay_memdomain_ctx huge = {sizeof(huge), user, SIZE_MAX - 100};
	const size_t need = inlay_memdomain_size(&good, "name");
	struct inlay_memdomain *none = (struct inlay_memdomain *)user, *d = none;
	const struct {
		struct inlay_memdomain **d; struct inlay_memdomain_registry *reg; void *memory; size_t size;
		const struct inlay_memdomain_ctx *ctx; const char *id; int answer;
	} rows[] = {
		{NULL, &reg, memory[0], MEMORY, &good, "name", -EINVAL},
		{&d, NULL, memory[0], MEMORY, &good, "name", -EINVAL},
		{&d, &reg, memory[0], MEMORY, &empty, "name", -EINVAL},
		{&d, &reg, memory[0] + 8, MEMORY - 64, &good, "name", -EINVAL},
		{&d, &reg, NULL, MEMORY, &good, "name", -EINVAL}, {&d, &reg, memory[0], 0, &good, "name", -ENOBUFS},
		{&d, &reg, memory[0], need - 1, &good, "name", -ENOBUFS},
		{&d, &reg, memory[0], need - 1, NULL, "name", 0},
		{&d, &reg, memory[0], MEMORY, &huge, "name", -ENOBUFS},
		{&d, &reg, memory[0], SIZE_MAX, &huge, "name", -ENOBUFS}, {&d, &reg, memory[0], need, &good, "name", 0},
		{&d, &reg, memory[0], need, &good, NULL, 0},
		{&d, &reg, memory[0], sizeof(struct inlay_memdomain), NULL, NULL, 0},
	};

	assert_int_equal(inlay_memdomain_registry_init(NULL), -EINVAL);
	assert_int_equal(inlay_memdomain_registry_init((struct inlay_memdomain_registry *)(void *)(memory[0] + 16)), -EINVAL);
	must(inlay_memdomain_registry_init(&reg));
	assert_int_equal(need % 64, 0);
	for (size_t i = 0; i < ARRAY(rows); i++) {
		memset(memory, 0x5a, sizeof(memory));
		d = none;
		assert_int_equal(inlay_memdomain_create(rows[i].reg, rows[i].memory, rows[i].size, 7, rows[i].ctx,
							rows[i].id, rows[i].d), rows[i].answer);
		if (rows[i].answer) {
			assert_true(d == none && all_bytes(memory, sizeof(memory), 0x5a) && domains(&reg) == 1);
			continue;
		}
		assert_true(d == rows[i].memory && domains(&reg) == 2);
		assert_true(all_bytes(memory[0] + need, sizeof(memory) - need, 0x5a) && !unused(&reg));
		must(inlay_memdomain_destroy(d));
		assert_true(inlay_memdomain_destroy(d) == -EBADFD && domains(&reg) == 1);
	}
	for (size_t i = 0; i < sizeof(user); i++) {
		size_t bytes;

		memset(user, 'x', i);
		user[i] = 0;
		bytes = inlay_memdomain_size(NULL, user);
		assert_in_range(bytes, sizeof(*d) + i + 1, sizeof(*d) + i + 64);
		must(inlay_memdomain_create(&reg, memory[0], bytes, 7, NULL, user, &d));
		assert_string_equal(inlay_memdomain_id(d), user);
		must(inlay_memdomain_destroy(d));
	}
	must(inlay_memdomain_destroy(NULL));
	assert_true(unused(&reg));
}

/* A context of every size that a caller may say, with and without what it points to */
TEST(contexts)
{
	struct inlay_memdomain_ctx ctx, *got;
	uint8_t user[48], said[64];
	struct inlay_memdomain *d;
	size_t size, bytes, n;

	must(inlay_memdomain_registry_init(&reg));
	for (size = 1; size <= 40; size++)
		for (bytes = 0; bytes <= sizeof(user); bytes += 16) {
			bool has_user = size >= 16, has_size = size >= 24, copied = has_size && bytes;

			memset(memory[0], 0x5a, MEMORY);
			fill(user, sizeof(user), (uint32_t)bytes);
			memcpy(said, user, sizeof(user));
			ctx.size = size;
			ctx.user_ctx = user;
			ctx.user_ctx_size = bytes;
			d = make(0, 1000, &ctx, "who");
			memset(user, 0xff, sizeof(user)); /* the caller's own is its to reuse */
			got = inlay_memdomain_context(d);
			assert_true(got && got != &ctx && got->size == (size < 24 ? size : 24));
			assert_ptr_equal(got->user_ctx, copied ? (void *)(d + 1) : has_user ? user : NULL);
			assert_int_equal(got->user_ctx_size, has_size ? bytes : 0);
			n = 77;
			assert_ptr_equal(inlay_memdomain_user_context(d, &n), copied ? d + 1 : NULL);
			assert_int_equal(n, copied ? bytes : 0);
			if (copied)
				assert_memory_equal(d + 1, said, bytes);
			assert_ptr_equal(inlay_memdomain_user_context(d, NULL), copied ? d + 1 : NULL);
			assert_int_equal(inlay_memdomain_type(d), 1000);
			assert_string_equal(inlay_memdomain_id(d), "who");
			must(inlay_memdomain_destroy(d));
		}
	/* Bytes to copy at NULL; no context at all */
	for (size = 0; size < 2; size++) {
		ctx.size = sizeof(ctx);
		ctx.user_ctx = NULL;
		ctx.user_ctx_size = 16;
		d = make(0, -5, size ? NULL : &ctx, size ? "" : NULL);
		n = 77;
		assert_true(!inlay_memdomain_user_context(d, &n) && !n);
		assert_true((inlay_memdomain_context(d) != NULL) == !size && (inlay_memdomain_id(d) != NULL) == (size != 0));
		assert_int_equal(inlay_memdomain_type(d), -5);
		must(inlay_memdomain_destroy(d));
	}
	n = 77;
	assert_null(inlay_memdomain_context(NULL));
	assert_true(!inlay_memdomain_user_context(NULL, &n) && !n);
	assert_true(!inlay_memdomain_id(NULL) && inlay_memdomain_type(NULL) == -EINVAL);
	assert_true(unused(&reg));
}

/* ---- operations ---- */

enum { TRANSLATE, PULL, PUSH, TRANSFER, MEMZERO, INVALIDATE, OPS };

/* Arguments that are NULL, or 0 */
enum { DOMAIN = 1, OTHER = 2, SRC = 4, DST = 8, RESULT = 16, COUNT = 32, CTX = 64, DONE = 128, LENGTH = 256, COPY = 512, ALL = 1024 };

/* What a callback was called with: what it has, in the order of its arguments */
static struct called {
	int op, calls;
	const void *args[7];
	size_t n;
	inlay_memdomain_done done;
} last;
static int answer;

static struct iovec one[3] = {{&last, 8}, {&last, 16}, {&last, 24}}, two[3];
static struct inlay_memdomain_translation_ctx dst_ctx;
static struct inlay_memdomain_result result;
static struct inlay_memdomain_copy given;
static struct word told;

static int note(int op, size_t n, inlay_memdomain_done done, const void *a, const void *b, const void *c, const void *d, const void *e)
{
	struct called now_ = {op, last.calls + 1, {a, b, c, d, e}, n, done};

	last = now_;
	return answer;
}

static int translate_cb(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst, struct inlay_memdomain_translation_ctx *ctx,
			void *addr, size_t len, struct inlay_memdomain_result *to)
{
	note(TRANSLATE, len, NULL, src, src_ctx, dst, ctx, addr);
	last.args[5] = to;
	return answer;
}

#define COPY_CB(name, op) \
	static int name(struct inlay_memdomain *d, const struct inlay_memdomain_copy *copy) \
	{ \
		return note(op, 0, NULL, d, copy, NULL, NULL, NULL); \
	}
COPY_CB(pull_cb, PULL)
COPY_CB(push_cb, PUSH)
COPY_CB(transfer_cb, TRANSFER)

static int memzero_cb(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t n, inlay_memdomain_done done, void *arg)
{
	return note(MEMZERO, n, done, d, ctx, iov, arg, NULL);
}

static void invalidate_cb(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t n)
{
	note(INVALIDATE, n, NULL, d, ctx, iov, NULL, NULL);
}

static int set(struct inlay_memdomain *d, int op, bool on)
{
	switch (op) {
	case TRANSLATE: return inlay_memdomain_set_translation(d, on ? translate_cb : NULL);
	case PULL: return inlay_memdomain_set_pull(d, on ? pull_cb : NULL);
	case PUSH: return inlay_memdomain_set_push(d, on ? push_cb : NULL);
	case TRANSFER: return inlay_memdomain_set_transfer(d, on ? transfer_cb : NULL);
	case MEMZERO: return inlay_memdomain_set_memzero(d, on ? memzero_cb : NULL);
	default: return inlay_memdomain_set_invalidate(d, on ? invalidate_cb : NULL);
	}
}

/* Calls an operation; *want is what its callback gets */
static int call(int op, struct inlay_memdomain *d, struct inlay_memdomain *other, int null, struct called *want)
{
	void *ctx = null & CTX ? NULL : &reg, *iov = null & SRC ? NULL : one;
	struct inlay_memdomain_translation_ctx *to_ctx = null & CTX ? NULL : &dst_ctx;
	struct inlay_memdomain_result *res = null & RESULT ? NULL : &result;
	const struct inlay_memdomain_copy *copy = null & COPY ? NULL : &given;
	const uint32_t n = null & COUNT ? 0 : 3;
	const size_t len = null & LENGTH ? 0 : 99;

	d = null & DOMAIN ? NULL : d;
	other = null & OTHER ? NULL : other;
	given = copy_of((struct iovec *)iov, n, null & DST ? NULL : two, n, null & DONE ? NULL : &told);
	given.src = other;
	given.translation = res;
	const struct called wants[OPS] = {
		{TRANSLATE, 1, {d, ctx, other, to_ctx, iov, res}, len, NULL}, {PULL, 1, {d, copy}, 0, NULL}, {PUSH, 1, {d, copy}, 0, NULL},
		{TRANSFER, 1, {d, copy}, 0, NULL}, {MEMZERO, 1, {d, ctx, iov, given.arg}, n, given.done}, {INVALIDATE, 1, {d, ctx, iov}, n, NULL},
	};
	*want = wants[op];
	switch (op) {
	case TRANSLATE: return inlay_memdomain_translate(d, ctx, other, to_ctx, iov, len, res);
	case PULL: return inlay_memdomain_pull(d, copy);
	case PUSH: return inlay_memdomain_push(d, copy);
	case TRANSFER: return inlay_memdomain_transfer(d, copy);
	case MEMZERO: return inlay_memdomain_memzero(d, ctx, (struct iovec *)iov, n, given.done, given.arg);
	default: inlay_memdomain_invalidate(d, ctx, (struct iovec *)iov, n); return 0;
	}
}

/* Each argument missing once; only what is set is called, with all its arguments */
TEST(operations)
{
	static const int refused[OPS] = {
		DOMAIN | OTHER | RESULT, DOMAIN | COPY | SRC | DST, DOMAIN | COPY | SRC | DST, DOMAIN | COPY | SRC | DST, DOMAIN | SRC | COUNT, 0
	};
	struct inlay_memdomain *d, *other;
	struct called want;
	int op, k, null, on, rc;

	must(inlay_memdomain_registry_init(&reg));
	d = make(0, 0, NULL, "d");
	other = make(1, 1, NULL, "other");
	for (op = 0; op < OPS; op++) {
		assert_int_equal(set(NULL, op, true), -EINVAL);
		must(set(other, op, true));
		for (on = 0; on < 2; on++)
			for (null = 1; null <= ALL; null *= 2) {
				bool called = on && op == INVALIDATE ? null != DOMAIN : on && !(null & refused[op]);

				for (k = 0; k < OPS; k++)
					must(set(d, k, (k == op) == on));
				memset(&last, 0, sizeof(last));
				answer = null % 3 ? 123 : -ENOMEM;
				rc = call(op, d, other, null, &want);
				assert_int_equal(rc, op == INVALIDATE ? 0 : null & refused[op] ? -EINVAL : on ? answer : -ENOTSUP);
				assert_int_equal(last.calls, called);
				if (called)
					assert_memory_equal(&last, &want, sizeof(want));
			}
		/* Nothing is set in the system domain */
		assert_int_equal(call(op, inlay_memdomain_system(&reg), other, 0, &want), op == INVALIDATE ? 0 : -ENOTSUP);
		must(set(other, op, false));
	}
	said(&told, 0, 0); /* only a callback calls done */
	must(inlay_memdomain_destroy(d));
	must(inlay_memdomain_destroy(other));
	assert_true(unused(&reg));
}

/* ---- the registry against a model ---- */

#define WALKERS 5
#define SYSTEM SLOTS  /* a place in the list; NOWHERE is another */
#define NOWHERE (SLOTS + 1)

static struct {
	int state; /* 0: free, 1: in the registry, 2: destroyed and held */
	int id, type, holders;
	uint32_t user;
} slot[SLOTS + 1];
static struct {
	int at, id;
} walker[WALKERS];
static int order[SLOTS + 1], n_order; /* slots in the order of their creation, the system domain first */
static const char *const ids[] = {NULL, "a", "b", "", "system", "ab"};

static struct inlay_memdomain *at_slot(int at)
{
	return at == NOWHERE ? NULL : at == SYSTEM ? inlay_memdomain_system(&reg) : (struct inlay_memdomain *)memory[at];
}

/* What a walk for id finds behind `at`; NOWHERE: from the beginning */
static int model_next(int at, int id)
{
	bool behind = at == NOWHERE;

	for (int i = 0; i < n_order; i++) {
		if (behind && slot[order[i]].state == 1 && (!id || slot[order[i]].id == id))
			return order[i];
		behind |= order[i] == at;
	}
	return NOWHERE;
}

static void model_remove(int at)
{
	int i;

	for (i = 0; order[i] != at; i++)
		;
	memmove(order + i, order + i + 1, (size_t)(--n_order - i) * sizeof(*order));
	slot[at].state = 0;
	memset(memory[at], 0xdd, MEMORY);
}

TEST(registry_model)
{
	uint32_t steps = 20000, turn, i, w, held = 0, late = 0;
	struct inlay_memdomain *d;
	int next, alive, k;

	must(inlay_memdomain_registry_init(&reg));
	assert_true(!inlay_memdomain_first(NULL, NULL) && !inlay_memdomain_system(NULL));
	assert_true(!inlay_memdomain_next(NULL, NULL) && !inlay_memdomain_next(NULL, "x"));
	inlay_memdomain_put(NULL);
	assert_int_equal(inlay_memdomain_destroy(inlay_memdomain_system(&reg)), -EINVAL);
	memset(slot, 0, sizeof(slot));
	slot[SYSTEM].state = 1;
	slot[SYSTEM].id = 4;
	order[0] = SYSTEM;
	n_order = 1;
	for (w = 0; w < WALKERS; w++)
		walker[w].at = NOWHERE;
	for (turn = 0; turn < steps; turn++) {
		i = rnd_below(SLOTS);
		w = rnd_below(WALKERS);
		switch (rnd_below(8)) {
		case 0:
		case 1:
			if (!slot[i].state) {
				struct inlay_memdomain_ctx ctx = {sizeof(ctx), &slot[i].user, sizeof(slot[i].user)};

				slot[i].state = 1;
				slot[i].id = (int)rnd_below(ARRAY(ids));
				slot[i].type = (int)rnd_below(3000);
				slot[i].user = (uint32_t)rnd();
				order[n_order++] = (int)i;
				make(i, slot[i].type, &ctx, ids[slot[i].id]);
			}
			break;
		case 2:
			if (slot[i].state) {
				late += slot[i].state == 2 && !slot[i].holders;
				held += slot[i].state == 1 && slot[i].holders;
				assert_int_equal(inlay_memdomain_destroy(at_slot((int)i)), slot[i].holders ? -EBUSY : 0);
				slot[i].state = 2;
				if (!slot[i].holders)
					model_remove((int)i);
			}
			break;
		case 3: /* begins a walk, leaving one */
		case 4:
		case 5:
		case 6:
			next = walker[w].at;
			if (turn % 4 == 0 || next == NOWHERE) {
				inlay_memdomain_put(at_slot(next));
				walker[w].id = (int)rnd_below(ARRAY(ids));
				walker[w].at = model_next(NOWHERE, walker[w].id);
				d = inlay_memdomain_first(&reg, ids[walker[w].id]);
			} else {
				walker[w].at = model_next(next, walker[w].id);
				d = inlay_memdomain_next(at_slot(next), ids[walker[w].id]);
			}
			assert_ptr_equal(d, at_slot(walker[w].at));
			if (next != NOWHERE)
				slot[next].holders--;
			if (walker[w].at != NOWHERE)
				slot[walker[w].at].holders++;
			break;
		default:
			if (slot[i].state) {
				d = at_slot((int)i);
				assert_int_equal(inlay_memdomain_type(d), slot[i].type);
				assert_memory_equal(inlay_memdomain_user_context(d, NULL), &slot[i].user, 4);
				assert_string_equal(inlay_memdomain_id(d) ? inlay_memdomain_id(d) : "none", slot[i].id ? ids[slot[i].id] : "none");
			}
		}
		for (alive = k = 0; k < n_order; k++)
			alive += slot[order[k]].state == 1;
		if (turn % 16 == 0)
			assert_int_equal(domains(&reg), alive);
		assert_int_equal(reg.system.holders, slot[SYSTEM].holders);
	}
	assert_true(held > steps / 1000 && late > steps / 1000); /* what the run is for */
	for (w = 0; w < WALKERS; w++)
		inlay_memdomain_put(at_slot(walker[w].at));
	for (i = 0; i < SLOTS; i++)
		if (slot[i].state)
			must(inlay_memdomain_destroy(at_slot((int)i)));
	assert_true(unused(&reg));
}

/* ---- system memory ---- */

#define AREA 65536
#define PIECES 8

static uint8_t from[AREA], to[AREA], plain[AREA];

/* A copy by one of the three ways, transfers from src */
static int by(uint32_t way, struct inlay_memdomain *d, struct inlay_memdomain *src, struct inlay_memdomain_copy copy)
{
	if (way == 0)
		return inlay_memdomain_pull(d, &copy);
	if (way == 1)
		return inlay_memdomain_push(d, &copy);
	copy.src = src;
	return inlay_memdomain_transfer(d, &copy);
}

TEST(copies)
{
	struct iovec src[PIECES], dst[PIECES];
	struct inlay_memdomain *d;
	uint32_t i, n, m;

	must(inlay_memdomain_registry_init(&reg));
	assert_int_equal(inlay_memdomain_system_attach(NULL), -EINVAL);
	d = inlay_memdomain_system(&reg);
	must(inlay_memdomain_system_attach(d));
	fill(from, sizeof(from), 1);
	for (i = 0; i < 8000; i++) {
		uint32_t total = rnd_below((i % 40 ? 24 : 5000) + 1), extra = rnd() & 1 ? rnd_below(16) : 0;
		size_t span = total + extra + 16 + 8 * PIECES + 16;
		struct word w = {0, 0};

		n = cut(src, from, 16, total, PIECES);
		m = cut(dst, to, 16, total + extra, PIECES);
		memset(to, 0xee, span);
		memset(plain, 0xee, span);
		model_copy(dst, to, plain, src, n, from, from);
		must(by(rnd_below(3), d, NULL, copy_of(src, n, dst, m, &w)));
		said(&w, 1, 0);
		if (memcmp(to, plain, span))
			fail_msg("%u bytes in %u pieces into %u", total, n, m);
	}
	assert_true(unused(&reg));
}

/* Each length once, around all that a copy of one piece tells apart, at several alignments; then zeros there: these bytes and no other */
TEST(lengths)
{
	struct inlay_memdomain *d;

	must(inlay_memdomain_registry_init(&reg));
	d = inlay_memdomain_system(&reg);
	must(inlay_memdomain_system_attach(d));
	fill(from, sizeof(from), 2);
	for (uint32_t len = 0; len < 1100; len++)
		for (uint32_t a = 0; a < 64; a += 13) {
			struct iovec source = {from + 3 * a % 64, len}, dest = {to + 64 + a, len};
			struct inlay_memdomain_copy copy = copy_of(&source, 1, &dest, 1, NULL);

			memset(to, 0xee, sizeof(to) / 32);
			must(inlay_memdomain_pull(d, &copy));
			assert_memory_equal(dest.iov_base, source.iov_base, len);
			/* Each byte onto itself */
			copy.src_iov = &dest;
			must(inlay_memdomain_pull(d, &copy));
			assert_memory_equal(dest.iov_base, source.iov_base, len);
			assert_true(all_bytes(to, 64 + a, 0xee) && all_bytes(to + 64 + a + len, 16, 0xee));
			must(inlay_memdomain_memzero(d, NULL, &dest, 1, NULL, NULL));
			assert_true(all_bytes(to, 64 + a, 0xee) && all_bytes(to + 64 + a, len, 0) && all_bytes(to + 64 + a + len, 16, 0xee));
		}
	assert_true(unused(&reg));
}

static int forwarded(struct inlay_memdomain *src, const struct inlay_memdomain_copy *copy)
{
	assert_true(src == copy->src_ctx && copy == &given);
	return 123;
}

TEST(system_answers)
{
	struct iovec src[2] = {{from, 8}, {from + 100, 8}}, dst[3] = {{to, 5}, {to + 50, 5}, {to + 100, 6}};
	struct iovec huge[2] = {{from, SIZE_MAX}, {from, 1}};
	struct iovec shorter[2] = {{to, 5}, {to + 50, 10}}, null[2] = {{from, 8}, {NULL, 8}};
	struct iovec none[2] = {{NULL, 0}, {from, 0}};
	struct inlay_memdomain *sys, *own, *other;
	struct inlay_memdomain_result res = {};
	const struct { const struct iovec *dst, *src; uint32_t dst_n, src_n; int answer; } rows[] = {
		{dst, src, 3, 2, 0}, {dst, src, 2, 2, -EINVAL}, {shorter, src, 2, 2, -EINVAL},
		{dst, src, 0, 2, -EINVAL}, {dst, src, 0, 0, 0}, {dst, src, 3, 0, 0}, {dst, huge, 3, 2, -EINVAL},
		{huge, src, 2, 2, -EINVAL}, {dst, null, 3, 2, -EINVAL}, {null, src, 2, 2, -EINVAL},
		{dst, none, 3, 2, 0}, {none, src, 2, 2, -EINVAL}, {none, none, 2, 2, 0},
	};
	int rc;

	must(inlay_memdomain_registry_init(&reg));
	sys = inlay_memdomain_system(&reg);
	own = make(0, 1234, NULL, "own");
	other = make(1, INLAY_MEMDOMAIN_DMA, NULL, "other");
	must(inlay_memdomain_system_attach(own));
	for (size_t i = 0; i < ARRAY(rows); i++)
		for (uint32_t way = 0; way < 6; way++) {
			struct word w = {0, 0};

			memset(to, 0xee, 256);
			rc = by(way / 2, own, way & 1 ? sys : own,
				copy_of(rows[i].src, rows[i].src_n, rows[i].dst, rows[i].dst_n, way & 1 ? NULL : &w));
			assert_int_equal(rc, rows[i].answer);
			said(&w, !rc && !(way & 1), 0);
			if (rc || !rows[i].src_n || !rows[i].src[0].iov_len)
				assert_true(all_bytes(to, 256, 0xee));
			else
				assert_true(!memcmp(to, from, 5) && !memcmp(to + 50, from + 5, 3) &&
					    !memcmp(to + 53, from + 100, 2) && !memcmp(to + 100, from + 102, 6));
		}

	/* From another domain: its pull, its answers */
	memset(to, 0xee, 256);
	given = copy_of(one, 2, two, 1, &told);
	given.src = other;
	given.src_ctx = other;
	assert_int_equal(inlay_memdomain_transfer(own, &given), -ENOTSUP);
	must(inlay_memdomain_set_pull(other, forwarded));
	assert_int_equal(inlay_memdomain_transfer(own, &given), 123);

	/* A translation is what is copied from, in either form, and must be to here */
	must(inlay_memdomain_translate(own, NULL, own, NULL, from + 200, 16, &res));
	assert_true(res.size == sizeof(res) && res.iov_count == 1 && res.iov.iov_base == from + 200);
	assert_true(res.iov.iov_len == 16 && res.dst_domain == own);
	must(inlay_memdomain_translate(own, NULL, sys, NULL, from + 200, 16, &res));
	assert_ptr_equal(res.dst_domain, sys);
	given = copy_of(src, 2, dst, 3, NULL);
	given.src = other;
	given.translation = &res;
	assert_int_equal(inlay_memdomain_transfer(own, &given), -EINVAL);
	assert_int_equal(inlay_memdomain_translate(own, NULL, other, NULL, from, 16, &res), -ENOTSUP);
	assert_true(all_bytes(to, 256, 0xee));
	must(inlay_memdomain_translate(own, NULL, own, NULL, from + 200, 16, &res));
	must(inlay_memdomain_transfer(own, &given));
	assert_true(!memcmp(to, from + 200, 5) && !memcmp(to + 50, from + 205, 5) && !memcmp(to + 100, from + 210, 6));
	res.iov_count = 2;
	res.iovs = src;
	given.src_iovcnt = 0;
	must(inlay_memdomain_transfer(own, &given));
	assert_true(!memcmp(to, from, 5) && !memcmp(to + 100, from + 102, 6));
	res.iovs = NULL;
	assert_int_equal(inlay_memdomain_transfer(own, &given), -EINVAL);

	/* Zeros */
	memset(to, 0xee, 256);
	null[0].iov_base = to;
	assert_true(inlay_memdomain_memzero(own, NULL, null, 2, word, &told) == -EINVAL && all_bytes(to, 256, 0xee));
	said(&told, 0, 0);
	must(inlay_memdomain_memzero(own, NULL, dst, 3, word, &told));
	said(&told, 1, 0);
	must(inlay_memdomain_memzero(own, NULL, dst, 3, NULL, NULL));
	for (size_t i = 0; i < 256; i++)
		assert_int_equal(to[i], i < 5 || (i >= 50 && i < 55) || (i >= 100 && i < 106) ? 0 : 0xee);
	inlay_memdomain_invalidate(own, NULL, dst, 3);
	must(inlay_memdomain_destroy(own));
	must(inlay_memdomain_destroy(other));
	assert_true(unused(&reg));
}

#if INLAY_CHECKED
TEST(preconditions)
{
	must(inlay_memdomain_registry_init(&reg));
	assert_aborts("a domain that is put is held", inlay_memdomain_put(make(0, 0, NULL, NULL)));
	assert_aborts("a walk goes on from a domain it holds", inlay_memdomain_next((struct inlay_memdomain *)memory[0], NULL));
}
#endif

int main(void)
{
	rnd_seed();
	return run_all(NULL, NULL);
}
