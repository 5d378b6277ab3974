"""Train Dufter & Schütze's small models at the published size on one GPU, and what D's code does otherwise.

    python benchmarks/published_size.py plan
    python benchmarks/published_size.py train STORE --arms paper --device cuda
    python benchmarks/published_size.py measure STORE [--output FILE]

An arm is a row of Table 1 read as the paper's text says, as D's code does, or with one of the code's
departures alone (`ARMS`). All models of a call train as one program of fixed shapes, which a CUDA graph
replays. Losses and gradients are those of `models.training`, up to rounding; a check of both is printed
first. The finished models are ordinary pretraining runs of the store, so that `xlingual run 07 --scale paper
-p corpus=bible` finds them; their manifest names this script.

A model's dropout follows its own seed and the shape of the batch: a model is the same in another company up
to the rounding of matrix products, and another one than the engine's, which draws for shorter batches.
"""

import argparse
import hashlib
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from result_tables import RESULTS, put_rows, read_rows

from xlingual_nb.experiments.laboratory import parse_row_label, row_spec, table_rows
from xlingual_nb.experiments.scales import laboratory_config, laboratory_text
from xlingual_nb.measures.multilinguality import (
    MeasureSpec,
    compared_languages,
    development_ids,
)
from xlingual_nb.models import training as loop
from xlingual_nb.models.configs import scheduled_epsilon, scheduled_learning_rate
from xlingual_nb.models.encoder import (
    Dropout,
    attention_mask,
    embedding_lookup,
    mean_cross_entropy,
    mlm_logits,
    stack_batches,
    stacked_layer_norm,
    training_losses,
)
from xlingual_nb.models.mlm_batches import (
    DROPOUT,
    PAD,
    SEP,
    Batch,
    BatchSampler,
    choose_row_lengths,
    seeded_generator,
)
from xlingual_nb.models.pretraining import find_language_view, training_job
from xlingual_nb.runs import engine
from xlingual_nb.runs.files import load_json, write_atomic
from xlingual_nb.runs.run_folder import begin, publish
from xlingual_nb.runs.plan import code_behind
from xlingual_nb.runs.spec import parents, run_id
from xlingual_nb.runs.store import Store
from xlingual_nb.text import tokenizers
from xlingual_nb.text.tokenizers import SPECIALS

SEEDS = (0, 42, 43)
KEYS = ["scale", "corpus", "arm", "row", "seed"]
ROWS = {parse_row_label(row)[0]: row for row in table_rows("table1")}

# Each arm: the rows it is asked of, and what it changes in their reading by the paper's text.
ARMS = {
    "paper": ("1", "4", "5", "6", "7", "2", "9"),
    "released": ("1", "4"),
    "padding": ("1",),
    "split": ("4",),
    "epsilon": ("1",),
    "leak": ("5",),
}


def arm_spec(arm: str, row: str, sizes, seed: int):
    """The pretraining of a row (its identifier in Table 1) in an arm."""
    label = ROWS[row]
    if arm == "released":
        return replace(row_spec(label, sizes, seed, "released"), snapshots=())
    spec = replace(row_spec(label, sizes, seed), snapshots=())
    if arm == "padding":
        return replace(spec, visible_padding=True)
    if arm == "split":
        return replace(spec, masking="no_random_released")
    if arm == "epsilon":
        return replace(spec, training=replace(spec.training, early_epsilon=True))
    return spec


# ---------------------------------------------------------------------------------------------------
# Batches of a fixed shape


@dataclass(frozen=True)
class Layout:
    """The fixed shape of a batch: rows of each of the two groups, their lengths, and masked tokens."""

    counts: tuple[int, int]
    lengths: tuple[int, int]
    masked: int


def fill(array: np.ndarray, count: int, empty: int) -> np.ndarray:
    """`array` with rows of `empty` up to `count` of them."""
    missing = np.full((count - len(array), *array.shape[1:]), empty, array.dtype)
    return np.concatenate([array, missing])


def fits(batch: Batch, layout: Layout) -> bool:
    counts = [len(group["ids"]) for group in batch.groups]
    return (
        all(n <= most for n, most in zip(counts, layout.counts))
        and len(batch.masked) <= layout.masked
    )


