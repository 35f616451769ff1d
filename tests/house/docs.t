#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# make docs: no word from doxygen or groff; each public function (api.pl) has a manual page and a place in the HTML, each header a page;
# internal functions have neither, pages a manual page; make install takes the manual pages, uninstall removes them.
. tests/tap.sh

if ! command -v doxygen >/dev/null; then
	skip "docs" "doxygen is not installed"
	finish
	exit
fi
docs="$dir/build/docs"
unset MAKEFLAGS # those of the make that runs this name a job server
try "make docs" make --no-print-directory B="$dir/build" docs
same "doxygen says nothing" "" "$(cat "$dir/out")"

functions=$(perl tests/house/api.pl $(find include/inlay -name '*.h') | awk '{ print $2 }' | sort)
same "there are functions" 1 "$(($(wc -l <<<"$functions") > 400))"
same "each has a manual page" "" "$(comm -23 <(echo "$functions") <(ls "$docs/man/man3" | sed 's/\.3$//' | sort))"
same "each is documented in the HTML" "" \
	"$(comm -23 <(echo "$functions") <(sed 's/<[^>]*>//g' "$docs"/html/*_8h.html | grep -oE '\binlay_[a-z0-9_]+' | sort -u))"
same "nothing internal has one" "" "$(ls "$docs/man/man3" | grep '_\.3$')"
same "each header and each page has a manual page" "$(find include/inlay -name '*.h' -o -name '*.md' ! -name README.md | wc -l)" "$(ls "$docs/man/man7" | wc -l)"
if command -v groff >/dev/null; then
	same "groff says nothing" "" "$(groff -man -ww -z "$docs"/man/man?/* 2>&1 | head -n 20)"
else
	skip "groff says nothing" "it is not installed"
fi
page=$docs/man/man3/inlay_sq_init.3
same "a page's header and its prototype" $'#include <inlay/queue/sq.h>\n\nint inlay_sq_init(struct inlay_sq *sq, void *buf, uint32_t wqebb_cnt,' \
	"$(sed -n '/^#include/,/^int/p' "$page" | sed 's/wqebb_cnt,.*/wqebb_cnt,/')"
same "a page has all of the comment" "$(perl -0ne 'print $1 =~ s,^ \*( |$),,gmr if m,/\*\n((?: \*[^\n]*\n)+?) \*/\nINLAY_\w+ (?:INLAY_RESULT )?int inlay_sq_init\(,' \
	include/inlay/queue/sq.h)" "$(sed -n '/^.SH DESCRIPTION/,/^.fi/{/^\./d;p}' "$page" | sed 's/\\-/-/g; s/\\e/\\/g; s/^\\&//')"
same "the HTML's first page is the README" 1 "$(grep -c 'Before the first post</h' "$docs/html/index.html")"
page=$docs/man/man3/inlay_post_write.3
same "what all posts share is on each page" 1 "$(grep -c '^The buffers of a post' "$page")"
same "and in the HTML of each" "$(grep -c '^INLAY_ALWAYS INLAY_RESULT int inlay_post' include/inlay/queue/post.h)" "$(cat "$docs"/html/queue_2post_8h.html | grep -c 'The buffers of a post')"

try "install" make --no-print-directory B="$dir/build" install DESTDIR="$dir/a stage" PREFIX=/usr
same "all pages are installed" "$(cd "$docs/man" && find . -type f | sort)" "$(cd "$dir/a stage/usr/share/man" && find . -type f | sort)"
try "uninstall" make --no-print-directory B="$dir/build" uninstall DESTDIR="$dir/a stage" PREFIX=/usr
same "none is left" "" "$(find "$dir/a stage" -type f)"
finish
