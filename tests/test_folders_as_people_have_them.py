"""Folders of checkpoints as people have them: `xlingual probe` gives the numbers of one sentence at a time by
transformers itself, or one line with what helps; and the command in the line does help.
"""

import json
import re
import shlex
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from test_families import WORDS, XLM, save
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from typer.testing import CliRunner

from xlingual_nb import cli
from xlingual_nb.errors import InputError
from xlingual_nb.measures.probe import choose_pooling, encode_text
from xlingual_nb.measures.remarks import remarks
from xlingual_nb.models.checkpoint_folders import silence_transformers
from xlingual_nb.models.checkpoints import inspect_checkpoint, load_checkpoint
from xlingual_nb.models.model_checks import check_settings

torch.set_num_threads(1)
TEXT = {
    "en": [f"{WORDS[i]} {WORDS[i + 1]} {WORDS[(3 * i) % 35]}" for i in range(12)],
    "es": [f"{WORDS[20 + i]} {WORDS[(5 * i) % 35]}" for i in range(12)],
}


def write_texts(folder):
    options = []
    for language, lines in TEXT.items():
        path = folder / f"{language}.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        options += ["--text", f"{language}={path}"]
    return options


def probed(folder, *options):
    """Retrieval by (layer, from, to), as `xlingual probe` gives it, and the remarks."""
    arguments = [
        "probe",
        str(folder),
        "--languages",
        "en,es",
        "--json",
        *write_texts(folder),
        *options,
    ]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    rows = [row for row in content["numbers"] if row["measure"] == "rho"]
    return {(row["layer"], row["source"], row["target"]): row["value"] for row in rows}, content[
        "remarks"
    ]


def right(folder, language_inputs=lambda language, ids: {}):
    """The same by transformers alone: framed by the tokenizer, read alone, mean of what is not special."""
    with silence_transformers():
        tokenizer = hf.AutoTokenizer.from_pretrained(folder)
        model = hf.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    sides = {}
    for language, lines in TEXT.items():
        rows = []
        for line in lines:
            encoded = tokenizer(line, return_tensors="pt", return_special_tokens_mask=True)
            is_content = encoded["special_tokens_mask"][0] == 0
            ids = encoded["input_ids"]
            inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
            with torch.no_grad():
                states = model(
                    **inputs, **language_inputs(language, ids), output_hidden_states=True
                ).hidden_states
            rows.append(torch.stack([layer[0][is_content].mean(0) for layer in states]))
        sides[language] = torch.nn.functional.normalize(torch.stack(rows, 1), dim=-1)
    scores = {}
    for one, other in (("en", "es"), ("es", "en")):
        for layer, (queries, candidates) in enumerate(zip(sides[one], sides[other])):
            best = (queries @ candidates.T).argmax(1)
            scores[layer, one, other] = float((best == torch.arange(len(best))).float().mean())
    return scores


def reframed(folder, single, *specials):
    """The folder with another template of its tokenizer."""
    path = folder / "tokenizer.json"
    backend = Tokenizer.from_file(str(path))
    ids = [(token, backend.token_to_id(token)) for token in specials]
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)
    backend.save(str(path))
    return folder


@pytest.mark.parametrize(
    "single, specials",
    [
        ("$A", ()),
        ("[CLS] $A", ("[CLS]",)),
        ("$A [SEP] [CLS]", ("[CLS]", "[SEP]")),
        ("[CLS] $A [SEP] [SEP]", ("[CLS]", "[SEP]")),
        ("[CLS]:0 $A:1 [SEP]:1", ("[CLS]", "[SEP]")),
    ],
)
def test_the_frame_is_the_tokenizers(tmp_path, single, specials):
    folder = reframed(save(tmp_path, "bert"), single, *specials)
    scores, _ = probed(folder)
    assert scores == pytest.approx(right(folder))
    if single.startswith("$A"):
        with pytest.raises(InputError, match="no special token before a sentence"):
            choose_pooling(load_checkpoint(folder), "cls")


