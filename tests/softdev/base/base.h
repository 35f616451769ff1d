/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base.h: the software device from inside: what all of its rooms share. Each room is a folder, has
 * a header of its name, and uses only the rooms before it:
 *
 *   base      objects and their tables, event channels, identity of the devices
 *   engine    what the device does by itself: doorbells, requester, responder, CQEs, fabric, faults
 *   firmware  what it is told: device commands (DEVX), and the objects that they and verbs share
 *   kernel    the commands of libibverbs and libmlx5: decode, check, answer
 *   cm        the connection manager, for librdmacm
 *   host      libc calls of programs: paths, opens, ioctls; who hears of what happens below
 *
 * A process has SOFTDEV_DEVICES devices of SOFTDEV_PORTS ports each. They differ in name and address
 * and share everything else: tables, numbers, engine. "dev" is a device in the rooms that know its
 * file; everywhere else it is a port, counted over all devices. sd_lock guards every object. The
 * engine thread, where there is one, takes it for a bounded batch of work. The device reaches the
 * program's memory (rings, records, MRs) through the program's own pointers and trusts nothing in
 * it: a length, index or key from a ring is read once, and checked before use.
 */
#ifndef SOFTDEV_BASE_H
#define SOFTDEV_BASE_H

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

#define SD_MAX_FD 65536
#define SD_MAX_CQ 65536u
#define SD_MAX_SRQ 65536u
#define SD_MAX_WQ 65536u
#define SD_MAX_IND_TBL 4096u
#define SD_MAX_IND_TBL_SIZE 512u
#define SD_MAX_TIR 65536u
#define SD_MAX_MR 65536u
#define SD_MAX_UAR 65536u
#define SD_MAX_PD 65536u
#define SD_MAX_UMEM 65536u
#define SD_MAX_UCTX 4096u
#define SD_GIDS 16                /* entries of the GID table; most are empty */
#define SD_COMP_VECTORS 4
#define SD_MAX_CQ_COUNT 0xffff    /* moderation: CQEs, and microseconds */
#define SD_MAX_CQ_PERIOD 0xfff
#define SD_MAX_DM (128u << 10)     /* bytes of device memory */
#define SD_MAX_SGE 30
#define SD_MAX_RQ_DESC 512
/* Striding WQs: log2 of a stride's bytes, of a buffer's strides */
#define SD_MIN_LOG_STRIDE 6u
#define SD_MAX_LOG_STRIDE 13u
#define SD_MIN_LOG_STRIDES 3u
#define SD_MAX_LOG_STRIDES 16u
#define SD_CMD_FD_SIZE (1ll << 32)
#define SD_UAR_FIRST_PAGE 0x10000 /* doorbell page of page id n: page SD_UAR_FIRST_PAGE + n of the command fd */

#define sd_container(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

/* Per-process state: reset to its initial value in a child of fork() */
#define SD_OWN __attribute__((section("sd_own")))

extern pthread_mutex_t sd_lock;
extern pid_t sd_self; /* Cached: getpid() costs as much as a short copy */
extern unsigned sd_slot; /* of this process on the fabric, from 1 on; wire.c, and 1 when stepped */

enum sd_fd_kind {
	SD_FD_NONE,
	SD_FD_CMD,
	SD_FD_CHANNEL,
	SD_FD_CM,                 /* the connection manager's */
	SD_FD_DEVX,               /* outcomes of asynchronous queries, or events: devxfd.c */
	SD_FD_ORPHAN,             /* inherited by fork(): the child has no device for it */
};

struct sd_ctx {
	int fd;                   /* the device's own, of the file that the program has */
	unsigned fds;             /* the program's: the one that it opened, and what it got from that by dup() */
	dev_t st_dev;
	ino_t st_ino;
	unsigned dev;             /* which device it was opened for */
	bool closing;
	bool told;                /* of the port that has just gone down */
	bool ready;               /* GET_CONTEXT was answered */
	uint32_t uid;             /* of device commands; 0: none were asked for */
	uint64_t *dm;             /* pages taken of the device memory, one bit each */
	struct sd_channel *async;
};

/*
 * A queue of events that the program reads from fd. Completion channels and asynchronous event
 * files are the same thing
 */
struct sd_channel {
	int fd;                   /* the program's end; -1 once it closed it */
	int wfd, rfd;             /* the device's ends; rfd takes back events of an object that goes away */
	size_t record;            /* bytes of one event */
	int refs;
};

/* Numbers are used in turn, so that one that has just died does not come back at once */
struct sd_numbers {
	void **at;
	uint32_t max, first, next;
};

/* What is in a list, as its first member */
struct sd_entry {
	struct sd_entry *next;
};

