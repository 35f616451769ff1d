/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base.h: the software device from inside: what all of its rooms share. Each room is a folder, has
 * a header of its name, and uses only the rooms before it:
 *
 *   base        base.h      objects and their tables, identity of the devices
 *   engine      eng.h       lists its files: doorbells, requester, responder, CQEs, fabric, faults
 *   firmware    firmware.h  device commands
 *   kernel      uverbs.c    the uverbs commands: decode, check, answer
 *               device.c    the attributes of the device
 *               objects.c   PD, AH, CQ, UAR, channels: tables, reference counts, events
 *               qp.c, srq.c, mr.c, wq.c, xrc.c   QPs; SRQs; MRs, windows and device memory; WQs; XRC domains
 *               flow.c, matcher.c   flow rules
 *               devx.c, devxfd.c    the uverbs methods of device commands; files with outcomes and events
 *   cm          cm.h        the connection manager
 *   host        preload.c   libc calls that libibverbs makes: paths, opens, ioctls
 *
 * A process has SOFTDEV_DEVICES devices of one port each. They differ in name and address and share
 * everything else: tables, numbers, engine. sd_lock guards every object. The engine thread, where
 * there is one, takes it for a bounded batch of work. The device reaches the program's memory
 * (rings, records, MRs) through the program's own pointers and trusts nothing in it: a length,
 * index or key from a ring is read once, and checked before use.
 */
#ifndef SOFTDEV_DEV_H
#define SOFTDEV_DEV_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <infiniband/verbs.h>

#define SD_MAX_QP 65536u          /* QPs per process; QPN = slot << 16 | index, so that a QPN names its process */
#define SD_MAX_SLOTS 200u         /* processes on one fabric; slot 0 is not used */
#define SD_MAX_CQE (1u << 22)
#define SD_MAX_SQ_WQEBB 32768u
#define SD_MAX_RQ_WR 32768u
#define SD_MAX_SQ_DESC 1008u      /* bytes of one send WQE */
#define SD_MAX_MSG (1u << 30)
#define SD_MAX_TSO (256u << 10)   /* payload of one WQE that is cut into packets */
#define SD_MAX_RD_ATOMIC 16
#define SD_MAX_ATOMIC 64u          /* bytes of the longest extended atomic; the shortest has 4 */
#define SD_LOG_TM_LIST 12u        /* log2 of the entries of a tag-matching list, one of which is the dummy */
#define SD_LOG_STREAMS 7u         /* log2 of a DCI's streams, of those that are kept apart and of those that may fail */
#define SD_MAX_RNDV_HDR 64u       /* bytes of a rendezvous request that the device itself answers */

extern pthread_mutex_t sd_lock;
extern pid_t sd_self; /* getpid(), of a child too: to ask for each copy takes as long as a short one */

struct sd_ctx;                    /* one opened uverbs fd; objects.c */

struct sd_pd {
	uint32_t pdn;
	struct sd_ctx *ctx;
	int refs;                 /* MRs and QPs */
};

/* An entry of an indirect key: so many bytes of what another key names */
struct sd_klm {
	uint32_t length, key;
	uint64_t addr;
	uint32_t stride;          /* of a repeated list: where the next round finds it */
};

enum sd_key_kind {
	SD_KEY_MTT,               /* addr */
	SD_KEY_KLM,               /* list, one entry after the other */
	SD_KEY_KSM,               /* list, of entries of 1 << log_entity bytes */
	SD_KEY_ALIAS,             /* another function's key, while it is the one that was permitted */
	SD_KEY_FREE,              /* nothing until a UMR fills it */
};

/* What is behind each block, in memory or on the wire */
enum sd_sig_kind { SD_SIG_NONE, SD_SIG_CRC32, SD_SIG_CRC32C, SD_SIG_DIF_CRC, SD_SIG_DIF_SUM };

struct sd_sig_domain {
	enum sd_sig_kind kind;
	uint32_t block, seed, ref_tag;
	uint16_t app_tag, app_mask;
	uint8_t escape;           /* 1: application tag 0xffff is not checked, 2: with reference tag ~0 */
	bool count;               /* the reference tag grows */
};

struct sd_sig {
	bool room, enabled;       /* the key may have signatures, has them */
	bool valid;               /* a BSF was given */
	uint8_t check, copy;
	struct sd_sig_domain memory, wire;
	uint32_t psv[2];
	uint8_t errors;           /* the bit of the last UMR that had one */
	bool armed;               /* the next error is told of */
};

struct sd_psv {
	struct sd_pd *pd;
	bool ready;               /* set, and no error since */
};

