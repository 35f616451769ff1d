/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/worker.h: the worker's side of command tasks: connections to many hosts, and the plugins that their commands are for.
 *
 *   static int count(void *plugin, struct inlay_task_cmd *cmd)          a plugin's handler
 *   {
 *           if (cmd->payload_len != 4)
 *                   return -EINVAL;                                     answered with that
 *           memcpy(cmd->response, cmd->payload, 4);
 *           cmd->response_len = 4;
 *           return 0;                                                   answered with the response
 *   }
 *   static const struct inlay_task_plugin counter = {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, "counter",
 *                                                    NULL, NULL, NULL, NULL, count, NULL, NULL};
 *   static const struct inlay_task_entry plugins[] = {{COUNTER, &counter, NULL}};
 *
 *   p = inlay_task_worker_default();
 *   inlay_task_worker_create(&worker, memory, inlay_task_worker_size(&p), pd, &p, plugins, 1);
 *   inlay_task_conn_create(&conn, more, inlay_task_conn_size(&p), &worker);                 for each host
 *   inlay_task_conn_address(&conn, mine);  ... to the host, and its own from there ...  inlay_task_conn_connect(&conn, theirs, len);
 *   for (;;)
 *           inlay_task_worker_progress(&worker, now, 64);
 *
 * A command reaches its plugin's handler, `command`, in place: cmd->payload points into the receive that it came in. The handler returns
 *
 *   0                  answered: success, with cmd->response_len bytes that it has written to cmd->response
 *   a negative errno   answered: that status, with the same bytes
 *   INLAY_TASK_LATER   it keeps the command, payload and all, and answers later by inlay_task_cmd_answer or one of its sisters, from its
 *                      `progress` or from anywhere else in the worker's thread
 *   INLAY_TASK_STALL   not now: it is offered again in the next progress, and the connection's later commands wait behind it
 *
 * Every command that comes is answered once. What is no command, or for no plugin, or too large, is answered by the worker itself (wire.h,
 * REFUSED). A response of at most params.max_inline bytes is copied into the WQE of the answer; a longer one, up to cmd->response_room, is
 * gathered from cmd->response. One that lies elsewhere is answered by inlay_task_cmd_answer_data, copied, or inlay_task_cmd_answer_buf: as
 * it lies, and written to the buffer that the host has granted, if it has, when it is longer than an answer can be. An answer for which the
 * ring has no room waits its turn; nobody has to try again.
 *
 * Order. Commands of one connection reach their handlers in the order in which the host submitted them, also when some have their payload
 * read by a key and others not. Answers of handlers that answer at once leave in that order. Nothing is promised between connections.
 *
 * Payload by a key. It is read, by one RDMA read, into a buffer of params.pull, and then is where cmd->payload points, as any other; it is
 * given back when the command is answered. Without such a pool, or when it is larger than its elements, the command is refused with -E2BIG.
 * Each connection has its share of the pool, its elements divided by params.connections; when that is in use, the next such command waits.
 *
 * Credits. Each connection has its own receives, params.credits, of which each holds one command until it is answered: a host that floods
 * takes nothing from the others, and a handler that keeps commands slows down its own host only. The receive is posted again before the
 * answer is rung for.
 *
 * Many hosts. All connections complete to the worker's one CQ, and are found by queue pair number. A connection breaks alone: by its host's
 * death, by a key that it had no right to, by a send that nobody takes. Its commands that handlers have kept stay theirs: to answer them is
 * no fault, and gives them back; inlay_task_conn_destroy waits for that. The plugins are told (`connection`), and inlay_task_worker_gone
 * names it, to be destroyed outside of plugins' functions. With params.period each host is asked by a zero-byte write whether it is there.
 *
 * Handles. What a plugin gives out to a host, it files under that connection: inlay_task_conn_state is a pointer for each plugin and
 * connection, and struct inlay_task_handles a table of numbered objects with generations for the caller's memory. A number of one host's
 * means nothing with another.
 *
 * Sleeping: as host.h has it, with inlay_task_worker_arm, _fd, _due and _event.
 *
 * Threads: a worker, its connections and its commands have one owner at a time.
 * Sources: DOCA's documentation of doca_urom and doca_urom_plugin.
 */
#ifndef INLAY_TASK_WORKER_H
#define INLAY_TASK_WORKER_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/buf.h>
#include <inlay/cqe.h>
#include <inlay/mmap.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>
#include <inlay/task/link.h>
#include <inlay/task/wire.h>

