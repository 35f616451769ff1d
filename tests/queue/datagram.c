/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * datagram.c: unreliable datagrams: every length over every kind of GID, answers to whoever the CQE names, several peers, groups, libmlx5
 * on the other side, WQEs of several WQEBBs around a full ring, what is lost, and a send queue that has stopped and goes on.
 */
#include "rig.h"
#include <endian.h>

static struct opt datagrams(void)
{
	return opt_of(IBV_QPT_UD, 1 << 18);
}

/* An end that needs no peer to be up */
static void up(struct end *e, const struct opt *opt, uint32_t mode)
{
	end_make(e, opt);
	qp_init(e->qp, opt);
	qp_connect(e->qp, 0, opt);
	end_take(e, mode);
}

static uint32_t longest(void)
{
	return 128u << dev.port.active_mtu;
}

/* The way to this port over that GID; false when there is no such GID */
static bool path_over(int index, struct ibv_ah_attr *ah)
{
	union ibv_gid gid;

	*ah = own_path();
	if (index && dev.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return false;
	if (ibv_query_gid(dev.ctx, 1, index, &gid))
		return false;
	if (!gid.global.subnet_prefix && !gid.global.interface_id)
		return false;
	if (ah->is_global) {
		ah->grh.dgid = gid;
		ah->grh.sgid_index = (uint8_t)index;
	}
	return true;
}

/* A datagram from that sender; its slot and WQE still to be given back */
static const struct mlx5_cqe64 *arrived(struct end *e, const struct end *from, uint8_t opcode, uint32_t len)
{
	const struct mlx5_cqe64 *cqe = cqe_wait(&e->rxcq);

	if (inlay_cqe_opcode(cqe) != opcode)
		inlay_cqe_print(stderr, cqe);
	assert_int_equal(inlay_cqe_opcode(cqe), opcode);
	assert_int_equal(inlay_cqe_byte_count(cqe), INLAY_GRH + len);
	assert_int_equal(inlay_cqe_qpn(cqe), e->qp->qp_num);
	assert_int_equal(inlay_cqe_src_qpn(cqe), from->qp->qp_num);
	assert_int_equal(inlay_cqe_wqe_counter(cqe), (e->rq.pi - inlay_rq_pending(&e->rq)) & 0xffff);
	/* Never in the CQE: the QPN would have no place */
	assert_null(inlay_cqe_payload(cqe, e->rxcq.stride));
	return cqe;
}

static void done(struct end *e)
{
	assert_int_equal(inlay_rq_release(&e->rq, inlay_cq_peek(&e->rxcq)), 1);
	inlay_cq_advance(&e->rxcq, 1);
}

/* The way back, as verbs makes it of a completion: here from what the CQE says */
static struct inlay_av av_back(const struct end *e, const struct mlx5_cqe64 *cqe, uint8_t *grh)
{
	struct ibv_ah_attr attr;
	struct ibv_wc wc;

	(void)e;
	memset(&wc, 0, sizeof(wc));
	wc.src_qp = inlay_cqe_src_qpn(cqe);
	wc.slid = inlay_cqe_slid(cqe);
	wc.sl = inlay_cqe_sl(cqe);
	wc.dlid_path_bits = inlay_cqe_path_bits(cqe);
	wc.wc_flags = inlay_cqe_has_grh(cqe) ? IBV_WC_GRH : 0;
	memset(&attr, 0, sizeof(attr));
	must(ibv_init_ah_from_wc(dev.ctx, 1, &wc, (struct ibv_grh *)grh, &attr));
	return av_of(&attr, wc.src_qp, QKEY);
}

/* Every length, as SGEs and inline, with and without immediate, over every GID; each is answered */
static void lengths(void **state)
{
	struct opt opt = datagrams();
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_ah_attr path;
	struct end a, b;
	int gid, gids = 0;

	(void)state;
	for (opt.cqe_size = 64; opt.cqe_size <= 128; opt.cqe_size += 64) {
		opt.scatter = true;
		up(&a, &opt, INLAY_UAR_DOORBELL);
		up(&b, &opt, INLAY_UAR_SERIAL);
		must(ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init));
		for (gid = 0; gid < 4; gid++) {
			const size_t here = 0x1003, there = 0x20005;
			struct inlay_av av;
			uint32_t len, step;

			if (!path_over(gid, &path))
				continue;
			gids++;
			path.sl = dev.port.link_layer == IBV_LINK_LAYER_ETHERNET ? 0 : 3;
			av = av_of(&path, b.qp->qp_num, QKEY);
			for (len = 0, step = 1; len <= longest(); len += step) {
				uint32_t flags = INLAY_SIGNALED | (rnd_below(2) ? INLAY_SOLICITED : 0), imm = (uint32_t)rnd(), i, num, at;
				bool with_imm = rnd_below(2), in = len <= init.cap.max_inline_data && rnd_below(2);
				const struct mlx5_cqe64 *cqe;
				struct ibv_sge sge[4];
				struct inlay_av back;

				step = len < 140 ? 1 : 157;
				if (len < longest() && len + step > longest())
					step = longest() - len;
				fill(a.buf + here, len, imm);
				num = 1 + rnd_below(4);
				for (i = at = 0; i < num; i++) {
					uint32_t part = i + 1 == num ? len - at : rnd_below(len - at + 1);

					sge[i] = sge_of(&a, here + at, part);
					at += part;
				}
				memset(b.buf + there - 8, 0x22, INLAY_GRH + len + 16);
				post_recv(&b, there, INLAY_GRH + len + rnd_below(2));
				if (in)
					flags |= INLAY_INLINE;
				if (with_imm)
					must(inlay_post_ud_send_imm(&a.sq, &av, htobe32(imm), sge, num, flags));
				else if (in && rnd_below(2))
					must(inlay_post_ud_send_inline(&a.sq, &av, a.buf + here, len, flags));
				else
					must(inlay_post_ud_send(&a.sq, &av, sge, num, flags));
				inlay_sq_ring(&a.sq);
				sent(&a);
				cqe = arrived(&b, &a, with_imm ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND, len);
				if (with_imm)
					assert_int_equal(inlay_cqe_imm_be(cqe), htobe32(imm));
				assert_int_equal(!!(cqe->op_own & INLAY_CQE_SOLICITED), !!(flags & INLAY_SOLICITED));
				assert_int_equal(inlay_cqe_has_grh(cqe), path.is_global);
				if (dev.port.link_layer != IBV_LINK_LAYER_ETHERNET) {
					assert_int_equal(inlay_cqe_sl(cqe), path.sl);
					assert_int_equal(inlay_cqe_slid(cqe), dev.port.lid);
				}
				assert_int_equal(differs(b.buf + there + INLAY_GRH, len, imm), len);
				assert_true(all_bytes(b.buf + there + INLAY_GRH + len, 8, 0x22));
				assert_true(all_bytes(b.buf + there - 8, 8, 0x22));
				back = av_back(&b, cqe, b.buf + there);
				done(&b);
				if (step > 1 && rnd_below(4))
					continue;
				post_recv(&a, 0x8000, INLAY_GRH + 8);
				must(inlay_post_ud_send_inline(&b.sq, &back, &imm, sizeof(imm), INLAY_SIGNALED));
				inlay_sq_ring(&b.sq);
				sent(&b);
				arrived(&a, &b, MLX5_CQE_RESP_SEND, sizeof(imm));
				assert_memory_equal(a.buf + 0x8000 + INLAY_GRH, &imm, sizeof(imm));
				done(&a);
			}
		}
		expect_nothing(&a.cq);
		expect_nothing(&b.rxcq);
		end_free(&a);
		end_free(&b);
	}
	assert_true(gids > 0);
	if (softdev_present())
		assert_int_equal(gids, dev.port.link_layer == IBV_LINK_LAYER_ETHERNET ? 8 : 2);
}

