"""What the scripts that fill a table share: their options, and how rows join those of earlier calls."""

from pathlib import Path

import pandas as pd

from xlingual_nb.errors import require
from xlingual_nb.runs.files import write_atomic

RESULTS = Path(__file__).resolve().parent / "results"


def add_options(parser, table: str) -> None:
    """Add the options scale, store and output; `table` is the default file in `results`."""
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--store", type=Path, default=Path("runs"))
    parser.add_argument("--output", type=Path, default=RESULTS / table)


def read_rows(path: Path, keys: list[str], **values) -> pd.DataFrame:
    """The rows of a table that have these values in columns of these names; none without a file.

    Raises
    ------
    InputError
        If the table lacks one of the columns `keys`, which tell its rows apart.
    """
    if not path.is_file():
        return pd.DataFrame(columns=keys)
    table = pd.read_csv(path, dtype={"row": str})  # rows of Table 1 are named "1", "4"
    missing = ", ".join(key for key in keys if key not in table)
    require(
        not missing,
        f"{path} has no column {missing}, so its rows cannot be told from those of another call: "
        "add the column, or choose another file with --output",
    )
    for column, value in values.items():
        table = table[table[column] == value]
    return table


def put_rows(path: Path, rows, keys: list[str], float_format: str = "%.4g") -> pd.DataFrame:
    """Write rows into a table, in place of those with the same `keys`; gives the whole table."""
    table = pd.DataFrame(rows)
    earlier = read_rows(path, keys)
    if len(earlier):
        table = pd.concat([earlier, table]).drop_duplicates(keys, keep="last", ignore_index=True)
    write_atomic(path, table.to_csv(index=False, float_format=float_format))
    return table
