"""Checkpoints: every family opens, and every way to spoil a folder is one clear line."""

import json
import shutil

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from xlingual_nb.errors import InputError
from xlingual_nb.models.checkpoints import (
    Checkpoint,
    LanguageView,
    inspect_checkpoint,
    load_checkpoint,
    tiny_checkpoint,
)
from xlingual_nb.models.encoders import token_id_range
from xlingual_nb.text import tokenizers as text_tokenizers

LANGUAGES = [
    dict(name="en"),
    dict(
        name="enfake",
        token_offset=32,
        special_offset=32,
        position_offset=12,
        token_type=1,
        inverted=True,
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "model", languages=LANGUAGES)


def test_what_an_open_checkpoint_knows(folder):
    c = load_checkpoint(folder)
    assert isinstance(c, Checkpoint) and not c.model.training and not c.headless
    assert (c.cls, c.sep, c.mask, c.pad, c.depth, c.vocabulary) == (2, 3, 4, 0, 3, 64)
    assert (
        c.view("enfake") == LanguageView("enfake", 32, 32, 12, 1, True)
        and c.view(c.view("en")) is c.views["en"]
    )
    assert (c.max_length("en"), c.max_length("enfake")) == (10, 10) and token_id_range(
        c, "enfake"
    ) == (32, 64)
    assert not any(p.requires_grad for p in c.model.parameters())


def test_a_foreign_checkpoint_has_one_view_for_all(tmp_path):
    c = load_checkpoint(tiny_checkpoint(tmp_path, max_position_embeddings=24))
    assert (
        c.views == {}
        and c.view("sw") == LanguageView("sw")
        and c.max_length("sw") == 22
        and token_id_range(c, "sw") == (0, 32)
    )


def test_equal_seeds_write_equal_weights_and_leave_the_generator_alone(tmp_path):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    a, b, c = (
        load_checkpoint(tiny_checkpoint(tmp_path / name, seed=seed))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    weights = [x.model.get_input_embeddings().weight for x in (a, b, c)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    torch.manual_seed(5)
    assert torch.equal(before, torch.random.get_rng_state())


def change(file, **values):
    def spoil(copy):
        content = json.loads((copy / file).read_text())
        (copy / file).write_text(json.dumps(content | values))

    return spoil


def drop(*names):
    return lambda copy: [(copy / name).unlink() for name in names]


def cut(at):
    return lambda copy: (copy / "model.safetensors").write_bytes(
        (copy / "model.safetensors").read_bytes()[:at]
    )


def pickled(copy):
    torch.save({}, copy / "pytorch_model.bin")
    (copy / "model.safetensors").unlink()


def larger(copy):
    (copy / "tokenizer.json").write_text(
        (copy / "tokenizer.json").read_text().replace('"w31": 31', '"w31": 64')
    )


def weights(change):
    """The file of weights, a dictionary of tensors, after `change` had it."""

    def spoil(copy):
        table = load_file(copy / "model.safetensors")
        change(table)
        save_file(table, copy / "model.safetensors", metadata=dict(format="pt"))

    return spoil


def holding(name, value):
    def spoil(table):
        table[name].view(-1)[3] = value

    return weights(spoil)


def without(part):
    def spoil(table):
        for name in [name for name in table if part in name]:
            del table[name]

    return weights(spoil)


LOST, WIDE = "bert.encoder.layer.2.output.dense.weight", "bert.embeddings.word_embeddings.weight"


def views(entry):
    return change("config.json", xlingual=entry)


def language(**view):
    return change("config.json", xlingual=dict(languages=[dict(name="en"), dict(name="x", **view)]))


@pytest.mark.parametrize(
    "spoil, says",
    [
        (drop("config.json"), "config.json"),
        (drop("tokenizer.json", "tokenizer_config.json"), "has no tokenizer"),
        (cut(-1), "cut short"),
        (cut(100), "cut short"),
        (cut(0), "cut short"),
        (pickled, "pickles are not opened"),
        (lambda copy: (copy / "config.json").write_text("{"), "not JSON"),
        (lambda copy: (copy / "tokenizer.json").write_text("{}"), "does not open"),
        (
            change("config.json", vocab_size=48),
            f"{WIDE} is [64, 16] in the file and [48, 16] by config.json, …): check "
            f"that config.json belongs",
        ),
        (change("config.json", hidden_size=32), "weights have other sizes than config.json says"),
        (change("config.json", num_hidden_layers=5), "weights of the encoder are not in the file"),
        (change("config.json", model_type="nonesuch"), "does not open as a masked language model"),
        (change("tokenizer_config.json", mask_token=None), "no mask token"),
        (larger, "up to id 64"),
        (language(token_offset=64), "token ids beyond"),
        (language(special_offset=60), "token ids beyond"),
        (language(token_type=2), "segment 2"),
        (language(position_offset=23), "no positions"),
        (
            change("config.json", num_hidden_layers=2),
            "16 weights of the file are in no part of the model",
        ),
        (
            change("config.json", num_hidden_layers=0),
            "48 weights of the file are in no part of the model",
        ),
        (holding(LOST, float("nan")), f"1 numbers of {LOST} are NaN or infinite"),
        (holding(WIDE, float("-inf")), f"1 numbers of {WIDE} are NaN or infinite"),
        (without("layer.1."), "weights of the encoder are not in the file"),
        (change("tokenizer_config.json", model_max_length=2), "model_max_length"),
        (views([]), "xlingual"),
        (views(dict(languages={})), "xlingual.languages"),
        (views(dict(languages=["en"])), "language 1"),
        (views(dict(languages=[dict(token_offset=0)])), "language 1"),
        (views(dict(languages=[dict(name="en"), dict(name="en")])), "twice"),
        (views(dict(languages=[dict(name=3)])), "name"),
        (language(token_offset="32"), "token_offset='32'"),
        (language(token_offset=-1), "token_offset=-1"),
        (language(token_offset=1.5), "token_offset=1.5"),
        (language(inverted=1), "inverted=1"),
        (language(special_offset=None), "None"),
    ],
)
def test_a_spoilt_folder_is_one_clear_line(folder, tmp_path, spoil, says):
    copy = shutil.copytree(folder, tmp_path / "copy")
    spoil(copy)
    with pytest.raises(InputError) as refusal:
        load_checkpoint(copy)
    message = str(refusal.value)
    assert says in message and str(copy) in message and "\n" not in message


@pytest.mark.parametrize(
    "path, device, says", [("nowhere", "cpu", "not a folder"), (None, "tpu9", "device='tpu9'")]
)
def test_wrong_arguments(folder, tmp_path, path, device, says):
    with pytest.raises(InputError, match=says):
        load_checkpoint(tmp_path / path if path else folder, device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="only without a GPU")
def test_a_gpu_that_is_not_there(folder):
    with pytest.raises(InputError, match="no GPU"):
        load_checkpoint(folder, "cuda")
    assert load_checkpoint(folder, "auto").device.type == "cpu"


def test_an_unknown_language_names_those_known(folder):
    with pytest.raises(InputError, match="en, enfake"):
        load_checkpoint(folder).view("de")


BART = hf.BartConfig(
    d_model=16,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=32,
    decoder_ffn_dim=32,
    max_position_embeddings=24,
    bos_token_id=2,
    eos_token_id=3,
    decoder_start_token_id=2,
    forced_eos_token_id=3,
    vocab_size=32,
    pad_token_id=0,
)
FUNNEL = hf.FunnelConfig(
    block_sizes=[1, 1],
    num_decoder_layers=1,
    d_model=16,
    n_head=2,
    d_head=8,
    d_inner=32,
    vocab_size=32,
)


@pytest.mark.parametrize(
    "config, says", [(BART, "bart.*encoder-decoder"), (FUNNEL, "funnel")], ids=("bart", "funnel")
)
def test_a_family_that_gives_no_vector_a_token_and_layer_is_one_line(tmp_path, config, says):
    tiny_checkpoint(tmp_path, words=32, config=config)
    with pytest.raises(InputError, match=says) as refusal:
        load_checkpoint(tmp_path)
    assert str(tmp_path) in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "model",
    [
        hf.GPT2LMHeadModel(
            hf.GPT2Config(
                n_embd=16, n_layer=2, n_head=2, vocab_size=32, bos_token_id=2, eos_token_id=3
            )
        ),
        hf.T5ForConditionalGeneration(
            hf.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=32)
        ),
    ],
    ids=lambda model: model.config.model_type,
)
def test_a_family_without_masked_language_models_is_told_which_to_take(tmp_path, model):
    tiny_checkpoint(tmp_path)
    model.save_pretrained(tmp_path)
    for opener in (load_checkpoint, inspect_checkpoint):
        with pytest.raises(
            InputError, match="no masked language model .*: take BERT, RoBERTa"
        ) as refusal:
            opener(tmp_path)
        assert str(tmp_path) in str(refusal.value) and "belongs" not in str(refusal.value)


OTHERS = dict(
    hidden_size=16,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=24,
    vocab_size=32,
    pad_token_id=0,
)
FAMILIES = [
    hf.AlbertConfig(embedding_size=8, num_hidden_layers=3, **OTHERS),
    hf.ElectraConfig(embedding_size=8, num_hidden_layers=2, **OTHERS),
    hf.RobertaConfig(num_hidden_layers=2, **OTHERS),
    hf.DistilBertConfig(
        dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=24, vocab_size=32
    ),
    hf.XLMConfig(emb_dim=16, n_layers=2, n_heads=2, max_position_embeddings=24, n_words=32),
]


@pytest.mark.parametrize("config", FAMILIES, ids=lambda config: config.model_type)
def test_families_that_measure_still_open(tmp_path, config):
    assert load_checkpoint(tiny_checkpoint(tmp_path, words=32, config=config)).depth in (2, 3)


def test_what_other_heads_leave_in_the_file_is_no_fault(tmp_path):
    tiny_checkpoint(tmp_path)
    hf.BertForPreTraining.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert not load_checkpoint(tmp_path).headless
    hf.BertForSequenceClassification.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert load_checkpoint(tmp_path).headless


def test_layers_without_a_prefix_are_seen_too(tmp_path):
    tiny_checkpoint(tmp_path)
    hf.AutoModel.from_pretrained(tmp_path).save_pretrained(tmp_path)
    change("config.json", num_hidden_layers=1)(tmp_path)
    with pytest.raises(InputError, match="32 weights of the file are in no part"):
        load_checkpoint(tmp_path)


def test_code_that_comes_with_a_model_is_not_run(folder, tmp_path):
    copy, trace = shutil.copytree(folder, tmp_path / "copy"), tmp_path / "trace"
    (copy / "evil.py").write_text(
        f"open({str(trace)!r}, 'w').write('ran')\nclass Evil: pass\nclass EvilConfig: pass\n"
    )
    change(
        "config.json",
        model_type="evil",
        auto_map=dict(AutoConfig="evil.EvilConfig", AutoModelForMaskedLM="evil.Evil"),
    )(copy)
    with pytest.raises(InputError):
        load_checkpoint(copy)
    assert not trace.exists()


def test_an_encoder_without_a_head_is_known_as_such(tmp_path):
    tiny_checkpoint(tmp_path)
    hf.AutoModel.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert load_checkpoint(tmp_path).headless


def test_a_cased_vocabulary_that_would_be_lower_cased_is_refused(tmp_path):
    tiny_checkpoint(tmp_path, words=12)
    for file in tmp_path.glob("tokenizer*"):
        file.unlink()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "He", "Ăn", "the", "a", "b", "c", "d"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    lowered = dict(do_lower_case=True, tokenizer_class="BertTokenizer")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(lowered))
    with pytest.raises(InputError, match="lower-cases but its vocabulary is cased"):
        load_checkpoint(tmp_path)
    cased = dict(do_lower_case=False, strip_accents=False, tokenizer_class="BertTokenizer")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(cased))
    assert load_checkpoint(tmp_path).tokenizer.tokenize("He Ăn") == ["He", "Ăn"]


