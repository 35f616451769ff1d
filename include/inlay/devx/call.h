/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/call.h: device commands on their way: opened, sent, answered, and what went wrong, in a number and in words.
 *
 *   struct inlay_devx_error error;
 *   struct inlay_cmd_out out;
 *   struct inlay_cmd_in in;
 *   char text[INLAY_DEVX_TEXT];
 *
 *   inlay_devx_open(&ctx, device);
 *   memset(&in, 0, sizeof(in));
 *   inlay_cmd_in_set(&in, INLAY_CMD_IN_OPCODE, INLAY_CMD_OP_ALLOC_PD);
 *   if (inlay_devx_create(ctx, &in, sizeof(in), &out, sizeof(out), &pd, &error))
 *           puts(inlay_devx_error_text(&error, text, sizeof(text)));
 *   else
 *           pdn = inlay_cmd_out_get(&out, INLAY_CMD_OUT_NUMBER);
 *
 * A command is an inbox and an outbox, both of big-endian dwords:
 *
 *   inbox    +0  opcode 16   uid 16 (the kernel's: it writes its own there)        outbox   +0  status 8   0
 *            +4  0           op_mod 16                                                      +4  syndrome 32
 *            +8  what the command is about                                                  +8  the answer
 *
 * The layouts of the commands are in devx/ifc; here only the headers of both boxes are looked at. Which opcode goes which way is the
 * kernel's decision: it has a list for each of the four, and answers -EINVAL to what is not on it. Creating goes through inlay_devx_create,
 * modifying and querying through the object that is meant, all else through inlay_devx_command. An object is destroyed by its handle: no
 * command that destroys gets through.
 *
 * When a command fails
 * --------------------
 * Either the kernel refuses it, and its errno is all there is; or the device does, with a status and a syndrome, a number that only its
 * vendor can read. Kernels of today then answer EREMOTEIO and hand the outbox over; those before 5.18 or so answer what the status maps to,
 * and keep the outbox to themselves. Here both give the same error code, the one of the table, and struct inlay_devx_error keeps what is
 * known:
 *
 *   status 00 OK                          0        0a bad index                     -EINVAL
 *          01 internal error              -EIO     0f no resources                  -EAGAIN
 *          02 bad opcode or op_mod        -EINVAL  10 bad QP state                  -EINVAL
 *          03 bad parameter               -EINVAL  30 bad management packet         -EINVAL
 *          04 bad system state            -EIO     40 more outstanding CQEs         -EINVAL
 *          05 bad resource                -EINVAL  50 bad input length              -EIO
 *          06 resource busy               -EBUSY   51 bad output length             -EIO
 *          08 limit exceeded              -ENOMEM  any other                        -EIO
 *          09 bad resource state          -EINVAL
 *
 * The outbox is zeroed before the command is sent, so that nothing in it is older than the command.
 *
 * Threads: any number on one context, and on different objects. One object is for one thread at a time.
 * Sources: mlx5dv_devx_obj_create(3) and its sisters; Linux, infiniband/hw/mlx5/devx.c and mlx5/core/cmd.c (lists, mapping of the status).
 */
#ifndef INLAY_DEVX_CALL_H
#define INLAY_DEVX_CALL_H

#include <stdio.h>
#include <string.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/devx/ifc/cmd.h>
#include <inlay/devx/ifc/hca.h>

#define INLAY_DEVX_BOX 16u       /* bytes of the shortest inbox and outbox */
#define INLAY_DEVX_BOX_MAX 65532u /* of the longest: uverbs counts them in 16 bits */
#define INLAY_DEVX_TEXT 200u     /* bytes that hold every text of inlay_devx_error_text */

/* What became of a command. */
struct inlay_devx_error {
	uint16_t opcode;
	uint16_t op_mod;
	uint8_t status;    /* the device's; 0: it was the kernel, or a library before it, that refused, or an old one does not tell */
	uint8_t reserved[3];
	uint32_t syndrome; /* the device's, opaque */
	int32_t err;       /* what the call returned: 0 or a negative errno */
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_devx_error) == 16, "no holes");

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/* ---- Errors ---- */