struct sd_mr {
	uint32_t key;             /* rkey; the low byte varies so that a stale key is seen */
	uint32_t lkey;            /* the same number only where a command made the key; 0: no local access, a window */
	struct sd_pd *pd;
	uint64_t iova, length;
	uint8_t *addr;            /* where iova lies in this process */
	uint32_t access;          /* IBV_ACCESS_* */
	uint8_t mw;               /* 0: an MR; 1, 2: a window of that type; while it is unbound only key and pd count */
	struct sd_mr *under;      /* a window: the MR it is bound to, or NULL; the engine binds */
	uint32_t qpn;             /* a bound window of type 2, a key that a UMR gave to one: the QP that may use it */
	int windows;              /* an MR: windows bound to it; it cannot be deregistered while there are any */
	enum sd_key_kind kind;
	bool no_local_read;
	uint64_t serial;          /* never used again, unlike index and variant */
	struct sd_klm *list;
	uint32_t entries, log_entity;
	uint32_t room;            /* entries that a UMR may fill; 0: none may */
	bool peer_invalidates;
	struct sd_sig sig;
	uint64_t round;           /* bytes of one round of a repeated list; 0: there is but one */
	uint32_t rounds;
	uint64_t alias_serial;    /* of the key that an alias names; iova, length and access do not count */
	uint32_t alias_key;
};

struct sd_uar {
	uint32_t page_id;
	/*
	 * 4096 bytes; the device's own mapping of the doorbell page. Registers at 0x800, 0x900,
	 * 0xa00, 0xb00: two BlueFlame registers of two 256-byte halves; CQ arm doorbell at 0x20
	 */
	uint8_t *page;
	/* the same page in the program: mappings of this file at this offset, other than page */
	dev_t st_dev;
	ino_t st_ino;
	uint64_t offset;
};

struct sd_channel;                /* completion channel; objects.c */

#define SD_MAX_ZIP 64u            /* CQEs of a block */
enum sd_compression { SD_PLAIN, SD_BASIC, SD_ENHANCED };
/* As the CQ context numbers them; the last is the extension's */
enum sd_mini_format { SD_MINI_HASH, SD_MINI_CSUM, SD_MINI_CSUM_STRIDX = 3, SD_MINI_L34H_STRIDX };

struct sd_cq {
	uint32_t cqn;
	struct sd_ctx *ctx;
	bool subscribed;          /* may tell of completions without a channel */
	bool collapsed;           /* every CQE lands in slot 0 */
	uint8_t *buf;             /* the program's ring */
	uint32_t cqe_cnt;         /* power of two */
	uint32_t cqe_size;        /* 64 or 128; the 64-byte CQE is the second half of 128 */
	bool padded;              /* zeros fill the first half where there are no data for it */
	volatile uint32_t *dbrec; /* [0] consumer index, [1] arm; big-endian */
	struct sd_uar *uar;
	struct sd_channel *channel;
	bool ignore_overrun;
	uint8_t compression;      /* enum sd_compression */
	uint8_t mini_format;      /* enum sd_mini_format */
	bool strides;             /* of striding queues: CQEs count strides */
	bool timestamp;           /* CQEs carry CLOCK_MONOTONIC in ns, big-endian, at 0x30 */
	bool overrun;             /* dead: an overrun happened */
	uint32_t pi;              /* CQEs produced, never masked */
	uint32_t arm_seen;        /* host order value of the arm record last acted on; 0xffffffff at create */
	int refs;                 /* QPs */
	void *eng;                /* the engine's own, NULL at create */
};

/* Of a queue whose WQEs take many packets each */
struct sd_strides {
	uint8_t log_size;         /* log2 of a stride's bytes; 0: the WQEs take one packet each */
	uint8_t log_count;        /* log2 of a WQE's strides */
	uint8_t shift;            /* bytes left free before each packet */
};

/*
 * What many QPs receive from. The ring is a linked list, in which next_wqe_index of each entry names
 * its successor, or it is cyclic: entries look the same and are taken one after the other
 */
