/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libinlay-shim.so: preloaded, it runs unmodified verbs programs on inlay's data path. libibverbs
 * and libmlx5 still create, modify and destroy everything; posting and polling, which programs do
 * through function pointers, goes to inlay's headers instead of libmlx5.
 *
 *   object.c  the way in: functions of libibverbs and libmlx5 that are replaced, who owns which queue, taking over
 *   post.c    ibv_post_send, ibv_wr_*, mlx5dv_wr_*, ibv_post_recv, ibv_post_srq_recv, ibv_bind_mw
 *   key.c     mlx5dv_wr_mkey_configure and its setters, mlx5dv_wr_mr_*, signatures
 *   poll.c    ibv_poll_cq, ibv_start_poll and ibv_wc_read_*, events
 *   table.c   from a program's pointer to what the shim knows about it
 *
 * Who owns what. A queue is driven by inlay or by libmlx5, never by both. It is decided when a QP
 * is created:
 *
 *   - a QP is inlay's if inlay knows its kind (see `uncovered` in object.c) and neither its CQs nor
 *     its SRQ are libmlx5's; otherwise libmlx5 drives both its queues
 *   - the target QP of XRC has no queues and no owner
 *   - a CQ has no owner until its first QP; it then keeps that QP's owner
 *   - the same holds for an SRQ, but its first receive settles the owner too; an XRC SRQ names its
 *     CQ, and has that CQ's owner from the beginning
 *   - a QP of libmlx5's on one of inlay's CQs gets a second CQ, which the program does not see.
 *     libmlx5's functions poll it whenever the first is empty, it is armed with the first, and its
 *     events are reported as the first's (now and then one too many)
 *   - a QP of libmlx5's on one of inlay's SRQs is refused with ENOTSUP
 *
 * Deciding at the first post would let more mixed programs have a single owner. But a QP with its
 * own doorbell register must be created for one of the two.
 *
 * The register. BlueFlame copies need a register that no other queue writes to. Every QP of inlay's
 * is created in a parent domain of its own (inlay_uar_create), which the program does not see
 * either: the QP shows the PD that the program asked for, and the parent domain is put back while
 * libmlx5 destroys the QP. When no registers are left, the QP shares the one that libmlx5 picks, and
 * rings doorbells only.
 *
 * What differs from libmlx5:
 *
 *   - A program that calls mlx5dv_init_obj and then posts and polls by itself is left alone. If it
 *     did so for one of inlay's CQs, that CQ takes no QP of libmlx5's (ENOTSUP).
 *   - A program that loads libibverbs with dlopen and dlsym bypasses the shim.
 *   - Resizing a CQ that was polled is refused (ENOTSUP).
 *   - An SRQ receive that meets a page fault of on-demand paging ends in an error; libmlx5 posts it
 *     again.
 *   - Operations that a QP's type lacks, atomics with other than one piece, and empty packets are
 *     refused with EINVAL; libmlx5 leaves them to the device.
 *   - Keys for crypto are not configured on one of inlay's QPs (EOPNOTSUPP).
 *   - The pieces of a request that binds or invalidates are not posted.
 *   - ibv_bind_mw accepts the null MR and device memory, and the bind then ends in an error.
 *   - MLX5_STALL_CQ_POLL and MLX5_SINGLE_THREADED are ignored.
 *   - A CQ that reports wall clock time or tags, or whose CQEs are compressed, is libmlx5's.
 *   - The shim uses comp_mask of ibv_qp_ex and mlx5dv_qp_ex, to which verbs gives no meaning.
 *
 * Threads. As with libmlx5, any thread may use any queue: each queue has a lock. A post never waits
 * for a poll, nor a poll for a post, so a program may poll between ibv_wr_start and
 * ibv_wr_complete. The poll records completed WQEs in `tail` and `done`; the next post that needs
 * the room returns it to inlay's queue. ibv_modify_qp to RESET or RTS waits until no thread
 * is between ibv_wr_start and ibv_wr_complete.
 */
