"""Word retrieval by part of speech: against the definition, word by word, and L1's Table 1 as a
grid of runs.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st

from xlingual_nb import microworld
from xlingual_nb.errors import InputError
from xlingual_nb.experiments import data_size, parts_of_speech as pos
from xlingual_nb.experiments.liu2020_common import study_config
from xlingual_nb.measures import word_classes as wc
from xlingual_nb.measures.contextual_words import Finder, WordVectors
from xlingual_nb.measures.word_retrieval import WordSpec
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.papers import published as ledger
from xlingual_nb.report import claim_tests, tables, verdicts
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store
from xlingual_nb.text.dictionaries import Dictionary
from xlingual_nb.text.records import RecordsSpec
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec


def told(language):
    return CorpusSpec(f"micro/{language}", "train", (("sentences", 120), ("vocabulary", 128)))


ENES = Language("en", told("en")), Language("es", told("es"))
MODEL = PretrainSpec(
    ENES,
    TokenizerSpec(told("en"), 200, "words", (told("es"),)),
    Shape(layers=1, hidden=16, heads=1, intermediate=32, max_tokens=48),
    Training(epochs=0, batch=16),
)
WORDS = WordSpec(MODEL, ("en", "es"), (told("en"), told("es")), Dictionary("micro"))
TAGS = RecordsSpec("pos", "micro/en", "train", 300, (("vocabulary", 128),))


# ---- tags


def test_the_commonest_tag_wins_and_ties_go_by_the_alphabet():
    finder = Finder(["run", "Cat", "never", "can't"])
    records = [
        dict(
            tokens=["Run", "run", "RUN", "cat", "can't"],
            tags=["VERB", "NOUN", "VERB", "PROPN", "AUX"],
        ),
        dict(tokens=["cat", "dog"], tags=["NOUN", "NOUN"]),
    ]
    assert wc.commonest_tags(records, finder) == ["VERB", "NOUN", "", "AUX"]
    assert wc.commonest_tags(records, Finder(["Cat", "cat"], "exact")) == ["", "NOUN"]


def test_the_microworlds_tags_are_its_own():
    table = microworld.dictionary("en", "es", 500, 128)
    finder = Finder(table["first"])
    records = [
        dict(tokens=r["tokens"], tags=[microworld.TAGS[t] for t in r["upos"]])
        for r in microworld.task_records("pos", "en", "train", 500, 128)
    ]
    tags = wc.commonest_tags(records, finder)
    known = [(tags[n], upos) for n, upos in zip(finder.of, table.upos) if tags[n]]
    assert len(known) > 100 and np.mean([a == b for a, b in known]) > 0.97


def test_classes_are_universal_dependencies_and_no_word_is_in_two():
    named = [tag for name in ("Closed", "Open") for tag in wc.CLASSES[name]]
    assert len(set(named)) == len(named) == 14 and {"PUNCT", "SYM", "X"}.isdisjoint(named)
    assert [*wc.CLASSES][:6] == ledger.published("liu2020a", "table1").row.unique().tolist()


# ---- scores


def by_definition(first, second, pairs, some, own):
    """MRR of a class one way, a word at a time: the rank of the best of its translations among the
    candidates.
    """
    pairs = [tuple(p) for p in pairs]
    asked = {a for (a, _), there in zip(pairs, some) if there}
    wanted = [p for p, there in zip(pairs, some) if there or not own]
    candidates, earned = sorted({b for _, b in wanted}), []
    for a in asked:
        sim = {b: float(torch.cosine_similarity(first[a], second[b], dim=0)) for b in candidates}
        best = max(sim[b] for x, b in wanted if x == a)
        right = {b for x, b in wanted if x == a}
        earned.append(1 / (1 + sum(sim[b] > best for b in candidates if b not in right)))
    return np.mean(earned)


def apart(first, second):
    """Whether no word has two candidates that rounding takes for level; the definition knows no
    such thing.
    """
    near = (
        torch.cosine_similarity(first[:, None], second[None], dim=-1).sort(dim=1).values.diff(dim=1)
    )
    return bool(near.min() > 1e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(3, 8))
def test_scores_are_those_of_the_definition(seed, n):
    rng, gen = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    first, second = (torch.randn(n, 6, generator=gen) for _ in "ab")
    assume(apart(first, second) and apart(second, first))
    pairs = np.unique(rng.integers(0, n, (2 * n, 2)), axis=0)
    some = np.isin(
        pairs[:, 0], rng.permutation(n)[: max(1, n // 2)]
    )  # a class is one of first words
    found = wc.mrr_by_class(
        WORDS, (first, second), pairs, {"Noun": some, "Verb": np.zeros(len(some), bool)}
    )
    assert set(found) == ({"Noun"} if some.any() else set())
    if not some.any():
        return
    for among in ("all", "own"):
        ways = [
            by_definition(*each, turned, some, among == "own")
            for each, turned in (((first, second), pairs), ((second, first), pairs[:, ::-1]))
        ]
        assert found["Noun"][among]["mrr"] == pytest.approx(np.mean(ways), abs=1e-6)
    assert found["Noun"]["pairs"] == some.sum()


def test_fewer_candidates_are_easier_to_guess_among():
    """One translation a word: random vectors get the mean of 1/k over the ranks k of 6 candidates,
    or of the class's 2.
    """
    tables = [torch.randn(6, 8, generator=torch.Generator().manual_seed(s)) for s in (0, 1)]
    pairs, some = np.repeat(np.arange(6)[:, None], 2, 1), np.arange(6) < 2
    found = wc.mrr_by_class(WORDS, tables, pairs, {"Noun": some})["Noun"]
    assert found["all"]["chance"] == pytest.approx(sum(1 / k for k in range(1, 7)) / 6)
    assert found["own"]["chance"] == pytest.approx((1 + 1 / 2) / 2)


def test_all_words_in_one_class_score_as_the_retrieval_does():
    from xlingual_nb.measures.word_retrieval import retrieve_both_ways

    tables = [torch.randn(30, 8, generator=torch.Generator().manual_seed(s)) for s in (0, 1)]
    pairs, every = np.stack([np.arange(30), np.arange(30)[::-1]], 1), np.ones(30, bool)
    whole = retrieve_both_ways(WORDS, tables, pairs, every)
    found = wc.mrr_by_class(WORDS, tables, pairs, {"Open": every})["Open"]
    for among in ("all", "own"):
        assert found[among] == pytest.approx({k: whole[k] for k in ("mrr", "chance")})


# ---- runs


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    store, spec = Store(tmp_path_factory.mktemp("store")), wc.WordClassesSpec(WORDS, (TAGS,))
    run([spec], store, progress=False)
    return json.loads((store.path(spec) / "measures.json").read_text(encoding="utf-8"))


def test_a_run_holds_every_class_and_what_letters_find(made):
    classes = {name for name, values in made["found"].items() if values["pairs"]}
    assert classes == set(made["strings"]) and {"Open", "Closed", "Noun", "Verb", "Adj."} <= classes
    pairs = {name: values["pairs"] for name, values in made["found"].items()}
    assert pairs["Open"] == sum(pairs[name] for name in ("Noun", "Verb", "Adv.", "Adj.", "Name"))
    assert pairs["Open"] + pairs["Closed"] + made["untagged"] <= made["usable"]


@pytest.mark.parametrize("learnt, least, most", [("even", 0.999, 1), ("", 0, 0.5)])
def test_a_rotation_by_known_pairs_finds_a_planted_one(monkeypatch, learnt, least, most):
    """Spanish is English turned round: half of the pairs say how, and then the others are found."""
    gen, words = torch.Generator().manual_seed(0), [f"w{i}" for i in range(60)]
    turn, table = (
        torch.linalg.qr(torch.randn(8, 8, generator=gen))[0],
        torch.randn(60, 8, generator=gen),
    )
    table -= table.mean(0)
    sides = [
        (Finder(words), WordVectors({0: side}, np.ones(60), 0)) for side in (table, table @ turn)
    ]
    monkeypatch.setattr(wc, "dictionary_vectors", lambda *given: sides)
    spec = wc.WordClassesSpec(
        replace(WORDS, dictionary=Dictionary("micro", "odd")), (TAGS,), learnt
    )
    found = wc.compare_classes(
        spec, None, words[:30], words[30:], [], [dict(tokens=words, tags=["NOUN"] * 60)]
    )
    assert found["usable"] == 30 and least <= found["found"]["Noun"]["all"]["mrr"] <= most


def test_a_ceiling_that_would_learn_from_what_is_asked_is_refused():
    for learnt, told in (("all", "is tested"), ("half", "choose all")):
        with pytest.raises(InputError, match=told):
            wc.WordClassesSpec(WORDS, (TAGS,), learnt)


def test_tags_that_fit_no_word_are_one_clear_line(tmp_path):
    strange = replace(TAGS, source="micro/ru")
    with pytest.raises(InputError, match="none has a word with a tag"):
        run([wc.WordClassesSpec(WORDS, (strange,))], Store(tmp_path), progress=False)
    for wrong in ((), (replace(TAGS, task="ner"),)):
        with pytest.raises(InputError, match="records of the task pos"):
            wc.WordClassesSpec(WORDS, wrong)


# ---- the grid

PLACES = [("smoke", "micro"), ("laptop", "micro"), ("gpu", "micro"), ("paper", "micro")]


@pytest.mark.parametrize("scale, corpus", PLACES)
def test_every_class_has_its_floors_and_its_ceiling_in_every_column(scale, corpus):
    found = [c for c in pos.list_table_entries(scale, corpus, 1) if c.table == "table1"]
    wanted = [
        *pos.table1_languages(study_config(scale, corpus)),
        pos.MEAN,
        pos.OWN_CLASS,
        pos.WITHOUT_IDENTICAL,
    ]
    rows = [
        name
        for c in wc.CLASSES
        for name in (c, *(f"{other} | {c}" for other in (*pos.BASELINES, pos.CEILING)))
    ]
    assert {(c.row, c.column) for c in found} == {(r, column) for r in rows for column in wanted}
    assert all(c.paper == "liu2020a" for c in found)


def test_at_paper_scale_the_table_is_the_papers():
    found = {(c.row, c.column) for c in pos.list_table_entries("paper", "micro", 1)}
    assert found >= set(
        zip(*ledger.published("liu2020a", "table1")[["row", "column"]].to_numpy().T)
    )


@pytest.mark.parametrize("scale, corpus", PLACES[:3])
def test_the_model_is_that_of_notebook_09(scale, corpus):
    ours = {
        run_id(r.words.checkpoint) for c in pos.list_table_entries(scale, corpus, 1) for r in c.runs
    }
    theirs = {
        run_id(r.checkpoint)
        for c in data_size.list_table_entries(scale, corpus, 1)
        for r in c.runs
        if r.stage == "words"
    }
    assert ours <= theirs and len(ours) == 2, "it on the most text, and before its first step"


def test_identical_pairs_are_left_out_where_the_column_says_so():
    for c in pos.list_table_entries("laptop", "micro", 1):
        if c.table == "table1":
            kept = {r.words.dictionary.identical for r in c.runs}
            assert kept == {c.column != pos.WITHOUT_IDENTICAL}


def test_the_ceiling_learns_from_the_half_that_is_not_asked_for():
    for c in pos.list_table_entries("laptop", "micro", 1):
        halves = ("odd", "even") if c.row.startswith(pos.CEILING) else ("all", "")
        assert {(r.words.dictionary.part, r.learnt) for r in c.runs} == {halves}


CLAIMS = [c for c in ledger.claims("liu2020a") if pos.belongs_here(c)]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.id)
def test_every_row_that_a_claim_names_is_in_the_grid(claim):
    for scale in claim.scales:
        seen = {(c.row, c.column) for c in pos.list_table_entries(scale, "micro", 1)}
        for test in claim.tests:
            rows = {*test.plus, *test.minus}
            rows |= {f for row in rows for f in claim_tests.baseline_labels(claim, test, row)}
            assert {(row, test.column) for row in rows} <= seen


def test_claims_on_table_1_are_counted():
    assert len(CLAIMS) == 9 and sum(c.whose == ledger.OURS for c in CLAIMS) == 7


def test_a_corpus_without_bert_makes_a_table_of_ours():
    sizes = replace(study_config("laptop", "micro"), methods=("word2vec", "glove"))
    found = pos.seed_entries(sizes, 0)
    assert {(c.paper, c.table) for c in found} == {("ours", "word2vec"), ("ours", "pairs")}
    with pytest.raises(InputError, match="seeds"):
        pos.list_table_entries("smoke", "micro", 101)


def test_the_papers_numbers_reproduce_the_paper():
    """The printed table with a small spread, floors well below it: each of the paper's claims
    holds.
    """
    rng, rows = np.random.default_rng(0), []
    for c in pos.list_table_entries("paper", "micro", 5):
        value = ledger.printed_value("liu2020a", "table1", c.row, c.column)
        if c.table != "table1" or (np.isnan(value) and "|" not in c.row):
            continue
        run_of = f"{c.row}{c.column}{c.seed}"
        mean = 0.05 if "|" in c.row else value
        rows.append(
            (
                "liu2020a",
                "table1",
                c.row,
                c.column,
                "printed",
                c.seed,
                mean + rng.normal(0, 0.003),
                run_of,
            )
        )
    own = [c for c in CLAIMS if c.whose == ledger.PAPERS]
    judged = verdicts.verdicts(pd.DataFrame(rows, columns=tables.OBSERVED), "paper", own)
    assert judged.verdict.tolist() == ["reproduced"] * len(own)


def test_what_is_no_better_than_its_floor_decides_nothing():
    rows = [
        (
            "liu2020a",
            "table1",
            name,
            "avg",
            "made",
            s,
            0.1 + 0.1 * (name == "Open") + s / 1000,
            f"{name}{s}",
        )
        for name in ("Open", "Closed")
        for s in range(4)
    ]
    rows += [
        (
            "liu2020a",
            "table1",
            f"{floor} | {name}",
            "avg",
            "made",
            s,
            0.3 + s / 1000,
            f"{floor}{name}{s}",
        )
        for floor in pos.BASELINES
        for name in ("Open", "Closed")
        for s in range(4)
    ]
    (claim,) = [c for c in CLAIMS if c.id == "L1-open-closed"]
    judged = verdicts.verdicts(pd.DataFrame(rows, columns=tables.OBSERVED), "laptop", [claim])
    assert judged.verdict.tolist() == ["not above baseline"]
