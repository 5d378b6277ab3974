"""The same vocabulary in every process, nothing lower-cased, and ids equal to a longest-match loop
and to transformers'.
"""

import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from xlingual_nb.errors import InputError
from xlingual_nb.text.corpora import find_data_file, read_bible
from xlingual_nb.text.tokenizers import (
    SPECIALS,
    Encoded,
    select_alphabet,
    build_wordpiece,
    encode,
    read_tokenizer,
    pair_vocabulary,
    save_tokenizer,
    train_wordpiece,
    train_words,
)
from xlingual_nb.text.vocabularies import (
    TOKENIZER_TRAINERS,
    add_markers,
    expected_counts,
    build_lattice,
    best_segmentation,
    binary_splits,
    train_tokenizer,
    train_characters,
    train_unigram,
    select_unigram_subwords,
    word_starts,
)

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
real = pytest.mark.skipif(
    not Path(os.environ.get("XLINGUAL_DATA") or "-", "bible").is_dir(),
    reason="XLINGUAL_DATA names no folder with Bibles",
)
CASED = [
    "Việt Nam là một nước. Đức Chúa Jêsus",
    "Ο Ναός και η Άννα είναι ΩΡΑΊΑ;",
    "यीशु ने कहा, परमेश्वर है।",
    "THE Émile Zola: dry-cleaning!",
    "太初有道，道与神同在",
]
SYLLABLES = ["ba", "ke", "lo", "mi", "nu", "ta", "che", "sho", "Ré", "đi"]


def babble(n: int, seed: int = 0) -> list[str]:
    """Sentences of made-up words, the same on every machine; counts collide often, so that ties
    have to be broken.
    """
    dice = random.Random(seed)
    words = ["".join(dice.choice(SYLLABLES) for _ in range(dice.randint(1, 3))) for _ in range(400)]
    return [" ".join(dice.choice(words) for _ in range(dice.randint(3, 9))) + "." for _ in range(n)]


def digest(tokenizer) -> str:
    return hashlib.sha256(
        json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=False).encode()
    ).hexdigest()


# --- determinism


def test_golden_vocabulary():
    """Fixed once and for all: if this moves, every run made before is another run."""
    assert (
        digest(train_wordpiece(babble(300), 200))
        == "436f7147a45809633bd111aee703097029ebb18b9842cddb5f527904ea5adf23"
    )


def test_golden_unigram():
    assert (
        digest(train_unigram(babble(300), 200))
        == "407307d2826e64f6ac00a6580600e7a304962998ea25e9fe84853970c8e926f1"
    )


def all_digests() -> str:
    return " ".join(
        digest(train_tokenizer(kind, babble(2000, 1), 300)) for kind in TOKENIZER_TRAINERS
    )


def test_fresh_processes_train_the_same_vocabulary():
    code = "import sys; sys.path.insert(0, 'tests'); from test_tokenizers import *; print(all_digests())"
    here = Path(__file__).parent.parent
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=here,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(i), "PYTHONPATH": str(here)},
        )
        for i in range(2)
    ]
    said = [r.communicate()[0].strip() for r in runs]
    assert said[0] == said[1] == all_digests() and len(set(said[0].split())) == 4


@pytest.mark.parametrize("kind", TOKENIZER_TRAINERS)
def test_order_of_sentences_does_not_matter(kind):
    text = babble(500, 2)
    assert digest(train_tokenizer(kind, text, 300)) == digest(
        train_tokenizer(kind, text[::-1], 300)
    )


# --- the vocabulary


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
@pytest.mark.parametrize("size", [40, 128, 250])
def test_exact_size_and_specials_first(size, kind):
    t = train_tokenizer(kind, babble(500), size)
    assert t.get_vocab_size() == size and sorted(t.get_vocab().values()) == list(range(size))
    assert tuple(t.id_to_token(i) for i in range(5)) == SPECIALS
    assert 1 not in encode(t, babble(500)).ids


@pytest.mark.parametrize(
    "kind, pieces",
    [
        ("wordpiece", ["a", "b", "##b", "ab"]),
        ("unigram", ["a", "b", "##b", "ab"]),
        ("words", ["ab"]),
        ("characters", ["a", "b", "##b"]),
    ],
)
def test_small_text_gives_fewer(kind, pieces):
    t = train_tokenizer(kind, ["ab ab"], 500)
    assert sorted(t.get_vocab()) == sorted([*SPECIALS, *pieces]) and sorted(
        t.get_vocab().values()
    ) == list(range(5 + len(pieces)))


