#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two versions in one process: an object exports nothing of inlay, libraries that embed different versions do not disturb each other,
# and an object of another version is refused. The other version is made here: a copy of the headers with the next minor number, and
# with fields of structs in another order.
. tests/tap.sh

here=tests/house/versions
next=$(($(sed -n 's/^#define INLAY_VERSION_MINOR //p' include/inlay/base.h) + 1))
cp -r include "$dir/other"
sed -i "s/^#define INLAY_VERSION_MINOR .*/#define INLAY_VERSION_MINOR $next/" "$dir/other/inlay/base.h"
sed -i 's/^\tuint32_t mask; /\tuint32_t pending_; /; s/^\tuint32_t pending; /\tuint32_t mask; /; s/^\tuint32_t pending_; /\tuint32_t pending; /' \
	"$dir/other/inlay/queue/sq.h"

library() # name compiler include flags...: with default visibility, the worst case
{
	local name=$1 compiler=$2 include=$3
	shift 3
	$compiler -O2 -Wall -Wextra -Werror -fPIC -shared -I"$include" -I$here "$@" -o "$dir/$name.so" $here/library.c -libverbs -lmlx5
}

try "a library is made with this version" library mpi "gcc -std=gnu11" include
try "and a checked one, in C++" library checked "g++ -x c++ -std=gnu++17" include -DINLAY_CHECKED=1
try "and one with another version" library rpc "clang -std=gnu17" "$dir/other"
try "and a program" gcc -std=gnu11 -O2 -Wall -Wextra -Werror -I$here -o "$dir/main" $here/main.c -libverbs -pthread -ldl

exported() # every name that the objects give to the rest of the process
{
	for name; do
		nm -D --defined-only "$dir/$name.so" | awk '{ print $3 }'
	done | sort -u | xargs
}
same "a library exports what it means to, and nothing of inlay" library "$(exported mpi checked rpc)"

# No function or variable has external linkage. In C++ every function is made to exist; in C the compiler warns of what is not static
{
	printf '#include <inlay/%s>\n' $(cd include/inlay && find . -name '*.h' | sed 's,^\./,,' | sort)
} >"$dir/all.c"
g++ -x c++ -std=gnu++17 -O0 -fkeep-static-functions -fkeep-inline-functions -Iinclude -DINLAY_CHECKED=1 -S -o "$dir/all.s" "$dir/all.c" 2>"$dir/out"
same "C++: no external linkage" "" "$(grep -E '^\s\.(globl|weak)\s.*inlay' "$dir/all.s")"
same "C++: functions are there" 1 "$(($(grep -c '^_ZL[0-9]*inlay_.*:' "$dir/all.s") > 500))"
linkage=(clang -std=gnu11 -Iinclude -DINLAY_CHECKED=1 -fsyntax-only -Werror -Wmissing-prototypes -Wmissing-variable-declarations)
try "C: no external linkage" "${linkage[@]}" "$dir/all.c"
printf 'int x;\nint f(void) { return 1; }\n' >"$dir/bad.c"
"${linkage[@]}" "$dir/bad.c" >"$dir/out" 2>&1
same "it would be seen" 2 "$(grep -c error: "$dir/out")"

try "three libraries of two versions in one process" tests/softdev/run "$dir/main" "$dir/mpi.so" "$dir/checked.so" "$dir/rpc.so"
sed 's/^good /# /' "$dir/out"
finish
