/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wait.c: sleeping until there is something in a completion queue: fi_cq_sread, fi_trywait and its file
 * descriptor, fi_cq_signal.
 *
 * A queue that can be waited for has an epoll descriptor of its own, which holds the completion channels of
 * its endpoints' devices and an eventfd for fi_cq_signal. The device reports once for each arming of a CQ.
 * So a sleeper arms first, then polls once more. It does not sleep while hellos must be repeated or anything
 * waits for room.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "fabric.h"

#define NAP_MS 100 /* the longest sleep of our own: idle connections are looked at now and then */

/* ---- Descriptors ---- */

static int watch(const struct cq *cq, int fd)
{
	struct epoll_event e = {EPOLLIN, {NULL}};

	return epoll_ctl(cq->epoll, EPOLL_CTL_ADD, fd, &e) && errno != EEXIST ? -errno : 0;
}

int wait_open(struct cq *cq, enum fi_wait_obj kind)
{
	int err;

	cq->epoll = cq->wake = -1;
	if (kind == FI_WAIT_NONE)
		return 0;
	if (kind != FI_WAIT_UNSPEC && kind != FI_WAIT_FD)
		return -FI_ENOSYS;
	cq->epoll = epoll_create1(EPOLL_CLOEXEC);
	cq->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = cq->epoll < 0 || cq->wake < 0 ? -errno : watch(cq, cq->wake);
	if (err)
		wait_close(cq);
	return err;
}

void wait_close(struct cq *cq)
{
	if (cq->epoll >= 0)
		close(cq->epoll);
	if (cq->wake >= 0)
		close(cq->wake);
}

int wait_attach(struct endpoint *ep)
{
	struct cq *cqs[2] = {ep->tx_cq, ep->rx_cq};
	int i, err = 0;

	for (i = 0; i < 2 && !err; i++) {
		if (cqs[i]->epoll < 0)
			continue;
		if (!ep->channel)
			ep->channel = ibv_create_comp_channel(ep->domain->context);
		if (!ep->channel || fcntl(ep->channel->fd, F_SETFL, fcntl(ep->channel->fd, F_GETFL) | O_NONBLOCK))
			return -errno;
		err = watch(cqs[i], ep->channel->fd);
	}
	return err;
}

int wait_signal(struct fid_cq *fid)
{
	const struct cq *cq = container_of(fid, struct cq, fid);

	if (cq->wake < 0)
		return -FI_ENOSYS;
	return eventfd_write(cq->wake, 1) && errno != EAGAIN ? -errno : 0;
}

int wait_control(struct fid *fid, int command, void *arg)
{
	struct cq *cq = container_of(fid, struct cq, fid.fid);

	if (command != FI_GETWAIT || cq->epoll < 0)
		return -FI_ENOSYS;
	*(int *)arg = cq->epoll;
	return 0;
}

/* ---- Waiting ---- */

/* Takes the events that have come, and arms for the next. */
static void arm(struct endpoint *ep)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(ep->channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		inlay_cq_event(&ep->cq);
	}
	inlay_cq_arm(&ep->cq, 0);
}

/* 0: the caller may sleep until the descriptor is readable. -FI_EAGAIN: it may not. */
static int may_sleep(struct cq *cq)
{
	bool busy = false;

	enter(cq->domain);
	for (uint32_t i = 0; i < cq->endpoints.count; i++)
		for (struct endpoint *ep = cq->endpoints.list[i]; ep && ep->channel; ep = ep->second) {
			progress(ep);
			connect_step(ep); /* between two sleeps nobody else looks at the time */
			arm(ep);
			busy |= inlay_cq_peek(&ep->cq) || ep->unsettled ||
				(ep->waiting_head == &ep->looks ? ep->looks.next : ep->waiting_head);
		}
	busy |= cq->first != cq->last || cq->error;
	return (int)leave(cq->domain, busy ? -FI_EAGAIN : 0);
}

int wait_try(struct fid_fabric *fabric, struct fid **fids, int count)
{
	struct cq *cq;
	int i, err = 0;

	for (i = 0; i < count && !err; i++) {
		if (fids[i]->fclass == FI_CLASS_EQ)
			continue; /* to which nothing comes */
		cq = container_of(fids[i], struct cq, fid.fid);
		if (fids[i]->fclass != FI_CLASS_CQ || cq->epoll < 0)
			return -FI_EINVAL;
		err = may_sleep(cq);
	}
	return err;
}

/* cond, a number of entries, is a hint that is ignored. */
ssize_t wait_read(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source, const void *cond, int timeout)
{
	struct cq *cq = container_of(fid, struct cq, fid);
	const uint64_t end = milliseconds() + (uint64_t)timeout;
	struct pollfd p = {cq->epoll, POLLIN, 0};
	eventfd_t signals;
	uint64_t now;
	ssize_t n;

	if (cq->epoll < 0)
		return -FI_ENOSYS;
	for (;;) {
		n = fi_cq_readfrom(fid, buf, count, source);
		if (n != -FI_EAGAIN || !eventfd_read(cq->wake, &signals))
			return n;
		now = milliseconds();
		if (timeout >= 0 && now >= end)
			return n;
		if (!may_sleep(cq) && poll(&p, 1, timeout < 0 || end - now > NAP_MS ? NAP_MS : (int)(end - now)) < 0 &&
		    errno != EINTR)
			return -errno;
	}
}
