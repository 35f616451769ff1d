/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fault.c: faults on demand. softdev.h has the grammar. A specification is taken whole or not at
 * all.
 *
 * Messages and set-up calls are counted only while there is a specification. Setting one restarts
 * both counts.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "eng.h"

#define MAX_RULES 64
#define MAX_DELAY 60000000u     /* us */
#define MAX_ERRNO 133

enum what { DROP, DELAY, DUP, CORRUPT, SYNDROME, DIE, SILENT, DOWN, SETUP, WHATS };

struct rule {
	enum what what;
	uint32_t value;
	uint64_t first, last, step;
};

struct plan {
	unsigned n;
	struct rule rules[MAX_RULES];
};

static const struct {
	const char *name;
	bool valued, optional;
} words[WHATS] = {
	[DROP] = { "drop", false, false }, [DELAY] = { "delay", true, false }, [DUP] = { "dup", false, false },
	[CORRUPT] = { "corrupt", true, true }, [SYNDROME] = { "syndrome", true, false }, [DIE] = { "die", false, false },
	[SILENT] = { "silent", false, false }, [DOWN] = { "down", true, false }, [SETUP] = { "setup", true, true },
};

static SD_OWN pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SD_OWN struct plan plan;
static SD_OWN uint64_t messages, setups;
static SD_OWN bool any, by_call, silent;
static SD_OWN uint32_t down; /* ports, by bit */
static SD_OWN unsigned long sent[SD_MAX_DEVICES]; /* messages, by port */

/* A number of at most 18 digits, or of hexadecimal ones where they are allowed; false: none here */
static bool number(const char **s, bool hex, uint64_t *v)
{
	const char *p = *s;
	char *end;

	if (hex && p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
		if (!isxdigit((unsigned char)p[2]))
			return false;
		errno = 0;
		*v = strtoull(p, &end, 16);
	} else {
		if (!isdigit((unsigned char)*p))
			return false;
		errno = 0;
		*v = strtoull(p, &end, 10);
	}
	*s = end;
	return !errno;
}

