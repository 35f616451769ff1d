/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fabric.h: a libfabric provider on inlay's headers: its objects, and the functions that its files
 * share. The README lists the files.
 *
 * A domain and all its objects belong to one thread at a time: the application's, or, with
 * FI_THREAD_SAFE, the one that holds the domain's mutex.
 */
#ifndef FABRIC_H_
#define FABRIC_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <infiniband/mlx5dv.h>
#include <inlay/connect.h>
#include <inlay/match.h>
#include <inlay/mmap/cache.h>
#include <inlay/mmap/monitor.h>
#include <inlay/queue.h>
#include <inlay/queue/masked.h>
#include <inlay/verbs.h>

#define APART __attribute__((noinline, cold)) /* the rare cases of a function called often */
#define CALLED __attribute__((noinline))      /* not rare, but too long for its callers */

#define IOV_LIMIT 4u              /* pieces of memory in one operation */
#define SOURCE_BITS 16u           /* of the 64 that are matched, when receives name their sender, */
#define LEAST_SOURCE_BITS 8u      /* and if the application wants more tag bits than they leave */
#define MAX_MESSAGE (16ull << 30)
#define LARGEST_PIECE (1u << 30)
#define CQ_ENTRIES 1024u          /* of a completion queue at first; it grows */
#define BATCH 32u                 /* completions of the device's that progress takes at a time, */
#define BATCH_ENTRIES (2 * BATCH) /* and those of the application's that they may make */

/* ---- Settings: X(type, name, default, minimum, maximum, description), see info.c ---- */

#define SETTINGS(X) \
	X(size_t, eager, 8192, 256, 1 << 16, "bytes: longer messages are read by the receiver") \
	X(size_t, piece, 1 << 20, 4096, 1 << 30, "bytes of a long message that are read at a time") \
	X(int, window, 4, 1, 16, "pieces of a long message under way at a time") \
	X(int, receives, 1024, 16, 32767, "entries of the shared receive queue") \
	X(int, tag_offload, 0, 0, 16383, "long tagged receives on the device's list, if it matches tags; 0: none") \
	X(int, peers, 1000, 1, 16384, "peers that may be sent to at a time, and strangers that may connect") \
	X(int, port, 1, 1, 255, "port of the device") \
	X(int, gid_index, -1, -1, 255, "GID of the port; -1: the best") \
	X(int, sl, 0, 0, 15, "service level, on RoCE the priority") \
	X(int, traffic_class, 0, 0, 255, "traffic class") \
	X(int, timeout, 18, 1, 31, "4.096 us << timeout for an acknowledgement, eight times") \
	X(int, connect_ms, 600000, 10, 1 << 30, "milliseconds for a peer to answer hellos") \
	X(int, keepalive_ms, 10000, 0, 1 << 30, "milliseconds between probes of a peer; 0: none") \
	X(int, rails, 1, 1, 2, "devices of a domain: its own, and the next one") \
	X(int, cache_regions, 4096, 8, 1 << 20, "registrations that are kept") \
	X(int, buffers, 4096, 1, 1 << 20, "MiB of an endpoint's buffers, and of the small ones for unexpected messages")

#define MEMBER(type, name, ...) type name;
extern struct settings {
	SETTINGS(MEMBER)
	bool dc;                  /* FI_INLAY_TRANSPORT */
} settings;
extern struct fi_provider provider;

#define WARN(subsystem, ...) FI_WARN(&provider, subsystem, __VA_ARGS__)

/* ---- The wire ---- */

/*
 * The header of each message on a connection. Then come 8 bytes of the application's data if it has
 * FLAG_DATA, 8 of the sender's handle if FLAG_HANDLE, and the payload or the segments.
 */
struct wire {
	uint8_t op;               /* IBV_TMH_NO_TAG: devices that match tags leave it alone */
	uint8_t flags;            /* and the kind */
	uint16_t segments;
	uint64_t tag;             /* in FIN the handle */
} __attribute__((packed));

enum wire_kind {
	WIRE_EAGER = 0x00,        /* the payload is here */
	WIRE_RENDEZVOUS = 0x20,   /* the payload is to be read from the segments */
	WIRE_FIN = 0x40,          /* the message that the handle names was read, or has arrived */
	WIRE_WRITTEN = 0x60,      /* follows a write: data for the CQ */
	WIRE_ATOMIC = 0x80,       /* to be carried out; see atomic.c */
	WIRE_ANSWER = 0xa0,       /* it was */
	WIRE_STAND_IN = 0xc0,     /* for the message that came before it; see offload.c */
	WIRE_RAIL = 0xe0,         /* the number of the message that follows, and whose numbers; see rail.c */
	WIRE_KINDS = 0xe0
};

enum wire_flags {
	FLAG_TAGGED = 1,
	FLAG_DATA = 2,
	FLAG_HANDLE = 4,
	FLAG_AHEAD = 8,           /* of a stand-in, to a device that matches tags */
	FLAG_ANSWER = 8,          /* WIRE_ATOMIC: is asked for */
	FLAG_FETCH = 16,          /* ... with old values */
	FLAG_END = 8,             /* WIRE_RAIL, alone: end the other connection, too, and say so: */
	FLAG_ENDED = 16
};

/* Memory of the sender */
struct segment {
	uint64_t addr;
	uint64_t len;
	uint32_t rkey[2];         /* of each device of its domain */
} __attribute__((packed));

INLAY_STATIC_ASSERT(sizeof(struct wire) == 12 && sizeof(struct segment) == 24, "on the wire");

INLAY_ALWAYS uint32_t header_bytes(uint8_t flags)
{
	return (uint32_t)sizeof(struct wire) + (flags & FLAG_DATA ? 8 : 0) + (flags & FLAG_HANDLE ? 8 : 0);
}

#define WIRE_MAX (sizeof(struct wire) + 16) /* with both extras */
#define INLINE_BYTES 188u         /* of a message in a WQE: four WQEBBs */
#define SMALL_MESSAGE 192u        /* longer ones keep the bounce buffer that they came in */
#define HELLO_SIZE 168u           /* of connect.c's datagrams */
#define PEER_RING 128u            /* WQEBBs of a connection */
#define QUEUED 64u                /* messages to a peer that may wait for a connection */
#define INITIATORS 8u             /* that all peers share, if settings.dc */

