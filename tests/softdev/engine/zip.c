/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zip.c: compression of CQEs.
 *
 * CQEs that differ only in what a mini CQE holds are kept back, until one comes that does not fit,
 * or the engine has nothing else to do, or the block is long enough, which is drawn at random. Then
 * they are written as a block.
 *
 *   basic      a title: the first CQE with format 3 in its last byte and the count in byte_cnt. Its
 *              mini CQEs, eight to a slot, lie in slots 1, 8, 16 and so on of the block
 *   enhanced   the title is the CQE before the block, written as it is. One slot then holds up to
 *              seven mini CQEs and, in its last byte, (count - 1) << 4 | format 3
 *
 * In both, n CQEs use up n slots. What the device does not write keeps what it held.
 *
 * A block of a striding queue stays within one WQE, since only the title names it. Of what the mini
 * CQEs have no place for, the title's stands for all: the checksum where they have the hash, the hash
 * where they have the checksum, both where they have header types.
 *
 *   mini CQE   be32 hash; be16 checksum, be16 stride index; L3 and L4 header types, be16 stride
 *              index at +2; or of a requester: be16 WQE counter, opcode of the send WQE
 *              be32 byte count at +4
 */
#include <stdlib.h>
#include <string.h>
#include "eng.h"

#define FORMAT 0x0cu
#define MINIS 8u         /* of an array; the enhanced layout's last place is for the count */

struct zip {
	struct sd_cq *cq;
	struct mlx5_cqe64 run[SD_MAX_ZIP];
	bool event;              /* of any of the run */
	uint32_t n, limit, random;
	struct mlx5_cqe64 title; /* enhanced: the CQE written last */
	bool titled;
};

static SD_OWN unsigned open_runs;       /* CQs with a run that is not written */
static unsigned long blocks;     /* written */

static uint32_t draw(struct zip *z, uint32_t below)
{
	z->random = z->random * 1664525 + 1013904223;
	return (z->random >> 8) % below;
}

struct zip *zip_new(struct sd_cq *cq)
{
	struct zip *z = calloc(1, sizeof(*z));

	if (z) {
		z->cq = cq;
		z->random = cq->cqn;
		z->limit = 1 + draw(z, SD_MAX_ZIP);
	}
	return z;
}

void zip_free(struct zip *z)
{
	if (z && z->n)
		open_runs--;
	free(z);
}

uint32_t zip_held(const struct zip *z)
{
	return z->n;
}

static uint8_t opcode(const struct mlx5_cqe64 *c)
{
	return c->op_own >> 4;
}

/* What does not matter when two CQEs are compared: the mini CQE's part, the owner bit, the time */
static struct mlx5_cqe64 common(const struct zip *z, const struct mlx5_cqe64 *c)
{
	struct mlx5_cqe64 k = *c;
	uint8_t *raw = (uint8_t *)&k;

	k.byte_cnt = 0;
	k.timestamp = 0;
	k.wqe_counter = 0;
	k.signature = 0;
	k.op_own &= 0xf2;
	if (opcode(c) == MLX5_CQE_REQ) {
		raw[56] = 0;
		return k;
	}
	memset(raw + 12, 0, 4);
	memset(raw + 20, 0, 2);
	if (z->cq->mini_format == SD_MINI_L34H_STRIDX)
		raw[29] = 0;
	return k;
}

static bool follows(const struct zip *z, const struct mlx5_cqe64 *before, const struct mlx5_cqe64 *c)
{
	struct mlx5_cqe64 a = common(z, before), b = common(z, c);
	const uint32_t step = z->cq->strides ? be32toh(before->byte_cnt) >> 16 & 0x3fff : 1;
	bool next = be16toh(c->wqe_counter) == (uint16_t)(be16toh(before->wqe_counter) + step);

	return !memcmp(&a, &b, sizeof(a)) && (opcode(c) == MLX5_CQE_REQ || z->cq->mini_format >= SD_MINI_CSUM_STRIDX || next);
}

static bool fits(const struct mlx5_cqe64 *c)
{
	return opcode(c) <= MLX5_CQE_RESP_SEND_INV && !(c->op_own & FORMAT);
}

