#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The README's complete program is examples/loop.c, to the letter, and runs; its server and its segment-by-segment example compile. So do the
# examples of the pages beside the headers.
. tests/tap.sh

# blocks are counted by their openings: 1 the loop, 2 the program, 3 the server, 4 the cursor
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
	echo '#include <inlay/inlay.h>'
	echo 'struct client { struct inlay_sq sq; };'
	echo 'void keep_for_later(struct client *c, const void *data, uint32_t len);'
	echo 'void serve(struct inlay_cq *pcq, struct inlay_srq *psrq, struct inlay_qpn_table *pclients, void **buffers);'
	echo 'void serve(struct inlay_cq *pcq, struct inlay_srq *psrq, struct inlay_qpn_table *pclients, void **buffers)'
	echo '{'
	echo '	const struct mlx5_cqe64 *cqe;'
	extract 3 | sed 's/&cq\b/pcq/; s/&srq\b/psrq/; s/&clients\b/pclients/'
	echo '}'
} >"$dir/server.c"
try "the README's server example compiles" "$CC" -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude -c "$dir/server.c" -o "$dir/server.o"
{
	echo '#include <string.h>'
	echo '#include <inlay/inlay.h>'
	echo 'int post(struct inlay_sq *psq, const void *header, const void *payload, uint32_t len);'
	echo 'int post(struct inlay_sq *psq, const void *header, const void *payload, uint32_t len)'
	echo '{'
	extract 4 | sed 's/&sq/psq/'
	echo '	return 0;'
	echo '}'
} >"$dir/cursor.c"
try "the README's cursor example compiles" "$CC" -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude -c "$dir/cursor.c" -o "$dir/cursor.o"
for page in $(grep -l '^```c$' include/inlay/*.md); do
	{ echo '#include <inlay/inlay.h>'; awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$page"; } >"$dir/page.c"
	try "the examples of $page compile" "$CC" -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude -c "$dir/page.c" -o "$dir/page.o"
done
if grep -nE '@[A-Z]+@' README.md >"$dir/out"; then false; fi
result $? "nothing is left to fill in"
finish
