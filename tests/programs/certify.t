#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The report of make certify, rehearsed on the software device.
. tests/tap.sh

# Few messages, and time for them: on a busy machine each takes tens of milliseconds
export CERTIFY_PROGRAMS="queue/twins queue/dm" CERTIFY_ITERS=20 CERTIFY_TIMEOUT=600

certify() # status arguments...: tests/certify gives that status; the report is $dir/report
{
	local want=$1 got
	shift
	tests/softdev/run tests/certify "$@" >"$dir/report" 2>"$dir/err"
	got=$?
	cat "$dir/report" "$dir/err"
	[ $got = $want ]
}

has() # name pattern
{
	cp "$dir/report" "$dir/out"
	grep -q -- "$2" "$dir/report"
	result $? "$1"
}

same "the programs are those of the suite" "" \
	"$(for p in $(env -u CERTIFY_PROGRAMS tests/certify --programs); do [ -f tests/$p.c ] || echo $p; done)"
try "no device: it says so" certify 2 mlx5_7
try "without a name: it says how" certify 2
try "a report is made" certify 0 mlx5_0
has "it passed" '^# inlay [0-9.]* on mlx5_0: passed$'
has "device and firmware" '^| firmware | [0-9]*\.[0-9]*\.[0-9]* |$'
for kind in RC UC UD; do
	has "bytes of $kind were compared" "^- $kind: [1-9][0-9]* WQEs and records are libmlx5's, [1-9][0-9]* bytes"
done
has "a row of each program: twins" '^| `queue/twins` | what inlay writes .* | 1 | 0 | 0 |$'
has "and of another" '^| `queue/dm` | device memory | [1-9][0-9]* | 0 | [0-9]'
command -v ib_write_lat >/dev/null && theirs='[0-9.]\+ UNIT' ratio='[0-9.]\+' || theirs="skipped, as .* is not installed.*" ratio=-
for unit in "us lat" "million/s bw"; do
	has "inlay beside perftest: ${unit#* }" "| [0-9.]\+ ${unit% *} | ${theirs/UNIT/${unit% *}} (\`ib_write_${unit#* }\`) | $ratio |$"
done
has "that it is a rehearsal" 'A rehearsal on the software device'
same "it fits a page" 1 "$(($(wc -l <"$dir/report") < 60))"
note "$(grep '(`ib_write' "$dir/report")"

# A latency that cannot be measured is a failure
CERTIFY_PROGRAMS=queue/dm CERTIFY_ITERS=0 try "without a latency" certify 1 mlx5_0
has "it did not pass" '^# inlay [0-9.]* on mlx5_0: NOT passed$'
has "with pingpong's reason" '^    pingpong: --iters '
has "nothing was compared" '^- nothing was compared$'

# What fails is in the report: every message damaged
unset CERTIFY_TIMEOUT
export SOFTDEV_FAULT=corrupt@*
try "a failure is the report's" certify 1 mlx5_0
has "it did not pass" '^# inlay [0-9.]* on mlx5_0: NOT passed$'
has "the program failed" '^| `queue/twins` | .* | [0-9]* | [1-9][0-9]* | 0 |$'
has "with its output" '^queue/twins:$'
finish
