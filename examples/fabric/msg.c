/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * msg.c: fi_send, fi_recv and their kin, as tagged.c.
 */
#include "fabric.h"

static struct endpoint *endpoint_from(struct fid_ep *fid)
{
	return container_of(fid, struct endpoint, fid);
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t dest, void *context)
{
	(void)desc;
	return send_one(fid, 0, buf, len, dest, 0, 0, context, 0);
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
			    void *context)
{
	(void)desc;
	return send_one(fid, FLAG_DATA, buf, len, dest, 0, data, context, 0);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t dest)
{
	return send_one(fid, 0, buf, len, dest, 0, 0, NULL, 1);
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t dest)
{
	return send_one(fid, FLAG_DATA, buf, len, dest, 0, data, NULL, 1);
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t dest,
			 void *context)
{
	struct endpoint *ep = endpoint_from(fid);

	(void)desc;
	enter(ep);
	return leave(ep, send_iov(ep, iov, count, dest, 0, 0, context, ep->tx_flags | FI_MSG));
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
	struct endpoint *ep = endpoint_from(fid);

	enter(ep);
	return leave(ep, send_iov(ep, m->msg_iov, m->iov_count, m->addr, 0, m->data, m->context, flags | FI_MSG));
}

static ssize_t msg_recv_flags(struct fid_ep *fid, const struct iovec *iov, size_t count, fi_addr_t source,
			      void *context, uint64_t flags)
{
	struct endpoint *ep = endpoint_from(fid);

	enter(ep);
	return leave(ep, recv_iov(ep, iov, count, source, 0, 0, context, flags | FI_MSG));
}

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t source, void *context)
{
	struct iovec iov = {buf, len};

	(void)desc;
	return msg_recv_flags(fid, &iov, 1, source, context, endpoint_from(fid)->rx_flags);
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t source,
			 void *context)
{
	(void)desc;
	return msg_recv_flags(fid, iov, count, source, context, endpoint_from(fid)->rx_flags);
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
	return msg_recv_flags(fid, m->msg_iov, m->iov_count, m->addr, m->context, flags);
}

struct fi_ops_msg msg_ops = {
	sizeof(struct fi_ops_msg), msg_recv, msg_recvv, msg_recvmsg, msg_send, msg_sendv, msg_sendmsg, msg_inject,
	msg_senddata, msg_injectdata,
};
