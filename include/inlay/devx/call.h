/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/call.h: sends device commands and reports what became of them. A command is an inbox
 * and an outbox, both of big-endian dwords; devx/ifc.h has their layouts.
 *
 *   struct inlay_devx_error error;
 *   struct inlay_cmd_out out;
 *   struct inlay_cmd_in in;
 *   char text[INLAY_DEVX_TEXT];
 *
 *   inlay_devx_open(device, &ctx);
 *   memset(&in, 0, sizeof(in));
 *   inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_ALLOC_PD);
 *   if (inlay_devx_create(ctx, &in, sizeof(in), &out, sizeof(out), &pd, &error))
 *           puts(inlay_devx_error_text(&error, text, sizeof(text)));
 *   pdn = inlay_cmd_out_get(&out, INLAY_CMD_OUT_NUMBER);
 *
 * Which call for which command:
 *
 *   inlay_devx_command   belongs to no object: queries of capabilities, registers, ports
 *   inlay_devx_create    makes an object and returns its handle
 *   inlay_devx_modify    changes an object
 *   inlay_devx_query     asks for an object's state
 *   inlay_devx_destroy   by handle. The kernel lets no command through that destroys
 *
 * The kernel has a list of opcodes for each call, and refuses others with -EINVAL before the device
 * sees them.
 *
 * Invariants
 *
 *   - The outbox is zeroed before the command is sent.
 *   - Errors are the same under every kernel. Newer ones return EREMOTEIO and the outbox; those
 *     before 5.18 or so return the errno of the status. Both become that errno; struct
 *     inlay_devx_error keeps status and syndrome, if known.
 *   - A failed create leaves no object.
 *
 * Threads: any number of threads on one context, each object used by one at a time.
 * Sources: mlx5dv_devx_obj_create(3) and its siblings; Linux, infiniband/hw/mlx5/devx.c (lists) and
 * mlx5/core/cmd.c (errno of a status).
 */
#ifndef INLAY_DEVX_CALL_H
#define INLAY_DEVX_CALL_H

#include <stdio.h>
#include <string.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/devx/ifc/hca.h>

#define INLAY_DEVX_BOX 16u        /* bytes of the shortest inbox and outbox */
#define INLAY_DEVX_BOX_MAX 65532u /* bytes of the longest: uverbs counts them in 16 bits */
#define INLAY_DEVX_TEXT 200u      /* enough bytes for any text of inlay_devx_error_text */

/* What became of a command. */
struct inlay_devx_error {
	uint16_t opcode;
	uint16_t op_mod;
	uint8_t status;    /* the device's; 0: kernel or library refused, or an old kernel does not tell */
	uint8_t reserved[3];
	uint32_t syndrome; /* the device's, opaque */
	int32_t err;       /* what the call returned: 0 or a negative errno */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_devx_error) == 16, "no holes");

/* ------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/* ---- Errors ---- */

struct inlay_devx_status_ {
	uint8_t status;
	int err;
	const char *text;
};

/* The last entry stands for every unknown status. */
INLAY_COLD const struct inlay_devx_status_ *inlay_devx_status_find_(uint8_t status)
{
	static const struct inlay_devx_status_ all[] = {
		{INLAY_CMD_STATUS_OK, 0, "OK"},
		{INLAY_CMD_STATUS_INTERNAL_ERR, -EIO, "internal error"},
		{INLAY_CMD_STATUS_BAD_OP, -EINVAL, "bad or unsupported opcode or op_mod"},
		{INLAY_CMD_STATUS_BAD_PARAM, -EINVAL, "bad parameter, or a reserved bit set"},
		{INLAY_CMD_STATUS_BAD_SYS_STATE, -EIO, "bad system state"},
		{INLAY_CMD_STATUS_BAD_RES, -EINVAL, "bad resource: not there, or not yours"},
		{INLAY_CMD_STATUS_RES_BUSY, -EBUSY, "resource busy"},
		{INLAY_CMD_STATUS_LIM, -ENOMEM, "limit exceeded"},
		{INLAY_CMD_STATUS_BAD_RES_STATE, -EINVAL, "bad resource state"},
		{INLAY_CMD_STATUS_IX, -EINVAL, "bad index"},
		{INLAY_CMD_STATUS_NO_RES, -EAGAIN, "no resources"},
		{INLAY_CMD_STATUS_BAD_QP_STATE, -EINVAL, "bad QP state for this command"},
		{INLAY_CMD_STATUS_BAD_PKT, -EINVAL, "bad management packet"},
		{INLAY_CMD_STATUS_BAD_SIZE_OUTS_CQES, -EINVAL, "more outstanding CQEs than the new size"},
		{INLAY_CMD_STATUS_BAD_INP_LEN, -EIO, "bad input length"},
		{INLAY_CMD_STATUS_BAD_OUTP_LEN, -EIO, "bad output length"},
		{0xff, -EIO, "unknown status"},
	};
	const struct inlay_devx_status_ *at = all;

	while (at->status != status && at->status != 0xff)
		at++;
	return at;
}

