/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * call.c: device commands on their way: what is refused before the kernel sees it, what becomes of
 * each status under kernels of both kinds, error texts, events taken apart, answers, paths.
 *
 * Of libmlx5's calls this program has its own, which answer as a kernel would. Takes no device.
 */
#include "common.h"
#include <inlay/devx.h>

/* ---- A kernel to order ---- */

enum kernel {
	TODAY, /* a failed command: EREMOTEIO, and the outbox is there */
	OLD,   /* the errno of its status, and the outbox as it was */
	REFUSES /* `refusal`, and the outbox as it was */
};

static struct {
	enum kernel kernel;
	int refusal;
	uint8_t status;
	uint32_t syndrome;
	bool handle_anyway; /* a create that fails and succeeds */
	int calls, destroyed;
	size_t inlen, outlen;
	uint8_t before; /* what the outbox held when the call came */
	struct mlx5dv_devx_umem_in umem;
} script;

/* The driver's table, written down here once more rather than taken from the header */
static const struct {
	uint8_t status;
	int error;
} mapping[] = {
	{0x01, EIO}, {0x02, EINVAL}, {0x03, EINVAL}, {0x04, EIO}, {0x05, EINVAL}, {0x06, EBUSY}, {0x08, ENOMEM},
	{0x09, EINVAL}, {0x0a, EINVAL}, {0x0f, EAGAIN}, {0x10, EINVAL}, {0x30, EINVAL}, {0x40, EINVAL}, {0x50, EIO},
	{0x51, EIO}, {0x07, EIO}, {0xff, EIO},
};

static int scripted(size_t inlen, void *out, size_t outlen)
{
	uint8_t *box = (uint8_t *)out;
	size_t i;

	script.calls++;
	script.inlen = inlen;
	script.outlen = outlen;
	for (script.before = 0, i = 0; i < outlen; i++)
		script.before |= box[i];
	if (script.kernel == REFUSES)
		return script.refusal;
	if (!script.status)
		return 0;
	if (script.kernel == OLD) {
		for (i = 0; i < ARRAY(mapping); i++)
			if (mapping[i].status == script.status)
				return mapping[i].error;
		return EIO;
	}
	box[0] = script.status;
	for (i = 0; i < 4; i++)
		box[4 + i] = (uint8_t)(script.syndrome >> (24 - 8 * i));
	return EREMOTEIO;
}

/* A handle that nothing looks into */
static struct mlx5dv_devx_obj *const some_obj = (struct mlx5dv_devx_obj *)&script;

int mlx5dv_devx_general_cmd(UNUSED struct ibv_context *context, UNUSED const void *in, size_t inlen, void *out, size_t outlen)
{
	return scripted(inlen, out, outlen);
}

struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(UNUSED struct ibv_context *context, UNUSED const void *in, size_t inlen, void *out,
					       size_t outlen)
{
	errno = scripted(inlen, out, outlen);
	return !errno || script.handle_anyway ? some_obj : NULL;
}

int mlx5dv_devx_obj_modify(UNUSED struct mlx5dv_devx_obj *obj, UNUSED const void *in, size_t inlen, void *out, size_t outlen)
{
	return scripted(inlen, out, outlen);
}

int mlx5dv_devx_obj_query(UNUSED struct mlx5dv_devx_obj *obj, UNUSED const void *in, size_t inlen, void *out, size_t outlen)
{
	return scripted(inlen, out, outlen);
}

int mlx5dv_devx_obj_destroy(UNUSED struct mlx5dv_devx_obj *obj)
{
	script.destroyed++;
	return script.kernel == REFUSES ? script.refusal : 0;
}

struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg_ex(UNUSED struct ibv_context *ctx, struct mlx5dv_devx_umem_in *in)
{
	static struct mlx5dv_devx_umem umem = {77};

	script.umem = *in;
	errno = script.refusal;
	return script.kernel == REFUSES ? NULL : &umem;
}

