"""Notebook 13: a cell for every label that a claim names, runs that differ in what is trained,
layers by height.
"""

from collections import Counter
from dataclasses import replace

import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import layers, zero_shot
from xlingual_nb.experiments.layers import (
    FEAT,
    FIGURES,
    LANGUAGE_ID,
    list_table_entries,
    frozen_layers,
    grid,
    langid_records,
    layer_labels,
    layers_config,
)
from xlingual_nb.experiments.liu2020_shifts import shift_model_spec
from xlingual_nb.experiments.scales import joint_config
from xlingual_nb.experiments.study import observe, unique_runs
from xlingual_nb.papers.published import claims, floor_names, published
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.stages import read_measures
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.baselines import FLOORS
from xlingual_nb.tasks.recipes import Bag, Feat, Tuning
from xlingual_nb.text.records import read_records

HERE = list(filter(layers.belongs_here, claims("wu2019")))
GRIDS = {scale: list_table_entries(scale, "micro", seeds=1) for scale in ("laptop", "paper")}
BY_ADDRESS = {
    scale: {(c.table, c.row, c.column): c for c in found} for scale, found in GRIDS.items()
}
SMALL = layers_config("smoke")
ELSEWHERE = {"W-freeze-weak"}  # names languages of the paper's corpora
JUDGED = [
    (scale, c) for scale in GRIDS for c in HERE if scale in c.scales and c.id not in ELSEWHERE
]


# ---- cells and labels


@pytest.mark.parametrize("scale, claim", JUDGED, ids=lambda x: getattr(x, "id", x))
def test_every_label_that_a_claim_names_is_in_the_grid(scale, claim):
    known = BY_ADDRESS[scale]
    for test in claim.tests:
        rows = {*test.plus, *(test.minus if test.minus != "floor" else ())}
        assert {(test.table, row, test.column) for row in rows} <= known.keys()
        wanted = rows if claim.alive is None else test.plus if test.minus == "floor" else ()
        for row in wanted:
            assert any(
                (test.table, floor, test.column) in known for floor in floor_names(claim.floor, row)
            ), row


def test_claims_of_both_figures_are_judged_here_and_no_others():
    assert {t.table for c in HERE for t in c.tests} == set(FIGURES) and len(HERE) == 13
    assert not set(HERE) & set(filter(zero_shot.belongs_here, claims("wu2019")))


def test_settings_and_columns_that_the_paper_prints_have_rows():
    printed = published("wu2019", "figure1")

    def kinds(rows):
        return {(row.split(" | ")[1], column) for row, column in rows}

    ours = [(row, column) for table, row, column in BY_ADDRESS["paper"] if table == "figure1"]
    assert kinds(zip(printed.row, printed.column)) <= kinds(ours)
    assert {
        ("en-xx | Lay 9 | mean", "Parsing LAS"),
        ("untrained, Feat | en | mean", "POS ACC"),
    } <= set(ours)


def test_layers_by_height():
    assert frozen_layers(12) == {"Lay 0": 0, "Lay 3": 3, "Lay 6": 6, "Lay 9": 9}
    assert frozen_layers(3) == {"Lay 0": 0, "Lay 3": 1, "Lay 6": 2}
    assert frozen_layers(6) == {"Lay 0": 0, "Lay 3": 2, "Lay 6": 3, "Lay 9": 4}
    assert layer_labels(3) == {"layer 0": 0, "layer 4": 1, "layer 8": 2, "layer 12": 3}
    assert (
        layer_labels(12) == {f"layer {n}": n for n in range(13)}
        and layer_labels(24)["layer 0.5"] == 1
    )
    for depth in range(1, 25):
        assert len(layer_labels(depth)) == depth + 1 and max(frozen_layers(depth).values()) <= depth


# ---- runs


