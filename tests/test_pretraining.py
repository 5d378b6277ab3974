"""Pretraining: killed at any moment it ends with the same bytes (on one machine, in one stack, with
one thread); its steps are those of PyTorch and Hugging Face; models in a stack are models alone.
"""

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import AutoModelForMaskedLM, get_linear_schedule_with_warmup

from test_encoder import padded
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Processes
from xlingual_nb.text.sources import CorpusSpec, read_corpus
from xlingual_nb.models.pretraining import Language, PretrainSpec, token_ids, language_views
from xlingual_nb.text.vocabularies import TokenizerSpec
from xlingual_nb.runs.store import Store, check_runs, list_runs
from xlingual_nb.models.checkpoints import load_checkpoint, model_inputs
from xlingual_nb.measures.embeddings import check_and_truncate
from xlingual_nb.models import training as loop
from xlingual_nb.models.mlm_batches import (
    CLS,
    MASK,
    MASKS,
    SEP,
    BatchSampler,
    assemble_batch,
    seeded_generator,
    make_batch,
    mask_tokens,
    build_sentence_dataset,
)
from xlingual_nb.models.configs import (
    MASKING,
    LanguageView,
    Masking,
    Shape,
    Training,
    scheduled_learning_rate,
)
from xlingual_nb.text import tokenizers
from xlingual_nb.text.tokenizers import Encoded

torch.set_num_threads(1)
torch.optim.AdamW(
    [torch.zeros(1)]
)  # imports a lot on its first call: once here, not in every child
CORPUS = CorpusSpec("micro/en", parameters=(("sentences", 48), ("vocabulary", 96)))
TOKENIZER = TokenizerSpec(CORPUS, 101, "words")
PAIR = Language("en", CORPUS), Language("enfake", CORPUS, ("enfake",))
INVERTED = PAIR[0], Language("enfake", CORPUS, ("enfake", "inv_order"))
SHAPE = Shape(2, 16, 1, 32, 16)


def spec(epochs=20, languages=PAIR, **rest):
    """96 sentences of both languages in batches of 16: six steps an epoch."""
    return PretrainSpec(
        languages, TOKENIZER, rest.pop("shape", SHAPE), Training(epochs, 16, 1e-2, 10), **rest
    )


def products(store, spec):
    """Every byte of a run, but for what tells the time."""
    folder = store.path(spec)
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name not in ("log.jsonl", "manifest.json")
    }


# ---- kills

KILLED = [
    spec(seed=42, lang_pos=True, shift_special=True, languages=INVERTED, snapshots=(0, 50)),
    spec(seed=0, masking="no_random"),
]


def child(work) -> int:
    """A forked process that does `work` and leaves; its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def ended(pid):
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def logged(store):
    return len(loop.read_log(store.partial(KILLED[0])))


def train_keeping_all(store, starts, most=None):
    """Train with the state kept at every line of the log, and note in the file `starts` at which
    step this process began. After `most` steps it waits to be killed.
    """
    usual, step, taken = loop.pretrain, loop.training_step, []

    def one_step(*args):
        if len(taken) == most:
            time.sleep(600)
        taken.append(1)
        return step(*args)

    def often(jobs, *args, **kw):
        with open(starts, "a") as f:
            f.write(f"{loop.last_saved_step(jobs)}\n")
        usual(jobs, *args, **kw, save_interval=0)

    loop.pretrain, loop.training_step = often, one_step
    run(KILLED, Store(store.root), progress=False)


def kill_once(store, starts, moments):
    """Start a training, let it go on for a random while, kill it. It takes few steps more, so that
    no busy machine is too late.
    """
    before, further, pause = (
        logged(store),
        moments.choice((-1, 1, 1, 2, 3, 5, 8)),
        moments.uniform(0, 0.03),
    )
    pid, end = (
        child(lambda: train_keeping_all(store, starts, max(further, 0) + 3)),
        time.monotonic() + 600,
    )
    while further > 0 and logged(store) < before + further and not ended(pid):
        assert time.monotonic() < end
        time.sleep(0.002)
    time.sleep(pause * (1 if further > 0 else 10))
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, (
        "ended before it was killed"
    )


def test_an_epoch_reads_every_sentence_once_in_an_order_of_its_own():
    def orders(seed):
        sampler = BatchSampler(48, 16, seed)
        return [np.concatenate([sampler(3 * epoch + n) for n in range(3)]) for epoch in (0, 1)]

    assert all(sorted(order) == list(range(48)) for order in orders(0))
    assert len({tuple(order) for seed in (0, 1) for order in orders(seed)}) == 4
    assert np.array_equal(orders(1), orders(1))


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The two models trained without disturbance, in a fresh interpreter."""
    store, executor = Store(tmp_path_factory.mktemp("calm")), Processes(1)
    run(KILLED, store, executor, progress=False)
    return store


