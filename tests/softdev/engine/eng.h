/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * eng.h: what the files of the engine share, and nobody else sees.
 *
 *   mem.c     key checks, and copies that survive unmapped memory
 *   cqe.c     CQEs: owner bit, overrun, arming, the CQEs that a stepped device holds back
 *   sq.c      requester: WQE fetch, decode, execution, retries, completion, flush
 *   rx.c      responder: receive queue, remote access, answers
 *   rxsrq.c   shared receive queues
 *   tm.c      tag matching: list operations, what messages do with the list, rendezvous
 *   ud.c      datagrams: address vectors, multicast, the 40 bytes in front
 *   raw.c     raw packets: Ethernet segments, checksums, segmentation
 *   rxraw.c   raw packets as they come: strides, CQEs
 *   dc.c      dynamically connected: whom a DCI talks to, and a DCT's connections
 *   xrc.c     which SRQ an XRC request is for
 *   window.c  memory windows: bind and invalidate
 *   umr.c     keys that a UMR fills
 *   sig.c     block signatures
 *   sync.c    copies inside the device, waits, queues that let each other go on
 *   wire.c    slots, sockets, frames between processes
 *   fault.c   what goes wrong on demand
 *   trap.c    stores to a doorbell page, caught one by one
 *   engine.c  doorbells, the thread, the stepped interface, what the rooms above tell it
 *
 * A message between two QPs is a row of frames. Between QPs of one process the requester calls
 * rx_request() itself with a list of where its bytes lie, and gets the answer back; between
 * processes the same frames go through a socket, and the answers come later. Everything runs with
 * sd_lock held.
 *
 * UC uses the same frames without any answer: the requester is done when the last one has left, and
 * what the responder cannot take is lost. A datagram is one frame of its own kind, which carries
 * its way in front of its payload.
 */
#ifndef SOFTDEV_ENG_H
#define SOFTDEV_ENG_H

#include <endian.h>
#include <stdint.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <infiniband/mlx5dv.h>
#include "engine.h"

#define ENG_SEGS 64                     /* segments of a list: a send WQE of 1008 bytes has at most 62 */
#define ENG_IOVS 1024                   /* pieces of memory that one chunk may lie in: more than ENG_SEGS only through indirect keys */
#define ENG_OPS 256                     /* send WQEs of one QP under way */
#define ENG_CHUNK_LOCAL (256u << 10)    /* bytes that one step copies inside a process: bounds the time under sd_lock */
#define ENG_CHUNK_WIRE (64u << 10)      /* payload of one frame */
#define ENG_JOBS (SD_MAX_RD_ATOMIC + 1) /* a responder's answers under way: READs, atomics, one last NAK */
#define ENG_WQE_MAX 1024u
#define UC_NO_PSN 0xffffffffu
#define ENG_TM_HEAD SD_MAX_RNDV_HDR

/* Are there answers? */
static inline bool reliable(const struct sd_qp *qp)
{
	return qp->type != IBV_QPT_UC && qp->type != IBV_QPT_UD && qp->type != IBV_QPT_RAW_PACKET;
}

static inline bool is_masked(uint8_t opcode)
{
	return opcode == MLX5_OPCODE_ATOMIC_MASKED_CS || opcode == MLX5_OPCODE_ATOMIC_MASKED_FA;
}

static inline bool is_atomic(uint8_t opcode)
{
	return opcode == MLX5_OPCODE_ATOMIC_CS || opcode == MLX5_OPCODE_ATOMIC_FA || is_masked(opcode);
}

/* Are data awaited from the responder? */
static inline bool is_rd(uint8_t opcode)
{
	return opcode == MLX5_OPCODE_RDMA_READ || is_atomic(opcode);
}

/* Bytes of an extended atomic's operands: swap, compare, swap mask, compare mask; or add, field boundary */
static inline unsigned operand_bytes(uint8_t opcode, unsigned size)
{
	return (opcode == MLX5_OPCODE_ATOMIC_MASKED_CS ? 4 : 2) * size;
}

struct seg {
	uint64_t addr;
	uint32_t len, key;
	const uint8_t *inl;             /* not NULL: the bytes themselves, in the device's copy of the WQE */
};

