#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Plugins of workers loaded at run time: only from an absolute folder that nobody else can write to, only what fits the worker, and what is
# loaded works: its handler is called across the border of the object, and all its functions by a worker whose host commands it.
. tests/tap.sh

cat >"$dir/plugin.c" <<'EOT'
#include <inlay/task.h>
static int command(void *plugin, struct inlay_task_cmd *cmd)
{
	cmd->response[0] = (uint8_t)(cmd->payload[0] + *(int *)plugin + MORE);
	cmd->response_len = 1;
	return 0;
}
INLAY_PLUGIN_EXPORT = {VERSION, INLAY_PLUGIN_LAYOUT + LAYOUT, NAME, NULL, NULL, NULL, NULL, HANDLER, NULL, NULL};
EOT
cat >"$dir/load.c" <<'EOT'
#include <inlay/task.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	const char *folders[] = {argv[1]};
	struct inlay_plugin_object o;
	struct inlay_task_cmd cmd;
	uint8_t payload = 40, response = 0;
	int err = inlay_plugin_load(&o, folders, 1, argv[2]), add = 2;

	(void)argc;
	if (err)
		return printf("%d %d\n", err, o.plugin || o.object), 0;
	__builtin_memset(&cmd, 0, sizeof(cmd));
	cmd.payload = &payload;
	cmd.payload_len = 1;
	cmd.response = &response;
	err = o.plugin->command(&add, &cmd);
	printf("%d %s %u\n", err, o.plugin->name, response);
	inlay_plugin_unload(&o);
	return 0;
}
EOT
# Takes words one by one: NUMBER=NAME loads, NUMBER calls and prints what 40 becomes, -NUMBER unloads, "files" prints how many are open more
# than in the beginning
cat >"$dir/many.c" <<'EOT'
#include <inlay/task.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
static int files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = -1;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}
static int call(const struct inlay_plugin_object *o)
{
	struct inlay_task_cmd cmd;
	uint8_t payload = 40, response = 0;
	int add = 2;

	__builtin_memset(&cmd, 0, sizeof(cmd));
	cmd.payload = &payload;
	cmd.payload_len = 1;
	cmd.response = &response;
	return o->plugin->command(&add, &cmd) ? -1 : response;
}
int main(int argc, char **argv)
{
	const char *folders[] = {argv[1]};
	struct inlay_plugin_object o[10];
	int begin = files(), i, err;

	for (i = 2; i < argc; i++) {
		char *word = argv[i];
		struct inlay_plugin_object *at = &o[abs(atoi(word)) % 10];

		if (!strcmp(word, "files")) {
			printf(" files:%d", files() - begin);
		} else if (word[0] == '-') {
			inlay_plugin_unload(at);
		} else if (word[1] == '=') {
			err = inlay_plugin_load(at, folders, 1, word + 2);
			if (err)
				printf(" %s:%d", word, err);
			else if (strcmp(at->plugin->name, word + 2))
				printf(" %s:%s", word, at->plugin->name);
		} else if (word[0] == '+') {
			printf(" %s", system(word + 1) ? "failed" : "done");
		} else {
			printf(" %d", call(at));
		}
	}
	puts("");
	return 0;
}
EOT
# A plugin with everything, and a worker that has it by the loader alone: commands come over the wire, are kept, and answered by what
# notification packs
cat >"$dir/full.h" <<'EOT'
#include <inlay/task.h>
struct counts {
	struct inlay_task_worker *worker;
	int fail;               /* what open is to return */
	uint32_t open, close, address, up, down, command, progress, notification, told;
};
EOT
cat >"$dir/full.c" <<'EOT'
#include "full.h"
static struct full {
	struct counts *n;
	struct inlay_task_cmd *kept[8];
	uint32_t first, last;
} full;
static int open_it(void *argument, struct inlay_task_worker *worker, void **plugin)
{
	full.n = (struct counts *)argument;
	full.n->open++;
	full.n->worker = worker;
	*plugin = &full;
	return full.n->fail;
}
static void close_it(void *plugin)
{
	((struct full *)plugin)->n->close++;
}
static int address(void *plugin, void *buf, size_t *len)
{
	const size_t room = *len;

	((struct full *)plugin)->n->address++;
	*len = 5;
	if (room < 5)
		return -ENOSPC;
	__builtin_memcpy(buf, "full!", 5);
	return 0;
}
static void connection(void *plugin, struct inlay_task_conn *conn, enum inlay_task_change up)
{
	struct full *f = (struct full *)plugin;

	f->n->up += up && conn->worker == f->n->worker;
	f->n->down += !up && conn->worker == f->n->worker;
}
static int command(void *plugin, struct inlay_task_cmd *cmd)
{
	struct full *f = (struct full *)plugin;

	f->n->command++;
	f->kept[f->last++ % 8] = cmd;
	return INLAY_TASK_LATER;
}
static uint32_t progress(void *plugin)
{
	struct full *f = (struct full *)plugin;
	struct inlay_task_cmd *cmd;

	f->n->progress++;
	if (f->first == f->last)
		return 0;
	cmd = f->kept[f->first++ % 8];
	f->n->told += !inlay_task_cmd_notify(cmd, cmd->payload_len % 3 ? 0 : -(int)cmd->payload_len - 1);
	return 1;
}
/* The destination, and the payload's bytes from the last to the first; or what goes wrong */
static int64_t notification(void *plugin, struct inlay_task_cmd *cmd, void *to, uint32_t room)
{
	struct full *f = (struct full *)plugin;
	uint8_t *at = (uint8_t *)to;
	uint32_t i;

	f->n->notification++;
	if (cmd->ids.destination == 1000)
		return -ENODATA;
	if (cmd->ids.destination == 1001)
		return (int64_t)room + 1;
	__builtin_memcpy(at, &cmd->ids.destination, 8);
	for (i = 0; i < cmd->payload_len; i++)
		at[8 + i] = cmd->payload[cmd->payload_len - 1 - i];
	return 8 + cmd->payload_len;
}
INLAY_PLUGIN_EXPORT = {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, "full", open_it, close_it, address, connection, command, progress,
		       notification};
