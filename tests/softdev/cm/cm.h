/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm.h: what the files of the connection manager share.
 *
 *   cm.c      /dev/infiniband/rdma_cm: its files, ids and commands (rdma_user_cm.h)
 *   cmaddr.c  addresses: which device, which path; the ports of all processes of the fabric
 *   cmconn.c  connections: messages between ids, their states and timers
 *
 * It follows the kernel's ucma.c, cma.c and cm.c: the same states, refusals, events and sizes of
 * private data. All functions are called with sd_lock held and answer 0 or a positive errno, unless
 * said otherwise.
 */
#ifndef SOFTDEV_CM_H
#define SOFTDEV_CM_H

#include <netinet/in.h>
#include <infiniband/ib.h>
#include <infiniband/sa.h>
#include <rdma/rdma_user_cm.h>
#include "../kernel/kernel.h"

#define CM_MAX_ID 65536u
#define CM_SERVICE_TIMEOUT 4294967296ull /* ns: 4.096 us << 20; what is read and not answered by then has failed */
#define CM_TRIES 16u                     /* of a request whose receiver is there and says so */
#define CM_RESEND 20000000ull            /* ns: until a listener whose backlog was full is asked again */
#define CM_TURN 30000000ull              /* ns: a program's turn to see what came before the end */
#define CM_LIFETIME 16u                  /* a packet's life: 4.096 us << 16 */
#define CM_UDP_QKEY 0x01234567u
#define CM_IPOIB_QKEY 0x0b1bu

/* As <rdma/rdma_cma.h>, which belongs to the library that we serve */
enum cm_event_type {
	CM_ADDR_RESOLVED, CM_ADDR_ERROR, CM_ROUTE_RESOLVED, CM_ROUTE_ERROR, CM_CONNECT_REQUEST, CM_CONNECT_RESPONSE, CM_CONNECT_ERROR,
	CM_UNREACHABLE, CM_REJECTED, CM_ESTABLISHED, CM_DISCONNECTED, CM_DEVICE_REMOVAL, CM_MULTICAST_JOIN, CM_MULTICAST_ERROR,
	CM_ADDR_CHANGE, CM_TIMEWAIT_EXIT,
};

/* Why a request is refused */
enum { CM_REJ_TIMEOUT = 4, CM_REJ_SERVICE = 8, CM_REJ_CONSUMER = 28, CM_REJ_OPTION = 35 };
enum { CM_SIDR_OK, CM_SIDR_UNSUPPORTED, CM_SIDR_REJECT };

union cm_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_ib ib;
	struct __kernel_sockaddr_storage any;
};

enum cm_kind { CM_REQ = 1, CM_MRA, CM_BUSY, CM_REP, CM_RTU, CM_REJ, CM_DREQ, CM_DREP, CM_SIDR_REQ, CM_SIDR_REP };

/* Host byte order but for addresses and the path: both ends are on one machine */
struct cm_msg {
	uint32_t kind;            /* enum cm_kind */
	uint32_t from, to;        /* ids; to does not count in a request */
	uint32_t attempt;         /* of the requester; answers carry it back */
	uint32_t psn;
	uint32_t status;          /* CM_REJ: why; CM_SIDR_REP */
	uint16_t ps, port;        /* requests: the service */
	uint8_t qp_type, dev, to_dev;
	struct rdma_ucm_conn_param p;
	struct rdma_ucm_ece ece;
	union cm_addr src, dst;
	struct ibv_path_record path;
};

enum cm_state { CM_IDLE, CM_BOUND, CM_ADDR_QUERY, CM_HAS_ADDR, CM_HAS_ROUTE, CM_CONNECT, CM_DISCONNECT, CM_LISTEN };

enum cm_conn {
	CM_NONE,                  /* no connection was tried */
	CM_REQ_SENT, CM_REQ_RCVD, CM_REP_SENT, CM_REP_RCVD, CM_UP, CM_DREQ_SENT, CM_DREQ_RCVD, CM_TIMEWAIT, CM_SIDR_SENT, CM_SIDR_RCVD,
	CM_OVER,
};

struct cm_file;

/* A membership of a group */
struct cm_mc {
	uint32_t num;
	uint64_t uid;
	uint32_t reported;
	struct cm_id *id;
	struct cm_mc *next;
};