/* Returns what a status means, in words; "unknown status" for other numbers. Never NULL. */
INLAY_COLD const char *inlay_devx_status_text(uint8_t status)
{
	return inlay_devx_status_find_(status)->text;
}

/* Returns the negative errno of a status; 0 for 0; -EIO for an unknown one. */
INLAY_COLD int inlay_devx_status_errno(uint8_t status)
{
	return inlay_devx_status_find_(status)->err;
}

/* Returns the name of an enum inlay_cmd_op, without INLAY_CMD_OP_; NULL for other opcodes. */
INLAY_COLD const char *inlay_devx_opcode_name(uint16_t opcode)
{
	switch (opcode) {
#define INLAY_NAME_(op) case INLAY_CMD_OP_##op: return #op;
	INLAY_NAME_(QUERY_HCA_CAP) INLAY_NAME_(QUERY_ROCE_ADDRESS) INLAY_NAME_(NOP)
	INLAY_NAME_(ALLOW_OTHER_VHCA_ACCESS) INLAY_NAME_(CREATE_MKEY) INLAY_NAME_(CREATE_CQ) INLAY_NAME_(CREATE_QP)
	INLAY_NAME_(CREATE_DCT) INLAY_NAME_(CREATE_XRQ) INLAY_NAME_(ALLOC_Q_COUNTER) INLAY_NAME_(ALLOC_PD)
	INLAY_NAME_(ALLOC_XRCD) INLAY_NAME_(ALLOC_TRANSPORT_DOMAIN) INLAY_NAME_(CREATE_RMP)
	INLAY_NAME_(CREATE_GENERAL_OBJECT) INLAY_NAME_(MODIFY_CQ) INLAY_NAME_(RST2INIT_QP) INLAY_NAME_(INIT2RTR_QP)
	INLAY_NAME_(RTR2RTS_QP) INLAY_NAME_(RTS2RTS_QP) INLAY_NAME_(SQERR2RTS_QP) INLAY_NAME_(2ERR_QP)
	INLAY_NAME_(2RST_QP) INLAY_NAME_(INIT2INIT_QP) INLAY_NAME_(ARM_RQ) INLAY_NAME_(ARM_XRQ)
	INLAY_NAME_(MODIFY_RMP) INLAY_NAME_(MODIFY_GENERAL_OBJECT) INLAY_NAME_(QUERY_MKEY) INLAY_NAME_(QUERY_CQ)
	INLAY_NAME_(QUERY_QP) INLAY_NAME_(QUERY_DCT) INLAY_NAME_(QUERY_XRQ) INLAY_NAME_(QUERY_RQ)
	INLAY_NAME_(QUERY_RMP) INLAY_NAME_(QUERY_RQT) INLAY_NAME_(QUERY_GENERAL_OBJECT)
#undef INLAY_NAME_
	default: return NULL;
	}
}

/*
 * Writes one line about an error, without a newline: "CREATE_QP (0x500), op_mod 0: bad resource:
 * not there, or not yours (status 0x05, syndrome 0x001b2c3d): Invalid argument".
 *
 * text, size  INLAY_DEVX_TEXT bytes are always enough; a longer text is cut. size 0 writes nothing
 *
 * Returns text.
 */
