#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that connect by librdmacm and know nothing of the software device, each pair as two processes on one fabric: rdmacm-utils',
# perftest with -R, libfabric's verbs provider; and Open MPI over libfabric, and over its openib component. On RoCE and on InfiniBand.
. tests/tap.sh

run=tests/softdev/run
count=0

# Server and client; good when both are. "for-ever" instead of "ends": the server is ended when the client is done. A client that
# came before its server listens would be refused, some of its connections perhaps, which is more than most servers bear: it waits
ready=listens
once() # options of tests/softdev/run, ends or for-ever, server's command, client's command
{
	local server s c fabric=$dir/fabric.$((count++))
	timeout 300 $run --fabric $fabric $1 $3 >"$dir/server.out" 2>&1 &
	server=$!
	until $ready $fabric || ! kill -0 $server 2>/dev/null; do
		sleep 0.02
	done
	timeout 300 $run --fabric $fabric $1 $4 >"$dir/client.out" 2>&1
	c=$?
	[ $c = 0 ] && [ $2 = ends ] || kill $server 2>/dev/null
	wait $server
	s=$?
	[ $2 = ends ] || s=0
	{
		echo "server, status $s:"
		cat "$dir/server.out"
		echo "client, status $c:"
		cat "$dir/client.out"
	} >"$dir/out"
	[ $s = 0 ] && [ $c = 0 ]
}

# Does a process listen? The device says so in the 25th byte of a record of 48: see struct record in cmaddr.c
listens() # fabric
{
	[ -e $1/cm.ports ] && od -An -v -t u1 -w48 $1/cm.ports | awk '$25 == 1 { found = 1 } END { exit !found }'
}

# Does a socket for datagrams have the port?
bound() # port
{
	grep -q "$(printf ':%04X ' $1)" /proc/net/udp
}

cm() # name, options of tests/softdev/run, ends or for-ever, server's command, client's command: one test
{
	racing '' "$@"
}

# Some race with themselves, and one side then says so: both start again, and the test tells of it
racing() # what is then said, name, options of tests/softdev/run, ends or for-ever, server's command, client's command: one test
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
		[ $status != 0 ] && [ -n "$said" ] && grep -zqE "$said" "$dir/out" || break
		note "again, after $(grep -zoEm1 "$said" "$dir/out" | tr -d '\0' | tail -n 1): $name"
	done
	result $status "$name"
}

# On either side, rping's thread for events may ask once more after main has closed the channel. By
# then both have seen all
pings() # as cm
{
	racing 'status 255:(.|\n)*rdma_get_cm_event: Bad file descriptor' "$@"
}

# It asks for its second connection before its server surely listens for it. Refused, it tries again
# with what it has freed, and may crash
perftest() # options of tests/softdev/run, command...
{
	racing 'RDMA_CM_EVENT_(REJECTED|UNREACHABLE)' "${*:2}" "$1" ends "${*:2}" "${*:2} 127.0.0.1"
}

# Its two sides find each other over TCP
pingpong() # name, options of tests/softdev/run, options of fi_pingpong...
{
	local port=$(free_port)
	local ready="listening $port"
	cm "$1" "$2" ends "fi_pingpong ${*:3} -I 20 -B $port" "fi_pingpong ${*:3} -I 20 -P $port 127.0.0.1"
}

# Two that listen and one that talks; it waits three seconds before it does, and others go on meanwhile
group() # options
{
	local fabric=$dir/group.${1: -2} a b c
	timeout 300 $run --fabric $fabric $1 stdbuf -oL mckey -m 239.1.1.1 -C 5 -S 1000 >"$fabric.a" 2>&1 &
	a=$!
	timeout 300 $run --fabric $fabric $1 stdbuf -oL mckey -m 239.1.1.1 -C 5 -S 1000 -c 2 >"$fabric.b" 2>&1 &
	b=$!
	until [ "$(cat "$fabric.a" "$fabric.b" | grep -c joined)" = 3 ] || ! kill -0 $a $b 2>/dev/null; do
		sleep 0.05
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
	pings "rping" "$opts" ends "rping -s -C 10 -V -S 4000" "rping -c -C 10 -V -S 4000 -a 127.0.0.1"
	cm "ucmatose, 4 connections, its ids moved to another channel" "$opts" ends "ucmatose -c 4" "ucmatose -c 4 -m -s 127.0.0.1"
	cm "udaddy" "$opts" ends "udaddy -c 2" "udaddy -c 2 -s 127.0.0.1"
	cm "rdma_server, rdma_client" "$opts" ends "rdma_server" "rdma_client"
	cm "rdma_xserver, rdma_xclient" "$opts" ends "rdma_xserver" "rdma_xclient"
	cm "rstream, rsockets" "$opts" ends "rstream -S 5000 -I 20 -C 10 -T v" "rstream -S 5000 -I 20 -C 10 -T v -s 127.0.0.1"
	pingpong "fi_pingpong, verbs, messages" "$opts" -p verbs -e msg -S 5000
	pingpong "fi_pingpong, verbs;ofi_rxm" "$opts" -p "verbs;ofi_rxm" -e rdm -c -S 100000
	perftest "$opts" ib_write_bw -R -n 100
done
pings "rping, IPv6" "" ends "rping -s -C 3 -a ::" "rping -c -C 3 -V -a ::1"
pings "rping, another device" "--devices 3" ends "rping -s -C 3" "rping -c -C 3 -V -a 10.0.0.3"
pings "rping, a server for many" "" for-ever "rping -s -P" "rping -c -C 3 -V -a 127.0.0.1"
cm "ucmatose, type of service" "" ends "ucmatose" "ucmatose -t 96 -s 127.0.0.1"
# Its server listens before it says how many buffers may be mapped
racing "riomap: Cannot allocate memory" "riostream, rsockets" "" \
	ends "riostream -S 4096 -I 20 -C 10 -T v" "riostream -S 4096 -I 20 -C 10 -T v -s 127.0.0.1"
cm "rcopy" "" for-ever "rcopy" "rcopy tests/softdev/README.md 127.0.0.1:$dir/copied"
try "rcopy: the copy is one" cmp tests/softdev/README.md "$dir/copied"
cm "cmtime, 20 connections" "" for-ever "cmtime -c 20" "cmtime -c 20 -s 127.0.0.1"
perftest "" ib_send_lat -R -n 100
perftest "" ib_send_bw -R -c UD -n 100 -s 1024
pingpong "fi_pingpong, verbs;ofi_rxd" "" -p "verbs;ofi_rxd" -e rdm -c -S 5000
# Sockets for datagrams know no GRH, so they have no way on RoCE; and no device at a loopback address
own=$(hostname -I 2>/dev/null)
own=${own%% *}
if [ -n "$own" ] && [[ $own != *:* ]]; then
	port=$(free_port)
	ready="bound $port" cm "udpong, rsockets" "--link ib" \
		for-ever "udpong -b $own -p $port -S 64 -C 50" "udpong -s $own -p $port -S 64 -C 50"
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
	if ! command -v mpirun >/dev/null || ! mpicc -o "$dir/ranks" "$dir/ranks.c" 2>"$dir/out"; then
		skip "$name" "Open MPI is not installed"
		return
	fi
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 300 mpirun --oversubscribe --bind-to none -n 2 \
		--mca oob_tcp_if_include lo "$@" "$run" --fabric "$dir/fabric.$((count++))" $opts "$dir/ranks" >"$dir/out" 2>&1
	result $? "$name${opts:+ ($opts)}"
}
for opts in "" "--link ib"; do
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