/* What a status means, in words; "unknown status" for any that is not of enum inlay_cmd_status. Never NULL. */
INLAY_COLD const char *inlay_devx_status_text(uint8_t status)
{
	switch (status) {
	case INLAY_CMD_STATUS_OK: return "OK";
	case INLAY_CMD_STATUS_INTERNAL_ERR: return "internal error";
	case INLAY_CMD_STATUS_BAD_OP: return "bad or unsupported opcode or op_mod";
	case INLAY_CMD_STATUS_BAD_PARAM: return "bad parameter, or a reserved bit set";
	case INLAY_CMD_STATUS_BAD_SYS_STATE: return "bad system state";
	case INLAY_CMD_STATUS_BAD_RES: return "bad resource: not there, or not yours";
	case INLAY_CMD_STATUS_RES_BUSY: return "resource busy";
	case INLAY_CMD_STATUS_LIM: return "limit exceeded";
	case INLAY_CMD_STATUS_BAD_RES_STATE: return "bad resource state";
	case INLAY_CMD_STATUS_IX: return "bad index";
	case INLAY_CMD_STATUS_NO_RES: return "no resources";
	case INLAY_CMD_STATUS_BAD_QP_STATE: return "bad QP state for this command";
	case INLAY_CMD_STATUS_BAD_PKT: return "bad management packet";
	case INLAY_CMD_STATUS_BAD_SIZE_OUTS_CQES: return "more outstanding CQEs than the new size";
	case INLAY_CMD_STATUS_BAD_INP_LEN: return "bad input length";
	case INLAY_CMD_STATUS_BAD_OUTP_LEN: return "bad output length";
	default: return "unknown status";
	}
}

/* The negative errno of a status, as the table at the top has it; 0 for 0. */
INLAY_COLD int inlay_devx_status_errno(uint8_t status)
{
	switch (status) {
	case INLAY_CMD_STATUS_OK: return 0;
	case INLAY_CMD_STATUS_BAD_OP:
	case INLAY_CMD_STATUS_BAD_PARAM:
	case INLAY_CMD_STATUS_BAD_RES:
	case INLAY_CMD_STATUS_BAD_RES_STATE:
	case INLAY_CMD_STATUS_IX:
	case INLAY_CMD_STATUS_BAD_QP_STATE:
	case INLAY_CMD_STATUS_BAD_PKT:
	case INLAY_CMD_STATUS_BAD_SIZE_OUTS_CQES: return -EINVAL;
	case INLAY_CMD_STATUS_RES_BUSY: return -EBUSY;
	case INLAY_CMD_STATUS_LIM: return -ENOMEM;
	case INLAY_CMD_STATUS_NO_RES: return -EAGAIN;
	default: return -EIO;
	}
}

