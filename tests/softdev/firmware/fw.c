/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fw.c: the firmware: finds the handler of a command. Handlers of everything but queues and keys.
 *
 * To the firmware a context is its uid. A context sees no object of another uid. Objects that verbs
 * calls of the same context made have the same uid.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "fwqueue.h"

#define HEADER 16u

/* ---- dispatch ---- */

static const struct sd_devx_op *const tables[] = {
	sd_fw_ops, sd_fw_mkey_ops, sd_fw_cq_ops, sd_fw_qp_ops, sd_fw_srq_ops, sd_fw_dct_ops, sd_fw_eth_ops,
};

uint8_t sd_devx_fail(struct sd_devx_cmd *c, uint8_t status, uint32_t syndrome)
{
	memset(c->out, 0, c->outlen);
	sd_set(c->out, 0x20, 32, syndrome);
	return status;
}

static const struct sd_devx_op *find(uint16_t opcode)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct sd_devx_op *op = tables[i]; op->opcode; op++)
			if (op->opcode == opcode)
				return op;
	return NULL;
}

static uint8_t run(struct sd_devx_cmd *c)
{
	const struct sd_devx_op *op = find(c->opcode);

	if (!op)
		return SD_FAIL(c, SD_ST_BAD_OP);
	/* This function manages no others */
	if (!sd_clear(c->in, 0x20, 16))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (c->inlen < op->in || c->inlen % 4)
		return SD_FAIL(c, SD_ST_BAD_INLEN);
	if (c->outlen < op->out || c->outlen % 4)
		return SD_FAIL(c, SD_ST_BAD_OUTLEN);
	return op->run(c);
}

uint8_t sd_fw_run(struct sd_devx_cmd *c)
{
	uint8_t status = run(c);

	c->out[0] = status;
	return status;
}

void sd_devx_answer(struct sd_devx_cmd *c, size_t at, const uint8_t *from, size_t len)
{
	if (at < c->outlen)
		memcpy(c->out + at, from, len < c->outlen - at ? len : c->outlen - at);
}

/* ---- objects ---- */

uint8_t sd_devx_made(struct sd_devx_cmd *c, uint32_t number, void *obj, uint8_t (*destroy)(void *obj))
{
	struct sd_devx_obj *o = calloc(1, sizeof(*o));

	if (!o)
		return SD_FAIL(c, SD_ST_NO_RES);
	*o = (struct sd_devx_obj){ .ctx = c->ctx, .opcode = c->opcode, .obj_type = c->opcode == 0xa00 ? c->op_mod : 0, .number = number,
				   .obj = obj, .destroy = destroy };
	c->made = o;
	return SD_ST_OK;
}

struct sd_pd *sd_devx_pd(const struct sd_devx_cmd *c, uint32_t pdn)
{
	struct sd_pd *pd = sd_pd_find(pdn);

	return pd && pd->ctx == c->ctx ? pd : NULL;
}

struct sd_cq *sd_devx_cq(const struct sd_devx_cmd *c, uint32_t cqn)
{
	struct sd_cq *cq = sd_cq_find(cqn);

	return cq && cq->ctx == c->ctx ? cq : NULL;
}

struct sd_srq *sd_devx_srq(const struct sd_devx_cmd *c, uint32_t srqn)
{
	struct sd_srq *srq = sd_srq_find(srqn);

	return srq && srq->ctx == c->ctx ? srq : NULL;
}

struct sd_qp *sd_devx_qp(const struct sd_devx_cmd *c, uint32_t qpn)
{
	struct sd_qp *qp = sd_qp_find(qpn);

	return qp && qp->ctx == c->ctx ? qp : NULL;
}

static uint8_t pd_destroy(void *obj)
{
	return sd_pd_free(obj) ? SD_ST_BUSY : SD_ST_OK;
}

