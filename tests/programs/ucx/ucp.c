/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucp.c: two processes talk through UCP and look at every byte that arrives. ucx.t builds it and starts it on each transport.
 *
 *   ucp [-p port] -t transport [-r rounds] [-k kind] [-z size] [-s seed] [-g] [host]      without a host: the server
 *
 *   -t   every lane of the connection that has data must be of this transport on this device, such as rc_verbs/mlx5_0:1
 *   -r   of all kinds and sizes; the first has fixed sizes, the others random ones
 *   -k   only this kind, as named below; -z only this size
 *   -g   after the first message the server goes without a word: the client must be told
 *
 * The sides meet before and after each step, making progress meanwhile: what one does to the other's memory is there when they have met.
 */
#include <ucp/api/ucp.h>
#include "../../softdev/softdev.h"
#include "both.h"

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep, own;        /* to the peer, and to ourselves */
static ucp_rkey_h rkey, own_rkey;
static ucp_mem_h memh;
static uint8_t *win;            /* the peer puts to and gets from it */
static uint64_t peer_win;
static uint8_t *src, *dst;
static volatile bool peer_gone;

static void progress(void)
{
	if (!worker || !ucp_worker_progress(worker))
		sched_yield();
}

static ucs_status_t wait_for(void *req)
{
	ucs_status_t s;

	if (!UCS_PTR_IS_PTR(req))
		return UCS_PTR_STATUS(req);
	while ((s = ucp_request_check_status(req)) == UCS_INPROGRESS)
		progress();
	ucp_request_free(req);
	return s;
}

static void flush(ucp_ep_h to)
{
	ucp_request_param_t p = { .op_attr_mask = 0 };

	ok(wait_for(ucp_ep_flush_nbx(to, &p)), "flush");
}

/* ---- what is tested; each takes the size that the other side sends too ---- */

static uint8_t *place(uint8_t *base, int side, unsigned n)
{
	return base + AROUND + chance(side, n) % 64;
}

/* Into or out of the peer's window: the bytes, and those around them */
static void one_sided(size_t size, bool get)
{
	ucp_request_param_t p = { .op_attr_mask = 0 };
	uint8_t *mine = place(win, me, 0), *buf = place(get ? dst : src, me, 1), *to = get ? buf : mine;
	uint8_t *base = get ? dst : win, *like = get ? src : dst;
	const uint64_t at = peer_win + (uint64_t)(place(win, !me, 0) - win);

	fill(base, ROOM, chance(me, 2));
	fill(like, ROOM, chance(me, 2));
	fill(get ? mine : buf, size, chance(me, 3));
	meet();
	ok(wait_for(get ? ucp_get_nbx(ep, buf, size, at, rkey, &p) : ucp_put_nbx(ep, buf, size, at, rkey, &p)), doing);
	if (!get) { /* a get answers UCS_OK, or a request that ends, when the data is here */
		flush(ep);
		meet();
	}
	check(to, size, chance(!me, 3), doing);
	fill(like + (to - base), size, chance(!me, 3));
	if (memcmp(base, like, ROOM) != 0)
		die("bytes around it have changed");
	meet();
}

static void put(size_t size)
{
	one_sided(size, false);
}

static void get(size_t size)
{
	one_sided(size, true);
}

static void *tag_recv(uint8_t *to, size_t room, uint64_t tag, uint64_t mask)
{
	ucp_request_param_t p = { .op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL };
	void *req = ucp_tag_recv_nbx(worker, to, room, tag, mask, &p);

	if (!UCS_PTR_IS_PTR(req))
		die("tag_recv_nbx: %s", ucs_status_string(UCS_PTR_STATUS(req)));
	return req;
}

static void tag_got(void *req, uint8_t *to, size_t size, uint64_t tag, uint64_t key)
{
	ucp_tag_recv_info_t info;
	ucs_status_t s;

	while ((s = ucp_tag_recv_request_test(req, &info)) == UCS_INPROGRESS)
		progress();
	ok(s, "tag receive");
	ucp_request_free(req);
	if (info.length != size || info.sender_tag != tag)
		die("tag %llx, %zu bytes; %llx was sent", (unsigned long long)info.sender_tag, info.length, (unsigned long long)tag);
	check(to, size, key, "tag");
}

