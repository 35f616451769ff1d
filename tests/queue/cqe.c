/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cqe.c: the decoders and the printer of cqe.h, on CQEs written down here from mlx5dv.h's structs. No device.
 */
#include "rig.h"
#include <endian.h>
#include <sys/mman.h>

static void noise(void *at, size_t len)
{
	uint8_t *p = (uint8_t *)at;
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)rnd();
}

/* Every field, among random neighbours */
static void fields(void **state)
{
	struct mlx5_cqe64 cqe, before;
	int i;

	(void)state;
	for (i = 0; i < 20000; i++) {
		uint32_t qpn = (uint32_t)rnd() & 0xffffff, opcode = (uint32_t)rnd() & 0xff, imm = (uint32_t)rnd(), count = (uint32_t)rnd();
		uint16_t counter = (uint16_t)rnd();
		uint64_t stamp = rnd();

		noise(&cqe, sizeof(cqe));
		cqe.sop_drop_qpn = htobe32(opcode << 24 | qpn);
		cqe.imm_inval_pkey = htobe32(imm);
		cqe.byte_cnt = htobe32(count);
		cqe.wqe_counter = htobe16(counter);
		cqe.timestamp = htobe64(stamp);
		before = cqe;
		assert_int_equal(inlay_cqe_qpn(&cqe), qpn);
		assert_int_equal(inlay_cqe_send_opcode(&cqe), opcode);
		assert_int_equal(inlay_cqe_imm_be(&cqe), htobe32(imm));
		assert_int_equal(inlay_cqe_invalidated_rkey(&cqe), imm);
		assert_int_equal(inlay_cqe_byte_count(&cqe), count);
		assert_int_equal(inlay_cqe_wqe_counter(&cqe), counter);
		assert_true(inlay_cqe_timestamp(&cqe) == stamp);
		cqe.timestamp = htobe64((stamp % 5000000000 / 2) << 32 | stamp % 1000000000);
		assert_true(inlay_cqe_real_time(&cqe) == stamp % 5000000000 / 2 * 1000000000 + stamp % 1000000000);
		cqe.timestamp = before.timestamp;
		assert_int_equal(inlay_cqe_opcode(&cqe), cqe.op_own >> 4);
		assert_memory_equal(&cqe, &before, sizeof(cqe));
	}
}

/* What a datagram's completion says of its sender, by its bytes, among random neighbours */
static void sender(void **state)
{
	uint8_t raw[64] __attribute__((aligned(64)));
	const struct mlx5_cqe64 *cqe = (const struct mlx5_cqe64 *)raw;
	int i;

	(void)state;
	for (i = 0; i < 20000; i++) {
		uint32_t qpn = (uint32_t)rnd() & 0xffffff, sl = rnd_below(16), grh = rnd_below(4), lid = rnd_below(65536),
			path = rnd_below(128);

		noise(raw, sizeof(raw));
		raw[17] = (uint8_t)((raw[17] & 0x80) | path);
		raw[22] = (uint8_t)(lid >> 8);
		raw[23] = (uint8_t)lid;
		raw[24] = (uint8_t)((raw[24] & 0xc0) | grh << 4 | sl);
		raw[25] = (uint8_t)(qpn >> 16);
		raw[26] = (uint8_t)(qpn >> 8);
		raw[27] = (uint8_t)qpn;
		assert_int_equal(inlay_cqe_src_qpn(cqe), qpn);
		assert_int_equal(inlay_cqe_sl(cqe), sl);
		assert_int_equal(inlay_cqe_has_grh(cqe), grh != 0);
		assert_int_equal(inlay_cqe_slid(cqe), lid);
		assert_int_equal(inlay_cqe_path_bits(cqe), path);
	}
}

