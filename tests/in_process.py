"""Experiment notebooks in this process: all that `run_notebook` does, but for the kernel. Starting
one and importing everything again takes longer than a smoke pass itself.
"""

import os
from contextlib import contextmanager

import matplotlib
import nbformat
import pytest
from execnb.shell import CaptureShell
from papermill.engines import Engine

from xlingual_nb.report import notebooks
from xlingual_nb.runs import stages


class InProcess(Engine):
    """A papermill engine whose kernel is a shell in this process."""

    @classmethod
    def execute_managed_notebook(cls, manager, kernel_name, **options):
        shell = CaptureShell(mpl_format="png")
        for index, cell in enumerate(manager.nb.cells):
            if cell.cell_type == "code":
                cell.outputs = [nbformat.from_dict(output) for output in shell.run(cell.source)]
            if shell.exc:
                manager.cell_exception(cell, index)
                return


@contextmanager
def no_kernel():
    """`notebooks.run_notebook` runs in this process, and what cells change of it is put back."""
    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context():
        patch.setattr(notebooks, "announcing", lambda name, say: InProcess)
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
