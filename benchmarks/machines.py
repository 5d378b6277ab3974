"""How far apart are the values of one run that two machines made?

    xlingual run laboratory --scale laptop -p rows=1,4 -p seeds=3
    python benchmarks/machines.py yours/results/laptop/07_laboratory/seeds.csv

Values of the same run (its id), seed and column are held against the reference results'. The table has a
line a column: how many values there are, how many are equal, how far apart the rest come, and beside it
how far apart seeds come, which is what a difference between two machines is to be measured by.
"""

import argparse
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
ENTRY = ["paper", "table", "row", "column", "corpus", "seed", "step", "run_id"]
EQUAL = 1e-6  # relative: values are written with ten digits


def shared_values(here: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """The entries that both have of one run, with the value of each."""
    both = here.merge(reference, on=ENTRY, suffixes=("_here", "_reference"))
    return both.drop_duplicates(ENTRY).assign(
        difference=lambda entries: (entries.value_here - entries.value_reference).abs()
    )


def differences_by_column(shared: pd.DataFrame) -> pd.DataFrame:
    """A line a corpus and column: equal values, mean and largest difference, and the standard deviation
    over seeds of one row and step of a table.
    """
    one_row = ["table", "row", "step"]
    lines = []
    for (paper, corpus, column), entries in shared.groupby(["paper", "corpus", "column"]):
        is_equal = entries.difference <= EQUAL * entries.value_reference.abs()
        lines.append(
            {
                "paper": paper,
                "corpus": corpus,
                "column": column,
                "values": len(entries),
                "equal": int(is_equal.sum()),
                "mean difference": entries.difference.mean(),
                "largest": entries.difference.max(),
                "sd over seeds": entries.groupby(one_row, dropna=False)
                .value_reference.std()
                .mean(),
            }
        )
    return pd.DataFrame(lines)


def main(argv=None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("seeds", type=Path, nargs="+", help="values by seed that were made here")
    parser.add_argument("--reference", type=Path, default=ROOT / "results")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/machines.csv")
    given = parser.parse_args(argv)
    shared = []
    for path in given.seeds:
        # results/<scale>/<notebook>/seeds.csv, and what was made here likewise
        reference = given.reference.joinpath(*path.parts[-3:])
        shared.append(shared_values(pd.read_csv(path), pd.read_csv(reference)))
    table = differences_by_column(pd.concat(shared, ignore_index=True))
    table.to_csv(given.output, index=False, float_format="%.4g")
    return table


if __name__ == "__main__":
    print(main().round(4).to_string(index=False))
