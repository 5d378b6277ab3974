"""Ten minutes on a GPU: every stage runs on it once, and its numbers stand beside the CPU's.

    python benchmarks/first_gpu.py --output first_gpu.csv
    python benchmarks/first_gpu.py --device cpu --no-speed     # the script itself, without a card

README.md beside this file says what is run, what is not, and how to read the table.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // 2)))

import pandas as pd
import torch
from safetensors.torch import load_file

from xlingual_nb.errors import InputError
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.training import read_log
from xlingual_nb.report.notebooks import check_device, experiments_with_grid, grid_of
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import load_json, write_atomic
from xlingual_nb.runs.plan import ancestors_by_id, load_machines
from xlingual_nb.runs.spec import one_look
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

# largest relative difference of a loss: the first is rounding, the second that bfloat16 has 8 bits
LOSS_LIMITS = {"float32": 1e-3, "bfloat16": 5e-2}
BERT_BASE = Shape(12, 768, 12, 3072, 128)


def make_on(device: str, specs, store: Store, stack: int = 1) -> float:
    """Make runs on a device, in this process; seconds."""
    os.environ["XLINGUAL_DEVICE"] = device
    began = time.monotonic()
    run(specs, store, Inline(), stack=stack, progress=False)
    if device != "cpu":
        torch.cuda.synchronize()
    return time.monotonic() - began


def small_models(precision: str, dropout: float = 0.0) -> list[PretrainSpec]:
    """Two models that train as one program. Without dropout, whose masks every device draws for
    itself, all devices compute the same losses.
    """
    text = CorpusSpec("micro/en", "train", (("sentences", 400),))
    languages = Language("en", text), Language("enfake", text, ("enfake",))
    training = Training(steps=60, batch=16, dropout=dropout, precision=precision)
    shape = Shape(3, 64, 1, 256, 64)
    tokenizer = TokenizerSpec(text, 300, "wordpiece")
    return [PretrainSpec(languages, tokenizer, shape, training, seed=seed) for seed in (0, 1)]


def compare_losses(device: str, precision: str, folder: Path) -> dict:
    """Losses of two stacked models, step by step, against the CPU's in float32."""
    reference, models = small_models("float32"), small_models(precision)
    stores = Store(folder / "cpu"), Store(folder / f"{device}-{precision}".replace(":", ""))
    on_cpu = make_on("cpu", reference, stores[0], stack=2)
    seconds = make_on(device, models, stores[1], stack=2)
    differences = []
    for ours, theirs in zip(models, reference):
        logs = [read_log(store.path(spec)) for store, spec in zip(stores, (theirs, ours))]
        differences += [abs(b["loss"] / a["loss"] - 1) for a, b in zip(*logs)]
    limit = LOSS_LIMITS[precision]
    return dict(
        check=f"pretrain, two stacked, {precision}",
        state="ok" if differences and max(differences) <= limit else "DIFFERS",
        cpu_s=on_cpu,
        device_s=seconds,
        difference=max(differences, default=float("nan")),
        limit=limit,
        measure="loss, relative",
    )


def compare_processes(device: str, folder: Path) -> dict:
    """The weights of a model whose batches are cut into four shards: of two processes, each on a
    device of its own, against those of one.
    """
    (spec, _) = small_models("float32", dropout=0.1)
    spec = replace(spec, training=replace(spec.training, shards=4))
    weights = []
    seconds = []
    try:
        for count in (1, 2):
            os.environ["XLINGUAL_DEVICES"] = str(count)
            store = Store(folder / f"processes-{count}")
            seconds.append(make_on(device, [spec], store))
            weights.append(load_file(store.path(spec) / "model.safetensors"))
    finally:
        del os.environ["XLINGUAL_DEVICES"]
    gaps = [(weights[0][name] - weights[1][name]).abs().max().item() for name in weights[0]]
    return dict(
        check="pretrain, 4 shards, 2 processes against 1",
        state="DIFFERS" if max(gaps) else "ok",
        cpu_s=seconds[0],
        device_s=seconds[1],
        difference=max(gaps),
        limit=0.0,
        measure="weights",
    )


