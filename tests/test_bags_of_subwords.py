"""Bags of shared pieces: naive Bayes by hand on words as they are written, scores by the task's own
rules, and what is refused.
"""

from collections import Counter, defaultdict
from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch

from xlingual_nb.errors import InputError
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.stages import read_measures
from xlingual_nb.tasks.baselines import ADDED, BAGS, BagsSpec, count_table, fit_bayes
from xlingual_nb.tasks.zero_shot_classification import DocumentRecords
from xlingual_nb.tasks.zero_shot_parsing import TreeRecords
from xlingual_nb.tasks.metrics import span_f1
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, read_records
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.tokenizers import Encoded
from xlingual_nb.text.vocabularies import TokenizerSpec

torch.set_num_threads(1)
NAMES, DIALS = ("en", "de", "el"), (("vocabulary", 128),)
TEXTS = [CorpusSpec(f"micro/{n}", parameters=(("sentences", 300), *DIALS)) for n in NAMES]
WORDS = TokenizerSpec(TEXTS[0], 900, "words", tuple(TEXTS[1:]))


def part(task, name, of, size):
    made = {"documents": DocumentRecords, "parsing": TreeRecords}.get(task, RecordsSpec)
    return LabelledRecords(name, made(task, f"micro/{name}", of, size, DIALS))


def asked(task, **fields):
    train, dev = part(task, "en", "train", 150), part(task, "en", "dev", 60)
    return replace(
        BagsSpec(WORDS, train, dev, tuple(part(task, n, "test", 60) for n in NAMES)), **fields
    )


@pytest.fixture(scope="module")
def store(shared_store):
    run([*map(asked, BAGS), WORDS], shared_store, progress=False)
    return shared_store


def units(task, records, cut):
    """What is labelled: its marks as strings, and its label; a word or side is cut into pieces by
    `cut`.
    """
    if task == "documents":
        return [(cut(r["first"]) + cut(r["second"]), r["label"]) for r in records]
    if task != "nli":
        return [(cut(word), tag) for r in records for word, tag in zip(r["tokens"], r["tags"])]

    def marks(premise, hypothesis):
        return (
            [f"gone {w}" for w in premise - hypothesis]
            + [f"come {w}" for w in hypothesis - premise]
            + [f"both {w}" for w in premise & hypothesis]
        )

    return [
        (
            marks({*cut(r["premise"])}, {*cut(r["hypothesis"])}),
            ("entailment", "neutral", "contradiction").index(r["label"]),
        )
        for r in records
    ]


def by_hand(train, test, added):
    """The likeliest label of each bag by counting, so much added to every count; the first of
    equals by name.
    """
    labels, counts = Counter(label for _, label in train), defaultdict(Counter)
    for marks, label in train:
        counts[label].update(marks)
    known = {mark for marks, _ in train for mark in marks}

    def score(label, marks):
        total = sum(counts[label].values()) + added * len(known)
        return log(labels[label] / len(train)) + sum(
            log((counts[label][m] + added) / total) for m in marks if m in known
        )

    return [max(sorted(labels), key=lambda label: score(label, marks)) for marks, _ in test]


@pytest.mark.parametrize("task", BAGS)
def test_every_score_is_that_of_counting_by_hand(store, task):
    """Without [UNK], and with the addend that does best on development data, the first of
    equals.
    """
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(store.path(WORDS) / "tokenizer.json"))

    def cut(text):
        return [
            p
            for p in tokenizer.convert_ids_to_tokens(
                tokenizer(text, add_special_tokens=False)["input_ids"]
            )
            if p != "[UNK]"
        ]

    spec, values = asked(task), read_measures(store.path(asked(task)))
    train, dev, *tests = (
        read_records(store.path(side.records)) for side in (spec.train, spec.dev, *spec.tests)
    )

    def score(records, added):
        given = by_hand(units(task, train, cut), units(task, records, cut), added)
        if task != "ner":
            return np.mean([a == label for a, (_, label) in zip(given, units(task, records, cut))])
        tags = iter(given)
        return span_f1(
            [r["tags"] for r in records], [[next(tags) for _ in r["tokens"]] for r in records]
        )["f1"]

    best = max(ADDED, key=lambda added: score(dev, added))
    for name, records in zip(NAMES, tests):
        assert values[f"{'f1' if task == 'ner' else 'accuracy'} {name}"] == pytest.approx(
            score(records, best)
        )


def test_a_checkpoint_lends_its_vocabulary_and_nothing_else(store):
    bert = PretrainSpec(
        tuple(map(Language, NAMES, TEXTS)), WORDS, Shape(1, 16, 1, 32, 40), Training(0, 16, steps=2)
    )
    spec = asked("pos", vocabulary=bert)
    run([spec], store, progress=False)
    assert read_measures(store.path(spec)) == read_measures(store.path(asked("pos")))


def test_names_of_other_kinds_count_as_none(store):
    some = asked("ner", kinds=("PER",))
    run([some], store, progress=False)
    both = (read_measures(store.path(spec)) for spec in (some, asked("ner")))
    persons, every = (values["recall en"] for values in both)
    assert persons != every
    tags = {tag for r in read_records(store.path(some.tests[0].records)) for tag in r["tags"]}
    assert len({tag[2:] for tag in tags if tag != "O"}) > 1


def test_what_bags_refuse():
    with pytest.raises(
        InputError,
        match="records of parsing for bags of pieces: give those of documents, nli, ner, pos",
    ):
        asked("pos", train=part("parsing", "en", "train", 9))
    for other in (
        dict(dev=part("ner", "en", "dev", 9)),
        dict(tests=(part("ner", "de", "test", 9),)),
    ):
        with pytest.raises(
            InputError,
            match="records of pos, and of ner( and pos)? to be asked: give those of one task",
        ):
            asked("pos", **other)
    with pytest.raises(InputError, match="vocabulary='words': give the spec of a run"):
        asked("pos", vocabulary="words")
    with pytest.raises(InputError, match="1 bags, 2 labels: give one to each"):
        fit_bayes(count_table(Encoded.of([[1]]), 2), ["a", "b"])
    with pytest.raises(InputError, match="0 bags, 0 labels"):
        fit_bayes(count_table(Encoded.of([]), 2), [])