@pytest.mark.ci
def test_ten_kills_at_random_moments_change_no_byte(tmp_path, calm):
    store, starts, moments = Store(tmp_path / "killed"), tmp_path / "starts", random.Random(11)
    run([CORPUS, TOKENIZER], store, progress=False)
    for _ in range(10):
        kill_once(store, starts, moments)
        assert check_runs(store).empty and set(list_runs(store).state) <= {"found", "partial"}
        assert store.has(CORPUS) and store.has(TOKENIZER) and not any(map(store.has, KILLED))
    assert (
        os.waitstatus_to_exitcode(os.waitpid(child(lambda: train_keeping_all(store, starts)), 0)[1])
        == 0
    )
    began = [int(n) for n in starts.read_text().split()]
    assert began == sorted(began) and len({b for b in began if b}) >= 4, f"resumed at {began}"
    for s in KILLED:
        ours, undisturbed = products(store, s), products(calm, s)
        assert {"model.safetensors", "training.jsonl"} <= set(ours) and not any(
            "resume" in name for name in ours
        )
        assert ours == undisturbed
    assert "step-000060/model.safetensors" in products(store, KILLED[0])
    assert check_runs(store).empty and set(list_runs(store).state) == {"found"}


def test_two_runs_of_one_spec_are_equal_to_the_bit(tmp_path, calm):
    """One in a fresh interpreter, one here, in stores of their own."""
    store = Store(tmp_path / "again")
    run(KILLED, store, progress=False)
    for s in KILLED:
        assert products(store, s) == products(calm, s)


def jobs_of(folder, seeds=(1, 2), texts=(0, 0), snapshots=(), masking="original", **view):
    """Jobs on 60 sentences with a rule, of 4 to 14 tokens (text 0), 2 to 6 (text 1), or mostly some
    ten but up to fifty (text 2).
    """
    tokenizer, jobs = tokenizers.train_wordpiece(["a b c d e f"], 20), []
    for seed, kind in zip(seeds, texts):
        rng = np.random.default_rng(kind)
        starts, lengths = (
            rng.integers(0, 35, 60),
            rng.integers(*((4, 15), (2, 7), (1, 2))[kind], 60),
        )
        if kind == 2:
            lengths = np.clip(rng.lognormal(2.4, 0.6, 60).astype(int), 1, 50)
        english = Encoded.of(5 + (s + 3 * np.arange(n)) % 35 for s, n in zip(starts, lengths))
        m = build_sentence_dataset(
            [english, Encoded(english.ids + 40, english.starts)],
            [LanguageView("en"), LanguageView("enfake", 40, **view)],
            80,
            64 if kind == 2 else 16,
        )
        jobs.append(
            loop.TrainingJob(
                m, MASKING[masking], seed, tokenizer, Path(folder) / f"{seed}-{kind}", snapshots
            )
        )
    return jobs


class Stopped(Exception):
    pass


