/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * server.c: a server of several workers, and clients that come, ask and go; some are killed.
 *
 *   main      listens, reads a client's connection record, hands the client to a worker; takes the
 *             device's events
 *   workers   a thread each, with a doorbell register, a CQ and an SRQ of its own: no lock, and no
 *             word to each other. One answers its clients' requests, keeps replies that find no room,
 *             and sleeps when there is nothing to do
 *
 * A client is over when its socket closes, whatever has become of it. Then its QP is moved to ERR, the
 * device says when it takes no more entries of the SRQ, and the QP and what it left in the CQ go.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <infiniband/verbs.h>
#include <inlay/inlay.h>
#include "common/program.h"
#include "common/socket.h"

#define WINDOW 64u      /* requests of a client under way */
#define SENDS 1u        /* replies under way that are asked for: fewer, so that some must wait */
#define BUFFERS 256u    /* of a worker, for requests */
#define MOST 64u        /* clients of a worker */

static uint32_t workers = 2, clients = 6, requests = 2000, doomed = 2;
static uint32_t gone, stop;     /* clients that the workers have seen off; workers end */

struct client {
	struct inlay_sq sq;
	struct ibv_qp *qp;
	int fd;
	uint32_t last_wqe;      /* the device takes no more entries for its QP; main sets it */
	uint32_t ending;
	uint64_t waiting[WINDOW]; /* replies that have found no room */
	uint32_t wait_head, wait_tail;
	uint8_t record[INLAY_CONNECT_SIZE];
};

struct worker {
	struct inlay_uar uar;
	struct inlay_cq cq;
	struct inlay_srq srq;
	struct inlay_qpn_table table;
	struct client *client[MOST];
	struct ibv_mr *mr;
	struct ibv_srq *ibsrq;
	struct ibv_cq *ibcq;
	struct ibv_comp_channel *channel;
	uint64_t *buffers;
	uint64_t answered, kept;
	uint32_t num;
	int door[2];            /* a pipe: clients from main */
	pthread_t thread;
};

/* ---- A client of a worker ---- */

static void client_up(struct worker *w, struct client *c)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .qp_context = c, .send_cq = w->ibcq, .recv_cq = w->ibcq,
					.srq = w->ibsrq, .cap = {.max_send_wr = SENDS, .max_send_sge = 1, .max_inline_data = 8}};
	struct inlay_connect_record here, there;
	uint8_t mine[INLAY_CONNECT_SIZE];

	c->qp = ibv_create_qp(w->uar.pd, &init);
	must(c->qp != NULL, "a queue pair");
	need(inlay_sq_from_qp(&c->sq, c->qp, &w->uar, &w->cq, &why), "taking over a send queue");
	need(inlay_qpn_table_add(&w->table, c->qp->qp_num, c), "the table of queue pairs");
	need(inlay_connect_local(&here, c->qp, NULL, &why), "a connection record");
	inlay_connect_pack(&here, mine);
	w->client[w->num++] = c;
	/* Whatever the client has sent: if it is no record, the client is over */
	if (inlay_connect_unpack(&there, c->record, sizeof(c->record), &why) ||
	    inlay_connect_rts(c->qp, &here, &there, NULL, &why) ||
	    socket_move(c->fd, 1, mine, sizeof(mine), now_ns() + 1000000000))
		c->ending = c->last_wqe = 1; /* its QP has not used the SRQ */
}

/* Its socket has closed: first to ERR, later, when the device lets go, away. */
static void client_down(struct worker *w, uint32_t i)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct client *c = w->client[i];

	if (!c->ending++)
		must(!ibv_modify_qp(c->qp, &attr, IBV_QP_STATE), "ibv_modify_qp");
	if (!__atomic_load_n(&c->last_wqe, __ATOMIC_ACQUIRE))
		return;
	must(!ibv_destroy_qp(c->qp), "destroying a queue pair");
	inlay_cq_clean(&w->cq, inlay_sq_qpn(&c->sq), inlay_srq_gone, &w->srq);
	inlay_srq_ring(&w->srq);
	must(inlay_qpn_table_remove(&w->table, inlay_sq_qpn(&c->sq)) == c, "the table of queue pairs");
	inlay_sq_fini(&c->sq);
	w->client[i] = w->client[--w->num];
	close(c->fd);
	free(c);
	__atomic_add_fetch(&gone, 1, __ATOMIC_RELEASE);
}

