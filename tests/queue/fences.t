#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The fences stand where they must, in the instructions that are executed, on x86-64 and aarch64 (see fences.pl): WQE before record
# before register, owner byte before the rest of a CQE, last look at a CQE, and what is written to it, before the record that frees it.
# Then the same with fences removed, which must be found. One compiler for each instruction set; COMPILERS_ALL=1: two, and at -O3 and -Os,
# too, and every fence removed. With INCLUDE=DIR, only whether the headers there are right (tests/mutants).
. tests/tap.sh

# What each scenario of fences.c must look like. On x86-64 the plain fences are the compiler's alone and leave no instruction.
declare -A x86 arm
scenarios=()
while IFS='|' read -r name on_x86 on_arm; do
	scenarios+=($name)
	x86[$name]=$on_x86 arm[$name]=$on_arm
done <<EOF
copy|wqe rec [sfence] reg|wqe [dmb oshst] rec [dmb oshst] reg [dgh]
copy_long|wqe rec [sfence] reg|wqe [dmb oshst] rec [dmb oshst] reg [dgh]
commit_ring|wqe rec [sfence] reg|wqe [dmb oshst] rec [dmb oshst] reg [dgh]
datagram|wqe rec [sfence] reg|wqe [dmb oshst] rec [dmb oshst] reg [dgh]
doorbell|wqe rec [sfence] reg [sfence]|wqe [dmb oshst] rec [dmb oshst] reg [dmb oshst]
batch|wqe rec [sfence] reg [sfence]|wqe [dmb oshst] rec [dmb oshst] reg [dmb oshst]
full|wqe rec [sfence] reg [sfence]|wqe [dmb oshst] rec [dmb oshst] reg [dsb st]
shared|wqe rec [sfence] reg [sfence]|wqe [dmb oshst] rec [dmb oshst] reg [dmb oshst]
locked|wqe rec [sfence] lock reg [sfence] lock|wqe [dmb oshst] rec [dmb oshst] lock reg [dmb oshst] lock
receive|rwqe rrec|rwqe [dmb osh] rrec
shared_receive|swqe srec|swqe [dmb osh] srec
shared_poll|own cqe swqe free|own [dmb oshld] cqe swqe [dmb oshld] free
poll|own cqe free|own [dmb oshld] cqe [dmb oshld] free
poll_many|own cqe free|own [dmb oshld] cqe [dmb oshld] cqe [dmb oshld] free
poll_nothing|own|own
arm|free armrec [sfence] arm [sfence]|[dmb oshld] free armrec [dmb oshst] arm [dsb st]
unzip|own cqe slot free|own [dmb oshld] cqe slot [dmb oshst] [dmb oshld] free
decode|own cqe slot free|own [dmb oshld] cqe slot [dmb oshst] [dmb oshld] free
clean|own cqe slot free|own [dmb oshld] cqe [dmb oshld] cqe slot [dmb oshst] [dmb oshld] free
EOF

freestanding="-std=gnu11 -nostdlib -static -fno-stack-protector -fno-pie"
cross_headers

# Each: compiler, objdump, qemu
builds_x86=("gcc;objdump;qemu-x86_64" "clang;objdump;qemu-x86_64")
builds_arm=(
	"clang --target=aarch64-linux-gnu -mno-outline-atomics -isystem $dir/cross;aarch64-linux-gnu-objdump;qemu-aarch64"
	"aarch64-linux-gnu-gcc -mno-outline-atomics -isystem $dir/cross;aarch64-linux-gnu-objdump;qemu-aarch64"
)
[ -n "$COMPILERS_ALL" ] || builds_x86=("${builds_x86[0]}") builds_arm=("${builds_arm[0]}")

# What is loaded of a CQE once its owner byte has been looked at may be the owner byte again, and a CQE may be copied piece by piece
trace() # build include-folder flags...: the scenarios, into $dir/trace
{
	local compiler objdump qemu include=$2
	IFS=';' read -r compiler objdump qemu <<<"$1"
	shift 2
	rm -f "$dir/program" "$dir/trace" "$dir/traced"
	$compiler $freestanding "$@" -I"$include" -o "$dir/program" tests/queue/fences.c &&
		perl tests/queue/fences.pl "$objdump" nm "$qemu" "$dir/program" >"$dir/traced" &&
		sed -E 's/(\] |own )((own|cqe) ?)*(cqe|own)/\1cqe/g; s/cqe slot( (own|cqe|slot))* slot/cqe slot/' "$dir/traced" >"$dir/trace"
}

