"""A study whose store lacks a part of the runs."""

from types import SimpleNamespace

import pandas as pd

from xlingual_nb.report.study_run import StudyRun


def test_a_figure_is_drawn_of_tables_that_lack_no_row_and_column():
    planned = [
        ("transfer", "plain", "es", 0),
        ("transfer", "shifted", "es", 0),
        ("identity", "plain", "layer 1", 0),
        ("identity", "plain", "layer 1", 1),
    ]
    names = ["table", "row", "column", "seed"]
    entries = [SimpleNamespace(**dict(zip(names, values))) for values in planned]
    study = SimpleNamespace(entries=entries)

    def whole(*measured):
        return StudyRun.whole_tables(study, pd.DataFrame(measured, columns=names))

    assert whole() == set()
    assert whole(planned[0], planned[2]) == {"identity"}, "one seed of two is enough"
    assert whole(*planned) == {"transfer", "identity"}