static uint8_t pd_alloc(struct sd_devx_cmd *c)
{
	struct sd_pd *pd;
	uint8_t status;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (sd_pd_new(c->ctx, &pd))
		return SD_FAIL(c, SD_ST_LIMIT);
	sd_set(c->out, 0x48, 24, pd->pdn);
	status = sd_devx_made(c, pd->pdn, pd, pd_destroy);
	if (status)
		sd_pd_free(pd);
	return status;
}

/*
 * XRC domains, transport domains, PSVs and counter sets have nothing but a number, an owner and
 * users
 */
struct sd_domain *sd_devx_domain(const struct sd_devx_cmd *c, unsigned kind, uint32_t number)
{
	struct sd_domain *d = sd_number_get(&sd_domains[kind], number);

	return d && d->ctx == c->ctx ? d : NULL;
}

static uint8_t domain_free(void *obj)
{
	struct sd_domain *d = obj;

	if (d->refs)
		return SD_ST_BUSY;
	if (d->pd)
		d->pd->refs--;
	sd_domains[d->kind].at[d->number] = NULL;
	free(d);
	return SD_ST_OK;
}

static uint8_t domain_new(struct sd_devx_cmd *c, unsigned kind, unsigned bit, unsigned width)
{
	struct sd_domain *d;
	uint8_t status;
	int err;

	if (c->op_mod)
		return SD_FAIL(c, SD_ST_BAD_OP);
	d = calloc(1, sizeof(*d));
	err = d ? sd_number_new(&sd_domains[kind], d, &d->number) : ENOMEM;
	if (err) {
		free(d);
		return SD_FAIL(c, SD_ST_LIMIT);
	}
	d->ctx = c->ctx;
	d->kind = kind;
	sd_set(c->out, bit, width, d->number);
	status = sd_devx_made(c, d->number, d, domain_free);
	if (status)
		domain_free(d);
	return status;
}

static uint8_t xrcd_alloc(struct sd_devx_cmd *c)
{
	return domain_new(c, SD_XRC_DOMAIN, 0x48, 24);
}

static uint8_t td_alloc(struct sd_devx_cmd *c)
{
	return domain_new(c, SD_TRANSPORT_DOMAIN, 0x48, 24);
}

static uint8_t psv_create(struct sd_devx_cmd *c)
{
	struct sd_pd *pd = sd_devx_pd(c, sd_get(c->in, 0x48, 24));
	uint8_t status;

	if (!pd)
		return SD_FAIL(c, SD_ST_BAD_RES);
	status = domain_new(c, SD_PSV, 0x88, 24);
	if (!status) {
		((struct sd_domain *)c->made->obj)->pd = pd;
		((struct sd_domain *)c->made->obj)->psv.pd = pd;
		pd->refs++;
	}
	return status;
}

static uint8_t counters_alloc(struct sd_devx_cmd *c)
{
	return domain_new(c, SD_COUNTERS, 0x58, 8);
}

static uint8_t counters_query(struct sd_devx_cmd *c)
{
	struct sd_domain *d = sd_devx_domain(c, SD_COUNTERS, sd_get(c->in, 0xf8, 8));

	if (!d)
		return SD_FAIL(c, SD_ST_BAD_RES);
	if (!sd_clear(c->in, 0xc1, 31))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	sd_set(c->out, 0x80, 32, d->counters.writes);
	sd_set(c->out, 0xc0, 32, d->counters.reads);
	sd_set(c->out, 0x100, 32, d->counters.atomics);
	sd_set(c->out, 0x180, 32, d->counters.no_buffer);
	sd_set(c->out, 0x200, 32, d->counters.duplicates);
	if (sd_get(c->in, 0xc0, 1))
		memset(&d->counters, 0, sizeof(d->counters));
	return SD_ST_OK;
}

/* ---- what the device says of itself ---- */

static uint8_t nop(struct sd_devx_cmd *c)
{
	(void)c;
	return SD_ST_OK;
}

