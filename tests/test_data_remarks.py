"""What is odd about the files that runs read: said before they run and in their provenance. A file of another
layout is refused with the command that converts it, and that command does.
"""

import re
import shlex
from dataclasses import replace

import pytest
from test_layouts import BESIDE, CASES
from typer.testing import CliRunner

import xlingual_nb as xl
from xlingual_nb import cli
from xlingual_nb.experiments.data_remarks import data_remarks
from xlingual_nb.experiments.study import TableEntry, provenance
from xlingual_nb.measures.dictionary_words import WordSpec
from xlingual_nb.report.notebook_display import cost_table
from xlingual_nb.runs.store import Store
from xlingual_nb.text.dictionaries import Dictionary
from xlingual_nb.text.records import RecordsSpec
from xlingual_nb.text.sources import CorpusSpec

TASK_OF_FOLDER = dict(ner="ner", nli="nli", doc="documents", ud="pos")
READ = [case for case in CASES if case[0] != "langid" and CASES[case][2]]


def read(kind, path):
    """What the API reads of a file."""
    if kind in TASK_OF_FOLDER:
        return xl.load_records(TASK_OF_FOLDER[kind], f"file:{path}")
    if kind == "bible":
        return xl.load_text(f"file:{path}")
    return xl.load_dictionary({"en": "micro/en", "fi": "micro/es"}, f"file:{path}")


@pytest.mark.parametrize("kind, layout", READ)
def test_a_foreign_layout_is_refused_with_the_command_that_helps(tmp_path, kind, layout):
    name, lines, expected = CASES[kind, layout]
    path = tmp_path / "my files" / name
    path.parent.mkdir()
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    if name in BESIDE:
        beside, text = BESIDE[name]
        (path.parent / beside).write_text(text)
    with pytest.raises(xl.InputError, match="is of another layout") as refusal:
        read(kind, path)
    command = re.search(r"xlingual (data convert [^()]+)", str(refusal.value))[1]
    result = CliRunner().invoke(cli.app, shlex.split(command))
    assert result.exit_code == 0, result.output
    assert path.read_text(encoding="utf-8").splitlines() == expected
    assert len(read(kind, path))


def test_names_whose_first_tag_is_wrong_are_repaired_where_that_is_asked(tmp_path):
    path = tmp_path / "es.conll"
    path.write_text("Oulu\tI-LOC\n")
    (record,) = xl.load_records("ner", f"file:{path}", repair=True)
    assert record["tags"] == ["B-LOC"]


def corpus(folder, lines, name="fi.txt"):
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return CorpusSpec(f"file:{path}")


ODD = ["<p>", "Tämä on lause.", "Toinen lause on täällä."]


def test_plan_and_provenance_say_what_is_odd(tmp_path, capsys):
    spec = corpus(tmp_path, ODD)
    cells = [TableEntry("K2020", "table1", "row", "column", 0, (spec,))]
    cost_table(cells, Store(tmp_path / "runs"))
    assert "33.3% of the lines hold markup (first: line 1)" in capsys.readouterr().out
    rows = provenance(cells)
    (remark,) = rows[rows.of == "remark"].itertuples()
    assert remark.what == "fi.txt" and "hold markup" in remark.digest
    assert data_remarks([corpus(tmp_path, ODD[1:], "en.txt")]) == {}


def test_the_normal_form_and_what_was_converted_stand_in_the_provenance(tmp_path):
    lines = ["a\u0308iti", "isä", "Tämä on lause."]
    spec = corpus(tmp_path, lines)
    path = tmp_path / "fi.txt"
    (told,) = data_remarks([spec])[str(path)]
    assert told.startswith("33.3% of the lines are not in Unicode's form NFC (first: line 1)")
    command = re.search(r"xlingual (data convert .+)", told)[1]
    result = CliRunner().invoke(cli.app, shlex.split(command))
    assert result.exit_code == 0 and path.read_text(encoding="utf-8").startswith("\u00e4iti\n")
    cells = [TableEntry("K2020", "table1", "row", "column", 0, (spec,))]
    rows = provenance(cells)
    (remark,) = rows[rows.of == "remark"].itertuples()
    assert remark.digest.endswith("from this project's layout, normalised to NFC")
    path.write_text("Tämä on muuta.\n", encoding="utf-8")
    assert data_remarks([spec]) == {}


