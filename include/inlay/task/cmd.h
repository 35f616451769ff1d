/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/cmd.h: a command at the worker, the plugin's interface, and answers. What authors of
 * plugins include.
 *
 *   static int count(void *plugin, struct inlay_task_cmd *cmd)
 *   {
 *           if (cmd->payload_len != 4)
 *                   return -EINVAL;                     answered with that status
 *           memcpy(cmd->response, cmd->payload, 4);
 *           cmd->response_len = 4;
 *           return 0;                                   answered with the response
 *   }
 *   static const struct inlay_task_plugin counter = {
 *           INLAY_TASK_VERSION, "counter", NULL, NULL, NULL, NULL, count, NULL};
 *
 * A handler reads cmd->payload in place: in the receive, or where a payload by key was read to. It
 * returns
 *
 *   0 or a negative errno   answer with that status and cmd->response_len bytes of cmd->response
 *   INLAY_TASK_LATER        it keeps the command and answers later, anywhere in the worker's thread
 *   INLAY_TASK_STALL        not now: offer it again in the next progress; later commands wait
 *
 * Handlers get a connection's commands in the order of submission, and immediate answers leave in
 * that order. When a connection breaks, handlers must still answer the commands that they keep:
 * this sends nothing (-ENOTCONN) and gives them back.
 *
 * Threads: a plugin's functions may answer any command and make links of their own, but must not
 * call inlay_task_worker_* or inlay_task_conn_*.
 */
#ifndef INLAY_TASK_CMD_H
#define INLAY_TASK_CMD_H /* a trial: names may change */

#include <inlay/buf.h>
#include <inlay/task/wire.h>

#define INLAY_TASK_PLUGINS 64u          /* of a worker, at most */
#define INLAY_TASK_CONNECTIONS 4096u    /* of a worker, at most */
#define INLAY_TASK_LATER 1              /* what a handler returns besides 0 and negative errnos */
#define INLAY_TASK_STALL 2

struct inlay_task_worker;

/* A command. All of it is valid until it is answered. */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_cmd {
	const uint8_t *payload;
	uint8_t *response;              /* write the response here; never change the pointer */
	uint32_t payload_len;
	uint32_t response_max;          /* bytes that fit there */
	uint32_t response_len;          /* bytes that the handler has written */
	uint32_t kept;                  /* a handler has it */
	struct inlay_task_ids ids;      /* plugin and destination; the host's context */
	struct inlay_task_conn *conn;
	uint64_t user[4];               /* the handler's; undefined at first */
	struct inlay_buf *pulled;       /* holds a payload by key, else NULL */
	/* The worker's */
	struct inlay_buf *answer;
	struct inlay_task_cmd *next;    /* in its list */
	uint32_t posted;                /* inlay_sq_index after its last post */
	int status;
	struct inlay_task_key payload_key;
	struct inlay_task_key response_key;
	void **state;                   /* the plugin's pointer for this connection, NULL at first */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_cmd, user) == INLAY_CACHE_LINE, "the hot fields fill one line");

/* A plugin's interface. Functions get the pointer from open; all but command may be NULL. */
struct inlay_task_plugin {
	uint32_t version;               /* INLAY_TASK_VERSION */
	const char *name;
	/* When the worker is created. *plugin is the argument unless set. A negative errno fails creation. */
	int (*open)(void *argument, struct inlay_task_worker *worker, void **plugin);
	/* When the worker is destroyed. */
	void (*close)(void *plugin);
	/* For the worker's user: writes what hosts must know. *len: in, bytes at buf; out, written or needed. */
	int (*address)(void *plugin, void *buf, size_t *len);
	/* A connection has come, up 1, or has ended, up 0. *state: as cmd->state. */
	void (*connection)(void *plugin, struct inlay_task_conn *conn, void **state, int up);
	/* The handler. */
	int (*command)(void *plugin, struct inlay_task_cmd *cmd);
	/* Once in each progress of the worker. Returns how much it has done. */
	uint32_t (*progress)(void *plugin);
};

/* A plugin to open */
struct inlay_task_entry {
	uint64_t id;
	const struct inlay_task_plugin *plugin;
	void *argument;                 /* in the worker's own entries: the pointer from open */
};

/* Parameters of a worker and its connections. Start from inlay_task_worker_default. */
struct inlay_task_worker_params {
	struct inlay_connect_attr path;
	const struct inlay_task_entry *plugins; /* copied; the interfaces that they point to must stay */
	uint32_t num_plugins;           /* at most INLAY_TASK_PLUGINS */
	uint32_t connections;           /* at most INLAY_TASK_CONNECTIONS */
	uint32_t credits;               /* receives of a connection; a power of two, at most 32768 */
	uint32_t spare;                 /* further commands, whose answers are being sent; 1 .. 32768 */
	uint32_t message;               /* bytes of the longest command, head included; 64 .. 2^24 */
	uint32_t response;              /* bytes of cmd->response; 32 .. 2^24 */
	uint32_t max_inline;            /* bytes of response copied into a WQE; at most 512 and response */
	struct inlay_pool *pool;        /* for payloads by key; of the PD, started, num >= connections; or NULL */
	struct ibv_comp_channel *channel; /* of the CQ, to sleep on; or NULL */
};

