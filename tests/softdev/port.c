/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * port.c: who the device is: GUIDs, GIDs, LID, and the files in which sysfs says so.
 *
 * All processes of a machine see the same adapter, as they do with a real one; what tells them apart is the QP number. So the
 * files are the same for all, and lie under the fabric's directory in one tree per content: made once, never changed, and
 * mended where somebody cleaned up.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fcntl.h>
#include "host.h"

/* A PCI domain that no machine has, so that a path into it is always ours */
#define PCI "/sys/devices/pci7f00:00/7f00:00:00.0"
#define IBDEV PCI "/infiniband/mlx5_0"
#define UVERBS PCI "/infiniband_verbs/uverbs0"

const char sd_node_guid[8] = { 0x02, 0x50, 0x5d, 0, 0, 0x10, 0x1b, 0x00 };
const char sd_sys_image_guid[8] = { 0x02, 0x50, 0x5d, 0, 0, 0x10, 0x1b, 0x01 };

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
	(void)dev;
	return sd_link_ib() ? 1 : 0;
}

unsigned sd_pkeys(void)
{
	return sd_link_ib() ? 128 : 1;
}

/*
 * InfiniBand: one GID, the subnet prefix and the port's GUID. RoCE: the link-local address and an IPv4 address, each as
 * version 1 and version 2, as a fresh port has them.
 */
int sd_gid(unsigned dev, unsigned index, union ibv_gid *gid, unsigned *type)
{
	(void)dev;
	static const uint8_t link_local[16] = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x5d, 0xff, 0xfe, 0x10, 0x1b, 0 };
	static const uint8_t ipv4[16] = { [10] = 0xff, 0xff, 10, 0, 0, 1 };
	union ibv_gid g = { .global = { 0 } };

	if (index >= SD_GIDS)
		return EINVAL;
	if (index >= (sd_link_ib() ? 1 : 4))
		return ENODATA;
	if (sd_link_ib()) {
		memcpy(g.raw, link_local, 8);
		memcpy(g.raw + 8, sd_node_guid, 8);
	} else {
		memcpy(g.raw, index < 2 ? link_local : ipv4, 16);
	}
	if (gid)
		*gid = g;
	if (type)
		*type = sd_link_ib() ? IBV_GID_TYPE_IB : index & 1 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	return 0;
}

void sd_port_mac(unsigned dev, uint8_t mac[6])
{
	(void)dev;
	memcpy(mac, sd_node_guid, 3);
	memcpy(mac + 3, sd_node_guid + 5, 3);
}

static bool has_gid(unsigned dev, const uint8_t *gid)
{
	union ibv_gid g;

	for (unsigned i = 0; i < SD_GIDS; i++)
		if (!sd_gid(dev, i, &g, NULL) && !memcmp(g.raw, gid, 16))
			return true;
	return false;
}

/* On InfiniBand what comes is what has the LID; a GRH must fit as well. RoCE knows nothing but GIDs */
bool sd_port_is(unsigned dev, const uint8_t *gid, uint16_t lid)
{
	if (sd_link_ib())
		return lid == sd_lid(dev) && (!gid || has_gid(dev, gid));
	return gid && has_gid(dev, gid);
}

/*
 * As the kernel finds a destination's MAC address: of a group by rule, of a port of this fabric by asking it, of another link-local
 * address out of its lower half.
 */
int sd_resolve(const uint8_t gid[16], uint8_t mac[6])
{
	static const uint8_t link_local[8] = { 0xfe, 0x80 }, v4[12] = { [10] = 0xff, 0xff };

	if (gid[0] == 0xff) {
		mac[0] = mac[1] = 0x33;
		memcpy(mac + 2, gid + 12, 4);
		return 0;
	}
	if (!memcmp(gid, v4, 12) && gid[12] >> 4 == 0xe) {
		memcpy(mac, (const uint8_t[]){ 0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15] }, 6);
		return 0;
	}
	if (has_gid(0, gid)) {
		sd_port_mac(0, mac);
		return 0;
	}
	if (memcmp(gid, link_local, 8) != 0)
		return ETIMEDOUT;
	memcpy(mac, (const uint8_t[]){ gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15] }, 6);
	return 0;
}

/* ---- the fabric's directory ---- */

static int make_own_dir(const char *path)
{
	struct stat st;

	if (mkdir(path, 0700) && errno != EEXIST)
		return errno;
	if (lstat(path, &st))
		return errno;
	/* In /tmp anybody could have been first */
	return S_ISDIR(st.st_mode) && st.st_uid == geteuid() ? 0 : EPERM;
}

static char fabric[PATH_MAX], tree[PATH_MAX];
static int fabric_err, tree_err;

