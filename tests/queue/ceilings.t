#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Ceilings on instructions, counted by callgrind over whole functions of tests/queue/ceilings.c, for gcc and clang: what no benchmark
# counts. They are exact and the same on every x86-64 machine: -mno-avx512f keeps the compiler's choice of instructions the same
# everywhere. clang's turn is with COMPILERS_ALL=1.
. tests/tap.sh

flags="-std=gnu11 -O2 -mno-avx512f -Wall -Wextra -Werror -Iinclude"

# callgrind's sum for each function that is called: instructions with those of what it calls, "NAME SUM"
sums() # program
{
	valgrind --tool=callgrind --callgrind-out-file="$dir/callgrind" --compress-strings=no --compress-pos=no --dump-line=no "$1" &&
		awk '/^cfn=/ { name = substr($0, 5) } /^calls=/ { getline; sum[name] += $2 } END { for (n in sum) print n, sum[n] }' \
			"$dir/callgrind" >"$dir/sums"
}

ceiling() # compiler function rounds name [what]: its limit is in bench/counts.tsv
{
	local got= limit name sum
	limit=$(awk -F'\t' -v row="$2$5" -v column=$([ $1 = gcc ] && echo 3 || echo 4) \
		'$1 == "ceilings" && $2 == row { print $column }' bench/counts.tsv)
	while read -r name sum; do
		[ "$name" != "$2" ] || got=$(((sum + $3 - 1) / $3))
	done <"$dir/sums"
	echo "$1: ${got:-no} instructions, at most $limit" >"$dir/out"
	[ "${got:-0}" -gt 0 ] && [ "$got" -le "$limit" ]
	result $? "$1: $4$5: $got instructions, at most $limit"
}

if [ "$(uname -m)" != x86_64 ]; then
	skip "ceilings" "counted on x86-64 only"
	finish
	exit
fi
for compiler in gcc ${COMPILERS_ALL:+clang}; do
	try "$compiler builds" $compiler $flags -o "$dir/$compiler" tests/queue/ceilings.c
	try "$compiler: callgrind counts" sums "$dir/$compiler"
	while read -r function rounds name; do
		ceiling $compiler $function $rounds "$name"
	done <<-EOF
	inlay_ud_inline 200 8-byte inline datagram, record, BlueFlame of two WQEBBs
	inlay_ud_sge 200 one-SGE datagram, record, 8-byte doorbell
	inlay_dc_inline 200 8-byte inline send of a DCI, compact address vector, commit and ring
	inlay_packets 192 packet of one SGE with checksums, in a burst of 32 with one doorbell
	inlay_multi_packet 192 the same, 32 in one WQE
	inlay_srq_give 200 one-SGE entry of a shared receive queue, record
	inlay_srq_poll 200 peek, error test, entry back to the shared receive queue, advance
	inlay_striding_poll 200 peek, test, packet's place, strides, advance; a buffer of eight packets posted again
	inlay_add_4 200 masked 4-byte fetch-and-add, record, BlueFlame
	EOF
	try "$compiler -mavx2 builds" $compiler $flags -mavx2 -o "$dir/$compiler-avx2" tests/queue/ceilings.c
	try "$compiler -mavx2: callgrind counts" sums "$dir/$compiler-avx2"
	while read -r function batch name; do
		ceiling $compiler ${function}_$batch $batch "$batch completions, each: $name" ", AVX2"
	done <<-EOF
	inlay_indices 64 counter and length, of a compressed block of a striding queue
	inlay_sevens 63 counter and length, of compressed blocks of 7, enhanced layout
	inlay_striding_unzip 64 peek to advance of a packet in a striding queue, from a compressed block
	EOF
done
finish
