/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stranger.c: a peer that is not this provider but speaks its protocol, written with verbs, and does what the
 * provider never does: messages of a kind that was not agreed on, and messages of a connection that is over.
 */
#include "rig.h"
#include <malloc.h>
#include <inlay/connect.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>

#define MESSAGES 40 /* more than the shared receive queue has entries */
#define SEEN 1
#define OVER_DC 4
#define BY_NIC 8
#define HELLO 1
#define REFUSED 2
#define BYE 3
#define STRANGERS 2000
#define PEERS 16 /* FI_INLAY_PEERS */

/* As in connect.c, dc.c and fabric.h of the provider */
struct hello {
	uint32_t magic;
	uint8_t kind, flags;
	uint16_t eager;
	uint32_t attempt, your_attempt;
	uint8_t record_of_name[INLAY_CONNECT_SIZE];
	uint64_t incarnation, to, source;
	uint8_t record[INLAY_CONNECT_SIZE], beyond[NAME];
};

struct wire {
	uint8_t op, flags;
	uint16_t segments;
	uint64_t tag;
	uint8_t payload[8];
} __attribute__((packed));

static struct side side;
static struct end ud, out; /* for hellos; for messages, a connection or an initiator */
static struct inlay_connect_record here;
static struct inlay_av to_side;
static uint8_t beyond[NAME]; /* the side's own on its second device, which all hellos but the first say is ours */

/* Hellos go to this name from now on. */
static void face(const uint8_t *name)
{
	struct inlay_connect_record there;

	must(inlay_connect_unpack(&there, name, INLAY_CONNECT_SIZE, NULL));
	must(inlay_connect_av(&to_side, dev.pd, &here, &there, NULL, NULL));
}

static void stranger_open(void)
{
	struct opt opt = usual;

	side_open(&side, info_for(hints_for(FI_TAGGED)), 0);
	opt.type = IBV_QPT_UD;
	end_make(&ud, &opt);
	must(inlay_connect_local(&here, ud.qp, NULL, NULL));
	must(inlay_connect_rts(ud.qp, &here, NULL, NULL, NULL));
	end_take(&ud, INLAY_UAR_DOORBELL);
	face(side.name);
}

static void stranger_close(void)
{
	if (out.qp)
		end_free(&out);
	end_free(&ud);
	side_close(&side);
}

static struct hello hello_of(uint32_t attempt, uint8_t flags, uint32_t seen, const uint8_t *record)
{
	struct hello h = {};

	h.magic = 0x796c6e69;
	h.kind = HELLO;
	h.flags = flags;
	h.eager = EAGER / 16 | (getenv("FI_INLAY_RAILS") ? 1 << 15 : 0);
	h.attempt = attempt;
	h.your_attempt = seen;
	inlay_connect_pack(&here, h.record_of_name);
	h.incarnation = 1;
	memcpy(&h.to, side.name + INLAY_CONNECT_SIZE, sizeof(h.to));
	memcpy(h.beyond, beyond, NAME);
	memcpy(h.record, record, sizeof(h.record));
	return h;
}

static void say(const struct hello *h)
{
	must(wr_post(&ud.sq, MLX5_OPCODE_SEND, wr_to(wr_buf(h, sizeof(*h), 0), &to_side), INLAY_SIGNALED | INLAY_RING | INLAY_INLINE));
	sent(&ud);
}

/* Says hello until there is an answer to this attempt. Returns the answer. */
static struct hello greet(uint32_t attempt, uint8_t flags, uint32_t seen, const uint8_t *record)
{
	double end = now() + DEADLINE, next = 0;
	struct ibv_sge sge = sge_of(&ud, 0, 4096);
	struct hello h = hello_of(attempt, flags, seen, record), answer;
	struct ibv_recv_wr wr = {}, *bad_wr;
	struct ibv_wc wc;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	must(ibv_post_recv(ud.qp, &wr, &bad_wr));
	for (;;) {
		assert_true(now() < end);
		if (now() > next) {
			say(&h);
			next = now() + 0.1;
		}
		poll_all();
		if (ibv_poll_cq(ud.rcq, 1, &wc) != 1)
			continue;
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.byte_len, 40 + sizeof(answer));
		memcpy(&answer, ud.buf + 40, sizeof(answer));
		memcpy(beyond, answer.beyond, NAME);
		if (answer.kind == HELLO && answer.your_attempt == attempt && answer.flags & SEEN)
			return answer;
		must(ibv_post_recv(ud.qp, &wr, &bad_wr));
	}
}

