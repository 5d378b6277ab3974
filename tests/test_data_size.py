"""Notebook 09: one space for many languages, readings of more text, floors and ceiling, the rows
that claims name.
"""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertTokenizer

from xlingual_nb import microworld
from xlingual_nb.errors import InputError
from xlingual_nb.experiments import data_size, liu2020_common, liu2020_evaluation
from xlingual_nb.experiments.study import unique_runs, entry_value
from xlingual_nb.measures.contextual_words import Finder
from xlingual_nb.measures.word_retrieval import (
    WordFloorsSpec,
    WordSpec,
    retrieval_bounds,
    spelling_baseline,
    exclude_queries,
)
from xlingual_nb.models.external import ExternalCheckpointSpec
from xlingual_nb.models.word_embeddings import EmbedSpec
from xlingual_nb.models.encoders import load_encoder
from xlingual_nb.models.pretraining import PretrainSpec
from xlingual_nb.models.static_vectors import save_static, word_tokenizer
from xlingual_nb.papers.published import OURS, claims, floor_names
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store
from xlingual_nb.text import sources, tokenizers, vocabularies
from xlingual_nb.text.dictionaries import Dictionary

SIZES = liu2020_common.study_config("smoke", "micro")
LAPTOP = liu2020_common.study_config("laptop", "micro")


# ---- texts and models


def test_a_smaller_text_begins_a_larger_one_and_languages_say_different_things():
    small, large = (
        sources.load_spec(liu2020_common.text_spec(SIZES, "es", n)).sentences
        for n in SIZES.sentences
    )
    assert len(small) == 60 and large[:60] == small and len(large) == 120
    seeds = {dict(liu2020_common.text_spec(SIZES, l, 60).parameters)["seed"] for l in ("en", "es")}
    parallel = liu2020_common.text_spec(
        liu2020_common.study_config("smoke", "micro-parallel"), "es", 60
    )
    assert len(seeds) == 2 and "seed" not in dict(parallel.parameters)


def test_all_models_have_one_vocabulary_and_are_asked_in_one_text():
    cells = data_size.list_table_entries("laptop", "micro", seeds=1)
    models = {r.checkpoint for r in unique_runs(cells) if isinstance(r, WordSpec)}
    assert {type(m) for m in models} == {PretrainSpec, EmbedSpec} and len(
        {m.tokenizer for m in models}
    ) == 1
    asked = {r.texts for r in unique_runs(cells) if isinstance(r, WordSpec)}
    assert {dict(t.parameters)["sentences"] for pair in asked for t in pair} == {
        min(LAPTOP.sentences)
    }
    assert {r.dictionary.part for r in unique_runs(cells) if isinstance(r, WordSpec)} == {"odd"}


@pytest.mark.parametrize("method", ("bert", "word2vec", "glove"))
def test_readings_hold_fixed_what_they_say(method):
    """Updates or passes over the text, counted here from sentences, passes and steps alone."""

    def work(n, reading):
        made = liu2020_common.model_spec(LAPTOP, method, n, 0, reading)
        if method != "bert":
            return n * made.method.epochs, made.method.epochs
        reads = made.training.steps * made.training.batch / 5
        return reads, reads / n

    steps, epochs = (
        [work(n, reading) for n in LAPTOP.sentences] for reading in ("steps", "epochs")
    )
    assert len({reads for reads, _ in steps}) == 1 and len({passes for _, passes in epochs}) == 1
    assert steps[-1] == epochs[-1]
    reads = liu2020_common.bert_spec(LAPTOP, 1000, 0, "reads").training
    assert (
        reads.epochs
        == liu2020_common.static_spec(LAPTOP, "word2vec", 1000, 0, "epochs").method.epochs
        and not reads.steps
    )


def test_an_unknown_reading_or_language_is_told_in_one_line():
    with pytest.raises(
        InputError, match="reading='words' does not exist: choose steps, epochs or reads"
    ):
        data_size.list_table_entries("smoke", "micro", reading="words")
    with pytest.raises(InputError, match="no text in 'fi'"):
        data_size.list_table_entries("smoke", "micro", languages="fi")
    with pytest.raises(InputError, match="seeds=101"):
        data_size.list_table_entries("smoke", "micro", seeds=101)


def test_languages_without_a_dictionary_are_read_and_not_asked():
    paper = liu2020_common.study_config("paper", "wiki")
    assert len(paper.targets) == 14 and set(paper.targets) - set(
        liu2020_common.queried_targets(paper)
    ) == {
        "sw",
        "ur",
    }
    assert (
        liu2020_common.queried_targets(liu2020_common.study_config("gpu", "micro"))
        == liu2020_common.study_config("gpu", "micro").targets
    )


