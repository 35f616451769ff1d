#!/usr/bin/env perl
# SPDX-License-Identifier: BSD-3-Clause
# make docs. docs.pl FILE: a header or a page on standard output as doxygen wants it. docs.pl --man FOLDER VERSION HEADER...: a manual page of
# section 3 for each public function, of section 7 for each header (inlay-queue-cq for queue/cq.h) and each page (PAGE.md); of section 1 for a
# page with the title COMMAND: what it is.
#
# A comment directly above a declaration, or behind a member, documents it; its first sentence is what stands in lists, and the comment
# itself stays as it was written. Functions of a group have the comment of the group's first (tests/house/api.pl says what a group is). A
# comment with a blank line below it is about all functions up to the next line of dashes, and follows their own.
use strict;
use warnings;

my ($folder, $version);
(undef, $folder, $version) = splice(@ARGV, 0, 3) if @ARGV && $ARGV[0] eq '--man';
my $function = qr/^INLAY_(?:FN|ALWAYS|APART|COLD)\b/;

sub plain # text: nothing in it means anything to doxygen
{
	my ($text) = @_;
	$text =~ s/\s+/ /g;
	$text =~ s/([\\\@<>&\$#%"|*])/\\$1/g;
	$text =~ s/::/\\::/g;
	return $text;
}

sub sentence # of a comment: the first, without the header's name
{
	my ($text) = @_;
	my $all = join(' ', split(' ', (split(/\n\s*\n/, $text))[0] // ''));
	$all =~ s,^inlay/\S+\.h: ,,;
	my ($first) = $all =~ /^(.*?[.:])(?:\s|$)/;
	($first //= $all) =~ s/[.:]?$//;
	$first =~ s/^([A-Z])(?=[a-z])/\l$1/ if $folder;
	return $first;
}

sub documentation # the comment's text, a command before it
{
	my ($text, $command) = @_;
	return "/** $command\\brief " . plain(sentence($text)) . ".\n\\verbatim\n$text\n\\endverbatim\n*/\n";
}

sub roff
{
	my ($text) = @_;
	$text =~ s/\\/\\e/g;
	$text =~ s/-/\\-/g;
	$text =~ s/^([.'])/\\&$1/gm;
	return $text;
}

sub page # name, section, header, the comment, synopsis
{
	my ($name, $section, $header, $text, @synopsis) = @_;
	open(my $out, '>', "$folder/man$section/$name.$section") or die "$name: $!\n";
	print $out ".\\\" SPDX-License-Identifier: BSD-3-Clause\n.TH \"$name\" $section \"\" \"inlay $version\"\n.SH NAME\n",
		roff($name), ' \- ', roff(sentence($text)), "\n.SH SYNOPSIS\n.nf\n#include <$header>\n", @synopsis ? "\n" : '',
		roff(join('', @synopsis)), ".fi\n.SH DESCRIPTION\n.nf\n", roff($text), "\n.fi\n";
	print $out ".SH SEE ALSO\n", roff(manual($header)), "(7)\n" if $section == 3;
	close($out) or die "$name: $!\n";
}

sub manual # header: its page
{
	my ($name) = @_;
	$name =~ s,\.h$,,;
	$name =~ s,^inlay/inlay$,inlay,;
	$name =~ tr,/,-,;
	return $name;
}

# The Markdown of our pages: headings, paragraphs, bullets, code, tables; a row is its first cell and, below, the others with their titles.
sub markdown
{
	my ($file) = @_;
	open(my $in, '<', $file) or die "$file: $!\n";
	my @lines = grep { !/^<!--/ } <$in>;
	close($in);
	my ($name, $section) = ('inlay-' . $file =~ s,.*/(.*)\.md$,$1,r, 7);
	my ($title) = (shift @lines) =~ /^# (.*)/ or die "$file: no title\n";
	($name, $section) = ($1, 1) if $title =~ s/^([a-z0-9]+): //;
	open(my $out, '>', "$folder/man$section/$name.$section") or die "$name: $!\n";
	print $out ".\\\" SPDX-License-Identifier: BSD-3-Clause\n.TH \"$name\" $section \"\" \"inlay $version\"\n.SH NAME\n", roff($name), ' \- ',
		roff(lcfirst($title)), "\n.SH DESCRIPTION\n";
	my ($code, @titles) = (0);
	for (@lines) {
		if (/^```/) {
			print $out(($code = !$code) ? ".PP\n.nf\n" : ".fi\n");
			next;
		}
		if (!$code && !/^ {4}/) {
			s/\[([^]]+)\]\([^)]+\)/$1/g;
			s/`|\*\*//g;
		}
		if ($code) {
			print $out roff($_);
		} elsif (/^ {4}(.*)/s) {
			print $out ".nf\n", roff($1), ".fi\n";
		} elsif (/^#+ (.*)/) {
			print $out '.SH ', roff(uc($1)), "\n";
		} elsif (/^\|(.*)\|$/) {
			my @cells = map { s/^\s+|\s+$|\\(?=[|*])//gr } split(/(?<!\\)\|/, $1, -1);
			next if $cells[0] =~ /^-+$/;
			(@titles = @cells) && next unless @titles;
			print $out ".TP\n.B ", roff($cells[0]), "\n";
			print $out roff(($titles[$_] ? "$titles[$_]: " : '') . $cells[$_]), "\n.br\n" for 1 .. $#cells;
		} elsif (/^- (.*)/) {
			print $out ".IP \\(bu 2\n", roff("$1\n");
		} elsif (/\S/) {
			print $out roff(s/^\s+//r);
		} else {
			@titles = ();
			print $out ".PP\n";
		}
	}
	close($out) or die "$name: $!\n";
}

# A page as doxygen wants it: no pictures, and links to pages beside the headers only
sub links
{
	my ($file) = @_;
	open(my $in, '<', $file) or die "$file: $!\n";
	while (<$in>) {
		next if /^!\[|^<!--/;
		s,\[([^]]+)\]\(((?:include/inlay/)?([\w-]+\.md)|[^)]*)\),defined($3) && $3 ne 'README.md' ? "[$1]($2)" : $1,ge;
		print;
	}
	close($in);
}

for my $file (@ARGV) {
	$file =~ /\.h$/ ? convert($file) : $folder ? markdown($file) : links($file);
}

sub convert
{
	my ($file) = @_;
	open(my $in, '<', $file) or die "$file: $!\n";
	my @lines = <$in>;
	close($in);
	(my $name = $file) =~ s,^.*?include/,,;
	my ($i, $guard, $group, $common) = (0, 0, undef, '');
	while ($i < @lines) {
		my $line = $lines[$i];
		if ($line =~ m,^/\* SPDX, ) {
			$i++;
			next;
		}
		if ($line =~ m,^/\*(?!\*),) {
			my $text = '';
			for (;; $i++) {
				(my $part = $lines[$i]) =~ s,\s*\*/\s*$,,;
				$part =~ s,^(?:/\*| \*) ?,,;
				chomp($part);
				$text .= "$part\n";
				last if $lines[$i] =~ m,\*/\s*$,;
			}
			$i++;
			$text =~ s/^\s*\n//;
			$text =~ s/\s+$//;
			my $next = $lines[$i] // '';
			if (!$guard) {
				my ($mark) = map { m,^#define INLAY_\w+_H /\* (.*) \*/$, } @lines;
				$text .= "\n\n\u$mark." if $mark;
				$folder ? page(manual($name), 7, $name, $text) : print documentation($text, "\\file $name\n");
				$guard = 1;
			} elsif ($text =~ s/^---- .* ----\s*// || $next !~ /\S/) {
				$common = $text ne '' ? "\n\n$text" : '';
			} elsif ($next =~ /$function|^(?:struct|union|enum|typedef|#\s*define)\b|^INLAY_LAYOUT\(/) {
				$group = $text if $next =~ $function;
				print documentation($text, '') unless $folder || $next =~ $function;
			}
			next;
		}
		if ($line =~ $function) {
			my $at = $i;
			$i++ until $lines[$i] =~ /^\}|;\s*$/ && $lines[$i] !~ /^[\t#]/ || $lines[$i] =~ /\{.*\}\s*$/ || $i == $#lines;
			my $commented = $at && $lines[$at - 1] =~ m,\*/\s*$,;
			if (!$commented) {
				$group = undef if $i - $at >= 8;
			}
			my $text = join('', @lines[$at .. $i]);
			my $definition = $text =~ s/\n\{.*//s;
			my ($called) = $text =~ /\b(\w+)\s*\((?!\()/;
			if (defined($group) && $definition && $called !~ /_$/) {
				$text =~ s/^INLAY_\w+ (?:INLAY_RESULT )?(?:__attribute__\(\(.*?\)\)\)? )?//;
				$folder ? page($called, 3, $name, $group . $common, "$text;\n") : print documentation($group . $common, ''), "static inline $text;\n";
			}
			$i++;
			next;
		}
		if ($line =~ /^enum \w+_ \{/) {
			$i++ until $lines[$i] =~ /};/;
			$i++;
			next;
		}
		# A pair of accessors
		if ($line =~ /^INLAY_LAYOUT\((\w+)/) {
			my %accessors = (
				get => ["Reads a field of struct inlay_$1: one of enum inlay_$1_field. Returns its value, host order.",
					"uint64_t inlay_$1_get(const struct inlay_$1 *at, enum inlay_$1_field field);\n"],
				set => ["Writes a field of struct inlay_$1: one of enum inlay_$1_field; value in host order.",
					"void inlay_$1_set(struct inlay_$1 *at, enum inlay_$1_field field, uint64_t value);\n"]);
			for my $verb (sort keys %accessors) {
				my ($text, $synopsis) = @{$accessors{$verb}};
				$folder ? page("inlay_$1_$verb", 3, $name, $text, $synopsis) :
					print documentation($text, ''), "static inline $synopsis";
			}
			$i++;
			next;
		}
		$line =~ s,^(#define INLAY_\w+_H) /\* .* \*/$,$1,;
		# Behind a member
		if ($line =~ m,^\t(?!\t)(?:[^"]*?[;\,]|\w+(?: = [^\,]*)?)\s*/\* (.*?) \*/\s*$, || $line =~ m,^\#define \w+ .*?/\* (.*?) \*/\s*$,) {
			my $text = plain($1);
			$line =~ s,/\* .*? \*/\s*$,/**< $text */\n,;
		}
		# Anything but a blank line or another function ends a group
		$group = undef if $line =~ /\S/;
		print $line unless $folder;
		$i++;
	}
}
