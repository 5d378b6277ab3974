"""Run ids stay: every id that stands in `results/` comes out of today's grids for the same spec."""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from xlingual_nb.experiments import (
    architecture,
    data_size,
    dials,
    emergence,
    frequency,
    knn_replace,
    laboratory,
    language_shift,
    layers,
    mixed_pairs,
    objective,
    ordering,
    overlap,
    parts_of_speech,
    window_size,
    zero_shot,
)
from xlingual_nb.report.labels import PRETRAINED
from xlingual_nb.runs.spec import run_id
from xlingual_nb.text import records, sources

ROOT = Path(__file__).resolve().parents[1]
# of the texts that the kept study read
DIGESTS = json.loads((ROOT / "tests/source_digests.json").read_text(encoding="utf-8"))
EXPERIMENTS = overlap, ordering, frequency, architecture, objective, mixed_pairs, laboratory, dials
# kept with more seeds than the scale asks for
GROWN = overlap, ordering, frequency, architecture, objective, laboratory
# rows that a claim wanted with more than ten
MANY = (
    (laboratory, dict(seeds=80, rows="0,21")),
    (overlap, dict(seeds=60, claim="K-fake-to-english-ner")),
    (ordering, dict(seeds=20, claim="K-order-rest-ner")),
)
GENERATED = (
    data_size,
    emergence,
    knn_replace,
    language_shift,
    layers,
    parts_of_speech,
    window_size,
    zero_shot,
)


def kept() -> Iterator[tuple[str, str, str]]:
    """(first twelve characters of a run id, table, corpus) of the committed results, but for those
    of an encoder that was pretrained elsewhere: their ids want its files.
    """
    for path in sorted((ROOT / "results").glob("laptop/*/*.csv")):
        with open(path, encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                if row.get("corpus", "").startswith(PRETRAINED):
                    continue
                for key in (row.get("run_ids") or "").split():
                    yield key, path.relative_to(ROOT).as_posix(), row["corpus"]


@pytest.fixture
def as_then(monkeypatch):
    """The texts of the kept study, whatever data this machine has."""
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    monkeypatch.setattr(
        sources,
        "source_digest",
        lambda source: "generated" if source.startswith("micro/") else DIGESTS[source],
    )
    told = records.records_digest

    def digest(source, task, part="train", unseen=False):
        if source.startswith("micro/"):
            return told(source, task, part, unseen)
        return DIGESTS[f"{records.get_reader(task).task} {source} {part}" + " unseen" * unseen]

    monkeypatch.setattr(records, "records_digest", digest)


# XNLI's words in mBERT's vocabulary, and records of real text, are named by files of the data
# folder.
WANTS_DATA = {("results/laptop/14_language_shift/lowered.csv", "micro")}
WANTS_RECORDS = {
    "08_knn_replace",
    "09_data_size",
    "10_window_size",
    "11_parts_of_speech",
    "12_zero_shot",
    "13_layers",
    "14_language_shift",
}


def wants_records(table: str, corpus: str) -> bool:
    return table.split("/")[2] in WANTS_RECORDS and not corpus.startswith("micro")


def test_all_kept_run_ids_come_out_of_the_grids(as_then):
    made = {
        run_id(spec)[:12]
        for experiment in EXPERIMENTS
        for corpus in ("micro", "bible")
        for spec in experiment.grid("laptop", corpus, seeds=10 * (experiment in GROWN))
    }
    made |= {
        run_id(spec)[:12]
        for experiment, what in MANY
        for spec in experiment.grid("laptop", "micro", **what)
    }
    made |= {
        run_id(spec)[:12] for experiment in GENERATED for spec in experiment.grid("laptop", "micro")
    }
    others = (zero_shot, "micro-five"), (data_size, "micro-parallel"), (emergence, "bible")
    made |= {
        run_id(spec)[:12]
        for experiment, corpus in others
        for spec in experiment.grid("laptop", corpus)
    }
    unknown = [(table, corpus) for key, table, corpus in kept() if key not in made]
    assert {
        (table, corpus) for table, corpus in unknown if not wants_records(table, corpus)
    } == WANTS_DATA
    assert len({key for key, *_ in kept()}) > 1000, "the kept study is there"


@pytest.mark.ci
def test_kept_run_ids_on_real_text_come_out_of_the_grids_where_the_data_is():
    if not os.environ.get("XLINGUAL_DATA"):
        pytest.skip("set XLINGUAL_DATA to a folder with the real data")
    there = {
        (table.split("/")[2], corpus) for _, table, corpus in kept() if wants_records(table, corpus)
    }
    named = {experiment.__name__.rpartition(".")[2]: experiment for experiment in GENERATED}
    made = {
        run_id(spec)[:12]
        for notebook, corpus in there
        for spec in named[notebook[3:]].grid("laptop", corpus)
    }
    assert there and not {
        table for key, table, corpus in kept() if wants_records(table, corpus) and key not in made
    }


def test_a_renamed_class_and_field_keep_their_run_id():
    """What Python calls them may change; what run ids call them does not."""
    from dataclasses import dataclass
    from typing import ClassVar

    from xlingual_nb.runs.spec import canonical, plain_value, restore, run_id, spelled

    @dataclass(frozen=True)
    class Shape:
        layers: int
        hidden: int = 64

    @dataclass(frozen=True)
    class Old:
        stage: ClassVar[str] = "toy"
        shape: Shape
        steps: int = 1

    @dataclass(frozen=True)
    class ModelSize:
        spelling: ClassVar[str] = "Shape"
        num_layers: int = spelled("layers")
        width: int = spelled("hidden", 64)

    @dataclass(frozen=True)
    class New:
        stage: ClassVar[str] = "toy"
        size: ModelSize = spelled("shape")
        steps: int = 1

    for width, steps in ((64, 1), (32, 1), (64, 5)):
        old, new = Old(Shape(2, width), steps), New(ModelSize(2, width), steps)
        assert canonical(new) == canonical(old) and run_id(new) == run_id(old)
        assert plain_value(new, with_defaults=True) == plain_value(old, with_defaults=True)
        assert restore(plain_value(old), New) == new and restore(plain_value(new), Old) == old
