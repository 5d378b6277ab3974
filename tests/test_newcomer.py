"""A checkpoint that was made elsewhere, probed as docs/probe.md says: by its command and by its Python."""

import re
import shlex
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
import transformers as hf
from PIL import Image
from tokenizers import BertWordPieceTokenizer, SentencePieceUnigramTokenizer

import xlingual_nb as xl
from xlingual_nb import cli

PAGE = Path(__file__).resolve().parents[1] / "docs/probe.md"
PAIRS = """house casa, dog perro, man hombre, bread pan, woman mujer, book libro, child niño, milk leche, sea mar,
night noche, sun sol, cat gato"""
SENTENCES = {
    "en": "The {} is old.",
    "es": "{} es viejo.",
}


def with_names(tokenizer, cls, sep, pad, unk, mask):
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer,
        cls_token=cls,
        sep_token=sep,
        pad_token=pad,
        unk_token=unk,
        mask_token=mask,
    )


def wordpiece(lines):
    tokenizer = BertWordPieceTokenizer(lowercase=False)
    tokenizer.train_from_iterator(lines, vocab_size=120, show_progress=False)
    return with_names(tokenizer, "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")


def unigram(lines):
    tokenizer = SentencePieceUnigramTokenizer()
    names = ["<s>", "</s>", "<pad>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(
        lines, vocab_size=120, show_progress=False, unk_token="<unk>", special_tokens=names
    )
    return with_names(tokenizer, *names)


@pytest.fixture(params=[wordpiece, unigram])
def folder(request, tmp_path, monkeypatch):
    """Where a newcomer stands: texts, pairs of words, and a random BERT in a folder with a blank."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    pairs = [pair.split() for pair in PAIRS.replace("\n", " ").split(", ")]
    Path("en-es.txt").write_text("\n".join(map(" ".join, pairs)), encoding="utf-8")
    lines = []
    for language, words in zip(SENTENCES, zip(*pairs)):
        texts = [SENTENCES[language].format(word) for word in words]
        Path(f"{language}.txt").write_text("\n".join(texts), encoding="utf-8")
        lines += texts
    tokenizer = request.param(lines)
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
    )
    hf.BertForMaskedLM(config).save_pretrained("my checkpoint")
    tokenizer.save_pretrained("my checkpoint")
    return tmp_path


def code_of_the_page(pattern):
    return re.search(pattern, PAGE.read_text(encoding="utf-8"), re.S)[1]


def test_the_command_of_the_page_gives_a_table_and_a_figure(folder, capsys):
    command = code_of_the_page(r"    xlingual (probe .*?)\n\n").replace("\\\n", " ")
    words = shlex.split(command)
    assert words[1] == "path/to/checkpoint"
    with pytest.raises(SystemExit) as stopped:
        cli.main(["probe", "my checkpoint", *words[2:]])
    assert not stopped.value.code
    numbers = pd.read_csv("numbers.csv")
    assert set(numbers.measure) == {"rho", "tau", "mu", "perplexity"}
    assert numbers.value.notna().all()
    assert "12 sentences" in capsys.readouterr().out
    assert Image.open("words.png").width > 500


def test_the_python_of_the_page_gives_the_same(folder):
    code = code_of_the_page(r"```python\n(.*?)```").replace("path/to/checkpoint", "my checkpoint")
    variables = {}
    exec(code, variables)
    plt.close(variables["figure"])
    table = variables["table"]
    with pytest.raises(SystemExit):
        cli.main(
            [*"probe --text en=en.txt --text es=es.txt --dictionary en-es.txt".split()]
            + ["--out", "numbers.csv", "my checkpoint"]
        )
    numbers = pd.read_csv("numbers.csv")
    assert numbers.value.tolist() == pytest.approx(table.value.tolist())
    assert Image.open("words.png").width > 100


@pytest.mark.parametrize(
    "arguments, says",
    [
        ("--figure words.txt --dictionary en-es.txt", r"\.png"),
        ("--figure words.png", "--dictionary"),
        ("--figure nowhere/words.png --dictionary en-es.txt", "nowhere"),
    ],
)
@pytest.mark.parametrize("folder", [wordpiece], indirect=True)
def test_a_figure_that_cannot_be_drawn_is_one_line(folder, capsys, arguments, says):
    with pytest.raises(SystemExit) as stopped:
        cli.main(
            ["probe", "my checkpoint", *"--text en=en.txt --text es=es.txt".split()]
            + arguments.split()
        )
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and re.search(says, error) and len(error.splitlines()) == 1
    assert not list(folder.glob("*.png"))


@pytest.mark.parametrize("folder", [wordpiece], indirect=True)
def test_languages_may_be_named_where_a_dictionary_is_a_file(folder):
    words = xl.load_dictionary(["eng", "spa"], "file:en-es.txt")
    assert words["eng"][0] == "house" and words["spa"][0] == "casa" and len(words["spa"]) == 12
    with pytest.raises(xl.InputError, match="file:"):
        xl.load_dictionary("en-es.txt")
    with pytest.raises(xl.InputError, match="title"):
        xl.plot_words("my checkpoint", words)


@pytest.mark.parametrize("folder", [wordpiece], indirect=True)
def test_the_legend_of_a_figure_of_one_model_is_whole(folder):
    words = xl.load_dictionary(["en", "es"], "file:en-es.txt")
    figure = xl.plot_words({"mine": "my checkpoint"}, words)
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    plt.close(figure)
    assert 0 <= box.x0 and box.x1 <= figure.bbox.width
