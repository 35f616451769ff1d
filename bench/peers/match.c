/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * match.c: tag matching of inlay beside UCX's, a linked list and a plain hash.
 *
 * One operation is a receive, a message and the completion of both, at a constant depth. Each way
 * says which receive a message went to, which is checked. BENCH_ALL: more depths and patterns.
 *
 *   inlay       compiled into the loop, as it is used
 *   call        the same behind two functions that are not inlined
 *   ucx         ucp_tag_recv_nbx, ucp_tag_send_nbx to an endpoint of the same worker (self
 *               transport), 8 bytes: with requests, and a copy
 *   list        written here: one list of receives and one of messages
 *   hash        written here: 131,072 buckets, a list each; masked receives in one list, as in UCX
 *   none        the loop alone
 */
#include <inlay/match.h>
#include <ucp/api/ucp.h>
#include "../bench.h"

#define MOST 65536u
#define WILD 2048u                    /* receives that nothing matches, at most */
#define TOP ((uint64_t)1 << 63)       /* of their tags, and of no other */
#define EXACT INLAY_MATCH_EXACT
#define ANY_SOURCE 0xffff000003ffffffu /* of inlay_mpi_pack */

/* Number n of a sequence without end, whose numbers all differ and look like chance */
static inline uint64_t tag_of(uint64_t n)
{
	n *= 0x9e3779b97f4a7c15;
	n = (n ^ n >> 32) * 0xd6e8feb86659fd93;
	return (n ^ n >> 32) & ~TOP;
}

/* ---- contenders: reset, post and arrive ---- */

/*
 * post: a receive numbered id; queued 1: it is to be posted, 0: it takes message id. arrive: a
 * message numbered id; queued 1: it is kept, 0: receive id takes it.
 */

static struct inlay_match table, call_table;
static uint64_t table_seed = 42;

static void table_reset(struct inlay_match *t, void **memory)
{
	if (!*memory)
		*memory = aligned_alloc(64, inlay_match_size(MOST));
	NEED(*memory && !inlay_match_init(t, *memory, inlay_match_size(MOST), MOST, 0, table_seed), "the table");
}

static void inlay_reset(void)
{
	static void *memory;

	table_reset(&table, &memory);
}

ALWAYS void table_post(struct inlay_match *t, uint64_t tag, uint64_t mask, uint32_t id, int queued)
{
	struct inlay_match_found found;

	if (inlay_match_post(t, tag, mask, id, &found) != !queued || found.cookie != id)
		die("inlay: post");
}

ALWAYS void table_arrive(struct inlay_match *t, uint64_t tag, uint32_t id, int queued)
{
	struct inlay_match_found found;

	if (inlay_match_arrive(t, tag, id, &found) != !queued || found.cookie != id)
		die("inlay: arrive");
}

#define inlay_post(...) table_post(&table, __VA_ARGS__)
#define inlay_arrive(...) table_arrive(&table, __VA_ARGS__)

static void call_reset(void)
{
	static void *memory;

	table_reset(&call_table, &memory);
}

static __attribute__((noinline)) void call_post(uint64_t tag, uint64_t mask, uint32_t id, int queued)
{
	table_post(&call_table, tag, mask, id, queued);
}

static __attribute__((noinline)) void call_arrive(uint64_t tag, uint32_t id, int queued)
{
	table_arrive(&call_table, tag, id, queued);
}

/* ---- UCX ---- */

static ucp_context_h ucx_context;
static ucp_worker_h ucx_worker;
static ucp_ep_h ucx_ep;
static void *ucx_request[MOST + WILD];
static uint64_t ucx_buffer[MOST + WILD];

