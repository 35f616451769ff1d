/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model.c: two inventories and a pool at random beside a plain model, which knows at every step what each
 * function must answer and what each buffer must hold.
 * 
 * INLAY_TEST_STEPS  of the random run
 */
#include "rig.h"

#define MAPS 2
#define OWNERS 3                 /* two inventories, one of them for the second device, and a pool */
#define POOL 2
#define NODES 128

/* What a live buffer must be */
struct node {
	struct inlay_buf *buf;
	uint32_t owner, map, refs;
	uint8_t *head, *data;
	size_t len, data_len;
	struct node *next, *prev;   /* in its list */
};

struct model {
	struct map maps[MAPS];
	struct inlay_inventory *inv[2];
	struct inlay_pool *pool;
	bool started[OWNERS];
	uint32_t num[OWNERS], out[OWNERS], on_map[MAPS];
	void *pieces[4];
	uint32_t num_pieces;
	struct node nodes[NODES];
	struct node *live[NODES];
	uint32_t num_live;
	uint64_t done, refused;
};

static struct model M;

/* A node for a buffer that was got just now, which nobody has */
static struct node *node_add(struct inlay_buf *buf, uint32_t owner, uint32_t map, uint8_t *head, size_t len, uint8_t *data, size_t data_len)
{
	struct node *n = NULL;

	for (uint32_t i = 0; i < NODES; i++) {
		if (!M.nodes[i].buf && !n)
			n = &M.nodes[i];
		assert_ptr_not_equal(M.nodes[i].buf, buf);
	}
	assert_non_null(n);
	memset(n, 0, sizeof(*n));
	n->buf = buf;
	n->owner = owner;
	n->map = map;
	n->refs = 1;
	n->head = head;
	n->len = len;
	n->data = data;
	n->data_len = data_len;
	M.live[M.num_live++] = n;
	M.out[owner]++;
	M.on_map[map]++;
	return n;
}

static void node_gone(struct node *n)
{
	uint32_t i;

	for (i = 0; M.live[i] != n; i++)
		;
	M.live[i] = M.live[--M.num_live];
	M.out[n->owner]--;
	M.on_map[n->map]--;
	n->buf = NULL;
}

static void node_check(const struct node *n)
{
	const struct inlay_range *r = inlay_mmap_find(&M.maps[n->map].m, n->head, n->len);
	const struct node *last = n;
	struct inlay_keys keys;

	while (last->next)
		last = last->next;
	assert_non_null(r);
	must(inlay_mmap_keys(&M.maps[n->map].m, r->id, n->owner == 1 ? M.maps[0].pd2 : dev.pd, &keys));
	assert_ptr_equal(inlay_buf_head(n->buf), n->head);
	assert_int_equal(inlay_buf_len(n->buf), n->len);
	assert_ptr_equal(inlay_buf_data(n->buf), n->data);
	assert_int_equal(inlay_buf_data_len(n->buf), n->data_len);
	assert_int_equal(inlay_buf_keys(n->buf).lkey, keys.lkey);
	assert_int_equal(inlay_buf_keys(n->buf).rkey, keys.rkey);
	assert_int_equal(inlay_buf_refcount(n->buf), n->refs);
	assert_ptr_equal(inlay_buf_next(n->buf), n->next ? n->next->buf : NULL);
	assert_ptr_equal(inlay_buf_last(n->buf), last->buf);
	assert_int_equal(inlay_buf_is_first(n->buf), !n->prev);
}

static void model_check(void)
{
	for (uint32_t i = 0; i < M.num_live; i++)
		node_check(M.live[i]);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(inlay_inventory_num_elements(M.inv[i]), M.num[i]);
		assert_int_equal(inlay_inventory_num_free(M.inv[i]), M.num[i] - M.out[i]);
	}
	assert_int_equal(inlay_pool_num_free(M.pool), M.num[POOL] - M.out[POOL]);
	for (uint32_t i = 0; i < MAPS; i++)
		assert_int_equal(inlay_mmap_num_bufs(&M.maps[i].m), M.on_map[i] + (!i && M.started[POOL]));
}

static struct node *node_any(void)
{
	return M.num_live ? M.live[rnd_below(M.num_live)] : NULL;
}

