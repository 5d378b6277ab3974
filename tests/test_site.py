"""The site: what its sources hold, what it says of results that are missing or damaged, and what a
browser sees of the whole.
"""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urldefrag

import pandas as pd
import pytest

import xlingual_nb
from xlingual_nb.errors import InputError
from xlingual_nb.papers import published
from xlingual_nb.report import (
    answers,
    site,
    site_choices,
    site_claims,
    site_data,
    site_notebooks,
    site_pages,
    site_papers,
    site_runs,
    site_tables,
    verdict_text,
)
from xlingual_nb.report.confirmation_outcomes import NOT_RUN
from xlingual_nb.report.labels import column_name, row_name
from xlingual_nb.report.site_data import Study
from xlingual_nb.report.site_html import relinked

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def reference():
    return Study(ROOT)


# ---- sources


def test_reference_results_are_read_without_a_fault(reference):
    assert reference.read_all() == []


def test_every_claim_has_a_row_and_a_page(reference):
    pages = site_claims.claim_pages(reference)
    for claim in published.claims():
        assert f"claims/{claim.id}.md" in pages
        assert f'href="{claim.id}.html"' in pages["claims/index.md"]


def test_the_score_counts_what_was_tested(reference):
    table = site_claims.score_table(reference.verdicts)
    judged = reference.verdicts[reference.verdicts.whose == published.PAPERS]
    decided = judged[judged.verdict != "not tested"].groupby(["paper", "corpus", "scale"]).size()
    assert table.count("<tr>") == len(decided) + 1
    largest = decided.idxmax()
    (row,) = [
        line
        for line in table.splitlines()
        if f"papers/{largest[0]}.html" in line
        and f"<td>{site_claims.place_name(*largest[1:])}</td>" in line
    ]
    assert f'<td class="xl-number">{decided.max()}</td>' in row


def test_effects_are_written_as_the_answers_of_notebooks_write_them(reference):
    units = {}
    for answer in answers.read_answers().values():
        units |= {finding.claim: finding.unit for finding in answer.findings}
    claims = {claim.id: claim for claim in published.claims()}
    judged = dict(list(reference.verdicts.groupby("claim")))
    assert len(units) > 40
    for claim, unit in units.items():
        assert verdict_text.effect_unit(claims[claim], judged[claim]) == unit, claim
    page = site_claims.claims_page(reference)
    for row in judged["D-original"].itertuples():
        assert verdict_text.with_interval(row, "score") in page
    assert "+0.70</td>" in page, "a published effect, with its sign and both places"


def test_a_claim_s_page_has_its_test_history_and_values(reference):
    (claim,) = [c for c in published.claims() if c.id == "D-inv-order"]
    page = site_claims.claim_page(claim, reference)
    assert claim.says in page and "xlingual why D-inv-order" in page
    for amendment in claim.amended:
        assert amendment.when in page
    assert re.search(r'runs\.html#laptop-07_laboratory-table1/\d+"', page)


def test_a_claim_s_page_says_what_is_planned_on_fresh_seeds_or_why_nothing_is(reference):
    compared = reference.compared
    claims = {claim.id: claim for claim in published.claims()}
    (planned,) = compared[(compared.claim == "D-late") & (compared.corpus == "micro")].itertuples()
    text = site_claims.fresh_seeds(claims["D-late"], compared)
    assert f"{planned.n:.0f} seeds, power {planned.power:.2f}" in text
    for row in compared[compared.outcome == NOT_RUN].itertuples():
        text = site_claims.fresh_seeds(claims[row.claim], compared)
        assert f"{row.n:.0f} seeds, power {row.power:.2f}" in text and escape(row.why) in text
    (left_out,) = compared[(compared.claim == "D-no-parallel") & (compared.corpus == "micro")].why
    assert left_out and left_out in site_claims.fresh_seeds(claims["D-no-parallel"], compared)
    ours = next(claim for claim in claims.values() if claim.whose == published.OURS)
    assert site_claims.fresh_seeds(ours, compared) == ""


def test_a_value_of_a_claim_is_rounded_as_its_own_column_asks():
    test = published.Comparison("table1", "MLM-Perpl. dev", ("original",), "above", 0.0)
    claim = published.Claim(
        "D-x", "dufter2020", "", "", ("laptop",), (test, dataclasses.replace(test, column="µ"))
    )
    columns = ["row", "column", "corpus", "value", "sd", "published", "n_seeds"]
    rows = [
        ("original", "MLM-Perpl. dev", "bible", 1234.4, 5.2, 22.71, 3),
        ("original", "µ", "bible", 0.456, 0.012, 0.7, 3),
    ]
    lines = {}
    for line, row in enumerate(pd.DataFrame(rows, columns=columns).itertuples(), 2):
        table = SimpleNamespace(key="laptop-x-table1", scale="laptop")
        lines["dufter2020", "table1", row.row, row.column] = [(table, line, row)]
    page = site_claims.values_behind(claim, SimpleNamespace(lines_of=lines))
    assert ">1234 ±5.2<" in page and ">22.7<" in page, "perplexities to three digits"
    assert ">0.46 ±0.01<" in page and ">0.70<" in page, "scores to two decimals"