def test_settings_differ_from_the_zero_shot_run_in_what_is_trained_alone():
    known, uppermost = BY_ADDRESS["laptop"], {"zero-shot": None, "Lay 0": 0, "Lay 3": 1, "Lay 6": 2}
    for told in zero_shot.TASKS.values():
        column = [*told.columns][-1]

        def one(label):
            return known["figure1", label, column].runs

        (zero,) = one("en-xx | zero-shot | mean")
        assert (
            zero.settings.freeze is None and zero.train.language == "en" and len(zero.tests) == 15
        )
        for setting, layer in uppermost.items():
            changed = replace(zero, settings=replace(zero.settings, freeze=layer))
            assert {one(f"en-{l} | {setting} | {l}") for l in ("en", "tr", "zh")} == {(changed,)}
        feat = replace(zero, settings=joint_config("laptop", "micro").layers.feat)
        assert one("en-xx | Feat | mean") == (feat,) and isinstance(feat.settings, Feat)
        bare = zero_shot.untrained_spec(zero.checkpoint)
        assert one("untrained | en | mean") == (replace(zero, checkpoint=bare),)
        assert one("untrained, Feat | en | de") == (replace(feat, checkpoint=bare),)


def test_zero_shot_trains_all_layers_whatever_a_recipe_freezes():
    frozen = SMALL.tasks.tuning | {"pos": replace(SMALL.tasks.tuning["pos"], freeze=0)}
    sizes = replace(SMALL, tasks=SMALL.tasks._replace(tuning=frozen))
    rows = {c.row: c.runs[0] for c in layers.freezing_entries(sizes, "pos", 0)}
    ordinary = {c.row: c.runs[0] for c in layers.freezing_entries(SMALL, "pos", 0)}
    assert rows == ordinary
    assert rows["en-xx | zero-shot | mean"].settings.freeze is None


def test_what_trains_all_layers_is_shared_with_notebook_12():
    theirs = {(c.row, c.column): c for c in zero_shot.list_table_entries("laptop", seeds=1)}
    shared = [
        c
        for c in GRIDS["laptop"]
        if c.table == "figure1" and ("zero-shot" in c.row or "untrained |" in c.row)
    ]
    assert len(shared) == 2 * 5 * 18 and all(c.runs == theirs[c.row, c.column].runs for c in shared)
    floors = [c for c in GRIDS["laptop"] if c.row.split(" | ")[0] in FLOORS]
    assert len(floors) == len(FLOORS) * 18 and all(
        c.runs == theirs[c.row, c.column].runs for c in floors
    )


def test_the_runs_of_one_model():
    """Three depths, Feat, and Feat on the untrained encoder, of five tasks; what 12 has of them is
    not made again.
    """
    made, known = (
        grid("laptop", seeds=1),
        unique_runs(zero_shot.list_table_entries("laptop", seeds=1)),
    )
    assert Counter(r.stage for r in made) == dict(
        sentences=14, tuned_tags=14, parsing=7, nli_floors=1, bags=4, langid=2
    )
    assert len([r for r in made if r not in known]) == 5 * 5 + 2
    assert grid("laptop", seeds=1, only="2") == [r for r in made if r.stage == "langid"]
    assert len(grid("laptop")) == 3 * (len(made) - 5) + 5, (
        "what needs no encoder is the same for three models"
    )


def test_language_is_asked_of_every_layer_of_both_encoders():
    rows = {c.row: c for c in GRIDS["laptop"] if c.table == "figure2"}
    assert len(rows) == 4 * (1 + 2 * 16) and {c.column for c in rows.values()} == {LANGUAGE_ID}
    for name, layer in layer_labels(3).items():
        (run,), (bare,) = rows[name].runs, rows[f"untrained | {name}"].runs
        assert run.checkpoint.training.steps > 0 and bare.checkpoint == zero_shot.untrained_spec(
            run.checkpoint
        )
        assert replace(bare, checkpoint=run.checkpoint) == run and run.settings.layers == ()
        assert rows[f"{name} | th"].metric == f"by_language all {layer} th" and rows[
            f"majority | {name}"
        ].runs == (run,)


