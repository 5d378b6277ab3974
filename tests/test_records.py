"""Records of NLI and NER: every source gives the same ones, parts and samples, and one line for every wrong file or name."""
import gzip, hashlib, os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from xlingual_nb.errors import InputError
from xlingual_nb import microworld
from xlingual_nb.text import records
from xlingual_nb.text.records import LABELS, digest, load, read_pairs, read_tagged, sample, translate

real = pytest.mark.skipif(not Path(os.environ.get("XLINGUAL_DATA") or "-", "nli").is_dir(), reason="XLINGUAL_DATA names no folder with NLI")
PAIRS = [(f"P {i}.", f"H {i}.", LABELS[i % 3]) for i in range(7)]
CONLL = "Ada\tB-PER\nLovelace\tI-PER\nslept\tO\n\nParis\tB-LOC\nLondon\tB-LOC\n\n\nrain\tO\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "nli").mkdir(); (tmp_path / "ner").mkdir()
    (tmp_path / "nli" / "xnli.dev.es.tsv.gz").write_bytes(gzip.compress("".join("\t".join(p) + "\n" for p in PAIRS).encode()))
    (tmp_path / "nli" / "mnli.train.en.tsv").write_text("\t".join(PAIRS[0]) + "\n")
    (tmp_path / "ner" / "en-panx.train.conll").write_text("rain\tO\n")
    (tmp_path / "ner" / "en-panx.dev.conll").write_text(CONLL)
    (tmp_path / "ner" / "en-wikiann.test.conll").write_text("Paris\tB-LOC\n")
    (tmp_path / "ner" / "es-conll2002.test.conll").write_text("Lima\tB-LOC\n")
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    return tmp_path


def test_pairs_and_sentences(folder):
    assert [tuple(r.values()) for r in load("nli", "xnli/es", "dev")] == PAIRS
    assert load("nli", "xnli/en")[0] == dict(premise="P 0.", hypothesis="H 0.", label="entailment")
    assert [r["tokens"] for r in load("ner", "panx/en", "dev")] == [["Ada", "Lovelace", "slept"], ["Paris", "London"], ["rain"]]
    assert load("ner", "panx/en", "test") == [dict(tokens=["Paris"], tags=["B-LOC"])]       # WikiAnn stands in
    assert load("ner", "conll/es", "test")[0]["tokens"] == ["Lima"]
    (folder / "ner" / "en-panx.test.conll").write_text("Rome\tB-LOC\n")
    assert load("ner", "panx/en", "test")[0]["tokens"] == ["Rome"]


def test_samples(folder):
    whole = load("nli", "xnli/es", "dev")
    assert load("nli", "xnli/es", "dev", 3) == whole[:3] and load("nli", "xnli/es", "dev", 99) == whole
    drawn = load("nli", "xnli/es", "dev", 3, seed=4)
    assert drawn == load("nli", "xnli/es", "dev", 3, seed=4) and [r for r in whole if r in drawn] == drawn
    assert len({str(load("nli", "xnli/es", "dev", 3, seed=s)) for s in range(8)}) > 4


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 60), st.integers(0, 5))
def test_samples_are_nested_and_in_order(n, size, more, seed):
    small, large = (sample(list(range(n)), k, seed) for k in (size, size + more))
    assert len(small) == min(n, size) and small == sorted(set(small)) and set(small) <= set(large)


def test_unseen(folder):
    assert [r["tokens"][0] for r in load("ner", "panx/en", "dev", unseen=True)] == ["Ada", "Paris"]
    assert [r["tokens"][0] for r in load("ner", "panx/en", "dev", 1, unseen=True)] == ["Ada"]
    with pytest.raises(InputError, match="leaves nothing"): load("ner", "panx/en", "train", unseen=True)


def test_own_files(tmp_path):
    for part in ("train", "dev"): (tmp_path / f"{part}.tsv").write_text(f"{part}\tb\tneutral\n")
    name = f"file:{tmp_path}/{{part}}.tsv"
    assert [load("nli", name, part)[0]["premise"] for part in ("train", "dev")] == ["train", "dev"]
    assert load("nli", f"file:{tmp_path}/train.tsv")[0]["premise"] == "train"
    with pytest.raises(InputError, match="has no part 'dev'"): load("nli", f"file:{tmp_path}/train.tsv", "dev")


