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
rises() # limits counted: lines "COMPILER;GROUP;ROW;LIMIT;FOUND;0, or 1 when it is more than 3 %, or nothing is found"
{
	awk -F'\t' -v OFS=';' -v compilers="$compilers" '
		NR == FNR { found[$5, $1, $2] = $4; next }
		/^#/ || $1 == "ceilings" { next }
		{
			n = split(compilers, c, " ")
			for (i = 1; i <= n; i++) {
				limit = $(c[i] == "gcc" ? 3 : 4)
				got = found[c[i], $1, $2]
				print c[i], $1, $2, limit, got, (got == "" || got > 1.03 * limit)
			}
		}' "$2" "$1"
}

compilers=gcc
printf 'a\t%s\t100\n' rise 'no rise' nothing >"$dir/limits"
printf 'a\t%s\tinlay\t%s\tgcc\n' rise 103.1 'no rise' 103 >"$dir/found"
same "a rise of 3.1 % fails, and nothing found" "1 0 1" "$(rises "$dir/limits" "$dir/found" | sed 's/.*;//' | xargs)"
compilers="gcc ${COMPILERS_ALL:+clang}"
try "the benchmarks are counted" bench/run --counts $compilers
while IFS=';' read -r compiler group row limit got rise; do
	if [ -z "$got" ] && ! [ -x "$B/bench/$compiler/$group" ] && grep -q "^cannot build: .*/$group " "$B/bench/log"; then
		skip "$compiler: $group: $row" "what it is compared with is not installed"
		continue
	fi
	echo "found ${got:-nothing}; if the rise is intended, change bench/counts.tsv" >"$dir/out"
	result $rise "$compiler: $group: $row: $got instructions, at most $limit and 3 %"
done < <(rises bench/counts.tsv "$B/bench/counts.tsv")
awk -F'\t' 'NR == FNR { known[$1 FS $2]; next } !(($1 FS $2) in known)' bench/counts.tsv "$B/bench/counts.tsv" >"$dir/out"
[ ! -s "$dir/out" ]
result $? "every row that is counted is in bench/counts.tsv"
[ "$(wc -l <bench/results.md)" -le 150 ] && [ -z "$(find bench -name '*.svg' -size +60k)" ]
result $? "bench/results.md has at most 150 lines, each picture 60 KiB"
finish
