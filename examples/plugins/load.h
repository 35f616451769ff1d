/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * load.h: loads a worker's plugins at run time. Set-up only. Plugins that are compiled
 * into the worker do not need it.
 *
 *   counter.c, made into /opt/plugins/counter.so:
 *
 *           PLUGIN_EXPORT = {INLAY_TASK_VERSION, "counter",
 *                                  open, close, NULL, NULL, command, NULL};
 *
 *   the worker:
 *
 *           static const char *const folders[] = {"/opt/plugins"};
 *
 *           plugin_load(&object, folders, 1, "counter");
 *           entries[n].id = COUNTER;  entries[n].plugin = object.plugin;
 *           ... inlay_task_worker_create, ..., inlay_task_worker_destroy ...
 *           plugin_unload(&object);
 *
 * A plugin runs with all rights of the worker, so it is loaded only from a place that no other user
 * can write to. Invariants:
 *
 *   - A folder is an absolute path without ., .. and symbolic links. There is no search path.
 *   - Folder and file belong to root or the worker's user; group and others may not write. The same
 *     holds for all folders above, but they may be writable if sticky, like /tmp.
 *   - The name has letters, digits, - and _; the file is a regular file, NAME.so.
 *   - The file is checked and loaded by one descriptor, so that it cannot change in between.
 *   - Version and name must match: a plugin's inline code shares cmd.h's structs.
 *
 * Threads: as dlopen(3).
 * Sources: dlopen(3), openat(2); DOCA's documentation of doca_urom_plugin.
 */
#ifndef PLUGINS_LOAD_H
#define PLUGINS_LOAD_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <inlay/base.h>
#include <inlay/task/cmd.h>

#define PLUGIN_NAME 48u           /* bytes of a name, with its terminating zero */
#define PLUGIN_PATH 288u          /* bytes of the path for dlopen, likewise */

/* The only symbol that a plugin exports; its initialiser follows. */
#ifdef __cplusplus
#define PLUGIN_EXPORT                                                                            \
	extern "C" const struct inlay_task_plugin inlay_plugin __attribute__((visibility("default"))); \
	const struct inlay_task_plugin inlay_plugin
#else
#define PLUGIN_EXPORT                                                                        \
	extern const struct inlay_task_plugin inlay_plugin __attribute__((visibility("default"))); \
	const struct inlay_task_plugin inlay_plugin
#endif

/* A loaded object */
struct plugin_object {
	void *object;                   /* dlopen's */
	const struct inlay_task_plugin *plugin; /* in it */
};

/* Strict ISO C lacks POSIX's names: then the rest is missing. */
#if defined(O_NOFOLLOW) && defined(O_CLOEXEC) && defined(S_ISVTX)

/* Letters, digits, - and _. Returns 0 or -EINVAL. */
static inline int plugin_name_check_(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");

	return n && !name[n] && n < PLUGIN_NAME ? 0 : -EINVAL;
}

/* -EPERM if users other than root and this one can write. above: allows sticky folders. */
static inline int plugin_owner_check_(const struct stat *st, int above)
{
	if (st->st_uid && st->st_uid != geteuid())
		return -EPERM;
	return st->st_mode & (S_IWGRP | S_IWOTH) && !(above && st->st_mode & S_ISVTX) ? -EPERM : 0;
}

/* Opens a folder and checks all on the way. Returns its descriptor or a negative errno. */
static inline int plugin_folder_(const char *path)
{
	int fd, next, err;
	struct stat st;
	char part[256];
	size_t n;

	if (!path || path[0] != '/')
		return -EINVAL;
	fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (;;) {
		path += strspn(path, "/");
		err = fstat(fd, &st) ? -errno : plugin_owner_check_(&st, *path != 0);
		if (err || !*path)
			break;
		n = strcspn(path, "/");
		snprintf(part, sizeof(part), "%.*s", (int)(n < sizeof(part) ? n : sizeof(part)), path);
		if (n >= sizeof(part) || !strcmp(part, ".") || !strcmp(part, "..")) {
			err = n >= sizeof(part) ? -ENAMETOOLONG : -EINVAL;
			break;
		}
		next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0) {
			err = -errno;
			break;
		}
		close(fd);
		fd = next;
		path += n;
	}
	if (!err)
		return fd;
	close(fd);
	return err;
}

/*
 * A path to an open file. dlopen treats equal paths as one object, and descriptors are reused, so
 * the path encodes device and inode: "/." for each one bit, "/" for each zero.
 */
static inline void plugin_path_(char path[PLUGIN_PATH], int fd, const struct stat *st)
{
	const uint64_t which[2] = {(uint64_t)st->st_dev, (uint64_t)st->st_ino};
	int n = snprintf(path, PLUGIN_PATH, "/proc/self/fd"), i;

	for (i = 0; i < 128; i++) {
		path[n++] = '/';
		if (which[i / 64] >> i % 64 & 1)
			path[n++] = '.';
	}
	snprintf(path + n, PLUGIN_PATH - (size_t)n, "/%d", fd);
}

/* Unloads a plugin. Destroy the worker that uses it first. */
static inline void plugin_unload(struct plugin_object *p)
{
	if (p->object)
		dlclose(p->object);
	p->object = NULL;
	p->plugin = NULL;
}

static inline int plugin_open_(struct plugin_object *p, int fd, const char *name)
{
	char path[PLUGIN_PATH];
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (plugin_owner_check_(&st, 0))
		return -EPERM;
	plugin_path_(path, fd, &st);
	p->object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!p->object)
		return -ELIBBAD;
	p->plugin = (const struct inlay_task_plugin *)dlsym(p->object, "inlay_plugin");
	if (!p->plugin || p->plugin->version != INLAY_TASK_VERSION)
		return -EPROTO;
	return p->plugin->command && p->plugin->name && !strcmp(p->plugin->name, name) ? 0 : -EINVAL;
}

static inline int plugin_load_from_(struct plugin_object *p, const char *folder, const char *name)
{
	char file[PLUGIN_NAME + 3];
	int dir = plugin_folder_(folder), fd, err;

	if (dir < 0)
		return dir;
	snprintf(file, sizeof(file), "%s.so", name);
	fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	err = fd < 0 ? -errno : plugin_open_(p, fd, name);
	if (fd >= 0)
		close(fd);
	close(dir);
	if (err)
		plugin_unload(p);
	return err;
}

/*
 * Loads `name`.so from the first of num folders that has this file.
 *
 * Returns 0; -EINVAL for an invalid path or name, a file that is not regular, or a plugin of
 * another name or without handler; -EPERM when another user could have written it; -ENOENT; -ELOOP
 * or -ENOTDIR for a symbolic link; -ELIBBAD when dlopen fails (see dlerror(3)); -EPROTO when it
 * exports no interface of this version; else the negative errno of open(2). On failure
 * nothing is loaded.
 */
static inline int plugin_load(struct plugin_object *p, const char *const *folders, uint32_t num,
				 const char *name)
{
	int err = name && !plugin_name_check_(name) ? -ENOENT : -EINVAL;
	uint32_t i;

	p->object = NULL;
	p->plugin = NULL;
	for (i = 0; i < num && err == -ENOENT; i++)
		err = plugin_load_from_(p, folders[i], name);
	return err;
}

#endif
#endif
