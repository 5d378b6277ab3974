"""K's Tables 1 to 3: rows, columns and claims are the ledger's, models are shared, what is derived
is what other code finds, and the notebooks show whatever a store has.
"""

import csv
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import matplotlib
import nbformat
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from xlingual_nb.errors import InputError
from fake_store import FakeStore
from in_process import cells_for_parameters
from xlingual_nb.experiments import frequency, k2020_common, ordering, overlap, study
from xlingual_nb.tasks.baselines import FLOORS
from xlingual_nb.runs import plan, store as stores
from xlingual_nb.runs.engine import run
from xlingual_nb.experiments.config import SCALES
from xlingual_nb.experiments.config_files import list_corpora
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store
from xlingual_nb.papers import published as ledger
from xlingual_nb.report import claim_tests, tables

ROOT = Path(__file__).resolve().parents[1]
PAPER, TARGETS = "k2020", ("es", "hi", "ru")
BILINGUAL = {
    (scale, corpus): bilingual_config(scale, corpus)
    for scale in SCALES
    for corpus in list_corpora("k2020", scale)
}
EXPERIMENTS = {"table1": overlap, "table2": ordering, "table3": frequency}


def of_k(module, table):
    return lambda *where, **more: [
        c for c in module.list_table_entries(*where, **more) if (c.paper, c.table) == (PAPER, table)
    ]


CELLS = {table: of_k(module, table) for table, module in EXPERIMENTS.items()}
CLAIMS = [c for c in ledger.claims(PAPER) if {t.table for t in c.tests} <= set(CELLS)]
LARGE = [("laptop", "micro"), ("gpu", "mix"), ("paper", "wiki")]


def printed(table):
    with (files("xlingual_nb.papers") / PAPER / f"{table}.csv").open(encoding="utf-8") as f:
        return [(line["row"], line["column"]) for line in csv.DictReader(f)]


def made_up(cells, value=lambda c: 50.0, named=lambda run: str(hash(run))):
    """Observations of these cells without any run."""
    return pd.DataFrame(
        [
            (PAPER, c.table, c.row, c.column, "micro", c.seed, value(c), named(c.runs[0]))
            for c in cells
        ],
        columns=tables.OBSERVED,
    )


# ---- rows, columns, claims


@pytest.mark.parametrize("scale, corpus", LARGE)
@pytest.mark.parametrize("table", CELLS)
def test_every_published_number_has_ours(table, scale, corpus):
    """The asterisk needs two seeds."""
    found = made_up(CELLS[table](scale, corpus, 2))
    seen = set(
        zip(
            *pd.concat([found, overlap.wordpiece_contributions(found)])[["row", "column"]]
            .to_numpy()
            .T
        )
    )
    assert set(printed(table)) <= seen and set(found.table) == {table}
    assert not found.duplicated(["row", "column", "seed"]).any()


def test_every_claim_is_judged_in_one_notebook():
    for claim in CLAIMS:
        assert len([t for t, module in EXPERIMENTS.items() if module.belongs_here(claim)]) == 1, (
            claim.id
        )
    besides = [
        c
        for c in ledger.claims(PAPER)
        if c not in CLAIMS and any(m.belongs_here(c) for m in EXPERIMENTS.values())
    ]
    assert besides == [
        c for c in ledger.claims(PAPER) if {t.table for t in c.tests} == {ordering.RELEASED_TABLE}
    ] and {c.whose for c in besides} == {"ours"}
    assert len(CLAIMS) == 42 and sum(map(frequency.belongs_here, CLAIMS)) == 13


UNMADE = {*ordering.ONE_LANGUAGE}  # made where they are asked for


