"""Notebook 14: cells for every claim on shifts, runs that are what their rows say, and what is refused."""
from dataclasses import replace

import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import language_shift as shift
from xlingual_nb.experiments.language_shift import MEAN, RATES, SETS, SHIFT, TURNED, as_high, cells, check, grid, model, turned
from xlingual_nb.experiments.study import observe
from xlingual_nb.measures.translation import ShiftSpec
from xlingual_nb.models.pretraining import PretrainSpec
from xlingual_nb.papers.published import OURS, claims, floor_names, published
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.stages import read_measures
from xlingual_nb.runs.store import Store

ON_SHIFTS = list(filter(shift.belongs_here, claims("liu2020b")))
SIZES = check("smoke", "micro")
LAPTOP = cells("laptop", "micro", seeds=1)


def test_every_claim_on_shifts_has_its_cells():
    there = {(c.table, c.row, c.column) for c in LAPTOP}
    assert len(ON_SHIFTS) >= 12 and {c.whose for c in ON_SHIFTS} == {"paper", OURS}
    for claim in ON_SHIFTS:
        for test in claim.tests:
            rows = {(row, test.column) for row in test.plus}
            if test.minus == "floor":
                rows |= {(floor, test.column) for row in test.plus for floor in floor_names(test.floor or claim.floor, row)}
            else: rows |= {(row, test.minus_column or test.column) for row in test.minus}
            assert {(test.table, *at) for at in rows} <= there, claim.id


def test_tables_are_addressed_as_the_paper_prints_them():
    for table in (TURNED, SETS):
        printed = {(r.row, r.column) for r in published("liu2020b", table).itertuples()}
        assert {(c.row, c.column) for c in LAPTOP if c.table == table} == printed


def test_a_row_says_what_its_runs_are():
    targets = check("laptop", "micro").targets
    for cell in LAPTOP:
        assert all(isinstance(run, ShiftSpec) for run in cell.runs)
        if cell.table != SHIFT: assert len(cell.runs) == 1; continue
        first, kind, last = cell.row.split(" | ")
        kind, pair = (first, [kind, last]) if "-" not in first else (kind, first.split("-"))
        for spec in cell.runs:
            assert (spec.along if kind in ("orthogonal", "other") else "shift") == spec.along
            assert (kind == "untrained") == (spec.checkpoint.training.steps == 0)
            if spec.other: assert spec.other[0] not in spec.pair and spec.other[0] in targets
        if last == MEAN: assert {l for spec in cell.runs for l in spec.pair} == {"en", *targets} and len(cell.runs) == len(targets)
        else: assert [spec.pair for spec in cell.runs] == [tuple(pair)]


def test_layers_stand_as_high_as_the_paper_s():
    assert [as_high(layer, 12) for layer in range(1, 13)] == [*range(1, 13)] and as_high(1, 3) == 1
    (cell,) = [c for c in LAPTOP if (c.table, c.row, c.column) == (SHIFT, "en-de | alpha 1 | de", "BLEU-1 upper")]
    assert cell.drawn({"layer 3 alpha 1 bleu": 7.0}) == 7.0 and cell.drawn({"layer 3 alpha 1 bleu": float("nan")}) == 0.0
    assert cell.drawn is shift.reading(3, 1.0, "bleu")


def test_one_model_reads_all_languages_and_no_text_is_a_translation():
    (spec,) = {c.runs[0].checkpoint for c in LAPTOP if c.table == TURNED}
    assert isinstance(spec, PretrainSpec) and len(spec.languages) == 15
    assert len({dict(l.corpus.parameters)["seed"] for l in spec.languages}) == 15
    told = {text.parameters for c in LAPTOP for r in c.runs for text in r.texts}
    assert len(told) == 1 and "seed" not in dict(*told), "what is turned says the same in every language"


def test_a_smoke_run_holds_what_the_cells_draw(tmp_path):
    store, wanted = Store(tmp_path), [c for c in cells("smoke", "micro") if "el" in c.row or c.table in (TURNED, SETS, RATES)]
    run({r for c in wanted for r in c.runs}, store, Inline(), progress=False)
    found = observe(wanted, store, "micro").set_index(["table", "row", "column"]).value
    held = read_measures(store.path(turned(SIZES, model(SIZES, 0), "en-xx", "el")))
    assert found[SHIFT, "en-el | alpha 2 | el", "converted"] == held["layer 2 alpha 2 converted"] == found[RATES, "α 2", "layer 2"]
    assert found[TURNED, "best BLEU-1", "en→el"] == held["best bleu"] and found[SETS, "|V|", "el"] == held["types target"]
    assert found[SHIFT, "commonest | en | el", "gold"] == held["commonest gold"] and len(found) == len(wanted)


def test_a_laptop_study_takes_less_than_three_hours(tmp_path):
    told = plan(grid("laptop", "micro"), Store(tmp_path))
    assert 0 < told.set_index("stage").loc["all", "hours here"] < 3


def test_what_the_study_refuses(monkeypatch):
    with pytest.raises(InputError, match="the model of shifts does not read 'fr': choose among el, zh"): check("smoke", "micro", languages="fr")
    with pytest.raises(InputError, match="laptop.bible says nothing of shifts"): check("laptop", "bible")
    assert check("laptop", "micro", languages="es,hi").targets == ("es", "hi")
    one = cells("laptop", "micro", 1, languages="es")
    assert not any("other" in c.row for c in one) and {c.paper for c in one} == {"liu2020b"}
    monkeypatch.setattr(shift.joint, "check", lambda *given: replace(SIZES, shifts=None))
    with pytest.raises(InputError, match="^smoke.micro says nothing of shifts: add `shifts` to it, or choose micro$"): check("smoke", "micro")
