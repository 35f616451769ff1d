/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle.c: list operations byte for byte as libmlx5's, over random sequences.
 *
 * libmlx5 does not show the queue to which it posts list operations. The test finds it in memory, by the content of the first
 * one.
 *
 * Environment: ORACLE_CASES, operations that are compared, 20000.
 */
#include "softdev/tests/rig_tm.h"
#include <inlay/tag.h>

#define TAGS 15u
#define BBS 32768u

static struct match t;

/* ---- libmlx5's bytes and inlay's ---- */

static struct {
	const uint8_t *ring;      /* libmlx5's */
	uint32_t cnt;             /* its WQEBBs, 0: not known yet */
	uint32_t posted;
	struct inlay_tag_list list;
	struct inlay_sq sq;
	struct inlay_uar uar;
	uint8_t *own;
	void *memory;
	uint32_t dbrec[2];
	struct { uint32_t lib, inlay; uint64_t tag, id; } live[TAGS];
	uint32_t lives;
} o;

static uint64_t doorbells[64] __attribute__((aligned(4096)));

static uint64_t rnd64(void)
{
	return (uint64_t)rnd() << 32 | rnd();
}

typedef uint64_t word __attribute__((may_alias));

/* Where such an APPEND lies as the first WQE of a ring. A sanitizer is not asked: all memory is looked at, its own too. */
static __attribute__((no_sanitize_address)) const uint8_t *find_ring(uint64_t tag, uint64_t mask)
{
	const uint64_t tag_be = htobe64(tag), mask_be = htobe64(mask);
	FILE *maps = fopen("/proc/self/maps", "r");
	const uint8_t *found = NULL, *at;
	unsigned long begin, end;
	char line[512], how[8];

	assert_non_null(maps);
	while (!found && fgets(line, sizeof(line), maps)) {
		/* What is larger is a sanitizer's */
		if (sscanf(line, "%lx-%lx %7s", &begin, &end, how) != 3 || strcmp(how, "rw-p") || end - begin > 1ul << 28)
			continue;
		for (at = (const uint8_t *)begin; at + 64 <= (const uint8_t *)end && !found; at += 64)
			if ((uint32_t)*(const word *)at == htobe32(0x28) && at[16] == 0x10 &&
			    *(const word *)(at + 32) == tag_be && *(const word *)(at + 40) == mask_be)
				found = at;
	}
	fclose(maps);
	return found;
}

/* Besides what it is asked for, inlay wants a completion once in a quarter of the ring */
static int own_request(uint32_t i)
{
	return i % (BBS / 4) == BBS / 4 - 1;
}

/* The last operation of both */
static void same_bytes(void)
{
	const uint32_t i = o.posted++;
	const uint8_t *lib, *own = o.own + (size_t)(i % BBS) * 64;
	uint8_t wanted[64] = { 0 };

	if (!o.cnt && i && o.ring[1] == (uint8_t)(i >> 8) && o.ring[2] == (uint8_t)i)
		o.cnt = i;
	assert_true(!o.cnt || !(o.cnt & (o.cnt - 1)));
	lib = o.ring + (size_t)(o.cnt ? i & (o.cnt - 1) : i) * 64;
	memcpy(wanted, lib, 64);
	if (o.cnt) {
		/* What libmlx5 leaves as it was is the last round's: inlay writes zeros into the segment */
		memset(wanted + 20, 0, 2);
		memset(wanted + 24, 0, 8);
		if (!(lib[17] & 0x40))
			memset(wanted + 22, 0, 2);
		if (lib[16] == 0)
			memset(wanted + 18, 0, 2);
		if (lib[16] != 0x10)
			memset(wanted + 32, 0, 16);
	}
	/* A removal is always asked for */
	if (lib[16] == 0x20 || own_request(i))
		wanted[17] |= 0x80;
	assert_memory_equal(own, wanted, lib[16] == 0x10 ? 64 : 48);
}

/* What the device told libmlx5, told to inlay */
static void told(uint8_t app_op, uint32_t entry)
{
	struct inlay_tag_wc wc;
	struct mlx5_cqe64 c = {.app = INLAY_CQE_APP_TAG, .app_op = app_op, .app_info = htobe16((uint16_t)entry)};

	c.tm_cqe.success = app_op <= INLAY_TAG_NO_TAG ? 0 : htobe32(MLX5_TMC_SUCCESS);
	c.op_own = (app_op == INLAY_TAG_UNEXPECTED || app_op == INLAY_TAG_CONSUMED_MSG ? MLX5_CQE_RESP_SEND : MLX5_CQE_NO_PACKET) << 4;
	assert_true(inlay_tag_list_complete(&o.list, &c, 64, &wc) >= 0);
}

