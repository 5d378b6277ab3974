"""The conditional random field against every path written down one by one."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from xlingual_nb.tasks.bilstm_crf import crf_nll, log_partition, path_score, viterbi

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def random_case(sizes, tags, seed, device="cpu", dtype=torch.float64):
    """Emissions, lengths, transitions, start and end for sentences of the given sizes."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return 2 * torch.randn(*shape, generator=g, dtype=dtype).to(device)

    emissions, lengths = draw(len(sizes), max(sizes), tags), torch.tensor(sizes, device=device)
    return emissions, lengths, draw(tags, tags), draw(tags), draw(tags)


def enumerate_paths(emissions, size, transitions, start, end):
    """Score of every path of one sentence, by plain loops over numbers."""
    e, t, first, last = emissions.tolist(), transitions.tolist(), start.tolist(), end.tolist()
    scores = {}
    for path in itertools.product(range(len(first)), repeat=size):
        score = first[path[0]] + last[path[-1]]
        for word, tag in enumerate(path):
            score += e[word][tag]
        for a, b in itertools.pairwise(path):
            score += t[a][b]
        scores[path] = score
    return scores


cases = dict(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    tags=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)


@settings(deadline=None, max_examples=60)
@given(**cases)
def test_likelihood_and_best_path_of_every_sentence(sizes, tags, seed):
    emissions, lengths, *scores = random_case(sizes, tags, seed)
    gold = torch.from_numpy(np.random.default_rng(seed).integers(0, tags, emissions.shape[:2]))
    nll, mine = (
        crf_nll(emissions, gold, lengths, *scores),
        path_score(emissions, gold, lengths, *scores),
    )
    total = log_partition(emissions, lengths, *scores)
    paths, best = viterbi(emissions, lengths, *scores)
    for i, size in enumerate(sizes):
        every = enumerate_paths(emissions[i], size, *scores)
        log_sum = np.logaddexp.reduce(list(every.values()))
        right = every[tuple(gold[i, :size].tolist())]
        assert total[i].item() == pytest.approx(log_sum) and mine[i].item() == pytest.approx(right)
        assert nll[i].item() == pytest.approx(log_sum - right, abs=1e-9)
        assert best[i].item() == pytest.approx(max(every.values()))
        assert every[tuple(paths[i, :size].tolist())] == pytest.approx(max(every.values()))
        assert (paths[i, size:] == -1).all()


@settings(deadline=None, max_examples=40)
@given(**cases, banned=st.floats(0.1, 0.7))
def test_forbidden_transitions_are_never_taken(sizes, tags, seed, banned):
    emissions, lengths, transitions, start, end = random_case(sizes, tags, seed)
    rng = np.random.default_rng(seed)
    for score in (transitions, start, end):
        no = torch.from_numpy(rng.random(score.shape) < banned)
        no[(0,) * no.ndim] = False  # so that the path of nothing but tag 0 is allowed
        score[no] = -torch.inf
    paths, best = viterbi(emissions, lengths, transitions, start, end)
    for i, size in enumerate(sizes):
        every = enumerate_paths(emissions[i], size, transitions, start, end)
        assert best[i].item() == pytest.approx(max(every.values())) and best[i] > -torch.inf
        assert every[tuple(paths[i, :size].tolist())] == pytest.approx(max(every.values()))


def test_gradient_against_finite_differences():
    emissions, lengths, *scores = random_case([4, 1, 3], 3, 0)
    gold = torch.tensor([[0, 2, 1, 1], [2, 0, 0, 0], [1, 1, 0, 0]])
    leaves = [x.requires_grad_() for x in (emissions, *scores)]
    assert torch.autograd.gradcheck(lambda e, *s: crf_nll(e, gold, lengths, *s), leaves)


def test_gradient_is_the_marginal_less_the_gold():
    emissions, lengths, *scores = random_case([3, 2], 3, 5)
    gold = torch.tensor([[0, 2, 1], [2, 0, 0]])
    crf_nll(emissions.requires_grad_(), gold, lengths, *scores).sum().backward()
    for i, size in enumerate((3, 2)):
        every = enumerate_paths(emissions[i].detach(), size, *scores)
        log_sum = np.logaddexp.reduce(list(every.values()))
        for word, tag in itertools.product(range(3), range(3)):
            marginal = sum(
                np.exp(s - log_sum)
                for path, s in every.items()
                if word < size and path[word] == tag
            )
            expected = marginal - (word < size and gold[i, word].item() == tag)
            assert emissions.grad[i, word, tag].item() == pytest.approx(expected, abs=1e-9)


def test_what_stands_beyond_the_end_has_no_influence():
    emissions, lengths, *scores = random_case([2, 4, 1], 3, 1)
    gold = torch.randint(0, 3, (3, 4), generator=torch.Generator().manual_seed(0))
    other, other_gold = emissions.clone(), gold.clone()
    beyond = torch.arange(4) >= lengths[:, None]
    other[beyond], other_gold[beyond] = 1e4, 2
    torch.testing.assert_close(
        crf_nll(emissions, gold, lengths, *scores), crf_nll(other, other_gold, lengths, *scores)
    )
    for a, b in zip(viterbi(emissions, lengths, *scores), viterbi(other, lengths, *scores)):
        torch.testing.assert_close(a, b)


def test_large_scores_do_not_overflow():
    emissions, lengths, *scores = random_case([5, 3], 3, 2, dtype=torch.float32)
    gold = viterbi(1e4 * emissions, lengths, *scores)[0].clamp(min=0)
    nll = crf_nll(1e4 * emissions, gold, lengths, *scores)
    assert (
        torch.isfinite(nll).all() and nll.abs().max() < 1
    )  # the best path has all the probability there is


def test_without_transitions_every_word_stands_alone():
    emissions, lengths, *_ = random_case([4, 4], 5, 3)
    nothing = torch.zeros(5, dtype=torch.float64)
    gold = torch.randint(0, 5, (2, 4), generator=torch.Generator().manual_seed(1))
    nll = crf_nll(emissions, gold, lengths, nothing.expand(5, 5), nothing, nothing)
    plain = torch.nn.functional.cross_entropy(
        emissions.transpose(1, 2), gold, reduction="none"
    ).sum(1)
    torch.testing.assert_close(nll, plain)
    assert torch.equal(
        viterbi(emissions, lengths, nothing.expand(5, 5), nothing, nothing)[0], emissions.argmax(2)
    )


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_equals_its_sentences_alone(device):
    sizes = [7, 1, 12, 3, 12]
    emissions, lengths, *scores = random_case(sizes, 6, 4, device)
    gold = torch.randint(0, 6, (5, 12), generator=torch.Generator().manual_seed(2)).to(device)
    nll, (paths, _) = (
        crf_nll(emissions, gold, lengths, *scores),
        viterbi(emissions, lengths, *scores),
    )
    for i, n in enumerate(sizes):
        alone = emissions[i : i + 1, :n], gold[i : i + 1, :n], lengths[i : i + 1]
        torch.testing.assert_close(crf_nll(*alone, *scores)[0], nll[i])
        assert torch.equal(viterbi(alone[0], alone[2], *scores)[0][0], paths[i, :n])
