"""The store: whole or absent, readable whatever happens, and honest about what made each run."""

import errno
import json
import multiprocessing
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.runs import files, pruning
from xlingual_nb.runs.code_fingerprint import digest_of
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import (
    DiskFull,
    Lock,
    file_stats,
    file_versions,
    machine,
    free_space,
    start_time,
    write_atomic,
)
from xlingual_nb.runs.pruning import prune_locks, prune_runs
from xlingual_nb.runs.run_folder import begin, finish, publish, renew
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.staleness import StoreView
from xlingual_nb.runs.store import (
    Store,
    check_runs,
    list_runs,
    problems,
    MANIFESTS,
)
from toy_stages import Count, Total

CODE = dict(count=dict(make="c1"), total=dict(make="t1"))
NEW = CODE | dict(count=dict(make="c2"))


def state(store, spec, code=None):
    return StoreView(store, code).state(spec)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def make(store, spec, text="x", code=CODE, name="value.txt"):
    with store.lock(spec, ready=lambda: False):
        folder = begin(store, spec, code)
        write_atomic(folder / name, text)
        publish(store, spec, 1.0)
    return store.path(spec)


# ---- opening a store


def test_another_version_and_other_folders_are_refused(tmp_path):
    root = tmp_path / "runs"
    Store(root)
    Store(root)
    (root / "VERSION").write_text("0\n")
    with pytest.raises(InputError, match="another version.*--store"):
        Store(root)
    with pytest.raises(InputError, match="not a store"):
        Store(tmp_path)
    with pytest.raises(InputError, match="no store here"):
        Store(tmp_path / "nothing", create=False)
    assert not (tmp_path / "nothing").exists() and not (tmp_path / "VERSION").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="a file, not a store"):
        Store(tmp_path / "file")
    with pytest.raises(InputError, match="no store can be made here"):
        Store(tmp_path / "file/runs")


def test_where_there_is_no_store_a_blank_one_is_empty_and_not_made(tmp_path):
    assert (
        state(Store(tmp_path / "a/b", blank=True), Count(5)) == "missing"
        and list(tmp_path.iterdir()) == []
    )
    (tmp_path / "file").write_text("x")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(InputError, match="not a store"):
            Store(place, blank=True)


# ---- one run


def test_a_run_from_begin_to_read(store):
    spec = Count(5)
    assert state(store, spec) == "missing" and not store.has(spec)
    with store.lock(spec) as ours:
        assert ours
        folder = begin(store, spec, CODE)
        (folder / "resume").mkdir()
        (folder / "resume" / "state").write_text("s")
        (folder / "deep").mkdir()
        (folder / "deep" / "b.txt").write_text("b")
        write_atomic(folder / "measures.json", '{"a": 1}')
        (folder / ".half.tmp").write_text("h")
        assert not store.path(spec).exists(), "nothing under the final name before it is whole"
        publish(store, spec, 2.5)
    assert store.read(spec) == {"a": 1} and not folder.exists()
    final = store.path(spec)
    found = sorted(str(p.relative_to(final)) for p in final.rglob("*") if p.is_file())
    assert found == ["deep/b.txt", "manifest.json", "measures.json", "spec.json"]
    told = json.loads((final / "manifest.json").read_text())
    assert (
        told["code"] == {"count": digest_of(CODE["count"])} and told["definitions"] == CODE["count"]
    )
    assert told["seconds"] == 2.5 and set(told["files"]) == {
        "deep/b.txt",
        "measures.json",
        "spec.json",
    }
    assert os.uname().nodename not in (final / "manifest.json").read_text()
    assert not list((store.root / "locks").glob("[0-9a-f]*"))


def test_publish_without_the_lock_publishes_nothing(store):
    write_atomic(begin(store, Count(), CODE) / "value.txt", "x")
    with pytest.raises(RuntimeError, match="lock"):
        publish(store, Count())
    assert not store.has(Count()) and (store.partial(Count()) / "value.txt").exists()


def test_a_lock_lost_to_somebody_else_publishes_nothing(store):
    with store.lock(Count()):
        write_atomic(begin(store, Count(), CODE) / "value.txt", "x")
        other = dict(machine="elsewhere", pid=1, started="1", name="other")
        write_atomic(store.root / "locks" / store.path(Count()).name, json.dumps(other))
        with pytest.raises(RuntimeError, match="not ours"):
            publish(store, Count())
    assert not store.has(Count())
    assert (store.root / "locks" / store.path(Count()).name).exists(), (
        "we do not release what is not ours"
    )


