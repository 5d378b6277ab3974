"""Seconds of VecMap: a round over 20,000 words beside its matrix products alone, and a whole mapping of fewer.

    python benchmarks/mapping.py --output benchmarks/results/mapping-1-thread.json

README.md beside this file says how to read the table."""
import argparse, json, os, platform, sys, time
from pathlib import Path

import torch

from xlingual_nb.models.encoder import pick_device
from xlingual_nb.models.mapping import SelfLearning, first_pairs, induce, normalised, procrustes, reweighted, vecmap
from xlingual_nb.models.neighbours import unit
from xlingual_nb.runs.files import write_atomic


def planted(words: int, width: int, seed: int = 0, clusters: int = 100):
    "Clustered vectors of falling spread, the same turned with a little noise, and the place of each row in the second."
    rng = torch.Generator().manual_seed(seed)
    spread, which = torch.logspace(0, -1, width), torch.randint(0, clusters, (words,), generator=rng)
    def draw(rows): return torch.randn(rows, width, generator=rng) * spread
    first, order = draw(clusters)[which] + draw(words), torch.randperm(words, generator=rng)
    turn = torch.linalg.qr(torch.randn(width, width, generator=rng))[0]
    return first, (first + .3 * draw(words))[order] @ turn, order.argsort()


def seconds(work, device) -> tuple[float, object]:
    "What `work()` takes, of the clock on a GPU and of the processors elsewhere, and what it makes."
    def now():
        if device.type != "cuda": return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()
    began = now()
    made = work()
    return now() - began, made


def steps(words: int, width: int, device, settings=SelfLearning()) -> dict[str, float]:
    "Seconds of each part of a mapping of `words` words, and of the matrix products of a round alone."
    first, second, _ = planted(words, width)
    first, second = normalised(first).to(device), normalised(second).to(device)
    generator, told = torch.Generator(device).manual_seed(0), {}
    told["start"], pairs = seconds(lambda: first_pairs(first, second, settings), device)
    for name, keep in (("round, a tenth kept", .1), ("round, all kept", 1.)):
        told[name], (pairs, _) = seconds(lambda keep=keep: induce(first, second, keep, generator=generator), device)
    told["rotation"], _ = seconds(lambda: procrustes(first[pairs[:, 0]], second[pairs[:, 1]]), device)
    told["end"], _ = seconds(lambda: reweighted(first, second, pairs), device)
    def products():
        for _ in range(2):
            for start in range(0, words, 1024): first[start:start + 1024] @ second.T
    told["floor of a round"], _ = seconds(products, device)
    return told


def whole(words: int, width: int, device) -> dict[str, float]:
    "A mapping from start to end: seconds, rounds, and the share of words that find their own translation."
    first, second, places = planted(words, width)
    took, mapped = seconds(lambda: vecmap(first.to(device), second.to(device)), device)
    nearest = (unit(mapped.first) @ unit(mapped.second).T).argmax(1).cpu()
    return {"seconds": took, "rounds": len(mapped.history), "found": float(nearest.eq(places).float().mean())}


def minutes(steps: dict[str, float], rounds: int) -> dict[str, float]:
    "What a mapping of so many rounds takes, by its parts: between all rounds of the one kind and all of the other."
    def total(kind): return (steps["start"] + rounds * (steps[kind] + steps["rotation"]) + steps["end"]) / 60
    return dict(zip(("least", "most"), sorted(map(total, ("round, all kept", "round, a tenth kept")))))


def main(arguments=None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, usual in (("words", 20_000), ("few", 1_000), ("width", 300)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output")
    a = parser.parse_args(arguments)
    device = pick_device(a.device)
    told = {"machine": {"python": sys.version.split()[0], "torch": torch.__version__, "processor": platform.machine(),
                        "threads": torch.get_num_threads(), "device": str(device), "load": os.getloadavg()[0]},
            "words": a.words, "few": a.few, "width": a.width,
            "whole, few": whole(a.few, a.width, device), "steps": steps(a.words, a.width, device)}
    told["minutes, as many rounds"] = minutes(told["steps"], told["whole, few"]["rounds"])
    for part in ("whole, few", "steps", "minutes, as many rounds"):
        for name, value in told[part].items(): print(f"{part:24} {name:22} {value:9.2f}", flush=True)
    if a.output: write_atomic(Path(a.output), json.dumps(told, indent=1) + "\n")
    return told


if __name__ == "__main__": main()
