"""VecMap on planted spaces, its algebra against scipy and plain matrices, its dictionaries against
loops.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.linalg import fractional_matrix_power, orthogonal_procrustes

from xlingual_nb.errors import InputError
from xlingual_nb.models.vecmap import (
    SelfLearning,
    initial_dictionary,
    induce_dictionary,
    normalise_vectors,
    procrustes,
    reweight_symmetrically,
    similarity_signatures,
    fit_supervised,
    unit_rows,
    vecmap,
    whitening_matrices,
)

seeds = st.integers(0, 10**6)
torch.set_num_threads(1)


def planted(n, width, noise, seed, clusters=30):
    """Clustered words, the same turned, noisy and in another order, and the place of each word in
    the second table.
    """
    rng = torch.Generator().manual_seed(seed)
    spread = torch.logspace(0, -1, width)

    def draw(rows):
        return torch.randn(rows, width, generator=rng) * spread

    which = torch.randint(0, clusters, (n,), generator=rng) * torch.randint(
        0, 2, (n,), generator=rng
    )
    words, order = draw(clusters)[which] + draw(n), torch.randperm(n, generator=rng)
    turn = torch.linalg.qr(torch.randn(width, width, generator=rng))[0]
    return words, (words + noise * draw(n))[order] @ turn, order.argsort()


def found(mapped, places):
    return float(
        (unit_rows(mapped.first) @ unit_rows(mapped.second).T).argmax(1).eq(places).float().mean()
    )


def known(places):
    return torch.stack([torch.arange(len(places)), places], 1)


# the accuracy that is stated: with noise of a third of the signal all but one word in a hundred
@pytest.mark.parametrize("noise, least", [(0.1, 1.0), (0.3, 0.99)])
def test_a_planted_rotation_is_found_without_pairs(noise, least):
    words, other, places = planted(400, 20, noise, 0)
    mapped = vecmap(words, other)
    assert found(mapped, places) >= least
    assert mapped.history[0][0] == 0.1 and mapped.history[-1][0] == 1
    assert sorted({keep for keep, _ in mapped.history}) == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert torch.equal(vecmap(words, other).first, mapped.first), "the same seed, the same mapping"


def test_two_spaces_that_have_nothing_to_do_with_each_other_are_not_mapped():
    words, _, places = planted(300, 20, 0.1, 0)
    unrelated = torch.randn(300, 20, generator=torch.Generator().manual_seed(5))
    assert found(vecmap(words, unrelated), places) < 0.05


def test_known_pairs_map_words_that_were_held_back():
    words, other, places = planted(400, 20, 0.3, 1)
    for rotation in (False, True):
        assert found(fit_supervised(words, other, known(places)[::2], rotation), places) > 0.95


def test_tables_need_not_be_of_one_length():
    words, other, places = planted(400, 20, 0.1, 2)
    mapped = vecmap(words, other[:390])
    kept = places < 390
    nearest = (unit_rows(mapped.first) @ unit_rows(mapped.second).T).argmax(1)
    assert (
        mapped.second.shape == (390, 20) and float(nearest.eq(places)[kept].float().mean()) > 0.95
    )


@given(seeds)
def test_procrustes_is_scipys(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, 30, 5))
    W = procrustes(torch.from_numpy(A), torch.from_numpy(B)).numpy()
    assert np.allclose(W, orthogonal_procrustes(A, B)[0], atol=1e-9) and np.allclose(
        W @ W.T, np.eye(5)
    )


@given(seeds)
def test_whitening_is_the_inverse_root_of_the_product(seed):
    X = np.random.default_rng(seed).normal(size=(40, 5)) * [3, 1, 1, 0.5, 0.1]
    white, colour = whitening_matrices(torch.from_numpy(X))
    assert np.allclose(white.numpy(), fractional_matrix_power(X.T @ X, -0.5), atol=1e-8)
    made = X @ white.numpy()
    assert np.allclose((white @ colour).numpy(), np.eye(5)) and np.allclose(
        made.T @ made, np.eye(5)
    )


@given(seeds)
def test_reweighting_step_by_step(seed):
    """Whiten, rotate, stretch by the root of the correlations, give each its own spread back; in
    numpy.
    """
    rng = np.random.default_rng(seed)
    X, Z, pairs = rng.normal(size=(30, 4)), rng.normal(size=(25, 4)), rng.integers(0, 25, (40, 2))
    roots = [
        fractional_matrix_power(T[k].T @ T[k], 0.5) for T, k in ((X, pairs[:, 0]), (Z, pairs[:, 1]))
    ]
    U, S, Vt = np.linalg.svd(
        (X @ np.linalg.inv(roots[0]))[pairs[:, 0]].T @ (Z @ np.linalg.inv(roots[1]))[pairs[:, 1]]
    )
    one = X @ np.linalg.inv(roots[0]) @ U @ np.diag(S**0.5) @ (U.T @ roots[0] @ U)
    other = Z @ np.linalg.inv(roots[1]) @ Vt.T @ np.diag(S**0.5) @ (Vt @ roots[1] @ Vt.T)
    made = reweight_symmetrically(*map(torch.from_numpy, (X, Z)), torch.from_numpy(pairs))
    assert np.allclose(
        made[0] @ made[1].T, one @ other.T, atol=1e-7
    )  # signs of directions are free


@settings(max_examples=30)
@given(seeds, st.integers(1, 12), st.integers(1, 5))
def test_a_dictionary_is_that_of_loops_whatever_the_block(seed, size, k):
    rng = torch.Generator().manual_seed(seed)
    X, Z = (unit_rows(torch.randn(n, 4, generator=rng)) for n in (9, 11))
    S = (X @ Z.T).numpy()

    def r(row):
        return np.sort(row)[::-1][:k].mean()

    csls = np.array([[2 * S[i, j] - r(S[i]) - r(S[:, j]) for j in range(11)] for i in range(9)])
    pairs, objective = induce_dictionary(X, Z, k=k, size=size)
    assert pairs.tolist() == [[i, csls[i].argmax()] for i in range(9)] + [
        [csls[:, j].argmax(), j] for j in range(11)
    ]
    assert objective == pytest.approx((S.max(1).mean() + S.max(0).mean()) / 2, abs=1e-6)


def test_the_share_of_pairs_that_may_be_chosen():
    """The best candidate is kept with that chance, so the best is chosen as often, and the second
    best next.
    """
    X = unit_rows(torch.randn(50, 8, generator=torch.Generator().manual_seed(0)))
    rng, chosen = torch.Generator().manual_seed(1), []
    for _ in range(100):
        chosen.append(induce_dictionary(X, X, 0.3, 1, rng)[0].diff(dim=1).eq(0).float().mean())
    assert float(torch.stack(chosen).mean()) == pytest.approx(0.3, abs=0.03)


@given(seeds)
def test_signatures_know_neither_order_nor_rotation(seed):
    rng = torch.Generator().manual_seed(seed)
    X, order = (
        normalise_vectors(torch.randn(20, 5, generator=rng)),
        torch.randperm(20, generator=rng),
    )
    turn = torch.linalg.qr(torch.randn(5, 5, generator=rng))[0]
    assert torch.allclose(
        similarity_signatures(X[order] @ turn), similarity_signatures(X)[order], atol=1e-3
    )


def test_only_the_commonest_words_are_looked_at():
    words, other, _ = planted(400, 20, 0.1, 3)
    few = SelfLearning(cutoff=150, start=100, rounds=3)
    assert initial_dictionary(normalise_vectors(words), normalise_vectors(other), few).max() == 99
    mapped = vecmap(words, other, few)
    assert len(mapped.history) == 3 and mapped.pairs.max() == 149 and len(mapped.first) == 400


@pytest.mark.parametrize("first, second", [((10, 4), (10, 5)), ((0, 4), (10, 4)), ((10,), (10, 4))])
def test_tables_that_do_not_fit_are_one_line(first, second):
    pairs = torch.zeros(1, 2, dtype=torch.long)
    for call in (vecmap, lambda X, Z: fit_supervised(X, Z, pairs)):
        with pytest.raises(InputError, match="the same width") as error:
            call(torch.zeros(first), torch.zeros(second))
        assert "\n" not in str(error.value)


def test_settings_that_there_cannot_be():
    for wrong in (dict(keep=0), dict(growth=1), dict(cutoff=0)):
        with pytest.raises(InputError):
            SelfLearning(**wrong)
