/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine.c: doorbells, the engine thread, the stepped interface, what the rooms above tell it.
 *
 * A doorbell is a write to one of the four registers of a doorbell page. The engine takes the
 * value, leaves zero, and only then reads the records of the QPs on that page. So a record without
 * a register write starts nothing, and a write that comes meanwhile is seen the next time. QPs
 * share registers, so the value alone does not say whose record to read.
 *
 * The thread polls without sleeping while there was work within the last SPIN. Then it sleeps on
 * the sockets, for NAP_MIN at first and up to NAP_MAX. Only polling finds a doorbell, hence the
 * short sleep.
 *
 * A thread of the program that yields does the work itself, or sleeps until there is some; meanwhile
 * the device's own thread rests. So a program that waits takes little time.
 *
 * A stepped device has no thread, no fabric and no time. Its slot is 1. It reads records only; an
 * arm still needs its register. A WQE that must wait (RNR, no peer) is tried once in each
 * softdev_execute() or softdev_run(), and each try counts as one retry.
 *
 * A trapping device (trap.c) is a stepped device that steps by itself: at each write to a register,
 * at each change of a QP's state, and in softdev_run(). A write is a doorbell of the QP that it
 * names; the record of that QP is read then and only then. Afterwards all work that was rung
 * earlier and had to wait is tried again. CQEs are not held back.
 *
 * SOFTDEV_STRICT=1 compares each register write with the ring, and reports the first difference.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "eng.h"

#define SPIN 30000ull           /* ns */
#define NAP_MIN 50000ull
#define NAP_MAX 2000000ull
#define LENT_MAX 250000ull      /* of a program that polls in a loop */
#define NAP_EMPTY 50000000ull   /* no QP and no CQ: creating a QP wakes */
#define BREATH 1000000ull       /* after so long without sleep the lock is left alone for a moment: the mutex is not fair */

SD_OWN struct rcq *eng_all;
SD_OWN bool eng_is_stepped, eng_is_trap, eng_cq_died;
SD_OWN uint64_t eng_step;

static SD_OWN bool started, strict;
static int manual = -1;
static SD_OWN bool asleep, busy;
static SD_OWN uint64_t lent; /* when the program last let the device work in its own thread */
static SD_OWN pid_t pid;

uint64_t eng_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Something was queued for later: the loop must not count itself idle */
void eng_wake(void)
{
	busy = true;
	if (asleep)
		wire_wake();
}

bool eng_manual(void)
{
	return manual == 1;
}

bool sd_stepped(void)
{
	const char *env;

	if (started)
		return eng_is_stepped;
	env = getenv("SOFTDEV_MANUAL");
	return sd_trapping() || (manual >= 0 ? manual : env && *env == '1');
}

/* ---- doorbells ---- */

static void strict_note(const char *what, uint64_t value)
{
	static unsigned count;

	if (!count++)
		fprintf(stderr, "softdev: doorbell %016llx: %s (said once)\n", (unsigned long long)be64toh(value), what);
}

/* SOFTDEV_STRICT=1: does what was written to the register fit what lies in the ring? */
static void strict_look(struct sd_uar *uar, unsigned reg, uint64_t value)
{
	uint32_t copy[64], hi = be64toh(value) >> 32, lo = (uint32_t)be64toh(value);
	volatile uint32_t *at = (volatile uint32_t *)(void *)(uar->page + reg);
	struct sd_qp *qp = sd_qp_find(lo >> 8);
	struct rcq *q = qp ? qp->eng : NULL;
	unsigned bbs = ((lo & 0x3f) + 3) / 4, words, i;
	uint8_t ring[256];
	uint64_t until = eng_now() + 20000000;
	bool copied, same;

	if (!q || qp->uar != uar) {
		strict_note("no QP of this page has that number", value);
		return;
	}
	/* Already executed, on the doorbell of another: its slot may be in use again */
	if ((uint16_t)((hi >> 8) - q->sq_ci) >= (uint16_t)(be32toh(__atomic_load_n(&qp->dbrec[1], __ATOMIC_ACQUIRE)) - q->sq_ci))
		return;
	words = (bbs < 4 ? bbs : 4) * 16;
	copy[0] = htobe32(hi);
	copy[1] = htobe32(lo);
	for (i = 0; i < words / 16; i++)
		memcpy(ring + 64 * i, qp->sq + ((((hi >> 8) + i) & (qp->wqebb_cnt - 1)) << 6), 64);
	if (words && memcmp(ring, copy, 8) != 0) {
		strict_note("the WQE at that index begins otherwise", value);
		return;
	}
	/* The rest of the copy may still be on its way, or the next write may be there already */
	do {
		copied = false;
		for (i = 2; i < words; i++) {
			copy[i] = at[i];
			copied |= copy[i] != 0;
		}
		if (__atomic_load_n((uint64_t *)(void *)(uar->page + reg), __ATOMIC_ACQUIRE))
			return;
		same = !copied || memcmp(ring, copy, words * 4) == 0;
	} while (!same && (syscall(SYS_sched_yield), eng_now() < until));
	if (!same)
		strict_note("BlueFlame copy and ring differ", value);
	/* So that a plain doorbell can be told from a copy the next time */
	for (i = 2; copied && i < 64; i++)
		at[i] = 0;
}

