"""The store: whole or absent, readable whatever happens, and honest about what made each run."""
import errno, json, multiprocessing, os, subprocess, sys, threading, time
from pathlib import Path
from types import SimpleNamespace

import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.runs import digests, files
from xlingual_nb.runs import store as store_module
from xlingual_nb.runs.digests import code_digest, edited, reached
from xlingual_nb.runs.files import DiskFull, Lock, machine, room, started, write_atomic
from xlingual_nb.runs.store import Store, problems
from toy_stages import Count, Total

CODE = dict(count="c1", total="t1")


@pytest.fixture
def store(tmp_path): return Store(tmp_path / "runs")


def make(store, spec, text="x", code=CODE, name="value.txt"):
    with store.lock(spec, ready=lambda: False):
        folder = store.begin(spec, code)
        write_atomic(folder / name, text)
        store.publish(spec, 1.0)
    return store.path(spec)


# ---- opening a store

def test_another_version_and_other_folders_are_refused(tmp_path):
    root = tmp_path / "runs"
    Store(root)
    Store(root)
    (root / "VERSION").write_text("0\n")
    with pytest.raises(InputError, match="another version.*--store"): Store(root)
    with pytest.raises(InputError, match="not a store"): Store(tmp_path)
    with pytest.raises(InputError, match="no store here"): Store(tmp_path / "nothing", create=False)
    assert not (tmp_path / "nothing").exists() and not (tmp_path / "VERSION").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a store"): Store(tmp_path / "file")


# ---- one run

def test_a_run_from_begin_to_read(store):
    spec = Count(5)
    assert store.state(spec) == "missing" and not store.has(spec)
    with store.lock(spec) as ours:
        assert ours
        folder = store.begin(spec, CODE)
        (folder / "resume").mkdir(); (folder / "resume" / "state").write_text("s")
        (folder / "deep").mkdir(); (folder / "deep" / "b.txt").write_text("b")
        write_atomic(folder / "measures.json", '{"a": 1}'); (folder / ".half.tmp").write_text("h")
        assert not store.path(spec).exists(), "nothing under the final name before it is whole"
        store.publish(spec, 2.5)
    assert store.read(spec) == {"a": 1} and not folder.exists()
    final = store.path(spec)
    assert sorted(str(p.relative_to(final)) for p in final.rglob("*") if p.is_file()) == ["deep/b.txt", "manifest.json", "measures.json", "spec.json"]
    told = json.loads((final / "manifest.json").read_text())
    assert told["seconds"] == 2.5 and told["code"] == {"count": "c1"} and set(told["files"]) == {"deep/b.txt", "measures.json", "spec.json"}
    assert os.uname().nodename not in (final / "manifest.json").read_text()
    assert not list((store.root / "locks").glob("[0-9a-f]*"))


def test_publish_without_the_lock_publishes_nothing(store):
    write_atomic(store.begin(Count(), CODE) / "value.txt", "x")
    with pytest.raises(RuntimeError, match="lock"): store.publish(Count())
    assert not store.has(Count()) and (store.partial(Count()) / "value.txt").exists()


def test_a_lock_lost_to_somebody_else_publishes_nothing(store):
    with store.lock(Count()):
        write_atomic(store.begin(Count(), CODE) / "value.txt", "x")
        write_atomic(store.root / "locks" / store.path(Count()).name, json.dumps(dict(machine="elsewhere", pid=1, started="1", name="other")))
        with pytest.raises(RuntimeError, match="not ours"): store.publish(Count())
    assert not store.has(Count())
    assert (store.root / "locks" / store.path(Count()).name).exists(), "we do not release what is not ours"


@pytest.mark.parametrize("harm, cheap, told", [
    (lambda f: (f / "value.txt").unlink(), "damaged", "value.txt is missing"),
    (lambda f: (f / "value.txt").write_text(""), "damaged", "value.txt has 0 bytes, not 1"),
    (lambda f: (f / "value.txt").write_text("y"), "found", "value.txt has changed"),
    (lambda f: (f / "manifest.json").write_text("{"), "damaged", "manifest.json is missing or broken"),
    (lambda f: (f / "manifest.json").unlink(), "damaged", "manifest.json is missing or broken")])