/* A worker; worker.h */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_worker {
	struct inlay_task_conn *dirty;  /* may be read: connections to ring for, or with commands that wait */
	uint32_t num_plugins;           /* open */
	uint32_t num_conns;             /* may be read */
	struct inlay_cq cq __attribute__((aligned(INLAY_CACHE_LINE)));
	uint32_t share;                 /* elements of params.pool that each connection may use */
	uint32_t strays;                /* may be read: completions of no connection */
	struct inlay_task_worker_params params;
	struct inlay_uar uar;
	struct ibv_pd *pd;
	struct ibv_cq *ibcq;
	struct inlay_task_entry plugins[INLAY_TASK_PLUGINS]; /* those that are open */
	struct inlay_task_conn *conns[INLAY_TASK_CONNECTIONS / 4]; /* lists, by QPN */
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_worker, cq) == INLAY_CACHE_LINE, "a poll touches two lines");

/* A list of a connection's commands */
struct inlay_task_fifo_ {
	struct inlay_task_cmd *first;   /* NULL: empty */
	struct inlay_task_cmd *last;
};

/* A connection to a host; worker.h */
struct __attribute__((aligned(INLAY_CACHE_LINE))) inlay_task_conn {
	struct inlay_task_worker *worker;
	struct inlay_task_cmd **ring;   /* the command of each receive */
	struct inlay_task_conn *next;   /* in the worker's list */
	struct inlay_task_conn *next_dirty;
	uint32_t taken;                 /* may be read: commands received */
	uint32_t mask;                  /* credits - 1 */
	uint32_t message;               /* bytes of a receive */
	uint32_t half;                  /* of inlay_task_post_inline_ */
	uint32_t response_max;          /* bytes of response in a command's own memory */
	uint32_t answer_max;            /* bytes of response in an answer; more are written by key */
	uint32_t kept;                  /* commands with handlers */
	uint8_t dirty;
	uint8_t broken;                 /* may be read: destroy it */
	struct inlay_task_fifo_ waiting; /* for earlier commands, or for their payload */
	struct inlay_task_fifo_ answered; /* their answers wait for room in the ring */
	struct inlay_task_fifo_ sending; /* the device may still use their memory */
	struct inlay_task_fifo_ spare;
	struct inlay_task_link link;
	/* Rarely used */
	struct inlay_task_cmd *cmds;    /* num of them: credits and spare */
	uint32_t lkey;
	uint32_t max_inline;
	uint32_t pulls;                 /* elements of the pool in use */
	uint32_t strays;                /* may be read: unexpected completions */
	uint32_t num;
	uint32_t stride;                /* bytes of a command's receive and response */
	void **states;
	struct ibv_mr *mr;
};

INLAY_STATIC_ASSERT(offsetof(struct inlay_task_conn, waiting) == INLAY_CACHE_LINE, "a command touches a line and a half");

/* ---- Data path: what plugins call comes last ---- */

INLAY_FN void inlay_task_fifo_push_(struct inlay_task_fifo_ *f, struct inlay_task_cmd *cmd)
{
	cmd->next = NULL;
	if (f->first)
		f->last->next = cmd;
	else
		f->first = cmd;
	f->last = cmd;
}

INLAY_FN struct inlay_task_cmd *inlay_task_fifo_pop_(struct inlay_task_fifo_ *f)
{
	struct inlay_task_cmd *cmd = f->first;

	if (cmd)
		f->first = cmd->next;
	return cmd;
}

/* Lists the connection for progress, which tends it and rings. */
INLAY_ALWAYS void inlay_task_conn_dirty_(struct inlay_task_conn *c)
{
	if (!c->dirty) {
		c->dirty = 1;
		c->next_dirty = c->worker->dirty;
		c->worker->dirty = c;
	}
}

/* Gives back what the command holds besides its own memory. */
INLAY_FN void inlay_task_cmd_drop_(struct inlay_task_cmd *cmd)
{
	if (cmd->pulled) {
		inlay_buf_dec_refcount(cmd->pulled, NULL);
		cmd->conn->pulls--;
	}
	if (cmd->answer)
		inlay_buf_dec_refcount(cmd->answer, NULL);
	cmd->pulled = cmd->answer = NULL;
}

/* Makes the command spare: free, and without a receive. */
INLAY_FN void inlay_task_cmd_spare_(struct inlay_task_cmd *cmd)
{
	inlay_task_cmd_drop_(cmd);
	inlay_task_fifo_push_(&cmd->conn->spare, cmd);
}

/*
 * Posts the answer that a command holds, from its own memory or its answer buffer; a longer one is
 * written to the host's buffer first. Then posts the next receive: into the command's memory, or
 * into a spare command's while the device gathers from it. Returns 0; -EAGAIN when the ring is full
 * or no command is spare.
 */
