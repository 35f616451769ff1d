/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * raw.c: raw packets: the Ethernet segment, what it asks to be done to a packet, multi-packet WQEs,
 * segmentation. What a receiver gets is in rxraw.c.
 *
 * The fabric is a hub: a packet reaches every device of every process, the sender's own included,
 * and the flow rules of each decide who receives it (flow.c). Packets shorter than 60 bytes are
 * filled up. Longer ones than RAW_MAX fail, since the port's MTU is smaller.
 *
 * Checksums are computed over what the packet holds when everything else has been done to it; the
 * values that the program left in their places do not count. Without offsets from the program, a
 * header is found as Ethernet, up to two VLAN tags, IPv4 or IPv6 with extensions, TCP or UDP; and
 * behind UDP port 4789 (VXLAN) an inner packet.
 */
#include <errno.h>
#include <string.h>
#include "eng.h"

#define RAW_MAX 10240u
#define RAW_MIN 60u
#define SHORT_ETH 16u           /* bytes of an Ethernet segment without header */
#define VLAN_HLEN 4u
#define VXLAN_PORT 4789
#define VXLAN_HLEN 16u          /* UDP header and its own */

#define ASK_INNER_L3 0x10
#define ASK_INNER_L4 0x20
#define ASK_L3 0x40
#define ASK_L4 0x80

static unsigned get16(const uint8_t *at)
{
	return (unsigned)at[0] << 8 | at[1];
}

static void put16(uint8_t *at, unsigned v)
{
	at[0] = v >> 8;
	at[1] = v;
}

static uint32_t get32(const uint8_t *at)
{
	return get16(at) << 16 | get16(at + 2);
}

/* ---- headers ---- */

static void find_l4(struct raw_headers *h, unsigned proto, uint32_t at)
{
	if (h->fragment || (proto != 6 && proto != 17) || at + (proto == 6 ? 20u : 8u) > h->end)
		return;
	h->l4 = at;
	h->proto = proto;
}

/* A length that cannot be, as in headers that are yet to be cut up: the packet's own */
static uint32_t end_of(uint32_t len, uint32_t header, uint32_t said)
{
	return said > len || said < header ? len : said;
}

static void find_l3(const uint8_t *p, uint32_t len, struct raw_headers *h, uint32_t at)
{
	unsigned next, ext = 0;

	if (h->type == 0x0800 && at + 20 <= len && p[at] >> 4 == 4 && (p[at] & 15) >= 5 && at + (p[at] & 15) * 4u <= len) {
		h->l3 = at;
		h->version = 4;
		h->end = end_of(len, at + (p[at] & 15) * 4, at + get16(p + at + 2));
		h->fragment = get16(p + at + 6) & 0x3fff;
		find_l4(h, p[at + 9], at + (p[at] & 15) * 4);
	} else if (h->type == 0x86dd && at + 40 <= len && p[at] >> 4 == 6) {
		h->l3 = at;
		h->version = 6;
		h->end = end_of(len, at + 41, at + 40 + get16(p + at + 4));
		next = p[at + 6];
		at += 40;
		while ((next == 0 || next == 43 || next == 60 || next == 44) && at + 8 <= len && ext++ < 8) {
			h->fragment |= next == 44;
			next = p[at];
			at += next == 44 ? 8 : 8 + p[at + 1] * 8u;
		}
		find_l4(h, next, at);
	}
}

void raw_parse(const uint8_t *p, uint32_t len, uint32_t from, struct raw_headers *h)
{
	uint32_t at = from + 12;

	memset(h, 0, sizeof *h);
	if (at + 2 > len)
		return;
	for (h->type = get16(p + at); (h->type == 0x8100 || h->type == 0x88a8) && h->tags < 2 && at + 6 <= len; h->tags++) {
		if (!h->tags)
			h->tci = get16(p + at + 2);
		at += VLAN_HLEN;
		h->type = get16(p + at);
	}
	at += 2;
	h->payload = at;
	find_l3(p, len, h, at);
}

/* ---- checksums ---- */

static uint32_t sum(const uint8_t *p, uint32_t len, uint32_t s)
{
	uint32_t i;

	for (i = 0; i + 1 < len; i += 2)
		s += get16(p + i);
	if (len & 1)
		s += (uint32_t)p[len - 1] << 8;
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return s;
}

static uint32_t l4_sum(const uint8_t *p, const struct raw_headers *h)
{
	uint32_t len = h->end - h->l4, s = h->proto + len;

	s = h->version == 4 ? sum(p + h->l3 + 12, 8, s) : sum(p + h->l3 + 8, 32, s);
	return sum(p + h->l4, len, s);
}