def test_no_text_or_no_room():
    for text, size, said in [
        ([], 100, "no text"),
        ([" "], 100, "no text"),
        (["abc"], 5, "no room"),
        (["abc"], -1, "no room"),
    ]:
        for kind in TOKENIZER_TRAINERS:
            with pytest.raises(InputError, match=said):
                train_tokenizer(kind, text, size)
    with pytest.raises(
        InputError, match="'bpe' is not known: choose from wordpiece, words, unigram, characters"
    ):
        train_tokenizer("bpe", ["a"], 9)


def test_alphabet_leaves_out_the_rare_and_fits():
    count = Counter({"aaaa": 50_000, "bc": 3, "d": 1})
    assert select_alphabet(count, 99) == (["a", "b", "c", "d"], ["##a", "##c"])
    assert select_alphabet(count, 99, min_share=1e-5) == (["a", "b", "c"], ["##a", "##c"])
    assert select_alphabet(count, 3) == (["a", "b"], ["##a"])


def test_rare_letters_come_in_where_there_is_room():
    t = train_wordpiece([" ".join("神说要有光" * 5)] * 9000 + ["就"], 12)
    assert t.token_to_id("就") is not None


ALIKE = "abcdefgh"


def words_with_rare_letters():
    """Words that all occur equally often, among them some with a letter that has no room."""
    rng = np.random.default_rng(1)
    words = ["".join(rng.choice(list(ALIKE), 5)) for _ in range(150)]
    rare = [word[:2] + sign + word[2:] for word, sign in zip(words, "œæøï" * 8)]
    return words + rare


@pytest.mark.parametrize("size", [25, 60, 120])
def test_no_subword_joins_what_stands_on_both_sides_of_a_letter(size):
    words = words_with_rare_letters() * 2
    vocabulary = train_wordpiece([" ".join(words)] * 3, size).get_vocab()
    subwords = {subword.removeprefix("##") for subword in vocabulary} - set(SPECIALS)
    assert [s for s in subwords if not any(s in word for word in words)] == []


def test_a_letter_without_room_joins_nothing():
    vocabulary = train_wordpiece(["axb a b"] * 10, 9).get_vocab()
    assert set(vocabulary) == {*SPECIALS, "a", "b", "##b"}


@pytest.mark.ci
def test_five_processes_agree_where_everything_ties():
    code = (
        "import sys; sys.path.insert(0, 'tests'); from test_tokenizers import *; "
        "text = [' '.join(words_with_rare_letters())] * 2; "
        "print(hashlib.sha256(train_wordpiece(text, 60).to_str().encode()).hexdigest())"
    )
    here = Path(__file__).parent.parent
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=here,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(i), "PYTHONPATH": str(here)},
        )
        for i in range(5)
    ]
    assert len({run.communicate()[0] for run in runs}) == 1


def test_whole_words():
    text = babble(300)
    count = Counter(w for s in text for w in s.replace(".", " .").split())
    t = train_words(text, 55)
    assert [t.id_to_token(i) for i in range(5, 55)] == sorted(count, key=lambda w: (-count[w], w))[
        :50
    ]
    assert (encode(t, text).ids != 1).sum() == sum(sorted(count.values())[-50:])
    assert encode(pair_vocabulary(t), text) == encode(t, text)
    with pytest.raises(InputError, match="no room"):
        train_words(text, 5)


def test_characters():
    text = ["The cat, the dog.", "Zoë 神说"]
    t = train_characters(text, 99)
    letters = sorted({*"".join(text)} - {" "})
    inside = sorted({c for w in ("The", "cat", "the", "dog", "Zoë") for c in w[1:]})
    assert [t.id_to_token(i) for i in range(5, t.get_vocab_size())] == letters + [
        "##" + c for c in inside
    ]
    assert t.encode("the cog 神", add_special_tokens=False).tokens == [
        "t",
        "##h",
        "##e",
        "c",
        "##o",
        "##g",
        "神",
    ]
    few = train_characters(babble(100), 14)
    count = Counter(c for s in babble(100) for c in s if c != " ")
    # a fifth letter has no room for both its forms
    assert few.get_vocab_size() == 13
    assert {p.removeprefix("##") for p in few.get_vocab()} - {*SPECIALS} == {
        *sorted(count, key=lambda c: (-count[c], c))[:4]
    }


