#!/usr/bin/env perl
# SPDX-License-Identifier: BSD-3-Clause
# api.pl HEADER...: the public functions of headers, as api.t wants to know them. Prints a line for each:
#
#   HEADER NAME ARGUMENTS COMMENT
#
# COMMENT is "own" for a comment directly above. It is "group" for a function of at most 8 lines, when nothing but other such
# functions stands between it and the commented first of the group; else "none". INLAY_LAYOUT's pair of accessors is one
# function with the macro's comment. Names that end in an underscore are internal, and most of base.h is (it says what is not).
use strict;
use warnings;

for my $file (@ARGV) {
	open(my $in, '<', $file) or die "$file: $!\n";
	my @lines = <$in>;
	close($in);
	(my $header = $file) =~ s,^include/inlay/,,;
	my ($end, $group) = (-2, 0); # where the last function ended, and whether it was of a group with a comment
	for (my $i = 0; $i < @lines; $i++) {
		if ($lines[$i] =~ /^INLAY_LAYOUT\((\w+)/) {
			print "$header inlay_$1_get 2 own\n";
			next;
		}
		next unless $lines[$i] =~ /^INLAY_(?:FN|ALWAYS|APART|COLD)\b/;
		my ($text, $at) = ('', $i);
		# Up to the brace or semicolon
		for (;; $i++) {
			die "$file:$at: no end\n" if $i >= @lines;
			$text .= $lines[$i];
			last if $lines[$i] =~ /^\{|[;{}]\s*$/;
		}
		my $forward = $text =~ /;\s*$/;
		$text =~ s/\{.*//s;
		$text =~ s/__attribute__\(\((?:[^()]|\([^()]*\))*\)\)//g;
		$text =~ /\b(\w+)\s*\((.*)\)/s or die "$file:$at: no function\n";
		my ($name, $arguments) = ($1, $2);
		1 while $arguments =~ s/\([^()]*\)//g; # of pointers to functions
		my $number = $arguments =~ /^\s*void\s*$/ ? 0 : 1 + ($arguments =~ tr/,//);
		unless ($forward) {
			$i++ until $i >= @lines || $lines[$i] =~ /^\}/ || $lines[$i] =~ /\{.*\}\s*$/;
		}
		my $above = $at ? $lines[$at - 1] : '';
		my $follows = !grep { /\S/ } @lines[($end < 0 ? 0 : $end + 1) .. $at - 1];
		my $comment = $above =~ m,\*/\s*$, ? 'own' : $group && $follows && $i - $at < 8 ? 'group' : 'none';
		$group = $comment ne 'none';
		$end = $i;
		next if $header eq 'base.h' && $name !~ /^inlay_(?:to_be|from_be|fence_polled$|fence_reg$|fence_reg_full$)/;
		# What is only declared is documented where it is defined
		print "$header $name $number $comment\n" unless $forward || $name =~ /_$/;
	}
}
