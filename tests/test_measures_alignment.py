"""Alignment against loops, and against the aligner of the method's own authors."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from xlingual_nb.errors import InputError
from xlingual_nb.measures.retrieval import (
    align_corpus,
    alignment_f1,
    alignment_scores,
    identity_gold,
)

sizes = st.integers(1, 9)
seeds = st.integers(0, 10**6)


def vectors(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def align_one(E, F):
    """The alignment of one sentence pair."""
    E, F = torch.as_tensor(E), torch.as_tensor(F)
    return align_corpus(E, [0, len(E)], F, [0, len(F)])[:, 1:]


def by_loops(E, F):
    """Mutual first maxima, in plain Python."""
    cosine = [
        [float(e @ f / np.linalg.norm(e) / np.linalg.norm(f)) for f in F] for e in E.astype(float)
    ]
    best = lambda row: max(range(len(row)), key=lambda k: (row[k], -k))
    pairs = []
    for i in range(len(E)):
        j = best(cosine[i])
        if best([cosine[k][j] for k in range(len(E))]) == i:
            pairs.append([i, j])
    return pairs


@settings(deadline=None, max_examples=60)
@given(seeds, sizes, sizes)
def test_one_pair_by_loops(seed, m, n):
    E, F = vectors(seed, m, 4), vectors(seed + 1, n, 4)
    pairs = align_one(E, F)
    assert pairs.tolist() == by_loops(E, F)
    assert len(pairs) >= 1 and len(set(pairs[:, 0])) == len(set(pairs[:, 1])) == len(pairs)
    assert sorted(map(tuple, align_one(F, E)[:, ::-1].tolist())) == sorted(
        map(tuple, pairs.tolist())
    )


@settings(deadline=None, max_examples=25)
@given(
    seeds,
    st.lists(st.tuples(sizes, sizes), min_size=1, max_size=12),
    st.sampled_from([1, 40, 10**6]),
)
def test_a_corpus_is_its_sentences(seed, shapes, budget):
    starts = [np.concatenate([[0], np.cumsum(n)]) for n in zip(*shapes)]
    E, F = (torch.from_numpy(vectors(seed + k, s[-1], 4)) for k, s in enumerate(starts))
    expected = [
        [s, *edge]
        for s in range(len(shapes))
        for edge in by_loops(
            *(X[b[s] : b[s + 1]].numpy() for X, b in ((E, starts[0]), (F, starts[1])))
        )
    ]
    assert align_corpus(E, starts[0], F, starts[1], budget).tolist() == expected


def test_ties_go_to_the_first():
    assert align_one(np.ones((4, 3)), np.ones((5, 3))).tolist() == [[0, 0]]
    same = torch.ones(8, 3)
    assert align_corpus(same, [0, 3, 8], same, [0, 3, 8]).tolist() == [[0, 0, 0], [1, 0, 0]]


def test_texts_that_are_not_parallel():
    with pytest.raises(InputError, match="parallel"):
        align_corpus(torch.ones(3, 2), [0, 3], torch.ones(3, 2), [0, 1, 3])


@settings(deadline=None)
@given(st.sets(st.tuples(sizes, sizes)), st.sets(st.tuples(sizes, sizes)))
def test_scores_by_sets(pairs, gold):
    scores, hits = alignment_scores(sorted(pairs), sorted(gold)), len(pairs & gold)
    p, r = hits / max(1, len(pairs)), hits / max(1, len(gold))
    assert scores["precision"] == p and scores["recall"] == r
    assert (
        scores["f1"] == pytest.approx(2 * p * r / (p + r) if hits else 0)
        and alignment_f1(sorted(pairs), sorted(gold)) == scores["f1"]
    )


def test_the_average_is_micro():
    """Nine right edges in a long sentence and one wrong one in a short: 9/10, not the mean of 1 and
    0.
    """
    gold = identity_gold([9, 2])
    predicted = np.concatenate([gold[:9], [[1, 0, 1], [1, 1, 0]]])
    assert alignment_f1(predicted, gold) == 2 * 9 / (11 + 11)


@settings(deadline=None)
@given(st.lists(sizes, min_size=1, max_size=5), st.booleans())
def test_gold_by_loops(lengths, inverted):
    assert identity_gold(lengths, inverted).tolist() == [
        [s, i, n - 1 - i if inverted else i] for s, n in enumerate(lengths) for i in range(n)
    ]
