"""Liu et al. (2020b), section 4, in the ledger: its tables against their own arithmetic and the
running text.
"""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from tokenizers import BertWordPieceTokenizer

from xlingual_nb.measures import shift_translation
from xlingual_nb.papers import published as ledger
from xlingual_nb.report import claim_tests

PAPER = "liu2020b"
CONVERTED = [f"convert rate (layer=10, α={alpha})" for alpha in (1, 2, 3)]
OTHERS = ["de", "es", "ar", "el", "fr", "hi", "ru", "th", "tr", "vi", "zh"]


def wide(table):
    frame = ledger.published(PAPER, table)
    return frame.pivot(index="row", columns="column", values="value")[frame.column.unique()]


TWO, THREE, FOUR = map(wide, ("table2", "table3", "table4"))


def test_the_tables_are_whole():
    assert ledger.tables(PAPER) == ["table2", "table3", "table4"]
    assert (
        TWO.shape == (7, 12)
        and TWO.notna().all().all()
        and THREE.shape == (2, 7)
        and FOUR.shape == (4, 13)
    )
    assert (
        [*FOUR.columns] == ["en", *OTHERS, "avg w/o en"]
        and FOUR.loc["+ MDS", OTHERS].notna().all()
        and np.isnan(FOUR.loc["+ MDS", "en"])
    )
    assert {c.split("→")[0] for c in TWO} | {"en"} == {*THREE.columns}
    for table in ledger.tables(PAPER):
        frame = ledger.published(PAPER, table)
        assert (
            (frame.paper == PAPER).all()
            and (frame.table == table).all()
            and frame.sd.isna().all()
            and not frame.duplicated(["row", "column"]).any()
        )


def test_averages_of_table_4_are_the_means_of_its_eleven_targets():
    rows = ["finetune all layers", "finetune last 6 layers", "+ MDS"]
    assert (
        FOUR.loc[rows, OTHERS].mean(axis=1) - FOUR.loc[rows, "avg w/o en"]
    ).abs().max() <= 0.005 + 1e-9


def test_what_is_bold_in_table_4_is_where_the_shift_gains():
    gain = FOUR.loc["+ MDS", OTHERS] - FOUR.loc["finetune last 6 layers", OTHERS]
    assert {*gain[gain > 0].index} == {*OTHERS} - {"es", "fr"} and FOUR.loc[
        "shifting weight", OTHERS
    ].between(0, 2).all()


def test_the_best_of_table_2_is_the_fixed_setting_where_that_is_best():
    fixed, best, layer, alpha = (
        TWO.loc[row] for row in ("BLEU-1 (layer=11, α=3)", "best BLEU-1", "best layer", "best α")
    )
    same = (layer == 11) & (alpha == 3)
    assert (
        (best[same] == fixed[same]).all() and (best[~same] > fixed[~same]).all() and same.sum() == 4
    )
    assert alpha.isin([1, 2, 3]).all() and layer.between(1, 12).all()


def test_convert_rates_rise_with_the_weight():
    rates = TWO.loc[CONVERTED]
    assert (
        (rates.diff().iloc[1:] > 0).all().all() and rates.max().max() == 1 and rates.min().min() > 0
    )


def test_shared_tokens_are_some_of_each():
    own, shared = THREE.loc["|V|"], THREE.loc["|V ∩ V_en|"]
    assert (
        (shared <= own).all() and shared["en"] == own["en"] and shared.drop("en").idxmax() == "fr"
    )


DATA = Path(os.environ.get("XLINGUAL_DATA") or "-")


@pytest.mark.ci
@pytest.mark.skipif(
    not all(
        (DATA / name).is_file()
        for name in ("vocab/mbert-cased.vocab.txt", "nli/xnli.test.el.tsv.gz")
    ),
    reason="XLINGUAL_DATA names no folder with XNLI and mBERT's vocabulary",
)
def test_token_sets_are_those_of_xnlis_test_set():
    """What the paper does not say of Table 3; to the last token, in every language at hand."""
    vocabulary = str(DATA / "vocab/mbert-cased.vocab.txt")
    tokenizer = BertWordPieceTokenizer(vocabulary, lowercase=False, strip_accents=False)

    def token_set(path):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts = [text for line in lines for text in line.split("\t")[:2]]
        encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
        return {token for sentence in encoded for token in sentence.tokens}

    files = {language: DATA / f"nli/xnli.test.{language}.tsv.gz" for language in THREE.columns}
    found = {language: token_set(path) for language, path in files.items() if path.is_file()}
    assert len(found) >= 6
    for language, tokens in found.items():
        shared = tokens & found["en"]
        printed = THREE.loc[["|V|", "|V ∩ V_en|"], language].tolist()
        assert [len(tokens), len(shared)] == printed


