/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * receive.c: receives found 1, 16 and 64 at a time, as CQEs or in compressed blocks: counter and length of each into
 * arrays. inlay polls a ring in plain memory, libmlx5 the software device's; libmlx5 reads no compressed CQEs.
 */
#include <infiniband/mlx5dv.h>
#include <inlay/inlay.h>
#include <inlay/queue/batch.h>
#include "bench.h"
#include "softdev.h"

#define LAP 64u
#define RING 256u

static struct mlx5_cqe64 cqes[RING] __attribute__((aligned(4096)));
static uint32_t record[2], lengths[LAP], cqn, cqxn;
static const struct mlx5_cqe64 *found[LAP];
static struct mlx5_cqe64 message;       /* as the device writes it */
static uint16_t counters[LAP];
static struct ibv_wc wc[LAP];
static struct ibv_cq_ex *cqx;
static struct inlay_cq icq;
static struct ibv_cq *ibcq;
static uint64_t ids[LAP];

/* ---- What is counted: found, freed, and the record ---- */

ALWAYS uint32_t decode(struct inlay_cq *cq, uint32_t most)
{
	uint32_t n = inlay_cq_decode(cq, counters, lengths, most);

	inlay_cq_update(cq);
	return n;
}

ALWAYS uint32_t peek(struct inlay_cq *cq, uint32_t most)
{
	uint32_t n;

	for (n = 0; n < most && (found[n] = inlay_cq_peek(cq)); n++)
		inlay_cq_advance_quiet(cq, 1);
	inlay_cq_update(cq);
	return n;
}

ALWAYS uint32_t start_poll(uint32_t most)
{
	struct ibv_poll_cq_attr attr = {0};
	uint32_t n = 0;

	if (ibv_start_poll(cqx, &attr))
		return 0;
	do {
		ids[n] = cqx->status ? 0 : cqx->wr_id;
		lengths[n] = ibv_wc_read_byte_len(cqx);
	} while (++n < most && !ibv_next_poll(cqx));
	ibv_end_poll(cqx);
	return n;
}

/* ---- Laps: LAP receives are there ---- */

/* In blocks of `block` receives; 0: not compressed */
static void refill(uint32_t block)
{
	memset(cqes, 0xf0, sizeof(cqes));
	memset(cqes, 0, LAP * sizeof(cqes[0]));
	for (uint32_t i = 0; i < LAP; i++)
		cqes[i].op_own = MLX5_CQE_RESP_SEND << 4;
	for (uint32_t i = 0; block && i < LAP; i += block) {
		cqes[i].op_own |= INLAY_CQE_COMPRESSED;
		cqes[i].byte_cnt = inlay_to_be32(block);
	}
	NEED(!inlay_cq_init(&icq, cqes, RING, 64, record, NULL, 3) &&
	     !inlay_cq_set_compression(&icq, INLAY_MINI_HASH, 0), "a ring");
}

static void inject(uint32_t number)
{
	NEED(softdev_inject_cqes(number, &message, LAP, 1) == (int)LAP, "softdev_inject_cqes");
}

#define WAY(name, n, call, before)										\
	COUNTED uint32_t count_##name##_##n##_(struct inlay_cq *cq) { return (uint32_t)(call); }		\
	static double name##_##n(void *arg, uint64_t total)							\
	{													\
		uint32_t block = arg ? n : 0;									\
		double seconds = 0, t;										\
		(void)block;											\
		for (uint64_t done = 0; done < total; done += LAP) {						\
			uint32_t got = 0;									\
			before;											\
			t = now();										\
			for (uint32_t i = 0; i < LAP; i += n)							\
				got += count_##name##_##n##_(&icq);						\
			seconds += now() - t;									\
			NEED(got == LAP, "finding every receive");						\
		}												\
		return seconds;											\
	}
#define WAYS(n)													\
	WAY(decode, n, decode(cq, n), refill(block))								\
	WAY(peek, n, peek(cq, n), refill(0))									\
	WAY(poll_cq, n, ibv_poll_cq(ibcq, n, wc), inject(cqn))							\
	WAY(start_poll, n, start_poll(n), inject(cqxn))								\
	static void rows_##n(void)										\
	{													\
		static const char own[] = "counter and length into arrays, record", all[] = "wr_id, length";	\
		static const struct way ways[] = {{"inlay", decode_##n, NULL, own},				\
			{"ibv_poll_cq", poll_cq_##n, NULL, "struct ibv_wc, lock"},				\
			{"ibv_start_poll", start_poll_##n, NULL, all}};						\
		static const struct way pointers = {"inlay", peek_##n, NULL, "pointers to CQEs, record"};	\
		static const struct way zipped = {"inlay", decode_##n, &icq, own};				\
		bench_row("receive", n == 1 ? "1 receive" : #n " receives", ways, 3, LAP);			\
		bench_row("receive", n == 1 ? "1 receive, CQE" : #n " receives, CQEs", &pointers, 1, LAP);	\
		if (n > 1)											\
			bench_row("receive", #n " receives, compressed", &zipped, 1, LAP);			\
	}
WAYS(1)
WAYS(16)
WAYS(64)

/* One message that goes all the way shows the CQE that the device writes */
static void open_device(void)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = RING - 1, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1, LAP, 1, 1, 0}};
	struct ibv_context *ctx = inlay_device_open(NULL, NULL);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
	struct ibv_recv_wr recv = {0}, *bad_recv;
	struct mlx5dv_cq dv = {0}, dvx = {0};
	struct mlx5dv_obj obj;
	struct ibv_pd *pd;
	struct ibv_qp *qp;

	NEED(ctx, "opening the device");
	pd = ibv_alloc_pd(ctx);
	ibcq = init.recv_cq = ibv_create_cq(ctx, RING - 1, NULL, NULL, 0);
	init.send_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	cqx = ibv_create_cq_ex(ctx, &attr);
	NEED(pd && ibcq && init.send_cq && cqx, "two CQs");
	qp = ibv_create_qp(pd, &init);
	NEED(qp && !inlay_connect_pair(qp, qp, NULL, NULL), "a queue pair");
	NEED(!ibv_post_recv(qp, &recv, &bad_recv) && !ibv_post_send(qp, &wr, &bad) && softdev_run() == 1, "a message");
	obj.cq.in = ibcq;
	obj.cq.out = &dv;
	NEED(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	obj.cq.in = ibv_cq_ex_to_cq(cqx);
	obj.cq.out = &dvx;
	NEED(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	cqn = dv.cqn;
	cqxn = dvx.cqn;
	memcpy(&message, dv.buf, sizeof(message));
	NEED(ibv_poll_cq(ibcq, 1, wc) == 1 && !wc[0].status, "the message");
}

int main(void)
{
	if (!softdev_present() || softdev_manual(1))
		die("needs the stepped software device: start it with tests/softdev/run --manual");
	open_device();
	rows_1();
	rows_16();
	rows_64();
	return 0;
}
