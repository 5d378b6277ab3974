"""What would make a reference value is recorded where text and encoder are here, and told elsewhere"""

from pathlib import Path

import pytest

from xlingual_nb.report import restamp, tables

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = "03_frequency"


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone whose reference results are those of one notebook, without a data folder."""
    folder = tmp_path / "results/laptop" / NOTEBOOK
    folder.mkdir(parents=True)
    for path in (ROOT / "results/laptop" / NOTEBOOK).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_corpora_that_are_not_here_are_left_out_and_told(clone):
    told = []
    recorded = restamp.record(clone, told.append)
    assert set(recorded.corpus) == {"micro"}
    assert len(told) == 1 and f"{NOTEBOOK} (laptop, bible)" in told[0]


def test_values_on_corpora_that_are_not_here_keep_their_fingerprints(clone):
    """An earlier code made all values; every stage is proved. Those on the Bible cannot be asked."""
    path = clone / "results/laptop" / NOTEBOOK / "seeds.csv"
    before = tables.read_seeds(path)
    recorded = restamp.record(clone, print)
    is_current = before.merge(recorded, on=restamp.VALUE_KEYS[2:], how="inner")
    assert len(is_current)
    recorded = recorded.assign(made="earlier")
    text = path.read_text(encoding="utf-8")
    for fingerprint in set(is_current.made_y):
        text = text.replace(fingerprint, "earlier")
    path.write_text(text, encoding="utf-8")
    proved = {stage for stages in recorded.stages for stage in stages.split()}
    counts = restamp.stamp(clone, recorded, proved, lambda line: None)
    after = tables.read_seeds(path)
    is_micro = (after.corpus == "micro").to_numpy()
    assert counts.stamped.item() == (before.made == after.made)[is_micro].sum()
    assert (after.made[~is_micro] == before.made[~is_micro]).all()