static void checksums(uint8_t *p, const struct raw_headers *h, bool l3, bool l4)
{
	uint8_t *at = p + h->l4 + (h->proto == 6 ? 16 : 6);
	unsigned v;

	if (l4 && h->l4) {
		put16(at, 0);
		v = ~l4_sum(p, h) & 0xffff;
		put16(at, !v && h->proto == 17 ? 0xffff : v);
	}
	if (l3 && h->version == 4) {
		put16(p + h->l3 + 10, 0);
		put16(p + h->l3 + 10, ~sum(p + h->l3, (p[h->l3] & 15) * 4, 0));
	}
}

/* Outer and inner headers; those that the program has named are taken from there */
static void all_headers(const struct raw_eth *e, const uint8_t *p, uint32_t len, struct raw_headers *outer, struct raw_headers *inner)
{
	const uint8_t *swp = e->swp;

	raw_parse(p, len, 0, outer);
	memset(inner, 0, sizeof *inner);
	if (outer->proto == 17 && get16(p + outer->l4 + 2) == VXLAN_PORT && outer->l4 + VXLAN_HLEN + 14 <= len)
		raw_parse(p, len, outer->l4 + VXLAN_HLEN, inner);
	/* In units of two bytes: outer L4, outer L3, inner L4, inner L3 */
	if (swp[1] && swp[1] * 2u + 20 <= len) {
		memset(outer, 0, sizeof *outer);
		outer->type = e->swp_flags & 0x10 ? 0x86dd : 0x0800;
		find_l3(p, len, outer, swp[1] * 2u);
		outer->l4 = 0;
		outer->proto = 0;
		if (swp[0])
			find_l4(outer, e->swp_flags & 0x20 ? 17 : 6, swp[0] * 2u);
	}
	if (swp[3] && swp[3] * 2u + 20 <= len) {
		memset(inner, 0, sizeof *inner);
		inner->type = e->swp_flags & 0x01 ? 0x86dd : 0x0800;
		find_l3(p, len, inner, swp[3] * 2u);
		inner->l4 = 0;
		inner->proto = 0;
		if (swp[2])
			find_l4(inner, e->swp_flags & 0x02 ? 17 : 6, swp[2] * 2u);
	}
}

/* ---- the receiver's side ---- */

/* At every device of this process */
static void arrive(const uint8_t *data, uint32_t len)
{
	struct raw_packet in = { .data = data, .len = len };
	const struct raw_headers *h = &in.h;

	raw_parse(data, len, 0, &in.h);
	in.sum = sum(data + h->payload, len - h->payload, 0);
	in.l3_ok = h->version == 6 || (h->version == 4 && sum(data + h->l3, (data[h->l3] & 15) * 4, 0) == 0xffff);
	/* A datagram over IPv4 may do without */
	in.l4_ok = h->l4 && ((h->proto == 17 && h->version == 4 && !get16(data + h->l4 + 6)) || l4_sum(data, h) == 0xffff);
	sd_up.flow_deliver(data, len, rxraw_receive, &in);
}

void raw_frame(const struct frame *f, const uint8_t *payload)
{
	if (f->len >= RAW_MIN && f->len <= RAW_MAX + VLAN_HLEN)
		arrive(payload, f->len);
}

/* ---- the sender ---- */

uint8_t raw_decode(struct rcq *q, struct op *op, const uint8_t *at, const uint8_t *end)
{
	const bool multi = op->opcode == OPCODE_MULTI_PACKET;
	struct raw_eth *e = &q->body.eth;
	unsigned size, i;
	bool inl;

	memset(e, 0, sizeof *e);
	if (end - at < (ptrdiff_t)SHORT_ETH)
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	memcpy(e->swp, at, 4);
	e->ask = at[4];
	e->swp_flags = at[5];
	e->mss = get16(at + 6);
	size = get16(at + 12);
	if (size & 0x8000) {
		e->tag[0] = size & 1 ? 0x88 : 0x81;
		e->tag[1] = size & 1 ? 0xa8 : 0x00;
		memcpy(e->tag + 2, at + 14, 2);
		size = 0;
	}
	e->hdr = at + 14;
	e->hdr_len = size;
	at += SHORT_ETH + (size > 2 ? (size - 2 + 15) & ~15u : 0);
	if (at > end || (multi && (size || e->mss || e->tag[0])) || (op->opcode == MLX5_OPCODE_SEND && size < sd_min_inline()))
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	if (!sq_parse_data(at, end, &q->body.segs, &inl))
		return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	op->total = q->body.segs.total;
	if (op->opcode == MLX5_OPCODE_TSO) {
		struct raw_headers outer, inner, *h;

		all_headers(e, e->hdr, size, &outer, &inner);
		h = inner.version ? &inner : &outer;
		if (!e->mss || e->mss >> 14 || h->proto != 6 || h->l4 + (e->hdr[h->l4 + 12] >> 4) * 4u != size || !op->total ||
		    op->total > SD_MAX_TSO || size + e->mss > RAW_MAX)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	} else if (multi) {
		for (i = 0; i < q->body.segs.n; i++)
			if (q->body.segs.s[i].len < 14 || q->body.segs.s[i].len > RAW_MAX)
				return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
		if (!i)
			return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
	} else if (size + op->total < 14 || size + op->total > RAW_MAX || e->mss) {
		return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
	}
	return mem_segs_ok(q->qp, &q->body.segs, 0) ? 0 : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
}

