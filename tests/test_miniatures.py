"""The three experiments in miniature of docs/api.md, which use `xl` alone: the effect is there."""

import re
from pathlib import Path

import pytest

import xlingual_nb as xl

PAGE = (Path(__file__).resolve().parents[1] / "docs/api.md").read_text(encoding="utf-8")
MINIATURES = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def test_the_page_names_all_that_there_is():
    (table,) = re.findall(r"(?:^\|.*\n)+", PAGE, re.M)
    named = set(re.findall(r"`(\w+)`", table))
    assert named == set(xl.__all__)


def run(number: int) -> dict:
    """The variables of a miniature after it has run."""
    variables = {"__name__": "miniature"}
    exec(compile(MINIATURES[number], f"miniature {number}", "exec"), variables)
    return variables


@pytest.mark.ci
def test_word_order_and_multilinguality():
    score = run(0)["score"]
    assert score["original"].mu > 2 * score["inv-order"].mu


@pytest.mark.ci
def test_permuted_text_and_transfer():
    accuracy = run(1)["accuracy"]
    assert accuracy[0.0]["fake"] > accuracy[1.0]["fake"] + 10
    assert accuracy[0.0]["en"] - accuracy[0.0]["fake"] < accuracy[1.0]["en"] - accuracy[1.0]["fake"]


@pytest.mark.ci
def test_a_shift_of_the_mean_and_the_language_of_tokens():
    variables = run(2)
    table = variables["table"]
    assert table.converted[0] < 0.1 and table.converted[1] > 0.9
    assert table.bleu1[1] > table.bleu1[0]
    (translated,) = variables["shift"].translate(variables["dev"][:1])
    assert set(translated) <= set("".join(variables["text"]["fake"])) | set("[]UNK")
