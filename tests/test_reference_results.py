"""What is kept and what is yours: nothing is written over that was not asked for, all that is
written follows from values by seed, and whether two studies agree is a test that holds its level.
"""

import re
import shutil
import subprocess
import zlib
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy_stages as toys
from recomputed import unlike_its_seeds
from scipy import stats

from xlingual_nb import cli
from xlingual_nb.errors import InputError
from xlingual_nb.experiments import frequency, laboratory, overlap
from xlingual_nb.experiments.study import (
    ADDRESS_COLUMNS,
    TableEntry,
    address,
    addresses,
    unique_runs,
    observe,
)
from xlingual_nb.papers.published import claims, value as published_value
from xlingual_nb.report import (
    agreement,
    notebooks,
    reference_results,
    reusable_values,
    site_pages,
    tables,
    verdicts,
)
from xlingual_nb.report.confirmation import UNFINISHED_FOLDER
from xlingual_nb.report.site_data import Study
from xlingual_nb.runs import spec
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store

ROOT = Path(__file__).resolve().parents[1]


def observed(notebook, corpus="micro", scale="laptop", keep=lambda c: True, **values):
    """Made-up values by seed of an experiment's cells, from the runs that it asks for."""
    id_of = cache(run_id)  # many cells read one run

    def one(c):
        rng = np.random.default_rng(zlib.crc32(f"{c.row} {c.column} {c.seed}".encode()))
        step = (
            float(c.runs[0].percent if c.runs[0].percent is not None else 100)
            if c.step
            else float("nan")
        )
        return (
            c.paper,
            c.table,
            c.row,
            c.column,
            corpus,
            c.seed,
            50 + 10 * rng.normal(),
            id_of(c.runs[0]),
            step,
        )

    cells = filter(keep, reference_results.cells_of(notebook, scale=scale, corpus=corpus, **values))
    return pd.DataFrame(map(one, cells), columns=[*tables.OBSERVED, "step"])


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone with our notebooks and no results."""
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    (tmp_path / "settings.ini").write_text("")
    (tmp_path / "nbs").mkdir()
    for path in (ROOT / "nbs").glob("*.ipynb"):
        shutil.copy(path, tmp_path / "nbs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(notebook, observations, keep=False, about=(), **more):
    at = reference_results.output_folders(notebook, "laptop", keep=keep)
    return at, reference_results.write_results(observations, at, about, **more)


# ---- all that is written follows from the values by seed

OF_K = (
    "01_overlap",
    "02_ordering",
    "03_frequency",
    "04_architecture",
    "05_objective",
    "06_mixed_pairs",
)


HOMES = sorted({path.parents[1] for path in ROOT.glob("results/*/*/seeds.csv")})


@pytest.mark.parametrize("home", HOMES, ids=lambda p: p.name)
def test_what_is_committed_follows_from_values_by_seed(home):
    """And every study has them, but for values of planned seeds that decide nothing yet."""
    studies = {path.parent for path in home.glob("*/*.csv")} - {ROOT / UNFINISHED_FOLDER}
    assert studies == {path.parent for path in home.glob("*/seeds.csv")}
    assert unlike_its_seeds(home) == []


@pytest.mark.parametrize("notebook", ["04_architecture", "05_objective"])
def test_a_kept_loss_is_of_two_kept_scores_of_one_run(notebook):
    """Columns of 04 name the language (Fake-English, Spanish, Δ), rows of 05 end with it (enfake,
    es, Δ).
    """
    seeds, found = tables.read_seeds(ROOT / "results/laptop" / notebook / "seeds.csv"), 0
    seeds["label"] = seeds.column if notebook[:2] == "04" else seeds.row
    stem = seeds.label.str.replace(r"\S+$", "", regex=True)
    alike = seeds.groupby(
        [seeds.run_id, seeds.seed, seeds.row if notebook[:2] == "04" else seeds.column, stem]
    )
    for _, part in alike:
        value = dict(zip(part.label.str.split().str[-1], part.value))
        if "Δ" not in value or len(value) < 3:
            continue
        loss, source = (
            value.pop("Δ"),
            value.pop("Fake-English" if notebook[:2] == "04" else "enfake"),
        )
        assert loss == pytest.approx(source - next(iter(value.values())), abs=1e-6), part
        found += 1
    assert found > 100


def whole_study():
    """Every experiment written with made-up values: two seeds, which is few enough to be quick."""
    for notebook in OF_K:
        module = import_module(f"xlingual_nb.experiments.{notebook[3:]}")
        seen, beside = observed(notebook, seeds=2), getattr(module, "RELATED_NOTEBOOKS", ())
        about = [
            c for paper in seen.paper.unique() for c in claims(paper) if module.belongs_here(c)
        ]
        at, _ = written(notebook, seen, about=about, recorded=beside)
    return at.verdicts.parent


def test_tables_and_verdicts_follow_from_values_by_seed(clone):
    home, some, other = (
        whole_study(),
        dict(seeds=2, rows="0,3,8,18"),
        dict(seeds=2, rows="0", reading="released"),
    )
    about = list(filter(laboratory.belongs_here, claims("dufter2020")))
    _, judged = written("07_laboratory", observed("07_laboratory", **some), about=about)
    written(
        "07_laboratory",
        observed("07_laboratory", **other),
        about=about,
        reading="-released",
    )
    assert len(list(home.glob("*/seeds*.csv"))) == 8 and unlike_its_seeds(home) == []
    assert {"seeds-released.csv", "table1-released.csv"} < {
        p.name for p in (home / "07_laboratory").iterdir()
    }
    assert (
        (verdicts.read(home / "verdicts.csv").verdict != verdicts.VERDICTS[-1]).sum()
        > 20
        < len(judged)
    )


EDITS = [
    ("seeds.csv", r"\d\.\d+,(?=[0-9a-f]{64})", "1.25,"),
    ("table3.csv", r",(\d\d)\.", r",9\1."),
    ("../verdicts.csv", ",micro,(?!not tested)[a-z ]+,", ",micro,believed,"),
]


@pytest.mark.parametrize("file, old, new", EDITS, ids=("value", "table", "verdict"))
def test_it_is_noticed_when_they_do_not(clone, file, old, new):
    about = filter(frequency.belongs_here, claims("k2020"))
    at, _ = written("03_frequency", observed("03_frequency"), about=about)
    assert unlike_its_seeds(at.tables.parent) == []
    path = at.tables / file
    changed = re.sub(old, new, path.read_text(), count=1)
    assert changed != path.read_text()
    path.write_text(changed)
    assert unlike_its_seeds(at.tables.parent)


@pytest.mark.parametrize(
    "path",
    sorted(ROOT.glob("results/*/*/seeds*.csv")),
    ids=lambda p: f"{p.parts[-3]} {p.parts[-2]}",
)
def test_every_kept_value_says_what_made_it_or_that_it_is_not_known_and_why(path):
    made = tables.read_seeds(path).made
    known = tables.is_known(made)
    assert made[known].str.fullmatch("[0-9a-f]{12}").all()
    assert made[~known].str.fullmatch("not known: .+").all()


def test_kept_values_are_read_by_the_code_that_they_record():
    """No stage's fingerprint has the code that reads its runs' numbers: a loop that is written
    otherwise there would have every value made again.
    """
    kept = reference_results.kept_study("03_frequency", scale="laptop")
    seeds = tables.read_seeds(kept.file("seeds"))
    made = dict(zip(addresses(seeds), seeds.made))
    first_of_column = {}
    for cell in frequency.list_table_entries("laptop", "micro"):
        if cell.column not in first_of_column and address(cell) in made:
            first_of_column[cell.column] = cell
    cells = list(first_of_column.values())
    assert len(cells) == 3
    assert reusable_values.code_fingerprints(cells) == [made[address(cell)] for cell in cells]


def test_what_made_a_value_is_written_as_not_known_where_nothing_tells(clone):
    at, _ = written("03_frequency", observed("03_frequency"))
    assert set(tables.read_seeds(at.tables / "seeds.csv").made) == {tables.NOT_RECORDED}


def test_values_by_seed_are_one_stable_file(clone):
    frame = observed("03_frequency")
    at, _ = written("03_frequency", frame.sample(frac=1, random_state=1))
    text = (at.tables / "seeds.csv").read_text()
    written("03_frequency", frame)
    assert (at.tables / "seeds.csv").read_text() == text and text.splitlines()[0] == ",".join(
        [*tables.OBSERVED, "step", "made"]
    )
    read = tables.read_seeds(at.tables / "seeds.csv").set_index(["row", "column", "seed"])
    exact = frame.set_index(["row", "column", "seed"]).value.reindex(read.index)
    assert np.allclose(read.value, exact, rtol=1e-9, atol=0)
    assert read.run_id.str.len().eq(64).all() and len(read) == len(frame)


# ---- what is kept is not made again


def with_seeds(cells):
    """Those of the cells whose runs have a seed: what pairs give away without a model has none."""
    return [c for c in cells if hasattr(c.runs[0], "seed")]


def of_two_seeds(**changed):
    """Cells of 03 with three seeds, and the kept study's own place once two of them are kept."""
    cells = with_seeds(
        reference_results.cells_of("03_frequency", scale="laptop", corpus="micro", seeds=3)
    )
    frame = observed("03_frequency", seeds=2, keep=cells.__contains__)
    made = {address(c): name for c, name in zip(cells, reusable_values.code_fingerprints(cells))}
    at, _ = written(
        "03_frequency",
        frame.assign(**{"made": list(map(made.get, addresses(frame)))} | changed),
        keep=True,
    )
    return cells, replace(at, reference=reference_results.kept_study("03_frequency"))


