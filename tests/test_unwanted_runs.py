"""Runs of a store that no grid of today asks for."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from xlingual_nb import cli
from xlingual_nb.experiments import overlap
from xlingual_nb.report import unwanted_runs as unwanted
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.plan import ancestors_by_id
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def one_grid(monkeypatch):
    """The grid of one notebook on one corpus, which takes a second, not a minute."""
    monkeypatch.setattr(unwanted, "experiments_with_grid", lambda: ["01_overlap"])
    monkeypatch.setattr(unwanted, "corpora_at", lambda scale: ["micro"])


def test_a_run_of_an_earlier_size_is_wanted_by_no_grid(one_grid, tmp_path):
    specs = ancestors_by_id(overlap.grid("smoke", "micro")).values()
    text = next(spec for spec in specs if spec.stage == "corpus")
    shorter = replace(text, parameters=(*text.parameters, ("sentences", 11)))
    store = Store(tmp_path / "runs")
    run([text, shorter], store, Inline(), progress=False)
    wanted, not_planned = unwanted.wanted_runs(["smoke"])
    assert not_planned == [] and run_id(text) in wanted
    assert unwanted.unwanted_runs(store, wanted).run_id.tolist() == [run_id(shorter)]


def test_further_seeds_are_wanted_where_they_are_asked_for(one_grid):
    further = {run_id(spec) for spec in overlap.grid("smoke", "micro", seeds=3)}
    usual, _ = unwanted.wanted_runs(["smoke"])
    more, _ = unwanted.wanted_runs(["smoke"], seeds=3)
    assert not further <= usual and further <= more


def test_a_changed_learning_rate_leaves_reference_runs_unwanted(monkeypatch):
    columns = dict(scale="laptop", notebook="01_overlap", corpus="micro")
    monkeypatch.setattr(
        unwanted,
        "reference_values",
        lambda root: pd.DataFrame([columns | {"run": "a"}, columns | {"run": "b"}]),
    )
    monkeypatch.setattr(unwanted, "grid_specs", lambda *study: {"b": None, "c": None})
    (row,) = unwanted.unwanted_references(ROOT).itertuples()
    assert (row.runs, row.unwanted) == (2, 1)


def test_the_reference_runs_of_a_notebook_are_those_of_todays_grid(monkeypatch):
    values = unwanted.reference_values(ROOT)
    part = values[(values.notebook == "06_mixed_pairs") & (values.scale == "laptop")]
    monkeypatch.setattr(unwanted, "reference_values", lambda root: part)
    (row,) = unwanted.unwanted_references(ROOT).itertuples()
    assert row.runs > 10 and row.unwanted == 0


def test_the_command_says_by_notebook_what_is_left_without_a_run(monkeypatch, capsys):
    frame = pd.DataFrame(
        [
            ("01_overlap", "laptop", "micro", 4, 3, ""),
            ("12_zero_shot", "laptop", "bible", 2, pd.NA, "no data"),
        ],
        columns=["notebook", "scale", "corpus", "runs", "unwanted", "not looked at"],
    )
    monkeypatch.setattr(unwanted, "unwanted_references", lambda root, scales: frame)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["runs", "unwanted", "--reference"])
    said = capsys.readouterr().out
    assert not stopped.value.code
    assert "01_overlap" in said and "no data" in said and "--scale laptop" in said
    with pytest.raises(SystemExit):
        cli.main(["runs", "unwanted", "--reference", "--json"])
    counts = [row["unwanted"] for row in json.loads(capsys.readouterr().out)]
    assert counts == [3, None], "what was not looked at is not known"