# --- the unigram language model


def ways(word):
    """All ways to cut a word, as lists of pieces."""
    for cuts in itertools.product([False, True], repeat=len(word) - 1):
        ends = [i + 1 for i, c in enumerate(cuts) if c] + [len(word)]
        yield [("##" if a else "") + word[a:b] for a, b in zip([0, *ends], ends)]


@given(
    st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4, unique=True),
    st.randoms(use_true_random=False),
)
def test_expected_counts_against_all_ways_to_cut(words, dice):
    l, times = build_lattice(words), np.array([dice.randint(1, 9) for _ in words], float)
    weight = np.array([dice.uniform(0.01, 1) for _ in l.pieces])
    of, expected = dict(zip(l.pieces, weight)), Counter()
    for word, n in zip(words, times):
        chance = [np.prod([of[p] for p in way]) for way in ways(word)]
        for c, way in zip(chance, ways(word)):
            for p in way:
                expected[p] += n * c / sum(chance)
    assert np.allclose(expected_counts(l, weight, times), [expected[p] for p in l.pieces])


@given(
    st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=3, unique=True),
    st.randoms(use_true_random=False),
)
def test_the_best_other_spelling_against_all(words, dice):
    pieces = build_lattice(words).pieces
    dead = np.array([dice.random() < 0.3 and len(p.removeprefix("##")) > 1 for p in pieces])
    log = np.where(dead, -np.inf, np.log([dice.uniform(0.01, 1) for _ in pieces]))
    of, found = (
        dict(zip(pieces, log)),
        dict(zip(pieces, best_segmentation(log, binary_splits(pieces)))),
    )
    for p in pieces:
        mark, text = p[:2] == "##", p.removeprefix("##")
        as_inner = lambda way: ["##" + way[0], *way[1:]] if mark else way
        others = [sum(of[q] for q in as_inner(way)) for way in ways(text) if len(way) > 1]
        assert np.isclose(found[p], max(others)) if others else found[p] == -np.inf


def test_long_and_rare_words_do_no_harm():
    words = Counter({"x" * 100: 2, "y" * 101: 9, "abcdefghij" * 10: 3, "ab": 1})
    l = build_lattice(["abcdefghij" * 10])
    assert np.isfinite(expected_counts(l, np.full(len(l.pieces), 1e-9), np.ones(1))).all()
    pieces = select_unigram_subwords(words, 30)
    assert len(pieces) == 30 and not any("y" in p or len(p.removeprefix("##")) > 16 for p in pieces)


def test_unigram_writes_text_as_briefly_as_wordpiece():
    """Both kinds, given equal room, want few pieces a word; where one is much worse it is
    broken.
    """
    for text, size in ((babble(1000), 120), (babble(1000), 300)):
        lengths = [
            len(encode(train_tokenizer(kind, text, size), text).ids)
            for kind in ("unigram", "wordpiece")
        ]
        assert lengths[0] < 1.15 * lengths[1]


# --- encoding


@given(st.lists(st.text("".join(SYLLABLES) + "z ., ", max_size=30), max_size=4))
def test_encoding_is_greedy_longest_match(sentences):
    t = TRAINED
    v = t.get_vocab()

    def word_ids(word):
        out, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                if (piece := ("##" if start else "") + word[start:end]) in v:
                    break
            else:
                return [1]
            out.append(v[piece])
            start = end
        return out

    expected = [
        [i for w in s.replace(".", " . ").replace(",", " , ").split() for i in word_ids(w)]
        for s in sentences
    ]
    assert [e.tolist() for e in encode(t, sentences)] == expected


TRAINED = train_wordpiece(babble(300), 200)


def test_portions_do_not_show():
    text = babble(400) * 51  # more than one portion of 10,000
    e = encode(TRAINED, text)
    assert len(e) == len(text) and e.take(range(400)) == encode(TRAINED, text[:400]) == e.take(
        range(20_000, 20_400)
    )
    assert e.ids.dtype == np.int32 and e.starts.dtype == np.int64 and e.starts[-1] == len(e.ids)


