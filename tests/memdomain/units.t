#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One registry of memory domains, used by an unchecked C and a checked C++ translation unit of one program and by an object loaded at run
# time: each finds the others' domains and calls their callbacks, and nobody has a registry of its own.
. tests/tap.sh

cat >"$dir/unit.c" <<'EOT'
#include <inlay/memdomain.h>
#include <string.h>
static uint8_t memory[512] __attribute__((aligned(64)));
static int pull(struct inlay_memdomain *src, const struct inlay_memdomain_copy *copy)
{
	strcpy((char *)copy->dst_iov->iov_base, (const char *)inlay_memdomain_user_context(src, NULL));
	return strcmp((const char *)inlay_memdomain_user_context(src, NULL), NAME);
}
#ifdef __cplusplus
extern "C"
#endif
/* Step 0 creates the unit's domain, 1 pulls from all and counts them, 2 destroys its own */
int UNIT(struct inlay_memdomain_registry *reg, int step)
{
	static struct inlay_memdomain *own;
	char name[16] = NAME, brought[16];
	struct inlay_memdomain_ctx ctx = {sizeof(ctx), name, sizeof(name)};
	struct iovec from = {name, sizeof(name)}, to = {brought, sizeof(brought)};
	struct inlay_memdomain_copy copy;
	struct inlay_memdomain *d;
	int found = 0;

	memset(&copy, 0, sizeof(copy));
	copy.src_iov = &from;
	copy.dst_iov = &to;
	copy.src_iovcnt = copy.dst_iovcnt = 1;
	if (step == 0)
		return inlay_memdomain_create(reg, memory, sizeof(memory), 1000, &ctx, NAME, &own) || inlay_memdomain_set_pull(own, pull);
	if (step == 2)
		return inlay_memdomain_destroy(own);
	for (d = inlay_memdomain_first(reg, NULL); d; d = inlay_memdomain_next(d, NULL), found++)
		if (d != inlay_memdomain_system(reg) && (inlay_memdomain_pull(d, &copy) || strcmp(brought, inlay_memdomain_id(d))))
			return -1;
	return found;
}
EOT
cat >"$dir/main.c" <<'EOT'
#include <inlay/memdomain.h>
#include <dlfcn.h>
#include <stdio.h>
int unchecked(struct inlay_memdomain_registry *reg, int step);
int checked(struct inlay_memdomain_registry *reg, int step);
int main(int argc, char **argv)
{
	static struct inlay_memdomain_registry reg;
	int (*units[3])(struct inlay_memdomain_registry *, int) = {unchecked, checked, NULL};
	void *object = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
	int i, j;

	if (!object)
		return puts(dlerror()), 1;
	*(void **)&units[2] = dlsym(object, "loaded");
	if (inlay_memdomain_registry_init(&reg) || units[2](&reg, 0) || units[0](&reg, 0) || units[1](&reg, 0))
		return 2;
	for (i = 3; i > 0; i--) {
		for (j = 0; j < i; j++)
			printf("%d ", units[j](&reg, 1));
		if (units[i - 1](&reg, 2) || (i == 3 && dlclose(object)))
			return 3;
	}
	printf("%d\n", reg.last != &reg.system);
	return 0;
}
EOT

units() # checked in the loaded object
{
	local flags="-O2 -Wall -Wextra -Werror -Iinclude -fPIC"
	gcc -std=gnu11 $flags -DUNIT=unchecked -DNAME='"unchecked"' -DINLAY_CHECKED=0 -c -o "$dir/0.o" "$dir/unit.c" &&
	clang++ -x c++ -std=c++17 $flags -DUNIT=checked -DNAME='"checked"' -DINLAY_CHECKED=1 -c -o "$dir/1.o" "$dir/unit.c" &&
	clang -std=gnu17 $flags -DUNIT=loaded -DNAME='"loaded"' -DINLAY_CHECKED=$1 -shared -o "$dir/loaded.so" "$dir/unit.c" &&
	gcc -std=gnu11 $flags -o "$dir/units" "$dir/main.c" "$dir/0.o" "$dir/1.o" -ldl &&
	timeout 300 "$dir/units" "$dir/loaded.so" | tee "$dir/units.out" && grep -qx '4 4 4 3 3 2 0' "$dir/units.out"
}

globals() # symbols of data that inlay would share or keep: none but the unit's own
{
	nm "$dir/0.o" "$dir/1.o" "$dir/loaded.so" | awk '$2 ~ /^[bBdDCV]$/ { print $3 }' | grep -i inlay
}

try "unchecked C, checked C++ and a loaded unchecked object share a registry" units 0
try "unchecked C, checked C++ and a loaded checked object share a registry" units 1
same "no unit has data of inlay's own" "" "$(globals)"
finish