def test_damage_is_noticed(store, harm, cheap, told):
    folder = make(store, Count())
    assert store.check().empty
    harm(folder)
    assert store.state(Count(), CODE) == cheap and problems(folder) == [told]
    assert store.check().problem.tolist() == [told] and store.check().run_id.tolist() == [folder.name]
    if cheap == "damaged":
        with pytest.raises(InputError, match="damaged; run it first"): store.read(Count(), "value.txt")
        assert len(store.prune()) == 1 and store.state(Count()) == "missing"


def test_remade_runs_replace_the_old_folder(store):
    make(store, Count(), "old"); folder = make(store, Count(), "new", dict(count="c2"))
    assert (folder / "value.txt").read_text() == "new" and store.state(Count(), dict(count="c2")) == "found"
    assert not list(store.root.glob("trash/*"))


def test_staleness_is_inherited_and_cannot_be_laundered(store):
    make(store, Count()); make(store, Total((Count(),)), "{}", name="measures.json")
    new = dict(count="c2", total="t1")
    assert store.state(Total((Count(),)), CODE) == "found" and store.state(Total((Count(),)), new) == "stale"
    assert store.stale_runs(new).changed.tolist() == ["count", "count"]
    make(store, Total((Count(), )), "{}", new, "measures.json")         # new code on an old count: still stale
    assert store.state(Total((Count(),)), new) == "stale"
    store.prune([store.path(Count()).name])                             # the count is gone: the total still knows
    assert store.state(Count()) == "missing" and store.state(Total((Count(),)), new) == "stale"


def test_leftovers_of_other_code_are_not_mixed_in(store):
    write_atomic(store.begin(Count(), CODE) / "half.txt", "h")
    assert (store.begin(Count(), CODE) / "half.txt").exists()
    assert (store.begin(Count(), dict(count="c2"), keep=True) / "half.txt").exists()
    assert not (store.begin(Count(), dict(count="c2")) / "half.txt").exists()


# ---- a full disk

@pytest.mark.parametrize("number", (errno.ENOSPC, errno.EDQUOT))
@pytest.mark.parametrize("where", ("fsync", "replace", "rename"))
def test_full_disk_is_one_line_and_loses_nothing(store, monkeypatch, where, number):
    make(store, Count(1), "kept")
    spec, real = Count(2), getattr(os, where)
    folder = store.begin(spec, CODE)
    write_atomic(folder / "value.txt", "made")
    def full(*args, **kw): raise OSError(number, os.strerror(number))
    with store.lock(spec):
        monkeypatch.setattr(os, where, full)
        with pytest.raises(DiskFull, match=r"^[^\n]*runs: the disk is full; make room [^\n]*$"): store.publish(spec)
        monkeypatch.setattr(os, where, real)
    assert (folder / "value.txt").read_text() == "made" and (store.path(Count(1)) / "value.txt").read_text() == "kept"
    with store.lock(spec):
        store.begin(spec, CODE)
        if not store.finish(spec): store.publish(spec)
    assert store.has(spec) and store.check().empty


def test_other_libraries_words_for_a_full_disk(tmp_path, monkeypatch):
    with pytest.raises(DiskFull):
        with room(tmp_path): raise RuntimeError("I/O error: No space left on device (os error 28)")
    with pytest.raises(RuntimeError, match="file write failed"):
        with room(tmp_path): raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: type("U", (), dict(free=0)))
    with pytest.raises(DiskFull):
        with room(tmp_path): raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
    with pytest.raises(FileNotFoundError):
        with room(tmp_path): open(tmp_path / "none")


# ---- locks

def test_the_second_waits_and_finds(store):
    order = []
    def second():
        with Store(store.root).lock(Count()) as ours: order.append(ours)
    with store.lock(Count()) as ours:
        assert ours
        thread = threading.Thread(target=second); thread.start(); time.sleep(.3)
        assert order == []
        with Store(store.root).lock(Count(), wait=False) as other: assert not other
        write_atomic(store.begin(Count(), CODE) / "value.txt", "x"); store.publish(Count())
    thread.join(300)
    assert order == [False]


