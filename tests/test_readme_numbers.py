"""The numbers that README.md quotes from the study at the published size are those of its tables."""

from pathlib import Path

import pandas as pd
import pytest

from xlingual_nb.report import verdicts

ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT / "results/paper"


@pytest.fixture(scope="module")
def paragraph():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return " ".join(text.partition("**At the published size.**")[2].partition("\n\n")[0].split())


def short(value, places):
    return f"{value:.{places}f}".removeprefix("0")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("0 original", "µ is {ours} for the original model, with standard deviation {sd}"),
        ("0 original", "(published {published})"),
        ("3 inv-order", "{ours} with inverted word order ({published})"),
        (
            "8 lang-pos;shift-special;no-random",
            "{ours} with all three modifications ({published})",
        ),
    ],
)
def test_multilinguality(paragraph, row, sentence):
    table = pd.read_csv(PAPER / "07_laboratory/table1.csv")
    entry = table[(table.row == row) & (table.column == "µ")].squeeze()
    numbers = dict(
        ours=short(entry.value, 3), sd=short(entry.sd, 3), published=short(entry.published, 2)
    )
    assert sentence.format(**numbers) in paragraph


def test_decided_claims(paragraph):
    judged = verdicts.read(PAPER / "verdicts.csv")
    single = (judged.n_seeds == 1) & (judged.verdict == verdicts.NOT_TESTED)
    assert f"{(judged.verdict == verdicts.REPRODUCED).sum()} are reproduced" in paragraph
    assert f"{single.sum()} more have one seed" in paragraph