struct seglist {
	unsigned n;
	uint64_t total;
	struct seg s[ENG_SEGS];
};

/* Answers of a responder. The first three are no error */
enum reply {
	RP_ACK,                         /* the message is complete */
	RP_MORE,                        /* so far so good */
	RP_STALE,                       /* belongs to an attempt that was answered already: no answer */
	RP_RNR,
	RP_UNREACH,                     /* no such QP, or not ready: a NIC would not answer at all */
	RP_INVAL,
	RP_ACCESS,
	RP_OPERR,
	RP_SRC_FAULT,                   /* only inside a process: the requester's own memory failed */
};

enum frame_kind { FR_REQ = 1, FR_ACK, FR_NAK, FR_READ, FR_ATOMIC, FR_UD, FR_CM, FR_RAW };

/* Host byte order: both ends are on one machine */
struct frame {
	uint32_t len;                   /* bytes of payload that follow */
	uint8_t kind;
	uint8_t opcode;                 /* FR_REQ: MLX5_OPCODE_* */
	uint8_t solicited;
	uint8_t code;                   /* FR_NAK: enum reply */
	uint8_t type;                   /* FR_REQ: enum ibv_qp_type of the requester */
	uint8_t dup;                    /* FR_REQ: a copy, which only a fault makes */
	uint8_t log_size;               /* FR_REQ of an extended atomic, whose operands are its payload */
	uint8_t dev;                    /* FR_REQ: which device the requester's path leads to */
	uint32_t dst, src;              /* QPNs */
	uint32_t psn;                   /* one per message, not per packet; starts at sq_psn */
	/* of the requester; an answer carries it back, so one to an earlier connection is known */
	uint32_t epoch;
	uint32_t imm;                   /* as in the WQE; FR_NAK: the RNR timer's code */
	uint32_t rkey;
	uint64_t raddr;
	uint64_t total;                 /* bytes of the whole message */
	uint64_t off;                   /* where this frame's payload lies in it */
	uint64_t swap_add, compare;
	uint64_t old[SD_MAX_ATOMIC / 8]; /* FR_ATOMIC: the old value, as it goes to memory */
	uint64_t dc_key;                /* FR_REQ of a DCI */
	uint16_t slid;                  /* the same: where it comes from */
	uint32_t srqn;                  /* FR_REQ of an XRC QP */
};

#define UD_MTU 4096u
#define UD_GRH 40u
#define UD_MCAST 0xffffffu              /* the QPN that stands for a multicast group */

enum ud_l3 { UD_PLAIN, UD_IS_GRH, UD_IS_IPV6, UD_IS_IPV4 };

/*
 * A datagram's way, as the address vector and the sender's port have it; host byte order but for
 * the addresses
 */
struct ud_path {
	uint32_t qkey, flow;
	uint16_t dlid, slid;
	uint8_t l3;                     /* enum ud_l3 */
	uint8_t ib, mcast;              /* 0 or 1 */
	uint8_t sl, tclass, hops;
	uint8_t dmac[6], sgid[16], dgid[16];
};

#define OPCODE_MULTI_PACKET 0x29        /* of mlx5, but not in mlx5dv.h */

/* An Ethernet segment */
struct raw_eth {
	uint8_t ask;                    /* checksums */
	uint8_t swp[4], swp_flags;      /* where the program says the headers are */
	uint8_t tag[4];                 /* VLAN tag to insert, or 0 */
	uint16_t mss;
	const uint8_t *hdr;             /* inline, in the device's copy of the WQE */
	uint32_t hdr_len;
};

/* A packet, and what a receiver is told of it */
struct raw_packet {
	const uint8_t *data;
	uint32_t len;
	struct raw_headers h;
	uint16_t sum;                   /* of everything behind the Ethernet header */
	bool l3_ok, l4_ok;
};

