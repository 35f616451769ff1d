/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * holds.h: makes the first hold_* destroy calls fail; gone_* counts the successful ones.
 */
#ifndef TESTS_TASK_HOLDS_H
#define TESTS_TASK_HOLDS_H

#include "common.h"
#include "next.h"

#define HOLDS(call, type, hold, gone)                       \
	static uint32_t hold, gone;                         \
	int call(struct type *object)                       \
	{                                                   \
		int err;                                    \
                                                            \
		if (hold) {                                 \
			hold--;                             \
			return EBUSY;                       \
		}                                           \
		err = NEXT(call)(object);                   \
		gone += !err;                               \
		return err;                                 \
	}

HOLDS(ibv_destroy_qp, ibv_qp, hold_qp, gone_qp)
HOLDS(ibv_destroy_cq, ibv_cq, hold_cq, gone_cq)
HOLDS(ibv_dereg_mr, ibv_mr, hold_mr, gone_mr)

#endif
