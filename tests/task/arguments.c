/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * arguments.c: what set-up refuses: parameters of hosts and workers on both sides of their limits, plugins that cannot be
 * opened, addresses with any wrong field. Nothing is left after a refusal.
 */
#include "scene.h"

/* A field of a struct, the last value that is good, and the first that is not */
struct limit {
	size_t at;
	uint32_t good, bad;
};

#define HOST(field, good, bad) {offsetof(struct inlay_task_host_params, field), good, bad}
#define WORKER(field, good, bad) {offsetof(struct inlay_task_worker_params, field), good, bad}

static void set(void *params, size_t at, uint32_t value)
{
	memcpy((uint8_t *)params + at, &value, sizeof(value));
}

static void refused(int err, int want, const char **why, const char *part)
{
	assert_int_equal(err, want);
	if (!*why || !strstr(*why, part))
		fail_msg("\"%s\" where \"%s\" was due", *why, part);
	*why = NULL;
}

/* What the comments above them promise */
TEST(defaults)
{
	struct inlay_task_host_params h = inlay_task_host_default();
	struct inlay_task_worker_params w = inlay_task_worker_default();

	assert_true(h.tasks == 64 && h.in_flight == 32 && h.message == 4096 && h.max_inline == 96);
	assert_true(w.num_plugins == 0 && w.connections == 16 && w.credits == 32 && w.message == 4096 && w.max_inline == 96);
}

TEST(hosts)
{
	static const struct limit limits[] = {
		HOST(tasks, 1, 0), HOST(tasks, 65536, 65537), HOST(in_flight, 1, 0), HOST(in_flight, 4, 3), HOST(in_flight, 32768, 65536),
		HOST(message, 64, 63), HOST(message, 1 << 24, (1 << 24) + 1), HOST(payload, 1, 0), HOST(payload, 0x7fffffff, 0x80000000),
		HOST(max_inline, 512, 513), HOST(max_gather, 16, 17), HOST(max_gather, 1, 0)};
	static struct inlay_task_host h;
	struct inlay_task_host_params p;
	const char *why = NULL;
	uint8_t *memory;
	size_t size;

	plain();
	size = inlay_task_host_size(&hp);
	memory = (uint8_t *)pages(size);
	for (uint32_t i = 0; i < ARRAY(limits); i++) {
		p = hp;
		set(&p, limits[i].at, limits[i].good);
		assert_true(inlay_task_host_size(&p) > 0);
		set(&p, limits[i].at, limits[i].bad);
		assert_int_equal(inlay_task_host_size(&p), 0);
		refused(inlay_task_host_create(&h, memory, size, dev.pd, &p, &why), -EINVAL, &why, "a host's argument");
	}
	assert_int_equal(inlay_task_host_size(NULL), 0);
	assert_int_equal(inlay_task_host_create(NULL, memory, size, dev.pd, &hp, NULL), -EINVAL);
	assert_int_equal(inlay_task_host_create((struct inlay_task_host *)(void *)(memory + 8), memory, size, dev.pd, &hp, NULL), -EINVAL);
	assert_int_equal(inlay_task_host_create(&h, NULL, size, dev.pd, &hp, NULL), -EINVAL);
	assert_int_equal(inlay_task_host_create(&h, memory + 8, size, dev.pd, &hp, NULL), -EINVAL);
	assert_int_equal(inlay_task_host_create(&h, memory, size, NULL, &hp, NULL), -EINVAL);
	assert_int_equal(inlay_task_host_create(&h, memory, size, dev.pd, NULL, NULL), -EINVAL);
	refused(inlay_task_host_create(&h, memory, size - 1, dev.pd, &hp, &why), -ENOBUFS, &why, "inlay_task_host_size");
	p = hp;
	p.path.timeout = 0;
	refused(inlay_task_host_create(&h, memory, size, dev.pd, &p, &why), -EINVAL, &why, "timeout");
	must(inlay_task_host_create(&h, memory, size, dev.pd, &hp, &why));
	must(inlay_task_host_destroy(&h));
	free(memory);
}