def fill_batch(batch: Batch, layout: Layout) -> Batch:
    """A batch filled up to the layout; nothing attends to the new rows, and they have no labels."""
    empty = {"ids": PAD, "positions": 0, "types": 0, "sentence": -1}
    groups = []
    for group, count in zip(batch.groups, layout.counts):
        groups.append({name: fill(group[name], count, empty[name]) for name in group})
    return replace(
        batch,
        groups=tuple(groups),
        masked=fill(batch.masked, layout.masked, 0),
        labels=fill(batch.labels, layout.masked, -100),
    )


def leak_specials(batch: Batch, shift: int) -> Batch:
    """The batch as D's code shifts special tokens: after masking, and by what a sentence holds then.

    An English sentence in which a random replacement came from Fake-English counts as Fake-English, and
    all its special tokens are shifted, [MASK] included.
    """
    groups = []
    for group in batch.groups:
        ids = group["ids"].copy()
        sentence = group["sentence"]
        foreign = np.unique(sentence[(ids >= shift + len(SPECIALS)) & (sentence >= 0)])
        is_special = (ids < len(SPECIALS)) & np.isin(sentence, foreign)
        ids[is_special] += shift
        groups.append(group | {"ids": ids})
    return replace(batch, groups=tuple(groups))


class FixedBatches(torch.utils.data.Dataset):
    """The stacked batches of all steps, filled up to one of a few layouts.

    Parameters
    ----------
    jobs : list of TrainingJob
    training : Training
    steps : int
    leaks : list of int
        Of each job, by how much its special tokens leak (`leak_specials`); 0 for not at all.
    """

    def __init__(self, jobs, training, steps: int, leaks: list[int]):
        self.jobs = jobs
        self.training = training
        self.steps = steps
        self.leaks = leaks
        self.samplers = [BatchSampler(len(j.dataset), training.batch, seed=j.seed) for j in jobs]
        lengths = np.concatenate([j.dataset.lengths for j in jobs])
        self.rows = choose_row_lengths(lengths, training.batch)
        self.is_padded = jobs[0].dataset.padded
        self.layouts = self.choose_layouts()

    def __len__(self):
        return self.steps

    def longest(self, step: int) -> int:
        return max(int(j.dataset.lengths[s(step)].max()) for j, s in zip(self.jobs, self.samplers))

    def batches(self, step: int, rows) -> list[Batch]:
        made = []
        for job, sampler, leak in zip(self.jobs, self.samplers, self.leaks):
            batch = loop.job_batch(job, self.training, sampler(step), step, rows)
            made.append(leak_specials(batch, leak) if leak else batch)
        return made

    def choose_layouts(self, sample: int = 40) -> list[Layout]:
        """Layouts that nearly all batches fit into, from a sample of the steps."""
        steps = np.linspace(0, self.steps - 1, sample).astype(int)
        counts = []
        masked = []
        for step in steps:
            for batch in self.batches(step, self.rows):
                counts.append([len(group["ids"]) for group in batch.groups])
                masked.append(len(batch.masked))
        n_masked = int(np.max(masked) * 1.04) + 8
        if not self.is_padded:
            most = np.max(counts, 0) + 1
            return [Layout((int(most[0]), int(most[1])), self.rows, n_masked)]
        # A sentence a row, as long as the longest of its batch.
        last = -(-max(int(j.dataset.lengths.max()) for j in self.jobs) // 8) * 8
        batch = self.training.batch
        return [Layout((batch, 0), (row, last), n_masked) for row in (40, last) if row <= last]

    def layout_of(self, step: int) -> Layout:
        if not self.is_padded:
            return self.layouts[0]
        longest = self.longest(step)
        return next(each for each in self.layouts if each.lengths[0] >= longest)

    def __getitem__(self, step: int):
        layout = self.layout_of(step)
        batches = self.batches(step, layout.lengths)
        if all(fits(batch, layout) for batch in batches):
            batches = [fill_batch(batch, layout) for batch in batches]
        return stack_batches(batches)


# ---------------------------------------------------------------------------------------------------
# The forward pass, as `models.encoder` has it, with random bits in place of masks


def draw_bits(shape, seeds, step: int, rows, device) -> list[torch.Tensor]:
    """The random bits (M, rows, values) of `models.encoder.Dropout`, of each group of rows."""
    values = Dropout.__new__(Dropout)
    values.shape = shape
    bits = []
    for group in rows:
        hidden, attention = values.per_row(group.length)
        n = (1 + 2 * shape.layers) * hidden + shape.layers * attention
        bits.append(torch.empty(len(seeds), group.count, n, dtype=torch.int16, device=device))
    redraw_bits(bits, seeds, step, rows, [torch.Generator(device) for _ in seeds])
    return bits


def redraw_bits(bits, seeds, step: int, rows, generators) -> None:
    """Draw the bits of a step in place."""
    for group, values in zip(rows, bits):
        for m, seed in enumerate(seeds):
            rng = seeded_generator(DROPOUT, seed, step, group.length)
            generators[m].manual_seed(int(rng.integers(1 << 62)))
            values[m].random_(-32768, 32768, generator=generators[m])


def as_dropout(shape, rows, bits, p: float) -> Dropout:
    """The engine's `Dropout` with masks of these bits, to check the fused pass against."""
    dropout = Dropout.__new__(Dropout)
    dropout.shape = shape
    dropout.rows = rows
    dropout.models = len(bits[0])
    dropout.pools = [(b >= round(p * 65536) - 32768).float().mul_(1 / (1 - p)) for b in bits]
    return dropout


def kept(bits, threshold: int, scale: float):
    return (bits >= threshold) * scale


def layer_norm(x, gain, bias):
    return torch.addcmul(bias[:, None], F.layer_norm(x, x.shape[-1:], eps=1e-12), gain[:, None])


def linear(x, weight, bias):
    return torch.baddbmm(bias[:, None], x, weight.mT)


def encoder_block(x, masks, attention_bits, first_bits, second_bits, weights, dropout, heads: int):
    """One block of BERT on (M, tokens, hidden): `models.encoder.encoder_layer` of tensors alone.

    Parameters
    ----------
    masks : tuple of Tensor, shape (M * rows * heads, length, length)
        Additive attention mask of each group of rows.
    attention_bits, first_bits, second_bits : tuple of Tensor, shape (M, rows, values)
        Bits of the dropout of attention, of its output, and of the feed-forward layer.
    weights : tuple of Tensor
    dropout : tuple
        Threshold of the bits, and scale of what is kept.
    """
    qkv_w, qkv_b, out_w, out_b, gain_1, bias_1, in_w, in_b, ff_w, ff_b, gain_2, bias_2 = weights
    models, tokens, width = x.shape
    size = width // heads

    def drop(values, bits):
        return values * torch.cat([kept(b, *dropout).reshape(models, -1, width) for b in bits], 1)

    qkv = linear(x, qkv_w, qkv_b)
    attended = []
    start = 0
    for mask, bits in zip(masks, attention_bits):
        length = mask.shape[-1]
        count = bits.shape[1]
        stop = start + count * length
        parts = qkv[:, start:stop].reshape(models * count, length, 3, heads, size)
        q, k, v = parts.permute(2, 0, 3, 1, 4).flatten(1, 2).unbind()
        p = torch.baddbmm(mask, q, k.mT, alpha=size**-0.5).softmax(-1)
        p = p * kept(bits, *dropout).reshape(-1, length, length)
        out = torch.bmm(p, v).view(-1, heads, length, size).transpose(1, 2)
        attended.append(out.reshape(models, -1, width))
        start = stop
    x = layer_norm(
        x + drop(linear(torch.cat(attended, 1), out_w, out_b), first_bits), gain_1, bias_1
    )
    inner = F.gelu(linear(x, in_w, in_b))
    return layer_norm(x + drop(linear(inner, ff_w, ff_b), second_bits), gain_2, bias_2)


def block_weights(stack, layer: int) -> tuple[torch.Tensor, ...]:
    names = (
        "attention.qkv.weight",
        "attention.qkv.bias",
        "attention.output.dense.weight",
        "attention.output.dense.bias",
        "attention.output.LayerNorm.weight",
        "attention.output.LayerNorm.bias",
        "intermediate.dense.weight",
        "intermediate.dense.bias",
        "output.dense.weight",
        "output.dense.bias",
        "output.LayerNorm.weight",
        "output.LayerNorm.bias",
    )
    return tuple(stack.weights[f"{layer}.{name}"] for name in names)


def losses(stack, batch, bits, p: float, still, block=encoder_block):
    """Loss of each model (M,); `still` (M,) says whose [PAD] gets no gradient as an input."""
    shape = stack.shape
    dropout = (round(p * 65536) - 32768, 1 / (1 - p))
    hidden = [r.length * shape.hidden for r in batch.rows]
    starts = [(1 + 2 * shape.layers) * size for size in hidden]
    attention = [shape.heads * r.length**2 for r in batch.rows]

    def hidden_bits(i):
        return tuple(b[:, :, i * n : (i + 1) * n] for b, n in zip(bits, hidden))

    def attention_bits(layer):
        parts = zip(bits, starts, attention)
        return tuple(b[:, :, s + layer * n : s + (layer + 1) * n] for b, s, n in parts)

    words = embedding_lookup(stack, "word_embeddings", batch.ids)
    is_still = ((batch.ids == PAD) & still[:, None])[..., None]
    words = torch.where(is_still, words.detach(), words)
    x = words + embedding_lookup(stack, "position_embeddings", batch.positions)
    x = x + embedding_lookup(stack, "token_type_embeddings", batch.types)
    x = stacked_layer_norm(stack, x, "embeddings")
    masks = [kept(b, *dropout).reshape(len(stack), -1, shape.hidden) for b in hidden_bits(0)]
    x = x * torch.cat(masks, 1)
    additive = tuple(attention_mask(r, shape.heads) for r in batch.rows)
    for layer in range(shape.layers):
        x = block(
            x,
            additive,
            attention_bits(layer),
            hidden_bits(1 + 2 * layer),
            hidden_bits(2 + 2 * layer),
            block_weights(stack, layer),
            dropout,
            shape.heads,
        )
    states = x.gather(1, batch.masked[..., None].expand(-1, -1, x.shape[-1]))
    return mean_cross_entropy(mlm_logits(stack, states), batch.labels)


# ---------------------------------------------------------------------------------------------------
# AdamW with an epsilon for each model, and the loop


class AdamW:
    """AdamW on the flat weights of a stack, each model with its own epsilon.

    The step's numbers are tensors, so that a CUDA graph can replay it.
    """

    def __init__(self, stack, training, is_early: list[bool]):
        device = stack.flat[0].device
        self.stack = stack
        self.training = training
        self.is_early = is_early
        self.moments = [(torch.zeros_like(f), torch.zeros_like(f)) for f in stack.flat]
        self.numbers = torch.zeros(3, device=device)  # rate, both bias corrections
        self.epsilon = torch.zeros(len(stack), 1, device=device)

    def set_step(self, step: int, steps: int) -> None:
        training = self.training
        rate = scheduled_learning_rate(training, step, steps)
        corrections = [1 - 0.9 ** (step + 1), (1 - 0.999 ** (step + 1)) ** 0.5]
        self.numbers.copy_(torch.tensor([rate, *corrections]), non_blocking=True)
        ordinary = scheduled_epsilon(replace(training, early_epsilon=False), step)
        early = scheduled_epsilon(replace(training, early_epsilon=True), step)
        epsilon = [[early if is_early else ordinary] for is_early in self.is_early]
        self.epsilon.copy_(torch.tensor(epsilon), non_blocking=True)

    def step(self) -> None:
        rate, first, second = self.numbers
        for flat, moments, decay in zip(
            self.stack.flat, self.moments, (self.training.weight_decay, 0.0)
        ):
            mean, square = moments
            mean.lerp_(flat.grad, 0.1)
            square.mul_(0.999).addcmul_(flat.grad, flat.grad, value=0.001)
            update = mean / first / (square.sqrt() / second + self.epsilon)
            flat.data.mul_(1 - rate * decay).sub_(rate * update)


class Trainer:
    """One training step of a stack, as a CUDA graph a layout where there is a GPU."""

    def __init__(self, stack, training, is_early, still):
        device = stack.flat[0].device
        self.stack = stack
        self.training = training
        self.adam = AdamW(stack, training, is_early)
        self.still = torch.tensor(still, device=device)
        self.uses_graphs = device.type == "cuda"
        self.block = encoder_block
        if self.uses_graphs:
            self.block = torch.compile(encoder_block, dynamic=False)
        self.generators = [torch.Generator(device) for _ in stack.seeds]
        self.graphs = {}

    def compute(self, batch, bits, block) -> torch.Tensor:
        loss = losses(self.stack, batch, bits, self.training.dropout, self.still, block)
        self.stack.backward(loss)
        loop.clip_gradients_(self.stack, self.training.clip)
        self.adam.step()
        return loss.detach()

    def capture(self, batch) -> tuple:
        """The graph of a step on batches shaped like this one, with its own inputs and outputs."""
        static = batch.to(self.stack.device)
        bits = draw_bits(self.stack.shape, self.stack.seeds, 0, static.rows, self.stack.device)
        saved = [t.clone() for t in (*self.stack.flat, *sum(self.adam.moments, ()))]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.compute(static, bits, self.block)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values()))[0].pool() if self.graphs else None
        with torch.cuda.graph(graph, pool=pool):
            loss = self.compute(static, bits, self.block)
        for tensor, value in zip((*self.stack.flat, *sum(self.adam.moments, ())), saved):
            tensor.data.copy_(value)
        return graph, static, bits, loss

    def __call__(self, batch, step: int, steps: int, is_fixed: bool) -> torch.Tensor:
        """Take a step; gives the losses (M,) before it."""
        self.adam.set_step(step, steps)
        if not (self.uses_graphs and is_fixed):
            moved = batch.to(self.stack.device)
            bits = draw_bits(
                self.stack.shape, self.stack.seeds, step, moved.rows, self.stack.device
            )
            return self.compute(moved, bits, encoder_block)
        key = tuple((r.count, r.length) for r in batch.rows)
        if key not in self.graphs:
            self.graphs[key] = self.capture(batch)
            self.adam.set_step(step, steps)
        graph, static, bits, loss = self.graphs[key]
        for name in ("ids", "positions", "types", "masked", "labels"):
            getattr(static, name).copy_(getattr(batch, name), non_blocking=True)
        for own, other in zip(static.rows, batch.rows):
            own.sentence.copy_(other.sentence, non_blocking=True)
        redraw_bits(bits, self.stack.seeds, step, static.rows, self.generators)
        graph.replay()
        return loss


