"""The engine: makes what is missing, once, in groups, in whatever executor; says what failed and
keeps the rest.
"""

import json
import math
import subprocess
import sys
import textwrap
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings, strategies as st

from xlingual_nb.errors import InputError
from xlingual_nb.runs import progress
from xlingual_nb.runs.engine import RunsFailed, make_runs, missing_nodes, plan, results, run, split
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.stages import stage_code
from xlingual_nb.runs.executors import Inline, Job, Processes
from xlingual_nb.runs.files import DiskFull
from xlingual_nb.runs.staleness import StoreView
from xlingual_nb.runs.pruning import prune_runs
from xlingual_nb.runs.store import Store, check_runs
from toy_stages import Count, Total, make_count, redeclared, steps, value


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def made(store):
    return Counter((seed, step) for _, _, seed, step in steps(store.root))


EXECUTORS = pytest.mark.parametrize(
    "executor", (Inline, lambda: Processes(2)), ids=("inline", "processes")
)


# ---- what is made


@EXECUTORS
def test_shared_inputs_are_made_once_and_nothing_twice(store, executor):
    wanted = [Total((Count(4, 0), Count(4, 1))), Total((Count(4, 1), Count(4, 2))), Count(4, 2)]
    run(wanted, store, executor(), progress=False)
    assert set(made(store).values()) == {1} and len(made(store)) == 12
    assert [store.read(w)["total"] for w in wanted[:2]] == [
        sum(int(value(c), 16) % 1000 for c in w.counts) for w in wanted[:2]
    ]
    run(wanted, store, executor(), progress=False)
    assert set(made(store).values()) == {1}
    frame = results(wanted + [Total()], store)
    assert (
        len(frame) == 2 and frame["counts.1.seed"].tolist() == [1, 2] and frame.n.tolist() == [2, 2]
    )
    assert frame.run_id.tolist() == [store.path(w).name for w in wanted[:2]]


def test_a_found_run_needs_no_inputs(store):
    total = Total((Count(4),))
    run([total], store, progress=False)
    prune_runs(store, [store.path(Count(4)).name])
    assert missing_nodes([total], StoreView(store, stage_code())) == {}
    run([total], store, progress=False)
    assert not store.has(Count(4))


def test_an_unknown_stage_is_the_users(store):
    @dataclass(frozen=True)
    class Lonely:
        stage: ClassVar[str] = "lonely"

    with pytest.raises(InputError, match="'lonely' of Lonely is not declared"):
        run([Lonely()], store, progress=False)


def test_equal_specs_of_unlike_values_are_two_runs(store):
    run([Count(3, 0), Count(3, 0.0), Count(3, False)], store, progress=False)
    assert store.has(Count(3, 0)) and store.has(Count(3, 0.0)) and store.has(Count(3, False))


# ---- groups


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 6))
def test_split_deals_evenly_into_the_fewest_groups(sizes, stack):
    buckets = [[(b, i) for i in range(n)] for b, n in enumerate(sizes)]
    groups = split(buckets, stack)
    assert [x for g in groups for x in g] == [x for b in buckets for x in b]
    assert all(len(g) <= stack and len({b for b, _ in g}) == 1 for g in groups)
    for b in range(len(sizes)):
        own = [len(g) for g in groups if g[0][0] == b]
        assert max(own) - min(own) <= 1
    assert len(groups) == sum(math.ceil(n / stack) for n in sizes)


def test_runs_of_equal_shape_are_made_together(store):
    run([Count(3, s) for s in range(6)] + [Count(4, 9)], store, stack=5, progress=False)
    assert Counter(size for _, size, seed, step in steps(store.root) if step == 0) == {3: 6, 1: 1}


def test_long_groups_come_first(store):
    order = []

    class Spy(Inline):
        def submit(self, job):
            order.append(job.args[3][0].upto)
            super().submit(job)

    with redeclared(Count, make_count, group=lambda s: s.upto, cost=lambda s: dict(flops=s.upto)):
        run([Count(3), Count(9), Count(6)], store, Spy(), progress=False)
    assert order == [9, 6, 3]


def test_a_run_that_continues_one_of_its_own_kind_does_not_block(store):
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Chain(Count):
        before: Count | None = None

    def make(specs, folders, store, progress):
        for spec, folder in zip(specs, folders):
            (folder / "value.txt").write_text(str(store.has(spec.before) if spec.before else None))

    chain = Chain(1, before=Chain(2, before=Chain(3)))
    with redeclared(Count, make, group=lambda s: "all"):
        run([chain], store, progress=False)
    assert (store.path(chain) / "value.txt").read_text() == "True"


# ---- failures


