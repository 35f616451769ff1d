/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trap.c: the device that works when its doorbell page is written to, in the thread that writes.
 *
 * The program's mappings of a doorbell page are read-only, so a store faults. The store never
 * reaches the page, where a store of another thread could hit it. Instead the handler changes the
 * register that holds the address, so that the address lies in a few bytes of the thread's own. It
 * runs the one instruction with the trap flag set and all signals blocked. It then hands the bytes
 * to the engine as a write to the page, before the next instruction. No page is ever writable, so
 * no store of any thread is missed, and two stores to one register are two doorbells, as on a bus.
 *
 * It follows what compilers and memcpy() use for a store: mov, movnti, xchg, stos, movs, movbe,
 * movdiri, movdir64b, and vector moves. It refuses an address without a base register, one based on
 * the stack pointer, and an instruction that also stores its base: a line on stderr, and the
 * SIGSEGV stays.
 *
 * SIGSEGV and SIGTRAP are ours. Handlers that the program installs, even later, get all signals
 * that are not ours. No thread may block the two: a fault while the signal is blocked ends the
 * process.
 */
#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <ucontext.h>
#include <unistd.h>
#include "eng.h"

bool sd_trapping(void)
{
	static int is = -1;
	int v = __atomic_load_n(&is, __ATOMIC_RELAXED);

	if (v < 0) {
		const char *env = getenv("SOFTDEV_TRAP");

		v = env && *env == '1';
		__atomic_store_n(&is, v, __ATOMIC_RELAXED);
	}
	/* A program that asks for a stepped device gets one */
	return v && !eng_manual();
}

#ifdef __x86_64__

#define PAGE 4096u
#define TOKEN 0xff8             /* where a page says that it is one of ours */
#define MAX_PAGES 4096
#define FLAG_TRAP 0x100
#define FAULT_WRITE 2
#define STORE_MAX 64

/* Mappings of the program. Added and dropped with sd_lock held, looked up without */
static struct mapping {
	uintptr_t addr;         /* 0: free */
	uint64_t token;
	struct sd_uar *uar;
	pid_t pid;              /* that made it: a child of fork() keeps what it inherited */
} maps[MAX_PAGES];
static unsigned nmaps;
static bool installed;

static __thread __attribute__((tls_model("initial-exec"))) struct {
	bool stepping, was_stepped;
	uint8_t base;
	uint64_t bend;          /* added to the base register */
	unsigned off;
	struct mapping at;
	sigset_t mask;
	uint8_t buf[3 * STORE_MAX];
} me;

/*
 * The program's own handlers, for SIGSEGV and SIGTRAP; two places each, so that one is whole while
 * the other is written
 */
static struct users {
	struct sigaction act[2];
	unsigned which;
} users[2];

/* ---- one instruction ---- */

static const uint8_t gregs[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
				   REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };

/* The register that the address of a store is made of; -1: not one that can be bent */
static int base_register(const uint8_t *p)
{
	enum { LEGACY, TWO, THREE, VECTOR } map = LEGACY;
	unsigned rex_r = 0, rex_x = 0, rex_b = 0, op, mod, reg, rm, base, index;
	bool rex = false, data16 = false, gpr = false;

	for (;; p++) {
		if (*p == 0x66)
			data16 = true;
		else if (*p != 0xf2 && *p != 0xf3 && *p != 0xf0 && *p != 0x2e && *p != 0x36 && *p != 0x3e && *p != 0x26)
			break;
	}
	if ((*p & 0xf0) == 0x40) {
		rex = true;
		rex_r = (*p >> 2 & 1) << 3;
		rex_x = (*p >> 1 & 1) << 3;
		rex_b = (*p & 1) << 3;
		p++;
	}
	if (*p == 0xc5) {
		map = VECTOR;
		rex_r = (~p[1] >> 7 & 1) << 3;
		p += 2;
	} else if (*p == 0xc4 || *p == 0x62) {
		unsigned kind = p[1] & 7;

		map = VECTOR;
		rex_r = (~p[1] >> 7 & 1) << 3;
		rex_x = (~p[1] >> 6 & 1) << 3;
		rex_b = (~p[1] >> 5 & 1) << 3;
		p += *p == 0x62 ? 4 : 3;
		/* A scatter has many addresses */
		if (kind == 2 && *p >= 0xa0 && *p <= 0xa3)
			return -1;
	} else if (p[0] == 0x0f && p[1] == 0x38) {
		map = THREE;
		p += 2;
	} else if (p[0] == 0x0f) {
		map = TWO;
		p++;
	}
	op = *p++;
	mod = *p >> 6;
	reg = *p >> 3 & 7;
	rm = *p & 7;

	switch (map) {
	case LEGACY:
		if (op == 0xa4 || op == 0xa5 || op == 0xaa || op == 0xab)
			return 7;
		if (op != 0x88 && op != 0x89 && op != 0xc6 && op != 0xc7 && op != 0x86 && op != 0x87)
			return -1;
		gpr = op < 0xc0;
		/* ah, ch, dh, bh are bits of the first four */
		if (gpr && !(op & 1) && !rex)
			reg &= 3;
		break;
	case TWO:
		if (op != 0x11 && op != 0x13 && op != 0x17 && op != 0x29 && op != 0x2b && op != 0x7e && op != 0x7f && op != 0xc3 &&
		    op != 0xd6 && op != 0xe7)
			return -1;
		gpr = op == 0xc3 || op == 0x7e;
		break;
	case THREE:
		if (op == 0xf8 && data16)       /* movdir64b: to where reg points, from memory */
			break;
		if (op != 0xf1 && op != 0xf9)
			return -1;
		gpr = true;
		break;
	case VECTOR:
		break;
	}
	reg |= rex_r;
	if (mod == 3)
		return -1;
	base = rm | rex_b;
	index = 16;
	if (rm == 4) {
		base = (p[1] & 7) | rex_b;
		index = (p[1] >> 3 & 7) | rex_x;
		if (index == 4)
			index = 16;
		if ((p[1] & 7) == 5 && mod == 0)
			base = 16;
	} else if (rm == 5 && mod == 0) {
		base = 16;
	}
	if (map == THREE && op == 0xf8)
		return reg == base || reg == index || reg == 4 ? -1 : (int)reg;
	return base == 16 || base == 4 || base == index || (gpr && base == reg) ? -1 : (int)base;
}

