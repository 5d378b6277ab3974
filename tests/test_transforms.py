"""Transforms against loops over lists, and the algebra that they must obey."""

import hashlib
import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from xlingual_nb.errors import InputError
from xlingual_nb.text.corpora import Corpus
from xlingual_nb.text.tokenizers import Encoded, build_wordpiece
from xlingual_nb.text.transforms import (
    PERMUTATIONS,
    TEXT_TRANSFORMS,
    TRANSFORMS,
    apply_transforms,
    apply_text_transforms,
    bounded_integers,
    check_transforms,
    check_text_transforms,
    split_halves,
    invert_order,
    random_bits,
    type_token_overlap,
    sample_pair_swaps,
    parse_transform,
    permute,
    sample_released_swaps,
    shared_subwords,
    shift_ids,
    shift_character,
    shift_unshared,
    random_permutations,
    unicode_shift,
    unigram,
    concatenated_ranges,
)

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
rows = st.lists(st.lists(st.integers(0, 2047), max_size=8), max_size=9)
lists = lambda e: [s.tolist() for s in e]
FIXED = {c for c in range(0x110000) if 0xD800 <= c < 0xE000 or chr(c).isspace()}


@given(rows)
def test_invert(sentences):
    e = Encoded.of(sentences)
    assert lists(invert_order(e)) == [s[::-1] for s in sentences]
    assert invert_order(invert_order(e)) == e


@given(rows, st.integers(0, 100_000))
def test_shift(sentences, by):
    e = Encoded.of(sentences)
    assert lists(shift_ids(e, by)) == [[i + by for i in s] for s in sentences]
    assert shift_ids(shift_ids(e, by), -by) == e and shift_ids(e, by).ids.dtype == np.int32
    assert invert_order(shift_ids(e, by)) == shift_ids(invert_order(e), by)


@given(rows)
def test_halves_partition(sentences):
    first, second = map(lists, split_halves(Encoded.of(sentences)))
    assert first + second == sentences and len(second) - len(first) in (0, 1)


@given(rows, st.lists(st.sampled_from(["enfake", "inv_order", "half(0)", "half(1)"]), max_size=4))
def test_chains_go_from_left_to_right(sentences, chain):
    by_hand = {
        "enfake": lambda r: [[i + 2048 * (i > 4) for i in s] for s in r],
        "inv_order": lambda r: [s[::-1] for s in r],
        "half(0)": lambda r: r[: len(r) // 2],
        "half(1)": lambda r: r[len(r) // 2 :],
    }
    expected = sentences
    for name in chain:
        expected = by_hand[name](expected)
    before = Encoded.of(sentences)
    assert lists(apply_transforms(chain, before, 2048)) == expected
    assert lists(before) == sentences  # and the input is as it was


def test_unknown_transform():
    with pytest.raises(
        InputError, match="'inverted' is not known: choose from enfake.*, inv_order"
    ):
        apply_transforms(["enfake", "inverted"], Encoded.of([[1]]), 9)


# --- draws


def test_splitmix64_as_published():
    """The first numbers of the generator from state 1234567, as its authors' C code prints them:
    mix(state + k * golden).
    """

    def splitmix(state):
        mask = 2**64 - 1
        while True:
            state = (state + 0x9E3779B97F4A7C15) & mask
            z = state
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
            z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
            yield z ^ (z >> 31)

    assert next(splitmix(1234567)) == 6457827717110365317
    mix = lambda x: next(splitmix((x - 0x9E3779B97F4A7C15) % 2**64))
    golden = lambda x: (x + 1) * 0x9E3779B97F4A7C15
    import zlib

    start = mix(golden(zlib.crc32(repr(("k", 3)).encode())) % 2**64)
    by_hand = [
        mix((mix((start + golden(row)) % 2**64) + golden(place)) % 2**64)
        for row, place in [(0, 0), (0, 1), (7, 0), (10**6, 999)]
    ]
    assert random_bits(("k", 3), [0, 0, 7, 10**6], [0, 1, 0, 999]).tolist() == by_hand


def test_below_is_even_and_bounded():
    bits = random_bits("even", np.repeat(np.arange(300), 100), np.tile(np.arange(100), 300))
    assert not bounded_integers(1, bits).any()
    for bound in (2, 7, 1000):
        drawn = bounded_integers(bound, bits)
        assert drawn.min() >= 0 and drawn.max() < bound
        assert even(np.bincount(drawn, minlength=bound))
    assert abs(np.corrcoef(bits[:-1] / 2**64, bits[1:] / 2**64)[0, 1]) < 0.03


def even(counts) -> bool:
    """Not rejected as even by chi-square at 1 in 10,000."""
    from scipy.stats import chisquare

    return chisquare(counts).pvalue > 1e-4


@given(st.lists(st.integers(0, 6), max_size=8))
def test_within_and_shuffled(counts):
    counts = np.array(counts, int)
    assert concatenated_ranges(counts).tolist() == [k for n in counts for k in range(n)]
    mixed = (
        np.split(random_permutations("x", np.arange(len(counts)), counts), np.cumsum(counts)[:-1])
        if len(counts)
        else []
    )
    assert [sorted(m.tolist()) for m in mixed] == [list(range(n)) for n in counts]


def test_every_order_is_equally_likely():
    orders = random_permutations("orders", np.arange(24_000), np.full(24_000, 4)).reshape(-1, 4)
    assert even(
        list(Counter(map(tuple, orders.tolist())).values())
        + [0] * (24 - len({*map(tuple, orders.tolist())}))
    )


# --- the permutation of K


def naive(sentence, left, right):
    sentence = list(sentence)
    for a, b in zip(left, right):
        sentence[a], sentence[b] = sentence[b], sentence[a]
    return sentence


@given(
    rows,
    st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]),
    st.integers(0, 5),
    st.integers(1, 40),
    st.sampled_from(["pairs", "released"]),
)
def test_swaps_are_done_one_after_another(sentences, p, seed, portion, how):
    e = Encoded.of(sentences)
    draw = dict(pairs=sample_pair_swaps, released=sample_released_swaps)[how]
    expected = []
    for i, s in enumerate(sentences):
        swaps, n = draw(np.array([i]), np.array([len(s)]), p, seed), len(s)
        every = {*itertools.combinations(range(n), 2)}
        drawn = list(zip(swaps.left.tolist(), swaps.right.tolist()))
        if how == "pairs":
            assert len(drawn) == int(p * len(every) + 0.5) == len({*drawn}) and {*drawn} <= every
        else:
            assert len(drawn) == max(0, int((n - 1) * p)) and all(
                a != b and 0 <= min(a, b) and max(a, b) < n for a, b in drawn
            )
        expected.append(naive(s, *(zip(*drawn) if drawn else ((), ()))))
    assert lists(permute(e, p, seed, how, portion)) == expected and lists(e) == sentences


