/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * builders.c: what the builders send, bit by bit: exactly the rights that were asked for,
 * retries, timers, the MTU, relaxed ordering where the device has it; what a device cannot do is
 * refused before anything is sent. In checked mode a NULL argument aborts with the name of the rule.
 *
 * This program has libmlx5's calls of its own: they keep the last inbox, count, and may refuse.
 * Bits are counted here by the layouts of Linux's mlx5_ifc.h, without inlay's.
 */
#include "common.h"
#include "rig.h"
#include "next.h"
#include <inlay/devx/packets.h>
#include <inttypes.h>

/* ---- Calls in between ---- */

static struct {
	uint8_t in[4096];    /* the last inbox */
	uint32_t boxes;      /* of create and modify */
	uint32_t no_caps;    /* bit 0: no relaxed_ordering_write, 1: no ..._read, 2: pci_relaxed_ordered_read,
			      * 3: dp_ordering_ooo_all_dc, 4: nothing at all */
	int fail_cap;        /* the errno of QUERY_HCA_CAP */
	uint32_t active_mtu; /* of the port, when not 0 */
	uint32_t gid_index;  /* of the last QUERY_ROCE_ADDRESS */
} mid;

static uint64_t bits(const uint8_t *box, uint32_t first, uint32_t n)
{
	uint64_t value = 0;

	for (uint32_t i = first; i < first + n; i++)
		value = value << 1 | (box[i / 8] >> (7 - i % 8) & 1);
	return value;
}

static void keep(const void *in, size_t inlen)
{
	memset(mid.in, 0, sizeof(mid.in));
	memcpy(mid.in, in, inlen < sizeof(mid.in) ? inlen : sizeof(mid.in));
	mid.boxes++;
}

int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t inlen, void *out, size_t outlen)
{
	uint8_t *cap = (uint8_t *)out + 16;
	int err;

	if (bits((const uint8_t *)in, 0, 16) == 0x760)
		mid.gid_index = (uint32_t)bits((const uint8_t *)in, 0x40, 16);
	if (bits((const uint8_t *)in, 0, 16) != 0x100)
		return NEXT(mlx5dv_devx_general_cmd)(context, in, inlen, out, outlen);
	assert_int_equal(bits((const uint8_t *)in, 0x40, 32), 0); /* of this function */
	err = mid.fail_cap ? mid.fail_cap : NEXT(mlx5dv_devx_general_cmd)(context, in, inlen, out, outlen);
	if (!err && bits((const uint8_t *)in, 0x30, 16) == 1) {
		cap[0xe8 / 8] &= mid.no_caps & 1 ? 0x7f : 0xff;
		cap[0xe9 / 8] &= mid.no_caps & 2 ? 0xbf : 0xff;
		cap[0x32a / 8] |= mid.no_caps & 4 ? 0x20 : 0;
		cap[0x333 / 8] &= mid.no_caps & 8 ? 0xef : 0xff;
		if (mid.no_caps & 16)
			memset(cap, 0, outlen - 16);
	}
	return err;
}

/* As a device without relaxed ordering does, it refuses a key that asks for it */
struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context, const void *in, size_t inlen, void *out,
					       size_t outlen)
{
	keep(in, inlen);
	/* What is created has no number yet; CREATE_PSV has other things there */
	assert_true(bits(mid.in, 0, 16) == 0x600 || !bits(mid.in, 0x40, 32));
	if (bits(mid.in, 0, 16) == 0x200 && ((bits(mid.in, 0x80 + 0xd, 1) && mid.no_caps & 1) ||
					     (bits(mid.in, 0x80 + 0x1d9, 1) && (mid.no_caps & 6) == 2))) {
		((uint8_t *)out)[0] = 3;
		errno = EREMOTEIO;
		return NULL;
	}
	return NEXT(mlx5dv_devx_obj_create)(context, in, inlen, out, outlen);
}

int mlx5dv_devx_obj_modify(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen)
{
	keep(in, inlen);
	return NEXT(mlx5dv_devx_obj_modify)(obj, in, inlen, out, outlen);
}

static int (*real_query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr, size_t len);

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	int err = real_query_port(ctx, port, attr, len);

	if (!err && mid.active_mtu)
		attr->active_mtu = (enum ibv_mtu)(mid.active_mtu & 0xff);
	return err;
}

/* For all tests */
static struct inlay_devx_cq cq;
static struct inlay_devx_srq rmp;

