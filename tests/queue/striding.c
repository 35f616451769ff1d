/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * striding.c: striding receive queues. A model of the device, written from the layouts that the kernel's en_rx.c and DPDK's mlx5_rx.c
 * read, puts random packets into strides of the posted buffers; what inlay says must lead to the same packets. Then CQEs that no device
 * writes. Plain memory between guard pages, no device. Blocks of compressed CQEs: compressed.c.
 */
#include "rig.h"
#include "given.h"
#include <endian.h>

#define MOST 16u         /* WQEs */

struct model {
	struct inlay_striding rq;
	uint32_t wqes, wqe_size, log_strides, log_size, shift, strides, bytes;
	uint8_t ring[MOST * 128] __attribute__((aligned(64)));
	uint32_t record[2];
	uint8_t *buf[2 * MOST];         /* each before a page that nobody may touch */
	uint32_t in[MOST];              /* the buffer in each WQE */
	uint32_t free[2 * MOST], frees;
	/* the device */
	uint32_t taken, used;
	bool holds;                     /* a WQE, with these: */
	uint64_t addr;
	uint32_t len;
	uint16_t index;                 /* of the WQE it holds, or will take */
};

static void model_open(struct model *m, uint32_t log_strides, uint32_t log_size)
{
	struct inlay_strides shape;

	memset(m, 0, sizeof(*m));
	m->wqes = 1u << rnd_below(5);
	m->wqe_size = 32u << rnd_below(3);
	m->log_strides = log_strides;
	m->log_size = log_size;
	m->shift = 2 * rnd_below(2);
	m->strides = 1u << log_strides;
	m->bytes = m->strides << log_size;
	for (uint32_t i = 0; i < 2 * m->wqes; i++) {
		m->buf[i] = (uint8_t *)given(m->bytes);
		m->free[m->frees++] = i;
	}
	memset(m->ring, 0xaa, sizeof(m->ring));
	shape.log_number = log_strides;
	shape.log_size = log_size;
	shape.shift = m->shift;
	must(inlay_striding_init(&m->rq, m->ring, m->wqes, m->wqe_size, m->record, &shape));
}

static void model_close(struct model *m)
{
	for (uint32_t i = 0; i < 2 * m->wqes; i++)
		given_free(m->buf[i]);
}

static void post_one(struct model *m)
{
	uint32_t i = m->frees ? rnd_below(m->frees) : 0, b = m->free[i];

	assert_true(m->frees);
	m->in[m->rq.rq.pi % m->wqes] = b;
	must(inlay_striding_post(&m->rq, (uintptr_t)m->buf[b], 0x1234));
	m->free[i] = m->free[--m->frees];
}

static void post_some(struct model *m, uint32_t n)
{
	while (n-- && inlay_rq_room(&m->rq.rq))
		post_one(m);
	if (!inlay_rq_room(&m->rq.rq))
		assert_int_equal(inlay_striding_post(&m->rq, 1, 1), -EAGAIN);
	inlay_rq_ring(&m->rq.rq);
}

static uint64_t get(const uint8_t *at, uint32_t n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | *at++;
	return v;
}

/* Takes the next WQE, if there is one; checks each byte that it reads, and that nothing else has been written */
static bool take_wqe(struct model *m)
{
	const uint8_t *wqe = m->ring + m->index * m->wqe_size;

	if (m->holds)
		return true;
	if ((uint16_t)get((uint8_t *)m->record, 4) == (uint16_t)m->taken)
		return false;
	assert_int_equal(get(wqe, 2), 0);
	assert_int_equal(get(wqe + 2, 2), (m->index + 1) % m->wqes);
	assert_int_equal(get(wqe + 4, 8), 0);
	assert_int_equal(get(wqe + 12, 4), 0);
	m->len = (uint32_t)get(wqe + 16, 4);
	assert_int_equal(get(wqe + 20, 4), 0x1234);
	m->addr = get(wqe + 24, 8);
	assert_int_equal(m->len, m->bytes);
	if (m->wqe_size > 32) {
		assert_int_equal(get(wqe + 32, 4), 0);
		assert_int_equal(get(wqe + 36, 4), 0x100);
	}
	for (uint32_t i = 48; i < m->wqe_size; i++)
		assert_int_equal(wqe[i], 0xaa);
	m->holds = true;
	m->used = 0;
	return true;
}

