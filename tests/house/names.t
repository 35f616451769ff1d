#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every function of the systems that inlay follows has a row in include/inlay/README.md, and every name of
# ours that such a row gives exists in a header.
. tests/tap.sh

page=include/inlay/README.md

rows() # the names of others: what stands between backquotes in the first columns of the page's tables
{
	perl -ne 'next unless /^\|([^|]*)\|/; print "$_\n" for map { s/\(.*//r } $1 =~ /`([^`]+)`/g' "$page" | sort -u
}

has() # system names...
{
	local system=$1 name missing=
	shift
	for name in "$@"; do
		grep -qx -- "$name" "$dir/rows" || missing="$missing $name"
	done
	echo "without a row:$missing" >"$dir/out"
	[ $# -gt 0 ] && [ -z "$missing" ]
	result $? "$system: $# names have a row"
}

rows >"$dir/rows"
has "DOCA mmap" doca_mmap_{create,destroy,start,stop,add_dev,rm_dev,set_memrange,set_dmabuf_memrange,set_dpa_memrange} \
	doca_mmap_{get_memrange,set_free_cb,set_permissions,set_max_num_devices,get_max_num_devices,get_num_bufs} \
	doca_mmap_{get_exported,get_from_export,set_user_data,get_user_data,export_rdma,export_pci,create_from_export} \
	doca_mmap_{cap_is_export_pci_supported,cap_is_create_from_export_pci_supported,dev_get_dpa_handle,enable_thread_safety} \
	"struct doca_mmap" doca_mmap_memrange_free_cb_t
has "DOCA buffer" doca_buf_{inc_refcount,dec_refcount,get_refcount,get_len,get_head,get_data_len,get_data,set_data,set_data_len} \
	doca_buf_{reset_data_len,get_next_in_list,get_last_in_list,is_last_in_list,is_first_in_list,is_in_list,get_list_len} \
	doca_buf_{chain_list,chain_list_tail,unchain_list} "struct doca_buf"{,_inventory,_pool,_arr}
has "DOCA inventory" doca_buf_inventory_{create,destroy,start,stop,buf_get_by_args,buf_get_by_addr,buf_get_by_data,buf_dup} \
	doca_buf_inventory_{expand,get_num_elements,get_num_free_elements,set_user_data,get_user_data}
has "DOCA pool" doca_buf_pool_{create,destroy,start,stop,buf_alloc,set_element_alignment,get_num_elements,get_num_free_elements}
has "DOCA array" doca_buf_arr_{create,set_params,start,stop,destroy}
has "SPDK memory domain" spdk_memory_domain_{create,destroy,get_context,get_user_context,get_dma_device_type,get_dma_device_id} \
	spdk_memory_domain_{set_translation,set_invalidate,set_pull,set_push,set_data_transfer,set_memzero,get_first,get_next} \
	spdk_memory_domain_{pull_data,push_data,transfer_data,translate_data,invalidate_data,memzero,get_system_domain} \
	spdk_memory_domain_{data_cpl,pull_data,push_data,transfer_data,translate_memory,invalidate_data,memzero}_cb \
	"struct spdk_memory_domain"{,_ctx,_rdma_ctx,_translation_ctx,_translation_result} "enum spdk_dma_device_type" SPDK_RDMA_DMA_DEVICE
# The list is the installed header's own.
has "DEVX" $(grep -oE '\bmlx5dv_devx_[a-z_]+ ?\(' /usr/include/infiniband/mlx5dv.h | tr -d ' (' | sort -u)
has "SRQ list operations" ibv_post_srq_ops IBV_WR_TAG_ADD IBV_WR_TAG_DEL IBV_WR_TAG_SYNC ibv_post_srq_recv max_sge
has "UROM task" "struct doca_urom_worker"{,_cmd_task} doca_urom_worker_cmd_task_{completion_cb_t,allocate,allocate_init,release,as_task,set_plugin,set_cb,get_payload,get_response,get_user_data}

# What the other columns name exists.
perl -ne 'next unless /^\|[^|]*\|(.*)/; print "$_\n" for $1 =~ /\b(inlay_[a-z0-9_]*[a-z0-9])\b(?![_*])/g' "$page" | sort -u >"$dir/ours"
echo inlay_never_heard_of >>"$dir/ours"
while read -r name; do
	grep -rqw --include='*.h' -- "$name" include/inlay || echo "$name"
done <"$dir/ours" >"$dir/out"
note "$(wc -l <"$dir/ours") names of ours"
same "every name of ours on the page exists, and only the one that does not is found" inlay_never_heard_of "$(cat "$dir/out")"

# The Makefile leaves a program beside a script to the script.
for script in tests/*/*.t; do
	[ ! -e "${script%.t}.c" ] || grep -q "${script%.t}\.c" "$script" || echo "$script"
done >"$dir/out"
same "each program beside a script of its name is built by the script" "" "$(cat "$dir/out")"

# A program that is renamed stays in the Makefile's lists.
for name in $(sed -n 's/^\(bytes\|emulated\|memcheck\|soaks\) = //p' Makefile); do
	ls tests/${name/\%/*}.c >/dev/null 2>&1 || echo "$name"
done >"$dir/out"
same "what the Makefile's lists name is there" "" "$(cat "$dir/out")"
finish
