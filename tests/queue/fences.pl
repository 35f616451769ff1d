#!/usr/bin/perl
# SPDX-License-Identifier: BSD-3-Clause
# Usage: fences.pl OBJDUMP NM QEMU PROGRAM
#
# Runs tests/queue/fences.c's program one instruction at a time under qemu, which prints the registers before each, and says for each scenario
# (function s_NAME) what it did to the memory that the device sees and which fences stood between, in the order of execution:
#
#   wqe rwqe     a store to a WQE of the send or receive ring
#   swqe         a store to an entry of the shared receive queue
#   rec rrec     a store to a doorbell record
#   srec         a store to the shared receive queue's
#   reg lock     a store to the doorbell register; to the lock of a shared one
#   own cqe      a load of the end of a CQE that says whose it is (its last byte, two or, whole, four); of the rest of a CQE
#   slot         a store to a CQE
#   free armrec  a store to the CQ's consumer index; to its arm word
#   arm          a store to the CQ's doorbell
#   [...]        a fence, as the disassembly spells it
#
# The same thing several times in a row is said once. The number in front is how many instructions were executed.
use strict;
use warnings;
no warnings 'portable'; # 64-bit numbers
use integer;             # that wrap as addresses do

my ($objdump, $nm, $qemu, $program) = @ARGV;
my (%symbol, %code, %function);
my %what = (wqes => 'wqe', rwqes => 'rwqe', swqes => 'swqe', srecord => 'srec', record => 'rec', rrecord => 'rrec',
	reg => 'reg', cq_page => 'arm', cqes => 'slot', cq_record => 'free', uar => 'lock');

for (`$nm -S $program`) {
	$symbol{$3} = [hex $1, hex $2] if /^([0-9a-f]+) ([0-9a-f]+) \w (\w+)$/;
}
my $in = '';
for (`$objdump -d --no-show-raw-insn $program`) {
	$in = $1 if /^[0-9a-f]+ <([\w.]+)>:/;
	($code{hex $1}, $function{hex $1}) = ($2, $in) if /^ *([0-9a-f]+):\s+(.*\S)/;
}

sub named # address, loaded or stored, by which instruction
{
	my ($at, $how, $text) = @_;
	for my $name (keys %what) {
		my ($begin, $size) = @{$symbol{$name}};
		next if $at < $begin || $at >= $begin + $size;
		my $offset = $at - $begin;
		if ($name eq 'cqes' && $how eq 'load') {
			my $word = $offset % 64 == 60 && $text !~ /^(movzwl|movzww|movbe|rol|ldrh|v?pinsrw)/;
			return $offset % 64 >= 62 || $word ? 'own' : 'cqe';
		}
		return if $how eq 'load';
		return $offset ? 'armrec' : 'free' if $name eq 'cq_record';
		return $offset == $symbol{lock_offset}[1] ? 'lock' : undef if $name eq 'uar';
		return $what{$name};
	}
	return;
}

