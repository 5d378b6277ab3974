"""Every library notebook runs as a test; every experiment runs once, small, through papermill as
the command line does it: one in a kernel of its own, the others in this process.
"""

import json
import os
import re
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from in_process import cells_for_parameters, no_kernel
from nbdev.test import test_nb as run_cells
from nbformat.v4 import new_code_cell, new_markdown_cell
from recomputed import unlike_its_seeds

from xlingual_nb import experiments
from xlingual_nb.report import notebooks
from xlingual_nb.runs import stages

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = sorted((ROOT / "nbs/lib").glob("[0-9]*.ipynb"))
EXPERIMENTS = sorted((ROOT / "nbs").glob("[0-9][0-9]_*.ipynb"))


@pytest.fixture(scope="module")
def all_stages():
    """Every stage of the package is declared, so that a page takes back its own declarations alone."""
    for module in iter_modules(experiments.__path__):
        import_module(f"{experiments.__name__}.{module.name}")


@pytest.mark.parametrize("path", LIBRARY, ids=lambda p: p.stem)
def test_library_notebook(path, all_stages, monkeypatch, capsys):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.setenv("IN_TEST", "1")  # nbdev sets it and leaves it
    monkeypatch.chdir(path.parent)
    # a page declares its stages again, from its own cells
    monkeypatch.setattr(stages, "_DECLARED", dict(stages._DECLARED))
    passed, _ = run_cells(path.resolve(), skip_flags=["slow", "gpu"])
    assert passed, capsys.readouterr().err[-3000:]


# The tour has little text. Deep models are alike row after row, and so are seeds of a dial.
LESS = {
    "00_start_here": dict(sentences=200),
    "04_architecture": dict(claim="K-parameters-few,K-parameters-few-ner,K-four-languages-heads"),
    "17_dials": dict(seeds=1),
}
# `make test` makes some models of these, or none, where another experiment trains alike: then all
# cells are executed on an incomplete table. The rest is left to `make ci`, as five of K's notebooks
# are, which others test on the results of a store. Even there, those that run whole on real text
# below make no models of the microworld's.
NONE = dict(make_missing=False)
SOME = {
    "01_overlap": dict(claim="K-no-overlap"),
    "07_laboratory": dict(rows="0,3,8"),
    "08_knn_replace": NONE,
    "09_data_size": NONE,
    "10_window_size": NONE,
    "11_parts_of_speech": NONE,
    "12_zero_shot": dict(only="2"),
    "13_layers": dict(only="2"),
    "14_language_shift": NONE,
    "17_dials": NONE,
    "18_emergence": NONE,
}
IN_A_KERNEL = ("00_start_here",)
WITHOUT_RESULTS = "00_start_here", "15_ledger"  # a tour, and a page that reads what others wrote
# Other text, where that makes a difference. What 09 reads, 10 and 11 learn from as well: its grid is
# priced on the text alone. At this scale 04, 05 and 06 have no real text with two languages, and 17
# is of the microworld.
WITH_DATA = {
    "01_overlap": {},
    "02_ordering": dict(claim="K-order-enfake,K-order-enfake-released"),
    "03_frequency": {},
    "07_laboratory": dict(rows="0,3,8"),
    "08_knn_replace": {},
    "09_data_size": dict(make_missing=False),
    "10_window_size": {},
    "11_parts_of_speech": {},
    "12_zero_shot": dict(corpus="bible", only="2,5"),
    "13_layers": dict(corpus="bible", only="2"),
    "14_language_shift": dict(corpus="bible"),
}
WHOLE_ON_TEXT = "01_overlap", "08_knn_replace", "10_window_size", "11_parts_of_speech"
WHOLE_ON_TEXT += ("14_language_shift",)