static void find_fabric(void)
{
	const char *dir = getenv("SOFTDEV_FABRIC"), *run = getenv("XDG_RUNTIME_DIR");
	int n;

	if (dir && *dir)
		n = snprintf(fabric, sizeof(fabric), "%s", dir);
	else
		n = snprintf(fabric, sizeof(fabric), "%s/inlay-softdev-%u", run && *run ? run : "/tmp", (unsigned)geteuid());
	fabric_err = n < (int)sizeof(fabric) ? make_own_dir(fabric) : ENAMETOOLONG;
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

/* ---- the tree ---- */

struct entry {
	char path[96];
	char text[128];           /* a file's content; a link's target if link */
	bool link;
};
static struct entry *entries;
static unsigned entry_cnt;

static void __attribute__((format(printf, 3, 4))) add(bool link, const char *path, const char *fmt, ...)
{
	struct entry *e = realloc(entries, (entry_cnt + 1) * sizeof(*e));
	va_list ap;

	if (!e)
		return;
	entries = e;
	e += entry_cnt++;
	memset(e, 0, sizeof(*e));
	e->link = link;
	snprintf(e->path, sizeof(e->path), "%s", path);
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
}

static void guid_text(char *to, const char *guid)
{
	const uint8_t *g = (const uint8_t *)guid;

	sprintf(to, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]);
}

static void list_entries(void)
{
	char guid[24], path[160];

	add(false, "/dev/infiniband/uverbs0", "%s", "");
	add(false, "/sys/class/infiniband_verbs/abi_version", "6\n");
	add(true, "/sys/class/infiniband_verbs/uverbs0", "../../devices/pci7f00:00/7f00:00:00.0/infiniband_verbs/uverbs0");
	add(true, "/sys/class/infiniband/mlx5_0", "../../devices/pci7f00:00/7f00:00:00.0/infiniband/mlx5_0");
	add(true, "/sys/bus/pci/devices/7f00:00:00.0", "../../../devices/pci7f00:00/7f00:00:00.0");

	add(false, PCI "/vendor", "0x15b3\n");
	add(false, PCI "/device", "0x101b\n");
	add(false, PCI "/subsystem_vendor", "0x15b3\n");
	add(false, PCI "/subsystem_device", "0x0007\n");
	add(false, PCI "/class", "0x020700\n");
	add(false, PCI "/modalias", "pci:v000015B3d0000101Bsv000015B3sd00000007bc02sc07i00\n");
	add(false, PCI "/numa_node", "-1\n");
	add(false, PCI "/local_cpus", "ffffffff\n");
	add(false, PCI "/local_cpulist", "0-31\n");
	add(false, PCI "/max_link_speed", "16.0 GT/s PCIe\n");
	add(false, PCI "/current_link_speed", "16.0 GT/s PCIe\n");
	add(false, PCI "/max_link_width", "16\n");
	add(false, PCI "/current_link_width", "16\n");

	add(false, UVERBS "/ibdev", "mlx5_0\n");
	add(false, UVERBS "/dev", "%u:%u\n", SD_CDEV_MAJOR, SD_CDEV_MINOR);
	add(false, UVERBS "/abi_version", "1\n");
	add(true, UVERBS "/device", "../../../7f00:00:00.0");

	add(true, IBDEV "/device", "../../../7f00:00:00.0");
	add(false, IBDEV "/node_type", "1: CA\n");
	guid_text(guid, sd_node_guid);
	add(false, IBDEV "/node_guid", "%s\n", guid);
	guid_text(guid, sd_sys_image_guid);
	add(false, IBDEV "/sys_image_guid", "%s\n", guid);
	add(false, IBDEV "/node_desc", "software device\n");
	add(false, IBDEV "/fw_ver", "%u.%u.%04u\n", (unsigned)(SD_FW_VER >> 32), (unsigned)(SD_FW_VER >> 16 & 0xffff),
	    (unsigned)(SD_FW_VER & 0xffff));
	add(false, IBDEV "/hw_rev", "0\n");
	add(false, IBDEV "/hca_type", "MT%u\n", SD_PART_ID);
	add(false, IBDEV "/board_id", "MT_0000000223\n");

	add(false, IBDEV "/ports/1/state", "4: ACTIVE\n");
	add(false, IBDEV "/ports/1/phys_state", "5: LinkUp\n");
	add(false, IBDEV "/ports/1/link_layer", "%s\n", sd_link_ib() ? "InfiniBand" : "Ethernet");
	add(false, IBDEV "/ports/1/rate", "100 Gb/sec (4X EDR)\n");
	add(false, IBDEV "/ports/1/lid", "0x%x\n", sd_lid(0));
	add(false, IBDEV "/ports/1/sm_lid", "0x%x\n", sd_lid(0));
	add(false, IBDEV "/ports/1/lid_mask_count", "0\n");
	add(false, IBDEV "/ports/1/sm_sl", "0\n");
	add(false, IBDEV "/ports/1/cap_mask", "0x00010000\n");
	for (unsigned i = 0; i < sd_pkeys(); i++) {
		snprintf(path, sizeof(path), IBDEV "/ports/1/pkeys/%u", i);
		add(false, path, "0x%04x\n", i ? 0 : 0xffff);
	}
	for (unsigned i = 0; i < SD_GIDS; i++) {
		union ibv_gid g = { .global = { 0 } };
		unsigned type = 0;
		bool here = !sd_gid(0, i, &g, &type);
		char text[48], *at = text;

		for (int j = 0; j < 16; j += 2)
			at += sprintf(at, "%s%02x%02x", j ? ":" : "", g.raw[j], g.raw[j + 1]);
		snprintf(path, sizeof(path), IBDEV "/ports/1/gids/%u", i);
		add(false, path, "%s\n", text);
		if (!here)
			continue;
		snprintf(path, sizeof(path), IBDEV "/ports/1/gid_attrs/types/%u", i);
		add(false, path, "%s\n", type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
		if (!sd_link_ib()) {
			snprintf(path, sizeof(path), IBDEV "/ports/1/gid_attrs/ndevs/%u", i);
			add(false, path, "lo\n");
		}
	}
}

static int make_parents(char *path, size_t from)
{
	for (char *slash = path + from; (slash = strchr(slash + 1, '/')); *slash = '/') {
		*slash = 0;
		if (mkdir(path, 0700) && errno != EEXIST)
			return errno;
	}
	return 0;
}

/* Makes what is not there. Files come by rename, so that nobody reads half of one */
static int populate(const char *root)
{
	char path[PATH_MAX + 128], temp[PATH_MAX + 160];
	struct stat st;

	for (unsigned i = 0; i < entry_cnt; i++) {
		const struct entry *e = &entries[i];
		size_t len = strlen(e->text);
		int fd, err;

		snprintf(path, sizeof(path), "%s%s", root, e->path);
		if (!lstat(path, &st))
			continue;
		err = make_parents(path, strlen(root));
		if (err)
			return err;
		if (e->link) {
			if (symlink(e->text, path) && errno != EEXIST)
				return errno;
			continue;
		}
		snprintf(temp, sizeof(temp), "%s.%d", path, (int)getpid());
		fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd < 0)
			return errno;
		err = write(fd, e->text, len) == (ssize_t)len ? 0 : EIO;
		close(fd);
		if (!err && rename(temp, path))
			err = errno;
		if (err)
			return err;
	}
	return 0;
}

