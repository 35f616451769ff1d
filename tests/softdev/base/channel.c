/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * channel.c: what an fd is to the device, and the channels from which programs read events.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/ib_user_verbs.h>
#include "base.h"

/* The kind is read without a lock: every close() of the program passes here */
static uint8_t fd_kind[SD_MAX_FD];
static void *fd_ptr[SD_MAX_FD];

void sd_fd_set(int fd, enum sd_fd_kind kind, void *ptr)
{
	fd_ptr[fd] = ptr;
	__atomic_store_n(&fd_kind[fd], kind, __ATOMIC_RELEASE);
}

enum sd_fd_kind sd_fd_get(int fd, void **ptr)
{
	enum sd_fd_kind kind = SD_FD_NONE;

	if (fd >= 0 && fd < SD_MAX_FD)
		kind = __atomic_load_n(&fd_kind[fd], __ATOMIC_ACQUIRE);
	if (kind != SD_FD_NONE && ptr)
		*ptr = fd_ptr[fd];
	return kind;
}

/*
 * A pipe, so that read() and poll() in the program need no help. The device keeps a reader of its
 * own with its own O_NONBLOCK: it takes back the events of a destroyed object, and no write ever
 * raises SIGPIPE.
 */
struct sd_channel *sd_channel_new(size_t record, int *err)
{
	struct sd_channel *ch = calloc(1, sizeof(*ch));
	char path[32];
	int p[2];

	*err = ENOMEM;
	if (!ch)
		return NULL;
	if (pipe2(p, O_CLOEXEC)) {
		*err = errno;
		free(ch);
		return NULL;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", p[0]);
	*ch = (struct sd_channel){
		.fd = p[0], .wfd = p[1], .rfd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), .record = record, .refs = 1,
	};
	if (ch->rfd < 0 || fcntl(p[1], F_SETFL, O_NONBLOCK) || p[0] >= SD_MAX_FD) {
		*err = p[0] >= SD_MAX_FD ? EMFILE : errno;
		if (ch->rfd >= 0)
			close(ch->rfd);
		close(p[0]);
		close(p[1]);
		free(ch);
		return NULL;
	}
	sd_fd_set(ch->fd, SD_FD_CHANNEL, ch);
	return ch;
}

struct sd_channel *sd_channel_get(int fd, size_t record)
{
	void *ch = NULL;

	if (sd_fd_get(fd, &ch) != SD_FD_CHANNEL || ((struct sd_channel *)ch)->record != record)
		return NULL;
	return ch;
}

struct sd_channel *sd_channel_hold(struct sd_channel *ch)
{
	if (ch)
		ch->refs++;
	return ch;
}

void sd_channel_put(struct sd_channel *ch)
{
	if (!ch || --ch->refs)
		return;
	close(ch->wfd);
	close(ch->rfd);
	free(ch);
}

/* The program's end goes as well: it was never told of it */
void sd_channel_close(struct sd_channel *ch)
{
	int fd = ch->fd;

	sd_fd_set(fd, SD_FD_NONE, NULL);
	ch->fd = -1;
	sd_channel_put(ch);
	close(fd);
}

bool sd_channel_send(struct sd_channel *ch, const void *event)
{
	if (!ch || ch->fd < 0)
		return false;
	while (write(ch->wfd, event, ch->record) != (ssize_t)ch->record) {
		int size = fcntl(ch->wfd, F_GETPIPE_SZ);

		if (errno == EINTR)
			continue;
		if (errno != EAGAIN || size <= 0 || fcntl(ch->wfd, F_SETPIPE_SZ, 2 * size) < 0) {
			sd_once(0xffff0003, "an event channel is full; events are lost");
			return false;
		}
	}
	return true;
}

/* Takes the events of one object back that the program has not read; returns how many */
uint32_t sd_channel_take_back(struct sd_channel *ch, uint64_t element)
{
	struct ib_uverbs_async_event_desc *keep = NULL;
	uint8_t event[sizeof(*keep)];
	size_t n = 0, room = 0;
	uint32_t taken = 0;

	if (!ch)
		return 0;
	/* Both kinds of event start with the object's user handle */
	while (read(ch->rfd, event, ch->record) == (ssize_t)ch->record) {
		uint64_t of;

		memcpy(&of, event, sizeof(of));
		if (of == element) {
			taken++;
			continue;
		}
		if (n == room) {
			void *more = realloc(keep, (room ? 2 * room : 64) * sizeof(*keep));

			if (!more)
				break;
			keep = more;
			room = room ? 2 * room : 64;
		}
		memcpy(&keep[n++], event, ch->record);
	}
	for (size_t i = 0; i < n; i++)
		sd_channel_send(ch, &keep[i]);
	free(keep);
	return taken;
}
