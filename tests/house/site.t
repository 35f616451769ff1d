#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The pages of make docs as Chromium shows them, at a screen's width and at a telephone's: nothing is wider than the window, and each
# link leads to a page and to a place on it. A row of check-all.
. tests/tap.sh

if ! command -v chromium >/dev/null || ! command -v doxygen >/dev/null; then
	skip "the site" "chromium or doxygen is not installed"
	finish
	exit
fi
try "make docs" make --no-print-directory B="$dir/build" docs
html=$dir/build/docs/html
echo '<p style="width: 2000px" id=wide><a href="nowhere.html">a</a> <a href="index.html#nowhere">a</a></p>' >"$html/bad.html"

cat >"$html/all.xhtml" <<END
<html xmlns="http://www.w3.org/1999/xhtml"><body><script>
const pages = "$(cd "$html" && echo *.html)".split(" "), found = [], links = [], ids = {};
(async () => {
	for (const width of [1280, 390]) {
		for (const page of pages) {
			const frame = document.createElement("iframe");
			frame.style = "border: 0; height: 900px; width: " + width + "px";
			frame.src = page;
			await new Promise(loaded => { frame.onload = loaded; document.body.append(frame); });
			const shown = frame.contentDocument, menu = frame.contentWindow.$;
			await new Promise(made => menu ? menu(made) : made());
			const wide = shown.documentElement.scrollWidth;
			if (wide > width)
				found.push(page + ": " + wide + " wide in " + width);
			ids[page] = new Set([...shown.querySelectorAll("[id], [name]")].flatMap(e => [e.id, e.getAttribute("name")]));
			if (width == 1280)
				links.push(...[...shown.querySelectorAll("a[href]")].map(a => [page, new URL(a.href)]));
			frame.remove();
		}
	}
	let inside = 0;
	for (const [page, url] of links) {
		const to = url.pathname.split("/").pop(), place = decodeURIComponent(url.hash.slice(1));
		if (url.protocol != "file:")
			continue;
		inside++;
		if (!ids[to] || (place &amp;&amp; !ids[to].has(place)))
			found.push(page + ": no " + to + url.hash);
	}
	document.body.textContent = [...new Set(found), pages.length + " pages", inside + " links"].map(l => "\n= " + l).join("");
})();
</script></body></html>
END
timeout 300 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files --virtual-time-budget=3000000 \
	--dump-dom "file://$html/all.xhtml" 2>"$dir/err" | sed -n 's/<.*//; s/^= //p' >"$dir/seen"
note "$(grep -E '^[0-9]+ (pages|links)' "$dir/seen" | xargs)"
same "many pages and links" "2" "$(awk '/ pages|links/ && $1 > 200' "$dir/seen" | wc -l)"
same "nothing is too wide, each link leads somewhere, but for the page that is wrong" \
	"$(printf '%s\n' "bad.html: 2008 wide in 1280" "bad.html: 2008 wide in 390" "bad.html: no index.html#nowhere" "bad.html: no nowhere.html")" \
	"$(grep ': ' "$dir/seen" | sort | head -n 40)" # a paragraph, and the margin of a page without a style
finish
