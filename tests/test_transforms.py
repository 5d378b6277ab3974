"""Transforms against loops over lists, and the algebra that they must obey."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from xlingual_nb.errors import InputError
from xlingual_nb.text.corpora import Corpus
from xlingual_nb.text.tokenizers import Encoded, blank
from xlingual_nb.text.transforms import TRANSFORMS, apply, halves, invert, shift, shift_character, unicode_shift

settings.register_profile("shared machine", deadline=None); settings.load_profile("shared machine")
rows = st.lists(st.lists(st.integers(0, 2047), max_size=8), max_size=9)
lists = lambda e: [s.tolist() for s in e]
FIXED = {c for c in range(0x110000) if 0xD800 <= c < 0xE000 or chr(c).isspace()}


@given(rows)
def test_invert(sentences):
    e = Encoded.of(sentences)
    assert lists(invert(e)) == [s[::-1] for s in sentences]
    assert invert(invert(e)) == e


@given(rows, st.integers(0, 100_000))
def test_shift(sentences, by):
    e = Encoded.of(sentences)
    assert lists(shift(e, by)) == [[i + by for i in s] for s in sentences]
    assert shift(shift(e, by), -by) == e and shift(e, by).ids.dtype == np.int32
    assert invert(shift(e, by)) == shift(invert(e), by)


@given(rows)
def test_halves_partition(sentences):
    first, second = map(lists, halves(Encoded.of(sentences)))
    assert first + second == sentences and len(second) - len(first) in (0, 1)


@given(rows, st.lists(st.sampled_from(sorted(TRANSFORMS)), max_size=4))
def test_chains_go_from_left_to_right(sentences, chain):
    by_hand = {"enfake": lambda r: [[i + 2048 for i in s] for s in r], "inv_order": lambda r: [s[::-1] for s in r],
               "half(0)": lambda r: r[:len(r) // 2], "half(1)": lambda r: r[len(r) // 2:]}
    expected = sentences
    for name in chain: expected = by_hand[name](expected)
    before = Encoded.of(sentences)
    assert lists(apply(chain, before, 2048)) == expected
    assert lists(before) == sentences                      # and the input is as it was


def test_unknown_transform():
    with pytest.raises(InputError, match="'inverted' is not known: choose from enfake, inv_order"):
        apply(["enfake", "inverted"], Encoded.of([[1]]), 9)


# --- the Unicode shift

@pytest.mark.parametrize("by", [200_000, 1, -3, 0xD7C3])
def test_unicode_shift_is_a_bijection_that_avoids_white_space_and_surrogates(by):
    domain = [c for c in range(0x110000) if c not in FIXED]
    image = [ord(shift_character(chr(c), by)) for c in domain]
    assert FIXED.isdisjoint(image) and len(set(image)) == len(domain)
    assert all(shift_character(chr(i), -by) == chr(c) for c, i in zip(domain[::401], image[::401]))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=4),
       st.integers(-2**21, 2**21))
def test_unicode_shift_comes_back(sentences, by):
    corpus = Corpus("en", (tuple(sentences),), (tuple(map(str, range(len(sentences)))),))
    there = unicode_shift(corpus, by)
    assert unicode_shift(there, -by).documents == corpus.documents and there.ids == corpus.ids and there.language == "enfake"
    assert [[c.isspace() for c in s] for s in there.sentences] == [[c.isspace() for c in s] for s in sentences]


SCRIPTS = ["And God said.", "Ὁ Λόγος ἦν", "Việt Nam", "Слово было", "परमेश्वर ने", "فِي الْبَدْءِ", "太初有道", "ในเริ่มแรก"]


@pytest.mark.parametrize("text", SCRIPTS)
def test_k_adds_200000_and_the_tokenizer_keeps_every_sign(text):
    shifted = unicode_shift(Corpus("x", ((text,),))).sentences[0]
    assert [ord(b) - ord(a) for a, b in zip(text, shifted) if not a.isspace()] == [200_000] * sum(not c.isspace() for c in text)
    assert blank({}).normalizer.normalize_str(shifted) == shifted


def test_shifted_punctuation_is_no_punctuation():
    "D footnote 3: the two languages of K are not cut alike."
    cut = lambda s: [w for w, _ in blank({}).pre_tokenizer.pre_tokenize_str(s)]
    text = "dry-cleaning, twice."
    assert len(cut(text)) == 6 and len(cut(unicode_shift(Corpus("en", ((text,),))).sentences[0])) == 2