@pytest.mark.parametrize(
    "fault, kind, line",
    [
        ("bug", RunsFailed, "RuntimeError: a bug in the toy"),
        ("user", InputError, "^toy.txt is empty: fill it$"),
        ("full", DiskFull, "^[^\n]*runs: the disk is full; make room[^\n]*$"),
    ],
)
def test_one_failure_does_not_stop_the_others(store, fault, kind, line):
    bad, good = Count(5, 0, fault), [Count(5, s) for s in (1, 2, 3)]
    executor, wanted = (
        Processes(2) if fault == "bug" else Inline(),
        [Total((bad, good[0])), bad, *good, Total((good[1],))],
    )
    with pytest.raises(kind, match=line):
        run(wanted, store, executor, stack=2, progress=False)
    if fault != "full":
        assert all(store.has(g) for g in good) and store.has(Total((good[1],)))
    assert not store.has(bad) and not store.has(Total((bad, good[0]))) and check_runs(store).empty
    assert json.loads((store.partial(bad) / "resume" / "state.json").read_text())[0] == 2, (
        "what was computed is kept"
    )


def test_a_process_that_dies_is_a_failure_not_a_hang(store):
    bad, good = (
        [Count(5, s, fault) for s, fault in enumerate(("die", "exit", "leave"))],
        [Count(5, s) for s in range(3, 6)],
    )
    with pytest.raises(RunsFailed) as failed:
        run(bad + good, store, Processes(2), stack=4, progress=False)
    lines = {spec.fault: failure.line for spec, failure in failed.value.failures}
    assert set(lines) == {"die", "exit", "leave"} and all(store.has(g) for g in good)
    assert (
        "SIGKILL" in lines["die"]
        and "exit code 3" in lines["exit"]
        and lines["leave"] == "SystemExit: enough"
    )
    assert any("last words" in failure.trace for _, failure in failed.value.failures)


def test_the_message_lists_failures_and_what_needed_them(store):
    with pytest.raises(
        RunsFailed,
        match=r"(?s)2 of 6 runs failed, 2 more needed them.*2 x count: "
        r"RuntimeError.*Traceback",
    ) as failed:
        run(
            [Total((Count(4, s, "bug"),)) for s in (0, 1)] + [Total((Count(4, 2),))],
            store,
            progress=False,
        )
    assert len(failed.value.failures) == 2 and store.has(Total((Count(4, 2),)))


# ---- stale and damaged


def other_count(specs, folders, store, progress):
    for spec, folder in zip(specs, folders):
        (folder / "value.txt").write_text("0")


def same_count(specs, folders, store, progress):
    """Other words, equal bytes."""
    for spec, folder in zip(specs, folders):
        (folder / "value.txt").write_text(value(spec))


def test_stale_runs_are_told_made_again_or_accepted(store, capsys):
    total = Total((Count(4),))
    run([total], store, progress=False)
    first = store.read(total)["total"]
    with redeclared(Count, other_count):
        run([total], store, accept_stale=True)
        assert store.read(total)["total"] == first and "1 runs are stale" in capsys.readouterr().out
        run([total], store)
    assert store.read(total)["total"] == 0 and "2 runs are stale" in capsys.readouterr().out


def test_a_change_that_changes_nothing_stops_there(store):
    total = Total((Count(4),))
    run([total], store, progress=False)
    before = (store.path(total) / "measures.json").stat().st_ino
    with redeclared(Count, same_count):
        assert StoreView(store, stage_code()).state(total) == "stale"
        run([total], store, progress=False)
        assert StoreView(store, stage_code()).state(total) == "found" and check_runs(store).empty
    assert (store.path(total) / "measures.json").stat().st_ino == before, "renewed, not made again"


def test_made_on_accepted_stale_inputs_stays_stale(store):
    total = Total((Count(4),))
    run([Count(4)], store, progress=False)
    with redeclared(Count, other_count):
        run([total], store, accept_stale=True, progress=False)
        assert StoreView(store, stage_code()).state(total) == "stale"
        run([total], store, progress=False)
    assert store.read(total)["total"] == 0


def test_damaged_runs_are_made_again(store, capsys):
    run([Count(4)], store, progress=False)
    (store.path(Count(4)) / "value.txt").write_text("")
    run([Count(4)], store)
    assert "1 runs are damaged" in capsys.readouterr().out and (
        store.path(Count(4)) / "value.txt"
    ).read_text() == value(Count(4))


# ---- plans


def test_plan_counts_what_is_there_and_what_it_costs(store):
    wanted = [Total((Count(2), Count(3))), Total((Count(3), Count(5)))]
    run([Count(2)], store, progress=False)
    with redeclared(Count, make_count, cost=lambda s: dict(flops=3.6e12 * s.upto, bytes=1e9)):
        table = plan(wanted, store, speed=1e9).set_index("stage")
    assert (
        table.loc["count", ["runs", "found", "stale", "to make"]].tolist() == [3, 1, 0, 2]
        and table.loc["total", "to make"] == 2
    )
    assert table.loc["all", "hours here"] == 8.0 and table.loc["all", "gigabytes"] == 2.0
    assert all(
        table.loc["all", c] < 1
        for c in table.columns
        if c.startswith("hours ") and c != "hours here"
    )
    run(wanted, store, progress=False)
    done = plan(wanted, store).set_index("stage")
    assert (
        done.loc["all", "to make"] == 0
        and done.loc["all", "FLOPs"] == 0
        and done.loc["all", "found"] == 5
    )
    with redeclared(Count, other_count):
        old = plan(wanted, store).set_index("stage")
    assert old.loc["all", "stale"] == 5 and old.loc["all", "to make"] == 5