def test_languages_are_told_apart_among_all_that_the_model_reads():
    few = layers_config("laptop", languages="es")
    assert (
        langid_records(few, "train")
        == langid_records(layers_config("laptop"), "train")
        != langid_records(few, "test")
    )
    assert len(langid_records(few, "train").records.source.removeprefix("micro/").split("+")) == 15
    asked = {
        c.row
        for c in list_table_entries("laptop", seeds=1, languages="es", only="1")
        if c.row.startswith("en-")
    }
    assert {row.split(" | ")[2] for row in asked} == {
        "en",
        "es",
        "mean",
        "mean -en",
        "mean -en -zh",
    }


# ---- sizes


def test_at_paper_scale_the_papers_values():
    """W section 5.2: two layers as wide as the encoder, Adam at 1e-3, 32 texts a batch, until the
    rate is below 1e-5.
    """
    sizes = layers_config("paper", "micro")
    assert sizes.layers.feat == Feat(2, 768, batch=32, learning_rate=1e-3, least=1e-5)
    assert sizes.layers.feat.hidden == sizes.shifts.base.shape.hidden
    assert sizes.layers.bag == Bag(batch=32, learning_rate=1e-3, least=1e-5)
    assert 1e-3 / 2**6 > 1e-5 > 1e-3 / 2**7, "seven halvings end it"


def test_every_scale_has_its_grid():
    for scale, depth in (("gpu", 6), ("paper", 12)):
        asked = list_table_entries(scale, "micro", seeds=1, only="2")
        assert {c.runs[0].checkpoint.shape.layers for c in asked} == {depth} and len(asked) == (
            depth + 1
        ) * 33


@pytest.mark.ci
def test_a_laptop_study_takes_an_evening(tmp_path):
    """Beside what notebook 12 has made."""
    told = plan(grid("laptop"), Store(tmp_path)).set_index("stage")
    assert 0 < told.loc["all", "hours here"] < 4 and told.loc["langid", "runs"] == 6


def test_sizes_of_ones_own():
    own = {
        "study": "liu2020",
        "smoke": {"micro-wide": {"like": "smoke.micro", "layers": {"feat": {"hidden": 12}}}},
    }
    sizes = layers_config("smoke", "micro-wide", own=own)
    assert (
        sizes.layers.feat == replace(SMALL.layers.feat, hidden=12)
        and sizes.layers.bag == SMALL.layers.bag
    )
    by_row = {
        c.row: c
        for c in list_table_entries("smoke", "micro-wide", own=own, only="1")
        if c.column == "POS ACC"
    }
    assert by_row["en-el | Feat | el"].runs[0].settings.hidden == 12
    assert isinstance(by_row["en-el | zero-shot | el"].runs[0].settings, Tuning)


def test_figure_1_may_have_a_recipe_of_its_own_for_all_layers():
    own = {
        "study": "liu2020",
        "smoke": {
            "micro-own": {
                "like": "smoke.micro",
                "layers": {"tuning": {"pos": {"epochs": 2, "learning_rate": 2e-4}}},
            }
        },
    }
    asked = list_table_entries("smoke", "micro-own", own=own, only="1")
    recipes = layers_config("smoke", "micro-own", own=own).tasks.tuning
    for task, table in zero_shot.TASKS.items():
        of_setting = {
            c.row.split(" | ")[1]: c.runs[0].settings
            for c in asked
            if c.row.startswith("en-el | ") and c.column in table.columns
        }
        recipe = Tuning(epochs=2, learning_rate=2e-4) if task == "pos" else recipes[task]
        assert of_setting["zero-shot"] == replace(recipe, freeze=None)
        for name, layer in frozen_layers(2).items():
            assert of_setting[name] == replace(recipe, freeze=layer)


