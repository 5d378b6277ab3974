"""Notebook 14: cells for every claim on shifts, runs that are what their rows say, and what is
refused.
"""

from dataclasses import replace

import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import (
    language_shift as shift,
    language_shift_common,
    language_shift_erasure,
    liu2020_shifts,
)
from xlingual_nb.experiments.language_shift import (
    FIGURE7,
    TABLE3,
    SHIFT,
    TABLE2,
    list_table_entries,
    grid,
)
from xlingual_nb.experiments.language_shift_common import FEW_SENTENCES, TRANSFER
from xlingual_nb.experiments.language_shift_erasure import BY_CLASS, IDENTITY, ERASURE
from xlingual_nb.experiments.liu2020_shifts import (
    MEAN,
    scale_layer,
    shift_study_config,
    shift_model_spec,
    translation_spec,
)
from xlingual_nb.experiments.study import observe
from xlingual_nb.measures.language_erasure import IdentityClassesSpec
from xlingual_nb.measures.shift_translation import ShiftSpec
from xlingual_nb.models.pretraining import PretrainSpec
from xlingual_nb.models.word_embeddings import EmbedSpec
from xlingual_nb.papers.published import OURS, claims, floor_names, published
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.stages import read_measures
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.shifted_nli import shifted_cost

ON_SHIFTS = list(filter(shift.belongs_here, claims("liu2020b")))
SIZES = shift_study_config("smoke", "micro")
LAPTOP = list_table_entries("laptop", "micro", seeds=1)


def test_every_claim_on_shifts_has_its_cells():
    there = {(c.table, c.row, c.column) for c in LAPTOP}
    assert len(ON_SHIFTS) >= 12 and {c.whose for c in ON_SHIFTS} == {"paper", OURS}
    for claim in ON_SHIFTS:
        for test in claim.tests:
            rows = {(row, test.column) for row in test.plus}
            if test.minus == "floor":
                rows |= {
                    (floor, test.column)
                    for row in test.plus
                    for floor in floor_names(test.floor or claim.floor, row)
                }
            else:
                rows |= {(row, test.minus_column or test.column) for row in test.minus}
            assert {(test.table, *at) for at in rows} <= there, claim.id


def test_only_so_many_sentences_are_turned_as_the_sizes_say():
    """All of the microworld's, some of XNLI's on real text at laptop, all of them at paper
    scale.
    """
    assert {
        scale_corpus: translation_spec(
            shift_study_config(*scale_corpus),
            shift_model_spec(shift_study_config(*scale_corpus), 0),
            "en-xx",
            "de",
        ).sentences
        for scale_corpus in (("laptop", "micro"), ("laptop", "running"), ("paper", "wiki"))
    } == {("laptop", "micro"): 0, ("laptop", "running"): 1000, ("paper", "wiki"): 0}


def test_tables_are_addressed_as_the_paper_prints_them():
    for table in (TABLE2, TABLE3, TRANSFER):
        printed = {(r.row, r.column) for r in published("liu2020b", table).itertuples()}
        ours = {(c.row, c.column) for c in LAPTOP if c.table == table}
        assert ours >= printed and (table == TRANSFER or ours == printed)
    assert {c.column for c in LAPTOP if c.table == TRANSFER} == {
        *published("liu2020b", TRANSFER).column
    }


def test_a_row_says_what_its_runs_are():
    targets = shift_study_config("laptop", "micro").shifts.targets
    tables = (SHIFT, TABLE2, TABLE3, FIGURE7, shift.FIGURE8)
    for cell in (c for c in LAPTOP if c.table in tables and c.column != "masked"):
        assert all(isinstance(run, ShiftSpec) for run in cell.runs)
        if cell.table != SHIFT:
            assert len(cell.runs) == 1
            continue
        first, kind, last = cell.row.split(" | ")
        kind, pair = (first, [kind, last]) if "-" not in first else (kind, first.split("-"))
        for spec in cell.runs:
            assert (spec.along if kind in ("orthogonal", "other") else "shift") == spec.along
            assert (kind == "untrained") == (spec.checkpoint.training.steps == 0)
            if spec.other:
                assert spec.other[0] not in spec.pair and spec.other[0] in targets
        if last == MEAN:
            assert {l for spec in cell.runs for l in spec.pair} == {"en", *targets} and len(
                cell.runs
            ) == len(targets)
        else:
            assert [spec.pair for spec in cell.runs] == [tuple(pair)]