def test_ones_own_texts_and_dictionaries(tmp_path):
    """A dictionary for each language, no published number, and one clear line where a file is not
    there.
    """
    for l in ("en", "fi"):
        lines = microworld.corpus({"fi": "tr"}.get(l, l), "train", 120).sentences
        (tmp_path / f"{l}.txt").write_text("\n".join(lines), encoding="utf-8")
        for part in ("train", "dev", "test"):
            (tmp_path / f"{part}.{l}.tsv").write_text(
                "a b\ta b\tentailment\n" * 20, encoding="utf-8"
            )
    (tmp_path / "en-fi.txt").write_text("".join(f"w{i} v{i}\n" for i in range(9)), encoding="utf-8")
    here = f"file:{tmp_path}"
    pairs = {
        part: {"source": f"{here}/{{part}}.{{language}}.tsv", "part": part}
        for part in ("train", "dev", "test")
    }
    text, words = (
        {"source": f"{here}/{{language}}.txt"},
        {"source": f"{here}/en-{{language}}.txt", "part": "odd"},
    )
    mine = {
        "like": "smoke.micro",
        "targets": ["fi"],
        "text": {"train": text},
        "nli": pairs,
        "dictionary": words,
    }
    own = {"study": "liu2020", "smoke": {"mine": mine}}
    cells = data_size.list_table_entries("smoke", own=own)
    words = [r for r in unique_runs(cells) if isinstance(r, WordSpec)]
    assert {r.dictionary.source for r in words} == {f"file:{tmp_path}/en-fi.txt"} and {
        c.paper for c in cells
    } == {OURS}
    (tmp_path / "fi.txt").unlink()
    with pytest.raises(InputError, match="smoke.mine.text.train .fi.: .*fi.txt cannot be read"):
        data_size.list_table_entries("smoke", own=own)


# ---- rows


@pytest.mark.parametrize("scale", ("laptop", "gpu"))
def test_the_rows_that_claims_name_are_there(scale):
    cells = data_size.list_table_entries(scale, "micro", seeds=1)
    rows = {(c.paper, c.table, c.row, c.column) for c in cells}
    about = [
        c for paper in ("liu2020a", "liu2020b") for c in claims(paper) if data_size.belongs_here(c)
    ]
    assert len(about) == 19
    for claim in about:
        if claim.id == "L1-google":  # of a model that no experiment makes
            continue
        for t in claim.tests:
            named = t.plus + (() if t.minus == "floor" else t.minus)
            floors = {
                f
                for row in named
                for f in floor_names(claim.floor if t.floor is None else t.floor, row)
            }
            assert {(claim.paper, t.table, row, t.column) for row in (*named, *floors)} <= rows, (
                claim.id
            )
    assert max(Counter((c.paper, c.table, c.row, c.column, c.seed) for c in cells).values()) == 1


def test_a_mean_is_over_the_languages_of_its_row():
    cells = [
        c for c in data_size.list_table_entries("laptop", "micro", seeds=1) if c.paper == "liu2020a"
    ]
    held = {r: {"mrr": i, "chance": i / 10} for i, r in enumerate(unique_runs(cells))}

    def of(target):
        name = data_size.data_size_label("bert", "large", "steps", target)
        (cell,) = [c for c in cells if (c.row, c.column) == (name, "MRR")]
        return entry_value(cell, [held[r] for r in cell.runs])

    assert (
        of("mean") == pytest.approx(np.mean([of(t) for t in LAPTOP.targets]))
        and len(LAPTOP.targets) == 4
    )
    name = data_size.data_size_label("glove", "small", "epochs", "mean")
    (accuracy,) = [c for c in cells if (c.row, c.column) == (name, "XNLI Accuracy")]
    values = {f"accuracy {t}|{t}": i / 10 for i, t in enumerate(LAPTOP.targets)}
    assert entry_value(accuracy, [values]) == pytest.approx(100 * 0.15)


# ---- floors and ceiling


@pytest.fixture
def rotated(tmp_path):
    """A space in which every Spanish word is its English one, turned; one word is spelt alike."""
    generator, names = torch.Generator().manual_seed(0), [f"w{i}" for i in range(40)]
    one = torch.randn(40, 16, generator=generator)
    turn = torch.linalg.qr(torch.randn(16, 16, generator=generator))[0]
    pairs = [(name, f"{name}o") for name in names]
    words = ["[UNK]", *(a for a, _ in pairs), *(b for _, b in pairs)]
    space = save_static(
        tmp_path / "space", torch.cat([torch.zeros(1, 16), one, one @ turn]), word_tokenizer(words)
    )
    return load_encoder(space), pairs


