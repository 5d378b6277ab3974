"""The trial of an extender: a new task in a module of theirs is known to `plan`, made, and right in
both directions.
"""

import importlib
import random
import sys

import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import LinearTagging, Shape, Training
from xlingual_nb.runs.engine import results, run
from xlingual_nb.runs.executors import Inline, Processes
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.stages import declared_stages
from xlingual_nb.runs.store import Store
from xlingual_nb.text.records import LabelledRecords
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

CHUNKS = """
"Chunks: where do phrases begin? A new task: its file format, what turns, what counts."
from dataclasses import dataclass, replace
from typing import ClassVar

from xlingual_nb.errors import InputError
from xlingual_nb.models.pretraining import PretrainSpec
from xlingual_nb.models.configs import LinearTagging
from xlingual_nb.runs.stages import declare
from xlingual_nb.tasks.encoding import reverse_tagged_words, word_inputs
from xlingual_nb.tasks.metrics import score_tags
from xlingual_nb.tasks.task import LINEAR, Task, make_task
from xlingual_nb.text.corpora import read_lines
from xlingual_nb.text.records import LabelledRecords, RecordReader, RecordsSpec, make_records


def read_chunks(path) -> list[dict]:
    "Sentences written `[the cat] [sat] [on the mat]`: a word's tag says whether its phrase is `long` or `short`."
    records = []
    for n, line in enumerate(read_lines(path), 1):
        if not line.startswith("[") or not line.endswith("]"):
            raise InputError(f"{path} line {n}: write each phrase in brackets, as in [the cat] [sat]")
        phrases = [phrase.split() for phrase in line[1:-1].split("] [")]
        records.append(dict(tokens=sum(phrases, []), tags=[("short", "long")[len(p) > 1] for p in phrases for _ in p]))
    return records


class ChunkRecords(RecordsSpec): stage, readings = "chunk_records", (RecordReader("chunks", read_chunks),)


@dataclass(frozen=True)
class ChunkSpec:
    "How well phrases are told from words."
    stage: ClassVar[str] = "chunks"
    checkpoint: PretrainSpec
    train: LabelledRecords
    dev: LabelledRecords
    tests: tuple[LabelledRecords, ...]
    settings: LinearTagging = LinearTagging()


CHUNKING = Task("chunks", encode=word_inputs, turn=reverse_tagged_words, score=score_tags, head=LINEAR)


def make_chunks(specs, folders, store, progress): make_task(CHUNKING, specs, folders, store, progress)


declare(ChunkRecords, make_records)
declare(ChunkSpec, make_chunks, cost=lambda spec: {"flops": 1e9, "bytes": 1000})
"""


@pytest.fixture(scope="module")
def chunks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_chunks.py").write_text(CHUNKS)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("own_chunks")
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Nouns, which have an article, and verbs, which stand alone: a word says what its phrase is,
    its place does not.
    """
    folder, dice = tmp_path_factory.mktemp("files"), random.Random(1)
    phrases = [f"[{article} n{i}]" for i in range(6) for article in ("a", "the")] + [
        f"[v{i}]" for i in range(6)
    ] * 3
    lines = [" ".join(dice.choices(phrases, k=dice.randint(2, 6))) for _ in range(90)]
    for part, chosen in (("train", lines[:60]), ("dev", lines[60:75]), ("test", lines[75:])):
        (folder / f"{part}.txt").write_text("\n".join(chosen))
    (folder / "plain.txt").write_text(
        "\n".join(line.replace("[", "").replace("]", "") for line in lines)
    )
    return folder


@pytest.fixture(scope="module")
def wanted(chunks, files):
    text = CorpusSpec(f"file:{files}/plain.txt", parameters=(("language", "en"),))
    languages = Language("en", text), Language("ne", text, ("inv_order",))
    model = PretrainSpec(
        languages, TokenizerSpec(text, 19, "words"), Shape(1, 32, 1, 32, 32), Training(epochs=0)
    )

    def part(language, name):
        return LabelledRecords(
            language, chunks.ChunkRecords("chunks", f"file:{files}/{{part}}.txt", name)
        )

    tests = part("en", "test"), part("ne", "test")
    return chunks.ChunkSpec(
        model, part("en", "train"), part("en", "dev"), tests, LinearTagging(layer=0)
    )


def test_it_is_short():
    assert len(CHUNKS.splitlines()) <= 60


def test_plan_knows_it(wanted, tmp_path):
    table = plan([wanted], Store(tmp_path / "runs"), speed=1e9).set_index("stage")
    assert table.loc["chunks", "to make"] == 1 and table.loc["chunks", "FLOPs"] == 1e9
    assert table.loc["chunk_records", "to make"] == 3


@pytest.mark.parametrize(
    "executor",
    [Inline, pytest.param(lambda: Processes(1), marks=pytest.mark.ci)],
    ids=("inline", "processes"),
)
def test_it_is_made_and_right_in_both_directions(wanted, tmp_path, executor):
    """In worker processes too, which know no more of the module than the specs say."""
    store = Store(tmp_path / "runs")
    run([wanted], store, executor(), progress=False)
    found = store.read(wanted)
    assert (
        found["accuracy"] == dict(en=1.0, ne=1.0)
        and found["majority"]["en"] == found["majority"]["ne"] < 0.8
    )
    assert set(declared_stages()) >= {"chunks", "chunk_records"} and "accuracy" in results(
        [wanted], store
    )


def test_records_alone_are_made_in_a_process_of_their_own(wanted, tmp_path):
    """Nothing but their spec is sent there, which has to bring the reader along."""
    store, records = Store(tmp_path / "runs"), wanted.train.records
    run([records], store, Processes(1), progress=False)
    assert (store.path(records) / "records.jsonl").read_text().count("\n") == 60


def test_a_bad_file_is_one_line_of_theirs(wanted, chunks, tmp_path):
    (tmp_path / "bad.txt").write_text("[the cat] sat\n")
    with pytest.raises(InputError, match="bad.txt line 1: write each phrase in brackets"):
        run(
            [chunks.ChunkRecords("chunks", f"file:{tmp_path}/bad.txt")],
            Store(tmp_path / "runs"),
            progress=False,
        )
