#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check.py FILE: encodes each WQE and doorbell of a file of golden bytes from its meaning, decodes each completion,
and compares (README.md). Only the standard library; it shares nothing with inlay or libmlx5."""
import struct
import sys

OPCODES = {'SEND_INVAL': 0x01, 'RDMA_WRITE': 0x08, 'RDMA_WRITE_IMM': 0x09, 'SEND': 0x0a, 'SEND_IMM': 0x0b,
           'RDMA_READ': 0x10, 'ATOMIC_CS': 0x11, 'ATOMIC_FA': 0x12, 'MASKED_CS': 0x14, 'MASKED_FA': 0x15,
           'TSO': 0x0e, 'UMR': 0x25}
# Of a key: IBV_ACCESS_LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, and what a UMR changes: free, these, number, length
ACCESS, CHANGED = (8, 0x20, 0x10, 0x40), 1 << 29 | 15 << 18 | 1 << 13 | 1
OPERANDS = ('swap', 'compare', 'swap_mask', 'compare_mask', 'add', 'boundary')
# IBV_WC_*: what a send's completion is called, by the WQE's opcode; a receive's, by the CQE's
SENT = {0x01: 0, 0x08: 1, 0x09: 1, 0x0a: 0, 0x0b: 0, 0x10: 2, 0x11: 3, 0x12: 4}
RECEIVED = {1: 129, 2: 128, 3: 128, 4: 128}
# IBV_WC_*_ERR by syndrome
STATUS = {0x01: 1, 0x02: 2, 0x04: 4, 0x05: 5, 0x06: 6, 0x10: 7, 0x11: 8, 0x12: 9, 0x13: 10, 0x14: 11, 0x15: 12,
          0x16: 13, 0x22: 16}


def number(m, key):
    return int(m[key], 0)


def data(sge):
    """A data segment: count, key, address."""
    addr, length, lkey = (int(x, 0) for x in sge.split(":"))
    return struct.pack('>IIQ', length, lkey, addr)


def sges(m):
    return b''.join(data(s) for s in m['sge'].split(',')) if 'sge' in m else b''


def umr(m):
    """The change, the key's context, and its entries in units of four."""
    entries = sges(m)
    entries += bytes(-len(entries) % 64)
    length = sum(int(x.split(':')[1]) for x in m['sge'].split(','))
    access = sum(bit for i, bit in enumerate(ACCESS) if number(m, 'access') >> i & 1)
    return struct.pack('>B3xHHQ32x', 0x80, len(entries) // 16, 0, CHANGED) + \
        struct.pack('>2xBxI16xQ32x', access, 0xffffff00 | number(m, 'mkey') & 0xff, length) + entries


def ethernet(m):
    """Checksums of IP and of what it carries, segment size, the header's length and bytes."""
    length, seed = (int(x) for x in m.get('header', '0@0').split('@'))
    body = struct.pack('>4xBxH4xH', 0xc0 * number(m, 'checksums'), int(m.get('mss', 0)), length)
    body += bytes((seed + 7 * i) & 255 for i in range(length))
    return body + bytes(-len(body) % 16)


def destination(m):
    if 'srqn' in m:
        return struct.pack('>I12x', number(m, 'srqn'))
    if 'sl' not in m:
        return b''
    if 'qkey' in m:
        key, to = struct.pack('>I4x', number(m, 'qkey')), number(m, 'to_qpn')
    else:
        key, to = struct.pack('>Q', number(m, 'dc_key')), number(m, 'to_dctn')
    av = key + struct.pack('>IBBH', 1 << 31 | to, number(m, 'sl'), number(m, 'path_bits'), number(m, 'dlid'))
    if 'gid' not in m:
        return av + bytes(32)
    return av + struct.pack('>10xBBI', number(m, 'tclass'), number(m, 'hops'), 1 << 30 | number(m, 'flow')) \
        + bytes.fromhex(m['gid'])


def wqe(m):
    modifier, body = 0, ethernet(m) if 'checksums' in m else destination(m)
    if 'raddr' in m:
        body += struct.pack('>QII', number(m, 'raddr'), number(m, 'rkey'), 0)
    if m['op'].startswith('MASKED'):
        size = int(m['sge'].split(':')[1])
        modifier = (8 | size // 8) << 24
        body += b''.join(number(m, k).to_bytes(size, 'big') for k in OPERANDS if k in m)
        body += bytes(-len(body) % 16)
    elif 'swap' in m:
        body += struct.pack('>QQ', number(m, 'swap'), number(m, 'compare'))
    elif 'add' in m:
        body += struct.pack('>QQ', number(m, 'add'), 0)
    if 'inline' in m:
        length, seed = (int(x) for x in m['inline'].split('@'))
        payload = bytes((seed + 7 * i) & 255 for i in range(length))
        if length:
            body += struct.pack('>I', 1 << 31 | length) + payload
            body += bytes(-len(body) % 16)
    body += umr(m) if 'mkey' in m else sges(m)
    flags = (number(m, 'fence') * 4 + int(m.get('small_fence', 0))) << 5 | number(m, 'signaled') * 2 << 2 | number(m, 'solicited') << 1
    imm = int(m.get('imm', m.get('invalidate', m.get('mkey', '0'))), 0)
    ds = 1 + len(body) // 16
    return struct.pack('>IIII', modifier | number(m, 'index') << 8 | OPCODES[m['op']], number(m, 'qpn') << 8 | ds, flags, imm) + body


def receive(m):
    link = struct.pack('>HH12x', 0, number(m, 'next')) if 'next' in m else b''
    body = sges(m)
    room = 16 * number(m, 'room')
    if len(body) < room:
        body += struct.pack('>IIQ', 0, 0x100, 0)
    return link + body + bytes(room - len(body))


def completion(m, b):
    """Compares what the bytes say with the meaning. Returns what is wrong, or None."""
    qword, = struct.unpack('>Q', b[24:32])
    opcode, index, entries = b[63] >> 4, number(m, 'index'), number(m, 'entries')
    want = {'index': index, 'entries': entries, 'status': 0}
    if b[63] & 1 != index // entries & 1:
        return 'the owner bit'
    if opcode >= 13:
        want.update(status=STATUS.get(b[55]), vendor=b[54])
    elif opcode == 0:
        want['opcode'] = SENT.get(b[56])
        if b[56] == 0x10:
            want['bytes_moved'] = int.from_bytes(b[44:48], 'big')
        elif b[56] > 0x10:
            want['bytes_moved'] = 8
    else:
        want.update(opcode=RECEIVED.get(opcode), bytes_moved=int.from_bytes(b[44:48], 'big'), source=qword >> 32 & 0xffffff,
                    grh=int(b[24] >> 4 & 3 != 0), slid=int.from_bytes(b[22:24], 'big'), sl=b[24] & 15, path_bits=b[17] & 0x7f)
        if opcode == 1 or opcode == 3:
            want['imm'] = int.from_bytes(b[36:40], 'big')
        if opcode == 4:
            want['invalidated'] = int.from_bytes(b[36:40], 'big')
    found = {k: int(v, 0) for k, v in m.items() if k != 'bytes'}
    return None if want == found else 'the bytes mean %s' % want


def matches(want, text):
    """text: hex, with .. for a byte that the writer left alone."""
    return len(text) == 2 * len(want) and all(t in ('..', '%02x' % w) for t, w in
                                             zip((text[i:i + 2] for i in range(0, len(text), 2)), want))


def doorbell(m, last):
    """The record, and the register's first 8 bytes: those of the last WQE, or for arming a CQ record and number."""
    word = number(m, 'next') & (0xffff if m['queue'] in ('send', 'receive') else 0xffffff)
    if m['queue'] == 'arm':
        word |= number(m, 'solicited') << 24
    record = struct.pack('>I', word)
    if m['queue'] == 'send':
        return record, last[:8]
    if m['queue'] == 'arm':
        return record, record + struct.pack('>I', number(m, 'cqn'))
    return record, None


def main():
    counts, bad, last = {}, 0, b''
    for line_number, line in enumerate(open(sys.argv[1], encoding='ascii'), 1):
        words = line.split()
        if not words or words[0].startswith('#'):
            continue
        kind, m, wrong = words[0], dict(w.split('=', 1) for w in words[1:]), None
        counts[kind] = counts.get(kind, 0) + 1
        if kind == 'cqe':
            wrong = completion(m, bytes.fromhex(m['bytes']))
        elif kind == 'doorbell':
            record, register = doorbell(m, last)
            if not matches(record, m['record']) or (register is not None and not matches(register, m['register'])):
                wrong = 'expected %s %s' % (record.hex(), register.hex() if register else '')
        else:
            last = (wqe if kind == 'wqe' else receive)(m)
            if not matches(last, m['bytes']):
                wrong = 'expected %s' % last.hex()
        if wrong:
            print('line %d: %s\n  %s' % (line_number, wrong, line.strip()))
            bad += 1
    print(', '.join('%d %s' % (counts[k], k) for k in sorted(counts)) + ', %d wrong' % bad)
    return bad != 0 or not counts


sys.exit(main())