static const uint16_t regs[] = { 0x800, 0x900, 0xa00, 0xb00 };

static bool doorbells(void)
{
	struct sd_uar *uar;
	bool did = false;

	for (uar = sd_uar_next(NULL); uar; uar = sd_uar_next(uar)) {
		bool rang = false;
		struct rcq *q;
		unsigned i;

		for (i = 0; i < 4; i++) {
			uint64_t *reg = (uint64_t *)(void *)(uar->page + regs[i]), v;

			if (!__atomic_load_n(reg, __ATOMIC_RELAXED))
				continue;
			v = __atomic_exchange_n(reg, 0, __ATOMIC_ACQ_REL);
			rang = true;
			if (strict)
				strict_look(uar, regs[i], v);
		}
		for (q = eng_all; rang && q; q = q->next)
			if (q->qp->uar == uar)
				sq_ring(q);
		did |= rang;
		cqe_arms(uar);
	}
	return did;
}

/*
 * The same for a trapping device: the WQE's beginning when the register is written, the rest as it
 * comes
 */
static void strict_trap(struct sd_uar *uar, unsigned reg, unsigned off, const uint8_t *bytes, unsigned len)
{
	uint64_t value = *(uint64_t *)(void *)(uar->page + reg);
	struct sd_qp *qp = sd_qp_find((uint32_t)be64toh(value) >> 8);
	uint32_t idx = be64toh(value) >> 40 & 0xffff, i;

	if (!qp || qp->uar != uar || !value)
		return;
	for (i = 0; i < len; i++)
		if (bytes[i] != qp->sq[((idx << 6) + off - reg + i) & ((qp->wqebb_cnt << 6) - 1)]) {
			strict_note(off == reg ? "the WQE at that index begins otherwise" : "BlueFlame copy and ring differ", value);
			return;
		}
}

/* ---- work ---- */

bool eng_cqs_dead(const struct sd_qp *qp)
{
	const struct sd_cq *tm = tm_cq(qp);

	return qp->send_cq->overrun || qp->recv_cq->overrun || (tm && tm->overrun);
}

/* An overrun CQ takes its QPs along. Done here, where no QP is in the middle of something */
static void bury_cqs(void)
{
	struct rcq *q;

	while (eng_cq_died) {
		eng_cq_died = false;
		for (q = eng_all; q; q = q->next)
			if (!q->err && eng_cqs_dead(q->qp)) {
				sq_enter_err(q);
				sd_up.async_qp(q->qp, IBV_EVENT_QP_FATAL);
			}
	}
}

/* After what a program did by hand */
static void end_step(void)
{
	zip_flush_all();
	bury_cqs();
}

static bool work(void)
{
	bool did = doorbells();
	struct rcq *q;
	static unsigned round;
	unsigned n = 0;

	did |= wire_poll();
	sd_up.cm_work(eng_now());
	for (q = eng_all; q; q = q->next) {
		did |= rx_run(q);
		did |= q->err ? sq_flush(q) : sq_run(q, 64, &n);
	}
	did |= wire_flush();
	/* Blocks of CQEs grow while there is something to do, but not for long */
	if (!did || ++round % 8 == 0)
		zip_flush_all();
	bury_cqs();
	return did;
}

/* Within bounds: other threads may go on ringing */
void eng_settle(void)
{
	unsigned n = 64;

	while (!eng_is_stepped && n-- && work())
		;
}

static uint64_t next_timer(uint64_t now, uint64_t nap)
{
	struct rcq *q;

	for (q = eng_all; q; q = q->next)
		if (q->err ? q->last_wqe : q->wait_until) {
			uint64_t at = q->err ? q->last_wqe : q->wait_until, left = at > now ? at - now : 0;

			nap = left < nap ? left : nap;
		}
	return nap;
}

