#!/usr/bin/env perl
# SPDX-License-Identifier: BSD-3-Clause
# unity.pl FOLDER PROGRAM...: names the sources that a compiler need read to have read all these C programs. Those of a room that include the
# same headers are one source in the folder, each in a namespace of its own, so that the headers are read once.
use strict;
use warnings;

my ($folder, @programs) = @ARGV;
my (%group, %file);

for my $name (@programs) {
	my ($room) = $name =~ m,(.*)/,;
	my ($depth, $body, %includes, %macros) = (0, '');
	open my $in, '<', $name or die "$name: $!\n";
	while (<$in>) {
		if (!$depth && /^#include (["<])(.*\.h)[">]/) {
			$includes{$1 eq '"' && -e "$room/$2" ? "#include \"$room/$2\"\n" : $_} = $.;
			$_ = "\n";
		}
		$depth += /^#\s*if/ - /^#\s*endif/;
		$macros{$1} = 1 if /^#\s*define\s+(\w+)/;
		$body .= $_;
	}
	my $headers = join '', sort { $includes{$a} <=> $includes{$b} } keys %includes;
	my $key = "$room\n" . join '', sort grep { /"/ } keys %includes;
	my @names = sort keys %macros;
	push @{$group{$key}}, $name;
	$file{$key} .= $headers . join('', map { "#pragma push_macro(\"$_\")\n#undef $_\n" } @names) . 'namespace program' . @{$group{$key}} .
		" {\n#line 1 \"$name\"\n$body\n}\n" . join('', map { "#pragma pop_macro(\"$_\")\n" } @names);
}
my $n = 0;
for my $key (sort keys %group) {
	if (@{$group{$key}} == 1) {
		print "$group{$key}[0]\n";
		next;
	}
	my $name = "$folder/unity" . $n++ . '.c';
	open my $out, '>', $name or die "$name: $!\n";
	print $out $file{$key};
	close $out or die "$name: $!\n";
	print "$name\n";
}
