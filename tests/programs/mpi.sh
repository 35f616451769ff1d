# SPDX-License-Identifier: BSD-3-Clause
# What the scripts share that run mpi/*.c, an MPI program, under Debian's Open MPI and MPICH. After tap.sh.

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 MPIR_CVAR_POLLS_BEFORE_YIELD=1
export TMPDIR=$dir # Open MPI leaves a folder there
export FI_VERBS_DEVICE_NAME=none # libfabric's own provider, which nobody asks for, tries out the largest queues of each device

# More ranks than processors, none of them elsewhere, and no way to another but the one that the caller names
openmpi=(mpirun.openmpi --oversubscribe --bind-to none --mca plm isolated --mca oob_tcp_if_include lo --mca coll ^sm,hcoll)
mpich=(mpiexec.hydra -launcher fork)

mpi_build() # openmpi or mpich: $dir/NAME; says so when it is not installed
{
	if ! command -v mpicc.$1 >/dev/null || ! command -v "$(eval "echo \$$1")" >/dev/null; then
		skip "$1" "it is not installed"
		return 1
	fi
	# MPICH's MPI_STATUSES_IGNORE is 1, an array too small for gcc
	try "mpi/*.c by $1" env OMPI_CC=$CC MPICH_CC=$CC mpicc.$1 -std=gnu11 -O2 -g -Wall -Wextra -Werror -Wno-unknown-warning-option -Wno-stringop-overflow -pthread \
		-o "$dir/$1" tests/programs/mpi/*.c
	# Each rank's words in a file of its own
	cat >"$dir/$1.rank" <<-EOT
		#!/bin/sh
		exec >"$dir/rank.\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}" 2>&1
		exec \$RANK_BY "$dir/$1" "\$@"
	EOT
	chmod +x "$dir/$1.rank"
}

# mpi RANKS OPTIONS ARGUMENT...: runs $starts (words that start Open MPI or MPICH) with the program $which; good when all parts
# ended well. $dir/out has what all ranks said; $parts is how many parts there are to verify.
mpi()
{
	local ranks=$1 opts=$2 status r
	shift 2
	rm -f "$dir"/rank.*
	timeout -k 5 500 tests/softdev/run --fabric "$dir/fabric" $opts "${starts[@]}" -n "$ranks" "$dir/$which.rank" "$@" \
		>"$dir/started" 2>&1
	status=$?
	{
		echo "status $status: ${starts[*]} -n $ranks ... $*"
		cat "$dir/started" "$dir"/rank.*
	} >"$dir/out"
	[ $status = 0 ] && [ "$(grep -c '^[a-z0-9]*: verified [1-9][0-9]* bytes$' "$dir/rank.0")" = "$parts" ] || return
	for ((r = 0; r < ranks; r++)); do
		grep -q "^rank $r of $ranks sent " "$dir/rank.$r" || return
	done
}
