"""Language-specific shifts against loops over one sentence, hooks of another kind, and sacrebleu
where it is installed.
"""

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import given, settings, strategies as st

from xlingual_nb.errors import InputError
from xlingual_nb.measures import mean_shift
from xlingual_nb.measures.embeddings import hidden_states
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.models.encoders import load_encoder
from xlingual_nb.models.static_vectors import save_static
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
    albert=hf.AlbertConfig(**SIZES, embedding_size=8),
    distilbert=hf.DistilBertConfig(
        dim=16,
        n_layers=3,
        n_heads=2,
        hidden_dim=32,
        vocab_size=32,
        max_position_embeddings=24,
        pad_token_id=0,
    ),
    electra=hf.ElectraConfig(**SIZES, embedding_size=8),
    deberta=hf.DebertaV2Config(**SIZES),
    modernbert=hf.ModernBertConfig(
        **SIZES, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3
    ),
)
# Of each family: what makes layer 0, the blocks, and what comes after the last of them.
PLACES = dict(
    bert=("embeddings", "encoder.layer", ""),
    roberta=("embeddings", "encoder.layer", ""),
    deberta=("embeddings", "encoder.layer", ""),
    distilbert=("embeddings", "transformer.layer", ""),
    electra=("embeddings_project", "encoder.layer", ""),
    modernbert=("embeddings", "layers", "final_norm"),
)
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def corpus(n=15, longest=12, seed=0):
    rng = np.random.default_rng(seed)
    return Encoded.of(rng.integers(5, 32, rng.integers(1, longest)) for _ in range(n))


def model_of(family, folder, device="cpu"):
    """A tiny model whose embeddings are large enough for its head to say this and that."""
    tiny_checkpoint(folder, config=FAMILIES[family])
    model = hf.AutoModelForMaskedLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(30)
    model.save_pretrained(folder)
    return load_checkpoint(folder, device)


def at_a_time(c, sentence, layer, vector, family):
    """Logits of one sentence, `vector` added to what the module of that layer gives: hooks behind
    blocks, not before them.
    """
    if family == "albert":
        return through_albert(c, sentence, layer, vector)
    first, stack, last = PLACES[family]
    base, at = c.model.base_model, layer - 1
    module = (
        base.get_submodule(first)
        if layer == 0
        else base.get_submodule(last)
        if last and layer == 3
        else base.get_submodule(stack)[at]
    )

    def add(_, given, made):
        return (made[0] + vector, *made[1:]) if isinstance(made, tuple) else made + vector

    handle = module.register_forward_hook(add)
    with torch.no_grad():
        logits = c.model(torch.tensor([[2, *sentence.tolist(), 3]], device=c.device)).logits
    handle.remove()
    return logits[0, 1:-1]


def through_albert(c, sentence, layer, vector):
    """The one block called as often as the depth says, by hand."""
    base = c.model.albert
    with torch.no_grad():
        ids = torch.tensor([[2, *sentence.tolist(), 3]], device=c.device)
        h = base.encoder.embedding_hidden_mapping_in(base.embeddings(ids))
        for n in range(4):
            if n == layer:
                h = h + vector
            if n < 3:
                h = base.encoder.albert_layer_groups[0].albert_layers[0](h, None)
                h = h[0] if isinstance(h, tuple) else h
        return c.model.predictions(h)[0, 1:-1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_shift_goes_on_as_if_the_layer_had_made_it(family, device, tmp_path):
    c, text, far = model_of(family, tmp_path, device), corpus(), set()
    for layer in range(4):
        vector = torch.randn(16, generator=torch.Generator().manual_seed(layer)).to(device)
        found = np.split(
            mean_shift.decode(c, text, "any", layer, vector, budget=40), text.starts[1:-1]
        )
        for sentence, made in zip(text, found):
            wanted = at_a_time(c, sentence, layer, vector, family)
            assert wanted[torch.arange(len(made)), made].cpu().numpy() == pytest.approx(
                wanted.amax(1).cpu().numpy(), abs=1e-4
            )
        far.add(tuple(np.concatenate(found)))
    assert len(far) > 2, "layers differ in what their shift says, or this test could not fail"


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return model_of("bert", tmp_path_factory.mktemp("bert"))


def test_nothing_is_left_behind(bert):
    text = corpus()
    before = mean_shift.decode(bert, text, "any")
    for layer in range(4):
        with (
            pytest.raises(KeyboardInterrupt),
            mean_shift.shift_hidden_states(bert, layer, torch.ones(16)),
        ):
            raise KeyboardInterrupt
    assert (mean_shift.decode(bert, text, "any") == before).all()
    with torch.no_grad():
        for sentence, made in zip(text, np.split(before, text.starts[1:-1])):
            assert (
                bert.model(torch.tensor([[2, *sentence.tolist(), 3]]))
                .logits[0, 1:-1]
                .argmax(1)
                .numpy()
                == made
            ).all()


def words(text):
    return [" ".join(f"w{i}" for i in sentence) for sentence in text]


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(1, 20),
    st.integers(30, 400),
    st.booleans(),
    st.sampled_from(["tokens", "sentences"]),
)
def test_means_by_loops_whatever_the_portion(bert, seed, portion, budget, specials, mean_of):
    text = corpus(20, seed=seed)
    found = mean_shift.language_means(
        bert,
        iter(words(text)),
        "any",
        specials=specials,
        portion=portion,
        budget=budget,
        mean_of=mean_of,
    )
    sums, n = np.zeros((4, 16)), 0
    for sentence in text:
        with torch.no_grad():
            states = bert.model(
                torch.tensor([[2, *sentence.tolist(), 3]]), output_hidden_states=True
            ).hidden_states
        rows = np.stack([s[0] if specials else s[0, 1:-1] for s in states]).astype(float)
        if mean_of == "sentences":
            rows = rows.mean(1, keepdims=True)
        sums, n = sums + rows.sum(1), n + rows.shape[1]
    assert np.stack([found[layer] for layer in range(4)]) == pytest.approx(sums / n, abs=1e-5)