/* A new worker: whatever was posted or kept goes with the old one */
static void ucx_reset(void)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_AM};
	ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				      .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
	ucp_address_t *address;
	ucp_config_t *config;
	size_t len;

	if (!ucx_context) {
		setenv("UCX_TLS", "self", 1);
		setenv("UCX_LOG_LEVEL", "fatal", 1);
		NEED(!ucp_config_read(NULL, NULL, &config) && !ucp_init(&params, config, &ucx_context), "ucp_init");
		ucp_config_release(config);
	}
	if (ucx_worker)
		ucp_worker_destroy(ucx_worker);
	memset(ucx_request, 0, sizeof(ucx_request));
	NEED(!ucp_worker_create(ucx_context, &worker, &ucx_worker), "ucp_worker_create");
	NEED(!ucp_worker_get_address(ucx_worker, &address, &len), "ucp_worker_get_address");
	ep.address = address;
	NEED(!ucp_ep_create(ucx_worker, &ep, &ucx_ep), "ucp_ep_create");
	ucp_worker_release_address(ucx_worker, address);
}

static inline void ucx_post(uint64_t tag, uint64_t mask, uint32_t id, int queued)
{
	static const ucp_request_param_t none;

	ucx_request[id] = ucp_tag_recv_nbx(ucx_worker, &ucx_buffer[id], 8, tag, mask, &none);
	if (queued ? !ucx_request[id] || UCS_PTR_IS_ERR(ucx_request[id]) : ucx_request[id] || ucx_buffer[id] != id)
		die("ucx: post");
}

static inline void ucx_arrive(uint64_t tag, uint32_t id, int queued)
{
	static const ucp_request_param_t none;
	uint64_t payload = id;

	if (ucp_tag_send_nbx(ucx_ep, &payload, 8, tag, &none))
		die("ucx: send");
	if (queued)
		return;
	if (ucp_request_check_status(ucx_request[id]) != UCS_OK || ucx_buffer[id] != id)
		die("ucx: arrive");
	ucp_request_free(ucx_request[id]);
	ucx_request[id] = NULL;
}

static uint64_t ucx_seen;

static ucs_status_t ucx_handler(void *arg, const void *header, size_t header_len, void *data, size_t len,
				const ucp_am_recv_param_t *param)
{
	ucx_seen += *(uint64_t *)data;
	return UCS_OK;
}

/* ---- a linked list, a plain hash ---- */

#define BUCKETS 131072u

struct item {
	uint64_t tag, mask, seq;
	uint32_t id;
	uint32_t next, prev;          /* in the bucket, or the list */
	uint32_t older, newer;        /* message: in order of arrival */
};

struct queue {
	uint32_t first, last;
};

struct plain {
	struct item item[MOST + WILD + 2];
	struct queue bucket[2][BUCKETS], all[2], arrived; /* of receives, of messages */
	uint32_t free, masked, kept;
	uint64_t seq;
};

static struct plain list, hashed;

static void plain_reset(struct plain *p)
{
	memset(p, 0, sizeof(*p));
	for (; p->free < MOST + WILD + 1; p->free++)
		p->item[p->free + 1].next = p->free;
}

static inline struct item *push(struct plain *p, struct queue *q, uint64_t tag, uint64_t mask, uint32_t id)
{
	uint32_t at = p->free;
	struct item *i = &p->item[at];

	p->free = i->next;
	i->tag = tag;
	i->mask = mask;
	i->seq = p->seq++;
	i->id = id;
	i->next = 0;
	i->prev = q->last;
	*(q->last ? &p->item[q->last].next : &q->first) = at;
	q->last = at;
	return i;
}

static inline uint32_t pull(struct plain *p, struct queue *q, uint32_t at)
{
	struct item *i = &p->item[at];

	*(i->prev ? &p->item[i->prev].next : &q->first) = i->next;
	*(i->next ? &p->item[i->next].prev : &q->last) = i->prev;
	i->next = p->free;
	p->free = at;
	return i->id;
}

#define list_reset() plain_reset(&list)

static inline void list_post(uint64_t tag, uint64_t mask, uint32_t id, int queued)
{
	struct plain *p = &list;
	uint32_t at;

	for (at = p->all[1].first; at && (p->item[at].tag ^ tag) & mask; at = p->item[at].next)
		;
	if (!at == !queued || (at && pull(p, &p->all[1], at) != id))
		die("list: post");
	if (!at)
		push(p, &p->all[0], tag, mask, id);
}

