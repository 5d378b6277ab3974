"""Confirmed verdicts made again from plan and values by seed, with no line of the package; and the
study on fresh seeds: when it is read, what its record says.
"""

import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import test_verdicts_again as again
import toy_stages as toys

from xlingual_nb.errors import InputError
from xlingual_nb.experiments.study import TableEntry
from xlingual_nb.report import (
    confirmation,
    confirmation_outcomes,
    confirmatory_tables,
    spec_index,
    tables,
    verdicts,
)
from xlingual_nb.report.confirmatory_tables import CONFIRMED_FOLDER, ConfirmatoryTable
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store

ROOT = Path(__file__).resolve().parents[1]


def families(root):
    """(plan, corpus, its planned claims, values by seed) of every family with verdicts."""
    written = pd.read_csv(root / "results/confirmed/claims.csv")
    frames = [
        pd.read_csv(path).assign(notebook=path.stem.partition("-")[0])
        for path in sorted((root / "results/confirmed").glob("*-*.csv"))
    ]
    values = pd.concat(frames, ignore_index=True)
    for path in sorted(ROOT.glob("xlingual_nb/papers/*/plan.toml")):
        plan = tomllib.loads(path.read_text(encoding="utf-8"))
        for corpus in written[written.paper == plan["paper"]].corpus.unique():
            here = [c for c in plan["claim"] if c["corpus"] == corpus and "cut" not in c]
            of_family = (values.paper == plan["paper"]) & (values.corpus == corpus)
            yield plan, corpus, here, values[of_family]


def confirmed_again(root):
    """Verdict, and p for and against, of every claim of a family that is full."""
    registry = {claim["id"]: (stand_in, claim) for _, stand_in, claim in again.ledger()}
    address = [*again.CELL, "seed", "step"]
    rows = []
    for plan, corpus, planned, values in families(root):
        spread = again.typical_of(values.drop_duplicates(address))
        for entry in planned:
            stand_in, claim = registry[entry["id"]]
            own_first = values.sort_values(
                "notebook", key=lambda names, own=entry["notebook"]: names != own, kind="stable"
            )
            frame = own_first.drop_duplicates(address)
            frame = frame[frame.seed < plan["first_seed"] + entry["n"]]
            cells = again.cells_of(frame, stand_in)
            tests = [
                test | dict(table=test["table"] + "-matched" * (at in entry.get("matched", [])))
                for at, test in enumerate(claim["tests"])
            ]
            verdict = again.gate(frame, cells, claim, tests, plan["scale"])
            ps = np.full((1, 2), np.nan)
            if not verdict:
                ps = np.array([again.p_values(frame, cells, test, spread) for test in tests])
            against = min(1, len(ps) * ps[:, 1].min())
            rows.append((entry["id"], corpus, plan["paper"], verdict, ps[:, 0].max(), against))
    columns = ["claim", "corpus", "paper", "verdict", "p", "against"]
    made = pd.DataFrame(rows, columns=columns)
    for side in ("p", "against"):
        made[side] = made.groupby(["paper", "corpus"])[side].transform(again.holm)
    outcomes = [made.verdict != "", made.p < 0.05, made.against < 0.05]
    made["verdict"] = np.select(
        outcomes, [made.verdict, "reproduced", "refuted"], again.UNDECIDABLE
    )
    return made.set_index(["claim", "corpus"])


def unlike_what_is_written(root):
    """Claims whose written verdict, or p, does not follow from plan and values."""
    made = confirmed_again(root)
    written = pd.read_csv(root / "results/confirmed/claims.csv").set_index(["claim", "corpus"])
    assert sorted(written.index) == sorted(made.index)
    written = written.loc[made.index]
    verdict = written.verdict.replace(dict.fromkeys(again.REFUTED, "refuted"))
    p = made.p.where(written.side == "for", made.against)
    is_equal = np.isclose(p, written.p, rtol=1e-4, atol=1e-12, equal_nan=True)
    return sorted(made.index[(verdict != made.verdict) | ~is_equal])


