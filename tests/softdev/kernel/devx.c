/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devx.c: the kernel's part of device commands. It looks at the opcode and at the object of a
 * command, stamps the uid of the context, sets the bits that keep a command to registered memory,
 * and passes the command to the firmware.
 *
 * SOFTDEV_DEVX in the environment: 0, no DEVX; 1, DEVX (the default); errno, DEVX as on kernels
 * that turn the status of a command into an errno and keep its outbox.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernel.h"

#define HEADER 16u                /* bytes of the shortest box */
#define ROOM 0x200u               /* zeros after a copy of an inbox: forced bits of a short one fall there */

enum { OFF, ON, ERRNO };

static int mode(void)
{
	static int m = -1;

	/* Asked once: contexts must agree */
	if (m < 0) {
		const char *env = getenv("SOFTDEV_DEVX");

		m = env && !strcmp(env, "0") ? OFF : env && !strcmp(env, "errno") ? ERRNO : ON;
	}
	return m;
}

bool sd_devx_on(void)
{
	return mode() != OFF;
}

/* ---- which opcode may come by which method ---- */

static const uint16_t creates[] = {
	0x200, 0x400, 0x500, 0x600, 0x700, 0x705, 0x710, 0x717, 0x771, 0x782, 0x800, 0x806, 0x80e, 0x816, 0x827, 0x829,
	0x900, 0x904, 0x908, 0x90c, 0x912, 0x916, 0x930, 0x933, 0x936, 0x939, 0x93d, 0x940, 0xa00,
};
static const uint16_t modifies[] = {
	0x403, 0x502, 0x503, 0x504, 0x505, 0x506, 0x507, 0x50a, 0x50e, 0x703, 0x708, 0x714, 0x71a, 0x726, 0x729, 0x72a,
	0x785, 0x827, 0x829, 0x901, 0x905, 0x909, 0x90d, 0x913, 0x917, 0x936, 0x93c, 0xa01,
};
static const uint16_t queries[] = {
	0x201, 0x402, 0x50b, 0x702, 0x707, 0x713, 0x719, 0x725, 0x727, 0x773, 0x784, 0x82a, 0x903, 0x907, 0x90b, 0x90f,
	0x915, 0x919, 0x932, 0x935, 0x937, 0x93b, 0x93f, 0x942, 0xa02,
};
static const uint16_t generals[] = {
	0x100, 0x101, 0x10a, 0x740, 0x750, 0x752, 0x754, 0x760, 0x762, 0x76f, 0x770, 0x80a, 0x80d, 0x822, 0x824, 0x826, 0x842,
};
/* What a context without a uid may ask: under the device's own */
static const uint16_t anybodys[] = { 0x100, 0x740, 0x752, 0x762 };

#define LISTED(list, opcode) listed(list, sizeof(list) / sizeof((list)[0]), opcode)

static bool listed(const uint16_t *list, size_t n, uint16_t opcode)
{
	while (n && list[n - 1] != opcode)
		n--;
	return n;
}

static bool may_create(const uint8_t *in, uint16_t opcode)
{
	if (opcode == 0x936 && sd_get(in, 0x30, 16) != 0)
		return false;
	if (opcode == 0x600 && sd_get(in, 0x40, 4) != 1)
		return false;
	return LISTED(creates, opcode);
}

static bool may_modify(const uint8_t *in, uint16_t opcode)
{
	return LISTED(modifies, opcode) && !(opcode == 0x936 && sd_get(in, 0x30, 16) != 1);
}

static bool may_general(uint16_t opcode)
{
	return (opcode >= 0xb00 && opcode < 0xd00) || LISTED(generals, opcode);
}

/* ---- ids: the creator's opcode and the number ---- */

static uint64_t id_of(uint32_t creator, uint32_t number)
{
	return (uint64_t)creator << 32 | number;
}

static uint64_t id_of_obj(const struct sd_devx_obj *o)
{
	return id_of(o->opcode | (uint32_t)o->obj_type << 16, o->number);
}

