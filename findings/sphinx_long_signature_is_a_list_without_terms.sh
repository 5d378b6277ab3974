#!/bin/sh
# Sphinx 9.0.4, HTML builder (CPython 3.11).
#
# Behaviour: a signature that is longer than `python_maximum_signature_line_length` is written with one parameter
# a line, and these lines are a <dl> inside the <dt> of the function that has <dd> but no <dt>. HTML asks for a
# <dt> before each group of <dd>, and axe-core reports every such function as a serious fault (rule
# "definition-list"). A screen reader announces a list of terms that has none.
#
# Seen: <dl> with two <dd> and no <dt> for `join(first: str, second: str)` at a length of 10; none at 88.
#
# Fails if a long signature no longer makes a list without terms, or a short one does.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check sphinx==9.0.4
mkdir "$folder/source"
printf 'Page\n====\n\n.. py:function:: join(first: str, second: str) -> str\n' > "$folder/source/index.rst"
for length in 10 88; do
    echo "python_maximum_signature_line_length = $length" > "$folder/source/conf.py"
    "$folder/venv/bin/python" -m sphinx -q -b html "$folder/source" "$folder/$length"
done
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys
from html.parser import HTMLParser
from pathlib import Path


class Lists(HTMLParser):
    """The kinds of children of each <dl>."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag in ("dt", "dd"):
            self.open[-1].append(tag)
        if tag == "dl":
            self.open.append([])

    def handle_endtag(self, tag):
        if tag == "dl":
            self.found.append(self.open.pop())


def without_terms(length):
    page = Path(sys.argv[1], length, "index.html").read_text(encoding="utf-8")
    return [kinds for kinds in Lists(page).found if kinds and "dt" not in kinds]


print("lists without terms, long signature:", without_terms("10"), "short:", without_terms("88"))
sys.exit(not (without_terms("10") and not without_terms("88")))
PY
