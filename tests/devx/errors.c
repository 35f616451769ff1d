/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * errors.c: what goes wrong with objects by device commands: QPs that come to ERR by command
 * and by themselves, and go up again; transitions from the wrong state, numbers of what is not
 * there, what is in use, and every set-up call that fails; and each time what is told of it.
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
	uint32_t left;

	if (s->how.verbs) {
		qp_to(s->verbs.qp, IBV_QPS_RESET);
		left = inlay_cq_clean(s->cq, s->qpn, NULL, NULL) + inlay_cq_clean(s->rxcq, s->qpn, NULL, NULL);
		inlay_sq_reset(s->sq);
		inlay_rq_reset(s->rq);
		qp_init(s->verbs.qp, &opt);
		qp_connect(s->verbs.qp, peer->qpn, &opt);
	} else {
		must(inlay_devx_qp_to_reset(&s->qp));
		assert_int_equal(s->qp.state, INLAY_QP_STATE_RST);
		left = inlay_cq_clean(s->cq, s->qpn, NULL, NULL) + inlay_cq_clean(s->rxcq, s->qpn, NULL, NULL);
		assert_int_equal(inlay_sq_pending(s->sq), 0);
		assert_int_equal(inlay_rq_pending(s->rq), 0);
		side_connect(s, peer);
	}
	(void)left;
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
		/*
		 * The peer has no receive: these stay, until they are flushed in order, signaled or
		 * not
		 */
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
	uint32_t kind, first;
	struct ibv_sge sge;

	(void)state;
	sides_make(&a, &plain, &b, &plain);
	for (kind = 0; kind < 4; kind++) {
		first = inlay_sq_index(a.sq);
		sge = piece(&a, 0, 64);
		give(&b, kind == 3 ? 0 : 1);
		if (kind == 0)
			must(inlay_post_write(a.sq, at_peer(&b, 0), b.mr->rkey ^ 0x5500, &sge, 1, INLAY_SIGNALED));
		else if (kind == 1)
			must(inlay_post_write(a.sq, at_peer(&b, BYTES), b.mr->rkey, &sge, 1, INLAY_SIGNALED));
		else if (kind == 2)
			must(inlay_post_read(a.sq, at_peer(&b, BYTES - 63), b.mr->rkey, &sge, 1, INLAY_SIGNALED));
		else
			sge.lkey ^= 0x5500;
		if (kind == 3)
			must(inlay_post_write(a.sq, at_peer(&b, 0), b.mr->rkey, &sge, 1, INLAY_SIGNALED));
		must(inlay_post_nop(a.sq, INLAY_SIGNALED));
		inlay_sq_ring(a.sq);
		sends_failed(&a, kind == 3 ? MLX5_CQE_SYNDROME_LOCAL_PROT_ERR : MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
			     first, first + 1);
		sends_failed(&a, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, first + 1, first + 2);
		assert_int_equal(state_of(&a.qp), INLAY_QP_STATE_ERR);
		assert_int_equal(a.qp.state, INLAY_QP_STATE_RTS); /* the last transition by command */
		if (kind < 3) {
			receives_flushed(&b, 1);
			assert_int_equal(state_of(&b.qp), INLAY_QP_STATE_ERR);
		}
		up(&a, &b);
		up(&b, &a);
		exercise(&a, &b, 20);
	}
	sides_free(&a, &b);
}

/* ---- Transitions ---- */

enum { TO_INIT, TO_RTR, TO_RTS, TO_ERROR, TO_RESET, MOVES };