/* An incoming message, its lengths checked against the bytes received. */
struct message {
	uint8_t kind, flags;
	uint16_t segments;
	uint64_t tag, data, handle;
	const uint8_t *payload;   /* or the segments */
	size_t len;               /* of the whole message */
	uint32_t attempt;         /* its connection: the peer's attempt when it came */
};

/* An endpoint's address: its UD queue pair, and which endpoint on a queue pair of that number. */
struct name {
	uint8_t record[INLAY_CONNECT_SIZE];
	uint64_t incarnation;     /* when it was made, in nanoseconds */
};

INLAY_STATIC_ASSERT(sizeof(struct name) == 48, "on the wire");

/* ---- Fabric, domain, address vector ---- */

#define MR_BUCKETS 64u

struct fabric {
	struct fid_fabric fid;
	_Atomic uint32_t users;   /* other objects: while there are any, it cannot be closed */
};

/* The endpoints bound to an object. Reading a CQ or a counter drives its endpoints. */
struct endpoints {
	struct endpoint **list;
	uint32_t count;
};

struct domain {
	struct fid_domain fid;
	struct fabric *fabric;
	pthread_mutex_t *lock;    /* FI_THREAD_SAFE: &mutex; else NULL */
	pthread_mutex_t mutex;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct inlay_uar uar;     /* queue pairs are made in its PD */
	struct inlay_atomics atomics;
	uint8_t able;             /* enum able */
	struct domain *second;    /* the other device, without a fid; NULL: one device */
	_Atomic uint32_t users;
	struct inlay_cache cache;
	void *cache_memory;
	struct inlay_cache *caches[1];
	struct inlay_monitor monitor;
	pthread_t watcher;
	struct domain *next_watched; /* with an open monitor */
	struct mr *mrs[MR_BUCKETS]; /* the application's, by key */
	enum { WATCH_UNTRIED, WATCH_ON, WATCH_OFF } watch;
};

#define BUCKETS 4096u     /* of names, and of peers: chains are short for some ten thousand */

struct av {
	struct fid_av fid;
	struct domain *domain;
	struct entry {
		struct name name; /* incarnation 0: it was removed */
		uint32_t next;    /* in its bucket: number + 1, or 0 */
	} *entries;
	uint32_t buckets[BUCKETS]; /* the first of each */
	size_t count, room;
	struct endpoints endpoints;
};

/* ---- Completion queues and counters ---- */

/* An entry of our own array. Progress may also fill the application's array, which holds only e. */
struct cq_entry {
	struct fi_cq_tagged_entry e;
	fi_addr_t source;
	uint64_t reserved;
};

struct cq_error {
	struct fi_cq_err_entry e;
	struct cq_error *next;
};

struct cq {
	struct fid_cq fid;
	struct domain *domain;
	uint8_t *first, *last;    /* the entries that were not read */
	uint8_t *end;             /* of the array that last is in: own, or direct */
	uint8_t *direct;          /* the application's array, while a read fills it; or NULL */
	uint8_t *own;
	size_t size;              /* bytes of own */
	size_t entry_size;        /* of the application's format */
	size_t given;             /* entries in the application's array after such a read */
	bool drained;             /* the last read was told all that there was */
	struct endpoint *front;   /* whose front receive waits, or NULL */
	struct cq_error *error, **last_error;
	struct fi_cq_err_entry lost; /* for which there was no memory */
	struct endpoints endpoints;
	int epoll, wake;          /* descriptors that are waited for; -1: it cannot be waited for */
};

/*
 * Counts the sends, receives, reads or writes of the endpoints that it is bound to, including those
 * that make no entry in a completion queue. At the sending side a flag of the completion asks for
 * the count, so that endpoints without counters pay nothing.
 */
struct counter {
	struct fid_cntr fid;
	struct domain *domain;
	uint64_t values[2];       /* good, bad */
	struct endpoints endpoints; /* each as often as it is bound */
};

/* ---- Operations ---- */

struct mr;

enum op_kind {
	OP_FREE,
	OP_RECV,                  /* posted */
	OP_MULTI,                 /* posted, of several messages */
	OP_SPENT,                 /* one without room, into which messages still come */
	OP_READ,                  /* reads a large message */
	OP_FIN,                   /* waits for room to say FIN */
	OP_LATE,                  /* endpoint.late */
	OP_SECOND,                /* endpoint.looks */
	OP_SEND,                  /* waits for FIN. It and those below are operations to a peer */
	OP_RMA,                   /* a read or a write, by pieces, with OP_READ's fields */
	OP_NATIVE,                /* an atomic operation of the device's, step by step */
	OP_ATOMIC,                /* waits for WIRE_ANSWER */
	OP_BOUNCED,               /* a message in bounce, until it is acknowledged; rail.c */
	OP_MESSAGE                /* atomic.c's: waits for room, then to be acknowledged */
};

/* How the device executes an atomic operation: once; the last one is repeated until it swaps. */
enum atomic_step { STEP_ADD, STEP_XOR, STEP_BITS /* of a mask */, STEP_COMPARE /* and swap */ };

/* A device's atomics, for a hello. ABLE_8, ABLE_4: only the device executes types of that size. */
enum able { ABLE_8 = 1, ABLE_4 = 2, ABLE_MASKED_8 = 4 };

/* An operation of several steps. On the wire a handle names it: its index and generation. */
struct op {
	uint8_t kind;
	uint8_t iovs;
	bool told;                /* receive: its success makes a completion, */
	bool plain;               /* and is not counted; tagged, of one buffer */
	bool writes;              /* OP_RMA: a write. told: data follow; plain: a byte is read back */
	uint8_t step;             /* OP_NATIVE: enum atomic_step */
	uint32_t index;
	uint64_t flags;           /* of its completion */
	void *context;
	uint8_t *buf;             /* iov[0], if there is one */
	size_t len;               /* all of iov; of a multi-receive what is left */
	struct op *next;          /* posted receives, waiting reads, free ones */
	struct mr *mr[IOV_LIMIT]; /* receive: the application's registrations of iov, or NULL */
	struct peer *peer;        /* source or destination */