static void operation(enum ibv_ops_wr_opcode opcode, uint64_t id)
{
	int flags = (int)(rnd() % 3 ? IBV_OPS_SIGNALED : 0) | (int)(rnd() % 2 ? IBV_OPS_TM_SYNC : 0), err, own;
	struct ibv_sge sg = sge(&t.rx, rnd() % 1000, rnd() % 8 ? 1 + rnd() % 2000 : 0);
	struct ibv_ops_wr wr = add_wr(id, &sg, rnd64(), rnd() % 4 ? ALL : rnd64(), flags), *bad;
	uint32_t which = opcode == IBV_WR_TAG_DEL ? rnd() % o.lives : 0, handle = 0;

	wr.opcode = opcode;
	wr.tm.add.tag &= wr.tm.add.mask;
	/* An empty buffer is none: libmlx5 would write one of 2^31 bytes */
	wr.tm.add.num_sge = sg.length ? 1 : 0;
	wr.tm.unexpected_cnt = t.unexpected;
	if (opcode == IBV_WR_TAG_DEL)
		wr.tm.handle = o.live[which].lib;
	err = ibv_post_srq_ops(t.srq, &wr, &bad);
	if (opcode == IBV_WR_TAG_ADD)
		own = inlay_tag_list_add(&o.list, id + 1000, wr.tm.add.tag, wr.tm.add.mask, &sg, flags, &handle);
	else if (opcode == IBV_WR_TAG_DEL)
		own = inlay_tag_list_del(&o.list, id, o.live[which].inlay, flags);
	else
		own = inlay_tag_list_sync(&o.list, id, flags);
	assert_int_equal(err != 0, own != 0);
	if (err) {
		assert_true(opcode == IBV_WR_TAG_ADD && o.lives == TAGS);
		return;
	}
	same_bytes();
	if (flags & IBV_OPS_SIGNALED)
		assert_int_equal(next_done(t.cq).wr_id, id);
	if ((flags & IBV_OPS_SIGNALED) || opcode == IBV_WR_TAG_DEL || own_request(o.posted - 1))
		told(opcode == IBV_WR_TAG_ADD ? INLAY_TAG_APPENDED : opcode == IBV_WR_TAG_DEL ? INLAY_TAG_REMOVED : INLAY_TAG_NOOP, 0);
	if (opcode == IBV_WR_TAG_ADD) {
		assert_int_equal(wr.tm.handle, handle & 0xffff);
		o.live[o.lives].lib = wr.tm.handle;
		o.live[o.lives].inlay = handle;
		o.live[o.lives].tag = wr.tm.add.tag;
		o.live[o.lives++].id = id + 1000;
	} else if (opcode == IBV_WR_TAG_DEL) {
		o.live[which] = o.live[--o.lives];
	}
}

static void message(void)
{
	uint64_t tag = o.lives && rnd() % 4 ? o.live[rnd() % o.lives].tag : rnd64();
	struct done d;
	uint32_t i;

	eager(&t.tx, tag, 1, 0, 0);
	d = next_done(t.cq);
	assert_true(d.status == IBV_WC_SUCCESS && d.opcode == IBV_WC_TM_RECV);
	if (!(d.flags & IBV_WC_TM_MATCH)) { /* it may ask for a SYNC, too */
		t.unexpected = (t.unexpected + 1) & 0xffff;
		told(INLAY_TAG_UNEXPECTED, 0);
		untagged(&t, 1, HALF, 64);
		return;
	}
	for (i = 0; i < o.lives && o.live[i].id != d.wr_id; i++)
		;
	assert_true(i < o.lives);
	told(INLAY_TAG_CONSUMED_MSG, o.live[i].lib);
	o.live[i] = o.live[--o.lives];
}

TEST(bytes)
{
	const char *env = getenv("ORACLE_CASES");
	uint64_t cases = env && *env ? strtoull(env, NULL, 0) : 20000, n, mask = rnd64() | 1, tag = rnd64() & mask;
	struct ibv_sge sg;
	struct ibv_ops_wr wr;
	uint32_t handle = 0;

	memset(&o, 0, sizeof(o));
	open_tm(&t, 64, TAGS, 64);
	untagged(&t, 1, HALF, 64);
	untagged(&t, 1, HALF, 64);
	sg = sge(&t.rx, 0, 100);
	wr = add_wr(0, &sg, tag, mask, IBV_OPS_SIGNALED);
	post_ops(&t, &wr);
	o.ring = made(find_ring(tag, mask));
	o.own = aligned_alloc(64, (size_t)BBS * 64);
	o.memory = aligned_alloc(64, (inlay_tag_list_size(TAGS, BBS) + 63) & ~(size_t)63);
	assert_true(o.own && o.memory);
	memset(o.own, 0, (size_t)BBS * 64);
	must(-inlay_uar_init(&o.uar, doorbells, 256, INLAY_UAR_DOORBELL));
	must(-inlay_sq_init(&o.sq, o.own, BBS, o.dbrec, (uint32_t)o.ring[4] << 16 | (uint32_t)o.ring[5] << 8 | o.ring[6], 63, &o.uar));
	must(-inlay_tag_list_init(&o.list, o.memory, inlay_tag_list_size(TAGS, BBS), TAGS, &o.sq, 0));
	must(-inlay_tag_list_add(&o.list, 1000, tag, mask, &sg, IBV_OPS_SIGNALED, &handle));
	same_bytes();
	assert_int_equal(next_done(t.cq).wr_id, 0);
	told(INLAY_TAG_APPENDED, 0);
	o.live[0].lib = wr.tm.handle;
	o.live[0].inlay = handle;
	o.live[0].tag = tag;
	o.live[0].id = 1000;
	o.lives = 1;
	for (n = 1; n < cases; n++) {
		uint32_t what = rnd() % 16;

		if (what < 7)
			operation(IBV_WR_TAG_ADD, n * 4096);
		else if (what < 10 && o.lives)
			operation(IBV_WR_TAG_DEL, n * 4096);
		else if (what < 12)
			operation(IBV_WR_TAG_SYNC, n * 4096);
		else
			message();
	}
	assert_true(o.cnt || cases < 2000);
	print_message("# %u operations, in libmlx5's ring of %u WQEBBs\n", o.posted, o.cnt);
	close_tm(&t);
	free(o.own);
	free(o.memory);
}

int main(void)
{
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return RUN();
}