static uint64_t longer(uint64_t nap, uint64_t most)
{
	return nap + nap / 8 < most ? nap + nap / 8 : most;
}

static void *engine(void *arg)
{
	uint64_t last = eng_now(), breath = last, nap = NAP_MIN;

	(void)arg;
	/* The engine stands for hardware: it should run as soon as it has something to do */
	setpriority(PRIO_PROCESS, syscall(SYS_gettid), -10);
	/* A nap should be as long as it is meant to be: the usual slack is as long again */
	prctl(PR_SET_TIMERSLACK, 1000);
	for (;;) {
		uint64_t now, sleep, rest = 0;
		bool did, empty;

		pthread_mutex_lock(&sd_lock);
		asleep = busy = false;
		did = work() || busy;
		wire_check();
		now = eng_now();
		empty = !eng_all && !sd_cq_next(NULL);
		sleep = empty ? NAP_EMPTY : nap;
		if (did) {
			last = now;
			nap = NAP_MIN;
			sleep = 0;
		} else if (now - lent < NAP_MAX) {
			sleep = 0;
			rest = NAP_MAX;
		} else if (now - last < SPIN && !empty) {
			sleep = 0;
		} else {
			sleep = next_timer(now, sleep);
			asleep = true;
		}
		pthread_mutex_unlock(&sd_lock);
		if (sleep) {
			wire_sleep(sleep);
			nap = longer(nap, NAP_MAX);
			breath = eng_now();
		} else if (rest || now - breath > BREATH) {
			struct timespec t = { 0, rest ? rest : 1000 };

			nanosleep(&t, NULL);
			breath = eng_now();
		}
	}
	return NULL;
}

/* ---- for the rooms above ---- */

int sd_engine_start(void)
{
	const char *env = getenv("SOFTDEV_STRICT");
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t t;
	int ret;

	pthread_mutex_lock(&sd_lock);
	if (started) {
		pthread_mutex_unlock(&sd_lock);
		return 0;
	}
	strict = env && *env == '1';
	eng_is_stepped = sd_stepped();
	eng_is_trap = sd_trapping();
	if (eng_is_stepped)
		sd_slot = 1;
	pid = getpid();
	ret = fault_start();
	if (!ret && eng_is_trap)
		ret = trap_start();
	if (!ret && !eng_is_stepped)
		ret = wire_join();
	if (!ret && !eng_is_stepped) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		pthread_attr_init(&attr);
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		ret = -pthread_create(&t, &attr, engine, NULL);
		pthread_attr_destroy(&attr);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	started = !ret;
	pthread_mutex_unlock(&sd_lock);
	return ret;
}

uint64_t sd_fabric_instance(unsigned slot)
{
	return eng_is_stepped ? slot == 1 : wire_instance(slot);
}

int sd_fabric_send(unsigned slot, uint64_t inst, const void *data, size_t len)
{
	struct frame f = { .len = len, .kind = FR_CM, .dst = slot << 16, .src = sd_slot << 16 };
	const struct iovec v = { (void *)data, len };
	int ret = wire_send(slot, inst, &f, &v, 1);

	if (!ret)
		wire_flush();
	return ret;
}

struct rcq *eng_rcq_new(struct sd_qp *qp)
{
	bool asks = qp->wqebb_cnt || tm_cq(qp); /* a rendezvous needs no send queue */
	struct rcq *q = calloc(1, sizeof *q);

	if (q && asks)
		q->ops = calloc(ENG_OPS, sizeof *q->ops);
	if (!q || (asks && !q->ops)) {
		free(q);
		return NULL;
	}
	q->qp = qp;
	q->random = qp->qpn;
	q->next = eng_all;
	q->prev = &eng_all;
	if (eng_all)
		eng_all->prev = &q->next;
	eng_all = q;
	return q;
}

void eng_rcq_free(struct rcq *q)
{
	*q->prev = q->next;
	if (q->next)
		q->next->prev = q->prev;
	free(q->ops);
	free(q->stage);
	free(q->failed);
	free(q);
}

void sd_engine_qp_created(struct sd_qp *qp)
{
	/* A DCT gets one for each connection */
	if (qp->type != SD_QPT_DCT)
		qp->eng = eng_rcq_new(qp);
	eng_wake();
}

/*
 * What code that forgets to ring has left. The record may be gone with the program's memory
 */
