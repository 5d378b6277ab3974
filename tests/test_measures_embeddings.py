"""Embeddings against the plain way: one sentence at a time through the whole model."""

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import given, settings, strategies as st
from sklearn.decomposition import PCA

from xlingual_nb.errors import InputError
from xlingual_nb.models.checkpoints import (
    load_checkpoint,
    model_inputs,
    first_blocks,
    tiny_checkpoint,
)
from xlingual_nb.measures.embeddings import (
    batches,
    content_ids,
    hidden_states,
    truncate,
    position_similarity,
    principal_components,
    sentence_vectors,
    token_pca,
    word_vectors,
)
from xlingual_nb.text.tokenizers import Encoded

SIZES = dict(
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=32,
    vocab_size=32,
    max_position_embeddings=24,
    pad_token_id=0,
)
FAMILIES = dict(
    bert=hf.BertConfig(**SIZES),
    roberta=hf.RobertaConfig(**SIZES, type_vocab_size=1),
    xlm_roberta=hf.XLMRobertaConfig(**SIZES, type_vocab_size=1),
    distilbert=hf.DistilBertConfig(
        dim=16,
        n_layers=3,
        n_heads=2,
        hidden_dim=32,
        vocab_size=32,
        max_position_embeddings=24,
        pad_token_id=0,
    ),
    albert=hf.AlbertConfig(**SIZES, embedding_size=8),
    electra=hf.ElectraConfig(**SIZES, embedding_size=8),
    deberta=hf.DebertaV2Config(**SIZES),
    modernbert=hf.ModernBertConfig(
        **SIZES, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3
    ),
)
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def corpus(n=20, longest=12, seed=0, offset=0):
    rng = np.random.default_rng(seed)
    return Encoded.of(rng.integers(5, 32, rng.integers(1, longest)) + offset for _ in range(n))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    fake = dict(name="enfake", token_offset=32, special_offset=32, position_offset=12, token_type=1)
    return load_checkpoint(
        tiny_checkpoint(tmp_path_factory.mktemp("pair"), languages=[dict(name="en"), fake])
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_batched_states_equal_one_sentence_at_a_time(family, device, tmp_path):
    c, text = load_checkpoint(tiny_checkpoint(tmp_path, config=FAMILIES[family]), device), corpus()
    for layers in ((0, 1), (2,), (0, 3)):
        states = hidden_states(c, text, "any", layers, budget=40)
        for i, sentence in enumerate(text):
            with torch.no_grad():
                plain = c.model(
                    torch.tensor([[2, *sentence.tolist(), 3]], device=device),
                    output_hidden_states=True,
                ).hidden_states
            for layer in layers:
                torch.testing.assert_close(
                    states.sentence(layer, i), plain[layer][0, 1:-1], atol=1e-5, rtol=1e-4
                )


def test_a_views_ids_positions_and_segments_reach_the_model(pair):
    text = corpus(offset=32, longest=10)
    states = hidden_states(pair, text, "enfake", (0, 3), budget=40)
    for i, sentence in enumerate(text):
        n = len(sentence) + 2
        plain = pair.model(
            torch.tensor([[34, *sentence.tolist(), 35]]),
            position_ids=torch.arange(12, 12 + n)[None],
            token_type_ids=torch.ones(1, n, dtype=torch.long),
            output_hidden_states=True,
        ).hidden_states
        for layer in (0, 3):
            torch.testing.assert_close(
                states.sentence(layer, i), plain[layer][0, 1:-1], atol=1e-5, rtol=1e-4
            )


def test_layer_0_is_the_sum_of_the_embeddings_after_layer_norm(pair):
    e, word = pair.model.bert.embeddings, 40
    by_hand = e.LayerNorm(
        e.word_embeddings.weight[word]
        + e.position_embeddings.weight[13]
        + e.token_type_embeddings.weight[1]
    )
    torch.testing.assert_close(word_vectors(pair, [word], "enfake", 0)[0][0], by_hand)


def test_means_over_content_tokens_only(pair):
    text = corpus(longest=11)
    states, means = (
        hidden_states(pair, text, "en", (0, 2)),
        sentence_vectors(pair, text, "en", (0, 2), budget=30),
    )
    for layer in (0, 2):
        by_loop = torch.stack(
            [sum(states.sentence(layer, i)) / len(text[i]) for i in range(len(text))]
        )
        torch.testing.assert_close(means[layer], by_loop, atol=1e-5, rtol=0)
        torch.testing.assert_close(states.means(layer), by_loop, atol=1e-5, rtol=0)


def test_numbers_do_not_depend_on_the_batch_budget(pair):
    results = [
        hidden_states(pair, corpus(60), "en", 3, budget=budget)[3] for budget in (1, 50, 10_000)
    ]
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, atol=1e-5, rtol=0)


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), max_size=80), st.integers(1, 300))
def test_batches_partition_the_sentences_within_the_budget(lengths, budget):
    lengths = np.array(lengths, int)
    groups = batches(lengths, budget)
    assert sorted(int(i) for g in groups for i in g) == list(range(len(lengths)))
    assert all(len(g) == 1 or len(g) * (lengths[g].max() + 2) <= budget for g in groups)
    longest = [lengths[g].max() for g in groups]
    assert longest == sorted(longest)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), max_size=9),
    st.integers(1, 10),
    st.booleans(),
)
def test_keep_cuts_one_end(sentences, limit, end):
    assert [list(s) for s in truncate(Encoded.of(sentences), limit, end)] == [
        s[-limit:] if end else s[:limit] for s in sentences
    ]


