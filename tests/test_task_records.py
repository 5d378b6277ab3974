"""Which records a task has where: by hand, from small files laid out as the data folder is; what is
refused before training.
"""

import os
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pandas as pd
import pytest

from xlingual_nb import microworld
from xlingual_nb.errors import InputError
from xlingual_nb.experiments import layers, liu2020_shifts, zero_shot
from xlingual_nb.experiments.study import observe, unique_runs
from xlingual_nb.experiments.wu2019_common import (
    check_task_records,
    evaluation_languages,
    is_single_world,
    labelled_task_records,
    supervised_languages,
)
from xlingual_nb.experiments.word_order import word_order_distances
from xlingual_nb.experiments.zero_shot import TASKS, grid, list_table_entries, zero_shot_config
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.spec import source_digests
from xlingual_nb.runs.store import Store
from xlingual_nb.papers.published import OURS
from xlingual_nb.tasks.zero_shot_classification import micro_documents
from xlingual_nb.tasks.zero_shot_parsing import micro_trees
from xlingual_nb.tasks.zero_shot_tagging import NAME_READING, NameRecords
from xlingual_nb.text.formats import read_ner
from xlingual_nb.text.records import load_records, microworld_ner, microworld_nli

ROOT = Path(__file__).resolve().parents[1]
SPOKEN = {"en": ("en-web", "en-pud"), "el": ("el-vamvas", ""), "zh": ("zh-cuv", "zh-pud")}
real = pytest.mark.skipif(
    not Path(os.environ.get("XLINGUAL_DATA") or "-", "ud").is_dir(),
    reason="XLINGUAL_DATA names no folder with treebanks",
)


def conll(records):
    return "".join(
        "".join(f"{w}\t{t}\n" for w, t in zip(r["tokens"], r["tags"])) + "\n" for r in records
    )


def conllu(records):
    def line(i, r):
        return "\t".join(
            (
                str(i + 1),
                r["tokens"][i],
                "_",
                r["tags"][i],
                "_",
                "_",
                str(r["heads"][i]),
                r["relations"][i],
                "_",
                "_",
            )
        )

    return "".join(
        "".join(line(i, r) + "\n" for i in range(len(r["tokens"]))) + "\n" for r in records
    )


@pytest.fixture(scope="module")
def made():
    """What a data folder holds, file by file: English, Greek and Chinese of the microworld. Names
    in Greek are not among it.
    """
    files = {}
    for language, (edition, treebank) in SPOKEN.items():
        verses = microworld.corpus(language, "train", 70).sentences
        files[f"bible/{edition}.tsv"] = "".join(
            f"MAT.1.{i + 1}\t{s}\n" for i, s in enumerate(verses)
        )
        for part in ("train", "dev", "test"):
            documents = micro_documents(language, part, 15, topics=2)
            files[f"doc/{language}.{part}.tsv"] = "".join(
                f"{r['first']} {r['second']}\t{r['label']}\n" for r in documents
            )
            pairs = "".join(
                "\t".join((r["premise"], r["hypothesis"], r["label"])) + "\n"
                for r in microworld_nli(language, part, 12)
            )
            if part != "train" or language == "en":
                files[f"nli/{'mnli' if part == 'train' else 'xnli'}.{part}.{language}.tsv"] = pairs
            if language != "el":
                files[f"ner/{language}-panx.{part}.conll"] = conll(
                    microworld_ner(language, part, 30)
                )
        if treebank:
            files[f"ud/{treebank}.test.conllu"] = conllu(micro_trees(language, "test", 20))
    for part in ("train", "test"):
        files[f"langid/wili10.{part}.tsv"] = "w v\tcy\nv u\ten\n" * 3
    for part in ("train", "dev"):
        files[f"ud/en-lines.{part}.conllu"] = conllu(micro_trees("en", part, 20))
    return files


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    for name, text in made.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    return tmp_path


