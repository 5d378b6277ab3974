"""Notebook 14 on somebody's model and on real text: a small random mBERT, a data folder of a few
pairs, and what lower-casing does to them.
"""

import json
import shutil
import string

import huggingface_hub.constants
import pytest
import torch
import transformers as hf
from scipy.stats import spearmanr
from tokenizers import Tokenizer

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import language_shift, language_shift_external
from xlingual_nb.experiments.language_shift_common import TRANSFER
from xlingual_nb.experiments.language_shift_external import (
    GAP,
    LOWER,
    LOWERCASED,
    external_spec,
    checkpoint_entries,
    lowercasing_entries,
)
from xlingual_nb.experiments.liu2020_shifts import shift_study_config
from xlingual_nb.experiments.study import unique_runs, observe
from xlingual_nb.measures.language_erasure import identity_cost
from xlingual_nb.measures.shift_translation import ShiftSpec
from xlingual_nb.models.external import ExternalCheckpointSpec, model_size
from xlingual_nb.models.checkpoints import tiny_checkpoint
from xlingual_nb.models.configs import Shape
from xlingual_nb.papers.published import published
from xlingual_nb.report.notebooks import resolve, values_of
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.shifted_nli import ShiftedNliSpec
from xlingual_nb.text.casing import (
    LowercasedRecordsSpec,
    LowercasingSpec,
    lowercasing_effect,
    lowercase_tokenizer,
)
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, read_records
from xlingual_nb.text.tokenizers import SPECIALS, build_wordpiece

SIZES = shift_study_config("smoke", "micro")
WORDS = {
    "en": [5, 6, 7, 8, 9],
    "el": [15, 16, 17, 18, 19],
    "zh": [22, 23, 24, 25, 26],
    "es": [10, 11, 12, 13, 14],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """XNLI in English and three others, in the words of a small random model of twelve layers."""
    (tmp_path / "data/nli").mkdir(parents=True)
    for language, (a, b, c, d, e) in WORDS.items():
        pairs = [
            (f"w{a} w{b} w{c} w{a}", f"w{b} w{a} w{c}", "neutral"),
            (f"w{c} w{d} w{e} w{e} w{a}", f"w{c} w{b}", "entailment"),
            (f"w{e} w{a} w{d} w{d}", f"w{e} w{b} w{c} w{d}", "contradiction"),
        ]
        lines = "".join("\t".join(pair) + "\n" for pair in pairs * 3)
        names = [f"xnli.dev.{language}", f"xnli.test.{language}"] + ["mnli.train.en"] * (
            language == "en"
        )
        for name in names:
            (tmp_path / f"data/nli/{name}.tsv").write_text(lines, encoding="utf-8")
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path / "data"))
    tiny_checkpoint(tmp_path / "mine", num_hidden_layers=12)
    return tmp_path


def test_first_steps_on_a_small_random_model(folder):
    found = checkpoint_entries(SIZES, str(folder / "mine"))
    assert {c.column for c in found if "→" in c.column} == {"en→el", "el→en", "en→zh", "zh→en"}, (
        "Spanish is not in Table 2"
    )
    assert {c.row for c in found} == {
        *published("liu2020b", "table2").row,
        "finetune all layers",
        "finetune last 6 layers",
        "+ MDS",
        LOWER,
    }
    turned, answered = (
        [r for r in unique_runs(found) if isinstance(r, kind)]
        for kind in (ShiftSpec, ShiftedNliSpec)
    )
    assert (
        {r.layers for r in turned} == {(10, 11)}
        and {r.sentences for r in turned} == {20}
        and {r.layer for r in answered} == {6}
    )
    assert {r.settings.frozen_layers for r in answered} == {0, 6} and [
        t.language for _, t in answered[0].tests
    ] == ["en", "el", "zh"]
    store = Store(folder / "store")
    run(unique_runs(found), store, Inline(), progress=False)
    seen = observe(found, store, "xnli").set_index(["row", "column"]).value
    assert (
        len(seen) == len(found)
        and (seen.loc["finetune all layers"].between(0, 100)).all()
        and seen["best layer", "en→el"] in (10, 11)
    )
    assert set(language_shift.grid("smoke", checkpoint=str(folder / "mine"))) >= set(
        unique_runs(found)
    )