@pytest.mark.parametrize("test", [t for c in published.claims() for t in c.tests][::9])
def test_a_test_in_words_names_what_it_compares(test):
    text = site_claims.describe_test(test)
    assert all(row_name(row) in text for row in test.plus) and column_name(test.column) in text


@pytest.fixture(scope="module")
def papers(reference):
    return site_papers.paper_pages(reference)


def test_every_published_table_and_figure_has_a_tile_and_a_section(reference, papers):
    items = site_data.items(ROOT)
    grid = site_papers.grid(reference)
    for item in items:
        assert f'href="papers/{item.paper}.html#{item.slug}"' in grid
    for paper in {item.paper for item in items}:
        page = papers[f"papers/{paper}.md"]
        for item in (item for item in items if item.paper == paper):
            assert f"\n## {item.title}\n" in page
            assert item.notebook in page


def test_every_ambiguity_is_on_the_page_of_its_paper():
    for choice in published.ambiguities():
        assert f"### {choice.id}\n" in site_choices.choices_page(choice.paper)


def test_a_number_names_the_line_that_xlingual_why_explains(reference):
    (table,) = [t for t in reference.tables if t.file == "results/laptop/03_frequency/table3.csv"]
    lines = (ROOT / table.file).read_text().splitlines()
    page = site_tables.table_page(table)
    for line in re.findall(rf'runs\.html#{table.key}/(\d+)"', page):
        row = table.frame.loc[int(line) - 2]
        assert row.row in lines[int(line) - 1]
    row = table.frame.iloc[0]
    number = (table.scale, table.notebook, *row[site_data.CELL_LABELS], None)
    values = [value for _, value, _ in reference.seeds_of[number]]
    assert sum(values) / len(values) == pytest.approx(row.value, rel=1e-4)


NUMBER = re.compile(r'<a href="\.\./runs\.html#([\w.-]+)/(\d+)">([^<]+)</a>')


@pytest.fixture(scope="module")
def notebook_pages(reference):
    pages = site_notebooks.notebook_pages(reference)
    return {name: page for name, page in pages.items() if name.endswith(".ipynb")}


def outputs_of(page):
    """The HTML that a notebook of the site shows."""
    for cell in json.loads(page)["cells"]:
        for output in cell.get("outputs", []):
            yield "".join(output.get("data", {}).get("text/html", ""))


def test_a_number_of_a_notebook_leads_to_a_line_that_has_it(reference, notebook_pages):
    lines = {t.key: dict(t.lines) for t in reference.tables}
    notebooks = set()
    for name, page in notebook_pages.items():
        for key, line, shown in NUMBER.findall("\n".join(outputs_of(page))):
            row = lines[key][int(line)]
            mean = shown.partition("±")[0].strip()
            assert abs(row.value - float(mean)) <= 0.5001 * 10 ** -len(mean.partition(".")[2])
            notebooks.add(name)
    with_tables = {f"nbs/{t.notebook}.ipynb" for t in reference.tables}
    assert notebooks == with_tables


@pytest.mark.parametrize("name", ["01_overlap", "04_architecture", "14_language_shift"])
def test_only_published_numbers_of_a_result_table_lead_nowhere(notebook_pages, name):
    left = 0
    for html in outputs_of(notebook_pages[f"nbs/{name}.ipynb"]):
        if "runs.html" in html:
            published = html.count(">published</th>")
            rows = html.partition("</thead>")[2].count("<tr>")
            left += len(re.findall(r"<td>-?\d+\.\d+ ?(±|<)", html)) - published * rows
    assert left <= 0


def test_a_figure_of_a_notebook_has_its_files_and_its_command(notebook_pages):
    for name, page in notebook_pages.items():
        shown = "\n".join(["".join(c["source"]) for c in json.loads(page)["cells"]])
        shown += "\n".join(outputs_of(page))
        for figure in re.findall(r"<figure.*?</figure>", shown, re.S):
            for words in (".json", ".csv", "notebook", "xlingual why figures/"):
                assert words in figure, (name, words)
        assert "](../figures/" not in shown, name


