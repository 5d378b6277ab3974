"""P@1 of VecMap on real languages: small fastText vectors of small text, asked for the pairs of
MUSE's dictionaries.

    XLINGUAL_DATA=/path/to/data python benchmarks/muse.py --output benchmarks/results/muse.csv

README.md beside this file says how to read the table.
"""

import argparse
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd
import torch

from xlingual_nb.errors import InputError, require_package, require
from xlingual_nb.measures.retrieval import chance_mrr, rank, mrr_and_precision
from xlingual_nb.models.word_embeddings import EmbedSpec, train_gensim
from xlingual_nb.models.pretraining import Language
from xlingual_nb.models.vecmap import (
    MappedSpaces,
    SelfLearning,
    normalise_vectors,
    reweight_symmetrically,
    self_learn,
    fit_supervised,
    vecmap,
)
from xlingual_nb.models.configs import METHODS
from xlingual_nb.text.dictionaries import Dictionary, dictionary_pairs
from xlingual_nb.text.parallel import find_bible
from xlingual_nb.text.sources import CorpusSpec, available_sources, load_corpus
from xlingual_nb.text.tokenizers import Encoded, basic_tokenize
from xlingual_nb.text.vocabularies import TokenizerSpec


def space(sentences: list[str], options, seed: int = 0) -> tuple[list[str], torch.Tensor]:
    """The commonest words, lower-cased as MUSE's are, and their fastText vectors (words, size)."""
    cut = [*basic_tokenize(s.lower() for s in sentences)]
    words = [
        word
        for word, _ in sorted(
            Counter(w for s in cut for w in s).items(), key=lambda x: (-x[1], x[0])
        )
    ]
    number = {word: i for i, word in enumerate(words[: options.words])}
    text = Encoded.of([number[w] for w in s if w in number] for s in cut)
    any_text = CorpusSpec("micro/en")  # a spec asks for a text; the vectors are of the one above
    method = replace(METHODS["fasttext"], epochs=options.epochs)
    spec = EmbedSpec(
        (Language("any", any_text),), TokenizerSpec(any_text, 100), method, options.size, seed=seed
    )
    return [*number], torch.from_numpy(
        train_gensim(spec, text, [*number], lambda done, total: None)
    )


def places(pairs, words) -> np.ndarray:
    """Row numbers (k, 2) of those pairs whose words both have a vector."""
    first, second = ({word: i for i, word in enumerate(side)} for side in words)
    kept = [(first[a], second[b]) for a, b in pairs if a in first and b in second]
    return np.array(kept, int).reshape(-1, 2)


def begun_with(first, second, pairs) -> MappedSpaces:
    """VecMap from known pairs (k, 2) instead of none."""
    first, second = normalise_vectors(first), normalise_vectors(second)
    pairs, history = self_learn(first, second, torch.as_tensor(pairs), SelfLearning())
    return MappedSpaces(*reweight_symmetrically(first, second, pairs), pairs, history)


def ways(spaces, known: np.ndarray, alike: np.ndarray) -> dict:
    """Mappings by name, each of them a function; those that want pairs where there are any."""
    (_, first), (_, second) = spaces
    made = {"VecMap, no pair": lambda: vecmap(first, second)}
    if len(alike):
        made["VecMap from words of one spelling"] = lambda: begun_with(first, second, alike)
    if len(known):
        made |= {
            "VecMap from half of the pairs": lambda: begun_with(first, second, known),
            "half of the pairs, re-weighted": lambda: fit_supervised(first, second, known),
            "half of the pairs, Procrustes": lambda: fit_supervised(
                first, second, known, rotation=True
            ),
        }
    return made


def asked(name: str, spaces, known: np.ndarray, gold: np.ndarray, alike: np.ndarray) -> list[dict]:
    """A row a mapping: of the words of `gold`, whose right answers are among all words of the other
    side.
    """
    queries, row = np.unique(gold[:, 0], return_inverse=True)
    gold, size, rows = np.stack([row, gold[:, 1]], 1), len(spaces[1][0]), []
    told = dict(pair=name, words=size, known=len(known), asked=len(queries))
    for way, made in ways(spaces, known, alike).items():
        mapped = made()
        for similarity in ("csls", "cosine"):
            found = mrr_and_precision(rank(mapped.first[queries], mapped.second, gold, similarity))
            rows.append(told | dict(mapping=way, similarity=similarity, **found))
        print(name, way, f"P@1 {rows[-2]['p1']:.3f} by CSLS", flush=True)
    random = dict(mrr=chance_mrr(np.bincount(gold[:, 0]), size))
    return [*rows, told | dict(mapping="random vectors", similarity="cosine", **random)]


def controls(sentences: list[str], english, options) -> list[dict]:
    """English against English: the same text with another seed, and the other half of the text."""
    halves, rows = [space(sentences[i::2], options, seed=i) for i in (0, 1)], []
    both = {
        "en, another seed": (english, space(sentences, options, seed=1)),
        "en, two halves": halves,
    }
    for name, spaces in both.items():
        gold = places([(w, w) for w in spaces[0][0]], [words for words, _ in spaces])
        rows += asked(name, spaces, gold[:0], gold, gold[:0])
    return rows


def options_of(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--languages", nargs="*", default=["es", "fr", "de", "ru", "el"], help="beside English"
    )
    for name, usual in (("words", 2000), ("size", 100), ("epochs", 15)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--output", type=Path, help="a CSV file to write")
    o = parser.parse_args(arguments)
    require(min(o.words, o.size, o.epochs) > 0, "words, size and epochs: give at least 1")
    return o


def main(arguments=None) -> pd.DataFrame:
    o = options_of(arguments)
    require_package("gensim", "lab")
    torch.set_num_threads(1)
    listed = available_sources()
    english = load_corpus(find_bible("en", listed)).sentences
    home, rows = space(english, o), []
    for language in o.languages:
        spaces = home, space(load_corpus(find_bible(language, listed)).sentences, o)
        words, pair = [side for side, _ in spaces], ("en", language)
        known, gold = (
            places(dictionary_pairs(Dictionary(part=part), pair, None), words)
            for part in ("even", "odd")
        )
        require(
            len(gold),
            f"en-{language}: of no pair are both among {o.words} words: give --words more",
        )
        rows += asked(
            "-".join(pair), spaces, known, gold, places([(w, w) for w in words[0]], words)
        )
        if o.output:
            pd.DataFrame(rows).to_csv(o.output, index=False, float_format="%.4f")
    rows += controls(english, home, o)
    if o.output:
        pd.DataFrame(rows).to_csv(o.output, index=False, float_format="%.4f")
    return pd.DataFrame(rows)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