INLAY_COLD char *inlay_devx_error_text(const struct inlay_devx_error *error, char *text, size_t size)
{
	const char *name;
	int n;

	INLAY_CHECK(error && (text || !size), "no argument is NULL");
	name = inlay_devx_opcode_name(error->opcode);
	if (name)
		n = snprintf(text, size, "%s (0x%03x), op_mod %u: ", name, error->opcode, error->op_mod);
	else
		n = snprintf(text, size, "opcode 0x%03x, op_mod %u: ", error->opcode, error->op_mod);
	if (error->status && n > 0 && (size_t)n < size)
		n += snprintf(text + n, size - (size_t)n, "%s (status 0x%02x, syndrome 0x%08x): ",
			      inlay_devx_status_text(error->status), error->status, error->syndrome);
	if (n > 0 && (size_t)n < size)
		snprintf(text + n, size - (size_t)n, "%s", strerror(-error->err));
	return text;
}

/* Whether a box may have this many bytes. */
INLAY_COLD int inlay_devx_length_ok_(size_t len)
{
	return len >= INLAY_DEVX_BOX && len <= INLAY_DEVX_BOX_MAX && len % 4 == 0;
}

/*
 * Checks both boxes and zeroes the outbox. Returns 0, or -EINVAL for NULL, for a length outside of
 * INLAY_DEVX_BOX .. INLAY_DEVX_BOX_MAX, and for one that is not a multiple of 4.
 */
INLAY_COLD int inlay_devx_begin_(const void *in, size_t inlen, void *out, size_t outlen, struct inlay_devx_error *error)
{
	if (!in || !inlay_devx_length_ok_(inlen) || !out || !inlay_devx_length_ok_(outlen)) {
		if (error) {
			__builtin_memset(error, 0, sizeof(*error));
			error->err = -EINVAL;
		}
		return -EINVAL;
	}
	__builtin_memset(out, 0, outlen);
	return 0;
}

/*
 * Reports what became of a command that the caller sent through libmlx5: mlx5dv_devx_cq_query and
 * its siblings, which act on verbs objects. The kernel treats an ibv_cq as a CQ; an ibv_qp as a QP
 * (or DCT); a plain ibv_srq as an RMP, one with tag matching as an XRQ; an ibv_wq as an RQ; an
 * ibv_rwq_ind_table as an RQT.
 *
 *   memset(out, 0, outlen);
 *   err = inlay_devx_result(mlx5dv_devx_cq_query(cq, in, inlen, out, outlen), in, out, &error);
 *
 * err    0 or a positive errno
 * in     the inbox; NULL: not known
 * out    the outbox, 16 bytes at least, zeroed before the call
 * error  filled in; NULL: not wanted
 *
 * Returns 0, or the negative errno: of the status if the device refused the command, else err.
 */
INLAY_COLD int inlay_devx_result(int err, const void *in, const void *out, struct inlay_devx_error *error)
{
	const uint8_t *inbox = (const uint8_t *)in, *box = (const uint8_t *)out;
	int result = -err;

	INLAY_CHECK(out, "no argument is NULL");
	/* The status counts even if the call succeeded: a create must not invent an object. */
	if (err == EREMOTEIO || !err) {
		result = inlay_devx_status_errno(box[0]);
		if (err && !result)
			result = -EIO;
	}
	if (error) {
		__builtin_memset(error, 0, sizeof(*error));
		error->opcode = inbox ? (uint16_t)(inbox[0] << 8 | inbox[1]) : 0;
		error->op_mod = inbox ? (uint16_t)(inbox[6] << 8 | inbox[7]) : 0;
		error->status = result ? box[0] : 0;
		error->syndrome = (uint32_t)box[4] << 24 | (uint32_t)box[5] << 16 | (uint32_t)box[6] << 8 | box[7];
		error->err = result;
	}
	return result;
}

/* ---- Opening ---- */

