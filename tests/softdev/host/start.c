/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * start.c: the beginning and the end of what programs open; fork(). Wires the callbacks of the
 * lower rooms (sd_up).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "host.h"
#include "../softdev.h"

const struct sd_hooks sd_up = {
	.cq_event = sd_cq_event, .async_cq = sd_async_cq, .async_qp = sd_async_qp, .async_srq = sd_async_srq,
	.port_down = sd_async_port_down,
	.devx_event = sd_devx_event, .flow_deliver = sd_flow_deliver,
	.cm_message = sd_cm_message, .cm_peer_dead = sd_cm_peer_dead, .cm_work = sd_cm_work,
};

static SD_OWN bool started;

/* All that is marked SD_OWN, and a copy of it from before anything was opened */
extern char __start_sd_own[] __attribute__((visibility("hidden"))), __stop_sd_own[] __attribute__((visibility("hidden")));
static char *unopened;

/*
 * A child has no engine thread, and its parent goes on with the device. What it inherited is dead
 * to it, but for device memory. It may open the device afresh and is another process on the fabric.
 */
static void before_fork(void)
{
	pthread_mutex_lock(&sd_listings_lock);
	pthread_mutex_lock(&sd_lock);
}

static void parent_after_fork(void)
{
	pthread_mutex_unlock(&sd_lock);
	pthread_mutex_unlock(&sd_listings_lock);
}

static void child_after_fork(void)
{
	sd_self = getpid();
	for (int fd = 0; fd < SD_MAX_FD; fd++) {
		void *ctx = NULL;
		enum sd_fd_kind kind = sd_fd_get(fd, &ctx);

		if (kind != SD_FD_NONE)
			sd_fd_set(fd, SD_FD_ORPHAN, kind == SD_FD_CMD || kind == SD_FD_ORPHAN ? ctx : NULL);
	}
	sd_engine_forked();
	sd_cm_forked();
	if (unopened)
		memcpy(__start_sd_own, unopened, (size_t)(__stop_sd_own - __start_sd_own));
	parent_after_fork();
}

static void watch_forks(void)
{
	unopened = malloc((size_t)(__stop_sd_own - __start_sd_own));
	if (unopened)
		memcpy(unopened, __start_sd_own, (size_t)(__stop_sd_own - __start_sd_own));
	sd_self = getpid();
	pthread_atfork(before_fork, parent_after_fork, child_after_fork);
}

int sd_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static SD_OWN pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
	int err = 0;

	pthread_once(&once, watch_forks);
	if (!unopened)
		return -ENOMEM;
	pthread_mutex_lock(&starting);
	if (!started) {
		err = sd_dm_start();
		err = err ? err : sd_engine_start();
		started = !err;
	}
	pthread_mutex_unlock(&starting);
	return err;
}

void sd_fd_adopt(int fd, dev_t st_dev, ino_t st_ino)
{
	pthread_mutex_lock(&sd_lock);
	for (int i = 0; fd < SD_MAX_FD && sd_fd_get(fd, NULL) == SD_FD_NONE && i < SD_MAX_FD; i++) {
		void *ptr = NULL;
		struct sd_ctx *ctx = sd_fd_get(i, &ptr) == SD_FD_CMD ? ptr : NULL;

		if (ctx && ctx->fd != fd && ctx->st_dev == st_dev && ctx->st_ino == st_ino) {
			ctx->fds++;
			sd_fd_set(fd, SD_FD_CMD, ctx);
		}
	}
	pthread_mutex_unlock(&sd_lock);
}

void sd_fd_closing(int fd)
{
	void *ptr = NULL;
	enum sd_fd_kind kind;

	pthread_mutex_lock(&sd_lock);
	kind = sd_fd_get(fd, &ptr);
	if (kind != SD_FD_NONE)
		sd_fd_set(fd, SD_FD_NONE, NULL);
	if (kind == SD_FD_CMD) {
		struct sd_ctx *ctx = ptr;

		if (!--ctx->fds)
			sd_ctx_free(ctx);
	} else if (kind == SD_FD_CHANNEL) {
		((struct sd_channel *)ptr)->fd = -1;
		sd_channel_put(ptr);
	} else if (kind == SD_FD_CM) {
		sd_cm_closed(ptr);
	} else if (kind == SD_FD_DEVX) {
		sd_devx_file_closed(ptr);
	}
	pthread_mutex_unlock(&sd_lock);
}

/* ---- for tests/softdev/run ---- */

const char *softdev_version(void)
{
	return SOFTDEV_VERSION;
}

/*
 * tests/softdev/run has the specification looked at before the program starts, and asks for the
 * version: one grammar and one version, in one place
 */
__attribute__((constructor)) static void check_only(void)
{
	const char *check = getenv("SOFTDEV_CHECK");

	if (check && !strcmp(check, "version"))
		_exit(printf("softmlx5 %s\n", softdev_version()) < 0 || fflush(stdout));
	if (check)
		_exit(fault_start() ? 2 : 0);
}