TEST(workers)
{
	static const struct limit limits[] = {
		WORKER(connections, 1, 0), WORKER(connections, 4096, 4097), WORKER(num_plugins, 64, 65), WORKER(credits, 1, 0),
		WORKER(credits, 4, 6), WORKER(credits, 32768, 65536), WORKER(spare, 1, 0), WORKER(spare, 32768, 32769),
		WORKER(message, 64, 63), WORKER(message, 1 << 24, (1 << 24) + 1), WORKER(response, 512, 0),
		WORKER(response, 1 << 24, (1 << 24) + 1), WORKER(max_inline, 512, 513), WORKER(response, 96, 95)};
	static struct inlay_task_host h;
	static struct inlay_task_worker w;
	static struct inlay_task_conn c[2];
	struct inlay_task_worker_params p;
	struct inlay_pool pool = {};
	const char *why = NULL;
	uint8_t *more, *memory;
	size_t bytes;

	plain();
	memory = (uint8_t *)pages(inlay_task_host_size(&hp));
	must(inlay_task_host_create(&h, memory, inlay_task_host_size(&hp), dev.pd, &hp, NULL));
	wp.plugins = usual_plugins;
	wp.num_plugins = ARRAY(usual_plugins);
	wp.connections = 1;
	wp.response = 512;
	wp.max_inline = 96;
	bytes = inlay_task_conn_size(&wp);
	more = (uint8_t *)pages(bytes);
	for (uint32_t i = 0; i < ARRAY(limits); i++) {
		p = wp;
		set(&p, limits[i].at, limits[i].good);
		assert_true(inlay_task_conn_size(&p) > 0);
		set(&p, limits[i].at, limits[i].bad);
		assert_int_equal(inlay_task_conn_size(&p), 0);
		refused(inlay_task_worker_create(&w, dev.pd, &p, &why), -EINVAL, &why, "a worker's argument");
	}
	p = wp;
	p.plugins = NULL;
	assert_int_equal(inlay_task_conn_size(&p), 0);
	p = wp;
	p.pool = &pool;
	assert_int_equal(inlay_task_conn_size(&p), 0); /* no element for each connection */
	pool.num = 1;
	assert_int_equal(inlay_task_conn_size(&p), bytes);
	assert_int_equal(inlay_task_conn_size(NULL), 0);
	assert_int_equal(inlay_task_worker_create(NULL, dev.pd, &wp, NULL), -EINVAL);
	assert_int_equal(inlay_task_worker_create((struct inlay_task_worker *)(void *)(more + 8), dev.pd, &wp, NULL), -EINVAL);
	assert_int_equal(inlay_task_worker_create(&w, NULL, &wp, NULL), -EINVAL);
	must(inlay_task_worker_create(&w, dev.pd, &wp, NULL));
	assert_int_equal(inlay_task_conn_create(NULL, more, bytes, &w, &h.link.self, INLAY_TASK_ADDRESS, NULL), -EINVAL);
	assert_int_equal(inlay_task_conn_create((struct inlay_task_conn *)(void *)(more + 8), more, bytes, &w, &h.link.self, INLAY_TASK_ADDRESS, NULL), -EINVAL);
	assert_int_equal(inlay_task_conn_create(&c[0], more, bytes, NULL, &h.link.self, INLAY_TASK_ADDRESS, NULL), -EINVAL);
	assert_int_equal(inlay_task_conn_create(&c[0], NULL, bytes, &w, &h.link.self, INLAY_TASK_ADDRESS, NULL), -EINVAL);
	assert_int_equal(inlay_task_conn_create(&c[0], more + 8, bytes, &w, &h.link.self, INLAY_TASK_ADDRESS, NULL), -EINVAL);
	refused(inlay_task_conn_create(&c[0], more, bytes, &w, &w, 1, &why), -EPROTO, &why, "not an address");
	refused(inlay_task_conn_create(&c[0], more, bytes - 1, &w, NULL, 0, &why), -ENOBUFS, &why, "inlay_task_conn_size");
	must(inlay_task_conn_create(&c[0], more, bytes, &w, &h.link.self, INLAY_TASK_ADDRESS, NULL));
	refused(inlay_task_conn_create(&c[1], more, bytes, &w, NULL, 0, &why), -EAGAIN, &why, "all its connections");
	assert_int_equal(inlay_task_worker_destroy(&w), -EBUSY);
	must(inlay_task_conn_destroy(&c[0]));
	must(inlay_task_worker_destroy(&w));
	wp.max_inline = 0; /* an answer then takes less than a response by key */
	must(inlay_task_worker_create(&w, dev.pd, &wp, NULL));
	must(inlay_task_conn_create(&c[0], more, bytes, &w, &h.link.self, INLAY_TASK_ADDRESS, NULL));
	must(inlay_task_conn_destroy(&c[0]));
	must(inlay_task_worker_destroy(&w));
	must(inlay_task_host_destroy(&h));
	free(memory);
	free(more);
}

