#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What all examples have in common: --help, wrong arguments, no device. And those that no other script runs.
. tests/tap.sh

on() # options of tests/softdev/run, program
{
	if [ -n "$DEVICE" ]; then
		timeout 300 "$B/examples/"$2
	else
		timeout 300 tests/softdev/run --fabric "$dir/fabric" $1 "$B/examples/"$2
	fi
}

says() # status lines pattern command...: ends with that status, and says so much on stderr
{
	local status=$1 lines=$2 pattern=$3
	shift 3
	"$@" >"$dir/stdout" 2>"$dir/out" </dev/null
	[ $? = $status ] && mapfile -t said <"$dir/out" && [ ${#said[@]} = $lines ] && [[ $(<"$dir/out")$(<"$dir/stdout") =~ $pattern ]]
}

has_device=
[ -n "$(ls /sys/class/infiniband 2>/dev/null)" ] && has_device=1
for source in examples/*.c; do
	name=$(basename "$source" .c)
	operand=
	[ $name != worker ] || operand=$dir/address
	says 0 0 "^usage: $name" "$B/examples/$name" --help
	result $? "$name --help"
	says 2 1 "^$name: .*--help" "$B/examples/$name" --nonsense
	result $? "$name: an unknown option"
	if [ -n "$has_device" ]; then
		skip "$name: no device" "there is one"
		continue
	fi
	says 1 1 "^$name: no mlx5 device" "$B/examples/$name" $operand
	result $? "$name: no device"
done

status=0
on "" regcache >"$dir/out" 2>&1 || status=$?
if [ $status = 77 ]; then
	skip "regcache" "$(tail -n 1 "$dir/out")"
else
	result $status "regcache: finds what it has, and notices what is unmapped"
fi
for how in "" --compress; do
	[ -z "$DEVICE" ] || break # not every NIC sends packets back to itself
	try "packets $how" on "--link roce" "packets --packets 3000 $how"
	same "packets $how: what it says" "packets: 3000 sent, 3000 found" "$(cat "$dir/out")"
done
for link in roce ib; do
	try "loop, $link" on "--link $link" loop
	try "recover, $link" on "--link $link" "recover --breaks 20"
	same "recover, $link: what it says" "recover: 1000 messages, each once and in order, over 21 connections" "$(cat "$dir/out")"
	# From device to device, and from queue pair to queue pair of one
	rails=2 points=1000
	[ $link = roce ] || rails=1 points=200
	try "failover, $link" on "--link $link --devices $rails" "failover --deaths $points"
	same "failover, $link: what it says" 1 "$(grep -c "^failover: $points deaths, [0-9]* operations: sends each once and in order, " "$dir/out")"
	try "shared_memory, $link" on "--link $link" shared_memory
	same "shared_memory, $link: what both said" "guest: wrote, read and counted; then the door was closed
owner: the board says \"the guest was here\", 1 counted" "$(sort "$dir/out")"
	try "storage, $link" on "--link $link" storage
	same "storage, $link: what it says" "storage: 2000 requests; data as written" "$(sed "s/, .* waited for buffers//" "$dir/out")"
	try "dc, $link" on "--link $link" dc
	same "dc, $link: what the targets got" "4 places of the board are as written
$(for i in 0 1 2 3; do echo "target $i: \"hello, number $i of 4\""; done)" "$(cat "$dir/out" | sort)"
	try "server, $link" on "--link $link" "server --requests 500"
	same "server, $link: what it says" 1 \
		"$(grep -c '^2 workers served 6 clients; [0-9]* replies had to wait$' "$dir/out")"
	[ -z "$DEVICE" ] || break
done
# Clients that would never end: SIGTERM ends the server in order
server=("$B/examples/server" --requests 1000000000 --killed 0)
[ -n "$DEVICE" ] || server=(tests/softdev/run "${server[@]}")
"${server[@]}" >"$dir/stdout" 2>"$dir/out" &
until grep -q serving "$dir/stdout" || ! kill -0 $! 2>/dev/null; do
	pause
done
kill $!
wait $!
result $? "server: SIGTERM"
finish
