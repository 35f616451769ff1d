/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inlay/task/plugin.h: plugins of a worker that are loaded at run time. Set-up only. What a plugin is, worker.h says (struct
 * inlay_task_plugin); one that is compiled into the worker needs nothing from here.
 *
 *   counter.c, made into /opt/plugins/counter.so:
 *
 *           INLAY_PLUGIN_EXPORT = {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, "counter", open, close, NULL, NULL, command, progress, NULL};
 *
 *   the worker:
 *
 *           inlay_plugin_load(&object, "/opt/plugins", "counter");
 *           entries[n].id = COUNTER;  entries[n].plugin = object.plugin;
 *           ... inlay_task_worker_create, ..., inlay_task_worker_destroy ...
 *           inlay_plugin_unload(&object);
 *
 * What is loaded runs with all rights of the worker, so it is loaded only from where nobody else can have put it:
 *
 *   - The folder is named by an absolute path without . and .. and without symbolic links, and none is looked for anywhere else: not along
 *     a search path, not in the environment, not in the current folder.
 *   - The folder and the file belong to root or to the worker's user, and neither group nor others may write to them. So do all folders
 *     above; one of them may be writable when it is sticky, as /tmp.
 *   - The name has letters, digits, - and _ only; the file is a regular one, NAME.so.
 *   - What was looked at is what is loaded: by the open file, not by its name once more.
 *   - Version and layout are the worker's: a plugin's inline code shares the structs of worker.h. One compiled with other headers is
 *     refused. Its name is the file's.
 *
 * Threads: as dlopen(3).
 * Sources: dlopen(3), openat(2); DOCA's documentation of doca_urom_plugin (interface, version, path of folders).
 */
#ifndef INLAY_TASK_PLUGIN_H
#define INLAY_TASK_PLUGIN_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <inlay/base.h>
#include <inlay/task/cmd.h>

#define INLAY_PLUGIN_NAME 48u           /* bytes of a name, the zero at its end included */
#define INLAY_PLUGIN_PATH 288u          /* bytes of the name that the loader is told, likewise */

/* The one symbol that a plugin's object exports: the definition of its interface follows. */
#ifdef __cplusplus
#define INLAY_PLUGIN_EXPORT                                                                                                             \
	extern "C" const struct inlay_task_plugin inlay_plugin __attribute__((visibility("default")));                                   \
	const struct inlay_task_plugin inlay_plugin
#else
#define INLAY_PLUGIN_EXPORT                                                                                                             \
	extern const struct inlay_task_plugin inlay_plugin __attribute__((visibility("default")));                                       \
	const struct inlay_task_plugin inlay_plugin
#endif

/* A loaded object. */
struct inlay_plugin_object {
	void *object;                   /* dlopen's */
	const struct inlay_task_plugin *plugin; /* in it */
};

/* ------------------------------------------------------------------------------------------------------------------------
 * Set-up: all of it
 */

/* Whether a name is one: letters, digits, - and _. */
INLAY_COLD int inlay_plugin_name_check(const char *name)
{
	size_t n;

	for (n = 0; name[n]; n++) {
		char c = name[n];
		int good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';

		if (!good || n + 1 == INLAY_PLUGIN_NAME)
			return -EINVAL;
	}
	return n ? 0 : -EINVAL;
}

/*
 * Whether nobody but root and the worker's user can have made this what it is. above: a folder on the way, which may be sticky. Returns 0,
 * or -EPERM.
 */
INLAY_COLD int inlay_plugin_owner_check(const struct stat *st, int above)
{
	if (st->st_uid && st->st_uid != geteuid())
		return -EPERM;
	if (st->st_mode & (S_IWGRP | S_IWOTH) && !(above && st->st_mode & S_ISVTX))
		return -EPERM;
	return 0;
}

