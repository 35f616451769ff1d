/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/queue/cq.h: a completion queue: poll, free, arm, and reserve room for completions.
 *
 *   const struct mlx5_cqe64 *cqe = inlay_cq_peek(&cq);               NULL: no completion
 *   if (cqe) {
 *           ... decode with cqe.h, release the queue it belongs to ...
 *           inlay_cq_advance(&cq, 1);                                returns the slot to the device
 *   }
 *
 * Invariants:
 *   - A CQE belongs to the caller once its owner bit equals the ring's lap bit (in the enhanced layout
 *     of compressed CQEs: once its second-to-last byte equals the lap number). It stays in its slot
 *     until freed or moved by inlay_cq_clean, so a payload scattered to it can be used in place.
 *   - A CQ that overruns is dead, and so are its QPs. Queues never reserve more than its size. A WQE
 *     owns its CQE until that is freed, not only until the WQE is released: free the CQEs of WQEs that
 *     came back (inlay_cq_advance, inlay_cq_update) before ringing for new ones.
 *   - On a CQ with compression, test inlay_cqe_is_special instead of inlay_cqe_is_error, and call
 *     inlay_cq_unzip for a compressed block.
 *
 * Overrun. The device computes the free space in a CQ from the consumer index in the doorbell
 * record. On a CQ that ignores overrun it checks nothing, and may overwrite CQEs that were not
 * freed. One lap ahead, the owner bit does not match and inlay_cq_peek finds nothing. Two laps
 * ahead it matches again, and the caller takes a new completion for an old one (256 laps in the
 * enhanced layout). With compression one lap is enough: inlay_cq_peek may return eight mini CQEs as
 * a CQE, or a block may lose its title. Stay within inlay_cq_reserve even where the device does not
 * check.
 *
 * Events. Verbs' channel, armed by inlay's doorbell:
 *
 *   for (;;) {
 *           while ((cqe = inlay_cq_peek(&cq)))
 *                   ... use, inlay_cq_advance(&cq, 1) ...
 *           if (inlay_cq_arm(&cq, 0))
 *                   break;                                           a CQ without a doorbell page
 *           if (inlay_cq_peek(&cq))
 *                   continue;                                        arrived after the last poll
 *           ibv_get_cq_event(channel, &ibcq, &context);              sleeps
 *           inlay_cq_event(&cq);
 *           ibv_ack_cq_events(ibcq, 1);
 *   }
 *
 * If a completion arrives between the last poll and the arm, mlx5 raises the event at once, because
 * it compares the consumer index in the arm with its own producer index. Verbs does not promise
 * that, hence the second poll. An event covers every completion then in the ring; none of them
 * raises another. So empty the CQ before arming.
 *
 * Moderation delays an event by count or time: ibv_modify_cq with IBV_CQ_ATTR_MODERATE, or the
 * period and count of devx/cq.h. The loop is the same.
 *
 * If the peek after arming finds a completion, the CQ stays armed, and an event comes although no
 * thread sleeps. That is harmless if inlay_cq_event is called for every event: the arm carries
 * their count (arm_sn), and the device ignores an arm whose count has raised its event.
 *
 * Threads: one owner at a time. Another thread may call ibv_get_cq_event, if the CQ is handed over
 * with the event. Sources: libmlx5's cq.c (mlx5_arm_cq, __mlx5_cq_clean), the PRM's "Completion
 * Queues" chapter.
 */
#ifndef INLAY_QUEUE_CQ_H
#define INLAY_QUEUE_CQ_H /* names are stable until 1.0 */

#include <stdio.h>
#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_
#include <inlay/cqe.h>
#include <inlay/wqe.h>
#include <inlay/queue/uar.h>

/* A completion queue. Peek, advance and arm touch only its first cache line. */
struct inlay_cq {
	uint8_t *next;            /* the slot of CQE number ci */
	uint8_t *begin;           /* the first slot's CQE: 64 bytes into the buffer when slots are 128 bytes long */
	uint8_t *end;             /* begin and all slots */
	volatile uint32_t *dbrec; /* consumer index, arm word */
	uint32_t ci;              /* CQEs freed */
	uint32_t mask;            /* CQEs in the ring, less 1 */
	uint32_t stride;          /* 64 or 128 */
	uint16_t lap;             /* ownership word & own of the CQE at next, once it is the caller's */
	uint16_t own;             /* the owner bit; or the lap's number, in the enhanced layout */
	uint8_t *uar;             /* doorbell page */
	uint32_t cqn;
	uint32_t arm_sn;          /* events seen */

