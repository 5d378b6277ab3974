"""The ten recipes of docs/recipes.md, on small files of the microworld: each runs as it stands."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import xlingual_nb as xl

PAGE = (Path(__file__).resolve().parents[1] / "docs/recipes.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", PAGE, re.M | re.S))


def write_vectors(path, words, vectors):
    rows = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, vectors)]
    path.write_text(f"{len(words)} {vectors.shape[1]}\n" + "\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files by the names that the page uses."""
    folder = tmp_path_factory.mktemp("recipes")
    sources = {"en": "micro/en", "es": "micro/es"}
    texts = xl.load_parallel_text(sources, sentences=60, vocabulary=96)
    for language, sentences in texts.items():
        (folder / f"{language}.txt").write_text("\n".join(sentences) + "\n")
        for part, size in (("train", 60), ("test", 20)):
            records = xl.load_records("ner", sources[language], part, size=size, vocabulary=96)
            blocks = [
                "\n".join(f"{token}\t{tag}" for token, tag in zip(r["tokens"], r["tags"]))
                for r in records
            ]
            (folder / f"{part}.{language}.conll").write_text("\n\n".join(blocks) + "\n")
    (folder / "my.txt").write_text("The old house by the river is empty.\n" * 30)
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(200, 20)) ** 3
    rotation = np.linalg.qr(generator.normal(size=(20, 20)))[0]
    write_vectors(folder / "en.vec", [f"en{i}" for i in range(200)], vectors)
    write_vectors(folder / "es.vec", [f"es{i}" for i in range(200)], vectors @ rotation)
    (folder / "path/to").mkdir(parents=True)
    config = xl.PretrainingConfig(layers=2, hidden=16, epochs=1, tokenizer="characters")
    letters = {"en": [*texts["en"], "abcdefghijklmnopqrstuvwxyz"], "es": texts["es"]}
    xl.pretrain(letters, config, folder=folder / "path/to/model", progress=False)
    return folder


def permuted_words(result):
    first = result["permuted"][0].split()
    return sorted(first) == sorted(result["text"][0].split()) and first != result["text"][0].split()


CHECKS = {
    "Fake-English of your text": lambda result: (
        not set("".join(result["fake"]).replace(" ", "")) & set("".join(result["text"]))
        and Path("fake.txt").read_text(encoding="utf-8").splitlines() == result["fake"]
    ),
    "Permute words": permuted_words,
    "µ of your model": lambda result: 0 <= result["score"].mu <= 1,
    "The mean of a language, and the way to another": lambda result: (
        (result["shift"].means["es"][1] - result["mean"] - result["shift"].vectors[1]).abs().max()
        < 1e-5
    ),
    "Subword overlap": lambda result: (
        result["overlap"].tokens.between(0, 1).all() and len(result["of_model"]) == 1
    ),
    "Language identity by layer": lambda result: list(result["accuracy"].index) == [0, 1, 2],
    "B-BERT on two text files": lambda result: (
        result["bert"].loss.iloc[-1] < result["bert"].loss.iloc[0]
        and xl.load_checkpoint("en-es").languages == ["en", "es"]
    ),
    "Zero-shot NER": lambda result: list(result["f1"].index) == ["en", "es"],
    "VecMap on two files of word vectors": lambda result: (
        [word[2:] for word in result["words"]] == [word[2:] for word in result["translations"]]
    ),
    "A figure like D's Figure 5": lambda result: (
        Path("original.png").stat().st_size > 5_000 and Path("lang-pos.png").stat().st_size > 5_000
    ),
}


def test_there_are_ten():
    assert list(RECIPES) == list(CHECKS) and len(RECIPES) == 10


@pytest.mark.parametrize("title", CHECKS)
@pytest.mark.filterwarnings("ignore:.*pairs of words:UserWarning")
def test_a_recipe_runs_as_it_stands(title, folder, monkeypatch):
    monkeypatch.chdir(folder)
    variables = {"__name__": "recipe"}
    exec(compile(RECIPES[title], title, "exec"), variables)
    assert CHECKS[title](variables)
    plt.close("all")
