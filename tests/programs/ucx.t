#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's UCX, unmodified, on the software device as two processes: ucx/uct.c, which verifies every byte of every kind of message on each
# transport by itself (UCT), and ucx_perftest on it and on UCP. Whole messages of UCP are verified by mpi.t. What UCX says about its
# endpoints shows that the data went over the transport in question; no other is allowed but datagrams to connect. Then the same with the
# posts and polls of libmlx5 replaced by inlay's, for the transports that use them. UCX_MATRIX=1 adds every transport on RoCE and
# InfiniBand and ucx_perftest on each, the shim on each side alone, and more random data.
. tests/tap.sh

if ! command -v ucx_perftest >/dev/null || ! pkg-config --exists ucx; then
	skip "UCX" "ucx-utils and libucx-dev are not installed"
	finish
	exit
fi
try "ucx/uct.c" $CC -std=gnu11 -O2 -g -Wall -Wextra -Werror $(pkg-config --cflags ucx) -o "$dir/uct" tests/programs/ucx/uct.c \
	$(pkg-config --libs ucx) -libverbs -lmlx5

export UCX_NET_DEVICES=mlx5_0:1 UCX_WARN_UNUSED_ENV_VARS=n UCX_LOG_LEVEL=info
export INLAY_SHIM_VERBOSE=1 INLAY_SHIM_SO=${INLAY_SHIM_SO:-$B/libinlay-shim.so}
shim=examples/shim/run
rounds=1
[ -z "$UCX_MATRIX" ] || rounds=10

# $over, and the variables by which UCX uses nothing else: a reliable connection is made through datagrams. Where UCX can make its queues
# and keys by device commands, it must: QPs, cyclic shared queues on an RMP, DCTs and their requesters, KSM keys for atomics.
transport() # name
{
	over=$1
	case $1 in
	?c_mlx5) export UCX_IB_MLX5_DEVX=yes ;;
	*) unset UCX_IB_MLX5_DEVX ;;
	esac
	case $1 in
	rc_*) export UCX_TLS=$1,${1/rc/ud}:aux ;;
	*) export UCX_TLS=$1 ;;
	esac
}

# The shim had all QPs of the sides it was started on, and did something; nothing of it was on the others
shims_account()
{
	local side by
	for side in server client; do
		by=${side}_by
		if [ -z "${!by}" ]; then
			! grep -q inlay-shim "$dir/$side.out" || return
		else
			awk '/^inlay-shim: by inlay:/ { n++; if ($4 < 2 || $6 < 50 || $8 < 50 || $10 < 50 || $14 != 0) bad = 1 }
				END { exit bad || n != 1 }' "$dir/$side.out" || return
		fi
	done
}

# ---- every byte ----

