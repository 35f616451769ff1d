#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a user of examples/pingpong sees: figures, files, and one clear line whenever something is wrong. DEVICE=name runs it on that
# device instead of the software one.
. tests/tap.sh

pingpong=${PINGPONG:-$B/examples/pingpong}
tmp=$dir/of
mkdir "$tmp"
export SOFTDEV_FABRIC="$dir/fabric"
if [ -n "$DEVICE" ]; then
	cmd=("$pingpong" --device "$DEVICE")
else
	cmd=(tests/softdev/run "$pingpong")
fi
[ -x "$pingpong" ] || { echo "Bail out! $pingpong is not there: run make first"; exit 1; }

# say OK DESCRIPTION: one test; what the programs said goes along when it failed
say()
{
	(cd "$tmp" && grep -s . out err peer.out peer.err) >"$dir/out"
	result "$1" "$2"
	rm -f "$tmp"/out "$tmp"/err "$tmp"/peer.out "$tmp"/peer.err
}

# pp ARGUMENT...: runs it to its end
pp()
{
	timeout -k 1 300 "${cmd[@]}" "$@" >"$tmp/out" 2>"$tmp/err"
}

one_line()
{
	[ "$(wc -l <"$1")" -eq 1 ]
}

# ends_in STATUS DESCRIPTION PATTERN ARGUMENT...: ends with this status, and says why in one line
ends_in()
{
	pp "${@:4}"
	[ $? -eq "$1" ] && one_line "$tmp/err" && grep -q -e "$3" "$tmp/err"
	say $? "$2"
}

refused()
{
	ends_in 1 "$@"
}

misused() # wrong arguments
{
	ends_in 2 "$@"
}

# fails FILE STATUS PATTERN: it failed by itself, and FILE has one line that says so
fails()
{
	[ "$2" -gt 0 ] && [ "$2" -lt 124 ] && one_line "$1" && grep -qE -e "$3" "$1"
}

# serve ARGUMENT...: a server in the background; sets $server and $port. No `timeout` around it: ends() sees to that.
serve()
{
	"${cmd[@]}" --tcp-port 0 "$@" server >"$tmp/peer.out" 2>"$tmp/peer.err" &
	server=$!
	port=
	while [ -z "$port" ] && kill -0 $server 2>/dev/null; do
		sleep 0.05
		port=$(sed -n 's/^waiting .* port \([0-9]*\).*/\1/p' "$tmp/peer.out")
	done
	port=${port:-1}
}

# busy PID [TICKS]: until it has computed for 300 ms, or so many hundredths of a second, which is in the midst of its messages, or is gone
busy()
{
	local ticks=${2:-30}
	while [ "$(awk -v t="$ticks" '{ print $3 == "Z" ? t : $14 + $15 }' "/proc/$1/stat" 2>/dev/null || echo "$ticks")" -lt "$ticks" ]; do
		sleep 0.05
	done
}

# ends PID: its exit code; that of a kill when it does not end
ends()
{
	timeout 200 tail -s 0.05 --pid="$1" -f /dev/null || kill -9 "$1"
	wait "$1" 2>/dev/null
}

# server_refuses DESCRIPTION PATTERN: the server ends with an error of one line, without help
server_refuses()
{
	ends "$server"
	fails "$tmp/peer.err" $? "$2"
	say $? "$1"
}

# ---- figures ----
few="--iters 60"
for link in roce ib; do
	if [ -n "$DEVICE" ] && [ $link = ib ]; then
		skip "InfiniBand" "the link layer of $DEVICE is what it is"
		continue
	fi
	[ -n "$DEVICE" ] || cmd=(tests/softdev/run --link $link "$pingpong")
	for processes in 1 2; do
		for op in write send read atomic; do
			pp --op $op --processes $processes $few $([ $op = atomic ] || echo --size 1-16k) &&
				grep -q "Verified" "$tmp/out" && [ ! -s "$tmp/err" ]
			say $? "$op, $link, $processes process(es)"
		done
	done