/* A packet as the program and its segments made it, with what the segment asks for; out it goes */
static void leave(struct rcq *q, uint8_t *p, uint32_t len, bool corrupt)
{
	const struct raw_eth *e = &q->body.eth;
	struct raw_headers outer, inner;
	uint8_t slots[SD_MAX_SLOTS];
	unsigned n, i;

	if (e->tag[0]) {
		memmove(p + 16, p + 12, len - 12);
		memcpy(p + 12, e->tag, 4);
		len += VLAN_HLEN;
	}
	all_headers(e, p, len, &outer, &inner);
	if (inner.version)
		checksums(p, &inner, e->ask & ASK_INNER_L3, e->ask & ASK_INNER_L4);
	checksums(p, &outer, e->ask & ASK_L3, e->ask & ASK_L4);
	if (len < RAW_MIN) {
		memset(p + len, 0, RAW_MIN - len);
		len = RAW_MIN;
	}
	if (corrupt)
		p[len / 2] ^= 0x10;
	arrive(p, len);
	if (eng_is_stepped)
		return;
	for (i = 0, n = wire_others(slots); i < n; i++) {
		struct frame f = { .len = len, .kind = FR_RAW, .dst = UD_MCAST, .src = q->qp->qpn };
		struct iovec v = { p, len };
		uint64_t inst = wire_peer(slots[i]);

		if (inst)
			wire_send(slots[i], inst, &f, &v, 1);
	}
}

/* The headers of segment i, at `off` of the payload and of len bytes; last: there are no more */
static void adjust(const struct raw_eth *e, uint8_t *p, uint32_t hdr, uint32_t off, uint32_t len, unsigned i, bool last)
{
	struct raw_headers h[2];
	unsigned k;
	uint8_t *tcp;

	all_headers(e, p, hdr, &h[0], &h[1]);
	for (k = 0; k < 2; k++) {
		if (h[k].version == 4) {
			put16(p + h[k].l3 + 2, hdr - h[k].l3 + len);
			put16(p + h[k].l3 + 4, get16(p + h[k].l3 + 4) + i);
		} else if (h[k].version == 6) {
			put16(p + h[k].l3 + 4, hdr - h[k].l3 - 40 + len);
		}
		if (h[k].proto == 17)
			put16(p + h[k].l4 + 4, hdr - h[k].l4 + len);
	}
	tcp = p + h[h[1].version != 0].l4;
	off += get32(tcp + 4);
	put16(tcp + 4, off >> 16);
	put16(tcp + 6, off);
	if (!last)
		tcp[13] &= ~0x09; /* FIN, PSH */
	if (i)
		tcp[13] &= ~0x80; /* CWR */
}

bool raw_send(struct rcq *q, struct op *op, uint8_t *synd)
{
	static uint8_t data[ENG_SEGS * RAW_MAX], p[RAW_MAX + 256 + VLAN_HLEN];
	const struct raw_eth *e = &q->body.eth;
	struct iovec src[ENG_IOVS], to = { data, op->total };
	uint8_t slots[SD_MAX_SLOTS];
	uint32_t off = 0, len;
	unsigned n, i;

	/* What comes too fast for another process waits here, as if its port held it back */
	for (i = 0, n = eng_is_stepped ? 0 : wire_others(slots); i < n; i++)
		if (wire_peer(slots[i]) && !wire_room(slots[i]))
			return false;
	if (op->total > sizeof data || !mem_vec(q->qp, &q->body.segs, 0, op->total, 0, src, &n) ||
	    mem_copy(&to, 1, src, n, op->total) != MEM_OK) {
		*synd = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
		return true;
	}
	eng_self = q;
	for (i = 0; off < op->total || !i; i++, off += len) {
		len = op->opcode == OPCODE_MULTI_PACKET ? q->body.segs.s[i].len : op->total - off;
		if (op->opcode == MLX5_OPCODE_TSO && len > e->mss)
			len = e->mss;
		memcpy(p, e->hdr, e->hdr_len);
		memcpy(p + e->hdr_len, data + off, len);
		if (op->opcode == MLX5_OPCODE_TSO)
			adjust(e, p, e->hdr_len, off, len, i, off + len == op->total);
		leave(q, p, e->hdr_len + len, op->corrupt && !i);
	}
	eng_self = NULL;
	return true;
}
