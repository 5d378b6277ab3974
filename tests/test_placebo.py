"""Worlds without an effect: what is true in them, and what the ledger may say of them."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from xlingual_nb.papers import published as ledger
from xlingual_nb.report import placebo, tables
from xlingual_nb.report.claim_values import RunValues

ROOT = Path(__file__).resolve().parents[1]
CELLS = placebo.cell_moments(ROOT / "results", "laptop", "micro")
LABORATORY, PAIRS = (
    CELLS[CELLS.paper == p].reset_index(drop=True) for p in ("dufter2020", "k2020")
)


def test_draws_are_about_the_kept_means_with_the_kept_spread():
    rng, some = (
        np.random.default_rng(0),
        LABORATORY[LABORATORY.table == "table1"].reset_index(drop=True),
    )
    many = pd.concat([placebo.sample_observations(some.assign(n_seeds=50), rng) for _ in range(4)])
    found = many.groupby(["row", "column"]).value.agg(["mean", "std"])
    wanted = some.set_index(["row", "column"]).loc[found.index]
    assert (abs(found["mean"] - wanted.value) <= 5 * wanted.sd / np.sqrt(200) + 1e-9).all()
    assert np.allclose(found["std"][wanted.sd > 0] / wanted.sd[wanted.sd > 0], 1, atol=0.3)
    assert wanted.sd.notna().all(), "the spread of a single seed is that of its column"


@pytest.mark.parametrize("cells", [LABORATORY, PAIRS], ids=["D", "K"])
def test_untrained_worlds_have_the_floors_means(cells):
    true = placebo.untrained_world(cells)
    value = true.set_index(["table", "row", "column"]).value
    own = {
        "8 lang-pos;shift-special;no-random": "19 untrained;lang-pos",
        "0 original": "18 untrained",
    }
    seen = 0
    for table, row, column in value.index:
        sides = ledger.sides(row)
        floor = "untrained | {source} | {target}".format(**sides) if sides else own.get(row)
        if floor is None or placebo.is_baseline(row) or table in ("table2", "table10"):
            continue
        assert value[table, row, column] == value[table, floor, column]
        seen += 1
    assert seen > 10 and {r for r in cells.row if placebo.is_baseline(r)} < set(true.row) <= set(
        cells.row
    )


def test_labels_are_dealt_out_a_whole_model_at_a_time():
    """Every seed's rows hold the models that were drawn, each once, with all of its columns; floors
    stay.
    """
    plain = placebo.sample_observations(LABORATORY, np.random.default_rng(3))
    seen, true = (
        placebo.permute_row_labels(plain, np.random.default_rng(4)),
        placebo.shuffled_world(LABORATORY),
    )
    for (table, seed), part in seen.groupby(["table", "seed"]):
        before = plain[(plain.table == table) & (plain.seed == seed)]

        def models(frame):
            return {row: tuple(sorted(zip(p.column, p.value))) for row, p in frame.groupby("row")}

        one, other = models(before), models(part)
        assert sorted(one.values()) == sorted(other.values()) and set(one) == set(other)
        assert all(one[r] == other[r] for r in one if placebo.is_baseline(r))

    def mu(cells):
        rows = cells[
            (cells.table == "table1") & (cells.column == "µ") & ~cells.row.map(placebo.is_baseline)
        ]
        return rows.value

    assert mu(true).round(12).unique().tolist() == pytest.approx([mu(LABORATORY).mean()])


def test_a_deal_that_gives_all_labels_back_is_none():
    """Two rows of three seeds: of eight deals the true one never comes, the other seven alike
    often.
    """
    rows = [(row, seed, float(row == "a")) for row in "ab" for seed in range(3)]
    study = pd.DataFrame(rows, columns=["row", "seed", "value"]).assign(table="table1")
    rng, found = np.random.default_rng(0), []
    for _ in range(210):
        seen = placebo.permute_row_labels(study, rng)
        found.append(tuple(seen[seen.row == "a"].sort_values("seed").value))
    counts = pd.Series(found).value_counts()
    assert (1.0, 1.0, 1.0) not in counts and len(counts) == 7 and counts.between(10, 55).all()


@pytest.mark.ci
def test_rows_with_more_seeds_than_the_rest_are_as_likely_any_row():
    """Two rows of 40 models and one of 5: over many studies all three have the mean of all, each
    its own number of draws.
    """
    rows = [("a", 40, 0.0), ("b", 40, 0.0), ("c", 5, 3.0)]
    cells = pd.DataFrame(rows, columns=["row", "n_seeds", "value"]).assign(
        paper="dufter2020", table="table1", column="µ", corpus="micro", sd=0.0, run_ids=""
    )
    rng = np.random.default_rng(0)
    seen = [placebo.mislabelled_observations(cells, rng) for _ in range(100)]
    assert all(s.groupby("row").size().to_dict() == {"a": 40, "b": 40, "c": 5} for s in seen)
    means = pd.concat(seen).groupby("row").value.mean()
    assert (abs(means - 1) < 0.25).all(), means


def test_what_holds_is_worked_out_from_the_means():
    look = RunValues(LABORATORY.assign(seed=0, run_id="", step=np.nan))
    claims = {c.id: c for c in ledger.claims("dufter2020")}
    assert placebo.holds(claims["D-original"], look) and placebo.holds(claims["D-untrained"], look)
    first = RunValues(
        LABORATORY[LABORATORY.table == "table1"].assign(seed=0, run_id="", step=np.nan)
    )
    assert placebo.holds(claims["D-xnli-knn-small"], first) is None, "a row that was not run"
    true = placebo.untrained_world(LABORATORY)
    dead = RunValues(true.assign(seed=0, run_id="", step=np.nan))
    assert placebo.holds(claims["D-original"], dead) is False and placebo.holds(
        claims["D-untrained"], dead
    )


@pytest.mark.ci
@pytest.mark.parametrize("world", placebo.WORLDS)
def test_verdicts_are_hardly_ever_wrong(world):
    """Over the own claims of a paper together 5% is stated, either way: of 12 studies of D's
    laboratory no more than 3 may hold one (binomial, two in a thousand).
    """
    found = placebo.studies(LABORATORY, world, "laptop", n=12, seed=5)
    assert (found.false >= 1).all() and found.hold.sum() >= 5
    assert (found.confirmed > 0).sum() <= 3 and (found.refuted > 0).sum() <= 3


def test_the_rate_counts_studies_and_its_interval_is_exact():
    counts = dict(false=[9, 9, 9, 9], confirmed=[0, 2, 0, 0], hold=[1, 2, 1, 2], refuted=[0] * 4)
    told = placebo.error_rates(pd.DataFrame(counts))
    assert told["confirmed"] == 0.25 and told["refuted"] == 0 and told["stated"] == 0.05
    assert told["confirmed_low"] == pytest.approx(1 - 0.975 ** (1 / 4)), (
        "Clopper and Pearson for one of four"
    )
    assert told["refuted_high"] == pytest.approx(1 - 0.025 ** (1 / 4)) and told["hold"] == 1.5


def test_truth_is_asked_of_the_test_that_was_tested(monkeypatch):
    """A claim at a like fit is tested on the rows that were trained to it, where there are such:
    whether it is true there, and not in Table 1, decides whether its verdict is wrong.
    """
    asked = []
    monkeypatch.setattr(placebo, "holds", lambda claim, _: asked.extend(claim.tests))
    bible = placebo.cell_moments(ROOT / "results", "laptop", "bible")
    cells = bible[bible.paper == "dufter2020"].reset_index(drop=True)
    observations = placebo.sample_observations(cells, np.random.default_rng(0))
    placebo.wrong_verdicts(observations.assign(step=np.nan), cells, "laptop")
    assert any(test.table.endswith(ledger.MATCHED) for test in asked)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("kind", "cells", "n"),
    [("confirmed", LABORATORY, 12), ("refuted", PAIRS, 10)],
    ids=["confirmed", "refuted"],
)
def test_a_ledger_without_its_gates_would_be_found_out(monkeypatch, kind, cells, n):
    """The placebo sees an error when there is one: called at a level of .95, false claims are
    reproduced, and true ones refuted, soon.
    """
    monkeypatch.setattr(placebo, "ALPHA", 0.95)
    found = placebo.studies(cells, "shuffled", "laptop", n=n, seed=1)
    assert found[kind].sum() > 0


def test_claims_of_ours_are_no_part_of_the_rate():
    assert {c.whose for c in placebo.own_claims("dufter2020")} == {ledger.PAPERS}


@pytest.mark.ci
def test_the_script_writes_what_the_report_reads(tmp_path):
    spec = importlib.util.spec_from_file_location("placebo_script", ROOT / "benchmarks/placebo.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (tmp_path / "laptop/07_laboratory").mkdir(parents=True)
    for name in ("table1", "table2"):
        frame = tables.read(ROOT / f"results/laptop/07_laboratory/{name}.csv")
        tables.write(frame[frame.corpus == "micro"], tmp_path / f"laptop/07_laboratory/{name}.csv")
    written = script.main(
        ["--results", str(tmp_path), "--studies", "2", "--output", str(tmp_path / "placebo.csv")]
    )
    frame = pd.read_csv(written)
    assert (
        frame.world.tolist() == list(placebo.WORLDS)
        and (frame.stated == 0.05).all()
        and (frame.studies == 2).all()
    )

    # a corpus for itself; rows of others stay as they are
    folder = ["--results", str(tmp_path), "--output", str(written)]
    script.main([*folder, "--studies", "3", "--corpora", "bible"])
    pd.testing.assert_frame_equal(pd.read_csv(written), frame)
    script.main([*folder, "--studies", "3", "--corpora", "micro"])
    assert pd.read_csv(written).studies.tolist() == [3] * len(frame)
