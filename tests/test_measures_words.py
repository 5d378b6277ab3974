"""Word retrieval against loops over one word at a time, MUSE's count of right answers, and hidden
states.
"""

import json
import os
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings, strategies as st

from xlingual_nb.errors import InputError
from xlingual_nb.measures.embeddings import hidden_states
from xlingual_nb.measures.contextual_words import Finder, word_means
from xlingual_nb.measures.probe import encode_text
from xlingual_nb.measures.retrieval import (
    TIES,
    chance_mrr,
    rank,
    reciprocal_rank,
    mrr_and_precision,
    within_rank,
)
from xlingual_nb.measures.word_retrieval import WordSpec, check_words_occur, make_words
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.models.encoders import load_encoder
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.models.static_vectors import save_static
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store
from xlingual_nb.text.dictionaries import Dictionary, one_to_one_pairs, dictionary_pairs
from xlingual_nb.text.sources import CorpusSpec, load_spec
from xlingual_nb.text.vocabularies import TokenizerSpec

seeds = st.integers(0, 10**6)


# --- ranks


def case(seed, n=6, m=9, width=4, whole=False):
    """Queries, candidates, gold pairs; with `whole` numbers many candidates lie in the same
    direction.
    """
    rng = np.random.default_rng(seed)

    def draw(rows):
        return rng.integers(0, 2, (rows, width)) if whole else rng.normal(size=(rows, width))

    Q, C = draw(n).astype(np.float32), draw(m).astype(np.float32)
    Q[:, 0] += 2
    C[:, 0] += 2
    gold = [(i, j) for i in range(n) for j in rng.choice(m, rng.integers(1, 4), replace=False)]
    return Q, C, gold


def cosines(Q, C):
    Q, C = Q.astype(float), C.astype(float)
    return Q @ C.T / np.linalg.norm(Q, axis=1)[:, None] / np.linalg.norm(C, axis=1)


def csls(Q, C, k):
    """2 cos - r(query) - r(candidate), each mean written out."""
    S = cosines(Q, C)

    def r(values):
        return np.sort(values)[::-1][:k].mean()

    return np.array(
        [[2 * S[i, j] - r(S[i]) - r(S[:, j]) for j in range(len(C))] for i in range(len(Q))]
    )


def ranks_by_loops(S, gold, ties):
    """Of each query the ranks of its best right candidate, one for each order that a tie may come
    out in.
    """
    found = []
    for i, row in enumerate(S):
        right = {j for a, j in gold if a == i}
        best = max(row[j] for j in right)
        before = sum(row > best + 1e-6)
        level = [j in right for j in range(len(row)) if abs(row[j] - best) <= 1e-6]
        orders = (
            [before + 1 + order.index(True) for order in permutations(level)]
            if len(level) < 8
            else None
        )
        assert orders, "too many ties for a loop"
        found.append(
            dict(best=[min(orders)], worst=[before + 1 + level.count(False)], expected=orders)[ties]
        )
    return found


@settings(max_examples=40)
@given(
    seeds,
    st.booleans(),
    st.sampled_from(("cosine", "csls")),
    st.integers(1, 7),
    st.sampled_from(TIES),
)
def test_ranks_by_loops_whatever_the_block(seed, whole, similarity, size, ties):
    Q, C, gold = case(seed, m=7, whole=whole)
    S = cosines(Q, C) if similarity == "cosine" else csls(Q, C, 3) / 2
    found, expected = rank(Q, C, gold, similarity, k=3, size=size), ranks_by_loops(S, gold, ties)
    assert reciprocal_rank(found, ties) == pytest.approx(
        [np.mean([1 / r for r in rs]) for rs in expected]
    )
    for k in (1, 2, 5):
        assert within_rank(found, k, ties) == pytest.approx(
            [np.mean([r <= k for r in rs]) for rs in expected]
        )


