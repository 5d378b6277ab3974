"""The parameters of every numbered notebook as papermill and other ways of running it give them:
what is shown of them, right types, wrong types, names that a notebook does not have.

Only the cell of defaults, papermill's cell and the check cell run, in a shell of this process; the
last tests have a kernel.
"""

import os
import subprocess
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

import nbformat
import papermill
import pytest
import yaml
from IPython.core.interactiveshell import InteractiveShell
from papermill.cli import _resolve_type
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from traitlets.config import Config

from xlingual_nb.errors import InputError
from xlingual_nb.report import checkout, notebooks
from xlingual_nb.report.execution_facts import execution_facts
from xlingual_nb.report.notebook_parameters import checked_values, parameters, tagged_cells

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = sorted((ROOT / "nbs").glob("[0-9][0-9]_*.ipynb"))
every_notebook = pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)

# text that a parameter takes; where it is a number, papermill makes it one
TEXTS = dict(corpus="micro", device="cpu", rows="0", only="4", languages="es")
RIGHT = {
    "str": [],
    "int": [("2", 2), (2.0, 2), ("2.0", 2), (2, 2)],
    "bool": [("yes", True), ("False", False), (1, True), (True, True)],
}
WRONG = {
    "str": [True, 1.5, {"a": 1}],
    "int": ["two", 2.5, True, [1]],
    "bool": ["maybe", 2, [True]],
}


@cache
def read_short(path: Path) -> nbformat.NotebookNode:
    notebook = load_notebook_node(str(path))
    (at,) = tagged_cells(path)
    notebook.cells = notebook.cells[at : at + 2]
    return notebook


def short_copy(path: Path) -> nbformat.NotebookNode:
    """A notebook with nothing but its cell of defaults and its check cell."""
    return deepcopy(read_short(path))


@pytest.fixture
def shell():
    config = Config()
    config.HistoryManager.enabled = False
    return InteractiveShell(config=config)


def given(shell, path: Path, **values) -> dict:
    """The names of a notebook's kernel after its check cell, with papermill's values injected.
    Raises what the check cell raises.
    """
    notebook = parameterize_notebook(short_copy(path), values) if values else short_copy(path)
    for cell in notebook.cells:
        done = shell.run_cell(cell.source, store_history=True, silent=False)
        done.raise_error()
    return shell.user_ns


@every_notebook
def test_the_check_cell_follows_and_names_its_notebook(path):
    check = short_copy(path).cells[1].source
    assert check.endswith(f'check_parameters("{path.stem}", globals())')


@every_notebook
def test_papermill_and_xlingual_list_show_the_same(path):
    known = parameters(path)
    shown = papermill.inspect_notebook(path)
    assert {n: (p["inferred_type_name"], p["help"]) for n, p in shown.items()} == {
        n: (p.annotation, p.help) for n, p in known.items()
    }
    for parameter in known.values():
        assert parameter.help and parameter.annotation == type(parameter.default).__name__


@every_notebook
def test_defaults_stay_what_they_are(path, shell):
    names = given(shell, path)
    assert {n: names[n] for n in parameters(path)} == {
        n: p.default for n, p in parameters(path).items()
    }


@every_notebook
def test_right_values_reach_the_notebook_in_their_types(path, shell, capsys):
    for name, parameter in parameters(path).items():
        for value, wanted in RIGHT[parameter.kind]:
            assert given(shell, path, **{name: value})[name] == wanted
            assert type(shell.user_ns[name]) is type(wanted)
        if text := TEXTS.get(name):
            # as `-p NAME TEXT`, and as a list in YAML
            for value in (_resolve_type(text), [_resolve_type(text)]):
                assert given(shell, path, **{name: value})[name] == text
        if parameter.default == "":
            assert given(shell, path, **{name: yaml.safe_load("~")})[name] == ""


