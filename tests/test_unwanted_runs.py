"""Runs of a store that no grid of today asks for."""

from dataclasses import replace

import pytest

from xlingual_nb.experiments import overlap
from xlingual_nb.report import unwanted_runs as unwanted
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.plan import ancestors_by_id
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store


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
