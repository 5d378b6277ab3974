"""Is it the place of negation that inference does not cross between languages?

    python benchmarks/negation.py train --store runs --seeds 4
    python benchmarks/negation.py compare

`train` adds the pairs that a model gets right, by language and by which sides are negated, to the table.
`compare` says what it does to move the negation. README.md beside this file has the plan.
"""

import argparse
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from xlingual_nb.experiments.dials_common import set_typology
from xlingual_nb.experiments.liu2020_shifts import shift_model_spec
from xlingual_nb.experiments.wu2019_common import labelled_task_records
from xlingual_nb.experiments.zero_shot import zero_shot_config
from xlingual_nb.measures.statistics import contrast
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import device
from xlingual_nb.runs.files import write_atomic
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.nli import NLI
from xlingual_nb.tasks.task import checkpoint_tokenizer, encode_for_checkpoint
from xlingual_nb.tasks.zero_shot_classification import TUNED_NLI
from xlingual_nb.text.formats import LABELS
from xlingual_nb.text.records import RecordsSpec, read_records
from xlingual_nb.text.sources import CorpusSpec

ROOT = Path(__file__).resolve().parents[1]
# In the presets French and German negate after the verb, Spanish and Greek, as English, before it.
AFTER, BEFORE = ("fr", "de"), ("es", "el")
ARMS = {
    "preset": {},
    "moved": dict.fromkeys(AFTER, "before") | dict.fromkeys(BEFORE, "after"),
}
TITLES = {"pair": "both sentences in one input", "siamese": "a vector a sentence"}
LEARNT = 0.8  # English accuracy from which on there is something to transfer


def with_negation(value, places: dict):
    """A spec in which texts of some languages have the negation elsewhere: `{"fr": "before"}`."""
    if isinstance(value, (CorpusSpec, RecordsSpec)):
        language = value.source.removeprefix("micro/")
        if language not in places:
            return value
        return set_typology(value, language, negation=places[language])
    if isinstance(value, tuple):
        return tuple(with_negation(member, places) for member in value)
    if not is_dataclass(value):
        return value
    changed = {f.name: with_negation(getattr(value, f.name), places) for f in fields(value)}
    return replace(value, **changed)


def negated_sides(edit: str) -> str:
    """Which sides of a microworld pair are negated, by its edit: `plain>negated adverb`."""
    frame = edit.split()[0]
    if frame == "(negated)":
        return "both"
    return "one" if "negated" in frame.split(">") else "neither"


def heads(sizes) -> dict:
    """The classifiers: that of notebook 12 and that of notebook 14, each with its settings."""
    return {
        "pair": (TUNED_NLI, sizes.tasks.tuning["nli"]),
        "siamese": (NLI, sizes.shifts.fine_tuning),
    }


def pairs_right(sizes, arm: str, seed: int, wanted: list[str], store: Store) -> list[dict]:
    """Lines of the table for one model: it is fine-tuned on English, once a wanted head, and asked
    in all languages.
    """
    from xlingual_nb.models.encoders import load_encoder

    places = ARMS[arm]
    model = with_negation(shift_model_spec(sizes, seed), places)
    parts = {
        (part, language): with_negation(labelled_task_records(sizes, "nli", language, part), places)
        for part, languages in (
            ("train", ("en",)),
            ("dev", ("en",)),
            ("test", ("en", *AFTER, *BEFORE)),
        )
        for language in languages
    }
    run([model, *(labelled.records for labelled in parts.values())], store, progress=False)
    encoder = load_encoder(store.path(model), device())
    tokenizer = checkpoint_tokenizer(model, encoder, store)

    lines = []
    for head in wanted:
        task, settings = heads(sizes)[head]
        inputs = {
            key: encode_for_checkpoint(task, model, labelled, tokenizer, store, encoder)
            for key, labelled in parts.items()
        }
        learnt = task.head.train(
            encoder, inputs["train", "en"], inputs["dev", "en"], settings, seed, lambda *_: None
        )
        for (part, language), asked in inputs.items():
            if part != "test":
                continue
            records = read_records(store.path(parts[part, language].records))
            answers = np.asarray(task.head.answer(encoder, learnt, asked))
            frame = pd.DataFrame(
                {
                    "negated": [negated_sides(record["edit"]) for record in records],
                    "right": answers == np.asarray(asked.gold),
                    "contradiction": answers == LABELS.index("contradiction"),
                }
            )
            for negated, group in frame.groupby("negated"):
                name = dict(arm=arm, head=head, seed=seed, language=language, negated=negated)
                lines.append(
                    name | dict(pairs=len(group)) | group.mean(numeric_only=True).to_dict()
                )
    return lines