def test_a_kept_study_grows_by_the_seeds_that_it_lacks(clone):
    cells, at = of_two_seeds()
    before = tables.read_seeds(at.tables / "seeds.csv")
    held = reusable_values.reusable_values(cells, at, "micro")
    assert reusable_values.missing_entries(cells, held) == [c for c in cells if c.seed == 2], (
        "the seeds that are there are not made again"
    )
    found = reusable_values.collect_values(cells, held, at.store, "micro")

    def in_order(frame):
        return tables.in_order(frame[before.columns]).reset_index(drop=True)

    pd.testing.assert_frame_equal(in_order(found), in_order(before))
    reference_results.write_results(
        pd.concat([found, observed("03_frequency", keep=lambda c: c.seed == 2 and c in cells)]), at
    )
    assert set(tables.read(at.tables / "table3.csv").n_seeds) == {3}


def test_some_rows_with_more_seeds_stand_beside_the_rest_of_what_is_kept(clone, started):
    cells, at = of_two_seeds()
    row = cells[0].row
    more = [
        c
        for c in with_seeds(
            reference_results.cells_of("03_frequency", scale="laptop", corpus="micro", seeds=4)
        )
        if c.row == row
    ]
    asked = reusable_values.with_kept(more, at, "micro")
    assert {c.seed for c in asked if c.row == row} == set(range(4)) and {
        c.seed for c in asked if c.row != row
    } == {0, 1}
    assert {c.row for c in asked} == {c.row for c in cells} and len(asked) == len(set(asked))
    assert {
        c.row
        for c in reusable_values.missing_entries(
            asked, reusable_values.reusable_values(asked, at, "micro")
        )
    } == {row}, "the rest is not made again"
    assert reusable_values.with_kept(more, replace(at, keep=False), "micro") == more
    assert (
        call(
            "run",
            "03",
            "--scale",
            "laptop",
            "--keep",
            "-p",
            "corpus=micro",
            "-p",
            "claim=K-frequency",
            "-p",
            "seeds=4",
        )
        == 0
    )


