"""Why a run is stale, by the code, the defaults and the inputs of today; and how stale runs are kept."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import architecture, laboratory, objective, overlap
from xlingual_nb.runs.engine import plan, run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.runs.acceptance import accept_stage, choose, differences
from xlingual_nb.runs.spec import canonical, one_look, plain_value, restore, run_id
from xlingual_nb.runs.staleness import StoreView, moved_values, spec_of, stale_runs
from xlingual_nb.runs.stages import declare, stage_code
from xlingual_nb.runs.pruning import prune_runs
from xlingual_nb.runs.store import Store, check_runs
from command_line import run_commands
from toy_stages import Count, Total, make_count, make_total, redeclared

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def state(store, spec):
    return StoreView(store, stage_code()).state(spec)


def why(store, spec):
    return [r.text for r in StoreView(store, stage_code()).why(spec)]


def about(store, spec):
    return json.loads((store.path(spec) / "manifest.json").read_text())


def retold(store, spec, **told):
    """As if its manifest told otherwise."""
    write_atomic(store.path(spec) / "manifest.json", json.dumps(about(store, spec) | told))


# ---- specs as text and back, and names worked out once


@pytest.mark.parametrize("experiment", (overlap, architecture, objective, laboratory))
def test_specs_come_back_from_their_text(experiment):
    for spec in experiment.grid("smoke", "micro"):
        assert (
            restore(json.loads(canonical(spec)), type(spec))
            == spec
            == restore(plain_value(spec, with_defaults=True), type(spec))
        )
        assert canonical(spec) == json.dumps(
            plain_value(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        assert canonical(spec) == canonical(spec) and run_id(spec) == run_id(
            restore(plain_value(spec), type(spec))
        )


@dataclass(frozen=True)
class Reader:
    stage: ClassVar[str] = "reader"
    file: str

    def source_digests(self):
        return {"text": Path(self.file).read_text()}


@dataclass(frozen=True)
class Above:
    stage: ClassVar[str] = "above"
    reader: Reader
    size: float = 1.0


def test_a_name_follows_the_file_between_two_calls(tmp_path):
    """The same object, asked again: what it keeps on itself must not outlive a change of the text."""
    (tmp_path / "a.txt").write_text("one")
    spec = Above(Reader(str(tmp_path / "a.txt")))
    first = run_id(spec)
    (tmp_path / "a.txt").write_text("two")
    assert (
        run_id(spec)
        != first
        == (lambda: ((tmp_path / "a.txt").write_text("one"), run_id(spec))[1])()
    )
    with one_look():
        assert run_id(spec) == first
        (tmp_path / "a.txt").write_text("two")
        assert run_id(spec) == first, "one look sees one state"
    assert run_id(spec) != first


def test_equal_specs_that_are_written_otherwise_keep_their_own_names(tmp_path):
    """1 == 1.0 == True in Python, not in JSON: a name is not to be looked up by equality."""
    (tmp_path / "a.txt").write_text("one")
    reader = Reader(str(tmp_path / "a.txt"))
    two, two_point = Above(reader, 2), Above(reader, 2.0)
    assert (
        two == two_point
        and run_id(two) != run_id(two_point)
        and run_id(two) == run_id(Above(reader, 2))
    )


def test_what_can_change_keeps_nothing():
    @dataclass
    class Loose:
        stage: ClassVar[str] = "loose"
        n: int = 0

    @dataclass(frozen=True)
    class Holder:
        stage: ClassVar[str] = "holder"
        values: list = field(default_factory=list)
        inside: tuple = ()

    loose, listed, inside = Loose(1), Holder([1]), Holder(inside=(Loose(1),))
    before = [canonical(spec) for spec in (loose, listed, inside)]
    loose.n = 2
    listed.values.append(2)
    inside.inside[0].n = 2
    assert all(canonical(spec) != text for spec, text in zip((loose, listed, inside), before))


def test_ids_are_worked_out_once_a_plan(store, monkeypatch):
    asked = []
    monkeypatch.setattr(
        Reader, "source_digests", lambda self: asked.append(self.file) or {"text": "x"}
    )
    declare(Reader, make_count)
    declare(Above, make_total)
    readers = [Reader(str(i)) for i in range(5)]
    plan([Above(r, s) for r in readers for s in (1.5, 2.5, 3.5)], store)
    assert sorted(asked) == sorted([r.file for r in readers] * 4), "once for each of 20 objects"


# ---- a stage in a module of one's own, edited on the disk

OWN = """
    import json
    from dataclasses import dataclass
    from typing import ClassVar
    from own_helpers import power
    from xlingual_nb.runs.files import write_atomic
    from xlingual_nb.runs.stages import declare

    @dataclass(frozen=True)
    class Power:
        stage: ClassVar[str] = "power"
        base: int
        by: int = 2

    @dataclass(frozen=True)
    class Twice:
        stage: ClassVar[str] = "twice"
        power: Power

    def make_power(specs, folders, store, progress):
        for spec, folder in zip(specs, folders):
            write_atomic(folder / "measures.json", json.dumps(dict(value=power(spec.base, spec.by))))

    def make_twice(specs, folders, store, progress):
        for spec, folder in zip(specs, folders):
            write_atomic(folder / "measures.json", json.dumps(dict(value=2 * store.read(spec.power)["value"])))

    declare(Power, make_power)
    declare(Twice, make_twice)
    """
HELPERS = "def power(x, by): return x ** by\n"
MAKE = """
    import sys
    from own_stage import Power, Twice
    from xlingual_nb.runs.engine import run
    run([Twice(Power(n)) for n in (2, 3, 4)], sys.argv[1], progress=False)
    """


@pytest.fixture
def own(tmp_path):
    """Files `own_stage.py` and `own_helpers.py`, and a store that fresh processes use.

    Returns (what commands say that run one after the other in a fresh process, edit a file, make
    the runs).
    """
    for name, text in dict(own_stage=OWN, own_helpers=HELPERS, make=MAKE).items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    around = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
    }

    def xlingual(*commands):
        commands = [f"runs {command} --store {tmp_path}/runs" for command in commands]
        return [answer.text for answer in run_commands(tmp_path, around, *commands)]

    clock = [time.time()]

    def edit(name, old, new):
        file = tmp_path / f"{name}.py"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
        # Python knows byte code by second and size of its source: the next edit is a second later
        clock[0] += 1
        os.utime(file, (clock[0], clock[0]))

    def make():
        command = [sys.executable, "make.py", "runs"]
        done = subprocess.run(command, capture_output=True, text=True, env=around, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    make()
    return xlingual, edit, make


def ids(tmp_path, stage):
    """{value: run id} of a stage, read from the folders alone."""
    found = (tmp_path / "runs" / stage).glob("??/*")
    return {json.loads((f / "measures.json").read_text())["value"]: f.name for f in found}


def test_a_stage_of_ones_own_is_found_by_its_manifests(own, tmp_path):
    xlingual, edit, make = own
    four, eight = ids(tmp_path, "power")[4], ids(tmp_path, "twice")[8]
    stale, why_eight = xlingual("stale", f"why {eight}")
    assert stale == "no run is stale\n" and why_eight == "the run is up to date\n"
    edit("own_helpers", "x ** by", "x ** by + 0")
    stale, why_four, why_eight = xlingual("stale", f"why {four}", f"why {eight}")
    assert "3 runs of stage power are stale" in stale and "3 runs of stage twice are stale" in stale
    assert "own_helpers.power has changed" in stale
    assert why_four == "own_helpers.power has changed\n"
    assert why_eight == f"its input power {four[:12]}: own_helpers.power has changed\n"
    edit("own_helpers", "x ** by + 0", "x ** by  # again")
    assert xlingual("stale") == ["no run is stale\n"]
    (tmp_path / "own_helpers.py").unlink()
    stale, pruned = xlingual("stale", "prune --stale")
    assert "3 runs of stage power are unknown" in stale
    assert "own_stage:Power cannot be imported" in stale
    assert pruned.startswith("0 runs removed"), "what cannot be told is not thrown away"


def test_a_default_that_means_something_else_and_a_new_field(own, tmp_path):
    xlingual, edit, make = own
    why_nine = f"why {ids(tmp_path, 'power')[9]}"
    why_twice = f"why {ids(tmp_path, 'twice')[18]}"
    edit("own_stage", "by: int = 2", "by: int = 2\n    more: float = 0.0")
    assert xlingual("stale") == ["no run is stale\n"]
    edit("own_stage", "by: int = 2", "by: int = 3")
    said, said_of_twice, accepted = xlingual(why_nine, why_twice, "accept power --prove 1")
    assert said == "by was 2 by default and is 3 now\n"
    assert "power.by was 2 by default and is 3 now" in said_of_twice
    assert "none of 3 stale runs can be accepted" in accepted
    edit("own_helpers", "x ** by", "pow(x, by)")
    said, accepted = xlingual(why_nine, "accept power --prove 1")
    assert said == "own_helpers.power has changed\nby was 2 by default and is 3 now\n"
    assert "none of 3 stale runs can be accepted" in accepted
    make()
    assert xlingual("stale") == ["no run is stale\n"]
    assert set(ids(tmp_path, "power")) == {8, 27, 64}


def test_accepting_what_is_proved_equal(own, tmp_path):
    xlingual, edit, make = own
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "runs").rglob("measures.json")}
    accept_none = (f"accept power --prove {number}" for number in (0, -1))
    *nothing, no_stale, no_stage = xlingual(
        *accept_none, "accept power --prove 2", "accept toast --prove 2"
    )
    assert all("proves nothing" in said for said in nothing)
    assert no_stale == "0 runs of stage power accepted\n"
    assert "no run of stage 'toast'" in no_stage
    edit("own_helpers", "x ** by", "pow(x, by)")
    waiting, accepted, stale = xlingual("accept twice --prove 2", "accept power --prove 2", "stale")
    assert waiting.startswith(
        "3 runs read runs that are stale themselves, and wait: its input power"
    )
    assert "none of 3 stale runs can be accepted" in waiting
    said = accepted.splitlines()
    assert said[0].startswith("making 2 of 3 stale runs again: ")
    assert said[1] == "3 runs of stage power accepted, 3 that read them renewed"
    assert stale == "no run is stale\n"
    assert {f: f.stat().st_mtime_ns for f in (tmp_path / "runs").rglob("measures.json")} == before
    four = ids(tmp_path, "power")[4]
    told = json.loads((tmp_path / "runs/power" / four[:2] / four / "manifest.json").read_text())[
        "accepted"
    ]
    assert (
        len(told) == 1
        and told[0]["reason"] == "proved equal by 2 runs"
        and told[0]["old"] != told[0]["new"]
    )
    assert {r[:12] for r in told[0]["runs"]} == {
        w for w in said[0].replace(",", "").split() if len(w) == 12
    }


def test_what_comes_out_different_is_not_accepted(own, tmp_path):
    xlingual, edit, make = own
    edit("own_helpers", "x ** by", "x ** by if x < 3 else x ** by + 1")
    accepted, stale = xlingual("accept power --prove 3", "stale")
    assert "comes out different (measures.json): nothing was accepted" in accepted
    assert "3 runs of stage power are stale" in stale
    assert check_runs(Store(tmp_path / "runs")).empty
    assert not list((tmp_path / "runs").glob(".proof-*"))
    assert all(
        "accepted" not in json.loads(f.read_text())
        for f in (tmp_path / "runs").rglob("manifest.json")
    )


# ---- which runs prove what, in this process


def count_again(specs, folders, store, progress):
    make_count(specs, folders, store, progress)


def count_once_more(specs, folders, store, progress):
    make_count(list(specs), list(folders), store, progress)


def test_runs_of_two_old_codes_are_proved_apart(store):
    told = []
    run([Count(3, 0), Count(3, 1)], store, progress=False)
    with redeclared(Count, count_again):
        run([Count(3, 2)], store, progress=False)
    with redeclared(Count, count_once_more):
        assert len(accept_stage(store, "count", 1, Inline(), told.append)) == 3
        assert sum(line.startswith("making 1 of ") for line in told) == 2
        assert all(state(store, Count(3, s)) == "found" for s in range(3))
        assert accept_stage(store, "count", 1, Inline(), told.append) == []


def test_partners_are_made_again_together(store):
    specs = sorted((Count(3, s) for s in range(3)), key=run_id, reverse=True)
    run(specs, store, progress=False, stack=3)
    assert {len(about(store, s)["partners"]) for s in specs} == {2}
    for place, spec in enumerate(specs):
        retold(store, spec, seconds=1.0 + place / 1000)
    groups = []

    def watched(specs, folders, store, progress):
        groups.append(specs)
        make_count(specs, folders, store, progress)

    with redeclared(Count, watched, group=lambda s: s.upto):
        accept_stage(store, "count", 1, Inline(), lambda line: None)
    assert [list(group) for group in groups] == [specs], (
        "a place in the stack decides the last digits"
    )


def test_the_choice_is_spread_over_groups_and_needs_inputs(store):
    counts = [Count(n, s) for n in (2, 3, 4) for s in range(3)]
    totals = [Total((c,)) for c in counts[:2]]
    run([*counts, *totals], store, progress=False)
    for spec in counts:
        retold(store, spec, seconds=10.0 * spec.upto + spec.seed)
    assert choose(store, counts, 4) == [Count(2, 0), Count(3, 0), Count(4, 0), Count(2, 1)]
    retold(
        store,
        Count(2, 0),
        platform=about(store, Count(2, 0))["platform"] | dict(processor="Abacus 3000"),
    )
    assert choose(store, counts, 4) == [Count(2, 1), Count(3, 0), Count(4, 0), Count(2, 2)]
    assert len(choose(store, counts, 99)) == 9
    prune_runs(store, [run_id(counts[0])])
    assert choose(store, totals, 2) == [totals[1]]

    def sums(*given):
        return make_total(*given)

    with redeclared(Total, sums):
        prune_runs(store, [run_id(counts[1])])
        with pytest.raises(InputError, match="inputs of all 2 stale runs are gone"):
            accept_stage(store, "total", 1, Inline(), lambda line: None)


def test_a_run_that_another_process_made_again_meanwhile_is_not_accepted(store):
    first, second = sorted((Count(3, s) for s in range(2)), key=run_id)
    run([first, second], store, progress=False)
    accepted = []

    def accept():
        accepted.extend(accept_stage(Store(store.root), "count", 1, Inline(), lambda line: None))

    with redeclared(Count, count_again):
        with store.lock(second, ready=lambda: False):
            thread = threading.Thread(target=accept)
            thread.start()
            while thread.is_alive() and "accepted" not in about(store, first):
                time.sleep(0.01)
            time.sleep(0.3)  # it waits for the lock
            retold(store, second, definitions=stage_code()["count"], seconds=77.0)
        thread.join(60)
    assert accepted == [run_id(first)]
    assert about(store, second)["seconds"] == 77.0 and "accepted" not in about(store, second)


def test_a_reader_that_another_process_is_making_is_left_to_it(store):
    total = Total((Count(3),))
    run([total], store, progress=False)
    before, said = about(store, total), []
    with redeclared(Count, count_again), Store(store.root).lock(total, ready=lambda: False):
        assert accept_stage(store, "count", 1, Inline(), said.append) == [run_id(Count(3))]
    assert about(store, total) == before and "renewed" not in said[-1]


def test_a_log_does_not_count_and_every_other_file_does(store):
    spec = Count(3)
    run([spec], store, progress=False)
    assert differences(store, [spec], Inline()) == {}

    def more(specs, folders, store, progress):
        make_count(specs, folders, store, progress)
        for folder in folders:
            write_atomic(folder / "more.txt", "x")

    with redeclared(Count, more):
        assert differences(store, [spec], Inline()) == {run_id(spec): ["more.txt"]}


def test_made_elsewhere_is_said(store):
    spec = Count(3)
    run([spec], store, progress=False)
    retold(store, spec, platform=about(store, spec)["platform"] | dict(processor="Abacus 3000"))

    def other(specs, folders, store, progress):
        for folder in folders:
            write_atomic(folder / "value.txt", "x")

    with (
        redeclared(Count, other),
        pytest.raises(InputError, match="made elsewhere: processor Abacus 3000"),
    ):
        accept_stage(store, "count", 1, Inline(), lambda line: None)


# ---- old folders, odd folders


def test_runs_of_an_older_manifest_are_stale_and_say_why(store):
    run([Total((Count(2),))], store, progress=False)
    told = about(store, Count(2))
    for name in ("definitions", "classes", "spec", "partners"):
        told.pop(name)
    write_atomic(store.path(Count(2)) / "manifest.json", json.dumps(told))
    assert state(store, Count(2)) == "stale" == state(store, Total((Count(2),)))
    frame = stale_runs(store)
    assert set(frame.stage) == {"count", "total"} and "made before manifests told" in " ".join(
        frame.why
    )


def test_fields_that_moved():
    then = dict(a=1, b=[dict(c=2, d=3)], e=[1, 2])
    assert (
        moved_values(then, then | dict(f=1)) == []
        and moved_values(then, then | dict(b=[dict(c=2, d=3, z=1)])) == []
    )
    now = dict(a=1, b=[dict(c=2, d=4)], e=[1])
    assert moved_values(then, now) == [
        "b.0.d was 3 by default and is 4 now",
        "e was [1, 2] by default and is [1] now",
    ]


def test_a_spec_that_does_not_fit_its_class_is_said_to_be_so(store):
    run([Count(2)], store, progress=False)
    write_atomic(store.path(Count(2)) / "spec.json", '{"is": "count", "upto": 2, "gone": 1}')
    with pytest.raises(InputError, match="does not fit toy_stages:Count any more"):
        spec_of(store.path(Count(2)))
    write_atomic(store.path(Count(2)) / "spec.json", '{"is": "count", "upto": 3}')
    with pytest.raises(InputError, match="another by now"):
        spec_of(store.path(Count(2)))
