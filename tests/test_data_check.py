"""`xlingual data check` reads every file as its reader would: a broken file of each kind is named
with its line and the mend.
"""

import builtins
import gzip
from pathlib import Path

import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.tasks.zero_shot_classification import DOCUMENT_READING
from xlingual_nb.tasks.zero_shot_parsing import TREE_READING
from xlingual_nb.tasks.language_identification import LANGUAGE_READING
from xlingual_nb.text import data_download, records, sources
from xlingual_nb.text.data_download import LAYOUT, check_data_folder
from xlingual_nb.text.parallel import read_dictionary

WORD = "1\tcats\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n"
GOOD = {
    "bible/fi-toy.tsv": "GEN.1.1\tAlussa loi Jumala.\nGEN.1.2\tJa maa oli autio.\n",
    "text/fi.txt": "Sataa.\nJäämme kotiin.\n\nSitten se loppuu.\n",
    "text/fi.wiki.txt": "Oulu on kaupunki.\n",
    "nli/xnli.test.en.tsv": "It rains.\tIt is wet.\tentailment\nIt rains.\tIt is dry.\tcontradiction\n",
    "nli/xnli.test.fi.tsv": "Sataa.\tOn märkää.\tentailment\nSataa.\tOn kuivaa.\tcontradiction\n",
    "nli/mnli.train.en.tsv": "It rains.\tIt is Monday.\tneutral\n",
    "ner/fi-panx.train.conll": "Aino\tB-PER\nRuusu\tI-PER\n\nOulu\tB-LOC\n",
    "ner/es-conll2002.test.conll": "Oulu\tI-LOC\n",
    "ud/fi-tdt.test.conllu": f"# text = cats\n{WORD}\n",
    "doc/fi.train.tsv": "Maali viime hetkellä. Peli loppui. Voitto!\tsports\nMaali\tsports\n",
    "langid/train.tsv": "Hyvää huomenta\tfi\n",
    "langid/wili10.test.tsv": "Good morning\ten\n",
    "tatoeba/fi-en.tsv": "Hyvää huomenta.\tGood morning.\n",
    "dictionaries/en-fi.txt": "cat kissa\ndog koira\n",
    "alignment/fi-en.src": "hyvää huomenta\n",
    "alignment/fi-en.tgt": "good morning\n",
    "alignment/fi-en.gold": "1-1 2p2\n",
    "vocab/mbert-cased.vocab.txt": "[PAD]\nthe\n##s\n",
}
BROKEN = [  # file, text, line, what the message says
    (
        "bible/fi-toy.tsv",
        "GEN.1.1\tAlussa.\nGEN.1.1\tTaas.\n",
        2,
        "verse GEN.1.1 is there twice: keep one",
    ),
    (
        "bible/fi-toy.tsv",
        "GEN.1.1\tAlussa.\n1. Moos. 1:2\tJa maa.\n",
        2,
        "is no verse id: write BOOK.chapter.verse",
    ),
    ("bible/fi-toy.tsv", "GEN.1.1 Alussa.\n", 1, "1 column, 2 wanted: write verse_id<TAB>text"),
    (
        "text/fi.txt",
        b"Sataa.\nJ\xe4\xe4mme kotiin.\n",
        2,
        "byte 0xe4 is not UTF-8: convert the file",
    ),
    (
        "nli/xnli.test.fi.tsv",
        "Sataa.\tOn märkää.\tentailment\nSataa.\tOn kuivaa.\tristiriita\n",
        2,
        "label 'ristiriita' is not known: write entailment",
    ),
    (
        "nli/xnli.test.fi.tsv",
        "Sataa.\tOn märkää.\n",
        1,
        "2 columns, 3 wanted: write premise<TAB>hypothesis<TAB>label",
    ),
    (
        "nli/xnli.test.fi.tsv",
        "Sataa.\tOn märkää.\tentailment\nSataa.\tOn maanantai.\tneutral\n",
        2,
        "not the pair of xnli.test.en.tsv: order both alike",
    ),
    (
        "nli/xnli.test.fi.tsv",
        "Sataa.\tOn märkää.\tentailment\n",
        2,
        "not the pair of xnli.test.en.tsv: order both alike",
    ),
    (
        "nli/mnli.train.en.tsv",
        "It rains.\t\tneutral\n",
        1,
        "the hypothesis is empty: remove the line",
    ),
    (
        "ner/fi-panx.train.conll",
        "Aino\tB-PER\nlukee\tO\n\nOulu\tI-LOC\n",
        4,
        "tag I-LOC after O continues no LOC: begin a name with B-LOC",
    ),
    ("ner/fi-panx.train.conll", "Aino B-PER\n", 1, "1 column, 2 wanted: write token<TAB>tag"),
    (
        "ner/fi-panx.train.conll",
        "Aino\tPERSON\n",
        1,
        "tag 'PERSON' is no BIO tag: write O, B-KIND or I-KIND",
    ),
    ("ud/fi-tdt.test.conllu", f"{WORD}\ncats\tNOUN\n", 3, "column"),
    (
        "ud/fi-tdt.test.conllu",
        f"{WORD}{WORD.replace('1', '2', 1)}\n",
        2,
        "words 1, 2 are roots: mend its heads",
    ),
    (
        "ud/fi-tdt.test.conllu",
        WORD
        + WORD.replace("1", "2", 1).replace("0\troot", "3\tdep")
        + WORD.replace("1", "3", 1).replace("0\troot", "2\tdep"),
        3,
        "words 2, 3 go in a circle",
    ),
    ("ud/fi-tdt.test.conllu", WORD.replace("NOUN", "N"), 1, "'N' is no universal part of speech"),
    ("ud/fi-tdt.test.conllu", "Aino\tB-PER\n", 1, "2 columns, 10 wanted"),
    (
        "doc/fi.train.tsv",
        "Sataa.\tOn märkää.\tentailment\n",
        1,
        "3 columns, 2 wanted: write text<TAB>topic",
    ),
    (
        "doc/fi.train.tsv",
        "Maali viime hetkellä\tsports\nEi aihetta\n",
        2,
        "1 column, 2 wanted: write text<TAB>topic",
    ),
    ("langid/train.tsv", "Hyvää huomenta\tfi\n\ten\n", 2, "text is empty: remove the line"),
    ("langid/wili10.test.tsv", "a\tb\tc\n", 1, "3 columns, 2 wanted: write text<TAB>language"),
    ("tatoeba/fi-en.tsv", "Hyvää huomenta.\n", 1, "1 column, 2 wanted: write sentence<TAB>English"),
    ("dictionaries/en-fi.txt", "cat kissa\nice cream jäätelö\n", 2, "is not two words"),
    ("alignment/fi-en.gold", "1-1 0-2\n", 1, "'0-2' is no link: write i-j or ipj, counted from 1"),
    ("alignment/fi-en.gold", "1-1\n2-2\n", None, "2 lines, fi-en.src has 1: write one a sentence"),
    ("alignment/fi-en.tgt", None, None, "fi-en.tgt does not exist"),
    ("vocab/mbert-cased.vocab.txt", "\n", None, "is empty: get it again"),
]


