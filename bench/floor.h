/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * floor.h: the least that a post and a poll can be, written by hand: these stores and no others. No credit, no
 * checks, no length or flags known at run time, one thread, nothing kept for a later ring.
 */
#ifndef FLOOR_H
#define FLOOR_H

#include <stdint.h>

struct floor_sq {
	uint8_t *buf, *reg;     /* the ring; the register's half that is next */
	volatile uint16_t *record;
	uint32_t mask, pi;
	uint64_t head, half;    /* opcode << 32 | QPN << 8 | length; what tells the halves apart */
};

struct floor_cq {
	const uint8_t *buf;
	volatile uint32_t *record;
	uint32_t size, ci;
};

/* 8 bytes inline, record, BlueFlame */
int count_floor_inline_(struct floor_sq *sq, uint64_t raddr, uint32_t rkey, const void *data, uint32_t lkey);
/* 8 bytes by one SGE, record, 8-byte doorbell */
int count_floor_sge_(struct floor_sq *sq, uint64_t raddr, uint32_t rkey, const void *data, uint32_t lkey);
/* 32 times 8 bytes inline, one record, one 8-byte doorbell */
int count_floor_burst_(struct floor_sq *sq, uint64_t raddr, uint32_t rkey, const void *data, uint32_t lkey);
/* A prebuilt WQE of 64 bytes copied to the register: nothing else */
int count_floor_copy_(struct floor_sq *sq, uint64_t raddr, uint32_t rkey, const void *data, uint32_t lkey);
/* Owner test, WQE counter, consumer record: the counter, or -1 */
int count_floor_poll_(struct floor_cq *cq);
/* The load of an owner byte: nothing else */
int count_floor_owner_(struct floor_cq *cq);

#endif
