#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that Debian builds for Open MPI, unmodified, over the libfabric provider, as part of check-all (MPI_MATRIX=1): NetPIPE, which
# verifies what it receives; the testers of BLACS and ScaLAPACK, which verify all results; LAMMPS, whose atoms must move as in a
# serial run without the provider. That they have no other way is shown in mpi.t.
. tests/tap.sh
. tests/programs/mpi.sh

if [ -z "$MPI_MATRIX" ]; then
	echo "1..0 # SKIP part of check-all"
	exit
fi

testers=/usr/lib/$(gcc -print-multiarch)/scalapack/openmpi-tests
openmpi+=(-wdir "$dir" --mca btl self)
over=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include inlay --mca osc pt2pt)
export FI_PROVIDER_PATH=$(realpath "$B") SOFTDEV_SO=$(realpath "${SOFTDEV_SO:-$B/libsoftdev.so}")

fabric() # ranks, options of tests/softdev/run, command...
{
	local ranks=$1 opts=$2
	shift 2
	timeout -k 5 300 tests/softdev/run --fabric "$dir/fabric" $opts "${openmpi[@]}" "${over[@]}" -n "$ranks" "$@" >"$dir/out" 2>&1
}

installed() # package, program
{
	command -v "$2" >/dev/null || { skip "$1" "it is not installed: see make deps-all"; return 1; }
}

# The words of each argument in a line of their own
lines()
{
	printf '%s\n' "$@"
}

# ---- NetPIPE ----

# Up to 1 MiB in 40 sizes. What the other process says may stand in the middle of a line. In both directions at a time it must post its
# receives first.
netpipe() # what, options of tests/softdev/run, options of NetPIPE...
{
	local what=$1 opts=$2
	shift 2
	fabric 2 "$opts" NPopenmpi -i -l 1 -u 1048576 -n 3 -o "$dir/np" "$@" &&
		[ "$(grep -c ' bytes .*times -->' "$dir/out")" = 40 ] && grep -q ' 1048576 bytes ' "$dir/out" &&
		[ "$(grep -c ' Integrity check passed$' "$dir/out")" = 40 ]
	result $? "NetPIPE, $what"
}

if installed netpipe-openmpi NPopenmpi; then
	netpipe "messages lost, late and twice" "--fault drop@/500,delay=300@/40,dup@/30"
	netpipe "receives posted first, of any source" "--link ib" -a -z
	netpipe "both directions, synchronous" "" -a -2 -S
fi

# ---- BLACS and ScaLAPACK, on 2 by 2 processes ----

# Their inputs are files of a fixed name, one value or list in a line
tester() # what, options of tests/softdev/run, program, its good end
{
	fabric 4 "$2" "$testers/$3" && grep -q "$4" "$dir/out"
	result $? "$1"
}

passed() # all of them, as that many were asked for
{
	echo "^ *$1 tests completed and passed residual checks"
}

if installed scalapack-mpi-test "$testers/xdlu"; then
	grid=(1 2 2)
	title=("'inlay'" "'inlay'")
	lines "'inlay'" 6 "'bt.out'" "'T'" "'T'" "'T'" "'F'" 2 "'I' 'Z'" 0 >"$dir/bt.dat"
	matrices=(2 "3 90" "2 70" "4 90" "3 95")
	lines 2 "'G' 'U'" "'E' 'N'" "${matrices[@]}" 2 "0 1" "0 1" "1 0" "1 0" "${grid[@]}" >"$dir/sdrv.dat"
	lines 3 "'R' 'C' 'A'" 3 "' ' 'I' 'T'" 2 "'G' 'L'" "'E' 'U'" "${matrices[@]}" 2 "0 1" "0 1" "${grid[@]}" >"$dir/bsbr.dat"
	lines 3 "'+' '>' '<'" 3 "'R' 'C' 'A'" 2 2 2 "' ' 'T'" 2 "3 40" "5 30" "5 41" "9 40" "9 40" 2 "0 -1" "1 -1" "${grid[@]}" >"$dir/comb.dat"
	tester "BLACS: point to point, broadcasts, sums and extremes" "" xFbtest 'THERE WERE NO FAILURES IN THIS TEST RUN'

	lines "${title[@]}" "'LU.out'" 6 2 "13 300" "13 300" 1 64 1 9 1 8 "${grid[@]}" 1.0 F >"$dir/LU.dat"
	tester "ScaLAPACK: LU" "--link ib" xdlu "$(passed 2)"
	lines "${title[@]}" "'LLT.out'" 6 "'U'" 2 "13 200" 1 32 1 9 1 8 "${grid[@]}" 3.0 F >"$dir/LLT.dat"
	tester "ScaLAPACK: Cholesky, complex" "" xzllt "$(passed 2)"
	lines "${title[@]}" "'QR.out'" 6 3 "'QR' 'LQ' 'QP'" 2 "13 200" "20 150" 1 48 32 "${grid[@]}" 5.0 >"$dir/QR.dat"
	tester "ScaLAPACK: QR, messages lost, late and twice" "--fault drop@/500,delay=300@/40,dup@/30" xdqr "$(passed 6)"
	lines "${title[@]}" "'INV.out'" 6 2 "'GEN' 'UPD'" 2 "13 60" 1 8 "${grid[@]}" 1.0 >"$dir/INV.dat"
	tester "ScaLAPACK: inverses" "" xdinv "$(passed 4)"
fi

# ---- LAMMPS ----

thermo() # file: what it says of each twentieth step
{
	sed -n '/^ *Step/,/^Loop time/{/^Loop/!p}' "$1"
}

if installed lammps lmp; then
	lines "units lj" "atom_style atomic" "lattice fcc 0.8442" "region box block 0 5 0 5 0 5" "create_box 1 box" "create_atoms 1 box" \
		"mass 1 1.0" "velocity all create 1.44 87287 loop geom" "pair_style lj/cut 2.5" "pair_coeff 1 1 1.0 1.0 2.5" \
		"neighbor 0.3 bin" "neigh_modify every 5 delay 0 check no" "fix 1 all nve" "thermo 20" "thermo_modify format float %.6f" \
		"run 100" >"$dir/melt"
	timeout -k 5 300 "${openmpi[@]}" --mca pml ob1 -n 1 lmp -in melt -log serial -screen none >"$dir/out" 2>&1 &&
		[ "$(thermo "$dir/serial" | grep -c '^ *[0-9]')" = 6 ]
	result $? "LAMMPS: 500 atoms melt, one process"
	fabric 4 "" lmp -in melt -log four -screen none && grep -q '^Loop time .* on 4 procs for 100 steps with 500 atoms' "$dir/four" &&
		diff <(thermo "$dir/serial") <(thermo "$dir/four") >>"$dir/out"
	result $? "LAMMPS: four processes over the provider, the same temperatures, energies and pressures"
fi
finish
