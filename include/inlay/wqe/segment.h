/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/wqe/segment.h: flags of a post, the segments that most opcodes share, and the cursor that
 * appends them; a request (struct inlay_wr). inlay_wqe_* functions fill a segment at an address;
 * inlay_seg_* functions append one at a cursor.
 *
 * Threads: pure functions of their arguments. Sources: wqe.h.
 */
#ifndef INLAY_WQE_SEGMENT_H
#define INLAY_WQE_SEGMENT_H /* names are stable until 1.0 */

#include <sys/uio.h>
#include <infiniband/mlx5dv.h>
#include <inlay/base.h>
INLAY_CASTS_BEGIN_

#define INLAY_WQEBB 64u     /* bytes */
#define INLAY_DS 16u        /* bytes */
#define INLAY_MAX_DS 63u    /* the DS field has six bits */
#define INLAY_TAG_MAX 16383u /* most in a NIC's list: an ADD and a DEL each, and a SYNC, fit 2^15 WQEBBs */

/*
 * Flags of a post. Bits 24 .. 31 are byte 11 of the control segment. None is an IBV_SEND_* or
 * IBV_ACCESS_* flag. Constant flags with unknown bits (a verbs flag) or two fences do not compile
 * where the post is inlined; INLAY_CHECKED refuses them otherwise.
 *
 *   INLAY_SIGNALED    a CQE when the WQE is done           IBV_SEND_SIGNALED
 *   INLAY_SOLICITED   the peer's CQE is a solicited event  IBV_SEND_SOLICITED
 *   INLAY_INLINE      the payload is copied into the WQE   IBV_SEND_INLINE
 *   INLAY_RING        post, and ring for everything posted so far
 *   INLAY_STREAM(id)  a DCI's stream, 16 bits              mlx5dv_wr_set_dc_addr_stream
 *
 * A fence holds back its own WQE. At most one of:
 *
 *   INLAY_FENCE_INITIATOR_SMALL  until earlier mkey updates (UMR, bind, invalidate) are visible;
 *                                does not wait for DMA copies
 *   INLAY_FENCE                  until all earlier reads and atomics are done
 *   INLAY_FENCE_STRONG           until everything earlier is done
 *   INLAY_FENCE_SMALL_AND_FENCE  the first two together: what libmlx5 writes for IBV_SEND_FENCE
 *
 * The fence field has three bits and holds the mode, 1 .. 4. Bits 16 .. 19 repeat it with a bit per
 * mode, so that two modes are noticed. Bits 0 .. 15 are the stream, big-endian; bit 21 marks it.
 */
#define INLAY_SOLICITED (1u << 25)
#define INLAY_SIGNALED (2u << 26)
#define INLAY_FENCE_INITIATOR_SMALL (1u << 29 | 1u << 16)
#define INLAY_FENCE (2u << 29 | 1u << 17)
#define INLAY_FENCE_STRONG (3u << 29 | 1u << 18)
#define INLAY_FENCE_SMALL_AND_FENCE (4u << 29 | 1u << 19)
#define INLAY_INLINE (1u << 22)
#define INLAY_RING (1u << 23)
#define INLAY_STREAM_ (1u << 21)
#define INLAY_STREAM(id) (INLAY_STREAM_ | (uint16_t)(id) * 0x01000100u >> 16) /* the bytes change places */
/* Byte 11 of a control segment, as other code keeps it (fm_ce_se): mode << 5 | MLX5_WQE_CTRL_CQ_UPDATE | ... */
#define INLAY_RAW_FLAGS(byte) ((uint32_t)(byte) << 24 | ((byte) >> 5 ? 1u << 15 << ((byte) >> 5) : 0))
#define INLAY_POST_FLAGS_ (INLAY_SOLICITED | INLAY_SIGNALED | 7u << 29 | 0xfu << 16 | INLAY_INLINE | INLAY_RING)