static int fresh(void **state)
{
	struct verbs_context *verbs = verbs_get_ctx(dev.ctx);

	memset(&mid, 0, sizeof(mid));
	if (verbs->query_port != query_port) {
		real_query_port = verbs->query_port;
		verbs->query_port = query_port;
	}
	rig_empty(state);
	cq_open(&cq, 64, 64);
	srq_open(&rmp, 16, 0);
	return 0;
}

static int spent(UNUSED void **state)
{
	must(inlay_devx_srq_destroy(&rmp));
	return inlay_devx_cq_destroy(&cq);
}

#define sent_test(f) TEST_WITH(f, fresh, spent)

/* Fields of the last inbox, each 1 .. 64 bits, at `base` bits in it */
struct field {
	uint32_t at, width;
	uint64_t value;
};

static void fields_sent(const struct field *fields, size_t n)
{
	for (; n--; fields++)
		if (bits(mid.in, fields->at, fields->width) != fields->value)
			fail_msg("bit 0x%x, %u wide: 0x%" PRIx64 ", not 0x%" PRIx64, fields->at, fields->width,
				 bits(mid.in, fields->at, fields->width), fields->value);
}

#define F(base, at, width, value) {(uint32_t)(base) + (uint32_t)(at), (uint32_t)(width), (uint64_t)(value)}
#define sent(...) \
	do { \
		const struct field fields_[] = {__VA_ARGS__}; \
		fields_sent(fields_, ARRAY(fields_)); \
	} while (0)

enum { MKC = 0x80, QPC = 0xc0, ADS = QPC + 0xc0, DCTC = 0x80, RMP_WQ = 0x280 };

/* ---- What is sent ---- */

static const uint32_t rights[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC};

static uint32_t subset(uint32_t which)
{
	return (which & 1 ? rights[0] : 0) | (which & 2 ? rights[1] : 0) | (which & 4 ? rights[2] : 0);
}

static struct inlay_devx_dct_attr dct_want(uint32_t cqn, uint32_t srqn)
{
	return (struct inlay_devx_dct_attr){0x1122334455667788, rig.pdn, cqn, srqn, 0, 0, 0};
}

static struct inlay_devx_mkey_attr key_want(uint32_t access)
{
	return (struct inlay_devx_mkey_attr){0x7000000, 8192, place_ring(8192), rig.pdn, access, 0, 0x42, {0, 0, 0}};
}

/* A QP has the rights that its path gives and its type allows, and no others */
sent_test(rights_of_queue_pairs)
{
	static const uint32_t types[] = {INLAY_QP_ST_RC, INLAY_QP_ST_UC, INLAY_QP_ST_UD};
	uint32_t type, which, may;
	static struct side s;

	for (type = 0; type < ARRAY(types); type++) {
		const struct how how = {.type = types[type]};

		rig_empty(NULL);
		side_make(&s, &how);
		for (which = 0; which < 8; which++) {
			may = types[type] == INLAY_QP_ST_RC ? which : types[type] == INLAY_QP_ST_UC ? which & 1 : 0;
			s.path.access = subset(which);
			s.path.atomic_mode = INLAY_ATOMIC_MODE_UP_TO_8;
			must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_INIT, &s.path, NULL));
			sent(F(0, 0, 16, 0x502), F(QPC, 0x490, 1, may >> 1 & 1), /* rre */ F(QPC, 0x491, 1, may & 1), /* rwe */
			     F(QPC, 0x492, 1, may >> 2 & 1), /* rae */ F(QPC, 0x48c, 4, may & 4 ? 3 : 0),
			     F(QPC, 0x13, 2, 3), /* pm_state migrated */ F(ADS, 0x128, 8, 1),
			     F(QPC, 0x540, 32, types[type] == INLAY_QP_ST_UD ? QKEY : 0));
			if (types[type] == INLAY_QP_ST_UD) {
				must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_RTR, &s.path, NULL));
				sent(F(QPC, 0x40, 3, IBV_MTU_4096), F(QPC, 0x43, 5, 12) /* a datagram is one packet */);
			}
			must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_RST, NULL, NULL));
		}
		side_free(&s);
	}
}

