/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tagged.c: fi_tsend, fi_trecv and their kin: each call is described by its flags, and goes on in send.c
 * and recv.c; a short send mostly ends in fabric.h.
 */
#include "fabric.h"

static struct endpoint *endpoint_from(struct fid_ep *fid)
{
	return container_of(fid, struct endpoint, fid);
}

static ssize_t tsend(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t tag,
		     void *context)
{
	(void)desc;
	return send_one(fid, FLAG_TAGGED, buf, len, dest, tag, 0, context, 0);
}

static ssize_t tsenddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
			 uint64_t tag, void *context)
{
	(void)desc;
	return send_one(fid, FLAG_TAGGED | FLAG_DATA, buf, len, dest, tag, data, context, 0);
}

static ssize_t tinject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest, uint64_t tag)
{
	return send_one(fid, FLAG_TAGGED, buf, len, dest, tag, 0, NULL, 1);
}

static ssize_t tinjectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest, uint64_t tag)
{
	return send_one(fid, FLAG_TAGGED | FLAG_DATA, buf, len, dest, tag, data, NULL, 1);
}

static ssize_t tsendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
		      uint64_t tag, void *context)
{
	struct endpoint *ep = endpoint_from(fid);

	(void)desc;
	enter(ep);
	return leave(ep, send_iov(ep, iov, count, dest, tag, 0, context, ep->tx_flags | FI_TAGGED));
}

static ssize_t tsendmsg(struct fid_ep *fid, const struct fi_msg_tagged *m, uint64_t flags)
{
	struct endpoint *ep = endpoint_from(fid);

	enter(ep);
	return leave(ep, send_iov(ep, m->msg_iov, m->iov_count, m->addr, m->tag, m->data, m->context,
				  flags | FI_TAGGED));
}

static ssize_t trecvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t source,
		      uint64_t tag, uint64_t ignore, void *context)
{
	struct endpoint *ep = endpoint_from(fid);

	(void)desc;
	enter(ep);
	return leave(ep, recv_iov(ep, iov, count, source, tag, ignore, context, ep->rx_flags | FI_TAGGED));
}

static ssize_t trecvmsg(struct fid_ep *fid, const struct fi_msg_tagged *m, uint64_t flags)
{
	struct endpoint *ep = endpoint_from(fid);

	enter(ep);
	return leave(ep, recv_iov(ep, m->msg_iov, m->iov_count, m->addr, m->tag, m->ignore, m->context,
				  flags | FI_TAGGED));
}

struct fi_ops_tagged tagged_ops = {
	sizeof(struct fi_ops_tagged), recv_tagged, trecvv, trecvmsg, tsend, tsendv, tsendmsg, tinject, tsenddata,
	tinjectdata,
};
