/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * storm.c: two processes. One sends messages of 100,000 tags, eager and rendezvous, to one that waits for none of them at first: more
 * unexpected ones than 16 bits count. Then the receives are posted while the rest comes, so that some are matched by the NIC and some in
 * software. Nothing is lost, and messages of one tag come in their order. Some receives are cancelled, and posted again when they are
 * free. Each receive and each entry of the list comes back exactly once. Then tagged messages go to and fro.
 */
#include "rig.h"
#include <inlay/match.h>

#define TAGS 100000u
#define TWICE 20000u              /* of them have a second message */
#define MESSAGES (TAGS + TWICE)
#define FIRST 70000u              /* messages that nobody waits for */
#define EVERY 16u                 /* so many messages are one rendezvous */
#define RNDV_LEN 2000u
#define PLACE 32u                 /* of a rendezvous payload in its sender's buffer */
#define LISTED 512u
#define BUFFERS 1024u
#define BUFFER 2048u
#define ENTRIES 4096u
#define SLOT 128u
#define READS 32u
#define PINGS 500u
#define PING 0xabcdull << 40

static int line;                  /* to the other process */

static struct {
	struct tagged t;
	struct inlay_tag_rx rx;
	struct inlay_match match;
	void *table;
	uint8_t *buffers;
	struct ibv_mr *mr;
	uint32_t spare[BUFFERS], spares;
	struct inlay_rvh rvh[MESSAGES + PINGS]; /* of those that arrived as rendezvous; len 0: eager */
	struct {
		uint64_t handle;
		uint32_t tag, buffer;
		bool posted, waits;             /* its buffer is in use; handle is valid */
	} receive[MESSAGES + PINGS];
	uint32_t order[TAGS], place[TAGS];      /* message i < TAGS is of tag order[i]; place is its inverse */
	uint8_t got[TAGS];
	struct { uint32_t receive, message; uint16_t index; } read[READS]; /* index: of the FIN */
	uint32_t reads, read_done;
	uint32_t unexpected, done, in_hw, by_hw, rndv_hw, rndv_sw, fins, ponged, cancelled, late;
} s;

static void say(const void *what, size_t len)
{
	assert_int_equal(send(line, what, len, MSG_NOSIGNAL), len);
}

static void hear(void *what, size_t len)
{
	assert_int_equal(recv(line, what, len, MSG_WAITALL), len);
}

static uint64_t tag_of(uint32_t tag)
{
	/* Far apart, in all bits */
	return (uint64_t)(tag + 1) * 0x9e3779b97f4a7c15ull;
}

static uint32_t tag_of_message(uint32_t i)
{
	return s.order[i < TAGS ? i : i - TAGS];
}

static bool is_rndv(uint32_t message)
{
	return message % EVERY == EVERY - 1;
}

/* ---- both ---- */

static void open_all(void)
{
	struct inlay_connect_record mine, peer;
	struct tagged_how how;
	struct how rx;
	uint32_t i, j, k;
	char ready = 1;

	memset(&s, 0, sizeof(s));
	memset(&how, 0, sizeof(how));
	how.tags = LISTED;
	how.bbs = 2048;
	how.entries = ENTRIES;
	how.slot = SLOT;
	how.cqes = 8192;
	list_open(&s.t, &how);
	memset(&rx, 0, sizeof(rx));
	rx.srqn = s.t.xrq.xrqn;
	rx.bbs = 256;
	side_make(&s.t.rx, &rx);
	side_address(&s.t.rx, &mine);
	say(&mine, sizeof(mine));
	hear(&peer, sizeof(peer));
	entries(&s.t, ENTRIES - 1);
	must(inlay_devx_qp_connect(&s.t.rx.qp, &s.t.rx.path, &peer));
	say(&ready, 1);
	hear(&ready, 1);
	s.table = aligned_alloc(64, inlay_match_size(131072));
	assert_non_null(s.table);
	must(inlay_match_init(&s.match, s.table, inlay_match_size(131072), 131072, 0, rnd()));
	must(inlay_tag_rx_init(&s.rx, &s.match, &s.t.list, 0));
	s.buffers = (uint8_t *)pages(BUFFERS * BUFFER);
	s.mr = ibv_reg_mr(dev.pd, s.buffers, BUFFERS * BUFFER, ALL_ACCESS);
	assert_non_null(s.mr);
	for (i = 0; i < BUFFERS; i++)
		s.spare[s.spares++] = i;
	/* The same in both processes */
	rnd_seed();
	for (i = 0; i < TAGS; i++)
		s.order[i] = i;
	for (i = TAGS - 1; i; i--) {
		j = rnd_below(i + 1);
		k = s.order[i];
		s.order[i] = s.order[j];
		s.order[j] = k;
	}
	for (i = 0; i < TAGS; i++)
		s.place[s.order[i]] = i;
}

