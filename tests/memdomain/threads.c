/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * threads.c: one registry under threads that create, destroy, walk, set callbacks and
 * operate. Also built with -fsanitize=thread. Takes no device.
 *
 * A creator poisons a domain's memory as soon as destroy gives it back, so that anything that still
 * reads it finds nonsense. Some domains stay: every walk finds each of them once, in order.
 */
#include "rig.h"
#include "interleave.h"
#include <pthread.h>

#define CREATORS 2
#define WALKERS 2
#define SLOTS 6
#define STAY 3
#define MEMORY 256

struct user {
	uint64_t magic; /* a function of the domain's address */
};

static struct inlay_memdomain_registry reg;
static uint8_t stay_memory[STAY][MEMORY] __attribute__((aligned(64)));
static uint8_t memory[CREATORS][SLOTS][MEMORY] __attribute__((aligned(64)));
static struct inlay_memdomain *stay[STAY];
static uint32_t walks = 2000, bad, walkers_left, rounds, busy, seen, called;
static const char *const stay_ids[STAY] = {"stays", NULL, "stays"};

static void good(bool ok)
{
	if (!ok)
		__atomic_fetch_add(&bad, 1, __ATOMIC_RELAXED);
}

static uint64_t magic_of(const void *d)
{
	return ((uintptr_t)d ^ 0x5bd1e995) * 0x9e3779b97f4a7c15;
}

static struct inlay_memdomain *make(void *at, const char *id)
{
	struct user user = {magic_of(at)};
	struct inlay_memdomain_ctx ctx = {sizeof(ctx), &user, sizeof(user)};
	struct inlay_memdomain *d = NULL;

	good(inlay_memdomain_create(&reg, at, MEMORY, 1000, &ctx, id, &d) == 0 && d == at);
	return d;
}

/* Its domain is whole, and the registry can be used: no lock is held around a callback */
static int memzero(struct inlay_memdomain *d, UNUSED void *ctx, UNUSED const struct iovec *iov, uint32_t n,
		   UNUSED inlay_memdomain_done done, UNUSED void *arg)
{
	struct user *user = (struct user *)inlay_memdomain_user_context(d, NULL);

	good(user && user->magic == magic_of(d));
	if (n == 2)
		inlay_memdomain_put(inlay_memdomain_first(&reg, "stays"));
	__atomic_fetch_add(&called, 1, __ATOMIC_RELAXED);
	return 0;
}

static void *creator(void *arg)
{
	uint8_t(*own)[MEMORY] = (uint8_t(*)[MEMORY])arg;
	static const char *const ids[] = {"comes", NULL, "stays!"};
	uint32_t state[SLOTS] = {0}, i, x = (uint32_t)(uintptr_t)own;

	/* For as long as anybody walks */
	while (__atomic_load_n(&walkers_left, __ATOMIC_ACQUIRE)) {
		uint32_t s = (x = x * 1103515245 + 12345) >> 16;
		struct inlay_memdomain *d = (struct inlay_memdomain *)(void *)own[s % SLOTS];

		if (!state[s % SLOTS]) {
			d = make(own[s % SLOTS], ids[s / SLOTS % 3]);
			good(inlay_memdomain_set_memzero(d, memzero) == 0);
			state[s % SLOTS] = 1;
			__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
		} else if (inlay_memdomain_destroy(d) == 0) {
			memset(d, 0xdd, MEMORY);
			state[s % SLOTS] = 0;
		} else {
			__atomic_fetch_add(&busy, 1, __ATOMIC_RELAXED);
		}
	}
	for (i = 0; i < SLOTS; i++)
		if (state[i])
			while (inlay_memdomain_destroy((struct inlay_memdomain *)(void *)own[i]))
				sched_yield();
	return NULL;
}

