"""How long do the tests take? `make check` and `make test` of one commit after another, each in a
fresh clone with cold caches, in the environment of this Python; and `make check` once more, after
one function has changed.

    python benchmarks/suite.py HEAD 4f8c182
    python benchmarks/suite.py HEAD --targets ci     # as on a server

Wall clock means something only where nothing else runs; processor time bears other load better.
"""

import argparse
import csv
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results/suite.csv"
# a function of `measures`, in its notebook and its module: the same values in other words
CHANGED = ("nbs/lib/5*_ranks.ipynb", "xlingual_nb/measures/ranks.py")
MAKES_OWN = "MAKE", "MFLAGS", "TESTS", "JOBS"  # under make, what that make was given
INSTALLED = ".torch", ".runtime", ".lab", ".site", ".dev"  # the Makefile's notes of what is there
BEFORE, AFTER = "lambda r: 1 / r, ties", "lambda r: 1.0 / r, ties"


def clone_of(commit: str, folder: Path) -> Path:
    """A fresh clone of this repository, at a commit."""
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    subprocess.run(["git", "checkout", "-q", commit], cwd=folder, check=True)
    return folder


def short_id(commit: str) -> str:
    """The name that a commit keeps, whatever HEAD is later."""
    command = ["git", "rev-parse", "--short", commit]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def command_of(clone: Path, target: str, environment: Path) -> list[str]:
    """How a target of the clone's Makefile is made, in this Python's environment.

    The Makefile finds `environment` as if it had made it, and so installs nothing.
    """
    environment.mkdir(exist_ok=True)
    for name in ("bin", "lib", "pyvenv.cfg"):
        if not (environment / name).exists():
            (environment / name).symlink_to(Path(sys.prefix, name))
    for name in INSTALLED:
        (environment / name).touch()
    return ["make", "-C", str(clone), target, f"VENV={environment}", "TESTS=tests"]


def change_a_function(clone: Path) -> None:
    """Write one function of `measures` in other words."""
    for pattern in CHANGED:
        (path,) = clone.glob(pattern)
        text = path.read_text(encoding="utf-8")
        if text.count(BEFORE) != 1:
            sys.exit(f"{path} has not one `{BEFORE}`: say in {__file__} what is to be changed")
        path.write_text(text.replace(BEFORE, AFTER), encoding="utf-8")


def measured(command: list[str], clone: Path) -> dict:
    """Seconds of the clock and of the processor that a command takes, and how it ends."""
    environment = {name: v for name, v in os.environ.items() if not name.startswith(MAKES_OWN)}
    environment["PYTHONPATH"] = str(clone)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = done.stdout.splitlines()
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            print(line, flush=True)
    last = [line for line in lines if " in " in line][-1:]
    return {
        "wall s": round(wall),
        "processor s": round(processor),
        "ended": "".join(last).strip("= ") or f"exit code {done.returncode}",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commits", nargs="*", default=["HEAD"])
    parser.add_argument("--targets", nargs="+", default=["check", "test"])
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    rows = []
    for commit in map(short_id, given.commits):
        with tempfile.TemporaryDirectory() as folder:
            clone = clone_of(commit, Path(folder) / "clone")
            for target in given.targets:
                shutil.rmtree(clone / ".pytest_cache", ignore_errors=True)
                command = command_of(clone, target, Path(folder) / "env")
                rows.append(
                    dict(commit=commit, what=f"make {target}, cold") | measured(command, clone)
                )
                print(*rows[-1].values(), flush=True)
                if target == "check" and "--affected" in (clone / "Makefile").read_text():
                    change_a_function(clone)
                    what = f"make {target}, one function changed"
                    rows.append(dict(commit=commit, what=what) | measured(command, clone))
                    print(*rows[-1].values(), flush=True)
    with open(given.output, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
