/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/worker.h: a worker: plugins that carry out the commands of many hosts. Set-up and
 * progress; commands are in cmd.h, connections in conn.h.
 *
 *   static const struct inlay_task_entry plugins[] = {{COUNTER, &counter, NULL}};
 *   p = inlay_task_worker_default();
 *   inlay_task_worker_create(&worker, memory, inlay_task_worker_size(&p), pd, &p, plugins, 1);
 *   ... inlay_task_conn_create and _connect for each host ...
 *   for (;;)
 *           inlay_task_worker_progress(&worker, now, 64);
 *
 * All connections complete to the worker's one CQ and ring its one register. Each breaks alone: by
 * its host's death, by a key that it had no right to, by a send that nobody takes. With
 * params.period a zero-byte write asks each host whether it is there.
 *
 * Sleeping: as host.h, with inlay_task_worker_arm, _fd, _due and _event.
 *
 * Threads: a worker, its connections and commands have one owner at a time.
 * Sources: DOCA's documentation of doca_urom and doca_urom_plugin.
 */
#ifndef INLAY_TASK_WORKER_H
#define INLAY_TASK_WORKER_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <inlay/base.h>
#include <inlay/cqe.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>
#include <inlay/task/cmd.h>
#include <inlay/task/conn.h>
#include <inlay/task/wire.h>

/* ------------------------------------------------------------------------------------------------
 * Set-up
 */

/*
 * 16 connections of 32 credits, 16 plugins, messages of 4096 bytes, 96 bytes inline, no payload by
 * key, no events, hosts asked every second.
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

/* Bytes of the table of connections by number, at most half full. */
INLAY_COLD uint64_t inlay_task_worker_named_(const struct inlay_task_worker_params *p)
{
	return sizeof(struct inlay_task_named_) << (inlay_log2_ceil(p->connections) + 1);
}

/* Bytes of memory for such a worker, without its connections; 0 when there cannot be one. */
INLAY_COLD size_t inlay_task_worker_size(const struct inlay_task_worker_params *p)
{
	if (!inlay_task_worker_valid_(p))
		return 0;
	return (size_t)(inlay_round_up(inlay_task_worker_named_(p), INLAY_CACHE_LINE) +
			inlay_round_up(p->plugins * sizeof(struct inlay_task_opened), INLAY_CACHE_LINE) +
			inlay_round_up(p->connections * sizeof(void *), INLAY_CACHE_LINE));
}

/* Closes the plugins, the last one first. */
INLAY_COLD void inlay_task_worker_close_(struct inlay_task_worker *w)
{
	w->inside++;
	w->recent = NULL;
	while (w->num_plugins) {
		struct inlay_task_opened *s = &w->plugins[--w->num_plugins];

		if (s->plugin->close)
			s->plugin->close(s->state);
	}
	w->inside--;
}

/* Opens a plugin. Returns as inlay_task_worker_create. */
INLAY_COLD int inlay_task_worker_open_(struct inlay_task_worker *w, const struct inlay_task_entry *e)
{
	struct inlay_task_opened *s = &w->plugins[w->num_plugins];
	int err;

	if (!e->plugin || e->plugin->version != INLAY_PLUGIN_VERSION || e->plugin->layout != INLAY_PLUGIN_LAYOUT)
		return -EPROTO;
	if (!e->plugin->command)
		return -EINVAL;
	if (inlay_task_worker_plugin_(w, e->id))
		return -EEXIST;
	if (w->num_plugins == w->params.plugins)
		return -ENOSPC;
	s->id = e->id;
	s->plugin = e->plugin;
	s->state = e->argument;
	err = e->plugin->open ? e->plugin->open(e->argument, w, &s->state) : 0;
	w->num_plugins += !err;
	return err;
}

/*
 * Makes a worker of everything but verbs objects, and opens its plugins: for
 * inlay_task_worker_create, and for queues of another making. w->cq is in place; the rest of *w is
 * zeroed but for pd.
 */
INLAY_COLD int inlay_task_worker_init_(struct inlay_task_worker *w, void *memory,
				       const struct inlay_task_worker_params *p,
				       const struct inlay_task_entry *entries, uint32_t num)
{
	uint8_t *at = (uint8_t *)memory;
	uint32_t i;
	int err = 0;

	__builtin_memset(memory, 0, inlay_task_worker_size(p));
	w->params = *p;
	w->named = (struct inlay_task_named_ *)(void *)at;
	w->named_mask = (1u << (inlay_log2_ceil(p->connections) + 1)) - 1;
	at += inlay_round_up(inlay_task_worker_named_(p), INLAY_CACHE_LINE);
	w->plugins = (struct inlay_task_opened *)(void *)at;
	at += inlay_round_up(p->plugins * sizeof(struct inlay_task_opened), INLAY_CACHE_LINE);
	w->conns = (struct inlay_task_conn **)(void *)at;
	w->due = p->period ? 0 : UINT64_MAX;
	w->share = p->pull ? inlay_inventory_num_elements(&p->pull->inventory) / p->connections : 0;
	w->inside++;
	for (i = 0; i < num && !err; i++)
		err = inlay_task_worker_open_(w, &entries[i]);
	w->inside--;
	if (err)
		inlay_task_worker_close_(w);
	return err;
}