def test_a_kill_between_the_models_of_a_stack_takes_up_the_last_common_step(tmp_path, monkeypatch):
    """The states of a step are written one model after another: stopped in between, training goes
    on from the step before.
    """
    training = Training(6, 24, 1e-2, 10)
    loop.pretrain(jobs_of(tmp_path / "whole"), SHAPE, training)
    usual, count = loop.save_file, []

    def deadly(tensors, path, **kw):
        count.append(path)
        if len(count) == 12:
            raise Stopped
        usual(tensors, path, **kw)

    monkeypatch.setattr(loop, "save_file", deadly)
    with pytest.raises(Stopped):
        loop.pretrain(jobs_of(tmp_path / "cut"), SHAPE, training, save_interval=0)
    monkeypatch.undo()
    jobs = jobs_of(tmp_path / "cut")
    assert [sorted(int(p.stem) for p in j.folder.glob("resume/*.safetensors")) for j in jobs] == [
        [5, 6],
        [5],
    ] and loop.last_saved_step(jobs) == 5
    loop.pretrain(jobs, SHAPE, training)
    for whole, cut in zip(jobs_of(tmp_path / "whole"), jobs):
        assert all(
            (whole.folder / n).read_bytes() == (cut.folder / n).read_bytes()
            for n in ("model.safetensors", "training.jsonl")
        )


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.ci)]
)
def test_a_training_that_is_asked_to_stop_goes_on_from_the_step_in_hand(
    tmp_path, monkeypatch, number
):
    """That is within a line of the log, the mean of two steps."""
    training = Training(steps=202, batch=24, learning_rate=1e-2, warmup=10)
    loop.pretrain(jobs_of(tmp_path / "whole"), SHAPE, training)
    usual, taken = loop.training_step, []

    def one_step(stack, adam, shards, step, *rest):
        taken.append(step)
        if len(taken) == 7:
            os.kill(os.getpid(), number)
        return usual(stack, adam, shards, step, *rest)

    monkeypatch.setattr(loop, "training_step", one_step)
    # set here, for whoever starts the tests in the background may have Ctrl-C ignored
    handler = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.pretrain(jobs_of(tmp_path / "stopped"), SHAPE, training)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, handler)
    jobs = jobs_of(tmp_path / "stopped")
    assert loop.last_saved_step(jobs) == 7
    loop.pretrain(jobs, SHAPE, training)
    assert taken == list(range(202))
    for whole, stopped in zip(jobs_of(tmp_path / "whole"), jobs):
        for name in ("model.safetensors", "training.jsonl"):
            assert (whole.folder / name).read_bytes() == (stopped.folder / name).read_bytes()


LONG = spec(60)


def stop_once_training(store, stop):
    """Call `stop` once the log of the training has a line, in a thread of its own."""

    def wait():
        end = time.monotonic() + 600
        while not loop.read_log(store.partial(LONG)) and time.monotonic() < end:
            time.sleep(0.002)
        stop()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("where", ["here", pytest.param("worker", marks=pytest.mark.ci)])
def test_a_run_that_is_asked_to_stop_saves_its_state_and_gives_back_its_lock(tmp_path, where):
    calm, store = Store(tmp_path / "calm"), Store(tmp_path / "stopped")
    run([LONG], calm, progress=False)
    if where == "here":
        pid = child(lambda: run([LONG], store, progress=False))
        thread = stop_once_training(store, lambda: os.kill(pid, signal.SIGTERM))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    else:
        executor = Processes(1)
        thread = stop_once_training(
            store, lambda: [worker.process.terminate() for worker in executor._children]
        )
        with pytest.raises(RuntimeError, match="exit code 143"):
            run([LONG], store, executor, progress=False)
    thread.join()
    (state,) = store.partial(LONG).glob("resume/*.safetensors")
    assert 0 < int(state.stem) < 360 and not list((store.root / "locks").glob("[0-9a-f]*"))
    run([LONG], store, progress=False)
    assert products(store, LONG) == products(calm, LONG)


def test_processes_that_prepare_batches_end_with_the_training_and_not_by_its_signal(
    tmp_path, monkeypatch
):
    """SLURM sends SIGTERM to every process of a job."""
    usual, taken = loop.training_step, []

    def one_step(stack, adam, shards, step, *rest):
        taken.append(step)
        if len(taken) == 7:
            for process in multiprocessing.active_children():
                os.kill(process.pid, signal.SIGTERM)
            time.sleep(0.5)
        return usual(stack, adam, shards, step, *rest)

    training = Training(steps=12, batch=24, learning_rate=1e-2, warmup=10)
    loop.pretrain(jobs_of(tmp_path / "alone"), SHAPE, training)
    monkeypatch.setattr(loop, "training_step", one_step)
    loop.pretrain(jobs_of(tmp_path / "beside"), SHAPE, training, workers=1)
    assert taken == list(range(12))
    for one, other in zip(jobs_of(tmp_path / "alone"), jobs_of(tmp_path / "beside")):
        name = "model.safetensors"
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()