	uint32_t reserved;        /* CQEs promised to queues */
	uint32_t mini;            /* enum inlay_mini_format */
	char refusal[92];         /* what inlay_cq_reserve said last */
	uint16_t abi;             /* INLAY_ABI */
	struct ibv_cq *verbs;     /* of inlay_cq_from_cq, else NULL */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_cq, reserved) == INLAY_CACHE_LINE, "a poll touches one line of its queue");

/* ---- Set-up ---- */

/*
 * Initializes *cq for a fresh completion ring. Returns 0, or -EINVAL for an argument out of its
 * range.
 *
 * buf       the ring, 64-byte aligned; cqe_cnt its CQEs, a power of two, 1 .. 2^22; cqe_size 64 or
 *           128 bytes
 * dbrec     consumer index and arm word
 * uar       the doorbell page (mlx5dv_cq.cq_uar); may be NULL for a CQ that is never armed
 *
 * Sets the owner bit of every empty slot, so that inlay_cq_peek tests nothing else: by
 * compare-and-swap, which keeps a CQE that arrives meanwhile.
 */
INLAY_COLD INLAY_RESULT int inlay_cq_init(struct inlay_cq *cq, void *buf, uint32_t cqe_cnt, uint32_t cqe_size,
					  volatile uint32_t *dbrec, void *uar, uint32_t cqn)
{
	uint32_t i;

	if (!buf || (uintptr_t)buf % INLAY_CACHE_LINE || !inlay_is_pow2(cqe_cnt) || cqe_cnt > 1u << 22 || !dbrec)
		return -EINVAL;
	if ((cqe_size != 64 && cqe_size != 128) || cqn >> 24)
		return -EINVAL;
	__builtin_memset(cq, 0, sizeof(*cq));
	cq->begin = (uint8_t *)buf + (cqe_size - 64);
	cq->end = cq->begin + (size_t)cqe_cnt * cqe_size;
	cq->next = cq->begin;
	cq->mask = cqe_cnt - 1;
	cq->stride = cqe_size;
	cq->own = INLAY_CQE_OWNER << 8;
	cq->dbrec = dbrec;
	cq->uar = (uint8_t *)uar;
	cq->cqn = cqn;
	cq->abi = INLAY_ABI;
	for (i = 0; i < cqe_cnt; i++) {
		struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)(void *)(cq->begin + (size_t)i * cqe_size);
		uint8_t none = MLX5_CQE_INVALID << 4;

		__atomic_compare_exchange_n(&cqe->op_own, &none, (uint8_t)(none | INLAY_CQE_OWNER), 0, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	}
	return 0;
}

/* Bytes of a CQE slot, 64 or 128. */
INLAY_FN uint32_t inlay_cq_cqe_size(const struct inlay_cq *cq)
{
	return cq->stride;
}

/* Number of the CQ. */
INLAY_FN uint32_t inlay_cq_cqn(const struct inlay_cq *cq)
{
	return cq->cqn;
}

/*
 * Sets n CQEs aside for a queue that completes to this CQ: one per WQEBB of a send ring, one per
 * entry of a receive ring. The functions of verbs.h that take a CQ call this. To reserve fewer,
 * call it and pass NULL to those functions. Then keep at most n WQEBBs or entries posted until
 * their CQEs are freed; unsignaled WQEs count, because a QP in error completes every WQE.
 *
 * Returns 0; -ENOSPC when fewer than n are left, and *why points into cq and says how many; -EPROTO
 * for a CQ of another version of inlay.
 */
INLAY_COLD INLAY_RESULT int inlay_cq_reserve(struct inlay_cq *cq, uint32_t n, const char **why)
{
	INLAY_CHECK(cq, "the queue is not NULL");
	if (cq->abi != INLAY_ABI)
		return inlay_refuse_(-EPROTO, why, "the CQ's object is of another version of inlay");
	if (n <= cq->mask + 1 - cq->reserved) {
		cq->reserved += n;
		return 0;
	}
	snprintf(cq->refusal, sizeof(cq->refusal), "the CQ is too small: %u more CQEs wanted, %u of %u are left", n,
		 cq->mask + 1 - cq->reserved, cq->mask + 1);
	return inlay_refuse_(-ENOSPC, why, cq->refusal);
}

