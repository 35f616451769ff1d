/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recv_model.c: receives in software and in the NIC's list at once, against matching as MPI has it. The device is stepped: at random it
 * executes or completes a little between the operations, so that all that can race does.
 *
 * The model. Of one sender's messages and one receiver's receives, each in its order, who gets what does not depend on how they meet: the
 * oldest receive that any message can match gets the oldest such message, for which there is no older receive, and so on. So when all is
 * quiet the pairs must be those that a search in two plain lists finds, with receives whose cancel succeeded left out.
 *
 * Environment: TAG_OPS, operations in all, 150000.
 */
#include "rig.h"
#include <inlay/match.h>

#define MAX_OPS 2000u         /* of one world */
#define BUFFERS 200u          /* of receives */
#define BUFFER 1280u
#define BIG 1100u             /* more than the MTU */

enum state { OPEN, CANCELLING, MATCHED, DONE, CANCELLED };
enum kind { SMALL, LARGE, RENDEZVOUS };

struct receive {
	uint64_t tag, mask, handle;
	uint32_t buffer, len;
	int32_t message;      /* that it got, or -1 */
	enum state state;
	bool open;            /* in the model */
};

struct message {
	uint64_t tag;
	enum kind kind;
	uint32_t len;
	int32_t receive;
	bool open;
	bool seen;            /* by software, in table or matched there */
};

static struct world {
	struct tagged t;
	struct inlay_tag_rx rx;
	struct inlay_match match;
	void *table;
	bool hardware;
	uint32_t eligible;    /* of 100 receives */
	uint32_t most_messages, most_receives, least_receives; /* that wait */
	uint32_t prompt;      /* of 100 receives: rung at once */
	uint32_t wild;        /* of 100 receives */
	uint32_t aim;         /* of 100 tags: of one that is there */
	uint32_t tags;        /* of each kind, in messages */
	bool odd_masks, shorts;
	struct receive receive[MAX_OPS + 300];
	struct message message[MAX_OPS + 300];
	uint32_t receives, messages;
	uint32_t arrived;     /* messages that somebody has */
	uint32_t queue[MAX_OPS + 300]; /* messages handed out that have not arrived: for want of room, or of haste */
	uint32_t first, queued;
	uint32_t lazy;        /* of 100 messages */
	uint16_t spare[BUFFERS];
	uint32_t spares, sending;
} w;

/* What has been seen to happen, over all worlds */
static struct {
	uint64_t expected, two, rndv, sw_rndv, unexpected, taken, canceled, too_late, full_table, full_list, in_hw, in_sw;
} seen;

/* ---- the model ---- */

static bool accepts(const struct receive *r, uint64_t tag)
{
	return ((tag ^ r->tag) & r->mask) == 0;
}

/* When all is quiet */
static void compare(void)
{
	for (uint32_t m = 0; m < w.messages; m++) {
		int32_t expected = -1;

		if (!w.message[m].open)
			continue;
		for (uint32_t r = 0; r < w.receives && expected < 0; r++)
			if (w.receive[r].open && w.receive[r].state != CANCELLED && accepts(&w.receive[r], w.message[m].tag))
				expected = (int32_t)r;
		if (w.message[m].receive != expected)
			fail_msg("message %u went to receive %d, not %d", m, w.message[m].receive, expected);
		if (expected < 0)
			continue;
		assert_true(w.receive[expected].message == (int32_t)m && w.receive[expected].state == DONE);
		w.receive[expected].open = false;
		w.message[m].open = false;
	}
	for (uint32_t r = 0; r < w.receives; r++) {
		if (w.receive[r].state == CANCELLED)
			w.receive[r].open = false;
		else if (w.receive[r].open)
			assert_int_equal(w.receive[r].state, OPEN);
	}
}

/* ---- both kinds of matching ---- */

/* The number of a message is in its payload, wherever that comes from */
static uint32_t number_at(const uint8_t *at)
{
	uint32_t number;

	memcpy(&number, at, sizeof(number));
	return number;
}