def test_masked_tokens_are_asked_of_bert_and_of_word_vectors():
    found = {c.row: c.runs for c in LAPTOP if c.column == "masked"}
    targets = shift_study_config("laptop", "micro").shifts.targets
    for target in targets:
        for method, model in (("BERT", PretrainSpec), ("Word2Vec", EmbedSpec)):
            (spec,) = found[f"en-{target} | {method} | {target}"]
            assert spec.pair == ("en", target) and isinstance(spec.checkpoint, model)
    assert len(found) == 2 * len(targets)


def test_layers_stand_as_high_as_the_paper_s():
    assert [scale_layer(layer, 12) for layer in range(1, 13)] == [*range(1, 13)] and scale_layer(
        1, 3
    ) == 1
    (cell,) = [
        c
        for c in LAPTOP
        if (c.table, c.row, c.column) == (SHIFT, "en-de | alpha 1 | de", "BLEU-1 upper")
    ]
    assert (
        cell.metric({"layer 3 alpha 1 bleu": 7.0}) == 7.0
        and cell.metric({"layer 3 alpha 1 bleu": float("nan")}) == 0.0
    )
    assert cell.metric is shift.shift_metric(3, 1.0, "bleu")


def test_one_model_reads_all_languages_and_no_text_is_a_translation():
    (spec,) = {c.runs[0].checkpoint for c in LAPTOP if c.table in (TABLE2, FEW_SENTENCES)}
    assert isinstance(spec, PretrainSpec) and len(spec.languages) == 15
    assert len({dict(l.corpus.parameters)["seed"] for l in spec.languages}) == 15
    told = {
        text.parameters
        for c in LAPTOP
        for r in c.runs
        if isinstance(r, ShiftSpec)
        for text in r.texts
    }
    assert len(told) == 1 and "seed" not in dict(*told), (
        "what is turned says the same in every language"
    )


@pytest.mark.slow  # the first to ask makes a smoke study
def test_a_smoke_run_holds_what_the_cells_draw(shared_store):
    parts = TABLE2, TABLE3, FIGURE7, TRANSFER, IDENTITY, FEW_SENTENCES, BY_CLASS, ERASURE
    store, wanted = (
        shared_store,
        [c for c in list_table_entries("smoke", "micro") if "el" in c.row or c.table in parts],
    )
    run({r for c in wanted for r in c.runs}, store, Inline(), progress=False)
    found = observe(wanted, store, "micro").set_index(["table", "row", "column"]).value
    held = read_measures(
        store.path(translation_spec(SIZES, shift_model_spec(SIZES, 0), "en-xx", "el"))
    )
    assert (
        found[SHIFT, "en-el | alpha 2 | el", "converted"]
        == held["layer 2 alpha 2 converted"]
        == found[FIGURE7, "α 2", "layer 2"]
    )
    assert (
        found[TABLE2, "best BLEU-1", "en→el"] == held["best bleu"]
        and found[TABLE3, "|V|", "el"] == held["types target"]
    )
    assert found[SHIFT, "commonest | en | el", "gold"] == held["commonest gold"] and len(
        found
    ) == len(wanted)
    upper, whole = (
        read_measures(
            store.path(
                language_shift_common.shifted_nli_spec(
                    SIZES, shift_model_spec(SIZES, 0), frozen, 1, 0
                )
            )
        )
        for frozen in (1, 0)
    )
    assert (
        found[TRANSFER, "+ MDS", "el"] == 100 * upper["shift el accuracy"]
        and found[TRANSFER, "shifting weight", "zh"] == upper["shift zh weight"]
    )
    assert found[TRANSFER, "finetune all layers", "avg w/o en"] == pytest.approx(
        50 * (whole["plain el"] + whole["plain zh"])
    )
    names = read_measures(
        store.path(language_shift_erasure.identity_spec(SIZES, shift_model_spec(SIZES, 0)))
    )
    assert found[IDENTITY, "centred", "Retrieval ρ"] == pytest.approx(
        (names["layer 1 centred retrieval el"] + names["layer 1 centred retrieval zh"]) / 2
    )
    assert found[IDENTITY, "chance", "Language id"] == pytest.approx(1 / 3)
    classes = read_measures(
        store.path(
            IdentityClassesSpec(
                language_shift_erasure.identity_spec(SIZES, shift_model_spec(SIZES, 0))
            )
        )
    )
    assert found[BY_CLASS, "whitened", "Noun"] == pytest.approx(
        (classes["layer 1 whitened el Noun"] + classes["layer 1 whitened zh Noun"]) / 2
    )
    tasks = {
        task: read_measures(
            store.path(language_shift_erasure.erasure_spec(SIZES, shift_model_spec(SIZES, 0), task))
        )
        for task in ("nli", "ner")
    }
    assert found[ERASURE, "shifted aside", "NER F1"] == pytest.approx(
        (tasks["ner"]["shifted aside score el"] + tasks["ner"]["shifted aside score zh"]) / 2
    )
    assert found[ERASURE, "whitened", "NLI ACC en"] == tasks["nli"]["whitened score en"] and found[
        ERASURE, "chance", "Language id, nli"
    ] == pytest.approx(1 / 3)
    few = [
        read_measures(
            store.path(
                language_shift_common.few_sentence_shift_spec(
                    SIZES, shift_model_spec(SIZES, 0), t, 10, False
                )
            )
        )
        for t in ("el", "zh")
    ]
    assert found[
        FEW_SENTENCES, language_shift_common.few_sentence_label(10, False), "BLEU-1"
    ] == pytest.approx(sum(f["layer 2 alpha 1 bleu"] for f in few) / 2)


