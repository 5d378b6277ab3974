"""Which rate of fine-tuning lets encoders of characters, pieces and words learn inference? Told by
the source alone.

    python benchmarks/spellings.py "Char hi 1" "Word hi 1" --tuning 1e-3 3e-4 --store runs

README.md beside this file says how to read the table.
"""

import argparse
from dataclasses import replace
from itertools import product

import pandas as pd
from result_tables import add_options, put_rows

from xlingual_nb.experiments import k2020_common, objective
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import load_json
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store

SOURCE = "enfake"
NAMED = ["scale", "column", "target", "seed", "tuning rate"]


def inference(sizes, column: str, target: str, seed: int, rate: float):
    """A model of K's Table 10, fine-tuned on pairs of the source at a rate, and asked in its
    development pairs alone.
    """
    pair, settings = (SOURCE, target), replace(sizes.fine_tuning, learning_rate=rate)
    spec = objective.variant_spec(sizes, column, pair, seed)
    asked = k2020_common.nli_spec(replace(sizes, fine_tuning=settings), spec, SOURCE, (target,))
    return replace(asked, tests=((asked.dev, asked.dev),))


def options(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "models", nargs="+", help="a column of Table 10, a target and a seed: 'Char hi 1'"
    )
    parser.add_argument(
        "--tuning", nargs="+", type=float, default=[1e-3, 3e-4], help="rates of fine-tuning"
    )
    add_options(parser, "spellings.csv")
    return parser.parse_args(argv)


def main(argv=None) -> pd.DataFrame:
    """Put rows into the table, in the place of those of the same scale, model and rate, as soon as
    they are there.
    """
    asked = options(argv)
    sizes, store = bilingual_config(asked.scale, "micro"), Store(asked.store)
    for model, rate in product(asked.models, asked.tuning):
        column, target, seed = model.split()
        spec = inference(sizes, column, target, int(seed), rate)
        run([spec], store, Inline())
        accuracy = stage_of(spec).values(store.path(spec))[f"accuracy {SOURCE}|{SOURCE}"]
        took = load_json(store.path(spec) / "manifest.json")["seconds"]
        found = dict(zip(NAMED, (asked.scale, column, target, int(seed), rate))) | {
            "nli dev": accuracy,
            "fine-tuning (s)": took,
        }
        table = put_rows(asked.output, [found], NAMED)
    print(table.to_string(index=False))
    return table


if __name__ == "__main__":
    main()
