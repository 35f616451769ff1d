/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.c: the fabric: the processes on it, and frames between them.
 *
 * The fabric is a directory that belongs to one user: $SOFTDEV_FABRIC, or softdev-UID in
 * $XDG_RUNTIME_DIR or /tmp. A process holds slot N by a lock on N.lock and listens on N.sock.
 * N.lock also holds its random instance number. The lock goes with the process, however it ends, so
 * the next process simply takes the slot of a killed one. POSIX locks are used: a child does not
 * inherit them.
 *
 * A connection carries frames one way, from the process that made it; the other way has a
 * connection of its own. It begins with a hello that names both instances, so that nobody talks to
 * a successor in a slot. Everything that arrives is checked; a peer that breaks the format is cut
 * off. Incoming frames are always taken, whatever the state of the outgoing queues (answers wait in
 * the QPs, which bounds them), so two processes that send to each other cannot block each other.
 * Only a message that would be lost for want of a receive WQE delays the frames after it, for a
 * moment: see rx_starves().
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <linux/sockios.h>
#include "eng.h"

#define MAGIC 0x736f667464657631ull
#define ROOM (512u << 10)               /* payload is queued while less than this waits */
#define HARD (8u << 20)                 /* and no answer beyond this, which only a peer that does not read can reach */
#define IN_BUF (512u << 10)
#define STALL_NAP 100000ull             /* ns */
#define MAX_IN (2 * SD_MAX_SLOTS)

struct hello {
	uint64_t magic;
	uint32_t slot, size;
	uint64_t from, to;
};

struct out {
	int fd;
	bool open, dead, watched;
	uint64_t inst;
	uint8_t *buf;
	size_t head, len, cap;
};

struct in {
	int fd;
	bool used, hello, dead;
	bool stalled;                   /* a frame waits a little for a receive WQE */
	unsigned slot;
	uint64_t inst;
	uint8_t *buf;
	size_t len;
};

static SD_OWN struct out outs[SD_MAX_SLOTS];
static SD_OWN struct in ins[MAX_IN];
static SD_OWN uint64_t my_inst;
static SD_OWN pid_t my_pid;
static SD_OWN int dirfd_ = -1, lockfd = -1, listenfd = -1, epfd = -1, wakefd = -1;
static SD_OWN unsigned top_out, top_in;        /* one beyond the highest in use */
static SD_OWN uint64_t last_check;
static SD_OWN bool any_stalled;

/* close() and open() are preload.c's in this object; these are the kernel's */
static void fd_close(int fd)
{
	syscall(SYS_close, fd);
}

static int fd_open(int dir, const char *name, int flags, mode_t mode)
{
	return syscall(SYS_openat, dir, name, flags | O_CLOEXEC, mode);
}

static int open_dir(void)
{
	const char *path = sd_fabric_dir();
	struct stat st;
	int fd;

	if (!path)
		return -errno;
	fd = fd_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	if (fd < 0)
		return -errno;
	/* Somebody else's directory could lead us anywhere */
	if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || st.st_mode & 022) {
		fd_close(fd);
		return -EPERM;
	}
	return fd;
}

static void sock_name(struct sockaddr_un *a, unsigned slot)
{
	memset(a, 0, sizeof *a);
	a->sun_family = AF_UNIX;
	/* Through the directory's descriptor: a path may be longer than sun_path */
	snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/%u.sock", dirfd_, slot);
}

static bool take_lock(unsigned slot)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct stat a, b;
	char name[32];
	int fd;

	snprintf(name, sizeof name, "%u.lock", slot);
	fd = fd_open(dirfd_, name, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
	if (fd < 0)
		return false;
	/* The name may have been removed by the last owner between open and lock */
	if (fcntl(fd, F_SETLK, &l) != 0 || fstat(fd, &a) != 0 || fstatat(dirfd_, name, &b, AT_SYMLINK_NOFOLLOW) != 0 ||
	    a.st_ino != b.st_ino || pwrite(fd, &my_inst, sizeof my_inst, 0) != sizeof my_inst) {
		fd_close(fd);
		return false;
	}
	lockfd = fd;
	return true;
}

