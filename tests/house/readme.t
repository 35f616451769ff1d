#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The README's complete program is examples/loop.c, to the letter, and runs; its segment-by-segment example compiles.
. tests/tap.sh

# blocks are counted by their openings: 1 the loop, 2 the program, 3 the cursor
extract() # number
{
	awk -v want="$1" '/^```c$/ { n++; on = n == want; next } /^```/ { on = 0 } on' README.md
}

extract 2 >"$dir/program.c"
try "the README's program is examples/loop.c" diff "$dir/program.c" examples/loop.c
if [ -n "$DEVICE" ]; then
	try "it runs" "$B/examples/loop"
else
	try "it runs" tests/softdev/run "$B/examples/loop"
fi
{
	echo '#include <string.h>'
	echo '#include <inlay/inlay.h>'
	echo 'int post(struct inlay_sq *psq, const void *header, const void *payload, uint32_t len);'
	echo 'int post(struct inlay_sq *psq, const void *header, const void *payload, uint32_t len)'
	echo '{'
	extract 3 | sed 's/&sq/psq/'
	echo '	return 0;'
	echo '}'
} >"$dir/cursor.c"
try "the README's cursor example compiles" "$CC" -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude -c "$dir/cursor.c" -o "$dir/cursor.o"
if grep -nE '@[A-Z]+@' README.md >"$dir/out"; then false; fi
result $? "nothing is left to fill in"
finish
