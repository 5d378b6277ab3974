"""A new language from files in each layout of the field: converted by the command that its refusal names, read,
a vocabulary, a small model, a table.
"""

import re
import shlex

import pytest
from test_data_remarks import TASK_OF_FOLDER
from test_layouts import BESIDE, CASES, write
from test_scales import finnish  # noqa: F401, a fixture
from typer.testing import CliRunner

import xlingual_nb as xl
from xlingual_nb import cli
from xlingual_nb.text.layouts import foreign_layout_message

TINY = xl.PretrainingConfig(layers=1, hidden=16, epochs=1, vocab_size=200)
SENTENCES = ["Meri on sininen.", "Havet är blått."]
MORE = {  # where one line is too little to learn from: file, its lines, those of the file beside it
    ("langid", "WiLI-2018"): ("x_train.txt", SENTENCES * 6, ["fin", "swe"] * 6),
    ("langid", "Tatoeba"): (
        "own.train.tsv",
        [f"{n}\t{'fin' if n % 2 else 'swe'}\t{SENTENCES[n % 2]} {n}" for n in range(12)],
        None,
    ),
    ("langid", "header"): (
        "own.train.tsv",
        ["text\tlanguage", *(f"{SENTENCES[n % 2]} {n}\t{'fs'[n % 2]}" for n in range(12))],
        None,
    ),
    ("langid", "language first"): (
        "train.tsv",
        [f"{'fs'[n % 2]}\t{SENTENCES[n % 2]} {n}" for n in range(12)],
        None,
    ),
}


def converted(folder, kind, layout):
    """The path of a file in a layout after the command that its refusal names."""
    name, lines, beside = MORE.get((kind, layout), (*CASES[kind, layout][:2], None))
    path = write(folder, kind, name, lines)
    if beside:
        (path.parent / BESIDE[name][0]).write_text("".join(f"{line}\n" for line in beside))
    command = re.search(r"xlingual (data convert .+)", foreign_layout_message(path, kind))[1]
    result = CliRunner().invoke(cli.app, shlex.split(command))
    assert result.exit_code == 0, result.output
    return path.with_name("wili.train.tsv") if layout == "WiLI-2018" else path


def text_of(record):
    """All text of a record."""
    sides = ("premise", "hypothesis", "first", "second")
    strings = [record.get(side, "") for side in sides]
    return " ".join([*filter(None, strings), *record.get("tokens", ())])


def task_tables(task, path):
    """Scores of a model that was pretrained and fine-tuned on the file's own records."""
    records = xl.load_records(task, f"file:{path}")
    bert = xl.pretrain({"fi": [text_of(record) for record in records]}, TINY, progress=False)
    tuning = xl.FineTuningConfig(epochs=1)
    tuned = xl.fine_tune(task, bert, records, "fi", records, config=tuning, progress=False)
    return tuned.evaluate({"fi": records})


def verse_tables(path):
    verses = xl.load_text(f"file:{path}")
    pair = {"fi": verses, "fake": xl.fake_english(verses)}
    return xl.probe(xl.pretrain(pair, TINY, progress=False), pair)


def language_tables(path):
    texts = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        text, language = line.split("\t")
        texts.setdefault(language, []).append(text)
    return xl.language_identity(xl.pretrain(texts, TINY, progress=False), texts)


def word_tables(path):
    first, second = zip(*(line.split() for line in path.read_text(encoding="utf-8").splitlines()))
    texts = {"en": [f"the {word}" for word in first], "fi": [f"se {word}" for word in second]}
    for language, sentences in texts.items():
        (path.parent / f"{language}.txt").write_text("\n".join(sentences) + "\n")
    sources = {language: f"file:{path.parent}/{language}.txt" for language in texts}
    words = xl.load_dictionary(sources, f"file:{path}")
    return xl.word_retrieval(xl.pretrain(texts, TINY, progress=False), texts, words)


@pytest.mark.parametrize("kind, layout", [case for case in CASES if CASES[case][2]])
@pytest.mark.filterwarnings("ignore:.*pairs of words:UserWarning")
def test_from_a_layout_of_the_field_to_a_table(tmp_path, kind, layout):
    path = converted(tmp_path, kind, layout)
    if kind == "bible":
        table = verse_tables(path)
    elif kind == "langid":
        table = language_tables(path)
    elif kind == "dictionaries":
        table = word_tables(path)
    else:
        table = task_tables(TASK_OF_FOLDER[kind], path)
    assert len(table) and table.select_dtypes("number").notna().any(axis=None)
    if kind == "ud":
        assert task_tables("parsing", path).loc["fi"].between(0, 100).all()


def in_conll2003(text):
    """BIO with tabs as CoNLL-2003 has it: four columns, blanks, IOB1, document starts."""
    lines = ["-DOCSTART- -X- -X- O", ""]
    before = "O"
    for line in text.splitlines():
        token, _, tag = line.partition("\t")
        if token:
            is_touching = tag.startswith("B-") and before[2:] == tag[2:]
            lines.append(f"{token} X X {tag if is_touching else tag.replace('B-', 'I-')}")
        else:
            lines.append("")
        before = tag or "O"
    return "\n".join(lines) + "\n"


def in_xnli(text):
    """Three columns as XNLI's own file has them, with a pair in another language between."""
    lines = ["language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2"]
    for row in text.splitlines():
        premise, hypothesis, label = row.split("\t")
        lines.append(f"fi\t{label}\t\t{premise}\t{hypothesis}")
        lines.append(f"th\t{label}\t\tx\ty")
    return "\n".join(lines) + "\n"


def in_osis(text):
    return text.replace("GEN.1.", "Gen 1:")


@pytest.mark.parametrize(
    "name, layout",
    [
        ("ner/train.fi.conll", in_conll2003),
        ("nli/test.fi.tsv", in_xnli),
        ("verses/fi.tsv", in_osis),
    ],
)
def test_a_studys_files_come_out_of_the_fields_layouts(finnish, tmp_path, name, layout):  # noqa: F811
    """To the byte those with which `test_scales` runs notebook 02 to its table."""
    plain = (finnish / name).read_text(encoding="utf-8")
    kind = name.split("/")[0].replace("verses", "bible")
    path = tmp_path / kind / name.split("/")[1]
    path.parent.mkdir()
    path.write_text(layout(plain), encoding="utf-8")
    result = CliRunner().invoke(cli.app, ["data", "convert", str(path), "--language", "fi"])
    assert result.exit_code == 0, result.output
    assert path.read_text(encoding="utf-8").rstrip("\n") == plain.rstrip("\n")
