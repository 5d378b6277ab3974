"""The benchmark's arithmetic and the structure of what it writes; never its speed."""

import importlib.util
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from xlingual_nb.errors import InputError

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks/pretraining.py"
torch.set_num_threads(1)
sys.path.append(str(SCRIPT.parent))  # scripts import each other
pytestmark = pytest.mark.ci  # no user of the package runs these scripts


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("benchmark_pretraining", SCRIPT)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def task(bench):
    return bench.make_task("zipf", "tiny")


def test_zipf_text_is_the_one_described(bench):
    text = bench.zipf(2048, 17000, 126)
    assert np.median(text.lengths) == 16 and text.lengths.mean() == pytest.approx(18.6, abs=0.2)
    assert 95 <= text.lengths.max() <= 126
    counts = np.bincount(text.ids, minlength=2048)
    assert not counts[:5].any()
    assert counts[5] / counts[6] == pytest.approx(2, rel=0.05) and counts[5] / counts[
        14
    ] == pytest.approx(10, rel=0.1)


def test_flops_are_those_that_torch_counts(bench):
    """Against torch's own counter, on our model with one sentence a row, so that nothing is
    padded.
    """
    from torch.utils.flop_counter import FlopCounterMode
    from xlingual_nb.models.mlm_batches import seeded_generator, make_batch, build_sentence_dataset
    from xlingual_nb.models.encoder import BatchedModels, training_losses, stack_batches
    from xlingual_nb.models.configs import MASKING, LanguageView, Shape
    from xlingual_nb.text.tokenizers import Encoded

    shape, n, sentences = Shape(2, 32, 2, 64, 32), 16, 6
    text = Encoded.of(np.random.default_rng(0).integers(5, 40, (sentences, n - 2)))
    mixture = build_sentence_dataset([text], [LanguageView("en")], 40, 32)
    batch = stack_batches(
        [
            make_batch(
                mixture, np.arange(sentences), MASKING["original"], (n, n), seeded_generator(1, 0)
            )
        ]
    )
    stack = BatchedModels(shape, 40, [0])
    with FlopCounterMode(display=False) as counter:
        stack.backward(training_losses(stack, batch))
    ours = bench.flops(shape, 40, sentences * n, sentences * n * n, batch.labels.shape[1])
    assert counter.get_total_flops() == pytest.approx(sum(ours.values()), rel=1e-9)


def test_counts_of_a_step(bench, task):
    mixture = bench.make_mixture(task)
    engine = bench.Engine(task, mixture, 2, "cpu")
    c = bench.count(task, mixture, engine.steps, 0)
    chosen = [mixture.lengths[order(0)] for order in engine.steps.samplers]
    assert c["tokens"] == np.mean([n.sum() for n in chosen])
    assert c["padded"] == np.mean([n.max() * len(n) for n in chosen])
    assert c["tokens"] <= c["slots"] <= c["padded"] and c["own_flops"] < c["packed_flops"]
    assert c["attention"] == 12 * task.shape.layers * task.shape.hidden * np.mean(
        [(n**2).sum() for n in chosen]
    )


def test_trainer_and_engine_read_the_same_tokens(bench, task):
    mixture, seen = bench.make_mixture(task), []
    hub = bench.HubTrainer(task, mixture, "cpu")
    collate = hub.trainer.data_collator

    def watch(rows):
        seen.append(sum(len(r["input_ids"]) for r in rows))
        return collate(rows)

    hub.trainer.data_collator = watch
    engine = bench.Engine(task, mixture, 1, "cpu")
    for turn in range(2):  # the second turn goes on where the first ended
        seen.clear()
        times, counts = hub.turn(2), engine.turn(2)["counts"]
        assert sum(seen) == 2 * counts["tokens"] and times["wall"] > 0
    names = {n: p.numel() for n, p in hub.trainer.model.named_parameters()}
    assert sum(names.values()) == sum(f.shape[1] for f in engine.stack.flat)


def test_ratios_are_taken_within_a_round(bench):
    counts = {"tokens": 10.0, "own_flops": 1e9, "packed_flops": 2e9}

    def lane(speed):
        return {
            "peak": {"wall": 1e10},
            "trainer": {"wall": 8 * speed},
            "one": {"wall": speed, "counts": counts},
            "stack": {"wall": speed / 2, "counts": counts | {"tokens": 5.0}},
        }

    rows = bench.summarise([{"kept": lane(1.0)}, {"kept": lane(3.0)}, {"kept": lane(2.0)}], "wall")
    one, stack = (next(r for r in rows if r["member"] == m) for m in ("one", "stack"))
    assert one["seconds"] == {"min": 1, "median": 2, "max": 3}
    assert one["times_trainer_kept"] == {"min": 8, "median": 8, "max": 8}
    assert stack["times_trainer_kept"]["median"] == 8
    assert one["over_floor_own"]["median"] == 20 and one["over_floor_packed"]["median"] == 10


def run(*arguments):
    environment = {k: v for k, v in os.environ.items() if k != "XLINGUAL_DATA"}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
    )


def test_the_whole_race_at_a_tiny_size(tmp_path):
    path = tmp_path / "speed.json"
    done = run(
        "--shape",
        "tiny",
        "--allocator",
        "kept",
        "--rounds",
        2,
        "--steps",
        1,
        "--models",
        2,
        "--output",
        path,
    )
    assert done.returncode == 0, done.stderr
    assert "engine, 2 stacked" in done.stdout and "arithmetic floor" in done.stdout
    assert "train_runtime" not in done.stdout
    written = json.loads(path.read_text())
    assert written["format"] == 1 and written["settings"]["rounds"] == 2
    assert written["machine"]["threads"] == 1 and written["machine"]["torch"]
    (result,) = written["results"]
    assert (
        result["text"]["name"] == "zipf"
        and result["text"]["padded_a_token"] > result["text"]["slots_a_token"] >= 1
    )
    assert len(result["rounds"]) == 2 and set(result["rounds"][0]["kept"]) == {
        "peak",
        "trainer",
        "one",
        "stack",
    }
    assert [(r["member"], r["allocator"]) for r in result["summary"]] == [
        (m, "kept") for m in ("trainer", "one", "stack")
    ]
    for spread in (v for row in result["summary"] for v in row.values() if isinstance(v, dict)):
        assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    assert [p.name for p in tmp_path.iterdir()] == ["speed.json"]
    assert (
        str(SCRIPT.parent) not in path.read_text()
    )  # nothing in it names the machine it was made on


