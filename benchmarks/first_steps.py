"""The first steps of an experiment at a scale: do its specs run on this machine, and what does a
step take?

    XLINGUAL_DATA=/path/to/data python benchmarks/first_steps.py 01 --scale gpu -p corpus=mix --steps 3

README.md beside this file says what is shortened and how to read the table.
"""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd

from xlingual_nb.cli import assignments
from xlingual_nb.errors import InputError
from xlingual_nb.experiments.liu2020_evaluation import FROZEN_RATE
from xlingual_nb.report.notebooks import grid_of
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.tasks.nli import FrozenNliSpec, NliSpec
from xlingual_nb.tasks.sequence_labelling import NerSpec
from xlingual_nb.measures.word_retrieval import WordSpec
from xlingual_nb.models.word_embeddings import EmbedSpec
from xlingual_nb.models.pretraining import PretrainSpec
from xlingual_nb.models.spaces import SpaceSpec
from xlingual_nb.runs.store import Store
from xlingual_nb.models.training import read_log
from xlingual_nb.models.configs import parameter_count
from xlingual_nb.text import tokenizers


TASKS = NliSpec, NerSpec, WordSpec, FrozenNliSpec


def kind(spec: PretrainSpec | EmbedSpec) -> tuple:
    """What specs of one kind have in common: all but seed, words of the languages, and amounts in
    transforms.
    """
    languages = tuple(
        tuple(t.partition("(")[0] for t in (*l.corpus.transforms, *l.transforms))
        for l in spec.languages
    )
    rest = [
        getattr(spec, f.name)
        for f in fields(spec)
        if f.name not in ("languages", "tokenizer", "seed", "snapshots")
    ]
    return spec.tokenizer.kind, languages, *rest


def shorten_space(space: SpaceSpec) -> SpaceSpec:
    """Vectors of one pass over the text, mapped in two rounds."""
    parts = tuple(replace(part, method=replace(part.method, epochs=1)) for part in space.parts)
    return replace(space, parts=parts, learning=replace(space.learning, rounds=2))


def shorten_model(
    spec: PretrainSpec | EmbedSpec, steps: int, batch: int = 0
) -> PretrainSpec | EmbedSpec:
    """A BERT of so many steps, in batches of at most `batch` (0: its own), or vectors of one pass
    over the text.
    """
    if isinstance(spec, EmbedSpec):
        return replace(spec, method=replace(spec.method, epochs=1))
    nearby = spec.neighbours and shorten_space(spec.neighbours)
    own = spec.training.batch
    training = replace(spec.training, epochs=0, steps=steps, batch=min(own, batch or own))
    return replace(spec, training=training, snapshots=(), neighbours=nearby)


def is_model(spec) -> bool:
    """Is it trained at all? Floors are not."""
    if isinstance(spec, EmbedSpec):
        return spec.method.learning_rate > FROZEN_RATE
    return isinstance(spec, PretrainSpec) and bool(spec.training.steps or spec.training.epochs)


def shorten_task(spec, shorter: PretrainSpec | EmbedSpec, records: int):
    """The same run of a shorter model, on few records, for one epoch."""
    if isinstance(spec, WordSpec):
        return replace(spec, checkpoint=shorter, sentences=10 * records)

    def few(labelled):
        return replace(labelled, records=replace(labelled.records, size=records))

    tests = tuple(tuple(map(few, t)) if isinstance(t, tuple) else few(t) for t in spec.tests)
    fewer = dict(
        checkpoint=shorter,
        train=few(spec.train),
        tests=tests,
        settings=replace(spec.settings, epochs=1),
    )
    if isinstance(spec, FrozenNliSpec):
        fewer |= dict(mapped=())
    return replace(spec, **fewer, **(dict(dev=few(spec.dev)) if spec.dev else {}))


def shortened(grid: list, steps: int, records: int, batch: int = 0) -> dict:
    """One model of each kind, cut to `steps` and `batch`, and its tasks on few records, in the
    order of the grid.
    """
    found, first = {}, {}
    for spec in grid:
        model = getattr(spec, "checkpoint", spec)
        if not is_model(model):
            continue
        shorter = shorten_model(model, steps, batch)
        if first.setdefault(kind(shorter), model) != model:
            continue
        tasks = found.setdefault(shorter, [])
        if isinstance(spec, TASKS) and type(spec) not in map(type, tasks):
            tasks.append(shorten_task(spec, shorter, records))
    return found


def seconds(store: Store, spec) -> float:
    return json.loads((store.path(spec) / "manifest.json").read_text(encoding="utf-8"))["seconds"]


def trained(store: Store, model) -> dict:
    """Encoder, steps and loss of a shortened pretraining; of vectors their columns."""
    if isinstance(model, EmbedSpec):
        return {"learns": type(model.method).__name__, "hidden": model.size}
    size, shape = (
        tokenizers.read_tokenizer(store.path(model.tokenizer)).get_vocab_size(),
        model.shape,
    )
    return {
        "learns": "BERT",
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "tokens": shape.max_tokens,
        "masking": model.masking,
        "batch": model.training.batch,
        "parameters (millions)": parameter_count(shape, size, model.nsp) / 1e6,
        "steps": model.training.steps,
        "loss": read_log(store.path(model))[-1]["loss"],
    }


def row(store: Store, model, tasks: list) -> dict:
    """What the shortened runs of one kind took, and the loss that the last step was at."""
    done = [" ".join((l.name, *l.corpus.transforms, *l.transforms)) for l in model.languages]
    entries = tokenizers.read_tokenizer(store.path(model.tokenizer)).get_vocab_size()
    told = {
        "languages": ", ".join(done),
        "reads": model.inputs,
        **trained(store, model),
        "entries": entries,
        "vocabulary (s)": seconds(store, model.tokenizer),
        "pretraining (s)": seconds(store, model),
    }
    if nearby := getattr(model, "neighbours", None):
        told |= {"space (s)": seconds(store, nearby)}
    return told | {f"{t.stage} (s)": seconds(store, t) for t in tasks}


def parse(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("experiments", nargs="+", help="numbers or names of notebooks")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the notebooks, such as corpus=mix",
    )
    parser.add_argument("--steps", type=int, default=3, help="steps a pretraining (default 3)")
    parser.add_argument("--records", type=int, default=64, help="records a task (default 64)")
    parser.add_argument(
        "--batch",
        type=int,
        default=0,
        help="so many sentences a batch at most (default: the scale's)",
    )
    parser.add_argument(
        "--most", type=int, default=0, help="so many kinds of pretraining at most (default: all)"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, help="a CSV file to write")
    return parser.parse_args(arguments)


def main(arguments=None) -> pd.DataFrame:
    args = parse(arguments)
    os.environ["XLINGUAL_DEVICE"] = args.device
    grid = [
        spec
        for name in args.experiments
        for spec in grid_of(name, args.scale, assignments(args.parameter))[0]
    ]
    kinds = list(shortened(grid, args.steps, args.records, args.batch).items())[: args.most or None]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "runs")
        for model, tasks in kinds:
            run([model, *tasks], store)
            rows.append(row(store, model, tasks))
            if args.output:
                write_atomic(
                    args.output, pd.DataFrame(rows).to_csv(index=False, float_format="%.3f")
                )
            print(pd.DataFrame(rows[-1:]).T.to_string(header=False), end="\n\n", flush=True)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"{error}")
