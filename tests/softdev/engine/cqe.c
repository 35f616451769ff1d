/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cqe.c: CQEs and completion events.
 *
 * The device writes the body of a CQE first. After a release barrier it writes the last byte, which
 * holds the owner bit. A CQ overruns when the consumer index in its record says that all slots are
 * in use. The CQ is then dead, and so are its QPs.
 *
 * A program arms a CQ with two stores: the record says what is wanted, the register says that it
 * was asked for. The engine reads the record only after the register was written, so a program that
 * skips the register gets no event. An armed CQ reports the first CQE at or after the consumer
 * index of the arm which no event has reported yet; at once, if that CQE is already there. The
 * index keeps a CQE between the last poll and the arm from being lost. The adapter's
 * last_notified_index keeps a program that arms before it polls, as perftest does, from two events
 * for one CQE.
 *
 * A CQ with compression keeps CQEs back until it is known whether they make a block, see zip.c.
 *
 * When a CQ is resized, the old ring gets a CQE that says so. All later CQEs go to the new ring,
 * from the next index on. libmlx5 copies the earlier ones one place further, so that its indices
 * match ours.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "eng.h"

struct held {
	struct sd_cq *cq;
	const void *of;
	bool has64, event;
	uint8_t data64[64];
	struct mlx5_cqe64 c;
};

struct cqs {
	bool armed, solicited;
	uint32_t ci;                    /* 24 bits: what the program had consumed when it armed */
	uint32_t event_pi;              /* pi after the last CQE that a solicited-only arm waits for */
	uint32_t notified;              /* pi at the last event */
	struct zip *zip;                /* compression; NULL: none */
	/* indices that no slot of the ring has: the record counts them at the next poll */
	uint32_t resizes, resize_ci;
	struct held *held;
	size_t n, cap;
};

/*
 * CQEs of one batch of frames from another process, not written before the answers are on their
 * way: a program that has seen its message may end at once, and a NIC would still have acknowledged
 * it.
 */
static SD_OWN struct held *late;
static SD_OWN size_t nlate, late_cap;
static SD_OWN bool deferring;

static struct cqs *cqs_get(struct sd_cq *cq)
{
	struct cqs *s = cq->eng;

	if (!s) {
		s = cq->eng = calloc(1, sizeof(*s));
		if (s && cq->compression)
			s->zip = zip_new(cq);
	}
	return s;
}

struct zip *cqe_zip(struct sd_cq *cq)
{
	struct cqs *s = cq->eng;

	return s ? s->zip : NULL;
}

/*
 * Slots that hold what the program has not consumed. A consumer ahead of the producer makes no
 * sense, but it does no harm either
 */
static uint32_t used(struct sd_cq *cq)
{
	uint32_t ci = be32toh(__atomic_load_n(&cq->dbrec[0], __ATOMIC_ACQUIRE)), n = (cq->pi - ci) & 0xffffff;
	struct cqs *s = cq->eng;

	if (s && s->resizes && ci != s->resize_ci)
		s->resizes = 0;
	if (s)
		n -= s->resizes;
	if (s && s->zip)
		n += zip_held(s->zip);
	return n < 0x800000 ? n : 0;
}

static bool overruns(struct sd_cq *cq, uint32_t n)
{
	return !cq->ignore_overrun && used(cq) + n > cq->cqe_cnt;
}

static inline uint64_t *slot_of(struct sd_cq *cq, uint32_t pi)
{
	uint32_t i = cq->collapsed ? 0 : pi & (cq->cqe_cnt - 1);

	return (uint64_t *)(void *)(cq->buf + (size_t)i * cq->cqe_size + cq->cqe_size - 64);
}

/*
 * Stores of their own rather than memcpy(): nothing in between may be reordered past the owner
 * byte, or be seen by a sanitizer
 */
