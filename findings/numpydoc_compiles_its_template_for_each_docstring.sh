#!/bin/sh
# numpydoc 1.11.0 with Sphinx 9.0.4 and Jinja2 3.1.6 (CPython 3.11).
#
# Behaviour: as an extension of Sphinx, numpydoc makes a Jinja environment each time it reads a docstring, and a
# compiled template is cached in its environment alone. So the 17 lines of its template are compiled twice for
# each function: once for the signature, once for the docstring.
#
# Seen: a page of 100 functions, 200 compilations, 1.14 processor seconds; with one environment for all, 1
# compilation, .89 seconds, and the same page.
#
# Fails if fewer compilations than docstrings are counted, or if one environment for all writes another page.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check sphinx==9.0.4 numpydoc==1.11.0 jinja2==3.1.6
mkdir "$folder/source"
"$folder/venv/bin/python" - "$folder/source" <<'PY'
import sys
from pathlib import Path

source = Path(sys.argv[1])
function = '''
def root{0}(x):
    """The square root of a number.

    Parameters
    ----------
    x : float

    Returns
    -------
    float
    """
    return x**0.5
'''
functions = [function.format(number) for number in range(100)]
(source / "roots.py").write_text('"""Square roots."""\n' + "\n".join(functions))
(source / "index.rst").write_text("Roots\n=====\n\n.. automodule:: roots\n   :members:\n")
(source / "conf.py").write_text(
    "import sys\nsys.path.insert(0, '.')\nextensions = ['sphinx.ext.autodoc', 'numpydoc']\n"
    "numpydoc_show_class_members = False\n"
)
PY
cd "$folder/source"
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys
import time
from pathlib import Path

import jinja2
from jinja2.sandbox import SandboxedEnvironment
from numpydoc import docscrape_sphinx, numpydoc
from sphinx.cmd.build import main

folder = Path(sys.argv[1])
compiled, formatted, kept = [], [], []
compile_template, format_docstring = jinja2.Environment.compile, numpydoc.mangle_docstrings


def counted_compile(self, source, name=None, *rest, **options):
    if name == "numpydoc_docstring.rst":
        compiled.append(name)
    return compile_template(self, source, name, *rest, **options)


def counted_format(*arguments):
    formatted.append(arguments[2])
    return format_docstring(*arguments)


def one_environment(loader):
    if not kept:
        kept.append(SandboxedEnvironment(loader=loader))
    return kept[0]


def build(name):
    """Compilations, docstrings, processor seconds and the page of a build."""
    compiled.clear()
    formatted.clear()
    start = time.process_time()
    assert main(["-q", "-E", ".", str(folder / name)]) == 0
    seconds = time.process_time() - start
    return len(compiled), len(formatted), seconds, (folder / name / "index.html").read_text()


jinja2.Environment.compile = counted_compile
numpydoc.mangle_docstrings = counted_format
build("first")  # imports are paid here
as_released = build("released")
docscrape_sphinx.SandboxedEnvironment = one_environment
shared = build("shared")
for name, (compilations, docstrings, seconds, _) in {"as released": as_released, "one environment": shared}.items():
    print(f"{name}: {docstrings} docstrings, {compilations} compilations, {seconds:.2f} processor seconds")
sys.exit(not (as_released[0] >= as_released[1] > 100 and shared[0] <= 1 and shared[3] == as_released[3]))
PY