@given(rows, st.floats(0, 1), st.integers(0, 5), st.sampled_from(sorted(PERMUTATIONS)))
def test_only_the_order_changes_and_nothing_across_sentences(sentences, p, seed, how):
    e = Encoded.of(sentences)
    once = permute(e, p, seed, how)
    assert [sorted(s) for s in lists(once)] == [sorted(s) for s in sentences] and once == permute(
        e, p, seed, how, portion=3
    )
    assert permute(e, 0.0, seed, how) == e
    if len(e):
        assert (
            lists(permute(e.take([0]), p, seed, how)) == lists(once)[:1]
        )  # a sentence's fate is its own


def released_shuffle(n, p, rng):
    """The other method of K's released code, in plain Python."""
    drawn = [i for i in range(n) if rng.random() <= p]
    there = dict(zip(drawn, rng.sample(drawn, len(drawn))))
    return [there.get(i, i) for i in range(n)]


@pytest.mark.parametrize("p", [0.04, 0.25, 0.5, 1.0])
def test_each_position_is_drawn_for_itself(p):
    """How many places of a sentence move varies as in the released code; with a fixed share of the
    places it would not.
    """
    ours = permute(Encoded.of([range(10)] * 4000), p, method="positions").ids.reshape(
        -1, 10
    ) != np.arange(10)
    rng = random.Random(1)
    theirs = np.array([released_shuffle(10, p, rng) for _ in range(4000)]) != np.arange(10)
    assert even(ours.sum(0)) and stats.ks_2samp(ours.sum(1), theirs.sum(1)).pvalue > 0.001


def test_pairs_and_swaps_are_drawn_evenly():
    n, sentences = 6, 4000
    for draw, p in ((sample_pair_swaps, 0.3), (sample_released_swaps, 0.9)):
        s = draw(np.arange(sentences), np.full(sentences, n), p, 0)
        seen = Counter(tuple(sorted(x)) for x in zip(s.left.tolist(), s.right.tolist()))
        assert len(seen) == n * (n - 1) // 2 and even(list(seen.values()))


def test_places_are_even_in_the_end():
    """Of a sentence of 12 pieces whose pairs are all swapped every piece is as likely at any place;
    of shuffled places, too.
    """
    for how in ("pairs", "positions"):
        order = permute(Encoded.of([range(12)] * 6000), 1.0, method=how).ids.reshape(-1, 12)
        assert all(even(np.bincount(column, minlength=12)) for column in order.T)