/* ---- A worker's work ---- */

/* Replies in order; what finds no room waits for a completion. */
static void reply(struct worker *w, struct client *c, uint64_t value)
{
	w->answered++;
	if (c->wait_head == c->wait_tail && !inlay_post_send_inline(&c->sq, &value, sizeof(value), INLAY_SIGNALED | INLAY_RING))
		return;
	if (c->wait_tail - c->wait_head < WINDOW) /* a client that asks for more is not answered */
		c->waiting[c->wait_tail++ % WINDOW] = value;
	w->kept++;
}

static void reply_late(struct client *c)
{
	for (; c->wait_head != c->wait_tail; c->wait_head++)
		if (inlay_post_send_inline(&c->sq, &c->waiting[c->wait_head % WINDOW], sizeof(uint64_t), INLAY_SIGNALED))
			break;
	inlay_sq_ring(&c->sq);
}

/* All completions that there are. Returns how many. An error is the end of its client, which the socket tells too. */
static uint32_t work(struct worker *w)
{
	const struct mlx5_cqe64 *cqe;
	uint32_t n = 0;

	for (; (cqe = inlay_cq_peek(&w->cq)); n++) {
		struct client *c = (struct client *)inlay_qpn_table_find(&w->table, inlay_cqe_qpn(cqe));
		int bad = inlay_cqe_is_error(cqe);

		must(c != NULL, "finding the client of a completion");
		if (inlay_cqe_is_send(cqe)) {
			must(inlay_sq_release(&c->sq, cqe) > 0, "a send's completion");
			if (!bad)
				reply_late(c);
		} else {
			const uint64_t *buffer = &w->buffers[inlay_srq_user(&w->srq, inlay_cqe_wqe_counter(cqe))];
			const void *data = inlay_cqe_data(cqe, inlay_cq_cqe_size(&w->cq), buffer);
			uint64_t value = 0;

			if (!bad && data && inlay_cqe_byte_count(cqe) == sizeof(value)) {
				memcpy(&value, data, sizeof(value));
				reply(w, c, value * value);
			}
			must(!inlay_srq_recycle(&w->srq, cqe), "a receive's completion");
		}
		if (bad)
			shutdown(c->fd, SHUT_RDWR);
		inlay_cq_advance_quiet(&w->cq, 1);
	}
	inlay_cq_update(&w->cq);
	inlay_srq_ring(&w->srq);
	return n;
}

/* Arms the CQ, looks once more, and sleeps until something happens, or for 10 ms. */
static void sleep_well(struct worker *w)
{
	struct pollfd fds[2] = {{w->channel->fd, POLLIN, 0}, {w->door[0], POLLIN, 0}};
	struct ibv_cq *ibcq;
	void *context;

	need(inlay_cq_arm(&w->cq, 0), "arming a completion queue");
	if (inlay_cq_peek(&w->cq) || poll(fds, 2, 10) <= 0 || !fds[0].revents)
		return;
	must(!ibv_get_cq_event(w->channel, &ibcq, &context), "an event");
	inlay_cq_event(&w->cq);
	ibv_ack_cq_events(ibcq, 1);
}

static void *worker_run(void *arg)
{
	struct worker *w = (struct worker *)arg;
	struct client *c;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE) || w->num) {
		if (work(w))
			continue;
		if (read(w->door[0], &c, sizeof(c)) == sizeof(c))
			client_up(w, c);
		for (uint32_t i = w->num; i--;)
			if (w->client[i]->ending || socket_closed(w->client[i]->fd, 0))
				client_down(w, i);
		sleep_well(w);
	}
	return NULL;
}