def test_the_microworld_says_the_same_in_names():
    assert LABELS == microworld.LABEL_NAMES["nli"]["label"]
    made, raw = load("nli", "micro/es", "dev", 30, seed=2), microworld.task("nli", "es", "dev", 30, seed=2)
    assert [LABELS.index(r["label"]) for r in made] == [r["label"] for r in raw] and Counter(r["label"] for r in made) == {l: 10 for l in LABELS}
    assert all(a | dict(label=0) == b | dict(label=0) for a, b in zip(made, raw))
    english = load("nli", "micro/en", "dev", 30, seed=2)
    assert [(r["label"], r["edit"]) for r in english] == [(r["label"], r["edit"]) for r in made]     # the same pairs in another language
    for r in load("ner", "micro/en", "train", 200):
        assert set(r) == {"tokens", "tags"} and len(r["tokens"]) == len(r["tags"])
        for before, tag in zip(["O", *r["tags"]], r["tags"]): assert not records.follows(tag, before)


def test_iob1_is_repaired_when_asked(folder):
    (folder / "ner" / "es-conll2002.dev.conll").write_text("San\tI-LOC\nSebastián\tI-LOC\nAda\tI-PER\nBob\tB-PER\n")
    assert load("ner", "conll/es", "dev")[0]["tags"] == ["B-LOC", "I-LOC", "B-PER", "B-PER"]
    with pytest.raises(InputError, match="or load with repair=True"): load("ner", "conll/es", "dev", repair=False)
    (folder / "own.conll").write_text("San\tI-LOC\n\nJuan\tX-PER\n")
    with pytest.raises(InputError, match="line 3: tag 'X-PER' is no BIO tag"): load("ner", f"file:{folder}/own.conll", repair=True)


@pytest.mark.parametrize("reader, text, said", [
    (read_pairs, "a\tb\n", "line 1: 2 columns, 3 wanted"), (read_pairs, "a\tb\tneutral\na\tb\tneutral\tx\n", "line 2: 4 columns, 3 wanted"),
    (read_pairs, "a b\n", "line 1: 1 column, 3 wanted"), (read_pairs, "a\tb\tmaybe\n", "label 'maybe' is not known"),
    (read_pairs, "premise\thypothesis\tlabel\n", "label 'label' is not known"), (read_pairs, "\tb\tneutral\n", "line 1: the premise is empty"),
    (read_pairs, "a\t \tneutral\n", "line 1: the hypothesis is empty"), (read_pairs, "\n\n", "is empty"),
    (read_tagged, "a\n", "1 column, 2 wanted"), (read_tagged, "a\tNN\tO\n", "3 columns, 2 wanted"), (read_tagged, "a\tPER\n", "no BIO tag"),
    (read_tagged, "a\tB-\n", "no BIO tag"), (read_tagged, "a\tI-PER\n", "begin a name with B-PER"), (read_tagged, "a\tB-LOC\nb\tI-PER\n", "I-PER after B-LOC"),
    (read_tagged, "a\tB-LOC\n\nb\tI-LOC\n", "line 3"), (read_tagged, "\tO\n", "no token"), (read_tagged, "", "is empty")])
