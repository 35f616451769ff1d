/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uct.c: two processes talk through one transport of UCT and look at every byte that arrives: each operation that it offers, short,
 * from a buffer of its own (bcopy) and from the program's memory (zcopy), at the limits that it names and at random sizes; atomics
 * as the device does them. ucx.t builds it and starts it.
 *
 *   uct [-p port] -t transport -d device [-r rounds] [-s seed] [-g] [host]      without a host: the server
 *
 *   -g   the server goes without a word: the client must be told
 *
 * Both do the same at the same time, each being sender and receiver. They meet by TCP, over which they tell each other addresses.
 */
#define _GNU_SOURCE
#include <uct/api/uct.h>
#include "../../softdev/softdev.h"
#include "../../../examples/common/socket.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/uio.h>

#define MAX ((size_t)3 << 17)   /* several frames of the device's, and room for BURST active messages */
#define AROUND 256              /* bytes before and behind a message that must stay as they were */
#define ROOM (MAX + 4 * AROUND)
#define LIMIT 280               /* seconds */

static int sock = -1, me;       /* the client is 1 */
static uint64_t seed = 1;
static const char *doing = "setting up";
static size_t doing_size;
static unsigned long checked;

static void progress(void);     /* also before anything is set up */

#define die(fmt, ...) die("%s: %s, %zu bytes, seed %llu: " fmt, me ? "client" : "server", doing, doing_size, \
			  (unsigned long long)seed, ##__VA_ARGS__)

static void ok(ucs_status_t s, const char *what)
{
	if (s != UCS_OK)
		die("%s: %s", what, ucs_status_string(s));
}

static void out_of_time(int sig)
{
	die("signal %d: out of time", sig);
}

/* ---- random bytes that both sides know ---- */

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static uint64_t step;           /* the same on both sides */

/* Of this step: number n of the given side */
static uint64_t chance(int side, unsigned n)
{
	return mix(mix(seed ^ mix(step)) ^ (uint64_t)side << 32 ^ n);
}

static void fill(uint8_t *p, size_t len, uint64_t key)
{
	uint64_t v;
	size_t i;

	for (i = 0; i + 8 <= len; i += 8) {
		v = mix(key + i);
		memcpy(p + i, &v, 8);
	}
	if (i < len) {
		v = mix(key + i);
		memcpy(p + i, &v, len - i);
	}
}

static void check(const uint8_t *p, size_t len, uint64_t key, const char *what)
{
	uint64_t v, f;
	size_t i, n;

	for (i = 0; i < len; i += 8) {
		v = mix(key + i);
		n = len - i < 8 ? len - i : 8;
		if (memcmp(p + i, &v, n) != 0) {
			f = 0;
			memcpy(&f, p + i, n);
			die("%s: wrong data at byte %zu to %zu of %zu: %016llx, not %016llx", what, i, i + n - 1, len,
			    (unsigned long long)f, (unsigned long long)v);
		}
	}
	checked += len;
}

/* ---- meeting ---- */

static void move(bool out, void *p, size_t len)
{
	ssize_t n;

	for (; len; p = (uint8_t *)p + n, len -= n) {
		n = out ? send(sock, p, len, MSG_NOSIGNAL) : recv(sock, p, len, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			progress();
			n = 0;
		} else if (n <= 0) {
			die("the other side is gone");
		}
	}
}

/* The word of each is known to both */
static uint64_t meet_with(uint64_t word)
{
	uint64_t mine[2] = { step, word }, theirs[2];

	move(true, mine, sizeof mine);
	move(false, theirs, sizeof theirs);
	if (theirs[0] != step)
		die("the other side is at step %llu", (unsigned long long)theirs[0]);
	return theirs[1];
}

static void meet(void)
{
	meet_with(0);
}

/* Both say as much; the caller frees */
static void *swap_blob(void *mine, size_t len)
{
	void *p = malloc(len);

	if (!p)
		die("no memory");
	move(true, mine, len);
	move(false, p, len);
	return p;
}

#define AM_ID 11
#define BURST 20                /* operations between two meetings */
#define PIECES 4

static uct_component_h component;
static uct_md_h md;
static uct_md_attr_t md_attr;
static ucs_async_context_t *async;
static uct_worker_h worker;
static uct_iface_h iface;
static uct_iface_attr_t attr;
static uct_ep_h ep;
static uct_mem_h src_memh, dst_memh, win_memh;
static uct_rkey_bundle_t rkey;
static uint8_t *win, *src, *dst;
static uint64_t peer_win;
static unsigned kinds;          /* tested */
static volatile bool peer_gone;