/* A send WQE under way */
struct op {
	uint32_t psn;
	uint16_t idx;                   /* its first WQEBB */
	uint8_t bbs;
	uint8_t opcode;
	uint8_t ce;
	bool sent;                      /* all of it */
	bool done;
	bool local;                     /* never went to the responder: NOP or local error */
	uint16_t stream;                /* of a DCI that has streams */
	uint8_t synd, vendor;           /* of its error CQE; 0: none */
	bool fatal;                     /* its error stops a QP of any type */
	uint8_t to_cqe;                 /* the response goes into the CQE: of that many bytes' room */
	bool corrupt, dup;              /* faults */
	/* no WQE but the device's own, for this rendezvous: idx is that of the next WQE, bbs 0 */
	struct rndv *rndv;
	uint64_t total, off;            /* READ: bytes received */
	struct seglist *segs;           /* READ and atomics: where the response goes */
	bool sig;                       /* some of its memory has signatures, */
	uint8_t *bounce;                /* and this is the message as the wire has it */
	uint8_t resp[64];
};

/* A responder's answer under way */
struct job {
	uint8_t kind;                   /* FR_READ, FR_ATOMIC, FR_NAK */
	uint8_t code;
	uint32_t psn, epoch, rkey, srqn;
	uint64_t raddr, total, off;
	uint64_t old[SD_MAX_ATOMIC / 8];
};

/* The engine's part of a QP */
struct rcq {
	struct sd_qp *qp;
	struct rcq *next, **prev;       /* all. A DCT has one for each connection */
	bool err;                       /* in the error state, and flushed once */

	/* requester */
	uint16_t sq_ci;                 /* next WQEBB to fetch */
	uint16_t sq_pi;                 /* the record, when the doorbell last rang */
	uint16_t enabled;               /* a slave: where it must stop */
	uint16_t fetched_at;            /* WQEBBs from this one on are in fetched, */
	uint64_t fetched_step;          /* read in this step */
	unsigned fetched_bytes;
	uint8_t fetched[4 * ENG_WQE_MAX];
	uint32_t npsn, epoch;
	struct op *ops;
	unsigned head, count;
	unsigned rd;                    /* READs and atomics among them */
	bool streaming;                 /* the youngest op is not sent yet; body holds it */
	bool halted;                    /* an op failed and waits for its elders */
	bool draining;
	uint8_t *failed;                /* a DCI's streams, one bit each; NULL: none of them */
	unsigned failures;              /* how many */
	unsigned rnr_left, retry_left;
	uint64_t wait_until;            /* ns */
	uint64_t wait_step;             /* stepped: not again in this call */
	struct {
		struct seglist segs;
		uint64_t off;
		uint64_t raddr, swap_add, compare;
		uint32_t rkey, imm;
		uint8_t fm;
		uint8_t log_size;       /* an extended atomic */
		uint8_t operands[4 * SD_MAX_ATOMIC];
		bool se;
		bool held;              /* not on its way yet: a fault delays it */
		uint32_t dqpn;          /* UD, DCI */
		uint64_t dc_key;        /* DCI */
		uint32_t srqn;          /* XRC */
		struct ud_path path;
		struct raw_eth eth;
		uint8_t wqe[ENG_WQE_MAX];
	} body;

	/* responder */
	uint16_t rq_ci;
	bool wqe_held;                  /* a receive WQE is taken and its CQE not written yet: rx has it */
	uint16_t wqe_idx;               /* its index */
	uint16_t rq_head;               /* a linked list: the entry to be taken next */
	uint32_t early;                 /* out of order: those behind rq_ci that are taken, one bit each */
	uint32_t random;
	uint32_t stride;                /* the first free one of that WQE */
	uint64_t last_wqe;              /* ns: in error, when IBV_EVENT_QP_LAST_WQE_REACHED is raised; 0: not to be */
	uint64_t starves;               /* ns: no receive WQE since then; 0: there was one the last time */
	uint32_t rpsn;
	uint32_t uc_psn;                /* UC: of the message seen last, UC_NO_PSN before the first */
	bool in_msg, comm_est;
	bool nak_wait;                  /* RNR was answered: what comes before the retry is dropped */
	bool nak_fatal;
	uint8_t msg_op;
	uint64_t msg_off;
	struct seglist rx;
	struct {                        /* tag matching: the message under way */
		/* its first bytes were taken; else what follows is only what was found for it */
		bool begun;
		bool tagged;            /* it has matched entry, and goes to its buffer */
		bool two;               /* two CQEs: one for the match, one for the data */
		uint8_t app_op;         /* of its last CQE */
		uint16_t skip;          /* bytes of header that are not scattered */
		uint32_t entry;
		struct rndv *job;       /* a rendezvous that begins when all of the request is there */
		struct seglist to;
		uint8_t head[ENG_TM_HEAD];
	} tm;
	struct rndv *rndv;              /* rendezvous under way */
	bool ack_due;
	uint32_t ack_psn, ack_epoch;
	struct job jobs[ENG_JOBS];
	unsigned njobs;

