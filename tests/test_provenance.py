"""The specs behind the reference results: complete, true to their ids, and enough to make a run
again, where there is no store and no data.
"""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from xlingual_nb import cli
from xlingual_nb.errors import InputError
from xlingual_nb.papers import published
from xlingual_nb.report import provenance, spec_index
from xlingual_nb.report.confirmation import confirmed_values
from xlingual_nb.report.confirmation_plan import plans
from xlingual_nb.report.run_commands import provenance_of
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

ROOT = Path(__file__).resolve().parents[1]
FIGURES = sorted((ROOT / "figures").glob("[0-9]*.png"))


@pytest.fixture(scope="module")
def index():
    return spec_index.read_index(ROOT)


@pytest.fixture(scope="module")
def values():
    return spec_index.reference_values(ROOT)


# --- the command


def test_results_on_an_encoder_from_elsewhere_are_made_again_on_its_folder():
    command = provenance.rerun_command("13_layers", "laptop", "natural-e5-small", seeds=3)
    assert command == (
        "xlingual run 13_layers --scale laptop -p corpus=natural -p checkpoint=e5-small -p seeds=3"
    )
    assert "checkpoint" not in provenance.rerun_command("13_layers", "laptop", "natural")
    assert provenance.rerun_command("13_layers", "laptop", "bible").endswith("-p corpus=bible")


# --- the index


def test_every_reference_run_has_its_spec(index, values):
    lacking = set(values.run) - set(index.entries)
    assert lacking == set(), "the reference results have changed: xlingual runs index"
    in_notes = {
        run
        for path in FIGURES
        for run in json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["runs"]
    }
    fresh = set(confirmed_values(ROOT).run_id.str[: spec_index.SHORT])
    cited = set(values.run) | in_notes | fresh
    assert set(index.ancestors(sorted(cited))) == set(index.entries), "xlingual runs index"


def test_every_id_follows_from_what_the_index_says(index, values):
    wrong = [short for short in index.entries if not index.run_id(short).startswith(short)]
    assert wrong == []
    whole = dict(zip(values.run, values.run_id))
    assert {short: index.run_id(short) for short in whole} == whole


def test_a_changed_spec_or_digest_no_longer_has_its_id(index):
    short = next(s for s, entry in index.entries.items() if entry["spec"].get("seed") == 1)
    entry = index.entries[short]
    changed = entry | {"spec": entry["spec"] | {"seed": 2}}
    other = spec_index.SpecIndex(index.entries | {short: changed})
    assert other.run_id(short) != index.run_id(short)
    with_data = next(s for s, entry in index.entries.items() if "data" in entry)
    digests = dict.fromkeys(index.entries[with_data]["data"], "0" * 64)
    changed = index.entries[with_data] | {"data": digests}
    other = spec_index.SpecIndex(index.entries | {with_data: changed})
    assert other.run_id(with_data) != index.run_id(with_data)


def test_a_spec_of_every_stage_is_restored(index, monkeypatch):
    """Runs on generated text alone, so that it needs no data folder."""
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    stages = {}
    for short in index.entries:
        if set(index.data([short]).values()) <= {"generated"}:
            stages.setdefault(index.stage(short), short)
    assert len(stages) > 20
    for short in stages.values():
        assert run_id(spec_index.restored_spec(index, short)).startswith(short)


def test_what_read_other_data_is_not_made_with_these(index, tmp_path, monkeypatch):
    short = next(s for s in index.entries if set(index.data([s])) == {"bible/en-bbe"})
    (tmp_path / "bible").mkdir()
    (tmp_path / "bible/en-bbe.tsv").write_text("GEN.1.1\tIn the beginning.\n")
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    with pytest.raises(InputError, match="other data"):
        spec_index.restored_spec(index, short)


