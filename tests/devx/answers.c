/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * answers.c: what the device says: asynchronous queries of many objects, events of all kinds
 * that objects raise, and answers of any bytes to builders; call.c has those to queries.
 *
 * Of libmlx5's calls this program has its own, which go on to libmlx5 and, when a test wants it,
 * change what comes back.
 */
#include "common.h"
#include "rig.h"
#include <dlfcn.h>

/* ---- A device gone mad ---- */

static struct {
	bool on;
	int calls, refused;
} mad;

/* Any bytes, the status among them: 0 often enough that what follows is looked at. Returns what the kernel says */
static int spoil(int err, void *out, size_t outlen)
{
	uint8_t *box = (uint8_t *)out;
	size_t i;

	if (!mad.on || err)
		return err;
	mad.calls++;
	for (i = 1; i < outlen; i++)
		box[i] = (uint8_t)rnd();
	box[0] = rnd_below(4) ? 0 : (uint8_t)rnd();
	if (rnd_below(8) == 0)
		return EREMOTEIO;
	return rnd_below(16) == 0 ? 1 + (int)rnd_below(130) : 0;
}

#define NEXT(name) __typeof__(&name) next = (__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name)

#ifdef __cplusplus
extern "C" {
#endif

int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t inlen, void *out, size_t outlen)
{
	NEXT(mlx5dv_devx_general_cmd);

	return spoil(next(context, in, inlen, out, outlen), out, outlen);
}

/* A creation that the kernel calls good has a handle, whatever the outbox says; one that it refuses has none */
struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t inlen, void *out,
					       size_t outlen)
{
	NEXT(mlx5dv_devx_obj_create);
	struct mlx5dv_devx_obj *obj = next(context, in, inlen, out, outlen);
	int err;

	if (!obj || !mad.on)
		return obj;
	err = spoil(0, out, outlen);
	if (!err)
		return obj;
	mad.refused++;
	mlx5dv_devx_obj_destroy(obj);
	errno = err;
	return NULL;
}

int mlx5dv_devx_obj_modify(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen)
{
	NEXT(mlx5dv_devx_obj_modify);

	return spoil(next(obj, in, inlen, out, outlen), out, outlen);
}

#ifdef __cplusplus
}
#endif

static struct how plain; /* all 0 */

/* An errno, and the same in the error; a success has no status */
static int sane(int err, const struct inlay_devx_error *error)
{
	assert_true(err <= 0 && err > -4096);
	assert_int_equal(error->err, err);
	if (!err)
		assert_int_equal(error->status, 0);
	return err;
}

static void builders_of_any_answer(void **state)
{
	struct inlay_devx_mkey_attr keya;
	struct inlay_devx_dct_attr dcta;
	struct inlay_devx_rmp_attr rmpa;
	struct inlay_devx_cq_attr cqa;
	struct inlay_devx_qp_attr qpa;
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_mkey key;
	struct inlay_devx_dct dct;
	struct inlay_devx_rmp rmp, good_rmp;
	struct inlay_devx_uar uar;
	struct inlay_devx_cq cq, good;
	struct inlay_devx_qp qp;
	uint32_t round, made = 0, queues = rig.uar.uar.queues;
	int err;

	(void)state;
	cq_open(&good, 64, 64);
	rmp_open(&good_rmp, 16, 0);
	cqa = cq_want(64, 64);
	qpa = qp_want(good.cq.cqn, good.cq.cqn, 64, 64);
	rmpa = rmp_want(16, 64, 0);
	memset(&keya, 0, sizeof(keya));
	keya.addr = 0x10000;
	keya.len = 4096;
	keya.memory = place_ring(4096);
	keya.pdn = rig.pdn;
	memset(&dcta, 0, sizeof(dcta));
	dcta.pdn = rig.pdn;
	dcta.cqn = good.cq.cqn;
	dcta.srqn = good_rmp.rmpn;
	mad.on = true;
	mad.calls = mad.refused = 0;
	for (round = 0; round < 120; round++) {
		err = sane(inlay_devx_cq_create(&cq, dev.ctx, &cqa), &cq.error);
		assert_int_equal(cq.obj != NULL, err == 0);
		assert_true(err || cq.cq.cqn >> 24 == 0);
		must(inlay_devx_cq_destroy(&cq));
		qpa.flags = round & 1 ? INLAY_DEVX_QP_MMO : 0;
		err = inlay_devx_qp_create(&qp, dev.ctx, &qpa);
		assert_int_equal(qp.obj != NULL, err == 0);
		assert_true(err == -ENOTSUP || sane(err, &qp.error) == err);
		assert_true(err || qp.qpn >> 24 == 0);
		assert_int_equal(rig.uar.uar.queues, queues + !err);
		/* A transition of a QP that has another number than it was told: the kernel says no, and nothing moves */
		if (!err && inlay_devx_qp_to_init(&qp, &path))
			assert_int_equal(qp.state, INLAY_QP_STATE_RST);
		must(inlay_devx_qp_destroy(&qp));
		assert_int_equal(rig.uar.uar.queues, queues);
		err = sane(inlay_devx_rmp_create(&rmp, dev.ctx, &rmpa), &rmp.error);
		assert_int_equal(rmp.obj != NULL, err == 0);
		must(inlay_devx_rmp_destroy(&rmp));
		err = sane(inlay_devx_mkey_create(&key, dev.ctx, &keya), &key.error);
		assert_int_equal(key.obj != NULL, err == 0);
		must(inlay_devx_mkey_destroy(&key));
		err = sane(inlay_devx_dct_create(&dct, dev.ctx, &dcta, &path), &dct.error);
		assert_int_equal(dct.obj != NULL, err == 0);
		made += !err;
		must(inlay_devx_dct_destroy(&dct));
		/* Registers of any size that cannot be are refused */
		if (round < 100) {
			err = inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL);
			assert_int_equal(uar.devx != NULL, err == 0);
			assert_true(err || !uar.uar.size || (inlay_is_pow2(uar.uar.size) && uar.uar.size >= 64));
			must(inlay_devx_uar_free(&uar));
		}
	}
	mad.on = false;
	assert_true(mad.calls > 600 && mad.refused > 15 && made > 30 && made < 105);
	must(inlay_devx_rmp_destroy(&good_rmp));
	must(inlay_devx_cq_destroy(&good));
}

