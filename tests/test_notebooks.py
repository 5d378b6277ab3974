"""Every library notebook runs as a test; every experiment runs once, small, through papermill as the command line does it."""
import os
from pathlib import Path

import pytest
from nbdev.test import test_nb as run_cells

from xlingual_nb.report import notebooks

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = sorted((ROOT / "nbs/lib").glob("[0-9]*.ipynb"))
EXPERIMENTS = sorted((ROOT / "nbs").glob("[0-9][0-9]_*.ipynb"))


@pytest.mark.parametrize("path", LIBRARY, ids=lambda p: p.stem)
def test_library_notebook(path, monkeypatch, capsys):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.setenv("IN_TEST", "1")      # nbdev sets it and leaves it
    monkeypatch.chdir(path.parent)
    passed, _ = run_cells(path.resolve(), skip_flags=["slow", "gpu"])
    assert passed, capsys.readouterr().err[-3000:]


def smoke(path, tmp_path):
    known = notebooks.parameters(path)
    own = {name: str(tmp_path / name) for name in ("store", "results", "figures") if name in known}
    executed = notebooks.run_notebook(path, "smoke", own, out=tmp_path / "executed")
    assert executed == tmp_path / "executed/smoke" / path.stem / f"{path.stem}.ipynb" and executed.is_file()
    return executed


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_experiment_without_data(path, tmp_path, monkeypatch):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    smoke(path, tmp_path)


@pytest.mark.skipif("XLINGUAL_DATA" not in os.environ, reason="no real data: set XLINGUAL_DATA to a data folder")
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_experiment_with_data(path, tmp_path):
    smoke(path, tmp_path)