#define INLAY_AT_(type, field, at) (offsetof(struct type, field) == at)
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_ctrl_seg) == 16 && INLAY_AT_(mlx5_wqe_ctrl_seg, opmod_idx_opcode, 0) &&
		    INLAY_AT_(mlx5_wqe_ctrl_seg, qpn_ds, 4) && INLAY_AT_(mlx5_wqe_ctrl_seg, signature, 8) &&
		    INLAY_AT_(mlx5_wqe_ctrl_seg, dci_stream_channel_id, 9) &&
		    INLAY_AT_(mlx5_wqe_ctrl_seg, fm_ce_se, 11) && INLAY_AT_(mlx5_wqe_ctrl_seg, imm, 12), "control");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_raddr_seg) == 16 && INLAY_AT_(mlx5_wqe_raddr_seg, raddr, 0) &&
		    INLAY_AT_(mlx5_wqe_raddr_seg, rkey, 8), "remote address");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_data_seg) == 16 && INLAY_AT_(mlx5_wqe_data_seg, byte_count, 0) &&
		    INLAY_AT_(mlx5_wqe_data_seg, lkey, 4) && INLAY_AT_(mlx5_wqe_data_seg, addr, 8), "data");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_inl_data_seg) == 4, "inline");
INLAY_STATIC_ASSERT(sizeof(struct mlx5_wqe_srq_next_seg) == 16 &&
		    INLAY_AT_(mlx5_wqe_srq_next_seg, next_wqe_index, 2), "SRQ entry");

/* ---- Data path: encoders; each fills a segment at seg, 16-byte aligned, with room ---- */

extern void inlay_flags_wrong_(void) __attribute__((error("these are not flags of inlay's posts, or are two fences")));

/* Whether flags has only bits of a post, and at most one fence. */
INLAY_ALWAYS int inlay_flags_ok_(uint32_t flags)
{
	uint32_t fence = flags >> 16 & 0xf, stream = flags & INLAY_STREAM_ ? INLAY_STREAM_ | 0xffff : 0;

	return !(flags & ~(INLAY_POST_FLAGS_ | stream)) && !(fence & (fence - 1)) &&
	       flags >> 29 == (fence == 8 ? 4u : fence == 4 ? 3u : fence);
}

INLAY_ALWAYS void inlay_flags_check_(uint32_t flags)
{
#ifndef __CUDA_ARCH__
	if (__builtin_constant_p(flags)) {
		if (!inlay_flags_ok_(flags))
			inlay_flags_wrong_();
	} else
#endif
	{
		INLAY_CHECK(inlay_flags_ok_(flags), "flags are INLAY_*, not IBV_SEND_*, with one fence at most");
	}
}

/* fixed: opcode, modifier, QPN and DS, each at its bits. */
INLAY_ALWAYS void inlay_wqe_ctrl_(void *seg, uint32_t index, uint64_t fixed, uint32_t flags, uint32_t imm_be)
{
	uint32_t word = (flags & 0xff000000u) | (flags & 0xffff) << 8; /* the stream at +9, big-endian already */

	inlay_put64(seg, inlay_to_be64((uint64_t)(uint16_t)index << 40 | fixed));
	if (INLAY_KNOWN_(imm_be)) {
		inlay_put64((uint8_t *)seg + 8, word | ((uint64_t)imm_be << 32));
	} else {
		inlay_put32((uint8_t *)seg + 8, word);
		inlay_put32((uint8_t *)seg + 12, imm_be);
	}
}

/*
 * Control segment.
 *
 * index   the WQE's first WQEBB, never masked; the low 16 bits go in
 * opcode  MLX5_OPCODE_*, with the opcode's modifier in bits 24 .. 31
 * qpn8    QPN << 8
 * ds      the WQE's length in 16-byte units, this segment included, 1 .. 63
 * flags   of a post; INLAY_INLINE and INLAY_RING are ignored, INLAY_STREAM is for a DCI
 * imm_be  immediate as it will arrive, or the big-endian rkey to invalidate, or 0
 */
INLAY_ALWAYS void inlay_wqe_ctrl(void *seg, uint32_t index, uint32_t opcode, uint64_t qpn8, size_t ds, uint32_t flags,
				 uint32_t imm_be)
{
	uint64_t fixed = qpn8 | (((uint64_t)opcode << 32) + ds);

	INLAY_CHECK(!(opcode & 0x00ffff00), "opcode and modifier have 8 bits each");
	/* One value, which a loop computes once. */
	INLAY_HIDE_(fixed);
	inlay_wqe_ctrl_(seg, index, fixed, flags, imm_be);
}

