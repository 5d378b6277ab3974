"""Dufter & Schütze's laboratory: rows, switches, sizes and seeds are the paper's; the grid of scale
`paper` trains.
"""

import csv
import json
import math
import shutil
from dataclasses import replace
from importlib.resources import files

import pytest
import torch

from xlingual_nb.errors import InputError
from xlingual_nb.experiments.laboratory import (
    COLUMNS,
    PAPER as NAME,
    SEEDS,
    list_table_entries,
    select_rows,
    grid,
    row_spec,
    parse_row_label,
    row_entries,
    table_rows,
)
from xlingual_nb.runs.engine import run
from xlingual_nb.experiments.config import SCALES
from xlingual_nb.experiments.scales import laboratory_config, laboratory_text
from xlingual_nb.experiments.study import observe
from xlingual_nb.measures.multilinguality import MeasureSpec
from xlingual_nb.models.pretraining import PretrainSpec, language_views
from xlingual_nb.runs.store import Store
from xlingual_nb.models import training as loop
from xlingual_nb.models.configs import MASKING, Masking, Shape
from xlingual_nb.papers.published import ambiguities
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

torch.set_num_threads(1)
TABLES = "table1", "table2", "table10"

# Written down from the paper (sections 2.3, 2.4 and 3.3, Tables 1, 2 and 10): lang-pos,
# shift-special, no-random, inv-order, halves, large, epochs
PAPER = {
    "0 original": (0, 0, 0, 0, 0, 0, 100),
    "1 lang-pos": (1, 0, 0, 0, 0, 0, 100),
    "2 shift-special": (0, 1, 0, 0, 0, 0, 100),
    "3 inv-order": (0, 0, 0, 1, 0, 0, 100),
    "4 no-random": (0, 0, 1, 0, 0, 0, 100),
    "5 lang-pos;shift-special": (1, 1, 0, 0, 0, 0, 100),
    "6 lang-pos;no-random": (1, 0, 1, 0, 0, 0, 100),
    "7 shift-special;no-random": (0, 1, 1, 0, 0, 0, 100),
    "8 lang-pos;shift-special;no-random": (1, 1, 1, 0, 0, 0, 100),
    "9 lang-pos;inv-order;shift-special;no-random": (1, 1, 1, 1, 0, 0, 100),
    "15 overparam": (0, 0, 0, 0, 0, 1, 100),
    "16 lang-pos;overparam": (1, 0, 0, 0, 0, 1, 100),
    "17 lang-pos;shift-special;no-random;overparam": (1, 1, 1, 0, 0, 1, 100),
    "18 untrained": (0, 0, 0, 0, 0, 0, 0),
    "19 untrained;lang-pos": (1, 0, 0, 0, 0, 0, 0),
    "21 no-parallel": (0, 0, 0, 0, 1, 0, 200),
    "21b lang-pos;no-parallel": (1, 0, 0, 0, 1, 0, 200),
    "0 original (100 epochs)": (0, 0, 0, 0, 0, 0, 100),
    "17 lang-pos;shift-special;no-random;overparam (100 epochs)": (1, 1, 1, 0, 0, 1, 100),
    "17 lang-pos;shift-special;no-random;overparam (250 epochs)": (1, 1, 1, 0, 0, 1, 250),
}
EVERY = pytest.mark.parametrize(
    "scale, corpus", [(scale, corpus) for scale in SCALES for corpus in ("micro", "bible")]
)


def rows_in_the_ledger(table):
    with (files("xlingual_nb.papers") / "dufter2020" / f"{table}.csv").open(encoding="utf-8") as f:
        return {line["row"] for line in csv.DictReader(f)}


def measure(cell):
    """The one run that a cell is drawn from."""
    (run,) = cell.runs
    return run


# ---- rows


