"""Readers say what is wrong in one line; sentences end where a reader ends them; data comes from
the folder that is named.
"""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from xlingual_nb.errors import InputError
from xlingual_nb.text.corpora import (
    Corpus,
    keep_shared_ids,
    data_folder,
    find_data_file,
    read_bible,
    read_lines,
    read_plain_text,
    split_sentences,
)

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
real = pytest.mark.skipif(
    not Path(os.environ.get("XLINGUAL_DATA") or "-", "bible").is_dir(),
    reason="XLINGUAL_DATA names no folder with Bibles",
)
words = st.text("abc .", min_size=1, max_size=12).map(str.strip).filter(bool)
documents = st.lists(st.lists(words, min_size=1, max_size=4).map(tuple), max_size=5).map(tuple)


def one_line(call, *args, **kw) -> str:
    with pytest.raises(InputError) as caught:
        call(*args, **kw)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- corpus


@given(documents, st.data())
def test_select_is_a_loop_over_sentences(docs, data):
    corpus = Corpus(
        "en", docs, tuple(tuple(f"{i}.{j}" for j in range(len(d))) for i, d in enumerate(docs))
    )
    keep = data.draw(st.lists(st.booleans(), min_size=len(corpus), max_size=len(corpus)))
    chosen = corpus.select(keep)
    assert chosen.sentences == [s for s, k in zip(corpus.sentences, keep) if k]
    assert chosen.keys == [s for s, k in zip(corpus.keys, keep) if k]
    assert all(chosen.documents) and len(chosen) == sum(keep)


@given(documents, st.integers(0, 20))
def test_take_and_filter(docs, n):
    corpus = Corpus("en", docs)
    assert corpus.take(n).sentences == corpus.sentences[:n]
    assert corpus.filter(max_words=2, min_words=2).sentences == [
        s for s in corpus.sentences if len(s.split()) == 2
    ]


def test_ids_have_the_shape_of_documents():
    with pytest.raises(ValueError):
        Corpus("en", (("a", "b"),), (("1",),))


@given(st.lists(st.integers(0, 30), unique=True), st.lists(st.integers(0, 30), unique=True))
def test_align_keeps_the_shared_ids_in_the_order_of_the_first(a, b):
    make = lambda name, keys: Corpus(
        name, (tuple(f"{name}{k}" for k in keys),), (tuple(map(str, keys)),)
    )
    left, right = keep_shared_ids(make("x", a), make("y", b))
    both = [k for k in a if k in b]
    assert (
        left.sentences == [f"x{k}" for k in both]
        and right.sentences == [f"y{k}" for k in both]
        and left.keys == right.keys
    )


def test_align_wants_ids():
    assert "ids" in one_line(keep_shared_ids, Corpus("en", (("a",),)), Corpus("es", (("b",),)))


# --- readers

BAD = [
    ("empty.txt", b"", "is empty"),
    ("blank.txt", b" \n\n", "is empty"),
    ("empty.txt.gz", gzip.compress(b""), "is empty"),
    ("mark.txt", b"\xef\xbb\xbf", "is empty"),
    ("wide.txt", "one\n".encode("utf-16"), "line 1: the text is UTF-16"),
    ("latin.txt", b"one\ntwo\ns\xed\n", "line 3: byte 0xed is not UTF-8"),
    ("latin.txt.gz", gzip.compress(b"s\xed\n"), "line 1: byte 0xed is not UTF-8"),
    ("cut.txt.gz", gzip.compress(b"one\n" * 99)[:-9], "not a whole gzip file"),
    ("no.txt.gz", b"plain text", "not a whole gzip file"),
    (
        "flip.txt.gz",
        gzip.compress(b"one\n")[:12] + b"\xff\xff\xff" + gzip.compress(b"one\n")[15:],
        "not a whole gzip file",
    ),
]


