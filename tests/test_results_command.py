"""`xlingual results` shows a user's own table as bars, with the published value marked."""

import pandas as pd
import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.report import checkout, tables, terminal


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone whose user ran two rows of the laboratory, three models each."""
    rows = []
    for row, means in {"0 original": (0.2, 0.3, 0.4), "3 inv-order": (0.0, 0.01, 0.02)}.items():
        for seed, value in enumerate(means):
            rows.append(("dufter2020", "table1", row, "µ", "micro", seed, value, f"run{seed}"))
    observed = pd.DataFrame(rows, columns=tables.OBSERVED)
    folder = tmp_path / "yours/results/laptop/07_laboratory"
    tables.write(tables.tidy(observed), folder / "table1.csv")
    monkeypatch.setattr(checkout, "repository", lambda: tmp_path)
    return tmp_path


def test_a_row_has_its_mean_its_models_and_the_published_value(clone, capsys):
    terminal.print_results("07_laboratory", "laptop", "table1", "µ")
    original, inverted = capsys.readouterr().out.splitlines()[1:]
    assert "0.30 ± 0.10 (n = 3), published 0.70" in original
    assert "0.01 ± 0.01 (n = 3), published 0.01" in inverted
    assert original.count("█") > 10 * inverted.count("█")
    assert "|" in original and original.index("|") > original.rindex("█")


def test_what_is_not_there_is_named(clone):
    with pytest.raises(InputError, match="xlingual run 07 --scale gpu"):
        terminal.print_results("07_laboratory", "gpu", "table1", "µ")
    with pytest.raises(InputError, match="its tables are table1"):
        terminal.print_results("07_laboratory", "laptop", "table2", "µ")
    with pytest.raises(InputError, match="no column 'mu'"):
        terminal.print_results("07_laboratory", "laptop", "table1", "mu")