def smoke(path, tmp_path, store, given=LESS, in_a_kernel=False, all_cells=True):
    known = notebooks.parameters(path)
    places = {name: str(tmp_path / name) for name in ("results", "figures")}
    places["store"] = str(store.root)
    own = {name: place for name, place in places.items() if name in known}
    own |= given.get(path.stem, {})
    with nullcontext() if in_a_kernel else no_kernel(all_cells):
        executed = notebooks.run_notebook(path, "smoke", own, out=tmp_path / "executed")
    assert (
        executed == tmp_path / "executed/smoke" / path.stem / f"{path.stem}.ipynb"
        and executed.is_file()
    )
    return executed


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_experiment_without_data(path, tmp_path, shared_store, monkeypatch, pytestconfig):
    has_data = "XLINGUAL_DATA" in os.environ
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    given = LESS | SOME
    if pytestconfig.getoption("--hypothesis-profile") == "ci":
        on_text = WHOLE_ON_TEXT if has_data else ()
        given = LESS | {name: SOME[name] for name in on_text if name in SOME}
    smoke(path, tmp_path, shared_store, given, in_a_kernel=path.stem in IN_A_KERNEL)
    if given.get(path.stem) is NONE:  # of some claims the store may have a part of the rows
        return
    assert unlike_its_seeds(tmp_path / "results/smoke") == []
    is_study = path.stem not in WITHOUT_RESULTS
    assert not is_study or (tmp_path / "results/smoke" / path.stem / "seeds.csv").is_file()


@pytest.mark.ci
@pytest.mark.skipif(
    "XLINGUAL_DATA" not in os.environ, reason="no real data: set XLINGUAL_DATA to a data folder"
)
@pytest.mark.parametrize(
    "path", [path for path in EXPERIMENTS if path.stem in WITH_DATA], ids=lambda p: p.stem
)
def test_experiment_with_data(path, tmp_path, shared_store):
    """All that depends on the text; the rest has run without it."""
    smoke(path, tmp_path, shared_store, given=WITH_DATA, all_cells=False)
    if path.stem in WHOLE_ON_TEXT:
        assert unlike_its_seeds(tmp_path / "results/smoke") == []
        assert (tmp_path / "results/smoke" / path.stem / "seeds.csv").is_file()


def test_of_the_cells_before_the_parameters_a_run_takes_those_that_it_uses():
    cells = [new_markdown_cell("# Title")]
    cells += map(
        new_code_cell,
        (
            "import numpy as np\nminiature = 1\nminiature",
            "def double(n):\n    return times * n\ndouble(4)",
            "times = 2",
            "[scale for scale in range(3)]",
            "for languages in 'en', 'es':\n    train(languages)",
        ),
    )
    parameters = "scale = 1\nlanguages = ''"
    cells.append(new_code_cell(parameters, metadata=dict(tags=["parameters"])))
    cells.append(new_code_cell("np.array(double(scale)), languages  # the whole cell"))
    chosen = cells_for_parameters(cells)
    assert chosen == {
        0: "",
        1: "import numpy as np",
        2: "def double(n):\n    return times * n",
        3: "times = 2",
        4: "",
        5: "",
        6: parameters,
        7: "np.array(double(scale)), languages  # the whole cell",
    }


# ---- experiments are told in one order: what was found first, then how to run it

HEADINGS = [
    "In short",
    "In miniature",
    "Question and claims",
    "Protocol",
    "What was found",
    "What differs from the original, and why",
    "Ambiguities",
    "Run it yourself",
    "Provenance",
]
TOLD = [p for p in EXPERIMENTS if "## In miniature" in p.read_text(encoding="utf-8")]


def cells_of(path):
    return [
        (c["cell_type"], "".join(c["source"]), c["metadata"].get("tags", []))
        for c in json.loads(path.read_text(encoding="utf-8"))["cells"]
    ]


def test_some_experiments_are_told_so():
    assert {"01_overlap", "02_ordering", "03_frequency", "07_laboratory", "17_dials"} <= {
        p.stem for p in TOLD
    }


@pytest.mark.parametrize("path", TOLD, ids=lambda p: p.stem)
def test_what_was_found_comes_first(path):
    cells = cells_of(path)
    headings = [
        (m[1], at)
        for at, (kind, text, _) in enumerate(cells)
        if kind == "markdown" and (m := re.match(r"## (.+)", text))
    ]
    assert [name for name, _ in headings] == HEADINGS
    (parameters,) = (at for at, (*_, tags) in enumerate(cells) if "parameters" in tags)
    assert parameters == dict(headings)["Run it yourself"] + 1, (
        "who reads need not run, and who runs finds the parameters there"
    )
    assert len(cells) <= 60


@pytest.mark.parametrize("path", TOLD, ids=lambda p: p.stem)
def test_what_a_smoke_run_shows_is_not_committed(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    start = next(
        n for n, c in enumerate(cells) if "".join(c["source"]).startswith("## Run it yourself")
    )
    assert not any(cell.get("outputs") for cell in cells[start:]), (
        "clear the outputs from `Run it yourself` on: they are of scale smoke, no results"
    )
