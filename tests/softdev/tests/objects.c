/* SPDX-License-Identifier: BSD-3-Clause */
/* objects.c: what the device says of itself, and objects: their keys and lives, what is refused, contexts that end or fork */
#include "rig.h"

static uint8_t buf[8192];

TEST(attributes)
{
	const ssize_t gids = is_roce() ? 4 : 1;
	struct ibv_gid_entry e[32], one;
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr a;
	struct ibv_port_attr p;
	union ibv_gid g;
	uint16_t pkey;
	int full = 0;

	must(ibv_query_device(ctx, &a));
	must(ibv_query_device_ex(ctx, NULL, &ex));
	assert_memory_equal(&ex.orig_attr, &a, sizeof(a));
	/* The adapter's OUI, not its PCI vendor; a ConnectX-6 */
	assert_true(a.vendor_id == 0x02c9 && a.vendor_part_id == 0x101b && a.phys_port_cnt == 1 && *a.fw_ver);
	assert_true(a.max_qp_wr == 32768 && a.max_sge == 30 && a.max_qp_rd_atom == 16 && a.atomic_cap == IBV_ATOMIC_HCA);
	assert_int_equal(a.node_guid, ibv_get_device_guid(ctx->device));
	assert_true(port.state == IBV_PORT_ACTIVE && port.active_mtu == IBV_MTU_4096);
	assert_int_equal(ibv_query_port(ctx, 0, &p), EINVAL);
	assert_int_equal(ibv_query_port(ctx, 2, &p), EINVAL);
	must(ibv_query_pkey(ctx, 1, 0, &pkey));
	assert_int_equal(be16toh(pkey), 0xffff);
	must(ibv_get_pkey_index(ctx, 1, pkey));
	/* Both ways of asking for GIDs */
	for (int i = 0; i < port.gid_tbl_len; i++) {
		must(ibv_query_gid(ctx, 1, i, &g));
		full += g.global.interface_id != 0;
	}
	assert_int_equal(full, gids);
	assert_int_not_equal(ibv_query_gid(ctx, 1, port.gid_tbl_len, &g), 0);
	assert_int_equal(ibv_query_gid_table(ctx, e, ARRAY(e), 0), gids);
	for (ssize_t i = 0; i < gids; i++) {
		must(ibv_query_gid_ex(ctx, 1, e[i].gid_index, &one, 0));
		assert_memory_equal(&one, &e[i], sizeof(one));
		assert_int_equal(one.gid_type, !is_roce() ? IBV_GID_TYPE_IB : i & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1);
	}
	assert_int_equal(ibv_query_gid_ex(ctx, 1, gids, &one, 0), ENODATA);
	assert_int_equal(ibv_query_gid_ex(ctx, 1, port.gid_tbl_len, &one, 0), EINVAL);
	assert_int_equal(ibv_query_gid_ex(ctx, 2, 0, &one, 0), EINVAL);
}

TEST(life_cycles)
{
	struct ibv_qp_init_attr init = { .cap = usual.cap, .qp_type = IBV_QPT_RC };
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_pd *p = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_mr(p, buf, sizeof(buf), ALL_ACCESS);
	struct ibv_mw *mw = ibv_alloc_mw(p, IBV_MW_TYPE_1);
	struct ibv_cq *cq = ibv_create_cq(ctx, 100, NULL, ch, 0);
	struct ibv_qp *qp;

	assert_true(mr && mw && cq);
	assert_int_equal(cq->cqe, 127);
	init.send_cq = init.recv_cq = cq;
	qp = made(ibv_create_qp(p, &init));
	assert_true(init.cap.max_send_wr >= 64 && init.cap.max_recv_wr >= 64 && init.cap.max_inline_data >= 64);
	assert_int_equal(state_of(qp), IBV_QPS_RESET);
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(ch), EBUSY);
	must(ibv_dereg_mr(mr));
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	must(ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_destroy_comp_channel(ch));
	assert_int_equal(ibv_dealloc_pd(p), EBUSY);
	must(ibv_dealloc_mw(mw) || ibv_dealloc_pd(p));
}

