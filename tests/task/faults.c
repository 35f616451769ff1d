/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faults.c: command tasks between two processes, of which one dies, falls silent, or whose messages are lost, doubled or late.
 * Each command is completed once, whatever happens, and only when nobody touches its memory any more. The other
 * process is this program again, with faults of its own by SOFTDEV_FAULT.
 */
#include "common.h"
#include "rig.h"
#include <sys/socket.h>

#define ECHO 1u
#define KEEP 2u          /* answers when it is told to */
#define DIE 3u           /* ends the process, with a command in its hands */
#define BACK 4u          /* answers with what it was sent by a key */
#define COMMANDS 200u

static int wire;                         /* to the other process */
static pid_t other;

static uint64_t nanoseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct inlay_connect_attr quick(void)
{
	struct inlay_connect_attr p = inlay_task_host_default().path;

	p.timeout = 12; /* 17 ms */
	p.retry_count = 3;
	return p;
}

static struct inlay_task_host_params host_params(void)
{
	struct inlay_task_host_params p = inlay_task_host_default();

	p.windows = 1;
	p.path = quick();
	p.tasks = 8;
	p.in_flight = 8;
	return p;
}

static struct inlay_task_worker_params worker_params(void)
{
	struct inlay_task_worker_params p = inlay_task_worker_default();

	p.path = quick();
	p.connections = 1;
	p.credits = 8;
	p.spare = 8;
	return p;
}

static bool silent;                      /* sends no probes */

/* Every 50 ms, by this process's clock */
static void probe(struct inlay_task_link *l)
{
	static uint64_t last;

	if (!silent && nanoseconds() - last > 50000000) {
		last = nanoseconds();
		message_probe(l);
	}
}

/* ---- the worker's side ---- */

static struct inlay_task_cmd *kept[8];
static uint32_t num_kept;

static int echo(UNUSED void *plugin, struct inlay_task_cmd *cmd)
{
	memcpy(cmd->response, cmd->payload, cmd->payload_len);
	cmd->response_len = cmd->payload_len;
	return 0;
}

static int keep(UNUSED void *plugin, struct inlay_task_cmd *cmd)
{
	if (num_kept == ARRAY(kept))
		return -ENOBUFS;
	kept[num_kept++] = cmd;
	return INLAY_TASK_LATER;
}

static int die(UNUSED void *plugin, UNUSED struct inlay_task_cmd *cmd)
{
	raise(SIGKILL);
	return 0;
}

static int back(UNUSED void *plugin, struct inlay_task_cmd *cmd)
{
	return cmd->pulled && !inlay_task_cmd_answer_buf(cmd, 0, cmd->pulled) ? INLAY_TASK_LATER : -EINVAL;
}

#define PLUGIN(name, handler) {INLAY_TASK_VERSION, name, NULL, NULL, NULL, NULL, handler, NULL}

static const struct inlay_task_plugin plugin_echo = PLUGIN("echo", echo), plugin_keep = PLUGIN("keep", keep),
				      plugin_die = PLUGIN("die", die), plugin_back = PLUGIN("back", back);
static const struct inlay_task_entry entries[] = {
	{ECHO, &plugin_echo, NULL},
	{KEEP, &plugin_keep, NULL},
	{DIE, &plugin_die, NULL},
	{BACK, &plugin_back, NULL},
};

static struct desk *desk;
static struct inlay_task_conn *conn;
static void *conn_memory;

