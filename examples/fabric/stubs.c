/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stubs.c: what libfabric asks of every object and this provider does not have. Callers of libfabric do
 * not test function pointers for NULL, so each one exists and says -FI_ENOSYS.
 */
#include "fabric.h"
#include <rdma/fi_collective.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define NO(type, name, ...)                     \
	type name(__VA_ARGS__)                  \
	{                                       \
		return -FI_ENOSYS;              \
	}                                       \
	struct stubs_end_with_a_semicolon_

#include "stubs.h"

/* ---- Collectives ---- */

NO(static ssize_t, no_barrier, struct fid_ep *ep, fi_addr_t coll, void *context);
NO(static ssize_t, no_barrier2, struct fid_ep *ep, fi_addr_t coll, uint64_t flags, void *context);
NO(static ssize_t, no_broadcast, struct fid_ep *ep, void *buf, size_t count, void *desc, fi_addr_t coll, fi_addr_t root,
   enum fi_datatype type, uint64_t flags, void *context);
NO(static ssize_t, no_gather, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
   void *result_desc, fi_addr_t coll, enum fi_datatype type, uint64_t flags, void *context);
NO(static ssize_t, no_reduce, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
   void *result_desc, fi_addr_t coll, enum fi_datatype type, enum fi_op op, uint64_t flags, void *context);
NO(static ssize_t, no_rooted_reduce, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
   void *result_desc, fi_addr_t coll, fi_addr_t root, enum fi_datatype type, enum fi_op op, uint64_t flags,
   void *context);
NO(static ssize_t, no_rooted, struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
   void *result_desc, fi_addr_t coll, fi_addr_t root, enum fi_datatype type, uint64_t flags, void *context);
NO(static ssize_t, no_collective_msg, struct fid_ep *ep, const struct fi_msg_collective *msg, struct fi_ioc *result,
   void **result_desc, size_t result_count, uint64_t flags);

struct fi_ops_collective no_collective = {
	sizeof(struct fi_ops_collective), no_barrier, no_broadcast, no_gather, no_reduce, no_gather, no_reduce,
	no_rooted_reduce, no_rooted, no_rooted, no_collective_msg, no_barrier2,
};
