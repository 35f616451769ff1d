/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * objects.c: umems, registers, CQs and QPs by device commands, one by one: where they may lie, what
 * is refused and by whom, addresses. And cyclic queues against a model.
 */
#include "common.h"
#include "rig.h"

#define PAGE INLAY_DEVX_PAGE

static void said(const struct inlay_devx_error *error, uint8_t status, int err)
{
	char text[INLAY_DEVX_TEXT];

	if (error->status != status || error->err != err)
		fail_msg("%s", inlay_devx_error_text(error, text, sizeof(text)));
}

/* ---- Umems, registers ---- */

/* Where a ring of so many bytes is that begins there, with its record at the umem's beginning */
static uint8_t *ring_at(struct inlay_devx_place place, uint64_t bytes)
{
	struct inlay_devx_place first = {place.umem, 0};
	uint32_t *record;
	uint8_t *ring;

	return inlay_devx_places_(place, bytes, first, &ring, &record) ? NULL : ring;
}

static void *record_at(struct inlay_devx_place place)
{
	uint32_t *record;
	uint8_t *ring;

	return inlay_devx_places_(place, 0, place, &ring, &record) ? NULL : record;
}

static void umems(void **state)
{
	struct inlay_devx_umem umem, again;
	struct inlay_devx_place place;

	(void)state;
	must(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, 3 * PAGE, IBV_ACCESS_LOCAL_WRITE, 0));
	assert_ptr_equal(umem.addr, rig.memory);
	assert_int_equal(umem.len, 3 * PAGE);
	assert_int_equal(umem.page, 0);
	must(inlay_devx_umem_reg(&again, dev.ctx, rig.memory, 3 * PAGE, 0, 0));
	assert_int_not_equal(again.id, umem.id);
	/* Records anywhere, rings at the beginning */
	place.umem = &umem;
	place.offset = 0;
	assert_ptr_equal(ring_at(place, 3 * PAGE), rig.memory);
	assert_null(ring_at(place, 3 * PAGE + 1));
	place.offset = PAGE;
	assert_null(ring_at(place, 64));
	assert_ptr_equal(record_at(place), rig.memory + PAGE);
	place.offset = PAGE + 4;
	assert_null(record_at(place));
	place.offset = 3 * PAGE - 8;
	assert_non_null(record_at(place));
	place.offset = 3 * PAGE;
	assert_null(record_at(place));
	place.offset = UINT64_MAX - 7;
	assert_null(record_at(place));
	place.umem = NULL;
	place.offset = 0;
	assert_null(record_at(place));
	must(inlay_devx_umem_dereg(&umem));
	must(inlay_devx_umem_dereg(&umem)); /* nothing */
	assert_null(umem.umem);
	place.umem = &umem;
	assert_null(record_at(place));
	must(inlay_devx_umem_dereg(&again));

	/* Pages */
	must(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, PAGE, 0, 0)); /* any size */
	assert_int_equal(umem.page, 0);
	must(inlay_devx_umem_dereg(&umem));
	assert_int_equal(inlay_devx_umem_reg_dmabuf(&umem, dev.ctx, 0, 0, PAGE, 0, 0), -EINVAL);
	assert_int_equal(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, PAGE, 0, PAGE | 2048), -EINVAL);
	assert_null(umem.umem);
	must(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, 8 * PAGE, 0, 2 * PAGE | PAGE));
	assert_int_equal(umem.page, 2 * PAGE);
	place.offset = 2 * PAGE;
	assert_ptr_equal(ring_at(place, 64), rig.memory + 2 * PAGE);
	place.offset = PAGE;
	assert_null(ring_at(place, 64));
	must(inlay_devx_umem_dereg(&umem));
	/* A ring begins on a page, wherever its umem does */
	must(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory + 64, 8 * PAGE, 0, PAGE));
	assert_null(ring_at(place, 64));
	place.offset = 0;
	assert_null(ring_at(place, 64));
	assert_ptr_equal(record_at(place), rig.memory + 64);
	must(inlay_devx_umem_dereg(&umem));

	/* What cannot be */
	assert_int_equal(inlay_devx_umem_reg(&umem, dev.ctx, rig.memory, PAGE, IBV_ACCESS_REMOTE_WRITE, 0), -EINVAL);
	assert_null(umem.umem);
	assert_int_equal(inlay_devx_umem_reg_dmabuf(&umem, dev.ctx, -1, 0, PAGE, 0, PAGE), -EBADF);
	assert_null(umem.umem);
	must(inlay_devx_umem_dereg(&umem));
}