static void cqe_of(struct model *m, struct mlx5_cqe64 *cqe, uint32_t n, uint32_t len, bool filler)
{
	uint8_t *raw = (uint8_t *)cqe;

	for (uint32_t i = 0; i < 64; i++)
		raw[i] = (uint8_t)rnd();
	cqe->byte_cnt = htobe32((uint32_t)filler << 31 | n << 16 | len);
	cqe->wqe_counter = htobe16((uint16_t)m->used);
	cqe->op_own = MLX5_CQE_RESP_SEND << 4;
	m->used += n;
	if (m->used == m->strides) {
		m->holds = false;
		m->taken++;
		m->index = (m->index + 1) % m->wqes;
	}
}

/* Puts a packet somewhere. Returns the CQEs of it, at most two, with a filler's first; 0: it was lost */
static uint32_t put_packet(struct model *m, const uint8_t *packet, uint32_t len, struct mlx5_cqe64 *cqe)
{
	uint32_t n = (len + m->shift + (1u << m->log_size) - 1) >> m->log_size, k = 0;

	if (!take_wqe(m))
		return 0;
	if (n > m->strides - m->used) {
		cqe_of(m, &cqe[k++], m->strides - m->used, rnd_below(0x10000), true);
		if (!take_wqe(m))
			return k;
	}
	memcpy((uint8_t *)(uintptr_t)m->addr + (m->used << m->log_size) + m->shift, packet, len);
	cqe_of(m, &cqe[k++], n, len, false);
	return k;
}

static struct { uint32_t fillers, lost, laps; } seen;

/* Some packets come, are read, and some buffers are posted again */
static void round_of(struct model *m, uint32_t count)
{
	static uint8_t sent[20][32768];
	uint32_t most = m->bytes - m->shift < sizeof(sent[0]) ? m->bytes - m->shift : (uint32_t)sizeof(sent[0]);
	uint32_t lens[20], head = 0, tail, cqes = 0, i, k, n;
	struct mlx5_cqe64 cqe[40];

	for (tail = 0; tail < count; lens[tail++] = n) {
		n = rnd_below(3) ? 1 + rnd_below(most < 200 ? most : 200) : 1 + rnd_below(most);
		if (rnd_below(8) == 0) /* a whole number of strides, and one byte more */
			n = ((1 + rnd_below(m->strides)) << m->log_size) - m->shift + rnd_below(2);
		n = n > most ? most : n;
		for (i = 0; i < n; i += 97)
			sent[tail][i] = (uint8_t)rnd();
		sent[tail][n - 1] = (uint8_t)rnd();
		k = put_packet(m, sent[tail], n, cqe + cqes);
		cqes += k;
		if (!k || be32toh(cqe[cqes - 1].byte_cnt) >> 31) {
			seen.lost++;
			break;
		}
	}
	for (i = 0; i < cqes; i++) {
		struct inlay_packet_at at = {0, 0, 0};
		uint32_t before = m->rq.rq.limit;
		int done = inlay_striding_take(&m->rq, &cqe[i], &at);

		assert_in_range(done, 0, 1);
		assert_int_equal(at.wqe, before % m->wqes);
		if (at.len) {
			assert_true(head < tail);
			assert_int_equal(at.len, lens[head]);
			assert_true(at.offset + at.len <= m->bytes);
			assert_memory_equal(m->buf[m->in[at.wqe]] + at.offset, sent[head], at.len);
			head++;
		} else {
			assert_int_equal(be32toh(cqe[i].byte_cnt) >> 31, 1);
			assert_true(done);
			seen.fillers++;
		}
		if (done) {
			m->free[m->frees++] = m->in[at.wqe];
			seen.laps += at.wqe == 0;
		}
	}
	assert_int_equal(head, tail);
	/* What the device holds or has not taken, and nothing else, is outstanding */
	assert_int_equal((uint16_t)(m->rq.rq.pi - m->taken), m->wqes - inlay_rq_room(&m->rq.rq));
	post_some(m, rnd_below(m->wqes + 1));
}