def test_what_would_be_made_otherwise_does_not_stand_by_itself(clone):
    cells, at = of_two_seeds(made="0" * 12)
    with pytest.raises(InputError, match="leave out keep"):
        reusable_values.with_kept([c for c in cells if c.row == cells[0].row], at, "micro")


@pytest.mark.parametrize(
    "changed",
    (dict(made=""), dict(made="0" * 12), dict(run_id="a" * 64), dict(corpus="bible")),
    ids=("unknown", "other", "other runs", "other text"),
)
def test_what_was_made_otherwise_is_made_again(clone, changed):
    cells, at = of_two_seeds(**changed)
    assert (
        reusable_values.missing_entries(cells, reusable_values.reusable_values(cells, at, "micro"))
        == cells
    )


def test_a_number_that_is_kept_under_another_name_is_taken_over(clone):
    """The plain model of one table is that of the next."""
    cells, at = of_two_seeds()
    named = [replace(c, table="table9", row=f"plain {c.row}") for c in cells]
    held = reusable_values.reusable_values(
        named,
        replace(at, reference=reference_results.kept_study("05_objective", scale="laptop")),
        "micro",
    )
    assert reusable_values.missing_entries(named, held) == [
        c for c in named if c.seed == 2
    ] and set(held.table) == {"table9"}
    assert held.value.tolist() == reusable_values.reusable_values(cells, at, "micro").value.tolist()


def test_a_notebook_keeps_the_number_that_it_has(clone):
    """Another machine's run of the same seed is another draw."""
    cells, at = of_two_seeds()
    mine = tables.read_seeds(at.tables / "seeds.csv")
    elsewhere = at.tables.parent / "01_overlap"
    elsewhere.mkdir(exist_ok=True)
    mine.assign(value=mine.value + 1).to_csv(elsewhere / "seeds.csv", index=False)
    held, others = (
        reusable_values.reusable_values(
            cells,
            replace(at, reference=reference_results.kept_study(name, scale="laptop")),
            "micro",
        )
        for name in ("03_frequency", "05_objective")
    )
    assert (others.value - held.value).round(6).eq(1).all() and len(held)