/* What a packet's completion says of it, by its bytes, among random neighbours */
static void packet(void **state)
{
	static const uint8_t ip[] = {INLAY_RSS_IPV4, INLAY_RSS_IPV6}, l4[] = {INLAY_RSS_TCP, INLAY_RSS_UDP, INLAY_RSS_SPI};
	uint8_t raw[64] __attribute__((aligned(64)));
	const struct mlx5_cqe64 *cqe = (const struct mlx5_cqe64 *)raw;
	uint32_t i, k;

	(void)state;
	for (i = 0; i < 20000; i++) {
		uint32_t hash = (uint32_t)rnd(), sum = rnd_below(65536), vlan = rnd_below(65536), ok = rnd_below(8), l3_type = rnd_below(4),
			l4_type = rnd_below(8), index = rnd_below(1 << 24), tag = rnd_below(1 << 24), of = rnd_below(256);

		noise(raw, sizeof(raw));
		for (k = 0; k < 4; k++)
			raw[12 + k] = (uint8_t)(hash >> (24 - 8 * k));
		raw[16] = (uint8_t)of;
		raw[20] = (uint8_t)(sum >> 8);
		raw[21] = (uint8_t)sum;
		raw[28] = (uint8_t)((raw[28] & 0xf8) | ok);
		raw[29] = (uint8_t)((raw[29] & 0x82) | l4_type << 4 | l3_type << 2 | i % 2);
		raw[30] = (uint8_t)(vlan >> 8);
		raw[31] = (uint8_t)vlan;
		for (k = 0; k < 3; k++) {
			raw[33 + k] = (uint8_t)(index >> (16 - 8 * k));
			raw[57 + k] = (uint8_t)(tag >> (16 - 8 * k));
		}
		assert_int_equal(inlay_cqe_rss_hash(cqe), hash);
		assert_int_equal(inlay_cqe_rss_type(cqe), of & 0xcc);
		assert_int_equal(inlay_cqe_checksum(cqe), sum);
		assert_int_equal(inlay_cqe_checks(cqe), ok);
		assert_int_equal(inlay_cqe_l3_type(cqe), l3_type);
		assert_int_equal(inlay_cqe_l4_type(cqe), l4_type);
		assert_int_equal(!!inlay_cqe_has_vlan(cqe), i % 2);
		assert_int_equal(inlay_cqe_vlan(cqe), vlan);
		assert_int_equal(inlay_cqe_user_index(cqe), index);
		assert_int_equal(inlay_cqe_flow_tag(cqe), tag);
	}
	/* Linux's mlx5/device.h: bits 3:2 are IPv4 or IPv6, bits 7:6 TCP, UDP or IPsec's SPI */
	for (i = 0; i < 2; i++)
		for (k = 0; k < 3; k++)
			assert_int_equal(ip[i] | l4[k], (i + 1) << 2 | (k + 1) << 6);
	assert_true(INLAY_L4_TCP == 1 && INLAY_L4_UDP == 2 && INLAY_L4_TCP_ACK == 3 && INLAY_L4_TCP_DATA == 4);
}

/* As bytes, so that not even the struct stands between */
static void bytes(void **state)
{
	uint8_t raw[64] __attribute__((aligned(64))) = {0};
	const struct mlx5_cqe64 *cqe = (const struct mlx5_cqe64 *)raw;

	(void)state;
	memcpy(raw + 36, "\x01\x02\x03\x04", 4);
	memcpy(raw + 44, "\x00\x0f\x42\x40", 4);
	memcpy(raw + 48, "\x01\x23\x45\x67\x89\xab\xcd\xef", 8);
	memcpy(raw + 56, "\x0d\xab\xcd\xef\xfe\xdc\x00\x22", 8);
	assert_int_equal(inlay_cqe_invalidated_rkey(cqe), 0x01020304);
	assert_int_equal(inlay_cqe_byte_count(cqe), 1000000);
	assert_true(inlay_cqe_timestamp(cqe) == 0x0123456789abcdef);
	assert_int_equal(inlay_cqe_send_opcode(cqe), 0x0d);
	assert_int_equal(inlay_cqe_qpn(cqe), 0xabcdef);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), 0xfedc);
	assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
	raw[54] = 0x68;
	raw[55] = 0x13;
	raw[63] = 0xe0;
	assert_int_equal(inlay_cqe_vendor_syndrome(cqe), 0x68);
	assert_int_equal(inlay_cqe_syndrome(cqe), 0x13);
	assert_int_equal(inlay_cqe_status(cqe), IBV_WC_REM_ACCESS_ERR);
}

