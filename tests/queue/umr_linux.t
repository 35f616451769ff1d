#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What mlx5dv.h lacks of UMR and signatures, by Linux's structs and names (Debian's linux-headers-amd64: mlx5/device.h, mlx5/qp.h): a
# WQE with everything in it is built by inlay and read by these.
. tests/tap.sh

linux=$(ls -d /usr/src/linux-headers-*-common/include/linux/mlx5 2>/dev/null | sort -V | tail -n 1)
if [ -z "$linux" ]; then
	skip "UMR is Linux's" "no linux-headers-amd64 below /usr/src"
	finish
	exit
fi

{
	echo 'typedef uint8_t u8; typedef uint16_t u16; typedef uint16_t linux_be16; typedef uint32_t linux_be32; typedef uint64_t linux_be64;'
	perl -0777 -ne '
		for my $s (qw(wqe_umr_ctrl_seg seg_set_psv bsf_inl bsf klm stride_block_entry stride_block_ctrl_seg mkey_seg sig_err_cqe)) {
			print "$1\n" if /^(struct mlx5_$s \{.*?^\};)/ms;
		}
		while (/^(enum \w*\s*\{[^}]*(?:MLX5_MKEY_MASK_LEN|MLX5_UMR_INLINE|MLX5_MKEY_BSF_EN|MLX5_MKEY_STATUS_FREE|MLX5_DIF_CRC)\b.*?^\};)/msg) { print "$1\n" }
		while (/^(#define\s+MLX5_(?:BSF|CPY|STRIDE_BLOCK)_\w+.*)$/mg) { print "$1\n" }' "$linux/device.h" "$linux/qp.h" |
		sed 's/mlx5_/linux_/g; s/MLX5_/LINUX_/g; s/__be/linux_be/g'
} >"$dir/linux.h"

cat >"$dir/umr.c" <<'END'
#include <stdio.h>
#include <string.h>
#include <endian.h>
#include <inlay/queue.h>
#include <inlay/queue/umr.h>
#include "linux.h"

#define GET(to, at) memcpy(&to, w + (at), sizeof(to))
#define NO(cond) do { if (!(cond)) { printf("not so: %s\n", #cond); bad = 1; } } while (0)

static uint8_t wqe[1024] __attribute__((aligned(64)));

static const uint8_t *build(const struct inlay_umr *umr)
{
	memset(wqe, 0xee, sizeof(wqe));
	inlay_seg_umr(inlay_cursor_init(wqe, 16, 0, 16), umr);
	return wqe;
}

int main(void)
{
	struct mlx5dv_mr_interleaved part[2] = {{0x1111222233334444, 0x123, 0x21, 0xabcdef}, {0x5555, 7, 0, 0x99}};
	struct mlx5dv_sig_t10dif dif = {MLX5DV_SIG_T10DIF_CSUM, 0xffff, 0x1234, 0x56789abc,
					MLX5DV_SIG_T10DIF_FLAG_REF_REMAP | MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE};
	struct mlx5dv_sig_block_domain d = {.sig = {.dif = &dif}, .block_size = MLX5DV_BLOCK_SIZE_4096};
	struct mlx5dv_sig_block_attr attr = {.mem = &d, .wire = &d, .check_mask = 0xa5};
	struct linux_stride_block_ctrl_seg round;
	struct linux_stride_block_entry entry;
	struct linux_wqe_umr_ctrl_seg c;
	struct linux_sig_err_cqe e = {
		.expected_trans_sig = htobe32(1), .actual_trans_sig = htobe32(2), .expected_reftag = htobe32(3),
		.actual_reftag = htobe32(4), .mkey = htobe32(5), .err_offset = htobe64(6), .qpn = htobe32(7), .op_own = 12 << 4,
	};
	struct linux_seg_set_psv p;
	struct linux_mkey_seg m;
	struct linux_bsf b;
	struct linux_klm k;
	struct inlay_sig_error error;
	struct mlx5_cqe64 cqe;
	struct inlay_umr umr;
	struct inlay_bsf bsf;
	uint32_t psv[2] = {0x111111, 0x222222};
	const uint8_t *w;
	int bad = 0;

	NO(INLAY_UMR_MASK_LOG_ENTITY == LINUX_MKEY_MASK_PAGE_SIZE && INLAY_UMR_MASK_PD == LINUX_MKEY_MASK_PD);
	NO(INLAY_UMR_MASK_REMOTE_INVALIDATE == LINUX_MKEY_MASK_EN_RINVAL && INLAY_UMR_MASK_LOCAL_READ == LINUX_MKEY_MASK_LR);
	NO(INLAY_UMR_MASK_RELAXED_WRITE == LINUX_MKEY_MASK_RELAXED_ORDERING_WRITE);
	NO(INLAY_UMR_MASK_RELAXED_READ == LINUX_MKEY_MASK_RELAXED_ORDERING_READ);
	NO(INLAY_UMR_MASK_ACCESS == (LINUX_MKEY_MASK_LW | LINUX_MKEY_MASK_RR | LINUX_MKEY_MASK_RW | LINUX_MKEY_MASK_A));
	NO(INLAY_UMR_MASK_FILL == (LINUX_MKEY_MASK_FREE | LINUX_MKEY_MASK_KEY | LINUX_MKEY_MASK_LEN));
	/* Linux names what makes it fail */
	NO(INLAY_UMR_CHECK_NOT_FREE == LINUX_UMR_CHECK_FREE && MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE == LINUX_UMR_CHECK_NOT_FREE);

	/* A table and its offset; every field of the context */
	umr = (struct inlay_umr){
		.mask = INLAY_UMR_MASK_LOCAL_READ | INLAY_UMR_MASK_RELAXED_WRITE | INLAY_UMR_MASK_RELAXED_READ | INLAY_UMR_MASK_ACCESS,
		.flags = MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | INLAY_UMR_CHECK_NOT_FREE | INLAY_UMR_FREE | INLAY_UMR_REMOTE_INVALIDATE,
		.start = 0x0102030405060708, .len = 0x1112131415161718, .access = IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING,
		.qpn = 0x654321, .pdn = 0xabcdef, .tag = 0x5a, .log_entity = 21, .table = {0x9000, 128, 0x77}, .offset = 0x123456789abc,
	};
	w = build(&umr);
	GET(c, 16), GET(m, 64), GET(k, 128);
	NO(sizeof(c) == 48 && sizeof(m) == 64 && inlay_umr_ds(&umr) == 9);
	NO(c.flags == (LINUX_UMR_TRANSLATION_OFFSET_EN | LINUX_UMR_CHECK_FREE) && be16toh(c.xlt_octowords) == 8);
	NO(be16toh(c.xlt_offset) == 0x9abc && be32toh(c.xlt_offset_47_16) == 0x12345678 && be64toh(c.mkey_mask) == umr.mask);
	NO(m.status == LINUX_MKEY_STATUS_FREE && be32toh(m.qpn_mkey7_0) == 0x6543215a && be64toh(m.start_addr) == umr.start);
	NO(be32toh(m.flags_pd) == (LINUX_MKEY_REMOTE_INVAL | 0xabcdef) && be64toh(m.len) == umr.len && (m.log2_page_size & 31) == 21);
	/* mlx5_ifc.h: bit 0xd and bit 0x1d9 of the context; mlx5_mkey_seg.flags is MLX5_PERM_* */
	NO(m.pcie_control == 4 && m.log2_page_size & 0x40 && m.flags == (1 << 6 | 1 << 2));
	NO(be32toh(k.bcount) == 128 && be32toh(k.key) == 0x77 && be64toh(k.va) == 0x9000);

	/* Interleaved, and a signature of T10-DIF in memory, another on the wire */
	NO(inlay_bsf_block(&attr, psv, &bsf) == 0);
	umr = (struct inlay_umr){
		.mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE | MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR,
		.flags = INLAY_UMR_SIG_ERR | INLAY_UMR_LEN64, .interleaved = part, .entries = 2, .rounds = 0x10203, .bsf = &bsf,
	};
	w = build(&umr);
	GET(c, 16), GET(m, 64), GET(round, 128), GET(entry, 144), GET(b, 192);
	NO(c.flags == LINUX_UMR_INLINE && be16toh(c.xlt_octowords) == 4 && be16toh(c.bsf_octowords) == 4);
	NO(be64toh(c.mkey_mask) == (LINUX_MKEY_MASK_BSF_EN | LINUX_MKEY_MASK_EN_SIGERR));
	NO(be32toh(m.flags_pd) == (LINUX_MKEY_BSF_EN | 1u << 26 | 1u << 31));
	NO(be32toh(round.op) == LINUX_STRIDE_BLOCK_OP && be32toh(round.bcount_per_cycle) == 0x12a && be16toh(round.num_entries) == 2);
	NO(be32toh(round.repeat_count) == 0x10203);
	NO(be16toh(entry.stride) == 0x144 && be16toh(entry.bcount) == 0x123 && be32toh(entry.key) == 0xabcdef &&
	   be64toh(entry.va) == part[0].addr);
	NO(sizeof(b) == 64 && b.basic.bsf_size_sbs == (1 << 7 | 1 << 4) && b.basic.check_byte_mask == 0xa5 && b.basic.mem.bs_selector == 3);
	NO(b.basic.wire.copy_byte_mask == (LINUX_CPY_GRD_MASK | LINUX_CPY_APP_MASK | LINUX_CPY_REF_MASK));
	NO(be32toh(b.basic.m_bfs_psv) == psv[0] && be32toh(b.basic.w_bfs_psv) == psv[1]);
	NO(be16toh(b.m_inl.vld_refresh) == (LINUX_BSF_INL_VALID | LINUX_BSF_REFRESH_DIF) && be16toh(b.m_inl.dif_apptag) == 0x1234);
	NO(be32toh(b.m_inl.dif_reftag) == 0x56789abc && b.m_inl.sig_type == LINUX_DIF_IPCS && !memcmp(&b.m_inl, &b.w_inl, 16));
	NO(b.m_inl.rp_inv_seed == (LINUX_BSF_REPEAT_BLOCK | 8) &&
	   b.m_inl.dif_inc_ref_guard_check == (LINUX_BSF_INC_REFTAG | LINUX_BSF_APPTAG_ESCAPE));
	NO(offsetof(struct inlay_bsf, init_check_be) == offsetof(struct linux_bsf, ext.t_init_gen_pro_size) &&
	   offsetof(struct inlay_bsf, wire_transaction_be) == offsetof(struct linux_bsf, ext.w_tfs_psv) &&
	   offsetof(struct inlay_bsf, memory_transaction_be) == offsetof(struct linux_bsf, ext.m_tfs_psv));

	inlay_seg_psv_(inlay_cursor_init(wqe, 16, 0, 16), psv[0], inlay_psv_value(&d));
	memcpy(&p, wqe + 16, sizeof(p));
	NO(be32toh(p.psv_num) == psv[0] && !p.syndrome && be32toh(p.transient_sig) == 0xffff1234 && be32toh(p.ref_tag) == 0x56789abc);

	memcpy(&cqe, &e, sizeof(cqe));
	NO(inlay_cqe_sig_error(&cqe, &error) && error.found == (1ull << 32 | 3) && error.computed == (2ull << 32 | 4) && error.key == 5 &&
	   error.offset == 6 && error.qpn == 7);
	return bad;
}
END
build() { $CC -std=gnu11 -Wall -Wextra -Wno-enum-compare -Werror -Iinclude -I"$dir" -DINLAY_CHECKED=1 -o "$dir/umr" "$dir/umr.c"; }
try "what Linux has of UMR compiles beside inlay" build
try "UMR, contexts, BSF, PSV and signature errors are Linux's" "$dir/umr"

# Can it fail? One of Linux's fields somewhere else
sed -i 's/^\(\s*linux_be32\s*\)w_bfs_psv;/\1other;/; s/^\(\s*linux_be32\s*\)m_bfs_psv;/\1w_bfs_psv;/; s/^\(\s*linux_be32\s*\)other;/\1m_bfs_psv;/' "$dir/linux.h"
build >"$dir/out" 2>&1 && ! "$dir/umr" >"$dir/out"
result $? "two fields changed for each other are found"
finish
