"""Sizes as data: the papers' own values beside their sections, one's own files on top, and an error
that names file, key and mend.
"""

import re
import shutil
from dataclasses import asdict, is_dataclass
from importlib import import_module
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from textwrap import dedent

import pandas as pd
import pytest
from in_process import no_kernel

from xlingual_nb import cli, microworld
from xlingual_nb.errors import InputError
from xlingual_nb.experiments import frequency, ordering
from xlingual_nb.experiments.config import SCALES, STUDIES
from xlingual_nb.experiments.config_files import list_corpora, load_sections
from xlingual_nb.experiments.scales import (
    bilingual_config,
    joint_config,
    laboratory_config,
    laboratory_text,
    load_config,
    reference_paper,
    trilingual_config,
)
from xlingual_nb.experiments.study_data import available_languages, corpus_spec, records_spec
from xlingual_nb.microworld import typology
from xlingual_nb.models.pretraining import PretrainSpec
from xlingual_nb.papers.published import OURS, claims
from xlingual_nb.report import notebooks, tables, verdicts
from xlingual_nb.runs.spec import parents
from xlingual_nb.text import records
from xlingual_nb.text.records import RecordsSpec
from xlingual_nb.text.sources import CorpusSpec

FOLDER = files("xlingual_nb") / "experiments" / "sizes"


def line_of(study: str, section: str, key: str) -> tuple[str, str]:
    """(value, comment) of a key as they stand in a study's file."""
    part = (
        (FOLDER / f"{study}.toml")
        .read_text(encoding="utf-8")
        .split(f"\n[{section}]\n")[1]
        .split("\n[")[0]
    )
    (found,) = re.findall(rf"(?m)^{re.escape(key)} = (.*?)\s+# (.*)$", part)
    return found


def at(value, key: str):
    for name in key.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


# ---- the papers' own values: what the paper says (in its words or close to them), key, value, section

