"""Kill -9 at any moment: the store stays readable, nothing is lost, the end is the same bytes. Two
processes make one run once.
"""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

from xlingual_nb.runs import files
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.files import start_time
from xlingual_nb.runs.pruning import prune_runs
from xlingual_nb.runs.store import Store, check_runs, list_runs
from toy_stages import Count, Total, redeclared, steps, value

TOYS = Path(__file__).with_name("toy_stages.py")


def child(work) -> int:
    """A forked process that does `work` and leaves; its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def wait_for(condition, process=None, seconds=300):
    """Until it is so; that it takes long on a busy machine is no failure, that `process` ends
    before it is.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        assert process is None or process.poll() is None, process.stderr.read()
        time.sleep(0.02)


def held(store):
    """From now on counts stop after five steps until the file goes; returns the file."""
    store.root.mkdir(exist_ok=True)
    hold = store.root / ".hold"
    hold.touch()
    return hold


def at_five(store, *specs):
    return all(
        (f := store.partial(s) / "resume" / "state.json").exists()
        and json.loads(f.read_text())[0] == 5
        for s in specs
    )


def products(store, spec):
    folder = store.path(spec)
    files = [
        p for p in folder.rglob("*") if p.is_file() and p.name not in ("log.jsonl", "manifest.json")
    ]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def readable(store):
    """Everything that has a final name is whole, byte for byte, and every question has an
    answer.
    """
    assert check_runs(store).empty
    return set(list_runs(store).state) <= {"found", "partial"}


def test_ten_kills_at_random_moments(tmp_path):
    spec, quiet = Count(60, pause=0.004), dict(progress=False)
    store, calm, moments = Store(tmp_path / "killed"), Store(tmp_path / "calm"), random.Random(20)
    run([spec], calm, **quiet)
    kills = ended = 0
    for _ in range(200):
        if kills == 10:
            break
        pid = child(lambda: run([spec, Total((spec,))], store, **quiet))
        time.sleep(moments.uniform(0, 0.12))
        os.kill(pid, signal.SIGKILL)
        kills += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        assert readable(store)
        if store.has(spec):
            ended += 1
            prune_runs(store, [store.path(s).name for s in (spec, Total((spec,)))])
    run([spec, Total((spec,))], store, **quiet)
    assert kills == 10 and products(store, spec) == products(calm, spec) and readable(store)
    assert len(steps(store.root)) <= 60 * (ended + 1) + 10, (
        "no kill cost more than the step in hand"
    )


SYSTEM = ("rename", "replace", "link", "fsync", "unlink", "mkdir", "open", "rmdir")


def stop_at(n):
    """From now on this process dies just before its n-th call that changes the file system."""
    count = [0]

    def deadly(real):
        def call(*args, **kw):
            count[0] += 1
            if count[0] > n:
                os._exit(99)
            return real(*args, **kw)

        return call

    for name in SYSTEM:
        setattr(os, name, deadly(getattr(os, name)))


def changed_count(specs, folders, store, progress):
    for spec, folder in zip(specs, folders):
        files.write_atomic(folder / "value.txt", "changed")


def die_before_every_step(folder, remake):
    """Not at random: before the first change of the file system, before the second, and so on until
    none is left.
    """
    os.fsync = lambda handle: None  # a kill is not a power cut, and there are hundreds of runs
    spec = Count(2)
    expected = b"changed" if remake else value(spec).encode()
    for n in range(500):
        store = Store(folder / f"runs{n}")
        if remake:
            run([spec], store, progress=False)

        def work():
            stop_at(n)
            run([spec], Store(store.root), progress=False)

        with redeclared(Count, changed_count) if remake else nullcontext():
            code = os.waitstatus_to_exitcode(os.waitpid(child(work), 0)[1])
            assert code in (0, 99) and readable(store)
            run([spec], store, progress=False)
        assert (store.path(spec) / "value.txt").read_bytes() == expected and readable(store)
        prune_runs(store)
        assert sorted(p.name for p in store.path(spec).iterdir()) == [
            "log.jsonl",
            "manifest.json",
            "spec.json",
            "value.txt",
        ]
        assert (
            remake
            or max(Counter(steps(store.root)[i][3] for i in range(len(steps(store.root)))).values())
            <= 2
        )
        if code == 0:
            return print(n)
    raise AssertionError("the end was never reached")


