/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ring.c: for Frama-C. WQEs of many lengths, at every position, in short rings; then completions of any content.
 * Nothing outside the ring, the payload or the register is read or written.
 */
#include <infiniband/mlx5dv.h>
#include "proof.h"
#include <inlay/queue/post.h>
#include <inlay/queue/raw.h>

#define MOST 8u                 /* WQEBBs */
#define BYTES (MOST * INLAY_WQEBB + 16)

static uint8_t ring1[64], ring2[128], ring4[256], ring8[512];
static uint8_t payload[BYTES];
static uint64_t reg[64];
static uint32_t record[2];
static struct inlay_uar uar;
static struct inlay_av av;

static uint8_t *proof_half(uint8_t *at, uint32_t size)
{
	return at == uar.reg ? at + size : uar.reg;
}

static uint8_t *ring(uint32_t wqebbs)
{
	return wqebbs == 1 ? ring1 : wqebbs == 2 ? ring2 : wqebbs == 4 ? ring4 : ring8;
}

/* What lies in memory that the device shares is any. */
static void any(uint32_t wqebbs)
{
	any_bytes(ring(wqebbs), wqebbs * INLAY_WQEBB);
	any_bytes(reg, sizeof(reg));
	any_bytes(record, sizeof(record));
	uar.next = uar.reg;
}

/* A queue of which `pending` WQEBBs are out, whose next WQE goes to WQEBB `at`. */
static void queue(struct inlay_sq *sq, uint32_t wqebbs, uint32_t at, uint32_t pending)
{
	memset(sq, 0, sizeof(*sq));
	sq->buf = sq->last = ring(wqebbs);
	sq->end = sq->buf + wqebbs * INLAY_WQEBB;
	sq->dbrec = (inlay_record *)(void *)(record + 1) + 1;
	sq->uar = &uar;
	sq->next = &uar.next;
	sq->reg_size = sq->copy_max = uar.size;
	sq->mask = wqebbs - 1;
	sq->qpn8 = any64() & 0xffffff00;
	sq->pi = at;
	sq->pending = pending;
	sq->short_from = at;
	sq->max_ds = INLAY_MAX_DS;
	sq->last_ds = 0;
	sq->unrung = 0;
}

/* What a post must leave behind. */
static void posted(const struct inlay_sq *sq, uint32_t wqebbs, uint32_t at, int err)
{
	uint32_t bbs = sq->pi - at;

	/*@ assert err == 0 || sq->pi == at; */
	/*@ assert sq->pending == bbs && sq->pending <= wqebbs; */
	/*@ assert sq->buf <= sq->last < sq->buf + wqebbs * 64; */
}

/* A datagram of SGEs. */
static int post_datagram(struct inlay_sq *sq, const struct ibv_sge *sge, uint32_t num_sge, uint32_t flags)
{
	struct inlay_wr wr = {};

	wr.to = &av;
	wr.sge = sge;
	wr.num_sge = num_sge;
	return inlay_post(sq, MLX5_OPCODE_SEND, &wr, flags);
}

static void post_inline(uint32_t wqebbs, uint32_t at, uint32_t len, uint32_t flags)
{
	const uint8_t *from = payload + BYTES - len;
	struct inlay_sq sq;

	queue(&sq, wqebbs, at, 0);
	posted(&sq, wqebbs, at, inlay_post_send_inline(&sq, from, len, flags));
	inlay_sq_ring(&sq);
	any(wqebbs);
}

static void post_write(uint32_t wqebbs, uint32_t at, uint32_t len, uint32_t flags)
{
	const uint8_t *from = payload + BYTES - len;
	struct inlay_sq sq;

	queue(&sq, wqebbs, at, 0);
	posted(&sq, wqebbs, at, inlay_post_write_inline(&sq, any64(), (uint32_t)any64(), from, len, flags | INLAY_RING));
	any(wqebbs);
}

/* Two pieces into one segment, which begins late in its WQEBB. */
static void post_pieces(uint32_t wqebbs, uint32_t at, uint32_t len, uint32_t flags)
{
	uintptr_t from = (uintptr_t)(payload + BYTES - len);
	struct ibv_sge sge[2] = {{from, len / 3, 0}, {from + len / 3, len - len / 3, 0}};
	struct inlay_sq sq;

	queue(&sq, wqebbs, at, 0);
	posted(&sq, wqebbs, at, post_datagram(&sq, sge, 2, flags | INLAY_INLINE));
	inlay_sq_ring_doorbell(&sq);
	any(wqebbs);
}

/* n SGEs, of which that in the middle is empty. */
static void post_sges(uint32_t wqebbs, uint32_t at, uint32_t n, uint32_t flags)
{
	struct ibv_sge sge[4 * MOST + 1];
	struct inlay_sq sq;

	/*@ loop unroll 40; */
	for (uint32_t i = 0; i < n; i++) {
		sge[i].addr = any64();
		sge[i].length = i == n / 2 ? 0 : 1 + (uint32_t)any64() % 0x7fffffff;
		sge[i].lkey = (uint32_t)any64();
	}
	queue(&sq, wqebbs, at, 0);
	posted(&sq, wqebbs, at, inlay_post_read(&sq, any64(), (uint32_t)any64(), sge, n, flags));
	inlay_sq_ring(&sq);
	queue(&sq, wqebbs, at, 0);
	posted(&sq, wqebbs, at, post_datagram(&sq, sge, n / 2, flags));
	any(wqebbs);
}

static void post(uint32_t wqebbs, uint32_t at)
{
	uint32_t flags = any64() & 1 ? INLAY_SIGNALED : 0, len, n;

	/*@ loop unroll 600; */
	for (len = 0; len <= wqebbs * INLAY_WQEBB + 16; len++) {
		/* In longer rings, those about the end of a unit. */
		if (wqebbs > 2 && !PROOF_ALL && len % 16 - 11 > 2)
			continue;
		post_inline(wqebbs, at, len, flags);
		post_write(wqebbs, at, len, flags);
		post_pieces(wqebbs, at, len, flags);
	}
	/*@ loop unroll 40; */
	for (n = 0; n <= 4 * wqebbs; n++)
		post_sges(wqebbs, at, n, flags);
}

/* Any completion, in a ring that holds any bytes. */
static void release(uint32_t wqebbs)
{
	struct mlx5_cqe64 cqe;
	struct inlay_sq sq;
	int freed;

	/*@ loop unroll 9; */
	for (uint32_t pending = 0; pending <= wqebbs; pending++) {
		any_bytes(&cqe, sizeof(cqe));
		queue(&sq, wqebbs, (uint32_t)any64(), pending);
		sq.short_from = (uint32_t)any64();
		freed = inlay_sq_release(&sq, &cqe);
		if (wqebbs <= 2) {
			/*@ assert sq.pending <= pending && (freed > 0 || sq.pending == pending); */
		}
		inlay_sq_release_until(&sq, (uint32_t)any64());
	}
}

int main(void)
{
	uint32_t wqebbs, at, pending;

	any_bytes(payload, sizeof(payload));
	any_bytes(&av, sizeof(av));
	uar.reg = uar.next = (uint8_t *)reg;
	uar.size = 256;
	uar.mode = INLAY_UAR_SERIAL;
	/*@ loop unroll 8; */
	for (wqebbs = PROOF_FROM; wqebbs <= PROOF_TO; wqebbs *= 2) {
		any(wqebbs);
		release(wqebbs);
		/*@ loop unroll 8; */
		for (at = 0; at < wqebbs; at++)
			post(wqebbs, at);
	}
	return 0;
}
