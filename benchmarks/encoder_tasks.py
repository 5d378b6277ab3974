"""Fine-tune an encoder on W's five tasks on one GPU: first choose recipes, then make the tables' runs.

    python benchmarks/encoder_tasks.py choose STORE --checkpoint multilingual-e5-small --output recipes.csv
    python benchmarks/encoder_tasks.py make STORE --checkpoint multilingual-e5-small

`choose` asks English development data alone, after training on English, and prints the best rate of
each task. `make` makes the runs of notebooks 12 and 13 with the recipes of `sizes/liu2020.toml`:
tables first, then Figure 1, its settings that decide claims before the others.

Several processes share the card, since a batch of some hundred tokens does not fill it.
"""

import argparse
import csv
import os
import time
from pathlib import Path

from tuning_settings import CHOSEN, tuned

from xlingual_nb.experiments import layers, zero_shot
from xlingual_nb.runs.engine import RunsFailed, run
from xlingual_nb.runs.executors import Processes
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.recipes import Tuning

SCALE, CORPUS = "laptop", "natural"
RATES = (5e-5, 1e-4, 2e-4, 4e-4)
EPOCHS = {"documents": 5, "nli": 3, "ner": 3, "pos": 3, "parsing": 6}
BATCHES = {"documents": 16, "nli": 32, "ner": 16, "pos": 16, "parsing": 16}
# Stages that train or read an encoder; the others are made by the notebooks, on any machine.
ON_GPU = {"sentences", "tuned_tags", "parsing"}


def choose(given) -> None:
    """Fine-tune in English at each rate with all layers trained, and write a row a setting."""
    sizes = zero_shot.zero_shot_config(SCALE, CORPUS, checkpoint=given.checkpoint)
    settings = []
    for task in given.task:
        for rate in RATES:
            recipe = dict(learning_rate=rate, batch=BATCHES[task], epochs=EPOCHS[task], freeze=None)
            settings.append((task, recipe, tuned(sizes, task, recipe, records=0, seed=0)))
    store = Store(given.store)
    make([spec for *_, spec in settings], store, given.workers)
    rows = []
    for task, recipe, spec in settings:
        if store.has(spec):
            score = stage_of(spec).values(store.path(spec))[f"{CHOSEN[task]} en"]
            row = dict(corpus=sizes.label, task=task, records=spec.train.records.size)
            rows.append({**row, **recipe, "seed": 0, "dev": round(score, 4)})
    with given.output.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for task in given.task:
        best = max((row for row in rows if row["task"] == task), key=lambda row: row["dev"])
        print(best, flush=True)


def table_runs(given) -> list[list]:
    """The runs of both notebooks in three groups, in the order in which they are wanted."""
    tables = zero_shot.grid(SCALE, CORPUS, only="2,3,4,5,6", checkpoint=given.checkpoint)
    figure = layers.grid(SCALE, CORPUS, only="1", checkpoint=given.checkpoint)
    tables = [spec for spec in tables if spec.stage in ON_GPU]
    figure = [spec for spec in figure if spec.stage in ON_GPU and spec not in tables]
    decide = [
        spec
        for spec in figure
        if isinstance(spec.settings, Tuning) and spec.settings.freeze in (3, 6)
    ]
    others = [spec for spec in figure if spec not in decide]
    # a seed of everything before the next
    return [sorted(group, key=lambda spec: spec.seed) for group in (tables, decide, others)]


def make(specs, store: Store, workers: int) -> None:
    """Make the runs; what fails is told, and does not stop the others."""
    begun = time.monotonic()
    try:
        run(specs, store, Processes(workers), stack=1)
    except RunsFailed as error:
        print(error, flush=True)
    print(f"{len(specs)} runs in {time.monotonic() - begun:.0f} s", flush=True)


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("choose", "make", "plan"))
    parser.add_argument("store", type=Path)
    parser.add_argument("--checkpoint", default="multilingual-e5-small")
    parser.add_argument("--task", nargs="*", default=list(CHOSEN))
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output", type=Path, default=Path("recipes.csv"))
    given = parser.parse_args(argv)
    os.environ["XLINGUAL_DEVICE"] = given.device
    if given.command == "choose":
        choose(given)
    else:
        for group in table_runs(given):
            print(f"{len(group)} runs", flush=True)
            if given.command == "make":
                make(group, Store(given.store), given.workers)


if __name__ == "__main__":
    main()