/* What a call must answer: counted, so that a run that refused everything is seen */
static bool answered(int got, int expected)
{
	if (got != expected)
		fail_msg("%d where %d was due", got, expected);
	M.done += !expected;
	M.refused += expected != 0;
	return !got;
}

/* Memory to ask for: mostly good, sometimes beyond a range's end. Returns whether one range holds it. */
static bool model_memory(uint32_t map, uint8_t **head, size_t *len)
{
	uint32_t at = rnd_below(RANGES * 2 * RANGE_BYTES);

	*len = rnd_below(4) ? 1 + rnd_below(3000) : rnd_below(RANGE_BYTES + 20);
	if (rnd_below(8)) {
		at = at / (2 * RANGE_BYTES) * 2 * RANGE_BYTES + rnd_below(RANGE_BYTES);
		if (at % RANGE_BYTES + *len > RANGE_BYTES && rnd_below(8))
			at -= at % RANGE_BYTES;
	}
	*head = M.maps[map].mem + at;
	return at % (2 * RANGE_BYTES) < RANGE_BYTES && at % (2 * RANGE_BYTES) + *len <= RANGE_BYTES;
}

static void model_get(void)
{
	uint32_t o = rnd_below(2), map = rnd_below(MAPS), how = rnd_below(3);
	struct inlay_buf *b = NULL;
	size_t len, offset, data_len;
	uint8_t *head;
	bool good = model_memory(map, &head, &len);
	int expected = !M.started[o] ? -EBADFD : !good ? -EINVAL : M.out[o] == M.num[o] ? -EAGAIN : 0;

	offset = how ? 0 : rnd_below((uint32_t)len + 1);
	data_len = how == 1 ? 0 : how == 2 ? len : rnd_below((uint32_t)(len - offset) + 1);
	if (answered(how == 0 ? inlay_inventory_get_by_args(M.inv[o], &M.maps[map].m, head, len, head + offset, data_len, &b) :
		     how == 1 ? inlay_inventory_get_by_addr(M.inv[o], &M.maps[map].m, head, len, &b) :
				inlay_inventory_get_by_data(M.inv[o], &M.maps[map].m, head, len, &b), expected))
		node_check(node_add(b, o, map, head, len, head + offset, data_len));
}

static void model_alloc(void)
{
	struct inlay_buf *b = NULL;
	uint8_t *head;

	if (!answered(inlay_pool_alloc(M.pool, &b), !M.started[POOL] ? -EBADFD : M.num[POOL] == M.out[POOL] ? -EAGAIN : 0))
		return;
	head = (uint8_t *)inlay_buf_head(b);
	assert_int_equal((uintptr_t)head % 64, 0);
	node_check(node_add(b, POOL, 0, head, 1000, head, 0));
}

static void model_dup(struct node *n)
{
	uint32_t o = rnd_below(2), len = 0;
	struct node *at, *copy, *before = NULL;
	struct inlay_buf *b = NULL;
	int expected;

	for (at = n; at; at = at->next)
		len++;
	expected = n->prev ? -EINVAL : !M.started[o] ? -EBADFD : M.num[o] - M.out[o] < len ? -EAGAIN : 0;
	if (!answered(inlay_inventory_dup(M.inv[o], n->buf, &b), expected))
		return;
	for (at = n; at; at = at->next, b = inlay_buf_next(b)) {
		assert_non_null(b);
		copy = node_add(b, o, at->map, at->head, at->len, at->data, at->data_len);
		copy->prev = before;
		if (before)
			before->next = copy;
		before = copy;
	}
	assert_null(b);
}

static void model_release(struct node *n)
{
	int expected = n->prev ? -EINVAL : 0;
	uint16_t prev = 0xaaaa;
	struct node *next;
	struct inlay_inventory *inv = n->owner == POOL ? M.inv[0] : M.inv[n->owner]; /* or another one */

	answered(rnd_below(2) ? inlay_inventory_dec_refcount(inv, n->buf, &prev) : inlay_buf_dec_refcount(n->buf, &prev), expected);
	assert_int_equal(prev, expected ? 0xaaaa : n->refs);
	if (expected || --n->refs)
		return;
	for (; n; n = next) {
		next = n->next;
		assert_int_equal(inlay_buf_dec_refcount(n->buf, NULL), -EBADFD);
		node_gone(n);
	}
}

