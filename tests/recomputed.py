"""What is written beside values by seed, made again from them: tables, verdicts, answers; what does
not come out the same.
"""

from pathlib import Path

import pandas as pd

from xlingual_nb.experiments import dials, dials_common
from xlingual_nb.report import tables, verdicts
from xlingual_nb.report.study_verdicts import study_verdicts


def unlike(path: Path, ours: pd.DataFrame, theirs: pd.DataFrame) -> list[str]:
    """Lines of one frame that the other does not have, as the file that they stand in writes
    them.
    """
    ours, theirs = (set(tables.text(frame[sorted(frame)]).splitlines()) for frame in (ours, theirs))
    return [f"{path}: {line}" for line in sorted(ours ^ theirs)]


def tables_of(path: Path, seeds: pd.DataFrame) -> list[str]:
    """Tables whose values by seed are in a file: every line of them, on whatever corpus."""
    found = []
    for table, part in tables.tidy(seeds).groupby("table"):
        if "step" in part and part.step.isna().all():
            part = part.drop(columns="step")
        file = path.with_name(f"{table}{path.stem.removeprefix('seeds')}.csv")
        found += unlike(file, part, tables.read(file))
    return found


def verdicts_of(home: Path) -> list[str]:
    """Every verdict of a study."""
    file = home / "verdicts.csv"
    made = study_verdicts(home)
    if not file.is_file():
        return [f"{file}: is not there"] * len(made)
    return unlike(file, made, verdicts.read(file))


def answers_of(path: Path, seeds: pd.DataFrame) -> list[str]:
    scale, seeds = path.parts[-3], seeds[seeds.corpus == "micro"]
    found, settings = [], dials.dial_distances(dials.list_table_entries(scale, "micro"))
    for score, name in (("µ", "trends"), (dials.NAMES, "transfer")):
        made = dials_common.effect_tests_frame(
            dials_common.add_verdicts(dials.dial_tests(seeds, settings, score), scale)
        )
        file = path.with_name(f"{name}.csv")
        if tables.text(made) != file.read_text(encoding="utf-8"):
            found.append(str(file))
    return found


def unlike_its_seeds(home: Path) -> list[str]:
    """Everything under `<results>/<scale>` that does not follow from the values by seed that lie
    there.
    """
    found = []
    for path in sorted(Path(home).glob("*/seeds*.csv")):
        seeds = tables.read_seeds(path)
        found += tables_of(path, seeds)
        if path.stem != "seeds":
            continue  # another reading judges nothing
        if path.parent.name == "17_dials":
            found += answers_of(path, seeds)
    return found + verdicts_of(Path(home))