@pytest.mark.parametrize(
    "harm, cheap, told",
    [
        (lambda f: (f / "value.txt").unlink(), "damaged", "value.txt is missing"),
        (lambda f: (f / "value.txt").write_text(""), "damaged", "value.txt has 0 bytes, not 1"),
        (lambda f: (f / "value.txt").write_text("y"), "found", "value.txt has changed"),
        (
            lambda f: (f / "manifest.json").write_text("{"),
            "damaged",
            "manifest.json is missing or broken",
        ),
        (lambda f: (f / "manifest.json").unlink(), "damaged", "manifest.json is missing or broken"),
    ],
)
def test_damage_is_noticed(store, harm, cheap, told):
    folder = make(store, Count())
    assert check_runs(store).empty
    harm(folder)
    assert state(store, Count(), CODE) == cheap and problems(folder) == [told]
    assert check_runs(store).problem.tolist() == [told] and check_runs(store).run_id.tolist() == [
        folder.name
    ]
    if cheap == "damaged":
        with pytest.raises(InputError, match="damaged; run it first"):
            store.read(Count(), "value.txt")
        assert len(prune_runs(store)) == 1 and state(store, Count()) == "missing"


def test_remade_runs_replace_the_old_folder(store):
    make(store, Count(), "old")
    folder = make(store, Count(), "new", NEW)
    assert (folder / "value.txt").read_text() == "new" and state(store, Count(), NEW) == "found"
    assert not list(store.root.glob("trash/*"))


def test_staleness_is_inherited_and_cannot_be_laundered(store):
    make(store, Count())
    make(store, Total((Count(),)), "{}", name="measures.json")
    assert (
        state(store, Total((Count(),)), CODE) == "found"
        and state(store, Total((Count(),)), NEW) == "stale"
    )
    assert [r.text.split(": ")[-1] for r in StoreView(store, NEW).why(Total((Count(),)))] == [
        "make has changed"
    ]
    make(
        store, Total((Count(),)), "{}", NEW, "measures.json"
    )  # new code on an old count: still stale
    assert state(store, Total((Count(),)), NEW) == "stale"
    prune_runs(store, [store.path(Count()).name])  # the count is gone: the total still knows
    assert state(store, Count()) == "missing" and state(store, Total((Count(),)), NEW) == "stale"


def remade(store, spec, text, code):
    """Somebody has made an input again; the bytes are others."""
    make(store, spec, text, code)
    return store.path(spec)


def test_changed_inputs_make_stale_whatever_the_code(store):
    """The same code on both sides: only what was read has changed."""
    total = Total((Count(),))
    make(store, Count(), "x")
    make(store, total, "{}", name="measures.json")
    remade(store, Count(), "y", CODE)
    assert state(store, Count(), CODE) == "found" and state(store, total, CODE) == "stale"
    (reason,) = StoreView(store, CODE).why(total)
    assert reason.kind == "input" and "other contents" in reason.text
    assert not renew(store, total, CODE), "read from bytes that are gone"
    remade(store, Count(), "x", CODE)
    assert state(store, total, CODE) == "found"


def test_leftovers_on_other_inputs_are_not_mixed_in(store):
    total = Total((Count(),))
    make(store, Count(), "x")
    write_atomic(begin(store, total, CODE) / "half.txt", "h")
    assert (begin(store, total, CODE) / "half.txt").exists()
    remade(store, Count(), "y", CODE)
    assert not (begin(store, total, CODE) / "half.txt").exists()


