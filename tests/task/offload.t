#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a user of examples/worker, examples/offload and examples/group sees: figures, one clear line whenever something is wrong, and processes that end.
. tests/tap.sh

device=()
if [ -n "$DEVICE" ]; then
	run=()
	device=(--device "$DEVICE")
else
	run=(tests/softdev/run)
	export SOFTDEV_FABRIC=${SOFTDEV_FABRIC:-$dir/fabric}
fi
trap 'kill -9 $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
at=$(cd "$dir" && pwd -P)

worker() # option...: what it says
{
	timeout -k 1 300 "${run[@]}" "$B/examples/worker" "${device[@]}" "$@"
}

offload()
{
	timeout -k 1 300 "${run[@]}" "$B/examples/offload" "${device[@]}" "$@"
}

group()
{
	timeout -k 1 300 "${run[@]}" "$B/examples/group" "${device[@]}" "$@"
}

refused() # name pattern program option...: ends with $status, which is 1, and one line that says so
{
	local name=$1 pattern=$2
	shift 2
	"$@" >"$dir/stdout" 2>"$dir/out"
	[ $? = ${status:-1} ] && mapfile -t said <"$dir/out" && [ ${#said[@]} = 1 ] && [[ $said =~ $pattern ]]
	result $? "$name"
}

misused() # the same of wrong arguments
{
	status=2 refused "$@"
}

serve() # option...: a worker in the background, $server, whose address file is there
{
	rm -f "$at/address"
	"${run[@]}" "$B/examples/worker" "${device[@]}" --idle 50 "$@" "$at/address" >"$dir/worker.out" 2>&1 &
	server=$!
	for _ in {1..600}; do
		[ -e "$at/address" ] && return 0
		kill -0 $server 2>/dev/null || return 1
		pause
	done
	return 1
}

ends() # pid, what it says: its status; 124 when it had to be killed
{
	local pid=$1 i rc
	for ((i = 0; i < 600; i++)); do
		kill -0 "$pid" 2>/dev/null || break
		pause
	done
	[ $i -lt 600 ] || kill -9 "$pid"
	wait "$pid" 2>/dev/null
	rc=$?
	cp "$2" "$dir/out"
	[ $i -lt 600 ] && return $rc
	return 124
}

long_host() # a host of the worker at $at/address in the background, $host, that has begun with its commands and goes on for long
{
	rm -f "$dir/host.out" # the one before has said the same
	"${run[@]}" "$B/examples/offload" "${device[@]}" --worker "$at/address" --iters 10000000 >"$dir/host.out" 2>&1 &
	host=$!
	for _ in {1..600}; do
		grep -qs single/s "$dir/host.out" && return
		pause
	done
}

# ---- figures ----
offload --iters 50 --size 100 --window 5 >"$dir/out" 2>&1 &&
	grep -Eq '^echo +[0-9]+ ' "$dir/out" && grep -Eq '^put +[0-9]+ ' "$dir/out" && grep -Eq '^tag send +[0-9]+ .*x$' "$dir/out" &&
	grep -q '^overlap: ' "$dir/out" && grep -q 'refusals: as they should be' "$dir/out" && grep -q 'every byte verified' "$dir/out" &&
	grep -q '^1 hosts, 0 refused; .* 0 strays' "$dir/out"
result $? "offload starts a worker, and both end well"
for size in 1 4000; do
	try "$size bytes" offload --iters 20 --size $size
done

# ---- workers that know each other ----
for workers in 2 3; do
	group --workers $workers >"$dir/out" 2>&1 && grep -q "^$workers workers, all segments as they should be" "$dir/out" &&
		[ "$(grep -c 'every byte verified' "$dir/out")" = $workers ]
	result $? "$workers workers put into each other's segments"
done
refused "group: no such device" "no mlx5 device named nothing_7" group --device nothing_7
refused "offload: no such device" "no mlx5 device named nothing_7" offload --device nothing_7
misused "group: one worker" "number from 2" group --workers 1

# ---- arguments ----
try "worker --help" eval 'worker --help | grep -q ^usage'
try "offload --help" eval 'offload --help | grep -q ^usage'
misused "worker: an unknown option" "no such option" worker --nonsense "$at/address"
misused "worker: no address file" "one address file" worker
misused "worker: too many hosts" "number from 1 to 256" worker --hosts 257 "$at/address"
misused "worker: a folder that is not absolute" "absolute" worker --folder plugins --load 100:counter "$at/address"
refused "worker: no folder to load from" "from where" worker --load 100:counter "$at/address"
refused "worker: a plugin that is not there" "No such file" worker --folder "$at" --load 100:none "$at/address"
refused "worker: a plugin without id" "ID:NAME" worker --folder "$at" --load counter "$at/address"
refused "worker: an address file in no folder" "No such file" worker "$at/none/address"
mkdir "$at/real"
ln -s real "$at/link"
refused "worker: an address file in a folder behind a symbolic link" "symbolic link" worker "$at/link/address"
ln -s real/address "$at/dangling"
refused "worker: an address file that is a symbolic link" "is there already" worker "$at/dangling"
echo something >"$at/something"
refused "worker: an address file that is another file" "is there already" worker "$at/something"
[ "$(cat "$at/something")" = something ] && [ -z "$(ls "$at/real")" ] && [ ! -e "$at"/something.* ]
result $? "which stays as it is"
refused "worker: no such address to listen at" "cannot listen" worker --bind 192.0.2.1 "$at/address"
refused "worker: no such device" "no mlx5 device" worker --device nothing_7 "$at/address"
misused "offload: an unknown option" "no such option" offload --nonsense
misused "offload: a size of 0" "number from 1" offload --size 0
misused "offload: too large a size" "number from 1" offload --size 4001
misused "offload: a window that is no number" "number" offload --window 8x
refused "offload: no such address file" "No such file" offload --worker "$at/none"
echo nonsense >"$dir/nonsense"
refused "offload: an address file that is none" "no worker's address" offload --worker "$dir/nonsense"
[ ! -e "$at/address" ]
result $? "no worker that was refused has left an address file"

# ---- plugins that are loaded ----
mkdir -m 755 "$at/plugins"
cat >"$dir/counter.c" <<'EOT'
#include "load.h"
static int command(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	(void)cmd;
	return 0;
}
PLUGIN_EXPORT = {INLAY_TASK_VERSION, "counter", NULL, NULL, NULL, NULL, command, NULL};
EOT
try "a plugin builds" gcc -O2 -Wall -Wextra -Werror -Iinclude -Iexamples/plugins -shared -fPIC -o "$at/plugins/counter.so" "$dir/counter.c"
chmod 755 "$at/plugins/counter.so"
chmod 777 "$at/plugins"
refused "a plugin from a folder that all may write to" "could have written" worker --folder "$at/plugins" --load 100:counter "$at/address"
chmod 755 "$at/plugins"
refused "two plugins of one id" "two plugins have one id" worker --folder "$at/plugins" --load 1:counter "$at/address"

# ---- a worker for several hosts ----
serve --unix "$at/socket" --folder "$at/plugins" --load 100:counter
cp "$dir/worker.out" "$dir/out"
grep -q '^plugin 1 echo$' "$dir/out" && grep -q '^plugin 2 rdma$' "$dir/out" &&
	grep -q '^plugin 3 rdmo$' "$dir/out" && grep -q '^plugin 100 counter$' "$dir/out"
result $? "a worker at a Unix socket lists its plugins"
same "only its owner may read the address and connect to the socket" "600 600" "$(stat -c %a "$at/address" "$at/socket" | xargs)"
offload --worker "$at/address" --iters 40 >"$dir/a.out" 2>&1 &
other=$!
try "a host at the same time as another" offload --worker "$at/address" --iters 40
wait $other
rc=$?
cp "$dir/a.out" "$dir/out"
result $rc "the other"
refused "a second worker for the same address file" "is there already" worker "$at/address"
refused "a second worker at the same socket" "cannot listen" worker --unix "$at/socket" "$at/second"
[ -e "$at/address" ] && [ -S "$at/socket" ] && [ ! -e "$at/second" ]
result $? "leave the first one's files"
kill -TERM $server
ends $server "$dir/worker.out" && grep -q '^2 hosts, 0 refused; [1-9][0-9]* commands, 0 strays' "$dir/out"
result $? "SIGTERM ends it in order, with its counts"
[ ! -e "$at/address" ] && [ ! -e "$at/socket" ]
result $? "address file and socket are gone"

# ---- who is no host ----
serve --hosts 2
try "the worker is there" test -e "$at/address"
sed 's/ [0-9a-f]*$/ 00000000000000000000000000000000/' "$at/address" >"$dir/forged"
refused "offload: a token that is not the worker's" "Permission denied" offload --worker "$dir/forged"
port=$(cut -d' ' -f5 "$at/address")
head -c 3000 /dev/urandom 2>/dev/null >"/dev/tcp/127.0.0.1/$port"
exec 8<>"/dev/tcp/127.0.0.1/$port" # says nothing
try "a host after random bytes, beside one that is silent" offload --worker "$at/address" --iters 20
long_host
{ kill -KILL $host; wait $host; } 2>/dev/null
exec 8>&-
try "a host after one that was killed" offload --worker "$at/address" --iters 20

kill -TERM $server
ends $server "$dir/worker.out"
result $? "its end"

# ---- who holds a place ----
serve --hosts 1
port=$(cut -d' ' -f5 "$at/address")
for fd in {20..79}; do
	eval "exec $fd<>/dev/tcp/127.0.0.1/$port"
	[ $((fd % 2)) = 0 ] || printf 'inlaymee\1\0' >&$fd # and no more
done
try "a host beside 60 that say nothing, or half of it" offload --worker "$at/address" --iters 20
# With EAGAIN when too many came behind it, else, after its time, with ETIMEDOUT
answers=$(timeout 300 perl -e 'for (20 .. 79) { open my $f, "<&=", $_; read $f, my $answer, 12; print unpack("H*", $answer), "\n" }' |
	grep -cE '^696e6c61796d65650100(0b|6e)00$')
same "each of them is told why, and sent away" 60 "$answers"
for fd in {20..79}; do
	eval "exec $fd>&-"
done
long_host
refused "offload: a worker that has its hosts" "as many hosts as it may" offload --worker "$at/address"
{ kill -KILL $host; wait $host; } 2>/dev/null
for _ in {1..100}; do # until the worker has seen it
	offload --worker "$at/address" --iters 20 >"$dir/out" 2>&1 && break
	grep -q 'as many hosts' "$dir/out" || break
done
grep -q 'every byte verified' "$dir/out"
result $? "the place of one that was killed comes back"
long_host
kill -TERM $server
ends $server "$dir/worker.out" && [ ! -e "$at/address" ] && ends $host "$dir/host.out"
[ $? = 1 ] && grep -q 'connection to the worker has broken' "$dir/out"
result $? "SIGTERM ends it while a host gives commands, who says so"

# ---- a worker dies ----
serve
long_host
{ kill -KILL $server; wait $server; } 2>/dev/null
ends $host "$dir/host.out"
[ $? = 1 ] && grep -q 'connection to the worker has broken' "$dir/out"
result $? "a host whose worker is killed says so and ends"

# ---- the end by itself ----
rm -f "$at/address"
try "a worker without hosts ends by itself" worker --idle 1 "$at/address"
finish
