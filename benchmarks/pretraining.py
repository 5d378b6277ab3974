"""Seconds a step of masked-language pretraining: Hugging Face's Trainer, this project's engine, the
arithmetic alone.

    python benchmarks/pretraining.py --rounds 5 --output benchmarks/pretraining.json

README.md beside this file says what is compared and how to read the table.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from xlingual_nb.errors import InputError
from xlingual_nb.runs.executors import clean_environment, cores
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.experiments.scales import laboratory_config, laboratory_text
from xlingual_nb.models.configs import MASKING, LanguageView, Shape, Training
from xlingual_nb.text import sources, tokenizers
from xlingual_nb.text.corpora import data_folder

TEXTS = {
    "zipf": "independent Zipfian tokens, log-normal lengths",
    "bible": "the laboratory's Bible sentences (clauses)",
    "sentences": "the same Bible in whole sentences",
    "micro": "microworld English",
}
ALLOCATORS = {"default": "default", "kept": "memory kept"}


# ---------------------------------------------------------------- what is trained on what


@dataclass(frozen=True)
class Task:
    """A text, told by its sentences' token ids, and the model and batch that it is trained with."""

    text: str
    encoded: tokenizers.Encoded
    tokenizer: object
    shape: Shape
    training: Training

    @property
    def vocabulary(self) -> int:
        return 2 * self.tokenizer.get_vocab_size()


def zipf(pieces: int, sentences: int, longest: int, seed: int = 0) -> tokenizers.Encoded:
    """Sentences of a median of 16 and a mean of 18.6 tokens; the token of rank r has a probability
    proportional to 1/r.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(np.log(16), np.sqrt(2 * np.log(18.6 / 16)), sentences)
    lengths = lengths.round().clip(1, longest).astype(np.int64)
    kinds = pieces - len(tokenizers.SPECIALS)
    chances = 1 / np.arange(1, kinds + 1)
    ids = len(tokenizers.SPECIALS) + rng.choice(kinds, lengths.sum(), p=chances / chances.sum())
    return tokenizers.Encoded(ids.astype(np.int32), np.concatenate([[0], np.cumsum(lengths)]))


def words(n: int):
    """A tokenizer of `n` entries for a text that has ids and no words."""
    names = [*tokenizers.SPECIALS, *(f"word{i}" for i in range(n - len(tokenizers.SPECIALS)))]
    return tokenizers.build_wordpiece({w: i for i, w in enumerate(names)})


def make_task(text: str, size: str) -> Task:
    """A text of TEXTS for the laboratory's small model at scale `size` (`tiny` is for tests)."""
    sizes = laboratory_config(
        {"tiny": "smoke"}.get(size, size), "micro" if text == "micro" else "bible"
    )
    corpus, _, vocabulary = laboratory_text(sizes)
    shape, training = sizes.small, sizes.training
    if text == "zipf":
        learnt = words(vocabulary.size)
        encoded = zipf(
            vocabulary.size, {"tiny": 256, "laptop": 4000}.get(size, 17000), shape.max_tokens - 2
        )
    else:
        parameters = dict(corpus.parameters) | ({"split": True} if text == "sentences" else {})
        found = sources.load_corpus(corpus.source, part=corpus.part, **parameters)
        learn = {"wordpiece": tokenizers.train_wordpiece, "words": tokenizers.train_words}[
            vocabulary.kind
        ]
        learnt = learn(found.sentences, vocabulary.size)
        encoded = tokenizers.encode(learnt, found.sentences).truncate(shape.max_tokens - 2)
    whole = len(encoded) // training.batch * training.batch  # so that all batches are of one size
    if not whole:
        raise InputError(
            f"text {text!r} has {len(encoded)} sentences, not one batch of {training.batch}: take another"
        )
    return Task(text, encoded.take(range(whole)), learnt, shape, training)


def make_mixture(task: Task):
    """English and Fake-English, as in D's row 0."""
    from xlingual_nb.models.mlm_batches import build_sentence_dataset

    size = task.tokenizer.get_vocab_size()
    fake = tokenizers.Encoded(task.encoded.ids + np.int32(size), task.encoded.starts)
    return build_sentence_dataset(
        [task.encoded, fake],
        [LanguageView("en"), LanguageView("enfake", size)],
        2 * size,
        task.shape.max_tokens,
    )


# ---------------------------------------------------------------- the floor