def test_one_language_is_permuted_where_a_claim_on_it_is_asked_for():
    found = {
        c.row: c.runs
        for c in ordering.list_table_entries("laptop", "micro", 1, claim="K-order-one")
    }
    for target in ("es", "hi", "ru"):
        for arm, permuted in (("source alone", [True, False]), ("target alone", [False, True])):
            nli = found[f"enfake-{target} | permutation 1.0, {arm} | {target}"][0]
            languages = nli.checkpoint.languages
            assert [bool(language.transforms) for language in languages] == permuted
    assert not any(
        "permutation 1.0, " in c.row for c in ordering.list_table_entries("laptop", "micro", 1)
    )


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.id)
def test_every_row_that_a_claim_names_is_in_the_grid(claim):
    home = next(t for t, module in EXPERIMENTS.items() if module.belongs_here(claim))
    # notebook 03 reads all three
    frame = [
        c for t in (CELLS if home == "table3" else [home]) for c in CELLS[t]("laptop", "micro", 1)
    ]
    seen = {(c.row, c.column) for c in frame}
    for test in claim.tests:
        rows = (*test.plus, *(() if test.minus == "floor" else test.minus), *(claim.alive or ()))
        is_made = {(row, test.column) for row in rows} <= seen
        assert is_made == (claim.id not in UNMADE)
        if not is_made:
            continue
        floors = {
            f
            for row in claim_tests.precondition_rows(claim, test)
            for f in claim_tests.baseline_labels(claim, test, row)
        }
        wanted = {
            f for f in floors if "XNLI" in test.column or f.startswith(("untrained", "never saw"))
        }
        assert wanted and {(row, test.column) for row in wanted} <= seen


def of_a_model(run):
    """What pairs give away without a lexicon is the same for all models."""
    return run.stage != "nli_floors"


@pytest.mark.parametrize("table", CELLS)
def test_every_pair_has_its_floors(table):
    seen = {(c.row, c.column) for c in CELLS[table]("laptop", "micro", 1)}
    pairs = [("enfake", t) for t in (*TARGETS, "en")] + [
        ("en", t) for t in TARGETS if table == "table1"
    ]
    for source, target in pairs:
        assert (f"majority class | {target}", "XNLI Accuracy") in seen
        for name in (*FLOORS, "true lexicon"):
            assert (f"{name} | {source} | {target}", "XNLI Accuracy") in seen
        for floor in ("untrained", "never saw the target"):
            assert {
                (f"{floor} | {source} | {target}", column) for column in k2020_common.COLUMNS
            } <= seen


# ---- models


def test_tables_share_their_runs():
    """The model enfake-es, and its floors, are trained, fine-tuned and measured once."""

    def runs(table, row):
        return {(c.column, c.seed): c.runs for c in CELLS[table]("laptop", "micro") if c.row == row}

    for t in TARGETS:
        one = runs("table1", f"enfake-{t} | enfake | {t}")
        assert (
            one
            == runs("table2", f"enfake-{t} | permutation 0.0 | {t}")
            == runs("table3", f"enfake-{t} | not frequency based | {t}")
            and len(one) == 9
        )
        assert (
            len({run_id(r.checkpoint) for rs in one.values() for r in rs if r.checkpoint.seed == 0})
            == 1
        )
        for floor in ("untrained", "never saw the target"):
            assert (
                len(
                    {
                        json.dumps(
                            sorted(
                                map(
                                    run_id, sum(runs(table, f"{floor} | enfake | {t}").values(), ())
                                )
                            )
                        )
                        for table in CELLS
                    }
                )
                == 1
            )
    assert (
        runs("table1", "en-enfake | enfake | en")
        == runs("table2", "en-enfake | permutation 0.0 | en")
        == runs("table3", "en-enfake | not frequency based | en")
    )


@pytest.mark.parametrize("scale, corpus", LARGE)
def test_what_a_row_changes(scale, corpus):
    models = {
        c.row: c.runs[0].checkpoint
        for list_entries in CELLS.values()
        for c in list_entries(scale, corpus, 1)
        if of_a_model(c.runs[0])
    }
    for t in (*TARGETS, "en"):
        name = "en-enfake" if t == "en" else f"enfake-{t}"
        plain = models[f"{name} | enfake | {t}"]
        assert [l.name for l in plain.languages] == ["enfake", t] and plain.languages[
            0
        ].corpus.transforms == ("cut_words", "unicode_shift")
        for amount, p in (("0.25", "0.25"), ("0.5", "0.5"), ("1.0", "1")):
            languages = models[f"{name} | permutation {amount} | {t}"].languages
            assert [l.transforms for l in languages] == [
                (f"permute({p},0)",),
                (f"permute({p},1)",),
            ], "both languages, with draws of their own"
            assert (
                replace(models[f"{name} | permutation {amount} | {t}"], languages=plain.languages)
                == plain
            )
        drawn = models[f"{name} | frequency based | {t}"]
        assert (
            drawn.languages[1].corpus
            == replace(plain.languages[1].corpus, transforms=("cut_words", "unigram"))
            and replace(drawn, languages=plain.languages) == plain
            and drawn.languages[0] == plain.languages[0]
        )
        if t != "en":
            assert models[f"en-{t} | en | {t}"].languages[1] == plain.languages[1] and models[
                f"en-{t} | en | {t}"
            ].languages[0].corpus == replace(plain.languages[0].corpus, transforms=())
    for share in overlap.SHARES:
        languages = models[f"en-enfake | enfake {share:.0%} shared | en"].languages
        assert (
            languages[0].transforms == (f"enfake({share:g},0)",)
            and languages[1].transforms == ()
            and languages[0].corpus == languages[1].corpus
        )


