"""Which variance may a test of three seeds use? The rate at which three rules find a difference
between rows that have none, with the spread of the kept tables.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special, stats

from xlingual_nb.report import placebo

ROOT = Path(__file__).resolve().parents[1]
LEVELS = (0.05, 0.005, 0.002)  # of one test, and what Holm's correction leaves of it to ten or 25
FEWEST_ROWS = 20


def moments(variances, df) -> tuple[float, float]:
    """Degrees of freedom and value of the prior of variances (Smyth 2004, section 6.2)."""
    logs = np.log(variances) - special.digamma(df / 2) + np.log(df / 2)
    excess = logs.var(ddof=1) - special.polygamma(1, df / 2)
    if excess <= 0:
        return np.inf, float(np.exp(logs.mean()))
    halves = np.geomspace(1e-3, 1e4, 20000)
    half = halves[np.argmin(np.abs(special.polygamma(1, halves) - excess))]
    return 2 * half, float(np.exp(logs.mean() + special.digamma(half) - np.log(half)))


def rules(variances, df) -> dict[str, tuple[np.ndarray, float]]:
    """By rule, the variances that a test uses and their degrees of freedom."""
    varies = variances > 1e-18
    prior_df, prior = moments(variances[varies], df)
    shrunken = (
        np.full(len(variances), prior)
        if np.isinf(prior_df)
        else (prior_df * prior + df * variances) / (prior_df + df)
    )
    logs = np.log(variances[varies]) - special.digamma(df / 2) + np.log(df / 2)
    typical = np.exp(logs.mean())
    return {
        "its own (Welch)": (variances, df),
        "shrunken (empirical Bayes)": (np.where(varies, shrunken, 0), df + min(prior_df, 1e6)),
        "no less than typical": (np.where(varies, np.maximum(variances, typical), 0), df),
    }


def one_column(sds, rng, draws, n=3) -> dict[str, np.ndarray]:
    """By rule, the share of pairs of rows without a difference that are found to differ at each of
    the `LEVELS`.
    """
    found, pairs = {}, 0
    for _ in range(draws):
        values = rng.normal(0, 1, (len(sds), n)) * sds[:, None]
        means, variances = values.mean(1), values.var(1, ddof=1)
        first, second = rng.integers(0, len(sds), (2, 300))
        keep = (first != second) & (sds[first] + sds[second] > 0)
        first, second, pairs = first[keep], second[keep], pairs + keep.sum()
        for rule, (used, df) in rules(variances, n - 1).items():
            a, b = used[first] / n, used[second] / n
            freedom = (a + b) ** 2 / ((a**2 + b**2) / df)
            p = stats.t.sf((means[first] - means[second]) / np.sqrt(a + b), freedom)
            hits = np.array([(p < level).sum() for level in LEVELS])
            found[rule] = found.get(rule, 0) + hits
    return {rule: hits / pairs for rule, hits in found.items()}


def main(argv=None) -> Path:
    """Write the rates, a row a rule: the mean over columns and the worst; the path of the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks/results/seed-variance.csv"
    )
    asked = parser.parse_args(argv)
    rng, columns = np.random.default_rng(0), []
    for corpus in placebo.reference_corpora(asked.results, "laptop"):
        cells = placebo.cell_moments(asked.results, "laptop", corpus)
        cells = cells[cells.n_seeds > 1]
        for _, part in cells.groupby(["paper", "column"]):
            if len(part) >= FEWEST_ROWS and (part.sd > 0).sum() >= FEWEST_ROWS:
                columns.append(one_column(part.sd.to_numpy(), rng, asked.draws))
    rows = []
    for rule in columns[0]:
        rates = np.array([column[rule] for column in columns])
        for level, mean, worst in zip(LEVELS, rates.mean(0), rates.max(0)):
            rows.append(dict(rule=rule, level=level, rate=mean, worst=worst, columns=len(columns)))
    pd.DataFrame(rows).to_csv(asked.output, index=False, float_format="%.3g", lineterminator="\n")
    return asked.output


if __name__ == "__main__":
    print(pd.read_csv(main()).to_string(index=False))
