/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel.h: what the files of the host side share; the engine does not see it.
 *
 * Objects have handles, as in the kernel. A handle is an index into one table. It is valid only in
 * the context that made it and only for the kind of object that it was made for. All functions are
 * called with sd_lock held, unless said otherwise.
 */
#ifndef SOFTDEV_HOST_H
#define SOFTDEV_HOST_H

#include <sys/types.h>
#include "../base/base.h"

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

enum sd_fd_kind {
	SD_FD_NONE,
	SD_FD_CMD,
	SD_FD_CHANNEL,
	SD_FD_CM,                 /* the connection manager's: cm.c */
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
	bool ready;               /* GET_CONTEXT was answered */
	uint32_t uid;             /* of device commands; 0: none were asked for */
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

/* Objects in the order in which a closed context gets rid of what is left */
enum sd_kind { SD_NONE, SD_FLOW, SD_MATCHER, SD_DEVX, SD_UMEM, SD_QP, SD_IND_TBL, SD_WQ, SD_SRQ, SD_CQ, SD_MW, SD_MR, SD_DM, SD_AH, SD_XRCD,
	       SD_PD, SD_UAR, SD_KINDS };

struct host_uar {
	struct sd_uar u;
	struct sd_ctx *ctx;
	int refs;                 /* its handle, QPs and CQs */
	struct host_uar *next;
};

struct sd_umem;

struct host_cq {
	struct sd_cq c;
	struct sd_umem *umem[2];  /* of its ring and its record, when a command made it; so for the others */
	uint8_t cqc[0x40];        /* what commands said of it; fwcq.c */
	uint64_t user_handle;
	struct sd_channel *async;
	uint32_t comp_events, async_events; /* sent and not taken back */
	struct sd_devx_obj *devx;
	struct host_cq *next;
};

struct host_mcast {
	uint8_t gid[16];
	uint16_t lid;
	struct host_mcast *next;
};

#define SD_QPC 0xe8u              /* bytes of a QP's context */

struct host_qp {
	struct sd_qp q;
	struct sd_umem *umem[2];
	uint8_t qpc[SD_QPC];      /* fwqp.c; of a DCT fwdct.c */
	bool violation_armed;     /* DCT */
	uint64_t user_handle;
	struct sd_channel *async;
	uint32_t async_events;
	struct host_mcast *groups;
	int flows;                /* rules that lead here */
	struct sd_tir *tir;       /* it has no queues but this */
	struct sd_devx_obj *devx; /* NULL: a verbs object; so for the others */
	struct host_qp *next;
};

struct sd_domain;
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
	struct host_srq *next;
};

struct host_ah {
	struct sd_pd *pd;
};

