#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# No operation of the benchmarks takes more instructions than bench/counts.tsv says, and 3 %, with gcc and with clang.
. tests/tap.sh

if [ "$(uname -m)" != x86_64 ]; then
	skip "instructions" "counted on x86-64 only"
	finish
	exit
fi
try "the benchmarks are counted" bench/run --counts
sort "$B/bench/counts.tsv" >"$dir/counts"
while IFS=$'\t' read -r group row gcc clang; do
	case $group in ceilings|'#'*) continue ;; esac
	for compiler in gcc clang; do
		limit=${!compiler}
		got=$(awk -F'\t' -v g="$group" -v r="$row" -v c=$compiler '$1 == g && $2 == r && $5 == c { print $4 }' "$dir/counts")
		if [ -z "$got" ] && ! [ -x "$B/bench/$compiler/$group" ] && grep -q "^cannot build: .*/$group " "$B/bench/log"; then
			skip "$compiler: $group: $row" "what it is compared with is not installed"
			continue
		fi
		echo "found ${got:-nothing}, at most $limit and 3 %; when this is intended, change bench/counts.tsv" >"$dir/out"
		awk -v got="$got" -v limit="$limit" 'BEGIN { exit got == "" || got > 1.03 * limit }'
		result $? "$compiler: $group: $row: $got instructions, at most $limit and 3 %"
	done
done <bench/counts.tsv
finish