static struct wire message(uint64_t tag, const char *text)
{
	struct wire m = {0, 1, 0, tag, {0}};

	memcpy(m.payload, text, sizeof(m.payload));
	return m;
}

/* A receive of this tag gets this text. Returns whose it was. */
static fi_addr_t gets(uint64_t tag, const char *text)
{
	struct done *d;
	char in[8] = {0};

	must(fi_trecv(side.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, tag, 0, in));
	d = good(&side, in);
	assert_int_equal(d->e.len, sizeof(in));
	assert_memory_equal(in, text, sizeof(in));
	return d->source;
}

/* The side learns the address of a hello's sender */
static fi_addr_t learns(const struct hello *h)
{
	uint8_t name[NAME];

	memcpy(name, h->record_of_name, INLAY_CONNECT_SIZE);
	memcpy(name + INLAY_CONNECT_SIZE, &h->incarnation, sizeof(h->incarnation));
	return insert(&side, name);
}

/* A queue pair, and its record as bytes */
static struct inlay_connect_record connection(uint8_t *blob)
{
	struct inlay_connect_record record;

	if (out.qp)
		end_free(&out);
	end_make(&out, &usual);
	must(inlay_connect_local(&record, out.qp, NULL, NULL));
	inlay_connect_pack(&record, blob);
	return record;
}

/* ... that is made */
static struct hello join(uint32_t attempt)
{
	uint8_t blob[INLAY_CONNECT_SIZE];
	struct inlay_connect_record record = connection(blob), there;
	struct hello answer = greet(attempt, 0, 0, blob);

	must(inlay_connect_unpack(&there, answer.record, sizeof(answer.record), NULL));
	must(inlay_connect_rts(out.qp, &record, &there, NULL, NULL));
	end_take(&out, INLAY_UAR_DOORBELL);
	return greet(attempt, SEEN, answer.attempt, blob);
}

static void utter(const void *what, uint32_t len)
{
	must(inlay_post_send_inline(&out.sq, what, len, INLAY_SIGNALED | INLAY_RING));
	sent(&out);
}

/* FIN for a message to another, whatever its handle; atomic operations with a byte too many or too few */
static void forged(void)
{
	static uint8_t large[EAGER + 1], there[EAGER + 1];
	uint16_t sum[4] = {0}, expected = 0;
	struct __attribute__((packed)) {
		struct wire w;      /* its payload: the handle */
		uint32_t key, count;
		uint16_t values[2];
	} atomic = {{0, 0x84, FI_SUM << 8 | FI_UINT16, (uintptr_t)sum, {0}}, 0, 1, {5, 5}};
	struct wire m = {0, 0x40, 0, 0, {0}};
	fi_addr_t self = insert(&side, side.name);
	struct fid_mr *mr;

	fill(large, sizeof(large), 3);
	must(again(fi_tsend(side.ep, large, sizeof(large), NULL, self, 9, large)));
	for (uint32_t i = 0; i < 512; i++) {
		m.tag = i / 4 | (uint64_t)(i % 4) << 32;
		utter(&m, offsetof(struct wire, payload));
		poll_all();
	}
	must(fi_mr_reg(side.domain, sum, sizeof(sum), FI_REMOTE_WRITE, 0, 0, 0, &mr, NULL));
	atomic.key = (uint32_t)fi_mr_key(mr);
	for (uint32_t i = 0; i < 4; i++) {
		utter(&atomic, (uint32_t)(sizeof(atomic) - i));
		m = message(7, "one more");
		utter(&m, sizeof(m));
		gets(7, "one more");
		expected += i == 2 ? 5 : 0;
		assert_int_equal(sum[0], expected);
	}
	must(fi_close(&mr->fid));
	assert_int_equal(side.first, side.last);
	must(fi_trecv(side.ep, there, sizeof(there), NULL, self, 9, 0, there));
	good(&side, large);
	good(&side, there);
	assert_int_equal(differs(there, sizeof(there), 3), sizeof(there));
}

