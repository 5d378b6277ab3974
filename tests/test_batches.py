"""Batches: the files that the repository has, and a batch of toy notebooks from start to end: one
that fails, one that is stopped, one that is there already.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from test_cli import notebook

from xlingual_nb.errors import InputError
from xlingual_nb.report import batches, notebooks
from xlingual_nb.report.batch_entries import read_batch
from xlingual_nb.report.batches import Outcome, run_batch
from xlingual_nb.report.notebooks import NotebookError

ROOT = Path(__file__).resolve().parents[1]
BATCHES = sorted((ROOT / "nbs/batch").glob("*.yaml"))
PARAMETERS = "scale = 'smoke'\nseeds = 0\nwords = ['a']\nstore = ''\ndevice = 'cpu'"


@pytest.mark.parametrize("path", BATCHES, ids=lambda p: p.stem)
def test_a_batch_of_ours_is_read(path):
    entries = read_batch(path)
    assert [e.source.stem for e in entries] == [
        item["notebook"] for item in yaml.safe_load(path.read_text())
    ]
    assert {e.parameters["scale"] for e in entries} == {path.stem.partition("_")[0]}


def test_smoke_leaves_out_no_notebook():
    every = sorted(p.stem for p in (ROOT / "nbs").glob("[0-9][0-9]_*.ipynb"))
    assert [e.name for e in read_batch("smoke")] == every


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A toy clone with three notebooks: one prints, one fails in the middle, one takes long."""
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    (tmp_path / "settings.ini").write_text("")
    cells = dict(
        counts=["print('seeds', seeds, words)"],
        fails=["print('so far')", "1 / 0"],
        waits=["import os, time", "print('kernel', os.getpid(), flush=True)", "time.sleep(60)"],
    )
    for number, (name, sources) in enumerate(cells.items(), 1):
        notebook(tmp_path / f"nbs/0{number}_{name}.ipynb", *sources, parameters=PARAMETERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def batch(clone, *items):
    path = clone / "mine.yaml"
    path.write_text(yaml.safe_dump([dict(notebook=n, parameters=p) for n, p in items]))
    return path


def test_every_entry_is_checked_before_the_first_runs(clone, monkeypatch):
    monkeypatch.setattr(
        batches, "execute_in_process", lambda *_: pytest.fail("a notebook was started")
    )
    with pytest.raises(InputError, match="entry 2: 02_fails: seeds='x' must be a whole number"):
        read_batch(batch(clone, ("01", {}), ("02", dict(seeds="x"))))
    with pytest.raises(InputError, match="scale 'smoek' does not exist"):
        run_batch(read_batch(batch(clone, ("01", {}), ("02", dict(scale="smoek")))))


def test_all_are_run_though_one_fails_and_what_is_there_is_found(clone, monkeypatch):
    began = []

    def fake(entry, children, say):
        began.append(entry.name)
        return Outcome(entry, "failed" if "fails" in entry.name else "done", "")

    monkeypatch.setattr(batches, "execute_in_process", fake)
    entries = read_batch(batch(clone, ("02", {}), ("01", dict(seeds=2)), ("01", {})))
    with pytest.raises(NotebookError, match="1 of 3 notebooks failed: 02_fails"):
        run_batch(entries, jobs=1)
    assert began == ["02_fails", "01_counts-seeds=2", "01_counts"]


def test_named_notebooks_at_once_are_such_a_batch(clone, monkeypatch):
    """A cluster is started once all are checked; copies keep the notebooks' own names."""
    began, clusters = [], []

    def fake(entry, children, say):
        began.append((entry.output.name, entry.parameters["seeds"], list(clusters)))
        return Outcome(entry, "failed" if "fails" in entry.name else "done", "")

    monkeypatch.setattr(batches, "execute_in_process", fake)
    settings, options = {"seeds": "2"}, dict(jobs=2, start_cluster=clusters.append)
    with pytest.raises(NotebookError, match="1 of 2 notebooks failed: 02_fails"):
        batches.run_notebooks(["02", "01"], "smoke", settings, **options)
    assert sorted(began) == [("01_counts.ipynb", 2, ["cpu"]), ("02_fails.ipynb", 2, ["cpu"])]
    with pytest.raises(InputError, match="no parameter 'sedes'"):
        batches.run_notebooks(["02", "01"], "smoke", {"sedes": "2"}, **options)
    assert len(began) == 2 and len(clusters) == 1


def test_an_entry_whose_sizes_have_changed_is_not_finished(tmp_path):
    own, path = tmp_path / "mine.toml", tmp_path / "batch.yaml"

    def told(epochs):
        training = f"longer = {{ 8 = {epochs} }}"
        own.write_text(f'study = "dufter2020"\n[smoke.mine]\nlike = "smoke.micro"\n{training}\n')

    told(1.5)
    values = dict(corpus="mine", own=str(own), results=str(tmp_path))
    path.write_text(yaml.safe_dump([dict(notebook="07", parameters=values)]))
    (entry,) = read_batch(path)
    assert len(entry.output.name) < 80  # the file of sizes by its name, not by its whole path
    entry.output.parent.mkdir(parents=True)
    entry.output.write_text('{"cells": [], "metadata": {}}')
    values = notebooks.values_of(entry.source, entry.parameters)
    facts = notebooks.facts_of(entry.source, entry.parameters, values)
    notebooks.write_facts(entry.output, facts)
    assert batches.is_finished(entry)
    told(2.5)
    assert not batches.is_finished(entry)


def test_a_batch_of_all_notebooks_gives_each_the_parameters_that_it_has(clone, monkeypatch):
    given = {}

    def fake(source, scale, values):
        given[source.stem] = values
        return source

    monkeypatch.setattr(batches, "run_notebook", fake)
    notebook(clone / "nbs/04_plain.ipynb", "1", parameters="scale = 'smoke'")
    batches.run_notebooks([], "smoke", {"seeds": "2"})
    toys = "01_counts", "02_fails", "03_waits"
    assert given == {"04_plain": {}} | {name: {"seeds": "2"} for name in toys}
    with pytest.raises(InputError, match="sedes"):
        batches.run_notebooks([], "smoke", {"sedes": "2"})


def test_a_batch_of_one_scale_refuses_another(clone):
    path = batch(clone, ("01", dict(scale="laptop")), ("02", {}))
    assert [e.parameters["scale"] for e in read_batch(path)] == ["laptop", "smoke"]
    with pytest.raises(InputError, match="--scale"):
        read_batch(path, scale="gpu")


def test_one_notebook_at_two_scales_on_the_workers_of_a_cluster(clone, monkeypatch):
    class Cluster:
        """Jobs that are done at once."""

        def __init__(self, *_, **__):
            self.jobs = []

        def start(self, home):
            pass

        def submit(self, job):
            self.jobs.append(job)

        def as_completed(self):
            return [(job, None) for job in self.jobs]

        def close(self):
            pass

    monkeypatch.setattr(batches, "Dask", Cluster)
    monkeypatch.setenv("XLINGUAL_EXECUTOR", "dask")
    monkeypatch.setenv("XLINGUAL_ADDRESS", "tcp://head:8786")
    entries = read_batch(batch(clone, ("01", dict(scale="laptop")), ("01", dict(scale="gpu"))))
    outcomes = batches.execute_on_workers(entries, "cpu", print)
    assert [(o.entry, o.status) for o in outcomes] == [(entry, "done") for entry in entries]


def test_a_batch_from_start_to_end(clone):
    """Two at a time, each in a process of its own with a kernel of its own."""
    path = batch(clone, ("01", dict(seeds="2.0", words="b,c")), ("fails", {}))
    command = [sys.executable, "-m", "xlingual_nb", "run", "--batch", str(path), "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    home = clone / "yours/results/smoke"
    name = "01_counts-seeds=2-words=b,c"
    executed = json.loads((home / f"01_counts/{name}.ipynb").read_text())
    assert "seeds 2 ['b', 'c']" in str(executed["cells"][-1]["outputs"])
    facts = executed["metadata"]["xlingual"]
    assert facts["parameters"] == dict(scale="smoke", seeds=2, words=["b", "c"])
    assert len(facts["code_sha256"]) == 64 and facts["python"] and facts["torch"]
    assert "seeds 2" in (home / f"01_counts/{name}.log").read_text()

    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "1 of 2 notebooks failed: 02_fails (yours/results/smoke/02_fails/02_fails.log)" in last
    failed = json.loads((home / "02_fails/02_fails.failed.ipynb").read_text())
    assert "so far" in str(failed["cells"]) and failed["metadata"]["xlingual"]["parameters"]
    assert "ZeroDivisionError" in (home / "02_fails/02_fails.log").read_text()
    assert f"{name} [1/" in done.stdout and "02_fails: failed (exit status 1: " in done.stdout

    entries = read_batch(path)
    assert [batches.is_finished(e) for e in entries] == [True, False]
    source = clone / "nbs/01_counts.ipynb"
    source.write_text(source.read_text().replace("'seeds'", "'number'"))
    assert not batches.is_finished(entries[0]), "the notebook is another now"


RUNS = """
import os
from toy_stages import Count, Store, run
from xlingual_nb.runs.cluster import executor_of_environment
print('in', os.getcwd())
run([Count(3), Count(4)], Store('runs'), executor_of_environment())
"""


@pytest.mark.ci
def test_notebooks_on_the_workers_of_a_cluster(clone):
    """On the only worker, which makes the runs that the notebook asks for beside it."""
    pytest.importorskip("distributed")
    notebook(clone / "nbs/04_runs.ipynb", RUNS, parameters=PARAMETERS)
    options = ["--executor", "dask", "--workers", "1", "--on-workers"]
    command = [sys.executable, "-m", "xlingual_nb", "run", "04", "02", "01", *options]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    home = clone / "yours/results/smoke"
    assert done.returncode == 1, done.stdout + done.stderr
    for name in ("01_counts", "04_runs"):
        assert (home / f"{name}/{name}.ipynb").exists() and f"{name}: done" in done.stdout
    assert f"in {clone}" in (home / "04_runs/04_runs.log").read_text()
    assert len(list((clone / "runs").rglob("value.txt"))) == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "1 of 3 notebooks failed: 02_fails (yours/results/smoke/02_fails/02_fails.log)" in last
    assert "so far" in (home / "02_fails/02_fails.failed.ipynb").read_text()
    assert "ZeroDivisionError" in (home / "02_fails/02_fails.log").read_text()


def test_notebooks_on_workers_need_a_cluster(clone):
    with pytest.raises(InputError, match="--on-workers needs a cluster"):
        batches.run_notebooks(["01"], "smoke", {}, on_workers=True)


def is_running(process_id: int) -> bool:
    """Whether a process is there, and not only its entry, which nobody may ask for any more."""
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.ci
def test_a_stopped_batch_leaves_no_kernel(clone):
    path = batch(clone, ("waits", {}), ("01", {}))
    command = [sys.executable, "-m", "xlingual_nb", "run", "--batch", str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log, deadline = clone / "yours/results/smoke/03_waits/03_waits.log", time.monotonic() + 120
    while not (log.exists() and (said := re.search(r"kernel (\d+)", log.read_text()))):
        assert time.monotonic() < deadline and child.poll() is None
        time.sleep(0.2)
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130 and len(err.strip().splitlines()) == 1
    deadline = time.monotonic() + 20
    while is_running(int(said[1])):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not (clone / "yours/results/smoke/01_counts").exists()
