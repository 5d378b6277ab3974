"""Documents as a task: records of every source, one sentence or two, [CLS] by hand, pooled states
against a loop, runs.
"""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from xlingual_nb.errors import InputError
from xlingual_nb.models.external import ExternalCheckpointSpec
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.zero_shot_classification import (
    DOCUMENT_READING,
    DocumentRecords,
    SentencesSpec,
    document_inputs,
)
from xlingual_nb.tasks.encoding import Inputs
from xlingual_nb.tasks.finetuning import answer_records, fit_network, new_network
from xlingual_nb.tasks.recipes import Feat, Tuning
from xlingual_nb.tasks.task_heads import read_pairs, sentence_adapter
from xlingual_nb.text.formats import read_documents
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, load_records
from xlingual_nb.text.tokenizers import Encoded

torch.set_num_threads(1)
real = pytest.mark.skipif(
    not Path(os.environ.get("XLINGUAL_DATA") or "-", "doc").is_dir(),
    reason="XLINGUAL_DATA names no folder with documents",
)


@pytest.fixture
def tiny(tmp_path):
    return load_checkpoint(tiny_checkpoint(tmp_path / "tiny", 40, num_hidden_layers=2))


def texts(count, seed, longest=6):
    """The label says whether one of the last six words is there; every other text has one
    sentence.
    """
    rng = np.random.default_rng(seed)
    first, second = (
        [rng.integers(5, 40, rng.integers(1, longest)) for _ in range(count)] for _ in range(2)
    )
    second = [row if i % 2 else row[:0] for i, row in enumerate(second)]
    large = [max(np.concatenate(pair)) > 33 for pair in zip(first, second)]
    return Inputs(
        (Encoded.of(first), Encoded.of(second)),
        np.where(large, "large", "small"),
        views=("any", "any"),
    )


# --- records


def test_the_first_two_sentences_or_the_one_there_is(tmp_path):
    (tmp_path / "own.tsv").write_text("One. Two. Three.\tmany\nDr. Who comes\tone\n")
    assert read_documents(tmp_path / "own.tsv") == [
        dict(first="One.", second="Two.", label="many"),
        dict(first="Dr. Who comes", second="", label="one"),
    ]
    (tmp_path / "bad.tsv").write_text("One.\tmany\textra\n")
    with pytest.raises(
        InputError, match="bad.tsv line 1: 3 columns, 2 wanted: write text<TAB>topic"
    ):
        read_documents(tmp_path / "bad.tsv")


def test_documents_of_the_microworld_are_parallel_and_of_as_many_as_asked():
    english, greek = (
        load_records(DOCUMENT_READING, f"micro/{language}", "train", 100, topics=4)
        for language in ("en", "el")
    )
    assert len(english) == len(greek) == 100 and all(r["second"] for r in english)
    assert [r["label"] for r in english] == [r["label"] for r in greek] and len(
        {r["label"] for r in english}
    ) == 4
    assert english[:30] == load_records(DOCUMENT_READING, "micro/en", "train", 30, topics=4)
    assert not {r["first"] for r in english} & {
        r["first"] for r in load_records(DOCUMENT_READING, "micro/en", "test", 50, topics=4)
    }


@real
def test_documents_of_the_data_folder():
    train, german = (
        load_records(DOCUMENT_READING, "doc/en"),
        load_records(DOCUMENT_READING, "doc/de", "test"),
    )
    assert (
        len(train) == 701
        and len(german) == 204
        and Counter(r["label"] for r in german).most_common(1)[0][0] == "science/technology"
    )


# --- inputs


def test_one_sentence_is_read_as_the_tokenizer_reads_one(tmp_path):
    tiny = load_checkpoint(tiny_checkpoint(tmp_path / "tiny", 40))
    records = [
        dict(first="w7 w8", second="", label="a"),
        dict(first="w9", second="w10 w11", label="b"),
    ]
    inputs = document_inputs(tiny.tokenizer, records)
    inputs = Inputs(inputs.texts, inputs.gold, views=("any", "any"))
    said, places, lengths = read_pairs(tiny, inputs, [0, 1], Feat())
    assert said["input_ids"].tolist() == [
        [2, 7, 8, 3, 0, 0],
        [2, 9, 3, 10, 11, 3],
    ] and lengths.tolist() == [4, 6]
    assert said["token_type_ids"].tolist() == [[0] * 6, [0, 0, 0, 1, 1, 1]] and said[
        "attention_mask"
    ].sum(1).tolist() == [4, 6]
    assert places.tolist() == [[0, 1, 2, 3, 3, 3], [6, 7, 8, 9, 10, 11]]
    with pytest.raises(InputError, match="no documents"):
        document_inputs(tiny.tokenizer, [])


