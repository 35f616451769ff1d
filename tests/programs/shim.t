#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/shim: unmodified programs on inlay's data path, on the software device, with the shim on one side and on both. First
# tests/programs/shim.c, whose account of what a program sees must be the same without the shim and with it, and the device's own tests, on
# the shim. Then programs that come with libibverbs and perftest: each must succeed, and the shim must have been in its way.
#
# SHIM_ALL=1 tries every program with every option that concerns posting and polling, and tests/programs/shim.c in more ways, with more of what
# threads do.
. tests/tap.sh
. tests/programs/perftest.sh

shim="examples/shim/run --verbose"
export INLAY_SHIM_SO=${INLAY_SHIM_SO:-$B/libinlay-shim.so}

# ---- the same to the last field ----

differ() # name, options of tests/softdev/run, environment...: runs tests/programs/shim.c without the shim and with it, both at once
{
	local name=$1 opts=$2 plain ours
	shift 2
	env "$@" timeout 300 tests/softdev/run --fabric "$dir/fabric-plain" $opts "$dir/shim" >"$dir/plain.txt" 2>"$dir/plain.err" &
	plain=$!
	env "$@" timeout 300 tests/softdev/run --fabric "$dir/fabric" $opts $shim "$dir/shim" >"$dir/shim.txt" 2>"$dir/out"
	ours=$?
	wait $plain
	if [ $? != 0 ] || [ $ours != 0 ]; then
		tail -n 5 "$dir"/*.txt >>"$dir/out"
		result 1 "$name"
		return
	fi
	grep -h '^inlay-shim: by inlay' "$dir/out" >"$dir/account"
	diff "$dir/plain.txt" "$dir/shim.txt" >"$dir/out" && grep -q '^== end' "$dir/plain.txt" &&
		! grep 'are missing' "$dir/plain.txt" >>"$dir/out" &&
		grep -Eq ' [0-9]{3,} sends, [0-9]{3,} receives, [0-9]{4,} completions' "$dir/account" &&
		grep -q "by libmlx5: $(sed -n 's/ strange QPs$//p' "$dir/shim.txt") QPs$" "$dir/account"
	result $? "$name: $(grep -c . "$dir/plain.txt") lines the same"
}

try "tests/programs/shim.c" $CC -std=gnu11 -O2 -g -Wall -Wextra -Werror tests/programs/shim.c -o "$dir/shim" -pthread -libverbs -lmlx5
differ "what a program sees" ""
if [ -n "$SHIM_ALL" ]; then
	differ "what a program sees, CQEs of 128 bytes" "" MLX5_CQE_SIZE=128
	differ "what a program sees, InfiniBand" "--link ib"
	differ "what a program sees, doorbells only" "" MLX5_SHUT_UP_BF=1
	differ "what a program sees, on a device that sees nothing but doorbells" "--trap"
fi

# The headers' rules for their callers hold for the shim
try "checked" $CC -std=gnu11 -O1 -Wall -Wextra -Werror -DINLAY_CHECKED=1 -Iinclude -fPIC -fvisibility=hidden -shared -pthread \
	examples/shim/*.c -o "$dir/checked.so" -libverbs -lmlx5 -ldl
differ "what a program sees, CQEs of 128 bytes, checked" "" MLX5_CQE_SIZE=128 INLAY_SHIM_SO="$dir/checked.so"

# libmlx5's part in the comparison of all bytes with inlay's, by the shim: what is drawn at random, and what is refused
for kind in rc uc ud xrc dc packets packets-l2 windows-rc windows-uc copies wqes-uc wqes-ud; do
	ORACLE_CASES=$([ -n "$SHIM_ALL" ] && echo 50000 || echo 10000) TEST_ONLY='*r*d*' timeout 300 tests/softdev/run --manual \
		--fabric "$dir/fabric" $shim "$B/tests/queue/oracle-0" $kind >"$dir/out" 2>&1 && ! grep -q 'by libmlx5: [1-9]' "$dir/out" &&
		grep -Eq 'by inlay: .* [0-9]{4,} sends' "$dir/out"
	result $? "bytes, $kind"
done

# ---- what only the shim says ----

run="timeout 300 tests/softdev/run --fabric $dir/fabric"
$run $shim "$dir/shim" look >"$dir/out" 2>&1 && grep -q '^a strange one: Operation not supported' "$dir/out" &&
	grep -q 'refused: ' "$dir/out"
result $? "a QP of libmlx5's on a CQ of inlay's that the program looks into is refused aloud"

# The device's own tests, of which each process says at its end what was whose
while read -r test what; do
	timeout 300 tests/softdev/run --fabric "$dir/fabric" $shim "$B/tests/softdev/tests/$test" >"$dir/out" 2>&1 &&
		grep -q 'by inlay: [1-9]' "$dir/out" && ! grep -q "by libmlx5: [$([ $test = srq ] && echo 2 || echo 1)-9]" "$dir/out"
	result $? "$test: $what are all inlay's"
done <<EOF
traffic all requests of RC, UC and UD at random against a model, and what each wrong one does
ud datagrams
srq what SRQs receive, but for one queue pair
memory memory windows and keys over lists
umr keys that are configured, with signatures, raw WQEs, copies of memory
xrc_dc XRC, and DC with its targets
packet raw packets, with segmentation
EOF

# A QP that cannot be asked about is made all the same, by libmlx5
cat >"$dir/dumb.c" <<EOF
#include <infiniband/verbs.h>
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	return (void)qp, (void)attr, (void)mask, (void)init, 12;
}
EOF
$CC -fPIC -shared "$dir/dumb.c" -o "$dir/dumb.so"
LD_PRELOAD="$dir/dumb.so" $run $shim "$dir/shim" one >"$dir/out" 2>&1 && grep -q 'wr_id 1 status success' "$dir/out" &&
	grep -q 'by inlay: 0 QPs, .* by libmlx5: 2 QPs$' "$dir/out"
result $? "a QP that cannot be described is libmlx5's"

cat >"$dir/expected" <<EOF
wr_id 1 status remote invalid request error
wr_id 2 status local length error
wr_id 3 status local length error
memory untouched
EOF
timeout 300 tests/softdev/run --fabric "$dir/fabric" --manual $shim "$dir/shim" hostile 2>"$dir/err" | diff "$dir/expected" - >"$dir/out"
result $? "payloads that no device puts into a CQE stay out of the program's memory"

# ---- programs ----

# Whether inlay did it all there, and something, unless it was at a server that only looks on
worked() # file program
{
	grep -q 'inlay-shim: by inlay: .* by libmlx5: 0 QPs$' "$1" || return
	case ${1##*/}:$2 in
	server.out:ib_write_bw|server.out:ib_read_*|server.out:ib_atomic_*) ;;
	*) ! grep -q 'inlay-shim: by inlay: .* 0 sends, 0 receives, ' "$1" ;;
	esac
}

