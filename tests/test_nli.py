"""Fine-tuning on sentence pairs: BERT's own classifier as the oracle, a task that can be learnt,
seeds, and what stays untouched.
"""

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
)

from xlingual_nb.errors import InputError
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.models.configs import FineTuning
from xlingual_nb.tasks import pair_classifier as classifier_module
from xlingual_nb.tasks.pair_classifier import (
    fine_tune,
    new_classifier,
    pair_batch,
    predict,
    stored_pooler,
)
from xlingual_nb.tasks.encoding import Inputs
from xlingual_nb.tasks.metrics import accuracy, by_kind, majority
from xlingual_nb.tasks.tuning import bert_adamw
from xlingual_nb.text.tokenizers import Encoded

SIZES = dict(
    vocab_size=80,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=24,
    pad_token_id=0,
)
VIEWS = [dict(name="en"), dict(name="fake", token_offset=40, special_offset=40)]
QUICK = FineTuning(epochs=1, batch=16, learning_rate=1e-3, max_tokens=24)


@pytest.fixture
def tiny(tmp_path):
    return load_checkpoint(tiny_checkpoint(tmp_path / "tiny", 40, VIEWS, num_hidden_layers=2))


def with_weights(folder, model_class):
    """A folder of 80 words whose weights are those of a model of this class, and that model."""
    torch.manual_seed(1)
    tiny_checkpoint(folder, 40, VIEWS, num_hidden_layers=2)
    model = model_class(BertConfig(**SIZES, xlingual=dict(languages=VIEWS)))
    for p in model.parameters():
        p.data.normal_(0, 0.2)
    model.save_pretrained(folder)
    return load_checkpoint(folder), model


def toy(count, seed, shift=0):
    """The hypothesis repeats the premise's word, says the next one, or one of three others."""
    rng = np.random.default_rng(seed)
    first, label = rng.integers(5, 36, count), rng.integers(0, 3, count)
    second = np.where(
        label == 0, first, np.where(label == 1, first + 1, rng.integers(37, 40, count))
    )
    return Encoded.of(first[:, None] + shift), Encoded.of(second[:, None] + shift), label


def random_pairs(count=9):
    rng = np.random.default_rng(3)
    return [
        Encoded.of(rng.integers(5, 40, rng.integers(1, 14)) for _ in range(count)) for _ in range(2)
    ]


# --- heads against other implementations


def test_cls_head_is_berts_classifier(tmp_path):
    checkpoint, source = with_weights(tmp_path, BertForPreTraining)
    classifier, pairs = new_classifier(checkpoint, QUICK, seed=4), random_pairs()
    other = BertForSequenceClassification(BertConfig(**SIZES, num_labels=3)).eval()
    other.bert.load_state_dict(source.bert.state_dict())
    other.classifier.load_state_dict(classifier.head.out.state_dict())
    classifier.head.eval()
    with torch.no_grad():
        for views in ("en", ("en", "en")):
            inputs, _ = pair_batch(checkpoint, *pairs, range(9), views, 24)
            torch.testing.assert_close(
                classifier(*pairs, range(9), views), other(**inputs).logits, rtol=1e-5, atol=1e-5
            )


def test_siamese_head_token_by_token(tiny):
    classifier, (first, second) = (
        new_classifier(tiny, FineTuning(head="siamese", dropout=0.0, max_tokens=14), seed=4),
        random_pairs(),
    )
    with torch.no_grad():
        together = classifier(first, second, range(9), "en")
        for i in range(9):
            ids = pair_batch(tiny, first, second, [i], "en", 14)[0]
            states = classifier.checkpoint.model.bert(**ids).last_hidden_state[0]
            middle, end = np.flatnonzero(ids["input_ids"][0] == 3)
            u, v = sum(states[1:middle]) / 8, sum(states[middle + 1 : end]) / 8
            joined = torch.cat([states[0], u, v, u - v, (u - v).abs(), u * v])
            hidden = torch.tanh(classifier.head.layer.weight @ joined + classifier.head.layer.bias)
            torch.testing.assert_close(
                together[i], classifier.head.out.weight @ hidden, rtol=1e-4, atol=1e-5
            )