#define INLAY_TASK_LATER 1
#define INLAY_TASK_STALL 2
#define INLAY_TASK_PLUGINS 256u         /* of a worker, at most */
#define INLAY_TASK_CONNECTIONS 4096u    /* likewise */
#define INLAY_TASK_NOBODY 0xffffffffu   /* no command of a connection's */

struct inlay_task_conn;
struct inlay_task_worker;

enum inlay_task_cmd_state {
	INLAY_TASK_CMD_FREE,            /* its receive is posted, or it is spare */
	INLAY_TASK_CMD_WAITING,         /* not yet with its handler */
	INLAY_TASK_CMD_PULLING,         /* its payload is being read */
	INLAY_TASK_CMD_KEPT,            /* its handler's */
	INLAY_TASK_CMD_ANSWERED,        /* the answer waits for room */
	INLAY_TASK_CMD_SENDING,         /* the device reads its response */
};

/*
 * A command, as its handler sees it. The first line is for the handler, but for what is marked; all of it is good until the command is
 * answered.
 */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_cmd {
	const uint8_t *payload;
	uint8_t *response;              /* where the response may be written */
	uint32_t payload_len;
	uint32_t response_room;
	uint32_t response_len;          /* 0; what the handler has written */
	uint32_t state;                 /* the worker's */
	uint64_t plugin;
	uint64_t destination;
	uint64_t context;               /* the host's: to be echoed */
	struct inlay_task_conn *conn;
	uint64_t user[4];               /* for who keeps it; undefined before */
	struct inlay_buf *pulled;       /* where the payload was read to, else NULL */
	/* The worker's */
	struct inlay_buf *answer;
	uint32_t next;
	uint32_t posted;
	uint32_t entry;
	int status;
	struct inlay_task_key payload_key;
	struct inlay_task_key response_key;
	uint32_t kind;
	uint32_t reserved[7];
};

INLAY_STATIC_ASSERT(sizeof(struct inlay_task_cmd) == 3 * INLAY_CACHE_LINE, "three lines");
INLAY_STATIC_ASSERT(offsetof(struct inlay_task_cmd, user) == INLAY_CACHE_LINE, "what every command touches is one");

/*
 * A plugin's interface: all functions get what open has made of the entry's argument. Those that are not needed are NULL; `command` is.
 */
struct inlay_task_plugin {
	uint32_t version;               /* INLAY_PLUGIN_VERSION */
	uint32_t layout;                /* INLAY_PLUGIN_LAYOUT: of the structs that it shares with the worker */
	const char *name;
	/* With the worker's creation. *plugin is the argument if it is not set. 0 or a negative errno, with which the creation fails */
	int (*open)(void *argument, struct inlay_task_worker *worker, void **plugin);
	/* With the worker's end */
	void (*close)(void *plugin);
	/*
	 * What a host must know to use it: *len bytes there are, *len bytes it takes. 0, or -ENOSPC with the length in *len and nothing
	 * written
	 */
	int (*address)(void *plugin, void *buf, size_t *len);
	/*
	 * A connection has come (up 1), or has ended (up 0): its objects may go, its kept commands need no answer but must be given back by
	 * one
	 */
	void (*connection)(void *plugin, struct inlay_task_conn *conn, int up);
	/* A command: see the top */
	int (*command)(void *plugin, struct inlay_task_cmd *cmd);
	/* Once in each progress of the worker. Returns how much it has done */
	uint32_t (*progress)(void *plugin);
	/*
	 * Packs the response of a command that ends by inlay_task_cmd_notify: at most room bytes to `to`. How many, or a negative errno as
	 * its status
	 */
	int64_t (*notification)(void *plugin, struct inlay_task_cmd *cmd, void *to, uint32_t room);
};

#define INLAY_PLUGIN_VERSION 1u

/* A plugin as a worker is given it */
struct inlay_task_entry {
	uint64_t id;
	const struct inlay_task_plugin *plugin;
	void *argument;
};

/* ... and as it has it: in a table by id */
struct inlay_task_slot {
	uint64_t id;
	const struct inlay_task_plugin *plugin; /* NULL: empty */
	void *state;
	uint32_t index;                 /* in the order of the entries */
	uint32_t reserved;
};

/* A connection by its queue pair's number */
struct inlay_task_named {
	struct inlay_task_conn *conn;   /* NULL: empty */
	uint32_t qpn;
	uint32_t reserved;
};

