#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What gdb shows of queues, a register and a CQE with pkgconfig/gdb.py: the words of a program that knows how they stand.
. tests/tap.sh

if ! command -v gdb >/dev/null || ! gdb -batch -ex 'python print(1)' 2>/dev/null | grep -q 1; then
	skip "gdb" "there is none with Python"
	finish
	exit
fi

cat >"$dir/program.c" <<'EOC'
#include <inlay/queue.h>

static uint8_t ring[16 * 64] __attribute__((aligned(4096))), receives[8 * 32] __attribute__((aligned(4096)));
static uint8_t shared[8 * 32] __attribute__((aligned(4096))), page[4096] __attribute__((aligned(4096)));
static struct mlx5_cqe64 cqes[8] __attribute__((aligned(4096)));
static uint32_t record[2], srq_record[2], cq_record[2];

struct inlay_uar uar;
struct inlay_sq sq;
struct inlay_rq rq;
struct inlay_srq srq;
struct inlay_cq cq;

__attribute__((noinline)) void stop(void)
{
	__asm__ volatile("" ::: "memory");
}

int main(void)
{
	struct ibv_sge sge = {0x1000, 8, 5};
	uint32_t i;

	for (i = 0; i < 8; i++)
		cqes[i].op_own = MLX5_CQE_INVALID << 4;
	if (inlay_uar_init(&uar, page, 256, INLAY_UAR_LOCKED) || inlay_sq_init(&sq, ring, 16, record, 0x123, 8, &uar) ||
	    inlay_rq_init(&rq, receives, 8, 32, record) || inlay_srq_init(&srq, shared, 8, 32, srq_record) ||
	    inlay_cq_init(&cq, cqes, 8, 64, cq_record, NULL, 0x77))
		return 1;
	for (i = 0; i < 3; i++)
		(void)!inlay_post(&sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED);
	inlay_sq_ring(&sq);
	(void)!inlay_post(&sq, MLX5_OPCODE_NOP, NULL, INLAY_SIGNALED);
	(void)!inlay_post_recv(&rq, &sge, 1);
	(void)!inlay_post_recv(&rq, &sge, 1);
	(void)!inlay_post_srq_recv(&srq, &sge, 1, 0);
	cqes[0].wqe_counter = inlay_to_be16(1);
	cqes[0].sop_drop_qpn = inlay_to_be32(0x123);
	cqes[0].byte_cnt = inlay_to_be32(513);
	cqes[0].op_own = MLX5_CQE_RESP_SEND << 4;
	stop();
	cqes[0].op_own = MLX5_CQE_REQ << 4;
	inlay_sq_release(&sq, cqes);
	inlay_cq_advance(&cq, 1);
	stop();
	return 0;
}
EOC
cat >"$dir/expected" <<-EOF
	locked, BlueFlame of 256 bytes, 1 queue
	QPN 0x000123, 16 WQEBBs: 4 pending, 1 of them not rung, 12 free; the next has index 4
	8 WQEs of 32 bytes: 2 posted, 6 free; the next has index 2
	8 entries of 32 bytes: 1 posted, 7 free; the next is entry 1
	CQN 0x000077, 8 CQEs of 64 bytes, 0 reserved: 0 freed; the next slot: receive, owner bit 0, QPN 0x000123, index 1, 513 bytes
	receive, owner bit 0, QPN 0x000123, index 1, 513 bytes
	QPN 0x000123, 16 WQEBBs: 2 pending, 1 of them not rung, 14 free; the next has index 4
	CQN 0x000077, 8 CQEs of 64 bytes, 0 reserved: 1 freed; the next slot: never written
EOF
for compiler in ${COMPILERS_ALL:+gcc} clang g++; do
	case $compiler in *++) language="-x c++ -std=c++17" ;; *) language="-std=gnu11" ;; esac
	try "$compiler builds" $compiler $language -g -O1 -Iinclude -o "$dir/program" "$dir/program.c"
	{
		printf '%s\n' 'source pkgconfig/gdb.py' 'break stop' run 'echo \n'
		printf 'echo >>\noutput %s\necho \\n\n' uar sq rq srq cq 'cqes[0]'
		printf '%s\n' continue 'echo \n'
		printf 'echo >>\noutput %s\necho \\n\n' sq cq
		echo kill
	} >"$dir/commands"
	gdb -nx -batch -x "$dir/commands" "$dir/program" >"$dir/said" 2>&1
	same "$compiler: what gdb says" "$(cat "$dir/expected")" "$(sed -n 's/^>>//p' "$dir/said")"
done
finish
