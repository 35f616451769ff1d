/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * domain.c: fabric and domain: the device, its doorbell register, and the registrations of the
 * application's buffers.
 *
 * Registrations are kept in inlay's cache, which the kernel tells of unmapped memory. Memory that the
 * kernel does not watch is registered for one transfer at a time.
 */
#include "fabric.h"
#include <fcntl.h>
#include <signal.h>

/* ---- Registrations ---- */

/* The monitor's thread: it does nothing else, and above all neither allocates nor frees. */
static void *watching(void *arg)
{
	while (inlay_monitor_step((struct inlay_monitor *)arg, -1) >= 0)
		;
	return NULL;
}

static void watch_start(struct domain *d)
{
	const char *why = "no thread";
	int err = inlay_monitor_init(&d->monitor, d->caches, 1, &why);
	sigset_t all, was;

	d->watch = WATCH_OFF;
	if (!err) {
		sigfillset(&all); /* the application's handlers may allocate */
		pthread_sigmask(SIG_SETMASK, &all, &was);
		err = pthread_create(&d->watcher, NULL, watching, &d->monitor);
		pthread_sigmask(SIG_SETMASK, &was, NULL);
		if (err)
			inlay_monitor_fini(&d->monitor);
		else
			d->watch = WATCH_ON;
	}
	if (err)
		FI_INFO(&provider, FI_LOG_MR, "registrations are not kept: %s\n", why);
}

/* The provider's bytes in a region: 1 if nobody would say that it goes away, so it is not to be found again. */
static uint32_t *once(const struct inlay_cache_region *r)
{
	return (uint32_t *)inlay_cache_bytes(r);
}

static int region_reg(void *context, struct inlay_cache_region *r)
{
	struct domain *d = (struct domain *)context;

	if (d->watch == WATCH_UNTRIED)
		watch_start(d);
	*once(r) = d->watch == WATCH_OFF || inlay_monitor_watch(&d->monitor, r->start, r->len);
	return inlay_cache_reg_mr(d->pd, r);
}

int region_get(struct domain *d, const void *addr, size_t len, uint32_t access, struct inlay_cache_region **r)
{
	int err = inlay_cache_get(&d->cache, (uintptr_t)addr, len, access, r);

	if (!err && INLAY_UNLIKELY(*once(*r)))
		inlay_cache_post(&d->cache, (*r)->start, (*r)->len); /* it stays until the put */
	return err;
}

static int regions_init(struct domain *d)
{
	struct inlay_cache_attr attr = {(uint32_t)settings.cache_regions, 1024, UINT64_MAX, 4096, sizeof(uint32_t)};
	struct inlay_cache_ops ops = {region_reg, inlay_cache_dereg_mr, NULL, inlay_cache_yield, d};
	size_t size = inlay_cache_size(&attr);

	d->caches[0] = &d->cache;
	d->cache_memory = aligned_alloc(64, inlay_round_up(size, 64));
	return d->cache_memory ? inlay_cache_init(&d->cache, d->cache_memory, size, &attr, &ops) : -FI_ENOMEM;
}

/* ---- Domain ---- */

static void domain_free(struct domain *d)
{
	const char *why;

	if (d->watch == WATCH_ON) {
		inlay_monitor_stop(&d->monitor);
		pthread_join(d->watcher, NULL);
		inlay_monitor_fini(&d->monitor);
	}
	if (d->cache_memory)
		inlay_cache_fini(&d->cache);
	free(d->cache_memory);
	if (d->uar.td && inlay_uar_destroy(&d->uar, &why))
		WARN(FI_LOG_DOMAIN, "%s\n", why);
	if (d->pd)
		ibv_dealloc_pd(d->pd);
	if (d->context)
		ibv_close_device(d->context);
	pthread_mutex_destroy(&d->mutex);
	free(d);
}

