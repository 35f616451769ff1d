/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cq.c: the completion queues that applications read. Reading one drives all endpoints bound to it.
 */
#include <poll.h>
#include "fabric.h"

/* From here on progress no longer writes to the application's array. */
static void settle(struct cq *cq)
{
	cq->given = (size_t)(cq->last - cq->direct) / sizeof(struct fi_cq_tagged_entry);
	cq->direct = NULL;
	cq->first = cq->last = cq->own;
	cq->end = cq->own + cq->size;
}

/* Nothing is lost if there is no memory: the caller tries again later. */
APART int cq_grow(struct cq *cq)
{
	const size_t used = (size_t)(cq->last - cq->first), size = used > cq->size / 2 ? 2 * cq->size : cq->size;
	uint8_t *own;

	if (cq->direct) {
		settle(cq);
		return 0;
	}
	own = size > cq->size ? (uint8_t *)malloc(size) : cq->own;
	if (!own)
		return -FI_EAGAIN;
	memmove(own, cq->first, used);
	if (own != cq->own)
		free(cq->own);
	cq->own = cq->first = own;
	cq->last = own + used;
	cq->end = own + size;
	cq->size = size;
	return 0;
}

struct fi_cq_err_entry *cq_fail(struct cq *cq, void *context, uint64_t flags, int err, int syndrome)
{
	struct cq_error *error = (struct cq_error *)calloc(1, sizeof(*error));
	struct fi_cq_err_entry *e = error ? &error->e : &cq->lost;

	*e = (struct fi_cq_err_entry){.op_context = context, .flags = flags, .err = err, .prov_errno = syndrome};
	if (error) {
		*cq->last_error = error;
		cq->last_error = &error->next;
	} else {
		WARN(FI_LOG_CQ, "no memory for an error: %s\n", fi_strerror(err));
	}
	return e;
}

/* ---- Calls of the application ---- */

/* Copies entries of our array, of each `size` bytes. A format is a prefix of the next one. */
INLAY_ALWAYS ssize_t cq_copy(struct cq *cq, void *buf, size_t count, fi_addr_t *source, size_t size)
{
	const uint8_t *last = cq->last;
	uint8_t *from = cq->first, *to = (uint8_t *)buf;
	size_t n;

	for (n = 0; n < count && from != last; n++, to += size, from += sizeof(struct cq_entry)) {
		memcpy(to, from, size);
		if (source)
			source[n] = ((struct cq_entry *)(void *)from)->source;
	}
	cq->first = from;
	cq->drained = n < count;
	return (ssize_t)n;
}

static CALLED ssize_t cq_copy_any(struct cq *cq, void *buf, size_t count, fi_addr_t *source)
{
	if (INLAY_LIKELY(cq->entry_size == sizeof(struct fi_cq_tagged_entry)))
		return cq_copy(cq, buf, count, source, sizeof(struct fi_cq_tagged_entry));
	return cq_copy(cq, buf, count, source, cq->entry_size);
}

/* Makes progress, straight into the application's array if it has our format. */
ssize_t cq_drive(struct cq *cq, void *buf, size_t count, fi_addr_t *source)
{
	const size_t size = sizeof(struct fi_cq_tagged_entry);
	bool more = false;

	cq->first = cq->last = cq->own;
	cq->given = 0;
	if (!source && cq->entry_size == size && count >= BATCH_ENTRIES * sizeof(struct cq_entry) / size) {
		cq->direct = cq->last = (uint8_t *)buf;
		cq->end = cq->last + count * size;
	}
	for (uint32_t i = 0; i < cq->endpoints.count; i++) {
		progress(cq->endpoints.list[i]);
		more |= inlay_cq_peek(&cq->endpoints.list[i]->cq) != NULL;
	}
	if (cq->direct)
		settle(cq);
	cq->drained = cq->given && !more;
	if (INLAY_LIKELY(cq->given != 0))
		return (ssize_t)cq->given;
	if (cq->first != cq->last)
		return cq_copy_any(cq, buf, count, source);
	return cq->error ? -FI_EAVAIL : -FI_EAGAIN;
}

