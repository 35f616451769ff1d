/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * blob.c: exported memory maps as bytes: their layout, what is inside and what is not, and what is
 * refused: every bit that is wrong, every length, every field that does not make sense though
 * checksum and code are right. Authenticated with OpenSSL.
 */
#include "rig.h"

/* A device that nothing is registered with: the ranges here come with keys of their own */
static struct ibv_pd *const fake = (struct ibv_pd *)(void *)&rnd_state;
static struct ibv_pd *one = (struct ibv_pd *)(void *)&rnd_state, *none;

/* A range that grants no more than the limit */
static void add(struct map *x, uint64_t addr, uint64_t len, uint32_t rkey, uint32_t limit)
{
	struct inlay_keys keys = {rkey ^ 0x5555, rkey};

	if (!x->m.num_devs)
		must(inlay_mmap_add_dev(&x->m, fake));
	must(inlay_mmap_add(&x->m, limited(inlay_source_keys(addr, len, keys), limit)));
}

/* Two ranges that are granted, and between them one that is not */
static void some_map(struct map *x, const struct inlay_mac *mac)
{
	map_make(x, 1, 3);
	add(x, 0x1122334455667788, 0x1000, 0xa1b2c3d4, INLAY_ACCESS_ALL);
	add(x, 0x5000, 0x1000, 77, INLAY_LOCAL_READ_WRITE);
	add(x, 0xfffffffffffff000, 0x1000, 0x01020304, INLAY_RDMA_READ | INLAY_RDMA_ATOMIC);
	must(inlay_mmap_set_permissions(&x->m, INLAY_LOCAL_READ_WRITE | INLAY_RDMA_READ | INLAY_RDMA_WRITE | INLAY_RELAXED_ORDERING));
	x->m.mac = mac;
	must(inlay_mmap_start(&x->m));
}

/* ---- authentication ---- */

static uint8_t wrong_secret[32] = "a secret that both sides knew..";

static int no_hmac(UNUSED void *key, UNUSED const void *data, UNUSED size_t len, UNUSED uint8_t *code)
{
	return -ENODEV;
}

static const struct inlay_mac wrong = {hmac, wrong_secret, 32};
static const struct inlay_mac broken = {no_hmac, secret, 32};

static size_t export_to(struct map *x, uint8_t *blob, size_t room)
{
	size_t len = room;

	must(inlay_mmap_export_rdma(&x->m, fake, blob, &len));
	return len;
}

/*
 * Imports what may not be sound, against guards: the blob ends where a page begins that nobody may
 * touch. The answer; a map that was made is looked over and destroyed, one that was not is as it
 * was
 */
static int try_import(const uint8_t *blob, size_t len, const struct inlay_mac *mac)
{
	static uint8_t *guarded;
	static void *memory;
	const size_t room = 1 << 20;
	struct inlay_mmap m, was;
	const uint8_t *at;
	size_t size;
	int err;

	if (!guarded) {
		guarded = (uint8_t *)mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert_ptr_not_equal(guarded, MAP_FAILED);
		must(mprotect(guarded + 4 * PAGE, PAGE, PROT_NONE));
		memory = pages(room);
	}
	assert_true(len <= 4 * PAGE);
	at = (const uint8_t *)memcpy(guarded + 4 * PAGE - len, blob, len);
	memset(&m, 0x3c, sizeof(m));
	was = m;
	/* What it takes is in proportion to what came, whatever it claims */
	size = inlay_mmap_import_size(at, len);
	assert_true(size <= 2048 * len);
	if (size < room - 64)
		memset((uint8_t *)memory + size, 0x77, 64);
	err = inlay_mmap_create_from_export(&m, memory, size < room ? size : room, fake, at, len, mac);
	assert_true(size >= room - 64 || all_bytes((uint8_t *)memory + size, 64, 0x77));
	if (err) {
		assert_memory_equal(&m, &was, sizeof(m));
		return err;
	}
	/* Who is in is whole */
	assert_true(m.imported && m.num_ranges > 0);
	for (uint32_t i = 0; i < m.num_ranges; i++) {
		const struct inlay_range *r = range_of(&m, i);
		uint32_t rkey;

		assert_int_equal(r->access & ~REMOTE, 0);
		must(inlay_mmap_remote(&m, r->start, r->len, r->access, &rkey));
		assert_int_equal(rkey, r->rkey);
		must(inlay_mmap_remote(&m, r->start + (r->len - 1), 1, r->access, &rkey));
		assert_int_equal(rkey, r->rkey);
	}
	must(inlay_mmap_destroy(&m));
	return 0;
}