static inline void slot_write(uint64_t *slot, const uint64_t *c, uint8_t op_own, bool collapsed)
{
	uint32_t half;
	uint16_t counter;
	int i;

	memcpy(&half, (const uint8_t *)c + 56, 4);
	memcpy(&counter, (const uint8_t *)c + 60, 2);
	for (i = 0; i < 7; i++)
		__atomic_store_n(slot + i, c[i], __ATOMIC_RELAXED);
	__atomic_store_n((uint32_t *)(void *)((uint8_t *)slot + 56), half, __ATOMIC_RELAXED);
	if (collapsed) {
		/* Nobody owns this slot: a counter and an opcode that are read together belong together */
		memcpy(&half, (const uint8_t *)c + 60, 4);
		__atomic_store_n((uint32_t *)(void *)((uint8_t *)slot + 60), (half & 0xffffff) | (uint32_t)op_own << 24, __ATOMIC_RELEASE);
		return;
	}
	__atomic_store_n((uint16_t *)(void *)((uint8_t *)slot + 60), counter, __ATOMIC_RELAXED);
	__atomic_store_n((uint8_t *)slot + 62, ((const uint8_t *)c)[62], __ATOMIC_RELAXED);
	__atomic_store_n((uint8_t *)slot + 63, op_own, __ATOMIC_RELEASE);
}

/* Into the next slot. The byte that tells whose the slot is comes last: the lap's number, of the enhanced layout */
void cqe_write(struct sd_cq *cq, uint32_t pi, const void *cqe, uint8_t op_own)
{
	uint64_t *slot = slot_of(cq, pi), body[8];

	memcpy(body, cqe, 64);
	if (cq->compression != SD_ENHANCED) {
		slot_write(slot, body, (op_own & ~1u) | !!(pi & cq->cqe_cnt), cq->collapsed);
		return;
	}
	((uint8_t *)body)[62] = (uint8_t)(pi / cq->cqe_cnt - 1);
	slot_write(slot, body, op_own, false);
	__atomic_store_n((uint8_t *)slot + 62, (uint8_t)(pi / cq->cqe_cnt), __ATOMIC_RELEASE);
}

void *cqe_slot(struct sd_cq *cq, uint32_t pi)
{
	return slot_of(cq, pi);
}

static void arm_check(struct sd_cq *cq, struct cqs *s)
{
	uint32_t newest = s->solicited ? s->event_pi : cq->pi;
	uint32_t behind = (cq->pi - s->ci) & 0xffffff;

	if (!s->armed || behind >= 0x800000 || (int32_t)(newest - (cq->pi - behind)) <= 0 || (int32_t)(newest - s->notified) <= 0)
		return;
	s->armed = false;
	s->notified = cq->pi;
	sd_up.cq_event(cq);
}

/* The register names one CQ: there, asking for the same once more counts as well */
static void arm_record(struct sd_cq *cq, bool named)
{
	uint32_t v = be32toh(__atomic_load_n(&cq->dbrec[1], __ATOMIC_ACQUIRE));
	struct cqs *s = cqs_get(cq);

	if (!s || (v == cq->arm_seen && (!named || v == 0xffffffff)))
		return;
	cq->arm_seen = v;
	/* An arm for any completion stays one for any, even if the program then asks for solicited ones */
	s->solicited = v >> 24 & 1 && (!s->armed || s->solicited);
	s->armed = true;
	s->ci = v & 0xffffff;
	arm_check(cq, s);
}

void cqe_arm(struct sd_uar *uar, uint64_t value)
{
	uint32_t named = be64toh(value) & 0xffffff;
	struct sd_cq *cq;

	/* CQs share the register: unless each write is caught, the value names only the last that was armed */
	for (cq = sd_cq_next(NULL); cq; cq = sd_cq_next(cq))
		if (cq->uar == uar && (cq->channel || cq->subscribed) && !cq->overrun && (cq->cqn == named || !eng_is_trap))
			arm_record(cq, cq->cqn == named);
}

void cqe_arms(struct sd_uar *uar)
{
	uint64_t *reg = (uint64_t *)(void *)(uar->page + 0x20), v;

	if (!__atomic_load_n(reg, __ATOMIC_RELAXED))
		return;
	v = __atomic_exchange_n(reg, 0, __ATOMIC_ACQ_REL);
	if (v)
		cqe_arm(uar, v);
}

/* n more CQEs are in the ring; event: of the last one */
void cqe_written(struct sd_cq *cq, uint32_t n, bool event)
{
	struct cqs *s = cqs_get(cq);

	cq->pi += n;
	if (s) {
		if (event)
			s->event_pi = cq->pi;
		if (s->armed)
			arm_check(cq, s);
	}
}