/* The read after one that emptied the queue returns -FI_EAGAIN without polling the device. */
INLAY_ALWAYS ssize_t cq_take(struct cq *cq, void *buf, size_t count, fi_addr_t *source, bool tagged)
{
	uint8_t *first, *last;

	if (cq->drained) {
		cq->drained = false;
		return INLAY_UNLIKELY(cq->error != NULL) ? -FI_EAVAIL : -FI_EAGAIN;
	}
	first = cq->first;
	last = cq->last;
	if (first == last)
		return tagged ? progress_front(cq, buf, count, source) : cq_drive(cq, buf, count, source);
	if (!tagged || INLAY_UNLIKELY(first + sizeof(struct cq_entry) != last) || INLAY_UNLIKELY(count < 2) || source)
		return cq_copy_any(cq, buf, count, source);
	memcpy(buf, first, sizeof(struct fi_cq_tagged_entry));
	cq->first = last;
	cq->drained = true;
	return 1;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source)
{
	struct cq *cq = container_of(fid, struct cq, fid);
	ssize_t n;

	enter(cq->domain);
	n = cq_take(cq, buf, count, source, cq->entry_size == sizeof(struct fi_cq_tagged_entry));
	return leave(cq->domain, n);
}

CALL(cq_read, (struct fid_cq *fid, void *buf, size_t count), cq_readfrom(fid, buf, count, NULL))

/* Without a lock, in the tagged format. */
static ssize_t cq_read_plain(struct fid_cq *fid, void *buf, size_t count)
{
	return cq_take(container_of(fid, struct cq, fid), buf, count, NULL, true);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *e, uint64_t flags)
{
	struct cq *cq = container_of(fid, struct cq, fid);
	void *data = e->err_data_size ? e->err_data : NULL; /* the application's: kept */
	struct cq_error *error;

	enter(cq->domain);
	for (uint32_t i = 0; !cq->error && i < cq->endpoints.count; i++)
		progress(cq->endpoints.list[i]);
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

CALL(cq_sread, (struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout),
     wait_read(fid, buf, count, NULL, cond, timeout))

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
	free(cq->own);
	free(cq);
	return 0;
}

static struct fi_ops fid_ops = FID_OPS(cq_close, no_bind, wait_control);
#define CQ_OPS(read) \
	{sizeof(struct fi_ops_cq), read, cq_readfrom, cq_readerr, cq_sread, wait_read, wait_signal, cq_strerror}
static struct fi_ops_cq cq_ops = CQ_OPS(cq_read), cq_ops_plain = CQ_OPS(cq_read_plain);

int cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
	static const size_t sizes[] = {
		sizeof(struct fi_cq_entry), sizeof(struct fi_cq_entry), sizeof(struct fi_cq_msg_entry),
		sizeof(struct fi_cq_data_entry), sizeof(struct fi_cq_tagged_entry)};
	struct cq *cq;
	int err;

	if (attr->format > FI_CQ_FORMAT_TAGGED)
		return -FI_EINVAL;
	cq = (struct cq *)calloc(1, sizeof(*cq));
	if (!cq)
		return -FI_ENOMEM;
	cq->size = CQ_ENTRIES * sizeof(struct cq_entry);
	cq->own = cq->first = cq->last = (uint8_t *)malloc(cq->size);
	err = cq->own ? wait_open(cq, attr->wait_obj) : -FI_ENOMEM;
	if (err) {
		free(cq->own);
		free(cq);
		return err;
	}
	if (attr->format == FI_CQ_FORMAT_UNSPEC)
		attr->format = FI_CQ_FORMAT_CONTEXT;
	cq->end = cq->own + cq->size;
	cq->entry_size = sizes[attr->format];
	cq->last_error = &cq->error;
	cq->domain = container_of(fid, struct domain, fid);
	cq->domain->users++;
	cq->fid = (struct fid_cq){{FI_CLASS_CQ, context, &fid_ops}, &cq_ops};
	if (!cq->domain->lock && attr->format == FI_CQ_FORMAT_TAGGED)
		cq->fid.ops = &cq_ops_plain;
	*out = &cq->fid;
	return 0;
}

/* ---- Counters ---- */

/* The counter of an endpoint's sends, reads or writes. */
static struct counter *counter_of(const struct endpoint *ep, uint64_t kind)
{
	return ep->counters[kind & FI_READ ? COUNT_READ : kind & FI_WRITE ? COUNT_WRITE : COUNT_SEND];
}

uint32_t done_flags(const struct endpoint *ep, uint64_t kind, uint64_t flags)
{
	const bool quiet = flags & SILENT || (ep->tx_selective && !(flags & FI_COMPLETION));

	if (counter_of(ep, kind))
		return (uint32_t)kind | DONE_COUNT | (quiet ? DONE_QUIET : 0);
	return (uint32_t)kind | (quiet ? DONE_ERROR : 0);
}

