/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/worker.h: a worker: executes the commands of many hosts, by plugins. Set-up and
 * progress; commands are in cmd.h, connections in conn.h.
 *
 *   static const struct inlay_task_entry plugins[] = {{COUNTER, &counter, NULL}};
 *   p = inlay_task_worker_default();
 *   p.plugins = plugins;
 *   p.num_plugins = 1;
 *   inlay_task_worker_create(&worker, memory, inlay_task_worker_size(&p), pd, &p, &why);
 *   ... inlay_task_conn_create and _connect for each host ...
 *   for (;;)
 *           inlay_task_worker_progress(&worker, 64);
 *
 * All connections share the worker's CQ and doorbell register. Each breaks alone: when its host
 * dies, when a key is invalid, or when the host has no receive for an answer. A silent host that
 * has died is noticed by inlay_task_link_probe(&conn.link).
 *
 * To sleep: as host.h, with worker.cq, when progress has returned 0 and worker.dirty is NULL.
 *
 * Threads: a worker, its connections and commands have one owner at a time.
 * Sources: DOCA's documentation of doca_urom and doca_urom_plugin.
 */
#ifndef INLAY_TASK_WORKER_H
#define INLAY_TASK_WORKER_H

#include <inlay/task/conn.h>

/* ---- Set-up ---- */

/* No plugins, 16 connections of 32 credits, messages of 4096 bytes, 96 inline. */
INLAY_COLD struct inlay_task_worker_params inlay_task_worker_default(void)
{
	struct inlay_task_worker_params p;

	__builtin_memset(&p, 0, sizeof(p));
	p.path = inlay_task_path_default();
	p.connections = 16;
	p.credits = 32;
	p.spare = 32;
	p.message = 4096;
	p.response = 4096 - INLAY_TASK_HEAD;
	p.max_inline = 96;
	return p;
}

/* Lays a worker's tables out from `at` on, at most half of `named` in use. Returns the end. */
INLAY_COLD uintptr_t inlay_task_worker_place_(struct inlay_task_worker *w, const struct inlay_task_worker_params *p,
					      uintptr_t at)
{
	w->named_mask = (1u << (inlay_log2_ceil(p->connections) + 1)) - 1;
	w->named = (struct inlay_task_conn **)inlay_task_place_(&at, ((uint64_t)w->named_mask + 1) * sizeof(void *));
	w->plugins = (struct inlay_task_entry *)inlay_task_place_(&at, p->num_plugins * sizeof(*w->plugins));
	w->conns = (struct inlay_task_conn **)inlay_task_place_(&at, p->connections * sizeof(void *));
	return at;
}

/* Bytes of memory for such a worker, without connections; 0 if a parameter is out of range. */
INLAY_COLD size_t inlay_task_worker_size(const struct inlay_task_worker_params *p)
{
	struct inlay_task_worker w;

	return inlay_task_worker_valid_(p) ? (size_t)inlay_task_worker_place_(&w, p, 0) : 0;
}

INLAY_COLD void inlay_task_worker_close_(struct inlay_task_worker *w)
{
	w->inside++;
	while (w->num_plugins) {
		const struct inlay_task_entry *e = &w->plugins[--w->num_plugins];

		if (e->plugin->close)
			e->plugin->close(e->argument);
	}
	w->inside--;
}

INLAY_COLD int inlay_task_worker_open_(struct inlay_task_worker *w, const struct inlay_task_entry *e, const char **why)
{
	struct inlay_task_entry *own = &w->plugins[w->num_plugins];
	int err;

	if (!e->plugin || e->plugin->version != INLAY_TASK_VERSION)
		return inlay_refuse_(-EPROTO, why, "a plugin is of another version");
	if (!e->plugin->command)
		return inlay_refuse_(-EINVAL, why, "a plugin has no handler");
	if (inlay_task_worker_plugin_(w, e->id))
		return inlay_refuse_(-EEXIST, why, "two plugins have one id");
	*own = *e;
	err = e->plugin->open ? e->plugin->open(e->argument, w, &own->argument) : 0;
	w->num_plugins += !err;
	return err ? inlay_refuse_(err, why, "a plugin cannot be opened") : 0;
}

/* Makes all of a worker but verbs objects, and opens its plugins. */
INLAY_COLD int inlay_task_worker_init_(struct inlay_task_worker *w, void *memory,
				       const struct inlay_task_worker_params *p, const char **why)
{
	uint32_t i;
	int err = 0;

	__builtin_memset(memory, 0, inlay_task_worker_size(p));
	inlay_task_worker_place_(w, p, (uintptr_t)memory);
	w->params = *p;
	w->inside++;
	for (i = 0; i < p->num_plugins && !err; i++)
		err = inlay_task_worker_open_(w, &p->plugins[i], why);
	w->inside--;
	if (err)
		inlay_task_worker_close_(w);
	return err;
}