DUFTER = (
    (
        "The Easy-to-Read version contains the New Testament",
        "text.train.books",
        "NT",
        "section 2.1",
    ),
    (
        "development data: the Old Testament of the English King James Bible",
        "text.dev.source",
        "bible/en-kjv",
        "section 2.1",
    ),
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
    (
        "BERT-Base models: 16 with 16 gradient accumulation steps",
        "large_training.batch",
        16 * 16,
        "Table 9",
    ),
    ("1e-4 for large models", "large_training.learning_rate", 1e-4, "Table 9"),
    ("50 warmup steps", "large_training.warmup", 50, "Table 9"),
    ("weight decay .01", "large_training.weight_decay", 0.01, "Table 9"),
    ("Adam epsilon 1e-6", "large_training.epsilon", 1e-6, "Table 9"),
    ("each experiment with five different seeds", "seeds.central", 5, "section 2.1"),
    ("each experiment with five different seeds", "seeds.single", 5, "section 2.1"),
    ("each experiment with five different seeds", "seeds.rest", 5, "section 2.1"),
)
K = (
    (
        "a pair of segments, which can contain multiple sentences",
        "switches.inputs",
        "pairs",
        "section 3.1.1, footnote 3",
    ),
    ("the vocabulary size is fixed at 60000", "pieces", 60000, "section 3.1.2"),
    ("estimated through the unigram language model", "kind", "unigram", "section 3.1.2"),
    ("Hindi, Spanish and Russian", "targets", ("es", "hi", "ru"), "section 3.1.2"),
    ("a batch size of 32", "base.training.batch", 32, "section 3.1.3"),
    ("a learning rate of 0.0001", "base.training.learning_rate", 0.0001, "section 3.1.3"),
    ("2M training steps", "base.training.steps", 2 * 10**6, "section 3.1.3"),
    ("F1 averaged from 5 runs", "taggers", 5, "section 3.1.3"),
    (
        "experiments with Fake-English as the source and Russian as the target",
        "deep_target",
        "ru",
        "section 3.3",
    ),
    ("intermediate units are 4 x hidden units", "base.shape.intermediate", 4 * 768, "section 3.3"),
    ("the model of depth 12", "base.shape.layers", 12, "Table 4, depth 12"),
    ("the model of 12 attention heads", "base.shape.heads", 12, "Table 5, 12 heads"),
    ("the most frequent 100000 words", "words", 100000, "section 3.4.3"),
    ("500k steps", "spelt.steps", 500_000, "Table 10"),
    ("batch size 2k", "spelt.batch", 2048, "Table 10"),
)
XNLI = (
    ("English, German and Hindi", "targets", ("de", "hi"), "section 5.1"),
    ("pretrain the model for 2 epochs", "base.training.epochs", 2, "section 5.1"),
    ("batch size 256", "base.training.batch", 256, "section 5.1"),
    ("learning rate 1e-4", "base.training.learning_rate", 1e-4, "section 5.1"),
    ("its own vocabulary with size 20k", "pieces", 3 * 20_000, "section 5.1"),
    ("hidden size 768 for XNLI", "base.shape.hidden", 768, "Table 9"),
    ("intermediate layer size 3072", "base.shape.intermediate", 3072, "Table 9"),
    ("number of warmup steps 50", "base.training.warmup", 50, "Table 9"),
    ("weight decay 0.01", "base.training.weight_decay", 0.01, "Table 9"),
    ("3 epochs of finetuning", "fine_tuning.epochs", 3, "section 5.1"),
    ("batch size 32", "fine_tuning.batch", 32, "section 5.1"),
    ("learning rate 2e-5", "fine_tuning.learning_rate", 2e-5, "section 5.1"),
    ("embedding dimension 300", "vectors.size", 300, "Table 8"),
    ("one of the five nearest neighbors", "nearest", 5, "section 5.1"),
    ("three random seeds", "seeds", 3, "Table 9"),
)
LIU = (
    ("the number of dimensions was all set to 768", "width", 768, "section 2.2"),
    ("the number of dimensions was all set to 768", "base.shape.hidden", 768, "section 2.2"),
    ("200k and 1000k sentences per language", "sentences", (200_000, 1_000_000), "section 2.3"),
    (
        "the remaining 14 languages",
        "targets",
        tuple("fr es de el bg ru tr ar vi th zh hi sw ur".split()),
        "section 2.2",
    ),
    ("often limited to 5~30 tokens", "window", 5, "section 2.4"),
    ("original 512", "base.shape.max_tokens", 512, "L2 Figure 6"),
    ("original 512", "windows.base.shape.max_tokens", 512, "L2 Figure 6"),
    ("limiting input length to 20 tokens", "windows.slices", (20, 5, 10, 40), "section 2.4"),
    ("varying window size to 128 and 256", "windows.spans", (128, 256), "section 2.4"),
    (
        "200k and 1000k sentences per language",
        "windows.sentences",
        (200_000, 1_000_000),
        "section 2.3",
    ),
    (
        "the vocabulary of mBERT, especially the cased one",
        "vocabulary",
        ("mbert-cased", 119_000),
        "L2 section 3.2",
    ),
    ("en→de to el→en", "shifts.targets", tuple("de fr ur sw zh el".split()), "L2 Table 2"),
    (
        "de to zh",
        "shifts.transfer",
        tuple("de es ar el fr hi ru th tr vi zh".split()),
        "L2 Table 4",
    ),
    (
        "from 0.2 in Spanish to 2.0 in Chinese",
        "shifts.weights",
        tuple(n / 10 for n in range(21)),
        "L2 Table 4",
    ),
)
PAPERS = [("dufter2020", "paper.bible", *row) for row in DUFTER] + [
    ("k2020", "paper.wiki", *row) for row in K
]
PAPERS += [("liu2020", "paper.wiki", *row) for row in LIU] + [
    ("dufter2020xnli", "paper.wiki", *row) for row in XNLI
]
SECTIONS = (
    ("dufter2020", "paper.bible"),
    ("k2020", "paper.wiki"),
    ("liu2020", "paper.wiki"),
    ("dufter2020xnli", "paper.wiki"),
)


@pytest.mark.parametrize(
    "study, section, says, key, value, where", PAPERS, ids=[f"{p[0]}-{p[3]}" for p in PAPERS]
)
def test_the_papers_values_stand_beside_their_sections(study, section, says, key, value, where):
    read = {
        "dufter2020": laboratory_config,
        "k2020": bilingual_config,
        "liu2020": joint_config,
        "dufter2020xnli": trilingual_config,
    }
    found = read[study](*section.split("."))
    if not key.startswith("text."):
        assert at(found, key) == value, says
    else:
        assert {"source": (part := found.text[key.split(".")[1]]).source, **dict(part.parameters)}[
            key.split(".")[2]
        ] == value, says
    written, comment = line_of(study, section, key)
    assert comment.split(":")[0].split(";")[0] == where, (
        f"{key} = {written}: the paper says so in {where}"
    )


