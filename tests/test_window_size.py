"""Notebook 10: arms that differ in the length of their inputs alone, and cells for every claim on
windows.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import window_size
from xlingual_nb.experiments.window_size import (
    AMOUNTS,
    FIGURE3,
    FIGURE4,
    PERPLEXITY_COLUMN,
    FULL_INPUT,
    window_bert_spec,
    list_table_entries,
    window_config,
    bert_label,
    window_label,
)
from xlingual_nb.measures.word_retrieval import WordSpec
from xlingual_nb.models.pretraining import pretraining_dataset
from xlingual_nb.models.configs import parameter_count
from xlingual_nb.papers.published import claims, floor_names
from xlingual_nb.report.preconditions import LEARNT, SHARE
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.store import Store
from xlingual_nb.text import tokenizers

ON_WINDOWS = list(filter(window_size.belongs_here, claims("liu2020a")))
SIZES = window_config("smoke", "micro")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    found, spec = (
        Store(tmp_path_factory.mktemp("store")),
        window_bert_spec(SIZES, SIZES.sentences[0], 0, 0),
    )
    run([spec.tokenizer, *(l.corpus for l in spec.languages)], found, Inline(), progress=False)
    return found


def arms(pieces, reading="tokens", sizes=SIZES):
    return window_bert_spec(sizes, sizes.sentences[0], pieces, seed=0, reading=reading)


def test_slices_hold_the_tokens_of_whole_inputs(store):
    tokenizer = tokenizers.read_tokenizer(store.path(arms(0).tokenizer))
    read = [pretraining_dataset(arms(pieces), tokenizer, store) for pieces in (0, 20, 5)]
    assert [m.ids.tolist() == read[0].ids.tolist() for m in read] == [True] * 3
    assert [int(m.first[:, 1].sum()) for m in read] == [len(read[0].ids)] * 3
    assert [int(m.first[:, 1].max()) for m in read] == [read[0].first[:, 1].max(), 20, 5] and read[
        0
    ].first[:, 1].max() > 60


@pytest.mark.parametrize("scale", ("laptop", "gpu", "paper"))
def test_arms_differ_in_their_inputs_alone(scale):
    """As many parameters, the same text, schedule and seed; a step reads as many tokens, up to what
    a whole input rounds.
    """
    sizes = window_config(scale, "micro")
    whole = arms(0, sizes=sizes)
    for pieces in sizes.windows.slices:
        sliced = arms(pieces, sizes=sizes)
        assert (
            parameter_count(sliced.shape, 1000) == parameter_count(whole.shape, 1000)
            and sliced.shape.max_tokens == pieces + 2
        )
        same = dict(
            shape=whole.shape, training=replace(sliced.training, batch=whole.training.batch)
        )
        assert replace(sliced, **same) == whole and whole.inputs == "documents"
        assert sliced.training.batch * pieces == pytest.approx(
            whole.training.batch * sizes.windows.typical, rel=0.04
        )


def test_slices_that_claims_name_are_read_by_every_seed():
    """The first seed alone reads those of `once`, and no claim is about these."""
    sizes = window_config("laptop", "micro")
    assert window_size.slice_lengths(sizes, 0) == (0, 20, 5, 10, 40) and window_size.slice_lengths(
        sizes, 2
    ) == (
        0,
        20,
        5,
    )
    named = {
        row for claim in ON_WINDOWS for test in claim.tests for row in (*test.plus, *test.minus)
    }
    assert not any(f", {pieces} pieces" in row for row in named for pieces in sizes.windows.once)
    assert {
        window_size.window_label(window_size.bert_label("small", pieces))
        for pieces in sizes.windows.slices
    } <= named


def test_the_other_reading_takes_more_steps():
    whole, sliced = arms(0), arms(20, "inputs")
    times = SIZES.windows.typical / 20
    assert sliced.training.batch == whole.training.batch and sliced.training.steps == round(
        whole.training.steps * times
    )
    assert sliced.training.opening == round(whole.training.opening * times)
    with pytest.raises(
        InputError, match="^reading='steps' does not exist: choose tokens or inputs$"
    ):
        list_table_entries("smoke", "micro", reading="steps")


@pytest.mark.parametrize("scale", ("laptop", "gpu", "paper"))
def test_typical_is_the_length_of_a_whole_input(scale):
    """In words of the microworld, which have a little more than one piece each."""
    from xlingual_nb.text.sources import document_sizes

    sizes = window_config("laptop", "micro")
    words = np.concatenate([document_sizes(l.corpus) for l in arms(0, sizes=sizes).languages])
    assert (
        np.minimum(words, 128).mean()
        < window_config(scale, "micro").windows.typical
        < 1.2 * words.mean()
    )


@pytest.mark.parametrize("scale", ("laptop", "gpu", "paper"))
def test_every_claim_on_windows_has_its_cells(scale):
    there = {(c.table, c.row, c.column) for c in list_table_entries(scale, "micro", seeds=1)}
    assert len(ON_WINDOWS) == 8
    for claim in (c for c in ON_WINDOWS if scale in c.scales):
        for test in claim.tests:
            rows = {*test.plus, *test.minus}
            floors = {floor for r in rows for floor in floor_names(claim.floor, r)}
            assert {(test.table, r, test.column) for r in rows | floors} <= there, claim.id
            if test.table == FIGURE3:
                assert {(FIGURE3, r, SHARE) for r in rows} <= there, (
                    "or nobody asks whether it is trained"
                )


def test_no_claim_on_windows_asks_for_more_than_its_scales_have():
    """Much text is for larger scales: at laptop scale there is none."""
    rows = {c.row for c in list_table_entries("laptop", "micro", seeds=1)}
    assert (
        window_label(bert_label(AMOUNTS[1], FULL_INPUT)) not in rows
        and window_label(bert_label(AMOUNTS[0], 20)) in rows
    )
    assert {c.id for c in ON_WINDOWS if "laptop" not in c.scales} == {
        f"L1-windows-{what}" for what in ("large", "more", "large-nli", "more-nli")
    }


def test_means_are_over_the_targets_and_the_gate_is_over_all_languages():
    made = list_table_entries("gpu", "micro", seeds=1)
    targets = window_config("gpu", "micro").targets
    for cell in made:
        if cell.column == PERPLEXITY_COLUMN:
            (fit,) = cell.runs
            assert len(fit.dev) == len(targets) + 1 and cell.metric == "share"
        elif "XNLI" in cell.column:
            assert len(cell.runs) == 1
        elif cell.row.endswith("| mean"):
            assert [(getattr(r, "words", r)).pair[1] for r in cell.runs] == list(targets)
        else:
            assert [(getattr(r, "words", r)).pair for r in cell.runs] == [
                ("en", cell.row.split(" | ")[-1])
            ]


@pytest.mark.parametrize("scale", ("smoke", "laptop", "gpu", "paper"))
def test_no_bert_has_a_score_without_its_gate(scale):
    made = [c for c in list_table_entries(scale, "micro", seeds=1) if " | BERT " in c.row]

    def model(cell):
        return cell.row.split(" | ")[1].removesuffix(", mapped")

    gated = {model(c) for c in made if c.column == PERPLEXITY_COLUMN}
    sizes = window_config(scale, "micro")
    assert gated == {model(c) for c in made} and len(gated) == len(sizes.sentences) * len(
        window_size.slice_lengths(sizes, 0)
    )


def test_who_has_not_learnt_to_read_is_told_from_who_has():
    """Its scores in every language, and its mapped ones, in that corpus alone; neither its share
    nor a floor nor Word2Vec.
    """
    models = "en-xx | BERT small, whole | mean", "en-xx | BERT small, 20 pieces | mean"
    rows = [
        *models,
        "en-es | BERT small, 20 pieces | es",
        "en-es | BERT small, 20 pieces, mapped | es",
        "untrained | en | es",
        "en-es | Word2Vec small, window 5 | es",
    ]
    told = [(row, "MRR", corpus, 0.2) for corpus in ("micro", "other") for row in rows]
    told += [
        (model, SHARE, corpus, share)
        for corpus, shares in (("micro", (0.5, 0.51)), ("other", (0.6, 0.4)))
        for model, share in zip(models, shares)
    ]
    frame = pd.DataFrame(told, columns=["row", "column", "corpus", "value"])
    stuck = frame[window_size.is_untrained_row(frame, LEARNT)]
    assert set(stuck.column) == {"MRR"}
    assert (
        stuck[stuck.corpus == "micro"].row.tolist() == rows[1:4]
        and stuck[stuck.corpus == "other"].row.tolist() == rows[:1]
    )


def test_all_models_are_asked_for_the_same_words():
    looked = [
        r
        for c in list_table_entries("gpu", "micro", seeds=1)
        for r in c.runs
        if isinstance(r, WordSpec) and r.pair == ("en", "fr")
    ]
    assert (
        len({r.texts for r in looked}) == 1
        and len({replace(r.dictionary, identical=True) for r in looked}) == 1
    )


def test_real_text_on_a_laptop_is_for_word2vec_alone():
    made = list_table_entries("laptop", "running", seeds=1)
    assert {c.table for c in made} == {FIGURE4} and {c.paper for c in made} == {"liu2020a"}


def test_the_papers_text_has_a_gate_in_every_language():
    dev = {
        run.dev
        for c in list_table_entries("paper", "wiki", seeds=1)
        if c.column == PERPLEXITY_COLUMN
        for run in c.runs
    }
    assert {text.source for texts in dev for text in texts} == {
        f"text/wiki-{l}" for l in ("en", *window_config("paper", "wiki").targets)
    }
    assert all(text.part == "dev" for texts in dev for text in texts)


@pytest.mark.ci
def test_a_laptop_has_words_enough_for_its_vocabulary(tmp_path):
    spec = window_bert_spec(window_config("laptop", "micro"), 4000, 0, seed=0).tokenizer
    run([spec], Store(tmp_path), Inline(), progress=False)
    assert tokenizers.read_tokenizer(Store(tmp_path).path(spec)).get_vocab_size() == spec.size


def test_languages_of_ones_own_are_targets_and_a_section_without_windows_is_told(monkeypatch):
    assert (
        window_config("laptop", "micro").targets
        == ("fr", "es", "de", "el")
        == window_config("laptop", "micro-parallel").targets
    )
    assert window_config("smoke", "micro", languages="de,el").targets == ("de", "el")
    monkeypatch.setattr(
        window_size.liu2020_common, "study_config", lambda *given: replace(SIZES, windows=None)
    )
    with pytest.raises(
        InputError,
        match="^smoke.micro says nothing of windows: add `windows` to it, or choose micro$",
    ):
        window_config("smoke", "micro")