EOT
cat >"$dir/wire.c" <<'EOT'
#include "common.h"
#include "task/rig.h"
#include "full.h"
#define FULL 7u
#define PLAIN 8u
#define TASKS 8u
#define ROUNDS 40u
static const char *folder;
static struct counts n;
static uint32_t turns, done_calls;
static void done(struct inlay_task *t, uint64_t a, uint64_t b)
{
	(void)t;
	(void)a;
	(void)b;
	done_calls++;
}
static int plain(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	(void)cmd;
	return 0;
}
static const struct inlay_task_plugin plugin_plain = {INLAY_PLUGIN_VERSION, INLAY_PLUGIN_LAYOUT, "plain", NULL, NULL, NULL, NULL, plain,
						      NULL, NULL};
static void turn(struct desk *d, struct line *l)
{
	step();
	inlay_task_worker_progress(&d->worker, 1, 4);
	turns++;
	step();
	inlay_task_host_progress(&l->host, 1, 4);
}
static void looks(const struct inlay_task *t, uint32_t len, uint32_t seed, uint64_t destination)
{
	const struct inlay_buf *r = inlay_task_response(t);
	const uint8_t *at = (const uint8_t *)inlay_buf_data(r);
	uint8_t payload[4096];
	uint32_t i;

	assert_int_equal(inlay_task_by(t), INLAY_TASK_BY_HANDLER);
	assert_int_equal(inlay_task_status(t), len % 3 ? 0 : -(int)len - 1);
	assert_int_equal(inlay_buf_data_len(r), 8 + len);
	assert_memory_equal(at, &destination, 8);
	fill(payload, len, seed);
	for (i = 0; i < len; i++)
		assert_int_equal(at[8 + i], payload[len - 1 - i]);
}
static void over_the_wire(void **state)
{
	struct inlay_task_host_params hp = inlay_task_host_default();
	struct inlay_task_worker_params wp = inlay_task_worker_default();
	struct inlay_plugin_object o;
	struct inlay_task_entry entries[2];
	struct inlay_task_worker w;
	struct inlay_task *t[TASKS];
	struct line l;
	struct desk *d;
	void *memory;
	uint8_t buf[16];
	uint32_t round, i;
	double end = now() + 60;
	size_t len;

	(void)state;
	must(inlay_plugin_load(&o, &folder, 1, "full"));
	entries[0].id = PLAIN;
	entries[0].plugin = &plugin_plain;
	entries[1].id = FULL;
	entries[1].plugin = o.plugin;
	entries[0].argument = NULL;
	entries[1].argument = &n;
	hp.tasks = hp.in_flight = wp.credits = wp.spare = TASKS;
	hp.period = wp.period = 0;
	wp.connections = 1;
	/* One that does not open leaves no worker, and is not closed */
	n.fail = -EDOM;
	wp.plugins = entries;
	wp.num_plugins = 2;
	memory = pages(inlay_task_worker_size(&wp));
	assert_int_equal(inlay_task_worker_create(&w, memory, inlay_task_worker_size(&wp), dev.pd, &wp, NULL), -EDOM);
	free(memory);
	assert_true(n.open == 1 && !n.close);
	memset(&n, 0, sizeof(n));
	d = desk_make(&wp, entries, 2, 2);
	assert_int_equal(n.open, 1);
	assert_ptr_equal(n.worker, &d->worker);
	len = 4;
	assert_int_equal(inlay_task_worker_plugin_address(&d->worker, FULL, buf, &len), -ENOSPC);
	assert_int_equal(len, 5);
	memset(buf, 0, sizeof(buf));
	len = sizeof(buf);
	must(inlay_task_worker_plugin_address(&d->worker, FULL, buf, &len));
	assert_int_equal(len, 5);
	assert_memory_equal(buf, "full!\0", 6);
	assert_int_equal(n.address, 2);
	assert_int_equal(inlay_task_worker_plugin_address(&d->worker, PLAIN, buf, &len), -ENOTSUP);
	assert_int_equal(inlay_task_worker_plugin_address(&d->worker, 9, buf, &len), -ENOENT);
	assert_true(!n.up && !n.down);
	memset(&l, 0, sizeof(l));
	line_make(&l, d, &hp);
	assert_true(n.up == 1 && !n.down);
	for (i = 0; i < TASKS; i++)
		must(inlay_task_alloc(&l.host, FULL, done, &t[i]));
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < TASKS; i++) {
			uint32_t bytes = (round * 97 + i * 13) % 4000;
			struct inlay_buf *p = inlay_task_payload(t[i]);

			t[i]->ids.destination = round * TASKS + i;
			inlay_buf_set_data(p, inlay_buf_head(p), bytes);
			fill(inlay_buf_data(p), bytes, round + i);
			must(inlay_task_submit(t[i]));
		}
		while (done_calls < (round + 1) * TASKS) {
			turn(d, &l);
			assert_true(now() < end);
		}
		for (i = 0; i < TASKS; i++)
			looks(t[i], (round * 97 + i * 13) % 4000, round + i, round * TASKS + i);
	}
	assert_int_equal(n.command, ROUNDS * TASKS);
	assert_int_equal(n.notification, ROUNDS * TASKS);
	assert_int_equal(n.told, ROUNDS * TASKS);
	assert_int_equal(n.progress, turns);
	/* What notification says in the place of a length */
	for (i = 0; i < 2; i++) {
		t[i]->ids.destination = 1000 + i;
		must(inlay_task_submit(t[i]));
	}
	while (done_calls < ROUNDS * TASKS + 2) {
		turn(d, &l);
		assert_true(now() < end);
	}
	assert_int_equal(inlay_task_status(t[0]), -ENODATA);
	assert_int_equal(inlay_task_status(t[1]), -E2BIG);
	assert_int_equal(t[0]->response_len + t[1]->response_len, 0);
	assert_int_equal(n.notification, ROUNDS * TASKS + 2);
	/* The end, with a command in its hands: it is told, and nobody is answered */
	t[0]->ids.destination = 1;
	must(inlay_task_submit(t[0]));
	settle();
	must(inlay_task_conn_break_(&l.conn));
	while (!l.conn.broken || l.conn.kept) {
		turn(d, &l);
		assert_true(now() < end);
	}
	assert_true(n.up == 1 && n.down == 1);
	assert_int_equal(n.notification, n.command);
	assert_int_equal(n.progress, turns);
	must(inlay_task_host_stop(&l.host));
	while (inlay_task_status(t[0]) == -EINPROGRESS) {
		turn(d, &l);
		assert_true(now() < end);
	}
	line_free(&l);
	assert_true(!n.close && n.down == 1 && n.open == 1);
	desk_free(d);
	assert_int_equal(n.close, 1);
	assert_int_equal(n.address, 2);
	inlay_plugin_unload(&o);
}
int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(over_the_wire)};

	folder = argc == 2 ? argv[1] : "/";
	return cmocka_run_group_tests(tests, dev_open, dev_close);
}
EOT
flags="-O2 -Wall -Wextra -Werror -I${INCLUDE:-include}"