/* Each differs from what is made otherwise in one thing */
TEST(refusals)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct {
		void *addr;
		size_t len;
		int access, err;
	} regions[] = {
		{ buf, 0, ALL_ACCESS, EINVAL }, { (void *)4096, 4096, ALL_ACCESS, EFAULT },
		{ buf, (size_t)1 << 46, IBV_ACCESS_LOCAL_WRITE, 0 }, { buf, sizeof(buf), IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE, 0 }, { buf, 0, IBV_ACCESS_ON_DEMAND, EINVAL }, { page, 4096, IBV_ACCESS_LOCAL_WRITE, 0 },
	};
	struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_UD, .pd = pd, .create_flags = IBV_QP_CREATE_SCATTER_FCS,
					  .cap = usual.cap, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, .send_cq = cq, .recv_cq = cq };

	assert_non_null(cq);
	for (unsigned i = 0; i < ARRAY(regions); i++) {
		assert_null(ibv_reg_mr(pd, regions[i].addr, regions[i].len, regions[i].access));
		assert_true(!regions[i].err || errno == regions[i].err);
	}
	assert_null(ibv_reg_mr_iova(pd, buf, sizeof(buf), (uintptr_t)buf + 1, ALL_ACCESS));
	must_refuse(ibv_create_qp_ex(ctx, &ex), EOPNOTSUPP);
	must(ibv_destroy_cq(cq));
	/* What may not be written may be sent from */
	must(ibv_dereg_mr(ibv_reg_mr(pd, page, 4096, IBV_ACCESS_REMOTE_READ)));
	munmap(page, 4096);
}

TEST(keys)
{
	static const int changes[] = { IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION };
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_mr *mr[100];

	for (unsigned i = 0; i < ARRAY(mr); i++) {
		mr[i] = made(ibv_reg_mr(pd, buf, sizeof(buf), ALL_ACCESS));
		assert_true(!softdev_present() || mr[i]->lkey >> 8 != mr[i]->rkey >> 8);
		for (unsigned j = 0; j < i; j++)
			assert_true(mr[i]->lkey != mr[j]->lkey && mr[i]->rkey != mr[j]->rkey);
	}
	/* Rights and domain change under the key, memory does not */
	for (unsigned i = 0; i < ARRAY(changes); i++) {
		uint32_t lkey = mr[0]->lkey, rkey = mr[0]->rkey;

		must(ibv_rereg_mr(mr[0], changes[i], i == 1 ? other : NULL, i == 2 ? buf : NULL, i == 2 ? sizeof(buf) : 0,
				  i ? 0 : IBV_ACCESS_LOCAL_WRITE));
		assert_int_equal(mr[0]->lkey == lkey, i < 2);
		assert_int_equal(mr[0]->rkey == rkey, i < 2);
	}
	for (unsigned i = 0; i < ARRAY(mr); i++)
		must(ibv_dereg_mr(mr[i]));
	must(ibv_dealloc_pd(other));
}

/* A context by a file that came from somewhere: its objects are the same, and live as long as either file */
TEST(imported)
{
	uint32_t word = 77;

	assert_null(ibv_import_device(STDERR_FILENO));
	for (int first = 0; first < 2; first++) {
		struct ibv_context *c = ibv_open_device(list[0]), *other = ibv_import_device(dup(c->cmd_fd));
		struct ibv_alloc_dm_attr a = { .length = 64 };
		struct ibv_pd *theirs = ibv_alloc_pd(c), *p;
		struct ibv_dm *memory = ibv_alloc_dm(c, &a), *dm;
		struct ibv_mr *region = ibv_reg_mr(theirs, &word, sizeof(word), ALL_ACCESS), *mr;

		assert_true(other && memory && region);
		assert_int_equal(other->num_comp_vectors, c->num_comp_vectors);
		p = ibv_import_pd(other, theirs->handle);
		mr = ibv_import_mr(p, region->handle);
		dm = ibv_import_dm(other, memory->handle);
		assert_true(p && mr && dm);
		assert_null(ibv_import_pd(other, 1u << 30));
		assert_true(mr->lkey == region->lkey && mr->rkey == region->rkey && mr->length == sizeof(word));
		word = 77;
		must(ibv_memcpy_to_dm(memory, 0, &word, 4));
		word = 0;
		must(ibv_memcpy_from_dm(&word, dm, 0, 4));
		assert_int_equal(word, 77);
		ibv_unimport_dm(dm);
		ibv_unimport_mr(mr);
		if (first)
			must(ibv_close_device(c));
		/* Objects of its own, in a domain that is the other's */
		must(ibv_dereg_mr(ibv_reg_mr(p, &word, sizeof(word), ALL_ACCESS)));
		ibv_unimport_pd(p);
		must(ibv_close_device(other));
		if (!first)
			must(ibv_close_device(c));
	}
	/* Nothing of this one's has gone with it */
	open_pair(s, &usual);
	writes(s, 100, false);
	close_pair(s);
}