/* inlay_to_be32, zero-extended: gcc does not know that bswap clears the upper half. */
INLAY_ALWAYS uint64_t inlay_wide_be32_(uint32_t host)
{
#if defined(__x86_64__) && !defined(__clang__) && !defined(__CUDA_ARCH__)
	uint64_t wide;

	if (!INLAY_KNOWN_(host)) {
		__asm__("bswap %k0" : "=r"(wide) : "0"(host));
		return wide;
	}
#endif
	return inlay_to_be32(host);
}

/* Remote address segment: raddr and rkey in host order. */
INLAY_ALWAYS void inlay_wqe_raddr(void *seg, uint64_t raddr, uint32_t rkey)
{
	INLAY_PUT_TWO_(seg, inlay_to_be64(raddr), inlay_wide_be32_(rkey));
}

/* Data pointer segment, host order. len in bytes, 1 .. 2^31 - 1. */
INLAY_ALWAYS void inlay_wqe_data(void *seg, uint64_t addr, uint32_t len, uint32_t lkey)
{
	INLAY_CHECK(!(len & MLX5_INLINE_SEG), "a data segment holds at most 2^31 - 1 bytes");
	INLAY_PUT_THREE_(seg, inlay_to_be32(len), inlay_to_be32(lkey), inlay_to_be64(addr));
}

/* Ends a receive WQE that has fewer SGEs than its stride has room for. */
INLAY_ALWAYS void inlay_wqe_data_end_(void *seg)
{
	inlay_put64(seg, (uint64_t)inlay_to_be32(MLX5_INVALID_LKEY) << 32);
	inlay_put64((uint8_t *)seg + 8, 0);
}

/*
 * Writes the data segments of a receive WQE: one per SGE that is not empty, then the end mark
 * unless `end` is reached. The WQE has room for num_sge.
 */
INLAY_ALWAYS void inlay_wqe_recv_(uint8_t *seg, const uint8_t *end, const struct ibv_sge *sge, uint32_t num_sge)
{
	uint32_t i;

	for (i = 0; i < num_sge; i++) {
		if (INLAY_UNLIKELY(!sge[i].length))
			continue;
		inlay_wqe_data(seg, sge[i].addr, sge[i].length, sge[i].lkey);
		seg += INLAY_DS;
	}
	if (seg != end)
		inlay_wqe_data_end_(seg);
}

/* Writes and reads the number of the next entry in an SRQ's list. */
INLAY_ALWAYS void inlay_wqe_next_(void *wqe, uint16_t index)
{
	uint16_t be = inlay_to_be16(index);

	__builtin_memcpy((uint8_t *)wqe + 2, &be, sizeof(be));
}

INLAY_ALWAYS uint16_t inlay_wqe_next_of_(const void *wqe)
{
	uint16_t be;

	__builtin_memcpy(&be, (const uint8_t *)wqe + 2, sizeof(be));
	return inlay_from_be16(be);
}

/* ---- Data path: the cursor ---- */

/* Made by inlay_sq_begin (queue/sq.h), or by inlay_cursor_init for a WQE in caller memory. */
struct inlay_cursor {
	uint8_t *at;       /* where the next segment goes; end stands for begin */
	uint8_t *wqe;      /* the control segment, written last */
	uint8_t *begin;    /* the ring */
	uint8_t *end;
	size_t ds;         /* 16-byte units written so far, the control segment's included */
	uint32_t index;    /* of the WQE's first WQEBB, never masked */
	uint32_t bbs;      /* WQEBBs that it was begun with, its longest */
	uint8_t *fill;     /* the open inline segment: where its next byte goes */
	uint32_t left;     /* its bytes not yet written */
};

/*
 * A cursor after the control segment of a WQE of at most bbs WQEBBs that starts at WQEBB `index` of
 * a ring of `wqebbs`, a power of two.
 */
INLAY_ALWAYS struct inlay_cursor inlay_cursor_init(void *ring, uint32_t wqebbs, uint32_t index, uint32_t bbs)
{
	struct inlay_cursor c;

	INLAY_CHECK(inlay_is_pow2(wqebbs), "a ring has a power of two of WQEBBs");
	c.begin = (uint8_t *)ring;
	c.end = c.begin + (size_t)wqebbs * INLAY_WQEBB;
	c.wqe = c.begin + (size_t)(index & (wqebbs - 1)) * INLAY_WQEBB;
	c.at = c.wqe + INLAY_DS;
	c.ds = 1;
	c.index = index;
	c.bbs = bbs;
	c.fill = c.at;
	c.left = 0;
	return c;
}

