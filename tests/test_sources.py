"""Names to corpora: D's cuts, parts, digests, and one line for every wrong name or parameter."""

import gzip
import hashlib
import os
import sys
import types
from pathlib import Path

import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.text.corpora import Corpus, keep_shared_ids
from xlingual_nb.text.sources import available_sources, load_corpus, source_digest

real = pytest.mark.skipif(
    not Path(os.environ.get("XLINGUAL_DATA") or "-", "bible").is_dir(),
    reason="XLINGUAL_DATA names no folder with Bibles",
)
VERSES = [
    ("GEN.1.1", "In the beginning. It was dark."),
    ("GEN.1.2", "Light."),
    ("MAL.4.6", "And he came: so it was."),
    ("MAT.1.1", "The book. Of him."),
    ("MAT.2.1", "Now he was born in a town; and it was so."),
    ("REV.22.21", "Amen."),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "bible").mkdir()
    (tmp_path / "text").mkdir()
    verses = "".join(f"{k}\t{v}\n" for k, v in VERSES)
    (tmp_path / "bible" / "en-own.tsv.gz").write_bytes(gzip.compress(verses.encode()))
    (tmp_path / "text" / "es.txt").write_text("Uno.\nDos dos.\n\nTres tres tres.\n")
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    return tmp_path


def test_books_and_sentences(folder):
    assert len(load_corpus("bible/en-own")) == 6 and load_corpus("bible/en-own").language == "en"
    assert load_corpus("bible/en-own", books="OT").keys == ["GEN.1.1", "GEN.1.2", "MAL.4.6"]
    assert load_corpus("bible/en-own", books="NT", split=True).keys == [
        "MAT.1.1/0",
        "MAT.1.1/1",
        "MAT.2.1/0",
        "REV.22.21/0",
    ]
    assert load_corpus("bible/en-own", books="GEN,REV").sentences == [
        VERSES[0][1],
        VERSES[1][1],
        VERSES[5][1],
    ]
    assert load_corpus("bible/en-own", split=True, sentences=2).sentences == [
        "In the beginning.",
        "It was dark.",
    ]
    assert load_corpus("bible/en-own", books="MAL,MAT", split="clauses").sentences == [
        "And he came:",
        "so it was.",
        "The book.",
        "Of him.",
        "Now he was born in a town;",
        "and it was so.",
    ]
    # chapters stay documents
    assert [len(d) for d in load_corpus("bible/en-own", split=True).documents] == [3, 1, 2, 1, 1]


def test_lengths_come_before_the_count(folder):
    assert load_corpus("bible/en-own", min_words=2, max_words=5, sentences=1, books="NT").keys == [
        "MAT.1.1"
    ]
    assert load_corpus("text/es", min_words=2).documents == (("Dos dos.",), ("Tres tres tres.",))


def test_parts(folder):
    assert load_corpus("text/es", "train", holdout=1).sentences == ["Uno.", "Dos dos."]
    assert load_corpus("text/es", "dev", holdout=1).sentences == ["Tres tres tres."]


@pytest.mark.parametrize(
    "source, part, parameters, said",
    [
        ("bible", "train", {}, "is not known"),
        ("wiki/en", "train", {}, "is not known"),
        ("bible/", "train", {}, "is not known"),
        ("", "train", {}, "is not known"),
        ("bible/en-bbe", "train", {}, "or take one of en-own"),
        ("text/en", "train", {}, "or take one of es"),
        ("file:no/such.txt", "train", {}, "no/such.txt does not exist"),
        ("text/es", "dev", {}, "has no part 'dev'"),
        ("text/es", "tain", {"holdout": 1}, "has no part 'tain'"),
        ("text/es", "dev", {"holdout": 3}, "take fewer"),
        (
            "text/es",
            "train",
            {"books": "NT"},
            "'books' does not apply to text/es: choose from holdout, language",
        ),
        ("bible/en-own", "train", {"book": "NT"}, "'book' does not apply"),
        ("bible/en-own", "train", {"books": "GEN,XYZ"}, "no XYZ"),
        ("bible/en-own", "train", {"split": "verse"}, "split='verse': choose True"),
        ("bible/en-own", "train", {"sentences": "10"}, "sentences='10': give a count"),
        ("bible/en-own", "train", {"min_words": -1}, "min_words=-1: give a count"),
        ("bible/en-own", "train", {"min_words": 99}, "nothing is left"),
    ],
)
def test_one_line_for_what_is_wrong(folder, source, part, parameters, said):
    with pytest.raises(InputError) as caught:
        load_corpus(source, part, **parameters)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_missing_testament(folder):
    (folder / "bible" / "es-nt.tsv").write_text("MAT.1.1\tLibro.\n")
    with pytest.raises(InputError, match="books='OT'"):
        load_corpus("bible/es-nt", books="OT")