/* The object that a modify or query command is about; 0: none that the kernel knows */
static uint64_t id_in(const uint8_t *in, uint16_t opcode)
{
	static const struct {
		uint16_t creator, ops[10];
	} about[] = {
		{ 0x200, { 0x201 } },
		{ 0x400, { 0x402, 0x403 } },
		{ 0x500, { 0x502, 0x503, 0x504, 0x505, 0x506, 0x507, 0x50a, 0x50b, 0x50e } },
		{ 0x700, { 0x702 } },
		{ 0x705, { 0x707, 0x708 } },
		{ 0x710, { 0x713, 0x714 } },
		{ 0x717, { 0x719, 0x71a, 0x725, 0x726, 0x727, 0x729, 0x72a } },
		{ 0x900, { 0x901, 0x903 } },
		{ 0x904, { 0x905, 0x907 } },
		{ 0x908, { 0x703, 0x909, 0x90b } },
		{ 0x90c, { 0x90d, 0x90f } },
		{ 0x912, { 0x913, 0x915 } },
		{ 0x916, { 0x917, 0x919 } },
	};

	if (opcode == 0xa01 || opcode == 0xa02)
		return id_of(0xa00 | (uint32_t)sd_get(in, 0x30, 16) << 16, sd_get(in, 0x40, 32));
	if (opcode == 0x773)
		return id_of(0x771, sd_get(in, 0xf8, 8));
	for (size_t i = 0; i < sizeof(about) / sizeof(about[0]); i++)
		for (unsigned j = 0; j < 10 && about[i].ops[j]; j++)
			if (about[i].ops[j] == opcode)
				return id_of(about[i].creator, sd_get(in, 0x48, 24));
	/* This device makes no flow tables, counters and the like */
	return 0;
}

/* A raw packet QP is an SQ and an RQ, here of one number */
static uint64_t id_of_qp(const struct sd_qp *qp, uint32_t creator)
{
	if (qp->type == IBV_QPT_RAW_PACKET)
		return id_of(creator == 0x908 && qp->rq_cnt ? 0x908 : 0x904, qp->qpn);
	return id_of(qp->type == SD_QPT_DCT ? 0x710 : 0x500, qp->qpn);
}

static bool is_about(const struct sd_cmd *c, unsigned id, const uint8_t *in, uint16_t opcode)
{
	const struct ib_uverbs_attr *a = sd_attr(c, id);
	uint64_t is = id_in(in, opcode);
	enum sd_kind kind;
	void *obj = a && a->data <= UINT32_MAX ? sd_handle_any(c->ctx, a->data, &kind) : NULL;

	if (!obj || !is)
		return false;
	switch (kind) {
	case SD_DEVX:
		return id_of_obj(obj) == is;
	case SD_CQ:
		return id_of(0x400, ((struct host_cq *)obj)->c.cqn) == is;
	case SD_QP:
		if (((struct host_qp *)obj)->tir)
			return id_of(0x900, ((struct host_qp *)obj)->tir->number) == is;
		return id_of_qp(&((struct host_qp *)obj)->q, is >> 32) == is;
	case SD_SRQ:
		return id_of(((struct host_srq *)obj)->s.tm ? 0x717 : ((struct host_srq *)obj)->s.xrcd ? 0x705 : 0x90c,
			     ((struct host_srq *)obj)->s.srqn) == is;
	case SD_WQ:
		return id_of(0x908, ((struct host_wq *)obj)->wqn) == is;
	case SD_IND_TBL:
		return id_of(0x916, ((struct host_ind_tbl *)obj)->number) == is;
	default:
		return false;
	}
}

/* ---- forced bits ---- */

static void only_umems(uint8_t *in, uint16_t opcode)
{
	switch (opcode) {
	case 0x400:
		sd_set(in, 0x80 + 0x6, 1, 1);
		sd_set(in, 0x2e0, 1, 1);
		break;
	case 0x403:
		sd_set(in, 0x2e0, 1, 1);
		break;
	case 0x500:
		sd_set(in, 0xc0 + 0x683, 1, 1);
		sd_set(in, 0x860, 1, 1);
		break;
	case 0x705:
		sd_set(in, 0x80 + 0x47, 1, 1);
		sd_set(in, 0x2e0, 1, 1);
		break;
	case 0x717:
		sd_set(in, 0x80 + 0x400 + 0x120, 2, 3);
		break;
	case 0x904:
	case 0x908:
	case 0x90c:
		sd_set(in, 0x100 + 0x180 + 0x120, 2, 3);
		break;
	}
}

/* 0, or EINVAL for one without the whole of its context */
static int only_umem_mkeys(uint8_t *in, size_t inlen)
{
	unsigned access;

	if (inlen < 0x50)
		return EINVAL;
	access = sd_get(in, 0x80 + 0x3, 3) << 2 | sd_get(in, 0x80 + 0x16, 2);
	if (access != 2 && access != 3)
		sd_set(in, 0x61, 1, 1);
	return 0;
}

/* ---- a command on its way ---- */