def test_seeds_and_sentences_differ():
    e = Encoded.of([range(30)] * 2)
    assert (
        permute(e, 0.5, 0) != permute(e, 0.5, 1)
        and permute(e, 0.5)[0].tolist() != permute(e, 0.5)[1].tolist()
    )


# --- shared pieces


@given(st.integers(5, 300), st.floats(0, 1), st.floats(0, 1), st.integers(0, 3))
def test_shares_are_exact_and_nested(vocabulary, a, b, seed):
    less, more = (shared_subwords(vocabulary, s, seed) for s in sorted((a, b)))
    assert (
        less.shape == (vocabulary,)
        and more.sum() == round(max(a, b) * (vocabulary - 5))
        and (less <= more).all()
        and not more[:5].any()
    )


def test_shares_differ_by_seed_and_lie_anywhere():
    assert (shared_subwords(500, 0.5, 0) != shared_subwords(500, 0.5, 1)).any()
    assert even(shared_subwords(20_005, 0.25)[5:].reshape(20, -1).sum(1))


@given(rows, st.floats(0, 1), st.integers(0, 3))
def test_enfake_with_a_share(sentences, share, seed):
    shared, e = shared_subwords(2048, share, seed), Encoded.of(sentences)
    expected = [[i if i < 5 or shared[i] else i + 2048 for i in s] for s in sentences]
    assert (
        lists(apply_transforms(f"enfake({share!r},{seed})", e, 2048))
        == lists(shift_unshared(e, 2048, share, seed))
        == expected
    )
    assert apply_transforms("enfake(0)", e, 2048) == apply_transforms("enfake", e, 2048)


few = st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=4)


@given(few, few)
def test_overlap(first, second):
    a, b = ([i for s in text for i in s if i > 4] for text in (first, second))
    common, either = {*a} & {*b}, {*a} | {*b}
    assert type_token_overlap(Encoded.of(first), Encoded.of(second)) == dict(
        types=len(common) / len(either) if either else 0,
        tokens=sum(i in common for i in a + b) / len(a + b) if a + b else 0,
    )


# --- words by frequency alone

TEXT = Corpus(
    "en",
    tuple(
        tuple(f"the cat {'sat ' * (i % 3)}on mat {i % 5}" for i in range(j, j + 7))
        for j in range(0, 2100, 7)
    ),
    tuple(tuple(map(str, range(j, j + 7))) for j in range(0, 2100, 7)),
)


def test_unigram_keeps_lengths_and_draws_by_frequency():
    from scipy.stats import chisquare

    made = unigram(TEXT)
    length = lambda c: [[len(s.split()) for s in d] for d in c.documents]
    assert (
        length(made) == length(TEXT)
        and made.ids is None
        and made.language == "en"
        and unigram(made).ids is None
    )
    old, new = (Counter(w for s in c.sentences for w in s.split()) for c in (TEXT, made))
    assert (
        {*new} <= {*old}
        and chisquare([new[w] for w in old], list(old.values())).pvalue > 1e-4
        and old != new
    )
    firsts = Counter(s.split()[0] for s in made.sentences)  # no place is left to any word
    assert (
        chisquare(
            [firsts[w] for w in old],
            [n * sum(firsts.values()) / sum(old.values()) for n in old.values()],
        ).pvalue
        > 1e-4
    )
    assert unigram(TEXT).documents == made.documents != unigram(TEXT, 1).documents


def test_unigram_of_next_to_nothing():
    assert unigram(Corpus("en", ())).documents == () and unigram(
        Corpus("en", (("", "a a"),))
    ).documents == (("", "a a"),)


# --- chains as they are written


def test_text_chains():
    assert (
        apply_text_transforms(["unicode_shift", "unigram(3)"], TEXT).documents
        == unigram(unicode_shift(TEXT), 3).documents
    )
    assert (
        apply_text_transforms((), TEXT) is TEXT
        and apply_text_transforms("unicode_shift(5)", TEXT).documents
        == unicode_shift(TEXT, 5).documents
    )