def test_a_few_lines_of_many_are_left_to_data_check(tmp_path):
    lines = [f"Tämä on lause {n}." for n in range(200)]
    assert data_remarks([corpus(tmp_path, [*ODD, *lines])]) == {}


def test_a_file_that_cannot_be_what_it_says_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(xl.InputError, match="cannot be what its name says: .*hold markup"):
        data_remarks([corpus(tmp_path, ["<p>", "</p>", "Lause."])])
    path = tmp_path / "xnli.test.fi.tsv"
    path.write_text("premise\thypothesis\tlabel\nA.\tB.\tneutral\n")
    with pytest.raises(xl.InputError, match=f"xlingual data convert {path} --kind nli"):
        data_remarks([RecordsSpec("nli", f"file:{path}")])


def test_test_records_in_the_training_file_of_a_run(tmp_path):
    for part in ("train", "test"):
        (tmp_path / f"{part}.fi.conll").write_text("Oulu\tB-LOC\n\nAnna\tB-PER\n")
    specs = [
        RecordsSpec("ner", f"file:{tmp_path}/{{part}}.fi.conll", part) for part in ("train", "test")
    ]
    assert data_remarks(specs) == {
        str(tmp_path / "test.fi.conll"): [
            "100.0% of the records stand in train.fi.conll too: leave them out of one"
        ]
    }
    assert data_remarks(specs[1:]) == {}


def test_dictionaries_are_looked_at(tmp_path):
    path = tmp_path / "en-fi.txt"
    path.write_text("Oulu OULU\ntaxi taxi\nhouse talo\n")
    checkpoint = CorpusSpec("micro/en")  # any run
    texts = (CorpusSpec("micro/en"), CorpusSpec("micro/es"))
    words = WordSpec(checkpoint, ("en", "fi"), texts, Dictionary(f"file:{path}"))
    (found,) = data_remarks([words])[str(path)]
    assert "one word twice" in found


def test_a_dictionary_whose_words_are_hardly_in_the_texts_is_told(tmp_path):
    texts = (
        corpus(tmp_path, ["The house.", "A dog!"], "en.txt"),
        corpus(tmp_path, ["Talo.", "Koira"]),
    )
    path = tmp_path / "en-fi.txt"
    path.write_text("house talo\ndog koira\n" + "".join(f"w{n} s{n}\n" for n in range(98)))
    words = WordSpec(CorpusSpec("micro/en"), ("en", "fi"), texts, Dictionary(f"file:{path}"))
    (found,) = data_remarks([words])[str(path)]
    assert (
        found.startswith("of 100 pairs of words of en-fi.txt the texts have 2")
        and "more text" in found
    )
    assert data_remarks([replace(words, context="alone")]) == {}
    (tmp_path / "en.txt").write_text("".join(f"w{n}\n" for n in range(98)))
    (tmp_path / "fi.txt").write_text("".join(f"s{n}\n" for n in range(98)))
    assert data_remarks([words]) == {}


def test_line_aligned_files_are_parallel_text(tmp_path):
    lines = {"en": [f"line {n}" for n in range(12)], "fi": [f"rivi {n}" for n in range(12)]}
    lines["fi"][3] = ""
    lines["en"][8] = "<range>"
    for language, side in lines.items():
        (tmp_path / f"{language}.txt").write_text("\n".join([*side, "", ""]))
    sources = {language: f"file:{tmp_path}/{language}.txt" for language in lines}
    with pytest.raises(xl.InputError, match="9 lines are there in every language, at least 10"):
        xl.load_parallel_text(sources)
    (tmp_path / "fi.txt").write_text("\n".join(f"rivi {n}" for n in range(12)) + "\n")
    text = xl.load_parallel_text(sources, sentences=8)
    assert text["en"][6:] == ["line 6", "line 9"] and text["fi"][6:] == ["rivi 6", "rivi 9"]
