#!/usr/bin/perl
# SPDX-License-Identifier: BSD-3-Clause
# Usage: ifc.pl INLAY LINUX SCRATCH CC
#
# Compares the layouts of inlay/devx/ifc.h and packets.h (INLAY: the include folder) with those of Linux
# (LINUX: its include folder), by the compiler: every field's first bit and width, every member's
# place and size, every struct's size, and the values of enums where the kernel has a name for
# them. Linux's headers are read with a few words of ours before them (SCRATCH/shim), as they are
# and where they are. Every field, whoever else has it, must lie within its struct, in one dword or
# on two.
#
# Says what differs, what is only here and has no second source below, and at the end:
#
#   fields N                 that are defined here
#   compared N               with a field of Linux's, by M comparisons
#   structs N  values N      sizes and enum values compared
#   only here NAME: source   for every field that this Linux has not
#
# Status 0 when all agree and every field is in Linux or has its source here.
use strict;
use warnings;

my ($inlay, $linux, $scratch, $cc) = @ARGV;

# ---- What is called what ----

# Struct here: structs of Linux, mlx5_ifc_..._bits; those of the same name are not listed. Empty:
# Linux has none.
my %struct = (
	wqc => 'wq', alias => '', create_alias_in => '', create_alias_out => '',
	allow_other_vhca_access_in => '', qp_ext_in => '', eqe => 'eqe',
	create_cq_in => 'create_cq_in modify_cq_in', create_rmp_in => 'create_rmp_in modify_rmp_in',
	create_rq_in => 'create_rq_in modify_rq_in',
	create_qp_in => 'create_qp_in rst2init_qp_in init2rtr_qp_in rtr2rts_qp_in rts2rts_qp_in sqerr2rts_qp_in init2init_qp_in',
	hca_cap => 'cmd_hca_cap', hca_cap_2 => 'cmd_hca_cap_2', atomic_cap => 'atomic_caps',
	cmd_in => 'query_cq_in query_qp_in qp_2err_in qp_2rst_in query_mkey_in query_rmp_in query_rq_in query_xrq_in query_dct_in
		arm_xrq_in alloc_pd_in alloc_transport_domain_in alloc_q_counter_in query_hca_cap_in query_roce_address_in general_obj_in_cmd_hdr',
	cmd_out => 'create_cq_out modify_cq_out create_qp_out rst2init_qp_out init2rtr_qp_out rtr2rts_qp_out rts2rts_qp_out
		sqerr2rts_qp_out init2init_qp_out qp_2err_out qp_2rst_out create_mkey_out create_rmp_out modify_rmp_out create_rq_out modify_rq_out create_rqt_out create_tir_out
		create_xrq_out create_dct_out arm_xrq_out alloc_pd_out alloc_transport_domain_out alloc_q_counter_out general_obj_out_cmd_hdr',
);

# The names in Linux of fields and members that are not the same in lower case. Several: each is
# compared where there is one. With a dot in front it is looked for in that struct instead; + adds
# bits.
my %name = (
	'cmd_in.NUMBER' => 'cqn qpn mkey_index rmpn rqn xrqn dctn srq_number',
	'cmd_in.NUM_PSV' => '.create_psv_in.num_psv', 'cmd_in.OP_MOD' => 'op_mod obj_type',
	'cmd_out.NUMBER' => 'cqn qpn mkey_index rmpn rqn rqtn tirn transport_domain xrqn dctn pd',
	'eqe.CQ_ERROR_CQN' => 'event_data.cq_error.cqn', 'eqe.CQ_ERROR_SYNDROME' => 'event_data.cq_error.syndrome',
	'eqe.OBJ_TYPE' => '.affiliated_event_header.obj_type+0x100', 'eqe.OBJ_ID' => '.affiliated_event_header.obj_id+0x100',
	'eqe.QP_TYPE' => 'event_data.qp_events.type',
	'eqe.NUMBER' => 'event_data.qp_events.qpn_rqn_sqn event_data.dct_events.dct_number event_data.comp_event.cq_number',
	'create_qp_in.QPN' => 'input_qpn', 'hca_cap.RELAXED_ORDERING_READ' => 'relaxed_ordering_read_pci_enabled',
	'qpc.primary' => 'primary_address_path',
	map({ ("tirc.$_" => 'rx_hash_field_selector_outer.' . lc $_) } qw(L3_PROT_TYPE L4_PROT_TYPE SELECTED_FIELDS)),
	'fte_match_set_lyr_2_4.src' => 'src_ipv4_src_ipv6', 'fte_match_set_lyr_2_4.dst' => 'dst_ipv4_dst_ipv6',
	'xrqc.LOG_MATCHING_LIST_SZ' => 'tag_matching_topology_context.log_matching_list_sz',
	'query_mkey_out.klm' => 'bsf0_klm0_pas_mtt0_1', # the first of its two
	'query_roce_address_out.source_l3_address' => 'roce_address.source_l3_address',
);
my %context = ( # members that hold an object's context, in whatever command
	cqc => 'cq_context', mkc => 'memory_key_mkey_entry', rmpc => 'ctx rmp_context', xrqc => 'xrq_context',
	dctc => 'dct_context_entry', rqc => 'ctx rq_context', rqtc => 'rqt_context', tirc => 'ctx',
);