/* The name of a command that inlay lays out or that goes with one, without its INLAY_CMD_OP_; NULL for any other. */
INLAY_COLD const char *inlay_devx_opcode_name(uint16_t opcode)
{
	switch (opcode) {
	case INLAY_CMD_OP_QUERY_HCA_CAP: return "QUERY_HCA_CAP";
	case INLAY_CMD_OP_QUERY_ADAPTER: return "QUERY_ADAPTER";
	case INLAY_CMD_OP_QUERY_ISSI: return "QUERY_ISSI";
	case INLAY_CMD_OP_CREATE_MKEY: return "CREATE_MKEY";
	case INLAY_CMD_OP_QUERY_MKEY: return "QUERY_MKEY";
	case INLAY_CMD_OP_CREATE_CQ: return "CREATE_CQ";
	case INLAY_CMD_OP_QUERY_CQ: return "QUERY_CQ";
	case INLAY_CMD_OP_MODIFY_CQ: return "MODIFY_CQ";
	case INLAY_CMD_OP_CREATE_QP: return "CREATE_QP";
	case INLAY_CMD_OP_RST2INIT_QP: return "RST2INIT_QP";
	case INLAY_CMD_OP_INIT2RTR_QP: return "INIT2RTR_QP";
	case INLAY_CMD_OP_RTR2RTS_QP: return "RTR2RTS_QP";
	case INLAY_CMD_OP_RTS2RTS_QP: return "RTS2RTS_QP";
	case INLAY_CMD_OP_SQERR2RTS_QP: return "SQERR2RTS_QP";
	case INLAY_CMD_OP_2ERR_QP: return "2ERR_QP";
	case INLAY_CMD_OP_2RST_QP: return "2RST_QP";
	case INLAY_CMD_OP_QUERY_QP: return "QUERY_QP";
	case INLAY_CMD_OP_INIT2INIT_QP: return "INIT2INIT_QP";
	case INLAY_CMD_OP_CREATE_PSV: return "CREATE_PSV";
	case INLAY_CMD_OP_CREATE_SRQ: return "CREATE_SRQ";
	case INLAY_CMD_OP_QUERY_SRQ: return "QUERY_SRQ";
	case INLAY_CMD_OP_ARM_RQ: return "ARM_RQ";
	case INLAY_CMD_OP_CREATE_XRC_SRQ: return "CREATE_XRC_SRQ";
	case INLAY_CMD_OP_QUERY_XRC_SRQ: return "QUERY_XRC_SRQ";
	case INLAY_CMD_OP_ARM_XRC_SRQ: return "ARM_XRC_SRQ";
	case INLAY_CMD_OP_CREATE_DCT: return "CREATE_DCT";
	case INLAY_CMD_OP_QUERY_DCT: return "QUERY_DCT";
	case INLAY_CMD_OP_ARM_DCT_FOR_KEY_VIOLATION: return "ARM_DCT_FOR_KEY_VIOLATION";
	case INLAY_CMD_OP_CREATE_XRQ: return "CREATE_XRQ";
	case INLAY_CMD_OP_QUERY_XRQ: return "QUERY_XRQ";
	case INLAY_CMD_OP_ARM_XRQ: return "ARM_XRQ";
	case INLAY_CMD_OP_QUERY_XRQ_DC_PARAMS_ENTRY: return "QUERY_XRQ_DC_PARAMS_ENTRY";
	case INLAY_CMD_OP_SET_XRQ_DC_PARAMS_ENTRY: return "SET_XRQ_DC_PARAMS_ENTRY";
	case INLAY_CMD_OP_QUERY_XRQ_ERROR_PARAMS: return "QUERY_XRQ_ERROR_PARAMS";
	case INLAY_CMD_OP_RELEASE_XRQ_ERROR: return "RELEASE_XRQ_ERROR";
	case INLAY_CMD_OP_MODIFY_XRQ: return "MODIFY_XRQ";
	case INLAY_CMD_OP_QUERY_ESW_FUNCTIONS: return "QUERY_ESW_FUNCTIONS";
	case INLAY_CMD_OP_QUERY_VPORT_STATE: return "QUERY_VPORT_STATE";
	case INLAY_CMD_OP_QUERY_ESW_VPORT_CONTEXT: return "QUERY_ESW_VPORT_CONTEXT";
	case INLAY_CMD_OP_QUERY_NIC_VPORT_CONTEXT: return "QUERY_NIC_VPORT_CONTEXT";
	case INLAY_CMD_OP_QUERY_ROCE_ADDRESS: return "QUERY_ROCE_ADDRESS";
	case INLAY_CMD_OP_QUERY_HCA_VPORT_CONTEXT: return "QUERY_HCA_VPORT_CONTEXT";
	case INLAY_CMD_OP_QUERY_VNIC_ENV: return "QUERY_VNIC_ENV";
	case INLAY_CMD_OP_QUERY_VPORT_COUNTER: return "QUERY_VPORT_COUNTER";
	case INLAY_CMD_OP_ALLOC_Q_COUNTER: return "ALLOC_Q_COUNTER";
	case INLAY_CMD_OP_QUERY_Q_COUNTER: return "QUERY_Q_COUNTER";
	case INLAY_CMD_OP_ALLOC_PD: return "ALLOC_PD";
	case INLAY_CMD_OP_NOP: return "NOP";
	case INLAY_CMD_OP_ALLOC_XRCD: return "ALLOC_XRCD";
	case INLAY_CMD_OP_ALLOC_TRANSPORT_DOMAIN: return "ALLOC_TRANSPORT_DOMAIN";
	case INLAY_CMD_OP_QUERY_LAG: return "QUERY_LAG";
	case INLAY_CMD_OP_CREATE_TIR: return "CREATE_TIR";
	case INLAY_CMD_OP_MODIFY_TIR: return "MODIFY_TIR";
	case INLAY_CMD_OP_QUERY_TIR: return "QUERY_TIR";
	case INLAY_CMD_OP_CREATE_SQ: return "CREATE_SQ";
	case INLAY_CMD_OP_MODIFY_SQ: return "MODIFY_SQ";
	case INLAY_CMD_OP_QUERY_SQ: return "QUERY_SQ";
	case INLAY_CMD_OP_CREATE_RQ: return "CREATE_RQ";
	case INLAY_CMD_OP_MODIFY_RQ: return "MODIFY_RQ";
	case INLAY_CMD_OP_QUERY_RQ: return "QUERY_RQ";
	case INLAY_CMD_OP_CREATE_RMP: return "CREATE_RMP";
	case INLAY_CMD_OP_MODIFY_RMP: return "MODIFY_RMP";
	case INLAY_CMD_OP_QUERY_RMP: return "QUERY_RMP";
	case INLAY_CMD_OP_CREATE_TIS: return "CREATE_TIS";
	case INLAY_CMD_OP_MODIFY_TIS: return "MODIFY_TIS";
	case INLAY_CMD_OP_QUERY_TIS: return "QUERY_TIS";
	case INLAY_CMD_OP_CREATE_RQT: return "CREATE_RQT";
	case INLAY_CMD_OP_MODIFY_RQT: return "MODIFY_RQT";
	case INLAY_CMD_OP_QUERY_RQT: return "QUERY_RQT";
	case INLAY_CMD_OP_CREATE_GENERAL_OBJECT: return "CREATE_GENERAL_OBJECT";
	case INLAY_CMD_OP_MODIFY_GENERAL_OBJECT: return "MODIFY_GENERAL_OBJECT";
	case INLAY_CMD_OP_QUERY_GENERAL_OBJECT: return "QUERY_GENERAL_OBJECT";
	case INLAY_CMD_OP_ACCESS_REGISTER_USER: return "ACCESS_REGISTER_USER";
	case INLAY_CMD_OP_ALLOW_OTHER_VHCA_ACCESS: return "ALLOW_OTHER_VHCA_ACCESS";
	default: return NULL;
	}
}

