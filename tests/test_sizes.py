"""Sizes as data: the papers' own values beside their sections, one's own files on top, and an error that names file, key and mend."""
import re
from dataclasses import asdict, is_dataclass
from importlib.resources import files

import pytest

from xlingual_nb.experiments.sections import SCALES, corpora
from xlingual_nb.experiments.sizes import STUDIES, bilingual_sizes, laboratory_sizes

FOLDER = files("xlingual_nb") / "experiments" / "sizes"


def line_of(study: str, section: str, key: str) -> tuple[str, str]:
    "(value, comment) of a key as they stand in a study's file."
    part = (FOLDER / f"{study}.toml").read_text(encoding="utf-8").split(f"\n[{section}]\n")[1].split("\n[")[0]
    (found,) = re.findall(rf"(?m)^{re.escape(key)} = (.*?)\s+# (.*)$", part)
    return found


def at(value, key: str):
    for name in key.split("."): value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


# ---- the papers' own values: what the paper says (in its words or close to them), key, value, section

DUFTER = (
    ("The Easy-to-Read version contains the New Testament", "text.train.books", "NT", "section 2.1"),
    ("development data: the Old Testament of the English King James Bible", "text.dev.source", "bible/en-kjv", "section 2.1"),
    ("the first 10k sentences of it", "text.dev.sentences", 10000, "section 2.1"),
    ("a vocabulary of size 2048", "vocabulary.size", 2048, "section 2.1"),
    ("with the wordpiece tokenizer", "vocabulary.kind", "wordpiece", "section 2.1"),
    ("BERT-Base, smaller: hidden size 64", "small.hidden", 64, "Table 9"),
    ("intermediate size 256", "small.intermediate", 256, "Table 9"),
    ("a single attention head", "small.heads", 1, "Table 9"),
    ("the layers of BERT-Base", "small.layers", 12, "section 2.1"),
    ("maximum input length after tokenization 128", "small.max_tokens", 128, "Table 9"),
    ("768 for large models", "large.hidden", 768, "Table 9"),
    ("3072 for large models", "large.intermediate", 3072, "Table 9"),
    ("12 for large models", "large.heads", 12, "Table 9"),
    ("the same configuration as BERT-base", "large.layers", 12, "section 2.3"),
    ("maximum input length after tokenization 128", "large.max_tokens", 128, "Table 9"),
    ("100 epochs", "training.epochs", 100, "Table 9"),
    ("batch size 256", "training.batch", 256, "Table 9"),
    ("learning rate 2e-3", "training.learning_rate", 2e-3, "Table 9"),
    ("50 warmup steps", "training.warmup", 50, "Table 9"),
    ("weight decay .01", "training.weight_decay", 0.01, "Table 9"),
    ("Adam epsilon 1e-6", "training.epsilon", 1e-6, "Table 9"),
    ("100 epochs", "large_training.epochs", 100, "Table 9"),
    ("BERT-Base models: 16 with 16 gradient accumulation steps", "large_training.batch", 16 * 16, "Table 9"),
    ("1e-4 for large models", "large_training.learning_rate", 1e-4, "Table 9"),
    ("50 warmup steps", "large_training.warmup", 50, "Table 9"),
    ("weight decay .01", "large_training.weight_decay", 0.01, "Table 9"),
    ("Adam epsilon 1e-6", "large_training.epsilon", 1e-6, "Table 9"),
    ("each experiment with five different seeds", "seeds.central", 5, "section 2.1"),
    ("each experiment with five different seeds", "seeds.single", 5, "section 2.1"),
    ("each experiment with five different seeds", "seeds.rest", 5, "section 2.1"),
)
K = (
    ("a pair of segments, which can contain multiple sentences", "switches.inputs", "pairs", "section 3.1.1, footnote 3"),
    ("the vocabulary size is fixed at 60000", "pieces", 60000, "section 3.1.2"),
    ("estimated through the unigram language model", "kind", "unigram", "section 3.1.2"),
    ("Hindi, Spanish and Russian", "targets", ("es", "hi", "ru"), "section 3.1.2"),
    ("a batch size of 32", "base.training.batch", 32, "section 3.1.3"),
    ("a learning rate of 0.0001", "base.training.learning_rate", 0.0001, "section 3.1.3"),
    ("2M training steps", "base.training.steps", 2 * 10**6, "section 3.1.3"),
    ("F1 averaged from 5 runs", "taggers", 5, "section 3.1.3"),
    ("experiments with Fake-English as the source and Russian as the target", "deep_target", "ru", "section 3.3"),
    ("intermediate units are 4 x hidden units", "base.shape.intermediate", 4 * 768, "section 3.3"),
    ("the model of depth 12", "base.shape.layers", 12, "Table 4, depth 12"),
    ("the model of 12 attention heads", "base.shape.heads", 12, "Table 5, 12 heads"),
    ("the most frequent 100000 words", "words", 100000, "section 3.4.3"),
    ("500k steps", "spelt.steps", 500_000, "Table 10"),
    ("batch size 2k", "spelt.batch", 2048, "Table 10"),
)
PAPERS = [("dufter2020", "paper.bible", *row) for row in DUFTER] + [("k2020", "paper.wiki", *row) for row in K]


