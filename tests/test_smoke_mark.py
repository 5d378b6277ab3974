"""A figure of scale smoke says across it that it is no result; others do not."""

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