def flops(
    shape: Shape, vocabulary: int, tokens: float, pairs: float, chosen: float
) -> dict[str, float]:
    """Floating-point operations of one step's matrix products, forward and backward (twice the
    forward's).

    `tokens` are real ones; `pairs` are the scores of attention,
    the squared lengths summed; `chosen` tokens reach the output.
    """
    h, i = shape.hidden, shape.intermediate
    forward = {
        "dense": 2 * shape.layers * tokens * (4 * h * h + 2 * h * i),
        "attention": 4 * shape.layers * pairs * h,
        "head": 2 * chosen * (h * h + h * vocabulary),
    }
    return {part: 3.0 * n for part, n in forward.items()}


def count(task: Task, mixture, steps, step: int) -> dict[str, float]:
    """Counted on the engine's batch of a step: tokens, what padding and packing make of them, FLOPs
    with each kind of attention.
    """
    (batch,) = steps[step]
    models = len(steps.jobs)
    lengths = [mixture.lengths[order(step)].astype(float) for order in steps.samplers]
    tokens, own = (sum(f(n) for n in lengths) / models for f in (np.sum, lambda n: np.sum(n * n)))
    packed = float(sum(r.count * r.length**2 for r in batch.rows))
    parts = flops(
        task.shape, task.vocabulary, tokens, own, float((batch.labels >= 0).sum()) / models
    )
    rows = flops(task.shape, task.vocabulary, tokens, packed, 0)["attention"]
    return {
        "tokens": tokens,
        "padded": sum(n.max() * len(n) for n in lengths) / models,
        "slots": batch.ids.shape[1],
        **parts,
        "rows": rows,
        "own_flops": sum(parts.values()),
        "packed_flops": parts["dense"] + rows + parts["head"],
    }


def matrix_peak(device: str, n: int, repeats: int = 4) -> SimpleNamespace:
    """The best rate (FLOPs a second) of the product of two n x n matrices, in wall time and in
    processor time.
    """
    import torch

    a, b, out = (torch.randn(n, n, device=device) for _ in range(3))

    def once():
        with clock(device) as taken:
            torch.mm(a, b, out=out)
        return taken

    each = [once() for _ in range(repeats)]
    return SimpleNamespace(
        **{kind: 2 * n**3 / min(getattr(t, kind) for t in each) for kind in ("wall", "cpu")}
    )


# ---------------------------------------- the members of the race (each lives in a process of `serve`)


