"""Names that readers see: of every row, column and corpus of the results, each its own."""

import re
from pathlib import Path

import pandas as pd
import pytest

from xlingual_nb.report import labels

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def results():
    files = sorted((ROOT / "results").glob("*/*/seeds*.csv"))
    keys = ["paper", "table", "row", "column", "corpus"]
    return pd.concat([pd.read_csv(f, usecols=keys, dtype=str) for f in files]).drop_duplicates()


@pytest.mark.parametrize(
    ("kind", "name"), [("row", labels.row_name), ("column", labels.column_name)]
)
def test_names_of_one_table_differ(results, kind, name):
    for key, part in results.groupby(["paper", "table"]):
        keys = part[kind].unique()
        names = [name(each) for each in keys]
        twice = {n: [k for k in keys if name(k) == n] for n in names if names.count(n) > 1}
        assert twice == {}, key


def test_no_code_is_left_in_a_name(results):
    code = re.compile(r"enfake|\||\bxx\b|;|\bmean -|^(en|es|de|hi|ru)\b")
    names = {labels.row_name(row) for row in results.row}
    names |= {labels.column_name(column) for column in results.column}
    left = {n for n in names if code.search(n.replace("|V|", "").replace("|V ∩ V_en|", ""))}
    assert left == set()


def test_every_corpus_has_a_name(results):
    assert set(results.corpus) <= set(labels.CORPORA)


def test_languages_and_corpora_of_users_have_their_own_names():
    assert labels.row_name("majority | en | fi") == "majority, English → fi"
    assert labels.row_name("majority | en | mean -en").endswith("mean without English")
    assert labels.corpus_parameters("finnish") == {"corpus": "finnish", "own": "FILE"}
    assert labels.corpus_parameters("micro-tr-fr") == {"corpus": "micro-tr-fr"}


def test_what_is_not_a_key_stays():
    for text in ("a row of mine", "Ünïcode", "1 %", "p", "0.5"):
        assert labels.row_name(text) == labels.column_name(text) == text