def test_the_index_is_written_from_the_grids_and_else_from_itself(index, tmp_path, monkeypatch):
    """On a part of the results: those of the microworld follow from the grid, others are kept."""
    folder = tmp_path / "results/laptop/03_frequency"
    folder.mkdir(parents=True)
    for path in (ROOT / "results/laptop/03_frequency").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    told = []
    with pytest.raises(InputError, match="have no spec"):
        spec_index.write_index(tmp_path, told.append)
    whole = [{"id": short} | entry for short, entry in index.entries.items()]
    (tmp_path / spec_index.INDEX).write_text("".join(json.dumps(e) + "\n" for e in whole))
    spec_index.write_index(tmp_path, told.append)
    part = spec_index.read_index(tmp_path)
    wanted = set(spec_index.reference_values(tmp_path).run)
    assert set(part.entries) == set(index.ancestors(sorted(wanted)))
    assert all(part.entries[short] == index.entries[short] for short in part.entries)
    assert any("from the earlier index" in line for line in told)


# --- what is behind something


@pytest.mark.parametrize("path", FIGURES, ids=lambda p: p.stem)
def test_every_figure_leads_to_runs_and_a_command(path, index):
    facts = provenance.result_provenance(ROOT, f"figures/{path.name}")
    note = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert facts["what"] == note["caption"] and bool(facts["runs"]) == bool(note["runs"])
    assert {r["run"] for r in facts["runs"]} <= set(note["runs"]) <= set(index.entries)
    assert all(path.stem.partition("-")[0] in command for command in facts["again"])
    assert bool(facts["again"]) == bool(facts["runs"])


def test_a_figure_without_runs_shows_none():
    notes = {
        p.stem: json.loads(p.with_suffix(".json").read_text(encoding="utf-8")) for p in FIGURES
    }
    # a benchmark's models, and a computation on made-up sentences
    assert {stem for stem, note in notes.items() if not note["runs"]} == {
        "12_zero_shot-negation-laptop-micro-five",
        "02_ordering-readings-laptop-micro",
    }


def test_a_line_of_a_table_is_the_mean_of_its_values(values):
    facts = provenance.result_provenance(ROOT, "results/laptop/02_ordering/table2.csv:5")
    line = (ROOT / "results/laptop/02_ordering/table2.csv").read_text().splitlines()[4]
    assert {r["run"] for r in facts["runs"]} == set(line.rsplit(",", 1)[1].split())
    numbers = [float(part.split(" ")[0]) for part in facts["values"].split(", ")]
    assert sum(numbers) / len(numbers) == pytest.approx(float(facts["what"].split()[-1]), rel=1e-4)


def test_a_claim_and_its_line_of_verdicts_lead_to_the_same_runs():
    lines = (ROOT / "results/laptop/verdicts.csv").read_text(encoding="utf-8").splitlines()
    number = next(
        i for i, line in enumerate(lines, 1) if line.startswith("K-order,") and ",micro," in line
    )
    by_line = provenance.result_provenance(ROOT, f"results/laptop/verdicts.csv:{number}")
    by_name = provenance.result_provenance(ROOT, "K-order")
    assert by_line["what"] == by_name["what"] and by_line["runs"]
    assert {r["run"] for r in by_line["runs"]} <= {r["run"] for r in by_name["runs"]}
    assert all("-p claim=K-order" in command for command in by_name["again"])


@pytest.mark.parametrize("table", ["trends", "transfer"])
def test_every_question_of_ours_leads_to_the_runs_it_compares(table):
    path = ROOT / f"results/laptop/17_dials/{table}.csv"
    frame = pd.read_csv(path)
    for line, row in enumerate(frame.itertuples(), 2):
        facts = provenance.result_provenance(ROOT, f"{path}:{line}")
        rows = {run["row"] for run in facts["runs"]}
        assert row.question in facts["what"] and row.verdict in facts["what"] and len(rows) > 1
        if " less " in row.comparison:
            assert rows == set(row.comparison.partition(": ")[2].split(" less "))
        assert facts["again"]