/* What a worker and all its connections are to be. Start from inlay_task_worker_default. */
struct inlay_task_worker_params {
	struct inlay_task_path path;
	uint32_t connections;           /* at most INLAY_TASK_CONNECTIONS */
	uint32_t plugins;               /* room for so many entries, at most INLAY_TASK_PLUGINS */
	uint32_t credits;               /* commands of a connection that are with the worker; as params.in_flight of host.h */
	uint32_t spare;                 /* further commands whose answer the device is still sending; 1 at least */
	uint32_t message;               /* bytes of the longest command that it receives, head included */
	uint32_t response;              /* bytes of cmd->response */
	uint32_t max_inline;            /* responses up to that many bytes are copied into the WQE; at most 512 */
	uint32_t events;                /* a completion channel, to sleep on */
	struct inlay_pool *pull;        /* where payloads by key are read to: started, an element for each connection; NULL: none are */
	uint64_t period;                /* between two probes of each host, in the caller's unit of time; 0: none */
	uint64_t id;                    /* told to the hosts in the address */
};

struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_worker {
	struct inlay_task_named *named;
	struct inlay_task_slot *slots;
	uint32_t named_mask;
	uint32_t slot_shift;            /* 64 less the bits of a slot's number */
	uint64_t due;
	struct inlay_task_conn *dirty;  /* those to ring for */
	struct inlay_task_conn *tended; /* those with something to be done */
	uint32_t num_progress;          /* plugins that have one: */
	uint32_t inside;                /* progress, or a plugin's open, close or connection, is under way */
	struct inlay_task_slot **progress;
	struct inlay_cq cq __attribute__((aligned(INLAY_CACHE_LINE)));
	struct inlay_task_conn **conns;
	struct inlay_task_conn *gone;
	struct inlay_task_slot **order; /* in the order of the entries */
	uint32_t num_plugins;
	uint32_t num_conns;
	uint32_t share;                 /* elements of params.pull that a connection may use */
	uint32_t strays;                /* completions that belong to no connection */
	uint64_t probe_at;
	struct inlay_task_worker_params params;
	struct inlay_uar uar;
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;
	struct ibv_comp_channel *channel;
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_worker, cq) == INLAY_CACHE_LINE, "a poll touches two lines");

/* A list of a connection's commands, by index */
struct inlay_task_fifo {
	uint32_t first;
	uint32_t last;
};

/* A connection to a host. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_conn {
	struct inlay_task_worker *worker;
	struct inlay_task_cmd *cmds;
	uint8_t *slots;
	struct inlay_task_cmd **ring;   /* which command has the receive, by its number */
	uint32_t taken;                 /* receives completed */
	uint32_t mask;                  /* credits - 1 */
	uint32_t message;               /* bytes of a receive */
	uint32_t lkey;
	uint32_t max_inline;
	uint32_t quarter;               /* of the send ring, in WQEBBs less 1 */
	uint32_t kept;                  /* commands with handlers */
	uint32_t room;                  /* bytes of a response in a command's own memory */
	struct inlay_task_fifo waiting;
	struct inlay_task_fifo answered;
	struct inlay_task_fifo sending; /* and, after the end, commands whose payloads were being read */
	uint32_t spare;                 /* list */
	uint32_t num;                   /* commands: credits and spare */
	struct inlay_task_conn *next_dirty;
	struct inlay_task_conn *next_tended;
	uint8_t dirty;
	uint8_t tended;
	uint8_t connected;
	uint8_t broken;
	uint8_t probing;
	uint8_t up;                     /* plugins know of it */
	uint8_t dry;                    /* a payload waits to be read; later ones are not read before it */
	uint8_t marked;                 /* a broken one's last WQE is posted: one that says when it is done */
	uint32_t probe_end;
	uint32_t pulls;                 /* elements of params.pull that it uses */
	uint32_t strays;                /* completions that make no sense */
	uint32_t answer_room;           /* bytes of a response in an answer */
	struct inlay_task_link link;
	uint64_t commands;              /* received, and answered */
	uint64_t answers;
	uint64_t user_data;
	void **states;
	struct inlay_task_conn *next_gone;
	struct ibv_mr *mr;
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_conn, waiting) == INLAY_CACHE_LINE, "a command touches one line and a half");

