/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * blob.c: for Frama-C. Export blobs, connection records, addresses and messages of command tasks: any bytes, of
 * every length up to that of a few ranges. Nothing beside them is read.
 */
#include <infiniband/mlx5dv.h>
#include "proof.h"
#define INLAY_QUEUE_SCAN_H /* vectors, which read no blob */
#define INLAY_QUEUE_BATCH_H
#include <inlay/task/wire.h>

#define LONGEST 172u            /* a PCI blob with three ranges and a code */

static uint8_t *proof_half(uint8_t *at, uint32_t size)
{
	return at ? at + size - size : at;
}

/*@ requires \valid(code + (0 .. 63));
  @ requires \valid_read((const uint8_t *)data + (0 .. len - 1));
  @ assigns code[0 .. 63] \from ((const uint8_t *)data)[0 .. len - 1];
  @ assigns \result \from key;
  @ ensures \initialized(code + (0 .. 63));
  @*/
int make(void *key, const void *data, size_t len, uint8_t *code);

static uint8_t memory[LONGEST];

/* What inlay_blob_check_ does after inlay_blob_head_, of a blob whose lengths agree. */
static void blob(uint32_t ranges, uint32_t code_bytes)
{
	struct inlay_mac mac = {make, NULL, 32};
	struct inlay_blob head = {};
	struct inlay_blob_range r;
	const uint8_t *at;
	uint32_t len, i;

	head.ranges = ranges;
	head.code_bytes = code_bytes;
	len = (uint32_t)inlay_blob_bytes_(&head);
	at = memory + LONGEST - len;
	inlay_crc32c(at, len - 4);
	inlay_blob_code_(at, &head, &mac);
	inlay_blob_code_(at, &head, NULL);
	/*@ loop unroll 8; */
	for (i = 0; i < ranges; i++)
		memcpy(&r, at + inlay_blob_at_(i), sizeof(r));
}

static void head(uint32_t len)
{
	struct inlay_blob head;
	int err = inlay_blob_head_(&head, memory + LONGEST - len, len);

	/*@ assert err == 0 || err == -22 || err == -71; */
}

static void message(uint32_t len)
{
	struct inlay_task_message message;
	int err = inlay_task_message_read_(&message, memory + LONGEST - len, len);

	/*@ assert err != 0 || message.at <= len; */
}

static void record(uint32_t len)
{
	struct inlay_connect_record record;
	const char *why;

	inlay_connect_unpack(&record, memory + LONGEST - len, len, &why);
}

static void address(uint32_t len)
{
	struct inlay_connect_record at;
	struct inlay_task_address address;
	const char *why;

	inlay_task_address_read_(&address, &at, memory + LONGEST - len, len, (uint32_t)any64(), &why);
}

int main(void)
{
	any_bytes(memory, sizeof(memory));
	/*@ loop unroll 200; */
	for (uint32_t len = 0; len <= LONGEST; len++) {
		head(len);
		message(len);
		if (len == 0 || len == INLAY_CONNECT_SIZE)
			record(len);
		if (len == 0 || (len >= INLAY_TASK_ADDRESS - 1 && len <= INLAY_TASK_ADDRESS + 1))
			address(len);
	}
	/*@ loop unroll 8; */
	for (uint32_t ranges = 1; ranges <= 3; ranges++) {
		blob(ranges, 0);
		blob(ranges, 32);
	}
	return 0;
}
