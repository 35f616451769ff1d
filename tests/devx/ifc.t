#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The layouts of device commands. Each field against Linux's mlx5_ifc.h (Debian's
# linux-headers-amd64; see ifc.pl), then a few layouts made wrong, which must be found. And what is
# left of building and reading them, in the instructions of ifc.c.
. tests/tap.sh

# ---- Against Linux ----

linux=$(ls -d /usr/src/linux-headers-*-common/include 2>/dev/null | sort -V | tail -n 1)

compare() # include folder: into $dir/compared
{
	rm -rf "$dir/scratch" && mkdir "$dir/scratch"
	perl tests/devx/ifc.pl "$1" "$linux" "$dir/scratch" gcc >"$dir/compared" 2>&1
}

wrong() # name, what is said, file, sed expression: finds a layout that is not Linux's
{
	local name=$1 said=$2 file=$3
	rm -rf "$dir/include" && cp -r include "$dir/include"
	sed -i "$4" "$dir/include/inlay/devx/ifc/$file"
	if cmp -s "include/inlay/devx/ifc/$file" "$dir/include/inlay/devx/ifc/$file"; then
		echo "nothing was changed" >"$dir/out"
		result 1 "$name"
		return
	fi
	compare "$dir/include"
	[ $? = 1 ] && cp "$dir/compared" "$dir/out" && grep -q "$said" "$dir/compared"
	result $? "$name"
}

if [ -z "$linux" ]; then
	skip "the layouts are Linux's" "no linux-headers-amd64 below /usr/src"
else
	compare include
	status=$?
	cp "$dir/compared" "$dir/out"
	result $status "the layouts are Linux's: $(sed -n 's/^fields //p' "$dir/out") fields, $(sed -n 's/^compared //p' "$dir/out")"
	fields=$(sed -n 's/^fields //p' "$dir/compared")
	compared=$(sed -n 's/^compared \([0-9]*\),.*/\1/p' "$dir/compared")
	only=$(sed -n 's/^only here \([0-9]*\)$/\1/p' "$dir/compared")
	note "of $(basename "$(dirname "$linux")"), structs and values: $(sed -n '/^structs\|^values/p' "$dir/compared" | xargs)"
	note "only here, and where else:"
	while read -r line; do
		note "  $line"
	done < <(sed -n 's/^only here \([a-z].*\)/\1/p' "$dir/compared")
	cp "$dir/compared" "$dir/out"
	[ "${fields:-0}" -ge 270 ] && [ "${compared:-0}" -ge 240 ]
	result $? "there are fields, and most are compared"
	[ "${only:-99}" -le 43 ]
	result $? "at most 43 fields are not Linux's: $only"

	wrong "a field one bit off is found" 'cqc.LOG_CQ_SIZE is 0x64/5, cqc.log_cq_size is 0x63/5' cq.h '/LOG_CQ_SIZE/s/0x63/0x64/'
	wrong "a field one bit too wide is found" 'qpc.PD is 0x28/25' qp.h '/INLAY_QPC_PD /s/24/25/'
	wrong "a field of another path is found" 'eqe.CQ_ERROR_SYNDROME' cmd.h '/EQE_CQ_ERROR_SYNDROME/s/0x158/0x150/'
	wrong "a struct of another size is found" 'struct dctc' srq.h '
		/^struct inlay_dctc /,/^}/s/16/17/; s/dctc, 0x40/dctc, 0x44/; s/dct_in, 0x80/dct_in, 0x84/; s/dct_out, 0x80/dct_out, 0x84/'
	wrong "another value of an enum is found" 'cmd_op.CREATE_CQ is 0x401' cmd.h 's/op(CREATE_CQ, 0x400)/op(CREATE_CQ, 0x401)/'
	wrong "a field that nobody else has is found" 'mkc.OF_OURS is neither' mkey.h \
		's/^\(\tINLAY_MKC_QPN = .*\)/\tINLAY_MKC_OF_OURS = INLAY_BITS(0x1c0, 8),\n\1/'
	wrong "a field across two dwords is found, of which Linux knows nothing" 'xrqc.DC, 0x7f/2, is no field' srq.h \
		'/INLAY_XRQC_DC /s/0x7f, 1/0x7f, 2/'
	wrong "a field only of a second source that lies behind its struct is found" 'alias.METADATA_PD, 0x200/32, is no field' object.h \
		'/INLAY_ALIAS_METADATA_PD /s/0x180/0x200/'
	wrong "a field that only has a second source cannot go unnoticed" 'xrqc.DC has a second source' srq.h \
		'/INLAY_XRQC_DC /d'
