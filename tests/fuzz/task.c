/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * task.c: any bytes as messages of command tasks: to both parsers, to a host with tasks in flight, to a worker. Their queues lie in memory,
 * with nothing behind them; completions are written here. For libFuzzer (make fuzz), and for tests/task_fuzz.c.
 *
 * Input: messages one after another, each a byte of length, of which the highest bit says for whom it is, and so many bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <inlay/inlay.h>

#define FUZZ_QPN 5u
#define FUZZ_CQES 64u
#define FUZZ_BBS 256u
#define FUZZ_TASKS 4u

#define sure(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);  \
			abort();                                                        \
		}                                                                       \
	} while (0)

/* Queues of either side */
struct fuzz_queues {
	struct mlx5_cqe64 cqes[FUZZ_CQES] __attribute__((aligned(4096)));
	uint8_t sq[FUZZ_BBS * 64], rq[16 * 16];
	uint32_t cq_record[2], qp_record[2];
	uint64_t page[512] __attribute__((aligned(4096)));
	struct inlay_uar uar;
	uint32_t produced;
};

static struct {
	struct fuzz_queues q[2] __attribute__((aligned(4096)));
	struct inlay_task_host host;
	struct inlay_task_worker worker;
	struct inlay_task_conn conn;
	uint8_t host_memory[32768] __attribute__((aligned(4096)));
	uint8_t worker_memory[4096] __attribute__((aligned(4096)));
	uint8_t conn_memory[32768] __attribute__((aligned(4096)));
} fuzz __attribute__((aligned(4096)));

static uint32_t fuzz_flying[FUZZ_TASKS];

static void fuzz_queues_make(struct fuzz_queues *q, struct inlay_cq *cq, struct inlay_task_link *l, uint32_t receives)
{
	uint32_t i;

	memset(q, 0, sizeof(*q));
	for (i = 0; i < FUZZ_CQES; i++)
		q->cqes[i].op_own = MLX5_CQE_INVALID << 4; /* as the provider leaves it */
	sure(!inlay_uar_init(&q->uar, q->page, 256, INLAY_UAR_DOORBELL));
	sure(!inlay_cq_init(cq, q->cqes, FUZZ_CQES, 64, q->cq_record, q->page, 1));
	sure(!inlay_sq_init(&l->sq, q->sq, FUZZ_BBS, &q->qp_record[1], FUZZ_QPN, 16, &q->uar));
	sure(!inlay_rq_init(&l->rq, q->rq, receives, 16, &q->qp_record[0]));
}

static void fuzz_cqe(struct fuzz_queues *q, uint32_t opcode, uint32_t bytes, uint16_t counter)
{
	struct mlx5_cqe64 *cqe = &q->cqes[q->produced % FUZZ_CQES];

	memset(cqe, 0, sizeof(*cqe));
	cqe->byte_cnt = inlay_to_be32(bytes);
	cqe->sop_drop_qpn = inlay_to_be32(FUZZ_QPN);
	cqe->wqe_counter = inlay_to_be16(counter);
	cqe->op_own = (uint8_t)(opcode << 4 | ((q->produced / FUZZ_CQES) & 1));
	q->produced++;
}

/* All that was posted has been sent */
static void fuzz_sent(struct fuzz_queues *q, const struct inlay_sq *sq)
{
	uint32_t at = sq->pi - inlay_sq_pending(sq), last = at, word;

	if (!inlay_sq_pending(sq))
		return;
	for (; at != sq->pi; at += ((uint32_t)(inlay_sq_wqe(sq, at)[7] & 0x3f) + 3) / 4)
		last = at;
	memcpy(&word, inlay_sq_wqe(sq, last), 4);
	fuzz_cqe(q, MLX5_CQE_REQ, 0, (uint16_t)(inlay_from_be32(word) >> 8));
}

static void fuzz_done(struct inlay_task *t, uint64_t user_data, uint64_t host_user_data)
{
	(void)host_user_data;
	sure(user_data < FUZZ_TASKS && inlay_task_index(t) == user_data);
	sure(fuzz_flying[user_data] == 1);
	sure(inlay_task_response_len(t) <= fuzz.host.answer_room);
	fuzz_flying[user_data] = 0;
}

static int fuzz_command(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	sure((uintptr_t)cmd->payload >= (uintptr_t)fuzz.conn_memory);
	sure((uintptr_t)cmd->payload + cmd->payload_len <= (uintptr_t)fuzz.conn_memory + sizeof(fuzz.conn_memory));
	sure(!cmd->payload_key.bytes);
	cmd->response_len = cmd->payload_len < cmd->response_room ? cmd->payload_len : cmd->response_room;
	memcpy(cmd->response, cmd->payload, cmd->response_len);
	return 0;
}

static void fuzz_parse(const uint8_t *data, uint32_t len)
{
	struct inlay_task_address address;
	struct inlay_task_command c;
	struct inlay_task_answer a;
	uint8_t *exact = (uint8_t *)malloc(len ? len : 1); /* so that a sanitizer sees what lies behind */

	sure(exact);
	memcpy(exact, data, len);
	if (!inlay_task_command_read(&c, exact, len))
		sure(c.flags & INLAY_TASK_PAYLOAD_KEY ? c.at == len && c.length == c.payload.bytes : (uint64_t)c.at + c.length == len);
	if (!inlay_task_answer_read(&a, exact, len))
		sure(a.kind == INLAY_TASK_ANSWER ? (uint64_t)a.length + INLAY_TASK_HEAD == len : len == INLAY_TASK_HEAD);
	inlay_task_address_read(&address, exact, len, INLAY_TASK_HOST);
	inlay_task_address_read(&address, exact, len, INLAY_TASK_WORKER);
	free(exact);
}

