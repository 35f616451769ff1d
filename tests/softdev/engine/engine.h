/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine.h: the engine, for those above it; eng.h lists its files. All with sd_lock held unless
 * said.
 */
#ifndef SOFTDEV_ENGINE_H
#define SOFTDEV_ENGINE_H

#include "../base/base.h"

/*
 * At the first open: joins the fabric, and starts the thread unless the device is stepped. 0 or
 * -errno. Called without sd_lock
 */
int sd_engine_start(void);
void sd_engine_forked(void);                     /* in a child: closes what is its parent's */
uint64_t sd_fabric_instance(unsigned slot);      /* the number of the process that holds it now; 0: none does */
/* A message of the connection manager: 0, -EPIPE: that process is gone, -EAGAIN: not now */
int sd_fabric_send(unsigned slot, uint64_t inst, const void *data, size_t len);
bool sd_fabric_unread(unsigned slot);            /* that process has not read all that was sent to it */
void eng_wake(void);                             /* there is something to do, or to wait for */
bool sd_engine_lend(void);                       /* the device works in the caller's thread; false: it does not */
uint64_t eng_now(void);                          /* ns */

void sd_engine_qp_created(struct sd_qp *qp);
/* qp has the new state and attributes. RESET zeroes the counters, ERR flushes */
void sd_engine_qp_modified(struct sd_qp *qp, enum ibv_qp_state from, int mask);
/* False: that stream of a DCI has not failed */
bool sd_engine_stream_reset(struct sd_qp *qp, uint16_t stream);
/* Before the rings go away: afterwards the engine does not touch them */
void sd_engine_qp_destroyed(struct sd_qp *qp);
void sd_engine_cq_destroyed(struct sd_cq *cq);
void window_free(struct sd_mr *mw);              /* keys are looked up for each piece: nothing remembers an MR but its windows */
void sd_engine_srq_changed(struct sd_srq *srq);  /* created, or its limit set: looks at it at once */
void sd_engine_srq_destroyed(struct sd_srq *srq); /* its tag matching as well */
/*
 * Writes a RESIZE_CQ CQE into the old ring and all later CQEs into the new one. 0, or a positive
 * errno when the CQEs that wait do not fit
 */
int sd_engine_cq_resize(struct sd_cq *cq, uint8_t *buf, uint32_t cqe_cnt, uint32_t cqe_size);

/* What contexts of commands show of an object */
struct sd_qp_look {
	uint32_t sq_hw, sq_sw, rq_hw, rq_sw; /* WQEs or WQEBBs: taken by the device, posted by the program */
	uint32_t next_send_psn, next_rcv_psn, last_acked_psn, ssn;
};
struct sd_cq_look {
	bool armed, solicited;
	uint32_t producer, consumer, notified, solicit; /* indices; of the last event, of the last solicited CQE */
};
void sd_engine_qp_look(struct sd_qp *qp, struct sd_qp_look *l);
void sd_engine_cq_look(struct sd_cq *cq, struct sd_cq_look *l);
void sd_engine_srq_look(struct sd_srq *srq, uint32_t *hw, uint32_t *sw, bool *broken);

/*
 * Tag matching (tm.c). Makes srq match, before any QP has it.
 *
 * log_list_size  1 .. SD_LOG_TM_LIST; the dummy is one of the entries, and the first append fills
 *                entry 0
 * cq             gets all its CQEs, which carry srq->uidx; held until the SRQ goes away
 * rndv           the device reads what a rendezvous offers
 *
 * RC QPs and DCTs may have the SRQ. An RC QP that is connected to itself is a command QP: its WQEs
 * of opcode 0x28 are list operations. QPs without a send queue (wqebb_cnt 0) do rendezvous too.
 * Returns 0, EINVAL, ENOMEM
 */
int sd_tm_new(struct sd_srq *srq, unsigned log_list_size, struct sd_cq *cq, bool rndv);
void sd_tm_free(struct sd_srq *srq);             /* after a failed creation; nothing without tag matching */
void sd_tm_query(const struct sd_srq *srq, uint16_t *append_next, uint16_t *sw_phase, uint16_t *hw_phase);

bool sd_stepped(void);                           /* also when trapping */
bool sd_trapping(void);                          /* SOFTDEV_TRAP=1 */
/*
 * When a QP or CQ is created: write-protects the program's mappings of the page. Does nothing unless
 * the device traps
 */
void sd_trap_page(struct sd_uar *uar);
/*
 * For each set-up call (every uverbs command but queries and destruction): 0, or the errno with
 * which the fault specification wants it to fail. Without sd_lock
 */
int sd_fault_setup(void);
bool sd_port_down(unsigned dev);                 /* by a fault */
int fault_start(void);   /* SOFTDEV_FAULT: 0 or -EINVAL, with a message */

/* ---- xrc.c ---- */
extern struct sd_cq sd_no_cq;                    /* of an XRC receive QP that no request has reached */

/* ---- raw.c ---- */
struct raw_headers {
	unsigned type, tags, tci;       /* Ethernet type, how many VLAN tags, the first of them */
	unsigned version;               /* 0: no IP; 4, 6 */
	unsigned proto;                 /* 0: none; 6, 17 */
	bool fragment;
	uint32_t payload, l3, l4, end;  /* what follows the Ethernet header; IP; TCP or UDP; where IP says that the packet ends */
};
void raw_parse(const uint8_t *p, uint32_t len, uint32_t from, struct raw_headers *h);

#endif
