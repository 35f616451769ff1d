#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One registry of memory domains, used by an unchecked C and a checked C++ translation unit of one program and by an object loaded at run
# time: each finds the others' domains and calls their callbacks, and nobody has a registry of its own.
. tests/tap.sh

cat >"$dir/unit.h" <<'EOT'
#include <inlay/memdomain.h>
#ifdef __cplusplus
extern "C" {
#endif
/* What a unit does: step 0 creates its domain, 1 counts what it can pull from and checks each, 2 destroys its domain */
typedef int (*unit)(struct inlay_memdomain_registry *reg, int step);
int unchecked(struct inlay_memdomain_registry *reg, int step);
int checked(struct inlay_memdomain_registry *reg, int step);
int loaded(struct inlay_memdomain_registry *reg, int step);
#ifdef __cplusplus
}
#endif
EOT
cat >"$dir/unit.c" <<'EOT'
#include "unit.h"
#include <string.h>
static uint8_t memory[512] __attribute__((aligned(64)));
static int pull(struct inlay_memdomain *src, const struct inlay_memdomain_copy *copy)
{
	const char *name = (const char *)inlay_memdomain_user_context(src, NULL);

	if (copy->src_iovcnt != 1 || copy->dst_iovcnt != 1 || strcmp(name, NAME))
		return -EINVAL;
	strcpy((char *)copy->dst_iov->iov_base, name);
	if (copy->done)
		copy->done(copy->arg, 0);
	return 0;
}
static void word(void *arg, int rc)
{
	*(int *)arg += rc ? 100 : 1;
}
/* One piece from src to the system domain */
static int transfer(struct inlay_memdomain_registry *reg, struct inlay_memdomain *src, struct iovec *from, struct iovec *to, int *words)
{
	struct inlay_memdomain_copy copy;

	memset(&copy, 0, sizeof(copy));
	copy.src_iov = from;
	copy.dst_iov = to;
	copy.src_iovcnt = copy.dst_iovcnt = 1;
	copy.src = src;
	copy.done = word;
	copy.arg = words;
	return inlay_memdomain_transfer(inlay_memdomain_system(reg), &copy);
}
int UNIT(struct inlay_memdomain_registry *reg, int step)
{
	static struct inlay_memdomain *own;
	char name[16] = NAME, brought[16], other[16];
	struct inlay_memdomain_ctx ctx = {sizeof(ctx), name, sizeof(name)};
	struct iovec from = {name, sizeof(name)}, to = {brought, sizeof(brought)}, copy = {other, sizeof(other)};
	struct inlay_memdomain *d;
	int words = 0, found = 0;

	if (step == 0)
		return inlay_memdomain_create(reg, memory, sizeof(memory), 1000, &ctx, NAME, &own) || inlay_memdomain_set_pull(own, pull) ||
		       own->registry != reg;
	if (step == 2)
		return inlay_memdomain_destroy(own);
	for (d = inlay_memdomain_first(reg, NULL); d; d = inlay_memdomain_next(d, NULL)) {
		if (d == inlay_memdomain_system(reg)) {
			/* Attached by one unit, understood by all */
			if (transfer(reg, d, &from, &copy, &words) || memcmp(other, name, 16))
				return -1;
		} else {
			if (transfer(reg, d, &from, &to, &words) ||
			    strcmp(brought, inlay_memdomain_id(d)))
				return -1;
		}
		found++;
	}
	return found == words ? found : -1;
}
EOT
cat >"$dir/main.c" <<'EOT'
#include "unit.h"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	static struct inlay_memdomain_registry reg;
	unit units[3] = {unchecked, checked, NULL};
	void *object = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
	int i, j;

	if (!object)
		return puts(dlerror()), 1;
	*(void **)&units[2] = dlsym(object, "loaded");
	if (inlay_memdomain_registry_init(&reg) || units[2](&reg, 0) || inlay_memdomain_system_attach(&reg.system))
		return 2;
	for (i = 0; i < 2; i++)
		if (units[i](&reg, 0))
			return 3;
	for (i = 0; i < 3; i++)
		printf("%d ", units[i](&reg, 1));
	for (i = 2; i >= 0; i--) {
		if (units[i](&reg, 2))
			return 4;
		if (i == 2 && dlclose(object))
			return 5;
		for (j = 0; j < i; j++)
			printf("%d ", units[j](&reg, 1));
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