struct host_dm {
	unsigned dev;
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
_Static_assert(!offsetof(struct host_uar, u) && !offsetof(struct host_cq, c) && !offsetof(struct host_qp, q) &&
	       !offsetof(struct host_srq, s) && !offsetof(struct host_mr, m),
	       "the engine's part comes first");

/* ---- objects.c ---- */
int sd_handle_new(struct sd_ctx *ctx, enum sd_kind kind, void *obj, uint32_t *handle);
void *sd_handle_get(struct sd_ctx *ctx, enum sd_kind kind, uint32_t handle);
void *sd_handle_any(struct sd_ctx *ctx, uint32_t handle, enum sd_kind *kind);
void sd_handle_free(uint32_t handle);

void sd_fd_set(int fd, enum sd_fd_kind kind, void *ptr);
enum sd_fd_kind sd_fd_get(int fd, void **ptr);  /* needs no lock */
/* takes sd_lock; the same file as one of a context's: as good as that */
void sd_fd_adopt(int fd, dev_t st_dev, ino_t st_ino);
void sd_fd_closing(int fd);                     /* takes sd_lock */
int sd_start(void);                             /* takes sd_lock; the device begins to work: 0 or -errno */
int sd_ctx_open(unsigned dev, bool cloexec);    /* takes sd_lock; an fd or -errno */

bool sd_mem_ok(uint64_t addr, uint64_t len, bool write); /* is it all mapped, readable and, if asked, writable? */
void sd_once(uint32_t key, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* one stderr line per key */

/* Numbers are used in turn, so that one that has just died does not come back at once */
struct sd_numbers {
	void **at;
	uint32_t max, first, next;
};
int sd_number_new(struct sd_numbers *n, void *obj, uint32_t *number);
void *sd_number_get(const struct sd_numbers *n, uint32_t i);

struct sd_channel *sd_channel_new(size_t record, int *err);
struct sd_channel *sd_channel_get(int fd, size_t record);
void sd_channel_put(struct sd_channel *ch);
void sd_channel_close(struct sd_channel *ch);
struct sd_channel *sd_channel_hold(struct sd_channel *ch);
bool sd_channel_send(struct sd_channel *ch, const void *event);
uint32_t sd_channel_take_back(struct sd_channel *ch, uint64_t element);

/* All answer 0 or a positive errno, as the ioctl does */
int sd_pd_create(struct sd_ctx *ctx, uint32_t *handle, uint32_t *pdn);
int sd_pd_new(struct sd_ctx *ctx, struct sd_pd **pd); /* without a handle */
int sd_pd_free(struct sd_pd *pd);               /* EBUSY while something is in it */
int sd_uid_new(struct sd_ctx *ctx);
void sd_uid_free(struct sd_ctx *ctx);
int sd_uar_create(struct sd_ctx *ctx, uint32_t *handle, uint32_t *page_id);
struct sd_uar *sd_uar_get(struct sd_ctx *ctx, uint32_t page_id);
struct ib_uverbs_ah_attr;
int sd_ah_create(struct sd_ctx *ctx, struct sd_pd *pd, const struct ib_uverbs_ah_attr *at, uint32_t *handle, uint8_t dmac[6]);
int sd_destroy(struct sd_ctx *ctx, enum sd_kind kind, uint32_t handle, uint32_t *events, uint32_t *async_events);

struct sd_cq_args {
	uint64_t buf, db, user_handle;
	uint32_t entries, cqe_size, page_id;
	bool ignore_overrun, timestamp, padded;
	uint8_t compression, mini_format;
	struct sd_channel *channel, *async;
};
int sd_cq_create(struct sd_ctx *ctx, const struct sd_cq_args *a, uint32_t *handle, uint32_t *cqn);
int sd_cq_add(struct host_cq *hc);              /* gives it a number and puts it into the table */
void sd_cq_remove(struct host_cq *hc);          /* out of the engine and the table, with all that it holds; frees it */
int sd_cq_resize(struct sd_cq *cq, uint32_t cqe, uint64_t buf, uint32_t cqe_size);

/* ---- qp.c ---- */
struct mlx5_ib_create_qp;
struct ib_uverbs_modify_qp;
struct ib_uverbs_query_qp_resp;
struct sd_qp_args {
	enum ibv_qp_type type;
	struct sd_pd *pd;
	struct sd_cq *send_cq, *recv_cq;
	struct sd_srq *srq;
	struct sd_channel *async;
	uint64_t user_handle;
	struct ibv_qp_cap cap;
	bool sig_all, strip_vlan, no_self;
	const struct mlx5_ib_create_qp *drv;
	struct sd_domain *xrcd;   /* of an XRC receive QP, which has no PD and no CQ */
};
int sd_qp_create(struct sd_ctx *ctx, struct sd_qp_args *a, uint32_t *handle, uint32_t *qpn);
/* A DCT or an XRC receive QP, which have no queue of their own */
int sd_qp_create_target(struct sd_ctx *ctx, struct sd_qp_args *a, uint32_t *handle, uint32_t *qpn);
/* A QP that spreads packets over a table's WQs, and has no number */
int sd_qp_create_rss(struct sd_ctx *ctx, struct sd_qp_args *a, struct sd_tir *tir, uint32_t *handle);
int sd_qp_modify(struct sd_qp *qp, const struct ib_uverbs_modify_qp *cmd);
void sd_qp_query(struct sd_qp *qp, struct ib_uverbs_query_qp_resp *resp);
void sd_qp_free(struct host_qp *hq);
int sd_qp_mcast(struct sd_qp *qp, const uint8_t gid[16], uint16_t lid, bool attach);
int sd_qp_add(struct host_qp *hq);              /* objects.c: gives it a number and puts it into the table */
void sd_qp_remove(struct host_qp *hq);          /* the way back, and sd_qp_free(); the engine has done with it */
void sd_uar_put(struct sd_uar *u);

/* ---- mr.c: EBUSY for what is in use ---- */
int sd_mr_free(struct host_mr *hm);
/* a key, a reference to the PD; the key's low byte, or -1: the next one */
int sd_mr_add(struct host_mr *hm, int variant);
int sd_dm_free(struct host_dm *dm);
int sd_dm_start(void);                           /* before the first context; 0 or -errno */

/* ---- wq.c ---- */
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
	struct sd_devx_obj *devx; /* made by DEVX; fweth.c, as what follows */
	struct sd_umem *umem[2];
	uint8_t rqc[0xf0];
};

_Static_assert(!offsetof(struct host_wq, q), "as above");

struct host_ind_tbl {
	uint32_t number, cnt, max;
	struct sd_ctx *ctx;
	int refs;                 /* TIRs */
	struct host_wq *wq[];     /* max of them */
};
int sd_wq_add(struct host_wq *wq);              /* gives it a number and counts it */
struct host_wq *sd_wq_find(uint32_t wqn);
bool sd_wq_may(enum ibv_wq_state from, enum ibv_wq_state to);
int sd_ind_tbl_add(struct host_ind_tbl *t);     /* the same, and its entries */
struct host_ind_tbl *sd_ind_tbl_find(uint32_t number);
int sd_wq_free(struct host_wq *wq);             /* EBUSY while it is in a table */
void sd_wq_move(struct host_wq *wq, enum ibv_wq_state state);
enum ibv_wq_state sd_wq_state(const struct host_wq *wq); /* as the device has it: an error of its own included */
void sd_async_wq(struct host_wq *wq);           /* it has stopped */
void sd_ind_tbl_free(struct host_ind_tbl *t);
uint32_t sd_wq_number(const struct host_wq *wq);
uint32_t sd_ind_tbl_number(const struct host_ind_tbl *t);

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
struct raw_headers;
struct raw_hit;
struct sd_qp *sd_tir_pick(const struct sd_tir *t, const uint8_t *p, const struct raw_headers *h, struct raw_hit *hit);

/* ---- xrc.c ---- */
void sd_xrcd_put(struct sd_domain *d);
extern struct sd_cq sd_no_cq;     /* of an XRC receive QP that no request has reached */

/* ---- flow.c ---- */
struct sd_flow;
void sd_flow_free(struct sd_flow *f);

/* ---- matcher.c ---- */
#define SD_FTE 64u                /* bytes of a packet's outer headers, as rules of commands see them */
struct sd_matcher {
	uint16_t priority;
	uint8_t mask[SD_FTE];
	int refs;                 /* rules */
};
void sd_fte_of(const uint8_t *p, const struct raw_headers *h, uint8_t fte[SD_FTE]);

/* ---- srq.c ---- */
int sd_srq_add(struct host_srq *hs);            /* gives it a number and puts it into the table */
void sd_srq_free(struct host_srq *hs);          /* the way back; the engine has done with it */
void sd_srq_forked(void);                       /* the child has none */

/* ---- devx.c, devxfd.c ---- */
struct sd_devx_file;
bool sd_devx_on(void);            /* needs no lock */
ssize_t sd_devx_read(int fd, void *buf, size_t size); /* takes sd_lock; bytes or -errno */
void sd_devx_file_closed(struct sd_devx_file *f);
void sd_devx_files_orphan(struct sd_ctx *ctx);
void sd_devx_forked(void);

/* ---- cm.c ---- */
struct cm_file;
int sd_cm_open(int flags);        /* takes sd_lock; an fd or -errno */
ssize_t sd_cm_write(int fd, const void *buf, size_t len); /* takes sd_lock; may sleep; bytes or -errno */
void sd_cm_closed(struct cm_file *f);
void sd_cm_forked(void);

/* ---- uverbs.c ---- */
/* Takes sd_lock; 0 or a positive errno. In a context that fork() inherited, device memory is all that can be made */
int sd_ioctl(struct sd_ctx *ctx, void *arg, bool inherited);

/* ---- port.c: the devices' identity; constant, no lock ---- */
bool sd_link_ib(void);
#define SD_MAX_DEVICES 8u
unsigned sd_devices(void);        /* how many there are: mlx5_0 and so on */
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
/* directory in which the sysfs and /dev files lie under their own names; NULL with errno */
const char *sd_tree(void);

#endif
