/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fields of device commands (devx/ifc.h) against a model that moves one bit at a time. Where each field lies: ifc.t.
 */
#include "common.h"
#include <inlay/devx/ifc.h>

#define DWORDS 6

/* Bit `i`, counted as the device's reference does */
static uint64_t bit(const uint8_t *bytes, size_t i)
{
	return bytes[i / 8] >> (7 - i % 8) & 1;
}

static uint64_t model_get(const uint8_t *bytes, uint32_t offset, uint32_t width)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < width; i++)
		value = value << 1 | bit(bytes, offset + i);
	return value;
}

static void model_set(uint8_t *bytes, uint32_t offset, uint32_t width, uint64_t value)
{
	for (uint32_t i = 0; i < width; i++) {
		size_t at = offset + i;

		bytes[at / 8] = (uint8_t)((bytes[at / 8] & ~(0x80 >> at % 8)) | (value >> (width - 1 - i) & 1) << (7 - at % 8));
	}
}

static void random_bytes(uint8_t *at, size_t len)
{
	while (len--)
		*at++ = (uint8_t)rnd();
}

static uint64_t random_value(uint32_t width)
{
	uint64_t value = rnd_below(8) ? rnd() : rnd_below(2) ? ~0ull : 0;

	return value >> (64 - width);
}

static void one(uint32_t offset, uint32_t width)
{
	union {
		uint32_t dword[DWORDS];
		uint8_t bytes[DWORDS * 4];
	} real;
	uint8_t model[DWORDS * 4];
	uint32_t field = INLAY_BITS(offset, width);
	uint64_t value = random_value(width);

	random_bytes(model, sizeof(model));
	memcpy(real.bytes, model, sizeof(model));
	assert_int_equal(inlay_bits_get(real.dword, field), model_get(model, offset, width));
	inlay_bits_set(real.dword, field, value);
	model_set(model, offset, width, value);
	assert_memory_equal(real.bytes, model, sizeof(model)); /* and nothing beside it */
	assert_int_equal(inlay_bits_get(real.dword, field), value);
}

TEST(every_place)
{
	for (uint32_t times = 0; times < 4; times++) {
		for (uint32_t width = 1; width <= 32; width++)
			for (uint32_t offset = 0; offset + width <= DWORDS * 32; offset++)
				if (offset / 32 == (offset + width - 1) / 32)
					one(offset, width);
		for (uint32_t offset = 0; offset + 64 <= DWORDS * 32; offset += 32)
			one(offset, 64);
	}
}

/* ---- too wide ---- */

struct wide {
	uint32_t dword[2];
	uint32_t field;
	uint64_t value;
};

static void set_wide(void *arg)
{
	struct wide *w = (struct wide *)arg;

	inlay_bits_set(w->dword, w->field, w->value);
}

TEST(too_wide)
{
	for (uint32_t width = 1; width <= 32; width++) {
		uint32_t offset = rnd_below(33 - width);
		struct wide w = {{0, 0}, 0, 0};
		uint8_t model[8] = {0};

		w.field = INLAY_BITS(offset, width);
		w.value = (1ull << width) | (rnd() & ((1ull << width) - 1));
		if (INLAY_CHECKED) {
			if (width % 8 <= 1)
				assert_aborts("inlay: inlay_bits_set: a value fits the width of its field\n", set_wide(&w));
			continue;
		}
		set_wide(&w); /* the upper bits are cut off and hit nobody */
		model_set(model, offset, width, w.value & ((1ull << width) - 1));
		assert_memory_equal(w.dword, model, sizeof(model));
	}
}

/* Capabilities counted by hand */
TEST(by_hand)
{
	struct inlay_query_hca_cap_out cap;
	uint8_t *box = (uint8_t *)&cap;

	memset(&cap, 0, sizeof(cap));
	box[4] = 0xde;
	box[7] = 0xad;
	box[0x10 + 0x06] = 0x12;
	box[0x10 + 0x07] = 0x34;
	box[0x10 + 0x12] = 0x56;
	box[0x10 + 0x13] = 0x78;
	assert_int_equal(inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_VHCA_ID), 0x1234);
	assert_int_equal(inlay_hca_cap_get(&cap.cap, INLAY_ATOMIC_CAP_ATOMIC_OPERATIONS), 0x5678);
	assert_int_equal(inlay_hca_cap_get(&cap.cap, INLAY_ROCE_CAP_ROCE_VERSION), 0x78);
	assert_int_equal(inlay_cmd_out_get(&cap.cmd, INLAY_CMD_OUT_SYNDROME), 0xde0000ad);
}

int main(void)
{
	rnd_seed();
	return run_all(NULL, NULL);
}