plugin() # folder name compiler definitions...
{
	local folder=$1 name=$2 compiler=$3
	shift 3
	$compiler $flags -shared -fPIC -DVERSION=INLAY_PLUGIN_VERSION -DLAYOUT=0 -DNAME="\"$name\"" -DHANDLER=command -DMORE=0 "$@" \
		-o "$folder/$name.so" "$dir/plugin.c" && chmod 755 "$folder/$name.so"
}

errno() # name: its negative number
{
	echo $((-$(printf '#include <errno.h>\n%s\n' "$1" | gcc -E -P -x c - | tail -1)))
}

load() # folder name: what the program says
{
	"$dir/load" "$1" "$2"
}

refused() # text errno folder name
{
	same "$1: $2" "$(errno "$2") 0" "$(load "$3" "$4")"
}

mkdir -m 755 "$dir/plugins"
p=$(cd "$dir/plugins" && pwd -P)
try "the loader builds" gcc -std=gnu11 $flags -o "$dir/load" "$dir/load.c" -libverbs -lmlx5 -ldl
try "plugins build, C and C++" eval 'plugin "$p" add "gcc -std=gnu11" && plugin "$p" add_cxx "g++ -x c++ -std=c++17"'
same "a plugin is loaded and called" "0 add 42" "$(load "$p" add)"
same "one in C++ too" "0 add_cxx 42" "$(load "$p/" add_cxx)"