/* Whether the next units lie, as the compiler knows, within one WQEBB, where nothing wraps. */
INLAY_ALWAYS int inlay_seg_inside_(struct inlay_cursor c, size_t units)
{
	if (INLAY_KNOWN_(c.bbs) && c.bbs == 1)
		return 1;
	return INLAY_KNOWN_(c.ds) && INLAY_KNOWN_(units) && c.ds % 4 + units <= 4;
}

/*
 * Where the next segment goes. With inlay_seg_done, for segments that this header does not know.
 * Only the first segment of a WQEBB can be at the ring's end, so with a constant ds the test folds.
 */
INLAY_ALWAYS uint8_t *inlay_seg_at(struct inlay_cursor c)
{
	INLAY_CHECK(c.ds < 4 * (size_t)c.bbs, "a WQE has no more WQEBBs than it was begun with");
	if (INLAY_KNOWN_(c.bbs) && c.bbs == 1)
		return c.at;
	if (c.ds % 4 == 0 && INLAY_UNLIKELY(c.at == c.end))
		return c.begin;
	return c.at;
}

/* The cursor after a 16-byte segment written at seg. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_done(struct inlay_cursor c, uint8_t *seg)
{
	c.at = seg + INLAY_DS;
	c.ds++;
	return c;
}

/*
 * Appends a remote address segment; see inlay_wqe_raddr. Like all inlay_seg_* functions, returns
 * the cursor after the segment; the WQE must have been begun with room for it.
 */
INLAY_ALWAYS struct inlay_cursor inlay_seg_raddr(struct inlay_cursor c, uint64_t raddr, uint32_t rkey)
{
	uint8_t *seg = inlay_seg_at(c);

	inlay_wqe_raddr(seg, raddr, rkey);
	return inlay_seg_done(c, seg);
}

/* Appends 16-byte units of zeros and sets *seg to the first. They must not cross the ring's end. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_zero_(struct inlay_cursor c, uint32_t units, uint8_t **seg)
{
	uint32_t i;

	*seg = inlay_seg_at(c);
	for (i = 0; i < 2 * units; i++)
		inlay_put64(*seg + 8 * i, 0);
	c.at = *seg + units * INLAY_DS;
	c.ds += units;
	return c;
}

/* Appends a data pointer segment; see inlay_wqe_data. To read or write, len must not be 0. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_data(struct inlay_cursor c, uint64_t addr, uint32_t len, uint32_t lkey)
{
	uint8_t *seg = inlay_seg_at(c);

	inlay_wqe_data(seg, addr, len, lkey);
	return inlay_seg_done(c, seg);
}

/* Appends a data pointer segment for each SGE that is not empty. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_sges(struct inlay_cursor c, const struct ibv_sge *sge, uint32_t num_sge)
{
	uint32_t i;

	/* Far from the ring's end no segment tests for it. */
	if (INLAY_LIKELY(!INLAY_KNOWN_(num_sge) && (size_t)(c.end - c.at) >= num_sge * INLAY_DS)) {
		uint8_t *begin = c.at;

		for (i = 0; i < num_sge; i++) {
			if (INLAY_UNLIKELY(!sge[i].length))
				continue;
			inlay_wqe_data(c.at, sge[i].addr, sge[i].length, sge[i].lkey);
			c.at += INLAY_DS;
		}
		c.ds += (size_t)(c.at - begin) / INLAY_DS;
		return c;
	}
	for (i = 0; i < num_sge; i++)
		if (INLAY_LIKELY(sge[i].length))
			c = inlay_seg_data(c, sge[i].addr, sge[i].length, sge[i].lkey);
	return c;
}

INLAY_APART uint8_t *inlay_copy_over_(uint8_t *begin, const uint8_t *end, uint8_t *at, const void *from, uint32_t len)
{
	uint32_t room = (uint32_t)(end - at);

	inlay_copy(at, from, room);
	inlay_copy(begin, (const uint8_t *)from + room, len - room);
	return begin + (len - room);
}

