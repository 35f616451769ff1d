/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * standins.h: the provider's calls of verbs and mlx5dv, in place of the libraries', on a device in
 * plain memory: what does not depend on how it works. sim.h and fuzz/fabric.c define before it:
 *
 *   struct qp   qp, cap, ring, wqebbs, record        qp_of(ibv_qp)
 *   a CQ        cqes, count, record                  cq_of(ibv_cq)
 *   page_of(context): the doorbell page;  the_device, infiniband;  sure, UNUSED
 */
#ifndef TESTS_FABRIC_STANDINS_H
#define TESTS_FABRIC_STANDINS_H

/* A call that does no more than this */
#define RETURNS(type, name, params, result) \
	type name params { return result; }

RETURNS(int, ibv_destroy_ah, (UNUSED struct ibv_ah *ah), 0)
RETURNS(void, ibv_ack_async_event, (UNUSED struct ibv_async_event *event), )
RETURNS(bool, mlx5dv_is_supported, (struct ibv_device *device), device == &the_device)
RETURNS(int, ibv_query_ece, (UNUSED struct ibv_qp *qp, UNUSED struct ibv_ece *ece), EOPNOTSUPP)

int ibv_query_device(UNUSED struct ibv_context *context, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){.atomic_cap = IBV_ATOMIC_HCA, .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16};
	return 0;
}

static int query_port(UNUSED struct ibv_context *context, UNUSED uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	memset(attr, 0, size);
	attr->state = IBV_PORT_ACTIVE;
	attr->link_layer = infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
	attr->lid = infiniband;
	attr->gid_tbl_len = 1;
	attr->active_mtu = IBV_MTU_1024;
	return 0;
}

int _ibv_query_gid_ex(UNUSED struct ibv_context *context, UNUSED uint32_t port, UNUSED uint32_t index,
		      struct ibv_gid_entry *entry, UNUSED uint32_t flags, size_t size)
{
	memset(entry, 0, size);
	entry->gid_type = IBV_GID_TYPE_ROCE_V2;
	entry->gid.raw[0] = 0xfd;
	entry->gid.raw[15] = 1;
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, UNUSED struct ibv_ah_attr *attr)
{
	static struct ibv_ah ah;

	ah = (struct ibv_ah){.context = pd->context, .pd = pd};
	return &ah;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t len, int access);

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t len, uint64_t iova, unsigned int access)
{
	sure(iova == (uintptr_t)at);
	return ibv_reg_mr(pd, at, len, (int)access);
}

static struct ibv_mr *key_fill(struct ibv_mr *mr, struct ibv_pd *pd, void *at, size_t len, uint32_t lkey, uint32_t rkey)
{
	*mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = at, .length = len, .lkey = lkey, .rkey = rkey};
	return mr;
}

/* Its attributes may be the beginning of extended ones. */
static struct ibv_qp *qp_fill(struct qp *q, struct ibv_pd *pd, const struct ibv_qp_init_attr *init, uint32_t number)
{
	q->wqebbs = inlay_send_cqes(init);
	q->cap = init->cap;
	q->qp = (struct ibv_qp){.context = pd->context, .pd = pd, .send_cq = init->recv_cq, .recv_cq = init->recv_cq,
				.srq = init->srq, .qp_type = init->qp_type, .qp_num = number};
	q->record[0] = q->record[1] = 0;
	return &q->qp;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, UNUSED int mask, struct ibv_qp_init_attr *init)
{
	*attr = (struct ibv_qp_attr){.cap = qp_of(qp)->cap};
	*init = (struct ibv_qp_init_attr){.cap = attr->cap};
	return 0;
}

/* A shared receive queue, whose entries are 32 bytes */
struct srq {
	struct ibv_srq srq;
	uint8_t *entries;
	uint32_t count, head, taken, record[2];
};

static struct srq *srq_of(struct ibv_srq *srq)
{
	return (struct srq *)(void *)srq;
}

static struct ibv_srq *srq_fill(struct srq *s, struct ibv_pd *pd, uint32_t count, uint8_t *entries)
{
	sure(!s->count);
	memset(entries, 0, 32 * count);
	*s = (struct srq){.srq = {.context = pd->context, .pd = pd}, .entries = entries, .count = count};
	return &s->srq;
}

static bool srq_has(const struct srq *s)
{
	return (uint16_t)s->taken != inlay_from_be16((uint16_t)(s->record[0] >> 16)); /* shown in the low half */
}

/* The next entry's number */
static uint32_t srq_take(struct srq *s)
{
	const uint32_t entry = s->head;

	s->taken++;
	s->head = (uint32_t)s->entries[32 * entry + 2] << 8 | s->entries[32 * entry + 3];
	sure(entry < s->count && s->head < s->count);
	return entry;
}

int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t type)
{
	static struct mlx5_wqe_av av;

	switch (type) {
	case MLX5DV_OBJ_QP:
		obj->qp.out->sq.buf = qp_of(obj->qp.in)->ring;
		obj->qp.out->sq.wqe_cnt = qp_of(obj->qp.in)->wqebbs;
		obj->qp.out->sq.stride = 64;
		obj->qp.out->dbrec = (__be32 *)qp_of(obj->qp.in)->record;
		obj->qp.out->bf.reg = page_of(obj->qp.in->context);
		obj->qp.out->bf.size = 256;
		return 0;
	case MLX5DV_OBJ_CQ:
		obj->cq.out->buf = cq_of(obj->cq.in)->cqes;
		obj->cq.out->cqe_cnt = cq_of(obj->cq.in)->count;
		obj->cq.out->cqe_size = 64;
		obj->cq.out->dbrec = (__be32 *)cq_of(obj->cq.in)->record;
		obj->cq.out->cq_uar = page_of(obj->cq.in->context) + 256;
		obj->cq.out->cqn = 1;
		return 0;
	case MLX5DV_OBJ_SRQ:
		obj->srq.out->buf = srq_of(obj->srq.in)->entries;
		obj->srq.out->stride = 32;
		obj->srq.out->dbrec = (__be32 *)srq_of(obj->srq.in)->record;
		obj->srq.out->tail = srq_of(obj->srq.in)->count - 1;
		return 0;
	default:
		sure(type == MLX5DV_OBJ_AH);
		obj->ah.out->av = &av;
		return 0;
	}
}

#endif
