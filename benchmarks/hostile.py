"""Kills at random moments, and bad inputs: what is lost, and what is said.

    python benchmarks/hostile.py kills --kills 100 --processes 3 --output kills.csv
    python benchmarks/hostile.py inputs --output inputs.csv

README.md beside this file says what is done and how to read the tables.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
import torch
from safetensors.torch import load_file, save_file

from xlingual_nb import cli
from xlingual_nb.measures.multilinguality import MeasureSpec
from xlingual_nb.models import training
from xlingual_nb.models.checkpoints import tiny_checkpoint
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.runs.plan import ancestors_by_id
from xlingual_nb.runs.store import Store, check_runs, list_runs
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec


# ---- kills


def study() -> list[MeasureSpec]:
    """Two models of English and Fake-English, measured twice each; with their texts and vocabulary
    nine runs.
    """

    def text(part):
        return CorpusSpec("micro/en", part, (("sentences", 40),))

    languages = Language("en", text("train")), Language("enfake", text("train"), ("enfake",))
    models = [
        PretrainSpec(
            languages,
            TokenizerSpec(text("train"), 100, "wordpiece"),
            Shape(1, 16, 1, 32, 32),
            Training(steps=60, batch=8),
            seed=seed,
            snapshots=(50,),
        )
        for seed in (0, 1)
    ]
    return [MeasureSpec(model, text("dev"), percent) for model in models for percent in (50, None)]


def digests(store: Store, specs) -> dict[str, str]:
    """SHA-256 of every product of a study but the logs, which tell the time."""
    folders = {key: store.path(spec) for key, spec in ancestors_by_id(specs).items()}
    return {
        f"{key[:12]}/{p.relative_to(folder).as_posix()}": hashlib.sha256(p.read_bytes()).hexdigest()
        for key, folder in folders.items()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name not in ("log.jsonl", "manifest.json")
    }


def keep_often() -> None:
    """From now on a training keeps its state at every line of its log, so that kills find it at
    many places.
    """
    usual = training.pretrain
    training.pretrain = lambda *args, **more: usual(*args, **more, save_interval=0.0)


def worker(root: Path, specs) -> int:
    """A process of its own that makes the study and leaves; its number."""
    if pid := os.fork():
        return pid
    try:
        torch.set_num_threads(1)
        keep_often()
        run(specs, Store(root), stack=2, progress=False)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def reap(pids: list[int], wait: bool = False) -> list[int]:
    """Those that have ended are taken off the list; their exit codes."""
    codes = []
    for pid in list(pids):
        found, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
        if found:
            pids.remove(pid)
            codes.append(os.waitstatus_to_exitcode(status))
    return codes


def disturbed(root: Path, specs, kills: int, processes: int, pause) -> dict:
    """One store: after each `pause()` seconds a process is killed and replaced, until the study is
    there or `kills` are done; then the rest may finish.
    """
    store, pids, done, failed, unreadable = Store(root), [], 0, 0, 0
    while done < kills and not all(map(store.has, specs)):
        pids += [worker(root, specs) for _ in range(processes - len(pids))]
        time.sleep(pause())
        os.kill(random.choice(pids), signal.SIGKILL)
        time.sleep(0.01)
        codes = reap(pids)
        done += codes.count(-signal.SIGKILL)
        failed += sum(code > 0 for code in codes)
        unreadable += not check_runs(store).empty or not set(list_runs(store).state) <= {
            "found",
            "partial",
        }
    pids += [worker(root, specs) for _ in range(processes - len(pids))]
    codes = reap(pids, wait=True)
    done += codes.count(-signal.SIGKILL)
    return dict(kills=done, failed=failed + sum(c > 0 for c in codes), unreadable=unreadable)


EACH, SHARE = (
    10,
    6,
)  # kills of a store at most; a pause is at most the undisturbed study's time by SHARE


def kill(kills: int, processes: int, seed: int = 0, output: Path | None = None) -> pd.DataFrame:
    """A row a store: kills, processes that failed, looks that saw a fault, products, those equal to
    undisturbed ones.
    """
    specs, rows, began = study(), [], time.monotonic()
    random.seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        calm = Store(Path(folder) / "calm")
        assert os.waitstatus_to_exitcode(os.waitpid(worker(calm.root, specs), 0)[1]) == 0
        wanted, usual = digests(calm, specs), time.monotonic() - began
        while (left := kills - sum(row["kills"] for row in rows)) > 0:
            root = Path(folder) / f"store{len(rows)}"
            row = disturbed(
                root, specs, min(left, EACH), processes, lambda: random.uniform(0, usual / SHARE)
            )
            found = digests(Store(root), specs)
            same = sum(found.get(name) == digest for name, digest in wanted.items())
            row |= dict(products=len(wanted), equal=same, whole=check_runs(Store(root)).empty)
            rows.append(dict(store=len(rows), processes=processes) | row)
            print(rows[-1], flush=True)
            if output:
                write_atomic(output, pd.DataFrame(rows).to_csv(index=False))
            shutil.rmtree(root)
    return pd.DataFrame(rows)


# ---- bad inputs


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def workshop(folder: Path) -> None:
    """What the commands below are given: a checkpoint, texts, a data folder, a store; and spoilt
    copies of each.
    """
    lines = [f"w{5 + i} w{6 + i} w{(7 * i) % 50 + 5}\n" for i in range(30)]
    write(folder / "en.txt", "".join(lines)), write(folder / "es.txt", "".join(reversed(lines)))

    def verses(book):
        return "".join(f"{book}.1.{i}\tw5\n" for i in range(20))

    for name, text in {
        "short.txt": lines[0],
        "longer.txt": "".join(lines) + "w5\n",
        "empty.txt": "",
        "latin.txt": b"se\xf1or\n",
        "bom.txt": b"\xef\xbb\xbfw5\n",
        "utf16.txt": "w5\n".encode("utf-16"),
        "cut.txt.gz": b"\x1f\x8b\x08",
        "pairs.txt": "one two three\n",
        "column.txt": "w5\nw6\n",
        "unseen.txt": "tree arbre\n",
        "old.tsv": verses("GEN"),
        "new.tsv": verses("MAT"),
        "data/bible/en-x.tsv": "GEN 1\tIn the beginning.\n",
        "broken.toml": "study = ",
        "binary/VERSION": b"\xff\xfe\x00",
    }.items():
        write(folder / name, text)
    spoil(folder), spoil_vectors(folder)
    spec = CorpusSpec("micro/en", parameters=(("sentences", 5),))
    run([spec], store := Store(folder / "runs"), progress=False)
    text = (store.path(spec) / "corpus.json").read_text()
    (store.path(spec) / "corpus.json").write_text(text.replace("e", "E", 1))


def spoil(folder: Path) -> None:
    """A checkpoint, and copies with one thing wrong in each."""
    whole = tiny_checkpoint(folder / "model", 64, [dict(name="en"), dict(name="es")])

    def copy(name):
        return Path(shutil.copytree(whole, folder / name))

    def config(name, file="config.json", **values):
        path = copy(name) / file
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    (
        config("shallow", num_hidden_layers=1),
        config("deep", num_hidden_layers=9),
        config("wide", hidden_size=32),
    )
    config("roomless", "tokenizer_config.json", model_max_length=2)
    config("maskless", "tokenizer_config.json", mask_token=None)
    for n, views in enumerate(({}, ["en"], [dict(name="en", token_offset="1")])):
        config(f"views{n}", xlingual=dict(languages=views))
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (copy(f"no-{name}") / name).unlink()
    weights = copy("cut") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    table = load_file(whole / "model.safetensors")
    table["bert.embeddings.word_embeddings.weight"][7, 3] = torch.nan
    save_file(table, copy("nan") / "model.safetensors", metadata=dict(format="pt"))


def spoil_vectors(folder: Path) -> None:
    """A file of word vectors, and copies with one thing wrong in each; the last has other words
    than the texts.
    """
    rows = [f"w{i} {i} {i % 7} 1\n" for i in range(60)]

    def file(rows, header="60 3\n"):
        return header + "".join(rows)

    for name, text in {
        "words.vec": file(rows),
        "more.vec": file(rows, "61 3\n"),
        "fewer.vec": file(rows, "59 3\n"),
        "columns.vec": file(rows, "60 4\n"),
        "headless.vec": file(rows, ""),
        "glove.txt": file(rows, ""),
        "gap.vec": file([*rows[:-1], "w 9 1 1 1\n"]),
        "twice.vec": file([*rows[:-1], rows[0]]),
        "nan.vec": file([*rows[:-1], "x nan 1 1\n"]),
        "cut.vec.gz": gzip.compress(file(rows).encode())[:-9],
        "cut.bin": b"2 3\nw5 " + bytes(14),
        "fasttext.bin": bytes.fromhex("ba16 4f2f 0c00 0000") + bytes(40),
        "other.vec": "1 3\narbre 1 2 3\n",
    }.items():
        write(folder / name, text)


VECTORS = (
    "more.vec",
    "fewer.vec",
    "columns.vec",
    "headless.vec",
    "glove.txt",
    "gap.vec",
    "twice.vec",
    "nan.vec",
    "cut.vec.gz",
    "cut.bin",
    "fasttext.bin",
    "other.vec",
    "nowhere.vec",
)
SPOILT = (
    "shallow",
    "deep",
    "wide",
    "roomless",
    "maskless",
    "views0",
    "views1",
    "views2",
    "no-config.json",
    "no-tokenizer.json",
    "no-model.safetensors",
    "cut",
    "nan",
    "nowhere",
    "en.txt",
)
TEXTS = (
    "short.txt",
    "longer.txt",
    "empty.txt",
    "latin.txt",
    "bom.txt",
    "utf16.txt",
    "cut.txt.gz",
    "nowhere.txt",
    "data",
)
OWN = "probe model --text en=en.txt --text es=es.txt"
DICTIONARIES = "column.txt", "latin.txt", "empty.txt", "unseen.txt"
OTHERS = (
    "probe model --text en=old.tsv --text es=new.tsv",
    "probe model --text en=en.txt",
    "probe model --text en",
    "probe model --languages en",
    "probe model --languages en,en",
    "probe model --languages en,xx",
    f"{OWN} --sentences -5",
    f"{OWN} --sentences many",
    f"{OWN} --out no/such/numbers.csv",
    f"{OWN} --out data",
    f"{OWN} --dictionary pairs.txt",
    f"{OWN} --dictionary nowhere.txt",
    f"{OWN} --device tpu",
    "plan 99",
    "plan laboratry",
    "plan 07 --scale hugh",
    "plan 07 -p seeds=-1",
    "plan 07 -p seeds=five",
    "plan 07 -p sede=5",
    "plan 07 -p corpus=moon",
    "plan 07 -p rows=99",
    "plan 01 -p languages=xx",
    "plan 01 --sizes nowhere.toml",
    "plan 01 --sizes broken.toml",
    "plan 07 --store en.txt",
    "plan 07 --store data",
    "plan 07 --store binary",
    "run 99",
    "run 07 -p seeds=-1",
    "run 07 --skale smoke",
    "list 99",
    "runs list --store nowhere",
    "runs list --store runs --stage corpsu",
    "runs show zz --store runs",
    "runs check --store runs",
    "runs accept corpus --prove 0 --store runs",
    "runs prune --days -1 --store runs",
    "data check",
    "data get xnly en",
    "data get bible en",
    "data get xnli en --limit -1",
    "nothing",
    "run --nothing",
)


def said(command: str) -> dict:
    """What a command says: its exit code, and the lines of its error."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main(command.split())
        except SystemExit as end:
            code = end.code
    lines = err.getvalue().strip().splitlines()
    return dict(
        code=code, lines=len(lines), traceback="Traceback" in err.getvalue(), said=" ".join(lines)
    )


