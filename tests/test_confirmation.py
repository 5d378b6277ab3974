"""The confirmatory study: its plan is fixed, its seeds are fresh, and its verdicts follow from both."""

import hashlib
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from xlingual_nb import cli
from xlingual_nb.errors import InputError
from xlingual_nb.measures.statistics import power
from xlingual_nb.papers import published
from xlingual_nb.report import confirmation, confirmation_plan, spec_index, tables
from xlingual_nb.report.confirmation_plan import claim_to_test, plans, read_plan
from xlingual_nb.report.confirmatory_tables import CONFIRMED_FOLDER
from xlingual_nb.runs.store import Store

ROOT = Path(__file__).resolve().parents[1]
PLANS = sorted(ROOT.glob("xlingual_nb/papers/*/plan.toml"))

# Of each plan as it was fixed, before the first of its runs. `cut` alone may be added.
FIXED = {
    "dufter2020": "b489a9dbab5b2a2c",
    "k2020": "e044f085b7d38cb2",
    "liu2020a": "9dac147fd707c04c",
    "liu2020b": "5c5f95edc0be79ae",
    "wu2019": "5612ddd61cf250b6",
}


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.parent.name)
def test_a_plan_stays_as_it_was_fixed(path):
    text = re.sub(r', cut = "[^"]*"', "", path.read_text(encoding="utf-8"))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == FIXED[path.parent.name]


def test_every_paper_has_a_plan_for_each_of_its_own_claims():
    """On every corpus that a plan knows a claim is planned, or left out with a reason. A corpus that
    was first studied after the plans were fixed is in none.
    """
    judged = pd.read_csv(ROOT / "results/laptop/verdicts.csv")
    own = judged[judged.whose == "paper"]
    assert set(plans()) == set(published.papers())
    for paper, plan in plans().items():
        listed = {(entry.id, entry.corpus) for entry in (*plan.claims, *plan.left_out)}
        known = own[(own.paper == paper) & own.corpus.isin({corpus for _, corpus in listed})]
        assert len(known) and set(zip(known.claim, known.corpus)) <= listed


def test_no_exploratory_table_has_used_a_fresh_seed():
    first = min(plan.first_seed for plan in plans().values())
    used = [pd.read_csv(path).seed.max() for path in ROOT.glob("results/*/*/seeds*.csv")]
    assert len(used) > 10 and max(used) < first


def test_a_planned_test_is_the_one_of_the_registry(monkeypatch):
    planned = [(plan, entry) for plan in plans().values() for entry in plan.claims]
    assert len(planned) > 60
    # a claim that was cut is not tested again, so that its test may change
    assert all(claim_to_test(entry).id == entry.id for _, entry in planned if not entry.cut)
    changed = replace(planned[0][1], tests="0" * 12)
    with pytest.raises(InputError, match="not the one that was planned"):
        claim_to_test(changed)
    of_a_test_that_is_gone = replace(planned[0][1], matched=(99,), tests="0" * 12)
    with pytest.raises(InputError, match="not the one that was planned"):
        claim_to_test(of_a_test_that_is_gone)


def test_an_entry_of_a_plan_that_is_misspelt_is_named(tmp_path):
    text = PLANS[0].read_text(encoding="utf-8").replace("corpus =", "corpsu =", 1)
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"plan\.toml: .*corpsu"):
        read_plan(path)


@pytest.mark.ci
def test_the_plans_follow_from_the_exploratory_values():
    home = ROOT / "results/laptop"
    kept = {
        paper: replace(plan, claims=tuple(replace(c, cut="") for c in plan.claims))
        for paper, plan in plans().items()
    }
    made = confirmation_plan.make_plans(home, "2026-11-28")
    same = [paper for paper in kept if made[paper].values == kept[paper].values]
    # of the others the exploratory study has more values than when the plans were fixed
    assert same == ["dufter2020", "liu2020a"]
    for paper in same:
        # reasons that no plan is made for a claim are told in other words by now
        left_out = [
            [(entry.id, entry.corpus) for entry in plan.left_out]
            for plan in (made[paper], kept[paper])
        ]
        assert left_out[0] == left_out[1]
        assert replace(made[paper], left_out=()) == replace(kept[paper], left_out=())


@pytest.mark.parametrize("n, effect, sds", [(5, 3.0, (1.0, 0.5)), (12, 1.2, (1.0, 1.0))])
def test_the_power_of_a_planned_test_is_what_simulation_gives(n, effect, sds):
    rng = np.random.default_rng(n)
    level = 0.002  # so far out in the tail Welch's degrees of freedom are a rough guide
    first, second = (
        rng.normal(mean, sd, (20_000, n)) for mean, sd in zip((effect, 0.0), sds, strict=True)
    )
    p = stats.ttest_ind(first, second, axis=1, equal_var=False, alternative="greater").pvalue
    assert (p < level).mean() == pytest.approx(power(effect, sds, [1, 1], n, level), abs=0.06)


@pytest.mark.parametrize(
    "words, message",
    [
        (("07",), "name the corpus as well"),
        (("07", "--corpus", "wiki"), "is in no plan"),
        (("--seeds", "200-201"), "name it"),
        (("07", "--corpus", "bible", "--keep"), "leave out NB"),
    ],
)
def test_a_table_that_is_not_planned_is_an_error_of_one_line(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["confirm", *words])
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_without_texts_the_tables_are_listed_with_what_is_written(tmp_path, monkeypatch):
    """What runs are left of a written table is known; of another their ids need the text."""
    (tmp_path / "settings.ini").write_text("")
    (tmp_path / "nbs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    written = tmp_path / CONFIRMED_FOLDER / "08_knn_replace-bible.csv"
    written.parent.mkdir(parents=True)
    shutil.copy(ROOT / CONFIRMED_FOLDER / written.name, written)
    told = []
    frame = confirmation.progress_table(Store(tmp_path / "runs"), "bible", told.append)
    by_notebook = frame.set_index("notebook")
    assert by_notebook.loc["08_knn_replace", ["written", "runs left"]].tolist() == ["yes", 0]
    assert by_notebook.loc["07_laboratory", ["written", "runs left"]].tolist() == ["", ""]
    assert (frame.claims > 0).all() and told

    confirmation.record_progress(Store(tmp_path / "runs"), "bible", told.append)
    assert confirmation.read_record(tmp_path).empty


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("results/confirmed/*-*.csv")), ids=lambda p: p.stem
)
def test_every_value_of_a_full_table_is_of_a_fresh_seed_and_says_what_made_it(path):
    values = tables.read_seeds(path)
    firsts = values.paper.map({paper: plan.first_seed for paper, plan in plans().items()})
    firsts = firsts.fillna(firsts.min())  # tables of no paper, made beside the paper's
    assert (values.seed >= firsts).all() and (
        values.seed < firsts + confirmation_plan.MAX_SEEDS
    ).all()
    assert values.made.str.fullmatch("[0-9a-f]{12}").all()
    index = spec_index.read_index(ROOT)
    assert set(values.run_id.str[: spec_index.SHORT]) <= set(index.entries)
