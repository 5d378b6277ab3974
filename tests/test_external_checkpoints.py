"""Somebody's model in the place of ours: a folder or the hub's copy of one, refused in one line before anything runs,
or taken through notebook 12.
"""

import json
import os
import shutil
import string
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
import transformers as hf

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import layers, liu2020_shifts, zero_shot
from xlingual_nb.experiments.k2020_common import untrained_spec
from xlingual_nb.experiments.study import unique_runs, observe
from xlingual_nb.models.external import (
    PINNED,
    ExternalCheckpointSpec,
    checkpoint_folder,
    checkpoint_name,
    link_or_copy,
    pin_revision,
    model_size,
)
from xlingual_nb.models.checkpoints import load_checkpoint, inspect_checkpoint, tiny_checkpoint
from xlingual_nb.models.configs import Shape
from xlingual_nb.report.notebooks import resolve, values_of
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.spec import canonical, run_id, source_digests
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.zero_shot_classification import sentences_cost
from xlingual_nb.tasks.recipes import recipe_flops
from xlingual_nb.text.records import count_records

torch.set_num_threads(1)
SMALL = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=1,
    intermediate_size=32,
    max_position_embeddings=140,
)
REVISION = "0123456789" * 4


def vocabulary(letters=string.ascii_letters):
    signs = letters + string.digits + string.punctuation
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *signs,
        *(f"##{sign}" for sign in signs),
    ]
    return {piece: i for i, piece in enumerate(pieces)}


def bert(folder, letters=string.ascii_letters, cased=True, **sizes):
    """A small random BERT that spells every word, as `save_pretrained` leaves it."""
    pieces = vocabulary(letters)
    torch.manual_seed(99)
    hf.BertForMaskedLM(hf.BertConfig(vocab_size=len(pieces), **SMALL | sizes)).save_pretrained(
        folder
    )
    hf.BertTokenizer(pieces, do_lower_case=not cased, strip_accents=None).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return str(bert(tmp_path_factory.mktemp("brought") / "mine"))


# --- the study


def test_the_study_on_a_small_random_bert(mine, tmp_path):
    """Pairs, words and trees at smoke scale: planned, run, and every number is there; our model is in none of them."""
    some = dict(languages="el", only="3,5,6")
    wanted, runs = (
        zero_shot.list_table_entries("smoke", checkpoint=mine, **some),
        zero_shot.grid("smoke", checkpoint=mine, **some),
    )
    assert [(c.table, c.row, c.column) for c in wanted] == [
        (c.table, c.row, c.column) for c in zero_shot.list_table_entries("smoke", **some)
    ]
    encoders = {r.checkpoint for r in runs if hasattr(r, "checkpoint")}
    assert encoders == {
        ExternalCheckpointSpec(mine, "mine"),
        ExternalCheckpointSpec(mine, "mine", fresh=True),
    }
    told = plan(runs, Store(tmp_path / "none")).set_index("stage")
    assert (
        "pretrain" not in told.index
        and told.loc["brought", "runs"] == 2
        and 0 < told.loc["all", "hours here"] < 1
    )
    store = Store(tmp_path / "runs")
    run(runs, store, Inline(), progress=False)
    found = observe(
        wanted, store, zero_shot.zero_shot_config("smoke", languages="el", checkpoint=mine).label
    )
    assert (
        len(found) == len(wanted)
        and found.value.notna().all()
        and set(found.corpus) == {"micro-el-mine"}
    )


def test_seeds_are_of_fine_tuning_and_the_untrained_floor_is_drawn_anew(mine, tmp_path):
    pair = [
        liu2020_shifts.shift_model_spec(zero_shot.zero_shot_config("smoke", checkpoint=mine), seed)
        for seed in (0, 1)
    ]
    store, bare = Store(tmp_path / "runs"), [untrained_spec(spec) for spec in pair]
    run([*pair, *bare], store, Inline(), progress=False)
    one, two, first, again = (load_checkpoint(store.path(spec)) for spec in (*pair, *bare))

    def weights(c):
        return c.model.base_model.embeddings.word_embeddings.weight

    assert torch.equal(weights(one), weights(two)) and not torch.equal(
        weights(first), weights(again)
    )
    assert (
        not torch.equal(weights(one), weights(first)) and weights(first).shape == weights(one).shape
    )
    assert first.tokenizer.get_vocab() == one.tokenizer.get_vocab()
    kept = load_checkpoint(mine)
    assert torch.equal(weights(kept), weights(one)), "the folder itself is as it was"
    specs = [
        zero_shot.fine_tuned_spec(
            zero_shot.zero_shot_config("smoke", checkpoint=mine), "pos", spec, "en", ("en",)
        )
        for spec in pair
    ]
    assert [s.seed for s in specs] == [0, 1]