def check_against_engine(trainer: Trainer, batch) -> None:
    """Print how far loss and gradient are from the engine's, on one batch with the same dropout."""
    stack = trainer.stack
    moved = batch.to(stack.device)
    bits = draw_bits(stack.shape, stack.seeds, 0, moved.rows, stack.device)
    stack.still_pad = bool(trainer.still.any())
    dropout = as_dropout(stack.shape, moved.rows, bits, trainer.training.dropout)
    expected = training_losses(stack, moved, dropout)
    stack.backward(expected)
    gradients = [flat.grad.clone() for flat in stack.flat]
    loss = losses(stack, moved, bits, trainer.training.dropout, trainer.still, trainer.block)
    stack.backward(loss)
    apart = [((f.grad - g).norm() / g.norm()).item() for f, g in zip(stack.flat, gradients)]
    print(
        f"check: losses {(loss - expected).abs().max().item():.1e} apart, "
        f"gradients {max(apart):.1e} of their norm (models whose [PAD] moves are counted with it still)",
        flush=True,
    )


def train_stack(jobs, shape, training, leaks, is_early, still, device, workers, limit) -> None:
    """Train the jobs as one stack, and save checkpoint and log of each in its folder."""
    steps = loop.total_steps(jobs[0], training)
    stack, configs = loop.initialise_stack(jobs, shape, training, torch.device(device))
    trainer = Trainer(stack, training, is_early, still)
    batches = FixedBatches(jobs, training, steps, leaks)
    fixed = {
        tuple((n, length) for n, length in zip(each.counts, each.lengths) if n)
        for each in batches.layouts
    }
    print(f"{len(jobs)} models, {steps} steps, layouts {batches.layouts}", flush=True)
    loader = torch.utils.data.DataLoader(
        batches,
        batch_size=None,
        num_workers=workers,
        prefetch_factor=8 if workers else None,
    )
    logs = [[] for _ in jobs]
    interval = max(1, steps // 100)
    total = torch.zeros(len(jobs), device=device)
    n_eager = 0
    for step, batch in enumerate(loader):
        if step == 0:
            check_against_engine(trainer, batch)
        shape_of_batch = tuple((r.count, r.length) for r in batch.rows)
        is_fixed = shape_of_batch in fixed and batch.masked.shape[1] == batches.layouts[0].masked
        n_eager += not is_fixed
        total += trainer(batch, step, steps, is_fixed)
        if step == 100:
            sync(device)
            begun = time.monotonic()
        if step == 300:
            sync(device)
            seconds = (time.monotonic() - begun) / 200 * steps
            print(f"{seconds / steps * 1e3:.1f} ms a step, {seconds:.0f} s in all", flush=True)
            if seconds > limit:
                raise SystemExit(f"over the limit of {limit} s: train fewer rows at a time")
        if (step + 1) % interval == 0 or step + 1 == steps:
            rate = scheduled_learning_rate(training, step, steps)
            loop.check_finite_losses(jobs, total, step)
            for log, value in zip(logs, (total / (step % interval + 1)).tolist()):
                log.append({"step": step + 1, "loss": round(value, 5), "learning_rate": rate})
            total.zero_()
        if (step + 1) % (interval * 10) == 0:
            print(f"step {step + 1}: {[log[-1]['loss'] for log in logs]}", flush=True)
    print(f"{n_eager} of {steps} steps without a graph", flush=True)
    for m, job in enumerate(jobs):
        lines = "".join(json.dumps(line) + "\n" for line in logs[m])
        write_atomic(job.folder / "training.jsonl", lines)
        loop.save_checkpoint(job.folder, stack, m, configs[m], job.tokenizer)


def sync(device) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


# ---------------------------------------------------------------------------------------------------
# Commands


def wanted(arms: list[str], rows: list[str], seeds, sizes) -> list[tuple]:
    """(arm, row, seed, spec) of every model that is asked for."""
    asked = []
    for arm in arms:
        for row in ARMS[arm]:
            if rows and row not in rows:
                continue
            for seed in seeds:
                asked.append((arm, row, seed, arm_spec(arm, row, sizes, seed)))
    return asked


@cache
def store_of(root: Path, arm: str) -> Store:
    """The store of an arm. What a spec cannot say, how special tokens leak, has a store of its own."""
    return Store(root / "leak" if arm == "leak" else root)


def train(root: Path, asked: list[tuple], device: str, workers: int, limit: float) -> None:
    """Train what the store lacks, all of it as one stack, and publish it.

    Left out, and printed, are models that another process trains.
    """
    todo = [each for each in asked if not store_of(root, each[0]).has(each[3])]
    if len({spec.visible_padding for *_, spec in todo}) > 1:
        raise SystemExit("models with and without visible padding train apart: name other --arms")
    script = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    begun = time.monotonic()
    ours, jobs, leaks = [], [], []
    with ExitStack() as locks:
        for arm, row, seed, spec in todo:
            store = store_of(root, arm)
            engine.run(parents(spec), store, progress=False)
            # without waiting: two processes that take several locks would wait for each other
            if not locks.enter_context(store.lock(spec, wait=False)):
                print(f"left out, another process has it: {arm}:{row}:{seed}", flush=True)
                continue
            folder = begin(store, spec, code_behind([spec]))
            content = load_json(folder / "begun.json")
            content["about"]["script"] = f"benchmarks/published_size.py {script}"
            write_atomic(folder / "begun.json", json.dumps(content))
            tokenizer = tokenizers.read_tokenizer(store.path(spec.tokenizer))
            jobs.append(training_job(spec, folder, tokenizer, store))
            leaks.append(tokenizer.get_vocab_size() if arm == "leak" else 0)
            ours.append((arm, spec))
        if not jobs:
            print("nothing to train")
            return
        specs = [spec for _, spec in ours]
        print(f"data ready after {time.monotonic() - begun:.0f} s", flush=True)
        train_stack(
            jobs,
            specs[0].shape,
            replace(specs[0].training, early_epsilon=False, still_pad=False),
            leaks,
            is_early=[s.training.early_epsilon for s in specs],
            still=[s.training.still_pad for s in specs],
            device=device,
            workers=workers,
            limit=limit,
        )
        partners = [run_id(spec) for spec in specs]
        for arm, spec in ours:
            publish(store_of(root, arm), spec, time.monotonic() - begun, partners)
    print(f"trained {len(ours)} models in {time.monotonic() - begun:.0f} s", flush=True)


def padded_retrieval(folder: Path, texts, views, batch: int = 256) -> dict[str, float]:
    """ρ at layers 0 and 8 with [PAD] visible, as D's code evaluates: batches in the order of the text.

    Sentence vectors are means over the content tokens; ρ is the mean over both directions.
    """
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    vectors = {0: [], 8: []}
    for text, view in zip(texts, views):
        means = {layer: [] for layer in vectors}
        for first in range(0, len(text), batch):
            sentences = [text[i] for i in range(first, min(first + batch, len(text)))]
            longest = max(map(len, sentences)) + 2
            ids = torch.full((len(sentences), longest), PAD + view.special_offset)
            is_content = torch.zeros(ids.shape, dtype=torch.bool)
            for row, sentence in enumerate(sentences):
                n = len(sentence)
                ids[row, 0] = 2 + view.special_offset
                ids[row, 1 : n + 1] = torch.from_numpy(np.asarray(sentence, np.int64))
                ids[row, n + 1] = view.sep(SEP)
                is_content[row, 1 : n + 1] = True
            with torch.no_grad():
                states = model(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    position_ids=torch.arange(longest)[None] + view.position_offset,
                    token_type_ids=torch.full_like(ids, view.token_type),
                    output_hidden_states=True,
                ).hidden_states
            weights = is_content[..., None] / is_content.sum(1)[:, None, None]
            for layer in means:
                means[layer].append((states[layer] * weights).sum(1))
        for layer in vectors:
            vectors[layer].append(F.normalize(torch.cat(means[layer]), dim=1))
    scores = {}
    for layer, (first, second) in vectors.items():
        similarity = first @ second.T
        gold = torch.arange(len(first))
        hits = (similarity.argmax(1) == gold).float().mean() + (
            similarity.argmax(0) == gold
        ).float().mean()
        scores[f"padded_rho_{layer}"] = hits.item() / 2
    return scores


def measure_all(root: Path, asked: list[tuple], sizes, scale: str, output: Path) -> None:
    """Measure what the stores have, and write the table after each model."""
    place = dict(scale=scale, corpus=sizes.label)
    done = read_rows(output, KEYS, **place)
    known = set(zip(done.arm, done.row, done.seed))
    _, dev, _ = laboratory_text(sizes)
    for arm, row, seed, spec in asked:
        store = store_of(root, arm)
        if (arm, row, seed) in known or not store.has(spec):
            continue
        measured = MeasureSpec(spec, dev)
        engine.run([measured], store, progress=False)
        values = json.loads((store.path(measured) / "measures.json").read_text())
        tokenizer = tokenizers.read_tokenizer(store.path(spec.tokenizer))
        size = tokenizer.get_vocab_size()
        views = [find_language_view(spec, size, l.name) for l in compared_languages(measured)]
        texts = development_ids(measured, tokenizer, store)
        if "inv-order" not in ROWS[row]:
            values |= padded_retrieval(store.path(spec), texts, views)
        names = ("mu", "rho_lower", "tau_lower", "rho_upper", "tau_upper")
        names += ("padded_rho_0", "padded_rho_8", "perplexity_train", "perplexity_dev")
        line = place | {"arm": arm, "row": row, "seed": seed, "run": run_id(spec)[:12]}
        line |= {name: values.get(name) for name in names}
        output.parent.mkdir(parents=True, exist_ok=True)
        put_rows(output, [line], KEYS, "%.6g")
        print(line, flush=True)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("plan", "train", "measure"))
    parser.add_argument("store", nargs="?", default="runs")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument(
        "--rows", default="", help="identifiers of Table 1; all of the arm if empty"
    )
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument(
        "--models", default="", help="arm:row:seed of each, in the place of arms, rows and seeds"
    )
    parser.add_argument("--scale", default="paper")
    parser.add_argument("--corpus", default="bible")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument(
        "--limit", type=float, default=3600.0, help="seconds that training may take"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "published-size.csv")
    args = parser.parse_args(argv)
    sizes = laboratory_config(args.scale, args.corpus)
    rows = [row for row in args.rows.split(",") if row]
    seeds = [int(seed) for seed in args.seeds.split(",")]
    if args.models:
        named = [model.split(":") for model in args.models.split(",")]
        asked = [(a, row, int(seed), arm_spec(a, row, sizes, int(seed))) for a, row, seed in named]
    else:
        asked = wanted(args.arms.split(","), rows, seeds, sizes)
    root = Path(args.store)
    if args.command == "plan":
        for arm, row, seed, spec in asked:
            print(arm, ROWS[row], f"seed {seed}", run_id(spec)[:12], store_of(root, arm).has(spec))
    elif args.command == "train":
        torch.backends.cuda.matmul.allow_tf32 = True
        train(root, asked, args.device, args.workers, args.limit)
    else:
        measure_all(root, asked, sizes, args.scale, args.output)


if __name__ == "__main__":
    main()