def test_without_data_or_layers_a_checkpoint_is_refused_in_one_line(folder, monkeypatch):
    with pytest.raises(InputError, match="has no config.json: name a checkpoint's folder"):
        checkpoint_entries(SIZES, str(folder / "data"))
    monkeypatch.delenv("XLINGUAL_DATA")
    with pytest.raises(InputError, match="no XNLI to turn: set XLINGUAL_DATA"):
        checkpoint_entries(SIZES, str(folder / "mine"))


@pytest.fixture
def mbert(tmp_path):
    """BERT as `save_pretrained` leaves it: mBERT's twelve layers, eight wide, at random; a cased
    tokenizer that spells.
    """
    signs = string.ascii_letters + string.digits + string.punctuation
    pieces = {p: i for i, p in enumerate([*SPECIALS, *signs, *(f"##{sign}" for sign in signs)])}
    torch.manual_seed(7)
    shape = dict(
        hidden_size=8,
        num_hidden_layers=12,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=140,
    )
    hf.BertForMaskedLM(hf.BertConfig(vocab_size=len(pieces), **shape)).save_pretrained(
        tmp_path / "mbert"
    )
    hf.BertTokenizer(pieces, do_lower_case=False).save_pretrained(tmp_path / "mbert")
    return str(tmp_path / "mbert")


def test_mbert_s_shape_through_notebook_14(folder, mbert):
    """As `-p checkpoint=` hands it over: all of it planned; run, a direction of Table 2 at the
    paper's layers and Table 4 in lower case.
    """
    given = values_of(resolve("14"), dict(checkpoint=mbert))
    wanted = [
        c
        for c in language_shift.list_table_entries("smoke", checkpoint=given["checkpoint"])
        if c.table == language_shift_external.CHECKPOINT_TABLE
    ]
    told = plan(unique_runs(wanted), Store(folder / "none")).set_index("stage")
    assert (
        "pretrain" not in told.index
        and told.loc["brought", "runs"] == 1
        and told.loc["shift", "runs"] == 4
        and told.loc["shifted_nli", "runs"] == 3
    )
    first, store = (
        [c for c in wanted if c.column == "en→zh" or c.row == LOWER],
        Store(folder / "runs"),
    )
    run(unique_runs(first), store, Inline(), progress=False)
    seen = observe(first, store, "micro-mbert").set_index(["row", "column"]).value
    assert (
        len(seen) == len(first)
        and seen["best layer", "en→zh"] in (10, 11)
        and seen["best α", "en→zh"] in (1, 2, 3)
    )
    assert seen[LOWER].between(0, 100).all() and {
        r.checkpoint.shape.layers for r in unique_runs(wanted) if hasattr(r, "checkpoint")
    } == {12}


def test_lower_case_is_what_a_lower_casing_tokenizer_reads(folder, mbert):
    pairs = [
        c.runs[0]
        for c in checkpoint_entries(SIZES, mbert)
        if c.row in (LOWER, "finetune all layers") and c.column == "en"
    ]
    assert [type(p.train.records) for p in pairs] == [RecordsSpec, LowercasedRecordsSpec] and pairs[
        0
    ].settings == pairs[1].settings
    (folder / "pairs.tsv").write_text("Där Hund\tViệt Nam\tneutral\n", encoding="utf-8")
    spec = LowercasedRecordsSpec("nli", f"file:{folder / 'pairs.tsv'}", size=1)
    store = Store(folder / "runs")
    run([spec], store, Inline(), progress=False)
    (record,) = read_records(store.path(spec))
    assert (record["premise"], record["hypothesis"], record["label"]) == (
        "dar hund",
        "viet nam",
        "neutral",
    )
    ours = build_wordpiece({p: i for i, p in enumerate(PIECES)})
    assert ours.encode(record["hypothesis"]).ids == lowercase_tokenizer(ours).encode("Việt Nam").ids


