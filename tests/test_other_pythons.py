"""Fingerprints of the package under every Python that this machine has. What they are made of is in
`test_pythons.py`, which a bare Python imports.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import test_pythons
from test_pythons import ROOT


def other_pythons() -> list[str]:
    """Pythons of other versions that this machine has, by `python3.N` or by pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = {}
    for minor in range(11, 20):
        name = f"python3.{minor}"
        for path in (*pyenv.glob(f"versions/*/bin/{name}"), shutil.which(name)):
            if path and minor != sys.version_info.minor:
                says = subprocess.run([path, "-c", ""], capture_output=True)
                if says.returncode == 0:
                    found.setdefault(name, str(path))
    return list(found.values())


@pytest.mark.ci
def test_every_definition_has_one_fingerprint_under_all_pythons():
    others = other_pythons()
    if not others:
        pytest.skip("this machine has one Python")
    here = test_pythons.package_fingerprints()
    script = "import json, test_pythons; print(json.dumps(test_pythons.package_fingerprints()))"
    places = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    for python in others:
        bare = {"PYTHONPATH": places, "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
        told = subprocess.run([python, "-c", script], capture_output=True, text=True, env=bare)
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout) == here, python
