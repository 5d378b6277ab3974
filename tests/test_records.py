"""Records of NLI and NER: every source gives the same ones, parts and samples, and one line for
every wrong file or name.
"""

import gzip
import hashlib
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from xlingual_nb.errors import InputError
from xlingual_nb import microworld
from xlingual_nb.runs.spec import canonical, run_id
from xlingual_nb.runs.stages import declare, stage_of
from xlingual_nb.text.formats import (
    LABELS,
    UNIVERSAL_TAGS,
    read_conllu,
    read_nli,
    read_ner,
    iob2_error,
)
from xlingual_nb.text.records import (
    RecordReader,
    RecordsSpec,
    records_digest,
    load_records,
    make_records,
    read_records,
    sample_records,
    map_text,
)
from xlingual_nb.text.transforms import transform_strings

real = pytest.mark.skipif(
    not Path(os.environ.get("XLINGUAL_DATA") or "-", "nli").is_dir(),
    reason="XLINGUAL_DATA names no folder with NLI",
)
PAIRS = [(f"P {i}.", f"H {i}.", LABELS[i % 3]) for i in range(7)]
CONLL = "Ada\tB-PER\nLovelace\tI-PER\nslept\tO\n\nParis\tB-LOC\nLondon\tB-LOC\n\n\nrain\tO\n"


def conllu(*rows):
    return "".join("\t".join((str(i), form, "_", tag, *"______")) + "\n" for i, form, tag in rows)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "nli").mkdir()
    (tmp_path / "ner").mkdir()
    pairs = "".join("\t".join(p) + "\n" for p in PAIRS)
    (tmp_path / "nli" / "xnli.dev.es.tsv.gz").write_bytes(gzip.compress(pairs.encode()))
    (tmp_path / "nli" / "mnli.train.en.tsv").write_text("\t".join(PAIRS[0]) + "\n")
    (tmp_path / "ner" / "en-panx.train.conll").write_text("rain\tO\n")
    (tmp_path / "ner" / "en-panx.dev.conll").write_text(CONLL)
    (tmp_path / "ner" / "en-wikiann.test.conll").write_text("Paris\tB-LOC\n")
    (tmp_path / "ner" / "es-conll2002.test.conll").write_text("Lima\tB-LOC\n")
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    return tmp_path


def test_pairs_and_sentences(folder):
    assert [tuple(r.values()) for r in load_records("nli", "xnli/es", "dev")] == PAIRS
    assert load_records("nli", "xnli/en")[0] == dict(
        premise="P 0.", hypothesis="H 0.", label="entailment"
    )
    assert [r["tokens"] for r in load_records("ner", "panx/en", "dev")] == [
        ["Ada", "Lovelace", "slept"],
        ["Paris", "London"],
        ["rain"],
    ]
    assert load_records("ner", "panx/en", "test") == [
        dict(tokens=["Paris"], tags=["B-LOC"])
    ]  # WikiAnn stands in
    assert load_records("ner", "conll/es", "test")[0]["tokens"] == ["Lima"]
    (folder / "ner" / "en-panx.test.conll").write_text("Rome\tB-LOC\n")
    assert load_records("ner", "panx/en", "test")[0]["tokens"] == ["Rome"]


def test_samples(folder):
    whole = load_records("nli", "xnli/es", "dev")
    assert (
        load_records("nli", "xnli/es", "dev", 3) == whole[:3]
        and load_records("nli", "xnli/es", "dev", 99) == whole
    )
    drawn = load_records("nli", "xnli/es", "dev", 3, seed=4)
    assert (
        drawn == load_records("nli", "xnli/es", "dev", 3, seed=4)
        and [r for r in whole if r in drawn] == drawn
    )
    assert len({str(load_records("nli", "xnli/es", "dev", 3, seed=s)) for s in range(8)}) > 4


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 60), st.integers(0, 5))
def test_samples_are_nested_and_in_order(n, size, more, seed):
    small, large = (sample_records(list(range(n)), k, seed) for k in (size, size + more))
    assert len(small) == min(n, size) and small == sorted(set(small)) and set(small) <= set(large)


def test_unseen(folder):
    assert [r["tokens"][0] for r in load_records("ner", "panx/en", "dev", unseen=True)] == [
        "Ada",
        "Paris",
    ]
    assert [r["tokens"][0] for r in load_records("ner", "panx/en", "dev", 1, unseen=True)] == [
        "Ada"
    ]
    with pytest.raises(InputError, match="leaves nothing"):
        load_records("ner", "panx/en", "train", unseen=True)


