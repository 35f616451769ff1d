/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a verbs program sees, as text: run by shim.t on libmlx5 and on the shim, which must read the same to the last field. Of each
 * completion all fields are shown that were written (each is filled with a pattern before), of each refused post its errno and place.
 *
 * Plain verbs, with both ends in this process; nothing of inlay. What depends on the run (numbers of QPs, keys, times) is not shown.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include "../softdev/softdev.h"

#define BYTES 4096u
#define QKEY 0x1234u
#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | \
		    IBV_ACCESS_MW_BIND)

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct ibv_port_attr port;

static void *need(void *p, const char *what)
{
	if (!p) {
		printf("no %s: %s\n", what, strerror(errno));
		exit(1);
	}
	return p;
}

static void must(int err, const char *what)
{
	if (err) {
		printf("%s: %s\n", what, strerror(err));
		exit(1);
	}
}

/* ---- what a scenario is made of ---- */

struct how {
	const char *name;
	enum ibv_qp_type type;
	bool ex_cq;   /* ibv_create_cq_ex and ibv_start_poll, else ibv_poll_cq */
	bool wr;      /* ibv_wr_*, else ibv_post_send */
	bool srq;
	bool one_cq;  /* both ends and sides complete to one */
	bool sig_all;
	unsigned int sends; /* 0: 13 */
	unsigned int recvs; /* likewise, and the CQ takes as many more */
	bool strange; /* the second end's QP is of a kind that inlay does not know */
	struct ibv_comp_channel *channel;
};

struct end {
	const struct how *how;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	uint8_t *buf; /* half of it sends, half receives */
	uint32_t at;  /* of the next receive in its half */
	uint32_t peer;
	uint32_t peer_rkey;
	uint64_t peer_addr;
	struct ibv_qp_cap cap;
};

/* What makes a QP strange: a word about something else, which libmlx5 passes over */
#define STRANGE ((uint32_t)IBV_QP_INIT_ATTR_XRCD)
static unsigned int stranges; /* how many were made, which are all that may be libmlx5's */

static struct ibv_cq *make_cq(const struct how *how)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 63 + how->recvs,
		.channel = how->channel,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};

	if (how->ex_cq)
		return ibv_cq_ex_to_cq(need(ibv_create_cq_ex(ctx, &attr), "extended CQ"));
	return need(ibv_create_cq(ctx, 63 + (int)how->recvs, NULL, how->channel, 0), "CQ");
}

static void make_end(struct end *e, const struct how *how, bool first, struct end *other)
{
	struct ibv_qp_init_attr_ex attr = {
		.cap = {how->sends ? how->sends : 13, how->recvs ? how->recvs : 13, .max_send_sge = 3, .max_recv_sge = 3,
			.max_inline_data = 100},
		.qp_type = how->type,
		.sq_sig_all = how->sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = how->recvs ? how->recvs : 13, .max_sge = 3}};

	memset(e, 0, sizeof(*e));
	e->how = how;
	e->buf = need(aligned_alloc(4096, 2 * BYTES), "memory");
	memset(e->buf, 0, 2 * BYTES);
	e->mr = need(ibv_reg_mr(pd, e->buf, 2 * BYTES, ALL_ACCESS), "MR");
	if (how->one_cq && !first) {
		e->scq = e->rcq = other->scq;
	} else {
		e->scq = make_cq(how);
		e->rcq = how->one_cq ? e->scq : make_cq(how);
	}
	if (how->srq)
		e->srq = need(ibv_create_srq(pd, &srq), "SRQ");
	attr.send_cq = e->scq;
	attr.recv_cq = e->rcq;
	attr.srq = e->srq;
	if (how->wr) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
		if (how->type != IBV_QPT_UD)
			attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
		if (how->type == IBV_QPT_RC)
			attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
					       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	}
	if (how->strange && !first) {
		attr.comp_mask |= STRANGE;
		stranges++;
	}
	e->qp = need(ibv_create_qp_ex(ctx, &attr), "QP");
	e->cap = attr.cap;
	if (e->qp->pd != pd)
		printf("the QP says another PD\n");
}

static void connect_end(struct end *e, struct end *to, enum ibv_qp_state last)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.qkey = QKEY,
	};
	struct ibv_ah_attr ah = {.port_num = 1, .dlid = port.lid};
	bool rc = e->how->type == IBV_QPT_RC, ud = e->how->type == IBV_QPT_UD;

	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		ah.is_global = 1;
		ah.grh.dgid = gid;
		ah.grh.hop_limit = 64;
	}
	e->peer = to->qp->qp_num;
	e->peer_rkey = to->mr->rkey;
	e->peer_addr = (uintptr_t)to->buf + BYTES;
	must(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)), "INIT");
	if (last == IBV_QPS_INIT)
		return;
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = e->peer;
	a.max_dest_rd_atomic = 4;
	a.min_rnr_timer = 1;
	a.ah_attr = ah;
	must(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | (ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
			   (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)), "RTR");
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 12;
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	a.max_rd_atomic = 4;
	must(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN |
			   (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)), "RTS");
	if (ud && !e->ah)
		e->ah = need(ibv_create_ah(pd, &ah), "AH");
}

static void to_state(struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = {.qp_state = state};

	must(ibv_modify_qp(e->qp, &a, IBV_QP_STATE), "modify");
}

static void free_qp(struct end *e)
{
	must(ibv_destroy_qp(e->qp), "destroy QP");
	e->qp = NULL;
}

static void free_end(struct end *e, bool cqs)
{
	if (e->qp)
		free_qp(e);
	if (e->ah)
		must(ibv_destroy_ah(e->ah), "destroy AH");
	if (e->srq)
		must(ibv_destroy_srq(e->srq), "destroy SRQ");
	if (cqs) {
		must(ibv_destroy_cq(e->scq), "destroy CQ");
		if (e->rcq != e->scq)
			must(ibv_destroy_cq(e->rcq), "destroy CQ");
	}
	must(ibv_dereg_mr(e->mr), "deregister");
	free(e->buf);
}

static void connect_pair(struct end *ends)
{
	connect_end(&ends[0], &ends[1], IBV_QPS_RTS);
	connect_end(&ends[1], &ends[0], IBV_QPS_RTS);
}

static void make_pair(struct end *ends, const struct how *how)
{
	make_end(&ends[0], how, true, NULL);
	make_end(&ends[1], how, false, &ends[0]);
	connect_pair(ends);
}

static void free_pair(struct end *ends)
{
	free_end(&ends[1], !ends[1].how->one_cq);
	free_end(&ends[0], true);
}

