/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mr.c: memory that the application registers for its peers, or to save lookups of its own buffers. A key
 * is the device's; so messages that ask for an atomic operation are checked against it, too.
 */
#include "fabric.h"

static struct mr **bucket(struct domain *d, uint64_t key)
{
	return &d->mrs[key >> 8 & (MR_BUCKETS - 1)];
}

struct mr *mr_find(struct domain *d, uint64_t key, uint64_t addr, size_t len, uint64_t access)
{
	struct mr *m = *bucket(d, key);
	uint64_t offset;

	while (m && m->fid.key != key)
		m = m->next;
	if (!m || (m->access & access) != access)
		return NULL;
	offset = addr - (uintptr_t)m->verbs->addr;
	return offset <= m->verbs->length && len <= m->verbs->length - offset ? m : NULL;
}

static int mr_close(struct fid *fid)
{
	struct mr *m = container_of(fid, struct mr, fid.fid), **at;
	struct domain *d = m->domain;
	int err;

	enter(d);
	err = ibv_dereg_mr(m->verbs);
	if (!err) {
		for (at = bucket(d, m->fid.key); *at != m; at = &(*at)->next)
			;
		*at = m->next;
		d->users--;
		free(m);
	}
	return (int)leave(d, -err);
}

static struct fi_ops fid_ops = FID_OPS(mr_close, no_bind, no_control);

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **out)
{
	struct domain *d = container_of(fid, struct domain, fid.fid);
	unsigned int access = IBV_ACCESS_LOCAL_WRITE;
	struct mr *m, **at;
	int err;

	if (attr->iov_count != 1 || !attr->mr_iov->iov_len || attr->offset || attr->auth_key_size)
		return -FI_EINVAL;
	if (flags & ~(uint64_t)FI_RMA_PMEM)
		return -FI_EBADFLAGS;
	if (attr->access & FI_REMOTE_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (attr->access & FI_REMOTE_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	m = (struct mr *)calloc(1, sizeof(*m));
	if (!m)
		return -FI_ENOMEM;
	m->verbs = ibv_reg_mr(d->pd, attr->mr_iov->iov_base, attr->mr_iov->iov_len, access);
	if (!m->verbs && access == IBV_ACCESS_LOCAL_WRITE) /* to be sent only, perhaps from read-only memory */
		m->verbs = ibv_reg_mr(d->pd, attr->mr_iov->iov_base, attr->mr_iov->iov_len, 0);
	if (!m->verbs) {
		err = errno;
		WARN(FI_LOG_MR, "%zu bytes cannot be registered: %s\n", attr->mr_iov->iov_len, strerror(err));
		free(m);
		return -err;
	}
	m->domain = d;
	m->access = attr->access;
	m->fid.key = m->verbs->rkey;
	m->fid.mem_desc = m;
	fid_init(&m->fid.fid, FI_CLASS_MR, attr->context, &fid_ops);
	*out = &m->fid;
	enter(d);
	at = bucket(d, m->fid.key);
	m->next = *at;
	*at = m;
	d->users++;
	return (int)leave(d, 0);
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
		   uint64_t key, uint64_t flags, struct fid_mr **out, void *context)
{
	struct fi_mr_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.mr_iov = iov;
	attr.iov_count = count;
	attr.access = access;
	attr.offset = offset;
	attr.context = context;
	return mr_regattr(fid, &attr, flags, out);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key,
		  uint64_t flags, struct fid_mr **out, void *context)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};

	return mr_regv(fid, &iov, 1, access, offset, key, flags, out, context);
}

struct fi_ops_mr mr_ops = {sizeof(struct fi_ops_mr), mr_reg, mr_regv, mr_regattr};
