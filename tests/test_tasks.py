"""Tasks as records: what turning does to answers, a model's languages to text, and POS read from
its end.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from xlingual_nb.errors import InputError
from xlingual_nb.measures.embeddings import check_and_truncate
from xlingual_nb.models import checkpoints, encoders
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import FineTuning, LanguageView, LinearTagging, Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.encoding import (
    Inputs,
    pair_inputs,
    reverse_entities,
    keep_order,
    reverse_tagged_words,
    word_inputs,
)
from xlingual_nb.tasks.sequence_labelling import NER, POS, NerSpec, PosSpec
from xlingual_nb.tasks.nli import NLI, NliSpec
from xlingual_nb.tasks.pair_classifier import cut_pairs
from xlingual_nb.tasks.metrics import majority, score_labels, score_tags
from xlingual_nb.tasks.task import Head, encode_for_checkpoint, make_task
from xlingual_nb.text import tokenizers, transforms
from xlingual_nb.text.formats import LABELS, iob2_error
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, load_records, read_records
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.tokenizers import Encoded
from xlingual_nb.text.vocabularies import TokenizerSpec

torch.set_num_threads(1)


# --- turning


@st.composite
def tagged(draw):
    """Sentences of pieces, places of the words' first ones, well-formed BIO tags; and the names, as
    (first, last, kind).
    """
    phrases = st.lists(
        st.tuples(st.sampled_from(["", "PER", "LOC"]), st.integers(1, 3)), min_size=1, max_size=6
    )
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        tags, names = [], []
        for kind, size in draw(phrases):
            if kind:
                names.append((len(tags), len(tags) + size - 1, kind))
            tags += [f"B-{kind}"] + [f"I-{kind}"] * (size - 1) if kind else ["O"] * size
        pieces = draw(st.lists(st.integers(1, 3), min_size=len(tags), max_size=len(tags)))
        rows.append((pieces, tags, names))
    firsts = Encoded.of(np.cumsum([0, *pieces[:-1]]) for pieces, _, _ in rows)
    ids = Encoded.of(
        np.arange(10 * i, 10 * i + sum(pieces)) for i, (pieces, _, _) in enumerate(rows)
    )
    return Inputs((ids,), [tags for _, tags, _ in rows], firsts), [names for _, _, names in rows]


def same(a: Inputs, b: Inputs):
    return a.texts == b.texts and a.gold == b.gold and a.firsts == b.firsts


@settings(deadline=None)
@given(tagged())
def test_turning_twice_is_the_identity(given_):
    inputs, _ = given_
    for turn in (reverse_entities, reverse_tagged_words, keep_order):
        assert same(turn(turn(inputs)), inputs)


@settings(deadline=None)
@given(tagged())
def test_turned_names_are_the_mirrored_ones(given_):
    inputs, names = given_
    turned = reverse_entities(inputs)
    for tags, sentence in zip(turned.gold, names):
        n = len(tags)
        mirrored = sorted((n - 1 - b, n - 1 - a, kind) for a, b, kind in sentence)
        assert sorted((a, b, kind) for kind, a, b in get_entities(tags)) == mirrored
        assert not any(iob2_error(tag, before) for before, tag in zip(["O", *tags], tags))


@settings(deadline=None)
@given(tagged())
def test_turned_words_keep_their_tags_and_their_first_pieces(given_):
    inputs, _ = given_
    turned, ids = reverse_tagged_words(inputs), transforms.invert_order(inputs.texts[0])
    assert turned.gold == [tags[::-1] for tags in inputs.gold]
    for back, places, plain, firsts in zip(ids, turned.firsts, inputs.texts[0], inputs.firsts):
        assert back[places].tolist() == plain[firsts][::-1].tolist()
    assert same(replace(reverse_entities(inputs), gold=turned.gold), turned)


def test_parts_of_speech_stay_what_they_are():
    """Where they were turned as the tags of names are, NOUN became BOUN."""
    inputs = Inputs((Encoded.of([[5, 6, 7]]),), [["NOUN", "INTJ", "VERB"]], Encoded.of([[0, 1, 2]]))
    assert POS.turn(inputs).gold == [["VERB", "INTJ", "NOUN"]]


# --- cutting


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.integers(1, 12)] * 2), min_size=1, max_size=4),
    st.integers(5, 20),
    st.tuples(*[st.booleans()] * 2),
)
def test_what_is_too_long_loses_its_last_words_in_either_direction(tiny, lengths, max_tokens, back):
    sides = [Encoded.of(np.arange(5, 5 + pair[i]) for pair in lengths) for i in (0, 1)]
    views = [LanguageView("x", inverted=b) for b in back]
    read = [transforms.invert_order(side) if b else side for side, b in zip(sides, back)]
    plain = cut_pairs(tiny, *sides, "plain", max_tokens)
    for found, wanted, side, b in zip(
        cut_pairs(tiny, *read, views, max_tokens), plain, sides, back
    ):
        assert [row.tolist() for row in found] == [
            row.tolist()[:: -1 if b else 1] for row in wanted
        ]
        assert all(row.tolist() == whole.tolist()[: len(row)] for row, whole in zip(wanted, side))
    for side, one, view in zip(sides, read, views):
        kept, _ = check_and_truncate(tiny, one, view)
        assert [row.tolist() for row in kept] == [
            row.tolist()[:9][:: -1 if view.inverted else 1] for row in side
        ]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model that takes 9 tokens besides [CLS] and [SEP]."""
    folder = tmp_path_factory.mktemp("tiny")
    return checkpoints.load_checkpoint(
        checkpoints.tiny_checkpoint(folder, max_position_embeddings=11)
    )


