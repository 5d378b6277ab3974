"""Does it matter whether a language's mean counts tokens alike or sentences (L2 section 4.1)? Both
readings of the shift on the same models, by seed, direction and target.

    python benchmarks/sentence_means.py --seeds 0 1 2 --store runs
"""

import argparse
from itertools import product
from pathlib import Path

import pandas as pd

from xlingual_nb.experiments.language_shift import DIRECTIONS
from xlingual_nb.experiments.liu2020_shifts import (
    scale_layer,
    shift_model_spec,
    shift_study_config,
    translation_spec,
)
from xlingual_nb.experiments.study import load_metrics
from xlingual_nb.measures.shift_translation import MEAN_OF
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.runs.store import Store

ROOT = Path(__file__).resolve().parents[1]
# as the claims read them: metric, layer of twelve, weight
COLUMNS = {
    "converted": ("converted", 10, 3),
    "gold": ("gold", 10, 1),
    "BLEU-1": ("bleu", 11, 3),
}


def readings(sizes, seed: int) -> dict[tuple, object]:
    """The runs of a model, by direction, target and what counts alike in a mean."""
    model = shift_model_spec(sizes, seed)
    depth = model.shape.layers
    layers = {scale_layer(layer, depth) for _, layer, _ in COLUMNS.values()}
    options = dict(layers=tuple(sorted(layers)), alphas=(1.0, 3.0))
    return {
        (way, target, mean_of): translation_spec(
            sizes, model, way, target, mean_of=mean_of, **options
        )
        for way, target, mean_of in product(DIRECTIONS, sizes.shifts.targets, MEAN_OF)
    }


def measured(sizes, seed: int, store: Store) -> pd.DataFrame:
    """Both readings of a model, a row a direction, target and reading."""
    specs = readings(sizes, seed)
    run([*specs.values()], store, Inline())
    rows = []
    for (way, target, mean_of), spec in specs.items():
        values = load_metrics(spec, store)
        row = dict(seed=seed, direction=way, target=target, mean_of=mean_of)
        for column, (name, layer, weight) in COLUMNS.items():
            at = scale_layer(layer, spec.checkpoint.shape.layers)
            row[column] = values[f"layer {at} alpha {weight} {name}"]
        rows.append(row)
    return pd.DataFrame(rows)


def main(argv=None) -> pd.DataFrame:
    """Put models into the table, each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--store", type=Path, default=Path("runs"))
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks/results/sentence-means.csv"
    )
    asked = parser.parse_args(argv)
    sizes = shift_study_config(asked.scale, "micro")
    table = pd.read_csv(asked.output) if asked.output.is_file() else pd.DataFrame()
    for seed in asked.seeds:
        table = pd.concat([table, measured(sizes, seed, Store(asked.store))])
        table = table.drop_duplicates(["seed", "direction", "target", "mean_of"], keep="last")
        write_atomic(asked.output, table.to_csv(index=False, float_format="%.4g"))
    return table


if __name__ == "__main__":
    print(main().groupby(["direction", "mean_of"]).mean(numeric_only=True).to_string())
