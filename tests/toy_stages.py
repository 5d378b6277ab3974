"""Stages for the tests of the laboratory: a slow count that resumes, a sum over counts. A module,
so that workers can import it.
"""

import hashlib
import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from xlingual_nb.errors import InputError
from xlingual_nb.runs.stages import declare, declared_stages
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline, Processes
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.runs.store import Store


@dataclass(frozen=True)
class Count:
    stage: ClassVar[str] = "count"
    upto: int = 20
    seed: int = 0
    fault: str = ""
    pause: float = 0.0


@dataclass(frozen=True)
class Total:
    stage: ClassVar[str] = "total"
    counts: tuple[Count, ...] = ()


def faulty(spec):
    if spec.fault == "user":
        raise InputError("toy.txt is empty: fill it")
    if spec.fault == "bug":
        raise RuntimeError("a bug in the toy")
    if spec.fault == "full":
        raise OSError(28, "No space left on device")
    if spec.fault == "die":
        print("last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if spec.fault == "exit":
        os._exit(3)
    if spec.fault == "leave":
        sys.exit("enough")


def make_count(specs, folders, store, progress):
    """A chain of digests: every step needs the one before, is kept, and is noted in the store so
    that tests can count the work.
    """
    for spec, folder in zip(specs, folders):
        (folder / "resume").mkdir(exist_ok=True)
        state = folder / "resume" / "state.json"
        done, value = json.loads(state.read_text()) if state.exists() else (0, str(spec.seed))
        for step in range(done, spec.upto):
            value = hashlib.sha256(value.encode()).hexdigest()
            if step == 2:
                faulty(spec)
            # five steps are kept: a test may look or kill
            while step == 5 and (store.root / ".hold").exists():
                time.sleep(0.01)
            time.sleep(spec.pause)
            with open(store.root / ".steps.txt", "a") as log:
                log.write(f"{os.getpid()} {len(specs)} {spec.seed} {step}\n")
            write_atomic(state, json.dumps([step + 1, value]))
            progress(spec, step + 1, spec.upto, value=value[:4])
        write_atomic(folder / "value.txt", value)


def make_total(specs, folders, store, progress):
    for spec, folder in zip(specs, folders):
        digits = [(store.path(c) / "value.txt").read_text() for c in spec.counts]
        write_atomic(
            folder / "measures.json",
            json.dumps(dict(total=sum(int(d, 16) % 1000 for d in digits), n=len(digits))),
        )


declare(Count, make_count, group=lambda s: (s.upto, s.pause))
declare(Total, make_total)


@contextmanager
def redeclared(kind, make, **rest):
    """Another maker for a while, as if the code of the stage had been edited."""
    before = declared_stages()[kind.stage]
    declare(kind, make, **rest)
    try:
        yield
    finally:
        declare(kind, before.make, group=before.group, cost=before.cost)


def value(spec):
    """What a count should come to, worked out without the laboratory."""
    text = str(spec.seed)
    for _ in range(spec.upto):
        text = hashlib.sha256(text.encode()).hexdigest()
    return text


def steps(root):
    """The steps that were ever computed in a store: (process, group size, seed, step)."""
    path = Path(root) / ".steps.txt"
    return (
        [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )


# toy_stages.py ROOT PROCESSES SEEDS UPTO PAUSE: a plain script, for tests that kill it
if __name__ == "__main__":
    import toy_stages as toys  # not __main__: workers must find the stages by name

    root, workers, seeds, upto, pause = (
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        int(sys.argv[4]),
        float(sys.argv[5]),
    )
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs start with Ctrl-C ignored
    print("begun", flush=True)
    run(
        [toys.Count(upto, seed, "", pause) for seed in range(seeds)],
        Store(root),
        Processes(workers) if workers else Inline(),
        stack=1,
    )
    print("ended", flush=True)
