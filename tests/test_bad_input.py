"""What hostile hands give the command line: one line that names the thing and the mend, or what was
meant.
"""

import builtins
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import typer

from test_cli import ROOT, clone, notebook, own_process, refused, xlingual  # noqa: F401
from xlingual_nb import __version__, cli
from xlingual_nb.models.checkpoints import tiny_checkpoint
from xlingual_nb.report import notebooks
from xlingual_nb.report.terminal import exit_of

CODE = "from xlingual_nb.cli import main; main()"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    tiny_checkpoint(
        folder / "model",
        words=64,
        languages=[dict(name="en"), dict(name="enfake", token_offset=64)],
    )
    (folder / "en.txt").write_text(
        "".join(f"w{5 + i} w{6 + i} w{(7 * i) % 50 + 5}\n" for i in range(30))
    )
    return folder


def probe(model, *more):
    return xlingual(
        "probe", "model", "--text", "en=en.txt", "--text", "enfake=en.txt", *more, cwd=model
    )


# --- probe


def test_a_bad_out_is_told_before_anything_is_measured(model, monkeypatch):
    def never(*_, **__):
        raise AssertionError("measured before --out was looked at")

    monkeypatch.setattr("xlingual_nb.models.encoders.load_encoder", never)
    refused(probe(model, "--out", "no/such/folder/numbers.csv"), "--out", "no/such/folder")
    refused(probe(model, "--out", model), "--out", "is a folder")

    def readonly(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "open", readonly)
        patch.setattr(Path, "touch", readonly)
        refused(probe(model, "--out", "numbers.csv"), "--out", "Permission denied")