def test_what_was_found_on_fresh_seeds_leads_to_its_claim_or_run():
    claim = provenance.result_provenance(ROOT, "results/confirmed/claims.csv:2")
    assert claim["what"].startswith("D-original") and claim["on fresh seeds"]
    confirmed = pd.read_csv(ROOT / "results/confirmed/claims.csv")
    assert claim["verdicts"][0].startswith(f"{confirmed.verdict[0]} on {confirmed.corpus[0]}")
    fresh = plans()["dufter2020"].first_seed
    assert {run["seed"] for run in claim["runs"]} == set(range(fresh, fresh + confirmed.n_seeds[0]))
    assert "xlingual confirm 07 --corpus bible" in claim["again"]
    value = provenance.result_provenance(ROOT, "results/confirmed/07_laboratory-micro.csv:2")
    assert "fresh seed 200" in value["what"] and value["stage"] == "measure"
    with pytest.raises(InputError, match="no table of results"):
        provenance.result_provenance(ROOT, "results/confirmed/record.csv:2")


@pytest.mark.parametrize("claim", [c.id for c in published.claims()][::12])
def test_claims_lead_to_runs_where_they_were_tested(claim):
    facts = provenance.result_provenance(ROOT, claim)
    tested = [v for v in facts["verdicts"] if not v.startswith("not tested")]
    assert bool(facts["runs"]) or not tested


@pytest.mark.parametrize(
    "wrong",
    [
        "nothing",
        "figures/nothing.png",
        "results/laptop/02_ordering/table2.csv:1",
        "results/laptop/02_ordering/table2.csv:99999",
        "results/laptop/02_ordering/table2.csv:",
        "",
    ],
)
def test_what_is_nothing_of_ours_is_one_error(wrong):
    with pytest.raises(InputError):
        provenance.result_provenance(ROOT, wrong)


def test_a_reference_run_is_shown_and_made_again_without_its_store(index, tmp_path, capsys):
    short = next(
        s
        for s, entry in index.entries.items()
        if entry["spec"]["is"] == "tokenizer" and set(index.data([s]).values()) == {"generated"}
    )
    facts = provenance_of(short)
    assert facts["run_id"].startswith(short) and facts["stage"] == "tokenizer"
    with pytest.raises(SystemExit) as done:
        cli.main(["runs", "make", short, "--store", str(tmp_path / "runs")])
    assert done.value.code == 0, capsys.readouterr().err
    spec = spec_index.restored_spec(index, short)
    assert Store(tmp_path / "runs").path(spec).is_dir()
    run([spec], Store(tmp_path / "runs"), progress=False)


def test_a_claim_says_what_is_planned_on_fresh_seeds():
    facts = provenance.result_provenance(ROOT, "D-no-parallel")
    (planned,) = [c for c in plans()["dufter2020"].claims if c.id == "D-no-parallel"]
    bible, micro = facts["on fresh seeds"]
    assert f"{planned.n} seeds, power" in bible
    assert "more than 20 seeds" in micro


def test_a_line_is_named_by_words_that_it_alone_holds():
    table = "results/laptop/07_laboratory/table1.csv"
    lines = (ROOT / table).read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, text in enumerate(lines, 1) if "3 inv-order,µ,bible" in text]
    by_words = provenance.result_provenance(ROOT, f"{table}:inv-order,µ bible")
    assert by_words == provenance.result_provenance(ROOT, f"{table}:{number}")


@pytest.mark.parametrize("words", ["", "inv-order"])
def test_several_lines_are_listed_with_their_numbers(words):
    table = "results/laptop/07_laboratory/table1.csv"
    lines = (ROOT / table).read_text(encoding="utf-8").splitlines()
    first = next(n for n, text in enumerate(lines[1:], 2) if words in text)
    with pytest.raises(InputError) as refused:
        provenance.result_provenance(ROOT, f"{table}:{words}")
    assert f"\n{first}: {lines[first - 1][:20]}" in str(refused.value)


def test_words_that_no_line_holds_are_refused():
    with pytest.raises(InputError, match="klingon"):
        provenance.result_provenance(ROOT, "results/laptop/07_laboratory/table1.csv:klingon")


# --- a user's own results


@pytest.fixture
def yours(tmp_path):
    """Folders of a user who ran the laboratory, with runs of their own: every value is seven."""
    folder = tmp_path / "yours/results/laptop/07_laboratory"
    shutil.copytree(ROOT / "results/laptop/07_laboratory", folder)
    reference = pd.read_csv(folder / "seeds.csv", dtype=str, keep_default_na=False)
    own = reference.assign(value="7", run_id="f00" + reference.run_id.str[3:])
    own.to_csv(folder / "seeds.csv", index=False)
    shutil.copy(ROOT / "results/laptop/verdicts.csv", folder.parent)
    return tmp_path / "yours"