/* A query answered later: it takes a buffer that holds the answer, and comes once */
static void answered_later(void **state)
{
	struct mlx5dv_devx_cmd_comp *answers = mlx5dv_devx_create_cmd_comp(dev.ctx);
	const struct inlay_query_cq_out *out;
	struct inlay_devx_error error;
	struct inlay_devx_cq cq;
	struct inlay_cmd_in in;
	uint64_t wr_id, buf[64];
	size_t len;

	(void)state;
	assert_non_null(answers);
	must(fcntl(answers->fd, F_SETFL, fcntl(answers->fd, F_GETFL) | O_NONBLOCK));
	cq_open(&cq, 32, 128);
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_QUERY_CQ, cq.cq.cqn);
	for (len = 0; len < 16; len += 5) {
		assert_int_equal(inlay_devx_query_async(cq.obj, &in, len, 0x110, 1, answers), -EINVAL);
		assert_int_equal(inlay_devx_query_async(cq.obj, &in, sizeof(in), len, 1, answers), -EINVAL);
	}
	assert_int_equal(inlay_devx_query_async(cq.obj, NULL, 16, 0x110, 1, answers), -EINVAL);
	must(inlay_devx_query_async(cq.obj, &in, sizeof(in), 0x110, 77, answers));
	memset(&in, 0xff, sizeof(in)); /* not needed any more */
	await(inlay_devx_answer(answers, buf, INLAY_DEVX_ANSWER + 0x108, &wr_id, &error) == -ENOBUFS);
	assert_true(wr_id == UINT64_MAX && error.status == 0);
	must(inlay_devx_answer(answers, buf, INLAY_DEVX_ANSWER + 0x110, &wr_id, &error));
	assert_true(wr_id == 77 && error.err == 0);
	out = (const struct inlay_query_cq_out *)(const void *)(buf + 1);
	assert_int_equal(inlay_cqc_get(&out->cqc, INLAY_CQC_LOG_CQ_SIZE), 5);
	assert_int_equal(inlay_cqc_get(&out->cqc, INLAY_CQC_CQE_SZ), 1);
	assert_int_equal(inlay_devx_answer(answers, buf, sizeof(buf), &wr_id, &error), -EAGAIN);
	assert_true(wr_id == UINT64_MAX && error.status == 0 && error.err == -EAGAIN);
	/* Closed with one unread */
	inlay_devx_inbox_(&in, sizeof(in), INLAY_CMD_OP_QUERY_CQ, cq.cq.cqn);
	must(inlay_devx_query_async(cq.obj, &in, sizeof(in), 0x110, 78, answers));
	mlx5dv_devx_destroy_cmd_comp(answers);
	must(inlay_devx_cq_destroy(&cq));
}

/* ---- Events ---- */

static int event_within(struct mlx5dv_devx_event_channel *channel, struct inlay_devx_event *event)
{
	int err;

	await((err = inlay_devx_event_get(channel, event)) != -EAGAIN);
	return err;
}