def test_a_figure_with_a_table_of_its_own_is_made_from_that(reference):
    (figure,) = [f for f in reference.figures if f.stem == "negation"]
    html = site_claims.figure_html(figure, reference.tables)
    assert "12_zero_shot-negation-laptop-micro-five.csv" in html and "table3.csv" not in html


def test_figures_are_found_for_tables_without_a_figure_of_their_name(reference):
    by_name = {(i.paper, i.name): i for i in site_data.items(ROOT)}
    item = by_name["k2020", "T8"]
    found = site_data.figures_of(item, reference.figures)
    assert found and all(f.notebook == "05_objective" for f in found)


def test_links_of_the_repository_lead_to_pages_or_are_text():
    def target(page, link):
        return site_pages.site_target(ROOT, page, link)

    assert target("README.md", "nbs/15_ledger.ipynb") == "nbs/15_ledger.ipynb"
    assert target("README.md", "docs/text_and_code.md") == "choices/index.md"
    assert target("README.md", "docs/contradicted.md") == "claims/index.md"
    assert target("nbs/01_overlap.ipynb", "lib/4110_pretraining.ipynb").endswith(
        "api/modules/models.pretraining.rst"
    )
    assert target("docs/reproducibility.md", "../runs.md") == "../runs.md"
    assert target("README.md", "Makefile") == ""
    text = "[a](b.md) ![c](d.png) [e](https://f.org)"
    assert relinked(text, lambda _: "") == "a ![c](d.png) [e](https://f.org)"


def test_claims_that_a_notebook_names_lead_to_their_pages():
    text = site_pages.linked_claims("(`K-order`)", "../claims", template="[`{name}`]({address}.md)")
    assert text == "([`K-order`](../claims/K-order.md))"


def test_the_index_of_the_api_has_each_name_once_and_by_subject():
    groups = site_pages.api_groups()
    names = [name for group in groups.values() for name in group]
    assert sorted(names) == sorted(xlingual_nb.__all__)
    assert groups["Errors"] == ["InputError"] and "probe" in groups["Checkpoints"]


def test_a_page_of_the_api_leads_to_names_of_its_subject():
    pages = site_pages.api_pages()
    for names in site_pages.api_groups().values():
        for name in names:
            listed = re.findall(r":doc:`xl\.\w+ <(\w+)>`", pages[f"api/{name}.rst"])
            assert listed == [other for other in names if other != name]


def test_a_table_s_section_has_its_claims_and_their_verdicts(reference):
    page = site_papers.paper_page("k2020", reference)
    section = page.partition("\n## Table 4\n")[2].partition("\n## Table 5\n")[0]
    tested = {c.id for c in published.claims("k2020") if any(t.table == "table4" for t in c.tests)}
    assert tested and set(re.findall(r'claims/([\w-]+)\.html">\1<', section)) >= tested


def test_a_page_of_the_api_shows_the_code_without_its_docstring():
    page = site_pages.name_page("api.texts", "permute")
    assert "      def permute(" in page and '"""' not in page
    assert site_pages.source_lines("api.texts", "no_such_name") == []


def test_a_notebook_s_page_has_its_file_and_its_command_under_the_title(notebook_pages):
    for name, page in notebook_pages.items():
        if name.startswith("nbs/lib/"):
            continue
        cells = json.loads(page)["cells"]
        first = next(cell for cell in cells if cell["source"].startswith("# "))
        title, _, line, *_ = first["source"].splitlines()
        stem = Path(name).stem
        assert f'href="{stem}.ipynb"' in line
        assert f"xlingual run {stem[:2]}" in line


def test_no_page_of_markdown_ends_a_block_of_html_early(papers):
    """A blank line inside a block of HTML would make Sphinx read the rest as markdown."""
    for name, page in papers.items():
        for block in page.split("\n\n"):
            assert block.count("<table") == block.count("</table>"), name


# ---- missing, damaged, foreign


def damaged(folder, change):
    """A folder with the reference results of one notebook, after a change."""
    for name in ("results/laptop/03_frequency", "figures"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("[!0]*", "0[!3]*")
        )
    for name in ("results/laptop/verdicts.csv", "results/specs.jsonl"):
        shutil.copy(ROOT / name, folder / name)
    for file in (ROOT / "results/laptop/03_frequency").glob("*.csv"):
        shutil.copy(file, folder / "results/laptop/03_frequency" / file.name)
    change(folder)
    return Study(folder)


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


