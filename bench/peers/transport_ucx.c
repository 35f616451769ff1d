/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_ucx.c: UCX's rc_mlx5 by itself (UCT), for its instructions to be counted beside bench/transport.c's.
 * Two interfaces with a worker each and one connected pair of endpoints, on one stepped device, which works
 * only between what is measured. Rows and laps are those of bench/transport.c.
 */
#include <uct/api/uct.h>
#include <unistd.h>
#include "../bench.h"
#include "../../tests/softdev/softdev.h"

#define LAP 16u
#define AM_ID 11

struct side {
	ucs_async_context_t *async;
	uct_worker_h worker;
	uct_iface_h iface;
	uct_ep_h ep;
	uct_device_addr_t *device;
	uct_ep_addr_t *address;
};

static uct_component_h component;
static uct_md_h md;
static struct side from, to;
static uint64_t messages, bytes, completions;

static void ok(ucs_status_t s, const char *what)
{
	if (s != UCS_OK) {
		fprintf(stderr, "transport_ucx: %s: %s\n", what, ucs_status_string(s));
		exit(1);
	}
}

/* ---- what is counted ---- */

COUNTED ucs_status_t count_put_short_(uct_ep_h ep, const void *data, uint64_t raddr, uct_rkey_t rkey)
{
	return uct_ep_put_short(ep, data, 8, raddr, rkey);
}

COUNTED ucs_status_t count_put_zcopy_(uct_ep_h ep, const uct_iov_t *iov, uint64_t raddr, uct_rkey_t rkey,
				      uct_completion_t *c)
{
	return uct_ep_put_zcopy(ep, iov, 1, raddr, rkey, c);
}

#define AM_SHORT(len)												\
	COUNTED ucs_status_t count_am_short_##len##_(uct_ep_h ep, uint64_t header, const void *data)		\
	{													\
		return uct_ep_am_short(ep, AM_ID, header, data, len);						\
	}
AM_SHORT(8)
AM_SHORT(40)
AM_SHORT(100)

COUNTED unsigned count_progress_(uct_worker_h worker)
{
	return uct_worker_progress(worker);
}

/* ---- set-up ---- */

static void find(void)
{
	uct_component_attr_t attr = { .field_mask = UCT_COMPONENT_ATTR_FIELD_NAME };
	uct_md_config_t *config;
	uct_component_h *all;
	unsigned n, i;

	ok(uct_query_components(&all, &n), "query_components");
	for (i = 0; i < n && strcmp(attr.name, "ib"); i++) {
		component = all[i];
		ok(uct_component_query(component, &attr), "component_query");
	}
	NEED(!strcmp(attr.name, "ib"), "finding UCX's ib component");
	uct_release_component_list(all);
	ok(uct_md_config_read(component, NULL, NULL, &config), "md_config_read");
	ok(uct_md_open(component, "mlx5_0", config, &md), "md_open");
	uct_config_release(config);
}

static ucs_status_t arrived(void *arg, void *data, size_t length, unsigned flags)
{
	(void)arg;
	(void)data;
	(void)flags;
	messages++;
	bytes += length;
	return UCS_OK;
}

static void completed(uct_completion_t *c)
{
	(void)c;
	completions++;
}

static void open_side(struct side *s)
{
	uct_iface_params_t ip = {
		.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE,
		.open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
		.mode.device = { .tl_name = "rc_mlx5", .dev_name = "mlx5_0:1" },
	};
	uct_ep_params_t pp = { .field_mask = UCT_EP_PARAM_FIELD_IFACE };
	uct_iface_config_t *config;
	uct_iface_attr_t attr;

	ok(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &s->async), "async_context_create");
	ok(uct_worker_create(s->async, UCS_THREAD_MODE_SINGLE, &s->worker), "worker_create");
	ok(uct_md_iface_config_read(md, "rc_mlx5", NULL, NULL, &config), "iface_config_read");
	ok(uct_iface_open(md, s->worker, &ip, config, &s->iface), "iface_open");
	uct_config_release(config);
	uct_iface_progress_enable(s->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
	ok(uct_iface_query(s->iface, &attr), "iface_query");
	NEED(attr.cap.am.max_short >= 108 && attr.cap.put.max_short >= 8, "room for what is short");
	ok(uct_iface_set_am_handler(s->iface, AM_ID, arrived, NULL, 0), "set_am_handler");
	pp.iface = s->iface;
	ok(uct_ep_create(&pp, &s->ep), "ep_create");
	s->device = calloc(1, attr.device_addr_len);
	s->address = calloc(1, attr.ep_addr_len);
	NEED(s->device && s->address, "calloc");
	ok(uct_iface_get_device_address(s->iface, s->device), "get_device_address");
	ok(uct_ep_get_address(s->ep, s->address), "get_address");
}

static void *memory(uct_mem_h *memh)
{
	void *p = aligned_alloc(4096, 4096);

	NEED(p, "aligned_alloc");
	memset(p, 5, 4096);
	ok(uct_md_mem_reg(md, p, 4096, UCT_MD_MEM_ACCESS_ALL, memh), "mem_reg");
	return p;
}

