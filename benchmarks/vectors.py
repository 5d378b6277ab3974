"""Word vectors: one pass of our GloVe and of gensim's word2vec beside the floors of their
arithmetic.

    python benchmarks/vectors.py --output benchmarks/results/vectors-1-thread.json

README.md beside this file says what is counted and how to read the table.
"""

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import torch

from xlingual_nb.errors import InputError, require_package, require
from xlingual_nb.models import glove
from xlingual_nb.models.word_embeddings import TokenCorpus
from xlingual_nb.models.configs import Glove
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.runs.run_folder import processor
from xlingual_nb.text.tokenizers import Encoded

MEMBERS = {"glove": "GloVe, ours", "word2vec": "skip-gram, gensim"}


@dataclass(frozen=True)
class Task:
    """A text and the vectors that are trained on it; the window is whole and no word is thinned
    out, so pairs can be counted.
    """

    text: Encoded
    entries: int
    size: int
    window: int = 5
    negative: int = 5

    @property
    def counts(self):
        return glove.cooccurrences(self.text, self.entries, self.window)

    @property
    def pairs(self) -> int:
        return sum(
            2 * len(glove.pairs_at_distance(self.text, d)[0]) for d in range(1, self.window + 1)
        )


def zipf(entries: int, sentences: int, words: int = 20) -> Encoded:
    """Independent tokens; the one of rank r has a probability proportional to 1/r."""
    chances = 1 / np.arange(1, entries + 1)
    return Encoded.of(
        np.random.default_rng(0).choice(entries, (sentences, words), p=chances / chances.sum())
    )


def flops(task: Task, cells: int) -> dict[str, float]:
    """Operations of one pass. A cell of GloVe, and a pair of word2vec with each of its negatives,
    takes a product of two vectors and adds a multiple of each to the other's sum: six operations a
    column.
    """
    return {
        "glove": 6.0 * (task.size + 2) * cells,
        "word2vec": 6.0 * task.size * task.pairs * (1 + task.negative),
    }


def seconds(call) -> float:
    """Processor time of all threads of this process."""
    began = time.process_time()
    call()
    return time.process_time() - began


def rates(size: int = 768, times: int = 8) -> dict[str, float]:
    """Operations a second: of a large matrix product, and of multiplying and adding long vectors,
    none of them used twice.
    """
    square, long = torch.ones(size, size), torch.ones(3, 2**23)

    def products():
        for _ in range(times):
            square @ square

    def look_ups():
        long[0].addcmul_(long[1], long[2])

    return {
        "arithmetic": times * 2 * size**3 / seconds(products),
        "look-ups": 2 * 2**23 / seconds(look_ups),
    }


def turn(task: Task, counts) -> dict:
    """One pass of each member, its preparation left out."""
    from gensim.models import Word2Vec

    readings = TokenCorpus(task.text, [f"w{i}" for i in range(task.entries)], lambda n: None)
    model = Word2Vec(
        vector_size=task.size,
        window=task.window,
        negative=task.negative,
        sg=1,
        sample=0,
        min_count=1,
        shrink_windows=False,
        workers=1,
    )
    model.build_vocab(readings)

    def gensim():
        model.train(readings, total_examples=len(task.text), epochs=1)

    return {
        "rates": rates(),
        "glove": seconds(lambda: glove.train_tables(counts, Glove(epochs=1), task.size)),
        "word2vec": seconds(gensim),
    }


def spread(values) -> dict[str, float]:
    return {
        name: float(f(values))
        for name, f in (("min", np.min), ("median", np.median), ("max", np.max))
    }


def summarise(rounds: list[dict], work: dict[str, float]) -> list[dict]:
    """A row a member; ratios are taken within a round. The last: its operations a second over those
    of our GloVe.
    """
    rows, pace = [], {m: np.array([work[m] / r[m] for r in rounds]) for m in MEMBERS}
    for member in MEMBERS:
        over = {
            f"over {floor}": spread([r["rates"][floor] for r in rounds] / pace[member])
            for floor in rounds[0]["rates"]
        }
        rows.append(
            {
                "member": member,
                "seconds": spread([r[member] for r in rounds]),
                "GFLOP/s": spread(pace[member] / 1e9),
                **over,
                "over glove": spread(pace[member] / pace["glove"]),
            }
        )
    return rows


def race(task: Task, rounds: int) -> dict:
    """All rounds at one size, after one that does not count."""
    counts = task.counts
    turns = [turn(task, counts) for _ in range(rounds + 1)][1:]
    work = flops(task, counts.nnz)
    return {
        "size": task.size,
        "entries": task.entries,
        "tokens": len(task.text.ids),
        "cells": counts.nnz,
        "pairs": task.pairs,
        "flops": work,
        "rounds": turns,
        "summary": summarise(turns, work),
    }


def shown(result: dict) -> str:
    """The table of one size: median (minimum-maximum)."""
    lines = [
        f"\n{result['size']} columns, {result['entries']} entries, {result['tokens']} tokens, "
        f"{result['cells']} cells"
    ]
    for row in result["summary"]:
        cells = [
            f"{name} {s['median']:.3g} ({s['min']:.3g}-{s['max']:.3g})"
            for name, s in row.items()
            if name != "member"
        ]
        lines.append(f"{MEMBERS[row['member']]:18} " + "  ".join(cells))
    return "\n".join(lines)


def options(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[64, 300, 768], help="columns (default 64 300 768)"
    )
    parser.add_argument(
        "--entries", type=int, default=4096, help="words of the vocabulary (default 4096)"
    )
    parser.add_argument(
        "--sentences", type=int, default=2000, help="sentences of 20 words (default 2000)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="a JSON file to write")
    o = parser.parse_args(arguments)
    require(
        min(*o.sizes, o.entries, o.sentences, o.rounds) > 0,
        "sizes, entries, sentences and rounds: give at least 1",
    )
    return o


def main(arguments=None) -> None:
    o = options(arguments)
    torch.set_num_threads(1)
    text, results = zipf(o.entries, o.sentences), []
    machine = dict(
        cpu=processor(),
        system=platform.system(),
        python=platform.python_version(),
        threads=1,
        torch=torch.__version__,
        numpy=np.__version__,
        gensim=require_package("gensim", "lab").__version__,
    )
    for size in o.sizes:
        results.append(race(Task(text, o.entries, size), o.rounds))
        print(shown(results[-1]), flush=True)
        if o.output:
            write_atomic(
                o.output,
                json.dumps(dict(format=1, machine=machine, results=results), indent=1) + "\n",
            )


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