int sd_devx_errno(uint8_t status)
{
	switch (status) {
	case SD_ST_OK:
		return 0;
	case SD_ST_BAD_OP:
	case SD_ST_BAD_PARAM:
	case SD_ST_BAD_RES:
	case SD_ST_BAD_RES_STATE:
	case SD_ST_BAD_INDEX:
	case SD_ST_BAD_QP_STATE:
	case 0x30:
	case SD_ST_BAD_SIZE:
		return EINVAL;
	case SD_ST_BUSY:
		return EBUSY;
	case SD_ST_LIMIT:
		return ENOMEM;
	case SD_ST_NO_RES:
		return EAGAIN;
	default:
		return EIO;
	}
}

int sd_devx_free(struct sd_devx_obj *o)
{
	int err = sd_devx_errno(o->destroy(o->obj));

	if (err)
		return err;
	sd_devx_drop(o);
	free(o);
	return 0;
}

/* The boxes of a method: copies, the inbox with the uid in it */
struct boxes {
	uint8_t *in;
	struct ib_uverbs_attr *to;
	struct sd_devx_cmd c;
};

static int boxes_get(struct sd_cmd *c, unsigned in, unsigned out, size_t outlen, struct boxes *b)
{
	struct ib_uverbs_attr *i = sd_attr(c, in), *o = out ? sd_attr(c, out) : NULL;
	int err;

	*b = (struct boxes){ .to = o };
	if (!i || (out && !o) || i->len < HEADER || (o && o->len < HEADER))
		return EINVAL;
	b->in = calloc(1, i->len + ROOM);
	outlen = o ? o->len : outlen;
	b->c = (struct sd_devx_cmd){ .ctx = c->ctx, .in = b->in, .inlen = i->len, .out = calloc(1, outlen + HEADER), .outlen = outlen };
	err = b->in && b->c.out ? sd_copy(b->in, i->data, i->len, false) : ENOMEM;
	if (err) {
		free(b->in);
		free(b->c.out);
		return err;
	}
	b->c.opcode = sd_get(b->in, 0, 16);
	b->c.op_mod = sd_get(b->in, 0x30, 16);
	return 0;
}

static int boxes_put(struct boxes *b, int err)
{
	free(b->in);
	free(b->c.out);
	return err;
}

/* Of OTHER, CREATE, MODIFY and QUERY: a command that the firmware refused is answered, and fails */
static int execute(struct boxes *b)
{
	uint8_t status;
	int err;

	sd_set(b->in, 0x10, 16, b->c.ctx->uid);
	status = sd_fw_run(&b->c);
	if (status && mode() == ERRNO)
		return sd_devx_errno(status);
	err = sd_out(b->to, b->c.out, b->c.outlen);
	return err ? err : status ? EREMOTEIO : 0;
}

/* ---- methods ---- */

int sd_cmd_devx_other(struct sd_cmd *c)
{
	struct boxes b;
	int err = boxes_get(c, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, 0, &b);

	if (err)
		return err;
	if (!c->ctx->uid && !LISTED(anybodys, b.c.opcode))
		return boxes_put(&b, EINVAL);
	if (!c->ctx->uid && !sd_devx_on())
		return boxes_put(&b, EOPNOTSUPP);
	return boxes_put(&b, may_general(b.c.opcode) ? execute(&b) : EINVAL);
}

int sd_cmd_devx_create(struct sd_cmd *c)
{
	struct sd_devx_obj *o;
	uint32_t handle;
	struct boxes b;
	int err = boxes_get(c, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, 0, &b);

	if (err)
		return err;
	if (!sd_clear(b.in, 0x20, 16) || !c->ctx->uid || !may_create(b.in, b.c.opcode))
		return boxes_put(&b, EINVAL);
	if (b.c.opcode == 0x200)
		err = only_umem_mkeys(b.in, b.c.inlen);
	else
		only_umems(b.in, b.c.opcode);
	/* It goes through the kernel's own code for CQs, which looks the EQ up */
	if (b.c.opcode == 0x400 && !sd_devx_eqn(sd_get(b.in, 0x80 + 0xa0, 32)))
		err = ENOENT;
	if (err)
		return boxes_put(&b, err);
	err = execute(&b);
	o = b.c.made;
	if (!err && !o)
		err = EIO;
	if (!err)
		err = sd_handle_new(c->ctx, SD_DEVX, o, &handle);
	if (!err)
		sd_out_obj(c, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, handle);
	else if (o)
		sd_devx_free(o);
	return boxes_put(&b, err);
}