def test_a_hidden_rotation_is_found_from_the_other_half(rotated):
    space, pairs = rotated
    toy, odd = SimpleNamespace(stage="toy"), Dictionary("micro", "odd")
    asked = WordSpec(toy, ("en", "es"), (None, None), odd, context="alone")
    values = retrieval_bounds(WordFloorsSpec(asked), space, pairs[1::2], pairs[::2], (None, None))
    assert values["mapped"]["mrr"] == pytest.approx(1, abs=1e-6) and values["learnt"] == 20
    assert values["strings"]["mrr"] == pytest.approx(values["strings"]["chance"])


def test_spelling_alone_against_counting_by_hand():
    """Of four pairs one is spelt alike, and found at once; of another the English is spelt as a
    wrong Spanish word.
    """
    english, spanish = ["sol", "red", "bee", "sky"], ["Sol", "rojo", "red", "cielo"]
    from xlingual_nb.measures.retrieval import rank, reciprocal_rank

    tables, places = spelling_baseline(
        [Finder(english), Finder(spanish)], np.repeat(np.arange(4)[:, None], 2, 1)
    )
    found = reciprocal_rank(rank(*tables, places))
    anywhere = np.mean([1, 1 / 2, 1 / 3, 1 / 4])
    assert found.tolist() == pytest.approx([1, np.mean([1 / 2, 1 / 3, 1 / 4]), anywhere, anywhere])


def test_random_vectors_hold_nothing_of_any_text(tmp_path):
    """Another text with as many pieces gives the same vectors, which stand at right angles as
    random ones do.
    """
    spec, store = liu2020_evaluation.random_vectors_spec(SIZES, 0), Store(tmp_path)
    said = tuple(
        replace(l, corpus=liu2020_common.text_spec(SIZES, l.name, 120, seed=f"other {l.name}"))
        for l in spec.languages
    )
    other = replace(spec, languages=said)
    run([spec, other], store, Inline(), progress=False)
    tables = [load_encoder(store.path(s)).vectors for s in (spec, other)]
    drawn = [table.norm(dim=1) > 0 for table in tables]
    both = drawn[0] & drawn[1]
    assert (
        torch.equal(tables[0][both], tables[1][both])
        and both.sum() > 150
        and not torch.equal(*drawn)
    )
    kept = torch.nn.functional.normalize(tables[0][both], dim=1)
    cosines = (kept @ kept.T)[~torch.eye(len(kept), dtype=bool)]
    assert abs(float(cosines.mean())) < 0.02 and float(cosines.std()) == pytest.approx(
        SIZES.width**-0.5, rel=0.1
    )


def test_first_by_chance_is_what_random_tables_find():
    """P@1 of words with one to three translations each, among as many candidates, over many random
    tables.
    """
    from xlingual_nb.measures.retrieval import rank, mrr_and_precision

    gold, dice = (
        np.array([[0, 0], [0, 1], [0, 2], [1, 3], [2, 4], [2, 0]]),
        torch.Generator().manual_seed(0),
    )

    def found():
        return mrr_and_precision(
            rank(torch.randn(3, 8, generator=dice), torch.randn(5, 8, generator=dice), gold)
        )["p1"]

    hits = [found() for _ in range(400)]
    told = liu2020_evaluation.chance_precision_at_1(dict(usable=len(gold), words=3, candidates=5))
    assert np.mean(hits) == pytest.approx(
        told, abs=4 * np.std(hits) / len(hits) ** 0.5
    ) and told == pytest.approx(0.4)


@pytest.mark.parametrize("corpus", ("micro", "bible", "running"))
def test_every_column_has_its_floors_and_its_ceiling(corpus):
    """But for the layer two thirds up, which has the untrained encoder alone."""
    cells = data_size.list_table_entries("laptop", corpus, seeds=1)
    there = {(c.table, c.row, c.column) for c in cells if c.paper == "liu2020a"}
    for table, columns, rows in (
        ("figure1", set(liu2020_common.COLUMNS), liu2020_evaluation.BASELINES),
        (
            "figure2",
            set(liu2020_evaluation.ACCURACY.values()),
            ("untrained", "shared strings", "majority"),
        ),
    ):
        assert {c for t, row, c in there if t == table and row.startswith("en-")} - {
            "MRR two thirds up"
        } == columns
        for floor in rows:
            assert {
                (table, liu2020_evaluation.baseline_label(floor, "mean"), column)
                for column in columns
            } <= there
        mapped = {
            column
            for t, row, column in there
            if t == table and "mapped" in row and row.endswith("| mean")
        }
        assert mapped == columns