/* ---- completions as text ---- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const char *who(const struct end *ends, uint32_t qpn)
{
	static char text[16];

	if (ends[0].qp && qpn == ends[0].qp->qp_num)
		return "a";
	if (ends[1].qp && qpn == ends[1].qp->qp_num)
		return "b";
	snprintf(text, sizeof(text), qpn == 0x5a5a5a5a ? "-" : qpn ? "?" : "0");
	return text;
}

static FILE *out;

static void show(const char *name, uint32_t value)
{
	if (value == 0x5a5a5a5a)
		fprintf(out, " %s -", name);
	else
		fprintf(out, " %s %x", name, value);
}

static void show_wc(const char *queue, const struct end *ends, const struct ibv_wc *wc)
{
	fprintf(out, "  %s wr_id %llx status %s", queue, (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status));
	show("opcode", wc->opcode);
	show("vendor_err", wc->vendor_err);
	show("byte_len", wc->byte_len);
	if (wc->status == IBV_WC_SUCCESS && wc->wc_flags & IBV_WC_WITH_INV)
		fprintf(out, " (a key invalidated)");
	else
		show("imm", wc->imm_data);
	fprintf(out, " qp %s src_qp %s", who(ends, wc->qp_num), who(ends, wc->src_qp));
	show("flags", wc->wc_flags);
	fprintf(out, " pkey %x slid %x sl %x path %x\n", wc->wc_flags & IBV_WC_WITH_INV ? 0 : wc->pkey_index, wc->slid, wc->sl,
		wc->dlid_path_bits);
}

static void show_ex(const char *queue, const struct end *ends, struct ibv_cq_ex *cq)
{
	enum ibv_wc_opcode opcode;

	fprintf(out, "  %s wr_id %llx status %s", queue, (unsigned long long)cq->wr_id, ibv_wc_status_str(cq->status));
	if (cq->status != IBV_WC_SUCCESS) {
		fprintf(out, " vendor_err %x qp %s\n", ibv_wc_read_vendor_err(cq), who(ends, ibv_wc_read_qp_num(cq)));
		return;
	}
	opcode = ibv_wc_read_opcode(cq);
	fprintf(out, " opcode %x flags %x qp %s", opcode, ibv_wc_read_wc_flags(cq), who(ends, ibv_wc_read_qp_num(cq)));
	if (opcode & IBV_WC_RECV || opcode == IBV_WC_RDMA_READ)
		fprintf(out, " byte_len %x", ibv_wc_read_byte_len(cq));
	if (opcode & IBV_WC_RECV)
		fprintf(out, " imm %x src_qp %s slid %x sl %x path %x",
			ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_INV ? 0 : ibv_wc_read_imm_data(cq),
		       who(ends, ibv_wc_read_src_qp(cq)), ibv_wc_read_slid(cq), ibv_wc_read_sl(cq), ibv_wc_read_dlid_path_bits(cq));
	fprintf(out, " time %s\n", ibv_wc_read_completion_ts(cq) ? "yes" : "no");
}

/* Shows n completions of a CQ, in polls of at most three, and that there are no more. */
static void take(const char *queue, const struct end *ends, struct ibv_cq *cq, int n)
{
	struct ibv_poll_cq_attr attr = {};
	double end = now() + 60;
	struct ibv_wc wc[3];
	int got, i;

	while (n > 0 && now() < end) {
		if (!ends->how->ex_cq) {
			memset(wc, 0x5a, sizeof(wc));
			got = ibv_poll_cq(cq, n < 3 ? n : 3, wc);
			for (i = 0; i < got; i++, n--)
				show_wc(queue, ends, &wc[i]);
			if (got < 0) {
				fprintf(out, "  %s: poll says %d\n", queue, got);
				return;
			}
		} else if (!ibv_start_poll((struct ibv_cq_ex *)cq, &attr)) {
			do {
				show_ex(queue, ends, (struct ibv_cq_ex *)cq);
				n--;
			} while (n > 0 && !ibv_next_poll((struct ibv_cq_ex *)cq));
			ibv_end_poll((struct ibv_cq_ex *)cq);
		}
	}
	if (n)
		fprintf(out, "  %s: %d completions are missing\n", queue, n);
	got = ends->how->ex_cq ? ibv_start_poll((struct ibv_cq_ex *)cq, &attr) : ibv_poll_cq(cq, 1, wc);
	if (got != (ends->how->ex_cq ? ENOENT : 0))
		fprintf(out, "  %s: more than expected, %d\n", queue, got);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Verbs does not promise an order between two QPs: where it may differ, the lines are sorted. */
static void drain(const char *queue, const struct end *ends, struct ibv_cq *cq, int n)
{
	char *text, *line, *rest, *lines[100];
	size_t size, count = 0, i;

	out = need(open_memstream(&text, &size), "stream");
	take(queue, ends, cq, n);
	fclose(out);
	for (line = strtok_r(text, "\n", &rest); line && count < 100; line = strtok_r(NULL, "\n", &rest))
		lines[count++] = line;
	if (ends->how->strange && ends->how->one_cq)
		qsort(lines, count, sizeof(lines[0]), by_text);
	for (i = 0; i < count; i++)
		puts(lines[i]);
	free(text);
}

static unsigned int sum(const uint8_t *p, size_t n)
{
	unsigned int s = 1;

	while (n--)
		s = s * 31 + *p++;
	return s;
}

/* ---- posts ---- */

static void fill(struct end *e, unsigned int seed)
{
	for (unsigned int i = 0; i < BYTES; i++)
		e->buf[i] = (uint8_t)(seed * 7 + i * 13 + i / 256);
}

static int post_recv(struct end *e, uint64_t wr_id, uint32_t length, int num_sge)
{
	struct ibv_sge sge[8];
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = sge, .num_sge = num_sge}, *bad = NULL;

	for (int i = 0; i < num_sge && i < 8; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)e->buf + BYTES + e->at + (uint32_t)i * length, length, e->mr->lkey};
	return e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);
}

/* Until the first bytes of a write are there: the completions of all before it are, too */
static void landed(const struct end *from, const struct end *to, size_t len)
{
	double end = now() + 60;

	while (memcmp(from->buf, to->buf + BYTES, len) && now() < end)
		sched_yield();
}

struct op {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	unsigned int flags;
	int num_sge;
	bool takes; /* takes a receive */
};

static void fill_wr(struct end *e, const struct op *op, struct ibv_send_wr *wr, struct ibv_sge *sge, uint64_t wr_id)
{
	uint32_t left = op->length, at = 0;

	memset(wr, 0, sizeof(*wr));
	for (int i = 0; i < op->num_sge; i++) {
		uint32_t part = i == op->num_sge - 1 ? left : left / 2;

		sge[i] = (struct ibv_sge){(uintptr_t)e->buf + at, part, e->mr->lkey};
		at += part;
		left -= part;
	}
	wr->wr_id = wr_id;
	wr->opcode = op->opcode;
	wr->send_flags = op->flags;
	wr->sg_list = sge;
	wr->num_sge = op->num_sge;
	wr->imm_data = htobe32(0x1a2b3c00 + (uint32_t)wr_id);
	if (e->how->type == IBV_QPT_UD) {
		wr->wr.ud.ah = e->ah;
		wr->wr.ud.remote_qpn = e->peer;
		wr->wr.ud.remote_qkey = QKEY;
	} else if (op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = e->peer_addr + 1024;
		wr->wr.atomic.rkey = e->peer_rkey;
		wr->wr.atomic.compare_add = 5;
		wr->wr.atomic.swap = 77;
	} else {
		wr->wr.rdma.remote_addr = e->peer_addr;
		wr->wr.rdma.rkey = e->peer_rkey;
	}
}