static void model_chain(struct node *a, struct node *b)
{
	struct node *tail = a;
	int expected;

	while (tail->next)
		tail = tail->next;
	expected = a->prev || b->prev || a == b ? -EINVAL : b->refs != 1 ? -EBUSY : 0;
	if (!answered(inlay_buf_chain_list(a->buf, b->buf), expected))
		return;
	tail->next = b;
	b->prev = tail;
	node_check(a);
	node_check(b);
}

static void model_unchain(struct node *a, struct node *b)
{
	struct node *at = a->next;
	int expected;

	while (at && at != b)
		at = at->next;
	expected = a->prev || !at ? -EINVAL : 0;
	if (!answered(inlay_buf_unchain_list(a->buf, b->buf), expected))
		return;
	b->prev->next = NULL;
	b->prev = NULL;
	node_check(a);
	node_check(b);
}

static void model_window(struct node *n)
{
	size_t offset = rnd_below((uint32_t)n->len + 20), len = rnd_below((uint32_t)n->len + 20);
	bool good = offset <= n->len && len <= n->len - offset;

	switch (rnd_below(3)) {
	case 0:
		good = len <= n->len - (size_t)(n->data - n->head);
		if (answered(inlay_buf_set_data_len(n->buf, len), good ? 0 : -EINVAL))
			n->data_len = len;
		break;
	default:
		answered(inlay_buf_set_data(n->buf, n->head + offset, len), good ? 0 : -EINVAL);
		if (good) {
			n->data = n->head + offset;
			n->data_len = len;
		}
	}
	node_check(n);
}

static void model_list(struct node *n)
{
	uint32_t len = 0, entries = 0, max = rnd_below(40), i = 0;
	struct ibv_sge sge[NODES];

	for (struct node *at = n; at; at = at->next) {
		len++;
		entries += at->data_len != 0;
	}
	assert_int_equal(inlay_buf_list_len(n->buf), n->prev ? -EINVAL : (int)len);
	assert_int_equal(inlay_buf_sges(n->buf, NULL, NODES), entries);
	assert_int_equal(inlay_buf_sges(n->buf, sge, max), entries > max ? -ENOBUFS : (int)entries);
	if (entries > max)
		return;
	for (struct node *at = n; at; at = at->next) {
		if (!at->data_len)
			continue;
		assert_int_equal(sge[i].addr, (uintptr_t)at->data);
		assert_int_equal(sge[i].length, at->data_len);
		assert_int_equal(sge[i].lkey, inlay_buf_keys(at->buf).lkey);
		i++;
	}
}

static void model_inc(struct node *n)
{
	uint16_t prev = 0xaaaa;

	answered(inlay_buf_inc_refcount(n->buf, &prev), n->prev ? -EINVAL : 0);
	assert_int_equal(prev, n->prev ? 0xaaaa : n->refs);
	n->refs += !n->prev;
}

/* Starts what is stopped, and the other way round */
static void model_toggle(uint32_t o)
{
	if (o == POOL) {
		if (M.started[o] && answered(inlay_pool_stop(M.pool), M.out[o] ? -EBUSY : 0))
			M.started[o] = false;
		else if (!M.started[o] && answered(inlay_pool_start(M.pool), 0))
			M.started[o] = true;
		return;
	}
	answered(M.started[o] ? inlay_inventory_start(M.inv[o]) : inlay_inventory_stop(M.inv[o]), -EBADFD);
	answered(M.started[o] ? inlay_inventory_stop(M.inv[o]) : inlay_inventory_start(M.inv[o]), 0);
	M.started[o] = !M.started[o];
}