static inline void list_arrive(uint64_t tag, uint32_t id, int queued)
{
	struct plain *p = &list;
	uint32_t at;

	for (at = p->all[0].first; at && (p->item[at].tag ^ tag) & p->item[at].mask; at = p->item[at].next)
		;
	if (!at == !queued || (at && pull(p, &p->all[0], at) != id))
		die("list: arrive");
	if (!at)
		push(p, &p->all[1], tag, EXACT, id);
}

#define hash_reset() plain_reset(&hashed)

static inline uint32_t hash(uint64_t tag)
{
	return (uint32_t)(tag * 0x9e3779b97f4a7c15 >> 47);
}

static inline uint32_t hash_take(struct plain *p, uint32_t at)
{
	struct item *i = &p->item[at];

	*(i->older ? &p->item[i->older].newer : &p->arrived.first) = i->newer;
	*(i->newer ? &p->item[i->newer].older : &p->arrived.last) = i->older;
	p->kept--;
	return pull(p, &p->bucket[1][hash(i->tag)], at);
}

static inline void hash_post(uint64_t tag, uint64_t mask, uint32_t id, int queued)
{
	struct plain *p = &hashed;
	uint32_t at = 0;

	if (mask != EXACT)
		for (at = p->arrived.first; at && (p->item[at].tag ^ tag) & mask; at = p->item[at].newer)
			;
	else if (p->kept)
		for (at = p->bucket[1][hash(tag)].first; at && p->item[at].tag != tag; at = p->item[at].next)
			;
	if (!at == !queued || (at && hash_take(p, at) != id))
		die("hash: post");
	if (at)
		return;
	push(p, mask == EXACT ? &p->bucket[0][hash(tag)] : &p->all[0], tag, mask, id);
	p->masked += mask != EXACT;
}

static inline void hash_arrive(uint64_t tag, uint32_t id, int queued)
{
	struct plain *p = &hashed;
	struct queue *q = &p->bucket[0][hash(tag)];
	uint32_t at, wild;
	struct item *i;

	for (at = q->first; at && p->item[at].tag != tag; at = p->item[at].next)
		;
	for (wild = p->all[0].first; wild && (p->item[wild].tag ^ tag) & p->item[wild].mask; wild = p->item[wild].next)
		;
	if (wild && (!at || p->item[wild].seq < p->item[at].seq)) {
		at = wild;
		q = &p->all[0];
		p->masked--;
	}
	if (!at == !queued || (at && pull(p, q, at) != id))
		die("hash: arrive");
	if (at)
		return;
	i = push(p, &p->bucket[1][hash(tag)], tag, EXACT, id);
	i->older = p->arrived.last;
	i->newer = 0;
	at = (uint32_t)(i - p->item);
	*(p->arrived.last ? &p->item[p->arrived.last].newer : &p->arrived.first) = at;
	p->arrived.last = at;
	p->kept++;
}

static void none_reset(void)
{
}

static inline void none_post(uint64_t tag, uint64_t mask, uint32_t id, int queued)
{
	__asm__ volatile("" :: "r"(tag), "r"(mask), "r"(id), "r"(queued));
}

static inline void none_arrive(uint64_t tag, uint32_t id, int queued)
{
	__asm__ volatile("" :: "r"(tag), "r"(id), "r"(queued));
}

/* ---- cases ---- */

static uint32_t depth;                /* receives or messages that are there all the time; a power of two */
static uint32_t older, masks;         /* older receives that match nothing, of so many masks */
static unsigned mixed;                /* and with 1, agree on no bit: rows "mixed" */
static uint64_t recv_mask;            /* of the receives */
static uint64_t given[MOST];          /* tags that are not by chance */

/* Tag of receive or message id in a pass: another one in each; if not by chance, always the same */
#define CHANCE(pass, id) tag_of((pass) * MOST + (id))
#define GIVEN(pass, id) given[id]

/* Number n of a pass: every one once, in another order each time */
static uint32_t half;                 /* of the bits of depth - 1, and one more */

static inline uint32_t which(uint64_t pass, uint32_t n)
{
	n = (n * (uint32_t)(pass * 2654435762u | 1) + (uint32_t)pass) & (depth - 1);
	return (n ^ n >> half) * 1664525u & (depth - 1);
}

