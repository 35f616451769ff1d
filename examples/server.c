/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * server.c: a server of several workers, and clients that come, ask and go; some are killed.
 *
 *   main      accepts clients for the workers; SIGTERM, or the last client's end, ends the server
 *   workers   a thread each, with a device context, doorbell register, CQ and SRQ of its own: they
 *             share nothing. Connects clients, answers requests, keeps replies until there is room,
 *             and sleeps when there is nothing to do
 *
 * Whatever becomes of a client, its socket closes. Its QP is then moved to ERR; when the device says
 * that it takes no more entries of the SRQ, the QP and what it left in the CQ go.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include "common/side.h"
#include "common/socket.h"

#define WINDOW 64u      /* requests that a client may have under way */
#define SENDS 1u        /* replies under way to a client: others wait */
#define BUFFERS 256u    /* of a worker, for requests: a power of two */
#define MOST 64u        /* clients of a worker */

static uint32_t workers = 2, clients = 6, requests = 2000, doomed = 2;
static sigset_t signals;

struct client {
	struct inlay_sq sq;
	struct ibv_qp *qp;
	int fd, ending;           /* ending: its QP is in ERR */
	uint32_t index;           /* in worker.client */
	uint32_t head, tail;      /* of waiting: */
	uint64_t waiting[WINDOW]; /* replies without room */
};

struct worker {
	struct inlay_uar uar;
	struct inlay_cq cq;
	struct inlay_srq srq;
	struct inlay_qpn_table table;
	struct client *client[MOST + 1];
	uint32_t num, ending, kept;
	struct ibv_pd *pd;
	struct ibv_qp_init_attr init; /* of its clients' QPs */
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	uint64_t buffers[BUFFERS];
	uint64_t pages[2 * INLAY_QPN_PAGE / 8]; /* of the table */
	int door[2];              /* a pipe: sockets of clients, from main, which closes it at the end */
	pthread_t thread;
};

/* ---- A client of a worker ---- */

/* Returns 0 when it is connected. What a client sends, or lacks, must not end the server. */
static int client_up(struct worker *w, struct client *c, const uint8_t *record)
{
	struct inlay_connect_record here, there;
	uint8_t mine[INLAY_CONNECT_SIZE];

	c->qp = ibv_create_qp(w->uar.pd, &w->init);
	if (!c->qp || inlay_sq_from_qp(&c->sq, c->qp, &w->uar, &w->cq, NULL) ||
	    inlay_qpn_table_add(&w->table, c->qp->qp_num, c) || inlay_connect_local(&here, c->qp, NULL, NULL) ||
	    inlay_connect_unpack(&there, record, INLAY_CONNECT_SIZE, NULL) || inlay_connect_rts(c->qp, &here, &there, NULL, NULL))
		return -1;
	inlay_connect_pack(&here, mine);
	return send(c->fd, mine, sizeof(mine), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(mine) ? 0 : -1;
}

static void client_free(struct worker *w, struct client *c)
{
	const uint32_t qpn = c->qp ? c->qp->qp_num : 0;

	if (qpn) {
		must(!ibv_destroy_qp(c->qp), "destroying a queue pair");
		inlay_cq_clean(&w->cq, qpn, inlay_srq_gone, &w->srq);
		inlay_srq_ring(&w->srq);
		inlay_qpn_table_remove(&w->table, qpn);
		inlay_sq_fini(&c->sq);
	}
	w->client[c->index] = w->client[--w->num];
	w->client[c->index]->index = c->index;
	close(c->fd);
	free(c);
}

/* Its socket has a record, or has closed. */
static void client_heard(struct worker *w, struct client *c)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	uint8_t record[INLAY_CONNECT_SIZE];

	if (!c->qp && recv(c->fd, record, sizeof(record), MSG_DONTWAIT) == sizeof(record) && !client_up(w, c, record))
		return;
	c->ending = 1;
	if (!c->qp || c->qp->state < IBV_QPS_RTR)
		client_free(w, c);
	else /* it may have entries of the SRQ: events() frees it */
		must(!ibv_modify_qp(c->qp, &attr, IBV_QP_STATE), "ibv_modify_qp");
}