/* What lies behind the message in the receive buffer stays as it was */
static void behind(const uint8_t *p, size_t size, uint64_t key)
{
	uint8_t want[AROUND];

	fill(want, AROUND, key);
	if (memcmp(p + size, want, AROUND) != 0)
		die("bytes behind the message have changed");
}

static void *tag_send(const uint8_t *from, size_t size, uint64_t tag, bool sync, bool iov)
{
	ucp_request_param_t p = { .op_attr_mask = 0 };
	static ucp_dt_iov_t v[3];

	if (!iov)
		return sync ? ucp_tag_send_sync_nbx(ep, from, size, tag, &p) : ucp_tag_send_nbx(ep, from, size, tag, &p);
	v[0] = (ucp_dt_iov_t){ (void *)from, size / 3 };
	v[1] = (ucp_dt_iov_t){ (void *)(from + v[0].length), size / 5 };
	v[2] = (ucp_dt_iov_t){ (void *)(from + v[0].length + v[1].length), size - v[0].length - v[1].length };
	p.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
	p.datatype = ucp_dt_make_iov();
	return ucp_tag_send_nbx(ep, v, 3, tag, &p);
}

/* The receive is there first; its tag is exact, or half of it, or none. It has room for the message, or for half */
static void expected(size_t size, bool truncated)
{
	static const uint64_t masks[] = { UINT64_MAX, 0xffffffff00000000, 0 };
	uint64_t mask = masks[chance(0, 9) % 3], tag = chance(!me, 4);
	uint8_t *to = place(dst, me, 1), *from = place(src, me, 0);
	const size_t room = truncated ? size / 2 : size;
	void *r, *s;

	fill(from, size, chance(me, 2));
	fill(to + room, AROUND, chance(me, 3));
	r = tag_recv(to, truncated ? room : size + AROUND, tag & mask, mask);
	meet();
	s = tag_send(from, size, chance(me, 4), false, false);
	if (!truncated)
		tag_got(r, to, size, tag, chance(!me, 2));
	else if (wait_for(r) != UCS_ERR_MESSAGE_TRUNCATED)
		die("a message longer than its buffer was not truncated");
	behind(to, room, chance(me, 3));
	ok(wait_for(s), "tag send");
	meet();
}

static void tag_expected(size_t size)
{
	expected(size, false);
}

static void tag_truncated(size_t size)
{
	expected(size, true);
}

/* Two messages that nobody waits for yet, taken in the other order */
static void tag_unexpected(size_t size)
{
	uint8_t *to = place(dst, me, 1), *from = place(src, me, 0);
	size_t half = size / 2, rest = size - half;
	ucp_tag_recv_info_t info;
	void *s[2], *r;

	fill(from, half, chance(me, 2));
	fill(from + half, rest, chance(me, 3));
	s[0] = tag_send(from, half, chance(me, 4), false, false);
	s[1] = tag_send(from + half, rest, chance(me, 5), false, true);
	while (!ucp_tag_probe_nb(worker, chance(!me, 5), UINT64_MAX, 0, &info))
		progress();
	if (info.length != rest || info.sender_tag != chance(!me, 5))
		die("probe: %zu bytes", info.length);
	r = tag_recv(to, rest, chance(!me, 5), UINT64_MAX);
	tag_got(r, to, rest, chance(!me, 5), chance(!me, 3));
	r = tag_recv(to, half, chance(!me, 4), UINT64_MAX);
	tag_got(r, to, half, chance(!me, 4), chance(!me, 2));
	ok(wait_for(s[0]), "tag send");
	ok(wait_for(s[1]), "tag send");
	meet();
}

