/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fwqueue.h: what the firmware's files for queues share.
 *
 *   fwcq.c    CQ
 *   fwqp.c    QP and its transitions
 *   fwsrq.c   shared receive queues: RMP, XRQ, XRC SRQ
 *   fwdct.c   DCT
 *   fweth.c   SQ, RQ, TIS, TIR, RQT
 */
#ifndef SOFTDEV_FWQUEUE_H
#define SOFTDEV_FWQUEUE_H

#include <endian.h>
#include "firmware.h"

/* A field of a context; lists of them end with width 0 */
struct sd_field {
	uint16_t bit;
	uint8_t width;
};

static inline bool sd_fields_clear(const uint8_t *box, const struct sd_field *f)
{
	while (f->width && sd_clear(box, f->bit, f->width))
		f++;
	return !f->width;
}

static inline void sd_fields_copy(uint8_t *to, const uint8_t *from, const struct sd_field *f)
{
	for (; f->width; f++)
		sd_set(to, f->bit, f->width, sd_get(from, f->bit, f->width));
}

extern const struct sd_devx_op sd_fw_cq_ops[], sd_fw_qp_ops[], sd_fw_srq_ops[], sd_fw_dct_ops[], sd_fw_eth_ops[];

/* ---- fwsrq.c: the context that SQ, RQ, RMP and XRQ share ---- */
enum { SD_WQ_LINKED, SD_WQ_CYCLIC, SD_WQ_LINKED_STRIDING, SD_WQ_CYCLIC_STRIDING };
struct sd_fw_wq {
	unsigned type;            /* one of those */
	struct sd_strides strides;
	unsigned log_stride, log_size; /* bytes of an entry, entries */
	uint8_t *buf;
	volatile uint32_t *dbrec; /* [0] receive, [1] send */
	struct sd_umem *umem[2];  /* of the ring, of the record; each with a reference */
};
/* types: those that may be, one bit each */
uint8_t sd_fw_wq(struct sd_devx_cmd *c, const uint8_t *wq, unsigned types, unsigned min_stride, unsigned max_stride, struct sd_fw_wq *q);
void sd_fw_strides(uint8_t *wq, const struct sd_strides *s);
void sd_fw_wq_put(struct sd_fw_wq *q);
void sd_fw_wq_keep(uint8_t *kept, const uint8_t *wq); /* what a query tells as it was given */

/* ---- fwqp.c ---- */
bool sd_fw_mtu_ok(uint32_t mtu);
uint32_t sd_fw_max_atomic(unsigned mode); /* bytes of an extended atomic; 0: none */

#endif
