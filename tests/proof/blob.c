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

#define LONGEST 180u            /* a PCI blob with three ranges and a code */

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
static void blob(uint32_t kind, uint32_t ranges, uint32_t code_bytes)
{
	uint32_t len = (uint32_t)inlay_blob_bytes_(kind, ranges, code_bytes), i;
	const uint8_t *at = memory + LONGEST - len;
	struct inlay_mac mac = {make, NULL, 32};
	struct inlay_blob head;
	struct inlay_range r;

	memset(&head, 0, sizeof(head));
	head.kind = kind;
	head.ranges = ranges;
	head.code_bytes = code_bytes;
	inlay_crc32c(at, len - 4);
	inlay_blob_get(at + len - 4, 4);
	inlay_blob_code_(at, &head, &mac);
	inlay_blob_code_(at, &head, NULL);
	/*@ loop unroll 8; */
	for (i = 0; i < ranges; i++) {
		inlay_blob_range_(at, &head, i, &r);
		/*@ assert r.id == i; */
	}
}

/* The kind is given: the checker does not see that it decides how long a blob must be. */
static void head(uint32_t len, uint32_t kind)
{
	uint8_t *at = memory + LONGEST - len;
	struct inlay_blob head;
	int err;

	if (len >= 12)
		inlay_blob_put(at + 10, kind, 2);
	err = inlay_blob_head_(&head, at, len);
	/*@ assert err == 0 || err == -22 || err == -71; */
	any_bytes(memory, sizeof(memory));
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
	struct inlay_task_address address;
	const char *why;

	inlay_task_address_read_(&address, memory + LONGEST - len, len, (uint32_t)any64(), &why);
}

int main(void)
{
	uint32_t len, ranges;

	any_bytes(memory, sizeof(memory));
	/*@ loop unroll 200; */
	for (len = 0; len <= LONGEST; len++) {
		head(len, INLAY_BLOB_RDMA_);
		head(len, INLAY_BLOB_OVER_PCI_);
		head(len, 3);
		head(len, 0x102);
		message(len);
		if (len == 0 || len == INLAY_CONNECT_SIZE)
			record(len);
		if (len == 0 || (len >= INLAY_TASK_ADDRESS - 1 && len <= INLAY_TASK_ADDRESS + 1))
			address(len);
	}
	/*@ loop unroll 8; */
	for (ranges = 1; ranges <= 3; ranges++) {
		blob(INLAY_BLOB_RDMA_, ranges, 0);
		blob(INLAY_BLOB_RDMA_, ranges, 32);
		blob(INLAY_BLOB_OVER_PCI_, ranges, 0);
		blob(INLAY_BLOB_OVER_PCI_, ranges, 32);
	}
	return 0;
}