def test_every_value_at_paper_scale_says_where_it_is_from():
    """A section of the paper, the released code, or ours; the other section of the scale differs in
    its text alone.
    """
    for study, section in SECTIONS:
        part = (
            (FOLDER / f"{study}.toml")
            .read_text(encoding="utf-8")
            .split(f"\n[{section}]\n")[1]
            .split("\n[")[0]
        )
        for line in part.strip().splitlines():
            if line.startswith("needs"):
                continue
            assert re.search(
                r"# (L2 |W )?(section \d|Table \d|Figure \d|released code|ours|as base|the length is "
                r"given in steps)",
                line,
            ), line
    real, made = (asdict(laboratory_config("paper", corpus)) for corpus in ("bible", "micro"))
    assert {k for k in real if real[k] != made[k]} == {"corpus", "label", "text", "vocabulary"}
    real, made = (asdict(bilingual_config("paper", corpus)) for corpus in ("wiki", "micro"))
    assert {k for k in real if real[k] != made[k]} == {"corpus", "label", "text", "nli", "ner"}
    real, made = (asdict(trilingual_config("paper", corpus)) for corpus in ("wiki", "micro"))
    assert {k for k in real if real[k] != made[k]} == {"corpus", "label", "text", "nli"}
    real, made = (asdict(joint_config("paper", corpus)) for corpus in ("wiki", "micro"))
    kept = {
        "corpus",
        "label",
        "text",
        "nli",
        "sentences",
        "dictionary",
        "unasked",
        "vocabulary",
        "windows",
        "shifts",
        "tasks",
        "layers",
    }
    assert {k for k in real if real[k] != made[k]} == kept


def test_k_has_one_encoder_at_paper_scale():
    sizes = bilingual_config("paper", "wiki")
    assert sizes.base == sizes.deep == sizes.paired


# ---- sizes are plain data


def test_sizes_are_plain_data():
    """Numbers, texts, lists, tables and records of these: nothing that can be called."""

    def look(value, where):
        if is_dataclass(value):
            value = {f: getattr(value, f) for f in value.__dataclass_fields__}
        if isinstance(value, dict):
            return [look(v, f"{where}.{k}") for k, v in value.items()]
        if isinstance(value, tuple):
            return [look(v, where) for v in value]
        assert value is None or isinstance(value, (int, float, str, bool)), f"{where}: {value!r}"

    for scale in SCALES:
        for corpus in list_corpora("k2020", scale):
            look(bilingual_config(scale, corpus), f"k2020 {scale}.{corpus}")
        for corpus in list_corpora("dufter2020", scale):
            look(laboratory_config(scale, corpus), f"dufter2020 {scale}.{corpus}")
        for corpus in list_corpora("dufter2020xnli", scale):
            look(trilingual_config(scale, corpus), f"dufter2020xnli {scale}.{corpus}")
        for corpus in list_corpora("liu2020", scale):
            look(joint_config(scale, corpus), f"liu2020 {scale}.{corpus}")
    assert set(STUDIES) == {
        p.name.removesuffix(".toml") for p in FOLDER.iterdir() if p.name.endswith(".toml")
    }


def test_a_study_that_is_not_there_is_told_with_those_that_are():
    for call in (lambda: load_config("nosuch", "smoke"), lambda: list_corpora("nosuch", "smoke")):
        with pytest.raises(
            InputError,
            match="'nosuch' is not known: there are dufter2020, dufter2020xnli, k2020, liu2020",
        ):
            call()
    with pytest.raises(InputError, match="did you mean k2020"):
        load_config("k2021", "smoke", user_config=dict(study="k2021"))


# ---- one's own: Finnish here is the microworld's Turkish, written into files

ROOT = Path(__file__).resolve().parents[1]
OWN_FILE = re.search(
    r"(?m)^    study = \"k2020\"\n(?:    .*\n|\n)+?(?=\n\S)",
    (ROOT / "data/README.md").read_text(encoding="utf-8"),
)[0]


@pytest.fixture(scope="module")
def finnish(tmp_path_factory):
    """The folder that data/README.md walks through, with its fi.toml as it stands there."""
    folder = tmp_path_factory.mktemp("my")
    (folder / "fi.toml").write_text(dedent(OWN_FILE), encoding="utf-8")

    def write(name, lines):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    for name, spoken in (("en", "en"), ("fi", "tr")):
        write(f"texts/{name}.txt", microworld.corpus(spoken, "train", 100).sentences)
        write(
            f"verses/{name}.tsv",
            (
                f"GEN.1.{i + 1}\t{s}"
                for i, s in enumerate(microworld.corpus(spoken, "dev", 20).sentences)
            ),
        )
        for part, size in (("train", 30), ("dev", 15), ("test", 15)):
            pairs = records.load_records("nli", f"micro/{spoken}", part, size)
            write(
                f"nli/{part}.{name}.tsv",
                ("\t".join(p[k] for k in ("premise", "hypothesis", "label")) for p in pairs),
            )
            named = records.load_records("ner", f"micro/{spoken}", part, size)
            write(
                f"ner/{part}.{name}.conll",
                ("".join(f"{t}\t{g}\n" for t, g in zip(r["tokens"], r["tags"])) for r in named),
            )
    return folder