done
[ -n "$DEVICE" ] || cmd=(tests/softdev/run "$pingpong")

for op in write send read atomic; do
	pp --op $op --rate --iters 9001 --window 50 && grep -q "messages/s" "$tmp/out" && ! grep -q "median" "$tmp/out"
	say $? "$op, only the rate"
done
pp --size 100-3000 $few --inline 200 --mtu 512 --sl 3 --no-verify && grep -q "Nothing was verified" "$tmp/out" &&
	[ "$(grep -cE '^ +[0-9]+ ' "$tmp/out")" -eq 6 ]
say $? "sizes that are no powers of two, other inline, MTU and service level"

if [ -n "$DEVICE" ]; then
	skip "says that it is the software device" "it is not"
else
	pp --size 8 $few && grep -q "software device: the times .* not of a network" "$tmp/out" && grep -q "mlx5_0" "$tmp/out"
	say $? "says that it is the software device"
fi

for op in write send read; do
	serve
	timeout -k 1 300 "${cmd[@]}" --op $op --size 8-4k $few --tcp-port "$port" client 127.0.0.1 >"$tmp/out" 2>"$tmp/err"
	rc=$?
	ends "$server" && [ $rc -eq 0 ] && grep -q "Verified" "$tmp/out" && grep -q "served a client: $op, 8 to 4096" "$tmp/peer.out"
	say $? "a server and a client, $op"
done

# ---- what is verified ----
# A memcmp that damages what landed: at the 50th message of one of two sizes, byte 5
cat >"$tmp/flip.c" <<'EOF'
#include <stddef.h>
int memcmp(const void *a, const void *b, size_t n)
{
	static int calls;
	unsigned char *x = (unsigned char *)a;
	const unsigned char *y = b;
	if ((n == 1000 || n == 4096000) && ++calls == 50)
		x[5] ^= 1;
	for (; n && *x == *y; n--, x++, y++)
		;
	return n ? *x - *y : 0;
}
EOF
if ! "${CC:-cc}" -O1 -fno-builtin -shared -fPIC -o "$tmp/flip.so" "$tmp/flip.c" 2>/dev/null; then
	skip "damage is found" "no compiler"
elif ! nm -D "$pingpong" 2>/dev/null | grep -q 'U memcmp'; then
	skip "damage is found" "this build's memcmp is not the library's"
else
	# damaged DESCRIPTION ARGUMENT...
	damaged()
	{
		local what=$1
		shift
		LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$tmp/flip.so" pp --size 1000 --iters 3000 "$@"
		fails "$tmp/err" $? "byte 5 is 0x[0-9a-f]{2}, not 0x[0-9a-f]{2}$"
		say $? "damage is found: $what"
	}
	for op in write send read; do
		damaged "latency, $op" --op $op
		damaged "rate, $op" --op $op --rate
	done
	damaged "rate, two processes" --processes 2 --rate
	damaged "rate, window after window" --rate --size 4000k --window 3 --iters 60
	LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$tmp/flip.so" pp --size 1000 --iters 3000 --no-verify
	say $? "damage is not looked for with --no-verify"
fi

# ---- files ----
if ! command -v jq >/dev/null; then
	skip "--json" "no jq"
else
	pp --size 8-64 $few --json "$tmp/r.json" &&
		[ "$(jq '[.results[] | select(.latency_us.min <= .latency_us.median and .latency_us["p99.9"] <= .latency_us.max
			and .messages_per_s > 0)] | length' "$tmp/r.json")" = 4 ]
	say $? "--json"
	pp --op read --rate --size 32 $few --json "$tmp/r.json" && jq -e '.op == "read" and (.results[0] | has("latency_us") | not)' \
		"$tmp/r.json" >/dev/null
	say $? "--json of a rate"
fi
if ! command -v gnuplot >/dev/null; then
	refused "--plot without gnuplot" "gnuplot" --size 8 $few --plot "$tmp/p.png"
