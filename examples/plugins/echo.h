/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * echo.h: the plugin that answers with what it was told. The payload is any bytes, the response the same.
 *
 * A payload that came by a key goes back as it lies, written to what the host has granted when it is longer than an answer can be; without
 * such a grant it is answered with -E2BIG.
 */
#ifndef PLUGINS_ECHO_H
#define PLUGINS_ECHO_H

#include <inlay/task.h>

#define ECHO_ID 1u

static inline int echo_command(void *plugin, struct inlay_task_cmd *cmd)
{
	int err;

	(void)plugin;
	if (cmd->pulled)
		err = inlay_task_cmd_answer_buf(cmd, 0, cmd->pulled);
	else
		err = inlay_task_cmd_answer(cmd, 0, cmd->payload, cmd->payload_len);
	/* In both of these cases the command is still ours: an errno answers it. In all others it has been answered. */
	return err == -E2BIG || err == -EINVAL ? err : INLAY_TASK_LATER;
}

static const struct inlay_task_plugin echo_plugin = {INLAY_TASK_VERSION, "echo", NULL, NULL, NULL, NULL,
						     echo_command, NULL};

#endif
