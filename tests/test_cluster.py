"""Runs on a dask cluster: the same bytes, whatever is killed, and one line for what a worker lacks."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from test_pretraining import LONG, products, stop_once_training
from toy_stages import Count, Total, steps, value

pytest.importorskip("distributed")

from xlingual_nb.errors import InputError
from xlingual_nb.runs.cluster import (
    Dask,
    executor_for_kernels,
    executor_of_environment,
    make_executor,
)
from xlingual_nb.runs.dask_clusters import batch_cluster, local_cluster
from xlingual_nb.runs.engine import RunsFailed, run
from xlingual_nb.runs.executors import Inline, Processes, devices_of_a_run
from xlingual_nb.runs.files import DiskFull
from xlingual_nb.runs.remote import fault_of
from xlingual_nb.runs.store import Store, check_runs

ROOT = Path(__file__).resolve().parents[1]


def dask_process(command, *arguments, path=(), **environment):
    """`dask scheduler` or `dask worker` as a program of its own, in a process group of its own."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, path), str(ROOT), str(ROOT / "tests")]),
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "dask", command, *map(str, arguments)],
        env=variables,
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def worker_process(address, *more, path=(), **environment):
    options = ("--nthreads", 1, "--memory-limit", 0, "--no-dashboard", *more)
    return dask_process("worker", address, *options, path=path, **environment)


def end(*processes):
    for process in processes:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        process.wait()


def written_address(file: Path) -> str:
    """The address in a scheduler's file; empty while it is not there, or half written."""
    try:
        return json.loads(file.read_text())["address"]
    except (FileNotFoundError, json.JSONDecodeError):
        return ""


@contextmanager
def scheduler(tmp_path):
    """The address of a scheduler, and the process."""
    file = tmp_path / "scheduler.json"
    process = dask_process(
        "scheduler", "--host", "127.0.0.1", "--port", 0, "--no-dashboard", "--scheduler-file", file
    )
    limit = time.monotonic() + 120
    while not (address := written_address(file)):
        assert time.monotonic() < limit and process.poll() is None
        time.sleep(0.1)
    try:
        yield address, process
    finally:
        end(process)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def right(store, specs):
    return all((store.path(s) / "value.txt").read_text() == value(s) for s in specs)


def locks(store):
    return list((store.root / "locks").glob("[0-9a-f]*"))


def test_bytes_are_those_of_every_other_executor(store, tmp_path):
    counts = [Count(8, seed) for seed in range(5)]
    wanted = [Total(tuple(counts[:3])), Total(tuple(counts[2:]))]
    others = {"inline": Inline(), "processes": Processes(2), "dask": Dask(workers=2)}
    files = {}
    for name, executor in others.items():
        store = Store(tmp_path / name)
        run(wanted, store, executor, stack=2, progress=False)
        finished = [store.path(s) for s in (*wanted, *counts)]
        files[name] = [
            (p.name, p.read_bytes())
            for folder in finished
            for p in sorted(folder.iterdir())
            if p.name in ("value.txt", "measures.json", "spec.json")
        ]
        assert len({pid for pid, *_ in steps(store.root)}) == (1 if name == "inline" else 2)
        sizes = {seed: size for _, size, seed, _ in steps(store.root)}
        assert sizes == {0: 2, 1: 2, 2: 2, 3: 2, 4: 1}, "groups follow from the runs alone"
    assert files["inline"] == files["processes"] == files["dask"] and len(files["dask"]) == 14


@pytest.mark.ci
def test_the_dashboard_of_a_cluster_of_this_machine_is_said_and_answers(tmp_path, monkeypatch):
    pytest.importorskip("bokeh")
    lines = []
    executor = Dask(workers=1, tell=lines.append)
    try:
        executor.start(tmp_path)
        (link,) = re.findall(r"dashboard (http\S+)", lines[0])
        assert b"Dask" in urlopen(link, timeout=30).read()
        monkeypatch.setattr("xlingual_nb.runs.cluster.urlopen", _refusing)
        assert executor._dashboard() == "", "as where bokeh is missing"
    finally:
        executor.close()


@pytest.mark.ci
def test_a_job_that_kills_its_process_is_tried_again_so_often(store):
    lines = []
    with pytest.raises(RunsFailed) as raised:
        bad, good = Count(6, 1, "die"), Count(6, 2)
        run(
            [bad, good],
            store,
            Dask(workers=1, deaths=2, tell=lines.append),
            stack=1,
            progress=False,
        )
    assert "SIGKILL" in str(raised.value) and "3 times" in str(raised.value)
    assert "last words" in str(raised.value), "what the process wrote last"
    assert sum("tried again from its last checkpoint" in line for line in lines) == 2
    assert right(store, [good]) and check_runs(store).empty
    done = [step for *_, seed, step in steps(store.root) if seed == 1]
    assert done == [0, 1], "what was computed before the kill was not computed again"


