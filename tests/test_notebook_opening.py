"""What a reader meets first in an experiment notebook is its answer and its miniature, not imports."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import xlingual_nb as xl
from xlingual_nb.report import prelude

ROOT = Path(__file__).resolve().parents[1]
NUMBERED = [
    path
    for path in sorted((ROOT / "nbs").glob("[0-9][0-9]_*.ipynb"))
    if path.stem != "00_start_here"  # is a miniature itself
]
EXPERIMENTS = [
    path
    for path in sorted((ROOT / "nbs").glob("[0-9][0-9]_*.ipynb"))
    if "## In miniature" in path.read_text(encoding="utf-8")
]


def cells_between(path, first, last):
    """The code between two headings of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    headings = [
        match[1] if (match := re.match(r"#+ (.+)", "".join(c["source"]))) else "" for c in cells
    ]
    begin, end = headings.index(first), headings.index(last)
    return ["".join(c["source"]) for c in cells[begin:end] if c["cell_type"] == "code"]


def imports(source):
    tree = ast.parse(re.sub(r"^[%!].*$", "", source, flags=re.M))
    return [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_the_opening_has_one_line_of_imports(path):
    before = cells_between(path, "In miniature", "Question and claims")
    assert sum(len(imports(source)) for source in before) == 1, "the public API, and nothing else"
    first = cells_between(path, "Question and claims", "Protocol")[0]
    assert first.startswith("from xlingual_nb.report.prelude import *\n")
    assert len(imports(first)) <= 2
    assert "def " not in first


def test_notebooks_take_from_the_prelude_what_it_has():
    """With a star import ruff no longer reports names that do not exist; these are the ones it is unsure of."""
    ruff = [sys.executable, "-m", "ruff", "check"]
    options = ["--isolated", "--select", "F405", "--output-format", "json"]
    done = subprocess.run(
        [*ruff, *options, *map(str, EXPERIMENTS)], capture_output=True, text=True, cwd=ROOT
    )
    taken = {re.match(r"`(\w+)`", each["message"])[1] for each in json.loads(done.stdout)}
    assert len(taken) > 20, done.stderr
    assert taken | {"display"} == set(prelude.__all__)


def miniature(path):
    """The code cells of a notebook from the heading that ends in `in miniature` to the next one."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    starts = [n for n, c in enumerate(cells) if "".join(c["source"]).startswith("## ")]
    (begin,) = (n for n in starts if cells[n]["source"][0].lower().endswith("in miniature\n"))
    end = next(n for n in starts if n > begin)
    return begin, [c for c in cells[begin:end] if c["cell_type"] == "code"]


@pytest.mark.parametrize("path", NUMBERED, ids=lambda p: p.stem)
def test_a_miniature_follows_the_answer_and_uses_the_public_api(path):
    begin, cells = miniature(path)
    assert begin == 2
    sources = ["".join(cell["source"]) for cell in cells]
    lines = [line for source in sources for line in source.splitlines() if line.strip()]
    assert 15 <= len(lines) <= 40
    assert lines[0] == "import xlingual_nb as xl"
    modules = {ast.unparse(node) for source in sources for node in imports(source)}
    assert modules - {"from scipy import stats"} == {"import xlingual_nb as xl"}
    assert set(re.findall(r"\bxl\.(\w+)", "\n".join(sources))) <= set(xl.__all__)
    assert all(cell["outputs"] for cell in cells)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_tables_of_verdicts_have_five_columns(path):
    shown = [
        "".join(output["data"]["text/html"])
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", [])
        if 'id="verdicts"' in "".join(output.get("data", {}).get("text/html", ""))
    ]
    for page in shown:
        assert re.findall(r"<th>([^<]+)</th>", page) == [
            "claim",
            "in our words",
            "ours",
            "published",
            "verdict",
        ]
    assert shown or path.stem == "17_dials"
