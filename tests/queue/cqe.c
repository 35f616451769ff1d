/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cqe.c: the decoders and the printer of cqe.h, on CQEs written down here byte by byte. No device.
 */
#include "rig.h"
#include <endian.h>

#define noise(at, len) fill(at, len, (uint32_t)rnd())

/* Where each field lies: first byte, bytes (big-endian), bits below it, mask. The PRM's "Completion Queue Entry Format" and mlx5dv.h */
#define sender_qpn(cqe) inlay_cqe_sender(cqe).qpn
#define sender_slid(cqe) inlay_cqe_sender(cqe).slid
#define sender_sl(cqe) inlay_cqe_sender(cqe).sl
#define sender_path_bits(cqe) inlay_cqe_sender(cqe).path_bits
#define EACH_FIELD(X) \
	X(inlay_cqe_rss_hash, 12, 4, 0, 0xffffffff) X(inlay_cqe_rss_type, 16, 1, 0, 0xcc) \
	X(sender_path_bits, 17, 1, 0, 0x7f) X(inlay_cqe_checksum, 20, 2, 0, 0xffff) \
	X(sender_slid, 22, 2, 0, 0xffff) X(sender_sl, 24, 1, 0, 0xf) \
	X(sender_qpn, 25, 3, 0, 0xffffff) X(inlay_cqe_checks, 28, 1, 0, 7) \
	X(inlay_cqe_l3_type, 29, 1, 2, 3) X(inlay_cqe_l4_type, 29, 1, 4, 7) \
	X(inlay_cqe_user_index, 33, 3, 0, 0xffffff) X(inlay_cqe_invalidated_rkey, 36, 4, 0, 0xffffffff) \
	X(inlay_cqe_byte_count, 44, 4, 0, 0xffffffff) X(inlay_cqe_timestamp, 48, 8, 0, ~0ull) \
	X(inlay_cqe_vendor_syndrome, 54, 1, 0, 0xff) X(inlay_cqe_syndrome, 55, 1, 0, 0xff) \
	X(inlay_cqe_send_opcode, 56, 1, 0, 0xff) X(inlay_cqe_qpn, 57, 3, 0, 0xffffff) \
	X(inlay_cqe_flow_tag, 57, 3, 0, 0xffffff) X(inlay_cqe_wqe_counter, 60, 2, 0, 0xffff) \
	X(inlay_cqe_opcode, 63, 1, 4, 0xf)
#define FIELD_GET(name, at, bytes, shift, mask) \
	static uint64_t get_##name(const struct mlx5_cqe64 *cqe) { return (uint64_t)name(cqe); }
#define FIELD_ROW(name, at, bytes, shift, mask) {#name, get_##name, at, bytes, shift, mask},
EACH_FIELD(FIELD_GET)

static const struct {
	const char *name;
	uint64_t (*get)(const struct mlx5_cqe64 *cqe);
	uint32_t at, bytes, shift;
	uint64_t mask;
} fields_of[] = {EACH_FIELD(FIELD_ROW)};

/* Every field, among random neighbours */
TEST(fields)
{
	static const uint8_t ip[] = {INLAY_RSS_IPV4, INLAY_RSS_IPV6}, l4[] = {INLAY_RSS_TCP, INLAY_RSS_UDP, INLAY_RSS_SPI};
	uint8_t raw[64] __attribute__((aligned(64))), before[64];
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)(void *)raw;
	uint32_t i, f, k;

	for (i = 0; i < 20000; i++) {
		uint64_t want;
		uint32_t imm;

		noise(raw, sizeof(raw));
		memcpy(before, raw, sizeof(raw));
		for (f = 0; f < ARRAY(fields_of); f++) {
			for (want = k = 0; k < fields_of[f].bytes; k++)
				want = want << 8 | raw[fields_of[f].at + k];
			if (fields_of[f].get(cqe) != (want >> fields_of[f].shift & fields_of[f].mask))
				fail_msg("%s", fields_of[f].name);
		}
		memcpy(&imm, raw + 36, 4);
		assert_int_equal(inlay_cqe_imm_be(cqe), imm);
		assert_int_equal(inlay_cqe_sender(cqe).has_grh, (raw[24] & 0x30) != 0);
		assert_int_equal(inlay_cqe_vlan(cqe), raw[29] & 1 ? raw[30] << 8 | raw[31] : -ENOENT);
		assert_memory_equal(raw, before, sizeof(raw));
	}
	/* Linux's mlx5/device.h: bits 3:2 are IPv4 or IPv6, bits 7:6 TCP, UDP or IPsec's SPI */
	for (i = 0; i < 2; i++)
		for (k = 0; k < 3; k++)
			assert_int_equal(ip[i] | l4[k], (i + 1) << 2 | (k + 1) << 6);
	assert_true(INLAY_L4_TCP == 1 && INLAY_L4_UDP == 2 && INLAY_L4_TCP_ACK == 3 && INLAY_L4_TCP_DATA == 4);
}

