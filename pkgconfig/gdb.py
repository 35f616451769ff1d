# SPDX-License-Identifier: BSD-3-Clause
# gdb: `source PREFIX/share/gdb/inlay.py`, and a queue, a register or a CQE prints as a line that says how it stands. print/r shows the
# fields.
import gdb


def count(number, what):
    return "%d %s%s" % (number, what, "" if number == 1 else "s")


def uar(v):
    mode = int(v["mode"])
    name = ("doorbells only", "serial", "locked")[mode & 0xff]
    return "%s%s, BlueFlame of %d bytes, %s" % (name, ", full fence" if mode >> 8 else "", int(v["size"]), count(int(v["queues"]), "queue"))


def sq(v):
    mask, pending = int(v["mask"]), int(v["pending"])
    return "QPN 0x%06x, %s: %d pending, %d of them not rung, %d free; the next has index %d" % (
        int(v["qpn8"]) >> 8, count(mask + 1, "WQEBB"), pending, int(v["unrung"]), mask + 1 - pending, int(v["pi"]))


def rq(v):
    room = (int(v["limit"]) - int(v["pi"])) & 0xffffffff
    return "%s of %d bytes: %d posted, %d free; the next has index %d" % (
        count(int(v["mask"]) + 1, "WQE"), int(v["stride"]), int(v["most"]) - room, room, int(v["pi"]))


def srq(v):
    cnt, room = int(v["wqe_cnt"]), int(v["room"])
    return "%s of %d bytes: %d posted, %d free; the next is entry %d" % (
        "%d entries" % cnt, int(v["stride"]), cnt - room, room, int(v["head"]))


def cq(v):
    mask, stride, ci = int(v["mask"]), int(v["stride"]), int(v["ci"])
    slot = (v["begin"] + (ci & mask) * stride).cast(gdb.lookup_type("struct mlx5_cqe64").pointer()).dereference()
    return "CQN 0x%06x, %s of %d bytes, %d reserved: %d freed; the next slot: %s" % (
        int(v["cqn"]), count(mask + 1, "CQE"), stride, int(v["reserved"]), ci, cqe(slot))


kinds = {0: "send", 1: "receive of a write with immediate", 2: "receive", 3: "receive with immediate", 4: "receive with invalidate", 5: "resize",
         6: "no packet", 7: "signature error", 13: "send in error", 14: "receive in error", 15: "never written"}


def big(value, size):
    return int.from_bytes(int(value).to_bytes(size, "little"), "big")


def cqe(v):
    owned = int(v["op_own"])
    kind = kinds.get(owned >> 4, "opcode 0x%x" % (owned >> 4))
    if owned >> 4 == 15:
        return kind
    return "%s, owner bit %d, QPN 0x%06x, index %d, %d bytes" % (
        kind, owned & 1, big(v["sop_drop_qpn"], 4) & 0xffffff, big(v["wqe_counter"], 2), big(v["byte_cnt"], 4))


says = {"inlay_uar": uar, "inlay_sq": sq, "inlay_rq": rq, "inlay_srq": srq, "inlay_cq": cq, "mlx5_cqe64": cqe}


class Printer:
    def __init__(self, value, say):
        self.value = value
        self.say = say

    def to_string(self):
        return self.say(self.value)


def lookup(value):
    say = says.get(value.type.strip_typedefs().unqualified().tag)
    return Printer(value, say) if say else None


gdb.pretty_printers.append(lookup)
