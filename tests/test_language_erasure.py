"""What of a language is a mean: closed forms, scikit-learn's discriminants, counts by hand, and two
languages that differ by a known thing.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from xlingual_nb import microworld
from xlingual_nb.errors import InputError
from xlingual_nb.measures import language_erasure
from xlingual_nb.measures.language_erasure import (
    ERASURES,
    IdentityClassesSpec,
    IdentitySpec,
    word_class_masks,
    covariance,
    identification_accuracy,
    fit_language_erasures,
    project_out,
)
from xlingual_nb.models.checkpoints import load_checkpoint
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import read_measures
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

NAMES = "en", "es", "de"
TEXTS = tuple(
    CorpusSpec(f"micro/{n}", "dev", (("sentences", 60), ("vocabulary", 128))) for n in NAMES
)
BERT = PretrainSpec(
    tuple(map(Language, NAMES, TEXTS)),
    TokenizerSpec(TEXTS[0], 400, "words", TEXTS[1:]),
    Shape(2, 16, 1, 32, 40),
    Training(epochs=0, batch=16, steps=5),
)
ASKED = IdentitySpec(BERT, NAMES, TEXTS, seed=1)


def rows(seed, languages=3, n=200, width=5):
    rng = np.random.default_rng(seed)
    return {
        str(l): rng.normal(size=(n, width)) @ rng.normal(size=(width, width))
        + 3 * rng.normal(size=width)
        for l in range(languages)
    }


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_every_way_leaves_means_alike_where_it_says_so(seed, languages):
    known = rows(seed, languages)
    ways = fit_language_erasures(known, "0")
    assert (*ways,) == ERASURES
    for name in ("shifted", "centred", "directions removed", "whitened"):
        means = np.stack([ways[name](l, X).mean(0) for l, X in known.items()])
        assert np.ptp(means, axis=0).max() < 1e-8, name
    assert (
        np.allclose(ways["shifted"]("0", known["0"]), known["0"])
        and ways["as it is"]("1", known["1"]) is known["1"]
    )
    for name in ("directions removed", "random directions removed"):
        lost = np.linalg.matrix_rank(known["1"] - ways[name]("1", known["1"]), tol=1e-8)
        assert lost == languages - 1, name
    X, shrunk = known["1"] - known["1"].mean(0), covariance(known["1"])
    white = ways["whitened"]("1", known["1"])
    inverse = np.linalg.inv(shrunk)
    assert white @ white.T == pytest.approx(X @ inverse @ X.T, abs=1e-6)


def test_directions_are_the_differences_of_means_and_nothing_else():
    known = rows(3, 3)
    axes = language_erasure.mean_difference_axes(np.stack([X.mean(0) for X in known.values()]))
    assert axes.shape == (2, 5) and axes @ axes.T == pytest.approx(np.eye(2))
    assert project_out(known["0"].mean(0) - known["2"].mean(0), axes) == pytest.approx(
        np.zeros(5), abs=1e-9
    )
    across = np.linalg.svd(axes)[2][2:]
    assert project_out(known["1"], axes) @ across.T == pytest.approx(known["1"] @ across.T)


@pytest.mark.parametrize("seed", range(3))
def test_classifiers_are_scikit_learn_s(monkeypatch, seed):
    monkeypatch.setattr(language_erasure, "SHRINKAGE", 0.0)
    known, asked = rows(seed), {l: X[:150] + 1 for l, X in rows(seed).items()}
    X, y = np.concatenate([*known.values()]), np.repeat(np.arange(3), 200)
    Z, z = np.concatenate([*asked.values()]), np.repeat(np.arange(3), 150)
    linear = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y).score(Z, z)
    quadratic = QuadraticDiscriminantAnalysis().fit(X, y).score(Z, z)
    assert identification_accuracy(known, asked) == pytest.approx(
        linear, abs=0.005
    ) and identification_accuracy(known, asked, spreads=True) == pytest.approx(quadratic, abs=0.005)


def test_a_language_that_is_a_mean_and_one_that_is_a_spread():
    rng = np.random.default_rng(0)
    same = rng.normal(size=(400, 6))
    known, asked = (
        {"en": same[:200], "xx": same[:200] + 9},
        {"en": same[200:], "xx": same[200:] + 9},
    )
    out = fit_language_erasures(known, "en")["centred"]
    moved = [{l: out(l, X) for l, X in side.items()} for side in (known, asked)]
    assert (
        identification_accuracy(known, asked) == 1
        and identification_accuracy(*moved) == identification_accuracy(*moved, spreads=True) == 0.5
    )
    wide = [{"en": X["en"], "xx": 3 * X["en"]} for X in (known, asked)]
    out = fit_language_erasures(wide[0], "en")
    centred, white = (
        [{l: out[name](l, X) for l, X in side.items()} for side in wide]
        for name in ("centred", "whitened")
    )
    assert (
        identification_accuracy(*centred, spreads=True) > 0.9
        and abs(identification_accuracy(*white, spreads=True) - 0.5) < 0.1
    )


@pytest.fixture(scope="module")
def store(shared_store):
    run([ASKED], shared_store, Inline(), progress=False)
    return shared_store


def test_a_run_by_hand(store):
    """Layer 1 as it is and centred: sentences and words by `transformers` alone, neighbours by
    loops.
    """
    found, encoder = read_measures(store.path(ASKED)), load_checkpoint(store.path(BERT))
    speeches, table = (
        {n: microworld.annotated_corpus(n, "dev", 60, vocabulary=128) for n in NAMES},
        encoder.tokenizer.get_vocab(),
    )
    import torch

    def states(text):
        return encoder.model(
            torch.tensor([[2, *(table[w] for w in text.split()), 3]]), output_hidden_states=True
        ).hidden_states[1][0, 1:-1]

    with torch.no_grad():
        each = {
            n: [states(t).double().numpy() for t in speech.texts()]
            for n, speech in speeches.items()
        }
    sentences = {n: np.stack([X.mean(0) for X in vectors]) for n, vectors in each.items()}

    def nearest(A, B):
        A, B = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (A, B))
        return np.mean(
            [np.argmax(A @ B.T, 1) == np.arange(len(A)), np.argmax(B @ A.T, 1) == np.arange(len(A))]
        )

    tests = {n: X[30:] for n, X in sentences.items()}
    assert found["layer 1 as it is retrieval es"] == pytest.approx(
        nearest(tests["en"], tests["es"]), abs=0.02
    )
    centred = {n: X[30:] - X[:30].mean(0) for n, X in sentences.items()}
    assert found["layer 1 centred retrieval de"] == pytest.approx(
        nearest(centred["en"], centred["de"]), abs=0.02
    )
    assert found["chance"] == pytest.approx(1 / 3)
    known = {n: X[:30] for n, X in sentences.items()}
    assert found["layer 1 as it is identity"] == pytest.approx(
        identification_accuracy(known, tests), abs=0.02
    )
    types = {n: {} for n in NAMES}
    for n, speech in speeches.items():
        for word, vector in zip(speech.words, np.concatenate(each[n])):
            types[n].setdefault(word, []).append(vector)
    counts = {}
    for a, b in microworld.align_words(speeches["en"], speeches["es"]).tolist():
        pair = speeches["en"].words[a], speeches["es"].words[b]
        if pair[0] != pair[1]:
            counts[pair] = counts.get(pair, 0) + 1
    assert found["pairs es"] <= len({a for a, _ in counts}) and 20 < found["pairs es"]
    sides = [
        language_erasure.read_side(encoder, speeches[n].texts(), (encoder.view(n), None))
        for n in ("en", "es")
    ]
    pairs, is_open = language_erasure.word_pairs(TEXTS[:2], sides)
    back = {i: w for w, i in table.items()}
    assert {(back[a], back[b]) for a, b in pairs.tolist()} <= counts.keys() and len(
        {*pairs[:, 0]}
    ) == len({*pairs[:, 1]}) == len(pairs)
    A, B = (
        np.stack([np.mean(types[n][back[i]], 0) for i in column.tolist()])
        for n, column in zip(("en", "es"), pairs.T)
    )
    assert found["layer 1 as it is words es"] == pytest.approx(nearest(A, B), abs=0.02)
    tags = {
        word: microworld.TAGS[tag] for word, tag in zip(speeches["en"].words, speeches["en"].upos)
    }
    assert (
        np.mean(
            is_open
            == [
                tags[back[a]] in ("ADJ", "ADV", "NOUN", "PROPN", "VERB")
                for a in pairs[:, 0].tolist()
            ]
        )
        > 0.95
    )
    A, B = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (A, B))
    each = ((A @ B.T).argmax(1) == np.arange(len(A))) / 2 + (
        (B @ A.T).argmax(1) == np.arange(len(A))
    ) / 2
    assert (
        found["layer 1 as it is open words es"] == pytest.approx(each[is_open].mean(), abs=0.02)
        and 0 < is_open.mean() < 1
    )


def test_layers_and_cost(store):
    found = read_measures(store.path(ASKED))
    assert {" ".join(name.split()[:2]) for name in found if name.startswith("layer")} == {
        f"layer {l}" for l in range(3)
    }
    one = replace(ASKED, layers=(2,))
    run([one], store, Inline(), progress=False)
    other = read_measures(store.path(one))
    assert {name for name in other if name.startswith("layer")} == {
        name for name in found if name.startswith("layer 2")
    }
    assert all(other[name] == pytest.approx(found[name]) for name in other)
    assert (
        language_erasure.identity_cost(ASKED)["flops"]
        > language_erasure.identity_cost(replace(ASKED, languages=NAMES[:2], texts=TEXTS[:2]))[
            "flops"
        ]
        > 0
    )


def test_word_classes_by_hand(store):
    """All classes together are the words that `identity` finds, and a class is the words whose
    commonest tag is of it.
    """
    spec = IdentityClassesSpec(replace(ASKED, layers=(1,)))
    run([spec], store, Inline(), progress=False)
    found, whole = read_measures(store.path(spec)), read_measures(store.path(ASKED))
    for way in ERASURES:
        parts = {
            name: (found[f"layer 1 {way} es {name}"], found[f"pairs es {name}"])
            for name in ("Open", "Closed")
            if f"pairs es {name}" in found
        }
        assert sum(n for _, n in parts.values()) == whole["pairs es"]
        assert sum(share * n for share, n in parts.values()) / whole["pairs es"] == pytest.approx(
            whole[f"layer 1 {way} words es"]
        )
    speech, counts = microworld.annotated_corpus("en", "dev", 60, vocabulary=128), {}
    for word, tag in zip(speech.words, speech.upos):
        counts.setdefault(word, []).append(microworld.TAGS[tag])
    encoder = load_checkpoint(store.path(BERT))
    texts, table = (
        {
            "en": speech.texts(),
            "es": microworld.annotated_corpus("es", "dev", 60, vocabulary=128).texts(),
        },
        encoder.tokenizer.get_vocab(),
    )
    sides = [
        language_erasure.read_side(encoder, text, (encoder.view(n), None))
        for n, text in texts.items()
    ]
    pairs, _ = language_erasure.word_pairs(TEXTS[:2], sides)
    back, classes = (
        {i: w for w, i in table.items()},
        word_class_masks(TEXTS[0], sides[0], pairs[:, 0]),
    )
    sure = [len({*counts[back[a]]}) == 1 for a in pairs[:, 0].tolist()]
    nouns = [counts[back[a]][0] == "NOUN" for a in pairs[:, 0].tolist()]
    assert (
        sum(sure) > 20
        and (classes["Noun"] == nouns)[sure].all()
        and 0 < classes["Noun"].sum() == found["pairs es Noun"]
    )
    with pytest.raises(
        InputError, match="xnli/es has no gold translations: give texts of the microworld"
    ):
        IdentityClassesSpec(replace(ASKED, texts=(*TEXTS[:2], CorpusSpec("xnli/es"))))


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(texts=TEXTS[:2]), "2 texts for 3 languages"),
        (dict(languages=("en", "en", "es")), "give two languages or more"),
        (dict(checkpoint="bert"), "give the spec of a run"),
    ],
)
def test_what_a_spec_refuses(fields, message):
    with pytest.raises(InputError, match=message):
        replace(ASKED, **fields)
