/* SPDX-License-Identifier: BSD-3-Clause */
/* task_fuzz.c: the fuzzer's function (tests/fuzz/task.c) with random messages that are nearly right: always the same ones */
#include "common.h"
#include "fuzz/task.c"

static void messages(void **state)
{
	const char *env = getenv("TASK_OPS");
	uint64_t rounds = env && *env ? strtoull(env, NULL, 0) / 10 : 2000;
	struct inlay_task_command c;
	struct inlay_task_answer a;
	uint8_t input[2048];

	(void)state;
	rnd_state = 7;
	while (rounds--) {
		uint32_t at = 0, n = 1 + rnd_below(12), len, i;

		while (n--) {
			uint8_t *msg = input + at + 1;
			uint32_t to = rnd_below(2);

			for (i = 0; i < 127; i++)
				msg[i] = (uint8_t)rnd();
			len = rnd_below(96);
			memset(&c, 0, sizeof(c));
			c.plugin = rnd_below(3);
			c.flags = rnd_below(6) ? 0 : rnd_below(4);
			c.length = c.flags & 1 ? 8 : len;
			c.payload.bytes = c.response.bytes = 8;
			a.kind = 2 + (rnd_below(4) ? 0 : rnd_below(3));
			a.status = -(int)rnd_below(5000);
			a.length = a.kind == INLAY_TASK_ANSWER ? len : 0;
			a.context = inlay_task_context(rnd_below(5), rnd_below(3));
			a.plugin = a.destination = 0;
			if (to)
				inlay_task_answer_write(msg, &a);
			len = to ? INLAY_TASK_HEAD + a.length : inlay_task_command_write(msg, &c) + (c.flags & 1 ? 0 : len);
			if (len > 127)
				len = 127;
			if (rnd_below(4) == 0)
				msg[rnd_below(48)] ^= (uint8_t)(1u << rnd_below(8));
			if (rnd_below(8) == 0)
				len = rnd_below(128);
			input[at] = (uint8_t)(to << 7 | len);
			at += 1 + len;
		}
		assert_int_equal(LLVMFuzzerTestOneInput(input, at), 0);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages),
	};

	return cmocka_run_group_tests_name("task_fuzz", tests, NULL, NULL);
}
