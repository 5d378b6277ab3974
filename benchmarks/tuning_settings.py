"""Rate, batch and epochs of W's tasks for notebook 12, chosen once a task by English development
data alone.
"""

import argparse
import csv
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

from xlingual_nb.errors import InputError, require
from xlingual_nb.experiments import zero_shot
from xlingual_nb.experiments.liu2020_common import shift_model_spec
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
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


def tuned(sizes, task: str, rate: float, batch: int, epochs: int):
    """English fine-tuned on a task and asked in English development data, for the first seed; all
    layers are trained.
    """
    settings = replace(sizes.tasks.tuning[task], learning_rate=rate, batch=batch, epochs=epochs)
    spec = zero_shot.fine_tuned_spec(sizes, task, shift_model_spec(sizes, 0), "en", ("en",))
    return replace(spec, settings=settings, tests=(spec.dev,))


def row(sizes, task: str, setting: tuple, store: Store) -> dict:
    """What one setting comes to."""
    spec, begun = tuned(sizes, task, *setting), time.process_time()
    run([spec], store, Inline(), progress=False)
    score = stage_of(spec).values(store.path(spec))[f"{CHOSEN[task]} en"]
    return dict(
        corpus=sizes.label,
        task=task,
        **dict(zip(("learning_rate", "batch", "epochs"), setting)),
        seed=0,
        dev=round(score, 4),
        cpu_seconds=round(time.process_time() - begun, 1),
    )


def asked_for(given, own: int) -> list[tuple]:
    """The settings (rate, batch, epochs) that the options name: what they leave open is W's grid at
    paper scale, else ours.
    """
    paper = given.scale == "paper"

    def of_grid(field):
        return sorted({getattr(setting, field) for setting in GRID})

    rates = given.rates or (of_grid("learning_rate") if paper else RATES)
    batches = given.batches or (of_grid("batch") if paper else BATCHES)
    return [*product(rates, batches, given.epochs or (of_grid("epochs") if paper else (own,)))]


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
    for task in given.task:
        for setting in asked_for(given, sizes.tasks.tuning[task].epochs):
            found = row(sizes, task, setting, Store(given.store))
            new = not given.output.exists()
            with given.output.open("a", encoding="utf-8", newline="") as out:
                writer = csv.DictWriter(out, found, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(found)
            print(found, flush=True)
    return given.output


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