def test_own_files(tmp_path):
    for part in ("train", "dev"):
        (tmp_path / f"{part}.tsv").write_text(f"{part}\tb\tneutral\n")
    name = f"file:{tmp_path}/{{part}}.tsv"
    assert [load_records("nli", name, part)[0]["premise"] for part in ("train", "dev")] == [
        "train",
        "dev",
    ]
    assert load_records("nli", f"file:{tmp_path}/train.tsv")[0]["premise"] == "train"
    with pytest.raises(InputError, match="has no part 'dev'"):
        load_records("nli", f"file:{tmp_path}/train.tsv", "dev")


def test_the_microworld_says_the_same_in_names():
    assert LABELS == microworld.LABEL_NAMES["nli"]["label"]
    made, raw = (
        load_records("nli", "micro/es", "dev", 30, seed=2),
        microworld.task_records("nli", "es", "dev", 30, seed=2),
    )
    assert [LABELS.index(r["label"]) for r in made] == [r["label"] for r in raw] and Counter(
        r["label"] for r in made
    ) == dict.fromkeys(LABELS, 10)
    assert all(a | dict(label=0) == b | dict(label=0) for a, b in zip(made, raw))
    english = load_records("nli", "micro/en", "dev", 30, seed=2)
    # the same pairs in another language
    assert [(r["label"], r["edit"]) for r in english] == [(r["label"], r["edit"]) for r in made]
    for r in load_records("ner", "micro/en", "train", 200):
        assert set(r) == {"tokens", "tags"} and len(r["tokens"]) == len(r["tags"])
        for before, tag in zip(["O", *r["tags"]], r["tags"]):
            assert not iob2_error(tag, before)


def test_iob1_is_repaired_when_asked(folder):
    (folder / "ner" / "es-conll2002.dev.conll").write_text(
        "San\tI-LOC\nSebastián\tI-LOC\nAda\tI-PER\nBob\tB-PER\n"
    )
    assert load_records("ner", "conll/es", "dev")[0]["tags"] == ["B-LOC", "I-LOC", "B-PER", "B-PER"]
    with pytest.raises(InputError, match="or load with repair=True"):
        load_records("ner", "conll/es", "dev", repair=False)
    (folder / "own.conll").write_text("San\tI-LOC\n\nJuan\tX-PER\n")
    with pytest.raises(InputError, match="line 3: tag 'X-PER' is no BIO tag"):
        load_records("ner", f"file:{folder}/own.conll", repair=True)


@pytest.mark.parametrize(
    "reader, text, said",
    [
        (read_nli, "a\tb\n", "line 1: 2 columns, 3 wanted"),
        (read_nli, "a\tb\tneutral\na\tb\tneutral\tx\n", "line 2: 4 columns, 3 wanted"),
        (read_nli, "a b\n", "line 1: 1 column, 3 wanted"),
        (read_nli, "a\tb\tmaybe\n", "label 'maybe' is not known"),
        (read_nli, "premise\thypothesis\tlabel\n", "label 'label' is not known"),
        (read_nli, "\tb\tneutral\n", "line 1: the premise is empty"),
        (read_nli, "a\t \tneutral\n", "line 1: the hypothesis is empty"),
        (read_nli, "\n\n", "is empty"),
        (read_ner, "a\n", "1 column, 2 wanted"),
        (read_ner, "a\tNN\tO\n", "3 columns, 2 wanted"),
        (read_ner, "a\tPER\n", "no BIO tag"),
        (read_ner, "a\tB-\n", "no BIO tag"),
        (read_ner, "a\tI-PER\n", "begin a name with B-PER"),
        (read_ner, "a\tB-LOC\nb\tI-PER\n", "I-PER after B-LOC"),
        (read_ner, "a\tB-LOC\n\nb\tI-LOC\n", "line 3"),
        (read_ner, "\tO\n", "no token"),
        (read_ner, "", "is empty"),
        (read_conllu, "1\ta\t_\tDET\n", "line 1: 4 columns, 10 wanted"),
        (read_conllu, conllu((1, "a", "DT")), "'DT' is no universal part of speech"),
        (read_conllu, conllu((1, "a", "_")), "'_' is no universal"),
        (read_conllu, conllu((1, "a", "DET"), (3, "b", "NOUN")), "line 2: word '3' where 2 is due"),
        (read_conllu, conllu((1, "a", "DET"), (1, "b", "DET")), "word '1' where 2 is due"),
        (read_conllu, conllu((1, " ", "DET")), "word 1 has no form"),
        (read_conllu, "# text = nothing\n", "holds no words"),
    ],
)
def test_one_line_for_a_bad_file(tmp_path, reader, text, said):
    (tmp_path / "bad").write_text(text)
    with pytest.raises(InputError) as caught:
        reader(tmp_path / "bad")
    assert (
        said in str(caught.value) and "bad" in str(caught.value) and "\n" not in str(caught.value)
    )