static const struct { uint8_t opcode; const char *name; bool send, error; } opcodes[] = {
	{0, "REQ", true, false}, {1, "RESP_WR_IMM", false, false}, {2, "RESP_SEND", false, false}, {3, "RESP_SEND_IMM", false, false},
	{4, "RESP_SEND_INV", false, false}, {5, "RESIZE_CQ", false, false}, {6, "NO_PACKET", false, false},
	{7, "unknown CQE opcode", false, false}, {8, "unknown CQE opcode", false, true}, {9, "unknown CQE opcode", false, true},
	{10, "unknown CQE opcode", false, true}, {11, "unknown CQE opcode", false, true}, {12, "SIG_ERR", false, true},
	{13, "REQ_ERR", true, true}, {14, "RESP_ERR", false, true}, {15, "INVALID", false, true},
};

/* All 256 values of the last byte: what kind of completion it is does not depend on the low four bits */
TEST(kinds)
{
	struct mlx5_cqe64 cqe;

	for (uint32_t own = 0; own < 256; own++) {
		noise(&cqe, sizeof(cqe));
		cqe.op_own = (uint8_t)own;
		assert_int_equal(inlay_cqe_opcode(&cqe), opcodes[own >> 4].opcode);
		assert_int_equal(!!inlay_cqe_is_error(&cqe), opcodes[own >> 4].error);
		assert_int_equal(!!inlay_cqe_is_send(&cqe), opcodes[own >> 4].send);
		assert_string_equal(inlay_cqe_opcode_name((uint8_t)(own >> 4)), opcodes[own >> 4].name);
	}
	for (uint32_t own = 16; own < 256; own++)
		assert_string_equal(inlay_cqe_opcode_name((uint8_t)own), "unknown CQE opcode");
}