def test_what_is_asked_for_is_not_learnt_from():
    known, asked = np.array([[0, 9], [1, 3], [2, 5], [7, 7]]), np.array([[1, 1], [4, 5]])
    assert exclude_queries(known, asked).tolist() == [[0, 9], [7, 7]]
    words = WordSpec(
        SimpleNamespace(stage="toy"), ("en", "es"), (None, None), Dictionary("micro", "odd")
    )
    with pytest.raises(InputError, match="the part 'odd' of the dictionary is tested"):
        WordFloorsSpec(words, "odd")


# ---- what is there already: a vocabulary, a checkpoint


def test_a_given_vocabulary_cuts_as_its_own_tokenizer_does(tmp_path, monkeypatch):
    pieces = (
        "[PAD] [unused1] [unused2] [UNK] [CLS] [SEP] [MASK] She ate ##d hon ##ey é . 中".split()
    )
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab/mbert-cased.vocab.txt").write_text(
        "".join(f"{p}\n" for p in pieces), encoding="utf-8"
    )
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    spec, store = vocabularies.PretrainedVocabularySpec(), Store(tmp_path / "store")
    run([spec], store, Inline(), progress=False)
    ours = tokenizers.read_tokenizer(store.path(spec))
    theirs = BertTokenizer(str(tmp_path / "vocab/mbert-cased.vocab.txt"), do_lower_case=False)
    text = "She ated honey. é 中中 she"
    assert ours.encode(text, add_special_tokens=False).tokens == theirs.tokenize(text)
    assert [ours.id_to_token(i) for i in range(6)] == [
        *tokenizers.SPECIALS,
        "She",
    ] and ours.get_vocab_size() == 13
    assert list(spec.source_digests()) == ["vocab/mbert-cased.vocab.txt"]


def test_somebodys_checkpoint_is_measured_as_the_run_that_it_was(tmp_path):
    spec, store = liu2020_common.bert_spec(SIZES, 60, 0), Store(tmp_path / "store")
    words = liu2020_common.word_retrieval_spec(SIZES, spec, "es")
    run([words], store, Inline(), progress=False)
    brought = ExternalCheckpointSpec(str(store.path(spec)))
    again = liu2020_common.word_retrieval_spec(SIZES, brought, "es")
    run([again], store, Inline(), progress=False)
    ours, theirs = (stage_of(w).values(store.path(w)) for w in (words, again))
    assert ours == theirs and ours["usable"] > 20
    cells = data_size.list_table_entries("smoke", "micro", checkpoint=brought.folder)
    row = f"en-es | {store.path(spec).name} | es"
    assert {c.column for c in cells if c.row == row} == {
        *liu2020_common.COLUMNS,
        *liu2020_evaluation.ACCURACY.values(),
    }
    assert {c.row for c in cells if store.path(spec).name in c.row} >= {
        row,
        row.replace("en-es", "en-xx").replace("| es", "| mean"),
    }
    with pytest.raises(
        InputError,
        match="nowhere is no folder: name one that save_pretrained has left, or a model of the hub",
    ):
        data_size.list_table_entries("smoke", "micro", checkpoint="nowhere")
    mbert = {
        c.row.split(" | ")[1]
        for c in data_size.list_table_entries(
            "smoke", "micro", checkpoint="bert-base-multilingual-cased"
        )
    }
    assert "bert-base-multilingual-cased" in mbert
    assert json.loads((store.path(brought) / "config.json").read_text())["model_type"] == "bert"


def test_a_folder_without_a_checkpoint_is_told_in_one_line(tmp_path):
    with pytest.raises(InputError, match="holds no checkpoint .no config.json.: name a folder"):
        ExternalCheckpointSpec(str(tmp_path)).source_digests()


@pytest.mark.parametrize("reading", liu2020_common.READINGS)
def test_rows_of_the_second_paper_are_the_same_by_every_reading(reading):
    cells = data_size.list_table_entries("smoke", reading=reading)
    rows = {c.row for c in cells if c.table == "joint"}
    assert "en-xx | BERT large | mean" in rows and not any("equal" in row for row in rows)
