"""What stands beside the numbers of a probe, and the vectors that a folder's own card is of."""

import json
import warnings

import pytest
import torch
import transformers as hf
from safetensors.torch import save_file

import xlingual_nb as xl
from xlingual_nb.errors import InputError
from xlingual_nb.measures.probe import choose_pooling, encode_text, pooled_vectors, probe
from xlingual_nb.measures.remarks import remarks, unknown_sentences, unknown_tokens
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.models.encoders import load_encoder
from xlingual_nb.models.sentence_transformers import POOLING_MODES, read_sentence_transformer

torch.set_num_threads(1)
TEXT = {
    "en": ["w5 w6 w7", "w8", "w9 w10 w11 w12 w13 w14"],
    "es": ["w15 w16", "w17 w18 w19 w20 w21", "w22"],
}


@pytest.fixture
def model(tmp_path):
    return load_checkpoint(tiny_checkpoint(tmp_path / "model", words=64))


def sides(encoder, texts=TEXT):
    return {language: encode_text(encoder, lines, language) for language, lines in texts.items()}


# --- known by id, unknown in fact


def vectors(folder, rows):
    lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in rows.items()]
    path = folder / "x.vec"
    path.write_text(f"{len(rows)} 2\n" + "".join(lines))
    return load_encoder(path)


@pytest.mark.parametrize("nothing", [(0, 0), (0.5, -0.25)], ids=["zeros", "one for all"])
def test_a_vector_of_zeros_or_for_all_is_no_knowledge(tmp_path, nothing):
    rows = {"la": (1, 2), "casa": (2, 1), "the": (3, 1), "house": (1, 3), "red": (2, 3)}
    lost = dict.fromkeys(("llueve", "hoy", "poco"), nothing)
    space = vectors(tmp_path, rows | lost)
    texts = {"es": ["la casa", "hoy llueve", "la poco"], "en": ["the house", "the red", "red"]}
    ids = sides(space, texts)
    assert unknown_tokens(space, ids["es"], "es").tolist() == [
        False,
        False,
        True,
        True,
        False,
        True,
    ]
    assert unknown_sentences(space, ids) == "nothing is known of 1 of 3 sentences of es (2)"
    assert remarks(space, ids)[0] == "unknown tokens: 50.0% of es"
    with pytest.raises(InputError, match="knows none of the tokens of 'es'"):
        remarks(space, sides(space, texts | {"es": ["hoy", "llueve poco", "poco"]}))


def test_words_with_vectors_of_their_own_are_known(tmp_path):
    space = vectors(tmp_path, {"la": (1, 2), "La": (1, 2), "casa": (2, 1), "the": (3, 1)})
    ids = sides(space, {"es": ["la casa", "La casa"], "en": ["the", "the the"]})
    assert not any("unknown" in line or "nothing" in line for line in remarks(space, ids))


def test_words_of_one_sentence_may_share_a_vector(tmp_path):
    rows = {"la": (1, 2), "casa": (1, 2), "roja": (1, 2), "the": (3, 1), "red": (1, 3)}
    space = vectors(tmp_path, rows)
    of_one = sides(space, {"es": ["la casa roja", "la"], "en": ["the", "red"]})
    assert not any("unknown" in line for line in remarks(space, of_one))
    with pytest.raises(InputError, match="knows none of the tokens of 'es'"):
        remarks(space, sides(space, {"es": ["la casa", "roja"], "en": ["the", "red"]}))


def test_letters_lost_are_told_where_one_token_is_a_sentence(tmp_path):
    """WordPiece gives up after a hundred letters without a blank."""
    vocabulary = {
        token: i for i, token in enumerate("[PAD] [UNK] [CLS] [SEP] [MASK] a ##a".split())
    }
    config = hf.BertConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    tiny_checkpoint(tmp_path, config=config, words=8)
    hf.BertTokenizer(vocabulary, do_lower_case=False, strip_accents=False).save_pretrained(tmp_path)
    encoder = load_checkpoint(tmp_path)
    texts = {"th": ["a" * 150, "aaaa", "a" * 120], "en": ["a", "aa", "aaa"]}
    lines = remarks(encoder, sides(encoder, texts), texts=texts)
    assert lines[0] == "unknown tokens: 33.3% of th"
    assert lines[1] == "nothing is known of 2 of 3 sentences of th (1, 3)"
    assert lines[2] == "characters in unknown tokens: 98.5% of th"