def test_bringing_goes_on_where_it_was_stopped_and_shares_weights_alone(tmp_path):
    names = "model.safetensors", "config.json"
    for name in names:
        (tmp_path / name).write_text("theirs")
    (tmp_path / "store").mkdir()
    for _ in range(2):
        for name in names:
            link_or_copy(tmp_path / name, tmp_path / "store" / name)
    (tmp_path / "config.json").write_text("edited")
    assert [(tmp_path / "store" / name).read_text() for name in names] == ["theirs"] * 2
    assert (tmp_path / names[0]).samefile(tmp_path / "store" / names[0])


def test_two_checkpoints_of_a_training_and_two_revisions_have_names_of_their_own(tmp_path):
    folders = [f"{tmp_path}/{model}/checkpoint-500" for model in ("first", "second")]
    folders += [f"{tmp_path}/first/{step}" for step in ("checkpoint-1000", "step-100", "epoch_3")]
    revisions = [f"owner/mine@{sign * 40}" for sign in "ab"]
    names = [checkpoint_name(given) for given in (*folders, *revisions)]
    assert len(set(names)) == len(names) and not any("/" in name for name in names)
    # what the reference results are named after stays
    (mbert,) = PINNED
    assert checkpoint_name(pin_revision(mbert)) == mbert
    assert checkpoint_name(f"{tmp_path}/multilingual-e5-small/") == "multilingual-e5-small"


def test_what_was_brought_before_is_the_same_run():
    assert (
        canonical(ExternalCheckpointSpec("x", "y"))
        == '{"folder":"x","is":"brought","name":"y"}'
        != canonical(ExternalCheckpointSpec("x", "y", seed=1))
    )


def test_the_study_of_layers_on_it(mine, tmp_path):
    """Layers are those of the model that was brought, and every number is there."""
    some = dict(languages="el", checkpoint=mine)
    wanted = [
        c
        for c in layers.list_table_entries("smoke", **some)
        if c.column in ("POS ACC", layers.LANGUAGE_ID)
    ]
    assert {f"layer {n}" for n in (0, 6, 12)} == {
        c.row for c in wanted if c.row.startswith("layer") and c.row.count("|") == 0
    }
    assert {"en-el | Feat | el", "en-el | Lay 6 | el"} < {c.row for c in wanted}
    assert {r.checkpoint.folder for r in unique_runs(wanted) if hasattr(r, "checkpoint")} == {mine}
    store = Store(tmp_path / "runs")
    run(unique_runs(wanted), store, Inline(), progress=False)
    found = observe(wanted, store, "micro-el-mine")
    assert len(found) == len(wanted) and found.value.notna().all()


# --- what is refused


