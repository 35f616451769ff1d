/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * calls.c: fi_tsend, fi_trecv, fi_send, fi_recv and their variants. Each becomes a set of flags and
 * continues in send.c or recv.c. Most short sends are done in fabric.h.
 */
#include "fabric.h"

#define BUF struct fid_ep *fid, const void *buf, size_t len
#define IOV struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count

/* ---- Tagged ---- */

CALL(tsend, (BUF, void *desc, fi_addr_t dest, uint64_t tag, void *context),
     send_one(fid, FLAG_TAGGED, buf, len, desc, dest, tag, 0, context, 0))
CALL(tsenddata, (BUF, void *desc, uint64_t data, fi_addr_t dest, uint64_t tag, void *context),
     send_one(fid, FLAG_TAGGED | FLAG_DATA, buf, len, desc, dest, tag, data, context, 0))
CALL(tinject, (BUF, fi_addr_t dest, uint64_t tag), send_one(fid, FLAG_TAGGED, buf, len, NULL, dest, tag, 0, NULL, 1))
CALL(tinjectdata, (BUF, uint64_t data, fi_addr_t dest, uint64_t tag),
     send_one(fid, FLAG_TAGGED | FLAG_DATA, buf, len, NULL, dest, tag, data, NULL, 1))
CALL(tsendv, (IOV, fi_addr_t dest, uint64_t tag, void *context),
     send_iov(fid, iov, desc, count, dest, tag, 0, context, OF_ENDPOINT | FI_TAGGED))
CALL(tsendmsg, (struct fid_ep *fid, const struct fi_msg_tagged *m, uint64_t flags),
     send_iov(fid, m->msg_iov, m->desc, m->iov_count, m->addr, m->tag, m->data, m->context, flags | FI_TAGGED))
CALL(trecvv, (IOV, fi_addr_t source, uint64_t tag, uint64_t ignore, void *context),
     recv_iov(fid, iov, desc, count, source, tag, ignore, context, OF_ENDPOINT | FI_TAGGED))
CALL(trecvmsg, (struct fid_ep *fid, const struct fi_msg_tagged *m, uint64_t flags),
     recv_iov(fid, m->msg_iov, m->desc, m->iov_count, m->addr, m->tag, m->ignore, m->context, flags | FI_TAGGED))

struct fi_ops_tagged tagged_ops = {sizeof(struct fi_ops_tagged), recv_tagged, trecvv, trecvmsg, tsend, tsendv,
	tsendmsg, tinject, tsenddata, tinjectdata};

/* ---- Without a tag ---- */

CALL(msg_send, (BUF, void *desc, fi_addr_t dest, void *context), send_one(fid, 0, buf, len, desc, dest, 0, 0, context, 0))
CALL(msg_senddata, (BUF, void *desc, uint64_t data, fi_addr_t dest, void *context),
     send_one(fid, FLAG_DATA, buf, len, desc, dest, 0, data, context, 0))
CALL(msg_inject, (BUF, fi_addr_t dest), send_one(fid, 0, buf, len, NULL, dest, 0, 0, NULL, 1))
CALL(msg_injectdata, (BUF, uint64_t data, fi_addr_t dest), send_one(fid, FLAG_DATA, buf, len, NULL, dest, 0, data, NULL, 1))
CALL(msg_sendv, (IOV, fi_addr_t dest, void *context),
     send_iov(fid, iov, desc, count, dest, 0, 0, context, OF_ENDPOINT | FI_MSG))
CALL(msg_sendmsg, (struct fid_ep *fid, const struct fi_msg *m, uint64_t flags),
     send_iov(fid, m->msg_iov, m->desc, m->iov_count, m->addr, 0, m->data, m->context, flags | FI_MSG))
CALL(msg_recv, (struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t source, void *context),
     recv_iov(fid, &(struct iovec){buf, len}, &desc, 1, source, 0, 0, context, OF_ENDPOINT | FI_MSG))
CALL(msg_recvv, (IOV, fi_addr_t source, void *context),
     recv_iov(fid, iov, desc, count, source, 0, 0, context, OF_ENDPOINT | FI_MSG))
CALL(msg_recvmsg, (struct fid_ep *fid, const struct fi_msg *m, uint64_t flags),
     recv_iov(fid, m->msg_iov, m->desc, m->iov_count, m->addr, 0, 0, m->context, flags | FI_MSG))

struct fi_ops_msg msg_ops = {sizeof(struct fi_ops_msg), msg_recv, msg_recvv, msg_recvmsg, msg_send, msg_sendv,
	msg_sendmsg, msg_inject, msg_senddata, msg_injectdata};