static void progress(void)
{
	if (!worker || !uct_worker_progress(worker))
		sched_yield();
}

static void completed(uct_completion_t *c)
{
	(void)c;
}

static uct_completion_t wait_one(void)
{
	return (uct_completion_t){ .func = completed, .count = 1, .status = UCS_OK };
}

static void flush(void)
{
	ucs_status_t s;

	while ((s = uct_ep_flush(ep, UCT_FLUSH_FLAG_LOCAL, NULL)) == UCS_INPROGRESS || s == UCS_ERR_NO_RESOURCE)
		progress();
	ok(s, "flush");
}

/* Posts, again while the queue is full, and waits for the end if there is one to wait for */
#define POST(what, call, completion) \
	do { \
		ssize_t status_; \
		uct_completion_t *c_ = (completion); \
		while ((status_ = (call)) == UCS_ERR_NO_RESOURCE) \
			progress(); \
		if (status_ < 0 && status_ != UCS_INPROGRESS) \
			die("%s: %s", what, ucs_status_string((ucs_status_t)status_)); \
		if (status_ == UCS_INPROGRESS && c_) { \
			while (c_->count) \
				progress(); \
			ok(c_->status, what); \
		} \
	} while (0)

static size_t pack(void *to, void *from_size)
{
	struct iovec *v = from_size;

	memcpy(to, v->iov_base, v->iov_len);
	return v->iov_len;
}

static void unpack(void *to, const void *data, size_t size)
{
	memcpy(to, data, size);
}

/* One to PIECES pieces of the same memory, in order; returns how many */
static unsigned cut(uct_iov_t v[PIECES], uint8_t *p, size_t size, uct_mem_h memh, size_t max, uint64_t x)
{
	unsigned n = 1 + x % (max < PIECES ? max : PIECES), i;

	for (i = 0; i < n; i++) {
		size_t len = i + 1 == n ? size : (x >> 8 * (i + 1) & 0xff) * size / 600;

		v[i] = (uct_iov_t){ .buffer = p, .length = len, .memh = memh, .count = 1 };
		p += len;
		size -= len;
	}
	return n;
}

/* ---- sizes ---- */

/* Number n of this step; the first are the limits themselves, and what is beside them */
static size_t size_of(int side, unsigned n, size_t min, size_t max)
{
	size_t room = max < MAX ? max : MAX, low = min > 8 ? min : 8;

	if (room < low)
		return room;
	switch (n) {
	case 0: return room;
	case 1: return low;
	case 2: return room > low ? room - 1 : room;
	case 3: return low + (room - low) / 2;
	}
	return low + (chance(side, 1000 + n) >> 8) % (((room - low) >> (chance(side, 1000 + n) & 0xff) % 10) + 1);
}

/* ---- one-sided ---- */

enum how { SHORT, BCOPY, ZCOPY };

static uint8_t *word(uint8_t *base, int side, unsigned n)
{
	return base + AROUND + chance(side, n) % 64;
}

/* Into the peer's window; what each side sends has a size of its own */
static void put(enum how how)
{
	size_t min = how == ZCOPY ? attr.cap.put.min_zcopy : 0, size;
	size_t max = how == SHORT ? attr.cap.put.max_short : how == BCOPY ? attr.cap.put.max_bcopy : attr.cap.put.max_zcopy;

	for (unsigned n = 0; n < BURST; n++) {
		uint8_t *from = word(src, me, n), *to = word(win, !me, n);
		const uint64_t at = peer_win + (uint64_t)(from - src);
		uct_completion_t c = wait_one();
		struct iovec v;
		uct_iov_t z[PIECES];

		size = doing_size = size_of(me, n, min, max);
		fill(from, size, chance(me, 100 + n));
		fill(win, ROOM, chance(me, 200 + n));
		meet();
		v = (struct iovec){ from, size };
		if (how == SHORT)
			POST("put_short", uct_ep_put_short(ep, from, size, at, rkey.rkey), NULL);
		else if (how == BCOPY)
			POST("put_bcopy", uct_ep_put_bcopy(ep, pack, &v, at, rkey.rkey), NULL);
		else
			POST("put_zcopy", uct_ep_put_zcopy(ep, z, cut(z, from, size, src_memh, attr.cap.put.max_iov, chance(me, 300 + n)), at,
							   rkey.rkey, &c), &c);
		flush();
		meet();
		size = size_of(!me, n, min, max);
		check(to, size, chance(!me, 100 + n), "put");
		fill(dst, ROOM, chance(me, 200 + n));
		fill(dst + (to - win), size, chance(!me, 100 + n));
		if (memcmp(win, dst, ROOM) != 0)
			die("put: bytes around the message have changed");
		meet();
	}
}