static void close_all(void)
{
	char end = 0;

	say(&end, 1);
	hear(&end, 1);
	side_free(&s.t.rx);
	list_close(&s.t);
	must(ibv_dereg_mr(s.mr));
	free(s.buffers);
	free(s.table);
}

static uint8_t *buffer_of(uint32_t receive)
{
	return s.buffers + (size_t)s.receive[receive].buffer * BUFFER;
}

/* A receive comes back */
static void free_buffer(uint32_t receive)
{
	assert_true(s.receive[receive].posted);
	s.receive[receive].posted = s.receive[receive].waits = false;
	s.spare[s.spares++] = s.receive[receive].buffer;
}

/* A receive has its message, which is the next one of its tag */
static void deliver(uint32_t receive, uint32_t message)
{
	uint32_t tag = s.receive[receive].tag;

	free_buffer(receive);
	s.done++;
	if (message >= MESSAGES) {
		assert_int_equal(message, MESSAGES + tag - TAGS);
		s.ponged++;
		return;
	}
	if (message != s.place[tag] + s.got[tag] * TAGS)
		fail_msg("tag %u got message %u after %u of its own", tag, message, s.got[tag]);
	s.got[tag]++;
}

/* The send queue: ends of READs with their FINs, and of messages. One in eight messages is signaled, and each FIN */
static void poll_sent(void)
{
	const struct mlx5_cqe64 *cqe;
	uint32_t before;

	while ((cqe = inlay_cq_peek(s.t.rx.cq))) {
		uint32_t number, i = s.read_done % READS;
		bool fin = s.read_done != s.reads && inlay_cqe_wqe_counter(cqe) == s.read[i].index;

		if (inlay_cqe_is_error(cqe)) {
			inlay_cqe_print(stderr, cqe);
			fail_msg("a message failed");
		}
		before = inlay_sq_pending(s.t.rx.sq);
		assert_true(0 < inlay_sq_release(s.t.rx.sq, cqe));
		assert_true(inlay_sq_pending(s.t.rx.sq) < before);
		inlay_cq_advance(s.t.rx.cq, 1);
		if (!fin)
			continue;
		memcpy(&number, buffer_of(s.read[i].receive), 4);
		assert_int_equal(number, s.read[i].message);
		deliver(s.read[i].receive, number);
		s.read_done++;
	}
}

/* Ours to read, and to tell the sender that it was */
static void read_payload(uint32_t receive, uint32_t message)
{
	struct inlay_rvh rvh = s.rvh[message];
	struct ibv_sge sge;

	while (s.reads - s.read_done == READS) {
		step();
		poll_sent();
	}
	assert_int_equal(rvh.len, RNDV_LEN);
	sge.addr = (uintptr_t)buffer_of(receive);
	sge.length = rvh.len;
	sge.lkey = s.mr->lkey;
	must(inlay_post_read(s.t.rx.sq, rvh.va, rvh.rkey, &sge, 1, 0));
	s.read[s.reads % READS].index = inlay_sq_index(s.t.rx.sq);
	must(inlay_tag_send_fin(s.t.rx.sq, message, tag_of(s.receive[receive].tag), &rvh, INLAY_SIGNALED | INLAY_FENCE_STRONG));
	inlay_sq_ring(s.t.rx.sq);
	s.read[s.reads % READS].receive = receive;
	s.read[s.reads % READS].message = message;
	s.reads++;
	s.rndv_sw++;
}

/* In software a receive and a message have met. What an eager one holds was looked at when it came */
static void met(uint32_t receive, uint32_t message)
{
	if (s.rvh[message].len)
		read_payload(receive, message);
	else
		deliver(receive, message);
}

static void look_at(const uint8_t *at, uint32_t len, uint32_t message)
{
	assert_int_equal(len, 8 + message % 40);
	assert_int_equal(differs(at, len, message), len);
}

static void unexpected_message(const uint8_t *at, uint32_t len)
{
	struct inlay_tmh tmh = tmh_at(at, len);
	struct inlay_match_found found;
	uint32_t message = tmh.app_ctx;
	int matched;

	assert_true(message < MESSAGES + PINGS);
	if (tmh.opcode == IBV_TMH_RNDV)
		must(inlay_rvh_get(at, len, &s.rvh[message]));
	else
		look_at(at + INLAY_TMH_BYTES, len - INLAY_TMH_BYTES, message);
	memset(&found, 0, sizeof(found));
	matched = inlay_tag_rx_arrive(&s.rx, tmh.tag, message, 1, &found);
	assert_true(matched == 0 || matched == 1);
	s.unexpected++;
	if (matched)
		met((uint32_t)found.cookie - 1, message);
}