/* What happens seldom: starts, stops, growth, and what must not be possible meanwhile */
static void model_seldom(void)
{
	uint32_t o = rnd_below(OWNERS), map = rnd_below(MAPS), n;
	size_t size;

	switch (rnd_below(6)) {
	case 0:
	case 1:
		model_toggle(o);
		break;

	case 2:
		if (o == POOL || M.num_pieces == ARRAY(M.pieces))
			break;
		n = 1 + rnd_below(8);
		size = inlay_inventory_size(n);
		M.pieces[M.num_pieces] = given(size);
		if (answered(inlay_inventory_expand(M.inv[o], M.pieces[M.num_pieces], size, n), M.started[o] ? 0 : -EBADFD)) {
			M.num[o] += n;
			M.num_pieces++;
		} else {
			given_free(M.pieces[M.num_pieces]);
		}
		break;
	case 3:
		if (M.on_map[map] || (!map && M.started[POOL])) {
			answered(inlay_mmap_stop(&M.maps[map].m), -EBUSY);
		} else {
			must(inlay_mmap_stop(&M.maps[map].m));
			must(inlay_mmap_start(&M.maps[map].m));
		}
		break;
	case 4:
		/* A descriptor that came back too early would be given out twice, or be missed here */
		while (M.num_live)
			model_release(node_any());
		break;
	default:
		if (M.out[o])
			answered(o == POOL ? inlay_pool_destroy(M.pool) : inlay_inventory_destroy(M.inv[o]), -EBUSY);
	}
}

TEST(beside_model)
{
	const char *env = getenv("INLAY_TEST_STEPS");
	uint64_t steps = env && *env ? strtoull(env, NULL, 0) : 5000000, i;
	struct node *n;
	uint32_t k;

	memset(&M, 0, sizeof(M));
	for (k = 0; k < MAPS; k++)
		map_make(&M.maps[k], k ? 1 : 2);
	/* The second map has the same devices in another order */
	must(inlay_mmap_stop(&M.maps[1].m));
	must(inlay_mmap_rm_dev(&M.maps[1].m, dev.pd));
	must(inlay_mmap_add_dev(&M.maps[1].m, M.maps[0].pd2));
	must(inlay_mmap_add_dev(&M.maps[1].m, dev.pd));
	must(inlay_mmap_start(&M.maps[1].m));
	M.num[0] = 40;
	M.num[1] = 24;
	M.num[POOL] = 16;
	M.inv[0] = inventory_make(40);
	M.inv[1] = inventory_make(24);
	M.inv[0]->pd = dev.pd;
	M.inv[1]->pd = M.maps[0].pd2;
	must(inlay_inventory_start(M.inv[0]));
	must(inlay_inventory_start(M.inv[1]));
	must(inlay_pool_create(given(inlay_pool_size(16)), inlay_pool_size(16), 16, 1000, &M.maps[0].m, &M.pool));
	M.pool->alignment = 64;
	must(inlay_pool_start(M.pool));
	M.started[0] = M.started[1] = M.started[POOL] = true;
	for (i = 0; i < steps; i++) {
		uint32_t what = rnd_below(100);
		/* Ebb and flow, so that empty and full are both met often */
		bool flow = i / 500 % 2;

		k = rnd_below(100);
		if (k < OWNERS && !M.started[k])
			model_toggle(k);
		if (k == 99 && rnd_below(20) == 0)
			model_seldom();
		n = node_any();
		if (what < (flow ? 40 : 15) || !n) {
			if (what % 5 == 0)
				model_alloc();
			else
				model_get();
		} else if (what < 60)
			model_release(n);
		else if (what < 70)
			model_chain(n, node_any());
		else if (what < 76)
			model_unchain(n, rnd_below(2) ? node_any() : n->next ? n->next : n);
		else if (what < 80)
			model_inc(n);
		else if (what < 88)
			model_window(n);
		else if (what < 94)
			model_dup(n);
		else if (what < 98)
			model_list(n);
		else
			node_check(n);
		if (i % 64 == 0)
			model_check();
	}
	while (M.num_live)
		model_release(node_any());
	model_check();
	assert_true(M.done > steps / 4 && M.refused > steps / 50);
	must(inlay_pool_destroy(M.pool));
	given_free(M.pool);
	inventory_free(M.inv[0]);
	inventory_free(M.inv[1]);
	for (k = 0; k < M.num_pieces; k++)
		given_free(M.pieces[k]);
	for (k = MAPS; k--;)
		map_free(&M.maps[k]);
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