def own_runs(facts) -> set[bool]:
    return {run["run"].startswith("f00") for run in facts["runs"]}


def test_a_table_of_ones_own_leads_to_ones_own_values(yours):
    table = yours / "results/laptop/07_laboratory/table1.csv"
    facts = provenance.result_provenance(ROOT, f"{table}:2")
    assert {part.split(" ")[0] for part in facts["values"].split(", ")} == {"7"}
    assert own_runs(facts) == {True}


def test_a_table_of_another_reading_leads_to_the_values_of_that_reading(yours):
    folder = yours / "results/laptop/07_laboratory"
    shutil.copy(folder / "table1.csv", folder / "table1-released.csv")
    released = pd.read_csv(folder / "seeds.csv", dtype=str, keep_default_na=False).assign(value="8")
    released.to_csv(folder / "seeds-released.csv", index=False)
    facts = provenance.result_provenance(ROOT, f"{folder / 'table1-released.csv'}:2")
    assert {part.split(" ")[0] for part in facts["values"].split(", ")} == {"8"}


def test_a_table_without_values_by_seed_is_refused(yours):
    table = yours / "results/laptop/07_laboratory/table1.csv"
    (table.parent / "seeds.csv").unlink()
    with pytest.raises(InputError, match="seeds"):
        provenance.result_provenance(ROOT, f"{table}:2")


def test_a_figure_of_ones_own_leads_to_ones_own_runs(yours):
    figure = yours / "figures/07_laboratory-matched-laptop-bible.png"
    figure.parent.mkdir()
    shutil.copy(ROOT / "figures" / figure.name, figure)
    note = json.loads((ROOT / "figures" / figure.name).with_suffix(".json").read_text())
    note["runs"] = ["f00" + run[3:] for run in note["runs"]]
    figure.with_suffix(".json").write_text(json.dumps(note))
    facts = provenance.result_provenance(ROOT, str(figure))
    assert own_runs(facts) == {True} and {run["corpus"] for run in facts["runs"]} == {"bible"}
    shutil.rmtree(yours / "results")
    with pytest.raises(InputError, match="07_laboratory"):
        provenance.result_provenance(ROOT, str(figure))


def test_a_verdict_of_ones_own_leads_to_ones_own_verdicts_and_runs(yours):
    path = yours / "results/laptop/verdicts.csv"
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    mine = frame[(frame.claim == "D-original") & (frame.corpus == "micro")]
    mine.assign(verdict="contradicted", effect="7").to_csv(path, index=False)
    facts = provenance.result_provenance(ROOT, f"{path}:2")
    (verdict,) = facts["verdicts"]
    assert verdict.startswith("contradicted on micro: 7 ") and own_runs(facts) == {True}
    assert "on fresh seeds" not in facts


def test_ones_own_store_says_what_its_runs_are(yours, tmp_path):
    spec = TokenizerSpec(CorpusSpec("micro/en", parameters=(("sentences", 20),)), 200)
    store = Store(tmp_path / "runs")
    run([spec], store, progress=False)
    facts = provenance_of(run_id(spec)[:9], str(store.root))
    assert facts["run_id"] == run_id(spec) and list(facts["reads"].values()) == ["corpus"]

    folder = yours / "results/laptop/07_laboratory"
    frame = pd.read_csv(folder / "seeds.csv", dtype=str, keep_default_na=False)
    frame.assign(run_id=run_id(spec)).to_csv(folder / "seeds.csv", index=False)
    known = provenance_of(f"{folder}/table1.csv:2", str(store.root))
    assert {r["stage"] for r in known["runs"]} == {"tokenizer"} and known["data"]
    unknown = provenance.result_provenance(ROOT, f"{folder}/table1.csv:2")
    assert "not found" in unknown and not unknown["data"]


def test_a_store_that_is_named_and_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="no store"):
        provenance_of("K-order", str(tmp_path / "none"))