static uint8_t query_adapter(struct sd_devx_cmd *c)
{
	static const char psid[16] = "MT_0000000223";

	sd_set(c->out, 0x80 + 0xc8, 24, 0x0002c9);
	sd_set(c->out, 0x80 + 0xf0, 16, 0x15b3);
	memcpy(c->out + 16 + 0xf0, psid, sizeof(psid));
	return SD_ST_OK;
}

/* The interface's step: 1, with the receive queues that came with it; 0 is long gone */
static uint8_t query_issi(struct sd_devx_cmd *c)
{
	sd_set(c->out, 0x50, 16, 1);
	sd_set(c->out, 0x360, 32, 3);
	return SD_ST_OK;
}

/* No other vport than one's own */
static bool own_vport(const struct sd_devx_cmd *c)
{
	return sd_clear(c->in, 0x40, 1) && sd_clear(c->in, 0x50, 16);
}

static uint8_t query_vport_state(struct sd_devx_cmd *c)
{
	if (c->op_mod > 1)
		return SD_FAIL(c, SD_ST_BAD_OP);
	if (c->op_mod || !own_vport(c))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	sd_set(c->out, 0x78, 4, 1);
	sd_set(c->out, 0x7c, 4, !sd_port_down(sd_port_of(c->ctx, 1)));
	return SD_ST_OK;
}

static uint8_t query_nic_vport(struct sd_devx_cmd *c)
{
	uint8_t v[0x100] = { 0 };

	if (!own_vport(c) || sd_get(c->in, 0x65, 3) > 2)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	sd_set(v, 0x1f, 1, !sd_link_ib());
	sd_set(v, 0x130, 16, sd_link_ib() ? 4096 : 4096 + 22);
	sd_sys_image_guid(v + 0x140 / 8);
	sd_node_guid(sd_port_of(c->ctx, 1), v + 0x180 / 8);
	sd_node_guid(sd_port_of(c->ctx, 1), v + 0x1c0 / 8);
	sd_set(v, 0x785, 3, sd_get(c->in, 0x65, 3));
	if (!sd_link_ib())
		sd_port_mac(sd_port_of(c->ctx, 1), v + 0x7b0 / 8);
	sd_devx_answer(c, HEADER, v, sizeof(v));
	return SD_ST_OK;
}

static uint8_t query_hca_vport(struct sd_devx_cmd *c)
{
	unsigned asked = sd_get(c->in, 0x4c, 4), port = asked ? asked : 1;
	bool down = sd_port_down(sd_port_of(c->ctx, port));
	uint8_t v[0x200] = { 0 };

	if (!sd_link_ib() || !own_vport(c) || !sd_port_ok(port))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	sd_set(v, 0x101, 1, 1);
	sd_set(v, 0x110, 4, down ? 3 : 5);
	sd_set(v, 0x118, 4, down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE);
	sd_set(v, 0x11c, 4, 1);
	sd_sys_image_guid(v + 0x140 / 8);
	sd_node_guid(sd_port_of(c->ctx, port), v + 0x180 / 8);
	sd_node_guid(sd_port_of(c->ctx, 1), v + 0x1c0 / 8);
	sd_set(v, 0x200, 32, 0x00010000); /* as the port's cap_mask in sysfs */
	sd_set(v, 0x300, 16, sd_lid(sd_port_of(c->ctx, port)));
	sd_set(v, 0x31b, 5, 18);
	sd_set(v, 0x320, 16, sd_lid(0));
	sd_devx_answer(c, HEADER, v, sizeof(v));
	return SD_ST_OK;
}