READERS = {
    "lines": read_lines,
    "plain": lambda p: read_plain_text(p, "en"),
    "bible": lambda p: read_bible(p, "en"),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("name, data, said", BAD, ids=[b[0] + str(i) for i, b in enumerate(BAD)])
def test_bad_files(tmp_path, name, data, said, read):
    (tmp_path / name).write_bytes(data)
    message = one_line(read, tmp_path / name)
    assert said in message and str(tmp_path / name) in message


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_marks_and_line_ends_of_other_systems_are_no_text(tmp_path, mark, end):
    (tmp_path / "a.txt").write_bytes(f"{mark}one{end}{end}two{end}".encode())
    assert read_lines(tmp_path / "a.txt") == ["one", "", "two"]


def test_missing_file_and_folder(tmp_path):
    assert "does not exist" in one_line(read_lines, tmp_path / "nobody.txt")
    assert "cannot be read" in one_line(read_lines, tmp_path)


@pytest.mark.parametrize(
    "line, said",
    [
        ("GEN.1.2 And the earth", "line 2: 1 column, 2 wanted"),
        ("GEN.1.2\tAnd\tthe earth", "line 2: 3 columns, 2 wanted"),
        ("", "line 2: 1 column, 2 wanted"),
        ("Gen 1:2\tAnd the earth", "is no verse id"),
        ("gen.1.2\tAnd", "is no verse id"),
        ("GEN.1.2\t  ", "has no text"),
        ("GEN.1.1\tAgain.", "there twice"),
    ],
)
def test_bad_verses(tmp_path, line, said):
    (path := tmp_path / "own.tsv").write_text(
        f"GEN.1.1\tIn the beginning.\n{line}\nGEN.1.3\tAnd God said.\n", encoding="utf-8"
    )
    message = one_line(read_bible, path, "en")
    assert said in message and f"{path} line 2:" in message


def test_windows_line_ends_are_line_ends(tmp_path):
    (path := tmp_path / "own.tsv").write_bytes(b"GEN.1.1\tOne.\r\nGEN.1.2\tTwo.\r\n")
    assert read_bible(path, "en").sentences == ["One.", "Two."]


@given(documents)
def test_plain_text_comes_back(tmp_path_factory, docs):
    path = tmp_path_factory.mktemp("plain") / "own.txt.gz"
    path.write_bytes(gzip.compress("\n\n".join("\n".join(d) for d in docs).encode() + b"\n"))
    if docs:
        assert read_plain_text(path, "en").documents == docs
    else:
        assert "empty" in one_line(read_plain_text, path, "en")


def test_a_chapter_is_a_document(tmp_path):
    keys = ["PSA.9.1", "PSA.10.1", "PSA.10.2", "PRO.10.1", "1CO.13.4"]
    (path := tmp_path / "own.tsv").write_text("".join(f"{k}\ttext of {k}\n" for k in keys))
    assert read_bible(path, "en").ids == (
        ("PSA.9.1",),
        ("PSA.10.1", "PSA.10.2"),
        ("PRO.10.1",),
        ("1CO.13.4",),
    )


# --- sentences

CASES = {
    "colon and semicolon": [
        "And God said, Let there be light: and there was light.",
        "He went; and he came: It was Tuesday.",
    ],
    "straight quotes": [
        'He said, "Go."',
        "They went.",
        '"Why?" she asked: "Who?"',
        '"Me!" he said.',
    ],
    "curly quotes": [
        "“Lord, Lord!”",
        "‘Behold,’ he says, ‘it is done.’",
        "“He said, ‘Come.’ ”",
        "So they came.",
    ],
    "quote that opens": ["It is so.", "‘You shall not.’", "(This was told.)", "Again."],
    "quote after a small letter": ["“What then?” said they."],
    "question within": ["Are they Hebrews? so am I.", "Are they of Israel?", "So am I."],
    "abbreviations": [
        "Mr. Smith met Dr. J. R. Jones of St. Paul, cf. Luke, at 5 p.m. on Sunday.",
        "Here am I.",
        "And he said: the U.S. Army left.",
    ],
    "decimals and dots": ["It cost 3.50 or more.", "Wait ... what?", "Yes…", "No!!", "4 men came."],
    "Spanish": ["¿Quién eres tú?", "¡Señor!", "Él dijo: Yo soy.", "—No.", "«Ven», dijo."],
    "Greek": ["Τι κάμνεις;", "Έρχου· λέγει.", "Ναι."],
    "Russian": ["Кто ты?", "Он сказал: «Иди».", "И пошёл."],
    "Hindi": ["यीशु ने कहा, “जाओ।”", "वे गए।", "क्यों?"],
    "Arabic": ["مَنْ أَنْتَ؟", "قَالَ: «تَعَالَ».", "فَذَهَبَ."],
    "Vietnamese": ["Ai đó?", "Đức Chúa Trời phán rằng: Phải có sự sáng.", "Ấy vậy."],
}


@pytest.mark.parametrize("sentences", CASES.values(), ids=CASES)
def test_hand_made_sentences(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_chinese_needs_no_blank():
    assert split_sentences("他说：「你是谁？」他们去了。好！") == [
        "他说：「你是谁？」",
        "他们去了。",
        "好！",
    ]


def test_clauses():
    assert split_sentences(
        "And God said: Let there be light; and so it was. Amen.", clauses=True
    ) == ["And God said:", "Let there be light;", "and so it was.", "Amen."]
    assert split_sentences("It was 10:30 at a:b.", clauses=True) == ["It was 10:30 at a:b."]


@given(st.text("aAbI1 .?!:;,'\"”’“‘)(।。¿α\n", max_size=60), st.booleans())
def test_nothing_but_white_space_is_lost(text, clauses):
    parts = split_sentences(text, clauses)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(p == p.strip() and p for p in parts)


# --- the data folder


def test_named_folder_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path / "no"))
    assert "XLINGUAL_DATA" in one_line(data_folder) and str(tmp_path / "no") in one_line(
        find_data_file, "bible/en-bbe.tsv"
    )