static void tag_sync(size_t size)
{
	uint8_t *to = place(dst, me, 1), *from = place(src, me, 0);
	void *s, *r;

	fill(from, size, chance(me, 2));
	s = tag_send(from, size, chance(me, 4), true, false);
	meet();
	/* Nobody has posted the receive: it cannot be done */
	if (!UCS_PTR_IS_PTR(s) || ucp_request_check_status(s) != UCS_INPROGRESS)
		die("tag_sync: done before it was received");
	meet();
	r = tag_recv(to, size, chance(!me, 4), UINT64_MAX);
	tag_got(r, to, size, chance(!me, 4), chance(!me, 2));
	ok(wait_for(s), "tag_sync");
	meet();
}

#define AMS 3

static struct {
	unsigned got;
	size_t size;
	void *rndv[AMS];
	uint8_t *to[AMS];
} am;

static ucs_status_t am_arrived(void *arg, const void *header, size_t header_length, void *data, size_t length,
			       const ucp_am_recv_param_t *param)
{
	ucp_request_param_t p = { .op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL };
	uint32_t n;

	(void)arg;
	if (header_length < sizeof n || (memcpy(&n, header, sizeof n), n >= AMS) || header_length != sizeof n + chance(!me, 20 + n) % 40)
		die("active message: a header of %zu bytes", header_length);
	check((const uint8_t *)header + sizeof n, header_length - sizeof n, chance(!me, 30 + n), "active message's header");
	if (length != am.size)
		die("active message: %zu bytes", length);
	if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
		check(data, length, chance(!me, 40 + n), "active message");
		am.got++;
		return UCS_OK;
	}
	am.rndv[n] = ucp_am_recv_data_nbx(worker, data, am.to[n], length, &p);
	if (!UCS_PTR_IS_PTR(am.rndv[n]))
		die("am_recv_data_nbx: %s", ucs_status_string(UCS_PTR_STATUS(am.rndv[n])));
	return UCS_INPROGRESS;
}

static void active(size_t size)
{
	ucp_request_param_t p = { .op_attr_mask = 0 };
	uint8_t header[AMS][64], *from[AMS];
	void *s[AMS];
	uint32_t n;

	size /= AMS;
	memset(&am, 0, sizeof am);
	am.size = size;
	for (n = 0; n < AMS; n++) {
		am.to[n] = dst + AROUND + n * size;
		from[n] = src + AROUND + n * size;
		fill(from[n], size, chance(me, 40 + n));
		memcpy(header[n], &n, sizeof n);
		fill(header[n] + sizeof n, sizeof header[n] - sizeof n, chance(me, 30 + n));
	}
	meet();
	for (n = 0; n < AMS; n++)
		s[n] = ucp_am_send_nbx(ep, 7, header[n], sizeof n + chance(me, 20 + n) % 40, from[n], size, &p);
	for (n = 0; n < AMS; n++)
		ok(wait_for(s[n]), "active message");
	while (am.got < AMS) {
		progress();
		for (n = 0; n < AMS; n++)
			if (am.rndv[n] && ucp_request_check_status(am.rndv[n]) != UCS_INPROGRESS) {
				ok(wait_for(am.rndv[n]), "active message, rendezvous");
				am.rndv[n] = NULL;
				check(am.to[n], size, chance(!me, 40 + n), "active message, rendezvous");
				am.got++;
			}
	}
	meet();
}

/* At most so many bytes of the stream, or all of them */
static size_t stream_recv(uint8_t *to, size_t room, bool all)
{
	ucp_request_param_t p = { .op_attr_mask = all ? UCP_OP_ATTR_FIELD_FLAGS : 0, .flags = UCP_STREAM_RECV_FLAG_WAITALL };
	size_t length;
	ucs_status_t s;
	void *r = ucp_stream_recv_nbx(ep, to, room, &length, &p);

	if (!UCS_PTR_IS_PTR(r)) {
		ok(UCS_PTR_STATUS(r), "stream receive");
	} else {
		while ((s = ucp_stream_recv_request_test(r, &length)) == UCS_INPROGRESS)
			progress();
		ok(s, "stream receive");
		ucp_request_free(r);
	}
	if (!length || length > room || (all && length != room))
		die("stream: %zu bytes of %zu", length, room);
	return length;
}