def test_pooler_comes_from_pretraining_where_there_is_one(tmp_path):
    for kind in (BertForPreTraining, BertModel):
        checkpoint, source = with_weights(tmp_path / kind.__name__, kind)
        pooler = source.get_submodule(
            "bert.pooler.dense" if kind is BertForPreTraining else "pooler.dense"
        ).state_dict()
        assert all(
            torch.equal(stored_pooler(checkpoint)[name], pooler[name])
            for name in ("weight", "bias")
        )
        assert torch.equal(new_classifier(checkpoint, QUICK, 0).head.layer.weight, pooler["weight"])
    checkpoint, _ = with_weights(tmp_path / "mlm", BertForMaskedLM)
    fresh = new_classifier(checkpoint, QUICK, 0).head.layer
    assert (
        stored_pooler(checkpoint) is None
        and 0.01 < fresh.weight.std() < 0.03
        and not fresh.bias.any()
    )


# --- training


def test_a_comparison_is_learnt_by_the_head_that_compares(tiny):
    """Five seeds come to 1.0 and, where the words were never seen, to .36 to .50: bounds far from
    both hold on any machine.
    """
    heard = []
    settings = FineTuning(epochs=12, learning_rate=5e-3, dropout=0.0, head="siamese")
    learnt = fine_tune(
        tiny, *toy(640, 0), "en", settings, 0, lambda done, total: heard.append((done, total))
    )
    first, second, label = toy(300, 1)
    assert accuracy(predict(learnt, first, second, "en"), label) > 0.9 > 0.5 > majority(label)
    assert (
        heard == [(i + 1, 240) for i in range(240)]
        and len(learnt.losses) == 240
        and np.mean(learnt.losses[-20:]) < 0.3 < learnt.losses[0]
    )
    assert (
        accuracy(predict(learnt, *toy(300, 1, shift=40)[:2], "fake"), label) < 0.8
    )  # never saw these ids


@pytest.mark.parametrize("head", ["cls", "siamese"])
def test_what_words_tell_is_learnt_by_both_heads(tiny, head):
    """The label is in both sentences: a word of the hypothesis alone, or else one of the premise.
    (Five seeds: .98 and more.)
    """

    def pairs(count, seed):
        first, second, _ = toy(count, seed)
        return first, second, np.where(second.ids > 30, 2, first.ids > 15)

    learnt = fine_tune(
        tiny,
        *pairs(640, 0),
        "en",
        FineTuning(epochs=20, learning_rate=5e-3, dropout=0.0, head=head),
        0,
    )
    first, second, label = pairs(300, 1)
    assert accuracy(predict(learnt, first, second, "en"), label) > 0.9 > 0.6 > majority(label)


def test_the_language_of_each_side_is_used(tiny):
    first, second, label = toy(400, 0)
    _, other, _ = toy(400, 0, shift=40)
    learnt = fine_tune(
        tiny,
        first,
        other,
        label,
        ("en", "fake"),
        FineTuning(epochs=12, learning_rate=5e-3, dropout=0.0, head="siamese"),
        0,
    )
    assert accuracy(predict(learnt, first, other, ("en", "fake")), label) > 0.9
    with pytest.raises(InputError, match="outside 40..79"):
        predict(learnt, first, second, ("en", "fake"))


def digest(model):
    return hashlib.sha256(
        b"".join(p.detach().numpy().tobytes() for p in model.state_dict().values())
    ).hexdigest()


def test_the_checkpoint_stays_and_the_copy_moves(tiny):
    before, inputs = digest(tiny.model), pair_batch(tiny, *random_pairs(), range(9), "en", 24)[0]
    random, states = torch.get_rng_state(), tiny.model(**inputs).logits
    learnt = fine_tune(tiny, *toy(64, 0), "en", QUICK, 0)
    assert (
        digest(tiny.model) == before
        and not tiny.model.training
        and not any(p.requires_grad for p in tiny.model.parameters())
    )
    assert torch.equal(tiny.model(**inputs).logits, states) and torch.equal(
        torch.get_rng_state(), random
    )
    ours, theirs = (
        dict(m.base_model.named_parameters()) for m in (learnt.checkpoint.model, tiny.model)
    )
    # all parameters are trained
    assert all(not torch.equal(p, theirs[name]) for name, p in ours.items())
    assert not any(m.training for m in (learnt.checkpoint.model, learnt.head)) and not any(
        p.requires_grad for p in learnt.head.parameters()
    )


def test_a_seed_decides_everything(tiny):
    made = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(noise)
        learnt = fine_tune(tiny, *toy(64, 0), "en", QUICK, seed)
        made.append((digest(learnt.checkpoint.model), digest(learnt.head), learnt.losses))
    assert made[0] == made[1] and all(a != b for a, b in zip(made[0], made[2]))


