"""The loop of all tasks: what it draws, what it keeps, which layers stay as they are, in every
architecture.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from xlingual_nb.errors import InputError
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.models.mlm_batches import DROPOUT, seeded_generator
from xlingual_nb.tasks import packed_bert
from xlingual_nb.tasks.encoding import Inputs
from xlingual_nb.tasks.finetuning import fit_network, new_network, packed_readers
from xlingual_nb.tasks.packed_texts import PACKED, QuickDropout, encode_all_texts, use_quick_dropout
from xlingual_nb.tasks.recipes import Feat, Tuning
from xlingual_nb.tasks.task_heads import pos_adapter, sentence_adapter
from xlingual_nb.tasks.tuning import (
    FusedAdamW,
    transformer_blocks,
    freeze_lower_layers,
    halve_on_plateau,
    bert_adamw,
    count_epochs_without_gain,
    train_step,
    trainable_copy,
    tune,
    linear_warmup_schedule,
)
from xlingual_nb.text.tokenizers import Encoded

torch.set_num_threads(1)
SIZES = dict(vocab_size=40, max_position_embeddings=26, pad_token_id=0)
WIDE = dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32)
FAMILIES = {
    "bert": transformers.BertConfig(**SIZES, **WIDE),
    "roberta": transformers.RobertaConfig(**SIZES, **WIDE),
    "xlm-roberta": transformers.XLMRobertaConfig(**SIZES, **WIDE),
    "electra": transformers.ElectraConfig(**SIZES, **WIDE, embedding_size=16),
    "distilbert": transformers.DistilBertConfig(
        **SIZES, dim=16, n_layers=3, n_heads=2, hidden_dim=32
    ),
}
ALBERT = transformers.AlbertConfig(**SIZES, **WIDE, embedding_size=16)


def opened(folder, family):
    return load_checkpoint(
        tiny_checkpoint(folder / "tiny", 40, config=copy.deepcopy(FAMILIES.get(family, ALBERT)))
    )


def bytes_of(model):
    return {
        name: weights.numpy().tobytes() for name, weights in model.base_model.state_dict().items()
    }


def step(model, settings):
    """One step of training on three texts, each of whose tokens should have larger numbers."""
    loss = (
        -model.base_model(
            input_ids=torch.arange(3, 30).reshape(3, 9), attention_mask=torch.ones(3, 9).long()
        )
        .last_hidden_state.square()
        .mean()
    )
    tune(
        [model],
        bert_adamw([model.base_model], settings),
        linear_warmup_schedule(replace(settings, warmup=0.0, epochs=1)),
        lambda numbers: loss,
        3,
        0,
    )


def layer_of(name):
    """The layer that a parameter belongs to, read off its name."""
    found = [int(part) for part in name.split(".") if part.isdigit()]
    return found[0] + 1 if found else 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [None, 0, 2, 3])
def test_frozen_layers_keep_their_bytes_and_the_others_move(tmp_path, family, layer):
    checkpoint = opened(tmp_path, family)
    model, before = trainable_copy(checkpoint, layer, 0.0), bytes_of(checkpoint.model)
    if layer == 3:
        assert not [name for name, p in model.base_model.named_parameters() if p.requires_grad]
        return
    step(model, Tuning(learning_rate=1e-2, weight_decay=0.1))
    parameters, after = dict(checkpoint.model.base_model.named_parameters()), bytes_of(model)
    moved = {name for name in parameters if after[name] != before[name]}
    wanted = {name for name in parameters if layer is None or layer_of(name) > layer}
    # a row of biases may be still: the gradient of a key's is zero
    assert moved <= wanted and len(moved) > 0.8 * len(wanted)
    assert bytes_of(checkpoint.model) == before


def test_a_layer_that_is_not_there_and_layers_that_are_one(tmp_path):
    with pytest.raises(InputError, match=r"freeze=4 of a model with layers 0 \(embeddings\) to 3"):
        freeze_lower_layers(opened(tmp_path, "bert").model, 4)
    albert = opened(tmp_path / "albert", "albert").model
    freeze_lower_layers(albert, 0)
    assert transformer_blocks(albert) is None
    with pytest.raises(InputError, match="freeze=1: the layers of albert are one and the same"):
        freeze_lower_layers(albert, 1)


# --- the loop


class Counter(nn.Module):
    """A weight, and what happened."""

    def __init__(self):
        super().__init__()
        self.weight, self.seen = nn.Parameter(torch.zeros(1, 1)), []

    def loss(self, numbers):
        self.seen.append(sorted(int(i) for i in numbers))
        assert self.training
        return (self.weight - 1).square().sum() + 0 * torch.rand(())


def ran(course, scores=None, count=10, seed=0, **settings):
    module, told, heard = Counter(), iter(scores or ()), []

    def score():
        assert not module.training
        return next(told)

    optimizer = bert_adamw([module], Tuning(**settings))
    found = tune(
        [module],
        optimizer,
        course,
        module.loss,
        count,
        seed,
        lambda *done: heard.append(done),
        scores and score,
    )
    return module, *found, heard


def test_every_record_is_seen_once_an_epoch_in_an_order_of_the_seed():
    course = linear_warmup_schedule(Tuning(epochs=3, batch=4))
    module, losses, scores, heard = ran(course)
    epochs = [module.seen[i : i + 3] for i in (0, 3, 6)]
    assert (
        all(sorted(sum(epoch, [])) == [*range(10)] for epoch in epochs)
        and epochs[0] != epochs[1] != epochs[2]
    )
    assert [len(batch) for batch in epochs[0]] == [4, 4, 2] and len(losses) == 9 and scores == ()
    assert heard == [(n, 9) for n in range(1, 10)]
    assert ran(course)[0].seen == module.seen != ran(course, seed=1)[0].seen
    assert not module.training and not module.weight.requires_grad


@pytest.mark.parametrize(
    "scores, best", [([0.1, 0.5, 0.3], 2), ([0.5, 0.5, 0.5], 1), ([0, 0, 0.1], 3)]
)
def test_the_first_of_the_best_epochs_is_kept(scores, best):
    """A constant rate, so that what an epoch leaves is what training to it leaves."""
    course = replace(
        linear_warmup_schedule(Tuning(epochs=3, batch=10)), rate=lambda step, steps, scores: 0.1
    )
    kept, until = ran(course, scores)[0], ran(replace(course, epochs=best))[0]
    assert torch.equal(kept.weight, until.weight) and ran(course, scores)[2] == tuple(scores)


def test_the_rate_is_halved_when_nothing_is_gained_and_then_it_ends():
    settings, scores = (
        Feat(learning_rate=8e-5, least=1e-5, epochs=50, batch=10),
        [0.1, 0.2, 0.2, 0.3, 0.1, 0.3, 0.1, 0.2],
    )
    module, losses, told, heard = ran(halve_on_plateau(settings), scores)
    assert told == tuple(scores[:7]) and len(losses) == 7 and heard[-1] == (50, 50)
    # 4e-5, 2e-5, 1e-5; and 5e-6 is too little
    assert [count_epochs_without_gain(scores[:n]) for n in range(1, 8)] == [0, 0, 1, 1, 2, 3, 4]


def test_rates_are_those_of_the_schedule():
    rates = []
    course = linear_warmup_schedule(Tuning(epochs=2, batch=1, learning_rate=1e-3))
    noted = replace(course, rate=lambda *at: rates.append(course.rate(*at)) or rates[-1])
    ran(noted)
    wanted = [1e-3 * (i / 2 if i < 2 else (20 - i) / 18) for i in range(20)]
    np.testing.assert_allclose(rates, wanted)  # asked for once a step


# --- several texts a row


def tagged(count, seed):
    """Sentences of 1 to 20 words, whose every second piece begins a word; so that rows are longer
    than the positions.
    """
    rng = np.random.default_rng(seed)
    texts = [rng.integers(5, 40, n) for n in rng.permutation(count) % 20 + 1]
    firsts = [np.arange(0, len(text), 2) for text in texts]
    return Inputs(
        (Encoded.of(texts),),
        [["AB"[i % 2] for i in range(len(f))] for f in firsts],
        Encoded.of(firsts),
        views=("any",),
    )


def paired(count, seed):
    """Pairs of texts with a label, every fifth a text alone."""
    rng = np.random.default_rng(seed)
    sides = [
        Encoded.of([rng.integers(5, 40, n) for n in rng.permutation(count) % 10 + 1])
        for _ in range(2)
    ]
    sides[1] = Encoded.of([ids if i % 5 else [] for i, ids in enumerate(sides[1])])
    return Inputs(tuple(sides), np.array(["AB"[i % 2] for i in range(count)]), views=("any", "any"))


def both_ways(checkpoint, inputs, form, settings):
    """Vectors, numbers of units, loss and gradients by name: of the model itself, one text a row,
    and as `fit_network` reads.
    """
    network = new_network(checkpoint, inputs, form, settings, 0)
    steps, numbers, found = (
        FusedAdamW((network.encoder.model.base_model, network.head), settings),
        np.arange(len(inputs))[::-1],
        [],
    )
    (quick,) = packed_readers(network, steps, 0, inputs)
    for read in (lambda numbers: network(inputs, numbers), quick):
        network.encoder.model.train()
        steps.zero_grad()
        x, lengths = read(numbers)
        loss = network.head.loss(x, lengths, [inputs.gold[i] for i in numbers])
        loss.backward()
        slopes = {
            n: p.grad.clone()
            for n, p in network.encoder.model.base_model.named_parameters()
            if p.requires_grad
        }
        found.append((x, lengths, loss, slopes))
    return found


def alike(found):
    (x, lengths, loss, slopes), (packed, n, near, close) = found
    assert (
        torch.equal(lengths, n)
        and torch.allclose(x, packed, atol=1e-5)
        and torch.allclose(loss, near, atol=1e-6)
    )
    assert all(torch.allclose(slopes[name], close[name], atol=1e-5) for name in slopes)
    return [name for name, slope in slopes.items() if slope.abs().max() > 1e-5]


@pytest.mark.parametrize("family", [*FAMILIES, "albert"])
def test_texts_side_by_side_are_read_as_each_alone(tmp_path, family):
    """Vectors, loss and the gradient of every parameter, in each architecture that is packed."""
    checkpoint = opened(tmp_path, family)
    assert checkpoint.model.config.model_type in PACKED
    assert packed_bert.is_standard_bert(checkpoint.model.config) == (family == "bert")
    assert len(alike(both_ways(checkpoint, tagged(32, 1), pos_adapter(), Tuning(dropout=0.0)))) > 10


@pytest.mark.parametrize("layer", [None, 0, 2, 3])
def test_a_bert_that_is_written_out_is_that_of_transformers(tmp_path, layer):
    """Pairs with segments, and layers that are frozen: what is trained has a gradient, and it is
    the same.
    """
    moved = alike(
        both_ways(
            opened(tmp_path, "bert"),
            paired(32, 2),
            sentence_adapter(),
            Tuning(dropout=0.0, freeze=layer),
        )
    )
    layers = {layer_of(name) for name in moved}
    assert layers == {None: {0, 1, 2, 3}, 0: {1, 2, 3}, 2: {3}, 3: set()}[layer]
    assert layer is not None or "embeddings.token_type_embeddings.weight" in moved


def test_rows_read_once_are_those_of_a_batch(tmp_path):
    """Each text's arguments and places, whichever batch it was read in."""
    checkpoint, inputs = opened(tmp_path, "roberta"), tagged(1100, 3)
    texts = encode_all_texts(checkpoint, pos_adapter(), inputs, Tuning())
    for i in (0, 17, 1023, 1024, 1099):
        here, units = slice(*texts.starts[i : i + 2]), texts.units[slice(*texts.firsts[i : i + 2])]
        assert texts.arguments["input_ids"][here].tolist() == [2, *inputs.texts[0][i], 3]
        assert texts.arguments["position_ids"][here].tolist() == [
            *range(1, len(inputs.texts[0][i]) + 3)
        ]
        assert units.tolist() == (inputs.firsts[i] + 1).tolist()