@given(seeds)
def test_precision_is_that_of_muse(seed):
    """MUSE: a source word counts as right if any of its translations is among the k nearest."""
    Q, C, gold = case(seed, n=20, m=40)
    assume(
        np.diff(np.sort(cosines(Q, C))).min() > 1e-5
    )  # MUSE knows no ties, of which rounding makes some
    nearest = np.argsort(-cosines(Q, C), axis=1)
    found = mrr_and_precision(rank(Q, C, gold))
    for k in (1, 5, 10):
        right = [bool({j for a, j in gold if a == i} & set(nearest[i, :k])) for i in range(len(Q))]
        assert found[f"p{k}"] == pytest.approx(np.mean(right))
    assert mrr_and_precision(rank(Q, C, gold), missed=20)["p5"] == pytest.approx(found["p5"] / 2)


def test_chance_is_what_random_vectors_get():
    rng, right, got = np.random.default_rng(0), [1, 2, 3] * 10, []
    gold = [(i, j) for i, g in enumerate(right) for j in range(g)]
    for _ in range(150):
        got.append(
            mrr_and_precision(rank(rng.normal(size=(30, 50)), rng.normal(size=(25, 50)), gold))[
                "mrr"
            ]
        )
    assert np.mean(got) == pytest.approx(chance_mrr(right, 25), abs=4 * np.std(got) / 150**0.5)


def test_what_cannot_be_ranked_is_refused():
    Q, C, gold = case(0)
    with pytest.raises(InputError, match="same width"):
        rank(Q, C[:, 1:], gold)
    with pytest.raises(InputError, match="without a right candidate"):
        rank(Q, C, gold[1:][-1:])
    with pytest.raises(InputError, match="choose cosine or csls"):
        rank(Q, C, gold, "dot")


# --- words in their text


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    fake = dict(
        name="enfake", token_offset=64, special_offset=64, inverted=True, position_offset=24
    )
    views = [dict(name="en"), fake]
    sizes = dict(words=64, languages=views, max_position_embeddings=48)
    return load_checkpoint(tiny_checkpoint(tmp_path_factory.mktemp("m"), **sizes))


@settings(max_examples=25)
@given(seeds, st.sampled_from(("en", "enfake")), st.integers(1, 9), st.integers(40, 400))
@example(1622, "en", 1, 40)  # a long sentence that has none of the words is not read, so not cut
def test_means_by_loops_whatever_the_portion(model, seed, language, portion, budget):
    """One sentence at a time; the encoder has room for 22 pieces, so that some sentences are
    cut.
    """
    rng = np.random.default_rng(seed)
    sentences = [
        " ".join(f"w{i}" for i in rng.integers(5, 12, rng.integers(1, 30))) for _ in range(8)
    ]
    words = ["w5", "w9", "w63"]
    made = word_means(
        model, iter(sentences), Finder(words), language, (0, 2), budget=budget, portion=portion
    )
    sums, counts = np.zeros((3, model.width)), np.zeros(3)
    for sentence in sentences:
        cut = sentence.split()[:22]
        states = hidden_states(model, encode_text(model, [" ".join(cut)], language), language, 2)[
            2
        ].numpy()
        for place, word in enumerate(cut):
            if word not in words:
                continue
            counts[words.index(word)] += 1
            sums[words.index(word)] += states[
                len(cut) - 1 - place if language == "enfake" else place
            ]
    cut_short = [s for s in sentences if len(s.split()) > 22 and not {*words}.isdisjoint(s.split())]
    assert made.counts.tolist() == counts.tolist() and made.truncated == len(cut_short)
    assert made.vectors[2].numpy() == pytest.approx(sums / np.maximum(counts, 1)[:, None], abs=1e-5)


def test_pieces_of_a_word_are_averaged_first(tmp_path):
    from xlingual_nb.text.tokenizers import SPECIALS, build_wordpiece

    vocabulary = {w: i for i, w in enumerate([*SPECIALS, "un", "##told", "##s", "story", "."])}
    table = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    space = load_encoder(save_static(tmp_path / "space", table, build_wordpiece(vocabulary)))
    finder = Finder(["untold", "untolds", "stories"], "exact")
    made = word_means(space, ["story untold.", "Untold stories untolds"], finder, "en")
    assert made.counts.tolist() == [
        1,
        1,
        0,
    ]  # "Untold" is another spelling, "stories" is unknown to the tokenizer
    expected = [table[5:7].mean(0), table[5:8].mean(0), np.zeros(4)]
    assert made.vectors[0].numpy() == pytest.approx(np.array(expected), abs=1e-6)