def test_folder_by_the_current_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    assert data_folder() is None and "set XLINGUAL_DATA" in one_line(
        find_data_file, "bible/en-bbe.tsv"
    )
    (tmp_path / "data" / "bible").mkdir()
    assert data_folder() == (tmp_path / "data").resolve()


def test_find_lists_what_is_near(monkeypatch, tmp_path):
    (tmp_path / "bible").mkdir()
    (tmp_path / "bible" / "en-own.tsv").touch()
    (tmp_path / "bible" / "es-own.tsv.gz").touch()
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    assert (
        find_data_file("bible/en-own.tsv").name == "en-own.tsv"
        and find_data_file("bible/es-own.tsv").name == "es-own.tsv.gz"
    )
    assert "en-own.tsv, es-own.tsv" in one_line(find_data_file, "bible/en-bbe.tsv")


# --- real text


@real
def test_every_real_file_reads_and_english_verses_align():
    files = sorted((data_folder() / "bible").glob("*.tsv*"))
    bibles = {p.name.split(".")[0]: read_bible(p, p.name[:2]) for p in files}
    assert all(len(b) > 5000 for b in bibles.values())
    for path in (data_folder() / "text").glob("*.txt*"):
        assert len(read_plain_text(path, path.name[:2])) > 1000
    if {"en-kjv", "en-bbe"} <= bibles.keys():
        left, right = keep_shared_ids(bibles["en-bbe"], bibles["en-kjv"])
        assert (
            left.keys == right.keys
            and len(left) == len(bibles["en-bbe"])
            and len(bibles["en-kjv"]) == 31102
        )
        assert all(c.sentences[0].startswith("The book of the generation") for c in (left, right))


@real
@pytest.mark.parametrize("name", ["en-bbe", "en-kjv", "es-rv1865", "el-vamvas", "hi-nt", "zh-cuv"])
def test_real_sentences_lose_nothing_and_stay_sentences(name):
    for verse in read_bible(find_data_file(f"bible/{name}.tsv"), name[:2]).take(3000).sentences:
        parts = split_sentences(verse)
        assert "".join("".join(parts).split()) == "".join(verse.split())
        assert all(split_sentences(p) == [p] for p in parts)