@pytest.mark.parametrize(
    "written, said",
    [
        ("permute", "0 values: write permute"),
        ("half", "write half"),
        ("permute(1.01)", "p is '1.01': take a number from 0.0 to 1.0"),
        ("permute(-0.1)", "p is"),
        ("permute(nan)", "p is 'nan'"),
        ("permute()", "p is ''"),
        ("permute(a)", "p is 'a'"),
        ("permute(.5,1,2)", "3 values"),
        ("permute(.5,1.5)", "seed is '1.5': take a whole number"),
        ("half(2)", "which is '2'"),
        ("half(0.0)", "whole number from 0 to 1"),
        ("inv_order(1)", "write inv_order"),
        ("enfake(2)", "share is '2'"),
        ("enfake(0.5", "not known"),
        ("unigram", "it is one for a corpus"),
        ("", "not known"),
        ("enfake ", "not known"),
    ],
)
def test_wrong_chains_are_refused_before_any_work(written, said):
    with pytest.raises(InputError, match=said.replace("(", r"\(")) as caught:
        check_transforms(["inv_order", written])
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError):
        apply_transforms(["enfake", written], None, 9)


def test_wrong_text_chains():
    for written, said in [
        ("permute(0.5)", "it is one for a language.*unicode_shift.*unigram"),
        ("unicode_shift(0.5)", "whole number"),
        ("unigram(-1)", "seed is '-1'"),
        ("fake", "not known: choose from"),
    ]:
        with pytest.raises(InputError, match=said):
            check_text_transforms(["unicode_shift", written])
        with pytest.raises(InputError, match=said):
            apply_text_transforms([written], None)


def test_all_names_are_known():
    for written in (
        "enfake",
        "enfake(0.25)",
        "enfake(1, 7)",
        "inv_order",
        "half(0)",
        "permute(0.5)",
        "permute_released(0)",
        "permute_positions(1,9)",
    ):
        assert check_transforms(written) is None and callable(parse_transform(written, TRANSFORMS))
    assert check_text_transforms(sorted(TEXT_TRANSFORMS)) is None


def test_the_same_in_every_process():
    code = "import sys; sys.path.insert(0, 'tests'); from test_transforms import *; print(drawn())"
    here = Path(__file__).parent.parent
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(here)},
    ).stdout.strip()
    assert said == drawn() == "ccf8b3c6069ab0fa"


def drawn() -> str:
    """Everything that is drawn at random, in one digest: if it moves, every run made before is
    another run.
    """
    e = Encoded.of([range(i % 23) for i in range(200)])
    parts = [permute(e, p, 3, how).ids for how in sorted(PERMUTATIONS) for p in (0.25, 1.0)] + [
        shared_subwords(999, 0.3, 1)
    ]
    return hashlib.sha256(
        b"".join(map(np.ndarray.tobytes, parts)) + repr(unigram(TEXT).documents).encode()
    ).hexdigest()[:16]


# --- the Unicode shift


@pytest.mark.parametrize("by", [200_000, 1, -3, 0xD7C3])
def test_unicode_shift_is_a_bijection_that_avoids_white_space_and_surrogates(by):
    domain = [c for c in range(0x110000) if c not in FIXED]
    image = [ord(shift_character(chr(c), by)) for c in domain]
    assert FIXED.isdisjoint(image) and len(set(image)) == len(domain)
    assert all(shift_character(chr(i), -by) == chr(c) for c, i in zip(domain[::401], image[::401]))


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=4
    ),
    st.integers(-(2**21), 2**21),
)
def test_unicode_shift_comes_back(sentences, by):
    corpus = Corpus("en", (tuple(sentences),), (tuple(map(str, range(len(sentences)))),))
    there = unicode_shift(corpus, by)
    assert (
        unicode_shift(there, -by).documents == corpus.documents
        and there.ids == corpus.ids
        and there.language == "enfake"
    )
    assert [[c.isspace() for c in s] for s in there.sentences] == [
        [c.isspace() for c in s] for s in sentences
    ]


SCRIPTS = [
    "And God said.",
    "Ὁ Λόγος ἦν",
    "Việt Nam",
    "Слово было",
    "परमेश्वर ने",
    "فِي الْبَدْءِ",
    "太初有道",
    "ในเริ่มแรก",
]


@pytest.mark.parametrize("text", SCRIPTS)
def test_k_adds_200000_and_the_tokenizer_keeps_every_sign(text):
    shifted = unicode_shift(Corpus("x", ((text,),))).sentences[0]
    assert [ord(b) - ord(a) for a, b in zip(text, shifted) if not a.isspace()] == [200_000] * sum(
        not c.isspace() for c in text
    )
    assert build_wordpiece({}).normalizer.normalize_str(shifted) == shifted


def test_shifted_punctuation_is_no_punctuation():
    """D footnote 3: the two languages of K are not cut alike."""
    cut = lambda s: [w for w, _ in build_wordpiece({}).pre_tokenizer.pre_tokenize_str(s)]
    text = "dry-cleaning, twice."
    assert (
        len(cut(text)) == 6 and len(cut(unicode_shift(Corpus("en", ((text,),))).sentences[0])) == 2
    )