fi

# ---- What is left of it ----

instructions() # object function: one a line
{
	objdump -d --no-show-raw-insn "$1" | sed -n "/<$2>:\$/,/^\$/p" | sed -n 's/^ *[0-9a-f]*:\t//p' |
		grep -v '^nop\|^xchg *%ax,%ax\|^cs nop\|^data16'
}

# Of a structure nothing is read, nothing computed: no operand in memory is a source, but for
# constants beside the code
stores_only() # file of instructions
{
	perl -ne '
		next if /^(?:ret|endbr64|push|pop|rep stos|lea)/ || /^call/ && ++$calls <= 2; # memset and sink
		next if /^(?:sub|add)\s+\$-?0x[0-9a-f]+,%/;
		next if /^xor\s+%(\w+),%\1$/ || /^(?:v?pxor|v?xorps)\s+%(\w+),%\g1(?:,%\w+)?$/;
		next if /^(?:mov|movabs|vmov|vbroadcast)\w*\s+(?:\$-?0x[0-9a-f]+|%\w+|-?0x[0-9a-f]+\(%rip\)|0\(%rip\)),/;
		print "not a store: $_";
		$bad = 1;
		END { exit !!$bad }
	' "$1"
}

if [ "$(uname -m)" != x86_64 ]; then
	skip "what is left" "read in the instructions of x86-64 only"
	finish
	exit
fi
declare -A ceiling=([gcc]=20 [clang]=19)
for compiler in gcc clang; do
	try "$compiler: inlay and DEVX_SET build the same bytes" eval "$compiler -std=gnu11 -O2 -Wall -Wextra -Werror -DMAIN -Iinclude \
		-o '$dir/same' tests/devx/ifc.c && '$dir/same'"
	for level in -O2 -O3; do
		$compiler -std=gnu11 $level -fcf-protection=none -mno-avx512f -Iinclude -c -o "$dir/ifc.o" tests/devx/ifc.c
		instructions "$dir/ifc.o" inlay_constants >"$dir/constants"
		try "$compiler $level: a CREATE_CQ of constants is stores only" stores_only "$dir/constants"
		for function in inlay_one_bit inlay_number inlay_dword_field; do
			instructions "$dir/ifc.o" $function >"$dir/out"
			[ "$(wc -l <"$dir/out")" -le 5 ] && [ "$(grep -c '(%rdi)' "$dir/out")" = 1 ] && ! grep -q 'j\|call' "$dir/out"
			result $? "$compiler $level, $function: one load and at most three instructions on it"
		done
		for function in inlay_constants devx_constants inlay_numbers devx_numbers; do
			count[${#count[@]}]=$(instructions "$dir/ifc.o" $function | wc -l)
		done
		note "$compiler $level, instructions: from constants ${count[0]}, DEVX_SET ${count[1]};" \
			"from run-time numbers ${count[2]}, DEVX_SET ${count[3]}"
		[ "${count[0]}" -gt 5 ] && [ "${count[0]}" -le "${count[1]}" ] && [ "${count[0]}" -le "${ceiling[$compiler]}" ]
		result $? "$compiler $level: from constants at most ${ceiling[$compiler]}, and no longer than DEVX_SET's"
		[ "${count[2]}" -gt 5 ] && [ "${count[2]}" -le "${count[3]}" ]
		result $? "$compiler $level: from run-time numbers no longer than DEVX_SET's"
		unset count
	done
done

# The check itself: a read-modify-write is not a store
cat >"$dir/rmw.c" <<'END'
#include <inlay/devx/ifc.h>
void rmw(struct inlay_create_cq_in *in)
{
	inlay_cqc_set(&in->cqc, INLAY_CQC_OI, 1);
}
END
gcc -O2 -fcf-protection=none -Iinclude -c -o "$dir/rmw.o" "$dir/rmw.c"
instructions "$dir/rmw.o" rmw >"$dir/rmw"
stores_only "$dir/rmw" >"$dir/out"
[ $? = 1 ]
result $? "a set without the struct's zeroes in sight is seen not to be a store"
finish