static const struct {
	uint8_t opcode;
	const char *name;
	bool send, error;
} opcodes[] = {
	{0, "REQ", true, false},
	{1, "RESP_WR_IMM", false, false},
	{2, "RESP_SEND", false, false},
	{3, "RESP_SEND_IMM", false, false},
	{4, "RESP_SEND_INV", false, false},
	{5, "RESIZE_CQ", false, false},
	{6, "NO_PACKET", false, false},
	{7, "unknown CQE opcode", false, false},
	{8, "unknown CQE opcode", false, true},
	{9, "unknown CQE opcode", false, true},
	{10, "unknown CQE opcode", false, true},
	{11, "unknown CQE opcode", false, true},
	{12, "SIG_ERR", false, true},
	{13, "REQ_ERR", true, true},
	{14, "RESP_ERR", false, true},
	{15, "INVALID", false, true},
};

/* All 256 values of the last byte: what kind of completion it is does not depend on the low four bits */
static void kinds(void **state)
{
	struct mlx5_cqe64 cqe;
	uint32_t own;

	(void)state;
	for (own = 0; own < 256; own++) {
		noise(&cqe, sizeof(cqe));
		cqe.op_own = (uint8_t)own;
		assert_int_equal(inlay_cqe_opcode(&cqe), opcodes[own >> 4].opcode);
		assert_int_equal(!!inlay_cqe_is_error(&cqe), opcodes[own >> 4].error);
		assert_int_equal(!!inlay_cqe_is_send(&cqe), opcodes[own >> 4].send);
		assert_string_equal(inlay_cqe_opcode_name((uint8_t)(own >> 4)), opcodes[own >> 4].name);
	}
	for (own = 16; own < 256; own++)
		assert_string_equal(inlay_cqe_opcode_name((uint8_t)own), "unknown CQE opcode");
}

