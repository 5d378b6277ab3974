"""Result tables: means and spread by hand, order, files that only change when results do."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pandas as pd
import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.papers.published import published
from xlingual_nb.report import tables as T

ROWS = ["8 lang-pos;shift-special;no-random", "0 original", "21 no-parallel"]


def observed(
    corpora=("micro",),
    seeds=(0, 1, 2),
    table="table1",
    rows=ROWS,
    columns=("MLM-Perpl. dev", "µ"),
    shift=0.0,
):
    rng = np.random.default_rng(7)
    return pd.DataFrame(
        [
            ("dufter2020", table, r, c, k, s, rng.random() + shift, f"{r[0]}{k}{s}".ljust(64, "a"))
            for k in corpora
            for r in rows
            for c in columns
            for s in seeds
        ],
        columns=T.OBSERVED,
    )


def test_means_spread_and_counts():
    frame = observed()
    made = T.tidy(frame)
    assert (
        list(made.columns)
        == T.COLUMNS
        == "paper table row column corpus value sd n_seeds published run_ids".split()
    )
    for r in made.itertuples():
        v = [x.value for x in frame.itertuples() if (x.row, x.column) == (r.row, r.column)]
        assert np.isclose(r.value, sum(v) / 3) and np.isclose(
            r.sd, np.sqrt(sum((x - sum(v) / 3) ** 2 for x in v) / 2)
        )
        assert r.n_seeds == 3
        assert len(r.run_ids.split()) == 3 and all(len(i) == 12 for i in r.run_ids.split())
    assert T.tidy(observed(seeds=(5,))).sd.isna().all()


def test_published_numbers_and_order_are_the_papers():
    made = T.tidy(observed())
    # 21 is not in Table 1: last
    assert made.row.unique().tolist() == [
        "0 original",
        "8 lang-pos;shift-special;no-random",
        "21 no-parallel",
    ]
    assert made.column.unique().tolist() == ["µ", "MLM-Perpl. dev"]
    got = made.set_index(["row", "column"]).published
    assert got["0 original", "µ"] == 0.7 and got["0 original", "MLM-Perpl. dev"] == 217
    assert np.isnan(got["21 no-parallel", "µ"])


def test_the_order_of_observations_does_not_matter():
    frame = observed(corpora=("b", "a"))
    pd.testing.assert_frame_equal(T.tidy(frame), T.tidy(frame.sample(frac=1, random_state=0)))


def test_shared_runs_may_be_given_twice_but_not_with_two_values():
    frame = observed()
    pd.testing.assert_frame_equal(T.tidy(pd.concat([frame, frame])), T.tidy(frame))
    with pytest.raises(InputError, match="two values"):
        T.tidy(pd.concat([frame, frame.assign(value=0)]))
    with pytest.raises(InputError, match="run_id"):
        T.tidy(frame.drop(columns="run_id"))


def test_curves_keep_their_steps():
    frame = pd.concat([observed(table="figure6").assign(step=s) for s in (20, 0, 10)])
    made = T.tidy(frame)
    assert made.query("row == '0 original' and column == 'µ'").step.tolist() == [0, 10, 20]
    assert made.published.isna().all()


def test_upsert_replaces_only_the_same_paper_table_and_corpus(tmp_path):
    path = tmp_path / "deep" / "table.csv"
    T.write(T.tidy(observed(("micro", "text"))), path)
    first = T.read(path)
    T.write(T.tidy(observed(("text",), shift=5, rows=ROWS[:1])), path)
    second = T.read(path)
    pd.testing.assert_frame_equal(second[second.corpus == "micro"], first[first.corpus == "micro"])
    assert (second[second.corpus == "text"].row == ROWS[0]).all() and (
        second[second.corpus == "text"].value > 5
    ).all()


def test_files_are_stable_and_utf8(tmp_path):
    made = T.tidy(observed(("micro", "text")))
    path = T.write(made, tmp_path / "t.csv")
    first = path.read_bytes()
    T.write(made, path)
    assert path.read_bytes() == first
    T.write(T.read(path), path)
    assert path.read_bytes() == first
    for corpus in ("text", "micro"):
        T.write(made[made.corpus == corpus], path)
    assert path.read_bytes() == first
    assert "µ".encode() in first and b"\r" not in first and not first.startswith(b"\xef\xbb\xbf")
    assert list(tmp_path.glob("[!.]*")) == [path]


@pytest.mark.parametrize(
    "write",
    [lambda frame, path: T.write(T.tidy(frame), path), T.write_seeds],
    ids=("table", "seeds"),
)
def test_two_writers_at_once_lose_nothing(tmp_path, write):
    """Two notebooks of one scale, or one on two corpora, end at the same moment."""
    both = [observed((corpus,)) for corpus in ("micro", "text")]
    for n in range(5):
        path, together = tmp_path / str(n) / "t.csv", Barrier(2)

        def one(frame):
            together.wait()
            write(frame, path)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, both))
        assert set(pd.read_csv(path).corpus) == {"micro", "text"}


def test_numbers_survive_to_six_digits(tmp_path):
    made = T.tidy(observed())
    back = T.read(T.write(made, tmp_path / "t.csv"))
    assert np.allclose(back.value, made.value, rtol=1e-5) and back.n_seeds.dtype.kind == "i"
    assert (back.run_ids == made.run_ids).all()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = T.write(T.tidy(observed()), tmp_path / "t.csv")
    first = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError):
        T.write(T.tidy(observed(shift=1)), path)
    assert path.read_bytes() == first and list(tmp_path.glob("[!.]*")) == [path]


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe\x00", b'x\n"'])
def test_a_file_that_is_no_table_is_one_clear_line(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match="t.csv.*run again"):
        T.read(path)


def test_beside_shows_ours_and_the_published():
    frame = T.beside_published(T.tidy(observed(columns=("µ", "MLM-Perpl. dev"))))
    assert frame.loc["0 original", ("µ", "published")] == "0.70"
    assert frame.loc["0 original", ("MLM-Perpl. dev", "published")] == "217 ±7.8"
    assert (
        frame.loc["21 no-parallel", ("µ", "published")] == ""
        and "±" in frame.loc["0 original", ("µ", "ours")]
    )
    assert [c[1] for c in frame.columns] == ["ours", "published"] * 2
    two = T.beside_published(T.tidy(observed(("micro", "text"))))
    assert [c[1] for c in two.columns] == ["micro", "text", "published"] * 2


def test_every_published_cell_finds_its_place():
    paper = published("dufter2020", "table1")
    frame = paper.assign(corpus="x", seed=0, run_id="r")[T.OBSERVED]
    made = T.tidy(frame.sample(frac=1, random_state=1))
    assert made[["row", "column"]].equals(paper[["row", "column"]]) and np.array_equal(
        made.value, made.published
    )
