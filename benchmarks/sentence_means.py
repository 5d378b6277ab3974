"""Does it matter whether a language's mean counts tokens alike or sentences (L2 section 4.1)? Both
readings of the shift on the same models, by seed, direction and target.

    python benchmarks/sentence_means.py --seeds 0 1 2 --store runs
"""

import argparse
from itertools import product

import pandas as pd
from result_tables import add_options, put_rows

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
from xlingual_nb.runs.store import Store

KEYS = ["scale", "seed", "direction", "target", "mean_of"]
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
    add_options(parser, "sentence-means.csv")
    asked = parser.parse_args(argv)
    sizes = shift_study_config(asked.scale, "micro")
    for seed in asked.seeds:
        rows = measured(sizes, seed, Store(asked.store))
        rows.insert(0, "scale", asked.scale)
        table = put_rows(asked.output, rows, KEYS)
    return table


if __name__ == "__main__":
    print(main().groupby(["scale", "direction", "mean_of"]).mean(numeric_only=True).to_string())