# Both return [load or store, address] for each access of one instruction
sub x86
{
	my ($text, %r) = @_;
	my $at_pc = $text =~ s/\s+# ([0-9a-f]+) <.*// ? hex $1 : undef;
	$text =~ s/\s*<.*//;
	$text =~ s/^(?:lock|rep\w*|data16|cs|notrack|bnd)\s+//;
	my ($op, $rest) = split ' ', $text, 2;
	return if $op =~ /^(lea|nop|j|call|ret|push|pop|leave|prefetch|syscall|endbr)/ || !defined $rest;
	my (@operands, @found);
	push @operands, $1 while $rest =~ /((?:[^,(]|\([^)]*\))+),?/g;
	for my $i (0 .. $#operands) {
		my $o = $operands[$i];
		next if $o =~ /^[\$%][^(:]*$/;
		my $at;
		if ($o =~ /\(%rip\)/) {
			$at = $at_pc;
		} elsif ($o =~ /^(?:%\ws:)?(-?)(?:0x([0-9a-f]+))?(?:\((%\w+)?(?:,(%\w+)(?:,(\d))?)?\))?$/) {
			$at = hex($2 // 0) * ($1 ? -1 : 1);
			$at += $r{uc substr $3, 1} if $3;
			$at += $r{uc substr $4, 1} * ($5 // 1) if $4;
		} else {
			die "fences.pl: what is '$o' in '$text'?\n";
		}
		my $last = $i == $#operands;
		push @found, ['load', $at] if !$last || $op !~ /^(v?mov|set)/;
		push @found, ['store', $at] if ($last && $op !~ /^(cmp(?!xchg)|test|bt[bwlq]?$|v?u?comis)/) || $op =~ /^xchg/;
	}
	return @found;
}

sub aarch64
{
	my ($text, %r) = @_;
	my ($op) = split ' ', $text;
	$text =~ /\[(x\d+|sp)(?:, ([^\]]+))?\]/ && $op !~ /^prfm/ or return;
	my ($base, $index) = (uc $1, $2 // '');
	my $at = $r{$base =~ s/^X(\d)$/X0$1/r};
	if ($index =~ /^#(-?)(?:0x([0-9a-f]+)|(\d+))$/) {
		$at += ($1 ? -1 : 1) * (defined $2 ? hex $2 : $3);
	} elsif ($index =~ /^([xw])(\d+)(?:, (lsl|uxtw|sxtw|sxtx)(?: #(\d+))?)?$/) {
		my $value = $r{sprintf 'X%02d', $2};
		$value &= 0xffffffff if $1 eq 'w';
		$value -= 1 << 32 if ($3 // '') eq 'sxtw' && $value >> 31;
		$at += $value << ($4 // 0);
	} elsif ($index ne '') {
		die "fences.pl: what is '$index' in '$text'?\n";
	}
	return ['load', $at] if $op =~ /^ld(?!add|clr|set|eor|smax|umax)/;
	return ['store', $at] if $op =~ /^st/;
	return (['load', $at], ['store', $at]);
}

my $arm = `$objdump -f $program` =~ /aarch64/;
open my $trace, '-|', "$qemu -singlestep -d cpu,nochain -D /dev/stdout $program" or die "fences.pl: $qemu: $!\n";

my ($scenario, @did, $count, %r);

sub report
{
	print "$scenario $count: @did\n" if $scenario;
	($scenario, $count, @did) = ('', 0);
}

sub step
{
	my $pc = $r{$arm ? 'PC' : 'RIP'} // return;
	my $name = $function{$pc} // '';
	if ($name eq '_start') {
		report();
	} elsif (!$scenario && $name =~ /^s_(\w+)/) {
		($scenario, $count) = ($1, 0);
	}
	return unless $scenario;
	$count++;
	my $text = $code{$pc} // die sprintf "fences.pl: no code at %x\n", $pc;
	my @new;
	$text =~ s/^hint\s+#0x6\b/dgh/;
	if ($text =~ /^(sfence|mfence|lfence|d[ms]b\s+\w+|isb|dgh)/) {
		@new = ('[' . $1 =~ s/\s+/ /r . ']');
	} else {
		@new = map { named($_->[1], $_->[0], $text) // () } $arm ? aarch64($text, %r) : x86($text, %r);
	}
	for (@new) {
		push @did, $_ unless @did && $did[-1] eq $_;
	}
}

# The registers before one instruction; most are of no interest outside of a scenario
sub registers
{
	my ($text) = @_;
	return unless $text =~ /\b(?:R?IP|PC) ?=([0-9a-f]{16})/;
	my $name = $function{hex $1} // '';
	return unless $scenario || $name eq '_start' || $name =~ /^s_/;
	%r = ();
	$r{$1} = hex $2 while $text =~ /\b([A-Z][A-Z0-9]+) ?=([0-9a-f]{16})\b/g;
	step();
}

my $text = '';
while (<$trace>) {
	if (/^ PC=|^RAX=/) {
		registers($text);
		$text = '';
	}
	$text .= $_ if /=[0-9a-f]{16}/;
}
registers($text);
report();
close $trace or die "fences.pl: $qemu: status $?\n";
