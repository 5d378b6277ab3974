"""Is it the place of negation that inference does not cross between languages?

    python benchmarks/negation.py train --store runs --seeds 4
    python benchmarks/negation.py compare
    python benchmarks/negation.py train --corpus micro --arms preset redrawn --seeds 3 --output fifteen.csv

`train` adds the pairs that a model gets right, by language and by which sides are negated, to the table.
`compare` says what it does to move the negation, or (`--arms preset redrawn`) to give two languages other words.
README.md beside this file has the plans.
"""

import argparse
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from result_tables import RESULTS, add_options, put_rows, read_rows

from xlingual_nb.errors import require
from xlingual_nb.experiments.dials_common import set_typology
from xlingual_nb.experiments.liu2020_shifts import shift_model_spec
from xlingual_nb.experiments.wu2019_common import evaluation_languages, labelled_task_records
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
# Spanish and Swahili draw other words of their own: as they are, their negation is spelt like a function word of
# another language.
ARMS = {
    "preset": {},
    "moved": {l: {"negation": "before"} for l in AFTER}
    | {l: {"negation": "after"} for l in BEFORE},
    "redrawn": {"es": {"syllables": "CVC CV"}, "sw": {"syllables": "CVC"}},
}
# what is compared with `preset`, by arm: languages that stand together
GROUPS = {
    "moved": {"fr, de": AFTER, "es, el": BEFORE},
    "redrawn": {language: (language,) for language in ("es", "sw", "el")},
}
TITLES = {
    "pair": "both sentences in one input (notebook 12)",
    "siamese": "a vector a sentence (notebook 14)",
}
KEYS = ["scale", "corpus", "arm", "classifier", "seed", "language", "negated"]
LEARNT = 0.8  # English accuracy from which on there is something to transfer


def with_dials(value, dials: dict):
    """A spec in which the texts of some languages have other dials: `{"fr": {"negation": "before"}}`."""
    if isinstance(value, (CorpusSpec, RecordsSpec)):
        language = value.source.removeprefix("micro/")
        return set_typology(value, language, **dials[language]) if language in dials else value
    if isinstance(value, tuple):
        return tuple(with_dials(member, dials) for member in value)
    if not is_dataclass(value):
        return value
    changed = {f.name: with_dials(getattr(value, f.name), dials) for f in fields(value)}
    return replace(value, **changed)


def negated_sides(edit: str) -> str:
    """Which sides of a microworld pair are negated, by its edit: `plain>negated adverb`."""
    frame = edit.split()[0]
    if frame == "(negated)":
        return "both"
    return "one" if "negated" in frame.split(">") else "neither"


def classifiers(sizes) -> dict:
    """The classifiers of notebooks 12 and 14: a task and its settings by name."""
    return {
        "pair": (TUNED_NLI, sizes.tasks.tuning["nli"]),
        "siamese": (NLI, sizes.shifts.fine_tuning),
    }


def accuracy_lines(sizes, arm: str, seed: int, names: list[str], store: Store) -> list[dict]:
    """Lines of the table for one model: fine-tuned on English by each of the named classifiers and
    evaluated in all languages.
    """
    from xlingual_nb.models.encoders import load_encoder

    model = with_dials(shift_model_spec(sizes, seed), ARMS[arm])

    def labelled(part, language):
        return with_dials(labelled_task_records(sizes, "nli", language, part), ARMS[arm])

    train, dev = labelled("train", "en"), labelled("dev", "en")
    tests = {
        language: labelled("test", language) for language in evaluation_languages(sizes, "nli")
    }
    records = [side.records for side in (train, dev, *tests.values())]
    run([model, *records], store, progress=False)
    encoder = load_encoder(store.path(model), device())
    tokenizer = checkpoint_tokenizer(model, encoder, store)

    lines = []
    for name in names:
        task, settings = classifiers(sizes)[name]

        def encode(side, task=task):
            return encode_for_checkpoint(task, model, side, tokenizer, store, encoder)

        classifier = task.head.train(
            encoder, encode(train), encode(dev), settings, seed, lambda *_: None
        )
        for language, side in tests.items():
            inputs = encode(side)
            predictions = np.asarray(task.head.answer(encoder, classifier, inputs))
            pairs = read_records(store.path(side.records))
            frame = pd.DataFrame(
                {
                    "negated": [negated_sides(pair["edit"]) for pair in pairs],
                    "accuracy": predictions == np.asarray(inputs.gold),
                    "contradiction": predictions == LABELS.index("contradiction"),
                }
            )
            for negated, group in frame.groupby("negated"):
                line = dict(arm=arm, classifier=name, seed=seed, language=language)
                line |= dict(negated=negated, pairs=len(group))
                lines.append(line | group.mean(numeric_only=True).to_dict())
    return lines


