/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * world.h: what the parts of this MPI program share. Every rank computes the same random numbers, so each knows what all others do,
 * and what their bytes are.
 */
#ifndef WORLD_H
#define WORLD_H

#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX ((size_t)4 << 20)
#define AROUND 64               /* bytes before and after a buffer that must stay as they were */

extern int me, ranks, rounds;   /* rounds: 1 is short, too */
extern uint64_t seed;
extern bool threaded;

/* The parts. Each is called by all ranks */
void p2p(void);
void rma(void);
void threads(void);
void storm(void);

/* Tells what is being done, for messages of die(); by one thread only */
void doing(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Counts what was verified, and messages to other ranks */
void verified(size_t bytes);
void sent(int to);

uint64_t mix(uint64_t x);
uint64_t chance(uint64_t a, uint64_t b, uint64_t c);    /* the same at all ranks */
size_t some_size(uint64_t random, size_t max);          /* often next to a power of two */

/* Memory with bytes around it that tell whether somebody wrote there */
uint8_t *around_alloc(size_t len);
void around_check(const uint8_t *p, size_t len, const char *what);
void around_free(uint8_t *p);

void fill(uint8_t *p, size_t len, uint64_t key);
void check(const uint8_t *p, size_t len, uint64_t key, const char *what);

/* Whether this is Open MPI with that component, for what does not work over it, whichever network is below */
bool over(const char *framework, const char *component);

#define EXPECT(condition) ((condition) ? (void)0 : die("line %d: not so: %s", __LINE__, #condition))

#endif