struct sd_devx_obj;               /* what a command made; firmware.h */

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
	struct sd_entry entry;
	uint32_t page_id;
	struct sd_ctx *ctx;
	int refs;                 /* its handle, QPs and CQs */
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

#define SD_MAX_ZIP 64u            /* CQEs of a block */
enum sd_compression { SD_PLAIN, SD_BASIC, SD_ENHANCED };
/* As the CQ context numbers them; the last is the extension's */
enum sd_mini_format { SD_MINI_HASH, SD_MINI_CSUM, SD_MINI_CSUM_STRIDX = 3, SD_MINI_L34H_STRIDX };

struct sd_cq {
	struct sd_entry entry;
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
	struct sd_entry entry;
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

/* Multicast groups of a QP */
struct sd_mcast {
	uint8_t gid[16];
	uint16_t lid;
	struct sd_mcast *next;
};

/* In which order a responder may take what comes: as it was sent, reads and writes in any, sends too */
enum sd_ordering { SD_IN_ORDER, SD_OOO_RW, SD_OOO_ALL };

struct sd_qp {
	struct sd_entry entry;
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
	bool violation_armed;     /* DCT: an event tells of the next */
	struct sd_devx_obj *devx; /* NULL: a verbs object */
	struct sd_mcast *groups;
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

/* XRC domains, transport domains and their like are numbers with a count of their users */
#define SD_MAX_DOMAIN 4096u
enum { SD_XRC_DOMAIN, SD_TRANSPORT_DOMAIN, SD_PSV, SD_COUNTERS, SD_DOMAINS };
struct sd_domain {
	struct sd_ctx *ctx;
	unsigned kind;
	uint32_t number;
	struct sd_pd *pd;         /* of those that have one */
	struct sd_psv psv;
	struct sd_counters counters;
	int refs;
};
extern struct sd_numbers sd_domains[SD_DOMAINS];

/* Why a packet comes to a queue: the rule's tag; the hash that chose the queue, and what it is of */
struct raw_hit {
	uint32_t tag, hash;
	uint8_t hash_type;
};

/*
 * What those above want to hear of: the only calls that lead up. host/start.c says who is meant. As
 * all that follows, with sd_lock held unless said
 */
struct sd_hooks {
	void (*cq_event)(struct sd_cq *cq);      /* one completion event on the CQ's channel */
	void (*async_cq)(struct sd_cq *cq, enum ibv_event_type type);
	void (*async_qp)(struct sd_qp *qp, enum ibv_event_type type);
	void (*async_srq)(struct sd_srq *srq, enum ibv_event_type type);
	void (*port_down)(unsigned dev);         /* to the programs that have it open */
	/*
	 * Something happened to an object: to all who subscribed. type is the EQE's
	 * (MLX5_EVENT_TYPE_*: 0x13 last WQE reached and so on); the syndrome is that of a CQ error.
	 * Nothing for NULL, which is what a verbs object has
	 */
	void (*devx_event)(struct sd_devx_obj *o, uint16_t type, uint8_t syndrome);
	/* To whom the flow rules of this process's devices send a packet */
	void (*flow_deliver)(const uint8_t *p, uint32_t len,
			     void (*to)(struct sd_qp *qp, const struct raw_hit *hit, const void *arg), const void *arg);
	/* The connection manager: from another process; at each round of the engine */
	void (*cm_message)(unsigned slot, uint64_t inst, const void *data, size_t len);
	void (*cm_peer_dead)(unsigned slot, uint64_t inst);
	void (*cm_work)(uint64_t now);
};
extern const struct sd_hooks sd_up;

/* ---- tables.c ---- */

bool sd_mem_ok(uint64_t addr, uint64_t len, bool write); /* is it all mapped, readable and, if asked, writable? */
void sd_once(uint32_t key, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* one stderr line per key */
int sd_number_new(struct sd_numbers *n, void *obj, uint32_t *number);
void *sd_number_get(const struct sd_numbers *n, uint32_t i);

/*
 * All that return an int: 0 or a positive errno. _add gives a number, and _drop takes it back;
 * lookups return NULL when there is no such object; _next(NULL) is the first
 */
int sd_pd_new(struct sd_ctx *ctx, struct sd_pd **pd); /* without a handle */
int sd_pd_free(struct sd_pd *pd);               /* EBUSY while something is in it */
struct sd_pd *sd_pd_find(uint32_t pdn);
struct sd_psv *sd_psv_find(uint32_t number);
struct sd_counters *sd_counters(const struct sd_qp *qp); /* of the set that the QP names */
int sd_mr_add(struct sd_mr *mr, int variant);    /* a reference to the PD too; the key's low byte, or -1: the next one */
void sd_mr_drop(struct sd_mr *mr);
void sd_mr_new_key(struct sd_mr *mr, uint32_t index, bool command);
struct sd_mr *sd_mr_find(uint32_t key, bool remote); /* by its rkey or its lkey */
struct sd_mr *sd_mr_index(uint32_t key);         /* without the low byte, which a bind changes */
int sd_qp_add(struct sd_qp *qp);
void sd_qp_drop(struct sd_qp *qp);
struct sd_qp *sd_qp_find(uint32_t qpn);
struct sd_qp *sd_qp_next(struct sd_qp *qp);
int sd_cq_add(struct sd_cq *cq);
void sd_cq_drop(struct sd_cq *cq);
struct sd_cq *sd_cq_find(uint32_t cqn);
struct sd_cq *sd_cq_next(struct sd_cq *cq);
int sd_srq_add(struct sd_srq *srq);
void sd_srq_drop(struct sd_srq *srq);
struct sd_srq *sd_srq_find(uint32_t srqn);
struct sd_srq *sd_srq_next(struct sd_srq *srq);
int sd_uar_new(struct sd_ctx *ctx, struct sd_uar **made);
struct sd_uar *sd_uar_get(const struct sd_ctx *ctx, uint32_t page_id); /* with a reference */
void sd_uar_put(struct sd_uar *u);
struct sd_uar *sd_uar_next(struct sd_uar *uar);

/* ---- channel.c ---- */

void sd_fd_set(int fd, enum sd_fd_kind kind, void *ptr);
enum sd_fd_kind sd_fd_get(int fd, void **ptr);  /* needs no lock */
struct sd_channel *sd_channel_new(size_t record, int *err);
struct sd_channel *sd_channel_get(int fd, size_t record);
void sd_channel_put(struct sd_channel *ch);
void sd_channel_close(struct sd_channel *ch);
struct sd_channel *sd_channel_hold(struct sd_channel *ch);
bool sd_channel_send(struct sd_channel *ch, const void *event);
uint32_t sd_channel_take_back(struct sd_channel *ch, uint64_t element);

/* ---- port.c: the devices' identity; constant, no lock ---- */
bool sd_link_ib(void);
#define SD_MAX_DEVICES 8u
unsigned sd_devices(void);        /* how many there are: mlx5_0 and so on */
unsigned sd_ports(void);          /* of each: 1 or 2 */
unsigned sd_all_ports(void);
bool sd_port_ok(uint32_t port_num);
unsigned sd_port_of(const struct sd_ctx *ctx, uint32_t port_num);
void sd_node_guid(unsigned dev, uint8_t guid[8]);
void sd_sys_image_guid(uint8_t guid[8]); /* one adapter, so the same for all */
unsigned sd_pkeys(void);
/* The device, of whatever process, with that IP address, written as a GID; or SD_NO_DEV */
unsigned sd_ip_dev(const uint8_t ip[16]);
/* RoCE: the MAC address of a GID, or ETIMEDOUT as without an answer */
int sd_resolve(const uint8_t gid[16], uint8_t mac[6]);
#define SD_FW_VER ((20ull << 32) | (31ull << 16) | 1014)
#define SD_PART_ID 4123           /* ConnectX-6: PCI device id 0x101b */
#define SD_CDEV_MAJOR 231
#define SD_CDEV_MINOR 192         /* of the first */
#define SD_CDEV_CM SD_MAX_DEVICES /* among them: the connection manager */
/* Bytes of each packet that must be inline: 0, or 18 with SOFTDEV_INLINE=l2 */
unsigned sd_min_inline(void);
/* Is this an address of that device's port? gid NULL: by lid alone (InfiniBand) */
bool sd_port_is(unsigned dev, const uint8_t *gid, uint16_t lid);
/* The device with that address, which is the same in all processes of the fabric; or SD_NO_DEV */
#define SD_NO_DEV 0xffu
unsigned sd_port_at(const uint8_t *gid, uint16_t lid);
uint16_t sd_lid(unsigned dev);
/* 0; ENODATA: the entry is empty; EINVAL */
int sd_gid(unsigned dev, unsigned index, union ibv_gid *gid, unsigned *type);
void sd_port_mac(unsigned dev, uint8_t mac[6]);

/*
 * The directory where the processes of one fabric meet: $SOFTDEV_FABRIC or the user's own. Made if
 * it is missing; of mode 0700 and ours. NULL with errno set when that cannot be. Needs no lock
 */
const char *sd_fabric_dir(void);
int sd_own_dir(const char *path);                 /* makes it if need be: 0 or a positive errno */

#endif