def own(text: str, tmp_path):
    (tmp_path / "fi.toml").write_text(text, encoding="utf-8")
    return tmp_path / "fi.toml"


def test_ones_own_section_goes_over_the_study(finnish):
    mine, model = (
        bilingual_config("smoke", user_config=finnish / "fi.toml"),
        bilingual_config("smoke", "bible"),
    )
    assert (mine.corpus, mine.targets, mine.deep_target) == (
        "finnish",
        ("fi",),
        "fi",
    ) and list_corpora("k2020", "smoke", finnish / "fi.toml")[0] == "finnish"
    assert {k for k, v in asdict(mine).items() if v != asdict(model)[k]} == {
        "corpus",
        "label",
        "text",
        "nli",
        "ner",
        "targets",
        "deep_target",
    }
    assert corpus_spec(mine, "fi") == CorpusSpec(f"file:{finnish}/texts/fi.txt"), (
        "a path starts from the folder of the file"
    )
    assert records_spec(mine, "ner", "fi", "test") == RecordsSpec(
        "ner", f"file:{finnish}/ner/{{part}}.fi.conll", "test", 20
    )
    for corpus in ("micro", "bible"):
        assert bilingual_config(
            "smoke", corpus, user_config=finnish / "fi.toml"
        ) == bilingual_config("smoke", corpus), "the study's own stay"


def test_a_file_may_be_written_from_anywhere(finnish, monkeypatch, tmp_path):
    monkeypatch.chdir(finnish)
    here = bilingual_config("smoke", user_config="fi.toml")
    monkeypatch.chdir(tmp_path)
    assert bilingual_config("smoke", user_config=finnish / "fi.toml") == here
    up_and_down = finnish / "texts" / ".." / "fi.toml"
    assert bilingual_config("smoke", user_config=up_and_down) == here


def test_languages_kept_in_different_places(finnish, tmp_path):
    """Names of languages: some of the user's, beside those that the study has."""
    text = (
        dedent(OWN_FILE)
        .replace("file:", f"file:{finnish}/")
        .replace(f"file:{finnish}/texts/{{language}}.txt", "{training}")
    )
    names = f'[languages]\nen = {{ training = "micro/en" }}\nfi = {{ training = "file:{finnish}/texts/fi.txt" }}\n'
    mine = bilingual_config("smoke", user_config=own(text + names, tmp_path))
    assert [corpus_spec(mine, l).source for l in ("en", "fi")] == [
        "micro/en",
        f"file:{finnish}/texts/fi.txt",
    ]
    assert mine.languages["es"] == bilingual_config("smoke", "bible").languages[
        "es"
    ] and available_languages(mine) == ["en", "fi"]


def test_the_order_of_parameters_means_nothing():
    """They are part of a run's id."""
    keys = {"source": "micro/{language}", "sentences": 9, "vocabulary": 128}
    orders = [dict(items) for items in permutations(keys.items())]
    found = {
        corpus_spec(
            laboratory_config(
                "smoke",
                user_config={
                    "study": "dufter2020",
                    "smoke": {"mine": {"like": "smoke.micro", "text": {"train": o}}},
                },
            ),
            "en",
        )
        for o in orders
    }
    assert found == {CorpusSpec("micro/en", parameters=(("sentences", 9), ("vocabulary", 128)))}


def test_like_is_one_step_and_a_source_is_taken_whole():
    table = {
        "study": "k2020",
        "smoke": {
            "a": {
                "like": "smoke.bible",
                "base": {"training": {"steps": 7}},
                "text": {"train": {"source": "micro/{language}", "sentences": 9}},
            },
            "b": {"like": "smoke.a"},
        },
    }
    found = load_sections("k2020", {"study": "k2020", "smoke": {"a": table["smoke"]["a"]}})[0][
        "smoke", "a"
    ]
    assert found["base"]["training"] == {"epochs": 0, "batch": 16, "steps": 7} and found["text"][
        "train"
    ] == {"source": "micro/{language}", "sentences": 9}
    assert found["text"]["dev"]["books"] == "OT", "what is not said comes from the other"
    shorter = {
        "study": "k2020",
        "smoke": {"a": {"like": "smoke.bible", "text": {"train": {"sentences": 9}}}},
    }
    assert load_sections("k2020", shorter)[0]["smoke", "a"]["text"]["train"]["books"] == "NT", (
        "a size alone leaves the source"
    )
    with pytest.raises(InputError, match=r"smoke\.b\.like: 'smoke\.a' is not known"):
        load_sections("k2020", table)


HEAD = 'study = "k2020"\n[smoke.mine]\nlike = "smoke.micro"\n'


