/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sysfs.c: the files of the devices in sysfs and /dev.
 *
 * All processes of a machine see the same adapter, as with a real one; QP numbers tell processes
 * apart. So the files are the same for all. They lie in the directory of the fabric, one tree per
 * content. A tree is made once and never changed; missing files are made again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "host.h"

/*
 * Functions of one adapter in a PCI domain that no machine has, so that a path into it is always
 * ours.
 */
#define PCI_BUS "/sys/devices/pci7f00:00/"
#define PCI_NAME "7f00:00:00."

static char tree[PATH_MAX];
static int tree_err;

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

static void guid_text(char *to, const uint8_t *g)
{
	sprintf(to, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]);
}

static void __attribute__((format(printf, 3, 4))) add_below(const char *dir, const char *name, const char *fmt, ...)
{
	char path[160], text[128];
	va_list ap;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	add(false, path, "%s", text);
}

static void list_port(unsigned dev, const char *port)
{
	char name[32];

	add_below(port, "state", "4: ACTIVE\n");
	add_below(port, "phys_state", "5: LinkUp\n");
	add_below(port, "link_layer", "%s\n", sd_link_ib() ? "InfiniBand" : "Ethernet");
	add_below(port, "rate", "100 Gb/sec (4X EDR)\n");
	add_below(port, "lid", "0x%x\n", sd_lid(dev));
	add_below(port, "sm_lid", "0x%x\n", sd_lid(0));
	add_below(port, "lid_mask_count", "0\n");
	add_below(port, "sm_sl", "0\n");
	add_below(port, "cap_mask", "0x00010000\n");
	for (unsigned i = 0; i < sd_pkeys(); i++) {
		snprintf(name, sizeof(name), "pkeys/%u", i);
		add_below(port, name, "0x%04x\n", i ? 0 : 0xffff);
	}
	for (unsigned i = 0; i < SD_GIDS; i++) {
		union ibv_gid g = { .global = { 0 } };
		unsigned type = 0;
		bool here = !sd_gid(dev, i, &g, &type);
		char text[48], *at = text;

		for (int j = 0; j < 16; j += 2)
			at += sprintf(at, "%s%02x%02x", j ? ":" : "", g.raw[j], g.raw[j + 1]);
		snprintf(name, sizeof(name), "gids/%u", i);
		add_below(port, name, "%s\n", text);
		if (!here)
			continue;
		snprintf(name, sizeof(name), "gid_attrs/types/%u", i);
		add_below(port, name, "%s\n", type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
		if (!sd_link_ib()) {
			/* The one network interface that every machine has */
			snprintf(name, sizeof(name), "gid_attrs/ndevs/%u", i);
			add_below(port, name, "lo\n");
		}
	}
}

static void list_device(unsigned dev)
{
	char pci[48], ibdev[96], uverbs[96], port[128], path[128], guid[24];
	uint8_t raw[8];

	snprintf(pci, sizeof(pci), PCI_BUS PCI_NAME "%u", dev);
	snprintf(ibdev, sizeof(ibdev), "%s/infiniband/mlx5_%u", pci, dev);
	snprintf(uverbs, sizeof(uverbs), "%s/infiniband_verbs/uverbs%u", pci, dev);

	snprintf(path, sizeof(path), "/dev/infiniband/uverbs%u", dev);
	add(false, path, "%s", "");
	snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/uverbs%u", dev);
	add(true, path, "../../%s", uverbs + strlen("/sys/"));
	snprintf(path, sizeof(path), "/sys/class/infiniband/mlx5_%u", dev);
	add(true, path, "../../%s", ibdev + strlen("/sys/"));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/" PCI_NAME "%u", dev);
	add(true, path, "../../../%s", pci + strlen("/sys/"));

	add_below(pci, "vendor", "0x15b3\n");
	add_below(pci, "device", "0x101b\n");
	add_below(pci, "subsystem_vendor", "0x15b3\n");
	add_below(pci, "subsystem_device", "0x0007\n");
	add_below(pci, "class", "0x020700\n");
	add_below(pci, "modalias", "pci:v000015B3d0000101Bsv000015B3sd00000007bc02sc07i00\n");
	add_below(pci, "numa_node", "-1\n");
	add_below(pci, "local_cpus", "ffffffff\n");
	add_below(pci, "local_cpulist", "0-31\n");
	add_below(pci, "max_link_speed", "16.0 GT/s PCIe\n");
	add_below(pci, "current_link_speed", "16.0 GT/s PCIe\n");
	add_below(pci, "max_link_width", "16\n");
	add_below(pci, "current_link_width", "16\n");

	add_below(uverbs, "ibdev", "mlx5_%u\n", dev);
	add_below(uverbs, "dev", "%u:%u\n", SD_CDEV_MAJOR, SD_CDEV_MINOR + dev);
	add_below(uverbs, "abi_version", "1\n");
	snprintf(path, sizeof(path), "%s/device", uverbs);
	add(true, path, "../../../" PCI_NAME "%u", dev);

	snprintf(path, sizeof(path), "%s/device", ibdev);
	add(true, path, "../../../" PCI_NAME "%u", dev);
	add_below(ibdev, "node_type", "1: CA\n");
	sd_node_guid(dev * sd_ports(), raw);
	guid_text(guid, raw);
	add_below(ibdev, "node_guid", "%s\n", guid);
	sd_sys_image_guid(raw);
	guid_text(guid, raw);
	add_below(ibdev, "sys_image_guid", "%s\n", guid);
	add_below(ibdev, "node_desc", "software device\n");
	add_below(ibdev, "fw_ver", "%u.%u.%04u\n", (unsigned)(SD_FW_VER >> 32), (unsigned)(SD_FW_VER >> 16 & 0xffff),
		  (unsigned)(SD_FW_VER & 0xffff));
	add_below(ibdev, "hw_rev", "0\n");
	add_below(ibdev, "hca_type", "MT%u\n", SD_PART_ID);
	add_below(ibdev, "board_id", "MT_0000000223\n");
	for (unsigned i = 0; i < sd_ports(); i++) {
		snprintf(port, sizeof(port), "%s/ports/%u", ibdev, i + 1);
		list_port(dev * sd_ports() + i, port);
	}
}

static void list_entries(void)
{
	add(false, "/sys/class/infiniband_verbs/abi_version", "6\n");
	add(false, "/sys/class/misc/rdma_cm/abi_version", "4\n");
	add(false, "/sys/class/misc/rdma_cm/dev", "%u:%u\n", SD_CDEV_MAJOR, SD_CDEV_MINOR + SD_CDEV_CM);
	add(false, "/dev/infiniband/rdma_cm", "%s", "");
	for (unsigned dev = 0; dev < sd_devices(); dev++)
		list_device(dev);
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

/* Makes missing files. They appear by rename, so that no reader sees half of one */
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
		tree_err = sd_own_dir(temp);
		if (!tree_err)
			tree_err = populate(temp);
		if (rename(temp, tree) || tree_err)
			remove_tree(temp);
	}
	if (!tree_err)
		tree_err = sd_own_dir(tree);
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