@pytest.mark.parametrize(
    "remake", (False, pytest.param(True, marks=pytest.mark.ci)), ids=("first", "remade")
)
def test_dying_before_every_single_step(tmp_path, remake):
    """In a process of its own: to fork one that holds all tests costs a second each time."""
    call = f"import test_kill; test_kill.die_before_every_step(test_kill.Path({str(tmp_path)!r}), {remake})"
    ended = subprocess.run(
        [sys.executable, "-c", call], capture_output=True, text=True, cwd=TOYS.parent
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert int(ended.stdout) > 20


def test_two_processes_make_one_run_once(tmp_path):
    store, specs = Store(tmp_path / "runs"), [Count(15, s, pause=0.004) for s in range(3)]

    def work():
        run(specs, Store(store.root), stack=2, progress=False)

    pids = [child(work) for _ in range(3)]
    assert [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids] == [0, 0, 0]
    assert set(Counter((seed, step) for _, _, seed, step in steps(store.root)).values()) == {1}
    assert all((store.path(s) / "value.txt").read_text() == value(s) for s in specs) and readable(
        store
    )


def test_the_second_takes_over_when_the_first_is_killed(tmp_path):
    store, spec = Store(tmp_path / "runs"), Count(40)
    hold = held(store)

    def work():
        run([spec], Store(store.root), progress=False)

    first = child(work)
    wait_for(lambda: at_five(store, spec))
    second = child(work)
    time.sleep(0.1)
    os.kill(first, signal.SIGKILL)
    hold.unlink()
    assert os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]) == 0
    os.waitpid(first, 0)
    assert (store.path(spec) / "value.txt").read_text() == value(spec)
    by = Counter(pid for pid, *_ in steps(store.root))
    assert by == {first: 5, second: 35}, "the second went on where the first had stopped"


