#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that know nothing of the software device run on it: ibv_devinfo, ibv_rc_pingpong and perftest as two processes.
. tests/tap.sh

run=tests/softdev/run

timeout 60 "$run" ibv_devinfo -v >"$dir/out" 2>&1 && grep -q 'PORT_ACTIVE' "$dir/out" && grep -q 'Ethernet' "$dir/out"
result $? "ibv_devinfo -v"
timeout 60 "$run" --manual --link ib ibv_devinfo -v >"$dir/out" 2>&1 && grep -q 'PORT_ACTIVE' "$dir/out" &&
	grep -q 'InfiniBand$' "$dir/out"
result $? "ibv_devinfo -v, stepped, InfiniBand"

# run itself: its own errors are 2, else it is the program's status
"$run" --no-such-option true >"$dir/out" 2>&1
[ $? = 2 ] && "$run" --help >>"$dir/out" 2>&1
result $? "run refuses what it does not know"
good=0
for bad in "--fault drop" "--fault drop@0" "--fault syndrome=256@1" "--fault setup=ENONSENSE@1" "--fault drop@3," "--devices 0" "--devices 9" \
	"--manual --trap"; do
	"$run" $bad true >>"$dir/out" 2>&1
	[ $? = 2 ] || { good=1; echo "not refused: $bad" >>"$dir/out"; }
done
for fine in "--fault drop@1" "--fault delay=2ms@3-/4,dup@*,setup=EIO@7" "--devices 8" "--trap"; do
	"$run" $fine true >>"$dir/out" 2>&1 || { good=1; echo "refused: $fine" >>"$dir/out"; }
done
[ $good = 0 ]
result $? "run looks at its options' values"
"$run" sh -c 'exit 37' >"$dir/out" 2>&1
[ $? = 37 ]
result $? "run returns the program's status"

pair "ibv_rc_pingpong, RoCE" "" ibv_rc_pingpong -g 3 -n 200 -c
pair "ibv_rc_pingpong, RoCE v1, 64 KiB" "" ibv_rc_pingpong -g 0 -n 50 -s 65536 -c
pair "ibv_rc_pingpong, InfiniBand" "--link ib" ibv_rc_pingpong -n 200 -c
pair "ibv_rc_pingpong, with events" "" ibv_rc_pingpong -g 3 -n 200 -e
pair "ib_write_lat, 8 bytes" "" ib_write_lat -n 200 -s 8
pair "ib_write_lat, 20000 bytes" "" ib_write_lat -n 200 -s 20000
pair "ib_write_bw, 8 bytes" "" ib_write_bw -n 200 -s 8
pair "ib_write_bw, 64 KiB" "" ib_write_bw -n 200 -s 65536
pair "ib_send_lat, 8 bytes" "" ib_send_lat -n 200 -s 8
pair "ib_send_lat, 20000 bytes, InfiniBand" "--link ib" ib_send_lat -n 200 -s 20000
pair "ib_read_bw, 64 KiB" "" ib_read_bw -n 200 -s 65536

finish