	uint32_t generation;      /* how often it was used */
	uint32_t pieces;          /* reads under way */
	uint32_t attempt;         /* rendezvous, FIN: as in struct message */
	uint8_t segments;
	uint8_t regions;          /* held */
	size_t total, want, asked, end; /* rendezvous: bytes of the message, that fit, that were asked for; asked at the end */
	int err;
	uint32_t refs;            /* multi-receive: messages that are coming into it */
	struct op *parent;        /* multi-receive that this is a part of; NULL: none */
	uint64_t tag, data;       /* of the message */
	uint64_t remote_handle;   /* OP_BOUNCED: the message's number */
	size_t min;               /* multi-receive: the least that must be left */
	struct buf *bounce;       /* atomics: struct request; a message; RMA: what is read back */
	struct iovec iov[IOV_LIMIT];
	struct segment segment[IOV_LIMIT];
	struct inlay_cache_region *region[IOV_LIMIT];
};

#define NO_ENTRY UINT32_MAX

/* A bounce buffer, or a small one that holds an unexpected message. */
struct buf {
	struct buf *next;
	struct peer *peer;        /* kept message: its sender */
	void *context;            /* SLOT_BUF: for its completion */
	uint32_t flags;
	uint32_t len;             /* bytes of data */
	uint32_t lkey;
	uint32_t size;            /* room in data */
	struct inlay_cache_region *region; /* its memory's, if that is registered */
	uint32_t attempt;         /* kept message: as in struct message */
	uint32_t entry;           /* late message: whose buffer this is in the shared receive queue, or NO_ENTRY */
	uint8_t data[] __attribute__((aligned(64)));
};

struct pool {
	struct buf *free;
	size_t size;              /* room of each */
	struct chunk *chunks;
	uint32_t count;           /* of them; at most settings.buffers */
	struct domain *domain;    /* registered there; NULL: not registered */
};

/* ---- Peers ---- */

enum slot_kind {
	SLOT_NONE,
	SLOT_CONTEXT,             /* what: an application's context */
	SLOT_BUF,                 /* what: the buffer of a message */
	SLOT_OP                   /* what: the operation that this is a step of */
};

/* In the flags of a completion. */
#define DONE_ERROR (1u << 31)     /* only a failure is told */
#define DONE_COUNT (1u << 30)     /* a counter counts it; the others only with it: */
#define DONE_QUIET (1u << 29)     /* only a failure is told */

/* What to do when the WQE of the same index completes */
struct slot {
	void *what;
	uint32_t kind;
	uint32_t flags;           /* SLOT_CONTEXT: of the completion; 0: none */
};

enum peer_state {
	PEER_IDLE,                /* known, and not connected */
	PEER_CONNECTING,
	PEER_READY,               /* both sides are in RTS, and each knows it */
	PEER_FAILING,             /* queue pair in ERR: its completions are coming in */
	PEER_FAILED
};

struct peer {
	struct inlay_sq sq;
	struct slot *slots;       /* NULL: nothing is posted, and peer_begin comes first */
	struct peer **holder;     /* that has it; NULL */
	uint8_t state;
	uint8_t able;             /* its enum able */
	bool seen;                /* our queue pair is in RTS */
	bool drained;             /* its queue pair takes no more receives */
	bool flushed;             /* FAILING: the last WQE is posted */
	bool forgotten;           /* FAILING: to be IDLE after it */
	bool listed;              /* the address vector has it, or had it once; else it is a stranger */
	bool named;               /* while strangers are forgotten: memory names it */
	bool guest;               /* a stranger that is CONNECTING, READY or FAILING */
	bool calling;             /* its first hello was said just now */
	bool ending, ended;       /* FAILED: the peer was told, its queue pair is in ERR, too; see rail.c */
	uint8_t syndrome;         /* why it failed, if the device knows */
	uint16_t err;             /* why it failed */
	fi_addr_t addr;           /* FI_ADDR_NOTAVAIL: not in the address vector */
	uint64_t source;          /* its bits in what is matched */
	struct endpoint *ep;
	struct peer *next;        /* of all peers of the endpoint */
	struct peer *beside;      /* in its bucket */
	struct ibv_qp *qp;
	struct name name;
	struct inlay_connect_record place, here; /* what the name says; our queue pair */
	struct inlay_av av;
	uint32_t attempt, their_attempt; /* one more for each connection */
	uint64_t since, hello_at, probe_at; /* milliseconds */
	uint32_t tries;
	uint32_t fence;           /* its send queue's index after the last probe for FI_FENCE */
	bool by_nic;              /* its device matches tags: */
	uint64_t tag_bits, tag_source; /* those that it matches, and those that say that we are the sender */
	struct buf *content;      /* came ahead of its stand-in */

	/* See rail.c. Below the first two lines, only with settings.rails */
	uint64_t sent, resend;    /* number of the next message: a new one, one to be posted */
	struct op *queued, *last_queued; /* those whose turn has not come, in order */
	struct peer *other;       /* over the other device; NULL: not known yet */
	struct peer *claimed_by;  /* the peer over the first device that named this one; NULL: none, or linked */
	struct name beyond;       /* its endpoint on the other device, as its first hello named it */
	uint64_t received;        /* number of the next message to come */
	struct buf *early;        /* those whose turn has not come, in order */

	/* settings.dc: qp and sq are those of a borrowed initiator, or NULL and empty */
	struct inlay_av target;
	uint32_t index;           /* in by_index */
	uint32_t number_be;       /* what it knows us by */
} __attribute__((aligned(64)));

/* ---- Endpoints ---- */

enum { COUNT_SEND, COUNT_RECV, COUNT_READ, COUNT_WRITE, COUNTERS };