@pytest.fixture
def folder(tmp_path):
    for name, text in GOOD.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_good_folder_has_no_problem_and_says_what_it_holds(folder):
    seen = check_data_folder(folder).set_index("file")
    assert (
        set(seen.index) == set(GOOD)
        and set(seen.problem) == {""}
        and set(seen.state) == {"not recorded"}
    )
    holds = {
        "bible/fi-toy.tsv": "2 verses",
        "text/fi.txt": "3 sentences in 2 documents",
        "nli/xnli.test.fi.tsv": "2 pairs: entailment 1, contradiction 1",
        "ner/fi-panx.train.conll": "2 sentences: PER 1, LOC 1",
        "ud/fi-tdt.test.conllu": "1 sentence, 1 word, 1 relation: NOUN 1",
        "doc/fi.train.tsv": "2 texts, 1 of two sentences or more: sports 2",
        "langid/wili10.test.tsv": "1 text: en 1",
        "dictionaries/en-fi.txt": "2 words",
        "alignment/fi-en.gold": "2 links in 1 sentence",
        "vocab/mbert-cased.vocab.txt": "3 word pieces",
    }
    for name, words in holds.items():
        assert seen.holds[name].startswith(words), name
    assert {name.split("/")[0] for name in GOOD} == set(LAYOUT), (
        "every folder of the layout is here"
    )