/* Numbers and not MLX5_CQE_SYNDROME_*: what the device sends is the number. Text and status as the PRM and libmlx5's table have them */
static const struct { uint8_t syndrome; enum ibv_wc_status status; const char *text; } syndromes[] = {
	{0x01, IBV_WC_LOC_LEN_ERR, "local length error"},
	{0x02, IBV_WC_LOC_QP_OP_ERR, "local QP operation error"},
	{0x04, IBV_WC_LOC_PROT_ERR, "local protection error"}, {0x05, IBV_WC_WR_FLUSH_ERR, "work request flushed"},
	{0x06, IBV_WC_MW_BIND_ERR, "memory window bind error"},
	{0x10, IBV_WC_BAD_RESP_ERR, "bad response"}, {0x11, IBV_WC_LOC_ACCESS_ERR, "local access error"},
	{0x12, IBV_WC_REM_INV_REQ_ERR, "remote invalid request"},
	{0x13, IBV_WC_REM_ACCESS_ERR, "remote access error"}, {0x14, IBV_WC_REM_OP_ERR, "remote operation error"},
	{0x15, IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded"},
	{0x16, IBV_WC_RNR_RETRY_EXC_ERR, "RNR retry counter exceeded"},
	{0x22, IBV_WC_REM_ABORT_ERR, "remote aborted"},
};

TEST(statuses)
{
	struct mlx5_err_cqe err;
	struct mlx5_cqe64 cqe;

	for (uint32_t synd = 0; synd < 256; synd++) {
		enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
		const char *text = "unknown syndrome";

		for (size_t i = 0; i < ARRAY(syndromes); i++)
			if (syndromes[i].syndrome == synd) {
				status = syndromes[i].status;
				text = syndromes[i].text;
			}
		assert_string_equal(inlay_syndrome_text((uint8_t)synd), text);
		for (uint32_t op = 0; op < 256; op++) {
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

/* Where the payload lies, and never for a byte count that the place cannot hold */
TEST(payloads)
{
	static const uint32_t counts[] = {0, 1, 31, 32, 33, 63, 64, 65, 128, 0x7fffffff, 0x80000000, 0xffffffff};
	struct mlx5_cqe64 slot[2], *cqe = &slot[1];

	for (size_t i = 0; i < ARRAY(counts); i++)
		for (uint32_t own = 0; own < 256; own++) {
			const void *want = NULL;

			noise(slot, sizeof(slot));
			cqe->byte_cnt = htobe32(counts[i]);
			cqe->op_own = (uint8_t)own;
			if (own & 4)
				want = counts[i] <= 32 ? (const void *)cqe : NULL;
			else if (own & 8)
				want = counts[i] <= 64 ? (const void *)&slot[0] : NULL;
			assert_ptr_equal(inlay_cqe_data(cqe, 128, NULL), want);
			/* Else in the buffer; of a faulty one nowhere */
			assert_ptr_equal(inlay_cqe_data(cqe, 128, &own), own & 12 ? want : (const void *)&own);
			assert_ptr_equal(inlay_cqe_data(cqe, 64, &own), own & 4 ? want : own & 8 ? NULL : (const void *)&own);
		}
}

/* The words in hex follow what is said of them */
TEST(print_golden)
{
	static const struct { const char *says; uint32_t words[16]; } golden[] = {
		{"RESP_SEND_IMM qpn 0xabcdef uidx 0x12 wqe_counter 65535 byte_cnt 100 imm 0xdeadbeef owner 1",
		 {0, 1, 2, 3, 4, 5, 6, 7, 0xff000012, 0xdeadbeef, 0, 100, 0, 9, 0x00abcdef, 0xffff0033}},
		{"REQ_ERR qpn 0x41 uidx 0x7 wqe_counter 10 byte_cnt 0 imm 0x00000000 owner 0 "
		 "syndrome 0x15 (transport retry counter exceeded) vendor 0x88",
		 {0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0x8815, 0x08000041, 0x000a00d0}},
		{"RESP_ERR qpn 0xffffff uidx 0x0 wqe_counter 65535 byte_cnt 4294967295 imm 0x00000000 owner 1 "
		 "syndrome 0xff (unknown syndrome) vendor 0x00",
		 {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xffffffff, 0, 0x00ff, 0xffffffff, 0xffff00ef}},
	};
	uint32_t raw[16] __attribute__((aligned(64))), i, k;
	char want[1000], *text = NULL;
	size_t bytes;
	FILE *out;

	for (i = 0; i < ARRAY(golden); i++) {
		const uint32_t *words = golden[i].words;
		int len = snprintf(want, sizeof(want), "  %s\n", golden[i].says);

		for (k = 0; k < 16; k += 4)
			len += snprintf(want + len, sizeof(want) - (size_t)len, "  +%-3u %08x %08x %08x %08x\n", 4 * k, words[k], words[k + 1],
					words[k + 2], words[k + 3]);
		for (k = 0; k < 16; k++)
			raw[k] = htobe32(words[k]);
		out = open_memstream(&text, &bytes);
		inlay_cqe_print(out, (const struct mlx5_cqe64 *)(void *)raw);
		fclose(out);
		assert_string_equal(text, want);
		free(text);
	}
}

int main(void)
{
	return run_all(open_nothing, NULL);
}