def train(given, sizes) -> pd.DataFrame:
    """Add the models that the table lacks, one after the other."""
    store = Store(given.store)
    place = dict(scale=given.scale, corpus=sizes.label)
    table = read_rows(given.output, KEYS, **place)
    done = set(zip(table.arm, table.seed, table.classifier))
    for seed in range(given.first, given.first + given.seeds):
        for arm in given.arms:
            missing = [name for name in classifiers(sizes) if (arm, seed, name) not in done]
            if not missing:
                continue
            lines = accuracy_lines(sizes, arm, seed, missing, store)
            table = put_rows(given.output, [place | line for line in lines], KEYS, "%.4f")
            print(f"{arm}, seed {seed}", flush=True)
    return table


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracy over all pairs, a row a model and classifier and a column a language."""
    of = ["arm", "classifier", "seed", "language"]
    sums = (
        table.assign(accuracy=table.accuracy * table.pairs).groupby(of)[["accuracy", "pairs"]].sum()
    )
    return (sums.accuracy / sums.pairs).unstack()


def picture(wide: pd.DataFrame):
    """A panel a classifier: accuracy by language, a dot a model of either arm that learnt English."""
    from xlingual_nb.report import figures as draw

    draw.style()
    languages = ["en", *BEFORE, *AFTER]
    looks = {
        "preset": dict(label="negation on the side named below", marker="o", color=draw.INK[1]),
        "moved": dict(
            label="on the other side of the verb", marker="D", facecolors="none", color=draw.INK[0]
        ),
    }
    figure, axes = draw.panels(2, columns=2, height=2.6, sharey=True)
    for ax, name in zip(axes, ("pair", "siamese")):
        for place, (arm, look) in zip((-0.15, 0.15), looks.items()):
            models = wide.xs((arm, name), level=("arm", "classifier"))
            models = models.loc[models.en >= LEARNT, languages]
            at = np.tile(np.arange(len(languages)) + place, len(models))
            ax.scatter(at, models.to_numpy().ravel(), s=18, **look)
        ax.axhline(1 / 3, color=draw.INK[0], linestyle=":", label="a guess")
        ax.set(title=TITLES[name], ylim=(0, 1), xticks=range(len(languages)))
        ax.set_xticklabels([f"{l}\n{'after' if l in AFTER else 'before'}" for l in languages])
    axes[0].set_ylabel("NLI accuracy")
    draw.legend_below(figure, axes)
    return figure


CAPTION = (
    "NLI learnt in English and asked in four other languages of the microworld, as they are and with the negation "
    "on the other side of the verb; beneath a language, where it has its negation as it is; a dot is a model"
)


def compare(given, sizes) -> pd.DataFrame:
    """By classifier, what the last of the arms adds to `preset`, over the seeds whose models learnt English
    in both.
    """
    table = read_rows(given.output, KEYS, scale=given.scale, corpus=sizes.label)
    require(
        len(table),
        f"{given.output} has no model of corpus {sizes.label} at scale {given.scale}: train some first",
    )
    wide = accuracies(table)
    print(wide.round(3).to_string())
    shares = table.groupby(["classifier", "arm", "language", "negated"]).accuracy.mean().unstack()
    print(shares.round(3).to_string())

    if given.arms[-1] == "moved":
        from xlingual_nb.report import figures as draw

        draw.save(picture(wide), given.figure, CAPTION, claims=["W-transfers-nli"])
        write_atomic(given.figure.with_suffix(".csv"), wide.to_csv(float_format="%.4f"))

    trained = wide[wide.en >= LEARNT]
    lines = []
    for classifier, models in trained.groupby("classifier"):
        arms = {arm: models.xs(arm, level="arm") for arm in models.index.unique("arm")}
        if len(arms) < len(given.arms):
            continue
        for name, languages in GROUPS[given.arms[-1]].items():
            means = {arm: models[list(languages)].mean(axis=1) for arm, models in arms.items()}
            both = pd.DataFrame(means).dropna()
            if both.empty:
                continue
            before, after = (both[arm] for arm in given.arms)
            line = dict(classifier=classifier, languages=name, seeds=len(both))
            line |= {arm: both[arm].mean() for arm in given.arms}
            if len(both) > 1:
                added = contrast([(after - before).to_numpy()], [1.0])
                low, high = added.interval()
                line |= dict(added=added.value, low=low, high=high)
            lines.append(line)
    frame = pd.DataFrame(lines)
    write_atomic(given.summary, frame.to_csv(index=False, float_format="%.4g"))
    return frame


def main(argv=None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("do", choices=["train", "compare"])
    parser.add_argument("--corpus", default="micro-five", help="micro: fifteen languages")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["preset", "moved"])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=4, help="how many")
    add_options(parser, "negation.csv")
    parser.add_argument("--summary", type=Path, default=RESULTS / "negation-compared.csv")
    figure = ROOT / "figures/12_zero_shot-negation-laptop-micro-five.png"
    parser.add_argument("--figure", type=Path, default=figure)
    given = parser.parse_args(argv)
    sizes = zero_shot_config(given.scale, given.corpus)
    return {"train": train, "compare": compare}[given.do](given, sizes)


if __name__ == "__main__":
    print(main().to_string(index=False))