@pytest.mark.parametrize(
    "text, says",
    (
        (
            "study = ",
            "fi.toml: is not TOML in UTF-8 (Invalid value (at end of document)): mend that line",
        ),
        ("[smoke.mine]\n", "fi.toml: no study: begin with study = 'k2020'"),
        (
            'study = "dufter2020"\n',
            "fi.toml: study = 'dufter2020', and k2020 is wanted here: name a file for k2020",
        ),
        ('study = "k2020"\n[smoek.mine]\n', "fi.toml: 'smoek' is not known: did you mean smoke?"),
        (
            'study = "k2020"\n[smoke.mine]\npieces = 3\n',
            "fi.toml, smoke.mine: 'text' is missing: add it, or a line like = 'scale.corpus'",
        ),
        (
            'study = "k2020"\n[smoke.mine]\nlike = "smoke.bibel"\n',
            "fi.toml, smoke.mine.like: 'smoke.bibel' is not known: did you mean smoke.bible?",
        ),
        (
            'study = "k2020"\n[smoke.micro]\npieces = 3\n',
            "fi.toml, smoke.micro: name yours otherwise, this is the study's",
        ),
        (
            'study = "k2020"\n[languages]\nes = { verses = "bible/es-mine" }\n',
            "fi.toml, languages.es.verses: the study uses that name: take another",
        ),
        (HEAD + "peices = 3\n", "fi.toml, smoke.mine: 'peices' is not known: did you mean pieces?"),
        (
            HEAD + 'pieces = "300"\n',
            "fi.toml, smoke.mine.pieces: '300' is not a whole number: write a whole number",
        ),
        (HEAD + "pieces = true\n", "fi.toml, smoke.mine.pieces: True is not a whole number"),
        (
            HEAD + "seeds = 3\n",
            "fi.toml, smoke.mine.seeds: 3 is no table: write keys between { and }",
        ),
        (
            HEAD + "seeds = { mian = 3 }\n",
            "fi.toml, smoke.mine.seeds: 'mian' is not known: did you mean main?",
        ),
        (
            HEAD + "seeds = { main = 500 }\n",
            "fi.toml, smoke.mine.seeds.main = 500: there are 100 seeds: write 100 at most",
        ),
        (
            HEAD + "seeds = { main = 0 }\n",
            "fi.toml, smoke.mine.seeds.main = 0: no model would be trained: write 1 to 100",
        ),
        (
            HEAD + "seeds = { rest = -1 }\n",
            "fi.toml, smoke.mine.seeds.rest = -1: no model would be trained: write 1 to 100",
        ),
        (HEAD + 'targets = "fi"\n', "fi.toml, smoke.mine.targets: 'fi' is no list: write [ ... ]"),
        (
            HEAD + "base.shape = { layer = 2 }\n",
            "fi.toml, smoke.mine.base.shape: 'layer' is not known: did you mean layers?",
        ),
        (
            HEAD + "base.shape = { hidden = 17, heads = 2 }\n",
            "fi.toml, smoke.mine.base.shape: 2 heads do not divide a "
            "hidden size of 17: choose a divisor",
        ),
        (
            HEAD + "base.training = { batch = 0 }\n",
            "fi.toml, smoke.mine.base.training: batch=0: a batch has at least one sentence",
        ),
        (
            HEAD + "switches = { npairs = true }\n",
            "fi.toml, smoke.mine.switches: 'npairs' is not known",
        ),
        (
            HEAD + 'corpus = "x"\n',
            "fi.toml, smoke.mine: 'corpus' does not stand in a section: leave it out",
        ),
        (
            'study = "k2020"\n[smoke.mine]\nlike = "smoke.micro"\nner.more = { size = 3 }\n',
            "fi.toml, smoke.mine.ner: 'more' is not known: there are train, dev, test",
        ),
        (
            HEAD + "text.trian = { sentences = 9 }\n",
            "fi.toml, smoke.mine.text: 'trian' is not known: did you mean train?",
        ),
        (
            HEAD + "ner.train = { size = 9, source = 3 }\n",
            "fi.toml, smoke.mine.ner.train.source: 3 is not text in quotes",
        ),
        (
            HEAD + 'targets = ["fi"]\n',
            "fi.toml, smoke.mine.text.train (fi): language 'fi': the presets are en, ",
        ),
        (
            HEAD + 'targets = ["fi"]\ntext.train = { source = "file:here/{language}.txt" }\n',
            "smoke.mine.text.train (en): ",
        ),
        (
            HEAD + 'text.train = { source = "text/{language}" }\n',
            "fi.toml, smoke.mine.text.train (en): no data folder for "
            "text/en.txt: set XLINGUAL_DATA",
        ),
        (
            HEAD + 'text.train = { source = "text/{lingo}" }\n',
            "'text/{lingo}' wants the name 'lingo' of en: add it under [languages.en]",
        ),
        (
            HEAD + 'text.train = { source = "micro/en", sentences = 9 }\n',
            "fi.toml, smoke.mine.text.train (es): micro/en is en's: write {language} in its name",
        ),
    ),
)
def test_a_mistake_names_file_key_and_mend(text, says, tmp_path, monkeypatch):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        bilingual_config("smoke", user_config=own(text, tmp_path))
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_as_many_seeds_as_there_are_may_stand_in_a_section_of_any_study():
    def mine(study, like, seeds):
        return {"study": study, "smoke": {"mine": {"like": like, "seeds": seeds}}}

    assert (
        laboratory_config(
            "smoke", "mine", user_config=mine("dufter2020", "smoke.micro", {"rest": 100})
        ).seeds.rest
        == 100
    )
    for sizes, study in ((trilingual_config, "dufter2020xnli"), (joint_config, "liu2020")):
        with pytest.raises(InputError, match="sizes, smoke.mine.seeds = 101: there are 100 seeds"):
            sizes("smoke", "mine", user_config=mine(study, "smoke.micro", 101))
        with pytest.raises(InputError, match="sizes, smoke.mine.seeds = 0: .*write 1 to 100"):
            sizes("smoke", "mine", user_config=mine(study, "smoke.micro", 0))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(
        InputError, match="--sizes .*none.toml: cannot be read .*: name a TOML file"
    ):
        bilingual_config("smoke", user_config=tmp_path / "none.toml")