static void stream(size_t size)
{
	ucp_request_param_t p = { .op_attr_mask = 0 };
	uint8_t *to = place(dst, me, 1), *from = place(src, me, 0);
	size_t cut = chance(!me, 2) % size, done;
	void *s;

	fill(from, size, chance(me, 3));
	s = ucp_stream_send_nbx(ep, from, size, &p);
	/* All of the first part, then what comes as it comes */
	for (done = cut ? stream_recv(to, cut, true) : 0; done < size;)
		done += stream_recv(to + done, size - done, false);
	check(to, size, chance(!me, 3), "stream");
	ok(wait_for(s), "stream send");
	meet();
}

/* Random atomics on a word of the peer's that only we change; its old value each time, and the last one, are known */
static void atomics(size_t size)
{
	static const ucp_atomic_op_t ops[] = {
		UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_AND, UCP_ATOMIC_OP_OR, UCP_ATOMIC_OP_XOR, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP,
	};
	unsigned width = size & 8 ? 8 : 4, i, op;
	uint64_t mask = width == 8 ? UINT64_MAX : UINT32_MAX, model = chance(!me, 1) & mask, operand, reply, old, at = AROUND, now = 0;
	bool fetch;

	memset(win, 0xa5, 3 * AROUND);
	memcpy(win + AROUND, (uint64_t[]){ chance(me, 1) }, width);
	meet();
	for (i = 0; i < 24; i++) {
		ucp_request_param_t p = { .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(width) };

		op = chance(me, 10 + i) % 6;
		fetch = op >= 4 || chance(me, 50 + i) & 1;
		operand = chance(me, 100 + i) & mask;
		reply = ~chance(me, 150 + i);
		old = model;
		switch (op) {
		case 0: model = (model + operand) & mask; break;
		case 1: model &= operand; break;
		case 2: model |= operand; break;
		case 3: model ^= operand; break;
		case 4: model = operand; break;
		case 5:
			/* The new value comes in reply; every other one must not take place */
			if (chance(me, 200 + i) & 1)
				operand = model;
			if (operand == model)
				model = reply & mask;
			break;
		}
		if (fetch) {
			p.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
			p.reply_buffer = &reply;
		}
		ok(wait_for(ucp_atomic_op_nbx(ep, ops[op], &operand, 1, peer_win + at, rkey, &p)), "atomic");
		flush(ep);
		if (fetch && (reply & mask) != old)
			die("atomic %u of %u bytes: the old value is %llx, not %llx", op, width, (unsigned long long)(reply & mask),
			    (unsigned long long)old);
	}
	/* What the peer thinks is in our word */
	model = meet_with(model);
	memcpy(&now, win + AROUND, width);
	if (now != model)
		die("atomics of %u bytes: the word is %llx, not %llx", width, (unsigned long long)now, (unsigned long long)model);
	for (i = 0; i < 3 * AROUND; i++)
		if ((i < AROUND || i >= AROUND + width) && win[i] != 0xa5)
			die("atomics: a byte beside the word has changed");
	checked += 3 * AROUND;
	meet();
}

/* Both sides count on one word of the server's: each number is seen once */
static void counter(size_t size)
{
	enum { N = 40 };
	static uint8_t seen[2 * N];
	uint64_t one = 1, old, at = me ? peer_win : (uint64_t)(uintptr_t)win, i, theirs, last = 0;
	ucp_request_param_t p = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER, .datatype = ucp_dt_make_contig(8),
		.reply_buffer = &old,
	};

	(void)size;
	memset(win, 0, 8);
	memset(seen, 0, sizeof seen);
	meet();
	for (i = 0; i < N; i++) {
		ok(wait_for(ucp_atomic_op_nbx(me ? ep : own, UCP_ATOMIC_OP_ADD, &one, 1, at, me ? rkey : own_rkey, &p)), "fetch and add");
		if (old >= 2 * N || seen[old] || (i && old <= last))
			die("fetch and add: %llu after %llu", (unsigned long long)old, (unsigned long long)last);
		seen[old] = 1;
		last = old;
	}
	for (i = 0; i < 2 * N; i++) {
		theirs = meet_with(seen[i]);
		if (theirs + seen[i] != 1)
			die("fetch and add: %llu was seen %u times", (unsigned long long)i, (unsigned)theirs + seen[i]);
	}
	if (!me && *(volatile uint64_t *)win != 2 * N)
		die("fetch and add: %llu in the end", (unsigned long long)*(uint64_t *)win);
	checked += 8;
	meet();
}