refused "a relative folder" EINVAL "plugins" add
refused "a folder by way of .." EINVAL "$p/../plugins" add
refused "a name with a slash" EINVAL "$dir" plugins/add
refused "an empty name" EINVAL "$p" ""
refused "a name of 48 letters" EINVAL "$p" "$(printf 'a%.0s' {1..48})"
refused "a file that is not there" ENOENT "$p" none
refused "a folder that is not there" ENOENT "$p/none" add
ln -s add.so "$p/link.so"
refused "a symbolic link for the file" ELOOP "$p" link
ln -s "$p" "$dir/link"
refused "a symbolic link for the folder" ENOTDIR "$dir/link" add
echo nonsense >"$p/text.so"
refused "a file that is no object" ELIBBAD "$p" text
mkdir "$p/folder.so"
refused "a folder for a file" EINVAL "$p" folder
mkfifo "$p/pipe.so"
refused "a pipe for a file" EINVAL "$p" pipe

for mode in 775 757; do
	chmod $mode "$p/add.so"
	refused "a file of mode $mode" EPERM "$p" add
	chmod 755 "$p/add.so"
	chmod $mode "$p"
	refused "a folder of mode $mode" EPERM "$p" add
	chmod 755 "$p"
	mkdir -p "$dir/above/below"
	plugin "$dir/above/below" add "gcc -std=gnu11"
	chmod $mode "$dir/above"
	refused "a folder below one of mode $mode" EPERM "$(cd "$dir" && pwd -P)/above/below" add
	chmod 1$mode "$dir/above"
	same "unless that is sticky" "0 add 42" "$(load "$(cd "$dir" && pwd -P)/above/below" add)"
done
chmod 1757 "$p"
refused "a sticky folder that others may write to" EPERM "$p" add
refused "a sticky folder with slashes behind its name" EPERM "$p//" add
chmod 755 "$p"

# More than one, and one after the other: each has its own interface, and nothing is left open
many() # text what it prints, words...
{
	local text=$1 want=$2
	shift 2
	same "$text" " $want" "$("$dir/many" "$p" "$@" 2>&1)"
}
try "a loader of many builds" gcc -std=gnu11 $flags -o "$dir/many" "$dir/many.c" -libverbs -lmlx5 -ldl
try "more plugins build" eval 'plugin "$p" ten "gcc -std=gnu11" -UMORE -DMORE=10 && plugin "$p" twenty "gcc -std=gnu11" -UMORE -DMORE=20 &&
	plugin "$p" stays "gcc -std=gnu11" -UMORE -DMORE=30 -Wl,-z,nodelete'
