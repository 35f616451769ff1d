/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * softdev.h: what a test can ask of the software mlx5 device beyond verbs. README.md says what the
 * device is.
 *
 *   if (!softdev_present())  skip the test;
 *   softdev_manual(1);                       before the first ibv_open_device()
 *   ibv_post_send(...);
 *   softdev_execute(qp->qp_num, 1);          the data has moved, the CQE is held back
 *   softdev_complete(cqn, 1);                now ibv_poll_cq() finds it
 *
 * All functions are weak. They are NULL on a real device and without the preloaded library. Any
 * thread may call them. QPNs and CQNs are those of ibv_qp.qp_num and mlx5dv_cq.cqn.
 *
 * The device has one of three kinds, chosen before the first open:
 *
 *   engine     A thread of the device serves doorbells. This is the default. A thread of the program
 *              that calls sched_yield() helps it, and sleeps a moment when there is nothing to do.
 *   stepped    softdev_manual(1), or run --manual. There is no thread. The device executes and
 *              completes work only inside the calls below, in the caller's thread, so a run is the
 *              same every time.
 *   trapping   SOFTDEV_TRAP=1, or run --trap; x86-64 only. There is no thread. A store to a
 *              doorbell page makes the device work, at once and in the thread that stores. A
 *              doorbell makes it read the record of the QP that it names and of no other; an arm
 *              makes it read the record of its CQ. Code that forgets to ring, or rings before it
 *              writes the record, makes no progress. The device reports on stderr what was posted
 *              and never rung, when the QP is reset or destroyed and when the program ends.
 *
 * Time does not pass on a trapping device. Work that has to wait (RNR, no peer, a delayed message)
 * is tried again at the next store to any register of a doorbell page, at the next change of a QP's
 * state, and in softdev_run(). So are receives posted to a QP in error, which have no doorbell.
 * Each try counts as one retry. A trapping device reaches only its own process. The program must
 * not block SIGSEGV or SIGTRAP, and a debugger cannot step through a store to a doorbell page.
 */
#ifndef SOFTDEV_H
#define SOFTDEV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOFTDEV_WEAK __attribute__((weak, visibility("default")))

#define SOFTDEV_VERSION "0.2.0"

/* Returns SOFTDEV_VERSION of the library that is loaded. */
SOFTDEV_WEAK const char *softdev_version(void);

/*
 * Chooses the stepped device (1) or the engine (0). SOFTDEV_TRAP=1 overrides both. Call it before
 * the first open.
 *
 * Returns 0, or -EBUSY after a device was opened.
 */
SOFTDEV_WEAK int softdev_manual(int on);

/*
 * Stepped device: executes up to n of the send WQEs that the doorbell record of qpn shows; of all
 * QPs, round robin, when qpn is 0. Moves their data and holds their CQEs back. A WQE that cannot
 * proceed (RNR, fence, flush) stops its QP only.
 *
 * Returns the number of WQEs executed; -ENOENT: no such QP; -EPERM: the device is not stepped.
 */
SOFTDEV_WEAK int softdev_execute(uint32_t qpn, unsigned n);

/*
 * Stepped device: delivers up to n of the CQEs held back for cqn; of all CQs when cqn is 0.
 *
 * Returns the number of CQEs delivered; errors as above.
 */
SOFTDEV_WEAK int softdev_complete(uint32_t cqn, unsigned n);

/*
 * Stepped device: executes and completes until nothing is left. Trapping device: the same, for work
 * that was rung.
 *
 * Returns the number of send WQEs executed, or -EPERM when the device is neither.
 */
SOFTDEV_WEAK int softdev_run(void);

/*
 * Writes n CQEs into cqn as the device would: body first, owner bit last. Each is a copy of the 64
 * bytes at cqe64; from the second on, wqe_counter is raised by step. The owner bit is set for the
 * slot. The first half of a 128-byte slot stays as it is. Works on every kind of device. One CQE
 * costs about ten instructions and the copy, so a benchmark can refill a CQ.
 *
 * Returns n; -ENOENT: no such CQ; -ENOSPC: the CQ would overrun, and nothing was written (never for
 * a CQ that ignores overrun).
 */
SOFTDEV_WEAK int softdev_inject_cqes(uint32_t cqn, const void *cqe64, unsigned n, uint16_t step);

/*
 * Stepped device: takes all WQEs that the doorbell record of qpn shows as done, without executing
 * them and without CQEs. For benchmarks of posting.
 *
 * Returns the number of WQEBBs skipped, or -ENOENT.
 */
SOFTDEV_WEAK int softdev_skip(uint32_t qpn);

/* Returns the number of blocks of compressed CQEs that the device has written in this process. */
SOFTDEV_WEAK unsigned long softdev_blocks(void);

/*
 * Sets the faults from now on and restarts both counts. NULL: no faults. SOFTDEV_FAULT (run
 * --fault) sets them from the start.
 *
 *   SPEC   = FAULT[,FAULT]...
 *   FAULT  = drop@WHICH            the message is lost
 *          | delay=TIME@WHICH      the message leaves later: a number and us (the default), ms or s
 *          | dup@WHICH             the message arrives twice
 *          | corrupt[=LEN]@WHICH   one bit of the message is wrong when it arrives, if it has at least LEN bytes
 *          | syndrome=N@WHICH      the message fails with an error CQE of this syndrome, 1 to 0xff; of a
 *                                  send or write over RC, half has come
 *          | die@WHICH             SIGKILL ends the process before the message leaves
 *          | silent@WHICH          from this message on, the device neither sends nor answers
 *          | down=PORT@WHICH       from this message on, this port of this process is down: it neither
 *                                  receives nor sends, and retries run out at once. If the message
 *                                  is its own, over RC its first 64 KiB still arrive, but no answer.
 *                                  Programs get IBV_EVENT_PORT_ERR; the next softdev_fault() brings
 *                                  the port up again, without an event. Ports count from 0, over all
 *                                  devices; sysfs and the connection manager do not notice
 *          | setup[=ERRNO]@WHICH   the set-up call fails: a name or a number, by default ENOMEM
 *   WHICH  = N | FIRST-LAST | FIRST- | *    the last three also with /EVERY: FIRST, FIRST + EVERY, ...
 *          | /EVERY               EVERY, 2 EVERY, ...
 *
 * Both counts start at 1. Messages are those that this process sends as a requester, on all QPs.
 * Each try counts: the retry of message 3 is message 4 if nothing else is sent in between. Set-up
 * calls are the calls of this process that reach the kernel and make or change something: open,
 * alloc, reg, create, modify, resize, attach and subscribe, through verbs or device commands.
 * Queries and destruction do not count. libmlx5 retries some calls; opening a device takes up to
 * three.
 *
 * Returns 0, or -EINVAL with a line on stderr for a bad specification; the old one then stays.
 */
SOFTDEV_WEAK int softdev_fault(const char *spec);

/* Returns the number of messages that this process has sent over a port, as the faults count them. */
SOFTDEV_WEAK unsigned long softdev_sent(unsigned port);

/* Is the software device there? */
static inline int softdev_present(void)
{
	return &softdev_manual != NULL;
}

#ifdef __cplusplus
}
#endif
#endif
