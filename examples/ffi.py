#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# ffi.py: loop.c in Python. One RDMA write, posted and polled through build/ffi/libinlay-ffi.so (make ffi); libibverbs sets up.
import ctypes
import os
import sys
import time
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

here = os.path.dirname(os.path.abspath(__file__))
inlay = ctypes.CDLL(os.environ.get("INLAY_FFI", os.path.join(here, "../build/ffi/libinlay-ffi.so")))
verbs = ctypes.CDLL("libibverbs.so.1")
RC, LOCAL_WRITE, REMOTE_WRITE = 2, 1, 2  # of verbs


class Cap(ctypes.Structure):
    _fields_ = [(name, c_uint32) for name in ("send_wr", "recv_wr", "send_sge", "recv_sge", "inline_data")]


class QpInit(ctypes.Structure):
    _fields_ = [("qp_context", c_void_p), ("send_cq", c_void_p), ("recv_cq", c_void_p), ("srq", c_void_p), ("cap", Cap),
                ("qp_type", c_int), ("sq_sig_all", c_int)]


class Mr(ctypes.Structure):
    _fields_ = [("context", c_void_p), ("pd", c_void_p), ("addr", c_void_p), ("length", c_size_t),
                ("handle", c_uint32), ("lkey", c_uint32), ("rkey", c_uint32)]


def must(good, what):
    if not good:
        sys.exit("ffi.py: %s failed%s" % (what, ": " + why.value.decode() if why.value else ""))
    return good


def function(library, name, result, *arguments):
    f = getattr(library, name)
    f.restype, f.argtypes = result, arguments
    return f


def constant(name):
    return c_uint32.in_dll(inlay, "inlay_ffi_" + name).value


objects = []


def new(name):
    """Returns the address of memory for an object of inlay's."""
    size = constant("sizeof_" + name)
    objects.append(ctypes.create_string_buffer(size + 63))
    return c_void_p(ctypes.addressof(objects[-1]) + 63 & ~63)


p = c_void_p
why = c_char_p()
reason = ctypes.POINTER(c_char_p)
open_device = function(inlay, "inlay_device_open", p, c_char_p, reason)
alloc_pd = function(verbs, "ibv_alloc_pd", p, p)
reg_mr = function(verbs, "ibv_reg_mr", ctypes.POINTER(Mr), p, p, c_size_t, c_int)
create_cq = function(verbs, "ibv_create_cq", p, p, c_int, p, p, c_int)
create_qp = function(verbs, "ibv_create_qp", p, p, ctypes.POINTER(QpInit))
uar_create = function(inlay, "inlay_uar_create", c_int, p, p, c_uint32, reason)
connect_pair = function(inlay, "inlay_connect_pair", c_int, p, p, p, reason)
cq_from_cq = function(inlay, "inlay_cq_from_cq", c_int, p, p, reason)
sq_from_qp = function(inlay, "inlay_sq_from_qp", c_int, p, p, p, p, reason)
post_write_inline = function(inlay, "inlay_post_write_inline", c_int, p, c_uint64, c_uint32, p, c_uint32, c_uint32)
ring = function(inlay, "inlay_sq_ring", None, p)
peek = function(inlay, "inlay_cq_peek", p, p)
is_error = function(inlay, "inlay_cqe_is_error", c_int, p)
release = function(inlay, "inlay_sq_release", c_int, p, p)
advance = function(inlay, "inlay_cq_advance", None, p, c_uint32)

# Set-up. The register comes first: a queue pair that is created in its PD rings it.
uar, cq, sq = new("uar"), new("cq"), new("sq")
target, value = c_uint64(0), c_uint64(0x1122334455667788)
ctx = must(open_device(None, byref(why)), "opening an mlx5 device")
pd = must(alloc_pd(ctx), "ibv_alloc_pd")
must(uar_create(uar, pd, constant("uar_serial"), byref(why)) == 0, "a doorbell register")
own_pd = p.from_address(uar.value + constant("uar_pd")).value
mr = must(reg_mr(pd, ctypes.addressof(target), 8, LOCAL_WRITE | REMOTE_WRITE), "ibv_reg_mr").contents
init = QpInit(cap=Cap(send_wr=16, send_sge=1, inline_data=64), qp_type=RC)
ibcq = must(create_cq(ctx, function(inlay, "inlay_send_cqes", c_uint32, p)(ctypes.addressof(init)), None, None, 0), "ibv_create_cq")
init.send_cq = init.recv_cq = ibcq
peer, qp = create_qp(pd, byref(init)), create_qp(own_pd, byref(init))
must(peer and qp, "ibv_create_qp")
must(connect_pair(qp, peer, None, byref(why)) == 0, "connecting")
must(cq_from_cq(cq, ibcq, byref(why)) == 0, "taking over the completion queue")
must(sq_from_qp(sq, qp, uar, cq, byref(why)) == 0, "taking over the send queue")

# The data path: post, ring, poll, release, advance.
must(post_write_inline(sq, ctypes.addressof(target), mr.rkey, ctypes.addressof(value), 8, constant("signaled")) == 0, "the post")
ring(sq)
end, cqe = time.monotonic() + 10, None
while not cqe:
    cqe = peek(cq)
    must(time.monotonic() < end, "waiting for the completion")
must(not is_error(cqe) and release(sq, cqe) > 0, "the write")
advance(cq, 1)
must(target.value == value.value, "finding the value")
print("ffi.py: wrote 0x%x and found it" % target.value)
