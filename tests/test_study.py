"""A study is its cells: numbers, runs, holes and checks follow from them; and what K's cells draw
from is what their rows say.
"""

import json
import os
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import toy_stages as toys
from fake_store import FakeStore
from toy_stages import Count, Total

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import (
    architecture,
    frequency,
    k2020_common,
    mixed_pairs,
    objective,
    ordering,
    overlap,
    study,
)
from xlingual_nb.experiments.config import SCALES
from xlingual_nb.experiments.config_files import list_corpora
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.experiments.study import (
    TableEntry,
    check_choice,
    choose_seeds,
    deduplicate,
    missing_seeds,
    observe,
    protocol,
    select_claim_entries,
    select_tables,
    unique_runs,
)
from xlingual_nb.papers.published import FIT_COLUMN, claims
from xlingual_nb.report import notebooks, tables, verdicts
from xlingual_nb.runs import code_fingerprint
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.stages import declare, declared_stages
from xlingual_nb.runs.store import Store
from xlingual_nb.text import transforms
from xlingual_nb.text.tokenizers import Encoded

SMALL = [Total((Count(5, seed),)) for seed in range(4)]


def of(row="r", column="c", seed=0, runs=(SMALL[0],), drawn="score", **more):
    return TableEntry("toy", "table1", row, column, seed, runs, drawn, **more)


def told(folder, **more):
    """A store of totals: `score` is ten times the place in `SMALL`, in groups and along a curve as
    well.
    """

    def holds(run):
        return {
            "score": (at := 10 * SMALL.index(run)),
            "by": {"en": at + 1, "es": at + 4},
            "step": at + 100,
        }

    return FakeStore(folder, holds, **more)


# ---- what a cell comes to


def test_a_number_is_the_mean_over_runs_times_its_unit(tmp_path):
    cells = {
        "one": of(),
        "mean": of(runs=tuple(SMALL[1:4])),
        "percent": of(runs=(SMALL[2],), unit=100.0),
        "grouped": of(drawn="by es"),
        "difference": of(runs=(SMALL[1], SMALL[3]), drawn="by es", minus="score", unit=2.0),
        "made": of(runs=(SMALL[1], SMALL[2]), drawn=lambda held: held["score"] ** 2),
        "stated": of(drawn="", amount=7.5),
    }
    found = (
        observe([replace(c, row=name) for name, c in cells.items()], told(tmp_path), "none")
        .set_index("row")
        .value
    )
    assert found.to_dict() == {
        "one": 0,
        "mean": 20,
        "percent": 2000,
        "grouped": 4,
        "difference": 8,
        "made": (100 + 400) / 2,
        "stated": 7.5,
    }


def test_means_are_those_of_numpy_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(3)
    held = {run: float(x) for run, x in zip(SMALL, rng.normal(size=4))}
    store = FakeStore(tmp_path, lambda run: {"score": held[run]})
    for n in range(1, 5):
        (value,) = observe([of(runs=tuple(SMALL[:n]), unit=100.0)], store, "none").value
        assert value == 100.0 * float(np.mean([held[run] for run in SMALL[:n]]))


def test_a_name_that_a_run_does_not_hold_is_one_line_that_says_what_there_is(tmp_path):
    for wrong in (of(drawn="f1 es"), of(minus="rho")):
        with pytest.raises(
            InputError, match="no '(f1 es|rho)': it has score, by en, by es, step"
        ) as caught:
            observe([wrong], told(tmp_path), "none")
        assert "\n" not in str(caught.value)


def test_a_stage_says_what_is_drawn_from_it(tmp_path):
    """Not `measures.json` by itself: a stage may give its numbers otherwise."""
    usual = declared_stages()["total"]
    declare(
        Total,
        usual.make,
        values=lambda folder: {"score": json.loads((folder / "measures.json").read_text())["step"]},
    )
    try:
        assert observe([of()], told(tmp_path), "none").value.tolist() == [100]
    finally:
        declare(Total, usual.make)


# ---- what a store has of them


