"""K et al. (2020), Tables 4 to 11: shapes, rows, columns, shared runs, the paper's own settings;
notebooks on partial results. (test_notebooks.py runs them at smoke scale.)
"""

from dataclasses import fields
from functools import cache
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest

from xlingual_nb.errors import InputError
from fake_store import FakeStore
from in_process import cells_for_parameters
from xlingual_nb.experiments import architecture, mixed_pairs, objective, overlap, study
from xlingual_nb.experiments.encoder_shapes import (
    DEPTH,
    HEADS,
    MILLIONS,
    PERCENT,
    table_design,
    shape_of,
    architecture_table,
    count_parameters,
)
from xlingual_nb.experiments.k2020_common import bbert_spec, nli_spec
from xlingual_nb.tasks.baselines import FLOORS
from xlingual_nb.tasks.nli import NliSpec
from xlingual_nb.runs import plan
from xlingual_nb.runs.engine import run
from xlingual_nb.experiments.config import SCALES
from xlingual_nb.experiments.config_files import list_corpora
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.experiments.study_data import corpus_spec
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.text.vocabularies import TokenizerSpec
from xlingual_nb.runs.store import Store
from xlingual_nb.models.configs import Shape
from xlingual_nb.papers.published import (
    claims,
    floor_names,
    printed_value,
    published,
    stand_in,
    value,
)
from xlingual_nb.report import reusable_values
from xlingual_nb.runs.spec import run_id

PAPER, NOTEBOOKS = "k2020", Path(__file__).resolve().parents[1] / "nbs"
MODULE = {
    "table4": architecture,
    "table5": architecture,
    "table6": architecture,
    "table7": architecture,
    "table8": objective,
    "table9": objective,
    "table10": objective,
    "table11": mixed_pairs,
}
BILINGUAL = {
    (scale, corpus): bilingual_config(scale, corpus)
    for scale in SCALES
    for corpus in list_corpora("k2020", scale)
}
# scales with all of the paper's languages
WHOLE = [key for key, sizes in BILINGUAL.items() if len(sizes.targets) == 3]


@cache
def pretrained(scale, corpus):
    return {m: m.list_table_entries(scale, corpus) for m in (architecture, objective, mixed_pairs)}


def numbers(key):
    """The labels of all cells, in the paper's words where a language stands in for one of its."""
    words = stand_in(PAPER).printed
    return {
        (c.table, words(c.table, c.row), words(c.table, c.column))
        for found in pretrained(*key).values()
        for c in found
    }


# ---- shapes


def by_hand(layers, h, i, vocabulary=60_000, positions=512):
    """BERT, counted part by part: embeddings, layers, pooler, head of masked tokens, of next
    sentences.
    """
    layer = 4 * (h * h + h) + (h * i + i) + (i * h + h) + 4 * h
    return (
        (vocabulary + positions + 2) * h
        + 2 * h
        + layers * layer
        + (h * h + h)
        + (h * h + h + 2 * h + vocabulary)
        + (2 * h + 2)
    )


def test_paper_sizes_give_the_printed_counts():
    """Within 2%; all but the two that no hidden size can give come out within a thousandth."""
    found = architecture_table(bilingual_config("paper", "micro")).set_index(["table", "row"])
    for (table, row), s in found.iterrows():
        printed = value(PAPER, table, row, MILLIONS)
        assert (s.layers, s.heads) == (
            value(PAPER, table, row, DEPTH),
            value(PAPER, table, row, HEADS),
        )
        assert s.hidden % s.heads == 0 and round(s.got * 1e6) == by_hand(
            s.layers, s.hidden, s.intermediate
        )
        exact = (table, row) not in {("table4", "depth 18"), ("table4", "depth 24")}
        assert abs(s.got / printed - 1) < (0.0015 if exact else 0.02) and (
            not exact or abs(s.got - printed) < 0.0151
        ), row
        assert s.intermediate == (5 if table == "table7" and s.hidden < 768 else 4) * s.hidden
    assert (
        len(found) == 7 + 7 + 11 + 7
        and set(found.loc["table5"].hidden) == {768}
        and set(found.loc["table7"].hidden) == {768, 192}
    )


