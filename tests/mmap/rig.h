/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rig.h: what the tests of memory maps share: a map in memory that ends at a page that nobody may
 * touch, a message authentication code, and a libibverbs whose rkeys are not its lkeys.
 */
#ifndef TESTS_MMAP_RIG_H
#define TESTS_MMAP_RIG_H

#include "common.h"
#include "given.h"
#include "next.h"
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <inlay/mmap/pci.h>

#define PAGE 4096u
#define REMOTE (INLAY_RDMA_READ | INLAY_RDMA_WRITE | INLAY_RDMA_ATOMIC)

struct map {
	struct inlay_mmap m;
	void *memory;
};

/* An empty map */
UNUSED static void map_make(struct map *x, uint32_t devs, uint32_t ranges)
{
	const size_t size = inlay_mmap_size(devs, ranges);

	assert_int_equal(size % INLAY_CACHE_LINE, 0);
	x->memory = given(size);
	must(inlay_mmap_create(&x->m, x->memory, size, devs, ranges));
}

UNUSED static void map_free(struct map *x)
{
	must(inlay_mmap_destroy(&x->m));
	given_free(x->memory);
}

/* What another process would have of it */
UNUSED static void map_import(struct map *x, struct ibv_pd *pd, const void *blob, size_t len, const struct inlay_mac *mac)
{
	const size_t size = inlay_mmap_import_size(blob, len);

	assert_int_not_equal(size, 0);
	x->memory = given(size);
	must(inlay_mmap_create_from_export(&x->m, x->memory, size, pd, blob, len, mac));
}

/* ---- authentication ---- */

static uint8_t secret[32] = "a secret that both sides know..";

static int hmac(void *key, const void *data, size_t len, uint8_t *code)
{
	unsigned int n = 0;

	return HMAC(EVP_sha256(), key, 32, (const unsigned char *)data, len, code, &n) && n == 32 ? 0 : -EIO;
}

UNUSED static const struct inlay_mac right = {hmac, secret, 32};

/* ---- keys ---- */

static unsigned reg_access; /* of the last registration */
static uint32_t registered; /* host memory: regions, less those that map.c deregistered */

/*
 * The software device's rkeys are its lkeys, those of devices are not. The program's own function
 * is found before libibverbs'. Tests of what the device accepts leave rkeys as they are.
 */
static bool rkeys_apart;

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct ibv_mr *mr = NEXT(ibv_reg_mr_iova2)(pd, addr, length, iova, access);

	reg_access = access;
	registered += mr != NULL;
	if (mr && rkeys_apart)
		mr->rkey += 0x4000;
	return mr;
}

#endif