static void report_unrung(struct rcq *q)
{
	uint32_t record;
	struct iovec to = { &record, sizeof record }, from = { .iov_len = sizeof record };
	uint16_t n;

	if (!eng_is_trap || !q->qp->wqebb_cnt)
		return;
	from.iov_base = (void *)(uintptr_t)&q->qp->dbrec[1];
	if (mem_copy(&to, 1, &from, 1, sizeof record) != MEM_OK)
		return;
	n = be32toh(record) - q->sq_pi;
	if (n && n <= q->qp->wqebb_cnt)
		fprintf(stderr, "softdev: qp 0x%x: %u WQEBBs posted and never rung\n", q->qp->qpn, n);
}

__attribute__((destructor)) static void at_unload(void)
{
	struct rcq *q;

	/* A program that ends while one of its threads is in the device says nothing */
	if (!eng_is_trap || getpid() != pid || pthread_mutex_trylock(&sd_lock) != 0)
		return;
	for (q = eng_all; q; q = q->next)
		report_unrung(q);
	pthread_mutex_unlock(&sd_lock);
}

static unsigned step_all(unsigned n);

void eng_forget(struct rcq *q)
{
	report_unrung(q);
	rx_drop(q);
	sq_reset(q);
	tm_flush(q);
	q->rq_ci = q->rq_head = 0;
	q->early = 0;
	q->wqe_held = false;
	q->starves = q->last_wqe = 0;
	q->in_msg = q->comm_est = q->nak_wait = q->nak_fatal = q->draining = false;
	if (q->qp->type == IBV_QPT_XRC_RECV) {
		xrc_forgotten(q);
		return;
	}
	cqe_purge(q->qp->send_cq, q);
	cqe_purge(q->qp->recv_cq, q);
}

/* A NIC has sent what was rung before the command that stops the QP */
static void let_leave(struct rcq *q)
{
	if (!eng_is_stepped && (q->count || tm_pending(q) || sq_ring(q)))
		eng_settle();
}

void sd_engine_qp_modified(struct sd_qp *qp, enum ibv_qp_state from, int mask)
{
	const enum ibv_qp_state to = qp->state;
	struct rcq *q = qp->eng;

	if (!q)
		return;
	if (qp->loopback)
		q->path_dev = qp->dev;
	else if (mask & IBV_QP_AV)
		q->path_dev = sd_port_at(qp->attr.ah_attr.is_global ? qp->attr.ah_attr.grh.dgid.raw : NULL, qp->attr.ah_attr.dlid);
	if (from == IBV_QPS_RTS && (to == IBV_QPS_RESET || to == IBV_QPS_ERR)) {
		qp->state = from;
		let_leave(q);
		qp->state = to;
	}
	switch (to) {
	case IBV_QPS_RESET:
		if (q->last_wqe)
			sd_up.async_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
		eng_forget(q);
		break;
	case IBV_QPS_INIT:
		break;
	case IBV_QPS_RTR:
		if (from == IBV_QPS_RTR)
			break;
		q->rpsn = qp->attr.rq_psn & 0xffffff;
		q->uc_psn = UC_NO_PSN;
		q->in_msg = q->nak_wait = q->nak_fatal = q->comm_est = false;
		/* A datagram says itself where it goes; a DCI is not yet aimed at anybody */
		q->peer = qp->type == SD_QPT_DCI ? UD_MCAST : qp->attr.dest_qp_num;
		if (qp->type == IBV_QPT_UD || qp->type == IBV_QPT_RAW_PACKET || qp->type == SD_QPT_DCI)
			break;
		/* The process that now has the number is the one meant; no later holder of its slot is */
		q->slot = q->peer >> 16;
		q->inst = eng_is_stepped ? 0 : wire_instance(q->slot);
		break;
	case IBV_QPS_RTS:
		if (from == IBV_QPS_RTR) {
			q->npsn = qp->attr.sq_psn & 0xffffff;
			if (getrandom(&q->epoch, sizeof q->epoch, GRND_NONBLOCK) != sizeof q->epoch)
				q->epoch++;
		}
		q->rnr_left = qp->attr.rnr_retry & 7;
		q->retry_left = qp->attr.retry_cnt & 7;
		q->draining = false;
		break;
	case IBV_QPS_SQD:
		q->draining = from == IBV_QPS_RTS && mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && qp->attr.en_sqd_async_notify;
		if (q->draining && !q->count) {
			q->draining = false;
			sd_up.async_qp(qp, IBV_EVENT_SQ_DRAINED);
		}
		break;
	default:
		rx_drop(q);
		sq_enter_err(q);
		break;
	}
	end_step();
	if (!eng_is_stepped)
		wire_flush();
	if (eng_is_trap) {
		eng_step++;
		step_all(-1u);
	}
	eng_wake();
}