@pytest.mark.parametrize(
    "name, change, says",
    (
        ("texts/fi.txt", None, r"text\.train \(fi\): .*texts/fi.txt cannot be read"),
        (
            "texts/fi.txt",
            lambda text: text.encode("utf-16"),
            r"text\.train \(fi\): .*texts/fi.txt line 1: the text is "
            r"UTF-16: save it as UTF-8",
        ),
        (
            "verses/fi.tsv",
            lambda text: text.replace("GEN.1.2\t", "GEN.1.1\t"),
            r"text\.dev \(fi\): .*verses/fi.tsv line 2: verse GEN.1.1 is there twice: keep one",
        ),
        ("verses/fi.tsv", lambda text: text.replace("GEN.", "EXO."), r"share 0 sentences"),
        (
            "nli/test.fi.tsv",
            lambda text: text.replace("neutral", "neutraali"),
            r"nli\.test \(fi\): .*nli/test.fi.tsv line \d+: label 'neutraali' is not known: write",
        ),
        (
            "nli/test.fi.tsv",
            lambda text: "".join(text.splitlines(keepends=True)[:12]),
            r"nli\.test \(fi\) and .*nli\.test \(en\) are not parallel",
        ),
        (
            "nli/test.fi.tsv",
            lambda text: "".join(reversed(text.splitlines(keepends=True))),
            r"nli\.test \(fi\) and .*nli\.test \(en\) are not parallel",
        ),
        (
            "ner/test.fi.conll",
            lambda text: "Oulu\tI-LOC\n",
            r"ner\.test \(fi\): .*ner/test.fi.conll line 1: tag I-LOC "
            r"after O continues no LOC",
        ),
        ("ner/dev.en.conll", None, r"ner\.dev \(en\): .*ner/dev.en.conll cannot be read"),
    ),
)
def test_a_broken_text_is_told_before_anything_starts(finnish, tmp_path, name, change, says):
    folder = shutil.copytree(finnish, tmp_path / "my")
    old = (folder / name).read_text(encoding="utf-8")
    (folder / name).unlink()
    if change:
        (folder / name).write_bytes(new if isinstance(new := change(old), bytes) else new.encode())
    with pytest.raises(InputError, match=says):
        bilingual_config("smoke", user_config=folder / "fi.toml")


def test_what_the_hub_has_is_said(tmp_path, monkeypatch):
    (tmp_path / "ner").mkdir()
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    text = HEAD + 'ner.test = { source = "panx/{language}" }\n'
    with pytest.raises(
        InputError,
        match=r"ner\.test \(en\): panx/en has no part 'test' .*; `xlingual data get panx "
        r"en` gets it from the hub",
    ):
        bilingual_config("smoke", user_config=own(text, tmp_path))


AUTO = [
    (study, module)
    for study, names in (
        ("k2020", ("overlap", "ordering", "frequency", "architecture", "objective", "mixed_pairs")),
        ("dufter2020", ("laboratory",)),
        ("dufter2020xnli", ("knn_replace",)),
        (
            "liu2020",
            (
                "data_size",
                "window_size",
                "parts_of_speech",
                "zero_shot",
                "layers",
                "language_shift",
            ),
        ),
    )
    for module in names
]


