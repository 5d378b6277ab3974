#!/bin/sh
# papermill 2.7.0 (CPython 3.11).
#
# Behaviour: `papermill --help-notebook` and `papermill.inspect_notebook` count the signs of equality in each line of
# the cell tagged `parameters`. A line with a second one is left out of the list with a warning ("Unable to parse
# line"), also where the second one stands in the comment that is to explain the parameter, or in a default such as
# "a=b". The parameter is still there, and is still set by -p.
#
# Seen: of three parameters, `seeds: int = 0  # seeds=5 trains five models` and `pair: str = "a=b"` are missing.
#
# Fails if all three are listed, or if another one is missing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check papermill==2.7.0 nbformat==5.11.1 ipykernel==7.4.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import sys

import nbformat
import papermill

source = """scale: str = "small"  # small or large
seeds: int = 0  # seeds=5 trains five models
pair: str = "a=b"  # two names"""
cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["parameters"]})
kernel = {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}}
nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=kernel), "three.ipynb")
listed = list(papermill.inspect_notebook("three.ipynb"))
print("listed of scale, seeds, pair:", ", ".join(listed))
sys.exit(listed != ["scale"])
PY
