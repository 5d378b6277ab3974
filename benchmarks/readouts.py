"""With which readout of inference does a difference between models take the fewest seeds?

    python benchmarks/readouts.py --seeds 0 1 2 3 4 5 --store runs      # an hour and a half of two cores

Models of K's Table 2, of Fake-English with Spanish in natural order and with all words permuted, are
read out by fine-tuning on all, a third and a tenth of the labelled pairs, and by classifiers of pairs
of frozen sentence means, each drawn twice. README.md beside this file says how to read the table.
"""

import argparse
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
from result_tables import add_options, put_rows, read_rows
from scipy import stats

from xlingual_nb.experiments import k2020_common
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.models.configs import Readout
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Processes
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.nli import FrozenNliSpec

SOURCE, TARGET = "enfake", "es"
ORDERS = {"natural": "", "permuted": "permute(1.0)"}
KEYS = ["scale", "readout", "order", "seed", "draw"]


def readouts(sizes, model, seed: int) -> dict:
    """The runs that read one model out, by name; `seed` is that of the readout."""
    fine_tuned = k2020_common.nli_spec(sizes, model, SOURCE, (TARGET,))
    fine_tuned = replace(fine_tuned, seed=seed)
    pairs = fine_tuned.train.records.size
    runs = {}
    for size in (pairs, pairs // 3, pairs // 10):
        records = replace(fine_tuned.train.records, size=size)
        train = replace(fine_tuned.train, records=records)
        runs[f"fine-tuned, {size} pairs"] = replace(fine_tuned, train=train)

    train, tests = fine_tuned.train, fine_tuned.tests
    for units, layer in product((0, 128), (model.shape.layers, model.shape.layers - 1)):
        kind = f"{units} hidden units" if units else "linear"
        settings = Readout(pool="mean", units=units, layer=layer)
        runs[f"frozen layer {layer}, {kind}"] = FrozenNliSpec(
            model, train, fine_tuned.dev, tests, settings, seed
        )
    return runs


def runs_by_setting(sizes, seeds, draws: int) -> dict[tuple, object]:
    """All runs, by readout, order, seed of the model and draw of the readout."""
    specs = {}
    for (order, permutation), seed, draw in product(ORDERS.items(), seeds, range(draws)):
        model = k2020_common.bbert_spec(sizes, (SOURCE, TARGET), seed, permutation)
        for name, spec in readouts(sizes, model, 100 * draw + seed).items():
            specs[name, order, seed, draw] = spec
    return specs


def seeds_needed(effect: float, level: float = 0.005, power: float = 0.8) -> int:
    """Models of each arm with which a two-sided t test finds a difference of `effect` standard
    deviations; more than 1,000 are not counted.
    """
    for n in range(2, 1001):
        df, shift = 2 * n - 2, abs(effect) * (n / 2) ** 0.5
        bound = stats.t.isf(level / 2, df)
        if stats.nct.sf(bound, df, shift) + stats.nct.cdf(-bound, df, shift) >= power:
            return n
    return 1000


def comparison(table: pd.DataFrame) -> pd.DataFrame:
    """A row a readout: accuracy in both languages, the difference that permuting makes, what spreads
    it, and how many seeds of both arms a difference of that size takes.

    `sd of draws` is pooled over models; `sd of models` is that of their first draws, one a model, as
    the tables have them.
    """
    rows = []
    for readout, found in table.groupby("readout", sort=False):
        first = found[found.draw == 0]
        arms = {order: part.target for order, part in first.groupby("order")}
        within = found.groupby(["order", "seed"]).target.var().mean() ** 0.5
        between = np.mean([arm.var() for arm in arms.values()]) ** 0.5
        difference = arms["natural"].mean() - arms["permuted"].mean()
        rows.append(
            {
                "readout": readout,
                "source, natural": first[first.order == "natural"].source.mean(),
                "source, permuted": first[first.order == "permuted"].source.mean(),
                **{f"target, {order}": arms[order].mean() for order in ORDERS},
                "difference": difference,
                "sd of draws": within,
                "sd of models": between,
                "seeds": seeds_needed(difference / between),
            }
        )
    return pd.DataFrame(rows)


def main(argv=None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4, 5], help="of models"
    )
    parser.add_argument("--draws", type=int, default=2, help="of each readout, a model")
    parser.add_argument("--workers", type=int, default=2)
    add_options(parser, "readouts.csv")
    given = parser.parse_args(argv)

    sizes, store = bilingual_config(given.scale, "micro"), Store(given.store)
    table = read_rows(given.output, KEYS, scale=given.scale)
    done = set(table[KEYS[1:]].itertuples(index=False, name=None))
    # a seed is written before the next is begun, and not read out again with another store
    for seed in given.seeds:
        specs = runs_by_setting(sizes, [seed], given.draws)
        specs = {setting: spec for setting, spec in specs.items() if setting not in done}
        run(list(specs.values()), store, Processes(given.workers), stack=1)
        rows = []
        for setting, spec in specs.items():
            values = stage_of(spec).values(store.path(spec))
            place = dict(zip(KEYS, (given.scale, *setting)))
            accuracies = {
                "source": values[f"accuracy {SOURCE}|{SOURCE}"],
                "target": values[f"accuracy {TARGET}|{TARGET}"],
            }
            rows.append(place | accuracies)
        if rows:
            put_rows(given.output, rows, KEYS)

    table = read_rows(given.output, KEYS, scale=given.scale)
    print(comparison(table).round(3).to_string(index=False))
    return table


if __name__ == "__main__":
    main()
