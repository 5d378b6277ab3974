"""Perplexity of models of D's row 30, knn-replace: under [MASK] alone, as our tables have it for
every row, and under 50 % [MASK], 10 % random, 24 % neighbour, 16 % unchanged, as D's code has it for
rows 30 and 31.

    python benchmarks/replaced_perplexity.py --first 200 --seeds 8 --store runs
"""

import argparse

import pandas as pd
from result_tables import add_options, put_rows

from xlingual_nb.experiments.knn_replace import table1_spec
from xlingual_nb.experiments.scales import laboratory_config, laboratory_text
from xlingual_nb.measures.replaced_perplexity import ReplacedPerplexitySpec, ordinary_measure
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import load_json
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store

ROW = "30 knn-replace"
KEYS = ["scale", "corpus", "seed", "reading"]


def perplexities(sizes, seed: int, store: Store) -> list[dict]:
    """One model, and its perplexity on both texts under both readings."""
    spec = ReplacedPerplexitySpec(
        table1_spec(ROW, sizes, seed), laboratory_text(sizes)[1], sentences=sizes.measured
    )
    rows = []
    for reading, measured in (("[MASK] alone", ordinary_measure(spec)), (spec.masking, spec)):
        run([measured], store, Inline(), progress=False)
        values = load_json(store.path(measured) / "measures.json")
        rows.append(
            dict(
                corpus=sizes.corpus,
                seed=seed,
                run=run_id(spec.checkpoint)[:12],
                reading=reading,
                train=values["perplexity_train"],
                dev=values["perplexity_dev"],
            )
        )
    return rows


def main(argv=None) -> pd.DataFrame:
    """Put models into the table, each as soon as it is there; gives the whole table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", default="micro")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1)
    add_options(parser, "replaced-perplexity.csv")
    asked = parser.parse_args(argv)
    sizes = laboratory_config(asked.scale, asked.corpus)
    for seed in range(asked.first, asked.first + asked.seeds):
        rows = perplexities(sizes, seed, Store(asked.store))
        table = put_rows(asked.output, [{"scale": asked.scale} | row for row in rows], KEYS)
    return table


if __name__ == "__main__":
    print(main().to_string(index=False))
