/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * preload.c: the libc calls through which libibverbs and others find, open and command a device.
 *
 * Paths of InfiniBand classes and devices lead to the tree that sysfs.c makes. The command device is
 * a memfd. Every other call goes to the next definition of the function, which is looked up at its
 * first use: constructors of other objects may run before ours.
 */
#undef _FORTIFY_SOURCE            /* its inline wrappers would be redefined here */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include "host.h"

#define EXPORT __attribute__((visibility("default")))

/*
 * next_ is the function that we stand before; it is there for every name below, on every libc that
 * this device is for
 */
#define NEXT(name)                                                         \
	static __typeof__(name) *next_;                                    \
	if (!__atomic_load_n(&next_, __ATOMIC_RELAXED))                    \
		__atomic_store_n(&next_, (__typeof__(next_))dlsym(RTLD_NEXT, #name), __ATOMIC_RELAXED)

#define CDEV "/dev/infiniband/uverbs"

/*
 * The old names of the stat family and the checked ones of a fortified program; no header has them
 */
int __xstat(int ver, const char *path, struct stat *st);
int __xstat64(int ver, const char *path, struct stat64 *st);
int __lxstat(int ver, const char *path, struct stat *st);
int __lxstat64(int ver, const char *path, struct stat64 *st);
int __fxstat(int ver, int fd, struct stat *st);
int __fxstat64(int ver, int fd, struct stat64 *st);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
ssize_t __read_chk(int fd, void *buf, size_t len, size_t size);
ssize_t __readlink_chk(const char *path, char *buf, size_t len, size_t size);
char *__realpath_chk(const char *path, char *buf, size_t size);

static bool begins(const char *path, const char *with)
{
	return !strncmp(path, with, strlen(with));
}

static __attribute__((noinline)) bool ours(const char *path)
{
	if (!path || path[0] != '/')
		return false;
	return begins(path, "/sys/class/infiniband") || begins(path, "/dev/infiniband") || begins(path, "/sys/devices/pci7f00:00") ||
	       begins(path, "/sys/class/misc/rdma_cm") ||
	       begins(path, "/sys/bus/pci/devices/7f00:");
}

/* Where a path is really to be looked up: as it is, or in the tree; NULL with errno */
static const char *lead(const char *path, char *buf)
{
	const char *tree;

	/* libfabric looks for a driver in the kernel's symbols, twice, which takes longer than all else it does at first */
	if (path && !strcmp(path, "/proc/kallsyms")) {
		errno = ENOENT;
		return NULL;
	}
	if (!ours(path))
		return path;
	tree = sd_tree();
	if (!tree) {
		errno = ENOENT;
		return NULL;
	}
	if (snprintf(buf, PATH_MAX, "%s%s", tree, path) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return buf;
}

#define LEAD(path, fail)                                                   \
	char led_[PATH_MAX];                                               \
	const char *at_ = lead(path, led_);                                \
	if (!at_)                                                          \
		return fail

/* The number of the device whose command file this is, SD_CDEV_CM, or -1 */
static int cdev(const char *path)
{
	const char *n = path + sizeof(CDEV) - 1;

	if (ours(path) && !strcmp(path, "/dev/infiniband/rdma_cm"))
		return SD_CDEV_CM;
	if (!ours(path) || !begins(path, CDEV) || *n < '0' || *n >= '0' + (int)sd_devices() || n[1])
		return -1;
	return *n - '0';
}

static int open_cdev(int dev, int flags)
{
	int fd;

	if ((flags & O_ACCMODE) != O_RDWR && (flags & O_ACCMODE) != O_WRONLY) {
		errno = EACCES;
		return -1;
	}
	fd = sd_start();
	if (!fd)
		fd = dev == SD_CDEV_CM ? sd_cm_open(flags) : sd_ctx_open(dev, flags & O_CLOEXEC);
	if (fd < 0) {
		errno = -fd;
		return -1;
	}
	return fd;
}

/* ---- open ---- */

#define HAS_MODE(flags) ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE)

#define OPEN(name)                                                         \
	EXPORT int name(const char *path, int flags, ...)                  \
	{                                                                  \
		mode_t mode = 0;                                           \
		va_list ap;                                                \
		NEXT(name);                                                \
		if (HAS_MODE(flags)) {                                     \
			va_start(ap, flags);                               \
			mode = va_arg(ap, mode_t);                         \
			va_end(ap);                                        \
		}                                                          \
		if (cdev(path) >= 0)                                       \
			return open_cdev(cdev(path), flags);               \
		LEAD(path, -1);                                            \
		return next_(at_, flags, mode);                            \
	}
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                       \
	EXPORT int name(int dir, const char *path, int flags, ...)         \
	{                                                                  \
		mode_t mode = 0;                                           \
		va_list ap;                                                \
		NEXT(name);                                                \
		if (HAS_MODE(flags)) {                                     \
			va_start(ap, flags);                               \
			mode = va_arg(ap, mode_t);                         \
			va_end(ap);                                        \
		}                                                          \
		if (cdev(path) >= 0)                                       \
			return open_cdev(cdev(path), flags);               \
		LEAD(path, -1);                                            \
		return next_(dir, at_, flags, mode);                       \
	}
OPENAT(openat)
OPENAT(openat64)

#define OPEN_2(name)                                                       \
	EXPORT int name(const char *path, int flags)                       \
	{                                                                  \
		NEXT(name);                                                \
		if (cdev(path) >= 0)                                       \
			return open_cdev(cdev(path), flags);               \
		LEAD(path, -1);                                            \
		return next_(at_, flags);                                  \
	}
OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT_2(name)                                                     \
	EXPORT int name(int dir, const char *path, int flags)              \
	{                                                                  \
		NEXT(name);                                                \
		if (cdev(path) >= 0)                                       \
			return open_cdev(cdev(path), flags);               \
		LEAD(path, -1);                                            \
		return next_(dir, at_, flags);                             \
	}
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

#define FOPEN(name)                                                        \
	EXPORT FILE *name(const char *path, const char *mode)              \
	{                                                                  \
		NEXT(name);                                                \
		LEAD(path, NULL);                                          \
		return next_(at_, mode);                                   \
	}
FOPEN(fopen)
FOPEN(fopen64)

EXPORT int scandir(const char *path, struct dirent ***list, int (*keep)(const struct dirent *),
		   int (*order)(const struct dirent **, const struct dirent **))
{
	NEXT(scandir);
	LEAD(path, -1);
	return next_(at_, list, keep, order);
}

/*
 * In which order a directory of the tree is read is the file system's whim, and libibverbs' list of
 * devices is in that order. As sysfs keeps to the order in which the devices came, so do we: these
 * directories are read at once, and sorted.
 */
struct listing {
	DIR *dir;
	struct dirent *entries;
	size_t cnt, at;
	struct listing *next;
};
static struct listing *listings;
pthread_mutex_t sd_listings_lock = PTHREAD_MUTEX_INITIALIZER;

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct dirent *)a)->d_name, ((const struct dirent *)b)->d_name);
}

