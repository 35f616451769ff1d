#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# make single: inlay.h as one file is, to a compiler, what include/inlay/inlay.h is, needs no other file of inlay, and may stand beside
# them. So is each of the tops that are included by name.
. tests/tap.sh

single=$dir/build/single
tops="inlay devx memdomain task tag mmap/pci queue/packet"
try "make single" make -s B="$dir/build" single
try "any public header" make -s B="$dir/build" $(printf "$single/%s.h " $tops)

# What the preprocessor leaves of the headers and the macros they define; and of the single file, which finds none of them
tokens() # compiler kind top flags...
{
	local compiler=$1 kind=$2 top=$3
	shift 3
	echo "#include <inlay/$top.h>" | $compiler -x $kind "$@" -Iinclude -E -dD -P - | tr -s '[:space:]' '\n' >"$dir/headers.i"
	$compiler -x $kind "$@" -E -dD -P "$single/$top.h" | tr -s '[:space:]' '\n' >"$dir/single.i"
	[ "$(wc -l <"$dir/single.i")" -gt 10000 ] && cmp "$dir/headers.i" "$dir/single.i"
}

for top in $tops; do
	try "gcc: $top.h, token for token" tokens gcc c $top -std=c11 -DINLAY_CHECKED=0
	try "g++, checked: $top.h, token for token" tokens g++ c++ $top -std=c++17 -DINLAY_CHECKED=1
done

# No word from a compiler: without include/, and with other headers of inlay before and after
for compiler in gcc g++; do
	case $compiler in *++) language="-x c++ -std=c++17" ;; *) language="-x c -std=c11" ;; esac
	for lines in '#include "inlay.h"' $'#include "inlay.h"\n#include <inlay/queue.h>\n#include <inlay/task.h>' \
		$'#include <inlay/queue.h>\n#include "inlay.h"\n#include "task.h"'; do
		echo "$lines" >"$dir/alone.c"
		beside=
		[[ $lines != *'<inlay/'* ]] || beside=-Iinclude
		try "$compiler: $(echo $lines)" $compiler $language -Wall -Wextra -Wpedantic -Werror $beside -I"$single" -fsyntax-only \
			"$dir/alone.c"
	done
done

# Would it be seen?
cp "$single/inlay.h" "$dir/inlay.h"
for change in '0,/^\treturn /s//\tretorn /' '0,/INLAY_VERSION_MAJOR/s//INLAY_VERSION_MAJ0R/'; do
	sed "$change" "$dir/inlay.h" >"$single/inlay.h"
	! tokens gcc c inlay >"$dir/out" 2>&1
	result $? "it would be seen: $change"
done
finish