@pytest.mark.parametrize("table", CELLS)
def test_tasks_and_measures_see_text_in_its_own_order(table):
    for spec in study.unique_runs(CELLS[table]("laptop", "micro", 1)):
        texts = (
            (spec.dev, spec.other)
            if spec.stage == "measure"
            else [
                l.records
                for l in (spec.train, *(spec.tests if spec.stage == "ner" else spec.tests[0]))
            ]
        )
        assert all(set(text.transforms) <= {"cut_words", "unicode_shift"} for text in texts)


def test_other_readings_are_other_runs_in_the_same_rows():
    grids = {
        reading: CELLS["table2"]("laptop", "micro", 1, reading) for reading in ordering.READINGS
    }
    assert len({tuple((c.row, c.column) for c in cells) for cells in grids.values()}) == 1
    moved = {
        reading: {
            c.runs for c in cells if "permutation" in c.row and "permutation 0.0" not in c.row
        }
        for reading, cells in grids.items()
    }
    assert (
        not moved["permute"] & moved["permute_released"]
        and not moved["permute"] & moved["permute_positions"]
        and grids["permute"] != grids["permute_released"]
    )


def test_the_released_reading_is_a_table_of_its_own():
    """It has the rows of Table 2, those without permutation from the same runs; its claims are the
    text's, word for word of their tests.
    """
    ours, text, code = (
        of_k(ordering, ordering.RELEASED_TABLE)("laptop", "micro", 1),
        *(CELLS["table2"]("laptop", "micro", 1, r) for r in ("permute", "permute_released")),
    )
    assert [replace(c, table="table2") for c in ours] == code
    same = [c for c in ours if "permutation" not in c.row or "permutation 0.0" in c.row]
    assert [replace(c, table="table2") for c in same] == [
        c for c in text if "permutation" not in c.row or "permutation 0.0" in c.row
    ]
    known = {c.id: c for c in ledger.claims(PAPER)}
    for claim in (
        c for c in known.values() if ordering.RELEASED_TABLE in {t.table for t in c.tests}
    ):
        theirs = known.get(claim.id.replace("-released", "")) or known["K-order-amount"]

        def told(c):
            return [(t.plus, t.minus, t.test, t.margin) for t in c.tests]

        assert told(claim) == told(theirs) and claim.scales == theirs.scales
    for more in (dict(reading="permute_released"), dict(languages="es")):
        assert not of_k(ordering, ordering.RELEASED_TABLE)("laptop", "micro", 1, **more)


@pytest.mark.parametrize("scale", ["smoke", "laptop"])
@pytest.mark.parametrize("table", CELLS)
def test_the_bible_has_english_and_its_copies_only(table, scale):
    frame = CELLS[table](scale, "bible")
    assert frame and {
        l.name
        for spec in study.unique_runs(frame)
        if of_a_model(spec)
        for l in spec.checkpoint.languages
    } == {"en", "enfake"}
    assert not [c.row for c in frame if any(f" {t}" in c.row or f"-{t}" in c.row for t in TARGETS)]