# ---- treebanks

TREES = "\n".join(
    [
        "# sent_id = 1\n# text = Vámonos al mar.\n"
        + conllu(
            ("1-2", "Vámonos", "_"),
            (1, "Vamos", "VERB"),
            (2, "nos", "PRON"),
            ("3-4", "al", "_"),
            (3, "a", "ADP"),
            (4, "el", "DET"),
            (5, "mar", "NOUN"),
            ("5.1", "ya", "ADV"),
            (6, ".", "PUNCT"),
        ),
        "# text = 1 000 #\n" + conllu((1, "1 000", "NUM"), (2, "#", "SYM")),
        "",
        conllu(("0.1", "hay", "VERB"), (1, "No", "INTJ")),
    ]
)


def test_a_treebank_is_its_words_and_their_parts_of_speech(tmp_path):
    (tmp_path / "own.conllu").write_text(TREES, encoding="utf-8")
    assert read_conllu(tmp_path / "own.conllu") == [
        dict(
            tokens=["Vamos", "nos", "a", "el", "mar", "."],
            tags=["VERB", "PRON", "ADP", "DET", "NOUN", "PUNCT"],
        ),
        dict(tokens=["1 000", "#"], tags=["NUM", "SYM"]),
        dict(tokens=["No"], tags=["INTJ"]),
    ]
    assert load_records("pos", f"file:{tmp_path}/own.conllu", size=1)[0]["tokens"][0] == "Vamos"


@pytest.mark.parametrize(
    "whose", ["ours", pytest.param("of the data folder", marks=pytest.mark.ci)]
)
def test_treebanks_against_the_conllu_library(tmp_path, whose):
    conllu = pytest.importorskip("conllu")
    (tmp_path / "own.conllu").write_text(TREES, encoding="utf-8")
    folder = Path(os.environ.get("XLINGUAL_DATA") or "-", "ud")
    of_folder = sorted(folder.glob("*.conllu.gz"))
    for path in [tmp_path / "own.conllu"] if whose == "ours" else of_folder:
        text = (
            gzip.decompress(path.read_bytes()).decode()
            if path.suffix == ".gz"
            else path.read_text(encoding="utf-8")
        )
        sentences = [
            [t for t in sentence if isinstance(t["id"], int)] for sentence in conllu.parse(text)
        ]
        theirs = [
            dict(tokens=[w["form"] for w in s], tags=[w["upos"] for w in s]) for s in sentences
        ]
        assert read_conllu(path) == theirs, path.name


def test_treebanks_of_the_data_folder_are_named_with_their_language(folder):
    (folder / "ud").mkdir()
    (folder / "ud" / "es-pud.test.conllu.gz").write_bytes(gzip.compress(TREES.encode()))
    assert [len(r["tokens"]) for r in load_records("pos", "ud/es-pud", "test")] == [6, 2, 1]
    for part, source, said in (
        ("train", "ud/es-pud", "there for no language"),
        ("test", "ud/en-pud", "there for es-pud"),
        ("test", "pud/es", "ud/LANGUAGE or file:PATH"),
    ):
        with pytest.raises(InputError, match=said):
            load_records("pos", source, part)


def test_the_microworld_names_parts_of_speech():
    made, raw = (
        load_records("pos", "micro/ru", "dev", 40, seed=1),
        microworld.task_records("pos", "ru", "dev", 40, seed=1),
    )
    names = microworld.LABEL_NAMES["pos"]["upos"]
    assert [r["tokens"] for r in made] == [r["tokens"] for r in raw]
    assert [[names.index(t) for t in r["tags"]] for r in made] == [r["upos"] for r in raw]
    assert {t for r in made for t in r["tags"]} <= set(UNIVERSAL_TAGS)
    english = load_records("pos", "micro/en", "dev", 40, seed=1)
    verbs, theirs = ([r["tags"].count("VERB") for r in side] for side in (made, english))
    assert verbs == theirs, "the same things are said"