def test_what_was_complete_on_other_inputs_is_not_installed(store, monkeypatch):
    total = Total((Count(),))
    make(store, Count(), "x")
    with store.lock(total), monkeypatch.context() as kill:
        write_atomic(begin(store, total, CODE) / "measures.json", "{}")

        def killed(*_):
            raise KeyboardInterrupt

        kill.setattr(os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            publish(store, total)
    remade(store, Count(), "y", CODE)
    with store.lock(total):
        begin(store, total, CODE)
        assert not finish(store, total)


def test_what_was_complete_but_tells_of_older_code_is_not_installed(store):
    """Its input has been made again since, by other code and with the same bytes: the manifest
    would tell of the old.
    """
    total = Total((Count(),))
    make(store, Count(), "x")
    with store.lock(total), pytest.MonkeyPatch.context() as kill:
        write_atomic(begin(store, total, CODE) / "measures.json", "{}")

        def killed(*_):
            raise KeyboardInterrupt

        kill.setattr(os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            publish(store, total)
    make(store, Count(), "x", NEW)
    with store.lock(total):
        begin(store, total, NEW)
        assert problems(store.partial(total)) == [] and not finish(store, total)
        publish(store, total)
    assert state(store, total, NEW) == "found"


def test_the_manifest_comes_after_all_that_it_lists_is_on_the_disk(store, monkeypatch):
    """A power cut may lose what was not forced to the disk; the manifest must never be older than a
    product.
    """
    said, fsync, replace, rename = [], os.fsync, os.replace, os.rename

    def synced(handle):
        said.append(("sync", os.fstat(handle).st_ino))
        fsync(handle)

    def moved(old, new, how):
        said.append((how, Path(new).name))
        how_of[how](old, new)

    how_of = dict(replace=replace, rename=rename)
    with store.lock(Count()):
        folder = begin(store, Count(), CODE)
        for name in ("a.txt", "deep/b.txt", "deep/er/c.txt"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)
        monkeypatch.setattr(os, "fsync", synced)
        for how in how_of:
            monkeypatch.setattr(os, how, lambda a, b, how=how: moved(a, b, how))
        publish(store, Count())
    final = store.path(Count())
    manifest, installed = (
        said.index(("replace", "manifest.json")),
        said.index(("rename", final.name)),
    )
    before = {number for what, number in said[:manifest] if what == "sync"}
    listed = json.loads((final / "manifest.json").read_text())["files"]
    assert set(listed) == {"a.txt", "deep/b.txt", "deep/er/c.txt", "spec.json"}
    for path in [final / n for n in (*listed, ".", "deep", "deep/er")]:
        assert path.stat().st_ino in before, path
    assert (final / "manifest.json").stat().st_ino in before, "and itself before its name"
    assert manifest < installed and final.stat().st_ino in {
        n for w, n in said[manifest:installed] if w == "sync"
    }
    assert {final.parent.stat().st_ino, folder.parent.stat().st_ino} <= {
        n for w, n in said[installed:] if w == "sync"
    }


def test_the_manifest_tells_the_whole_spec_and_what_it_was_made_on(store):
    with store.lock(Count(2)), store.lock(Count(3)):
        for spec in (Count(2), Count(3)):
            write_atomic(begin(store, spec, CODE) / "value.txt", "x")
            publish(store, spec, 1.0, [run_id(Count(2)), run_id(Count(3))])
    told = json.loads((store.path(Count(2)) / "manifest.json").read_text())
    assert told["spec"] == {"is": "count", "upto": 2, "seed": 0, "fault": "", "pause": 0.0}
    assert told["partners"] == [run_id(Count(3))] and told["classes"] == {
        "count": "toy_stages:Count"
    }
    assert {"processor", "threads", "device", "system", "python"} <= set(told["platform"])
    assert told["platform"]["threads"] >= 1


def test_leftovers_of_other_code_are_not_mixed_in(store):
    write_atomic(begin(store, Count(), CODE) / "half.txt", "h")
    assert (begin(store, Count(), CODE) / "half.txt").exists()
    assert (begin(store, Count(), NEW, keep=True) / "half.txt").exists()
    assert not (begin(store, Count(), NEW) / "half.txt").exists()


# ---- a full disk


@pytest.mark.parametrize("number", (errno.ENOSPC, errno.EDQUOT))
@pytest.mark.parametrize("where", ("fsync", "replace", "rename"))
def test_full_disk_is_one_line_and_loses_nothing(store, monkeypatch, where, number):
    make(store, Count(1), "kept")
    spec, real = Count(2), getattr(os, where)
    folder = begin(store, spec, CODE)
    write_atomic(folder / "value.txt", "made")

    def full(*args, **kw):
        raise OSError(number, os.strerror(number))

    with store.lock(spec):
        monkeypatch.setattr(os, where, full)
        with pytest.raises(DiskFull, match=r"^[^\n]*runs: the disk is full; make room [^\n]*$"):
            publish(store, spec)
        monkeypatch.setattr(os, where, real)
    assert (folder / "value.txt").read_text() == "made" and (
        store.path(Count(1)) / "value.txt"
    ).read_text() == "kept"
    with store.lock(spec):
        begin(store, spec, CODE)
        if not finish(store, spec):
            publish(store, spec)
    assert store.has(spec) and check_runs(store).empty


def test_other_libraries_words_for_a_full_disk(tmp_path, monkeypatch):
    with pytest.raises(DiskFull), free_space(tmp_path):
        raise RuntimeError("I/O error: No space left on device (os error 28)")
    with pytest.raises(RuntimeError, match="file write failed"), free_space(tmp_path):
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: type("U", (), dict(free=0)))
    with pytest.raises(DiskFull), free_space(tmp_path):
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
    with pytest.raises(FileNotFoundError), free_space(tmp_path):
        open(tmp_path / "none")


# ---- locks


def test_the_second_waits_and_finds(store):
    order = []

    def second():
        with Store(store.root).lock(Count()) as ours:
            order.append(ours)

    with store.lock(Count()) as ours:
        assert ours
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        assert order == []
        with Store(store.root).lock(Count(), wait=False) as other:
            assert not other
        write_atomic(begin(store, Count(), CODE) / "value.txt", "x")
        publish(store, Count())
    thread.join(300)
    assert order == [False]


def test_the_second_takes_over_when_the_first_fails(store):
    with pytest.raises(ZeroDivisionError), store.lock(Count()):
        raise ZeroDivisionError
    with store.lock(Count()) as ours:
        assert ours


def owner(**changed):
    return json.dumps(
        dict(machine=machine(), pid=os.getpid(), started=start_time(os.getpid()), name="other")
        | changed
    )


@pytest.mark.parametrize(
    "text, taken",
    [
        (owner(), False),
        (owner(started="12345"), True),
        (owner(pid=2**22 + 1), True),
        (owner(machine="elsewhere"), False),
        ("", False),
        ("{", False),
    ],
    ids=("alive", "begun later", "gone", "elsewhere", "empty", "broken"),
)
def test_who_is_dead(tmp_path, text, taken):
    (tmp_path / "run").write_text(text)
    lock = Lock(tmp_path / "run")
    assert lock.take() == taken
    lock.release()
    assert (tmp_path / "run").exists() != taken


def test_an_owner_elsewhere_is_given_up_when_its_heart_stops(tmp_path, monkeypatch):
    clock = [0.0]  # minutes pass at once
    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    (tmp_path / "run").write_text(owner(machine="elsewhere"))
    lock = Lock(tmp_path / "run")
    for beat in range(20):
        os.utime(tmp_path / "run", (2e9 + beat,) * 2)
        assert not lock.take()
        clock[0] += files.LIMIT / 3
    os.utime(tmp_path / "run", (1e9, 1e9))
    assert not lock.take(), "an old time alone says nothing: clocks differ"
    clock[0] += files.LIMIT
    assert not lock.take()
    clock[0] += 1
    assert lock.take()
    lock.release()


@pytest.mark.parametrize(
    "left",
    (owner(machine="node7 other-boot pid:[1]", pid=7), "{", ""),
    ids=("another boot", "broken", "empty"),
)
def test_a_lock_that_nobody_will_ever_touch_again_is_taken_over(store, monkeypatch, capsys, left):
    """By a study, that is: it tries again and again with locks of its own, each of which sees the
    old one for the first time.
    """
    monkeypatch.setattr(files, "LIMIT", 1.0)
    (store.root / "locks").mkdir()
    (lock := store.root / "locks" / run_id(Count())).write_text(left)
    thread = threading.Thread(target=lambda: run([Count()], store), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and store.has(Count()) and not lock.exists()
    (line,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("waiting for")
    ]
    assert (
        str(lock) in line
        and ("process 7 on node7" in line or left in ("", "{"))
        and "taken over" in line
    )


def test_a_dead_owner_here_is_not_waited_for(store, capsys):
    (store.root / "locks").mkdir()
    (store.root / "locks" / run_id(Count())).write_text(owner(pid=2**22 + 1))
    began = time.monotonic()
    run([Count()], store)
    assert (
        store.has(Count())
        and time.monotonic() - began < files.LIMIT / 4
        and "waiting for" not in capsys.readouterr().out
    )


def test_an_owner_elsewhere_that_beats_is_waited_for(store, monkeypatch):
    monkeypatch.setattr(files, "LIMIT", 0.5)
    (store.root / "locks").mkdir()
    (lock := store.root / "locks" / run_id(Count())).write_text(owner(machine="elsewhere"))
    thread = threading.Thread(target=lambda: run([Count()], store, progress=False), daemon=True)
    thread.start()
    for beat in range(30):
        os.utime(lock, (1e9 + beat,) * 2)
        time.sleep(0.1)
    assert thread.is_alive() and not store.has(Count())
    thread.join(60)
    assert store.has(Count())


def test_prune_knows_dead_locks(store):
    folder = store.root / "locks"
    folder.mkdir()
    left = dict(
        alive=owner(),
        gone=owner(pid=2**22 + 1),
        reused=owner(started="12345"),
        fresh=owner(machine="elsewhere"),
        silent=owner(machine="elsewhere"),
        broken="{",
    )
    paths = {name: folder / f"{i:064x}" for i, name in enumerate(left)}
    for name, text in left.items():
        paths[name].write_text(text)
    for name in ("silent", "broken", "alive"):
        os.utime(paths[name], (time.time() - 2 * files.SILENT,) * 2)
    dead = [paths[name] for name in ("gone", "reused", "silent", "broken")]
    assert prune_locks(store, dry=True) == dead and all(p.exists() for p in dead)
    assert prune_locks(store) == dead and sorted(folder.glob("0*")) == [
        paths["alive"],
        paths["fresh"],
    ]


def test_who_removes_a_dead_lock_owns_it_until_it_is_gone(tmp_path, monkeypatch):
    lock, replace, taken = tmp_path / "run", Lock._replace, []
    lock.write_text(owner(pid=2**22 + 1))

    def and_another_tries(self, *args):
        done = replace(self, *args)
        taken.append(Lock(lock).take())
        return done

    monkeypatch.setattr(Lock, "_replace", and_another_tries)
    assert Lock(lock).clear() and taken == [False] and not lock.exists()


def test_a_lock_that_another_process_took_over_meanwhile_is_not_removed(tmp_path, monkeypatch):
    """As from a process that slept for hours between two steps."""
    lock, replace, other = tmp_path / "run", Lock._replace, owner(machine="elsewhere")
    lock.write_text(owner(pid=2**22 + 1))
    monkeypatch.setattr(Lock, "_replace", lambda *args: replace(*args) and lock.write_text(other))
    Lock(lock).clear()
    assert lock.read_text() == other


def test_the_heart_beats(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BEAT", 0.05)
    lock = Lock(tmp_path / "run")
    lock.take()
    os.utime(tmp_path / "run", (1e9, 1e9))
    for _ in range(3000):
        if (tmp_path / "run").stat().st_mtime > 1e9 + 1:
            break
        time.sleep(0.02)
    else:
        pytest.fail("no beat in a minute")
    lock.release()
    time.sleep(0.1)
    assert not (tmp_path / "run").exists()


def contend(folder, n, found):
    for _ in range(n):
        lock = Lock(Path(folder) / "run")
        while not lock.take():
            time.sleep(0.0005)
        inside = Path(folder) / "inside"
        found.put(inside.exists())
        inside.touch()
        time.sleep(0.0005)
        inside.unlink()
        if n % 2:
            lock.release()
        else:
            lock._stop.set()
            (Path(folder) / "run").write_text(owner(pid=2**22 + 1))  # as if we had died


@pytest.mark.parametrize("n", (15, 16))
def test_one_at_a_time_even_when_owners_die(tmp_path, n):
    found = multiprocessing.get_context("fork").Queue()
    each = [
        multiprocessing.get_context("fork").Process(target=contend, args=(tmp_path, n, found))
        for _ in range(4)
    ]
    for p in each:
        p.start()
    seen = [found.get(timeout=300) for _ in range(4 * n)]
    for p in each:
        p.join(300)
    assert not any(seen)


# ---- looking and tidying


def test_runs_and_prune(store):
    make(store, Count(1))
    make(store, Count(2))
    begin(store, Count(3), CODE)
    frame = list_runs(store)
    assert sorted(frame.state) == ["found", "found", "partial"] and set(frame.stage) == {"count"}
    assert prune_runs(store, dry=True).empty and prune_runs(store).empty
    assert len(prune_runs(store, [store.path(Count(1)).name], partial_days=-1)) == 2
    assert (
        list_runs(store).spec.tolist() == ['{"is":"count","upto":2}'] or len(list_runs(store)) == 1
    )
    with store.lock(Count(3)):
        begin(store, Count(3), CODE)
        assert prune_runs(store, partial_days=-1).empty, "what somebody is making stays"
    assert store.partial(Count(3)).exists()


@pytest.mark.parametrize("case", ["damaged", "named", "partial"])
def test_prune_leaves_a_run_that_another_process_made_meanwhile(store, monkeypatch, case):
    spec, look = Count(), pruning.list_runs
    if case == "partial":
        os.utime(begin(store, spec, CODE) / "begun.json", (1e9, 1e9))
    else:
        make(store, spec)
    if case == "damaged":
        (store.path(spec) / "value.txt").unlink()

    def then_another_makes_it(store):
        frame = look(store)
        make(store, spec, "new")
        return frame

    monkeypatch.setattr(pruning, "list_runs", then_another_makes_it)
    assert prune_runs(store, [run_id(spec)] if case == "named" else []).empty
    assert store.has(spec)


def test_prune_leaves_a_run_that_was_made_again_since_it_was_chosen(store):
    make(store, Count())
    make(store, Count(2))
    chosen = file_versions(store.root.glob(MANIFESTS))
    make(store, Count(), "new")
    gone = prune_runs(store, [run_id(Count()), run_id(Count(2))], versions=chosen)
    assert gone.run_id.tolist() == [run_id(Count(2))] and store.has(Count())


def test_prune_leaves_what_is_just_being_written_into_a_finished_run(store):
    half = make(store, Count()) / ".manifest.json.0123abcd"
    with store.lock(Count(), ready=lambda: False):
        half.write_text("{")
        prune_runs(store)
        assert half.exists()
    prune_runs(store)
    assert not half.exists() and store.has(Count())


def test_files_that_go_meanwhile_are_passed_over(store, monkeypatch):
    folder = make(store, Count())
    sizes = sorted(path.stat().st_size for path in folder.iterdir())
    walk = os.walk
    monkeypatch.setattr(
        "os.walk", lambda top: [(p, dirs, [*names, "gone"]) for p, dirs, names in walk(top)]
    )
    assert sorted(status.st_size for status in file_stats(folder)) == sizes
    assert list_runs(store).bytes.tolist() == [sum(sizes)]


# ---- folders that cannot be read or written


@pytest.mark.parametrize(
    "mark", [b"\xff\xfe\x00\x01" * 50, b"", b"\x00" * 4000], ids=["binary", "empty", "long"]
)
def test_a_broken_mark_is_one_short_line(tmp_path, mark):
    root = tmp_path / "runs"
    Store(root)
    (root / "VERSION").write_bytes(mark)
    with pytest.raises(InputError, match="another version") as refusal:
        Store(root)
    assert len(str(refusal.value)) < 400 and "\n" not in str(refusal.value)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_store_that_cannot_be_written_is_one_line(store, monkeypatch, number):
    spec = Count(3)

    def refuse(folder, *_, **__):
        raise OSError(number, os.strerror(number), str(folder))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(InputError, match="cannot be written.*--store") as refusal:
        run([spec], store, progress=False)
    assert str(store.root) in str(refusal.value) and "\n" not in str(refusal.value)
    assert list_runs(store).empty


class NeverStarted(Inline):
    def start(self, folder):
        raise AssertionError("the store was not looked at before")


def test_a_store_that_cannot_be_written_is_said_before_anything_starts(store, monkeypatch):
    specs = [Count(n) for n in range(3)]

    def refuse(dir):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(dir))

    monkeypatch.setattr(files, "TemporaryFile", refuse)
    with pytest.raises(InputError, match="cannot be written.*--store$"):
        run(specs, store, NeverStarted(), progress=False)


@pytest.mark.parametrize("name", ["locks", "partial", "count"])
def test_a_file_in_the_place_of_a_folder_is_said_before_anything_starts(store, name):
    (store.root / name).write_text("x")
    with pytest.raises(InputError, match=f"runs/{name}: a file .*move it away$"):
        run([Count()], store, NeverStarted(), progress=False)


def test_a_store_that_has_every_run_may_be_read_only(store, monkeypatch):
    run([Count()], store, progress=False)
    monkeypatch.setattr(files, "TemporaryFile", None)
    run([Count()], store, NeverStarted(), progress=False)


def test_a_file_elsewhere_that_may_not_be_read_is_not_the_store_s_fault(store):
    with pytest.raises(PermissionError), free_space(store.root):
        raise PermissionError(errno.EACCES, "no", "/else/where.txt")