@pytest.mark.parametrize("keep", [0, 100, -40])
def test_a_state_that_a_power_cut_has_shortened_is_passed_over(tmp_path, keep):
    """Zero bytes, a part of the header, all but the last bytes; then training starts anew."""
    training = Training(6, 24, 1e-2, 10)
    jobs = jobs_of(tmp_path)
    loop.pretrain(jobs, SHAPE, training)
    expected = [(job.folder / "model.safetensors").read_bytes() for job in jobs]
    (state,) = jobs[0].folder.glob("resume/*.safetensors")
    state.write_bytes(state.read_bytes()[:keep])
    (jobs[0].folder / "model.safetensors").unlink()
    assert loop.last_saved_step(jobs) == 0
    loop.pretrain(jobs, SHAPE, training)
    assert [(job.folder / "model.safetensors").read_bytes() for job in jobs] == expected


def test_a_log_line_cut_short_is_dropped(tmp_path):
    (tmp_path / "training.jsonl").write_text(
        '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.5}\n{"step": 3, "lo'
    )
    assert [l["step"] for l in loop.read_log(tmp_path)] == [1, 2]
    assert [l["step"] for l in loop.read_log(tmp_path, 1)] == [1] and loop.read_log(
        tmp_path / "nowhere"
    ) == []


def steps_taken(store, specs, stop_before=None):
    """Make `specs` here; the steps that each pretraining began with and took. `stop_before`: die
    before this (0 the first) pretraining.
    """
    usual, taken = loop.pretrain, []

    def counting(jobs, *args, **kw):
        if len(taken) == stop_before:
            raise KeyboardInterrupt
        taken.append([0, [j.seed for j in jobs]])
        step = loop.training_step

        def one(*a):
            taken[-1][0] += 1
            return step(*a)

        loop.training_step = one
        try:
            usual(jobs, *args, **kw, save_interval=0)
        finally:
            loop.training_step = step

    loop.pretrain = counting
    try:
        run(specs, store, progress=False)
    except KeyboardInterrupt:
        pass
    finally:
        loop.pretrain = usual
    return taken


# ---- stacks


def apart(one, other):
    """(the largest difference of the logged losses, of a weight) of two trainings that ended in
    these folders.
    """
    logs = [[l["loss"] for l in loop.read_log(f)] for f in (one, other)]
    a, b = (loop.load_stack([f]).weights for f in (one, other))
    return np.abs(np.subtract(*logs)).max(), max((a[n] - b[n]).abs().max().item() for n in a)


@pytest.mark.parametrize(
    "texts, dropout",
    (((0, 0), 0.0), ((0, 0), 0.1), ((0, 1), 0.0), ((2, 2), 0.0), ((2, 2), 0.1)),
    ids=str,
)
def test_stacked_models_are_the_models_alone(tmp_path, doubles, texts, dropout):
    """Whatever the lengths of their sentences and of their neighbours'; with dropout on one text,
    as `Dropout` says. Logs have five digits.
    """
    training, shape = (
        Training(10, 32, 5e-3, 5, dropout=dropout),
        Shape(2, 16, 1, 32, 64) if 2 in texts else SHAPE,
    )
    stacked, alone = (jobs_of(tmp_path / name, texts=texts) for name in ("stack", "alone"))
    loop.pretrain(stacked, shape, training)
    for job in alone:
        loop.pretrain([job], shape, training)
    for one, other in zip(stacked, alone):
        losses, weights = apart(one.folder, other.folder)
        assert len(loop.read_log(one.folder)) == 40 and losses < 1.5e-5 and weights < 1e-8
    assert apart(stacked[0].folder, stacked[1].folder)[1] > 0.01, "two models, not one"


def test_jobs_of_unequal_length_are_refused(tmp_path):
    from dataclasses import replace

    one, other = jobs_of(tmp_path)
    m = other.dataset
    short = replace(
        other,
        dataset=replace(m, first=m.first[:30], second=m.second[:30], language=m.language[:30]),
    )
    with pytest.raises(ValueError, match="same number of steps"):
        loop.pretrain([one, short], SHAPE, Training(1, 16))
    larger = replace(other, dataset=replace(m, vocabulary=90))
    with pytest.raises(ValueError, match="vocabulary"):
        loop.pretrain([one, larger], SHAPE, Training(1, 16))


# ---- snapshots


