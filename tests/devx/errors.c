/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * errors.c: transitions of QPs by commands from every state, and what is told of those that are refused. Set-up calls that
 * fail: connect/faults.c. Queues in error: queue/storm.c; keys.c goes down and up again.
 */
#include "common.h"
#include "rig.h"

static struct how plain; /* all 0 */

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
	assert_int_equal(error->err, -EINVAL);
	assert_int_equal(error->status, rig.errno_only ? 0 : status);
	assert_int_equal(error->syndrome != 0, !rig.errno_only);
	inlay_devx_error_text(error, text, sizeof(text));
	assert_int_not_equal(strncmp(text, "unknown", 7), 0); /* it has a name */
	assert_null(strstr(text, "unknown status"));
	assert_int_equal(strstr(text, "(status 0x") != NULL, !rig.errno_only);
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(transitions),
	};

	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("devx_errors", tests, rig_open, rig_close) ||
	       again_with("SOFTDEV_LINK", "ib") ||
	       again_with("SOFTDEV_MANUAL", "1") || again_trapped() || again_errno();
}