static void mini(const struct zip *z, const struct mlx5_cqe64 *c, uint8_t to[8])
{
	const uint8_t *raw = (const uint8_t *)c;

	memset(to, 0, 8);
	memcpy(to + 4, raw + 44, 4);
	if (opcode(c) == MLX5_CQE_REQ) {
		memcpy(to, raw + 60, 2);
		to[2] = raw[56];
		return;
	}
	switch (z->cq->mini_format) {
	case SD_MINI_HASH:
		memcpy(to, raw + 12, 4);
		return;
	case SD_MINI_L34H_STRIDX:
		to[0] = raw[29];
		break;
	default:
		memcpy(to, raw + 20, 2);
		break;
	}
	memcpy(to + 2, raw + 60, 2);
}

static void write_basic(struct zip *z)
{
	struct mlx5_cqe64 title = z->run[0];
	uint32_t i;

	for (i = 0; i < z->n; i += MINIS) {
		uint8_t *to = cqe_slot(z->cq, z->cq->pi + (i ? i : 1));
		uint32_t k;

		for (k = 0; k < MINIS && i + k < z->n; k++)
			mini(z, &z->run[i + k], to + 8 * k);
	}
	title.byte_cnt = htobe32(z->n);
	cqe_write(z->cq, z->cq->pi, &title, title.op_own | FORMAT);
	cqe_written(z->cq, z->n, z->event);
	blocks++;
}

static void write_enhanced(struct zip *z)
{
	uint32_t i = 0, k, n;

	if (!z->titled || !follows(z, &z->title, &z->run[0])) {
		cqe_write(z->cq, z->cq->pi, &z->run[0], z->run[0].op_own);
		cqe_written(z->cq, 1, z->event);
		i = 1;
	}
	for (; i < z->n; i += n) {
		uint8_t block[64] = { 0 };

		n = 1 + draw(z, MINIS - 1);
		n = n < z->n - i ? n : z->n - i;
		for (k = 0; k < n; k++)
			mini(z, &z->run[i + k], block + 8 * k);
		cqe_write(z->cq, z->cq->pi, block, (uint8_t)((n - 1) << 4 | FORMAT));
		cqe_written(z->cq, n, z->event);
		blocks++;
	}
	z->title = z->run[z->n - 1];
	z->titled = true;
}

/* Writes what is kept back. z NULL: nothing is */
void zip_flush(struct zip *z)
{
	if (!z || !z->n)
		return;
	if (z->cq->compression == SD_ENHANCED) {
		write_enhanced(z);
	} else if (z->n > 1) {
		write_basic(z);
	} else {
		cqe_write(z->cq, z->cq->pi, &z->run[0], z->run[0].op_own);
		cqe_written(z->cq, 1, z->event);
	}
	z->n = 0;
	z->event = false;
	z->limit = 1 + draw(z, SD_MAX_ZIP);
	open_runs--;
}

/* Whether it keeps the CQE; else the CQE is to be written now, and all before it have been */
bool zip_take(struct zip *z, const struct mlx5_cqe64 *c, bool event)
{
	if (z->n && (!fits(c) || !follows(z, &z->run[z->n - 1], c)))
		zip_flush(z);
	if (!fits(c)) {
		z->titled = false;
		return false;
	}
	if (!z->n)
		open_runs++;
	z->run[z->n++] = *c;
	z->event |= event;
	if (z->n == z->limit)
		zip_flush(z);
	return true;
}

/* The end of a round */
void zip_flush_all(void)
{
	struct sd_cq *cq;

	for (cq = open_runs ? sd_cq_next(NULL) : NULL; cq && open_runs; cq = sd_cq_next(cq))
		if (cq->compression)
			zip_flush(cqe_zip(cq));
}

__attribute__((visibility("default")))
unsigned long softdev_blocks(void)
{
	unsigned long n;

	pthread_mutex_lock(&sd_lock);
	n = blocks;
	pthread_mutex_unlock(&sd_lock);
	return n;
}