@pytest.mark.parametrize("key", BILINGUAL, ids="-".join)
def test_smaller_scales_keep_the_order(key):
    """Layers and heads are the paper's at every scale; of two models in one group the paper's
    larger is never the smaller.
    """
    sizes, found = BILINGUAL[key], architecture_table(BILINGUAL[key]).set_index(["table", "row"])
    for table, row in found.index:
        shape = shape_of(sizes, table, row)
        assert (shape.max_tokens, shape.positions) == (
            sizes.deep.shape.max_tokens,
            sizes.deep.shape.positions,
        )
        assert (shape.layers, shape.heads) == tuple(
            table_design(table).loc[row, ["layers", "heads"]]
        )
    six = table_design("table6").assign(got=found.loc["table6"].got)
    for _, group in six.groupby("layers"):
        assert group.sort_values("share").got.is_monotonic_increasing
    assert (
        found.loc[
            [
                ("table4", "depth 12"),
                ("table5", "heads 12"),
                ("table6", "depth 12 | 132.78M"),
                ("table7", "132.78M | depth 12 | heads 12"),
            ]
        ].got.nunique()
        == 1
    )
    assert found.loc["table5"].got.nunique() == 1 and found.loc["table4"].off.abs().max() < 0.2


# ---- rows and columns


@pytest.mark.parametrize("key", WHOLE, ids="-".join)
@pytest.mark.parametrize("table", MODULE)
def test_every_published_number_has_a_cell(table, key):
    printed = set(published(PAPER, table)[["row", "column"]].itertuples(index=False, name=None))
    assert printed <= {(row, column) for t, row, column in numbers(key) if t == table}


@pytest.mark.parametrize(
    "claim",
    [c for c in claims(PAPER) if {t.table for t in c.tests} <= set(MODULE)],
    ids=lambda c: c.id,
)
def test_every_row_that_a_claim_names_has_a_cell(claim):
    """With floors of its own source and target in the column where its rows must be alive."""
    found = {n[1:] for n in numbers(("laptop", "micro"))}
    for t in claim.tests:
        assert found >= {(row, t.column) for row in t.plus}
        if t.minus != "floor":
            assert found >= {(row, t.minus_column or t.column) for row in t.minus}
        column = t.alive_column or t.column
        assert found >= {(row, column) for row in claim.alive or ()}
        for row in claim.alive if claim.alive is not None else t.plus:
            floors = [
                f
                for f in floor_names(claim.floor if t.floor is None else t.floor, row)
                if (f, column) in found
            ]
            known = (
                "NER en",
                "XNLI en",
                "XNLI Fake-English",
                "NER Fake-English",
            )  # which no model is kept from
            assert len(floors) >= 1 + (column not in known), (row, column, floors)


def test_no_floor_saw_the_language_that_it_is_a_floor_in():
    for _, row, column in numbers(("laptop", "micro")):
        if row.startswith("never saw"):
            assert column not in (
                "XNLI Fake-English",
                "NER Fake-English",
                "XNLI en",
                "NER en",
                "XNLI enfake-enfake",
            )


def test_cells_are_distinct_and_have_the_scales_seeds():
    for key in WHOLE:
        for module, found in pretrained(*key).items():
            assert len({(c.table, c.row, c.column, c.seed) for c in found}) == len(found)
            assert {c.seed for c in found} == set(
                range(BILINGUAL[key].seeds[0 if module is mixed_pairs else 1])
            )


def the_same(spec):
    """What all runs say."""
    pairs = {
        pair: value
        for l in ("es", "ru")
        for pair, value in ((f"{l}|{l}", 0.6), (f"enfake|{l}", 0.5), (f"{l}|enfake", 0.4))
    }
    if spec.stage == "nli_floors":
        return {name: dict.fromkeys(("enfake|enfake", *pairs), 0.41) for name in FLOORS} | {
            "true lexicon": {"enfake|enfake": 0.93}
        }
    return dict(
        accuracy={"enfake|enfake": 0.8, **pairs},
        majority={"enfake|enfake": 0.35, "es|es": 0.34, "ru|ru": 0.34},
        f1=dict(enfake=0.9, es=0.5, ru=0.5),
        rho_upper=0.25,
        perplexity_train=5.5,
    )


