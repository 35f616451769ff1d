#!/usr/bin/env perl
# SPDX-License-Identifier: BSD-3-Clause
# called.pl SOURCE...: reads names of functions, one a line, and prints those that no source calls, itself or through others
# of the headers' functions and macros. INLAY_LAYOUT's pair of accessors is one function, as in api.pl.
use strict;
use warnings;

my (%uses, %called);
for my $file (@ARGV, split(' ', `find include/inlay -name '*.h'`)) {
	open(my $in, '<', $file) or die "$file: $!\n";
	my $text = join('', <$in>);
	$text =~ s,/\*.*?\*/,,gs;
	my $by = $file =~ /^include/ ? 'nobody' : 'source';
	for (split(/\n/, $text)) {
		$by = 'nobody' if $by ne 'source' && /^[}#]/;
		$by = $1 if $by ne 'source' && (/^INLAY_[A-Z_]+ .*?\b(inlay_\w+)\(/ || /^#define (INLAY_\w+)\(/);
		push(@{$uses{$by}}, /\b(?:inlay|INLAY)_\w+/g);
	}
}
for (my @next = ('source'); defined(my $name = shift(@next));) {
	push(@next, @{$uses{$name} // []}) unless $called{$name}++;
}
while (<STDIN>) {
	chomp(my $name = $_);
	my $set = $name =~ s/_get$/_set/r;
	print "$name\n" unless $called{$name} || $called{$set};
}