def inputs() -> pd.DataFrame:
    """A row a command that is given something wrong: its exit code, lines, whether there is a
    traceback, what is said.
    """
    commands = [f"probe {name} --text en=en.txt --text es=es.txt" for name in (*SPOILT, *VECTORS)]
    own = OWN.replace("model", "words.vec")
    commands += ["probe words.vec", *(f"{own} --dictionary {name}" for name in DICTIONARIES)]
    commands += [f"probe model --text en=en.txt --text es={name}" for name in TEXTS]
    with tempfile.TemporaryDirectory() as folder:
        workshop(Path(folder))
        with patch.dict(os.environ, XLINGUAL_DATA=str(Path(folder) / "data")), chdir(folder):
            rows = [dict(command=command) | said(command) for command in (*commands, *OTHERS)]
        for row in rows:
            row["said"] = (
                row["said"].replace(f"{Path(folder).resolve()}/", "").replace(str(folder), ".")
            )
    return pd.DataFrame(rows).assign(well=lambda t: (t.code == 2) & (t.lines == 1) & ~t.traceback)


def main(arguments=None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("kills", "inputs"))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args(arguments)
    if given.what == "kills":
        frame = kill(given.kills, given.processes, given.seed, given.output)
        print(
            f"{frame.kills.sum()} kills; {frame.equal.sum()} of {frame.products.sum()} products equal; "
            f"{frame.failed.sum()} processes failed; {frame.unreadable.sum()} looks at a store that was not whole"
        )
        return frame
    frame = inputs()
    print(f"{frame.well.sum()} of {len(frame)} bad inputs: exit code 2, one line, no traceback")
    if given.output:
        write_atomic(given.output, frame.to_csv(index=False))
    return frame


if __name__ == "__main__":
    main()