/*
 * Closes the plugins and frees all that inlay_task_worker_create made. Returns 0; -EBUSY while the
 * worker has connections, or a verbs object is in use: call it again.
 */
INLAY_COLD int inlay_task_worker_destroy(struct inlay_task_worker *w)
{
	if (w->num_conns)
		return -EBUSY;
	inlay_task_worker_close_(w);
	if (w->uar.td && inlay_uar_destroy(&w->uar, NULL))
		return -EBUSY;
	return inlay_task_cq_free_(&w->ibcq);
}

/*
 * Makes a worker with its CQ and doorbell register, and opens its plugins in order.
 *
 * w       aligned to a cache line
 * memory  for its tables, aligned to a cache line; the worker's until it is destroyed
 * size    bytes, at least inlay_task_worker_size(p)
 *
 * Returns as inlay_task_host_create; for plugins, -EINVAL without handler, -EPROTO for another
 * version, -EEXIST for two with one id, and the error of `open`.
 */
INLAY_COLD int inlay_task_worker_create(struct inlay_task_worker *w, void *memory, size_t size, struct ibv_pd *pd,
					const struct inlay_task_worker_params *p, const char **why)
{
	struct ibv_device_attr device;
	uint64_t cqes;
	int err;

	if (!w || (uintptr_t)w % INLAY_CACHE_LINE || !memory || (uintptr_t)memory % INLAY_CACHE_LINE || !pd ||
	    !inlay_task_worker_valid_(p))
		return inlay_refuse_(-EINVAL, why, "a worker's argument or parameter is out of its range");
	if (size < inlay_task_worker_size(p))
		return inlay_refuse_(-ENOBUFS, why, "less memory than inlay_task_worker_size");
	err = -ibv_query_device(pd->context, &device);
	if (err)
		return inlay_refuse_(err, why, "ibv_query_device failed");
	__builtin_memset(w, 0, sizeof(*w));
	w->pd = pd;
	/* The device may round rings up; each connection reserves what it needs. */
	cqes = p->connections * (5ull * inlay_task_conn_wqebbs_(p) + p->credits);
	if (cqes > (uint32_t)device.max_cqe)
		cqes = (uint32_t)device.max_cqe;
	err = inlay_task_cq_make_(&w->cq, &w->ibcq, p->channel, pd, cqes, why);
	if (!err) {
		err = inlay_uar_create(&w->uar, pd, INLAY_UAR_SERIAL, why);
		if (!err || err == -ENOTSUP) /* then each QP uses its own register */
			err = inlay_task_worker_init_(w, memory, p, why);
	}
	if (err)
		inlay_task_worker_destroy(w);
	return err;
}

/* ---- Data path ---- */

/* The connection that a completion belongs to, or NULL. */
INLAY_ALWAYS struct inlay_task_conn *inlay_task_worker_conn_(const struct inlay_task_worker *w, uint32_t qpn)
{
	uint32_t i = qpn & w->named_mask;

	while (w->named[i] && INLAY_UNLIKELY(inlay_sq_qpn(&w->named[i]->link.sq) != qpn))
		i = (i + 1) & w->named_mask;
	return w->named[i];
}

/*
 * Handles completions, hands commands to their plugins, sends answers, and calls the plugins'
 * `progress`.
 *
 * max  most completions to handle; commands that have waited come on top
 *
 * Returns how many handlers were called, plus what the plugins' `progress` returned. Within a
 * plugin's function it does nothing and returns 0.
 */
INLAY_FN uint32_t inlay_task_worker_progress(struct inlay_task_worker *w, uint32_t max)
{
	const struct mlx5_cqe64 *cqe;
	struct inlay_task_conn *c;
	uint32_t done = 0, i, bytes;

	if (INLAY_UNLIKELY(w->inside))
		return 0;
	w->inside = 1;
	for (; max && (cqe = inlay_cq_peek(&w->cq)); max--) {
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
	for (i = 0; i < w->num_plugins; i++)
		if (w->plugins[i].plugin->progress)
			done += w->plugins[i].plugin->progress(w->plugins[i].argument);
	for (c = w->dirty; c; c = c->next_dirty)
		if (INLAY_UNLIKELY(c->answered.first != NULL) || INLAY_UNLIKELY(c->waiting.first != NULL))
			done += inlay_task_conn_tend_(c);
	inlay_task_worker_flush_(w);
	w->inside = 0;
	return done;
}

#endif
