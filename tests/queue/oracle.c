/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oracle.c: does inlay write, byte for byte, what libmlx5 writes? Kinds of queues are rows; each runs in a process of its own, for what the
 * device is is settled when it is opened. `oracle KIND` runs one, TEST_ONLY some of its tests.
 *
 * Environment: ORACLE_CASES, requests of each random run (100,000); ORACLE_SEED, where its random numbers begin.
 */
#include "oracle_send.h"
#include "oracle_receive.h"

#define SENDING (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define UC_LEAN (SENDING | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
#define ATOMIC (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
#define RC_LEAN (UC_LEAN | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ | ATOMIC)
#define WITH_WINDOWS (IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
#define PACKETS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO)
#define RAW_WQE MLX5DV_QP_EX_WITH_RAW_WQE
#define ALL_UMR (MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | RAW_WQE)
#define RC_FULL (RC_LEAN | WITH_WINDOWS)
#define UC_FULL (UC_LEAN | WITH_WINDOWS)

/* Which tests a kind has */
enum { SENT = 1, REFUSES = 2, RAWS = 4, RECEIVED = 8 };

#define UC_OPS (SENDS | WRITES)
#define TO_OPS (RC_OPS | 1u << INV)
#define PACKET_OPS (1u << SEND | 1u << TSO)

/* name, the device's setting, type, family, tests, operations, those in the table, interfaces, header, longest inline, dv */
static const struct kind kinds[] = {
	{"rc", NULL, NULL, IBV_QPT_RC, POST, SENT | RECEIVED, RC_OPS, RC_OPS, RC_LEAN, RC_FULL, 16, 908, 764, 0},
	{"uc", NULL, NULL, IBV_QPT_UC, POST, SENT | RECEIVED, UC_OPS, UC_OPS, UC_LEAN, UC_FULL, 16, 924, 764, 0},
	{"ud", "SOFTDEV_LINK", "roce", IBV_QPT_UD, DATAGRAM, SENT | RECEIVED, SENDS, SENDS, SENDING, SENDING,
	 64, 892, 892, 0},
	{"ud-ib", "SOFTDEV_LINK", "ib", IBV_QPT_UD, DATAGRAM, SENT, SENDS, SENDS, SENDING, SENDING, 64, 892, 892, 0},
	/* libmlx5 never writes a compact address vector: it is the long one without its end (wqe.c, and to.c, where the device reads it) */
	{"xrc", NULL, NULL, IBV_QPT_XRC_SEND, TO, SENT, TO_OPS, RC_OPS, RC_LEAN, RC_FULL, 32, 892, 748, 0},
	{"dc", "SOFTDEV_LINK", "roce", IBV_QPT_DRIVER, TO, SENT, TO_OPS, RC_OPS, RC_LEAN, RC_FULL, 64, 860, 716, 0},
	{"dc-ib", "SOFTDEV_LINK", "ib", IBV_QPT_DRIVER, TO, SENT, TO_OPS, RC_OPS, RC_LEAN, RC_FULL, 64, 860, 716, 0},
	{"packets", NULL, NULL, IBV_QPT_RAW_PACKET, PACKET, SENT | RAWS, PACKET_OPS, PACKET_OPS, PACKETS, PACKETS,
	 32, 908, 908, 0},
	/* A device that wants headers inline: 18 bytes of the payload are in front */
	{"packets-l2", "SOFTDEV_INLINE", "l2", IBV_QPT_RAW_PACKET, PACKET, SENT | RAWS, PACKET_OPS, PACKET_OPS, PACKETS,
	 PACKETS, 30, 908, 908, 0},
	{"windows-rc", NULL, NULL, IBV_QPT_RC, POST, SENT | REFUSES, RC_OPS | WINDOWS, WINDOWS, RC_FULL, RC_FULL,
	 16, 764, 764, 0},
	{"windows-uc", NULL, NULL, IBV_QPT_UC, POST, SENT | REFUSES, UC_OPS | WINDOWS, WINDOWS, UC_FULL, UC_FULL,
	 16, 764, 764, 0},
	{"copies", NULL, NULL, IBV_QPT_RC, POST, SENT | REFUSES, RC_OPS | 1u << COPY, 1u << COPY, RC_LEAN, RC_LEAN, 16, 764, 764,
	 MLX5DV_QP_EX_WITH_MEMCPY},
	{"keys", NULL, NULL, IBV_QPT_RC, POST, SENT | REFUSES, RC_OPS | 1u << BIND2 | 1u << INV | 1u << UMR | 1u << RAW,
	 1u << UMR | 1u << RAW, RC_FULL, RC_FULL, 16, 700, 764, ALL_UMR},
	{"wqes-uc", NULL, NULL, IBV_QPT_UC, POST, SENT, UC_OPS | 1u << RAW, 1u << RAW, UC_LEAN, UC_LEAN,
	 16, 700, 700, RAW_WQE},
	{"wqes-ud", NULL, NULL, IBV_QPT_UD, DATAGRAM, SENT, SENDS | 1u << RAW, 1u << RAW, SENDING, SENDING, 64, 700, 700, RAW_WQE},
	{"wqs", NULL, NULL, IBV_QPT_RC, POST, RECEIVED, RC_OPS, 0, RC_LEAN, RC_FULL, 16, 908, 764, 0},
	{"srqs", NULL, NULL, IBV_QPT_RC, POST, RECEIVED, RC_OPS, 0, RC_LEAN, RC_FULL, 16, 908, 764, 0},
};

struct test { const char *name; void (*run)(void); uint32_t of; };