/* Files of killed processes: a slot whose lock can be taken is free */
static void sweep(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct stat a, b;
	char name[32];
	unsigned i;

	for (i = 1; i < SD_MAX_SLOTS; i++) {
		int fd;

		snprintf(name, sizeof name, "%u.lock", i);
		fd = i == sd_slot ? -1 : fd_open(dirfd_, name, O_RDWR | O_NOFOLLOW, 0);
		if (fd < 0)
			continue;
		if (fcntl(fd, F_SETLK, &l) == 0 && fstat(fd, &a) == 0 && fstatat(dirfd_, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
		    a.st_ino == b.st_ino) {
			char sock[32];

			snprintf(sock, sizeof sock, "%u.sock", i);
			unlinkat(dirfd_, sock, 0);
			unlinkat(dirfd_, name, 0);
		}
		fd_close(fd);
	}
}

static void leave(void)
{
	char name[32];

	/* Not in a forked child: the slot is its parent's */
	if (!sd_slot || getpid() != my_pid)
		return;
	snprintf(name, sizeof name, "%u.sock", sd_slot);
	unlinkat(dirfd_, name, 0);
	snprintf(name, sizeof name, "%u.lock", sd_slot);
	unlinkat(dirfd_, name, 0);
}

__attribute__((destructor)) static void at_unload(void)
{
	leave();
}

void sd_engine_forked(void)
{
	const int own[] = { dirfd_, lockfd, listenfd, epfd, wakefd };

	for (unsigned i = 0; i < sizeof own / sizeof own[0]; i++)
		if (own[i] >= 0)
			fd_close(own[i]);
	for (unsigned i = 0; i < top_out; i++)
		if (outs[i].open)
			fd_close(outs[i].fd);
	for (unsigned i = 0; i < top_in; i++)
		if (ins[i].used)
			fd_close(ins[i].fd);
}

static void watch(int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event e = { .events = events, .data.u64 = data };

	epoll_ctl(epfd, op, fd, &e);
}

/* What an epoll event is about: kind << 32 | index */
enum { ON_LISTEN = 1, ON_WAKE, ON_IN, ON_OUT };

int wire_join(void)
{
	struct sockaddr_un a;
	unsigned i, first;
	int ret;

	my_pid = getpid();
	do {
		if (getrandom(&my_inst, sizeof my_inst, 0) != sizeof my_inst)
			return -EIO;
	} while (!my_inst);
	dirfd_ = open_dir();
	if (dirfd_ < 0)
		return dirfd_;
	/* Not always the lowest: a number that was just given back is not taken again at once */
	first = (unsigned)my_pid % (SD_MAX_SLOTS - 1);
	for (i = 0; i < SD_MAX_SLOTS - 1; i++)
		if (take_lock(1 + (first + i) % (SD_MAX_SLOTS - 1)))
			break;
	if (i == SD_MAX_SLOTS - 1) {
		fd_close(dirfd_);
		return -EAGAIN;
	}
	sd_slot = 1 + (first + i) % (SD_MAX_SLOTS - 1);
	sock_name(&a, sd_slot);
	unlink(a.sun_path);
	listenfd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	epfd = epoll_create1(EPOLL_CLOEXEC);
	wakefd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (listenfd < 0 || epfd < 0 || wakefd < 0 || bind(listenfd, (struct sockaddr *)&a, sizeof a) != 0 ||
	    listen(listenfd, 64) != 0) {
		ret = -errno;
		leave();
		sd_slot = 0;
		return ret;
	}
	sweep();
	watch(EPOLL_CTL_ADD, listenfd, EPOLLIN, (uint64_t)ON_LISTEN << 32);
	watch(EPOLL_CTL_ADD, wakefd, EPOLLIN, (uint64_t)ON_WAKE << 32);
	return 0;
}

uint64_t wire_instance(unsigned slot)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	uint64_t inst = 0;
	char name[32];
	int fd;

	/* Our own file is not touched: closing it would drop the lock */
	if (slot == sd_slot || !slot || slot >= SD_MAX_SLOTS || dirfd_ < 0)
		return slot == sd_slot ? my_inst : 0;
	snprintf(name, sizeof name, "%u.lock", slot);
	fd = fd_open(dirfd_, name, O_RDONLY | O_NOFOLLOW, 0);
	if (fd < 0)
		return 0;
	if (fcntl(fd, F_GETLK, &l) != 0 || l.l_type == F_UNLCK || pread(fd, &inst, sizeof inst, 0) != sizeof inst)
		inst = 0;
	fd_close(fd);
	return inst;
}

