/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/devx/ifc.h: the layouts of all device commands. devx/ifc/bits.h explains fields and
 * accessors; devx/ifc/cmd.h has the table of commands.
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
#include <inlay/devx/ifc/rq.h>
#include <inlay/devx/ifc/srq.h>
#include <inlay/devx/ifc/wq.h>

#endif
