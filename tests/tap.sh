# SPDX-License-Identifier: BSD-3-Clause
# What the tests/*.t scripts share, which are started by prove from the top of the tree: TAP, and a scratch folder, $dir.

B=${B:-build}
CC=${CC:-gcc}
n=0
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

result() # status name: one test; shows $dir/out when it failed
{
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		sed 's/^/# /' "$dir/out"
	fi
}

try() # name command...: good when the command is
{
	local name=$1
	shift
	"$@" >"$dir/out" 2>&1
	result $? "$name"
}

same() # name expected found
{
	printf 'expected:\n%s\nfound:\n%s\n' "$2" "$3" >"$dir/out"
	[ "$2" = "$3" ]
	result $? "$1"
}

skip() # name reason
{
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

note() # text
{
	sed 's/^/# /' <<<"$*"
}

cross_headers() # $dir/cross: libibverbs' headers, the same for every instruction set, alone, since a cross compiler has others for the rest
{
	local path
	path=$(echo '#include <infiniband/mlx5dv.h>' | gcc -E -x c - | sed -n 's,^# 1 "\(/.*/infiniband\)/mlx5dv.h".*,\1,p')
	mkdir -p "$dir/cross" && ln -sfn "$path" "$dir/cross/infiniband"
}

finish() # the plan, last of all, so that a script that ended early is seen
{
	echo "1..$n"
}
