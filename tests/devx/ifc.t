#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The layouts of device commands. Each field against Linux's mlx5_ifc.h (Debian's
# linux-headers-amd64; see ifc.pl), then a few layouts made wrong, which must be found.
. tests/tap.sh

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
	sed -i "$4" "$dir/include/inlay/devx/$file"
	if cmp -s "include/inlay/devx/$file" "$dir/include/inlay/devx/$file"; then
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

	wrong "a field one bit off is found" 'cqc.LOG_CQ_SIZE is 0x64/5, cqc.log_cq_size is 0x63/5' ifc.h '/LOG_CQ_SIZE/s/0x63/0x64/'
	wrong "a struct of another size is found" 'struct dctc' ifc.h '
		s/dctc, 0x40, uint32_t dword.16/dctc, 0x44, uint32_t dword[17/; s/dct_in, 0x80/dct_in, 0x84/; s/dct_out, 0x80/dct_out, 0x84/'
	wrong "another value of an enum is found" 'cmd_op.CREATE_CQ is 0x401' ifc.h 's/op(CREATE_CQ, 0x400)/op(CREATE_CQ, 0x401)/'
	wrong "a field that nobody else has is found" 'mkc.OF_OURS is neither' ifc.h \
		's/INLAY_MKC_QPN = /INLAY_MKC_OF_OURS = INLAY_BITS(0x1c0, 8), &/'
	wrong "a field across two dwords is found, of which Linux knows nothing" 'xrqc.DC, 0x7f/2, is no field' ifc.h \
		'/INLAY_XRQC_DC /s/0x7f, 1/0x7f, 2/'
	wrong "a field that only has a second source cannot go unnoticed" 'xrqc.DC has a second source' ifc.h \
		's/, INLAY_XRQC_DC = INLAY_BITS(0x7f, 1)//'
fi

finish