struct sd_srq {
	bool cyclic;
	bool bare;                /* cyclic, and its entries have no link */
	uint32_t srqn, uidx;
	struct sd_ctx *ctx;
	struct sd_pd *pd;
	uint8_t *buf;             /* the program's ring: wqe_cnt << wqe_shift bytes */
	uint32_t wqe_cnt, wqe_shift; /* wqe_cnt a power of two */
	volatile uint32_t *dbrec; /* [0]: WQEs posted, 16 bits, big-endian */
	uint32_t limit;           /* armed: IBV_EVENT_SRQ_LIMIT_REACHED when fewer WQEs are left, and back to 0 */
	uint32_t max_wr, max_sge;
	struct sd_tm *tm;         /* tag matching, from sd_tm_new(); NULL: none */
	struct sd_strides strides;
	struct sd_domain *xrcd;   /* XRC: its domain, and its CQ; NULL otherwise */
	struct sd_cq *cq;
	int refs;                 /* QPs */
	void *eng;                /* the engine's own, NULL at create */
};

/*
 * In addition to the types of verbs. A DCT only receives, from any DCI with its key, and is ready to
 * receive as long as it exists
 */
#define SD_QPT_DCI ((enum ibv_qp_type)0x40)
#define SD_QPT_DCT ((enum ibv_qp_type)0x41)

/* What a counter set counts, of the QPs that name it, as responders */
struct sd_counters {
	uint32_t writes, reads, atomics, no_buffer, duplicates;
};

/* In which order a responder may take what comes: as it was sent, reads and writes in any, sends too */
enum sd_ordering { SD_IN_ORDER, SD_OOO_RW, SD_OOO_ALL };

struct sd_qp {
	uint32_t qpn;
	uint8_t ordering;         /* enum sd_ordering */
	uint8_t counter_set;      /* 0: none */
	unsigned dev;             /* which of the process's devices */
	struct sd_srq *srq;       /* NULL without one; rq is NULL with one */
	uint32_t uidx;            /* goes to CQE 0x20 (srqn_uidx) */
	enum ibv_qp_type type;
	enum ibv_qp_state state;
	struct sd_ctx *ctx;
	struct sd_pd *pd;
	struct sd_cq *send_cq, *recv_cq;
	struct sd_uar *uar;       /* NULL where there is nothing to ring */
	bool sig_all;
	bool loopback;            /* its peer is on its own device; its address does not count */
	bool no_self;             /* of what it sends to a group itself, it gets nothing */
	bool strip_vlan;          /* raw packets: the VLAN tag goes to the CQE */
	bool wq;                  /* a receive WQ, of host_wq */
	bool linked;              /* its receive ring is a linked list */
	bool no_flush;            /* in error, what is posted does not come back */
	struct sd_strides strides;
	uint8_t scatter_rsp, scatter_req; /* bytes that go into a CQE at responder, requester: 0, 32, 64 */
	bool cqe_atomic_be;       /* an 8-byte atomic's answer in a CQE is big-endian, as UCX expects */
	uint32_t max_atomic;      /* bytes of the longest extended atomic that its peer may do; 0: none */
	bool cd_master, cd_slave_send; /* cross-channel: it may wait for CQs and let others send; it waits to be let */
	bool mmo;                 /* it may copy memory */
	uint16_t udp_sport;       /* of its RoCE packets, which leads them over one way or another; here there is one */
	uint32_t max_msg;         /* bytes of a message that it sends; 0: SD_MAX_MSG */
	uint64_t dc_key;          /* DCT: what a DCI must know */
	uint32_t dc_violations;   /* DCT: requests with another key */
	uint32_t streams;         /* DCI: it stops when so many have failed; 0: it has none */
	/*
	 * XRC receive QP. Each request names the SRQ that it is for; the engine sets srq, recv_cq, pd
	 * and uidx to that SRQ's, which has a reference to none of them through the QP
	 */
	struct sd_domain *xrcd;
	volatile uint32_t *dbrec; /* [0] receive, [1] send; big-endian. NULL for a DCT and an XRC receive QP */
	uint8_t *sq;              /* the program's ring, wqebb_cnt << 6 bytes */
	uint32_t wqebb_cnt;
	uint8_t *rq;              /* rq_cnt << rq_shift bytes; NULL without one */
	uint32_t rq_cnt, rq_shift;
	uint32_t max_recv_sge;
	/* modify_qp's attributes, host order, as last set */
	struct ibv_qp_attr attr;
	void *eng;                /* the engine's own, NULL at create */
};

/* ---- host side, for the engine; all with sd_lock held unless said ---- */

