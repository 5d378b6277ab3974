"""NLI with a shift: hooks of another kind, one pair at a time; NLI as it is without one; and what
is refused.
"""

from dataclasses import replace

import pytest
import torch

from xlingual_nb.errors import InputError
from xlingual_nb.measures.mean_shift import language_means
from xlingual_nb.models.external import ExternalCheckpointSpec
from xlingual_nb.models.checkpoints import load_checkpoint
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import FineTuning, Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import read_measures
from xlingual_nb.tasks import shifted_nli
from xlingual_nb.tasks.pair_classifier import fine_tune, new_classifier, pair_batch
from xlingual_nb.tasks.nli import NLI, NliSpec
from xlingual_nb.tasks.shifted_nli import (
    ShiftedNliSpec,
    accuracy_when_shifted,
    means_by_language,
    shifts_to_source,
)
from xlingual_nb.tasks.task import encode_for_checkpoint
from xlingual_nb.text import tokenizers
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, read_records
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

NAMES = "en", "es", "de"
TEXTS = [
    CorpusSpec(f"micro/{n}", parameters=(("sentences", 60), ("vocabulary", 128))) for n in NAMES
]
BERT = PretrainSpec(
    tuple(map(Language, NAMES, TEXTS)),
    TokenizerSpec(TEXTS[0], 400, "words", tuple(TEXTS[1:])),
    Shape(3, 16, 1, 32, 40),
    Training(epochs=0, batch=16, steps=5),
)


def pairs(name, part, n):
    return LabelledRecords(
        name,
        RecordsSpec("nli", f"micro/{name}", part, n, (("level", "negated"), ("vocabulary", 128))),
    )


TESTS = tuple((pairs(n, "dev", 12), pairs(n, "test", 15)) for n in NAMES)
SETTINGS = FineTuning(2, 16, 1e-3, frozen="embeddings", frozen_layers=2)
ASKED = ShiftedNliSpec(
    BERT, pairs("en", "train", 60), TESTS[0][0], TESTS, 2, (0.0, 1.0, 30.0), SETTINGS, seed=3
)


@pytest.fixture(scope="module")
def store(shared_store):
    run([ASKED], shared_store, Inline(), progress=False)
    return shared_store


@pytest.fixture(scope="module")
def learnt(store):
    encoder, tokenizer = (
        load_checkpoint(store.path(BERT)),
        tokenizers.read_tokenizer(store.path(BERT.tokenizer)),
    )

    def said(side):
        return encode_for_checkpoint(NLI, BERT, side, tokenizer, store, encoder)

    train = said(ASKED.train)
    return (
        encoder,
        tokenizer,
        said,
        fine_tune(encoder, *train.texts, train.gold, train.views, SETTINGS, 3),
    )


def test_frozen_layers_stay_and_the_rest_moves(learnt):
    encoder, _, _, classifier = learnt
    before, after = (
        dict(model.base_model.named_parameters())
        for model in (encoder.model, classifier.checkpoint.model)
    )
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert (
        moved == {name for name in before if name.startswith("encoder.layer.2.")}
        and len(moved) == 16
    )
    with pytest.raises(InputError, match="freeze=4 of a model with layers 0 .* to 3"):
        new_classifier(encoder, replace(SETTINGS, frozen_layers=4), 0)
    for wrong in (dict(frozen="nothing"), dict(frozen_layers=-1)):
        with pytest.raises(InputError, match="blocks are frozen above frozen embeddings"):
            replace(SETTINGS, **wrong)


