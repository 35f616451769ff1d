#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# make dist gives the same bytes again, also from what it gave; lintian finds no error in what make deb builds. In a bare Debian with
# these packages the README's loop builds and runs, the provider is found, and so do the commands of the software device's page.
# A row of check-all: it needs minutes, and Debian's mirror.
. tests/tap.sh
unset "${!SOFTDEV_@}" # they name files of this tree

version=$(sed -n 's/^.define INLAY_VERSION_[MP][A-Z]* //p' include/inlay/base.h | paste -sd.)
dist() # folder, where it is built: the tarball
{
	make --no-print-directory -C "$1" B="$2" dist >"$dir/out" 2>&1 && echo "$2/inlay-$version.tar.gz"
}
first=$(dist . "$dir/build") && second=$(umask 077; dist . "$dir/again") && tar -xzf "$first" -C "$dir" &&
	third=$(dist "$dir/inlay-$version" "$dir/inlay-$version/build")
result $? "make dist, here and from its tarball"
same "the same bytes" "" "$(cmp "$first" "$second" 2>&1; cmp "$first" "$third" 2>&1)"
try "with the one-file header, which says the version" grep -q "inlay.*$version" "$dir/inlay-$version/inlay.h"

if ! command -v dh >/dev/null; then
	skip "make deb" "debhelper is not installed"
	finish
	exit
fi
try "make deb" make --no-print-directory B="$dir/build" deb
debs=$(echo "$dir"/build/deb/*.deb)
same "three packages" "inlay-fabric libinlay-dev softmlx5" "$(for d in $debs; do basename "${d%%_*}"; done | xargs)"
if command -v lintian >/dev/null; then
	try "lintian finds no error" lintian --fail-on error "$dir"/build/deb/*.changes
else
	skip "lintian" "it is not installed"
fi

# ---- In a bare Debian ----

cat >"$dir/script" <<'END'
set -ex
cd /usr/share/doc/libinlay-dev/examples
cc -O2 -Wall -Werror -o /srv/loop loop.c $(pkg-config --cflags --libs inlay)
softmlx5 /srv/loop
softmlx5 fi_info -p inlay
END
sed -n 's/^      - run: \(softmlx5 .*\)/\1/p' tests/softdev/README.md >>"$dir/script"
same "the device's page: a workflow of ten lines, two of which start programs" "10 2" \
	"$(sed -n '/^```yaml/,/^```$/{/^```/d;p}' tests/softdev/README.md | wc -l) $(grep -c '^softmlx5 ib' "$dir/script")"
if ! command -v mmdebstrap >/dev/null; then
	skip "a bare Debian" "mmdebstrap is not installed"
elif mmdebstrap -q --variant=minbase --customize-hook="copy-in $debs $dir/script /srv" \
	--customize-hook='chroot "$1" sh -c "apt-get install -qq --no-install-recommends /srv/*.deb gcc libc6-dev pkg-config libfabric-bin ibverbs-utils perftest"' \
	--customize-hook='chroot "$1" env -u DEPENDENCIES_OUTPUT sh /srv/script' "$(. /etc/os-release; echo "$VERSION_CODENAME")" /dev/null >"$dir/out" 2>&1; then
	result 0 "in a bare Debian"
	note "$(grep -A1 -e 'loop: on' -e '#bytes' "$dir/out")"
elif grep -q 'Could not resolve\|Could not connect' "$dir/out"; then
	skip "a bare Debian" "no mirror: $(grep -m1 'Could not' "$dir/out")"
else
	grep -aq '^+ cd ' "$dir/out" && sed -i '1,/^+ cd /d' "$dir/out"
	result 1 "in a bare Debian"
fi
finish