/* Of what a plugin's inline code shares with the worker it is loaded into: the headers' version, and a mixture of sizes */
#define INLAY_PLUGIN_LAYOUT                                                                                                  \
	((uint32_t)(INLAY_VERSION + 3 * sizeof(struct inlay_task_cmd) + 31 * sizeof(struct inlay_task_conn) +                \
		    257 * sizeof(struct inlay_buf) + 1009 * sizeof(struct inlay_task_worker) +                                \
		    4099 * sizeof(struct inlay_task_slot) + 65537 * sizeof(struct inlay_task_plugin)))

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: the worker
 */

/*
 * 16 connections of 32 credits, 16 plugins, messages of 4096 bytes, 96 bytes inline, no payload by key, no events, hosts asked every
 * second.
 */
INLAY_COLD struct inlay_task_worker_params inlay_task_worker_default(void)
{
	struct inlay_task_worker_params p;

	__builtin_memset(&p, 0, sizeof(p));
	p.path = inlay_task_path_default();
	p.connections = 16;
	p.plugins = 16;
	p.credits = 32;
	p.spare = 32;
	p.message = 4096;
	p.response = 4096 - INLAY_TASK_HEAD;
	p.max_inline = 96;
	p.period = 1000000000;
	return p;
}

/* Can a worker be like this? */
INLAY_COLD int inlay_task_worker_check(const struct inlay_task_worker_params *p)
{
	if (!p || !p->connections || p->connections > INLAY_TASK_CONNECTIONS || !p->plugins || p->plugins > INLAY_TASK_PLUGINS)
		return -EINVAL;
	if (!inlay_is_pow2(p->credits) || p->credits > INLAY_TASK_RECEIVES_MAX || !p->spare || p->spare > INLAY_TASK_RECEIVES_MAX)
		return -EINVAL;
	if (p->message < INLAY_TASK_MESSAGE_MIN || p->message > INLAY_TASK_MESSAGE_MAX)
		return -EINVAL;
	if (!p->response || p->response > INLAY_TASK_MESSAGE_MAX)
		return -EINVAL;
	if (p->pull && inlay_pool_num_elements(p->pull) < p->connections)
		return -EINVAL;
	return p->max_inline > 512 || p->max_inline > p->response ? -EINVAL : 0;
}

INLAY_COLD uint64_t inlay_task_worker_lines(uint64_t bytes)
{
	return (bytes + INLAY_CACHE_LINE - 1) / INLAY_CACHE_LINE * INLAY_CACHE_LINE;
}

/* The power of two that is at least twice n. */
INLAY_COLD uint32_t inlay_task_twice(uint32_t n)
{
	uint32_t bits = 1;

	while (1u << bits < 2 * n)
		bits++;
	return bits;
}

/* WQEBBs that a connection's send ring has to have at least. */
INLAY_COLD uint32_t inlay_task_conn_wqebbs(const struct inlay_task_worker_params *p)
{
	uint64_t each = (INLAY_DS + 4 + INLAY_TASK_HEAD + p->max_inline + INLAY_WQEBB - 1) / INLAY_WQEBB, all;

	if (each < 3) /* a response written by key, and its answer */
		each = 3;
	all = each * ((uint64_t)p->credits + p->spare) + p->credits + 16;
	if (all < 8 * each)
		all = 8 * each;
	return all > 32768 ? 32768 : (uint32_t)all;
}

/* Bytes of memory for such a worker, without its connections; 0 when there cannot be one. */
INLAY_COLD size_t inlay_task_worker_size(const struct inlay_task_worker_params *p)
{
	if (inlay_task_worker_check(p))
		return 0;
	return (size_t)(inlay_task_worker_lines((sizeof(struct inlay_task_named) << inlay_task_twice(p->connections))) +
			inlay_task_worker_lines((sizeof(struct inlay_task_slot) << inlay_task_twice(p->plugins))) +
			inlay_task_worker_lines((uint64_t)p->connections * sizeof(void *)) +
			2 * inlay_task_worker_lines((uint64_t)p->plugins * sizeof(void *)));
}

/* Where a plugin's id is looked for first. */
INLAY_ALWAYS uint32_t inlay_task_slot_of(const struct inlay_task_worker *w, uint64_t id)
{
	return (uint32_t)(id * 0x9e3779b97f4a7c15ull >> w->slot_shift);
}

/* The plugin of this id; NULL: there is none. */
INLAY_ALWAYS struct inlay_task_slot *inlay_task_worker_plugin(const struct inlay_task_worker *w, uint64_t id)
{
	uint32_t mask = (1u << (64 - w->slot_shift)) - 1, i = inlay_task_slot_of(w, id);

	while (w->slots[i].plugin && INLAY_UNLIKELY(w->slots[i].id != id))
		i = (i + 1) & mask;
	return w->slots[i].plugin ? &w->slots[i] : NULL;
}