def test_this_projects_own_tokenizer_folder_opens(tmp_path):
    pieces = text_tokenizers.train_wordpiece(["In the beginning was the Word"] * 3, 30)
    tokenizer = text_tokenizers.pair_vocabulary(pieces)
    size = tokenizer.get_vocab_size()
    tiny_checkpoint(
        tmp_path,
        words=size // 2,
        languages=[dict(name="en"), dict(name="enfake", token_offset=size // 2)],
    )
    text_tokenizers.save_tokenizer(tokenizer, tmp_path)
    c = load_checkpoint(tmp_path)
    assert (c.cls, c.sep, c.mask, c.pad) == (2, 3, 4, 0) and c.vocabulary == size
    assert c.tokenizer("the Word", add_special_tokens=False)["input_ids"] == list(
        text_tokenizers.encode(tokenizer, ["the Word"])[0]
    )


# --- folders as people have them


def refusal(folder):
    with pytest.raises(InputError) as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def command_in(message):
    """The Python code that a message tells to run."""
    return message.split('python -c "')[1].split('"')[0]


def test_pickled_weights_come_with_the_command_that_writes_them_anew(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    states = {
        name: weight.clone() for name, weight in load_file(copy / "model.safetensors").items()
    }
    (copy / "model.safetensors").unlink()
    torch.save(states, copy / "pytorch_model.bin")
    exec(command_in(refusal(copy)), {})
    assert load_checkpoint(copy).depth == 3


def test_weights_of_a_parallel_training_come_with_the_command_that_renames_them(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    file = copy / "model.safetensors"
    renamed = {"module." + name: weight.clone() for name, weight in load_file(file).items()}
    save_file(renamed, file, metadata=dict(format="pt"))
    message = refusal(copy)
    assert "begin with 'module.'" in message
    exec(command_in(message), {})
    assert not load_checkpoint(copy).headless


def test_a_pointer_of_git_lfs_is_no_damage(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 714314041\n"
    (copy / "model.safetensors").write_text(pointer)
    assert f"pointer of Git LFS, not the weights: fetch them, git -C {copy} lfs pull" in refusal(
        copy
    )


@pytest.mark.parametrize("left", [0, 1])
def test_a_shard_that_is_not_there_is_named(tmp_path, left):
    tiny_checkpoint(tmp_path)
    model = hf.AutoModelForMaskedLM.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="8KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1 and load_checkpoint(tmp_path).depth == 3
    for shard in shards[left:]:
        shard.unlink()
    message = refusal(tmp_path)
    assert shards[left].name in message and "copy" in message


def test_an_adapter_names_its_base(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "config.json").unlink()
    (copy / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    message = refusal(copy)
    assert "PEFT adapter of some/base: merge" in message and "merge_and_unload()" in message


@pytest.mark.parametrize("inner", ["0_Transformer", "checkpoint-500"])
def test_a_folder_within_is_pointed_to(folder, tmp_path, inner):
    shutil.copytree(folder, tmp_path / inner)
    shutil.copytree(folder, tmp_path / "2_Dense")
    message = refusal(tmp_path)
    named = inner if inner == "0_Transformer" else "2_Dense"
    assert f"has no config.json: name {tmp_path / named}" in message


def test_a_vocabulary_that_needs_a_package_names_it(folder, tmp_path, monkeypatch):
    copy = shutil.copytree(folder, tmp_path / "copy")
    drop("tokenizer.json", "tokenizer_config.json")(copy)
    (copy / "spm.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    change("config.json", model_type="deberta-v2")(copy)
    monkeypatch.setattr("xlingual_nb.models.tokenizer_checks.find_spec", lambda name: None)
    assert "pip install sentencepiece" in refusal(copy)


def test_code_of_a_folders_own_is_said_to_be_missing(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    change("config.json", model_type="new", auto_map={"AutoModelForMaskedLM": "m.M"})(copy)
    assert "code of its own" in refusal(copy)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_a_package_for_attention_is_not_needed(folder, tmp_path, key):
    copy = shutil.copytree(folder, tmp_path / "copy")
    change("config.json", **{key: "flash_attention_2"})(copy)
    assert load_checkpoint(copy).depth == inspect_checkpoint(copy).depth == 3


def test_accents_that_are_stripped_though_the_vocabulary_has_them(tmp_path):
    tiny_checkpoint(tmp_path)
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] l\u1ea1 \u1edf ch\u00e0o em anh".split()
    tokenizer = hf.BertTokenizer({word: i for i, word in enumerate(words)}, do_lower_case=True)
    tokenizer.save_pretrained(tmp_path)
    message = refusal(tmp_path)
    assert "strips accents" in message and "set strip_accents to false" in message