struct endpoint {
	struct fid_ep fid;
	pthread_mutex_t *lock;    /* the domain's */
	struct peer **ready;      /* by fi_addr_t: the peer, if it can be sent to */
	size_t addrs;             /* in ready and by_addr */
	struct cq *tx_cq, *rx_cq;
	struct counter *counters[COUNTERS];
	uint64_t tx_flags, rx_flags; /* of calls that take no flags */
	uint32_t tx_done;         /* completion of such a send */
	size_t inject_addrs;      /* as addrs; 0 if those without a completion are counted */
	size_t short_addrs;       /* as addrs; 0 if such a send asks for more than the short way does */
	size_t recv_addrs;        /* as addrs; 0 if not rx_plain */
	uint64_t tag_bits;        /* that count */
	uint32_t source_bits;     /* the others */
	struct op *free_ops;
	struct op *front;         /* if rx_cq->front is this: a plain receive that is not in the table yet, which is empty, */
	uint64_t front_key;       /* and what is matched */
	uint64_t ignored;         /* bits that all receives have ignored; all ones before the first */
	struct buf *spare;        /* for an entry of the shared receive queue that gives its buffer away */
	bool tx_selective, rx_selective;
	bool rx_plain;            /* receives of calls without flags are told, not counted, and need no lock */
	bool directed;            /* receives name their sender */
	bool enabled;
	uint8_t short_cqe;        /* op_own of a short message's completion, but for 2 bits; 0xff if the device matches tags */
	struct op *recv_head, **recv_tail; /* untagged receives, oldest first */
	struct buf *kept_head, **kept_tail; /* untagged messages, oldest first */
	struct pool bounce, small;

	struct peer anybody;      /* adds no bits to what is matched, and never fails */
	struct inlay_match match __attribute__((aligned(64)));
	struct inlay_cq cq __attribute__((aligned(64)));
	struct inlay_srq srq __attribute__((aligned(64)));
	struct inlay_sq ud __attribute__((aligned(64)));
	struct inlay_qpn_table qpns;

	struct domain *domain;
	struct endpoint *first, *second; /* this endpoint's halves, one per device; second: NULL with one device */
	struct op looks;          /* always in the waiting list, if there is a second: its progress */
	struct av *av;
	struct ibv_cq *ibcq;
	struct ibv_comp_channel *channel; /* if its completions can be waited for */
	struct ibv_srq *ibsrq, *rc_srq; /* of the datagrams, and of the connections: the same, or the offload's */
	struct offload *offload;  /* NULL: the device matches nothing */
	struct ibv_qp *ud_qp;
	struct peer **holders;    /* peers with slots, room in the CQ, and over DC an initiator; NULL: nobody's yet */
	uint32_t turn;            /* which of them comes next */
	struct ibv_qp *dct;       /* settings.dc. Of that are also: */
	struct peer **by_index;
	uint32_t peer_count;
	struct inlay_connect_attr attr;
	struct inlay_connect_record here;
	struct name name;
	void *match_memory;
	uint32_t match_entries;
	struct peer **by_addr;    /* by fi_addr_t, if it was asked for */
	struct peer *peers, *unused; /* unused: strangers that were forgotten */
	struct peer *looking;     /* connect_step's next; NULL: the first */
	uint32_t until_sweep;     /* strangers that may come before */
	uint64_t seed;            /* secret */
	uint64_t next_source;
	uint32_t unsettled;       /* peers that are CONNECTING or FAILING */
	uint32_t guests, calls;   /* such peers */
	uint32_t polls, pause;    /* of progress; between two looks at the time */
	uint64_t now;             /* milliseconds, as of the last look */
	struct op *waiting_head, **waiting_tail; /* operations that found no room */
	struct buf *late_head, **late_tail; /* messages that found no memory, oldest first */
	struct op late;           /* waits while there are some; told: it does */
	struct op **chunks;       /* of operations */
	uint32_t chunk_count;
	size_t min_multi_recv;
	struct peer *buckets[BUCKETS]; /* of peers, by place */
};

/* libfabric's signatures have more than a provider needs. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "stubs.h"

/* ---- Objects of the application ---- */

extern struct fi_ops_atomic atomic_ops;
extern struct fi_ops_mr mr_ops;
extern struct fi_ops_msg msg_ops;
extern struct fi_ops_rma rma_ops;
extern struct fi_ops_tagged tagged_ops;

int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int av_open(struct fid_domain *fid, struct fi_av_attr *attr, struct fid_av **av, void *context);
int cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
int counter_open(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);
int endpoint_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **ep, void *context);
int atomic_query(struct fid_domain *fid, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags);

/* A call of the application that is another one, with some arguments given. */
#define CALL(name, parameters, ...) static ssize_t name parameters { return __VA_ARGS__; }

#define FID_OPS(close, bind, control) {sizeof(struct fi_ops), close, bind, control, no_ops_open, NULL, NULL}

/* bind of objects that take an event queue only */
int eq_bind(struct fid *fid, struct fid *eq, uint64_t flags);

/* A queue pair in INIT, with its send queue (for `sends` WQEs of one SGE) and record. 0 or a negative errno. */
int pair_make(struct endpoint *ep, enum ibv_qp_type type, uint32_t sends, uint32_t inline_bytes, struct ibv_qp **qp,
	      struct inlay_sq *sq, struct inlay_connect_record *here, const char **why);

int endpoints_add(struct endpoints *all, struct endpoint *ep);
void endpoints_remove(struct endpoints *all, const struct endpoint *ep); /* once, or not at all */

/* Every call of the application runs between enter and leave of a domain or an endpoint. */
#define enter(object) lock((object)->lock)
#define leave(object, result) unlock((object)->lock, result)

INLAY_ALWAYS void lock(pthread_mutex_t *mutex)
{
	if (INLAY_UNLIKELY(mutex != NULL))
		pthread_mutex_lock(mutex);
}

INLAY_ALWAYS ssize_t unlock(pthread_mutex_t *mutex, ssize_t result)
{
	if (INLAY_UNLIKELY(mutex != NULL))
		pthread_mutex_unlock(mutex);
	return result;
}

void progress(struct endpoint *ep); /* what the device has completed, and what time has brought */
ssize_t progress_front(struct cq *cq, void *buf, size_t count, fi_addr_t *source); /* tagged read */

/* leave, for posts. A refused one makes progress: its caller may try again and read no CQ. */
INLAY_ALWAYS ssize_t leave_post(struct endpoint *ep, ssize_t result)
{
	if (INLAY_UNLIKELY(result == -FI_EAGAIN))
		progress(ep);
	return leave(ep, result);
}

/* ---- Memory: memory.c ---- */

int regions_init(struct domain *d);
void regions_fini(struct domain *d);

