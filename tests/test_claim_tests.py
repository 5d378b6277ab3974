"""Rules of claim tests that the verdicts of a study alone would not show."""

from types import SimpleNamespace

import pandas as pd
import pytest

from xlingual_nb.report.claim_tests import ClaimTest

MEANS = {"untrained": [0.2, 0.4], "majority": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("column", "strongest"),
    [("NLI ACC", "majority"), ("Perpl. train", "untrained"), ("Perpl. dev", "untrained")],
)
def test_strongest_baseline_is_the_highest_score_or_the_lowest_perplexity(column, strongest):
    claim = SimpleNamespace(floor=tuple(MEANS))
    test = SimpleNamespace(floor=None, table="table1", column=column)

    def look_up(table, row, column):
        return pd.Series(MEANS[row])

    assert ClaimTest(claim, test, look_up).strongest_baseline("0 original") == strongest


def test_a_baseline_that_was_not_run_does_not_count():
    claim = SimpleNamespace(floor=tuple(MEANS))
    test = SimpleNamespace(floor=None, table="table1", column="NLI ACC")

    def only_untrained(table, row, column):
        return pd.Series(MEANS[row]) if row == "untrained" else None

    assert ClaimTest(claim, test, only_untrained).strongest_baseline("0 original") == "untrained"
    assert ClaimTest(claim, test, lambda *_: None).strongest_baseline("0 original") is None
