/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flow.c: flow rules: which raw packet QPs a packet goes to, be they queues of their own or a hash over
 * many.
 *
 * At each device, the normal rules come first, from the lowest priority number on. The first rule
 * that matches takes the packet, and with it all rules of the same priority that ask for exactly the
 * same; it goes on to later rules only from one that does not trap. What no normal rule took goes to
 * the rules for everything or, if it is for a group, for all groups. Sniffers see every packet.
 *
 * Offered: Ethernet with VLAN, IPv4, IPv6, TCP, UDP with any masks, tags, drop; by specifications of
 * verbs, or by matchers. Tunnels, ESP, MPLS, counters, actions by handle and egress rules are not.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

#define SPECS 10                  /* the kernel's limit */
#define LAST_PRIORITY 15
#define DEFAULT_TAG 0xffffffu

struct spec {
	uint32_t type;            /* IBV_FLOW_SPEC_* */
	uint8_t val[40], mask[40]; /* as the kernel's structures have them */
};

struct sd_flow {
	struct sd_flow *next;
	struct host_qp *hq;       /* or NULL */
	struct sd_tir *tir;       /* not NULL: its RQs, or a table's */
	struct sd_matcher *matcher; /* or NULL; then the values are */
	uint8_t fte[SD_FTE];
	unsigned dev, type, priority, specs;
	bool goes_on, drop;
	uint32_t tag;
	struct spec spec[SPECS];
};

static SD_OWN struct sd_flow *flows;     /* by type, then priority, then age */

static bool eq(const struct spec *s, size_t at, const void *have, size_t len)
{
	const uint8_t *h = have;

	for (size_t i = 0; i < len; i++)
		if ((h[i] ^ s->val[at + i]) & s->mask[at + i])
			return false;
	return true;
}

static bool any(const struct spec *s, size_t at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (s->mask[at + i])
			return true;
	return false;
}

static bool spec_matches(const struct spec *s, const uint8_t *p, const struct raw_headers *h)
{
	const uint16_t tci = htobe16(h->tci), type = htobe16(h->type);
	const uint8_t *ip = p + h->l3;
	uint8_t b;

	switch (s->type) {
	case IBV_FLOW_SPEC_ETH:
		if (any(s, 14, 2) && !h->tags)
			return false;
		return eq(s, 0, p, 12) && eq(s, 12, &type, 2) && eq(s, 14, &tci, 2);
	case IBV_FLOW_SPEC_IPV4:
		return h->version == 4 && eq(s, 0, ip + 12, 8) && eq(s, 8, ip + 9, 1) && eq(s, 9, ip + 1, 1) && eq(s, 10, ip + 8, 1);
	case IBV_FLOW_SPEC_IPV6: {
		const uint32_t label = htobe32((uint32_t)(ip[1] & 15) << 16 | (uint32_t)ip[2] << 8 | ip[3]);

		b = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
		return h->version == 6 && eq(s, 0, ip + 8, 32) && eq(s, 32, &label, 4) && eq(s, 36, ip + 6, 1) && eq(s, 37, &b, 1) &&
		       eq(s, 38, ip + 7, 1);
	}
	case IBV_FLOW_SPEC_TCP:
	case IBV_FLOW_SPEC_UDP:
		/* Destination first */
		return h->proto == (s->type == IBV_FLOW_SPEC_TCP ? 6 : 17) && eq(s, 0, p + h->l4 + 2, 2) && eq(s, 2, p + h->l4, 2);
	}
	return false;
}

static bool matches(const struct sd_flow *f, const uint8_t *p, const struct raw_headers *h)
{
	uint8_t fte[SD_FTE];

	if (f->matcher) {
		sd_fte_of(p, h, fte);
		for (unsigned i = 0; i < SD_FTE; i++)
			if ((fte[i] ^ f->fte[i]) & f->matcher->mask[i])
				return false;
	}
	for (unsigned i = 0; i < f->specs; i++)
		if (!spec_matches(&f->spec[i], p, h))
			return false;
	return true;
}

static bool same(const struct sd_flow *a, const struct sd_flow *b)
{
	return a->priority == b->priority && a->specs == b->specs && !memcmp(a->spec, b->spec, a->specs * sizeof(a->spec[0])) &&
	       a->matcher == b->matcher && !memcmp(a->fte, b->fte, SD_FTE);
}