/* A DCI is told in INIT2RTR what it may begin; it grants its peers nothing */
sent_test(rights_of_initiators)
{
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_qp_attr attr;
	struct inlay_devx_qp qp;

	sent(F(RMP_WQ, 0x120, 2, 3) /* record and ring are in memory of the process */);
	attr = qp_on(INLAY_QP_ST_DCI, cq.cq.cqn, 16, rmp.srqn);
	must(inlay_devx_qp_create(&qp, dev.ctx, &attr));
	for (uint32_t which = 0; which < 8; which++) {
		path.access = subset(which);
		must(inlay_devx_qp_modify(&qp, INLAY_QP_STATE_INIT, &path, NULL));
		sent(F(QPC, 0x490, 3, 0));
		must(inlay_devx_qp_modify(&qp, INLAY_QP_STATE_RTR, &path, NULL));
		sent(F(0, 0x80, 32, which & 4 ? 1 << 2 : 0), /* opt_param_mask: RAE */ F(QPC, 0x490, 3, which & 4 ? 1 : 0),
		     F(QPC, 0x48c, 4, which & 4 ? 1 : 0));
		must(inlay_devx_qp_modify(&qp, INLAY_QP_STATE_RST, NULL, NULL));
	}
	must(inlay_devx_qp_destroy(&qp));
}

sent_test(rights_of_targets)
{
	struct inlay_devx_path path = path_usual();
	struct inlay_devx_dct_attr attr;
	struct inlay_devx_dct dct;

	attr = dct_want(cq.cq.cqn, rmp.srqn);
	for (uint32_t which = 0; which < 8; which++) {
		path.access = subset(which);
		path.min_rnr_timer = (uint8_t)(which * 4 + 3);
		path.mtu = (uint8_t)(1 + which % 5);
		path.sl = (uint8_t)which;
		path.traffic_class = (uint8_t)(which * 31 + 2);
		must(inlay_devx_dct_create(&dct, dev.ctx, &attr, &path));
		sent(F(DCTC, 0x6c, 1, which >> 1 & 1), F(DCTC, 0x6d, 1, which & 1), F(DCTC, 0x6e, 1, which >> 2 & 1),
		     F(DCTC, 0x68, 4, which & 4 ? 1 : 0), F(DCTC, 0x93, 5, path.min_rnr_timer), F(DCTC, 0x145, 3, path.mtu),
		     F(DCTC, 0x100, 64, attr.dc_key), F(DCTC, 0xa8, 24, rmp.srqn), F(DCTC, 0x73, 2, which & 1),
		     F(DCTC, 0xe0, 8, path.traffic_class));
		if (dev.port.link_layer == IBV_LINK_LAYER_ETHERNET)
			sent(F(DCTC, 0x1b5, 3, which), F(DCTC, 0x1ba, 6, path.traffic_class >> 2));
		must(inlay_devx_dct_destroy(&dct));
		attr.flags ^= INLAY_DEVX_DCT_OOO;
	}
	mid.no_caps = 8;
	mid.boxes = 0;
	must(inlay_devx_dct_create(&dct, dev.ctx, &attr, &path));
	must(inlay_devx_dct_destroy(&dct));
	attr.flags = INLAY_DEVX_DCT_OOO;
	assert_int_equal(inlay_devx_dct_create(&dct, dev.ctx, &attr, &path), -ENOTSUP);
	mid.no_caps = 0;
	mid.fail_cap = EACCES;
	assert_true(inlay_devx_dct_create(&dct, dev.ctx, &attr, &path) == -EACCES && mid.boxes == 1);
	mid.fail_cap = 0;
	attr.flags = 0;
	path.min_rnr_timer = 32;
	assert_int_equal(inlay_devx_dct_create(&dct, dev.ctx, &attr, &path), -EINVAL);
	path.min_rnr_timer = 31;
	/* The port says what no port has */
	path.mtu = 0;
	for (uint32_t which = 0; which < 2; which++) {
		mid.active_mtu = which ? 6 : 0x100;
		mid.boxes = 0;
		assert_true(inlay_devx_dct_create(&dct, dev.ctx, &attr, &path) == -EINVAL && !mid.boxes && !dct.obj);
	}
	mid.active_mtu = 0;
}

