#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/devx_info: as text, as JSON for jq, of a device by name; and what it says where there is
# no device or none that takes commands.
. tests/tap.sh

on() # options of tests/softdev/run, arguments of devx_info: its output in $dir/said, what it complains of in $dir/err
{
	local opts=$1
	shift
	if [ -n "$DEVICE" ]; then
		timeout 300 "$B/examples/devx_info" "$@" >"$dir/said" 2>"$dir/err"
	else
		timeout 300 tests/softdev/run --fabric "$dir/fabric" $opts "$B/examples/devx_info" "$@" >"$dir/said" 2>"$dir/err"
	fi
}

holds() # jq expression: true of the JSON in $dir/said
{
	cp "$dir/said" "$dir/out"
	[ "$(jq "$1" "$dir/said" 2>&1)" = true ]
	result $? "$1"
}

while IFS=';' read -r arguments status said; do
	on --devx $arguments
	same "$arguments" "$status $said" "$? $(cat "$dir/said" "$dir/err" | head -n 1)"
done <<'END'
--help;0;usage: devx_info [OPTION]... [DEVICE]
no_such_device;1;devx_info: no mlx5 device named no_such_device (ibv_devices lists what there is)
END

if [ -n "$DEVICE" ]; then
	on "" --json "$DEVICE" && holds '.function.num_ports >= 1'
	finish
	exit
fi

on --no-devx
same "no DEVX: status" 1 $?
why="devx_info: mlx5_0 takes no commands: Invalid argument (needs mlx5 with DEVX in kernel and firmware)"
same "no DEVX: said" "$why" "$(cat "$dir/err")"

for link in roce ib; do
	on "--devx --link $link" --json
	same "$link: status" 0 $?
	holds '.device == "mlx5_0"'
	if [ $link = ib ]; then
		holds '.function.port_type == "InfiniBand" and .function.roce == false and .roce == null'
	else
		holds '.function.port_type == "Ethernet" and .function.roce and (.roce.roce_version | index("v2") != null)'
		holds '.roce.r_roce_min_src_udp_port == 49152 and .roce.r_roce_max_src_udp_port == 65535'
	fi
	holds '.function.log_max_msg == 30 and (.function.vhca_id | type) == "number" and ([.transports.rc, .transports.uc, .transports.ud] | all)'
	holds '.doorbells.bf and .doorbells.log_bf_reg_size == 9 and (.atomic.atomic_size_qp | index(8)) and ([.[] | objects | .[]] | length > 70)'
done

on "--devx --devices 2" --json mlx5_1
same "the second device: status" 0 $?
holds '.device == "mlx5_1" and .function.vhca_id == 1'

# Text says the same. Each row of JSON is a line, each group a title.
on --devx --json
jq '[.[] | objects | .[]] | length' "$dir/said" >"$dir/rows"
on --devx
same "text: as many rows as JSON" "$(cat "$dir/rows")" "$(grep -c '^  ' "$dir/said")"
same "text: the longest message" 1 "$(grep -cx "  longest message                         1 GiB" "$dir/said")"

on "--devx-errno" --json
same "an older kernel: status" 0 $?
holds '.function.log_max_msg == 30'
finish
