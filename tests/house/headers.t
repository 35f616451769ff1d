#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The headers as text for a compiler: each alone and twice, without a warning, in C and C++, with gcc and clang, for both
# instruction sets; who includes whom; and a data path that calls nothing.
#
# What a header forgets to include is missing with any compiler: gcc reads each alone, every compiler the tops, which include all, checked
# and in one standard. COMPILERS_ALL=1: every compiler reads each alone, and the tops in each standard, checked and not.
. tests/tap.sh

warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wcast-qual -Wpointer-arith -Wundef -Werror"
headers=$(cd include/inlay && find . -name '*.h' | sed 's,^\./,,' | sort)
tops="inlay.h gpu.h devx.h memdomain.h task.h dm.h tag.h mmap/pci.h cqe/packet.h devx/packets.h
queue/batch.h queue/masked.h queue/packet.h queue/raw.h queue/sync.h queue/user_index.h"

# ---- Without a warning ----

cross_headers
mkdir "$dir/alone"
for header in $headers; do
	printf '#include <inlay/%s>\n#include <inlay/%s>\n' "$header" "$header" >"$dir/alone/${header//\//-}.c"
done
printf '#include <inlay/%s>\n' $tops >"$dir/tops.c"

reads() # compiler, standard (a comma before a flag), checked, sources
{
	local compiler=$1 standard=${2/,/ } checked=$3 kind=c cast= align=-Wcast-align=strict
	shift 3
	[[ $compiler != *++* ]] || kind=c++ cast=-Wold-style-cast
	[[ $1 != */alone/* ]] || cast= # only the tops keep casts silent
	[[ $compiler != clang* ]] || align=-Wcast-align
	echo "-std=$standard -DINLAY_CHECKED=$checked"
	$compiler -x $kind -std=$standard -DINLAY_CHECKED=$checked $warnings $align $cast -Iinclude -fsyntax-only "$@"
}

everywhere() # compiler, standards
{
	local standard checked
	for standard in $2; do
		for checked in 1 ${COMPILERS_ALL:+0}; do
			reads "$1" $standard $checked "$dir/tops.c" || return
		done
		[ -n "$COMPILERS_ALL" ] || return 0
	done
	reads "$1" ${2%% *} 1 "$dir"/alone/*.c
}

c="c11,-D_POSIX_C_SOURCE=200809L c11 gnu11,-D_POSIX_C_SOURCE=200809L gnu17" cxx="c++17 gnu++17${COMPILERS_ALL:+ c++20}"
[ -n "$COMPILERS_ALL" ] || try "each header alone and twice" reads gcc ${c%% *} 1 "$dir"/alone/*.c
while IFS=';' read -r compiler standards all; do
	[ -z "$all" ] || [ -n "$COMPILERS_ALL" ] || continue # the same language and machine have another compiler
	try "no warning: ${compiler%% -isystem*}" everywhere "$compiler" "$standards"
done <<EOF
gcc;$c
g++;$cxx
clang;$c
clang++;$cxx
aarch64-linux-gnu-gcc -isystem $dir/cross;c11 gnu17
aarch64-linux-gnu-g++ -isystem $dir/cross;$cxx;all
clang --target=aarch64-linux-gnu -isystem $dir/cross;c11 gnu17
clang++ --target=aarch64-linux-gnu -isystem $dir/cross;$cxx;all
EOF

# ---- Who includes whom ----

# A room is a folder, or a header of that name; what a room includes is of itself or of the rooms named here. A rule for
# one header stands for it instead of its room's. Two headers never include each other.
declare -A may=(
	[base]=""
	[wqe]="base"
	[cqe]="base"
	[queue]="base wqe cqe"
	[queue/masked]="base wqe cqe queue devx"
	[queue/user_index]="base wqe cqe queue devx"
	[verbs]="base wqe cqe queue"
	[connect]="base wqe cqe queue verbs"
	[steer]="base wqe cqe queue verbs"
	[dm]="base"
	[gpu]="base wqe cqe queue"
	[mmap]="base"
	[buf]="base mmap"
	[buf/post]="base wqe cqe queue mmap buf"
	[match]="base"
	[tag]="base wqe cqe queue match"
	[devx]="base wqe cqe queue verbs connect steer"
	[mmap/pci]="base wqe cqe queue verbs devx mmap"
	[memdomain]="base wqe cqe queue mmap"
	[task]="base wqe cqe queue verbs connect mmap buf"
	[inlay]="base wqe cqe queue verbs connect"
)
may[buf.h]=${may[buf/post]}

rule() # header: $own, the name of the rule for it
{
	for own in "$1" "${1%.h}" "${1%/*}"; do
		[ -z "${may[$own]+there}" ] || return 0
	done
	echo "$1 is of no room: say in tests/house/headers.t what it may include"
	return 1
}

includes() # a line "HEADER INCLUDED" for whatever each header includes, directly or not
{
	(cd include/inlay && perl -ne '
		push(@{$of{$ARGV}}, $1) if m,^#\s*include <inlay/(.*?)>,;
		END {
			for my $header (sort keys %of) {
				my %seen = ($header => 1);
				my @next = @{$of{$header}};
				while (defined(my $included = shift(@next))) {
					next if $seen{$included}++;
					print "$header $included\n";
					push(@next, @{$of{$included} // []});
				}
			}
		}' $headers)
}

upward() # prints what is included and should not be
{
	local header included own room of=
	while read -r header included; do
		[ "$of" = "$header" ] || { rule "$header" || continue; of=$header; }
		case $included in
		*/*) room=${included%/*} ;;
		*) room=${included%.h} ;;
		esac
		[[ " $own ${may[$own]} " = *" $room "* ]] || echo "$header includes $included"
	done <"$dir/includes"
}

includes >"$dir/includes"
same "there is a graph" 1 "$(($(wc -l <"$dir/includes") > 200))"
same "no header includes what is above it" "" "$(upward | sort -u)"
same "no two headers include each other" "" "$(awk '{ seen[$1 " " $2] } ($2 " " $1) in seen' "$dir/includes")"
same "the tops include all" "$headers" "$({ printf '%s\n' $tops; for top in $tops; do sed -n "s,^$top ,,p" "$dir/includes"; done; } | sort -u)"
same "inlay.h includes what every transport wants" "base wqe cqe queue verbs connect" \
	"$(sed -n 's,^#include <inlay/\(.*\)\.h>,\1,p' include/inlay/inlay.h | xargs)"

# ---- The data path calls nothing ----
# Every function that is not marked cold is made to exist by taking its address, with no argument known: nothing folds. Names that the
# object leaves undefined are what it would call. A GPU's functions copy structs, which may be a call where they are read by a processor.

functions=$(sed -n 's/^\(INLAY_FN\|INLAY_ALWAYS\|INLAY_APART\|INLAY_COLD_CALL\) .*[ *]\(inlay_[a-z0-9_]*\)(.*/\2/p' \
	$(ls include/inlay/*.h include/inlay/*/*.h | grep -v /gpu))
{
	printf '#include <inlay/%s>\n' $headers
	echo 'typedef void (*function)(void);'
	echo 'extern const function all[];'
	echo 'const function all[] = {'
	sed 's/.*/	(function)&,/' <<<"$functions"
	echo '};'
} >"$dir/all.c"

undefined() # compiler flags
{
	$1 -fno-asynchronous-unwind-tables -Iinclude -c -o "$dir/all.o" "$dir/all.c" &&
		nm -u "$dir/all.o" | awk '{ print $2 }' | grep -vx _GLOBAL_OFFSET_TABLE_ | sort
}

# What a lock on aarch64 calls by default is libgcc's choice between two generations of atomics, not a library's function.
arm="-mno-outline-atomics"
# Without COMPILERS_ALL, one of each make, at one level
same "there is a data path" 1 "$(($(wc -l <<<"$functions") > 50))"
while IFS=';' read -r compiler some; do
	levels=(-O3 -O2 "-O2 -fPIC" -Os -O1 -O0)
	[ -n "$COMPILERS_ALL" ] || levels=(${some:+"$some"})
	for flags in "${levels[@]}"; do
		calls=$(undefined "$compiler -std=gnu11 $flags" 2>&1)
		# For structs that are passed by value, and those set to zero
		[[ $compiler = clang* && $flags = -O0 ]] && calls=$(grep -vx 'memcpy\|memset' <<<"$calls")
		same "${compiler%% -isystem*} $flags: the data path calls nothing" "" "$calls"
	done
done <<EOF
gcc;-O2
clang;
aarch64-linux-gnu-gcc $arm -isystem $dir/cross;
clang --target=aarch64-linux-gnu $arm -isystem $dir/cross;-O2 -fPIC
EOF
finish
