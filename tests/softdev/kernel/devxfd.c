/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devxfd.c: the files from which a program reads results of asynchronous queries, and events.
 *
 * To poll(), epoll and O_NONBLOCK such a file is an eventfd that counts what waits. read() in
 * preload.c takes the data from a list. The device keeps a duplicate of the eventfd, so that it can
 * still wake a reader after the program has closed its own.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "kernel.h"

#define EQE 64u
#define MOST (1u << 20)           /* bytes of outboxes that wait in one file */

struct entry {
	struct entry *next;
	struct sub *sub;          /* that it is of and that has no second one meanwhile; else NULL */
	size_t outlen;            /* counted against MOST */
	size_t len;
	uint8_t data[];
};

struct sd_devx_file {
	struct sd_ctx *ctx;       /* NULL: it was closed */
	int fd, efd;
	bool commands, omit_data, overflow;
	bool overtake;
	size_t outstanding;
	struct entry *first;
	struct sd_devx_file *next;
};

struct sub {
	struct sd_devx_file *f;
	struct sd_devx_obj *o;    /* NULL: unaffiliated */
	uint16_t type;
	int eventfd;              /* or -1 */
	uint64_t cookie;
	bool queued;              /* nothing more until that one is read */
	struct sub *next;
};

static SD_OWN struct sd_devx_file *files;
static SD_OWN struct sub *subs;

static void wake(int efd)
{
	eventfd_write(efd, 1);
}

int sd_devx_file_new(struct sd_ctx *ctx, bool commands, bool omit_data, int *fd)
{
	struct sd_devx_file *f = calloc(1, sizeof(*f));
	int err = 0;

	if (!f)
		return ENOMEM;
	*f = (struct sd_devx_file){ .ctx = ctx, .commands = commands, .omit_data = omit_data, .fd = -1, .efd = -1 };
	f->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	f->efd = f->fd < 0 ? -1 : fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
	if (f->efd < 0)
		err = errno;
	else if (f->fd >= SD_MAX_FD)
		err = EMFILE;
	if (err) {
		if (f->fd >= 0)
			close(f->fd);
		if (f->efd >= 0)
			close(f->efd);
		free(f);
		return err;
	}
	f->next = files;
	files = f;
	sd_fd_set(f->fd, SD_FD_DEVX, f);
	*fd = f->fd;
	return 0;
}

struct sd_devx_file *sd_devx_file_get(struct sd_ctx *ctx, int fd, bool commands)
{
	void *ptr = NULL;
	struct sd_devx_file *f;

	if (sd_fd_get(fd, &ptr) != SD_FD_DEVX)
		return NULL;
	f = ptr;
	return f->ctx == ctx && f->commands == commands ? f : NULL;
}

static void sub_free(struct sub **at)
{
	struct sub *s = *at;

	for (struct entry *e = s->f->first; e; e = e->next)
		if (e->sub == s)
			e->sub = NULL;
	*at = s->next;
	if (s->eventfd >= 0)
		close(s->eventfd);
	free(s);
}

static void drop(const struct sd_devx_file *f, const struct sd_devx_obj *o)
{
	for (struct sub **at = &subs; *at;)
		if ((f && (*at)->f == f) || (o && (*at)->o == o))
			sub_free(at);
		else
			at = &(*at)->next;
}

void sd_devx_drop(struct sd_devx_obj *o)
{
	drop(NULL, o);
}

/* The program closed it */
void sd_devx_file_closed(struct sd_devx_file *f)
{
	struct sd_devx_file **at;

	drop(f, NULL);
	for (at = &files; *at != f; at = &(*at)->next)
		;
	*at = f->next;
	for (struct entry *e; (e = f->first);) {
		f->first = e->next;
		free(e);
	}
	close(f->efd);
	free(f);
}

/* Its context is closed, and readers are told */
void sd_devx_files_orphan(struct sd_ctx *ctx)
{
	for (struct sd_devx_file *f = files; f; f = f->next)
		if (f->ctx == ctx) {
			drop(f, NULL);
			f->ctx = NULL;
			wake(f->efd);
		}
}

/* ---- asynchronous queries ---- */

bool sd_devx_file_room(const struct sd_devx_file *f, size_t outlen)
{
	return f->outstanding + outlen <= MOST;
}

/*
 * Commands are carried out in any order: here every other one overtakes those whose outcome waits
 * to be read, so that a program that relies on the order is found out.
 */
int sd_devx_file_async(struct sd_devx_file *f, uint64_t wr_id, const uint8_t *out, size_t outlen)
{
	struct entry *e = calloc(1, sizeof(*e) + 8 + outlen), **at = &f->first;

	if (!e)
		return ENOMEM;
	e->outlen = outlen;
	e->len = 8 + outlen;
	memcpy(e->data, &wr_id, 8);
	memcpy(e->data + 8, out, outlen);
	while (!f->overtake && *at)
		at = &(*at)->next;
	f->overtake = !f->overtake;
	e->next = *at;
	*at = e;
	f->outstanding += outlen;
	wake(f->efd);
	return 0;
}

/* ---- events ---- */