FIGURE = "figures/03_frequency-table3-laptop-micro"
VERDICTS = "results/laptop/verdicts.csv"
DAMAGES = {
    "no results": (lambda folder: shutil.rmtree(folder / "results"), "results: no verdicts"),
    "cut table": (write("results/laptop/03_frequency/table3.csv", b"paper,ta"), "table3.csv"),
    "bytes": (write("results/laptop/03_frequency/table3.csv", b"\xff\x00\xfe"), "table3.csv"),
    "empty": (write(VERDICTS, b""), VERDICTS),
    "other columns": (write(VERDICTS, b"claim,answer\nX,yes\n"), VERDICTS),
    "no note": (lambda folder: (folder / f"{FIGURE}.json").unlink(), f"{FIGURE}.json"),
    "note is no JSON": (write(f"{FIGURE}.json", b"{"), f"{FIGURE}.json"),
    "no specs": (lambda folder: (folder / "results/specs.jsonl").unlink(), "results/specs.jsonl"),
    "specs cut": (write("results/specs.jsonl", b'{"id": "00'), "results/specs.jsonl"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged_is_told_and_the_rest_is_shown(tmp_path, name):
    change, words = DAMAGES[name]
    study = damaged(tmp_path, change)
    faults = study.read_all()
    assert any(words in fault for fault in faults), faults
    assert not any(str(tmp_path) in fault or "\n" in fault for fault in faults)
    assert words in site_pages.missing_page(faults)
    assert site_papers.paper_page("k2020", study) and site_claims.claims_page(study)
    for claim in published.claims("k2020"):
        if any(test.table == "table3" for test in claim.tests):
            assert site_claims.claim_page(claim, study)


def test_claims_of_another_project_are_left_out(tmp_path):
    def rename(folder):
        frame = pd.read_csv(folder / VERDICTS)
        frame.loc[0, "claim"] = "Z-elsewhere"
        frame.to_csv(folder / VERDICTS, index=False)

    study = damaged(tmp_path, rename)
    assert "Z-elsewhere" not in set(study.verdicts.claim)
    assert any("Z-elsewhere" in fault for fault in study.read_all())


# ---- a user's own results


def test_without_runs_of_one_s_own_the_page_says_how_to_make_some(tmp_path, reference):
    page = site_pages.user_page(Study(tmp_path, is_user=True), reference, [])
    assert "xlingual run" in page and "<table" not in page


def test_a_user_s_smoke_results_say_that_they_mean_nothing(tmp_path, reference):
    shutil.copytree(ROOT / "results/laptop/03_frequency", tmp_path / "results/smoke/03_frequency")
    page = site_pages.user_page(Study(tmp_path, is_user=True), reference, [])
    assert "its numbers mean nothing" in page and "yours/results/smoke/03_frequency" in page


def test_a_user_s_numbers_have_scripts_of_their_own(tmp_path):
    shutil.copytree(ROOT / "results/laptop/03_frequency", tmp_path / "results/laptop/03_frequency")
    scripts = site_runs.number_scripts(Study(tmp_path, is_user=True))
    assert list(scripts) == ["runs/yours-laptop-03_frequency-table3.js"]


# ---- building


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone without results, whose pages are made without Sphinx."""
    (tmp_path / "docs").mkdir()
    for name in ("conf.py", "front.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs")

    def build(folder, strict=False, n_processes=None):
        """As Sphinx, which writes a page a source and leaves what there was."""
        for kind in ("md", "rst", "ipynb"):
            for path in (folder / "source").rglob(f"*.{kind}"):
                page = folder / "html" / path.relative_to(folder / "source").with_suffix(".html")
                page.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, page)
        shutil.copytree(folder / "extra", folder / "html", dirs_exist_ok=True)

    monkeypatch.setattr(site, "run_sphinx", build)
    return tmp_path


@pytest.fixture
def of_few_pages(clone, monkeypatch):
    """The same, with a page of all claims, one of all papers and none of functions."""
    monkeypatch.setattr(
        site, "claim_pages", lambda study: {"claims/index.md": site_claims.claims_page(study)}
    )
    monkeypatch.setattr(
        site, "paper_pages", lambda study: {"papers/index.md": site_papers.papers_page(study)}
    )
    monkeypatch.setattr(site, "api_pages", dict)
    return clone


def test_a_clone_without_results_has_a_site_that_says_so(clone):
    index = site.write_report(clone)
    assert index == clone / "report/index.html"
    assert "what is missing" in index.read_text()


def test_a_build_that_stops_leaves_the_old_site(of_few_pages, monkeypatch):
    index = site.write_report(of_few_pages)
    before = index.read_text()

    def stop(folder, strict=False, n_processes=None):
        raise RuntimeError("sphinx stopped")

    monkeypatch.setattr(site, "run_sphinx", stop)
    with pytest.raises(RuntimeError):
        site.write_report(of_few_pages)
    assert index.read_text() == before
    assert not list(of_few_pages.glob("report.*"))


def test_pages_and_files_that_are_gone_leave_the_site(of_few_pages):
    for name in ("nbs/03_frequency.ipynb", f"{FIGURE}.png", f"{FIGURE}.json"):
        (of_few_pages / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, of_few_pages / name)
    report = site.write_report(of_few_pages).parent
    made = [report / "nbs/03_frequency.html", report / "nbs/03_frequency.ipynb"]
    made += [report / f"{FIGURE}.png", report / f"{FIGURE}.json"]
    assert all(path.is_file() for path in made)
    for folder in ("nbs", "figures"):
        shutil.rmtree(of_few_pages / folder)
    site.write_report(of_few_pages)
    assert not any(path.exists() for path in made) and (report / "index.html").is_file()


def test_finished_pages_are_taken_as_they_are(of_few_pages):
    (of_few_pages / "docs/explore").mkdir()
    page = "<!doctype html><title>Words &amp; copies</title><script src='data.js'></script>"
    (of_few_pages / "docs/explore/index.html").write_text(page)
    (of_few_pages / "docs/explore/data.js").write_text("1")
    (of_few_pages / "README.md").write_text("# X\n\n[Move it](docs/explore/index.html)\n")
    index = site.write_report(of_few_pages)
    assert (of_few_pages / "report/explore/index.html").read_text() == page
    assert (of_few_pages / "report/explore/data.js").is_file()
    text = index.read_text()
    for words in ("Words &amp; copies", "Move it"):
        assert f'<a href="explore/index.html">{words}</a>' in text


def test_without_the_extra_one_line_says_what_to_install(clone, monkeypatch):
    monkeypatch.setattr(site, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"sphinx.*\[docs\]"):
        site.write_report(clone)


# ---- the whole


class Page(HTMLParser):
    """Names, links and what a browser would fetch, of a page."""

    def __init__(self, path):
        super().__init__()
        self.names, self.links, self.fetched = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.names |= {known[name] for name in ("id", "name") if known.get(name)}
        if tag == "a" and known.get("href"):
            self.links.append(known["href"])
        if tag in ("img", "script", "iframe", "source") and known.get("src"):
            self.fetched.append(known["src"])
        if tag == "link" and known.get("rel") != "canonical" and known.get("href"):
            self.fetched.append(known["href"])


def build_site(root):
    """Copy what the site is made of to a folder, with results of a user's own, and build it there."""
    for name in ("docs", "nbs", "results", "figures", "benchmarks", "data/README.md"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, root / name)
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "settings.ini"):
        shutil.copy(ROOT / name, root)
    shutil.copytree(root / "results/laptop/03_frequency", root / "yours/results/smoke/03_frequency")
    # other tests use the other cores
    site.write_report(root, strict=True, n_processes=1)


@pytest.fixture(scope="module")
def built(made_once):
    """The whole site, built without a warning."""
    pytest.importorskip("myst_nb")
    return made_once("site", build_site) / "report"


def is_anchor(anchor, target):
    """Whether what is after the `#` names a place; on two pages it is read by their scripts."""
    return (
        bool(anchor)
        and target.suffix == ".html"
        and target.name != "runs.html"
        and "=" not in anchor
    )


@pytest.mark.ci
def test_no_link_of_the_site_is_broken_and_nothing_comes_from_elsewhere(built):
    page = cache(Page)
    faults = []
    for path in sorted(set(built.rglob("*.html")) - set(built.glob("_static/**/*"))):
        for link in page(path).fetched + page(path).links:
            if re.match(r"(https?:)?//", link):
                if link in page(path).fetched:
                    faults.append(f"{path.name} fetches {link}")
                continue
            if re.match(r"mailto:|data:|javascript:", link):
                continue
            file, anchor = urldefrag(unquote(link.partition("?")[0]))
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (
                is_anchor(anchor, target) and anchor not in page(target).names
            ):
                faults.append(f"{path.relative_to(built)}: {link}")
    assert faults == []


@pytest.mark.ci
def test_no_page_shows_an_object_by_its_address(built):
    pages = sorted(built.rglob("*.html"))
    shown = [p.name for p in pages if re.search("0x[0-9a-f]{10}", p.read_text("utf-8"))]
    assert pages and shown == []


KINDS = (
    "index.html",
    "docs/start.html",
    "papers/k2020.html",
    "papers/dufter2020.html",
    "nbs/07_laboratory.html",
    "nbs/lib/3000_microworld.html",
    "claims/index.html",
    "claims/D-original.html",
    "choices/dufter2020.html",
    "tables/laptop-04_architecture-table4.html",
    "api/index.html",
    "api/pretrain.html",
    "docs/extend.html",
    "docs/reproducibility.html",
    "yours/index.html",
    "runs.html#laptop-03_frequency-table3/2",
    "search.html?q=perplexity",
    "papers/liu2020b.html",
    "api/modules/models.pretraining.html",
    "benchmarks/README.html",
    "data/README.html",
    "genindex.html",
    "py-modindex.html",
    "missing.html",
)


def new_window(browser):
    """A tab of a browser, and a list that the errors of its page go to."""
    tab, errors = browser.new_context().new_page(), []
    tab.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda e: errors.append(str(e)))
    tab.on("requestfailed", lambda r: errors.append(f"not loaded: {r.url}"))
    return tab, errors