@pytest.mark.parametrize(
    "wrong, words", [(("--text", "bible"), "XLINGUAL_DATA"), (("--rounds", "0"), "at least 1")]
)
def test_wrong_input_is_one_line(wrong, words):
    done = run("--shape", "tiny", *wrong)
    assert (
        done.returncode != 0
        and words in done.stderr.splitlines()[-1]
        and "Traceback" not in done.stderr
    )


# ---- first steps


@pytest.fixture(scope="module")
def first():
    spec = importlib.util.spec_from_file_location(
        "benchmark_first_steps", SCRIPT.with_name("first_steps.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_kind_is_shortened_once_with_its_tasks(first):
    from xlingual_nb.experiments import frequency, ordering, overlap
    from xlingual_nb.models.pretraining import PretrainSpec

    grid = [
        *overlap.grid("paper", "wiki"),
        *ordering.grid("paper", "wiki"),
        *frequency.grid("paper", "wiki"),
    ]
    whole = first.shortened(grid, 2, 8)
    found = {model: tasks for model, tasks in whole.items() if len(model.languages) <= 2}
    (many,) = whole.keys() - found.keys()
    assert len(many.languages) > 2 and [t.stage for t in whole[many]] == ["nli"], (
        "one model of all languages, for D's Table 4"
    )
    assert all(
        m.training.steps == 2
        and not m.training.epochs
        and [t.stage for t in tasks] == ["nli", "ner"]
        for m, tasks in found.items()
    )
    kinds = {
        tuple(l.name for l in m.languages): [
            (*l.corpus.transforms, *l.transforms) for l in m.languages
        ]
        for m in found
    }
    assert {("en", "es"), ("enfake", "es"), ("en",), ("enfake",), ("enfake", "en")} <= set(
        kinds
    ) and len(found) == 8
    models = [
        s.checkpoint for s in grid if isinstance(getattr(s, "checkpoint", None), PretrainSpec)
    ]
    originals = {first.kind(model) for model in models if model.training.steps}
    assert len(originals) == len(whole)
    assert all(m.training.batch == 16 for m in first.shortened(grid, 2, 8, batch=16)), (
        "a step may be made as small as the machine is"
    )
    assert {m.training.batch for m in whole} == {model.training.batch for model in models}
    for tasks in found.values():
        for t in tasks:
            assert {
                l.records.size for l in (t.train, *(t.tests[0] if t.stage == "nli" else t.tests))
            } == {8}
            assert t.settings.epochs == 1


def test_first_steps_write_what_was_run(first, tmp_path, capsys):
    frame = first.main(
        [
            "06",
            "--steps",
            "2",
            "--records",
            "6",
            "--most",
            "1",
            "-p",
            "corpus=micro",
            "--output",
            str(tmp_path / "first.csv"),
        ]
    )
    written = pd.read_csv(tmp_path / "first.csv")
    assert len(frame) == len(written) == 1 and written.steps[0] == 2
    assert (
        written.languages[0] == "enfake cut_words unicode_shift, es"
        and abs(written.loss[0] - np.log(300)) < 0.3
    )
    assert written["nli (s)"][0] > 0
    with pytest.raises(first.InputError, match="corpus"):
        first.main(["06", "-p", "corpus=moon"])


@pytest.mark.parametrize(
    "notebook, learns", [("09", {"BERT", "Word2Vec", "Glove"}), ("10", {"BERT", "Word2Vec"})]
)
@pytest.mark.parametrize("scale", ("gpu", "paper"))
def test_vectors_are_shortened_too(first, notebook, scale, learns):
    """One of each kind at every scale: so many steps of BERT, one pass of word vectors, and a
    retrieval.
    """
    from xlingual_nb.models.word_embeddings import EmbedSpec
    from xlingual_nb.report.notebooks import grid_of

    found = first.shortened(grid_of(notebook, scale, dict(corpus="micro", seeds="1"))[0], 2, 8)
    static = {m for m in found if isinstance(m, EmbedSpec)}
    assert {type(m.method).__name__ for m in static} | (
        {"BERT"} if len(found) > len(static) else set()
    ) == learns
    assert all(m.method.epochs == 1 if m in static else m.training.steps == 2 for m in found)
    assert all(tasks[0].stage == "words" and tasks[0].sentences == 80 for tasks in found.values())
    read = {
        type(m).__name__ for m, tasks in found.items() if "frozen_nli" in [t.stage for t in tasks]
    }
    assert read == {"09": {"PretrainSpec", "EmbedSpec"}, "10": {"PretrainSpec"}}[notebook], (
        "XNLI is asked of windows of BERT alone"
    )
    assert not any(t.mapped for tasks in found.values() for t in tasks if t.stage == "frozen_nli")


@pytest.mark.parametrize("scale", ("gpu", "paper"))
def test_spaces_of_neighbours_are_shortened_too(first, scale):
    from xlingual_nb.report.notebooks import grid_of

    found = first.shortened(grid_of("08", scale, dict(corpus="micro", seeds="1"))[0], 2, 8)
    spaces = {model.neighbours for model in found if model.neighbours}
    assert {space.fit for space in spaces} == {"vecmap", "known", "nothing"} and {
        model.masking for model in found
    } >= {"knn", "original"}
    assert all(
        space.learning.rounds == 2 and all(part.method.epochs == 1 for part in space.parts)
        for space in spaces
    )


# ---- word vectors


@pytest.fixture(scope="module")
def vectors():
    spec = importlib.util.spec_from_file_location(
        "benchmark_vectors", SCRIPT.with_name("vectors.py")
    )
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_operations_of_vectors_are_those_that_are_counted_by_hand(vectors):
    """A sentence of three words has two pairs a word in a window of five, and three cells to either
    side of the diagonal.
    """
    from xlingual_nb.text.tokenizers import Encoded

    task = vectors.Task(Encoded.of([[0, 1, 2]]), entries=3, size=10)
    assert task.pairs == task.counts.nnz == 6
    assert vectors.flops(task, task.counts.nnz) == {"glove": 6 * 12 * 6, "word2vec": 6 * 10 * 6 * 6}


def test_ratios_of_vectors_are_taken_within_a_round(vectors):
    def turn(speed):
        return {
            "rates": {"arithmetic": 100 / speed, "look-ups": 10 / speed},
            "glove": 2.0 * speed,
            "word2vec": speed,
        }

    ours, gensim = vectors.summarise(
        [turn(1.0), turn(3.0), turn(2.0)], {"glove": 20.0, "word2vec": 50.0}
    )
    assert ours["seconds"] == {"min": 2, "median": 4, "max": 6}
    assert (
        ours["over arithmetic"] == {"min": 10, "median": 10, "max": 10}
        and ours["over look-ups"]["median"] == 1
    )
    assert gensim["over glove"] == {"min": 5, "median": 5, "max": 5}


def test_the_race_of_vectors_at_a_tiny_size(vectors, tmp_path, capsys):
    pytest.importorskip("gensim")
    path = tmp_path / "vectors.json"
    vectors.main(
        [
            "--sizes",
            "4",
            "--entries",
            "20",
            "--sentences",
            "30",
            "--rounds",
            "1",
            "--output",
            str(path),
        ]
    )
    assert "GloVe, ours" in capsys.readouterr().out
    (result,) = json.loads(path.read_text())["results"]
    assert result["size"] == 4 and [row["member"] for row in result["summary"]] == [
        "glove",
        "word2vec",
    ]
    with pytest.raises(vectors.InputError, match="at least 1"):
        vectors.main(["--rounds", "0"])


# ---- hostile hands


@pytest.fixture(scope="module")
def hostile():
    spec = importlib.util.spec_from_file_location(
        "benchmark_hostile", SCRIPT.with_name("hostile.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kills_are_counted_and_products_compared(hostile, tmp_path, monkeypatch):
    frame = hostile.main(
        ["kills", "--kills", "2", "--processes", "2", "--output", str(tmp_path / "kills.csv")]
    )
    assert (
        frame.kills.sum() >= 2
        and frame.whole.all()
        and not frame.failed.sum()
        and not frame.unreadable.sum()
    )
    assert (frame.equal == frame.products).all() and frame.products.min() > 20
    assert pd.read_csv(tmp_path / "kills.csv").products.tolist() == frame.products.tolist()


def test_a_changed_product_is_not_equal(hostile, tmp_path):
    from xlingual_nb.runs.engine import run
    from xlingual_nb.runs.store import Store

    text = [hostile.study()[0].dev]
    run(text, store := Store(tmp_path / "runs"), progress=False)
    before = hostile.digests(store, text)
    (store.path(text[0]) / "corpus.json").write_text("{}")
    after = hostile.digests(store, text)
    assert (
        before.keys() == after.keys() and sum(before[name] != after[name] for name in before) == 1
    )


def test_every_bad_input_is_one_line(hostile, monkeypatch):
    monkeypatch.setattr(hostile, "SPOILT", ("shallow", "nan", "nowhere"))
    monkeypatch.setattr(hostile, "VECTORS", ("more.vec", "cut.bin"))
    monkeypatch.setattr(hostile, "DICTIONARIES", ("column.txt", "unseen.txt"))
    monkeypatch.setattr(hostile, "TEXTS", ("longer.txt",))
    monkeypatch.setattr(
        hostile, "OTHERS", ("runs check --store runs", "data check", "run --nothing")
    )
    monkeypatch.setenv("XLINGUAL_DATA", "mine")
    frame = hostile.inputs()
    assert (
        len(frame) == 12 and frame.well.all() and not frame.said.str.contains("/tmp|Error:").any()
    )
    assert os.environ["XLINGUAL_DATA"] == "mine"


def test_what_is_told_badly_is_seen(hostile, monkeypatch):
    """A command that breaks is not counted as told well."""

    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("xlingual_nb.report.site.write_report", broken)
    told = hostile.said("report")
    assert told["code"] == 1 and "a bug" in told["said"]


def test_the_kept_tables_are_whole():
    kept = SCRIPT.parent / "results"
    kills, inputs = (pd.read_csv(kept / f"hostile-{name}.csv") for name in ("kills", "inputs"))
    assert kills.kills.sum() >= 100 and (kills.equal == kills.products).all() and kills.whole.all()
    assert not kills.failed.sum() and not kills.unreadable.sum()
    assert (
        len(inputs) > 60 and inputs.well.all() and not inputs.said.str.contains("/tmp|/work").any()
    )


# ---- mapping


@pytest.fixture(scope="module")
def mapping():
    spec = importlib.util.spec_from_file_location(
        "benchmark_mapping", SCRIPT.with_name("mapping.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_mapping_tells_each_part(mapping, tmp_path):
    told = mapping.main(["--words", "200", "--width", "12", "--output", str(tmp_path / "m.json")])
    assert json.loads((tmp_path / "m.json").read_text()) == told
    assert (
        told["whole"]["found"] > 0.9
        and told["whole"]["rounds"] >= 50
        and told["whole"]["minutes"] > 0
    )
    kept = json.loads((SCRIPT.parent / "results/mapping-1-thread.json").read_text())
    assert all(
        set(kept[part]) == set(told[part]) for part in ("steps", "times", "whole") if part in kept
    )
    assert {"steps", "times"} <= set(kept) <= set(told), (
        "a run that was cut short has what it came to"
    )
    rounds = dict(zip(told["steps"], [0, 6, 12, 4, 20, 0, 0, 2]))
    assert list(mapping.times(rounds).values()) == [3, 2, 2, 5]


def test_the_peer_of_mapping_makes_the_dictionary_of_a_round(mapping):
    first, second, _ = mapping.planted(150, 12)
    tables = mapping.normalise_vectors(first), mapping.normalise_vectors(second)
    ours, _ = mapping.induce_dictionary(*tables, size=40)
    assert (
        mapping.numpy_round(*(t.numpy() for t in tables), keep=1.0, size=40) == ours.numpy()
    ).all()
    assert (mapping.numpy_round(*(t.numpy() for t in tables), keep=0.1) != ours.numpy()).any()


# ---- VecMap on MUSE


def test_muse_s_dictionary_is_asked_of_small_vectors(tmp_path, monkeypatch):
    """A second language that says the same in other letters, in capitals: half of its pairs are
    held back and found.
    """
    script = SCRIPT.with_name("muse.py")
    spec = importlib.util.spec_from_file_location("benchmark_muse", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dice, words = random.Random(0), [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(60)]
    lines = [
        " ".join(dice.choices(words[(k := dice.randrange(6)) * 10 : k * 10 + 10], k=8))
        for _ in range(400)
    ]
    other = [line.replace("w", "v").upper() for line in lines]
    for folder in ("bible", "dictionaries"):
        (tmp_path / folder).mkdir()
    for language, text in (("en", lines), ("es", other)):
        rows = [f"GEN.1.{i}\t{line}\n" for i, line in enumerate(text, 1)]
        (tmp_path / f"bible/{language}-own.tsv").write_text("".join(rows))
    (tmp_path / "dictionaries/en-es.txt").write_text(
        "".join(f"{w} {w.replace('w', 'v')}\n" for w in words)
    )
    monkeypatch.setenv("XLINGUAL_DATA", str(tmp_path))
    small = ["--languages", "es", "--words", "60", "--size", "12", "--epochs", "5"]
    frame = module.main([*small, "--output", str(tmp_path / "m.csv")])
    assert len(pd.read_csv(tmp_path / "m.csv")) == len(frame)
    assert set(frame.pair) == {"en-es", "en, another seed", "en, two halves"}
    assert (
        (frame[frame.pair == "en-es"].known == 30).all()
        and (frame.asked >= 30).all()
        and frame.mrr.between(0, 1).all()
    )
    best = frame[frame.pair == "en-es"].groupby("mapping").mrr.max()
    assert best["half of the pairs, Procrustes"] > 2 * best["random vectors"]


def test_the_trial_of_running_text_at_a_tiny_size(tmp_path):
    """A row for each of the means, with the options and the share of the unigram's perplexity; what
    is not known is told.
    """
    path = SCRIPT.with_name("running_text.py")
    spec = importlib.util.spec_from_file_location("benchmark_running_text", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    tiny = [
        f"--{name}={value}"
        for name, value in dict(
            steps=3, opening=2, batch=2, sentences=60, pieces=250, layers=1, hidden=8, tokens=24
        ).items()
    ]
    out = bench.main(
        [
            "none",
            "sines+slices",
            *tiny,
            f"--store={tmp_path / 'store'}",
            f"--output={tmp_path / 'out.csv'}",
        ]
    )
    found, kept = pd.read_csv(out), pd.read_csv(path.with_name("results") / "running-text.csv")
    assert (
        found.means.tolist() == ["none", "sines+slices"]
        and found.columns.tolist() == kept.columns.tolist()
    )
    assert (
        np.allclose(found["share"], found.perplexity / found.unigram, atol=1e-3)
        and found.perplexity.nunique() == 2
    )
    made = [
        bench.model(bench.options(["--steps=3"]), named).training
        for named in ("masks", "sines+slices", "none")
    ]
    assert [(t.opening, t.opening_rate, t.opening_slice, t.sines) for t in made] == [
        (500, 0.5, 0, False),
        (500, 0.15, 8, True),
        (0, 0.5, 0, False),
    ]
    with pytest.raises(
        SystemExit, match="^mask: join some of sines, masks, slices with [+], or say none$"
    ):
        bench.model(bench.options([]), "mask")


# ---- fine-tuning


@pytest.fixture(scope="module")
def finetuning():
    spec = importlib.util.spec_from_file_location(
        "benchmark_finetuning", SCRIPT.with_name("finetuning.py")
    )
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_trainer_is_given_the_records_that_ours_reads(finetuning):
    """Ids between the special tokens, a label at each word's first piece and nowhere else; a pair
    with its segments.
    """
    from xlingual_nb.tasks.encoding import Inputs
    from xlingual_nb.text.tokenizers import Encoded

    words = Inputs((Encoded.of([[7, 8, 9], [5]]),), [["B", "A"], ["A"]], Encoded.of([[0, 2], [0]]))
    assert finetuning.word_rows(words, ["A", "B"]) == [
        dict(input_ids=[2, 7, 8, 9, 3], labels=[-100, 1, -100, 0, -100]),
        dict(input_ids=[2, 5, 3], labels=[-100, 0, -100]),
    ]
    texts = Inputs((Encoded.of([[7, 8], [5]]), Encoded.of([[9], []])), np.array(["x", "y"]))
    assert finetuning.text_rows(texts, ["x", "y"]) == [
        dict(input_ids=[2, 7, 8, 3, 9, 3], token_type_ids=[0, 0, 0, 0, 1, 1], label=0),
        dict(input_ids=[2, 5, 3], token_type_ids=[0, 0, 0], label=1),
    ]


def test_ratios_of_fine_tuning_are_taken_within_a_round(finetuning):
    """Trainer with the usual allocator, ours with that of the workers; and both with either."""
    cpu = {
        ("default", "Trainer"): (4.0, 9.0, 8.0),
        ("default", "ours"): (4.0, 6.0, 4.0),
        ("kept", "Trainer"): (3.0, 3.0, 4.0),
        ("kept", "ours"): (2.0, 3.0, 8.0),
    }
    rows = [
        dict(
            race="pos",
            records=10,
            epochs=3,
            round=r,
            memory=memory,
            member=member,
            cpu=c,
            wall=9.0,
            dev=d,
        )
        for (memory, member), told in cpu.items()
        for r, (c, d) in enumerate(
            zip(told, (0.6, 0.5, 0.4) if (memory, member) == ("kept", "ours") else (0.5, 0.5, 0.5))
        )
    ]
    (found,) = finetuning.summary(pd.DataFrame(rows)).to_dict("records")
    assert (found["times"], found["least"], found["most"]) == (2, 1, 3)
    assert (found["times, memory default"], found["times, memory kept"]) == (1.5, 1)
    assert (
        found["ours, records a second"] == 10
        and found["dev, ours"] == pytest.approx(0.5) == found["dev, Trainer"]
    )
    assert found["sd of the difference"] == pytest.approx(0.1)


def test_rows_of_another_race_stay_in_the_table(finetuning, tmp_path):
    path = tmp_path / "tuned.csv"
    finetuning.written(path, [dict(race="pos", cpu=1), dict(race="documents", cpu=2)])
    finetuning.written(path, [dict(race="pos", cpu=3)])
    assert pd.read_csv(path).to_dict("list") == dict(race=["documents", "pos"], cpu=[2, 3])


def test_the_race_of_fine_tuning_at_a_tiny_size(finetuning, tmp_path, capsys):
    path = tmp_path / "tuned.csv"
    frame = finetuning.main(
        [
            "documents",
            "--size",
            "smoke",
            "--steps",
            "2",
            "--epochs",
            "1",
            "--rounds",
            "2",
            "--output",
            str(path),
        ]
    )
    assert (
        "records a second" in capsys.readouterr().out and len(pd.read_csv(path)) == len(frame) == 8
    )
    turns = [*zip(frame.memory, frame.member)]
    assert turns[:4] == [
        (memory, member) for memory in ("default", "kept") for member in ("Trainer", "ours")
    ]
    assert turns[4:] == [*turns[1:4], turns[0]] and frame.dev.between(0, 1).all()
    assert (frame["padded slots a token"] >= frame["packed slots a token"]).all() and (
        frame["packed slots a token"] >= 1
    ).all()
    with pytest.raises(finetuning.InputError, match="no race"):
        finetuning.main(["trees"])


def test_the_kept_race_says_what_the_readme_says():
    kept = pd.read_csv(SCRIPT.parent / "results/finetuning.csv")
    assert (kept.groupby("race").round.nunique() >= 3).all() and set(kept.member) == {
        "Trainer",
        "ours",
    }
    kept = kept[kept.memory == "default"]
    apart = (
        kept.pivot(index=["race", "round"], columns="member", values="dev")
        .diff(axis=1)["ours"]
        .groupby("race")
    )
    assert (apart.mean().abs() < 0.05).all()


def test_a_grid_of_settings_is_written_row_by_row(tmp_path):
    """English alone, on its development records, which are no test of the tables."""
    path = SCRIPT.with_name("tuning_settings.py")
    spec = importlib.util.spec_from_file_location("benchmark_tuning_settings", path)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    sizes = bench.zero_shot.zero_shot_config("smoke")
    for task in bench.CHOSEN:
        how = dict(learning_rate=1e-3, batch=8, epochs=2, freeze=1)
        made = bench.tuned(sizes, task, how, 7, 1)
        assert (
            made.tests == (made.dev,)
            and made.seed == made.checkpoint.seed == 1
            and made.dev.records.part == "dev"
            and made.train.language == made.dev.language == "en"
        )
        assert {name: getattr(made.settings, name) for name in how} == how
        assert made.train.records.size == 7
    small = [
        "--task",
        "pos",
        "--scale",
        "smoke",
        "--rates",
        "1e-3",
        "--batches",
        "8",
        "16",
        f"--store={tmp_path / 'store'}",
    ]
    found = pd.read_csv(bench.main([*small, f"--output={tmp_path / 'out.csv'}"]))
    assert (
        found.batch.tolist() == [8, 16]
        and found.dev.between(0, 1).all()
        and set(found.task) == {"pos"}
    )
    more = ["--batches", "8", "--dropout", "0", "--seeds", "2", f"--output={tmp_path / 'out.csv'}"]
    longer = pd.read_csv(bench.main([*small[:6], *more, small[-1]]))
    pd.testing.assert_frame_equal(longer[:2], found)
    assert longer.seed.tolist() == [0, 0, 0, 1] and longer.dropout.tolist() == [0.1, 0.1, 0, 0]
    with pytest.raises(bench.InputError, match="--task trees"):
        bench.main(["--task", "trees"])


@pytest.fixture(scope="module")
def loaded():
    """A benchmark's module, by the name of its file."""

    def load(name):
        spec = importlib.util.spec_from_file_location(
            f"benchmark_{name}", SCRIPT.with_name(f"{name}.py")
        )
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="module")
def smoke_store(tmp_path_factory):
    """A store that tests share, so that a model is trained once."""
    return tmp_path_factory.mktemp("smoke") / "runs"


@pytest.mark.parametrize(
    "table, arguments",
    [
        ("matched-fit", "1=1 --corpus micro"),
        ("replaced-perplexity", ""),
        ("depth-fit", "'depth 1'"),
        ("spread", "es --seeds 0 --tunings 1"),
        ("depths", "'depth 1' --rates 1e-3 --tuning 1e-3 --steps 2 --warmup 1"),
        ("spellings", "'Word hi 1' --tuning 1e-3"),
        ("sentence-means", ""),
        ("causes", "train --arms split --seeds 1"),
        ("negation", "train --arms preset --seeds 1"),
    ],
)
def test_a_table_keeps_the_rows_of_another_scale(loaded, smoke_store, tmp_path, table, arguments):
    output = shutil.copy(SCRIPT.with_name("results") / f"{table}.csv", tmp_path)
    kept = pd.read_csv(output)
    places = ["--scale", "smoke", "--store", str(smoke_store), "--output", str(output)]
    loaded(table.replace("-", "_")).main([*shlex.split(arguments), *places])
    written = pd.read_csv(output)
    assert set(written.scale) == {"laptop", "smoke"}
    pd.testing.assert_frame_equal(written[written.scale == "laptop"], kept)


def test_a_table_that_does_not_say_its_scale_is_not_touched(loaded, tmp_path):
    tables, path = loaded("result_tables"), tmp_path / "spread.csv"
    path.write_text("target,seed\nes,0\n")
    with pytest.raises(InputError, match="scale"):
        tables.put_rows(path, [dict(scale="smoke", target="es", seed=0)], ["scale", "seed"])
    assert path.read_text() == "target,seed\nes,0\n"


def test_rows_take_the_place_of_those_with_the_same_keys(loaded, tmp_path):
    tables, path, keys = loaded("result_tables"), tmp_path / "table.csv", ["corpus", "row"]
    assert tables.read_rows(path, keys, corpus="micro").empty
    for corpus, mu in (("micro", 0.1), ("bible", 0.2), ("micro", 0.3)):
        tables.put_rows(path, [dict(corpus=corpus, row="1", mu=mu)], keys)
    assert tables.read_rows(path, keys).mu.tolist() == [0.2, 0.3]
    (line,) = tables.read_rows(path, keys, corpus="micro").to_dict("records")
    assert line == dict(corpus="micro", row="1", mu=0.3)


def test_models_of_the_published_size_are_not_taken_for_those_of_another_scale(loaded, tmp_path):
    script = loaded("published_size")
    output = shutil.copy(SCRIPT.with_name("results") / "published-size.csv", tmp_path)
    kept = pd.read_csv(output)
    assert ((kept.arm == "paper") & (kept.row == 9) & (kept.seed == 42)).any()
    places = [str(tmp_path / "runs"), "--scale", "smoke", "--corpus", "micro"]
    models = ["--models", "paper:9:42", "--output", str(output)]
    for command in ("train", "measure"):
        script.main([command, *places, *models])
    written = pd.read_csv(output)
    pd.testing.assert_frame_equal(written[:-1], kept)
    assert written.iloc[-1][["scale", "corpus", "row"]].tolist() == ["smoke", "micro", 9]


def test_a_model_that_another_process_trains_is_left_out(loaded, tmp_path, capsys):
    script = loaded("published_size")
    sizes = script.laboratory_config("smoke", "micro")
    specs = [script.arm_spec("paper", "9", sizes, seed) for seed in (0, 42)]
    store = script.Store(tmp_path / "runs")
    given = ["train", str(store.root), "--scale", "smoke", "--corpus", "micro"]
    given += ["--arms", "paper", "--rows", "9", "--seeds", "0,42"]
    with store.lock(specs[0]), store.lock(specs[1]):
        script.main(given)
    assert "nothing to train" in capsys.readouterr().out
    with store.lock(specs[0]):
        script.main(given)
    assert [store.has(spec) for spec in specs] == [False, True]
    assert "paper:9:0" in capsys.readouterr().out
    script.main(given)
    assert store.has(specs[0])


def test_lengths_at_which_rows_fit_alike(loaded, tmp_path):
    found = loaded("matched_fit").main(
        "8=2,1 --scale smoke --corpus micro".split()
        + ["--store", str(tmp_path / "runs"), "--output", str(tmp_path / "fit.csv")]
    )
    assert list(zip(found.row.str[0], found.length)) == [("0", 1), ("8", 1), ("8", 2)]
    assert (found.steps * [2, 2, 1] == found.steps.iloc[2]).all() and found["times original"].iloc[
        0
    ] == 1
    written = pd.read_csv(tmp_path / "fit.csv")
    assert list(written.columns) == list(found.columns) and np.allclose(
        written.train, found.train, rtol=1e-3
    )
    with pytest.raises(Exception, match="there is no row '99'"):
        loaded("matched_fit").main(["99"])


TINY = """base.training.steps = 3; measured = 20; fine_tuning.epochs = 1; tagging.epochs = 1
text.train = { source = "micro/{language}", sentences = 60, vocabulary = 128, seed = "text {language}" }
text.dev = { source = "micro/{language}", part = "dev", sentences = 20, vocabulary = 128 }
nli.train = { source = "micro/{language}", size = 30, vocabulary = 128, level = "negated" }
nli.dev = { source = "micro/{language}", size = 9, vocabulary = 128, level = "negated" }
nli.test = { source = "micro/{language}", size = 15, vocabulary = 128, level = "negated" }
ner.train = { source = "micro/{language}", size = 20, vocabulary = 128 }
pieces = 300; base.shape.hidden = 16; base.shape.intermediate = 32"""


def test_sizes_of_a_world_are_tried(loaded, tmp_path):
    world, places = (
        loaded("world"),
        ["--store", str(tmp_path / "runs"), "--output", str(tmp_path / "world.csv")],
    )
    longer = TINY.replace("steps = 3", "steps = 7") + "; kind = 'words'"
    assert world.sizes_with(longer).base.training.steps == 7
    for _ in range(2):
        found = world.main([TINY, "--targets", "es", "hi", *places])
    assert (
        list(found.target) == ["es", "hi"]
        and found["P@1"].between(0, 1).all()
        and (found.chance > 0).all()
    )
    shifted = world.main([TINY, "--source", "enfake", "--targets", "es", *places]).iloc[-1]
    assert shifted.source == "enfake" and pd.isna(shifted.MRR) and 0 <= shifted.nli <= 1
    with pytest.raises(Exception, match="did you mean pieces"):
        world.main(["piece = 3", *places])
    kept = pd.read_csv(SCRIPT.with_name("results") / "world.csv")
    assert set(found.columns) == set(kept.columns)


def test_rates_are_tried_by_depth_and_told_by_the_source_alone(loaded, tmp_path):
    depths = loaded("depths")
    places = ["--store", str(tmp_path / "runs"), "--output", str(tmp_path / "depths.csv")]
    sizes = depths.bilingual_config("smoke", "micro")
    (shallow, deep, single) = (
        depths.model(sizes, row, 0, learning_rate=1e-3, steps=2)
        for row in ("depth 1", "depth 24", "heads 1")
    )
    assert (shallow.shape.layers, deep.shape.layers, single.shape.heads) == (
        1,
        24,
        1,
    ) and shallow.training == deep.training == single.training
    asked = depths.inference(sizes, shallow, 1e-4)
    assert asked.settings.learning_rate == 1e-4 and {
        asked.train.language,
        *(side.language for pair in asked.tests for side in pair),
    } == {"enfake"}
    for _ in range(2):
        found = depths.main(
            [
                "depth 1",
                "--rates",
                "1e-3",
                "--tuning",
                "1e-3",
                "3e-4",
                "--steps",
                "2",
                "--warmup",
                "1",
                "--scale",
                "smoke",
                *places,
            ]
        )
    assert (
        len(found) == 2
        and found["perplexity / unigram"].nunique() == 1
        and (found["nli dev"] <= 1).all()
    )


def test_spread_is_parted_into_tunings_and_models(loaded, tmp_path):
    spread, rng = loaded("spread"), np.random.default_rng(0)
    models, tunings = rng.normal(0, 0.3, 400), rng.normal(0, 0.1, (400, 5))
    rows = [
        ("es", 1e-3, m, t, 0.5 + models[m] + tunings[m, t]) for m in range(400) for t in range(5)
    ]
    found = spread.parts(
        pd.DataFrame(rows, columns=["target", "rate", "seed", "tuning", "nli"])
    ).iloc[0]
    assert (found.models, found.tunings) == (400, 5) and found["sd of tunings"] == pytest.approx(
        0.1, rel=0.1
    )
    assert found["sd of models"] == pytest.approx(0.3, rel=0.1)
    alike = pd.DataFrame(rows, columns=["target", "rate", "seed", "tuning", "nli"]).assign(
        nli=[0.5 + tunings[m, t] for _, _, m, t, _ in rows]
    )
    assert spread.parts(alike).iloc[0]["sd of models"] < 0.03
    assert np.isnan(
        spread.parts(
            pd.DataFrame(rows[:5], columns=["target", "rate", "seed", "tuning", "nli"])
        ).iloc[0]["sd of models"]
    )


def test_a_model_is_tuned_several_times_and_the_first_is_the_tables(loaded, tmp_path):
    spread = loaded("spread")
    sizes = spread.bilingual_config("smoke", "micro")
    first, *rest = (
        spread.inference(sizes, "es", seed, tuning, 1e-3) for seed in (0, 1) for tuning in range(3)
    )
    assert (
        first == spread.k2020_common.nli_spec(sizes, first.checkpoint, "enfake", ("es",))
        and len({spec.seed for spec in (first, *rest)}) == 6
    )
    places = [
        "--scale",
        "smoke",
        "--store",
        str(tmp_path / "runs"),
        "--output",
        str(tmp_path / "spread.csv"),
    ]
    for _ in range(2):
        found = spread.main(["es", "--seeds", "0", "1", "--tunings", "2", *places])
    assert len(found) == 4 and found["nli source"].between(0, 1).all()
    assert set(found.columns) == set(
        pd.read_csv(SCRIPT.with_name("results") / "spread.csv").columns
    )


def test_rates_are_tried_by_spelling_and_told_by_the_source_alone(loaded, tmp_path):
    spellings = loaded("spellings")
    places = [
        "--scale",
        "smoke",
        "--store",
        str(tmp_path / "runs"),
        "--output",
        str(tmp_path / "spellings.csv"),
    ]
    asked = spellings.inference(
        spellings.bilingual_config("smoke", "micro"), "Char", "es", seed=1, rate=1e-4
    )
    assert (
        asked.settings.learning_rate == 1e-4
        and asked.checkpoint.seed == 1
        and asked.checkpoint.tokenizer.kind == "characters"
    )
    assert {asked.train.language, *(side.language for pair in asked.tests for side in pair)} == {
        "enfake"
    }
    for _ in range(2):
        found = spellings.main(["Char es 1", "Word es 1", "--tuning", "1e-3", *places])
    assert list(found.column) == ["Char", "Word"] and found["nli dev"].between(0, 1).all()
    kept = pd.read_csv(SCRIPT.with_name("results") / "spellings.csv")
    assert set(found.columns) == set(kept.columns)


def test_readouts_that_are_written_are_not_made_again_with_another_store(loaded, tmp_path):
    script, output = loaded("readouts"), tmp_path / "readouts.csv"
    settings = script.runs_by_setting(script.bilingual_config("smoke", "micro"), [0], 1)
    rows = [
        dict(zip(script.KEYS, ("smoke", *setting)), source=0.9, target=0.5) for setting in settings
    ]
    script.put_rows(output, rows, script.KEYS)
    given = ["--scale", "smoke", "--seeds", "0", "--draws", "1", "--output", str(output)]
    assert len(script.main([*given, "--store", str(tmp_path / "runs")])) == len(rows) == 14
    assert not [*(tmp_path / "runs").glob("*/??/*")]


def test_fit_by_depth_tells_each_model_once(tmp_path):
    script = SCRIPT.with_name("depth_fit.py")
    spec = importlib.util.spec_from_file_location("benchmark_depth_fit", script)
    depth_fit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(depth_fit)
    asked = ["--scale", "smoke", "--store", str(tmp_path / "runs")]
    for rows in (["depth 1", "depth 2"], ["depth 2"]):
        table = depth_fit.main([*rows, *asked, "--output", str(tmp_path / "fit.csv")])
    assert table.row.tolist() == ["depth 1", "depth 2"] and table.run.nunique() == 2
    assert (table[["train", "dev"]] > 1).all(axis=None)


def test_both_readings_of_a_perplexity_are_of_the_same_models(loaded, tmp_path):
    places = ["--store", str(tmp_path / "runs"), "--output", str(tmp_path / "perplexity.csv")]
    table = loaded("replaced_perplexity").main(["--scale", "smoke", "--seeds", "2", *places])
    assert table.groupby("seed").run.nunique().tolist() == [1, 1] and table.run.nunique() == 2
    assert table.groupby("seed").train.nunique().tolist() == [2, 2], "the readings differ"
    kept = pd.read_csv(SCRIPT.with_name("results") / "replaced-perplexity.csv")
    assert list(kept.columns) == list(table.columns)


def test_both_readings_of_a_mean_are_of_the_same_model(loaded, tmp_path):
    places = ["--store", str(tmp_path / "runs"), "--output", str(tmp_path / "means.csv")]
    table = loaded("sentence_means").main(["--scale", "smoke", "--seeds", "0", *places])
    readings = table.groupby(["seed", "direction", "target"]).mean_of.agg(list)
    assert readings.map(set).tolist() == [{"tokens", "sentences"}] * len(readings)
    kept = pd.read_csv(SCRIPT.with_name("results") / "sentence-means.csv")
    assert list(kept.columns) == list(table.columns) and kept.seed.nunique() == 3
    by_reading = table.set_index(["direction", "target", "mean_of"]).converted.unstack()
    assert (by_reading.tokens != by_reading.sentences).any() and by_reading.le(1).all(axis=None)


def test_causes_are_held_against_the_same_seeds(loaded, tmp_path, monkeypatch):
    causes = loaded("causes")
    output = tmp_path / "causes.csv"
    places = ["--scale", "smoke", "--store", str(tmp_path / "runs"), "--output", str(output)]
    causes.main(["train", *places, "--arms", "split", "--seeds", "1"])
    table = causes.main(["train", *places, "--arms", "split,epsilon", "--seeds", "2"])
    assert table.groupby(["arm", "row"]).seed.nunique().to_dict() == {
        ("split", "4"): 2,
        ("epsilon", "1"): 2,
        ("epsilon", "4"): 2,
    }
    assert table.run.nunique() == 6

    text = table[["row", "seed", "mu", "perplexity_train"]].drop_duplicates(["row", "seed"])
    monkeypatch.setattr(causes, "text_values", lambda *_: text.assign(mu=text.mu - 0.1))
    effects = causes.effects(table, "smoke", "micro").set_index(["row", "difference"])
    assert effects.added["4 no-random", "split"] == pytest.approx(0.1)
    assert (effects.models == 2).all() and len(effects) == 3


def test_negation_moves_in_the_text_and_in_the_pairs_of_its_languages_alone(loaded):
    negation = loaded("negation")
    sizes = negation.zero_shot_config("smoke", "micro-five")
    model = negation.shift_model_spec(sizes, 0)
    moved = negation.with_dials(model, negation.ARMS["moved"])
    dials = {
        language.name: dict(language.corpus.parameters).get("negation")
        for language in moved.languages
    }
    assert dials == dict(en=None, fr="before", de="before", es="after", el="after")
    assert negation.with_dials(model, {}) == model and moved.tokenizer != model.tokenizer

    asked = negation.labelled_task_records(sizes, "nli", "fr", "test")
    there = negation.with_dials(asked, negation.ARMS["moved"])
    assert there.language == "fr" and dict(there.records.parameters)["negation"] == "before"


def test_pairs_are_told_apart_by_the_sides_that_are_negated(loaded, tmp_path):
    negation = loaded("negation")
    edits = ["same", "adverb<", "(negated) place", "plain>negated", "negated>plain adjective"]
    assert [negation.negated_sides(edit) for edit in edits] == [
        "neither",
        "neither",
        "both",
        "one",
        "one",
    ]

    # models of one seed each: what moving adds is the mean over seeds that learnt English twice
    lines = []
    seeds = enumerate([(0.9, 0.3), (0.9, 0.5), (0.4, 0.0)])
    for (seed, (english, added)), head in product(seeds, ("pair", "siamese")):
        for arm, change in (("preset", 0.0), ("moved", added)):
            for language in ("en", "fr", "de", "es", "el"):
                after = language in negation.AFTER
                right = 0.4 + change if after else 0.8 - change
                right = english if language == "en" else right
                lines.append((arm, head, seed, language, "one", 10, right, 0.5))
    columns = "arm classifier seed language negated pairs accuracy contradiction".split()
    table = pd.DataFrame(lines, columns=columns).assign(scale="smoke", corpus="micro-five")
    # models of another corpus do not count
    table = pd.concat([table, table.assign(corpus="micro", accuracy=1.0)])
    table.to_csv(tmp_path / "negation.csv", index=False)
    places = ["--output", str(tmp_path / "negation.csv"), "--summary", str(tmp_path / "sum.csv")]
    places += ["--figure", str(tmp_path / "negation.png")]
    frame = negation.main(["compare", "--scale", "smoke", *places])
    assert frame.seeds.tolist() == [2] * 4 and set(frame.classifier) == {"pair", "siamese"}
    added = frame[frame.classifier == "pair"].set_index("languages").added
    assert added.to_dict() == pytest.approx({"fr, de": 0.4, "es, el": -0.4})
    assert not json.loads((tmp_path / "negation.json").read_text(encoding="utf-8"))["faults"]


def test_a_difference_is_held_against_the_text_s_models_of_its_own_table(loaded, monkeypatch):
    causes = loaded("causes")
    columns = ["row", "seed", *causes.MEASURES]
    reference = pd.DataFrame([("1", seed, 0.1, 10.0) for seed in (42, 43)], columns=columns)
    monkeypatch.setattr(causes, "text_values", lambda *_: reference)
    models = [("paper", "1", 42, 0.5, 20.0)]
    models += [("padding", "1", 42, 0.7, 20.0), ("padding", "1", 43, 0.4, 20.0)]
    (effect,) = causes.effects(
        pd.DataFrame(models, columns=["arm", *columns]), "laptop", "micro"
    ).itertuples()
    # seed 43 has no model of arm `paper` here: the reference results have one
    assert effect.added == pytest.approx((0.7 - 0.5 + 0.4 - 0.1) / 2) and effect.models == 2


def test_values_of_one_run_on_two_machines_are_held_against_each_other(loaded, tmp_path):
    machines = loaded("machines")
    entry = {"paper": "dufter2020", "table": "table1", "corpus": "micro", "column": "µ", "step": ""}
    reference = pd.DataFrame(
        [entry | {"row": "0", "seed": s, "run_id": f"r{s}", "value": s / 10} for s in range(4)]
    )
    here = reference.assign(value=[0.0, 0.13, 0.2, 0.9])
    here.loc[3, "run_id"] = "another config"  # is not the same run, and not compared
    paths = [tmp_path / part / "laptop/07/seeds.csv" for part in ("results", "here")]
    for path, values in zip(paths, (reference, here), strict=True):
        path.parent.mkdir(parents=True)
        values.to_csv(path, index=False)
    output = tmp_path / "machines.csv"
    given = [paths[1], "--reference", tmp_path / "results", "--output", output]
    (line,) = machines.main(list(map(str, given))).to_dict("records")
    assert (line["values"], line["equal"]) == (3, 2)
    assert line["largest"] == pytest.approx(0.03) and line["mean difference"] == pytest.approx(0.01)
    assert line["sd over seeds"] == pytest.approx(0.1) and output.exists()


def test_seeds_of_one_table_alone_tell_how_far_apart_seeds_come(loaded):
    machines = loaded("machines")
    entry = {
        "paper": "dufter2020",
        "corpus": "bible",
        "column": "µ",
        "row": "1",
        "step": float("nan"),
    }
    levels = {"table1": 0.0, "table1-matched": 5.0}  # the same row, trained for longer
    values = pd.DataFrame(
        [
            entry
            | {"table": table, "seed": seed, "run_id": f"{table}{seed}", "value": level + seed}
            for (table, level), seed in product(levels.items(), range(3))
        ]
    )
    (line,) = machines.differences_by_column(machines.shared_values(values, values)).to_dict(
        "records"
    )
    assert line["values"] == 6
    assert line["sd over seeds"] == pytest.approx(1.0)


def test_the_kept_effects_of_causes_follow_from_its_models(loaded, tmp_path):
    kept = SCRIPT.with_name("results") / "causes-compared.csv"
    again = tmp_path / "again.csv"
    loaded("causes").main(["compare", "--summary", str(again)])
    assert again.read_text() == kept.read_text()


@pytest.mark.parametrize(
    "arm, changed",
    [
        ("padding", ["visible_padding"]),
        ("split", ["masking"]),
        ("epsilon", ["training"]),
        ("released", ["visible_padding", "masking", "training"]),
    ],
)
def test_a_cause_changes_one_thing(loaded, arm, changed):
    causes = loaded("causes")
    sizes = causes.laboratory_config("smoke", "micro")
    text = causes.row_spec(causes.LABELS["4"], sizes, 0)
    spec = causes.arm_spec(arm, "4", sizes, 0)
    fields = ("visible_padding", "masking", "training")
    assert [name for name in fields if getattr(spec, name) != getattr(text, name)] == changed


@pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")
def test_the_suite_is_run_as_the_makefile_does(loaded, tmp_path):
    suite = loaded("suite")
    root = SCRIPT.parents[1]
    for target, option in {"check": "--affected", "ci": "--hypothesis-profile=ci"}.items():
        command = [*suite.command_of(root, target, tmp_path / "env"), "-n"]
        recipe = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert option in recipe and " pip " not in recipe
    for pattern in suite.CHANGED:
        (path,) = root.glob(pattern)
        copy = tmp_path / path.relative_to(root)
        copy.parent.mkdir(parents=True)
        shutil.copy(path, copy)
    suite.change_a_function(tmp_path)
    assert suite.AFTER in copy.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="has not one"):
        suite.change_a_function(tmp_path)
    busy = "sum(range(10**7)); print('== 3 passed in 0.2s ==')"
    row = suite.measured([sys.executable, "-c", busy], tmp_path)
    assert row["ended"] == "3 passed in 0.2s" and row["wall s"] >= 0
    assert suite.measured([sys.executable, "-c", "exit(3)"], tmp_path)["ended"] == "exit code 3"


def test_every_mutation_can_be_made(loaded):
    """What it changes stands once in its module, and the tests that should notice are there."""
    root, mutations = SCRIPT.parents[1], loaded("mutations").MUTATIONS
    assert len(mutations) == 30
    for mutation in mutations:
        text = (root / "xlingual_nb" / mutation.module).read_text(encoding="utf-8")
        assert text.count(mutation.right) == 1, mutation.name
        assert all((root / "tests" / name).is_file() for name in mutation.tests.split())


# ---- first minutes on a GPU


def test_the_speed_of_training_is_measured_in_both_precisions(tmp_path, monkeypatch):
    """The part that `--no-speed` leaves out, which a machine without a GPU would otherwise never run."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("XLINGUAL_DEVICE", "cpu")  # the script sets both
    spec = importlib.util.spec_from_file_location(
        "benchmark_first_gpu", SCRIPT.with_name("first_gpu.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shape = module.Shape(1, 32, 2, 64, 64)
    for precision in module.LOSS_LIMITS:
        row = module.training_speed("cpu", tmp_path / precision, precision, shape, steps=2)
        assert row["state"] == "ok" and row["device_s"] > 0, row
