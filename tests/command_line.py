"""Several commands of `xlingual` in one fresh process: starting each anew takes longer than most of them."""

import json
import subprocess
import sys
from typing import NamedTuple

CODE = """
import contextlib, io, json, sys
from xlingual_nb.cli import main

answers = []
for command in sys.argv[1:]:
    code, text = 0, io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            main(command.split())
        except SystemExit as end:
            code = end.code or 0
    answers.append((code, text.getvalue()))
print(json.dumps(answers))
"""


class Answer(NamedTuple):
    """What a command ended with, and all that it printed."""

    code: int
    text: str


def run_commands(cwd, environment: dict, *commands: str) -> list[Answer]:
    """Run commands one after the other in one process, in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *commands],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [Answer(*answer) for answer in json.loads(done.stdout.splitlines()[-1])]