	uint8_t *stage;                 /* with signatures: the message that comes in, or what is read */

	/* the peer, of a DCI the one that it talks to at the time */
	uint8_t path_dev;               /* which of its devices the address belongs to */
	uint32_t peer;                  /* its QPN */
	unsigned slot;                  /* its process */
	uint64_t inst;
	uint64_t dc_key;
};

extern struct rcq *eng_all;
extern bool eng_is_stepped;
extern bool eng_is_trap;                /* then stepped as well: each write to a doorbell page is a step */
extern uint64_t eng_step;               /* counts the stepped interface's calls */
extern struct rcq *eng_self;            /* the QP that is its own responder just now */
extern bool eng_cq_died;                /* some CQ overran: its QPs must stop */
bool eng_cqs_dead(const struct sd_qp *qp);

void eng_settle(void);                  /* a command comes after the doorbells that were rung before it */

/* ---- mem.c ---- */
enum { MEM_OK, MEM_SRC, MEM_DST };
#define MEM_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define MEM_ALL (IBV_ACCESS_LOCAL_WRITE | MEM_REMOTE) /* no bit of them: a local read */
bool mem_ok(struct sd_qp *qp, uint32_t key, uint64_t addr, uint64_t len, unsigned access);
/* The same, and where it lies: ENG_IOVS pieces at most, more of them are refused as well */
bool mem_pieces(struct sd_qp *qp, uint32_t key, uint64_t addr, uint64_t len, unsigned access, struct iovec *v, unsigned *n);
/* The same of a key with signatures, as if it had none */
bool mem_pieces_plain(struct sd_qp *qp, uint32_t key, bool remote, uint64_t addr, uint64_t len, unsigned access, struct iovec *v, unsigned *n);
bool mem_segs_ok(struct sd_qp *qp, const struct seglist *l, unsigned access);
/* The pieces [off, off + len) of a list as iovecs, ENG_IOVS at most; false: a key is refused */
bool mem_vec(struct sd_qp *qp, const struct seglist *l, uint64_t off, uint64_t len, unsigned access, struct iovec *v, unsigned *n);
int mem_copy(const struct iovec *dst, unsigned nd, const struct iovec *src, unsigned ns, uint64_t len);
/* len > 0. last: whether the last byte lands last, or first */
int mem_copy_in_order(bool last, const struct iovec *dst, unsigned nd, const struct iovec *src, unsigned ns, uint64_t len);
/*
 * The bytes with one bit of them wrong, at most ENG_CHUNK_LOCAL of them; the answer is good until
 * the next call. NULL: not readable
 */
const uint8_t *mem_spoil(const struct iovec *src, unsigned ns, uint64_t len);
int mem_atomic(uint8_t *p, bool cs, uint64_t swap_add, uint64_t compare, uint64_t *old); /* 0 or -1: not accessible */
/*
 * The same of an extended atomic of 4, 8 or more bytes, up to SD_MAX_ATOMIC, with its operands as in
 * the WQE. old: as it goes to the requester's memory
 */
int mem_masked(uint8_t *p, bool cs, unsigned size, const uint8_t *operands, uint64_t old[SD_MAX_ATOMIC / 8]);

/* ---- engine.c ---- */
struct rcq *eng_rcq_new(struct sd_qp *qp);
void eng_rcq_free(struct rcq *q);
void eng_forget(struct rcq *q);         /* as a QP that was just made: nothing is under way, no CQE is held back */

