#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The headers beside those of others: before and after mlx5dv.h, Linux's mlx5_ifc.h, DPDK's, UCX's and libfabric's, and all of them at
# once, in C and C++. Without COMPILERS_ALL=1, only those that cannot be with all the others are seen apart, and by gcc and g++.
# RDMA_CORE=DIR does so again with the headers of another rdma-core: a source tree, built or not.
. tests/tap.sh

printf '#include <inlay/%s>\n' $(cd include/inlay && ls ./*.h | sed 's,^\./,,') inlay.h mmap/pci.h >"$dir/inlay.h"

# Linux's header takes words of the kernel for granted
linux=$(ls -d /usr/src/linux-headers-*-common/include 2>/dev/null | sort -V | tail -n 1)
mkdir -p "$dir/linux/mlx5"
[ -z "$linux" ] || ln -s "$linux"/linux/mlx5/mlx5_ifc*.h "$dir/linux/mlx5"
cat >"$dir/linux/words.h" <<-EOF
	#include <stdbool.h>
	#include <stddef.h>
	#include <stdint.h>
	typedef uint8_t u8;
	typedef uint16_t u16;
	typedef uint32_t u32;
	typedef uint64_t u64;
	#define BIT(n) (1u << (n))
	#define BIT_ULL(n) (1ull << (n))
	#define PAGE_SIZE 4096
	#define __packed __attribute__((packed))
	#define likely(x) __builtin_expect(!!(x), 1)
	#define unlikely(x) __builtin_expect(!!(x), 0)
EOF

neighbours=(
	"mlx5dv.h;infiniband/mlx5dv.h"
	"librdmacm;rdma/rdma_cma.h rdma/rsocket.h"
	"Linux's mlx5_ifc.h;words.h mlx5/mlx5_ifc.h"
	"DPDK;rte_pmd_mlx5.h rte_ethdev.h rte_flow.h rte_mbuf.h rte_cycles.h"
	"UCX;ucp/api/ucp.h uct/api/uct.h ucs/type/status.h"
	"libfabric;rdma/fabric.h rdma/fi_domain.h rdma/fi_endpoint.h rdma/fi_tagged.h rdma/fi_rma.h rdma/fi_atomic.h rdma/fi_cm.h rdma/fi_errno.h rdma/providers/fi_prov.h"
	"sys/sdt.h;sys/sdt.h"
)
dpdk=$(pkg-config --cflags libdpdk 2>/dev/null | sed 's/-I/-isystem /g')

# What is of others is a system's header: its warnings are not ours
compiles() # compiler file...
{
	local compiler=$1
	shift
	cat "$@" >"$dir/both.c"
	$compiler -Wall -Wextra -Werror $core -Iinclude -isystem "$dir/linux" $dpdk -fsyntax-only "$dir/both.c"
}

beside() # name file compiler...: before ours and after
{
	local name=$1 file=$2 compiler word order
	shift 2
	for compiler; do
		for word in before after; do
			[ $word = before ] && order="$file $dir/inlay.h" || order="$dir/inlay.h $file"
			if compiles "$compiler" $order >"$dir/out" 2>&1; then
				result 0 "$where${compiler%% *}: $name, $word"
			elif [ "$name" = all ] || compiles "$compiler" "$file" >/dev/null 2>&1; then
				result 1 "$where${compiler%% *}: $name, $word"
			else
				skip "$where${compiler%% *}: $name, $word" "it does not compile alone"
			fi
		done
	done
}

round() # where
{
	where=$1
	: >"$dir/all.h"
	for neighbour in "${neighbours[@]}"; do
		name=${neighbour%;*}
		printf '#include <%s>\n' ${neighbour#*;} >"$dir/one.h"
		if ! gcc -std=gnu11 -E $core -isystem "$dir/linux" $dpdk -x c "$dir/one.h" >/dev/null 2>"$dir/out"; then
			skip "$where$name" "not installed: $(sed -n 's/.*fatal error: //p' "$dir/out" | head -n 1)"
			continue
		fi
		[ "$name" != "Linux's mlx5_ifc.h" ] && cat "$dir/one.h" >>"$dir/all.h" && [ -z "$COMPILERS_ALL" ] || # Linux's is not C++
			beside "$name" "$dir/one.h" "gcc -std=gnu11"
	done
	beside "all" "$dir/all.h" "gcc -std=gnu11" "g++ -x c++ -std=gnu++17" ${COMPILERS_ALL:+"clang -std=gnu17"}
	same "${where}none of them defines a macro of our names" "" \
		"$(gcc -std=gnu11 -E -dM $core -isystem "$dir/linux" $dpdk -x c "$dir/all.h" | grep -i 'define _*inlay')"
}

core=
round ""
if [ -n "$RDMA_CORE" ]; then
	mkdir -p "$dir/core/infiniband" "$dir/core/rdma"
	ln -s "$(realpath "$RDMA_CORE")"/libibverbs/{verbs,verbs_api,tm_types,sa,opcode}.h "$(realpath "$RDMA_CORE")"/providers/mlx5/{mlx5dv,mlx5_api}.h \
		"$dir/core/infiniband"
	ln -s "$(realpath "$RDMA_CORE")"/kernel-headers/rdma/* "$(realpath "$RDMA_CORE")"/librdmacm/*.h "$dir/core/rdma"
	for header in ib_user_ioctl_verbs mlx5_user_ioctl_verbs; do
		ln -s "../rdma/$header.h" "$dir/core/infiniband/$header.h"
	done
	core="-isystem $dir/core"
	same "headers of $RDMA_CORE are read" "mlx5dv.h verbs.h" \
		"$(clang -E $core -Iinclude -M -x c "$dir/inlay.h" | grep -o "$dir/core/infiniband/\(mlx5dv\|verbs\)\.h" | sed 's,.*/,,' | sort | xargs)"
	version=$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")/\1/p' "$RDMA_CORE/CMakeLists.txt")
	round "rdma-core $version, "
fi
finish