void sd_engine_qp_destroyed(struct sd_qp *qp)
{
	struct rcq *q = qp->eng;

	if (q)
		let_leave(q);
	if (qp->type == SD_QPT_DCT || qp->type == SD_QPT_DCI)
		dc_destroyed(qp);
	if (!q)
		return;
	eng_forget(q);
	if (!eng_is_stepped)
		wire_flush();
	qp->eng = NULL;
	eng_rcq_free(q);
}

void sd_engine_qp_look(struct sd_qp *qp, struct sd_qp_look *l)
{
	struct rcq *q = qp->eng;

	*l = (struct sd_qp_look){ 0 };
	if (!q)
		return;
	/* A WQE that waits for its answer is still the program's to look at */
	l->sq_hw = q->sq_ci;
	l->sq_sw = be32toh(__atomic_load_n(&qp->dbrec[1], __ATOMIC_ACQUIRE)) & 0xffff;
	l->rq_hw = q->rq_ci;
	l->rq_sw = be32toh(__atomic_load_n(&qp->dbrec[0], __ATOMIC_ACQUIRE));
	l->next_send_psn = q->npsn;
	l->next_rcv_psn = q->rpsn;
	l->last_acked_psn = ((q->count ? q->ops[q->head].psn : q->npsn) - 1) & 0xffffff;
	l->ssn = (q->npsn - qp->attr.sq_psn) & 0xffffff;
}

/* ---- from the wire ---- */

void eng_frame(unsigned slot, uint64_t inst, const struct frame *f, const uint8_t *payload)
{
	struct sd_qp *qp;
	struct rcq *q;

	if (f->kind == FR_REQ) {
		rx_frame(slot, inst, f, payload);
		return;
	}
	if (f->kind == FR_UD) {
		ud_frame(f, payload);
		return;
	}
	if (f->kind == FR_RAW) {
		raw_frame(f, payload);
		return;
	}
	if (f->kind == FR_CM) {
		if (!fault_silent())
			sd_up.cm_message(slot, inst, payload, f->len);
		return;
	}
	qp = sd_qp_find(f->dst);
	q = qp ? qp->eng : NULL;
	if (q && q->slot == slot && q->inst == inst)
		sq_response(q, f, payload);
}

void eng_peer_dead(unsigned slot, uint64_t inst)
{
	struct rcq *q;

	for (q = eng_all; q; q = q->next)
		if (q->slot == slot && q->inst == inst) {
			q->njobs = 0;
			q->ack_due = false;
			sq_peer_dead(q);
		}
	sd_up.cm_peer_dead(slot, inst);
}

/* ---- the stepped interface: softdev.h, whose declarations are weak, is not included ---- */

#define SD_API __attribute__((visibility("default")))

SD_API int softdev_manual(int on)
{
	int ret = 0;

	pthread_mutex_lock(&sd_lock);
	if (started)
		ret = -EBUSY;
	else
		manual = !!on;
	pthread_mutex_unlock(&sd_lock);
	return ret;
}

static void arms(void)
{
	struct sd_uar *uar;

	for (uar = sd_uar_next(NULL); uar; uar = sd_uar_next(uar))
		cqe_arms(uar);
}

/* One WQE of each QP in turn, until n or until no QP can go on */
static unsigned step_all(unsigned n)
{
	unsigned done = 0, before;
	struct rcq *q;
	bool did;

	do {
		before = done;
		did = false;
		for (q = eng_all; q && done < n; q = q->next) {
			if (!eng_is_trap)
				sq_ring(q);
			if (q->err)
				sq_flush(q);
			else
				did |= sq_run(q, 1, &done);
			bury_cqs();
		}
		/* What the device does by itself is no WQE */
	} while (done < n && (done != before || did));
	zip_flush_all();
	return done;
}

static unsigned step_one(struct rcq *q, unsigned n)
{
	unsigned done = 0;

	sq_ring(q);
	if (q->err)
		sq_flush(q);
	else
		sq_run(q, n, &done);
	end_step();
	return done;
}

