/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * publish.h: a file of one line, for its owner alone: where a service is to be found. It appears
 * whole, takes the place of no other file, follows no symbolic link, and is removed at the end
 * unless another one has come in its place.
 */
#ifndef COMMON_PUBLISH_H
#define COMMON_PUBLISH_H

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "program.h"

static int publish_folder = -1, publish_file = -1;
static const char *publish_name;

/*
 * Opens the folder of a file, along no symbolic link: others might have put it there. *rest: the
 * file's name.
 */
static inline int publish_open(const char *path, const char **rest)
{
	int fd = open(*path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC), next;
	char part[256];
	size_t n;

	for (;; path += n) {
		path += strspn(path, "/");
		n = strcspn(path, "/");
		*rest = path;
		if (fd < 0 || !path[n])
			return fd;
		snprintf(part, sizeof(part), "%.*s", n < sizeof(part) ? (int)n : 0, path);
		next = openat(fd, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(fd);
		fd = next;
	}
}

static inline void publish(const char *path, const char *line)
{
	char other[300];
	int fd, err;

	publish_folder = publish_open(path, &publish_name);
	if (publish_folder < 0)
		die("%s: %s", path,
		    errno == ENOTDIR ? "a symbolic link, or no folder, is on the way" : strerror(errno));
	/* Under another name first: whoever finds it finds all of it. */
	if ((size_t)snprintf(other, sizeof(other), "%s.%d", publish_name, (int)getpid()) >= sizeof(other))
		die("%s: the name is too long", path);
	fd = openat(publish_folder, other, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, line, strlen(line)) != (ssize_t)strlen(line) || fchmod(fd, 0600) ||
	    renameat2(publish_folder, other, publish_folder, publish_name, RENAME_NOREPLACE)) {
		err = errno;
		if (fd >= 0)
			unlinkat(publish_folder, other, 0);
		die("%s: %s", path,
		    err == EEXIST ? "is there already: another worker's, or left by one that was killed"
				  : strerror(err));
	}
	publish_file = fd;
}

static inline void publish_end(void)
{
	struct stat own, there;

	if (publish_file >= 0 && !fstat(publish_file, &own) &&
	    !fstatat(publish_folder, publish_name, &there, AT_SYMLINK_NOFOLLOW) && own.st_dev == there.st_dev &&
	    own.st_ino == there.st_ino)
		unlinkat(publish_folder, publish_name, 0);
}

#endif
