/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wait.c: sleeping until there is something in a completion queue or counter: fi_cq_sread, fi_trywait and
 * its file descriptor, fi_cq_signal, fi_cntr_wait.
 *
 * A queue that can be waited for has an epoll descriptor of its own, in which are the completion channels
 * of its endpoints' devices and an eventfd for fi_cq_signal. The device tells once of a CQ that was armed.
 * So whoever sleeps arms first, then looks once more. Nobody sleeps while hellos are to be repeated or
 * something waits for room.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "fabric.h"

#define NAP_MS 100 /* the longest sleep of our own: idle connections are looked at now and then */

static int watch(struct cq *cq, int fd)
{
	struct epoll_event e;

	memset(&e, 0, sizeof(e));
	e.events = EPOLLIN;
	return epoll_ctl(cq->epoll, EPOLL_CTL_ADD, fd, &e) && errno != EEXIST ? -errno : 0;
}

/* ---- Of a queue ---- */

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

int wait_signal(struct cq *cq)
{
	const uint64_t one = 1;

	if (cq->wake < 0)
		return -FI_ENOSYS;
	return write(cq->wake, &one, sizeof(one)) < 0 && errno != EAGAIN ? -errno : 0;
}

int wait_control(struct cq *cq, int command, void *arg)
{
	if (command != FI_GETWAIT || cq->epoll < 0)
		return -FI_ENOSYS;
	*(int *)arg = cq->epoll;
	return 0;
}

/* ---- Of an endpoint ---- */

int wait_attach(struct endpoint *ep)
{
	int err = 0;

	if (ep->tx_cq->epoll < 0 && ep->rx_cq->epoll < 0)
		return 0;
	ep->channel = ibv_create_comp_channel(ep->domain->context);
	if (!ep->channel)
		return -errno;
	if (fcntl(ep->channel->fd, F_SETFL, fcntl(ep->channel->fd, F_GETFL) | O_NONBLOCK))
		return -errno;
	if (ep->tx_cq->epoll >= 0)
		err = watch(ep->tx_cq, ep->channel->fd);
	if (!err && ep->rx_cq->epoll >= 0)
		err = watch(ep->rx_cq, ep->channel->fd);
	return err;
}

void wait_detach(struct endpoint *ep)
{
	if (ep->channel)
		ibv_destroy_comp_channel(ep->channel);
}

/* Takes the events that have come, and asks for the next. */
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

/* ---- Waiting ---- */

static bool something(const struct cq *cq)
{
	return cq->head != cq->tail || cq->error;
}

/* 0: it may be slept until the descriptor is readable. -FI_EAGAIN: it may not. */
static int try(struct cq *cq)
{
	uint32_t i;
	bool busy = something(cq);

	for (i = 0; i < cq->users && !busy; i++) {
		struct endpoint *ep = cq->endpoints[i];

		if (!ep->channel)
			continue;
		progress(ep);
		arm(ep);
		busy = inlay_cq_peek(&ep->cq) || ep->connecting || ep->waiting_head || something(cq);
	}
	return busy ? -FI_EAGAIN : 0;
}

int wait_try(struct fid_fabric *fabric, struct fid **fids, int count)
{
	struct cq *cq;
	int i, err = 0;

	(void)fabric;
	for (i = 0; i < count && !err; i++) {
		if (fids[i]->fclass == FI_CLASS_EQ)
			continue; /* to which nothing comes */
		cq = container_of(fids[i], struct cq, fid.fid);
		if (fids[i]->fclass != FI_CLASS_CQ || cq->epoll < 0)
			return -FI_EINVAL;
		domain_enter(cq->domain);
		err = try(cq);
		domain_leave(cq->domain);
	}
	return err;
}

/* Whether it was fi_cq_signal. */
static bool woken(struct cq *cq)
{
	uint64_t n;

	return read(cq->wake, &n, sizeof(n)) == sizeof(n);
}

ssize_t wait_read(struct cq *cq, void *buf, size_t count, fi_addr_t *source, int timeout)
{
	const uint64_t end = milliseconds() + (uint64_t)(timeout < 0 ? 0 : timeout);
	struct pollfd p = {cq->epoll, POLLIN, 0};
	uint64_t now;
	ssize_t n;
	int nap;

	if (cq->epoll < 0)
		return -FI_ENOSYS;
	for (;;) {
		n = fi_cq_readfrom(&cq->fid, buf, count, source);
		if (n != -FI_EAGAIN || woken(cq))
			return n;
		now = milliseconds();
		if (timeout >= 0 && now >= end)
			return n;
		domain_enter(cq->domain);
		n = try(cq);
		domain_leave(cq->domain);
		nap = timeout < 0 || end - now > NAP_MS ? NAP_MS : (int)(end - now);
		if (!n && poll(&p, 1, nap) < 0 && errno != EINTR)
			return -errno;
	}
}
