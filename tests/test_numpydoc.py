"""Docstrings in numpydoc: every public function with arguments has sections, and these name its
arguments.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "xlingual_nb"
COMPLETE = (
    "api",
    "experiments",
    "measures",
    "microworld",
    "models",
    "papers",
    "report",
    "runs",
    "tasks",
    "text",
)
PARAMETERS = re.compile(r"Parameters\n-+\n(.*?)(?:\n\n[A-Z]\w+\n--|\Z)", re.S)


def argument_names(function):
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [a.arg for a in (given.vararg, given.kwarg) if a]
    return {name for name in names if name not in ("self", "cls")}


def is_command(function):
    """Whether a function is a command of the terminal: its help text is its docstring."""
    return any(re.search(r"\.command\(", ast.unparse(d)) for d in function.decorator_list)


def public_functions(package):
    """(where, function) of the functions and methods of a package that have arguments, without commands."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            members = [node]
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                members = node.body
            for member in members:
                if not isinstance(member, ast.FunctionDef) or member.name.startswith("_"):
                    continue
                if argument_names(member) and not is_command(member):
                    yield f"{path.relative_to(ROOT)}: {member.name}", member


def documented_names(function):
    section = PARAMETERS.search(ast.get_docstring(function) or "")
    names = set()
    for line in section[1].splitlines() if section else ():
        if line and not line[0].isspace():
            names |= {name.strip().lstrip("*") for name in line.split(" : ")[0].split(",")}
    return names


@pytest.mark.parametrize("package", COMPLETE)
def test_every_public_function_documents_its_arguments(package):
    faults = []
    for where, function in public_functions(package):
        docstring = ast.get_docstring(function) or ""
        names = documented_names(function)
        if names and names != argument_names(function):
            faults.append(f"{where}: {sorted(names ^ argument_names(function))}")
        if not names and "Returns\n---" not in docstring:
            faults.append(f"{where}: no sections")
    assert faults == []