static void get(enum how how)
{
	size_t min = how == ZCOPY ? attr.cap.get.min_zcopy : 0, max = how == BCOPY ? attr.cap.get.max_bcopy : attr.cap.get.max_zcopy, size;

	fill(win, ROOM, chance(me, 1));
	meet();
	for (unsigned n = 0; n < BURST; n++) {
		const uint64_t at = peer_win + n * 8, key = chance(!me, 1) + n * 8; /* the check knows the bytes from a multiple of 8 on */
		uint8_t *to = word(dst, me, 50 + n);
		uct_completion_t c = wait_one();
		uct_iov_t z[PIECES];

		size = doing_size = size_of(me, n, min, max);
		fill(dst, ROOM, chance(me, 200 + n));
		fill(src, ROOM, chance(me, 200 + n));
		if (how == BCOPY)
			POST("get_bcopy", uct_ep_get_bcopy(ep, unpack, to, size, at, rkey.rkey, &c), &c);
		else
			POST("get_zcopy", uct_ep_get_zcopy(ep, z, cut(z, to, size, dst_memh, attr.cap.get.max_iov, chance(me, 300 + n)), at,
							   rkey.rkey, &c), &c);
		check(to, size, key, "get");
		fill(src + (to - dst), size, key);
		if (memcmp(src, dst, ROOM) != 0)
			die("get: bytes around the message have changed");
	}
	flush();
	meet();
}

/* ---- active messages: they come in order ---- */

static unsigned arrived;
static size_t am_min, am_max;

static ucs_status_t am_arrived(void *arg, void *data, size_t length, unsigned flags)
{
	uint64_t header;
	size_t size = size_of(!me, arrived, am_min, am_max);

	(void)arg;
	(void)flags;
	if (length != size || length < sizeof header)
		die("active message %u: %zu bytes, not %zu", arrived, length, size);
	memcpy(&header, data, sizeof header);
	if (header != chance(!me, 400 + arrived))
		die("active message %u: another header", arrived);
	check((uint8_t *)data + sizeof header, length - sizeof header, chance(!me, 100 + arrived), "active message");
	arrived++;
	return UCS_OK;
}

static void am(enum how how)
{
	uint64_t header;
	size_t size, body;
	unsigned n, k;

	am_min = sizeof header + (how == ZCOPY ? attr.cap.am.min_zcopy : 0);
	am_max = how == SHORT ? attr.cap.am.max_short : how == BCOPY ? attr.cap.am.max_bcopy : attr.cap.am.max_zcopy;
	arrived = 0;
	meet();
	for (n = 0; n < BURST; n++) {
		uint8_t *at = src + n * (MAX / BURST);

		size = doing_size = size_of(me, n, am_min, am_max);
		body = size - sizeof header;
		header = chance(me, 400 + n);
		memcpy(at, &header, sizeof header);
		fill(at + sizeof header, body, chance(me, 100 + n));
		if (how == SHORT) {
			POST("am_short", uct_ep_am_short(ep, AM_ID, header, at + sizeof header, body), NULL);
		} else if (how == BCOPY) {
			struct iovec v = { at, size };

			POST("am_bcopy", uct_ep_am_bcopy(ep, AM_ID, pack, &v, 0), NULL);
		} else {
			uct_iov_t v[PIECES];

			/* No completion: flush() waits until the memory is free again */
			k = cut(v, at + sizeof header, body, src_memh, attr.cap.am.max_iov, chance(me, 300 + n));
			POST("am_zcopy", uct_ep_am_zcopy(ep, AM_ID, &header, sizeof header, v, k, 0, NULL), NULL);
		}
	}
	while (arrived < BURST)
		progress();
	flush();
	meet();
}

/* ---- atomics: all that the transport has of 32 and 64 bits, on two words of the peer's ---- */