/*
 * Its device matches tags, and the messages are as for one that does not: they cost no entry of any receive queue, and
 * others that come as agreed still arrive.
 */
static void test_kinds(UNUSED void **state)
{
	const struct wire m = message(7, "one more");

	stranger_open();
	join(1);
	for (int i = 0; i < MESSAGES; i++) {
		utter(&m, sizeof(m));
		gets(7, "one more");
	}
	forged();
	stranger_close();
}

/* It is gone before it was ever connected: there is no way to it yet, and what it says then needs no answer. */
static void test_no_way(UNUSED void **state)
{
	uint8_t blob[INLAY_CONNECT_SIZE];
	const uint8_t dc = over_dc() ? OVER_DC : 0;
	struct hello h;

	stranger_open();
	connection(blob);
	h = hello_of(UINT32_MAX, dc, 0, blob); /* too late for a connection */
	say(&h);
	h.kind = REFUSED; /* from its next incarnation */
	h.incarnation = 2;
	say(&h);
	h = hello_of(0, dc, 0, blob);
	say(&h);
	greet(1, dc, 0, blob);
	stranger_close();
}

/* What a hello says over DC */
struct target {
	uint64_t key;
	uint32_t dctn, number;
};

static struct target target_of(uint32_t attempt, uint8_t flags)
{
	uint8_t blob[INLAY_CONNECT_SIZE] = {0};
	struct target target;

	memcpy(&target, greet(attempt, flags, 0, blob).record, sizeof(target));
	return target;
}

/* Over DC no message is matched by the device, whatever the peer says. The target that it names is the side's own. */
static void test_by_nic(UNUSED void **state)
{
	uint8_t blob[INLAY_CONNECT_SIZE] = {0};
	struct target target;
	struct hello answer;
	fi_addr_t to;
	int here_;

	stranger_open();
	target = target_of(1, OVER_DC);
	target.number += 1u << 20; /* the next attempt's */
	memcpy(blob, &target, sizeof(target));
	answer = greet(2, OVER_DC | BY_NIC, 0, blob);
	assert_memory_equal(answer.record, &target, sizeof(target));
	greet(2, OVER_DC | BY_NIC | SEEN, answer.attempt, blob);
	answer = hello_of(0, 0, 0, blob);
	to = learns(&answer);
	must(again(fi_tsend(side.ep, "to self.", 8, NULL, to, 7, &here_)));
	gets(7, "to self.");
	good(&side, &here_);
	stranger_close();
}

/* Makes an initiator, and connects for the first time */
static struct target initiator(void)
{
	struct mlx5dv_qp_init_attr dv = {};
	struct ibv_qp_init_attr_ex init = {};
	struct opt opt = usual;

	opt.cap.max_recv_wr = opt.cap.max_recv_sge = 0;
	end_make(&out, &opt);
	must(ibv_destroy_qp(out.qp));
	init.qp_type = IBV_QPT_DRIVER;
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	init.pd = dev.pd;
	init.send_cq = init.recv_cq = out.scq;
	init.cap = opt.cap;
	dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	out.qp = made(mlx5dv_create_qp(dev.ctx, &init, &dv));
	must(inlay_connect_dc(NULL, out.qp, 0, NULL, NULL));
	end_take(&out, INLAY_UAR_DOORBELL);
	return target_of(1, OVER_DC);
}

/* A message to the target, as if from the one that has this number */
static void send_to(const struct target *t, uint32_t number, const char *text)
{
	struct wire m = message(7, text);
	struct ibv_sge sge = {(uintptr_t)&m, sizeof(m), 0};
	struct inlay_av av = to_side;

	inlay_av_to_dct(&av, t->dctn, t->key);
	must(wr_post(&out.sq, MLX5_OPCODE_SEND_IMM, wr_imm(wr_to(wr_sge(&sge, 1), &av), inlay_to_be32(number)),
		     INLAY_INLINE | INLAY_SIGNALED | INLAY_RING));
	sent(&out);
}