/* ---- cqe.c ---- */
/*
 * of: what takes along the CQEs that are held back when it goes away: a QP's rcq, a tag-matching
 * SRQ's sd_tm
 */
void cqe_put(struct sd_cq *cq, const void *of, const struct mlx5_cqe64 *c, const uint8_t *data64, bool event);
void cqe_error(struct sd_cq *cq, struct rcq *q, bool responder, uint8_t opcode, uint16_t idx, uint8_t synd, uint8_t vendor);
void cqe_defer(bool on);               /* off: what was kept back meanwhile is delivered */
void cqe_purge(struct sd_cq *cq, const void *of);
int cqe_release(struct sd_cq *cq, unsigned n);
void cqe_arms(struct sd_uar *uar);      /* looks at the arm register of a page, then at the records of its CQs */
void cqe_arm(struct sd_uar *uar, uint64_t value); /* the same, of a register whose value was taken already */
void cqe_write(struct sd_cq *cq, uint32_t pi, const void *cqe, uint8_t op_own); /* into slot pi, whose it is included */
void *cqe_slot(struct sd_cq *cq, uint32_t pi);
void cqe_written(struct sd_cq *cq, uint32_t n, bool event);
struct zip *cqe_zip(struct sd_cq *cq);  /* NULL: nothing was ever written */

/* ---- zip.c ---- */
struct zip *zip_new(struct sd_cq *cq);
void zip_free(struct zip *z);
uint32_t zip_held(const struct zip *z);
bool zip_take(struct zip *z, const struct mlx5_cqe64 *c, bool event);
void zip_flush(struct zip *z);
void zip_flush_all(void);

/* ---- sq.c ---- */
/* data segments from at to end; false: one runs past the end */
bool sq_parse_data(const uint8_t *at, const uint8_t *end, struct seglist *l, bool *has_inline);
bool sq_ring(struct rcq *q);            /* takes the doorbell record; is there something to do? */
bool sq_run(struct rcq *q, unsigned max, unsigned *executed);
void sq_response(struct rcq *q, const struct frame *f, const uint8_t *payload);
void sq_peer_dead(struct rcq *q);
void sq_enter_err(struct rcq *q);
bool sq_flush(struct rcq *q);
void sq_reset(struct rcq *q);

/* ---- rx.c ---- */
enum { RX_NONE = -1, RX_BAD = -2, RX_SRC = -3, RX_KEY = -4, RX_LONG = -5 }; /* the last three: of tm.c alone */
void rx_scatter(struct rcq *q, const struct mlx5_wqe_data_seg *d, unsigned max); /* fills q->rx */
/* the next receive WQE into q->rx; 0, or why not. It stays taken until its CQE is written */
int rx_take(struct rcq *q);
bool rx_starves(const struct frame *f); /* shall it wait for a receive WQE? */
void rx_error(struct rcq *q, uint8_t synd, uint8_t vendor); /* the error CQE of the WQE taken */
/* the QP stops; an event tells of it where no receive CQE does */
void rx_fail(struct rcq *q, const enum ibv_event_type *event);
struct rx_out {
	unsigned n;
	struct iovec v[ENG_IOVS];       /* READ: where this frame's bytes lie */
	uint64_t old[SD_MAX_ATOMIC / 8]; /* atomic: the old value, as it goes to memory */
};
enum reply rx_request(struct rcq *q, const struct frame *f, const struct iovec *src, unsigned ns, struct rx_out *out);
/* a request from another process */
void rx_frame(unsigned slot, uint64_t inst, const struct frame *f, const uint8_t *payload);
void rx_access_fault(struct rcq *q);
bool rx_run(struct rcq *q);             /* sends what answers it can */
void rx_answers(void);                  /* all QPs: what answers can be sent are on their way afterwards */
void rx_drop(struct rcq *q);            /* the QP goes away: what is due is sent or refused now */

/* ---- rxsrq.c ---- */
bool srq_empty(struct sd_srq *srq);
int srq_take(struct rcq *q);
/* A striding one: the WQE whose strides are being used, or the next */
int srq_take_strides(struct rcq *q);
void srq_put_strides(struct rcq *q);    /* back, with what is left of it; after an error nothing is */
/* For how many packets of so many strides there is room; what cannot be taken at all is not counted */
uint32_t srq_packets(struct sd_srq *srq, uint32_t strides);

