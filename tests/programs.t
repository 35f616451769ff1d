#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that know nothing of the software device run on it: ibv_devinfo, ibv_rc_pingpong and perftest as two processes.
# Started by prove from the top of the tree, with build/libsoftdev.so built.

run=tests/softdev/run
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n=0

result() # exit status, name
{
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		sed 's/^/# /' "$dir"/*.out
	fi
	rm -f "$dir"/*.out
}

skip() # reason, name
{
	n=$((n + 1))
	echo "ok $n - $2 # SKIP $1"
}

# A TCP port on which nobody listens. Somebody may come before us: pair() then tries another
free_port()
{
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	echo $port
}

listening() # port
{
	local hex
	hex=$(printf ':%04X' "$1")
	awk -v p="$hex" '$4 == "0A" && substr($2, length($2) - 4) == p { f = 1 } END { exit !f }' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# Server and client of one program, each its own process and its own device on the same fabric; both must succeed
pair() # name, options of run, command...
{
	local name=$1 opts=$2 port server s c try i
	shift 2
	if ! command -v "$1" >/dev/null; then
		skip "$1 is not installed" "$name"
		return
	fi
	for try in 1 2 3; do
		port=$(free_port)
		timeout 60 "$run" --fabric "$dir/fabric" $opts "$@" -p "$port" >"$dir/server.out" 2>&1 &
		server=$!
		for i in {1..100}; do
			listening "$port" && break
			kill -0 $server 2>/dev/null || break
			sleep 0.05
		done
		timeout 60 "$run" --fabric "$dir/fabric" $opts "$@" -p "$port" 127.0.0.1 >"$dir/client.out" 2>&1
		c=$?
		# A client that found nobody leaves a server that waits for ever
		[ $c = 0 ] || kill $server 2>/dev/null
		wait $server
		s=$?
		[ $s = 0 ] && [ $c = 0 ] && break
		grep -qi 'address already in use\|listen' "$dir/server.out" || break
	done
	[ $s = 0 ] && [ $c = 0 ]
	result $? "$name"
}

echo 1..15

timeout 60 "$run" ibv_devinfo -v >"$dir/info.out" 2>&1 && grep -q 'PORT_ACTIVE' "$dir/info.out" && grep -q 'Ethernet' "$dir/info.out"
result $? "ibv_devinfo -v"
timeout 60 "$run" --manual --link ib ibv_devinfo -v >"$dir/info.out" 2>&1 && grep -q 'PORT_ACTIVE' "$dir/info.out" &&
	grep -q 'InfiniBand$' "$dir/info.out"
result $? "ibv_devinfo -v, stepped, InfiniBand"

# run itself: its own errors are 2, else it is the program's status
"$run" --no-such-option true >"$dir/run.out" 2>&1
[ $? = 2 ] && "$run" --help >>"$dir/run.out" 2>&1
result $? "run refuses what it does not know"
"$run" sh -c 'exit 37' >"$dir/run.out" 2>&1
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