def test_confirmed_verdicts_follow_from_plan_and_values():
    assert (ROOT / "results/confirmed/claims.csv").is_file()
    assert unlike_what_is_written(ROOT) == []


@pytest.fixture(autouse=True)
def one_family(monkeypatch):
    """Plans of one family, D in the microworld, so that tests need no data and little time."""
    plan = confirmation.plans()["dufter2020"]
    micro = replace(plan, claims=tuple(plan.family("micro")))
    for module in (confirmation, confirmatory_tables):
        monkeypatch.setattr(module, "plans", lambda: {"dufter2020": micro})
    return micro


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A folder that `root` fills for the first test that asks for it."""
    return tmp_path_factory.mktemp("drawn")


@pytest.fixture
def root(one_family, drawn, tmp_path):
    """A folder of the test's own with fresh values of D in the microworld, full, and verdicts."""
    if not (drawn / CONFIRMED_FOLDER / "claims.csv").exists():
        write_made_up_study(drawn)
    shutil.copytree(drawn, tmp_path, dirs_exist_ok=True)
    return tmp_path


def write_made_up_study(root):
    """Draws around the exploratory values, as `root` has them when full, with verdicts."""
    rng = np.random.default_rng(0)
    old = pd.concat(
        tables.read_seeds(ROOT / f"results/laptop/{notebook}/seeds.csv")
        for notebook in ("07_laboratory", "08_knn_replace")
    )
    old = old[(old.corpus == "micro") & (old.paper == "dufter2020")]
    moments = old.groupby([*again.CELL, old.step.fillna(-1).rank(method="dense")]).value
    mean, sd = moments.mean().to_dict(), moments.std().to_dict()
    (root / CONFIRMED_FOLDER).mkdir(parents=True)
    for table in confirmatory_tables.confirmatory_tables("micro"):
        percents = [c.runs[0].percent for c in table.entries if c.step]
        order = sorted({100 if p is None else p for p in percents})
        rows = []
        for c in table.entries:
            percent = None
            if c.step:
                percent = 100 if c.runs[0].percent is None else c.runs[0].percent
            steps = sorted(at[3] for at in mean if at[:3] == (c.table, c.row, c.column))
            at = steps[order.index(percent)] if c.step else steps[-1]
            key = (c.table, c.row, c.column, at)
            value = rng.normal(mean[key], sd[key])
            place = (c.paper, c.table, c.row, c.column, "micro", c.seed)
            rows.append((*place, value, run_id(c.runs[0]), percent))
        frame = pd.DataFrame(rows, columns=[*tables.OBSERVED, "step"]).assign(made="")
        frame.to_csv(root / CONFIRMED_FOLDER / table.file, index=False)
    verdicts.write(confirmation.confirmed_verdicts(root), root / CONFIRMED_FOLDER / "claims.csv")


@pytest.mark.ci
def test_verdicts_of_a_full_family_are_the_same_by_code_of_its_own(root):
    written = pd.read_csv(root / "results/confirmed/claims.csv")
    assert len(written) >= 18 and (written.verdict == "reproduced").sum() >= 15
    assert unlike_what_is_written(root) == []
    path = root / "results/confirmed/07_laboratory-micro.csv"
    values = pd.read_csv(path)
    values.loc[values.row == "3 inv-order", "value"] += 0.4
    values.to_csv(path, index=False)
    assert ("D-inv-order", "micro") in unlike_what_is_written(root)


def test_exploratory_and_confirmed_verdicts_are_counted_side_by_side(root):
    (root / "results/laptop").mkdir()
    shutil.copy(ROOT / "results/laptop/verdicts.csv", root / "results/laptop")
    scores = confirmation_outcomes.confirmation_scores(
        confirmation_outcomes.compared_verdicts(root)
    )
    scores = scores.set_index(["paper", "corpus"])
    full = scores.loc["dufter2020", "micro"]
    outcomes = full[list(confirmation_outcomes.OUTCOMES)]
    assert outcomes.sum() == full.planned and full[confirmation_outcomes.NOT_RUN] == 0
    assert full[confirmation_outcomes.CONFIRMED_SAME] >= 15


