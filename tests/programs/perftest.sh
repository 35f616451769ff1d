# SPDX-License-Identifier: BSD-3-Clause
# The whole matrix of programs that come with libibverbs and perftest, for the tests/*.t scripts that run it, each in its own way:
# perftest's lat and bw programs for write, read, send and atomic over RC, UC, UD, XRC and DC where each exists, with events, inline sizes, lists,
# several QPs and an SRQ.

perftest() # connection: the programs that know it
{
	case $1 in
	RC | XRC | DC) echo ib_{write,send,read,atomic}_{lat,bw} ;;
	UC) echo ib_{write,send}_{lat,bw} ;;
	UD) echo ib_send_{lat,bw} ;;
	esac
}

# Calls what the script that includes this defines:
#   at SIDES COMMAND...             on RoCE, with the shim at each of SIDES: s (server), c (client), b (both), with commas between
#   sides SIDE OPTIONS COMMAND...   with options of tests/softdev/run, with the shim at that side
every_program()
{
	local program options connection command sized

	for program in rc uc ud srq xsrq; do
		for options in "" -e "-s 64" "-s 1024 -n 50"; do
			at s,c,b ibv_${program}_pingpong -g 3 -n 100 $options
		done
	done
	at b ibv_rc_pingpong -g 3 -n 100 -t
	at b ibv_rc_pingpong -g 3 -n 100 -c -s 65536
	sides b "--link ib" ibv_ud_pingpong -n 100
	sides b "--link ib" ibv_xsrq_pingpong -n 50 -c 1 -e
	at b ib_send_lat -c XRC -n 100 -s 8 --use_old_post_send -e
	at b ib_send_lat -c DC -n 100 -s 8 --log_dci_streams=2
	for connection in RC UC UD XRC DC; do
		for program in $(perftest $connection); do
			command="$program -c $connection -n 100"
			sized=$command
			[[ $program = *atomic* ]] || sized="$command -s 8"
			at s,c,b $sized
			[ $connection = DC ] || at b $sized --use_old_post_send
			# A DC server that waits for events ends with an error by itself: it makes two CQs and destroys one
			[[ $program = *write* || $connection = DC ]] || at s,b $sized -e
			if [[ $program != *atomic* ]]; then
				at c,b $command -s 1024
				[ $connection = UD ] || at b $command -s 20000
			fi
			[ $connection = UD ] || sides b "--link ib" $sized
			if [[ $program = *write* || $program = *send* ]]; then
				at b $sized -I 0
				at b $command -s 60 -I 64
				[ $connection = DC ] || at b $command -s 200 -I 220 --use_old_post_send
			fi
			if [[ $program = *bw ]]; then
				at c,b $sized -q 4
				at b $sized -b
				at b $sized -l 10 -t 60
				at b $sized -Q 1 -t 5
				[ $connection = DC ] || at b $sized -q 3 --use_old_post_send -b
				[ "$program $connection" != "ib_send_bw RC" ] || at b $sized -r 16 -t 16
			fi
			if [[ $program = *send* && $connection = @(RC|UD) ]]; then
				at s,c,b $sized --use-srq
				[[ $program != *bw ]] || at b $sized --use-srq -q 4 --use_old_post_send
			fi
			[[ $program != *atomic* ]] || at b $command -A CMP_AND_SWAP
		done
	done
}