def test_a_task_has_the_languages_that_have_its_names(folder):
    sizes, told = zero_shot_config("smoke", "bible"), {}
    assert {task: evaluation_languages(sizes, task) for task in TASKS} == dict(
        documents=("en", "el", "zh"),
        nli=("en", "el", "zh"),
        ner=("en", "zh"),
        pos=("en", "zh"),
        parsing=("en", "zh"),
    )
    assert {task: supervised_languages(sizes, task) for task in TASKS} == dict(
        documents=("en", "el", "zh"), nli=("en",), ner=("en",), pos=("en",), parsing=("en",)
    )
    (folder / "nli/mnli.train.el.tsv").write_text(
        (folder / "nli/mnli.train.en.tsv").read_text(encoding="utf-8"), encoding="utf-8"
    )
    assert supervised_languages(sizes, "nli") == ("en", "el"), (
        "a translation of the pairs, once it is there"
    )
    for c in list_table_entries("smoke", "bible"):
        told.setdefault(c.table, set()).add(c.row)
    assert {r for r in told["table5"] if "supervised" in r} == {"en-en | supervised | en"}, (
        "no mean of fewer languages than zero-shot has"
    )
    assert {r for r in told["table2"] if "supervised" in r and "mean" in r} == {
        f"en-xx | supervised | mean{m}" for m in ("", " -en", " -en -zh")
    }
    assert (
        "en-el | zero-shot | el" in told["table2"]
        and "en-el | zero-shot | el" not in told["table4"] | told["table5"] | told["table6"]
    )


def test_records_are_those_of_the_data_folder(folder):
    sizes = zero_shot_config("smoke", "bible")
    zh, en = (labelled_task_records(sizes, "ner", l, "test").records for l in ("zh", "en"))
    assert (type(zh), zh.source, zh.part, en.source, en.part) == (
        NameRecords,
        "panx/zh",
        "dev",
        "panx/en",
        "test",
    )
    assert (
        labelled_task_records(sizes, "pos", "en", "train").records.source == "ud/en-lines"
        and labelled_task_records(sizes, "pos", "en", "test").records.source == "ud/en-pud"
    )
    runs = grid("smoke", "bible")
    assert {r.kinds for r in runs if r.stage == "tuned_tags" and r.train.records.task == "ner"} == {
        ("LOC", "ORG", "PER")
    }
    assert {r.kinds for r in grid("smoke") if r.stage == "tuned_tags"} == {()}, (
        "in the microworld all kinds count"
    )
    assert all(
        t.source.startswith("bible/")
        for r in runs
        if hasattr(r, "checkpoint")
        for t in (l.corpus for l in r.checkpoint.languages)
    )


def test_germeval_is_read_as_any_names(tmp_path, monkeypatch):
    (tmp_path / "ner").mkdir()
    (tmp_path / "ner/de-germeval2014.test.conll").write_text(
        "Berliner\tB-LOCderiv\nSpree\tB-LOC\n", encoding="utf-8"
    )
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    assert load_records(NAME_READING, "germeval/de", "test") == read_ner(
        tmp_path / "ner/de-germeval2014.test.conll"
    )
    with pytest.raises(InputError, match="germeval/de has no part 'train': it has test"):
        load_records(NAME_READING, "germeval/de")


def row(number, head, form="w"):
    return f"{number}\t{form}\t_\tNOUN\t_\t_\t{head}\troot\t_\t_\n"


