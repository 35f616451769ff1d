/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * firmware.h: what the kernel gives to the device, and device commands (DEVX).
 *
 *   objects.c  the end of what verbs and commands both make; receive WQs
 *   tir.c      which of many WQs a packet goes to
 *   umem.c     memory that commands name
 *   fw.c       dispatch by opcode; PD, XRCD, transport domain, counters, queries
 *   fwcap.c    QUERY_HCA_CAP
 *   fwmkey.c   MKEY, cross-VHCA alias
 *   queues     see fwqueue.h
 *
 * A command reaches the firmware with its inbox as the kernel passed it. The handler is found by
 * opcode. Its boxes are at least as long as its entry says, so it may use that much of them without
 * a check; for the rest it must look at the lengths. It returns a status: SD_ST_OK, or the value of
 * sd_devx_fail(). All with sd_lock held.
 *
 * Field places are in bits from the start of a box or context. Bit 0 is the most significant of
 * byte 0. All fields are big-endian.
 */
#ifndef SOFTDEV_FIRMWARE_H
#define SOFTDEV_FIRMWARE_H

#include "../engine/engine.h"

struct sd_umem;

struct host_cq {
	struct sd_cq c;
	struct sd_umem *umem[2];  /* of its ring and its record, when a command made it; so for the others */
	uint8_t cqc[0x40];        /* what commands said of it; fwcq.c */
	uint64_t user_handle;
	struct sd_channel *async;
	uint32_t comp_events, async_events; /* sent and not taken back */
	struct sd_devx_obj *devx;
};

#define SD_QPC 0xe8u              /* bytes of a QP's context */

struct host_qp {
	struct sd_qp q;
	struct sd_umem *umem[2];
	uint8_t qpc[SD_QPC];      /* fwqp.c; of a DCT fwdct.c */
	uint64_t user_handle;
	struct sd_channel *async;
	uint32_t async_events;
	int flows;                /* rules that lead here */
	struct sd_tir *tir;       /* it has no queues but this */
};

#define SD_WQ_CONTEXT 0xc0u       /* bytes of a work queue's context */

struct host_srq {
	struct sd_srq s;
	struct sd_umem *umem[2];
	uint16_t creator;         /* opcode of the command that made it; 0: verbs */
	uint8_t wqc[SD_WQ_CONTEXT]; /* fwsrq.c */
	uint8_t xrqc[0x80];       /* XRQ: what comes before it */
	uint64_t user_handle;
	struct sd_channel *async;
	uint32_t async_events;
	struct sd_devx_obj *devx;
};

struct host_dm {
	uint64_t *map;            /* of the context */
	uint64_t length, taken;   /* bytes; its pages, one bit each */
	uint8_t *addr;            /* the device's own mapping */
	int refs;                 /* MRs */
};

struct host_mr {
	struct sd_mr m;
	struct host_dm *dm;       /* NULL: the program's memory */
	struct sd_umem *umem;     /* of a key that a command made */
	uint8_t mkc[64];          /* its context, or an alias' */
	bool command, permitted;  /* made by one; another function may have an alias of it */
	uint8_t secret[32];       /* with this */
};

/* A handle's object is either of the two */
_Static_assert(!offsetof(struct host_cq, c) && !offsetof(struct host_qp, q) && !offsetof(struct host_srq, s) &&
	       !offsetof(struct host_mr, m),
	       "the engine's part comes first");

/*
 * To the engine it is a raw packet QP that only receives, and no other QP's number is its. Its PD is
 * the RMP's if it has one, which is its SRQ
 */
struct host_wq {
	struct sd_qp q;
	uint32_t wqn;
	enum ibv_wq_state state;  /* as last set */
	int refs;                 /* entries of tables, and TIRs */
	uint64_t user_handle;
	struct sd_channel *async;
	uint32_t async_events;
	struct sd_umem *umem[2];  /* made by DEVX; fweth.c, as what follows */
	uint8_t rqc[0xf0];
};

struct host_ind_tbl {
	uint32_t number, cnt, max;
	struct sd_ctx *ctx;
	int refs;                 /* TIRs */
	struct host_wq *wq[];     /* max of them */
};

/* ---- objects.c: EBUSY for what is in use ---- */

