/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cq.c: the completion queues that applications read. Reading one drives all endpoints bound to it.
 */
#include "fabric.h"

/* Twice the ring. Nothing is lost if there is no memory: whoever wanted room tries again later. */
APART int cq_grow(struct cq *cq)
{
	const uint32_t size = cq->mask + 1;
	struct cq_entry *ring = (struct cq_entry *)aligned_alloc(64, 2 * (size_t)size * sizeof(*ring));
	uint32_t i;

	if (!ring)
		return -FI_EAGAIN;
	for (i = cq->head; i != cq->tail; i++)
		ring[i & (2 * size - 1)] = cq->ring[i & cq->mask];
	free(cq->ring);
	cq->ring = ring;
	cq->mask = 2 * size - 1;
	return 0;
}

void cq_add_error(struct cq *cq, const struct fi_cq_err_entry *e)
{
	struct cq_error *error = (struct cq_error *)malloc(sizeof(*error));

	if (!error) {
		WARN(FI_LOG_CQ, "no memory for an error: %s\n", fi_strerror(e->err));
		return;
	}
	error->e = *e;
	error->next = NULL;
	*cq->last_error = error;
	cq->last_error = &error->next;
}

void cq_fail(struct cq *cq, void *context, uint64_t flags, int err, int syndrome)
{
	struct fi_cq_err_entry e;

	memset(&e, 0, sizeof(e));
	e.op_context = context;
	e.flags = flags;
	e.err = err;
	e.prov_errno = syndrome;
	cq_add_error(cq, &e);
}

/* ---- What the application calls ---- */

static struct cq *cq_from(struct fid_cq *fid)
{
	return container_of(fid, struct cq, fid);
}

INLAY_ALWAYS ssize_t cq_take(struct cq *cq, void *buf, size_t count, fi_addr_t *source)
{
	const size_t size = cq->entry_size;
	uint8_t *to = (uint8_t *)buf;
	size_t n;

	if (cq->head == cq->tail) {
		uint32_t i;

		for (i = 0; i < cq->users; i++)
			progress(cq->endpoints[i]);
		if (cq->head == cq->tail)
			return cq->error ? -FI_EAVAIL : -FI_EAGAIN;
	}
	n = cq->tail - cq->head;
	if (n > count)
		n = count;
	for (count = n; count; count--, cq->head++, to += size) {
		const struct cq_entry *c = &cq->ring[cq->head & cq->mask];

		if (INLAY_LIKELY(size == sizeof(struct fi_cq_tagged_entry)))
			memcpy(to, &c->e, sizeof(struct fi_cq_tagged_entry));
		else
			memcpy(to, &c->e, size); /* the formats are each other's beginnings */
		if (source)
			*source++ = c->source;
	}
	return (ssize_t)n;
}

INLAY_ALWAYS ssize_t cq_locked_take(struct cq *cq, void *buf, size_t count, fi_addr_t *source)
{
	ssize_t n;

	domain_enter(cq->domain);
	n = cq_take(cq, buf, count, source);
	domain_leave(cq->domain);
	return n;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return cq_locked_take(cq_from(fid), buf, count, NULL);
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source)
{
	return cq_locked_take(cq_from(fid), buf, count, source);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *e, uint64_t flags)
{
	struct cq *cq = cq_from(fid);
	struct cq_error *error;

	(void)flags;
	domain_enter(cq->domain);
	error = cq->error;
	if (error) {
		void *data = e->err_data; /* of the application's; we have none to put there */
		size_t size = e->err_data_size;

		*e = error->e;
		e->err_data = size ? data : NULL;
		e->err_data_size = 0;
		cq->error = error->next;
		if (!cq->error)
			cq->last_error = &cq->error;
		free(error);
	}
	domain_leave(cq->domain);
	return error ? 1 : -FI_EAGAIN;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source, const void *cond,
			    int timeout)
{
	(void)cond;
	return wait_read(cq_from(fid), buf, count, source, timeout);
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
	return wait_signal(cq_from(fid));
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	return wait_control(container_of(fid, struct cq, fid.fid), command, arg);
}

/* prov_errno is the device's syndrome. */
static const char *cq_strerror(struct fid_cq *fid, int err, const void *data, char *buf, size_t len)
{
	const char *text = err ? inlay_syndrome_text((uint8_t)err) : "nothing of the device's";

	(void)fid, (void)data;
	if (buf && len)
		strncpy(buf, text, len - 1)[len - 1] = 0;
	return text;
}

static int cq_close(struct fid *fid)
{
	struct cq *cq = container_of(fid, struct cq, fid.fid);
	struct cq_error *error;

	if (cq->users)
		return -FI_EBUSY;
	cq->domain->users--;
	while ((error = cq->error)) {
		cq->error = error->next;
		free(error);
	}
	wait_close(cq);
	free(cq->endpoints);
	free(cq->ring);
	free(cq);
	return 0;
}

static struct fi_ops fid_ops = {
	sizeof(struct fi_ops), cq_close, no_bind, cq_control, no_ops_open, no_tostr, no_ops_set,
};
static struct fi_ops_cq cq_ops = {
	sizeof(struct fi_ops_cq), cq_read, cq_readfrom, cq_readerr, cq_sread, cq_sreadfrom, cq_signal, cq_strerror,
};

int cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
	static const size_t sizes[] = {
		sizeof(struct fi_cq_entry), sizeof(struct fi_cq_entry), sizeof(struct fi_cq_msg_entry),
		sizeof(struct fi_cq_data_entry), sizeof(struct fi_cq_tagged_entry),
	};
	struct cq *cq;
	int err;

	if (attr->format > FI_CQ_FORMAT_TAGGED)
		return -FI_EINVAL;
	cq = (struct cq *)calloc(1, sizeof(*cq));
	if (cq)
		cq->ring = (struct cq_entry *)aligned_alloc(64, CQ_ENTRIES * sizeof(*cq->ring));
	if (!cq || !cq->ring) {
		free(cq);
		return -FI_ENOMEM;
	}
	err = wait_open(cq, attr->wait_obj);
	if (err) {
		free(cq->ring);
		free(cq);
		return err;
	}
	if (attr->format == FI_CQ_FORMAT_UNSPEC)
		attr->format = FI_CQ_FORMAT_CONTEXT;
	cq->mask = CQ_ENTRIES - 1;
	cq->entry_size = sizes[attr->format];
	cq->last_error = &cq->error;
	cq->domain = container_of(fid, struct domain, fid);
	cq->domain->users++;
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &fid_ops;
	cq->fid.ops = &cq_ops;
	*out = &cq->fid;
	return 0;
}