/*
 * Closes the plugins and frees what inlay_task_worker_create made; memory is the caller's again.
 * Returns 0; -EBUSY while it has connections, or a verbs object is in use: it may be called again.
 */
INLAY_COLD int inlay_task_worker_destroy(struct inlay_task_worker *w)
{
	if (w->num_conns)
		return -EBUSY;
	inlay_task_worker_close_(w);
	if (w->uar.td && inlay_uar_destroy(&w->uar, NULL))
		return -EBUSY;
	return inlay_task_cq_free_(&w->ibcq, &w->channel);
}

/* inlay_task_worker_create, which cleans up. */
INLAY_COLD int inlay_task_worker_make_(struct inlay_task_worker *w, void *memory,
				       const struct inlay_task_worker_params *p,
				       const struct inlay_task_entry *entries, uint32_t num)
{
	/* Rings may turn out longer than asked for; each connection reserves what it needs. */
	uint64_t cqes = p->connections * (5ull * inlay_task_conn_wqebbs_(p) + p->credits);
	struct ibv_device_attr device;
	int err = -ibv_query_device(w->pd->context, &device);

	if (err)
		return err;
	if (cqes > (uint32_t)device.max_cqe)
		cqes = (uint32_t)device.max_cqe;
	err = inlay_task_cq_make_(&w->cq, &w->ibcq, &w->channel, w->pd->context, cqes, p->events);
	if (!err)
		err = inlay_uar_create(&w->uar, w->pd, INLAY_UAR_SERIAL, NULL);
	if (err && err != -ENOTSUP) /* without registers of one's own each QP has its own */
		return err;
	return inlay_task_worker_init_(w, memory, p, entries, num);
}

/*
 * Makes a worker: its CQ and doorbell register; and opens its plugins, in their order.
 *
 * w        aligned to a cache line
 * memory   for its tables, aligned to a cache line; the worker's until it is destroyed
 * size     bytes, at least inlay_task_worker_size(p)
 * entries  num plugins; copied. Their interfaces are not, and must outlive the worker
 *
 * Returns 0; -EINVAL for an argument out of its range or a plugin without handler; -ENOBUFS when
 * size is too small; -ENOSPC for more plugins than p->plugins; -EPROTO for a plugin of another
 * version or layout; -EEXIST for two of one id; what a plugin's open returned; else the negative
 * errno of the verbs call that failed. On failure nothing is left behind.
 */
INLAY_COLD int inlay_task_worker_create(struct inlay_task_worker *w, void *memory, size_t size, struct ibv_pd *pd,
					const struct inlay_task_worker_params *p,
					const struct inlay_task_entry *entries,
					uint32_t num)
{
	int err;

	if (!w || (uintptr_t)w % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !pd ||
	    !inlay_task_worker_valid_(p) || (num && !entries))
		return -EINVAL;
	if (size < inlay_task_worker_size(p))
		return -ENOBUFS;
	__builtin_memset(w, 0, sizeof(*w));
	w->pd = pd;
	err = inlay_task_worker_make_(w, memory, p, entries, num);
	if (err)
		inlay_task_worker_destroy(w);
	return err;
}

/*
 * What hosts must know of a plugin, as its `address` tells. *len: bytes of room at buf, then bytes
 * used. Returns 0; -ENOENT for no such plugin; -ENOTSUP when it has none; -ENOBUFS, with *len, when
 * buf is too small.
 */
INLAY_COLD int inlay_task_worker_plugin_address(struct inlay_task_worker *w, uint64_t id, void *buf, size_t *len)
{
	const struct inlay_task_opened *s = inlay_task_worker_plugin_(w, id);

	if (!s)
		return -ENOENT;
	return s->plugin->address ? s->plugin->address(s->state, buf, len) : -ENOTSUP;
}

/* ------------------------------------------------------------------------------------------------
 * Data path: progress
 */

