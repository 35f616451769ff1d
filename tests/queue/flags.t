#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Flags of a post that are constants: verbs' flags, unknown bits and two fences do not compile, whatever else is or'ed to them; inlay's
# own do. rings.c and wqe.c do the same for variables.
. tests/tap.sh

compile() # compiler flags posts...: a function for each
{
	local how="$1 -Iinclude $2" post i=0
	shift 2
	echo '#include <inlay/queue.h>' >"$dir/post.c"
	for post; do
		echo "int post$i(struct inlay_sq *sq, const struct ibv_sge *sge); "
		echo "int post$i(struct inlay_sq *sq, const struct ibv_sge *sge) { return $post; }"
		i=$((i + 1))
	done >>"$dir/post.c"
	$how -c -o "$dir/post.o" "$dir/post.c"
}

refuses() # compiler flags post...: each of them is told to be wrong
{
	local compiler=$1 flags=$2 post
	shift 2
	for post; do
		echo "$post"
		! compile "$compiler" "$flags" "$post" 2>"$dir/said" || return
		grep -q 'not flags of inlay' "$dir/said" || { cat "$dir/said"; return 1; }
	done
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
	for call in 'nop(sq' 'send_imm(sq, 1, sge, 2' 'send_inv(sq, 1, sge, 1' 'write(sq, 1, 1, sge, 1' 'write_imm(sq, 1, 1, 1, sge, 1' \
		'read(sq, 1, 1, sge, 1' 'send_inline(sq, sge, 8' 'write_inline(sq, 1, 1, sge, 8' 'fetch_add(sq, 1, 1, 1, sge' \
		'cmp_swap(sq, 1, 1, 1, 1, sge' 'dump(sq, sge, 1' 'iov(sq, MLX5_OPCODE_SEND, NULL, NULL, (const struct inlay_iov *)sge, 0' 'ud_send(sq, (const struct inlay_av *)sge, sge, 1' 'local_inv(sq, 1'; do
		case $flags in
		IBV_*) bad+=("inlay_post_$call, $flags)") ;;
		*) good+=("inlay_post_$call, $flags)") ;;
		esac
	done
done

for compiler in gcc clang g++ clang++; do
	case $compiler in *++) language='-x c++ -std=c++17' ;; *) language='-std=gnu11' ;; esac
	for level in -O1 -O2 -O3; do
		try "$compiler $level: flags of inlay" compile $compiler "$language $level" "${good[@]}"
		# All of them at the lowest level, where least folds; elsewhere a few
		case $compiler$level in
		gcc-O1 | clang-O1) some=("${bad[@]}") ;;
		*) some=("${bad[0]}" "${bad[7]}" "${bad[10]}") ;;
		esac
		try "$compiler $level: others do not compile" refuses $compiler "$language $level" "${some[@]}"
	done
	try "$compiler -O1, checked: others do not compile" refuses $compiler "$language -O1 -DINLAY_CHECKED=1" "${bad[@]:7:3}"
done
echo "1..$n"