/* ---- A worker's work ---- */

/* Sends the replies that wait, as far as there is room. */
static void reply(struct client *c)
{
	while (c->head != c->tail && !inlay_post_send_inline(&c->sq, &c->waiting[c->head % WINDOW], 8, INLAY_SIGNALED))
		c->head++;
	inlay_sq_ring(&c->sq);
}

/* Handles a request. Returns -1 if it is malformed, or exceeds the client's window. */
static int answer(struct worker *w, struct client *c, const struct mlx5_cqe64 *cqe)
{
	const uint32_t entry = (uint32_t)inlay_srq_user(&w->srq, inlay_cqe_wqe_counter(cqe));
	const void *data = inlay_cqe_data(cqe, inlay_cq_cqe_size(&w->cq), &w->buffers[entry]);
	uint64_t value;

	if (!data || inlay_cqe_byte_count(cqe) != sizeof(value) || c->tail - c->head == WINDOW)
		return -1;
	memcpy(&value, data, sizeof(value));
	c->waiting[c->tail++ % WINDOW] = value * value;
	reply(c);
	w->kept += c->head != c->tail;
	return 0;
}

/* At most 64 completions: then the CQ is updated. A client with a fault is cut off, and its socket says so. */
static uint32_t work(struct worker *w)
{
	const struct mlx5_cqe64 *cqe;
	uint32_t n = 0;

	for (; n < 64 && (cqe = inlay_cq_peek(&w->cq)); n++) {
		struct client *c = (struct client *)inlay_qpn_table_find(&w->table, inlay_cqe_qpn(cqe));

		must(c != NULL, "finding the client of a completion");
		if (inlay_cqe_is_error(cqe) || (!inlay_cqe_is_send(cqe) && answer(w, c, cqe)))
			shutdown(c->fd, SHUT_RDWR);
		must(inlay_cqe_is_send(cqe) ? inlay_sq_release(&c->sq, cqe) > 0 : !inlay_srq_recycle(&w->srq, cqe), "a completion");
		reply(c);
		inlay_cq_advance_quiet(&w->cq, 1);
	}
	inlay_cq_update(&w->cq);
	inlay_srq_ring(&w->srq);
	return n;
}

/* From main: a client's socket, or the end. */
static void take_clients(struct worker *w)
{
	const int record = INLAY_CONNECT_SIZE;
	struct client *c;
	int fd, n;

	while ((n = (int)read(w->door[0], &fd, sizeof(fd))) == sizeof(fd)) {
		c = w->client[w->num] = memory(sizeof(*c));
		c->index = w->num++;
		c->fd = fd;
		if (w->num > MOST || /* the socket is ready when all of the record is there */
		    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &record, sizeof(record)))
			client_free(w, c);
	}
	w->ending = n == 0;
	for (uint32_t i = 0; w->ending && i < w->num; i++)
		shutdown(w->client[i]->fd, SHUT_RDWR);
}

/* The device's. What ends neither a client nor the server is passed over. */
static void events(struct worker *w)
{
	struct ibv_async_event e;
	struct client *c;

	while (!ibv_get_async_event(w->pd->context, &e)) {
		c = e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED ? inlay_qpn_table_find(&w->table, e.element.qp->qp_num) : NULL;
		ibv_ack_async_event(&e); /* before the QP goes */
		must(e.event_type != IBV_EVENT_DEVICE_FATAL && e.event_type != IBV_EVENT_CQ_ERR && e.event_type != IBV_EVENT_SRQ_ERR,
		     "the device");
		if (c)
			client_free(w, c);
	}
}

