#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The headers as text for a compiler: each alone and twice, without a warning, in C and C++, with gcc and clang, for both instruction
# sets; who includes whom; translation units of both kinds in one program; and a data path that calls nothing.
#
# HEADERS_ALL=1 tries each header with every compiler, standard and check mode. Without it, only inlay.h, which includes all others, is
# tried in each way: a warning in a function is seen there. Each header by itself then shows only what it forgets to include, which the
# strictest standard, checked, tells best.
. tests/tap.sh

warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wcast-qual -Wpointer-arith -Wundef -Werror"
headers=$(cd include/inlay && find . -name '*.h' | sed 's,^\./,,' | sort)

cross_headers
compilers=(
	"gcc" "g++" "clang" "clang++"
	"aarch64-linux-gnu-gcc -isystem $dir/cross" "aarch64-linux-gnu-g++ -isystem $dir/cross"
	"clang --target=aarch64-linux-gnu -isystem $dir/cross" "clang++ --target=aarch64-linux-gnu -isystem $dir/cross"
)

language() # compiler: its sources' kind and the standards to try
{
	case $1 in
	*++*) echo "c++ c++17 gnu++17" ;;
	*) echo "c gnu11 gnu17" ;;
	esac
}

title() # compiler: without folders
{
	sed 's/ -isystem .*//' <<<"$1"
}

# ---- Each header alone, twice ----

compiles() # compiler kind flags...: $dir/alone.c; nothing that it leaves undefined
{
	local compiler=$1 kind=$2
	shift 2
	echo "$(sed -n '1s/#include //p' "$dir/alone.c") $*"
	$compiler -x $kind -O1 $warnings -Iinclude "$@" -c -o "$dir/alone.o" "$dir/alone.c" || return
	[ -z "$(nm -u "$dir/alone.o")" ] || { nm -u "$dir/alone.o"; return 1; }
}

alone() # compiler headers: each, in every standard, checked and not
{
	local header kind first standards std compiler=$1
	read -r kind first standards < <(language "$compiler")
	shift
	for header; do
		printf '#include <inlay/%s>\n#include <inlay/%s>\n' "$header" "$header" >"$dir/alone.c"
		compiles "$compiler" $kind -std=$first -DINLAY_CHECKED=1 || return
		[ -n "$HEADERS_ALL" ] || [ $header = inlay.h ] || continue
		compiles "$compiler" $kind -std=$first -DINLAY_CHECKED=0 || return
		for std in $standards; do
			compiles "$compiler" $kind -std=$std || return
		done
	done
}

room() # a header in a folder, with one compiler, or one of each language: what it does not include itself is missing with all
{
	printf '#include <inlay/%s>\n#include <inlay/%s>\n' "$1" "$1" >"$dir/room.c"
	gcc -std=gnu11 $warnings -DINLAY_CHECKED=1 -Iinclude -fsyntax-only "$dir/room.c" || return
	[ -z "$HEADERS_ALL" ] || clang++ -x c++ -std=c++17 $warnings -Iinclude -fsyntax-only "$dir/room.c"
}

rooms() # headers
{
	local header
	for header; do
		echo "inlay/$header"
		room "$header" || return 1
	done
}

public=$(grep -v / <<<"$headers")
for compiler in "${compilers[@]}"; do
	tried=$public
	case $HEADERS_ALL,$compiler in
	,aarch64*g++*|,"clang --target"*) tried=inlay.h ;;
	esac
	try "each public header alone and twice, no warning, nothing undefined: $(title "$compiler")" alone "$compiler" $tried
done
try "each header in a folder alone and twice, no warning" rooms $(grep / <<<"$headers")

# ---- Who includes whom ----

