"""At which share of words translated right does inference transfer, level by level, and where do
our models stand?

    python benchmarks/nli_levels.py                                   # the simulation alone, minutes of one core
    python benchmarks/nli_levels.py --seeds 3 --store runs            # and models of English with Fake-English

README.md beside this file says what is simulated and what the figure shows.
"""

import argparse
import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import k2020_common
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.experiments.config import Pretraining
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.baselines import (
    FLOORS,
    classify_pairs,
    commonest_words,
    fit_feature_classifier,
    lexical_features,
)
from xlingual_nb.text import records

ROOT = Path(__file__).resolve().parents[1]
CHOSEN = "negated"  # the level of the study at laptop scale
TAUS = tuple(round(0.1 * i, 1) for i in range(11))
COLUMNS = ["what", "level", "seed", "tau", "source", "target"]


def mistranslated(pairs: list[dict], share: float, seed: int) -> list[dict]:
    """The same pairs in which all but a `share` of the word types have become another's, one to one
    among themselves.
    """
    words = sorted({w for r in pairs for w in (r["premise"] + " " + r["hypothesis"]).split()})
    order = np.random.default_rng(seed).permutation(len(words))
    wrong = order[round(share * len(words)) :]
    table = {words[a]: words[b] for a, b in zip(wrong, np.roll(wrong, 1))}

    def say(text):
        return " ".join(table.get(w, w) for w in text.split())

    return [r | dict(premise=say(r["premise"]), hypothesis=say(r["hypothesis"])) for r in pairs]


def right(classifier, pairs: list[dict]) -> float:
    from xlingual_nb.text.formats import LABELS

    return float(
        (classify_pairs(classifier, pairs) == [LABELS.index(r["label"]) for r in pairs]).mean()
    )


def simulated(level: str, draws: int, train: int, test: int) -> list[tuple]:
    """Rows of a level: its baselines, and a classifier of words whose lexicon is right for a share of
    the types.
    """
    known, asked = (
        records.load_records("nli", "micro/en", part, size, vocabulary=128, level=level)
        for part, size in (("train", train), ("test", test))
    )
    rows = []
    for name, view in FLOORS.items():
        score = right(fit_feature_classifier(view, known), asked)
        rows.append((name, level, 0, None, score, score))
    words = fit_feature_classifier(partial(lexical_features, common=commonest_words(known)), known)
    best = right(words, asked)
    return rows + [
        ("simulated", level, seed, tau, best, right(words, mistranslated(asked, tau, seed)))
        for tau in TAUS
        for seed in range(draws)
    ]


def study(level: str):
    """K's sizes at laptop scale with whole words for pieces and pairs of segments for inputs, and
    pairs of a level.
    """
    sizes = bilingual_config("laptop", "micro")

    def of_level(part):
        return replace(part, parameters=tuple((dict(part.parameters) | dict(level=level)).items()))

    base = Pretraining(
        Shape(3, 64, 1, 256, 40, positions=64),
        Training(epochs=0, batch=16, steps=6000, dropout=0.0),
    )
    return replace(
        sizes,
        base=base,
        kind="words",
        pieces=500,
        switches=dict(inputs="pairs"),
        targets=(),
        nli={name: of_level(part) for name, part in sizes.nli.items()},
    )


KINDS = {
    "trained": lambda spec: spec,
    "untrained": k2020_common.untrained_spec,
    "never saw the target": k2020_common.source_only_spec,
}


def measured(kind: str, level: str, seed: int, store: Store) -> tuple[tuple, list]:
    """The row of a model of one kind, fine-tuned on English and asked in Fake-English; and the runs
    behind it.
    """
    sizes, pair = study(level), ("en", "enfake")
    spec = KINDS[kind](k2020_common.bbert_spec(sizes, pair, seed))
    task, tau = k2020_common.nli_spec(sizes, spec, "en", ("enfake",)), None
    found = replace(k2020_common.retrieval_spec(sizes, spec, "en", "enfake"), words="dictionary")
    specs = [task, found] if kind == "trained" else [task]
    run(specs, store)

    def held(run):
        return json.loads((store.path(run) / "measures.json").read_text(encoding="utf-8"))

    if kind == "trained":
        tau = held(found)["tau_upper"]
    scores = held(task)["accuracy"]
    return (kind, level, seed, tau, scores["en|en"], scores["enfake|enfake"]), specs