def test_cells_that_lack_a_run_are_left_out_and_counted(tmp_path):
    store = told(tmp_path, has=lambda run: run != SMALL[1])
    cells = [of(seed=seed, runs=(SMALL[seed],)) for seed in range(3)] + [
        of("stated", seed=1, runs=(SMALL[1],), amount=1.0),
        of("two", runs=(SMALL[0], SMALL[1])),
        of("whole"),
    ]
    frame = observe(cells, store, "none")
    assert [(c.row, c.seed) for c in frame.itertuples()] == [("r", 0), ("r", 2), ("whole", 0)]
    assert missing_seeds(cells, frame).c.to_dict() == {
        "r": "2 of 3",
        "stated": "0 of 1",
        "two": "0 of 1",
    }
    assert missing_seeds(cells, observe(cells, told(tmp_path), "none")).empty


def test_a_seed_in_two_tables_or_at_several_steps_is_counted_once(tmp_path):
    store = told(tmp_path, has=lambda run: run != SMALL[1])
    cells = [of(seed=seed, runs=(SMALL[seed],)) for seed in range(3)]
    cells += [replace(cell, table="another") for cell in cells]
    cells += [of("course", seed=n // 2, runs=(SMALL[n],), step="step") for n in range(4)]
    missing = missing_seeds(cells, observe(cells, store, "none"))
    assert missing.c.to_dict() == {"r": "2 of 3", "course": "1 of 2"}


def test_observations_are_what_tables_are_made_of(tmp_path):
    curve = [of("course", seed=1, runs=(SMALL[n],), step="step") for n in range(3)]
    frame = observe([of(), *curve], told(tmp_path), "none")
    assert (
        frame.columns.tolist() == [*tables.OBSERVED, "step"]
        and set(frame.corpus) == {"none"}
        and set(frame.paper) == {"toy"}
    )
    assert frame.step.tolist()[1:] == [100, 110, 120] and np.isnan(frame.step[0])
    assert frame.run_id.tolist() == [run_id(run) for run in (SMALL[0], *SMALL[:3])]
    assert (
        len(tables.check_observations(frame)) == 4
        and observe([], None, "none").columns.tolist() == frame.columns.tolist()
    )


def test_of_two_cells_with_one_address_the_first_stays():
    first, second, other = of(runs=(SMALL[0],)), of(runs=(SMALL[1],)), of(column="d")
    points = [of("course", runs=(run,), step="step") for run in SMALL]
    assert deduplicate([first, other, second]) == [other, first] and deduplicate(
        [first, other, second, *points, *points]
    ) == [other, first, *points]
    assert unique_runs([second, first, of(runs=(SMALL[1], SMALL[2]))]) == [
        SMALL[1],
        SMALL[0],
        SMALL[2],
    ]


def test_the_grid_as_a_table():
    table = protocol([of("a", seed=0), of("a", seed=1), of("a", seed=1), of("b", "d")])
    assert (
        table.loc["a", "c"] == 2
        and table.loc["b", "d"] == 1
        and table.isna().loc["a", "d"]
        and table.index.tolist() == ["a", "b"]
    )


# ---- making them


def test_make_makes_what_the_store_lacks(tmp_path, monkeypatch):
    monkeypatch.setenv("XLINGUAL_DEVICE", "elsewhere")
    store, cells = (
        Store(tmp_path / "runs"),
        [of(seed=seed, runs=(SMALL[seed],), drawn="total") for seed in range(2)],
    )
    study.make_missing_runs(cells[:1], store, use_processes=False)
    assert [store.has(run) for run in SMALL] == [True, False, False, False]
    about = json.loads((store.path(SMALL[0]) / "manifest.json").read_text())
    assert about["platform"]["device"] == "cpu", "the argument counts where a run is made"
    assert os.environ["XLINGUAL_DEVICE"] == "elsewhere", "and nothing is left in the environment"
    done = len(toys.steps(store.root))
    study.make_missing_runs(cells, store, use_processes=False)
    assert len(toys.steps(store.root)) == 2 * done and len(observe(cells, store, "none")) == 2
    assert observe(cells, store, "none").value.tolist() == [
        int(toys.value(Count(5, seed)), 16) % 1000 for seed in range(2)
    ]


def test_provenance_names_data_code_and_runs():
    cells = frequency.list_table_entries("smoke", "micro")
    told = study.provenance(cells)
    assert set(told.of) == {"data", "code", "runs"} and "micro/es" in set(
        told[told.of == "data"].what
    )
    assert {"pretrain", "ner", "nli", "measure"} <= set(told[told.of == "code"].what)
    assert told.digest.iloc[-1].split() == sorted(run_id(run)[:12] for run in unique_runs(cells))


# ---- parameters


@pytest.mark.parametrize(
    "wrong, says",
    [
        (lambda: choose_seeds(101, 3), "seeds=101: choose 0 .* to 100"),
        (lambda: choose_seeds(-1, 3), "seeds=-1"),
        (lambda: choose_seeds(3, 1, (0, 42)), "to 2"),
        (
            lambda: select_tables("5", ("table4", "table7")),
            "no '5' here; choose all, or some of 4, 7",
        ),
        (lambda: select_tables("", ("table4",)), "no ''"),
        (
            lambda: check_choice("reading", "mine", ("paper", "released")),
            "reading='mine' does not exist: choose paper or released",
        ),
    ],
    ids=range(6),
)
def test_a_wrong_parameter_is_one_line(wrong, says):
    with pytest.raises(InputError, match=says) as caught:
        wrong()
    assert "\n" not in str(caught.value)


@cache
def whole(module):
    return module.list_table_entries("laptop", "micro", seeds=4)


CLAIMED = [
    (module, claim.id)
    for module in (overlap, ordering, frequency, architecture, objective)
    for claim in claims("k2020")
    if module.belongs_here(claim)
    and "laptop" in claim.scales
    and "against" not in claim.where
    and "conclusion" not in claim.where
    and claim.id not in ("K-order-one", "K-order-one-ner")  # of models that no experiment makes
]


@pytest.mark.parametrize("module, ident", CLAIMED, ids=[ident for _, ident in CLAIMED])
def test_the_rows_of_a_claim_are_enough_to_judge_it(module, ident):
    """With made-up values nothing that it wants is missing, and what it compares has all seeds,
    floors that it takes away among it.
    """
    cells = select_claim_entries(whole(module), ident, default_seeds=3)
    runs = [
        (
            c.paper,
            c.table,
            c.row,
            c.column,
            "micro",
            c.seed,
            5.0 if c.column == FIT_COLUMN else 50.0 + len(c.row + c.column) * (c.seed + 2) % 37,
            run_id(c.runs[0]),
        )
        for c in cells
    ]
    (claim,) = (c for c in claims("k2020") if c.id == ident)
    judged = verdicts.verdicts(
        pd.DataFrame(runs, columns=tables.OBSERVED).assign(step=np.nan), "laptop", [claim]
    ).iloc[0]
    assert judged.verdict != verdicts.VERDICTS[-1] and judged.n_seeds == 4, judged.note
    assert 0 < len(cells) < len(whole(module)) and {c.column for c in cells if c.amount is None} < {
        c.column for c in whole(module)
    }


@pytest.mark.parametrize(
    "ident, floors", [("K-frequency", 3), ("K-frequency-ner", 6), ("K-frequency-floor", 6)]
)
def test_floors_have_as_many_seeds_as_rows_only_where_a_test_takes_them_away(ident, floors):
    cells = frequency.list_table_entries("laptop", "micro", seeds=6, claim=ident)
    by_row = {row: {c.seed for c in cells if c.row == row} for row in {c.row for c in cells}}
    assert by_row["enfake-es | frequency based | es"] == set(range(6)) and by_row[
        "untrained | enfake | es"
    ] == set(range(floors))
    assert by_row.keys().isdisjoint({"en-enfake | frequency based | en"}), (
        "a row that the claim does not speak of"
    )


def test_a_claim_that_is_not_there_or_of_other_rows_is_one_line():
    for wrong, says in (
        ("K-odrer", "there is no claim 'K-odrer'"),
        ("K-depth", "compares no row"),
        ("D-late", "compares no row"),
    ):
        with pytest.raises(InputError, match=says):
            frequency.list_table_entries("laptop", "micro", claim=wrong)


def test_a_mean_over_metrics_counts_as_its_own_code_and_names_alone():
    """What else changes beside it makes no value outdated."""
    of_two = study.mean_of_metrics(("a", "b"))
    assert of_two({"a": 1.0, "b": 0.5, "c": 7.0}) == 0.75
    behind = code_fingerprint.definitions(of_two)
    assert {name for name in behind if "." in name} == {"experiments.study.mean_of_metrics"}
    assert behind != code_fingerprint.definitions(study.mean_of_metrics(("a", "c")))


def test_right_parameters():
    assert (
        choose_seeds(0, 3) == (0, 1, 2)
        and choose_seeds(2, 3, (0, 42, 43)) == (0, 42)
        and choose_seeds(100, 1) == study.SEEDS
    )
    assert select_tables("all", ("table4", "table7")) == ["table4", "table7"] and select_tables(
        " 7,4", ("table4", "table7")
    ) == ["table7", "table4"]
    assert check_choice("reading", "paper", ("paper", "released")) == "paper"


# ---- K's cells draw from what their rows say

KEYS = [(scale, corpus) for scale in SCALES for corpus in list_corpora("k2020", scale)]


@pytest.mark.parametrize("key", KEYS, ids="-".join)
def test_who_never_saw_the_target_has_the_source_alone(key):
    """Vocabulary, shape and length of training are those of the model whose floor it is."""
    seen = 0
    for module in (overlap, ordering, frequency, objective, mixed_pairs):
        cells = module.list_table_entries(*key, 1)
        whole = {
            run.checkpoint
            for c in cells
            if "never saw" not in c.row
            for run in c.runs
            if run.stage != "nli_floors"
        }
        for c in (c for c in cells if c.row.startswith("never saw the target | ")):
            source, target = c.row.split(" | ")[1:3]
            for model in {run.checkpoint for run in c.runs}:
                assert [language.name for language in model.languages] == [source] != [target], (
                    c.row
                )
                assert model in {
                    replace(m, languages=m.languages[:1])
                    for m in whole
                    if m.languages[1].name == target
                }, c.row
                seen += 1
    assert seen > 3


@pytest.mark.parametrize("key", [k for k in KEYS if bilingual_config(*k).taggers > 1], ids="-".join)
def test_taggers_of_two_models_share_no_seed(key):
    """Else a mean over pretrainings would average the luck of the same taggers."""
    sizes = bilingual_config(*key)
    target = (*sizes.targets, "en")[0]
    seeds = [
        [
            tagger.seed
            for tagger in k2020_common.ner_specs(
                sizes, k2020_common.bbert_spec(sizes, ("enfake", target), seed), "enfake", (target,)
            )
        ]
        for seed in range(4)
    ]
    assert (
        all(len(set(own)) == sizes.taggers for own in seeds)
        and len(set(sum(seeds, []))) == 4 * sizes.taggers
    )
    drawn = {
        c.seed: {run.seed for run in c.runs}
        for c in frequency.list_table_entries(*key, 2)
        if c.column == "NER F1-Score"
        and c.row == frequency.frequency_row_label(target, "frequency based")
    }
    assert (
        len(drawn) == 2
        and not drawn[0] & drawn[1]
        and all(len(own) == sizes.taggers for own in drawn.values())
    )


def neighbours_left(chain):
    """The share of neighbours that a chain of transforms leaves in their order, in sentences of
    thirty pieces.
    """
    moved = transforms.apply_transforms(
        chain, Encoded(np.tile(np.arange(30, dtype=np.int32), 400), np.arange(401) * 30), 100
    ).ids.reshape(400, 30)
    places = moved.argsort(axis=1)
    return float((np.diff(places, axis=1) > 0).mean())


def test_table_2_permutes_as_the_papers_text_does_unless_it_is_told_otherwise():
    """A quarter of all pairs leaves no order among neighbours; a quarter of the released code's
    swaps leaves most. Of the grid as it is, of the notebook as it stands, and of what `xlingual
    plan` reads.
    """
    default = notebooks.parameters(notebooks.resolve("02"))["reading"].default
    for cells in (
        ordering.list_table_entries("laptop", "micro", 1),
        ordering.list_table_entries("laptop", "micro", 1, default),
    ):
        chains = {
            language.transforms
            for c in cells
            if c.table == "table2" and "permutation 0.25" in c.row
            for run in c.runs
            for language in run.checkpoint.languages
        }
        assert chains and all(abs(neighbours_left(chain) - 0.5) < 0.03 for chain in chains)
    assert set(ordering.grid("laptop", "micro", 1)) == set(
        unique_runs(ordering.list_table_entries("laptop", "micro", 1, default))
    )
    released = {
        language.transforms
        for c in ordering.list_table_entries("laptop", "micro", 1, "permute_released")
        if "permutation 0.25" in c.row
        for run in c.runs
        for language in run.checkpoint.languages
    }
    assert all(neighbours_left(chain) > 0.6 for chain in released)