/* Out of the engine and the table, with all that it holds; freed */
void sd_cq_remove(struct host_cq *hc);
void sd_qp_remove(struct host_qp *hq);          /* the engine has done with it; so for an SRQ */
void sd_srq_remove(struct host_srq *hs);
int sd_mr_free(struct host_mr *hm);
int sd_wq_add(struct host_wq *wq);              /* gives it a number and counts it */
struct host_wq *sd_wq_find(uint32_t wqn);
bool sd_wq_may(enum ibv_wq_state from, enum ibv_wq_state to);
int sd_ind_tbl_add(struct host_ind_tbl *t);     /* the same, and its entries */
struct host_ind_tbl *sd_ind_tbl_find(uint32_t number);
int sd_wq_free(struct host_wq *wq);             /* EBUSY while it is in a table */
void sd_wq_move(struct host_wq *wq, enum ibv_wq_state state);
enum ibv_wq_state sd_wq_state(const struct host_wq *wq); /* as the device has it: an error of its own included */
void sd_ind_tbl_free(struct host_ind_tbl *t);

/* ---- tir.c ---- */
#define SD_TIRC 0xf0u             /* bytes of its context */
struct sd_tir {
	uint32_t number;
	struct sd_ctx *ctx;
	struct sd_domain *td;     /* fweth.c */
	struct host_wq *rq;       /* one of the two */
	struct host_ind_tbl *rqt;
	int refs;                 /* flow rules */
	uint8_t tirc[SD_TIRC];
};
struct mlx5_ib_create_qp_rss;
struct sd_tir *sd_tir_new(struct sd_ctx *ctx, const uint8_t tirc[SD_TIRC], struct host_wq *rq, struct host_ind_tbl *rqt);
int sd_tir_free(struct sd_tir *t);              /* EBUSY while a flow rule leads to it */
struct sd_tir *sd_tir_find(uint32_t number);
bool sd_tir_hash_ok(const uint8_t *tirc);
int sd_tir_of_verbs(const struct mlx5_ib_create_qp_rss *rss, uint32_t entries, uint8_t tirc[SD_TIRC]);
struct sd_qp *sd_tir_pick(const struct sd_tir *t, const uint8_t *p, const struct raw_headers *h, struct raw_hit *hit);

enum sd_status {
	SD_ST_OK,
	SD_ST_INTERNAL = 0x01,
	SD_ST_BAD_OP = 0x02,
	SD_ST_BAD_PARAM = 0x03,
	SD_ST_BAD_SYS_STATE = 0x04,
	SD_ST_BAD_RES = 0x05,     /* not there, or not yours */
	SD_ST_BUSY = 0x06,
	SD_ST_LIMIT = 0x08,
	SD_ST_BAD_RES_STATE = 0x09,
	SD_ST_BAD_INDEX = 0x0a,
	SD_ST_NO_RES = 0x0f,
	SD_ST_BAD_QP_STATE = 0x10,
	SD_ST_BAD_SIZE = 0x40,
	SD_ST_BAD_INLEN = 0x50,
	SD_ST_BAD_OUTLEN = 0x51,
};

/* ---- fields ---- */

static inline uint64_t sd_get(const uint8_t *box, unsigned bit, unsigned width)
{
	uint64_t v = 0;

	for (unsigned i = bit; i < bit + width; i++)
		v = v << 1 | (box[i / 8] >> (7 - i % 8) & 1);
	return v;
}

static inline void sd_set(uint8_t *box, unsigned bit, unsigned width, uint64_t v)
{
	for (unsigned i = bit + width; i-- > bit; v >>= 1)
		box[i / 8] = (box[i / 8] & ~(1u << (7 - i % 8))) | (v & 1) << (7 - i % 8);
}

/* Is nothing set there? For reserved fields */
static inline bool sd_clear(const uint8_t *box, unsigned bit, unsigned width)
{
	for (unsigned i = bit; i < bit + width; i++)
		if (box[i / 8] >> (7 - i % 8) & 1)
			return false;
	return true;
}

/* ---- commands ---- */

struct sd_devx_cmd {
	struct sd_ctx *ctx;       /* whose: the uid stands for it */
	uint16_t opcode, op_mod;
	const uint8_t *in;
	uint8_t *out;             /* zero but for what the handler writes; the framework writes status and syndrome */
	size_t inlen, outlen;     /* bytes */
	struct sd_devx_obj *made; /* by sd_devx_made() */
};

struct sd_devx_op {
	uint16_t opcode;          /* 0 ends a table */
	uint16_t in, out;         /* bytes that the boxes must have: less is SD_ST_BAD_INLEN, SD_ST_BAD_OUTLEN */
	uint8_t (*run)(struct sd_devx_cmd *c);
};

