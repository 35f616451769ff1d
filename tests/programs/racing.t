#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs of others, on the software device, that race with themselves, so that they may fail without a defect: make check-programs
# runs them, make check does not. When one fails as its race makes it fail, both sides start again, and the test tells of it.
#   rping           its thread for events may ask once more after main has closed the channel, on either side
#   perftest -R     the client asks for its connection when both have met, before the server surely listens. Refused, it tries again
#                   with ids that it has freed, and may crash (rdma_cm_client_connection, 4.5-0.17; newer ones allocate them anew)
#   fi_pingpong     who has its last message closes; the other one may still look for its completions, which go with the queue pair
#                   when libfabric sees the end first: an error, or it waits for ever
#   riostream       the server listens before it says how many buffers may be mapped
#   raw_ethernet    what comes before the server has posted its receives is lost, and nothing says that it has
. tests/tap.sh
. tests/programs/cm.sh

racing() # what the race shows of itself, name, options of tests/softdev/run, ends or for-ever, server's command, client's command: one test
{
	local said=$1 name="$2${3:+ ($3)}" tries status
	shift 2
	if ! command -v ${3%% *} >/dev/null; then
		skip "$name" "${3%% *} is not installed"
		return
	fi
	for tries in {1..20}; do
		once "$@"
		status=$?
		[ $status != 0 ] && grep -zqE "$said" "$dir/out" || break
		note "again, after $(grep -zoEm1 "$said" "$dir/out" | tr -d '\0' | tail -n 1): $name"
	done
	result $status "$name"
}

pings() # as cm
{
	racing 'status 255:(.|\n)*rdma_get_cm_event: Bad file descriptor' "$@"
}

perftest() # options of tests/softdev/run, command...
{
	racing 'RDMA_CM_EVENT_(REJECTED|UNREACHABLE)' "${*:2}" "$1" ends "${*:2}" "${*:2} 127.0.0.1"
}

pingpong() # name, options of tests/softdev/run, options of fi_pingpong...
{
	hold_port
	local ready="listening $port"
	command -v fi_pingpong >/dev/null || { skip "$1" "fi_pingpong is not installed"; return; }
	racing 'Work Request Flushed Error|status 124' "$1" "$2" ends "timeout 60 fi_pingpong ${*:3} -I 20 -B $port" \
		"timeout 60 fi_pingpong ${*:3} -I 20 -P $port 127.0.0.1"
}

for opts in "" "--link ib"; do
	pings "rping" "$opts" ends "rping -s -C 10 -V -S 4000" "rping -c -C 10 -V -S 4000 -a 127.0.0.1"
	pingpong "fi_pingpong, verbs, messages" "$opts" -p verbs -e msg -S 5000
	pingpong "fi_pingpong, verbs;ofi_rxm" "$opts" -p "verbs;ofi_rxm" -e rdm -c -S 100000
	perftest "$opts" ib_write_bw -R -n 100
done
pings "rping, IPv6" "" ends "rping -s -C 3 -a ::" "rping -c -C 3 -V -a ::1"
pings "rping, another device" "--devices 3" ends "rping -s -C 3" "rping -c -C 3 -V -a 10.0.0.3"
pings "rping, a server for many" "" for-ever "rping -s -P" "rping -c -C 3 -V -a 127.0.0.1"
racing "riomap: Cannot allocate memory" "riostream, rsockets" "" \
	ends "riostream -S 4096 -I 20 -C 10 -T v" "riostream -S 4096 -I 20 -C 10 -T v -s 127.0.0.1"
perftest "" ib_send_lat -R -n 100
perftest "" ib_send_bw -R -c UD -n 100 -s 1024
pingpong "fi_pingpong, verbs;ofi_rxd" "" -p "verbs;ofi_rxd" -e rdm -c -S 5000

# ---- raw packets: the two sides have no connection, each its device, and each the other's address ----

ticks() # PID of timeout: how long what it started has computed, in hundredths of a second
{
	local child
	read -r child _ 2>/dev/null <"/proc/$1/task/$1/children"
	awk '{ print $14 + $15 }' "/proc/${child:-none}/stat" 2>/dev/null || echo 0
}

# It says when it has a flow; then it posts its receives, and polls
polls() # PID of timeout
{
	grep -q "Packet Type\|MAC attached" "$dir/server.out" || return
	: "${enough:=$(($(ticks $1) + 10))}"
	[ "$(ticks $1)" -ge $enough ]
}

raw_once() # words before the command, command...
{
	local one=02:00:00:00:00:01 two=02:00:00:00:00:02 enough= by="timeout 100 $run --fabric $dir/fabric --devices 2 $1 stdbuf -oL ${*:2}"
	together ends polls "$by --server -d mlx5_1 -B $two -E $one" "$by --client -d mlx5_0 -B $one -E $two"
}

raw() # words before the command, command...
{
	local tries status
	if ! command -v "$2" >/dev/null; then
		skip "${*:2}" "$2 is not installed"
		return
	fi
	for tries in 1 2 3; do
		raw_once "$@"
		status=$?
		[ $status != 0 ] || break
		note "again: ${*:2}"
	done
	# With the shim, it was all inlay's on both sides
	[ -z "$1" ] || [ "$(grep -c 'inlay-shim: by inlay: .* by libmlx5: 0 QPs$' "$dir/out")" = 2 ] || status=1
	result $status "${*:2}${1:+, with the shim}"
}

export INLAY_SHIM_SO=${INLAY_SHIM_SO:-$B/libinlay-shim.so}
for by in "" "examples/shim/run --verbose"; do
	raw "$by" raw_ethernet_lat -n 100 -s 128
	raw "$by" raw_ethernet_lat -n 100 -s 1500 -m 1518
	raw "$by" raw_ethernet_bw -n 500 -s 512 # what a receive queue holds: no more would be lost on a busy machine
done
finish
