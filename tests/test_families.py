"""Every family of masked language models that transformers has: read as a plain loop reads it, one
sentence at a time, or refused in one line. Weights are spread as those of a trained model are, for
at the spread of an initialisation little depends on anything.
"""

import json
import re
from pathlib import Path

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers.models.auto import modeling_auto

from xlingual_nb.errors import InputError
from xlingual_nb.measures.embeddings import sentence_vectors
from xlingual_nb.measures.perplexity import masked_nll
from xlingual_nb.measures.probe import encode_text
from xlingual_nb.measures.remarks import remarks
from xlingual_nb.models.checkpoint_folders import silence_transformers
from xlingual_nb.models.checkpoints import load_checkpoint
from xlingual_nb.models.masked_lm import onednn_linear_layers

torch.set_num_threads(1)
SIZES = dict(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=48,
    pad_token_id=0,
    bos_token_id=2,
    eos_token_id=3,
    cls_token_id=2,
    sep_token_id=3,
)
XLM = dict(
    vocab_size=40,
    emb_dim=16,
    n_layers=3,
    n_heads=2,
    max_position_embeddings=48,
    pad_index=0,
    pad_token_id=0,
    bos_index=2,
    eos_index=3,
    n_langs=2,
    use_lang_emb=True,
    lang2id={"en": 0, "es": 1},
    id2lang={"0": "en", "1": "es"},
    dropout=0.0,
    attention_dropout=0.0,
)
IMAGES = dict(
    vision_config=dict(
        model_type="siglip_vision_model",
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
    ),
    image_token_id=39,
)
READ = {
    "albert": dict(embedding_size=8),
    "bert": {},
    "camembert": {},
    "data2vec-text": {},
    "deberta": {},
    "deberta-v2": {},
    "distilbert": dict(dim=16, n_layers=3, n_heads=2, hidden_dim=32),
    "electra": dict(embedding_size=8),
    "ernie": {},
    "esm": dict(position_embedding_type="rotary", mask_token_id=4, token_dropout=False),
    "eurobert": dict(num_key_value_heads=2),
    "megatron-bert": {},
    "modernbert": {},
    "mpnet": {},
    "nomic_bert": {},
    "rembert": dict(input_embedding_size=8, output_embedding_size=8),
    "roberta": {},
    "roberta-prelayernorm": {},
    "roformer": dict(embedding_size=16),
    "squeezebert": dict(
        embedding_size=16,
        q_groups=1,
        k_groups=1,
        v_groups=1,
        post_attention_groups=1,
        intermediate_groups=1,
        output_groups=1,
    ),
    "xlm-roberta": {},
    "xlm-roberta-xl": {},
    "xlm": XLM,
    "flaubert": XLM,
    "xmod": dict(languages=["en_XX", "es_XX"]),
    "longformer": dict(attention_window=8),
    "luke": dict(entity_vocab_size=10, entity_emb_size=8),
    "big_bird": {},
    "esmc": {},
    "gte": {},
    "ibert": {},
    "jina_embeddings_v3": {},
    "modernvbert": dict(text_config=SIZES | dict(model_type="modernbert"), **IMAGES),
    "mra": {},
    "neomme": dict(
        head_dim=16, num_key_value_heads=2, embedding_rank=8, patch_size=2, embedding_dim=8
    ),
    "tapas": {},
    "ultrabert": {},
    "ultravbert": dict(
        text_config=SIZES
        | dict(model_type="ultrabert", num_key_value_heads=2, prediction_head_size=16),
        **IMAGES,
    ),
}
ONE_BY_ONE = {
    "convbert": dict(embedding_size=16),
    "fnet": {},
    "mobilebert": dict(embedding_size=8, intra_bottleneck_size=16, true_hidden_size=16),
    "nystromformer": dict(num_landmarks=8, segment_means_seq_len=8),
    "yoso": {},
}
WORDS = [f"w{i}" for i in range(5, 40)]
TEXT = {
    "en": ["w5 w6 w7", "w8", "w9 w10 w11 w12 w13 w14 w15 w16 w17", "w18 w19"],
    "es": [
        "w20 w21",
        "w22 w23 w24 w25 w26 w27",
        "w28",
        " ".join(f"w{5 + 7 * i % 35}" for i in range(44)),
    ],
}