def test_the_second_takes_over_when_the_first_fails(store):
    with pytest.raises(ZeroDivisionError):
        with store.lock(Count()): 1 / 0
    with store.lock(Count()) as ours: assert ours


def owner(**changed):
    return json.dumps(dict(machine=machine(), pid=os.getpid(), started=started(os.getpid()), name="other") | changed)


@pytest.mark.parametrize("text, taken", [(owner(), False), (owner(started="12345"), True), (owner(pid=2**22 + 1), True),
                                         (owner(machine="elsewhere"), False), ("", False), ("{", False)])
def test_who_is_dead(tmp_path, text, taken):
    (tmp_path / "run").write_text(text)
    lock = Lock(tmp_path / "run")
    assert lock.take() == taken
    lock.release()
    assert (tmp_path / "run").exists() != taken


def test_an_owner_elsewhere_is_given_up_when_its_heart_stops(tmp_path, monkeypatch):
    clock = [0.]                        # minutes pass at once
    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    (tmp_path / "run").write_text(owner(machine="elsewhere"))
    lock = Lock(tmp_path / "run")
    for beat in range(20):
        os.utime(tmp_path / "run", (2e9 + beat,) * 2); assert not lock.take()
        clock[0] += files.LIMIT / 3
    os.utime(tmp_path / "run", (1e9, 1e9)); assert not lock.take(), "an old time alone says nothing: clocks differ"
    clock[0] += files.LIMIT; assert not lock.take()
    clock[0] += 1; assert lock.take()
    lock.release()