def test_nothing_to_encode():
    assert len(encode(TRAINED, [])) == 0 and encode(TRAINED, ["", "ba"]).lengths.tolist() == [0, 1]


def test_special_signs_in_a_text_are_text():
    e = encode(TRAINED, ["[MASK] ba [SEP]"])
    assert not {0, 2, 3, 4} & set(e.ids.tolist())
    assert TRAINED.encode("ba").ids[0] == 2 and TRAINED.encode("ba").ids[-1] == 3


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=6), st.data())
def test_encoded_is_a_list_of_lists(rows, data):
    e = Encoded.of(rows)
    lists = lambda e: [s.tolist() for s in e]
    picks = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=8))
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    assert lists(e) == rows and e.lengths.tolist() == [len(r) for r in rows] and len(e) == len(rows)
    assert lists(e.take(picks)) == [rows[i] for i in picks]
    assert lists(e.take(mask)) == [r for r, m in zip(rows, mask) if m]
    assert lists(e.truncate(2)) == [r[:2] for r in rows]
    with pytest.raises(IndexError):
        e[len(rows)]


# --- a pair, to disk and through transformers


def test_pair_vocabulary_doubles_and_encodes_as_before():
    pair, n = pair_vocabulary(TRAINED), TRAINED.get_vocab_size()
    assert pair.get_vocab_size() == 2 * n
    assert all(pair.id_to_token(n + i) == "::" + TRAINED.id_to_token(i) for i in range(n))
    text = [*babble(50), "::ba ::: : ba", "a::ba ::[MASK]"]
    assert encode(pair, text) == encode(TRAINED, text)
    with pytest.raises(InputError, match="already"):
        pair_vocabulary(build_wordpiece({**TRAINED.get_vocab(), "::ba": n}))


def made(kind: str, size: int = 300):
    return pair_vocabulary(train_tokenizer(kind, CASED * 3, size))


@pytest.mark.parametrize(
    "make",
    [
        lambda: made("wordpiece"),
        lambda: made("unigram"),
        lambda: made("words"),
        lambda: made("characters"),
        lambda: add_markers(made("unigram"), ["en", "enfake"]),
    ],
    ids=[*TOKENIZER_TRAINERS, "markers"],
)
@pytest.mark.parametrize("with_model", [False, True], ids=["bare", "beside a BERT config"])
def test_auto_tokenizer_gives_the_same_ids_and_keeps_case_and_accents(tmp_path, with_model, make):
    transformers = pytest.importorskip("transformers")
    t = make()
    save_tokenizer(t, tmp_path)
    if with_model:
        (tmp_path / "config.json").write_text(
            json.dumps({"model_type": "bert", "vocab_size": t.get_vocab_size()})
        )
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = encode(t, CASED)
    assert (
        auto(CASED, add_special_tokens=False)["input_ids"] == [e.tolist() for e in ours]
        and 1 not in ours.ids
    )
    assert (
        auto(CASED[0])["input_ids"] == [2, *ours[0].tolist(), 3] and len(auto) == t.get_vocab_size()
    )
    assert (
        auto.pad_token_id,
        auto.unk_token_id,
        auto.cls_token_id,
        auto.sep_token_id,
        auto.mask_token_id,
    ) == (0, 1, 2, 3, 4)
    assert set(auto("ab", "cd")["token_type_ids"]) == {0, 1}
    if "Việt" in t.get_vocab():
        for sentence, e in zip(CASED[:4], ours):
            assert {"Việt", "Ναός", "यीशु", "THE"} & {t.id_to_token(i) for i in e}
    assert encode(t, ["việt"]) != encode(t, ["Việt"]) != encode(t, ["Viet"])
    assert (
        4 not in encode(t, ["[MASK]"]).ids
        and 4 not in encode(read_tokenizer(tmp_path), ["[MASK]"]).ids
    )
    auto.save_pretrained(tmp_path / "again")
    assert encode(read_tokenizer(tmp_path / "again"), CASED) == ours


