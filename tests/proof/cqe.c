/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cqe.c: for Frama-C. Completion rings that hold any bytes, compressed blocks among them: nothing outside the
 * ring is read or written.
 */
#include <infiniband/mlx5dv.h>
#include "proof.h"
#include <inlay/cqe.h>
#include <inlay/queue/cq.h>

#define MOST ((uint32_t)PROOF_TO) /* CQEs: the longest ring takes all of its memory */

static uint8_t ring64[MOST * 64] __attribute__((aligned(128))), ring128[MOST * 128] __attribute__((aligned(128)));
static uint32_t record[2];

static uint8_t *ring(uint32_t cqes, uint32_t stride)
{
	return stride == 64 ? ring64 + (MOST - cqes) * 64 : ring128 + (MOST - cqes) * 128;
}

/* A ring of `cqes`, which ends where the memory ends, and whose next CQE is number `at`. */
static void queue(struct inlay_cq *cq, uint32_t cqes, uint32_t stride, uint32_t at, uint32_t format, int enhanced)
{
	uint8_t *buf = ring(cqes, stride);

	memset(cq, 0, sizeof(*cq));
	any_bytes(buf, cqes * stride);
	cq->begin = buf + (stride - 64);
	cq->end = cq->begin + cqes * stride;
	cq->dbrec = record;
	cq->mask = cqes - 1;
	cq->stride = stride;
	cq->ci = at;
	cq->next = cq->begin + (at & cq->mask) * stride;
	cq->own = enhanced ? 0xff : INLAY_CQE_OWNER << 8;
	cq->lap = (uint16_t)any64() & cq->own;
	cq->mini = format;
}

static void look(const struct mlx5_cqe64 *cqe, uint32_t stride)
{
	const uint8_t *payload = (const uint8_t *)inlay_cqe_data(cqe, stride, NULL);
	struct inlay_sig_error error;

	if (payload) {
		/*@ assert \valid_read(payload + (0 .. 31)); */
		if (inlay_cqe_byte_count(cqe) > 32) {
			/*@ assert \valid_read(payload + (0 .. 63)); */
		}
	}
	inlay_cqe_sig_error(cqe, &error);
	inlay_cqe_status(cqe);
	inlay_cqe_opcode_name(inlay_cqe_opcode(cqe));
}

static void unzip(uint32_t cqes, uint32_t stride, uint32_t at, uint32_t format, int enhanced)
{
	struct inlay_cq cq;
	int n;

	queue(&cq, cqes, stride, at, format, enhanced);
	n = inlay_cq_unzip(&cq);
	/*@ assert n == -71 || 1 <= n <= cqes; */
	any_bytes(ring(cqes, stride), cqes * stride);
}

static void poll(uint32_t cqes, uint32_t stride, uint32_t at, int enhanced)
{
	const struct mlx5_cqe64 *cqe;
	struct inlay_cq cq;

	queue(&cq, cqes, stride, at, 0, enhanced);
	cqe = inlay_cq_peek(&cq);
	if (cqe) {
		look(cqe, stride);
		inlay_cq_advance(&cq, 1);
	}
	/*@ assert cq.begin <= cq.next < cq.begin + cqes * stride; */
	any_bytes(record, sizeof(record));
}

static void clean(uint32_t cqes, uint32_t stride, uint32_t at, int enhanced)
{
	struct inlay_cq cq;

	queue(&cq, cqes, stride, at, 0, enhanced);
	inlay_cq_clean(&cq, (uint32_t)any64(), NULL, NULL);
	/*@ assert cq.begin <= cq.next < cq.begin + cqes * stride; */
	any_bytes(ring(cqes, stride), cqes * stride);
	any_bytes(record, sizeof(record));
}

int main(void)
{
	static const uint32_t formats[] = {0, 1, 2, 3, 4, 8, 9};

	any_bytes(record, sizeof(record));
	any_bytes(ring64, sizeof(ring64));
	any_bytes(ring128, sizeof(ring128));
	/*@ loop unroll 8; */
	for (uint32_t cqes = PROOF_FROM; cqes <= PROOF_TO; cqes *= 2)
		/*@ loop unroll 2; */
		for (uint32_t stride = 64; stride <= 128; stride += 64)
			/*@ loop unroll 2; */
			for (uint32_t enhanced = 0; enhanced < 2; enhanced++)
				/*@ loop unroll 16; */
				for (uint32_t at = 0; at < cqes; at += cqes > 4 ? 5 : 1) {
					poll(cqes, stride, at, (int)enhanced);
					if (cqes <= 4)
						clean(cqes, stride, at, (int)enhanced);
					/*@ loop unroll 7; */
					for (uint32_t i = 0; i < sizeof(formats) / sizeof(*formats); i += cqes > 4 ? 3 : 1)
						unzip(cqes, stride, at, formats[i], (int)enhanced);
				}
	return 0;
}