/* Asks each host whether it is there. */
INLAY_COLD void inlay_task_worker_probe_(struct inlay_task_worker *w, uint64_t now)
{
	uint32_t i;

	w->probe_at = now + w->params.period < now ? UINT64_MAX : now + w->params.period;
	for (i = 0; i < w->num_conns; i++) {
		struct inlay_task_conn *c = w->conns[i];

		if (!c->connected || c->broken || c->probing || inlay_post_write(&c->link.sq, 0, 0, NULL, 0,
										 INLAY_SIGNALED))
			continue;
		c->probing = 1;
		c->probe_end = inlay_sq_index(&c->link.sq);
		inlay_task_conn_dirty_(c);
	}
}

/* All that is not a completion. Returns how many handlers were called. */
INLAY_COLD uint32_t inlay_task_worker_tend_(struct inlay_task_worker *w, uint64_t now, uint32_t max)
{
	uint32_t n = 0, i;

	if (w->params.period && now >= w->probe_at)
		inlay_task_worker_probe_(w, now);
	w->due = w->params.period ? w->probe_at : UINT64_MAX;
	for (i = 0; i < w->num_conns && n < max; i++) {
		struct inlay_task_conn *c = w->conns[(w->turn + i) % w->num_conns];

		if (c->tended)
			n += inlay_task_conn_tend_(c, max - n);
	}
	/* Those that had no turn come first in the next. */
	if (i < w->num_conns) {
		w->turn = (w->turn + i) % w->num_conns;
		w->due = 0;
	}
	return n;
}

/* The connection that a completion belongs to, or NULL. */
INLAY_ALWAYS struct inlay_task_conn *inlay_task_worker_conn_(const struct inlay_task_worker *w, uint32_t qpn)
{
	uint32_t i = qpn & w->named_mask;

	while (w->named[i].conn && INLAY_UNLIKELY(w->named[i].qpn != qpn))
		i = (i + 1) & w->named_mask;
	return w->named[i].conn;
}

/*
 * Handles completions: hands commands to their plugins, sends what is answered, and gives plugins
 * their turn.
 *
 * now  the time in the unit of params.period, never less than before; 0 without probes
 * max  completions, and handlers, handled at most
 *
 * Returns how many commands were handed out, plus what the plugins' progress returned. Called from
 * a plugin's function it does nothing and returns 0.
 */
INLAY_FN uint32_t inlay_task_worker_progress(struct inlay_task_worker *w, uint64_t now, uint32_t max)
{
	const struct mlx5_cqe64 *cqe;
	struct inlay_task_conn *c;
	uint32_t done = 0, n, bytes;

	if (INLAY_UNLIKELY(w->inside))
		return 0;
	w->inside = 1;
	if (INLAY_UNLIKELY(now >= w->due))
		done = inlay_task_worker_tend_(w, now, max);
	for (n = 0; n < max && done < max && (cqe = inlay_cq_peek(&w->cq)); n++) {
		c = inlay_task_worker_conn_(w, inlay_cqe_qpn(cqe));
		if (INLAY_UNLIKELY(!c)) {
			w->strays++;
			inlay_cq_advance(&w->cq, 1);
		} else if (INLAY_LIKELY(cqe->op_own >> 2 == MLX5_CQE_RESP_SEND << 2)) {
			bytes = inlay_cqe_byte_count(cqe);
			inlay_cq_advance(&w->cq, 1);
			done += inlay_task_conn_take_(c, bytes);
		} else {
			inlay_task_conn_other_(c, cqe);
		}
	}
	for (n = 0; n < w->num_plugins; n++)
		if (w->plugins[n].plugin->progress)
			done += w->plugins[n].plugin->progress(w->plugins[n].state);
	if (w->dirty)
		inlay_task_worker_flush(w);
	w->inside = 0;
	return done;
}

/* ------------------------------------------------------------------------------------------------
 * Sleeping
 */

/* The descriptor to sleep on; -1 without params.events. */
INLAY_COLD int inlay_task_worker_fd(const struct inlay_task_worker *w)
{
	return w->channel ? w->channel->fd : -1;
}

/* As inlay_task_host_due. */
INLAY_FN uint64_t inlay_task_worker_due(const struct inlay_task_worker *w)
{
	return w->due;
}

/* As inlay_task_host_event. */
INLAY_COLD int inlay_task_worker_event(struct inlay_task_worker *w)
{
	return inlay_task_event_(w->channel, &w->cq);
}

/* As inlay_task_host_arm. Does not know what a plugin's progress has to do. */
INLAY_FN int inlay_task_worker_arm(struct inlay_task_worker *w)
{
	return inlay_task_arm_(w->channel, &w->cq, !w->due || w->dirty);
}

#endif
