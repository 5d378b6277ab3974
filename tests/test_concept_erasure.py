"""Tasks with languages taken out: planted directions and spreads, heads by scikit-learn on vectors
by transformers, and what is refused.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from xlingual_nb.errors import InputError
from xlingual_nb.measures import language_erasure
from xlingual_nb.models.external import ExternalCheckpointSpec
from xlingual_nb.models.checkpoints import load_checkpoint
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import LinearTagging, Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import read_measures
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.concept_erasure import (
    SHIFTED_ASIDE,
    WHITENED_AND_ROTATED,
    WAYS,
    Rows,
    TakenOutSpec,
    score_erasures,
    taken_out_cost,
    fit_erasures,
)
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, read_records
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

torch.set_num_threads(1)
NAMES, WIDTH = ("en", "es", "de"), 8
TAGS = np.array(["B-PER", "B-LOC", "O"])
SETTINGS = LinearTagging(penalties=(1e-2,))


def planted(seed, language, away, spread=None, n=400):
    """Words whose tag is an axis of the first three, moved `away` (H,) and stretched by `spread`
    (H, H).
    """
    rng = np.random.default_rng(seed)
    tags, noise = rng.integers(0, 3, n), np.where(np.arange(WIDTH) < 3, 0.2, 1.0)
    vectors = (rng.normal(size=(n, WIDTH)) * noise + 2 * np.eye(3, WIDTH)[tags]) @ (
        np.eye(WIDTH) if spread is None else spread
    ) + away
    return Rows(language, (vectors,), np.arange(0, n + 1, 4), TAGS[tags].reshape(-1, 4).tolist())


def found_for(away, spread=None):
    """What is found where Spanish alone lies elsewhere."""
    sides = {"en": (np.zeros(WIDTH), None), "es": (away, spread), "de": (np.zeros(WIDTH), None)}
    tests = {
        l: (planted(i, l, *side), planted(i + 9, l, *side))
        for i, (l, side) in enumerate(sides.items())
    }
    return score_erasures(planted(20, "en", *sides["en"]), tests, SETTINGS, seed=1)


# --- what was planted


def test_a_direction_across_the_labels_is_removed_and_they_stay_readable():
    """Nothing but a direction tells Spanish: without it chance, for means and spreads alike, and
    every label is read as before.
    """
    found = found_for(9 * np.eye(WIDTH)[5])
    assert (*found,) == WAYS and found["as it is"]["identity"] > 0.6
    for name in ("shifted", "centred", "directions removed", "whitened"):
        assert found[name]["identity"] == pytest.approx(1 / 3, abs=0.04), name
        assert min(found[name]["score"].values()) > 0.97, name
    assert found["directions removed"]["spread"] == pytest.approx(1 / 3, abs=0.06)
    assert (
        found["random directions removed"]["identity"] > 0.6
        and found[SHIFTED_ASIDE]["identity"] > 0.6
    )


def test_a_direction_along_the_labels_turns_them_and_taking_it_out_mends_that():
    found = found_for(4 * np.eye(WIDTH)[2])
    assert (
        found["as it is"]["score"]["es"] < 0.1
        and found[SHIFTED_ASIDE]["score"]["es"] < 0.5 < 0.97 < found["as it is"]["score"]["de"]
    )
    for name in ("shifted", "centred"):
        assert found[name]["score"]["es"] > 0.97, name
    removed = found["directions removed"]["score"]
    assert (
        0.97 < found["centred"]["score"]["en"] and found["as it is"]["score"]["es"] < removed["es"]
    ), "what is removed was a label's axis, and the rest is read"


def test_a_spread_is_mended_by_whitening_alone_and_not_by_a_turn_after_it():
    """What is stretched leans on labels and on noise, which then hides labels."""
    along = np.array([1, -1, 0, 0, 1, 0, 0, 0]) / 3**0.5
    found = found_for(np.ones(WIDTH), np.eye(WIDTH) + 5 * np.outer(along, along))
    assert found["whitened"]["score"]["es"] > found["centred"]["score"]["es"] + 0.05
    assert (
        found[WHITENED_AND_ROTATED]["score"]["es"]
        < 0.6
        < 0.9
        < found[WHITENED_AND_ROTATED]["score"]["en"]
    )
    assert found["whitened"]["spread"] < found["centred"]["spread"] - 0.05


def test_whitening_makes_second_moments_equal(monkeypatch):
    monkeypatch.setattr(language_erasure, "SHRINKAGE", 0.0)
    rng = np.random.default_rng(0)
    known = {
        l: rng.normal(size=(300, WIDTH)) @ rng.normal(size=(WIDTH, WIDTH)) + rng.normal(size=WIDTH)
        for l in NAMES
    }
    out = fit_erasures(known, "en", 5)
    for name in ("whitened", WHITENED_AND_ROTATED):
        for language, X in known.items():
            white = out[name](language, X)
            assert white.mean(0) == pytest.approx(0, abs=1e-9) and white.T @ white / len(
                X
            ) == pytest.approx(np.eye(WIDTH), abs=1e-8)
    for language, X in known.items():
        aside, shift = (out[name](language, X)[0] - X[0] for name in (SHIFTED_ASIDE, "shifted"))
        assert aside @ shift == pytest.approx(0, abs=1e-9) and np.linalg.norm(
            aside
        ) == pytest.approx(np.linalg.norm(shift))


# --- runs

DIALS = (("vocabulary", 128),)
TEXTS = [CorpusSpec(f"micro/{n}", parameters=(("sentences", 60), *DIALS)) for n in NAMES]
BERT = PretrainSpec(
    tuple(map(Language, NAMES, TEXTS)),
    TokenizerSpec(TEXTS[0], 400, "words", tuple(TEXTS[1:])),
    Shape(2, 16, 1, 32, 40),
    Training(epochs=0, batch=16, steps=5),
)


def asked(task, **fields):
    def part(name, part, n):
        return LabelledRecords(name, RecordsSpec(task, f"micro/{name}", part, n, DIALS))

    tests = tuple((part(n, "dev", 24), part(n, "test", 30)) for n in NAMES)
    return replace(
        TakenOutSpec(BERT, part("en", "train", 90), tests, 1, SETTINGS, seed=2), **fields
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"))
    run([asked("nli"), asked("ner")], store, Inline(), progress=False)
    return store


def states(store):
    """Vectors of a sentence at layer 1, by `transformers` alone."""
    encoder = load_checkpoint(store.path(BERT))
    table = encoder.tokenizer.get_vocab()

    def of(words):
        ids = torch.tensor([[2, *(table.get(w, table["[UNK]"]) for w in words), 3]])
        with torch.no_grad():
            return (
                encoder.model(ids, output_hidden_states=True)
                .hidden_states[1][0, 1:-1]
                .double()
                .numpy()
            )

    return of


def regressed(X, y, Z):
    scaler = X.mean(0), X.std(0)
    model = LogisticRegression(C=1 / (SETTINGS.penalties[0] * len(X)), max_iter=2000, tol=1e-8).fit(
        (X - scaler[0]) / scaler[1], y
    )
    return model.predict((Z - scaler[0]) / scaler[1])


def test_pairs_by_hand(store):
    """Centred: means of sentences less the mean of the language's, and scikit-learn's regression on
    both and what they have to do with each other.
    """
    spec, vectors, found = asked("nli"), states(store), read_measures(store.path(asked("nli")))

    def sides(side):
        return [
            np.stack(
                [vectors(r[s].split()).mean(0) for r in read_records(store.path(side.records))]
            )
            for s in ("premise", "hypothesis")
        ]

    centre = {dev.language: np.concatenate(sides(dev)).mean(0) for dev, _ in spec.tests}

    def read(side):
        u, v = (X - centre[side.language] for X in sides(side))
        return (
            np.concatenate([u, v, abs(u - v), u * v], 1),
            [r["label"] for r in read_records(store.path(side.records))],
        )

    X, y = read(spec.train)
    for _, test in spec.tests:
        Z, z = read(test)
        assert found[f"centred score {test.language}"] == pytest.approx(
            np.mean(regressed(X, y, Z) == z), abs=0.04
        )
    assert found["chance"] == pytest.approx(1 / 3) and 0.2 < found["commonest es"] < 0.5


def test_words_by_hand(store):
    spec, vectors, found = asked("ner"), states(store), read_measures(store.path(asked("ner")))

    def read(side):
        records = read_records(store.path(side.records))
        return np.concatenate([vectors(r["tokens"]) for r in records]), sum(
            (r["tags"] for r in records), []
        )

    (X, y), (Z, z) = read(spec.train), read(spec.tests[1][1])
    told, starts = (
        regressed(X, y, Z),
        np.cumsum(
            [0, *(len(r["tokens"]) for r in read_records(store.path(spec.tests[1][1].records)))]
        ),
    )
    from xlingual_nb.tasks.metrics import span_f1

    cut = [[side[a:b] for a, b in zip(starts, starts[1:])] for side in (z, told.tolist())]
    assert (
        found["as it is score es"] == pytest.approx(span_f1(*cut)["f1"], abs=0.04)
        and found["commonest es"] == 0
    )
    known, tests = ({n: read(pair[i])[0] for n, pair in zip(NAMES, spec.tests)} for i in (0, 1))
    assert found["as it is identity"] == pytest.approx(
        language_erasure.identification_accuracy(known, tests), abs=0.02
    )


def test_every_way_has_its_numbers_and_a_brought_model_the_same(store):
    found = read_measures(store.path(asked("ner")))
    for way in WAYS:
        assert {
            f"{way} identity",
            f"{way} spread",
            *(f"{way} score {n}" for n in NAMES),
        } <= found.keys()
    brought = asked("ner", checkpoint=ExternalCheckpointSpec(str(store.path(BERT))))
    run([brought], store, Inline(), progress=False)
    assert read_measures(store.path(brought)) == found
    assert taken_out_cost(brought)["flops"] == taken_out_cost(asked("ner"))["flops"] > 0
    assert taken_out_cost(asked("ner", checkpoint=ExternalCheckpointSpec("nowhere")))["flops"] == 0


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(layer=3), "layer 3 is not there: choose 0 .the embeddings. to 2"),
        (dict(checkpoint="bert"), "give the spec of a run"),
        (dict(tests=asked("ner").tests[1:]), "give two languages or more, 'en' first"),
        (dict(tests=asked("ner").tests[:1]), "two languages or more"),
        (
            dict(
                tests=(asked("ner").tests[0], asked("ner").tests[1][:1] + asked("ner").tests[2][1:])
            ),
            "to develop on in es, to test on in another",
        ),
        (
            dict(train=LabelledRecords("en", RecordsSpec("pos", "micro/en", "train", 9))),
            "records of pos: choose nli or ner",
        ),
    ],
)
def test_what_a_spec_refuses(fields, message):
    with pytest.raises(InputError, match=message):
        asked("ner", **fields)


def test_text_too_short_for_a_mean():
    tests = {l: (planted(0, l, 0, n=8), planted(1, l, 0)) for l in NAMES}
    with pytest.raises(
        InputError, match="text to develop on in en has fewer than 10 vectors: give more of it"
    ):
        score_erasures(tests["en"][1], tests, SETTINGS)
