"""Records a second of fine-tuning: Hugging Face's Trainer beside this project's loop, the same
model and records.

    python benchmarks/finetuning.py

README.md beside this file says what is compared and how to read the table.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from xlingual_nb.errors import InputError, require
from xlingual_nb.experiments import liu2020_common, liu2020_shifts, wu2019_common, zero_shot
from xlingual_nb.experiments.scales import joint_config
from xlingual_nb.models.mlm_batches import CLS, ORDER, SEP, first_fit, seeded_generator
from xlingual_nb.models.pretraining import Language
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline, clean_environment
from xlingual_nb.runs.store import Store
from xlingual_nb.text.corpora import data_folder
from xlingual_nb.text.records import LabelledRecords, RecordsSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

ROOT = Path(__file__).resolve().parents[1]
RACES = {
    "pos": ("pos", "micro"),
    "documents": ("documents", "micro"),
    "pos, real text": ("pos", "running"),
}
PIECES = {"micro": ("words", 131), "running": ("wordpiece", 2048)}  # vocabularies of English alone
MEMBERS = ("Trainer", "ours")
MEMORY = (
    "default",
    "kept",
)  # of the C library's allocator: what a user of Trainer has, and what our workers have
IGNORED = -100  # the label of pieces that begin no word, as transformers has it


# ---------------------------------------------------------------- the model and the records


def encoder_spec(size: str, corpus: str, steps: int):
    """Notebook 12's encoder for English alone, shortly trained; the seed is one of its own."""
    spec, (kind, entries) = (
        liu2020_shifts.shift_model_spec(liu2020_shifts.shift_study_config(size), 9),
        PIECES[corpus],
    )
    text = liu2020_common.text_spec(joint_config(size, corpus), "en", 4000)
    return replace(
        spec,
        languages=(Language("en", text),),
        tokenizer=TokenizerSpec(text, entries, kind),
        training=replace(spec.training, steps=steps),
    )


def labelled(size: str, task: str, corpus: str, part: str) -> LabelledRecords:
    """Notebook 12's English records, or a treebank's first 2,000 sentences."""
    if corpus == "micro":
        sizes = zero_shot.zero_shot_config(size)
        return wu2019_common.labelled_task_records(sizes, task, "en", part)
    return LabelledRecords("en", RecordsSpec(task, "ud/en-lines", part, 2000))


@dataclass(frozen=True, eq=False)
class Race:
    """What both members get: an encoder, records as it reads them, the form of the task,
    settings.
    """

    task: str
    encoder: object
    train: object
    dev: object
    form: object
    settings: object

    @property
    def lengths(self):
        return sum(text.lengths for text in self.train.texts) + len(self.train.texts) + 1


def make_race(name: str, size: str, steps: int, store: Store, epochs: int = 0) -> Race:
    """Pretrain, read, and say how the task is tuned in notebook 12; `epochs` in the place of its
    own.
    """
    from xlingual_nb.models.encoders import load_encoder
    from xlingual_nb.tasks import task_heads
    from xlingual_nb.tasks.task import encode_for_checkpoint
    from xlingual_nb.tasks.zero_shot_classification import DOCUMENTS
    from xlingual_nb.tasks.zero_shot_tagging import TUNED_POS
    from xlingual_nb.text import tokenizers

    (task, corpus), spec = RACES[name], encoder_spec(size, RACES[name][1], steps)
    sides = [labelled(size, task, corpus, part) for part in ("train", "dev")]
    run([spec, *(side.records for side in sides)], store, Inline(), progress=False)
    encoder, pieces = (
        load_encoder(store.path(spec)),
        tokenizers.read_tokenizer(store.path(spec.tokenizer)),
    )
    how, form = (
        (TUNED_POS, task_heads.pos_adapter())
        if task == "pos"
        else (DOCUMENTS, task_heads.sentence_adapter())
    )
    train, dev = (encode_for_checkpoint(how, spec, side, pieces, store, encoder) for side in sides)
    settings = zero_shot.zero_shot_config(size).tasks.tuning[task]
    train, dev = (form.cut(encoder, inputs, settings, True)[0] for inputs in (train, dev))
    return Race(
        task, encoder, train, dev, form, replace(settings, epochs=epochs or settings.epochs)
    )