static void post(uint32_t receive, uint32_t number, uint64_t tag, bool eligible);

static void post_again(uint32_t receive)
{
	free_buffer(receive);
	s.cancelled++;
	post(receive, s.receive[receive].tag, tag_of(s.receive[receive].tag), true);
}

static bool poll_tags(void)
{
	const struct mlx5_cqe64 *cqe = inlay_cq_peek(&s.t.cq.cq);
	struct inlay_tag_wc wc;
	uint32_t receive, message;
	const uint8_t *at;
	char end;
	int kind;

	poll_sent();
	if (!cqe) {
		if (!recv(line, &end, 1, MSG_PEEK | MSG_DONTWAIT))
			fail_msg("the other process has ended");
		inlay_tag_rx_flush(&s.rx);
		step();
		return false;
	}
	assert_true(inlay_tag_list_owns(&s.t.list, cqe));
	kind = inlay_tag_rx_complete(&s.rx, cqe, 64, &wc);
	receive = (uint32_t)wc.wr_id - 1;
	message = wc.app_ctx;
	at = s.t.rx.buf + slot_of(&s.t, wc.wr_id % ENTRIES);
	switch (kind) {
	case INLAY_TAG_RX_NOTHING:
	case INLAY_TAG_RX_MATCHED:
		break;
	case INLAY_TAG_RX_DONE:
		assert_true(wc.tag == (message < MESSAGES ? tag_of(s.receive[receive].tag) : (PING) + s.receive[receive].tag));
		s.by_hw++;
		if (wc.byte_len == RNDV_LEN) {
			uint32_t number;

			memcpy(&number, buffer_of(receive), 4);
			assert_int_equal(number, message);
			s.rndv_hw++;
		} else {
			look_at(buffer_of(receive), wc.byte_len, message);
		}
		deliver(receive, message);
		break;
	case INLAY_TAG_RX_MESSAGE:
	case INLAY_TAG_RX_PLAIN:
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (kind == INLAY_TAG_RX_MESSAGE) {
			unexpected_message(at, wc.byte_len);
		} else {
			assert_int_equal(tmh_at(at, wc.byte_len).opcode, IBV_TMH_FIN);
			s.fins++;
		}
		assert_true(0 < inlay_srq_release(&s.t.xrq.srq, cqe));
		/* Again, in batches */
		if (inlay_srq_room(&s.t.xrq.srq) >= 256)
			entries(&s.t, 256);
		break;
	case INLAY_TAG_RX_CANCELED:
		s.late++;
		post_again(receive);
		break;
	default:
		inlay_cqe_print(stderr, cqe);
		fail_msg("kind %d, status %d", kind, wc.status);
	}
	inlay_cq_advance(&s.t.cq.cq, 1);
	return true;
}

static void post(uint32_t receive, uint32_t number, uint64_t tag, bool eligible)
{
	struct inlay_match_found found;
	struct ibv_sge sge;
	int matched;

	while (!s.spares)
		poll_tags();
	s.receive[receive].tag = number;
	s.receive[receive].buffer = s.spare[--s.spares];
	assert_false(s.receive[receive].posted);
	s.receive[receive].posted = true;
	sge.addr = (uintptr_t)buffer_of(receive);
	sge.length = BUFFER;
	sge.lkey = s.mr->lkey;
	memset(&found, 0, sizeof(found));
	matched = inlay_tag_rx_post(&s.rx, tag, EXACT, eligible ? &sge : NULL, receive + 1, &found);
	assert_true(matched == 0 || matched == 1);
	if (matched) {
		met(receive, (uint32_t)found.cookie);
		return;
	}
	s.in_hw += found.in_hw;
	s.receive[receive].handle = found.handle;
	s.receive[receive].waits = true;
}

/* Unless it has its message. If the NIC has it, it is free when the NIC says so */
static void cancel(uint32_t receive)
{
	struct inlay_match_found found;

	if (s.receive[receive].waits && inlay_tag_rx_cancel(&s.rx, s.receive[receive].handle, &found) == 1)
		post_again(receive);
}

/* All operations are done */
static void settle_list(void)
{
	must(inlay_tag_list_sync(&s.t.list, 0, SYNCED));
	inlay_tag_list_ring(&s.t.list);
	while (inlay_sq_pending(&s.t.cmd.sq))
		poll_tags();
}

