"""The published numbers themselves, with a plausible spread, through the ledger at scale `paper`:
claims can be decided with the seeds that the grids have.
"""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from xlingual_nb.experiments import (
    architecture,
    frequency,
    knn_replace,
    laboratory,
    mixed_pairs,
    objective,
    ordering,
    overlap,
)
from xlingual_nb.papers import published as ledger
from xlingual_nb.report import claim_tests, tables, verdicts as V

K = (overlap, ordering, frequency, architecture, objective, mixed_pairs)
# How much models differ that differ in their seed alone, in points: the sd of XNLI, and of NER as
# the mean of five taggers. K print no spread for XNLI, and for NER that of the five taggers on one
# model, 1.2 on average. Of D the printed sd, at least what rounding hides; of µ half the mean sd of
# its parts. Rows that know nothing, which K do not print: (XNLI, NER) of each kind, in the target
# and in the source.
SPREAD = {"XNLI": 0.5, "NER": 1.0}
KNOWS_NOTHING = {
    "untrained": (35.0, 10.0),
    "never saw the target": (34.0, 2.0),
    "majority class": (33.3, 0.0),
}
SOURCE = {
    "untrained": (55.0, 40.0),
    "never saw the target": (70.0, 60.0),
    "majority class": (33.3, 0.0),
}


def printed(paper, table, row, column):
    """A published number, of whatever table prints the row."""
    values = (ledger.printed_value(paper, t, row, column) for t in [table, *ledger.tables(paper)])
    return next((v for v in values if not np.isnan(v)), np.nan)


def mean_of(c):
    """What a cell of K is about to show: the printed number, or one of a row that knows nothing;
    NaN for what is ours.
    """
    task, kind, sides = c.column.split(" ")[0], c.row.split(" | ")[0], c.row.split(" | ")
    if task not in SPREAD:
        return np.nan
    if kind in KNOWS_NOTHING:
        target, source = (levels[kind][task == "NER"] for levels in (KNOWS_NOTHING, SOURCE))
        if c.column.endswith("Δ"):
            return source - target
        return (
            source
            if c.column.endswith("Fake-English") or c.column.endswith("enfake-enfake")
            else target
        )
    if sides[-1] != "Δ":
        return printed("k2020", c.table, c.row, c.column)
    pair = " | ".join(sides[:-1])
    both = (f"{pair} | {language}" for language in sides[0].split("-"))
    source, target = (printed("k2020", c.table, row, c.column) for row in both)
    return source - target


@cache
def grid_of_k():
    """Every cell of K with a number to show, (cell, its model, mean), at scale paper."""
    cells = [
        c
        for module in K
        for c in module.list_table_entries("paper", "micro")
        if c.table in ledger.tables("k2020")
    ]
    means = {key: mean_of(c) for key, c in {(c.table, c.row, c.column): c for c in cells}.items()}
    model = cache(lambda run: str(hash(run)))
    return [
        (c, model(c.runs[0]), m)
        for c in cells
        if not np.isnan(m := means[c.table, c.row, c.column])
    ]


FIT = "MLM-Perpl. train"


def study_of_k(rng, spread=SPREAD):
    """Observations: every model a draw of its own in each language, the same wherever it stands; a
    Δ that of its two.
    """
    noise = {}

    def off(model, drawn, task):
        return noise.setdefault((model, drawn), rng.normal(0, spread[task])) if drawn else 0.0

    rows = []
    for c, model, mean in grid_of_k():
        task = c.column.split(" ")[0]
        still = c.row.startswith("majority")
        here, less = (
            (0.0, 0.0) if still else (off(model, c.metric, task), off(model, c.minus, task))
        )
        rows.append(
            (c.paper, c.table, c.row, c.column, "printed", c.seed, mean + here - less, model)
        )
        if c.table == "table4":  # the paper prints no fit: all depths alike
            rows.append((c.paper, c.table, c.row, FIT, "printed", c.seed, 5.0, model))
    return pd.DataFrame(rows, columns=tables.OBSERVED).drop_duplicates(
        ["table", "row", "column", "seed"]
    )


PARTS = ["Layer 0 Retr. ρ", "Layer 0 Trans. τ", "Layer 8 Retr. ρ", "Layer 8 Trans. τ"]


def study_of_d(rng, module=laboratory):
    """Observations of D's laboratory, or of knn-replace: a draw a cell; training curves print no
    numbers.
    """
    rows, spread = [], {}
    for t in ("table1", "table2", "table10", "table3"):
        for row, part in ledger.published("dufter2020", t).groupby("row"):
            sd = part.set_index("column").sd.fillna(0)
            if t in ("table1", "table10"):
                sd["µ"] = sd[PARTS].mean() / 2
            elif t == "table2":
                sd["µ"] = 0.02
            spread |= {
                (t, row, column): max(v, 0.1 if "Perpl." in column else 0.003)
                for column, v in sd.items()
            }
    for c in module.list_table_entries("paper", "micro"):
        if (c.table, c.row, c.column) not in spread:
            continue
        value = ledger.value(c.paper, c.table, c.row, c.column) + rng.normal(
            0, spread[c.table, c.row, c.column]
        )
        rows.append(
            (c.paper, c.table, c.row, c.column, "printed", c.seed, value, f"{c.row}|{c.seed}")
        )
    return pd.DataFrame(rows, columns=tables.OBSERVED)