@pytest.fixture(scope="module")
def window(browser):
    """The tab of one page after the other: a new one takes three times the processor."""
    return new_window(browser)


def opened(window, path, width):
    """A page of the site in a window of a width, and its errors."""
    tab, errors = window
    tab.goto("about:blank")
    errors.clear()
    tab.set_viewport_size(dict(width=width, height=900))
    tab.emulate_media(color_scheme="light", media="screen", reduced_motion="no-preference")
    file, rest = re.fullmatch(r"([^?#]*)(.*)", str(path)).groups()
    tab.goto(Path(file).as_uri() + rest)
    return tab, errors


def is_shown(tab):
    """Wait for what a script writes into a page, which is its last part to be there."""
    for mark, written in {"?q=": "#search-results li a", "runs.html#": "#xl-run table a"}.items():
        if mark in tab.url:
            tab.wait_for_selector(written)


# the theme scrolls the part of a page between its lists, not the page
SIDEWAYS = """() => [document.documentElement, ...document.querySelectorAll('.bd-article-container')]
    .filter(box => box.scrollWidth > box.clientWidth + 1).map(box => `${box.className}: ${box.scrollWidth}`)"""
EMPTY = """() => [...document.querySelectorAll('main img')].filter(
    image => image.loading !== 'lazy' && !image.naturalWidth).map(image => image.src)"""


