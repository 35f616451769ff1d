/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/call.h: sends device commands and reports their errors. A command is an inbox and an
 * outbox, both of big-endian dwords; devx/ifc.h has their layouts.
 *
 *   struct inlay_devx_error error;  char text[INLAY_DEVX_TEXT];
 *   struct inlay_cmd_out out;  struct inlay_cmd_in in;
 *
 *   inlay_devx_open(device, &ctx);
 *   memset(&in, 0, sizeof(in));
 *   inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_ALLOC_PD);
 *   if (inlay_devx_create(ctx, &in, sizeof(in), &out, sizeof(out), &pd, &error))
 *           puts(inlay_devx_error_text(&error, text, sizeof(text)));
 *   pdn = inlay_cmd_out_get(&out, INLAY_CMD_OUT_NUMBER);
 *
 * Invariants:
 *   - The kernel has a list of opcodes for each call (devx/ifc.h), and refuses others with -EINVAL.
 *   - The outbox is zeroed before the command is sent.
 *   - Kernels from 5.18 or so return EREMOTEIO and the outbox, older ones the errno of the status.
 *     Both become that errno; struct inlay_devx_error keeps status and syndrome, if known.
 *
 * Threads: any number of threads on one context, one at a time per object.
 * Sources: mlx5dv_devx_obj_create(3) and its siblings; Linux, infiniband/hw/mlx5/devx.c (lists) and
 * mlx5/core/cmd.c (errno of a status).
 */
#ifndef INLAY_DEVX_CALL_H
#define INLAY_DEVX_CALL_H /* a trial: names may change */

#include <stdio.h>
#include <string.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/devx/ifc.h>

#define INLAY_DEVX_BOX 16u        /* bytes of the shortest inbox and outbox */
#define INLAY_DEVX_BOX_MAX 65532u /* bytes of the longest: uverbs counts them in 16 bits */
#define INLAY_DEVX_TEXT 200u      /* enough bytes for any text of inlay_devx_error_text */

/* The result of a command, or why none was sent. */
struct inlay_devx_error {
	uint16_t opcode;   /* 0: refused before there was a command */
	uint16_t op_mod;
	uint8_t status;    /* the device's; 0: refused before the device, or hidden by an old kernel */
	uint8_t reserved[3];
	uint32_t syndrome; /* the device's, opaque */
	int32_t err;       /* what the call returned: 0 or a negative errno */
	const char *why;   /* inlay's reason: a static sentence, or inlay_cq.refusal; else NULL */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_devx_error) == 24, "no holes");

/* ---- Errors ---- */

/* The negative errno of a status, and its text. */
INLAY_COLD int inlay_devx_status_(uint8_t status, const char **text)
{
	switch (status) {
#define INLAY_STATUS_(name, value, err, words) case value: *text = words; return -err;
	INLAY_CMD_STATUSES_(INLAY_STATUS_)
#undef INLAY_STATUS_
	default: *text = "unknown status"; return -EIO;
	}
}

/*
 * Writes one line about an error, without a newline: "CREATE_QP (0x500), op_mod 0: bad resource:
 * missing, or another context's (status 0x05, syndrome 0x001b2c3d): Invalid argument". Returns
 * text. INLAY_DEVX_TEXT bytes are enough; a longer text is cut. size 0 writes nothing.
 */
INLAY_COLD char *inlay_devx_error_text(const struct inlay_devx_error *error, char *text, size_t size)
{
	const char *name = "unknown opcode", *words;
	int n;

	INLAY_CHECK(error && (text || !size), "no argument is NULL");
	switch (error->opcode) {
#define INLAY_OPCODE_(op, value) case value: name = #op; break;
	INLAY_CMD_OPS_(INLAY_OPCODE_)
#undef INLAY_OPCODE_
	default: break;
	}
	if (error->why)
		n = snprintf(text, size, "%s: ", error->why);
	else
		n = snprintf(text, size, "%s (0x%03x), op_mod %u: ", name, error->opcode, error->op_mod);
	if (error->status && n > 0 && (size_t)n < size) {
		inlay_devx_status_(error->status, &words);
		n += snprintf(text + n, size - (size_t)n, "%s (status 0x%02x, syndrome 0x%08x): ", words, error->status,
			      error->syndrome);
	}
	if (n > 0 && (size_t)n < size)
		snprintf(text + n, size - (size_t)n, "%s", strerror(-error->err));
	return text;
}