uint64_t wire_peer(unsigned slot)
{
	return slot && slot < SD_MAX_SLOTS && outs[slot].open && !outs[slot].dead ? outs[slot].inst : wire_instance(slot);
}

/*
 * The directory is read again only when it has changed, or so lately that its time stamp need not
 * show the next change
 */
unsigned wire_others(uint8_t *slots)
{
	static uint8_t known[SD_MAX_SLOTS];
	static unsigned n;
	static SD_OWN struct timespec seen;
	struct timespec now;
	struct stat st;
	unsigned i;

	_Static_assert(SD_MAX_SLOTS <= 256, "a slot fits a byte");
	if (dirfd_ < 0 || fstat(dirfd_, &st) != 0)
		return 0;
	if (st.st_mtim.tv_sec != seen.tv_sec || st.st_mtim.tv_nsec != seen.tv_nsec) {
		for (i = 1, n = 0; i < SD_MAX_SLOTS; i++)
			if (i != sd_slot && wire_instance(i))
				known[n++] = i;
		clock_gettime(CLOCK_REALTIME, &now);
		seen = now.tv_sec - st.st_mtim.tv_sec > 1 ? st.st_mtim : (struct timespec){ 0, 0 };
	}
	memcpy(slots, known, n);
	return n;
}

/* ---- outgoing ---- */

static void out_close(struct out *o)
{
	if (o->open)
		fd_close(o->fd);
	free(o->buf);
	o->buf = NULL;
	o->open = o->watched = false;
	o->head = o->len = o->cap = 0;
}

static bool in_read(struct in *in);
static bool accept_one(void);

static void out_dead(unsigned slot)
{
	struct out *o = &outs[slot];
	uint64_t inst = o->inst;
	unsigned i;

	if (o->dead)
		return;
	out_close(o);
	o->dead = true;
	/* It may have answered before it went, even on a connection that waits to be accepted */
	while (accept_one())
		;
	for (i = 0; i < top_in; i++)
		while (ins[i].used && !ins[i].dead && (!ins[i].hello || (ins[i].slot == slot && ins[i].inst == inst)))
			if (!in_read(&ins[i]))
				break;
	eng_peer_dead(slot, inst);
}

static int out_append(struct out *o, const void *p, size_t n)
{
	if (o->head && o->head + o->len + n > o->cap) {
		memmove(o->buf, o->buf + o->head, o->len);
		o->head = 0;
	}
	if (o->len + n > o->cap) {
		size_t cap = o->cap ? o->cap : 64u << 10;
		uint8_t *b;

		while (cap < o->len + n)
			cap *= 2;
		b = realloc(o->buf, cap);
		if (!b)
			return -EAGAIN;
		o->buf = b;
		o->cap = cap;
	}
	if (p) {
		memcpy(o->buf + o->head + o->len, p, n);
		o->len += n;
	}
	return 0;
}

static int out_open(unsigned slot, uint64_t inst)
{
	struct hello h = { MAGIC, sd_slot, sizeof(struct frame), my_inst, inst };
	struct out *o = &outs[slot];
	struct sockaddr_un a;

	if (o->inst == inst && o->open)
		return 0;
	if (o->inst == inst && o->dead)
		return -EPIPE;
	if (!inst || wire_instance(slot) != inst)
		return -EPIPE;
	/* A successor has the slot: the process before it is gone */
	if (o->inst && !o->dead)
		out_dead(slot);
	out_close(o);
	o->dead = false;
	o->inst = inst;
	o->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (o->fd < 0)
		return -EAGAIN;
	sock_name(&a, slot);
	if (connect(o->fd, (struct sockaddr *)&a, sizeof a) != 0) {
		int err = errno;

		fd_close(o->fd);
		/* Its queue is full, or it has the lock and does not listen yet */
		return err == EAGAIN || err == ENOENT || err == ECONNREFUSED || err == EINTR ? -EAGAIN : -EPIPE;
	}
	o->open = true;
	top_out = slot + 1 > top_out ? slot + 1 : top_out;
	watch(EPOLL_CTL_ADD, o->fd, EPOLLRDHUP, (uint64_t)ON_OUT << 32 | slot);
	return out_append(o, &h, sizeof h);
}