/* Follows each registration. Without a second device, all but use is 0. */
struct region_more {
	uint32_t use;             /* in memory.c */
	uint32_t lkey, rkey;      /* of the second device */
	struct ibv_mr *mr;
};

INLAY_ALWAYS struct region_more *region_more(struct inlay_cache_region *r)
{
	return (struct region_more *)(void *)(r + 1);
}

/* A registration with these rights: the given one, or one of the cache's. 0 or a negative errno. */
int region_get(struct domain *d, struct mr *given, const void *addr, size_t len, uint32_t access,
	       struct inlay_cache_region **r);

struct mr {
	struct fid_mr fid;
	struct inlay_cache_region region;
	struct region_more more;  /* follows the region, as in the cache */
	struct domain *domain;
	uint64_t access;          /* FI_READ and so on */
	struct mr *next;          /* of those in its bucket */
};
INLAY_STATIC_ASSERT(offsetof(struct mr, more) == offsetof(struct mr, region) + sizeof(struct inlay_cache_region), "region_more");

/* The memory with this key, if it holds these bytes and allows this access; NULL if not. */
struct mr *mr_find(struct domain *d, uint64_t key, uint64_t addr, size_t len, uint64_t access);

/* size: bytes in each buffer. registered: NULL: plain memory. 0 or -FI_ENOMEM. */
int pool_init(struct pool *p, size_t size, struct domain *registered);
int pool_grow(struct pool *p);
void pool_fini(struct pool *p);

/* A buffer, or NULL. */
INLAY_ALWAYS struct buf *buf_take(struct pool *p)
{
	struct buf *b;

	if (INLAY_UNLIKELY(!p->free) && pool_grow(p))
		return NULL;
	b = p->free;
	p->free = b->next;
	return b;
}

INLAY_ALWAYS void buf_give(struct pool *p, struct buf *b)
{
	b->next = p->free;
	p->free = b;
}

int ops_grow(struct endpoint *ep);
void ops_fini(struct endpoint *ep);

/* An operation without registrations, its other fields as the last use left them; or NULL. */
INLAY_ALWAYS struct op *op_take(struct endpoint *ep, uint8_t kind)
{
	struct op *op;

	if (INLAY_UNLIKELY(!ep->free_ops) && ops_grow(ep))
		return NULL;
	op = ep->free_ops;
	ep->free_ops = op->next;
	op->kind = kind;
	return op;
}

INLAY_ALWAYS void op_give(struct endpoint *ep, struct op *op)
{
	op->kind = OP_FREE;
	op->generation++;
	op->next = ep->free_ops;
	ep->free_ops = op;
}

INLAY_FN uint64_t op_handle(const struct op *op)
{
	return (uint64_t)op->generation << 32 | op->index;
}

struct op *op_of(const struct endpoint *ep, uint64_t handle); /* NULL: it is over, or never was */
struct op *op_at(const struct endpoint *ep, uint32_t n);      /* free or not; NULL after the last */
void op_let_go(struct endpoint *ep, struct op *op);           /* of its registrations */

void memory_mark(const struct endpoint *ep); /* names the peers of operations and kept messages */

/* ---- Completions: cq.c, wait.c ---- */

int cq_grow(struct cq *cq);
ssize_t cq_drive(struct cq *cq, void *buf, size_t count, fi_addr_t *source); /* polls, then reads */

/* Makes room for n further completions, n at most CQ_ENTRIES / 2. 0 or -FI_EAGAIN. */
INLAY_ALWAYS int cq_room(struct cq *cq, uint32_t n)
{
	return INLAY_UNLIKELY((size_t)(cq->end - cq->last) < n * sizeof(struct cq_entry)) ? cq_grow(cq) : 0;
}

/* The entry at cq->last has been filled. */
INLAY_ALWAYS void cq_added(struct cq *cq, void *last, fi_addr_t source)
{
	struct cq_entry *c = (struct cq_entry *)last;

	cq->last = (uint8_t *)(&c->e + 1);
	if (cq->direct)
		return;
	c->source = source;
	cq->last = (uint8_t *)(c + 1);
}

/* Adds a completion; there must be room. */
INLAY_ALWAYS void cq_add(struct cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data,
			 uint64_t tag, fi_addr_t source)
{
	struct cq_entry *c = (struct cq_entry *)(void *)cq->last;

	c->e = (struct fi_cq_tagged_entry){context, flags, len, buf, data, tag};
	cq_added(cq, c, source);
}

/* Adds an error entry and returns it, for the caller to fill in the rest. */
struct fi_cq_err_entry *cq_fail(struct cq *cq, void *context, uint64_t flags, int err, int syndrome);

int counter_bind(struct endpoint *ep, struct fid *cntr, uint64_t flags);

/*
 * The flags of an operation's completion. kind: FI_SEND, FI_READ or FI_WRITE, and further flags of
 * its entry in the tx CQ; flags: FI_COMPLETION, SILENT.
 */
uint32_t done_flags(const struct endpoint *ep, uint64_t kind, uint64_t flags);

/* A completion at the sending side, for which there is room. counter_tx: slow. done: done_flags. */
void tx_done(struct endpoint *ep, void *context, uint32_t done, int err, uint8_t syndrome);
void counter_tx(struct endpoint *ep, void *context, uint32_t done, int err, uint8_t syndrome);

int wait_open(struct cq *cq, enum fi_wait_obj kind);
void wait_close(struct cq *cq);
int wait_attach(struct endpoint *ep); /* its completion channel, if a CQ can be waited for */
int wait_control(struct fid *cq, int command, void *arg);
int wait_signal(struct fid_cq *cq);
int wait_try(struct fid_fabric *fabric, struct fid **fids, int count);
ssize_t wait_read(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *source, const void *cond, int timeout);

/* ---- Peers: av.c, peer.c, connect.c ---- */

fi_addr_t av_find(const struct av *av, const struct name *name); /* or FI_ADDR_NOTAVAIL */

/* A peer, connected or not; NULL: there is no such address, or no memory. addr: the name's, if it has one */
struct peer *peer_of(struct endpoint *ep, fi_addr_t addr);
struct peer *peer_of_name(struct endpoint *ep, const struct name *name, fi_addr_t addr);
struct peer **peer_bucket(struct endpoint *ep, const struct inlay_connect_record *place);