def test_a_difference_is_taken_of_the_two_numbers_that_are_kept(clone):
    """A loss that was kept of another day's making gives way; without its two numbers it is taken
    over as it is.
    """
    of_run = [
        c
        for c in reference_results.cells_of(
            "05_objective", scale="laptop", corpus="micro", seeds=1, only="9"
        )
        if c.column == "XNLI No Lang-id" and c.row.startswith("enfake-es | enfake | ")
    ]
    (loss,) = (c for c in of_run if c.minus)
    frame = pd.DataFrame([address(c) for c in of_run], columns=ADDRESS_COLUMNS)
    frame = frame.assign(
        corpus="micro", value=[90.0, 50.0, 7.0], made=reusable_values.code_fingerprints(of_run)
    )
    at, _ = written("05_objective", frame, keep=True)
    at = replace(at, reference=reference_results.kept_study("05_objective"))

    def taken(cells):
        return reusable_values.reusable_values(cells, at, "micro").set_index("row").value.to_dict()

    assert of_run[2] == loss and taken(of_run)[loss.row] == 40 and taken([loss]) == {loss.row: 40}
    seeds = tables.read_seeds(at.tables / "seeds.csv")
    seeds[seeds.row == loss.row].to_csv(at.tables / "seeds.csv", index=False)
    assert taken([loss]) == {loss.row: 7}


def test_of_one_run_all_numbers_are_of_one_making(tmp_path):
    """What is held of a run gives way where the store has the run for another of its numbers, and
    only there.
    """
    store, (first, other) = (
        Store(tmp_path / "runs"),
        [toy_cell(n, (toys.Total((toys.Count(3, n),)),)) for n in (0, 1)],
    )
    more = [
        replace(c, column="twice", metric=lambda held: 2 * held["total"]) for c in (first, other)
    ]
    held = observe([], store, "micro").assign(made="")
    for c in (first, other):
        held.loc[len(held)] = [
            *address(c)[:4],
            "micro",
            c.seed,
            -1.0,
            run_id(c.runs[0]),
            np.nan,
            "old",
        ]
    run(first.runs, store, progress=False)
    found = (
        reusable_values.collect_values([first, other, *more], held, store, "micro")
        .set_index(["column", "seed"])
        .value
    )
    assert found["twice", 0] == 2 * found["c", 0] >= 0 and found["c", 1] == -1 and len(found) == 3
    assert reusable_values.collect_values([first, other], held, store, "micro").value.tolist() == [
        -1,
        -1,
    ]


READ_OTHERWISE = {
    "drawn": dict(metric="f1 xx"),
    "function": dict(metric=lambda held: 1.0),
    "unit": dict(unit=7.0),
    "less": dict(minus="f1 en"),
    "stated": dict(amount=1.0),
    "one run more": dict(runs=(toys.Count(3),)),
}


@pytest.mark.parametrize("changed", READ_OTHERWISE.values(), ids=READ_OTHERWISE)
def test_what_is_read_otherwise_is_made_again(clone, changed):
    cells, at = of_two_seeds()

    def other(c):
        return replace(
            c, **changed | ({"runs": (*c.runs, *changed["runs"])} if "runs" in changed else {})
        )

    asked = [other(c) if c.seed == 0 else c for c in cells]
    assert {
        c.seed
        for c in reusable_values.missing_entries(
            asked, reusable_values.reusable_values(asked, at, "micro")
        )
    } == {0, 2}


def test_a_study_of_ones_own_takes_nothing_over(clone):
    cells, _ = of_two_seeds()
    at = reference_results.output_folders("03_frequency", "laptop")
    held = reusable_values.reusable_values(cells, at, "micro")
    assert (
        reusable_values.missing_entries(cells, held) == cells
        and reusable_values.collect_values(cells, held, at.store, "micro").empty
    )


def toy_cell(seed, runs):
    return TableEntry("toy", "table1", "r", "c", seed, runs, lambda held: held["total"])