/* One queue, many peers: what is meant for one reaches no other, and each is told from the others by its CQE */
static void peers(void **state)
{
	enum { N = 7, DEPTH = 32 };
	struct opt opt = datagrams();
	uint32_t next[N], i, k, room, unsignaled = 0;
	struct inlay_av av[N], home;
	struct end a, e[N];

	(void)state;
	up(&a, &opt, INLAY_UAR_LOCKED);
	home = av_to(&a);
	for (i = 0; i < N; i++) {
		up(&e[i], &opt, INLAY_UAR_DOORBELL);
		av[i] = av_to(&e[i]);
		next[i] = 0;
		for (k = 0; k < DEPTH; k++)
			post_recv(&e[i], 64 * k, 64);
	}
	room = inlay_sq_room(&a.sq);
	for (i = 0; i < 1500; i++) {
		uint64_t word[2], said;
		uint32_t to = rnd_below(N), at;

		word[0] = (uint64_t)to << 32 | next[to];
		word[1] = i;
		unsignaled = unsignaled < 20 && rnd_below(4) ? unsignaled + 1 : 0;
		must(inlay_post_ud_send_inline(&a.sq, &av[to], word, sizeof(word), unsignaled ? 0 : INLAY_SIGNALED));
		inlay_sq_ring(&a.sq);
		arrived(&e[to], &a, MLX5_CQE_RESP_SEND, sizeof(word));
		at = 64 * (next[to] % DEPTH);
		assert_memory_equal(e[to].buf + at + INLAY_GRH, word, sizeof(word));
		done(&e[to]);
		post_recv(&e[to], at, 64);
		next[to]++;
		if (!unsignaled) {
			sent(&a);
			assert_int_equal(inlay_sq_room(&a.sq), room);
		}
		if (rnd_below(8))
			continue;
		post_recv(&a, 0x10000, 64);
		said = rnd();
		must(inlay_post_ud_send_inline(&e[to].sq, &home, &said, sizeof(said), INLAY_SIGNALED));
		inlay_sq_ring(&e[to].sq);
		sent(&e[to]);
		arrived(&a, &e[to], MLX5_CQE_RESP_SEND, sizeof(said));
		assert_memory_equal(a.buf + 0x10000 + INLAY_GRH, &said, sizeof(said));
		done(&a);
	}
	for (i = 0; i < N; i++) {
		assert_null(inlay_cq_peek(&e[i].rxcq));
		end_free(&e[i]);
	}
	end_free(&a);
}