/* A QP without a send queue, for rendezvous, and a target on a queue with tag matching */
sent_test(ends_of_tag_matching)
{
	struct inlay_devx_path path = path_usual();
	struct inlay_query_hca_cap_out cap;
	struct inlay_devx_srq_attr attr;
	struct inlay_devx_dct_attr dcta;
	struct inlay_devx_qp_attr qpa;
	struct inlay_devx_srq xrq;
	struct inlay_devx_dct dct;
	struct inlay_devx_qp qp;

	must(inlay_devx_query_cap(dev.ctx, INLAY_CAP_GENERAL, &cap, NULL));
	if (!inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_TAG_MATCHING)) {
		print_message("# skipped: the device has no tag matching\n");
		skip();
	}
	attr = srq_want(16, 64, 0);
	attr.cqn = cq.cq.cqn;
	attr.tags = 4;
	attr.flags = INLAY_DEVX_SRQ_DC;
	if (inlay_hca_cap_get(&cap.cap, INLAY_HCA_CAP_RNDV_OFFLOAD_RC))
		attr.flags |= INLAY_DEVX_SRQ_RNDV;
	must(inlay_devx_srq_create(&xrq, dev.ctx, &attr));
	for (uint32_t rndv = 0; rndv < 2; rndv++) {
		if (rndv && !(attr.flags & INLAY_DEVX_SRQ_RNDV))
			continue;
		qpa = qp_on(INLAY_QP_ST_RC, cq.cq.cqn, 64, xrq.srqn);
		qpa.sq_bbs = rndv ? 0 : 64;
		qpa.flags = rndv ? INLAY_DEVX_QP_RNDV : 0;
		must(inlay_devx_qp_create(&qp, dev.ctx, &qpa));
		sent(F(QPC, 0x50, 1, rndv), F(QPC, 0x18, 4, rndv), F(QPC, 0x565, 3, 1), F(QPC, 0x568, 24, xrq.srqn));
		must(inlay_devx_qp_destroy(&qp));
	}
	dcta = dct_want(cq.cq.cqn, xrq.srqn);
	dcta.flags = INLAY_DEVX_DCT_TAG_MATCHING;
	must(inlay_devx_dct_create(&dct, dev.ctx, &dcta, &path));
	sent(F(DCTC, 0x18, 4, 1));
	must(inlay_devx_dct_destroy(&dct));
	must(inlay_devx_srq_destroy(&xrq));
}

/* Of a umem, of other keys, and for UMRs: exactly the rights, and where the bytes are */
sent_test(rights_of_keys)
{
	static const uint32_t pages_[] = {1, 1, 2, 3, 4, 5}, octwords[] = {1, 1, 1, 2, 2, 3};
	struct inlay_devx_mkey_attr attr = key_want(0), list_attr, umr_attr;
	struct inlay_devx_mkey key, list;
	struct ibv_sge sge[2];
	uint64_t box[128];

	attr.memory = place_ring(6 * INLAY_DEVX_PAGE);
	for (uint32_t which = 0; which < 16; which++) {
		uint32_t got = which & 8 ? which & 7 : which & 2, n = pages_[which % 6], log = which & 1 ? 12 : 0;
		uint32_t granted = (got >> 2 & 1) << 4 | (got & 1) << 3 | (got >> 1 & 1) << 2 | (which >> 3) << 1 | 1; /* a, rw, rr, lw, lr */

		attr.access = subset(got) | (which & 8 ? IBV_ACCESS_LOCAL_WRITE : 0);
		attr.len = n * INLAY_DEVX_PAGE - (which & 1);
		must(inlay_devx_mkey_create(&key, dev.ctx, &attr));
		sent(F(MKC, 0x11, 5, granted), F(MKC, 0x16, 2, 1), /* MTT */ F(MKC, 0xd, 1, 0), F(MKC, 0x1d9, 1, 0),
		     F(MKC, 0x20, 24, 0xffffff), F(MKC, 0x38, 8, 0x42), F(MKC, 0x68, 24, rig.pdn), F(MKC, 0x80, 64, attr.addr),
		     F(MKC, 0xc0, 64, attr.len), F(MKC, 0x1a0, 32, octwords[which % 6]), F(MKC, 0x1db, 5, 12),
		     F(0, 0x300, 32, octwords[which % 6]), F(0, 0x320, 32, rig.umem.id), F(0, 0x340, 64, attr.memory.offset));
		list_attr = attr;
		list_attr.len = 8192;
		list_attr.log_entity = log;
		sge[0].addr = sge[1].addr = attr.addr;
		sge[0].length = 4000;
		sge[1].length = 4192;
		sge[0].lkey = key.key;
		sge[1].lkey = 0x12345600;
		assert_int_equal(inlay_devx_mkey_create_list(&list, dev.ctx, &list_attr, sge, 2, box, inlay_devx_mkey_size(2) - 1), -ENOBUFS);
		must(inlay_devx_mkey_create_list(&list, dev.ctx, &list_attr, sge, 2, box, inlay_devx_mkey_size(2)));
		sent(F(MKC, 0x11, 5, granted), F(MKC, 0x16, 2, log ? 3 : 2), /* KSM, KLM */ F(MKC, 0x1a0, 32, 2),
		     F(MKC, 0x1db, 5, log), F(0, 0x300, 32, 2), F(0x880, 0, 32, log ? 0 : 4000), F(0x880, 0x20, 32, key.key),
		     F(0x880, 0x40, 64, attr.addr), F(0x900, 0, 32, log ? 0 : 4192), F(0x900, 0x20, 32, 0x12345600));
		umr_attr = attr;
		must(inlay_devx_mkey_destroy(&list));
		assert_int_equal(inlay_devx_mkey_create_umr(&list, dev.ctx, &umr_attr, 4, 0), -EINVAL); /* with a length */
		umr_attr.len = 0;
		assert_int_equal(inlay_devx_mkey_create_umr(&list, dev.ctx, &umr_attr, which & 1 ? 0 : 65536, 0), -EINVAL);
		must(inlay_devx_mkey_create_umr(&list, dev.ctx, &umr_attr, which + 1, which & 1));
		sent(F(MKC, 0x11, 5, granted), F(MKC, 0x1, 1, 1), /* free */ F(MKC, 0x10, 1, 1), F(MKC, 0x16, 2, 2),
		     F(MKC, 0x1a0, 32, which / 4 * 4 + 4), F(MKC, 0x61, 1, which & 1), F(MKC, 0x100, 32, which & 1 ? 4 : 0));
		must(inlay_devx_mkey_destroy(&list));
		must(inlay_devx_mkey_destroy(&key));
	}
	assert_true(!inlay_devx_mkey_size(0) && !inlay_devx_mkey_size(INLAY_DEVX_PIECES + 1));
	assert_in_range(inlay_devx_mkey_size(INLAY_DEVX_PIECES), 16 * INLAY_DEVX_PIECES, INLAY_DEVX_BOX_MAX);
}