@pytest.mark.parametrize(
    "name, text, line, says", BROKEN, ids=[f"{b[0]}-{i}" for i, b in enumerate(BROKEN)]
)
def test_a_broken_file_is_named_with_its_line_and_the_mend(folder, name, text, line, says):
    path = folder / name
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    problems = {
        row.file: row.problem for row in check_data_folder(folder).itertuples() if row.problem
    }
    if text is None:
        name = "alignment/fi-en.gold"
    assert list(problems) == [name], "one problem, in the broken file"
    assert (
        str(folder / name).removesuffix(".gold") in problems[name]
        and says in problems[name]
        and "\n" not in problems[name]
    )
    if line:
        assert f"{path} line {line}: " in problems[name]


@pytest.mark.parametrize(
    "name", ["bible/fi-toy.tsv", "nli/xnli.test.fi.tsv", "alignment/fi-en.src"]
)
def test_compressed_files_are_read_too(folder, name):
    path = folder / name
    (folder / f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert set(check_data_folder(folder).problem) == {""}
    (folder / f"{name}.gz").write_bytes(gzip.compress(b"1\n2\n")[:-4])
    assert any(
        "is not a whole gzip file" in problem for problem in check_data_folder(folder).problem
    )


def test_the_readers_refuse_what_the_check_refuses(folder, monkeypatch):
    """The same line, word for word: the check calls the readers of a run."""
    monkeypatch.setenv("XLINGUAL_DATA", str(folder))
    run = {
        "bible": lambda: sources.load_corpus("bible/fi-toy"),
        "text": lambda: sources.load_corpus("text/fi"),
        "nli": lambda: records.load_records("nli", "xnli/fi", "test"),
        "ner": lambda: records.load_records("ner", "panx/fi"),
        "ud": lambda: records.load_records(TREE_READING, "ud/fi-tdt", "test"),
        "doc": lambda: records.load_records(DOCUMENT_READING, "doc/fi"),
        "langid": lambda: records.load_records(
            LANGUAGE_READING, "file:" + str(folder / "langid/train.tsv")
        ),
        "dictionaries": lambda: read_dictionary(folder / "dictionaries/en-fi.txt"),
    }
    for place, call in run.items():
        name, text, *_ = next(b for b in BROKEN if b[0].startswith(place))
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(InputError) as refused:
            call()
        (problem,) = check_data_folder(folder).query("file == @name").problem
        assert problem == str(refused.value)
        (folder / name).write_text(GOOD[name], encoding="utf-8")


def test_ranges_and_empty_nodes_are_no_words_and_no_problem(folder):
    lines = [
        "1-2\tcannot" + "\t_" * 8,
        WORD.strip(),
        WORD.strip().replace("1", "2", 1).replace("0\troot", "1\tdep"),
        "2.1\twas\t_\tVERB" + "\t_" * 6,
    ]
    (folder / "ud/fi-tdt.test.conllu").write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    row = check_data_folder(folder).set_index("file").loc["ud/fi-tdt.test.conllu"]
    assert row.problem == "" and row.holds == "1 sentence, 2 words, 2 relations: NOUN 2"


def test_a_name_that_nothing_reads_is_said_and_is_no_error(folder):
    (folder / "bible/LICENSE").write_text("CC0", encoding="utf-8")
    (folder / "pictures").mkdir()
    (folder / "pictures/map.png").write_bytes(b"\x89PNG")
    seen = check_data_folder(folder).set_index("file")
    assert (
        set(seen.problem) == {""}
        and "xx-EDITION.tsv" in seen.holds["bible/LICENSE"]
        and "folders: bible, text" in seen.holds["pictures/map.png"]
    )


# ---- what a reader refuses the check does not pass


@pytest.mark.parametrize(
    "name, call",
    [
        ("nli/xnli.test.zh-Hans.tsv", lambda: records.load_records("nli", "xnli/zh-Hans", "test")),
        ("ner/zh-min-nan-panx.train.conll", lambda: records.load_records("ner", "panx/zh-min-nan")),
        (
            "ner/be-x-old-wikiann.test.conll",
            lambda: records.load_records("ner", "panx/be-x-old", "test"),
        ),
        ("ud/fi.test.conllu", lambda: records.load_records("pos", "ud/fi", "test")),
        (
            "ud/qpm-philotis-1.train.conllu",
            lambda: records.load_records("pos", "ud/qpm-philotis-1"),
        ),
        ("bible/zh-min-nan.tsv", lambda: sources.load_corpus("bible/zh-min-nan")),
    ],
)
def test_a_language_with_a_hyphen_is_checked_as_it_is_read(folder, monkeypatch, name, call):
    monkeypatch.setenv("XLINGUAL_DATA", str(folder))
    (folder / name).write_text("broken\n", encoding="utf-8")
    with pytest.raises(InputError) as refused:
        call()
    (problem,) = check_data_folder(folder).query("file == @name").problem
    assert problem == str(refused.value)


@pytest.mark.parametrize("name", ["bible/fi-toy.tsv", "vocab/mbert-cased.vocab.txt"])
def test_a_file_that_cannot_be_read_is_a_problem_and_no_crash(folder, monkeypatch, name):
    (folder / name).unlink()
    (folder / name).symlink_to(folder / "nowhere")
    (problem,) = check_data_folder(folder).query("file == @name").problem
    assert name in problem and "does not exist" in problem


def test_a_file_that_may_not_be_read_is_a_problem_and_no_crash(folder, monkeypatch):
    data_download.record_checksums(folder)
    usual = Path.read_bytes, builtins.open

    def locked(path):
        return str(path).endswith("fi-toy.tsv")

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(
        Path, "read_bytes", lambda path: refuse(path) if locked(path) else usual[0](path)
    )
    monkeypatch.setattr(
        builtins,
        "open",
        lambda path, *a, **k: refuse(path) if locked(path) else usual[1](path, *a, **k),
    )
    (row,) = (r for r in check_data_folder(folder).itertuples() if r.problem)
    assert (
        row.file == "bible/fi-toy.tsv"
        and "Permission denied" in row.problem
        and row.state == "not readable"
    )


# ---- the hub


class Rows(list):
    def take(self, n):
        return Rows(self[:n])


def hub(rows):
    return lambda name, configuration, split, streaming: Rows(rows)


PAIR = dict(premise="It rains.", hypothesis="It is wet.", label=0)


@pytest.mark.parametrize("label", [-1, 3, None])
def test_a_label_that_is_none_is_refused_and_nothing_is_written(tmp_path, label):
    with pytest.raises(InputError, match=f"record 2 .*label {label} .*entailment") as refused:
        data_download.download_data_set(
            "xnli", "fi", tmp_path, load=hub([PAIR, PAIR | dict(label=label)])
        )
    assert "\n" not in str(refused.value) and not list(tmp_path.rglob("*.gz"))


@pytest.mark.parametrize("tag", [-1, 7])
def test_a_tag_that_is_none_is_refused(tmp_path, tag):
    with pytest.raises(InputError, match=f"record 1 .*label {tag} .*B-PER"):
        data_download.download_data_set(
            "panx", "fi", tmp_path, load=hub([dict(tokens=["Aino"], ner_tags=[tag])])
        )


@pytest.mark.parametrize(
    "name, rows",
    [
        ("xnli", []),
        ("panx", []),
        ("panx", [dict(tokens=[], ner_tags=[])]),
        ("wikipedia", [dict(text=" \n ")]),
    ],
)
def test_an_empty_reply_is_no_success(tmp_path, name, rows):
    with pytest.raises(InputError, match="fi.*no records") as refused:
        data_download.download_data_set(name, "fi", tmp_path, load=hub(rows))
    assert "\n" not in str(refused.value) and not list(tmp_path.rglob("*.*"))
