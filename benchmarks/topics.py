"""Does µ fall further without parallel text where the two halves have topics of their own?

    python benchmarks/topics.py --seeds 10 --store runs      # a quarter of an hour of two cores

D's rows 0 and 21 in the microworld, whose sentences are exchangeable, so that two halves of them are
alike; and row 21 with the same sentences sorted by topic, so that they are not. README.md beside this
file says how to read the table.
"""

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
from result_tables import add_options

from xlingual_nb.experiments.laboratory import SEEDS, row_spec
from xlingual_nb.experiments.scales import laboratory_config, laboratory_text
from xlingual_nb.measures.multilinguality import MeasureSpec
from xlingual_nb.measures.statistics import contrast
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Processes
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store
from xlingual_nb.text.sources import load_spec

ORIGINAL, NO_PARALLEL = "0 original", "21 no-parallel"
COMMON = 40  # of the microworld's 128 word types: grammar, and words that every topic has


def topic_score(sentences: list[str]) -> list[int]:
    """How many more words of one topic than of the other each sentence has: words below the
    commonest belong to either in turn, by frequency.
    """
    counts = Counter(word for sentence in sentences for word in sentence.split())
    ranked = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    side = {word: 1 if rank % 2 else -1 for rank, word in enumerate(ranked) if rank >= COMMON}
    return [sum(side.get(word, 0) for word in sentence.split()) for sentence in sentences]


def shared_words(sentences: list[str]) -> float:
    """Words of the first half that the second has as well, of all below the commonest, by token."""
    half = len(sentences) // 2
    counts = [
        Counter(word for sentence in part for word in sentence.split())
        for part in (sentences[:half], sentences[half:])
    ]
    common = {word for word, _ in (counts[0] + counts[1]).most_common(COMMON)}
    for part in counts:
        for word in common:
            del part[word]
    return (counts[0] & counts[1]).total() / max(part.total() for part in counts)


def arms(sizes, folder: Path) -> dict[str, tuple[str, object]]:
    """By name of an arm its row and sizes; the sorted text is written into `folder`."""
    train, _, _ = laboratory_text(sizes)
    sentences = [sentence for document in load_spec(train).documents for sentence in document]
    scores = topic_score(sentences)
    order = sorted(range(len(sentences)), key=lambda index: (scores[index], index))
    texts = {"exchangeable": sentences, "topics": [sentences[index] for index in order]}

    by_arm = {}
    for name, text in texts.items():
        path = folder / f"{name}.txt"
        write_atomic(path, "".join(f"{sentence}\n" for sentence in text))
        split = replace(sizes.text["train"], source=f"file:{path}", parameters={})
        by_arm[name] = replace(sizes, text=sizes.text | {"train": split})
        print(f"{name}: halves share {shared_words(text):.2f} of their words")
    return {
        "parallel": (ORIGINAL, by_arm["exchangeable"]),
        "exchangeable": (NO_PARALLEL, by_arm["exchangeable"]),
        "topics": (NO_PARALLEL, by_arm["topics"]),
    }


def comparison(table: pd.DataFrame) -> pd.DataFrame:
    """By arm without parallel text, how far µ falls below that of parallel text, and the difference."""
    mu = {arm: part.mu for arm, part in table.groupby("arm")}
    pairs = [("parallel", "exchangeable"), ("parallel", "topics"), ("exchangeable", "topics")]
    rows = []
    for plus, minus in pairs:
        estimate = contrast([mu[plus], mu[minus]], [1, -1])
        low, high = estimate.interval()
        name = f"{plus} less {minus}"
        rows.append({"µ": name, "difference": estimate.value, "low": low, "high": high})
    return pd.DataFrame(rows)


def main(argv=None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10, help="how many models of each kind")
    parser.add_argument("--workers", type=int, default=2)
    add_options(parser, "topics.csv")
    given = parser.parse_args(argv)

    texts = given.store.with_name(f"{given.store.name}-texts")
    texts.mkdir(parents=True, exist_ok=True)
    specs = {}
    for arm, (row, sizes) in arms(laboratory_config(given.scale, "micro"), texts).items():
        _, dev, _ = laboratory_text(sizes)
        for seed in SEEDS[: given.seeds]:
            specs[arm, seed] = MeasureSpec(
                row_spec(row, sizes, seed), dev, sentences=sizes.measured
            )
    store = Store(given.store)
    run(list(specs.values()), store, Processes(given.workers), stack=sizes.stack)
    rows = []
    for (arm, seed), spec in specs.items():
        values = stage_of(spec).values(store.path(spec))
        rows.append(
            {
                "arm": arm,
                "seed": seed,
                "mu": values["mu"],
                "train": values["perplexity_train"],
                "dev": values["perplexity_dev"],
            }
        )
    table = pd.DataFrame(rows)
    write_atomic(given.output, table.to_csv(index=False, float_format="%.4g"))
    print(table.groupby("arm")[["mu", "train", "dev"]].agg(["mean", "std"]).round(3).to_string())
    print(comparison(table).round(3).to_string(index=False))
    return table


if __name__ == "__main__":
    main()