def test_rows_of_table_4_are_fine_tuned_as_they_say():
    rows = {c.row: c.runs[0] for c in LAPTOP if c.table == TRANSFER}
    upper, whole = rows["finetune last 6 layers"], rows["finetune all layers"]
    assert (upper.settings.frozen, upper.settings.frozen_layers, upper.layer) == (
        "embeddings",
        2,
        2,
    )
    assert (whole.settings.frozen, whole.settings.frozen_layers, whole.layer) == ("nothing", 0, 2)
    assert (
        rows["+ MDS"] == rows["+ orthogonal"] == upper
        and rows["finetune all layers + MDS"] == whole
        and rows["untrained"].checkpoint.training.steps == 0
    )
    assert [test.language for _, test in upper.tests] == [
        c for c in published("liu2020b", TRANSFER).column.unique() if len(c) == 2
    ]
    assert (
        all({dev.records.part, test.records.part} == {"dev", "test"} for dev, test in upper.tests)
        and upper.train.language == "en"
    )


def test_means_of_few_sentences_are_of_text_that_nothing_else_reads():
    specs = {c.row: c.runs for c in LAPTOP if c.table == FEW_SENTENCES}
    seeds = {
        row: [dict(text.parameters)["seed"] for text in runs[0].means]
        for row, runs in specs.items()
    }
    assert (
        all((a == b) == (" not " not in row) for row, (a, b) in seeds.items()) and len(specs) == 12
    )
    assert {spec.estimated for runs in specs.values() for spec in runs} == {1, 3, 10, 30, 100, 1000}
    assert all(
        max(shift_study_config("laptop").shifts.few) == dict(text.parameters)["sentences"]
        for runs in specs.values()
        for s in runs
        for text in s.means
    )


@pytest.mark.ci
def test_a_laptop_study_takes_less_than_three_hours(tmp_path):
    told = plan(grid("laptop", "micro"), Store(tmp_path))
    assert 0 < told.set_index("stage").loc["all", "hours here"] < 3