/*
 * One line about an error, without a newline: "CREATE_QP (0x500), op_mod 0: bad resource: not there, or not yours (status 0x05, syndrome
 * 0x001b2c3d): Invalid argument".
 *
 * text, size  where it goes; cut to size, which INLAY_DEVX_TEXT always is enough for. size 0: nothing is written
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
		n += snprintf(text + n, size - (size_t)n, "%s (status 0x%02x, syndrome 0x%08x): ", inlay_devx_status_text(error->status),
			      error->status, error->syndrome);
	if (n > 0 && (size_t)n < size)
		snprintf(text + n, size - (size_t)n, "%s", strerror(-error->err));
	return text;
}

/* The first two fields of an inbox. in: 16 bytes at least. error may be NULL. */
INLAY_COLD void inlay_devx_begin(const void *in, struct inlay_devx_error *error)
{
	const uint8_t *box = (const uint8_t *)in;

	if (!error)
		return;
	__builtin_memset(error, 0, sizeof(*error));
	error->opcode = (uint16_t)(box[0] << 8 | box[1]);
	error->op_mod = (uint16_t)(box[6] << 8 | box[7]);
}

/*
 * Looks at the lengths, and zeroes the outbox. in NULL is as good as too short.
 *
 * Returns 0, or -EINVAL for a box that is shorter than 16 bytes or longer than uverbs can count, or not of whole dwords; then nothing is
 * written but *error.
 */
INLAY_COLD int inlay_devx_boxes(const void *in, size_t inlen, void *out, size_t outlen, struct inlay_devx_error *error)
{
	if (!in || inlen < INLAY_DEVX_BOX || inlen > INLAY_DEVX_BOX_MAX || inlen % 4 || !out || outlen < INLAY_DEVX_BOX ||
	    outlen > INLAY_DEVX_BOX_MAX || outlen % 4) {
		if (error) {
			__builtin_memset(error, 0, sizeof(*error));
			error->err = -EINVAL;
		}
		return -EINVAL;
	}
	inlay_devx_begin(in, error);
	__builtin_memset(out, 0, outlen);
	return 0;
}

