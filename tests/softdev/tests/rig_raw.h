/* SPDX-License-Identifier: BSD-3-Clause */
/* rig_raw.h: uverbs commands that libibverbs and libmlx5 do not send, by the ioctl itself */
#ifndef SOFTDEV_TESTS_RIG_RAW_H
#define SOFTDEV_TESTS_RIG_RAW_H

#include "rig.h"
#include <sys/ioctl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* The command issued last: its attributes have what the device has put there */
static union {
	struct ib_uverbs_ioctl_hdr hdr;
	uint8_t room[sizeof(struct ib_uverbs_ioctl_hdr) + 32 * sizeof(struct ib_uverbs_attr)];
} raw;

#define ATTR(id, bytes, value) { .attr_id = id, .len = bytes, .flags = UVERBS_ATTR_F_MANDATORY, .data = (uint64_t)(value) }
#define PTR(id, p) ATTR(id, sizeof(*(p)), (uintptr_t)(p))

/* Again as it is. Returns errno or 0 */
UNUSED static int raw_again(int fd)
{
	raw.hdr.length = sizeof(raw.hdr) + raw.hdr.num_attrs * sizeof(raw.hdr.attrs[0]);
	return ioctl(fd, RDMA_VERBS_IOCTL, &raw) ? errno : 0;
}

UNUSED static int raw_list(int fd, unsigned object, unsigned method, const struct ib_uverbs_attr *attrs, unsigned n)
{
	memset(&raw, 0, sizeof(raw));
	raw.hdr.object_id = object;
	raw.hdr.method_id = method;
	raw.hdr.driver_id = RDMA_DRIVER_MLX5;
	for (; raw.hdr.num_attrs < n; raw.hdr.num_attrs++)
		raw.hdr.attrs[raw.hdr.num_attrs] = attrs[raw.hdr.num_attrs];
	return raw_again(fd);
}

#define raw_call(fd, object, method, ...)                                                     \
	raw_list(fd, object, method, (const struct ib_uverbs_attr[]){ __VA_ARGS__ },           \
		 sizeof((const struct ib_uverbs_attr[]){ __VA_ARGS__ }) / sizeof(struct ib_uverbs_attr))

#endif
