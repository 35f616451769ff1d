#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's Open MPI and MPICH, unmodified, over UCX on the software device, with the posts and polls of UCX's rc_verbs replaced by inlay's
# (examples/shim). Each rank is a process; mpi/*.c verifies every byte and every result. Nothing went another way: UCX says what its
# endpoints use, and the shim of each rank counts at least as many posts as the rank sent messages. MPI_MATRIX=1 adds longer runs, other
# seeds and numbers of ranks, more faults, and UCX's rc_mlx5 without the shim.
. tests/tap.sh
. tests/programs/mpi.sh

# Only a lost message waits for UCX_RC_TIMEOUT: one that is late never does
export UCX_NET_DEVICES=mlx5_0:1 UCX_WARN_UNUSED_ENV_VARS=n UCX_LOG_LEVEL=info UCX_RC_TIMEOUT=60ms
export MPIR_CVAR_NOLOCAL=1 # all ranks are as far away as on another machine
export INLAY_SHIM_VERBOSE=1 INLAY_SHIM_SO=${INLAY_SHIM_SO:-$B/libinlay-shim.so}
openmpi+=(--mca pml ucx --mca osc ucx --mca btl self --mca mtl ^ofi)
rounds=1 lost=600
[ -z "$MPI_MATRIX" ] || rounds=2 lost=500

over() # transport, whether by the shim
{
	export UCX_TLS=$1,${1/rc/ud}:aux,self
	tls=$1
	RANK_BY=$2
	export RANK_BY
}

# Between ranks there was nothing but $tls
carried()
{
	local f said
	[ "$(sed -n 's/.*ep_cfg\[[0-9]*\]: //p' "$dir"/rank.* | grep -o '([^)]*)' | tr ' ' '\n' | tr -d '()' | sort -u)" = \
		"$(printf '%s\n' "$tls/mlx5_0:1" self/memory0 | sort)" ] || { echo "not only $tls" >>"$dir/out"; return 1; }
	for f in "$dir"/rank.*; do
		if [ -z "$RANK_BY" ]; then
			! grep -q inlay-shim "$f" || return
			continue
		fi
		said=$(sed -n 's/^rank .* sent \([0-9]*\) messages$/\1/p' "$f")
		sed -n 's/^inlay-shim: by inlay: \(.*\)$/\1/p' "$f" | awk -v said="$said" '
			{ n++; if ($1 < 2 || $3 < said || $3 < 100 || $7 < 100 || $(NF - 1) != 0) bad = 1 }
			END { exit bad || n != 1 }' || { echo "the shim of ${f##*/} carried less than $said messages" >>"$dir/out"; return 1; }
	done
}

verify() # ranks, what, options of tests/softdev/run, argument...
{
	local ranks=$1 what=$2 opts=$3
	shift 3
	mpi "$ranks" "$opts" -r $rounds "$@" && carried
	result $? "$which, $ranks ranks, $tls${RANK_BY:+ by the shim}, $what: every byte"
}

for which in openmpi mpich; do
	mpi_build $which || continue
	eval "starts=(\"\${$which[@]}\")"
	# MPICH 4.0 cannot receive into a type with gaps what UCX cuts within an element; over TCP it fails, too
	# (UCX_TCP_TX_SEG_SIZE=8195). Without their headers, of 1 and 2 bytes, these segments are multiples of 8
	[ $which = openmpi ] || export UCX_RC_VERBS_SEG_SIZE=8257 UCX_RC_MLX5_SEG_SIZE=8258
	over rc_verbs examples/shim/run
	parts=2
	verify 2 "RoCE, MPI_THREAD_MULTIPLE" "" -t threads p2p
	parts=3
	[ "$which$MPI_MATRIX" = mpich ] ||
		verify $([ -n "$MPI_MATRIX" ] && echo 4 || echo 2) "InfiniBand, messages lost, late and twice" "--link ib --fault drop@/$lost,delay=300@/40,dup@/30" -s 2
	if [ -n "$MPI_MATRIX" ]; then
		verify 3 "RoCE" "" -s 3
		parts=4
		verify 2 "RoCE, MPI_THREAD_MULTIPLE" "" -t -s 7
		parts=3
		verify 4 "RoCE" "" -s 4
		over rc_mlx5
		verify 2 "RoCE" "" -s 5
		verify 4 "InfiniBand" "--link ib" -s 6
		over rc_verbs examples/shim/run
	fi

	# Would it be seen? What UCX says itself is shorter
	[ $which = openmpi ] || continue
	parts=1
	! mpi 2 "--fault corrupt=5000@*" p2p && grep -q 'rank [01], seed 1, .*: wrong data' "$dir/out"
	result $? "$which: a damaged bit is found"
	UCX_TLS=all
	mpi 2 "" storm && ! carried && grep -q '^not only rc_verbs' "$dir/out"
	result $? "$which: another way is found"
done
finish