/* Whether its queue pair takes posts. The other side may not yet know that its own does. */
INLAY_ALWAYS bool peer_in_rts(const struct peer *p)
{
	return p->state == PEER_READY || (p->state == PEER_CONNECTING && p->seen);
}

/* The same, over either device */
INLAY_ALWAYS bool peer_open_to(const struct peer *p)
{
	return peer_in_rts(p) || (p->other && p->state >= PEER_FAILING && peer_in_rts(p->other));
}

/* Whether it has failed, over each device. */
INLAY_ALWAYS bool peer_lost(const struct peer *p)
{
	return p->state >= PEER_FAILING && !peer_open_to(p);
}

/* The error for operations of a connection that is over. If err is FI_EAGAIN, it is a later one's. */
INLAY_FN int peer_why(const struct peer *p)
{
	return p->err && p->err != FI_EAGAIN ? p->err : FI_ECONNRESET;
}

/*
 * The peer of an operation: connected, or for messages CONNECTING. NULL: *result is what the call
 * returns: -FI_EAGAIN, another errno, or 0 if the peer has failed and a completion says so.
 */
struct peer *peer_for(struct endpoint *ep, fi_addr_t addr, void *context, uint32_t done, uint64_t flags, int *result);

int peer_open(struct peer *p);   /* a new connection: its queue pair, in INIT. 0 or a negative errno */
int peer_pair(struct peer *p);   /* gives it a queue pair, or an initiator. 0 or a negative errno */
int peer_borrow(struct peer *p); /* what a post needs. 0 or -FI_EAGAIN */
void peer_ready(struct peer *p); /* it can be sent to from now on, */
void peer_sendable(struct peer *p); /* and by the short ways, if they know how */
void peer_welcome(struct peer *p); /* no longer a guest */
void peer_fail(struct peer *p, int err, uint8_t syndrome); /* everything under way fails with err, a positive errno */
void peer_flushed(struct peer *p); /* a completion has come in of one that is failing */
void peer_events(struct endpoint *ep); /* which queue pairs take no more receives */
void peer_free_all(struct endpoint *ep);

/* The address vector has gained or lost an address. */
void peer_named(struct endpoint *ep, fi_addr_t addr, const struct inlay_connect_record *place);
void peer_forget(struct endpoint *ep, fi_addr_t addr);

/* Completes what slot describes, with success (err 0) or an error. */
void slot_done(struct peer *p, struct slot *slot, int err);

/* An operation at the sending side, or NULL; and its end, with or without a completion. */
struct op *op_begin(struct endpoint *ep, uint8_t kind, struct peer *p, void *context, uint32_t done);
struct op *op_with_buf(struct endpoint *ep, uint8_t kind, struct peer *p, void *context, uint32_t done); /* in bounce */
void op_end(struct endpoint *ep, struct op *op, int err);
void op_drop(struct endpoint *ep, struct op *op);

/* ---- Messages that wait, two devices: rail.c ---- */

/* A connection of p's that can be posted to; NULL: none now. rail_next: for the next piece of a read or write. */
struct peer *rail_of(struct peer *p);
struct peer *rail_next(const struct op *op);

/* Whether a message must have a number. */
INLAY_ALWAYS bool rail_numbers(const struct peer *p)
{
	return settings.rails > 1 || p->state != PEER_READY || p->resend != p->sent;
}

/* Sends a message through a bounce buffer: a long one, or any that must have a number. 0 or -FI_EAGAIN. */
int bounced_send(struct peer *p, const void *head, size_t len, const struct iovec *iov, size_t iovs, void *context,
		 uint32_t done);
void rail_again(struct op *op); /* it has failed with its connection */
void rail_retry(struct op *op); /* there may be room, or a connection */
void rail_ready(struct peer *p); /* its queued messages have a connection now */
void rail_claim(struct peer *first, const struct name *beyond); /* its hello names its other endpoint */
uint64_t rail_tie(const struct peer *p); /* for a hello: the first device's connection that p's is for */
bool rail_link(struct peer *p, const struct name *beyond, uint64_t tie); /* whether its hello counts */
void rail_forget(struct peer *p); /* all messages that have numbers */
int rail_arrived(struct peer *p, const struct message *m); /* WIRE_RAIL. 0 or -FI_EAGAIN */
bool rail_ended(struct peer *p); /* no more comes over the connection that has failed: a write may be repeated */

/* The peer on the domain's own device, which operations name; NULL: not known yet */
INLAY_FN struct peer *rail_first(struct peer *p)
{
	return p->ep->first == p->ep ? p : p->other;
}

/* The keys for p's device: of a registration here, and of one at the peer's */
INLAY_FN uint32_t rail_lkey(const struct peer *p, struct inlay_cache_region *r)
{
	return p->ep->first == p->ep ? r->lkey : region_more(r)->lkey;
}

INLAY_FN uint32_t rail_rkey(const struct peer *p, const struct segment *s)
{
	return s->rkey[p->ep->first != p->ep];
}

/* ---- Dynamic connections: dc.c ---- */

int dc_target(struct endpoint *ep, const char **why);
int dc_initiator(struct endpoint *ep, struct ibv_qp **qp, struct inlay_sq *sq, const char **why);
void dc_take(struct peer *p, struct peer *from); /* an initiator that has nothing in flight */
int dc_register(struct peer *p); /* in by_index, once. 0 or a negative errno */
struct peer *dc_source(struct endpoint *ep, const struct mlx5_cqe64 *cqe); /* whose message it is, or NULL */
void dc_tell(const struct peer *p, uint8_t *record); /* what it must know of us, for a hello */
void dc_told(struct peer *p, const uint8_t *record); /* the other way */

/* Call before a post, except to peers in `ready`. 0 or -FI_EAGAIN. */
INLAY_ALWAYS int peer_begin(struct peer *p)
{
	return INLAY_UNLIKELY(!p->slots) ? peer_borrow(p) : 0;
}

