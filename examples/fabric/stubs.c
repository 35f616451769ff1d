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

/* ---- Every object ---- */

NO(int, no_bind, struct fid *fid, struct fid *other, uint64_t flags);
NO(int, no_control, struct fid *fid, int command, void *arg);
NO(int, no_ops_open, struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);
NO(int, no_ops_set, struct fid *fid, const char *name, uint64_t flags, void *ops, void *context);
NO(int, no_tostr, const struct fid *fid, char *buf, size_t len);

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

/* ---- Connections: an endpoint of this kind has none that the application sees ---- */

NO(int, no_setname, fid_t fid, void *addr, size_t len);
NO(int, no_getpeer, struct fid_ep *ep, void *addr, size_t *len);
NO(int, no_connect, struct fid_ep *ep, const void *addr, const void *param, size_t len);
NO(int, no_listen, struct fid_pep *pep);
NO(int, no_accept, struct fid_ep *ep, const void *param, size_t len);
NO(int, no_reject, struct fid_pep *pep, fid_t handle, const void *param, size_t len);
NO(int, no_shutdown, struct fid_ep *ep, uint64_t flags);
NO(int, no_join, struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context);

/* ---- What a fabric and a domain could open ---- */

NO(int, no_passive_ep, struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context);
NO(int, no_wait_open, struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **wait);
NO(int, no_scalable_ep, struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
NO(int, no_poll_open, struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **poll);
NO(int, no_stx_ctx, struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx, void *context);
NO(int, no_srx_ctx, struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **ep, void *context);
NO(int, no_query_collective, struct fid_domain *domain, enum fi_collective_op op, struct fi_collective_attr *attr,
   uint64_t flags);

/* ---- Address vectors and endpoints ---- */

NO(int, no_insertsvc, struct fid_av *av, const char *node, const char *service, fi_addr_t *addr, uint64_t flags,
   void *context);
NO(int, no_insertsym, struct fid_av *av, const char *node, size_t nodes, const char *service, size_t services,
   fi_addr_t *addr, uint64_t flags, void *context);
NO(int, no_av_set, struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **set, void *context);
NO(int, no_tx_ctx, struct fid_ep *ep, int index, struct fi_tx_attr *attr, struct fid_ep **tx, void *context);
NO(int, no_rx_ctx, struct fid_ep *ep, int index, struct fi_rx_attr *attr, struct fid_ep **rx, void *context);
NO(ssize_t, no_size_left, struct fid_ep *ep);