/* Has it not had its turn since something was sent to it? */
bool sd_fabric_unread(unsigned slot)
{
	const struct out *o = &outs[slot];
	int n = 0;

	return o->open && (o->len || (!syscall(SYS_ioctl, o->fd, SIOCOUTQ, &n) && n > 0));
}

bool wire_room(unsigned slot)
{
	return slot < SD_MAX_SLOTS && outs[slot].len < ROOM;
}

int wire_send(unsigned slot, uint64_t inst, struct frame *f, const struct iovec *v, unsigned n)
{
	struct iovec dst;
	struct out *o;
	int ret;

	if (!slot || slot >= SD_MAX_SLOTS || slot == sd_slot)
		return -EPIPE;
	ret = out_open(slot, inst);
	if (ret)
		return ret;
	o = &outs[slot];
	if (o->len > HARD)
		return -EAGAIN;
	ret = out_append(o, NULL, sizeof *f + f->len);
	if (ret)
		return ret;
	dst = (struct iovec){ o->buf + o->head + o->len + sizeof *f, f->len };
	if (f->len && mem_copy(&dst, 1, v, n, f->len) != MEM_OK)
		return -EFAULT;
	memcpy(o->buf + o->head + o->len, f, sizeof *f);
	o->len += sizeof *f + f->len;
	return 0;
}

static bool out_flush(unsigned slot)
{
	struct out *o = &outs[slot];
	bool did = false, wait;

	if (!o->open)
		return false;

	while (o->len) {
		ssize_t n = send(o->fd, o->buf + o->head, o->len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0) {
			/* wire_poll() finds a broken connection, between messages */
			break;
		}
		o->head += n;
		o->len -= n;
		did = true;
	}
	if (!o->len)
		o->head = 0;
	wait = o->len;
	if (wait != o->watched) {
		watch(EPOLL_CTL_MOD, o->fd, EPOLLRDHUP | (wait ? EPOLLOUT : 0), (uint64_t)ON_OUT << 32 | slot);
		o->watched = wait;
	}
	return did;
}

bool wire_flush(void)
{
	bool did = false;
	unsigned i;

	for (i = 1; i < top_out; i++)
		if (outs[i].len)
			did |= out_flush(i);
	return did;
}

/* ---- incoming ---- */

static void in_close(struct in *in)
{
	unsigned slot = in->slot;
	uint64_t inst = in->inst;
	bool known = in->hello;

	fd_close(in->fd);
	free(in->buf);
	*in = (struct in){ .used = false };
	if (known) {
		/* A process ends both ways at once */
		if (outs[slot].inst == inst && !outs[slot].dead) {
			out_close(&outs[slot]);
			outs[slot].dead = true;
		}
		eng_peer_dead(slot, inst);
	}
}

/* Hands over the whole frames in the buffer; false: the peer breaks the format */
static bool in_parse(struct in *in, bool may_stall)
{
	bool good = true, stalled = false;
	size_t at = 0;

	if (!in->hello) {
		struct hello h;
		uint64_t now;

		if (in->len < sizeof h)
			return true;
		memcpy(&h, in->buf, sizeof h);
		/* One that has ended meanwhile may have sent something before */
		now = h.slot < SD_MAX_SLOTS ? wire_instance(h.slot) : 0;
		if (h.magic != MAGIC || h.size != sizeof(struct frame) || !h.slot || h.slot >= SD_MAX_SLOTS || h.to != my_inst ||
		    !h.from || h.slot == sd_slot || (outs[h.slot].inst != h.from && now && now != h.from))
			return false;
		in->slot = h.slot;
		in->inst = h.from;
		in->hello = true;
		at = sizeof h;
	}
	cqe_defer(true);
	while (in->len - at >= sizeof(struct frame)) {
		struct frame f;

		memcpy(&f, in->buf + at, sizeof f);
		if (f.len > ENG_CHUNK_WIRE || f.kind < FR_REQ || f.kind > FR_RAW || f.src >> 16 != in->slot ||
		    (f.dst >> 16 != sd_slot && ((f.kind != FR_UD && f.kind != FR_RAW) || f.dst != UD_MCAST)) ||
		    (f.len && f.kind != FR_REQ && f.kind != FR_READ && f.kind != FR_UD && f.kind != FR_CM && f.kind != FR_RAW)) {
			good = false;
			break;
		}
		if (in->len - at < sizeof f + f.len)
			break;
		if (may_stall && rx_starves(&f)) {
			stalled = true;
			break;
		}
		eng_frame(in->slot, in->inst, &f, in->buf + at + sizeof f);
		at += sizeof f + f.len;
	}
	rx_answers();
	cqe_defer(false);
	in->len -= at;
	memmove(in->buf, in->buf + at, in->len);
	if (stalled != in->stalled)
		watch(EPOLL_CTL_MOD, in->fd, stalled ? 0 : EPOLLIN, (uint64_t)ON_IN << 32 | (in - ins));
	in->stalled = stalled;
	if (stalled)
		__atomic_store_n(&any_stalled, true, __ATOMIC_RELAXED);
	return good;
}

