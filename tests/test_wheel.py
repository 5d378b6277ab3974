"""The wheel works where there is no clone: what it carries, and what it says where that is not
enough.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from command_line import run_commands

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.ci  # before a release
BUILT_FROM = (
    "xlingual_nb nbs results figures docs data/README.md tests/house.py "
    "pyproject.toml settings.ini setup.py MANIFEST.in README.md CONTRIBUTING.md CHANGELOG.md LICENSE constraints.txt"
).split()


def unpack_wheel(folder):
    """Fill a folder with the wheel that is built from a copy of the tree."""
    source = folder.with_name("wheel-source")
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
    zipfile.ZipFile(wheel).extractall(folder)
    shutil.rmtree(source)


@pytest.fixture(scope="module")
def installed(made_once):
    """A folder with the unpacked wheel."""
    return made_once("wheel", unpack_wheel)


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


@pytest.fixture
def commands(python, tmp_path):
    """Runs commands in one process, with the wheel's package alone; what they answer."""

    def run(*lines, cwd=tmp_path):
        return run_commands(cwd, dict(os.environ), *lines)

    return run


def test_what_can_be_read_is_read(python, commands, installed):
    where = python("-c", "import xlingual_nb; print(xlingual_nb.__file__)").strip()
    assert Path(where).is_relative_to(installed)
    assert "07_laboratory" in python("-m", "xlingual_nb", "list")
    asked = {
        "list laboratory": "rows",
        "claims K-order": "verdict",
        "data list": "micro/en",
        "why K-order": "xlingual run 02_ordering",
    }
    *read, unknown = commands(*asked, "claims K-nothing")
    for answer, words in zip(read, asked.values()):
        assert answer.code == 0 and words in answer.text
    assert unknown.code == 2 and "no claim" in unknown.text


def test_the_api_and_the_probe_need_no_clone(python, tmp_path):
    code = """
import xlingual_nb as xl
text = xl.load_text("micro/en", sentences=60)
config = xl.PretrainingConfig(layers=1, hidden=16, epochs=1)
texts = {"en": text, "fake": xl.fake_english(text)}
xl.pretrain(texts, config, folder="model", progress=False)
open("en.txt", "w").write("\\n".join(text))
open("fake.txt", "w").write("\\n".join(xl.fake_english(text)))
print(len(xl.claims()), len(xl.reference_results("D Table 1")))
"""
    counts = python("-c", code).split()
    assert min(map(int, counts)) > 50
    texts = ("--text", "en=en.txt", "--text", "fake=fake.txt")
    assert "rho en>fake" in python("-m", "xlingual_nb", "probe", "model", *texts)


def test_notebooks_say_what_they_need_and_run_once_unpacked(commands, tmp_path):
    lacking = ("run 07", "plan 07", "report", "runs list")
    *refused, first, again = commands(*lacking, "init study", "init study")
    for answer in refused:
        assert answer.code == 2 and "xlingual init" in answer.text
    assert first.code == 0 and "study" in first.text
    study = tmp_path / "study"
    assert (study / "docs/conf.py").is_file()
    assert again.code == 2 and "there already" in again.text
    small = "emergence --scale smoke"
    planned, ran = commands(f"plan {small}", f"run {small}", cwd=study)
    assert planned.code == 0 and "pretrain" in planned.text
    assert ran.code == 0, ran.text
    assert any((study / "yours/results/smoke/18_emergence").glob("*.csv"))
