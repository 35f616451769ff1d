/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stubs.h: the functions that only say -FI_ENOSYS: declared by fabric.h, defined by stubs.c.
 */
NO(int, no_bind, struct fid *fid, struct fid *other, uint64_t flags);
NO(int, no_control, struct fid *fid, int command, void *arg);
NO(int, no_ops_open, struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);
NO(int, no_ops_set, struct fid *fid, const char *name, uint64_t flags, void *ops, void *context);
NO(int, no_tostr, const struct fid *fid, char *buf, size_t len);
NO(int, no_setname, fid_t fid, void *addr, size_t len);
NO(int, no_getpeer, struct fid_ep *ep, void *addr, size_t *len);
NO(int, no_connect, struct fid_ep *ep, const void *addr, const void *param, size_t len);
NO(int, no_listen, struct fid_pep *pep);
NO(int, no_accept, struct fid_ep *ep, const void *param, size_t len);
NO(int, no_reject, struct fid_pep *pep, fid_t handle, const void *param, size_t len);
NO(int, no_shutdown, struct fid_ep *ep, uint64_t flags);
NO(int, no_join, struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc, void *context);
NO(int, no_passive_ep, struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context);
NO(int, no_wait_open, struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **wait);
NO(int, no_scalable_ep, struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
NO(int, no_poll_open, struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **poll);
NO(int, no_stx_ctx, struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx, void *context);
NO(int, no_srx_ctx, struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **ep, void *context);
NO(int, no_query_collective, struct fid_domain *domain, enum fi_collective_op op, struct fi_collective_attr *attr,
   uint64_t flags);
NO(int, no_insertsvc, struct fid_av *av, const char *node, const char *service, fi_addr_t *addr, uint64_t flags,
   void *context);
NO(int, no_insertsym, struct fid_av *av, const char *node, size_t nodes, const char *service, size_t services,
   fi_addr_t *addr, uint64_t flags, void *context);
NO(int, no_av_set, struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **set, void *context);
NO(int, no_tx_ctx, struct fid_ep *ep, int index, struct fi_tx_attr *attr, struct fid_ep **tx, void *context);
NO(int, no_rx_ctx, struct fid_ep *ep, int index, struct fi_rx_attr *attr, struct fid_ep **rx, void *context);
NO(ssize_t, no_size_left, struct fid_ep *ep);