@pytest.fixture(scope="module")
def other_window(browser):
    """A second tab, whose page stays while others are opened."""
    return new_window(browser)


@pytest.fixture(
    scope="module",
    params=[(page, width) for page in KINDS for width in (1280, 390)],
    ids=lambda param: "-".join(map(str, param)),
)
def shown(request, built, other_window):
    """A page in a window, and its errors; it is opened once for all that is asked of it."""
    page, width = request.param
    tab, errors = opened(other_window, built / page, width)
    is_shown(tab)
    return tab, errors


@pytest.mark.ci
def test_a_browser_shows_every_kind_of_page(shown):
    tab, errors = shown
    assert tab.evaluate(SIDEWAYS) == []
    assert tab.evaluate(EMPTY) == []
    assert errors == []


REACHED = """async () => {
    const images = [...document.querySelectorAll('main img[loading=lazy]')];
    document.querySelectorAll('main details').forEach(fold => { fold.open = true; });
    const empty = [];
    for (const image of images) {
        image.scrollIntoView({block: 'center'});
        for (let wait = 0; wait < 100 && !image.complete; wait++) await new Promise(go => setTimeout(go, 50));
        if (!image.naturalWidth || !image.checkVisibility()) empty.push(image.src);
    }
    return [images.length, empty];
}"""


@pytest.mark.ci
@pytest.mark.parametrize(
    "page", ["index.html", "papers/k2020.html", "claims/D-original.html", "nbs/07_laboratory.html"]
)
def test_every_figure_is_loaded_when_it_is_scrolled_to(built, window, page):
    tab, errors = opened(window, built / page, 1280)
    number, empty = tab.evaluate(REACHED)
    assert number > 0 and empty == [] and errors == []


CUT = """([upright, turned]) => [...document.querySelectorAll('main :is(table, pre, img, p)')].filter(box => {
    const isTurned = getComputedStyle(box.closest('.xl-scroll, .cell_output') ?? box).page === 'wide';
    const width = isTurned ? turned : upright;
    const scrolls = getComputedStyle(box).overflowX !== 'visible' && box.scrollWidth > box.clientWidth + 1;
    const around = box.parentElement.closest('div');
    const isHidden = getComputedStyle(around).overflowX !== 'visible' && around.scrollWidth > around.clientWidth + 1;
    return scrolls || isHidden || box.getBoundingClientRect().right > width + 1;
}).map(box => `${box.tagName} ${box.textContent.slice(0, 60)}`)"""
PAPER = (718, 1047)  # pixels between the margins of A4, upright and on its side


