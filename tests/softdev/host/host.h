/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * host.h: what a program's libc calls come to.
 *
 *   preload.c  the calls: paths, opens, ioctls
 *   sysfs.c    the files of the devices
 *   start.c    begin and end of what is opened; fork()
 */
#ifndef SOFTDEV_HOST_H
#define SOFTDEV_HOST_H

#include "../cm/cm.h"

extern pthread_mutex_t sd_listings_lock;        /* preload.c; before sd_lock */
int sd_start(void);                             /* before anything is opened. Takes sd_lock; the device begins to work: 0 or -errno */
/* takes sd_lock; the same file as one of a context's: as good as that */
void sd_fd_adopt(int fd, dev_t st_dev, ino_t st_ino);
void sd_fd_closing(int fd);                     /* takes sd_lock */
/* directory in which the sysfs and /dev files lie under their own names; NULL with errno */
const char *sd_tree(void);

#endif
