/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects.c: the tables of the device: contexts, handles, PDs, doorbell pages, CQs, event channels,
 * and their reference counts.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../firmware/firmware.h"

#define PAGE 4096ull

pthread_mutex_t sd_lock = PTHREAD_MUTEX_INITIALIZER;
pid_t sd_self;

static struct handle {
	enum sd_kind kind;
	struct sd_ctx *ctx;
	void *obj;
} *handles;
static uint32_t handle_cnt, handle_hint;

/*
 * What an fd is to the device. The kind is read without a lock: every close() of the program passes
 * here
 */
static uint8_t fd_kind[SD_MAX_FD];
static void *fd_ptr[SD_MAX_FD];

static struct sd_numbers qps = { .max = SD_MAX_QP, .first = 0x40 };
static struct sd_numbers cqs = { .max = SD_MAX_CQ, .first = 0x40 };
static struct sd_numbers uars = { .max = SD_MAX_UAR, .first = 1 };
static struct sd_numbers pds = { .max = SD_MAX_PD, .first = 1 };
static struct sd_numbers uids = { .max = SD_MAX_UCTX, .first = 1 };

static struct host_qp *qp_list, **qp_tail = &qp_list;
static struct host_cq *cq_list, **cq_tail = &cq_list;
static struct host_uar *uar_list;
static bool started, orphaned;

