/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz.c: the fuzzers' functions (tests/fuzz) without a fuzzer: all that is kept in tests/fuzz/seeds and tests/fuzz/corpus, and each
 * of these inputs spoiled at random, always in the same ways.
 *
 * TASK_OPS: a five-hundredth of it is how often each input is spoiled; 60 times without it
 */
#include "common.h"
#include <dirent.h>
#define FUZZ_REPLAY
#include "fuzz/cqe.c"
#include "fuzz/host.c"
#include "fuzz/parse.c"
#include "fuzz/plugin.c"
#include "fuzz/worker.c"

#define LONGEST 4096u

typedef void (*target)(const uint8_t *data, size_t size);

static uint8_t other[LONGEST];  /* the input before */
static size_t other_size;

/* A few bytes changed, left out, put in, or taken from the input before. Returns the length. */
static size_t spoil(uint8_t *data, size_t size)
{
	uint32_t n = 1 + rnd_below(4), at, len;

	while (n--) {
		at = rnd_below((uint32_t)size + 1);
		len = 1 + rnd_below(8);
		switch (rnd_below(5)) {
		case 0:
			if (at < size)
				data[at] ^= (uint8_t)(1u << rnd_below(8));
			break;
		case 1:
			if (at < size)
				data[at] = (uint8_t)rnd();
			break;
		case 2:
			if (at + len <= size) {
				memmove(data + at, data + at + len, size - at - len);
				size -= len;
			}
			break;
		case 3:
			if (size + len <= LONGEST) {
				memmove(data + at + len, data + at, size - at);
				size += len;
				while (len--)
					data[at + len] = (uint8_t)rnd();
			}
			break;
		default:
			len *= 4;
			if (len <= other_size && at + len <= LONGEST) {
				memcpy(data + at, other + rnd_below((uint32_t)(other_size - len) + 1), len);
				if (size < at + len)
					size = at + len;
			}
		}
	}
	return size;
}

static void replay_file(const char *path, target run, uint64_t rounds)
{
	static uint8_t data[LONGEST], spoiled[LONGEST];
	FILE *f = fopen(path, "re");
	size_t size;

	assert_non_null(f);
	size = fread(data, 1, sizeof(data), f);
	assert_int_equal(fclose(f), 0);
	run(data, size);
	while (rounds--) {
		memcpy(spoiled, data, size);
		run(spoiled, spoil(spoiled, size));
	}
	memcpy(other, data, size);
	other_size = size;
}

static int visible(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static void replay(const char *name, target run)
{
	static const char *const folders[2] = {"seeds", "corpus"};
	const char *env = getenv("TASK_OPS");
	uint64_t rounds = env && *env ? strtoull(env, NULL, 0) / 500 : 60;
	struct dirent **entries;
	char path[512];
	int i, n, k;

	rnd_state = 7;
	other_size = 0;
	for (k = 0; k < 2; k++) {
		snprintf(path, sizeof(path), "tests/fuzz/%s/%s", folders[k], name);
		n = scandir(path, &entries, visible, alphasort);
		assert_true(n > 0);
		for (i = 0; i < n; i++) {
			snprintf(path, sizeof(path), "tests/fuzz/%s/%s/%.200s", folders[k], name, entries[i]->d_name);
			replay_file(path, run, rounds);
			free(entries[i]);
		}
		free(entries);
	}
}

#define REPLAY(function, name) \
	TEST(function) { replay(#name, name##_input); }

REPLAY(hosts, host)
REPLAY(workers, worker)
REPLAY(plugins, plugin)
REPLAY(completions, cqe)

TEST(parsers)
{
	replay("parse", parse_input);
	/* Nothing is refused for a version that has passed. */
	assert_true(parse_read.messages && parse_read.addresses && parse_read.groups && parse_read.records && parse_read.answers);
	assert_true(parse_read.maps && parse_read.pci_maps && parse_read.coded_maps && parse_read.wqes);
}

int main(void)
{
	return run_all(NULL, NULL);
}
