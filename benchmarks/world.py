"""Which sizes let English align with languages of another order? Words, retrieval and transfer of
one model each.

    python benchmarks/world.py "" "base.training.steps = 12000" "kind = 'words'; words = 1200" --store runs

README.md beside this file says how to read the table.
"""

import argparse
import tomllib
from pathlib import Path

import pandas as pd
from result_tables import RESULTS, put_rows

from xlingual_nb.experiments import k2020_common
from xlingual_nb.experiments.scales import bilingual_config
from xlingual_nb.measures.word_retrieval import WordSpec
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import load_json
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store
from xlingual_nb.text.dictionaries import Dictionary

SOURCES = "en", "enfake"
NAMED = ["setting", "seed", "source", "target"]


def sizes_with(setting: str):
    """The sizes of K's study at laptop scale in the microworld, with a section's keys on top: TOML,
    `;` between them.
    """
    section = {"like": "laptop.micro"} | tomllib.loads(setting.replace(";", "\n"))
    return bilingual_config(
        "laptop", "trial", user_config={"study": "k2020", "laptop": {"trial": section}}
    )


def words(sizes, model, pair) -> WordSpec:
    """The words of a pair that are not spelt alike, in a thousand sentences of each."""
    texts = tuple(k2020_common.language_corpus(sizes, language) for language in pair)
    return WordSpec(model, pair, texts, Dictionary("micro", "odd", identical=False), sentences=1000)


def questions(sizes, model, pair) -> dict:
    """What is asked of a model: words (the dictionary has none of Fake-English), sentences, two
    tasks.
    """
    asked = {
        "found": k2020_common.retrieval_spec(sizes, model, *pair),
        "nli": k2020_common.nli_spec(sizes, model, pair[0], pair[1:]),
        "ner": k2020_common.ner_specs(sizes, model, pair[0], pair[1:])[0],
    }
    return asked if pair[0] != SOURCES[0] else asked | {"words": words(sizes, model, pair)}


def answers(store: Store, asked: dict, pair) -> dict:
    """A row's numbers: P@1 and MRR of the upper layer, and their chance; retrieval; accuracy and F1
    at home and abroad.
    """
    told, (source, target) = (
        {name: stage_of(spec).values(store.path(spec)) for name, spec in asked.items()},
        pair,
    )
    found, nli, ner = told["found"], told["nli"], told["ner"]
    upper, known = f"layers {found['layer_upper']:.0f}", told.get("words", {})
    return {
        "P@1": known.get(f"{upper} p1"),
        "MRR": known.get(f"{upper} mrr"),
        "chance": known.get("chance"),
        "retrieval": found["rho_upper"],
        "perplexity": found["perplexity_dev"],
        "nli source": nli[f"accuracy {source}|{source}"],
        "nli": nli[f"accuracy {target}|{target}"],
        "ner source": ner[f"f1 {source}"],
        "ner": ner[f"f1 {target}"],
    }


def rows(setting: str, asked: argparse.Namespace, store: Store) -> list[dict]:
    """A row a target; the models of a setting train as one stack, and share its seconds."""
    sizes, told = sizes_with(setting), []
    pairs = [(asked.source, target) for target in asked.targets or sizes.targets]
    models = {pair: k2020_common.bbert_spec(sizes, pair, asked.seed) for pair in pairs}
    run(list(models.values()), store, Inline(), stack=len(models))
    for pair, model in models.items():
        asks = questions(sizes, model, pair)
        run(list(asks.values()), store, Inline())
        took = load_json(store.path(model) / "manifest.json")["seconds"]
        named = {
            "setting": setting or "as it is",
            "seed": asked.seed,
            "source": pair[0],
            "target": pair[1],
        }
        told.append(named | answers(store, asks, pair) | {"pretraining (s)": took})
    return told


def options(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "settings", nargs="+", help="keys of a section of sizes/k2020.toml, as TOML; '' for none"
    )
    parser.add_argument("--targets", nargs="*", default=())
    parser.add_argument("--source", choices=SOURCES, default=SOURCES[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", type=Path, default=Path("runs"))
    parser.add_argument("--output", type=Path, default=RESULTS / "world.csv")
    return parser.parse_args(argv)


def main(argv=None) -> pd.DataFrame:
    """Put rows into the table, in the place of those of the same setting, seed and pair, as soon as
    they are there.
    """
    asked = options(argv)
    for setting in asked.settings:
        found = rows(setting, asked, Store(asked.store))
        table = put_rows(asked.output, found, NAMED)
        print(pd.DataFrame(found).to_string(index=False), end="\n\n", flush=True)
    return table


if __name__ == "__main__":
    main()
