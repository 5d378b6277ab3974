"""The encoder against Hugging Face's BERT with the same weights: logits, losses, gradients; packed against padded; stacked against alone."""
import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

from xlingual_nb.models.batches import MASKS, generator, make_batch, mix, row_lengths
from xlingual_nb.models.encoder import Dropout, Stack, hidden_layers, logits, losses, stack_batches
from xlingual_nb.models.pretrain import hub_config, hub_names, load_checkpoints, save_checkpoint
from xlingual_nb.models.settings import MASKING, LanguageView, Masking, Shape
from xlingual_nb.text.tokenizers import Encoded, train_wordpiece

torch.set_num_threads(1)
SHAPES = [Shape(3, 32, 1, 64, 32), Shape(2, 48, 3, 96, 32)]
VIEWS = [LanguageView("en"), LanguageView("enfake", 40, 40, 32, 1)]


def text(seed, sentences=60):
    rng = np.random.default_rng(seed)
    return Encoded.of(rng.integers(5, 40, n) for n in rng.integers(1, 31, sentences))


def mixture(seed=0, views=VIEWS):
    english = text(seed)
    return mix([english, Encoded(english.ids + 40, english.starts)], views, 80, 32)


@pytest.fixture(scope="module", params=SHAPES, ids=["one head", "three heads"])
def pair(request, tmp_path_factory):
    "A stack of two random models and the Hugging Face model of the second, read from its checkpoint."
    stack = Stack(request.param, 80, [1, 2], std=0.2)
    with torch.no_grad():  # layer norms and biases must matter too
        for name, w in stack.weights.items():
            if name.endswith("bias") or "LayerNorm" in name: w.add_(torch.randn(w.shape, generator=torch.Generator().manual_seed(len(name))) * 0.1)
    folder = tmp_path_factory.mktemp("checkpoint")
    save_checkpoint(folder, stack, 1, hub_config(request.param, 80, 0.0, VIEWS), train_wordpiece(["a b c d e f"], 20))
    return stack, AutoModelForMaskedLM.from_pretrained(folder).eval(), folder


def padded(mix, indices, batch):
    "The same masked sentences padded to the longest, for Hugging Face: inputs, labels."
    g = [{k: v.reshape(-1) for k, v in group.items()} for group in batch.groups]
    flat = {k: np.concatenate([group[k] for group in g]) for k in g[0]}
    starts = [0, batch.groups[0]["ids"].size]
    widths = [group["ids"].shape[1] for group in batch.groups]
    label = np.full(len(flat["ids"]), -100)
    for (group, row, column), y in zip(batch.masked, batch.labels): label[starts[group] + row * widths[group] + column] = y
    width = int(mix.lengths[indices].max())
    out = {k: torch.zeros(len(indices), width, dtype=torch.long) for k in ("input_ids", "position_ids", "token_type_ids", "attention_mask")}
    labels = torch.full((len(indices), width), -100)
    for i in range(len(indices)):
        at = np.flatnonzero(flat_sentence(batch) == i)
        n = len(at)
        for ours, theirs in (("ids", "input_ids"), ("positions", "position_ids"), ("types", "token_type_ids")): out[theirs][i, :n] = torch.from_numpy(flat[ours][at])
        out["attention_mask"][i, :n] = 1
        labels[i, :n] = torch.from_numpy(label[at])
    return out, labels


def flat_sentence(batch):
    "Which sentence stands in each slot; a sentence lies in one row, so slots in order are tokens in order."
    return np.concatenate([group["sentence"].reshape(-1) for group in batch.groups])


def batch_of(m, indices, seed=0, rows=None):
    return make_batch(m, indices, MASKING["original"], rows or row_lengths(m.lengths, 32), generator(MASKS, seed, 0))


def test_logits_equal_hugging_face(pair):
    stack, hub, _ = pair
    m, indices = mixture(), np.arange(0, 120, 3)
    batch = batch_of(m, indices)
    inputs, _ = padded(m, indices, batch)
    with torch.no_grad():
        ours = logits(stack, hidden_layers(stack, stack_batches([batch, batch]))[-1])[1]
        theirs = hub(**inputs).logits
    where = flat_sentence(batch)
    for i in range(len(indices)):
        mine = ours[torch.from_numpy(np.flatnonzero(where == i))]
        assert (mine - theirs[i, :len(mine)]).abs().max() < 1e-4