/*
 * What a call and its outbox come to.
 *
 * err   0 or a positive errno, as libmlx5's calls answer
 * out   the outbox, zeroed before the call; 16 bytes at least
 *
 * Returns 0 or the negative errno: the kernel's, or for a command that the device has refused that of its status.
 */
INLAY_COLD int inlay_devx_end(int err, const void *out, struct inlay_devx_error *error)
{
	const uint8_t *box = (const uint8_t *)out;
	int result = -err;

	/* A kernel that says that all is well has looked at the status. Who does not believe it is told of no object that is not there. */
	if (err == EREMOTEIO || !err) {
		result = inlay_devx_status_errno(box[0]);
		if (err && !result)
			result = -EIO;
	}
	if (error) {
		error->status = result ? box[0] : 0;
		error->syndrome = (uint32_t)box[4] << 24 | (uint32_t)box[5] << 16 | (uint32_t)box[6] << 8 | box[7];
		error->err = result;
	}
	return result;
}

/* ---- Opening ---- */

/*
 * Opens a device for commands. Close it with ibv_close_device, when all is destroyed that was made of it.
 *
 * A context of ibv_open_device can do commands too, where the kernel lets it; this one is refused where it does not.
 *
 * Returns 0; -EOPNOTSUPP when the device is not mlx5; else the negative errno of mlx5dv_open_device: -EPERM, -EINVAL or -EOPNOTSUPP where
 * device, kernel or rights do not allow commands.
 */
INLAY_COLD int inlay_devx_open(struct ibv_context **ctx, struct ibv_device *device)
{
	struct mlx5dv_context_attr attr;

	INLAY_CHECK(ctx && device, "no argument is NULL");
	__builtin_memset(&attr, 0, sizeof(attr));
	attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
	errno = 0;
	*ctx = mlx5dv_open_device(device, &attr);
	if (*ctx)
		return 0;
	return errno ? -errno : -ENODEV;
}

/* ---- Commands ---- */

/*
 * What the calls below share.
 *
 * in, inlen    inbox, big-endian dwords: 16 bytes at least, whole dwords
 * out, outlen  outbox, likewise; zeroed first, and the device's answer afterwards, of a failed command too where the kernel hands it over
 * error        what became of the command, filled in every case; NULL: not wanted
 *
 * Return 0; -EINVAL for a box of a length that cannot be, which no kernel sees; the negative errno of the device's status; else the
 * kernel's: -EINVAL for an opcode that is not on its list for this call or a number that is not the object's, -EOPNOTSUPP when the context
 * is not open for commands.
 */

/* A command that belongs to no object: queries of capabilities, registers, links. */
INLAY_COLD int inlay_devx_command(struct ibv_context *ctx, const void *in, size_t inlen, void *out, size_t outlen,
				  struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(ctx, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_general_cmd(ctx, in, inlen, out, outlen), out, error);
}

/*
 * QUERY_HCA_CAP: what the device can do, as it is set now.
 *
 * type  enum inlay_cap_type, 15 bits
 *
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
	inlay_cmd_in_set(&in, INLAY_CMD_IN_OP_MOD, type << 1 | INLAY_CAP_CURRENT);
	return inlay_devx_command(ctx, &in, sizeof(in), out, sizeof(*out), error);
}

/*
 * Destroys an object. Returns 0, or a negative errno: -EBUSY when something else uses it; then it is still there, and it may be called
 * again. Destroying a DCT waits until it is drained.
 */
INLAY_COLD int inlay_devx_destroy(struct mlx5dv_devx_obj *obj)
{
	INLAY_CHECK(obj, "no argument is NULL");
	return -mlx5dv_devx_obj_destroy(obj);
}

/*
 * Creates an object. *obj is its handle, by which it is queried, modified and destroyed; NULL on failure. The number by which the data path
 * knows it is in the outbox, for nearly all in the low 24 bits of the dword at 8.
 */
INLAY_COLD int inlay_devx_create(struct ibv_context *ctx, const void *in, size_t inlen, void *out, size_t outlen,
				 struct mlx5dv_devx_obj **obj, struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(ctx && obj, "no argument is NULL");
	*obj = NULL;
	if (err)
		return err;
	errno = 0;
	*obj = mlx5dv_devx_obj_create(ctx, in, inlen, out, outlen);
	err = inlay_devx_end(*obj ? 0 : errno ? errno : ENOMEM, out, error);
	if (err && *obj) {
		inlay_devx_destroy(*obj);
		*obj = NULL;
	}
	return err;
}