@pytest.mark.parametrize("scale, corpus", BILINGUAL)
def test_seeds(scale, corpus):
    for list_entries in CELLS.values():
        assert {c.seed for c in list_entries(scale, corpus)} == set(
            range(BILINGUAL[scale, corpus].seeds[0])
        ) and {c.seed for c in list_entries(scale, corpus, 2)} == {0, 1}
        assert all(
            r.checkpoint.seed == c.seed
            for c in list_entries(scale, corpus)
            for r in c.runs
            if of_a_model(r)
        )


@pytest.mark.parametrize("grid", [overlap.grid, ordering.grid, frequency.grid])
@pytest.mark.parametrize(
    "given, says",
    [
        (dict(scale="big"), "'big'"),
        (dict(corpus="wiki"), "micro or bible"),
        (dict(seeds=101), "seeds=101"),
        (dict(seeds=-1), "seeds=-1"),
    ],
)
def test_wrong_parameters_are_one_line(grid, given, says):
    with pytest.raises(InputError, match=says) as caught:
        grid(**{"scale": "smoke"} | given)
    assert "\n" not in str(caught.value)


def test_a_wrong_reading_is_one_line():
    with pytest.raises(InputError, match="reading='sorted'.*permute_released") as caught:
        ordering.grid("smoke", reading="sorted")
    assert "\n" not in str(caught.value)


# ---- what is derived


def test_contributions_and_asterisks_are_those_of_other_code():
    rng, cells = np.random.default_rng(0), overlap.list_table_entries("laptop", "micro")
    frame = made_up(cells, lambda c: 50 + 8 * ("en-ru" in c.row) + rng.normal())
    value = frame.set_index(["row", "column", "seed"]).value.sort_index()
    found = overlap.wordpiece_contributions(frame).set_index(["row", "column", "seed"]).value
    for one, two in overlap.contribution_pairs(("es", "hi", "ru")):
        for seed in range(3):
            assert found[one, overlap.GAIN, seed] == pytest.approx(
                value[one, "XNLI Accuracy", seed] - value[two, "XNLI Accuracy", seed]
            )
        arms = [value[row, "NER F1-Score"] for row in (one, two)]
        # one model, tested in both languages
        if one.startswith("en-enfake"):
            p = stats.ttest_rel(*arms, alternative="greater").pvalue
        else:
            p = stats.ttest_ind(*arms, equal_var=False, alternative="greater").pvalue
        assert found[one, overlap.MARK, 0] == (p < 0.05)
    assert (
        len(found) == 4 * (3 + 1)
        and found["en-ru | en | ru", overlap.MARK, 0] == 1
        and found[:, overlap.MARK].min() == 0
    )
    assert set(overlap.wordpiece_contributions(frame[frame.seed == 0]).column) == {overlap.GAIN}, (
        "one seed bears no asterisk"
    )
    assert set(overlap.wordpiece_contributions(frame[frame.column != "XNLI Accuracy"]).column) == {
        overlap.MARK
    }
    assert (
        overlap.wordpiece_contributions(frame[frame.row.str.startswith("en-es")]).empty
        and overlap.wordpiece_contributions(frame.head(0)).empty
    )


def test_order_left_is_counted_by_hand():
    """Pieces that are their old places, permuted as pretraining does it."""
    from xlingual_nb.text import transforms
    from xlingual_nb.text.tokenizers import Encoded

    lengths = [2, 7, 4]
    starts = np.r_[0, np.cumsum(lengths)]
    for reading in ordering.READINGS:
        moved = transforms.apply_transforms(
            (f"{reading}(0.5,3)",),
            Encoded(np.concatenate([np.arange(n) for n in lengths]).astype(np.int32), starts),
            0,
        ).ids
        pairs, neighbours = [], []
        for a, b in zip(starts, starts[1:]):
            said = moved[a:b].tolist()
            kept = {(i, j): said.index(i) < said.index(j) for j in range(b - a) for i in range(j)}
            pairs.append(np.mean(list(kept.values())))
            neighbours.append(np.mean([kept[i, i + 1] for i in range(b - a - 1)]))
        assert ordering.preserved_order(lengths, 0.5, reading, 3) == pytest.approx(
            (np.mean(neighbours), np.mean(pairs))
        )