@pytest.mark.parametrize(
    "family, tokens", dict(bert=22, distilbert=22, roberta=21, xlm_roberta=21).items()
)
def test_sentences_as_long_as_the_model_and_longer(family, tokens, tmp_path):
    c = load_checkpoint(tiny_checkpoint(tmp_path, config=FAMILIES[family]))
    assert c.max_length("x") == tokens
    text = Encoded.of([np.full(n, 7) for n in (tokens - 1, tokens, tokens + 1, 90)])
    states = hidden_states(c, text, "x", 1)
    assert states.truncated == 2 and np.diff(states.starts).tolist() == [
        tokens - 1,
        tokens,
        tokens,
        tokens,
    ]
    torch.testing.assert_close(states.sentence(1, 1), states.sentence(1, 3), atol=1e-5, rtol=0)


def test_only_the_blocks_that_are_needed_are_run_and_the_model_is_whole_again(pair):
    stack = pair.model.bert.encoder.layer
    with first_blocks(pair.model, 1):
        assert len(pair.model.bert.encoder.layer) == 1
    with pytest.raises(RuntimeError), first_blocks(pair.model, 2):
        raise RuntimeError
    assert pair.model.bert.encoder.layer is stack and len(stack) == 3


def test_inputs_are_padded_and_masked(pair):
    inputs, rows = model_inputs(pair, Encoded.of([[5], [6, 7, 8]]), [0, 1], "en")
    assert inputs["input_ids"].tolist() == [[2, 5, 3, 0, 0], [2, 6, 7, 8, 3]] and rows.tolist() == [
        1,
        6,
        7,
        8,
    ]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5] and set(inputs) == {
        "input_ids",
        "attention_mask",
    }


@pytest.mark.parametrize(
    "sentences, view, layers, says",
    [
        ([[5], []], "en", 0, "no tokens"),
        ([], "en", 0, "no sentences"),
        ([[5, 64]], "en", 0, "token id 64"),
        ([[-1]], "en", 0, "token id -1"),
        ([[5]], "enfake", 0, "outside 32..63"),
        ([[40]], "en", 0, "outside 0..31"),
        ([[5]], "de", 0, "en, enfake"),
        ([[5]], "en", 4, "layers 0"),
        ([[5]], "en", (0, -1), "layers 0"),
        ([[5]], "en", (), "layers 0"),
    ],
)
def test_what_the_model_does_not_have_is_refused(pair, sentences, view, layers, says):
    with pytest.raises(InputError, match=says):
        hidden_states(pair, Encoded.of(sentences), view, layers)


def test_content_ids_leave_the_specials_out(pair):
    assert list(content_ids(pair, "en")) == list(range(5, 32)) and list(
        content_ids(pair, "enfake")
    ) == list(range(37, 64))


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_principal_components_equal_scikit_learns_up_to_sign(seed):
    X = np.random.default_rng(seed).normal(size=(20, 6))
    ours, theirs = principal_components(X), PCA(2).fit_transform(X)
    assert np.allclose(np.abs(ours), np.abs(theirs)) and np.allclose(
        principal_components(X + 3), ours
    )


def test_token_pca_covers_the_words_of_both_languages(pair):
    table = token_pca(pair)
    assert (
        list(table.columns) == ["language", "id", "token", "x", "y"]
        and len(table) == 54
        and table["token"].iloc[-1] == "::w31"
    )
    vectors = torch.cat(
        [word_vectors(pair, content_ids(pair, v), v, 0)[0] for v in ("en", "enfake")]
    ).numpy()
    assert np.allclose(np.abs(table[["x", "y"]]), np.abs(PCA(2).fit_transform(vectors)), atol=1e-4)
    assert len(token_pca(pair, views=["en"], ids=dict(en=[5, 6, 7]))) == 3


def test_position_similarity_by_loops(pair, tmp_path):
    P, S = (
        pair.model.bert.embeddings.position_embeddings.weight.numpy().astype(float),
        position_similarity(pair),
    )
    assert all(
        abs(S[i, j] - P[i] @ P[j] / np.linalg.norm(P[i]) / np.linalg.norm(P[j])) < 1e-5
        for i in range(24)
        for j in range(24)
    )
    assert position_similarity(
        load_checkpoint(tiny_checkpoint(tmp_path / "r", config=FAMILIES["roberta"]))
    ).shape == (23, 23)
    with pytest.raises(InputError, match="no learned position"):
        position_similarity(
            load_checkpoint(tiny_checkpoint(tmp_path / "m", config=FAMILIES["modernbert"]))
        )