/* Looks at all descriptors; idle: arms the CQ, looks once more, and sleeps until something happens. */
static void look_around(struct worker *w, int idle)
{
	struct pollfd fds[3 + MOST] = {{w->channel->fd, POLLIN, 0}, {w->pd->context->async_fd, POLLIN, 0},
				       {w->ending ? -1 : w->door[0], POLLIN, 0}};
	struct ibv_cq *ibcq;
	void *context;
	uint32_t n = w->num;

	for (uint32_t i = 0; i < n; i++)
		fds[3 + i] = (struct pollfd){w->client[i]->ending ? -1 : w->client[i]->fd, w->client[i]->qp ? POLLRDHUP : POLLIN, 0};
	if (idle)
		need(inlay_cq_arm(&w->cq, 0), "arming a completion queue");
	if (poll(fds, 3 + n, idle && !inlay_cq_peek(&w->cq) ? -1 : 0) <= 0)
		return;
	if (fds[0].revents) {
		must(!ibv_get_cq_event(w->channel, &ibcq, &context), "an event");
		inlay_cq_event(&w->cq);
		ibv_ack_cq_events(ibcq, 1);
	}
	while (n--) /* backwards: the last client takes the place of one that goes */
		if (fds[3 + n].revents)
			client_heard(w, w->client[n]);
	if (fds[1].revents)
		events(w);
	if (fds[2].revents)
		take_clients(w);
}

static void *worker_run(void *arg)
{
	struct worker *w = (struct worker *)arg;

	for (uint32_t busy = 0; !w->ending || w->num; busy = work(w) ? busy + 1 : 0)
		if (busy % 16 == 0)
			look_around(w, !busy);
	return NULL;
}

static void worker_start(struct worker *w)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = BUFFERS - 1, .max_sge = 1}};

	w->pd = open_pd(NULL);
	w->init = (struct ibv_qp_init_attr){.qp_type = IBV_QPT_RC, .cap = {SENDS, 0, 1, 0, 8}};
	need(inlay_uar_create(&w->uar, w->pd, INLAY_UAR_SERIAL, &why), "a doorbell register");
	w->channel = ibv_create_comp_channel(w->pd->context);
	w->init.send_cq = w->init.recv_cq = w->channel ? ibv_create_cq(w->pd->context, (int)(MOST * inlay_send_cqes(&w->init) +
		inlay_srq_cqes(BUFFERS - 1)), NULL, w->channel, 0) : NULL;
	w->init.srq = ibv_create_srq(w->pd, &attr);
	must(w->init.send_cq && w->init.srq, "a completion and a receive queue");
	must(!inlay_cq_from_cq(&w->cq, w->init.send_cq, &why) && !inlay_srq_from_srq(&w->srq, w->init.srq, &w->cq, &why), "the queues");
	inlay_qpn_table_init(&w->table, w->pages, sizeof(w->pages));
	w->mr = ibv_reg_mr(w->pd, w->buffers, sizeof(w->buffers), IBV_ACCESS_LOCAL_WRITE);
	must(w->mr && !fcntl(w->pd->context->async_fd, F_SETFL, O_NONBLOCK), "memory");
	for (uint32_t i = 0; i < inlay_srq_size(&w->srq); i++)
		need(inlay_post_srq_recv(&w->srq, &(struct ibv_sge){(uintptr_t)&w->buffers[i], 8, w->mr->lkey}, 1, i), "a receive");
	inlay_srq_ring(&w->srq);
	must(!pipe2(w->door, O_NONBLOCK | O_CLOEXEC) && !pthread_create(&w->thread, NULL, worker_run, w), "a thread");
}

static void worker_end(struct worker *w)
{
	struct ibv_context *ctx = w->pd->context;

	close(w->door[1]);
	must(!pthread_join(w->thread, NULL), "a thread's end");
	inlay_srq_fini(&w->srq);
	must(!ibv_destroy_srq(w->init.srq) && !ibv_destroy_cq(w->init.send_cq) && !ibv_destroy_comp_channel(w->channel) &&
	     !ibv_dereg_mr(w->mr) && !inlay_uar_destroy(&w->uar, &why) && !ibv_dealloc_pd(w->pd) && !ibv_close_device(ctx),
	     "closing a worker down");
	close(w->door[0]);
}

/* ---- A client: a process, started before there is a device ---- */

