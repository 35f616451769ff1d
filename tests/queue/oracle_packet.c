/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle_packet.c: raw packets, byte for byte as libmlx5's: see oracle.h. The whole program runs again on a device that wants each packet's
 * first 18 bytes inline. The device is stepped.
 *
 * In three cases libmlx5 (44 as well as today's) is wrong, and the comparison leaves them out: see oracle_send.h. A segmented packet whose
 * header wraps is compared with the same WQE at another place of the ring instead, and executed by tests/queue/packet.c.
 */
#include "common.h"
#include "oracle_send.h"

#define PACKET_OPS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO)

/* Constant number of SGEs, constant flags */
static __attribute__((noinline)) int const_one(struct inlay_sq *sq, const struct req *r)
{
	struct inlay_eth eth = inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4);

	return inlay_post_packet(sq, eth, r->sge, 1, INLAY_SIGNALED);
}

static __attribute__((noinline)) int const_one_flags(struct inlay_sq *sq, const struct req *r)
{
	return in_packet(sq, r, r->sge, 1, in_flags(r));
}

/* The burst of one, which has no other flag than one */
static __attribute__((noinline)) int const_burst(struct inlay_sq *sq, const struct req *r)
{
	struct inlay_eth eth = inlay_eth_csum(in_csum(r, INLAY_CSUM_L3 | INLAY_CSUM_L4));
	int n = inlay_post_packets(sq, eth, r->sge, 1, in_flags(r));

	return n == 1 ? 0 : n;
}

static int in_constant(struct inlay_sq *sq, const struct req *r)
{
	static unsigned turn;

	if (r->op != SEND || r->nsge != 1)
		return in_plain(sq, r);
	if (!(r->flags & ~SIG) && turn++ & 1)
		return const_burst(sq, r);
	return r->flags == SIG && !r->inl && r->csum ? const_one(sq, r) : const_one_flags(sq, r);
}

/* ---- tests ---- */

/* The device, and what inlay learned of it */
static void right_device(void **state)
{
	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	assert_int_equal(inlay_sq_min_inline(&T.sq), inline_l2());
	assert_int_equal(inlay_sq_type(&T.sq), IBV_QPT_RAW_PACKET);
	trio_close(&T);
}

/* Inline, every length, in one piece and in several, by each way */
static void packets_inline(void **state)
{
	uint32_t len, way, split;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (len = 19; len <= K->max_inline; len++)
		for (way = PLAIN; way <= CURSOR; way++)
			for (split = 0; split < 3; split++) {
				req_init(&r, SEND, 0);
				req_inline(&r, split == 0 ? len : split == 1 ? 0 : len / 3);
				if (split)
					req_inline(&r, len - r.sge[0].length);
				if (split == 2)
					req_inline(&r, 0);
				everywhere(&T, &r, way, 0, split ? 1 : FLAG_SETS);
			}
	trio_close(&T);
	counted("inline");
}

/* Pointers: every number of them, with empty ones in several positions, headers in pieces */
static void packets_pointers(void **state)
{
	uint32_t n, i, first, way, pattern;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (n = 1; n <= MAX_SGE; n++)
		for (pattern = 0; pattern < 8; pattern++)
			for (first = 1; first <= 18; first += n < 5 ? 1 : 6)
				for (way = PLAIN; way <= CURSOR; way++) {
					req_init(&r, SEND, 0);
					for (i = 0; i < n; i++)
						req_readable(&r, is_empty(pattern, i, n) ? 0 : i && rnd_below(2) ? some_length() : first);
					/* Long enough, whatever is empty; and not empty */
					for (i = n - 1; i && !r.sge[i].length; i--)
						;
					r.sge[i].length = 19 + rnd_below(900);
					everywhere(&T, &r, way, n * 3, 2);
				}
	trio_close(&T);
	counted("pointers");
}

/* Segmentation: every length of header, at every place where it wraps, over pointers and inline payload */
static void segmentation(void **state)
{
	uint32_t len, n, i, way;
	struct req r;

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	for (len = 14; len <= TSO_HEADER; len++)
		for (n = 1; n <= 5; n++)
			for (way = PLAIN; way <= CURSOR; way += CURSOR) {
				req_init(&r, TSO, 0);
				r.hdr_len = (uint16_t)len;
				r.mss = (uint16_t)(n == 1 ? 1u << rnd_below(14) : 1 + rnd_below(16383));
				for (i = 0; i < len; i++)
					r.hdr[i] = (uint8_t)rnd();
				for (i = 0; i < n; i++)
					if (n == 5)
						req_inline(&r, 14 + rnd_below(60));
					else
						req_pointer(&r, i == 1 && n == 3 ? 0 : 1 + rnd_below(60000));
				everywhere(&T, &r, way, 0, FLAG_SETS);
			}
	trio_close(&T);
	counted("segmentation");
}