/* ---- the handlers ---- */

static void set_mask(const sigset_t *set)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, set, NULL, 8L);
}

static void next_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	static int (*next)(int, const struct sigaction *, struct sigaction *);

	if (!next)
		next = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
	next(sig, act, old);
}

/* As if we were not there */
static void pass_on(int sig, siginfo_t *info, ucontext_t *uc)
{
	struct users *u = &users[sig == SIGTRAP];
	struct sigaction act = u->act[__atomic_load_n(&u->which, __ATOMIC_ACQUIRE) & 1];
	const struct sigaction deflt = { .sa_handler = SIG_DFL };
	sigset_t mask = uc->uc_sigmask;
	int i;

	if (act.sa_handler == SIG_IGN && info->si_code <= 0)
		return;
	if (act.sa_handler == SIG_IGN || act.sa_handler == SIG_DFL) {
		/* Held back until this handler returns; the fault itself would come again, but not every trap */
		next_sigaction(sig, &deflt, NULL);
		syscall(SYS_tgkill, (long)getpid(), (long)syscall(SYS_gettid), (long)sig);
		return;
	}
	if (act.sa_flags & SA_RESETHAND)
		u->act[u->which & 1] = deflt;
	for (i = 1; i < NSIG; i++)
		if (i != SIGSEGV && i != SIGTRAP && sigismember(&act.sa_mask, i) == 1)
			sigaddset(&mask, i);
	set_mask(&mask);
	if (act.sa_flags & SA_SIGINFO)
		act.sa_sigaction(sig, info, uc);
	else
		act.sa_handler(sig);
}

static bool find(uintptr_t addr, struct mapping *m)
{
	unsigned i, n = __atomic_load_n(&nmaps, __ATOMIC_ACQUIRE);
	uintptr_t page = addr & ~(uintptr_t)(PAGE - 1);

	for (i = 0; i < n; i++)
		if (__atomic_load_n(&maps[i].addr, __ATOMIC_ACQUIRE) == page) {
			*m = maps[i];
			/* The page may be something else by now: ours has its token in it, and can be read */
			return *(volatile uint64_t *)(page + TOKEN) == m->token;
		}
	return false;
}

static uint8_t filler(unsigned i)
{
	return 0x5b + 0x35 * i;
}

static void end_step(ucontext_t *uc)
{
	greg_t *r = uc->uc_mcontext.gregs;

	me.stepping = false;
	r[me.base] -= me.bend;
	if (!me.was_stepped)
		r[REG_EFL] &= ~(greg_t)FLAG_TRAP;
	uc->uc_sigmask = me.mask;
}