def test_a_claim_that_was_cut_leaves_its_family_and_says_why(root, monkeypatch, one_family):
    claims = [replace(c, cut="no time") if c.id == "D-late" else c for c in one_family.claims]
    cut = replace(one_family, claims=tuple(claims))
    for module in (confirmation, confirmation_outcomes):
        monkeypatch.setattr(module, "plans", lambda: {"dufter2020": cut})
    assert "D-late" not in set(confirmation.confirmed_verdicts(root).claim)
    compared = confirmation_outcomes.compared_verdicts(root).set_index(["claim", "corpus"])
    assert compared.loc[("D-late", "micro"), "why"] == "no time"


def test_the_index_of_runs_has_those_on_fresh_seeds(root):
    entries = spec_index.confirmatory_entries(root, spec_index.SpecIndex({}))
    assert set(confirmation.confirmed_values(root).run_id.str[:12]) <= set(entries)
    again_entries = spec_index.confirmatory_entries(root, spec_index.SpecIndex(entries))
    assert again_entries.keys() == entries.keys()


def test_no_verdict_of_a_family_that_is_not_full(root):
    assert len(confirmation.confirmed_verdicts(root))
    (root / "results/confirmed/08_knn_replace-micro.csv").unlink()
    assert confirmation.confirmed_verdicts(root).empty


def a_table_of_two_seeds(tmp_path, monkeypatch, **second):
    """A table of one entry and two seeds in a repository of its own."""
    (tmp_path / "settings.ini").write_text("")
    (tmp_path / "nbs").mkdir()
    monkeypatch.chdir(tmp_path)
    runs = [toys.Total((toys.Count(3, 0),)), toys.Total((toys.Count(3, 1, **second),))]
    entries = [
        TableEntry(
            "dufter2020", "table1", "0 original", "µ", seed, (run,), lambda held: held["total"]
        )
        for seed, run in zip((200, 201), runs, strict=True)
    ]
    return ConfirmatoryTable("07_laboratory", "micro", tuple(entries))


def written_seeds(folder, table):
    path = folder / table.file
    return list(tables.read_seeds(path).seed) if path.exists() else []


def test_a_table_is_read_when_it_is_full_and_the_record_says_how_far_it_is(tmp_path, monkeypatch):
    """A run that fails leaves a note; values of the seed that is whole wait elsewhere, and the same
    table goes on from there.
    """
    table = a_table_of_two_seeds(tmp_path, monkeypatch, fault="user")
    store = Store(tmp_path / "runs")
    with pytest.raises(InputError):
        confirmation.run_table(table, store, Inline())
    (note,) = confirmation.read_record(tmp_path).itertuples()
    assert (note.runs, note.made) == ("4", "2")
    assert written_seeds(tmp_path / CONFIRMED_FOLDER, table) == []
    assert written_seeds(tmp_path / confirmation.UNFINISHED_FOLDER, table) == [200]
    assert confirmation.confirmed_values(tmp_path).empty
    first, bad = table.entries
    mended = replace(bad, runs=(toys.Total((toys.Count(3, 1),)),))
    store.partial(first.runs[0]).mkdir(parents=True)  # a run that somebody has begun to make again
    confirmation.run_table(replace(table, entries=(first, mended)), store, Inline())
    (note,) = confirmation.read_record(tmp_path).itertuples()
    assert (note.runs, note.made) == ("4", "4")
    assert written_seeds(tmp_path / CONFIRMED_FOLDER, table) == [200, 201]
    assert written_seeds(tmp_path / confirmation.UNFINISHED_FOLDER, table) == []