int sd_cmd_devx_modify(struct sd_cmd *c)
{
	struct boxes b;
	int err = boxes_get(c, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, 0, &b);

	if (err)
		return err;
	if (!sd_clear(b.in, 0x20, 16) || !c->ctx->uid || !may_modify(b.in, b.c.opcode) ||
	    !is_about(c, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, b.in, b.c.opcode))
		return boxes_put(&b, EINVAL);
	only_umems(b.in, b.c.opcode);
	return boxes_put(&b, execute(&b));
}

static bool may_query(const struct sd_cmd *c, const struct boxes *b, unsigned handle)
{
	return sd_clear(b->in, 0x20, 16) && c->ctx->uid && LISTED(queries, b->c.opcode) && is_about(c, handle, b->in, b->c.opcode);
}

int sd_cmd_devx_query(struct sd_cmd *c)
{
	struct boxes b;
	int err = boxes_get(c, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, 0, &b);

	if (err)
		return err;
	return boxes_put(&b, may_query(c, &b, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE) ? execute(&b) : EINVAL);
}

static struct sd_devx_file *file_of(const struct sd_cmd *c, unsigned id, bool commands)
{
	const struct ib_uverbs_attr *a = sd_attr(c, id);

	return a && a->data <= INT32_MAX ? sd_devx_file_get(c->ctx, a->data, commands) : NULL;
}

int sd_cmd_devx_query_async(struct sd_cmd *c)
{
	uint64_t outlen = sd_in_u64(c, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, 0);
	struct sd_devx_file *f = file_of(c, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, true);
	struct boxes b;
	int err;

	if (outlen > UINT16_MAX)
		return EINVAL;
	err = boxes_get(c, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, 0, outlen, &b);
	if (err)
		return err;
	if (!may_query(c, &b, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE))
		return boxes_put(&b, EINVAL);
	if (!f)
		return boxes_put(&b, EBADF);
	if (!sd_devx_file_room(f, outlen))
		return boxes_put(&b, EAGAIN);
	sd_set(b.in, 0x10, 16, c->ctx->uid);
	sd_fw_run(&b.c);
	return boxes_put(&b, sd_devx_file_async(f, sd_in_u64(c, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, 0), b.c.out, outlen));
}

int sd_cmd_devx_destroy(struct sd_cmd *c)
{
	return sd_cmd_destroy(c, SD_DEVX, MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
}

/*
 * The doorbell registers that a context gets by number are none here: each page comes as an object
 */
int sd_cmd_devx_query_uar(struct sd_cmd *c)
{
	(void)c;
	return EINVAL;
}

int sd_cmd_devx_query_eqn(struct sd_cmd *c)
{
	uint32_t vector = sd_in_u64(c, MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, 0), eqn = SD_FIRST_EQN + vector;

	return vector < SD_COMP_VECTORS ? SD_OUT(c, MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, eqn) : ENOENT;
}

static int new_file(struct sd_cmd *c, unsigned id, bool commands, bool omit_data)
{
	struct ib_uverbs_attr *a = sd_attr(c, id);
	int fd, err = sd_devx_file_new(c->ctx, commands, omit_data, &fd);

	if (err)
		return err;
	a->data_s64 = fd;
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
	return 0;
}

int sd_cmd_devx_async_cmd_fd(struct sd_cmd *c)
{
	return new_file(c, MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, true, false);
}

int sd_cmd_devx_async_event_fd(struct sd_cmd *c)
{
	uint64_t flags = sd_in_u64(c, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, 0);

	if (flags & ~(uint64_t)MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA)
		return EINVAL;
	return new_file(c, MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, false, flags);
}

int sd_cmd_devx_subscribe(struct sd_cmd *c)
{
	const struct ib_uverbs_attr *list = sd_attr(c, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST),
				    *about = sd_attr(c, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE),
				    *redirect = sd_attr(c, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM),
				    *cookie = sd_attr(c, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE);
	struct sd_devx_file *f = file_of(c, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, false);
	struct sd_devx_obj *o = sd_in_obj(c, MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, SD_DEVX);
	uint16_t types[16];
	int err;

	if (about && !o)
		return ENOENT;
	if (!f)
		return EBADF;
	if (!c->ctx->uid || (redirect && cookie) || list->len % 2 || list->len > sizeof(types))
		return EINVAL;
	err = sd_in(list, types, sizeof(types));
	for (unsigned i = 0; !err && i < list->len / 2; i++)
		if (!sd_fw_event_ok(types[i], o))
			err = EINVAL;
	return err ? err : sd_devx_subscribe(f, o, types, list->len / 2, cookie ? cookie->data : 0, redirect ? (int)redirect->data : -1);
}