static void deliver(struct sd_cq *cq, const struct mlx5_cqe64 *c, const uint8_t *data64, bool event)
{
	struct cqs *s = cqs_get(cq);
	uint64_t *slot, body[8];
	int i;

	if (cq->overrun)
		return;
	if (overruns(cq, 1)) {
		cq->overrun = true;
		eng_cq_died = true;
		sd_up.async_cq(cq, IBV_EVENT_CQ_ERR);
		return;
	}
	if (s && s->zip && zip_take(s->zip, c, event))
		return;
	slot = slot_of(cq, cq->pi);
	if (cq->cqe_size == 128 && (data64 || cq->padded)) {
		memset(body, 0, 64);
		if (data64)
			memcpy(body, data64, 64);
		for (i = 0; i < 8; i++)
			__atomic_store_n(slot - 8 + i, body[i], __ATOMIC_RELAXED);
	}
	cqe_write(cq, cq->pi, c, c->op_own);
	cqe_written(cq, 1, event);
}

static void keep(struct held **list, size_t *n, size_t *cap, const struct held *h)
{
	if (*n == *cap) {
		size_t more = *cap ? 2 * *cap : 16;
		struct held *l = realloc(*list, more * sizeof *l);

		if (!l)
			return;
		*list = l;
		*cap = more;
	}
	(*list)[(*n)++] = *h;
}

void cqe_put(struct sd_cq *cq, const void *of, const struct mlx5_cqe64 *c, const uint8_t *data64, bool event)
{
	struct held h = { .cq = cq, .of = of, .c = *c, .event = event, .has64 = data64 };
	struct cqs *s = cqs_get(cq);

	if ((!eng_is_stepped || eng_is_trap) && !deferring) {
		deliver(cq, c, data64, event);
		return;
	}
	if (data64)
		memcpy(h.data64, data64, 64);
	if (deferring)
		keep(&late, &nlate, &late_cap, &h);
	else if (s)
		keep(&s->held, &s->n, &s->cap, &h);
}

void cqe_defer(bool on)
{
	size_t i;

	deferring = on;
	if (on)
		return;
	for (i = 0; i < nlate; i++)
		deliver(late[i].cq, &late[i].c, late[i].has64 ? late[i].data64 : NULL, late[i].event);
	nlate = 0;
}

void cqe_error(struct sd_cq *cq, struct rcq *q, bool responder, uint8_t opcode, uint16_t idx, uint8_t synd, uint8_t vendor)
{
	struct mlx5_cqe64 c;
	struct mlx5_err_cqe e;

	memset(&e, 0, sizeof e);
	e.srqn = htobe32(q->qp->uidx);
	e.vendor_err_synd = vendor;
	e.syndrome = synd;
	e.s_wqe_opcode_qpn = htobe32((uint32_t)opcode << 24 | q->qp->qpn);
	e.wqe_counter = htobe16(idx);
	e.op_own = (responder ? MLX5_CQE_RESP_ERR : MLX5_CQE_REQ_ERR) << 4;
	_Static_assert(sizeof e == 64 && sizeof c == 64, "a CQE");
	memcpy(&c, &e, sizeof c);
	cqe_put(cq, q, &c, NULL, true);
}

int cqe_release(struct sd_cq *cq, unsigned n)
{
	struct cqs *s = cqs_get(cq);
	unsigned i;

	if (!s)
		return 0;
	for (i = 0; i < n && i < s->n; i++)
		deliver(cq, &s->held[i].c, s->held[i].has64 ? s->held[i].data64 : NULL, s->held[i].event);
	s->n -= i;
	if (i)
		memmove(s->held, s->held + i, s->n * sizeof *s->held);
	zip_flush(s->zip);
	return i;
}

/*
 * A QP that is gone or reset: libmlx5 takes its CQEs out of the ring, and could not place one that
 * comes later
 */
void cqe_purge(struct sd_cq *cq, const void *of)
{
	struct cqs *s = cq->eng;
	size_t i, k = 0;

	if (!s)
		return;
	for (i = 0; i < s->n; i++)
		if (s->held[i].of != of)
			s->held[k++] = s->held[i];
	s->n = k;
}