/* What is read: `outlen` bytes of anything, in a buffer of len */
ssize_t mlx5dv_devx_get_event(UNUSED struct mlx5dv_devx_event_channel *channel, struct mlx5dv_devx_async_event_hdr *event, size_t len)
{
	if (script.kernel == REFUSES) {
		errno = script.refusal;
		return -1;
	}
	assert_true(script.outlen <= len);
	fill(event, script.outlen, 9);
	return script.outlen < 8 ? -EINVAL : (ssize_t)script.outlen;
}

int mlx5dv_devx_get_async_cmd_comp(UNUSED struct mlx5dv_devx_cmd_comp *comp, struct mlx5dv_devx_async_cmd_hdr *answer, size_t len)
{
	if (script.kernel == REFUSES)
		return script.refusal;
	if (script.outlen > len)
		return ENOSPC;
	fill(answer, script.outlen, 9);
	return 0;
}

static int reset(UNUSED void **state)
{
	memset(&script, 0, sizeof(script));
	return 0;
}

/* What the calls above never look into */
static struct ibv_context nobody;
static struct mlx5dv_devx_event_channel no_channel;
static struct mlx5dv_devx_cmd_comp no_answers;

/* The four ways that a command goes */
static int send_by(int way, const void *in, size_t inlen, void *out, size_t outlen, struct inlay_devx_error *error)
{
	struct mlx5dv_devx_obj *obj = some_obj;
	int err;

	switch (way) {
	case 0: return inlay_devx_command(&nobody, in, inlen, out, outlen, error);
	case 1:
		err = inlay_devx_create(&nobody, in, inlen, out, outlen, &obj, error);
		assert_int_equal(obj != NULL, err == 0);
		return err;
	case 2: return inlay_devx_modify(obj, in, inlen, out, outlen, error);
	default: return inlay_devx_query(obj, in, inlen, out, outlen, error);
	}
}

#define WAYS 4

static void an_inbox(uint8_t in[16], uint16_t opcode, uint16_t op_mod)
{
	memset(in, 0, 16);
	in[0] = (uint8_t)(opcode >> 8);
	in[1] = (uint8_t)opcode;
	in[6] = (uint8_t)(op_mod >> 8);
	in[7] = (uint8_t)op_mod;
}

/* ---- Tests ---- */

TEST_WITH(short_boxes_are_refused_before_the_kernel_sees_them, reset, NULL)
{
	static const size_t bad[] = {0, 1, 4, 12, 15, 17, 18, 19, 22, 65536, 65540};
	static uint8_t in[65600], out[65600];
	struct inlay_devx_error error;

	for (int way = 0; way < WAYS; way++) {
		for (size_t i = 0; i < ARRAY(bad); i++) {
			memset(out, 0x5a, sizeof(out));
			memset(&error, 0xff, sizeof(error));
			assert_int_equal(send_by(way, in, bad[i], out, 16, &error), -EINVAL);
			assert_true(error.err == -EINVAL && !error.status && !error.syndrome);
			assert_int_equal(send_by(way, in, 16, out, bad[i], NULL), -EINVAL);
			assert_true(all_bytes(out, sizeof(out), 0x5a));
		}
		assert_int_equal(send_by(way, NULL, 16, out, 16, NULL), -EINVAL);
		assert_int_equal(send_by(way, in, 16, NULL, 16, NULL), -EINVAL);
	}
	assert_int_equal(inlay_devx_query_cap(&nobody, 1u << 15, (struct inlay_query_hca_cap_out *)(void *)out, &error), -EINVAL);
	assert_true(error.why && !script.calls);
	/* The shortest and the longest go through as they are */
	for (int way = 0; way < WAYS; way++) {
		must(send_by(way, in, 16, out, 16, NULL));
		must(send_by(way, in, 65532, out, 65532, NULL));
		assert_true(script.inlen == 65532 && script.outlen == 65532);
	}
	assert_int_equal(script.calls, 2 * WAYS);
}