/* Packets of all lengths through all shapes of queues; slow readers, lost packets, buffers that are held for a while */
TEST(packets)
{
	static struct model m;

	for (uint32_t log_strides = 0; log_strides <= 9; log_strides++)
		for (uint32_t log_size = 6; log_size <= 13; log_size++) {
			model_open(&m, log_strides, log_size);
			post_some(&m, m.wqes);
			for (uint32_t i = 0; i < 60; i++)
				round_of(&m, 1 + i % 20);
			model_close(&m);
		}
	assert_true(seen.fillers && seen.lost && seen.laps);
}

/* Buffers stay in their WQEs, and nothing is written but the record. "Errors that do not stop a striding queue", and one that does */
TEST(recycled)
{
	static const struct { uint32_t opcode, syndrome, strides; int answer; } stops[] = {
		{MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 5, -EPROTO}, /* more than there are */
		{MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, 5, -EBADFD},
		{MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, 5, -EBADFD},
		{MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 5, -EBADFD},
		{MLX5_CQE_RESP_SEND, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, 1, -EPROTO}, /* a good one, whose timestamp looks like a syndrome */
	};
	static struct model m;
	static uint8_t ring[sizeof(m.ring)], packet[64];
	struct inlay_packet_at at = {0, 0, 0};
	struct mlx5_cqe64 cqe[2];
	uint32_t i, wqe = 9;

	model_open(&m, 2, 6);
	post_some(&m, m.wqes);
	memcpy(ring, m.ring, sizeof(ring));
	for (i = 0; i < 70000 * 4 + 1; i++) {
		packet[0] = (uint8_t)i;
		assert_int_equal(put_packet(&m, packet, 60, cqe), 1);
		if (i % 3) {
			assert_int_equal(inlay_striding_take(&m.rq, cqe, &at), i % 4 == 3);
			assert_int_equal(m.buf[m.in[at.wqe]][at.offset], packet[0]);
			wqe = at.wqe;
		} else {
			cqe->op_own = MLX5_CQE_RESP_ERR << 4;
			((struct mlx5_err_cqe *)(void *)cqe)->syndrome = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
			assert_int_equal(inlay_striding_error(&m.rq, cqe, &wqe), i % 4 == 3);
		}
		assert_int_equal(wqe, i / 4 % m.wqes);
		if (i % 4 == 3) {
			inlay_striding_recycle(&m.rq);
			inlay_rq_ring(&m.rq.rq);
		}
	}
	assert_memory_equal(ring, m.ring, sizeof(ring));
	for (i = 0; i < ARRAY(stops); i++) {
		cqe->op_own = (uint8_t)(stops[i].opcode << 4);
		cqe->byte_cnt = htobe32(stops[i].strides << 16);
		((struct mlx5_err_cqe *)(void *)cqe)->syndrome = (uint8_t)stops[i].syndrome;
		assert_int_equal(inlay_striding_error(&m.rq, cqe, &wqe), stops[i].answer);
	}
	/* From the start again, with a buffer half used */
	inlay_striding_reset(&m.rq);
	assert_int_equal(m.record[0], 0);
	assert_int_equal(inlay_rq_room(&m.rq.rq), m.wqes);
	m.frees = m.taken = m.index = 0;
	m.holds = false;
	for (i = 0; i < 2 * m.wqes; i++)
		m.free[m.frees++] = i;
	post_some(&m, 1);
	for (i = 0; i < 4; i++) {
		assert_int_equal(put_packet(&m, packet, 60, cqe), 1);
		assert_int_equal(inlay_striding_take(&m.rq, cqe, &at), i == 3);
	}
	model_close(&m);
}