/* Relaxed ordering is a wish, as it is with verbs: a device that has none of it makes the key without */
sent_test(relaxed_ordering_where_it_is)
{
	struct inlay_devx_mkey_attr attr = key_want(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	struct inlay_devx_mkey key, list;
	struct inlay_query_mkey_out out;
	struct ibv_sge sge;
	uint64_t box[128];

	need_softdev("what a device has");
	for (mid.no_caps = 0; mid.no_caps < 8; mid.no_caps++) {
		bool write = !(mid.no_caps & 1), read = !(mid.no_caps & 2) || mid.no_caps & 4;

		must(inlay_devx_mkey_create(&key, dev.ctx, &attr));
		sent(F(MKC, 0xd, 1, write), F(MKC, 0x1d9, 1, read));
		must(context(&key, MKEY, key >> 8, &out));
		assert_int_equal(inlay_mkc_get(&out.mkc, INLAY_MKC_RELAXED_ORDERING_WRITE), write);
		assert_int_equal(inlay_mkc_get(&out.mkc, INLAY_MKC_RELAXED_ORDERING_READ), read);
		sge.addr = attr.addr;
		sge.length = 8192;
		sge.lkey = key.key;
		must(inlay_devx_mkey_create_list(&list, dev.ctx, &attr, &sge, 1, box, sizeof(box)));
		sent(F(MKC, 0xd, 1, write), F(MKC, 0x1d9, 1, read));
		must(inlay_devx_mkey_destroy(&list));
		must(inlay_devx_mkey_destroy(&key));
	}
	/* A key without it does not ask the device */
	mid.no_caps = 0;
	mid.fail_cap = EIO;
	mid.boxes = 0;
	assert_int_equal(inlay_devx_mkey_create(&key, dev.ctx, &attr), -EIO);
	assert_true(key.error.opcode == INLAY_CMD_OP_QUERY_HCA_CAP && !key.obj && !mid.boxes);
	attr.access = IBV_ACCESS_LOCAL_WRITE;
	must(inlay_devx_mkey_create(&key, dev.ctx, &attr));
	sent(F(MKC, 0xd, 1, 0), F(MKC, 0x1d9, 1, 0));
	must(inlay_devx_mkey_destroy(&key));
}

/* A QP that the device cannot have is refused before it is asked for, and says what is missing */
sent_test(queue_pairs_beyond_the_device)
{
	static const struct {
		uint32_t type, flags;
		const char *why;
	} wants[] = {{INLAY_QP_ST_RC, INLAY_DEVX_QP_CD_MASTER, "the device has no cross-channel QPs"},
		     {INLAY_QP_ST_RC, INLAY_DEVX_QP_CD_SLAVE, "the device has no cross-channel QPs"},
		     {INLAY_QP_ST_RC, INLAY_DEVX_QP_MMO, "the device's QPs do not copy memory"},
		     {INLAY_QP_ST_RC, INLAY_DEVX_QP_OOO, "the device's QPs of this type keep the order"},
		     {INLAY_QP_ST_UC, INLAY_DEVX_QP_OOO, "the device's QPs of this type keep the order"},
		     {INLAY_QP_ST_UD, INLAY_DEVX_QP_OOO, "the device's QPs of this type keep the order"}};
	struct inlay_devx_qp_attr attr;
	struct inlay_devx_uar uar;
	struct inlay_devx_qp qp;

	attr = qp_want(cq.cq.cqn, cq.cq.cqn, 16, 16);
	for (uint32_t i = 0; i < ARRAY(wants); i++) {
		attr.type = wants[i].type;
		attr.flags = wants[i].flags;
		mid.boxes = 0;
		mid.no_caps = 16;
		assert_int_equal(inlay_devx_qp_create(&qp, dev.ctx, &attr), -ENOTSUP);
		assert_string_equal(qp.error.why, wants[i].why);
		mid.no_caps = 0;
		mid.fail_cap = EIO;
		assert_int_equal(inlay_devx_qp_create(&qp, dev.ctx, &attr), -EIO);
		assert_int_equal(qp.error.opcode, INLAY_CMD_OP_QUERY_HCA_CAP);
		mid.fail_cap = 0;
		assert_true(!qp.obj && !mid.boxes);
	}
	/* A register without BlueFlame has doorbells alone */
	mid.no_caps = 16;
	must(inlay_devx_uar_alloc(&uar, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_BF, INLAY_UAR_DOORBELL));
	assert_int_equal(uar.uar.size, 0);
	must(inlay_devx_uar_free(&uar));
}

/* How long and how often a QP tries, all values of it; reads and atomics rounded up to a power of two */
sent_test(retries_and_timers)
{
	struct inlay_connect_record mine;
	uint32_t i, up, grh, v2 = 0;
	static struct side s;

	side_make(&s, &plain);
	for (i = 0; i < 32; i++) {
		s.path.timeout = (uint8_t)i;
		s.path.retry_count = (uint8_t)(i % 8);
		s.path.rnr_retry = (uint8_t)((i * 3 + 1) % 8);
		s.path.min_rnr_timer = (uint8_t)(31 - i);
		s.path.rd_atomic = (uint8_t)(i % 17);
		s.path.dest_rd_atomic = (uint8_t)(16 - i % 17);
		s.path.psn = i * 0x54321 & 0xffffff;
		if (softdev_present() && dev.port.link_layer == IBV_LINK_LAYER_ETHERNET)
			s.path.gid_index = (uint8_t)(i / 2 % 2); /* RoCE v1 and v2 */
		s.path.udp_sport = (uint16_t)(i % 2 ? 0xc000 + i : 0);
		s.path.hop_limit = (uint8_t)(i + 1);
		s.path.traffic_class = (uint8_t)(8 * i + 1);
		s.path.flow_label = i * 0x1234;
		s.path.sl = (uint8_t)(i % 8);
		must(inlay_devx_qp_address(&s.qp, &s.path, &mine));
		if (i & 2) /* a side that leaves the classes open takes its peer's */
			s.path.sl = s.path.traffic_class = 0;
		s.path.global = i & 1;
		mine.flags = i & 4 ? INLAY_CONNECT_GLOBAL : 0;
		grh = mine.link == INLAY_CONNECT_IB && i & 5;
		must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_INIT, &s.path, NULL));
		must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_RTR, &s.path, &mine));
		sent(F(0, 0x80, 32, 0) /* no option: no right is changed */);
		for (up = 0; 1u << up < s.path.dest_rd_atomic; up++)
			;
		sent(F(QPC, 0x488, 3, up), F(QPC, 0x4a3, 5, 31 - i), F(QPC, 0x4a8, 24, i * 0x54321 & 0xffffff),
		     F(QPC, 0xa8, 24, s.qpn), F(QPC, 0x43, 5, 30),
		     F(ADS, mine.link == INLAY_CONNECT_IB ? 0x124 : 0x121, mine.link == INLAY_CONNECT_IB ? 4 : 3, i % 8),
		     F(ADS, 0x28, 1, grh));
		if (mine.link != INLAY_CONNECT_IB) {
			sent(F(ADS, 0x10a, 6, mine.link == INLAY_CONNECT_ROCE_V2 ? (8 * i + 1) >> 2 : 0));
			assert_int_equal(mid.gid_index, s.path.gid_index);
		}
		if (mine.link != INLAY_CONNECT_IB || grh)
			sent(F(ADS, 0x48, 8, s.path.gid_index), F(ADS, 0x58, 8, i + 1), F(ADS, 0x64, 8, 8 * i + 1),
			     F(ADS, 0x6c, 20, i * 0x1234));
		if (mine.link == INLAY_CONNECT_ROCE_V2) {
			sent(F(ADS, 0x110, 16, 0xc000 + (i % 2 ? i : 0)) /* its own peer */);
			v2++;
		}
		must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_RTS, &s.path, NULL));
		sent(F(0, 0x80, 32, 0));
		for (up = 0; 1u << up < s.path.rd_atomic && 2u << up <= mine.rd_atomic; up++)
			; /* no more than the peer answers */
		sent(F(QPC, 0x388, 3, up), F(QPC, 0x38d, 3, i % 8), F(QPC, 0x390, 3, (i * 3 + 1) % 8), F(ADS, 0x40, 5, i),
		     F(QPC, 0x3c8, 24, i * 0x54321 & 0xffffff));
		must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_RST, NULL, NULL));
	}
	assert_true(v2 > 0 || mine.link == INLAY_CONNECT_IB || !softdev_present());
	side_free(&s);
}