void sd_flow_deliver(const uint8_t *p, uint32_t len, void (*to)(struct sd_qp *, const struct raw_hit *, const void *),
		     const void *arg)
{
	struct raw_headers h;
	struct sd_flow *f;

	raw_parse(p, len, 0, &h);
	for (unsigned dev = 0; flows && dev < sd_all_ports(); dev++) {
		const struct sd_flow *taken = NULL;

		for (f = flows; f; f = f->next) {
			if (f->dev != dev || (taken && (f->type == IBV_FLOW_ATTR_NORMAL ? !same(f, taken) : f->type != IBV_FLOW_ATTR_SNIFFER)))
				continue;
			if (f->type == IBV_FLOW_ATTR_MC_DEFAULT && !(p[0] & 1))
				continue;
			if (!matches(f, p, &h))
				continue;
			if (f->type == IBV_FLOW_ATTR_NORMAL && !f->goes_on)
				taken = f;
			if (!f->drop) {
				struct raw_hit hit = { .tag = f->tag };

				to(f->tir ? sd_tir_pick(f->tir, p, &h, &hit) : &f->hq->q, &hit, arg);
			}
		}
	}
}

/* ---- commands ---- */

/* A rule's specifications, as they follow the command */
static int specs(struct sd_flow *f, const uint8_t *at, size_t left, unsigned n)
{
	static const struct { uint32_t type; uint16_t size; } known[] = {
		{ IBV_FLOW_SPEC_ETH, 16 }, { IBV_FLOW_SPEC_IPV4, 12 }, { IBV_FLOW_SPEC_IPV6, 40 }, { IBV_FLOW_SPEC_TCP, 4 },
		{ IBV_FLOW_SPEC_UDP, 4 }, { IBV_FLOW_SPEC_ACTION_TAG, 4 }, { IBV_FLOW_SPEC_ACTION_DROP, 0 },
	};
	struct ib_uverbs_flow_spec_hdr hdr;
	unsigned k;

	for (; n; n--, at += hdr.size, left -= hdr.size) {
		if (left < sizeof(hdr))
			return EINVAL;
		memcpy(&hdr, at, sizeof(hdr));
		for (k = 0; k < sizeof(known) / sizeof(known[0]) && known[k].type != hdr.type; k++)
			;
		if (k == sizeof(known) / sizeof(known[0]))
			return EOPNOTSUPP;
		if (hdr.size > left || hdr.reserved || hdr.size != sizeof(hdr) + 2 * known[k].size)
			return EINVAL;
		if (hdr.type == IBV_FLOW_SPEC_ACTION_DROP) {
			f->drop = true;
		} else if (hdr.type == IBV_FLOW_SPEC_ACTION_TAG) {
			memcpy(&f->tag, at + sizeof(hdr), 4);
			if (f->tag >> 24)
				return EINVAL;
		} else {
			struct spec *s = &f->spec[f->specs++];

			s->type = hdr.type;
			memcpy(s->val, at + sizeof(hdr), known[k].size);
			memcpy(s->mask, at + sizeof(hdr) + known[k].size, known[k].size);
			/* Fragments cannot be asked for, nor what a rule does not look at */
			if (hdr.type == IBV_FLOW_SPEC_IPV4 && s->mask[11])
				return EOPNOTSUPP;
		}
	}
	return left ? EINVAL : 0;
}

/* At its place, and what it leads to stays */
static void insert(struct sd_flow *f)
{
	struct sd_flow **at;

	for (at = &flows; *at && ((*at)->type < f->type || ((*at)->type == f->type && (*at)->priority <= f->priority)); at = &(*at)->next)
		;
	f->next = *at;
	*at = f;
	if (f->hq)
		f->hq->flows++;
	if (f->tir)
		f->tir->refs++;
	if (f->matcher)
		f->matcher->refs++;
}

