/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * interleave.h: runs another thread's function after the n-th instruction of a function. The trap flag
 * stops the CPU after each instruction, and the other function runs in the signal handler. INTERLEAVES
 * is 1 where that works: x86-64, without a sanitizer. interleave_behind runs it after the instruction that changes a word.
 */
#ifndef TESTS_INTERLEAVE_H
#define TESTS_INTERLEAVE_H

#include "common.h"

#if !defined(__x86_64__) || SANITIZED
#define INTERLEAVES 0
#else
#define INTERLEAVES 1
#endif

static void interleave_possible(void)
{
	if (!INTERLEAVES) {
		print_message("# skipped: needs x86-64, and no sanitizer\n");
		skip();
	}
}

#if INTERLEAVES

#include <signal.h>
#include <ucontext.h>

static struct {
	void (*other)(void);    /* NULL when it has run */
	const uint32_t *lock;   /* that it needs, or NULL */
	uint32_t steps;         /* to go before that */
	const volatile uint32_t *word; /* that is to have changed since, or NULL */
	uint32_t was;
	struct sigaction before;
} between;

static void one_step(UNUSED int sig, UNUSED siginfo_t *info, void *context)
{
	if (between.steps && --between.steps)
		return;
	if (between.word && *between.word == between.was)
		return;
	if (between.lock && __atomic_load_n(between.lock, __ATOMIC_RELAXED))
		return;
	between.other();
	between.other = NULL;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100;
}

static void interleave_begin(const uint32_t *lock)
{
	struct sigaction action = {};

	action.sa_sigaction = one_step;
	action.sa_flags = SA_SIGINFO;
	between.lock = lock;
	must(sigaction(SIGTRAP, &action, &between.before));
}

static void interleave_end(void)
{
	must(sigaction(SIGTRAP, &between.before, NULL));
}

/* Runs one function and, after so many instructions of it, the other. Returns 0 when it had fewer: the other ran after it */
static int interleave(void (*one)(void), void (*two)(void), uint32_t instructions)
{
	int within;

	between.steps = instructions;
	between.other = two;
	__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::: "memory", "cc");
	one();
	__asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; andq $-0x101, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::: "memory", "cc");
	within = !between.other;
	if (!within)
		two();
	return within;
}

/* Runs one function and, as soon as it has changed the word, the other */
UNUSED static int interleave_behind(void (*one)(void), void (*two)(void), const volatile uint32_t *word)
{
	int within;

	between.word = word;
	between.was = *word;
	within = interleave(one, two, 1);
	between.word = NULL;
	return within;
}

/* After interleave(one, two, UINT32_MAX): how many instructions one() ran */
UNUSED static uint32_t interleave_counted(void)
{
	return UINT32_MAX - between.steps;
}

#else

static void interleave_begin(UNUSED const uint32_t *lock)
{
}

static void interleave_end(void)
{
}

static int interleave(void (*one)(void), void (*two)(void), uint32_t instructions)
{
	(void)one;
	(void)two;
	(void)instructions;
	return 0;
}

UNUSED static int interleave_behind(void (*one)(void), void (*two)(void), const volatile uint32_t *word)
{
	(void)word;
	return interleave(one, two, 1);
}

UNUSED static uint32_t interleave_counted(void)
{
	return 0;
}

#endif
#endif