# Fields that Linux has as a C struct's, or as two: place, width
my %plain = (
	'query_roce_address_out.source_mac' => 'offsetof(struct mlx5_ifc_query_roce_address_out_bits, roce_address.source_mac_47_32), 16 + 32',
	'query_hca_cap_out.cap' => 'offsetof(struct mlx5_ifc_query_hca_cap_out_bits, capability), 0x100 * 8',
	'ads.rmac' => 'offsetof(struct mlx5_ifc_ads_bits, rmac_47_32), 16 + 32',
	'eqe.XRQ_ERROR_XRQN' => 'offsetof(struct mlx5_eqe, data.xrq_err.type_xrqn) * 8 + 8, 24',
);

# Fields newer than Debian 12's Linux, or that the kernel has no use for, and where else the same
# is written. DPDK: its mlx5_prm.h. UCX: its ib_mlx5_ifc.h. rdma-core: its private mlx5_ifc.h, or
# the PRM structs of its tests.
my %second = map { my ($where, $fields) = @$_; map { ($_ => $where) } split ' ', $fields } (
	['DPDK, UCX, rdma-core', 'cqc.DBR_UMEM_ID create_cq_in.CQ_UMEM_ID create_mkey_in.MKEY_UMEM_ID create_mkey_in.MKEY_UMEM_OFFSET qpc.DBR_UMEM_ID'],
	['DPDK, UCX', 'cqc.MINI_CQE_RES_FORMAT_EXT create_cq_in.CQ_UMEM_OFFSET qpc.CD_MASTER qpc.CD_SLAVE_SEND'],
	['DPDK, UCX, Linux 6.12', 'create_qp_in.WQ_UMEM_OFFSET wqc.DBR_UMEM_ID wqc.WQ_UMEM_ID cmd_in.ALIAS_OBJECT alias.VHCA_ID_TO_BE_ACCESSED
		alias.STATUS alias.OBJECT_ID_TO_BE_ACCESSED alias.access_key allow_other_vhca_access_in.OBJECT_TYPE_TO_BE_ACCESSED
		allow_other_vhca_access_in.OBJECT_ID_TO_BE_ACCESSED allow_other_vhca_access_in.access_key'],
	['DPDK, UCX, rdma-core, Linux 6.12', 'create_qp_in.WQ_UMEM_ID hca_cap_2.CROSS_VHCA_OBJECT_TO_OBJECT_SUPPORTED hca_cap_2.ALLOWED_OBJECT_FOR_OTHER_VHCA_ACCESS'],
	['UCX, rdma-core', 'hca_cap.DP_ORDERING_OOO_ALL_DC hca_cap.DP_ORDERING_OOO_ALL_RC hca_cap.DP_ORDERING_OOO_ALL_UC
		hca_cap.DP_ORDERING_OOO_ALL_UD'],
	['UCX', 'qpc.DP_ORDERING_1 xrqc.DC dctc.OFFLOAD_TYPE'],
	['rdma-core', 'qp_ext_in.QPC_EXT qp_ext_in.OPT_PARAM_MASK_95_32 qp_ext_in.MMO qp_ext_in.DCI_STREAM qp_ext_in.qpc_data_ext'],
	['DPDK, rdma-core', 'hca_cap.LOG_DMA_MMO_MAX_SIZE hca_cap.DMA_MMO_QP'],
	['DPDK', 'hca_cap.WAIT_ON_DATA hca_cap.WAIT_ON_TIME'],
	['DPDK, Linux 6.12', 'wqc.WQ_UMEM_OFFSET'],
	['Linux 6.14', 'dctc.DP_ORDERING_1'],
	['DPDK, Linux 6.12 and rdma-core as relaxed_ordering_read', 'hca_cap.PCI_RELAXED_ORDERED_READ'],
	['UCX; metadata: DPDK, Linux 6.12', 'alias.METADATA_PD'],
);

# Enum here: how Linux spells its values; %s is the end of the name
my %enum = (
	cmd_op => 'MLX5_CMD_OP_%s', cmd_status => 'MLX5_CMD_STAT_%s MLX5_CMD_STAT_%s_ERR', event_type => 'MLX5_EVENT_TYPE_%s',
	qp_opt => 'MLX5_QP_OPTPAR_%s', qp_st => 'MLX5_QP_ST_%s MLX5_QPC_ST_%s', qp_state => 'MLX5_QPC_STATE_%s',
	qp_pm => 'MLX5_QP_PM_%s MLX5_QPC_PM_STATE_%s', atomic_mode => 'MLX5_QPC_ATOMIC_MODE_%s MLX5_QPC_ATOMIC_MODE_%sB',
	cs_req => 'MLX5_QPC_CS_REQ_%sB', cs_res => 'MLX5_QPC_CS_RES_%sB', mkey_mode => 'MLX5_MKC_ACCESS_MODE_%s',
	wq_type => 'MLX5_WQ_TYPE_%s MLX5_WQ_TYPE_%s_RQ', wq_state => 'MLX5_SQC_STATE_%s MLX5_RQC_STATE_%s MLX5_RMPC_STATE_%s',
	cq_status => 'MLX5_CQC_STATUS_%s MLX5_CQC_STATUS_CQ_%s', obj_type => 'MLX5_OBJ_TYPE_%s',
	cap_type => 'MLX5_CAP_%s',
	ts_format => 'MLX5_TIMESTAMP_FORMAT_%s',
	cqe_sz => 'MLX5_CQC_CQE_SZ_%s_BYTES', xrq_topology => 'MLX5_XRQC_TOPOLOGY_%s', xrq_offload => 'MLX5_XRQC_OFFLOAD_%s',
	rq_type => 'MLX5_%s_RQ',
);
my %prefix = (cmd_op => 'CMD_OP', cmd_status => 'CMD_STATUS', event_type => 'EVENT', qp_pm => 'QP_PM', mkey_mode => 'MKEY',
	wq_type => 'WQ', obj_type => 'OBJ', cap_type => 'CAP', ts_format => 'TS');
my %value = ('cap_type.EVENT' => 'DEV_EVENT',
	'cmd_status.INTERNAL_ERR' => 'INT_ERR', 'qp_st.RAW' => 'RAW_ETHERTYPE',
	'rq_type.OWN' => 'NON_ZERO', 'rq_type.SHARED' => 'SRQ', 
	'rq_type.NONE' => 'ZERO_LEN', 'mkey_mode.KLM' => 'KLMS', 'atomic_mode.IB' => 'IB_SPEC');

# ---- Our headers ----

my (%fields, %members, %values, @structs);
my $packets = ''; # the layouts alone: the header stands on libibverbs
for my $file (map { "$inlay/inlay/devx/$_.h" } qw(ifc packets)) {
	open my $in, '<', $file or die "$file: $!\n";
	my $text = join '', <$in>;
	$text =~ s{/\*.*?\*/}{}gs;
	while ($text =~ /^enum inlay_(\w+) \{(.*?)\};/gms) {
		my ($enum, $body) = ($1, $2);
		my $upper = $prefix{$enum} || uc $enum;
		push @{$values{$enum}}, $1 while $body =~ /\bINLAY_${upper}_(\w+) =/g;
	}
	while ($text =~ /^#define INLAY_CMD_(OP|STATUS)(?:E?S)_\(\w+\) \\\n((?:.*\\\n)*.*)/gm) {
		my ($enum, $body) = ('cmd_' . lc $1, $2);
		push @{$values{$enum}}, $1 while $body =~ /\b(?:op|status)\((\w+), 0x/g;
	}
	$packets = join "\n", $text =~ /^(INLAY_(?:LAYOUT|LAYOUT_AT|BOX)\(.*?\);)\s*$/gms;
	while ($text =~ /^INLAY_(?:LAYOUT|BOX)\((\w+), (.*?)\);\s*$/gms) {
		my ($struct, $body) = ($1, $2);
		my $upper = uc $struct;
		push @structs, $struct;
		$body =~ s/union \{.*?\n\t *\} (\w+)/uint8_t $1\[4096]/s;
		while ($body =~ /\bINLAY_(\w+) = (\w+(?:\(.*?\))?)/g) {
			my ($constant, $bits) = ($1, $2);
			if ($struct eq 'hca_cap' && $constant =~ /^(HCA_CAP_2|ATOMIC_CAP|ROCE_CAP)_(\w+)$/) {
				push @{$fields{lc $1}}, $2; # of the same struct
				next;
			}
			$constant =~ /^${upper}_(\w+)$/ && $bits =~ /^INLAY_BITS\(0x[0-9a-f]+, \d+\)$/ or die "$file: $struct: $constant = $bits\n";
			push @{$fields{$struct}}, substr($constant, 1 + length $upper);
		}
		while ($body =~ /\b(struct inlay_\w+|uint\w+) (\w+)(?=\[|;|,|$)/g) {
			my ($type, $member) = ($1, $2);
			push @{$members{$struct}}, $member unless $member =~ /^(cmd|dword|more)$/;
			push @{$fields{$struct}}, qw(:OPCODE :OP_MOD) if $type eq "struct inlay_cmd_in";
			push @{$fields{$struct}}, qw(:STATUS :SYNDROME) if $type eq "struct inlay_cmd_out";
		}
	}
}

# ---- Linux's headers, and words that they take for granted ----

sub put
{
	my ($file, $text) = @_;
	open my $out, '>', "$scratch/$file" or die "$scratch/$file: $!\n";
	print $out $text;
	close $out;
}

mkdir "$scratch/$_" for qw(shim shim/linux shim/linux/mlx5 shim/rdma);
symlink "$linux/linux/mlx5/$_", "$scratch/shim/linux/mlx5/$_" for qw(mlx5_ifc.h mlx5_ifc_fpga.h device.h);
put 'shim/linux/types.h', <<'END';
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8, __u8;
typedef uint16_t u16, __be16;
typedef uint32_t u32, __be32;
typedef uint64_t u64, __be64;
#define __LITTLE_ENDIAN 1234
#define PAGE_SIZE 4096
#define __packed __attribute__((packed))
#define BIT(n) (1u << (n))
#define BIT_ULL(n) (1ull << (n))
#define be16_to_cpu __builtin_bswap16
#define be32_to_cpu __builtin_bswap32
struct ib_grh { u8 bytes[40]; };
END
put 'shim/rdma/ib_verbs.h', '';

# These stand on half of the kernel: what is wanted of them is cut out.
my $cut = '';
for my $file (qw(qp.h cq.h driver.h)) {
	open my $in, '<', "$linux/linux/mlx5/$file" or die "$linux/linux/mlx5/$file: $!\n";
	my $text = join '', <$in>;
	my $wanted = "QP_OPTPAR|QP_ST|QP_PM|NON_ZERO";
	$cut .= "$&\n" while $text =~ /^struct mlx5_klm \{.*?^\};|^enum(?: \w+)? \{[^}]*MLX5_(?:$wanted)_.*?^\};/gms;
}
open my $ifc, '<', "$linux/linux/mlx5/mlx5_ifc.h" or die "$linux/linux/mlx5/mlx5_ifc.h: $!\n";
my ($names, %spelling) = join '', <$ifc>;
$spelling{lc $1}{$1} = 1 while $names =~ /\b(\w+)(?:\[0x|;)/g;

my $head = <<END;
#include <linux/types.h>
#include <linux/mlx5/device.h>
$cut
#include <inlay/devx/ifc.h>
$packets
#include <stdio.h>
static int differ;
static void check(const char *ours, const char *theirs, unsigned long at, unsigned long width, unsigned long at2, unsigned long width2)
{
	if (at == at2 && width == width2)
		return;
	printf("%s is 0x%lx/%lu, %s is 0x%lx/%lu\\n", ours, at, width, theirs, at2, width2);
	differ = 1;
}
static void inside(const char *ours, unsigned long at, unsigned long width, unsigned long bits)
{
	if (at + width <= bits && (width == 64 ? at % 32 == 0 : width && at % 32 + width <= 32))
		return;
	printf("%s, 0x%lx/%lu, is no field of a struct of 0x%lx bits\\n", ours, at, width, bits);
	differ = 1;
}
END

# ---- What can be compared: each guess is a line of its own, and the compiler says which make no sense ----

my @guess; # [kind, what it is of, line]
sub kernels
{
	my ($struct) = @_;
	return split ' ', $struct{$struct} // $struct;
}

sub guess
{
	my ($kind, $ours, $place, $theirs, $value) = @_;
	push @guess, [$kind, $ours, "\tcheck(\"$ours\", \"$theirs\", $place, $value);"];
}

sub spellings # of a path whose last part may be in another case
{
	my ($path) = @_;
	my ($front, $last) = $path =~ /^(.*\.)?(\w+)$/;
	return map { ($front // '') . $_ } $spelling{lc $last} ? sort keys %{$spelling{lc $last}} : $last;
}

for my $struct (sort keys %{{map { $_ => 1 } keys %fields, @structs}}) {
	for my $field (@{$fields{$struct} // []}, @{$members{$struct} // []}) {
		my ($bare, $upper) = ($field, uc $struct);
		$bare =~ s/^://;
		my $member = $field =~ /^[a-z]/;
		my $constant = $field =~ /^:/ ? ($struct =~ /_in$/ ? "INLAY_CMD_IN_$bare" : "INLAY_CMD_OUT_$bare") : "INLAY_${upper}_$bare";
		my $place = $member ? "offsetof(struct inlay_$struct, $field) * 8, sizeof(((struct inlay_$struct *)0)->$field) * 8" :
			"$constant & 0xffffff, $constant >> 24";
		$place = "offsetof(struct inlay_$struct, klm) * 8, 128"
			if "$struct.$field" eq 'query_mkey_out.klm';
		my @names = split ' ', $name{"$struct.$bare"} // ($member ? $context{$field} : undef) // lc $bare;
		push @names, lc $bare if $name{"$struct.$bare"} && $struct eq 'hca_cap';
		@names = "bitmask." . lc $1 if $bare =~ /^BITMASK_(\w+)$/;
		guess('field', "$struct.$field", $place, 'C', $plain{"$struct.$field"}) if $plain{"$struct.$field"};
		for my $name (@names) {
			my ($path, $plus) = $name =~ /^([^+]*)(\+.*)?$/;
			my @of = $path =~ s/^\.(\w+)\.// ? $1 : kernels($struct);
			for my $kernel (@of) {
				my $bits = "struct mlx5_ifc_${kernel}_bits";
				guess('field', "$struct.$field", $place, "$kernel.$_", "offsetof($bits, $_) " . ($plus // '') .
					", sizeof((($bits *)0)->$_)") for spellings($path);
			}
		}
	}
	for my $kernel (kernels($struct)) {
		guess('struct', "struct $struct", "0, sizeof(struct inlay_$struct) * 8", $kernel,
			"0, sizeof(struct mlx5_ifc_${kernel}_bits)")
			unless $struct =~ /^cmd_(in|out)$/;
	}
}
for my $enum (sort keys %enum) {
	for my $value (@{$values{$enum} // []}) {
		my $constant = 'INLAY_' . ($prefix{$enum} || uc $enum) . "_$value";
		for my $spelt (split ' ', $enum{$enum}) {
			my $theirs = sprintf $spelt, $value{"$enum.$value"} // $value;
			guess('value', "$enum.$value", "$constant, 0", $theirs, "$theirs, 0");
		}
	}
}

sub program
{
	return $head . "int main(void)\n{\n" . join("\n", map { $_->[2] } @_) . "\n\treturn differ;\n}\n";
}

my $flags = "-std=gnu11 -w -isystem $scratch/shim -I$inlay";
put 'guess.c', program(@guess);
my $first = () = ($head . "int main(void)\n{\n") =~ /\n/g;
my %wrong;
for (`$cc $flags -fmax-errors=0 -fsyntax-only $scratch/guess.c 2>&1`) {
	next unless /^(.*?):(\d+):\d+: (?:fatal )?error: (.*)/;
	die "$1:$2: $3\n" if $1 ne "$scratch/guess.c" || $2 <= $first || $2 > $first + @guess;
	$wrong{$2 - $first - 1} = 1;
}
my @good = @guess[grep { !$wrong{$_} } 0 .. $#guess];
# Of every field, also of those that Linux has not: it lies within its struct, and in one dword or
# on two.
my @inside;
for my $struct (sort keys %fields) {
	for my $field (grep { /^[A-Z]/ } @{$fields{$struct}}) {
		my $constant = 'INLAY_' . uc($struct) . "_$field";
		push @inside, ['', '', "\tinside(\"$struct.$field\", $constant & 0xffffff, $constant >> 24, sizeof(struct inlay_" . ($struct =~ /cap/ && $struct !~ /out/ ? 'hca_cap' : $struct) . ") * 8);"];
	}
}
put 'compare.c', program(@good, @inside);
system("$cc $flags -o $scratch/compare $scratch/compare.c") == 0 or die "the comparison does not compile\n";

# ---- The result ----

my ($status, %found, %count) = (0);
print `$scratch/compare`;
$status = 1 if $?;
for (@good) {
	$found{$_->[1]}++;
	$count{$_->[0]}++;
}
my %unnamed = map { my $e = $_; map { ("$e.$_" => 1) } grep { !$found{"$e.$_"} } @{$values{$e}} } keys %values;
my (%all, @missing, $here);
for my $struct (sort keys %fields) {
	$all{"$struct.$_"} = 1 for grep { !/^:/ } @{$fields{$struct}};
}
for my $struct (sort keys %members) {
	# Bytes, and what Linux has a counterpart for: a struct that it has not is compared by its own fields.
	$all{"$struct.$_"} = 1 for grep { $struct{$struct} // 1 || !$fields{$_} } @{$members{$struct}};
}
for (sort keys %all) {
	next if $found{$_};
	if ($second{$_}) {
		$here++;
		push @missing, "only here $_: $second{$_}\n";
	} else {
		print "$_ is neither in Linux nor has it a second source\n";
		$status = 1;
	}
}
for (sort keys %second) {
	next if $all{$_};
	print "$_ has a second source and is not defined\n";
	$status = 1;
}
for my $struct (@structs) {
	next if $found{"struct $struct"} || $struct =~ /^cmd_(in|out)$/ || ($struct{$struct} // 1) eq '';
	print "struct inlay_$struct has no counterpart\n";
	$status = 1;
}
printf "fields %d\ncompared %d, by %d comparisons\nstructs %d\nvalues %d, %d without a name there\nonly here %d\n%s", scalar keys %all,
	scalar(grep { $found{$_} } keys %all), $count{field}, scalar(grep { /^struct / } keys %found), $count{value},
	scalar keys %unnamed, $here // 0,
	join '', @missing;
exit $status;
