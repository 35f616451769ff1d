/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * domain.c: every function of domain.h and system.h with each of its answers; the registry
 * against a plain model; copies between vectors of unequal splits against a byte model. Threads are
 * in threads.c.
 */
#include "rig.h"

#define MEMORY 512
#define SLOTS 24

/* SPDK's layouts */
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, iov_count) == 8, "result");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, iov) == 16, "result");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, iovs) == 32, "result");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, dst_domain) == 40, "result");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_result, lkey) == 48, "result");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_translation_ctx) == 16, "translation context");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_translation_ctx, ibv_qp) == 8, "translation context");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_rdma_ctx) == 16, "RDMA context");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_rdma_ctx, ibv_pd) == 8, "RDMA context");
INLAY_STATIC_ASSERT(sizeof(struct inlay_memdomain_ctx) == 24, "context");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_ctx, user_ctx) == 8, "context");
INLAY_STATIC_ASSERT(offsetof(struct inlay_memdomain_ctx, user_ctx_size) == 16, "context");

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

static void type_names(void **state)
{
	static const struct {
		int type;
		const char *name;
	} rows[] = {
		{0, "RDMA"}, {1, "DMA"}, {2, "ACCEL"}, {3, "UNKNOWN"}, {-1, "UNKNOWN"}, {999, "UNKNOWN"},
		{1000, "VENDOR_SPECIFIC"}, {1500, "VENDOR_SPECIFIC"}, {1999, "VENDOR_SPECIFIC"}, {2000, "UNKNOWN"},
	};
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY(rows); i++)
		assert_string_equal(inlay_memdomain_type_name(rows[i].type), rows[i].name);
}