/* Those before the one that cannot be opened are closed again */
static int opened, open_fails; /* the second one */

static int open_one(UNUSED void *argument, UNUSED struct inlay_task_worker *w, UNUSED void **plugin)
{
	if (open_fails && opened)
		return -ENOMEM;
	opened++;
	return 0;
}

static void close_one(UNUSED void *plugin)
{
	opened--;
}

TEST(plugins)
{
	struct inlay_task_plugin first = plugin_echo, second = plugin_keep;
	struct inlay_task_entry entries[2] = {{ECHO, &first, NULL}, {KEEP, &second, NULL}};
	static const int errors[] = {-EPROTO, -EPROTO, -EINVAL, -EEXIST, -ENOMEM, 0};
	static struct inlay_task_worker w;

	plain();
	first.open = second.open = open_one;
	first.close = second.close = close_one;
	wp.plugins = entries;
	wp.num_plugins = 2;
	for (uint32_t i = 0; i < ARRAY(errors); i++) {
		second.version = i == 0 ? INLAY_TASK_VERSION + 1 : INLAY_TASK_VERSION;
		entries[1].plugin = i == 1 ? NULL : &second;
		second.command = i == 2 ? NULL : keep;
		entries[1].id = i == 3 ? ECHO : KEEP;
		open_fails = i == 4;
		assert_int_equal(inlay_task_worker_create(&w, dev.pd, &wp, NULL), errors[i]);
		assert_int_equal(opened, errors[i] ? 0 : 2);
	}
	must(inlay_task_worker_destroy(&w));
	assert_int_equal(opened, 0);
}

static void checksum(uint8_t *at, size_t len)
{
	uint32_t crc = inlay_crc32c(at, len);

	memcpy(at + len, &crc, sizeof(crc));
}

/* An address with one field changed, its checksum right again */
static int reads(const uint8_t *address, uint32_t role, uint32_t at, uint32_t bytes, uint64_t value)
{
	uint8_t changed[INLAY_TASK_ADDRESS];
	struct inlay_connect_record record;
	struct inlay_task_address a;

	memcpy(changed, address, sizeof(changed));
	memcpy(changed + at, &value, bytes);
	checksum(changed, INLAY_TASK_ADDRESS - 4);
	return inlay_task_address_read_(&a, &record, changed, sizeof(changed), role, NULL);
}

