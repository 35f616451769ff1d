#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that know nothing of the software device run on it. ibv_devinfo by itself; as two processes, each with its own device on
# one fabric, ibv_{rc,ud}_pingpong and perftest's lat and bw programs for write, read, send and atomic over RC, UD, XRC and DC where
# each exists, with events, several QPs and an SRQ: what tests/programs/shim.t leaves out. Also what tests/softdev/run does by itself:
# its options, its status.
#
# PROGRAMS_ALL=1 tries every pair of programs that shim.t can try with the shim, as it is without: also ibv_{uc,srq,xsrq}_pingpong, UC,
# lists, and inline data or none.
. tests/tap.sh
. tests/programs/perftest.sh

run=tests/softdev/run

timeout 300 "$run" ibv_devinfo -v >"$dir/out" 2>&1 && grep -q 'PORT_ACTIVE' "$dir/out" && grep -q 'Ethernet' "$dir/out"
result $? "ibv_devinfo -v"
timeout 300 "$run" --manual --link ib ibv_devinfo -v >"$dir/out" 2>&1 && grep -q 'PORT_ACTIVE' "$dir/out" &&
	grep -q 'InfiniBand$' "$dir/out"
result $? "ibv_devinfo -v, stepped, InfiniBand"

loads="rdma-core of RDMA_CORE: programs load its libraries"
if [ -n "$RDMA_CORE" ]; then
	"$run" sh -c 'ldd "$(command -v ibv_devinfo)"' >"$dir/out" 2>&1 && grep -q "=> $(realpath "$RDMA_CORE")/build/lib/libibverbs" "$dir/out"
	result $? "$loads"
else
	skip "$loads" "RDMA_CORE names none"
fi

# run itself: its own errors are 2, else it is the program's status
"$run" --no-such-option true >"$dir/out" 2>&1
[ $? = 2 ] && "$run" --help >>"$dir/out" 2>&1
result $? "run refuses what it does not know"
good=0
for bad in "--fault drop" "--fault drop@0" "--fault syndrome=256@1" "--fault setup=ENONSENSE@1" "--fault drop@3," "--devices 0" \
	"--devices 9" "--devices 8 --ports 2" "--manual --trap"; do
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
"$run" --fabric "$dir/clean" --fault setup=EIO@1- ibv_devinfo >"$dir/out" 2>&1
[ $? != 0 ] && "$run" --fabric "$dir/clean" ibv_devinfo >>"$dir/out" 2>&1 && ls "$dir/clean" >>"$dir/out" && ! ls "$dir/clean" | grep -q '^[0-9]'
result $? "a fault from the start; programs that end leave nothing behind"

# The README names every option, every variable and every call
for name in $("$run" --help | grep -o -- '--[a-z-]*\|SOFTDEV_[A-Z]*' | sort -u) $(grep -o 'softdev_[a-z_]*(' tests/softdev/softdev.h | sort -u); do
	grep -qF -- "$name" tests/softdev/README.md || echo "$name"
done | grep -v -e '^--help$' -e '^--devx$' -e '^SOFTDEV_SO$' >"$dir/out"
[ ! -s "$dir/out" ]
result $? "README.md leaves nothing out"

# How perftest.sh has its pairs run: each once, since the sides are the same here
sides() # side, options of tests/softdev/run, command...
{
	local opts=$2
	shift 2
	pair "$*${opts:+ ($opts)}" "$opts" "$@"
}

at() # sides, command...
{
	sides "" "" "${@:2}"
}

pair "ibv_rc_pingpong, RoCE v1, 64 KiB" "" ibv_rc_pingpong -g 0 -n 30 -s 65536 -c
pair "ibv_rc_pingpong, InfiniBand" "--link ib" ibv_rc_pingpong -n 30 -c
pair "ib_write_lat, 20000 bytes" "" ib_write_lat -n 30 -s 20000
pair "ib_write_bw, 64 KiB" "" ib_write_bw -n 30 -s 65536
pair "ib_send_lat, 20000 bytes, InfiniBand" "--link ib" ib_send_lat -n 30 -s 20000
pair "ib_read_bw, 64 KiB" "" ib_read_bw -n 30 -s 65536
pair "ibv_ud_pingpong, InfiniBand, with events" "--link ib" ibv_ud_pingpong -n 30 -e
pair "ib_write_bw, XRC, 3 QPs" "" ib_write_bw -c XRC -n 30 -s 1024 -q 3
pair "ib_read_lat, XRC, InfiniBand" "--link ib" ib_read_lat -c XRC -n 30 -s 8
pair "ib_read_bw, DC" "" ib_read_bw -c DC -n 30 -s 65536
pair "ib_atomic_lat, DC" "" ib_atomic_lat -c DC -n 30
pair "ib_send_bw, SRQ, 4 QPs" "" ib_send_bw -n 30 -s 1024 -q 4 --use-srq
pair "ib_read_bw, events, 4 QPs" "" ib_read_bw -n 30 -s 1024 -e -q 4
pair "ib_send_bw, UD, SRQ" "" ib_send_bw -c UD -n 30 -s 1024 --use-srq
# perftest's group is an IPv6 address, and it refuses it beside its own choice of a GID, which is IPv4's
pair "ib_send_bw, multicast" "" ib_send_bw -c UD -g -x 1 -n 30 -s 1024
pair "ib_send_lat, multicast, an IPv4 group" "" ib_send_lat -c UD -g -M 0:0:0:0:0:0:0:0:0:0:255:255:239:1:1:1 -n 30 -s 8

[ -z "$PROGRAMS_ALL" ] || every_program
finish
