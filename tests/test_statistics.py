"""Statistics against scipy, closed forms, hand calculation and simulation."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from xlingual_nb.measures import statistics as S

values = st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=2, max_size=8).filter(
    lambda v: len(set(v)) > 1
)


@given(values, values)
@settings(max_examples=60, deadline=None)
def test_two_arms_are_welch(a, b):
    ours, theirs = S.contrast([a, b], [1, -1]), stats.ttest_ind(a, b, equal_var=False)
    assert np.isclose(ours.df, theirs.df)
    assert np.isclose(
        ours.p_above(), stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue
    )
    assert np.isclose(
        ours.p_below(), stats.ttest_ind(a, b, equal_var=False, alternative="less").pvalue
    )
    assert np.allclose(ours.interval(0.9), theirs.confidence_interval(0.9))


@given(values, st.floats(-2, 2))
@settings(max_examples=40, deadline=None)
def test_one_arm_is_the_t_test(a, bound):
    ours = S.contrast([a], [1])
    assert np.isclose(
        ours.p_above(bound), stats.ttest_1samp(a, bound, alternative="greater").pvalue
    )


def test_weights_scale_and_combine():
    rng = np.random.default_rng(0)
    arms = [rng.normal(m, s, 6) for m, s in ((0.7, 0.02), (0.3, 0.1), (0.5, 0.05))]
    e = S.contrast(arms, [1, -0.5, -0.5])
    assert np.isclose(e.value, arms[0].mean() - (arms[1].mean() + arms[2].mean()) / 2)
    assert np.isclose(
        e.se, np.sqrt(arms[0].var(ddof=1) / 6 + (arms[1].var(ddof=1) + arms[2].var(ddof=1)) / 24)
    )
    assert np.allclose(
        S.contrast([3 * a for a in arms], [1, -0.5, -0.5]).interval(), 3 * np.array(e.interval())
    )


def test_interval_covers_with_unequal_variances_and_few_seeds():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(1500):
        low, high = S.contrast(
            [rng.normal(0.4, 0.1, 3), rng.normal(0.01, 0.002, 3)], [1, -1]
        ).interval()
        hits += low <= 0.39 <= high
    assert abs(hits / 1500 - 0.95) < 0.02


def test_equivalence_is_two_one_sided_tests():
    rng = np.random.default_rng(2)
    a, b = rng.normal(9, 0.3, 5), rng.normal(9.2, 0.4, 5)
    above = stats.ttest_ind(a, b - 1, equal_var=False, alternative="greater").pvalue
    below = stats.ttest_ind(a, b + 1, equal_var=False, alternative="less").pvalue
    e = S.contrast([a, b], [1, -1])
    assert np.isclose(e.p_within(1), max(above, below))
    low, high = e.interval(0.9)
    assert (e.p_within(1) < 0.05) == (
        -1 < low and high < 1
    )  # the well-known duality with the 90% interval


def test_equivalence_errs_at_most_one_time_in_twenty_at_the_margin():
    rng = np.random.default_rng(3)
    wrong = np.mean(
        [
            S.contrast([rng.normal(0.05, 0.02, 4), rng.normal(0, 0.02, 4)], [1, -1]).p_within(0.05)
            < 0.05
            for _ in range(1500)
        ]
    )
    assert wrong < 0.065


def test_one_seed_has_no_interval():
    e = S.contrast([[0.7], [0.1, 0.2]], [1, -1])
    assert (
        np.isclose(e.value, 0.55)
        and np.isnan(e.se)
        and np.isnan(e.p_above())
        and np.isnan(e.p_within(1))
    )
    assert np.isnan(e.interval()).all()


def test_arms_without_spread_decide_nothing():
    """Two equal seeds in each arm are no proof that seeds never differ: no p of 0, no interval
    without width.
    """
    for arms in ([[0.5, 0.5], [0.1, 0.1]], [[0.5] * 5], [[1 / 3] * 3, [0.2] * 3]):
        e = S.contrast(arms, [1, -1][: len(arms)])
        assert np.isclose(e.value, arms[0][0] - (arms[1][0] if arms[1:] else 0))
        assert np.isnan(
            [e.se, e.df, e.p_above(0.3), e.p_below(0.3), e.p_within(1), e.p_outside(0.1)]
        ).all()
        assert np.isnan(e.interval()).all()
    assert (
        np.isnan(S.power(0.4, [0, 0], [1, -1], 3))
        and S.seeds_needed([0.4], [0, 0], [1, -1]) is None
    )
    one = S.contrast(
        [[0.5, 0.6, 0.55], [1 / 3] * 3], [1, -1]
    )  # a constant beside an arm that varies
    assert np.isclose(
        one.p_above(), stats.ttest_1samp([0.5, 0.6, 0.55], 1 / 3, alternative="greater").pvalue
    )


def test_means_of_taggers_are_the_mixed_model():
    """Taggers beneath models, equally many a model: the t interval on the models' means is that of
    the mixed model, whose variance of the grand mean is the mean square between models over all
    observations, with models - 1 degrees of freedom.
    """
    rng = np.random.default_rng(7)
    models, taggers = 5, 4
    y = 60 + rng.normal(0, 3, (models, 1)) + rng.normal(0, 1, (models, taggers))
    between = taggers * ((y.mean(axis=1) - y.mean()) ** 2).sum() / (models - 1)
    e = S.contrast([y.mean(axis=1)], [1])
    assert np.isclose(e.se, np.sqrt(between / y.size)) and np.isclose(e.df, models - 1)


def test_one_tagger_more_is_no_model_more():
    """Coverage of 95% intervals over nested draws: models' means keep it, pooled taggers do not;
    one model has none.
    """
    rng = np.random.default_rng(8)
    y = rng.normal(0, 1, (2000, 3, 1)) + rng.normal(
        0, 0.5, (2000, 3, 5)
    )  # 3 models, 5 taggers each; truth 0

    def covered(arm):
        low, high = S.contrast([arm], [1]).interval()
        return low <= 0 <= high

    models, pooled = (
        np.mean([covered(a) for a in arms]) for arms in (y.mean(axis=2), y.reshape(2000, -1))
    )
    assert abs(models - 0.95) < 0.015 and pooled < 0.75
    assert np.isnan(S.contrast([y[0, :1].mean(axis=1)], [1]).interval()).all()


def test_holm_by_hand():
    assert np.allclose(S.holm([0.01, 0.02, 0.03]), [0.03, 0.04, 0.04])
    assert np.allclose(S.holm([0.5, 0.4]), [0.8, 0.8])
    assert np.allclose(S.holm([0.02, np.nan, 0.01]), [0.02, np.nan, 0.02], equal_nan=True)
    assert S.holm([]).size == 0 and np.isnan(S.holm([np.nan])).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.001, 0.2))
@settings(max_examples=100, deadline=None)
def test_holm_rejects_what_the_step_down_procedure_rejects(p, alpha):
    order = sorted(range(len(p)), key=lambda i: p[i])
    rejected = set()
    for k, i in enumerate(order):
        if p[i] * (len(p) - k) > alpha:
            break
        rejected.add(i)
    adjusted = S.holm(p)
    assert {i for i in range(len(p)) if adjusted[i] <= alpha} == rejected and (adjusted >= p).all()


def test_power_against_the_closed_form_and_a_simulation():
    closed = stats.nct.sf(stats.t.isf(0.05, 8), 8, 1.0 / np.sqrt(2 / 5))
    assert np.isclose(S.power(1.0, [1, 1], [1, -1], 5), closed)
    rng = np.random.default_rng(4)
    a = rng.normal(0.5, 0.4, (6000, 4))
    b = rng.normal(0, 0.1, (6000, 4))
    seen = (
        stats.ttest_ind(a, b, axis=1, equal_var=False, alternative="greater").pvalue < 0.05
    ).mean()
    assert abs(seen - S.power(0.5, [0.4, 0.1], [1, -1], 4)) < 0.03
    assert S.power(50, [0.1, 0.1], [1, -1], 5) > 0.999


@pytest.mark.parametrize("margin", (0.1, 0.5, 3.0))
def test_a_value_on_the_edge_is_called_outside_no_more_often_than_stated(margin):
    """With a spread ten times the margin, too, where one tail alone would be exceeded from either
    side.
    """
    drawn = margin + np.random.default_rng(0).standard_t(8, 4000)
    assert np.mean([S.Estimate(v, 1.0, 8).p_outside(margin) < 0.05 for v in drawn]) < 0.06


def test_seeds_needed_is_the_smallest_number_with_the_power():
    n = S.seeds_needed([0.5], [0.4, 0.4], [1, -1])
    assert S.power(0.5, [0.4, 0.4], [1, -1], n) >= 0.8 > S.power(0.5, [0.4, 0.4], [1, -1], n - 1)
    assert S.seeds_needed([0.5, 0.5], [0.4, 0.4], [1, -1]) > n  # equivalence must clear two bounds
    assert (
        S.seeds_needed([-0.1], [1, 1], [1, -1]) is None
        and S.seeds_needed([0.01], [1, 1], [1, -1]) is None
    )
    assert S.seeds_needed([10.0], [0.01, 0.01], [1, -1]) == 2


def test_curve_numbers_by_hand():
    step, mu = [0, 100, 200, 300], [0.0, 0.0, 0.2, 0.4]
    assert S.step_at_half(step, mu) == 200
    assert np.isclose(S.step_at_half([0, 100], [0.1, 0.5]), 50)  # straight in between
    assert np.isclose(S.fit_at_half(step, mu, np.exp([8, 4, 3, 2])), 5 / 6)
    assert np.isclose(S.gain_after_best_dev(step, mu, [9, 5, 6, 7]), 1.0)
    assert np.isclose(S.gain_after_best_dev(step, mu, [9, 8, 7, 6]), 0)
    assert all(
        np.isnan(f)
        for f in (
            S.step_at_half(step, [0.2, 0, 0, 0.2]),
            S.gain_after_best_dev(step, [0.2, 0, 0, 0.1], [1, 1, 1, 1]),
        )
    )


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=8))
@settings(max_examples=50, deadline=None)
def test_multilinguality_in_step_with_the_fit_scores_one_half(rises):
    mu = np.concatenate([[0], np.cumsum(rises)])
    step = np.arange(len(mu))
    assert np.isclose(S.fit_at_half(step, mu, np.exp(5 - mu / mu[-1])), 0.5)
