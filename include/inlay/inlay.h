/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/inlay.h: all of inlay, in reading order. Unused functions cost nothing: a translation unit that calls only data-path
 * functions needs no library to link.
 */
#ifndef INLAY_INLAY_H
#define INLAY_INLAY_H

#include <inlay/base.h>
#include <inlay/wqe.h>
#include <inlay/cqe.h>
#include <inlay/queue.h>
#include <inlay/verbs.h>
#include <inlay/connect.h>
#include <inlay/devx.h>
#include <inlay/dm.h>
#include <inlay/mmap.h>
#include <inlay/buf.h>
#include <inlay/memdomain.h>
#include <inlay/match.h>
#include <inlay/tag.h>
#include <inlay/task.h>

#endif