TEST(addresses)
{
	uint8_t address[2][INLAY_TASK_ADDRESS + 1], longer[INLAY_TASK_ADDRESS + 1];
	struct inlay_connect_record record;
	struct inlay_task_address a;
	uint32_t i, role;

	plain();
	usual_scene(1, 2);
	memcpy(address[INLAY_TASK_HOST & 1], &line->host.link.self, INLAY_TASK_ADDRESS);
	memcpy(address[INLAY_TASK_WORKER & 1], &line->conn.link.self, INLAY_TASK_ADDRESS);
	for (role = INLAY_TASK_HOST < INLAY_TASK_WORKER ? INLAY_TASK_HOST : INLAY_TASK_WORKER, i = 0; i < 2; i++, role++) {
		uint8_t *at = address[role & 1];

		must(inlay_task_address_read_(&a, &record, at, INLAY_TASK_ADDRESS, role, NULL));
		assert_int_equal(inlay_task_address_read_(&a, &record, at, INLAY_TASK_ADDRESS, role ^ 3, NULL), -EINVAL);
		assert_int_equal(inlay_task_address_read_(&a, &record, NULL, INLAY_TASK_ADDRESS, role, NULL), -EPROTO);
		assert_int_equal(inlay_task_address_read_(&a, &record, at, INLAY_TASK_ADDRESS - 1, role, NULL), -EPROTO);
		memcpy(longer, at, INLAY_TASK_ADDRESS);
		longer[INLAY_TASK_ADDRESS] = 0;
		assert_int_equal(inlay_task_address_read_(&a, &record, longer, INLAY_TASK_ADDRESS + 1, role, NULL), -EINVAL);
		for (uint32_t k = 0; k < INLAY_TASK_ADDRESS * 8; k++) {
			at[k / 8] ^= (uint8_t)(1 << k % 8);
			assert_int_equal(inlay_task_address_read_(&a, &record, at, INLAY_TASK_ADDRESS, role, NULL),
					 k < 80 ? -EPROTO : k >= 96 && k < 128 ? -EINVAL : -EBADMSG);
			at[k / 8] ^= (uint8_t)(1 << k % 8);
		}
		assert_int_equal(reads(at, role, 0, 1, 'I'), -EPROTO);
		assert_int_equal(reads(at, role, 8, 2, INLAY_TASK_VERSION + 1), -EPROTO);
		assert_int_equal(reads(at, role, 12, 4, INLAY_TASK_ADDRESS + 4), -EINVAL);
		assert_int_equal(reads(at, role, 16, 1, ~(uint64_t)at[16] & 0xff), -EINVAL); /* no record */
		must(reads(at, role, 56, 4, 64));
		assert_int_equal(reads(at, role, 56, 4, 63), -EINVAL);
		must(reads(at, role, 56, 4, 1 << 24));
		assert_int_equal(reads(at, role, 56, 4, (1 << 24) + 1), -EINVAL);
		must(reads(at, role, 60, 4, 32768));
		assert_int_equal(reads(at, role, 60, 4, 0), -EINVAL);
		assert_int_equal(reads(at, role, 60, 4, 32769), -EINVAL);
		assert_int_equal(reads(at, role, 64, 8, 1), role == INLAY_TASK_HOST ? -EINVAL : 0);
		/* A record of another type */
		must(inlay_connect_unpack(&record, at + 16, INLAY_CONNECT_SIZE, NULL));
		record.type = IBV_QPT_UC;
		memcpy(longer, at, INLAY_TASK_ADDRESS);
		inlay_connect_pack(&record, longer + 16);
		checksum(longer, INLAY_TASK_ADDRESS - 4);
		assert_int_equal(inlay_task_address_read_(&a, &record, longer, INLAY_TASK_ADDRESS, role, NULL), -EINVAL);
	}
	/* It is connected, once */
	assert_int_equal(inlay_task_host_connect(&line->host, address[INLAY_TASK_HOST & 1], INLAY_TASK_ADDRESS, NULL), -EBADFD);
	assert_int_equal(inlay_task_host_connect(&line->host, address[INLAY_TASK_WORKER & 1], INLAY_TASK_ADDRESS, NULL), -EBADFD);
	scene_free();
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