/* Reserves n CQEs for a queue, which keeps in *of and *reserved where and how many. */
INLAY_COLD int inlay_cq_reserve_for_(struct inlay_cq *cq, uint32_t n, struct inlay_cq **of, uint32_t *reserved,
				     const char **why)
{
	int err = inlay_cq_reserve(cq, n, why);

	if (!err) {
		*of = cq;
		*reserved = n;
	}
	return err;
}

/* Checks that n CQEs are left and that cq is the CQ `made`, before anything is changed. */
INLAY_COLD int inlay_cq_offer_(struct inlay_cq *cq, const struct ibv_cq *made, uint32_t n, const char **why)
{
	int err;

	if (cq->verbs && made && cq->verbs != made)
		return inlay_refuse_(-EINVAL, why, "the queue completes to another CQ");
	err = inlay_cq_reserve(cq, n, why);
	if (!err)
		cq->reserved -= n;
	return err;
}

/* Gives back what inlay_cq_reserve set aside. cq may be NULL. */
INLAY_COLD void inlay_cq_unreserve(struct inlay_cq *cq, uint32_t n)
{
	if (!cq)
		return;
	INLAY_CHECK(n <= cq->reserved, "no more is given back than was reserved");
	cq->reserved -= n;
}

/*
 * Says how the device compresses the CQEs of a fresh CQ. A CQ of mlx5dv_create_cq with
 * MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE has the basic layout; one of inlay_devx_cq_create has
 * what its attributes say.
 *
 * format    enum inlay_mini_format: what the CQEs of receives carry
 * enhanced  0 for the basic layout, 1 for the enhanced one, which costs one CQE of the CQ's room
 *
 * Returns 0; -EINVAL for an unknown format; -ENOSPC when every CQE of the CQ has been reserved.
 */
INLAY_COLD INLAY_RESULT int inlay_cq_set_compression(struct inlay_cq *cq, uint32_t format, int enhanced)
{
	uint32_t i;

	INLAY_CHECK(cq && !cq->ci && cq->own >> 8, "the queue is fresh");
	if (!inlay_mini_ok_(format))
		return -EINVAL;
	cq->mini = format;
	if (!enhanced)
		return 0;
	/* The CQE freed last stays in its slot: it is the title of a block that comes next. */
	if (cq->reserved > cq->mask)
		return -ENOSPC;
	cq->reserved++;
	cq->own = 0xff;
	cq->lap = 0;
	for (i = 0; i <= cq->mask; i++)
		cq->begin[(size_t)i * cq->stride + offsetof(struct mlx5_cqe64, signature)] = 0xff;
	return 0;
}

/* ---- Data path ---- */

/* The slot of completion `index`, whether or not it holds one. */
INLAY_ALWAYS const struct mlx5_cqe64 *inlay_cq_slot_(const struct inlay_cq *cq, uint32_t index)
{
	return (const struct mlx5_cqe64 *)(const void *)(cq->begin + (size_t)(index & cq->mask) * cq->stride);
}

/* The ownership word of a CQE: its second-to-last byte (+62), then the byte with the owner bit. */
INLAY_ALWAYS uint16_t inlay_cq_word_(const uint8_t *slot)
{
	return *(const volatile inlay_record *)(const void *)(slot + offsetof(struct mlx5_cqe64, signature));
}

/* What follows `lap` when the ring wraps: the other owner bit, or the next number. */
INLAY_ALWAYS uint16_t inlay_cq_next_lap_(const struct inlay_cq *cq, uint16_t lap)
{
	return (uint16_t)((lap + (cq->own & -cq->own)) & cq->own);
}

/* The lap of completion `index`, less than two laps from ci on. */
INLAY_ALWAYS uint16_t inlay_cq_lap_(const struct inlay_cq *cq, uint32_t index)
{
	return (index ^ cq->ci) & (cq->mask + 1) ? inlay_cq_next_lap_(cq, cq->lap) : cq->lap;
}

/* Whether that slot is the caller's. */
INLAY_ALWAYS int inlay_cq_valid_(const struct inlay_cq *cq, uint32_t index, const struct mlx5_cqe64 *cqe)
{
	return !((inlay_cq_word_((const uint8_t *)cqe) ^ inlay_cq_lap_(cq, index)) & cq->own);
}