def test_composed_and_decomposed_are_one():
    import unicodedata

    t = train_wordpiece(CASED * 3, 300)
    assert encode(t, [unicodedata.normalize("NFD", s) for s in CASED]) == encode(t, CASED)


def test_load_forgets_padding_and_truncation(tmp_path):
    t = train_wordpiece(babble(100), 100)
    t.enable_padding(length=50)
    t.enable_truncation(3)
    save_tokenizer(t, tmp_path)
    assert encode(read_tokenizer(tmp_path), ["ba ke lo mi nu ta", "ba"]).lengths.tolist()[1] == 1


def test_bad_tokenizer_folders(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(InputError, match="is no tokenizer") as caught:
        read_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_save_replaces_whole_files(tmp_path):
    save_tokenizer(TRAINED, tmp_path / "deep" / "folder")
    save_tokenizer(train_wordpiece(babble(50), 80), tmp_path / "deep" / "folder")
    assert sorted(p.name for p in (tmp_path / "deep" / "folder").iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert read_tokenizer(tmp_path / "deep" / "folder").get_vocab_size() == 80


# --- word starts and markers


@pytest.mark.parametrize("kind", TOKENIZER_TRAINERS)
def test_word_starts_cut_a_text_into_its_words(kind):
    t = train_tokenizer(kind, babble(300), 150)
    text = babble(40, 7) + ["Unseen, words!"]
    begins, cut = word_starts(t), build_wordpiece({})
    assert begins.shape == (t.get_vocab_size(),) and begins.dtype == bool and begins[:5].all()
    for s, ids in zip(text, encode(t, text)):
        words = [w for w, _ in cut.pre_tokenizer.pre_tokenize_str(cut.normalizer.normalize_str(s))]
        groups = np.split(ids, np.flatnonzero(begins[ids])[1:])
        spelt = ["".join(t.id_to_token(i).removeprefix("##") for i in g) for g in groups]
        assert len(groups) == len(words) and all(
            a == b or a == "[UNK]" for a, b in zip(spelt, words)
        )


def test_word_starts_of_a_pair_and_of_markers():
    begins, pair = (
        word_starts(TRAINED),
        word_starts(add_markers(pair_vocabulary(TRAINED), ["en", "xx"])),
    )
    assert pair.tolist() == [*begins, *begins, True, True] and not begins.all()


def test_markers_stand_at_the_end_and_text_never_says_them():
    t, n = add_markers(TRAINED, ["en", "enfake"]), TRAINED.get_vocab_size()
    assert (t.token_to_id("[SEP-en]"), t.token_to_id("[SEP-enfake]"), t.get_vocab_size()) == (
        n,
        n + 1,
        n + 2,
    )
    text = [*babble(50), "[SEP-en] ba", "[SEP-en][SEP-enfake]"]
    assert encode(t, text) == encode(TRAINED, text) and encode(t, text).ids.max() < n
    assert add_markers(TRAINED, []).get_vocab() == TRAINED.get_vocab()
    for tokenizer, languages in ((TRAINED, ["en", "en"]), (t, ["en"])):
        with pytest.raises(InputError, match="holds .SEP-en. already: name each language once"):
            add_markers(tokenizer, languages)


def test_markers_are_text_to_auto_tokenizer_too(tmp_path):
    transformers = pytest.importorskip("transformers")
    save_tokenizer(t := add_markers(TRAINED, ["en"]), tmp_path)
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert auto.convert_tokens_to_ids("[SEP-en]") == t.get_vocab_size() - 1 == len(auto) - 1
    assert (
        auto("ba [SEP-en]", add_special_tokens=False)["input_ids"]
        == encode(t, ["ba [SEP-en]"])[0].tolist()
    )


# --- real text


@pytest.mark.ci
@real
@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
@pytest.mark.parametrize("name", ["en-bbe", "vi-1934", "el-vamvas", "hi-nt", "zh-cuv"])
def test_real_vocabularies_fill_and_know_their_text(name, kind):
    text = read_bible(find_data_file(f"bible/{name}.tsv"), name[:2]).take(3000).sentences
    t = train_tokenizer(kind, text, 1024)
    assert t.get_vocab_size() == 1024 and (encode(t, text).ids == 1).mean() < (
        0.05 if name == "zh-cuv" else 0.002
    )