# The few that such a spread leaves open now and then, and why: how near the printed effect lies to
# its margin, in points, or as a correlation.
NEAR = {
    "K-fake-to-english-ner": 2.7,
    "K-fake-to-english-ner-star": 2.3,
    "K-depth-correlation": 0.19,
    "K-heads": 0.8,
    "K-parameters-many": 1.1,
    "K-depth-over-parameters": 1.9,
    "K-four-languages": 1.1,
    "K-characters": 0.07,
    "K-characters-ner": 1.73,
    # open since a test has to hold by its column's typical spread, too
    "K-nsp-ner": 1.0,
    "K-nsp-more": 1.0,
    "K-parameters-few": 2.9,
}
# Figures, and tables and rows that no experiment makes yet.
UNPRINTED = {
    "D-positions",
    "D-positions-rare",
    "D-late",
    "D-late-overfit",
    "D-small-earlier",
    "D-word-order-xnli",
}
CURVES = {"D-knn-earlier", "D-knn-parts-earlier"}
# Said without a number, of models that no experiment makes unless it is asked for them.
UNMADE = {"K-order-one", "K-order-one-ner", "D-xnli-original", "D-xnli-small"}
# What the spread over five seeds (section 4) and three (section 5) leaves open: row 30 is .04 above
# row 0, and in Table 3 Hindi varies by .04 over seeds.
OPEN = {"D-knn", "D-xnli-inv-order", "D-xnli-three", "D-xnli-knn", "D-xnli-english"}


def judged(paper, observations, about=lambda claim: True):
    """The verdicts on the paper's own claims."""
    frame = V.verdicts(observations, "paper", list(filter(about, ledger.claims(paper))))
    return frame[V.source_of_claims(frame) == "paper"].set_index("claim").verdict


@pytest.mark.ci
@pytest.mark.parametrize("seed", range(3))
def test_the_papers_numbers_reproduce_the_paper(seed):
    """Most claims are reproduced, none falls, and only named ones are left open."""
    k = judged("k2020", study_of_k(np.random.default_rng(seed)))
    d = judged(
        "dufter2020",
        study_of_d(np.random.default_rng(seed)),
        lambda c: not knn_replace.belongs_here(c),
    )
    assert set(k.index[k == V.NOT_TESTED]) == {name for name in UNMADE if name[0] == "K"}
    k = k[k != V.NOT_TESTED]
    assert (
        len(k) == 48
        and set(k) <= {"reproduced", "inconclusive"}
        and (k == "reproduced").mean() > 0.8
    )
    assert set(k.index[k == "inconclusive"]) <= set(NEAR)
    assert set(d.index[d == V.VERDICTS[-1]]) == UNPRINTED and set(d.index[d == "inconclusive"]) <= {
        "D-fit-dev"
    }
    assert (d == "reproduced").sum() >= 24 and not set(d) & {
        *V.DECIDED[1:],
        V.NOT_ABOVE,
        V.SOLVED,
    }


@pytest.mark.parametrize("seed", range(3))
def test_the_printed_numbers_on_neighbours_reproduce_the_paper(seed):
    found = judged(
        "dufter2020", study_of_d(np.random.default_rng(seed), knn_replace), knn_replace.belongs_here
    )
    unmade = {name for name in UNMADE if name[0] == "D"}
    assert set(found.index[found == V.NOT_TESTED]) == CURVES | unmade
    assert set(found[found != V.VERDICTS[-1]]) <= {"reproduced", "inconclusive"}
    assert set(found.index[found == "inconclusive"]) <= OPEN and (found == "reproduced").sum() >= 2


def test_one_model_decides_nothing_however_many_taggers_it_has():
    one = study_of_k(np.random.default_rng(0))
    verdicts_of_one = judged("k2020", one[one.seed == 0])
    # a correlation over rows has its rows for a sample
    (correlation,) = verdicts_of_one.index[verdicts_of_one != "not tested"]
    assert correlation == "K-depth-correlation" and verdicts_of_one[correlation] == "inconclusive"


@pytest.mark.ci
@pytest.mark.parametrize("scale, least", [("laptop", 3), ("gpu", 5), ("paper", 5)])
def test_every_table_has_seeds_enough_to_decide(scale, least):
    for module in (*K, laboratory):
        told = [(c.table, c.row, c.seed) for c in module.list_table_entries(scale, "micro")]
        seeds = (
            pd.DataFrame(told, columns=["table", "row", "seed"])
            .groupby(["table", "row"])
            .seed.nunique()
        )
        assert (seeds >= least).all(), (module.__name__, seeds[seeds < least])


def test_the_named_few_are_near_their_margins():
    from test_published_k2020 import derived

    def look(table, row, column, curve=None):
        return None if np.isnan(v := derived(table, row, column)) else pd.Series([v])

    for c in ledger.claims("k2020"):
        if c.id not in NEAR:
            continue
        found = [claim_tests.outcome(claim_tests.ClaimTest(c, t, look)) for t in c.tests]
        assert all(not o.missing and min(o.distances()) > 0 for o in found)
        nearest = min(abs(abs(o.as_effect(o.estimate.value)) - abs(o.test.margin)) for o in found)
        assert nearest == pytest.approx(NEAR[c.id], abs=0.051), (c.id, nearest)
