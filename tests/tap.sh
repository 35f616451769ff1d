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

# $port: a TCP port that the kernel chose, the same for the whole script. A process holds it and does not listen, so that it goes to
# nobody but those who ask for it by its number and with SO_REUSEADDR, as servers do
port=
hold_port()
{
	[ -z "$port" ] || return
	coproc perl -MIO::Socket::INET -e '
		my $s = IO::Socket::INET->new(Proto => "tcp", ReuseAddr => 1, LocalAddr => "127.0.0.1") or die;
		$| = 1;
		print $s->sockport, "\n";
		<STDIN>'
	read -ru ${COPROC[0]} port
}

listening() # port
{
	local file hex lines
	printf -v hex ':%04X [0-9A-F:]* 0A ' "$1"
	for file in /proc/net/tcp /proc/net/tcp6; do
		mapfile lines <$file && [[ ${lines[*]} =~ $hex ]] && return
	done 2>/dev/null
	return 1
}

# A moment, without a process for it
exec {never}<> <(:)
pause()
{
	read -rt 0.05 -u $never
}

# Server and client, each a process of its own; good when both are. The client comes when the second word, which is told the server's
# process, is true; it may set $port, which stands for PORT. for-ever: the server is ended when the client is done. What they said is in
# $dir/server.out and $dir/client.out, and together in $dir/out.
together() # ends or for-ever, when, server's command, client's command
{
	local server s c side
	$3 >"$dir/server.out" 2>"$dir/server.err" &
	server=$!
	until $2 $server || ! kill -0 $server 2>/dev/null; do
		pause
	done
	${4//PORT/$port} >"$dir/client.out" 2>"$dir/client.err"
	c=$?
	# A client that found nobody leaves a server that waits for ever
	[ $c = 0 ] && [ $1 = ends ] || kill $server 2>/dev/null
	wait $server
	s=$?
	[ $1 = ends ] || s=0
	# Not into one file at once, where the one would cut lines of the other
	for side in "server $s" "client $c"; do
		cat "$dir/${side% *}.err" >>"$dir/${side% *}.out"
		echo "${side% *}, status ${side#* }:"
		cat "$dir/${side% *}.out"
	done >"$dir/out"
	[ $s = 0 ] && [ $c = 0 ]
}

# A program that takes -p PORT and a host. $server_by and $client_by are words to stand before the command, such as another wrapper
both() # options of tests/softdev/run, command...
{
	local run="timeout 300 tests/softdev/run --fabric $dir/fabric $1" command="${*:2}"
	hold_port
	case $2 in # perftest measures its clock's frequency, for half a second; when time leaps it is done at once, and -F is to go on without
	ib_*)
		[ -e "$dir/leap.so" ] || $CC -shared -fPIC -o "$dir/leap.so" -x c - <<-'END'
			#include <sys/time.h>
			int gettimeofday(struct timeval *t, void *zone) { static long s; (void)zone; t->tv_sec = s++; t->tv_usec = 0; return 0; }
		END
		run="env LD_PRELOAD=$dir/leap.so $run" command+=" -F"
		;;
	esac
	together ends "listening $port" "$run $server_by $command -p $port" "$run $client_by $command -p $port 127.0.0.1"
}

pair() # name, options of tests/softdev/run, command...: one test
{
	local name=$1 opts=$2
	shift 2
	if ! command -v "$1" >/dev/null; then
		skip "$name" "$1 is not installed"
		return
	fi
	both "$opts" "$@"
	result $? "$name"
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