did() # scenario: without its count
{
	local name what
	while read -r name _ what; do
		[ "$name" != "$1" ] || echo "$what"
	done <"$dir/trace"
}

whole() # isa build title flags...
{
	local -n expected=$1
	local build=$2 title=$3 scenario
	shift 3
	try "$title builds and runs" trace "$build" "${INCLUDE:-include}" "$@"
	for scenario in "${scenarios[@]}"; do
		same "$title: $scenario: ${expected[$scenario]}" "${expected[$scenario]}" "$(did $scenario)"
	done
}

without() # fences...: a copy of the headers in which they are empty, in $dir/mutant
{
	local fence
	rm -rf "$dir/mutant"
	cp -r include "$dir/mutant"
	for fence; do
		cp "$dir/mutant/inlay/base.h" "$dir/base.h"
		awk -v fence="$fence" '
			$0 ~ "void " fence "\\(" { inside = 1 }
			inside { sub(/INLAY_FENCE_\(.*\)/, "INLAY_FENCE_(\"\", \"\", \"\")") }
			/^}/ { inside = 0 }
			{ print }' "$dir/base.h" >"$dir/mutant/inlay/base.h"
		! cmp -s "$dir/base.h" "$dir/mutant/inlay/base.h" || return
	done
}

# Each line is a build without the fences it names, with + for COMPILERS_ALL: of those, a scenario behind a fence has that one alone
mutants() # isa build title: without the fence none of these scenarios looks as it must
{
	local -n expected=$1
	local on fences fence scenarios scenario found
	while IFS='|' read -r on fences; do
		[ "$on" = "$1" ] || [ "$on$COMPILERS_ALL" = "${1}+1" ] || continue
		try "$3: without $(grep -o 'inlay_fence_[a-z_]*' <<<"$fences" | xargs)" without $(grep -o 'inlay_fence_[a-z_]*' <<<"$fences")
		trace "$2" "$dir/mutant" -O2 2>"$dir/errors" || cp "$dir/errors" "$dir/trace"
		while IFS=: read -r fence scenarios; do
			for scenario in $scenarios; do
				found=$(did "$scenario")
				echo "$scenario: $found" >"$dir/out"
				[ -n "$found" ] && [ "$found" != "${expected[$scenario]}" ]
				result $? "found: $3 without $fence: $scenario"
			done
		done < <(tr ';' '\n' <<<"$fences")
	done <<-EOF
	x86| inlay_fence_record_reg: copy commit_ring doorbell batch full shared arm
	x86+| inlay_fence_reg: doorbell batch shared locked; inlay_fence_reg_full: full arm
	arm| inlay_fence_wqe_record: copy unzip decode clean; inlay_fence_recv_record: receive shared_receive; inlay_fence_reg_full: arm
	arm+| inlay_fence_record_reg: copy commit_ring doorbell batch full shared arm; inlay_fence_polled: shared_poll poll poll_many clean
	arm+| inlay_fence_reg_line: copy copy_long commit_ring datagram; inlay_fence_reg: doorbell batch shared locked; inlay_fence_reg_full: full; inlay_fence_cqe_free: poll
	EOF
}

all() # isa builds...
{
	local isa=$1 build title level
	shift
	for build in "$@"; do
		title=${build%%;*}
		title=${title%% -m*}
		title=${title%% -isystem*}
		[ -z "$INCLUDE" ] || { whole $isa "$build" "$title" -O2; return; }
		for level in -O2 ${COMPILERS_ALL:+-O3 -Os}; do
			whole $isa "$build" "$title $level" $level
			[ $level = -O2 ] &&
				note "$title -O2, instructions executed:" $(sed 's/^\([a-z_]*\) \([0-9]*\):.*/\1 \2/' "$dir/trace")
		done
		mutants $isa "$build" "$title"
	done
}

if [ "$(uname -m)" = x86_64 ]; then
	all x86 "${builds_x86[@]}"
else
	skip "x86-64" "built on x86-64 only"
fi
all arm "${builds_arm[@]}"
finish