void eng_trapped(struct sd_uar *uar, unsigned off, const uint8_t *bytes, unsigned len)
{
	bool rang = false;
	uint64_t v;
	unsigned i;

	memcpy(uar->page + off, bytes, len);
	for (i = 0; i < 4; i++) {
		if (strict && off >= regs[i] && off < regs[i] + 0x100u && off + len >= regs[i] + 8u)
			strict_trap(uar, regs[i], off, bytes, len);
		/* Two halves are as good as one store: the second counts */
		if (off < regs[i] + 8u && off + len >= regs[i] + 8u) {
			struct sd_qp *qp;

			rang = true;
			v = *(uint64_t *)(void *)(uar->page + regs[i]);
			qp = sd_qp_find((uint32_t)be64toh(v) >> 8);
			if (qp && qp->uar == uar && qp->eng)
				sq_ring(qp->eng);
			else
				strict_note("no QP of this page has that number", v);
		}
	}
	if (off < 0x28 && off + len >= 0x28) {
		v = *(uint64_t *)(void *)(uar->page + 0x20);
		memset(uar->page + 0x20, 0, 8);
		cqe_arm(uar, v);
		rang = true;
	}
	/* The rest of a BlueFlame copy is no step of its own */
	if (rang) {
		eng_step++;
		step_all(-1u);
	}
}

SD_API int softdev_execute(uint32_t qpn, unsigned n)
{
	struct sd_qp *qp;
	int ret;

	pthread_mutex_lock(&sd_lock);
	if (!sd_stepped() || eng_is_trap) {
		ret = -EPERM;
	} else {
		eng_step++;
		arms();
		qp = qpn ? sd_qp_find(qpn) : NULL;
		if (!qpn)
			ret = step_all(n);
		else
			ret = qp && qp->eng ? (int)step_one(qp->eng, n) : -ENOENT;
	}
	pthread_mutex_unlock(&sd_lock);
	return ret;
}

static unsigned complete_all(unsigned n)
{
	struct sd_cq *cq;
	unsigned done = 0;

	for (cq = sd_cq_next(NULL); cq && done < n; cq = sd_cq_next(cq))
		done += cqe_release(cq, n - done);
	end_step();
	return done;
}

SD_API int softdev_complete(uint32_t cqn, unsigned n)
{
	struct sd_cq *cq;
	int ret;

	pthread_mutex_lock(&sd_lock);
	if (!sd_stepped() || eng_is_trap) {
		ret = -EPERM;
	} else {
		arms();
		cq = cqn ? sd_cq_find(cqn) : NULL;
		if (!cqn)
			ret = complete_all(n);
		else
			ret = cq ? cqe_release(cq, n) : -ENOENT;
		end_step();
	}
	pthread_mutex_unlock(&sd_lock);
	return ret;
}

SD_API int softdev_run(void)
{
	int ret = 0;

	pthread_mutex_lock(&sd_lock);
	if (!sd_stepped()) {
		ret = -EPERM;
	} else {
		unsigned n, c;

		eng_step++;
		if (!eng_is_trap)
			arms();
		do {
			n = step_all(-1u);
			c = complete_all(-1u);
			ret += n;
		} while (n || c);
	}
	pthread_mutex_unlock(&sd_lock);
	return ret;
}

bool sd_engine_lend(void)
{
	static uint64_t nap;
	uint64_t sleep;
	bool slept;

	/* Who holds the lock may be the one that yields, as in a hook of the program's */
	if (!__atomic_load_n(&started, __ATOMIC_RELAXED) || eng_is_stepped || sd_self != pid || pthread_mutex_trylock(&sd_lock) != 0)
		return false;
	/* The thread need not wake for what is found here */
	slept = asleep;
	asleep = busy = false;
	nap = work() || busy ? 0 : nap ? longer(nap, LENT_MAX) : NAP_MIN;
	asleep = slept;
	lent = eng_now();
	sleep = next_timer(lent, nap);
	pthread_mutex_unlock(&sd_lock);
	if (sleep)
		wire_sleep(sleep);
	return true;
}

SD_API int softdev_skip(uint32_t qpn)
{
	struct sd_qp *qp;
	struct rcq *q;
	int ret = -ENOENT;

	pthread_mutex_lock(&sd_lock);
	if (!sd_stepped() || eng_is_trap) {
		ret = -EPERM;
	} else {
		qp = sd_qp_find(qpn);
		q = qp ? qp->eng : NULL;
		if (q) {
			uint16_t pi = be32toh(__atomic_load_n(&qp->dbrec[1], __ATOMIC_ACQUIRE));

			ret = (uint16_t)(pi - q->sq_ci);
			q->sq_ci = q->sq_pi = pi;
		}
	}
	pthread_mutex_unlock(&sd_lock);
	return ret;
}