/* Its checksum is right again */
static void reseal(uint8_t *blob, size_t len)
{
	uint32_t crc = inlay_crc32c(blob, len - 4);

	memcpy(blob + len - 4, &crc, 4);
}

/* A blob of one range, or none, with a code or without. Returns its bytes */
static size_t blob_make(uint8_t *blob, struct inlay_blob *head, const struct inlay_blob_range *r, const struct inlay_mac *mac)
{
	memcpy(head->magic, "inlaymap", 8);
	head->version = INLAY_BLOB_VERSION;
	head->ranges = !!r;
	head->bytes = (uint32_t)inlay_blob_bytes_(head);
	if (r)
		memcpy(blob + sizeof(*head), r, sizeof(*r));
	must(inlay_blob_seal_(blob, head, mac));
	return head->bytes;
}

/* ---- the tests ---- */

TEST(checksum)
{
	uint8_t bytes[32];

	/* RFC 3720, B.4 */
	memset(bytes, 0, 32);
	assert_int_equal(inlay_crc32c(bytes, 32), 0x8a9136aa);
	memset(bytes, 0xff, 32);
	assert_int_equal(inlay_crc32c(bytes, 32), 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		bytes[i] = (uint8_t)i;
	assert_int_equal(inlay_crc32c(bytes, 32), 0x46dd794e);
	assert_int_equal(inlay_crc32c("123456789", 9), 0xe3069283);
	assert_int_equal(inlay_crc32c(NULL, 0), 0);
}

TEST(layout)
{
	static const uint8_t expected[] = {
		'i', 'n', 'l', 'a', 'y', 'm', 'a', 'p', 3, 0, 1, 0, 116, 0, 0, 0, 6, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0x10, 0, 0, 0, 0, 0, 0, 0xd4, 0xc3, 0xb2, 0xa1, 6, 0, 0, 0,
		0x00, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x10, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 4, 0, 0, 0,
		0x75, 0x51, 0xf3, 0x68
	};
	uint8_t blob[256], with_code[256], code[32];
	unsigned int n;
	struct map x;
	size_t len;

	some_map(&x, NULL);
	memset(blob, 0xee, sizeof(blob));
	len = export_to(&x, blob, sizeof(blob));
	assert_int_equal(len, sizeof(expected));
	assert_true(!memcmp(blob, expected, len) && all_bytes(blob + len, sizeof(blob) - len, 0xee));
	/* Again the same; neither the range that is not granted is there, nor any local key */
	assert_true(export_to(&x, with_code, sizeof(with_code)) == len && !memcmp(blob, with_code, len));
	map_free(&x);
	/* With a code: of all before it, and before the checksum */
	some_map(&x, &right);
	assert_int_equal(export_to(&x, with_code, sizeof(with_code)), len + 32);
	assert_true(with_code[12] == len + 32 && with_code[24] == 32);
	with_code[12] = (uint8_t)len;
	with_code[24] = 0;
	assert_memory_equal(with_code, blob, len - 4);
	with_code[12] = (uint8_t)(len + 32);
	with_code[24] = 32;
	assert_non_null(HMAC(EVP_sha256(), secret, 32, with_code, len - 4, code, &n));
	assert_memory_equal(with_code + len - 4, code, 32);
	map_free(&x);
}

/* What an export refuses, here as if it were all that is wrong; *len says how much it would be */
TEST(exports_refused)
{
	static uint8_t blob[256];
	static struct {
		const char *name;
		uint32_t permissions;
		struct ibv_pd *const *pd;
		void *buf;
		size_t len;         /* SIZE_MAX: none is said */
		int err;
	} rows[] = {
		{"no length", INLAY_RDMA_READ, &one, blob, SIZE_MAX, -EINVAL},
		{"no device", INLAY_RDMA_READ, &none, blob, 256, -EINVAL},
		{"another device", INLAY_RDMA_READ, &dev.pd, blob, 256, -ENOENT},
		{"nothing for RDMA", INLAY_LOCAL_READ_WRITE | INLAY_PCI_READ_WRITE, &one, blob, 256, -EPERM},
		{"a limit without it", INLAY_RDMA_WRITE, &one, blob, 256, -EPERM},
		{"a question", INLAY_RDMA_READ, &one, NULL, 0, -ENOBUFS},
		{"no room", INLAY_RDMA_READ, &one, blob, 91, -ENOBUFS},
		{"no buffer", INLAY_RDMA_READ, &one, NULL, 91, -EINVAL},
	};
	struct map x;
	size_t len, *told;
	int err;

	for (uint32_t i = 0; i < ARRAY(rows); i++) {
		map_make(&x, 1, 1);
		add(&x, 0x1000, 0x1000, 5, INLAY_ACCESS_ALL & ~(uint32_t)INLAY_RDMA_WRITE);
		must(inlay_mmap_set_permissions(&x.m, rows[i].permissions));
		must(inlay_mmap_start(&x.m));
		memset(blob, 0x21, sizeof(blob));
		len = rows[i].len;
		told = len == SIZE_MAX ? NULL : &len;
		err = inlay_mmap_export_rdma(&x.m, *rows[i].pd, rows[i].buf, told);
		if (err != rows[i].err)
			fail_msg("%s: %d, not %d", rows[i].name, err, rows[i].err);
		if (err == -ENOBUFS)
			assert_int_equal(len, 92);
		assert_true(all_bytes(blob, sizeof(blob), 0x21) && !x.m.exported);
		map_free(&x);
	}
}

TEST(imported)
{
	struct inlay_mmap m, was;
	struct inlay_keys keys;
	uint8_t blob[256], *memory;
	uint32_t rkey, i;
	struct map x;
	size_t len, size;

	some_map(&x, NULL);
	len = export_to(&x, blob, sizeof(blob));
	assert_int_equal(x.m.exported, 1);
	map_free(&x);
	size = inlay_mmap_import_size(blob, len);
	assert_int_equal(size, inlay_mmap_size(1, 2));
	memory = (uint8_t *)given(size);
	memset(memory, 0x3c, size);
	memset(&m, 0x3c, sizeof(m));
	was = m;
	const struct {
		struct inlay_mmap *m; void *memory; size_t size; struct ibv_pd *pd; const void *blob; size_t len;
		int err;
	} rows[] = {
		{NULL, memory, size, fake, blob, len, -EINVAL}, {&m, NULL, size, fake, blob, len, -EINVAL},
		{&m, memory + 8, size, fake, blob, len, -EINVAL}, {&m, memory, size, NULL, blob, len, -EINVAL},
		{&m, memory, size, fake, NULL, len, -EINVAL}, {&m, memory, 1, fake, blob, len, -ENOBUFS},
		{&m, memory, size - 1, fake, blob, len, -ENOBUFS}, {&m, memory, size, fake, blob, 0, -EPROTO},
	};
	for (i = 0; i < ARRAY(rows); i++) {
		assert_int_equal(inlay_mmap_create_from_export(rows[i].m, rows[i].memory, rows[i].size, rows[i].pd, rows[i].blob,
							       rows[i].len, NULL), rows[i].err);
		assert_memory_equal(&m, &was, sizeof(m));
	}
	must(inlay_mmap_create_from_export(&m, memory, size, fake, blob, len, NULL));
	memset(blob, 0, sizeof(blob)); /* needed no more */
	assert_true(!m.user_data && m.permissions == (INLAY_RDMA_READ | INLAY_RDMA_WRITE) && m.num_ranges == 2 && m.num_devs == 1);
	assert_ptr_equal(m.devs[0], fake);
	must(inlay_mmap_keys(&m, 0, m.devs[0], &keys));
	assert_true(keys.rkey == 0xa1b2c3d4 && keys.lkey == INLAY_NO_KEY);
	assert_memory_equal(&inlay_mmap_find(&m, (void *)0x1122334455667788, 0x1000)->lkey, &keys, sizeof(keys));
	assert_null(inlay_mmap_find(&m, (void *)0x5000, 1));
	assert_int_equal(inlay_mmap_remote(&m, 0xfffffffffffff000, 0x1000, INLAY_RDMA_WRITE, &rkey), -EPERM);
	must(inlay_mmap_remote(&m, 0xfffffffffffff000, 0x1000, INLAY_RDMA_READ, &rkey));
	assert_int_equal(rkey, 0x01020304);
	must(inlay_mmap_destroy(&m));
	given_free(memory);
}

/* Every bit and every length, with a code and without */
TEST(flipped_and_cut)
{
	uint8_t blob[256], bad[512];
	size_t len, i;
	struct map x;
	int coded, err;

	for (coded = 0; coded < 2; coded++) {
		const struct inlay_mac *mac = coded ? &right : NULL;

		some_map(&x, mac);
		len = export_to(&x, blob, sizeof(blob));
		map_free(&x);
		must(try_import(blob, len, mac));
		for (i = 0; i < 8 * len; i++) {
			memcpy(bad, blob, len);
			bad[i / 8] ^= (uint8_t)(1 << i % 8);
			err = try_import(bad, len, mac);
			/* Magic and version; what the length is made of; the rest by the checksum */
			if (i < 80)
				assert_int_equal(err, -EPROTO);
			else if ((i >= 96 && i < 128) || (i >= 160 && i < 224))
				assert_int_equal(err, -EINVAL);
			else
				assert_int_equal(err, -EBADMSG);
		}
		memcpy(bad, blob, len);
		memset(bad + len, 0, 256);
		for (i = 0; i < len + 256; i++)
			if (i != len)
				assert_int_equal(try_import(bad, i, mac), i < 68 ? -EPROTO : -EINVAL);
	}
}

/* Sound as bytes, checksum and all, but not as a map: `at` bytes of value `value` */
TEST(resealed)
{
	static const struct { uint32_t at, bytes; uint64_t value; int answer; } changes[] = {
		{0, 1, 'i', 0},                                /* nothing */
		{0, 1, 'I', -EPROTO},
		{8, 2, 0, -EPROTO}, {8, 2, 2, -EPROTO},        /* version */
		{10, 2, 0, -EINVAL}, {10, 2, 3, -EINVAL},      /* kind */
		{12, 4, 115, -EINVAL}, {12, 4, 117, -EINVAL}, {12, 4, 0xffffffff, -EINVAL},
		{16, 4, 0, -EINVAL}, {16, 4, 7, -EINVAL}, {16, 4, 0x16, -EINVAL}, {16, 4, 0x86, -EINVAL}, {16, 4, 14, 0},
		{16, 4, 4, -EINVAL},                           /* a range grants what the head does not */
		{16, 4, 2, -EINVAL},
		{20, 4, 0, -EINVAL}, {20, 4, 1, -EINVAL}, {20, 4, 3, -EINVAL}, {20, 4, 0xffffffff, -EINVAL},
		{20, 4, 0x0aaaaaab, -EINVAL},                  /* times 24, beyond 2^32 */
		{24, 4, 16, -EINVAL}, {24, 4, 0xfffffff0, -EINVAL},
		{28, 4, 0x10000, -EINVAL}, {28, 4, 0xffff, 0},  /* a function of PCI has 16 bits */
		{64, 8, 0, 0}, {64, 8, UINT64_MAX, -EINVAL}, {64, 8, UINT64_MAX - 0xffe, -EINVAL},
		{64, 8, 0xffffffffffffe000, 0}, {64, 8, 0xffffffffffffe001, -EINVAL},  /* beside the other, and one byte into it */
		{72, 8, 0, -EINVAL}, {72, 8, UINT64_MAX, -EINVAL}, {72, 8, 1, 0},
		{84, 4, 0, -EINVAL}, {84, 4, 14, -EINVAL}, {84, 4, 3, -EINVAL}, {84, 4, 0x80000002, -EINVAL}, {84, 4, 4, 0},
		{88, 8, 0x1122334455667788, -EINVAL}, {88, 8, 0x1122334455667788 - 0xfff, -EINVAL},
		{88, 8, 0x1122334455667788 - 0x1000, 0}, {96, 8, 0x1001, -EINVAL},
		{80, 4, 0, 0}, {80, 4, 0xffffffff, 0},         /* any key may be */
	};
	uint8_t blob[256], bad[256];
	struct map x;
	size_t len, i;

	some_map(&x, NULL);
	len = export_to(&x, blob, sizeof(blob));
	map_free(&x);
	for (i = 0; i < ARRAY(changes); i++) {
		int err;

		memcpy(bad, blob, len);
		memcpy(bad + changes[i].at, &changes[i].value, changes[i].bytes);
		reseal(bad, len);
		err = try_import(bad, len, NULL);
		if (err != changes[i].answer)
			fail_msg("change %zu, 0x%llx at %u: %d, not %d", i, (unsigned long long)changes[i].value, changes[i].at, err,
				 changes[i].answer);
	}
}

TEST(authenticated)
{
	static const uint32_t bad_lengths[] = {0, 4, 12, 15, 17, 18, 68, 128};
	uint8_t plain[256], coded[256], bad[256];
	struct inlay_mac odd = right;
	size_t plain_len, len, i, room;
	struct map x;

	some_map(&x, NULL);
	plain_len = export_to(&x, plain, sizeof(plain));
	map_free(&x);
	some_map(&x, &right);
	len = export_to(&x, coded, sizeof(coded));
	map_free(&x);
	odd.bytes = 16;
	const struct {
		const uint8_t *blob;
		const struct inlay_mac *mac;
		int err;
	} rows[] = { /* one side only, or another key, or another length of the code */
		{plain, NULL, 0}, {coded, &right, 0}, {plain, &right, -EBADMSG}, {coded, NULL, -EBADMSG}, {coded, &wrong, -EBADMSG},
		{coded, &odd, -EBADMSG}, {coded, &broken, -ENODEV},
	};
	for (i = 0; i < ARRAY(rows); i++)
		assert_int_equal(try_import(rows[i].blob, rows[i].blob == plain ? plain_len : len, rows[i].mac), rows[i].err);
	/* Who knows the format but not the key: any byte changed, the checksum made right again */
	for (i = 8 * 28; i < 8 * (len - 4); i++) {
		memcpy(bad, coded, len);
		bad[i / 8] ^= (uint8_t)(1 << i % 8);
		reseal(bad, len);
		assert_int_equal(try_import(bad, len, &right), -EBADMSG);
	}
	/* Without a function, or of a length that cannot be */
	some_map(&x, &odd);
	for (i = 0; i <= ARRAY(bad_lengths); i++) {
		odd = right;
		if (i < ARRAY(bad_lengths))
			odd.bytes = bad_lengths[i];
		else
			odd.make = NULL;
		room = sizeof(bad);
		assert_int_equal(inlay_mmap_export_rdma(&x.m, fake, bad, &room), -EINVAL);
		assert_int_equal(try_import(coded, len, &odd), -EINVAL);
	}
	map_free(&x);
	/* A code that cannot be made: not exported */
	some_map(&x, &broken);
	len = sizeof(bad);
	assert_true(inlay_mmap_export_rdma(&x.m, fake, bad, &len) == -ENODEV && !x.m.exported);
	map_free(&x);
}

/* The other side writes into the blob while it is looked at: right before or after its code is made */
static struct {
	uint8_t *blob;
	size_t at;
	uint8_t change;
	int after;
} writer;

static int hmac_beside_writer(void *key, const void *data, size_t len, uint8_t *code)
{
	int err;

	if (!writer.after)
		writer.blob[writer.at] ^= writer.change;
	err = hmac(key, data, len, code);
	if (writer.after)
		writer.blob[writer.at] ^= writer.change;
	return err;
}

TEST(written_meanwhile)
{
	const struct inlay_mac beside = {hmac_beside_writer, secret, 32};
	uint8_t blob[256], first[256];
	struct map x, straight;
	struct inlay_mmap m;
	void *memory;
	size_t len, size;

	some_map(&x, &right);
	len = export_to(&x, first, sizeof(first));
	map_free(&x);
	size = inlay_mmap_import_size(first, len);
	memory = given(size);
	map_import(&straight, fake, first, len, &right);
	writer.blob = blob;
	for (writer.after = 0; writer.after < 2; writer.after++)
		for (writer.at = 0; writer.at < len; writer.at++)
			for (writer.change = 1; writer.change; writer.change = (uint8_t)(writer.change << 1)) {
				memcpy(blob, first, len);
				must(inlay_mmap_create_from_export(&m, memory, size, fake, blob, len, &beside));
				assert_int_not_equal(blob[writer.at], first[writer.at]);
				assert_int_equal(m.num_ranges, straight.m.num_ranges);
				assert_int_equal(m.permissions, straight.m.permissions);
				for (uint32_t i = 0; i < m.num_ranges; i++)
					assert_memory_equal(range_of(&m, i), range_of(&straight.m, i),
							    sizeof(struct inlay_range));
				must(inlay_mmap_destroy(&m));
			}
	map_free(&straight);
	given_free(memory);
}

/* A blob for PCI is written and read; made use of it is where the device can */
TEST(pci)
{
	uint8_t blob[256], bad[256];
	struct inlay_blob back, head = {.kind = INLAY_BLOB_PCI, .permissions = INLAY_PCI_READ_WRITE, .code_bytes = 32, .vhca = 0x1234};
	struct inlay_blob_range s, r = {0x7000, 0x2000, 0x99, INLAY_PCI_READ_WRITE};
	size_t len, i;

	fill(head.access_key, sizeof(head.access_key), 5);
	len = blob_make(blob, &head, &r, &right);
	assert_int_equal(len, 64 + 24 + 32 + 4);
	assert_int_equal(inlay_mmap_import_size(blob, len), inlay_mmap_size(1, 1) + 128);
	assert_true(blob[10] == 2 && blob[28] == 0x34 && blob[29] == 0x12 && !memcmp(blob + 32, head.access_key, 32));
	must(inlay_blob_check_(&back, blob, len, &right));
	assert_memory_equal(&back, &head, sizeof(head));
	assert_int_equal(inlay_blob_check_(&back, blob, len, NULL), -EBADMSG); /* a code where there must be none */
	memcpy(&s, blob + inlay_blob_at_(0), sizeof(s));
	assert_memory_equal(&r, &s, sizeof(r));
	assert_int_equal(try_import(blob, len, &right), -ENOTSUP);
	for (i = 0; i < 8 * len; i++) {
		memcpy(bad, blob, len);
		bad[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_true(inlay_blob_check_(&back, bad, len, &right) < 0);
	}
	for (i = 0; i < len; i++)
		assert_true(try_import(blob, i, &right) != -ENOTSUP);
	/* Sealed anew, but not sound: a function's number has 16 bits */
	const struct { uint64_t start, len; uint32_t access, vhca; int err; } rows[] = {
		{0x7000, 0, INLAY_PCI_READ_WRITE, 1, -EINVAL}, {UINT64_MAX - 0x1ffe, 0x2000, INLAY_PCI_READ_WRITE, 1, -EINVAL},
		{0x7000, 0x2000, INLAY_PCI_ANY, 1, -EINVAL}, {0x7000, 0x2000, INLAY_RDMA_READ, 1, -EINVAL},
		{0x7000, 0x2000, INLAY_PCI_READ_WRITE, 0xffff, -ENOTSUP}, {0x7000, 0x2000, INLAY_PCI_READ_ONLY, 0, -ENOTSUP},
		{0x7000, 0x2000, INLAY_PCI_READ_WRITE, 0x10000, -EINVAL}, {0x7000, 0x2000, INLAY_PCI_READ_WRITE, 1u << 31, -EINVAL},
	};
	for (i = 0; i < ARRAY(rows); i++) {
		r.start = rows[i].start;
		r.len = rows[i].len;
		head.permissions = r.access = rows[i].access;
		head.vhca = rows[i].vhca;
		len = blob_make(blob, &head, &r, &right);
		if (try_import(blob, len, &right) != rows[i].err)
			fail_msg("row %zu", i);
	}
}

/* A blob that claims a code longer than the map's memory is copied nowhere */
TEST(long_code)
{
	static uint8_t blob[4 * PAGE];
	struct inlay_blob head = {.kind = INLAY_BLOB_RDMA, .permissions = INLAY_RDMA_READ, .code_bytes = 3 * PAGE};
	struct inlay_blob_range r = {0x7000, 0x2000, 0x99, INLAY_RDMA_READ};
	size_t len = blob_make(blob, &head, &r, NULL);

	assert_true(inlay_mmap_import_size(blob, len) && inlay_mmap_import_size(blob, len) < len);
	assert_true(try_import(blob, len, NULL) == -EBADMSG && try_import(blob, len, &right) == -EBADMSG);
	/* Nor is one of no ranges a map */
	head.code_bytes = 0;
	len = blob_make(blob, &head, NULL, NULL);
	assert_int_equal(inlay_mmap_import_size(blob, len), 0);
	assert_int_equal(try_import(blob, len, NULL), -EINVAL);
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
