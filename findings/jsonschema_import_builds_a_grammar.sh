#!/bin/sh
# jsonschema 4.26.0 with rfc3987-syntax 1.1.0 and lark 1.3.1 installed (CPython 3.11).
#
# Behaviour: `import jsonschema` imports rfc3987_syntax if that is installed, and its module builds a parser
# from a grammar while it is imported, whether or not a schema ever checks the format `iri`. jupyter-events
# asks for jsonschema[format-nongpl], so every environment with JupyterLab has it, and `import nbformat` pays:
# each process that reads a notebook.
#
# Seen: 1.2 processor seconds for the import with rfc3987-syntax, 0.1 without; by `python -X importtime` nearly
# all of the difference is one module, rfc3987_syntax.syntax_helpers.
#
# Fails if the import no longer takes at least three times as long with the package as without it.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check \
    jsonschema==4.26.0 rfc3987-syntax==1.1.0 lark==1.3.1
"$folder/venv/bin/python" - <<'PY'
import subprocess
import sys
import time

BLOCK = "import sys; sys.modules['rfc3987_syntax'] = None; "
CODE = "import time; start = time.process_time(); import jsonschema; print(time.process_time() - start)"


def seconds(code):
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


plain = seconds(BLOCK + CODE)
slow = seconds(CODE)
print(f"import jsonschema: {slow:.2f} processor seconds, {plain:.2f} without rfc3987-syntax")
sys.exit(slow < 3 * plain)
PY