/* Marks a CQE that is or will be in slot `index` as the caller's, as the device would. */
INLAY_ALWAYS void inlay_cq_own_(const struct inlay_cq *cq, uint32_t index, struct mlx5_cqe64 *cqe)
{
	uint16_t lap = inlay_cq_lap_(cq, index);

	cqe->op_own = (uint8_t)((cqe->op_own & ~INLAY_CQE_OWNER) | lap >> 8);
	if (!(cq->own >> 8))
		cqe->signature = (uint8_t)lap;
}

/* Puts a CQE into a slot of the caller's. */
INLAY_ALWAYS void inlay_cq_put_(const struct inlay_cq *cq, uint32_t index, const struct mlx5_cqe64 *cqe)
{
	struct mlx5_cqe64 *to = (struct mlx5_cqe64 *)(uintptr_t)inlay_cq_slot_(cq, index);

	inlay_copy(to, cqe, sizeof(*cqe));
	inlay_cq_own_(cq, index, to);
}

/*
 * The oldest completion not yet freed, or NULL when there is none. It is the caller's until
 * inlay_cq_advance; until then, peeking returns the same one.
 */
INLAY_ALWAYS struct mlx5_cqe64 *inlay_cq_peek(const struct inlay_cq *cq)
{
	uint8_t *next;

	INLAY_CHECK(cq, "the queue is not NULL");
	next = cq->next;
	if (INLAY_UNLIKELY((inlay_cq_word_(next) ^ cq->lap) & cq->own))
		return NULL;
	/* The device writes the owner bit last: neither CQE nor data may be loaded before it. */
	inlay_fence_polled();
	INLAY_PROBE_(poll, cq->cqn, cq->ci, (uint32_t)next[63] >> 4);
	return (struct mlx5_cqe64 *)(void *)next;
}

/* Whether the next n completions are there; for INLAY_CHECKED. */
INLAY_COLD INLAY_BOTH_ int inlay_cq_there_(const struct inlay_cq *cq, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && i <= cq->mask; i++)
		if (!inlay_cq_valid_(cq, cq->ci + i, inlay_cq_slot_(cq, cq->ci + i)))
			break;
	return i == n;
}

/*
 * Frees n completions without telling the device: before inlay_cq_update, or for a CQ that ignores
 * overrun (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN).
 */
INLAY_ALWAYS void inlay_cq_advance_quiet(struct inlay_cq *cq, uint32_t n)
{
	INLAY_CHECK(cq, "the queue is not NULL");
	INLAY_CHECK(inlay_cq_there_(cq, n), "only completions that have arrived are freed");
	INLAY_PROBE_(advance, cq->cqn, cq->ci, n);
	if (INLAY_KNOWN_(n) && n == 1) {
		uint8_t *next = cq->next + cq->stride;

		cq->ci++;
		if (INLAY_UNLIKELY(next == cq->end)) {
			next = cq->begin;
			cq->lap = inlay_cq_next_lap_(cq, cq->lap);
		}
		cq->next = next;
		return;
	}
	cq->lap = inlay_cq_lap_(cq, cq->ci + n);
	cq->ci += n;
	cq->next = cq->begin + (size_t)(cq->ci & cq->mask) * cq->stride;
}

/*
 * Whether n completions that are not freed have arrived, 1 .. the CQ's size; of a CQ without
 * compression.
 */
INLAY_FN int inlay_cq_holds(const struct inlay_cq *cq, uint32_t n)
{
	return inlay_cq_valid_(cq, cq->ci + n - 1, inlay_cq_slot_(cq, cq->ci + n - 1));
}

/* Tells the device how far the ring has been freed. */
INLAY_ALWAYS void inlay_cq_update(struct inlay_cq *cq)
{
	INLAY_CHECK(cq, "the queue is not NULL");
	/* The device may overwrite the slots as soon as the record says so. */
	inlay_fence_cqe_free();
	*cq->dbrec = inlay_to_be32(cq->ci & 0xffffff);
}

/* Frees the n oldest completions, all of which must have arrived, and tells the device. */
INLAY_ALWAYS void inlay_cq_advance(struct inlay_cq *cq, uint32_t n)
{
	inlay_cq_advance_quiet(cq, n);
	inlay_cq_update(cq);
}

