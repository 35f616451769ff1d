#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The libfabric provider over dynamic connections: programs of this folder with FI_INLAY_TRANSPORT=dc, checked; PROGRAMS_ALL=1 runs more of
# them, and the unchecked ones too.
. tests/tap.sh

export FI_INLAY_TRANSPORT=dc FI_INLAY_TAG_OFFLOAD=0 # which is of rc
for program in messages peers stranger ${PROGRAMS_ALL:+atomic soak}; do
	for checked in ${PROGRAMS_ALL:+0} 1; do
		try "$program-$checked" bash tests/exec "$B/tests/fabric/$program-$checked"
	done
done

FI_INLAY_TRANSPORT=DC FI_LOG_LEVEL=warn FI_PROVIDER_PATH=$B/checked tests/softdev/run fi_info -p inlay >"$dir/out" 2>&1 &&
	grep -q 'transport is rc or dc' "$dir/out"
result $? "another name of a transport is not taken"
finish
