"""An extender's trial: a new experiment is one notebook of at most 40 lines of code, which `plan`, `run` and `list`
know as they know ours.
"""

import json
import os
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest
from command_line import run_commands

from xlingual_nb.report import tables

ROOT = Path(__file__).resolve().parents[1]

CELLS = """
#| default_exp experiments.width
%%
#| export
from dataclasses import replace

from xlingual_nb.experiments.k2020_common import load_study_config, baseline_entries, bbert_spec, evaluation_entries
from xlingual_nb.experiments.study import SEEDS, TableEntry, unique_runs, deduplicate
from xlingual_nb.papers.published import OURS
%%
from xlingual_nb.report import tables
from xlingual_nb.report.study_run import StudyRun
%%
#| export
def list_table_entries(scale: str, corpus: str = "auto", seeds: int = 0) -> list[TableEntry]:
    "Retrieval between Fake-English and English, by the width of the encoder."
    sizes, pair, columns, found = load_study_config(scale, corpus, seeds), ("enfake", "en"), ("", "", "Retrieval ρ"), []
    for seed in SEEDS[:seeds or sizes.seeds[0]]:
        base = bbert_spec(sizes, pair, seed)
        for times in (1, 2, 4):
            shape = replace(base.shape, hidden=times * base.shape.hidden, intermediate=times * base.shape.intermediate)
            spec = replace(base, shape=shape)
            found += evaluation_entries(sizes, "width", f"{times} times as wide", spec, pair, "en", columns, paper=OURS)
        found += baseline_entries(sizes, "width", pair, base, columns, paper=OURS)
    return deduplicate(found)
%%
#| export
def grid(scale: str, corpus: str = "auto", seeds: int = 0) -> list:
    return unique_runs(list_table_entries(scale, corpus, seeds))
%% parameters
scale: str = "smoke"  # smoke, laptop, gpu or paper
corpus: str = "auto"  # auto or micro
seeds: int = 0  # models of each width
store: str = ""  # folder of runs
results: str = ""  # folder for tables
%%
from xlingual_nb.report.notebook_parameters import check_parameters
check_parameters("18_width", globals())
%%
sizes = load_study_config(scale, corpus, seeds)
study_run = StudyRun("18_width", globals(), list_table_entries(scale, corpus, seeds), sizes.corpus)
study_run.show_plan(sizes.base)
%%
observations = study_run.run(sizes.stack)
study_run.write(observations)
tables.ours_alone(tables.tidy(observations))
"""
TITLE = "# Does the width of an encoder matter?\n> Ours: sentence retrieval by hidden size"


def notebook():
    made = [dict(cell_type="markdown", id="title", metadata={}, source=TITLE)]
    for n, text in enumerate(CELLS.strip().split("\n%%")):
        first, _, rest = text.partition("\n") if n else ("", "", text)
        made.append(
            dict(
                cell_type="code",
                id=f"cell{n}",
                metadata=dict(tags=["parameters"]) if first.strip() else {},
                source=rest or first,
                outputs=[],
                execution_count=None,
            )
        )
    kernel = dict(kernelspec=dict(name="python3", display_name="Python 3", language="python"))
    return dict(cells=made, metadata=kernel, nbformat=4, nbformat_minor=5)


def test_it_has_at_most_forty_lines_of_code():
    lines = [
        line
        for cell in notebook()["cells"][1:]
        for line in cell["source"].splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert len(lines) <= 40, len(lines)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the package with the new notebook beside it, exported as nbdev does."""
    to = tmp_path_factory.mktemp("clone")
    shutil.copytree(
        ROOT / "xlingual_nb", to / "xlingual_nb", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("settings.ini", "pyproject.toml"):
        shutil.copy(ROOT / name, to / name)
    (to / "nbs").mkdir()
    (to / "nbs" / "18_width.ipynb").write_text(json.dumps(notebook()), encoding="utf-8")
    code = "from nbdev.doclinks import nbdev_export; nbdev_export()"
    subprocess.run([sys.executable, "-c", code], cwd=to, env=knows_alone(to), check=True)
    return to


def knows_alone(clone) -> dict[str, str]:
    """The environment of a process that knows this clone alone."""
    others = ("IN_TEST", "XLINGUAL_DATA")
    return {k: v for k, v in os.environ.items() if k not in others} | {"PYTHONPATH": str(clone)}


def planned(printed):
    """(runs asked for, runs found) of the two stages that matter here."""
    rows = [line.split() for line in printed.splitlines()]
    (start,) = (n for n, row in enumerate(rows) if row[:3] == ["stage", "runs", "found"])
    return {
        stage: (asked, found)
        for stage, asked, found, *_ in takewhile(bool, rows[start + 1 :])
        if stage in ("measure", "pretrain")
    }


@pytest.mark.ci
@pytest.mark.slow
def test_the_command_line_knows_it(clone):
    commands = ("list", "plan 18", "run width", "plan 18")
    answers = run_commands(clone, knows_alone(clone), *commands)
    for answer in answers:
        assert answer.code == 0, answer.text[-3000:]
    listed, before, _, after = (answer.text for answer in answers)
    assert "18_width" in listed and "Does the width of an encoder matter?" in listed
    assert planned(before) == {"measure": ("5", "0"), "pretrain": ("5", "0")}, (
        "three widths and two floors, none found yet"
    )
    found = tables.read(clone / "yours" / "results" / "smoke" / "18_width" / "width.csv")
    assert set(found.paper) == {"ours"} and set(found.column) == {"Retrieval ρ"}
    assert set(found.row) == {
        *(f"{n} times as wide" for n in (1, 2, 4)),
        "untrained | enfake | en",
        "never saw the target | enfake | en",
    }
    assert planned(after) == {"measure": ("5", "5"), "pretrain": ("5", "5")}, (
        "what was run is found"
    )
