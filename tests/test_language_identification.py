"""Languages by layer: means by hand, one classifier a layer, what is held out, records of every
source, runs.
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
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.encoding import Inputs
from xlingual_nb.tasks.language_identification import (
    LANGUAGE_READING,
    LanguageIdSpec,
    LanguageRecords,
    read_languages,
)
from xlingual_nb.tasks.linear_probes import (
    predict_by_layer,
    split_off_development,
    mean_text_vectors,
    train_layers,
)
from xlingual_nb.tasks.recipes import Bag
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, load_records
from xlingual_nb.text.tokenizers import Encoded

torch.set_num_threads(1)
real = pytest.mark.skipif(
    not Path(os.environ.get("XLINGUAL_DATA") or "-", "langid").is_dir(),
    reason="XLINGUAL_DATA names no folder with languages",
)


@pytest.fixture
def tiny(tmp_path):
    return load_checkpoint(tiny_checkpoint(tmp_path / "tiny", 40, num_hidden_layers=2))


def texts(count, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, count)
    return Inputs(
        (
            Encoded.of(
                rng.choice([5, 6, 7, *range(10 + 10 * k, 20 + 10 * k)], rng.integers(3, 9))
                for k in label
            ),
        ),
        np.array(["en", "es", "fr"])[label],
        kinds=tuple(np.array(["en", "es", "fr"])[label]),
        views=("any",),
    )


def by_hand(checkpoint, text, layer):
    made = checkpoint.model.base_model(
        input_ids=torch.tensor([[2, *text, 3]]), output_hidden_states=True
    )
    return made.hidden_states[layer][0, 1:-1].mean(0)


def test_means_and_labels_are_those_of_one_text_after_another(tiny):
    train, test = texts(400, 0), texts(12, 1)
    learnt = train_layers(tiny, train, None, Bag(learning_rate=1e-2, epochs=6))
    found, x = predict_by_layer(tiny, learnt, test), mean_text_vectors(tiny, test, ())
    assert [*found] == [0, 1, 2] == [*x] and set(learnt.labels) == {"en", "es", "fr"}
    for layer, linear in learnt.by_layer.items():
        for i, text in enumerate(test.texts[0]):
            mean = by_hand(tiny, text, layer)
            torch.testing.assert_close(x[layer][i], mean, atol=1e-5, rtol=1e-5)
            scores = linear.weight @ mean + linear.bias
            assert found[layer][i] == learnt.labels[int(scores.argmax())]
    assert min(np.mean(labels == test.gold) for labels in found.values()) > 0.7


def test_a_layer_does_not_depend_on_the_others(tiny):
    settings = Bag(learning_rate=1e-2, epochs=2)
    alone = train_layers(
        tiny,
        texts(60, 0),
        texts(20, 1),
        Bag((1,), *[getattr(settings, f) for f in ("epochs", "batch", "learning_rate")]),
    )
    together = train_layers(tiny, texts(60, 0), texts(20, 1), settings)
    assert (
        torch.equal(alone.by_layer[1].weight, together.by_layer[1].weight)
        and alone.scores[1] == together.scores[1]
    )
    with pytest.raises(InputError, match=r"layers 0 \(embeddings\) to 2"):
        train_layers(tiny, texts(20, 0), None, Bag((3,)))


def test_a_tenth_of_the_texts_is_held_out():
    whole = texts(35, 0)
    (train, dev), again = split_off_development(whole), split_off_development(whole)[1]
    assert len(train) == 32 and len(dev) == 3 and dev.texts == again.texts

    def rows(inputs):
        return sorted(
            (label, *ids) for label, ids in zip(inputs.gold.tolist(), map(tuple, inputs.texts[0]))
        )

    assert sorted(rows(train) + rows(dev)) == rows(whole)


# --- records


def test_texts_are_their_first_two_sentences_and_languages_say_other_things(tmp_path):
    (tmp_path / "own.tsv").write_text("It rains. It pours. Nobody is out.\ten\nIl pleut.\tfr\n")
    assert read_languages(tmp_path / "own.tsv") == [
        dict(text="It rains. It pours.", label="en"),
        dict(text="Il pleut.", label="fr"),
    ]
    found = load_records(LANGUAGE_READING, "micro/en+es+el", "train", 20)
    assert Counter(r["label"] for r in found) == dict(en=20, es=20, el=20)


@real
def test_languages_of_the_data_folder():
    assert Counter(
        r["label"] for r in load_records(LANGUAGE_READING, "wili/wili10", "test")
    ) == dict.fromkeys("ang ar cy da de en fo is nb sv".split(), 500)


def test_a_run_by_layer_and_language(tmp_path):
    tiny_checkpoint(tmp_path / "tiny", 40, num_hidden_layers=1)
    lines = [f"w{5 + i % 3} w{10 + i % 9}\ten\nw{5 + i % 3} w{20 + i % 9}\tes\n" for i in range(40)]
    for part in ("train", "test"):
        (tmp_path / f"{part}.tsv").write_text("".join(lines))

    def side(part):
        return LabelledRecords(
            "all", LanguageRecords("langid", f"file:{tmp_path}/{{part}}.tsv", part)
        )

    spec = LanguageIdSpec(
        ExternalCheckpointSpec(str(tmp_path / "tiny")),
        side("train"),
        (side("test"),),
        Bag(batch=4, learning_rate=1e-2, epochs=20),
    )
    store = Store(tmp_path / "runs")
    run([spec], store, progress=False)
    found = store.read(spec)
    assert (
        found["majority"]["all"] == 0.5
        and [*found["accuracy"]["all"]] == ["0", "1"]
        and min(found["accuracy"]["all"].values()) > 0.7
    )
    for layer, accuracy in found["accuracy"]["all"].items():
        assert np.mean([*found["by_language"]["all"][layer].values()]) == pytest.approx(accuracy)
    with pytest.raises(InputError, match="records of ner for langid"):
        LanguageIdSpec(
            spec.checkpoint, LabelledRecords("en", RecordsSpec("ner", "micro/en", size=3)), ()
        )