static const char *errno_value(const char **s, uint32_t *value)
{
	size_t len = strspn(*s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
	uint64_t v;
	int e;

	if (number(s, false, &v)) {
		*value = v;
		return v >= 1 && v <= MAX_ERRNO ? NULL : "setup= takes an errno from 1 to 133";
	}
	for (e = 1; e <= MAX_ERRNO; e++) {
		const char *name = strerrorname_np(e);

		if (name && strlen(name) == len && !strncmp(name, *s, len)) {
			*value = e;
			*s += len;
			return NULL;
		}
	}
	return "setup= takes the name or the number of an errno";
}

static const char *rule_value(const char **s, struct rule *r)
{
	uint64_t v, unit = 1;

	if (r->what == SETUP)
		return errno_value(s, &r->value);
	if (!number(s, r->what == SYNDROME, &v))
		return "a number is missing behind '='";
	if (r->what == SYNDROME) {
		r->value = v;
		return v >= 1 && v <= 255 ? NULL : "a syndrome is from 1 to 255";
	}
	if (r->what == DOWN) {
		r->value = v;
		return v < SD_MAX_DEVICES ? NULL : "there are at most 8 ports";
	}
	if (r->what == CORRUPT) {
		r->value = v;
		return v <= SD_MAX_MSG ? NULL : "no message is that long";
	}
	if (!strncmp(*s, "us", 2)) {
		*s += 2;
	} else if (!strncmp(*s, "ms", 2)) {
		unit = 1000;
		*s += 2;
	} else if (**s == 's') {
		unit = 1000000;
		*s += 1;
	}
	if (v < 1 || v > MAX_DELAY / unit)
		return "a delay is from 1us to 60s";
	r->value = v * unit;
	return NULL;
}

/* FIRST | FIRST-LAST | FIRST- | *, with /STEP or without; /STEP alone */
static const char *rule_where(const char **s, struct rule *r)
{
	r->step = 1;
	if (**s == '*') {
		r->first = 1;
		r->last = UINT64_MAX;
		++*s;
	} else if (**s == '/') {
		r->first = 0;
		r->last = UINT64_MAX;
	} else {
		if (!number(s, false, &r->first) || !r->first)
			return "messages and calls are counted from 1";
		r->last = r->first;
		if (**s == '-') {
			++*s;
			r->last = UINT64_MAX;
			if (isdigit((unsigned char)**s) && (!number(s, false, &r->last) || r->last < r->first))
				return "a range ends before it begins";
		} else if (**s == '/') {
			return "every Nth of a range: FIRST-/N, FIRST-LAST/N, or /N";
		}
	}
	if (**s == '/') {
		++*s;
		if (!number(s, false, &r->step) || !r->step)
			return "the N of every Nth is from 1 on";
		if (!r->first)
			r->first = r->step;
	}
	return NULL;
}

/* NULL, or what is wrong at *at */
static const char *parse(const char *spec, struct plan *p, const char **at)
{
	const char *s = spec, *bad;

	memset(p, 0, sizeof *p);
	for (;; s++) {
		struct rule *r = &p->rules[p->n];
		size_t len = strspn(s, "abcdefghijklmnopqrstuvwxyz");
		int w;

		*at = s;
		if (p->n == MAX_RULES)
			return "more than 64 faults";
		for (w = 0; w < WHATS; w++)
			if (strlen(words[w].name) == len && !strncmp(words[w].name, s, len))
				break;
		if (w == WHATS)
			return "none of drop, delay, dup, corrupt, syndrome, die, silent, down, setup";
		r->what = w;
		r->value = w == SETUP ? ENOMEM : 0;
		s += len;
		*at = s;
		if (*s == '=') {
			if (!words[w].valued)
				return "this one takes no value";
			*at = ++s;
			bad = rule_value(&s, r);
			if (bad)
				return bad;
			*at = s;
		} else if (words[w].valued && !words[w].optional) {
			return "'=' and a value are missing";
		}
		if (*s != '@')
			return "'@' and the message's number are missing";
		*at = ++s;
		bad = rule_where(&s, r);
		if (bad)
			return bad;
		*at = s;
		p->n++;
		if (!*s)
			return NULL;
		if (*s != ',')
			return "',' or the end should come here";
	}
}

static int set(const char *spec)
{
	const char *at, *bad = NULL;
	struct plan p = { .n = 0 };

	if (spec)
		bad = parse(spec, &p, &at);
	if (bad) {
		fprintf(stderr, "softdev: fault specification '%s', at '%s': %s\n", spec, at, bad);
		return -EINVAL;
	}
	plan = p;
	messages = setups = 0;
	silent = false;
	down = 0;
	__atomic_store_n(&any, p.n != 0, __ATOMIC_RELEASE);
	return 0;
}

int fault_start(void)
{
	const char *env = getenv("SOFTDEV_FAULT");
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (!by_call && env && *env)
		ret = set(env);
	pthread_mutex_unlock(&lock);
	return ret;
}

static bool hits(const struct rule *r, uint64_t n)
{
	return n >= r->first && n <= r->last && (n - r->first) % r->step == 0;
}

struct fault_act fault_message(unsigned dev, uint64_t len)
{
	struct fault_act act = { .drop = false };
	uint32_t falling = 0;
	unsigned i;

	__atomic_fetch_add(&sent[dev], 1, __ATOMIC_RELAXED);
	if (!__atomic_load_n(&any, __ATOMIC_ACQUIRE))
		return act;
	pthread_mutex_lock(&lock);
	messages++;
	for (i = 0; i < plan.n; i++) {
		const struct rule *r = &plan.rules[i];

		if (r->what == SETUP || !hits(r, messages))
			continue;
		switch (r->what) {
		case DIE:
			/* Nothing of ours must run any more: not a destructor, not a handler */
			syscall(SYS_kill, (long)getpid(), (long)SIGKILL);
			break;
		case SILENT:
			silent = true;
			break;
		case DOWN:
			falling |= 1u << r->value & ~down;
			break;
		case DROP:
			act.drop = true;
			break;
		case DUP:
			act.dup = true;
			break;
		case CORRUPT:
			act.corrupt |= len >= r->value;
			break;
		case DELAY:
			act.delay_us = r->value > act.delay_us ? r->value : act.delay_us;
			break;
		default:
			act.syndrome = r->value;
			break;
		}
	}
	act.drop |= silent;
	act.down = (down | falling) >> dev & 1;
	act.last = falling >> dev & 1;
	pthread_mutex_unlock(&lock);
	for (i = 0; i < SD_MAX_DEVICES; i++)
		if (falling >> i & 1 && i != dev)
			fault_fall(i);
	return act;
}

void fault_fall(unsigned dev)
{
	pthread_mutex_lock(&lock);
	down |= 1u << dev;
	pthread_mutex_unlock(&lock);
	sd_up.port_down(dev);
}

static bool off(bool device, uint32_t ports)
{
	bool ret;

	if (!__atomic_load_n(&any, __ATOMIC_ACQUIRE))
		return false;
	pthread_mutex_lock(&lock);
	ret = (device && silent) || down & ports;
	pthread_mutex_unlock(&lock);
	return ret;
}

bool fault_silent(void)
{
	return off(true, 0);
}

bool fault_deaf(unsigned dev)
{
	return off(true, 1u << dev);
}

bool sd_port_down(unsigned dev)
{
	return off(false, 1u << dev);
}

int sd_fault_setup(void)
{
	unsigned i;
	int err = 0;

	if (!__atomic_load_n(&any, __ATOMIC_ACQUIRE))
		return 0;
	pthread_mutex_lock(&lock);
	setups++;
	for (i = 0; i < plan.n; i++)
		if (plan.rules[i].what == SETUP && hits(&plan.rules[i], setups))
			err = plan.rules[i].value;
	pthread_mutex_unlock(&lock);
	return err;
}

/* ---- softdev.h; defined without it, since its declarations are weak ---- */
__attribute__((visibility("default")))
int softdev_fault(const char *spec)
{
	int ret;

	/* No message takes a port down meanwhile */
	pthread_mutex_lock(&sd_lock);
	pthread_mutex_lock(&lock);
	ret = set(spec);
	if (!ret)
		by_call = true;
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&sd_lock);
	return ret;
}

__attribute__((visibility("default")))
unsigned long softdev_sent(unsigned port)
{
	return port < SD_MAX_DEVICES ? __atomic_load_n(&sent[port], __ATOMIC_RELAXED) : 0;
}