/* Any byte count and any index: no access beyond the buffer. What cannot be, and a lost CQE, change nothing */
TEST(hostile)
{
	static struct model m;
	uint32_t shapes, i, k, refused = 0, accepted = 0;
	struct inlay_packet_at at, was_at;
	struct inlay_striding was;
	struct mlx5_cqe64 cqe;
	volatile uint8_t byte;

	for (shapes = 0; shapes < 60; shapes++) {
		model_open(&m, rnd_below(10), 6 + rnd_below(6));
		memset(&at, 0xee, sizeof(at));
		for (i = 0; i < 3000; i++) {
			uint32_t n = rnd_below(3) ? rnd_below(4) : rnd_below(0x8000), len = rnd_below(3) ? rnd_below(256) : rnd_below(0x10000);
			uint32_t left = m.rq.left, next = m.strides - left, filler = rnd_below(8) == 0;
			uint32_t index = rnd_below(8) ? next : rnd_below(2) ? rnd_below(m.strides) : rnd_below(0x10000);
			bool good;
			int done;

			for (k = 0; k < 64; k++)
				((uint8_t *)&cqe)[k] = (uint8_t)rnd();
			cqe.byte_cnt = htobe32(filler << 31 | n << 16 | len);
			cqe.wqe_counter = htobe16((uint16_t)index);
			cqe.op_own = MLX5_CQE_RESP_SEND << 4;
			if (!n && !filler && len)
				n = (len + m.shift + (1u << m.log_size) - 1) >> m.log_size;
			good = inlay_rq_room(&m.rq.rq) != m.wqes && n && n <= left &&
			       (filler || (index == next && ((uint64_t)index << m.log_size) + m.shift + len <= m.bytes));
			was = m.rq;
			was_at = at;
			done = inlay_striding_take(&m.rq, &cqe, &at);
			if (!good) {
				assert_int_equal(done, -EPROTO);
				assert_memory_equal(&was, &m.rq, sizeof(was));
				assert_memory_equal(&was_at, &at, sizeof(at));
				refused++;
			} else {
				assert_int_equal(done, n == left);
				assert_int_equal(at.len, filler ? 0 : len);
				assert_true(at.wqe < m.wqes);
				for (k = 0; k < at.len; k++)
					byte = m.buf[m.in[at.wqe]][at.offset + k];
				if (done)
					m.free[m.frees++] = m.in[at.wqe];
				accepted++;
			}
			if (rnd_below(4) == 0)
				post_some(&m, 1);
		}
		model_close(&m);
	}
	(void)byte;
	printf("# %u refused, %u accepted\n", refused, accepted);
	assert_true(refused > 1000 && accepted > 1000);
}

/*
 * Shared queues, linked and cyclic: three senders fill an entry each, so entries are used up in any order. Some completions are such as no
 * device writes: more strides than are left or none, a packet beyond the entry, an entry that is not posted or beyond the ring, which only
 * a cyclic counter goes on to.
 */
TEST(shared)
{
	enum { SENDERS = 3 };
	static uint8_t ring[MOST * 64] __attribute__((aligned(64))), before[sizeof(ring)];
	uint32_t turn, step, record, refused = 0, done_entries = 0;

	for (turn = 0; turn < 200; turn++) {
		const struct inlay_strides shape = {rnd_below(6), 6 + rnd_below(4), 2 * rnd_below(2)};
		const uint32_t cnt = 2u << rnd_below(4), strides = 1u << shape.log_number, bytes = strides << shape.log_size;
		const bool cyclic = turn & 1;
		uint32_t used[MOST] = {0}, holds[SENDERS] = {MOST, MOST, MOST}, posted = 0, taken = 0, next = 0, i;
		struct ibv_sge sge = {0x1000, bytes, 5};
		struct inlay_striding_srq rq;
		bool busy[MOST] = {false};

		must((cyclic ? inlay_srq_init_cyclic : inlay_srq_init)(&rq.srq, ring, cnt, 64, &record));
		must(inlay_striding_srq_init(&rq, &shape));
		for (step = 0; step < 2000; step++) {
			uint32_t s = rnd_below(SENDERS), n, index, len, named;
			const bool filler = rnd_below(8) == 0, spoilt = rnd_below(10) == 0;
			struct inlay_packet_at at = {77, 77, 77}, was_at = at;
			struct inlay_striding_srq was;
			struct mlx5_cqe64 cqe;
			bool wrong;
			int ret;

			while (rnd_below(3) && inlay_srq_room(&rq.srq) > !cyclic) {
				i = cyclic ? posted % cnt : rq.srq.head;
				assert_true(cyclic || !busy[i]);
				assert_int_equal(inlay_post_srq_recv(&rq.srq, &sge, 1, posted), busy[i] ? -EAGAIN : 0);
				posted += !busy[i];
				busy[i] = true;
			}
			inlay_srq_ring(&rq.srq);
			if (holds[s] == MOST && taken == posted)
				continue;
			if (holds[s] == MOST) {
				holds[s] = next;
				next = cyclic ? (next + 1) % cnt : (uint32_t)get(ring + next * 64 + 2, 2);
				taken++;
			}
			i = holds[s];
			n = filler ? strides - used[i] : 1 + rnd_below(strides - used[i]);
			index = used[i];
			len = rnd_below((n << shape.log_size) - shape.shift) + 1;
			named = (rnd_below(10) ? i : rnd_below(cnt)) + (rnd_below(4) ? 0 : cnt * (1 + rnd_below(100)));
			if (named % cnt != i && busy[named % cnt])
				continue; /* nobody can tell it from a good one */
			if (spoilt && (filler || rnd_below(2)))
				n = filler && rnd_below(2) ? 0 : strides - used[i] + 1 + rnd_below(100);
			else if (spoilt && !filler)
				index += strides;
			wrong = named % cnt != i || (!cyclic && named >= cnt) || (!filler && index >= strides) || !n ||
				n > strides - used[i];
			fill(&cqe, sizeof(cqe), step);
			cqe.op_own = MLX5_CQE_RESP_SEND << 4;
			cqe.byte_cnt = htobe32((uint32_t)filler << 31 | n << 16 | len);
			cqe.wqe_counter = htobe16((uint16_t)index);
			cqe.wqe_id = htobe16((uint16_t)named);
			was = rq;
			memcpy(before, ring, sizeof(ring));
			ret = inlay_striding_srq_take(&rq, &cqe, &at);
			if (wrong) {
				assert_int_equal(ret, -EPROTO);
				assert_memory_equal(&rq, &was, sizeof(rq));
				assert_memory_equal(&at, &was_at, sizeof(at));
				assert_memory_equal(ring, before, sizeof(ring));
				refused++;
				continue;
			}
			assert_int_equal(at.wqe, i);
			assert_int_equal(at.len, filler ? 0 : len);
			assert_true(filler || at.offset == (index << shape.log_size) + shape.shift);
			used[i] += n;
			assert_int_equal(ret, used[i] == strides);
			if (ret) {
				busy[i] = false;
				used[i] = 0;
				holds[s] = MOST;
				done_entries++;
			}
		}
	}
	assert_true(refused > 1000 && done_entries > 1000);
}