/* Closes the plugins, the last one first. */
INLAY_COLD void inlay_task_worker_close(struct inlay_task_worker *w)
{
	w->inside++;
	w->num_progress = 0;
	while (w->num_plugins) {
		struct inlay_task_slot *s = w->order[--w->num_plugins];

		if (s->plugin->close)
			s->plugin->close(s->state);
	}
	w->inside--;
}

/*
 * Opens a plugin and files it. Returns 0; -EPROTO for another version or layout; -EINVAL without handler; -EEXIST; -ENOMEM; what open
 * returns.
 */
INLAY_COLD int inlay_task_worker_open(struct inlay_task_worker *w, const struct inlay_task_entry *e)
{
	uint32_t mask = (1u << (64 - w->slot_shift)) - 1, i;
	struct inlay_task_slot s;
	int err;

	if (!e->plugin || e->plugin->version != INLAY_PLUGIN_VERSION || e->plugin->layout != INLAY_PLUGIN_LAYOUT)
		return -EPROTO;
	if (!e->plugin->command)
		return -EINVAL;
	if (inlay_task_worker_plugin(w, e->id))
		return -EEXIST;
	if (w->num_plugins == w->params.plugins)
		return -ENOMEM;
	s.id = e->id;
	s.plugin = e->plugin;
	s.state = e->argument;
	s.index = w->num_plugins;
	s.reserved = 0;
	if (e->plugin->open) {
		err = e->plugin->open(e->argument, w, &s.state);
		if (err)
			return err;
	}
	for (i = inlay_task_slot_of(w, e->id); w->slots[i].plugin; i = (i + 1) & mask)
		;
	w->slots[i] = s;
	w->order[w->num_plugins++] = &w->slots[i];
	if (e->plugin->progress)
		w->progress[w->num_progress++] = &w->slots[i];
	return 0;
}

/*
 * Makes a worker of everything but verbs objects, and opens its plugins: for inlay_task_worker_create, and for who has queues of another
 * making. w->cq is in place; the rest of *w is zeroed. Returns 0, or what inlay_task_worker_open returns; then those opened are closed
 * again.
 */
INLAY_COLD int inlay_task_worker_init(struct inlay_task_worker *w, void *memory, const struct inlay_task_worker_params *p,
				      const struct inlay_task_entry *entries, uint32_t num)
{
	uint8_t *at = (uint8_t *)memory;
	uint32_t i;
	int err = 0;

	__builtin_memset(memory, 0, inlay_task_worker_size(p));
	w->params = *p;
	w->named = (struct inlay_task_named *)(void *)at;
	w->named_mask = (1u << inlay_task_twice(p->connections)) - 1;
	at += inlay_task_worker_lines(sizeof(struct inlay_task_named) << inlay_task_twice(p->connections));
	w->slots = (struct inlay_task_slot *)(void *)at;
	w->slot_shift = 64 - inlay_task_twice(p->plugins);
	at += inlay_task_worker_lines(sizeof(struct inlay_task_slot) << inlay_task_twice(p->plugins));
	w->conns = (struct inlay_task_conn **)(void *)at;
	at += inlay_task_worker_lines((uint64_t)p->connections * sizeof(void *));
	w->order = (struct inlay_task_slot **)(void *)at;
	at += inlay_task_worker_lines((uint64_t)p->plugins * sizeof(void *));
	w->progress = (struct inlay_task_slot **)(void *)at;
	w->due = p->period ? 0 : UINT64_MAX;
	w->share = p->pull ? inlay_pool_num_elements(p->pull) / p->connections : 0;
	w->inside++;
	for (i = 0; i < num && !err; i++)
		err = inlay_task_worker_open(w, &entries[i]);
	w->inside--;
	if (err)
		inlay_task_worker_close(w);
	return err;
}

/*
 * Frees what inlay_task_worker_create made, its plugins closed first; memory is the caller's again. What could not be freed is kept, and it
 * may be called again. Returns 0; -EBUSY while it has connections, or when something is in use.
 */
INLAY_COLD int inlay_task_worker_destroy(struct inlay_task_worker *w)
{
	if (w->num_conns)
		return -EBUSY;
	inlay_task_worker_close(w);
	if (w->uar.td && inlay_uar_destroy(&w->uar, NULL))
		return -EBUSY;
	if (w->ibcq && ibv_destroy_cq(w->ibcq))
		return -EBUSY;
	w->ibcq = NULL;
	if (w->channel && ibv_destroy_comp_channel(w->channel))
		return -EBUSY;
	w->channel = NULL;
	return 0;
}

