"""How much of the spread of inference between models of one row is fine-tuning's? Each model is
fine-tuned several times.

    python benchmarks/spread.py es ru --seeds 0 1 2 --tunings 4 --store runs

README.md beside this file says how to read the table.
"""

import argparse
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
from result_tables import add_options, put_rows

from xlingual_nb.experiments import k2020_common
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store

SOURCE = "enfake"
NAMED = ["scale", "target", "rate", "seed", "tuning"]


def inference(sizes, target: str, seed: int, tuning: int, rate: float):
    """A model of K's Table 1, fine-tuned once more: by the first seed, as the table is, else by a
    seed of its own.
    """
    spec = k2020_common.bbert_spec(sizes, (SOURCE, target), seed)
    asked = k2020_common.nli_spec(sizes, spec, SOURCE, (target,))
    drawn = 100 * (10 + tuning) + seed if tuning else asked.seed
    return replace(asked, seed=drawn, settings=replace(asked.settings, learning_rate=rate))


def parts(table: pd.DataFrame) -> pd.DataFrame:
    """A row a target and rate: standard deviation of one model's tunings, pooled, and of models, by
    the mean squares of a one-way layout with as many tunings a model (0 where tunings alone would
    spread models' means as much).
    """
    told = []
    for (target, rate), found in table.groupby(["target", "rate"]):
        by_model = found.pivot(index="seed", columns="tuning", values="nli").dropna()
        within = by_model.var(axis=1).mean()
        between = (
            max(0.0, by_model.mean(axis=1).var() - within / by_model.shape[1])
            if len(by_model) > 1
            else np.nan
        )
        told.append(
            (target, rate, *by_model.shape, by_model.to_numpy().mean(), within**0.5, between**0.5)
        )
    return pd.DataFrame(
        told,
        columns=["target", "rate", "models", "tunings", "mean", "sd of tunings", "sd of models"],
    )


def options(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="+", help="languages beside Fake-English")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of models")
    parser.add_argument("--tunings", type=int, default=4, help="fine-tunings a model")
    parser.add_argument(
        "--rates", nargs="+", type=float, default=[], help="of fine-tuning (default: the study's)"
    )
    add_options(parser, "spread.csv")
    return parser.parse_args(argv)


def main(argv=None) -> pd.DataFrame:
    """Put rows into the table, in the place of those of the same scale, model, rate and tuning, as
    soon as they are there.
    """
    asked = options(argv)
    sizes, store = bilingual_config(asked.scale, "micro"), Store(asked.store)
    rates = asked.rates or [sizes.fine_tuning.learning_rate]
    for target, rate, seed, tuning in product(
        asked.targets, rates, asked.seeds, range(asked.tunings)
    ):
        spec = inference(sizes, target, seed, tuning, rate)
        run([spec], store, Inline())
        told = stage_of(spec).values(store.path(spec))
        answers = {
            name: told[f"accuracy {language}|{language}"]
            for name, language in (("nli source", SOURCE), ("nli", target))
        }
        found = dict(zip(NAMED, (asked.scale, target, rate, seed, tuning))) | answers
        table = put_rows(asked.output, [found], NAMED)
    print(parts(table[table.scale == asked.scale]).round(3).to_string(index=False))
    return table


if __name__ == "__main__":
    main()