/* What cannot be a queue; room in the CQ */
TEST(arguments)
{
	static uint8_t ring[1024] __attribute__((aligned(64))), cqes[64 * 64] __attribute__((aligned(64)));
	static const struct inlay_strides shape = {3, 6, 2}, bad[] = {{17, 6, 0}, {3, 5, 0}, {3, 14, 0}, {3, 6, 1}, {3, 6, 4}};
	uint32_t record[2], cq_record[2], i;
	struct inlay_striding_srq srq;
	struct inlay_striding rq;
	struct inlay_cq cq;
	const char *why;

	must(inlay_striding_init(&rq, ring, 4, 32, record, &shape));
	assert_int_equal(inlay_striding_init(&rq, ring, 3, 32, record, &shape), -EINVAL);
	assert_int_equal(inlay_striding_init(&rq, ring, 4, 16, record, &shape), -EINVAL);
	assert_int_equal(inlay_striding_init(&rq, ring, 4, 32, NULL, &shape), -EINVAL);
	for (i = 0; i < ARRAY(bad); i++) {
		assert_int_equal(inlay_striding_init(&rq, ring, 4, 32, record, &bad[i]), -EINVAL);
		assert_int_equal(inlay_striding_srq_init(&srq, &bad[i]), -EINVAL);
	}
	must(inlay_cq_init(&cq, cqes, 64, 64, cq_record, NULL, 1));
	must(inlay_striding_init(&rq, ring, 8, 32, record, &shape));
	must(inlay_striding_reserve_(&rq, &cq, &why));
	assert_int_equal(inlay_cq_reserve(&cq, 1, &why), -ENOSPC);
	inlay_rq_fini(&rq.rq);
	must(inlay_striding_init(&rq, ring, 16, 32, record, &shape));
	assert_int_equal(inlay_striding_reserve_(&rq, &cq, &why), -ENOSPC);
	must(inlay_srq_init(&srq.srq, ring, 8, 32, record));
	must(inlay_striding_srq_init(&srq, &shape));
	must(inlay_striding_srq_reserve_(&srq, &cq, &why));
	assert_int_equal(inlay_striding_srq_reserve_(&srq, &cq, &why), -ENOSPC);
	inlay_srq_fini(&srq.srq);
	must(inlay_cq_reserve(&cq, 64, &why));
}

int main(void)
{
	return run_all(open_nothing, NULL);
}