def test_numbers_are_printed_though_they_cannot_be_written(model, monkeypatch):
    def full(self, *_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    done = probe(model, "--out", "numbers.csv")
    refused(done, "numbers.csv", "No space left", "printed")
    assert "rho en>enfake" in done.stdout and "30 sentences" in done.stdout


def test_an_earlier_file_of_numbers_is_left_alone_until_there_are_new_ones(model):
    (model / "old.csv").write_text("old")
    refused(
        xlingual("probe", "nowhere", "--languages", "en,es", "--out", "old.csv", cwd=model),
        "nowhere",
    )
    assert (model / "old.csv").read_text() == "old"
    refused(
        xlingual("probe", "nowhere", "--languages", "en,es", "--out", "new.csv", cwd=model),
        "nowhere",
    )
    assert not (model / "new.csv").exists()


@pytest.mark.parametrize("arguments", [("--sentences", "-5"), ("--sentences", "many")])
def test_a_count_is_a_count(model, arguments):
    refused(probe(model, *arguments), "--sentences", "Input should be")


def test_other_counts_are_counts_too(tmp_path):
    refused(xlingual("data", "get", "xnli", "en", "--limit", "-1"), "--limit")
    refused(xlingual("runs", "prune", "--days", "-1", "--store", tmp_path), "--days")


def test_a_foreign_model_is_not_measured_on_invented_words(model, tmp_path):
    for folder in ("model", "bible"):
        shutil.copytree(model / "model", tmp_path / folder)
    (tmp_path / "bible/spec.json").write_text('{"corpus": {"source": "bible/en-kjv"}}')
    for name in ("model", "bible"):
        refused(
            xlingual("probe", tmp_path / name, "--languages", "en,enfake"),
            "invented words",
            "--text en=FILE --text enfake=FILE",
        )


def test_word_pairs_are_counted_and_one_is_none(model):
    (model / "one.txt").write_text("w5 w6\n")
    refused(probe(model, "--dictionary", "one.txt"), "one.txt has 1 pairs of words", "at least 10")
    (model / "ten.txt").write_text("".join(f"w{i} w{i + 1}\n" for i in range(5, 15)))
    told = probe(model, "--dictionary", "ten.txt").stdout.splitlines()
    assert told[1] == "10 pairs of words of ten.txt"
    assert "ten.txt has 10 pairs of words" in told[2] and "give 30 or more" in told[2]
    assert "mu: the mean of rho and tau at layers 0 and 2, both ways" in told[3:5]
    (model / "same.txt").write_text("".join(f"w{i} w{i}\n" for i in range(5, 35)) + "w5x W5X\n")
    told = probe(model, "--dictionary", "same.txt").stdout.splitlines()
    assert told[2] == "100.0% of the pairs are one word twice"
    assert re.fullmatch(
        "dictionary words that are not in the text: .*% of en, .*% of enfake", told[3]
    )


def test_what_is_cut_is_said(model):
    for name, text in dict(long="w5 w6 " * 105, short="w5 w6").items():
        (model / f"{name}.txt").write_text(f"{text}\n" * 12)
    done = xlingual(
        "probe", "model", "--text", "en=long.txt", "--text", "enfake=short.txt", cwd=model
    )
    assert "12 of 12 sentences of en were cut to 22 pieces\n" in done.stdout, done.stderr


# --- JSON


def test_json_of_a_probe(model):
    done = probe(model, "--json")
    told = json.loads(done.stdout)
    assert (
        done.returncode == 0
        and told["sentences"].startswith("30 sentences")
        and told["words"].endswith("pairs of words of the text")
    )
    written = probe(model, "--out", "numbers.csv") and pd.read_csv(model / "numbers.csv")
    assert [row["value"] for row in told["numbers"]] == pytest.approx(written.value.tolist())
    assert set(told["numbers"][0]) == {"measure", "source", "target", "layer", "value", "n"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    from xlingual_nb.runs.engine import run
    from xlingual_nb.runs.store import Store
    from xlingual_nb.text.sources import CorpusSpec

    at, spec = (
        Store(tmp_path_factory.mktemp("store") / "runs"),
        CorpusSpec("micro/en", parameters=(("sentences", 5),)),
    )
    run([spec], at, progress=False)
    return at.root, at.path(spec).name


def test_json_of_runs(store):
    root, key = store
    (row,) = json.loads(xlingual("runs", "list", "--json", "--store", root).stdout)
    assert row["run_id"] == key and row["stage"] == "corpus" and row["spec"]["source"] == "micro/en"
    shown = json.loads(xlingual("runs", "show", key[:9], "--json", "--store", root).stdout)
    assert shown["run_id"] == key and set(shown["files"]) >= {
        "corpus.json",
        "manifest.json",
        "spec.json",
    }
    assert json.loads(xlingual("runs", "stale", "--json", "--store", root).stdout) == []


def test_json_of_lists(tmp_path):
    told = json.loads(xlingual("list", "--json").stdout)
    assert {e["name"] for e in told["experiments"]} == set(notebooks.experiments(ROOT / "nbs"))
    assert {p["paper"] for p in told["papers"]} >= {"k2020", "dufter2020"} and told["results"]
    data = json.loads(
        xlingual("data", "list", "--json", env=dict(XLINGUAL_DATA=str(tmp_path))).stdout
    )
    assert {s["source"] for s in data["sources"]} >= {"micro/en"} and {
        s["name"] for s in data["sets"]
    } >= {"xnli"}


def test_json_of_a_plan(tmp_path):
    done = xlingual(
        "plan", "07", "--scale", "smoke", "-p", "seeds=1", "--store", tmp_path / "runs", "--json"
    )
    rows = json.loads(done.stdout)["stages"]
    assert (
        rows[-1]["stage"] == "all"
        and rows[-1]["runs"] == rows[-1]["to make"] > 0
        and rows[-1]["FLOPs"] > 0
    )


# --- help


def commands(group=None, path=()):
    group = group or typer.main.get_command(cli.app)
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))
    if not hasattr(group, "commands"):
        yield " ".join(path), group


@pytest.mark.parametrize("name, command", commands(), ids=[name for name, _ in commands()])
def test_every_parameter_has_help(name, command):
    assert command.help
    assert [p.name for p in command.params if not p.help] == []


@pytest.mark.parametrize("name", notebooks.experiments(ROOT / "nbs"))
def test_a_notebook_s_parameters_are_shown_with_their_meaning(name):
    known = notebooks.parameters(ROOT / "nbs" / f"{name}.ipynb")
    done = xlingual("list", name[:2])
    assert done.returncode == 0
    for parameter in known.values():
        assert parameter.help, f"{name}: {parameter.name} has no comment"
        (line,) = [
            line for line in done.stdout.splitlines() if line.split()[:1] == [parameter.name]
        ]
        assert repr(parameter.default) in line and parameter.help.strip() in line
    told = json.loads(xlingual("list", name, "--json").stdout)
    assert [p["name"] for p in told["parameters"]] == list(known) and told["parameters"][0][
        "meaning"
    ]


