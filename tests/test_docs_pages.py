"""Pages of docs/ follow from the registries of claims and ambiguities and from the reference results."""

import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from xlingual_nb.papers.published import ambiguities, claims
from xlingual_nb.report import docs_pages, verdicts, verdicts_before
from xlingual_nb.report.answers import PAPERS, reference_verdicts

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "name", ["docs/contradicted.md", "docs/text_and_code.md", "docs/verdicts_before.md"]
)
def test_a_page_is_as_it_would_be_written_today(name):
    written = (ROOT / name).read_text(encoding="utf-8")
    assert written == docs_pages.docs_pages(ROOT)[name], "run `xlingual refresh`"


def test_every_claim_of_a_paper_that_fell_has_a_line():
    own = {claim.id for claim in claims() if claim.whose == "paper"}
    lines = (ROOT / "docs/contradicted.md").read_text(encoding="utf-8").splitlines()
    listed = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ")][1:]
    fallen = []
    for frame in reference_verdicts(ROOT).values():
        is_fallen = frame.verdict.isin(["contradicted", "smaller than the margin"])
        fallen += list(frame[is_fallen & frame.claim.isin(own)].claim)
    assert sorted(listed) == sorted(fallen)
    assert len(fallen) > 10


def test_an_undecided_claim_has_none():
    frames = reference_verdicts(ROOT)
    frame = frames["laptop"].assign(verdict=verdicts.REPRODUCED)
    assert docs_pages.contradicted_lines(frame, {}) == []


def test_every_ambiguity_stands_under_its_paper():
    page = docs_pages.ambiguities_page()
    for entry in ambiguities():
        assert f"\n### {entry.id}\n" in page
    assert page.count("**Other reading.**") == len(ambiguities())
    assert sum(page.count(f"\n## {authors}\n") for authors, _ in PAPERS.values()) == 5


def test_every_ambiguity_is_reached_from_the_head_of_its_paper():
    page = docs_pages.ambiguities_page()
    for entry in ambiguities():
        assert page.count(f"[{entry.id}](#{entry.id.lower()})") == 1
        is_in_table = f"| [{entry.id}](#{entry.id.lower()}) |" in page
        assert is_in_table == (not entry.code.startswith(docs_pages.NO_CODE))


def test_refresh_writes_what_changed(tmp_path):
    (tmp_path / "docs").mkdir()
    for name in ("results", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    assert len(docs_pages.refresh_docs(tmp_path)) == 3
    assert docs_pages.refresh_docs(tmp_path) == []


BEFORE = pd.read_csv(ROOT / verdicts_before.BEFORE, encoding="utf-8")


def test_claims_that_were_decided_before_and_are_open_now_are_named():
    text = (ROOT / "docs/verdicts_before.md").read_text(encoding="utf-8")
    section = re.search(r"## Decided before, and open now\n(.*?)\n## ", text, re.S)[1]
    named = re.findall(r"^\| ([A-Z]\w*-[\w-]+)", section, re.M)
    decided = {
        (scale, row.claim, row.corpus)
        for scale, frame in reference_verdicts(ROOT).items()
        for row in frame[frame.verdict.isin(verdicts.DECIDED)].itertuples()
    }
    before = BEFORE[BEFORE.verdict.isin(["reproduced", "not reproduced"])]
    keys = before[["scale", "claim", "corpus"]].itertuples(index=False, name=None)
    assert sorted(named) == sorted(key[1] for key in keys if key not in decided)
    assert len(named) >= 10


def test_a_verdict_that_falls_is_listed():
    frames = reference_verdicts(ROOT)
    frames["laptop"].loc[frames["laptop"].claim == "D-original", "verdict"] = verdicts.INCONCLUSIVE
    both = verdicts_before.against_before(ROOT, frames)
    fallen = both[(both.held == "open") & (both.held_before != "open")]
    row = next(fallen[fallen.claim == "D-original"].itertuples())
    assert verdicts_before.change_reason(row, set()) == "rule"
    made_again = row._replace(effect=row.effect + 0.01)
    assert verdicts_before.change_reason(made_again, set()) == "runs"
    assert verdicts_before.change_reason(row, {"D-original"}) == "reading"
    assert "| D-original | Bible |" in verdicts_before.changed_table(fallen, set())


def test_changed_readings_name_claims_and_ambiguities_that_exist():
    entries = tomllib.loads((ROOT / verdicts_before.READINGS_BEFORE).read_text(encoding="utf-8"))
    known = {claim.id for claim in claims()}
    choices = {entry.id for entry in ambiguities()}
    for reading in entries["reading"]:
        assert {*reading["claims"], reading.get("was", reading["claims"][0])} <= known
        assert reading.get("choice", next(iter(choices))) in choices


def test_what_was_run_in_both_readings_is_an_ambiguity_and_has_numbers():
    known = {entry.id for entry in ambiguities()}
    for names, (_, target) in docs_pages.BOTH_READINGS.items():
        assert set(names) <= known
        assert (ROOT / "docs" / target).is_file()
