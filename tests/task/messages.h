/* SPDX-License-Identifier: BSD-3-Clause */
/* messages.h: writes messages of command tasks of any kind, as tests and fuzzers send them; probes. */
#ifndef TESTS_TASK_MESSAGES_H
#define TESTS_TASK_MESSAGES_H

#include <inlay/task/wire.h>

/* Writes the head and the keys. Returns their bytes. The data comes next. */
static inline uint32_t message_write(uint8_t *at, const struct inlay_task_message *m)
{
	uint32_t word = m->kind == INLAY_TASK_COMMAND ? m->flags : (uint32_t)-m->status;
	uint8_t *end = at + INLAY_TASK_HEAD;

	inlay_task_head_write_(at, inlay_task_first_(m->kind, word, m->length), &m->ids);
	if (m->flags & INLAY_TASK_PAYLOAD_KEY)
		inlay_task_key_write_(&end, m->payload.rkey, m->payload.bytes);
	if (m->flags & INLAY_TASK_RESPONSE_KEY)
		inlay_task_key_write_(&end, m->response.rkey, m->response.bytes);
	return (uint32_t)(end - at);
}

/* A write of no bytes, by which a dead peer is noticed. Returns 0 or -EAGAIN. */
static inline int message_probe(struct inlay_task_link *l)
{
	return inlay_post_write(&l->sq, 0, 0, NULL, 0, INLAY_SIGNALED | INLAY_RING);
}

#endif