TEST_WITH(each_status_is_one_errno_under_kernels_of_both_kinds, reset, NULL)
{
	static const enum kernel kernels[] = {TODAY, OLD};
	struct inlay_devx_error error;
	uint8_t in[16], out[32];

	an_inbox(in, 0x500, 0x1234);
	script.syndrome = 0xab1c2d3e;
	for (int way = 0; way < WAYS; way++)
		for (size_t k = 0; k < ARRAY(kernels); k++)
			for (size_t i = 0; i <= ARRAY(mapping); i++) {
				const bool fails = i < ARRAY(mapping), told = fails && kernels[k] == TODAY; /* an old one does not tell */
				const int err = fails ? -mapping[i].error : 0;

				script.status = fails ? mapping[i].status : 0;
				script.kernel = kernels[k];
				memset(out, 0xee, sizeof(out));
				memset(&error, 0xff, sizeof(error));
				assert_int_equal(send_by(way, in, 16, out, 32, &error), err);
				assert_int_equal(script.before, 0); /* nothing old in the outbox */
				assert_true(error.opcode == 0x500 && error.err == err && (!fails || error.op_mod == 0x1234));
				assert_int_equal(error.status, told ? script.status : 0);
				assert_int_equal(error.syndrome, told ? script.syndrome : 0);
				assert_true(told || all_bytes(out, sizeof(out), 0));
			}
}

TEST_WITH(what_the_kernel_refuses_is_its_errno, reset, NULL)
{
	static const int refusals[][2] = {
		{EINVAL, -EINVAL}, {EOPNOTSUPP, -EOPNOTSUPP}, {ENOMEM, -ENOMEM}, {ENXIO, -ENXIO}, {EPERM, -EPERM},
		{EREMOTEIO, -EIO}, /* without a status is no success */
	};
	struct inlay_devx_error error;
	uint8_t in[16], out[16];

	an_inbox(in, 0x802, 0);
	script.kernel = REFUSES;
	for (int way = 0; way < WAYS; way++)
		for (size_t i = 0; i < ARRAY(refusals); i++) {
			script.refusal = refusals[i][0];
			assert_int_equal(send_by(way, in, 16, out, 16, &error), refusals[i][1]);
			assert_true(error.err == refusals[i][1] && (!error.status || refusals[i][0] == EREMOTEIO));
		}
	script.refusal = EBUSY;
	assert_int_equal(inlay_devx_destroy(some_obj), -EBUSY);
	/* A handle that comes with an error is given back */
	reset(NULL);
	script.status = 0x05;
	script.handle_anyway = true;
	assert_true(send_by(1, in, 16, out, 16, &error) == -EINVAL && script.destroyed == 1);
}

TEST_WITH(texts_of_errors, reset, NULL)
{
	char text[INLAY_DEVX_TEXT], *longest = text;
	struct inlay_devx_error error = {.opcode = 0x500, .status = 0x05, .syndrome = 0x1b2c3d, .err = -EINVAL};

	assert_string_equal(inlay_devx_error_text(&error, text, sizeof(text)),
			    "CREATE_QP (0x500), op_mod 0: bad resource: missing, or another context's "
			    "(status 0x05, syndrome 0x001b2c3d): Invalid argument");
	error.status = 0;
	error.err = -EOPNOTSUPP;
	error.op_mod = 7;
	error.opcode = 0x7ff;
	assert_string_equal(inlay_devx_error_text(&error, text, sizeof(text)),
			    "unknown opcode (0x7ff), op_mod 7: Operation not supported");
	/* Every status has a text of its own, or none at all; every text fits */
	error.op_mod = 0xffff;
	error.syndrome = 0xffffffff;
	error.err = -EPROTONOSUPPORT;
	for (unsigned status = 0; status < 256; status++) {
		bool known = status == 0;

		for (size_t i = 0; i < ARRAY(mapping) - 2; i++)
			known |= mapping[i].status == status;
		error.status = (uint8_t)status;
		inlay_devx_error_text(&error, text, sizeof(text));
		assert_int_equal(strstr(text, "unknown status") != NULL, !known && status);
		for (error.opcode = 0x100; error.opcode < 0xd00; error.opcode += status ? 0x11 : 1) {
			longest = inlay_devx_error_text(&error, text, sizeof(text));
			assert_true(strlen(longest) < sizeof(text) - 1);
		}
	}
	for (unsigned cut = 0; cut < 100; cut++) {
		memset(text, 'x', sizeof(text));
		inlay_devx_error_text(&error, text, cut);
		assert_true(all_bytes(text + cut, sizeof(text) - cut, 'x'));
		assert_true(!cut || strnlen(text, cut) < cut);
	}
}