def test_means_of_any_encoder_and_any_layers(bert, tmp_path):
    text = words(corpus(20))
    assert mean_shift.language_means(bert, text, "any", layers=2).keys() == {2}
    table = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    static = load_encoder(save_static(tmp_path, table, bert.tokenizer.backend_tokenizer))
    found = mean_shift.language_means(static, text, "any")[0]
    assert found.numpy() == pytest.approx(table[corpus(20).ids].mean(0), abs=1e-5)
    with pytest.raises(InputError, match="no special tokens"):
        mean_shift.language_means(static, text, "any", specials=True)
    with pytest.raises(InputError, match="no masked-LM head"):
        mean_shift.decode(static, corpus(), "any")


def test_a_view_is_moved_in_its_own_tokens(tmp_path):
    fake = dict(name="enfake", token_offset=32, special_offset=32, inverted=True)
    c = load_checkpoint(tiny_checkpoint(tmp_path, languages=[dict(name="en"), fake]))
    text = corpus(10)
    own = Encoded.of(sentence[::-1] + 32 for sentence in text)
    found = mean_shift.language_means(c, words(text), "enfake")
    assert found[2].numpy() == pytest.approx(
        hidden_states(c, own, "enfake", 2)[2].mean(0).numpy(), abs=1e-5
    )


def test_what_cannot_be_shifted_is_one_line(bert, tmp_path):
    text, vector = corpus(), torch.ones(16)
    with pytest.raises(InputError, match=r"layers 0 \(embeddings\) to 3"):
        mean_shift.decode(bert, text, "any", 4, vector)
    with pytest.raises(InputError, match="mean over 3 tokens"):
        mean_shift.language_means(bert, ["w5 w6 w7"], "any")
    with pytest.raises(InputError, match="mean_of='words'"):
        mean_shift.language_means(bert, words(text), "any", mean_of="words")
    means = mean_shift.language_means(bert, words(text), "any")
    with pytest.raises(InputError, match="texts of two languages"):
        mean_shift.mean_difference_shift(means, means)
    config = hf.XLMConfig(emb_dim=16, n_layers=2, n_heads=2, max_position_embeddings=24, n_words=32)
    with pytest.raises(InputError, match="not made by one block"):
        mean_shift.decode(
            load_checkpoint(tiny_checkpoint(tmp_path / "xlm", config=config)),
            text,
            "any",
            1,
            vector,
        )
    headless = tmp_path / "headless"
    tiny_checkpoint(headless)
    hf.AutoModel.from_pretrained(headless).save_pretrained(headless)
    with pytest.raises(InputError, match="no masked-LM head"):
        mean_shift.decode(load_checkpoint(headless), text, "any", 1, vector)


@given(st.integers(0, 10**6), st.integers(2, 60))
def test_a_floor_stands_at_right_angles(seed, width):
    vector = torch.from_numpy(np.random.default_rng(seed).normal(size=width)).float()
    other = mean_shift.random_orthogonal(vector, seed)
    assert float(other @ vector) == pytest.approx(0, abs=1e-3) and float(
        other.norm()
    ) == pytest.approx(float(vector.norm()), rel=1e-4)


tokens = st.lists(st.integers(0, 9), min_size=1, max_size=20)


@given(tokens, st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_convert_rate_is_the_equation(said, source, target):
    """#(y in V_t - V_s) over #y - #(y in V_s and V_t), counted one by one."""
    top, bottom = (
        sum(y in target - source for y in said),
        len(said) - sum(y in source & target for y in said),
    )
    found = mean_shift.token_origins(said, sorted(source), sorted(target))
    assert found["converted"] == (
        pytest.approx(top / bottom) if bottom else pytest.approx(np.nan, nan_ok=True)
    )
    assert found["neither"] == pytest.approx(
        sum(y not in source | target for y in said) / len(said)
    )
    if bottom:
        assert found["converted"] + found["kept"] + found["neither"] * len(
            said
        ) / bottom == pytest.approx(1)


def bleu_by_hand(said, wanted):
    """Every word of a reference can be found once."""
    right = 0
    for sentence, reference in zip(said, wanted):
        left = list(reference)
        for word in sentence:
            if word in left:
                left.remove(word)
                right += 1
    ours, theirs = sum(map(len, said)), sum(map(len, wanted))
    return 100 * right / ours * (np.exp(1 - theirs / ours) if ours < theirs else 1)


@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=6))
def test_bleu_by_hand(pairs):
    assert mean_shift.bleu1(*zip(*pairs)) == pytest.approx(bleu_by_hand(*zip(*pairs)))


@settings(deadline=None)
@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=6))
def test_bleu_is_sacrebleu_s(pairs):
    """Where nothing is right, it smooths; we do not."""
    sacrebleu = pytest.importorskip("sacrebleu")
    said, wanted = (
        [" ".join(f"w{t}" for t in sentence) for sentence in side] for side in zip(*pairs)
    )
    theirs = sacrebleu.metrics.BLEU(
        max_ngram_order=1, tokenize="none", force=True, smooth_method="none"
    )
    assert mean_shift.bleu1(*zip(*pairs)) == pytest.approx(
        theirs.corpus_score(said, [wanted]).score
    )


def test_bleu_of_nothing_is_refused():
    with pytest.raises(InputError, match="have tokens"):
        mean_shift.bleu1([], [])
    with pytest.raises(InputError, match="2 sentences beside 1"):
        mean_shift.bleu1([[1], [2]], [[1]])