int sd_engine_cq_resize(struct sd_cq *cq, uint8_t *buf, uint32_t cqe_cnt, uint32_t cqe_size)
{
	struct cqs *s = cqs_get(cq);
	uint64_t body[8] = { 0 };
	uint32_t n;

	if (!s)
		return ENOMEM;
	eng_settle();
	zip_flush(s->zip);
	n = used(cq);
	/* The CQE size is part of what the program's QPs were made for */
	if (cqe_size != cq->cqe_size || !cqe_cnt || cqe_cnt & (cqe_cnt - 1) || cq->overrun)
		return EINVAL;
	/* The old ring needs room for one more CQE, the new one for those in the old. A CQ that ignores overrun keeps no record */
	if (!cq->ignore_overrun && (n + 1 > cq->cqe_cnt || n > cqe_cnt))
		return EINVAL;
	cqe_arms(cq->uar);
	slot_write(slot_of(cq, cq->pi), body, MLX5_CQE_RESIZE_CQ << 4 | !!(cq->pi & cq->cqe_cnt), false);
	cq->pi++;
	s->resizes++;
	s->resize_ci = be32toh(__atomic_load_n(&cq->dbrec[0], __ATOMIC_ACQUIRE));
	cq->buf = buf;
	cq->cqe_cnt = cqe_cnt;
	/* What waits in the old ring moves on by one, and with it all that counts in indices */
	s->ci = (s->ci + 1) & 0xffffff;
	s->event_pi++;
	s->notified++;
	return 0;
}

void sd_engine_cq_look(struct sd_cq *cq, struct sd_cq_look *l)
{
	struct cqs *s = cq->eng;

	cqe_arms(cq->uar);
	*l = (struct sd_cq_look){ .producer = cq->pi & 0xffffff };
	if (!cq->ignore_overrun)
		l->consumer = be32toh(__atomic_load_n(&cq->dbrec[0], __ATOMIC_ACQUIRE)) & 0xffffff;
	if (s) {
		l->armed = s->armed;
		l->solicited = s->armed && s->solicited;
		l->notified = s->notified & 0xffffff;
		l->solicit = s->event_pi & 0xffffff;
	}
}

void sd_engine_cq_destroyed(struct sd_cq *cq)
{
	struct cqs *s = cq->eng;

	cq->eng = NULL;
	if (s) {
		zip_free(s->zip);
		free(s->held);
	}
	free(s);
}

/* ---- softdev.h; defined without it, since its declarations are weak ---- */
__attribute__((visibility("default")))
int softdev_inject_cqes(uint32_t cqn, const void *cqe64, unsigned n, uint16_t step)
{
	uint64_t c[8];
	struct sd_cq *cq;
	uint16_t counter;
	uint8_t op_own, op;
	unsigned i;
	int ret = n;

	memcpy(c, cqe64, 64);
	op_own = ((uint8_t *)c)[63] & ~1u;
	op = op_own >> 4;
	memcpy(&counter, (uint8_t *)c + 60, 2);
	pthread_mutex_lock(&sd_lock);
	cq = sd_cq_find(cqn);
	if (!cq) {
		ret = -ENOENT;
	} else if (cq->overrun || n > SD_MAX_CQE || overruns(cq, n)) {
		ret = -ENOSPC;
	} else {
		struct cqs *s = cq->eng;

		for (i = 0; i < n; i++) {
			slot_write(slot_of(cq, cq->pi), c, op_own | !!(cq->pi & cq->cqe_cnt), cq->collapsed);
			cq->pi++;
			counter = htobe16((uint16_t)(be16toh(counter) + step));
			memcpy((uint8_t *)c + 60, &counter, 2);
		}
		if (n && (cq->channel || cq->subscribed)) {
			s = cqs_get(cq);
			if (s && (op_own & 2 || op == MLX5_CQE_REQ_ERR || op == MLX5_CQE_RESP_ERR))
				s->event_pi = cq->pi;
			cqe_arms(cq->uar);
			if (s && s->armed)
				arm_check(cq, s);
		}
	}
	pthread_mutex_unlock(&sd_lock);
	return ret;
}