static const struct {
	const char *name;
	void (*run)(size_t size);
} kinds[] = {
	{ "put", put }, { "get", get }, { "tag", tag_expected }, { "tag, unexpected", tag_unexpected }, { "tag, synchronous", tag_sync },
	{ "tag, truncated", tag_truncated }, { "active message", active }, { "stream", stream }, { "atomics", atomics },
	{ "counter", counter },
};

#define KINDS (sizeof kinds / sizeof kinds[0])

/* Around the limits of inline, short, bcopy and eager, where the path changes */
static const size_t sizes[] = { 8, 100, 124, 125, 221, 1000, 1025, 4096, 4097, 8255, 8257, 20000, 65536, 262147, MAX };

#define SIZES (sizeof sizes / sizeof sizes[0])

/* 8 to MAX bytes, as often small as large */
static size_t any_size(uint64_t n)
{
	uint64_t x = mix(seed ^ mix(n));

	return 8 + (x >> 8) % ((size_t)16 << (x & 0xff) % 17) % (MAX - 7);
}

static void one(unsigned kind, size_t size)
{
	step++;
	doing = kinds[kind].name;
	doing_size = size;
	kinds[kind].run(size);
}

/* ---- set-up ---- */

static void failed(void *arg, ucp_ep_h e, ucs_status_t status)
{
	(void)e;
	if (!*(bool *)arg)
		die("the connection has failed: %s", ucs_status_string(status));
	peer_gone = true;
}

static ucp_ep_h endpoint(const ucp_address_t *address, bool *may_fail)
{
	ucp_ep_params_t p = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address };
	ucp_ep_h e;

	if (*may_fail) {
		p.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
		p.err_mode = UCP_ERR_HANDLING_MODE_PEER;
		p.err_handler = (ucp_err_handler_t){ failed, may_fail };
	}
	ok(ucp_ep_create(worker, &p, &e), "ep_create");
	return e;
}

static void start(bool *may_fail)
{
	ucp_params_t cp = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_AM | UCP_FEATURE_STREAM,
	};
	ucp_worker_params_t wp = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_mem_map_params_t mp = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH, .length = ROOM };
	ucp_am_handler_param_t hp = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB, .id = 7, .cb = am_arrived,
	};
	ucp_config_t *config;
	ucp_address_t *address;
	size_t len;
	uint64_t got;
	void *packed, *p;

	ok(ucp_config_read(NULL, NULL, &config), "config_read");
	ok(ucp_init(&cp, config, &context), "init");
	ucp_config_release(config);
	ok(ucp_worker_create(context, &wp, &worker), "worker_create");
	ok(ucp_worker_set_am_recv_handler(worker, &hp), "set_am_recv_handler");
	if (posix_memalign((void **)&win, 4096, ROOM) != 0 || posix_memalign((void **)&src, 4096, ROOM) != 0 ||
	    posix_memalign((void **)&dst, 4096, ROOM) != 0)
		die("no memory");
	memset(win, 0, ROOM);
	mp.address = win;
	ok(ucp_mem_map(context, &mp, &memh), "mem_map");

	ok(ucp_worker_get_address(worker, &address, &len), "get_address");
	p = swap_blob(address, len, &got);
	ep = endpoint(p, may_fail);
	own = endpoint(address, may_fail);
	free(p);
	ucp_worker_release_address(worker, address);
	ok(ucp_rkey_pack(context, memh, &packed, &len), "rkey_pack");
	p = swap_blob(packed, len, &got);
	ok(ucp_ep_rkey_unpack(ep, p, &rkey), "rkey_unpack");
	ok(ucp_ep_rkey_unpack(own, packed, &own_rkey), "rkey_unpack");
	free(p);
	ucp_rkey_buffer_release(packed);
	peer_win = meet_with((uint64_t)(uintptr_t)win);
	agree_on_seed();
}

