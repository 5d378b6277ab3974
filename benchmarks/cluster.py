"""A dask cluster beside processes of one machine: what it costs, and what kills cost it.

    python benchmarks/cluster.py overhead --notebook 03 --rounds 3 --output overhead.csv
    python benchmarks/cluster.py overhead --notebook 07 --scale laptop -p rows=0 -p seeds=4
    python benchmarks/cluster.py kills --rounds 10 --output kills.csv

README.md beside this file says what is done and how to read the tables.
"""

import argparse
import ctypes
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import pandas as pd
import psutil
from toy_stages import Count, Total, steps

from xlingual_nb.report.notebooks import grid_of
from xlingual_nb.runs.cluster import Dask
from xlingual_nb.runs.engine import RunsFailed, run
from xlingual_nb.runs.executors import Inline, Processes
from xlingual_nb.runs.store import Store, check_runs, list_runs


def products(store: Store) -> dict[str, dict]:
    """SHA-256 of every product of each finished run, but for logs, which tell the time."""
    runs = {}
    for row in list_runs(store).query("state == 'found'").sort_values("run_id").itertuples():
        files = json.loads((Path(row.path) / "manifest.json").read_text())["files"]
        runs[row.run_id] = {name: f["sha256"] for name, f in files.items() if name != "log.jsonl"}
    return runs


def digest(store: Store) -> str:
    """One digest of all products of all finished runs."""
    return hashlib.sha256(json.dumps(products(store), sort_keys=True).encode()).hexdigest()


# ---- overhead


PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Become the parent of every descendant whose own parent ends before it (Linux).

    What a killed nanny leaves behind would else be counted nowhere.
    """
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1):
        sys.exit("processor seconds of a cluster are measured under Linux alone")


def processor_seconds() -> float:
    """Processor time of all descendants, once all have ended."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime


def one_study(study: dict, executor: str, folder: str) -> dict:
    """Make a notebook's runs in a new store, which takes some seconds of the clock."""
    specs, _ = grid_of(study["notebook"], study["scale"], study["settings"])
    made_by = Dask(workers=study["workers"]) if executor == "dask" else Processes(study["workers"])
    store, began = Store(folder), time.monotonic()
    run(specs, store, made_by, stack=1, progress=False)
    seconds = time.monotonic() - began
    made = list_runs(store)
    return dict(
        executor=executor,
        runs=len(made),
        seconds=round(seconds, 1),
        in_runs=round(float(made.seconds.sum()), 1),
        digest=digest(store),
    )


def overhead(study: dict, rounds: int) -> pd.DataFrame:
    """The same grid by processes and by dask, in turn, each in a fresh interpreter."""
    adopt_orphans()
    rows = []
    for turn in range(rounds):
        order = ("processes", "dask") if turn % 2 == 0 else ("dask", "processes")
        for executor in order:
            folder = tempfile.mkdtemp()
            arguments = (json.dumps(study), executor, f"{folder}/runs")
            command = [sys.executable, __file__, "one", *arguments]
            before = processor_seconds()
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            spent = round(processor_seconds() - before, 1)
            result = json.loads(answer.stdout.splitlines()[-1])
            rows.append(dict(round=turn, processor=spent) | result)
            print(rows[-1], flush=True)
            shutil.rmtree(folder)
    frame = pd.DataFrame(rows)
    if frame.digest.nunique() != 1:
        sys.exit("the two executors gave different bytes")
    return frame


# ---- kills

STEPS, PAUSE = 40, 0.05