def test_a_cell_reads_its_own_number(tmp_path):
    def of(module, table, row):
        frame = study.observe(
            [
                c
                for c in module.list_table_entries("laptop", "micro", 1)
                if (c.table, c.row) == (table, row)
            ],
            FakeStore(tmp_path, the_same),
            "micro",
        )
        return frame.set_index("column").value.to_dict()

    four = of(architecture, "table4", "depth 12")
    sizes = bilingual_config("laptop", "micro")
    assert four == pytest.approx(
        {
            MILLIONS: count_parameters(sizes, sizes.deep.shape) / 1e6,
            DEPTH: 12,
            HEADS: 12,
            "XNLI Fake-English": 80,
            "XNLI Spanish": 60,
            "XNLI Δ": 20,
            "NER Fake-English": 90,
            "NER Spanish": 50,
            "NER Δ": 40,
            "Retrieval ρ": 0.25,
            "MLM-Perpl. train": 5.5,
        }
    )
    assert "MLM-Perpl. train" not in of(architecture, "table6", "depth 12 | 132.78M")
    assert of(architecture, "table6", "majority class | es") == pytest.approx(
        {"XNLI Fake-English": 35, "XNLI Spanish": 34, "XNLI Δ": 1}
    )
    for module, table, column in (
        (architecture, "table5", "XNLI Spanish"),
        (objective, "table9", "XNLI With Lang-id"),
        (mixed_pairs, "table11", "XNLI target-enfake"),
    ):
        assert of(module, table, "set differences | enfake | es")[column] == 41
    assert of(architecture, "table4", "true lexicon | enfake | es") == {"XNLI Spanish": 93}
    assert of(objective, "table8", "enfake-ru | enfake | Δ") == pytest.approx(
        {"XNLI NSP": 20, "XNLI No-NSP": 20, "NER NSP": 40, "NER No-NSP": 40}
    )
    assert of(mixed_pairs, "table11", "enfake-ru | ru") == pytest.approx(
        {
            "XNLI enfake-target": 50,
            "XNLI target-enfake": 40,
            "XNLI enfake-enfake": 80,
            "XNLI target-target": 60,
        }
    )
    percent = {
        c.row: c.amount
        for c in architecture.list_table_entries("paper", "micro")
        if c.column == PERCENT
    }
    for row, share in percent.items():
        assert share == pytest.approx(value(PAPER, "table7", row, PERCENT), abs=0.06)


# ---- shared runs


@pytest.mark.parametrize("key", WHOLE + [("smoke", "micro")], ids="-".join)
def test_table_11_adds_nothing_to_table_1(key):
    assert set(mixed_pairs.grid(*key)) <= set(overlap.grid(*key)) and mixed_pairs.grid(*key)


@pytest.mark.parametrize("key", WHOLE, ids="-".join)
def test_equal_models_are_one_run(key):
    def checkpoints(module, table, row, column):
        return {
            c.runs[0].checkpoint
            for c in pretrained(*key)[module]
            if (c.table, c.row, c.column, c.seed) == (table, row, column, 0)
        }

    base = [
        checkpoints(architecture, t, r, "XNLI Δ")
        for t, r in (
            ("table4", "depth 12"),
            ("table5", "heads 12"),
            ("table6", "depth 12 | 132.78M"),
        )
    ]
    assert base[0] == base[1] == base[2] and len(base[0]) == 1
    sizes, row = BILINGUAL[key], "enfake-es | enfake | es"
    usual = {bbert_spec(sizes, ("enfake", "es"), 0)}
    assert checkpoints(objective, "table9", row, "XNLI No Lang-id") == usual
    assert (checkpoints(objective, "table10", row, "XNLI WordPiece") == usual) == (
        sizes.spelt == sizes.base.training
    )
    for module, found in pretrained(*key).items():
        assert len(module.grid(*key)) == len({r for c in found for r in c.runs})


def differ(one, other):
    return {f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)}