/* False: the socket holds nothing now, or has come to its end */
static bool in_read(struct in *in)
{
	ssize_t n;

	/* What comes from a process that is about to end does not wait */
	if (in->stalled && !in_parse(in, false)) {
		in->dead = true;
		return false;
	}
	n = recv(in->fd, in->buf + in->len, IN_BUF - in->len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		in->dead = true;
		return false;
	}
	in->len += n;
	if (!in_parse(in, true))
		in->dead = true;
	return true;
}

static bool accept_one(void)
{
	struct ucred who;
	socklen_t len = sizeof who;
	unsigned i;
	int fd = accept4(listenfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return false;
	for (i = 0; i < MAX_IN && ins[i].used; i++)
		;
	if (i == MAX_IN || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0 || who.uid != geteuid() ||
	    !(ins[i].buf = malloc(IN_BUF))) {
		fd_close(fd);
		return true;
	}
	ins[i].used = true;
	ins[i].fd = fd;
	top_in = i + 1 > top_in ? i + 1 : top_in;
	watch(EPOLL_CTL_ADD, fd, EPOLLIN, (uint64_t)ON_IN << 32 | i);
	return true;
}

bool wire_poll(void)
{
	struct epoll_event e[16];
	bool did = false, accepted = false;
	uint64_t junk;
	unsigned k;
	int n, i;

	if (epfd < 0)
		return false;
	__atomic_store_n(&any_stalled, false, __ATOMIC_RELAXED);
	for (k = 0; k < top_in; k++) {
		if (!ins[k].used || !ins[k].stalled)
			continue;
		ins[k].dead |= !in_parse(&ins[k], true);
		did |= !ins[k].stalled;
		if (ins[k].dead)
			in_close(&ins[k]);
	}
	n = epoll_wait(epfd, e, 16, 0);
	for (i = 0; i < n; i++) {
		k = (uint32_t)e[i].data.u64;
		switch (e[i].data.u64 >> 32) {
		case ON_LISTEN:
			accepted |= accept_one();
			break;
		case ON_WAKE:
			if (read(wakefd, &junk, sizeof junk) < 0)
				continue;
			break;
		case ON_IN:
			if (!ins[k].used)
				break;
			if (!ins[k].dead)
				in_read(&ins[k]);
			if (ins[k].dead)
				in_close(&ins[k]);
			break;
		case ON_OUT:
			if (outs[k].open && e[i].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
				out_dead(k);
			else if (outs[k].open)
				out_flush(k);
			break;
		}
	}
	/* What a new connection brings is read before a timer decides that nothing came */
	return (accepted && wire_poll()) || did || n > 0;
}

/* A killed process may live on in a child that holds its sockets: ask for its lock now and then */
void wire_check(void)
{
	uint64_t now = eng_now();
	unsigned i;

	if (now - last_check < 200000000)
		return;
	last_check = now;
	for (i = 1; i < top_out; i++)
		if (outs[i].open && wire_instance(i) != outs[i].inst)
			out_dead(i);
}

void wire_wake(void)
{
	uint64_t one = 1;

	if (wakefd >= 0 && write(wakefd, &one, sizeof one) < 0)
		return;
}

void wire_sleep(uint64_t ns)
{
	struct pollfd p = { epfd, POLLIN, 0 };
	struct timespec t;

	/* The socket is not looked at while a frame from it waits, and nothing tells of a receive WQE */
	if (ns > STALL_NAP && __atomic_load_n(&any_stalled, __ATOMIC_RELAXED))
		ns = STALL_NAP;
	t = (struct timespec){ ns / 1000000000, ns % 1000000000 };
	ppoll(&p, 1, &t, NULL);
}
