/* SPDX-License-Identifier: BSD-3-Clause */
/* floor.c: see floor.h. Nothing of inlay is in here. */
#include "bench.h"
#include "floor.h"

#if defined(__x86_64__)
#define BEFORE_RECORD() __asm__ volatile("" : : : "memory") /* stores stay in order */
#define BEFORE_REGISTER() __asm__ volatile("sfence" : : : "memory") /* the register is write-combining */
#define AFTER_OWNER() __asm__ volatile("" : : : "memory")
#else
#define BEFORE_RECORD() __asm__ volatile("dmb oshst" : : : "memory")
#define BEFORE_REGISTER() __asm__ volatile("dmb oshst" : : : "memory")
#define AFTER_OWNER() __asm__ volatile("dmb oshld" : : : "memory")
#endif

typedef uint64_t __attribute__((vector_size(16), aligned(16), may_alias)) wide;
typedef uint64_t __attribute__((may_alias)) word64;
typedef uint32_t __attribute__((may_alias)) word32;

ALWAYS uint32_t be32(uint32_t v)
{
	return __builtin_bswap32(v);
}

ALWAYS uint64_t be64(uint64_t v)
{
	return __builtin_bswap64(v);
}

/* Opcode, index, QPN, length in 16-byte units, completion wanted; remote address and key */
ALWAYS uint8_t *begin(uint8_t *buf, uint32_t mask, uint32_t pi, uint64_t head, uint32_t flags, uint64_t raddr,
		      uint32_t rkey)
{
	uint8_t *wqe = buf + (uint64_t)(pi & mask) * 64;

	*(word64 *)wqe = be64((uint64_t)(uint16_t)pi << 40 | head);
	*(word64 *)(wqe + 8) = be32(flags);
	*(word64 *)(wqe + 16) = be64(raddr);
	*(word64 *)(wqe + 24) = be32(rkey);
	return wqe;
}

ALWAYS void put_inline(uint8_t *wqe, uint64_t value)
{
	*(word32 *)(wqe + 32) = be32(0x80000000u | 8);
	memcpy(wqe + 36, &value, 8);
}

/* The record, then the register's next half */
ALWAYS uint8_t *ring(struct floor_sq *sq, uint32_t pi)
{
	uint8_t *reg = sq->reg;

	sq->pi = pi;
	BEFORE_RECORD();
	*sq->record = __builtin_bswap16((uint16_t)pi); /* the low half of the word: the upper one is 0 */
	BEFORE_REGISTER();
	sq->reg = (uint8_t *)((uintptr_t)reg ^ sq->half);
	return reg;
}

ALWAYS void copy64(uint8_t *to, const uint8_t *from)
{
	const wide *in = (const wide *)from;
	wide a = in[0], b = in[1], c = in[2], d = in[3];

	((volatile wide *)to)[0] = a;
	((volatile wide *)to)[1] = b;
	((volatile wide *)to)[2] = c;
	((volatile wide *)to)[3] = d;
}

COUNTED int count_floor_inline_(struct floor_sq *sq, uint64_t raddr, uint32_t rkey, const void *data, uint32_t lkey)
{
	uint32_t pi = sq->pi;
	uint8_t *wqe = begin(sq->buf, sq->mask, pi, sq->head, 8, raddr, rkey);

	(void)lkey;
	put_inline(wqe, *(const word64 *)data);
	copy64(ring(sq, pi + 1), wqe);
	return 0;
}

COUNTED int count_floor_sge_(struct floor_sq *sq, uint64_t raddr, uint32_t rkey, const void *data, uint32_t lkey)
{
	uint32_t pi = sq->pi;
	uint8_t *wqe = begin(sq->buf, sq->mask, pi, sq->head, 8, raddr, rkey);

	*(word64 *)(wqe + 32) = be32(8) | (uint64_t)be32(lkey) << 32;
	*(word64 *)(wqe + 40) = be64((uintptr_t)data);
	*(volatile word64 *)ring(sq, pi + 1) = *(const word64 *)wqe;
	return 0;
}

COUNTED int count_floor_burst_(struct floor_sq *sq, uint64_t raddr, uint32_t rkey, const void *data, uint32_t lkey)
{
	const word64 *values = data;
	uint32_t pi = sq->pi, mask = sq->mask, i;
	uint8_t *wqe = sq->buf, *buf = sq->buf;
	uint64_t head = sq->head;

	(void)lkey;
	for (i = 0; i < 32; i++) {
		wqe = begin(buf, mask, pi++, head, 0, raddr + 8 * i, rkey);
		put_inline(wqe, values[i]);
	}
	*(volatile word64 *)ring(sq, pi) = *(const word64 *)wqe;
	return 0;
}

COUNTED int count_floor_copy_(struct floor_sq *sq, uint64_t raddr, uint32_t rkey, const void *data, uint32_t lkey)
{
	(void)raddr;
	(void)rkey;
	(void)data;
	(void)lkey;
	copy64(sq->reg, sq->buf);
	return 0;
}

COUNTED int count_floor_poll_(struct floor_cq *cq)
{
	uint32_t ci = cq->ci;
	const volatile uint8_t *cqe = cq->buf + (uint64_t)(ci & (cq->size - 1)) * 64;
	int counter;

	/* A good send completion's last byte is its owner bit and nothing else */
	if (cqe[63] != !!(ci & cq->size))
		return -1;
	AFTER_OWNER();
	counter = __builtin_bswap16(*(const volatile uint16_t *)(cqe + 60));
	cq->ci = ++ci;
	*cq->record = be32(ci & 0xffffff);
	return counter;
}

COUNTED int count_floor_owner_(struct floor_cq *cq)
{
	return ((const volatile uint8_t *)cq->buf)[63];
}
