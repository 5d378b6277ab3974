"""Every numbered notebook by plain papermill, from a folder that is not the clone, several at a time
on one store; its tables against those of `xlingual run` on another store.

    python benchmarks/direct_papermill.py --output direct_papermill.csv
    python benchmarks/direct_papermill.py --notebooks 03 07 --checked 03
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from xlingual_nb.report.checkout import repository
from xlingual_nb.report.notebook_parameters import parameters
from xlingual_nb.report.notebooks import experiments, resolve


def by_papermill(source: Path, scale: str, folder: Path) -> dict:
    """Execute a notebook as papermill's own users do; its exit status, seconds and last words."""
    elsewhere = folder / "a folder für out" / source.stem
    elsewhere.mkdir(parents=True)
    places = {name: folder / "papermill" / name for name in ("store", "results", "figures")}
    command = [sys.executable, "-m", "papermill", str(source), "out.ipynb", "--no-progress-bar"]
    for name, value in {"scale": scale, **places}.items():
        if name in parameters(source):
            command += ["-p", name, str(value)]
    began = time.monotonic()
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True)
    words = (done.stderr.strip().splitlines() or [""])[-1]
    return dict(
        notebook=source.stem,
        status=done.returncode,
        seconds=round(time.monotonic() - began),
        said=words if done.returncode else "",
    )


def by_command(source: Path, scale: str, folder: Path) -> int:
    """Execute a notebook with `xlingual run` on a store of its own; the exit status."""
    places = {name: folder / "command" / name for name in ("store", "results", "figures")}
    command = [sys.executable, "-m", "xlingual_nb", "run", source.stem, "--scale", scale]
    for name, value in places.items():
        if name in parameters(source):
            option = ["--store", str(value)] if name == "store" else ["-p", f"{name}={value}"]
            command += option
    return subprocess.run(command, cwd=repository(), capture_output=True).returncode


def differing_tables(notebook: str, scale: str, folder: Path) -> str:
    """Tables of a notebook whose bytes differ between the two ways, or `N equal`."""
    ours, theirs = (folder / way / "results" / scale / notebook for way in ("papermill", "command"))
    names = sorted({p.name for p in (*ours.glob("*.csv"), *theirs.glob("*.csv"))})
    equal = []
    differ = []
    for name in names:
        files = ours / name, theirs / name
        is_equal = all(f.exists() for f in files) and files[0].read_bytes() == files[1].read_bytes()
        (equal if is_equal else differ).append(name)
    return f"differ: {', '.join(differ)}" if differ else f"{len(equal)} equal"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notebooks", nargs="*", help="default: all")
    parser.add_argument("--checked", nargs="*", help="by `xlingual run` too (default: all of them)")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    sources = [resolve(name) for name in given.notebooks or experiments()]
    checked = [resolve(name) for name in given.checked] if given.checked is not None else sources
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(repository()), os.environ.get("PYTHONPATH", "")]
    )
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(given.jobs) as pool:
        folder = Path(name)
        rows = []
        for row in pool.map(lambda s: by_papermill(s, given.scale, folder), sources):
            rows.append(row)
            print(row, flush=True)
        for source, row in zip(sources, rows):
            if source not in checked or row["status"]:
                continue
            status = by_command(source, given.scale, folder)
            tables = differing_tables(source.stem, given.scale, folder)
            row["tables"] = tables if status == 0 else f"xlingual run: exit status {status}"
            print(row["notebook"], row["tables"], flush=True)
    frame = pd.DataFrame(rows)
    print(frame.to_string(index=False, na_rep=""))
    if given.output:
        frame.to_csv(given.output, index=False)
    bad = [r for r in rows if r["status"] or not str(r.get("tables", "0 equal")).endswith("equal")]
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