def picture(frame: pd.DataFrame):
    """A panel a level: accuracy against the share of words right, the strongest baseline without a
    lexicon, our models.
    """
    from xlingual_nb.report import figures as draw

    draw.style()
    levels = list(dict.fromkeys(frame.level))
    figure, axes = draw.panels(len(levels), height=2.6, sharey=True)
    for ax, level in zip(axes, levels):
        part = frame[frame.level == level]
        line = part[part.what == "simulated"].groupby("tau").target.agg(["mean", "min", "max"])
        band = dict(color=draw.INK[3], alpha=0.5, linewidth=0, label="range over lexicons")
        ax.fill_between(line.index, line["min"], line["max"], **band)
        ax.plot(line.index, line["mean"], color=draw.INK[1], label="lexicon with a share right")
        floor = part[part.what.isin([*FLOORS, "untrained", "never saw the target"])].target.max()
        ax.axhline(floor, color=draw.INK[0], linestyle=":", label="strongest baseline")
        models = part[part.what == "trained"]
        look = dict(color=draw.INK[2], markeredgecolor=draw.INK[0], label="our models")
        if len(models):
            ax.plot(models.tau, models.target, "D", **look)
        ax.set(title=f"{level} pairs", xlabel="word translation τ", xlim=(0, 1), ylim=(0.2, 1))
    axes[0].set_ylabel("accuracy in the target")
    draw.legend_below(figure, axes)
    return figure


def parse(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--levels", nargs="*", default=["plain", "negated", "quantified"])
    parser.add_argument(
        "--draws", type=int, default=5, help="lexicons drawn for each share (default 5)"
    )
    parser.add_argument(
        "--train", type=int, default=6000, help="training pairs of the simulation (default 6000)"
    )
    parser.add_argument(
        "--test", type=int, default=2400, help="test pairs of the simulation (default 2400)"
    )
    parser.add_argument(
        "--seeds", type=int, default=0, help=f"models trained for the level {CHOSEN} (default none)"
    )
    parser.add_argument("--store", type=Path, default=Path("runs"))
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "figures" / "nli_levels-laptop-micro.csv",
        help="the CSV file; the picture goes beside it",
    )
    return parser.parse_args(arguments)


def over(kept: pd.DataFrame, rows: list[tuple]) -> pd.DataFrame:
    """What was kept before, with the rows over it."""
    key = ["what", "level", "seed", "tau"]
    new = pd.DataFrame(rows, columns=COLUMNS)
    old = kept[
        ~kept.what.isin(KINDS) | ~kept.set_index(key[:3]).index.isin(new.set_index(key[:3]).index)
    ]
    old = old[old.what.isin(KINDS) | ~old.level.isin(new[~new.what.isin(KINDS)].level)]
    return pd.concat([part for part in (old, new) if len(part)], ignore_index=True)


def main(arguments=None) -> pd.DataFrame:
    args = parse(arguments)
    from xlingual_nb.report import figures as draw

    rows, specs = [], []
    frame = pd.read_csv(args.output) if args.output.exists() else pd.DataFrame(columns=COLUMNS)

    def keep(rows):
        kept = over(frame, rows).sort_values(COLUMNS[:4], ignore_index=True)
        write_atomic(args.output, kept.to_csv(index=False, float_format="%.4f"))
        return kept

    for level in args.levels:
        rows += simulated(level, args.draws, args.train, args.test)
    for kind in KINDS:
        for seed in range(args.seeds):
            row, runs = measured(kind, CHOSEN, seed, Store(args.store))
            rows, specs = [*rows, row], specs + runs
            keep(rows)
    frame = keep(rows)
    caption = (
        "NLI in a target language against the share of words translated right: simulated on the words that "
        "differ (band: over lexicons drawn), the strongest baseline, and models of English with Fake-English, where "
        "there are any (microworld)"
    )
    draw.save(picture(frame), args.output.with_suffix(".png"), caption, specs)
    print(
        frame.groupby(["level", "what", "tau"], dropna=False)
        .target.agg(["mean", "min", "max"])
        .round(3)
        .to_string()
    )
    return frame


if __name__ == "__main__":
    os.environ.setdefault("XLINGUAL_DEVICE", "cpu")
    try:
        main()
    except InputError as error:
        sys.exit(f"{error}")