sides() # s, c or b (both), options of tests/softdev/run, command...
{
	local where=$1 opts=$2 status=0 server_by= client_by=
	shift 2
	[ "$where" = c ] || server_by=$shim
	[ "$where" = s ] || client_by=$shim
	if ! command -v "$1" >/dev/null; then
		skip "$*" "$1 is not installed"
		return
	fi
	both "$opts" "$@" || status=1
	[ -z "$server_by" ] || worked "$dir/server.out" "$1" || { status=1; echo "the server's shim did not do it all" >>"$dir/out"; }
	[ -z "$client_by" ] || worked "$dir/client.out" "$1" || { status=1; echo "the client's shim did not do it all" >>"$dir/out"; }
	case $where in s) where="at the server" ;; c) where="at the client" ;; b) where="at both" ;; esac
	result $status "$*${opts:+ ($opts)}, $where"
}

at() # sides, command...: on RoCE, at each of the sides
{
	local where=$1 side
	shift
	for side in ${where//,/ }; do
		sides "$side" "" "$@"
	done
}

if [ -n "$SHIM_ALL" ]; then
	every_program
	finish
	exit
fi

at s,c ibv_rc_pingpong -g 3 -n 30
at b ibv_rc_pingpong -g 3 -n 30 -c -e
at b ibv_uc_pingpong -g 3 -n 30
at b ibv_ud_pingpong -g 3 -n 30
at c ibv_srq_pingpong -g 3 -n 30 -e
for command in "ib_send_bw -s 8" "ib_read_lat -s 8" ib_atomic_lat \
	"ib_write_bw -c UC -s 1024 -q 2" "ib_send_lat -c UC -s 8" "ib_send_bw -c UD -s 1024 -q 2" "ib_write_lat -s 60 -I 64" \
	"ib_write_bw -s 1024 -l 10" "ib_send_lat -s 8 --use-srq" \
	"ib_send_lat -s 8 -e" "ib_read_bw -s 1024 -e" "ib_send_bw -s 64 -b --use_old_post_send" "ib_write_lat -s 8 --use_old_post_send" \
	"ib_atomic_bw -A CMP_AND_SWAP"; do
	at b $command -n 30
done
for connection in XRC DC; do
	for command in "ib_send_bw -s 1024 -q 3" "ib_write_lat -s 60 -I 64" "ib_atomic_bw"; do
		at b $command -c $connection -n 30
	done
done
at s ibv_xsrq_pingpong -g 3 -n 50 -c 1
sides b "--link ib" ibv_xsrq_pingpong -n 50 -c 1 -e
at b ib_send_lat -c XRC -s 8 --use_old_post_send -e -n 30
at b ib_send_lat -c DC -s 8 --log_dci_streams=2 -n 30
sides b "--link ib" ib_write_lat -c DC -n 30 -s 8
sides b "--link ib" ib_write_lat -n 30 -s 8
finish
