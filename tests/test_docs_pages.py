"""Two pages of docs/ follow from the registries of claims and ambiguities and from the reference results."""

from pathlib import Path

import pytest

from xlingual_nb.papers.published import ambiguities, claims
from xlingual_nb.report import docs_pages, verdicts
from xlingual_nb.report.answers import reference_verdicts

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", ["docs/contradicted.md", "docs/text_and_code.md"])
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
    links = [line for line in page.splitlines() if line.startswith("| [")]
    assert len(links) == 5


def test_refresh_writes_what_changed(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").symlink_to(ROOT / "results")
    assert len(docs_pages.refresh_docs(tmp_path)) == 2
    assert docs_pages.refresh_docs(tmp_path) == []