REFUSED = [  # file, its text (None: not there), tables, what the message says
    (
        "ud/zh-pud.test.conllu",
        row(1, 0) + row(2, 0),
        "6",
        r"smoke\.bible\.tasks\.parsing\.test \(zh\): .*zh-pud.test.conllu line 2: .*words 1, 2 are roots",
    ),
    (
        "ud/zh-pud.test.conllu",
        row(1, 0) + row(2, 3) + row(3, 2),
        "6",
        r"words 2, 3 go in a circle: mend its heads",
    ),
    (
        "ud/en-lines.train.conllu",
        row(1, 7),
        "6",
        r"tasks\.parsing\.train \(en\): .* word 1 hangs on 7 of 1 words",
    ),
    ("ud/zh-pud.test.conllu", "w\tO\n", "5", r"tasks\.pos\.test \(zh\): .* 2 columns, 10 wanted"),
    (
        "ud/zh-pud.test.conllu",
        None,
        "5,6",
        r"tasks\.pos\.test \(zh\): ud/zh-pud has no part 'test' .*: it is there "
        r"for en-pud",
    ),
    (
        "ner/zh-panx.dev.conll",
        row(1, 0),
        "4",
        r"tasks\.ner\.test \(zh\): .* line 1: 10 columns, 2 wanted: write "
        r"token<TAB>tag",
    ),
    (
        "ner/zh-panx.dev.conll",
        None,
        "4",
        r"tasks\.ner\.test \(zh\): panx/zh has no part 'dev' .*`xlingual data get "
        r"panx zh` gets it from the hub",
    ),
    (
        "doc/el.test.tsv",
        "a\tb\tentailment\n",
        "2",
        r"tasks\.documents\.test \(el\): .* 3 columns, 2 wanted: write "
        r"text<TAB>topic",
    ),
    (
        "doc/el.test.tsv",
        "a b c\ten\n",
        "2",
        r"tasks\.documents\.test \(el\): doc/el has en, which training on doc/en "
        r"never saw: leave these texts out",
    ),
    ("doc/en.dev.tsv", None, "all", r"tasks\.documents\.dev \(en\): doc/en has no part 'dev'"),
    (
        "nli/xnli.test.el.tsv",
        "a b c\ttopic 1\n",
        "3",
        r"nli\.test \(el\): .* line 1: 2 columns, 3 wanted: write "
        r"premise",
    ),
    ("bible/el-vamvas.tsv", None, "2", r"el-vamvas"),
]


@pytest.mark.parametrize(
    "name, text, only, says", REFUSED, ids=[f"{r[0]}-{i}" for i, r in enumerate(REFUSED)]
)
def test_what_is_wrong_is_one_line_before_training(folder, name, text, only, says):
    """When cells are named, or when their runs are."""
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=says) as refused:
        for spec in grid("smoke", "bible", only=only):
            source_digests(spec)
    assert "\n" not in str(refused.value)


def test_ranges_and_empty_nodes_are_no_words(folder):
    path = folder / "ud/zh-pud.test.conllu"
    path.write_text(
        "1-2\tww" + "\t_" * 8 + "\n" + row(1, 0) + row(2, 1) + "2.1\tv" + "\t_" * 8 + "\n\n",
        encoding="utf-8",
    )
    sizes = zero_shot_config("smoke", "bible")
    check_task_records(sizes, "parsing")
    check_task_records(sizes, "pos")


def test_kinds_of_names_that_training_never_saw_want_to_be_named(folder):
    (folder / "ner/zh-panx.dev.conll").write_text("w\tB-MISC\nv\tB-LOC\n", encoding="utf-8")
    check_task_records(zero_shot_config("smoke", "bible"), "ner")
    for path in (folder / "ner").glob("en-*"):
        path.write_text("w\tB-LOC\n", encoding="utf-8")
    own = {
        "study": "liu2020",
        "smoke": {
            "mine": {
                "like": "smoke.bible",
                "targets": ["zh"],
                "text": {"dev": {"source": "{verses}"}},
                "tasks": {"kinds": []},
            }
        },
    }
    with pytest.raises(
        InputError,
        match=r"mine\.tasks\.ner\.test \(zh\): panx/zh has MISC, which training on panx/en "
        r"never saw: name the kinds .*`tasks.kinds`",
    ):
        list_table_entries("smoke", "mine", own=own, only="4")
    own["smoke"]["mine"]["tasks"]["kinds"] = ["LOC"]
    assert {
        r.kinds
        for r in unique_runs(list_table_entries("smoke", "mine", own=own, only="4"))
        if r.stage == "tuned_tags"
    } == {("LOC",)}


def test_a_language_without_a_task_is_left_out_or_said(folder):
    assert {c.table for c in list_table_entries("smoke", "bible", languages="el")} == {
        "table2",
        "table3",
        "figure3",
    }
    with pytest.raises(
        InputError, match="^bible-el has no pos to test on: ask in other languages$"
    ):
        list_table_entries("smoke", "bible", languages="el", only="5")