def test_the_stated_permutation_leaves_no_order_at_a_quarter_and_the_released_one_does():
    left = {
        (reading, p): np.array(ordering.preserved_order([20] * 300, p, reading))
        for reading in ordering.READINGS
        for p in (0, 0.25, 0.5, 1)
    }
    for reading in ordering.READINGS:
        assert left[reading, 0].tolist() == [1, 1]
    for p in (0.25, 0.5, 1):
        assert (abs(left["permute", p] - 0.5) < 0.03).all()
    for reading in ("permute_released", "permute_positions"):
        assert (
            (left[reading, 0.25] > left[reading, 0.5] + 0.05).all()
            and (left[reading, 0.5] > left[reading, 1] + 0.05).all()
            and (left[reading, 0.25] > 0.65).all()
        )


def test_pieces_in_common(tmp_path):
    store, sizes = Store(tmp_path / "runs"), k2020_common.load_study_config("smoke", "micro", 0)
    models = {
        share: k2020_common.bbert_spec_with_overlap(sizes, share, 0) for share in (0, 0.5, 1)
    } | {
        "shifted": k2020_common.bbert_spec(sizes, ("enfake", "en"), 0),
        "natural": k2020_common.bbert_spec(sizes, ("en", "es"), 0),
    }
    assert overlap.subword_overlap(models[0], store) is None
    run(
        [t for m in models.values() for t in (m.tokenizer, *(l.corpus for l in m.languages))],
        store,
        progress=False,
    )
    common = {name: overlap.subword_overlap(m, store)["types"] for name, m in models.items()}
    # half of either's types: a third of both
    assert (
        common[0] == common["shifted"] == 0
        and common[1] == 1
        and 0.2 < common[0.5] < 0.5
        and 0.1 < common["natural"] < 0.9
    )


def test_shifted_punctuation_is_cut_otherwise_unless_it_stands_apart(tmp_path):
    from xlingual_nb.text.sources import CorpusSpec
    from xlingual_nb.models.pretraining import Language
    from xlingual_nb.text.vocabularies import TokenizerSpec

    store, shifted = (
        Store(tmp_path / "runs"),
        k2020_common.bbert_spec(
            k2020_common.load_study_config("smoke", "micro", 0), ("enfake", "en"), 0
        ),
    )
    said = [
        "a cat sat, and a cat ran",
        "a cat sat",
        "and a cat ran, a cat sat",
        "a cat , a cat",
    ] * 3

    def reads(name, lines):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
        plain = CorpusSpec(f"file:{tmp_path / name}")
        fake = replace(plain, transforms=("unicode_shift",))
        return replace(
            shifted,
            languages=(Language("enfake", fake), Language("en", plain)),
            tokenizer=TokenizerSpec(plain, 30, "words", (fake,)),
        )

    glued, apart = (
        reads("glued.txt", said),
        reads("apart.txt", [s.replace(",", " ,") for s in said]),
    )
    assert overlap.same_length_share(glued, store) is None
    run(
        [t for m in (glued, apart) for t in (m.tokenizer, *(l.corpus for l in m.languages))],
        store,
        progress=False,
    )
    assert (
        overlap.same_length_share(apart, store) == 1
        and overlap.same_length_share(glued, store) == 0.5
    ), "a comma is one word more in English"


def test_floors_and_what_is_missing():
    cells = frequency.list_table_entries("laptop", "micro")
    frame = tables.tidy(made_up(cells, lambda c: len(c.row)))
    assert k2020_common.strongest_baseline(frame, "enfake", "es", "NER F1-Score") == len(
        "never saw the target | enfake | es"
    )
    assert np.isnan(k2020_common.strongest_baseline(frame, "en", "es", "NER F1-Score"))

    class Some:
        def has(self, spec):
            return spec.stage != "nli" and not (spec.stage == "ner" and spec.checkpoint.seed == 2)

    seen = made_up([c for c in cells if study.is_complete(c, Some())], lambda c: 1.0, run_id)
    missing = study.missing_seeds(cells, seen)
    assert (
        missing.loc["enfake-hi | frequency based | hi"].to_dict()
        == {"XNLI Accuracy": "0 of 3", "NER F1-Score": "2 of 3"}
        and missing.loc["majority class | es", "NER F1-Score"] == ""
    )