def test_special_tokens_that_a_text_spells_out_are_text(model):
    texts = {"en": ["w5 [MASK] w6", "w7", "w8"], "es": ["w9", "w10 [SEP]", "[SEP] [MASK]"]}
    ids = sides(model, texts)
    specials = {model.mask, model.sep}
    assert not specials & {int(i) for side in ids.values() for i in side.ids}
    (line,) = [line for line in remarks(model, ids, texts=texts) if "special" in line]
    assert "[MASK] in 1 sentences of en" in line and "[SEP], [MASK] in 2 sentences of es" in line


# --- the vector that a model's card is of


def sentence_transformer(folder, pooling, dense=True, prompt="w30 w31 ", **settings):
    """A folder of sentence-transformers, whose files are written as version 5 writes them."""
    tiny_checkpoint(folder, words=64)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    if dense:
        kinds["2_Dense"] = "Dense"
    kinds["3_Normalize"] = "Normalize"
    package = "sentence_transformers.models."
    files = {
        "modules.json": [dict(path=path, type=package + kind) for path, kind in kinds.items()],
        "1_Pooling/config.json": dict(word_embedding_dimension=16, **pooling),
        "2_Dense/config.json": dict(activation_function="torch.nn.modules.activation.Tanh"),
        "sentence_bert_config.json": settings,
        "config_sentence_transformers.json": dict(
            prompts=dict(query=prompt), default_prompt_name="query"
        ),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    width = 16 * sum(pooling.get(key, False) for key in POOLING_MODES.values())
    torch.manual_seed(3)
    weights = {"linear.weight": torch.randn(6, width), "linear.bias": torch.randn(6)}
    if dense:
        save_file(weights, folder / "2_Dense/model.safetensors")
    return folder, weights


def by_hand(encoder, text, mode, max_tokens):
    """One sentence alone, framed by hand, pooled with plain sums."""
    ids = [encoder.tokenizer.convert_tokens_to_ids(word) for word in text.split()]
    ids = [2, *ids[: max_tokens - 2], 3]
    with torch.no_grad():
        states = encoder.model.base_model(torch.tensor([ids])).last_hidden_state[0]
    n = len(states)
    weights = torch.arange(1.0, n + 1)
    return {
        "cls": states[0],
        "max": states.max(0).values,
        "mean": sum(states) / n,
        "mean_sqrt_len_tokens": sum(states) / n**0.5,
        "weightedmean": sum(w * row for w, row in zip(weights, states)) / weights.sum(),
        "lasttoken": states[-1],
    }[mode]


@pytest.mark.parametrize("mode", POOLING_MODES)
def test_a_folders_own_vectors_are_those_of_its_modules(tmp_path, mode):
    folder, weights = sentence_transformer(
        tmp_path, {POOLING_MODES[mode]: True}, max_seq_length=7, do_lower_case=True
    )
    encoder = load_checkpoint(folder)
    card = choose_pooling(encoder, "model")
    assert card.prepare(["W5"]) == ["w30 w31 w5"]
    ids = encode_text(encoder, card.prepare(TEXT["en"]), "en")
    found = pooled_vectors(encoder, ids, "en", (3,), card)[3]
    for row, text in zip(found, TEXT["en"]):
        pooled = by_hand(encoder, "w30 w31 " + text, mode, 7)
        expected = torch.tanh(weights["linear.weight"] @ pooled + weights["linear.bias"])
        torch.testing.assert_close(row, expected / expected.norm(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_a_prompt_may_be_left_out_of_the_mean_and_never_hides_the_first_token(tmp_path, mode):
    pooling = {POOLING_MODES[mode]: True, "include_prompt": False}
    encoder = load_checkpoint(sentence_transformer(tmp_path, pooling, dense=False)[0])
    card = choose_pooling(encoder, "model")
    ids = encode_text(encoder, card.prepare(TEXT["en"]), "en")
    found = pooled_vectors(encoder, ids, "en", (3,), card)[3]
    for row, text in zip(found, TEXT["en"]):
        framed = [2, 30, 31, *(int(word[1:]) for word in text.split()), 3]
        with torch.no_grad():
            states = encoder.model.base_model(torch.tensor([framed])).last_hidden_state[0]
        expected = states[3:].mean(0) if mode == "mean" else states[0]
        torch.testing.assert_close(row, expected / expected.norm(), atol=1e-5, rtol=1e-4)


def test_the_vector_of_the_first_token_at_each_layer(model):
    ids = sides(model)["en"]
    found = pooled_vectors(model, ids, "en", (0, 2), "cls")
    for i, sentence in enumerate(ids):
        inputs = torch.tensor([[2, *sentence.tolist(), 3]])
        with torch.no_grad():
            states = model.model.base_model(inputs, output_hidden_states=True).hidden_states
        for layer in (0, 2):
            torch.testing.assert_close(found[layer][i], states[layer][0, 0], atol=1e-5, rtol=1e-4)


def test_of_what_rho_is_stands_beside_it(tmp_path):
    folder, _ = sentence_transformer(tmp_path, dict(pooling_mode_cls_token=True), max_seq_length=7)
    encoder = load_checkpoint(folder)
    ids = sides(encoder)
    (line,) = remarks(encoder, ids)
    for word in (
        "mean pooling",
        "cls pooling",
        "dense layer to 6",
        "'w30 w31 '",
        "pooling model",
    ):
        assert word in line
    card = choose_pooling(encoder, "model")
    (line,) = remarks(encoder, ids, pooling=card)
    assert "the folder's own sentence vectors: cls pooling" in line
    table = probe(encoder, ids, pooling=card)
    assert set(table.layer) == {3} and set(table.measure) == {"rho"}


def test_layers_below_the_last_have_no_vector_of_the_folders_own(tmp_path):
    folder, _ = sentence_transformer(tmp_path, dict(pooling_mode_cls_token=True))
    pair = {"en": ["w5 w6", "w7"], "es": ["w8 w9", "w6"]}
    for layers in ([0, 1], [0, 3], 0):
        with pytest.raises(InputError, match="layers="):
            xl.probe(folder, pair, layers=layers, pooling="model")
        with pytest.raises(InputError, match="layers="):
            xl.sentence_vectors(folder, pair["en"], "en", layers, "model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert set(xl.probe(folder, pair, layers=[3], pooling="model").layer) == {3}
    assert list(xl.sentence_vectors(folder, pair["en"], "en", 3, "model")) == [3]


def test_a_newer_file_names_its_mode(tmp_path):
    folder, _ = sentence_transformer(tmp_path, dict(pooling_mode_cls_token=True), dense=False)
    path = folder / "1_Pooling/config.json"
    path.write_text(json.dumps(dict(embedding_dimension=16, pooling_mode=["mean", "max"])))
    assert read_sentence_transformer(folder).modes == ("mean", "max")


def test_modules_that_are_not_known_are_named(tmp_path, model):
    folder, _ = sentence_transformer(tmp_path, dict(pooling_mode_cls_token=True))
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.LSTM"
    (folder / "modules.json").write_text(json.dumps(modules))
    encoder = load_checkpoint(folder)
    with pytest.raises(InputError, match="lists Transformer, Pooling, LSTM"):
        choose_pooling(encoder, "model")
    assert any("LSTM" in line for line in remarks(encoder, sides(encoder)))
    with pytest.raises(InputError, match="has no modules.json"):
        choose_pooling(model, "model")
    with pytest.raises(InputError, match="pooling median: choose mean, cls, model"):
        choose_pooling(model, "median")


# --- what config.json has left over


def test_a_decoders_flag_is_told(tmp_path):
    tiny_checkpoint(tmp_path, is_decoder=True)
    encoder = load_checkpoint(tmp_path)
    ids = sides(encoder, {"en": ["w5 w6", "w7"], "es": ["w8", "w9"]})
    assert any("is_decoder" in line for line in remarks(encoder, ids))