/* libmlx5 at the other end, both ways */
static void with_libmlx5(void **state)
{
	struct opt opt = datagrams();
	struct ibv_ah_attr path = own_path();
	struct ibv_ah *ah = ibv_create_ah(dev.pd, &path);
	struct inlay_av av;
	struct end a, b;
	uint32_t i;

	(void)state;
	assert_non_null(ah);
	up(&a, &opt, INLAY_UAR_DOORBELL);
	end_make(&b, &opt);
	qp_init(b.qp, &opt);
	qp_connect(b.qp, 0, &opt);
	av = av_to(&b);
	for (i = 0; i < 120; i++) {
		uint32_t len = rnd_below(i % 3 ? 100 : longest() + 1), tag = (uint32_t)rnd();
		struct ibv_sge sge = sge_of(&b, 0x1000, INLAY_GRH + len);
		struct ibv_recv_wr rwr, *rbad;
		struct ibv_send_wr swr, *sbad;
		double end = now() + DEADLINE;
		struct ibv_wc wc;
		int n;

		memset(&rwr, 0, sizeof(rwr));
		rwr.wr_id = i;
		rwr.sg_list = &sge;
		rwr.num_sge = 1;
		must(ibv_post_recv(b.qp, &rwr, &rbad));
		fill(a.buf, len, tag);
		if (len <= 64) {
			must(inlay_post_ud_send_inline(&a.sq, &av, a.buf, len, INLAY_SIGNALED));
		} else {
			struct ibv_sge from = sge_of(&a, 0, len);

			must(inlay_post_ud_send_imm(&a.sq, &av, htobe32(tag), &from, 1, INLAY_SIGNALED));
		}
		inlay_sq_ring(&a.sq);
		sent(&a);
		do {
			step();
			n = ibv_poll_cq(b.rcq, 1, &wc);
		} while (!n && now() < end);
		assert_int_equal(n, 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.byte_len, INLAY_GRH + len);
		assert_int_equal(wc.src_qp, a.qp->qp_num);
		assert_int_equal(wc.wc_flags & IBV_WC_WITH_IMM, len <= 64 ? 0 : IBV_WC_WITH_IMM);
		if (len > 64)
			assert_int_equal(wc.imm_data, htobe32(tag));
		assert_int_equal(differs(b.buf + 0x1000 + INLAY_GRH, len, tag), len);
		/* Back */
		post_recv(&a, 0x10000, INLAY_GRH + len);
		memset(&swr, 0, sizeof(swr));
		sge = sge_of(&b, 0x1000 + INLAY_GRH, len);
		swr.sg_list = &sge;
		swr.num_sge = len != 0;
		swr.opcode = IBV_WR_SEND;
		swr.send_flags = IBV_SEND_SIGNALED;
		swr.wr.ud.ah = ah;
		swr.wr.ud.remote_qpn = a.qp->qp_num;
		swr.wr.ud.remote_qkey = QKEY;
		must(ibv_post_send(b.qp, &swr, &sbad));
		arrived(&a, &b, MLX5_CQE_RESP_SEND, len);
		assert_int_equal(differs(a.buf + 0x10000 + INLAY_GRH, len, tag), len);
		done(&a);
		do {
			step();
			n = ibv_poll_cq(b.scq, 1, &wc);
		} while (!n && now() < end);
		assert_int_equal(n, 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	must(ibv_destroy_ah(ah));
	end_free(&a);
	end_free(&b);
}

/* ---- groups ---- */

static void groups(void **state)
{
	const bool roce = dev.port.link_layer == IBV_LINK_LAYER_ETHERNET;
	struct opt opt = datagrams();
	struct ibv_ah_attr path = own_path();
	struct inlay_av av;
	union ibv_gid gid;
	struct end e[4];
	uint32_t i, round;

	(void)state;
	need_softdev("a group, whose packets leave the port,");
	memset(&gid, 0, sizeof(gid));
	gid.raw[0] = 0xff;
	gid.raw[1] = 0x0e;
	gid.raw[15] = 0x17;
	path.is_global = 1;
	path.grh.dgid = gid;
	path.grh.sgid_index = (uint8_t)dev.gid_index;
	path.grh.hop_limit = 1;
	path.dlid = 0xc017;
	av = av_of(&path, 0xffffff, QKEY);
	for (i = 0; i < 4; i++)
		up(&e[i], &opt, INLAY_UAR_DOORBELL);
	/* The sender 0, 1 and 2; 3 is none of them */
	for (i = 0; i < 3; i++)
		must(ibv_attach_mcast(e[i].qp, &gid, 0xc017));
	for (round = 0; round < 10; round++) {
		uint32_t members = round < 5 ? 3 : 2; /* 2 leaves half way */

		if (round == 5)
			must(ibv_detach_mcast(e[2].qp, &gid, 0xc017));
		for (i = 0; i < (round <= 5 ? 4 : 2); i++)
			post_recv(&e[i], 0x1000, INLAY_GRH + 64);
		fill(e[0].buf, 64, round);
		must(inlay_post_ud_send_inline(&e[0].sq, &av, e[0].buf, 64, INLAY_SIGNALED));
		inlay_sq_ring(&e[0].sq);
		sent(&e[0]);
		for (i = 0; i < members; i++) {
			const struct mlx5_cqe64 *cqe = arrived(&e[i], &e[0], MLX5_CQE_RESP_SEND, 64);

			assert_true(inlay_cqe_has_grh(cqe));
			assert_int_equal(differs(e[i].buf + 0x1000 + INLAY_GRH, 64, round), 64);
			if (roce || dev.gid_index == 0)
				assert_memory_equal(e[i].buf + 0x1000 + 24, gid.raw, 16);
			done(&e[i]);
		}
		expect_nothing(&e[2].rxcq);
		expect_nothing(&e[3].rxcq);
	}
	for (i = 0; i < 2; i++)
		must(ibv_detach_mcast(e[i].qp, &gid, 0xc017));
	for (i = 0; i < 4; i++)
		end_free(&e[i]);
}

/* ---- the ring ---- */

/*
 * Datagrams of 1 to n WQEBBs on a small ring, posted until it is full, with random signaling: what is refused leaves no trace, credit comes
 * back exactly, WQEs go over the ring's end at every place. The receiver compares every byte.
 */
static void full_ring(void **state)
{
	const uint32_t slot = 1024, window = 64;
	uint32_t mode, posted, got, recvs, refused, wrapped, largest, i, run, pending;
	struct opt opt = datagrams();
	struct inlay_av av;
	struct end a, b;

	(void)state;
	opt.cap.max_send_sge = 14;
	opt.cap.max_inline_data = 300;
	opt.cap.max_recv_wr = window;
	opt.cap.max_send_wr = 4;
	for (mode = INLAY_UAR_DOORBELL; mode <= INLAY_UAR_LOCKED; mode++) {
		struct opt apart = opt;
		struct inlay_uar uar;
		uint32_t size, list[256], bbs[256], head = 0, count = 0; /* WQEs outstanding: where they begin, how long they are */
		double end = now() + DEADLINE;

		must(inlay_uar_create(&uar, dev.pd, mode, NULL));
		apart.pd = uar.pd;
		end_make(&a, &apart);
		qp_init(a.qp, &apart);
		qp_connect(a.qp, 0, &apart);
		must(inlay_sq_from_qp(&a.sq, a.qp, &uar, NULL, NULL));
		must(inlay_cq_from_cq(&a.cq, a.scq, NULL));
		up(&b, &opt, INLAY_UAR_DOORBELL);
		av = av_to(&b);
		size = inlay_sq_room(&a.sq);
		assert_in_range(size, 16, 256);
		posted = got = recvs = refused = wrapped = largest = run = pending = 0;
		while (got < 2000) {
			const struct mlx5_cqe64 *cqe;

			for (; recvs < 2000 && recvs - got < window; recvs++)
				post_recv(&b, slot * (recvs % window), slot);
			while (posted < recvs) {
				uint32_t len = rnd_below(rnd_below(4) ? 60 : 301), num = 1 + rnd_below(14), at, before = a.sq.pi;
				struct inlay_sq was = a.sq;
				struct ibv_sge sge[14];
				uint32_t flags;
				int ret;

				fill(a.buf + slot * (posted % window), len, posted);
				for (i = at = 0; i < num; i++) {
					uint32_t part = i + 1 == num ? len - at : rnd_below(len - at + 1) / 3;

					sge[i] = sge_of(&a, slot * (posted % window) + at, part);
					at += part;
				}
				flags = run > 2 || rnd_below(3) == 0 || posted + 1 == 2000 ? INLAY_SIGNALED : 0;
				ret = inlay_post_ud_send(&a.sq, &av, sge, num, flags | (rnd_below(2) ? INLAY_INLINE : 0));
				if (ret) {
					assert_int_equal(ret, -EAGAIN);
					assert_memory_equal(&a.sq, &was, sizeof(was));
					refused++;
					break;
				}
				i = a.sq.pi - before;
				wrapped += before % size + i > size;
				largest = i > largest ? i : largest;
				list[(head + count) % 256] = before;
				bbs[(head + count++) % 256] = i;
				pending += i;
				assert_int_equal(inlay_sq_pending(&a.sq), pending);
				run = flags ? 0 : run + 1;
				posted++;
				if (rnd_below(2))
					inlay_sq_ring(&a.sq);
			}
			/* A ring full of unsignaled ones never empties: a NOP's completion is for all of them */
			if (run && inlay_sq_room(&a.sq) && inlay_sq_room(&a.sq) < 12) {
				list[(head + count) % 256] = a.sq.pi;
				bbs[(head + count++) % 256] = 1;
				pending++;
				must(inlay_post_nop(&a.sq, INLAY_SIGNALED));
				run = 0;
			}
			inlay_sq_ring(&a.sq);
			while ((cqe = inlay_cq_peek(&a.cq))) {
				assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_REQ);
				do {
					assert_true(count > 0);
					pending -= bbs[head];
					i = list[head];
					head = (head + 1) % 256;
					count--;
				} while ((i & 0xffff) != inlay_cqe_wqe_counter(cqe));
				assert_true(0 < inlay_sq_release(&a.sq, cqe));
				assert_int_equal(inlay_sq_pending(&a.sq), pending);
				inlay_cq_advance(&a.cq, 1);
			}
			while ((cqe = inlay_cq_peek(&b.rxcq))) {
				uint32_t len = inlay_cqe_byte_count(cqe) - INLAY_GRH;

				assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_RESP_SEND);
				assert_int_equal(inlay_cqe_src_qpn(cqe), a.qp->qp_num);
				assert_int_equal(differs(b.buf + slot * (got % window) + INLAY_GRH, len, got), len);
				assert_in_range(len, 0, 300);
				done(&b);
				got++;
				end = now() + DEADLINE;
			}
			step();
			if (now() > end)
				fail_msg("%u posted, %u arrived, and no more", posted, got);
		}
		while (inlay_sq_pending(&a.sq))
			sent(&a);
		assert_true(refused > 10 && wrapped > 10 && largest > 4);
		inlay_sq_fini(&a.sq);
		end_free(&a);
		end_free(&b);
		must(inlay_uar_destroy(&uar, NULL));
	}
}