/* Its last attempt is over: what still comes of it is nobody's message. */
static void test_late(UNUSED void **state)
{
	struct target old, next;

	stranger_open();
	old = initiator();
	send_to(&old, old.number, "the 1st.");
	gets(7, "the 1st.");
	next = target_of(2, OVER_DC);
	assert_int_not_equal(next.number, old.number);
	send_to(&old, old.number, "is late.");
	send_to(&old, next.number ^ 1, "no one's");
	send_to(&old, next.number, "the 2nd.");
	gets(7, "the 2nd.");
	stranger_close();
}

/*
 * It comes under other names, again and again. The memory for them does not grow without end. A message of the first,
 * which has waited for its receive, does not become another's.
 */
static void test_names(UNUSED void **state)
{
	uint8_t blob[INLAY_CONNECT_SIZE] = {0};
	struct target target;
	size_t before = 0;
	struct hello h;

	stranger_open();
	if (over_dc()) {
		target = initiator();
		send_to(&target, target.number, "the 1st.");
		poll_all();
	}
	h = hello_of(1, 0, 0, blob);
	h.kind = BYE;
	for (int i = 0; i < STRANGERS; i++) {
		if (i == STRANGERS / 2)
			before = mallinfo2().uordblks;
		h.incarnation++;
		say(&h);
		poll_all();
	}
	assert_in_range(mallinfo2().uordblks, 0, before + STRANGERS * 64);
	for (int i = 0; i < 2 * PEERS; i++, h.incarnation--)
		learns(&h);
	if (over_dc())
		assert_true(gets(7, "the 1st.") == FI_ADDR_NOTAVAIL);
	stranger_close();
}

/* It speaks in another's name: nothing comes of that. */
static void test_forged(UNUSED void **state)
{
	static struct side other;
	static const struct {
		uint8_t kind;
		uint32_t attempt;
		int later;         /* of its incarnation */
	} rows[] = {{HELLO, 1, 1}, {HELLO, 100, 0}, {BYE, 100, 0}, {BYE, 1, 1}, {REFUSED, 1, 1}};
	uint8_t blob[INLAY_CONNECT_SIZE];
	fi_addr_t to_other, to_side;
	struct hello h;

	stranger_open();
	connection(blob);
	side_open(&other, info_for(hints_for(FI_TAGGED)), 0);
	to_other = insert(&side, other.name);
	to_side = insert(&other, side.name);
	ping(&side, to_other, &other, to_side);
	for (size_t r = 0; r < ARRAY(rows); r++) {
		h = hello_of(rows[r].attempt, over_dc() ? OVER_DC : 0, 0, blob);
		h.kind = rows[r].kind;
		memcpy(h.record_of_name, other.name, INLAY_CONNECT_SIZE);
		memcpy(&h.incarnation, other.name + INLAY_CONNECT_SIZE, sizeof(h.incarnation));
		h.incarnation += (uint64_t)rows[r].later;
		say(&h);
		for (int i = 0; i < 3; i++)
			ping(&side, to_other, &other, to_side);
	}
	side_close(&other);
	stranger_close();
}

/* A stranger has claimed a later time. Whoever comes to its place is heard when the side knows it, or when the stranger is gone. */
static void test_later(UNUSED void **state)
{
	const uint8_t dc = over_dc() ? OVER_DC : 0;
	struct hello h, real;
	uint8_t blob[INLAY_CONNECT_SIZE];

	for (int gone = 0; gone < 2; gone++) {
		stranger_open();
		connection(blob);
		h = real = hello_of(1, dc, 0, blob);
		h.incarnation = UINT64_MAX;
		if (gone)
			learns(&real);
		say(&h);
		h.kind = BYE;
		if (gone)
			say(&h);
		else
			learns(&real);
		greet(2, dc, 0, blob); /* not the answer to the first */
		stranger_close();
	}
}

