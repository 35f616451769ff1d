/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * firmware.h: device commands (DEVX): what the files of the two halves share.
 *
 *   the kernel     devx.c    the uverbs methods: allowed opcodes, ids, forced bits, errors
 *                  devxfd.c  asynchronous queries and events: the files that programs read
 *   the firmware   fw.c      dispatch by opcode; PD, XRCD, transport domain, counters, queries
 *                  fwcap.c   QUERY_HCA_CAP
 *                  fwmkey.c  MKEY, cross-VHCA alias
 *                  umem.c    memory that commands name
 *                  queues    see fwqueue.h
 *
 * A command reaches the firmware with its inbox as the kernel passed it. The handler is found by
 * opcode. Its boxes are at least as long as its entry says, so it may use that much of them without
 * a check; for the rest it must look at the lengths. It returns a status: SD_ST_OK, or the value of
 * sd_devx_fail(). All with sd_lock held.
 *
 * Field places are in bits from the start of a box or context. Bit 0 is the most significant of
 * byte 0. All fields are big-endian.
 */
#ifndef SOFTDEV_DEVX_H
#define SOFTDEV_DEVX_H

#include "../kernel/cmd.h"

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

struct sd_devx_obj;

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
 * Something happened to an object: to all who subscribed. type is the EQE's (MLX5_EVENT_TYPE_*:
 * 0x13 last WQE reached and so on); the syndrome is that of a CQ error. Nothing for o NULL, which
 * is what a verbs object has. sd_async_qp(), sd_async_cq(), sd_async_srq() and sd_cq_event()
 * already end here when host_qp.devx and its like are set.
 */
void sd_devx_event(struct sd_devx_obj *o, uint16_t type, uint8_t syndrome);
uint16_t sd_devx_event_type(enum ibv_event_type type); /* the same as an EQE has it */

/*
 * What a command names, when it is there and of the caller's uid; else NULL, to be answered by
 * SD_ST_BAD_RES
 */
struct sd_pd *sd_devx_pd(const struct sd_devx_cmd *c, uint32_t pdn);
struct sd_cq *sd_devx_cq(const struct sd_devx_cmd *c, uint32_t cqn);
struct sd_srq *sd_devx_srq(const struct sd_devx_cmd *c, uint32_t srqn);
struct sd_qp *sd_devx_qp(const struct sd_devx_cmd *c, uint32_t qpn);
struct sd_uar *sd_devx_uar(const struct sd_devx_cmd *c, uint32_t page_id); /* with a reference, for sd_uar_put() */
bool sd_fw_event_ok(uint16_t type, const struct sd_devx_obj *o); /* may it be subscribed to? */
bool sd_devx_eqn(uint32_t eqn);   /* is it that of a completion EQ? (the kernel asked already at CREATE_CQ) */
#define SD_FIRST_EQN 0x10u        /* of completion vector 0 */

/* XRC domains, transport domains and their like are numbers with a count of their users; fw.c */
struct sd_domain {
	struct sd_ctx *ctx;
	unsigned kind;
	uint32_t number;
	struct sd_pd *pd;         /* of those that have one */
	struct sd_psv psv;
	struct sd_counters counters;
	int refs;
};
struct sd_domain *sd_devx_xrcd(const struct sd_devx_cmd *c, uint32_t xrcd);
struct sd_domain *sd_devx_td(const struct sd_devx_cmd *c, uint32_t td);

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
int sd_umem_free(struct sd_umem *u); /* 0, or EBUSY */

/* ---- between the kernel's half, the firmware's and objects.c ---- */

uint8_t sd_fw_query_hca_cap(struct sd_devx_cmd *c);
uint8_t sd_fw_run(struct sd_devx_cmd *c); /* writes the outbox; returns the status that it wrote */
int sd_devx_errno(uint8_t status);        /* as the kernel maps it for its own commands */
int sd_devx_free(struct sd_devx_obj *o);  /* 0 or a positive errno */
void sd_devx_drop(struct sd_devx_obj *o); /* its subscriptions */

/* ---- devxfd.c ---- */
struct sd_devx_file *sd_devx_file_get(struct sd_ctx *ctx, int fd, bool commands);
int sd_devx_file_new(struct sd_ctx *ctx, bool commands, bool omit_data, int *fd);
int sd_devx_file_async(struct sd_devx_file *f, uint64_t wr_id, const uint8_t *out, size_t outlen);
bool sd_devx_file_room(const struct sd_devx_file *f, size_t outlen);
int sd_devx_subscribe(struct sd_devx_file *f, struct sd_devx_obj *o, const uint16_t *types, unsigned n, uint64_t cookie, int eventfd);

#endif