@pytest.mark.parametrize("study, section, says, key, value, where", PAPERS, ids=[f"{p[0]}-{p[3]}" for p in PAPERS])
def test_the_papers_values_stand_beside_their_sections(study, section, says, key, value, where):
    found = {"dufter2020": laboratory_sizes, "k2020": bilingual_sizes}[study](*section.split("."))
    if not key.startswith("text."): assert at(found, key) == value, says
    else: assert {"source": (part := found.text[key.split(".")[1]]).source, **dict(part.parameters)}[key.split(".")[2]] == value, says
    written, comment = line_of(study, section, key)
    assert comment.split(":")[0].split(";")[0] == where, f"{key} = {written}: the paper says so in {where}"


def test_every_value_at_paper_scale_says_where_it_is_from():
    "A section of the paper, the released code, or ours; the other section of the scale differs in its text alone."
    for study, section in (("dufter2020", "paper.bible"), ("k2020", "paper.wiki")):
        part = (FOLDER / f"{study}.toml").read_text(encoding="utf-8").split(f"\n[{section}]\n")[1].split("\n[")[0]
        for line in part.strip().splitlines():
            if line.startswith("needs"): continue
            assert re.search(r"# (section \d|Table \d|released code|ours|as base|the length is given in steps)", line), line
    real, made = (asdict(laboratory_sizes("paper", corpus)) for corpus in ("bible", "micro"))
    assert {k for k in real if real[k] != made[k]} == {"corpus", "text", "vocabulary"}
    real, made = (asdict(bilingual_sizes("paper", corpus)) for corpus in ("wiki", "micro"))
    assert {k for k in real if real[k] != made[k]} == {"corpus", "text", "nli", "ner"}


def test_k_has_one_encoder_at_paper_scale():
    sizes = bilingual_sizes("paper", "wiki")
    assert sizes.base == sizes.deep == sizes.paired


# ---- sizes are plain data

def test_sizes_are_plain_data():
    "Numbers, texts, lists, tables and records of these: nothing that can be called."
    def look(value, where):
        if is_dataclass(value): value = {f: getattr(value, f) for f in value.__dataclass_fields__}
        if isinstance(value, dict): return [look(v, f"{where}.{k}") for k, v in value.items()]
        if isinstance(value, tuple): return [look(v, where) for v in value]
        assert value is None or isinstance(value, (int, float, str, bool)), f"{where}: {value!r}"
    for scale in SCALES:
        for corpus in corpora("k2020", scale): look(bilingual_sizes(scale, corpus), f"k2020 {scale}.{corpus}")
        for corpus in corpora("dufter2020", scale): look(laboratory_sizes(scale, corpus), f"dufter2020 {scale}.{corpus}")
    assert set(STUDIES) == {p.name.removesuffix(".toml") for p in FOLDER.iterdir() if p.name.endswith(".toml")}
