/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * domain.c: fabric and domain: the device, its doorbell register, and the registrations of the
 * application's buffers.
 *
 * Registrations are kept in inlay's cache, which the kernel tells of unmapped memory. Memory that the
 * kernel does not watch is registered for one transfer at a time.
 */
#include "fabric.h"
#include <signal.h>

/* ---- Registrations ---- */

/* The provider's bytes in each region */
struct region_note {
	uint32_t once;            /* nobody would say that it goes away: not to be found again */
};

/* The monitor's thread: it does nothing else, and above all neither allocates nor frees. */
static void *watching(void *arg)
{
	while (inlay_monitor_step((struct inlay_monitor *)arg, -1) >= 0)
		;
	return NULL;
}

/* The thread takes no signals: the application's handlers may allocate. */
static int start_thread(struct domain *d)
{
	sigset_t all, was;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	err = pthread_create(&d->watcher, NULL, watching, &d->monitor);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return -err;
}

static void watch_start(struct domain *d)
{
	const char *why = "no thread";
	int err = inlay_monitor_init(&d->monitor, d->caches, 1, &why);

	d->watch = WATCH_OFF;
	if (!err) {
		err = start_thread(d);
		if (err)
			inlay_monitor_fini(&d->monitor);
	}
	if (err)
		FI_INFO(&provider, FI_LOG_MR, "registrations are not kept: %s\n", why);
	else
		d->watch = WATCH_ON;
}

static int region_reg(void *context, struct inlay_cache_region *r)
{
	struct domain *d = (struct domain *)context;
	struct region_note *note = (struct region_note *)inlay_cache_bytes(r);

	if (d->watch == WATCH_UNTRIED)
		watch_start(d);
	note->once = d->watch == WATCH_OFF || inlay_monitor_watch(&d->monitor, r->start, r->len);
	return inlay_cache_reg_mr(d->pd, r);
}

int region_get(struct domain *d, const void *addr, size_t len, uint32_t access, struct inlay_cache_region **r)
{
	int err = inlay_cache_get(&d->cache, (uintptr_t)addr, len, access, r);

	if (err)
		return err;
	/* In use, so that it stays until the put; but the next get shall not find it. */
	if (INLAY_UNLIKELY(((struct region_note *)inlay_cache_bytes(*r))->once))
		inlay_cache_post(&d->cache, (*r)->start, (*r)->len);
	return 0;
}

void region_put(struct domain *d, struct inlay_cache_region *r)
{
	inlay_cache_put(&d->cache, r);
}

static int regions_init(struct domain *d)
{
	struct inlay_cache_attr attr = {(uint32_t)settings.cache_regions, 1024, UINT64_MAX, 4096,
					sizeof(struct region_note)};
	struct inlay_cache_ops ops = {region_reg, inlay_cache_dereg_mr, NULL, inlay_cache_yield, d};
	size_t size = inlay_cache_size(&attr);

	d->caches[0] = &d->cache;
	d->cache_memory = aligned_alloc(64, inlay_round_up(size, 64));
	if (!d->cache_memory)
		return -FI_ENOMEM;
	return inlay_cache_init(&d->cache, d->cache_memory, size, &attr, &ops);
}

static void regions_fini(struct domain *d)
{
	if (d->watch == WATCH_ON) {
		inlay_monitor_stop(&d->monitor);
		pthread_join(d->watcher, NULL);
		inlay_monitor_fini(&d->monitor);
	}
	if (d->cache_memory)
		inlay_cache_fini(&d->cache);
	free(d->cache_memory);
}

/* ---- Domain ---- */

static void domain_free(struct domain *d)
{
	const char *why;

	regions_fini(d);
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

static int domain_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)flags;
	return other->fclass == FI_CLASS_EQ ? 0 : -FI_EINVAL; /* of which nothing ever comes: see eq.c */
}

static int endpoint_open2(struct fid_domain *fid, struct fi_info *info, struct fid_ep **ep, uint64_t flags,
			  void *context)
{
	return flags ? -FI_ENOSYS : endpoint_open(fid, info, ep, context);
}

static struct fi_ops fid_ops = {
	sizeof(struct fi_ops), domain_close, domain_bind, no_control, no_ops_open, no_tostr, no_ops_set,
};
static struct fi_ops_domain domain_ops = {
	sizeof(struct fi_ops_domain), av_open, cq_open, endpoint_open, no_scalable_ep, counter_open, no_poll_open,
	no_stx_ctx, no_srx_ctx, atomic_query, no_query_collective, endpoint_open2,
};

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list;
	struct ibv_context *context = NULL;
	int i, n = 0;

	list = ibv_get_device_list(&n);
	for (i = 0; list && i < n && !context; i++)
		if (mlx5dv_is_supported(list[i]) && (!name || !strcmp(name, ibv_get_device_name(list[i]))))
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return context;
}

static int domain_open(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **out, void *context)
{
	struct domain *d = (struct domain *)calloc(1, sizeof(*d));
	const char *why = NULL;
	int err;

	if (!d)
		return -FI_ENOMEM;
	pthread_mutex_init(&d->mutex, NULL);
	d->fabric = container_of(fid, struct fabric, fid);
	d->caps = info->caps;
	d->lock = info->domain_attr->threading == FI_THREAD_DOMAIN ? NULL : &d->mutex;
	d->context = open_device(info->domain_attr->name);
	if (!d->context) {
		WARN(FI_LOG_DOMAIN, "no device %s\n", info->domain_attr->name ? info->domain_attr->name : "of mlx5");
		err = -FI_ENODEV;
		goto bad;
	}
	d->pd = ibv_alloc_pd(d->context);
	err = d->pd ? inlay_uar_create(&d->uar, d->pd, INLAY_UAR_SERIAL, &why) : -FI_ENOMEM;
	if (!err)
		err = regions_init(d);
	if (err) {
		WARN(FI_LOG_DOMAIN, "%s\n", why ? why : "no memory");
		goto bad;
	}
	d->fabric->users++;
	d->fid.fid.fclass = FI_CLASS_DOMAIN;
	d->fid.fid.context = context;
	d->fid.fid.ops = &fid_ops;
	d->fid.ops = &domain_ops;
	d->fid.mr = &mr_ops;
	*out = &d->fid;
	return 0;
bad:
	domain_free(d);
	return err;
}

static int domain_open2(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **out, uint64_t flags,
			void *context)
{
	return flags ? -FI_ENOSYS : domain_open(fid, info, out, context);
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

static struct fi_ops fabric_fid_ops = {
	sizeof(struct fi_ops), fabric_close, no_bind, no_control, no_ops_open, no_tostr, no_ops_set,
};
static struct fi_ops_fabric fabric_ops = {
	sizeof(struct fi_ops_fabric), domain_open, no_passive_ep, eq_open, no_wait_open, wait_try, domain_open2,
};

int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
	struct fabric *f;

	if (attr->name && strcmp(attr->name, "inlay"))
		return -FI_ENODATA;
	f = (struct fabric *)calloc(1, sizeof(*f));
	if (!f)
		return -FI_ENOMEM;
	f->fid.fid.fclass = FI_CLASS_FABRIC;
	f->fid.fid.context = context;
	f->fid.fid.ops = &fabric_fid_ops;
	f->fid.ops = &fabric_ops;
	*out = &f->fid;
	return 0;
}
