"""What lets a small model learn to read running text: perplexity on development text, as a share of
the unigram's.
"""

import argparse
import csv
import time
from pathlib import Path

from xlingual_nb.measures.multilinguality import FitSpec
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

ROOT = Path(__file__).resolve().parents[1]
# positions that start as waves; half of the tokens masked, and slices of 8, at first
MEANS = ("sines", "masks", "slices")
USUAL = ("none", "sines", "masks+slices", "sines+masks+slices")


def text(language: str, part: str, sentences: int) -> CorpusSpec:
    """Text of the microworld; what is trained on has a seed of its own in every language."""
    seed = (("seed", f"text {language}"),) if part == "train" else ()
    return CorpusSpec(
        f"micro/{language}", part, (("sentences", sentences), ("vocabulary", 128), *seed)
    )


def training(asked, means: set[str]) -> Training:
    """The schedule that the options ask for, by these `MEANS`."""
    begins = means & {"masks", "slices"}
    opening = dict(
        opening=asked.opening,
        opening_rate=0.5 if "masks" in means else 0.15,
        opening_slice=8 * ("slices" in means),
    )
    usual = dict(
        steps=asked.steps, batch=asked.batch, learning_rate=asked.rate, dropout=asked.dropout
    )
    return Training(epochs=0, sines="sines" in means, **usual, **opening if begins else {})


def model(asked, named: str) -> PretrainSpec:
    """The model that the options ask for, on inputs of `--tokens` tokens, specials included;
    `named`: `sines+masks`.
    """
    means = set(named.split("+")) - {"none"}
    if means - {*MEANS}:
        raise SystemExit(f"{named}: join some of {', '.join(MEANS)} with +, or say none")
    languages = tuple(
        Language(name, text(name, "train", asked.sentences)) for name in asked.languages.split(",")
    )
    pieces = TokenizerSpec(
        languages[0].corpus, asked.pieces, "wordpiece", tuple(l.corpus for l in languages[1:])
    )
    shape = Shape(
        asked.layers,
        asked.hidden,
        asked.heads,
        4 * asked.hidden,
        max_tokens=asked.tokens,
        positions=256,
    )
    return PretrainSpec(
        languages, pieces, shape, training(asked, means), seed=asked.seed, inputs=asked.inputs
    )


def row(asked, named: str, store: Store) -> dict:
    """What came of it by these means."""
    spec, begun = model(asked, named), time.process_time()
    run([spec], store, Inline(), progress=False)
    spent = time.process_time() - begun
    fit = FitSpec(spec, tuple(text(l.name, "dev", 500) for l in spec.languages))
    run([fit], store, Inline(), progress=False)
    held = stage_of(fit).values(store.path(fit))
    told = {name: round(held[name], 3) for name in ("perplexity", "unigram", "share")}
    options = {
        name: value
        for name, value in vars(asked).items()
        if name not in ("means", "output", "store")
    }
    return {"means": named, **options, **told, "cpu_seconds": round(spent, 1)}


def options(argv=None) -> argparse.Namespace:
    """What is asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "means", nargs="*", help=f"some of {', '.join(MEANS)} joined with +, or none"
    )
    numbers = dict(
        tokens=130,
        batch=8,
        steps=1500,
        opening=500,
        sentences=4000,
        pieces=700,
        layers=3,
        hidden=64,
        heads=1,
        seed=0,
    )
    for name, usual in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--languages", default="en,es")
    parser.add_argument("--inputs", default="documents")
    parser.add_argument("--store", type=Path, default=Path("runs"))
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/running-text.csv")
    return parser.parse_args(argv)


def main(argv=None) -> Path:
    """Add a row to the table for each of the means, as soon as it is there; the path of the
    file.
    """
    asked = options(argv)
    for named in asked.means or USUAL:
        found = row(asked, named, Store(asked.store))
        new = not asked.output.exists()
        with asked.output.open("a", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, found, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(found)
        print(found, flush=True)
    return asked.output


if __name__ == "__main__":
    main()