static void registers(void **state)
{
	struct inlay_devx_uar a, b, nc;
	uint32_t eqn = 99;

	(void)state;
	must(inlay_devx_uar_alloc(&a, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	must(inlay_devx_uar_alloc(&b, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_LOCKED));
	must(inlay_devx_uar_alloc(&nc, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_NC, INLAY_UAR_DOORBELL));
	assert_ptr_not_equal(a.uar.reg, b.uar.reg);
	assert_ptr_not_equal(a.uar.reg, nc.uar.reg);
	assert_true(a.uar.size >= 64 && inlay_is_pow2(a.uar.size));
	assert_int_equal(nc.uar.size, 0);
	assert_int_equal((uintptr_t)a.uar.reg % (2 * a.uar.size), 0);
	assert_true(a.uar.reg >= a.page && a.uar.reg < a.page + PAGE);
	assert_int_equal(a.uar.mode, INLAY_UAR_SERIAL);
	a.uar.queues = 1;
	assert_int_equal(inlay_devx_uar_free(&a), -EBUSY);
	a.uar.queues = 0;
	must(inlay_devx_uar_free(&a));
	must(inlay_devx_uar_free(&a));
	must(inlay_devx_uar_free(&b));
	must(inlay_devx_uar_free(&nc));
	assert_int_equal(inlay_devx_uar_alloc(&a, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, 77), -EINVAL);
	assert_null(a.devx);
	must(mlx5dv_devx_query_eqn(dev.ctx, 0, &eqn));
	assert_true(eqn < 256 && eqn != 99);
}

/* ---- Queues ---- */

static void sizes(void **state)
{
	(void)state;
	assert_int_equal(inlay_devx_cq_size(256, 64), 16384);
	assert_int_equal(inlay_devx_cq_size(256, 128), 32768);
	assert_int_equal(inlay_devx_cq_size(255, 64), 0);
	assert_int_equal(inlay_devx_cq_size(256, 32), 0);
	assert_int_equal(inlay_devx_cq_size(1u << 23, 64), 0);
	assert_int_equal(inlay_devx_qp_size(64, 64, 64), 8192);
	assert_int_equal(inlay_devx_qp_size(64, 0, 0), 4096);
	assert_int_equal(inlay_devx_qp_size(0, 4, 16), 64);
	assert_int_equal(inlay_devx_qp_size(0, 2, 16), 0);
	assert_int_equal(inlay_devx_qp_size(63, 0, 0), 0);
	assert_int_equal(inlay_devx_qp_size(65536, 0, 0), 0);
	assert_int_equal(inlay_devx_qp_size(0, 32768, 1024), 1u << 25);
	assert_int_equal(inlay_devx_qp_size(0, 65536, 64), 0);
	assert_int_equal(inlay_devx_qp_size(0, 64, 2048), 0);
	assert_int_equal(inlay_devx_qp_size(0, 64, 48), 0);
	assert_int_equal(inlay_devx_qp_size(0, 64, 8), 0);
	assert_int_equal(inlay_devx_rq_size(32768, 1024), 1u << 25);
	assert_int_equal(inlay_devx_rq_size(65536, 64), 0);
	assert_int_equal(inlay_devx_rq_size(64, 2048), 0);
	assert_int_equal(inlay_devx_rq_size(64, 48), 0);
	assert_int_equal(inlay_devx_rq_size(64, 8), 0);
	assert_int_equal(inlay_devx_rmp_size(16, 64), 1024);
	assert_int_equal(inlay_devx_rmp_size(17, 64), 0);
	assert_int_equal(inlay_devx_rmp_size(16, 16), 0);
	assert_int_equal(inlay_devx_rmp_size(32768, 1024), 1u << 25);
	assert_int_equal(inlay_devx_rmp_size(65536, 64), 0);
	assert_int_equal(inlay_devx_rmp_size(1, 64), 0);
	assert_int_equal(inlay_devx_rmp_size(16, 48), 0);
	assert_int_equal(inlay_devx_rmp_size(16, 2048), 0);
}

static void completion_queues(void **state)
{
	struct inlay_devx_cq_attr attr, bad;
	struct inlay_query_cq_out out;
	struct inlay_devx_umem mute;
	struct inlay_devx_cq cq;
	uint32_t size, i;

	(void)state;
	for (size = 64; size <= 128; size += 64) {
		attr = cq_want(64, size);
		memset(rig.memory + attr.ring.offset, 0, inlay_devx_cq_size(64, size)); /* 0 would be a completion */
		memset(rig.memory + attr.record.offset, 0xff, 8);
		must(inlay_devx_cq_create(&cq, dev.ctx, &attr));
		said(&cq.error, 0, 0);
		assert_null(inlay_cq_peek(&cq.cq));
		assert_true(all_bytes(rig.memory + attr.record.offset, 4, 0));
		for (i = 0; i < 64; i++)
			assert_int_equal(rig.memory[attr.ring.offset + (i + 1) * size - 1] >> 4, 0xf);
		must(context(&cq, CQ, cq.cqn, &out));
		assert_int_equal(inlay_cqc_get(&out.cqc, INLAY_CQC_LOG_CQ_SIZE), 6);
		assert_int_equal(inlay_cqc_get(&out.cqc, INLAY_CQC_STATUS), 0);
		/* The umem is in use */
		assert_int_equal(inlay_devx_umem_dereg(&rig.umem), -EBUSY);
		must(inlay_devx_cq_destroy(&cq));
		must(inlay_devx_cq_destroy(&cq));
		assert_int_equal(context(&cq, CQ, cq.cqn, &out), -EINVAL);
	}

	/* What a device without stride indices compresses for a striding queue */
	for (i = 0; i < 2; i++) {
		bad = attr;
		bad.flags = INLAY_DEVX_CQ_ENHANCED;
		bad.mini = i | INLAY_MINI_STRIDES;
		must(inlay_devx_cq_create(&cq, dev.ctx, &bad));
		assert_int_equal(cq.cq.mini, bad.mini);
		must(context(&cq, CQ, cq.cqn, &out));
		assert_int_equal(inlay_cqc_get(&out.cqc, INLAY_CQC_MINI_CQE_RES_FORMAT), i);
		assert_int_equal(inlay_cqc_get(&out.cqc, INLAY_CQC_MINI_CQE_RES_FORMAT_EXT), 0);
		must(inlay_devx_cq_destroy(&cq));
	}

	/* What cannot be */
#define REFUSED(change, result) \
	do { \
		bad = attr; \
		change; \
		assert_int_equal(inlay_devx_cq_create(&cq, dev.ctx, &bad), result); \
		assert_null(cq.obj); \
		must(inlay_devx_cq_destroy(&cq)); \
	} while (0)
	must(inlay_devx_umem_reg(&mute, dev.ctx, rig.memory, PAGE, 0, 0));
	REFUSED(bad.cqes = 0, -EINVAL);
	REFUSED(bad.cqes = 63, -EINVAL);
	REFUSED(bad.cqe_size = 32, -EINVAL);
	REFUSED(bad.uar = NULL, -EINVAL);
	REFUSED(bad.flags = 16, -EINVAL);
	REFUSED(bad.period = 4096, -EINVAL);
	REFUSED(bad.mini = 5, -EINVAL);
	REFUSED(bad.mini = INLAY_MINI_CSUM_STRIDX | INLAY_MINI_STRIDES, -EINVAL);
	REFUSED(bad.ring.umem = NULL, -EINVAL);
	REFUSED(bad.ring.offset += 64, -EINVAL);
	REFUSED(bad.ring.offset = ARENA - PAGE, -EINVAL);
	REFUSED(bad.record.offset += 4, -EINVAL);
	REFUSED((bad.ring.umem = &mute, bad.ring.offset = 0, bad.cqes = 8), -EPERM);
	REFUSED(bad.vector = 1u << 20, -ENOENT);
#undef REFUSED
	must(inlay_devx_umem_dereg(&mute));
}

static void queue_pairs_that_cannot_be(void **state)
{
	struct inlay_devx_qp_attr attr, bad;
	struct inlay_connect_record peer;
	struct inlay_devx_path path;
	struct inlay_devx_uar uar;
	struct inlay_devx_cq cq;
	struct inlay_devx_qp qp;

	(void)state;
	must(inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_SERIAL));
	cq_open(&cq, 64, 64);
	attr = qp_want(cq.cq.cqn, cq.cq.cqn, 64, 64);
	attr.uar = &uar;
#define REFUSED(change) \
	do { \
		bad = attr; \
		change; \
		assert_int_equal(inlay_devx_qp_create(&qp, dev.ctx, &bad), -EINVAL); \
		assert_null(qp.obj); \
		assert_int_equal(uar.uar.queues, 0); \
		must(inlay_devx_qp_destroy(&qp)); \
	} while (0)
	REFUSED(bad.type = INLAY_QP_ST_DCT);
	REFUSED(bad.type = INLAY_QP_ST_RAW);
	REFUSED(bad.type = INLAY_QP_ST_DCI); /* without a shared queue */
	REFUSED(bad.sq_bbs = 65);
	REFUSED(bad.rq_stride = 8);
	REFUSED(bad.rq_wqes = 3);
	REFUSED(bad.uar = NULL);
	REFUSED(bad.max_ds = 64);
	REFUSED(bad.rq_type = INLAY_RQ_TYPE_SHARED); /* and a queue of its own */
	REFUSED(bad.rq_type = INLAY_RQ_TYPE_NONE);
	REFUSED(bad.rq_wqes = 1; bad.flags = INLAY_DEVX_QP_OOO);
	REFUSED(bad.log_streams = 1); /* of no DCI */
	REFUSED(bad.log_errored_streams = 1);
	REFUSED(bad.scatter_req = 16);
	REFUSED(bad.scatter_res = 48);
	REFUSED(bad.type = INLAY_QP_ST_UC; bad.flags = INLAY_DEVX_QP_MMO);
	REFUSED(bad.sq_bbs = 0; bad.flags = INLAY_DEVX_QP_CD_MASTER);
	REFUSED(bad.flags = 128);
	REFUSED(bad.flags = INLAY_DEVX_QP_RNDV); /* and a send queue */
	REFUSED(bad.user_index = 1u << 24);
	REFUSED(bad.ring.offset += 64);
	REFUSED(bad.ring.umem = NULL);
	REFUSED(bad.record.umem = NULL);
	/* These the device refuses */
	REFUSED(bad.send_cqn = 0xfffff0);
	said(&qp.error, INLAY_CMD_STATUS_BAD_RES, -EINVAL);
	assert_int_equal(qp.error.opcode, INLAY_CMD_OP_CREATE_QP);
	REFUSED(bad.pdn = 0xfffff0);
	said(&qp.error, INLAY_CMD_STATUS_BAD_RES, -EINVAL);
#undef REFUSED
	/* Steps that do not fit */
	path = inlay_devx_path_defaults();
	must(inlay_devx_qp_create(&qp, dev.ctx, &attr));
	must(inlay_devx_qp_address(&qp, &path, &peer));
	path.rnr_retry = 8;
	assert_int_equal(inlay_devx_qp_to_init(&qp, &path), -EINVAL);
	path.rnr_retry = 7;
	assert_int_equal(inlay_devx_qp_to_rts(&qp, &path), -EINVAL);
	said(&qp.error, INLAY_CMD_STATUS_BAD_QP_STATE, -EINVAL);
	assert_int_equal(qp.state, INLAY_QP_STATE_RST);
	must(inlay_devx_qp_to_init(&qp, &path));
	assert_int_equal(inlay_devx_qp_to_rtr(&qp, &path, NULL), -EINVAL);
	peer.link = peer.link == INLAY_CONNECT_IB ? INLAY_CONNECT_ROCE_V2 : INLAY_CONNECT_IB;
	assert_int_equal(inlay_devx_qp_to_rtr(&qp, &path, &peer), -EINVAL);
	peer.link = peer.link == INLAY_CONNECT_IB ? INLAY_CONNECT_ROCE_V2 : INLAY_CONNECT_IB;
	peer.sl = peer.link == INLAY_CONNECT_IB ? 16 : 8;
	assert_int_equal(inlay_devx_qp_to_rtr(&qp, &path, &peer), -EINVAL);
	assert_string_equal(qp.error.why, "a number in the peer's record is out of its range");
	peer.sl = 0;
	peer.qpn |= 1u << 24;
	assert_int_equal(inlay_devx_qp_to_rtr(&qp, &path, &peer), -EINVAL);
	assert_string_equal(qp.error.why, "a number in the peer's record is out of its range");
	peer.qpn &= 0xffffff;
	if (peer.link != INLAY_CONNECT_IB) {
		memset(peer.mac, 0, sizeof(peer.mac));
		assert_int_equal(inlay_devx_qp_to_rtr(&qp, &path, &peer), -EINVAL);
		must(inlay_devx_address_resolve(&peer, dev.pd, &path));
		assert_false(all_bytes(peer.mac, sizeof(peer.mac), 0));
	}
	must(inlay_devx_qp_to_rtr(&qp, &path, &peer));
	must(inlay_devx_qp_to_reset(&qp));
	must(inlay_devx_qp_connect(&qp, &path, &peer));
	assert_int_equal(inlay_devx_qp_connect(&qp, &path, &peer), -EINVAL); /* is there */
	assert_int_equal(qp.state, INLAY_QP_STATE_RTS);
	must(inlay_devx_qp_destroy(&qp));
	assert_int_equal(inlay_devx_qp_to_error(&qp), -EINVAL);
	assert_int_equal(inlay_devx_qp_to_init(&qp, &path), -EINVAL);
	must(inlay_devx_cq_destroy(&cq));
	must(inlay_devx_uar_free(&uar));
}

static void shared_queues_and_targets_that_cannot_be(void **state)
{
	struct inlay_devx_path path = inlay_devx_path_defaults();
	struct inlay_devx_rmp_attr attr;
	struct inlay_devx_dct_attr dcta;
	struct inlay_devx_psv psv;
	struct inlay_devx_rmp rmp;
	struct inlay_devx_dct dct;
	struct inlay_devx_cq cq;
	uint32_t i;

	(void)state;
	attr = rmp_want(16, 64, 0);
	attr.entries = 12;
	assert_int_equal(inlay_devx_rmp_create(&rmp, dev.ctx, &attr), -EINVAL);
	attr.entries = 16;
	attr.flags = 2;
	assert_int_equal(inlay_devx_rmp_create(&rmp, dev.ctx, &attr), -EINVAL);
	assert_null(rmp.obj);
	cq_open(&cq, 64, 64);
	memset(&dcta, 0, sizeof(dcta));
	dcta.pdn = rig.pdn;
	dcta.cqn = cq.cq.cqn;
	for (i = 0; i < 4; i++) {
		dcta.srqn = i ? 1 : 0; /* no shared queue */
		dcta.scatter_res = i == 1 ? 32 : i == 2 ? 128 : 0;
		dcta.flags = i == 3 ? 1u << 31 : 0;
		assert_int_equal(inlay_devx_dct_create(&dct, dev.ctx, &dcta, &path), -EINVAL);
		assert_null(dct.obj);
		assert_string_equal(dct.error.why, "an impossible number, flag or scattering, or no srqn");
	}
	assert_int_equal(inlay_devx_psv_create(&psv, dev.ctx, 1u << 24), -EINVAL);
	assert_null(psv.obj);
	must(inlay_devx_cq_destroy(&cq));
}

/* The MAC that the device tells of its own GID, and that the kernel finds for it, are one */
static void addresses(void **state)
{
	struct inlay_connect_record mine, found;
	struct inlay_devx_path path;
	static struct how plain;
	static struct side s;

	(void)state;
	side_make(&s, &plain);
	path = s.path;
	path.mtu = 0;
	must(inlay_devx_qp_address(&s.qp, &path, &mine));
	assert_int_equal(mine.lid, dev.port.lid);
	assert_int_equal(mine.mtu, dev.port.active_mtu);
	assert_int_equal(mine.link == INLAY_CONNECT_IB, dev.port.link_layer != IBV_LINK_LAYER_ETHERNET);
	assert_memory_equal(mine.gid, dev.gid.raw, 16);
	found = mine;
	memset(found.mac, 0, sizeof(found.mac));
	must(inlay_devx_address_resolve(&found, dev.pd, &path));
	assert_memory_equal(&mine, &found, sizeof(mine));
	path.global = 1;
	must(inlay_devx_qp_address(&s.qp, &path, &found));
	assert_int_equal(found.flags, found.link == INLAY_CONNECT_IB ? (uint32_t)INLAY_CONNECT_GLOBAL : mine.flags);
	path.port = 9;
	assert_true(inlay_devx_qp_address(&s.qp, &path, &mine) < 0);
	assert_string_equal(s.qp.error.why, "the device has no such port");
	path.port = 1;
	path.gid_index = 15;
	if (found.link != INLAY_CONNECT_IB)
		assert_int_equal(inlay_devx_qp_address(&s.qp, &path, &mine), -ENOENT);
	side_free(&s);
}

/*
 * A cyclic queue against a model: entries come back in any order, what is posted next is always the
 * next, no entry is posted twice, completions of free entries are refused.
 */
static void cyclic_queues_in_any_order(void **state)
{
	enum { ENTRIES = 16, STRIDE = 32 };
	static uint8_t memory[ENTRIES * STRIDE] __attribute__((aligned(64)));
	struct mlx5_cqe64 cqe;
	struct inlay_srq srq;
	bool posted[ENTRIES] = {false};
	uint32_t next = 0, dbrec = 0, i, round;
	struct ibv_sge sge;

	(void)state;
	memset(&cqe, 0, sizeof(cqe));
	cqe.op_own = MLX5_CQE_RESP_SEND << 4;
	memset(&sge, 0, sizeof(sge));
	sge.length = 8;
	assert_int_equal(inlay_srq_init_cyclic(&srq, memory, 12, STRIDE, &dbrec), -EINVAL);
	assert_int_equal(inlay_srq_init_cyclic(&srq, memory, 1, STRIDE, &dbrec), -EINVAL);
	must(inlay_srq_init_cyclic(&srq, memory, ENTRIES, STRIDE, &dbrec));
	for (round = 0; round < 100000; round++) {
		uint32_t run = 0;

		/*
		 * What may be posted: the free ones from here on, but for the last, which is kept
		 */
		while (run < ENTRIES && !posted[(next + run) % ENTRIES])
			run++;
		assert_int_equal(inlay_srq_room(&srq), run - 1);
		if (rnd_below(2)) {
			int err = inlay_post_srq_recv(&srq, &sge, 1);

			assert_int_equal(err, run > 1 ? 0 : -EAGAIN);
			if (!err) {
				posted[next] = true;
				next = (next + 1) % ENTRIES;
				assert_int_equal(inlay_srq_index(&srq), next);
				inlay_srq_ring(&srq);
				assert_int_equal(inlay_from_be32(dbrec), (uint16_t)srq.pi);
			}
		} else {
			/* The device's counter goes on beyond the ring */
			i = rnd_below(ENTRIES);
			cqe.wqe_counter = inlay_to_be16((uint16_t)(i + ENTRIES * rnd_below(4096)));
			assert_int_equal(inlay_srq_entry(&srq, &cqe), i);
			if (posted[i]) {
				uint32_t after = run;

				/* As many as may be posted more: none while one before it is out */
				posted[i] = false;
				while (after < ENTRIES && !posted[(next + after) % ENTRIES])
					after++;
				assert_int_equal(inlay_srq_release(&srq, &cqe), after - run);
			} else {
				assert_int_equal(inlay_srq_release(&srq, &cqe), -EPROTO);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		devx_test(umems),
		devx_test(registers),
		devx_test(sizes),
		devx_test(completion_queues),
		devx_test(queue_pairs_that_cannot_be),
		devx_test(shared_queues_and_targets_that_cannot_be),
		devx_test(addresses),
		cmocka_unit_test(cyclic_queues_in_any_order),
	};

	if (!rig_here())
		return 0;
	return cmocka_run_group_tests_name("devx_objects", tests, rig_open, rig_close) ||
	       again_with("SOFTDEV_LINK", "ib") || again_trapped();
}