def test_snapshots_are_checkpoints_of_that_step(tmp_path):
    """A snapshot on the way is what a training of the same schedule holds then; the first is the
    start, the last the end.
    """
    training, at = Training(4, 40, 1e-2, 3), (0, 5, 12)
    (job,) = jobs_of(tmp_path, seeds=(3,), snapshots=at)
    reached = {}
    usual = loop.training_step

    def watched(s, adam, batch, step, *rest):
        reached[step] = s.weights["embeddings.word_embeddings.weight"][0].detach().clone()
        return usual(s, adam, batch, step, *rest)

    loop.training_step = watched
    try:
        loop.pretrain([job], SHAPE, training)
    finally:
        loop.training_step = usual
    folders = [job.folder / f"step-{step:06d}" for step in at]
    assert sorted(job.folder.glob("step-*")) == folders
    for step, folder in zip(at, folders):
        model, report = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
        assert (
            not report["missing_keys"]
            and not report["unexpected_keys"]
            and not report["mismatched_keys"]
        )
        table = model.get_input_embeddings().weight.detach()
        assert table.data_ptr() == model.get_output_embeddings().weight.data_ptr(), "tied"
        if step in reached:
            assert torch.equal(table, reached[step])
        assert tokenizers.read_tokenizer(folder).get_vocab() == job.tokenizer.get_vocab()
    assert (folders[-1] / "model.safetensors").read_bytes() == (
        job.folder / "model.safetensors"
    ).read_bytes()
    (untrained,) = jobs_of(tmp_path / "untrained", seeds=(3,))
    loop.pretrain([untrained], SHAPE, Training(0, 40))
    assert (folders[0] / "model.safetensors").read_bytes() == (
        untrained.folder / "model.safetensors"
    ).read_bytes()
    assert not (untrained.folder / "training.jsonl").exists()


# ---- the schedule and the step


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 60), st.integers(1, 200), st.floats(1e-6, 1))
def test_learning_rate_is_that_of_hugging_face(warmup, steps, rate):
    adam = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    schedule, training = (
        get_linear_schedule_with_warmup(adam, warmup, steps),
        Training(learning_rate=rate, warmup=warmup),
    )
    for step in range(steps):
        assert scheduled_learning_rate(training, step, steps) == pytest.approx(
            adam.param_groups[0]["lr"], rel=1e-12
        )
        adam.step()
        schedule.step()
    assert scheduled_learning_rate(training, steps, steps) == pytest.approx(
        adam.param_groups[0]["lr"], rel=1e-12
    )


def test_the_log_tells_mean_losses_and_the_rates_that_were_used(tmp_path):
    """300 steps: a line every third; the rates are those that the optimiser had; the losses are the
    means between lines.
    """
    (job,), training, used = (
        jobs_of(tmp_path, seeds=(1,)),
        Training(25, 10, 1e-2, 20, dropout=0.0),
        [],
    )
    usual = loop.training_step

    def watched(stack, adam, *rest):
        loss = usual(stack, adam, *rest)
        used.append((adam.param_groups[0]["lr"], adam.param_groups[1]["lr"], loss.item()))
        return loss

    loop.training_step = watched
    try:
        loop.pretrain([job], Shape(1, 8, 1, 16, 16), training)
    finally:
        loop.training_step = usual
    log = loop.read_log(job.folder)
    assert len(used) == 300 and [l["step"] for l in log] == list(range(3, 301, 3))
    for line in log:
        last = used[line["step"] - 3 : line["step"]]
        assert (
            line["learning_rate"]
            == last[-1][0]
            == last[-1][1]
            == scheduled_learning_rate(training, line["step"] - 1, 300)
        )
        assert line["loss"] == pytest.approx(np.mean([u[2] for u in last]), abs=2e-5)