static uint8_t query_roce_address(struct sd_devx_cmd *c)
{
	unsigned index = sd_get(c->in, 0x40, 16), asked = sd_get(c->in, 0x5c, 4), port = asked ? asked : 1, type;
	uint8_t *a = c->out + HEADER;
	union ibv_gid gid;
	static const uint8_t v4[12] = { [10] = 0xff, 0xff };

	if (sd_link_ib() || !sd_port_ok(port) || index >= SD_GIDS)
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (sd_gid(sd_port_of(c->ctx, port), index, &gid, &type))
		return SD_ST_OK;
	if (type == IBV_GID_TYPE_ROCE_V2 && !memcmp(gid.raw, v4, 12)) {
		memcpy(a + 12, gid.raw + 12, 4);
	} else {
		memcpy(a, gid.raw, 16);
		sd_set(a, 0xd4, 4, 1);
	}
	sd_port_mac(sd_port_of(c->ctx, port), a + 0x90 / 8);
	sd_set(a, 0xd8, 8, type == IBV_GID_TYPE_ROCE_V2 ? 2 : 0);
	return SD_ST_OK;
}

/* Nothing is bonded */
static uint8_t query_lag(struct sd_devx_cmd *c)
{
	sd_set(c->out, 0x40 + 0x34, 4, 1);
	sd_set(c->out, 0x40 + 0x3c, 4, 1);
	return SD_ST_OK;
}

/*
 * Registers, those that users may have: the node's description, which is only kept, and the clock,
 * which is only read. A write says in its data what the register shall be; a read has the
 * register's selectors there, of which these have none.
 */
static uint8_t access_register(struct sd_devx_cmd *c)
{
	enum { WRITE, READ };
	static SD_OWN uint8_t description[SD_MAX_DEVICES][64];
	uint8_t r[64] = { 0 };
	struct timespec t;
	size_t len;

	if (c->op_mod > READ)
		return SD_FAIL(c, SD_ST_BAD_OP);
	switch (sd_get(c->in, 0x50, 16)) {
	case 0x6001:
		len = 64;
		break;
	case 0x9055:
		len = 0x1c;
		break;
	default:
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	}
	if (c->inlen < HEADER + len)
		return SD_FAIL(c, SD_ST_BAD_INLEN);
	if (c->outlen < HEADER + len)
		return SD_FAIL(c, SD_ST_BAD_OUTLEN);
	if (!sd_clear(c->in, 0x40, 16) || !sd_clear(c->in, 0x60, 32) || (c->op_mod == WRITE && len != 64))
		return SD_FAIL(c, SD_ST_BAD_PARAM);
	if (len == 64) {
		if (c->op_mod == WRITE)
			memcpy(description[c->ctx->dev], c->in + HEADER, len);
		memcpy(r, description[c->ctx->dev], len);
	} else {
		clock_gettime(CLOCK_REALTIME, &t);
		sd_set(r, 0x80, 32, t.tv_sec);
		sd_set(r, 0xa2, 30, t.tv_nsec);
	}
	sd_devx_answer(c, HEADER, r, len);
	return SD_ST_OK;
}

const struct sd_devx_op sd_fw_ops[] = {
	{ 0x100, 0x10, 0x10, sd_fw_query_hca_cap },
	{ 0x101, 0x10, 0x110, query_adapter },
	{ 0x10a, 0x10, 0x70, query_issi },
	{ 0x600, 0x10, 0x20, psv_create },
	{ 0x750, 0x10, 0x10, query_vport_state },
	{ 0x754, 0x10, 0x10, query_nic_vport },
	{ 0x760, 0x10, 0x30, query_roce_address },
	{ 0x762, 0x10, 0x10, query_hca_vport },
	{ 0x771, 0x10, 0x10, counters_alloc },
	{ 0x773, 0x20, 0x100, counters_query },
	{ 0x800, 0x10, 0x10, pd_alloc },
	{ 0x80d, 0x10, 0x10, nop },
	{ 0x80e, 0x10, 0x10, xrcd_alloc },
	{ 0x816, 0x10, 0x10, td_alloc },
	{ 0x842, 0x10, 0x10, query_lag },
	{ 0xb0c, 0x10, 0x10, access_register },
	{ 0 },
};