def test_another_usual_value_is_another_making(monkeypatch):
    """The id of a run leaves out what is as usual."""
    before = toys.Total((toys.Count(3, 0),))
    name, (made,) = run_id(before), reusable_values.code_fingerprints([toy_cell(0, (before,))])
    (pause,) = (f for f in fields(toys.Count) if f.name == "pause")
    monkeypatch.setattr(pause, "default", 0.5)
    spec._fields.cache_clear()
    after = toys.Total((toys.Count(3, 0, pause=0.5),))
    try:
        assert run_id(after) == name and reusable_values.code_fingerprints(
            [toy_cell(0, (after,))]
        ) != [made]
    finally:
        spec._fields.cache_clear()


def test_other_data_of_any_of_its_runs_is_another_making(monkeypatch):
    """The id of the first run stands beside a number; a mean over languages has others."""
    cell = toy_cell(0, tuple(toys.Total((toys.Count(3, n),)) for n in range(3)))
    told, usual = reusable_values.code_fingerprints([cell]), reference_results.run_id

    def moved(run):
        return usual(run)[::-1] if run == cell.runs[2] else usual(run)

    monkeypatch.setattr(reusable_values, "run_id", moved)
    assert (
        reusable_values.code_fingerprints([cell]) != told
        and reusable_values.code_fingerprints([toy_cell(0, cell.runs[:1])]) != told
    )


def test_values_held_and_values_of_the_store_come_together(tmp_path):
    """Of a run that is stale it is not said what made it, so that nobody takes it over."""
    store, cells = (
        Store(tmp_path / "runs"),
        [
            toy_cell(
                seed, (toys.Total((toys.Count(3, seed),)), toys.Total((toys.Count(3, seed + 5),)))
            )
            for seed in range(3)
        ],
    )
    run(unique_runs(cells[1:]), store, progress=False)
    manifest = store.path(cells[2].runs[1]) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('make_total": "', 'make_total": "0'))
    held = observe(cells[1:2], store, "micro").assign(
        seed=0, value=-1.0, run_id=run_id(cells[0].runs[0]), made="held"
    )
    found = reusable_values.collect_values(cells, held, store, "micro").set_index("seed")
    assert (
        found.made.tolist()
        == ["held", reusable_values.code_fingerprints(cells)[1], reusable_values.STALE_CODE]
        and found.value[0] == -1
        and found.value[1] >= 0
    )


# ---- other corpora, other tables


def test_another_corpus_stays_and_a_smaller_table_is_said(clone, capsys):
    frame = observed("03_frequency")
    at, _ = written("03_frequency", pd.concat([frame, frame.assign(corpus="bible")]))
    before = tables.read(at.tables / "table3.csv")
    capsys.readouterr()
    written("03_frequency", frame[frame.row == frame.row[0]])
    after, cells = tables.read(at.tables / "table3.csv"), (before.corpus == "micro").sum()
    assert (
        f"table3 (micro): {(after.corpus == 'micro').sum()} cells replace {cells}"
        in capsys.readouterr().out
    )
    assert tables.text(after[after.corpus == "bible"]) == tables.text(
        before[before.corpus == "bible"]
    )
    assert set(tables.read_seeds(at.tables / "seeds.csv").corpus) == {"micro", "bible"}


def test_a_broken_file_of_values_is_one_line(tmp_path):
    (tmp_path / "seeds.csv").write_text("paper,table\nk2020,table1\n")
    with pytest.raises(InputError, match="lack the column 'row'"):
        tables.read_seeds(tmp_path / "seeds.csv")


# ---- the kept study is written only when asked, and not with less


def call(*arguments):
    with pytest.raises(SystemExit) as end:
        cli.main(list(arguments))
    return end.value.code


@pytest.fixture
def started(monkeypatch):
    """The notebooks that were started, with their values; none is."""
    found = []

    def execute(source, target, values, cwd, say):
        found.append((source.stem, target.parent, values))
        shutil.copy(source, target)

    monkeypatch.setattr(notebooks, "execute", execute)
    monkeypatch.setattr(notebooks, "check_injected", lambda path: None)
    return found