/* ---- what does not arrive ---- */

/* No receive, wrong key, wrong number: the sender sees success, the receiver nothing, and the next one arrives */
static void lost(void **state)
{
	struct opt opt = datagrams();
	struct ibv_ah_attr path = own_path();
	struct inlay_av good, bad[3];
	struct end a, b;
	uint32_t i, k;

	(void)state;
	up(&a, &opt, INLAY_UAR_DOORBELL);
	up(&b, &opt, INLAY_UAR_DOORBELL);
	good = av_to(&b);
	bad[0] = av_of(&path, b.qp->qp_num, QKEY + 1);
	bad[1] = av_of(&path, b.qp->qp_num + 100, QKEY);
	bad[2] = good;
	for (i = 0; i < 24; i++) {
		bool none = i % 4 == 3;

		if (!none)
			post_recv(&b, 0, 128);
		for (k = 0; k < 3; k++) {
			must(inlay_post_ud_send_inline(&a.sq, &bad[none ? 2 : i % 2], "lost", 4, INLAY_SIGNALED));
			inlay_sq_ring(&a.sq);
			sent(&a);
		}
		if (none) {
			expect_nothing(&b.rxcq);
			continue;
		}
		must(inlay_post_ud_send_inline(&a.sq, &good, &i, sizeof(i), INLAY_SIGNALED));
		inlay_sq_ring(&a.sq);
		sent(&a);
		arrived(&b, &a, MLX5_CQE_RESP_SEND, sizeof(i));
		assert_memory_equal(b.buf + INLAY_GRH, &i, sizeof(i));
		done(&b);
	}
	expect_nothing(&b.rxcq);
	/* The highest bit of the key: the QP's own is sent */
	good = av_of(&path, b.qp->qp_num, 0x80000000);
	post_recv(&b, 0, 128);
	must(inlay_post_ud_send_inline(&a.sq, &good, "own", 4, INLAY_SIGNALED));
	inlay_sq_ring(&a.sq);
	sent(&a);
	arrived(&b, &a, MLX5_CQE_RESP_SEND, 4);
	done(&b);
	end_free(&a);
	end_free(&b);
}