@pytest.mark.parametrize(
    "row, says",
    (
        ("3 inv-ordr", "row '3 inv-ordr': 'inv-ordr' is not known: did you mean inv-order?"),
        ("8 lang_pos;shift-special", "'lang_pos' is not known: did you mean lang-pos?"),
        ("inv-order", "row 'inv-order': write it as '3 inv-order'"),
    ),
)
def test_a_misspelt_row_is_no_row(row, says):
    with pytest.raises(InputError) as caught:
        row_spec(row, laboratory_config("smoke", "micro"), 0)
    assert says in str(caught.value)


@EVERY
def test_rows_are_those_of_the_published_tables(scale, corpus):
    found = list_table_entries(scale, corpus)
    for table in TABLES:
        assert {c.row for c in found if c.table == table} == rows_in_the_ledger(table) - {
            "30 knn-replace"
        }
        assert len(table_rows(table)) == len(set(table_rows(table)))
    assert rows_in_the_ledger("table1") | rows_in_the_ledger("table2") | rows_in_the_ledger(
        "table10"
    ) == set(PAPER) | {"30 knn-replace"}
    assert {c.table for c in found} - {"table1-matched", "table2-matched"} == {
        *TABLES,
        "figure5",
        "figure6",
    }
    assert len({(c.table, c.row, c.column, c.seed, measure(c).percent) for c in found}) == len(
        found
    )