static void atomics(enum how how)
{
	static const uct_atomic_op_t ops[] = { UCT_ATOMIC_OP_ADD, UCT_ATOMIC_OP_AND, UCT_ATOMIC_OP_OR, UCT_ATOMIC_OP_XOR, UCT_ATOMIC_OP_SWAP,
					       UCT_ATOMIC_OP_CSWAP };
	const uint64_t all[2] = { 0xffffffff, ~0ull }, fetches[2] = { attr.cap.atomic32.fop_flags, attr.cap.atomic64.fop_flags };
	uint64_t model[2] = { chance(!me, 1) & all[0], chance(!me, 2) }, words[2];
	unsigned n, w;

	(void)how;
	memset(win, 0x5a, 3 * AROUND);
	for (w = 0; w < 2; w++) {
		words[w] = chance(me, 1 + w);
		memcpy(win + AROUND + 8 * w, &words[w], 4 << w);
	}
	meet();
	for (n = 0; n < 120; n++) {
		uct_atomic_op_t op = ops[chance(me, 100 + n) % 6];
		uint64_t x, old, at, compare, found = 0;
		uct_completion_t c = wait_one();
		uint32_t found32 = 0;

		w = chance(me, 400 + n) & 1;
		if (!(fetches[w] & UCS_BIT(op)))
			continue;
		x = chance(me, 700 + n) & all[w];
		at = peer_win + AROUND + 8 * w;
		old = model[w];
		compare = chance(me, 900 + n) & 1 ? old : ~old & all[w]; /* every other one must not take place */
		model[w] = (op == UCT_ATOMIC_OP_ADD ? old + x : op == UCT_ATOMIC_OP_AND ? old & x : op == UCT_ATOMIC_OP_OR ? old | x :
			    op == UCT_ATOMIC_OP_XOR ? old ^ x : op == UCT_ATOMIC_OP_SWAP || compare == old ? x : old) & all[w];
		if (op == UCT_ATOMIC_OP_ADD && w && n & 1) {
			POST("atomic add", uct_ep_atomic64_post(ep, op, x, at, rkey.rkey), NULL);
			continue;
		}
		if (op == UCT_ATOMIC_OP_CSWAP && w)
			POST("compare and swap", uct_ep_atomic_cswap64(ep, compare, x, at, rkey.rkey, &found, &c), &c);
		else if (op == UCT_ATOMIC_OP_CSWAP)
			POST("compare and swap", uct_ep_atomic_cswap32(ep, (uint32_t)compare, (uint32_t)x, at, rkey.rkey, &found32, &c), &c);
		else if (w)
			POST("atomic of 64 bits", uct_ep_atomic64_fetch(ep, op, x, &found, at, rkey.rkey, &c), &c);
		else
			POST("atomic of 32 bits", uct_ep_atomic32_fetch(ep, op, (uint32_t)x, &found32, at, rkey.rkey, &c), &c);
		found = w ? found : found32;
		if (found != old)
			die("atomic %u of %u bits: the old value is %llx, not %llx", op, 32 << w, (unsigned long long)found,
			    (unsigned long long)old);
	}
	flush();
	for (w = 0; w < 2; w++) {
		model[w] = meet_with(model[w]);
		words[w] = 0;
		memcpy(&words[w], win + AROUND + 8 * w, 4 << w);
		if (words[w] != model[w])
			die("atomics of %u bits: the word is %llx, not %llx", 32 << w, (unsigned long long)words[w],
			    (unsigned long long)model[w]);
	}
	for (n = 0; n < 3 * AROUND; n++)
		if ((n < AROUND || (n >= AROUND + 4 && n < AROUND + 8) || n >= AROUND + 16) && win[n] != 0x5a)
			die("atomics: a byte beside the words has changed");
	checked += 3 * AROUND;
	meet();
}

static const struct {
	const char *name;
	uint64_t cap;
	void (*run)(enum how how);
	enum how how;
} tests[] = {
	{ "put, short", UCT_IFACE_FLAG_PUT_SHORT, put, SHORT },
	{ "put, bcopy", UCT_IFACE_FLAG_PUT_BCOPY, put, BCOPY },
	{ "put, zcopy", UCT_IFACE_FLAG_PUT_ZCOPY, put, ZCOPY },
	{ "get, bcopy", UCT_IFACE_FLAG_GET_BCOPY, get, BCOPY },
	{ "get, zcopy", UCT_IFACE_FLAG_GET_ZCOPY, get, ZCOPY },
	{ "active message, short", UCT_IFACE_FLAG_AM_SHORT, am, SHORT },
	{ "active message, bcopy", UCT_IFACE_FLAG_AM_BCOPY, am, BCOPY },
	{ "active message, zcopy", UCT_IFACE_FLAG_AM_ZCOPY, am, ZCOPY },
	{ "atomics", UCT_IFACE_FLAG_ATOMIC_DEVICE, atomics, SHORT },
};