/* Records a refusal without a command. Returns err. */
INLAY_COLD int inlay_devx_refuse_(struct inlay_devx_error *error, int err, const char *why)
{
	if (error) {
		__builtin_memset(error, 0, sizeof(*error));
		error->err = err;
		error->why = why;
	}
	return err;
}

/* Whether a mailbox may have this many bytes. */
INLAY_COLD int inlay_devx_length_ok_(size_t len)
{
	return len >= INLAY_DEVX_BOX && len <= INLAY_DEVX_BOX_MAX && len % 4 == 0;
}

/* Checks both mailboxes and zeroes the outbox. */
INLAY_COLD int inlay_devx_begin_(const void *in, size_t inlen, void *out, size_t outlen, struct inlay_devx_error *error)
{
	if (!in || !inlay_devx_length_ok_(inlen) || !out || !inlay_devx_length_ok_(outlen))
		return inlay_devx_refuse_(error, -EINVAL, "a box has 16 .. 65532 bytes, a multiple of 4");
	__builtin_memset(out, 0, outlen);
	return 0;
}

/*
 * The result of a command that the caller sent through libmlx5: mlx5dv_devx_cq_query and its
 * siblings, which act on verbs objects. To the kernel an ibv_cq is a CQ, an ibv_qp a QP (or DCT), a
 * plain ibv_srq an RMP, one with tag matching an XRQ, an ibv_wq an RQ, an ibv_rwq_ind_table an RQT.
 *
 *   memset(out, 0, outlen);                            16 bytes at least
 *   err = inlay_devx_result(mlx5dv_devx_cq_query(cq, in, inlen, out, outlen), in, out, &error);
 *
 * err is 0 or a positive errno; in and error may be NULL. Returns 0, or the negative errno: of the
 * status if the device refused the command, else err.
 */
INLAY_COLD int inlay_devx_result(int err, const void *in, const void *out, struct inlay_devx_error *error)
{
	const uint8_t *inbox = (const uint8_t *)in, *box = (const uint8_t *)out;
	int result = -err;
	const char *text;

	INLAY_CHECK(out, "no argument is NULL");
	/* The status counts even after success: a refused create has no object. */
	if (err == EREMOTEIO || !err) {
		result = inlay_devx_status_(box[0], &text);
		if (err && !result)
			result = -EIO;
	}
	inlay_devx_refuse_(error, result, NULL);
	if (error) {
		error->opcode = inbox ? (uint16_t)(inbox[0] << 8 | inbox[1]) : 0;
		error->op_mod = inbox ? (uint16_t)(inbox[6] << 8 | inbox[7]) : 0;
		error->status = result ? box[0] : 0;
		error->syndrome = (uint32_t)box[4] << 24 | (uint32_t)box[5] << 16 | (uint32_t)box[6] << 8 | box[7];
	}
	return result;
}

/* ---- Opening ---- */

/*
 * Opens a device for commands; verbs work on the context as usual. Close it with ibv_close_device.
 * Returns 0, or the negative errno of mlx5dv_open_device: -EOPNOTSUPP for a device that is not
 * mlx5; -EPERM, -EINVAL or -EOPNOTSUPP where device, kernel or rights do not allow commands. On
 * failure *ctx is NULL.
 */
INLAY_COLD int inlay_devx_open(struct ibv_device *device, struct ibv_context **ctx)
{
	struct mlx5dv_context_attr attr;

	INLAY_CHECK(device && ctx, "no argument is NULL");
	__builtin_memset(&attr, 0, sizeof(attr));
	attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
	errno = 0;
	*ctx = mlx5dv_open_device(device, &attr);
	return *ctx ? 0 : errno ? -errno : -ENODEV;
}

