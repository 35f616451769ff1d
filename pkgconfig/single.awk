# SPDX-License-Identifier: BSD-3-Clause
# make single: one header and all of inlay's that it includes, each where it is included first. Include guards stay, so that the file
# may stand beside the headers themselves.
#   awk -f pkgconfig/single.awk -v version=X.Y.Z LICENSE include/inlay/NAME.h

function expand(file, line, name)
{
	if (file in seen)
		return
	seen[file] = 1
	while ((getline line < file) > 0) {
		if (line ~ /^\/\* SPDX-License-Identifier: .* \*\/$/)
			continue
		if (match(line, /^#include <inlay\/[a-z0-9_\/]+\.h>/)) {
			name = substr(line, 11)
			sub(/>.*/, "", name)
			expand("include/" name)
		} else if (line ~ /^#[ \t]*include .*inlay\//) {
			print file ": an include that is not known: " line > "/dev/stderr"
			bad = 1
		} else {
			print line
		}
	}
	close(file)
}

BEGIN {
	license = ARGV[1]
	top = ARGV[2]
	ARGC = 1
	print "/*"
	while ((getline line < license) > 0)
		print (line == "" ? " *" : " * " line)
	print " *"
	print " * " top " of version " version " and the headers that it includes, as one file (make single)."
	print " */"
	expand(top)
	exit bad
}
