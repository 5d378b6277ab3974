"""knn-replace: its rows are row 0 but for the masking, its spaces and floors are what the protocol
says, its grid runs and adds up.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import knn_replace, laboratory
from xlingual_nb.experiments.knn_replace import (
    UNCHANGED_ROWS,
    REPLACEMENTS,
    base_model_spec,
    table3_switches,
    list_table_entries,
    grid,
    laboratory_space_spec,
    table1_spec,
    table3_nli_spec,
    study_configs,
    table3_entries,
)
from xlingual_nb.experiments.config import SCALES
from xlingual_nb.experiments.scales import laboratory_config, trilingual_config
from xlingual_nb.experiments.study import observe
from xlingual_nb.measures.multilinguality import MeasureSpec
from xlingual_nb.models.pretraining import model_ids, language_views
from xlingual_nb.models.configs import MASKING
from xlingual_nb.papers.published import OURS, ambiguities, claims, published
from xlingual_nb.report.reference_results import corpus_of
from xlingual_nb.runs import engine, plan
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.nli import NliSpec
from xlingual_nb.text import tokenizers
from xlingual_nb.text.records import read_records
from xlingual_nb.text.sources import load_spec
from xlingual_nb.text.tokenizers import SPECIALS
from xlingual_nb.text.transforms import apply_text_transforms

torch.set_num_threads(1)
EVERY = pytest.mark.parametrize("scale", SCALES)


def differing(first, second):
    return {f.name for f in fields(first) if getattr(first, f.name) != getattr(second, f.name)}


# ---- the laboratory


@EVERY
@pytest.mark.parametrize("corpus", ["micro", "bible"])
def test_row_30_is_row_0_but_for_the_masking(scale, corpus):
    sizes = laboratory_config(scale, corpus)
    plain = laboratory.row_spec("0 original", sizes, 42)
    for row, how in REPLACEMENTS.items():
        spec = table1_spec(row, sizes, 42)
        assert differing(plain, spec) - {"snapshots", "nearest"} == {"masking", "neighbours"}
        assert spec.snapshots == (plain.snapshots if row == "30 knn-replace" else ())
        assert (spec.nearest, MASKING[spec.masking].knn) == (
            5 if "5 neighbours" in row else 1,
            0.24 if "released" in row else 0.3,
        )
        assert spec.neighbours.fit == how.fit and not spec.neighbours.rotation
    for row in UNCHANGED_ROWS:
        assert table1_spec(row, sizes, 42) == laboratory.row_spec(row, sizes, 42), (
            "the laboratory's own runs"
        )


def test_the_split_is_the_papers():
    """D section 4: p[mask], p[id], p[rand], p[knn] = .5, .1, .1, .3; released: --replacement_probs
    0.5,0.2,0.6, one after another.
    """
    split = MASKING["knn"]
    assert (split.mask, split.keep, split.random, split.knn, split.rate) == (
        0.5,
        0.1,
        0.1,
        0.3,
        0.15,
    )
    masked = 0.5
    at_random = (1 - masked) * 0.2
    near = (1 - masked - at_random) * 0.6
    for name in ("knn_released", "knn_first"):
        split = MASKING[name]
        assert np.allclose(
            (split.mask, split.random, split.knn, split.keep),
            (masked, at_random, near, 1 - masked - at_random - near),
        )
    assert [n for n, m in MASKING.items() if m.first] == ["knn_first"]


@EVERY
def test_spaces_have_seeds_of_their_own_and_one_mapping_serves_all_seeds(scale):
    sizes = laboratory_config(scale, "micro")
    english, fake = laboratory_space_spec(sizes).parts
    assert english.languages[0].corpus == fake.languages[0].corpus and english.seed != fake.seed
    assert english.languages[0].transforms == () and fake.languages[0].transforms == ("enfake",)
    assert (
        len(
            {
                c.runs[0].checkpoint.neighbours
                for c in list_table_entries(scale, "micro")
                if c.row == "30 knn-replace"
            }
        )
        == 1
    )
    draws = [
        part.seed for draw in range(3) for part in laboratory_space_spec(sizes, draw=draw).parts
    ]
    assert len(set(draws)) == len(draws), "another draw has other vectors on both sides"


def test_at_paper_scale_vectors_are_fasttexts_own():
    """D Table 8, and what its Table 9 leaves at fastText's defaults: skip-gram, 5 epochs, windows
    of 5, 5 negatives, n-grams of 3 to 6 ...
    """
    for vectors in (
        laboratory_config("paper", "bible").vectors,
        trilingual_config("paper", "wiki").vectors,
    ):
        method = vectors.method
        assert (vectors.size, vectors.window, vectors.least) == (300, 5, 5)
        assert (
            method.skip_gram,
            method.epochs,
            method.negative,
            method.sample,
            method.learning_rate,
        ) == (True, 5, 5, 1e-4, 0.05)
        assert (method.letters, method.buckets, method.shrink) == ((3, 6), 2_000_000, True)


# ---- cells


@EVERY
def test_tables_have_the_published_rows_and_their_floors(scale):
    found = list_table_entries(scale, "micro")
    rows = {
        table: {c.row for c in found if c.table == table}
        for table in ("table1", "figure7", "mapping", "table3")
    }
    assert rows["table1"] == {*UNCHANGED_ROWS, *REPLACEMENTS} and rows["figure7"] == {
        "0 original",
        "30 knn-replace",
    }
    printed = set(published("dufter2020", "table3").row) - {"mBERT Results by (Hu et al., 2020)"}
    floors = {
        "untrained",
        "never saw the target",
        "majority class",
        "lengths",
        "set differences",
        "hypothesis alone",
        "true lexicon",
    }
    assert rows["table3"] == printed | floors | {
        "30-base knn-replace (released)",
        "30-base knn-replace (half of the words known)",
    }
    ways = "VecMap", "half of the words known", "no mapping", "random vectors"
    assert rows["mapping"] == {
        f"{way} | en | {other}" for way in ways for other in ("enfake", "de", "hi")
    }
    assert set(published("dufter2020", "table1").column) == {
        c.column for c in found if c.table == "table1"
    }
    assert len({(c.table, c.row, c.column, c.seed, c.runs) for c in found}) == len(found)
    assert set(grid(scale, "micro")) == {run for c in found for run in c.runs}


@EVERY
def test_the_rows_of_notebook_07_are_its_runs(scale):
    own = {
        c.runs[0]
        for c in laboratory.list_table_entries(scale, "micro")
        if c.table in ("table1", "figure6")
    }
    mine = {
        c.runs[0]
        for c in list_table_entries(scale, "micro")
        if c.table in ("table1", "figure7") and c.row in UNCHANGED_ROWS
    }
    assert mine <= own and all(isinstance(run, MeasureSpec) for run in mine)


def test_a_mapping_is_asked_for_other_words_than_it_was_fitted_to():
    for cell in list_table_entries("smoke", "micro"):
        if cell.table != "mapping":
            continue
        (run,) = cell.runs
        asked, known = run.dictionary, run.checkpoint.dictionary
        assert asked.part == "odd" and (
            known is None or (known.part, known.source) == ("even", asked.source)
        )
        assert asked.source == ("same" if "enfake" in cell.row else "micro")


def test_parts_may_be_chosen_and_what_there_is_not_is_said():
    assert {c.table for c in list_table_entries("smoke", "micro", only="1")} == {
        "table1",
        "figure7",
        "mapping",
    }
    assert {c.table for c in list_table_entries("smoke", "micro", only="3")} == {
        "table3",
        "mapping",
    }
    assert (
        study_configs("smoke", "bible")[1] is None
        and study_configs("laptop", "micro-parallel")[0] is None
    )
    assert {c.paper for c in list_table_entries("smoke", "micro", languages="es,ru")} == {OURS}
    for wrong in (dict(corpus="moon"), dict(only="2"), dict(seeds=101), dict(languages="xx")):
        with pytest.raises(InputError) as said:
            list_table_entries("smoke", **(dict(corpus="micro") | wrong))
        assert "\n" not in str(said.value)
    with pytest.raises(InputError, match="scale 'huge'"):
        list_table_entries("huge")


def test_what_is_on_a_corpus_of_table_3_alone_may_be_kept():
    for corpus, scale in (("micro-parallel", "laptop"), ("micro", "gpu")):
        assert (
            corpus_of(list_table_entries(scale, corpus), dict(scale=scale, corpus=corpus)) == corpus
        )
    assert (
        corpus_of(list_table_entries("smoke"), dict(scale="smoke"))
        == laboratory_config("smoke").corpus
    )


def test_a_corpus_that_is_named_is_the_one_that_is_kept_whatever_the_paper():
    from xlingual_nb.experiments import zero_shot

    values = dict(scale="laptop", corpus="micro-five")
    assert corpus_of(zero_shot.list_table_entries(**values, only="5"), values) == "micro-five"
    assert (
        corpus_of(zero_shot.list_table_entries("smoke", only="5"), dict(scale="smoke")) == "micro"
    )


# ---- three languages


@EVERY
def test_rows_of_table_3_differ_as_their_names_say(scale):
    sizes = trilingual_config(scale, "micro")
    rows = {
        row.split("-")[0] + row.partition(" (")[2].rstrip(")"): switches
        for row, switches in table3_switches(sizes).items()
    }
    specs = {name: base_model_spec(sizes, 1, **switches) for name, switches in rows.items()}
    plain = specs["0"]
    assert [l.name for l in plain.languages] == ["en", "de", "hi"] and plain.shape.segments == 3
    assert plain.shape.positions == 3 * plain.shape.max_tokens
    assert differing(plain, specs["3"]) == {"languages"} and [
        l.transforms for l in specs["3"].languages
    ] == [(), ("inv_order",), ()]
    assert (
        differing(plain, specs["8"]) == {"lang_pos", "shift_special", "masking"}
        and specs["8"].masking == "no_random"
    )
    assert (
        differing(plain, specs["30"])
        == {"masking", "neighbours", "nearest"}
        == differing(plain, specs["30released"])
    )
    assert (
        specs["30"].nearest == 5
        and specs["30"].neighbours.rotation
        and specs["30"].neighbours == specs["30released"].neighbours
    )
    known = specs["30half of the words known"]
    assert (
        differing(known, specs["30"]) == {"neighbours"}
        and known.neighbours.dictionary.source == "micro"
    )
    offsets = [
        (v.special_offset, v.position_offset, v.token_type) for v in language_views(specs["8"], 100)
    ]
    assert offsets == [
        (0, 0, 0),
        (100, plain.shape.max_tokens, 1),
        (105, 2 * plain.shape.max_tokens, 2),
    ]


def test_table_3_is_tuned_on_english_and_asked_in_all():
    sizes = trilingual_config("smoke", "micro")
    for cell in table3_entries(sizes, 1):
        (run,) = cell.runs
        assert run.train.language == "en" and [a.language for a, b in run.tests if a == b] == [
            "en",
            "de",
            "hi",
        ]
        if not isinstance(run, NliSpec):
            continue
        assert run.seed == 1 and run.dev.language == "en" and run.dev.records.part == "dev"
        if cell.row == "never saw the target":
            assert [l.name for l in run.checkpoint.languages] == ["en"]
        if cell.row == "untrained":
            assert run.checkpoint.training.steps == run.checkpoint.training.epochs == 0
        assert cell.metric == (
            "majority" if cell.row == "majority class" else "accuracy"
        ) + " {0}|{0}".format({"ENG": "en", "DEU": "de", "HIN": "hi"}[cell.column])


def test_no_two_languages_share_a_letter():
    sizes = trilingual_config("smoke", "micro")
    written = [
        apply_text_transforms(l.corpus.transforms, load_spec(l.corpus))
        for l in base_model_spec(sizes, 1).languages
    ]
    letters = [set("".join(text.sentences)) - {" "} for text in written]
    assert (
        all(letters)
        and not letters[0] & letters[1]
        and not letters[0] & letters[2]
        and not letters[1] & letters[2]
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


def test_nor_a_piece_nor_a_pair_of_the_tests(store):
    sizes = trilingual_config("smoke", "micro")
    spec = base_model_spec(sizes, 1)
    engine.run([spec.tokenizer], store, progress=False)
    tokenizer = tokenizers.read_tokenizer(store.path(spec.tokenizer))
    pieces = [
        set(model_ids(spec, l, tokenizer, store).ids.tolist()) - set(range(len(SPECIALS)))
        for l in spec.languages
    ]
    assert (
        all(len(own) > 20 for own in pieces)
        and not pieces[0] & pieces[1]
        and not (pieces[0] | pieces[1]) & pieces[2]
    )
    for test, _ in table3_nli_spec(sizes, spec).tests:
        engine.run([test.records], store, progress=False)
        said = [r["premise"] for r in read_records(store.path(test.records))]
        number = [l.name for l in spec.languages].index(test.language)
        ids = tokenizers.encode(tokenizer, said).ids
        assert np.isin(ids, list(pieces[number])).mean() > 0.9, (
            "tests are in the letters of their language"
        )


# ---- runs


def test_the_smallest_study_runs_and_its_cells_are_read(store):
    some = [
        c
        for c in list_table_entries("smoke", "micro", seeds=1)
        if c.row
        in ("30 knn-replace", "VecMap | en | enfake", "8-base lang-pos;shift-special;no-random")
    ]
    engine.run(list(dict.fromkeys(run for c in some for run in c.runs)), store, progress=False)
    frame = observe(some, store, "micro")
    assert len(frame) == len(some) and frame.value.notna().all()
    course = frame[(frame.table == "figure7") & (frame.column == "µ")]
    assert (
        sorted(course.step) == sorted(set(course.step))
        and len(course) == len(laboratory_config("smoke", "micro").snapshots) + 1
    )


@pytest.mark.parametrize("scale", ["smoke", "laptop", "gpu"])
def test_a_plan_prices_every_stage(scale, tmp_path):
    frame = plan.plan(grid(scale, "micro"), Store(tmp_path))
    assert {"pretrain", "embed", "space", "words", "nli", "nli_floors", "measure"} <= set(
        frame.stage
    )
    assert (frame[frame.stage.isin(["pretrain", "space", "embed", "nli"])].FLOPs > 0).all()


# ---- the ledger


def test_claims_of_this_notebook():
    about = [c for c in claims("dufter2020") if knn_replace.belongs_here(c)]
    assert sum(c.whose == "paper" for c in about) >= 5 and len(about) >= 12
    assert {t.table for c in about for t in c.tests} == {"table1", "table3", "figure7", "mapping"}
    known = {a.id for a in ambiguities("dufter2020")}
    assert {
        "D-knn-split",
        "D-knn-languages",
        "D-knn-mapping",
        "D-knn-seed",
        "D-knn-rare",
        "D-xnli-vocabularies",
    } <= known


def test_splits_that_the_ambiguities_name_exist():
    named = [
        a.switch.split("'")[1]
        for a in ambiguities("dufter2020")
        if a.switch.startswith("PretrainSpec.masking=")
    ]
    assert set(named) <= set(MASKING) and {"knn_released", "knn_first"} <= set(named)
    assert replace(
        table1_spec("30 knn-replace", laboratory_config("smoke", "micro"), 0), masking=named[-1]
    )