/* The smallest of the path's, the port's and the peer's; none that is no MTU */
sent_test(mtus)
{
	struct inlay_connect_record peer;
	uint32_t path, port, there, want;
	static struct side s;
	int err;

	side_make(&s, &plain);
	side_address(&s, &peer);
	for (port = 0; port <= 7; port++)
		for (path = 0; path <= 7; path++)
			for (there = 0; there <= 6; there++) {
				mid.active_mtu = port | 0x100;
				s.path.mtu = 0;
				must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_INIT, &s.path, NULL));
				s.path.mtu = (uint8_t)path;
				peer.mtu = (uint8_t)there;
				want = path ? path : port;
				if (there && there < want)
					want = there;
				mid.boxes = 0;
				err = inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_RTR, &s.path, &peer);
				assert_true(path > 5 || want < 1 || want > 5 ? err == -EINVAL && !mid.boxes : !err);
				if (!err)
					sent(F(QPC, 0x40, 3, want));
				must(inlay_devx_qp_modify(&s.qp, INLAY_QP_STATE_RST, NULL, NULL));
			}
	mid.active_mtu = 0;
	side_free(&s);
}

/* A queue reserves its CQEs: a CQ that is too small refuses it before anything is sent, and what goes gives them back */
sent_test(cqes_are_reserved)
{
	struct inlay_devx_srq_attr xrqa, rmpa;
	struct inlay_devx_qp_attr attr;
	struct inlay_devx_cq scq, rcq;
	struct inlay_devx_qp qp, second;
	struct inlay_devx_srq xrq, own;
	char text[INLAY_DEVX_TEXT];

	cq_open(&scq, 64, 64);
	cq_open(&rcq, 128, 64);
	attr = qp_want(0, 0, 64, 32);
	attr.send_cq = &scq.cq;
	attr.recv_cq = &rcq.cq;
	must(inlay_devx_qp_create(&qp, dev.ctx, &attr));
	sent(F(QPC, 0x3e8, 24, scq.cq.cqn), F(QPC, 0x4e8, 24, rcq.cq.cqn));
	assert_true(scq.cq.reserved == 64 && rcq.cq.reserved == 32);
	mid.boxes = 0;
	/* No send CQE is left; no receive CQE: the QP that was made goes again. Then the device refuses */
	for (uint32_t i = 0; i < 3; i++) {
		attr = qp_want(0, 0, i ? 32 : 16, i == 1 ? 128 : 32);
		attr.send_cq = i ? &rcq.cq : &scq.cq;
		attr.recv_cq = &rcq.cq;
		attr.pdn ^= i == 2 ? 0x5aa5 : 0;
		assert_int_equal(inlay_devx_qp_create(&second, dev.ctx, &attr), i < 2 ? -ENOSPC : -EINVAL);
		assert_true(!second.obj && second.error.why == (i == 2 ? NULL : i ? rcq.cq.refusal : scq.cq.refusal));
		assert_true((second.error.status != 0) == (i == 2) && scq.cq.reserved == 64 && rcq.cq.reserved == 32);
		must(inlay_devx_qp_destroy(&second));
	}
	assert_non_null(strstr(scq.cq.refusal, "16 more CQEs wanted, 0 of 64"));
	attr.max_ds = 64;
	assert_int_equal(inlay_devx_qp_create(&second, dev.ctx, &attr), -EINVAL);
	inlay_devx_error_text(&second.error, text, sizeof(text));
	assert_string_equal(text, "an unknown flag, a WQE of more than 63 units, or a number of more than 24 bits: "
			    "Invalid argument");
	rmpa = srq_want(64, 64, 0);
	rmpa.cq = &rcq.cq;
	must(inlay_devx_srq_create(&own, dev.ctx, &rmpa));
	assert_int_equal(rcq.cq.reserved, 96);
	xrqa = srq_want(64, 64, 0);
	xrqa.cq = &rcq.cq;
	xrqa.tags = 4;
	assert_int_equal(inlay_devx_srq_create(&xrq, dev.ctx, &xrqa), -ENOSPC);
	must(inlay_devx_srq_destroy(&own));
	must(inlay_devx_srq_destroy(&own));
	assert_int_equal(rcq.cq.reserved, 32);
	xrqa.pdn ^= 0x5aa5;
	assert_true(inlay_devx_srq_create(&xrq, dev.ctx, &xrqa) < 0);
	sent(F(0x80, 0x48, 24, rcq.cq.cqn));
	assert_int_equal(rcq.cq.reserved, 32);
	must(inlay_devx_qp_destroy(&qp));
	must(inlay_devx_qp_destroy(&qp));
	assert_int_equal(scq.cq.reserved + rcq.cq.reserved, 0);
	must(inlay_devx_cq_destroy(&scq));
	must(inlay_devx_cq_destroy(&rcq));
}

