/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stubs.h: operations that this provider lacks and that libfabric calls without a check for NULL.
 * Each returns -FI_ENOSYS. For the others, which stay NULL, libfabric returns it by itself.
 */
#define NO(type, name, ...) static inline type name(__VA_ARGS__) { return -FI_ENOSYS; }

NO(int, no_bind, struct fid *fid, struct fid *other, uint64_t flags)
NO(int, no_control, struct fid *fid, int command, void *arg)
NO(int, no_ops_open, struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
NO(int, no_passive_ep, struct fid_fabric *fid, struct fi_info *info, struct fid_pep **pep, void *context)
NO(int, no_wait_open, struct fid_fabric *fid, struct fi_wait_attr *attr, struct fid_wait **wait)
NO(int, no_scalable_ep, struct fid_domain *fid, struct fi_info *info, struct fid_ep **ep, void *context)
NO(int, no_poll_open, struct fid_domain *fid, struct fi_poll_attr *attr, struct fid_poll **poll)
NO(int, no_stx_ctx, struct fid_domain *fid, struct fi_tx_attr *attr, struct fid_stx **stx, void *context)
NO(int, no_srx_ctx, struct fid_domain *fid, struct fi_rx_attr *attr, struct fid_ep **ep, void *context)
NO(int, no_insertsvc, struct fid_av *fid, const char *node, const char *service, fi_addr_t *addr, uint64_t flags,
   void *context)
NO(int, no_insertsym, struct fid_av *fid, const char *node, size_t nodes, const char *service, size_t services,
   fi_addr_t *addr, uint64_t flags, void *context)
NO(int, no_tx_ctx, struct fid_ep *fid, int index, struct fi_tx_attr *attr, struct fid_ep **tx, void *context)
NO(int, no_rx_ctx, struct fid_ep *fid, int index, struct fi_rx_attr *attr, struct fid_ep **rx, void *context)
NO(ssize_t, no_size_left, struct fid_ep *fid)
NO(int, no_setname, fid_t fid, void *addr, size_t len)
NO(int, no_getpeer, struct fid_ep *fid, void *addr, size_t *len)
NO(int, no_connect, struct fid_ep *fid, const void *addr, const void *param, size_t len)
NO(int, no_accept, struct fid_ep *fid, const void *param, size_t len)
NO(int, no_shutdown, struct fid_ep *fid, uint64_t flags)
NO(ssize_t, no_eq_write, struct fid_eq *fid, uint32_t event, const void *buf, size_t len, uint64_t flags)