@pytest.mark.parametrize("key", BILINGUAL, ids="-".join)
def test_columns_differ_in_what_they_say(key):
    sizes, pair = BILINGUAL[key], ("enfake", "es" if "es" in BILINGUAL[key].targets else "en")
    spec = {
        c: objective.variant_spec(sizes, c, pair, 0)
        for columns in objective.TABLES.values()
        for c in columns
    }
    assert (
        differ(spec["NSP"], spec["No-NSP"]) == {"nsp"}
        and spec["NSP"].nsp
        and spec["No-NSP"].inputs == "pairs"
    )
    assert (
        differ(spec["No Lang-id"], spec["With Lang-id"]) == {"markers"}
        and spec["With Lang-id"].markers
    )
    for a, b in (("Char", "WordPiece"), ("WordPiece", "Word")):
        assert differ(spec[a], spec[b]) == {"tokenizer"}
    assert (spec["Char"].tokenizer.kind, spec["Word"].tokenizer.kind) == ("characters", "words")


def test_only_table_10_is_fine_tuned_at_a_rate_of_its_own():
    """Characters do not learn inference at the others' rate (benchmarks/spellings.py)."""
    rates = {
        table: {
            run.settings.learning_rate
            for c in pretrained("laptop", "micro")[objective]
            if c.table == table
            for run in c.runs
            if isinstance(run, NliSpec)
        }
        for table in objective.TABLES
    }
    assert rates == {"table8": {1e-3}, "table9": {1e-3}, "table10": {3e-4}}
    paper = BILINGUAL["paper", "micro"]
    assert all(
        objective.with_table_fine_tuning(paper, table) == paper for table in objective.TABLES
    )


# ---- the paper's text, parameter by parameter

SAYS = [  # section, field of a PretrainSpec, as the paper (or, where it is silent, its released code) has it
    ("3.1.3 batch size 32", "training.batch", 32),
    ("3.1.3 learning rate 0.0001", "training.learning_rate", 1e-4),
    ("3.1.3 two million steps", "training.steps", 2_000_000),
    ("code: warm-up", "training.warmup", 10_000),
    ("3.1.2 60,000 entries for a pair", "tokenizer.size", 60_000),
    ("3.1.2 unigram model", "tokenizer.kind", "unigram"),
    ("3.1.3 BERT-base: layers", "shape.layers", 12),
    ("BERT-base: hidden", "shape.hidden", 768),
    ("BERT-base: heads", "shape.heads", 12),
    ("BERT-base: intermediate", "shape.intermediate", 3072),
    ("code: pieces an input", "shape.max_tokens", 128),
    ("Tables 4-7: 132.78 M need 512 positions", "shape.position_table", 512),
    ("3.4.1 pairs of segments", "inputs", "pairs"),
    ("3.4.1 next sentences", "nsp", True),
    ("code: whole words", "whole_words", True),
    ("code: languages to the power .7", "exponent", 0.7),
    ("3.4.2 no markers", "markers", False),
]
# sections 3.4.1, 3.4.2; Table 10's caption: 2k batch, 500k
CHANGED = {
    "No-NSP": {"nsp": False},
    "With Lang-id": {"markers": True},
    "NSP": {},
    "No Lang-id": {},
    "Char": {
        "training.batch": 2048,
        "training.steps": 500_000,
        "tokenizer.kind": "characters",
        "tokenizer.size": 10_000,
    },
    "WordPiece": {"training.batch": 2048, "training.steps": 500_000},
    # section 3.4.3
    "Word": {
        "training.batch": 2048,
        "training.steps": 500_000,
        "tokenizer.kind": "words",
        "tokenizer.size": 100_000,
    },
}


def look(spec, path):
    for name in path.split("."):
        spec = getattr(spec, name)
    return spec


@pytest.mark.parametrize("corpus", ("micro", "wiki"))
@pytest.mark.parametrize("column", CHANGED)
def test_paper_scale_is_the_papers_text(column, corpus):
    spec = objective.variant_spec(bilingual_config("paper", corpus), column, ("enfake", "ru"), 0)
    for section, path, wanted in SAYS:
        assert look(spec, path) == CHANGED[column].get(path, wanted), section
    assert [l.name for l in spec.languages] == ["enfake", "ru"] and spec.languages[
        0
    ].corpus.transforms == ("cut_words", "unicode_shift")
    assert {spec.tokenizer.corpus, *spec.tokenizer.extra_corpora} == {
        l.corpus for l in spec.languages
    }