/* ---- NULL ---- */

#if INLAY_CHECKED
/* At least one function of each header */
sent_test(null_is_told_by_its_rule)
{
	static uint64_t zero[512]; /* any struct that is not looked into */

#define Z(type) (struct type *)(void *)zero
#define ABORTS(call) assert_aborts(": no argument is NULL\n", (void)(call))
	ABORTS(inlay_devx_command(NULL, zero, 16, zero, 16, NULL));
	ABORTS((void *)inlay_devx_error_text(NULL, (char *)zero, 16));
	ABORTS(inlay_devx_umem_reg(NULL, dev.ctx, zero, sizeof(zero), 0, 0));
	ABORTS(inlay_devx_uar_alloc(NULL, dev.ctx, MLX5DV_UAR_ALLOC_TYPE_NC, INLAY_UAR_DOORBELL));
	ABORTS(inlay_devx_cq_create(NULL, dev.ctx, Z(inlay_devx_cq_attr)));
	ABORTS(inlay_devx_qp_create(Z(inlay_devx_qp), dev.ctx, NULL));
	ABORTS(inlay_devx_qp_modify(Z(inlay_devx_qp), INLAY_QP_STATE_RTS, NULL, NULL));
	ABORTS(inlay_devx_srq_create(NULL, dev.ctx, Z(inlay_devx_srq_attr)));
	ABORTS(inlay_devx_srq_create(Z(inlay_devx_srq), NULL, Z(inlay_devx_srq_attr)));
	ABORTS(inlay_devx_dct_create(Z(inlay_devx_dct), dev.ctx, Z(inlay_devx_dct_attr), NULL));
	ABORTS(inlay_devx_mkey_create_list(Z(inlay_devx_mkey), dev.ctx, Z(inlay_devx_mkey_attr), NULL, 1, zero, sizeof(zero)));
	ABORTS(inlay_devx_event_get(NULL, Z(inlay_devx_event)));
	ABORTS(inlay_devx_answer(NULL, zero, sizeof(zero), zero, NULL));
	ABORTS(inlay_devx_address_resolve(NULL, dev.pd, Z(inlay_devx_path)));
	ABORTS(inlay_devx_rq_reset(NULL));
	ABORTS(inlay_devx_rss_create(Z(inlay_devx_rss), dev.ctx, NULL, 1, 0));
#undef Z
#undef ABORTS
}
#endif

int main(void)
{
	return rig_here() && (run_all(rig_open, rig_close) || again_with("SOFTDEV_LINK", "ib"));
}
