/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * errors.c: what goes wrong with objects by device commands: QPs that come to ERR by command
 * and by themselves, and go up again; transitions from the wrong state; what is in use; and each
 * time what is told of it. Set-up calls that fail: connect/faults.c.
 */
#include "common.h"
#include "rig.h"

static struct how plain; /* all 0 */
static const struct how of_verbs = {.verbs = true};

static uint32_t state_of(struct inlay_devx_qp *qp)
{
	struct inlay_query_qp_out out;

	must(context(qp, QP, qpn, &out));
	return (uint32_t)inlay_qpc_get(&out.qpc, INLAY_QPC_STATE);
}

/*
 * That the device has refused a command, and all that is kept of it: of a kernel that keeps the
 * outbox to itself the errno is all
 */
static void refused(const struct inlay_devx_error *error, uint32_t opcode, uint8_t status)
{
	char text[INLAY_DEVX_TEXT];

	assert_int_equal(error->opcode, opcode);
	assert_int_equal(error->op_mod, 0);
	assert_int_equal(error->err, status_errno(status));
	assert_int_equal(error->status, rig.errno_only ? 0 : status);
	assert_int_equal(error->syndrome != 0, !rig.errno_only);
	inlay_devx_error_text(error, text, sizeof(text));
	assert_int_not_equal(strncmp(text, "unknown", 7), 0); /* it has a name */
	assert_null(strstr(text, "unknown status"));
	assert_int_equal(strstr(text, "(status 0x") != NULL, !rig.errno_only);
}

/* ---- ERR ---- */

/* Error completions of the send side, of WQEs from .. to - 1 */
static void sends_failed(struct side *s, uint8_t syndrome, uint32_t from, uint32_t to)
{
	const struct mlx5_cqe64 *cqe;

	for (; from != to; from++) {
		cqe = cqe_wait(s->cq);
		assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_REQ_ERR);
		assert_int_equal(inlay_cqe_syndrome(cqe), syndrome);
		assert_int_equal(inlay_cqe_qpn(cqe), s->qpn);
		assert_int_equal(inlay_cqe_wqe_counter(cqe), (uint16_t)from);
		assert_true(0 < inlay_sq_release(s->sq, cqe));
		inlay_cq_advance(s->cq, 1);
	}
}

static void receives_flushed(struct side *s, uint32_t n)
{
	const struct mlx5_cqe64 *cqe;

	while (n--) {
		cqe = cqe_wait(s->rxcq);
		assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_ERR);
		assert_int_equal(inlay_cqe_syndrome(cqe), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
		assert_int_equal(inlay_cqe_qpn(cqe), s->qpn);
		assert_true(0 < inlay_rq_release(s->rq, cqe));
		inlay_cq_advance(s->rxcq, 1);
	}
	assert_int_equal(inlay_rq_pending(s->rq), 0);
	expect_nothing(s->rxcq);
}

static void give(struct side *s, uint32_t n)
{
	struct ibv_sge sge = piece(s, 0, 64);

	while (n--)
		must(inlay_post_recv(s->rq, &sge, 1));
	inlay_rq_ring(s->rq);
}

/* Down and up again */
static void up(struct side *s, struct side *peer)
{
	struct opt opt = side_opt(&s->how);

	if (s->how.verbs) {
		qp_to(s->verbs.qp, IBV_QPS_RESET);
		inlay_sq_reset(s->sq);
		inlay_rq_reset(s->rq);
		qp_init(s->verbs.qp, &opt);
		qp_connect(s->verbs.qp, peer->qpn, &opt);
	} else {
		must(inlay_devx_qp_to_reset(&s->qp));
		assert_int_equal(s->qp.state, INLAY_QP_STATE_RST);
		assert_int_equal(inlay_sq_pending(s->sq), 0);
		assert_int_equal(inlay_rq_pending(s->rq), 0);
		side_connect(s, peer);
	}
	inlay_cq_clean(s->cq, s->qpn, NULL, NULL);
	inlay_cq_clean(s->rxcq, s->qpn, NULL, NULL);
	assert_null(inlay_cq_peek(s->cq));
	assert_null(inlay_cq_peek(s->rxcq));
}