static uint8_t *buffer_of(const struct receive *r)
{
	return w.t.rx.buf + (size_t)r->buffer * BUFFER;
}

static void pair(struct receive *r, uint32_t m)
{
	assert_true(m < w.messages && w.message[m].receive == -1 && r->message == -1);
	assert_true(accepts(r, w.message[m].tag));
	w.message[m].receive = (int32_t)(r - w.receive);
	r->message = (int32_t)m;
}

/* A receive got its message in software: the buffer is ours, and nobody else's */
static void deliver(struct receive *r, uint32_t m)
{
	assert_true(r->state == OPEN && w.message[m].seen);
	pair(r, m);
	r->state = DONE;
	if (!w.hardware)
		return;
	memset(buffer_of(r), 0x5c, r->len);
	memcpy(buffer_of(r), &m, sizeof(m));
}

/* The next message, if there is one and there is room for it */
static bool arrive(void)
{
	uint32_t m = w.queue[w.first];
	struct inlay_match_found found = {};
	int matched;

	if (w.first == w.queued)
		return false;
	matched = inlay_tag_rx_arrive(&w.rx, w.message[m].tag, m, w.hardware, &found);
	if (matched == -EAGAIN) {
		assert_int_equal(inlay_match_count(&w.match, INLAY_MATCH_POSTED) + inlay_match_count(&w.match, INLAY_MATCH_UNEXPECTED), 64);
		seen.full_table++;
		return false;
	}
	w.first++;
	w.arrived++;
	w.message[m].seen = true;
	if (!matched) {
		assert_int_equal(found.cookie, m);
		return true;
	}
	assert_int_equal(matched, 1);
	seen.taken += found.in_hw;
	deliver(&w.receive[found.cookie - 1], m);
	return true;
}

/* The next completion, if there is one */
static bool poll_one(void)
{
	const struct mlx5_cqe64 *cqe;
	struct inlay_tag_wc wc;
	struct receive *r;
	uint8_t copy[INLAY_RNDV_MAX];
	struct inlay_tmh tmh;
	struct inlay_rvh rvh;
	int kind;

	if (rnd_below(100) >= w.lazy && arrive())
		return true;
	if (!w.hardware) {
		if (w.queued == w.messages)
			return false;
		w.queue[w.queued] = w.queued;
		w.queued++;
		return true;
	}
	cqe = inlay_cq_peek(&w.t.cq.cq);
	if (!cqe)
		return false;
	assert_true(inlay_tag_list_owns(&w.t.list, cqe));
	kind = inlay_tag_rx_complete(&w.rx, cqe, w.t.cq.cq.stride, &wc);
	r = wc.wr_id - 1 < w.receives ? &w.receive[wc.wr_id - 1] : NULL;
	switch (kind) {
	case INLAY_TAG_RX_NOTHING: seen.too_late += wc.status == IBV_WC_TM_ERR; break;
	case INLAY_TAG_RX_MATCHED:
		w.arrived++;
		assert_true(r->state == OPEN || r->state == CANCELLING);
		pair(r, wc.app_ctx);
		assert_true(wc.tag == w.message[wc.app_ctx].tag);
		r->state = MATCHED;
		break;
	case INLAY_TAG_RX_DONE:
	case INLAY_TAG_RX_RNDV:
		seen.expected++;
		if (r->state == MATCHED) {
			assert_int_equal(r->message, wc.app_ctx);
			seen.two++;
		} else {
			assert_true(r->state == OPEN || r->state == CANCELLING);
			pair(r, wc.app_ctx);
			w.arrived++;
		}
		assert_true(wc.tag == w.message[wc.app_ctx].tag);
		r->state = DONE;
		if (kind == INLAY_TAG_RX_RNDV) {
			must(inlay_tmh_get(buffer_of(r), wc.byte_len, &tmh));
			must(inlay_rvh_get(buffer_of(r), wc.byte_len, &rvh));
			assert_true(rvh.len > r->len);
			memcpy(buffer_of(r), (void *)(uintptr_t)rvh.va, 4);
			seen.sw_rndv++;
		} else {
			assert_int_equal(wc.byte_len, w.message[wc.app_ctx].len);
			seen.rndv += w.message[wc.app_ctx].kind == RENDEZVOUS;
		}
		assert_int_equal(number_at(buffer_of(r)), wc.app_ctx);
		break;
	case INLAY_TAG_RX_CANCELED:
		assert_int_equal(r->state, CANCELLING);
		r->state = CANCELLED;
		seen.canceled++;
		break;
	case INLAY_TAG_RX_MESSAGE: {
		const uint8_t *at = w.t.rx.buf + slot_of(&w.t, wc.wr_id);
		uint32_t m;

		seen.unexpected++;
		memset(copy, 0, sizeof(copy));
		memcpy(copy, at, wc.byte_len < sizeof(copy) ? wc.byte_len : sizeof(copy));
		memset(&tmh, 0, sizeof(tmh));
		must(inlay_tmh_get(copy, wc.byte_len, &tmh));
		m = tmh.app_ctx;
		assert_true(m < w.messages && tmh.tag == w.message[m].tag);
		if (tmh.opcode == IBV_TMH_RNDV) {
			memset(&rvh, 0, sizeof(rvh));
			must(inlay_rvh_get(copy, wc.byte_len, &rvh));
			assert_int_equal(rvh.len, w.message[m].len);
			assert_int_equal(number_at((uint8_t *)(uintptr_t)rvh.va), m);
		} else {
			assert_int_equal(wc.byte_len, 16 + w.message[m].len);
			assert_int_equal(number_at(copy + 16), m);
		}
		must(inlay_srq_release(&w.t.xrq.srq, cqe));
		entries(&w.t, 1);
		w.queue[w.queued++] = m;
		if (rnd_below(100) >= w.lazy)
			arrive();
		break;
	}
	default:
		inlay_cqe_print(stderr, cqe);
		fail_msg("kind %d", kind);
	}
	inlay_cq_advance(&w.t.cq.cq, 1);
	return true;
}