@contextmanager
def clock(device: str):
    """Seconds by the wall and of this process's processors; waits for the device at both ends."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    taken = SimpleNamespace(wall=-time.perf_counter(), cpu=-time.process_time())
    yield taken
    wait()
    taken.wall += time.perf_counter()
    taken.cpu += time.process_time()


class Engine:
    """This project's engine on `models` models, in the steps that `models.training.pretrain`
    takes.
    """

    def __init__(self, task: Task, mixture, models: int, device: str):
        import torch
        from xlingual_nb.models import training as loop
        from xlingual_nb.models.encoder import BatchedModels

        self.task, self.mixture, self.device, self.done, self.loop = task, mixture, device, 0, loop
        jobs = [
            loop.TrainingJob(mixture, MASKING["original"], seed, task.tokenizer, Path("unused"))
            for seed in range(models)
        ]
        self.total = loop.total_steps(jobs[0], task.training)
        self.stack = BatchedModels(task.shape, task.vocabulary, range(models), device)
        self.adam = loop.create_optimiser(self.stack, task.training)
        loop.load_state(jobs, self.stack, self.adam, 0)
        workers = max(2, os.cpu_count() - 4) if device == "cuda" else 0
        self.steps = loop.StepBatches(jobs, task.training, 0, self.total)
        self.batches = iter(
            torch.utils.data.DataLoader(
                self.steps,
                batch_size=None,
                num_workers=workers,
                prefetch_factor=4 if workers else None,
            )
        )

    def turn(self, steps: int) -> dict:
        first, self.done = self.done, self.done + steps
        if self.done > self.total:
            raise InputError(f"{self.total} steps are all there is: take fewer --rounds or --steps")
        with clock(self.device) as taken:
            for step in range(first, self.done):
                shards = next(self.batches)
                self.loop.training_step(
                    self.stack, self.adam, shards, step, self.total, self.task.training
                )
        counts = [
            count(self.task, self.mixture, self.steps, step) for step in range(first, self.done)
        ]
        means = {name: float(np.mean([c[name] for c in counts])) for name in counts[0]}
        return {kind: s / steps / len(self.stack) for kind, s in vars(taken).items()} | {
            "counts": means
        }


def hub_dataset(mixture):
    """The mixture as run_mlm's line-by-line mode tokenises it: lists of ids with their masks, a row
    a sentence.
    """
    import datasets
    from xlingual_nb.models.mlm_batches import CLS, SEP

    ids = [[CLS, *mixture.ids[at : at + n].tolist(), SEP] for at, n in mixture.first]
    ends = [[1] + [0] * (len(s) - 2) + [1] for s in ids]
    return datasets.Dataset.from_dict(
        {
            "input_ids": ids,
            "token_type_ids": [[0] * len(s) for s in ids],
            "attention_mask": [[1] * len(s) for s in ids],
            "special_tokens_mask": ends,
        }
    )


class HubTrainer:
    """Hugging Face's Trainer in its defaults, BertForMaskedLM of the same shape, fed the engine's
    sentences in the engine's order.
    """

    def __init__(self, task: Task, mixture, device: str):
        import datasets
        import transformers as hub
        from xlingual_nb.models.mlm_batches import BatchSampler
        from xlingual_nb.models.training import hub_config

        hub.logging.set_verbosity_error()
        datasets.disable_progress_bars()
        self.order, self.done, turn = BatchSampler(len(mixture), task.training.batch, 0), 0, self
        special = {f"{name.strip('[]').lower()}_token": name for name in tokenizers.SPECIALS}
        tokenizer = hub.PreTrainedTokenizerFast(
            tokenizer_object=tokenizers.pair_vocabulary(task.tokenizer), **special
        )
        config = hub_config(task.shape, task.vocabulary, task.training.dropout, [])
        config = {k: v for k, v in config.items() if k != "xlingual"}
        self.folder = tempfile.TemporaryDirectory()
        arguments = hub.TrainingArguments(
            self.folder.name,
            per_device_train_batch_size=task.training.batch,
            max_steps=1,
            use_cpu=device == "cpu",
            dataloader_pin_memory=device == "cuda",
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )

        class InOrder(hub.Trainer):
            def _get_train_sampler(self, train_dataset=None):
                return turn.indices

        class Stopwatch(hub.TrainerCallback):
            """Times the steps and leaves out what `train_tokenizer()` does before the first and after the
            last.
            """

            def on_epoch_begin(self, *_, **__):
                self.clock = clock(device)
                turn.taken = self.clock.__enter__()

            def on_step_end(self, arguments, state, *_, **__):
                if state.global_step == state.max_steps:
                    self.clock.__exit__(None, None, None)

        model = hub.BertForMaskedLM(hub.BertConfig(**config))
        collator = hub.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
        self.trainer = InOrder(
            model, arguments, collator, hub_dataset(mixture), callbacks=[Stopwatch()]
        )
        self.trainer.remove_callback(hub.PrinterCallback)

    def turn(self, steps: int) -> dict:
        self.indices = np.concatenate([self.order(self.done + i) for i in range(steps)]).tolist()
        self.done += steps
        self.trainer.args.max_steps, self.trainer.lr_scheduler = steps, None
        self.trainer.train()
        return {kind: s / steps for kind, s in vars(self.taken).items()}


def facts(device: str) -> dict:
    """What a reader needs to know of this machine to compare; nothing that names it."""
    import accelerate
    import torch
    import transformers

    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [
        line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")
    ]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "vector": torch.backends.cpu.get_cpu_capability(),
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "accelerate": accelerate.__version__,
    }


def serve(connection, text: str, size: str, models: int, device: str, threads: int) -> None:
    """The life of a racing process: make the members, then answer (member, steps) with seconds a
    step until told None.
    """
    try:
        import torch

        torch.set_num_threads(threads)
        torch.manual_seed(0)
        task = make_task(text, size)
        mixture = make_mixture(task)
        members = {"trainer": HubTrainer(task, mixture, device)}
        members |= {
            name: Engine(task, mixture, n, device) for name, n in (("one", 1), ("stack", models))
        }
        side = 512 if size == "tiny" else 2048 if device == "cpu" else 8192
        connection.send(facts(device))
        while asked := connection.recv():
            member, steps = asked
            connection.send(
                vars(matrix_peak(device, side)) if member == "peak" else members[member].turn(steps)
            )
    except EOFError:
        pass
    except Exception as error:
        connection.send(
            error if isinstance(error, InputError) else RuntimeError(traceback.format_exc())
        )


# ---------------------------------------------------------------- the race


@contextmanager
def environment(values: dict):
    """`values` for the processes that are started within."""
    kept = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(values)
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


class Lane:
    """One racing process. malloc reads its settings when a process begins, so each allocator has a
    process of its own.
    """

    def __init__(self, allocator: str, *arguments, threads: int):
        values = {
            k: v
            for k, v in clean_environment(threads).items()
            if allocator == "kept" or not k.startswith("MALLOC_")
        }
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        with environment(values | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}):
            self.process = context.Process(
                target=serve, args=(theirs, *arguments, threads), daemon=False
            )
            self.process.start()
        theirs.close()

    def answer(self):
        try:
            told = self.connection.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(
                f"the racing process ended with exit code {self.process.exitcode}"
            ) from None
        if isinstance(told, Exception):
            raise told
        return told

    def ask(self, member: str, steps: int) -> dict:
        self.connection.send((member, steps))
        return self.answer()

    def close(self):
        with suppress(OSError):
            self.connection.send(None)
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()


def race(lanes: dict[str, Lane], rounds: int, steps: int, say) -> list[dict]:
    """Every member of every lane takes `steps` steps a round, in an order that moves on by one each
    round; round 0 is thrown away.
    """
    entries = [(lane, member) for lane in lanes for member in ("peak", "trainer", "one", "stack")]
    found = []
    for r in range(rounds + 1):
        shift = r % len(entries)
        taken = {name: {} for name in lanes}
        for lane, member in entries[shift:] + entries[:shift]:
            taken[lane][member] = lanes[lane].ask(member, steps)
        say(f"  round {r} of {rounds}" + (" (warm-up)" if not r else ""))
        if r:
            found.append(taken)
    return found


def spread(values) -> dict[str, float]:
    return {
        "min": float(np.min(values)),
        "median": float(np.median(values)),
        "max": float(np.max(values)),
    }


def summarise(rounds: list[dict], kind: str) -> list[dict]:
    """A row a member and allocator, in `kind` (wall or cpu) seconds. Ratios are of seconds a token,
    taken within a round.
    """
    rows = []
    lanes = list(rounds[0])
    for lane in lanes:
        for member in ("trainer", "one", "stack"):
            own = (
                "one" if member == "trainer" else member
            )  # the trainer sees the tokens of the first model
            counts = [r[lane][own]["counts"] for r in rounds]
            seconds = np.array([r[lane][member][kind] for r in rounds])
            tokens = np.array([c["tokens"] for c in counts])

            def against(other):
                theirs = np.array(
                    [
                        r[other]["trainer"][kind] / r[other]["one"]["counts"]["tokens"]
                        for r in rounds
                    ]
                )
                return spread(theirs / (seconds / tokens))

            peak = np.array([r[lane]["peak"][kind] for r in rounds])
            floor = {
                f: np.array([c[f + "_flops"] for c in counts]) / peak for f in ("own", "packed")
            }
            row = {
                "member": member,
                "allocator": lane,
                "seconds": spread(seconds),
                "tokens_a_second": spread(tokens / seconds),
            }
            for other in lanes:
                row[f"times_trainer_{other}"] = against(other)
            for f in floor:
                row |= {
                    f"floor_seconds_{f}": spread(floor[f]),
                    f"over_floor_{f}": spread(seconds / floor[f]),
                }
            rows.append(row)
    return rows


def describe(task: Task, rounds: list[dict]) -> dict:
    """Statistics of the text and of the steps that were timed."""
    lengths = task.encoded.lengths
    counts = [r[lane]["one"]["counts"] for r in rounds for lane in r]
    mean = {name: float(np.mean([c[name] for c in counts])) for name in counts[0]}
    return {
        "name": task.text,
        "what": TEXTS[task.text],
        "sentences": len(lengths),
        "pieces": task.tokenizer.get_vocab_size(),
        "median_length": float(np.median(lengths)),
        "mean_length": float(lengths.mean()),
        "longest": int(lengths.max()),
        "tokens_a_step": mean["tokens"],
        "padded_a_token": mean["padded"] / mean["tokens"],
        "slots_a_token": mean["slots"] / mean["tokens"],
        "gflop_a_step": {name: mean[name] / 1e9 for name in ("dense", "attention", "head")},
        "gflop_of_attention_in_our_rows": mean["rows"] / 1e9,
    }


def table(result: dict, models: int) -> str:
    """The summary for people."""

    def told(s, form):
        return f"{s['median']:{form}} ({s['min']:{form}}-{s['max']:{form}})"

    names = {
        "trainer": "Trainer",
        "one": "engine, 1 model",
        "stack": f"engine, {models} stacked, a model",
    }
    lanes = list(dict.fromkeys(row["allocator"] for row in result["summary"]))
    columns = {
        "seconds": ("seconds a step", ".4f"),
        "tokens_a_second": ("tokens a second", ",.0f"),
        **{f"times_trainer_{l}": (f"times Trainer ({ALLOCATORS[l]})", ".2f") for l in lanes},
        "over_floor_own": ("over floor", ".2f"),
        "over_floor_packed": ("over floor, packed rows", ".2f"),
    }
    heads = ["", *(head for head, _ in columns.values())]

    def line(row):
        return [
            f"{names[row['member']]} ({ALLOCATORS[row['allocator']]})",
            *(told(row[c], form) for c, (_, form) in columns.items()),
        ]

    body = [line(row) for row in result["summary"]]
    for lane in lanes:
        row = next(r for r in result["summary"] if r["allocator"] == lane and r["member"] == "one")
        body.append(
            [
                f"arithmetic floor ({ALLOCATORS[lane]})",
                told(row["floor_seconds_own"], ".4f"),
                *[""] * (len(columns) - 1),
            ]
        )
    widths = [max(map(len, column)) for column in zip(heads, *body)]
    lines = [" | ".join(cell.ljust(w) for cell, w in zip(line, widths)) for line in (heads, *body)]
    return "\n".join([lines[0], "-|-".join("-" * w for w in widths), *lines[1:]])


def race_text(text: str, steps: int, o, say) -> tuple[dict, dict]:
    """(machine, result) of one text."""
    task, lanes = make_task(text, o.shape), {}
    try:
        for a in ("default", "kept") if o.allocator == "both" else (o.allocator,):
            lanes[a] = Lane(a, text, o.shape, o.models, o.device, threads=o.threads)
        machine = [lane.answer() for lane in lanes.values()][0]  # noqa: RUF015 - every lane must answer
        rounds = race(lanes, o.rounds, steps, say)
    finally:
        for lane in lanes.values():
            lane.close()
    return machine, {
        "text": describe(task, rounds),
        "shape": vars(task.shape),
        "batch": task.training.batch,
        "vocabulary": task.vocabulary,
        "summary": summarise(rounds, o.clock),
        "rounds": rounds,
    }


def report(result: dict, models: int) -> str:
    """What is printed of a text."""
    t = result["text"]
    lengths = f"{t['median_length']:.0f} (median), {t['mean_length']:.1f} (mean), {t['longest']} (longest)"
    return (
        f"  {t['sentences']} sentences of {lengths} pieces; {sum(t['gflop_a_step'].values()):.2f} GFLOP a step\n"
        f"  {t['tokens_a_step']:.0f} tokens a step, {t['padded_a_token']:.2f} times as many when padded, "
        f"{t['slots_a_token']:.2f} times in our rows\n\n{table(result, models)}"
    )


def options(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--text",
        nargs="+",
        choices=list(TEXTS),
        help="default: zipf, and both Bible texts if XLINGUAL_DATA has them",
    )
    parser.add_argument(
        "--shape",
        choices=["paper", "laptop", "tiny"],
        default="paper",
        help="the laboratory's small model at a scale",
    )
    parser.add_argument(
        "--allocator",
        choices=["default", "kept", "both"],
        default="both",
        help="of the racing processes",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="of every racing process (1, as the engine's workers have)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="after one of warm-up")
    parser.add_argument(
        "--steps", type=int, help="a member's turn takes in a round (default 3; 100 on a GPU)"
    )
    parser.add_argument("--models", type=int, default=5, help="in the stack")
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="of the table; cpu bears other load better",
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--output", type=Path, help="a JSON file for all of it")
    o = parser.parse_args(arguments)
    if min(o.threads, o.rounds, o.models, 1 if o.steps is None else o.steps) < 1:
        parser.error("--threads, --rounds, --steps and --models are at least 1")
    if find_spec("accelerate") is None:
        raise InputError("Trainer needs the package accelerate: pip install -e '.[dev]'")
    if o.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise InputError("--device cuda: PyTorch finds no GPU here; take --device cpu")
    return o


def main(arguments=None) -> None:
    o = options(arguments)
    bible = (folder := data_folder()) and any(folder.glob("bible/en-bbe.tsv*"))
    steps, results = o.steps or {"cpu": 3, "cuda": 100}[o.device], []
    for text in o.text or (["zipf", "bible", "sentences"] if bible else ["zipf"]):
        print(f"\n{text}: {TEXTS[text]}; {o.shape} size, {o.threads} thread(s)", flush=True)
        machine, result = race_text(
            text, steps, o, lambda line: print(line, file=sys.stderr, flush=True)
        )
        results.append(result)
        print(report(result, o.models), flush=True)
        settings = {
            "steps": steps,
            **{
                name: getattr(o, name)
                for name in ("shape", "allocator", "rounds", "models", "clock")
            },
        }
        written = {"format": 1, "machine": machine, "settings": settings, "results": results}
        if o.output:
            write_atomic(o.output, json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