ifc=$(cd include/inlay && echo devx/ifc/*.h)
connect="connect.h verbs.h queue.h wqe.h cqe.h $(cd include/inlay && echo queue/*.h)"
pci="base.h wqe.h cqe.h queue.h $(cd include/inlay && echo queue/*.h) verbs.h devx/call.h devx/mkey.h devx/umem.h $ifc"
pci="$pci mmap/ledger.h mmap/lookup.h mmap/map.h mmap/blob.h"
below_task="$pci mmap.h buf.h $(cd include/inlay && echo mmap/*.h buf/*.h)"
declare -A may=(
	[base.h]=""
	[wqe.h]="base.h"
	[cqe.h]="base.h"
	[queue/uar.h]="base.h wqe.h"
	[queue/sq.h]="base.h cqe.h wqe.h queue/uar.h"
	[queue/post.h]="base.h cqe.h wqe.h queue/uar.h queue/sq.h"
	[queue/rq.h]="base.h wqe.h queue/uar.h"
	[queue/srq.h]="base.h cqe.h wqe.h queue/uar.h"
	[queue/cq.h]="base.h cqe.h wqe.h queue/uar.h queue/srq.h"
	[queue.h]="base.h cqe.h wqe.h $(cd include/inlay && echo queue/*.h)"
	[verbs.h]="base.h cqe.h queue.h wqe.h $(cd include/inlay && echo queue/*.h)"
	[connect.h]="base.h cqe.h queue.h wqe.h verbs.h $(cd include/inlay && echo queue/*.h)"
	[dm.h]="base.h"
	[mmap/lookup.h]="base.h"
	[mmap/cache.h]="base.h"
	[mmap/monitor.h]="base.h mmap/cache.h"
	[mmap/ledger.h]="base.h"
	[mmap/map.h]="base.h mmap/ledger.h mmap/lookup.h"
	[mmap/blob.h]="base.h mmap/ledger.h mmap/lookup.h mmap/map.h"
	[mmap/pci.h]="$pci"
	[mmap.h]="$pci $(cd include/inlay && echo mmap/*.h)"
	[buf/buf.h]="base.h mmap/ledger.h mmap/lookup.h mmap/map.h"
	[buf/inventory.h]="base.h mmap/ledger.h mmap/lookup.h mmap/map.h buf/buf.h"
	[buf/pool.h]="base.h mmap/ledger.h mmap/lookup.h mmap/map.h buf/buf.h"
	[buf/array.h]="base.h mmap/ledger.h mmap/lookup.h mmap/map.h"
	[buf/shared.h]="base.h mmap/ledger.h mmap/lookup.h mmap/map.h buf/buf.h buf/inventory.h"
	[buf/post.h]="base.h cqe.h wqe.h queue/uar.h queue/sq.h queue/post.h mmap/ledger.h mmap/lookup.h mmap/map.h buf/buf.h"
	[buf.h]="base.h cqe.h wqe.h queue/uar.h queue/sq.h queue/post.h mmap/ledger.h mmap/lookup.h mmap/map.h $(cd include/inlay && echo buf/*.h)"
	[memdomain/domain.h]="base.h"
	[memdomain/system.h]="base.h memdomain/domain.h"
	[memdomain/rdma.h]="base.h cqe.h wqe.h queue/uar.h queue/sq.h queue/post.h mmap/ledger.h mmap/lookup.h mmap/map.h memdomain/domain.h"
	[memdomain.h]="base.h cqe.h wqe.h queue/uar.h queue/sq.h queue/post.h mmap/ledger.h mmap/lookup.h mmap/map.h $(cd include/inlay && echo memdomain/*.h)"
	[devx/ifc/bits.h]="base.h"
	[devx/ifc/cmd.h]="base.h devx/ifc/bits.h"
	[devx/ifc/cq.h]="base.h devx/ifc/bits.h devx/ifc/cmd.h"
	[devx/ifc/qp.h]="base.h devx/ifc/bits.h devx/ifc/cmd.h"
	[devx/ifc/mkey.h]="base.h devx/ifc/bits.h devx/ifc/cmd.h"
	[devx/ifc/wq.h]="base.h devx/ifc/bits.h devx/ifc/cmd.h"
	[devx/ifc/hca.h]="base.h devx/ifc/bits.h devx/ifc/cmd.h"
	[devx/ifc/object.h]="base.h devx/ifc/bits.h devx/ifc/cmd.h"
	[devx/ifc/srq.h]="base.h devx/ifc/bits.h devx/ifc/cmd.h devx/ifc/wq.h"
	[devx/call.h]="base.h $ifc"
	[devx/umem.h]="base.h"
	[devx/event.h]="base.h devx/call.h $ifc"
	[devx/uar.h]="base.h wqe.h queue/uar.h devx/call.h $ifc"
	[devx/cq.h]="base.h cqe.h wqe.h queue/uar.h queue/srq.h queue/cq.h devx/call.h devx/uar.h devx/umem.h $ifc"
	[devx/path.h]="base.h $connect devx/call.h $ifc"
	[devx/qp.h]="base.h $connect devx/call.h devx/path.h devx/uar.h devx/umem.h $ifc"
	[devx/rmp.h]="base.h cqe.h wqe.h queue/uar.h queue/cq.h queue/srq.h devx/call.h devx/umem.h $ifc"
	[devx/xrq.h]="base.h cqe.h wqe.h queue/uar.h queue/cq.h queue/srq.h devx/call.h devx/rmp.h devx/umem.h $ifc"
	[devx/mkey.h]="base.h devx/call.h devx/umem.h $ifc"
	[devx/dct.h]="base.h $connect devx/call.h devx/path.h $ifc"
	[devx.h]="base.h $connect $(cd include/inlay && echo devx/*.h) $ifc"
	[devx/ifc.h]="base.h $(cd include/inlay && echo devx/ifc/*.h)"
	[match.h]="base.h match/mpi.h"
	[match/mpi.h]="base.h"
	[tag/message.h]="base.h cqe.h wqe.h queue/uar.h queue/cq.h queue/sq.h queue/post.h"
	[tag/list.h]="base.h cqe.h wqe.h queue/uar.h queue/cq.h queue/sq.h"
	[tag/recv.h]="base.h cqe.h wqe.h queue/uar.h queue/cq.h queue/sq.h match.h match/mpi.h tag/list.h"
	[tag.h]="base.h cqe.h wqe.h queue/uar.h queue/cq.h queue/sq.h queue/post.h match.h match/mpi.h $(cd include/inlay && echo tag/*.h)"
	[task/wire.h]="base.h $connect mmap/source.h mmap/lookup.h mmap/map.h mmap/blob.h"
	[task/link.h]="$below_task $connect task/wire.h"
	[task/task.h]="$below_task $connect task/wire.h task/link.h"
	[task/host.h]="$below_task $connect task/wire.h task/link.h task/task.h"
	[task/cmd.h]="$below_task $connect task/wire.h task/link.h"
	[task/conn.h]="$below_task $connect task/wire.h task/link.h task/cmd.h"
	[task/worker.h]="$below_task $connect task/wire.h task/link.h task/cmd.h task/conn.h"
	[task/plugin.h]="$below_task $connect task/wire.h task/link.h task/cmd.h"
	[task/group.h]="base.h mmap/source.h mmap/lookup.h mmap/map.h mmap/blob.h"
	[task.h]="$below_task $connect $(cd include/inlay && echo task/*.h)"
	[inlay.h]="$(echo $headers)"
)

upward() # header: prints what it includes, directly or not, and should not
{
	local name=$1 allowed included
	[ "${may[$name]+there}" ] || { echo "$name is new: say in tests/headers.t what it may include"; return; }
	allowed=$(printf '%s\n' "$name" ${may[$name]} | sort -u)
	included=$(echo "#include <inlay/$name>" | gcc -Iinclude -MM -x c - | grep -o 'inlay/[^ ]*\.h' | sed 's,^inlay/,,' | sort -u)
	comm -13 <(echo "$allowed") <(echo "$included")
}

for header in $headers; do
	same "$header includes nothing above it" "" "$(upward "$header")"
done
same "inlay.h includes all, directly or not" "$headers" "$(echo "#include <inlay/inlay.h>" | gcc -Iinclude -MM -x c - |
	grep -o 'inlay/[^ ]*\.h' | sed 's,^inlay/,,' | sort -u)"
same "inlay.h includes all public ones" "$(grep -vx 'inlay\.h' <<<"$public")" \
	"$(sed -n 's,^#include <inlay/\(.*\)>,\1,p' include/inlay/inlay.h | sort)"

# ---- Both kinds of translation unit in one program, and one loaded at run time, on the same queues ----

cat >"$dir/unit.h" <<'EOF'
#include <inlay/queue.h>
struct shared { struct inlay_uar uar; struct inlay_sq sq; struct inlay_cq cq; };
EOF
cat >"$dir/unit.c" <<'EOF'
#include "unit.h"
extern "C" int UNIT(struct shared *s, uint64_t value);
int UNIT(struct shared *s, uint64_t value)
{
	const struct mlx5_cqe64 *cqe;

	if (inlay_post_write_inline(&s->sq, 0x1000, 7, &value, sizeof(value), INLAY_SIGNALED))
		return -1;
	inlay_sq_ring(&s->sq);
	cqe = inlay_cq_peek(&s->cq);
	if (!cqe || inlay_cqe_is_error(cqe) || inlay_sq_release(&s->sq, cqe))
		return -1;
	inlay_cq_advance(&s->cq, 1);
	return INLAY_CHECKED * 1000 + (int)sizeof(struct shared);
}
EOF
cat >"$dir/main.c" <<'EOF'
#include "unit.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int unchecked(struct shared *s, uint64_t value);
int checked(struct shared *s, uint64_t value);
static uint8_t ring[512] __attribute__((aligned(4096))), page[4096] __attribute__((aligned(4096)));
static struct mlx5_cqe64 cqes[8] __attribute__((aligned(4096)));
int main(int argc, char **argv)
{
	uint32_t record[2] = {0, 0}, cq_record[2] = {0, 0}, i;
	void *object = dlopen(argv[argc - 1], RTLD_NOW);
	int (*unit[3])(struct shared *s, uint64_t value) = {unchecked, checked, NULL}, size[3] = {0, 0, 0};
	struct shared s;
	uint64_t payload, copied;

	if (!object)
		return puts(dlerror()), 1;
	*(void **)&unit[2] = dlsym(object, "loaded");
	for (i = 0; i < 8; i++)
		cqes[i].op_own = 0xf0;
	if (inlay_uar_init(&s.uar, page, 256, INLAY_UAR_SERIAL) || inlay_sq_init(&s.sq, ring, 8, record, 0x123, 8, &s.uar) ||
	    inlay_cq_init(&s.cq, cqes, 8, 64, cq_record, NULL, 1))
		return 2;
	for (i = 0; i < 30; i++) { /* past the end of both rings, each time with another unit */
		cqes[i % 8].wqe_counter = inlay_to_be16((uint16_t)i);
		cqes[i % 8].op_own = (i / 8) & 1;
		size[i % 3] = unit[i % 3](&s, i);
		memcpy(&payload, ring + i % 8 * 64 + 36, 8);
		memcpy(&copied, page + i % 2 * 256 + 36, 8);
		if (size[i % 3] < 0 || payload != i || copied != i || record[1] != inlay_to_be32(i + 1) ||
		    cq_record[0] != inlay_to_be32(i + 1))
			return printf("round %u\n", i), 3;
	}
	printf("%d %d %d\n", size[0] == size[1] - 1000, size[1] > 1000, size[0] == size[2] - INLAY_LOADED * 1000);
	return 0;
}
EOF
sed 's/extern "C" //' "$dir/unit.c" >"$dir/unit_c.c"

