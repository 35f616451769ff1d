/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tir.c: which receive queue a packet goes to: an RQ, or that of a table which a hash of the packet's
 * headers names. A TIR is made by command (fweth.c), or stands behind a QP of verbs with
 * rx_hash_conf, whose context the kernel's driver fills in.
 *
 *   context   0x20/4 1: by table   0xe8/24 RQ   0x100 symmetric   0x108/24 table   0x120/4 hash: 0, or
 *             2 for Toeplitz   0x140 key of 40 bytes   0x280 IPv6, 0x281 UDP, 0x282/30 fields: source
 *             and destination address, source and destination port
 *
 * The hash is of the chosen fields, in that order. Where the context says symmetric, the smaller of
 * two addresses and the smaller of two ports come first. A packet without some of the fields has no
 * hash; it goes to the table's first queue.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/mlx5-abi.h>
#include "firmware.h"

#define TOEPLITZ 2u
#define KEY 0x28u                 /* byte */
#define KEY_BYTES 40u

enum { SRC_IP = 1, DST_IP = 2, SRC_PORT = 4, DST_PORT = 8, FIELDS = 15 };

static SD_OWN struct sd_numbers tirs = { .max = SD_MAX_TIR, .first = 1 };

struct sd_tir *sd_tir_new(struct sd_ctx *ctx, const uint8_t tirc[SD_TIRC], struct host_wq *rq, struct host_ind_tbl *rqt)
{
	struct sd_tir *t = calloc(1, sizeof(*t));

	if (!t || sd_number_new(&tirs, t, &t->number)) {
		free(t);
		return NULL;
	}
	t->ctx = ctx;
	t->rq = rq;
	t->rqt = rqt;
	memcpy(t->tirc, tirc, SD_TIRC);
	if (rq)
		rq->refs++;
	if (rqt)
		rqt->refs++;
	return t;
}

int sd_tir_free(struct sd_tir *t)
{
	if (t->refs)
		return EBUSY;
	if (t->rq)
		t->rq->refs--;
	if (t->rqt)
		t->rqt->refs--;
	tirs.at[t->number] = NULL;
	free(t);
	return 0;
}

struct sd_tir *sd_tir_find(uint32_t number)
{
	return sd_number_get(&tirs, number);
}

/* What of a context asks for a hash that is not offered: another function, fields beyond those above */
bool sd_tir_hash_ok(const uint8_t *tirc)
{
	const unsigned fn = sd_get(tirc, 0x120, 4);

	return (!fn || fn == TOEPLITZ) && sd_clear(tirc, 0x282, 26) && sd_clear(tirc, 0x2a0, 32);
}

/* As the kernel's driver: 0 or an errno */
int sd_tir_of_verbs(const struct mlx5_ib_create_qp_rss *rss, uint32_t entries, uint8_t tirc[SD_TIRC])
{
	const uint64_t f = rss->rx_hash_fields_mask;
	const bool v4 = f & (MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_DST_IPV4), v6 = f & (MLX5_RX_HASH_SRC_IPV6 | MLX5_RX_HASH_DST_IPV6),
		   tcp = f & (MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_DST_PORT_TCP),
		   udp = f & (MLX5_RX_HASH_SRC_PORT_UDP | MLX5_RX_HASH_DST_PORT_UDP);
	unsigned fields = 0;

	memset(tirc, 0, SD_TIRC);
	/* Tunnels, loopback's exceptions, IPsec */
	if (rss->comp_mask || rss->flags || f >> 8 || !sd_clear(rss->reserved, 0, 48))
		return EOPNOTSUPP;
	if (rss->rx_hash_function != MLX5_RX_HASH_FUNC_TOEPLITZ)
		return EOPNOTSUPP;
	if (rss->rx_key_len != KEY_BYTES || (!f && entries > 1) || (v4 && v6) || (tcp && udp))
		return EINVAL;
	if (f & (MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_SRC_IPV6))
		fields |= SRC_IP;
	if (f & (MLX5_RX_HASH_DST_IPV4 | MLX5_RX_HASH_DST_IPV6))
		fields |= DST_IP;
	if (f & (MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_SRC_PORT_UDP))
		fields |= SRC_PORT;
	if (f & (MLX5_RX_HASH_DST_PORT_TCP | MLX5_RX_HASH_DST_PORT_UDP))
		fields |= DST_PORT;
	sd_set(tirc, 0x20, 4, 1);
	sd_set(tirc, 0x120, 4, TOEPLITZ);
	memcpy(tirc + KEY, rss->rx_hash_key, KEY_BYTES);
	sd_set(tirc, 0x280, 1, v6);
	sd_set(tirc, 0x281, 1, udp);
	sd_set(tirc, 0x282, 30, fields);
	return 0;
}

/* ---- the hash ---- */

static uint32_t toeplitz(const uint8_t *key, const uint8_t *in, unsigned n)
{
	uint32_t window = sd_get(key, 0, 32), hash = 0;

	for (unsigned i = 0; i < n; i++)
		for (unsigned bit = 8; bit--;) {
			if (in[i] >> bit & 1)
				hash ^= window;
			window = window << 1 | (key[i + 4] >> bit & 1);
		}
	return hash;
}

/* A pair of addresses or ports, as many of it as are chosen */
static unsigned put(uint8_t *to, const uint8_t *pair, unsigned size, bool first, bool second, bool sorted)
{
	const bool swap = sorted && first && second && memcmp(pair, pair + size, size) > 0;

	if (first)
		memcpy(to, pair + (swap ? size : 0), size);
	if (second)
		memcpy(to + (first ? size : 0), pair + (swap ? 0 : size), size);
	return (first + second) * size;
}

static void hash(const uint8_t *tirc, const uint8_t *p, const struct raw_headers *h, struct raw_hit *hit)
{
	const unsigned fields = sd_get(tirc, 0x282, 30), version = sd_get(tirc, 0x280, 1) ? 6 : 4, proto = sd_get(tirc, 0x281, 1) ? 17 : 6;
	const unsigned ip = fields & (SRC_IP | DST_IP), ports = fields & (SRC_PORT | DST_PORT);
	const bool sorted = sd_get(tirc, 0x100, 1);
	uint8_t in[36];
	unsigned n = 0;

	if (sd_get(tirc, 0x120, 4) != TOEPLITZ || !fields || (ip && h->version != version) || (ports && h->proto != proto))
		return;
	if (ip)
		n = put(in, p + h->l3 + (version == 4 ? 12 : 8), version == 4 ? 4 : 16, ip & SRC_IP, ip & DST_IP, sorted);
	if (ports)
		n += put(in + n, p + h->l4, 2, ports & SRC_PORT, ports & DST_PORT, sorted);
	hit->hash = toeplitz(tirc + KEY, in, n);
	/* Of the source, two bits each: IP at 0, L4 at 4; of the destination at 2 and 6 */
	hit->hash_type = (ip & SRC_IP ? 1 : 0) << 0 | (ip & DST_IP ? 1 : 0) << 2;
	hit->hash_type *= version == 4 ? 1 : 2;
	hit->hash_type |= ((ports & SRC_PORT ? 1 : 0) << 4 | (ports & DST_PORT ? 1 : 0) << 6) * (proto == 6 ? 1 : 2);
}

struct sd_qp *sd_tir_pick(const struct sd_tir *t, const uint8_t *p, const struct raw_headers *h, struct raw_hit *hit)
{
	hash(t->tirc, p, h, hit);
	return t->rq ? &t->rq->q : &t->rqt->wq[hit->hash % t->rqt->cnt]->q;
}