@pytest.mark.ci
@pytest.mark.parametrize(
    "page",
    ["claims/index.html", "nbs/07_laboratory.html", "papers/k2020.html", "api/pretrain.html"],
)
def test_nothing_is_cut_on_paper(built, window, page):
    tab, _ = opened(window, built / page, PAPER[0])
    tab.emulate_media(media="print")
    assert tab.evaluate(CUT, PAPER) == []


# Most of what axe takes goes into colours, which follow from tags, classes and styles. Of rows,
# entries, paragraphs and words of code that have the same ones inside and around them two stay for
# it, an odd and an even one.
TWO_OF_A_KIND = """() => {
    const name = box => `${box.tagName} ${box.className} ${box.getAttribute('style')}`;
    const shape = box => name(box) + '(' + [...box.children].map(shape) + ')' + !box.textContent.trim();
    const place = box => box.matches('main') ? '' : place(box.parentElement) + name(box.parentElement);
    const counts = new Map();
    for (const box of document.querySelectorAll('main :is(tr, li, p, pre span)')) {
        if (!box.isConnected) continue;
        const kind = place(box) + shape(box);
        counts.set(kind, (counts.get(kind) ?? 0) + 1);
        if (counts.get(kind) > 2) box.remove();
    }
}"""
COLOURS = ["color-contrast", "link-in-text-block"]
OF_COLOURS = dict(runOnly=dict(type="rule", values=COLOURS))
OF_ALL_ELSE = dict(rules={rule: dict(enabled=False) for rule in COLOURS})
# buttons fade into their other colours
IN_THE_DARK = (
    "document.documentElement.dataset.theme === 'dark' && !document.getAnimations().length"
)