/* The peer is named before the payload or after it, as wr_id says */
static void build(struct ibv_qp_ex *ex, bool ud, const struct ibv_send_wr *wr)
{
	struct ibv_data_buf data[4];

	ex->wr_id = wr->wr_id;
	ex->wr_flags = wr->send_flags;
	switch (wr->opcode) {
	case IBV_WR_SEND: ibv_wr_send(ex); break;
	case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(ex, wr->imm_data); break;
	case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr); break;
	case IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write_imm(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data); break;
	case IBV_WR_RDMA_READ: ibv_wr_rdma_read(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr); break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	default: ibv_wr_atomic_fetch_add(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
	}
	if (ud && wr->wr_id & 1)
		ibv_wr_set_ud_addr(ex, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	for (int i = 0; i < wr->num_sge; i++)
		data[i] = (struct ibv_data_buf){(void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length};
	if (wr->send_flags & IBV_SEND_INLINE && wr->num_sge == 1)
		ibv_wr_set_inline_data(ex, data[0].addr, data[0].length);
	else if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data_list(ex, (size_t)wr->num_sge, data);
	else if (wr->num_sge == 1)
		ibv_wr_set_sge(ex, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
	else
		ibv_wr_set_sge_list(ex, (size_t)wr->num_sge, wr->sg_list);
	if (ud && !(wr->wr_id & 1))
		ibv_wr_set_ud_addr(ex, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
}

static int post_op(struct end *e, const struct op *op, uint64_t wr_id)
{
	struct ibv_send_wr wr, *bad = NULL;
	struct ibv_sge sge[8];

	fill_wr(e, op, &wr, sge, wr_id);
	if (!e->how->wr)
		return ibv_post_send(e->qp, &wr, &bad);
	ibv_wr_start(ibv_qp_to_qp_ex(e->qp));
	build(ibv_qp_to_qp_ex(e->qp), e->how->type == IBV_QPT_UD, &wr);
	return ibv_wr_complete(ibv_qp_to_qp_ex(e->qp));
}

#define SIG IBV_SEND_SIGNALED
#define INL IBV_SEND_INLINE

static const struct op ops[] = {
	{"send", IBV_WR_SEND, 8, SIG, 1, true},
	{"send, inline", IBV_WR_SEND, 60, SIG | INL, 1, true},
	{"send, nothing", IBV_WR_SEND, 0, SIG, 0, true},
	{"send, three pieces", IBV_WR_SEND, 700, SIG, 3, true},
	{"send, inline pieces", IBV_WR_SEND, 100, SIG | INL, 3, true},
	{"send, unsignaled", IBV_WR_SEND, 16, 0, 1, true},
	{"send, solicited, fenced", IBV_WR_SEND, 33, SIG | IBV_SEND_SOLICITED | IBV_SEND_FENCE, 1, true},
	{"send with immediate", IBV_WR_SEND_WITH_IMM, 24, SIG, 2, true},
	{"send with immediate, inline", IBV_WR_SEND_WITH_IMM, 3, SIG | INL, 1, true},
	/* UC from here */
	{"write", IBV_WR_RDMA_WRITE, 900, SIG, 2, false},
	{"write, inline", IBV_WR_RDMA_WRITE, 90, SIG | INL, 1, false},
	{"write with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, 32, SIG, 1, true},
	{"write, nothing", IBV_WR_RDMA_WRITE, 0, SIG, 1, false},
	/* RC from here */
	{"read", IBV_WR_RDMA_READ, 500, SIG, 2, false},
	{"read, small", IBV_WR_RDMA_READ, 20, SIG, 2, false},
	{"fetch and add", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, SIG, 1, false},
	{"compare and swap", IBV_WR_ATOMIC_CMP_AND_SWP, 8, SIG, 1, false},
};

static unsigned int ops_of(enum ibv_qp_type type)
{
	return type == IBV_QPT_UD ? 9 : type == IBV_QPT_UC ? 13 : sizeof(ops) / sizeof(ops[0]);
}

/* Every operation, each alone, three times around the rings. */
static void all_ops(struct end *ends)
{
	struct end *a = &ends[0], *b = &ends[1];
	unsigned int lap, i, n = ops_of(a->how->type);
	uint64_t wr_id = 0x1000;

	for (lap = 0; lap < 3; lap++) {
		for (i = 0; i < n; i++, wr_id++) {
			const struct op *op = &ops[i];
			bool signaled = op->flags & SIG || a->how->sig_all;

			printf("%s\n", op->name);
			fill(a, lap * 50 + i);
			memset(b->buf + BYTES, 0, 1000);
			if (op->takes)
				must(post_recv(b, 0x8000 + wr_id, 400, 3), "post receive");
			must(post_op(a, op, wr_id), op->name);
			if (a->how->one_cq) {
				drain("cq", ends, a->scq, signaled + op->takes);
			} else {
				if (op->takes)
					drain("recv", ends, b->rcq, 1);
				if (signaled)
					drain("send", ends, a->scq, 1);
			}
			printf("  there %08x here %08x\n", sum(b->buf + BYTES, 1100), sum(a->buf, 1000));
		}
	}
}

/* What is repeated: all of it with SHIM_ALL, else less */
static uint64_t repeat(uint64_t most, uint64_t else_most)
{
	return getenv("SHIM_ALL") ? most : else_most;
}

/*
 * As many as are asked for, at random, in batches: their order, lengths, pieces, flags. Each message has a place of its own, and what is
 * brought here comes last, because a CQE may hold it until it is polled.
 */
static uint64_t dice;

static uint32_t below(uint32_t n)
{
	dice = dice * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(dice >> 33) % n;
}

static void at_random(const struct how *how, unsigned int batches)
{
	struct end ends[2], *a = &ends[0], *b = &ends[1];
	unsigned int lap, i, n, takes, signaled;

	printf("== at random, %s\n", how->name);
	make_pair(ends, how);
	for (lap = 0; lap < batches; lap++) {
		fill(a, lap);
		memset(b->buf + BYTES, 0, BYTES);
		n = 1 + below(4);
		for (i = takes = signaled = 0; i < n; i++) {
			struct op op = ops[below(i < n - 1 && how->type == IBV_QPT_RC ? 13 : ops_of(how->type))];

			op.num_sge = op.length == 8 ? 1 : (int)below(4);
			op.length = op.num_sge ? op.length == 8 ? 8 : below(op.flags & INL ? 101 : below(2) ? 700 : 33) : 0;
			op.flags = (op.flags & INL) | (below(2) || i == n - 1 ? SIG : 0) | (below(2) ? IBV_SEND_FENCE : 0) |
				   (below(2) ? IBV_SEND_SOLICITED : 0);
			b->at = 1048 + 750 * i;
			if (op.takes)
				must(post_recv(b, lap * 100 + i, 250, 3), "post receive");
			must(post_op(a, &op, lap * 100 + i), op.name);
			takes += op.takes;
			signaled += (op.flags & SIG) != 0;
		}
		drain("send", ends, a->scq, (int)signaled);
		drain("recv", ends, b->rcq, (int)takes);
		printf("  there %08x here %08x\n", sum(b->buf + BYTES, BYTES), sum(a->buf, 1000));
	}
	free_pair(ends);
}

/* Reads of two WQEBBs from an odd one on: the pieces of one pass the ring's end, and its CQE holds what was read */
static void read_around(void)
{
	static const struct how how = {.name = "RC", .type = IBV_QPT_RC, .sig_all = true};
	static const struct op read = {"read", IBV_WR_RDMA_READ, 30, SIG, 3, false};
	struct end ends[2];

	printf("== reads around the ring\n");
	make_pair(ends, &how);
	must(post_op(&ends[0], &ops[12], 0), "post");
	drain("send", ends, ends[0].scq, 1);
	for (unsigned int i = 1; i < 140; i++) {
		fill(&ends[0], i);
		fill(&ends[1], i + 1);
		memcpy(ends[1].buf + BYTES, ends[1].buf, 64);
		must(post_op(&ends[0], &read, i), "post");
		drain("send", ends, ends[0].scq, 1);
		printf("  here %08x\n", sum(ends[0].buf, 64));
	}
	free_pair(ends);
}

/* ---- refusals ---- */

struct spoil {
	const char *name;
	int n, odd;   /* so many requests, of which this one is spoilt: */
	enum ibv_wr_opcode opcode;
	int num_sge;
	unsigned int flags;
	uint32_t length;
	int done;     /* completions; -1: as many as there is room for */
};

static void list_of(struct end *e, const struct spoil *row)
{
	static const struct op write = {"write", IBV_WR_RDMA_WRITE, 8, SIG, 1, false};
	struct ibv_send_wr wr[40], *bad = NULL;
	struct ibv_sge sge[40][8];
	int i, err;

	printf("%s\n", row->name);
	for (i = 0; i < row->n; i++) {
		fill_wr(e, &write, &wr[i], sge[i], 0x100u + (uint32_t)i);
		wr[i].next = i < row->n - 1 ? &wr[i + 1] : NULL;
		if (i != row->odd && row->odd >= 0)
			continue;
		wr[i].opcode = row->opcode;
		wr[i].num_sge = row->num_sge;
		wr[i].send_flags |= row->flags;
		wr[i].sg_list->length = row->length;
	}
	err = ibv_post_send(e->qp, wr, &bad);
	printf("  %s at %d\n", err ? strerror(err) : "posted", bad ? (int)(bad - wr) : -1);
	drain("send", e, e->scq, row->done < 0 ? (int)e->cap.max_send_wr : row->done);
}

static int recv_list(struct end *e, int n, int sges)
{
	struct ibv_recv_wr wr[80], *bad = NULL;
	struct ibv_sge sge = {(uintptr_t)e->buf + BYTES, 64, e->mr->lkey}, many[8];
	int i, err;

	for (i = 0; i < 8; i++)
		many[i] = sge;
	for (i = 0; i < n; i++)
		wr[i] = (struct ibv_recv_wr){.wr_id = 0x900u + (uint32_t)i, .next = i < n - 1 ? &wr[i + 1] : NULL, .sg_list = many,
					     .num_sge = i == n - 1 ? sges : 1};
	err = e->srq ? ibv_post_srq_recv(e->srq, wr, &bad) : ibv_post_recv(e->qp, wr, &bad);
	printf("  %s at %d\n", err ? strerror(err) : "posted", bad ? (int)(bad - wr) : -1);
	return bad ? (int)(bad - wr) : n;
}

/* ibv_wr_*: so many writes, with a poll between them */
static void writes_by_wr(struct end *e, int n, uint64_t wr_id, bool poll)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(e->qp);

	ibv_wr_start(ex);
	ex->wr_flags = SIG;
	for (int i = 0; i < n; i++) {
		ex->wr_id = wr_id + (uint64_t)i;
		ibv_wr_rdma_write(ex, e->peer_rkey, e->peer_addr);
		ibv_wr_set_sge(ex, e->mr->lkey, (uintptr_t)e->buf, 8);
		if (poll)
			drain("send", e, e->scq, 0);
	}
}

static void refusals(void)
{
	static const struct how how = {.name = "refusals", .type = IBV_QPT_RC, .wr = true};
	static const struct how srq = {.name = "srq", .type = IBV_QPT_RC, .srq = true};
	static const struct spoil early = {"in RESET, or INIT", 2, -1, IBV_WR_RDMA_WRITE, 1, 0, 8, 0};
	/* Too long inline is the first of its list: behind a good one libmlx5 rings with its control segment, and the good one waits. */
	struct spoil rows[] = {
		{"a bad opcode", 4, 2, (enum ibv_wr_opcode)99, 1, 0, 8, 2},
		{"too many pieces", 4, 3, IBV_WR_RDMA_WRITE, 5, 0, 8, 3},
		{"too long inline", 4, 0, IBV_WR_RDMA_WRITE, 1, INL, 2000, 0},
		{"a bad opcode first", 3, 0, (enum ibv_wr_opcode)99, 1, 0, 8, 0},
		{"fewer pieces than none", 2, 1, IBV_WR_RDMA_WRITE, -1, 0, 8, 2},
		{"fewer pieces than none, inline", 3, 1, IBV_WR_RDMA_WRITE, -1, INL, 8, 3},
		{"more than there is room for", 30, -1, IBV_WR_RDMA_WRITE, 1, 0, 8, -1},
		{"a few more", 3, -1, IBV_WR_RDMA_WRITE, 1, 0, 8, 3},
		{"the longest, more than there is room for", 30, -1, IBV_WR_RDMA_WRITE, 1, INL, 0, -1},
	};
	struct ibv_qp_ex *ex;
	struct end ends[2];
	int n, i;

	printf("== refusals\n");
	make_end(&ends[0], &how, true, NULL);
	make_end(&ends[1], &how, false, &ends[0]);
	ex = ibv_qp_to_qp_ex(ends[0].qp);
	list_of(&ends[0], &early);
	recv_list(&ends[0], 1, 1);
	printf("  ibv_wr_*: %s\n", strerror(post_op(&ends[0], &ops[9], 1)));
	connect_end(&ends[0], &ends[1], IBV_QPS_INIT);
	list_of(&ends[0], &early);
	recv_list(&ends[0], 1, 1);
	to_state(&ends[0], IBV_QPS_RESET);
	connect_pair(ends);
	for (unsigned int k = 0; k < sizeof(rows) / sizeof(rows[0]) + 4; k++) { /* the last one five times */
		i = k < sizeof(rows) / sizeof(rows[0]) ? (int)k : (int)(sizeof(rows) / sizeof(rows[0])) - 1;
		if (!rows[i].length)
			rows[i].length = ends[0].cap.max_inline_data;
		list_of(&ends[0], &rows[i]);
	}
	printf("receives: %u\n", ends[0].cap.max_recv_wr);
	recv_list(&ends[1], 2, -1);
	recv_list(&ends[0], 2, 5);
	printf("  %d\n", recv_list(&ends[0], 70, 1));
	printf("ibv_wr_*, more than there is room for\n");
	writes_by_wr(&ends[0], 30, 0, false);
	printf("  %s\n", strerror(ibv_wr_complete(ex)));
	drain("send", ends, ends[0].scq, 0);
	printf("ibv_wr_*, too long inline\n");
	ibv_wr_start(ex);
	ibv_wr_rdma_write(ex, ends[0].peer_rkey, ends[0].peer_addr);
	ibv_wr_set_inline_data(ex, ends[0].buf, 2000);
	printf("  %s\n", strerror(ibv_wr_complete(ex)));
	printf("ibv_wr_*, aborted, then three at once with a poll between\n");
	writes_by_wr(&ends[0], 1, 0x60, false);
	ibv_wr_abort(ex);
	writes_by_wr(&ends[0], 3, 0x70, true);
	printf("  %s\n", strerror(ibv_wr_complete(ex)));
	drain("send", ends, ends[0].scq, 3);
	free_pair(ends);

	printf("SRQ\n");
	make_pair(ends, &srq);
	recv_list(&ends[1], 2, 8);
	printf("  %d\n", recv_list(&ends[1], 70, 1));
	for (n = 0; n < 3; n++) {
		for (i = 0; i < 5; i++)
			must(post_op(&ends[0], &ops[0], 0x80u + (uint64_t)i), "post");
		drain("send", ends, ends[0].scq, 5);
		drain("recv", ends, ends[1].rcq, 5);
		recv_list(&ends[1], 70, 1);
	}
	free_pair(ends);
}

/* ---- errors, RESET, and what is left in CQs ---- */

static void reset(struct end *ends)
{
	to_state(&ends[0], IBV_QPS_RESET);
	to_state(&ends[1], IBV_QPS_RESET);
}

static void errors(const struct how *how)
{
	struct end ends[2];

	printf("== errors, %s\n", how->name);
	make_end(&ends[0], how, true, NULL);
	make_end(&ends[1], how, false, &ends[0]);
	for (unsigned int lap = 0; lap < 3; lap++) {
		connect_pair(ends);
		printf("after RESET; one that fits and one that does not\n");
		for (unsigned int i = 0; i < 2; i++)
			must(post_recv(&ends[1], 0x400u + i, i ? 4 : 16, 1), "post receive");
		for (unsigned int i = 0; i < 2; i++) {
			must(post_op(&ends[0], &ops[0], 0x500u + i), "post");
			drain("send", ends, ends[0].scq, 1);
			drain("recv", ends, ends[1].rcq, 1);
		}
		reset(ends);

		connect_pair(ends);
		printf("left in the CQ at RESET\n");
		for (unsigned int i = 0; i < 2; i++) {
			fill(&ends[0], 2 * lap + i);
			must(post_op(&ends[0], &ops[9], 0x600u + i), "post");
			landed(&ends[0], &ends[1], ops[9].length);
		}
		reset(ends);
		drain("send", ends, ends[0].scq, 0);
	}
	free_pair(ends);
}

/* Completions of a QP that is destroyed go; those of the others in the same CQ stay. */
static void leftovers(const struct how *how)
{
	struct end ends[2];

	printf("== leftovers, %s\n", how->name);
	make_pair(ends, how);
	for (int i = 0; i < 6; i++) {
		struct end *from = &ends[i % 2], *to = &ends[1 - i % 2];

		fill(from, 10u + (unsigned int)i);
		must(post_op(from, &ops[9], (i % 2 ? 0x700u : 0x600u) + (uint64_t)i / 2), "post");
		landed(from, to, ops[9].length);
	}
	free_qp(&ends[0]);
	drain("cq", ends, ends[1].scq, 3);
	free_pair(ends);
}

/* ---- events ---- */

/* The event of a message, if there is one, and its completions */
static void event_of(struct end *ends, struct ibv_comp_channel *channel, int sender, const struct op *op, bool expected)
{
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	struct end *to = &ends[!sender];
	struct ibv_cq *cq;
	void *context;

	must(post_recv(to, 0x40, 200, 1), "post receive");
	must(post_op(&ends[sender], op, 0x50), "post");
	drain("recv", ends, to->rcq, to->how->one_cq ? 2 : 1);
	if (!to->how->one_cq)
		drain("send", ends, ends[sender].scq, 1);
	printf("%s: %s\n", op->name, poll(&fd, 1, expected ? 60000 : 0) == 1 ? "an event" : "none");
	if (poll(&fd, 1, 0) == 1) {
		must(ibv_get_cq_event(channel, &cq, &context), "event");
		printf("  of the right CQ: %s\n", cq == to->rcq ? "yes" : "no");
		ibv_ack_cq_events(cq, 1);
	}
}

static void events(struct how how)
{
	struct end ends[2];

	how.channel = need(ibv_create_comp_channel(ctx), "channel");
	printf("== events, %s\n", how.name);
	make_pair(ends, &how);
	/* A CQ that stands for two raises an event too many now and then: solicited ones are not asked for there. */
	for (int lap = 0; lap < 6; lap += how.strange && how.one_cq ? 3 : 1) {
		const bool solicited = lap % 3 % 2;
		const int sender = lap / 3; /* the second end too, so that each kind of QP is asked */

		must(ibv_req_notify_cq(ends[!sender].rcq, solicited), "notify");
		event_of(ends, how.channel, sender, &ops[0], !solicited);
		if (solicited)
			event_of(ends, how.channel, sender, &ops[6], true);
	}
	free_pair(ends);
	must(ibv_destroy_comp_channel(how.channel), "destroy channel");
}

/* The only source of the event is a strange QP, made after its CQ was armed or before. Then more completions than the CQ had room for. */
static void late(bool after, bool early)
{
	static const struct op op = {"write", IBV_WR_RDMA_WRITE, 8, SIG, 1, false};
	struct how how = {.name = "late", .type = IBV_QPT_RC, .strange = true, .sends = 100};
	struct pollfd fd = {.events = POLLIN};
	struct end ends[2], first;
	struct ibv_cq *cq;
	void *context;

	printf("== a strange QP made %s its CQ was asked for an event, resized %s\n", after ? "after" : "before", early ? "early" : "late");
	how.channel = need(ibv_create_comp_channel(ctx), "channel");
	fd.fd = how.channel->fd;
	make_end(&first, &how, true, NULL);
	how.one_cq = true;
	if (early)
		must(ibv_resize_cq(first.rcq, 200), "resize");
	ends[0].scq = first.rcq;
	if (after)
		must(ibv_req_notify_cq(first.rcq, 0), "notify");
	make_end(&ends[1], &how, false, &ends[0]);
	if (!early)
		must(ibv_resize_cq(first.rcq, 200), "resize");
	if (!after)
		must(ibv_req_notify_cq(first.rcq, 0), "notify");
	connect_end(&first, &ends[1], IBV_QPS_RTS);
	connect_end(&ends[1], &first, IBV_QPS_RTS);
	ends[0] = first;
	must(post_op(&ends[1], &op, 0x100), "post");
	printf("%s\n", poll(&fd, 1, 60000) == 1 ? "an event" : "none");
	if (poll(&fd, 1, 0) == 1) {
		must(ibv_get_cq_event(how.channel, &cq, &context), "event");
		printf("  of the right CQ: %s\n", cq == first.rcq ? "yes" : "no");
		ibv_ack_cq_events(cq, 1);
	}
	for (int i = 1; i < 100; i++) {
		if (i == 99)
			fill(&ends[1], 1);
		must(post_op(&ends[1], &op, 0x100u + (uint64_t)i), "post");
	}
	landed(&ends[1], &first, op.length);
	drain("cq", ends, first.rcq, 100);
	free_end(&ends[1], false);
	free_end(&first, true);
	must(ibv_destroy_comp_channel(how.channel), "destroy channel");
}

/* ---- memory windows ---- */

/* What was written to the send ring, which was empty: control segments, and what is to be changed of a key */
static void show_ring(struct ibv_qp *qp, unsigned int count)
{
	struct mlx5dv_qp dv = {};
	struct mlx5dv_obj obj = {.qp = {.in = qp, .out = &dv}};
	unsigned int at = 0, i;

	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP), "mlx5dv_init_obj");
	for (i = 0; i < count; i++) {
		uint8_t *wqe = (uint8_t *)dv.sq.buf + (size_t)(at % dv.sq.wqe_cnt) * dv.sq.stride;
		unsigned int units = wqe[7] & 0x3f, k;

		printf("  %02x%02x%02x%02x units %u flags %02x", wqe[0], wqe[1], wqe[2], wqe[3], units, wqe[11]);
		for (k = 16; k < 32 && wqe[3] == MLX5_OPCODE_UMR; k++)
			printf(" %02x", wqe[k]);
		printf("\n");
		at += (units + 3) / 4;
	}
}

/* What follows a change of a key waits for it, and what follows that does not; fences that the program asks for come on top. */
static void fences(bool by_wr)
{
	static const struct how hows[] = {{.name = "fences, ibv_post_send", .type = IBV_QPT_RC, .sends = 64},
					  {.name = "fences, ibv_wr", .type = IBV_QPT_RC, .wr = true, .sends = 64}};
	static const struct op fenced = {"write", IBV_WR_RDMA_WRITE, 8, SIG | IBV_SEND_FENCE, 1, false};
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr, *bad;
	struct ibv_mw_bind bind = {.wr_id = 0x77, .send_flags = SIG};
	struct ibv_mw_bind_info info;
	struct ibv_qp_ex *ex;
	struct ibv_sge sge[8];
	struct end ends[2];
	unsigned int i, n = 0;

	if (!mw)
		return;
	printf("== %s\n", hows[by_wr].name);
	make_pair(ends, &hows[by_wr]);
	info = (struct ibv_mw_bind_info){ends[0].mr, (uintptr_t)ends[0].buf, 64, IBV_ACCESS_REMOTE_WRITE};
	ex = ibv_qp_to_qp_ex(ends[0].qp);
	for (i = 0; i < 6; i++) {
		bool binds = i % 2 == 0;
		uint32_t key = binds ? ibv_inc_rkey(mw->rkey) : mw->rkey;

		if (by_wr) {
			ibv_wr_start(ex);
			ex->wr_id = n;
			ex->wr_flags = SIG | (i >= 4 ? IBV_SEND_FENCE : 0);
			if (binds)
				ibv_wr_bind_mw(ex, mw, key, &info);
			else
				ibv_wr_local_inv(ex, key);
			must(ibv_wr_complete(ex), "change of a key");
		} else {
			fill_wr(&ends[0], &fenced, &wr, sge, n);
			wr.opcode = binds ? IBV_WR_BIND_MW : IBV_WR_LOCAL_INV;
			wr.num_sge = 0;
			wr.send_flags = SIG | (i >= 4 ? IBV_SEND_FENCE : 0);
			wr.bind_mw.mw = mw;
			wr.bind_mw.rkey = key;
			wr.bind_mw.bind_info = info;
			if (!binds)
				wr.invalidate_rkey = key;
			must(ibv_post_send(ends[0].qp, &wr, &bad), "change of a key");
		}
		mw->rkey = key;
		n++;
		/* Another follows at once, or a write, or a fenced one, or two writes; a write that is taken back changes nothing. */
		if (i == 0)
			continue;
		if (by_wr) {
			writes_by_wr(&ends[0], 1, n, false);
			ibv_wr_abort(ex);
		}
		must(post_op(&ends[0], i == 2 ? &fenced : &ops[9], n++), "write");
		must(post_op(&ends[0], &ops[9], n++), "write");
	}
	drain("send", ends, ends[0].scq, (int)n);
	show_ring(ends[0].qp, n);
	must(ibv_dealloc_mw(mw), "free");
	mw = need(ibv_alloc_mw(pd, IBV_MW_TYPE_1), "window");
	bind.bind_info = info;
	for (i = 0; i < 2; i++, bind.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED)
		printf("bound: %s\n", strerror(ibv_bind_mw(ends[0].qp, mw, &bind)));
	drain("send", ends, ends[0].scq, 1);
	must(ibv_dealloc_mw(mw), "free");
	free_pair(ends);
}

/* ---- keys: their setters, and what of them is refused ---- */

static void keys(void)
{
	/* a: rights, b: rights that there are not, l: a list, i: an interleaved one, L: a list too long, s: a signature, r: the signature goes */
	static const char *const rows[] = {"al", "ai", "a", "l", "aa", "b", "ll", "li", "L", "s"};
	static const char *const sig_rows[] = {"al", "als", "a", "s", "ss", "rl", "a", "als", "b", "a"};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS, .send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE};
	struct ibv_cq *cq = need(ibv_create_cq(ctx, 63, NULL, NULL, 0), "CQ");
	struct ibv_qp_init_attr_ex attr = {
		.cap = {64, 0, 3, 0, 300}, .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE};
	static const struct how how = {.name = "keys", .type = IBV_QPT_RC};
	struct mlx5dv_sig_crc crc = {.type = MLX5DV_SIG_CRC_TYPE_CRC32C};
	struct mlx5dv_sig_block_domain domain = {.sig_type = MLX5DV_SIG_TYPE_CRC, .sig.crc = &crc, .block_size = MLX5DV_BLOCK_SIZE_512};
	struct mlx5dv_sig_block_attr sig = {.mem = &domain, .check_mask = 0xff};
	struct mlx5dv_mr_interleaved part = {.bytes_count = 8, .bytes_skip = 8};
	struct end ends[2];
	unsigned int k, i, n;

	make_end(&ends[0], &how, true, NULL);
	make_end(&ends[1], &how, false, &ends[0]);
	free_qp(&ends[0]);
	ends[0].qp = need(mlx5dv_create_qp(ctx, &attr, &dv), "QP");
	connect_pair(ends);
	part.addr = (uintptr_t)ends[0].buf;
	part.lkey = ends[0].mr->lkey;
	for (k = n = 0; k < 2; k++) {
		struct mlx5dv_mkey_init_attr init = {
			.pd = pd, .max_entries = 4, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
			(k ? MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE : 0)};
		struct mlx5dv_mkey *key = need(mlx5dv_create_mkey(&init), "key");
		struct mlx5dv_qp_ex *ex = mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(ends[0].qp));
		struct ibv_sge sge[8];

		for (i = 0; i < 8; i++)
			sge[i] = (struct ibv_sge){part.addr + i * 64, 64, part.lkey};
		printf("== keys%s\n", k ? " with signatures" : "");
		for (i = 0; i < 10; i++) {
			const char *row = (k ? sig_rows : rows)[i], *at = row;
			struct mlx5dv_mkey_conf_attr conf = {.conf_flags = *at == 'r' ? MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR : 0};
			int err;

			at += *at == 'r';
			ibv_wr_start(ibv_qp_to_qp_ex(ends[0].qp));
			ibv_qp_to_qp_ex(ends[0].qp)->wr_id = i;
			ibv_qp_to_qp_ex(ends[0].qp)->wr_flags = SIG | INL;
			mlx5dv_wr_mkey_configure(ex, key, (uint8_t)strlen(at), &conf);
			for (; *at; at++)
				switch (*at) {
				case 'a': mlx5dv_wr_set_mkey_access_flags(ex, IBV_ACCESS_LOCAL_WRITE); break;
				case 'b': mlx5dv_wr_set_mkey_access_flags(ex, IBV_ACCESS_MW_BIND); break;
				case 'l': mlx5dv_wr_set_mkey_layout_list(ex, 2, sge); break;
				case 'L': mlx5dv_wr_set_mkey_layout_list(ex, 5, sge); break;
				case 'i': mlx5dv_wr_set_mkey_layout_interleaved(ex, 3, 1, &part); break;
				default: mlx5dv_wr_set_mkey_sig_block(ex, &sig); break;
				}
			err = ibv_wr_complete(ibv_qp_to_qp_ex(ends[0].qp));
			printf("%s: %s\n", row, strerror(err));
			if (err)
				continue;
			drain("send", ends, cq, 1);
			n += 1 + (strchr(row, 's') != NULL); /* and a WQE for the signature */
		}
		must(mlx5dv_destroy_mkey(key), "destroy key");
	}
	show_ring(ends[0].qp, n);
	must(ibv_destroy_qp(ends[0].qp), "destroy QP");
	ends[0].qp = NULL;
	must(ibv_destroy_cq(cq), "destroy CQ");
	free_pair(ends);
}