def test_a_claim_needs_few_runs_of_the_figure():
    asked = list_table_entries("laptop", "micro", seeds=2, claim="W-freeze-documents")
    assert {c.column for c in asked} == {"Documents ACC"}
    assert {c.row for c in asked} >= {"en-xx | zero-shot | mean", "en-xx | Lay 6 | mean"}
    trained = {
        run.settings
        for c in asked
        for run in c.runs
        if run.stage == "sentences" and run.checkpoint.training.steps
    }
    # all layers, and those above the second of three
    assert {settings.freeze for settings in trained} == {None, 2}
    with pytest.raises(InputError, match="K-order compares no row of this study"):
        list_table_entries("laptop", "micro", claim="K-order")


# ---- what a run leaves


@pytest.fixture(scope="module")
def store(shared_store):
    run(grid("smoke"), shared_store, Inline(), progress=False)
    return shared_store


@pytest.mark.slow  # the first to ask makes a smoke study
def test_a_smoke_run_holds_what_the_cells_draw(store):
    wanted = list_table_entries("smoke")
    found = observe(wanted, store, "micro").set_index(["table", "row", "column"]).value
    assert len(found) == len(wanted) and found.notna().all()
    for task, told in zero_shot.TASKS.items():
        column, name = [*told.columns.items()][-1]
        zero = zero_shot.fine_tuned_spec(
            SMALL, task, shift_model_spec(SMALL, 0), "en", ("en", "el", "zh")
        )
        lays = {
            setting: replace(zero.settings, freeze=layer)
            for setting, layer in frozen_layers(2).items()
        }
        for setting, settings in ({FEAT: SMALL.layers.feat} | lays).items():
            held = read_measures(store.path(replace(zero, settings=settings)))
            assert found["figure1", f"en-el | {setting} | el", column] == 100 * held[f"{name} el"]
            mean = sum(held[f"{name} {l}"] for l in ("en", "el", "zh")) / 3
            assert found["figure1", f"en-xx | {setting} | mean", column] == pytest.approx(
                100 * mean
            )


@pytest.mark.slow  # the first to ask makes a smoke study
def test_of_as_many_texts_in_each_language_the_whole_is_the_mean_and_chance_a_share(store):
    found = observe(list_table_entries("smoke", only="2"), store, "micro").set_index("row").value
    said = Counter(
        r["label"] for r in read_records(store.path(langid_records(SMALL, "test").records))
    )
    assert said == dict.fromkeys(("en", "el", "zh"), SMALL.layers.langid["test"].size)
    for name in layer_labels(2):
        assert found[f"majority | {name}"] == pytest.approx(100 / 3)
        for label in (name, f"untrained | {name}"):
            assert found[label] == pytest.approx(found[[f"{label} | {l}" for l in said]].mean())


# ---- what is refused


def test_what_the_study_refuses(monkeypatch):
    with pytest.raises(InputError, match="does not read 'fr': choose among el, zh"):
        layers_config("smoke", languages="fr")
    with pytest.raises(
        InputError, match="only='3': there is no '3' here; choose all, or some of 1, 2"
    ):
        list_table_entries("smoke", only="3")
    with pytest.raises(InputError, match="corpus 'wiki' does not exist at scale laptop"):
        layers_config("laptop", "wiki")
    own = {
        "study": "liu2020",
        "smoke": {"micro-odd": {"like": "smoke.micro", "layers": {"feat": {"least": 1.0}}}},
    }
    with pytest.raises(InputError, match="least=1.0, learning_rate=0.001: training ends below"):
        layers_config("smoke", "micro-odd", own=own)
    for less, said in (
        (None, "smoke.micro says nothing of layers: add `layers` to it, or choose micro"),
        (SMALL.layers._replace(langid={}), "smoke.micro.layers has no langid.train: add it"),
    ):
        with monkeypatch.context() as around:
            around.setattr(
                zero_shot, "zero_shot_config", lambda *given: replace(SMALL, layers=less)
            )
            with pytest.raises(InputError, match=f"^{said}$"):
                layers_config("smoke")
