/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * port.c: the identity of the device: GUIDs, GIDs, LID; the directory of the fabric.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base.h"

static const uint8_t link_local[8] = { 0xfe, 0x80 }, mapped_v4[12] = { [10] = 0xff, 0xff };

static void ipv4_of(unsigned dev, uint8_t gid[16])
{
	memcpy(gid, mapped_v4, 12);
	memcpy(gid + 12, (const uint8_t[]){ 10, 0, 0, 1 + dev }, 4);
}

/* Asked once, as the link layer is */
static unsigned number(const char *name, unsigned max, unsigned *n)
{
	if (!*n) {
		const char *env = getenv(name);
		unsigned long asked = env && *env ? strtoul(env, NULL, 10) : 1;

		if (asked < 1 || asked > max)
			sd_once(0xffff0012, "%s=%s is not a number from 1 to %u", name, env, max);
		*n = asked < 1 ? 1 : asked > max ? max : asked;
	}
	return *n;
}

unsigned sd_ports(void)
{
	static unsigned n;

	return number("SOFTDEV_PORTS", 2, &n);
}

unsigned sd_devices(void)
{
	static unsigned n;

	return number("SOFTDEV_DEVICES", SD_MAX_DEVICES / sd_ports(), &n);
}

unsigned sd_all_ports(void)
{
	return sd_devices() * sd_ports();
}

bool sd_port_ok(uint32_t port_num)
{
	return port_num >= 1 && port_num <= sd_ports();
}

unsigned sd_port_of(const struct sd_ctx *ctx, uint32_t port_num)
{
	return ctx->dev * sd_ports() + port_num - 1;
}

/* What tells the devices apart is the last byte */
void sd_node_guid(unsigned dev, uint8_t guid[8])
{
	memcpy(guid, (const uint8_t[]){ 0x02, 0x50, 0x5d, 0, 0, 0x10, 0x1b, dev << 4 }, 8);
}

void sd_sys_image_guid(uint8_t guid[8])
{
	sd_node_guid(0, guid);
	guid[7] = 1;
}

bool sd_link_ib(void)
{
	static int ib = -1;

	/* Asked once: a program that changes its environment does not change the cable */
	if (ib < 0) {
		const char *link = getenv("SOFTDEV_LINK");

		ib = link && !strcmp(link, "ib");
	}
	return ib;
}

uint16_t sd_lid(unsigned dev)
{
	return sd_link_ib() ? 1 + dev : 0;
}

unsigned sd_pkeys(void)
{
	return sd_link_ib() ? 128 : 1;
}

/*
 * InfiniBand: one GID, the subnet prefix and the port's GUID. RoCE: the link-local address and an
 * IPv4 address, each as version 1 and version 2, as a fresh port has them.
 */
int sd_gid(unsigned dev, unsigned index, union ibv_gid *gid, unsigned *type)
{
	union ibv_gid g = { .global = { 0 } };
	uint8_t mac[6];

	if (index >= SD_GIDS)
		return EINVAL;
	if (index >= (sd_link_ib() ? 1 : 4))
		return ENODATA;
	if (sd_link_ib()) {
		memcpy(g.raw, link_local, 8);
		sd_node_guid(dev, g.raw + 8);
	} else if (index < 2) {
		memcpy(g.raw, link_local, 8);
		sd_port_mac(dev, mac);
		memcpy(g.raw + 8, (const uint8_t[]){ mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5] }, 8);
	} else {
		ipv4_of(dev, g.raw);
	}
	if (gid)
		*gid = g;
	if (type)
		*type = sd_link_ib() ? IBV_GID_TYPE_IB : index & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	return 0;
}

void sd_port_mac(unsigned dev, uint8_t mac[6])
{
	uint8_t guid[8];

	sd_node_guid(dev, guid);
	memcpy(mac, guid, 3);
	memcpy(mac + 3, guid + 5, 3);
}

static bool has_gid(unsigned dev, const uint8_t *gid)
{
	union ibv_gid g;

	for (unsigned i = 0; i < SD_GIDS; i++)
		if (!sd_gid(dev, i, &g, NULL) && !memcmp(g.raw, gid, 16))
			return true;
	return false;
}

/*
 * On InfiniBand what comes is what has the LID; a GRH must fit as well. RoCE knows nothing but GIDs
 */
bool sd_port_is(unsigned dev, const uint8_t *gid, uint16_t lid)
{
	if (sd_link_ib())
		return lid == sd_lid(dev) && (!gid || has_gid(dev, gid));
	return gid && has_gid(dev, gid);
}

unsigned sd_port_at(const uint8_t *gid, uint16_t lid)
{
	/* Another process may have more devices than this one */
	for (unsigned dev = 0; dev < SD_MAX_DEVICES; dev++)
		if (sd_port_is(dev, gid, lid))
			return dev;
	return SD_NO_DEV;
}

unsigned sd_ip_dev(const uint8_t ip[16])
{
	uint8_t v4[16];

	for (unsigned dev = 0; dev < SD_MAX_DEVICES; dev++) {
		ipv4_of(dev, v4);
		if (!memcmp(ip, v4, 16) || has_gid(dev, ip))
			return dev;
	}
	return SD_NO_DEV;
}

/*
 * As the kernel finds a destination's MAC address: of a group by rule, of a port of this fabric by
 * asking it, of another link-local address out of its lower half.
 */
int sd_resolve(const uint8_t gid[16], uint8_t mac[6])
{
	if (gid[0] == 0xff) {
		mac[0] = mac[1] = 0x33;
		memcpy(mac + 2, gid + 12, 4);
		return 0;
	}
	if (!memcmp(gid, mapped_v4, 12) && gid[12] >> 4 == 0xe) {
		memcpy(mac, (const uint8_t[]){ 0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15] }, 6);
		return 0;
	}
	/* Another process may have more devices than this one */
	for (unsigned dev = 0; dev < SD_MAX_DEVICES; dev++)
		if (has_gid(dev, gid)) {
			sd_port_mac(dev, mac);
			return 0;
		}
	if (memcmp(gid, link_local, 8) != 0)
		return ETIMEDOUT;
	memcpy(mac, (const uint8_t[]){ gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15] }, 6);
	return 0;
}

/* ---- the fabric's directory ---- */

int sd_own_dir(const char *path)
{
	struct stat st;

	if (mkdir(path, 0700) && errno != EEXIST)
		return errno;
	if (lstat(path, &st))
		return errno;
	/* In /tmp anybody could have been first */
	return S_ISDIR(st.st_mode) && st.st_uid == geteuid() ? 0 : EPERM;
}

static char fabric[PATH_MAX];
static int fabric_err;

static void find_fabric(void)
{
	const char *dir = getenv("SOFTDEV_FABRIC"), *run = getenv("XDG_RUNTIME_DIR");
	int n;

	if (dir && *dir)
		n = snprintf(fabric, sizeof(fabric), "%s", dir);
	else
		n = snprintf(fabric, sizeof(fabric), "%s/softmlx5-%u", run && *run ? run : "/tmp", (unsigned)geteuid());
	fabric_err = n < (int)sizeof(fabric) ? sd_own_dir(fabric) : ENAMETOOLONG;
	if (fabric_err)
		sd_once(0xffff0010, "%s: %s", fabric, strerror(fabric_err));
}

const char *sd_fabric_dir(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_fabric);
	errno = fabric_err;
	return fabric_err ? NULL : fabric;
}

unsigned sd_min_inline(void)
{
	const char *env = getenv("SOFTDEV_INLINE");

	return env && !strcmp(env, "l2") ? 18 : 0;
}