def test_a_cluster_may_have_the_gpu_that_is_not_here(shell, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path = notebooks.resolve("07")
    with pytest.raises(InputError, match="cuda"):
        given(shell, path, device="cuda")
    monkeypatch.setenv("XLINGUAL_EXECUTOR", "dask")
    assert given(shell, path, device="cuda")["device"] == "cuda"


@every_notebook
def test_wrong_types_are_refused_by_name_and_value(path, shell, capsys):
    known = parameters(path)
    for name, parameter in known.items():
        for value in WRONG[parameter.kind]:
            with pytest.raises(InputError) as error:
                given(shell, path, **{name: value})
            assert str(error.value).startswith(f"{path.stem}: {name}={value!r} must be ")
            assert parameter.help in str(error.value)
            with pytest.raises(InputError) as before_a_kernel:
                checked_values({name: value}, known, path.stem)
            assert str(before_a_kernel.value) == str(error.value)


@every_notebook
def test_names_that_a_notebook_does_not_have_are_refused(path, shell, capsys):
    for name in parameters(path):
        with pytest.raises(InputError, match=f"no parameter '{name}s'; did you mean .*{name}"):
            given(shell, path, **{f"{name}s": 1})
    with pytest.raises(InputError, match="no parameter 'zzz'. It has: scale"):
        given(shell, path, scale="smoke", zzz=1)


def test_what_does_not_exist_is_refused_with_the_nearest_that_does(shell, capsys):
    path = notebooks.resolve("07")
    with pytest.raises(InputError, match="scale 'laptpo' does not exist.*did you mean laptop"):
        given(shell, path, scale="laptpo")
    with pytest.raises(InputError, match="corpus 'bibel' does not exist.*did you mean bible"):
        given(shell, path, corpus="bibel")
    with pytest.raises(InputError, match="device 'gpu' does not exist: choose cpu, cuda"):
        given(shell, path, device="gpu")


def test_a_grid_in_the_kernel_is_asked_as_well(shell, capsys):
    shell.run_cell("from xlingual_nb.experiments.laboratory import grid")
    with pytest.raises(InputError, match="99"):
        given(shell, notebooks.resolve("07"), rows=99)
    with pytest.raises(InputError, match="reading='papr' does not exist.*did you mean paper"):
        given(shell, notebooks.resolve("07"), reading="papr")
    assert given(shell, notebooks.resolve("07"), rows=3)["rows"] == "3"


def test_a_clone_that_cannot_be_written_in_stops_a_notebook_before_it_works(
    shell, monkeypatch, tmp_path
):
    def refuse(dir):
        if not str(dir).startswith(str(tmp_path)):
            raise OSError(30, "Read-only file system")
        return TemporaryFile(dir=dir)

    monkeypatch.setattr(checkout, "TemporaryFile", refuse)
    path = notebooks.resolve("07")
    places = {name: str(tmp_path / name) for name in ("store", "results", "figures")}
    for name in ("results", "figures"):
        others = {other: place for other, place in places.items() if other != name}
        with pytest.raises(InputError, match=f"^{name}=.* cannot be written in"):
            given(shell, path, **others)
    assert given(shell, path, **places)["results"] == places["results"]


# --- in a kernel, as people run them


def test_papermill_ends_with_the_line_that_says_what_is_wrong(tmp_path):
    nbformat.write(short_copy(notebooks.resolve("07")), tmp_path / "short.ipynb")
    command = [sys.executable, "-m", "papermill", "short.ipynb", "out.ipynb", "-p", "sede", "3"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1] == (
        "InputError: 07_laboratory: no parameter 'sede'; did you mean seeds? It has: "
        + ", ".join(parameters(notebooks.resolve("07")))
    )


@pytest.mark.ci
def test_what_papermill_executed_says_what_executed_it(tmp_path):
    nbformat.write(short_copy(notebooks.resolve("07")), tmp_path / "short.ipynb")
    given = ["-p", "rows", "0", "-p", "seeds", "2"]
    command = [sys.executable, "-m", "papermill", "short.ipynb", "out.ipynb", *given]
    subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    (output,) = executed.cells[-1].outputs
    facts = output.metadata.xlingual
    assert facts.notebook == "07_laboratory" and facts.parameters == dict(rows="0", seeds=2)
    assert facts.code_sha256 == execution_facts("07_laboratory", {})["code_sha256"]
    assert "rows='0'" in output.data["text/plain"]


@pytest.mark.ci
def test_edited_cells_are_checked_in_jupyter_execute(tmp_path):
    notebook = short_copy(notebooks.resolve("07"))
    edited = "\n".join(
        line.replace('"all"', "[0, 3]") for line in notebook.cells[0].source.splitlines()
    )
    notebook.cells[0].source = edited
    notebook.cells.append(nbformat.v4.new_code_cell("print('rows', rows)"))
    nbformat.write(notebook, tmp_path / "edited.ipynb")
    command = [sys.executable, "-m", "jupyter", "execute", "--inplace", "edited.ipynb"]
    subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    executed = nbformat.read(tmp_path / "edited.ipynb", as_version=4)
    assert executed.cells[-1].outputs[0].text == "rows 0,3\n"


@pytest.mark.ci
def test_what_papermill_only_prepares_is_checked_when_it_is_executed(tmp_path):
    nbformat.write(short_copy(notebooks.resolve("07")), tmp_path / "short.ipynb")
    prepare = [sys.executable, "-m", "papermill", "short.ipynb", "out.ipynb", "--prepare-only"]
    given = ["-y", "{rows: [0, 3], sede: 3}"]
    subprocess.run([*prepare, *given], capture_output=True, cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "jupyter", "execute", "--inplace", "out.ipynb"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode != 0 and "no parameter 'sede'; did you mean seeds?" in last


@pytest.mark.ci
def test_no_home_no_utf8_and_a_folder_with_blanks_and_umlauts(tmp_path):
    """As in a container with a bare environment, by nbconvert."""
    folder = tmp_path / "ein Ordner für Übungen"
    folder.mkdir()
    notebook = short_copy(notebooks.resolve("07"))
    notebook.cells[0].source += "\nrows = [0, 3]\nstore = 'Läufe'"
    notebook.cells.append(nbformat.v4.new_code_cell("print('µ', rows, store.endswith('Läufe'))"))
    nbformat.write(notebook, folder / "short.ipynb")
    bare = {name: value for name, value in os.environ.items() if name != "HOME"}
    bare |= dict(LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    convert = [sys.executable, "-m", "jupyter", "nbconvert", "--execute", "--to", "notebook"]
    command = [*convert, "--output", "out.ipynb", "short.ipynb"]
    subprocess.run(command, capture_output=True, cwd=folder, env=bare, check=True)
    executed = nbformat.read(folder / "out.ipynb", as_version=4)
    assert executed.cells[-1].outputs[0].text == "µ 0,3 True\n"
