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
from xlingual_nb.tasks.recipes import Feat, Tuning
from xlingual_nb.tasks.tuning import blocks_of, freeze, halved, optimiser, stalls, trainable, tune, warmed_up

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
