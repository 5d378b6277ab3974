"""Which opening lets a small model read running text: perplexity on development text, as a share of the unigram's."""
import argparse, csv, time
from dataclasses import replace
from pathlib import Path

from xlingual_nb.measures.fit import FitSpec
from xlingual_nb.models.languages import Language
from xlingual_nb.models.pretraining import PretrainSpec
from xlingual_nb.models.settings import Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

ROOT = Path(__file__).resolve().parents[1]
OPENINGS = {"none": {}, "masks": dict(opening_slice=0), "slices": dict(opening_rate=.15, opening_slice=8),
            "masks and slices": dict(opening_slice=8)}


def text(language: str, part: str, sentences: int) -> CorpusSpec:
    "Text of the microworld; what is trained on has a seed of its own in every language."
    seed = (("seed", f"text {language}"),) if part == "train" else ()
    return CorpusSpec(f"micro/{language}", part, (("sentences", sentences), ("vocabulary", 128), *seed))


def model(asked, opening: str) -> PretrainSpec:
    "The model that the options ask for, on inputs of `--tokens` tokens, specials included."
    languages = tuple(Language(name, text(name, "train", asked.sentences)) for name in ("en", "es"))
    pieces = TokenizerSpec(languages[0].corpus, asked.pieces, "wordpiece", (languages[1].corpus,))
    shape = Shape(asked.layers, asked.hidden, asked.heads, 4 * asked.hidden, max_tokens=asked.tokens, positions=256)
    training = Training(epochs=0, steps=asked.steps, batch=asked.batch, learning_rate=asked.rate, dropout=asked.dropout)
    if opening != "none": training = replace(training, opening=asked.opening, **OPENINGS[opening])
    return PretrainSpec(languages, pieces, shape, training, seed=asked.seed, inputs=asked.inputs)


def row(asked, opening: str, store: Store) -> dict:
    "What came of one opening."
    spec, begun = model(asked, opening), time.process_time()
    run([spec], store, Inline(), progress=False)
    spent = time.process_time() - begun
    fit = FitSpec(spec, tuple(text(name, "dev", 500) for name in ("en", "es")))
    run([fit], store, Inline(), progress=False)
    held = stage_of(fit).values(store.path(fit))
    told = {name: round(held[name], 3) for name in ("perplexity", "unigram", "share", "en share", "es share")}
    options = {name: value for name, value in vars(asked).items() if name not in ("openings", "output", "store")}
    return {"begins with": opening, **options, **told, "cpu_seconds": round(spent, 1)}


def main(argv=None) -> Path:
    "Add a row an opening to the table, as soon as it is there; the path of the file."
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("openings", nargs="*", help=f"some of {', '.join(OPENINGS)}")
    numbers = dict(tokens=130, batch=8, steps=1500, opening=500, sentences=4000, pieces=700, layers=3, hidden=64, heads=1,
                   seed=0)
    for name, usual in numbers.items(): parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--dropout", type=float, default=.1)
    parser.add_argument("--inputs", default="documents")
    parser.add_argument("--store", type=Path, default=Path("runs"))
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/running-text.csv")
    asked = parser.parse_args(argv)
    for opening in asked.openings or OPENINGS:
        found = row(asked, opening, Store(asked.store))
        new = not asked.output.exists()
        with asked.output.open("a", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, found, lineterminator="\n")
            if new: writer.writeheader()
            writer.writerow(found)
        print(found, flush=True)
    return asked.output


if __name__ == "__main__": main()
