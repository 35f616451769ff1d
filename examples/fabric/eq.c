/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * eq.c: an event queue that nothing ever comes to. Every object here is ready when its call returns, but
 * applications open one all the same.
 */
#include "fabric.h"
#include <poll.h>

struct eq {
	struct fid_eq fid;
	struct fabric *fabric;
};

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
	return -FI_EAGAIN;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *e, uint64_t flags)
{
	return -FI_EAGAIN;
}

/* Waiting for what never comes: the time passes. */
static ssize_t eq_sread(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags)
{
	poll(NULL, 0, timeout);
	return -FI_EAGAIN;
}

static const char *eq_strerror(struct fid_eq *fid, int err, const void *data, char *buf, size_t len)
{
	if (buf && len)
		strncpy(buf, fi_strerror(err), len - 1)[len - 1] = 0;
	return fi_strerror(err);
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

static struct fi_ops fid_ops = FID_OPS(eq_close, no_bind, no_control);
static struct fi_ops_eq eq_ops = {
	sizeof(struct fi_ops_eq), eq_read, eq_readerr, no_eq_write, eq_sread, eq_strerror,
};

int eq_open(struct fid_fabric *fid, struct fi_eq_attr *attr, struct fid_eq **out, void *context)
{
	struct eq *eq;

	if (attr && attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)
		return -FI_ENOSYS;
	eq = (struct eq *)calloc(1, sizeof(*eq));
	if (!eq)
		return -FI_ENOMEM;
	eq->fabric = container_of(fid, struct fabric, fid);
	eq->fabric->users++;
	fid_init(&eq->fid.fid, FI_CLASS_EQ, context, &fid_ops);
	eq->fid.ops = &eq_ops;
	*out = &eq->fid;
	return 0;
}
