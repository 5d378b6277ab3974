"""The papers' claims on the papers' own numbers."""

from dataclasses import replace

import pytest

from xlingual_nb.papers import published
from xlingual_nb.report.printed_claims import (
    FAILS,
    HOLDS,
    NOT_PRINTED,
    printed_claim,
    printed_claims,
    printed_counts,
)


@pytest.fixture(scope="module")
def table():
    return printed_claims()


def test_every_claim_that_a_paper_prints_numbers_for_holds_on_them(table):
    assert table.claim.tolist() == [claim.id for claim in published.claims()]
    assert not (table.outcome == FAILS).any(), table[table.outcome == FAILS]
    own = table[table.whose == published.PAPERS]
    assert (own.outcome == HOLDS).groupby(own.paper).any().all(), "a claim of every paper"
    assert (table.tests == 0).equals(table.outcome == NOT_PRINTED)


def test_a_claim_fails_where_one_of_its_tests_does():
    claim = next(claim for claim in published.claims() if claim.id == "W-feat")
    first, *others = claim.tests
    held = printed_claim(claim)
    wider = printed_claim(replace(claim, tests=(replace(first, margin=50.0), *others)))
    assert (held["outcome"], wider["outcome"]) == (HOLDS, FAILS)
    assert held["tests"] == wider["tests"] == len(claim.tests)
    assert wider["margin"] == 50.0 and wider["effect"] < 50.0, "the test that fails is shown"


def test_effects_are_the_papers_differences():
    claim = next(claim for claim in published.claims() if claim.id == "W-nli-mlm")
    (test,) = claim.tests
    plus, minus = (
        published.printed_value("wu2019", test.table, row, test.column)
        for (row,) in (test.plus, test.minus)
    )
    assert printed_claim(claim)["effect"] == pytest.approx(plus - minus)


def test_counts_are_of_every_claim(table):
    counts = printed_counts(table)
    assert counts[[HOLDS, FAILS, NOT_PRINTED]].to_numpy().sum() == len(table)