/* ---- dc.c ---- */
/* the DCI's peer is that of the WQE in body; false: earlier ones must be answered first */
bool dc_aim(struct rcq *q);
bool dc_stream_failed(const struct rcq *q, uint16_t stream);
/* An error of its own; false: it is the last that the DCI takes, which stops */
bool dc_stream_fails(struct rcq *q, uint16_t stream);
void dc_streams_forget(struct rcq *q);
/*
 * the DCT's side of the connection that the request belongs to; NULL: none, and none can be made
 * for it
 */
struct rcq *dc_responder(struct sd_qp *dct, unsigned slot, uint64_t inst, const struct frame *f);
void dc_destroyed(struct sd_qp *qp);    /* a DCT, or a DCI of this process: its connections */

/* ---- xrc.c ---- */
bool xrc_aim(struct rcq *q, uint32_t srqn); /* false: there is no such SRQ in the receive QP's domain */
void xrc_srq_destroyed(const struct sd_srq *srq);
void xrc_forgotten(struct rcq *q);      /* a receive QP */

/* ---- tm.c ---- */
/* where what the QP receives is told of; NULL: it has no tag matching */
struct sd_cq *tm_cq(const struct sd_qp *qp);
/* a WQE of opcode 0x28; returns the syndrome */
uint8_t tm_command(struct rcq *q, uint16_t idx, const uint8_t *at, const uint8_t *end);
/*
 * The first piece of a SEND: where it goes. 0, or why not, as rx_take() and: RX_SRC the sender's
 * memory, RX_KEY the tagged buffer's. The other functions are about this message until one of the
 * last three has been called
 */
int tm_begin(struct rcq *q, const struct frame *f, const struct iovec *src, unsigned ns);
/*
 * All of a message that no tag took is in q->stage, and goes to the WQEs of a striding queue: 0,
 * RX_NONE, RX_BAD, RX_KEY, RX_LONG
 */
bool tm_strides(const struct rcq *q);           /* is it such a message? */
int tm_scatter(struct rcq *q, const struct frame *f, uint8_t opcode);
void tm_taken(struct rcq *q);                   /* a piece was copied: a match stands, an unexpected message counts */
bool tm_inline(const struct rcq *q, uint64_t bytes); /* may so many go to the CQE? */
/* data: what goes to the CQE, or NULL */
void tm_done(struct rcq *q, const struct frame *f, uint8_t opcode, const uint8_t *data);
void tm_error(struct rcq *q, uint8_t synd, uint8_t vendor);
void tm_flush(struct rcq *q);                   /* the QP stops: rendezvous as well */
/* The requester's side */
bool tm_pending(const struct rcq *q);
void tm_request(struct rcq *q, struct op *op);  /* the next request of those pending, into op and body */
void tm_launched(struct rndv *j, bool yes);     /* or sent back to wait */
void tm_answered(struct rcq *q, struct rndv *j);

/* ---- ud.c ---- */
/* the address vector, a DCI's as well; returns the syndrome */
uint8_t ud_decode(struct rcq *q, const uint8_t **at, const uint8_t *end);
/* false: no room. stop: a message to itself has failed the QP */
bool ud_send(struct rcq *q, struct op *op, uint8_t *synd, bool *stop);
void ud_frame(const struct frame *f, const uint8_t *payload);

/* ---- raw.c ---- */
uint8_t raw_decode(struct rcq *q, struct op *op, const uint8_t *at, const uint8_t *end); /* returns the syndrome */
bool raw_send(struct rcq *q, struct op *op, uint8_t *synd); /* false: no room */
void raw_frame(const struct frame *f, const uint8_t *payload);

/* ---- rxraw.c ---- */
void rxraw_receive(struct sd_qp *qp, const struct raw_hit *hit, const void *packet);

/* ---- window.c ---- */
/* returns the syndrome */
uint8_t window_umr(struct rcq *q, const struct mlx5_wqe_ctrl_seg *c, const uint8_t *at, const uint8_t *end);
bool window_invalid(struct sd_qp *qp, uint32_t key); /* may a SEND with invalidate not name this key? */