/* Each lane but those for connecting and for keeping alive is of this transport */
static void look_at_lanes(ucp_ep_h e, const char *transport)
{
	char *text = NULL, *line, *save;
	size_t len;
	unsigned lanes = 0;
	FILE *f = open_memstream(&text, &len);

	ucp_ep_print_info(e, f);
	fclose(f);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (strstr(line, "lane[")) {
			printf("%s\n", line);
			if (!strstr(line, " am") && !strstr(line, " rma") && !strstr(line, " amo") && !strstr(line, " tag"))
				continue;
			lanes++;
			if (!strstr(line, transport))
				die("not only %s: %s", transport, line);
		}
	if (!lanes)
		die("no lane in the endpoint's description");
	free(text);
}

static void close_ep(ucp_ep_h e, unsigned flags)
{
	ucp_request_param_t p = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags };
	ucs_status_t s = wait_for(ucp_ep_close_nbx(e, &p));

	if (!(flags & UCP_EP_CLOSE_FLAG_FORCE))
		ok(s, "ep_close");
}

/* The server is gone without a word: sends come to an end, and the error handler is called */
static void lose_peer(void)
{
	unsigned sent = 0;
	void *s;

	doing = "a peer that goes";
	while (!peer_gone) {
		s = tag_send(src, 20000, 1, false, false);
		wait_for(s);
		sent++;
		progress();
	}
	printf("told after %u sends\n", sent);
}

int main(int argc, char **argv)
{
	const char *transport = NULL, *kind = NULL;
	size_t size = 0;
	unsigned rounds = 1, r, k, i;
	uint16_t port = 13400;
	bool go = false;
	int c;

	while ((c = getopt(argc, argv, "p:t:r:k:z:s:g")) != -1)
		switch (c) {
		case 'p': port = atoi(optarg); break;
		case 't': transport = optarg; break;
		case 'r': rounds = atoi(optarg); break;
		case 'k': kind = optarg; break;
		case 'z': size = atoi(optarg); break;
		case 's': seed = strtoull(optarg, NULL, 0); break;
		case 'g': go = true; break;
		default: return 2;
		}
	for (k = 0; kind && k < KINDS && strcmp(kind, kinds[k].name) != 0; k++)
		;
	if (argc - optind > 1 || size > MAX || (kind && k == KINDS) || !transport)
		return 2;
	begin(argv[optind], port);
	start(&go);

	/* The first message connects */
	one(2, 8);
	step++;
	flush(ep);
	flush(own);
	meet();
	look_at_lanes(ep, transport);
	look_at_lanes(own, transport);
	if (go && !me)
		_exit(0);
	if (go) {
		lose_peer();
		ucp_rkey_destroy(rkey);
		ucp_rkey_destroy(own_rkey);
		close_ep(ep, UCP_EP_CLOSE_FLAG_FORCE);
		close_ep(own, UCP_EP_CLOSE_FLAG_FORCE);
	} else {
		for (r = 0; r < rounds; r++)
			for (i = 0; i < (size ? 1 : SIZES); i++)
				for (k = 0; k < KINDS; k++)
					if (!kind || strcmp(kind, kinds[k].name) == 0)
						one(k, size ? size : r ? any_size(r << 16 | i << 8 | k) : sizes[i]);
		doing = "closing";
		step++;
		ucp_rkey_destroy(rkey);
		ucp_rkey_destroy(own_rkey);
		meet();
		close_ep(own, 0);
		close_ep(ep, 0);
		step++;
		meet();
	}
	ucp_mem_unmap(context, memh);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	if (softdev_blocks)
		printf("Compressed blocks: %lu\n", softdev_blocks());
	printf("Verified %lu bytes, seed %llu.\n", checked, (unsigned long long)seed);
	return 0;
}