/* ---- Events ---- */

static void put(uint8_t *at, uint32_t value, unsigned bytes)
{
	for (; bytes--; value >>= 8)
		at[bytes] = (uint8_t)value;
}

TEST(events_are_taken_apart)
{
	/* Where the number is by type, as the reference has it */
	static const struct { uint8_t type, at, kind_at; } table[] = {
		{0x00, 0x38, 0}, {0x01, 0x38, 0x34}, {0x02, 0x38, 0x34}, {0x03, 0x38, 0x34}, {0x05, 0x38, 0x34},
		{0x07, 0x38, 0x34}, {0x10, 0x38, 0x34}, {0x11, 0x38, 0x34}, {0x12, 0x38, 0x34}, {0x13, 0x38, 0x34},
		{0x14, 0x38, 0x34}, {0x04, 0x20, 0}, {0x18, 0x34, 0}, {0x1c, 0x38, 0}, {0x1d, 0x38, 0},
	};
	struct inlay_devx_event event;
	uint8_t eqe[64];

	event.cookie = 0x1122334455667788;
	for (size_t i = 0; i < ARRAY(table); i++) {
		memset(eqe, 0, sizeof(eqe));
		eqe[1] = table[i].type;
		eqe[3] = 9;
		put(eqe + table[i].at, 0xfe123456, 4);
		if (table[i].kind_at)
			eqe[table[i].kind_at] = 2;
		if (table[i].type == 0x04)
			eqe[0x2b] = 1;
		inlay_devx_event_parse_(eqe, 64, &event);
		assert_true(event.cookie == 0x1122334455667788 && event.type == table[i].type && event.subtype == 9);
		assert_int_equal(event.number, 0x123456);
		assert_int_equal(event.kind, table[i].kind_at ? 2 : table[i].type >= 0x1c ? 6 : 0);
		assert_true(event.syndrome == (table[i].type == 0x04) && !event.object_type && event.bytes == 64);
		assert_memory_equal(&event.eqe, eqe, 64);
	}
	memset(eqe, 0, sizeof(eqe));
	eqe[1] = 0x09;
	eqe[3] = 4;
	eqe[0x28] = 0x20;
	inlay_devx_event_parse_(eqe, 64, &event);
	assert_true(event.number == 2 && event.subtype == 4);
	memset(eqe, 0, sizeof(eqe));
	eqe[1] = 0x27;
	put(eqe + 0x22, 0xff02, 2);
	put(eqe + 0x24, 0x87654321, 4);
	inlay_devx_event_parse_(eqe, 64, &event);
	assert_true(event.object_type == 0xff02 && event.number == 0x87654321);
}

/* ---- Bytes from outside ---- */