@EVERY
@pytest.mark.parametrize("row", PAPER)
def test_a_row_is_its_switches(row, scale, corpus):
    """D sections 2.3 and 2.4 for every row; sizes and lengths are the scale's, their proportions
    the paper's.
    """
    sizes, (lang_pos, shift_special, no_random, inverted, halves, large, epochs) = (
        laboratory_config(scale, corpus),
        PAPER[row],
    )
    spec, size = row_spec(row, sizes, 42), 1000
    assert (spec.lang_pos, spec.shift_special, spec.seed) == (
        bool(lang_pos),
        bool(shift_special),
        42,
    )
    assert spec.shape == (sizes.large if large else sizes.small) and sizes.large != sizes.small
    usual = sizes.large_training if large else sizes.training
    assert spec.training == replace(usual, epochs=usual.epochs * epochs // 100)
    split = MASKING[spec.masking]
    assert (split.mask, split.keep, split.random, split.rate) == (
        (0.8, 0.2, 0.0, 0.15) if no_random else (0.8, 0.1, 0.1, 0.15)
    ), "section 2.3"
    english, fake = spec.languages
    train, _, vocabulary = laboratory_text(sizes)
    assert (
        english.corpus == fake.corpus == spec.tokenizer.corpus == train
        and spec.tokenizer == vocabulary
    )
    assert set(english.transforms) == ({"half(0)"} if halves else set())
    assert set(fake.transforms) == {"enfake"} | ({"half(1)"} if halves else set()) | (
        {"inv_order"} if inverted else set()
    )
    places = sizes.small.max_tokens if not large else sizes.large.max_tokens
    for view, second in zip(language_views(spec, size), (0, 1)):  # Figures 2 and 3
        assert (view.token_offset, view.special_offset) == (
            size * second,
            size * second * shift_special,
        )
        assert (view.position_offset, view.token_type) == (
            places * second * lang_pos,
            second * lang_pos,
        )
        assert view.inverted == bool(second and inverted)


@EVERY
def test_a_row_in_two_tables_is_one_run(scale, corpus):
    found = list_table_entries(scale, corpus)

    def runs(table, row):
        return {c.seed: measure(c) for c in found if c.table == table and c.row == row}

    original = runs("table1", "0 original")
    assert (
        original == runs("table2", "0 original") == runs("table10", "0 original (100 epochs)") != {}
    )
    assert runs("table1", "17 lang-pos;shift-special;no-random;overparam") == runs(
        "table10", "17 lang-pos;shift-special;no-random;overparam (100 epochs)"
    )
    specs = grid(scale, corpus)
    assert len(specs) == len(set(specs)) == len(set(map(measure, found)))
    assert sum(s.checkpoint == original[0].checkpoint for s in specs) == 1 + len(
        laboratory_config(scale, corpus).snapshots
    )
    longer = runs("table10", "17 lang-pos;shift-special;no-random;overparam (250 epochs)")
    assert all(
        longer[s].checkpoint.training.epochs == 2.5 * original[s].checkpoint.training.epochs
        for s in longer
    ), "proportions as published"


def test_rows_that_fit_worse_train_longer_in_a_table_of_their_own(tmp_path):
    def told(longer, rows="0,8,17"):
        (tmp_path / "mine.toml").write_text(
            f'study = "dufter2020"\n[smoke.mine]\nlike = "smoke.micro"\nlonger = {longer}\n'
        )
        return list_table_entries("smoke", rows=rows, own=tmp_path / "mine.toml")

    def epochs(found, table):
        return {
            c.row.split()[0]: measure(c).checkpoint.training.epochs
            for c in found
            if c.table == table
        }

    found = told("{ 8 = 1.5 }")
    assert epochs(found, "table1") == {"0": 2, "8": 2, "17": 2} and epochs(
        found, "table1-matched"
    ) == {"0": 2, "8": 3}
    assert {c.table for c in found if c.column == "Steps"} == {
        "table1-matched",
        "table2-matched",
    } and all(c.metric == "step" for c in found if c.column == "Steps")
    assert {c.table for c in list_table_entries("smoke", "micro")} == {
        "table1",
        "table2",
        "table10",
        "figure5",
        "figure6",
    }, "only where rows train for longer"
    with pytest.raises(InputError, match="longer='8,99': there is no row '99'; choose"):
        told("{ 8 = 1.5, 99 = 2 }")


@EVERY
def test_rows_of_one_table_are_distinct_models(scale, corpus):
    for table in TABLES:
        checkpoints = [
            measure(c).checkpoint
            for c in list_table_entries(scale, corpus, seeds=1)
            if c.table == table and c.column == "µ"
        ]
        assert len(set(checkpoints)) == len(checkpoints) == len(table_rows(table))


def test_figures_are_measured_on_rows_of_the_tables():
    found = list_table_entries("paper", "bible")
    table1 = {(c.row, c.seed): measure(c) for c in found if c.table == "table1"}
    figure5, figure6 = ([c for c in found if c.table == t] for t in ("figure5", "figure6"))
    assert all(measure(c) == table1[c.row, c.seed] for c in figure5) and {
        parse_row_label(c.row)[0] for c in figure5
    } == {"1", "9"}
    assert all(measure(c).checkpoint == table1[c.row, c.seed].checkpoint for c in figure6) and {
        parse_row_label(c.row)[0] for c in figure6
    } == {"0", "15"}
    for row in ("0 original", "15 overparam"):
        points = [
            measure(c).percent for c in figure6 if c.row == row and c.seed == 0 and c.column == "µ"
        ]
        assert points[-1] is None and points[0] == 0 and points[:-1] == sorted(set(points[:-1]))
        assert set(points[:-1]) <= set(table1[row, 0].checkpoint.snapshots)


# ---- sizes and seeds of the paper


def test_paper_scale_is_table_9():
    """Section 2.1 (text, vocabulary, encoder, schedule) and Table 9 (all numbers)."""
    sizes = laboratory_config("paper", "bible")
    # "Hidden size 64; 768 for large models", "Intermediate layer size 256; 3072", "attention heads
    # 1; 12", "Maximum input length after tokenization 128"; layers of BERT-Base: 12
    assert sizes.small == Shape(layers=12, hidden=64, heads=1, intermediate=256, max_tokens=128)
    assert sizes.large == Shape(layers=12, hidden=768, heads=12, intermediate=3072, max_tokens=128)
    # "Learning rate 2e-3; 1e-4 for large models", "Weight decay 0.01", "Adam epsilon 1e-6", "epochs
    # 100 unless indicated otherwise", "warmup steps 50", "Batch size 256 for pretraining (for
    # BERT-Base models 16 with 16 gradient accumulation steps)"
    table9 = dict(epochs=100, batch=256, warmup=50, weight_decay=0.01, epsilon=1e-6)
    for training, rate in ((sizes.training, 2e-3), (sizes.large_training, 1e-4)):
        assert {
            k: getattr(training, k) for k in table9
        } == table9 and training.learning_rate == rate
        assert training.dropout == 0.1 and training.precision == "float32", (
            "BERT's, since D mostly use 'the original training parameters'"
        )
    # "Vocabulary size 4096": 2048 of the tokenizer, twice
    text, held, vocabulary = laboratory_text(sizes)
    assert vocabulary.size == 2048 and vocabulary.kind == "wordpiece" and vocabulary.corpus == text
    # all of a plain-English New Testament; "the first 10k sentences of the Old Testament of the
    # English King James Bible"
    train, dev = dict(text.parameters), dict(held.parameters)
    assert (
        text.source.startswith("bible/en") and train["books"] == "NT" and "sentences" not in train
    )
    assert held.source == "bible/en-kjv" and dev["books"] == "OT" and dev["sentences"] == 10000
    assert {"max_words", "min_words"}.isdisjoint(train | dev) and sizes.measured == 0, (
        "nothing is left out"
    )
    assert sizes.seeds == (5, 5, 5), "section 2.1: 'each experiment with five different seeds'"


def test_paper_scale_on_the_microworld_is_as_large():
    real, made = laboratory_config("paper", "bible"), laboratory_config("paper", "micro")
    assert all(
        getattr(real, f) == getattr(made, f)
        for f in (
            "small",
            "large",
            "training",
            "large_training",
            "seeds",
            "measured",
            "snapshots",
            "stack",
        )
    )
    text, held, vocabulary = laboratory_text(made)
    train, dev = dict(text.parameters), dict(held.parameters)
    assert (train["sentences"], dev["sentences"], train["vocabulary"], vocabulary.size) == (
        17000,
        10000,
        2048,
        2053,
    ), "section 2.1: 17k sentences"


def test_seeds_are_those_of_table_9():
    """'Random Seeds 0, 42, 43, 100, 101'"""
    assert SEEDS[:5] == (0, 42, 43, 100, 101) and len(set(SEEDS)) == len(SEEDS)
    found = list_table_entries("paper", "bible")
    for table in TABLES:
        for row in table_rows(table):
            assert [c.seed for c in found if (c.table, c.row, c.column) == (table, row, "µ")] == [
                0,
                42,
                43,
                100,
                101,
            ]
    assert all(measure(c).checkpoint.seed == c.seed for c in found)
    for n in (1, 3, 10):
        assert {c.seed for c in list_table_entries("smoke", "micro", seeds=n)} == set(SEEDS[:n])


def test_a_laptop_gives_its_seeds_to_the_rows_that_claims_rest_on():
    """At least three on real text for rows 0, 1, 2, 3, 4, 8 and 21."""
    found = list_table_entries("laptop", "bible")
    for ident in ("0", "1", "2", "3", "4", "8", "21"):
        assert (
            len(
                {
                    c.seed
                    for c in found
                    if c.table != "table10" and parse_row_label(c.row)[0] == ident
                }
            )
            >= 3
        )
    assert {parse_row_label(c.row)[0] for c in found} == {parse_row_label(r)[0] for r in PAPER}


# ---- the other reading


def test_the_released_codes_reading():
    """The switches that the ledger of ambiguities names, and nothing else."""
    for row, (_, _, no_random, *_, epochs) in PAPER.items():
        sizes = laboratory_config("paper", "bible")
        text, code = row_spec(row, sizes, 0), row_spec(row, sizes, 0, "released")
        assert code.visible_padding and code.training.early_epsilon and code.training.still_pad
        if no_random:
            assert MASKING[code.masking] == Masking(0.9, 0.1, 0.0)
        code = replace(
            code,
            visible_padding=False,
            training=replace(code.training, early_epsilon=False, still_pad=False),
        )
        if epochs == 0:
            assert code.training.epochs == 1 and code.tokenizer == text.tokenizer
            assert all(dict(l.corpus.parameters)["sentences"] == 2 for l in code.languages)
            assert replace(code, languages=text.languages, training=text.training) == text
        else:
            assert replace(code, masking=text.masking) == text and (no_random or code == text)
    assert {measure(c).words for c in list_table_entries("smoke", "micro", reading="released")} == {
        "all"
    }
    assert {measure(c).words for c in list_table_entries("smoke", "micro")} == {"content"}


def test_train_perplexity_of_halves_is_what_the_ledger_says():
    (told,) = [a for a in ambiguities("dufter2020") if a.id == "D-no-parallel-train-perplexity"]
    chosen = (
        "seen" if told.chosen.startswith("The text that each language was trained on") else "whole"
    )
    assert {measure(c).train_text for c in list_table_entries("smoke", "micro", rows="21,21b")} == {
        chosen
    }


# ---- wrong parameters


@pytest.mark.parametrize(
    "wrong, match",
    (
        (dict(scale="huge"), "scale 'huge' does not exist: choose from smoke, laptop, gpu, paper"),
        (dict(scale=""), "scale ''"),
        (
            dict(corpus="wiki"),
            "corpus 'wiki' does not exist at scale smoke: choose auto, micro or bible",
        ),
        (dict(corpus=""), "corpus ''"),
        (dict(seeds=-1), "seeds=-1: choose 0"),
        (dict(seeds=101), "seeds=101: .* to 100"),
        (dict(reading="paperish"), "reading='paperish' does not exist: choose paper or released"),
        (dict(rows="30"), "no row '30'; choose all, small"),
        (dict(rows="0,99"), "no row '99'"),
        (dict(rows=""), "no row ''"),
        (dict(rows="0,,8"), "no row ''"),
        (dict(rows="original"), "no row 'original'"),
        (dict(rows="large"), "no row 'large'"),
    ),
    ids=str,
)
def test_a_wrong_parameter_is_one_line_that_says_what_there_is(wrong, match):
    for call in (list_table_entries, grid):
        with pytest.raises(InputError, match=match) as caught:
            call(**(dict(scale="smoke", corpus="micro") | wrong))
        assert "\n" not in str(caught.value)


def test_rows_are_chosen_by_identifier():
    assert select_rows("all") == {parse_row_label(r)[0] for r in PAPER} and select_rows(
        "small"
    ) == select_rows("all") - {"15", "16", "17"}
    assert {
        parse_row_label(c.row)[0] for c in list_table_entries("smoke", "micro", rows=" 0, 21b ,8")
    } == {
        "0",
        "21b",
        "8",
    }
    assert all(
        s.checkpoint.shape == laboratory_config("paper", "bible").small
        for s in grid("paper", "bible", rows="small")
    )
    assert set(grid("smoke", "micro", rows="small")) < set(grid("smoke", "micro"))


# ---- the grid of scale `paper` trains

TEXT = CorpusSpec("micro/en", parameters=(("sentences", 24), ("vocabulary", 96)))
SLICE = (
    TEXT,
    CorpusSpec("micro/en", "dev", (("sentences", 12), ("vocabulary", 96))),
    TokenizerSpec(TEXT, 101, "words"),
)


def shortened(spec: PretrainSpec) -> PretrainSpec:
    """The same model on 24 sentences: a step for every hundred epochs on the whole text (for every
    hundred on half of it as well), the first at the full rate.
    """
    train, _, tokenizer = SLICE
    training = replace(spec.training, epochs=spec.training.epochs // 100, batch=48, warmup=0)
    return replace(
        spec,
        languages=tuple(replace(l, corpus=train) for l in spec.languages),
        tokenizer=tokenizer,
        training=training,
        snapshots=(),
    )


def ignorance(folder):
    """The loss of a model that knows nothing: the logarithm of its vocabulary."""
    return math.log(json.loads((folder / "config.json").read_text())["vocab_size"])


def test_all_small_rows_of_the_paper_train_as_stacks(tmp_path, monkeypatch):
    """Real shapes, a tiny text, seed 0: ten trained rows are one stack, two untrained and two
    halved ones as well.
    """
    store, stacks, usual = Store(tmp_path / "runs"), [], loop.pretrain

    def noted(jobs, *args, **kw):
        stacks.append((len(jobs), loop.total_steps(jobs[0], args[1])))
        usual(jobs, *args, **kw)

    monkeypatch.setattr(loop, "pretrain", noted)
    rows = {
        c.row: shortened(measure(c).checkpoint)
        for c in list_table_entries("paper", "micro", seeds=1, rows="small")
        if c.table in ("table1", "table2")
    }
    run(list(rows.values()), store, stack=laboratory_config("paper", "micro").stack, progress=False)
    assert len(rows) == 14 and sorted(stacks) == [(2, 0), (2, 2), (10, 1)]
    for row, spec in rows.items():
        log = loop.read_log(store.path(spec))
        assert [l["step"] for l in log] == (
            [] if "untrained" in row else [1, 2] if "no-parallel" in row else [1]
        )
        assert all(abs(l["loss"] - ignorance(store.path(spec))) < 0.2 for l in log) and all(
            l["learning_rate"] for l in log
        )
    start = (store.path(rows["18 untrained"]) / "model.safetensors").read_bytes()
    same = {
        row
        for row, spec in rows.items()
        if (store.path(spec) / "model.safetensors").read_bytes() == start
    }
    assert same == {"18 untrained", "19 untrained;lang-pos"}


@pytest.mark.ci
def test_a_large_row_of_the_paper_trains(tmp_path):
    """Row 17: 86 million parameters, one step."""
    store = Store(tmp_path / "runs")
    (spec,) = {
        shortened(measure(c).checkpoint)
        for c in list_table_entries("paper", "micro", seeds=1, rows="17")
        if c.table == "table1"
    }
    run([spec], store, progress=False)
    (line,) = loop.read_log(store.path(spec))
    assert (
        line["step"] == 1
        and line["learning_rate"] == 1e-4
        and abs(line["loss"] - ignorance(store.path(spec))) < 0.5
    )
    assert (store.path(spec) / "model.safetensors").stat().st_size > 4 * 85e6
    shutil.rmtree(store.root)


# ---- observations


def test_observations_are_what_the_store_holds(tmp_path):
    """One line a cell and published column; cells that were not run are left out; curves carry
    their step.
    """
    store, plans = (
        Store(tmp_path / "runs"),
        list_table_entries("smoke", "micro", seeds=1, rows="1,18"),
    )
    done = [c for c in plans if c.row != "18 untrained"]
    assert (
        {c.table for c in done} == {"table1", "figure5"}
        and len(done) == len(COLUMNS) + 1
        and {c.paper for c in done} == {NAME}
    )
    tiny = MeasureSpec(
        replace(shortened(measure(done[0]).checkpoint), shape=Shape(1, 8, 1, 8, 32)), SLICE[1]
    )
    run([tiny], store, progress=False)
    curve = row_entries("figure6", "0 original", tiny)
    assert {c.step for c in curve} == {"step"}
    plans = [replace(c, runs=(tiny,)) for c in done] + curve + [c for c in plans if c not in done]
    frame, values = observe(plans, store, "micro"), store.read(tiny)
    assert set(frame.table) == {"table1", "figure5", "figure6"} and set(frame.run_id) == {
        store.path(tiny).name
    }
    table = frame[frame.table == "table1"].set_index("column").value
    with (files("xlingual_nb.papers") / "dufter2020" / "table1.csv").open(encoding="utf-8") as f:
        published = {line["column"] for line in csv.DictReader(f)}
    assert set(table.index) == published and len(table) == len(published)
    assert (
        table["µ"] == values["mu"]
        and table["Layer 8 Trans. τ"] == values["tau_upper"]
        and table["MLM-Perpl. dev"] == values["perplexity_dev"]
    )
    assert frame[frame.table == "figure5"].value.tolist() == [values["diagonal"]]
    assert (
        set(frame[frame.table == "figure6"].step) == {values["step"]}
        and frame[frame.table != "figure6"].step.isna().all()
    )