def test_loss_and_gradients_equal_hugging_face(pair):
    stack, hub, folder = pair
    alone = load_checkpoints([folder])
    m, indices = mixture(), np.arange(100)
    batch = batch_of(m, indices)
    inputs, labels = padded(m, indices, batch)
    theirs = hub(**inputs, labels=labels).loss
    names = dict(hub.named_parameters())
    theirs.backward()
    ours = losses(alone, stack_batches([batch]))
    alone.backward(ours)
    assert abs(ours.item() - theirs.item()) < 1e-5
    gradient = dict(zip(alone.weights, [w for flat in alone.flat for w in split(flat.grad, alone, flat)]))
    for name, g in gradient.items():
        expected = torch.cat([names[n].grad.reshape(-1) for n in hub_names(name)])
        if name == "embeddings.word_embeddings.weight":  # Hugging Face gives [PAD] no gradient as an input, only as an output
            g, expected = g.view(80, -1)[1:].flatten(), expected.view(80, -1)[1:].flatten()
        assert torch.allclose(g, expected, atol=1e-5 * expected.abs().max().item() + 1e-6), name
    hub.zero_grad()


def split(gradient, stack, flat):
    "The flat gradient of the only model, weight by weight."
    from xlingual_nb.models.encoder import decayed, undecayed
    sizes = (decayed if flat is stack.flat[0] else undecayed)(stack.shape, stack.vocabulary)
    return gradient[0].split([int(np.prod(s)) for s in sizes.values()])


@pytest.mark.parametrize("rows", [(8, 32), (16, 32), (32, 32), (64, 64)], ids=str)
def test_packing_changes_nothing(pair, rows):
    stack, _, folder = pair
    alone, m = load_checkpoints([folder]), mixture()
    reference = losses(alone, stack_batches([batch_of(m, np.arange(50))])).item()
    assert abs(losses(alone, stack_batches([batch_of(m, np.arange(50), rows=rows)])).item() - reference) < 1e-5


def test_stacked_equals_alone_with_dropout():
    shape = SHAPES[0]
    m = mixture()
    batches = [batch_of(m, np.arange(s, 120, 3), seed=s) for s in range(3)]
    together = Stack(shape, 80, range(3))
    b = stack_batches(batches)
    all_losses = losses(together, b, Dropout(0.1, shape, [0, 1, 2], 7, b.rows))
    together.backward(all_losses)
    for s in range(3):
        alone, b = Stack(shape, 80, [s]), stack_batches([batches[s]])
        loss = losses(alone, b, Dropout(0.1, shape, [s], 7, b.rows))
        alone.backward(loss)
        assert abs(loss.item() - all_losses[s].item()) < 1e-5
        for f, g in zip(alone.flat, together.flat): assert torch.allclose(f.grad[0], g.grad[s], atol=1e-6)


def test_masking_is_the_stated_distribution():
    rng = np.random.default_rng(0)
    long = Encoded(rng.integers(5, 1000, 200_000).astype(np.int32), np.arange(0, 200_001, 20))
    m = mix([long], [LanguageView("en")], 1000, 32)
    from xlingual_nb.models.batches import assemble, mask_tokens
    for name, wanted in MASKING.items():
        s = assemble(m, np.arange(len(m)))
        ids, chosen = mask_tokens(s, wanted, 1000, generator(MASKS, 3, 1))
        n, before, after = len(chosen), s.ids[chosen], ids[chosen]
        share = np.array([(after == 4).mean(), (after == before).mean(), ((after != before) & (after != 4)).mean()])
        assert abs(n / 200_000 - wanted.rate) < 0.003
        assert np.allclose(share, [wanted.mask, wanted.keep, wanted.random], atol=4 * np.sqrt(0.25 / n) + 0.002)
        assert (ids[np.setdiff1d(np.arange(len(ids)), chosen)] == s.ids[np.setdiff1d(np.arange(len(ids)), chosen)]).all()
        assert (before > 4).all()
        if wanted.random:
            drawn = after[(after != before) & (after != 4)]
            histogram = np.bincount(drawn, minlength=1000)
            assert (histogram[:500].sum() / len(drawn) - 0.5) ** 2 < 16 * 0.25 / len(drawn)


def test_special_tokens_of_a_language_carry_its_offset():
    m = mixture()
    batch = make_batch(m, np.arange(60, 120), Masking(1, 0, 0), row_lengths(m.lengths, 32), generator(MASKS, 0, 0))
    ids = np.concatenate([g["ids"][g["sentence"] >= 0] for g in batch.groups])
    assert set(ids[ids < 45]) <= {42, 43, 44} and (ids >= 42).all()