class Trouble(threading.Thread):
    """Kills a random process of a cluster of this machine, at random moments, until it is told to
    stop: a dask worker, its nanny with it, or the process of a job.
    """

    def __init__(self, executor: Dask, rng: random.Random, most: int):
        super().__init__(daemon=True)
        self.executor, self.rng, self.most = executor, rng, most
        self.killed, self.over = {"job": 0, "worker": 0, "nanny": 0}, threading.Event()

    def run(self):
        while (
            not self.over.wait(self.rng.uniform(0.5, 2.5)) and sum(self.killed.values()) < self.most
        ):
            cluster = self.executor._cluster
            members = list(self.executor._workers_by_address.values())
            # who kills a worker while it starts kills its nanny too, which gives up
            if cluster is None or not members or not all(m.is_ready for m in members):
                continue
            nannies = [w.process.pid for w in cluster.workers.values() if w.process]
            kind = self.rng.choice(["job", "job", "worker", "nanny"])
            if kind == "nanny" and self.killed["nanny"] == len(nannies) - 1:
                kind = "worker"  # one machine is left to end on
            try:
                self.killed[kind] += kill_one(kind, psutil.Process(self.rng.choice(nannies)))
            except psutil.Error:
                continue


def kill_one(kind: str, nanny: psutil.Process) -> bool:
    """Kill -9; whether there was such a process."""
    family = nanny.children(recursive=True)
    jobs = [p for p in family if "executors import serve" in " ".join(p.cmdline())]
    workers = [p for p in family if "spawn_main" in " ".join(p.cmdline())]
    targets = {"job": jobs[:1], "worker": workers[:1], "nanny": [nanny, *workers]}[kind]
    for process in targets:
        os.kill(process.pid, signal.SIGKILL)
    return bool(targets)


def kill_round(seed: int, folder: str, expected: str) -> dict:
    """One study under kills: whether its bytes are those of a calm one, and what was made twice."""
    counts = [Count(STEPS, s, "", PAUSE) for s in range(6)]
    store, lines = Store(folder), []
    executor = Dask(workers=3, deaths=20, losses=20, tell=lines.append)
    trouble = Trouble(executor, random.Random(seed), most=6)
    trouble.start()
    failure = ""
    try:
        run([Total(tuple(counts))], store, executor, stack=1, progress=False)
    except RunsFailed as error:
        failure = str(error)[:200]
    trouble.over.set()
    trouble.join()
    return dict(
        round=seed,
        **trouble.killed,
        equal=digest(store) == expected,
        twice=len(steps(folder)) - STEPS * len(counts),
        told=len([line for line in lines if "tried again" in line]),
        damaged=len(check_runs(store)),
        partial=len(list(store.root.glob("partial/*"))),
        failure=failure,
    )


def kills(rounds: int) -> pd.DataFrame:
    """Rounds of kills against one calm study by the inline executor."""
    with tempfile.TemporaryDirectory() as folder:
        counts = [Count(STEPS, s, "", PAUSE) for s in range(6)]
        run([Total(tuple(counts))], Store(f"{folder}/calm"), Inline(), stack=1, progress=False)
        expected = digest(Store(f"{folder}/calm"))
        rows = []
        for seed in range(rounds):
            rows.append(kill_round(seed, f"{folder}/{seed}", expected))
            print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    for name, rounds in (("overhead", 3), ("kills", 10)):
        part = parts.add_parser(name)
        part.add_argument("--rounds", type=int, default=rounds)
        part.add_argument("--output", type=Path)
    parts.choices["overhead"].add_argument("--notebook", default="03")
    parts.choices["overhead"].add_argument("--scale", default="smoke")
    parts.choices["overhead"].add_argument("--workers", type=int, default=2)
    parts.choices["overhead"].add_argument("-p", dest="settings", action="append", default=[])
    one = parts.add_parser("one", help="(a fresh interpreter of overhead)")
    for name in ("study", "executor", "folder"):
        one.add_argument(name)
    given = parser.parse_args()
    if given.part == "one":
        return print(json.dumps(one_study(json.loads(given.study), given.executor, given.folder)))
    if given.part == "kills":
        frame = kills(given.rounds)
    else:
        settings = dict(setting.split("=", 1) for setting in given.settings)
        study = dict(notebook=given.notebook, scale=given.scale, settings=settings)
        frame = overhead(study | dict(workers=given.workers), given.rounds)
    print(frame.to_string(index=False))
    if given.output:
        frame.to_csv(given.output, index=False)


if __name__ == "__main__":
    main()