static void fuzz_begin(struct inlay_task **t)
{
	static const struct inlay_task_plugin plugin = {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, "fuzz",
							NULL, NULL, NULL, NULL, fuzz_command, NULL, NULL};
	const struct inlay_task_entry entry = {1, &plugin, NULL};
	struct inlay_task_worker_params wp = inlay_task_worker_default();
	struct inlay_task_host_params hp = inlay_task_host_default();
	struct inlay_keys keys = {1, INLAY_NO_KEY};
	struct inlay_task_address peer;
	uint32_t i;

	hp.tasks = hp.in_flight = FUZZ_TASKS;
	wp.credits = wp.spare = 4;
	hp.message = wp.message = 128;
	hp.payload = wp.response = 96;
	wp.connections = wp.plugins = 1;
	hp.period = wp.period = 0;
	memset(&peer, 0, sizeof(peer));
	peer.message = 128;
	peer.receives = 4;
	memset(&fuzz.host, 0, sizeof(fuzz.host));
	memset(&fuzz.worker, 0, sizeof(fuzz.worker));
	memset(&fuzz.conn, 0, sizeof(fuzz.conn));
	sure(inlay_task_host_size(&hp) <= sizeof(fuzz.host_memory) && inlay_task_conn_size(&wp) <= sizeof(fuzz.conn_memory));
	sure(inlay_task_worker_size(&wp) <= sizeof(fuzz.worker_memory));
	fuzz_queues_make(&fuzz.q[0], &fuzz.host.cq, &fuzz.host.link, hp.in_flight);
	fuzz_queues_make(&fuzz.q[1], &fuzz.worker.cq, &fuzz.conn.link, wp.credits);
	sure(!inlay_task_host_init(&fuzz.host, fuzz.host_memory, &hp, (struct ibv_pd *)(void *)&fuzz, keys));
	inlay_task_host_receive(&fuzz.host);
	inlay_task_host_begin(&fuzz.host, &peer);
	sure(!inlay_task_worker_init(&fuzz.worker, fuzz.worker_memory, &wp, &entry, 1));
	sure(!inlay_task_conn_init(&fuzz.conn, fuzz.conn_memory, &fuzz.worker, 1));
	inlay_task_conn_begin(&fuzz.conn, &peer);
	for (i = 0; i < FUZZ_TASKS; i++) {
		fuzz_flying[i] = 0;
		sure(!inlay_task_alloc_init(&fuzz.host, 1, fuzz_done, &t[i]));
		inlay_task_set_user_data(t[i], i);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct inlay_task *t[FUZZ_TASKS];
	uint32_t len, i, to, commands = 0;

	fuzz_begin(t);
	while (size) {
		to = *data >> 7;
		len = *data & 0x7f;
		data++;
		size--;
		if (len > size)
			len = (uint32_t)size;
		fuzz_parse(data, len);
		/* Idle ones are submitted again; a payload of 13 * i bytes: inline and gathered */
		for (i = 0; i < FUZZ_TASKS; i++) {
			struct inlay_buf *buf = inlay_task_get_payload(t[i]);

			if (inlay_task_state(t[i]) != INLAY_TASK_IDLE)
				continue;
			inlay_buf_set_data(buf, inlay_buf_head(buf), 32 * i);
			if (!inlay_task_submit(t[i]))
				fuzz_flying[i]++;
		}
		if (to) {
			memcpy(*inlay_task_host_slot(&fuzz.host), data, len);
			fuzz_sent(&fuzz.q[0], &fuzz.host.link.sq);
			fuzz_cqe(&fuzz.q[0], MLX5_CQE_RESP_SEND, len, 0);
			while (inlay_cq_peek(&fuzz.host.cq))
				inlay_task_host_progress(&fuzz.host, 0, 4);
			sure(inlay_task_host_outstanding(&fuzz.host) <= FUZZ_TASKS);
		} else {
			memcpy(inlay_task_cmd_message(fuzz.conn.ring[fuzz.conn.taken & fuzz.conn.mask]), data, len);
			fuzz_cqe(&fuzz.q[1], MLX5_CQE_RESP_SEND, len, 0);
			inlay_task_worker_progress(&fuzz.worker, 0, 4);
			fuzz_sent(&fuzz.q[1], &fuzz.conn.link.sq);
			inlay_task_worker_progress(&fuzz.worker, 0, 4);
			/* Each is answered, whatever it was */
			sure(fuzz.conn.commands == ++commands && fuzz.conn.answers == commands);
		}
		data += len;
		size -= len;
	}
	/* The end of the connection completes what is left, once */
	inlay_task_host_stop(&fuzz.host);
	fuzz_cqe(&fuzz.q[0], MLX5_CQE_RESP_ERR, 0, 0);
	for (i = 0; i < 4; i++)
		inlay_task_host_progress(&fuzz.host, 0, 4);
	for (i = 0; i < FUZZ_TASKS; i++)
		sure(!fuzz_flying[i] && inlay_task_state(t[i]) == INLAY_TASK_IDLE);
	inlay_task_host_unmake(&fuzz.host);
	return 0;
}
