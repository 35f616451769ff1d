#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# An installed inlay: a user's program builds with what pkg-config says and nothing else, as C and as C++, and with
# CMake; uninstall leaves nothing. And what make does when it is called from elsewhere, or with other settings.
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

user() # name root prefix compilers...: builds and runs the program against what is installed there
{
	local flags language name=$1 root=$2 prefix=$3
	shift 3
	export PKG_CONFIG_PATH=$root$prefix/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
	same "$name: version" "$version" "$(pkg-config --modversion inlay)"
	eval "flags=($(pkg-config --cflags --libs inlay))"
	unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
	for language; do
		rm -f "$dir/user"
		try "$name: $language builds" $language -O2 -Wall -Wextra -Werror -DVERSION="\"$version\"" -o "$dir/user" "$dir/user.c" \
			"${flags[@]}"
		same "$name: $language runs" "$version opcode 8 record 1" "$("$dir/user" 2>/dev/null)"
	done
}

mkdir -p "$dir/project"
cp "$dir/user.c" "$dir/project/user.c"
cp "$dir/user.c" "$dir/project/user.cpp"
cat >"$dir/project/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.18)
project(user C CXX)
find_package(inlay ${WANTED} REQUIRED)
add_compile_definitions(VERSION="${inlay_VERSION}")
foreach(language c cpp)
  add_executable(user-${language} user.${language})
  target_link_libraries(user-${language} PRIVATE inlay::inlay)
endforeach()
EOF

built() # name folder: what a build system has built there runs
{
	same "$1: the programs run" "$version opcode 8 record 1 $version opcode 8 record 1" \
		"$(echo $("$2/user-c" 2>/dev/null; "$2/user-cpp" 2>/dev/null))"
}

systems() # name prefix: the same program by build systems, each in a new folder
{
	if command -v cmake >/dev/null; then
		try "$1: CMake finds inlay" cmake -S "$dir/project" -B "$dir/cmake" -DCMAKE_PREFIX_PATH="$2" -DWANTED="${version%.*}"
		try "$1: CMake builds" cmake --build "$dir/cmake"
		built "$1: CMake" "$dir/cmake"
		! cmake -S "$dir/project" -B "$dir/cmake" -DWANTED=99.0 >"$dir/out" 2>&1 &&
			grep -q "version: $version" "$dir/out"
		result $? "$1: CMake refuses another version"
	else
		skip "$1: CMake" "cmake is not installed"
	fi
}

prefix="$dir/a user/of it"
try "install with a PREFIX that has blanks" make --no-print-directory install PREFIX="$prefix"
same "all headers are there" "$(cd include && find . -name '*.h' | sort)" "$(cd "$prefix/include" && find . -type f | sort)"
user "PREFIX" "" "$prefix" "clang -std=gnu11" "g++ -std=c++17"
systems "PREFIX" "$prefix"
try "uninstall" make --no-print-directory uninstall PREFIX="$prefix"
same "nothing is left" "" "$(find "$prefix" ! -type d -o -name inlay)"

try "install with DESTDIR" make --no-print-directory install DESTDIR="$dir/stage" PREFIX=/opt/inlay
same "inlay.pc knows nothing of DESTDIR" "" "$(grep -F "$dir" "$dir/stage/opt/inlay/share/pkgconfig/inlay.pc")"
user "DESTDIR" "$dir/stage" /opt/inlay "gcc -std=gnu11"
try "uninstall" make --no-print-directory uninstall DESTDIR="$dir/stage" PREFIX=/opt/inlay
same "nothing is left" "" "$(find "$dir/stage" ! -type d -o -name inlay ! -path '*/opt/inlay')"
try "install into a folder with a blank" make --no-print-directory install DESTDIR="$dir/a b" PREFIX=/usr
mkdir -p "$dir/a" && >"$dir/a/stays" && >"$dir/a b/usr/include/inlay/mine.h"
try "uninstall" make --no-print-directory uninstall DESTDIR="$dir/a b" PREFIX=/usr
same "only what was installed has gone" "a b/usr/include/inlay/mine.h
a/stays" "$(cd "$dir" && find 'a b' a -type f | sort)"
make --no-print-directory install PREFIX=relative >"$dir/out" 2>&1 && false
same "a relative PREFIX is refused" "PREFIX=relative is not an absolute path" "$(grep -o 'PREFIX=.*path' "$dir/out")"

# ---- Elsewhere, and with other settings ----

top=$PWD
! (cd "$dir" && make -f "$top/Makefile" install DESTDIR="$dir/elsewhere" PREFIX=/usr) >"$dir/out" 2>&1 &&
	grep -q "make -C $top/ install" "$dir/out" && [ ! -e "$dir/elsewhere" ]
result $? "make -f from another folder refuses, says how, and installs nothing"
(cd "$dir" && make -C "$top" --no-print-directory install DESTDIR="$dir/elsewhere" PREFIX=/usr) >"$dir/out" 2>&1
same "make -C from another folder installs" "$(cd include && find . -name '*.h' | sort)" \
	"$(cd "$dir/elsewhere/usr/include" && find . -type f | sort)"

compiled() # settings...: how many objects make compiles with them
{
	make --no-print-directory B="$dir/b" "$@" "$dir/b/softdev/engine/cqe.o" >"$dir/out" 2>&1 || cat "$dir/out"
	grep -c '  CC ' "$dir/out"
}

same "make compiles, and not again" "1 0" "$(compiled) $(compiled)"
same "other CFLAGS, another CC: it does" "1 1 0" "$(compiled CFLAGS=-O1) $(compiled CFLAGS=-O1 CC=clang) $(compiled CFLAGS=-O1 CC=clang)"
finish
