#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The test programs that need no device, on the other instruction set: cross-compiled, linked statically, run by qemu. A program needs
# none when it leaves no function of libibverbs or libmlx5 undefined, but for those that aarch64.c has, which abort; aarch64.c stands for
# cmocka, too. task/fuzz brings host, worker and plugins of command tasks, with maps and buffers, and all that parses.
# LEVELS are the optimisation levels to build with. Without it, that is -O1, and each program is built once: unchecked with gcc; checked
# with clang what decodes.
. tests/tap.sh

cross_headers
for header in /usr/include/cmocka*.h; do
	ln -s "$header" "$dir/cross/"
done
flags="-std=gnu11 -Wall -Wextra -Werror -Iinclude -Itests -Itests/softdev -isystem $dir/cross"
absent=$(sed -n 's/^ABSENT(\(.*\))$/\1/p' tests/house/aarch64.c | paste -sd'|')
ran=" "
# An emulated operation costs some twenty of this machine's: no long runs
export MATCH_OPS=50000
unset TASK_OPS TASK_ENDS COMPRESSED_STREAMS DOMAIN_WALKS

passes() # qemu's program: all of its tests, and as many as it announced
{
	local out status
	out=$(qemu-aarch64 "$1")
	status=$?
	grep -v '^ok' <<<"$out"
	[ $status = 0 ] && [ "$(grep -c '^ok' <<<"$out")" = "$(sed -n 's/^1\.\.//p' <<<"$out")" ]
}

for compiler in "aarch64-linux-gnu-gcc" "clang --target=aarch64-linux-gnu"; do
	for level in ${LEVELS:--O1}; do
		try "$compiler $level: tests/house/aarch64.c builds" $compiler $flags $level -c -o "$dir/cmocka.o" tests/house/aarch64.c
		for source in tests/*/*.c; do
			name=${source#tests/} name=${name%.c}
			# Which of them need no library, the programs built for this machine tell.
			built=$(ls "$B/tests/$name"-[01] 2>/dev/null | head -n 1)
			[ -n "$built" ] && ! nm -D -u "$built" | grep -E ' (ibv|mlx5dv|fi)_' | grep -qvwE "$absent" || continue
			for checked in 0 1; do
				[ -n "$LEVELS" ] || case $compiler,$checked,$name in
				*,buf/shared | *,memdomain/threads | *,queue/uar_threads) continue ;; # their threads are few, and waits long, under qemu
				*,queue/burst | *,queue/qpn_table | *,queue/rings) continue ;; # nothing in them is the machine's
				*gcc,0,queue/c* | *gcc,1,* | clang*,0,*) continue ;;
				clang*,1,queue/c*) ;;
				clang*) continue ;;
				esac
				# The longest of them: one build is enough to emulate.
				[ $name = match/match ] && [ "$compiler $checked" != "aarch64-linux-gnu-gcc 0" ] && continue
				title="$compiler $level: $name, INLAY_CHECKED $checked"
				$compiler $flags $level -DINLAY_CHECKED=$checked -c -o "$dir/program.o" "$source" >"$dir/out" 2>&1 ||
					{ result 1 "$title builds"; continue; }
				try "$title links" $compiler -static -o "$dir/program" "$dir/program.o" "$dir/cmocka.o"
				try "$title passes" passes "$dir/program"
				ran+="$name "
			done
		done
	done
done
for name in devx/fields match/match memdomain/domain mmap/lookup queue/compressed queue/cqe queue/striding queue/wqe task/fuzz; do
	try "$name was among them" [ "${ran/ $name /}" != "$ran" ]
done
finish