# ---- readings


def read_moods(path, upper=False):
    return [dict(text=line.upper() if upper else line) for line in path.read_text().splitlines()]


MOODS = RecordReader(
    "mood",
    read_moods,
    columns=("text",),
    options=lambda source: dict(upper=source.startswith("moods/")),
    files={"moods": {"train": ["moods/{}.txt"], "dev": ["moods/{}.dev.txt"]}},
)


class MoodRecords(RecordsSpec):
    stage, readings = "mood_records", (MOODS,)


declare(MoodRecords, make_records)


def test_a_reading_of_ones_own_has_all_that_the_others_have(folder):
    (folder / "moods").mkdir()
    (folder / "moods" / "en.txt").write_text("glad\nsad\n")
    (folder / "moods" / "en.dev.txt").write_text("sad\nmad\nglum\n")
    assert load_records(MOODS, "moods/en") == [dict(text="GLAD"), dict(text="SAD")]
    assert load_records(MOODS, "moods/en", upper=False)[0] == dict(text="glad")
    assert load_records(MOODS, "moods/en", "dev", unseen=True) == [
        dict(text="MAD"),
        dict(text="GLUM"),
    ]
    assert load_records(MOODS, "moods/en", "dev", 1) == [dict(text="SAD")]
    assert load_records(MOODS, f"file:{folder}/moods/en.dev.txt")[0] == dict(text="sad")
    for source, parameters, said in (
        ("micro/en", {}, "name moods/LANGUAGE or file:PATH"),
        ("moods/en", dict(upper=1), "upper=1: choose True or False"),
        ("moods/en", dict(repair=True), "'repair' does not apply"),
        ("moods/hi", {}, "it is there for en"),
    ):
        with pytest.raises(InputError, match=said):
            load_records(MOODS, source, **parameters)


def test_records_of_a_task_of_ones_own_are_a_stage_of_ones_own(folder):
    path = folder / "own.txt"
    path.write_text("glad\n")
    spec = MoodRecords("mood", f"file:{path}", transforms=("unicode_shift",))
    assert stage_of(spec).make is make_records and canonical(spec).startswith(
        '{"is":"mood_records"'
    )
    make_records([spec], [folder], None, None)
    (shifted,) = transform_strings(("unicode_shift",), ["glad"])
    assert read_records(folder) == [dict(text=shifted)] and shifted != "glad"
    before = run_id(spec)
    path.write_text("sad\n")
    assert run_id(spec) != before and MoodRecords("ner", "micro/en", size=3).task == "ner"
    with pytest.raises(InputError, match="task='mood': choose nli or ner or pos"):
        RecordsSpec("mood", f"file:{path}")
    with pytest.raises(InputError, match="nli or ner or pos or mood"):
        MoodRecords("moods", f"file:{path}")


def test_a_reading_without_a_stage_is_refused():
    """Its runs would not be known to be stale when the reader is edited."""

    class Unstaged(RecordsSpec):
        readings = (MOODS,)

    with pytest.raises(InputError, match="Unstaged has readings of its own: give it a stage"):
        Unstaged("mood", "file:own.txt")


def test_canonical_forms_are_as_before():
    """Run ids hang on them."""
    nli = canonical(RecordsSpec("nli", "xnli/es", "dev", 40))
    assert nli == '{"is":"records","part":"dev","size":40,"source":"xnli/es","task":"nli"}'
    assert (
        canonical(RecordsSpec("pos", "micro/en"))
        == '{"is":"records","source":"micro/en","task":"pos"}'
    )