def test_failures_are_those_of_the_study(store):
    with pytest.raises(InputError, match=r"^toy.txt is empty: fill it$"):
        run([Count(6, 1, "user"), Count(6, 2)], store, Dask(workers=1), progress=False)
    assert right(store, [Count(6, 2)]) and not locks(store)


HIDDEN = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "xlingual_nb" else found(name, *more)
"""


@pytest.mark.ci
@pytest.mark.parametrize(
    "lack, says",
    [
        ("package", "does not have xlingual_nb: install version"),
        ("version", "has another xlingual_nb"),
        ("gpu", "has no GPU that torch can use"),
        ("store", "does not see the store"),
    ],
)
def test_what_a_worker_lacks_is_said_in_one_line(store, tmp_path, monkeypatch, lack, says):
    path, more, device = [], (), "cpu"
    if lack == "package":
        path = [tmp_path / "site"]
        path[0].mkdir()
        (path[0] / "sitecustomize.py").write_text(HIDDEN)
    elif lack == "version":
        path = [tmp_path / "site"]
        (path[0] / "xlingual_nb").mkdir(parents=True)
        (path[0] / "xlingual_nb" / "__init__.py").write_text("__version__ = '0.0.1'")
    elif lack == "gpu":
        device, more = "cuda", ("--resources", "gpu=1")
    with scheduler(tmp_path) as (address, _):
        worker = worker_process(address, *more, path=path, CUDA_VISIBLE_DEVICES="")
        executor = Dask(address, device=device, tell=lambda line: None)
        monkeypatch.setattr(Dask, "PROMPT", 1.0)
        if lack == "store":
            touch = Path.touch
            monkeypatch.setattr(Path, "touch", lambda p: None if ".seen" in p.name else touch(p))
        began = time.monotonic()
        try:
            with pytest.raises(InputError, match=says) as raised:
                run([Count(3)], store, executor, progress=False)
        finally:
            end(worker)
    assert "\n" not in str(raised.value) and time.monotonic() - began < 60
    assert not steps(store.root) and not list(store.root.glob(".seen*"))


def test_a_worker_with_too_few_gpus_for_a_run_is_not_used(monkeypatch):
    report = dict(host="node", version="1", digest="d", gpus=2, store="")
    monkeypatch.setenv("XLINGUAL_DEVICES", "2")
    assert not fault_of(report, report, "runs")
    monkeypatch.setenv("XLINGUAL_DEVICES", "4")
    assert "sees 2 GPUs, and a run is to have 4" in fault_of(report, report, "runs")


@pytest.mark.ci
def test_no_scheduler_and_no_worker(store, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no dask scheduler answers at tcp://127.0.0.1:1"):
        monkeypatch.setattr("distributed.Client", _refusing)
        run([Count(3)], store, Dask("tcp://127.0.0.1:1"), progress=False)
    monkeypatch.undo()
    monkeypatch.setattr(Dask, "PROMPT", 0.5)
    lines = []
    with scheduler(tmp_path) as (address, _):
        executor = Dask(address, device="cuda", patience=2.0, tell=lines.append)
        with pytest.raises(InputError, match="no dask worker with the resource gpu was there for"):
            run([Count(3)], store, executor, progress=False)
    assert any("has no worker with the resource gpu; waiting" in line for line in lines)


def _refusing(*arguments, **options):
    raise OSError("connection refused")


@pytest.mark.ci
def test_a_lost_scheduler_ends_the_study_and_the_same_command_goes_on(store, tmp_path):
    specs = [Count(60, seed, "", 0.1) for seed in range(3)]
    executors = []

    class Killing(Dask):
        def _assign_jobs(self):
            super()._assign_jobs()
            if len(steps(store.root)) > 20 and process.poll() is None:
                end(process)

    with scheduler(tmp_path) as (address, process):
        worker = worker_process(address, "--death-timeout", 5)
        executors.append(Killing(address))
        with pytest.raises(
            RunsFailed, match=r"scheduler at .* was lost; all that was computed is kept"
        ):
            run(specs, store, executors[0], stack=1, progress=False)
        limit = time.monotonic() + 60
        while locks(store):
            assert time.monotonic() < limit, "the worker's process gives its lock back"
            time.sleep(0.2)
        end(worker)
    run(specs, store, Dask(workers=1), stack=1, progress=False)
    assert right(store, specs) and len(steps(store.root)) - 180 <= 1


def test_a_killed_worker_costs_a_step_and_is_told(store):
    lines = []
    specs = [Count(40, seed, "", 0.05) for seed in range(3)]

    class Killing(Dask):
        killed = False

        def _assign_jobs(self):
            super()._assign_jobs()
            if not self.killed and len(steps(store.root)) > 15:
                nanny = self._cluster.workers[0].process.pid
                self.killed = True
                subprocess.run(["pkill", "-KILL", "-P", str(nanny)], check=False)
                os.kill(nanny, signal.SIGKILL)

    run(specs, store, Killing(workers=2, tell=lines.append), stack=1, progress=False)
    assert right(store, specs) and any("was lost" in line for line in lines)
    assert len(steps(store.root)) - 120 <= 1 and check_runs(store).empty


@pytest.mark.ci
def test_a_preempted_worker_saves_the_state_of_its_training(store, tmp_path):
    calm = Store(tmp_path / "calm")
    run([LONG], calm, progress=False)
    with scheduler(tmp_path) as (address, _):
        workers = [worker_process(address)]
        saved = []

        def preempt():
            workers[0].terminate()
            workers[0].wait()
            saved.extend(store.partial(LONG).glob("resume/*.safetensors"))
            workers.append(worker_process(address))

        thread = stop_once_training(store, preempt)
        run([LONG], store, Dask(address), progress=False)
        thread.join()
        end(*workers)
    assert len(saved) == 1
    assert products(store, LONG) == products(calm, LONG)


@contextmanager
def killed_in_the_midst(store, restarts, monkeypatch):
    """An executor on a cluster of this machine whose only worker is killed once, nanny and all."""
    monkeypatch.setattr("xlingual_nb.runs.dask_clusters.MAX_RESTARTS", restarts)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    lines = []
    cluster = local_cluster(1, tell=lines.append)

    class Killing(Dask):
        killed = False

        def _assign_jobs(self):
            super()._assign_jobs()
            if not self.killed and len(steps(store.root)) > 10:
                self.killed = True
                (worker,) = cluster.workers.values()
                nanny = psutil.Process(worker.process.pid)
                for process in (nanny, *nanny.children(recursive=True)):
                    process.kill()

    try:
        yield Killing(cluster.scheduler_address, tell=lines.append), lines
    finally:
        cluster.close(timeout=20)


@pytest.mark.ci
def test_the_last_worker_of_this_machine_is_started_again(store, monkeypatch):
    specs = [Count(20, seed, "", 0.05) for seed in range(2)]
    with killed_in_the_midst(store, 1, monkeypatch) as (executor, lines):
        run(specs, store, executor, stack=1, progress=False)
    assert right(store, specs) and len(steps(store.root)) - 40 <= 1
    assert "1 of 1 dask workers ended; started again" in lines


@pytest.mark.ci
def test_where_the_last_worker_is_not_started_again_the_study_ends(store, monkeypatch):
    specs = [Count(20, seed, "", 0.05) for seed in range(2)]
    with killed_in_the_midst(store, 0, monkeypatch) as (executor, lines):
        began = time.monotonic()
        with pytest.raises(RunsFailed, match="all that was computed is kept"):
            run(specs, store, executor, stack=1, progress=False)
        assert time.monotonic() - began < 60
    assert any("all dask workers of this machine ended" in line for line in lines)
    run(specs, store, Inline(), progress=False)
    assert right(store, specs) and len(steps(store.root)) - 40 <= 1


SBATCH = """#!/bin/sh
script=$(cat "$1")  # which is removed once this has ended
setsid sh -c "$script" > /dev/null 2>&1 &
echo $! >> "$(dirname "$0")/submitted"
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
kill -- -$1
"""
SQUEUE = """#!/bin/sh
for id in $(cat "$(dirname "$0")/submitted"); do
  grep -qs '^State:[[:space:]]*[^Z[:space:]]' /proc/$id/status && echo $id
