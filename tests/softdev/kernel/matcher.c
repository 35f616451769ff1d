/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * matcher.c: matchers, and the headers of a packet as they compare them. A matcher is a mask over the
 * outer headers; its rules, flow.c's, each have values.
 *
 *   outer headers   64 bytes   0x0/48 source and 0x40/48 destination MAC   0x30/16 type   0x70/16 tag
 *                   0x80/8 protocol   0x88/8 DSCP, ECN   0x90 a tag 0x8100, 0x91 one 0x88a8, 0x92 a
 *                   fragment   0x93/4 version   0x97/9 TCP flags   0xa0, 0xb0 ports of TCP
 *                   0xd8/8 hops   0xe0, 0xf0 ports of UDP   0x100, 0x180 addresses
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

#define OUTER 1u                  /* of the criteria */
#define CRITERIA 0x3fu
#define PARAMS 0x200u             /* bytes */

void sd_fte_of(const uint8_t *p, const struct raw_headers *h, uint8_t fte[SD_FTE])
{
	const uint8_t *ip = p + h->l3, *l4 = p + h->l4;

	memset(fte, 0, SD_FTE);
	memcpy(fte, p + 6, 6);
	memcpy(fte + 8, p, 6);
	sd_set(fte, 0x30, 16, h->type);
	if (h->tags) {
		sd_set(fte, 0x70, 16, h->tci);
		sd_set(fte, p[12] == 0x81 ? 0x90 : 0x91, 1, 1);
	}
	sd_set(fte, 0x92, 1, h->fragment);
	sd_set(fte, 0x93, 4, h->version);
	if (h->version == 4) {
		fte[0x10] = ip[9];
		fte[0x11] = ip[1];
		fte[0x1b] = ip[8];
		memcpy(fte + 0x2c, ip + 12, 4);
		memcpy(fte + 0x3c, ip + 16, 4);
	} else if (h->version == 6) {
		fte[0x10] = (uint8_t)(h->proto ? h->proto : ip[6]);
		fte[0x11] = (uint8_t)(ip[0] << 4 | ip[1] >> 4);
		fte[0x1b] = ip[7];
		memcpy(fte + 0x20, ip + 8, 32);
	}
	if (h->proto == 6) {
		sd_set(fte, 0x97, 9, (l4[12] & 1u) << 8 | l4[13]);
		memcpy(fte + 0x14, l4, 4);
	} else if (h->proto == 17) {
		memcpy(fte + 0x1c, l4, 4);
	}
}

/* A mask or values, of at most PARAMS bytes, of which only the first SD_FTE may be set */
int sd_match_params(const struct ib_uverbs_attr *a, uint8_t fte[SD_FTE])
{
	uint8_t all[PARAMS];
	int err = a->len && a->len <= PARAMS ? sd_in(a, all, sizeof(all)) : EINVAL;

	if (err)
		return err;
	memcpy(fte, all, SD_FTE);
	return sd_clear(all, SD_FTE * 8, (PARAMS - SD_FTE) * 8) ? 0 : EOPNOTSUPP;
}

int sd_cmd_matcher_create(struct sd_cmd *c)
{
	const struct ib_uverbs_attr *mask = sd_attr(c, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK),
				    *type = sd_attr(c, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE),
				    *criteria = sd_attr(c, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA);
	struct sd_matcher *m;
	uint32_t handle;
	uint8_t asked;
	int err = sd_in(criteria, &asked, sizeof(asked));

	if (err)
		return err;
	if (asked & ~CRITERIA || type->len != 2)
		return EINVAL;
	if (type->attr_data.enum_data.elem_id != IBV_FLOW_ATTR_NORMAL || sd_in_u64(c, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, 0) ||
	    sd_in_u64(c, MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, 0) != MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX || sd_link_ib())
		return EOPNOTSUPP;
	m = calloc(1, sizeof(*m));
	if (!m)
		return ENOMEM;
	m->priority = (uint16_t)type->data;
	err = sd_match_params(mask, m->mask);
	/* Checks of checksums, tunnels' bits; and what the criteria leave out is not to be masked */
	if (!err && !sd_clear(m->mask, 0xc0, 24))
		err = EOPNOTSUPP;
	if (!err && (asked & ~OUTER || (!(asked & OUTER) && !sd_clear(m->mask, 0, SD_FTE * 8))))
		err = asked & ~OUTER ? EOPNOTSUPP : EINVAL;
	if (!err)
		err = sd_handle_new(c->ctx, SD_MATCHER, m, &handle);
	if (err) {
		free(m);
		return err;
	}
	sd_out_obj(c, MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, handle);
	return 0;
}

int sd_cmd_matcher_destroy(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_MATCHER, MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE);
}