@pytest.mark.parametrize(
    "sentence, words, found",
    [
        ("我们爱北京", ["我们", "我", "北京", "京"], ["我们", "北京"]),
        ("I don't, can't and don", ["don't", "don"], ["don't", "don"]),
        ("Der HAUS-Meister", ["haus", "meister", "hausmeister"], ["HAUS", "Meister"]),
        ("ฉันรักแมว", ["แมว", "ฉัน"], ["ฉัน", "แมว"]),
        ("हिन्दी में", ["में", "हिन्दी"], ["हिन्दी", "में"]),
    ],
)
def test_words_are_found_in_every_script(sentence, words, found):
    assert [sentence[a:b] for _, a, b in Finder(words).find(sentence)] == found


# --- the run


@pytest.fixture(scope="module")
def wanted():
    def text(name, seed):
        return CorpusSpec(f"micro/{name}", parameters=(("sentences", 80), ("seed", seed)))

    texts = text("en", 0), text("es", 1)
    model = PretrainSpec(
        (Language("en", texts[0]), Language("es", texts[1])),
        TokenizerSpec(texts[0], 300),
        Shape(2, 16, 2, 32, 32),
        Training(epochs=1, batch=32),
    )
    return WordSpec(model, ("en", "es"), texts, Dictionary("micro"))


def test_a_run_is_what_loops_make_of_it(wanted, tmp_path):
    """MRR both ways at the last layer, from the checkpoint's hidden states alone."""
    store = Store(tmp_path / "runs")
    run([wanted], store, progress=False)
    found = json.loads((store.path(wanted) / "measures.json").read_text())
    encoder = load_encoder(store.path(wanted.checkpoint))
    pairs, sides = dictionary_pairs(wanted.dictionary, wanted.pair, wanted.texts), []
    for text in wanted.texts:
        vectors = {}
        for sentence in load_spec(text).sentences:
            pieces = encoder.tokenizer(sentence, add_special_tokens=False)["input_ids"]
            states = hidden_states(encoder, encode_text(encoder, [sentence], "en"), "en", 2)[
                2
            ].numpy()
            at = 0
            for word in sentence.replace(".", " .").replace(",", " ,").split():
                ids = encoder.tokenizer(word, add_special_tokens=False)["input_ids"]
                whole = at + len(ids) <= len(states)  # nothing of it was cut off
                if whole and encoder.tokenizer.unk_token_id not in ids:
                    vectors.setdefault(word.lower(), []).append(states[at : at + len(ids)].mean(0))
                at += len(ids)
            assert at == len(pieces)
        sides.append({word: np.mean(rows, 0) for word, rows in vectors.items()})
    usable = [
        (a.lower(), b.lower()) for a, b in pairs if a.lower() in sides[0] and b.lower() in sides[1]
    ]
    assert found["usable"] == len(set(usable)) and found["pairs"] == len(pairs)

    def mrr(pairs, one, other):
        queries, candidates = sorted({a for a, _ in pairs}), sorted({b for _, b in pairs})
        S = cosines(np.array([one[w] for w in queries]), np.array([other[w] for w in candidates]))

        def best(q, row):
            return min(1 + sum(row > row[candidates.index(b)] + 1e-9) for a, b in pairs if a == q)

        return np.mean([1 / best(q, row) for q, row in zip(queries, S)])

    assert found["mrr_forward"] == pytest.approx(mrr(usable, *sides), abs=1e-4)
    assert found["mrr_backward"] == pytest.approx(
        mrr([(b, a) for a, b in usable], *sides[::-1]), abs=1e-4
    )
    assert (
        found["mrr"] == found["layers"]["2"]["mrr"]
        and found["layer"] == 2
        and [*found["layers"]] == ["0", "1", "2"]
    )
    assert plan([wanted], store).set_index("stage").loc["words", "found"] == 1