static void worker_start(struct worker *w, struct ibv_pd *pd)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = BUFFERS - 1, .max_sge = 1}};
	struct ibv_qp_init_attr one = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = SENDS, .max_send_sge = 1, .max_inline_data = 8}};
	uint32_t cqes = MOST * inlay_send_cqes(&one) + inlay_srq_cqes(BUFFERS - 1);

	need(inlay_uar_create(&w->uar, pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	w->channel = ibv_create_comp_channel(pd->context);
	w->ibcq = w->channel ? ibv_create_cq(pd->context, (int)cqes, NULL, w->channel, 0) : NULL;
	w->ibsrq = ibv_create_srq(pd, &attr);
	must(w->ibcq && w->ibsrq, "a completion and a receive queue");
	need(inlay_cq_from_cq(&w->cq, w->ibcq, &why), "taking over the completion queue");
	need(inlay_srq_from_srq(&w->srq, w->ibsrq, &w->cq, &why), "taking over the receive queue");
	inlay_qpn_table_init(&w->table, memory(2 * INLAY_QPN_PAGE), 2 * INLAY_QPN_PAGE);
	w->buffers = memory(inlay_srq_size(&w->srq) * sizeof(*w->buffers));
	w->mr = ibv_reg_mr(pd, w->buffers, inlay_srq_size(&w->srq) * sizeof(*w->buffers), IBV_ACCESS_LOCAL_WRITE);
	must(w->mr && !pipe2(w->door, O_NONBLOCK | O_CLOEXEC), "memory and a pipe");
	for (uint32_t i = 0; i < inlay_srq_size(&w->srq); i++)
		need(inlay_post_srq_recv(&w->srq, &(struct ibv_sge){(uintptr_t)&w->buffers[i], 8, w->mr->lkey}, 1, i), "a receive");
	inlay_srq_ring(&w->srq);
	must(!pthread_create(&w->thread, NULL, worker_run, w), "a thread");
}

static void worker_end(struct worker *w)
{
	must(!pthread_join(w->thread, NULL), "a thread's end");
	inlay_srq_fini(&w->srq);
	must(!ibv_destroy_srq(w->ibsrq) && !ibv_destroy_cq(w->ibcq) && !ibv_destroy_comp_channel(w->channel) &&
	     !ibv_dereg_mr(w->mr) && !inlay_uar_destroy(&w->uar, &why), "closing a worker down");
}

/* ---- Main ---- */

/* Until all have come and gone: new clients, their records, events of the device. */
static uint64_t serve(int listener, struct ibv_pd *pd)
{
	struct pollfd fds[2] = {{listener, POLLIN, 0}, {pd->context->async_fd, POLLIN, 0}};
	struct worker *w = memory(workers * sizeof(*w));
	uint64_t end = now_ns() + 60000000000, answered = 0, kept = 0;
	struct ibv_async_event e;
	struct client *c;

	fcntl(pd->context->async_fd, F_SETFL, O_NONBLOCK);
	for (uint32_t i = 0; i < workers; i++)
		worker_start(&w[i], pd);
	for (uint32_t n = 0; __atomic_load_n(&gone, __ATOMIC_ACQUIRE) < clients;) {
		must(now_ns() < end, "serving within a minute");
		if (poll(fds, 2, 10) <= 0)
			continue;
		for (; !ibv_get_async_event(pd->context, &e); ibv_ack_async_event(&e))
			if (e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
				__atomic_store_n(&((struct client *)e.element.qp->qp_context)->last_wqe, 1, __ATOMIC_RELEASE);
		if (!fds[0].revents)
			continue;
		c = memory(sizeof(*c));
		c->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		must(c->fd >= 0, "accepting a client");
		if (socket_move(c->fd, 0, c->record, sizeof(c->record), now_ns() + 1000000000))
			shutdown(c->fd, SHUT_RDWR); /* its worker sees it off */
		must(write(w[n++ % workers].door[1], &c, sizeof(c)) == sizeof(c), "handing a client over");
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < workers; i++) {
		worker_end(&w[i]);
		answered += w[i].answered;
		kept += w[i].kept;
	}
	printf("%u workers answered %llu requests of %u clients; %llu replies had to wait\n", workers,
	       (unsigned long long)answered, clients, (unsigned long long)kept);
	return answered;
}

/* ---- A client: a process, before there is a device ---- */

static void client_run(uint32_t port, uint32_t until)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = WINDOW, .max_recv_wr = WINDOW, .max_send_sge = 1,
					.max_recv_sge = 1, .max_inline_data = 8}};
	uint8_t mine[INLAY_CONNECT_SIZE], theirs[INLAY_CONNECT_SIZE];
	uint64_t *reply = memory(WINDOW * sizeof(*reply)), asked, heard, end = now_ns() + 60000000000;
	struct ibv_pd *pd = open_pd(NULL);
	struct ibv_mr *mr = ibv_reg_mr(pd, reply, WINDOW * sizeof(*reply), IBV_ACCESS_LOCAL_WRITE);
	struct inlay_connect_record here, there;
	const struct mlx5_cqe64 *cqe;
	struct inlay_uar uar;
	struct inlay_cq cq;
	struct inlay_sq sq;
	struct inlay_rq rq;
	struct ibv_qp *qp;
	int fd;

	need(inlay_uar_create(&uar, pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	init.send_cq = init.recv_cq = ibv_create_cq(pd->context, (int)(inlay_send_cqes(&init) + inlay_recv_cqes(&init)), NULL, NULL, 0);
	qp = init.send_cq ? ibv_create_qp(uar.pd, &init) : NULL;
	must(mr && qp && !inlay_cq_from_cq(&cq, init.send_cq, &why) && !inlay_sq_from_qp(&sq, qp, &uar, &cq, &why) &&
	     !inlay_rq_from_qp(&rq, qp, &cq, &why), "a client's queues");
	need(inlay_connect_local(&here, qp, NULL, &why), "a connection record");
	for (uint32_t i = 0; i < WINDOW; i++)
		must(!inlay_post_recv(&rq, &(struct ibv_sge){(uintptr_t)&reply[i], 8, mr->lkey}, 1), "a receive");
	inlay_rq_ring(&rq);
	inlay_connect_pack(&here, mine);
	fd = socket_connect("127.0.0.1", port, 10);
	must(!socket_move(fd, 1, mine, sizeof(mine), end) && !socket_move(fd, 0, theirs, sizeof(theirs), end) &&
	     !inlay_connect_unpack(&there, theirs, sizeof(theirs), &why) && !inlay_connect_rts(qp, &here, &there, NULL, &why), "connecting");
	for (asked = heard = 0; heard < requests;) {
		if (heard == until)
			raise(SIGKILL);
		if (asked < requests && asked - heard < WINDOW && !inlay_post_send_inline(&sq, &asked, 8, INLAY_SIGNALED | INLAY_RING))
			asked++;
		cqe = inlay_cq_peek(&cq);
		must(cqe || now_ns() < end, "hearing from the server");
		if (!cqe)
			continue;
		must(!inlay_cqe_is_error(cqe), "asking");
		if (inlay_cqe_is_send(cqe)) {
			must(inlay_sq_release(&sq, cqe) > 0, "a send's completion");
		} else {
			const uint64_t *got = inlay_cqe_data(cqe, inlay_cq_cqe_size(&cq), &reply[heard % WINDOW]);

			must(got && *got == heard * heard && inlay_rq_release(&rq, cqe) == 1, "a reply");
			must(!inlay_post_recv(&rq, &(struct ibv_sge){(uintptr_t)&reply[heard++ % WINDOW], 8, mr->lkey}, 1), "a receive");
			inlay_rq_ring(&rq);
		}
		inlay_cq_advance(&cq, 1);
	}
	exit(0); /* the kernel closes the rest, as for those that are killed */
}

int main(int argc, char **argv)
{
	static const struct option_of options[] = {
		{"workers", "N", "threads (2)", .number = &workers, .min = 1, .max = 16},
		{"clients", "N", "processes (6)", .number = &clients, .min = 1, .max = 64},
		{"requests", "N", "of each client (2000)", .number = &requests, .min = 2, .max = 1u << 30},
		{"killed", "N", "clients that die half way (2)", .number = &doomed, .max = 64},
		{NULL, NULL, NULL, NULL, NULL, 0, 0, NULL}};
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(at);
	int listener, status;
	uint64_t answered;
	struct ibv_pd *pd;

	arguments(argc, argv, "A server, its workers, and clients some of which are killed.", "", options);
	need_device(NULL);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(listener >= 0 && !bind(listener, (struct sockaddr *)&at, len) && !listen(listener, 64) &&
	     !getsockname(listener, (struct sockaddr *)&at, &len), "listening");
	for (uint32_t i = 0; i < clients; i++)
		if (!fork())
			client_run(ntohs(at.sin_port), i < doomed ? requests / 2 : requests);
	pd = open_pd(NULL);
	answered = serve(listener, pd);
	for (uint32_t killed = 0, i = 0; i < clients; i++) {
		must(wait(&status) > 0 && (WIFSIGNALED(status) ? ++killed <= doomed : !status), "a client");
		answered -= WIFSIGNALED(status) ? requests / 2 : requests;
	}
	must((int64_t)answered >= 0, "answering all");
	must(!ibv_dealloc_pd(pd), "closing the device");
	return 0;
}
