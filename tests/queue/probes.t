#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Static probes (INLAY_USDT): off, the object code is that of headers without any; on, the notes name all, and gdb stops at them with
# the arguments that base.h promises. COMPILERS_ALL=1: with more compilers.
. tests/tap.sh

names="advance error full poll post ring"
same "base.h lists the probes" "$names" "$(sed -n 's/^ \*   inlay:\([a-z]*\) .*/\1/p' include/inlay/base.h | sort | xargs)"
same "the headers have these" "$names" "$(grep -rho 'INLAY_PROBE_\(IF_(.*, \|(\)\(post\|full\|ring\|poll\|advance\|error\),' include |
	sed 's/.*[ (]\([a-z]*\),$/\1/' | sort -u | xargs)"

# ---- Off: no instruction ----

cp -r include "$dir/without"
find "$dir/without" -name '*.h' ! -name base.h -exec sed -i '/^\t*INLAY_PROBE_/{:next;/;$/!{N;b next};d}' {} +
same "a copy of the headers has none" "" "$(grep -rl INLAY_PROBE_ "$dir/without" | grep -v /base.h)"
without() # compiler flags: the same object code
{
	local include
	for include in include "$dir/without"; do
		$1 -std=gnu11 -I"$include" -Itests -Itests/softdev -c -o "$dir/object.o" tests/queue/ceilings.c &&
			objdump -drw --no-show-raw-insn "$dir/object.o" | tail -n +3 >"$dir/$(basename "$include").s" || return
	done
	[ "$(grep -c sfence "$dir/include.s")" -gt 10 ] || [ "$(uname -m)" != x86_64 ] || return
	cmp "$dir/include.s" "$dir/without.s"
}
try "gcc: off, they cost no instruction" without "gcc -O2"
[ -z "$COMPILERS_ALL" ] || try "clang: off, they cost no instruction" without "clang -O2"

# ---- On ----

if ! echo '#include <sys/sdt.h>' | gcc -E - >/dev/null 2>&1; then
	skip "on" "there is no sys/sdt.h"
	finish
	exit
fi
cat >"$dir/program.c" <<'EOC'
#include <inlay/queue.h>

static uint8_t ring[16 * 64] __attribute__((aligned(4096))), page[4096] __attribute__((aligned(4096)));
static struct mlx5_cqe64 cqes[8] __attribute__((aligned(4096)));
static uint32_t record[2], cq_record[2];
static struct inlay_uar uar;
static struct inlay_sq sq;
static struct inlay_cq cq;

int main(void)
{
	const struct mlx5_cqe64 *cqe;
	uint64_t value = 0;
	uint32_t i;

	for (i = 0; i < 8; i++)
		cqes[i].op_own = MLX5_CQE_INVALID << 4;
	if (inlay_uar_init(&uar, page, 256, INLAY_UAR_SERIAL) || inlay_sq_init(&sq, ring, 16, record, 0x123, 8, &uar) ||
	    inlay_cq_init(&cq, cqes, 8, 64, cq_record, NULL, 0x77))
		return 1;
	(void)!inlay_post_write_inline(&sq, 0x1000, 7, &value, sizeof(value), INLAY_SIGNALED);
	inlay_sq_ring(&sq);
	while (!inlay_post(&sq, MLX5_OPCODE_NOP, NULL, 0))
		;
	cqes[0].sop_drop_qpn = inlay_to_be32(0x123);
	((struct mlx5_err_cqe *)(void *)cqes)->syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
	cqes[0].op_own = MLX5_CQE_REQ_ERR << 4;
	cqe = inlay_cq_peek(&cq);
	if (!cqe || !inlay_cqe_is_error(cqe) || inlay_sq_release(&sq, cqe) != 1 || inlay_post(&sq, MLX5_OPCODE_NOP, NULL, 0))
		return 2;
	inlay_cq_advance(&cq, 1);
	/* The counters that queue.h lists: 17 WQEBBs were posted, one of them rung for and given back */
	if (inlay_sq_index(&sq) != 17 || inlay_sq_rung(&sq) != 1 || inlay_sq_pending(&sq) != 16 || inlay_sq_room(&sq))
		return 3;
	return 0;
}
EOC
cat >"$dir/expected" <<-EOF
	advance 119 0 1
	error 291 0 19
	full 291 16 1
	poll 119 0 13
	post 291 0 8
	ring 291 1 1
EOF
# The arguments of each probe when it is passed for the first time
cat >"$dir/commands" <<-EOF
	python
	seen = []
	class Stop(gdb.Breakpoint):
	    def __init__(self, name):
	        super().__init__("-probe-stap inlay:" + name)
	        self.name = name
	    def stop(self):
	        if self.name not in seen:
	            seen.append(self.name)
	            words = [str(int(gdb.parse_and_eval("\$_probe_arg%d" % i)) & 0xffffffff) for i in range(3)]
	            print("\\n>", self.name, *words)
	        return False
	for name in "$names".split():
	    Stop(name)
	end
	run
EOF
for compiler in ${COMPILERS_ALL:+"gcc -std=gnu11"} "clang -std=gnu17" "g++ -x c++ -std=c++17"; do
	name=${compiler%% *}
	try "$name builds with probes" $compiler -O2 -g -Wall -Wextra -Werror -DINLAY_USDT=1 -Iinclude -o "$dir/program" "$dir/program.c"
	try "$name: the program is as it was" "$dir/program"
	readelf -n "$dir/program" >"$dir/notes" 2>&1
	same "$name: the notes name all" "$names" "$(awk '/Provider: inlay/ { n = 1 } n && /Name:/ { print $2; n = 0 }' "$dir/notes" | sort -u | xargs)"
	same "$name: each has three arguments" 3 "$(grep -A4 'Provider: inlay' "$dir/notes" | sed -n 's/.*Arguments: //p' | awk '{ print NF }' | sort -u)"
	if ! gdb -nx -batch -ex 'python print(1)' 2>/dev/null | grep -q 1; then
		skip "$name: arguments" "there is no gdb with Python"
		continue
	fi
	gdb -nx -batch -x "$dir/commands" "$dir/program" >"$dir/said" 2>&1
	same "$name: gdb finds the arguments" "$(cat "$dir/expected")" "$(sed -n 's/^> //p' "$dir/said" | sort)"
done
finish