@pytest.mark.parametrize("study, module", AUTO, ids=lambda said: said)
def test_ones_own_corpus_is_taken_where_none_is_named(study, module):
    """In every notebook that takes a file: no model is the study's."""
    mine = {
        "study": study,
        "smoke": {"micro-mine": {"like": "smoke.micro", "text": {"train": {"seed": "mine"}}}},
    }
    found, usual = (
        import_module(f"xlingual_nb.experiments.{module}").list_table_entries("smoke", own=own)
        for own in (mine, "")
    )

    def below(spec):
        return {spec}.union(*map(below, parents(spec)))

    def models(cells):
        return {
            one
            for cell in cells
            for spec in cell.runs
            for one in below(spec)
            if isinstance(one, PretrainSpec)
        }

    assert models(found) and not models(found) & models(usual)


def test_a_scale_that_the_file_has_not(finnish):
    with pytest.raises(
        InputError, match="no corpus of yours at scale laptop, but smoke.finnish: choose its scale"
    ):
        bilingual_config("laptop", user_config=finnish / "fi.toml")
    assert bilingual_config("laptop", "micro", user_config=finnish / "fi.toml").corpus == "micro"


# ---- other languages than the section's


def test_languages_are_k_s_targets_and_d_s_language():
    sizes = bilingual_config("laptop", "micro", "en, hi,tr")
    assert (sizes.targets, sizes.deep_target, sizes.label, sizes.corpus) == (
        ("hi", "tr"),
        "hi",
        "micro-hi-tr",
        "micro",
    )
    assert (
        bilingual_config("laptop", "micro", "es,hi,ru") == bilingual_config("laptop", "micro")
        and bilingual_config("laptop", "micro", "en").targets == ()
    )
    sizes = laboratory_config("smoke", "micro", "tr")
    assert (sizes.language, sizes.label) == ("tr", "micro-tr") and laboratory_text(sizes)[
        0
    ].source == "micro/tr"
    assert laboratory_config("smoke", "micro", "en") == laboratory_config("smoke", "micro")
    assert available_languages(bilingual_config("smoke", "micro")) == list(
        typology.PRESETS
    ) and available_languages(bilingual_config("gpu", "mix")) == ["en", "es", "hi", "ru"]


@pytest.mark.parametrize(
    "call, says",
    (
        (
            lambda: bilingual_config("smoke", "micro", "es,fi"),
            "no text in 'fi' at scale smoke on corpus micro, which has en, fr, es, de, ",
        ),
        (
            lambda: bilingual_config("laptop", "bible", "es"),
            "no text in 'es' at scale laptop on corpus bible, which has en: "
            "choose another corpus, or bring your own with --sizes",
        ),
        (
            lambda: bilingual_config("gpu", "mix", "fr"),
            "no text in 'fr' at scale gpu on corpus mix, which has en, es, hi, ru: ",
        ),
        (
            lambda: laboratory_config("smoke", "micro", "es,ru"),
            "languages='es,ru': the study is of one language and its copy: name it",
        ),
        (
            lambda: laboratory_config("smoke", "bible", "es"),
            "no text in 'es' at scale smoke on corpus bible, which has en",
        ),
    ),
)
def test_an_unknown_language_is_told_with_those_there_are(call, says):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(says)


def test_results_on_other_languages_are_nobodys_but_ours(finnish):
    papers = {
        languages: reference_paper(bilingual_config("laptop", "micro", languages))
        for languages in ("", "es,hi,ru", "es", "tr")
    }
    assert (
        papers == {"": "k2020", "es,hi,ru": "k2020", "es": "k2020", "tr": OURS}
        and reference_paper(bilingual_config("smoke", user_config=finnish / "fi.toml")) == OURS
    )
    assert [reference_paper(laboratory_config("smoke", "micro", l)) for l in ("", "en", "es")] == [
        "dufter2020",
        "dufter2020",
        OURS,
    ]
    assert [
        reference_paper(trilingual_config("smoke", "micro", l)) for l in ("", "hi", "de,es")
    ] == [
        "dufter2020",
        "dufter2020",
        OURS,
    ]


# ---- from the command line


def call(*arguments) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main([str(a) for a in arguments])
    return end.value.code


def test_plan_of_ones_own(finnish, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.chdir(finnish)
    assert (
        call("plan", "02", "--scale", "smoke", "--sizes", "fi.toml", "--store", tmp_path / "runs")
        == 0
    )
    lines = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines() if line)
    specs = ordering.grid("smoke", own=finnish / "fi.toml")
    models = {s.checkpoint for s in specs if s.stage != "nli_floors"}
    assert int(lines["nli"]) == len([s for s in specs if s.stage == "nli"]) and int(
        lines["pretrain"]
    ) == len(models)
    assert {l.name for model in models for l in model.languages} == {"enfake", "fi", "en"}


