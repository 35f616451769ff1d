#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Flags of a post that are constants: verbs' flags, unknown bits and two fences do not compile, whatever else is or'ed to them; inlay's
# own do. rings.c and wqe.c do the same for variables. Nor may a post's result be ignored. COMPILERS_ALL=1: both languages by both compilers,
# and at more levels.
. tests/tap.sh

compile() # compiler flags posts...: a function for each, all different to the compiler
{
	local how="$1 -I${INCLUDE:-include} -Itests $2" post i=0
	shift 2
	{
		printf '#include %s\n' '"posts.h"' '<inlay/queue/sync.h>' '<inlay/queue/umr.h>'
		echo 'extern volatile int which;'
		for post; do
			echo "int post$i(struct inlay_sq *sq, const struct ibv_sge *sge);"
			echo "int post$i(struct inlay_sq *sq, const struct ibv_sge *sge) { which = $i; return $post; }"
			i=$((i + 1))
		done
	} >"$dir/post.c"
	$how -c -o "$dir/post.o" "$dir/post.c"
}

refuses() # compiler flags posts...: each but the last is told to be wrong. gcc says which; clang does not, but its own language does
{
	local bad=$(($# - 3))
	! compile "$@" 2>"$dir/said" && grep -q 'not flags of inlay' "$dir/said" || return
	if [[ $1 = clang* ]]; then
		$1 -I${INCLUDE:-include} -Itests $2 -S -emit-llvm -o - "$dir/post.c" | awk '/^define/ { f = $0 } /call.*inlay_flags_wrong_/ { print f }'
	else
		grep -o 'inlined from .*post[0-9]*.* at .*post\.c:' "$dir/said"
	fi | grep -o 'post[0-9][0-9]*' | sort -u >"$dir/refused"
	echo "refused: $(wc -l <"$dir/refused") of $bad"
	[ "$(wc -l <"$dir/refused")" = $bad ] && ! grep -qx "post$bad" "$dir/refused"
}

accepts() # compiler flags posts...: they compile; that the last ignores a post's result is warned of
{
	compile "$@" 2>"$dir/said" && [ "$(grep -c 'warning: .*\[-Wunused-result]' "$dir/said")" = 1 ]
}

send='inlay_post_send(sq, sge, 1, (uint32_t)(%s))'
own=(0 INLAY_SIGNALED INLAY_SOLICITED INLAY_INLINE INLAY_RING INLAY_FENCE_INITIATOR_SMALL INLAY_FENCE INLAY_FENCE_STRONG
	INLAY_FENCE_SMALL_AND_FENCE 'INLAY_SIGNALED | INLAY_SOLICITED | INLAY_INLINE | INLAY_RING | INLAY_FENCE')
wrong=(INLAY_FENCE\|INLAY_FENCE_STRONG INLAY_FENCE_INITIATOR_SMALL\|INLAY_FENCE INLAY_FENCE_SMALL_AND_FENCE\|INLAY_FENCE 0x100000 0x1000000
	0x60000000 'INLAY_SIGNALED | 1u << 28')
for flag in FENCE SIGNALED SOLICITED INLINE IP_CSUM; do
	wrong+=("IBV_SEND_$flag" "IBV_SEND_$flag | INLAY_SIGNALED" "IBV_SEND_$flag | INLAY_INLINE | INLAY_FENCE")
done
wrong+=('IBV_SEND_SIGNALED | IBV_SEND_INLINE')
for flag in $(grep -oE '^\s+IBV_ACCESS_[A-Z_]+' /usr/include/infiniband/verbs.h); do
	wrong+=("$flag")
done
good=() bad=()
for flags in "${own[@]}"; do good+=("$(printf "$send" "$flags")"); done
for flags in "${wrong[@]}"; do bad+=("$(printf "$send" "$flags")"); done
# Every other way to post
for flags in IBV_SEND_SIGNALED INLAY_SIGNALED; do
	for call in 'inlay_post(sq, MLX5_OPCODE_NOP, NULL' 'wr_post(sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_sge(sge, 2), 1)' \
		'wr_post(sq, MLX5_OPCODE_SEND_INVAL, wr_at(wr_sge(sge, 1), 0, 1)' 'inlay_post_write(sq, 1, 1, sge, 1' \
		'inlay_post_read(sq, 1, 1, sge, 1' 'inlay_post_send_inline(sq, sge, 8' 'inlay_post_write_inline(sq, 1, 1, sge, 8' \
		'wr_atomic(sq, inlay_atomic_add(1), wr_at(wr_sge(sge, 1), 1, 1)' 'wr_atomic(sq, inlay_atomic_cmp_swap(1, 1), wr_sge(sge, 1)' \
		'wr_post(sq, MLX5_OPCODE_SEND, wr_iov((const struct inlay_iov *)sge, NULL, NULL, 0)' \
		'wr_post(sq, MLX5_OPCODE_SEND, wr_to(wr_sge(sge, 1), (const struct inlay_av *)sge)' 'inlay_post_local_inv(sq, 1' \
		'inlay_post_memcpy(sq, sge, sge, sge'; do
		case $flags in
		IBV_*) bad+=("$call, $flags)") ;;
		*) good+=("$call, $flags)") ;;
		esac
	done
done

ignored='(inlay_post(sq, MLX5_OPCODE_NOP, NULL, 0), 0)'
for compiler in gcc ${COMPILERS_ALL:+g++ clang} clang++; do
	case $compiler in *++) language='-x c++ -std=c++17' levels=-O2 ;; *) language='-std=gnu11' levels="-O1 ${COMPILERS_ALL:+-O3}" ;; esac
	for level in $levels; do
		try "$compiler $level: flags of inlay; an ignored post is warned of" accepts $compiler "$language $level" "${good[@]}" "$ignored"
		try "$compiler $level: others do not compile" refuses $compiler "$language $level" "${bad[@]}" "${good[0]}"
	done
	[ -z "$COMPILERS_ALL" ] && [ $compiler = clang++ ] ||
		try "$compiler -O1, checked: others do not compile" refuses $compiler "$language -O1 -DINLAY_CHECKED=1" "${bad[@]}" "${good[0]}"
done
finish