/* A rule by matcher: one QP, TIR or nothing; nothing else can be done to a packet */
int sd_cmd_flow_match(struct sd_cmd *c)
{
	const struct ib_uverbs_attr *dest_qp = sd_attr(c, MLX5_IB_ATTR_CREATE_FLOW_DEST_QP),
				    *dest_devx = sd_attr(c, MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX);
	const struct sd_devx_obj *o = sd_in_obj(c, MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, SD_DEVX);
	struct host_qp *hq = sd_in_obj(c, MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, SD_QP);
	struct sd_matcher *m = sd_in_obj(c, MLX5_IB_ATTR_CREATE_FLOW_MATCHER, SD_MATCHER);
	uint32_t tag = DEFAULT_TAG, flags = 0, handle;
	struct sd_flow *f;
	int err;

	if (!m || (dest_qp && (!hq || hq->q.type != IBV_QPT_RAW_PACKET)) || (dest_devx && !o))
		return EINVAL;
	err = sd_in(sd_attr(c, MLX5_IB_ATTR_CREATE_FLOW_FLAGS), &flags, sizeof(flags));
	if (!err && sd_attr(c, MLX5_IB_ATTR_CREATE_FLOW_TAG))
		err = sd_in(sd_attr(c, MLX5_IB_ATTR_CREATE_FLOW_TAG), &tag, sizeof(tag));
	if (err)
		return err;
	/* To the next table: there is none */
	if (flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS)
		return EOPNOTSUPP;
	if (flags & ~(uint32_t)MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP || !!dest_qp + !!dest_devx + !!flags != 1 || tag >> 24 ||
	    (o && (o->opcode != 0x900)))
		return EINVAL;
	if (m->priority > LAST_PRIORITY)
		return ENOMEM;
	f = calloc(1, sizeof(*f));
	if (!f)
		return ENOMEM;
	*f = (struct sd_flow){ .hq = hq, .tir = o ? o->obj : hq ? hq->tir : NULL, .matcher = m, .dev = sd_port_of(c->ctx, 1),
			       .type = IBV_FLOW_ATTR_NORMAL,
			       .priority = m->priority, .drop = flags, .tag = tag };
	err = sd_match_params(sd_attr(c, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE), f->fte);
	if (!err)
		err = sd_handle_new(c->ctx, SD_FLOW, f, &handle);
	if (err) {
		free(f);
		return err;
	}
	insert(f);
	sd_out_obj(c, MLX5_IB_ATTR_CREATE_FLOW_HANDLE, handle);
	return 0;
}

int sd_cmd_flow_create(struct sd_cmd *c)
{
	const struct ib_uverbs_attr *a = sd_attr(c, UVERBS_ATTR_CORE_IN);
	struct ib_uverbs_create_flow_resp resp = { .comp_mask = 0 };
	struct mlx5_ib_create_flow drv;
	union {
		struct ib_uverbs_create_flow cmd;
		uint8_t bytes[1024];
	} in;
	struct sd_flow *f;
	struct host_qp *hq;
	int err;

	if (!a || a->len < sizeof(in.cmd) || a->len > sizeof(in))
		return EINVAL;
	err = sd_copy(&in, a->data, a->len, false);
	if (!err)
		err = sd_in(sd_attr(c, UVERBS_ATTR_UHW_IN), &drv, sizeof(drv));
	if (err)
		return err;
	if (in.cmd.comp_mask || in.cmd.flow_attr.num_of_specs > SPECS || in.cmd.flow_attr.size != a->len - sizeof(in.cmd) ||
	    !sd_port_ok(in.cmd.flow_attr.port) || in.cmd.flow_attr.type > IBV_FLOW_ATTR_SNIFFER)
		return EINVAL;
	if (in.cmd.flow_attr.flags & ~(uint32_t)IBV_FLOW_ATTR_FLAGS_DONT_TRAP || drv.ncounters_data || sd_link_ib())
		return EOPNOTSUPP;
	/* The kernel's answer to a priority that it does not have */
	if (in.cmd.flow_attr.priority > LAST_PRIORITY)
		return ENOMEM;
	hq = sd_handle_get(c->ctx, SD_QP, in.cmd.qp_handle);
	if (!hq || hq->q.type != IBV_QPT_RAW_PACKET)
		return EINVAL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return ENOMEM;
	f->hq = hq;
	f->tir = hq->tir;
	f->dev = sd_port_of(c->ctx, in.cmd.flow_attr.port);
	f->type = in.cmd.flow_attr.type;
	f->priority = in.cmd.flow_attr.priority;
	f->goes_on = in.cmd.flow_attr.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	f->tag = DEFAULT_TAG;
	err = specs(f, in.bytes + sizeof(in.cmd), a->len - sizeof(in.cmd), in.cmd.flow_attr.num_of_specs);
	/* Only what is asked for is steered by headers */
	if (!err && f->type != IBV_FLOW_ATTR_NORMAL && f->specs)
		err = EINVAL;
	if (!err)
		err = sd_handle_new(c->ctx, SD_FLOW, f, &resp.flow_handle);
	if (err) {
		free(f);
		return err;
	}
	insert(f);
	return SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp) ? sd_undo(c, SD_FLOW, resp.flow_handle) : 0;
}

void sd_flow_free(struct sd_flow *f)
{
	struct sd_flow **at;

	for (at = &flows; *at != f; at = &(*at)->next)
		;
	*at = f->next;
	if (f->hq)
		f->hq->flows--;
	if (f->tir)
		f->tir->refs--;
	if (f->matcher)
		f->matcher->refs--;
	free(f);
}

int sd_cmd_flow_destroy(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_FLOW, UVERBS_ATTR_DESTROY_FLOW_HANDLE);
}
