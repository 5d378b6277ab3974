"""The encoder against Hugging Face's BERT with the same weights: logits, losses, gradients; packed
against padded; stacked against alone.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from transformers import AutoModelForMaskedLM, BertForPreTraining

from xlingual_nb.models.mlm_batches import (
    MASKS,
    PAIRS,
    assemble_batch,
    document_pairs,
    truncate_pair,
    seeded_generator,
    make_batch,
    mask_tokens,
    build_sentence_dataset,
    build_pair_dataset,
    choose_row_lengths,
)
from xlingual_nb.models.encoder import (
    Dropout,
    BatchedModels,
    decayed_weights,
    hidden_layers,
    mlm_logits,
    training_losses,
    stack_batches,
    undecayed_weights,
)
from xlingual_nb.models.training import (
    hub_config,
    hub_weight_names,
    load_stack,
    save_checkpoint,
)
from xlingual_nb.models.configs import MASKING, LanguageView, Masking, Shape
from xlingual_nb.text.tokenizers import Encoded, train_wordpiece

torch.set_num_threads(1)
SHAPES = [Shape(3, 32, 1, 64, 32), Shape(2, 48, 3, 96, 32)]
VIEWS = [LanguageView("en"), LanguageView("enfake", 40, 40, 32, 1)]


def text(seed, sentences=60):
    rng = np.random.default_rng(seed)
    return Encoded.of(rng.integers(5, 40, n) for n in rng.integers(1, 31, sentences))


def mixture(seed=0, views=VIEWS):
    english = text(seed)
    return build_sentence_dataset(
        [english, Encoded(english.ids + 40, english.starts)], views, 80, 32
    )


@pytest.fixture(scope="module", params=SHAPES, ids=["one head", "three heads"])
def pair(request, tmp_path_factory):
    """A stack of two random models and the Hugging Face model of the second, read from its
    checkpoint.
    """
    stack = BatchedModels(request.param, 80, [1, 2], std=0.2)
    with torch.no_grad():  # layer norms and biases must matter too
        for name, w in stack.weights.items():
            if name.endswith("bias") or "LayerNorm" in name:
                w.add_(
                    torch.randn(w.shape, generator=torch.Generator().manual_seed(len(name))) * 0.1
                )
    folder = tmp_path_factory.mktemp("checkpoint")
    save_checkpoint(
        folder,
        stack,
        1,
        hub_config(request.param, 80, 0.0, VIEWS),
        train_wordpiece(["a b c d e f"], 20),
    )
    return stack, AutoModelForMaskedLM.from_pretrained(folder).eval(), folder


def padded(mix, indices, batch):
    """The same masked sentences padded to the longest, for Hugging Face: inputs, labels."""
    g = [{k: v.reshape(-1) for k, v in group.items()} for group in batch.groups]
    flat = {k: np.concatenate([group[k] for group in g]) for k in g[0]}
    starts = [0, batch.groups[0]["ids"].size]
    widths = [group["ids"].shape[1] for group in batch.groups]
    label = np.full(len(flat["ids"]), -100)
    for (group, row, column), y in zip(batch.masked, batch.labels):
        label[starts[group] + row * widths[group] + column] = y
    width = int(mix.lengths[indices].max())
    out = {
        k: torch.zeros(len(indices), width, dtype=torch.long)
        for k in ("input_ids", "position_ids", "token_type_ids", "attention_mask")
    }
    labels = torch.full((len(indices), width), -100)
    for i in range(len(indices)):
        at = np.flatnonzero(flat_sentence(batch) == i)
        n = len(at)
        for ours, theirs in (
            ("ids", "input_ids"),
            ("positions", "position_ids"),
            ("types", "token_type_ids"),
        ):
            out[theirs][i, :n] = torch.from_numpy(flat[ours][at])
        out["attention_mask"][i, :n] = 1
        labels[i, :n] = torch.from_numpy(label[at])
    return out, labels


def flat_sentence(batch):
    """Which sentence stands in each slot; a sentence lies in one row, so slots in order are tokens
    in order.
    """
    return np.concatenate([group["sentence"].reshape(-1) for group in batch.groups])


def batch_of(m, indices, seed=0, rows=None):
    return make_batch(
        m,
        indices,
        MASKING["original"],
        rows or choose_row_lengths(m.lengths, 32),
        seeded_generator(MASKS, seed, 0),
    )


def test_logits_equal_hugging_face(pair):
    stack, hub, _ = pair
    m, indices = mixture(), np.arange(0, 120, 3)
    batch = batch_of(m, indices)
    inputs, _ = padded(m, indices, batch)
    with torch.no_grad():
        ours = mlm_logits(stack, hidden_layers(stack, stack_batches([batch, batch]))[-1])[1]
        theirs = hub(**inputs).logits
    where = flat_sentence(batch)
    for i in range(len(indices)):
        mine = ours[torch.from_numpy(np.flatnonzero(where == i))]
        # scores of size ten, each the end of some ten sums of up to 96 products: 100 roundings of
        # 1e-6
        assert (mine - theirs[i, : len(mine)]).abs().max() < 1e-4


def test_loss_and_gradients_equal_hugging_face(pair, doubles):
    folder = pair[2]
    alone, hub = (
        load_stack([folder]),
        AutoModelForMaskedLM.from_pretrained(folder).eval().double(),
    )
    m, indices = mixture(), np.arange(100)
    batch = batch_of(m, indices)
    inputs, labels = padded(m, indices, batch)
    theirs = hub(**inputs, labels=labels).loss
    names = dict(hub.named_parameters())
    theirs.backward()
    ours = training_losses(alone, stack_batches([batch]))
    alone.backward(ours)
    assert abs(ours.item() - theirs.item()) < 1e-9
    gradient = dict(
        zip(alone.weights, [w for flat in alone.flat for w in split(flat.grad, alone, flat)])
    )
    for name, g in gradient.items():
        expected = torch.cat([names[n].grad.reshape(-1) for n in hub_weight_names(name)])
        # Hugging Face gives [PAD] no gradient as an input, only as an output
        if name == "embeddings.word_embeddings.weight":
            g, expected = g.view(80, -1)[1:].flatten(), expected.view(80, -1)[1:].flatten()
        assert torch.allclose(g, expected, rtol=1e-8, atol=1e-10), name


def split(gradient, stack, flat):
    """The flat gradient of the only model, weight by weight."""
    from xlingual_nb.models.encoder import decayed_weights, undecayed_weights

    sizes = (decayed_weights if flat is stack.flat[0] else undecayed_weights)(
        stack.shape, stack.vocabulary
    )
    return gradient[0].split([int(np.prod(s)) for s in sizes.values()])


@pytest.mark.parametrize("rows", [(8, 32), (16, 32), (32, 32), (64, 64)], ids=str)
def test_packing_changes_nothing(pair, rows, doubles):
    alone, m = load_stack([pair[2]]), mixture()
    reference = training_losses(alone, stack_batches([batch_of(m, np.arange(50))])).item()
    assert (
        abs(
            training_losses(alone, stack_batches([batch_of(m, np.arange(50), rows=rows)])).item()
            - reference
        )
        < 1e-9
    )


def test_stacked_equals_alone_with_dropout(doubles):
    shape = SHAPES[0]
    m = mixture()
    batches = [batch_of(m, np.arange(s, 120, 3), seed=s) for s in range(3)]
    together = BatchedModels(shape, 80, range(3))
    b = stack_batches(batches)
    all_losses = training_losses(together, b, Dropout(0.1, shape, [0, 1, 2], 7, b.rows))
    together.backward(all_losses)
    for s in range(3):
        alone, b = BatchedModels(shape, 80, [s]), stack_batches([batches[s]])
        loss = training_losses(alone, b, Dropout(0.1, shape, [s], 7, b.rows))
        alone.backward(loss)
        assert abs(loss.item() - all_losses[s].item()) < 1e-9
        for f, g in zip(alone.flat, together.flat):
            assert torch.allclose(f.grad[0], g.grad[s], rtol=1e-8, atol=1e-10)


def test_masking_is_the_stated_distribution():
    rng = np.random.default_rng(0)
    long = Encoded(rng.integers(5, 1000, 200_000).astype(np.int32), np.arange(0, 200_001, 20))
    m = build_sentence_dataset([long], [LanguageView("en")], 1000, 32)
    from xlingual_nb.models.mlm_batches import assemble_batch, mask_tokens

    for wanted in (w for w in MASKING.values() if not w.knn):  # neighbours: test_spaces.py
        s = assemble_batch(m, np.arange(len(m)))
        ids, chosen = mask_tokens(s, wanted, 1000, seeded_generator(MASKS, 3, 1))
        n, before, after = len(chosen), s.ids[chosen], ids[chosen]
        share = np.array(
            [
                (after == 4).mean(),
                (after == before).mean(),
                ((after != before) & (after != 4)).mean(),
            ]
        )
        assert abs(n / 200_000 - wanted.rate) < 0.003
        assert np.allclose(
            share, [wanted.mask, wanted.keep, wanted.random], atol=4 * np.sqrt(0.25 / n) + 0.002
        )
        others = np.setdiff1d(np.arange(len(ids)), chosen)
        assert (ids[others] == s.ids[others]).all()
        assert (before > 4).all()
        if wanted.random:
            drawn = after[(after != before) & (after != 4)]
            histogram = np.bincount(drawn, minlength=1000)
            assert (histogram[:500].sum() / len(drawn) - 0.5) ** 2 < 16 * 0.25 / len(drawn)


def test_special_tokens_of_a_language_carry_its_offset():
    m = mixture()
    batch = make_batch(
        m,
        np.arange(60, 120),
        Masking(1, 0, 0),
        choose_row_lengths(m.lengths, 32),
        seeded_generator(MASKS, 0, 0),
    )
    ids = np.concatenate([g["ids"][g["sentence"] >= 0] for g in batch.groups])
    assert set(ids[ids < 45]) <= {42, 43, 44} and (ids >= 42).all()


# ---- pairs of segments


def ends_of(seed, sentences=60):
    """Ends of documents of one to nine sentences."""
    ends = np.cumsum(np.random.default_rng(seed).integers(1, 10, sentences))
    return np.append(ends[ends < sentences], sentences)


def pairs(seed=0, **rest):
    return build_pair_dataset(
        [text(seed), text(seed + 1)],
        [ends_of(seed), ends_of(seed + 1)],
        [LanguageView("en"), LanguageView("es", separator=41)],
        42,
        32,
        **rest,
    )


def test_pairs_are_neighbours_in_a_document_or_strangers():
    m, texts, ends = pairs(), [text(0), text(1)], [ends_of(0), ends_of(1)]
    joined, origin = np.concatenate([t.ids for t in texts]), [0, len(texts[0].ids)]
    assert (m.ids == joined).all() and (m.lengths <= 32).all() and (m.first[:, 1] > 0).all()
    assert (m.second[:, 1] > 0).all()
    for (a, n), (b, k), language, follows in zip(m.first, m.second, m.language, m.follows):
        starts = texts[language].starts + origin[language]
        document = np.searchsorted(
            starts[ends[language]], [a, a + n - 1, b, b + k - 1], side="right"
        )
        assert document[0] == document[1] and document[2] == document[3]
        if follows:
            assert document[0] == document[2] and a + n <= b
        else:
            assert document[0] != document[2]
        if follows and n + k < 29:
            assert a + n == b
    assert 0.2 < m.follows.mean() < 0.5 and len(pairs(nsp=False).follows) == 0


def test_one_pass_over_pairs_uses_every_sentence():
    found = document_pairs(text(3), ends_of(3), 10_000, seeded_generator(PAIRS, 0))
    covered = np.zeros(len(text(3).ids), int)
    for a, n, b, k, follows in found:
        covered[a : a + n] += 1
        if follows:
            covered[b : b + k] += 1
    assert (covered == 1).all()


@given(st.tuples(*[st.integers(1, 40)] * 2), st.integers(2, 50))
def test_segments_are_cut_longest_first(lengths, room):
    n, k = lengths
    a, n2, b, k2 = truncate_pair((100, 100 + n), (200, 200 + k), room, np.random.default_rng(n * k))
    assert (
        n2 + k2 == min(room, n + k)
        and 100 <= a
        and a + n2 <= 100 + n
        and 200 <= b
        and b + k2 <= 200 + k
    )
    while n + k > room:
        n, k = (n - 1, k) if n > k else (n, k - 1)
    assert (n2, k2) == (n, k)


def test_languages_are_sampled_by_a_power_of_their_size():
    counts = np.bincount(
        build_pair_dataset(
            [text(0, 40), text(1, 400)],
            [ends_of(0, 40), ends_of(1, 400)],
            VIEWS,
            80,
            32,
            exponent=0.5,
        ).language
    )
    plain = np.bincount(
        build_pair_dataset(
            [text(0, 40), text(1, 400)], [ends_of(0, 40), ends_of(1, 400)], VIEWS, 80, 32
        ).language
    )
    assert (
        abs(counts.sum() - plain.sum()) <= 1
        and abs(counts[1] / counts[0] - (plain[1] / plain[0]) ** 0.5) < 0.05
    )


def test_next_sentence_loss_and_gradient_equal_hugging_face(tmp_path, doubles):
    m, shape = pairs(), Shape(3, 24, 3, 48, 32, 40)
    stack = BatchedModels(shape, 42, [5], std=0.2, nsp=True)
    save_checkpoint(
        tmp_path,
        stack,
        0,
        hub_config(shape, 42, 0.0, m.views, True),
        train_wordpiece(["a b c d e f"], 20),
    )
    hub, chosen = (
        BertForPreTraining.from_pretrained(tmp_path).eval().double(),
        np.arange(0, len(m), 5),
    )
    batch = batch_of(m, chosen)
    inputs, labels = padded(m, chosen, batch)
    theirs = hub(
        **inputs, labels=labels, next_sentence_label=torch.from_numpy(1 - m.follows[chosen])
    ).loss
    ours = training_losses(stack, stack_batches([batch]))
    assert abs(ours.item() - theirs.item()) < 1e-9
    stack.backward(ours)
    theirs.backward()
    gradients, n = {k: p.grad for k, p in hub.named_parameters()}, 0
    for sizes, flat in zip((decayed_weights, undecayed_weights), stack.flat):
        at = 0
        for name, size in sizes(shape, 42, True).items():
            mine = flat.grad[0, at : at + int(np.prod(size))].view(size)
            at += int(np.prod(size))
            whole = torch.cat([gradients[k] for k in hub_weight_names(name)])
            # Hugging Face's table learns nothing about [PAD], which a random replacement may be
            known = slice(name.startswith("embeddings.word"), None)
            assert torch.allclose(mine[known], whole[known], rtol=1e-8, atol=1e-10), name
            n += 1
    assert n == len(stack.weights)
    assert (
        AutoModelForMaskedLM.from_pretrained(
            tmp_path
        ).bert.embeddings.position_embeddings.num_embeddings
        == 40
    )


def test_a_language_marker_closes_its_own_segments():
    m = pairs()
    for i in (0, len(m) - 1):
        s = assemble_batch(m, np.array([i]))
        assert list(s.ids[~s.content]) == [2, *[41 if m.language[i] else 3] * 2]


def test_whole_words_are_masked_as_one():
    m = pairs()
    begins = np.arange(42) % 3 == 0
    s = assemble_batch(m, np.arange(len(m)))
    _, chosen = mask_tokens(
        s, Masking(1, 0, 0, whole_words=True), 42, seeded_generator(MASKS, 1, 2), begins
    )
    words = []
    for i in range(
        len(s.ids)
    ):  # a word starts at a piece that begins one, or after a special token
        if s.content[i] and (begins[s.ids[i]] or not s.content[i - 1]):
            words.append([])
        if s.content[i]:
            words[-1].append(i)
    hit = set(chosen.tolist())
    assert (
        all(len(hit & set(w)) in (0, len(w)) for w in words)
        and abs(len(hit) / s.content.sum() - 0.15) < 0.02
    )