static void put(const void *data, size_t len)
{
	assert_int_equal(send(wire, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void get(void *data, size_t len)
{
	assert_int_equal(recv(wire, data, len, MSG_WAITALL), (ssize_t)len);
}

static void worker_make(void)
{
	uint8_t theirs[INLAY_TASK_ADDRESS];
	struct inlay_task_worker_params p = worker_params();

	desk = desk_make(&p, entries, ARRAY(entries), 2);
	conn = (struct inlay_task_conn *)pages(sizeof(*conn));
	conn_memory = pages(inlay_task_conn_size(&desk->params));
	get(theirs, sizeof(theirs));
	must(inlay_task_conn_create(conn, conn_memory, inlay_task_conn_size(&desk->params), &desk->worker, theirs, sizeof(theirs), NULL));
	put(&conn->link.self, sizeof(theirs));
	get(theirs, 1); /* its probes must not find a host that is not connected yet: it would soon be taken for dead */
}

static void worker_free(void)
{
	while (num_kept)
		assert_int_equal(respond(kept[--num_kept], 0), -ENOTCONN);
	must(inlay_task_conn_destroy(conn));
	desk_free(desk);
	free(conn_memory);
	free(conn);
}

/* Works until the wire is closed. A byte on it: what is kept is answered */
static int be_worker(void)
{
	ssize_t n;
	char c;

	must(dev_open(NULL));
	worker_make();
	while ((n = recv(wire, &c, 1, MSG_DONTWAIT))) {
		if (!conn->broken)
			probe(&conn->link);
		inlay_task_worker_progress(&desk->worker, 16);
		while (n == 1 && num_kept)
			respond(kept[--num_kept], 0);
		step();
	}
	return 0;
}

/* ---- the host's side ---- */

static struct line *line;                /* without its connection, which is elsewhere */
static uint32_t completed[8];

static void done(struct inlay_task *task, uint64_t user_data, UNUSED uint64_t host_user_data)
{
	assert_int_not_equal(inlay_task_status(task), -EINPROGRESS);
	completed[user_data]++;
}

static void start(const char *role, const char *fault)
{
	char fd[16];
	int p[2];

	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p));
	fflush(NULL);
	other = fork();
	assert_true(other >= 0);
	if (!other) {
		snprintf(fd, sizeof(fd), "%d", dup(p[1]));
		if (fault)
			setenv("SOFTDEV_FAULT", fault, 1);
		execl("/proc/self/exe", "task_faults", role, fd, (char *)NULL);
		_exit(127);
	}
	close(p[1]);
	wire = p[0];
}

/* The other process ends, or is gone already */
static void finish(void)
{
	int status;

	close(wire);
	assert_int_equal(waitpid(other, &status, 0), other);
	assert_true((WIFEXITED(status) && !WEXITSTATUS(status)) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
}

static void host_make(void)
{
	uint8_t theirs[INLAY_TASK_ADDRESS];
	struct inlay_task_host_params p = host_params();

	memset(completed, 0, sizeof(completed));
	line = (struct line *)pages(sizeof(*line));
	line->host_memory = pages(inlay_task_host_size(&p));
	must(inlay_task_host_create(&line->host, line->host_memory, inlay_task_host_size(&p), dev.pd, &p, NULL));
	put(&line->host.link.self, sizeof(theirs));
	get(theirs, sizeof(theirs));
	must(inlay_task_host_connect(&line->host, theirs, sizeof(theirs), NULL));
	put(theirs, 1);
}

static void host_free(void)
{
	must(inlay_task_host_destroy(&line->host));
	free(line->host_memory);
	free(line);
}

static uint32_t go(void)
{
	step();
	if (line->host.limit)
		probe(&line->host.link);
	return inlay_task_host_progress(&line->host, 16);
}

#define until(condition) await_by(go(), condition)

static struct inlay_task *task(uint64_t plugin, uint32_t number)
{
	struct inlay_task *t = NULL;

	must(inlay_task_alloc(&line->host, plugin, done, &t));
	t->user_data = number;
	return t;
}

static uint32_t total(void)
{
	uint32_t i, n = 0;

	for (i = 0; i < ARRAY(completed); i++)
		n += completed[i];
	return n;
}

/*
 * n tasks, all completed once, because the connection has ended, and are the caller's; and nothing comes after that
 */
static void all_lost(struct inlay_task **t, uint32_t n)
{
	until(total() == n);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(go(), 0);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(completed[i], 1);
		assert_int_equal(inlay_task_status(t[i]), line->host.broken);
		assert_int_equal(inlay_task_submit(t[i], INLAY_RING), -ENOTCONN);
		must(inlay_task_release(t[i]));
	}
	assert_true(line->host.broken < 0);
}

/* ---- one dies ---- */

/* All was acknowledged long ago: only the probe can tell */
TEST(worker_killed_with_nothing_on_the_wire)
{
	struct inlay_task *t[5];

	start("worker", NULL);
	host_make();
	for (uint32_t i = 0; i < 5; i++) {
		t[i] = task(KEEP, i);
		must(inlay_task_submit(t[i], INLAY_RING));
	}
	until(!inlay_sq_pending(&line->host.link.sq));
	assert_int_equal(total(), 0);
	must(kill(other, SIGKILL));
	until(total() == 5);
	all_lost(t, 5);
	assert_int_equal(line->host.broken, -ECONNRESET);
	host_free();
	finish();
}

/*
 * Killed while it may read payloads and write responses: with one kept, one in its hands, as it ends by itself. All is completed, the
 * windows come back, and the memory can be given another use.
 */
TEST(worker_killed_with_windows_open)
{
	struct inlay_inventory *inv = NULL;
	struct inlay_buf *bufs[4];
	struct region outside;
	struct inlay_task *t[2];
	void *memory;

	region_make(&outside, ARRAY(bufs) * LARGE, 1);
	memory = pages(inlay_inventory_size(ARRAY(bufs)));
	must(inlay_inventory_create(memory, inlay_inventory_size(ARRAY(bufs)), ARRAY(bufs), &inv));
	must(inlay_inventory_start(inv));
	for (uint32_t i = 0; i < ARRAY(bufs); i++)
		must(inlay_inventory_get_by_data(inv, &outside.map, outside.at + i * LARGE, LARGE, &bufs[i]));
	start("worker", NULL);
	host_make();
	for (uint32_t i = 0; i < 2; i++) {
		t[i] = task(i ? DIE : KEEP, i);
		must(inlay_task_set_payload(t[i], bufs[2 * i]));
		must(inlay_task_set_response(t[i], bufs[2 * i + 1]));
		must(inlay_task_submit(t[i], INLAY_RING));
	}
	all_lost(t, 2);
	host_free();
	finish();
	for (uint32_t i = 0; i < ARRAY(bufs); i++)
		must(inlay_buf_dec_refcount(bufs[i], NULL));
	must(inlay_inventory_destroy(inv));
	free(memory);
	region_free(&outside);
}

/* Submits, and waits for its end */
static void be_host(void)
{
	must(dev_open(NULL));
	host_make();
	for (uint32_t i = 0; i < 6; i++)
		must(inlay_task_submit(task(KEEP, i), INLAY_RING));
	for (;;)
		go();
}

TEST(host_killed)
{
	start("host", NULL);
	num_kept = 0;
	worker_make();
	await_by((step(), inlay_task_worker_progress(&desk->worker, 16)), num_kept >= 6 && !inlay_sq_pending(&conn->link.sq));
	must(kill(other, SIGKILL));
	await_by((step(), probe(&conn->link), inlay_task_worker_progress(&desk->worker, 16)), conn->broken);
	assert_int_equal(conn->kept, 6);
	assert_int_equal(inlay_task_conn_destroy(conn), -EBUSY);
	worker_free();
	finish();
}

/* ---- messages are hurt ---- */

/* Until the commands are over or the connection is. Returns how many were answered; each was completed once */
static uint32_t send_many(uint32_t commands)
{
	uint32_t sent = 0, good = 0, i, before[8] = {0};
	bool flying[8] = {false};
	double end = now() + DEADLINE;
	struct inlay_task *t[8];

	for (i = 0; i < 8; i++)
		t[i] = task(ECHO, i);
	for (;;) {
		bool any = false;

		for (i = 0; i < 8; i++) {
			struct inlay_buf *buf = inlay_task_payload(t[i]);

			if (flying[i] && inlay_task_status(t[i]) != -EINPROGRESS) {
				flying[i] = false;
				assert_int_equal(completed[i], before[i] + 1);
				if (!inlay_task_status(t[i])) {
					struct inlay_buf *r = inlay_task_response(t[i]);

					good++;
					assert_int_equal(inlay_buf_data_len(r), inlay_buf_data_len(buf));
					assert_memory_equal(inlay_buf_data(r), inlay_buf_data(buf), inlay_buf_data_len(r));
				} else {
					assert_int_equal(inlay_task_status(t[i]), line->host.broken);
				}
			}
			if (!flying[i] && sent < commands && line->host.limit) {
				inlay_buf_set_data(buf, inlay_buf_head(buf), sent * 37 % 3000);
				fill(inlay_buf_data(buf), sent * 37 % 3000, sent);
				before[i] = completed[i];
				must(inlay_task_submit(t[i], INLAY_RING));
				sent++;
				flying[i] = true;
			}
			any |= flying[i];
		}
		if (!any && (sent == commands || !line->host.limit))
			break;
		go();
		if (now() > end)
			fail_msg("%u sent, %u answered", sent, good);
	}
	assert_int_equal(total(), sent);
	for (i = 0; i < 8; i++)
		must(inlay_task_release(t[i]));
	return good;
}

TEST(hurt)
{
	/* What either process does to its own messages, and whether the connection survives it */
	static const struct {
		const char *host, *worker;
		bool survives;
	} cases[] = {
		{"drop@5-/23", NULL, true},
		{NULL, "drop@5-/23", true},
		{"dup@/3", "dup@/5", true},
		{"delay=2ms@/17", "delay=1ms@/13", true},
		{"drop@40-", NULL, false},
		{NULL, "drop@40-", false},
		{"silent@40", NULL, false},
		{NULL, "silent@40", false},
		{NULL, "die@40", false},
		{"syndrome=0x05@40", NULL, false},
		{NULL, "syndrome=0x15@40", false},
	};
	uint32_t i, good;

	need_softdev("fault injection");
	for (i = 0; i < ARRAY(cases); i++) {
		start("worker", cases[i].worker);
		host_make();
		must(softdev_fault(cases[i].host));
		good = send_many(COMMANDS);
		must(softdev_fault(NULL));
		if (cases[i].survives ? good != COMMANDS : good == COMMANDS)
			fail_msg("%s at the host, %s at the worker: %u were answered", cases[i].host ? cases[i].host : "nothing",
				 cases[i].worker ? cases[i].worker : "nothing", good);
		assert_int_equal(line->host.strays, 0);
		host_free();
		finish();
	}
}

/* ---- commands that are cancelled ---- */

/*
 * The worker's messages are late: its read of the payload, the write of the response, its answer. The deadline passes before. The memory is
 * given back, by the late answer or by closing the windows, only when nothing touches it any more.
 */
TEST(late)
{
	static const char *const delays[] = {"delay=200ms@1-", "delay=200ms@2-", "delay=300ms@3-"};
	struct inlay_inventory *inv = NULL;
	struct inlay_buf *out = NULL, *in = NULL;
	struct region outside;
	struct inlay_task *t;
	uint32_t i, way;
	uint64_t give_up;
	void *memory;

	need_softdev("fault injection");
	region_make(&outside, 2 * LARGE, 1);
	memory = pages(inlay_inventory_size(2));
	must(inlay_inventory_create(memory, inlay_inventory_size(2), 2, &inv));
	must(inlay_inventory_start(inv));
	must(inlay_inventory_get_by_data(inv, &outside.map, outside.at, LARGE, &out));
	must(inlay_inventory_get_by_addr(inv, &outside.map, outside.at + LARGE, LARGE, &in));
	for (i = 0; i < 2 * ARRAY(delays); i++) {
		way = i & 1;
		start("worker", delays[i / 2]);
		host_make();
		silent = true; /* the wait is for the answer */
		fill(outside.at, LARGE, i);
		memset(outside.at + LARGE, 0x11, LARGE);
		t = task(BACK, 0);
		must(inlay_task_set_payload(t, out));
		must(inlay_task_set_response(t, in));
		must(inlay_task_submit(t, INLAY_RING));
		give_up = nanoseconds() + 20000000;
		until(completed[0] || nanoseconds() > give_up);
		if (!completed[0] && !inlay_task_cancel(t, 0)) { /* or it is answered just now */
			assert_int_equal(inlay_task_status(t), -EINPROGRESS);
			assert_int_equal(inlay_task_cancel(t, 0), -EBUSY);
			assert_int_equal(inlay_task_submit(t, INLAY_RING), -EBUSY);
			assert_int_equal(inlay_task_release(t), -EPERM);
			assert_int_equal(inlay_task_set_payload(t, NULL), -EBUSY);
			if (way)
				must(inlay_task_cancel(t, 1));
			until(completed[0]);
			assert_int_equal(inlay_task_status(t), -ECANCELED);
		}
		until(completed[0]);
		assert_int_equal(t->state, INLAY_TASK_IDLE);
		/* From here on nobody writes to it, and nobody is given what is in it now */
		memset(outside.at, 0x22, 2 * LARGE);
		if (way)
			until(line->host.broken || !line->host.outstanding);
		usleep(400000);
		go();
		assert_true(all_bytes(outside.at, 2 * LARGE, 0x22));
		assert_int_equal(completed[0], 1);
		must(inlay_task_release(t));
		host_free();
		finish();
	}
	must(inlay_buf_dec_refcount(out, NULL));
	must(inlay_buf_dec_refcount(in, NULL));
	must(inlay_inventory_destroy(inv));
	free(memory);
	region_free(&outside);
}

int main(int argc, char **argv)
{
	if (argc == 3) {
		wire = atoi(argv[2]);
		if (!strcmp(argv[1], "worker"))
			return be_worker();
		be_host();
	}
	return run_all(dev_open, dev_close);
}
