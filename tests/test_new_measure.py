"""The trial of an extender: a new measure in one module of their own, known to `plan`, `run` and
the store, with nothing here edited.
"""

import sys

import pytest

from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.runs.engine import results, run
from xlingual_nb.runs.executors import Inline, Processes
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.stages import declared_stages, stage_of
from xlingual_nb.runs.store import Store, list_runs
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

NORMS = """
from dataclasses import dataclass
from typing import ClassVar

from xlingual_nb.models.pretraining import PretrainSpec
from xlingual_nb.runs.stages import declare, write_measures


@dataclass(frozen=True)
class NormSpec:
    "The mean length of a checkpoint's word vectors, by language."
    stage: ClassVar[str] = "norms"
    checkpoint: PretrainSpec


def make_norms(specs, folders, store, progress):
    from xlingual_nb.models.checkpoints import load_checkpoint
    for spec, folder in zip(specs, folders):
        table = load_checkpoint(store.path(spec.checkpoint)).model.get_input_embeddings().weight
        halves = dict(zip((l.name for l in spec.checkpoint.languages), table.norm(dim=1).chunk(2)))
        means = {name: float(half.mean()) for name, half in halves.items()}
        write_measures(folder, {"norm": means})


declare(NormSpec, make_norms, cost=lambda spec: {"flops": 1e6, "bytes": 100})
"""


@pytest.fixture(scope="module")
def norms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_norms.py").write_text(NORMS)
    sys.path.insert(0, str(folder))
    import own_norms

    yield own_norms
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def wanted(norms):
    text = CorpusSpec("micro/en", parameters=(("sentences", 40),))
    pair = Language("en", text), Language("enfake", text, ("enfake",))
    model = PretrainSpec(
        pair,
        TokenizerSpec(text, 133, "words"),
        Shape(1, 16, 1, 32, 32),
        Training(epochs=1, batch=32),
    )
    return norms.NormSpec(model)


def test_plan_knows_it(wanted, tmp_path):
    table = plan([wanted], Store(tmp_path / "runs"), speed=1e9).set_index("stage")
    assert (
        table.loc["norms", "to make"] == 1
        and table.loc["norms", "FLOPs"] == 1e6
        and table.loc["pretrain", "to make"] == 1
    )


@pytest.mark.parametrize(
    "executor",
    [Inline, pytest.param(lambda: Processes(1), marks=pytest.mark.ci)],
    ids=("inline", "processes"),
)
def test_it_is_made_kept_and_drawn_from(wanted, norms, tmp_path, executor):
    from xlingual_nb.models.checkpoints import load_checkpoint

    store = Store(tmp_path / "runs")
    run([wanted], store, executor(), progress=False)
    table = (
        load_checkpoint(store.path(wanted.checkpoint))
        .model.get_input_embeddings()
        .weight.norm(dim=1)
    )
    drawn = stage_of(wanted).values(store.path(wanted))
    own, shifted = (
        float(half.mean()) for half in (table[: len(table) // 2], table[len(table) // 2 :])
    )
    assert drawn == pytest.approx({"norm en": own, "norm enfake": shifted}) and own != shifted
    assert (
        "norms" in declared_stages()
        and set(list_runs(store).stage) >= {"norms", "pretrain"}
        and len(results([wanted], store)) == 1
    )