static void list_sorted(DIR *dir)
{
	struct listing *l = calloc(1, sizeof(*l));
	struct dirent *e, *more;

	NEXT(readdir);
	while (l && (e = next_(dir))) {
		more = realloc(l->entries, (l->cnt + 1) * sizeof(*more));
		if (!more)
			break;
		l->entries = more;
		more[l->cnt] = (struct dirent){ .d_ino = e->d_ino, .d_off = l->cnt, .d_reclen = e->d_reclen, .d_type = e->d_type };
		strcpy(more[l->cnt++].d_name, e->d_name);
	}
	if (!l)
		return;
	if (l->cnt)
		qsort(l->entries, l->cnt, sizeof(*l->entries), by_name);
	l->dir = dir;
	pthread_mutex_lock(&sd_listings_lock);
	l->next = listings;
	__atomic_store_n(&listings, l, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&sd_listings_lock);
}

/* With the lock held when there is one, which is only for these directories */
static struct listing **listing_of(DIR *dir)
{
	struct listing **at;

	if (!__atomic_load_n(&listings, __ATOMIC_ACQUIRE))
		return NULL;
	pthread_mutex_lock(&sd_listings_lock);
	for (at = &listings; *at; at = &(*at)->next)
		if ((*at)->dir == dir)
			return at;
	pthread_mutex_unlock(&sd_listings_lock);
	return NULL;
}

EXPORT DIR *opendir(const char *path)
{
	DIR *dir;

	NEXT(opendir);
	LEAD(path, NULL);
	dir = next_(at_);
	if (dir && at_ != path)
		list_sorted(dir);
	return dir;
}

#define READDIR(name, type)                                                \
	EXPORT type *name(DIR *dir)                                        \
	{                                                                  \
		struct listing **l = listing_of(dir);                      \
		type *e = NULL;                                            \
		NEXT(name);                                                \
		if (!l)                                                    \
			return next_(dir);                                 \
		if ((*l)->at < (*l)->cnt)                                  \
			e = (type *)(void *)&(*l)->entries[(*l)->at++];    \
		pthread_mutex_unlock(&sd_listings_lock);                      \
		return e;                                                  \
	}