APART void counter_tx(struct endpoint *ep, void *context, uint32_t flags, int err, uint8_t syndrome)
{
	const uint32_t kind = flags & ~(DONE_ERROR | DONE_COUNT | DONE_QUIET);

	if (flags & DONE_COUNT)
		counter_of(ep, kind)->values[err != 0]++;
	if (err && !context && flags & (DONE_ERROR | DONE_QUIET)) {
		WARN(FI_LOG_EP_DATA, "an operation without a context is lost: %s\n", fi_strerror(err));
		context = ep->fid.fid.context;
	}
	if (err)
		cq_fail(ep->tx_cq, context, kind, err, syndrome);
	else if (!(flags & (DONE_ERROR | DONE_QUIET)))
		cq_add(ep->tx_cq, context, kind, 0, NULL, 0, 0, FI_ADDR_NOTAVAIL);
}

/* ---- Binding ---- */

int counter_bind(struct endpoint *ep, struct fid *fid, uint64_t flags)
{
	static const uint64_t kinds[COUNTERS] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
	struct counter *c = container_of(fid, struct counter, fid.fid);
	unsigned int i;

	if (!flags || flags & ~(uint64_t)(FI_SEND | FI_RECV | FI_READ | FI_WRITE))
		return -FI_ENOSYS; /* reads and writes by peers are not seen here */
	for (i = 0; i < COUNTERS; i++) {
		if (!(flags & kinds[i]))
			continue;
		if (ep->counters[i])
			return -FI_EINVAL;
		if (endpoints_add(&c->endpoints, ep))
			return -FI_ENOMEM;
		ep->counters[i] = c;
	}
	return 0;
}

/* ---- Calls of the application ---- */

/* Makes progress, then sets values[bad] to what it was, masked by keep, + add. Returns that. */
static uint64_t change(struct fid_cntr *fid, int bad, uint64_t keep, uint64_t add)
{
	struct counter *c = container_of(fid, struct counter, fid);
	uint64_t sum;

	enter(c->domain);
	for (uint32_t i = 0; i < c->endpoints.count; i++)
		progress(c->endpoints.list[i]);
	sum = c->values[bad] = (c->values[bad] & keep) + add;
	leave(c->domain, 0);
	return sum;
}

#define READ(name, bad) static uint64_t name(struct fid_cntr *fid) { return change(fid, bad, UINT64_MAX, 0); }
#define CHANGE(name, bad, keep) \
	static int name(struct fid_cntr *fid, uint64_t add) { change(fid, bad, keep, add); return 0; }

READ(counter_read, 0)
READ(counter_readerr, 1)
CHANGE(counter_add, 0, UINT64_MAX)
CHANGE(counter_set, 0, 0)
CHANGE(counter_adderr, 1, UINT64_MAX)
CHANGE(counter_seterr, 1, 0)

/* Polls, after a while with naps: nothing wakes a sleeper on a counter. */
static int counter_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	const uint64_t end = milliseconds() + (uint64_t)timeout, before = counter_readerr(fid);
	unsigned int looks;

	for (looks = 0; counter_read(fid) < threshold; looks++) {
		if (counter_readerr(fid) != before)
			return -FI_EAVAIL;
		if (timeout >= 0 && milliseconds() >= end)
			return -FI_ETIMEDOUT;
		if (looks > 10000)
			poll(NULL, 0, 1);
	}
	return 0;
}

static int counter_close(struct fid *fid)
{
	struct counter *c = container_of(fid, struct counter, fid.fid);

	if (c->endpoints.count)
		return -FI_EBUSY;
	c->domain->users--;
	free(c->endpoints.list);
	free(c);
	return 0;
}

static struct fi_ops counter_fid_ops = FID_OPS(counter_close, no_bind, no_control);
static struct fi_ops_cntr counter_ops = {sizeof(struct fi_ops_cntr), counter_read, counter_readerr, counter_add,
	counter_set, counter_wait, counter_adderr, counter_seterr};

int counter_open(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context)
{
	struct counter *c;

	if (attr && (attr->events != FI_CNTR_EVENTS_COMP ||
		     (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)))
		return -FI_ENOSYS;
	c = (struct counter *)calloc(1, sizeof(*c));
	if (!c)
		return -FI_ENOMEM;
	c->domain = container_of(fid, struct domain, fid);
	c->domain->users++;
	c->fid = (struct fid_cntr){{FI_CLASS_CNTR, context, &counter_fid_ops}, &counter_ops};
	*out = &c->fid;
	return 0;
}
