"""Settings of static vectors for notebook 09, by the half of the dictionary that its tables never
ask for.
"""

import argparse
import csv
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

from xlingual_nb.experiments import liu2020_common
from xlingual_nb.experiments.scales import joint_config
from xlingual_nb.measures.word_retrieval import WordSpec
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store

ROOT, SEED = (
    Path(__file__).resolve().parents[1],
    9,
)  # a seed that the tables do not have at laptop scale
GRIDS = {
    "word2vec": dict(epochs=(5, 10), sample=(0.0, 1e-3, 1e-2)),
    "fasttext": dict(epochs=(5, 10), sample=(0.0, 1e-3, 1e-2)),
    "glove": dict(epochs=(10, 25), x_max=(3.0, 10.0, 100.0)),
}


def asked(sizes, spec, target: str) -> WordSpec:
    """The words of the half that is developed on, without those that are spelt alike."""
    other = replace(sizes.dictionary, part=sizes.learnt, identical=False)
    return liu2020_common.word_retrieval_spec(sizes, spec, target, dictionary=other)


def row(sizes, method: str, sentences: int, chosen: dict, store: Store) -> dict:
    """What one setting comes to at one size, in the mean over targets."""
    sizes = replace(sizes, **{method: replace(getattr(sizes, method), **chosen)})
    spec, begun = liu2020_common.static_spec(sizes, method, sentences, SEED), time.process_time()
    words = [asked(sizes, spec, target) for target in liu2020_common.queried_targets(sizes)]
    run(words, store, Inline(), progress=False)
    found = [stage_of(w).values(store.path(w)) for w in words]
    told = {
        name: round(sum(values[name] for values in found) / len(found), 4)
        for name in ("mrr", "chance")
    }
    settings = {name: chosen.get(name, "") for name in ("epochs", "sample", "x_max")}
    return dict(
        corpus=sizes.label,
        method=method,
        sentences=sentences,
        **settings,
        passes=spec.method.epochs,
        seed=SEED,
        **told,
        cpu_seconds=round(time.process_time() - begun, 1),
    )


def main(argv=None) -> Path:
    """Add a row a setting and size to the table, as soon as it is there; the path of the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", help=f"some of {', '.join(GRIDS)}")
    parser.add_argument("--epochs", type=int, nargs="*", help="these in the place of the grid's")
    parser.add_argument(
        "--sample", type=float, nargs="*", help="likewise; word2vec and fastText alone"
    )
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--corpus", default="micro")
    parser.add_argument(
        "--sentences",
        type=int,
        nargs="*",
        help="of the scale's amounts; by default the least and the most",
    )
    parser.add_argument("--store", type=Path, default=Path("runs"))
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks/results/static-settings.csv"
    )
    given = parser.parse_args(argv)
    sizes = joint_config(given.scale, given.corpus)
    for method in given.methods or GRIDS:
        asked_for = {
            name: getattr(given, name, None) or usual for name, usual in GRIDS[method].items()
        }
        names, values = zip(*asked_for.items())
        for setting, n in product(
            product(*values), given.sentences or (min(sizes.sentences), max(sizes.sentences))
        ):
            found = row(sizes, method, n, dict(zip(names, setting)), Store(given.store))
            new = not given.output.exists()
            with given.output.open("a", encoding="utf-8", newline="") as out:
                writer = csv.DictWriter(out, found, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(found)
            print(found, flush=True)
    return given.output


if __name__ == "__main__":
    main()