def test_without_data_it_is_one_line(monkeypatch, tmp_path):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    for scale, corpus in (("smoke", "bible"), ("laptop", "running"), ("gpu", "bible")):
        with pytest.raises(
            InputError,
            match=f"^{scale}.{corpus}.tasks.documents.train .* no data folder for doc/en: "
            f"set XLINGUAL_DATA",
        ) as refused:
            list_table_entries(scale, corpus)
        assert "\n" not in str(refused.value)


def test_an_encoder_of_one_world_is_not_asked_of_the_other():
    for corpus in ("bible", "running"):
        sizes = zero_shot_config("laptop", corpus)
        assert is_single_world(sizes) and sizes.layers.langid["train"].source == "wili/wili10"
    micro = zero_shot_config("smoke")
    assert is_single_world(micro) and not is_single_world(
        replace(zero_shot_config("smoke", "bible"), tasks=micro.tasks)
    )


def test_five_related_languages_are_a_panel_of_their_own():
    for scale in ("smoke", "laptop", "gpu"):
        sizes = zero_shot_config(scale, "micro-five")
        fifteen = zero_shot_config(scale)
        assert evaluation_languages(sizes, "pos") == ("en", "fr", "es", "de", "el")
        assert sizes.tasks == fifteen.tasks and sizes.base == fifteen.base
        assert [l.name for l in liu2020_shifts.shift_model_spec(sizes, 0).languages] == [
            "en",
            "fr",
            "es",
            "de",
            "el",
        ]
    rows = {c.row for c in list_table_entries("laptop", "micro-five", seeds=1)}
    assert "en-el | zero-shot | el" in rows and not any(r.endswith("| zh") for r in rows)


def test_documents_are_asked_in_languages_that_no_other_task_has():
    mbert = "bert-base-multilingual-cased"
    sizes = zero_shot_config("laptop", "natural", checkpoint=mbert)
    languages = {task: evaluation_languages(sizes, task) for task in TASKS}
    others = set().union(*(languages[task] for task in TASKS if task != "documents"))
    assert languages["documents"][-3:] == ("tr", "th", "ur") and len(languages["documents"]) == 15
    assert not others & {"tr", "th", "ur"}
    # our own model does not read them, and who names languages has no other
    own = zero_shot_config("laptop", "natural")
    some = zero_shot_config("laptop", "natural", languages="de,el", checkpoint=mbert)
    assert len(evaluation_languages(own, "documents")) == 12
    assert evaluation_languages(some, "documents") == ("en", "de", "el")


def test_names_of_natural_language_are_learnt_from_one_kind_of_text():
    sizes = zero_shot_config("laptop", "natural")
    learnt = {
        language: labelled_task_records(sizes, "ner", language, "train").records.source
        for language in ("en", "es", "de", "zh")
    }
    assert learnt == {language: f"panx/{language}" for language in learnt}
    with pytest.raises(InputError, match="names_alike"):
        labelled_task_records(sizes, "ner", "hi", "train")


@pytest.mark.ci
@pytest.mark.parametrize("corpus", ["micro", "micro-five"])
def test_the_text_of_a_laptop_has_as_many_words_as_its_vocabulary_wants(corpus, tmp_path):
    run(
        [liu2020_shifts.shift_model_spec(zero_shot_config("laptop", corpus), 0).tokenizer],
        Store(tmp_path),
        Inline(),
        progress=False,
    )


