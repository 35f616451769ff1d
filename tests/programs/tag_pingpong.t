#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/tag_pingpong: matching by the NIC and in software, eager and rendezvous; where the NIC cannot; what it refuses; and that it ends
# when the connection fails.
. tests/tap.sh

on() # options of tests/softdev/run, options of the example
{
	if [ -n "$DEVICE" ]; then
		timeout 300 "$B/examples/tag_pingpong" $2
	else
		timeout 300 tests/softdev/run --fabric "$dir/fabric" $1 "$B/examples/tag_pingpong" $2
	fi
}

# Of the table in $dir/out: rows, messages of a row, and whether the NIC may have matched some. A message that comes before its receive is
# in the NIC's list is matched by software: how many those are is not ours to say, but not all of them
table()
{
	awk -v rows="$1" -v each="$2" -v nic="$3" '
		/order, unexpected messages, cancel: as MPI has them/ { order = 1 }
		$2 == "eager" || $2 == "rendezvous" {
			n++
			listed += $4
			if ($4 + $5 != each || $2 != ($1 > 8192 ? "rendezvous" : "eager") || $3 <= 0)
				bad = 1
			if ((!nic || $1 < 1024) && $4)
				bad = 1
			if ($6 != ($2 == "eager" ? 0 : $5))
				bad = 1
		}
		END { exit !(order && n == rows && !bad && (nic ? listed > 0 : listed == 0)) }' "$dir/out"
}

runs() # name, options of tests/softdev/run, options of the example, first line, rows, messages of a row, by the NIC
{
	on "$2" "$3" >"$dir/out" 2>&1 && head -n 1 "$dir/out" | grep -q "$4" && table "$5" "$6" "$7"
	result $? "$1"
}

refuses() # name, status, what it says, options of tests/softdev/run, options of the example
{
	on "$4" "$5" >"$dir/out" 2>&1
	[ $? = "$2" ] && grep -q -e "$3" "$dir/out"
	result $? "$1"
}

if [ -n "$DEVICE" ]; then
	try "as the device can" on "" "--device $DEVICE --iterations 20"
else
	for link in roce ib; do
		runs "the NIC's list, $link" "--link $link" "--iterations 16" "by the NIC" 11 32 1
	done
	runs "one size, rendezvous" "" "--size 30001 --iterations 30" "by the NIC" 1 60 1
	runs "no device commands" "--no-devx" "--size 1000 --iterations 5" "no device commands" 1 10 0
	refuses "a connection that fails" 1 "the connection failed" "--fault syndrome=19@20" "--software --iterations 20"
fi
runs "in software" "" "--software --iterations 16 ${DEVICE:+--device $DEVICE}" "in software (--software)" 11 32 0
runs "in software, the shortest rendezvous" "" "--software --size 8193 --iterations 5 ${DEVICE:+--device $DEVICE}" "in software" 1 10 0
refuses "help" 0 "--iterations N" "" "--help"
refuses "an option that is none" 2 "no such option" "" "--hardware"
refuses "an argument" 2 "no arguments" "" "somewhere"
refuses "no iterations" 2 "iterations is a number from" "" "--iterations 0"
refuses "a size that is no number" 2 "size is a number from" "" "--size 8x"
refuses "a size that is too much" 2 "size is a number from" "" "--size 16777217"
refuses "a device that is not there" 1 "no mlx5 device named nonesuch" "" "--device nonesuch"
finish