/* Zeroes an inbox, and writes opcode and number into its header. */
INLAY_COLD void inlay_devx_inbox_(void *in, size_t len, uint32_t opcode, uint32_t number)
{
	__builtin_memset(in, 0, len);
	inlay_cmd_in_set((struct inlay_cmd_in *)in, INLAY_CMD_IN_OPCODE, opcode);
	inlay_cmd_in_set((struct inlay_cmd_in *)in, INLAY_CMD_IN_NUMBER, number);
}

/*
 * ---- Commands ----
 *
 * An inbox and an outbox have at least 16 bytes, in whole dwords. error is always filled in, or is
 * NULL. Each function returns 0; -EINVAL for a box of an impossible length; the negative errno of
 * the device's status; else the kernel's errno: -EINVAL for an opcode that is not on the call's
 * list or a number that is not the object's, -EOPNOTSUPP for a context that is not open for
 * commands.
 */

/* Sends a command that belongs to no object. */
INLAY_COLD int inlay_devx_command(struct ibv_context *ctx, const void *in, size_t inlen, void *out, size_t outlen,
				  struct inlay_devx_error *error)
{
	int err = inlay_devx_begin_(in, inlen, out, outlen, error);

	INLAY_CHECK(ctx, "no argument is NULL");
	return err ? err : inlay_devx_result(mlx5dv_devx_general_cmd(ctx, in, inlen, out, outlen), in, out, error);
}

/*
 * Asks for the current capabilities of a type (QUERY_HCA_CAP). -EINVAL also for a type of more than
 * 15 bits.
 */
INLAY_COLD int inlay_devx_query_cap(struct ibv_context *ctx, uint32_t type, struct inlay_query_hca_cap_out *out,
				    struct inlay_devx_error *error)
{
	struct inlay_cmd_in in;

	INLAY_CHECK(ctx && out, "no argument is NULL");
	if (type >> 15)
		return inlay_devx_refuse_(error, -EINVAL, "a type of capabilities has 15 bits");
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_QUERY_HCA_CAP, 0);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OP_MOD, type << 1 | 1 /* current, not maximum */);
	return inlay_devx_command(ctx, &in, sizeof(in), out, sizeof(*out), error);
}

/*
 * Destroys an object; waits until a DCT is drained. Returns 0, or a negative errno: -EBUSY while the
 * object is in use; then call again later.
 */
INLAY_COLD int inlay_devx_destroy(struct mlx5dv_devx_obj *obj)
{
	INLAY_CHECK(obj, "no argument is NULL");
	return -mlx5dv_devx_obj_destroy(obj);
}

/* Creates an object. *obj: its handle, NULL on failure. Its number: mostly INLAY_CMD_OUT_NUMBER. */
INLAY_COLD int inlay_devx_create(struct ibv_context *ctx, const void *in, size_t inlen, void *out, size_t outlen,
				 struct mlx5dv_devx_obj **obj, struct inlay_devx_error *error)
{
	int err = inlay_devx_begin_(in, inlen, out, outlen, error);

	INLAY_CHECK(ctx && obj, "no argument is NULL");
	*obj = NULL;
	if (err)
		return err;
	errno = 0;
	*obj = mlx5dv_devx_obj_create(ctx, in, inlen, out, outlen);
	err = inlay_devx_result(*obj ? 0 : errno ? errno : ENOMEM, in, out, error);
	if (err && *obj) {
		inlay_devx_destroy(*obj);
		*obj = NULL;
	}
	return err;
}

/* Changes an object. The inbox must hold the object's number too. */
INLAY_COLD int inlay_devx_modify(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen,
				 struct inlay_devx_error *error)
{
	int err = inlay_devx_begin_(in, inlen, out, outlen, error);