void sd_once(uint32_t key, const char *fmt, ...)
{
	static uint32_t seen[64];
	static unsigned n;
	va_list ap;

	for (unsigned i = 0; i < n; i++)
		if (seen[i] == key)
			return;
	if (n == sizeof(seen) / sizeof(seen[0]))
		return;
	seen[n++] = key;
	fputs("softdev: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

int sd_number_new(struct sd_numbers *n, void *obj, uint32_t *number)
{
	if (!n->at) {
		n->at = calloc(n->max, sizeof(*n->at));
		if (!n->at)
			return ENOMEM;
		n->next = n->first;
	}
	for (uint32_t tries = n->first; tries < n->max; tries++) {
		uint32_t i = n->next;

		n->next = i + 1 < n->max ? i + 1 : n->first;
		if (!n->at[i]) {
			n->at[i] = obj;
			*number = i;
			return 0;
		}
	}
	return ENOMEM;
}

void *sd_number_get(const struct sd_numbers *n, uint32_t i)
{
	return n->at && i < n->max ? n->at[i] : NULL;
}

/* ---- handles ---- */

int sd_handle_new(struct sd_ctx *ctx, enum sd_kind kind, void *obj, uint32_t *handle)
{
	uint32_t i;

	for (i = handle_hint; i < handle_cnt; i++)
		if (handles[i].kind == SD_NONE)
			break;
	if (i == handle_cnt) {
		uint32_t cnt = handle_cnt ? 2 * handle_cnt : 256;
		struct handle *h = cnt <= 1u << 22 ? realloc(handles, cnt * sizeof(*h)) : NULL;

		if (!h)
			return ENOMEM;
		memset(h + handle_cnt, 0, (cnt - handle_cnt) * sizeof(*h));
		handles = h;
		handle_cnt = cnt;
	}
	handles[i] = (struct handle){ kind, ctx, obj };
	handle_hint = i + 1;
	*handle = i;
	return 0;
}

void *sd_handle_get(struct sd_ctx *ctx, enum sd_kind kind, uint32_t handle)
{
	if (handle >= handle_cnt || handles[handle].kind != kind || handles[handle].ctx != ctx)
		return NULL;
	return handles[handle].obj;
}

void *sd_handle_any(struct sd_ctx *ctx, uint32_t handle, enum sd_kind *kind)
{
	if (handle >= handle_cnt || handles[handle].kind == SD_NONE || handles[handle].ctx != ctx)
		return NULL;
	*kind = handles[handle].kind;
	return handles[handle].obj;
}

void sd_handle_free(uint32_t handle)
{
	handles[handle] = (struct handle){ .kind = SD_NONE };
	if (handle < handle_hint)
		handle_hint = handle;
}

/* ---- fds ---- */

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

static bool destroy_all(struct sd_ctx *ctx, enum sd_kind kind)
{
	bool any = false;
	uint32_t a, b;

	for (uint32_t i = 0; i < handle_cnt; i++)
		if (handles[i].kind == kind && handles[i].ctx == ctx)
			any |= !sd_destroy(ctx, kind, i, &a, &b);
	return any;
}

static void ctx_free(struct sd_ctx *ctx)
{
	ctx->closing = true;
	sd_devx_files_orphan(ctx);
	/* Of what commands made, one thing may be in use by another */
	while (destroy_all(ctx, SD_DEVX))
		;
	for (enum sd_kind kind = SD_NONE + 1; kind < SD_KINDS; kind++)
		destroy_all(ctx, kind);
	sd_uid_free(ctx);
	if (ctx->async)
		sd_channel_put(ctx->async);
	close(ctx->fd);
	free(ctx);
}

void sd_fd_adopt(int fd, dev_t st_dev, ino_t st_ino)
{
	pthread_mutex_lock(&sd_lock);
	for (int i = 0; fd < SD_MAX_FD && fd_kind[fd] == SD_FD_NONE && i < SD_MAX_FD; i++) {
		struct sd_ctx *ctx = fd_kind[i] == SD_FD_CMD ? fd_ptr[i] : NULL;

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
			ctx_free(ctx);
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

/*
 * A child has no engine thread, and its parent goes on with the device. What it inherited is dead
 * to it, but for device memory; if the parent had opened nothing, the child may.
 */
static void before_fork(void)
{
	pthread_mutex_lock(&sd_lock);
}

static void parent_after_fork(void)
{
	pthread_mutex_unlock(&sd_lock);
}

static void child_after_fork(void)
{
	sd_self = getpid();
	for (int fd = 0; fd < SD_MAX_FD; fd++)
		if (fd_kind[fd] != SD_FD_NONE)
			sd_fd_set(fd, SD_FD_ORPHAN, fd_kind[fd] == SD_FD_CMD ? fd_ptr[fd] : NULL);
	orphaned |= started;
	qp_list = NULL;
	qp_tail = &qp_list;
	cq_list = NULL;
	cq_tail = &cq_list;
	uar_list = NULL;
	sd_srq_forked();
	sd_devx_forked();
	sd_cm_forked();
	handle_cnt = handle_hint = 0;
	handles = NULL;
	pthread_mutex_unlock(&sd_lock);
}

static void watch_forks(void)
{
	sd_self = getpid();
	pthread_atfork(before_fork, parent_after_fork, child_after_fork);
}

/*
 * The page from which libmlx5 turns a CQE's timestamp into wall-clock time: the device's clock is
 * CLOCK_MONOTONIC in ns
 */
static void write_clock_info(int fd)
{
	struct mlx5_ib_clock_info ci = { .mult = 1, .mask = ~0ull, .overflow_period = ~0ull >> 2 };
	struct timespec mono, real;

	clock_gettime(CLOCK_MONOTONIC, &mono);
	clock_gettime(CLOCK_REALTIME, &real);
	ci.cycles = mono.tv_sec * 1000000000ull + mono.tv_nsec;
	ci.nsec = real.tv_sec * 1000000000ull + real.tv_nsec;
	if (pwrite(fd, &ci, sizeof(ci), (off_t)(MLX5_IB_MMAP_CLOCK_INFO << 8) * PAGE) != sizeof(ci))
		sd_once(0xffff0001, "no clock information: %m");
}

int sd_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
	int err = 0;

	pthread_once(&once, watch_forks);
	if (orphaned) {
		sd_once(0xffff0002, "a child of fork() cannot open a device that its parent had opened");
		return -ENODEV;
	}
	pthread_mutex_lock(&starting);
	if (!started) {
		err = sd_dm_start();
		err = err ? err : sd_engine_start();
		started = !err;
	}
	pthread_mutex_unlock(&starting);
	return err;
}

int sd_ctx_open(unsigned dev, bool cloexec)
{
	struct sd_ctx *ctx;
	int fd, own, err = sd_start();
	struct stat st;
	char name[16];

	if (err)
		return err;
	snprintf(name, sizeof(name), "uverbs%u", dev);
	fd = memfd_create(name, cloexec ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -errno;
	ctx = calloc(1, sizeof(*ctx));
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (!ctx || own < 0 || fd >= SD_MAX_FD || fstat(fd, &st) || ftruncate(fd, SD_CMD_FD_SIZE)) {
		err = !ctx ? -ENOMEM : fd >= SD_MAX_FD ? -EMFILE : -errno;
		free(ctx);
		if (own >= 0)
			close(own);
		close(fd);
		return err;
	}
	*ctx = (struct sd_ctx){ .fd = own, .fds = 1, .st_dev = st.st_dev, .st_ino = st.st_ino, .dev = dev };
	write_clock_info(fd);
	pthread_mutex_lock(&sd_lock);
	sd_fd_set(fd, SD_FD_CMD, ctx);
	pthread_mutex_unlock(&sd_lock);
	return fd;
}

/* ---- memory of the program ---- */

/*
 * The kernel pins pages and refuses what is not there; this asks the map. Lines are "start-end rwxp
 * ...", in order
 */
bool sd_mem_ok(uint64_t addr, uint64_t len, bool write)
{
	uint64_t at = addr, end = addr + len;
	char *line = NULL;
	size_t size = 0;
	FILE *f;

	if (!addr || !len || end < addr)
		return false;
	f = fopen("/proc/self/maps", "re");
	if (!f)
		return true;
	while (at < end && getline(&line, &size, f) > 0) {
		unsigned long long from, to;
		char perm[5];

		if (sscanf(line, "%llx-%llx %4s", &from, &to, perm) != 3 || to <= at)
			continue;
		if (from > at || perm[0] != 'r' || (write && perm[1] != 'w'))
			break;
		at = to;
	}
	free(line);
	fclose(f);
	return at >= end;
}

/* ---- event channels ---- */

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

void sd_cq_event(struct sd_cq *cq)
{
	struct host_cq *hc = sd_container(cq, struct host_cq, c);
	struct ib_uverbs_comp_event_desc ev = { .cq_handle = hc->user_handle };

	if (hc->devx)
		sd_devx_event(hc->devx, 0, 0);
	else if (sd_channel_send(cq->channel, &ev))
		hc->comp_events++;
}

void sd_async_cq(struct sd_cq *cq, enum ibv_event_type type)
{
	struct host_cq *hc = sd_container(cq, struct host_cq, c);
	struct ib_uverbs_async_event_desc ev = { .element = hc->user_handle, .event_type = type };

	if (hc->devx)
		sd_devx_event(hc->devx, sd_devx_event_type(type), 1);
	else if (sd_channel_send(hc->async, &ev))
		hc->async_events++;
}

void sd_async_qp(struct sd_qp *qp, enum ibv_event_type type)
{
	struct host_qp *hq = sd_container(qp, struct host_qp, q);
	struct ib_uverbs_async_event_desc ev = { .element = hq->user_handle, .event_type = type };

	if (qp->wq) {
		sd_async_wq(sd_container(qp, struct host_wq, q));
		return;
	}
	if (hq->devx)
		sd_devx_event(hq->devx, sd_devx_event_type(type), 0);
	else if (sd_channel_send(hq->async, &ev))
		hq->async_events++;
}

/* ---- PDs, address handles ---- */

int sd_pd_new(struct sd_ctx *ctx, struct sd_pd **made)
{
	struct sd_pd *pd = calloc(1, sizeof(*pd));
	int err = pd ? sd_number_new(&pds, pd, &pd->pdn) : ENOMEM;

	if (err) {
		free(pd);
		return err;
	}
	pd->ctx = ctx;
	*made = pd;
	return 0;
}

int sd_pd_free(struct sd_pd *pd)
{
	if (pd->refs)
		return EBUSY;
	pds.at[pd->pdn] = NULL;
	free(pd);
	return 0;
}

struct sd_pd *sd_pd_find(uint32_t pdn)
{
	return sd_number_get(&pds, pdn);
}

int sd_pd_create(struct sd_ctx *ctx, uint32_t *handle, uint32_t *pdn)
{
	struct sd_pd *pd;
	int err = sd_pd_new(ctx, &pd);

	if (err)
		return err;
	err = sd_handle_new(ctx, SD_PD, pd, handle);
	if (err)
		sd_pd_free(pd);
	else
		*pdn = pd->pdn;
	return err;
}

int sd_uid_new(struct sd_ctx *ctx)
{
	return sd_number_new(&uids, ctx, &ctx->uid);
}

void sd_uid_free(struct sd_ctx *ctx)
{
	if (ctx->uid)
		uids.at[ctx->uid] = NULL;
	ctx->uid = 0;
}

/* RoCE has no LIDs: its address is the GID, and the answer the MAC address that it stands for */
int sd_ah_create(struct sd_ctx *ctx, struct sd_pd *pd, const struct ib_uverbs_ah_attr *at, uint32_t *handle, uint8_t dmac[6])
{
	struct host_ah *ah;
	int err = at->port_num != 1 || (!sd_link_ib() && !at->is_global) ? EINVAL : 0;

	memset(dmac, 0, 6);
	if (!err && at->is_global)
		err = sd_gid(ctx->dev, at->grh.sgid_index, NULL, NULL);
	if (!err && !sd_link_ib())
		err = sd_resolve(at->grh.dgid, dmac);
	if (err)
		return err;
	ah = calloc(1, sizeof(*ah));
	err = ah ? sd_handle_new(ctx, SD_AH, ah, handle) : ENOMEM;
	if (err) {
		free(ah);
		return err;
	}
	ah->pd = pd;
	pd->refs++;
	return 0;
}

/* ---- doorbell pages ---- */

int sd_uar_create(struct sd_ctx *ctx, uint32_t *handle, uint32_t *page_id)
{
	struct host_uar *hu = calloc(1, sizeof(*hu));
	int err;

	if (!hu)
		return ENOMEM;
	err = sd_number_new(&uars, hu, page_id);
	if (err)
		goto free_uar;
	hu->u.page_id = *page_id;
	hu->u.st_dev = ctx->st_dev;
	hu->u.st_ino = ctx->st_ino;
	hu->u.offset = (SD_UAR_FIRST_PAGE + *page_id) * PAGE;
	hu->ctx = ctx;
	hu->refs = 1;
	hu->u.page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ctx->fd, (off_t)hu->u.offset);
	if (hu->u.page == MAP_FAILED) {
		err = errno;
		goto free_number;
	}
	err = sd_handle_new(ctx, SD_UAR, hu, handle);
	if (err)
		goto unmap;
	hu->next = uar_list;
	uar_list = hu;
	return 0;
unmap:
	munmap(hu->u.page, PAGE);
free_number:
	uars.at[*page_id] = NULL;
free_uar:
	free(hu);
	return err;
}

struct sd_uar *sd_uar_get(struct sd_ctx *ctx, uint32_t page_id)
{
	struct host_uar *hu = sd_number_get(&uars, page_id);

	if (!hu || hu->ctx != ctx)
		return NULL;
	hu->refs++;
	return &hu->u;
}

void sd_uar_put(struct sd_uar *u)
{
	struct host_uar *hu = sd_container(u, struct host_uar, u), **at;

	if (--hu->refs)
		return;
	for (at = &uar_list; *at != hu; at = &(*at)->next)
		;
	*at = hu->next;
	uars.at[u->page_id] = NULL;
	/* A later page of this number must start empty, as it would come from another context's file anyway */
	memset(u->page, 0, PAGE);
	munmap(u->page, PAGE);
	free(hu);
}

struct sd_uar *sd_uar_next(struct sd_uar *u)
{
	struct host_uar *hu = u ? sd_container(u, struct host_uar, u)->next : uar_list;

	return hu ? &hu->u : NULL;
}

/* ---- CQs ---- */

int sd_cq_add(struct host_cq *hc)
{
	int err = sd_number_new(&cqs, hc, &hc->c.cqn);

	if (err)
		return err;
	*cq_tail = hc;
	cq_tail = &hc->next;
	return 0;
}

int sd_cq_create(struct sd_ctx *ctx, const struct sd_cq_args *a, uint32_t *handle, uint32_t *cqn)
{
	struct host_cq *hc;
	struct sd_uar *uar;
	int err;

	if (a->entries < 2 || a->entries > SD_MAX_CQE || a->entries & (a->entries - 1) || (a->cqe_size != 64 && a->cqe_size != 128))
		return EINVAL;
	if (a->db % 8 || a->buf % 64)
		return EINVAL;
	if (!sd_mem_ok(a->db, 8, true) || !sd_mem_ok(a->buf, (uint64_t)a->entries * a->cqe_size, true))
		return EFAULT;
	uar = sd_uar_get(ctx, a->page_id);
	if (!uar)
		return EINVAL;
	hc = calloc(1, sizeof(*hc));
	err = hc ? sd_handle_new(ctx, SD_CQ, hc, handle) : ENOMEM;
	if (err)
		goto put_uar;
	hc->c = (struct sd_cq){ .ctx = ctx, .buf = (uint8_t *)(uintptr_t)a->buf, .cqe_cnt = a->entries, .cqe_size = a->cqe_size,
				.padded = a->padded,
				.dbrec = (volatile uint32_t *)(uintptr_t)a->db, .uar = uar, .channel = a->channel,
				.compression = a->compression, .mini_format = a->mini_format,
				.ignore_overrun = a->ignore_overrun, .timestamp = a->timestamp, .arm_seen = 0xffffffff };
	hc->user_handle = a->user_handle;
	err = sd_cq_add(hc);
	if (err)
		goto free_handle;
	sd_channel_hold(a->channel);
	hc->async = sd_channel_hold(a->async);
	/* The first arm at consumer index 0 writes 0 here and must be told from "never armed" */
	hc->c.dbrec[1] = 0xffffffff;
	sd_trap_page(uar);
	*cqn = hc->c.cqn;
	return 0;
free_handle:
	sd_handle_free(*handle);
put_uar:
	free(hc);
	sd_uar_put(uar);
	return err;
}

int sd_cq_resize(struct sd_cq *cq, uint32_t cqe, uint64_t buf, uint32_t cqe_size)
{
	uint32_t entries = 1;

	if (!cqe || cqe > SD_MAX_CQE)
		return EINVAL;
	while (entries < cqe + 1)
		entries <<= 1;
	if (entries > SD_MAX_CQE)
		return EINVAL;
	if (entries == cq->cqe_cnt)
		return 0;
	if ((cqe_size != 64 && cqe_size != 128) || buf % 64)
		return EINVAL;
	if (!sd_mem_ok(buf, (uint64_t)entries * cqe_size, true))
		return EFAULT;
	return sd_engine_cq_resize(cq, (uint8_t *)(uintptr_t)buf, entries, cqe_size);
}

void sd_cq_remove(struct host_cq *hc)
{
	struct host_cq **at;

	sd_engine_cq_destroyed(&hc->c);
	for (at = &cq_list; *at != hc; at = &(*at)->next)
		;
	*at = hc->next;
	if (!*at)
		cq_tail = at;
	cqs.at[hc->c.cqn] = NULL;
	sd_uar_put(hc->c.uar);
	sd_channel_put(hc->c.channel);
	sd_channel_put(hc->async);
	free(hc);
}

struct sd_cq *sd_cq_find(uint32_t cqn)
{
	struct host_cq *hc = sd_number_get(&cqs, cqn);

	return hc ? &hc->c : NULL;
}

struct sd_cq *sd_cq_next(struct sd_cq *cq)
{
	struct host_cq *hc = cq ? sd_container(cq, struct host_cq, c)->next : cq_list;

	return hc ? &hc->c : NULL;
}

/* ---- QPs: their table; the rest is in qp.c ---- */

int sd_qp_add(struct host_qp *hq)
{
	uint32_t index;
	int err = sd_number_new(&qps, hq, &index);

	if (err)
		return err;
	hq->q.qpn = sd_fabric_slot() << 16 | index;
	*qp_tail = hq;
	qp_tail = &hq->next;
	return 0;
}

void sd_qp_remove(struct host_qp *hq)
{
	struct host_qp **at;

	for (at = &qp_list; *at != hq; at = &(*at)->next)
		;
	*at = hq->next;
	if (!*at)
		qp_tail = at;
	qps.at[hq->q.qpn & 0xffff] = NULL;
	sd_qp_free(hq);
}

struct sd_qp *sd_qp_find(uint32_t qpn)
{
	struct host_qp *hq = sd_number_get(&qps, qpn & 0xffff);

	return hq && hq->q.qpn == qpn ? &hq->q : NULL;
}

struct sd_qp *sd_qp_next(struct sd_qp *qp)
{
	struct host_qp *hq = qp ? sd_container(qp, struct host_qp, q)->next : qp_list;

	return hq ? &hq->q : NULL;
}

/* ---- the end of any of them ---- */

int sd_destroy(struct sd_ctx *ctx, enum sd_kind kind, uint32_t handle, uint32_t *events, uint32_t *async_events)
{
	void *obj = sd_handle_get(ctx, kind, handle);
	struct host_qp *hq = obj;
	struct host_srq *hs = obj;
	struct host_cq *hc = obj;
	struct host_wq *hw = obj;
	int err;

	*events = *async_events = 0;
	if (!obj)
		return ENOENT;
	switch (kind) {
	case SD_PD:
		err = sd_pd_free(obj);
		if (err)
			return err;
		break;
	case SD_DEVX:
		err = sd_devx_free(obj);
		if (err)
			return err;
		break;
	case SD_UMEM:
		err = sd_umem_free(obj);
		if (err)
			return err;
		break;
	case SD_FLOW:
		sd_flow_free(obj);
		break;
	case SD_MATCHER:
		if (((struct sd_matcher *)obj)->refs)
			return EBUSY;
		free(obj);
		break;
	case SD_AH:
		((struct host_ah *)obj)->pd->refs--;
		free(obj);
		break;
	case SD_IND_TBL:
		if (((struct host_ind_tbl *)obj)->refs)
			return EBUSY;
		sd_ind_tbl_free(obj);
		break;
	case SD_WQ:
		if (hw->refs)
			return EBUSY;
		*async_events = hw->async_events - sd_channel_take_back(hw->async, hw->user_handle);
		sd_wq_free(hw);
		break;
	case SD_MW:
	case SD_MR:
		err = sd_mr_free(obj);
		if (err)
			return err;
		break;
	case SD_DM:
		err = sd_dm_free(obj);
		if (err)
			return err;
		break;
	case SD_XRCD:
		sd_xrcd_put(obj);
		break;
	case SD_UAR:
		sd_uar_put(&((struct host_uar *)obj)->u);
		break;
	case SD_CQ:
		if (hc->c.refs)
			return EBUSY;
		*events = hc->comp_events - sd_channel_take_back(hc->c.channel, hc->user_handle);
		*async_events = hc->async_events - sd_channel_take_back(hc->async, hc->user_handle);
		sd_cq_remove(hc);
		break;
	case SD_SRQ:
		if (hs->s.refs)
			return EBUSY;
		sd_engine_srq_destroyed(&hs->s);
		if (hs->s.xrcd) {
			hs->s.xrcd->refs--;
			hs->s.cq->refs--;
		}
		*async_events = hs->async_events - sd_channel_take_back(hs->async, hs->user_handle);
		sd_srq_free(hs);
		break;
	case SD_QP:
		if ((hq->groups || hq->flows) && !ctx->closing)
			return EBUSY;
		sd_engine_qp_destroyed(&hq->q);
		*async_events = hq->async_events - sd_channel_take_back(hq->async, hq->user_handle);
		sd_qp_remove(hq);
		break;
	default:
		return EINVAL;
	}
	sd_handle_free(handle);
	return 0;
}
