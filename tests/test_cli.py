"""The command line as its users meet it: in a process of its own where that matters, else by
`main`.
"""

import io
import json
import os
import resource
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from xlingual_nb import cli
from xlingual_nb.report import notebooks
from xlingual_nb.report.checkout import same_data
from xlingual_nb.runs.files import machine

ROOT = Path(__file__).resolve().parents[1]


def own_process(*arguments, **more):
    environment = {k: v for k, v in os.environ.items() if k != "XLINGUAL_DATA"} | more.pop(
        "env", {}
    )
    return subprocess.run(
        [sys.executable, "-c", "from xlingual_nb.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=more.pop("cwd", ROOT),
        **more,
    )


def xlingual(*arguments, cwd=ROOT, env=None):
    """The same without a new interpreter."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.delenv("XLINGUAL_DATA", raising=False)
        patch.chdir(cwd)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        try:
            cli.main(list(map(str, arguments)))
        except SystemExit as end:
            code = end.code
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def refused(done, *words, code=2):
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr, (
        done.stderr
    )
    for word in words:
        assert str(word) in done.stderr, done.stderr


def notebook(path, *cells, parameters="scale = 'smoke'\nseeds = 0\ndevice = 'cpu'\nstore = ''"):
    v4 = nbformat.v4
    made = [v4.new_markdown_cell("# Toy\n> A toy")] + (
        [v4.new_code_cell(parameters, metadata=dict(tags=["parameters"]))] if parameters else []
    )
    made += [v4.new_code_cell(c) for c in cells]
    path.parent.mkdir(parents=True, exist_ok=True)
    kernel = dict(display_name="python3", language="python", name="python3")
    nbformat.write(v4.new_notebook(cells=made, metadata=dict(kernelspec=kernel)), path)
    return path


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A toy clone: settings.ini and two experiments."""
    (tmp_path / "settings.ini").write_text("")
    notebook(tmp_path / "nbs/07_laboratory.ipynb", "print('seeds are', seeds, scale)", "seeds + 1")
    notebook(tmp_path / "nbs/08_broken.ipynb", "1 / 0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cpu_seconds():
    """Seconds of a core that child processes have used so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_is_quick_and_complete():
    began = cpu_seconds()
    done = own_process("--help")
    assert done.returncode == 0 and all(
        f"  {c} " in done.stdout for c in ("list", "plan", "run", "report", "probe", "data", "runs")
    )
    assert cpu_seconds() - began < 3, (
        "half a second is usual; others at work on the machine do not count, and it may be a slow one"
    )


@pytest.mark.parametrize("group", ["data", "runs"])
def test_a_group_alone_shows_its_help(group):
    done = xlingual(group)
    assert done.returncode == 0 and "Usage:" in done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["lost"], "lost"),
        (["run", "--skale", "smoke"], "--skale"),
        (["run", "99"], "no experiment '99'"),
        (["run", "laboratry"], "did you mean 'laboratory'"),
        (["run", "07", "-p", "seeds"], "NAME=VALUE"),
        (["run", "07", "-p", "sede=5"], "did you mean seeds"),
        (["run", "07", "-p", "seeds=five"], "must be a whole number"),
        (["run", "07", "-p", "seeds=1", "-p", "seeds=2"], "twice"),
        (["run", "07", "--scale", "hugh"], "scale 'hugh' does not exist"),
        (["runs", "list", "--store", "nowhere"], "nowhere"),
        (["run", "zzz"], "no experiment 'zzz'. There are: 07_lab"),
        (["run", "07", "-p", "zzz=1"], "no parameter 'zzz'. It has: scale"),
        (["data", "get", "xnli"], "(xlingual data get --help)"),
        (["run", "--skale"], "(xlingual run --help)"),
        (["lost"], "(xlingual --help)"),
        (["data", "check"], "XLINGUAL_DATA"),
        (["data", "get", "bible", "en"], "not on the hub"),
    ],
)
def test_wrong_use_is_one_line(clone, arguments, word):
    refused(xlingual(*arguments, cwd=clone), word)
    assert not (clone / "yours").exists() and not (clone / "results").exists()


def test_a_missing_data_folder_stops_a_run(clone):
    refused(
        xlingual("run", "07", cwd=clone, env=dict(XLINGUAL_DATA="/no/such/folder")),
        "/no/such/folder",
    )
    assert not (clone / "yours").exists() and not (clone / "results").exists()


def test_outside_a_clone_the_package_s_own_is_taken(tmp_path):
    assert xlingual("list", cwd=tmp_path).returncode == 0


def test_run_list_report(clone):
    done = own_process("run", "laboratory", "-p", "seeds=5", cwd=clone)
    assert (
        done.returncode == 0
        and "seeds are 5 smoke" in done.stdout
        and "yours/results/smoke/07_laboratory/07_laboratory.ipynb" in done.stdout
    )
    assert "07_laboratory [1/5" in done.stdout and done.stderr == ""
    executed = json.loads(
        (clone / "yours/results/smoke/07_laboratory/07_laboratory.ipynb").read_text()
    )
    assert "6" in str(executed["cells"][-1]["outputs"])
    done = xlingual("list", cwd=clone)
    assert (
        "07_laboratory" in done.stdout
        and "run at: smoke" in done.stdout
        and "dufter2020" in done.stdout
    )
    refused(xlingual("report", cwd=clone), "docs/conf.py is missing")


def test_a_kernel_that_ends_says_nothing_of_its_sockets(clone):
    notebook(
        clone / "nbs/10_hushed.ipynb",
        "import logging; print('enabled', logging.getLogger('tornado.general').isEnabledFor(logging.ERROR))",
    )
    done = xlingual("run", "10", cwd=clone)
    assert done.returncode == 0 and "enabled False" in done.stdout


def test_a_failing_cell_is_one_line_and_leaves_the_notebook(clone):
    good = clone / "yours/results/smoke/08_broken/08_broken.ipynb"
    good.parent.mkdir(parents=True)
    good.write_text("an earlier copy")
    refused(
        xlingual("run", "08", cwd=clone),
        "08_broken, cell 3: ZeroDivisionError",
        "08_broken.failed.ipynb",
        code=1,
    )
    assert (
        good.read_text() == "an earlier copy"
        and "ZeroDivisionError" in good.with_name("08_broken.failed.ipynb").read_text()
    )
    assert sorted(p.name for p in good.parent.iterdir()) == [
        "08_broken.failed.ipynb",
        "08_broken.ipynb",
    ]
    assert "Traceback" in xlingual("run", "08", "--debug", cwd=clone).stderr


def test_an_input_error_in_a_cell_stays_the_user_s(clone):
    notebook(
        clone / "nbs/09_asks.ipynb",
        "from xlingual_nb.errors import InputError\nraise InputError('scale=huge: use smoke')",
    )
    refused(xlingual("run", "09", cwd=clone), "09_asks, cell 3: scale=huge: use smoke")


def test_a_lost_tag_is_refused(clone):
    notebook(clone / "nbs/09_untagged.ipynb", "seeds = 0", parameters="")
    refused(xlingual("run", "untagged", cwd=clone), "no cell tagged 'parameters'")


def test_a_wrong_parameter_of_the_last_stops_all(clone):
    notebook(clone / "nbs/09_other.ipynb", parameters="scale = 'smoke'")
    refused(
        xlingual("run", "07", "09", "-p", "seeds=3", cwd=clone), "09_other: no parameter 'seeds'"
    )
    assert not (clone / "yours").exists() and not (clone / "results").exists()


def test_injected_parameters_must_follow_the_defaults(tmp_path):
    v4 = nbformat.v4
    cells = [
        v4.new_code_cell("seeds = 3", metadata=dict(tags=["injected-parameters"])),
        v4.new_code_cell("seeds = 0", metadata=dict(tags=["parameters"])),
    ]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "x.ipynb")
    with pytest.raises(notebooks.NotebookError, match="do not trust"):
        notebooks.check_injected(tmp_path / "x.ipynb")


def test_a_kernel_that_does_not_come_up_is_started_again(clone, monkeypatch):
    """As when another process takes its port first; one that dies later is not."""
    import papermill

    no_start = RuntimeError("Kernel died before replying to kernel_info")
    errors, execute = [no_start] * 2, papermill.execute_notebook

    def sometimes(*arguments, **more):
        if errors:
            raise errors.pop()
        return execute(*arguments, **more)

    monkeypatch.setattr("papermill.execute_notebook", sometimes)
    assert xlingual("run", "07", cwd=clone).returncode == 0 and not errors
    errors[:] = [no_start] * 4
    refused(xlingual("run", "07", cwd=clone), "the kernel died", code=1)
    assert len(errors) == 1
    errors[:] = [RuntimeError("Kernel died")] * 2
    refused(xlingual("run", "07", cwd=clone), "the usual cause is memory", code=1)
    assert len(errors) == 1


def test_a_full_disk_is_one_line(clone, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("papermill.execute_notebook", full)
    with pytest.raises(SystemExit) as end:
        cli.main(["run", "07"])
    seen = capsys.readouterr()
    assert (
        end.value.code == 2
        and "disk is full" in seen.err
        and len(seen.err.strip().splitlines()) == 1
    )


@pytest.fixture
def below(clone):
    """A folder in the toy clone to stand in, and a notebook 09 that prints its places and its data
    folder.
    """
    words = (
        "from xlingual_nb.text.corpora import data_folder\n"
        "print(*filter(None, (store, results, figures, folder)))\nprint('data:', data_folder())"
    )
    names = (
        "scale = 'smoke'",
        *(f"{name} = ''" for name in ("store", "results", "figures", "folder")),
    )
    notebook(clone / "nbs/09_places.ipynb", words, parameters="\n".join(names))
    for folder in ("below/dd/bible", "below/data/bible", "data/text"):
        (clone / folder).mkdir(parents=True)
    return clone / "below"


def test_a_path_means_what_it_means_where_one_stands(below):
    given = [
        word for name in ("results", "figures", "folder") for word in ("-p", f"{name}=my/{name}")
    ]
    done = xlingual(
        "run", "09", "--store", "my/store", *given, cwd=below, env=dict(XLINGUAL_DATA="dd")
    )
    assert (
        " ".join(f"{below}/my/{name}" for name in ("store", "results", "figures", "folder"))
        in done.stdout
    ), done.stderr
    assert f"data: {below}/dd" in done.stdout
    assert notebooks.grid_of("07", "smoke", dict(store="a"))[1]["store"] == str(below.parent / "a")


def test_where_a_clone_cannot_be_written_in_the_notebook_goes_with_the_results(clone, tmp_path):
    """As in a container whose clone is read-only."""
    notebook(clone / "nbs/09_places.ipynb", parameters="scale = 'smoke'\nresults = ''")
    (clone / "yours").write_text("no folder")
    refused(xlingual("run", "09", cwd=clone), f"results={clone}/yours/results", "no folder")
    place = tmp_path / "elsewhere"
    done = xlingual("run", "09", "-p", f"results={place}", cwd=clone)
    assert done.returncode == 0 and (place / "smoke/09_places/09_places.ipynb").is_file()


@pytest.mark.parametrize("name", ["store", "results", "figures"])
@pytest.mark.parametrize(
    "place, words",
    [
        ("file", "a file, not a store|file is no folder"),
        ("file/in", "file is no folder"),
        ("/proc/in/it", "/proc cannot be written in"),
        ("link", "no folder"),
    ],
)
def test_a_place_that_cannot_be_written_in_stops_all_notebooks_at_once(below, name, place, words):
    if place.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("no such file system here")
    (below / "file").write_text("x")
    (below / "link").symlink_to(below / "nowhere")
    done = xlingual("run", "09", "-p", f"{name}={place}", cwd=below)
    refused(done, str(below / place))
    assert any(word in done.stderr for word in words.split("|")), done.stderr
    assert (
        done.stdout == ""
        and not (below.parent / "yours").exists()
        and (below / "file").read_text() == "x"
    )


def test_a_place_that_can_be_made_is_not_made_before_it_is_needed(below):
    notebooks.runnable(
        notebooks.resolve("09"), dict(store=str(below / "a/b"), results=str(below / "c"))
    )
    assert sorted(path.name for path in below.iterdir()) == ["data", "dd"]


def test_data_is_found_here_or_else_in_the_clone_by_all_commands(below, monkeypatch):
    for folder in (below / "data", below.parent / "data"):
        assert f"data: {folder}" in xlingual("run", "09", cwd=below).stdout
        assert f"{folder} holds no data files" in xlingual("data", "check", cwd=below).stdout
        if folder.parent == below:
            shutil.rmtree(folder)
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.chdir(below)
    with same_data():
        assert os.environ["XLINGUAL_DATA"] == str(folder)
    assert "XLINGUAL_DATA" not in os.environ


# --- plan


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_mistake_in_a_grid_names_its_notebook(clone, monkeypatch, command):
    monkeypatch.setattr("xlingual_nb.experiments.laboratory.grid", lambda scale: seeds)  # noqa: F821
    refused(
        xlingual(command, "07", cwd=clone),
        "07_laboratory, grid: NameError: name 'seeds' is not defined",
        code=1,
    )
    assert (
        "in <lambda>" in xlingual(command, "07", "--debug", cwd=clone).stderr
        and not (clone / "yours").exists()
    )


def test_a_plan_makes_no_store(tmp_path):
    done = xlingual("plan", "07", "-p", "rows=0", "--store", tmp_path / "a/b", "--json")
    assert json.loads(done.stdout)["stages"][-1]["found"] == 0 and list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    refused(
        xlingual("plan", "07", "-p", "rows=0", "--store", tmp_path / "file"), "a file, not a store"
    )


def test_a_plan_names_machines_prices_and_the_dearest_rows(tmp_path):
    table = tmp_path / "machines.toml"
    table.write_text(
        'cards = [3]\ncurrency = "EUR"\n[machines.slow]\npeak = 1e6\nshare = 0.5\nprice = 2'
    )
    arguments = ("plan", "07", "-p", "rows=0,3", "--machines", table, "--store", tmp_path / "none")
    content = json.loads(xlingual(*arguments, "--json").stdout)
    (machine,) = content["machines"]
    hours = content["stages"][-1]["FLOPs"] / 5e5 / 3600
    assert machine["card-hours"] == pytest.approx(hours)
    assert machine["price EUR"] == pytest.approx(2 * hours) and "days on 3" in machine
    shares = {row["row"]: row["share"] for row in content["rows"] if row["table"] == "table1"}
    assert shares["3 inv-order"] > shares["0 original"], "its model serves one table alone"
    printed = xlingual(*arguments).stdout
    assert "price EUR" in printed and "3 inv-order" in printed and "without them" in printed


def test_a_plan_of_several_goes_on_without_one_whose_text_is_missing(tmp_path):
    options = ("--scale", "paper", "--store", tmp_path / "none")
    done = xlingual("plan", "06", "12", *options)
    assert done.returncode == 0 and "12_zero_shot, table3 is not in this plan: " in done.stdout
    assert "pretrain" in done.stdout
    refused(xlingual("plan", "12", *options), "no data folder")


@pytest.mark.parametrize(
    "text, says",
    [
        ("[machines.a]\npeak = 1e9\nshare = 0.5", "machine a: price = None"),
        ("[machines.a]\npeak = 1e9\nshare = 0\nprice = 1", "machine a: share = 0"),
        ("cards = [0]\n[machines.a]\npeak = 1\nshare = 1\nprice = 1", "cards = [0]"),
        ("cards = 8\n[machines.a]\npeak = 1\nshare = 1\nprice = 1", "cards = 8"),
        ("", "names no machine"),
        ("[machines", "is no TOML"),
    ],
)
def test_a_table_of_machines_with_a_mistake(tmp_path, text, says):
    (table := tmp_path / "m.toml").write_text(text)
    done = xlingual("plan", "07", "--machines", table)
    refused(done, says)
    assert str(table) in done.stderr


# --- data


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "bible").mkdir()
    (tmp_path / "bible/en-toy.tsv").write_text("GEN.1.1\tIn the beginning.\n", encoding="utf-8")
    return tmp_path


def test_data_record_and_check(folder):
    env = dict(XLINGUAL_DATA=str(folder))
    assert "1 not recorded" in xlingual("data", "check", env=env).stdout
    done = xlingual("data", "check", "--record", env=env)
    assert done.returncode == 0 and "1 digests recorded" in done.stdout and "1 same" in done.stdout
    if shutil.which("sha256sum"):
        assert (
            subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=folder).returncode == 0
        )
    (folder / "bible/en-toy.tsv").write_bytes("GEN.1.1\tIn the beginning\n".encode("utf-16"))
    done = xlingual("data", "check", env=env)
    refused(done, "1 of 1 files")
    assert "changed" in done.stdout and "UTF-16" in done.stdout
    (folder / "bible/en-toy.tsv").unlink()
    refused(xlingual("data", "check", env=env), "1 of 1 files")


def test_data_list(folder):
    done = xlingual("data", "list", env=dict(XLINGUAL_DATA=str(folder)))
    assert done.returncode == 0, done.stderr
    assert (
        "bible/en-toy" in done.stdout
        and "micro/en" in done.stdout
        and "not on the hub" in done.stdout
    )


def test_a_missing_data_folder_is_one_line():
    refused(xlingual("data", "list", env=dict(XLINGUAL_DATA="/no/such/folder")), "/no/such/folder")


# --- runs


@pytest.fixture
def store(tmp_path):
    from xlingual_nb.text.sources import CorpusSpec
    from xlingual_nb.runs.run_folder import begin, publish
    from xlingual_nb.runs.store import Store

    at, spec = Store(tmp_path / "store"), CorpusSpec("micro/en")
    with at.lock(spec) as ours:
        assert ours
        (begin(at, spec, {"corpus": {"make_corpus": "0"}}) / "text.txt").write_text("a b c")
        publish(at, spec, 1.5)
    return at, spec, at.path(spec)


def test_runs_list_show_check_prune(store):
    at, _, folder = store
    done = xlingual("runs", "list", "--store", at.root)
    assert done.returncode == 0 and folder.name[:12] in done.stdout and "corpus" in done.stdout
    done = xlingual("runs", "show", folder.name[:8], "--store", at.root)
    assert done.returncode == 0 and '"micro/en"' in done.stdout and "text.txt" in done.stdout
    refused(xlingual("runs", "show", "zz", "--store", at.root), "no runs begin with 'zz'")
    assert xlingual("runs", "check", "--store", at.root).returncode == 0
    (folder / "text.txt").write_text("a b d")
    done = xlingual("runs", "check", "--store", at.root)
    refused(done, "1 runs are damaged")
    assert "text.txt has changed" in done.stdout
    assert (
        "1 runs would go"
        in xlingual("runs", "prune", folder.name[:8], "--dry", "--store", at.root).stdout
        and folder.exists()
    )
    assert (
        "1 runs removed" in xlingual("runs", "prune", folder.name[:8], "--store", at.root).stdout
        and not folder.exists()
    )


def test_prune_knows_what_dead_processes_leave(clone, store):
    at, spec, folder = store
    lock = at.root / "locks" / folder.name
    lock.write_text(json.dumps(dict(machine=machine(), pid=2**22 + 1, started="1")))
    half, new = (
        clone / f"yours/results/smoke/07_laboratory/07_laboratory.partial{2**22 + n}.ipynb"
        for n in (1, 2)
    )
    half.parent.mkdir(parents=True)
    half.touch()
    new.touch()
    os.utime(half, (0, 0))
    for options, left in ((["--dry"], True), ([], False)):
        done = xlingual("runs", "prune", *options, "--store", at.root, cwd=clone)
        assert (
            "1 locks of dead processes, 1 half-written notebooks" in done.stdout
            and done.returncode == 0
        ), done.stderr
        assert lock.exists() == half.exists() == left and new.exists() and folder.exists()


def test_a_store_that_cannot_be_written_is_one_line_before_runs_are_made_or_pruned(store, tmp_path):
    at, _, folder = store
    (folder / "text.txt").write_text("cut")
    shutil.rmtree(at.root / "locks")
    (at.root / "locks").write_text("no folder")
    places = [f"{name}={tmp_path / name}" for name in ("results", "figures")]
    options = ["-p", "rows=0", "-p", "corpus=micro", "-p", places[0], "-p", places[1]]
    for command in (["runs", "prune"], ["run", "07", *options]):
        done = xlingual(*command, "--store", at.root)
        refused(done, "locks: a file in the place of a folder")
        assert done.stdout == "" and folder.exists()
    assert "1 runs would go" in xlingual("runs", "prune", "--dry", "--store", at.root).stdout


def test_a_store_of_another_version_is_one_line(store):
    (store[0].root / "VERSION").write_text("99\n")
    refused(xlingual("runs", "list", "--store", store[0].root), "another version")