def slots(race: Race) -> dict[str, float]:
    """Of a pass in batches of random records, slots a token: padded to the longest, and in our
    rows.
    """
    order, lengths = seeded_generator(ORDER, 0, 0).permutation(len(race.lengths)), race.lengths
    some = [
        lengths[b]
        for b in np.split(order, range(race.settings.batch, len(order), race.settings.batch))
    ]
    wide = [n.max() * 3 // 2 for n in some]
    rows = sum(first_fit(n, width)[2] * width for n, width in zip(some, wide))
    counts = dict(padded=sum(n.max() * len(n) for n in some), packed=rows)
    return {
        f"{name} slots a token": round(float(count / lengths.sum()), 3)
        for name, count in counts.items()
    }


# ---------------------------------------------------------------- the members


@contextmanager
def clock():
    """Seconds by the wall and of this process's processors."""
    taken = SimpleNamespace(wall=-time.perf_counter(), cpu=-time.process_time())
    yield taken
    taken.wall += time.perf_counter()
    taken.cpu += time.process_time()


def ours(race: Race, seed: int):
    """(seconds, accuracy on the development records after the last epoch) of
    `tasks.finetuning.fit_network`.
    """
    from xlingual_nb.tasks.finetuning import fit_network

    with clock() as taken:
        network = fit_network(race.encoder, race.train, race.dev, race.form, race.settings, seed)
    return taken, network.scores[-1]


def word_rows(inputs, labels: list[str]) -> list[dict]:
    """Tagged sentences as run_ner has them: a label for each word's first piece."""
    rows = []
    for ids, firsts, tags in zip(inputs.texts[0], inputs.firsts, inputs.gold):
        told = np.full(len(ids) + 2, IGNORED)
        told[firsts + 1] = [labels.index(tag) for tag in tags]
        rows.append(dict(input_ids=[CLS, *ids.tolist(), SEP], labels=told.tolist()))
    return rows


def text_rows(inputs, labels: list[str]) -> list[dict]:
    """Documents as run_glue has pairs."""
    rows = []
    for first, second, label in zip(*inputs.texts, inputs.gold):
        a, b = [CLS, *first.tolist(), SEP], [*second.tolist(), SEP] if len(second) else []
        rows.append(
            dict(
                input_ids=a + b,
                token_type_ids=[0] * len(a) + [1] * len(b),
                label=labels.index(label),
            )
        )
    return rows


def hub_parts(race: Race):
    """A model on the encoder's weights, rows to train on and to score, and what joins them to a
    batch.
    """
    import transformers as hub
    from torch import nn

    class First(nn.Module):
        """[CLS] itself, in the place of BERT's pooler, which our head does without."""

        def forward(self, states):
            return states[:, 0]

    words, own = race.task == "pos", race.encoder.model
    labels = sorted(
        {tag for tags in race.train.gold for tag in tags} if words else set(race.train.gold)
    )
    config = type(own.config).from_dict(own.config.to_dict() | dict(num_labels=len(labels)))
    model = (hub.BertForTokenClassification if words else hub.BertForSequenceClassification)(config)
    if not words:
        model.bert.pooler = First()
    model.bert.load_state_dict(own.bert.state_dict())
    join = hub.DataCollatorForTokenClassification if words else hub.DataCollatorWithPadding
    rows = word_rows if words else text_rows
    return model, rows(race.train, labels), rows(race.dev, labels), join(race.encoder.tokenizer)


def accuracy(told) -> dict:
    """Share of the labels that are right, as Trainer asks for it."""
    asked = told.label_ids != IGNORED
    return dict(accuracy=float((told.predictions.argmax(-1) == told.label_ids)[asked].mean()))


def trainers(race: Race, seed: int):
    """The same of `transformers.Trainer`; what it does before `train` is not timed."""
    import transformers as hub

    hub.logging.set_verbosity_error()
    hub.set_seed(seed)
    (model, train, dev, join), s = hub_parts(race), race.settings
    steps = s.epochs * -(-len(train) // s.batch)
    with tempfile.TemporaryDirectory() as folder:
        arguments = hub.TrainingArguments(
            folder,
            per_device_train_batch_size=s.batch,
            per_device_eval_batch_size=2 * s.batch,
            seed=seed,
            num_train_epochs=s.epochs,
            learning_rate=s.learning_rate,
            weight_decay=s.weight_decay,
            adam_epsilon=1e-6,
            warmup_steps=round(s.warmup * steps),
            eval_strategy="epoch",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        trainer = hub.Trainer(model, arguments, join, train, dev, compute_metrics=accuracy)
        trainer.remove_callback(hub.PrinterCallback)
        with clock() as taken:
            trainer.train()
    return taken, [
        log["eval_accuracy"] for log in trainer.state.log_history if "eval_accuracy" in log
    ][-1]


# ---------------------------------------------------------------- the race


def answer(o) -> None:
    """The life of a racing process: (race, member, seed, epochs) on a line in, seconds and score on
    a line out.
    """
    import torch

    torch.set_num_threads(1)
    answers, races = os.fdopen(os.dup(1), "w"), {}
    os.dup2(2, 1)  # what libraries print must not get among the answers
    for line in sys.stdin:
        name, member, seed, epochs = json.loads(line)
        if name not in races:
            races[name] = make_race(name, o.size, o.steps, Store(o.store), o.epochs)
        race = races[name]
        if epochs:
            race = replace(race, settings=replace(race.settings, epochs=epochs))
        taken, score = dict(zip(MEMBERS, (trainers, ours)))[member](race, seed)
        print(
            json.dumps(
                dict(wall=round(taken.wall, 2), cpu=round(taken.cpu, 2), dev=round(score, 4))
            ),
            file=answers,
            flush=True,
        )


class Lane:
    """A racing process. The allocator reads its settings when a process begins, so each has a
    process of its own.
    """

    def __init__(self, memory: str, o, store: Path):
        values = {
            k: v
            for k, v in clean_environment().items()
            if memory == "kept" or not k.startswith("MALLOC_")
        }
        given = dict(size=o.size, steps=o.steps, epochs=o.epochs, store=store)
        self.process = subprocess.Popen(
            [
                sys.executable,
                __file__,
                "--answer",
                *(f"--{name}={value}" for name, value in given.items()),
            ],
            env=values | {"HF_HUB_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *asked) -> dict:
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        if not (told := self.process.stdout.readline()):
            raise RuntimeError("a racing process ended: see above")
        return json.loads(told)

    def close(self):
        self.process.communicate()


def rounds_of(name: str, race: Race, rounds: int, lanes: dict[str, Lane], say) -> list[dict]:
    """A row a member, lane and round, in turns whose order moves on; an epoch of each before is not
    counted.
    """
    entries, told, found = (
        [(memory, member) for memory in lanes for member in MEMBERS],
        slots(race),
        [],
    )
    for memory, member in entries:
        lanes[memory].ask(name, member, 0, 1)
    for r in range(rounds):
        for memory, member in entries[r % len(entries) :] + entries[: r % len(entries)]:
            found.append(
                dict(
                    race=name,
                    records=len(race.train),
                    **told,
                    batch=race.settings.batch,
                    epochs=race.settings.epochs,
                    round=r,
                    memory=memory,
                    member=member,
                    **lanes[memory].ask(name, member, r, 0),
                )
            )
            say(found[-1])
    return found


def summary(frame: pd.DataFrame, clocked: str = "cpu") -> pd.DataFrame:
    """A row a race: records a second of each, how many times Trainer's ours are (within a round:
    each as it is used, and both with one allocator), development scores.
    """
    rows = {}
    for name, some in frame.groupby("race", sort=False):
        seconds, dev = (
            some.pivot(index="round", columns=["memory", "member"], values=v)
            for v in (clocked, "dev")
        )
        seen = some.records.iloc[0] * some.epochs.iloc[0]
        used = dict(zip(MEMBERS, zip(MEMORY, MEMBERS)))
        times = seconds[used["Trainer"]] / seconds[used["ours"]]
        rows[name] = {
            f"{m}, records a second": round(seen / seconds[at].median()) for m, at in used.items()
        }
        rows[name] |= dict(
            zip(("times", "least", "most"), (times.median(), times.min(), times.max()))
        )
        for memory in MEMORY:
            rows[name][f"times, memory {memory}"] = (
                seconds[memory].Trainer / seconds[memory].ours
            ).median()
        rows[name] |= {f"dev, {m}": dev[at].mean() for m, at in used.items()}
        rows[name]["sd of the difference"] = (dev[used["ours"]] - dev[used["Trainer"]]).std()
    return pd.DataFrame(rows).T


def options(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "races", nargs="*", help=f"some of {', '.join(RACES)}; default: all that there are data for"
    )
    parser.add_argument("--size", default="laptop", help="the scale of encoder and records")
    parser.add_argument("--steps", type=int, default=1000, help="of pretraining")
    parser.add_argument("--epochs", type=int, default=0, help="in the place of the task's own")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="cpu", help="cpu bears other load better"
    )
    parser.add_argument("--store", type=Path, help="keeps what is trained and read; default: none")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)  # a racing process
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/finetuning.csv")
    o = parser.parse_args(arguments)
    require(o.rounds >= 1, f"--rounds {o.rounds}: give at least 1")
    for name in o.races:
        require(name in RACES, f"{name!r} is no race: choose {', '.join(RACES)}")
    require(
        find_spec("accelerate"), "Trainer needs the package accelerate: pip install -e '.[dev]'"
    )
    o.races = o.races or [
        name for name, (_, corpus) in RACES.items() if corpus == "micro" or data_folder()
    ]
    return o


def written(path: Path, rows: list[dict]) -> None:
    """Put the rows of some races into a table, in the place of earlier ones of these races."""
    new = pd.DataFrame(rows)
    if path.exists():
        new = pd.concat([pd.read_csv(path).query("race not in @new.race"), new])
    new.to_csv(path, index=False, lineterminator="\n")


def main(arguments=None) -> pd.DataFrame:
    import torch

    o, found, lanes = options(arguments), [], {}
    if o.answer:
        return answer(o)
    torch.set_num_threads(1)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory() as folder:
        store = (o.store or Path(folder)).absolute()
        try:
            for name in o.races:
                race = make_race(name, o.size, o.steps, Store(store), o.epochs)
                lanes = lanes or {memory: Lane(memory, o, store) for memory in MEMORY}
                found += rounds_of(
                    name, race, o.rounds, lanes, lambda row: print(row, file=sys.stderr, flush=True)
                )
                written(o.output, found)
        finally:
            for lane in lanes.values():
                lane.close()
    frame = pd.DataFrame(found)
    print(summary(frame, o.clock).T.round(3).to_string())
    return frame


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
