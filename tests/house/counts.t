#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# No operation of the benchmarks takes more instructions than bench/counts.tsv says, and 3 %, with gcc; COMPILERS_ALL=1: with clang, too.
# The page of results stays short.
. tests/tap.sh

if [ "$(uname -m)" != x86_64 ]; then
	skip "instructions" "counted on x86-64 only"
	finish
	exit
fi
rise() # found limit: more than 3 %, or nothing found
{
	awk -v got="$1" -v limit="$2" 'BEGIN { exit !(got == "" || got > 1.03 * limit) }'
}

try "a rise of 3.1 % fails" rise 103.1 100
try "nothing found fails" rise "" 100
compilers="gcc ${COMPILERS_ALL:+clang}"
try "the benchmarks are counted" bench/run --counts $compilers
while IFS=$'\t' read -r group row gcc clang; do
	case $group in ceilings|'#'*) continue ;; esac
	for compiler in $compilers; do
		limit=${!compiler}
		got=$(awk -F'\t' -v g="$group" -v r="$row" -v c=$compiler '$1 == g && $2 == r && $5 == c { print $4 }' \
			"$B/bench/counts.tsv")
		if [ -z "$got" ] && ! [ -x "$B/bench/$compiler/$group" ] &&
			grep -q "^cannot build: .*/$group " "$B/bench/log"; then
			skip "$compiler: $group: $row" "what it is compared with is not installed"
			continue
		fi
		echo "found ${got:-nothing}; if the rise is intended, change bench/counts.tsv" >"$dir/out"
		! rise "$got" "$limit"
		result $? "$compiler: $group: $row: $got instructions, at most $limit and 3 %"
	done
done <bench/counts.tsv
awk -F'\t' 'NR == FNR { known[$1 FS $2]; next } !(($1 FS $2) in known)' bench/counts.tsv "$B/bench/counts.tsv" >"$dir/out"
[ ! -s "$dir/out" ]
result $? "every row that is counted is in bench/counts.tsv"
[ "$(wc -l <bench/results.md)" -le 150 ] && [ -z "$(find bench -name '*.svg' -size +60k)" ]
result $? "bench/results.md has at most 150 lines, each picture 60 KiB"
finish