int sd_devx_subscribe(struct sd_devx_file *f, struct sd_devx_obj *o, const uint16_t *types, unsigned n, uint64_t cookie, int efd)
{
	struct sub *made[16], **tail;
	char path[32], is[32] = "";
	unsigned i;
	int err = 0;

	if (efd >= 0) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", efd);
		if (readlink(path, is, sizeof(is) - 1) < 0)
			return EBADF;
		if (strcmp(is, "anon_inode:[eventfd]") != 0)
			return EINVAL;
	}
	for (i = 0; i < n && !err; i++) {
		made[i] = calloc(1, sizeof(*made[i]));
		if (!made[i]) {
			err = ENOMEM;
			break;
		}
		*made[i] = (struct sub){ .f = f, .o = o, .type = types[i], .cookie = cookie, .eventfd = -1 };
		if (efd >= 0) {
			made[i]->eventfd = fcntl(efd, F_DUPFD_CLOEXEC, 0);
			if (made[i]->eventfd < 0)
				err = errno;
		}
	}
	if (err) {
		while (i--) {
			if (made[i]->eventfd >= 0)
				close(made[i]->eventfd);
			free(made[i]);
		}
		return err;
	}
	for (tail = &subs; *tail; tail = &(*tail)->next)
		;
	for (i = 0; i < n; i++) {
		*tail = made[i];
		tail = &made[i]->next;
	}
	return 0;
}

static void deliver(struct sub *s, const uint8_t eqe[EQE])
{
	size_t len = s->f->omit_data ? 8 : 8 + EQE;
	struct entry *e, **at;

	if (s->eventfd >= 0) {
		wake(s->eventfd);
		return;
	}
	if (s->f->omit_data && s->queued)
		return;
	e = calloc(1, sizeof(*e) + len);
	if (!e) {
		s->f->overflow = true;
		wake(s->f->efd);
		return;
	}
	e->len = len;
	memcpy(e->data, &s->cookie, 8);
	if (!s->f->omit_data)
		memcpy(e->data + 8, eqe, EQE);
	e->sub = s;
	s->queued = true;
	for (at = &s->f->first; *at; at = &(*at)->next)
		;
	*at = e;
	wake(s->f->efd);
}

/* Which kind of queue the event is about */
static unsigned queue_kind(const struct sd_devx_obj *o)
{
	return o->opcode == 0x908 ? 1 : o->opcode == 0x904 ? 2 : o->opcode == 0x710 ? 6 : 0;
}

static uint32_t general_kind(const struct sd_devx_obj *o)
{
	static const struct {
		uint16_t opcode, type;
	} kinds[] = {
		{ 0x200, 0xff01 }, { 0x500, 0xff02 }, { 0x90c, 0xff04 }, { 0x705, 0xff05 }, { 0x908, 0xff06 }, { 0x904, 0xff07 },
		{ 0x900, 0xff08 }, { 0x912, 0xff09 }, { 0x710, 0xff0a }, { 0x717, 0xff0b }, { 0x916, 0xff0e }, { 0x400, 0xff10 },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].opcode == o->opcode)
			return kinds[i].type;
	return o->obj_type;
}

void sd_devx_event(struct sd_devx_obj *o, uint16_t type, uint8_t syndrome)
{
	uint8_t eqe[EQE] = { 0 };

	if (!o)
		return;
	eqe[1] = type;
	switch (type) {
	case 0x04:
		sd_set(eqe, 8 * 0x20 + 8, 24, o->number);
		eqe[0x2b] = syndrome;
		break;
	case 0x18:
		sd_set(eqe, 8 * 0x34 + 8, 24, o->number);
		break;
	case 0x00: case 0x01: case 0x02: case 0x03: case 0x05: case 0x07: case 0x10: case 0x11: case 0x12: case 0x13: case 0x14:
	case 0x1c: case 0x1d:
		eqe[0x34] = type ? queue_kind(o) : 0;
		sd_set(eqe, 8 * 0x38 + 8, 24, o->number);
		break;
	default:
		sd_set(eqe, 8 * 0x22, 16, general_kind(o));
		sd_set(eqe, 8 * 0x24, 32, o->number);
		break;
	}
	for (struct sub *s = subs; s; s = s->next)
		if (s->o == o && s->type == type)
			deliver(s, eqe);
}

uint16_t sd_devx_event_type(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_PATH_MIG:
		return 0x01;
	case IBV_EVENT_COMM_EST:
		return 0x02;
	case IBV_EVENT_SQ_DRAINED:
		return 0x03;
	case IBV_EVENT_CQ_ERR:
		return 0x04;
	case IBV_EVENT_PATH_MIG_ERR:
		return 0x07;
	case IBV_EVENT_QP_REQ_ERR:
		return 0x10;
	case IBV_EVENT_QP_ACCESS_ERR:
		return 0x11;
	case IBV_EVENT_SRQ_ERR:
		return 0x12;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return 0x13;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return 0x14;
	default:
		return 0x05;
	}
}

/* ---- read() ---- */

/* One look: bytes, or -errno; -EAGAIN: there is nothing */
static ssize_t take(struct sd_devx_file *f, void *buf, size_t size)
{
	struct entry *e = f->first;
	eventfd_t one;
	ssize_t len;

	if (f->overflow) {
		f->overflow = false;
		eventfd_read(f->efd, &one);
		return -EOVERFLOW;
	}
	if (!f->ctx)
		return -EIO;
	if (!e)
		return -EAGAIN;
	if (e->len > size)
		return f->commands ? -ENOSPC : -EINVAL;
	f->first = e->next;
	f->outstanding -= e->outlen;
	if (e->sub)
		e->sub->queued = false;
	eventfd_read(f->efd, &one);
	len = sd_copy(e->data, (uintptr_t)buf, e->len, true) ? -EFAULT : (ssize_t)e->len;
	free(e);
	return len;
}

ssize_t sd_devx_read(int fd, void *buf, size_t size)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t ret;
	void *f;

	for (;;) {
		pthread_mutex_lock(&sd_lock);
		f = NULL;
		ret = sd_fd_get(fd, &f) == SD_FD_DEVX ? take(f, buf, size) : -EBADF;
		pthread_mutex_unlock(&sd_lock);
		if (ret != -EAGAIN || fcntl(fd, F_GETFL) & O_NONBLOCK)
			return ret;
		if (poll(&p, 1, -1) < 0)
			return -errno;
	}
}