/* Copies into the ring at `at`, wrapping; returns the place after. */
INLAY_ALWAYS uint8_t *inlay_copy_wrap_(struct inlay_cursor c, uint8_t *at, const void *from, uint32_t len)
{
	if (INLAY_UNLIKELY(len > (uint32_t)(c.end - at)))
		return inlay_copy_over_(c.begin, c.end, at, from, len);
	inlay_copy(at, from, len);
	return at + len;
}

/* 16-byte units of an inline segment of `total` bytes; 0 for none. */
INLAY_ALWAYS uint32_t inlay_seg_inline_ds(uint64_t total)
{
	return total ? (uint32_t)((total + 4 + INLAY_DS - 1) / INLAY_DS) : 0;
}

/*
 * Opens an inline segment: a 4-byte count and `total` bytes, padded to 16. The caller writes the
 * first bytes in place and appends the rest:
 *
 *   at = inlay_seg_inline_open(at, 10 + len, 10, &head);
 *   ... 10 bytes at head ...
 *   at = inlay_seg_inline_append(at, data, len);
 *
 * total  bytes of payload, not 0; fill all before the commit. The padding keeps what the ring held
 * head   bytes that the caller writes at *p, 0 .. 12; these never wrap
 */
INLAY_ALWAYS struct inlay_cursor inlay_seg_inline_open(struct inlay_cursor c, uint32_t total, uint32_t head,
						       uint8_t **p)
{
	size_t units = ((size_t)total + 4 + INLAY_DS - 1) / INLAY_DS; /* total is not 0 */
	uint8_t *seg = inlay_seg_at(c);

	INLAY_CHECK(total, "an inline segment is not empty");
	INLAY_CHECK(head <= INLAY_DS - 4 && head <= total,
		    "the first 12 bytes of an inline segment are written in place");
	INLAY_CHECK(!c.left, "one inline segment is filled before the next is opened");
	INLAY_CHECK(c.ds + units <= 4 * (size_t)c.bbs, "a WQE has no more WQEBBs than it was begun with");
	inlay_put32(seg, inlay_to_be32(total + (uint32_t)MLX5_INLINE_SEG)); /* "+" folds into the caller's additions */
	*p = seg + 4;
	c.fill = seg + 4 + head;
	c.left = total - head;
	c.at = seg + units * INLAY_DS;
	if (!inlay_seg_inside_(c, units) && c.at > c.end)
		c.at -= c.end - c.begin;
	c.ds += units;
	return c;
}

/* Appends len bytes to the open inline segment. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_inline_append(struct inlay_cursor c, const void *data, uint32_t len)
{
	INLAY_CHECK(len <= c.left, "no more is appended than the segment was opened for");
	if (INLAY_KNOWN_(c.bbs) && c.bbs == 1) {
		inlay_copy(c.fill, data, len);
		c.fill += len;
	} else {
		c.fill = inlay_copy_wrap_(c, c.fill, data, len);
	}
	c.left -= len;
	return c;
}

/* Appends an inline segment of len bytes; nothing for len 0, as in libmlx5. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_inline(struct inlay_cursor c, const void *data, uint32_t len)
{
	int inside = inlay_seg_inside_(c, (len + 4 + INLAY_DS - 1) / INLAY_DS);
	uint8_t *p;

	if (!len)
		return c;
	c = inlay_seg_inline_open(c, len, 0, &p);
	if (!inside)
		return inlay_seg_inline_append(c, data, len);
	inlay_copy(p, data, len);
	c.left = 0;
	return c;
}

/* ---- Data path: lists ---- */

/*
 * Local memory to gather from or scatter to.
 *
 *   struct inlay_iov from = {iov, 3, mr->lkey, NULL};       one key for all entries
 *   struct inlay_iov from = {iov, 3, 0, lkeys};             one for each
 */
struct inlay_iov {
	const struct iovec *iov;
	uint32_t num;
	uint32_t lkey;         /* of all entries, host order; unused with lkeys */
	const uint32_t *lkeys; /* one per entry, or NULL */
};

struct inlay_av; /* wqe/av.h */

