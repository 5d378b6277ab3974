"""How well do encoders of K's Tables 4 and 5 fit their text? Training and development perplexity of
the models behind their reference values.

    python benchmarks/depth_fit.py "depth 6" "depth 24" --store runs
"""

import argparse

import pandas as pd
from result_tables import add_options, put_rows

from xlingual_nb.experiments import architecture, k2020_common
from xlingual_nb.experiments.study import SEEDS
from xlingual_nb.measures.multilinguality import FitSpec
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import load_json
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store

PAIR = "enfake", "es"
KEYS = ["scale", "row", "seed"]
TABLES = {"depth": "table4", "heads": "table5"}


def perplexities(sizes, row: str, seed: int, store: Store) -> dict:
    """A row of the table: a model, and its perplexity on the text that it read and on other."""
    shape = architecture.shape_of(sizes, TABLES[row.split(" ")[0]], row)
    spec = architecture.spec_with_shape(sizes, PAIR, seed, shape)
    found = dict(row=row, seed=seed, run=run_id(spec)[:12])
    for part in ("train", "dev"):
        fit = FitSpec(spec, tuple(k2020_common.language_corpus(sizes, l, part) for l in PAIR))
        run([fit], store, Inline())
        found[part] = load_json(store.path(fit) / "measures.json")["perplexity"]
    return found


def main(argv=None) -> pd.DataFrame:
    """Put rows into the table, each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="+", help="rows of K's Tables 4 and 5: 'depth 6', 'heads 1'")
    parser.add_argument("--seed", type=int, default=SEEDS[0])
    add_options(parser, "depth-fit.csv")
    asked = parser.parse_args(argv)
    sizes = k2020_common.load_study_config(asked.scale, "micro", 0)
    for row in asked.rows:
        found = perplexities(sizes, row, asked.seed, Store(asked.store))
        table = put_rows(asked.output, [{"scale": asked.scale} | found], KEYS)
    return table


if __name__ == "__main__":
    print(main().to_string(index=False))