/* The sender's side: credit, and FINs, which come in no order that matters here */
static bool poll_sender(void)
{
	const struct mlx5_cqe64 *cqe;
	bool any = false;

	while (w.hardware && (cqe = inlay_cq_peek(w.t.tx.cq))) {
		assert_false(inlay_cqe_is_error(cqe));
		assert_true(0 < inlay_sq_release(w.t.tx.sq, cqe));
		inlay_cq_advance(w.t.tx.cq, 1);
		w.sending--;
		any = true;
	}
	while (w.hardware && (cqe = inlay_cq_peek(w.t.tx.rxcq))) {
		struct ibv_sge sge = piece(&w.t.tx, BYTES - 64, 64);

		assert_false(inlay_cqe_is_error(cqe));
		assert_true(0 < inlay_rq_release(w.t.tx.rq, cqe));
		inlay_cq_advance(w.t.tx.rxcq, 1);
		must(inlay_post_recv(w.t.tx.rq, &sge, 1));
		inlay_rq_ring(w.t.tx.rq);
		any = true;
	}
	return any;
}

/* ---- operations ---- */

static uint64_t some_tag(void)
{
	/* Of MPI: source, tag, communicator */
	return (uint64_t)rnd_below(w.tags) << 40 | (uint64_t)rnd_below(w.tags) << 8 | rnd_below(2);
}

/* One that somebody waits for, often enough that few are left over */
static uint64_t wanted_tag(bool message)
{
	uint32_t tries, n = message ? w.messages : w.receives, i;

	for (tries = 0; n && rnd_below(100) < w.aim && tries < 8; tries++) {
		i = n - 1 - rnd_below(n < 80 ? n : 80);
		if (message ? w.message[i].receive < 0 : w.receive[i].state == OPEN)
			return message ? w.message[i].tag : w.receive[i].tag;
	}
	return some_tag();
}

