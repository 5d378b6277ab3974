"""README.md follows from the reference results, is short, and every link in it leads somewhere."""

import json
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.report import install_cells, readme
from xlingual_nb.report.answers import reference_verdicts
from xlingual_nb.report.study_costs import study_costs

ROOT = Path(__file__).resolve().parents[1]
OF_THE_SITE = "../runs.md", "../claims/index.md"  # pages that `xlingual report` writes
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


@pytest.fixture(scope="module")
def text():
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_results_are_those_of_the_study(text):
    assert readme.readme_text(text, ROOT) == text, "run `xlingual refresh`"


def test_the_tour_ends_in_the_map_of_all_notebooks():
    cells = json.loads((ROOT / "nbs/00_start_here.ipynb").read_text(encoding="utf-8"))["cells"]
    template = tomllib.loads((ROOT / "nbs/readme.toml").read_text(encoding="utf-8"))
    block = readme.notebooks_block(template, folder="")
    assert "".join(cells[-1]["source"]) == f"## Map\n\n{block}", "run `xlingual refresh`"


def test_it_is_short(text):
    plain = re.sub(r"<!--.*?-->|```.*?```|<[^>]*>", "", text, flags=re.S)
    plain = re.sub(r"\]\([^)]*\)", "]", plain)  # without the targets of links
    words = [word for word in re.sub(r"[|*`#\[\]]", " ", plain).split() if re.search(r"\w", word)]
    assert len(words) < 1200


def test_beside_the_score_stands_the_worst_rate_of_wrong_verdicts(tmp_path):
    measured = tmp_path / "placebo.csv"
    assert readme.placebo_sentence(measured) == ""
    columns = "confirmed,confirmed_low,confirmed_high,refuted,refuted_low,refuted_high"
    measured.write_text(f"{columns}\n.02,.01,.09,.0,.0,.06\n.0,.0,.06,.03,.02,.11\n")
    assert " 0.03 [0.02, 0.11] " in readme.placebo_sentence(measured)


def test_outside_its_blocks_it_types_no_result(text):
    typed = re.sub(r"<!-- begin (.*?) -->.*?<!-- end \1 -->", "", text, flags=re.S)
    assert not re.search(r"[^\d]0?\.\d\d|\d+\.\d points", typed)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    assert links or page.name != "README.md"
    for link in links:
        file = link.partition("#")[0]
        if not link.startswith("https://") and file not in OF_THE_SITE:
            assert (page.parent / file).exists(), link


def test_all_47_tables_and_figures_are_covered(text):
    template = tomllib.loads((ROOT / "nbs/readme.toml").read_text(encoding="utf-8"))
    places = [place for paper in template["coverage"].values() for place in paper.values()]
    assert len(places) == 47
    names = {entry["name"] for entry in template["notebook"]}
    assert names == {path.stem for path in (ROOT / "nbs").glob("[0-9]*.ipynb")}
    assert {place.partition("/")[0] for place in places if place} <= names
    assert readme.covered("07_laboratory/table1", ROOT) == readme.VALUES
    assert readme.covered("09_data_size/figure1", ROOT) == readme.ORDERING
    assert readme.covered("09_data_size/nothing", ROOT) == readme.MISSING


def test_what_reproduce_prints_is_of_the_rows_and_seeds_that_it_makes(text):
    makefile = dict(re.findall(r"^(ROWS|SEEDS) +\?= (\S+)$", (ROOT / "Makefile").read_text(), re.M))
    assert makefile["ROWS"] == ",".join(readme.FIRST_ROWS)
    assert makefile["SEEDS"] == str(readme.FIRST_SEEDS)
    printed = readme.printed_block()
    for row in readme.FIRST_ROWS:
        assert re.search(rf"^  {row} .* \(n = {readme.FIRST_SEEDS}\)", printed, re.M)
    assert printed in text