static void on_segv(int sig, siginfo_t *info, void *ctx)
{
	uintptr_t addr = (uintptr_t)info->si_addr;
	ucontext_t *uc = ctx;
	greg_t *r = uc->uc_mcontext.gregs;
	const uint8_t *ip = (const uint8_t *)r[REG_RIP];
	int base;
	unsigned i;

	/* A copy into the page whose source is not there */
	if (me.stepping)
		end_step(uc);
	if (info->si_code != SEGV_ACCERR || !(r[REG_ERR] & FAULT_WRITE) || !find(addr, &me.at)) {
		pass_on(sig, info, uc);
		return;
	}
	base = base_register(ip);
	if (base < 0) {
		char line[160];
		int n = snprintf(line, sizeof line, "softdev: the instruction at %p writes to a doorbell page in a way that cannot be "
				 "followed:", (const void *)ip);

		for (i = 0; i < 12; i++)
			n += snprintf(line + n, sizeof line - n, " %02x", ip[i]);
		line[n++] = '\n';
		if (write(2, line, n) < 0) {
		}
		pass_on(sig, info, uc);
		return;
	}
	for (i = 0; i < sizeof me.buf; i++)
		me.buf[i] = filler(i);
	me.base = gregs[base];
	me.off = addr & (PAGE - 1);
	/* As well aligned as the register is: some stores insist on it */
	me.bend = (((uintptr_t)me.buf + STORE_MAX - 1) & -(uintptr_t)STORE_MAX) + (addr & (STORE_MAX - 1)) - addr;
	me.mask = uc->uc_sigmask;
	me.was_stepped = r[REG_EFL] & FLAG_TRAP;
	me.stepping = true;
	r[me.base] += me.bend;
	r[REG_EFL] |= FLAG_TRAP;
	sigfillset(&uc->uc_sigmask);
	sigdelset(&uc->uc_sigmask, SIGSEGV);
	sigdelset(&uc->uc_sigmask, SIGTRAP);
}

static void on_trap(int sig, siginfo_t *info, void *ctx)
{
	const uint8_t *store;
	unsigned first, len = 0, size = 1, i;
	int err = errno;

	if (!me.stepping || info->si_code <= 0) {
		pass_on(sig, info, ctx);
		return;
	}
	end_step(ctx);
	/* What was written is known by what is no longer the filler; a store's size is a power of two, whatever its last bytes are */
	store = (const uint8_t *)(((uintptr_t)me.buf + STORE_MAX - 1) & -(uintptr_t)STORE_MAX) + (me.off & (STORE_MAX - 1));
	first = store - me.buf;
	for (i = 0; i < STORE_MAX && first + i < sizeof me.buf; i++)
		if (store[i] != filler(first + i))
			len = i + 1;
	while (size < len)
		size *= 2;
	pthread_mutex_lock(&sd_lock);
	{
		struct sd_uar *uar;

		for (uar = sd_uar_next(NULL); uar; uar = sd_uar_next(uar))
			if (uar == me.at.uar && *(uint64_t *)(void *)(uar->page + TOKEN) == me.at.token && me.off + size <= TOKEN) {
				eng_trapped(uar, me.off, store, size);
				break;
			}
	}
	pthread_mutex_unlock(&sd_lock);
	errno = err;
}

int trap_start(void)
{
	struct sigaction segv = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_ONSTACK },
			 trap = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	sigset_t both;

	if (installed)
		return 0;
	/* The engine runs in the second: on the thread's own stack, and undisturbed */
	sigfillset(&trap.sa_mask);
	next_sigaction(SIGSEGV, &segv, &users[0].act[0]);
	next_sigaction(SIGTRAP, &trap, &users[1].act[0]);
	sigemptyset(&both);
	sigaddset(&both, SIGSEGV);
	sigaddset(&both, SIGTRAP);
	syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &both, NULL, 8L);
	__atomic_store_n(&installed, true, __ATOMIC_RELEASE);
	return 0;
}

/* ---- pages ---- */

static void protect(struct sd_uar *uar, uintptr_t addr, uint64_t token)
{
	unsigned i, place = nmaps;

	for (i = 0; i < nmaps; i++) {
		if (maps[i].addr == addr) {
			place = i;
			break;
		}
		if (!maps[i].addr)
			place = i;
	}
	if (place == MAX_PAGES) {
		fprintf(stderr, "softdev: too many doorbell pages to trap\n");
		return;
	}
	if (mprotect((void *)addr, PAGE, PROT_READ) != 0) {
		fprintf(stderr, "softdev: a doorbell page cannot be write-protected: %m\n");
		return;
	}
	__atomic_store_n(&maps[place].addr, (uintptr_t)0, __ATOMIC_RELEASE);
	maps[place].token = token;
	maps[place].uar = uar;
	maps[place].pid = sd_self;
	__atomic_store_n(&maps[place].addr, addr, __ATOMIC_RELEASE);
	if (place == nmaps)
		__atomic_store_n(&nmaps, nmaps + 1, __ATOMIC_RELEASE);
}