def train(given, sizes) -> pd.DataFrame:
    """Add the models that the table lacks, one after the other."""
    store = Store(given.store)
    table = pd.read_csv(given.output) if given.output.exists() else pd.DataFrame()
    known = set() if table.empty else set(zip(table.arm, table.seed, table["head"]))
    for seed in range(given.first, given.first + given.seeds):
        for arm in ARMS:
            wanted = [head for head in heads(sizes) if (arm, seed, head) not in known]
            if not wanted:
                continue
            lines = pd.DataFrame(pairs_right(sizes, arm, seed, wanted, store))
            table = pd.concat([table, lines], ignore_index=True)
            write_atomic(given.output, table.to_csv(index=False, float_format="%.4f"))
            print(f"{arm}, seed {seed}", flush=True)
    return table


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracy over all pairs, a row a model and head and a column a language."""
    of = ["arm", "head", "seed", "language"]
    sums = table.assign(right=table.right * table.pairs).groupby(of)[["right", "pairs"]].sum()
    return (sums.right / sums.pairs).unstack()


def picture(wide: pd.DataFrame):
    """A panel a head: accuracy by language, a dot a model of either arm that learnt English."""
    from xlingual_nb.report import figures as draw

    draw.style()
    languages = ["en", *BEFORE, *AFTER]
    looks = {
        "preset": dict(label="as they are", marker="o", color=draw.INK[1]),
        "moved": dict(label="negation moved", marker="D", facecolors="none", color=draw.INK[0]),
    }
    figure, axes = draw.panels(2, columns=2, height=2.6, sharey=True)
    for ax, head in zip(axes, ("pair", "siamese")):
        for place, (arm, look) in zip((-0.15, 0.15), looks.items()):
            models = wide.xs((arm, head), level=("arm", "head"))
            models = models.loc[models.en >= LEARNT, languages]
            at = np.tile(np.arange(len(languages)) + place, len(models))
            ax.scatter(at, models.to_numpy().ravel(), s=18, **look)
        ax.axhline(1 / 3, color=draw.INK[0], linestyle=":", label="a guess")
        ax.set(title=TITLES[head], ylim=(0, 1), xticks=range(len(languages)))
        ax.set_xticklabels([f"{l}\n{'after' if l in AFTER else 'before'}" for l in languages])
    axes[0].set_ylabel("NLI accuracy")
    draw.legend_below(figure, axes)
    return figure


CAPTION = (
    "NLI learnt in English and asked in four other languages of the microworld, as they are and with the negation "
    "on the other side of the verb; beneath a language, where it has its negation as it is; a dot is a model"
)


def compare(given, sizes=None) -> pd.DataFrame:
    """By head, what moving the negation adds to the accuracy of either two languages, over the seeds
    whose models learnt English in both arms.
    """
    table = pd.read_csv(given.output)
    wide = accuracies(table)
    print(wide.round(3).to_string())
    shares = table.groupby(["head", "arm", "language", "negated"]).right.mean().unstack()
    print(shares.round(3).to_string())

    from xlingual_nb.report import figures as draw

    draw.save(picture(wide), given.figure, CAPTION, claims=["W-transfers-nli"])
    write_atomic(given.figure.with_suffix(".csv"), wide.to_csv(float_format="%.4f"))
    learnt = wide[wide.en >= LEARNT]
    means = pd.DataFrame({"fr, de": learnt[[*AFTER]].mean(axis=1)})
    means["es, el"] = learnt[[*BEFORE]].mean(axis=1)
    lines = []
    for head in heads_of(means):
        arms = {arm: means.xs((arm, head), level=("arm", "head")) for arm in ARMS}
        both = pd.concat(arms, axis=1, join="inner")  # seeds that learnt English in both
        for languages in means.columns:
            preset, moved = both["preset", languages], both["moved", languages]
            line = dict(head=head, languages=languages, seeds=len(both))
            line |= dict(preset=preset.mean(), moved=moved.mean())
            if len(both) > 1:
                added = contrast([(moved - preset).to_numpy()], [1.0])
                low, high = added.interval()
                line |= dict(added=added.value, low=low, high=high)
            lines.append(line)
    frame = pd.DataFrame(lines)
    write_atomic(given.summary, frame.to_csv(index=False, float_format="%.4g"))
    return frame


def heads_of(means: pd.DataFrame) -> list[str]:
    """The heads with models that learnt English in both arms."""
    by_head = means.reset_index().groupby("head").arm.nunique()
    return sorted(by_head[by_head == len(ARMS)].index)


def main(argv=None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("do", choices=["train", "compare"])
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=4, help="how many")
    parser.add_argument("--store", type=Path, default=Path("runs"))
    results = ROOT / "benchmarks/results"
    parser.add_argument("--output", type=Path, default=results / "negation.csv")
    parser.add_argument("--summary", type=Path, default=results / "negation-compared.csv")
    figure = ROOT / "figures/12_zero_shot-negation-laptop-micro-five.png"
    parser.add_argument("--figure", type=Path, default=figure)
    given = parser.parse_args(argv)
    sizes = zero_shot_config(given.scale, "micro-five")
    return {"train": train, "compare": compare}[given.do](given, sizes)


if __name__ == "__main__":
    print(main().to_string(index=False))
