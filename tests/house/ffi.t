#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# make ffi: the shared object exports each public function that inlay.h has and nothing internal, and a Python program posts and polls.
. tests/tap.sh

try "make ffi" make --no-print-directory B=$B ffi
so=$B/ffi/libinlay-ffi.so
perl tests/house/api.pl $(gcc -MM -Iinclude pkgconfig/ffi.c | grep -o 'include/inlay/[a-z0-9_/]*\.h') | awk '{ print $2 }' | sort >"$dir/public"
nm -D --defined-only $so | awk '$2 == "T" { print $3 }' | sed 's/@.*//' | sort >"$dir/exported"
note "$(wc -l <"$dir/exported") functions"
same "the public functions are exported" "" "$(comm -23 "$dir/public" "$dir/exported")"
same "with a version, and nothing else is" "INLAY_$(sed -n 's/^.define INLAY_VERSION_M[AI][A-Z]* //p' include/inlay/base.h | paste -sd.)" \
	"$(nm -D --defined-only $so | sed 's/.* inlay_[a-z0-9_]*[a-z0-9]@@//; s/.* A //' | sort -u)"
if command -v python3 >/dev/null; then
	same "Python posts and polls" "ffi.py: wrote 0x1122334455667788 and found it" \
		"$(INLAY_FFI=$so SOFTDEV_SO=$(realpath "$SOFTDEV_SO") tests/softdev/run python3 examples/ffi.py 2>&1)"
else
	skip "Python posts and polls" "python3 is not installed"
fi
finish