/* Opens a folder, looking at each one on the way. Returns its descriptor or a negative errno. */
INLAY_COLD int inlay_plugin_folder(const char *path)
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
		while (*path == '/')
			path++;
		err = fstat(fd, &st) ? -errno : inlay_plugin_owner_check(&st, *path != 0);
		if (err || !*path)
			break;
		for (n = 0; path[n] && path[n] != '/'; n++)
			if (n + 1 < sizeof(part))
				part[n] = path[n];
		err = n >= sizeof(part) ? -ENAMETOOLONG : 0;
		if (err)
			break;
		part[n] = 0;
		path += n;
		err = strcmp(part, ".") && strcmp(part, "..") ? 0 : -EINVAL;
		if (err)
			break;
		next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0) {
			err = -errno;
			break;
		}
		close(fd);
		fd = next;
	}
	if (!err)
		return fd;
	close(fd);
	return err;
}

/*
 * A name by which the loader gets an open file. It takes two objects of one name for the same without looking, and descriptors' numbers
 * come again; so the name says which file it is: its device and inode, as 128 steps that lead nowhere, "/." for a one and "/" for a zero.
 */
INLAY_COLD void inlay_plugin_path(char path[INLAY_PLUGIN_PATH], int fd, const struct stat *st)
{
	const uint64_t which[2] = {(uint64_t)st->st_dev, (uint64_t)st->st_ino};
	int n = snprintf(path, INLAY_PLUGIN_PATH, "/proc/self/fd"), i;

	for (i = 0; i < 128; i++) {
		path[n++] = '/';
		if (which[i / 64] >> i % 64 & 1)
			path[n++] = '.';
	}
	snprintf(path + n, INLAY_PLUGIN_PATH - (size_t)n, "/%d", fd);
}

/* Unloads it: after the worker that had it was destroyed. */
INLAY_COLD void inlay_plugin_unload(struct inlay_plugin_object *p)
{
	if (p->object)
		dlclose(p->object);
	p->object = NULL;
	p->plugin = NULL;
}

/* Looks at an open file and loads it. */
INLAY_COLD int inlay_plugin_open(struct inlay_plugin_object *p, int fd, const char *name)
{
	char path[INLAY_PLUGIN_PATH];
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (inlay_plugin_owner_check(&st, 0))
		return -EPERM;
	inlay_plugin_path(path, fd, &st);
	p->object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!p->object)
		return -ELIBBAD;
	p->plugin = (const struct inlay_task_plugin *)dlsym(p->object, "inlay_plugin");
	if (!p->plugin)
		return -EPROTO;
	if (p->plugin->version != INLAY_PLUGIN_VERSION || p->plugin->layout != INLAY_PLUGIN_LAYOUT)
		return -EPROTO;
	return p->plugin->command && p->plugin->name && !strcmp(p->plugin->name, name) ? 0 : -EINVAL;
}

/*
 * Loads a plugin.
 *
 * folder  absolute: see the manual above
 * name    of the plugin; the file is NAME.so
 *
 * Returns 0; -EINVAL for a path or name that cannot be, what is no regular file, and a plugin of another name or without handler; -EPERM
 * when somebody else could have written it; -ENOENT when there is no such folder or file; -ELOOP or -ENOTDIR for a symbolic link; -ELIBBAD
 * when it cannot be loaded (dlerror(3) says why); -EPROTO when it exports no interface, or one of another version or layout; else the
 * negative errno of open(2). Then nothing is loaded.
 */
INLAY_COLD int inlay_plugin_load(struct inlay_plugin_object *p, const char *folder, const char *name)
{
	char file[INLAY_PLUGIN_NAME + 3];
	int dir, fd, err;

	p->object = NULL;
	p->plugin = NULL;
	if (!name || inlay_plugin_name_check(name))
		return -EINVAL;
	dir = inlay_plugin_folder(folder);
	if (dir < 0)
		return dir;
	snprintf(file, sizeof(file), "%s.so", name);
	fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	err = fd < 0 ? -errno : inlay_plugin_open(p, fd, name);
	if (fd >= 0)
		close(fd);
	close(dir);
	if (err)
		inlay_plugin_unload(p);
	return err;
}

/* The same from the first of several folders that has such a file. -ENOENT: none of them. */
INLAY_COLD int inlay_plugin_find(struct inlay_plugin_object *p, const char *const *folders, uint32_t num, const char *name)
{
	uint32_t i;
	int err = -ENOENT;

	for (i = 0; i < num && err == -ENOENT; i++)
		err = inlay_plugin_load(p, folders[i], name);
	return err;
}

#endif
