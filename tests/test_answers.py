"""Each experiment notebook opens with its answer: plain markdown that follows from results and templates."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.papers.published import claims
from xlingual_nb.report import answer_blocks, answers, claim_values, scores

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "nbs").glob("[0-9][0-9]_*.ipynb"))
WITHOUT_CLAIMS = ("00_start_here",)  # a tour


@pytest.fixture(scope="module")
def templates():
    return answers.read_answers()


@pytest.fixture(scope="module")
def frames():
    return answers.reference_verdicts()


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_experiment_has_an_answer(templates):
    experiments = {p.stem for p in NOTEBOOKS} - set(WITHOUT_CLAIMS)
    assert set(templates) == experiments


@pytest.mark.parametrize(
    "path", [p for p in NOTEBOOKS if p.stem not in WITHOUT_CLAIMS], ids=lambda p: p.stem
)
def test_the_answer_stands_first_and_follows_from_the_results(path, templates, frames):
    cells = read(path)["cells"]
    assert "answer" in cells[1]["metadata"].get("tags", [])
    assert cells[1]["cell_type"] == "markdown"
    text = "".join(cells[1]["source"])
    assert text == answers.answer_text(templates[path.stem], frames), "run `xlingual refresh`"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_links_of_a_notebook_lead_somewhere(path):
    texts = ["".join(c["source"]) for c in read(path)["cells"] if c["cell_type"] == "markdown"]
    links = re.findall(r"\]\(([^)\s]+)\)", "\n".join(texts))
    for link in links:
        if not link.startswith(("https://", "attachment:")):
            assert (path.parent / link.partition("#")[0]).exists(), link
    assert path.stem in WITHOUT_CLAIMS or len(links) >= 3


def test_no_number_is_typed(templates):
    names = re.compile(r"\bF1\b|BLEU-1|Word2Vec")
    for template in templates.values():
        sentences = [template.answer, *template.not_shown, *template.remarks]
        for sentence in sentences:
            assert not re.search(r"\d", names.sub("", sentence)), (template.notebook, sentence)


def test_an_answer_is_short_and_has_a_figure_with_words_for_it(templates):
    for template in templates.values():
        assert 3 <= len(template.findings) + len(template.series) <= 5
        assert template.not_shown
        if template.figure:
            assert (ROOT / "figures" / template.figure).is_file()
            assert len(template.alt) > 40
    without = {template.notebook for template in templates.values() if not template.figure}
    assert without == {"15_ledger"}, "its answer is a table"


def test_a_comparison_has_a_row_a_model_and_a_column_a_text():
    options = dict(notebook="07_laboratory", table="table1", column="µ")
    rows = {"original": "0 original", "copy read backwards": "3 inv-order"}
    texts = {"microworld": "laptop/micro", "Bible, published size": "paper/bible"}
    heading, _, *lines = answers.comparison_table(rows=rows, texts=texts, **options).splitlines()
    assert heading == "| µ, mean ± sd (models) | microworld | Bible, published size |"
    assert [line.split(" | ")[0] for line in lines] == [f"| {name}" for name in rows]
    assert all(re.search(r"\| 0\.\d\d ± 0\.\d\d \(\d+\) \|", line) for line in lines)


def test_a_sentence_that_its_verdicts_leave_is_refused(templates, frames):
    template = templates["07_laboratory"]
    changed = {
        scale: frame.assign(
            verdict=frame.verdict.where(frame.claim != "D-inv-order", "inconclusive")
        )
        for scale, frame in frames.items()
    }
    with pytest.raises(InputError, match="D-inv-order"):
        answers.answer_text(template, changed)


def test_numbers_are_those_of_the_verdicts():
    row = dict(claim="K-order", corpus="micro", verdict="reproduced", effect=14.66, low=11.1)
    frame = pd.DataFrame(
        [row | dict(high=18.2, n_seeds=7, published=12.3, carried_by="es", fresh="")]
    )
    finding = answers.Finding("K-order", "NLI accuracy", "points")
    text = " ".join(answers.finding_text(finding, {"laptop": frame}).split())
    assert "+14.7 points [11.1, 18.2]" in text and "n = 7" in text and "+12.3 points" in text
    assert "carried by es" in text and "fresh" not in text
    said = frame.assign(fresh="reversed on 9 fresh seeds")
    assert "reversed on 9 fresh seeds" in " ".join(
        answers.finding_text(finding, {"laptop": said}).split()
    )
    claim = next(c for c in claims("k2020") if c.id == "K-order")
    assert claim.says in text and f"`K-order`, {claim.where}" in text
    added = next(c for c in claims("k2020") if c.id == "K-order-ner-released")
    assert answer_blocks.where_text(added).startswith("ours, beside §")
    assert "not tested" in answers.finding_text(
        replace(finding, claim="K-heads"), {"laptop": frame}
    )


def test_where_no_difference_is_printed_the_scores_stand_beside_ours(frames):
    def published(finding):
        text = " ".join(answers.finding_text(finding, frames).split())
        return text.partition(" Published: ")[2]

    overlap = published(answers.Finding("K-no-overlap-ner", "NER F1 above the baseline", "points"))
    printed = claim_values.published_values("k2020")
    rows = [f"enfake-{code} | enfake | {code}" for code in ("es", "hi", "ru")]
    values = [printed("table1", row, "NER F1-Score").item() for row in rows]
    assert re.fullmatch(rf"the score itself, {sum(values) / 3:.1f} \(ours \d+\.\d\)\.", overlap)
    of_texts = published(answers.Finding("W-transfers-pos", "POS accuracy above it", "points"))
    assert of_texts.count(";") == 2 and "multilingual-e5-small" in of_texts
    assert published(answers.Finding("L1-more-bert", "MRR")) == "no number printed."
    assert published(answers.Finding("K-order", "NLI accuracy", "points")).startswith("+")


def test_a_series_states_spread_and_models_and_stands_on_the_answer_to_its_question(templates):
    order = templates["17_dials"].series[0]
    text = " ".join(answers.series_text(order, "17_dials").split())
    table = pd.read_csv(ROOT / "results/laptop/17_dials/dials.csv")
    value = table[(table.row == "order | SVO") & (table.column == "µ")].squeeze()
    assert f"SVO (English's) **{value.value:.2f} ± {value.sd:.2f}**" in text
    assert "mean ± sd, n = 3 to 5" in text and text.endswith("rises.")
    for changed in ({"verdict": "falls"}, {"question": "is it so?"}):
        with pytest.raises(InputError, match=r"answers\.toml: \[17_dials\]"):
            answers.series_text(replace(order, test=order.test | changed), "17_dials")


def test_an_encoder_from_elsewhere_is_described_once(templates, frames):
    text = " ".join(answers.answer_text(templates["12_zero_shot"], frames).split())
    assert text.count("weights of 4 bits") == 1
    assert text.count("multilingual-e5-small") > 2


def test_refresh_writes_what_changed_and_nothing_else(tmp_path):
    (tmp_path / "nbs").mkdir()
    for name in ("figures", "results"):
        (tmp_path / name).symlink_to(ROOT / name)
    source = (ROOT / "nbs/answers.toml").read_text(encoding="utf-8")
    (tmp_path / "nbs/answers.toml").write_text(source, encoding="utf-8")
    path = tmp_path / "nbs/03_frequency.ipynb"
    notebook = read(ROOT / "nbs/03_frequency.ipynb")
    notebook["cells"][1]["source"] = ["## In short"]
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert answers.refresh(["03_frequency"], tmp_path) == [path]
    assert read(path) == read(ROOT / "nbs/03_frequency.ipynb")
    assert answers.refresh(["03_frequency"], tmp_path) == []
    del notebook["cells"][1]
    path.write_text(json.dumps(notebook), encoding="utf-8")
    with pytest.raises(InputError, match="no cell has the tag"):
        answers.refresh(["03_frequency"], tmp_path)
    with pytest.raises(InputError, match="no section"):
        answers.refresh(["00"], tmp_path)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('unit = "points"', "unit"),
        ('claim = "K-frequency"', "K-freq"),
        ("effect = ", "effct"),
    ],
)
def test_a_template_with_a_mistake_names_file_and_notebook(tmp_path, wrong, said):
    source = (ROOT / "nbs/answers.toml").read_text(encoding="utf-8")
    section = source[source.index('["03_frequency"]') : source.index('["04_architecture"]')]
    mistakes = {"unit": 'unit = "metres"', "K-freq": 'claim = "K-freq"', "effct": "effct = "}
    path = tmp_path / "answers.toml"
    path.write_text(section.replace(wrong, mistakes[said], 1), encoding="utf-8")
    with pytest.raises(InputError, match=rf"answers\.toml: \[03_frequency\].*{said}"):
        answers.read_answers(path)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["reproduced", "inconclusive", "not above baseline"], ""),
        (["contradicted", "reproduced"], "everywhere"),
        (["contradicted", "inconclusive"], "Not so"),
        (["smaller than the margin", "inconclusive"], "margin"),
        (["inconclusive", "not above baseline"], "Undecided"),
        ([], "Not tested"),
    ],
)
def test_a_claim_that_does_not_hold_says_so_before_its_sentence(names, said):
    outcome = scores.outcome_text(names)
    assert (said in outcome) if said else outcome == ""


def test_the_score_counts_a_claim_where_its_text_belongs():
    corpora = ["micro", "micro-five", "bible", "natural-some-encoder"]
    verdicts = ["contradicted", "reproduced", "inconclusive", "reproduced"]
    frame = pd.DataFrame(
        {"claim": "D-original", "paper": "dufter2020", "corpus": corpora, "verdict": verdicts}
    )
    text = scores.score_text({"laptop": frame, "paper": frame[frame.corpus == "bible"]})
    assert "in the microworld 1 of 1 (0 ✓, 1 ✗), in its variants 1 of 1 (1 ✓, 0 ✗)" in text
    assert "on the Bible 0 of 1, on natural-some-encoder 1 of 1" in text