/* ---- Compressed CQEs ---- */

/*
 * How many CQEs the block at `index` stands for, and what they share; 0 if no device writes such a
 * block. The title of the enhanced layout is the CQE before.
 */
INLAY_ALWAYS uint32_t inlay_cq_block_(const struct inlay_cq *cq, uint32_t index, struct mlx5_cqe64 *title)
{
	int enhanced = !(cq->own >> 8);
	uint32_t n = inlay_cqe_block_(inlay_cq_slot_(cq, index), enhanced);

	inlay_copy(title, inlay_cq_slot_(cq, enhanced ? index - 1 : index), sizeof(*title));
	if (n > cq->mask + 1 - (index - cq->ci) || title->op_own & INLAY_CQE_ERROR ||
	    (enhanced && inlay_cqe_is_compressed(title)))
		return 0;
	title->op_own &= (uint8_t)~INLAY_CQE_COMPRESSED;
	return n;
}

/* The slot of the block's first mini CQEs, and the WQE counter of the first of its receives. */
INLAY_ALWAYS uint32_t inlay_cq_minis_(const struct inlay_cq *cq, uint32_t index)
{
	return cq->own >> 8 ? index + 1 : index;
}

INLAY_ALWAYS uint32_t inlay_cq_counter_(const struct inlay_cq *cq, const struct mlx5_cqe64 *title)
{
	return inlay_cqe_wqe_counter(title) + (cq->own >> 8 ? 0 : inlay_cqe_step_(title, cq->mini));
}

/* Writes n CQEs of a block into their slots. */
INLAY_ALWAYS void inlay_cq_expand_(const struct inlay_cq *cq, uint32_t index, struct mlx5_cqe64 *title, uint32_t n,
				   uint32_t format)
{
	const uint8_t *first = (const uint8_t *)inlay_cq_slot_(cq, inlay_cq_minis_(cq, index));
	uint8_t *slot = (uint8_t *)(uintptr_t)inlay_cq_slot_(cq, index), minis[64];
	uint32_t i, counter = inlay_cq_counter_(cq, title);

	inlay_cq_own_(cq, index, title);
	for (i = 0; i < n; i++) {
		/* The first array follows the title (basic layout); each other lies in the slot of its first CQE. */
		if (i % INLAY_MINI_CQES == 0)
			inlay_copy(minis, i ? slot : first, sizeof(minis));
		inlay_copy(slot, title, sizeof(*title));
		inlay_cqe_expand_((struct mlx5_cqe64 *)(void *)slot, minis + i % INLAY_MINI_CQES * 8, format, &counter);
		slot += cq->stride;
		if (INLAY_UNLIKELY(slot == cq->end)) {
			slot = cq->begin;
			inlay_cq_own_(cq, index + i + 1, title);
		}
	}
}

/* Writes the CQEs of the block at `index` into their slots. Returns how many, or -EPROTO. */
INLAY_APART int inlay_cq_unzip_(const struct inlay_cq *cq, uint32_t index)
{
	struct mlx5_cqe64 title;
	uint32_t n, format;

	n = inlay_cq_block_(cq, index, &title);
	if (!n)
		return -EPROTO;
	format = title.op_own >> 4 == MLX5_CQE_REQ ? INLAY_MINI_REQ_ : cq->mini;
	/* The usual formats are passed as constants, which fold. */
	if (format == INLAY_MINI_HASH)
		inlay_cq_expand_(cq, index, &title, n, INLAY_MINI_HASH);
	else if (format == INLAY_MINI_CSUM)
		inlay_cq_expand_(cq, index, &title, n, INLAY_MINI_CSUM);
	else if (format == INLAY_MINI_CSUM_STRIDX)
		inlay_cq_expand_(cq, index, &title, n, INLAY_MINI_CSUM_STRIDX);
	else
		inlay_cq_expand_(cq, index, &title, n, format);
	/* The slots must be written before a record frees them. */
	inlay_fence_wqe_record();
	return (int)n;
}

/*
 * Replaces the compressed block at the head of the ring (inlay_cq_peek, inlay_cqe_is_compressed) by
 * the CQEs it stands for; they are peeked and freed like any others.
 *
 * Returns how many there are, or -EPROTO if the block is not one that a device writes: then the CQ
 * cannot be used any more.
 */