static void to_error(void **state)
{
	static struct side a, b;
	uint32_t round, i, first;

	(void)state;
	for (round = 0; round < 6; round++) {
		if (round % 3 == 0) {
			rig_empty(NULL);
			sides_make(&a, &plain, &b, round ? &of_verbs : &plain);
		}
		exercise(&a, &b, 20);
		/* The peer has no receive: these stay, until they are flushed in order, signaled or not */
		give(&a, 5);
		first = inlay_sq_index(a.sq);
		for (i = 0; i < 7; i++)
			must(inlay_post_send_inline(a.sq, &i, 4, i & 1 ? 0 : INLAY_SIGNALED));
		inlay_sq_ring(a.sq);
		expect_nothing(a.cq);
		assert_int_equal(state_of(&a.qp), INLAY_QP_STATE_RTS);
		must(inlay_devx_qp_to_error(&a.qp));
		assert_int_equal(a.qp.state, INLAY_QP_STATE_ERR);
		assert_int_equal(state_of(&a.qp), INLAY_QP_STATE_ERR);
		if (round % 3 < 2) {
			sends_failed(&a, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, first, first + 7);
			assert_int_equal(inlay_sq_pending(a.sq), 0);
			expect_nothing(a.cq);
			receives_flushed(&a, 5);
		}
		/* What is posted now is flushed too */
		if (round % 3 == 1) {
			must(inlay_post_nop(a.sq, INLAY_SIGNALED));
			inlay_sq_ring(a.sq);
			sends_failed(&a, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, first + 7, first + 8);
		}
		must(inlay_devx_qp_to_error(&a.qp));
		up(&a, &b);
		up(&b, &a);
		exercise(&a, &b, 20);
		if (round % 3 == 2)
			sides_free(&a, &b);
	}
}

/* What the peer refuses brings both ends to ERR without a command */
static void by_itself(void **state)
{
	static struct side a, b;
	struct ibv_sge sge;
	uint32_t first;

	(void)state;
	sides_make(&a, &plain, &b, &plain);
	first = inlay_sq_index(a.sq);
	sge = piece(&a, 0, 64);
	give(&b, 1);
	must(inlay_post_write(a.sq, at_peer(&b, 0), b.mr->rkey ^ 0x5500, &sge, 1, INLAY_SIGNALED));
	must(inlay_post_nop(a.sq, INLAY_SIGNALED | INLAY_RING));
	sends_failed(&a, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, first, first + 1);
	sends_failed(&a, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, first + 1, first + 2);
	receives_flushed(&b, 1);
	assert_int_equal(state_of(&a.qp), INLAY_QP_STATE_ERR);
	assert_int_equal(state_of(&b.qp), INLAY_QP_STATE_ERR);
	assert_int_equal(a.qp.state, INLAY_QP_STATE_RTS); /* the last transition by command */
	up(&a, &b);
	up(&b, &a);
	exercise(&a, &b, 20);
	sides_free(&a, &b);
}

/* ---- Transitions ---- */

enum { TO_INIT, TO_RTR, TO_RTS, TO_ERROR, TO_RESET, MOVES };

static int move(struct inlay_devx_qp *qp, int to, const struct inlay_devx_path *path, const struct inlay_connect_record *peer)
{
	switch (to) {
	case TO_INIT:
		return inlay_devx_qp_to_init(qp, path);
	case TO_RTR:
		return inlay_devx_qp_to_rtr(qp, path, peer);
	case TO_RTS:
		return inlay_devx_qp_to_rts(qp, path);
	case TO_ERROR:
		return inlay_devx_qp_to_error(qp);
	default:
		return inlay_devx_qp_to_reset(qp);
	}
}