static int burst(struct inlay_sq *sq, const struct req *r, unsigned n)
{
	static struct ibv_sge sge[MAX_BATCH];
	unsigned i;

	for (i = 0; i < n; i++)
		sge[i] = r[i].sge[0];
	return inlay_post_packets(sq, inlay_eth_csum(INLAY_CSUM_L3 | INLAY_CSUM_L4), sge, n, in_flags(&r[n - 1])) != (int)n;
}

/* A header that wraps, at every place: the same bytes as one that does not, which has been compared with libmlx5's */
static void wrapped_headers(void **state)
{
	static uint8_t ring[2][16 * 64] __attribute__((aligned(64))), reg[4096] __attribute__((aligned(4096)));
	uint32_t record[2][2], len, slot, i, k, ds;
	struct inlay_uar uar;
	struct inlay_sq sq[2];
	struct req r;

	(void)state;
	must(inlay_uar_init(&uar, reg, 256, INLAY_UAR_SERIAL));
	for (len = 14; len <= 255; len++)
		for (slot = 1; slot < 16; slot++) {
			for (k = 0; k < 2; k++) {
				must(inlay_sq_init(&sq[k], ring[k], 16, record[k], 5, 63, &uar));
				memset(ring[k], 0xa5, sizeof(ring[k]));
			}
			for (i = 0; i < slot; i++)
				must(inlay_post_nop(&sq[1], 0));
			must(inlay_sq_release_until(&sq[1], slot) != (int)slot);
			memset(ring[1], 0xa5, sizeof(ring[1]));
			req_init(&r, TSO, SIG);
			r.hdr_len = (uint16_t)len;
			r.mss = 1000;
			for (i = 0; i < len; i++)
				r.hdr[i] = (uint8_t)rnd();
			if (slot & 1)
				req_inline(&r, 200);
			else
				for (i = 0; i < 5; i++)
					req_pointer(&r, 1 + rnd_below(5000));
			for (k = 0; k < 2; k++)
				must(in_plain(&sq[k], &r));
			ds = ring[1][slot * 64 + 7];
			assert_int_equal(ds, raw_ds(&r));
			ring[1][slot * 64 + 2] = 0; /* the index */
			for (i = 0; i < (ds + 3) / 4 * 64; i++)
				assert_int_equal(ring[0][i], ring[1][(slot * 64 + i) % sizeof(ring[1])]);
		}
}

/* Bursts of many, as a list of libmlx5's */
static void bursts(void **state)
{
	const struct ibv_qp_cap cap = {.max_send_wr = 40, .max_send_sge = 1};
	static struct req r[MAX_BATCH];
	uint32_t turn, n, i;

	(void)state;
	need_softdev("the oracle");
	trio_open(&T, &cap, K->lean, INLAY_UAR_SERIAL);
	for (turn = 0; turn < 3000; turn++) {
		complete(&T, rnd_below(T.head - T.tail + 1));
		if (T.head - T.tail == T.cap.max_send_wr)
			complete_all(&T);
		n = 1 + rnd_below(T.cap.max_send_wr - (T.head - T.tail));
		n = n < MAX_BATCH ? n : MAX_BATCH;
		for (i = 0; i < n; i++) {
			req_init(&r[i], SEND, i + 1 == n && turn & 1 ? SIG : 0);
			r[i].csum = 1;
			req_readable(&r[i], 19 + rnd_below(900));
		}
		in_batch = burst;
		run(&T, turn >> 1 & 1, PLAIN, n > 1, r, n);
		in_batch = NULL;
	}
	trio_close(&T);
	counted("bursts");
}