static void remove_tree(const char *root)
{
	char path[PATH_MAX + 128];

	for (unsigned i = 0; i < entry_cnt; i++) {
		snprintf(path, sizeof(path), "%s%s", root, entries[i].path);
		unlink(path);
		for (char *slash; (slash = strrchr(path, '/')) && (size_t)(slash - path) >= strlen(root);) {
			*slash = 0;
			if (rmdir(path))
				break;
		}
	}
}

static void make_tree(void)
{
	const char *dir = sd_fabric_dir();
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a: only a name for the content */
	char temp[PATH_MAX];
	struct stat st;
	int n;

	tree_err = dir ? 0 : errno;
	if (tree_err)
		return;
	list_entries();
	for (size_t i = 0; i < entry_cnt * sizeof(*entries); i++)
		hash = (hash ^ ((const uint8_t *)entries)[i]) * 0x100000001b3ull;
	n = snprintf(tree, sizeof(tree), "%s/sys-%016llx", dir, (unsigned long long)hash);
	if (n > PATH_MAX - 256) {
		tree_err = ENAMETOOLONG;
		return;
	}
	/* libibverbs takes a directory that changes for a new device, so the tree appears at once and whole */
	if (lstat(tree, &st)) {
		snprintf(temp, sizeof(temp), "%.*s.%d", PATH_MAX - 64, tree, (int)getpid());
		tree_err = make_own_dir(temp);
		if (!tree_err)
			tree_err = populate(temp);
		if (rename(temp, tree) || tree_err)
			remove_tree(temp);
	}
	if (!tree_err)
		tree_err = make_own_dir(tree);
	if (!tree_err)
		tree_err = populate(tree);
	if (tree_err)
		sd_once(0xffff0011, "%s: %s", tree, strerror(tree_err));
	free(entries);
	entries = NULL;
}

const char *sd_tree(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_tree);
	errno = tree_err;
	return tree_err ? NULL : tree;
}
