#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every device command call of the installed mlx5dv.h has a row in include/inlay/README.md, and every name of ours that a
# row there or in a porting page gives exists in a header. Which headers are stable.
. tests/tap.sh

pages=(include/inlay/{README,porting*}.md)

# What stands between backquotes in the first columns of the page's tables
perl -ne 'next unless /^\|([^|]*)\|/; print "$_\n" for map { s/\(.*//r } $1 =~ /`([^`]+)`/g' "${pages[@]}" | sort -u >"$dir/rows"
calls=$(grep -oE '\bmlx5dv_devx_[a-z_]+ ?\(' /usr/include/infiniband/mlx5dv.h | tr -d ' (' | sort -u)
same "each call of DEVX has a row" "mlx5dv_devx_none" "$(printf '%s\n' $calls mlx5dv_devx_none | grep -vxFf "$dir/rows")"

# What the other columns name exists.
perl -ne 'next unless /^\|[^|]*\|(.*)/; print "$_\n" for $1 =~ /\b(inlay_[a-z0-9_]*[a-z0-9])\b(?![_*])/g' "${pages[@]}" | sort -u >"$dir/ours"
echo inlay_never_heard_of >>"$dir/ours"
sort -u "$dir/ours" | comm -23 - <(grep -rhowE --include='*.h' 'inlay_[A-Za-z0-9_]*' include/inlay | sort -u) >"$dir/out"
note "$(wc -l <"$dir/ours") names of ours"
same "every name of ours on the pages exists, and only the one that does not is found" inlay_never_heard_of "$(cat "$dir/out")"

# The Makefile leaves a program beside a script to the script.
for script in tests/*/*.t; do
	[ ! -e "${script%.t}.c" ] || grep -q "${script%.t}\.c" "$script" || echo "$script"
done >"$dir/out"
same "each program beside a script of its name is built by the script" "" "$(cat "$dir/out")"

# A program that is renamed stays in the Makefile's lists.
for name in $(sed -n 's/^\(bytes\|emulated\|memcheck\|soaks\) = //p' Makefile); do
	ls tests/${name/\%/*}.c >/dev/null 2>&1 || echo "$name"
done >"$dir/out"
same "what the Makefile's lists name is there" "" "$(cat "$dir/out")"
# A header is stable exactly if inlay.h includes it, and says so behind its guard.
gcc -MM -Iinclude include/inlay/inlay.h | grep -o 'include/inlay/[a-z0-9_/]*\.h' | sort >"$dir/stable"
same "the headers that are stable say so" "$(cat "$dir/stable")" \
	"$(grep -rlE '^#define INLAY_[A-Z0-9_]+_H /\* names are stable until 1\.0 \*/$' include/inlay | sort)"
same "and the others that they are trials" "$(find include/inlay -name '*.h' | sort | comm -23 - "$dir/stable")" \
	"$(grep -rlE '^#define INLAY_[A-Z0-9_]+_H /\* a trial: names may change \*/$' include/inlay | sort)"
finish