/* Posts a send or read of one piece of memory, or a write of several, for an operation that has begun. */
INLAY_ALWAYS int peer_post(struct peer *p, uint32_t opcode, uint64_t remote, uint32_t key, const struct ibv_sge *sge,
			   uint32_t sges, uint32_t flags)
{
	struct inlay_wr wr = {.raddr = remote, .rkey = key, .imm_be = p->number_be, .to = &p->target, .sge = sge, .num_sge = sges};

	if (INLAY_UNLIKELY(settings.dc))
		return inlay_post(&p->sq, opcode == MLX5_OPCODE_SEND ? MLX5_OPCODE_SEND_IMM : opcode, &wr, flags | INLAY_SIGNALED);
	return opcode == MLX5_OPCODE_SEND ? inlay_post_send(&p->sq, sge, 1, flags) :
	       opcode == MLX5_OPCODE_RDMA_READ ? inlay_post_read(&p->sq, remote, key, sge, 1, flags) :
	       inlay_post_write(&p->sq, remote, key, sge, sges, flags);
}

/* The slot of the next WQE. */
INLAY_ALWAYS struct slot *peer_slot(const struct peer *p)
{
	return &p->slots[inlay_sq_index(&p->sq) % PEER_RING];
}

/* INLAY_SIGNALED for one in 32 WQEs that need no completion, so that their credit comes back. */
INLAY_ALWAYS uint32_t peer_signal(const struct peer *p, uint32_t bbs)
{
	return (inlay_sq_index(&p->sq) & 31) + bbs > 31 ? INLAY_SIGNALED : 0;
}

int connect_start(struct peer *p); /* says hello. 0; -FI_EAGAIN: to too many at a time; another negative errno */
void connect_called(struct peer *p); /* it has answered, or is late */
void connect_arrived(struct endpoint *ep, const uint8_t *datagram, struct inlay_sender sender);
void connect_step(struct endpoint *ep); /* says hello again, probes idle connections, gives up */
void connect_probe(struct peer *p); /* its completion says that all before is over */
void connect_bye(struct endpoint *ep);

uint64_t nanoseconds(clockid_t clock);
#define milliseconds() (nanoseconds(CLOCK_MONOTONIC) / 1000000)

/* ---- Sends: send.c, calls.c ---- */

/* A send, in any of its forms. */
struct send {
	const struct iovec *iov;
	void **desc;              /* one of each piece, NULL or an mr; or NULL */
	size_t iovs;
	fi_addr_t dest;
	uint64_t tag, data;
	void *context;
	uint64_t flags;
};

#define SILENT (1ull << 63)      /* fi_inject: only what fails later makes a completion */
#define OF_ENDPOINT (1ull << 62) /* of a call that takes no flags: the endpoint's, too */

/*
 * Any send. flags: FI_TAGGED or FI_MSG, FI_REMOTE_CQ_DATA, FI_INJECT, FI_COMPLETION, a completion level, SILENT.
 * Returns 0; -FI_EAGAIN: no room, or too many wait; or another negative errno. If the peer has failed, a
 * silent send returns the error, and any other makes an error completion.
 */
ssize_t send_iov(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t iovs, fi_addr_t dest, uint64_t tag,
		 uint64_t data, void *context, uint64_t flags);
ssize_t send_buf(struct endpoint *ep, const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t tag, uint64_t data,
		 void *context, uint64_t flags);

void send_defaults(struct endpoint *ep); /* what follows from flags and bindings: tx_done, rx_plain ... */

int send_fin(struct peer *p, uint64_t handle); /* the message with this handle has come. 0 or -FI_EAGAIN */
void send_finished(struct endpoint *ep, const struct peer *p, uint64_t handle); /* the peer's FIN */

/* A header and a short payload in one WQEBB. */
#define SHORT(flags) (INLAY_WQEBB - INLAY_DS - 4 - (uint32_t)sizeof(struct wire) - ((flags) & FLAG_DATA ? 8 : 0))

/*
 * A message that fits one WQEBB, len at most SHORT(flags). done: flags of its completion, or 0.
 *
 *   +0   ctrl    SEND
 *   +16  inline  byte count | struct wire | (data) | payload
 *
 * 0 or -FI_EAGAIN. flags is constant.
 */
INLAY_ALWAYS ssize_t send_short(struct peer *p, uint8_t flags, uint64_t tag, uint64_t data, const void *buf, size_t len,
				void *context, uint32_t done)
{
	const uint32_t head = sizeof(struct wire) + (flags & FLAG_DATA ? 8 : 0);
	struct inlay_cursor at;
	struct slot *slot;
	struct wire *wire;
	uint8_t *to;

	if (INLAY_UNLIKELY(inlay_sq_begin(&p->sq, 1, &at)))
		return -FI_EAGAIN;
	slot = peer_slot(p);
	slot->what = context;
	slot->kind = SLOT_CONTEXT;
	slot->flags = done;
	at = inlay_seg_inline_open(at, head + (uint32_t)len, sizeof(*wire), &to);
	wire = (struct wire *)(void *)to;
	inlay_put32(to, WIRE_EAGER | (uint32_t)flags << 8);
	wire->tag = tag;
	if (flags & FLAG_DATA)
		at = inlay_seg_inline_append(at, &data, 8);
	at = inlay_seg_inline_append(at, buf, (uint32_t)len);
	inlay_sq_commit(&p->sq, at, MLX5_OPCODE_SEND, 0, ((int32_t)done > 0 ? INLAY_SIGNALED : peer_signal(p, 1)) | INLAY_RING, 0);
	return 0;
}

/* As send_short, for a longer message: len at most settings.eager. flags need not be constant. */
ssize_t send_medium(struct peer *p, uint8_t flags, uint64_t tag, uint64_t data, const void *buf, size_t len,
		    void *context, uint32_t done);