def everything(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_run_touches_yours_alone(clone, started):
    written("03_frequency", observed("03_frequency"), keep=True)
    before = everything(clone)
    at, _ = written("03_frequency", observed("03_frequency", seeds=1))
    assert (
        at.tables == clone / "yours/results/laptop/03_frequency"
        and at.pictures == clone / "yours/figures"
    )
    assert call("run", "03", "--scale", "laptop") == 0 and started[0][1] == at.tables
    after = everything(clone)
    assert {p: after[p] for p in before} == before
    assert {p.relative_to(clone).parts[0] for p in after.keys() - before.keys()} == {"yours"}


def test_git_does_not_see_what_a_run_leaves():
    names = [
        "yours/results/laptop/01_overlap/table1.csv",
        "yours/figures/a.png",
        "runs/VERSION",
        "report/index.html",
    ]
    done = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert done.stdout.splitlines() == names


LESS = [
    (["17", "03"], ["-p", "seeds=1"], "table3 (micro) has"),
    (["07"], ["-p", "rows=0", "-p", "seeds=5"], "rows that this would not have"),
    (["03"], ["-p", "languages=tr"], "languages='tr' is no part of the kept study"),
    (["07"], ["-p", "reading=released"], "reading='released' is no part"),
]


@pytest.mark.parametrize("names, given, says", LESS, ids=["seeds", "rows", "languages", "reading"])
def test_less_than_is_kept_is_refused_before_anything_runs(
    clone, started, capsys, names, given, says
):
    for notebook in ("03_frequency", "07_laboratory"):
        written(notebook, observed(notebook), keep=True)
    before, asked = (
        everything(clone / "results"),
        ["--scale", "laptop", "--keep", "-p", "corpus=micro"],
    )
    assert call("run", *names, *asked, *given) == 2
    error = capsys.readouterr().err
    assert (
        says in error
        and len(error.splitlines()) == 1
        and started == []
        and everything(clone / "results") == before
    )
    assert call("run", *names, *asked) == 0, "the whole grid may be kept"
    assert [(stem[:2], values["keep"]) for stem, _, values in started] == [
        (name, True) for name in names
    ]


def test_some_tables_of_many_may_be_kept(clone, started):
    written("05_objective", observed("05_objective"), keep=True)
    assert call("run", "05", "--scale", "laptop", "--keep", "-p", "only=8") == 0


def test_a_notebook_by_hand_refuses_as_well(clone):
    frame = observed("03_frequency")
    at, _ = written("03_frequency", frame, keep=True)
    few = reference_results.cells_of("03_frequency", scale="laptop", corpus="micro", seeds=1)
    with pytest.raises(InputError, match="leave out keep"):
        reference_results.may_keep(at, few, "micro")
    reference_results.may_keep(
        reference_results.output_folders("03_frequency", "laptop"), few, "micro"
    )
    reference_results.may_keep(at, few, "bible")
    before = everything(clone / "results")
    half = frame[frame.column != "NER F1-Score"]
    with pytest.raises(InputError, match="leave out keep"):
        written("03_frequency", half, keep=True)
    assert everything(clone / "results") == before, "half of the runs are there: what is kept stays"
    with pytest.raises(InputError, match="leave out keep"):
        reference_results.output_folders("03_frequency", "laptop", keep=True, yours=True)


def test_a_column_that_is_worked_out_from_others_is_none_to_run(clone, started):
    frame = observed("01_overlap")
    at, _ = written(
        "01_overlap", pd.concat([frame, overlap.wordpiece_contributions(frame)]), keep=True
    )
    assert overlap.GAIN in set(tables.read(at.tables / "table1.csv").column)
    assert call("run", "01", "--scale", "laptop", "--keep", "-p", "corpus=micro") == 0


# ---- an earlier reading


def test_a_table_of_an_earlier_reading_says_so_and_may_be_replaced(clone, started):
    frame = observed("03_frequency")
    some, changed = (
        frame.row.str.contains("frequency based") & (frame.column == "NER F1-Score"),
        frame.copy(),
    )
    changed.loc[some, "run_id"] = [f"{i:012d}" + "f" * 52 for i in range(some.sum())]
    at, _ = written("03_frequency", changed, keep=True)
    k, n = some.sum(), changed.run_id.nunique()
    assert k < n and reference_results.describe_outdated(
        reference_results.kept_study("03_frequency")
    ) == (
        f"{k} of {n} runs behind these tables (micro) were made under an earlier reading, which today's grid no longer "
        "has: to be made again."
    )
    assert call("run", "03", "--scale", "laptop", "--keep", "-p", "corpus=micro") == 0
    one = reference_results.cells_of("03_frequency", scale="laptop", corpus="micro", seeds=1)
    with pytest.raises(InputError):
        reference_results.may_keep(at, one, "micro")  # what is still asked for is not lost
    written(
        "03_frequency", changed.assign(run_id=[f"{i:064d}" for i in range(len(changed))]), keep=True
    )
    reference_results.may_keep(at, one, "micro")
    written("03_frequency", observed("03_frequency", seeds=1), keep=True)
    assert reference_results.describe_outdated(reference_results.kept_study("03_frequency")) == ""


def test_nothing_is_said_of_a_table_whose_data_is_not_here():
    kept_here = reference_results.kept_study("14_language_shift", scale="laptop")
    assert (
        "lowered" in set(kept_here.tables().table)
        and reference_results.describe_outdated(kept_here) == ""
    ), "it wants XNLI and a vocabulary"


def test_more_seeds_than_the_scale_has_are_no_other_reading(clone):
    written("03_frequency", observed("03_frequency", seeds=7), keep=True)
    assert reference_results.describe_outdated(reference_results.kept_study("03_frequency")) == ""


# ---- yours against what is kept


def tidied(arms, run="a"):
    rows = [
        (
            "k2020",
            "table3",
            row,
            "NER F1-Score",
            "micro",
            seed,
            value,
            f"{run}{row}{seed}".ljust(64, "0"),
        )
        for row, arm in arms.items()
        for seed, value in enumerate(arm)
    ]
    return tables.tidy(pd.DataFrame(rows, columns=tables.OBSERVED))


def test_welch_and_holm_by_other_means():
    rng = np.random.default_rng(5)
    mine = {f"row {i}": rng.normal(i, 1 + i, size=2 + i) for i in range(5)}
    theirs = {row: rng.normal(3, 2, size=4) for row in mine}
    both = agreement.agreement(tidied(mine), tidied(theirs, run="b")).set_index("row")
    p = {row: stats.ttest_ind(mine[row], theirs[row], equal_var=False).pvalue for row in mine}
    assert both.p.to_dict() == pytest.approx(p, rel=1e-9)
    ordered = sorted(p, key=p.get)

    def adjusted(i):
        return min(1, max((len(p) - j) * p[r] for j, r in enumerate(ordered[: i + 1])))

    holm = {row: adjusted(i) for i, row in enumerate(ordered)}
    assert both.adjusted.to_dict() == pytest.approx(holm)
    assert both.differ.to_dict() == {row: q < 0.05 for row, q in holm.items()}


def test_a_table_agrees_with_the_runs_that_it_was_written_from():
    """Six digits: whatever the first is; one more or less in the sixth is another value."""
    mine = tidied(
        {f"row {i}": [x] for i, x in enumerate(np.random.default_rng(2).uniform(0.1, 1, 2000))}
    )
    theirs = mine.assign(value=[float(f"{x:.6g}") for x in mine.value])
    assert (
        agreement.agreement(mine, theirs).equal.all()
        and not agreement.agreement(mine, theirs.assign(value=theirs.value + 1e-5)).equal.any()
    )


@pytest.mark.ci
def test_studies_that_are_alike_differ_at_the_stated_rate():
    """Three seeds, forty cells, two hundred pairs of studies: any cell at all differs in about one
    pair of twenty, or fewer.
    """
    rng, names = (
        np.random.default_rng(11),
        dict(paper="toy", table="t", column="c", corpus="micro", n_seeds=3),
    )

    def draw(mean=0.0):
        arms = rng.normal(mean, 1, size=(40, 3))
        about = dict(row=[f"row {i}" for i in range(40)], run_ids=f"{rng.integers(10**9)}")
        return pd.DataFrame(about | dict(value=arms.mean(1), sd=arms.std(1, ddof=1))).assign(
            **names
        )

    wrong = sum(agreement.agreement(draw(), draw()).differ.any() for _ in range(200))
    assert 0 < wrong <= stats.binom.ppf(0.999, 200, 0.05)
    assert agreement.agreement(draw(30.0), draw()).differ.mean() > 0.8


def test_what_cannot_be_tested_is_said_so():
    one = tidied({"a": [1.0], "b": [1.0, 2.0], "c": [4.0, 4.0], "d": [1.0, 2.0, 4.0]})
    two = tidied({"a": [1.0], "b": [7.0], "c": [5.0, 5.0], "d": [1.0, 2.0, 3.0]}, run="b")
    both = agreement.agreement(one, two).set_index("row")
    assert (
        both.p.isna().to_dict() == {"a": True, "b": True, "c": True, "d": False}
        and not both.differ.any()
    )
    assert agreement.in_words(both.reset_index()) == [
        "table3 (micro): 4 cells in both; of 1 tested (Welch, Holm over the table) 0 differ; 3 cannot be tested, "
        "without a spread over seeds."
    ]


def test_the_same_runs_with_the_same_values_are_said_plainly(clone):
    frame = observed("03_frequency")
    (at, _), (mine, _) = written("03_frequency", frame, keep=True), written("03_frequency", frame)
    live = tables.tidy(frame)
    plainly = f"table3 (micro): all {len(live)} cells are equal, and come from the same runs."
    for tidy in (live, tables.read(mine.tables / "table3.csv")):
        assert agreement.in_words(agreement.agreement(tidy, at.reference.tables())) == [plainly]
    elsewhere = frame.assign(value=frame.value + 1e-3)
    both = agreement.agreement(tables.tidy(elsewhere), live)
    assert not both.equal.any() and both.p.notna().all() and not both.differ.any(), (
        "another machine: other digits"
    )


def test_curves_are_compared_step_by_step():
    frame = observed("07_laboratory", seeds=2, rows="0")
    tidy = tables.tidy(frame[frame.table == "figure6"])
    assert agreement.agreement(tidy, tidy).equal.all() and len(
        agreement.agreement(tidy, tidy)
    ) == len(tidy)


def test_published_kept_and_yours_stand_beside_each_other(clone):
    frame, names, column = observed("03_frequency"), ["yours", "kept", "published"], "NER F1-Score"
    mine, row = frame.assign(value=frame.value + 40), "enfake-es | frequency based | es"
    written("03_frequency", frame, keep=True)
    written("03_frequency", mine)
    shown = tables.beside_published(
        tables.tidy(mine), reference_results.kept_study("03_frequency").table("table3")
    )
    assert list(shown[column].columns) == names
    yours, ours, theirs = (float(shown[column].loc[row, name].split(" ")[0]) for name in names)
    assert yours == pytest.approx(ours + 40, abs=0.011) and theirs == published_value(
        "k2020", "table3", row, column
    )
    user, reference = Study(clone / "yours", is_user=True), Study(clone)
    page = site_pages.user_page(user, reference, [])
    heads = [f'class="xl-{source}">{source}<' for source in ("ours", "reference", "published")]
    assert column in page and all(head in page for head in heads) and "differ" in page


# ---- what `plan` refuses `run` refuses, of every notebook, before a kernel starts

WRONG = [
    (["--scale", "smoke", "-p", "scale=laptop"], "give --scale laptop"),
    (["-p", "seeds=-1"], "seeds=-1"),
    (["-p", "seeds=101"], "seeds=101"),
    (["-p", "corpus=nothing"], "'nothing'"),
    (["-p", "device=tpu"], "device 'tpu' does not exist: choose cpu, cuda or cuda:0"),
    (["-p", "device=cuda:x"], "device 'cuda:x'"),
    (["--scale", "hugh"], "scale 'hugh'"),
    (["--store", "a", "-p", "store=b"], "-p store=b: it has an option of its own"),
]
ONE = [
    ("07", ["-p", "rows=77"], "there is no row '77'"),
    ("07", ["-p", "reading=mine"], "reading='mine'"),
    ("04", ["-p", "only=9"], "there is no '9'"),
    ("02", ["-p", "reading=mine"], "mine"),
    ("17", ["-p", "languages=xx"], "language 'xx'"),
]
CALLS = [*((["06", "07"], *w) for w in WRONG), *(([name], *rest) for name, *rest in ONE)]


@pytest.mark.parametrize("command", ("plan", "run"))
@pytest.mark.parametrize("names, given, says", CALLS, ids=range(len(CALLS)))
def test_plan_and_run_refuse_alike(clone, started, capsys, command, names, given, says):
    assert call(command, *names, *given) == 2
    error = capsys.readouterr().err
    assert (
        says in error
        and len(error.splitlines()) == 1
        and started == []
        and not (clone / "yours").exists()
    )


def test_the_last_notebook_of_a_call_stops_the_first(clone, started, capsys):
    """The first has both languages, and would run for hours before the second is asked."""
    assert call("run", "17", "07", "-p", "languages=hi,es") == 2 and started == []
    assert "the study is of one language and its copy" in capsys.readouterr().err


def test_a_device_that_is_not_here_is_planned_for_and_not_run_on(
    clone, started, capsys, monkeypatch
):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(
        "xlingual_nb.runs.plan.plan", lambda specs, store: pd.DataFrame({"runs": [len(specs)]})
    )
    assert call("plan", "06", "-p", "device=cuda") == 0
    assert call("run", "06", "-p", "device=cuda") == 2 and started == []
    assert "torch finds no GPUs here: choose cpu" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("results/*/verdicts.csv")), ids=lambda p: p.parent.name
)
def test_no_kept_verdict_is_on_a_claim_that_means_nothing_at_its_scale(path):
    meant = {c.id for c in claims() if path.parent.name in c.scales}
    judged = verdicts.read(path)
    assert not set(judged[judged.verdict != verdicts.VERDICTS[-1]].claim) - meant