APART = [
    dict(name="en", position_offset=0),
    dict(name="fake", token_offset=40, special_offset=40, position_offset=24, token_type=1),
]


@pytest.mark.parametrize("head", ["cls", "siamese"])
@pytest.mark.parametrize("frozen", ["nothing", "embeddings"])
def test_side_by_side_is_as_one_by_one(tmp_path, monkeypatch, head, frozen):
    """Pairs of uneven length, a language a side with positions and types of its own: losses and
    weights are those of transformers' own layers.
    """
    sizes = dict(num_hidden_layers=2, max_position_embeddings=48, num_attention_heads=2)
    checkpoint = load_checkpoint(tiny_checkpoint(tmp_path / "tiny", 40, APART, **sizes))
    first, second = random_pairs(70)
    pairs = first, Encoded(second.ids + 40, second.starts), np.arange(70) % 3
    settings = replace(QUICK, epochs=2, dropout=0.0, head=head, frozen=frozen)
    quick = fine_tune(checkpoint, *pairs, ("en", "fake"), settings, 0)
    monkeypatch.setattr(classifier_module, "is_standard_bert", lambda config: False)
    plain = fine_tune(checkpoint, *pairs, ("en", "fake"), settings, 0)
    assert quick.losses == pytest.approx(plain.losses, abs=1e-5) and len(quick.losses) == 10
    for part, other in (
        (quick.checkpoint.model.base_model, plain.checkpoint.model.base_model),
        (quick.head, plain.head),
    ):
        for (name, ours), theirs in zip(part.named_parameters(), other.parameters()):
            torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3, msg=name)
    assert digest(quick.checkpoint.model) != digest(checkpoint.model)


def test_prediction_does_not_depend_on_batches(tiny):
    learnt, pairs = fine_tune(tiny, *toy(64, 0), "en", QUICK, 0), random_pairs(40)
    # no two labels are as near as rounding then
    for part in (learnt.checkpoint.model, learnt.head):
        part.double()
    assert np.array_equal(
        predict(learnt, *pairs, "en", budget=1), predict(learnt, *pairs, "en", budget=10_000)
    )


def test_the_optimiser_is_that_of_bert(tiny):
    classifier = new_classifier(tiny, FineTuning(dropout=0.3), 0)
    decayed, plain = bert_adamw(
        (classifier.checkpoint.model.base_model, classifier.head), classifier.settings
    ).param_groups
    named = dict(classifier.checkpoint.model.bert.named_parameters()) | dict(
        classifier.head.named_parameters()
    )
    names = {id(p): name for name, p in named.items()}
    assert (
        decayed["weight_decay"] == 0.01
        and plain["weight_decay"] == 0
        and len(names) == len(decayed["params"]) + len(plain["params"])
    )
    assert all(
        ("LayerNorm" in names[id(p)]) or names[id(p)].endswith("bias") for p in plain["params"]
    )
    assert not any(
        "LayerNorm" in names[id(p)] or names[id(p)].endswith("bias") for p in decayed["params"]
    )
    shares = {
        m.p
        for module in (classifier.checkpoint.model, classifier.head)
        for m in module.modules()
        if isinstance(m, torch.nn.Dropout)
    }
    assert shares == {0.3} and {
        m.p for m in tiny.model.modules() if isinstance(m, torch.nn.Dropout)
    } == {0.1}


def stored(model):
    return {name: weights.clone() for name, weights in model.base_model.named_parameters()}


def test_frozen_embeddings_stay_and_the_rest_moves(tiny):
    before = stored(tiny.model)
    learnt = fine_tune(tiny, *toy(64, 0), "en", replace(QUICK, frozen="embeddings"), 0)
    moved = {
        name
        for name, weights in stored(learnt.checkpoint.model).items()
        if not torch.equal(weights, before[name])
    }
    assert (
        moved == {name for name in before if not name.startswith("embeddings.")} and len(moved) > 20
    )


def dev_of(count, seed):
    first, second, label = toy(count, seed)
    return Inputs((first, second), label, views=("en", "en"))