def test_parameters_end_to_end_take_the_same_steps():
    """With and without weight decay, gradients long enough to be clipped; in the end each has
    memory of its own.
    """
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    other, settings = copy.deepcopy(one), Tuning(learning_rate=0.1, weight_decay=0.3)
    apart, flat = bert_adamw([one], settings), FusedAdamW([other], settings)
    for x in 5 * torch.randn(6, 7, 3):
        for module, steps in ((one, apart), (other, flat)):
            train_step(steps, module(x).square().sum())
    flat.free()
    for p, q in zip(one.parameters(), other.parameters()):
        assert (
            torch.allclose(p, q, atol=1e-5)
            and q.grad is None
            and q.untyped_storage().nbytes() == 4 * q.numel()
        )


def test_what_is_trained_has_memory_of_its_own_and_equal_seeds_give_equal_bytes(tmp_path):
    checkpoint, inputs = opened(tmp_path, "bert"), tagged(24, 4)

    def trained(seed, dropout=0.3):
        settings = Tuning(epochs=2, batch=8, learning_rate=1e-2, dropout=dropout)
        network = fit_network(checkpoint, inputs, inputs, pos_adapter(), settings, seed)
        assert all(
            p.untyped_storage().nbytes() == 4 * p.numel()
            for p in network.encoder.model.base_model.parameters()
        )
        return network.losses, bytes_of(network.encoder.model)

    assert (
        trained(0) == trained(0)
        and trained(0)[1] != trained(1)[1]
        and trained(0)[0] != trained(0, 0.0)[0]
    )