static void *walker(void *arg)
{
	const char *ids[] = {NULL, "comes", "stays", "nobody"};
	uint32_t turn, stays, i;
	struct iovec iov = {NULL, 0};

	for (turn = (uint32_t)(uintptr_t)arg; turn < walks || !__atomic_load_n(&busy, __ATOMIC_RELAXED); turn++) {
		const char *id = ids[turn % 4];
		struct inlay_memdomain *d = inlay_memdomain_first(&reg, id);

		good(id || d == inlay_memdomain_system(&reg));
		for (stays = 0; d; d = inlay_memdomain_next(d, id)) {
			struct user *user = (struct user *)inlay_memdomain_user_context(d, NULL);
			int rc;

			good(!id || (inlay_memdomain_id(d) && !strcmp(inlay_memdomain_id(d), id)));
			good(d == inlay_memdomain_system(&reg) || (user && user->magic == magic_of(d)));
			if (stays < STAY && d == stay[stays])
				stays++;
			else
				for (i = 0; i < STAY; i++)
					good(d != stay[i] || !strcmp(id ? id : "", "stays"));
			rc = inlay_memdomain_memzero(d, NULL, &iov, 1 + turn % 2, NULL, NULL);
			good(rc == 0 || rc == -ENOTSUP);
			good(inlay_memdomain_set_memzero(stay[turn % STAY], turn / 8 % 2 ? memzero : NULL) == 0);
			/* Sometimes the walk is left early */
			if (turn % 64 == 9 && d != inlay_memdomain_system(&reg)) {
				inlay_memdomain_put(d);
				stays = STAY;
				break;
			}
			__atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
		}
		good(id || stays == STAY);
		if (turn % 10 == 0)
			sched_yield();
	}
	__atomic_fetch_sub(&walkers_left, 1, __ATOMIC_RELEASE);
	return NULL;
}

TEST(together)
{
	pthread_t threads[CREATORS + WALKERS];
	struct inlay_memdomain *d;
	const char *env = getenv("DOMAIN_WALKS");

	if (env && *env)
		walks = (uint32_t)atoi(env);
	must(inlay_memdomain_registry_init(&reg));
	for (uint32_t i = 0; i < STAY; i++)
		stay[i] = make(stay_memory[i], stay_ids[i]);
	walkers_left = WALKERS;
	for (uint32_t i = 0; i < CREATORS; i++)
		must(pthread_create(&threads[i], NULL, creator, memory[i]));
	for (uint32_t i = 0; i < WALKERS; i++)
		must(pthread_create(&threads[CREATORS + i], NULL, walker, (void *)(uintptr_t)i));
	for (uint32_t i = 0; i < CREATORS + WALKERS; i++)
		must(pthread_join(threads[i], NULL));
	assert_true(!bad && domains(&reg) == 1 + STAY);
	d = inlay_memdomain_first(&reg, NULL);
	for (uint32_t i = 0; i < STAY; i++) {
		d = inlay_memdomain_next(d, NULL);
		assert_ptr_equal(d, stay[i]);
	}
	assert_null(inlay_memdomain_next(d, NULL));
	for (uint32_t i = 0; i < STAY; i++)
		must(inlay_memdomain_destroy(stay[i]));
	assert_true(unused(&reg));
	print_message("# %u created, %u seen, %u callbacks, %u destroys found a holder\n", rounds, seen, called, busy);
	assert_true(rounds > 100 && called > 100 && busy > 0);
}

/* A step of a walk holds its domain until it has found the next, wherever another thread destroys it */

static struct inlay_memdomain *stands, *steps_to;
static int destroyed;

static void step_on(void)
{
	steps_to = inlay_memdomain_next(stands, NULL);
}

static void destroy_it(void)
{
	destroyed = inlay_memdomain_destroy(stands);
	if (!destroyed)
		memset(memory[0][0], 0, MEMORY);
}

TEST(step_holds)
{
	struct inlay_memdomain *next;
	uint32_t i, held = 0;
	int within = 1;

	interleave_possible();
	must(inlay_memdomain_registry_init(&reg));
	next = make(memory[0][1], "next");
	interleave_begin(&reg.lock);
	for (i = 1; within; i++) {
		must(inlay_memdomain_destroy(next));
		make(memory[0][0], "here");
		next = make(memory[0][1], "next");
		stands = inlay_memdomain_first(&reg, "here");
		assert_ptr_equal(stands, memory[0][0]);
		within = interleave(step_on, destroy_it, i);
		assert_ptr_equal(steps_to, next);
		inlay_memdomain_put(next);
		assert_true(destroyed == 0 || destroyed == -EBUSY);
		held += destroyed == -EBUSY;
		if (destroyed)
			must(inlay_memdomain_destroy(stands));
	}
	interleave_end();
	assert_true(held > 5 && destroyed == 0);
	must(inlay_memdomain_destroy(next));
	assert_true(unused(&reg));
}

int main(void)
{
	return run_all(NULL, NULL);
}