def test_the_paper_s_own_model_is_planned_without_a_copy(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    runs = unique_runs(
        [
            c
            for c in language_shift.list_table_entries(
                "paper", checkpoint="bert-base-multilingual-cased", seeds=1
            )
            if c.table == language_shift_external.CHECKPOINT_TABLE
        ]
    )
    (one,) = {r.checkpoint for r in runs}
    assert (
        one.folder.startswith("bert-base-multilingual-cased@")
        and one.name == "bert-base-multilingual-cased"
    )
    told = plan(runs, Store(tmp_path / "runs")).set_index("stage")
    assert told.loc["shift", "FLOPs"] > 1e15 and told.loc["shifted_nli", "FLOPs"] > 1e15
    (turned,) = {r for r in runs if isinstance(r, ShiftSpec) and r.pair == ("en", "el")}
    assert turned.layers == () and turned.sentences == 0, "all layers, all of XNLI's test"


def test_a_model_without_a_head_is_refused_before_anything_runs(folder, mbert, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(mbert, bare)
    hf.AutoModelForMaskedLM.from_pretrained(mbert).bert.save_pretrained(bare)
    with pytest.raises(
        InputError, match="bare: .*no masked-LM head: choose a checkpoint that has one$"
    ):
        checkpoint_entries(SIZES, str(bare))
    assert external_spec(mbert) == ExternalCheckpointSpec(mbert, "mbert")


VERSES = {"en-web": "in the beginning", "el-vamvas": "en arche en"}


@pytest.fixture
def verses(folder):
    """Two books of twelve verses in English and Greek, and a section that tests on them."""
    (folder / "data/bible").mkdir()
    for edition, words in VERSES.items():
        lines = [
            f"{book}.1.{i}\t{words} {'xyz'[i % 3] * i}\n"
            for book in ("MRK", "ROM")
            for i in range(1, 13)
        ]
        (folder / f"data/bible/{edition}.tsv").write_text("".join(lines))
    path = folder / "own.toml"
    path.write_text("""study = "liu2020"
[laptop.told]
like = "laptop.natural"
needs = "bible/el-vamvas.tsv"
targets = ["el"]
text.dev = { source = "{verses}" }
text.test = { source = "{verses}", books = "MRK,ROM", sentences = 10 }
shifts.languages = ["el"]
shifts.targets = ["el"]
shifts.transfer = ["el"]
seeds = 2
""")
    return dict(scale="laptop", corpus="told", own=str(path))


def test_an_encoder_without_a_head_is_asked_what_of_a_language_is_its_mean(verses, mbert, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(mbert, bare)
    hf.AutoModelForMaskedLM.from_pretrained(mbert).bert.save_pretrained(bare)
    found = language_shift.list_table_entries(**verses, checkpoint=str(bare))
    assert {c.table for c in found} == {"identity"} and "Words τ" not in {c.column for c in found}
    runs = unique_runs(found)
    assert {r.checkpoint.fresh for r in runs} == {False, True}
    assert all(identity_cost(r)["flops"] > 0 for r in runs), "its config.json says how large it is"
    books = {(r.seed, dict(text.parameters)["books"]) for r in runs for text in r.texts}
    assert books == {(0, "MRK"), (1, "ROM")}, "a seed is a book: the weights are always the same"
    store = Store(tmp_path / "store")
    run(runs, store, Inline(), progress=False)
    seen = observe(found, store, "told")
    assert len(seen) == len(found) and seen.value.between(0, 1).all()
    assert set(seen[seen.row == "chance"].value) == {0.5}
    with pytest.raises(InputError, match="text.test names 2 books, one a seed"):
        language_shift.list_table_entries(**verses, seeds=3, checkpoint=str(bare))


def test_all_layers_and_sentences_at_larger_scales(folder):
    (run_,) = {
        c.runs[0]
        for c in checkpoint_entries(shift_study_config("gpu", "micro"), str(folder / "mine"))
        if c.column == "en→el"
    }
    assert run_.layers == () and run_.sentences == 0 and run_.alphas == (1.0, 2.0, 3.0)


def test_the_size_of_what_is_brought_is_its_config_s(tmp_path):
    config = hf.BertConfig(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
    )
    config.save_pretrained(tmp_path)
    assert (
        model_size(ExternalCheckpointSpec(str(tmp_path))) == (Shape(2, 8, 2, 24, 512), 40)
        and model_size(ExternalCheckpointSpec(str(tmp_path / "no"))) is None
    )
    (tmp_path / "config.json").write_text(json.dumps(dict(model_type="static")))
    assert model_size(ExternalCheckpointSpec(str(tmp_path))) is None


# --- in lower case

PIECES = [
    *SPECIALS,
    "[unused1]",
    "Der",
    "der",
    "Hund",
    "Viet",
    "##t",
    "việt",
    "viet",
    "né",
    "ne",
    "中",
    ".",
    "h",
    "##und",
]


def test_damage_is_what_two_tokenizers_of_hugging_face_say(tmp_path):
    vocabulary = {p: i for i, p in enumerate(PIECES)}
    (tmp_path / "vocab.txt").write_text("".join(f"{p}\n" for p in PIECES), encoding="utf-8")
    text = ["Der Hund der né việt 中.", "Viett né né Xyz"]
    theirs = [
        hf.BertTokenizer(vocab=str(tmp_path / "vocab.txt"), do_lower_case=low)
        for low in (False, True)
    ]
    words = "Der Hund der né việt 中 . Viett né né Xyz".split()
    cut = [[t.tokenize(w) for w in words] for t in theirs]
    ours = build_wordpiece(vocabulary)
    found = lowercasing_effect(ours, lowercase_tokenizer(ours), text)
    assert (
        found["changed"] == pytest.approx(sum(a != b for a, b in zip(*cut)) / len(words))
        and found["changed"] > 0.5
    )
    for name, pieces in zip(("cased", "lower"), cut):
        every = sum(pieces, [])
        assert found[f"pieces {name}"] == pytest.approx(len(every) / len(words))
        assert found[f"unknown {name}"] == pytest.approx(every.count("[UNK]") / len(every))
    assert isinstance(ours, Tokenizer) and ours.encode("né").tokens[1] == "né", (
        "the tokenizer itself stays as it is"
    )


def test_lower_case_beside_the_gap(folder):
    assert lowercasing_entries() == [], "no vocabulary in the folder"
    (folder / "data/vocab").mkdir()
    given = [*SPECIALS, *(f"w{i}" for i in range(5, 15)), *"wW", *(f"##{i}" for i in range(10))]
    (folder / "data/vocab/mbert-cased.vocab.txt").write_text(
        "".join(f"{p}\n" for p in given), encoding="utf-8"
    )
    found, store = lowercasing_entries(), Store(folder / "store")
    run(unique_runs(found), store, Inline(), progress=False)
    wide = observe(found, store, "x").pivot(index="row", columns="column", values="value")
    assert (
        {c.table for c in found} == {LOWERCASED}
        and {*wide.index} == {*WORDS}
        and {*wide.columns}
        == {*language_shift_external.LOWERCASING_METRICS, language_shift_external.WU_DREDZE, GAP}
    )
    assert (wide["words changed"] == 0).all() and wide.loc["el", "pieces a word, cased"] > wide.loc[
        "en", "pieces a word, cased"
    ] == 1
    assert wide.loc["el", GAP] == pytest.approx(56.67 - 66.4)
    others = wide.drop("en").assign(**{"words changed": [0.3, 0.1, 0.2]})
    r = spearmanr(others["words changed"], others[GAP])
    assert language_shift_external.rank_correlation(others) == (
        pytest.approx(r.statistic),
        pytest.approx(r.pvalue),
        3,
    )


def test_the_other_paper_has_every_language():
    languages = set(published("liu2020b", TRANSFER).column) - {"avg w/o en"}
    assert (
        len(languages) > 10
        and all(language_shift_external.published_accuracy(l) > 50 for l in languages)
        and language_shift_external.published_accuracy("xx")
        != language_shift_external.published_accuracy("xx")
    )


def test_records_of_another_task_are_refused():
    with pytest.raises(InputError, match="records of ner have no pairs"):
        LowercasingSpec(
            ExternalCheckpointSpec("x"),
            (LabelledRecords("en", RecordsSpec("ner", "micro/en", "test")),),
        )
