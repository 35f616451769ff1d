#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The golden bytes are what golden.c writes through libmlx5, and mean what they say by check.py, which notices any spoiled line.
# WRITE=1 writes them anew.
. tests/tap.sh

golden=tests/golden/golden.txt
if [ -n "$DEVICE" ]; then
	skip "the file is what libmlx5 writes" "a NIC would execute what is posted"
else
	try "golden.c" $CC -x c -std=gnu11 -O1 -Wall -Wextra -Itests/softdev tests/golden/golden.c -o "$dir/golden" -lmlx5 -libverbs
	{ tests/softdev/run --manual --link ib --fabric "$dir/fabric" "$dir/golden" &&
		tests/softdev/run --manual --fabric "$dir/fabric" "$dir/golden" packets; } >"$dir/written" 2>"$dir/out"
	result $? "it writes"
	[ -z "$WRITE" ] || cp "$dir/written" $golden
	try "the file is what libmlx5 writes" cmp "$dir/written" $golden
fi
if ! command -v python3 >/dev/null; then
	skip "the bytes mean what the file says" "python3 is not installed"
	finish
	exit
fi
try "the bytes mean what the file says" python3 tests/golden/check.py $golden
note "$(cat "$dir/out")"
lines=$(grep -vc '^#' $golden)
same "there are 2,000" 1 $((lines >= 2000))
perl -pe 'next if /^#/; /^cqe/ ? s/status=\d+/status=99/ : s/([0-9a-f])(\.*)$/sprintf("%x", hex($1) ^ 1) . $2/e' $golden >"$dir/spoiled"
same "each line is checked" "$lines wrong" "$(python3 tests/golden/check.py "$dir/spoiled" | grep -o '[0-9]* wrong$')"
finish
