/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dev.h: the software device from inside. Two halves meet here:
 *
 *   host side   preload.c   libc calls that libibverbs makes: paths, opens, ioctls
 *               uverbs.c    the uverbs commands: decode, check, answer
 *               objects.c   PD, MR, CQ, QP, UAR, channels: tables, reference counts, events
 *   engine      engine.c    doorbells, WQE fetch and execution, CQEs, errors and flush, the stepped interface
 *               wire.c      messages between the devices of two processes
 *
 * One device per process, shared by all its contexts; sd_lock guards every object. The engine thread (absent when stepped)
 * takes it for a bounded batch of work. Memory that the program owns (rings, records, MRs) is touched through the program's own
 * pointers, never while trusting what is in it: a length, index or key read from a ring is checked before use, and read once.
 */
#ifndef SOFTDEV_DEV_H
#define SOFTDEV_DEV_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#define SD_MAX_QP 65536u          /* QPs per process; QPN = slot << 16 | index, so that a QPN names its process */
#define SD_MAX_SLOTS 200u         /* processes on one fabric; slot 0 is not used */
#define SD_MAX_CQE (1u << 22)
#define SD_MAX_SQ_WQEBB 32768u
#define SD_MAX_RQ_WR 32768u
#define SD_MAX_SQ_DESC 1008u      /* bytes of one send WQE */
#define SD_MAX_MSG (1u << 30)
#define SD_MAX_RD_ATOMIC 16

extern pthread_mutex_t sd_lock;

struct sd_ctx;                    /* one opened uverbs fd; objects.c */

struct sd_pd {
	uint32_t pdn;
	int refs;                 /* MRs and QPs */
};

struct sd_mr {
	uint32_t key;             /* lkey and rkey; the low byte varies so that a stale key is seen */
	struct sd_pd *pd;
	uint64_t iova, length;
	uint8_t *addr;            /* where iova lies in this process */
	uint32_t access;          /* IBV_ACCESS_* */
};

struct sd_uar {
	uint32_t page_id;
	uint8_t *page;            /* 4096 bytes; the device's own mapping of the doorbell page. Registers at 0x800, 0x900, 0xa00,
	                             0xb00: two BlueFlame registers of two 256-byte halves; CQ arm doorbell at 0x20 */
};

struct sd_channel;                /* completion channel; objects.c */

struct sd_cq {
	uint32_t cqn;
	uint8_t *buf;             /* the program's ring */
	uint32_t cqe_cnt;         /* power of two */
	uint32_t cqe_size;        /* 64 or 128; the 64-byte CQE is the second half of 128 */
	volatile uint32_t *dbrec; /* [0] consumer index, [1] arm; big-endian */
	struct sd_uar *uar;
	struct sd_channel *channel;
	bool ignore_overrun;
	bool timestamp;           /* asked for at create: CQEs carry CLOCK_MONOTONIC in ns, big-endian, at 0x30 */
	bool overrun;             /* dead: an overrun happened */
	uint32_t pi;              /* CQEs produced, never masked */
	uint32_t arm_seen;        /* host order value of the arm record last acted on; 0xffffffff at create */
	int refs;                 /* QPs */
	void *eng;                /* the engine's own, NULL at create */
};

struct sd_qp {
	uint32_t qpn;
	uint32_t uidx;            /* goes to CQE 0x20 (srqn_uidx) */
	enum ibv_qp_type type;
	enum ibv_qp_state state;
	struct sd_ctx *ctx;
	struct sd_pd *pd;
	struct sd_cq *send_cq, *recv_cq;
	struct sd_uar *uar;
	bool sig_all;
	bool scatter_cqe_rsp, scatter_cqe_req; /* the create command asked for scatter to CQE on the responder / requester side */
	volatile uint32_t *dbrec; /* [0] receive, [1] send; big-endian */
	uint8_t *sq;              /* the program's ring, wqebb_cnt << 6 bytes */
	uint32_t wqebb_cnt;
	uint8_t *rq;              /* rq_cnt << rq_shift bytes; NULL without one */
	uint32_t rq_cnt, rq_shift;
	uint32_t max_inline, max_send_sge, max_recv_sge;
	/* modify_qp's attributes, host order, as last set */
	struct ibv_qp_attr attr;
	void *eng;                /* the engine's own, NULL at create */
};

/* ---- host side, for the engine; all with sd_lock held ---- */
struct sd_mr *sd_mr_find(uint32_t key);          /* NULL: no such key */
struct sd_qp *sd_qp_find(uint32_t qpn);
struct sd_cq *sd_cq_find(uint32_t cqn);
struct sd_cq *sd_cq_next(struct sd_cq *cq);
struct sd_uar *sd_uar_next(struct sd_uar *uar);
void sd_cq_event(struct sd_cq *cq);              /* the CQ was armed and has a CQE: one completion event on its channel */
void sd_async_cq(struct sd_cq *cq, enum ibv_event_type type);
void sd_async_qp(struct sd_qp *qp, enum ibv_event_type type);
const char *sd_fabric_dir(void);                 /* where the processes of one fabric meet: $SOFTDEV_FABRIC or the user's own directory; made, mode
                                                    0700 and ours. NULL with errno set when it cannot be. Needs no lock */

/* ---- engine, for the host side; all with sd_lock held unless said ---- */
int sd_engine_start(void);                       /* first open of a device; joins the fabric, starts the thread unless stepped; 0 or -errno.
                                                    Called without sd_lock */
unsigned sd_fabric_slot(void);                   /* this process's slot, 1.. SD_MAX_SLOTS - 1; valid after sd_engine_start */
void sd_engine_qp_created(struct sd_qp *qp);
void sd_engine_qp_modified(struct sd_qp *qp, enum ibv_qp_state from, int mask); /* state and attr are the new ones; RESET zeroes counters, ERR flushes */
void sd_engine_qp_destroyed(struct sd_qp *qp);   /* before the rings go away; nothing touches them afterwards */
void sd_engine_cq_destroyed(struct sd_cq *cq);
void sd_engine_mr_destroyed(struct sd_mr *mr);
bool sd_stepped(void);                           /* softdev_manual(1) or SOFTDEV_MANUAL=1 in the environment */

#endif