INLAY_FN int inlay_cq_unzip(struct inlay_cq *cq)
{
	INLAY_CHECK(cq, "the queue is not NULL");
	INLAY_CHECK(inlay_cqe_is_compressed(inlay_cq_slot_(cq, cq->ci)), "the oldest completion is a compressed block");
	return inlay_cq_unzip_(cq, cq->ci);
}

/*
 * Asks for one event on the CQ's completion channel when the next completion comes (solicited 0),
 * or the next that is solicited or an error (solicited 1); see "Events" above.
 *
 * Returns 0, or -ENOTSUP when the CQ has no doorbell page. Same bytes as ibv_req_notify_cq.
 */
INLAY_FN int inlay_cq_arm(struct inlay_cq *cq, int solicited)
{
	uint32_t word;

	INLAY_CHECK(cq, "the queue is not NULL");
	word = (cq->arm_sn & 3) << 28 | (solicited ? 1u << 24 : 0) | (cq->ci & 0xffffff);
	if (!cq->uar)
		return -ENOTSUP;
	/* The consumer index that the device compares with must not be older than the arm word's. */
	inlay_cq_update(cq);
	cq->dbrec[1] = inlay_to_be32(word);
	inlay_fence_record_reg();
	INLAY_STORE_((inlay_doorbell *)(void *)(cq->uar + 0x20), inlay_to_be64((uint64_t)word << 32 | cq->cqn));
	/* The caller sleeps next: a lighter fence would save nothing. */
	inlay_fence_reg_full();
	return 0;
}

/*
 * Counts an event. Call it once for each event of this CQ that ibv_get_cq_event returns, or the
 * device ignores the next arm.
 */
INLAY_FN void inlay_cq_event(struct inlay_cq *cq)
{
	cq->arm_sn++;
}

/* Removes the CQEs whose number, as number_of reads it, is this one. */
INLAY_COLD uint32_t inlay_cq_clean_(struct inlay_cq *cq, uint32_t (*number_of)(const struct mlx5_cqe64 *cqe),
				    uint32_t number, void (*gone)(const struct mlx5_cqe64 *cqe, void *arg), void *arg)
{
	uint32_t end = cq->ci, index, removed = 0;

	while (end - cq->ci <= cq->mask && inlay_cq_valid_(cq, end, inlay_cq_slot_(cq, end))) {
		inlay_fence_polled();
		if (inlay_cqe_is_compressed(inlay_cq_slot_(cq, end)))
			inlay_cq_unzip_(cq, end);
		end++;
	}
	/* From the newest down: those that stay move up and take their new slots' owner bits. */
	for (index = end; index-- != cq->ci;) {
		const struct mlx5_cqe64 *from = inlay_cq_slot_(cq, index);

		if (number_of(from) == number) {
			if (gone)
				gone(from, arg);
			removed++;
		} else if (removed) {
			struct mlx5_cqe64 *to = (struct mlx5_cqe64 *)(uintptr_t)inlay_cq_slot_(cq, index + removed);

			if (cq->stride == 128) /* its first half may hold payload */
				inlay_copy(to - 1, from - 1, 64);
			inlay_cq_put_(cq, index + removed, from);
		}
	}
	if (removed) {
		/* What was moved must be in place before the slots below it are free. */
		inlay_fence_wqe_record();
		inlay_cq_advance(cq, removed);
	}
	return removed;
}

/*
 * Removes a QP's unfreed completions; all others stay, in order, but may move to other slots: drop
 * pointers that inlay_cq_peek returned. libmlx5 no longer does so for a CQ that was taken over.
 * Call it when the QP produces no more (in RESET, or destroyed), before its number can be reused.
 *
 * gone  called with arg for each removed CQE, newest first, to release what it completes; may be
 *       NULL. For a QP on an SRQ: inlay_srq_gone, or a function that calls it
 *
 * Returns how many were removed.
 */
INLAY_COLD uint32_t inlay_cq_clean(struct inlay_cq *cq, uint32_t qpn,
				   void (*gone)(const struct mlx5_cqe64 *cqe, void *arg), void *arg)
{
	INLAY_CHECK(cq, "the queue is not NULL");
	return inlay_cq_clean_(cq, inlay_cqe_qpn, qpn, gone, arg);
}

INLAY_CASTS_END_
#endif
