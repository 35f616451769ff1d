/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ffi.c: inlay.h as a shared object, for languages that cannot include it (make ffi). The caller's memory holds the objects: so many
 * bytes, at an address that is a multiple of 64.
 */
#define INLAY_FN
#include <inlay/inlay.h>

#define CONSTANT(name, value) const uint32_t inlay_ffi_##name = (value)
CONSTANT(sizeof_uar, sizeof(struct inlay_uar));
CONSTANT(sizeof_cq, sizeof(struct inlay_cq));
CONSTANT(sizeof_sq, sizeof(struct inlay_sq));
CONSTANT(sizeof_rq, sizeof(struct inlay_rq));
CONSTANT(sizeof_srq, sizeof(struct inlay_srq));
CONSTANT(uar_pd, offsetof(struct inlay_uar, pd));
CONSTANT(uar_serial, INLAY_UAR_SERIAL);
CONSTANT(uar_locked, INLAY_UAR_LOCKED);
CONSTANT(signaled, INLAY_SIGNALED);
CONSTANT(solicited, INLAY_SOLICITED);
CONSTANT(inline, INLAY_INLINE);
CONSTANT(ring, INLAY_RING);