def refused(folder, **how):
    with pytest.raises(InputError) as caught:
        zero_shot.grid("smoke", checkpoint=str(folder), **how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def spoiled(mine, tmp_path, spoil):
    folder = Path(shutil.copytree(mine, tmp_path / "spoiled"))
    spoil(folder)
    return refused(folder)


def config_of(**changes):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def without(*names):
    def forget(folder):
        for file in (f for name in names for f in folder.glob(name)):
            file.unlink()

    return forget


@pytest.mark.parametrize(
    "spoil,line",
    [
        (
            without("tokenizer*", "vocab*"),
            "has no tokenizer (tokenizer.json): save the tokenizer of its training into it",
        ),
        (without("config.json"), "has no config.json: name a checkpoint's folder"),
        (without("*.safetensors"), "has no *.safetensors: pickles are not opened here"),
        (
            config_of(model_type="abacus"),
            "config.json is of no masked language model that transformers knows",
        ),
        (
            config_of(model_type="gpt2"),
            "config.json is of no masked language model that transformers knows",
        ),
        (config_of(vocab_size=50), "the tokenizer goes up to id"),
        (
            config_of(max_position_embeddings=64),
            "spoiled takes 61 pieces of a text, and tasks.tuning.documents has pieces=128: give 61 or fewer",
        ),
    ],
)
def test_bad_checkpoints_are_one_line_before_anything_runs(mine, tmp_path, spoil, line):
    assert line in spoiled(mine, tmp_path, spoil)


def test_the_lower_casing_trap(mine, tmp_path):
    """A cased vocabulary behind a tokenizer that lower-cases, which most versions of transformers 5 make of a bare
    vocabulary (5.0.0 does not: it is told to); or that strips accents alone.
    """
    folder = bert(tmp_path / "lower", cased=False)
    assert (
        "lower-cases but its vocabulary is cased: set do_lower_case to false in tokenizer_config.json"
        in refused(folder)
    )
    bare = Path(shutil.copytree(mine, tmp_path / "bare"))
    without("tokenizer*")(bare)
    (bare / "vocab.txt").write_text("\n".join(vocabulary()) + "\n", encoding="utf-8")
    lowered = dict(tokenizer_class="BertTokenizer", do_lower_case=True)
    (bare / "tokenizer_config.json").write_text(json.dumps(lowered))
    assert "lower-cases but its vocabulary is cased" in refused(bare)
    (bare / "tokenizer_config.json").write_text(
        json.dumps(dict(tokenizer_class="BertTokenizer", do_lower_case=False))
    )
    assert zero_shot.zero_shot_config("smoke", checkpoint=str(bare)).label == "micro-bare"
    stripped = bert(tmp_path / "stripped", letters=string.ascii_lowercase + "áéíóúäöüñçèàê")
    assert zero_shot.zero_shot_config("smoke", checkpoint=str(stripped)).checkpoint
    hf.BertTokenizer(
        vocabulary(string.ascii_lowercase + "áéíóúäöüñçèàê"),
        do_lower_case=False,
        strip_accents=True,
    ).save_pretrained(stripped)
    assert "strips accents but its vocabulary has them (##" in refused(stripped)


def test_names_that_are_no_folder(tmp_path):
    assert "me/mine is no folder: name one" in refused("me/mine") and "NAME@REVISION" in refused(
        "me/mine"
    )
    assert "nowhere/at/all is no folder" in refused("nowhere/at/all") and "is no folder" in refused(
        f"me/mine@{REVISION[1:]}"
    )


def test_a_model_whose_languages_are_named_is_asked_in_these(tmp_path):
    sizes = SMALL | dict(max_position_embeddings=160)
    folder = tiny_checkpoint(
        tmp_path / "two", 40, languages=[dict(name="en"), dict(name="el")], **sizes
    )
    assert "knows the languages en, el, not 'zh'" in refused(folder)
    assert zero_shot.zero_shot_config(
        "smoke", checkpoint=str(folder), languages="el"
    ).shifts.targets == ("el",)


def test_a_look_says_what_loading_says(mine, tmp_path):
    """Sizes and room without weights, in families that count positions otherwise."""
    kinds = {
        "bert": {},
        "roberta": dict(pad_token_id=1),
        "xlm-roberta": dict(pad_token_id=1),
        "electra": dict(embedding_size=8),
    }
    for kind, more in kinds.items():
        folder = tiny_checkpoint(
            tmp_path / kind, 40, config=hf.AutoConfig.for_model(kind, vocab_size=40, **SMALL | more)
        )
        seen, opened = inspect_checkpoint(folder), load_checkpoint(folder)
        assert all(w.device.type == "meta" for w in seen.model.parameters())
        for name in ("depth", "width", "vocabulary", "cls", "sep", "mask", "pad"):
            assert getattr(seen, name) == getattr(opened, name)
        assert seen.max_length("en") == opened.max_length("en")


# --- the hub


@pytest.fixture
def hub(mine, tmp_path, monkeypatch):
    """What a machine keeps of the hub: one model, at one revision. There is no network in tests."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    kept = tmp_path / "hub/models--me--mine/snapshots" / REVISION
    shutil.copytree(mine, kept)
    return kept


def test_a_model_of_the_hub_is_its_revision(hub, mine, tmp_path):
    name = f"me/mine@{REVISION}"
    spec = ExternalCheckpointSpec(name)
    assert (
        source_digests(spec) == {"checkpoint me/mine": REVISION} and checkpoint_folder(name) == hub
    )
    assert (
        model_size(spec) == (Shape(2, 16, 1, 32, 512), len(vocabulary())) and spec.shape.layers == 2
    )
    sizes = zero_shot.zero_shot_config("smoke", checkpoint=name)
    assert sizes.label == "micro-mine-0123456"
    assert liu2020_shifts.shift_model_spec(sizes, 2) == ExternalCheckpointSpec(
        name, "mine-0123456", seed=2
    )
    before = run_id(spec)
    (hub / "README.md").write_text("whatever")
    assert run_id(spec) == before != run_id(ExternalCheckpointSpec(str(hub)))
    store = Store(tmp_path / "runs")
    run([spec], store, Inline(), progress=False)
    assert load_checkpoint(store.path(spec)).depth == 2


def test_a_revision_that_is_not_here_does_not_come_without_a_network(hub):
    other = f"me/mine@{REVISION[::-1]}"
    assert (
        f"{other} did not come from the hub" in refused(other)
        and model_size(ExternalCheckpointSpec(other)) is None
    )


def test_a_copy_without_weights_will_do_for_a_plan(hub):
    """As a plan leaves it that fetched configuration and tokenizer; to run, the weights have to come."""
    name = f"me/mine@{REVISION}"
    without("*.safetensors")(hub)
    assert (
        zero_shot.grid("smoke", checkpoint=name, only="5")
        and checkpoint_folder(name, weights=False) == hub
    )
    with pytest.raises(
        InputError, match=r"did not come from the hub \(there is no \*.safetensors\)"
    ):
        run([ExternalCheckpointSpec(name)], Store(hub / "runs"), Inline(), progress=False)


def test_the_paper_s_model_is_planned_without_a_copy_of_it(tmp_path, monkeypatch):
    """As it was published, by name alone; twelve layers as wide as BERT-base, and nothing to pretrain."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    name = pin_revision("bert-base-multilingual-cased")
    assert (
        name == f"bert-base-multilingual-cased@{PINNED['bert-base-multilingual-cased'].revision}"
        and len(name.split("@")[1]) == 40
    )
    runs = zero_shot.grid(
        "paper", "micro", checkpoint="bert-base-multilingual-cased", seeds=1, only="5"
    )
    assert {r.checkpoint.folder for r in runs if hasattr(r, "checkpoint")} == {name}
    assert model_size(ExternalCheckpointSpec(name)) == (Shape(12, 768, 12, 3072, 512), 119_547)
    told = plan(runs, Store(tmp_path / "runs")).set_index("stage")
    assert "pretrain" not in told.index and told.loc["tuned_tags", "FLOPs"] > 1e15
    with pytest.raises(InputError, match="did not come from the hub"):
        run([ExternalCheckpointSpec(name)], Store(tmp_path / "runs"), Inline(), progress=False)
    other = name.split("@")[0] + f"@{REVISION}"
    assert "did not come from the hub" in refused(other), "another version is another model"


@pytest.mark.skipif(
    not os.environ.get("XLINGUAL_DATA"), reason="set XLINGUAL_DATA to a folder with the real data"
)
def test_the_paper_s_model_is_planned_on_the_texts_that_are_here(tmp_path, monkeypatch):
    """At scale `paper` the corpus is real text unless one is named, and what training costs goes by its records."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    asked = dict(checkpoint="bert-base-multilingual-cased", seeds=1, only="2,3", languages="de,es")
    runs = [
        r
        for r in zero_shot.grid("paper", **asked)
        if r.stage == "sentences" and r.train.language == "en"
    ]
    assert {r.train.records.source for r in runs} == {"doc/en", "xnli/en"}
    shape = Shape(12, 768, 12, 3072, 512)
    for run_ in runs:
        texts = count_records(run_.train.records)
        assert sentences_cost(run_)["flops"] == recipe_flops(run_.settings, shape, texts, 60)
        assert texts == 701 if run_.train.records.source == "doc/en" else texts > 10_000
    with pytest.raises(InputError, match="xnli.*th"):
        zero_shot.grid("paper", **asked | dict(languages="th"))


def test_a_folder_is_found_from_wherever_the_notebook_runs(mine, monkeypatch):
    monkeypatch.chdir(Path(mine).parent)
    assert values_of(resolve("12"), dict(checkpoint="mine"))["checkpoint"] == mine
    assert values_of(resolve("12"), dict(checkpoint="me/mine@x"))["checkpoint"] == "me/mine@x"