static void client_run(uint32_t port, uint32_t until)
{
	uint64_t *reply = memory(WINDOW * sizeof(*reply)), asked, heard, end = now_ns() + 60000000000;
	struct side s = {.attr = inlay_connect_defaults()};
	uint8_t record[INLAY_CONNECT_SIZE];
	int fd;

	sigprocmask(SIG_UNBLOCK, &signals, NULL);
	side_open(&s, NULL, (struct ibv_qp_cap){WINDOW, WINDOW, 1, 1, 8});
	struct ibv_mr *mr = ibv_reg_mr(s.pd, reply, WINDOW * sizeof(*reply), IBV_ACCESS_LOCAL_WRITE);
	must(mr != NULL, "registering memory");
	for (uint32_t i = 0; i < WINDOW; i++)
		need(inlay_post_recv(&s.rq, &(struct ibv_sge){(uintptr_t)&reply[i], 8, mr->lkey}, 1), "a receive");
	inlay_rq_ring(&s.rq);
	fd = socket_connect("127.0.0.1", port, 10);
	must(!socket_move(fd, 1, s.record, sizeof(record), end) && !socket_move(fd, 0, record, sizeof(record), end), "the server");
	side_connect(&s, record);
	for (asked = heard = 0; heard < requests;) {
		const struct mlx5_cqe64 *cqe = inlay_cq_peek(&s.cq);

		if (heard == until)
			raise(SIGKILL);
		if (asked < requests && asked - heard < WINDOW && !inlay_post_send_inline(&s.sq, &asked, 8, INLAY_SIGNALED | INLAY_RING))
			asked++;
		must(cqe ? !inlay_cqe_is_error(cqe) : now_ns() < end && !socket_closed(fd, 0), "hearing from the server");
		if (cqe && inlay_cqe_is_send(cqe)) {
			must(inlay_sq_release(&s.sq, cqe) > 0, "a send's completion");
		} else if (cqe) {
			const uint64_t *got = inlay_cqe_data(cqe, inlay_cq_cqe_size(&s.cq), &reply[heard % WINDOW]);

			must(got && *got == heard * heard && inlay_rq_release(&s.rq, cqe) == 1, "a reply");
			need(inlay_post_recv(&s.rq, &(struct ibv_sge){(uintptr_t)&reply[heard++ % WINDOW], 8, mr->lkey}, 1), "a receive");
			inlay_rq_ring(&s.rq);
		}
		inlay_cq_advance(&s.cq, cqe != NULL);
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
		{.name = NULL}};
	struct signalfd_siginfo signal = {.ssi_signo = 0};
	uint32_t left, n = 0, killed = 0, port = 0, kept = 0;
	struct pollfd fds[2];
	int fd, status;

	arguments(argc, argv, "A server, its workers, and clients some of which are killed.", "", options);
	need_device(NULL);
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fds[0] = (struct pollfd){socket_listen("127.0.0.1", &port), POLLIN, 0};
	fds[1] = (struct pollfd){signalfd(-1, &signals, SFD_CLOEXEC), POLLIN, 0};
	for (left = 0; left < clients; left++)
		if (!fork())
			client_run(port, left < doomed ? requests / 2 : requests);
	struct worker *w = memory(workers * sizeof(*w));
	for (uint32_t i = 0; i < workers; i++)
		worker_start(&w[i]);

	printf("serving at port %u\n", port);
	fflush(stdout);
	while (left && signal.ssi_signo != SIGTERM) {
		must(poll(fds, 2, -1) > 0, "poll");
		if (fds[0].revents && (fd = accept4(fds[0].fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
			must(write(w[n++ % workers].door[1], &fd, sizeof(fd)) == sizeof(fd), "handing a client over");
		if (fds[1].revents)
			must(read(fds[1].fd, &signal, sizeof(signal)) > 0, "a signal");
		for (; waitpid(-1, &status, WNOHANG) > 0; left--)
			must(WIFSIGNALED(status) ? ++killed <= doomed : !status, "a client");
	}
	for (uint32_t i = 0; i < workers; i++) {
		worker_end(&w[i]);
		kept += w[i].kept;
	}
	printf("%u workers served %u clients; %u replies had to wait\n", workers, n, kept);
	free(w);
	return 0;
}