def test_a_language_and_its_fake(tmp_path):
    """Ids are shifted, strings are not; a model whose two copies of the vocabulary are one table
    finds every word alone.
    """
    text = CorpusSpec("micro/en", parameters=(("sentences", 60),))
    pair = Language("en", text), Language("enfake", text, ("enfake",))
    model = PretrainSpec(
        pair,
        TokenizerSpec(text, 133, "words"),
        Shape(1, 16, 1, 32, 32),
        Training(epochs=1, batch=32),
    )
    spec = WordSpec(model, ("en", "enfake"), (text, text), Dictionary("same"), context="alone")
    store = Store(tmp_path / "runs")
    run([spec], store, progress=False)
    from safetensors.torch import load_file, save_file

    path = store.path(model) / "model.safetensors"
    weights = load_file(path)
    (name,) = [n for n in weights if n.endswith("word_embeddings.weight")]
    weights[name][len(weights[name]) // 2 :] = weights[name][: len(weights[name]) // 2]
    save_file(weights, path, {"format": "pt"})
    folder = tmp_path / "again"
    folder.mkdir()
    make_words([spec], [folder], store, lambda *a: None)
    made = json.loads((folder / "measures.json").read_text())
    assert made["mrr"] == pytest.approx(1) and made["words"] == made["pairs"] > 50


def test_static_vectors_enter_by_the_same_door(wanted, tmp_path):
    """A word's vector is the mean of its pieces' rows in the table of the run, shared pieces and
    all.
    """
    from dataclasses import replace
    from xlingual_nb.models.word_embeddings import EmbedSpec
    from xlingual_nb.models.configs import Glove

    space = EmbedSpec(
        wanted.checkpoint.languages, wanted.checkpoint.tokenizer, Glove(epochs=2), size=12
    )
    spec, store = replace(wanted, checkpoint=space, spelling="exact"), Store(tmp_path / "runs")
    run([spec], store, progress=False)
    found, encoder = (
        json.loads((store.path(spec) / "measures.json").read_text()),
        load_encoder(store.path(space)),
    )

    def ids(word):
        return encoder.tokenizer(word, add_special_tokens=False)["input_ids"]

    def vector(word):
        return encoder.vectors[ids(word)].mean(0).numpy()

    said = [
        set(" ".join(load_spec(text).sentences).replace(".", " ").replace(",", " ").split())
        for text in spec.texts
    ]
    pairs = [
        (a, b)
        for a, b in dictionary_pairs(spec.dictionary, spec.pair, spec.texts)
        if a in said[0] and b in said[1]
    ]
    known = [pair for pair in pairs if "[UNK]" not in encoder.tokenizer.tokenize(" ".join(pair))]
    words = [sorted(set(side)) for side in zip(*known)]
    gold = [(words[0].index(a), words[1].index(b)) for a, b in known]
    expected = mrr_and_precision(
        rank(*(np.array([vector(w) for w in side]) for side in words), gold)
    )
    assert found["usable"] == len(known) > 50 and [*found["layers"]] == ["0"]
    assert found["mrr_forward"] == pytest.approx(expected["mrr"], abs=1e-3)


def refusal(folder, text, **choices):
    (folder / "d.txt").write_bytes(text)
    one, other = (
        CorpusSpec(f"micro/{name}", parameters=(("sentences", 20),)) for name in ("en", "es")
    )
    vocabulary = TokenizerSpec(one, 133, "words")
    model = PretrainSpec(
        (Language("en", one),), vocabulary, Shape(1, 8, 1, 16, 24), Training(epochs=1)
    )
    return WordSpec(
        model, ("en", "es"), (one, other), Dictionary(f"file:{folder}/d.txt", **choices)
    )


@pytest.mark.parametrize(
    "text, choices, told",
    [
        (b"dog\ncat\n", {}, "line 1: 'dog' is not two words"),
        (b"Ana Ana\n", dict(identical=False), "has no pair of words"),
        (b"dog perro\n", dict(part="test"), "has no pair of words"),
        (b". ,\n", {}, "has no pair of words"),
        ("dog ni\u00f1o\n".encode("latin-1"), {}, "line 1: byte 0xf1 is not UTF-8"),
        (b"\n", {}, "is empty"),
    ],
)
def test_a_dictionary_of_no_use_is_one_line_before_any_work(tmp_path, text, choices, told):
    spec, store = refusal(tmp_path, text, **choices), Store(tmp_path / "runs")
    for call in (
        lambda: run_id(spec),
        lambda: run([spec], store, progress=False),
        lambda: plan([spec], store),
    ):
        with pytest.raises(InputError, match=told) as error:
            call()
        assert "\n" not in str(error.value)
    assert not list((tmp_path / "runs").glob("*/*/model.safetensors"))


def test_a_dictionary_is_parsed_once_for_many_names_and_again_when_it_changed(
    tmp_path, monkeypatch
):
    spec, parsed = refusal(tmp_path, b"dog perro\n"), []
    monkeypatch.setattr(
        "xlingual_nb.measures.dictionary_words.dictionary_pairs",
        lambda *given: parsed.append(given) or dictionary_pairs(*given),
    )
    names = {run_id(spec) for _ in range(5)}
    assert len(names) == len(parsed) == 1
    assert run_id(refusal(tmp_path, b"dog perro\ncat gato\n")) not in names and len(parsed) == 2
    with pytest.raises(InputError, match="has no pair of words"):
        run_id(refusal(tmp_path, b". ,\n"))


def test_a_dictionary_without_a_usable_pair_is_one_line_before_any_training(tmp_path):
    spec, store = refusal(tmp_path, b"dog perro\n"), Store(tmp_path / "runs")
    message = (
        r"both words occur in the texts of en-es \(en: none of its words\) "
        r"\(es: none of its words\): give more text"
    )
    for call in (lambda: plan([spec], store), lambda: run([spec], store, progress=False)):
        with pytest.raises(InputError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
    assert not list((tmp_path / "runs").glob("pretrain/*"))


def test_a_pair_is_met_if_both_of_its_words_are_however_they_are_spelt(tmp_path):
    for side, line in (("en", "The Ice-Cream!"), ("es", "¿helado?")):
        (tmp_path / side).write_text(line, encoding="utf-8")
    texts = tuple(CorpusSpec(f"file:{tmp_path / side}") for side in ("en", "es"))

    def check(pairs, spelling):
        (tmp_path / "d.txt").write_text(pairs, encoding="utf-8")
        check_words_occur(Dictionary(f"file:{tmp_path}/d.txt"), ("en", "es"), texts, spelling, 0)
        check_words_occur.cache_clear()

    check("the la\nice-cream helado\n", "lower")
    with pytest.raises(InputError, match=r"of no pair of 1 .* \(en: none of its words\): give"):
        check("ice-cream helado\n", "exact")
    with pytest.raises(
        InputError, match="of no pair of 2 do both words occur in the texts of en-es: give"
    ):
        check("the la\nhouse helado\n", "lower")


def test_choices_that_there_are_not(wanted):
    from dataclasses import replace

    for name, value in dict(unseen="zero", context="both", pair=("en",), checkpoint="bert").items():
        with pytest.raises(InputError):
            replace(wanted, **{name: value})


# --- dictionaries


@pytest.mark.skipif(
    "XLINGUAL_DATA" not in os.environ, reason="no real data: set XLINGUAL_DATA to a data folder"
)
@pytest.mark.parametrize("language", ("de", "el", "zh"))
def test_muse_is_read_from_either_side(language):
    there, back = (
        dictionary_pairs(Dictionary(), pair, None) for pair in (("en", language), (language, "en"))
    )
    path = Path(os.environ["XLINGUAL_DATA"]) / f"dictionaries/en-{language}.txt"
    lines = {tuple(line.split()) for line in path.read_text(encoding="utf-8").splitlines()}
    assert (
        [(a, b) for b, a in back] == there
        and set(there) <= lines
        and len(there) > 0.98 * len(lines)
    )
    parts = [
        {a for a, _ in dictionary_pairs(Dictionary(part=part), ("en", language), None)}
        for part in ("train", "test")
    ]
    assert max(map(len, parts)) <= 5000 and not parts[0] & parts[1]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("vwxyz")), max_size=20))
def test_first_pairs_are_one_to_one_and_none_could_be_added(pairs):
    kept = one_to_one_pairs(pairs)
    one, other = ({pair[i] for pair in kept} for i in (0, 1))
    assert len(one) == len(other) == len(kept) and all(a in one or b in other for a, b in pairs)