static void create_answers(void **state)
{
	char user[80];
	struct inlay_memdomain_ctx good = {sizeof(good), user, sizeof(user)}, empty = {0, user, sizeof(user)};
	struct inlay_memdomain_ctx huge = {sizeof(huge), user, SIZE_MAX - 100};
	const size_t need = inlay_memdomain_size(&good, "name");
	struct inlay_memdomain *none = (struct inlay_memdomain *)user, *d = none;
	const struct {
		struct inlay_memdomain **d;
		struct inlay_memdomain_registry *reg;
		void *memory;
		size_t size;
		const struct inlay_memdomain_ctx *ctx;
		const char *id;
		int answer;
	} rows[] = {
		{NULL, &reg, memory[0], MEMORY, &good, "name", -EINVAL},
		{&d, NULL, memory[0], MEMORY, &good, "name", -EINVAL},
		{&d, &reg, memory[0], MEMORY, &empty, "name", -EINVAL},
		{&d, &reg, memory[0] + 8, MEMORY - 64, &good, "name", -EINVAL},
		{&d, &reg, NULL, MEMORY, &good, "name", -EINVAL},
		{&d, &reg, memory[0], 0, &good, "name", -ENOBUFS},
		{&d, &reg, memory[0], need - 1, &good, "name", -ENOBUFS},
		{&d, &reg, memory[0], need - 1, NULL, "name", 0},
		{&d, &reg, memory[0], MEMORY, &huge, "name", -ENOBUFS},
		{&d, &reg, memory[0], SIZE_MAX, &huge, "name", -ENOBUFS},
		{&d, &reg, memory[0], need, &good, "name", 0},
		{&d, &reg, memory[0], need, &good, NULL, 0},
		{&d, &reg, memory[0], sizeof(struct inlay_memdomain), NULL, NULL, 0},
	};
	size_t i;

	(void)state;
	assert_int_equal(inlay_memdomain_registry_init(NULL), -EINVAL);
	assert_int_equal(inlay_memdomain_registry_init((struct inlay_memdomain_registry *)(void *)(memory[0] + 16)), -EINVAL);
	must(inlay_memdomain_registry_init(&reg));
	assert_int_equal(need % 64, 0);
	for (i = 0; i < ARRAY(rows); i++) {
		memset(memory, 0x5a, sizeof(memory));
		d = none;
		assert_int_equal(inlay_memdomain_create(rows[i].reg, rows[i].memory, rows[i].size, 7, rows[i].ctx,
							rows[i].id, rows[i].d), rows[i].answer);
		if (rows[i].answer) {
			assert_ptr_equal(d, none);
			assert_true(all_bytes(memory, sizeof(memory), 0x5a));
			assert_int_equal(domains(&reg), 1);
			continue;
		}
		assert_ptr_equal(d, rows[i].memory);
		assert_int_equal(domains(&reg), 2);
		assert_true(all_bytes(memory[0] + need, sizeof(memory) - need, 0x5a));
		assert_false(unused(&reg));
		must(inlay_memdomain_destroy(d));
		assert_int_equal(inlay_memdomain_destroy(d), -EBADFD);
		assert_int_equal(domains(&reg), 1);
	}
	for (i = 0; i < sizeof(user); i++) {
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
static void contexts(void **state)
{
	struct inlay_memdomain_ctx ctx, *got;
	uint8_t user[48], said[64];
	struct inlay_memdomain *d;
	size_t size, bytes, n;

	(void)state;
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
			assert_non_null(got);
			assert_ptr_not_equal(got, &ctx);
			assert_int_equal(got->size, size < 24 ? size : 24);
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
		assert_null(inlay_memdomain_user_context(d, &n));
		assert_int_equal(n, 0);
		assert_int_equal(!inlay_memdomain_context(d), size);
		assert_int_equal(!inlay_memdomain_id(d), !size);
		assert_int_equal(inlay_memdomain_type(d), -5);
		must(inlay_memdomain_destroy(d));
	}
	n = 77;
	assert_null(inlay_memdomain_context(NULL));
	assert_null(inlay_memdomain_user_context(NULL, &n));
	assert_int_equal(n, 0);
	assert_null(inlay_memdomain_id(NULL));
	assert_int_equal(inlay_memdomain_type(NULL), -EINVAL);
	assert_true(unused(&reg));
}

/* ---- operations ---- */

enum { TRANSLATE, PULL, PUSH, TRANSFER, MEMZERO, INVALIDATE, OPS };

/* Arguments that a row makes NULL, or 0 */
enum {
	DOMAIN = 1, OTHER = 2, SRC = 4, DST = 8, RESULT = 16, COUNT = 32, CTX = 64, DONE = 128, LENGTH = 256, COPY = 512
};

/* What a callback was called with */
static struct {
	int op, answer, calls;
	void *d, *other, *ctx, *other_ctx, *addr, *result, *arg;
	const struct inlay_memdomain_copy *copy;
	const struct iovec *iov;
	size_t n;
	inlay_memdomain_done done;
} last;

static struct iovec one[3] = {{&last, 8}, {&last, 16}, {&last, 24}}, two[3];
static struct inlay_memdomain_translation_ctx dst_ctx;
static struct inlay_memdomain_result result;
static struct inlay_memdomain_copy given;
static struct word told;

static int note(int op, struct inlay_memdomain *d, void *ctx)
{
	last.op = op;
	last.calls++;
	last.d = d;
	last.ctx = ctx;
	return last.answer;
}

static int translate_cb(struct inlay_memdomain *src, void *src_ctx, struct inlay_memdomain *dst,
			struct inlay_memdomain_translation_ctx *ctx, void *addr, size_t len,
			struct inlay_memdomain_result *to)
{
	last.other = dst;
	last.other_ctx = ctx;
	last.addr = addr;
	last.n = len;
	last.result = to;
	return note(TRANSLATE, src, src_ctx);
}

static int pull_cb(struct inlay_memdomain *d, const struct inlay_memdomain_copy *copy)
{
	last.copy = copy;
	return note(PULL, d, copy->src_ctx);
}

static int push_cb(struct inlay_memdomain *d, const struct inlay_memdomain_copy *copy)
{
	last.copy = copy;
	return note(PUSH, d, copy->dst_ctx);
}

static int transfer_cb(struct inlay_memdomain *d, const struct inlay_memdomain_copy *copy)
{
	last.copy = copy;
	return note(TRANSFER, d, copy->dst_ctx);
}

static int memzero_cb(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t n,
		      inlay_memdomain_done done, void *arg)
{
	last.iov = iov;
	last.n = n;
	last.done = done;
	last.arg = arg;
	return note(MEMZERO, d, ctx);
}

static void invalidate_cb(struct inlay_memdomain *d, void *ctx, const struct iovec *iov, uint32_t n)
{
	last.iov = iov;
	last.n = n;
	note(INVALIDATE, d, ctx);
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

static int call(int op, struct inlay_memdomain *d, struct inlay_memdomain *other, int null)
{
	const struct inlay_memdomain_copy *copy = null & COPY ? NULL : &given;
	void *ctx = null & CTX ? NULL : &reg;
	uint32_t n = null & COUNT ? 0 : 3;

	if (null & DOMAIN)
		d = NULL;
	if (null & OTHER)
		other = NULL;
	given = copy_of(null & SRC ? NULL : one, n, null & DST ? NULL : two, n, null & DONE ? NULL : &told);
	given.src = other;
	given.translation = null & RESULT ? NULL : &result;
	given.src_ctx = given.dst_ctx = ctx;
	switch (op) {
	case TRANSLATE:
		return inlay_memdomain_translate(d, ctx, other, null & CTX ? NULL : &dst_ctx, null & SRC ? NULL : one,
						 null & LENGTH ? 0 : 99, null & RESULT ? NULL : &result);
	case PULL: return inlay_memdomain_pull(d, copy);
	case PUSH: return inlay_memdomain_push(d, copy);
	case TRANSFER: return inlay_memdomain_transfer(d, copy);
	case MEMZERO: return inlay_memdomain_memzero(d, ctx, given.src_iov, n, given.done, given.arg);
	default: inlay_memdomain_invalidate(d, ctx, given.src_iov, n); return 0;
	}
}

static void operations(void **state)
{
	/* answer 1: reaches the callback; -ENOTSUP when that is not set */
	static const struct {
		int op, null, answer;
	} rows[] = {
		{TRANSLATE, DOMAIN, -EINVAL}, {TRANSLATE, OTHER, -EINVAL}, {TRANSLATE, RESULT, -EINVAL}, {TRANSLATE, SRC, 1},
		{TRANSLATE, CTX, 1}, {TRANSLATE, LENGTH, 1},
#define COPIES(op) {op, DOMAIN, -EINVAL}, {op, COPY, -EINVAL}, {op, SRC, -EINVAL}, {op, DST, -EINVAL}, {op, CTX, 1}, {op, COUNT, 1}, \
		   {op, DONE, 1}, {op, OTHER, 1}, {op, RESULT, 1}
		COPIES(PULL), COPIES(PUSH), COPIES(TRANSFER),
		{MEMZERO, DOMAIN, -EINVAL}, {MEMZERO, SRC, -EINVAL}, {MEMZERO, COUNT, -EINVAL}, {MEMZERO, CTX, 1}, {MEMZERO, DONE, 1},
	};
	struct inlay_memdomain *d, *other;
	size_t i;
	int op, k;

	(void)state;
	must(inlay_memdomain_registry_init(&reg));
	d = make(0, 0, NULL, "d");
	other = make(1, 1, NULL, "other");
	memset(&last, 0, sizeof(last));
	for (op = 0; op < OPS; op++) {
		assert_int_equal(set(NULL, op, true), -EINVAL);
		/* Nothing is set in what is new, nor in the system domain */
		for (k = 0; k < 2; k++)
			assert_int_equal(call(op, k ? d : inlay_memdomain_system(&reg), other, 0),
					 op == INVALIDATE ? 0 : -ENOTSUP);
		/* A callback set on the other, or another one, is not called */
		must(set(other, op, true));
		for (k = 0; k < OPS; k++)
			must(set(d, k, k != op));
		assert_int_equal(call(op, d, other, 0), op == INVALIDATE ? 0 : -ENOTSUP);
		for (k = 0; k < OPS; k++) {
			must(set(d, k, false));
			must(set(other, k, false));
		}
	}
	assert_int_equal(last.calls, 0);
	for (i = 0; i < ARRAY(rows); i++)
		for (k = 1; k >= 0; k--) {
			must(set(d, rows[i].op, k));
			memset(&last, 0, sizeof(last));
			last.answer = i % 2 ? 123 : -ENOMEM;
			assert_int_equal(call(rows[i].op, d, other, rows[i].null),
					 rows[i].answer != 1 ? rows[i].answer : k ? last.answer : -ENOTSUP);
			assert_int_equal(last.calls, rows[i].answer == 1 && k);
			assert_int_equal(last.op, last.calls ? rows[i].op : 0);
		}
	/* Every argument arrives */
	for (op = 0; op < OPS; op++) {
		memset(&last, 0, sizeof(last));
		must(set(d, op, true));
		must(call(op, d, other, 0));
		assert_int_equal(last.op, op);
		assert_ptr_equal(last.d, d);
		assert_ptr_equal(last.ctx, &reg);
		if (op == TRANSLATE) {
			assert_ptr_equal(last.other, other);
			assert_ptr_equal(last.other_ctx, &dst_ctx);
			assert_ptr_equal(last.addr, one);
			assert_int_equal(last.n, 99);
			assert_ptr_equal(last.result, &result);
		} else if (op == MEMZERO || op == INVALIDATE) {
			assert_ptr_equal(last.iov, one);
			assert_int_equal(last.n, 3);
			assert_ptr_equal(last.done, op == MEMZERO ? word : NULL);
			assert_ptr_equal(last.arg, op == MEMZERO ? &told : NULL);
		} else {
			assert_ptr_equal(last.copy, &given);
		}
	}
	/* Silent where there is nobody to ask */
	last.calls = 0;
	inlay_memdomain_invalidate(NULL, NULL, one, 3);
	assert_int_equal(last.calls, 0);
	said(&told, 0, 0); /* only a callback calls done */
	must(inlay_memdomain_destroy(d));
	must(inlay_memdomain_destroy(other));
	assert_true(unused(&reg));
}

/* ---- the registry against a model ---- */

#define WALKERS 5

static struct {
	struct {
		int state; /* 0: free, 1: in the registry, 2: destroyed and held */
		int id, type, holders, set;
		uint32_t user, when;
	} slot[SLOTS];
	struct {
		int at, id; /* slot, -1: the system domain, -2: nowhere */
	} walker[WALKERS];
	uint32_t when;
	int count, sys_holders;
} model;

static const char *const model_ids[] = {NULL, "a", "b", "", "system", "ab"};

/* The slot that a walk for id finds after one created at `when` */
static int model_next(uint32_t when, int id)
{
	int i, found = -2;

	for (i = 0; i < SLOTS; i++)
		if (model.slot[i].state == 1 && model.slot[i].when > when && (!id || model.slot[i].id == id) &&
		    (found < 0 || model.slot[i].when < model.slot[found].when))
			found = i;
	return found;
}

static int model_first(int id)
{
	return !id || id == 4 ? -1 : model_next(0, id);
}

static void model_hold(int at, int n)
{
	if (at == -1)
		model.sys_holders += n;
	if (at >= 0)
		model.slot[at].holders += n;
}

static void is_at(const struct inlay_memdomain *d, int at)
{
	assert_ptr_equal(d, at == -2 ? NULL : at == -1 ? (void *)inlay_memdomain_system(&reg) : memory[at]);
}

static void registry_model(void **state)
{
	uint32_t step_no, i, w, steps = 20000;
	struct inlay_memdomain *d;
	uint64_t held = 0, gone_later = 0;

	(void)state;
	must(inlay_memdomain_registry_init(&reg));
	assert_true(!inlay_memdomain_first(NULL, NULL) && !inlay_memdomain_system(NULL) && !inlay_memdomain_hold(NULL));
	assert_true(!inlay_memdomain_next(NULL, NULL) && !inlay_memdomain_next(NULL, "x"));
	inlay_memdomain_put(NULL);
	inlay_memdomain_put(inlay_memdomain_hold(inlay_memdomain_system(&reg)));
	assert_int_equal(inlay_memdomain_destroy(inlay_memdomain_system(&reg)), -EINVAL);
	memset(&model, 0, sizeof(model));
	for (w = 0; w < WALKERS; w++)
		model.walker[w].at = -2;
	model.count = 1;
	for (step_no = 0; step_no < steps; step_no++) {
		i = rnd_below(SLOTS);
		w = rnd_below(WALKERS);
		switch (rnd_below(8)) {
		case 0:
		case 1:
			if (model.slot[i].state == 0) {
				struct inlay_memdomain_ctx ctx;

				model.slot[i].state = 1;
				model.slot[i].id = (int)rnd_below(ARRAY(model_ids));
				model.slot[i].type = (int)rnd_below(3000);
				model.slot[i].user = (uint32_t)rnd();
				model.slot[i].when = ++model.when;
				model.slot[i].set = 0;
				model.slot[i].holders = 0;
				model.count++;
				ctx.size = sizeof(ctx);
				ctx.user_ctx = &model.slot[i].user;
				ctx.user_ctx_size = sizeof(model.slot[i].user);
				make(i, model.slot[i].type, &ctx, model_ids[model.slot[i].id]);
			}
			break;
		case 2:
			if (model.slot[i].state) {
				model.count -= model.slot[i].state == 1;
				gone_later += model.slot[i].state == 2 && !model.slot[i].holders;
				held += model.slot[i].state == 1 && model.slot[i].holders;
				assert_int_equal(inlay_memdomain_destroy((struct inlay_memdomain *)memory[i]),
						 model.slot[i].holders ? -EBUSY : 0);
				model.slot[i].state = model.slot[i].holders ? 2 : 0;
				if (!model.slot[i].state)
					memset(memory[i], 0xdd, MEMORY);
			}
			break;
		case 3: /* begins a walk, leaving one */
			if (model.walker[w].at != -2)
				inlay_memdomain_put(model.walker[w].at < 0 ? inlay_memdomain_system(&reg) :
						    (struct inlay_memdomain *)memory[model.walker[w].at]);
			model_hold(model.walker[w].at, -1);
			model.walker[w].id = (int)rnd_below(ARRAY(model_ids));
			model.walker[w].at = model_first(model.walker[w].id);
			model_hold(model.walker[w].at, 1);
			is_at(inlay_memdomain_first(&reg, model_ids[model.walker[w].id]), model.walker[w].at);
			break;
		case 4:
		case 5:
		case 6:
			if (model.walker[w].at != -2) {
				int at = model.walker[w].at;
				int next = model_next(at < 0 ? 0 : model.slot[at].when, model.walker[w].id);

				d = at < 0 ? inlay_memdomain_system(&reg) : (struct inlay_memdomain *)memory[at];
				is_at(inlay_memdomain_next(d, model_ids[model.walker[w].id]), next);
				model_hold(at, -1);
				model_hold(next, 1);
				model.walker[w].at = next;
			}
			break;
		default:
			if (model.slot[i].state) {
				int op = (int)rnd_below(OPS - 1);

				d = (struct inlay_memdomain *)memory[i];
				if (rnd() & 1) {
					model.slot[i].set ^= 1 << op;
					must(set(d, op, model.slot[i].set >> op & 1));
				}
				last.answer = (int)rnd_below(200) - 100;
				assert_int_equal(call(op, d, d, 0), model.slot[i].set >> op & 1 ? last.answer : -ENOTSUP);
				assert_int_equal(inlay_memdomain_type(d), model.slot[i].type);
				assert_memory_equal(inlay_memdomain_user_context(d, NULL), &model.slot[i].user, 4);
				if (model.slot[i].id)
					assert_string_equal(inlay_memdomain_id(d), model_ids[model.slot[i].id]);
				else
					assert_null(inlay_memdomain_id(d));
			}
		}
		if (step_no % 16 == 0)
			assert_int_equal(domains(&reg), model.count);
		assert_int_equal(reg.system.holders, model.sys_holders);
	}
	/* What the run was for has happened */
	assert_true(held > steps / 1000 && gone_later > steps / 1000);
	for (w = 0; w < WALKERS; w++)
		if (model.walker[w].at != -2)
			inlay_memdomain_put(model.walker[w].at < 0 ? inlay_memdomain_system(&reg) :
					    (struct inlay_memdomain *)memory[model.walker[w].at]);
	for (i = 0; i < SLOTS; i++)
		if (model.slot[i].state)
			must(inlay_memdomain_destroy((struct inlay_memdomain *)memory[i]));
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

/* One random copy by one of the three ways */
static void copy_once(struct inlay_memdomain *d, uint32_t max)
{
	struct iovec src[PIECES], dst[PIECES];
	uint32_t total = rnd_below(max + 1), extra = rnd() & 1 ? rnd_below(16) : 0, way = rnd_below(3), n, m;
	size_t span = total + extra + 16 + 8 * PIECES + 16;
	struct word w = {0, 0};

	n = cut(src, from, 16, total, PIECES);
	m = cut(dst, to, 16, total + extra, PIECES);
	memset(to, 0xee, span);
	memset(plain, 0xee, span);
	model_copy(dst, to, plain, src, n, from, from);
	must(by(way, d, NULL, copy_of(src, n, dst, m, &w)));
	said(&w, 1, 0);
	if (memcmp(to, plain, span))
		fail_msg("%u bytes in %u pieces into %u", total, n, m);
}

static void copies(void **state)
{
	struct inlay_memdomain *d;
	uint32_t i;

	(void)state;
	must(inlay_memdomain_registry_init(&reg));
	assert_int_equal(inlay_memdomain_system_attach(NULL), -EINVAL);
	d = inlay_memdomain_system(&reg);
	must(inlay_memdomain_system_attach(d));
	fill(from, sizeof(from), 1);
	for (i = 0; i < 8000; i++)
		copy_once(d, i % 40 ? 24 : 5000);
	assert_true(unused(&reg));
}

/* Each length once, around all that a copy of one piece tells apart, at several alignments; then zeros there: these bytes and no other */
static void lengths(void **state)
{
	struct inlay_memdomain *d;
	uint32_t len, a;

	(void)state;
	must(inlay_memdomain_registry_init(&reg));
	d = inlay_memdomain_system(&reg);
	must(inlay_memdomain_system_attach(d));
	fill(from, sizeof(from), 2);
	for (len = 0; len < 1100; len++)
		for (a = 0; a < 64; a += 13) {
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
	assert_ptr_equal(src, copy->src_ctx);
	assert_ptr_equal(copy, &given);
	return 123;
}

static void system_answers(void **state)
{
	struct iovec src[2] = {{from, 8}, {from + 100, 8}}, dst[3] = {{to, 5}, {to + 50, 5}, {to + 100, 6}};
	struct iovec huge[2] = {{from, SIZE_MAX}, {from, 1}};
	struct iovec shorter[2] = {{to, 5}, {to + 50, 10}}, null[2] = {{from, 8}, {NULL, 8}};
	struct iovec none[2] = {{NULL, 0}, {from, 0}};
	struct inlay_memdomain *sys, *own, *other;
	struct inlay_memdomain_result res;
	const struct {
		const struct iovec *dst, *src;
		uint32_t dst_n, src_n;
		int answer;
	} rows[] = {
		{dst, src, 3, 2, 0}, {dst, src, 2, 2, -EINVAL}, {shorter, src, 2, 2, -EINVAL},
		{dst, src, 0, 2, -EINVAL}, {dst, src, 0, 0, 0}, {dst, src, 3, 0, 0}, {dst, huge, 3, 2, -EINVAL},
		{huge, src, 2, 2, -EINVAL}, {dst, null, 3, 2, -EINVAL}, {null, src, 2, 2, -EINVAL},
		{dst, none, 3, 2, 0}, {none, src, 2, 2, -EINVAL}, {none, none, 2, 2, 0},
	};
	size_t i;
	uint32_t way;
	int rc;

	(void)state;
	must(inlay_memdomain_registry_init(&reg));
	sys = inlay_memdomain_system(&reg);
	own = make(0, 1234, NULL, "own");
	other = make(1, INLAY_MEMDOMAIN_DMA, NULL, "other");
	must(inlay_memdomain_system_attach(own));
	for (i = 0; i < ARRAY(rows); i++)
		for (way = 0; way < 6; way++) {
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
	memset(&res, 0, sizeof(res));
	must(inlay_memdomain_translate(own, NULL, own, NULL, from + 200, 16, &res));
	assert_int_equal(res.size, sizeof(res));
	assert_int_equal(res.iov_count, 1);
	assert_ptr_equal(res.iov.iov_base, from + 200);
	assert_int_equal(res.iov.iov_len, 16);
	assert_ptr_equal(res.dst_domain, own);
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
	assert_int_equal(inlay_memdomain_memzero(own, NULL, null, 2, word, &told), -EINVAL);
	assert_true(all_bytes(to, 256, 0xee));
	said(&told, 0, 0);
	must(inlay_memdomain_memzero(own, NULL, dst, 3, word, &told));
	said(&told, 1, 0);
	must(inlay_memdomain_memzero(own, NULL, dst, 3, NULL, NULL));
	for (i = 0; i < 256; i++)
		assert_int_equal(to[i], i < 5 || (i >= 50 && i < 55) || (i >= 100 && i < 106) ? 0 : 0xee);
	inlay_memdomain_invalidate(own, NULL, dst, 3);
	must(inlay_memdomain_destroy(own));
	must(inlay_memdomain_destroy(other));
	assert_true(unused(&reg));
}

#if INLAY_CHECKED
static void put_free(void *arg)
{
	inlay_memdomain_put((struct inlay_memdomain *)arg);
}

static void next_free(void *arg)
{
	inlay_memdomain_next((struct inlay_memdomain *)arg, NULL);
}

static void preconditions(void **state)
{
	(void)state;
	must(inlay_memdomain_registry_init(&reg));
	assert_aborts(put_free, make(0, 0, NULL, NULL), "a domain that is put is held");
	assert_aborts(next_free, memory[0], "a walk goes on from a domain it holds");
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(type_names), cmocka_unit_test(create_answers), cmocka_unit_test(contexts),
		cmocka_unit_test(operations),
		cmocka_unit_test(registry_model),
		cmocka_unit_test(copies), cmocka_unit_test(lengths), cmocka_unit_test(system_answers),
#if INLAY_CHECKED
		cmocka_unit_test(preconditions),
#endif
	};

	rnd_seed();
	return cmocka_run_group_tests_name("memdomain", tests, NULL, NULL);
}
