#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/plugins/load.h: plugins are loaded only from an absolute folder that nobody else can write to, and only if they fit the worker.
. tests/tap.sh

cat >"$dir/plugin.c" <<'EOT'
#include "load.h"
static int command(void *plugin, struct inlay_task_cmd *cmd)
{
	(void)plugin;
	cmd->response_len = 42;
	return 0;
}
PLUGIN_EXPORT = {VERSION, NAME, NULL, NULL, NULL, NULL, HANDLER, NULL};
EOT
# Loads each name, then calls its handler; unloads all
cat >"$dir/load.c" <<'EOT'
#include "load.h"
int main(int argc, char **argv)
{
	const char *folders[] = {argv[1]};
	struct plugin_object o[8];
	struct inlay_task_cmd cmd;
	int i, err;

	__builtin_memset(&cmd, 0, sizeof(cmd));
	for (i = 2; i < argc; i++) {
		err = plugin_load(&o[i], folders, 1, argv[i]);
		if (err && !o[i].object && !o[i].plugin)
			printf("%d\n", err);
	}
	for (i = 2; i < argc; i++)
		if (o[i].plugin) {
			err = o[i].plugin->command(NULL, &cmd);
			printf("%s %u\n", o[i].plugin->name, cmd.response_len + err);
			plugin_unload(&o[i]);
		}
	return 0;
}
EOT
flags="-O2 -Wall -Wextra -Werror -I${INCLUDE:-include} -Iexamples/plugins"

plugin() # folder name compiler definitions...
{
	local folder=$1 name=$2 compiler=$3
	shift 3
	$compiler $flags -shared -fPIC -DVERSION=INLAY_TASK_VERSION -DNAME="\"$name\"" -DHANDLER=command "$@" \
		-o "$folder/$name.so" "$dir/plugin.c" && chmod 755 "$folder/$name.so"
}

refused() # text errno folder name
{
	same "$1: $2" "$((-$(printf '#include <errno.h>\n%s\n' "$2" | gcc -E -P -x c - | tail -1)))" "$("$dir/load" "$3" "$4")"
}

mkdir -m 755 "$dir/plugins" "$dir/plugins/folder.so"
p=$(cd "$dir/plugins" && pwd -P)
try "the loader builds" gcc -std=gnu11 $flags -o "$dir/load" "$dir/load.c" -libverbs -lmlx5 -ldl
try "plugins build, C and C++, some of which do not fit" eval 'plugin "$p" add "gcc -std=gnu11" && plugin "$p" add_cxx "g++ -x c++ -std=c++17" &&
	plugin "$p" old "gcc -std=gnu11" -UVERSION -DVERSION=0 && plugin "$p" wrong "gcc -std=gnu11" -UNAME "-DNAME=\"right\"" &&
	plugin "$p" idle "gcc -std=gnu11" -UHANDLER -DHANDLER=NULL -Wno-unused-function &&
	echo "int nothing;" | gcc -shared -fPIC -x c -o "$p/empty.so" - && chmod 755 "$p/empty.so"'
same "plugins are loaded and called, one of them twice" "add 42 add_cxx 42 add 42" "$("$dir/load" "$p/" add add_cxx add | xargs)"
refused "a relative folder" EINVAL plugins add
refused "a folder by way of .." EINVAL "$p/../plugins" add
refused "a name with a slash" EINVAL "$dir" plugins/add
refused "an empty name" EINVAL "$p" ""
refused "a name of 48 letters" EINVAL "$p" "$(printf 'a%.0s' {1..48})"
refused "a file that is not there" ENOENT "$p" none
ln -s add.so "$p/link.so"
refused "a symbolic link for the file" ELOOP "$p" link
ln -s "$p" "$dir/link"
refused "a symbolic link for the folder" ENOTDIR "$dir/link" add
echo nonsense >"$p/text.so"
refused "a file that is no object" ELIBBAD "$p" text
refused "a folder for a file" EINVAL "$p" folder
refused "another version" EPROTO "$p" old
refused "another name" EINVAL "$p" wrong
refused "no handler" EINVAL "$p" idle
refused "no interface" EPROTO "$p" empty
mkdir -p "$dir/above/below"
plugin "$dir/above/below" add "gcc -std=gnu11"
for mode in 775 757; do
	chmod $mode "$p/add.so"
	refused "a file of mode $mode" EPERM "$p" add
	chmod 755 "$p/add.so"
	chmod 1$mode "$p"
	refused "a folder of mode 1$mode" EPERM "$p//" add
	chmod 755 "$p"
	chmod $mode "$dir/above"
	refused "a folder below one of mode $mode" EPERM "$(cd "$dir" && pwd -P)/above/below" add
	chmod 1$mode "$dir/above"
	same "unless that is sticky" "add 42" "$("$dir/load" "$(cd "$dir" && pwd -P)/above/below" add)"
done
finish
