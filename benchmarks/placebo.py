"""How often a verdict is wrong: placebo studies with the spread of the kept tables."""

import argparse
import csv
from pathlib import Path

from xlingual_nb.report import placebo

ROOT = Path(__file__).resolve().parents[1]


def main(argv=None) -> Path:
    """Write the rates, a row as soon as it is there; the path of the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="laptop", help="whose kept tables")
    parser.add_argument("--studies", type=int, default=100, help="of each world, paper and corpus")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--results", type=Path, default=ROOT / "results", help="the folder of kept tables"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/placebo.csv")
    asked = parser.parse_args(argv)
    with asked.output.open("w", encoding="utf-8", newline="") as out:
        for row in placebo.error_rates_by_world(
            asked.results, asked.scale, asked.studies, asked.seed
        ):
            writer = csv.DictWriter(out, row, lineterminator="\n")
            if not out.tell():
                writer.writeheader()
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})
            out.flush()
            shares = [
                f"{wrong} {row[wrong]:.3f} [{row[f'{wrong}_low']:.3f}, {row[f'{wrong}_high']:.3f}]"
                for wrong in ("confirmed", "refuted")
            ]
            print(row["paper"], row["corpus"], row["world"], *shares, flush=True)
    return asked.output


if __name__ == "__main__":
    main()
