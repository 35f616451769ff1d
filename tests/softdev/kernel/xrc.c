/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * xrc.c: XRC domains.
 *
 * A domain that was opened with a file is shared by all contexts of this process that open it with
 * that file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "kernel.h"

static SD_OWN struct xrcd {
	struct sd_domain d;
	struct stat st;               /* of its file */
	bool file;
	int handles;
	struct xrcd *next;
} *all;

static struct xrcd *shared(const struct stat *st)
{
	struct xrcd *x = all;

	while (x && !(x->file && x->st.st_dev == st->st_dev && x->st.st_ino == st->st_ino))
		x = x->next;
	return x;
}

void sd_xrcd_put(struct sd_domain *d)
{
	struct xrcd *x = sd_container(d, struct xrcd, d), **at;

	if (--x->handles)
		return;
	for (at = &all; *at != x; at = &(*at)->next)
		;
	*at = x->next;
	free(x);
}

/* As the kernel: O_EXCL wants a new one, and without O_CREAT there must be one */
int sd_cmd_xrcd_open(struct sd_cmd *c)
{
	struct ib_uverbs_open_xrcd_resp resp = { .xrcd_handle = 0 };
	struct ib_uverbs_open_xrcd req;
	struct xrcd *x = NULL;
	struct stat st = { 0 };
	int err = sd_in(sd_attr(c, UVERBS_ATTR_CORE_IN), &req, sizeof(req));

	if (err)
		return err;
	if (req.fd != (uint32_t)-1) {
		if (fstat((int)req.fd, &st))
			return EBADF;
		x = shared(&st);
		if (!x && !(req.oflags & O_CREAT))
			return EAGAIN;
		if (x && req.oflags & O_EXCL)
			return EINVAL;
	}
	if (!x) {
		x = calloc(1, sizeof(*x));
		if (!x)
			return ENOMEM;
		*x = (struct xrcd){ .st = st, .file = req.fd != (uint32_t)-1, .next = all };
		all = x;
	}
	x->handles++;
	err = sd_handle_new(c->ctx, SD_XRCD, &x->d, &resp.xrcd_handle);
	if (err) {
		sd_xrcd_put(&x->d);
		return err;
	}
	return SD_OUT(c, UVERBS_ATTR_CORE_OUT, resp) ? sd_undo(c, SD_XRCD, resp.xrcd_handle) : 0;
}

int sd_cmd_xrcd_destroy(struct sd_cmd *c)
{
	struct sd_domain *d = sd_in_obj(c, UVERBS_ATTR_DESTROY_XRCD_HANDLE, SD_XRCD);

	/* Another handle would keep it, but the kernel looks at the users of the domain alone */
	if (d && d->refs && sd_container(d, struct xrcd, d)->handles == 1)
		return EBUSY;
	return sd_cmd_destroy(c, SD_XRCD, UVERBS_ATTR_DESTROY_XRCD_HANDLE);
}