units() # checked in the loaded object
{
	local make_unit="-O2 -Wall -Wextra -Werror -Iinclude -fPIC"
	gcc -std=gnu11 $make_unit -DUNIT=unchecked -DINLAY_CHECKED=0 -c -o "$dir/0.o" "$dir/unit_c.c" &&
	clang++ -x c++ -std=c++17 $make_unit -DUNIT=checked -DINLAY_CHECKED=1 -c -o "$dir/1.o" "$dir/unit.c" &&
	clang -std=gnu17 $make_unit -DUNIT=loaded -DINLAY_CHECKED=$1 -shared -o "$dir/loaded.so" "$dir/unit_c.c" &&
	gcc -std=gnu11 $make_unit -DINLAY_LOADED=$1 -o "$dir/units" "$dir/main.c" "$dir/0.o" "$dir/1.o" -ldl &&
	"$dir/units" "$dir/loaded.so" | tee "$dir/units.out" && grep -qx '1 1 1' "$dir/units.out"
}

try "unchecked C, checked C++ and a loaded unchecked object drive the same queues" units 0
try "unchecked C, checked C++ and a loaded checked object drive the same queues" units 1

# ---- The data path calls nothing ----
# Every function that is not marked cold is made to exist by taking its address, with no argument known: nothing folds. Names that the
# object leaves undefined are what it would call.