@pytest.mark.parametrize(
    "task, source, part, parameters, said",
    [
        ("qa", "micro/en", "train", {}, "choose nli or ner or pos"),
        ("nli", "panx/en", "train", {}, "is not known for nli"),
        ("ner", "xnli/en", "train", {}, "is not known for ner"),
        ("nli", "", "train", {}, "is not known"),
        ("nli", "xnli/", "dev", {}, "is not known"),
        ("nli", "micro/", "dev", {}, "is not known"),
        ("nli", "xnli/es", "devel", {}, "it has train, dev, test"),
        ("nli", "xnli/es", "train", {}, "it is there for en"),
        ("nli", "xnli/hi", "dev", {}, "it is there for es"),
        ("ner", "panx/hi", "test", {}, "it is there for en"),
        ("nli", "xnli/en", "test", {}, "there for no language"),
        ("nli", "file:no/such.tsv", "train", {}, "no/such.tsv does not exist"),
        ("nli", "xnli/es", "dev", dict(size=-1), "size=-1: give a count"),
        ("nli", "xnli/es", "dev", dict(size="3"), "size='3'"),
        ("nli", "xnli/es", "dev", dict(seed=-1), "seed=-1"),
        ("nli", "xnli/es", "dev", dict(seed=1.5), "seed=1.5"),
        ("nli", "xnli/es", "dev", dict(vocabulary=3), "'vocabulary' does not apply to xnli/es"),
        ("nli", "xnli/es", "dev", dict(repair=True), "'repair' does not apply"),
        ("nli", "xnli/es", "dev", dict(unseen=1), "unseen=1: choose"),
        ("nli", "micro/en", "dev", {}, "size=0"),
        ("nli", "micro/xx", "dev", dict(size=9), "language 'xx'"),
        ("ner", "micro/en", "dev", dict(size=9, unseen=True), "unseen: no such dial"),
    ],
)
def test_one_line_for_a_wrong_name(folder, task, source, part, parameters, said):
    with pytest.raises(InputError) as caught:
        load_records(task, source, part, **parameters)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_without_data(monkeypatch, tmp_path):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="or use micro/es"):
        load_records("nli", "xnli/es", "dev")


def test_digest(folder):
    train, dev = ((folder / "ner" / f"en-panx.{p}.conll") for p in ("train", "dev"))
    sha = lambda data: hashlib.sha256(data).hexdigest()
    assert (
        records_digest("panx/en", "ner", "dev") == sha(dev.read_bytes())
        and records_digest("micro/en", "ner", "dev", unseen=True) == "generated"
    )
    both = records_digest("panx/en", "ner", "dev", unseen=True)
    assert both == sha((sha(dev.read_bytes()) + sha(train.read_bytes())).encode())
    train.write_text("snow\tO\n")
    assert records_digest("panx/en", "ner", "dev", unseen=True) != both
    with pytest.raises(InputError):
        records_digest("panx/es", "ner", "dev")


def test_translate():
    pair, name = (
        dict(premise="ab", hypothesis="b", label="neutral", edit="x"),
        dict(tokens=["ab", "b"], tags=["O", "B-PER"]),
    )
    table = str.maketrans("ab", "xy")
    assert (
        map_text([pair, name], table)
        == map_text([pair, name], lambda t: t.translate(table))
        == [
            dict(premise="xy", hypothesis="y", label="neutral", edit="x"),
            dict(tokens=["xy", "y"], tags=["O", "B-PER"]),
        ]
    )
    assert pair["premise"] == "ab" and name["tokens"] == ["ab", "b"]


@real
def test_real_nli():
    dev = {l: load_records("nli", f"xnli/{l}", "dev") for l in ("en", "es", "hi", "ru")}
    assert {len(r) for r in dev.values()} == {2490} and len(
        {tuple(x["label"] for x in r) for r in dev.values()}
    ) == 1
    assert Counter(r["label"] for r in dev["hi"]) == dict.fromkeys(LABELS, 830)
    train = load_records("nli", "xnli/en")
    assert (
        len(train) > 10_000
        and len(load_records("nli", "xnli/en", unseen=False, size=100, seed=1)) == 100
    )
    assert len(load_records("nli", "snli/en", "test")) > 9000


@real
def test_real_ner():
    whole, clean = (
        load_records("ner", "panx/hi", "dev"),
        load_records("ner", "panx/hi", "dev", unseen=True),
    )
    assert len(whole) == 1000 and 600 < len(clean) < 750  # the data card counts 32% seen
    for source, kinds in (
        ("panx/ru", {"PER", "LOC", "ORG"}),
        ("conll/es", {"PER", "LOC", "ORG", "MISC"}),
    ):
        assert {t[2:] for r in load_records("ner", source) for t in r["tags"]} - {""} == kinds
    assert (
        len(load_records("ner", "panx/en", "test")) == 5000
        and len(load_records("ner", "conll/es", "dev")) == 1915
    )