static void send_message(uint32_t i, uint64_t tag)
{
	uint8_t payload[64];
	struct inlay_rvh rvh;
	uint32_t flags = i % 8 == 7 ? INLAY_SIGNALED : 0;
	size_t at;

	while (inlay_sq_room(s.t.rx.sq) < 4)
		poll_tags();
	if (is_rndv(i)) {
		at = (size_t)(i / EVERY) * PLACE % QUARTER; /* the rest of its bytes are whatever lies there */
		rvh.va = (uintptr_t)s.t.rx.buf + at;
		rvh.rkey = s.t.rx.mr->rkey;
		rvh.len = RNDV_LEN;
		memcpy(s.t.rx.buf + at, &i, 4);
		must(inlay_tag_send_rndv(s.t.rx.sq, i, tag, &rvh, NULL, 0, flags));
	} else {
		fill(payload, 8 + i % 40, i);
		must(inlay_tag_send_eager_inline(s.t.rx.sq, i, tag, payload, 8 + i % 40, flags));
	}
	inlay_sq_ring(s.t.rx.sq);
}

static void ping_pong(bool first)
{
	uint32_t i;

	for (i = 0; i < PINGS; i++) {
		post(MESSAGES + i, TAGS + i, (PING) + TAGS + i, rnd_below(4) != 0);
		inlay_tag_rx_flush(&s.rx);
		if (first)
			send_message(MESSAGES + i, (PING) + TAGS + i);
		while (s.ponged <= i)
			poll_tags();
		if (!first)
			send_message(MESSAGES + i, (PING) + TAGS + i);
	}
}

/* ---- each ---- */

static void sender(void)
{
	uint32_t i, rendezvous = 0;
	char go;

	open_all();
	for (i = 0; i < MESSAGES; i++) {
		if (i == FIRST)
			hear(&go, 1);
		send_message(i, tag_of(tag_of_message(i)));
		rendezvous += is_rndv(i);
		/* So many may be under way before a place is used again */
		while (is_rndv(i) && i >= FIRST && s.fins + QUARTER / PLACE - 1 < rendezvous)
			poll_tags();
	}
	while (s.fins < rendezvous)
		poll_tags();
	ping_pong(false);
	close_all();
}

static void storm(void **state)
{
	uint32_t i, next = 0;
	char go = 1;
	int status;
	pid_t child;

	(void)state;
	line = peer_process(&child);
	open_all();
	while (s.unexpected < FIRST)
		poll_tags();
	assert_int_equal(inlay_match_count(&s.match, INLAY_MATCH_UNEXPECTED), FIRST);
	assert_true(FIRST > 65536);
	/* Some receives of what is to come are there before it; then all others, in another order */
	for (i = FIRST; i < FIRST + 600; i++)
		post(next++, tag_of_message(i), tag_of(tag_of_message(i)), i % 8 != 0);
	inlay_tag_rx_flush(&s.rx);
	settle_list();
	say(&go, 1);
	for (; i < TAGS; i++) {
		post(next++, tag_of_message(i), tag_of(tag_of_message(i)), i % 8 != 0);
		if (i % 16 == 0)
			cancel(next - 1 - rnd_below(32));
		if (i % 4 == 0)
			poll_tags();
	}
	for (i = FIRST; i--;) {
		post(next++, tag_of_message(i), tag_of(tag_of_message(i)), i % 8 != 0);
		poll_tags();
	}
	while (s.read_done != s.reads) /* so that the first of two messages is there before the second */
		poll_tags();
	for (i = TAGS; i < MESSAGES; i++)
		post(next++, tag_of_message(i), tag_of(tag_of_message(i)), true);
	while (s.done < MESSAGES)
		poll_tags();
	for (i = 0; i < TAGS; i++)
		assert_int_equal(s.got[s.order[i]], i < TWICE ? 2 : 1);
	assert_int_equal(inlay_match_count(&s.match, INLAY_MATCH_UNEXPECTED), 0);
	assert_int_equal(inlay_match_count(&s.match, INLAY_MATCH_POSTED), 0);
	settle_list();
	whole(&s.t.list);
	assert_int_equal(s.t.list.room, LISTED);
	print_message("# %u unexpected; %u receives in the NIC's list, %u of these matched; %u rendezvous by the NIC, %u by software; "
		      "%u cancelled, %u in the NIC\n", s.unexpected, s.in_hw, s.by_hw, s.rndv_hw, s.rndv_sw, s.cancelled, s.late);
	assert_true(s.cancelled > 0 && s.late > 0 && s.by_hw > 0 && s.rndv_hw > 0 && s.rndv_sw > 0);
	assert_int_equal(s.rndv_hw + s.rndv_sw, MESSAGES / EVERY);
	ping_pong(true);
	close_all();
	close(line);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void peer(void **state)
{
	(void)state;
	line = atoi(getenv("INLAY_TEST_LINE"));
	sender();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(storm),
	};

	if (getenv("INLAY_TEST_LINE")) {
		if (rig_open(NULL))
			return 1;
		rig_empty(NULL);
		peer(NULL);
		return rig_close(NULL) != 0;
	}
	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("tag_storm", tests, rig_open, rig_close);
}
