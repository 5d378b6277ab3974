"""The linear tagger: scikit-learn's logistic regression as the oracle, the choice of its penalty,
what it refuses.
"""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from xlingual_nb.errors import InputError
from xlingual_nb.models.configs import LinearTagging
from xlingual_nb.tasks.linear_probes import regress, tag_words, train_linear
from xlingual_nb.tasks.metrics import accuracy
from xlingual_nb.tasks.bilstm_crf import Features

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def toy(sentences, seed=0, noise=1.0, width=8, device="cpu"):
    """Words of three kinds whose vectors lie around three points, far from the origin and of
    unequal spread.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, sentences)
    kinds = rng.integers(0, 3, lengths.sum())
    points = np.random.default_rng(99).normal(size=(3, width))
    x = (points[kinds] + noise * rng.normal(size=(len(kinds), width))) * np.geomspace(
        0.01, 100, width
    ) + 5
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tags = [["NOUN", "VERB", "ADJ"][k] for k in kinds]
    words = Features(torch.tensor(x, dtype=torch.float32, device=device), starts)
    return words, [tags[a:b] for a, b in zip(starts, starts[1:])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("penalty", [1e-1, 1e-3])
def test_the_regression_is_that_of_scikit_learn(penalty, device):
    rng = np.random.default_rng(1)
    x, target = rng.normal(size=(400, 5)), rng.integers(0, 4, 400)
    theirs = LogisticRegression(C=1 / (penalty * 400), tol=1e-10, max_iter=10_000).fit(x, target)
    mine = regress(
        *(torch.tensor(a, device=device) for a in (x.astype(np.float32), target)), 4, penalty, 500
    )
    np.testing.assert_allclose(mine[0].cpu().T, theirs.coef_, atol=1e-4)
    bias = mine[1].cpu().numpy()
    np.testing.assert_allclose(
        bias - bias.mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=1e-4
    )


@pytest.mark.parametrize("device", DEVICES)
def test_a_toy_task_is_learnt_whatever_the_scale_of_the_vectors(device):
    (train, tags), dev, (test, gold) = (toy(200, seed, 0.3, device=device) for seed in range(3))
    seen = []
    tagger = train_linear(train, tags, *dev, progress=lambda *at: seen.append(at))
    found = tag_words(tagger, test)
    assert accuracy(sum(found, []), sum(gold, [])) > 0.95 and list(map(len, found)) == list(
        map(len, gold)
    )
    alone = Features(test.vectors[: test.starts[1]], test.starts[:2])
    assert tag_words(tagger, alone) == found[:1], "a word's tag does not hang on what else is asked"
    assert seen == [(i, 4) for i in (1, 2, 3, 4)] and tagger.labels == ("ADJ", "NOUN", "VERB")
    shifted, other = (Features(f.vectors * 1000 - 7, f.starts) for f in (train, dev[0]))
    again = train_linear(shifted, tags, other, dev[1])
    assert tag_words(again, Features(test.vectors * 1000 - 7, test.starts)) == found


def test_the_penalty_is_the_best_on_the_development_set_and_of_equals_the_strongest():
    (train, tags), (dev, dev_tags) = toy(12, 0, 1.5, 32), toy(80, 1, 1.5, 32)
    tagger = train_linear(train, tags, dev, dev_tags)
    alone = [
        train_linear(train, tags, dev, dev_tags, LinearTagging((p,)))
        for p in tagger.settings.penalties
    ]
    scores = [accuracy(sum(tag_words(t, dev), []), sum(dev_tags, [])) for t in alone]
    assert list(tagger.dev_accuracy) == scores and len(set(scores)) > 1
    assert torch.equal(tagger.weights, alone[scores.index(max(scores))].weights)
    never = [["X"] * len(t) for t in dev_tags]
    assert torch.equal(train_linear(train, tags, dev, never).weights, alone[0].weights)


def test_no_chance_is_in_it():
    (train, tags), dev = toy(30), toy(10, 1)
    taggers = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        taggers.append(train_linear(train, tags, *dev))
        assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(taggers[0].weights, taggers[1].weights) and torch.equal(
        taggers[0].bias, taggers[1].bias
    )


def test_a_number_that_never_varies_does_no_harm():
    (train, tags), (dev, dev_tags) = toy(60, noise=0.2), toy(20, 1, 0.2)
    still = [
        Features(torch.cat([f.vectors, torch.full((len(f.vectors), 1), 3.0)], 1), f.starts)
        for f in (train, dev)
    ]
    tagger = train_linear(still[0], tags, still[1], dev_tags)
    assert torch.isfinite(tagger.weights).all() and max(tagger.dev_accuracy) > 0.95


def test_features_that_were_made_in_inference_mode_will_do():
    """Features of a frozen encoder are often made there."""
    with torch.inference_mode():
        features = [toy(20, seed, 0.2) for seed in (0, 1)]
    assert max(train_linear(*features[0], *features[1]).dev_accuracy) > 0.9


def test_what_is_refused():
    words, tags = toy(10)
    longer = [tags[0] + ["X"], *tags[1:]]
    for t, said in (
        (tags[:9], "10 sentences have features, 9 tags"),
        (longer, "training set: sentence 0"),
    ):
        with pytest.raises(InputError, match=said):
            train_linear(words, t, words, tags)
    with pytest.raises(InputError, match="development set"):
        train_linear(words, tags, words, tags[1:])
    lost = Features(words.vectors * torch.nan, words.starts)
    with pytest.raises(InputError, match="not finite"):
        train_linear(lost, tags, words, tags)
    tagger = train_linear(words, tags, words, tags, LinearTagging((0.1,), 3))
    narrow = Features(torch.zeros(3, 5), np.array([0, 3]))
    with pytest.raises(InputError, match="5 numbers a word, but the tagger reads 8"):
        tag_words(tagger, narrow)


@pytest.mark.parametrize(
    "wrong", [dict(penalties=()), dict(penalties=(0.0,)), dict(penalties=(0.1, 0.2)), dict(steps=0)]
)
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        LinearTagging(**wrong)