def test_what_the_study_refuses(monkeypatch):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)  # with data, lower case is looked at as well
    with pytest.raises(
        InputError, match="the model of shifts does not read 'fr': choose among el, zh"
    ):
        shift_study_config("smoke", "micro", languages="fr")
    with pytest.raises(InputError, match="laptop.fake: .* wants the name 'books' of fr"):
        shift_study_config("laptop", "fake")
    asked = shift_study_config("laptop", "micro", languages="es,hi")
    assert (
        asked.shifts.targets == asked.shifts.transfer == ("es", "hi")
        and asked.label == "micro-es-hi"
    )
    assert shift_model_spec(asked, 0) == shift_model_spec(
        shift_study_config("laptop", "micro"), 0
    ), "the model reads what it reads"
    one = list_table_entries("laptop", "micro", 1, languages="es")
    assert not any("other" in c.row for c in one) and {c.paper for c in one} == {"liu2020b"}
    monkeypatch.setattr(liu2020_shifts, "study_config", lambda *given: replace(SIZES, shifts=None))
    with pytest.raises(
        InputError,
        match="^smoke.micro says nothing of shifts: add `shifts` to it, or choose micro$",
    ):
        shift_study_config("smoke", "micro")


def test_bad_input_is_one_line_before_anything_runs(tmp_path, monkeypatch):
    """A head, a layer and whoever is asked on somebody's model are refused in test_language_shift_on_real_text."""

    def refused(corpus="micro", **how):
        with pytest.raises(InputError) as caught:
            grid("smoke", corpus, **how)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert refused(languages="en") == "nothing to turn en into: name another language than that"
    assert "nowhere is no folder: name one" in refused(checkpoint="nowhere")
    own = tmp_path / "own.toml"

    def with_text(said):
        own.write_text(
            f'study = "liu2020"\n[smoke.micro-mine]\nlike = "smoke.micro"\ntext.dev = '
            f'{{ {said}, part = "dev", vocabulary = 128 }}\n'
        )

    with_text('source = "micro/{language}", sentences = 1')
    assert refused("micro-mine", own=own).startswith(
        "the text of en that is turned has fewer than 20 words: a mean of that says nothing"
    )
    with_text('source = "micro/el", sentences = 20')
    monkeypatch.setattr(liu2020_shifts, "script_transforms", lambda language: ())
    assert (
        refused("micro-mine", own=own)
        == "en and el have the same text: give two languages, or each its own"
    )
    spec = translation_spec(SIZES, shift_model_spec(SIZES, 0), "en-xx", "el")
    with pytest.raises(InputError, match="^layer 3 is not there: choose 0 .the embeddings. to 2$"):
        replace(spec, layers=(3,))


def test_every_scale_has_its_grid(monkeypatch):
    """GPU and paper too; on Wikipedia there is no gold, nor what needs it, and what is turned is
    XNLI.
    """
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    grids = [grid(scale, "micro") for scale in ("laptop", "gpu", "paper")]
    assert {frozenset(spec.stage for spec in specs) for specs in grids} == {
        frozenset(
            (
                "shift",
                "masked_language",
                "identity",
                "identity_classes",
                "taken_out",
                "shifted_nli",
                "nli_floors",
            )
        )
    }
    costs = [
        sum(shifted_cost(spec)["flops"] for spec in specs if spec.stage == "shifted_nli")
        for specs in grids
    ]
    assert 1e13 < costs[0] < costs[1] / 10 < costs[2] / 100
    real = list_table_entries("paper", "wiki", seeds=1)
    assert {c.table for c in real} == {
        SHIFT,
        TABLE2,
        TABLE3,
        FIGURE7,
        shift.FIGURE8,
        TRANSFER,
    } and not any("gold" in c.column for c in real)
    (texts,) = {
        tuple(t.source for t in c.runs[0].texts)
        for c in real
        if (c.table, c.column) == (TABLE2, "en→el")
    }
    assert texts == ("xnli/en", "xnli/el") and real[0].runs[0].checkpoint.shape.layers == 12


def test_the_claims_that_are_ours_speak_of_rows_that_hold_them_apart():
    ours = {c.id: c for c in ON_SHIFTS if c.whose == OURS}
    assert {
        "L2-mds-floor",
        "L2-mds-all",
        "L2-few",
        "L2-few-parallel",
        "L2-identity-mean",
        "L2-identity-spread",
    } <= ours.keys()
    for claim in ours.values():
        for t in claim.tests:
            assert (set(t.plus), t.column) != (set(t.minus), t.minus_column or t.column), claim.id
