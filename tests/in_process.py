"""Experiment notebooks in this process: all that `run_notebook` does, but for the kernel. Starting
one and importing everything again takes longer than a smoke pass itself.
"""

import ast
import dis
import os
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType

import matplotlib
import nbformat
import pytest
from execnb.shell import CaptureShell
from papermill.engines import Engine

import xlingual_nb as xl
from xlingual_nb.report import notebooks
from xlingual_nb.runs import stages


def bound_and_used(code: CodeType) -> tuple[set[str], set[str]]:
    """The names that code of a cell binds, and those that it takes from elsewhere."""
    first, used_inside = {}, set()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL", "STORE_NAME"):
            first.setdefault(step.argval, step.opname)
        elif isinstance(step.argval, CodeType):
            used_inside |= bound_and_used(step.argval)[1]
    bound = {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_NAME"}
    used = {name for name, way in first.items() if way != "STORE_NAME"}
    return bound, used | (used_inside - bound)


def cells_for_parameters(cells) -> dict[int, str]:
    """{place: source} of what depends on the parameters of an experiment.

    From the parameters on these are whole cells; before them the imports, and of the cells that
    bind what is taken from there all but a last line that shows something. The rest, the miniature
    and what shows the reference results, is the same in every run.
    """

    def names(lines):
        return bound_and_used(compile(ast.Module(lines, []), "cell", "exec"))

    code = {n: cell["source"] for n, cell in enumerate(cells) if cell["cell_type"] == "code"}
    (start,) = (n for n in code if "parameters" in cells[n]["metadata"].get("tags", ()))
    chosen = {n: ast.parse(source).body for n, source in code.items()}
    left_out = {}
    for n in range(start):
        lines = chosen.get(n, [])
        if lines and isinstance(lines[-1], ast.Expr):
            lines.pop()
        chosen[n] = [line for line in lines if isinstance(line, (ast.Import, ast.ImportFrom))]
        left_out[n] = [line for line in lines if line not in chosen[n]]

    def taken():
        """Names that come from before the parameters: not those that a later cell binds again."""
        found, bound_again = set(), set()
        for n, lines in sorted(chosen.items()):
            bound, used = names(lines)
            found |= used - bound_again
            if n >= start:
                bound_again |= bound
        return found

    while True:
        wanted = taken()
        more = [n for n, lines in left_out.items() if names(lines)[0] & wanted]
        if not more:
            sources = {n: ast.unparse(ast.Module(lines, [])) for n, lines in chosen.items()}
            return sources | {n: source for n, source in code.items() if n >= start}
        for n in more:
            chosen[n] += left_out.pop(n)


EPOCHS = 2  # of a miniature's trainings, whose length changes what it shows and not what it does
STEPS = 40


def shortened(config):
    """A configuration of a miniature for a training of two epochs."""
    steps = getattr(config, "steps", 0)
    if steps:
        return replace(config, steps=min(steps, STEPS))
    return replace(config, epochs=min(config.epochs, EPOCHS))


def shorten_miniatures(patch):
    """`xl.pretrain` and `xl.fine_tune`, which no other cell of an experiment calls, train shortly."""
    pretrain, fine_tune = xl.pretrain, xl.fine_tune

    def pretrain_shortly(texts, config, **options):
        return pretrain(texts, shortened(config), **options)

    def fine_tune_shortly(*what, config, **options):
        return fine_tune(*what, config=shortened(config), **options)

    patch.setattr(xl, "pretrain", pretrain_shortly)
    patch.setattr(xl, "fine_tune", fine_tune_shortly)


class InProcess(Engine):
    """A papermill engine whose kernel is a shell in this process."""

    all_cells = True

    @classmethod
    def execute_managed_notebook(cls, manager, kernel_name, **options):
        shell = CaptureShell(mpl_format="png")
        chosen = {} if cls.all_cells else cells_for_parameters(manager.nb.cells)
        for index, cell in enumerate(manager.nb.cells):
            if cell.cell_type == "code":
                outputs = shell.run(chosen.get(index, cell.source))
                cell.outputs = [nbformat.from_dict(output) for output in outputs]
            if shell.exc:
                manager.cell_exception(cell, index)
                return


@contextmanager
def no_kernel(all_cells=True):
    """`notebooks.run_notebook` runs in this process, and what cells change of it is put back.

    `all_cells`: those too that do not depend on the parameters, the miniature among them.
    """
    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context():
        patch.setattr(InProcess, "all_cells", all_cells)
        patch.setattr(notebooks, "announcing_engine", lambda name, say: InProcess)
        shorten_miniatures(patch)
        folder, environment, declared = os.getcwd(), dict(os.environ), dict(stages._DECLARED)
        try:
            os.chdir(notebooks.repository())
            yield
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            of_cells = [n for n, s in stages._DECLARED.items() if s.spec.__module__ == "__main__"]
            for name in of_cells:
                del stages._DECLARED[name]
            stages._DECLARED.update(declared)
