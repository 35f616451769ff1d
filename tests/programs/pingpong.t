#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a user of examples/pingpong sees: figures, files, and one clear line whenever something is wrong. DEVICE=name runs it on that
# device instead of the software one, PROGRAMS_ALL=1 damages more.
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
	[ "$1" = 0 ] || (cd "$tmp" && grep -s . out err peer.out peer.err) >"$dir/out"
	result "$1" "$2"
	: >"$tmp/out" >"$tmp/err" >"$tmp/peer.out" >"$tmp/peer.err"
}

# pp ARGUMENT...: runs it to its end
pp()
{
	timeout -k 1 300 "${cmd[@]}" "$@" >"$tmp/out" 2>"$tmp/err"
}

one_line()
{
	mapfile -t said <"$1" && [ ${#said[@]} -eq 1 ]
}

# ends_in STATUS DESCRIPTION PATTERN ARGUMENT...: ends with this status, and says why in one line
ends_in()
{
	pp "${@:4}"
	[ $? -eq "$1" ] && one_line "$tmp/err" && [[ $said =~ $3 ]]
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
	[ "$2" -gt 0 ] && [ "$2" -lt 124 ] && one_line "$1" && [[ $said =~ $3 ]]
}

# serve ARGUMENT...: a server in the background; sets $server and $port. No `timeout` around it: ends() sees to that.
serve()
{
	"${cmd[@]}" --tcp-port 0 "$@" server >"$tmp/peer.out" 2>"$tmp/peer.err" &
	server=$!
	port=
	while [ -z "$port" ] && kill -0 $server 2>/dev/null; do
		pause
		port=$(sed -n 's/^waiting .* port \([0-9]*\).*/\1/p' "$tmp/peer.out")
	done
	port=${port:-1}
}

# busy PID: until it has computed for 150 ms, which is in the midst of its messages, or is gone
busy()
{
	while [ "$(awk '{ print $3 == "Z" ? 15 : $14 + $15 }' "/proc/$1/stat" 2>/dev/null || echo 15)" -lt 15 ]; do
		pause
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
few="--iters 30"
for link in roce ib; do
	if [ -n "$DEVICE" ] && [ $link = ib ]; then
		skip "InfiniBand" "the link layer of $DEVICE is what it is"
		continue
	fi
	[ -n "$DEVICE" ] || cmd=(tests/softdev/run --link $link "$pingpong")
	for op in write send; do
		pp --op $op $few --size "1-$([ $link = ib ] && echo 64 || echo 16k)" --window 20 && grep -q "^verified$" "$tmp/out" && [ ! -s "$tmp/err" ]
		say $? "$op, $link"
	done
done
[ -n "$DEVICE" ] || cmd=(tests/softdev/run "$pingpong")

pp --size 100-3000 $few && [ "$(grep -cE '^ +[0-9]+ ' "$tmp/out")" -eq 6 ] &&
	[ "$(awk '$1 + 0 { n += $2 <= $3 && $3 <= $4 && $4 <= $5 && $6 > 0 } END { print n }' "$tmp/out")" -eq 6 ]
say $? "sizes that are no powers of two; the figures of each are in order"
if [ -n "$DEVICE" ]; then
	skip "says that it is the software device" "it is not"
else
	pp --size 8 $few && grep -q "mlx5_0.*software device, whose times are not those of a network" "$tmp/out"
	say $? "says that it is the software device"
fi
for op in write send; do
	serve --op $op --size 8-4k $few
	timeout -k 1 300 "${cmd[@]}" --op $op --size 8-4k $few --tcp-port "$port" client 127.0.0.1 >"$tmp/out" 2>"$tmp/err"
	rc=$?
	ends "$server" && [ $rc -eq 0 ] && grep -q "^verified$" "$tmp/out" && grep -q "served a client" "$tmp/peer.out"
	say $? "a server and a client, $op"
done
"${cmd[@]}" --size 8 $few >/dev/full 2>"$tmp/err"
[ $? -eq 1 ] && one_line "$tmp/err" && grep -q "standard output" "$tmp/err"
say $? "results that cannot be written"

# ---- what is verified ----
# A memcmp that damages what landed: the 50th message of this size or, for the second loop, the 300th; byte 5
cat >"$tmp/flip.c" <<'EOF'
#include <stddef.h>
int memcmp(const void *a, const void *b, size_t n)
{
	static int calls;
	unsigned char *x = (unsigned char *)a;
	const unsigned char *y = b;
	if (n == 1000 && ++calls == WHEN)
		x[5] ^= 1;
	for (; n && *x == *y; n--, x++, y++)
		;
	return n ? *x - *y : 0;
}
EOF
if ! "${CC:-cc}" -O1 -fno-builtin -shared -fPIC -DWHEN=50 -o "$tmp/flip.so" "$tmp/flip.c" 2>/dev/null; then
	skip "damage is found" "no compiler"
elif ! nm -D "$pingpong" 2>/dev/null | grep -q 'U memcmp'; then
	skip "damage is found" "this build's memcmp is not the library's"
else
	# Of 275 messages in the first loop, and the window of the second
	for message in "50 write" "300 send" ${PROGRAMS_ALL:+"50 send" "300 write"}; do
		read -r when op <<<"$message"
		"${CC:-cc}" -O1 -fno-builtin -shared -fPIC -DWHEN=$when -o "$tmp/flip.so" "$tmp/flip.c"
		LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$tmp/flip.so" pp --size 1000 --iters 250 --op $op
		grep -qE "byte 5 is 0x[0-9a-f]{2}, not 0x[0-9a-f]{2}$" "$tmp/err" && [ "$(wc -l <"$tmp/err")" -le 2 ]
		say $? "damage is found: message $when, $op"
	done
fi

# ---- arguments ----
misused "an unknown option" "nonsense" --nonsense
misused "an option without its value" "size" --size
misused "an unknown operation" "write or send" --op swap
misused "a size that is no number" "number" --size 8x
misused "size 0" "number" --size 0
misused "too large a size" "number" --size 1024M
misused "sizes the wrong way round" "number" --size 64-8
misused "one size for two" "number" --size 64-
misused "a window of more memory than allowed" "256 MB" --size 8M --window 4096
misused "an unknown role" "server" pitcher
misused "a client of nobody" "server" client
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
	refused "no device" "no mlx5 device"
	cmd=(tests/softdev/run "$pingpong")
fi

# ---- hostile bytes ----
serve
head -c 5000 /dev/urandom 2>/dev/null >"/dev/tcp/127.0.0.1/$port"
server_refuses "random bytes" "finding the same options on both sides failed"
serve --size 8 --op send
timeout -k 1 300 "${cmd[@]}" --size 8 --tcp-port "$port" client 127.0.0.1 >"$tmp/out" 2>"$tmp/err"
server_refuses "a client with other options" "finding the same options on both sides failed"
serve --size 8 # the server's own greeting, with a record of zeros
{ printf 'inlay pingpong: 0 8-8 500 64'; head -c 92 /dev/zero; } >"/dev/tcp/127.0.0.1/$port"
server_refuses "a record of zeros" "not a connection record"
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
	pause
done
refused "a server that is none" "finding the same options" --tcp-port "$(cat "$tmp/port")" client 127.0.0.1
kill $liar 2>/dev/null
wait $liar 2>/dev/null

# ---- a peer dies ----
# dies SIGNAL WHO OP: of a server and a client, one gets the signal in the middle; the other must end by itself. That a peer was
# killed is seen at once and said; that one is stopped shows only by its silence.
dies()
{
	local client survivor victim err timeout=60 says="the peer closed the connection"
	[ "$1" = KILL ] || timeout=1 says=
	serve --timeout $timeout --op "$3" --size 8 --iters 10000000
	"${cmd[@]}" --timeout $timeout --op "$3" --size 8 --iters 10000000 --tcp-port "$port" client 127.0.0.1 >"$tmp/out" 2>"$tmp/err" &
	client=$!
	busy $client # a server may only look on while its memory is written to
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
dies KILL server send
dies STOP server write
dies STOP client send

"${cmd[@]}" --size 8 --iters 10000000 >"$tmp/out" 2>"$tmp/err" &
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