def test_the_best_epoch_on_source_pairs_is_kept(tiny):
    """What comes out is the model that as many epochs give whose schedule is the same, found by
    stopping it by hand.
    """
    settings, dev = (
        FineTuning(epochs=6, batch=32, learning_rate=5e-3, dropout=0.0, head="siamese", patience=6),
        dev_of(60, 3),
    )
    learnt = fine_tune(tiny, *toy(320, 0), "en", settings, 0, dev=dev)
    scores = learnt.dev_accuracy
    assert len(scores) == 6 and len(learnt.losses) == 60 and max(scores) > scores[0]
    assert accuracy(predict(learnt, *dev.texts, "en"), dev.gold) == max(scores)
    through = fine_tune(tiny, *toy(320, 0), "en", replace(settings, patience=0), 0)
    assert through.losses == learnt.losses and through.dev_accuracy == ()  # looking changes nothing
    same = digest(through.checkpoint.model) == digest(learnt.checkpoint.model)
    assert same == (int(np.argmax(scores)) == 5)


def test_patience_ends_the_training(tiny):
    heard, unlearnable = [], dev_of(60, 3)
    unlearnable = Inputs(unlearnable.texts, np.full(60, 2), views=("en", "en"))
    settings = FineTuning(
        epochs=9, batch=32, learning_rate=1e-9, dropout=0.0, head="siamese", patience=2
    )
    learnt = fine_tune(
        tiny, *toy(64, 0), "en", settings, 0, lambda *done: heard.append(done), dev=unlearnable
    )
    assert len(learnt.dev_accuracy) == 3 and len(learnt.losses) == 6 and heard[-1] == (18, 18)


# --- scores and wrong input


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from("abc")),
        min_size=1,
        max_size=30,
    )
)
def test_scores(rows):
    predicted, labels, kinds = zip(*rows)
    assert accuracy(predicted, labels) == sum(p == l for p, l in zip(predicted, labels)) / len(rows)
    assert majority(labels) == max(labels.count(i) for i in range(3)) / len(rows)
    scores = by_kind(predicted, labels, kinds)
    assert set(scores) == set(kinds) and [kinds.count(k) for k in scores] == sorted(
        map(kinds.count, scores), reverse=True
    )
    assert sum(scores[k] * kinds.count(k) for k in scores) / len(rows) == pytest.approx(
        accuracy(predicted, labels)
    )


EMPTY, (A, B, L) = Encoded.of([]), toy(4, 0)


@pytest.mark.parametrize(
    "call, said",
    [
        (
            lambda c: fine_tune(c, A, B, [0, 1, 2, 3], "en", QUICK, 0),
            "label 3: give places in entailment, neutral, contradiction, 0 to 2",
        ),
        (lambda c: fine_tune(c, A, B, [0, 1, 2], "en", QUICK, 0), "3 labels for 4 sentence pairs"),
        (lambda c: fine_tune(c, A, B.take([0]), L, "en", QUICK, 0), "4 premises and 1 hypotheses"),
        (lambda c: fine_tune(c, EMPTY, EMPTY, [], "en", QUICK, 0), "no sentences of 'en'"),
        (lambda c: fine_tune(c, A, B, L, "es", QUICK, 0), "not 'es'"),
        (
            lambda c: fine_tune(c, A, B, L, "en", FineTuning(max_tokens=4), 0),
            "a pair takes 5 or more",
        ),
        (
            lambda c: fine_tune(c, A, B, L, "en", FineTuning(patience=1), 0),
            "patience=1 needs development pairs: give dev",
        ),
        (lambda c: FineTuning(patience=-1), "patience=-1"),
        (lambda c: FineTuning(frozen="head"), "frozen='head': choose from nothing, embeddings"),
        (lambda c: fine_tune(c, A, B, L, "fake", QUICK, 0), "outside 40..79"),
        (lambda c: FineTuning(head="mean"), "head='mean': choose from cls, siamese"),
        (lambda c: accuracy([0], [0, 1]), "1 predictions for 2 labels"),
        (lambda c: accuracy([], []), "of at least one"),
        (lambda c: majority([]), "at least one"),
        (lambda c: by_kind([0], [0], ["a", "b"]), "2 kinds for 1 labels"),
        (
            lambda c: new_classifier(SimpleNamespace(model=None, path="en.vec"), QUICK, 0),
            "en.vec has no model to fine-tune",
        ),
    ],
)
def test_one_line_for_what_is_wrong(tiny, call, said):
    with pytest.raises(InputError) as caught:
        call(tiny)
    assert said in str(caught.value) and "\n" not in str(caught.value)