#define TESTS (sizeof tests / sizeof tests[0])

/* ---- set-up ---- */

static bool has(uct_md_h m, const char *transport, const char *device)
{
	uct_tl_resource_desc_t *r;
	unsigned n, i;
	bool found = false;

	ok(uct_md_query_tl_resources(m, &r, &n), "query_tl_resources");
	for (i = 0; i < n; i++)
		found = found || (strcmp(r[i].tl_name, transport) == 0 && strcmp(r[i].dev_name, device) == 0);
	uct_release_tl_resource_list(r);
	return found;
}

static void find(const char *transport, const char *device)
{
	uct_component_h *c;
	unsigned n, i, k;

	ok(uct_query_components(&c, &n), "query_components");
	for (i = 0; i < n && !md; i++) {
		uct_component_attr_t a = { .field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT };

		ok(uct_component_query(c[i], &a), "component_query");
		if (!a.md_resource_count)
			continue;
		a.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
		a.md_resources = calloc(a.md_resource_count, sizeof *a.md_resources);
		if (!a.md_resources)
			die("no memory");
		ok(uct_component_query(c[i], &a), "component_query");
		for (k = 0; k < a.md_resource_count && !md; k++) {
			uct_md_config_t *config;

			ok(uct_md_config_read(c[i], NULL, NULL, &config), "md_config_read");
			if (uct_md_open(c[i], a.md_resources[k].md_name, config, &md) != UCS_OK)
				md = NULL;
			uct_config_release(config);
			if (md && !has(md, transport, device)) {
				uct_md_close(md);
				md = NULL;
			}
		}
		component = c[i];
		free(a.md_resources);
	}
	uct_release_component_list(c);
	if (!md)
		die("no %s on %s", transport, device);
	ok(uct_md_query(md, &md_attr), "md_query");
}

static uint8_t *registered(uct_mem_h *memh)
{
	void *p = memory(ROOM);

	ok(uct_md_mem_reg(md, p, ROOM, UCT_MD_MEM_ACCESS_ALL, memh), "mem_reg");
	return p;
}

static ucs_status_t failed(void *arg, uct_ep_h e, ucs_status_t status)
{
	(void)e;
	if (!*(bool *)arg)
		die("the connection has failed: %s", ucs_status_string(status));
	peer_gone = true;
	return UCS_OK;
}

/*
 * The server is gone without a word: sends come to an end, and the error handler is called. Sends to a server that is still there
 * could all be acknowledged, until UCX waits for more credit and nothing is left to fail.
 */
static void lose_peer(void)
{
	struct iovec v = { src, 1000 };
	unsigned posted = 0;
	char end;

	doing = "a peer that goes";
	while (read(sock, &end, 1) < 0 && errno == EAGAIN)
		progress();
	while (!peer_gone) {
		posted += uct_ep_am_bcopy(ep, AM_ID, pack, &v, 0) > 0;
		progress();
	}
	printf("told after %u sends\n", posted);
}