def test_a_language_of_ones_own_as_the_page_on_data_says(folder):
    """Finnish here is Greek."""
    page = (ROOT / "data/README.md").read_text(encoding="utf-8")
    begins = page.index("      [languages]\n      fi = { verses")
    said = page[begins : page.index("  Kinds of names that training never saw")]
    (folder / "fi.toml").write_text('study = "liu2020"\n' + dedent(said), encoding="utf-8")
    files = {
        "verses/fi.tsv": "bible/el-vamvas.tsv",
        "nli/test.fi.tsv": "nli/xnli.test.el.tsv",
        "nli/test.en.tsv": "nli/xnli.test.en.tsv",
        "ner/fi-panx.test.conll": "ner/zh-panx.dev.conll",
    }
    files |= {
        f"ud/fi-tdt.{part}.conllu": "ud/zh-pud.test.conllu" for part in ("train", "dev", "test")
    } | {f"doc/fi.{part}.tsv": f"doc/el.{part}.tsv" for part in ("train", "dev", "test")}
    (folder / "verses").mkdir()
    for name, like in files.items():
        (folder / name).write_text((folder / like).read_text(encoding="utf-8"), encoding="utf-8")
    for edition in ("en-web", "el-vamvas"):
        (folder / f"bible/{edition}.tsv").open("a", encoding="utf-8").write("ROM.1.1\tw v.\n")
    (folder / "verses/fi.tsv").open("a", encoding="utf-8").write("ROM.1.1\tw v.\n")
    found = list_table_entries("smoke", "finnish", own=str(folder / "fi.toml"))
    rows = {task: {c.row for c in found if c.table == told.table} for task, told in TASKS.items()}
    assert all("en-fi | zero-shot | fi" in r for r in rows.values())
    assert {task for task, r in rows.items() if "en-fi | supervised | fi" in r} == {
        "documents",
        "pos",
        "parsing",
    }
    # W's own Finnish is another one, and its claims are on other languages
    frozen = layers.list_table_entries("smoke", "finnish", own=str(folder / "fi.toml"))
    assert {c.paper for c in (*found, *frozen)} == {OURS}
    tidy = pd.DataFrame([(c.paper, c.table, c.row, c.column, 1.0) for c in found])
    tidy.columns = ["paper", "table", "row", "column", "value"]
    assert set(zero_shot.paper_layout(tidy, "table6").whose) == {"ours"}
    for spec in unique_runs(found):
        source_digests(spec)


def test_layers_tell_the_languages_of_the_data_folder(folder):
    found = layers.list_table_entries("smoke", "bible")
    assert {
        c.row.split(" | ")[-1]
        for c in found
        if c.table == "figure2" and c.row.startswith("untrained") and c.row.count("|") == 2
    } == {"cy", "en"}
    assert {c.row for c in found if c.column == "POS ACC" and "| Feat |" in c.row} == {
        f"en-{a} | Feat | {b}"
        for a, b in (("en", "en"), ("zh", "zh"), ("xx", "mean"), ("xx", "mean -en"))
    }
    assert zero_shot.sort_by_distance(["cy", "tr", "en", "ang"]) == ["en", "tr", "ang", "cy"], (
        "those without a preset are last"
    )
    (folder / "langid/wili10.test.tsv").write_text("w v\tde\n", encoding="utf-8")
    with pytest.raises(
        InputError,
        match=r"^smoke.bible.layers.langid.test has de, which train lacks: leave it out$",
    ):
        layers.list_table_entries("smoke", "bible", only="2")


@pytest.mark.ci
@real
def test_real_text_at_smoke(tmp_path):
    """Every cell, in the languages of the folder at hand."""
    wanted, store = list_table_entries("smoke", "bible"), Store(tmp_path / "runs")
    run(unique_runs(wanted), store, Inline(), progress=False)
    found = observe(wanted, store, "bible")
    assert (
        len(found) == len(wanted)
        and found.value.notna().all()
        and found.value.between(0, 100).all()
    )
    whole = zero_shot_config("laptop", "bible")
    assert evaluation_languages(whole, "pos") == (
        "en",
        *(l for l in whole.shifts.targets if l in ("fr", "es", "de", "ru", "ar", "zh", "hi")),
    )
    assert supervised_languages(whole, "ner") == ("en", "es") and set(
        evaluation_languages(whole, "ner")
    ) == {
        "en",
        "es",
        "de",
        "ru",
        "zh",
        "hi",
    }


def test_the_mean_word_order_distance_is_over_the_languages_of_the_scores():
    known = word_order_distances(("en", "es"))
    assert known["mean -en"] == known["es"] > 0 and known["mean"] == known["es"] / 2
    assert set(word_order_distances(("en", "es", "fi"))) == {"en", "es"}