def test_the_heart_beats(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BEAT", .05)
    lock = Lock(tmp_path / "run"); lock.take()
    os.utime(tmp_path / "run", (1e9, 1e9))
    for _ in range(3000):
        if (tmp_path / "run").stat().st_mtime > 1e9 + 1: break
        time.sleep(.02)
    else: pytest.fail("no beat in a minute")
    lock.release(); time.sleep(.1)
    assert not (tmp_path / "run").exists()


def contend(folder, n, found):
    for _ in range(n):
        lock = Lock(Path(folder) / "run")
        while not lock.take(): time.sleep(.0005)
        inside = Path(folder) / "inside"
        found.put(inside.exists()); inside.touch(); time.sleep(.0005); inside.unlink()
        if n % 2: lock.release()
        else: lock._stop.set(); (Path(folder) / "run").write_text(owner(pid=2**22 + 1))    # as if we had died


@pytest.mark.parametrize("n", (15, 16))
def test_one_at_a_time_even_when_owners_die(tmp_path, n):
    found = multiprocessing.get_context("fork").Queue()
    each = [multiprocessing.get_context("fork").Process(target=contend, args=(tmp_path, n, found)) for _ in range(4)]
    for p in each: p.start()
    seen = [found.get(timeout=300) for _ in range(4 * n)]
    for p in each: p.join(300)
    assert not any(seen)


# ---- looking and tidying

def test_runs_and_prune(store):
    make(store, Count(1)); make(store, Count(2)); store.begin(Count(3), CODE)
    frame = store.runs()
    assert sorted(frame.state) == ["found", "found", "partial"] and set(frame.stage) == {"count"}
    assert store.prune(dry=True).empty and store.prune().empty
    assert len(store.prune([store.path(Count(1)).name], partial_days=-1)) == 2
    assert store.runs().spec.tolist() == ['{"is":"count","upto":2}'] or len(store.runs()) == 1
    with store.lock(Count(3)):
        store.begin(Count(3), CODE)
        assert store.prune(partial_days=-1).empty, "what somebody is making stays"
    assert store.partial(Count(3)).exists()


# ---- code digests

@pytest.fixture
def package(tmp_path, monkeypatch):
    "A package of its own: a -> b -> c by import; d apart; b imports c inside a function."
    name = f"pack{abs(hash(tmp_path)) % 10**9}"
    root = tmp_path / name
    (root / "sub").mkdir(parents=True)
    text = {"__init__.py": '__version__ = "1"\n', "a.py": f'"A."\nfrom .sub import b\ndef f(x): return b.g(x)  # f\n', "sub/__init__.py": "",
            "sub/b.py": 'import os\ndef g(x):\n    "G."\n    from ..c import h\n    return h(x)\n', "c.py": "def h(x): return x + 1\n", "d.py": "X = 1\n"}
    for n, t in text.items(): (root / n).write_text(t)
    monkeypatch.syspath_prepend(tmp_path)
    def edit(n, old, new): (root / n).write_text((root / n).read_text().replace(old, new))
    return name, edit


def test_what_a_module_reaches(package):
    name, _ = package
    assert set(reached([f"{name}.a"])) == {name, f"{name}.a", f"{name}.sub", f"{name}.sub.b", f"{name}.c"}
    assert name not in sys.modules, "looking does not import"


@pytest.mark.parametrize("file, old, new, counts", [
    ("a.py", "# f", "# words", False), ("a.py", '"A."', '"Another."', False), ("sub/b.py", '"G."', '"H."\n    # more', False),
    ("__init__.py", '"1"', '"2"', False), ("d.py", "1", "2", False), ("c.py", "return x + 1", "return  (x+1)", False),
    ("c.py", "x + 1", "x + 2", True), ("sub/b.py", "return h(x)", "return h(h(x))", True), ("__init__.py", '"1"', '"1"\nX = 1', True)])
def test_what_counts_as_a_change(package, file, old, new, counts):
    name, edit = package
    before = code_digest((f"{name}.a",))
    edit(file, old, new)
    assert (code_digest((f"{name}.a",)) != before) == counts


def test_a_function_brings_its_helpers_and_its_modules(tmp_path, monkeypatch):
    text = ("from xlingual_nb.errors import InputError\nN = 1\nTABLE = {'a': 1}\nseen = []\n\ndef helper(x):\n    return x + N + TABLE['a']\n\n"
            "def make(x):\n    seen.append(x)\n    return helper(x)\n\ndef other(x):\n    raise InputError\n")
    name = f"funs{abs(hash(tmp_path)) % 10**9}"
    monkeypatch.syspath_prepend(tmp_path)
    def digest(*changes, of="make"):
        source = text
        for old, new in changes: assert old in source; source = source.replace(old, new)
        (tmp_path / f"{name}.py").write_text(source); sys.modules.pop(name, None)
        import importlib, linecache
        importlib.invalidate_caches(); linecache.checkcache()
        module = type(sys)(name); module.__file__ = str(tmp_path / f"{name}.py"); sys.modules[name] = module
        exec(compile(source, module.__file__, "exec"), vars(module))
        return code_digest(functions=(getattr(module, of),))
    same = digest()
    assert digest(("raise InputError", "raise InputError('x')")) == same and digest(("seen = []", "seen = [1]")) == same
    assert digest(("N = 1", "N = 2")) != same and digest(("'a': 1", "'a': 2")) != same and digest(("x + N", "x - N")) != same
    assert digest(of="other") != same


def test_the_digest_is_the_same_in_every_process():
    code = "from xlingual_nb.runs.digests import code_digest; import toy_stages as t; print(code_digest(('xlingual_nb.runs.engine',), (t.make_count,)))"
    around = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    told = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=around | {"PYTHONHASHSEED": str(i)},
                           check=True).stdout for i in (1, 2)}
    import toy_stages
    assert told == {code_digest(("xlingual_nb.runs.engine",), (toy_stages.make_count,)) + "\n"}


def test_modules_edited_after_import_are_found(package):
    name, edit = package
    import importlib
    importlib.import_module(f"{name}.a"); importlib.import_module(f"{name}.c")
    assert edited([f"{name}.a"]) == [] and edited(["xlingual_nb.runs.engine"]) == []
    edit("c.py", "x + 1", "x + 2")
    assert edited([f"{name}.a"]) == [f"{name}.c"]