static void start(const char *transport, const char *device, bool *may_fail)
{
	uct_iface_params_t ip = {
		.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE | UCT_IFACE_PARAM_FIELD_RX_HEADROOM |
			      UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS,
		.open_mode = UCT_IFACE_OPEN_MODE_DEVICE, .mode.device = { .tl_name = transport, .dev_name = device }, .rx_headroom = 0,
		.err_handler = failed, .err_handler_arg = may_fail,
	};
	uct_ep_params_t pp = { .field_mask = UCT_EP_PARAM_FIELD_IFACE };
	uct_iface_config_t *config;
	uint8_t dev[256], addr[256], key[256];
	void *their_dev, *their_addr, *their_key;
	size_t addr_len;
	bool by_ep; /* endpoints know each other, or only each one its peer's interface */
	uint64_t theirs;

	find(transport, device);
	ok(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async), "async_context_create");
	ok(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker), "worker_create");
	ok(uct_md_iface_config_read(md, transport, NULL, NULL, &config), "iface_config_read");
	ok(uct_iface_open(md, worker, &ip, config, &iface), "iface_open");
	uct_config_release(config);
	uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
	ok(uct_iface_query(iface, &attr), "iface_query");
	ok(uct_iface_set_am_handler(iface, AM_ID, am_arrived, NULL, 0), "set_am_handler");
	by_ep = attr.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_EP;
	addr_len = by_ep ? attr.ep_addr_len : attr.iface_addr_len;
	if (!(attr.cap.flags & (UCT_IFACE_FLAG_CONNECT_TO_EP | UCT_IFACE_FLAG_CONNECT_TO_IFACE)) || attr.device_addr_len > sizeof dev ||
	    addr_len > sizeof addr || md_attr.rkey_packed_size > sizeof key)
		die("%s is not as expected", transport);
	win = registered(&win_memh);
	src = registered(&src_memh);
	dst = registered(&dst_memh);

	pp.iface = iface;
	if (by_ep)
		ok(uct_ep_create(&pp, &ep), "ep_create");
	ok(uct_iface_get_device_address(iface, (uct_device_addr_t *)dev), "get_device_address");
	ok(by_ep ? uct_ep_get_address(ep, (uct_ep_addr_t *)addr) : uct_iface_get_address(iface, (uct_iface_addr_t *)addr), "get_address");
	ok(uct_md_mkey_pack(md, win_memh, key), "mkey_pack");
	their_dev = swap_blob(dev, attr.device_addr_len);
	their_addr = swap_blob(addr, addr_len);
	their_key = swap_blob(key, md_attr.rkey_packed_size);
	if (by_ep) {
		ok(uct_ep_connect_to_ep(ep, their_dev, their_addr), "connect_to_ep");
	} else {
		pp.field_mask |= UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
		pp.dev_addr = their_dev;
		pp.iface_addr = their_addr;
		ok(uct_ep_create(&pp, &ep), "ep_create");
	}
	if (attr.cap.flags & (UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_GET_BCOPY))
		ok(uct_rkey_unpack(component, their_key, &rkey), "rkey_unpack");
	free(their_dev);
	free(their_addr);
	free(their_key);
	peer_win = meet_with((uint64_t)(uintptr_t)win);
	theirs = meet_with(seed); /* the server's choice is both sides' */
	seed = me ? theirs : seed;
}

static void stop(void)
{
	if (rkey.rkey)
		uct_rkey_release(component, &rkey);
	uct_ep_destroy(ep);
	uct_md_mem_dereg(md, win_memh);
	uct_md_mem_dereg(md, src_memh);
	uct_md_mem_dereg(md, dst_memh);
	uct_iface_close(iface);
	uct_worker_destroy(worker);
	ucs_async_context_destroy(async);
	uct_md_close(md);
}

int main(int argc, char **argv)
{
	const char *transport = NULL, *device = NULL;
	unsigned rounds = 1, r, k;
	uint16_t port = 13400;
	bool go = false;
	int c;

	while ((c = getopt(argc, argv, "p:t:d:r:s:g")) != -1)
		switch (c) {
		case 'p': port = atoi(optarg); break;
		case 't': transport = optarg; break;
		case 'd': device = optarg; break;
		case 'r': rounds = atoi(optarg); break;
		case 'g': go = true; break;
		case 's': seed = strtoull(optarg, NULL, 0); break;
		default: return 2;
		}
	if (argc - optind > 1 || !transport || !device)
		return 2;
	me = argv[optind] != NULL;
	signal(SIGALRM, out_of_time);
	alarm(LIMIT);
	sock = me ? socket_connect(argv[optind], port, LIMIT) : socket_accept("127.0.0.1", port, LIMIT);
	fcntl(sock, F_SETFL, O_NONBLOCK);
	start(transport, device, &go);
	if (go) {
		am(BCOPY);
		if (!me)
			_exit(0);
		lose_peer();
		return 0;
	}
	for (r = 0; r < rounds; r++)
		for (k = 0; k < TESTS; k++)
			if (attr.cap.flags & tests[k].cap) {
				step++;
				doing = tests[k].name;
				tests[k].run(tests[k].how);
				if (!r)
					printf("%s\n", tests[k].name);
				kinds += !r;
			}
	doing = "closing";
	step++;
	flush();
	meet();
	stop();
	if (softdev_blocks)
		printf("Compressed blocks: %lu\n", softdev_blocks());
	printf("Verified %lu bytes of %u kinds, seed %llu.\n", checked, kinds, (unsigned long long)seed);
	return 0;
}