/* From each state by each transition, of QPs of each type */
static void transitions(void **state)
{
	static const uint32_t opcodes[MOVES] = {INLAY_CMD_OP_RST2INIT_QP, INLAY_CMD_OP_INIT2RTR_QP, INLAY_CMD_OP_RTR2RTS_QP,
						INLAY_CMD_OP_2ERR_QP, INLAY_CMD_OP_2RST_QP};
	static const uint32_t after[MOVES] = {INLAY_QP_STATE_INIT, INLAY_QP_STATE_RTR, INLAY_QP_STATE_RTS, INLAY_QP_STATE_ERR,
					      INLAY_QP_STATE_RST};
	static const uint32_t types[] = {INLAY_QP_ST_RC, INLAY_QP_ST_UC, INLAY_QP_ST_UD};
	struct inlay_connect_record mine, *peer;
	struct how how = plain;
	static struct side s;
	uint32_t type, from, to, i, was;
	bool good;

	(void)state;
	for (type = 0; type < ARRAY(types); type++) {
		rig_empty(NULL);
		how.type = types[type];
		side_make(&s, &how);
		must(inlay_devx_qp_address(&s.qp, &s.path, &mine));
		peer = types[type] == INLAY_QP_ST_UD ? NULL : &mine;
		/* A peer where none should be, and none where one should be */
		must(inlay_devx_qp_to_init(&s.qp, &s.path));
		assert_int_equal(inlay_devx_qp_to_rtr(&s.qp, &s.path, peer ? NULL : &mine), -EINVAL);
		assert_int_equal(state_of(&s.qp), INLAY_QP_STATE_INIT);
		for (from = 0; from <= MOVES - 1; from++)
			for (to = 0; to < MOVES; to++) {
				must(inlay_devx_qp_to_reset(&s.qp));
				for (i = 0; from < TO_ERROR && i <= from; i++)
					must(move(&s.qp, (int)i, &s.path, peer));
				if (from == TO_ERROR)
					must(inlay_devx_qp_to_error(&s.qp));
				was = after[from];
				assert_int_equal(s.qp.state, was);
				good = to >= TO_ERROR || to == (from == TO_RESET ? (uint32_t)TO_INIT : from + 1);
				good = good && !(from == TO_ERROR && to < TO_ERROR);
				if (good) {
					must(move(&s.qp, (int)to, &s.path, peer));
					assert_int_equal(s.qp.error.opcode, opcodes[to]);
					assert_int_equal(s.qp.error.err, 0);
				} else {
					assert_int_equal(move(&s.qp, (int)to, &s.path, peer), -EINVAL);
					refused(&s.qp.error, opcodes[to], INLAY_CMD_STATUS_BAD_QP_STATE);
				}
				assert_int_equal(s.qp.state, good ? after[to] : was);
				assert_int_equal(state_of(&s.qp), s.qp.state);
			}
		/* Destroyed from wherever it is; then nothing moves any more */
		side_free(&s);
		memset(&s.qp, 0, sizeof(s.qp));
		for (to = 0; to < MOVES; to++)
			assert_int_equal(move(&s.qp, (int)to, &s.path, peer), -EINVAL);
		assert_int_equal(inlay_devx_qp_address(&s.qp, &s.path, &mine), -EINVAL);
	}
}

/* ---- In use ---- */

static void in_use(void **state)
{
	struct inlay_devx_rmp rmp;
	struct how how = plain;
	static struct side a, b;

	(void)state;
	rmp_open(&rmp, 16, 0);
	how.srqn = rmp.rmpn;
	sides_make(&a, &plain, &b, &plain);
	assert_int_equal(inlay_devx_cq_destroy(&a.scq), -EBUSY);
	assert_int_equal(inlay_devx_cq_destroy(&a.rcq), -EBUSY);
	assert_int_equal(inlay_devx_umem_dereg(&rig.umem), -EBUSY);
	assert_int_equal(inlay_devx_uar_free(&rig.uar), -EBUSY);
	assert_int_equal(ibv_dealloc_pd(dev.pd), EBUSY);
	/* All as it was */
	assert_non_null(a.scq.obj);
	assert_non_null(rig.umem.umem);
	assert_non_null(rig.uar.devx);
	exercise(&a, &b, 50);
	sides_free(&a, &b);
	side_make(&a, &how);
	assert_int_equal(inlay_devx_rmp_destroy(&rmp), -EBUSY);
	side_free(&a);
	/* Its ring alone still holds the umem */
	assert_int_equal(inlay_devx_umem_dereg(&rig.umem), -EBUSY);
	must(inlay_devx_rmp_destroy(&rmp));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(to_error),
		devx_test(by_itself),
		devx_test(transitions),
		devx_test(in_use),
	};

	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("devx_errors", tests, rig_open, rig_close) ||
	       again_with("SOFTDEV_LINK", "ib") ||
	       again_with("SOFTDEV_MANUAL", "1") || again_trapped() || again_errno();
}