@pytest.mark.ci
def test_the_cost_of_paper_scale_is_what_a_plan_says(text, monkeypatch):
    """Without data, as a reader has it: the laboratory's depends on the length of its text."""
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    studies = {
        "K": ([f"0{number}" for number in range(1, 7)], {}),
        "L1 and L2": (["09", "10", "11", "14"], {}),
        "W": (["12", "13"], dict(corpus="micro")),
    }
    for papers, (names, parameters) in studies.items():
        (hours, price), *_ = re.findall(rf"([\d,]+) \(([\d,]+) USD\) for {papers}", text)
        ours = study_costs(names, "paper", parameters).machines.set_index("machine").loc["H100"]
        assert float(hours.replace(",", "")) == pytest.approx(ours["card-hours"], rel=0.01)
        assert float(price.replace(",", "")) == pytest.approx(ours["price USD"], rel=0.01)
    laboratory = study_costs(["07"], "paper", {}).machines.set_index("machine").loc["H100"]
    assert laboratory["card-hours"] < 3 and laboratory["price USD"] < 10


def test_a_finding_is_a_decided_claim():
    frames = reference_verdicts(ROOT)
    undecided = {scale: frame.assign(verdict="inconclusive") for scale, frame in frames.items()}
    template = {"finding": [dict(claim="D-original", effect="µ")]}
    assert "D-original" in readme.findings_block(template, frames)
    with pytest.raises(InputError, match="D-original"):
        readme.findings_block(template, undecided)


def test_the_score_counts_the_papers_own_claims(text):
    frame = pd.read_csv(ROOT / "results/laptop/verdicts.csv")
    own = frame[(frame.whose == "paper") & (frame.corpus == "micro")]
    decided = own.verdict.isin(["reproduced", "contradicted", "smaller than the margin"]).sum()
    assert f"{decided} of" in " ".join(text.split())


def test_badges_and_mirror_follow_from_the_one_address(tmp_path):
    """`git_url` of settings.ini; a placeholder has no badges, a code host has those of two workflows."""
    for name in ("settings.ini", "pyproject.toml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert readme.refresh_mirror(tmp_path) == []
    settings = tmp_path / "settings.ini"
    address = "https://github.com/Someone/copy"
    changed = re.sub(r"^git_url = .*$", f"git_url = {address}", settings.read_text(), flags=re.M)
    settings.write_text(changed)
    assert readme.refresh_mirror(tmp_path) == [tmp_path / "pyproject.toml"]
    mirror = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))
    assert mirror["tool"]["nbdev"]["git_url"] == readme.repository_address(tmp_path) == address
    badges = readme.badges_block(address)
    for name in re.findall(r"workflows/(\w+)\.yml/badge", badges):
        assert (ROOT / f".github/workflows/{name}.yml").is_file()
    assert "https://someone.github.io/copy/" in badges and badges.count("[![") == 4
    opened = re.findall(r"/(?:github|gh)/Someone/copy/\S*?(nbs[^)]*)", badges)
    assert all((ROOT / unquote(name)).is_file() for name in opened) and len(opened) == 2
    settings.write_text(changed.replace(address, "https://example.org/copy"))
    assert readme.badges_block(readme.repository_address(tmp_path)) == ""


def test_notebooks_have_an_install_cell_where_there_is_an_address(tmp_path):
    """The cell clones and installs where the package is missing, before the first code, once."""
    (tmp_path / "nbs").mkdir()
    path = tmp_path / "nbs/03_frequency.ipynb"
    source = (ROOT / "nbs/03_frequency.ipynb").read_text(encoding="utf-8")
    path.write_text(source, encoding="utf-8")
    address = "https://github.com/Someone/copy"
    (tmp_path / "settings.ini").write_text(f"[DEFAULT]\ngit_url = {address}\n")
    assert install_cells.refresh_install_cells(tmp_path) == [path]
    assert install_cells.refresh_install_cells(tmp_path) == []
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    assert f"git clone -q --depth 1 {address}" in "".join(first["source"])
    (tmp_path / "settings.ini").write_text("[DEFAULT]\ngit_url = https://example.org/copy\n")
    assert install_cells.refresh_install_cells(tmp_path) == [path]
    assert path.read_text(encoding="utf-8") == source