def test_best_layers_are_those_that_the_ambiguity_counts():
    layers = TWO.loc["best layer"]
    assert [
        (layers >= 10).sum(),
        (layers == 7).sum(),
        (layers == 9).sum(),
        (layers == 1).sum(),
    ] == [7, 3, 1, 1]
    assert (TWO.loc["best BLEU-1"].min(), TWO.loc["best BLEU-1"].max()) == (
        7.83,
        23.21,
    ) and TWO.loc["BLEU-1 (layer=11, α=3)"].min() == 5.24
    (told,) = [a for a in ledger.ambiguities(PAPER) if a.id == "L2-figure-8-direction"]
    assert "seven of the twelve" in told.text


def test_the_baseline_is_told_as_printed():
    (told,) = [a for a in ledger.ambiguities(PAPER) if a.id == "L2-table4-all-layers"]
    assert all(
        f"{FOUR.loc['finetune all layers', l]:.2f}" in told.text for l in ("hi", "th", "vi", "tr")
    )


CLAIMS = {c.id: c for c in ledger.claims(PAPER)}
SHIFTS = {name: c for name, c in CLAIMS.items() if c.where.startswith("§4")}
PRINTED = {
    name: c
    for name, c in SHIFTS.items()
    if c.whose == ledger.PAPERS and all(t.table != "shift" for t in c.tests)
}


def test_claims_are_well_formed():
    assert len(SHIFTS) >= 14 and len(PRINTED) >= 5 and len(CLAIMS) == len(ledger.claims(PAPER))
    for c in SHIFTS.values():
        assert (
            c.id.startswith("L2-")
            and len(c.says) > 30
            and c.tests
            and set(c.scales) <= {"laptop", "gpu", "paper"}
        )


@pytest.mark.parametrize("name", PRINTED)
def test_the_printed_numbers_agree_with_the_claims_on_them(name):
    claim = PRINTED[name]
    effects = np.array(claim_tests.published_effects(claim))
    assert len(effects) == len(claim.tests) and np.isfinite(effects).all()
    assert all(
        effect > t.margin if t.test == "above" else effect < t.margin
        for effect, t in zip(effects, claim.tests)
    )


COLUMNS = {
    "converted",
    "kept",
    "neither",
    "gold",
    "gold open",
    "gold of converted",
    "BLEU-1 upper",
    "BLEU-1 low",
}
ALPHAS = {f"alpha {alpha:g}" for alpha in shift_translation.ALPHAS}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in SHIFTS
        if any(t.table == "shift" and t.column in COLUMNS for t in SHIFTS[name].tests)
    ],
)
def test_claims_on_shifts_name_what_a_run_holds(name):
    """Rows are a direction, a weight that is tried, and a mean; floors fill in from both
    directions.
    """
    claim = SHIFTS[name]
    for t in claim.tests:
        assert t.table == "shift" and {t.column, t.minus_column or t.column} <= COLUMNS
        for row in (*t.plus, *(() if t.minus == "floor" else t.minus)):
            pair, alpha, target = row.split(" | ")
            assert pair in ("en-xx", "xx-en") and alpha in ALPHAS and target == "mean"
            if t.minus == "floor":
                assert (
                    all(
                        floor.endswith(f"{pair[:2]} | mean")
                        for floor in ledger.floor_names(claim.floor, row)
                    )
                    and claim.floor
                )


def test_ambiguities_say_both_readings_and_switches_that_exist():
    entries = {a.id: a for a in ledger.ambiguities(PAPER)}
    assert len(entries) == len(ledger.ambiguities(PAPER)) >= 14 and all(
        a.text and a.code and a.chosen for a in entries.values()
    )
    named = [
        part.split("=")[0].removeprefix("ShiftSpec.")
        for a in entries.values()
        for part in a.switch.split()
        if part.startswith("ShiftSpec.")
    ]
    assert (
        {"layers", "specials", "means", "estimated", "sets", "units", "mean_of"}
        == {*named}
        <= {*shift_translation.ShiftSpec.__dataclass_fields__}
    )
