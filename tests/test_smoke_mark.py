"""What a run of scale smoke shows says that it is no result."""

import ast
import json
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from xlingual_nb.report import notebook_display, tables


@pytest.mark.parametrize(("scale", "is_marked"), [("smoke", True), ("laptop", False)])
def test_a_figure_of_scale_smoke_is_marked(scale, is_marked, tmp_path):
    figure, ax = plt.subplots()
    observed = pd.DataFrame(columns=tables.OBSERVED)
    path = tmp_path / f"07_laboratory-table1-{scale}-micro.png"
    notebook_display.write_figure(figure, path, "A caption", [], observed)
    marks = [text.get_text() for text in figure.texts]
    assert (notebook_display.NO_RESULT in marks) == is_marked
    assert path.is_file()
    plt.close(figure)


def test_a_table_of_scale_smoke_is_marked():
    frame = pd.DataFrame({"row": ["en-es | en | es"], "micro": ["0.1"]})
    for scale, is_marked in (("smoke", True), ("laptop", False), ("", False)):
        shown = notebook_display.word_table(frame, "some", scale=scale).data
        assert (notebook_display.NO_RESULT in shown) == is_marked
        assert "English → Spanish" in shown


LIVE = [
    pytest.param(path, id=path.stem)
    for path in sorted((Path(__file__).resolve().parents[1] / "nbs").glob("[0-9][0-9]_*.ipynb"))
    if "## Run it yourself" in path.read_text(encoding="utf-8")
]
MARKED = "result_table", "claim_verdicts"


@pytest.mark.parametrize("path", LIVE)
def test_every_live_table_of_results_is_given_its_scale(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    start = next(n for n, source in enumerate(sources) if source.startswith("## Run it yourself"))
    calls = [
        node
        for source, cell in zip(sources[start:], cells[start:])
        if cell["cell_type"] == "code"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in MARKED
    ]
    shows_results = any(f"{name}(" in source for name in MARKED for source in sources[start:])
    assert bool(calls) == shows_results
    for call in calls:
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        assert any(getattr(value, "id", "") == "scale" for value in given), ast.unparse(call)