struct cm_id {
	uint32_t num;
	struct cm_file *file;
	uint64_t uid;             /* 0: the program does not know it, so no event tells of it */
	uint32_t reported;        /* events that the program has got */
	struct cm_id *listener;   /* whose event, still unread, tells of this id; else NULL */
	uint32_t backlog;
	struct cm_mc *mcs;
	struct cm_id *next;

	uint16_t ps;
	uint8_t qp_type, tos, timeout;
	bool timeout_set, reuse, afonly, afonly_set;
	enum cm_state state;
	unsigned dev, rdev;       /* SD_NO_DEV: not known yet */
	union cm_addr src, dst;
	uint16_t bound_ps, port;  /* port 0: it holds none */
	unsigned record;          /* of its port in the fabric's file */
	bool has_path;
	struct ibv_path_record path;
	uint32_t qkey;

	enum cm_conn conn;
	unsigned slot;            /* the peer's process */
	uint64_t inst;
	uint32_t peer, attempt;
	uint32_t psn, peer_psn, peer_qpn;
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count;
	struct cm_msg *req;       /* CM_REQ_SENT, CM_SIDR_SENT */
	bool busy;                /* the listener's backlog was full */
	uint64_t due, resend;     /* 0: not */
	uint32_t qpn;             /* its own */
	uint64_t held;            /* CM_DISCONNECTED is told by then; 0: none is */
	int held_status;
};

/* ---- cm.c ---- */
int sd_cm_open(int flags);        /* takes sd_lock; an fd or -errno */
ssize_t sd_cm_write(int fd, const void *buf, size_t len); /* takes sd_lock; may sleep; bytes or -errno */
void sd_cm_closed(struct cm_file *f);
void sd_cm_forked(void);
struct cm_id *cm_id_next(struct cm_id *id);      /* of all ids; NULL: the first */
struct cm_id *cm_id_find(uint32_t num);
struct cm_id *cm_id_new(struct cm_file *file, uint16_t ps, uint8_t qp_type);
void cm_id_free(struct cm_id *id);               /* with what hangs on it; its connection is told */
/*
 * Queues an event. m: whose parameters it has, or NULL; room: bytes of private data that it shows
 */
void cm_event(struct cm_id *id, enum cm_event_type type, int status, const struct cm_msg *m, unsigned room);
int cm_request_event(struct cm_id *listener, struct cm_id *id, const struct cm_msg *m, unsigned room);
void cm_ah(const struct cm_id *id, struct ib_uverbs_ah_attr *ah);

/* ---- cmaddr.c ---- */
size_t cm_addr_size(const union cm_addr *a);     /* 0: an address family that is not known */
uint64_t cm_service(const struct cm_id *id, const union cm_addr *a);
int cm_bind(struct cm_id *id, const union cm_addr *a);
int cm_listen(struct cm_id *id);
void cm_unbind(struct cm_id *id);
int cm_resolve_addr(struct cm_id *id, const union cm_addr *src, const union cm_addr *dst, uint32_t ms);
void cm_addr_failed(struct cm_id *id, int status);
int cm_resolve_route(struct cm_id *id);
unsigned cm_gid_index(const struct cm_id *id);
int cm_group(const struct cm_id *id, const union cm_addr *a, uint8_t mgid[16], uint16_t *mlid);
/* Does that id listen there? */
bool cm_listens(const struct cm_id *id, const struct cm_msg *m);
/* The process that listens there: 0, or CM_REJ_* */
int cm_find_service(const struct cm_msg *m, unsigned *slot, uint64_t *inst);

/* ---- cmconn.c ---- */
/* sd_hooks */
void sd_cm_message(unsigned slot, uint64_t inst, const void *data, size_t len);
void sd_cm_peer_dead(unsigned slot, uint64_t inst);
void sd_cm_work(uint64_t now);
int cm_connect(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece);
int cm_accept(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece); /* p NULL: goes on */
int cm_reject(struct cm_id *id, uint8_t reason, const void *data, uint8_t len);
int cm_disconnect(struct cm_id *id);
int cm_notify(struct cm_id *id, uint32_t event);
int cm_qp_attr(struct cm_id *id, struct ib_uverbs_qp_attr *a);
void cm_set_qkey(struct cm_id *id);              /* unless it has one */
void cm_hang_up(struct cm_id *id);               /* it goes away */
void cm_timer(struct cm_id *id, uint64_t ns);    /* from now; 0: none */

#endif