@pytest.mark.parametrize(
    "arguments, says",
    (
        (
            ("run", "--sizes", "fi.toml"),
            "--sizes fi.toml: name its notebooks, as in: run 02 --sizes fi.toml",
        ),
        (
            ("run", "07", "--sizes", "fi.toml"),
            "fi.toml: study = 'k2020', and dufter2020 is wanted here",
        ),
        (
            ("run", "02", "-p", "languages=xx", "-p", "corpus=micro"),
            "no text in 'xx' at scale smoke on corpus micro, which has en, fr, es",
        ),
        (
            ("plan", "07", "-p", "languages=es,ru"),
            "languages='es,ru': the study is of one language and its copy",
        ),
        (("plan", "17", "-p", "languages=xx"), "language 'xx': the presets are en"),
        (
            ("run", "02", "--scale", "laptop", "--sizes", "fi.toml"),
            "no corpus of yours at scale laptop, but smoke.finnish",
        ),
    ),
)
def test_what_is_wrong_is_said_before_a_kernel_starts(
    finnish, tmp_path, monkeypatch, capsys, arguments, says
):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.setattr(notebooks, "execute", lambda *_: pytest.fail("a kernel was started"))
    monkeypatch.chdir(finnish)
    assert call(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("xlingual: ") and says in line


def test_every_experiment_has_a_language_and_all_but_the_dials_a_file():
    """The dials run on the microworld alone; the tour has a text of its own; the ledger runs nothing."""
    found = {
        name: notebooks.parameters(path)
        for name, path in notebooks.experiments(ROOT / "nbs").items()
        if name not in ("00_start_here", "15_ledger")
    }
    assert all("languages" in known for known in found.values())
    assert {name for name, known in found.items() if "own" not in known} == {
        "17_dials",
    }


@pytest.mark.ci
@pytest.mark.slow
def test_table_2_on_english_and_finnish(finnish, tmp_path, monkeypatch):
    """From plain files to a table and a figure, under the names of the languages; no published
    number, and no claim.
    """
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    places = {name: str(tmp_path / name) for name in ("store", "results", "figures")}
    with no_kernel(all_cells=False):
        made = notebooks.run_notebook(
            "02", "smoke", {"own": str(finnish / "fi.toml"), **places}, out=tmp_path / "out"
        )
    table = tables.read(tmp_path / "results/smoke/02_ordering/table2.csv")
    assert (
        set(table.corpus) == {"finnish"}
        and set(table.paper) == {OURS}
        and table.published.isna().all()
        and table.value.notna().all()
    )
    assert {
        f"enfake-fi | permutation {amount} | fi" for amount in ("0.0", "0.25", "0.5", "1.0")
    } < set(table.row)
    floors = {
        "untrained | enfake | fi",
        "never saw the target | enfake | fi",
        "majority class | fi",
        "set differences | enfake | fi",
    }
    assert floors < set(table.row)
    assert set(verdicts.read(tmp_path / "results/smoke/verdicts.csv").verdict) == {"not tested"}
    assert (
        tmp_path / "figures/02_ordering-table2-smoke-finnish.png"
    ).is_file() and "enfake-fi" in made.read_text(encoding="utf-8")


def test_no_claim_is_judged_by_other_languages():
    """The same numbers, once of the paper and once ours: a claim that the first decides, the second
    leave alone.
    """
    rows = [
        (f"enfake-es | {kind} | es", 90.0 - 60 * (kind == "frequency based"))
        for kind in frequency.KINDS
    ]
    rows += [("untrained | enfake | es", 1.0), ("never saw the target | enfake | es", 2.0)]
    frame = pd.DataFrame(
        [
            ("table3", row, "NER F1-Score", "micro", seed, value + seed * (1 + at), "id")
            for at, (row, value) in enumerate(rows)
            for seed in range(3)
        ],
        columns=["table", "row", "column", "corpus", "seed", "value", "run_id"],
    )
    (claim,) = [c for c in claims("k2020") if c.id == "K-frequency-ner"]
    targets = {r.split(" | ")[-1] for t in claim.tests for r in t.plus}
    frame = pd.concat([frame.assign(row=frame.row.str.replace("es", t)) for t in targets])
    judged = {
        paper: verdicts.verdicts(frame.assign(paper=paper), "laptop", [claim]).verdict[0]
        for paper in ("k2020", OURS)
    }
    assert judged["k2020"] != "not tested" and judged[OURS] == "not tested"
