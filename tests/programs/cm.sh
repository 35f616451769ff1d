# SPDX-License-Identifier: BSD-3-Clause
# Pairs of programs that meet through librdmacm, for the scripts that run them. After tap.sh.

run=tests/softdev/run
count=0

# Does a process listen? The device says so in the 25th byte of a record of 48: see struct record in cmaddr.c
listens() # fabric
{
	[ -e $1/cm.ports ] && od -An -v -t u1 -w48 $1/cm.ports | awk '$25 == 1 { found = 1 } END { exit !found }'
}

# A client that came before its server listens would be refused, some of its connections perhaps, which is more than most servers bear: it
# waits until $ready, with the fabric and the server's process, is true
ready=listens
once() # options of tests/softdev/run, ends or for-ever, server's command, client's command
{
	local port fabric=$dir/fabric.$((count++))
	together $2 "$ready $fabric" "timeout 300 $run --fabric $fabric $1 $3" "timeout 300 $run --fabric $fabric $1 $4"
}

cm() # name, options of tests/softdev/run, ends or for-ever, server's command, client's command: one test
{
	local name="$1${2:+ ($2)}"
	shift
	if ! command -v ${3%% *} >/dev/null; then
		skip "$name" "${3%% *} is not installed"
		return
	fi
	once "$@"
	result $? "$name"
}