def save(folder, model_type, **settings):
    """A random model of a family beside a tokenizer of whole words."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: i for i, word in enumerate([*specials, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    sizes = SIZES | settings
    if model_type == "funnel":  # has blocks of layers
        del sizes["num_hidden_layers"]
    config = hf.AutoConfig.for_model(model_type, **sizes)
    with silence_transformers(), torch.random.fork_rng():
        torch.manual_seed(0)
        model = hf.AutoModelForMaskedLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:  # the row of the padding too
                    parameter.normal_(0, 0.3)
        model.save_pretrained(folder)
        hf.PreTrainedTokenizerFast(
            tokenizer_object=backend, **dict(zip(names, specials))
        ).save_pretrained(folder)
    return folder


def languages_of(model_type, language):
    """What the library wants to be told of a language."""
    number = ["en", "es"].index(language)
    if model_type in ("xlm", "flaubert"):
        return lambda ids: dict(langs=torch.full_like(ids, number))
    if model_type == "xmod":
        return lambda ids: dict(lang_ids=torch.tensor([number]))
    return lambda ids: {}


def plain_means(folder, model_type, language):
    """By layer the mean over the words of each sentence, read alone by the library."""
    with silence_transformers():
        tokenizer = hf.AutoTokenizer.from_pretrained(folder)
        model = hf.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for sentence in TEXT[language]:
        ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
        arguments = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
        arguments |= languages_of(model_type, language)(ids)
        with torch.no_grad():
            states = model(**arguments, output_hidden_states=True).hidden_states
        rows.append(torch.stack([layer[0, 1:-1].mean(0) for layer in states]))
    return torch.stack(rows, 1)


def check_equal(folder, model_type, checkpoint):
    for language, lines in TEXT.items():
        text = encode_text(checkpoint, lines, language)
        ours = sentence_vectors(checkpoint, text, language, range(checkpoint.depth + 1))
        expected = plain_means(folder, model_type, language)
        for layer, vectors in ours.items():
            torch.testing.assert_close(vectors, expected[layer], atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("model_type", READ | ONE_BY_ONE)
def test_states_are_those_of_a_plain_loop(tmp_path, model_type):
    save(tmp_path, model_type, **(READ | ONE_BY_ONE)[model_type])
    checkpoint = load_checkpoint(tmp_path)
    check_equal(tmp_path, model_type, checkpoint)
    with onednn_linear_layers(checkpoint.model):  # as `probe` computes them
        check_equal(tmp_path, model_type, checkpoint)
    assert checkpoint.one_by_one == (model_type in ONE_BY_ONE)
    ids = {language: encode_text(checkpoint, lines, language) for language, lines in TEXT.items()}
    is_told = any("one at a time" in line for line in remarks(checkpoint, ids))
    assert is_told == checkpoint.one_by_one


@pytest.mark.parametrize("model_type", ["convbert", "fnet", "mobilebert"])
def test_perplexity_is_that_of_one_sentence_at_a_time(tmp_path, model_type):
    save(tmp_path, model_type, **ONE_BY_ONE[model_type])
    checkpoint = load_checkpoint(tmp_path)
    text = encode_text(checkpoint, TEXT["en"], "en")
    total = 0.0
    for sentence in text:
        labels = torch.tensor([[-100, *sentence.tolist(), -100]])
        ids = torch.tensor([[2, *[4] * len(sentence), 3]])
        with torch.no_grad():
            total += checkpoint.model(input_ids=ids, labels=labels).loss.item() * len(sentence)
    assert masked_nll(checkpoint, text, "en", rate=1) == (pytest.approx(total, rel=1e-4), 15)


@pytest.mark.parametrize("model_type", ["deberta", "deberta-v2"])
def test_debertas_own_head_is_opened(tmp_path, model_type):
    """Released folders do not say which of two heads they hold, and transformers takes the other."""
    save(tmp_path, model_type, legacy=False)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["legacy"]
    path.write_text(json.dumps(config))
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.head is not None
    text = encode_text(checkpoint, TEXT["en"], "en")
    model = hf.AutoModelForMaskedLM.from_pretrained(
        tmp_path, config=hf.AutoConfig.from_pretrained(tmp_path, legacy=False)
    )
    total = 0.0
    for sentence in text:
        labels = torch.tensor([[-100, *sentence.tolist(), -100]])
        ids = torch.tensor([[2, *[4] * len(sentence), 3]])
        with torch.no_grad():
            total += model(input_ids=ids, labels=labels).loss.item() * len(sentence)
    assert masked_nll(checkpoint, text, "en", rate=1) == (pytest.approx(total, rel=1e-4), 15)


REFUSED = {
    "bart": (dict(d_model=16, encoder_layers=2, decoder_layers=2), "encoder-decoder"),
    "mbart": (dict(d_model=16, encoder_layers=2, decoder_layers=2), "encoder-decoder"),
    "mvp": (dict(d_model=16, encoder_layers=2, decoder_layers=2), "encoder-decoder"),
    "reformer": (
        dict(is_decoder=False, attention_head_size=8, axial_pos_embds=False, attn_layers=["local"]),
        "states depend on padding, and with hashed attention on chance",
    ),
    "funnel": (dict(block_sizes=[1, 1], d_model=16, n_head=2, d_head=8), "funnel"),
    "nystromformer": (dict(num_landmarks=4, segment_means_seq_len=8), "does not run"),
    "layoutlm": ({}, "reads bbox"),
    "roc_bert": (
        dict(pronunciation_vocab_size=10, shape_vocab_size=10),
        "reads input_shape_ids, input_pronunciation_ids",
    ),
    "perceiver": (dict(d_latents=16, d_model=16), "perceiver"),
}


@pytest.mark.parametrize("model_type", REFUSED)
def test_what_cannot_be_read_is_one_line(tmp_path, model_type):
    settings, says = REFUSED[model_type]
    save(tmp_path, model_type, **settings)
    with pytest.raises(InputError, match=says) as refusal:
        load_checkpoint(tmp_path)
    assert "\n" not in str(refusal.value) and str(tmp_path) in str(refusal.value)


def test_the_page_lists_the_families():
    page = (Path(__file__).parents[1] / "docs/probe.md").read_text(encoding="utf-8")
    parts = re.split(r"\*\*(.+?)\*\*", page.partition("## Families")[2])
    names = [re.findall(r"`([\w-]+)`", part or "") for part in parts]
    read, one_by_one, refused = names[2], names[4], names[6]
    assert (set(read), set(one_by_one)) == (set(READ), set(ONE_BY_ONE))
    # Nyströmformer is refused with settings of landmarks that do not fit its text.
    assert set(refused) == set(REFUSED) - set(ONE_BY_ONE)
    known = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    assert {*read, *one_by_one, *refused} == set(known)


LONG = [" ".join(WORDS[(7 * i + 3 * j) % 35] for j in range(n)) for i, n in enumerate((3, 70, 9))]


@pytest.mark.parametrize(
    "model_type, settings",
    [
        ("longformer", dict(attention_window=8)),
        ("big_bird", dict(attention_type="block_sparse", block_size=4, num_random_blocks=1)),
    ],
)
def test_long_texts_have_states_that_do_not_depend_on_what_was_read_before(
    tmp_path, model_type, settings
):
    checkpoint = load_checkpoint(save(tmp_path, model_type, max_position_embeddings=96, **settings))
    text, backwards = (encode_text(checkpoint, lines, "en") for lines in (LONG, LONG[::-1]))
    ours = sentence_vectors(checkpoint, text, "en", (0, 3))
    for layer, vectors in sentence_vectors(checkpoint, backwards, "en", (0, 3)).items():
        torch.testing.assert_close(vectors.flip(0), ours[layer], atol=2e-5, rtol=2e-5)
    with silence_transformers():
        model = hf.AutoModel.from_pretrained(tmp_path).eval()
    if model_type == "big_bird":
        model.set_attention_type("original_full")
    for i, sentence in enumerate(text):
        ids = torch.tensor([[2, *sentence.tolist(), 3]])
        with torch.no_grad():
            states = model(input_ids=ids, output_hidden_states=True).hidden_states
        expected = states[3][0, 1 : 1 + len(sentence)].mean(0)
        torch.testing.assert_close(ours[3][i], expected, atol=2e-5, rtol=2e-5)
    said = [line for line in remarks(checkpoint, {"en": text}) if "full attention" in line]
    assert said == (
        ["read with full attention, not block-sparse as config.json has it: 1 of 3 sentences of en"]
        if model_type == "big_bird"
        else []
    )


# --- the language of a text


@pytest.mark.parametrize("model_type", ["xlm", "xmod"])
def test_each_language_is_told_and_a_foreign_one_is_refused(tmp_path, model_type):
    checkpoint = load_checkpoint(save(tmp_path, model_type, **READ[model_type]))
    (one,), (other,) = (
        sentence_vectors(checkpoint, encode_text(checkpoint, ["w5 w6"], name), name, [3]).values()
        for name in ("en", "es")
    )
    assert not torch.allclose(one, other, atol=1e-2)
    with pytest.raises(InputError, match="'de' is none of its languages: name one of en") as error:
        checkpoint.view("de")
    assert "\n" not in str(error.value)


def test_a_country_is_chosen_where_a_language_has_several(tmp_path):
    checkpoint = load_checkpoint(save(tmp_path, "xmod", languages=["zh_CN", "zh_TW", "en_XX"]))
    assert checkpoint.view("zh_TW").name == "zh_TW" and checkpoint.view("en").name == "en"
    with pytest.raises(InputError, match="'zh' is not one .*: name one of zh_CN, zh_TW"):
        checkpoint.view("zh")


def test_a_model_of_one_language_is_told_none(tmp_path):
    checkpoint = load_checkpoint(save(tmp_path, "xlm", **XLM | dict(use_lang_emb=False)))
    assert checkpoint.language_input is None and checkpoint.view("any").name == "any"


# --- what stands around a sentence


def test_a_model_that_reads_long_batches_in_chunks_reads_one_by_one(tmp_path, monkeypatch):
    """Up to 64 tokens, its states do not depend on the padding."""
    usual = hf.models.bert.modeling_bert.BertEmbeddings.forward

    def in_chunks(self, input_ids, *arguments, **rest):
        vectors = usual(self, input_ids, *arguments, **rest)
        return vectors if input_ids.shape[1] <= 64 else vectors.roll(64, 1)

    save(tmp_path, "bert", max_position_embeddings=160)
    assert not load_checkpoint(tmp_path).one_by_one
    monkeypatch.setattr(hf.models.bert.modeling_bert.BertEmbeddings, "forward", in_chunks)
    assert load_checkpoint(tmp_path).one_by_one


def longest_input(model) -> int:
    """Number of tokens up to which a model of at most 60 positions runs."""
    for length in range(60, 0, -1):
        try:
            model.base_model(torch.full((1, length), 7))
        except (IndexError, RuntimeError):
            continue
        return length


@pytest.mark.parametrize("model_type", ["bert", "roberta", "ibert", "mra", "nystromformer", "yoso"])
def test_the_longest_sentence_is_that_which_the_model_takes(tmp_path, model_type):
    """Some have rows of position embeddings that no token has."""
    checkpoint = load_checkpoint(save(tmp_path, model_type, **READ.get(model_type, {})))
    limit = longest_input(checkpoint.model) - len(checkpoint.prefix) - len(checkpoint.suffix)
    assert checkpoint.max_length("en") == limit
    assert len(checkpoint.positions) == longest_input(checkpoint.model)


@pytest.mark.parametrize(
    "single, prefix, suffix",
    [("$A", (), ()), ("[CLS] $A", (2,), ()), ("[CLS] [MASK] $A [SEP]", (2, 4), (3,))],
)
def test_a_sentence_stands_in_the_tokenizers_own_frame(tmp_path, single, prefix, suffix):
    save(tmp_path, "bert")
    path = tmp_path / "tokenizer.json"
    file = json.loads(path.read_text())
    backend = Tokenizer.from_str(json.dumps(file))
    backend.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[("[CLS]", 2), ("[SEP]", 3), ("[MASK]", 4)]
    )
    backend.save(str(path))
    checkpoint = load_checkpoint(tmp_path)
    assert (checkpoint.prefix, checkpoint.suffix) == (prefix, suffix)
    assert checkpoint.max_length("en") == 48 - len(prefix) - len(suffix)
    text = encode_text(checkpoint, TEXT["en"], "en")
    ours = sentence_vectors(checkpoint, text, "en", (0, 3))
    for i, sentence in enumerate(text):
        ids = torch.tensor([[*prefix, *sentence.tolist(), *suffix]])
        with torch.no_grad():
            states = checkpoint.model(input_ids=ids, output_hidden_states=True).hidden_states
        for layer, vectors in ours.items():
            content = states[layer][0, len(prefix) : len(prefix) + len(sentence)]
            torch.testing.assert_close(vectors[i], content.mean(0), atol=2e-5, rtol=2e-5)
    is_told = any("no special tokens" in line for line in remarks(checkpoint, {"en": text}))
    assert is_told == (not prefix and not suffix)
