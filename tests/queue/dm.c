/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dm.c: device memory. The CPU's accesses are compared with a shadow, with every offset and length
 * that is refused; RDMA sees what the CPU wrote and the other way round; libibverbs' copies beside
 * inlay's.
 */
#include "common.h"
#include <endian.h>

#define LENGTH 4096u

struct mem { struct ibv_dm *ib; struct ibv_mr *mr; struct inlay_dm dm; };

static void mem_make(struct mem *m)
{
	struct ibv_alloc_dm_attr attr = {.length = LENGTH};

	memset(m, 0, sizeof(*m));
	m->ib = made(ibv_alloc_dm(dev.ctx, &attr));
	m->mr = made(ibv_reg_dm_mr(dev.pd, m->ib, 0, LENGTH, IBV_ACCESS_ZERO_BASED | ALL_ACCESS));
	must(inlay_dm_from_dm(&m->dm, m->ib, NULL));
	assert_non_null((void *)m->dm.buf);
	assert_true(m->dm.length >= LENGTH);
}

static void mem_free(struct mem *m)
{
	must(ibv_dereg_mr(m->mr));
	must(ibv_free_dm(m->ib));
}

/* Random writes and reads. The right ones touch what they name, the others nothing */
TEST(cpu)
{
	static uint8_t shadow[LENGTH], data[LENGTH + 64], seen[LENGTH + 64];
	struct mem m;

	mem_make(&m);
	memset(shadow, 0, sizeof(shadow));
	must(inlay_dm_write(&m.dm, 0, shadow, LENGTH));
	for (uint32_t i = 0; i < 20000; i++) {
		uint64_t offset = rnd_below(LENGTH + 64), len = rnd_below(rnd_below(4) ? 64 : LENGTH);
		uint32_t skew = rnd_below(8);
		int ret, want;

		if (rnd_below(4)) {
			offset &= ~3ull;
			len &= ~3ull;
		}
		if (rnd_below(16) == 0)
			offset = rnd() << rnd_below(3);
		if (offset > LENGTH && m.dm.length > LENGTH)
			continue;
		want = (offset | len) & 3 || offset > m.dm.length || len > m.dm.length - offset ? -EINVAL : 0;
		if (want == 0 && offset + len > LENGTH)
			continue; /* rounded up: none of ours */
		fill(data + skew, len, i);
		if (i % 2) {
			ret = inlay_dm_write(&m.dm, offset, data + skew, len);
			assert_int_equal(ret, want);
			if (!ret)
				memcpy(shadow + offset, data + skew, len);
		} else {
			memset(seen, 0x5a, sizeof(seen));
			ret = inlay_dm_read(&m.dm, offset, seen + skew, len);
			assert_int_equal(ret, want);
			if (!ret)
				assert_memory_equal(seen + skew, shadow + offset, len);
			assert_true(all_bytes(seen, ret ? sizeof(seen) : skew, 0x5a));
			assert_true(all_bytes(seen + skew + (ret ? 0 : len), 8, 0x5a));
		}
		if (i % 256 == 0) {
			must(ibv_memcpy_from_dm(seen, m.ib, 0, LENGTH));
			assert_memory_equal(seen, shadow, LENGTH);
		}
		if (i % 256 == 128) {
			fill(shadow + 1024, 512, i);
			must(ibv_memcpy_to_dm(m.ib, 1024, shadow + 1024, 512));
		}
	}
	/* Sums do not overflow */
	assert_int_equal(inlay_dm_write(&m.dm, ~3ull, data, 8), -EINVAL);
	assert_int_equal(inlay_dm_read(&m.dm, 4, data, ~3ull), -EINVAL);
	assert_int_equal(inlay_dm_read(&m.dm, m.dm.length, data, 4), -EINVAL);
	must(inlay_dm_read(&m.dm, m.dm.length, data, 0));
	mem_free(&m);
}

/* Both ways through the network, and as the memory that an SGE names */
TEST(rdma)
{
	static uint8_t seen[LENGTH];
	struct opt opt = usual;
	struct end a, b;
	struct mem m;

	mem_make(&m);
	opt.bytes = 1 << 16;
	ends_make(&a, &b, &opt);
	end_take(&a, INLAY_UAR_DOORBELL);
	end_take(&b, INLAY_UAR_DOORBELL);
	memset(seen, 0, sizeof(seen));
	must(inlay_dm_write(&m.dm, 0, seen, LENGTH));
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t offset = rnd_below(LENGTH / 4) * 4, len = (1 + rnd_below((LENGTH - offset) / 4)) * 4;
		uint32_t tag = (uint32_t)rnd();
		struct ibv_sge sge = sge_of(&a, 0x1000, len), inside = {offset, len, m.mr->lkey};

		fill(a.buf + 0x1000, len, tag);
		must(inlay_post_write(&a.sq, offset, m.mr->rkey, &sge, 1, INLAY_SIGNALED));
		inlay_sq_ring(&a.sq);
		sent(&a);
		must(inlay_dm_read(&m.dm, offset, seen, len));
		assert_int_equal(differs(seen, len, tag), len);
		/* And back */
		fill(seen, len, tag + 1);
		must(inlay_dm_write(&m.dm, offset, seen, len));
		must(inlay_post_read(&a.sq, offset, m.mr->rkey, &sge, 1, INLAY_SIGNALED));
		inlay_sq_ring(&a.sq);
		sent(&a);
		assert_int_equal(differs(a.buf + 0x1000, len, tag + 1), len);
		/* Sent from there, into memory */
		must(inlay_post_write(&a.sq, raddr_of(&b, 0x2000), b.mr->rkey, &inside, 1, INLAY_SIGNALED));
		inlay_sq_ring(&a.sq);
		sent(&a);
		assert_int_equal(differs(b.buf + 0x2000, len, tag + 1), len);
	}
	end_free(&a);
	end_free(&b);
	mem_free(&m);
}

int main(void)
{
	return run_all(dev_open, dev_close);
}