/* A context that is closed with everything still there leaves nothing taken */
TEST(abandoned)
{
	struct ibv_device_attr_ex ex;

	must(ibv_query_device_ex(ctx, NULL, &ex));
	for (int i = 0; i < 3; i++) {
		struct ibv_srq_init_attr si = { .attr = { .max_wr = 8, .max_sge = 1 } };
		struct ibv_qp_init_attr qi = { .cap = usual.cap, .qp_type = IBV_QPT_RC };
		struct ibv_mw_bind b = { .wr_id = 1, .send_flags = IBV_SEND_SIGNALED };
		struct ibv_alloc_dm_attr a = { .length = ex.max_dm_size };
		struct ibv_qp_attr attr = attr_for(IBV_QPS_RTR, 0, &usual);
		union ibv_gid group = { .raw = { 0xff, 0x12 } };
		struct ibv_context *c = ibv_open_device(list[0]);
		struct ibv_pd *p = ibv_alloc_pd(c);
		struct how ud = how_of_type(IBV_QPT_UD);
		struct ibv_qp *qp;

		b.bind_info = (struct ibv_mw_bind_info){ ibv_reg_mr(p, buf, sizeof(buf), ALL_ACCESS | IBV_ACCESS_MW_BIND),
							 (uintptr_t)buf, 4096, IBV_ACCESS_REMOTE_READ };
		qi.send_cq = qi.recv_cq = ibv_create_cq(c, 10, NULL, NULL, 0);
		qi.srq = ibv_create_srq(p, &si);
		qp = ibv_create_qp(p, &qi);
		bring_up(qp, qp->qp_num, &usual);
		must(ibv_bind_mw(qp, ibv_alloc_mw(p, IBV_MW_TYPE_1), &b));
		expect_op(qi.send_cq, 1, IBV_WC_BIND_MW);
		assert_non_null(ibv_reg_dm_mr(p, ibv_alloc_dm(c, &a), 0, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED));
		assert_non_null(ibv_create_ah(p, &attr.ah_attr));
		qi.qp_type = IBV_QPT_UD;
		qp = ibv_create_qp(p, &qi);
		bring_up(qp, 0, &ud);
		must(ibv_attach_mcast(qp, &group, 0xc000));
		must(ibv_close_device(c));
	}
}

/* A child opens the device and uses it; so does its own child */
static int forked_opens(int children)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		bool good = !setup(NULL);

		open_pair(s, &usual);
		writes(s, 5000, true);
		good = good && (!children || forked_opens(children - 1));
		sends(s, 64, false);
		close_pair(s);
		_exit(!good || teardown(NULL));
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static int before_opened;

/* Whether or not its parent has opened the device, which goes on with what it has and does not notice */
TEST(forks)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	pid_t pid;
	int status;

	assert_true(before_opened);
#ifdef __SANITIZE_THREAD__
	skip_if(true, "ThreadSanitizer lets no thread start in the child of a process with threads");
#endif
	open_pair(s, &usual);
	assert_true(forked_opens(1));
	writes(s, 5000, true);
	sends(s, 64, false);
	pid = fork();
	if (!pid) {
		pid = fork(); /* a child's child is answered the same */
		_exit((pid && (waitpid(pid, &status, 0) != pid || status)) || ibv_query_port(ctx, port_num, &port) || ibv_alloc_pd(ctx) ||
		      errno != EIO || ibv_query_qp(s[0].qp, &a, 0, &init) != EIO || ibv_destroy_qp(s[0].qp) != EIO);
	}
	must(waitpid(pid, &status, 0) != pid || status);
	close_pair(s);
}

int main(void)
{
	before_opened = forked_opens(0);
	return run_all(setup, teardown);
}