/*
 * A datagram that cannot be sent stops the send queue only. What was behind it is flushed; once the QP is back in RTS the ring goes on
 * where it is, without a reset, and receives never stopped.
 */
static void stopped(void **state)
{
	struct opt opt = datagrams();
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct inlay_av av, home;
	struct end a, b;
	uint32_t round, i;

	(void)state;
	up(&a, &opt, INLAY_UAR_DOORBELL);
	up(&b, &opt, INLAY_UAR_DOORBELL);
	av = av_to(&b);
	home = av_to(&a);
	for (round = 0; round < 30; round++) {
		uint32_t behind = rnd_below(8);
		struct ibv_sge bad = sge_of(&a, 0, 32);
		const struct mlx5_cqe64 *cqe;

		bad.lkey ^= 0x55aa00;
		post_recv(&b, 0, 128);
		must(inlay_post_ud_send_inline(&a.sq, &av, "before", 6, 0));
		must(inlay_post_ud_send(&a.sq, &av, &bad, 1, rnd_below(2) ? INLAY_SIGNALED : 0));
		for (i = 0; i < behind; i++)
			must(inlay_post_ud_send_inline(&a.sq, &av, "behind", 6, rnd_below(2) ? INLAY_SIGNALED : 0));
		inlay_sq_ring(&a.sq);
		arrived(&b, &a, MLX5_CQE_RESP_SEND, 6);
		done(&b);
		cqe = cqe_wait(&a.cq);
		assert_int_equal(inlay_cqe_opcode(cqe), MLX5_CQE_REQ_ERR);
		assert_int_equal(inlay_cqe_status(cqe), IBV_WC_LOC_PROT_ERR);
		assert_true(0 < inlay_sq_release(&a.sq, cqe));
		inlay_cq_advance(&a.cq, 1);
		for (i = 0; i < behind; i++) {
			cqe = cqe_wait(&a.cq);
			assert_int_equal(inlay_cqe_status(cqe), IBV_WC_WR_FLUSH_ERR);
			assert_true(0 < inlay_sq_release(&a.sq, cqe));
			inlay_cq_advance(&a.cq, 1);
		}
		assert_int_equal(inlay_sq_pending(&a.sq), 0);
		must(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init));
		assert_int_equal(attr.qp_state, IBV_QPS_SQE);
		stopped_nop(&a);
		post_recv(&a, 0x1000, 128);
		must(inlay_post_ud_send_inline(&b.sq, &home, "heard", 5, INLAY_SIGNALED));
		inlay_sq_ring(&b.sq);
		sent(&b);
		arrived(&a, &b, MLX5_CQE_RESP_SEND, 5);
		done(&a);
		memset(&attr, 0, sizeof(attr));
		attr.qp_state = IBV_QPS_RTS;
		attr.cur_qp_state = IBV_QPS_SQE;
		must(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
		post_recv(&b, 0, 128);
		must(inlay_post_ud_send_inline(&a.sq, &av, &round, sizeof(round), INLAY_SIGNALED));
		inlay_sq_ring(&a.sq);
		sent(&a);
		arrived(&b, &a, MLX5_CQE_RESP_SEND, sizeof(round));
		assert_memory_equal(b.buf + INLAY_GRH, &round, sizeof(round));
		done(&b);
	}
	end_free(&a);
	end_free(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(lengths),
		cmocka_unit_test(peers),
		cmocka_unit_test(with_libmlx5),
		cmocka_unit_test(groups),
		cmocka_unit_test(full_ring),
		cmocka_unit_test(lost),
		cmocka_unit_test(stopped),
	};

	return cmocka_run_group_tests_name("datagram", tests, dev_open, dev_close) || again_with("SOFTDEV_MANUAL", "1") ||
	       again_with("SOFTDEV_LINK", "ib") || again_trapped();
}