# --- a model of English and of Fake-English read from its end, whose words are tokens

TEXT = CorpusSpec("micro/en", parameters=(("sentences", 150),))
WORDS, BACK = TokenizerSpec(TEXT, 133, "words"), Language("back", TEXT, ("enfake", "inv_order"))
MODEL = PretrainSpec((Language("en", TEXT), BACK), WORDS, Shape(2, 32, 2, 64, 12), Training(0))


def records(task, part, size):
    return RecordsSpec(task, "micro/en", part, size)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("tasks") / "runs")


@pytest.fixture
def plain_words(monkeypatch):
    """Checkpoints as they are opened, but that a word's embedding is its own: no positions, and one
    in both languages.
    """
    opened = encoders.load_encoder

    def load_encoder(*where):
        encoder = opened(*where)
        with torch.no_grad():
            table = encoder.model.get_input_embeddings().weight
            table[len(table) // 2 :] = table[: len(table) // 2]
            checkpoints.position_table(encoder.model).weight.zero_()
        return encoder

    monkeypatch.setattr(encoders, "load_encoder", load_encoder)


@pytest.mark.parametrize("source", ["en", "back"])
def test_parts_of_speech_are_right_in_a_language_that_is_read_from_its_end(
    store, plain_words, source
):
    """Its sentences are longer than the model's windows, so that no word may be lost at the wrong
    end either.
    """
    train, dev, test = (
        records("pos", part, size) for part, size in (("train", 200), ("dev", 40), ("test", 60))
    )
    tests = tuple(LabelledRecords(name, test) for name in ("en", "back"))
    first_layer = LinearTagging((1e-4,), layer=0)
    spec = PosSpec(
        MODEL, LabelledRecords(source, train), LabelledRecords(source, dev), tests, first_layer
    )
    run([spec], store, progress=False)
    kept, made = store.read(spec), read_records(store.path(test))
    tags = [tag for r in made for tag in r["tags"]]
    assert max(len(r["tokens"]) for r in made) > 12
    assert kept["majority"] == dict.fromkeys(("en", "back"), majority(tags))
    assert kept["accuracy"]["back"] == kept["accuracy"]["en"] > 0.9 > 2 * majority(tags)


def test_the_same_names_are_found_in_either_direction(store):
    asked = records("ner", "test", 60)
    run([MODEL, asked], store, progress=False)
    tokenizer, found = tokenizers.read_tokenizer(store.path(MODEL.tokenizer)), {}
    size = tokenizer.get_vocab_size()
    for language in ("en", "back"):
        inputs = encode_for_checkpoint(
            NER, MODEL, LabelledRecords(language, asked), tokenizer, store
        )
        found[language] = []
        for row, places, tags in zip(inputs.texts[0], inputs.firsts, inputs.gold):
            words = [tokenizer.id_to_token(int(i) % size) for i in row[places]]
            found[language].append(
                sorted((kind, *sorted(words[a : b + 1])) for kind, a, b in get_entities(tags))
            )
        assert inputs.views[0].inverted == (language == "back")
    assert found["en"] == found["back"] and sum(map(len, found["en"])) > 20


# --- the maker


class Shelf:
    """A store whose runs are folders by name."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, spec):
        return self.folder / (getattr(spec, "source", "") or "model").replace("/", "-")


@pytest.fixture
def shelf(tmp_path):
    tokenizer = tokenizers.train_words(["a b c d e f"], 20)
    shelf = Shelf(tmp_path)
    (tmp_path / "model").mkdir()
    checkpoints.tiny_checkpoint(tmp_path / "model", words=40)
    tokenizers.save_tokenizer(tokenizer, tmp_path / "model")

    def put(source, *found):
        (tmp_path / source).mkdir()
        (tmp_path / source / "records.jsonl").write_text(
            "".join(json.dumps(r) + "\n" for r in found)
        )

    kinds = [("a b", "c", "noun"), ("d", "e f a", "verb"), ("b", "b", "noun")]
    put("micro-one", *(dict(premise=p, hypothesis=h, label="neutral", kind=k) for p, h, k in kinds))
    plain = [("f", "e"), ("e", "d c"), ("d", "a b")]
    put("micro-two", *(dict(premise=p, hypothesis=h, label="entailment") for p, h in plain))
    return shelf


@dataclass(frozen=True)
class Asked:
    checkpoint: PretrainSpec
    train: LabelledRecords
    tests: tuple
    settings: None = None


def test_the_sides_of_a_pair_come_from_their_own_records_and_languages(shelf):
    one = LabelledRecords("en", RecordsSpec("nli", "micro/one", size=3))
    two = LabelledRecords("back", RecordsSpec("nli", "micro/two", size=3))
    tokenizer = tokenizers.read_tokenizer(shelf.path(None))
    size, ids = (
        tokenizer.get_vocab_size(),
        lambda text: [tokenizer.token_to_id(w) for w in text.split()],
    )
    inputs = encode_for_checkpoint(NLI, MODEL, (one, two), tokenizer, shelf)
    assert [row.tolist() for row in inputs.texts[0]] == [ids("a b"), ids("d"), ids("b")]
    turned = [[i + size for i in ids(text)[::-1]] for text in ("e", "d c", "a b")]
    assert [row.tolist() for row in inputs.texts[1]] == turned
    assert inputs.gold.tolist() == [1, 1, 1] and inputs.kinds == ("noun", "verb", "noun")
    assert [v.name for v in inputs.views] == ["en", "back"]
    both = encode_for_checkpoint(NLI, MODEL, two, tokenizer, shelf)
    assert [row.tolist() for row in both.texts[0]] == [
        [i + size for i in ids(text)] for text in "fed"
    ]
    assert both.texts[1] == inputs.texts[1]
    assert both.kinds == () and [v.name for v in both.views] == ["back", "back"]


def test_numbers_stand_by_language_and_those_that_do_not_apply_are_left_out(shelf, tmp_path):
    one, two = (
        LabelledRecords("en", RecordsSpec("nli", f"micro/{name}", size=3))
        for name in ("one", "two")
    )
    seen = []

    def answer(encoder, learnt, inputs):
        return np.array([1, 0, 0])

    task = replace(NLI, head=Head(lambda *given: seen.append(given), answer))
    make_task(task, [Asked(MODEL, one, ((one, one), (two, two)))], [tmp_path], shelf, None)
    assert json.loads((tmp_path / "measures.json").read_text()) == dict(
        accuracy={"en|en": 2 / 3},
        by_kind={"en|en": {"noun": 0.5, "verb": 0.0}},
        majority={"en|en": 1.0},
    )
    ((encoder, train, dev, settings_, seed, _),) = seen
    assert isinstance(encoder, encoders.Encoder) and train.gold.tolist() == [1, 1, 1]
    assert dev is None and settings_ is None and seed == 0
    make_task(task, [Asked(MODEL, two, ((two, two),))], [tmp_path], shelf, None)
    assert json.loads((tmp_path / "measures.json").read_text())["by_kind"] == {}


def test_dev_and_seed_reach_the_head_and_progress_is_told(shelf, tmp_path):
    one, two = (
        LabelledRecords("en", RecordsSpec("nli", f"micro/{name}", size=3))
        for name in ("one", "two")
    )
    seen, told = [], []

    def train(encoder, train, dev, settings, seed, progress):
        progress(2, 5)
        seen.append((train.gold.tolist(), dev.gold.tolist(), settings, seed))

    spec = SimpleNamespace(checkpoint=MODEL, train=one, dev=two, tests=(), settings="so", seed=7)
    make_task(
        replace(NLI, head=Head(train, None)),
        [spec],
        [tmp_path],
        shelf,
        lambda *given: told.append(given),
    )
    assert seen == [([1, 1, 1], [0, 0, 0], "so", 7)] and told == [(spec, 2, 5)]


def test_records_of_another_task_are_refused(store):
    """Names and parts of speech have the same columns, so nothing else would say so."""
    ner = LabelledRecords("en", records("ner", "test", 20))
    with pytest.raises(InputError, match="records of ner for the task pos: give its own"):
        run([PosSpec(MODEL, ner, ner, (ner,))], store, progress=False)


def test_scores_by_hand():
    labels = Inputs((), np.array([0, 1, 2, 0]), kinds=("a", "b", "b", "b"))
    assert score_labels(labels, [0, 1, 0, 1]) == dict(
        accuracy=0.5, by_kind=dict(b=1 / 3, a=1.0), majority=0.5
    )
    words = Inputs((), [["DET", "NOUN"], ["NOUN"]])
    assert score_tags(words, [["DET", "VERB"], ["NOUN"]]) == dict(accuracy=2 / 3, majority=2 / 3)
    with pytest.raises(InputError, match="of one text"):
        score_tags(words, [["DET"], ["VERB", "NOUN"]])
    with pytest.raises(InputError, match="at least one"):
        majority([])


def test_what_tasks_are_made_of():
    pair, sentence = (
        load_records("nli", "micro/en", size=3),
        load_records("ner", "micro/en", size=3),
    )
    tokenizer = tokenizers.train_words([" ".join(r["tokens"]) for r in sentence], 100)
    asked = pair_inputs(tokenizer, pair)
    assert len(asked.texts) == 2 and asked.kinds == tuple(r["kind"] for r in pair)
    assert word_inputs(tokenizer, sentence).gold == [r["tags"] for r in sentence]
    assert [t.name for t in (NLI, NER, POS)] == ["nli", "ner", "pos"]
    assert repr(POS) == "Task(pos, Head(train_regression, tag_by_regression))"


# --- which part is asked


def test_a_test_is_scored_on_the_test_part(store, tmp_path):
    """The parts of this file can be told apart by their commonest label."""
    shares = dict(train=(4, 4, 4), dev=(2, 1, 1), test=(0, 1, 4))
    for part, counts in shares.items():
        lines = [f"p{i}\th{i}\t{label}\n" for label, n in zip(LABELS, counts) for i in range(n)]
        Path(tmp_path, f"{part}.tsv").write_text("".join(lines))
    parts = {
        part: LabelledRecords("en", RecordsSpec("nli", f"file:{tmp_path}/{{part}}.tsv", part))
        for part in shares
    }
    spec = NliSpec(
        MODEL,
        parts["train"],
        ((parts["test"], parts["test"]),),
        FineTuning(epochs=1, max_tokens=12),
    )
    run([spec], store, progress=False)
    assert store.read(spec)["majority"] == {"en|en": 4 / 5}
    assert store.read(spec)["accuracy"]["en|en"] in [i / 5 for i in range(6)]


def test_specs_have_their_defaults():
    some = LabelledRecords("en", records("ner", "train", 9))
    ner, pos = (cls(MODEL, some, some, ()) for cls in (NerSpec, PosSpec))
    assert (
        ner.settings.scheme == "bioul" and pos.settings.layer is None and not hasattr(pos, "seed")
    )