/*
 * Opens a device for commands; verbs work on the context as usual. Close it with ibv_close_device.
 *
 * Returns 0; -EOPNOTSUPP for a device that is not mlx5; else the negative errno of
 * mlx5dv_open_device: -EPERM, -EINVAL or -EOPNOTSUPP where device, kernel or rights do not allow
 * commands. On failure *ctx is NULL.
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

/*
 * ---- Commands ----
 *
 * in, inlen    inbox: 16 bytes at least, whole dwords
 * out, outlen  outbox, likewise. Holds the answer, of a failed command too if the kernel returns it
 * error        what became of the command, filled in every case; NULL: not wanted
 *
 * Each returns 0; -EINVAL for a box of an impossible length; the negative errno of the device's
 * status; else the kernel's errno: -EINVAL for an opcode that is not on the call's list or a number
 * that is not the object's, -EOPNOTSUPP for a context that is not open for commands.
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
 * Asks for the current capabilities of one type: QUERY_HCA_CAP. type: enum inlay_cap_type, 15 bits.
 * Returns as inlay_devx_command does, and -EINVAL for a type of more bits.
 */
INLAY_COLD int inlay_devx_query_cap(struct ibv_context *ctx, uint32_t type, struct inlay_query_hca_cap_out *out,
				    struct inlay_devx_error *error)
{
	struct inlay_cmd_in in;

	INLAY_CHECK(ctx && out, "no argument is NULL");
	if (type >> 15)
		return -EINVAL;
	__builtin_memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_QUERY_HCA_CAP);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OP_MOD, type << 1 | 1 /* current, not maximum */);
	return inlay_devx_command(ctx, &in, sizeof(in), out, sizeof(*out), error);
}

/*
 * Destroys an object. Returns 0, or a negative errno: -EBUSY while something else uses it. It is
 * still there then, and the call may be repeated. Destroying a DCT waits until it is drained.
 */
INLAY_COLD int inlay_devx_destroy(struct mlx5dv_devx_obj *obj)
{
	INLAY_CHECK(obj, "no argument is NULL");
	return -mlx5dv_devx_obj_destroy(obj);
}

/*
 * Creates an object. *obj is its handle; NULL on failure. The number by which the data path knows
 * it is in the outbox, nearly always INLAY_CMD_OUT_NUMBER.
 */
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

/* Changes an object. The inbox names it again, by its number. */
INLAY_COLD int inlay_devx_modify(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen,
				 struct inlay_devx_error *error)
{
	int err = inlay_devx_begin_(in, inlen, out, outlen, error);

	INLAY_CHECK(obj, "no argument is NULL");
	return err ? err : inlay_devx_result(mlx5dv_devx_obj_modify(obj, in, inlen, out, outlen), in, out, error);
}

/* Asks for an object's state. The inbox names it again, by its number. */
INLAY_COLD int inlay_devx_query(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen,
				struct inlay_devx_error *error)
{
	int err = inlay_devx_begin_(in, inlen, out, outlen, error);

	INLAY_CHECK(obj, "no argument is NULL");
	return err ? err : inlay_devx_result(mlx5dv_devx_obj_query(obj, in, inlen, out, outlen), in, out, error);
}

/* ---- What the builders share ---- */

/* A query whose inbox is the header with the object's number. -EINVAL without an object. */
INLAY_COLD int inlay_devx_query_number_(struct mlx5dv_devx_obj *obj, uint32_t opcode, uint32_t number, void *out,
					size_t outlen, struct inlay_devx_error *error)
{
	struct inlay_cmd_in in;

	INLAY_CHECK(out, "no argument is NULL");
	if (!obj)
		return -EINVAL;
	__builtin_memset(&in, 0, sizeof(in));
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, opcode);
	inlay_cmd_in_set(&in, INLAY_CMD_IN_NUMBER, number);
	return inlay_devx_query(obj, &in, sizeof(in), out, outlen, error);
}

/* Destroys what *obj names, if anything; then *obj is NULL. */
INLAY_COLD int inlay_devx_drop_(struct mlx5dv_devx_obj **obj)
{
	int err = *obj ? inlay_devx_destroy(*obj) : 0;

	if (!err)
		*obj = NULL;
	return err;
}

#endif
