"""Rows 1 and 4 of D's Table 1 with each thing that D's code does otherwise, alone and together.

    python benchmarks/causes.py train --store runs --arms released,padding --seconds 1000
    python benchmarks/causes.py compare

`train` adds a line a model to the table. `compare` holds each difference, here and at the published size,
against the same seeds of the row as the paper's text has it: arm `paper` of the same table, or where that has
none the reference results, which may be another machine's. README.md beside this file says what each difference
would have to show.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
from result_tables import RESULTS, add_options, put_rows, read_rows

from xlingual_nb.experiments.laboratory import SEEDS, parse_row_label, row_spec, table_rows
from xlingual_nb.experiments.scales import laboratory_config, laboratory_text
from xlingual_nb.measures.multilinguality import MeasureSpec
from xlingual_nb.measures.statistics import contrast
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store

ROOT = Path(__file__).resolve().parents[1]
LABELS = {parse_row_label(row)[0]: row for row in table_rows("table1")}
KEYS = ["scale", "corpus", "arm", "row", "seed"]
MEASURES = {"mu": "µ", "perplexity_train": "MLM-Perpl. train"}

# The rows that each difference can change; `paper` is none.
ARMS = {
    "paper": ("1", "4"),
    "released": ("1", "4"),
    "padding": ("1", "4"),
    "epsilon": ("1", "4"),
    "split": ("4",),
}


def arm_spec(arm: str, row: str, sizes, seed: int):
    """The pretraining of a row (its identifier in Table 1) with one difference, or all of them."""
    label = LABELS[row]
    if arm == "released":
        return row_spec(label, sizes, seed, "released")
    spec = row_spec(label, sizes, seed)
    if arm == "paper":
        return spec
    if arm == "padding":
        return replace(spec, visible_padding=True)
    if arm == "split":
        return replace(spec, masking="no_random_released")
    return replace(spec, training=replace(spec.training, early_epsilon=True))


def train(given, sizes) -> pd.DataFrame:
    """Add the models that the table lacks, as many at a time as fit a stack, until time is up."""
    begun = time.monotonic()
    store = Store(given.store)
    _, dev, _ = laboratory_text(sizes)
    place = dict(scale=given.scale, corpus=sizes.label)
    table = read_rows(given.output, KEYS, **place)
    known = set(zip(table.arm, table.row, table.seed))
    for arm in given.arms.split(","):
        for row in [row for row in ARMS[arm] if row in given.rows.split(",")]:
            seeds = [s for s in SEEDS[: given.seeds] if (arm, row, s) not in known]
            for first in range(0, len(seeds), sizes.stack):
                if time.monotonic() - begun > given.seconds:
                    return table
                specs = [
                    MeasureSpec(arm_spec(arm, row, sizes, seed), dev, sentences=sizes.measured)
                    for seed in seeds[first : first + sizes.stack]
                ]
                run(specs, store, stack=sizes.stack, progress=False)
                lines = [place | line(arm, row, spec, store) for spec in specs]
                table = put_rows(given.output, lines, KEYS, "%.6g")
                print(pd.DataFrame(lines).to_string(index=False, header=False), flush=True)
    return table


def line(arm: str, row: str, spec: MeasureSpec, store: Store) -> dict:
    """What is kept of a model."""
    values = stage_of(spec).values(store.path(spec))
    label = {"arm": arm, "row": row, "seed": spec.checkpoint.seed, "run": run_id(spec)[:12]}
    return label | {name: values[name] for name in MEASURES}


def text_values(scale: str, corpus: str) -> pd.DataFrame:
    """The reference results of Table 1's rows as the paper's text has them, a line a model."""
    kept = pd.read_csv(ROOT / "results" / scale / "07_laboratory" / "seeds.csv")
    kept = kept[(kept.table == "table1") & (kept.corpus == corpus)]
    kept = kept[kept.column.isin(MEASURES.values())]
    wide = kept.pivot(index=["row", "seed"], columns="column", values="value").reset_index()
    wide["row"] = wide.row.str.split().str[0]
    return wide.rename(columns={column: name for name, column in MEASURES.items()})


def effects(table: pd.DataFrame, scale: str, corpus: str) -> pd.DataFrame:
    """What each difference adds to µ, with its 95% interval over paired seeds, and how the models fit
    their text.
    """
    text = table.loc[table.arm == "paper", ["row", "seed", *MEASURES]]
    # one machine made both: one run on two machines may differ by .03
    missing = text_values(scale, corpus).merge(text[["row", "seed"]], how="left", indicator=True)
    missing = missing[missing._merge == "left_only"].drop(columns="_merge")
    text = pd.concat([text, missing], ignore_index=True)
    both = table.merge(text, on=["row", "seed"], suffixes=("", "_text"))
    lines = []
    for (row, arm), part in both[both.arm != "paper"].groupby(["row", "arm"], sort=False):
        added = contrast([part.mu - part.mu_text], [1.0])
        low, high = added.interval()
        lines.append(
            {
                "scale": scale,
                "corpus": corpus,
                "row": LABELS[row],
                "difference": arm,
                "models": len(part),
                "µ, text": part.mu_text.mean(),
                "µ": part.mu.mean(),
                "added": added.value,
                "low": low,
                "high": high,
                "perplexity, text": part.perplexity_train_text.mean(),
                "perplexity": part.perplexity_train.mean(),
            }
        )
    return pd.DataFrame(lines)


def compare(given, sizes) -> pd.DataFrame:
    """The effects at this size and at the published one, which are also written down."""
    tables = {
        (given.scale, sizes.label): given.output,
        ("paper", "bible"): RESULTS / "published-size.csv",
    }
    frames = []
    for (scale, corpus), path in tables.items():
        if path.exists():
            models = read_rows(path, KEYS, scale=scale, corpus=corpus)
            frames.append(effects(models, scale, corpus))
    frame = pd.concat(frames, ignore_index=True)
    write_atomic(given.summary, frame.to_csv(index=False, float_format="%.4g"))
    return frame


def main(argv=None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("train", "compare"))
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--rows", default="1,4", help="identifiers of Table 1")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no model after so many")
    parser.add_argument("--corpus", default="micro")
    add_options(parser, "causes.csv")
    parser.add_argument("--summary", type=Path, default=RESULTS / "causes-compared.csv")
    given = parser.parse_args(argv)
    sizes = laboratory_config(given.scale, given.corpus)
    return {"train": train, "compare": compare}[given.command](given, sizes)


if __name__ == "__main__":
    print(main().round(3).to_string(index=False))
