/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * softdev.h: what a program started by tests/softdev/run can ask of the software mlx5 device beside verbs.
 *
 * All functions are weak: on a real device, or without the preloaded object, they are NULL; softdev_present() tells. They
 * may be called from any thread. The numbers (qpn, cqn) are the device's: ibv_qp.qp_num, mlx5dv_cq.cqn.
 *
 * There are one to eight devices (SOFTDEV_DEVICES, or run --devices), each with one port, number 1, as each function of a ConnectX has: the
 * second port of a card is a device of its own.
 *
 * Device commands (DEVX) are there unless SOFTDEV_DEVX=0 (run --no-devx) says no: then contexts open without, as on a kernel whose
 * firmware has no user contexts.
 *
 * A stepped device (softdev_manual(1) before the first ibv_open_device, or run --manual) has no engine thread: nothing
 * is executed or completed except in the calls below, in the caller's thread, so each step is deterministic.
 *
 * A trapping device (SOFTDEV_TRAP=1, or run --trap; x86-64) has no engine thread either: the store to a doorbell page is what makes it
 * work, at once and in the thread that stores. A doorbell makes it read the record of the QP that it names, and of no other; an
 * arm, that of its CQ. So a path that forgets to ring, or rings before it writes the record, gets nowhere, and what was never rung
 * is told on stderr when the QP is reset or destroyed, or the program ends. No time passes on it: what has to wait (RNR, nobody
 * there, a message that is delayed) and receives that are posted to a QP in error, for which there is no doorbell, are looked at again
 * at the next store to any register of a doorbell page, at the next change of a QP's state, and in softdev_run(). Each of these
 * counts as one retry. It reaches nobody but its own process. SIGSEGV and SIGTRAP cannot be blocked on it; a debugger that steps
 * through a store to a doorbell page is not for it.
 */
#ifndef SOFTDEV_H
#define SOFTDEV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOFTDEV_WEAK __attribute__((weak, visibility("default")))

/*
 * Chooses the stepped (1) or the engine-driven (0) device, which SOFTDEV_TRAP=1 makes a trapping one; before the first open. Returns 0, or
 * -EBUSY once one is open.
 */
SOFTDEV_WEAK int softdev_manual(int on);

/*
 * Stepped device: executes up to n send WQEs that the doorbell record of qpn shows (of all QPs, round robin, when qpn is 0),
 * moving their data, and holds their CQEs back. A WQE that cannot proceed (RNR, fence, flush) stops its QP only.
 * Returns the number executed, -ENOENT for no such QP, -EPERM when the device is not stepped.
 */
SOFTDEV_WEAK int softdev_execute(uint32_t qpn, unsigned n);

/* Stepped device: delivers up to n of the CQEs held back for cqn (all CQs when 0). Returns the number delivered, or as above. */
SOFTDEV_WEAK int softdev_complete(uint32_t cqn, unsigned n);

/*
 * Stepped device: execute and complete until nothing is left to do. Returns the number of send WQEs executed, -EPERM when the device is not
 * stepped. Trapping device: the same for what was rung; the other calls of a stepped device answer -EPERM there.
 */
SOFTDEV_WEAK int softdev_run(void);

/*
 * Puts n CQEs into cqn as the device's producer would: each is a copy of the 64 bytes at cqe64 with its owner bit set for
 * the slot it lands in (body first, owner last) and, from the second on, wqe_counter raised by step. Works on a stepped and
 * on an engine-driven device. With a 128-byte CQ the first half of each slot is left alone. Cheap: some ten instructions
 * and a 64-byte copy each, so that a benchmark can refill a CQ.
 * Returns n, or -ENOENT, or -ENOSPC when the CQ would overrun (nothing is written then; never for a CQ that ignores overrun).
 */
SOFTDEV_WEAK int softdev_inject_cqes(uint32_t cqn, const void *cqe64, unsigned n, uint16_t step);

/*
 * Stepped device: takes everything that the doorbell record of qpn shows as done without executing it and without a CQE:
 * the QP's consumer index jumps to the record. For benchmarks of posting. Returns the number of WQEBBs skipped or -ENOENT.
 */
SOFTDEV_WEAK int softdev_skip(uint32_t qpn);

/*
 * What shall go wrong, from now on; the environment's SOFTDEV_FAULT (run --fault) says it from the start. NULL: nothing. Both counts
 * start again. Returns 0, or -EINVAL, with a line on stderr, for a specification that is not right: the old one stays.
 *
 *   SPEC   = FAULT[,FAULT]...
 *   FAULT  = drop@WHICH            the message is lost
 *          | delay=TIME@WHICH      it leaves that much later: a number, and us (which is the default), ms or s
 *          | dup@WHICH             it arrives twice
 *          | corrupt@WHICH         a bit of it is wrong when it arrives
 *          | syndrome=N@WHICH      it fails with an error CQE of that syndrome, 1 to 255 or 0x01 to 0xff
 *          | die@WHICH             the process ends at once, by SIGKILL, before the message leaves
 *          | silent@WHICH          from that message on the device neither sends nor answers
 *          | setup[=ERRNO]@WHICH   the set-up call fails; a name or a number, ENOMEM where none is given
 *   WHICH  = N | FIRST-LAST | FIRST- | *    the last three also with /EVERY: FIRST, FIRST + EVERY, ...
 *          | /EVERY               EVERY, 2 EVERY, ...
 *
 * Messages are those that this process sends as a requester, of all its QPs, counted from 1, each try of its own: the retry of
 * message 3 is message 4 if nothing else is sent meanwhile. Set-up calls are the process's verbs calls that reach the kernel and make or
 * change something: open, alloc, reg, create, modify, resize, attach, subscribe, by verbs or by device commands, not queries and not
 * destruction; counted from 1. libmlx5 itself
 * gets over some that fail: to open a device takes up to three.
 */
SOFTDEV_WEAK int softdev_fault(const char *spec);

static inline int softdev_present(void)
{
	return &softdev_manual != NULL;
}

#ifdef __cplusplus
}
#endif
#endif