many "two plugins at once" "52 62 52 files:0" 1=ten 2=twenty 1 2 -2 1 -1 files
many "unloaded in the order of loading" "62 files:0" 1=ten 2=twenty -1 2 -2 files
many "one after the other" "52 62 52 files:0" 1=ten 1 -1 1=twenty 1 -1 1=ten 1 -1 files
many "one loaded while another is, after an unload" "62 42 62 files:0" 1=ten 2=twenty -1 2 1=add 1 2 -1 -2 files
many "three, of which the middle one is changed" "42 42 62 52 files:0" 1=ten 2=add 3=add_cxx 2 3 -2 2=twenty 2 1 -1 -2 -3 files
many "the same plugin twice" "52 52 52 files:0" 1=ten 2=ten 1 2 -1 2 -2 files
many "the same plugin twice, unloaded in reverse" "52 52 52 files:0" 1=ten 2=ten 1 2 -2 1 -1 files
many "twice, and others between" "52 62 52 42 52 files:0" 1=ten 2=twenty 3=ten 1 2 -1 3 4=add 4 3 -3 -4 -2 files
many "what cannot be loaded leaves nothing, and others as they are" "1=text:-$(($(errno ELIBBAD) * -1)) 52 52 files:0" \
	2=ten 1=text 2 2 -2 files
many "an object that stays is not taken for another" "72 62 72 52" 1=stays 1 -1 1=twenty 1 2=stays 2 3=ten 3
many "a file that was replaced meanwhile is the new one" "52 done 62 files:0" 1=ten 1 -1 \
	"+rm '$p/ten.so'; gcc -std=gnu11 $flags -shared -fPIC -DVERSION=INLAY_PLUGIN_VERSION \
		-DLAYOUT=0 '-DNAME=\"ten\"' -DHANDLER=command -DMORE=20 -o '$p/ten.so' '$dir/plugin.c' && chmod 755 '$p/ten.so'" 1=ten 1 -1 files

run=(tests/softdev/run)
if [ -n "$DEVICE" ]; then
	run=()
fi
export SOFTDEV_FABRIC=${SOFTDEV_FABRIC:-$dir/fabric}
# One is C, the other C++, and the other way round
c="$CC -std=gnu11" cxx="g++ -x c++ -std=gnu++17 -Wno-missing-field-initializers"
for checked in 0 1; do
	[ $checked = 1 ] && plugin=$c worker=$cxx || plugin=$cxx worker=$c
	try "a plugin with everything builds, checked $checked" eval '$plugin $flags -DINLAY_CHECKED=$checked -I"$dir" \
		-shared -fPIC -o "$p/full.so" "$dir/full.c" && chmod 755 "$p/full.so"'
	try "a worker for it builds, checked $checked" $worker $flags -DINLAY_CHECKED=$checked -Itests -Itests/softdev -I"$dir" \
		-o "$dir/wire" "$dir/wire.c" -libverbs -lmlx5 -lcmocka -ldl -pthread
	try "it is opened, commanded over the wire, and closed, checked $checked" timeout -k 1 300 "${run[@]}" "$dir/wire" "$p"
done

try "plugins that do not fit build" eval 'plugin "$p" old "gcc -std=gnu11" -UVERSION -DVERSION=0 &&
	plugin "$p" other "gcc -std=gnu11" -ULAYOUT -DLAYOUT=1 && plugin "$p" wrong "gcc -std=gnu11" -UNAME "-DNAME=\"right\"" &&
	plugin "$p" idle "gcc -std=gnu11" -UHANDLER -DHANDLER=NULL -Wno-unused-function'
refused "another version" EPROTO "$p" old
refused "other structs" EPROTO "$p" other
refused "another name" EINVAL "$p" wrong
refused "no handler" EINVAL "$p" idle
echo 'int nothing;' >"$dir/empty.c"
try "an object without interface builds" gcc -shared -fPIC -o "$p/empty.so" "$dir/empty.c"
chmod 755 "$p/empty.so"
refused "no interface" EPROTO "$p" empty
finish