/* ---- a QP that cannot be made leaves its CQ and SRQ as they were ---- */

static void impossible(void)
{
	static const struct how how = {.name = "impossible", .type = IBV_QPT_RC, .srq = true};
	struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_DRIVER};
	struct ibv_qp_init_attr_ex ex = {.cap = {1 << 24, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 13, .max_sge = 3}};
	struct ibv_qp *qp;

	printf("== impossible QPs\n");
	attr.send_cq = attr.recv_cq = ex.send_cq = ex.recv_cq = make_cq(&how);
	ex.srq = need(ibv_create_srq(pd, &srq), "SRQ");
	printf("%s\n", ibv_create_qp(pd, &attr) ? "made" : "refused");
	printf("%s\n", ibv_create_qp_ex(ctx, &ex) ? "made" : "refused");
	ex.comp_mask |= STRANGE;
	printf("%s\n", ibv_create_qp_ex(ctx, &ex) ? "made" : "refused");
	ex.comp_mask &= ~STRANGE;
	/* An ordinary one, which is inlay's then: it is not counted as libmlx5's. */
	attr.qp_type = IBV_QPT_RC;
	attr.srq = ex.srq;
	qp = need(ibv_create_qp(pd, &attr), "QP");
	must(ibv_destroy_qp(qp), "destroy QP");
	/* And the other way round: a strange one where an ordinary one could not be made. */
	must(ibv_destroy_srq(ex.srq), "destroy SRQ");
	must(ibv_destroy_cq(ex.send_cq), "destroy CQ");
	ex.send_cq = ex.recv_cq = make_cq(&how);
	ex.srq = need(ibv_create_srq(pd, &srq), "SRQ");
	printf("%s\n", ibv_create_qp_ex(ctx, &ex) ? "made" : "refused");
	ex.cap.max_send_wr = 4;
	ex.comp_mask |= STRANGE;
	qp = ibv_create_qp_ex(ctx, &ex);
	printf("%s\n", qp ? "made" : strerror(errno));
	if (qp) {
		stranges++;
		must(ibv_destroy_qp(qp), "destroy QP");
	}
	must(ibv_destroy_srq(ex.srq), "destroy SRQ");
	must(ibv_destroy_cq(ex.send_cq), "destroy CQ");
}

