/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_ucx.c: UCX's rc_mlx5 by itself (UCT), for its instructions to be counted beside bench/transport.c's.
 * Two interfaces with a worker each and one connected pair of endpoints, on one stepped device, which works
 * only between what is counted.
 *
 *   transport_ucx ROUNDS      drives each function ROUNDS times
 *
 * put_short, put_zcopy, am_short_LEN   of 8 bytes; of 64 with a completion; of LEN beside 8 of the header
 * progress_nothing                     uct_worker_progress() that finds nothing
 * progress_send, progress_quiet        ... one send completion, of a put_zcopy with a completion, and without
 * progress_message                     ... one active message of 8 + 8 bytes, for a handler that uses it in place
 */
#include <uct/api/uct.h>
#include <unistd.h>
#include "rounds.h"
#include "../../tests/softdev/softdev.h"

/* A function of its own for a profiler: neither inlined nor changed, nor one with another of the same code */
#ifdef __clang__
#define COUNTED __attribute__((noinline))
#else
#define COUNTED __attribute__((noipa))
#endif
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

COUNTED ucs_status_t put_short(uct_ep_h ep, const void *data, uint64_t raddr, uct_rkey_t rkey)
{
	return uct_ep_put_short(ep, data, 8, raddr, rkey);
}

COUNTED ucs_status_t put_zcopy(uct_ep_h ep, const uct_iov_t *iov, uint64_t raddr, uct_rkey_t rkey, uct_completion_t *c)
{
	return uct_ep_put_zcopy(ep, iov, 1, raddr, rkey, c);
}

#define AM_SHORT(len)									\
	COUNTED ucs_status_t am_short_##len(uct_ep_h ep, uint64_t header, const void *data)	\
	{											\
		return uct_ep_am_short(ep, AM_ID, header, data, len);				\
	}
AM_SHORT(8)
AM_SHORT(40)
AM_SHORT(100)

#define PROGRESS(what)						\
	COUNTED unsigned progress_##what(uct_worker_h worker)	\
	{							\
		return uct_worker_progress(worker);		\
	}
PROGRESS(nothing)
PROGRESS(send)
PROGRESS(quiet)
PROGRESS(message)

/* ---- set-up ---- */

static void find(const char *transport, const char *device)
{
	uct_component_h *c;
	unsigned n, i, k, m;

	ok(uct_query_components(&c, &n), "query_components");
	for (i = 0; i < n && !md; i++) {
		uct_component_attr_t a = { .field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT };
		uct_md_resource_desc_t mds[64];

		ok(uct_component_query(c[i], &a), "component_query");
		if (!a.md_resource_count || a.md_resource_count > 64)
			continue;
		a.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
		a.md_resources = mds;
		ok(uct_component_query(c[i], &a), "component_query");
		for (k = 0; k < a.md_resource_count && !md; k++) {
			uct_tl_resource_desc_t *r;
			uct_md_config_t *config;
			int found = 0;

			ok(uct_md_config_read(c[i], NULL, NULL, &config), "md_config_read");
			if (uct_md_open(c[i], mds[k].md_name, config, &md) != UCS_OK)
				md = NULL;
			uct_config_release(config);
			if (!md)
				continue;
			ok(uct_md_query_tl_resources(md, &r, &m), "query_tl_resources");
			while (m-- > 0)
				found |= !strcmp(r[m].tl_name, transport) && !strcmp(r[m].dev_name, device);
			uct_release_tl_resource_list(r);
			if (!found) {
				uct_md_close(md);
				md = NULL;
			}
		}
		component = c[i];
	}
	uct_release_component_list(c);
	NEED(md, "rc_mlx5 on mlx5_0:1");
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
		.open_mode = UCT_IFACE_OPEN_MODE_DEVICE, .mode.device = { .tl_name = "rc_mlx5", .dev_name = "mlx5_0:1" },
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

int main(int argc, char **argv)
{
	uint64_t rounds = argc == 2 ? strtoull(argv[1], NULL, 0) : 0, i;
	uct_mem_h src_memh, dst_memh;
	uct_rkey_bundle_t rkey;
	uint8_t *src, *dst, key[256];
	uct_iov_t iov;

	if (!rounds)
		die("usage: transport_ucx ROUNDS");
	if (!softdev_present() || softdev_manual(1))
		die("needs the software device: start it with tests/softdev/run --manual");
	find("rc_mlx5", "mlx5_0:1");
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

	for (i = 0; i < rounds; i++) {
		uct_completion_t c = { .func = completed, .count = 1, .status = UCS_OK };
		uint64_t value = i + 1, found;

		NEED(progress_nothing(from.worker) == 0, "nothing there");
		ok(put_short(from.ep, &value, (uintptr_t)dst, rkey.rkey), "put_short");
		settle();
		memcpy(&found, dst, 8);
		NEED(found == value, "8 bytes put");
		NEED(put_zcopy(from.ep, &iov, (uintptr_t)dst + 64, rkey.rkey, &c) == UCS_INPROGRESS, "put_zcopy");
		NEED(softdev_run() == 1 && progress_send(from.worker) == 1 && completions == i + 1, "its completion");
		NEED(uct_ep_put_zcopy(from.ep, &iov, 1, (uintptr_t)dst + 64, rkey.rkey, NULL) == UCS_INPROGRESS, "put_zcopy");
		NEED(softdev_run() == 1 && progress_quiet(from.worker) == 1, "its completion");
		NEED(dst[64] == 5 && dst[127] == 5, "64 bytes put");
		ok(am_short_8(from.ep, value, src), "am_short");
		NEED(softdev_run() == 1 && progress_message(to.worker) == 1 && messages == 3 * i + 1, "a message");
		settle();
		ok(am_short_40(from.ep, value, src), "am_short");
		settle();
		ok(am_short_100(from.ep, value, src), "am_short");
		settle();
		NEED(messages == 3 * i + 3 && bytes == (i + 1) * (16 + 48 + 108), "three messages");
	}
	fflush(stdout);
	_exit(0);
}