/*
 * What to post (queue/post.h). Fields that an operation does not need are 0.
 *
 * The payload is the list at iov if that is not NULL; else the SGEs if num_sge is not 0; else data,
 * len, lkey. Empty pieces are left out, and all may be empty. With INLAY_INLINE the payload is
 * copied into the WQE and local keys are ignored. For a read, the same fields name the buffers
 * that receive the data.
 */
struct inlay_wr {
	uint64_t raddr;            /* writes, reads, atomics: the peer's address */
	uint32_t rkey;             /* its key, as the peer gave it; SEND_INVAL: the key to invalidate. Host order */
	uint32_t imm_be;           /* *_IMM: the immediate, big-endian (ibv_send_wr.imm_data) */
	const struct inlay_av *to; /* UD, DCI, XRC: the destination, copied now; else NULL */
	const void *data;
	uint32_t len;              /* bytes */
	uint32_t lkey;
	const struct ibv_sge *sge;
	uint32_t num_sge;
	uint32_t reserved;
	const struct inlay_iov *iov;
};

/*
 * Whether a QP's type has the operation, to a destination or not; true if the type is not known.
 * MLX5_OPCODE_TSO stands for all that a raw packet QP posts.
 */
INLAY_FN int inlay_post_fits_(uint32_t type, uint32_t opcode, int to)
{
	int send = opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM;
	int write = opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM;
	int key = opcode == MLX5_OPCODE_UMR; /* without a destination on any QP */

	if (!type || opcode == MLX5_OPCODE_TSO)
		return !type || type == IBV_QPT_RAW_PACKET;
	if (opcode == MLX5_OPCODE_MMO)
		return type == IBV_QPT_RC || type == IBV_QPT_DRIVER;
	return type == IBV_QPT_RC ? !to :
	       type == IBV_QPT_UC ? !to && (send || write || key) :
	       type == IBV_QPT_UD ? to && send :
	       type == IBV_QPT_DRIVER || type == IBV_QPT_XRC_SEND ? to == !key : 0;
}

/* Whether a WQE of this opcode has a remote address. */
INLAY_ALWAYS uint32_t inlay_post_raddr_(uint32_t opcode)
{
	return opcode == MLX5_OPCODE_RDMA_WRITE || opcode == MLX5_OPCODE_RDMA_WRITE_IMM || opcode == MLX5_OPCODE_RDMA_READ;
}

/*
 * Appends a data pointer segment for each entry that is not empty. An entry has at most 2^31 - 1
 * bytes.
 */
INLAY_ALWAYS struct inlay_cursor inlay_seg_iov_(struct inlay_cursor c, const struct inlay_iov *from)
{
	uint32_t i;

	for (i = 0; i < from->num; i++) {
		const struct iovec *v = &from->iov[i];

		INLAY_CHECK(!(v->iov_len >> 31), "a data segment holds at most 2^31 - 1 bytes");
		if (INLAY_LIKELY(v->iov_len))
			c = inlay_seg_data(c, (uintptr_t)v->iov_base, (uint32_t)v->iov_len,
					   from->lkeys ? from->lkeys[i] : from->lkey);
	}
	return c;
}

/*
 * Gathers num SGEs, or iovecs if from is not NULL, into one inline segment. total is the sum of the
 * lengths.
 */
INLAY_ALWAYS struct inlay_cursor inlay_seg_gather_(struct inlay_cursor c, const struct ibv_sge *sge,
						   const struct inlay_iov *from, uint32_t num, uint32_t total)
{
	uint8_t *p;
	uint32_t i;

	if (!total)
		return c;
	c = inlay_seg_inline_open(c, total, 0, &p);
	for (i = 0; i < num; i++)
		c = inlay_seg_inline_append(c, from ? from->iov[i].iov_base : (const void *)(uintptr_t)sge[i].addr,
					    from ? (uint32_t)from->iov[i].iov_len : sge[i].length);
	return c;
}

/* As inlay_seg_inline, gathered from a list. total is the sum of the lengths. */
INLAY_ALWAYS struct inlay_cursor inlay_seg_inlinev(struct inlay_cursor c, const struct ibv_sge *sge, uint32_t num_sge,
						   uint32_t total)
{
	return inlay_seg_gather_(c, sge, NULL, num_sge, total);
}

INLAY_CASTS_END_
#endif