def test_one_line_for_a_bad_file(tmp_path, reader, text, said):
    (tmp_path / "bad").write_text(text)
    with pytest.raises(InputError) as caught: reader(tmp_path / "bad")
    assert said in str(caught.value) and "bad" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("task, source, part, parameters, said", [
    ("pos", "micro/en", "train", {}, "choose nli or ner"), ("nli", "panx/en", "train", {}, "is not known for nli"),
    ("ner", "xnli/en", "train", {}, "is not known for ner"), ("nli", "", "train", {}, "is not known"), ("nli", "xnli/", "dev", {}, "is not known"),
    ("nli", "micro/", "dev", {}, "is not known"), ("nli", "xnli/es", "devel", {}, "it has train, dev, test"),
    ("nli", "xnli/es", "train", {}, "it is there for en"), ("nli", "xnli/hi", "dev", {}, "it is there for es"),
    ("ner", "panx/hi", "test", {}, "it is there for en"), ("nli", "xnli/en", "test", {}, "there for no language"),
    ("nli", "file:no/such.tsv", "train", {}, "no/such.tsv does not exist"),
    ("nli", "xnli/es", "dev", dict(size=-1), "size=-1: give a count"), ("nli", "xnli/es", "dev", dict(size="3"), "size='3'"),
    ("nli", "xnli/es", "dev", dict(seed=-1), "seed=-1"), ("nli", "xnli/es", "dev", dict(seed=1.5), "seed=1.5"),
    ("nli", "xnli/es", "dev", dict(vocabulary=3), "'vocabulary' does not apply to xnli/es"),
    ("nli", "xnli/es", "dev", dict(repair=True), "'repair' does not apply"), ("nli", "xnli/es", "dev", dict(unseen=1), "unseen=1: choose"),
    ("nli", "micro/en", "dev", {}, "size=0"), ("nli", "micro/xx", "dev", dict(size=9), "language 'xx'"),
    ("ner", "micro/en", "dev", dict(size=9, unseen=True), "unseen: no such dial")])
def test_one_line_for_a_wrong_name(folder, task, source, part, parameters, said):
    with pytest.raises(InputError) as caught: load(task, source, part, **parameters)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_without_data(monkeypatch, tmp_path):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False); monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="or use micro/es"): load("nli", "xnli/es", "dev")


def test_digest(folder):
    train, dev = ((folder / "ner" / f"en-panx.{p}.conll") for p in ("train", "dev"))
    sha = lambda data: hashlib.sha256(data).hexdigest()
    assert digest("panx/en", "ner", "dev") == sha(dev.read_bytes()) and digest("micro/en", "ner", "dev", unseen=True) == "generated"
    both = digest("panx/en", "ner", "dev", unseen=True)
    assert both == sha((sha(dev.read_bytes()) + sha(train.read_bytes())).encode())
    train.write_text("snow\tO\n")
    assert digest("panx/en", "ner", "dev", unseen=True) != both
    with pytest.raises(InputError): digest("panx/es", "ner", "dev")


def test_translate():
    pair, name = dict(premise="ab", hypothesis="b", label="neutral", edit="x"), dict(tokens=["ab", "b"], tags=["O", "B-PER"])
    table = str.maketrans("ab", "xy")
    assert translate([pair, name], table) == translate([pair, name], lambda t: t.translate(table)) == [
        dict(premise="xy", hypothesis="y", label="neutral", edit="x"), dict(tokens=["xy", "y"], tags=["O", "B-PER"])]
    assert pair["premise"] == "ab" and name["tokens"] == ["ab", "b"]


@real
def test_real_nli():
    dev = {l: load("nli", f"xnli/{l}", "dev") for l in ("en", "es", "hi", "ru")}
    assert {len(r) for r in dev.values()} == {2490} and len({tuple(x["label"] for x in r) for r in dev.values()}) == 1
    assert Counter(r["label"] for r in dev["hi"]) == {l: 830 for l in LABELS}
    train = load("nli", "xnli/en")
    assert len(train) > 10_000 and len(load("nli", "xnli/en", unseen=False, size=100, seed=1)) == 100
    assert len(load("nli", "snli/en", "test")) > 9000


@real
def test_real_ner():
    whole, clean = load("ner", "panx/hi", "dev"), load("ner", "panx/hi", "dev", unseen=True)
    assert len(whole) == 1000 and 600 < len(clean) < 750                # the data card counts 32% seen
    for source, kinds in (("panx/ru", {"PER", "LOC", "ORG"}), ("conll/es", {"PER", "LOC", "ORG", "MISC"})):
        assert {t[2:] for r in load("ner", source) for t in r["tags"]} - {""} == kinds
    assert len(load("ner", "panx/en", "test")) == 5000 and len(load("ner", "conll/es", "dev")) == 1915
