#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Plugins of workers loaded at run time: only from an absolute folder that nobody else can write to, only what fits the worker, and what is
# loaded works: its handler is called across the border of the object.
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
	struct inlay_plugin_object o;
	struct inlay_task_cmd cmd;
	uint8_t payload = 40, response = 0;
	int err = inlay_plugin_load(&o, argv[1], argv[2]), add = 2;

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
			err = inlay_plugin_load(at, argv[1], word + 2);
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
flags="-O2 -Wall -Wextra -Werror -Iinclude"

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