/* Mappings of pages that are no more */
static void sweep(void)
{
	struct sd_uar *uar;
	unsigned i;

	for (i = 0; i < nmaps; i++) {
		if (!maps[i].addr || maps[i].pid != sd_self)
			continue;
		for (uar = sd_uar_next(NULL); uar; uar = sd_uar_next(uar))
			if (uar == maps[i].uar && *(uint64_t *)(void *)(uar->page + TOKEN) == maps[i].token)
				break;
		if (!uar)
			__atomic_store_n(&maps[i].addr, (uintptr_t)0, __ATOMIC_RELEASE);
	}
}

void sd_trap_page(struct sd_uar *uar)
{
	char line[512];
	uint64_t *token = (uint64_t *)(void *)(uar->page + TOKEN);
	FILE *f;

	if (!sd_trapping() || !installed)
		return;
	sweep();
	while (!*token)
		if (getrandom(token, sizeof *token, 0) != sizeof *token)
			return;
	f = fopen("/proc/self/maps", "re");
	while (f && fgets(line, sizeof line, f)) {
		unsigned long start, end, off, inode;
		unsigned maj, min;
		char perms[5];
		uintptr_t addr;

		if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu", &start, &end, perms, &off, &maj, &min, &inode) != 7 || inode != uar->st_ino ||
		    maj != major(uar->st_dev) || min != minor(uar->st_dev) || uar->offset < off || uar->offset - off >= end - start)
			continue;
		addr = start + (uar->offset - off);
		if (addr != (uintptr_t)uar->page && perms[1] == 'w')
			protect(uar, addr, *token);
	}
	if (f)
		fclose(f);
	else
		fprintf(stderr, "softdev: /proc/self/maps: %m; nothing is trapped\n");
}

/*
 * ---- the calls by which a program would take the two signals from us; a sanitizer stands there
 * itself ----
 */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZER 1
#endif
#endif
#if !defined(SANITIZER) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define EXPORT __attribute__((visibility("default")))

static struct users *user_of(int sig)
{
	return sig == SIGSEGV ? &users[0] : sig == SIGTRAP ? &users[1] : NULL;
}

static bool wanted(void)
{
	return __atomic_load_n(&installed, __ATOMIC_ACQUIRE) || sd_trapping();
}

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	static __typeof__(sigaction) *next;
	struct users *u = __atomic_load_n(&installed, __ATOMIC_ACQUIRE) ? user_of(sig) : NULL;
	struct sigaction mine;
	unsigned which;

	if (u) {
		which = u->which & 1;
		if (old)
			*old = u->act[which];
		if (act) {
			u->act[!which] = *act;
			__atomic_store_n(&u->which, !which, __ATOMIC_RELEASE);
		}
		return 0;
	}
	if (!next)
		next = (__typeof__(next))dlsym(RTLD_NEXT, "sigaction");
	if (act && wanted()) {
		mine = *act;
		sigdelset(&mine.sa_mask, SIGSEGV);
		sigdelset(&mine.sa_mask, SIGTRAP);
		act = &mine;
	}
	return next(sig, act, old);
}

EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	static __typeof__(signal) *next;
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESTART }, old;

	if (!__atomic_load_n(&installed, __ATOMIC_ACQUIRE) || !user_of(sig)) {
		if (!next)
			next = (__typeof__(next))dlsym(RTLD_NEXT, "signal");
		return next(sig, handler);
	}
	sigaction(sig, &act, &old);
	return old.sa_handler;
}

#define SIGMASK(name)                                                      \
	EXPORT int name(int how, const sigset_t *set, sigset_t *old)       \
	{                                                                  \
		static __typeof__(name) *next;                             \
		sigset_t mine;                                             \
		if (!next)                                                 \
			next = (__typeof__(next))dlsym(RTLD_NEXT, #name);  \
		if (set && how != SIG_UNBLOCK && wanted()) {               \
			mine = *set;                                       \
			sigdelset(&mine, SIGSEGV);                         \
			sigdelset(&mine, SIGTRAP);                         \
			set = &mine;                                       \
		}                                                          \
		return next(how, set, old);                                \
	}
SIGMASK(sigprocmask)
SIGMASK(pthread_sigmask)

#endif

#else

int trap_start(void)
{
	fprintf(stderr, "softdev: SOFTDEV_TRAP needs x86-64\n");
	return -ENOTSUP;
}

void sd_trap_page(struct sd_uar *uar)
{
	(void)uar;
}

#endif