def test_help_says_where_the_parameters_are():
    assert "xlingual list" in xlingual("run", "--help").stdout


def test_version():
    assert xlingual("--version").stdout.strip() == f"xlingual_nb {__version__}"


def test_completion_of_commands_notebooks_and_scales():
    def completed(*words):
        line = " ".join(["xlingual", *words])
        more = dict(_XLINGUAL_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words)))
        return own_process(env=more).stdout.split()

    assert completed("pr") == ["probe"] and completed("run", "07") == ["07_laboratory"]
    assert set(completed("run", "--scale", "")) == {"smoke", "laptop", "gpu", "paper"}
    told = own_process(
        "--show-completion", "bash", env=dict(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    )
    assert "complete_bash" in told.stdout


# --- stages, modules


def test_an_unknown_stage_is_refused_and_an_unused_one_is_empty(store, tmp_path):
    refused(
        xlingual("runs", "list", "--stage", "corpsu", "--store", store[0]),
        "corpsu",
        "corpus",
        "pretrain",
    )
    done = xlingual("runs", "list", "--stage", "pretrain", "--store", store[0])
    assert done.returncode == 0 and done.stdout == "no runs of stage pretrain yet\n"


@pytest.mark.parametrize("module", ["xlingual_nb", "xlingual_nb.cli"])
def test_the_package_runs_as_a_module(module):
    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", module, *arguments], capture_output=True, text=True, cwd=ROOT
        )

    assert "Usage: xlingual" in call("--help").stdout
    refused(call("nothing"), "nothing")


# --- surroundings


@pytest.mark.ci
def test_a_terminal_that_knows_ascii_alone(model, tmp_path):
    (tmp_path / "en-ä.txt").write_bytes((model / "en.txt").read_bytes())
    texts = [
        word for name in ("en", "enfake") for word in ("--text", f"{name}={tmp_path}/en-ä.txt")
    ]
    done = own_process("probe", model / "model", *texts, env=dict(PYTHONIOENCODING="ascii"))
    assert done.returncode == 0 and "en-?.txt" in done.stdout and done.stderr == ""
    refused(own_process("list", "mödel", env=dict(PYTHONIOENCODING="ascii")), r"m\xf6del")


@pytest.mark.parametrize(
    "arguments", [["list"], ["plan", "07"], ["probe", "model"], ["data", "list"]]
)
def test_a_working_folder_that_is_gone(tmp_path, arguments):
    gone = f"import os; os.chdir({str(tmp_path)!r}); os.rmdir({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", f"{gone}; {CODE}", *arguments], capture_output=True, text=True
    )
    refused(done, "the working folder", "cd")


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -c '{CODE}' list | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT)
    assert "Experiments" in done.stdout and done.stderr == ""


# --- Ctrl-C


def interrupted(folder, *arguments, group=True):
    """A command is stopped by Ctrl-C once it has said `now`."""
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *map(str, arguments)],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # a background job ignores it
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    while "now" not in process.stdout.readline():
        assert process.poll() is None, process.stderr.read()
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT) if group else process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("group", [True, False], ids=["terminal", "process"])
def test_control_c_says_what_is_kept_and_how_to_go_on(clone, group):  # noqa: F811
    notebook(clone / "nbs/09_long.ipynb", "import time\nprint('now', flush=True)\ntime.sleep(60)")
    code, _, said = interrupted(clone, "run", "09", group=group)
    assert code == 130 and len(said.strip().splitlines()) == 1, said
    assert "stopped" in said and "kept" in said and "same command goes on" in said
    assert not list(clone.rglob("*.partial*"))


def test_control_c_elsewhere_promises_nothing(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("xlingual_nb.report.site.write_report", stop)
    done = xlingual("report")
    refused(done, "stopped", "begins again", code=130)
    assert "kept" not in done.stderr


@pytest.mark.parametrize("command", ["run 07", "confirm 07", "runs make", "runs accept"])
def test_control_c_says_that_runs_are_kept(command):
    code, line = exit_of(KeyboardInterrupt(), command)
    assert code == 130 and "kept" in line