@pytest.mark.parametrize("model_type", ["xlm", "flaubert", "xmod"])
def test_the_language_is_told(tmp_path, model_type):
    settings = dict(languages=["en_XX", "es_XX"]) if model_type == "xmod" else XLM
    save(tmp_path, model_type, **settings)

    def language_inputs(language, ids):
        number = ["en", "es"].index(language)
        if model_type == "xmod":
            return dict(lang_ids=torch.tensor([number]))
        return dict(langs=torch.full_like(ids, number))

    scores, _ = probed(tmp_path)
    assert scores == pytest.approx(right(tmp_path, language_inputs))


def sentence_transformer(folder):
    save(folder, "bert")
    prefix = "sentence_transformers.models"
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    (folder / "modules.json").write_text(
        json.dumps([dict(path=p, type=f"{prefix}.{kind}") for p, kind in modules.items()])
    )
    files = {
        "1_Pooling": dict(word_embedding_dimension=16, pooling_mode_cls_token=True),
        "2_Dense": dict(
            in_features=16,
            out_features=8,
            bias=True,
            activation_function="torch.nn.modules.activation.Tanh",
        ),
    }
    for name, content in files.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(content))
    generator = torch.Generator().manual_seed(0)
    weights = {
        "linear.weight": torch.randn(8, 16, generator=generator),
        "linear.bias": torch.zeros(8),
    }
    save_file(weights, folder / "2_Dense/model.safetensors")
    return folder, weights


def test_what_a_sentence_transformer_adds_is_said_and_done_where_asked(tmp_path):
    folder, weights = sentence_transformer(tmp_path)
    scores, said = probed(folder)
    assert scores == pytest.approx(right(folder))
    assert any("the model's card is of another vector" in line for line in said)
    scores, said = probed(folder, "--pooling", "model")
    assert any(line.startswith("rho is of the folder's own sentence vectors") for line in said)
    with silence_transformers():
        tokenizer = hf.AutoTokenizer.from_pretrained(folder)
        model = hf.AutoModel.from_pretrained(folder).eval()
    sides = {}
    for language, lines in TEXT.items():
        with torch.no_grad():
            states = [model(**tokenizer(line, return_tensors="pt"))[0][0, 0] for line in lines]
        dense = torch.tanh(torch.stack(states) @ weights["linear.weight"].T)
        sides[language] = torch.nn.functional.normalize(dense, dim=1)
    hits = (sides["en"] @ sides["es"].T).argmax(1) == torch.arange(12)
    assert scores[3, "en", "es"] == pytest.approx(float(hits.float().mean()))


def renamed(folder, rename):
    path = folder / "model.safetensors"
    save_file({rename(name): w for name, w in load_file(path).items()}, path, {"format": "pt"})


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"module.{name}",
        lambda name: f"model.{name}",
        lambda name: f"base_model.model.{name}",
        lambda name: name.replace("bert.", "model."),
        lambda name: name.replace("bert.", "model.bert."),
    ],
    ids=["module", "model", "two", "instead", "encoder alone"],
)
def test_names_of_weights_are_mended_by_the_command(tmp_path, rename, monkeypatch):
    save(tmp_path, "bert")
    expected = right(tmp_path)
    renamed(tmp_path, rename)
    with pytest.raises(InputError, match="are not in the file") as refusal:
        load_checkpoint(tmp_path)
    dash_c, code, *arguments = shlex.split(re.search(r"python (-c .+)", str(refusal.value))[1])
    assert dash_c == "-c"
    monkeypatch.setattr(sys, "argv", [dash_c, *arguments])
    exec(compile(code, "command", "exec"), {"__name__": "__main__"})
    assert load_checkpoint(tmp_path).head is not None
    assert right(tmp_path) == expected