static const struct test tests[] = {
	{"self-check", self_check, SENT}, {"table", table, SENT}, {"refused", refused, REFUSES},
	{"bursts", bursts, RAWS}, {"refused packets", refused_packets, RAWS}, {"at random", random_runs, SENT},
	{"receives, self-check", receive_self_check, RECEIVED},
	{"receives at random", receive_random, RECEIVED},
};

static void one(void **state)
{
	const struct test *t = (const struct test *)*state;

	cases = requests = compared = 0;
	t->run();
	print_message("# %s, %s: %llu comparisons of %llu requests, %llu bytes\n", K->name, t->name, (unsigned long long)cases,
		      (unsigned long long)requests, (unsigned long long)compared);
}

/* Address handles of every kind that the link has. The first leads back here */
static void peers_open(void)
{
	bool eth = dev.port.link_layer == IBV_LINK_LAYER_ETHERNET;
	unsigned i, k, global = 0, v1 = 0;
	struct ibv_ah_attr a;
	struct inlay_av av;

	for (i = 0; i < MAX_PEERS; i++) {
		memset(&a, 0, sizeof(a));
		a.port_num = 1;
		a.sl = (uint8_t)rnd_below(16);
		a.static_rate = (uint8_t)rnd_below(IBV_RATE_300_GBPS + 1);
		a.dlid = (uint16_t)rnd();
		a.src_path_bits = (uint8_t)rnd_below(128);
		a.is_global = eth || i % 2;
		if (a.is_global) {
			a.grh.sgid_index = eth ? (uint8_t)rnd_below(4) : 0;
			a.grh.traffic_class = (uint8_t)rnd();
			a.grh.hop_limit = (uint8_t)rnd();
			a.grh.flow_label = rnd_below(4) ? rnd_below(1 << 20) : 0;
			a.grh.dgid = dev.gid;
			/* Link-local ones, whose hardware address is in them, and groups; where nothing is resolved, anything */
			for (k = i % 8 == 1 || !i ? 16 : 8; k < 16; k++)
				a.grh.dgid.raw[k] = (uint8_t)rnd();
			if (i % 8 == 5)
				a.grh.dgid.raw[0] = 0xff;
			if (!eth && i % 8 == 3)
				a.grh.dgid.raw[k = rnd_below(8)] = (uint8_t)rnd();
		}
		peers[i] = made(ibv_create_ah(dev.pd, &a));
		must(inlay_av_from_ah(&av, peers[i], 0, 0));
		global += !all_bytes((uint8_t *)&av + 32, 16, 0);
		v1 += all_bytes((uint8_t *)&av + 14, 2, 0);
	}
	/* With and without GRH; of RoCE versions 1 and 2 */
	assert_int_equal(global, eth ? MAX_PEERS : MAX_PEERS / 2);
	assert_true(!eth || (v1 > 0 && v1 < MAX_PEERS));
}

static int open_group(void **state)
{
	if (dev_open(state))
		return -1;
	assert_true(!K->set || strcmp(K->set, "SOFTDEV_LINK") ||
		    (dev.port.link_layer == IBV_LINK_LAYER_INFINIBAND) == !strcmp(K->to, "ib"));
	fill(data, sizeof(data), 4711);
	for (unsigned i = 0; i < ARRAY(mrs); i++) {
		mrs[i] = made(ibv_reg_mr(dev.pd, data, sizeof(data), ALL_ACCESS | IBV_ACCESS_MW_BIND));
	}
	if (K->family == DATAGRAM || is_dci())
		peers_open();
	return 0;
}

static int close_group(void **state)
{
	for (unsigned i = 0; i < MAX_PEERS; i++)
		if (peers[i])
			must(ibv_destroy_ah(peers[i]));
	for (unsigned i = 0; i < ARRAY(mrs); i++)
		must(ibv_dereg_mr(mrs[i]));
	return dev_close(state);
}

static int run_kind(const struct kind *kind)
{
	struct CMUnitTest its[ARRAY(tests)];
	char names[ARRAY(tests)][64], group[64];
	size_t n = 0, i;

	K = kind;
	memset(its, 0, sizeof(its));
	for (i = 0; i < ARRAY(tests); i++) {
		if (!(tests[i].of & kind->tests))
			continue;
		snprintf(names[n], sizeof(names[n]), "%s: %s", kind->name, tests[i].name);
		its[n].name = names[n];
		its[n].test_func = one;
		its[n++].initial_state = (void *)(uintptr_t)&tests[i];
	}
	snprintf(group, sizeof(group), "oracle: %s", kind->name);
	return _cmocka_run_group_tests(group, its, n, open_group, close_group);
}

TEST(no_softdev)
{
	need_softdev("the oracle");
}

int main(int argc, char **argv)
{
	int status, bad = 0;
	pid_t pid;

	if (!softdev_present())
		return run_all(NULL, NULL);
	/* libmlx5 prints each error CQE that it meets */
	setenv("MLX5_DEBUG_FILE", "/dev/null", 0);
	report_to = stderr;
	for (unsigned i = 0; i < ARRAY(kinds); i++) {
		const struct kind *k = &kinds[i];

		if (argc > 1 && strcmp(argv[1], k->name))
			continue;
		if (argc > 1 && (!k->set || (getenv(k->set) && !strcmp(getenv(k->set), k->to))))
			return run_kind(k);
		fflush(NULL);
		pid = fork();
		if (!pid) {
			if (k->set)
				setenv(k->set, k->to, 1);
			execl("/proc/self/exe", argv[0], k->name, (char *)NULL);
			_exit(127);
		}
		bad |= pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
	}
	return bad;
}
