"""The wheel works where there is no clone: what it carries, and what it says where that is not
enough.
"""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILT_FROM = (
    "xlingual_nb nbs results figures docs data/README.md tests/house.py "
    "pyproject.toml settings.ini setup.py MANIFEST.in README.md CONTRIBUTING.md CHANGELOG.md LICENSE constraints.txt"
).split()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the unpacked wheel, built from a copy of the tree."""
    source = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        copy = source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", ".guard")
            shutil.copytree(ROOT / name, copy, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy)
    code = "from setuptools.build_meta import build_wheel; print(build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (source / "dist").glob("*.whl")
    assert wheel.stat().st_size < 20e6
    target = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(target)
    return target


@pytest.fixture
def python(installed, tmp_path, monkeypatch):
    """Runs Python in an empty folder, with the wheel's package alone; what it prints."""
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)

    def run(*arguments, cwd=tmp_path, code=0):
        done = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


def test_what_can_be_read_is_read(python, installed):
    where = python("-c", "import xlingual_nb; print(xlingual_nb.__file__)").strip()
    assert Path(where).is_relative_to(installed)
    assert "07_laboratory" in python("-m", "xlingual_nb", "list")
    assert "rows" in python("-m", "xlingual_nb", "list", "laboratory")
    assert "verdict" in python("-m", "xlingual_nb", "claims", "K-order")
    assert "no claim" in python("-m", "xlingual_nb", "claims", "K-nothing", code=2)
    assert "micro/en" in python("-m", "xlingual_nb", "data", "list")
    assert "xlingual run 02_ordering" in python("-m", "xlingual_nb", "why", "K-order")


def test_the_api_and_the_probe_need_no_clone(python, tmp_path):
    code = """
import xlingual_nb as xl
text = xl.load_text("micro/en", sentences=60)
config = xl.PretrainingConfig(layers=1, hidden=16, epochs=1)
xl.pretrain({"en": text, "fake": xl.fake_english(text)}, config, folder="model")
open("en.txt", "w").write("\\n".join(text))
open("fake.txt", "w").write("\\n".join(xl.fake_english(text)))
print(len(xl.claims()), len(xl.reference_results("D Table 1")))
"""
    counts = python("-c", code).split()
    assert min(map(int, counts)) > 50
    texts = ("--text", "en=en.txt", "--text", "fake=fake.txt")
    assert "rho en>fake" in python("-m", "xlingual_nb", "probe", "model", *texts)


def test_notebooks_say_what_they_need_and_run_once_unpacked(python, tmp_path):
    for command in (("run", "07"), ("plan", "07"), ("report",), ("runs", "list")):
        assert "xlingual init" in python("-m", "xlingual_nb", *command, code=2)
    assert "study" in python("-m", "xlingual_nb", "init", "study")
    assert (tmp_path / "study/docs/conf.py").is_file()
    assert "there already" in python("-m", "xlingual_nb", "init", "study", code=2)
    study = tmp_path / "study"
    small = ("emergence", "--scale", "smoke")
    assert "pretrain" in python("-m", "xlingual_nb", "plan", *small, cwd=study)
    python("-m", "xlingual_nb", "run", *small, cwd=study)
    assert any((study / "yours/results/smoke/18_emergence").glob("*.csv"))
