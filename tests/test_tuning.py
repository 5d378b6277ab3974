"""The loop of all tasks: what it draws, what it keeps, which layers stay as they are, in every architecture."""
import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from xlingual_nb.errors import InputError
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.tasks.inputs import Inputs
from xlingual_nb.tasks.networks import PACKED, QuickDropout, new_network, quickened
from xlingual_nb.tasks.recipes import Feat, Tuning
from xlingual_nb.tasks.tuning import blocks_of, freeze, halved, optimiser, stalls, trainable, tune, warmed_up
from xlingual_nb.tasks.word_heads import parts_form
from xlingual_nb.text.tokenizers import Encoded

torch.set_num_threads(1)
SIZES = dict(vocab_size=40, max_position_embeddings=26, pad_token_id=0)
WIDE = dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32)
FAMILIES = {
    "bert": transformers.BertConfig(**SIZES, **WIDE), "roberta": transformers.RobertaConfig(**SIZES, **WIDE),
    "xlm-roberta": transformers.XLMRobertaConfig(**SIZES, **WIDE), "electra": transformers.ElectraConfig(**SIZES, **WIDE, embedding_size=16),
    "distilbert": transformers.DistilBertConfig(**SIZES, dim=16, n_layers=3, n_heads=2, hidden_dim=32)}
ALBERT = transformers.AlbertConfig(**SIZES, **WIDE, embedding_size=16)


def opened(folder, family):
    return load_checkpoint(tiny_checkpoint(folder / "tiny", 40, config=copy.deepcopy(FAMILIES.get(family, ALBERT))))


def bytes_of(model): return {name: weights.numpy().tobytes() for name, weights in model.base_model.state_dict().items()}


def step(model, settings):
    "One step of training on three texts, each of whose tokens should have larger numbers."
    loss = -model.base_model(input_ids=torch.arange(3, 30).reshape(3, 9), attention_mask=torch.ones(3, 9).long()).last_hidden_state.square().mean()
    tune([model], optimiser([model.base_model], settings), warmed_up(replace(settings, warmup=0.0, epochs=1)), lambda numbers: loss, 3, 0)


def layer_of(name):
    "The layer that a parameter belongs to, read off its name."
    found = [int(part) for part in name.split(".") if part.isdigit()]
    return found[0] + 1 if found else 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [None, 0, 2, 3])
def test_frozen_layers_keep_their_bytes_and_the_others_move(tmp_path, family, layer):
    checkpoint = opened(tmp_path, family)
    model, before = trainable(checkpoint, layer, 0.0), bytes_of(checkpoint.model)
    if layer == 3:
        assert not [name for name, p in model.base_model.named_parameters() if p.requires_grad]
        return
    step(model, Tuning(learning_rate=1e-2, weight_decay=.1))
    parameters, after = dict(checkpoint.model.base_model.named_parameters()), bytes_of(model)
    moved = {name for name in parameters if after[name] != before[name]}
    wanted = {name for name in parameters if layer is None or layer_of(name) > layer}
    assert moved <= wanted and len(moved) > .8 * len(wanted)        # a row of biases may be still: the gradient of a key's is zero
    assert bytes_of(checkpoint.model) == before


def test_a_layer_that_is_not_there_and_layers_that_are_one(tmp_path):
    with pytest.raises(InputError, match=r"freeze=4 of a model with layers 0 \(embeddings\) to 3"):
        freeze(opened(tmp_path, "bert").model, 4)
    albert = opened(tmp_path / "albert", "albert").model
    freeze(albert, 0)
    assert blocks_of(albert) is None
    with pytest.raises(InputError, match="freeze=1: the layers of albert are one and the same"): freeze(albert, 1)


# --- the loop

class Counter(nn.Module):
    "A weight, and what happened."
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
    optimizer = optimiser([module], Tuning(**settings))
    found = tune([module], optimizer, course, module.loss, count, seed, lambda *done: heard.append(done), scores and score)
    return module, *found, heard


def test_every_record_is_seen_once_an_epoch_in_an_order_of_the_seed():
    course = warmed_up(Tuning(epochs=3, batch=4))
    module, losses, scores, heard = ran(course)
    epochs = [module.seen[i:i + 3] for i in (0, 3, 6)]
    assert all(sorted(sum(epoch, [])) == [*range(10)] for epoch in epochs) and epochs[0] != epochs[1] != epochs[2]
    assert [len(batch) for batch in epochs[0]] == [4, 4, 2] and len(losses) == 9 and scores == ()
    assert heard == [(n, 9) for n in range(1, 10)]
    assert ran(course)[0].seen == module.seen != ran(course, seed=1)[0].seen
    assert not module.training and not module.weight.requires_grad