_Static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "64 bits everywhere");
READDIR(readdir, struct dirent)
READDIR(readdir64, struct dirent64)

EXPORT void rewinddir(DIR *dir)
{
	struct listing **l = listing_of(dir);

	NEXT(rewinddir);
	if (l) {
		(*l)->at = 0;
		pthread_mutex_unlock(&sd_listings_lock);
	}
	next_(dir);
}

EXPORT int closedir(DIR *dir)
{
	struct listing **l = listing_of(dir), *gone;

	NEXT(closedir);
	if (l) {
		gone = *l;
		__atomic_store_n(l, gone->next, __ATOMIC_RELEASE);
		pthread_mutex_unlock(&sd_listings_lock);
		free(gone->entries);
		free(gone);
	}
	return next_(dir);
}

/* ---- stat: a command fd and its path are a character device ---- */

#define MAKE_CDEV(st, dev)                                                 \
	((st)->st_mode = S_IFCHR | 0666, (st)->st_rdev = makedev(SD_CDEV_MAJOR, SD_CDEV_MINOR + (dev)), (st)->st_size = 0)

#define FD_CDEV(fd, st) ((st)->st_size == SD_CMD_FD_SIZE ? sd_fd_adopt(fd, (st)->st_dev, (st)->st_ino) : (void)0, fd_cdev(fd))

/*
 * A dup() of a command file is one too: with fstat(), libibverbs asks what ibv_import_device() was
 * given
 */
static int fd_cdev(int fd)
{
	void *ctx;

	switch (sd_fd_get(fd, &ctx)) {
	case SD_FD_CMD:
		return ((struct sd_ctx *)ctx)->dev;
	case SD_FD_CM:
		return SD_CDEV_CM;
	default:
		return -1;
	}
}

#define STAT(name, type)                                                   \
	EXPORT int name(const char *path, type *st)                        \
	{                                                                  \
		int ret;                                                   \
		NEXT(name);                                                \
		LEAD(path, -1);                                            \
		ret = next_(at_, st);                                      \
		if (!ret && cdev(path) >= 0)                               \
			MAKE_CDEV(st, cdev(path));                         \
		return ret;                                                \
	}
STAT(stat, struct stat)
STAT(stat64, struct stat64)
STAT(lstat, struct stat)
STAT(lstat64, struct stat64)

#define XSTAT(name, type)                                                  \
	EXPORT int name(int ver, const char *path, type *st)               \
	{                                                                  \
		int ret;                                                   \
		NEXT(name);                                                \
		LEAD(path, -1);                                            \
		ret = next_(ver, at_, st);                                 \
		if (!ret && cdev(path) >= 0)                               \
			MAKE_CDEV(st, cdev(path));                         \
		return ret;                                                \
	}
XSTAT(__xstat, struct stat)
XSTAT(__xstat64, struct stat64)
XSTAT(__lxstat, struct stat)
XSTAT(__lxstat64, struct stat64)

#define FSTAT(name, type)                                                  \
	EXPORT int name(int fd, type *st)                                  \
	{                                                                  \
		int ret;                                                   \
		NEXT(name);                                                \
		ret = next_(fd, st);                                       \
		if (!ret && FD_CDEV(fd, st) >= 0)                          \
			MAKE_CDEV(st, fd_cdev(fd));                        \
		return ret;                                                \
	}
FSTAT(fstat, struct stat)
FSTAT(fstat64, struct stat64)

#define FXSTAT(name, type)                                                 \
	EXPORT int name(int ver, int fd, type *st)                         \
	{                                                                  \
		int ret;                                                   \
		NEXT(name);                                                \
		ret = next_(ver, fd, st);                                  \
		if (!ret && FD_CDEV(fd, st) >= 0)                          \
			MAKE_CDEV(st, fd_cdev(fd));                        \
		return ret;                                                \
	}
FXSTAT(__fxstat, struct stat)
FXSTAT(__fxstat64, struct stat64)

EXPORT int statx(int dir, const char *path, int flags, unsigned mask, struct statx *st)
{
	int ret;

	NEXT(statx);
	LEAD(path, -1);
	ret = next_(dir, at_, flags, mask, st);
	if (!ret && cdev(path) >= 0) {
		st->stx_mode = S_IFCHR | 0666;
		st->stx_rdev_major = SD_CDEV_MAJOR;
		st->stx_rdev_minor = SD_CDEV_MINOR + cdev(path);
	}
	return ret;
}