#ifndef SHIM_H
#define SHIM_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

/*
 * The headers' own calls of mlx5dv_init_obj go straight to libmlx5. The shim's replacement is for
 * programs.
 */
extern int (*shim_real_init_obj)(struct mlx5dv_obj *obj, uint64_t type);
#define mlx5dv_init_obj(obj, type) shim_real_init_obj(obj, type)
#include <inlay/inlay.h>
#include <inlay/queue/batch.h>
#include <inlay/cqe/packet.h>
#include <inlay/queue/packet.h>
#include <inlay/queue/raw.h>
#include <inlay/queue/sync.h>
#include <inlay/queue/umr.h>
#include <inlay/queue/user_index.h>
#include <inlay/steer.h>
#include <inlay/devx.h>
#undef mlx5dv_init_obj

#define EXPORT __attribute__((visibility("default")))

/* The next function of this name, which the shim's replaces. */
#define NEXT(name) ({ \
	static __typeof__(&name) next_; \
	\
	if (!next_) \
		next_ = (__typeof__(next_))dlsym(RTLD_NEXT, #name); \
	next_; \
})

/* Held while objects are made and destroyed; never while libibverbs may wait for the program. */
extern pthread_mutex_t shim_lock;

enum shim_owner {
	SHIM_NOBODY,
	SHIM_INLAY,
	SHIM_LIBMLX5,
};

/* The objects of shim_find; each begins with its kind. */
enum shim_kind {
	SHIM_CONTEXT,
	SHIM_QP,
	SHIM_CQ,
	SHIM_SRQ,
	SHIM_AH,
	SHIM_KEY,
};

struct shim_context {
	enum shim_kind kind;
	struct ibv_context *context;
	struct ibv_context_ops ops;       /* libmlx5's, as they were, and below those that libibverbs keeps elsewhere */
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
	struct ibv_wq *(*create_wq)(struct ibv_context *context, struct ibv_wq_init_attr *attr);
	struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *pd);
	struct shim_qp **by_number[4096]; /* by QPN: its upper 12 bits, then the lower */
	struct shim_qp **by_index[4096];  /* likewise by user index: those whose receives do not tell the QPN */
	bool indexed;                     /* there is or was one of those */
	bool atomics;
	bool csum;                        /* of raw packets */
	uint32_t max_tso;
	uint64_t max_copy;
	bool has_null_mr;
	uint32_t null_lkey;               /* of memory that swallows what is written to it */
};

/* What is remembered of a posted send. */
struct shim_send {
	uint64_t wr_id;
	uint32_t number;                  /* how many were posted before it */
	uint16_t opcode;                  /* enum ibv_wc_opcode of one whose completion does not tell it */
	uint16_t end;                     /* the WQEBB after it */
};

struct shim_sq {
	struct inlay_sq q;
	struct shim_send *sends;          /* by the first WQEBB */
	uint32_t lock;
	uint32_t head;                    /* sends posted */
	uint32_t room;                    /* sends that may be posted without looking at tail */
	uint32_t max_sends;
	uint32_t longest;                 /* WQEBBs that one of max_sends may have */
	int32_t max_sge;                  /* -1: the QP's state does not let it send */
	uint32_t max_inline;
	uint32_t max_tso_header;
	bool connected;                   /* RC, UC: requests name no destination */
	uint32_t to;                      /* what a request's destination takes, in 16-byte units */
	uint32_t always;                  /* INLAY_SIGNALED with sq_sig_all */
	uint32_t fence;                   /* of the next post: behind a binding or an invalidation */
	/* Between ibv_wr_start and ibv_wr_complete */
	uint32_t ds;                      /* units of the WQE that are written, or kept for its destination */
	struct inlay_eth eth;             /* of a packet whose header is not known yet */
	int32_t err;
	uint32_t begun;                   /* head at the start */
	uint32_t begun_fence;             /* likewise */
	uint32_t imm_be;
	uint32_t flags;
	uint8_t opcode;
	uint8_t missing;                  /* setters that are still to come before the last */
	/* Written by the poller */
	uint32_t tail __attribute__((aligned(INLAY_CACHE_LINE))); /* sends completed */
	uint16_t done;                    /* the WQEBB after the last of these */
};

