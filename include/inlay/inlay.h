/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/inlay.h: what a transport includes, in reading order. Device commands (inlay/devx.h),
 * memory domains (inlay/memdomain.h) and command tasks (inlay/task.h) are included by name. Unused
 * functions cost nothing: a program that only calls the data path links with no library.
 */
#ifndef INLAY_INLAY_H
#define INLAY_INLAY_H

#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/cqe.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>
#include <inlay/connect.h>
#include <inlay/steer.h>
#include <inlay/dm.h>
#include <inlay/mmap.h>
#include <inlay/buf.h>
#include <inlay/match.h>
#include <inlay/tag.h>

#endif