/* What is refused, and that nothing is written then */
static void refused(void **state)
{
	struct inlay_eth eth = inlay_eth_csum(0);
	struct ibv_sge sge[2] = {{(uintptr_t)data, 0, 1}, {(uintptr_t)data, 17, 1}};
	struct inlay_sq before;
	uint32_t l2 = inline_l2();

	(void)state;
	need_softdev("the oracle");
	table_open(&T);
	before = T.sq;
	memset(T.ring, 0xa5, T.bbs * 64);
	assert_int_equal(inlay_post_packet(&T.sq, eth, sge, 0, 0), -EINVAL);
	assert_int_equal(inlay_post_packet(&T.sq, eth, sge, 1, 0), -EINVAL);
	assert_int_equal(inlay_post_packet(&T.sq, eth, sge, 1, INLAY_INLINE), -EINVAL);
	assert_int_equal(inlay_post_tso(&T.sq, inlay_eth_mss(eth, 1), data, 13, sge, 2, 0), -EINVAL);
	assert_int_equal(inlay_post_tso(&T.sq, inlay_eth_mss(eth, 1), data, 256, sge, 2, 0), -EINVAL);
	assert_int_equal(inlay_post_tso(&T.sq, inlay_eth_mss(eth, 1), data, 54, sge, 1, 0), -EINVAL);
	assert_int_equal(inlay_post_packets(&T.sq, eth, sge, 0, 0), 0);
	assert_int_equal(inlay_post_tso(&T.sq, inlay_eth_vlan(inlay_eth_mss(eth, 1), 5, 0), data, 54, sge, 2, 0), -EINVAL);
	assert_int_equal(inlay_post_packets_multi(&T.sq, eth, sge, 0, INLAY_INLINE), 0);
	if (l2) {
		assert_int_equal(inlay_post_packet(&T.sq, eth, sge, 2, 0), -EINVAL);
		sge[1].length = 60;
		assert_int_equal(inlay_post_packet(&T.sq, inlay_eth_vlan(eth, 5, 0), sge, 2, 0), -EINVAL);
		assert_int_equal(inlay_post_packets_multi(&T.sq, eth, sge + 1, 1, 0), -ENOTSUP);
	}
	assert_int_equal(inlay_post_packets_multi(&T.sq, inlay_eth_vlan(eth, 5, 0), sge + 1, 1, 0), -ENOTSUP);
	assert_int_equal(inlay_post_packets_multi(&T.sq, inlay_eth_vlan(eth, 0, 1), sge + 1, 1, INLAY_INLINE), -ENOTSUP);
	sge[1].length = 0xfffffff0;
	assert_int_equal(inlay_post_packets_multi(&T.sq, eth, sge + 1, 1, INLAY_INLINE), -EINVAL);
	sge[1].length = 925;
	assert_int_equal(inlay_post_packets_multi(&T.sq, eth, sge + 1, 1, INLAY_INLINE), -EINVAL);
	inlay_sq_set_packet(&T.sq, l2, 0);
	assert_int_equal(inlay_post_packets_multi(&T.sq, eth, sge + 1, 1, 0), -ENOTSUP);
	inlay_sq_set_packet(&T.sq, l2, 1);
	assert_true(all_bytes(T.ring, T.bbs * 64, 0xa5));
	assert_memory_equal(&T.sq, &before, sizeof(before));
	trio_close(&T);
}

/* Once more in a process of its own, on a device that wants headers inline */
static int again_with_headers(char *program)
{
	int status;
	pid_t pid;

	if (!softdev_present() || getenv("SOFTDEV_INLINE"))
		return 0;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		setenv("SOFTDEV_INLINE", "l2", 1);
		execl("/proc/self/exe", program, (char *)NULL);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

int main(int argc, char **argv)
{
	static struct kind kind = {IBV_QPT_RAW_PACKET, 1 << SEND | 1 << TSO, PACKET_OPS, PACKET_OPS, 32, 48, 48, 908, 908, 0};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_device),
		cmocka_unit_test(packets_inline),
		cmocka_unit_test(packets_pointers),
		cmocka_unit_test(segmentation),
		cmocka_unit_test(wrapped_headers),
		cmocka_unit_test(bursts),
		cmocka_unit_test(refused),
		cmocka_unit_test(doorbells),
		cmocka_unit_test(index_wraps),
		cmocka_unit_test(random_runs),
	};
	int bad;

	(void)argc;
	if (inline_l2())
		kind.fixed = 30; /* a WQEBB more holds 64 bytes more of payload, but 18 of them are in front */
	about(&kind);
	in_const = in_constant;
	bad = cmocka_run_group_tests_name("oracle: raw packets", tests, open_group, close_group);
	return again_with_headers(argv[0]) | bad;
}