static uint64_t wild_mask(uint32_t k)
{
	return ~((uint64_t)1 << (k + 4) | (k & 1 ? 0xff0000 : 0) | (k & 2 ? 0xff00000000 : 0));
}

/* A row's number: what a way has set up for it stays until the next row. Its place in the passes */
static unsigned row_number;

struct place {
	unsigned row;
	uint32_t n;
	uint64_t pass;
};

#define NEXT(at) (++(at)->n == depth ? ((at)->n = 0, (at)->pass++) : 0)

/* With so many receives posted: a message for one, and another receive */
#define POSTED(kind, tag, name) \
	COUNTED void count_##kind##_##name##_(struct place *at, uint64_t n) \
	{ \
		for (; n; n--) { \
			uint32_t id = which(at->pass, at->n); \
			name##_arrive(tag(at->pass, id), id, 0); \
			name##_post(tag(at->pass + 1, id), recv_mask, id, 1); \
			NEXT(at); \
		} \
	} \
	ROW(kind, name, name##_post(tag(0, id), recv_mask, id, 1))

#define ROW(kind, name, first) \
	static double run_##kind##_##name(void *arg, uint64_t n) \
	{ \
		static struct place at; \
		double start; \
		(void)arg; \
		if (at.row != row_number) { \
			at = (struct place){row_number, 0, 0}; \
			name##_older(); \
			for (uint32_t id = 0; id < depth; id++) \
				first; \
			count_##kind##_##name##_(&at, depth < 64 ? 64 : depth < 4096 ? depth : 64); \
		} \
		start = now(); \
		count_##kind##_##name##_(&at, n); \
		return now() - start; \
	}

/* What is there at first, and then the operations, in passes over all of it */
#define CASES(name) \
	static void name##_older(void) \
	{ \
		name##_reset(); \
		for (uint32_t i = 0; i < older; i++) \
			name##_post((i & mixed ? 0 : TOP) | tag_of(~(uint64_t)i), wild_mask(i % masks), MOST + i, 1); \
	} \
	POSTED(posted, CHANCE, name) \
	POSTED(given, GIVEN, name) \
	COUNTED void count_kept_##name##_(struct place *at, uint64_t n) \
	{ \
		for (; n; n--) { \
			uint32_t id = which(at->pass, at->n); \
			name##_post(CHANCE(at->pass, id), recv_mask, id, 0); \
			name##_arrive(CHANCE(at->pass + 1, id), id, 1); \
			NEXT(at); \
		} \
	} \
	ROW(kept, name, name##_arrive(CHANCE(0, id), id, 1)) \
	/* `depth` receives of one tag, and a receive and a message of another to and fro */ \
	COUNTED void count_same_##name##_(struct place *at, uint64_t n) \
	{ \
		(void)at; \
		for (; n; n--) { \
			name##_post(77 + 1021, EXACT, depth, 1); \
			name##_arrive(77 + 1021, depth, 0); \
		} \
	} \
	ROW(same, name, id + 1 < depth ? name##_post(77, EXACT, id, 1) : (void)0) \
	/* The first masked receive after so many messages, which takes the last: each time from an empty table */ \
	static double run_first_##name(void *arg, uint64_t n) \
	{ \
		double seconds = 0, start; \
		(void)arg; \
		while (n--) { \
			name##_older(); \
			for (uint32_t id = 0; id < depth; id++) \
				name##_arrive(CHANCE(0, id), id, 1); \
			start = now(); \
			name##_post(CHANCE(0, depth - 1), recv_mask, depth - 1, 0); \
			seconds += now() - start; \
		} \
		return seconds; \
	}

CASES(inlay)
CASES(call)
CASES(ucx)
CASES(list)
CASES(hash)
CASES(none)

/* The way to self and back without any matching */
static double ucx_message(void *arg, uint64_t n)
{
	ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
					    .id = 1, .cb = ucx_handler};
	static const ucp_request_param_t none;
	uint64_t payload = 1, i;
	double start;

	(void)arg;
	ucx_reset();
	NEED(!ucp_worker_set_am_recv_handler(ucx_worker, &handler), "ucp_worker_set_am_recv_handler");
	ucx_seen = 0;
	start = now();
	for (i = 0; i < n; i++)
		if (ucp_am_send_nbx(ucx_ep, 1, NULL, 0, &payload, 8, &none))
			die("ucx: message");
	start = now() - start;
	NEED(ucx_seen == n, "every message");
	return start;
}

/* Tags for whoever knows the seed: all in one bucket of inlay's table; and the longest path that there can be */
static uint64_t undo;

static uint64_t one_bucket(uint32_t id)
{
	return ((uint64_t)7 << 47 | tag_of(id) >> 17) * undo;
}

static uint64_t one_path(uint32_t id)
{
	const uint64_t ones = ((uint64_t)1 << 47) - 1;

	return ((uint64_t)7 << 47 | (ones & ~(ones >> id % 48))) * undo;
}

static void run(const char *kind, const struct way *ways, unsigned n)
{
	char name[64];

	row_number++;
	half = (32 - (uint32_t)__builtin_clz(depth)) / 2;
	snprintf(name, sizeof(name), "%s, %u", kind, depth);
	bench_row("match", name, ways, n, 1);
}

#define ALL(kind) {{"inlay", run_##kind##_inlay, NULL, "compiled into the loop"}, \
	{"UCX", run_##kind##_ucx, NULL, "requests, a copy of 8 B"}, {"list", run_##kind##_list, NULL, "written here"}, \
	{"hash", run_##kind##_hash, NULL, "written here"}, {"loop", run_##kind##_none, NULL, ""}, \
	{"inlay, called", run_##kind##_call, NULL, "two functions"}}

int main(void)
{
	static const struct way posted[] = ALL(posted), given_posted[] = ALL(given), kept[] = ALL(kept);
	static const struct way first[] = ALL(first), same[] = ALL(same);
	static const struct way message[] = {{"UCX", ucx_message, NULL, "active message"}};
	static const uint32_t depths[] = {1, 64, 4096, 65536, 8, 512}, olders[] = {1024, 8, 64};
	int all = getenv("BENCH_ALL") != NULL;
	uint32_t d, o, k;
	char kind[64];

	for (d = 0; d < (all ? 6 : 4); d++) {
		depth = depths[d];
		recv_mask = EXACT;
		run("receives posted", posted, 6);
		run("messages kept", kept, 6);
		for (o = 0; o < (all ? 3 : 1); o++)
			for (k = 8; k <= (all ? 12 : 8) && (depth == 1 || depth == 64 || depth == 4096); k += 4) {
				older = olders[o];
				masks = k;
				for (mixed = 0; mixed < 2; mixed++) {
					snprintf(kind, sizeof(kind), "receives posted, %u older of %u masks%s", older,
						masks, mixed ? ", mixed" : "");
					run(kind, posted, 6);
				}
				older = 0;
			}
		recv_mask = ANY_SOURCE;
		if (depth <= 4096 || all) {
			run("receives posted, any source", posted, 6);
			run("messages kept, any source", kept, 6);
		}
		if (!all || bench_counts())
			continue;
		run("first receive from any source", first, 6);
		recv_mask = EXACT;
		run("receives of one tag, message of another", same, 6);
		for (k = 0; k < depth; k++)
			given[k] = 7 + (uint64_t)k * 1021;
		run("receives posted, stride 1021", given_posted, 6);
	}
	if (!all || bench_counts())
		return 0;
	bench_row("match", "message to self, no matching", message, 1, 1);
	recv_mask = EXACT;
	inlay_reset();
	NEED(table.shift == 47, "131,072 buckets");
	for (undo = table.multiplier, k = 0; k < 5; k++)
		undo *= 2 - undo * table.multiplier;
	for (k = 0; k < 4096; k++)
		given[k] = one_bucket(k);
	depth = 4096;
	run("seed known: one bucket", given_posted, 1);
	for (k = 0; k < 32; k++)
		given[k] = one_path(k);
	depth = 32;
	run("seed known: one path", given_posted, 1);
	return 0;
}
