/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/inlay.h: what a transport includes, in reading order. Include by name: mmap.h, buf.h,
 * match.h, tag.h, steer.h, dm.h, devx.h, memdomain.h, gpu.h, task.h, and the headers that queue.h
 * lists. Unused functions cost nothing: a program that only calls the data path links with no
 * library.
 */
#ifndef INLAY_INLAY_H
#define INLAY_INLAY_H /* names are stable until 1.0 */

#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/cqe.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>
#include <inlay/connect.h>

#endif