def serious_faults(tab, options) -> list[str]:
    """What axe finds that keeps a reader out."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    return [
        f"{fault['id']}: {node['target']} {node['failureSummary'][:200]}"
        for fault in axe.run(tab, options=options).response["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


@pytest.mark.ci
def test_no_serious_fault_of_accessibility_by_day_or_in_the_dark(shown):
    """The last that is asked of a page, as it leaves a part of it."""
    tab, _ = shown
    assert serious_faults(tab, OF_ALL_ELSE) == []
    tab.evaluate(TWO_OF_A_KIND)
    assert serious_faults(tab, OF_COLOURS) == []
    if tab.viewport_size["width"] < 1000:  # in the dark the same colours stand there
        return
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function(IN_THE_DARK)
    assert serious_faults(tab, OF_COLOURS) == []


@pytest.mark.ci
def test_a_block_of_code_is_copied_without_prompts_and_output(built, window):
    tab, errors = opened(window, built / "api/permute.html", 1280)
    tab.evaluate("navigator.clipboard.writeText = async text => { window.copied = text; }")
    block = tab.locator("main div.highlight:has-text('>>>')").first
    block.hover()
    block.locator("button").click()
    copied = tab.evaluate("window.copied")
    shown = block.locator("pre").inner_text()
    assert f">>> {copied.splitlines()[0]}" in shown and ">>>" not in copied
    assert len(copied.splitlines()) < len(shown.strip().splitlines()) and errors == []


@pytest.mark.ci
def test_claims_are_filtered_searched_and_sorted(built, window):
    tab, errors = opened(window, built / "claims/index.html", 1280)
    rows = tab.locator(".xl-claims tbody tr:visible")
    every = rows.count()
    tab.select_option("select[name=verdict]", "contradicted")
    contradicted = rows.count()
    assert 0 < contradicted < every
    assert all(
        "contradicted" in text for text in rows.locator("td[data-label=verdict]").all_inner_texts()
    )
    assert "verdict=contradicted" in tab.url
    tab.fill("input[name=search]", "no such words")
    assert rows.count() == 0
    tab.fill("input[name=search]", "")
    tab.click(".xl-claims thead button >> text=n >> nth=-1")
    tab.select_option("select[name=verdict]", "")
    numbers = tab.eval_on_selector_all(
        ".xl-claims td[data-label=n]", "cells => cells.map(cell => Number(cell.dataset.value))"
    )
    assert numbers == sorted(numbers) and errors == []


@pytest.mark.ci
def test_a_number_leads_to_its_runs_and_a_run_to_what_it_reads(built, window):
    tab, errors = opened(window, built / "papers/k2020.html", 1280)
    tab.locator(".xl-results td.xl-ours a").first.click()
    tab.wait_for_selector("#xl-run table a")
    assert "xlingual why results/" in tab.inner_text("#xl-run")
    tab.locator("#xl-run table a").first.click()
    tab.wait_for_selector("#xl-run pre a")
    assert "xlingual runs make" in tab.inner_text("#xl-run")
    tab.locator("#xl-run pre a").first.click()
    tab.wait_for_selector("#xl-run h2")
    assert errors == []


def card(title):
    return f".sd-card:has-text('{title}')"


def tile(paper, title):
    return f"a.xl-tile[href='papers/{paper}.html#{title}']"


# what a reader asks: clicks from the front page, and what then stands there
ASKED = {
    "does word order matter": (
        [card("Does word order matter?")],
        r"\+\d+\.\d points \[\d+\.\d, \d+\.\d\], n = \d+, ✓ reproduced",
    ),
    "what does a table say, did it hold": (
        [tile("k2020", "table-4"), "#table-4 summary:has-text('Claims about it')"],
        r"K-depth\b.*(reproduced|inconclusive|contradicted)",
    ),
    "which claims failed": ([card("What did not hold")], r"✗\s+contradicted"),
    "how do I run a table on Finnish": ([card("Your language")], r"--sizes \S*fi\.toml"),
    "what is the microworld": ([card("The microworld")], r"synthetic languages"),
    "which run made this number": (
        [tile("k2020", "table-3"), "#table-3 td.xl-ours a"],
        r"Values by seed.*\b[0-9a-f]{12}\b",
    ),
    "what is µ": ([card("Glossary")], r"multilinguality score .*the mean of ρ and τ"),
    "what does the papers' size cost": ([card("What it costs")], r"\d USD"),
    "where do text and code disagree": (
        [card("Text against code"), "main a:has-text('Dufter & Schütze 2020')"],
        r"the paper\n.*its code\n.*here\n",
    ),
    "how many seeds": ([], r"rests on \d+ to \d+ models"),
}


@pytest.mark.ci
@pytest.mark.parametrize("question", ASKED)
def test_a_reader_s_question_is_answered_within_two_clicks(built, window, question):
    clicks, answer = ASKED[question]
    assert len(clicks) <= 2
    # what is still loading when a reader goes on is no fault
    tab, _ = opened(window, built / "index.html", 1280)
    for target in clicks:
        tab.locator(target).first.click()
    for _ in range(100):  # what scripts write comes a moment later
        text = tab.inner_text("main")
        if re.search(answer, text, re.DOTALL):
            break
        tab.wait_for_timeout(100)
    assert re.search(answer, text, re.DOTALL), f"{tab.url} does not say"


LOOKS = """() => {
    window.look = box => getComputedStyle(box).outlineStyle + getComputedStyle(box).boxShadow;
    const boxes = [...document.querySelectorAll('a, button, input, summary, [tabindex], .sd-card')];
    window.before = new Map(boxes.map(box => [box, window.look(box)]));
}"""
FOCUSED = """() => {
    const at = document.activeElement;
    if (at === document.body) return null;
    const boxes = [at, at.closest('.sd-card') ?? at];
    const isMarked = boxes.some(box => window.look(box) !== window.before.get(box));
    const number = [...window.before.keys()].indexOf(at);
    return {number, name: at.textContent.trim() || at.getAttribute('aria-label'), isMarked};
}"""


@pytest.mark.ci
def test_the_keyboard_walks_the_front_page_to_its_end_and_shows_where_it_is(built, window):
    tab, _ = opened(window, built / "index.html", 1280)
    links = tab.evaluate("document.querySelectorAll('main a[href]:not(.headerlink)').length")
    tab.emulate_media(reduced_motion="reduce")  # a ring that fades in is not there at once
    tab.evaluate(LOOKS)
    walked = {}
    while True:
        tab.keyboard.press("Tab")
        focused = tab.evaluate(FOCUSED)
        if focused is None:
            break
        assert focused["number"] not in walked, f"a trap at {focused['name']}"
        assert focused["isMarked"], f"nothing shows the focus on {focused['name']}"
        walked[focused["number"]] = focused["name"]
    assert len(walked) > links > 50


@pytest.mark.ci
def test_the_search_opens_by_a_key_and_finds_a_page_offline(built, window):
    tab, errors = opened(window, built / "index.html", 1280)
    tab.keyboard.press("Control+k")
    tab.wait_for_selector("#pst-search-dialog[open]")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#pst-search-dialog", state="hidden")
    tab.keyboard.press("Control+k")
    tab.wait_for_selector("#pst-search-dialog input:focus")
    tab.keyboard.type("perplexity")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#search-results li a")
    assert "search.html?q=perplexity" in tab.url and errors == []


def test_the_package_does_not_load_sphinx():
    code = "import sys, xlingual_nb.report.site; print('sphinx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