verify() # what, options of tests/softdev/run: datagrams have only active messages
{
	local kinds=9
	[ $over = ${over#ud} ] || kinds=3
	both "$2" "$dir/uct" -t $over -d mlx5_0:1 -r $rounds && [ "$(grep -c "^Verified .* of $kinds kinds" "$dir/out")" = 2 ] &&
		shims_account
	result $? "$over, $1: every byte"
}

for t in rc_verbs ud_verbs rc_mlx5 ud_mlx5 dc_mlx5; do
	transport $t
	verify RoCE ""
	# Only a lost message waits for the timeout: one that is late never does
	UCX_RC_TIMEOUT=60ms verify "InfiniBand, messages lost, late and twice" "--link ib --fault drop@40-/120,delay=300@/40,dup@/30"

	# The device tells a connection of it. Of datagrams UCX's clock alone would
	if [ $t = ${t#ud} ]; then
		both "" "$dir/uct" -t $over -d mlx5_0:1 -g && grep -q '^told after' "$dir/client.out"
		result $? "$over: a peer that goes"
	fi
done

# As UCX is without a word in the environment: it may use device commands or not. That it does is seen by the SRQ: it has a cyclic one only
# by them, and now no other to fall back to
transport rc_mlx5
unset UCX_IB_MLX5_DEVX
export UCX_RC_MLX5_SRQ_TOPO=cyclic
verify "default settings, cyclic SRQ" ""
! both "--no-devx" "$dir/uct" -t $over -d mlx5_0:1
result $? "rc_mlx5: there is no cyclic SRQ without device commands"
unset UCX_RC_MLX5_SRQ_TOPO

# UCX reads the device's compressed CQEs (basic layout) as inlay does
UCX_RC_MLX5_CQE_ZIPPING_ENABLE=y verify "compressed CQEs" ""
[ "$(grep -c '^Compressed blocks: [1-9]' "$dir/out")" = 2 ] && ! grep -q 'feature is unsupported' "$dir/out"
result $? "$over: each side's device wrote compressed CQEs"

# The same without device commands: verbs QPs and a verbs SRQ; DCIs and DCTs of mlx5dv_create_qp
for t in rc_mlx5 dc_mlx5; do
	transport $t
	export UCX_IB_MLX5_DEVX=try
	verify "no device commands" "--no-devx"
done
transport rc_mlx5
UCX_IB_MLX5_DEVX=yes
! both "--no-devx" "$dir/uct" -t $over -d mlx5_0:1
result $? "rc_mlx5: there is no device when device commands are wanted and there are none"

# Would it be seen?
for t in rc_verbs rc_mlx5; do
	transport $t
	! both "--fault corrupt=5000@*" "$dir/uct" -t $over -d mlx5_0:1 && grep -q 'wrong data' "$dir/out"
	result $? "$over: a damaged bit is found"
done

# ---- ucx_perftest ----

# batch FILE: lines "TEST SIZE COUNT [OPTION]..." become a batch file, each test with a name of its own. An option without argument must
# not be the last of a line, where it would spoil the next one's
batch()
{
	awk 'NF { t = $1; s = $2; n = $3; $1 = $2 = $3 = ""; print "t" NR "_" t, "-t", t, $0, "-s", s, "-n", n, "-w 2" }' >"$1"
}

# A batch goes on after a test that failed and ends well: all of them must have given figures, and nothing else been said
perftest() # what, options of tests/softdev/run, batch
{
	local what=$1 opts=$2 file=$3
	both "$opts" ucx_perftest -b "$file" -f && ! grep -q 'UCX  *ERROR\|UCX  *FATAL' "$dir/out" && shims_account &&
		awk 'NR == FNR { want[$1]; n++; next } ($1 in want) && $2 > 0 && $NF > 0 { delete want[$1]; n-- } END { exit n != 0 }' \
			"$file" "$dir/client.out" &&
		[ "$(grep -o 'ep_cfg.*' "$dir/out" | sed 's/ ka(.*//' | grep -o '([^)]*)' | sort -u)" = "($over/mlx5_0:1)" ]
	result $? "$over, $what"
}

batch "$dir/tests_ucp" <<-EOT
	ucp_put_lat 8 20
	ucp_put_bw 1048576 3
	${UCX_MATRIX:+ucp_get 1048576 3}
	tag_lat 8 20
	${UCX_MATRIX:+tag_lat 2000 20 -U}
	tag_bw 1048576 3
	${UCX_MATRIX:+tag_sync_bw 65536 10}
	ucp_am_bw 65536 10 -e
	ucp_fadd 8 20
	${UCX_MATRIX:+ucp_cswap 8 20}
	${UCX_MATRIX:+stream_bw 65536 10 -r recv_data}
	tag_lat 8 20 -E sleep
	tag_lat 100,200,5000 20 -D iov
	tag_bw 4096 40 -M multi -T 2
EOT

# What posts and polls by libibverbs is below, with the shim; uct.c has tried the kinds of messages that all of this is made of
for t in ${UCX_MATRIX:+rc_verbs ud_verbs rc_mlx5 ud_mlx5 dc_mlx5}; do
	transport $t
	perftest "RoCE: ucx_perftest, $(wc -l <"$dir/tests_ucp") tests" "" "$dir/tests_ucp"
done

# ---- on inlay: what of UCX calls libibverbs to post and poll ----

for t in rc_verbs ud_verbs; do
	transport $t
	for sides in ${UCX_MATRIX:+server client} both; do
		server_by= client_by=
		[ $sides = client ] || server_by=$shim
		[ $sides = server ] || client_by=$shim
		verify "shim on $sides" "$([ $sides = both ] || echo --link ib)"
	done
	[ -z "$UCX_MATRIX" ] && [ $t = ud_verbs ] ||
		perftest "RoCE, shim on both: ucx_perftest, $(wc -l <"$dir/tests_ucp") tests" "" "$dir/tests_ucp"
	server_by= client_by=
done

# Those that post and poll by themselves get what they need of libmlx5, and the shim is in nobody's way
for t in rc_mlx5 ${UCX_MATRIX:+ud_mlx5 dc_mlx5}; do
	both "" "$shim" "$dir/uct" -t $t -d mlx5_0:1 && [ "$(grep -c '^Verified' "$dir/out")" = 2 ]
	result $? "$t, shim on both, the transport by itself: every byte"
done

# ---- a device that only a write to its doorbell page starts, within one process ----

for t in rc_verbs ud_verbs rc_mlx5 ud_mlx5 dc_mlx5; do
	for by in "" $shim; do
		case $t in
		*_mlx5) [ -z "$by" ] || continue ;;
		esac
		for test in "am_lat -D short -s 8" "am_bw -D zcopy -s 1000" "put_bw -D zcopy -s 100000" "fadd -s 8"; do
			case $t,$test in
			ud_*,[!a]*) continue ;;
			esac
			echo "${test%% *} -t $test -n 300 -w 5"
		done >"$dir/batch"
		UCX_LOG_LEVEL=warn SOFTDEV_TRAP=1 timeout 300 tests/softdev/run $by \
			ucx_perftest -b "$dir/batch" -l -f -d mlx5_0:1 -x $t >"$dir/out" 2>&1 &&
			[ "$(awk '$2 == 300 && $NF > 0 { print $1 }' "$dir/out")" = "$(awk '{ print $1 }' "$dir/batch")" ]
		result $? "$t, trapped${by:+, with the shim}: ucx_perftest with itself"
	done
done

# All of memory is one region, paged on demand, or UCX has no device. It wants that on InfiniBand alone, and not with RC QPs made by DEVX.
# Each test of UCX 1.13 ends with a crash, since it frees that region by a call with another argument: it has measured by then
transport dc_mlx5
for t in rc_mlx5 dc_mlx5; do
	: >"$dir/out"
	for test in "am_bw -D zcopy -s 1000" "put_bw -D zcopy -s 100000" "get -D zcopy -s 100000" "fadd -s 8"; do
		UCX_HANDLE_ERRORS=none UCX_LOG_LEVEL=warn UCX_IB_REG_METHODS=odp UCX_IB_MLX5_DEVX_OBJECTS=dct,dcsrq timeout 300 \
			tests/softdev/run --link ib stdbuf -oL ucx_perftest -t $test -n 300 -w 5 -l -f -d mlx5_0:1 -x $t 2>&1 | cat >>"$dir/out"
	done
	[ "$(awk '$1 == 300 && $NF > 0' "$dir/out" | wc -l)" = 4 ]
	result $? "$t, paging on demand: ucx_perftest with itself"
done
finish