/* Lookups return NULL when there is no such object; _next(NULL) is the first */
struct sd_mr *sd_mr_find(uint32_t key, bool remote); /* by its rkey or its lkey */
struct sd_mr *sd_mr_index(uint32_t key);         /* without the low byte, which a bind changes */
struct sd_pd *sd_pd_find(uint32_t pdn);
struct sd_psv *sd_psv_find(uint32_t number);
struct sd_qp *sd_qp_find(uint32_t qpn);
struct sd_qp *sd_qp_next(struct sd_qp *qp);
struct sd_cq *sd_cq_find(uint32_t cqn);
struct sd_cq *sd_cq_next(struct sd_cq *cq);
struct sd_srq *sd_srq_find(uint32_t srqn);
struct sd_srq *sd_srq_next(struct sd_srq *srq);
struct sd_uar *sd_uar_next(struct sd_uar *uar);
struct sd_counters *sd_counters(const struct sd_qp *qp); /* of the set that the QP names */

/* Does this UD QP take what is sent to this group? lid counts on InfiniBand without GRH */
bool sd_mcast_attached(struct sd_qp *qp, const uint8_t gid[16], uint16_t lid);

/* Why a packet comes to a queue: the rule's tag; the hash that chose the queue, and what it is of */
struct raw_hit {
	uint32_t tag, hash;
	uint8_t hash_type;
};
/* To whom the flow rules of this process's devices send a packet */
void sd_flow_deliver(const uint8_t *p, uint32_t len, void (*to)(struct sd_qp *qp, const struct raw_hit *hit, const void *arg),
		     const void *arg);
/* Bytes of each packet that must be inline: 0, or 18 with SOFTDEV_INLINE=l2. Needs no lock */
unsigned sd_min_inline(void);

/* Is this an address of that device's port? gid NULL: by lid alone (InfiniBand) */
bool sd_port_is(unsigned dev, const uint8_t *gid, uint16_t lid);
/* The device with that address, which is the same in all processes of the fabric; or SD_NO_DEV */
#define SD_NO_DEV 0xffu
unsigned sd_port_at(const uint8_t *gid, uint16_t lid);
uint16_t sd_lid(unsigned dev);
/* 0; ENODATA: the entry is empty; EINVAL. Needs no lock */
int sd_gid(unsigned dev, unsigned index, union ibv_gid *gid, unsigned *type);
void sd_port_mac(unsigned dev, uint8_t mac[6]);

void sd_cq_event(struct sd_cq *cq);              /* one completion event on the CQ's channel */
void sd_async_cq(struct sd_cq *cq, enum ibv_event_type type);
void sd_async_qp(struct sd_qp *qp, enum ibv_event_type type);
void sd_async_srq(struct sd_srq *srq, enum ibv_event_type type);
void sd_dct_violated(struct sd_qp *dct);         /* a request with another key */

/* The connection manager: from another process; at each round of the engine */
void sd_cm_message(unsigned slot, uint64_t inst, const void *data, size_t len);
void sd_cm_peer_dead(unsigned slot, uint64_t inst);
void sd_cm_work(uint64_t now);

/*
 * The directory where the processes of one fabric meet: $SOFTDEV_FABRIC or the user's own. Made if
 * it is missing; of mode 0700 and ours. NULL with errno set when that cannot be. Needs no lock
 */
const char *sd_fabric_dir(void);

/* ---- engine, for the host side; all with sd_lock held unless said ---- */

/*
 * At the first open: joins the fabric, and starts the thread unless the device is stepped. 0 or
 * -errno. Called without sd_lock
 */
int sd_engine_start(void);
unsigned sd_fabric_slot(void);                   /* of this process: 1 .. SD_MAX_SLOTS - 1 */
uint64_t sd_fabric_instance(unsigned slot);      /* the number of the process that holds it now; 0: none does */
/* A message of the connection manager: 0, -EPIPE: that process is gone, -EAGAIN: not now */
int sd_fabric_send(unsigned slot, uint64_t inst, const void *data, size_t len);
bool sd_fabric_unread(unsigned slot);            /* that process has not read all that was sent to it */
void sd_engine_wake(void);                       /* there is something to do, or to wait for */
bool sd_engine_lend(void);                       /* the device works in the caller's thread; false: it does not */
uint64_t sd_now(void);                           /* ns */

void sd_engine_qp_created(struct sd_qp *qp);
/* qp has the new state and attributes. RESET zeroes the counters, ERR flushes */
void sd_engine_qp_modified(struct sd_qp *qp, enum ibv_qp_state from, int mask);
/* False: that stream of a DCI has not failed */
bool sd_engine_stream_reset(struct sd_qp *qp, uint16_t stream);
/* Before the rings go away: afterwards the engine does not touch them */
void sd_engine_qp_destroyed(struct sd_qp *qp);
void sd_engine_cq_destroyed(struct sd_cq *cq);
void sd_engine_mr_destroyed(struct sd_mr *mr);   /* an MR or a window */
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

#endif