# ---- progress


def test_plain_lines_with_time_left(store, capsys, monkeypatch):
    for thing, name, seconds in (
        (progress.Watch, "LINE", 0.25),
        (progress.Watch, "TICK", 0.05),
        (progress.Progress, "EVERY", 0.02),
    ):
        monkeypatch.setattr(thing, name, seconds)
    run([Count(20, s, pause=0.02) for s in (0, 1)], store, stack=1)
    told = [l for l in capsys.readouterr().out.splitlines() if "left" in l]
    assert (
        told and all(l.startswith("count ") and "/2" in l for l in told) and " s left" in told[-1]
    )
    events = [
        json.loads(l)["event"] for l in (store.path(Count(20, 0, pause=0.02)) / "log.jsonl").open()
    ]
    assert events[0] == "begin" and events[-1] == "done" and "progress" in events


# ---- processes from anywhere


def test_processes_from_a_plain_script_without_a_guard(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        from toy_stages import *
        run([Count(3, s) for s in range(3)], Store({str(tmp_path / "runs")!r}), Processes(2), progress=False)
        print("once")""")
    )
    told = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600
    )
    assert told.stdout == "once\n", told.stderr
    assert all(Store(tmp_path / "runs").has(Count(3, s)) for s in range(3))


def test_processes_from_a_kernel(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom toy_stages import *\nstore = "
        f"Store({str(tmp_path / 'runs')!r})\n"
        "run([Count(3, s) for s in range(2)], store, Processes(2))\nassert store.has(Count(3, 1))\n"
        "def local(specs, folders, store, progress): pass\nfrom xlingual_nb.errors import InputError\n"
        "declare(Count, local)\n"
        "try: run([Count(2)], store, Processes(1))\nexcept InputError as e: print(e)"
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(book, timeout=600, kernel_name="python3").execute()
    told = "".join(o.get("text", "") for o in book.cells[0].outputs)
    assert "2 of 2 runs made" in told and "must live in a module" in told


def test_workers_have_one_thread_and_speak_only_when_asked(tmp_path):
    code = (
        "import os, sys; print('noise'); "
        "open(sys.argv[1], 'w').write(os.environ['OMP_NUM_THREADS'] + os.environ['MALLOC_MMAP_MAX_'])"
    )
    processes = Processes(1)
    processes.submit(Job("env", exec, (code.replace("sys.argv[1]", repr(str(tmp_path / "told"))),)))
    assert [f for _, f in processes.as_completed()] == [None]
    processes.close()
    assert (tmp_path / "told").read_text() == "10"


def test_close_ends_the_processes_and_they_can_be_used_again():
    processes = Processes(2)
    for _ in range(2):
        processes.submit(Job("sleep", time.sleep, (600,)))
    while len(processes._children) < 2:
        time.sleep(0.01)
    children = [c.process for c in processes._children]
    began = time.monotonic()
    processes.close()
    assert all(c.poll() is not None for c in children) and time.monotonic() - began < 300, (
        "it did not wait for them"
    )
    processes.submit(Job("again", len, ("abc",)))
    assert [f for _, f in processes.as_completed()] == [None]
    processes.close()


def test_runs_begun_together_go_on_together(store):
    first, later = (
        [Count(5, s, "bug" if s == 0 else "") for s in range(3)],
        [Count(5, s) for s in range(5, 8)],
    )
    groups = []

    def make(specs, folders, store, progress):
        groups.append({s.seed for s in specs})
        if len(groups) == 1:
            raise KeyboardInterrupt
        for spec, folder in zip(specs, folders):
            (folder / "value.txt").write_text("x")

    with redeclared(Count, make, group=lambda s: s.upto):
        with pytest.raises(KeyboardInterrupt):
            run(first, store, stack=9, progress=False)
        run([later[0], *first, *later[1:]], store, stack=9, progress=False)
    assert sorted(map(sorted, groups[1:])) == [[0, 1, 2], [5, 6, 7]]


@pytest.mark.parametrize("held", [0, 1, 2])
def test_what_another_engine_makes_is_not_made_in_part(store, held):
    """Two engines on one group: whoever has the first lock gets all of it, in whatever order it is
    told.
    """
    specs, groups, elsewhere = [Count(5, s) for s in range(3)], [], Store(store.root)
    other = sorted(specs, key=run_id)[held]

    def make(specs, folders, store, progress):
        groups.append([s.seed for s in specs])
        for folder in folders:
            (folder / "value.txt").write_text("x")

    def asked():
        make_runs(
            store.root, Count, make, tuple(specs), stage_code(), accept_stale=False, wait=False
        )

    with redeclared(Count, make, group=lambda s: s.upto):
        with elsewhere.lock(other):
            asked()
        asked()
    before = [s.seed for s in specs if run_id(s) < run_id(other)]
    assert groups == [g for g in (before, [s.seed for s in specs if s.seed not in before]) if g]