INLAY_COLD int inlay_task_worker_make(struct inlay_task_worker *w, void *memory, struct ibv_pd *pd,
				      const struct inlay_task_worker_params *p, const struct inlay_task_entry *entries, uint32_t num)
{
	uint64_t cqes = (uint64_t)p->connections * (5ull * inlay_task_conn_wqebbs(p) + p->credits);
	struct ibv_device_attr device;
	int err;

	w->pd = pd;
	err = -ibv_query_device(pd->context, &device);
	if (err)
		return err;
	/* Every WQE that is flushed has a completion, signaled or not. Rings may turn out longer than asked for: each connection reserves what it needs. */
	if (cqes > (uint32_t)device.max_cqe)
		cqes = (uint32_t)device.max_cqe;
	errno = 0;
	if (p->events) {
		w->channel = ibv_create_comp_channel(pd->context);
		if (!w->channel)
			return errno ? -errno : -ENOMEM;
	}
	w->ibcq = ibv_create_cq(pd->context, (int)cqes, NULL, w->channel, 0);
	if (!w->ibcq)
		return errno ? -errno : -ENOMEM;
	err = inlay_cq_from_cq(&w->cq, w->ibcq, NULL);
	if (!err) {
		/* One register for all connections, who are one thread's. */
		err = inlay_uar_create(&w->uar, pd, INLAY_UAR_SERIAL, NULL);
		if (err == -ENOTSUP)
			err = 0;
	}
	return err ? err : inlay_task_worker_init(w, memory, p, entries, num);
}

/*
 * Makes a worker: its completion queue and doorbell register; and opens its plugins, in their order.
 *
 * memory   for its tables, on a cache line; the worker's until it is destroyed
 * size     its bytes, at least inlay_task_worker_size(p)
 * entries  num plugins; copied. Their interfaces are not, and must outlive the worker
 *
 * Returns 0; -EINVAL for an argument out of its range, a pool with less elements than connections, or a plugin without handler; -ENOMEM
 * when size is too small, there are more plugins than p->plugins, or the device has not as much; -EPROTO for a plugin of another version
 * or layout; -EEXIST for two of the same id; what a plugin's open returned; else the negative errno of the verbs call that failed. On
 * failure nothing is left behind.
 */
INLAY_COLD int inlay_task_worker_create(struct inlay_task_worker *w, void *memory, size_t size, struct ibv_pd *pd,
					const struct inlay_task_worker_params *p, const struct inlay_task_entry *entries, uint32_t num)
{
	int err;

	if (!w || (uintptr_t)w % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !pd || inlay_task_worker_check(p) ||
	    (num && !entries))
		return -EINVAL;
	if (size < inlay_task_worker_size(p))
		return -ENOMEM;
	__builtin_memset(w, 0, sizeof(*w));
	err = inlay_task_worker_make(w, memory, pd, p, entries, num);
	if (err)
		inlay_task_worker_destroy(w);
	return err;
}

/*
 * What hosts must know of a plugin, as its `address` tells it. *len: bytes at buf; how many it is. Returns 0; -ENOENT for no such plugin;
 * -ENOTSUP when it has none; -ENOSPC, with *len, when buf is too small.
 */
INLAY_COLD int inlay_task_worker_plugin_address(const struct inlay_task_worker *w, uint64_t id, void *buf, size_t *len)
{
	const struct inlay_task_slot *s = inlay_task_worker_plugin(w, id);

	if (!s)
		return -ENOENT;
	return s->plugin->address ? s->plugin->address(s->state, buf, len) : -ENOTSUP;
}

/* The descriptor to sleep on; -1 without params.events. */
INLAY_COLD int inlay_task_worker_fd(const struct inlay_task_worker *w)
{
	return w->channel ? w->channel->fd : -1;
}

/* As inlay_task_host_event. */
INLAY_COLD int inlay_task_worker_event(struct inlay_task_worker *w)
{
	struct ibv_cq *cq;
	void *context;

	if (!w->channel)
		return -ENOTSUP;
	errno = 0;
	if (ibv_get_cq_event(w->channel, &cq, &context))
		return errno ? -errno : -EIO;
	inlay_cq_event(&w->cq);
	ibv_ack_cq_events(cq, 1);
	return 0;
}

#endif