def test_all_dropout_of_a_step_is_dropout():
    """Share, scale, shapes, anew in each step, the same from the same seed; a probability of zero
    leaves all as it is.
    """
    cpu, shapes = torch.device("cpu"), [(100, 7), (300, 41), (9, 4, 4)]
    draws = seeded_generator(DROPOUT, 5)
    first, second = (packed_bert.dropout_masks(0.1, shapes, draws, cpu) for _ in range(2))
    assert [tuple(mask.shape) for mask in first] == shapes
    assert set(torch.cat([m.flatten() for m in first]).unique().tolist()) == {
        0.0,
        torch.tensor(1 / 0.9).item(),
    }
    gone, later = first[1] == 0, second[1] == 0
    assert (
        abs(gone.float().mean() - 0.1) < 0.01 and abs((gone & later).float().mean() - 0.01) < 0.004
    )
    again = packed_bert.dropout_masks(0.1, shapes, seeded_generator(DROPOUT, 5), cpu)
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert all((mask == 1).all() for mask in packed_bert.dropout_masks(0.0, shapes, draws, cpu))


def test_dropout_of_a_bert_is_drawn_anew_and_where_transformers_has_it(tmp_path):
    """The mean over many draws is near the vectors without, no two draws are the same, and
    evaluation draws none.
    """
    checkpoint, inputs = opened(tmp_path, "bert"), tagged(16, 6)
    network = new_network(checkpoint, inputs, pos_adapter(), Tuning(dropout=0.1), 0)
    (read,) = packed_readers(
        network, FusedAdamW((network.encoder.model.base_model, network.head), Tuning()), 0, inputs
    )
    with torch.inference_mode():
        network.encoder.model.eval()
        still, again = (read(np.arange(16))[0] for _ in range(2))
        network.encoder.model.train()
        ours = torch.stack([read(np.arange(16))[0] for _ in range(400)])
        theirs = torch.stack([network(inputs, np.arange(16))[0] for _ in range(400)])
    assert torch.equal(still, again) and not torch.equal(ours[0], ours[1])
    assert (
        torch.allclose(ours.mean(0), theirs.mean(0), atol=0.25)
        and (ours.mean(0) - still).abs().max() > 0.001
    )
    spread, wanted = ours.std(0).mean(), theirs.std(0).mean()
    assert abs(spread / wanted - 1) < 0.03


