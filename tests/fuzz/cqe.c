/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cqe.c: any bytes as a ring of completions: polled, unzipped, decoded, cleaned, given to send queue and tag list. All lies at the
 * end of an allocation, so that a sanitizer sees what is touched beside it. For libFuzzer (make fuzz), and for tests/task/fuzz.c.
 *
 * Input: a byte: bits 0-2 log2 of the ring's CQEs, 3 slots of 128 bytes, 4 the enhanced layout; a byte: the format, modulo 7; a byte: where the
 * ring is read first; a byte: WQEs that are out; a byte: steps that follow; the steps; then what is in the slots.
 */
#include "fuzz.h"
#include <inlay/match.h>
#include <inlay/queue/batch.h>
#include <inlay/queue/user_index.h>
#include <inlay/tag.h>

#define CQE_BBS 8u
#define CQE_TAGS 3u
#define CQE_STEPS 32u

struct cqe_scene {
	struct inlay_uar uar;
	struct inlay_sq sq, command;
	struct inlay_cq cq;
	struct inlay_tag_list list;
	struct inlay_match match;
	struct inlay_tag_rx rx;
	uint32_t record[2];
	uint64_t page[64] __attribute__((aligned(512)));
	uint8_t ring[CQE_BBS * 64] __attribute__((aligned(64)));
	uint8_t commands[64 * 64] __attribute__((aligned(64)));
};

static void *cqe_memory(size_t size)
{
	void *memory = NULL;

	sure(!posix_memalign(&memory, 512, size));
	memset(memory, 0, size);
	return memory;
}

/* What may be asked of any completion. */
static void cqe_look(struct cqe_scene *s, const struct mlx5_cqe64 *cqe)
{
	uint32_t size = inlay_cq_cqe_size(&s->cq), out = inlay_sq_pending(&s->sq), i, n;
	const uint8_t *payload = (const uint8_t *)inlay_cqe_data(cqe, size, NULL);
	struct inlay_sig_error error;
	struct inlay_tag_wc wc;
	uint8_t sum = 0;
	int freed;

	if (payload) {
		n = inlay_cqe_byte_count(cqe);
		sure(n <= 64 && inlay_cqe_is_scattered(cqe));
		for (i = 0; i < n; i++)
			sum = (uint8_t)(sum + payload[i]);
		sure(inlay_cqe_data(cqe, size, &sum) == payload);
	}
	inlay_cqe_sig_error(cqe, &error);
	sure(inlay_cqe_opcode_name(inlay_cqe_opcode(cqe)) && inlay_syndrome_text(inlay_cqe_syndrome(cqe)));
	sure((inlay_cqe_status(cqe) != IBV_WC_SUCCESS) == inlay_cqe_is_error(cqe) || inlay_cqe_is_error(cqe));
	if (inlay_tag_list_owns(&s->list, cqe))
		sure(inlay_tag_rx_complete(&s->rx, cqe, size, &wc) <= INLAY_TAG_RX_BROKEN);
	freed = inlay_sq_release(&s->sq, cqe);
	sure(freed == -EPROTO ? inlay_sq_pending(&s->sq) == out : freed > 0 && inlay_sq_pending(&s->sq) + (uint32_t)freed == out);
}

static void cqe_input(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, data + size};
	uint32_t what = fuzz_8(&in), format = fuzz_8(&in) % 7, at = fuzz_8(&in), out = fuzz_8(&in), steps = fuzz_8(&in) % CQE_STEPS;
	uint32_t cqes = 1u << (what & 7), stride = what & 8 ? 128 : 64, lengths[CQE_STEPS], i, n;
	struct cqe_scene *s = (struct cqe_scene *)cqe_memory(sizeof(*s));
	uint8_t *ring = (uint8_t *)cqe_memory(cqes * stride), how[CQE_STEPS];
	const struct mlx5_cqe64 *cqe;
	size_t tags = inlay_tag_list_size(CQE_TAGS, 64), table = inlay_match_size(INLAY_MATCH_MIN);
	void *tag_memory = cqe_memory(tags), *table_memory = cqe_memory(table);
	struct inlay_match_found found;
	uint16_t counters[CQE_STEPS];
	struct ibv_sge sge[8] = {};
	int unzipped;

	sure(!inlay_uar_init(&s->uar, s->page, 256, INLAY_UAR_SERIAL));
	sure(!inlay_sq_init(&s->sq, s->ring, CQE_BBS, s->record, 5, INLAY_MAX_DS, &s->uar));
	sure(!inlay_sq_init(&s->command, s->commands, 64, s->record, 6, INLAY_MAX_DS, &s->uar));
	sure(!inlay_cq_init(&s->cq, ring, cqes, stride, s->record, s->page, 1));
	sure(!inlay_cq_set_compression(&s->cq, format < 5 ? format : 3 + format, what >> 4 & 1) || cqes == 1);
	sure(!inlay_tag_list_init(&s->list, tag_memory, tags, CQE_TAGS, &s->command, 7));
	sure(!inlay_match_init(&s->match, table_memory, table, INLAY_MATCH_MIN, 0, 1));
	sure(!inlay_tag_rx_init(&s->rx, &s->match, &s->list, 0));
	for (i = 0; i < 8; i++)
		sge[i].length = 1;
	/* The ring is read from its `at`-th slot on, in whatever lap that is. */
	for (i = 0; i < at; i++) {
		ring[(i % cqes) * stride + stride - 1] = s->cq.own >> 8 ? (uint8_t)(s->cq.lap >> 8) : 0;
		ring[(i % cqes) * stride + stride - 2] = (uint8_t)s->cq.lap;
		sure(inlay_cq_peek(&s->cq));
		inlay_cq_advance_quiet(&s->cq, 1);
	}
	for (i = 0; i < 3; i++)
		sure(inlay_tag_rx_post(&s->rx, i, ~(uint64_t)0, sge, i, &found) == 0);
	while (out && !inlay_post_send(&s->sq, sge, out % 8 + 1, 0))
		out >>= 3;
	inlay_sq_ring(&s->sq);
	fuzz_bytes(&in, how, steps);
	fuzz_bytes(&in, ring, cqes * stride);
	for (i = 0; i < steps; i++) {
		cqe = inlay_cq_peek(&s->cq);
		switch (how[i] & 7) {
		case 0:
			n = inlay_cq_decode(&s->cq, counters, lengths, how[i] >> 3);
			sure(n <= (uint32_t)how[i] >> 3);
			break;
		case 1:
			for (n = how[i] >> 3; n-- && cqe && !inlay_cqe_is_special(cqe); cqe = inlay_cq_peek(&s->cq)) {
				cqe_look(s, cqe);
				inlay_cq_advance_quiet(&s->cq, 1);
			}
			inlay_cq_update(&s->cq);
			break;
		case 2:
			inlay_cq_clean(&s->cq, how[i] >> 3, NULL, NULL);
			break;
		case 3:
			inlay_cq_clean_index(&s->cq, how[i] >> 3, NULL, NULL);
			break;
		default:
			if (!cqe)
				break;
			cqe_look(s, cqe);
			if (inlay_cqe_is_compressed(cqe)) {
				unzipped = inlay_cq_unzip(&s->cq);
				sure(unzipped == -EPROTO || (unzipped > 0 && (uint32_t)unzipped <= cqes));
				if (unzipped < 0)
					i = steps;
			} else {
				inlay_cq_advance(&s->cq, 1);
			}
		}
	}
	free(tag_memory);
	free(table_memory);
	free(ring);
	free(s);
}

FUZZ_TARGET(cqe_input)
