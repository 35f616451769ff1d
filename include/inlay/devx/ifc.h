/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc.h: the layouts of the device's commands, all of them. The manual of fields and accessors is in devx/ifc/bits.h, the table
 * of commands in devx/ifc/cmd.h.
 */
#ifndef INLAY_DEVX_IFC_H
#define INLAY_DEVX_IFC_H

#include <inlay/devx/ifc/bits.h>
#include <inlay/devx/ifc/cmd.h>
#include <inlay/devx/ifc/cq.h>
#include <inlay/devx/ifc/hca.h>
#include <inlay/devx/ifc/mkey.h>
#include <inlay/devx/ifc/object.h>
#include <inlay/devx/ifc/qp.h>
#include <inlay/devx/ifc/query.h>
#include <inlay/devx/ifc/srq.h>
#include <inlay/devx/ifc/tir.h>
#include <inlay/devx/ifc/wq.h>

#endif
