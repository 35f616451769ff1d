#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The examples that no other script runs.
. tests/tap.sh

on() # options of tests/softdev/run, program
{
	if [ -n "$DEVICE" ]; then
		timeout 60 "$B/examples/$2"
	else
		timeout 60 tests/softdev/run --fabric "$dir/fabric" $1 "$B/examples/$2"
	fi
}

for link in roce ib; do
	try "shared_memory, $link" on "--link $link" shared_memory
	same "shared_memory, $link: what both said" "guest: wrote, read and counted; then the door was closed
owner: the board says \"the guest was here\", 1 counted" "$(sort "$dir/out")"
	[ -z "$DEVICE" ] || break
done
finish