static int move(struct inlay_devx_qp *qp, int to, const struct inlay_devx_path *path,
		const struct inlay_connect_record *peer)
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
	static const uint32_t opcodes[MOVES] = {INLAY_CMD_OP_RST2INIT_QP, INLAY_CMD_OP_INIT2RTR_QP,
						INLAY_CMD_OP_RTR2RTS_QP,
						INLAY_CMD_OP_2ERR_QP, INLAY_CMD_OP_2RST_QP};
	static const uint32_t after[MOVES] = {INLAY_QP_STATE_INIT, INLAY_QP_STATE_RTR, INLAY_QP_STATE_RTS,
					      INLAY_QP_STATE_ERR,
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

/* What a path says that cannot be */
static void bad_paths(void **state)
{
	struct inlay_connect_record good, bad;
	struct inlay_devx_path path;
	static struct side a, b;

	(void)state;
	side_make(&a, &plain);
	side_make(&b, &plain);
	side_address(&b, &good);
	path = a.path;
	path.port = 77;
	assert_int_not_equal(inlay_devx_qp_to_init(&a.qp, &path), 0);
	assert_int_equal(a.qp.state, INLAY_QP_STATE_RST);
	assert_int_not_equal(inlay_devx_qp_address(&a.qp, &path, &bad), 0);
	if (dev.port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		path.port = 1;
		path.gid_index = 200;
		assert_int_not_equal(inlay_devx_qp_address(&a.qp, &path, &bad), 0);
	}
	must(inlay_devx_qp_to_init(&a.qp, &a.path));
	bad = good;
	bad.link = bad.link == INLAY_CONNECT_IB ? INLAY_CONNECT_ROCE_V2 : INLAY_CONNECT_IB;
	assert_int_equal(inlay_devx_qp_to_rtr(&a.qp, &a.path, &bad), -EINVAL);
	bad.link = 3;
	assert_int_equal(inlay_devx_qp_to_rtr(&a.qp, &a.path, &bad), -EINVAL);
	bad = good;
	bad.type = IBV_QPT_UC;
	assert_int_equal(inlay_devx_qp_to_rtr(&a.qp, &a.path, &bad), -EINVAL);
	bad = good;
	bad.sl = 16;
	assert_int_equal(inlay_devx_qp_to_rtr(&a.qp, &a.path, &bad), -EINVAL);
	bad = good;
	bad.qpn = 1u << 24;
	assert_int_equal(inlay_devx_qp_to_rtr(&a.qp, &a.path, &bad), -EINVAL);
	if (dev.port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		bad = good;
		memset(bad.mac, 0, 6);
		assert_int_equal(inlay_devx_qp_to_rtr(&a.qp, &a.path, &bad), -EINVAL);
	}
	path = a.path;
	path.mtu = 6;
	bad = good;
	bad.mtu = 0;
	assert_int_equal(inlay_devx_qp_to_rtr(&a.qp, &path, &bad), -EINVAL);
	assert_int_equal(a.qp.state, INLAY_QP_STATE_INIT);
	/* Nothing of it has stayed */
	side_connect(&a, &b);
	side_connect(&b, &a);
	exercise(&a, &b, 20);
	sides_free(&a, &b);
}

/* ---- Numbers of what is not there ---- */

static void bad_numbers(void **state)
{
	struct inlay_devx_umem umem = rig.umem;
	struct inlay_devx_mkey_attr mkey;
	struct inlay_devx_uar uar = rig.uar;
	struct inlay_devx_cq_attr cqa;
	struct inlay_devx_qp_attr qpa, good;
	struct inlay_devx_rmp_attr rmpa;
	struct inlay_devx_dct_attr dcta;
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_mkey key;
	struct inlay_devx_rmp rmp;
	struct inlay_devx_dct dct;
	struct inlay_devx_cq cq, made;
	struct inlay_devx_qp qp;
	uint32_t i, queues = rig.uar.uar.queues;

	(void)state;
	umem.id ^= 0x5aa5;
	uar.page_id ^= 0x5aa5;
	cq_open(&made, 64, 64);
	for (i = 0; i < 3; i++) {
		cqa = cq_want(64, 64);
		if (i == 0)
			cqa.ring.umem = &umem;
		else if (i == 1)
			cqa.record.umem = &umem;
		else
			cqa.uar = &uar;
		assert_int_equal(inlay_devx_cq_create(&cq, dev.ctx, &cqa), -EINVAL);
		assert_null(cq.obj);
		refused(&cq.error, INLAY_CMD_OP_CREATE_CQ, INLAY_CMD_STATUS_BAD_RES);
		must(inlay_devx_cq_destroy(&cq));
	}
	good = qp_want(made.cq.cqn, made.cq.cqn, 64, 64);
	for (i = 0; i < 7; i++) {
		qpa = good;
		if (i == 0)
			qpa.ring.umem = &umem;
		else if (i == 1)
			qpa.record.umem = &umem;
		else if (i == 2)
			qpa.send_cqn ^= 0x5aa5;
		else if (i == 3)
			qpa.recv_cqn ^= 0x5aa5;
		else if (i == 4)
			qpa.pdn ^= 0x5aa5;
		else if (i == 5)
			qpa.uar = &uar;
		else {
			qpa.rq_type = INLAY_RQ_TYPE_SHARED;
			qpa.rq_wqes = 0;
			qpa.srqn = 0x5aa5a5;
		}
		assert_int_equal(inlay_devx_qp_create(&qp, dev.ctx, &qpa), -EINVAL);
		assert_null(qp.obj);
		refused(&qp.error, INLAY_CMD_OP_CREATE_QP, INLAY_CMD_STATUS_BAD_RES);
		must(inlay_devx_qp_destroy(&qp));
		assert_int_equal(rig.uar.uar.queues, queues);
	}
	for (i = 0; i < 3; i++) {
		rmpa = rmp_want(16, 64, 0);
		if (i == 0)
			rmpa.ring.umem = &umem;
		else if (i == 1)
			rmpa.record.umem = &umem;
		else
			rmpa.pdn ^= 0x5aa5;
		assert_int_equal(inlay_devx_rmp_create(&rmp, dev.ctx, &rmpa), -EINVAL);
		assert_null(rmp.obj);
		refused(&rmp.error, INLAY_CMD_OP_CREATE_RMP, INLAY_CMD_STATUS_BAD_RES);
		must(inlay_devx_rmp_destroy(&rmp));
	}
	rmp_open(&rmp, 16, 0);
	for (i = 0; i < 3; i++) {
		memset(&dcta, 0, sizeof(dcta));
		dcta.pdn = rig.pdn ^ (i == 0 ? 0x5aa5 : 0);
		dcta.cqn = made.cq.cqn ^ (i == 1 ? 0x5aa5 : 0);
		dcta.srqn = rmp.rmpn ^ (i == 2 ? 0x5aa5 : 0);
		assert_int_equal(inlay_devx_dct_create(&dct, dev.ctx, &dcta, &path), -EINVAL);
		assert_null(dct.obj);
		refused(&dct.error, INLAY_CMD_OP_CREATE_DCT, INLAY_CMD_STATUS_BAD_RES);
		must(inlay_devx_dct_destroy(&dct));
	}
	for (i = 0; i < 2; i++) {
		memset(&mkey, 0, sizeof(mkey));
		mkey.addr = 0x10000;
		mkey.len = 4096;
		mkey.memory = place_ring(4096);
		mkey.memory.umem = i ? &rig.umem : &umem;
		mkey.pdn = rig.pdn ^ (i ? 0x5aa5 : 0);
		assert_int_equal(inlay_devx_mkey_create(&key, dev.ctx, &mkey), -EINVAL);
		assert_null(key.obj);
		refused(&key.error, INLAY_CMD_OP_CREATE_MKEY, INLAY_CMD_STATUS_BAD_RES);
		must(inlay_devx_mkey_destroy(&key));
	}
	must(inlay_devx_rmp_destroy(&rmp));
	must(inlay_devx_cq_destroy(&made));
}

/* Objects of another context are as good as none */
static void of_another_context(void **state)
{
	struct inlay_devx_qp_attr qpa;
	struct ibv_context *ctx;
	struct inlay_devx_cq cq;
	struct inlay_devx_qp qp;

	(void)state;
	must(inlay_devx_open(dev.ctx->device, &ctx));
	cq_open(&cq, 64, 64);
	qpa = qp_want(cq.cq.cqn, cq.cq.cqn, 64, 64);
	assert_int_equal(inlay_devx_qp_create(&qp, ctx, &qpa), -EINVAL);
	assert_null(qp.obj);
	refused(&qp.error, INLAY_CMD_OP_CREATE_QP, INLAY_CMD_STATUS_BAD_RES);
	must(inlay_devx_cq_destroy(&cq));
	must(ibv_close_device(ctx));
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

/* ---- Every call that fails ---- */

struct all {
	struct inlay_devx_umem umem;
	struct inlay_devx_uar uar;
	struct inlay_devx_cq cq;
	struct inlay_devx_rmp rmp;
	struct inlay_devx_xrq xrq;
	struct inlay_devx_qp qp, dci, peerless;
	struct inlay_devx_dct dct;
	struct inlay_devx_mkey key, list;
	struct ibv_pd *pd;
	uint8_t *memory;
	uint64_t box[64];
};

#define ALL_BYTES (1u << 20)

#define STEP(call) \
	do { \
		int err_ = (call); \
 \
		if (err_) \
			return err_; \
	} while (0)

/* One of each, in this order, until something fails */
static int set_up(struct all *all, bool tags)
{
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_mkey_attr mkey;
	struct inlay_devx_dct_attr dcta;
	struct inlay_devx_xrq_attr xrqa;
	struct inlay_devx_rmp_attr rmpa;
	struct inlay_devx_cq_attr cqa;
	struct inlay_devx_qp_attr qpa;
	struct ibv_sge sge[2];
	uint32_t pdn = 0;

	all->pd = ibv_alloc_pd(dev.ctx);
	if (!all->pd)
		return -ENOMEM;
	must(inlay_pdn_from_pd(&pdn, all->pd));
	STEP(inlay_devx_umem_reg(&all->umem, dev.ctx, all->memory, ALL_BYTES, IBV_ACCESS_LOCAL_WRITE, INLAY_DEVX_PAGE));
	STEP(inlay_devx_uar_alloc(&all->uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_LOCKED));
	rig.records = 0;
	rig.rings = RECORDS;
	cqa = cq_want(64, 64);
	cqa.ring.umem = cqa.record.umem = &all->umem;
	cqa.uar = &all->uar;
	STEP(inlay_devx_cq_create(&all->cq, dev.ctx, &cqa));
	rmpa = rmp_want(16, 64, 0);
	rmpa.ring.umem = rmpa.record.umem = &all->umem;
	rmpa.pdn = pdn;
	STEP(inlay_devx_rmp_create(&all->rmp, dev.ctx, &rmpa));
	if (tags) {
		memset(&xrqa, 0, sizeof(xrqa));
		xrqa.shared = rmp_want(16, 64, 0);
		xrqa.shared.ring.umem = xrqa.shared.record.umem = &all->umem;
		xrqa.shared.pdn = pdn;
		xrqa.cqn = all->cq.cq.cqn;
		xrqa.tags = 4;
		STEP(inlay_devx_xrq_create(&all->xrq, dev.ctx, &xrqa));
	}
	qpa = qp_want(all->cq.cq.cqn, all->cq.cq.cqn, 16, 16);
	qpa.ring.umem = qpa.record.umem = &all->umem;
	qpa.uar = &all->uar;
	qpa.pdn = pdn;
	STEP(inlay_devx_qp_create(&all->qp, dev.ctx, &qpa));
	STEP(inlay_devx_qp_connect_self(&all->qp, &path));
	qpa.type = INLAY_QP_ST_UD;
	qpa.ring.offset = place_ring(4096).offset;
	STEP(inlay_devx_qp_create(&all->peerless, dev.ctx, &qpa));
	STEP(inlay_devx_qp_connect(&all->peerless, &path, NULL));
	qpa.type = INLAY_QP_ST_DCI;
	qpa.rq_wqes = 0;
	qpa.rq_type = INLAY_RQ_TYPE_SHARED;
	qpa.srqn = all->rmp.rmpn;
	qpa.ring.offset = place_ring(4096).offset;
	STEP(inlay_devx_qp_create(&all->dci, dev.ctx, &qpa));
	STEP(inlay_devx_qp_connect(&all->dci, &path, NULL));
	memset(&dcta, 0, sizeof(dcta));
	dcta.pdn = pdn;
	dcta.cqn = all->cq.cq.cqn;
	dcta.srqn = all->rmp.rmpn;
	STEP(inlay_devx_dct_create(&all->dct, dev.ctx, &dcta, &path));
	memset(&mkey, 0, sizeof(mkey));
	mkey.addr = 0x100000;
	mkey.len = 8192;
	mkey.memory.umem = &all->umem;
	mkey.memory.offset = place_ring(8192).offset;
	mkey.pdn = pdn;
	mkey.access = IBV_ACCESS_LOCAL_WRITE;
	STEP(inlay_devx_mkey_create(&all->key, dev.ctx, &mkey));
	sge[0].addr = sge[1].addr = 0x100000;
	sge[0].length = sge[1].length = 4096;
	sge[0].lkey = sge[1].lkey = all->key.key;
	STEP(inlay_devx_mkey_create_list(&all->list, dev.ctx, &mkey, sge, 2, all->box, sizeof(all->box)));
	STEP(inlay_devx_rmp_arm(&all->rmp, 5));
	STEP(inlay_devx_qp_to_error(&all->qp));
	return inlay_devx_qp_to_reset(&all->qp);
}

/* All of it, whatever of it there is; twice, since a second time does nothing */
static void tear_down(struct all *all)
{
	int twice;

	for (twice = 0; twice < 2; twice++) {
		must(inlay_devx_mkey_destroy(&all->list));
		must(inlay_devx_mkey_destroy(&all->key));
		must(inlay_devx_dct_destroy(&all->dct));
		must(inlay_devx_qp_destroy(&all->dci));
		must(inlay_devx_qp_destroy(&all->peerless));
		must(inlay_devx_qp_destroy(&all->qp));
		must(inlay_devx_xrq_destroy(&all->xrq));
		must(inlay_devx_rmp_destroy(&all->rmp));
		must(inlay_devx_cq_destroy(&all->cq));
		must(inlay_devx_uar_free(&all->uar));
		must(inlay_devx_umem_dereg(&all->umem)); /* -EBUSY would tell of an object that was forgotten */
		if (!twice && all->pd)
			must(ibv_dealloc_pd(all->pd)); /* the same */
	}
}

static void every_call_fails_once(void **state)
{
	static const struct {
		const char *name;
		int err;
	} ways[] = {{"ENOMEM", ENOMEM}, {"EINVAL", EINVAL}, {"EREMOTEIO", EREMOTEIO}};
	struct inlay_query_hca_cap_out cap;
	static struct all all;
	uint8_t *memory = (uint8_t *)pages(ALL_BYTES);
	uint32_t n, way, steps = 0;
	char spec[64];
	bool tags;
	int err;

	(void)state;
	need_softdev("making calls fail");
	must(inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL, &cap, NULL));
	tags = inlay_hca_cap_get(&cap.cap.general, INLAY_HCA_CAP_TAG_MATCHING) != 0;
	for (way = 0; way < ARRAY(ways); way++)
		for (n = 1, err = -1; err && n < 100; n++) {
			memset(&all, 0, sizeof(all));
			all.memory = memory;
			snprintf(spec, sizeof(spec), "setup=%s@%u", ways[way].name, n);
			must(softdev_fault(spec));
			err = set_up(&all, tags);
			must(softdev_fault(NULL));
			/* EREMOTEIO with no status in the outbox is an error all the same */
			assert_true(!err || err == -ways[way].err || err == -ENOMEM || (ways[way].err == EREMOTEIO &&
											err == -EIO));
			tear_down(&all);
			steps = n;
		}
	print_message("# %u calls\n", steps - 1);
	/*
	 * PD, umem, register, 9 creations with an XRQ, RC 3 + UD 3 + DCI 3 transitions, arm, error,
	 * reset
	 */
	assert_in_range(steps, 23, 60);
	memset(&all, 0, sizeof(all));
	all.memory = memory;
	must(set_up(&all, tags));
	tear_down(&all);
	free(memory);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		devx_test(to_error),
		devx_test(by_itself),
		devx_test(transitions),
		devx_test(bad_paths),
		devx_test(bad_numbers),
		devx_test(of_another_context),
		devx_test(in_use),
		devx_test(every_call_fails_once),
	};

	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("devx_errors", tests, rig_open, rig_close) ||
	       again_with("SOFTDEV_LINK", "ib") ||
	       again_with("SOFTDEV_MANUAL", "1") || again_trapped() || again_errno();
}