def with_config(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def without_model_type(folder):
    path = folder / "config.json"
    content = json.loads(path.read_text())
    del content["model_type"]
    path.write_text(json.dumps(content))


def other_weights(name):
    def change(folder):
        (folder / "model.safetensors").unlink()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")

    return change


def with_adapter(folder):
    renamed(folder, lambda name: name.replace("query.weight", "query.base_layer.weight"))


def with_distances(folder):
    path = folder / "model.safetensors"
    table = {"bert.encoder.layer.0.attention.self.distance_embedding.weight": torch.zeros(95, 8)}
    save_file(load_file(path) | table, path, {"format": "pt"})


def stored_as(kind):
    def change(folder):
        path = folder / "model.safetensors"
        weights = load_file(path)
        tables = {n: w.to(kind) for n, w in weights.items() if w.ndim > 1}
        save_file(weights | tables, path, {"format": "pt"})

    return change


def with_bpe(dropout):
    def change(folder):
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        vocabulary = tokenizer["model"]["vocab"] | {"dropout": 40}
        bpe = dict(type="BPE", dropout=dropout, unk_token="[UNK]", vocab=vocabulary, merges=[])
        path.write_text(json.dumps(tokenizer | dict(model=bpe)))

    return change


def test_a_word_of_the_vocabulary_is_no_dropout(tmp_path):
    with_bpe(None)(save(tmp_path, "bert"))
    check_settings(tmp_path)


def with_broken_link(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("../../blobs/0a1b")


def as_of_tensorflow_1(folder):
    other_weights("bert_model.ckpt.index")(folder)
    (folder / "config.json").rename(folder / "bert_config.json")


def as_in_the_hubs_cache(folder):
    inner = folder / "snapshots/0a1b"
    inner.mkdir(parents=True)
    for file in [file for file in folder.iterdir() if file.is_file()]:
        file.rename(inner / file.name)


@pytest.mark.parametrize(
    "change, says",
    [
        (stored_as(torch.int8), "_embeddings.weight as I8"),
        (stored_as(torch.float8_e4m3fn), "_embeddings.weight as F8_E4M3"),
        (with_bpe(0.1), "tokenizer.json has dropout 0.1"),
        (with_broken_link, "is a link to a file that is not there"),
        (as_of_tensorflow_1, "TensorFlow 1"),
        (as_in_the_hubs_cache, "name {}/snapshots/0a1b"),
        (with_config(return_dict=False), "return_dict false"),
        (with_config(use_return_dict=False), "use_return_dict false"),
        (with_config(chunk_size_feed_forward=2), "set it to 0; no state changes"),
        (with_config(position_embedding_type="relative_key"), "transformers 5 has no code"),
        (with_distances, "relative positions, for which transformers 5 has no code"),
        (with_config(is_decoder=True, add_cross_attention=True), "add_cross_attention to false"),
        (
            with_config(quantization_config=dict(quant_method="bitsandbytes", load_in_8bit=True)),
            "quantised",
        ),
        (without_model_type, '"model_type": "bert"'),
        (with_adapter, "merge_and_unload"),
        (other_weights("tf_model.h5"), "from_tf=True"),
        (other_weights("flax_model.msgpack"), "from_flax=True"),
        (other_weights("bert_model.ckpt.index"), "TensorFlow 1"),
        (other_weights("model.gguf"), "llama.cpp"),
        (other_weights("onnx/model.onnx"), "ONNX"),
    ],
)
def test_the_line_says_what_helps(tmp_path, change, says):
    change(save(tmp_path, "bert"))
    with pytest.raises(InputError) as refusal:
        check_settings(tmp_path)
        load_checkpoint(tmp_path)
    assert says.format(tmp_path) in str(refusal.value) and str(tmp_path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_tokenizer_of_a_trainer_is_beside_its_checkpoints(tmp_path, monkeypatch):
    """The command of the message saves it, with what the model then gives."""
    save(tmp_path, "bert")
    expected = right(tmp_path)
    inner = tmp_path / "checkpoint-500"
    inner.mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).rename(inner / name)
    with pytest.raises(InputError) as refusal:
        load_checkpoint(inner)
    dash_c, code = shlex.split(re.search(r"python (-c .+)", str(refusal.value))[1])
    monkeypatch.setattr(sys, "argv", [dash_c])
    exec(compile(code, "command", "exec"), {"__name__": "__main__"})
    load_checkpoint(inner)
    assert right(inner) == expected


@pytest.mark.parametrize("model_type", ["xlm", "flaubert"])
@pytest.mark.parametrize("change", [dict(use_lang_emb=False), dict(n_langs=1)])
def test_languages_that_the_configuration_leaves_out_are_told(tmp_path, model_type, change):
    with_config(**change)(save(tmp_path, model_type, **XLM))
    with pytest.raises(InputError, match="embeddings of 2 languages .* n_langs to 2"):
        check_settings(tmp_path)


@pytest.mark.parametrize(
    "model_type, settings, change, says",
    [
        ("bert", {}, dict(is_decoder=True), "is_decoder: a token sees only those before it"),
        ("xlm", XLM, dict(causal=True), "causal: a token sees only those before it"),
        ("eurobert", dict(num_key_value_heads=2), dict(is_decoder=True), ""),
        ("roberta", {}, dict(pad_token_id=7), "pad_token_id 7, and the tokenizer pads with 0"),
        ("bert", {}, dict(pad_token_id=7), ""),
    ],
)
def test_flags_are_told_where_they_change_a_state(tmp_path, model_type, settings, change, says):
    save(tmp_path, model_type, **settings)
    with_config(**change)(tmp_path)
    _, said = probed(tmp_path)
    told = [line for line in said if "a token sees" in line or "the tokenizer pads" in line]
    assert len(told) == bool(says) and all(says in line for line in told)


def test_notebooks_refuse_the_same_settings(tmp_path):
    with_config(return_dict=False)(save(tmp_path, "bert"))
    with pytest.raises(InputError, match="return_dict false"):
        inspect_checkpoint(tmp_path)


def why_without_perplexity(folder):
    checkpoint = load_checkpoint(folder)
    assert checkpoint.head is None
    ids = {language: encode_text(checkpoint, lines, language) for language, lines in TEXT.items()}
    return remarks(checkpoint, ids)[-1]


def test_a_part_of_a_head_is_not_called_no_head(tmp_path):
    save(tmp_path, "bert")
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    del weights["cls.predictions.transform.dense.weight"]
    save_file(weights, path, {"format": "pt"})
    assert "cls.predictions.transform.dense.weight is not in the file" in why_without_perplexity(
        tmp_path
    )


def test_a_head_by_another_name_is_named(tmp_path):
    save(tmp_path, "bert")
    renamed(tmp_path, lambda name: name.replace("cls.predictions.", "lm_predictions."))
    assert "lm_predictions." in why_without_perplexity(tmp_path)


def test_no_head_is_no_head(tmp_path):
    save(tmp_path, "bert")
    path = tmp_path / "model.safetensors"
    body = {name: w for name, w in load_file(path).items() if not name.startswith("cls.")}
    save_file(body, path, {"format": "pt"})
    assert why_without_perplexity(tmp_path) == "no perplexity: there is no masked-LM head"


def test_a_static_embedding_is_probed_as_its_page_says(tmp_path, monkeypatch):
    folder = tmp_path / "path/to/model"
    folder.mkdir(parents=True)
    kind = "sentence_transformers.models.StaticEmbedding"
    (folder / "modules.json").write_text(json.dumps([dict(path="0_Static", type=kind)]))
    (folder / "0_Static").mkdir()
    ids = {word: i for i, word in enumerate(["[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "0_Static/tokenizer.json"))
    table = torch.randn(len(ids), 8, generator=torch.Generator().manual_seed(0))
    save_file({"embedding.weight": table}, folder / "0_Static/model.safetensors")
    with pytest.raises(InputError, match=r"is a StaticEmbedding .* docs/probe.md has the lines"):
        check_settings(folder)
    page = (Path(__file__).parents[1] / "docs/probe.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^    import json\n(?:    .*\n|\n)+", page, re.M)
    monkeypatch.chdir(tmp_path)
    exec(compile(dedent(block), "docs/probe.md", "exec"), {})
    scores, _ = probed(tmp_path / "static")
    sides = {}
    for language, lines in TEXT.items():
        rows = [table[tokenizer.encode(line).ids].mean(0) for line in lines]
        sides[language] = torch.nn.functional.normalize(torch.stack(rows), dim=1)
    hits = (sides["en"] @ sides["es"].T).argmax(1) == torch.arange(12)
    assert scores[0, "en", "es"] == pytest.approx(float(hits.float().mean()))
