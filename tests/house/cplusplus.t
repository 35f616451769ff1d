#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The programs that check-all builds as C++ and runs: here g++ only reads them, to find what is C alone. common.h, which all
# include, is compiled once, and programs that include the same headers are read as one (unity.pl).
. tests/tap.sh

unset MAKEFLAGS # those of the make that runs this name a job server
programs=$(make -s --no-print-directory list 'tests=$(cplusplus:%=tests/%.c)')
same "there are programs" 1 "$(($(wc -w <<<"$programs") > 60))"

compiler=(g++ -std=gnu++17 -Wall -Wextra -Werror -Wno-missing-field-initializers -Wno-deprecated -pthread -DINLAY_CHECKED=0
	-I. -Iinclude -Itests -Itests/softdev)
echo '#include "common.h"' >"$dir/all.h"
try "what they include" "${compiler[@]}" -x c++-header -o "$dir/all.h.gch" "$dir/all.h"
compiler+=(-fsyntax-only -include "$dir/all.h")
try "the programs" "${compiler[@]}" $(perl tests/house/unity.pl "$dir" $programs)

# Would it be seen?
echo 'char *bytes(void) { return malloc(8); }' >"$dir/bad.c"
"${compiler[@]}" "$dir/bad.c" >"$dir/out" 2>&1
same "what is C alone is found" 1 "$(grep -c 'invalid conversion' "$dir/out")"
finish