functions=$(sed -n 's/^\(INLAY_FN\|INLAY_ALWAYS\|INLAY_APART\|INLAY_COLD_CALL\) .*[ *]\(inlay_[a-z0-9_]*\)(.*/\2/p' \
	include/inlay/*.h include/inlay/*/*.h)
{
	echo '#include <inlay/inlay.h>'
	echo 'typedef void (*function)(void);'
	echo 'extern const function all[];'
	echo 'const function all[] = {'
	sed 's/.*/	(function)&,/' <<<"$functions"
	echo '};'
} >"$dir/all.c"

undefined() # compiler flags
{
	$1 -Iinclude -c -o "$dir/all.o" "$dir/all.c" && nm -u "$dir/all.o" | awk '{ print $2 }' | grep -vx _GLOBAL_OFFSET_TABLE_ | sort
}

# What a lock on aarch64 calls by default is libgcc's choice between two generations of atomics, not a library's function.
arm="-mno-outline-atomics"
# Without HEADERS_ALL, each compiler at another level: the optimisers are the same for both instruction sets.
same "there is a data path" 1 "$(($(wc -l <<<"$functions") > 50))"
while IFS=';' read -r compiler some; do
	levels=(-O3 -O2 "-O2 -fPIC" -Os -O1 -O0)
	[ -n "$HEADERS_ALL" ] || IFS=, read -ra levels <<<"$some"
	for flags in "${levels[@]}"; do
		expected=
		[[ $compiler = clang* && $flags = -O0 ]] && expected=memcpy # for structs passed by value
		same "$(title "$compiler") $flags: the data path calls ${expected:-nothing}" "$expected" \
			"$(undefined "$compiler -std=gnu11 $flags" 2>&1)"
	done
done <<EOF
gcc;-O2,-O0
clang;-O3,-O0
aarch64-linux-gnu-gcc $arm -isystem $dir/cross;-Os
clang --target=aarch64-linux-gnu $arm -isystem $dir/cross;-O2 -fPIC
EOF
finish