else
	pp --size 8-64 $few --plot "$tmp/it's a picture.png" &&
		[ "$(head -c 8 "$tmp/it's a picture.png" | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ]
	say $? "--plot"
	mkdir "$tmp/bin" && for t in sh dirname readlink; do ln -s "$(command -v $t)" "$tmp/bin/$t"; done
	PATH="$tmp/bin" /usr/bin/env -i PATH="$tmp/bin" SOFTDEV_SO="$SOFTDEV_SO" SOFTDEV_FABRIC="$SOFTDEV_FABRIC" \
		"$(command -v timeout)" 10 "${cmd[@]}" --size 8 --plot "$tmp/q.png" >"$tmp/out" 2>"$tmp/err"
	[ $? -eq 1 ] && one_line "$tmp/err" && grep -q "gnuplot, which is not installed" "$tmp/err"
	say $? "--plot without gnuplot"
fi
if command -v gnuplot >/dev/null; then
	refused "--plot into nowhere" "No such file" --plot "$tmp/none/p.png" --size 8
fi
refused "--json into nowhere" "No such file" --json "$tmp/none/r.json" --size 8

"${cmd[@]}" --size 8 $few >/dev/full 2>"$tmp/err"
[ $? -eq 1 ] && one_line "$tmp/err" && grep -q "standard output" "$tmp/err"
say $? "results that cannot be written"

# ---- arguments ----
misused "an unknown option" "nonsense" --nonsense
misused "an unknown operation" "write, send, read or atomic" --op swap
misused "a size that is no number" "number" --size 8x
misused "a negative size" "number" --size -8
misused "size 0" "number" --size 0
misused "too large a size" "number" --size 1024M
misused "sizes the wrong way round" "smaller one first" --size 64-8
misused "one size for two" "number" --size 64-
misused "too large a window" "number" --window 100000
misused "a window of more memory than allowed" "256 MB" --size 8M --window 4096
misused "an odd MTU" "mtu" --mtu 1000
misused "an atomic of 16 bytes" "8 bytes" --op atomic --size 16
[ -n "$DEVICE" ] || refused "more inline than the device takes" "1024 bytes inline" --inline 1024 --size 8
misused "an unknown role" "server" pitcher
misused "a client of nobody" "server" client
misused "a server with results" "client" --json "$tmp/r.json" server
refused "no such device" "no mlx5 device named nothing_7" --device nothing_7
refused "no such port" "no such port" --port 9
refused "no such GID" "no GID of this index" --gid-index 200
refused "nobody listens there" "cannot connect" --tcp-port 1 client 127.0.0.1
refused "no such address to listen at" "" --bind 192.0.2.1 server
pp --help && grep -q "^usage" "$tmp/out"
say $? "--help"

if [ -n "$DEVICE" ] || [ -e /sys/class/infiniband ] && [ -n "$(ls /sys/class/infiniband)" ]; then
	skip "no device" "there is one"
else
	cmd=("$pingpong")
	refused "no device, one process" "no mlx5 device"
	refused "no device, two processes" "no mlx5 device" --processes 2
	cmd=(tests/softdev/run "$pingpong")
fi

# ---- hostile bytes ----
# hello WORD...: the greeting of a client, from 32-bit words in hexadecimal
hello()
{
	local w
	for w in 696e6c61 00000003 "$@"; do
		printf "\\x${w:0:2}\\x${w:2:2}\\x${w:4:2}\\x${w:6:2}"
	done
}

serve
head -c 5000 /dev/urandom 2>/dev/null >"/dev/tcp/127.0.0.1/$port"
server_refuses "random bytes" "no pingpong"

# A good plan in front of any address, one by one bad
bad_plan()
{
	serve
	{ hello $2; head -c 96 /dev/zero; } | head -c 96 >"/dev/tcp/127.0.0.1/$port"
	server_refuses "$1" "$3"
}
bad_plan "too many iterations" "00000000 00000008 00000008 ffffffff 00000040 00000040 00000001 00000000" "too many iterations"
bad_plan "an operation from nowhere" "00000009 00000008 00000008 00000064 00000040 00000040 00000001 00000000" "cannot be"
bad_plan "a size of 2 GB" "00000000 00000008 80000000 00000064 00000040 00000040 00000001 00000000" "cannot be"
bad_plan "a window of 2^32 - 1" "00000000 00000008 00000008 00000064 ffffffff 00000040 00000001 00000000" "cannot be"
bad_plan "inline of 2^32 - 1" "00000000 00000008 00000008 00000064 00000040 ffffffff 00000001 00000000" "cannot be"
bad_plan "more memory than allowed" "00000000 00000008 00800000 00000064 00001000 00000040 00000001 00000000" "cannot be"
bad_plan "an address of zeros" "00000000 00000008 00000008 00000064 00000040 00000040 00000001 00000000" "makes no sense"

serve
printf inla >"/dev/tcp/127.0.0.1/$port"
server_refuses "a connection closed early" "closed the connection"
serve --timeout 1
exec 9<>"/dev/tcp/127.0.0.1/$port"
server_refuses "a client that says nothing" "no greeting"
exec 9>&-

# A server that is none, for a client: listens, answers with random bytes
timeout 300 perl -MIO::Socket::INET -e '$| = 1; $s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die;
	print $s->sockport, "\n";
	$c = $s->accept; open($r, "<", "/dev/urandom"); read($r, $b, 5000); print $c $b; $c->flush; sleep 10' >"$tmp/port" &
liar=$!
until [ -s "$tmp/port" ]; do
	sleep 0.05
done
refused "a server that is none" "no pingpong" --tcp-port "$(cat "$tmp/port")" client 127.0.0.1
kill $liar 2>/dev/null
wait $liar 2>/dev/null

# ---- a peer dies ----
# dies SIGNAL WHO OP [TICKS]: of a server and a client, one gets the signal in the middle; the other must end by itself. That a peer was
# killed is seen at once and said; that one is stopped shows only by its silence.
dies()
{
	local client survivor victim err timeout=60 says="the peer closed the connection"
	[ "$1" = KILL ] || timeout=3 says=
	serve --timeout $timeout
	"${cmd[@]}" --timeout $timeout --op "$3" --size 8 --iters 10000000 --tcp-port "$port" client 127.0.0.1 >"$tmp/out" 2>"$tmp/err" &
	client=$!
	busy $client $4 # a server may only look on while its memory is written to
	if [ "$2" = client ]; then
		victim=$client survivor=$server err=$tmp/peer.err
	else
		victim=$server survivor=$client err=$tmp/err
	fi
	# Waited for at once where the shell would otherwise report the kill
	{ kill -"$1" "$victim"; [ "$1" != KILL ] || wait "$victim"; } 2>/dev/null
	ends "$survivor"
	local rc=$?
	{ kill -9 "$victim"; wait "$victim"; } 2>/dev/null
	fails "$err" $rc "$says"
	say $? "the $2 gets SIG$1, $3"
}
dies KILL client write
dies KILL server write
dies KILL client write 250 # so late that it has sent pulses, which nobody has read
dies KILL client send
dies KILL server send
dies KILL client read
dies KILL server read
dies STOP server write
dies STOP client send

"${cmd[@]}" --processes 2 --size 8 --iters 10000000 >"$tmp/out" 2>"$tmp/err" &
parent=$!
busy $parent
child=$(cat /proc/$parent/task/$parent/children 2>/dev/null)
if [ -z "$child" ]; then
	kill -9 $parent
	wait $parent 2>/dev/null
	skip "one of two processes is killed" "/proc does not tell children"
else
	kill -9 $child
	ends $parent
	rc=$?
	[ $rc -eq 1 ] && one_line "$tmp/err" && grep -q "killed by signal 9" "$tmp/err"
	say $? "one of two processes is killed"
fi

finish
