"""Rate, batch, epochs and dropout of W's tasks for notebook 12, chosen once a task by English
development data alone.
"""

import argparse
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd

from xlingual_nb.errors import InputError, require
from xlingual_nb.experiments import zero_shot
from xlingual_nb.experiments.liu2020_shifts import shift_model_spec
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.recipes import GRID

ROOT = Path(__file__).resolve().parents[1]
# below paper scale: W's, times as much as a small encoder learns faster
RATES, BATCHES = (5e-4, 1e-3, 2e-3), (16, 32)
CHOSEN = {
    "documents": "accuracy",
    "nli": "accuracy",
    "ner": "f1",
    "pos": "accuracy",
    "parsing": "las",
}


def tuned(sizes, task: str, how: dict, records: int, seed: int):
    """English fine-tuned on so many records of a task (0: those of the section) and asked in
    English development data; `how`: fields of `Tuning`.
    """
    settings = replace(sizes.tasks.tuning[task], **how)
    spec = zero_shot.fine_tuned_spec(sizes, task, shift_model_spec(sizes, seed), "en", ("en",))
    if records:
        spec = replace(
            spec, train=replace(spec.train, records=replace(spec.train.records, size=records))
        )
    return replace(spec, settings=settings, tests=(spec.dev,))


def row(sizes, task: str, how: dict, records: int, seed: int, store: Store) -> dict:
    """What one setting comes to with one model."""
    spec, begun = tuned(sizes, task, how, records, seed), time.process_time()
    run([spec], store, Inline(), progress=False)
    score = stage_of(spec).values(store.path(spec))[f"{CHOSEN[task]} en"]
    return dict(
        corpus=sizes.label,
        task=task,
        records=spec.train.records.size,
        **how,
        seed=seed,
        dev=round(score, 4),
        cpu_seconds=round(time.process_time() - begun, 1),
    )


def asked_for(given, own: int) -> list[dict]:
    """The settings that the options name: what they leave open is W's grid at paper scale, else
    ours, with all layers trained.
    """
    paper = given.scale == "paper"

    def of_grid(field):
        return sorted({getattr(setting, field) for setting in GRID})

    rates = given.rates or (of_grid("learning_rate") if paper else RATES)
    batches = given.batches or (of_grid("batch") if paper else BATCHES)
    epochs = given.epochs or (of_grid("epochs") if paper else (own,))
    frozen = [None if layer < 0 else layer for layer in given.freeze]
    names = "learning_rate", "batch", "epochs", "freeze", "dropout"
    return [dict(zip(names, one)) for one in product(rates, batches, epochs, frozen, given.dropout)]


def main(argv=None) -> Path:
    """Add a row a setting to the table, as soon as it is there; the path of the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--task", nargs="*", default=list(CHOSEN), help=f"some of {', '.join(CHOSEN)}"
    )
    parser.add_argument(
        "--rates", type=float, nargs="*", help="by default W's at paper scale, below it ours"
    )
    parser.add_argument("--batches", type=int, nargs="*", help="likewise")
    parser.add_argument(
        "--epochs",
        type=int,
        nargs="*",
        help="by default W's at paper scale, below it the task's own",
    )
    parser.add_argument(
        "--freeze",
        type=int,
        nargs="*",
        default=[-1],
        help="uppermost layers that keep their values, 0 the embeddings alone, -1 none",
    )
    parser.add_argument("--dropout", type=float, nargs="*", default=[0.1])
    parser.add_argument("--seeds", type=int, default=1, help="how many models, from seed 0 on")
    parser.add_argument(
        "--records", type=int, default=0, help="English training records, by default the section's"
    )
    parser.add_argument(
        "--checkpoint", default="", help="a model in the place of ours, as in notebook 12"
    )
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--corpus", default="auto")
    parser.add_argument("--store", type=Path, default=Path("runs"))
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks/results/tuning-settings.csv"
    )
    given = parser.parse_args(argv)
    for task in given.task:
        require(task in CHOSEN, f"--task {task}: choose {', '.join(CHOSEN)}")
    sizes = zero_shot.zero_shot_config(given.scale, given.corpus, checkpoint=given.checkpoint)
    table = pd.read_csv(given.output) if given.output.exists() else None
    for task in given.task:
        settings = asked_for(given, sizes.tasks.tuning[task].epochs)
        for how, seed in product(settings, range(given.seeds)):
            found = row(sizes, task, how, given.records, seed, Store(given.store))
            table = pd.concat([table, pd.DataFrame([found])], ignore_index=True)
            write_atomic(given.output, table.to_csv(index=False))
            print(found, flush=True)
    return given.output


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
