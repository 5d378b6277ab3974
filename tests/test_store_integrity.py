"""A file of the store that was edited, or lost a bit, is found on reading, and the command that is
printed mends it.
"""

import json
import os
import shlex

import pytest

from xlingual_nb import cli
from xlingual_nb.errors import InputError
from xlingual_nb.experiments.study import load_metrics
from xlingual_nb.runs import store as runs_store
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Processes
from xlingual_nb.runs.store import Store
from toy_stages import Count, Total, value


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "my runs")


def flip(path, at=-3):
    """One bit of a file, its size and its times as they were."""
    data, times = bytearray(path.read_bytes()), path.stat()
    data[at] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def mend(error):
    """Run the command that a message prints, as a user would."""
    command = shlex.split(str(error).split("`")[1])
    assert command[0] == "xlingual"
    with pytest.raises(SystemExit) as end:
        cli.main(command[1:])
    assert end.value.code == 0


def test_a_flipped_bit_is_found_on_reading_and_the_printed_mend_works(store):
    spec = Total((Count(3), Count(4)))
    run([spec], store, progress=False)
    file = store.path(spec) / "measures.json"
    kept = json.loads(file.read_text())
    flip(file)
    fresh = Store(store.root)
    with pytest.raises(InputError, match="measures.json has changed") as refusal:
        fresh.read(spec)
    assert str(store.path(spec)) in str(refusal.value) and "\n" not in str(refusal.value)
    with pytest.raises(InputError, match="measures.json has changed"):
        load_metrics(spec, fresh)
    mend(refusal.value)
    assert not file.exists()
    run([spec], store, progress=False)
    assert store.read(spec) == kept and load_metrics(spec, store) == kept


def test_an_edit_after_the_first_reading_is_found_too(store):
    spec = Count(3)
    run([spec], store, progress=False)
    text = (store.verified_path(spec) / "value.txt").read_text()
    (store.path(spec) / "value.txt").write_text(text[::-1])
    with pytest.raises(InputError, match="value.txt has changed"):
        store.verified_path(spec)


@pytest.mark.parametrize("executor", [None, lambda: Processes(1)], ids=["inline", "processes"])
def test_a_flipped_bit_of_an_input_stops_the_run_that_reads_it(store, executor):
    count, other = Count(3), Count(4)
    run([count, other], store, progress=False)
    flip(store.path(count) / "value.txt")
    spec, sound = Total((count,)), Total((other,))

    def again():
        run([spec, sound], Store(store.root), executor and executor(), progress=False)

    with pytest.raises(InputError, match="value.txt has changed") as refusal:
        again()
    assert store.has(sound) and not store.has(spec)
    mend(refusal.value)
    again()
    assert store.has(spec) and (store.path(count) / "value.txt").read_text() == value(count)


def test_every_byte_is_read_once_a_process(store, monkeypatch):
    spec = Count(3)
    run([spec], store, progress=False)
    read, whole = [], runs_store.sha256

    def watched(path):
        read.append(path.name)
        return whole(path)

    monkeypatch.setattr(runs_store, "sha256", watched)
    for _ in range(3):
        assert store.verified_path(spec) == store.path(spec)
    assert sorted(read) == ["log.jsonl", "spec.json", "value.txt"]
    with pytest.raises(InputError, match="run it first"):
        store.verified_path(Count(9))


def test_the_mend_that_a_check_of_the_store_prints_works(store, capsys):
    specs = [Count(3), Count(4), Count(5)]
    run(specs, store, progress=False)
    for spec in specs[:2]:
        flip(store.path(spec) / "value.txt")
    with pytest.raises(SystemExit) as end:
        cli.main(["runs", "check", "--store", str(store.root)])
    said = capsys.readouterr()
    assert (
        end.value.code == 2
        and "value.txt has changed" in said.out
        and len(said.err.splitlines()) == 1
    )
    mend(said.err)
    assert [store.has(s) for s in specs] == [False, False, True]
    with pytest.raises(SystemExit) as end:
        cli.main(["runs", "check", "--store", str(store.root)])
    assert end.value.code == 0
