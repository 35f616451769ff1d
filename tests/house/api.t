#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The public functions: how many each header has, and that each has a comment (api.pl says what counts as one).
. tests/tap.sh

headers=$(find include/inlay -name '*.h' | sort)
try "the headers are read" eval 'perl tests/house/api.pl $headers >"$dir/api"'
same "there are public functions" 1 "$(($(wc -l <"$dir/api") > 300))"
same "none is defined twice" "" "$(awk '{ print $2 }' "$dir/api" | sort | uniq -d)"
same "each has a comment" "" "$(awk '$4 == "none" { print $1, $2 }' "$dir/api")"

# By header as callers include them: queue/sq.h counts for queue.h
note "$(awk '{ sub(/\/.*/, ".h", $1); n[$1]++ } END { for (h in n) printf "%4d %s\n", n[h], h }' "$dir/api" | sort -k2)"
note "$(wc -l <"$dir/api") public functions"
same "the table of objects.md has these numbers" "$(awk '{ sub(/\/.*/, ".h", $1); n[$1]++ } END { for (h in n) print h, n[h] }' "$dir/api" | sort)" \
	"$(sed -n 's/^| `\([a-z]*\.h\)` | \([0-9][0-9]*\) |.*/\1 \2/p' include/inlay/objects.md | sort)"
same "none has more than seven arguments" "" "$(awk '$3 > 7 { print $1, $2 }' "$dir/api")"

# As C++ too: the programs of tests/matrix's C++ rows, with what they include
sources=$(ls tests/*.h tests/*/*.[ch] | grep -vE '^tests/(softdev|fabric|fuzz|proof)/|^tests/tag/oracle\.c$')
for t in tests/*/*.t; do
	sources=$(grep -vx "${t%.t}.c" <<<"$sources")
done
same "C++ programs call each, or what calls it" "" "$(awk '{ print $2 }' "$dir/api" | perl tests/house/called.pl $sources)"

# Would it be seen?
cat >"$dir/bad.h" <<'END'
/* Documented. */
INLAY_FN int inlay_a(int x)
{
	return x;
}

INLAY_FN int inlay_b(int x) { return x; }

#define BETWEEN
INLAY_FN int inlay_c(int x, int (*f)(int, int)) { return f(x, x); }

INLAY_COLD __attribute__((format(printf, 1, 2))) int inlay_d(const char *format,
							     ...)
{
	return 0;
}

INLAY_FN int inlay_e_(void)
{
	return 0;
}
END
same "a function without a comment is found" "own group none none" "$(echo $(perl tests/house/api.pl "$dir/bad.h" | awk '{ print $NF }'))"
same "arguments are counted" "1 1 2 2" "$(echo $(perl tests/house/api.pl "$dir/bad.h" | awk '{ print $(NF - 1) }'))"
finish