def test_quick_dropout_is_dropout():
    """Share, scale, and no tie between neighbours or draws; eval and a probability of zero leave
    all as it is.
    """
    drop, ones = QuickDropout(0.1).train(), torch.ones(500, 401)
    torch.manual_seed(0)
    first, second = drop(ones), drop(ones)
    assert set(first.unique().tolist()) == {0.0, torch.tensor(1 / 0.9).item()}
    gone = first == 0
    assert abs(gone.float().mean() - 0.1) < 0.003
    for shift in (1, 2, 3, 4):
        assert abs((gone & gone.flatten().roll(shift).view_as(gone)).float().mean() - 0.01) < 0.001
    assert abs((gone & (second == 0)).float().mean() - 0.01) < 0.001
    torch.manual_seed(0)
    assert torch.equal(drop(ones), first)
    assert torch.equal(drop.eval()(ones), ones) and torch.equal(
        QuickDropout(0.0).train()(ones), ones
    )


def test_all_dropout_of_a_model_is_quick(tmp_path):
    model = use_quick_dropout(trainable_copy(opened(tmp_path, "bert"), None, 0.3))
    kinds = {type(m) for m in model.modules() if isinstance(m, nn.Dropout)}
    assert kinds == {QuickDropout} and {
        m.p for m in model.modules() if isinstance(m, nn.Dropout)
    } == {0.3}