/* A send of one buffer, by the short path if possible. flags and inject are constant. */
INLAY_ALWAYS ssize_t send_one(struct fid_ep *fid, uint8_t flags, const void *buf, size_t len, void *desc, fi_addr_t dest,
			      uint64_t tag, uint64_t data, void *context, int inject)
{
	struct endpoint *ep = container_of(fid, struct endpoint, fid);
	const uint64_t kind = flags & FLAG_TAGGED ? FI_TAGGED : FI_MSG;
	struct peer *p;
	ssize_t result;
	uint32_t done;

	enter(ep);
	done = (uint32_t)kind | (inject ? FI_SEND | DONE_ERROR : ep->tx_done);
	p = INLAY_LIKELY(dest < (inject ? ep->inject_addrs : ep->short_addrs)) ? ep->ready[dest] : NULL;
	if (INLAY_LIKELY(p != NULL) && INLAY_LIKELY(len <= SHORT(flags)))
		result = send_short(p, flags, tag, data, buf, len, context, done);
	else if (p && len <= settings.eager)
		result = send_medium(p, flags, tag, data, buf, len, context, done);
	else
		result = send_buf(ep, buf, len, desc, dest, tag, data, context,
				  kind | (flags & FLAG_DATA ? FI_REMOTE_CQ_DATA : 0) |
				  (inject ? FI_INJECT | SILENT : ep->tx_flags));
	return leave_post(ep, result);
}

/* ---- Receives: recv.c, untagged.c ---- */

ssize_t recv_tagged(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t source, uint64_t tag,
		    uint64_t ignore, void *context); /* fi_trecv */

/* Any receive. flags: fi_recvmsg's or fi_trecvmsg's, with FI_MSG or FI_TAGGED, and OF_ENDPOINT. */
ssize_t recv_iov(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t iovs, fi_addr_t source, uint64_t tag,
		 uint64_t ignore, void *context, uint64_t flags);
ssize_t untagged_post(struct endpoint *ep, struct op *op);

/* Ends the receives that only p can match; p NULL: one with this context. 0 or -FI_ENOENT. */
int recv_stop(struct endpoint *ep, const struct peer *p, const void *context, int err);
int untagged_end(struct endpoint *ep, const struct peer *p, const void *context, int err);

void recv_end_early(struct endpoint *ep, struct op *op, int err); /* before a message came */
void recv_end(struct endpoint *ep, struct op *op, int err);       /* its message was read */
void untagged_part_end(struct endpoint *ep, struct op *multi);    /* a message into a part */

void recv_settle(struct cq *cq); /* the front receive enters the table, before that is used */
int match_init(struct endpoint *ep);
int match_grow(struct endpoint *ep); /* to twice the size. 0 or -FI_EAGAIN */

/* ---- Messages: arrive.c ---- */

/*
 * Handles an incoming message. b: the buffer that holds it, or NULL if it cannot be kept. Returns
 * 0; 1: b was kept, and ep->spare is to take its place; -FI_EAGAIN: there is no memory for it now.
 */
int arrive_any(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct buf *b);
int untagged_arrived(struct endpoint *ep, struct peer *p, const struct message *m, const void *at, uint32_t bytes,
		     struct buf *b);

void arrive_discard(struct endpoint *ep, struct buf *kept); /* nobody wants it */

/* Delivers a message to its receive; there must be room for two completions. */
void arrive_meet(struct endpoint *ep, struct peer *p, const struct message *m, struct op *op);
void arrive_matched(struct endpoint *ep, struct peer *p, const void *at, uint32_t bytes, struct op *op);
void arrive_meet_kept(struct endpoint *ep, struct buf *kept, struct op *op);

void read_begin(struct endpoint *ep, struct op *op); /* OP_READ, OP_RMA: it ends by itself */
void read_done(struct endpoint *ep, struct op *op, int err); /* a piece of it */
/* Posts a step of op, to or from s->addr + at, or a send. 0 or -FI_EAGAIN */
int op_post(struct peer *p, struct op *op, uint32_t opcode, const struct segment *s, size_t at, const struct ibv_sge *sge);
int rma_follow(struct op *op); /* what comes after the bytes, in RMA_STEPS */
#define RMA_STEPS 2u
void read_waiting(struct endpoint *ep); /* what found no room goes on */
void fin_later(struct endpoint *ep, struct peer *p, const struct message *m); /* FIN, when there is room */
void wait_for_room(struct endpoint *ep, struct op *op); /* in the ring to its peer */

/* ---- Matching by the device: offload.c ---- */

uint32_t offload_cqes(struct endpoint *ep); /* asks the device; what it wants of the CQ */
int offload_open(struct endpoint *ep, const char **why); /* 0 or a negative errno */
void offload_close(struct endpoint *ep);

/* Whether the peer's device can match this tagged message itself. If not, a stand-in follows it. */
bool offload_takes(const struct send *s);
int offload_send(struct endpoint *ep, struct peer *p, const struct send *s, size_t len, uint32_t done);
void offload_stand_in(struct peer *p, uint64_t tag); /* after one with FLAG_AHEAD; there is room */
#define OFFLOAD_ROOM 5u /* WQEBBs of a message and its stand-in */

int offload_post(struct endpoint *ep, struct op *op, uint64_t key, uint64_t mask, struct inlay_match_found *found);
void offload_end(struct endpoint *ep, uint64_t handle, int err); /* a receive, now or soon */

int offload_received(struct endpoint *ep, const struct mlx5_cqe64 *cqe); /* -FI_EAGAIN: call again */
/* A completion of no message, or an error */
void offload_listed(struct endpoint *ep, struct peer *p, const struct mlx5_cqe64 *cqe);
void offload_gone(const struct mlx5_cqe64 *cqe, void *ep); /* for inlay_cq_clean */
int offload_parse(const void *at, uint32_t bytes, struct message *m);
void offload_flush(struct endpoint *ep); /* after completions were taken */

/* ---- atomic.c, progress.c ---- */

/* Handles WIRE_ATOMIC or WIRE_ANSWER. 0, or -FI_EAGAIN: call again later. */
int atomic_arrived(struct endpoint *ep, struct peer *p, const struct message *m);

void atomic_step(struct endpoint *ep, struct op *op, int err); /* OP_NATIVE: a step is done */
void atomic_again(struct endpoint *ep, struct op *op); /* there may be room now */

int progress_feed(struct endpoint *ep, struct inlay_srq *srq); /* fills it for the first time */
void progress_replace(struct endpoint *ep, struct inlay_srq *srq, const struct mlx5_cqe64 *cqe); /* with the spare buffer */
void progress_late(struct endpoint *ep); /* there may be memory now */
void progress_set_aside(struct endpoint *ep, struct buf *b); /* a message, to be handled later */

#endif
