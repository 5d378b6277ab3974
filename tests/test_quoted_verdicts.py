"""Notebooks as they are committed state the verdicts of the reference study, and no others."""

import html
import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from xlingual_nb.papers.published import claims
from xlingual_nb.report import verdicts
from xlingual_nb.report.confirmation_outcomes import read_confirmed
from xlingual_nb.report.labels import corpus_name
from xlingual_nb.report.scores import MARKS

ROOT = Path(__file__).resolve().parents[1]
SCALES = "paper", "laptop"  # what notebooks quote is of the last that has a claim on a text
# the part of a notebook whose verdicts are those of the confirmatory study
FRESH = "## On fresh seeds"


def kept_verdicts():
    """Verdicts by claim and corpus."""
    known = {}
    for scale in SCALES:
        frame = verdicts.read(ROOT / f"results/{scale}/verdicts.csv")
        known |= dict(zip(zip(frame.claim, frame.corpus), frame.verdict))
    return known


def confirmed_verdicts():
    """Verdicts on fresh seeds by claim and corpus."""
    frame = read_confirmed(ROOT)
    return dict(zip(zip(frame.claim, frame.corpus), frame.verdict))


def shown(path, fresh=False):
    """The HTML that a notebook's cells show, as far as they quote what is kept: of the reference study,
    or of fresh seeds.
    """
    section = ""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if source.startswith("## "):
            section = source.splitlines()[0]
        if section == "## Run it yourself":
            return
        if (section == FRESH) != fresh:
            continue
        for output in cell.get("outputs", []):
            yield "".join(output.get("data", {}).get("text/html", ""))


def rows_of(page):
    """The rows of all tables of a page, by the names of their columns."""
    for table in re.findall(r"<table.*?</table>", page, re.S):
        lines = [
            [
                html.unescape(re.sub("<.*?>", "", cell)).strip()
                for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line, re.S)
            ]
            for line in re.findall(r"<tr.*?</tr>", table, re.S)
        ]
        for line in lines[1:]:
            yield dict(zip(lines[0], line))


SAYS = {c.says: c.id for c in claims()}


def claim_of(row):
    """The claim that a row is about: by its id, or by its words and what follows them."""
    named = [row[name] for name in ("id", "claim") if row.get(name) in SAYS.values()]
    if named:
        return named[0]
    words = row.get("in our words") or row.get("claim", "")
    return SAYS.get(words.partition(" (measured")[0])


def stated(path, fresh=False):
    """(claim, corpus, verdict) of all that the tables of a notebook state of the reference study, or of
    fresh seeds; marks are spelt out.
    """
    by_mark = {m: verdict for verdict, m in MARKS.items()}
    corpora = {corpus for _, corpus in kept_verdicts()}
    keys = {corpus_name(corpus): corpus for corpus in corpora} | {c: c for c in corpora}
    for row in (row for page in shown(path, fresh) for row in rows_of(page)):
        if not (claim := claim_of(row)):
            continue
        if "verdict" in row and "ours" in row:
            corpus = row["ours"].partition(": ")[0]
            yield claim, keys[corpus], by_mark[row["verdict"].split(" ")[0]]
        if "verdict" in row and "corpus" in row and "scale" not in row:
            yield claim, keys.get(row["corpus"], row["corpus"]), row["verdict"]
        for name in set(keys) & set(row):
            if (sign := row[name].split(" ")[0]) in by_mark:
                yield claim, keys[name], by_mark[sign]


NOTEBOOKS = [
    p for p in sorted((ROOT / "nbs").glob("[0-9]*.ipynb")) if p.stem[:2] not in ("00", "17", "18")
]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_states_the_verdicts_of_the_study(path):
    known = kept_verdicts()
    found = list(stated(path))
    assert found
    wrong = [f for f in found if known[f[:2]] != f[2]]
    assert not wrong, f"run {path.name} again and keep its outputs"


def test_the_ledger_states_the_verdicts_on_fresh_seeds():
    path = ROOT / "nbs/15_ledger.ipynb"
    confirmed = confirmed_verdicts()
    found = set(stated(path, fresh=True))
    assert found == {(*key, verdict) for key, verdict in confirmed.items()}


def tables_of(cell):
    """The rows of all tables that a cell shows."""
    outputs = cell.get("outputs", [])
    return [row for o in outputs for row in rows_of(o.get("data", {}).get("text/html", ""))]


@pytest.mark.ci
def test_the_ledger_shows_what_is_kept():
    stored = nbformat.read(ROOT / "nbs/15_ledger.ipynb", 4)
    executed = nbformat.from_dict(stored)
    NotebookClient(executed, resources={"metadata": {"path": ROOT / "nbs"}}).execute()
    stale = [
        number
        for number, (old, new) in enumerate(zip(stored.cells, executed.cells))
        if tables_of(old) != tables_of(new)
    ]
    assert not stale, "run 15_ledger.ipynb again and keep the outputs of these cells"