/* ---- a CQ that is resized before it is polled ---- */

static void resizes(const struct how *how)
{
	struct end ends[2];

	printf("== resize, %s\n", how->name);
	make_pair(ends, how);
	must(ibv_resize_cq(ends[0].scq, 200), "resize");
	printf("%d\n", ends[0].scq->cqe);
	for (int i = 0; i < 3; i++) {
		fill(&ends[0], (unsigned int)i);
		must(post_op(&ends[0], &ops[9], 0x800u + (uint64_t)i), "post");
		landed(&ends[0], &ends[1], ops[9].length);
	}
	must(ibv_resize_cq(ends[0].scq, 20), "resize");
	must(ibv_resize_cq(ends[0].scq, 20), "resize");
	printf("%d\n", ends[0].scq->cqe);
	for (int lap = 0; lap < 30; lap++) {
		for (int i = 0; i < 3; i++)
			must(post_op(&ends[0], &ops[9], 0x810u + (uint64_t)(lap * 3 + i)), "post");
		drain("send", ends, ends[0].scq, lap ? 3 : 6);
	}
	free_pair(ends);
}

/*
 * ---- threads ----
 *
 * Two post to one QP, by ibv_post_send and by ibv_wr_*; what they send is received by another QP, once from a queue of its own and once
 * from an SRQ. All completes to one CQ, which two others poll; each posts a new receive for one that is completed. Meanwhile the QP is
 * modified, also between ibv_wr_start and ibv_wr_complete.
 */