EXPORT int fstatat(int dir, const char *path, struct stat *st, int flags)
{
	int ret, dev;

	NEXT(fstatat);
	LEAD(path, -1);
	ret = next_(dir, at_, st, flags);
	dev = flags & AT_EMPTY_PATH && !*path ? fd_cdev(dir) : cdev(path);
	if (!ret && dev >= 0)
		MAKE_CDEV(st, dev);
	return ret;
}

EXPORT int access(const char *path, int mode)
{
	NEXT(access);
	LEAD(path, -1);
	return next_(at_, mode);
}

EXPORT int faccessat(int dir, const char *path, int mode, int flags)
{
	NEXT(faccessat);
	LEAD(path, -1);
	return next_(dir, at_, mode, flags);
}

/* ---- links ---- */

EXPORT ssize_t readlink(const char *path, char *buf, size_t len)
{
	NEXT(readlink);
	LEAD(path, -1);
	return next_(at_, buf, len);
}

EXPORT ssize_t __readlink_chk(const char *path, char *buf, size_t len, size_t size)
{
	NEXT(__readlink_chk);
	LEAD(path, -1);
	return next_(at_, buf, len, size);
}

/* The answer must be a path under /sys again, as if the tree were there */
static char *real_path(const char *path, char *buf, char *(*next)(const char *, char *))
{
	char found[PATH_MAX];
	const char *tree;

	LEAD(path, NULL);
	if (at_ == path)
		return next(path, buf);
	if (!next(at_, found))
		return NULL;
	tree = sd_tree();
	/* The path of the fabric's directory may have links in it */
	if (!next(tree, led_) || !begins(found, led_)) {
		errno = ENOENT;
		return NULL;
	}
	if (!buf)
		return strdup(found + strlen(led_));
	return strcpy(buf, found + strlen(led_));
}

EXPORT char *realpath(const char *path, char *buf)
{
	NEXT(realpath);
	return real_path(path, buf, next_);
}

EXPORT char *__realpath_chk(const char *path, char *buf, size_t size)
{
	NEXT(realpath);
	if (size < PATH_MAX)
		abort();
	return real_path(path, buf, next_);
}

EXPORT char *canonicalize_file_name(const char *path)
{
	return realpath(path, NULL);
}

/* ---- fds ---- */

EXPORT int socket(int domain, int type, int protocol)
{
	NEXT(socket);
	/* Without the RDMA netlink, libibverbs looks at sysfs */
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return next_(domain, type, protocol);
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	void *arg, *ctx = NULL;
	enum sd_fd_kind kind;
	va_list ap;
	int err;

	NEXT(ioctl);
	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	kind = request == RDMA_VERBS_IOCTL ? sd_fd_get(fd, &ctx) : SD_FD_NONE;
	if (kind != SD_FD_CMD && kind != SD_FD_ORPHAN)
		return next_(fd, request, arg);
	err = ctx ? sd_ioctl(ctx, arg, kind == SD_FD_ORPHAN) : EIO;
	if (!err)
		return 0;
	errno = err;
	return -1;
}

/* What is read from the files of device commands does not come through a pipe */
static ssize_t devx_read(int fd, void *buf, size_t len)
{
	ssize_t n = sd_devx_read(fd, buf, len);

	if (n >= 0)
		return n;
	errno = -n;
	return -1;
}

EXPORT ssize_t read(int fd, void *buf, size_t len)
{
	NEXT(read);
	return sd_fd_get(fd, NULL) == SD_FD_DEVX ? devx_read(fd, buf, len) : next_(fd, buf, len);
}

EXPORT ssize_t __read_chk(int fd, void *buf, size_t len, size_t size)
{
	NEXT(__read_chk);
	return sd_fd_get(fd, NULL) == SD_FD_DEVX && len <= size ? devx_read(fd, buf, len) : next_(fd, buf, len, size);
}

/* Commands of the connection manager; of a parent's there are none */
EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
	enum sd_fd_kind kind = sd_fd_get(fd, NULL);
	ssize_t n = -EIO;

	NEXT(write);
	if (kind != SD_FD_CM && kind != SD_FD_ORPHAN)
		return next_(fd, buf, len);
	if (kind == SD_FD_CM)
		n = sd_cm_write(fd, buf, len);
	if (n >= 0)
		return n;
	errno = -n;
	return -1;
}

EXPORT int close(int fd)
{
	NEXT(close);
	if (sd_fd_get(fd, NULL) != SD_FD_NONE)
		sd_fd_closing(fd);
	return next_(fd);
}

/* A program that yields waits for something */
EXPORT int sched_yield(void)
{
	NEXT(sched_yield);
	return sd_engine_lend() ? 0 : next_();
}
