#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# An installed inlay: a user's program builds with what pkg-config says and nothing else, as C and as C++; uninstall leaves nothing.
. tests/tap.sh

# C and C++. Calls into every layer: rings in its own memory, and a library function behind verbs.h.
cat >"$dir/user.c" <<'EOF'
#include <inlay/inlay.h>
#include <stdio.h>

static uint8_t ring[4096] __attribute__((aligned(4096))), completions[4096] __attribute__((aligned(4096)));
static uint8_t page[4096] __attribute__((aligned(4096)));

int main(void)
{
	uint32_t record[2] = {0, 0}, cq_record[2] = {0, 0};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct inlay_uar uar;
	struct inlay_sq sq;
	struct inlay_cq cq;
	uint64_t value = 42;

	if (list && list[0])
		fprintf(stderr, "mlx5: %d\n", mlx5dv_is_supported(list[0]));
	if (inlay_uar_init(&uar, page, 256, INLAY_UAR_SERIAL) || inlay_sq_init(&sq, ring, 64, record, 0x123, 8, &uar) ||
	    inlay_cq_init(&cq, completions, 64, 64, cq_record, NULL, 1))
		return 1;
	if (inlay_post_write_inline(&sq, 0x1000, 7, &value, sizeof(value), INLAY_SIGNALED))
		return 2;
	inlay_sq_ring(&sq);
	printf("%s opcode %u record %u\n", VERSION, ring[3], inlay_from_be32(record[1]));
	return 0;
}
EOF
version=$(sed -n 's/^.define INLAY_VERSION_[MP][A-Z]* //p' include/inlay/base.h | paste -sd.)

user() # name root prefix: builds and runs the program against what is installed there
{
	local flags language
	export PKG_CONFIG_PATH=$2$3/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$2
	same "$1: version" "$version" "$(pkg-config --modversion inlay)"
	flags=$(pkg-config --cflags --libs inlay)
	unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
	for language in "gcc -std=gnu11" "clang -std=gnu11" "g++ -std=c++17" "clang++ -std=c++17 -Wno-deprecated"; do
		rm -f "$dir/user"
		try "$1: $language builds" $language -O2 -Wall -Wextra -Werror -DVERSION="\"$version\"" -o "$dir/user" "$dir/user.c" $flags
		same "$1: $language runs" "$version opcode 8 record 1" "$("$dir/user" 2>/dev/null)"
	done
}

try "install with PREFIX" make --no-print-directory install PREFIX="$dir/usr"
same "all headers are there" "$(cd include && find . -type f | sort)" "$(cd "$dir/usr/include" && find . -type f | sort)"
user "PREFIX" "" "$dir/usr"
try "uninstall" make --no-print-directory uninstall PREFIX="$dir/usr"
same "nothing is left" "" "$(find "$dir/usr" ! -type d -o -name inlay)"

try "install with DESTDIR" make --no-print-directory install DESTDIR="$dir/stage" PREFIX=/opt/inlay
same "inlay.pc knows nothing of DESTDIR" "" "$(grep -F "$dir" "$dir/stage/opt/inlay/share/pkgconfig/inlay.pc")"
user "DESTDIR" "$dir/stage" /opt/inlay
try "uninstall" make --no-print-directory uninstall DESTDIR="$dir/stage" PREFIX=/opt/inlay
same "nothing is left" "" "$(find "$dir/stage" ! -type d -o -name inlay ! -path '*/opt/inlay')"
try "install into a folder with a blank" make --no-print-directory install DESTDIR="$dir/a b" PREFIX=/usr
mkdir -p "$dir/a" && >"$dir/a/stays" && >"$dir/a b/usr/include/inlay/mine.h"
try "uninstall" make --no-print-directory uninstall DESTDIR="$dir/a b" PREFIX=/usr
same "only what was installed has gone" "a b/usr/include/inlay/mine.h
a/stays" "$(cd "$dir" && find 'a b' a -type f | sort)"
make --no-print-directory install PREFIX=relative >"$dir/out" 2>&1 && false
same "a relative PREFIX is refused" "PREFIX=relative is not an absolute path" "$(grep -o 'PREFIX=.*path' "$dir/out")"
finish