/* Changes an object. The inbox names it once more, by its number. */
INLAY_COLD int inlay_devx_modify(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen,
				 struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(obj, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_obj_modify(obj, in, inlen, out, outlen), out, error);
}

/* Asks for an object's state. The inbox names it once more, by its number. */
INLAY_COLD int inlay_devx_query(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen,
				struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(obj, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_obj_query(obj, in, inlen, out, outlen), out, error);
}

/*
 * ---- Objects of verbs ----
 *
 * The same for what libibverbs has made. What the kernel takes each for decides which commands it lets through:
 *
 *   ibv_cq    CQ        QUERY_CQ, MODIFY_CQ
 *   ibv_qp    QP        QUERY_QP and all transitions; a DCT's QUERY_DCT. A raw packet QP is its RQ, SQ, TIR or TIS, as the command has it
 *   ibv_srq   RMP       QUERY_RMP, MODIFY_RMP, for a plain one; XRC SRQ of XRC; XRQ with tag matching
 *   ibv_wq    RQ        QUERY_RQ, MODIFY_RQ
 *   ibv_rwq_ind_table   RQT
 *
 * libibverbs does not see what is changed behind it: ibv_query_qp asks the device, ibv_qp.state stays.
 */

INLAY_COLD int inlay_devx_verbs_cq_query(struct ibv_cq *cq, const void *in, size_t inlen, void *out, size_t outlen,
					 struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(cq, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_cq_query(cq, in, inlen, out, outlen), out, error);
}

INLAY_COLD int inlay_devx_verbs_cq_modify(struct ibv_cq *cq, const void *in, size_t inlen, void *out, size_t outlen,
					  struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(cq, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_cq_modify(cq, in, inlen, out, outlen), out, error);
}

INLAY_COLD int inlay_devx_verbs_qp_query(struct ibv_qp *qp, const void *in, size_t inlen, void *out, size_t outlen,
					 struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(qp, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_qp_query(qp, in, inlen, out, outlen), out, error);
}

INLAY_COLD int inlay_devx_verbs_qp_modify(struct ibv_qp *qp, const void *in, size_t inlen, void *out, size_t outlen,
					  struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(qp, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_qp_modify(qp, in, inlen, out, outlen), out, error);
}

INLAY_COLD int inlay_devx_verbs_srq_query(struct ibv_srq *srq, const void *in, size_t inlen, void *out, size_t outlen,
					  struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(srq, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_srq_query(srq, in, inlen, out, outlen), out, error);
}

INLAY_COLD int inlay_devx_verbs_srq_modify(struct ibv_srq *srq, const void *in, size_t inlen, void *out, size_t outlen,
					   struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(srq, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_srq_modify(srq, in, inlen, out, outlen), out, error);
}

INLAY_COLD int inlay_devx_verbs_wq_query(struct ibv_wq *wq, const void *in, size_t inlen, void *out, size_t outlen,
					 struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(wq, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_wq_query(wq, in, inlen, out, outlen), out, error);
}

INLAY_COLD int inlay_devx_verbs_wq_modify(struct ibv_wq *wq, const void *in, size_t inlen, void *out, size_t outlen,
					  struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(wq, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_wq_modify(wq, in, inlen, out, outlen), out, error);
}

INLAY_COLD int inlay_devx_verbs_table_query(struct ibv_rwq_ind_table *table, const void *in, size_t inlen, void *out, size_t outlen,
					    struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(table, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_ind_tbl_query(table, in, inlen, out, outlen), out, error);
}

INLAY_COLD int inlay_devx_verbs_table_modify(struct ibv_rwq_ind_table *table, const void *in, size_t inlen, void *out, size_t outlen,
					     struct inlay_devx_error *error)
{
	int err = inlay_devx_boxes(in, inlen, out, outlen, error);

	INLAY_CHECK(table, "no argument is NULL");
	return err ? err : inlay_devx_end(mlx5dv_devx_ind_tbl_modify(table, in, inlen, out, outlen), out, error);
}

#endif