def test_paper_scale_of_tables_4_to_7():
    """As Table 1's model in all but the shape; four languages are English itself and the rest, on
    one vocabulary of the same size.
    """
    for c in pretrained("paper", "wiki")[architecture]:
        table, row = c.table, c.row
        if row not in table_design(table).index:
            continue
        spec = c.runs[0].checkpoint
        for section, path, wanted in SAYS:
            if not path.startswith("shape.") or "positions" in section or "pieces" in section:
                assert look(spec, path) == wanted, (row, section)
        assert [l.name for l in spec.languages] == (
            ["en", "es", "hi", "ru"] if table == "table7" else ["enfake", "ru"]
        )
        assert (spec.shape.layers, spec.shape.heads) == (
            value(PAPER, table, row, DEPTH),
            value(PAPER, table, row, HEADS),
        )


def test_tasks_at_paper_scale():
    """Section 3.1.3: fine-tuned on Fake-English, tested in both; Table 11: four ways to pair the
    two.
    """
    spec = bbert_spec(bilingual_config("paper", "wiki"), ("enfake", "hi"), 0)
    task = nli_spec(bilingual_config("paper", "wiki"), spec, "enfake", ("hi",))
    assert (
        task.train.language == "enfake"
        and task.train.records.source == "xnli/en"
        and task.train.records.part == "train"
        and task.train.records.transforms == ("cut_words", "unicode_shift")
    )
    assert [(a.language, b.language) for a, b in task.tests] == [
        ("enfake", "enfake"),
        ("hi", "hi"),
        ("enfake", "hi"),
        ("hi", "enfake"),
    ]
    assert (
        task.settings.head,
        task.settings.epochs,
        task.settings.batch,
        task.settings.learning_rate,
    ) == ("cls", 3, 32, 2e-5)


# ---- wrong parameters


@pytest.mark.parametrize(
    "wrong, match",
    (
        (lambda: architecture.list_table_entries("huge"), "scale 'huge' does not exist"),
        (
            lambda: objective.list_table_entries("laptop", "wiki"),
            "corpus 'wiki' does not exist at scale laptop",
        ),
        (lambda: mixed_pairs.grid("smoke", seeds=101), "seeds=101: choose 0"),
        (
            lambda: architecture.list_table_entries("smoke", only="4,8"),
            "no '8' here; choose all, or some of 4, 5, 6, 7",
        ),
        (lambda: objective.grid("smoke", only=""), "no '' here"),
        (lambda: Shape(12, 48, 5, 192), "5 heads do not divide a hidden size of 48"),
        (lambda: corpus_spec(bilingual_config("gpu", "mix"), "fr"), "no text in 'fr'"),
        (lambda: corpus_spec(bilingual_config("paper", "wiki"), "fr", "dev"), "no text in 'fr'"),
        (
            lambda: bbert_spec(bilingual_config("laptop", "bible"), ("enfake", "ru"), 0),
            "no text in 'ru' at scale laptop on corpus bible, which has en: choose another corpus",
        ),
    ),
    ids=range(9),
)
def test_a_wrong_parameter_is_one_line(wrong, match):
    with pytest.raises(InputError, match=match) as caught:
        wrong()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "spec, match",
    (
        (
            TokenizerSpec(
                CorpusSpec("micro/en", parameters=(("sentences", 20), ("vocabulary", 128))),
                60_000,
                "unigram",
            ),
            "60000 unigram entries is too large for micro/en",
        ),
        (
            TokenizerSpec(CorpusSpec("micro/tlh", parameters=(("sentences", 20),)), 300),
            "language 'tlh': the presets are en",
        ),
    ),
    ids=("vocabulary", "language"),
)
def test_a_wrong_text_is_one_line_before_any_training(spec, match, tmp_path):
    model = PretrainSpec((Language("en", spec.corpus),), spec, Shape(1, 8, 1, 8, 16))
    with pytest.raises(Exception, match=match):
        run([model], Store(tmp_path / "runs"), progress=False)
    assert not list((tmp_path / "runs").glob("pretrain/*/*"))


