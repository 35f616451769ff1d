#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that connect by librdmacm and know nothing of the software device, each pair as two processes on one fabric: rdmacm-utils'
# that do not race with themselves (the others are in programs/racing.t); Open MPI over libfabric's verbs provider, and over its openib
# component. On RoCE and on InfiniBand; Open MPI over libfabric is on InfiniBand with PROGRAMS_ALL=1 only.
. tests/tap.sh
. tests/programs/cm.sh

# Two that listen and one that talks; it waits three seconds before it does, and others go on meanwhile
group() # options
{
	local fabric=$dir/group.${1: -2} a b c
	timeout 300 $run --fabric $fabric $1 stdbuf -oL mckey -m 239.1.1.1 -C 5 -S 1000 >"$fabric.a" 2>&1 &
	a=$!
	timeout 300 $run --fabric $fabric $1 stdbuf -oL mckey -m 239.1.1.1 -C 5 -S 1000 -c 2 >"$fabric.b" 2>&1 &
	b=$!
	until [ "$(cat "$fabric.a" "$fabric.b" | grep -c joined)" = 3 ] || ! kill -0 $a $b 2>/dev/null; do
		pause
	done
	timeout 300 $run --fabric $fabric $1 mckey -m 239.1.1.1 -C 5 -S 1000 -s >"$fabric.c" 2>&1
	c=$?
	[ $c = 0 ] || kill $a $b 2>/dev/null
	wait $a || c=1
	wait $b || c=1
	return $c
}
declare -A talking
if command -v mckey >/dev/null; then
	for link in roce ib; do
		group "--link $link" &
		talking[$link]=$!
	done
fi

for opts in "" "--link ib"; do
	cm "ucmatose, 4 connections, its ids moved to another channel" "$opts" ends "ucmatose -c 4" "ucmatose -c 4 -m -s 127.0.0.1"
	cm "udaddy" "$opts" ends "udaddy -c 2" "udaddy -c 2 -s 127.0.0.1"
	cm "rdma_server, rdma_client" "$opts" ends "rdma_server" "rdma_client"
	cm "rdma_xserver, rdma_xclient" "$opts" ends "rdma_xserver" "rdma_xclient"
	cm "rstream, rsockets" "$opts" ends "rstream -S 5000 -I 20 -C 10 -T v" "rstream -S 5000 -I 20 -C 10 -T v -s 127.0.0.1"
done
cm "ucmatose, type of service" "" ends "ucmatose" "ucmatose -t 96 -s 127.0.0.1"
cm "rcopy" "" for-ever "rcopy" "rcopy tests/softdev/README.md 127.0.0.1:$dir/copied"
try "rcopy: the copy is one" cmp tests/softdev/README.md "$dir/copied"
[ -n "$RDMA_CORE" ] && skip "cmtime, 20 connections" "later ones have other options" ||
	cm "cmtime, 20 connections" "" for-ever "cmtime -c 20" "cmtime -c 20 -s 127.0.0.1"

# A socket for datagrams of the process that `timeout` has started: then $port is its port
bound() # fabric, PID of timeout
{
	local child
	read -r child _ 2>/dev/null <"/proc/$2/task/$2/children"
	port=$(ls -l "/proc/${child:-none}/fd" 2>/dev/null | awk '
		NR == FNR { sub(/.*socket:\[/, ""); sub(/\]/, ""); mine[$0]; next }
		$10 in mine { sub(/.*:/, "", $2); print $2 }' - /proc/net/udp)
	port=$((16#${port:-0}))
	[ $port != 0 ]
}

# Sockets for datagrams know no GRH, so they have no way on RoCE; and no device at a loopback address
own=$(hostname -I 2>/dev/null)
own=${own%% *}
if [ -n "$own" ] && [[ $own != *:* ]]; then
	ready=bound cm "udpong, rsockets" "--link ib" for-ever "udpong -b $own -p 0 -S 64 -C 50" "udpong -s $own -p PORT -S 64 -C 50"
else
	skip "udpong, rsockets" "this machine has no address but the loopback ones"
fi

# Two ranks, every byte of what they send each other
cat >"$dir/ranks.c" <<'END'
#include <mpi.h>
#include <string.h>
static unsigned char out[1 << 20], in[1 << 20];
int main(int argc, char **argv)
{
	int rank, n, bad = 0, sum, size;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	for (size = 1; n == 2 && size <= 1 << 20; size *= 8)
		for (int i = 0; i < 3; i++) {
			memset(out, size + i + rank, size);
			MPI_Sendrecv(out, size, MPI_BYTE, !rank, i, in, size, MPI_BYTE, !rank, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			memset(out, size + i + !rank, size);
			bad += !!memcmp(in, out, size);
		}
	MPI_Allreduce(&bad, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Finalize();
	return n != 2 || sum;
}
END
mpi() # name, options of tests/softdev/run, options of mpirun...
{
	local name=$1 opts=$2
	shift 2
	if ! command -v mpirun >/dev/null || ! [ -x "$dir/ranks" ]; then
		skip "$name" "Open MPI is not installed"
		return
	fi
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 300 mpirun --oversubscribe --bind-to none -n 2 \
		--mca oob_tcp_if_include lo "$@" "$run" --fabric "$dir/fabric.$((count++))" $opts "$dir/ranks" >"$dir/out" 2>&1
	result $? "$name${opts:+ ($opts)}"
}
mpicc -o "$dir/ranks" "$dir/ranks.c" 2>"$dir/out"
for opts in "" ${PROGRAMS_ALL:+"--link ib"}; do
	mpi "Open MPI over libfabric's verbs;ofi_rxm" "$opts" --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "verbs;ofi_rxm"
done
# Debian's openib connects by datagrams of its own, on InfiniBand only
mpi "Open MPI over openib" "--link ib" --mca pml ob1 --mca btl openib,self --mca btl_openib_allow_ib 1

for link in roce ib; do
	if [ -z "${talking[$link]}" ]; then
		skip "mckey (--link $link)" "mckey is not installed"
		continue
	fi
	wait ${talking[$link]}
	status=$?
	cat "$dir"/group.${link: -2}.[abc] >"$dir/out" 2>&1
	result $status "mckey, two receivers (--link $link)"
done
finish