INLAY_FN int inlay_task_cmd_post_(struct inlay_task_cmd *cmd)
{
	struct inlay_task_conn *c = cmd->conn;
	struct inlay_sq *sq = &c->link.sq;
	uint32_t len = cmd->response_len, written = len > c->answer_max, num = len != 0;
	uint64_t first = inlay_task_first_(written ? INLAY_TASK_WRITTEN : INLAY_TASK_ANSWER,
					   (uint32_t)-cmd->status, len);
	struct ibv_sge sge[INLAY_TASK_GATHER];
	uint8_t head[INLAY_TASK_HEAD];

	if (INLAY_LIKELY(!cmd->answer && len <= c->max_inline)) {
		if (inlay_task_post_inline_(sq, first, &cmd->ids, cmd->response, len, c->half, 0))
			return -EAGAIN;
		inlay_task_cmd_drop_(cmd);
	} else {
		inlay_task_head_write_(head, first, &cmd->ids);
		sge[0].addr = (uintptr_t)cmd->response;
		sge[0].length = len;
		sge[0].lkey = c->lkey;
		if (cmd->answer)
			num = (uint32_t)inlay_buf_sges(cmd->answer, sge, INLAY_TASK_GATHER);
		/* A write and its answer go together. */
		if (!c->spare.first || (written && (inlay_sq_room(sq) < 1 + (2 + num + 3) / 4 ||
						    inlay_post_write(sq, 0, cmd->response_key.rkey, sge, num, 0))) ||
		    inlay_task_post_sges_(sq, head, INLAY_TASK_HEAD, sge, written ? 0 : num, c->half, INLAY_SIGNALED))
			return -EAGAIN;
		cmd->posted = inlay_sq_index(sq);
		inlay_task_fifo_push_(&c->sending, cmd);
		cmd = inlay_task_fifo_pop_(&c->spare);
	}
	/* At most params.credits receives are posted, so this place is free. */
	c->ring[inlay_rq_index(&c->link.rq) & c->mask] = cmd;
	inlay_rq_recycle(&c->link.rq, (uintptr_t)(cmd->response - c->message));
	inlay_task_conn_dirty_(c);
	return 0;
}

/* Posts or queues the answer. Returns 0; on a broken connection drops it and returns -ENOTCONN. */
INLAY_FN int inlay_task_cmd_finish_(struct inlay_task_cmd *cmd, int status, uint32_t len)
{
	struct inlay_task_conn *c = cmd->conn;

	c->kept -= cmd->kept;
	cmd->kept = 0;
	cmd->status = status <= 0 && status >= -INLAY_TASK_STATUS_MAX ? status : -EIO;
	cmd->response_len = len;
	if (INLAY_UNLIKELY(c->broken)) {
		inlay_task_cmd_spare_(cmd);
		return -ENOTCONN;
	}
	if (INLAY_UNLIKELY(c->answered.first != NULL) || INLAY_UNLIKELY(inlay_task_cmd_post_(cmd))) {
		inlay_task_fifo_push_(&c->answered, cmd);
		inlay_task_conn_dirty_(c);
	}
	return 0;
}

/*
 * Answers a command with a status, 0 or a negative errno, and a copy of len bytes at data. These
 * may be cmd->response, or lie in the payload; they overlap cmd->response only if they start there.
 *
 * Returns 0: the answer leaves in this progress or a later one; -ENOTCONN: none, the connection has
 * ended; -E2BIG when len exceeds cmd->response_max: the command is still the handler's.
 */
INLAY_FN int inlay_task_cmd_answer(struct inlay_task_cmd *cmd, int status, const void *data, uint32_t len)
{
	INLAY_CHECK(cmd->kept, "a command is answered once, by its handler");
	if (INLAY_UNLIKELY(len > cmd->conn->response_max))
		return -E2BIG;
	if (data != cmd->response)
		inlay_copy(cmd->response, data, len);
	return inlay_task_cmd_finish_(cmd, status, len);
}

/*
 * Answers with the data of a buffer or of a list, by its head, registered with the worker's PD. The
 * worker takes a reference. Data longer than an answer is written to the host's response buffer
 * by key. Returns as inlay_task_cmd_answer; -E2BIG when the data fits neither, or has more than
 * INLAY_TASK_GATHER pieces.
 */
INLAY_FN int inlay_task_cmd_answer_buf(struct inlay_task_cmd *cmd, int status, struct inlay_buf *buf)
{
	uint64_t total = inlay_buf_list_bytes(buf);

	INLAY_CHECK(cmd->kept, "a command is answered once, by its handler");
	INLAY_CHECK(inlay_buf_refcount(buf) && inlay_buf_is_first(buf), "a list answers by its head");
	if ((total > cmd->conn->answer_max && total > cmd->response_key.bytes) ||
	    inlay_buf_sges(buf, NULL, INLAY_TASK_GATHER) < 0)
		return -E2BIG;
	(void)inlay_buf_inc_refcount(buf, NULL);
	cmd->answer = buf;
	return inlay_task_cmd_finish_(cmd, status, (uint32_t)total);
}

#endif
