"""How long must a row of D's Table 1 train to fit its training text as `original` does, and what is
its µ then?

    XLINGUAL_DATA=/path/to/data python benchmarks/matched_fit.py 1=1,1.3 8=1,1.5,2.5 --store runs

README.md beside this file says how to read the table.
"""

import argparse

import pandas as pd
from result_tables import add_options, put_rows

from xlingual_nb.experiments.laboratory import (
    SEEDS,
    parse_row_label,
    row_spec,
    select_rows,
    table_rows,
)
from xlingual_nb.experiments.scales import laboratory_config, laboratory_text
from xlingual_nb.measures.multilinguality import MeasureSpec
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store

ORIGINAL = "0"
KEYS = ["scale", "corpus", "row", "length", "seed"]
LABELS = {parse_row_label(row)[0]: row for row in table_rows("table1")}


def measure(sizes, ident: str, length: float, seed: int) -> MeasureSpec:
    """The measures of a row whose model trains so many times as long as the others."""
    _, dev, _ = laboratory_text(sizes)
    return MeasureSpec(
        row_spec(LABELS[ident], sizes, seed, longer=length), dev, sentences=sizes.measured
    )


def found(store: Store, spec: MeasureSpec) -> dict:
    """Perplexities and µ of a measured model."""
    values = stage_of(spec).values(store.path(spec))
    return {
        "steps": values["step"],
        "train": values["perplexity_train"],
        "dev": values["perplexity_dev"],
        "mu": values["mu"],
    }


def lengthened(sizes, asked: dict[str, list[float]], seeds, store: Store):
    """A table of (row, length, seed) of the lengths `asked` by row, the shortest first, each as
    soon as it is there.
    """
    asked, rows = {ORIGINAL: []} | asked, []
    asked[ORIGINAL] = [1.0, *asked[ORIGINAL]]
    for length in sorted(set().union(*asked.values())):
        idents = [ident for ident, lengths in asked.items() if length in lengths]
        told = {
            (ident, seed): measure(sizes, ident, length, seed) for ident in idents for seed in seeds
        }
        run(list(told.values()), store, Inline(), stack=sizes.stack)
        rows += [
            dict(row=LABELS[i], length=length, seed=s) | found(store, spec)
            for (i, s), spec in told.items()
        ]
        yield beside_original(pd.DataFrame(rows))


def beside_original(table: pd.DataFrame) -> pd.DataFrame:
    """The table with `times original`: training perplexity over that of `original` of the same
    seed.
    """
    usual = table[table.row == LABELS[ORIGINAL]].set_index("seed").train
    return table.assign(**{"times original": table.train / table.seed.map(usual)})


def lengths_of(text: str) -> tuple[str, list[float]]:
    """A row and its lengths, of `8=1,1.5`."""
    ident, _, lengths = text.partition("=")
    return ident, [float(length) for length in lengths.split(",") if length]


def options(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    rows = "identifiers of rows of Table 1, with lengths, times as long as usual: 8=1,1.5"
    parser.add_argument("rows", nargs="+", type=lengths_of, help=rows)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--corpus", default="bible")
    add_options(parser, "matched-fit.csv")
    asked = parser.parse_args(argv)
    select_rows(",".join(ident for ident, _ in asked.rows))
    return asked


def main(argv=None) -> pd.DataFrame:
    """Put rows into the table, in the place of those of the same scale, corpus, row, length and seed,
    as soon as they are there; gives the rows of this call.
    """
    asked = options(argv)
    sizes = laboratory_config(asked.scale, asked.corpus)
    tables = lengthened(sizes, dict(asked.rows), SEEDS[: asked.seeds], Store(asked.store))
    for table in tables:
        table.insert(0, "scale", asked.scale)
        table.insert(1, "corpus", sizes.label)
        put_rows(asked.output, table, KEYS)
        print(table.to_string(index=False), end="\n\n", flush=True)
    return table


if __name__ == "__main__":
    main()
