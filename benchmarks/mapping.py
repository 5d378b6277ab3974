"""Seconds of VecMap on 20,000 words: a whole mapping, a round beside its matrix products alone, and
beside plain numpy.

    OMP_NUM_THREADS=1 python benchmarks/mapping.py --output benchmarks/results/mapping-1-thread.json

README.md beside this file says how to read the table.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch

from xlingual_nb.models.encoder import pick_device
from xlingual_nb.models.vecmap import (
    SelfLearning,
    induce_dictionary,
    initial_dictionary,
    normalise_vectors,
    procrustes,
    reweight_symmetrically,
    similarity_blocks,
    unit_rows,
    vecmap,
)
from xlingual_nb.runs.files import write_atomic


def planted(words: int, width: int, seed: int = 0, clusters: int = 100, moved: int = 1000):
    """Clustered vectors of falling spread, the same turned with a little noise, and the place of
    each row in the second. Words stand by their frequency, which two languages agree on roughly: no
    word is more than `moved` places off.
    """
    rng = torch.Generator().manual_seed(seed)
    spread, which = (
        torch.logspace(0, -1, width),
        torch.randint(0, clusters, (words,), generator=rng),
    )

    def draw(rows):
        return torch.randn(rows, width, generator=rng) * spread

    first = draw(clusters)[which] + draw(words)
    order = (torch.arange(words) + moved * torch.rand(words, generator=rng)).argsort()
    turn = torch.linalg.qr(torch.randn(width, width, generator=rng))[0]
    return first, (first + 0.3 * draw(words))[order] @ turn, order.argsort()


def seconds(work, device) -> tuple[float, object]:
    """What `work()` takes, of the clock on a GPU and of the processors elsewhere, and what it
    makes.
    """

    def now():
        if device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    began = now()
    made = work()
    return now() - began, made


def numpy_round(
    first: np.ndarray, second: np.ndarray, keep: float, k: int = 10, size: int = 1024
) -> np.ndarray:
    """The dictionary (n + m, 2) of a round as the paper has it (section 3.3), in numpy and one way
    after the other.
    """
    dice = np.random.default_rng(0)

    def parts(a, b):
        return ((start, a[start : start + size] @ b.T) for start in range(0, len(a), size))

    def hubs(a, b):
        return np.concatenate([np.partition(part, -k)[:, -k:].mean(1) for _, part in parts(a, b)])

    def nearest(a, b, mine, theirs):
        found = []
        for start, part in parts(a, b):
            scores = 2 * part - mine[start : start + size, None] - theirs
            if keep < 1:
                scores[dice.random(scores.shape, np.float32) >= keep] = -np.inf
            found.append(scores.argmax(1))
        return np.concatenate(found)

    one, other = hubs(first, second), hubs(second, first)
    forward, backward = nearest(first, second, one, other), nearest(second, first, other, one)
    ways = (np.arange(len(first)), forward), (backward, np.arange(len(second)))
    return np.concatenate([np.stack(way, 1) for way in ways])


ROUNDS = {"a tenth kept": 0.1, "all kept": 1.0}


def steps(words: int, width: int, device, settings=SelfLearning()) -> dict[str, float]:
    """Seconds of each part of a mapping of `words` words; of a round in numpy too, and of its
    matrix products alone.
    """
    first, second, _ = planted(words, width)
    first, second = normalise_vectors(first).to(device), normalise_vectors(second).to(device)
    plain = [table.cpu().numpy() for table in (first, second)]
    generator, told = torch.Generator(device).manual_seed(0), {}
    told["start"], pairs = seconds(lambda: initial_dictionary(first, second, settings), device)
    for name, keep in ROUNDS.items():
        told[f"round, {name}"], (pairs, _) = seconds(
            lambda: induce_dictionary(first, second, keep, generator=generator), device
        )
        told[f"numpy round, {name}"], _ = seconds(
            lambda: numpy_round(*plain, keep), torch.device("cpu")
        )
    told["rotation"], _ = seconds(
        lambda: procrustes(first[pairs[:, 0]], second[pairs[:, 1]]), device
    )
    told["end"], _ = seconds(lambda: reweight_symmetrically(first, second, pairs), device)

    def products():
        for _ in range(2):
            for _ in similarity_blocks(first, second):
                pass

    told["floor of a round"], _ = seconds(products, device)
    return told


def times(steps: dict[str, float]) -> dict[str, float]:
    """How many times as long a round of ours takes as its floor, and one in numpy as ours."""
    ours = {name: steps[f"round, {name}"] for name in ROUNDS}
    floor = {
        f"round over floor, {name}": took / steps["floor of a round"] for name, took in ours.items()
    }
    return floor | {
        f"numpy over round, {name}": steps[f"numpy round, {name}"] / took
        for name, took in ours.items()
    }


def whole(words: int, width: int, device) -> dict[str, float]:
    """A mapping from start to end: minutes, rounds, and the share of words that find their own
    translation.
    """
    first, second, places = planted(words, width)
    took, mapped = seconds(lambda: vecmap(first.to(device), second.to(device)), device)
    similar = similarity_blocks(unit_rows(mapped.first), unit_rows(mapped.second))
    nearest = torch.cat([block.argmax(1) for _, block in similar]).cpu()
    return {
        "minutes": took / 60,
        "rounds": len(mapped.history),
        "found": float(nearest.eq(places).float().mean()),
    }


def main(arguments=None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, usual in (("words", 20_000), ("width", 300)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output")
    a = parser.parse_args(arguments)
    device = pick_device(a.device)
    told = {
        "machine": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "numpy": np.__version__,
            "processor": platform.machine(),
            "threads": torch.get_num_threads(),
            "device": str(device),
            "load": os.getloadavg()[0],
        },
        "words": a.words,
        "width": a.width,
    }

    def tell(part, values):
        told[part] = values
        for name, value in values.items():
            print(f"{part:6} {name:32} {value:9.2f}", flush=True)
        if a.output:
            write_atomic(Path(a.output), json.dumps(told, indent=1) + "\n")

    tell("steps", steps(a.words, a.width, device))
    tell("times", times(told["steps"]))
    tell("whole", whole(a.words, a.width, device))
    return told


if __name__ == "__main__":
    main()