static uint64_t some_mask(void)
{
	switch (rnd_below(8)) {
	case 0:
		return 0x000000ffffffffffull; /* any source */
	case 1:
		return 0xffffff00000000ffull; /* any tag */
	case 2: return 0xff;
	case 3: return w.odd_masks ? rnd() | 1 : rnd_below(8) ? EXACT : 0;
	default: return EXACT;
	}
}

static void post_one(uint64_t tag, uint64_t mask, bool eligible)
{
	struct receive *r = &w.receive[w.receives];
	struct inlay_match_found found = {};
	struct ibv_sge sge = {};
	int status;

	if (!w.spares || w.receives == ARRAY(w.receive))
		return;
	memset(r, 0, sizeof(*r));
	r->tag = tag;
	r->mask = mask;
	r->message = -1;
	r->buffer = w.spare[w.spares - 1];
	r->len = w.shorts && rnd_below(2) ? 200 : BUFFER;
	if (w.hardware) {
		sge = piece(&w.t.rx, (size_t)r->buffer * BUFFER, r->len);
		memset(buffer_of(r), 0xdd, 16);
	}
	status = inlay_tag_rx_post(&w.rx, tag, mask, eligible ? &sge : NULL, w.receives + 1, &found);
	if (status == -EAGAIN) {
		assert_int_equal(inlay_match_count(&w.match, INLAY_MATCH_POSTED) + inlay_match_count(&w.match, INLAY_MATCH_UNEXPECTED), 64);
		seen.full_table++;
		return;
	}
	w.spares--;
	r->open = true;
	r->state = OPEN;
	w.receives++;
	if (status == 1) {
		assert_true(w.message[found.cookie].open);
		deliver(r, (uint32_t)found.cookie);
		return;
	}
	must(status);
	r->handle = found.handle;
	*(found.in_hw ? &seen.in_hw : &seen.in_sw) += 1;
	assert_true(eligible || !found.in_hw);
	if (eligible && w.hardware && !found.in_hw && !w.t.list.room)
		seen.full_list++;
}

static void send_one(void)
{
	uint32_t m = w.messages, kind = rnd_below(8);
	struct message *message = &w.message[m];
	struct inlay_rvh rvh;
	struct ibv_sge sge;
	uint8_t *at;

	if (w.sending > 40 || w.messages - w.arrived > 60)
		return;
	memset(message, 0, sizeof(*message));
	message->tag = wanted_tag(false);
	message->receive = -1;
	message->open = true;
	message->kind = kind < 6 ? SMALL : kind == 6 ? LARGE : RENDEZVOUS;
	/* Where there are short receives, an eager message fits each, and a rendezvous may not */
	message->len = message->kind == SMALL ? 4 + rnd_below(30) : message->kind == LARGE ? BIG : 1000;
	if (w.shorts && message->kind != SMALL)
		message->len = message->kind == LARGE ? 100 : 100 + rnd_below(200);
	w.messages++;
	if (!w.hardware)
		return;
	/* Rendezvous payloads stay where they are, each in a place of its own; the others' are gone when this is over */
	at = w.t.tx.buf + (size_t)m * 64;
	memcpy(at, &m, 4);
	sge = piece(&w.t.tx, (size_t)m * 64, message->len);
	if (message->kind == RENDEZVOUS) {
		rvh = (struct inlay_rvh){at_peer(&w.t.tx, (size_t)m * 64), w.t.tx.mr->rkey, message->len};
		must(inlay_tag_send_rndv(w.t.tx.sq, m, message->tag, &rvh, NULL, 0, INLAY_SIGNALED));
	} else {
		must(inlay_tag_send_eager(w.t.tx.sq, m, message->tag, &sge, 1,
					  INLAY_SIGNALED | (message->kind == SMALL && rnd_below(2) ? INLAY_INLINE : 0)));
	}
	inlay_sq_ring(w.t.tx.sq);
	w.sending++;
}

static void cancel_one(struct receive *r)
{
	struct inlay_match_found found;
	int status = inlay_tag_rx_cancel(&w.rx, r->handle, &found);

	if (status == -ENOENT) {
		assert_int_not_equal(r->state, OPEN);
		return;
	}
	assert_true(r->state == OPEN && found.cookie == (uint64_t)(r - w.receive) + 1);
	r->state = status ? CANCELLED : CANCELLING;
	assert_true(status || w.hardware);
}

