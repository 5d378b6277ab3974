"""Retrieval and the multilinguality score against loops over one sentence at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.neighbors import NearestNeighbors

from xlingual_nb.errors import InputError
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.measures.retrieval import (
    hits,
    multilinguality,
    precision_at_1,
    translation_ids,
    upper_layer,
)
from xlingual_nb.text.tokenizers import Encoded

seeds = st.integers(0, 10**6)
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def pair(seed, m=40, noise=1.0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(m, 5))
    return A.astype(np.float32), (A + noise * rng.normal(size=(m, 5))).astype(np.float32)


def expected_hits(A, B, tie=1e-6):
    """The definition, in double precision and one query after another."""
    S = cosine_similarity(A.astype(float), B.astype(float))
    best = [[j for j in range(len(B)) if row[j] >= row.max() - tie] for row in S]
    return [1 / len(b) if i in b else 0 for i, b in enumerate(best)]


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, 40), st.integers(1, 50))
def test_hits_by_loops_whatever_the_chunk(seed, m, chunk):
    A, B = pair(seed, m)
    assert hits(A, B, chunk).tolist() == pytest.approx(expected_hits(A, B))


def test_hits_by_scikit_learn():
    A, B = pair(0, 300)
    nearest = (
        NearestNeighbors(n_neighbors=1, metric="cosine")
        .fit(B)
        .kneighbors(A, return_distance=False)[:, 0]
    )
    assert hits(A, B).bool().tolist() == (nearest == np.arange(300)).tolist()


@settings(deadline=None, max_examples=40)
@given(seeds, st.lists(st.integers(0, 5), min_size=1, max_size=20), st.integers(1, 9))
def test_ties_earn_their_share(seed, which, chunk):
    """Rows repeat, as equal sentences do: the summed hits are the number of different rows."""
    A = pair(seed, 6)[0][which]
    scores = hits(A, A, chunk)
    assert scores.tolist() == pytest.approx(
        [1 / which.count(w) for w in which]
    ) and scores.sum().item() == pytest.approx(len(set(which)))


@settings(deadline=None)
@given(st.integers(1, 30))
def test_a_collapsed_space_scores_chance(m):
    assert precision_at_1(np.ones((m, 4)), np.ones((m, 4))) == pytest.approx(1 / m)


@settings(deadline=None, max_examples=30)
@given(seeds)
def test_rotation_scale_and_order_change_nothing(seed):
    A, B = pair(seed, noise=0.3)
    rng = np.random.default_rng(seed + 1)
    Q, order = np.linalg.qr(rng.normal(size=(5, 5)))[0], rng.permutation(len(A))
    value = precision_at_1(A, B)
    assert precision_at_1(A @ Q, B @ Q) == pytest.approx(value) and precision_at_1(
        A[order], B[order]
    ) == pytest.approx(value)
    assert precision_at_1(A * rng.uniform(0.1, 9, (len(A), 1)), B) == pytest.approx(
        value
    ) and precision_at_1(B, A) == pytest.approx(value)
    assert precision_at_1(A, A @ np.diag([2, 2, 2, 2, 2])) == 1


def test_a_shifted_order_finds_nothing():
    A = np.eye(10)
    assert precision_at_1(A, np.roll(A, 1, 0)) == 0
    with pytest.raises(InputError, match="parallel"):
        precision_at_1(A, A[:9])


def test_upper_layer():
    assert {d: upper_layer(d) for d in (0, 1, 2, 3, 4, 5, 6, 8, 12, 24)} == {
        0: 0,
        1: 1,
        2: 1,
        3: 2,
        4: 3,
        5: 3,
        6: 4,
        8: 5,
        12: 8,
        24: 16,
    }


VARIANTS = {
    "original": {},
    "inv-order": dict(inverted=True),
    "all": dict(special_offset=32, position_offset=12, token_type=1, inverted=True),
}


def score_by_loops(model, view, sentences, layers):
    """D's score from its formulas: every sentence and word alone through the library's model, plain
    lists, double precision.
    """

    def states(tokens, v):
        n, v = len(tokens) + 2, v or {}
        s, p = v.get("special_offset", 0), v.get("position_offset", 0)
        out = model(
            torch.tensor([[2 + s, *tokens, 3 + s]]),
            position_ids=torch.arange(p, p + n)[None],
            token_type_ids=torch.full((1, n), v.get("token_type", 0)),
            output_hidden_states=True,
        ).hidden_states
        return [h[0, 1:-1].double().numpy() for h in out]

    def precision(A, B):
        S = cosine_similarity(A, B)
        return (
            sum(int(S[i].argmax() == i) + int(S[:, i].argmax() == i) for i in range(len(S)))
            / 2
            / len(S)
        )

    turn = -1 if view.get("inverted") else 1
    en, fake = (
        [states(s, None) for s in sentences],
        [states([w + 32 for w in s][::turn], view) for s in sentences],
    )
    words, fakes = (
        [states([w], None) for w in range(5, 32)],
        [states([w + 32], view) for w in range(5, 32)],
    )
    result = {}
    for name, layer in zip(("lower", "upper"), layers):
        result["rho_" + name] = precision(
            *([h[layer].mean(0) for h in side] for side in (en, fake))
        )
        result["tau_" + name] = precision(*([h[layer][0] for h in side] for side in (words, fakes)))
        found = right = wanted = 0
        for a, b in zip(en, fake):
            S = cosine_similarity(a[layer], b[layer])
            edges = [
                (i, j)
                for i in range(len(S))
                for j in range(len(S))
                if S[i].argmax() == j and S[:, j].argmax() == i
            ]
            right += sum(j == (len(S) - 1 - i if turn < 0 else i) for i, j in edges)
            found += len(edges)
            wanted += len(S)
        result["f1_" + name] = 2 * right / (found + wanted)
    return result | dict(mu=np.mean([result[k] for k in result if k[0] in "rt"]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_score_by_loops(variant, device, tmp_path):
    view = VARIANTS[variant]
    c = load_checkpoint(
        tiny_checkpoint(
            tmp_path, languages=[dict(name="en"), dict(name="enfake", token_offset=32) | view]
        ),
        device,
    )
    table = c.model.get_input_embeddings().weight
    table *= 5
    table[32:] = table[:32] + 0.7 * table[32:]  # two spaces that half agree
    rng = np.random.default_rng(0)
    sentences = [rng.integers(5, 32, rng.integers(1, 10)).tolist() for _ in range(30)]
    english, fake = (
        Encoded.of(sentences),
        Encoded.of([w + 32 for w in s][:: -1 if view.get("inverted") else 1] for s in sentences),
    )
    ours, theirs = (
        multilinguality(c, english, fake),
        score_by_loops(c.model.cpu(), view, sentences, (0, 2)),
    )
    c.model.to(c.device)
    assert {k: ours[k] for k in theirs} == pytest.approx(
        theirs, abs=0.03 if device == "cuda" else 1e-9
    )
    assert 0.05 < ours["mu"] < 0.99 and (
        ours["sentences"],
        ours["words"],
        ours["truncated"],
        ours["layer_upper"],
    ) == (30, 27, 0, 2)


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    """Both languages have the same embeddings, and the second is written backwards."""
    fake = dict(name="enfake", token_offset=32, inverted=True)
    c = load_checkpoint(
        tiny_checkpoint(tmp_path_factory.mktemp("twin"), languages=[dict(name="en"), fake])
    )
    weights = dict(c.model.named_parameters())
    weights["bert.embeddings.position_embeddings.weight"].zero_()
    table = c.model.get_input_embeddings().weight
    table[32:] = table[:32]
    return c


def test_equal_spaces_are_perfect_and_long_inverted_sentences_are_cut_to_the_same_words(twin):
    """Without positions an inverted sentence has the same vectors; 22 tokens fit, and what is left
    of 30 must be the same 22 in both.
    """
    rng = np.random.default_rng(1)
    sentences = [rng.permutation(np.arange(5, 32)).tolist() + [5, 6, 7] for _ in range(8)] + [
        [7, 8, 9]
    ]
    score = multilinguality(
        twin, Encoded.of(sentences), Encoded.of([w + 32 for w in s][::-1] for s in sentences)
    )
    assert score["mu"] == score["f1_lower"] == score["f1_upper"] == 1
    assert score["truncated"] == 16 and score["rho_upper"] == score["tau_upper"] == 1


def test_word_lists(twin):
    pairs = translation_ids(twin, ("en", "enfake"))
    assert pairs.tolist() == [[i, i + 32] for i in range(5, 32)]
    assert translation_ids(twin, ("enfake", "en"))[0].tolist() == [37, 5] and translation_ids(
        twin, ("en", "enfake"), [6, 9]
    ).tolist() == [[6, 38], [9, 41]]
    assert translation_ids(twin, ("en", "enfake"), [(6, 40)]).tolist() == [[6, 40]]


def test_portions_change_nothing(tmp_path):
    """Spaces that half agree; no word twice in a sentence, as rounding would choose between the
    two.
    """
    from xlingual_nb.measures import retrieval

    c = load_checkpoint(
        tiny_checkpoint(
            tmp_path,
            languages=[dict(name="en"), dict(name="enfake", token_offset=32, inverted=True)],
        )
    )
    table = c.model.get_input_embeddings().weight
    table[32:] = table[:32] + 0.7 * table[32:]
    rng = np.random.default_rng(2)
    english = Encoded.of(
        rng.permutation(np.arange(5, 32))[: rng.integers(1, 15)] for _ in range(30)
    )
    fake = Encoded.of(s[::-1] + 32 for s in english)
    one, *others = (
        retrieval.sentence_measures(c, english, fake, ("en", "enfake"), (0, 2), portion)
        for portion in (1, 7, 1000)
    )
    assert others == [one, one] and 0 < one[0]["f1"] < 1


def test_real_pairs_need_words_and_have_no_identity_gold(tmp_path):
    c = load_checkpoint(tiny_checkpoint(tmp_path))
    en, de = Encoded.of([[5, 6], [7]]), Encoded.of([[8], [9, 10]])
    with pytest.raises(InputError, match="share a vocabulary"):
        multilinguality(c, en, de, ("en", "de"))
    score = multilinguality(c, en, de, ("en", "de"), words=[(5, 8), (7, 9)])
    assert np.isnan(score["f1_lower"]) and 0 <= score["mu"] <= 1


@pytest.mark.parametrize(
    "n, m, layers, says",
    [(2, 1, None, "parallel"), (0, 0, None, "no sentences"), (2, 2, (0, 9), "layers 0")],
)
def test_what_does_not_fit_is_refused(twin, n, m, layers, says):
    with pytest.raises(InputError, match=says):
        multilinguality(twin, Encoded.of([[5]] * n), Encoded.of([[37]] * m), layers=layers)