def test_a_lock_from_another_container_does_not_hang_a_later_study(tmp_path, monkeypatch):
    """Its process was killed with the lock in hand, and no process number of it means anything
    here.
    """
    store, spec = Store(tmp_path / "runs"), Count(20)
    hold = held(store)

    def elsewhere():
        files.machine = lambda: "node7 an-earlier-boot pid:[9]"
        run([spec], Store(store.root), progress=False)

    first = child(elsewhere)
    wait_for(lambda: at_five(store, spec))
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    hold.unlink()
    assert list((store.root / "locks").glob("[0-9a-f]*"))

    def later():
        files.LIMIT = 1.0
        run([spec], Store(store.root), progress=False)

    second = child(later)
    end = time.monotonic() + 60
    while (ended := os.waitpid(second, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.05)
    if ended == (0, 0):
        os.kill(second, signal.SIGKILL)
        os.waitpid(second, 0)
        pytest.fail("it waits for ever")
    assert os.waitstatus_to_exitcode(ended[1]) == 0 and (
        store.path(spec) / "value.txt"
    ).read_text() == value(spec)
    assert Counter(pid for pid, *_ in steps(store.root)) == {first: 5, second: 15}, (
        "and goes on where the first had stopped"
    )


def script(root, *numbers):
    process = subprocess.Popen(
        [sys.executable, str(TOYS), str(root), *map(str, numbers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "begun\n"
    return process


def test_workers_do_not_outlive_a_killed_parent_and_the_work_goes_on(tmp_path):
    store = Store(tmp_path / "runs")
    specs = [Count(60, s) for s in range(2)]
    hold = held(store)
    process = script(store.root, 2, 2, 60, 0)
    wait_for(lambda: at_five(store, *specs), process)
    process.kill()
    process.wait()
    workers = {pid for pid, *_ in steps(store.root)}
    wait_for(lambda: not any(map(start_time, workers)))
    assert readable(store) and len(workers) == 2 and len(steps(store.root)) == 10
    hold.unlink()
    run(specs, store, progress=False)
    assert all((store.path(s) / "value.txt").read_text() == value(s) for s in specs)
    assert len(steps(store.root)) == 120 and not list((store.root / "locks").glob("[0-9a-f]*"))


def test_control_c_stops_the_workers_and_keeps_what_was_computed(tmp_path):
    store = Store(tmp_path / "runs")
    specs = [Count(60, s) for s in range(2)]
    held(store)
    process = script(store.root, 2, 2, 60, 0)
    wait_for(lambda: at_five(store, *specs), process)
    process.send_signal(signal.SIGINT)
    told, said = process.communicate(timeout=300)
    assert (
        process.returncode and "what was computed is kept" in told and "KeyboardInterrupt" in said
    )
    assert not any(start_time(pid) for pid, *_ in steps(store.root)) and readable(store)
    assert not list((store.root / "locks").glob("[0-9a-f]*")), (
        "asked to stop, workers give back their locks"
    )
    assert at_five(store, *specs)


# ---- machines that share a disk


def race(folder, rounds, host, barrier, wins, dead):
    """One machine of several that want the same locks at the same moments."""
    files.machine = lambda: f"node{host} boot pid:[1]"
    files.fcntl.flock = lambda *a: None  # as on a network file system that keeps kernel locks local
    for number in range(rounds):
        lock = files.Lock(folder / f"{number:02x}")
        lock._beat = lambda: None
        if dead:
            lock._seen[lock.path] = ("dead", lock.path.stat().st_mtime_ns), -1e9
        barrier.wait()
        taken = lock.take()
        barrier.wait()
        wins[host * rounds + number] = taken + 2 * lock.is_held()
        barrier.wait()


@pytest.mark.parametrize("dead", (False, True), ids=("free", "of a dead owner"))
def test_of_several_machines_one_gets_a_lock_without_kernel_locks(tmp_path, dead):
    hosts, rounds = 4, 60
    for number in range(rounds if dead else 0):
        owner = dict(machine="node9 boot pid:[1]", pid=1, started="1", name="dead")
        (tmp_path / f"{number:02x}").write_text(json.dumps(owner))
    context = multiprocessing.get_context("fork")
    barrier, wins = context.Barrier(hosts), context.Array("i", hosts * rounds)
    machines = [
        context.Process(target=race, args=(tmp_path, rounds, host, barrier, wins, dead))
        for host in range(hosts)
    ]
    for process in machines:
        process.start()
    for process in machines:
        process.join(120)
    for number in range(rounds):
        got = [wins[host * rounds + number] for host in range(hosts)]
        assert sorted(got) == [0, 0, 0, 3], "one took it, and has it"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")], "nothing is left lying"


def on_host(host, store, specs, limit=1.0):
    """A study on another machine, as its locks see it."""

    def work():
        files.machine = lambda: f"{host} boot pid:[1]"
        files.BEAT, files.LIMIT = 0.1, limit
        run(specs, Store(store.root), stack=1, progress=False)

    return child(work)


def test_two_machines_on_one_store_make_no_run_twice(tmp_path):
    store, specs = Store(tmp_path / "runs"), [Count(20, s, pause=0.01) for s in range(4)]
    pids = [on_host(host, store, specs, limit=60.0) for host in ("node1", "node2")]
    assert [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids] == [0, 0]
    assert set(Counter((seed, step) for *_, seed, step in steps(store.root)).values()) == {1}
    assert len({pid for pid, *_ in steps(store.root)}) == 2 and readable(store)


def test_an_owner_that_slept_too_long_ends_as_lost_and_waits_for_the_other(tmp_path):
    store, spec = Store(tmp_path / "runs"), Count(60, 1, pause=0.05)
    sleeper = on_host("node1", store, [spec])
    wait_for(lambda: len(steps(store.root)) > 5)
    os.kill(sleeper, signal.SIGSTOP)
    before = len(steps(store.root))
    other = on_host("node2", store, [spec])
    wait_for(lambda: len(steps(store.root)) > before + 5)
    os.kill(sleeper, signal.SIGCONT)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (sleeper, other)]
    assert codes == [0, 0], "both studies end well: the run is there"
    assert (store.path(spec) / "value.txt").read_text() == value(spec) and readable(store)
    assert len(steps(store.root)) <= 60 + 2, "and no more than a step was made twice"