#define EACH 15000
#define RECVS 40

static struct {
	struct end ends[2];
	uint64_t each;                           /* messages of one poster */
	uint8_t sent[2 * EACH], taken[2 * EACH]; /* how often each was completed */
	uint32_t slots[64];                      /* what is posted as receive */
	unsigned int room, done, wrong;
} crowd;

static void count_one(uint8_t *counts, uint64_t which)
{
	if (which >= 2 * crowd.each || __atomic_fetch_add(&counts[which], 1, __ATOMIC_RELAXED))
		__atomic_fetch_add(&crowd.wrong, 1, __ATOMIC_RELAXED);
}

/* A receive writes to a place of its own, which its wr_id names, and which says after it which message came. */
static void repost(uint64_t slot)
{
	struct end *e = &crowd.ends[1];
	struct ibv_sge sge = {(uintptr_t)e->buf + slot * 16, 8, e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	if (__atomic_exchange_n(&crowd.slots[slot], 1, __ATOMIC_ACQ_REL) ||
	    (e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad)))
		__atomic_fetch_add(&crowd.wrong, 1, __ATOMIC_RELAXED);
}

/* The other poster comes in between, if it may. */
static int post_slowly(struct end *e, const struct ibv_send_wr *wr, bool slowly)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(e->qp);

	ibv_wr_start(ex);
	ex->wr_id = wr->wr_id;
	ex->wr_flags = wr->send_flags;
	ibv_wr_send(ex);
	if (slowly)
		sched_yield();
	ibv_wr_set_inline_data(ex, (void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
	return ibv_wr_complete(ex);
}

/* Only what there is room for: where there is none, libmlx5's ibv_wr_* write over the request before. */
static void *poster(void *arg)
{
	uint64_t i = (uint64_t)(uintptr_t)arg * crowd.each, end = i + crowd.each;
	struct end *e = &crowd.ends[0];
	double limit = now() + 60;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = SIG | INL}, *bad;

	while (i < end && now() < limit) {
		unsigned int room = __atomic_load_n(&crowd.room, __ATOMIC_ACQUIRE);

		if (!room || !__atomic_compare_exchange_n(&crowd.room, &room, room - 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			sched_yield();
			continue;
		}
		wr.wr_id = i;
		sge = (struct ibv_sge){(uintptr_t)&i, sizeof(i), 0};
		if (i % 16 < 8 ? post_slowly(e, &wr, i % 64 == 0) : ibv_post_send(e->qp, &wr, &bad))
			break;
		i++;
	}
	return (void *)(uintptr_t)(end - i);
}

static void *poller(void *arg)
{
	double limit = now() + 60;
	struct ibv_wc wc[4];
	uint64_t which;
	int n, i;

	(void)arg;
	while (__atomic_load_n(&crowd.done, __ATOMIC_ACQUIRE) < 4 * crowd.each && now() < limit) {
		n = ibv_poll_cq(crowd.ends[0].scq, 4, wc);
		if (n < 0)
			__atomic_fetch_add(&crowd.wrong, 1, __ATOMIC_RELAXED);
		for (i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS) {
				__atomic_fetch_add(&crowd.wrong, 1, __ATOMIC_RELAXED);
			} else if (wc[i].opcode == IBV_WC_SEND) {
				count_one(crowd.sent, wc[i].wr_id);
				__atomic_fetch_add(&crowd.room, 1, __ATOMIC_RELEASE);
				__atomic_fetch_add(&crowd.done, 1, __ATOMIC_RELEASE);
			} else if (wc[i].wr_id >= 64 || !__atomic_exchange_n(&crowd.slots[wc[i].wr_id], 0, __ATOMIC_ACQ_REL)) {
				__atomic_fetch_add(&crowd.wrong, 1, __ATOMIC_RELAXED);
			} else {
				memcpy(&which, crowd.ends[1].buf + wc[i].wr_id * 16, sizeof(which));
				count_one(crowd.taken, which);
				repost(wc[i].wr_id);
				__atomic_fetch_add(&crowd.done, 1, __ATOMIC_RELEASE);
			}
		}
		if (n <= 0)
			sched_yield();
	}
	return NULL;
}