@pytest.mark.parametrize("scores, best", [([.1, .5, .3], 2), ([.5, .5, .5], 1), ([0, 0, .1], 3)])
def test_the_first_of_the_best_epochs_is_kept(scores, best):
    "A constant rate, so that what an epoch leaves is what training to it leaves."
    course = replace(warmed_up(Tuning(epochs=3, batch=10)), rate=lambda step, steps, scores: .1)
    kept, until = ran(course, scores)[0], ran(replace(course, epochs=best))[0]
    assert torch.equal(kept.weight, until.weight) and ran(course, scores)[2] == tuple(scores)


def test_the_rate_is_halved_when_nothing_is_gained_and_then_it_ends():
    settings, scores = Feat(learning_rate=8e-5, least=1e-5, epochs=50, batch=10), [.1, .2, .2, .3, .1, .3, .1, .2]
    module, losses, told, heard = ran(halved(settings), scores)
    assert told == tuple(scores[:7]) and len(losses) == 7 and heard[-1] == (50, 50)
    assert [stalls(scores[:n]) for n in range(1, 8)] == [0, 0, 1, 1, 2, 3, 4]       # 4e-5, 2e-5, 1e-5; and 5e-6 is too little


def test_rates_are_those_of_the_schedule():
    rates = []
    course = warmed_up(Tuning(epochs=2, batch=1, learning_rate=1e-3))
    noted = replace(course, rate=lambda *at: rates.append(course.rate(*at)) or rates[-1])
    ran(noted)
    wanted = [1e-3 * (i / 2 if i < 2 else (20 - i) / 18) for i in range(20)]
    np.testing.assert_allclose(rates[::2], wanted)      # asked for both groups of parameters


# --- several texts a row

def tagged(count, seed):
    "Sentences of 1 to 20 words, whose every second piece begins a word; so that rows are longer than the positions."
    rng = np.random.default_rng(seed)
    texts = [rng.integers(5, 40, n) for n in rng.permutation(count) % 20 + 1]
    firsts = [np.arange(0, len(text), 2) for text in texts]
    return Inputs((Encoded.of(texts),), [["AB"[i % 2] for i in range(len(f))] for f in firsts], Encoded.of(firsts), views=("any",))


@pytest.mark.parametrize("family", [*FAMILIES, "albert"])
def test_texts_side_by_side_are_read_as_each_alone(tmp_path, family):
    "Vectors, loss and the gradient of every parameter, in each architecture that is packed."
    checkpoint, inputs = opened(tmp_path, family), tagged(32, 1)
    assert checkpoint.model.config.model_type in PACKED
    network, found = new_network(checkpoint, inputs, parts_form(), Tuning(dropout=0.0), 0), []
    for read in (network, network.quickly):
        network.encoder.model.train().zero_grad()
        x, lengths = read(inputs, np.arange(32))
        loss = network.head.loss(x, lengths, inputs.gold)
        loss.backward()
        found.append((x, lengths, loss, {n: p.grad for n, p in network.encoder.model.base_model.named_parameters() if p.grad is not None}))
    (x, lengths, loss, slopes), (packed, n, near, close) = found
    assert torch.equal(lengths, n) and torch.allclose(x, packed, atol=1e-5) and torch.allclose(loss, near, atol=1e-6)
    assert slopes.keys() == close.keys() and len(slopes) > 10
    assert all(torch.allclose(slopes[name], close[name], atol=1e-5) for name in slopes)


def test_quick_dropout_is_dropout():
    "Share, scale, and no tie between neighbours or draws; eval and a probability of zero leave all as it is."
    drop, ones = QuickDropout(0.1).train(), torch.ones(500, 401)
    torch.manual_seed(0)
    first, second = drop(ones), drop(ones)
    assert set(first.unique().tolist()) == {0.0, torch.tensor(1 / .9).item()}
    gone = first == 0
    assert abs(gone.float().mean() - .1) < .003
    for shift in (1, 2, 3, 4): assert abs((gone & gone.flatten().roll(shift).view_as(gone)).float().mean() - .01) < .001
    assert abs((gone & (second == 0)).float().mean() - .01) < .001
    torch.manual_seed(0)
    assert torch.equal(drop(ones), first)
    assert torch.equal(drop.eval()(ones), ones) and torch.equal(QuickDropout(0.0).train()(ones), ones)


def test_all_dropout_of_a_model_is_quick(tmp_path):
    model = quickened(trainable(opened(tmp_path, "bert"), None, .3))
    kinds = {type(m) for m in model.modules() if isinstance(m, nn.Dropout)}
    assert kinds == {QuickDropout} and {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {.3}