@pytest.mark.ci
@pytest.mark.parametrize("key", [("smoke", "micro"), ("laptop", "micro")], ids="-".join)
def test_vocabularies_of_table_10_fit_their_text(key):
    """The stage of vocabularies refuses one of which the text has not half."""
    from xlingual_nb.text import sources, transforms, vocabularies

    sizes = BILINGUAL[key]
    for target in sizes.targets:
        for column in ("Char", "Word"):
            spec = objective.variant_spec(sizes, column, ("enfake", target), 0).tokenizer
            text = [
                s
                for c in (spec.corpus, *spec.extra_corpora)
                for s in transforms.apply_text_transforms(
                    c.transforms, sources.load_corpus(c.source, part=c.part, **dict(c.parameters))
                ).sentences
            ]
            found = vocabularies.train_tokenizer(spec.kind, text, spec.size).get_vocab_size()
            assert 2 * found >= spec.size, (
                f"{target}: {spec.size} {spec.kind} wanted, the text has {found}"
            )


# ---- notebooks on what there is


def execute(name, tmp_path, monkeypatch, observe=None, **given):
    """The cells of a notebook in this process, what the last line of each gives rendered; the names
    that it leaves.
    """
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setattr(plan, "calibrate", lambda: 1e11)
    for module in (study, reusable_values) if observe else ():
        monkeypatch.setattr(module, "observe", observe)
    shell = InteractiveShell()
    cells = nbformat.read(NOTEBOOKS / f"{name}.ipynb", 4).cells
    for place, source in sorted(cells_for_parameters(cells).items()):
        done = shell.run_cell(source, store_history=False)
        done.raise_error()
        if hasattr(done.result, "_repr_html_"):
            done.result._repr_html_()
        if "parameters" in cells[place].metadata.get("tags", ()):
            shell.user_ns.update(
                dict(make_missing=False, device="cpu")
                | {n: str(tmp_path / n) for n in ("store", "results", "figures")}
                | given
            )
    return shell.user_ns


NAMES = pytest.mark.parametrize("name", ("04_architecture", "05_objective", "06_mixed_pairs"))


@NAMES
def test_a_text_without_a_second_language_is_said(name, tmp_path, monkeypatch, capsys):
    found = execute(name, tmp_path, monkeypatch, scale="smoke", corpus="bible")
    assert found["study_run"].entries == [] and "no second language" in capsys.readouterr().out
    assert not (tmp_path / "results").exists() and not (tmp_path / "figures").exists()


def made_up(keep):
    """Observations of those cells that `keep` wants: the published number, else a floor."""

    def observe(cells, store, corpus):
        rows = []
        for c in filter(keep, cells):
            found = printed_value(PAPER, c.table, c.row, c.column)
            number = (
                c.amount
                if c.amount is not None
                else (0.05 if "Retr" in c.column else 34.0)
                if np.isnan(found)
                else found
            )
            rows.append(
                (
                    PAPER,
                    c.table,
                    c.row,
                    c.column,
                    corpus,
                    c.seed,
                    number + 0.01 * c.seed,
                    run_id(c.runs[0]),
                )
            )
        return pd.DataFrame(
            rows, columns=["paper", "table", "row", "column", "corpus", "seed", "value", "run_id"]
        )

    return observe


def some(cell):
    return not cell.column.startswith("XNLI") and sum(map(ord, cell.row + cell.column)) % 3 > 0


@NAMES
@pytest.mark.parametrize("keep", (lambda c: False, some), ids=("nothing", "some, no NLI"))
def test_partial_results_are_shown(name, keep, tmp_path, monkeypatch, capsys):
    found = execute(
        name, tmp_path, monkeypatch, made_up(keep), scale="smoke", corpus="micro", seeds=2
    )
    count = len(found["observations"])
    assert f"{count} of {len(found['study_run'].entries)} cells measured" in capsys.readouterr().out
    assert set(found["study_run"].judged.verdict) == {"not tested"}
    assert bool(count) == bool(
        list((tmp_path / "results").rglob("table*.csv")) if (tmp_path / "results").exists() else []
    )
