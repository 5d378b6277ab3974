"""Which rates let encoders of one size, of different depths or heads, learn their text, and
inference? Told by the source.

    python benchmarks/depths.py "depth 1" "depth 12" "heads 1" --rates 1e-3 --tuning 1e-3 3e-4 --store runs

README.md beside this file says how to read the table.
"""

import argparse
from dataclasses import replace
from itertools import product

import pandas as pd
from result_tables import add_options, put_rows

from xlingual_nb.experiments import architecture, k2020_common
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.measures.multilinguality import FitSpec
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import load_json
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store

SOURCE = "enfake"
NAMED = ["scale", "row", "steps", "dropout", "warmup", "rate", "tuning rate", "seed"]


def model(sizes, row: str, seed: int, **schedule):
    """The encoder of a row of K's Table 4 or 5, with as many parameters as the others, on a
    schedule of its own.
    """
    shape = architecture.shape_of(sizes, "table5" if row.startswith("heads") else "table4", row)
    training = replace(sizes.deep.training, **schedule)
    return k2020_common.bbert_spec(
        sizes, (SOURCE, sizes.deep_target), seed, shape=shape, training=training
    )


def inference(sizes, spec, rate: float):
    """Fine-tuned on pairs of the source at a rate, and asked in those of its development data
    alone.
    """
    settings = replace(sizes.fine_tuning, learning_rate=rate)
    asked = k2020_common.nli_spec(
        replace(sizes, fine_tuning=settings), spec, SOURCE, (sizes.deep_target,)
    )
    return replace(asked, tests=((asked.dev, asked.dev),))


def fit(sizes, spec) -> FitSpec:
    """Perplexity on development text, beside the unigram's."""
    return FitSpec(
        spec,
        tuple(
            k2020_common.language_corpus(sizes, language, "dev")
            for language in (SOURCE, sizes.deep_target)
        ),
    )


def rows(sizes, row: str, rate: float, asked: argparse.Namespace, store: Store) -> list[dict]:
    """A row a rate of fine-tuning."""
    spec, told = (
        model(
            sizes,
            row,
            asked.seed,
            learning_rate=rate,
            steps=asked.steps,
            dropout=asked.dropout,
            warmup=asked.warmup,
        ),
        [],
    )
    read = fit(sizes, spec)
    run([read], store, Inline())
    share = load_json(store.path(read) / "measures.json")[SOURCE]["share"]
    took = load_json(store.path(spec) / "manifest.json")["seconds"]
    for tuning in asked.tuning:
        answered = inference(sizes, spec, tuning)
        run([answered], store, Inline())
        schedule = asked.steps, asked.dropout, asked.warmup, rate
        named = dict(zip(NAMED, (asked.scale, row, *schedule, tuning, asked.seed)))
        accuracy = stage_of(answered).values(store.path(answered))[f"accuracy {SOURCE}|{SOURCE}"]
        taught = load_json(store.path(answered) / "manifest.json")["seconds"]
        told.append(
            named
            | {
                "perplexity / unigram": share,
                "nli dev": accuracy,
                "pretraining (s)": took,
                "fine-tuning (s)": taught,
            }
        )
    return told


def options(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="+", help="rows of K's Tables 4 and 5: 'depth 12', 'heads 1'")
    parser.add_argument(
        "--rates", nargs="+", type=float, default=[1e-3, 5e-4], help="of pretraining"
    )
    parser.add_argument(
        "--tuning", nargs="+", type=float, default=[1e-3, 3e-4], help="rates of fine-tuning"
    )
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser, "depths.csv")
    return parser.parse_args(argv)


def main(argv=None) -> pd.DataFrame:
    """Put rows into the table, in the place of those of the same scale and settings, as soon as
    they are there.
    """
    asked = options(argv)
    sizes = bilingual_config(asked.scale, "micro")
    for row, rate in product(asked.rows, asked.rates):
        found = rows(sizes, row, rate, asked, Store(asked.store))
        table = put_rows(asked.output, found, NAMED)
        print(pd.DataFrame(found).to_string(index=False), end="\n\n", flush=True)
    return table


if __name__ == "__main__":
    main()
