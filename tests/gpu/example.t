#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/gpu_put.cu is compiled, and says that there is no GPU where there is none; on a GPU it writes through the device that
# there is. SASS instructions of a post and a poll, with what rings, by nvcc 13 for sm_90.
. tests/tap.sh

nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || { skip "the example and its kernels" "there is no nvcc"; finish; exit; }
compile="$nvcc -std=c++17 -arch=sm_90 -Iinclude -Werror all-warnings"

printf '#include <inlay/%s.h>\n' inlay gpu devx memdomain task dm tag mmap/pci cqe/packet devx/packets queue/sync >"$dir/all.cu"
try "all headers for a GPU, without a warning" $compile -c -o "$dir/all.o" "$dir/all.cu"
try "the example" $compile -o "$dir/gpu_put" examples/gpu_put.cu -libverbs -lmlx5
for threads in 1 32 1024; do
	tests/softdev/run "$dir/gpu_put" $threads 1000000 >"$dir/out" 2>&1
	case $?:$(<"$dir/out") in
	1:*"no GPU") skip "a million writes by $threads threads" "there is no GPU" ;;
	0:*) result 0 "a million writes by $threads threads" ;;
	*) result 1 "a million writes by $threads threads" ;;
	esac
done

# Instructions have 16 bytes; NOPs at the end are padding
sass() # kernel
{
	local at size
	read -r at size < <(readelf -SW "$dir/kernels.cubin" 2>/dev/null | sed -n "s/.* \.text\.$1 *[A-Z]* *[0-9a-f]* \([0-9a-f]*\) \([0-9a-f]*\) .*/\1 \2/p")
	od -An -v -tx1 -w16 -j $((16#$at)) -N $((16#$size)) "$dir/kernels.cubin" | awk '{ if ($1 $2 != "1879") n = NR } END { print n }'
}
try "kernels for sm_90" $compile -DCOUNTS_ONLY -cubin -o "$dir/kernels.cubin" tests/gpu/kernels.cu
try "kernels for rings in the GPU's memory, with checks" $compile -DINLAY_CHECKED=1 -DCOUNTS_ONLY -DINLAY_GPU_SCOPE='"gpu"' -ptx \
	-o "$dir/gpu.ptx" tests/gpu/kernels.cu
same "their fences" "fence.acq_rel.gpu" "$(grep -o 'fence[.a-z_]*' "$dir/gpu.ptx" | sort -u)"
while read -r kernel most; do
	count=$(sass $kernel)
	result $((!count || count > most)) "$kernel: $count instructions, at most $most"
done <<'EOF'
count_write 89
count_inline 84
count_add 144
count_warp 203
count_poll 61
EOF
finish