def cheapest_of_each_stage() -> dict[str, object]:
    """Of each stage that the notebooks use at smoke, the spec that costs least with all its inputs."""
    chosen, costs = {}, {}
    with one_look():
        for name in experiments_with_grid():
            for spec in ancestors_by_id(grid_of(name, "smoke", {})[0]).values():
                inputs = ancestors_by_id([spec]).values()
                flops = [stage_of(s).cost(s).get("flops", 0) for s in inputs if stage_of(s).cost]
                cost = (sum(flops), len(flops))
                if cost < costs.get(spec.stage, (float("inf"), 0)):
                    chosen[spec.stage], costs[spec.stage] = spec, cost
    return chosen


def compare_stages(device: str, folder: Path):
    """Each stage once on the device, from inputs that the CPU made; its numbers against the CPU's.

    Networks of this size amplify a rounding, so a difference is shown and not judged: what is
    judged is that the stage runs.
    """
    store, chosen = Store(folder / "stages"), cheapest_of_each_stage()
    make_on("cpu", list(chosen.values()), store)
    # what reads others first: so that inputs are still the CPU's
    order = sorted(chosen, key=lambda stage: -len(ancestors_by_id([chosen[stage]])))
    for stage in order:
        spec = chosen[stage]
        home = store.path(spec)
        on_cpu = (load_json(home / "manifest.json") or {}).get("seconds", 0.0)
        before = stage_of(spec).values(home)
        shutil.rmtree(home)
        row = dict(check=stage, state="ok", cpu_s=on_cpu, limit=float("nan"), measure="")
        try:
            row["device_s"] = make_on(device, [spec], store)
            after = stage_of(spec).values(home)
            gaps = [abs(after[name] - number) for name, number in before.items() if name in after]
            row |= dict(difference=max(gaps, default=float("nan")), measure=f"{len(gaps)} numbers")
        except Exception as error:
            traceback.print_exc()
            row["state"] = f"FAILED: {' '.join(str(error).split())[:100]}"
            make_on("cpu", [spec], store)
        yield row


def training_speed(
    device: str, folder: Path, precision: str, shape: Shape = BERT_BASE, steps: int = 40
) -> dict:
    """FLOP/s of pretraining at BERT-base's size, and the share of the card's peak."""
    text = CorpusSpec("micro/en", "train", (("sentences", 4000),))
    training = Training(steps=steps, batch=64, precision=precision)
    tokenizer = TokenizerSpec(text, 300, "wordpiece")
    spec = PretrainSpec((Language("en", text),), tokenizer, shape, training, inputs="documents")
    make_on("cpu", [tokenizer], Store(folder / "speed"))
    warm = replace(spec, training=replace(training, steps=5), seed=1)
    make_on(device, [warm], Store(folder / "speed"))
    seconds = make_on(device, [spec], Store(folder / "speed"))
    speed = stage_of(spec).cost(spec)["flops"] / seconds
    name = torch.cuda.get_device_name(device) if device != "cpu" else "cpu"
    peak = next((m.peak for m in load_machines().machines if m.name in name), float("nan"))
    return dict(
        check=f"BERT-base, {precision}, {name}",
        state="ok",
        device_s=seconds,
        difference=speed / peak,
        measure=f"share of peak; {speed:.2e} FLOP/s",
    )


NOT_RUN = (
    "CUDA graphs and torch.compile: python benchmarks/published_size.py train STORE --arms paper --device cuda",
    "several cards: xlingual run 03 -p device=cuda --executor dask (docs/cluster.md)",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--no-speed", action="store_true", help="leave out BERT-base")
    parser.add_argument("--no-stages", action="store_true", help="leave out the stages")
    given = parser.parse_args()
    try:
        check_device(given.device, here=True)
    except InputError as error:
        sys.exit(str(error))
    rows = []

    def note(row):
        rows.append(row)
        if given.output:  # after each row: a lent card may be taken back
            write_atomic(given.output, pd.DataFrame(rows).to_csv(index=False))
        print({k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()}, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for precision in LOSS_LIMITS:
            note(compare_losses(given.device, precision, Path(folder)))
        if given.device == "cpu" or torch.cuda.device_count() > 1:
            note(compare_processes(given.device, Path(folder)))
        if not given.no_speed:
            for precision in LOSS_LIMITS:
                note(training_speed(given.device, Path(folder), precision))
        for row in [] if given.no_stages else compare_stages(given.device, Path(folder)):
            note(row)
    frame = pd.DataFrame(rows)
    print(frame.to_string(index=False, na_rep="", float_format="{:.4g}".format))
    print("not run here:", *NOT_RUN, sep="\n  ")
    if any(row["state"] != "ok" for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
