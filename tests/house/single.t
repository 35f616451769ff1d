#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# make single: inlay.h as one file is, to a compiler, what include/inlay/inlay.h is, needs no other file of inlay, and may stand beside
# them. So is each of the tops that are included by name. Two preprocessors see it: the other compilers have the same.
. tests/tap.sh

single=$dir/build/single
tops="inlay devx memdomain task tag mmap/pci queue/packet"
try "make single" make -s B="$dir/build" single
try "any public header" make -s B="$dir/build" $(printf "$single/%s.h " $tops)

tokens() # compiler kind top flags...: what the preprocessor leaves of the headers, and of the single file, which finds none of them
{
	local compiler=$1 kind=$2 top=$3
	shift 3
	echo "#include <inlay/$top.h>" | $compiler -x $kind "$@" -Iinclude -E -P - | tr -s '[:space:]' '\n' >"$dir/headers.i"
	$compiler -x $kind "$@" -E -P "$single/$top.h" | tr -s '[:space:]' '\n' >"$dir/single.i"
	[ "$(wc -l <"$dir/single.i")" -gt 10000 ] && cmp "$dir/headers.i" "$dir/single.i"
}

macros() # top: the names it defines, whose values the preprocessor does not show
{
	cmp <(echo "#include <inlay/$1.h>" | gcc -x c -Iinclude -E -dM - | sort) <(gcc -x c -E -dM "$single/$1.h" | sort)
}

for top in $tops; do
	for compiler in gcc clang++; do
		case $compiler in *++) kind=c++ standard=c++17 ;; *) kind=c standard=c11 ;; esac
		for checked in 0 1; do
			try "$compiler, INLAY_CHECKED $checked: $top.h, token for token" tokens $compiler $kind $top -std=$standard \
				-DINLAY_CHECKED=$checked
		done
	done
	try "$top.h: the same macros" macros $top
done

# No word from a compiler: without include/, and with other headers of inlay before and after
for compiler in gcc clang++; do
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
sed -i '0,/INLAY_VERSION_MAJOR/s//INLAY_VERSION_MAJ0R/; 0,/^\treturn /s//\tretorn /' "$single/inlay.h"
! tokens gcc c inlay >"$dir/out" 2>&1 && ! macros inlay >>"$dir/out" 2>&1
result $? "another token and another macro are seen"
finish
