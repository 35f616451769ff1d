#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# An installed software device: programs run on it from any folder, without this tree; uninstall leaves nothing.
. tests/tap.sh

cat >"$dir/user.c" <<'END'
#include <infiniband/verbs.h>
#include <softdev.h>
#include <stdio.h>

int main(void)
{
	struct ibv_device **list;
	struct ibv_context *ctx;

	if (!softdev_present() || softdev_manual(1))
		return puts("no device"), 1;
	list = ibv_get_device_list(NULL);
	ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	printf("%s, %d steps, %s\n", ctx ? ibv_get_device_name(list[0]) : "nothing", softdev_run(), softdev_version());
	return !ctx || softdev_manual(0) != -EBUSY;
}
END
sed -i '1i #include <errno.h>' "$dir/user.c"
version=$(sed -n 's/^.define INLAY_VERSION_[MP][A-Z]* //p' include/inlay/base.h | paste -sd.)

installed() # name bin include: what is there works, from a folder of its own
{
	mkdir -p "$dir/elsewhere"
	(
		unset SOFTDEV_SO
		cd "$dir/elsewhere" || exit 1
		"$2/softmlx5" --fabric "$dir/fabric" ibv_devinfo
	) >"$dir/out" 2>&1 && grep -q PORT_ACTIVE "$dir/out"
	result $? "$1: ibv_devinfo"
	try "$1: a program that steps the device" $CC -Wall -Wextra -Werror -I "$3" "$dir/user.c" -o "$dir/user" -libverbs
	same "$1: it runs" "mlx5_0, 0 steps, $version" "$(unset SOFTDEV_SO; cd "$dir/elsewhere" && "$2/softmlx5" --fabric "$dir/fabric" "$dir/user" 2>&1)"
	"$dir/user" >"$dir/out" 2>&1
	[ $? = 1 ] && grep -q 'no device' "$dir/out"
	result $? "$1: the same program without the device"
	(unset SOFTDEV_SO; "$2/softmlx5" --fault nonsense@1 true) >"$dir/out" 2>&1
	[ $? = 2 ]
	result $? "$1: a bad option"
	same "$1: its version, which is inlay's" "softmlx5 $version" "$(unset SOFTDEV_SO; "$2/softmlx5" --version)"
	same "$1: what it offers and refuses" "## What it offers,## What it refuses,## Limits" "$("$2/softmlx5" --list | grep '^#' | paste -sd,)"
}

make="make --no-print-directory B=$B CC=$CC"
try "install with PREFIX" $make install-softmlx5 PREFIX="$dir/usr"
same "what is there" "bin/softmlx5 include/softdev.h lib/libsoftmlx5.so.0 share/man/man1/softmlx5.1 share/softmlx5/README.md" \
	"$(cd "$dir/usr" && find . -type f | sed 's,^./,,' | sort | xargs)"
installed "PREFIX" "$dir/usr/bin" "$dir/usr/include"
ln -s "$dir/usr/bin/softmlx5" "$dir/link"
same "by a link" 7 "$(unset SOFTDEV_SO; "$dir/link" sh -c 'echo 7')"
same "groff says nothing about the manual page" "" "$(groff -man -ww -z "$dir/usr/share/man/man1/softmlx5.1" 2>&1)"
same "the device and its tests read no header of inlay" "" "$(grep -l '#include.*inlay' tests/softdev/*/*.[ch])"
# Rooms, lowest first. What preload.c defines is libc's
rooms=$(sed -n 's/^softdevrooms = //p' tests/softdev/softmlx5.mk) before=softdev
for room in $rooms; do
	before+="\|$room/$room"
	grep '#include "\.\./' tests/softdev/$room/* | grep -v "\"\.\./\($before\)\.h\"$"
done >"$dir/up"
nm -A ${SOFTDEV_SO%/*}/softdev/*/*.o | sed 's,[^:]*/\([a-z]*/[a-z]*\.o:\),\1,' | awk -F '[/: ]+' -v rooms="$rooms" '
	BEGIN { split(rooms, name, " "); for (i in name) rank[name[i]] = i }
	$(NF - 1) ~ /[TDBR]/ && $2 != "preload.o" { at[$NF] = rank[$1] }
	$(NF - 1) == "U" { used[$NF, rank[$1]] }
	END { if (!at["sd_up"]) print "no objects"; for (u in used) { split(u, s, SUBSEP); if (at[s[1]] > s[2] && s[1] != "sd_up") print s[1], "from", name[s[2]] } }' >>"$dir/up"
same "a room includes and calls none above it, but for sd_up" "" "$(cat "$dir/up")"
try "uninstall" $make uninstall-softmlx5 PREFIX="$dir/usr"
same "nothing is left" "" "$(find "$dir/usr" ! -type d -o -name softmlx5)"

try "install with blanks" $make install-softmlx5 DESTDIR="$dir/a stage" PREFIX="/opt/soft dev"
installed "blanks" "$dir/a stage/opt/soft dev/bin" "$dir/a stage/opt/soft dev/include"
>"$dir/a stage/opt/soft dev/share/softmlx5/mine"
try "uninstall" $make uninstall-softmlx5 DESTDIR="$dir/a stage" PREFIX="/opt/soft dev"
same "only what was installed has gone" mine "$(cd "$dir/a stage" && find . -type f -printf '%f\n')"
$make install-softmlx5 PREFIX=relative >"$dir/out" 2>&1
[ $? = 2 ]
result $? "a relative PREFIX is refused"
finish