def test_a_floor_without_a_lexicon_counts_as_a_floor():
    known = pd.DataFrame(
        [
            ("untrained | enfake | es", 40.0),
            ("set differences | enfake | es", 44.0),
            ("true lexicon | enfake | es", 93.0),
            ("set differences | enfake | hi", 60.0),
        ],
        columns=["row", "value"],
    )
    assert (
        k2020_common.strongest_baseline(
            known.assign(column="XNLI Accuracy"), "enfake", "es", "XNLI Accuracy"
        )
        == 44
    )


# ---- the notebooks show what there is


def partial_store(folder, kinds, share):
    """What stands for `Store` in a notebook: some made-up values of K's runs, and nothing else."""

    def number(spec):
        return int(run_id(spec)[:8], 16)

    def has(spec):
        return (
            spec.stage in kinds
            and (spec.stage != "measure" or bool(spec.pair))
            and number(spec) % 100 < 100 * share
        )

    def holds(spec):
        draw = np.random.default_rng(number(spec)).uniform
        if spec.stage == "measure":
            return {"rho_upper": draw(), "perplexity_train": 5 + draw()}
        if spec.stage == "order":
            return {"root": draw(), "f1": draw(), "gold": {"root": draw()}}
        if spec.stage == "pos":
            return {"accuracy": {t.language: draw() for t in spec.tests}}
        if spec.stage == "ner":
            return {"f1": {t.language: draw() for t in spec.tests}}
        keys = [f"{a.language}|{b.language}" for a, b in spec.tests]
        if spec.stage == "nli_floors":
            return {name: {k: draw() / 2 for k in keys} for name in (*FLOORS, "true lexicon")}
        return {"accuracy": {k: draw() for k in keys}, "majority": dict.fromkeys(keys, 1 / 3)}

    return lambda *args, **kw: FakeStore(folder, holds, has)


def executed(name, monkeypatch, tmp_path, store, **given):
    """The names that are there when the cells of a notebook have run in this process."""
    matplotlib.use("agg")
    monkeypatch.setattr(stores, "Store", store)
    monkeypatch.setattr(
        plan, "plan", lambda *a, **k: pd.DataFrame({"FLOPs": [0.0], "hours": [0.0]})
    )
    names = {}
    cells = nbformat.read(ROOT / "nbs" / f"{name}.ipynb", 4).cells
    for place, source in sorted(cells_for_parameters(cells).items()):
        exec(compile(source, name, "exec"), names)
        if "parameters" in cells[place].metadata.get("tags", []):
            names.update(
                make_missing=False,
                results=str(tmp_path),
                figures=str(tmp_path),
                store=str(tmp_path / "none"),
                **given,
            )
    return names


NOTEBOOKS = {
    "01_overlap": {"table1", "shares"},
    "02_ordering": {"table2", "table4"},
    "03_frequency": {"table3"},
}


@pytest.mark.parametrize(
    "name", ["01_overlap", *(pytest.param(n, marks=pytest.mark.ci) for n in list(NOTEBOOKS)[1:])]
)
@pytest.mark.parametrize(
    "kinds, share",
    [((), 1), (("measure", "ner", "order", "pos"), 0.6)],
    ids=["nothing", "some, no NLI"],
)
def test_a_notebook_shows_what_the_store_has(name, kinds, share, monkeypatch, tmp_path):
    names = executed(
        name,
        monkeypatch,
        tmp_path,
        partial_store(tmp_path / "told", kinds, share),
        scale="laptop",
        corpus="micro",
    )
    observations, judged = names["observations"], names["study_run"].judged
    pictures = {p.name.split("-")[1] for p in tmp_path.glob("*.png")} - {"readings"}
    if kinds:
        assert (
            0 < len(observations) < len(names["study_run"].entries)
            and not observations.column.str.startswith("XNLI").any()
        )
        assert pictures == NOTEBOOKS[name]
        assert (tables.read(next(tmp_path.rglob("table?.csv"))).n_seeds > 0).all() and (
            judged.verdict[judged.claim.str.contains("retrieval")] != ""
        ).all()
    else:
        assert observations.empty and not pictures and not list(tmp_path.rglob("*.csv"))
    assert set(
        judged.verdict[~judged.claim.str.contains("ner|retrieval|share|enfake|pos|aligned")]
    ) == {"not tested"}