/* Until nothing more happens */
static void quiet(void)
{
	uint32_t r, listed = 0;
	bool again;

	do {
		again = false;
		inlay_tag_rx_flush(&w.rx);
		if (w.hardware)
			softdev_run();
		while (poll_sender() || poll_one() || arrive())
			again = true;
		if (w.first != w.queued) {
			/* Somebody must make room: a receive of anything, or one less */
			post_one(0, 0, false);
			for (r = 0; r < w.receives && !arrive(); r++)
				if (w.receive[r].state == OPEN && w.receive[r].handle)
					cancel_one(&w.receive[r]);
			again = true;
		}
	} while (again);
	compare();
	/* Buffers that are ours again have what we saw in them */
	for (r = 0; r < w.receives; r++) {
		if (w.hardware && w.receive[r].state == OPEN && w.receive[r].open)
			listed++;
		if (w.receive[r].state == OPEN || w.receive[r].buffer == BUFFERS)
			continue;
		if (w.hardware && w.receive[r].state == DONE)
			assert_int_equal(number_at(buffer_of(&w.receive[r])), w.receive[r].message);
		w.spare[w.spares++] = (uint16_t)w.receive[r].buffer;
		w.receive[r].buffer = BUFFERS;
	}
	if (!w.hardware)
		return;
	whole(&w.t.list);
	assert_int_equal(w.rx.waiting, 0);
	assert_true(inlay_tag_rx_listed_(&w.rx) <= listed);
	assert_true(!inlay_tag_rx_listed_(&w.rx) || !inlay_tag_list_unsynced_(&w.t.list));
	assert_int_equal(inlay_match_count(&w.match, INLAY_MATCH_POSTED), listed);
}

/* ---- worlds ---- */

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 4;

	while (p < n)
		p *= 2;
	return p;
}