TEST_WITH(any_answer_and_event, reset, NULL)
{
	uint64_t buf[34], wr_id;
	struct inlay_devx_event event;
	struct inlay_devx_error error;
	uint8_t expected[272];
	int err;

	fill(expected, sizeof(expected), 9);
	for (size_t len = 8; len <= 72; len++) {
		script.outlen = len;
		memset(&event, 0x33, sizeof(event));
		must(inlay_devx_event_get(&no_channel, &event));
		assert_true(!memcmp(&event.cookie, expected, 8) && event.bytes == len - 8);
		assert_memory_equal(&event.eqe, expected + 8, len - 8);
		assert_true(all_bytes((const uint8_t *)&event.eqe + (len - 8), 72 - len, 0));
	}
	/* Less than a cookie, which libmlx5 answers with -EINVAL and no errno */
	for (size_t len = 0; len < 8; len++) {
		script.outlen = len;
		errno = EAGAIN;
		assert_true(inlay_devx_event_get(&no_channel, &event) == -EIO && all_bytes(&event, sizeof(event), 0));
	}
	/* An answer that ends before its status */
	script.outlen = 8;
	assert_int_equal(inlay_devx_answer(&no_answers, buf, sizeof(buf), &wr_id, &error), -EIO);
	assert_true(!memcmp(&wr_id, expected, 8) && error.status == 0xff && error.err == -EIO);
	for (size_t len = 24; len <= sizeof(buf); len += 4) {
		script.outlen = len;
		memset(buf, 0x44, sizeof(buf));
		err = inlay_devx_answer(&no_answers, buf, sizeof(buf), &wr_id, &error);
		assert_int_equal(err, inlay_devx_result(0, NULL, &expected[8], NULL));
		assert_true(error.err == err && !memcmp(&wr_id, expected, 8));
		assert_true(!memcmp(buf, expected, len) && all_bytes((uint8_t *)buf + len, sizeof(buf) - len, 0));
		assert_int_equal(inlay_devx_answer(&no_answers, buf, len - 4, &wr_id, &error), -ENOBUFS);
		assert_true(wr_id == UINT64_MAX);
	}
	script.kernel = REFUSES;
	script.refusal = EOVERFLOW;
	assert_int_equal(inlay_devx_event_get(&no_channel, &event), -EOVERFLOW);
	script.refusal = EIO;
	assert_int_equal(inlay_devx_event_get(&no_channel, &event), -EIO);
	assert_int_equal(inlay_devx_answer(&no_answers, buf, sizeof(buf), &wr_id, &error), -EIO);
}

/* The software device has no dmabufs: what is asked of libmlx5, and what a caller may rely on */
TEST_WITH(umems_of_dmabufs, reset, NULL)
{
	struct inlay_devx_umem umem;

	must(inlay_devx_umem_reg_dmabuf(&umem, &nobody, 5, 8192, 16384, IBV_ACCESS_LOCAL_WRITE, 4096 | 65536));
	assert_true(script.umem.comp_mask == MLX5DV_UMEM_MASK_DMABUF && script.umem.dmabuf_fd == 5);
	assert_true((uintptr_t)script.umem.addr == 8192 && script.umem.size == 16384);
	assert_true(script.umem.access == IBV_ACCESS_LOCAL_WRITE && script.umem.pgsz_bitmap == (4096 | 65536));
	assert_null(umem.addr); /* not mapped: no ring there */
	assert_true(umem.id == 77 && umem.len == 16384 && umem.page == 65536);
	script.kernel = REFUSES;
	script.refusal = EBADF;
	assert_true(inlay_devx_umem_reg_dmabuf(&umem, &nobody, 5, 0, 16384, 0, 4096) == -EBADF && !umem.umem);
}

