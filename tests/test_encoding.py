"""Pairs and words as a model reads them, against the tokenizer's own pair encoding, truncation and
word numbers.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, RobertaConfig

from xlingual_nb.errors import InputError
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.tasks.encoding import (
    encode_pairs,
    encode_words,
    pieces,
    truncated_pair_lengths,
)
from xlingual_nb.tasks.pair_classifier import (
    check_pairs,
    pair_batch,
    max_pair_tokens,
)
from xlingual_nb.text import tokenizers as ours
from xlingual_nb.text.records import load_records
from xlingual_nb.text.tokenizers import Encoded

RECORDS = load_records("nli", "micro/en", size=30)
NAMES = load_records("ner", "micro/en", size=40)


@pytest.fixture(scope="module")
def wordpiece():
    return ours.train_wordpiece(
        [r[side] for r in RECORDS for side in ("premise", "hypothesis")], 200
    )


@pytest.fixture(scope="module")
def outside(wordpiece, tmp_path_factory):
    """The same tokenizer, as anybody opens it."""
    ours.save_tokenizer(wordpiece, folder := tmp_path_factory.mktemp("tokenizer"))
    return AutoTokenizer.from_pretrained(folder)


def checkpoint(folder, words=200, **sizes):
    return load_checkpoint(tiny_checkpoint(folder, words=words, **sizes))


def test_a_plain_pair_is_what_the_tokenizer_makes_of_it(wordpiece, outside, tmp_path):
    model = checkpoint(tmp_path, max_position_embeddings=90)
    premises, hypotheses, labels = encode_pairs(wordpiece, RECORDS)
    for max_tokens in (90, 30, 17, 16):
        inputs, parts = pair_batch(
            model, premises, hypotheses, range(len(RECORDS)), "en", max_tokens
        )
        wanted = outside(
            [r["premise"] for r in RECORDS],
            [r["hypothesis"] for r in RECORDS],
            padding=True,
            truncation="longest_first",
            max_length=max_tokens,
            return_tensors="pt",
        )
        assert set(inputs) == set(wanted)
        assert all(torch.equal(inputs[name], wanted[name]) for name in inputs)
        content = (inputs["input_ids"] > 4) | (inputs["input_ids"] == 1)
        assert torch.equal(parts > 0, content) and torch.equal(
            parts == 2, content & (inputs["token_type_ids"] == 1)
        )


@given(st.integers(1, 30), st.integers(1, 30), st.integers(2, 40))
def test_truncation_is_that_of_the_tokenizers_library(a, b, limit):
    t = Tokenizer(models.WordLevel({"x": 0, "y": 1}, unk_token="x"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    t.enable_truncation(limit, strategy="longest_first")
    ids = t.encode("x " * a, "y " * b).ids
    assert tuple(
        int(n[0]) for n in truncated_pair_lengths(np.array([a]), np.array([b]), limit)
    ) == (
        ids.count(0),
        ids.count(1),
    )


def test_labels_and_texts_without_pieces(wordpiece, outside):
    records = [
        dict(premise="\x00", hypothesis="a", label="neutral"),
        dict(premise="a", hypothesis="a", label="contradiction"),
    ]
    for tokenizer in (wordpiece, outside):
        premises, _, labels = encode_pairs(tokenizer, records)
        assert (
            premises[0].tolist() == [1] and labels.tolist() == [1, 2] and labels.dtype == np.int64
        )
        assert pieces(tokenizer, [r["premise"] for r in RECORDS]) == ours.encode(
            wordpiece, [r["premise"] for r in RECORDS]
        )


@pytest.mark.parametrize("outer", [False, True])
def test_words(wordpiece, outside, outer):
    records = [*NAMES, dict(tokens=["\x00", NAMES[0]["tokens"][0], "\x00"])]
    encoded, firsts = encode_words(outside if outer else wordpiece, records)
    for i, r in enumerate(NAMES):
        whole = outside(r["tokens"], is_split_into_words=True, add_special_tokens=False)
        assert encoded[i].tolist() == whole["input_ids"]
        assert firsts[i].tolist() == [whole.word_ids().index(w) for w in range(len(r["tokens"]))]
    assert encoded[-1][firsts[-1]].tolist() == [1, encoded[0][0], 1] and len(firsts) == len(records)


@pytest.fixture
def two(tmp_path):
    entries = [
        dict(name="en"),
        dict(name="fake", token_offset=40, special_offset=40, position_offset=12),
        dict(name="es", separator=79),
        dict(name="ne", token_offset=40, inverted=True),
    ]
    return checkpoint(tmp_path, 40, languages=entries)


A, B = Encoded.of([[5, 6, 7], [5]]), Encoded.of([[45, 46], [47]])


def test_views_of_two_languages(two):
    inputs, parts = pair_batch(two, A, B, [1, 0], ("en", "fake"))
    assert inputs["input_ids"].tolist() == [[2, 5, 3, 47, 43, 0, 0, 0], [2, 5, 6, 7, 3, 45, 46, 43]]
    assert inputs["position_ids"].tolist() == [
        [0, 1, 2, 15, 16, 0, 0, 0],
        [0, 1, 2, 3, 4, 17, 18, 19],
    ]
    assert inputs["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1]]
    assert inputs["attention_mask"].tolist() == [[1] * 5 + [0] * 3, [1] * 8] and parts.tolist() == [
        [0, 1, 0, 2, 0, 0, 0, 0],
        [0, 1, 1, 1, 0, 2, 2, 0],
    ]
    inputs, _ = pair_batch(two, B, A, [1], ("fake", "es"))
    assert inputs["input_ids"].tolist() == [[42, 47, 43, 5, 79]] and inputs[
        "position_ids"
    ].tolist() == [[12, 13, 14, 3, 4]]
    inputs, _ = pair_batch(two, A, A, [1], ("es", "es"))
    assert inputs["input_ids"].tolist() == [[2, 5, 79, 5, 79]] and "position_ids" not in inputs


def test_length_and_the_side_that_is_cut(two):
    long = Encoded.of([range(5, 25)])
    # the positions of en end where fake's begin
    assert max_pair_tokens(two, "en", 128) == max_pair_tokens(two, ("es", "fake"), 128) == 9
    assert pair_batch(two, long, A, [0], "en")[0]["input_ids"].tolist() == [
        [2, *range(5, 11), 3, 5, 6, 7, 3]
    ]
    backwards = Encoded.of([range(64, 44, -1)])
    assert pair_batch(two, backwards, A, [0], ("ne", "en"), 10)[0]["input_ids"].tolist() == [
        [2, 48, 47, 46, 45, 3, 5, 6, 7, 3]
    ]


def test_a_model_that_tells_languages_by_segment(tmp_path):
    model = checkpoint(tmp_path, 40, languages=[dict(name="en"), dict(name="fake", token_type=1)])
    types = lambda views: pair_batch(model, A, A, [1], views)[0]["token_type_ids"].tolist()[0]
    assert types(("en", "en")) == [0] * 5 and types(("fake", "fake")) == [1] * 5
    assert types(("fake", "en")) == [1, 1, 1, 0, 0] and types(("en", "fake")) == [0, 0, 0, 1, 1]


def test_a_model_without_segments(tmp_path):
    config = RobertaConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        type_vocab_size=1,
        max_position_embeddings=20,
        pad_token_id=0,
    )
    model = checkpoint(tmp_path, 40, config=config)
    inputs, _ = pair_batch(model, A, A, [0, 1], "any")
    assert set(inputs) == {"input_ids", "attention_mask"} and model.model.base_model(
        **inputs
    ).last_hidden_state.shape == (2, 9, 16)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda c, t: encode_pairs(t, []), "give at least one"),
        (lambda c, t: encode_words(t, []), "give at least one"),
        (
            lambda c, t: encode_pairs(t, [dict(premise="a", hypothesis="b", label="yes")]),
            "label 'yes' is not known",
        ),
        (
            lambda c, t: encode_words(t, [dict(tokens=["a"]), dict(tokens=[])]),
            "1 sentences have no words (first: number 1)",
        ),
        (lambda c, t: pair_batch(c, A, A, [0], "en", 4), "a pair takes 5 or more"),
        (lambda c, t: pair_batch(c, A, A, [0], "de"), "not 'de'"),
        (
            lambda c, t: pair_batch(c, A, A, [0], ("en", "en", "en")),
            "3 languages for a sentence pair",
        ),
        (lambda c, t: check_pairs(c, A, A.take([0]), "en"), "2 premises and 1 hypotheses"),
        (lambda c, t: check_pairs(c, A, A, "fake"), "outside 40..79"),
        (
            lambda c, t: check_pairs(c, A, Encoded.of([[5], []]), "en"),
            "1 sentences of 'en' have no tokens",
        ),
    ],
)
def test_one_line_for_what_is_wrong(two, wordpiece, call, said):
    with pytest.raises(InputError) as caught:
        call(two, wordpiece)
    assert said in str(caught.value) and "\n" not in str(caught.value)
