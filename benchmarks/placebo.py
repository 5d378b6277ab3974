"""How often a verdict is wrong: placebo studies with the spread of the kept tables."""

import argparse
from pathlib import Path

import pandas as pd

from xlingual_nb.report import placebo
from xlingual_nb.runs.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
OF = ["scale", "paper", "corpus", "world"]


def main(argv=None) -> Path:
    """Write the rates, a row as soon as it is there, in the place of an earlier one of the same paper,
    corpus and world; the path of the file.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="laptop", help="whose kept tables")
    parser.add_argument("--studies", type=int, default=100, help="of each world, paper and corpus")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpora", nargs="*", default=[], help="some of those with kept tables")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "results", help="the folder of kept tables"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/placebo.csv")
    asked = parser.parse_args(argv)
    earlier = pd.read_csv(asked.output, dtype=str) if asked.output.exists() else pd.DataFrame()
    rows = {tuple(row[name] for name in OF): row for row in earlier.to_dict("records")}
    for row in placebo.error_rates_by_world(
        asked.results, asked.scale, asked.studies, asked.seed, asked.corpora
    ):
        written = {k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in row.items()}
        rows[tuple(written[name] for name in OF)] = written
        write_atomic(asked.output, pd.DataFrame(list(rows.values())).to_csv(index=False))
        shares = [
            f"{wrong} {row[wrong]:.3f} [{row[f'{wrong}_low']:.3f}, {row[f'{wrong}_high']:.3f}]"
            for wrong in ("confirmed", "refuted")
        ]
        print(row["paper"], row["corpus"], row["world"], *shares, flush=True)
    return asked.output


if __name__ == "__main__":
    main()