def test_a_table_is_divided_among_machines(tmp_path, monkeypatch):
    """A second store makes the other seed alone, and the table is full."""
    table = a_table_of_two_seeds(tmp_path, monkeypatch)
    stores = [Store(tmp_path / name) for name in ("here", "there")]
    left = [confirmation.runs_left(table, stores[1])["runs"]]
    for store, seed in zip(stores, (200, 201), strict=True):
        assert written_seeds(tmp_path / CONFIRMED_FOLDER, table) == []
        confirmation.run_table(table, store, Inline(), seeds=[seed])
        left.append(confirmation.runs_left(table, stores[1])["runs"])
        made = [store.has(run) for entry in table.entries for run in entry.runs]
        assert made == [seed == 200, seed == 201]
    assert left == [4, 2, 0]
    assert written_seeds(tmp_path / CONFIRMED_FOLDER, table) == [200, 201]
    (note,) = confirmation.read_record(tmp_path).itertuples()
    assert (note.runs, note.made) == ("4", "4")
    with pytest.raises(InputError, match="200 to 201"):
        confirmation.run_table(table, stores[0], Inline(), seeds=[7])


def test_what_is_kept_of_unfinished_tables_is_planned_and_whole():
    """All numbers of each seed, by the ids that the grids give, and none of a table that is full."""
    kept = {path.name: path for path in (ROOT / confirmation.UNFINISHED_FOLDER).glob("*.csv")}
    planned = {table.file: table for table in confirmation.tables_with_data(tell=lambda _: None)}
    full = {path.name for path in (ROOT / CONFIRMED_FOLDER).glob("*-*.csv")}
    assert not full & set(kept)
    for name in set(kept) & set(planned):  # those whose texts are there
        values = tables.read_seeds(kept[name])
        entries = [e for e in planned[name].entries if e.seed in set(values.seed)]
        wanted = {(e.table, e.row, e.column, e.seed, run_id(e.runs[-1])) for e in entries}
        columns = ["table", "row", "column", "seed", "run_id"]
        assert set(values[columns].itertuples(index=False, name=None)) == wanted


def test_values_of_other_code_are_made_again(tmp_path, monkeypatch):
    table = a_table_of_two_seeds(tmp_path, monkeypatch)
    confirmation.run_table(table, Store(tmp_path / "here"), Inline(), seeds=[200])
    path = tmp_path / confirmation.UNFINISHED_FOLDER / table.file
    values = pd.read_csv(path)
    assert confirmation.runs_left(table, Store(tmp_path / "there"))["runs"] == 2
    values.assign(made="0" * 12).to_csv(path, index=False)
    assert confirmation.runs_left(table, Store(tmp_path / "there"))["runs"] == 4


def test_a_table_that_nobody_has_begun_says_why_its_claims_have_no_verdict(tmp_path, monkeypatch):
    table = a_table_of_two_seeds(tmp_path, monkeypatch)
    monkeypatch.setattr(confirmation, "tables_with_data", lambda corpus, tell: [table])
    confirmation.record_progress(Store(tmp_path / "runs"))
    (note,) = confirmation.read_record(tmp_path).fillna("").itertuples()
    assert (note.runs, note.made, note.hours) == ("4", "0", "")
    compared = confirmation_outcomes.compared_verdicts(tmp_path)
    not_run = compared[compared.outcome == confirmation_outcomes.NOT_RUN]
    of_d = not_run[(not_run.paper == "dufter2020") & (not_run.corpus == "micro")]
    assert len(of_d) and of_d.why.str.contains("07_laboratory (0 of 4 runs made", regex=False).all()

    confirmation.run_table(table, Store(tmp_path / "runs"), Inline())
    full = confirmation.read_record(tmp_path)
    confirmation.record_progress(Store(tmp_path / "another"))
    assert full.equals(confirmation.read_record(tmp_path))


@pytest.mark.parametrize("text, seeds", [("", []), ("203", [203]), ("200-202", [200, 201, 202])])
def test_seeds_of_a_user(text, seeds):
    assert list(confirmatory_tables.seed_range(text)) == seeds


@pytest.mark.parametrize("text", ["-", "200-", "202-200", "a-b", "2.5", "200,201"])
def test_what_is_no_range_of_seeds(text):
    with pytest.raises(InputError, match="--seeds"):
        confirmatory_tables.seed_range(text)