/* What does not fit a field of the device is refused; it does not become another number there */
TEST_WITH(paths_that_cannot_be, reset, NULL)
{
#define OF(type, field, most) {offsetof(struct inlay_##type, field), sizeof(((struct inlay_##type *)0)->field), most}
	static const struct { size_t at, bytes; uint32_t most; } fields[] = {
		OF(devx_path, mtu, 5), OF(devx_path, sl, 7), OF(devx_path, src_path_bits, 127), OF(devx_path, timeout, 31),
		OF(devx_path, retry_count, 7), OF(devx_path, rnr_retry, 7), OF(devx_path, min_rnr_timer, 31),
		OF(devx_path, rd_atomic, 128), OF(devx_path, dest_rd_atomic, 128), OF(devx_path, atomic_mode, 15),
		OF(devx_path, flow_label, 0xfffff), OF(devx_path, psn, 0xffffff),
	}, records[] = { /* which one may not be, and maybe no more */
		OF(connect_record, qpn, 1 << 24), OF(connect_record, psn, 1 << 24), OF(connect_record, sl, 8),
		OF(connect_record, link, INLAY_CONNECT_IB), OF(connect_record, link, 3), OF(connect_record, type, IBV_QPT_UC),
		{offsetof(struct inlay_connect_record, mac) + 3, 3, 0},
	};
#undef OF
	struct inlay_connect_record peer = {}, good;
	struct inlay_devx_path path;
	static struct inlay_devx_qp qp;
	uint32_t value;

	qp.obj = some_obj;
	qp.type = INLAY_QP_ST_RC;
	qp.ethernet = 1;
	qp.mtu = 3;
	peer.link = INLAY_CONNECT_ROCE_V2;
	peer.mac[5] = 1;
	peer.type = IBV_QPT_RC;
	good = peer;
	for (size_t i = 0; i < ARRAY(fields); i++) {
		uint8_t *field = (uint8_t *)&path + fields[i].at;

		path = inlay_devx_path_defaults();
		memcpy(field, &fields[i].most, fields[i].bytes);
		must(inlay_devx_qp_modify(&qp, INLAY_QP_STATE_RTR, &path, &peer));
		must(inlay_devx_qp_modify(&qp, INLAY_QP_STATE_RTS, &path, NULL));
		script.calls = 0;
		value = fields[i].most + 1;
		memcpy(field, &value, fields[i].bytes);
		assert_int_equal(inlay_devx_qp_modify(&qp, INLAY_QP_STATE_RTR, &path, &peer), -EINVAL);
		assert_true(inlay_devx_qp_modify(&qp, INLAY_QP_STATE_RTS, &path, NULL) == -EINVAL && !script.calls);
	}
	path = inlay_devx_path_defaults();
	path.udp_sport = 0xbfff;
	assert_int_equal(inlay_devx_qp_modify(&qp, INLAY_QP_STATE_RTR, &path, &peer), -EINVAL);
	path.udp_sport = 0xc000;
	must(inlay_devx_qp_modify(&qp, INLAY_QP_STATE_RTR, &path, &peer));
	/* A service level is a priority on Ethernet */
	path.sl = 15;
	assert_true(inlay_devx_path_ok_(&path, 0) && !inlay_devx_path_ok_(&path, 1));
	path.sl = 16;
	assert_false(inlay_devx_path_ok_(&path, 0));
	/* What a peer's record says that cannot be, is refused too, and so are numbers that would be cut */
	for (size_t i = 0; i < ARRAY(records); i++) {
		peer = good;
		memcpy((uint8_t *)&peer + records[i].at, &records[i].most, records[i].bytes);
		script.calls = 0;
		path = inlay_devx_path_defaults();
		if (inlay_devx_qp_modify(&qp, INLAY_QP_STATE_RTR, &path, &peer) != -EINVAL || script.calls)
			fail_msg("the record's %zu bytes at %zu may be 0x%x", records[i].bytes, records[i].at, records[i].most);
	}
	assert_int_equal(inlay_devx_qp_modify(&qp, INLAY_QP_STATE_RTR, &path, NULL), -EINVAL);
	assert_int_equal(inlay_devx_roce_mac_(&nobody, 17, 0, peer.mac, NULL), -EINVAL);
	assert_int_equal(inlay_devx_query_context(qp.obj, INLAY_CMD_OP_QUERY_QP, 1 << 24, peer.gid, sizeof(peer.gid), NULL), -EINVAL);
	assert_int_equal(script.calls, 0);
}

int main(void)
{
	rnd_seed();
	return run_all(NULL, NULL);
}