struct shim_rq {
	struct inlay_rq q;
	uint64_t *wr_ids;
	uint32_t lock;
	uint32_t head;                    /* receives posted */
	bool ready;                       /* whether the QP's state takes receives */
	uint32_t tail __attribute__((aligned(INLAY_CACHE_LINE))); /* receives completed; written by the poller */
};

struct shim_srq {
	enum shim_kind kind;
	struct inlay_srq q;
	uint32_t lock;
	enum shim_owner owner;
	struct shim_qp *stand_in;         /* of an XRC SRQ, for the QPs of others that its receives are of */
};

struct shim_ah {
	enum shim_kind kind;
	struct mlx5_wqe_av *av;           /* libmlx5's */
};

/*
 * A key of mlx5dv_create_mkey. libmlx5 does not share its state for signatures, so the shim has its
 * own.
 */
struct shim_key {
	enum shim_kind kind;
	struct mlx5dv_mkey *key;
	uint32_t entries;
	bool has_sig, has_crypto;
	bool used;                        /* by a QP of inlay's */
	struct inlay_devx_psv psv[2];     /* of memory and wire */
	struct mlx5dv_sig_block_attr attr;
	struct mlx5dv_sig_block_domain domain[2];
	union {
		struct mlx5dv_sig_t10dif dif;
		struct mlx5dv_sig_crc crc;
	} sig[2];
	enum { SHIM_SIG_NONE, SHIM_SIG_SET, SHIM_SIG_NEW } state;
	uint32_t errors;
	bool counted;                     /* whether the device knows how many */
	bool wrong;
	struct inlay_sig_error error;
};

/* An mkey update, between mlx5dv_wr_mkey_configure and its last setter. */
struct shim_change {
	struct shim_key *key;             /* or NULL */
	struct inlay_umr umr;
	uint32_t setters;
	union {
		struct ibv_sge list[INLAY_MAX_DS];
		struct mlx5dv_mr_interleaved interleaved[INLAY_MAX_DS];
	};
};

struct shim_qp {
	enum shim_kind kind;
	struct shim_sq sq;
	struct shim_rq rq;
	struct shim_srq *srq;
	struct shim_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct shim_context *context;
	struct inlay_uar uar;
	struct ibv_pd *pd;                /* the program's */
	uint32_t qpn;                     /* of a DC target in RTR, and before: 0 */
	uint32_t index;                   /* user index */
	bool indexed;                     /* which is what its receives are known by */
	bool target;                      /* of DC: without queues */
	bool csum;                        /* its receives tell about checksums */
	int32_t max_send_sge;
	bool extended;                    /* has ibv_wr_* */
	uint64_t dv_ops;                  /* and of mlx5dv_wr_* these: MLX5DV_QP_EX_* */
	struct shim_change *change;
	struct ibv_mr *opaque_mr;         /* of the 64 bytes that copies want of their own */
	uint8_t opaque[64] __attribute__((aligned(64)));
};

enum {
	SHIM_ARMED_SOLICITED = 1,
	SHIM_ARMED = 2,
};