/* Numbers and not MLX5_CQE_SYNDROME_*: what the device sends is the number. Text and status as the PRM and libmlx5's table have them */
static const struct {
	uint8_t syndrome;
	enum ibv_wc_status status;
	const char *text;
} syndromes[] = {
	{0x01, IBV_WC_LOC_LEN_ERR, "local length error"},
	{0x02, IBV_WC_LOC_QP_OP_ERR, "local QP operation error"},
	{0x04, IBV_WC_LOC_PROT_ERR, "local protection error"},
	{0x05, IBV_WC_WR_FLUSH_ERR, "work request flushed"},
	{0x06, IBV_WC_MW_BIND_ERR, "memory window bind error"},
	{0x10, IBV_WC_BAD_RESP_ERR, "bad response"},
	{0x11, IBV_WC_LOC_ACCESS_ERR, "local access error"},
	{0x12, IBV_WC_REM_INV_REQ_ERR, "remote invalid request"},
	{0x13, IBV_WC_REM_ACCESS_ERR, "remote access error"},
	{0x14, IBV_WC_REM_OP_ERR, "remote operation error"},
	{0x15, IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded"},
	{0x16, IBV_WC_RNR_RETRY_EXC_ERR, "RNR retry counter exceeded"},
	{0x22, IBV_WC_REM_ABORT_ERR, "remote aborted"},
};

static void statuses(void **state)
{
	struct mlx5_err_cqe err;
	struct mlx5_cqe64 cqe;
	uint32_t synd, op;
	size_t i;

	(void)state;
	for (synd = 0; synd < 256; synd++) {
		enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
		const char *text = "unknown syndrome";

		for (i = 0; i < ARRAY(syndromes); i++)
			if (syndromes[i].syndrome == synd) {
				status = syndromes[i].status;
				text = syndromes[i].text;
			}
		assert_string_equal(inlay_syndrome_text((uint8_t)synd), text);
		for (op = 0; op < 256; op++) {
			noise(&err, sizeof(err));
			err.syndrome = (uint8_t)synd;
			err.vendor_err_synd = (uint8_t)op;
			err.op_own = (uint8_t)op;
			memcpy(&cqe, &err, sizeof(cqe));
			assert_int_equal(inlay_cqe_syndrome(&cqe), synd);
			assert_int_equal(inlay_cqe_vendor_syndrome(&cqe), op);
			assert_int_equal(inlay_cqe_status(&cqe),
					 op < 0x80 ? IBV_WC_SUCCESS : op >> 4 == 13 || op >> 4 == 14 ? status : IBV_WC_GENERAL_ERR);
		}
	}
}

/* An error CQE keeps QPN, opcode and counter where a good one has them */
static void error_fields(void **state)
{
	struct mlx5_err_cqe err;
	struct mlx5_cqe64 cqe;

	(void)state;
	noise(&err, sizeof(err));
	err.s_wqe_opcode_qpn = htobe32(0x10123456);
	err.wqe_counter = htobe16(0x8001);
	err.op_own = MLX5_CQE_REQ_ERR << 4 | 1;
	memcpy(&cqe, &err, sizeof(cqe));
	assert_true(inlay_cqe_is_error(&cqe));
	assert_true(inlay_cqe_is_send(&cqe));
	assert_int_equal(inlay_cqe_qpn(&cqe), 0x123456);
	assert_int_equal(inlay_cqe_send_opcode(&cqe), MLX5_OPCODE_RDMA_READ);
	assert_int_equal(inlay_cqe_wqe_counter(&cqe), 0x8001);
}

/* Where the payload lies, and never for a byte count that the place cannot hold */
static void payloads(void **state)
{
	static const uint32_t counts[] = {0, 1, 31, 32, 33, 63, 64, 65, 128, 0x7fffffff, 0x80000000, 0xffffffff};
	struct mlx5_cqe64 slot[2], *cqe = &slot[1];
	const uint8_t *payload;
	uint32_t own;
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY(counts); i++)
		for (own = 0; own < 256; own++) {
			const void *want = NULL;

			noise(slot, sizeof(slot));
			cqe->byte_cnt = htobe32(counts[i]);
			cqe->op_own = (uint8_t)own;
			if (own & 4)
				want = counts[i] <= 32 ? (const void *)cqe : NULL;
			else if (own & 8)
				want = counts[i] <= 64 ? (const void *)&slot[0] : NULL;
			assert_ptr_equal(inlay_cqe_payload(cqe, 128), want);
			/* Else in the buffer; of a faulty one nowhere */
			assert_ptr_equal(inlay_cqe_data(cqe, 128, &own), own & 12 ? want : (const void *)&own);
			assert_ptr_equal(inlay_cqe_data(cqe, 64, &own), own & 4 ? want : own & 8 ? NULL : (const void *)&own);
			/* Of a 64-byte CQE there is no half before it */
			assert_ptr_equal(inlay_cqe_payload(cqe, 64), own & 4 ? want : NULL);
		}
	/* And the bytes, as a device would have put them there */
	fill(slot, 64, 11);
	fill(cqe, 32, 12);
	cqe->byte_cnt = htobe32(32);
	cqe->op_own = MLX5_CQE_RESP_SEND << 4 | 4;
	payload = (const uint8_t *)inlay_cqe_payload(cqe, 128);
	assert_int_equal(differs(payload, 32, 12), 32);
	cqe->byte_cnt = htobe32(64);
	cqe->op_own = MLX5_CQE_RESP_SEND << 4 | 8;
	payload = (const uint8_t *)inlay_cqe_payload(cqe, 128);
	assert_int_equal(differs(payload, 64, 11), 64);
}

/* ---- printing ---- */

static char *printed(const struct mlx5_cqe64 *cqe)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	inlay_cqe_print(out, cqe);
	fclose(out);
	return text;
}