/* ---- umr.c ---- */
/* of a key that commands made; the same arguments and answer */
uint8_t umr_fill(struct rcq *q, struct sd_mr *mr, const uint8_t *at, const uint8_t *end);
bool umr_invalid(struct sd_qp *qp, uint32_t key); /* as window_invalid() */

/* ---- sig.c ---- */
bool sig_parse(struct sd_pd *pd, const uint8_t *bsf, struct sd_sig *to); /* false: to is unchanged */
uint8_t sig_set_psv(struct rcq *q, const uint8_t *at, const uint8_t *end); /* returns the syndrome */
bool sig_in(const struct sd_qp *qp, const struct seglist *l, bool remote); /* is there a key with signatures? */
bool sig_wire(const struct sd_qp *qp, const struct seglist *l, bool remote, uint64_t *total);
uint8_t *sig_stage(struct rcq *q, uint64_t len); /* q->stage of so many bytes, or NULL */
/* What a READ of the peer's reads, good until the next call; NULL: it may not */
const uint8_t *sig_read(struct rcq *q, const struct seglist *l);
/* MEM_OK, MEM_SRC, MEM_DST. remote: the list is one entry of a remote access */
int sig_gather(struct rcq *q, const struct seglist *l, bool remote, uint8_t *to, uint64_t len);
int sig_scatter(struct rcq *q, const struct seglist *l, bool remote, uint8_t *from, uint64_t len);
/* ---- sync.c ---- */
enum { SYNC_WAIT = 0x0f, SYNC_SEND_EN = 0x17, SYNC_DUMP = 0x23 }; /* mlx5dv.h does not have them */
bool sync_is(uint8_t opcode);           /* those and MMO */
/* carries it out: the syndrome, or -1: it must wait */
int sync_run(struct rcq *q, uint8_t opcode, unsigned opmod, const uint8_t *at, const uint8_t *end);

/* ---- wire.c ---- */
int wire_join(void);                    /* without sd_lock */
uint64_t wire_instance(unsigned slot);  /* the number of the process that holds the slot now; 0: none does */
uint64_t wire_peer(unsigned slot);      /* the same, without asking the kernel where there is a connection */
unsigned wire_others(uint8_t *slots);   /* other processes on the fabric: SD_MAX_SLOTS at most */
bool wire_room(unsigned slot);          /* may payload be queued? */
/* 0, -EPIPE: that process is gone, -EAGAIN: not now, -EFAULT: the payload's memory */
int wire_send(unsigned slot, uint64_t inst, struct frame *f, const struct iovec *v, unsigned n);
bool wire_poll(void);
bool wire_flush(void);
/* without sd_lock; ends early when something arrives or wire_wake() was called */
void wire_sleep(uint64_t ns);
void wire_wake(void);
void wire_check(void);                  /* asks whether the processes talked to are still alive */
void eng_frame(unsigned slot, uint64_t inst, const struct frame *f, const uint8_t *payload);
void eng_peer_dead(unsigned slot, uint64_t inst);

/* ---- fault.c ---- */
struct fault_act {
	bool drop, dup, corrupt;
	bool down, last;                /* the port is down; it falls once this message has left: fault_fall() */
	uint32_t delay_us;
	uint8_t syndrome;               /* the requester's error CQE has it; 0: none */
};
/*
 * The requester asks once for each try of a message, before its first byte goes out: a retry is the
 * next message of the count
 */
struct fault_act fault_message(unsigned dev, uint64_t len);
void fault_fall(unsigned dev);          /* the port goes down */
bool fault_silent(void);                /* the device has fallen silent */
bool fault_deaf(unsigned dev);          /* it has, or the port is down: requests are answered RP_UNREACH */

/* ---- trap.c ---- */
int trap_start(void);                   /* 0 or -errno, with a message */
bool eng_manual(void);                  /* the program called softdev_manual(1) */
/* the program wrote these to the page */
void eng_trapped(struct sd_uar *uar, unsigned off, const uint8_t *bytes, unsigned len);

#endif