@pytest.mark.parametrize("clip", (0.05, 1e9), ids=("clipped", "free"))
def test_steps_are_those_of_adamw_on_the_hugging_face_model(tmp_path, doubles, clip):
    """The same start and batches through transformers, torch.optim.AdamW, clip_grad_norm_ and the
    linear schedule, without random tokens (transformers gives [PAD] no gradient as an input). Ours
    adds 1e-6 to the norm by which it clips, as PyTorch does.
    """
    shape, training = Shape(2, 24, 3, 48, 16), Training(3, 40, 1e-2, 4, dropout=0.0, clip=clip)
    (job,) = jobs_of(
        tmp_path / "ours",
        seeds=(9,),
        masking="no_random",
        special_offset=40,
        position_offset=16,
        token_type=1,
    )
    loop.pretrain([job], shape, training)
    (start,) = jobs_of(
        tmp_path / "start",
        seeds=(9,),
        masking="no_random",
        special_offset=40,
        position_offset=16,
        token_type=1,
    )
    loop.pretrain([start], shape, Training(0, dropout=0.0))
    model = AutoModelForMaskedLM.from_pretrained(start.folder).train().double()
    plain = [p for n, p in model.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
    heavy = [p for n, p in model.named_parameters() if not (n.endswith("bias") or "LayerNorm" in n)]
    adam = torch.optim.AdamW(
        [dict(params=heavy, weight_decay=0.01), dict(params=plain, weight_decay=0.0)],
        lr=1e-2,
        eps=1e-6,
    )
    schedule, order, theirs, norms = (
        get_linear_schedule_with_warmup(adam, 4, 9),
        BatchSampler(120, 40, 9),
        [],
        [],
    )
    for step in range(9):
        indices = order(step)
        inputs, labels = padded(
            job.dataset,
            indices,
            make_batch(
                job.dataset, indices, job.masking, (16, 16), seeded_generator(MASKS, 9, step)
            ),
        )
        loss = model(**inputs, labels=labels).loss
        adam.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        adam.step()
        schedule.step()
        theirs.append(loss.item())
    assert (min(norms) > clip) if clip < 1 else (max(norms) < clip)
    assert np.allclose([l["loss"] for l in loop.read_log(job.folder)], theirs, rtol=0, atol=1e-5), (
        "five digits are logged"
    )
    ours, before = (AutoModelForMaskedLM.from_pretrained(j.folder).double() for j in (job, start))
    before = dict(before.named_parameters())
    trained = dict(model.named_parameters())
    for name, w in ours.named_parameters():
        moved, gap = (trained[name] - before[name]).abs().max(), (trained[name] - w).abs().max()
        assert gap < 1e-8 and (moved > 1e-4 or "key.bias" in name), (
            f"{name}: {gap} apart after {moved}"
        )


def test_a_loss_that_is_not_finite_names_seed_and_step(tmp_path):
    jobs, training = jobs_of(tmp_path, seeds=(7, 8)), Training(4, 40, 1e20, 1)
    with pytest.raises(
        FloatingPointError, match=r"seed 7 is nan at step \d+: lower the learning rate"
    ):
        loop.pretrain(jobs, SHAPE, training)
    assert not (jobs[0].folder / "model.safetensors").exists() and not list(
        jobs[0].folder.glob("resume/*")
    )
    assert all(np.isfinite(l["loss"]) for l in loop.read_log(jobs[0].folder))


def test_the_model_that_diverged_is_the_one_named():
    jobs = [SimpleNamespace(seed=s) for s in (1, 2, 3)]
    loop.check_finite_losses(jobs, torch.tensor([1.0, 2.0, 3.0]), 5)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(FloatingPointError, match="seed 2 is (nan|inf) at step 5"):
            loop.check_finite_losses(jobs, torch.tensor([1.0, bad, 3.0]), 5)


# ---- what a model is trained on is what is measured


@pytest.fixture(
    scope="module",
    params=[(True, True), (True, False), (False, True), (False, False)],
    ids=("both", "lang_pos", "shift_special", "neither"),
)
def seen(request, tmp_path_factory):
    """An untrained checkpoint for English and inverted Fake-English whose longest input, 12 tokens,
    is shorter than many a sentence.
    """
    lang_pos, shift_special = request.param
    made = spec(
        0, INVERTED, shape=Shape(1, 8, 1, 16, 12), lang_pos=lang_pos, shift_special=shift_special
    )
    store = Store(tmp_path_factory.mktemp("views"))
    run([made], store, progress=False)
    tokenizer = tokenizers.read_tokenizer(store.path(TOKENIZER))
    size = tokenizer.get_vocab_size()
    texts = [token_ids(l, tokenizer, store, 12) for l in made.languages]
    return SimpleNamespace(
        spec=made,
        store=store,
        size=size,
        tokenizer=tokenizer,
        checkpoint=load_checkpoint(store.path(made)),
        texts=texts,
        dataset=build_sentence_dataset(texts, language_views(made, size), 2 * size, 12),
    )


def training_view(seen, language, i):
    """(ids, positions, types) as the sentence `i` of the language `language` enters training."""
    s = assemble_batch(seen.dataset, np.array([language * 48 + i]))
    return s.ids.tolist(), s.positions.tolist(), s.types.tolist()


def measuring_view(checkpoint, texts, name, i):
    """(ids, positions, types) of the unpadded input in which measures feed sentence `i`, defaults
    as BERT fills them in.
    """
    fitted, _ = check_and_truncate(checkpoint, texts, name)
    inputs, rows = model_inputs(checkpoint, fitted, np.array([i]), name)
    n = inputs["input_ids"].shape[1]
    assert inputs["attention_mask"].all() and rows.tolist() == list(range(1, n - 1))
    filled = {
        "position_ids": torch.arange(n)[None],
        "token_type_ids": torch.zeros(1, n, dtype=torch.long),
    } | inputs
    return tuple(filled[k][0].tolist() for k in ("input_ids", "position_ids", "token_type_ids"))


def by_hand(seen, language, i):
    """D Figure 3 and section 2.4 spelled out for one sentence."""
    words = seen.tokenizer.encode(
        read_corpus(seen.store.path(CORPUS)).sentences[i], add_special_tokens=False
    ).ids[:10]
    second, size, s = language == 1, seen.size, seen.spec
    if second:
        words = [w + size for w in reversed(words)]
    special, place, own = (
        size * (second and s.shift_special),
        12 * (second and s.lang_pos),
        int(second and s.lang_pos),
    )
    ids = [CLS + special, *words, SEP + special]
    return ids, [place + j for j in range(len(ids))], [own] * len(ids)


@pytest.mark.parametrize("language, name", ((0, "en"), (1, "enfake")), ids=("en", "enfake"))
def test_the_view_in_training_is_the_view_in_measuring(seen, language, name):
    texts = seen.texts[language]
    cut = [len(s.split()) > 10 for s in read_corpus(seen.store.path(CORPUS)).sentences]
    assert 5 < sum(cut) < 43 and texts.lengths.max() == 10
    for i in range(48):
        assert (
            training_view(seen, language, i)
            == measuring_view(seen.checkpoint, texts, name, i)
            == by_hand(seen, language, i)
        )


def test_padding_in_a_measured_batch_changes_no_view(seen):
    """A batch of all sentences: each row, its padding taken off, is the view of its sentence."""
    for language, name in enumerate(("en", "enfake")):
        inputs, _ = model_inputs(seen.checkpoint, seen.texts[language], np.arange(48), name)
        for i in range(48):
            n = int(inputs["attention_mask"][i].sum())
            ids, positions, types = training_view(seen, language, i)
            assert inputs["input_ids"][i, :n].tolist() == ids
            if "position_ids" in inputs:
                assert inputs["position_ids"][i, :n].tolist() == positions
            else:
                assert positions == list(range(n))
            assert types == (
                inputs["token_type_ids"][i, :n].tolist() if "token_type_ids" in inputs else [0] * n
            )


def test_the_mask_of_training_is_the_mask_of_measuring(seen):
    for language, name in enumerate(("en", "enfake")):
        s = assemble_batch(seen.dataset, np.arange(48) + language * 48)
        ids, chosen = mask_tokens(s, Masking(1, 0, 0), 2 * seen.size, seeded_generator(MASKS, 0, 0))
        measured = seen.checkpoint.mask + seen.checkpoint.view(name).special_offset
        assert (
            set(ids[chosen])
            == {measured}
            == {MASK + seen.size * (language and seen.spec.shift_special)}
        )


def test_a_reader_of_the_checkpoint_alone_cuts_long_sentences_where_training_did(seen):
    """With nothing but the folder: its tokenizer, its views, sentences that were not cut."""
    whole = tokenizers.encode(
        tokenizers.read_tokenizer(seen.checkpoint.path),
        read_corpus(seen.store.path(CORPUS)).sentences,
    )
    from xlingual_nb.text import transforms

    for language, name in enumerate(("en", "enfake")):
        raw = transforms.apply_transforms(
            seen.spec.languages[language].transforms, whole, seen.size
        )
        for i in range(48):
            assert measuring_view(seen.checkpoint, raw, name, i) == training_view(seen, language, i)