static void nothing_more(struct mlx5dv_devx_event_channel *channel)
{
	struct inlay_devx_event event;

	settle();
	assert_int_equal(inlay_devx_event_get(channel, &event), -EAGAIN);
}

static void write_one(struct side *a, struct side *b)
{
	uint32_t word = 1;

	must(inlay_post_write_inline(a->sq, at_peer(b, 0), b->mr->rkey, &word, 4, INLAY_SIGNALED));
	inlay_sq_ring(a->sq);
}

static void completions(void **state)
{
	uint16_t comp = INLAY_EVENT_COMP;
	struct mlx5dv_devx_event_channel *full, *bare;
	struct inlay_devx_event event;
	static struct side a, b;
	uint32_t i;

	(void)state;
	sides_make(&a, &plain, &b, &plain);
	full = channel_open(false);
	bare = channel_open(true);
	must(inlay_devx_subscribe(full, a.scq.obj, &comp, 1, 0x1111));
	must(inlay_devx_subscribe(bare, a.scq.obj, &comp, 1, 0x2222));
	/* Nothing is told of a CQ that is not armed */
	write_one(&a, &b);
	take_sent(&a, 0, NULL);
	nothing_more(full);
	for (i = 1; i < 6; i++) {
		must(inlay_cq_arm(a.cq, 0));
		nothing_more(full);
		write_one(&a, &b);
		must(event_within(full, &event));
		assert_int_equal(event.type, INLAY_EVENT_COMP);
		assert_int_equal(event.number, a.cq->cqn);
		assert_true(event.cookie == 0x1111);
		assert_int_equal(event.bytes, 64);
		inlay_cq_event(a.cq);
		take_sent(&a, i, NULL);
		write_one(&a, &b);
		take_sent(&a, ++i, NULL);
		nothing_more(full);
	}
	/* The other channel keeps one until it is read, and says no more than the cookie */
	must(event_within(bare, &event));
	assert_true(event.cookie == 0x2222 && event.bytes == 0 && event.number == 0);
	nothing_more(bare);
	/* A destroyed object, a closed channel: no events, no harm */
	mlx5dv_devx_destroy_event_channel(full);
	must(inlay_cq_arm(a.cq, 0));
	write_one(&a, &b);
	take_sent(&a, i, NULL);
	must(event_within(bare, &event));
	sides_free(&a, &b);
	nothing_more(bare);
	mlx5dv_devx_destroy_event_channel(bare);
}

static void subscriptions_refused(void **state)
{
	static const uint16_t bad[] = {INLAY_EVENT_PORT_CHANGE, INLAY_EVENT_INTERNAL_ERROR, 0x3f, 0x40, 0xff, 0x100,
				       0xffff};
	uint16_t many[17], comp = INLAY_EVENT_COMP, port = INLAY_EVENT_PORT_CHANGE, two[2] = {INLAY_EVENT_COMP, 0x3f};
	struct mlx5dv_devx_event_channel *channel;
	static struct side a, b;
	size_t i;

	(void)state;
	sides_make(&a, &plain, &b, &plain);
	channel = channel_open(false);
	for (i = 0; i < ARRAY(many); i++)
		many[i] = INLAY_EVENT_COMP;
	assert_int_equal(inlay_devx_subscribe(channel, a.scq.obj, many, 0, 1), -EINVAL);
	assert_int_equal(inlay_devx_subscribe(channel, a.scq.obj, many, 17, 1), -EINVAL);
	for (i = 0; i < ARRAY(bad); i++)
		assert_int_equal(inlay_devx_subscribe(channel, a.scq.obj, &bad[i], 1, 1), -EINVAL);
	assert_int_equal(inlay_devx_subscribe(channel, NULL, &comp, 1, 1), -EINVAL);
	must(inlay_devx_subscribe(channel, NULL, &port, 1, 1));
	/* One of two is bad: neither is subscribed to */
	assert_int_equal(inlay_devx_subscribe(channel, a.scq.obj, two, 2, 1), -EINVAL);
	must(inlay_cq_arm(a.cq, 0));
	write_one(&a, &b);
	take_sent(&a, 0, NULL);
	nothing_more(channel);
	sides_free(&a, &b);
	mlx5dv_devx_destroy_event_channel(channel);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(builders_of_any_answer),
		devx_test(answered_later),
		devx_test(completions),
		devx_test(subscriptions_refused),
	};

	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("devx_answers", tests, rig_open, rig_close) ||
	       again_with("SOFTDEV_LINK", "ib") ||
	       again_with("SOFTDEV_MANUAL", "1") || again_trapped();
}
