/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * domain.c: fabric, domain and event queues: the device and its doorbell register.
 */
#include "fabric.h"
#include <fcntl.h>
#include <poll.h>

/* ---- Domain ---- */

static void domain_free(struct domain *d)
{
	const char *why;

	regions_fini(d); /* on both devices */
	if (d->second)
		domain_free(d->second);
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
static struct fi_ops_domain domain_ops = {sizeof(struct fi_ops_domain), av_open, cq_open, endpoint_open,
	no_scalable_ep, counter_open, no_poll_open, no_stx_ctx, no_srx_ctx, atomic_query, NULL, NULL};

/* Opens a device. name: NULL: any. 0 or a negative errno; *out is to be freed, if it is not NULL */
static int device_open(struct domain **out, const char *name, const char **why)
{
	struct domain *d = *out = (struct domain *)aligned_alloc(64, sizeof(*d));

	if (!d)
		return -FI_ENOMEM;
	memset(d, 0, sizeof(*d));
	pthread_mutex_init(&d->mutex, NULL);
	d->context = inlay_device_open(name, why);
	if (!d->context)
		return -FI_ENODEV;
	fcntl(d->context->async_fd, F_SETFL, O_NONBLOCK); /* for peer_events */
	d->pd = ibv_alloc_pd(d->context);
	return d->pd ? inlay_uar_create(&d->uar, d->pd, INLAY_UAR_SERIAL, why) : -FI_ENOMEM;
}

/* Opens the mlx5 device after d's; after the last comes the first. */
static int second_open(struct domain *d, const char **why)
{
	int n = 0, k = 0, err;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (!list)
		return -FI_ENOMEM;
	while (k < n && list[k] != d->context->device)
		k++;
	do
		k = (k + 1) % n;
	while (!mlx5dv_is_supported(list[k]));
	err = device_open(&d->second, ibv_get_device_name(list[k]), why);
	ibv_free_device_list(list);
	if (!err)
		d->second->lock = d->lock;
	return err;
}

/* Which atomics the device has. Without any, all operations go as messages. */
static void atomics_init(struct domain *d)
{
	struct ibv_device_attr device;

	if (d->second || ibv_query_device(d->context, &device) || device.atomic_cap == IBV_ATOMIC_NONE)
		return;
	inlay_atomics_query(&d->atomics, d->context, NULL);
	if (settings.dc)
		d->atomics.sizes = d->atomics.sizes_dc;
	d->able = (uint8_t)(ABLE_8 | (d->atomics.sizes & 4 ? ABLE_4 : 0) | (d->atomics.sizes & 8 ? ABLE_MASKED_8 : 0));
}

static int domain_open(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **out, void *context)
{
	const char *why = "no memory";
	struct domain *d;
	int err = device_open(&d, info->domain_attr->name, &why);

	if (d) {
		d->fabric = container_of(fid, struct fabric, fid);
		d->lock = info->domain_attr->threading == FI_THREAD_DOMAIN ? NULL : &d->mutex;
	}
	err = err || settings.rails < 2 ? err : second_open(d, &why);
	err = err ? err : regions_init(d);
	if (!err)
		atomics_init(d);
	if (err) {
		WARN(FI_LOG_DOMAIN, "%s: %s\n", info->domain_attr->name ? info->domain_attr->name : "any device", why);
		if (d)
			domain_free(d);
		return err;
	}
	d->fabric->users++;
	d->fid = (struct fid_domain){{FI_CLASS_DOMAIN, context, &fid_ops}, &domain_ops, &mr_ops};
	*out = &d->fid;
	return 0;
}

/* ---- Event queues. They stay empty: every object is ready when its call returns ---- */

struct eq {
	struct fid_eq fid;
	struct fabric *fabric;
};

CALL(eq_read, (struct fid_eq *fid, uint32_t *event, void *buf, size_t len, uint64_t flags), -FI_EAGAIN)
CALL(eq_readerr, (struct fid_eq *fid, struct fi_eq_err_entry *e, uint64_t flags), -FI_EAGAIN)

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags)
{
	poll(NULL, 0, timeout);
	return -FI_EAGAIN;
}

int eq_bind(struct fid *fid, struct fid *eq, uint64_t flags)
{
	return eq->fclass == FI_CLASS_EQ ? 0 : -FI_EINVAL;
}

static int eq_close(struct fid *fid)
{
	struct eq *eq = container_of(fid, struct eq, fid.fid);

	eq->fabric->users--;
	free(eq);
	return 0;
}

static const char *eq_strerror(struct fid_eq *fid, int err, const void *data, char *buf, size_t len)
{
	return fi_strerror(err);
}

static struct fi_ops eq_fid_ops = FID_OPS(eq_close, no_bind, no_control);
static struct fi_ops_eq eq_ops = {sizeof(struct fi_ops_eq), eq_read, eq_readerr, no_eq_write, eq_sread, eq_strerror};

static int eq_open(struct fid_fabric *fid, struct fi_eq_attr *attr, struct fid_eq **out, void *context)
{
	struct eq *eq;

	if (attr && attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)
		return -FI_ENOSYS;
	eq = (struct eq *)calloc(1, sizeof(*eq));
	if (!eq)
		return -FI_ENOMEM;
	eq->fabric = container_of(fid, struct fabric, fid);
	eq->fabric->users++;
	eq->fid = (struct fid_eq){{FI_CLASS_EQ, context, &eq_fid_ops}, &eq_ops};
	*out = &eq->fid;
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
static struct fi_ops_fabric fabric_ops = {sizeof(struct fi_ops_fabric), domain_open, no_passive_ep, eq_open,
	no_wait_open, wait_try, NULL};

int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
	struct fabric *f;

	if (attr->name && strcmp(attr->name, "inlay"))
		return -FI_ENODATA;
	f = (struct fabric *)calloc(1, sizeof(*f));
	if (!f)
		return -FI_ENOMEM;
	f->fid = (struct fid_fabric){.fid = {FI_CLASS_FABRIC, context, &fabric_fid_ops}, .ops = &fabric_ops};
	*out = &f->fid;
	return 0;
}