static void world(bool hardware, uint32_t eligible, uint32_t ops)
{
	static const uint32_t sizes[] = {1, 3, 7, 15, 31, 63, 20, 100}; /* most with the tightest ring */
	uint32_t i, list_tags = sizes[rnd_below(ARRAY(sizes))], quiets = 20 + rnd_below(200);
	/* How much of each there is: posts, sends, cancels, steps of the device, polls */
	uint32_t weight[6] = {20 + rnd_below(30), 20 + rnd_below(20), rnd_below(10), 5 + rnd_below(60), 5 + rnd_below(40),
			      5 + rnd_below(20)};
	uint32_t all = 0;
	struct tagged_how how;
	struct ibv_sge sge;

	memset(&w, 0, sizeof(w));
	w.hardware = hardware;
	w.eligible = eligible;
	w.most_messages = rnd_below(3) ? 1 + rnd_below(10) : rnd_below(100);
	w.most_receives = 1 + rnd_below(80);
	w.least_receives = rnd_below(2) ? rnd_below(50) : 0;
	w.prompt = rnd_below(3) ? rnd_below(100) : 0;
	w.wild = rnd_below(3) ? rnd_below(20) : rnd_below(100);
	w.aim = rnd_below(4) ? 80 + rnd_below(20) : rnd_below(100);
	w.tags = rnd_below(3) ? 1 + rnd_below(4) : 30;
	w.odd_masks = rnd_below(4) == 0;
	w.shorts = rnd_below(2);
	w.lazy = rnd_below(2) ? 0 : rnd_below(100);
	for (i = 0; i < BUFFERS; i++)
		w.spare[i] = (uint16_t)i;
	w.spares = BUFFERS;
	w.table = made(aligned_alloc(64, inlay_match_size(64)));
	must(inlay_match_init(&w.match, w.table, inlay_match_size(64), 64, 0, rnd()));
	if (hardware) {
		rig_empty(NULL);
		how = (struct tagged_how){.tags = list_tags, .bbs = power_of_two(2 * list_tags + 2) << rnd_below(2)};
		tm_open(&w.t, &how);
		entries(&w.t, 63);
		for (i = 0; i < 64; i++) {
			sge = piece(&w.t.tx, BYTES - 64, 64);
			must(inlay_post_recv(w.t.tx.rq, &sge, 1));
		}
		inlay_rq_ring(w.t.tx.rq);
	}
	must(inlay_tag_rx_init(&w.rx, &w.match, hardware ? &w.t.list : NULL, hardware && rnd_below(2) ? 250 : 0));
	for (i = 0; i < 6; i++)
		all += weight[i];
	for (i = 0; i < ops; i++) {
		uint32_t what = rnd_below(all), k;

		for (k = 0; what >= weight[k]; k++)
			what -= weight[k];
		switch (k) {
		case 0:
		case 1:
			/* Receives wait for messages, or messages for receives, or both */
			if (inlay_match_count(&w.match, INLAY_MATCH_POSTED) < w.least_receives ||
			    inlay_match_count(&w.match, INLAY_MATCH_UNEXPECTED) + w.sending > w.most_messages ? rnd_below(20) :
			    inlay_match_count(&w.match, INLAY_MATCH_POSTED) > w.most_receives ? !rnd_below(20) : k == 0) {
				post_one(wanted_tag(true), rnd_below(100) < w.wild ? some_mask() : EXACT, rnd_below(100) < w.eligible);
				if (rnd_below(100) < w.prompt)
					inlay_tag_rx_flush(&w.rx);
			} else {
				send_one();
			}
			break;
		case 2:
			if (w.receives) {
				k = w.receives < 100 || !rnd_below(8) ? w.receives : 100;
				cancel_one(&w.receive[w.receives - 1 - rnd_below(k)]);
			}
			break;
		case 3:
			if (hardware)
				(void)(rnd_below(2) ? softdev_execute(0, 1 + rnd_below(4)) : softdev_complete(0, 1 + rnd_below(4)));
			break;
		case 4:
			for (k = rnd_below(6); k-- && poll_one();)
				;
			poll_sender();
			break;
		default:
			if (hardware && rnd_below(2))
				inlay_sq_ring(w.t.list.sq);
			else
				inlay_tag_rx_flush(&w.rx);
		}
		if (rnd_below(quiets) == 0)
			quiet();
	}
	quiet();
	/* Everything that is left can be cancelled, and everything is then free */
	for (i = 0; i < w.receives; i++)
		if (w.receive[i].state == OPEN)
			cancel_one(&w.receive[i]);
	quiet();
	assert_int_equal(inlay_match_count(&w.match, INLAY_MATCH_POSTED), 0);
	if (hardware) {
		assert_int_equal(w.t.list.room, list_tags);
		tm_close(&w.t);
	}
	free(w.table);
}

static void worlds(bool hardware, uint32_t eligible)
{
	const char *env = getenv("TAG_OPS");
	uint64_t left = (env && *env ? strtoull(env, NULL, 0) : 150000) / 10 * (hardware ? 3 : 1);
	uint32_t n;

	if (hardware)
		need_softdev("a device that is stepped at random");
	memset(&seen, 0, sizeof(seen));
	for (; left; left -= n) {
		n = 200 + rnd_below(MAX_OPS - 200);
		n = n < left ? n : (uint32_t)left;
		world(hardware, eligible, n);
	}
	/* That the run has met what it is for */
	assert_true(!hardware || (seen.in_hw && seen.expected && seen.two && seen.rndv && seen.sw_rndv && seen.unexpected));
	assert_true(!hardware || (seen.taken && seen.canceled && seen.too_late && seen.full_list));
	assert_true(eligible == 100 || seen.in_sw);
}

devx_test(software_alone)
{
	worlds(false, 0);
}

devx_test(all_eligible)
{
	worlds(true, 100);
}

devx_test(mixed)
{
	worlds(true, 95);
}

int main(void)
{
	return rig_here() && run_all(rig_open, rig_close);
}
