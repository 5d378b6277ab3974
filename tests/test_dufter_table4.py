"""One model of many languages (D Table 4): its cells, its claims, and anyone's model in its
place.
"""

import pytest
from scipy import stats

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import dufter_table4, ordering
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.experiments.study import observe, unique_runs
from xlingual_nb.models.checkpoints import tiny_checkpoint
from xlingual_nb.papers import published as ledger
from xlingual_nb.report import claim_tests
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store

PRINTED = ledger.published("dufter2020", "table4").pivot(
    index="row", columns="column", values="value"
)
SAID = [
    "w5 w6 w7 w8",
    "w9 w10 w11 w12 w13",
    "w14 w15 w16 w17",
    "w18 w19 w20 w21 w22 w23",
]  # a tiny model's words


def of_table_4(scale, **more):
    return [
        c
        for c in ordering.list_table_entries(scale, "micro", 1, **more)
        if c.table == dufter_table4.TABLE
    ]


@pytest.mark.parametrize("scale", ["laptop", "gpu", "paper"])
def test_the_microworld_has_all_languages_of_the_table(scale):
    cells = of_table_4(scale)
    assert {(r, c) for r in PRINTED.index for c in PRINTED} <= {(c.row, c.column) for c in cells}
    (trained,) = {run_id(r.checkpoint) for c in cells for r in c.runs if c.row == "tr"}
    spec = next(r.checkpoint for c in cells for r in c.runs if c.row == "tr")
    sizes = bilingual_config(scale, "micro")
    assert (
        run_id(spec) == trained
        and spec.training.steps == (sizes.many or sizes.base.training).steps * 15 // 2
    )
    assert [l.name for l in spec.languages] == list(
        dufter_table4.table4_languages(bilingual_config(scale, "micro"))
    )


def test_each_language_is_read_from_a_text_of_its_own_and_compared_in_the_same():
    spec = next(r for c in of_table_4("laptop") for r in c.runs if r.stage == "order")
    seeds = {dict(l.corpus.parameters)["seed"] for l in spec.checkpoint.languages}
    assert len(seeds) == 15 and all(
        "seed" not in dict(t.parameters) and t.part == "dev" for t in spec.texts
    )


@pytest.mark.parametrize(
    "claim",
    [c for c in ledger.claims("dufter2020") if ordering.belongs_here(c)],
    ids=lambda c: c.id,
)
def test_every_row_that_a_claim_names_is_in_the_grid(claim):
    for scale in claim.scales:
        seen = {(c.row, c.column) for c in of_table_4(scale)}
        for test in claim.tests:
            assert {
                (row, column) for row in test.plus for column in (test.column, test.minus_column)
            } <= seen
            floors = {
                f for row in claim.alive for f in claim_tests.baseline_labels(claim, test, row)
            }
            assert floors and {(f, test.alive_column or test.column) for f in floors} <= seen


def test_other_languages_texts_and_readings_have_no_table_4():
    assert not of_table_4("smoke", reading="permute_released") and not of_table_4(
        "smoke", languages="es,hi,ru"
    )


def test_correlations_are_scipys_over_the_languages_alone():
    table = PRINTED.copy()
    table.loc["untrained | en"] = [9.0, 0.0]
    found = (
        dufter_table4.order_transfer_correlations(table)
        .set_index("with English")
        .astype({"r": float})
    )
    for english, rows in ((False, PRINTED.drop("en")), (True, PRINTED)):
        r = stats.pearsonr(rows[dufter_table4.TAU], rows[dufter_table4.XNLI])
        low, high = r.confidence_interval()
        assert found.loc[english, ["r", "from", "to"]].tolist() == pytest.approx(
            [r.statistic, low, high]
        )
        assert found.languages[english] == len(rows)
    assert dufter_table4.order_transfer_correlations(
        table.assign(**{dufter_table4.XNLI: 33.3})
    ).empty, "constant numbers have no correlation"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with XNLI in English, its copy, and another language that says all in
    reverse.
    """
    (tmp_path / "data/nli").mkdir(parents=True)
    pairs = [(a, b) for a in SAID for b in SAID if a != b]

    def turned(text):
        return " ".join(reversed(text.split()))

    for language, say in (("en", str), ("es", str), ("ur", turned)):
        lines = [f"{say(a)}\t{say(b)}\tneutral\n" for a, b in pairs]
        (tmp_path / f"data/nli/xnli.dev.{language}.tsv").write_text(
            "".join(lines), encoding="utf-8"
        )
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path / "data"))
    return tmp_path


def test_the_order_is_read_off_anyones_model(folder):
    tiny_checkpoint(folder / "mine")
    cells = dufter_table4.external_order_entries(str(folder / "mine"))
    assert {(c.paper, c.row, c.column) for c in cells} == {
        ("ours", l, s) for l in ("es", "ur") for s in dufter_table4.SCORES
    }
    store = Store(folder / "store")
    run(unique_runs(cells), store, progress=False)
    found = observe(cells, store, "xnli").pivot(index="row", columns="column", values="value")
    assert found.loc["es"].min() > 0.95 and found.loc["ur", "root"] < 0.9
    assert set(ordering.grid("smoke", "micro", checkpoint=str(folder / "mine"))) >= set(
        unique_runs(cells)
    )


def test_without_xnli_a_checkpoint_is_refused_in_one_line(monkeypatch):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    with pytest.raises(InputError, match="no XNLI to align"):
        dufter_table4.external_order_entries("anywhere")