static void prints(const uint32_t *words, const char *want)
{
	uint32_t raw[16] __attribute__((aligned(64)));
	char *text;
	int i;

	for (i = 0; i < 16; i++)
		raw[i] = htobe32(words[i]);
	text = printed((const struct mlx5_cqe64 *)raw);
	assert_string_equal(text, want);
	free(text);
}

static void print_golden(void **state)
{
	static const uint32_t recv[16] = {
		0, 1, 2, 3, 4, 5, 6, 7, 0xff000012, 0xdeadbeef, 0, 100, 0, 9, 0x00abcdef, 0xffff0033,
	};
	static const uint32_t err[16] = {
		0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0x8815, 0x08000041, 0x000a00d0,
	};
	static const uint32_t odd[16] = {
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xffffffff, 0, 0x00ff, 0xffffffff, 0xffff00ef,
	};

	(void)state;
	prints(recv,
	       "  RESP_SEND_IMM qpn 0xabcdef uidx 0x12 wqe_counter 65535 byte_cnt 100 imm 0xdeadbeef owner 1\n"
	       "  +0   00000000 00000001 00000002 00000003\n"
	       "  +16  00000004 00000005 00000006 00000007\n"
	       "  +32  ff000012 deadbeef 00000000 00000064\n"
	       "  +48  00000000 00000009 00abcdef ffff0033\n");
	prints(err,
	       "  REQ_ERR qpn 0x41 uidx 0x7 wqe_counter 10 byte_cnt 0 imm 0x00000000 owner 0 "
	       "syndrome 0x15 (transport retry counter exceeded) vendor 0x88\n"
	       "  +0   00000000 00000000 00000000 00000000\n"
	       "  +16  00000000 00000000 00000000 00000000\n"
	       "  +32  00000007 00000000 00000000 00000000\n"
	       "  +48  00000000 00008815 08000041 000a00d0\n");
	prints(odd,
	       "  RESP_ERR qpn 0xffffff uidx 0x0 wqe_counter 65535 byte_cnt 4294967295 imm 0x00000000 owner 1 "
	       "syndrome 0xff (unknown syndrome) vendor 0x00\n"
	       "  +0   00000000 00000000 00000000 00000000\n"
	       "  +16  00000000 00000000 00000000 00000000\n"
	       "  +32  00000000 00000000 00000000 ffffffff\n"
	       "  +48  00000000 000000ff ffffffff ffff00ef\n");
}

/* Random bytes between two pages that cannot be read: five lines, and no read leaves the CQE's 64 bytes */
static void hostile(void **state)
{
	uint8_t *mem = (uint8_t *)mmap(NULL, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int i, lines;

	(void)state;
	assert_true(mem != MAP_FAILED);
	must(mprotect(mem + 4096, 4096, PROT_READ | PROT_WRITE));
	for (i = 0; i < 4000; i++) {
		struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)(i & 1 ? mem + 4096 : mem + 8192 - 64);
		enum ibv_wc_status status;
		char *text, *p;

		noise(cqe, 64);
		text = printed(cqe);
		for (p = text, lines = 0; *p; p++)
			lines += *p == '\n';
		assert_int_equal(lines, 5);
		free(text);
		status = inlay_cqe_status(cqe);
		assert_true(status <= IBV_WC_GENERAL_ERR);
		assert_int_equal(status == IBV_WC_SUCCESS, !inlay_cqe_is_error(cqe));
		if (inlay_cqe_payload(cqe, 128))
			assert_in_range(inlay_cqe_byte_count(cqe), 0, cqe->op_own & 4 ? 32 : 64);
	}
	must(munmap(mem, 3 * 4096));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields),
		cmocka_unit_test(sender),
		cmocka_unit_test(packet),
		cmocka_unit_test(bytes),
		cmocka_unit_test(kinds),
		cmocka_unit_test(statuses),
		cmocka_unit_test(error_fields),
		cmocka_unit_test(payloads),
		cmocka_unit_test(print_golden),
		cmocka_unit_test(hostile),
	};

	return cmocka_run_group_tests_name("cqe", tests, open_nothing, NULL);
}