/* The device works, and both workers, until nothing is left. */
static void settle(void)
{
	unsigned n;

	do {
		NEED(softdev_run() >= 0, "softdev_run");
		n = uct_worker_progress(from.worker) + uct_worker_progress(to.worker);
	} while (n);
}

/* ---- laps ---- */

static uct_rkey_bundle_t rkey;
static uct_iov_t iov;
static uint8_t *src, *dst;
static uct_completion_t done[LAP];

enum what {SHORT, ZCOPY, QUIET, AM8, AM40, AM100};

static ucs_status_t post(enum what what, unsigned i, uint64_t value)
{
	switch (what) {
	case SHORT: return count_put_short_(from.ep, &value, (uintptr_t)dst, rkey.rkey);
	case ZCOPY: return count_put_zcopy_(from.ep, &iov, (uintptr_t)dst + 64, rkey.rkey, &done[i]);
	case QUIET: return count_put_zcopy_(from.ep, &iov, (uintptr_t)dst + 64, rkey.rkey, NULL);
	case AM8: return count_am_short_8_(from.ep, value, src);
	case AM40: return count_am_short_40_(from.ep, value, src);
	default: return count_am_short_100_(from.ep, value, src);
	}
}

static double posts(enum what what, uint64_t n)
{
	double seconds = 0, start;
	uint64_t k;
	unsigned i;

	for (k = 0; k < n; k += LAP) {
		int bad = 0;

		for (i = 0; i < LAP; i++)
			done[i] = (uct_completion_t){ .func = completed, .count = 1, .status = UCS_OK };
		start = now();
		for (i = 0; i < LAP; i++)
			bad |= post(what, i, k + i) < 0;
		seconds += now() - start;
		NEED(!bad, "a post");
		settle();
	}
	return seconds;
}

/* One post, and the look that finds it: alone, so that the look has nothing else to do. The clock is in the time. */
static double looks(enum what what, uct_worker_h *worker, uint64_t n)
{
	double seconds = 0, start;

	for (uint64_t k = 0; k < n; k++) {
		unsigned found;

		done[0] = (uct_completion_t){ .func = completed, .count = 1, .status = UCS_OK };
		NEED((what == AM8 ? uct_ep_am_short(from.ep, AM_ID, k, src, 8) :
		      uct_ep_put_zcopy(from.ep, &iov, 1, (uintptr_t)dst + 64, rkey.rkey,
				       what == ZCOPY ? &done[0] : NULL)) >= 0, "a post");
		NEED(softdev_run() == 1, "softdev_run");
		start = now();
		found = count_progress_(*worker);
		seconds += now() - start;
		NEED(found == 1, "finding it");
		settle();
	}
	return seconds;
}

static double nothing(void *arg, uint64_t n)
{
	double start = now();

	(void)arg;
	for (uint64_t k = 0; k < n; k++)
		NEED(!count_progress_(from.worker), "finding nothing");
	return now() - start;
}

#define BY(name, call) static double name(void *arg, uint64_t n) { (void)arg; return call; }
BY(put_short, posts(SHORT, n))
BY(put_zcopy, posts(ZCOPY, n))
BY(am_short_8, posts(AM8, n))
BY(am_short_40, posts(AM40, n))
BY(am_short_100, posts(AM100, n))
BY(look_send, looks(ZCOPY, &from.worker, n))
BY(look_quiet, looks(QUIET, &from.worker, n))
BY(look_message, looks(AM8, &to.worker, n))

int main(void)
{
	static const struct {
		const char *row;
		double (*run)(void *arg, uint64_t n);
	} rows[] = {
		{"put_short 8 B", put_short}, {"put_zcopy 1 SGE", put_zcopy}, {"am_short 8 B", am_short_8},
		{"am_short 40 B", am_short_40}, {"am_short 100 B", am_short_100}, {"progress: a send done", look_send},
		{"progress: a send done, no callback", look_quiet}, {"progress: a message", look_message},
		{"progress: nothing there", nothing},
	};
	uct_mem_h src_memh, dst_memh;
	uint8_t key[256];

	if (!softdev_present() || softdev_manual(1))
		die("needs the software device: start it with tests/softdev/run --manual");
	find();
	open_side(&from);
	open_side(&to);
	ok(uct_ep_connect_to_ep(from.ep, to.device, to.address), "connect_to_ep");
	ok(uct_ep_connect_to_ep(to.ep, from.device, from.address), "connect_to_ep");
	src = memory(&src_memh);
	dst = memory(&dst_memh);
	ok(uct_md_mkey_pack(md, dst_memh, key), "mkey_pack");
	ok(uct_rkey_unpack(component, key, &rkey), "rkey_unpack");
	iov = (uct_iov_t){ .buffer = src, .length = 64, .memh = src_memh, .count = 1 };
	settle();
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct way way = {"UCX", rows[i].run, NULL, "UCT: function table, checks, entry posted again"};

		bench_row("transport", rows[i].row, &way, 1, LAP);
	}
	NEED(dst[64] == 5 && dst[127] == 5 && completions && messages && bytes > 16 * messages, "what was sent");
	fflush(stdout);
	_exit(0);
}