/* A message with a number, on a connection of this one */
static void numbered(uint16_t attempt, uint64_t number, const char *text)
{
	const struct wire rail = {0, 0xe0, attempt, number, {0}}, m = message(7, text);
	uint8_t bytes[offsetof(struct wire, payload) + sizeof(m)];

	memcpy(mempcpy(bytes, &rail, offsetof(struct wire, payload)), &m, sizeof(m));
	utter(bytes, sizeof(bytes));
	poll_all();
}

/* It says that another's endpoint on the second device is its own, and has wrong numbers, which harms nobody else. */
static void test_rails(UNUSED void **state)
{
	static char large[8 << 20], there[sizeof(large)]; /* pieces, of which the second device carries half */
	fi_addr_t self, to_stranger;
	unsigned long was;
	struct hello h;

	need_softdev("breaking a connection");
	stranger_open();
	join(1);
	h = join(2);
	h = hello_of(1, SEEN, 1, h.record);
	to_stranger = learns(&h);
	self = insert(&side, side.name);
	for (uint32_t i = 0; i < 500; i++) /* again and again, more often than there are buffers */
		numbered(2, MESSAGES, "a number");
	for (uint64_t i = MESSAGES; i; i--)
		numbered(2, i, "a number");
	do {
		was = softdev_sent(1);
		must(fi_trecv(side.ep, there, sizeof(there), NULL, FI_ADDR_UNSPEC, 9, 0, there));
		must(again(fi_tsend(side.ep, large, sizeof(large), NULL, self, 9, large)));
		assert_true(good(&side, there)->source == self);
		good(&side, large);
	} while (softdev_sent(1) < was + 4);
	memcpy(&h.to, beyond + INLAY_CONNECT_SIZE, sizeof(h.to)); /* its second endpoint: we are what follows the first */
	memcpy(h.beyond, side.name, NAME);
	h.source = 1ull << 32 | 1; /* the number of both attempts */
	face(beyond);
	say(&h);
	face(side.name);
	through(&side, self, &side, self);
	must(softdev_fault("syndrome=0x15@1"));
	for (int i = 0; i < 3; i++)
		assert_true(through(&side, self, &side, FI_ADDR_UNSPEC) == self);
	numbered(2, 0, "the gap.");
	gets(7, "the gap.");
	for (int i = 0; i < MESSAGES; i++)
		assert_true(gets(7, "a number") == to_stranger);
	numbered(2, MESSAGES + 2, "too old.");
	numbered(2, UINT64_MAX, "too far.");
	wait_polling(fi_tinject(side.ep, there, 8, to_stranger, 7) == -FI_ECONNRESET);
	join(3);
	numbered(2, 0, "too old.");
	for (uint64_t i = 0; i <= MESSAGES + 2; i++) {
		numbered(3, i, "the next");
		gets(7, "the next");
	}
	through(&side, self, &side, self);
	stranger_close();
}

int main(void)
{
	const struct CMUnitTest rc[] = {
		T(test_kinds), T(test_no_way), T(test_names), T(test_forged), T(test_later),
	};
	const struct CMUnitTest dc[] = {
		T(test_late), T(test_by_nic), T(test_no_way), T(test_names), T(test_forged), T(test_later),
	};
	const struct CMUnitTest rails[] = {T(test_rails)};

	use_provider();
	setenv("FI_INLAY_RECEIVES", "16", 1);
	setenv("FI_INLAY_PEERS", "16", 1);
	setenv("FI_INLAY_BUFFERS", "2", 1);
	if (getenv("FI_INLAY_RAILS"))
		return cmocka_run_group_tests(rails, dev_open, dev_close);
	if (over_dc())
		return cmocka_run_group_tests(dc, dev_open, dev_close);
	return cmocka_run_group_tests(rc, dev_open, dev_close) || again_with("FI_INLAY_TAG_OFFLOAD", "64") ||
	       (setenv("SOFTDEV_DEVICES", "2", 1) || again_with("FI_INLAY_RAILS", "2"));
}