static int domain_close(struct fid *fid)
{
	struct domain *d = container_of(fid, struct domain, fid.fid);

	if (d->users)
		return -FI_EBUSY;
	d->fabric->users--;
	domain_free(d);
	return 0;
}

static struct fi_ops fid_ops = FID_OPS(domain_close, eq_bind, no_control);
static struct fi_ops_domain domain_ops = {
	sizeof(struct fi_ops_domain), av_open, cq_open, endpoint_open, no_scalable_ep, counter_open, no_poll_open,
	no_stx_ctx, no_srx_ctx, atomic_query, NULL, NULL,
};

static struct ibv_context *open_device(const char *name)
{
	struct ibv_context *context = NULL;
	int i, n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (i = 0; list && i < n && !context; i++)
		if (mlx5dv_is_supported(list[i]) && (!name || !strcmp(name, ibv_get_device_name(list[i]))))
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return context;
}

/* What the device's atomics are. Without any, all of them go as messages. */
static void atomics_init(struct domain *d)
{
	struct ibv_device_attr device;

	if (ibv_query_device(d->context, &device) || device.atomic_cap == IBV_ATOMIC_NONE)
		return;
	if (!settings.dc) /* it tells what RC has of them */
		inlay_atomics_query(&d->atomics, d->context, NULL);
	d->able = (uint8_t)(ABLE_8 | (d->atomics.sizes & 4 ? ABLE_4 : 0) | (d->atomics.sizes & 8 ? ABLE_MASKED_8 : 0));
}

static int domain_open(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **out, void *context)
{
	struct domain *d = (struct domain *)calloc(1, sizeof(*d));
	const char *why = "no memory";
	int err = -FI_ENODEV;

	if (!d)
		return -FI_ENOMEM;
	pthread_mutex_init(&d->mutex, NULL);
	d->fabric = container_of(fid, struct fabric, fid);
	d->lock = info->domain_attr->threading == FI_THREAD_DOMAIN ? NULL : &d->mutex;
	d->context = open_device(info->domain_attr->name);
	if (!d->context) {
		why = "no such device of mlx5";
	} else {
		fcntl(d->context->async_fd, F_SETFL, O_NONBLOCK); /* for peer_events */
		d->pd = ibv_alloc_pd(d->context);
		err = d->pd ? inlay_uar_create(&d->uar, d->pd, INLAY_UAR_SERIAL, &why) : -FI_ENOMEM;
		if (!err)
			err = regions_init(d);
		atomics_init(d);
	}
	if (err) {
		WARN(FI_LOG_DOMAIN, "%s: %s\n", info->domain_attr->name ? info->domain_attr->name : "any device", why);
		domain_free(d);
		return err;
	}
	d->fabric->users++;
	fid_init(&d->fid.fid, FI_CLASS_DOMAIN, context, &fid_ops);
	d->fid.ops = &domain_ops;
	d->fid.mr = &mr_ops;
	*out = &d->fid;
	return 0;
}

/* ---- Fabric ---- */

static int fabric_close(struct fid *fid)
{
	struct fabric *f = container_of(fid, struct fabric, fid.fid);

	if (f->users)
		return -FI_EBUSY;
	free(f);
	return 0;
}

static struct fi_ops fabric_fid_ops = FID_OPS(fabric_close, no_bind, no_control);
static struct fi_ops_fabric fabric_ops = {
	sizeof(struct fi_ops_fabric), domain_open, no_passive_ep, eq_open, no_wait_open, wait_try, NULL,
};

int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
	struct fabric *f;

	if (attr->name && strcmp(attr->name, "inlay"))
		return -FI_ENODATA;
	f = (struct fabric *)calloc(1, sizeof(*f));
	if (!f)
		return -FI_ENOMEM;
	fid_init(&f->fid.fid, FI_CLASS_FABRIC, context, &fabric_fid_ops);
	f->fid.ops = &fabric_ops;
	*out = &f->fid;
	return 0;
}
