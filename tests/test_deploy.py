"""What docs/cluster.md, the workflows and the batch scripts tell to run exists in that form."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from xlingual_nb import cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    ROOT / "docs/cluster.md",
    ROOT / "deploy/Dockerfile",
    *sorted((ROOT / "deploy").glob("*.sbatch")),
)
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def commands(path):
    """The `xlingual` commands of a page, without what a shell puts in."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"xlingual ((?:run|plan) [^#`\n]+)", text):
        line = line.replace('"${given[@]}"', "").replace('"$@"', "01")
        yield shlex.split(re.sub(r'"\$SCALE"', "smoke", line))


@pytest.mark.parametrize(
    "path", [*PAGES, ROOT / ".github/workflows/gpu-notebooks.yml"], ids=lambda p: p.name
)
def test_every_command_is_one_that_the_command_line_takes(path):
    known = typer.main.get_command(cli.app).commands
    found = list(commands(path))
    for name, *arguments in found:
        known[name].make_context(name, arguments)
    assert found or path.name == "slurm_workers.sbatch"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflows_paste_no_input_into_a_script(path):
    """What a stranger types into a form reaches a script through its environment alone."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert steps and not [s for s in steps if "inputs." in s.get("run", "")]
    assert workflow["permissions"]["contents"] == "read"


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / "deploy").glob("*.sbatch")), ROOT / "benchmarks/slurm_one_node.sh"],
    ids=lambda p: p.name,
)
def test_scripts_are_bash(path):
    assert subprocess.run(["bash", "-n", path]).returncode == 0
    text = path.read_text(encoding="utf-8")
    assert text.startswith("#!/bin/bash\n") and "set -eu" in text