def test_the_head_reads_cls_without_a_pooler(tiny):
    inputs = texts(9, 0)
    network = new_network(tiny, inputs, sentence_adapter(), Tuning(dropout=0.0), 3)
    for i in range(9):
        first, second = inputs.texts[0][i].tolist(), inputs.texts[1][i].tolist()
        ids, types = (
            [2, *first, 3, *second] + [3] * bool(second),
            [0] * (len(first) + 2) + [1] * (len(second) + bool(second)),
        )
        state = tiny.model.base_model(
            input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])
        ).last_hidden_state[0, 0]
        x, lengths = network(inputs, np.arange(9))
        wanted = network.head.out.weight @ state + network.head.out.bias
        torch.testing.assert_close(network.head(x, lengths)[i], wanted, atol=1e-5, rtol=1e-5)


def test_feat_takes_the_greatest_state_of_every_token(tiny):
    """A text at a time through the same BiLSTM, no padding, special tokens among the tokens."""
    inputs, settings = texts(8, 1), Feat(hidden=5, dropout=0.0)
    network = new_network(tiny, inputs, sentence_adapter(), settings, 3)
    for part in network.parts:
        part.eval()
    with torch.no_grad():
        x, lengths = network(inputs, np.arange(8))
        together = network.head(x, lengths)
        for i in range(8):
            alone, n = network(inputs, np.array([i]))
            pooled = torch.stack([max(column) for column in alone[0].T])
            torch.testing.assert_close(
                together[i],
                network.head.out.weight @ pooled + network.head.out.bias,
                atol=1e-5,
                rtol=1e-5,
            )


# --- learning


@pytest.mark.parametrize(
    "settings",
    [
        Tuning(epochs=12, learning_rate=5e-3),
        Feat(hidden=16, layers=1, epochs=10, batch=8, learning_rate=1e-2),
    ],
)
def test_labels_are_learnt_and_answers_do_not_depend_on_batches(tiny, settings):
    network, test = (
        fit_network(tiny, texts(600, 0), texts(60, 1), sentence_adapter(), settings),
        texts(80, 2),
    )
    found = answer_records(network, test)
    assert np.mean(np.array(found) == test.gold) > 0.7 and set(found) == {"large", "small"}
    assert found == answer_records(network, test, budget=1)


def test_long_texts_are_cut_and_foreign_ids_are_an_error(tiny):
    network = new_network(tiny, texts(4, 0), sentence_adapter(), Tuning(pieces=6, context=3), 0)
    said, _, _ = read_pairs(tiny, texts(9, 4, longest=20), range(9), network.settings)
    assert said["input_ids"].shape[1] <= 9
    wrong = Inputs((Encoded.of([[77]]), Encoded.of([[]])), np.array(["a"]), views=("any", "any"))
    with pytest.raises(InputError, match="hold token id 77"):
        answer_records(network, wrong)


# --- runs


def asked(folder, labels="ab", **rest):
    tiny_checkpoint(folder / "tiny", 40, num_hidden_layers=1)
    for part, held in (("train", "ab"), ("dev", "ab"), ("test", labels)):
        (folder / f"{part}.tsv").write_text(
            "".join(
                f"{text}\t{label}\n"
                for text, label in zip(("w7 w8", "w30 w31", "w9"), held)
                for _ in range(4)
            )
        )

    def side(part):
        return LabelledRecords(
            "en", DocumentRecords("documents", f"file:{folder}/{{part}}.tsv", part)
        )

    return SentencesSpec(
        ExternalCheckpointSpec(str(folder / "tiny")),
        side("train"),
        side("dev"),
        (side("test"),),
        Tuning(epochs=15, batch=4, learning_rate=1e-2),
        **rest,
    )


def test_a_run_over_files_on_a_brought_checkpoint(tmp_path):
    spec, store = asked(tmp_path), Store(tmp_path / "runs")
    assert plan([spec], store, speed=1e9).set_index("stage").loc["sentences", "FLOPs"] > 0
    run([spec], store, progress=False)
    assert store.read(spec)["accuracy"]["en"] == 1.0 and store.read(spec)["majority"]["en"] == 0.5


def test_a_topic_that_training_lacks_is_one_line_before_training(tmp_path):
    with pytest.raises(
        InputError, match="part test, has c, which the training set .* lacks: leave these texts out"
    ):
        run([asked(tmp_path, "abc")], Store(tmp_path / "runs"), progress=False)
    with pytest.raises(InputError, match="records of ner for sentences"):
        side = LabelledRecords("en", RecordsSpec("ner", "micro/en", size=3))
        SentencesSpec(ExternalCheckpointSpec(str(tmp_path / "tiny")), side, side, (side,))


def test_inference_has_the_same_layer(tmp_path):
    tiny_checkpoint(tmp_path / "tiny", 40, num_hidden_layers=1)
    side = LabelledRecords("en", RecordsSpec("nli", "micro/en", "test", 12))
    spec, store = (
        SentencesSpec(
            ExternalCheckpointSpec(str(tmp_path / "tiny")),
            side,
            side,
            (side,),
            Tuning(epochs=1, freeze=0),
        ),
        Store(tmp_path / "runs"),
    )
    run([spec], store, progress=False)
    assert 0 <= store.read(spec)["accuracy"]["en"] <= 1 and store.read(spec)["by_kind"]["en"]