static void threads(const struct how *how)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = 12};
	pthread_t posters[2], pollers[2];
	unsigned int i, done, sent = 0, taken = 0;
	double limit = now() + 60;
	void *left;

	printf("== threads, %s\n", how->name);
	memset(&crowd, 0, sizeof(crowd));
	crowd.each = repeat(EACH, 3000);
	make_pair(crowd.ends, how);
	crowd.room = crowd.ends[0].cap.max_send_wr;
	for (i = 0; i < RECVS; i++)
		repost(i);
	for (i = 0; i < 2; i++) {
		must(pthread_create(&posters[i], NULL, poster, (void *)(uintptr_t)i), "thread");
		must(pthread_create(&pollers[i], NULL, poller, NULL), "thread");
	}
	for (i = 0; (done = __atomic_load_n(&crowd.done, __ATOMIC_ACQUIRE)) < 4 * crowd.each && now() < limit; sched_yield())
		if (done >= i) { /* once for some messages, which it holds up */
			must(ibv_modify_qp(crowd.ends[0].qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER), "modify");
			i = done + 10;
		}
	for (i = 0; i < 2; i++) {
		must(pthread_join(posters[i], &left), "thread");
		if (left)
			printf("thread %u did not post %u\n", i, (unsigned int)(uintptr_t)left);
		must(pthread_join(pollers[i], NULL), "thread");
	}
	for (i = 0; i < 2 * crowd.each; i++) {
		sent += crowd.sent[i] == 1;
		taken += crowd.taken[i] == 1;
	}
	printf("%u sends were completed once, %u messages taken once, %u times wrong\n", sent, taken, crowd.wrong);
	free_pair(crowd.ends);
}

/* ---- all ---- */

static void scenario(const struct how *how)
{
	struct end ends[2];

	printf("== %s\n", how->name);
	make_pair(ends, how);
	all_ops(ends);
	free_pair(ends);
}

