"""Notebook 12: a cell for every label that a claim names, runs that are what rows say, means and
floors by hand.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import liu2020_shifts, zero_shot
from xlingual_nb.experiments.wu2019_common import (
    FIGURE,
    pivot_by_language,
    overlap_correlations,
    overlap_columns,
)
from xlingual_nb.experiments.study import unique_runs, observe, entry_value
from xlingual_nb.experiments.word_order import word_order_distance
from xlingual_nb.experiments.zero_shot import (
    DISTANCE,
    TABLES,
    TASKS,
    evaluation_languages,
    list_table_entries,
    zero_shot_config,
    grid,
    fine_tuned_spec,
)
from xlingual_nb.experiments.zero_shot_runs import labelled_task_records, shared_subwords_spec
from xlingual_nb.papers.published import claims, floor_names, published
from xlingual_nb.report import tables, verdicts
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.stages import read_measures
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.baselines import FLOORS
from xlingual_nb.text import tokenizers
from xlingual_nb.text.records import read_records

HERE = list(filter(zero_shot.belongs_here, claims("wu2019")))
LAPTOP = list_table_entries("laptop", seeds=1)
BY_ADDRESS = {(c.table, c.row, c.column): c for c in LAPTOP}
SMALL = zero_shot_config("smoke")


@pytest.mark.parametrize("claim", [c for c in HERE if "laptop" in c.scales], ids=lambda c: c.id)
def test_every_label_that_a_claim_names_is_in_the_grid(claim):
    for test in claim.tests:
        rows = {(row, test.column) for row in test.plus}
        if test.minus != "floor":
            rows |= {(row, test.minus_column or test.column) for row in test.minus}
        if test.minus_column:
            rows |= {(row, test.minus_column) for row in test.plus}
        assert {(test.table, *at) for at in rows} <= BY_ADDRESS.keys()
        # of shares of pieces nobody asks whether they are alive
        for row in test.plus if claim.alive is None else ():
            assert any(
                (test.table, floor, test.column) in BY_ADDRESS
                for floor in floor_names(claim.floor, row)
            ), row


def test_claims_of_all_five_tables_are_judged_here_and_none_of_layers():
    told = {t.table for c in HERE for t in c.tests}
    assert (
        told == {*TABLES, FIGURE}
        and len(HERE) >= 15
        and not any(c.id.startswith(("W-freeze", "W-langid")) for c in HERE)
    )


def test_centred_rows_are_the_same_runs_but_for_the_means():
    """Of the tasks that the sizes name, trained and untrained; all other runs are those of a study
    without.
    """
    made = {(c.table, c.row, c.column): c for c in list_table_entries("smoke")}
    rows = {at: c for at, c in made.items() if "centred" in at[1]}
    assert {table for table, _, _ in rows} == {"table5"} and SMALL.tasks.centred == ("pos",)
    assert {row.split(" | ")[2] for _, row, _ in rows} == {
        row.split(" | ")[2] for _, row, _ in made
    }
    for (table, row, column), cell in rows.items():
        plain = made[table, row.replace(", centred", ""), column]
        assert cell.runs == tuple(replace(r, centred=True) for r in plain.runs)
    asked = [
        list_table_entries(
            "smoke",
            own={
                "study": "liu2020",
                "smoke": {"micro-none": {"like": "smoke.micro", "tasks": {"centred": told}}},
            },
            corpus="micro-none",
        )
        for told in ([], ["nli"])
    ]
    assert not [c for c in asked[0] if "centred" in c.row] and {
        c.table for c in asked[1] if "centred" in c.row
    } == {"table3"}
    assert set(unique_runs(asked[0])) == set(unique_runs(made.values())) - set(
        unique_runs(rows.values())
    )
    with pytest.raises(
        InputError,
        match=r"smoke.micro-odd.tasks.centred has 'names': choose among documents, nli, "
        r"ner, pos, parsing",
    ):
        zero_shot_config(
            "smoke",
            "micro-odd",
            own={
                "study": "liu2020",
                "smoke": {"micro-odd": {"like": "smoke.micro", "tasks": {"centred": ["names"]}}},
            },
        )


def test_settings_of_mbert_that_the_paper_prints_have_rows():
    """The same settings and columns; languages are those of the model."""
    for table in TABLES:
        printed = published("wu2019", table)
        own = printed[~printed.row.str.contains(r"\(20")]
        kinds = {(row.split(" | ")[1], column) for row, column in zip(own.row, own.column)}
        means = {
            (row, column) for row, column in zip(own.row, own.column) if row.startswith("en-xx")
        }
        assert kinds <= {(c.row.split(" | ")[1], c.column) for c in LAPTOP if c.table == table}
        assert means <= {(c.row, c.column) for c in LAPTOP if c.table == table}


def test_a_row_says_what_its_runs_are():
    languages = evaluation_languages(zero_shot_config("laptop"), "pos")
    assert len(languages) == 15
    for cell in (c for c in LAPTOP if c.column != DISTANCE and "overlap" not in c.column):
        first, setting, target = cell.row.split(" | ")
        if "-" not in first:
            setting = first
        if setting in FLOORS:
            assert {r.stage for r in cell.runs} == {"nli_floors"}
            continue
        if setting == "shared pieces":
            (bag,), (zero,) = (
                cell.runs,
                next(
                    c
                    for c in LAPTOP
                    if c.column == cell.column and c.seed == cell.seed and "zero-shot" in c.row
                ).runs,
            )
            assert (bag.vocabulary, bag.train, bag.tests) == (
                zero.checkpoint.tokenizer,
                zero.train,
                zero.tests,
            )
            continue
        assert all(
            (r.checkpoint.training.steps == 0) == setting.startswith("untrained") for r in cell.runs
        )
        assert all(
            r.train.records.part == "train" and r.dev.language == r.train.language
            for r in cell.runs
        )
        seen = setting == "zero-shot, gold POS"
        if cell.table == "table6":
            assert all((r.parser.tags > 0) == seen for r in cell.runs)
        if setting not in ("supervised", "translate-train"):
            (zero,) = cell.runs
            assert (
                zero.train.language == "en" and tuple(t.language for t in zero.tests) == languages
            )
            continue
        learnt = [r.train.language for r in cell.runs]
        assert learnt == [r.tests[0].language for r in cell.runs]
        out = {"mean": {}, "mean -en": {"en"}, "mean -en -zh": {"en", "zh"}}
        assert learnt == (
            [l for l in languages if l not in out[target]] if target in out else [target]
        )


def test_english_taught_in_english_is_the_zero_shot_run():
    for told in TASKS.values():
        column = list(told.columns)[-1]
        own, zero = (
            BY_ADDRESS[told.table, f"en-en | {s} | en", column]
            for s in (told.supervised, "zero-shot")
        )
        assert own.runs == zero.runs


def test_names_are_new_to_who_learnt_them_in_english_alone_and_in_other_languages():
    rows = {c.row.split(" | ", 1)[-1] for c in LAPTOP if c.column == zero_shot.NEW}
    assert {"zero-shot | de", "zero-shot | mean -en", "zero-shot, centred | de", "en | de"} <= rows
    assert not [r for r in rows if "supervised" in r or r.endswith(("| en", "| mean"))]


def test_means_by_hand():
    held = {"accuracy en": 0.9, "accuracy el": 0.5, "accuracy zh": 0.1}
    held |= {"majority en": 0.3, "majority el": 0.2, "majority zh": 0.1}
    found = {c.row: c for c in list_table_entries("smoke", only="5") if c.table == "table5"}

    def number(row, *runs):
        return entry_value(found[row], list(runs))

    zero = [number(f"en-xx | zero-shot | {mean}", held) for mean in zero_shot.MEANS]
    assert zero == pytest.approx([50, 30, 50]) and number("en-el | zero-shot | el", held) == 50
    assert number("majority | en | mean", held) == pytest.approx(20)
    assert number("untrained | en | mean -en", held) == pytest.approx(30)
    el, zh = {"accuracy el": 0.8, "majority el": 0.2}, {"accuracy zh": 0.7, "majority zh": 0.1}
    assert number("en-xx | supervised | mean", held, el, zh) == pytest.approx(80)
    assert number("en-xx | supervised | mean -en", el, zh) == pytest.approx(75)
    assert number("en-zh | supervised | zh", zh) == pytest.approx(70)


def test_records_of_two_languages_differ_in_nothing_but_the_language():
    for task in TASKS:
        said = [labelled_task_records(SMALL, task, l, "train").records for l in ("en", "zh")]
        assert said[1].source == "micro/zh" and replace(said[1], source="micro/en") == said[0]


def test_word_order_by_hand():
    """French: adjective, negation. Turkish: order, adposition, genitive, relative clause, negation,
    a fifth scrambled. Hindi: the first three, a tenth scrambled.
    """
    found = [word_order_distance(l) for l in ("en", "fr", "tr", "hi")]
    assert found == pytest.approx([0, 2 / 8, 5.2 / 8, 3.1 / 8])
    cell = BY_ADDRESS["table6", "en-tr | zero-shot | tr", DISTANCE]
    assert entry_value(cell, []) == pytest.approx(5.2 / 8)


@pytest.fixture(scope="module")
def store(shared_store):
    run(grid("smoke"), shared_store, Inline(), progress=False)
    return shared_store


@pytest.mark.slow  # the first to ask makes a smoke study
def test_a_smoke_run_holds_what_the_cells_draw(store):
    wanted = list_table_entries("smoke")
    found = observe(wanted, store, "micro").set_index(["table", "row", "column"]).value
    assert len(found) == len(wanted) and found.notna().all()
    spec = liu2020_shifts.shift_model_spec(SMALL, 0)
    for task, told in TASKS.items():
        runs = (
            fine_tuned_spec(SMALL, task, spec, "en", evaluation_languages(SMALL, task)),
            fine_tuned_spec(SMALL, task, spec, "el", ("el",)),
        )
        zero, el = (read_measures(store.path(r)) for r in runs)
        for column, name in told.columns.items():
            assert found[told.table, "en-el | zero-shot | el", column] == 100 * zero[f"{name} el"]
            label = told.table, f"en-el | {told.supervised} | el", column
            assert (
                found[label] == 100 * el[f"{name} el"]
                if column != zero_shot.NEW
                else label not in found.index
            )
            assert (
                found[told.table, "en-xx | zero-shot | mean -en -zh", column]
                == 100 * zero[f"{name} el"]
            )


@pytest.mark.slow  # the first to ask makes a smoke study
def test_floors_are_those_of_the_test_records(store):
    found = (
        observe(list_table_entries("smoke"), store, "micro")
        .set_index(["table", "row", "column"])
        .value
    )

    def records(task):
        return read_records(store.path(labelled_task_records(SMALL, task, "el", "test").records))

    def share(values):
        return 100 * max(Counter(values).values()) / len(values)

    tags = [tag for r in records("pos") for tag in r["tags"]]
    assert found["table5", "majority | en | el", "POS ACC"] == pytest.approx(share(tags))
    for task, table, column in (
        ("documents", "table2", "Documents ACC"),
        ("nli", "table3", "NLI ACC"),
    ):
        assert found[table, "majority | en | el", column] == pytest.approx(
            share([r["label"] for r in records(task)])
        )
    for task, told in TASKS.items():
        for column, name in told.columns.items():
            label = told.table, "shared pieces | en | el", column
            if task == "parsing":
                assert label not in found.index
                continue
            zero = fine_tuned_spec(
                SMALL,
                task,
                liu2020_shifts.shift_model_spec(SMALL, 0),
                "en",
                evaluation_languages(SMALL, task),
            )
            assert (
                found[label]
                == 100 * read_measures(store.path(shared_subwords_spec(zero)))[f"{name} el"]
            )
    left = right = count = 0
    for r in records("parsing"):
        for word, (head, tag) in enumerate(zip(r["heads"], r["tags"]), 1):
            if tag in ("PUNCT", "SYM"):
                continue
            count, left = count + 1, left + 100 * (head == word - 1)
            right += 100 * (head == (0 if word == len(r["heads"]) else word + 1))
    assert found["table6", "left branching | en | el", "Parsing UAS"] == pytest.approx(left / count)
    assert found["table6", "right branching | en | el", "Parsing UAS"] == pytest.approx(
        right / count
    )


# --- Figure 3


def test_points_of_figure_3_are_the_tables_own_runs_and_one_cheap_run_a_task():
    """Transfer and its floors are what the tables draw; the seeds of one vocabulary share what was
    counted.
    """
    wanted = list_table_entries("laptop")
    points, rest = ([c for c in wanted if (c.table == FIGURE) == there] for there in (True, False))
    assert {s.stage for s in set(unique_runs(points)) - set(unique_runs(rest))} == {"seen_pieces"}
    assert len({r for c in points for r in c.runs if r.stage == "seen_pieces"}) == len(TASKS)
    at = {(c.table, c.row, c.column, c.seed): (c.runs, c.metric) for c in rest}
    for c in (c for c in points if "overlap" not in c.column):
        assert [(c.runs, c.metric)] == [
            at[key] for key in at if key[1:] == (c.row, c.column, c.seed)
        ]
    assert {c.column for c in points if "overlap" not in c.column} == {
        "Documents ACC",
        "NLI ACC",
        "NER F1",
        "POS ACC",
        "Parsing LAS",
    }
    assert not {c.row.split(" | ")[2] for c in points} & {"en", *zero_shot.MEANS}


@pytest.mark.slow  # the first to ask makes a smoke study
def test_pieces_seen_are_counted_as_the_paper_says(store):
    """By a plain count over the records, piece by piece: V_obs / V_test, and so much of all pieces
    of the test.
    """
    found = (
        observe([c for c in list_table_entries("smoke") if c.table == FIGURE], store, "micro")
        .set_index(["row", "column"])
        .value
    )
    pieces = tokenizers.read_tokenizer(
        store.path(liu2020_shifts.shift_model_spec(SMALL, 0).tokenizer)
    )
    names = {"documents": ("first", "second"), "nli": ("premise", "hypothesis")}
    for task, told in TASKS.items():

        def counted(language, part):
            texts = [
                r[side]
                for r in read_records(
                    store.path(labelled_task_records(SMALL, task, language, part).records)
                )
                for side in names.get(task, ("tokens",))
            ]
            words = [t for text in texts for t in (text if isinstance(text, list) else [text])]
            return Counter(
                piece
                for word in words
                for piece in pieces.encode(word, add_special_tokens=False).tokens
                if piece != "[UNK]"
            )

        english, greek = counted("en", "train"), counted("el", "test")
        shared = {piece for piece in greek if piece in english}
        by_type, by_token = overlap_columns([*told.columns][-1])
        assert found["en-el | zero-shot | el", by_type] == pytest.approx(
            100 * len(shared) / len(greek)
        )
        assert found["en-el | zero-shot | el", by_token] == pytest.approx(
            100 * sum(greek[p] for p in shared) / greek.total()
        )


def study_of_overlap(rng, slope, languages=14):
    """Observations of Figure 3 in which transfer goes with overlap so much, at ten seeds."""
    codes = [l for l in evaluation_languages(zero_shot_config("laptop"), "pos") if l != "en"][
        :languages
    ]
    overlap, made = dict(zip(codes, rng.uniform(10, 60, len(codes)))), []
    for seed in range(10):
        for l, share in overlap.items():
            numbers = {
                "POS ACC": 40 + slope * share + rng.normal(0, 2),
                "POS overlap by type": share,
                "POS overlap by token": share + 10,
            }
            made += [
                (f"en-{l} | zero-shot | {l}", column, seed, number)
                for column, number in numbers.items()
            ]
            made.append((f"untrained | en | {l}", "POS ACC", seed, 20 + rng.normal(0, 1)))
    frame = pd.DataFrame(made, columns=["row", "column", "seed", "value"])
    return frame.assign(
        paper="wu2019",
        table=FIGURE,
        corpus="micro",
        run_id=frame.row + frame.column + frame.seed.astype(str),
        step=np.nan,
    )


def test_correlations_are_scipy_s_over_languages():
    frame = study_of_overlap(np.random.default_rng(0), 0.3)
    tidy = tables.tidy(frame)
    wide, r = pivot_by_language(tidy), overlap_correlations(tidy).set_index("overlap")
    assert len(wide) == 14 and r.languages.tolist() == [14, 14]
    for overlap in ("POS overlap by type", "POS overlap by token"):
        by_scipy = stats.pearsonr(wide[overlap], wide["POS ACC"])
        assert r.loc[overlap, ["r", "from", "to"]].tolist() == pytest.approx(
            [by_scipy.statistic, *by_scipy.confidence_interval()]
        )
    assert overlap_correlations(tidy[tidy.row.str.endswith(("fr", "es", "de"))]).empty, (
        "three languages have no interval"
    )
    assert overlap_correlations(tidy.head(0)).empty


@pytest.mark.parametrize("slope,verdict", [(0.6, "reproduced"), (-0.6, "contradicted")])
def test_the_claim_on_overlap_is_decided_by_its_correlation(slope, verdict):
    (claim,) = [c for c in HERE if c.id == "W-overlap-pos-fifteen"]
    judged = verdicts.verdicts(study_of_overlap(np.random.default_rng(1), slope), "laptop", [claim])
    assert list(judged.verdict) == [verdict]


@pytest.mark.slow  # the first to ask makes a smoke study
def test_the_labels_of_a_training_set_are_the_same_in_every_language(store):
    for task in ("documents", "nli"):

        def labels(l):
            return [
                r["label"]
                for r in read_records(
                    store.path(labelled_task_records(SMALL, task, l, "train").records)
                )
            ]

        assert labels("en") == labels("el") == labels("zh") and len({*labels("en")}) > 1


@pytest.mark.ci
def test_a_laptop_study_takes_an_evening(tmp_path):
    """With the models that notebook 14 shares."""
    told = plan(grid("laptop"), Store(tmp_path))
    assert 0 < told.set_index("stage").loc["all", "hours here"] < 4


def test_every_scale_has_its_grid():
    for scale in ("gpu", "paper"):
        asked = list_table_entries(scale, "micro", seeds=1, only="5,6")
        assert {c.table for c in asked} == {"table5", "table6", FIGURE}
        taught_on = {c.runs[0].checkpoint for c in asked if hasattr(c.runs[0], "checkpoint")}
        assert {encoder.shape.layers for encoder in taught_on} == {6 if scale == "gpu" else 12}


def test_sizes_of_ones_own():
    """A file may say some of it otherwise; what it leaves out is named."""
    rates = {"tasks": {"tuning": {"pos": {"learning_rate": 3e-4}}}}
    own = {"study": "liu2020", "smoke": {"micro-slow": {"like": "smoke.micro"} | rates}}
    sizes = zero_shot_config("smoke", "micro-slow", own=own)
    assert sizes.tasks.tuning["pos"] == replace(SMALL.tasks.tuning["pos"], learning_rate=3e-4)
    (cell, *_) = list_table_entries("smoke", "micro-slow", own=own, only="5")
    assert cell.runs[0].settings.learning_rate == 3e-4 and cell.runs[
        0
    ].train == labelled_task_records(SMALL, "pos", "en", "train")
    for key, parts in (
        ("tuning.nli", {"tuning": {}}),
        ("ner.dev", {"ner": {"train": SMALL.tasks.ner["train"]}}),
    ):
        less = replace(SMALL, tasks=SMALL.tasks._replace(**parts))
        assert key in zero_shot.missing_keys(less) and not zero_shot.missing_keys(SMALL)


def test_what_the_study_refuses(monkeypatch):
    with pytest.raises(InputError, match="does not read 'fr': choose among el, zh"):
        zero_shot_config("smoke", languages="fr")
    with pytest.raises(InputError, match="wants the name 'books' of fr"):
        zero_shot_config("laptop", "fake")
    own = {"study": "liu2020", "smoke": {"real": {"like": "smoke.micro"}}}
    with pytest.raises(InputError, match="smoke.real says nothing of tasks: add `tasks`"):
        zero_shot_config("smoke", "real", own=own)
    with pytest.raises(InputError, match="only='1': there is no '1' here"):
        list_table_entries("smoke", only="1")
    with pytest.raises(InputError, match="seeds=101"):
        list_table_entries("smoke", seeds=101)
    with pytest.raises(InputError, match="corpus 'wiki' does not exist at scale laptop"):
        zero_shot_config("laptop", "wiki")
    assert evaluation_languages(zero_shot_config("laptop", languages="es,hi"), "ner") == (
        "en",
        "es",
        "hi",
    )
    one, all_of_them = (
        liu2020_shifts.shift_model_spec(zero_shot_config("laptop", languages=l), 0)
        for l in ("es", "")
    )
    assert one == all_of_them, "the model reads what it reads"
    monkeypatch.setattr(liu2020_shifts, "study_config", lambda *given: replace(SMALL, tasks=None))
    with pytest.raises(InputError, match="^smoke.micro says nothing of tasks"):
        zero_shot_config("smoke")
    monkeypatch.setattr(
        liu2020_shifts,
        "study_config",
        lambda *given: replace(SMALL, tasks=SMALL.tasks._replace(tuning={})),
    )
    with pytest.raises(InputError, match="^smoke.micro.tasks has no tuning.documents: add it$"):
        zero_shot_config("smoke")