@pytest.mark.parametrize("layer", range(4))
def test_answers_pair_by_pair_with_another_hook(learnt, layer):
    """The block below the layer gives more, where the library gives more to the block above."""
    _, _, said, classifier = learnt
    inputs, vector = said(TESTS[1][1]), torch.linspace(-9, 9, 16)
    bert, right = classifier.checkpoint.model.bert, 0
    below = bert.embeddings if not layer else bert.encoder.layer[layer - 1]
    hook = below.register_forward_hook(
        lambda _, given, made: (
            (made[0] + vector, *made[1:]) if isinstance(made, tuple) else made + vector
        )
    )
    with torch.no_grad():
        for i, gold in enumerate(inputs.gold):
            ids, parts = pair_batch(classifier.checkpoint, *inputs.texts, [i], inputs.views, 128)
            right += int(classifier.head(bert(**ids).last_hidden_state, parts).argmax()) == gold
    hook.remove()
    assert accuracy_when_shifted(classifier, inputs, layer, vector) == pytest.approx(
        right / len(inputs)
    )


def test_a_run_holds_what_was_found(store, learnt):
    _, tokenizer, said, classifier = learnt
    found, (dev, test) = read_measures(store.path(ASKED)), map(said, TESTS[1])
    means = {
        n: language_means(
            classifier.checkpoint,
            {
                r[s]: 0
                for r in read_records(store.path(one.records))
                for s in ("premise", "hypothesis")
            },
            n,
            2,
        )[2]
        for n, (one, _) in zip(NAMES, TESTS)
    }
    for name, vector in (
        ("shift", means["en"] - means["es"]),
        ("other", means["en"] - means["de"]),
    ):
        tried = {
            alpha: accuracy_when_shifted(classifier, dev, 2, alpha * vector)
            for alpha in ASKED.alphas
        }
        assert {alpha: found[f"{name} es dev {alpha:g}"] for alpha in tried} == tried
        best = min(alpha for alpha in tried if tried[alpha] == max(tried.values()))
        assert found[f"{name} es weight"] == best
        assert found[f"{name} es accuracy"] == accuracy_when_shifted(
            classifier, test, 2, best * vector
        )
    across = shifts_to_source(
        ASKED, means_by_language(ASKED, classifier.checkpoint, tokenizer, store)
    )["orthogonal"]["es"]
    assert abs(across @ (means["en"] - means["es"])) < 1e-4 and "shift en accuracy" not in found


def test_without_a_shift_it_is_nli_as_it_is(store):
    both = NliSpec(BERT, ASKED.train, tuple((t, t) for _, t in TESTS), SETTINGS, seed=3)
    run([both], store, Inline(), progress=False)
    plain, moved = read_measures(store.path(both)), read_measures(store.path(ASKED))
    assert all(
        moved[f"plain {n}"] == plain[f"accuracy {n}|{n}"]
        and moved[f"majority {n}"] == plain[f"majority {n}|{n}"]
        for n in NAMES
    )


def test_one_target_has_no_other_and_a_brought_model_costs_as_much(store):
    alone = replace(ASKED, tests=TESTS[:2])
    assert shifts_to_source(alone, dict(zip(NAMES, torch.eye(16)))).keys() == {
        "shift",
        "orthogonal",
    }
    brought = replace(alone, checkpoint=ExternalCheckpointSpec(str(store.path(BERT))))
    run([brought, alone], store, Inline(), progress=False)
    assert read_measures(store.path(brought)) == read_measures(store.path(alone))
    costs = [
        shifted_nli.shifted_cost(spec)["flops"]
        for spec in (brought, alone, ASKED, replace(ASKED, alphas=(*ASKED.alphas, 2.0)))
    ]
    assert 0 < costs[0] == costs[1] < costs[2] < costs[3]
    assert (
        shifted_nli.shifted_cost(replace(alone, checkpoint=ExternalCheckpointSpec("nowhere")))[
            "flops"
        ]
        == 0
    )


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(alphas=(1.0,)), "give 0 too"),
        (dict(layer=4), "layer 4 is not there"),
        (dict(checkpoint="bert"), "give the spec of a run"),
        (
            dict(tests=((TESTS[0][0], TESTS[1][1]),)),
            "pairs to develop on in en, to test on in another",
        ),
    ],
)
def test_what_a_spec_refuses(fields, message):
    with pytest.raises(InputError, match=message):
        replace(ASKED, **fields)