def test_own_files(tmp_path):
    (tmp_path / "hi.mine.txt").write_text("एक।\nदो।\n", encoding="utf-8")
    (tmp_path / "sw-own.tsv").write_text("MAT.1.1\tHabari.\n")
    assert load_corpus(f"file:{tmp_path}/hi.mine.txt").language == "hi"
    assert load_corpus(f"file:{tmp_path}/hi.mine.txt", language="mr").language == "mr"
    assert load_corpus(f"file:{tmp_path}/sw-own.tsv").keys == ["MAT.1.1"]


def test_digest_follows_the_contents(folder):
    path = folder / "text" / "es.txt"
    assert (
        source_digest("text/es")
        == hashlib.sha256(path.read_bytes()).hexdigest()
        == source_digest(f"file:{path}")
    )
    path.write_text("Otro.\n")
    assert source_digest("text/es") == hashlib.sha256(b"Otro.\n").hexdigest()
    for missing in ("text/fr", "file:/no/such.txt"):
        with pytest.raises(InputError):
            source_digest(missing)


def test_the_microworld_is_asked_for_by_name(monkeypatch):
    asked = lambda *args, **kw: (args, kw)
    module = types.SimpleNamespace(corpus=asked)
    monkeypatch.setitem(sys.modules, "xlingual_nb.microworld", module)
    monkeypatch.setattr("xlingual_nb.microworld", module, raising=False)
    assert load_corpus("micro/en", "dev", sentences=7) == (("en",), {"part": "dev", "sentences": 7})
    assert source_digest("micro/en") == "generated"


def test_what_is_here(folder):
    here = available_sources().set_index("source")
    assert {"bible/en-own", "text/es", "micro/en"} <= set(here.index)
    assert here.loc["bible/en-own", ["language", "kind", "file"]].tolist() == [
        "en",
        "verses",
        "bible/en-own.tsv.gz",
    ]
    assert here.loc["text/es", "size"] == (folder / "text" / "es.txt").stat().st_size


@real
def test_the_setting_of_dufter_and_schuetze():
    train, dev = (
        load_corpus("bible/en-bbe", books="NT", split=True),
        load_corpus("bible/en-kjv", books="OT", split=True, sentences=10_000),
    )
    assert 8000 < len(train) < 20_000 and len(dev) == 10_000 and dev.keys[0] == "GEN.1.1/0"
    assert len(set(train.sentences) & set(dev.sentences)) < 5
    clauses = load_corpus("bible/en-bbe", books="NT", split="clauses")
    median = lambda corpus: sorted(len(s.split()) for s in corpus.sentences)[len(corpus) // 2]
    assert median(clauses) < median(train)


@real
def test_real_translations_are_parallel_by_verse():
    left, right = keep_shared_ids(load_corpus("bible/en-web"), load_corpus("bible/es-rv1865"))
    assert len(left) == len(right) > 7900 and left.keys == right.keys


@real
def test_available_names_load():
    here = available_sources()
    for name in here.source[here.kind != "generated"].sample(3, random_state=0):
        assert isinstance(load_corpus(name, sentences=5), Corpus)