	INLAY_CHECK(obj, "no argument is NULL");
	return err ? err : inlay_devx_result(mlx5dv_devx_obj_modify(obj, in, inlen, out, outlen), in, out, error);
}

/* Asks for an object's state. The inbox must hold the object's number too. */
INLAY_COLD int inlay_devx_query(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen,
				struct inlay_devx_error *error)
{
	int err = inlay_devx_begin_(in, inlen, out, outlen, error);

	INLAY_CHECK(obj, "no argument is NULL");
	return err ? err : inlay_devx_result(mlx5dv_devx_obj_query(obj, in, inlen, out, outlen), in, out, error);
}

/*
 * Asks for an object's context, by a query with only the header as its inbox.
 *
 *   inlay_devx_query_context(qp.obj, INLAY_CMD_OP_QUERY_QP, qp.qpn, &out, sizeof(out), &error);
 *   if (inlay_qpc_get(&out.qpc, INLAY_QPC_STATE) == INLAY_QP_STATE_ERR) ...
 *
 * The number is that of commands: of a CQ inlay_cq_cqn(&cq.cq), of a memory key key.key >> 8.
 * Returns as inlay_devx_query; -EINVAL also without an object, and for a number of more than 24
 * bits.
 */
INLAY_COLD int inlay_devx_query_context(struct mlx5dv_devx_obj *obj, enum inlay_cmd_op opcode, uint32_t number,
					void *out, size_t outlen, struct inlay_devx_error *error)
{
	struct inlay_cmd_in in;

	INLAY_CHECK(out, "no argument is NULL");
	if (!obj || number >> 24)
		return inlay_devx_refuse_(error, -EINVAL, "there is no object, or a number of more than 24 bits");
	inlay_devx_inbox_(&in, sizeof(in), opcode, number);
	return inlay_devx_query(obj, &in, sizeof(in), out, outlen, error);
}

/* ---- What the builders share ---- */

/* Sends a create that returns a number. */
INLAY_COLD int inlay_devx_make_(struct ibv_context *ctx, const void *in, size_t inlen, struct mlx5dv_devx_obj **obj,
				uint32_t *number, struct inlay_devx_error *error)
{
	struct inlay_cmd_out out;
	int err = inlay_devx_create(ctx, in, inlen, &out, sizeof(out), obj, error);

	*number = err ? 0 : (uint32_t)inlay_cmd_out_get(&out, INLAY_CMD_OUT_NUMBER);
	return err;
}

/* Sends a modify that returns only its status. */
INLAY_COLD int inlay_devx_change_(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen,
				  struct inlay_devx_error *error)
{
	struct inlay_cmd_out out;

	if (!obj)
		return inlay_devx_refuse_(error, -EINVAL, "there is no object");
	return inlay_devx_modify(obj, in, inlen, &out, sizeof(out), error);
}

/* Destroys *obj, if there is one, and makes it NULL. */
INLAY_COLD int inlay_devx_drop_(struct mlx5dv_devx_obj **obj)
{
	int err = *obj ? inlay_devx_destroy(*obj) : 0;

	if (!err)
		*obj = NULL;
	return err;
}

/*
 * The PD's number in device commands and memory key contexts. Returns 0; -ENOTSUP when its device
 * is not mlx5, or the negative errno of mlx5dv_init_obj.
 */
INLAY_COLD int inlay_pdn_from_pd(uint32_t *pdn, struct ibv_pd *pd)
{
	struct mlx5dv_obj obj;
	struct mlx5dv_pd dv;
	int err;

	INLAY_CHECK(pdn && pd, "no argument is NULL");
	if (!mlx5dv_is_supported(pd->context->device))
		return -ENOTSUP;
	__builtin_memset(&dv, 0, sizeof(dv));
	obj.pd.in = pd;
	obj.pd.out = &dv;
	err = mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD);
	if (!err)
		*pdn = dv.pdn;
	return err > 0 ? -err : err;
}

#endif
