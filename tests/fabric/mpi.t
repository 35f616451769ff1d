#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's Open MPI, unmodified, over the libfabric provider (examples/fabric): its messages through mtl/ofi, one-sided operations
# through btl/ofi, each rank a process with a device of its own. programs/mpi/*.c verifies every byte and every result. It has no other
# way: without the provider it does not start. MPI_MATRIX=1 adds longer runs, other seeds, numbers of ranks, more faults and LAMMPS.
#
# Debian's MPICH is built for UCX and cannot use libfabric: see programs/mpi.t.
. tests/tap.sh
. tests/programs/mpi.sh

export FI_PROVIDER_PATH=$B/checked FI_INLAY_PEERS=64
openmpi+=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include inlay --mca btl_ofi_provider_include inlay)
rounds=1 lost=600
[ -z "$MPI_MATRIX" ] || rounds=2 lost=500
which=openmpi

onesided() # by rdma, which is btl/ofi, or pt2pt, which is messages
{
	starts=("${openmpi[@]}" --mca osc $1 --mca btl $([ $1 = rdma ] && echo self,ofi || echo self))
}

verify() # ranks, what, options of tests/softdev/run, argument...
{
	local ranks=$1 what=$2 opts=$3
	shift 3
	mpi "$ranks" "$opts" -r $rounds "$@"
	result $? "$ranks ranks, $what: every byte"
}

# libfabric's own program, which verifies what it receives
if command -v fi_pingpong >/dev/null; then
	hold_port
	pingpong="timeout -k 5 300 tests/softdev/run --fabric $dir/fabric fi_pingpong -p inlay -e rdm -c -I 20 -S 100000"
	together ends "listening $port" "$pingpong -B $port" "$pingpong -P $port 127.0.0.1" && grep -q '97k' "$dir/client.out"
	result $? "fi_pingpong: every byte"
else
	skip "fi_pingpong" "it is not installed"
fi

if mpi_build openmpi; then
	onesided rdma
	parts=3
	FI_INLAY_TAG_OFFLOAD=256 verify 2 "RoCE, MPI_THREAD_MULTIPLE, tags matched by the device" "" -t threads p2p rma
	parts=2
	printf '#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 1 ] || export SOFTDEV_FAULT=syndrome=0x15@300\nexec "$@"\n' >"$dir/fails"
	chmod +x "$dir/fails"
	RANK_BY=$dir/fails FI_INLAY_RAILS=2 verify 2 "two devices, and a connection over one fails" "--devices 2" p2p rma
	parts=1
	[ -n "$MPI_MATRIX" ] || verify 3 "RoCE" "" -s 2 storm
	parts=3
	[ -z "$MPI_MATRIX" ] || verify 4 "InfiniBand" "--link ib" -s 2
	verify 2 "InfiniBand, messages lost, late and twice" "--link ib --fault drop@/$lost,delay=300@/40,dup@/30" -s 3
	FI_INLAY_TRANSPORT=dc verify $([ -n "$MPI_MATRIX" ] && echo 4 || echo 2) "dynamic connections" "" -s 9
	if [ -n "$MPI_MATRIX" ]; then
		verify 4 "messages lost, late and twice" "--fault drop@/300,delay=300@/40,dup@/30" -s 4
		MLX5_CQE_SIZE=128 verify 3 "RoCE, CQEs of 128 bytes" "" -s 5
		verify 8 "RoCE" "" -s 6
		parts=4
		verify 4 "RoCE, MPI_THREAD_MULTIPLE" "" -t -s 8
		parts=3
		onesided pt2pt
		verify 4 "one-sided by messages" "" -s 7
	fi

	# An application of Debian's: atoms that melt must move as in a serial run without the provider
	thermo() # file: what it says of each twentieth step
	{
		sed -n '/^ *Step/,/^Loop time/{/^Loop/!p}' "$1"
	}
	if [ -n "$MPI_MATRIX" ] && ! command -v lmp >/dev/null; then
		skip "LAMMPS" "it is not installed"
	elif [ -n "$MPI_MATRIX" ]; then
		printf '%s\n' "units lj" "atom_style atomic" "lattice fcc 0.8442" "region box block 0 5 0 5 0 5" "create_box 1 box" \
			"create_atoms 1 box" "mass 1 1.0" "velocity all create 1.44 87287 loop geom" "pair_style lj/cut 2.5" \
			"pair_coeff 1 1 1.0 1.0 2.5" "neighbor 0.3 bin" "neigh_modify every 5 delay 0 check no" "fix 1 all nve" "thermo 20" \
			"thermo_modify format float %.6f" "run 100" >"$dir/melt"
		(
			export SOFTDEV_SO=$(realpath "${SOFTDEV_SO:-$B/libsoftdev.so}") FI_PROVIDER_PATH=$(realpath "$B/checked")
			timeout -k 5 300 mpirun.openmpi "${openmpi[@]:1:6}" -wdir "$dir" --mca pml ob1 --mca btl self -n 1 lmp -in melt -log serial \
				-screen none && timeout -k 5 300 tests/softdev/run --fabric "$dir/fabric" "${openmpi[@]}" --mca osc pt2pt --mca btl self \
				-wdir "$dir" -n 4 lmp -in melt -log four -screen none
		) >"$dir/out" 2>&1 && grep -q '^Loop time .* on 4 procs for 100 steps with 500 atoms' "$dir/four" &&
			[ "$(thermo "$dir/serial" | grep -c '^ *[0-9]')" = 6 ] && diff <(thermo "$dir/serial") <(thermo "$dir/four") >>"$dir/out"
		result $? "LAMMPS: 500 atoms melt, four processes over the provider as one without"
	fi

	# Would it be seen?
	parts=1
	! FI_PROVIDER_PATH=$dir mpi 2 "" storm && grep -q 'PML cm cannot be selected' "$dir/out"
	result $? "without the provider there is no way"
fi
finish
