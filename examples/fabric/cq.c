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

/* ---- What the application calls ---- */

INLAY_ALWAYS ssize_t take(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source)
{
	struct cq *cq = container_of(fid, struct cq, fid);
	const size_t size = cq->entry_size;
	uint8_t *to = (uint8_t *)buf;
	uint32_t i;
	size_t n;

	enter(cq->domain);
	if (cq->head == cq->tail)
		for (i = 0; i < cq->endpoints.count; i++)
			progress(cq->endpoints.list[i]);
	n = cq->tail - cq->head;
	if (!n)
		return leave(cq->domain, cq->error ? -FI_EAVAIL : -FI_EAGAIN);
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
	return leave(cq->domain, (ssize_t)n);
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return take(fid, buf, count, NULL);
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source)
{
	return take(fid, buf, count, source);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *e, uint64_t flags)
{
	struct cq *cq = container_of(fid, struct cq, fid);
	void *data = e->err_data_size ? e->err_data : NULL; /* of the application's; we have none to put there */
	struct cq_error *error;

	enter(cq->domain);
	error = cq->error;
	if (error) {
		*e = error->e;
		e->err_data = data;
		cq->error = error->next;
		if (!cq->error)
			cq->last_error = &cq->error;
		free(error);
	}
	return leave(cq->domain, error ? 1 : -FI_EAGAIN);
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
	return wait_read(fid, buf, count, NULL, cond, timeout);
}

/* prov_errno is the device's syndrome. */
static const char *cq_strerror(struct fid_cq *fid, int err, const void *data, char *buf, size_t len)
{
	const char *text = err ? inlay_syndrome_text((uint8_t)err) : "nothing of the device's";

	if (buf && len)
		strncpy(buf, text, len - 1)[len - 1] = 0;
	return text;
}

static int cq_close(struct fid *fid)
{
	struct cq *cq = container_of(fid, struct cq, fid.fid);
	struct cq_error *error;

	if (cq->endpoints.count)
		return -FI_EBUSY;
	while ((error = cq->error)) {
		cq->error = error->next;
		free(error);
	}
	cq->domain->users--;
	wait_close(cq);
	free(cq->endpoints.list);
	free(cq->ring);
	free(cq);
	return 0;
}

static struct fi_ops fid_ops = FID_OPS(cq_close, no_bind, wait_control);
static struct fi_ops_cq cq_ops = {
	sizeof(struct fi_ops_cq), cq_read, cq_readfrom, cq_readerr, cq_sread, wait_read, wait_signal, cq_strerror,
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
	if (!cq)
		return -FI_ENOMEM;
	cq->ring = (struct cq_entry *)aligned_alloc(64, CQ_ENTRIES * sizeof(*cq->ring));
	err = cq->ring ? wait_open(cq, attr->wait_obj) : -FI_ENOMEM;
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
	fid_init(&cq->fid.fid, FI_CLASS_CQ, context, &fid_ops);
	cq->fid.ops = &cq_ops;
	*out = &cq->fid;
	return 0;
}