struct shim_cq {
	enum shim_kind kind;
	struct inlay_cq q;
	const struct mlx5_cqe64 *cqe;     /* what ibv_wc_read_* speak of; NULL: they speak of the second CQ's */
	uint32_t send_opcode;             /* enum ibv_wc_opcode, where the CQE does not tell it */
	bool csum;                        /* shim_qp.csum */
	uint32_t lock;
	struct shim_context *context;
	struct ibv_cq *cq;
	struct ibv_cq *second;            /* libmlx5's, for QPs that inlay does not know */
	bool extended;                    /* made by ibv_create_cq_ex */
	bool programs;                    /* mlx5dv_init_obj gave it to the program, which cleans it itself */
	enum shim_owner owner;
	pthread_t poller;                 /* the thread between ibv_start_poll and ibv_end_poll */
	bool polling;
	uint32_t resized;                 /* how often */
	uint32_t armed;                   /* SHIM_ARMED*: what the program has ever asked for */
	uint32_t second_events;           /* of the second CQ, told as the first's and not yet acknowledged */
	struct ibv_cq_init_attr_ex attr;  /* as it was asked for */
};

/*
 * table.c: the program's pointers. A lookup takes no lock; the other functions need shim_lock.
 */
struct shim_table {
	struct shim_table *older;
	uint32_t used;                    /* slots that have or had a key */
	uint32_t shift;                   /* 64 - log2 of the number of slots */
	struct {
		const void *key;          /* NULL: never used */
		void *value;
	} slots[];
};

extern struct shim_table *shim_table;

static inline uint64_t shim_hash(const struct shim_table *t, const void *key)
{
	return (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15ull >> t->shift;
}

static inline void *shim_find(const void *object)
{
	const struct shim_table *t = __atomic_load_n(&shim_table, __ATOMIC_ACQUIRE);
	uint64_t i;

	for (i = shim_hash(t, object);; i = (i + 1) & (~0ull >> t->shift)) {
		const void *key = __atomic_load_n(&t->slots[i].key, __ATOMIC_ACQUIRE);

		if (INLAY_LIKELY(key == object))
			return t->slots[i].value;
		if (!key)
			return NULL;
	}
}

void shim_insert(const void *object, void *value);
void shim_remove(const void *object);
void shim_each(void (*visit)(const void *object, void *value));

/* object.c */
bool shim_take_srq(struct ibv_srq *srq);
const struct mlx5_wqe_av *shim_av(struct ibv_ah *ah);

/*
 * post.c, for ibv_wr_*: whether there is room for n more WQEs; what is left to do for one posted as a
 * whole
 */
bool shim_wr_room(struct shim_sq *sq, struct ibv_qp_ex *ex, uint32_t n);
void shim_wr_posted(struct shim_sq *sq, struct ibv_qp_ex *ex, int err, uint32_t index, uint32_t opcode);
void shim_wr_fail(struct shim_sq *sq, int err);
int shim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int shim_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int shim_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int shim_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
void shim_wr_install(struct ibv_qp_ex *qp);
void shim_dv_install(struct shim_qp *qp);

/* key.c */
void shim_key_install(struct mlx5dv_qp_ex *dv);
void shim_key_error(const struct mlx5_cqe64 *cqe);

/* poll.c */
int shim_poll_cq(struct ibv_cq *cq, int entries, struct ibv_wc *wc);
int shim_req_notify_cq(struct ibv_cq *cq, int solicited_only);
void shim_poll_install(struct ibv_cq_ex *cq);
struct ibv_cq *shim_event(struct shim_cq *cq, struct ibv_cq *from);
void shim_clean(struct shim_qp *qp);

static inline struct shim_qp *shim_qp_of(struct shim_qp **const parts[4096], uint32_t number)
{
	struct shim_qp **part = parts[number >> 12];

	return part ? part[number & 0xfff] : NULL;
}

static inline struct shim_qp *shim_qp_of_dv(const struct mlx5dv_qp_ex *dv)
{
	return (struct shim_qp *)(uintptr_t)dv->comp_mask;
}

static inline void shim_acquire(uint32_t *lock)
{
	while (INLAY_UNLIKELY(__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)))
		while (__atomic_load_n(lock, __ATOMIC_RELAXED))
			inlay_relax();
}

static inline bool shim_try(uint32_t *lock)
{
	return !__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE);
}

static inline void shim_release(uint32_t *lock)
{
	__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

#endif