/* Tables of handlers; fw.c lists them */
extern const struct sd_devx_op sd_fw_ops[], sd_fw_mkey_ops[];

/*
 * The way out of a handler that fails. The syndrome is firmware's own number; SD_FAIL() makes it
 * from the line, so that one seen in a test leads to its reason: opcode << 16 | line.
 */
uint8_t sd_devx_fail(struct sd_devx_cmd *c, uint8_t status, uint32_t syndrome);
#define SD_FAIL(c, status) sd_devx_fail(c, status, (uint32_t)(c)->opcode << 16 | (__LINE__ & 0xffff))

/* Copies len bytes into the outbox from byte at on, as many as it has */
void sd_devx_answer(struct sd_devx_cmd *c, size_t at, const uint8_t *from, size_t len);

/* ---- objects ---- */

/*
 * What a create command made, as the kernel knows it. destroy() is the firmware's destroy command:
 * SD_ST_OK, with obj freed, or a status with nothing changed, which is SD_ST_BUSY for what is in
 * use. The numbers are each kind's own (struct sd_numbers); a general object's is its obj_id.
 */
struct sd_devx_obj {
	struct sd_ctx *ctx;
	uint16_t opcode, obj_type; /* its creator; obj_type of a general object */
	uint32_t number;
	void *obj;
	uint8_t (*destroy)(void *obj);
};

/*
 * To be called last by the handler of a create command, which has written its outbox: from here on
 * the object is the framework's. SD_ST_OK, or a status when there is no memory: nothing was kept,
 * and the handler undoes what it did.
 */
uint8_t sd_devx_made(struct sd_devx_cmd *c, uint32_t number, void *obj, uint8_t (*destroy)(void *obj));

/*
 * What a command names, when it is there and of the caller's uid; else NULL, to be answered by
 * SD_ST_BAD_RES
 */
struct sd_pd *sd_devx_pd(const struct sd_devx_cmd *c, uint32_t pdn);
struct sd_cq *sd_devx_cq(const struct sd_devx_cmd *c, uint32_t cqn);
struct sd_srq *sd_devx_srq(const struct sd_devx_cmd *c, uint32_t srqn);
struct sd_qp *sd_devx_qp(const struct sd_devx_cmd *c, uint32_t qpn);
bool sd_fw_event_ok(uint16_t type, const struct sd_devx_obj *o); /* may it be subscribed to? */
bool sd_devx_eqn(uint32_t eqn);   /* is it that of a completion EQ? (the kernel asked already at CREATE_CQ) */
#define SD_FIRST_EQN 0x10u        /* of completion vector 0 */

struct sd_domain *sd_devx_domain(const struct sd_devx_cmd *c, unsigned kind, uint32_t number);

/* ---- umem.c ---- */

struct sd_umem {
	struct sd_ctx *ctx;
	uint32_t id;
	uint8_t *addr;
	uint64_t length;
	/*
	 * IBV_ACCESS_*: without LOCAL_WRITE the device may only read, and so may a program's
	 * mapping be
	 */
	uint32_t access;
	void *mapped;             /* of a dma-buf: the device's mapping */
	int refs;                 /* objects in it: it stays */
};

/*
 * The memory at [offset, offset + length) of a umem, with a reference to the umem for
 * sd_umem_put(). write: the device shall write there (a CQ's ring; not a WQ, and not a doorbell
 * record, which the device must not touch then). SD_ST_BAD_RES: no such umem, or not yours;
 * SD_ST_BAD_PARAM: beyond its end, or read-only. length 0 asks for nothing but the umem's
 * existence.
 */
uint8_t sd_umem_get(struct sd_devx_cmd *c, uint32_t id, uint64_t offset, uint64_t length, bool write, struct sd_umem **u, uint8_t **at);
void sd_umem_put(struct sd_umem *u); /* NULL: nothing */
int sd_umem_add(struct sd_umem *u);  /* gives it a number; else it is freed: an errno */
int sd_umem_free(struct sd_umem *u); /* 0, or EBUSY */

/* ---- for the kernel ---- */

uint8_t sd_fw_query_hca_cap(struct sd_devx_cmd *c);
uint8_t sd_fw_run(struct sd_devx_cmd *c); /* writes the outbox; returns the status that it wrote */

#endif