done
exit 0
"""


@pytest.fixture
def batch_system(tmp_path, monkeypatch):
    """A folder with commands that stand in for SLURM's: jobs are processes of this machine."""
    pytest.importorskip("dask_jobqueue")
    for name, script in (("sbatch", SBATCH), ("scancel", SCANCEL), ("squeue", SQUEUE)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    monkeypatch.chdir(ROOT)
    return tmp_path


def job_ids(cluster):
    return [job.job_id for job in cluster.workers.values()]


@pytest.mark.ci
def test_a_job_of_a_batch_system_that_ends_is_replaced(store, batch_system):
    """As one does that is preempted, or has used up its time."""
    import dask

    specs = [Count(20, seed, "", 0.05) for seed in range(2)]
    lines = []
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1s"}):
        cluster = batch_cluster("slurm", 1, cores=1, memory="1GB")

        class Cancelling(Dask):
            cancelled = []

            def _assign_jobs(self):
                super()._assign_jobs()
                if not self.cancelled and len(steps(store.root)) > 10:
                    self.cancelled += job_ids(cluster)
                    subprocess.run(["scancel", *self.cancelled], check=True)

        try:
            executor = Cancelling(cluster.scheduler_address, tell=lines.append)
            run(specs, store, executor, stack=1, progress=False)
            last = job_ids(cluster)
        finally:
            cluster.close(timeout=20)
    assert right(store, specs) and any("was lost" in line for line in lines)
    assert len(Cancelling.cancelled) == len(last) == 1 and last != Cancelling.cancelled


@pytest.mark.ci
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc says which jobs run")
@pytest.mark.parametrize("restarts", [1, 0])
def test_a_job_that_ends_before_its_worker_is_there_is_replaced(
    store, batch_system, monkeypatch, restarts
):
    """As one does whose node lacks something; where none may be replaced, the study ends."""
    monkeypatch.setattr("xlingual_nb.runs.dask_clusters.MAX_RESTARTS", restarts)
    monkeypatch.setattr("xlingual_nb.runs.dask_clusters.QUEUE_INTERVAL", 0.5)
    specs, lines = [Count(5)], []
    connected = batch_system / "connected"
    prologue = [
        f"while [ ! -e {connected} ]; do sleep 0.1; done",
        f"mkdir {batch_system}/first && exit 1",
    ]
    job = dict(cores=1, memory="1GB", job_script_prologue=prologue, log_directory=batch_system)
    cluster = batch_cluster("slurm", 1, tell=lines.append, **job)
    try:
        executor = Dask(cluster.scheduler_address, tell=lambda line: connected.touch())
        if restarts:
            run(specs, store, executor, progress=False)
        else:
            with pytest.raises(InputError, match="scheduler at .* was lost"):
                run(specs, store, executor, progress=False)
    finally:
        cluster.close(timeout=20)
    submitted = (batch_system / "submitted").read_text().split()
    assert len(submitted) == 1 + restarts and store.has(specs[0]) == bool(restarts)
    if restarts:
        said = (
            f"SLURM job {submitted[0]} ended before its worker was there (logs in {batch_system})"
        )
        assert lines == [f"{said}; replaced"]
    else:
        said = f"all SLURM jobs ended before their workers were there (logs in {batch_system})"
        assert lines == [said]


FULL = """
import os

replace = os.replace


def refuse(source, target, **options):
    if os.path.exists(os.environ["FULL"]) and "partial" in str(target):
        open(os.environ["FULL"] + ".met", "w").close()
        raise OSError(28, "No space left on device", str(target))
    return replace(source, target, **options)


os.replace = refuse
"""


@pytest.mark.ci
def test_a_full_disk_under_one_worker_ends_in_one_line_and_loses_nothing(store, tmp_path):
    """The other worker goes on; once there is room, the same command makes what is missing."""
    specs = [Count(8, seed, "", 0.05) for seed in range(6)]
    site, full = tmp_path / "site", tmp_path / "full"
    site.mkdir()
    (site / "sitecustomize.py").write_text(FULL)
    full.touch()
    with scheduler(tmp_path) as (address, _):
        workers = [worker_process(address), worker_process(address, path=[site], FULL=str(full))]
        try:
            wait_for_workers(address, 2)
            with ThreadPoolExecutor(1) as pool, held(store):
                study = pool.submit(run, specs, store, Dask(address), 1, False)
                wait_until((tmp_path / "full.met").exists)
            with pytest.raises(DiskFull, match=r"^[^\n]*the disk is full; make room[^\n]*$"):
                study.result()
            made = sum(store.has(s) for s in specs)
            assert 0 < made < len(specs) and not locks(store)
            full.unlink()
            run(specs, store, Dask(address), stack=1, progress=False)
        finally:
            end(*workers)
    assert right(store, specs) and check_runs(store).empty
    assert len(steps(store.root)) <= 48 + len(specs) - made, "a step of each that failed"


@contextmanager
def held(store):
    """Inside, no run goes beyond its fifth step."""
    (store.root / ".hold").touch()
    try:
        yield
    finally:
        (store.root / ".hold").unlink()


def wait_for_workers(address, number):
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(number, timeout=90)


@pytest.mark.ci
def test_two_clusters_on_one_store_make_no_run_twice(store, tmp_path):
    specs = [Count(10, seed, "", 0.05) for seed in range(6)]
    places = [tmp_path / name for name in ("first", "second")]
    for place in places:
        place.mkdir()
    with scheduler(places[0]) as (first, _), scheduler(places[1]) as (second, _):
        workers = [worker_process(first), worker_process(second)]
        try:
            wait_for_workers(first, 1)
            wait_for_workers(second, 1)
            with ThreadPoolExecutor(2) as pool, held(store):
                studies = [
                    pool.submit(run, wanted, Store(store.root), Dask(address), 1, False)
                    for address, wanted in ((first, specs), (second, specs[::-1]))
                ]
                wait_until(lambda: len({pid for pid, *_ in steps(store.root)}) == 2)
            assert not any(study.exception() for study in studies)
        finally:
            end(*workers)
    assert right(store, specs) and len(steps(store.root)) == 60


def test_executors_by_name(monkeypatch):
    for name in ("XLINGUAL_EXECUTOR", "XLINGUAL_ADDRESS", "XLINGUAL_WORKERS"):
        monkeypatch.delenv(name, raising=False)
    assert executor_of_environment() is None
    assert isinstance(make_executor("inline"), Inline)
    with executor_for_kernels("dask", "tcp://head:8786") as start:
        start("cuda")
        executor = executor_of_environment("cuda")
    assert (executor.address, executor.device, executor.threads) == ("tcp://head:8786", "cuda", 4)
    assert executor_of_environment() is None
    with executor_for_kernels("dask", "tcp://head:8786", devices=4):
        assert devices_of_a_run() == 4
    assert devices_of_a_run() == 1
    with executor_for_kernels(workers=3):  # of no executor: processes
        executor = executor_of_environment()
    assert isinstance(executor, Processes) and executor.workers == 3
    monkeypatch.setenv("XLINGUAL_EXECUTOR", "dask")
    with executor_for_kernels(workers=3):
        assert isinstance(executor_of_environment(), Dask)
    assert "XLINGUAL_WORKERS" not in os.environ
    monkeypatch.delenv("XLINGUAL_EXECUTOR")
    with pytest.raises(InputError, match="6 devices"), executor_for_kernels(devices=6):
        pass
    with pytest.raises(
        InputError, match="executor 'ray': choose from inline, processes, dask, slurm"
    ):
        make_executor("ray")
    with pytest.raises(InputError, match="--address tcp://a:1 is of a dask scheduler"):
        make_executor("processes", "tcp://a:1")
    monkeypatch.setenv("XLINGUAL_EXECUTOR", "dask")
    monkeypatch.setenv("XLINGUAL_WORKERS", "many")
    with pytest.raises(InputError, match="XLINGUAL_WORKERS=many"):
        executor_of_environment()


CLIENT = """
from toy_stages import Count, Store, run
from xlingual_nb.runs.cluster import Dask
specs = [Count(60, seed, "", 0.1) for seed in range(2)]
run(specs, Store({root!r}), Dask({address!r}), stack=1, progress=False)
"""


@pytest.mark.ci
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=("stopped", "killed"))
def test_a_client_that_ends_leaves_no_job_and_the_same_command_goes_on(store, tmp_path, how):
    with scheduler(tmp_path) as (address, _):
        workers = [worker_process(address) for _ in range(2)]
        try:
            code = CLIENT.format(root=str(store.root), address=address)
            command = [
                sys.executable,
                "-c",
                f"import signal\nsignal.signal(2, signal.default_int_handler){code}",
            ]
            path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
            client = subprocess.Popen(
                command, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.DEVNULL
            )
            wait_until(lambda: len(steps(store.root)) > 20 or client.poll() is not None)
            client.send_signal(how)
            client.wait(60)
            wait_until(lambda: not locks(store))
            before = len(steps(store.root))
            assert client.returncode and before < 120
            subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True)
        finally:
            end(*workers)
    assert right(store, [Count(60, seed, "", 0.1) for seed in range(2)])
    assert len(steps(store.root)) <= 120 + 2, "no more than a step of each was made twice"


def wait_until(condition, seconds=90):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.2)


def test_a_store_that_the_client_may_not_write_in_is_said_before_work(store, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    executor = Dask(workers=1, tell=lambda line: None)
    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(InputError, match="cannot be written"):
        run([Count(3)], store, executor, progress=False)
    assert executor._cluster is None and not steps(store.root), "the cluster has ended"