/* A strange QP on a CQ that an ordinary one has and the program looks into: only without the shim. Sends one message, too. */
static int one(bool look)
{
	static const struct how how = {.name = "one", .type = IBV_QPT_RC, .one_cq = true};
	struct ibv_qp_init_attr_ex ex = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD | STRANGE, .pd = pd};
	struct mlx5dv_cq cq;
	struct mlx5dv_obj obj = {.cq = {.out = &cq}};
	struct end ends[2];

	make_pair(ends, &how);
	must(post_op(&ends[0], &ops[9], 1), "post");
	drain("cq", ends, ends[0].scq, 1);
	if (look) {
		obj.cq.in = ex.send_cq = ex.recv_cq = ends[0].scq;
		must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
		printf("a strange one: %s\n", ibv_create_qp_ex(ctx, &ex) ? "made" : strerror(errno));
	}
	return 0;
}

/*
 * CQEs as only a faulty device writes them, on a stepped device that has written none: a payload for a WQE which takes none, and payloads
 * longer than what a CQE holds. On the shim alone: libmlx5 believes the lengths.
 */
static int hostile(void)
{
	static const uint8_t opcode[] = {MLX5_OPCODE_ATOMIC_FA, MLX5_OPCODE_RDMA_READ, 0};
	static const struct how how = {.name = "hostile", .type = IBV_QPT_RC, .one_cq = true};
	struct ibv_send_wr write = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, read, *bad;
	struct mlx5_cqe64 cqe;
	struct ibv_recv_wr recv = {.wr_id = 3}, *bad_recv;
	struct mlx5dv_cq cq;
	struct mlx5dv_obj obj = {.cq = {.out = &cq}};
	struct end ends[2];
	struct ibv_sge sge;
	struct ibv_wc wc;
	int dirty = 0;

	make_pair(ends, &how);
	sge = (struct ibv_sge){(uintptr_t)ends[0].buf, BYTES, ends[0].mr->lkey};
	write.wr.rdma.remote_addr = (uintptr_t)ends[1].buf;
	write.wr.rdma.rkey = ends[1].mr->rkey;
	read = write;
	read.wr_id = 2;
	read.opcode = IBV_WR_RDMA_READ;
	read.sg_list = recv.sg_list = &sge;
	read.num_sge = recv.num_sge = 1;
	write.next = &read;
	must(ibv_post_send(ends[0].qp, &write, &bad), "post");
	must(ibv_post_recv(ends[0].qp, &recv, &bad_recv), "post");
	obj.cq.in = ends[0].scq;
	must(mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	memset(&cqe, 0x5a, sizeof(cqe));
	for (unsigned int i = 0; i < 3; i++) {
		cqe.byte_cnt = htobe32(i ? BYTES : 8);
		cqe.op_own = (i < 2 ? MLX5_CQE_REQ : MLX5_CQE_RESP_SEND) << 4 | 4;
		cqe.sop_drop_qpn = htobe32((uint32_t)opcode[i] << 24 | ends[0].qp->qp_num);
		cqe.wqe_counter = htobe16(i % 2);
		must(softdev_inject_cqes(cq.cqn, &cqe, 1, 0) != 1, "inject");
		must(ibv_poll_cq(ends[0].scq, 1, &wc) != 1, "poll");
		printf("wr_id %u status %s\n", (unsigned int)wc.wr_id, ibv_wc_status_str(wc.status));
	}
	for (unsigned int i = 0; i < BYTES; i++)
		dirty |= ends[0].buf[i];
	printf("memory %s\n", dirty ? "written" : "untouched");
	return 0;
}

int main(int argc, char **argv)
{
	static const struct how hows[] = {
		{.name = "RC", .type = IBV_QPT_RC},
		{.name = "RC, all signaled", .type = IBV_QPT_RC, .sig_all = true},
		{.name = "RC, ibv_wr", .type = IBV_QPT_RC, .wr = true, .one_cq = true},
		{.name = "RC, extended CQ", .type = IBV_QPT_RC, .ex_cq = true, .sig_all = true},
		{.name = "RC, SRQ, extended CQ, ibv_wr", .type = IBV_QPT_RC, .ex_cq = true, .wr = true, .srq = true},
		{.name = "RC, SRQ", .type = IBV_QPT_RC, .srq = true, .one_cq = true},
		{.name = "UC", .type = IBV_QPT_UC, .wr = true},
		{.name = "UC, SRQ", .type = IBV_QPT_UC, .ex_cq = true, .srq = true},
		{.name = "UD", .type = IBV_QPT_UD},
		{.name = "UD, ibv_wr", .type = IBV_QPT_UD, .wr = true, .ex_cq = true},
		{.name = "UD, SRQ, ibv_wr, all signaled", .type = IBV_QPT_UD, .wr = true, .srq = true, .sig_all = true},
	};
	/* The second end is of a kind that inlay does not know. */
	static const struct how strange[] = {
		{.name = "a strange QP on a CQ of its own", .type = IBV_QPT_RC, .strange = true},
		{.name = "a strange QP on a CQ that is in use", .type = IBV_QPT_RC, .strange = true, .one_cq = true},
		{.name = "a strange QP on an extended CQ in use", .type = IBV_QPT_RC, .strange = true, .one_cq = true, .ex_cq = true},
	};
	static const struct how randoms[] = {
		{.name = "RC", .type = IBV_QPT_RC}, {.name = "RC, ibv_wr", .type = IBV_QPT_RC, .wr = true},
		{.name = "UD", .type = IBV_QPT_UD}, {.name = "UD, ibv_wr", .type = IBV_QPT_UD, .wr = true},
	};
	static const struct how shared = {.name = "one CQ", .type = IBV_QPT_RC, .one_cq = true};
	static const struct how crowd_rq = {.name = "a receive queue", .type = IBV_QPT_RC, .wr = true, .one_cq = true, .recvs = RECVS};
	static const struct how crowd_srq = {.name = "an SRQ", .type = IBV_QPT_RC, .wr = true, .one_cq = true, .srq = true, .recvs = RECVS};
	static const struct how plain = {.name = "RC", .type = IBV_QPT_RC}, srq = {.name = "SRQ", .type = IBV_QPT_RC, .srq = true};
	static const struct how ex = {.name = "extended CQ", .type = IBV_QPT_RC, .ex_cq = true};
	struct ibv_device **list;
	int n = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	list = ibv_get_device_list(&n);
	for (unsigned int i = 0; list && i < (unsigned int)n && !ctx; i++)
		if (mlx5dv_is_supported(list[i]))
			ctx = ibv_open_device(list[i]);
	need(ctx, "mlx5 device");
	ibv_free_device_list(list);
	pd = need(ibv_alloc_pd(ctx), "PD");
	must(ibv_query_port(ctx, 1, &port), "port");
	must(ibv_query_gid(ctx, 1, 0, &gid), "GID");
	if (argc > 1 && !strcmp(argv[1], "hostile"))
		return hostile();
	if (argc > 1)
		return one(!strcmp(argv[1], "look"));
	for (unsigned int i = 0; i < sizeof(hows) / sizeof(hows[0]); i++)
		scenario(&hows[i]);
	for (unsigned int i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		scenario(&strange[i]);
		leftovers(&strange[i]);
		events(strange[i]);
	}
	for (unsigned int i = 0; i < sizeof(randoms) / sizeof(randoms[0]); i++)
		at_random(&randoms[i], (unsigned int)repeat(2000, 200));
	read_around();
	refusals();
	errors(&plain);
	errors(&srq);
	errors(&ex);
	leftovers(&shared);
	events(plain);
	events(shared);
	events(ex);
	late(false, false);
	late(false, true);
	late(true, false);
	late(true, true);
	impossible();
	fences(false);
	fences(true);
	keys();
	resizes(&plain);
	resizes(&ex);
	threads(&crowd_rq);
	threads(&crowd_srq);
	must(ibv_dealloc_pd(pd), "dealloc PD");
	must(ibv_close_device(ctx), "close");
	printf("%u strange QPs\n== end\n", stranges);
	return 0;
}
