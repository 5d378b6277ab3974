"""A batch in shards: their gradients add up to the batch's; several processes come to the bits of one."""

import os
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch

from xlingual_nb.errors import InputError
from xlingual_nb.models import training as loop
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.models.gradients import shard_gradients, sum_in_pairs
from xlingual_nb.models.stacked_batches import count_labels
from xlingual_nb.models.pretraining import Language, PretrainSpec, training_job
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs import ranks
from xlingual_nb.runs.ranks import check_devices
from xlingual_nb.runs.spec import canonical
from xlingual_nb.runs.store import Store
from xlingual_nb.text import tokenizers
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

torch.set_num_threads(1)
CORPUS = CorpusSpec("micro/en", parameters=(("sentences", 48), ("vocabulary", 96)))
TOKENIZER = TokenizerSpec(CORPUS, 101, "words")
STEPS = 20
PAIR = Language("en", CORPUS), Language("enfake", CORPUS, ("enfake",))


def spec(shards=4, seed=3, **settings):
    """Pairs of segments, 16 examples a step."""
    training = Training(0, 16, 1e-2, 10, steps=STEPS, shards=shards, **settings)
    shape = Shape(2, 16, 2, 32, 32)
    return PretrainSpec(PAIR, TOKENIZER, shape, training, seed=seed, inputs="pairs", nsp=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("runs"))
    run([TOKENIZER], store, progress=False)
    return store


def jobs(store, tmp_path, shards):
    tokenizer = tokenizers.read_tokenizer(store.path(TOKENIZER))
    return [
        training_job(spec(shards, seed), tmp_path / str(seed), tokenizer, store) for seed in (3, 4)
    ]


@pytest.mark.parametrize("shards", (1, 2, 8, 16))
def test_gradients_of_shards_add_up_to_those_of_the_batch(store, tmp_path, shards):
    """Of two models that train together, some with fewer rows than there are shards."""
    training = spec(shards, dropout=0.0).training
    both = jobs(store, tmp_path, shards)
    stack, _ = loop.initialise_stack(both, Shape(2, 16, 2, 32, 32), training, "cpu")
    complete = loop.StepBatches(both, replace(training, shards=1), 0, STEPS)[7]
    parts = loop.StepBatches(both, training, 0, STEPS)[7]
    assert len(parts) == shards and len(complete) == 1

    def sums(batch):
        def compute(number):
            return shard_gradients(stack, batch, number, count_labels(batch), 7, training)

        return sum_in_pairs(compute, 0, len(batch))

    for whole, summed in zip(sums(complete), sums(parts)):
        difference = (whole - summed).norm(dim=-1) / whole.norm(dim=-1)
        assert difference.max() < 1e-5 and whole.norm() > 0


def test_shards_have_dropout_masks_of_their_own(store, tmp_path):
    training = spec(2).training
    both = jobs(store, tmp_path, 2)
    stack, _ = loop.initialise_stack(both, Shape(2, 16, 2, 32, 32), training, "cpu")
    first, _ = loop.StepBatches(both, training, 0, STEPS)[0]
    twice = [first, first]
    losses = [
        shard_gradients(stack, twice, number, count_labels(twice), 0, training)[0]
        for number in (0, 1, 0)
    ]
    assert torch.equal(losses[0], losses[2]) and not torch.equal(losses[0], losses[1])


def products(store, spec):
    return [
        (store.path(spec) / name).read_bytes() for name in ("model.safetensors", "training.jsonl")
    ]


class Interrupt(Exception):
    """Ends a training on the way."""


@pytest.mark.ci
def test_two_processes_and_a_resumed_training_come_to_the_bits_of_one(tmp_path, monkeypatch):
    """The resumed one, in bfloat16, has begun alone and goes on with two processes."""
    two, resumed = spec(precision="float32"), spec(seed=5, precision="bfloat16")
    alone, store = Store(tmp_path / "alone"), Store(tmp_path / "two")
    run([two, resumed], alone, Inline(), progress=False)
    usual = loop.training_step

    def interrupted(stack, adam, shards, step, *rest):
        if step == STEPS // 2:
            raise Interrupt
        return usual(stack, adam, shards, step, *rest)

    pretrain = loop.pretrain
    with monkeypatch.context() as patch:
        patch.setattr(loop, "training_step", interrupted)
        patch.setattr(loop, "pretrain", lambda *a, **k: pretrain(*a, **k, save_interval=0))
        with pytest.raises(RuntimeError, match="Interrupt"):
            run([resumed], store, Inline(), progress=False)
    assert len(list(store.partial(resumed).glob("resume/*"))) == 1
    monkeypatch.setenv("XLINGUAL_DEVICES", "2")
    run([two, resumed], store, Inline(), progress=False)
    for made in (two, resumed):
        assert products(store, made) == products(alone, made)


@pytest.mark.ci
def test_two_processes_that_are_asked_to_stop_save_one_state(tmp_path, monkeypatch):
    """The first decides; the other, in the midst of its next step, is left by it."""
    stopped = spec(seed=7)
    stopped = replace(stopped, training=replace(stopped.training, steps=150))
    alone, store = Store(tmp_path / "alone"), Store(tmp_path / "two")
    run([stopped], alone, Inline(), progress=False)
    monkeypatch.setenv("XLINGUAL_DEVICES", "2")

    def stop():
        end = time.monotonic() + 600
        while not loop.read_log(store.partial(stopped)) and time.monotonic() < end:
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run([stopped], store, Inline(), progress=False)
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, handler)
    (state,) = store.partial(stopped).glob("resume/*.safetensors")
    assert 0 < int(state.stem) < 150
    run([stopped], store, Inline(), progress=False)
    assert products(store, stopped) == products(alone, stopped)


def test_the_number_of_processes_is_no_part_of_a_run_and_that_of_shards_is(monkeypatch):
    name = canonical(spec(1))
    assert "shards" not in name and "shards" in canonical(spec(2))
    monkeypatch.setenv("XLINGUAL_DEVICES", "2")
    assert canonical(spec(1)) == name


@pytest.mark.parametrize("devices", ("3", "0", "two", ""))
def test_a_number_of_devices_that_is_no_power_of_two_is_one_clear_line(
    tmp_path, monkeypatch, devices
):
    monkeypatch.setenv("XLINGUAL_DEVICES", devices)
    with pytest.raises(InputError, match="give 1, 2, 4, 8"):
        run([spec()], Store(tmp_path), Inline(), progress=False)


@pytest.mark.parametrize("shards", (0, 3, 32))
def test_shards_are_a_power_of_two_and_at_most_the_batch(shards):
    with pytest.raises(InputError, match=f"shards={shards}"):
        spec(shards)


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there are several GPUs")
def test_gpus_that_are_not_there_are_one_clear_line():
    with pytest.raises(InputError, match="torch sees"):
        check_devices("cuda", 2)
    with pytest.raises(InputError, match="is one GPU"):
        check_devices("cuda:1", 2)


def test_a_process_that_fails_is_told_of(tmp_path, monkeypatch):
    """Here the second one, which is asked for a device that does not exist."""
    monkeypatch.setenv("XLINGUAL_DEVICES", "2")
    monkeypatch.setattr(ranks, "device_of_rank", lambda device, rank: "cpu:nowhere")
    with pytest.raises(RuntimeError, match="process 1 of a run"):
        run([spec()], Store(tmp_path), Inline(), progress=False)
