"""Texts that are compared say the same; where they do not, one line names both and what they
share.
"""

import pytest
import torch

from xlingual_nb.errors import InputError
from xlingual_nb.measures.multilinguality import MeasureSpec, development_ids, measuring_cost
from xlingual_nb.measures.probe import encode_text, probe
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.models.pretraining import Language, PretrainSpec, token_ids
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.runs.engine import plan, run
from xlingual_nb.runs.store import Store
from xlingual_nb.text import tokenizers
from xlingual_nb.text.corpora import Corpus
from xlingual_nb.text.parallel import (
    load_parallel_sentences,
    parallel_sentences,
    parallel_words,
    read_parallel_corpora,
)
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

torch.set_num_threads(1)
NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()


def verses(path, keys, word):
    path.write_text("".join(f"{key}\t{word} {NUMBERS[i % 12]} {i}\n" for i, key in enumerate(keys)))
    return path


def keys(book, n):
    return [f"{book}.1.{i}" for i in range(1, n + 1)]


@pytest.fixture
def study(tmp_path):
    """A model of two languages; the development text of the second, a New Testament, has `shared`
    verses of the first's.
    """

    def made(shared):
        old = verses(tmp_path / "en-old.tsv", keys("GEN", 40), "old")
        new = verses(
            tmp_path / f"es-new{shared}.tsv", keys("GEN", shared) + keys("MAT", 40), "nuevo"
        )
        dev, other = CorpusSpec(f"file:{old}"), CorpusSpec(f"file:{new}")
        train = [
            CorpusSpec(f"micro/{name}", parameters=(("sentences", 30),)) for name in ("en", "es")
        ]
        languages = tuple(Language(name, text) for name, text in zip(("en", "es"), train))
        vocabulary = TokenizerSpec(train[0], 80, "wordpiece", (train[1],))
        model = PretrainSpec(
            languages, vocabulary, Shape(1, 8, 1, 16, 32), Training(steps=2, batch=4)
        )
        return MeasureSpec(model, dev, other=other, words="none")

    return made


@pytest.mark.parametrize("shared", [0, 9])
def test_a_testament_that_is_missing_is_told_before_anything_is_trained(study, tmp_path, shared):
    spec, store = study(shared), Store(tmp_path / "runs")
    for asked in (
        lambda: plan([spec], store, speed=1e9),
        lambda: run([spec], store, progress=False),
    ):
        with pytest.raises(InputError) as refusal:
            asked()
        said = str(refusal.value)
        for word in (
            "en-old.tsv",
            f"es-new{shared}.tsv",
            f"share {shared} ",
            "at least 10",
            "GEN.1.1",
            "MAT.1.40",
        ):
            assert word in said
        assert "\n" not in said
    assert not list(store.root.glob("pretrain/*/*")) and not list(store.root.glob("corpus/*/*"))


def test_ten_common_verses_are_enough(study, tmp_path):
    spec, store = study(10), Store(tmp_path / "runs")
    run([spec], store, progress=False)
    assert store.read(spec)["sentences"] == 10
    counted = measuring_cost(spec)["flops"]
    assert counted < measuring_cost(study(30))["flops"]  # what is compared is what costs


def test_the_run_itself_refuses_too(study, tmp_path):
    spec, store = study(0), Store(tmp_path / "runs")
    run([spec.dev, spec.other, spec.checkpoint.tokenizer], store, progress=False)
    tokenizer = tokenizers.read_tokenizer(store.path(spec.checkpoint.tokenizer))
    with pytest.raises(InputError, match="en-old.*es-new0.*share 0"):
        read_parallel_corpora(store, spec.dev, spec.other)
    with pytest.raises(InputError, match="share 0"):
        development_ids(spec, tokenizer, store)


def test_an_empty_text_stays_empty(study, tmp_path):
    spec, store = study(0), Store(tmp_path / "runs")
    run([spec.checkpoint.tokenizer], store, progress=False)
    tokenizer, (language, _) = (
        tokenizers.read_tokenizer(store.path(spec.checkpoint.tokenizer)),
        spec.checkpoint.languages,
    )
    assert len(token_ids(language, tokenizer, store, 16)) == 30
    assert len(token_ids(language, tokenizer, store, 16, corpus=Corpus("en", ()))) == 0


def test_own_development_texts_share_ten_sentences():
    def text(language, book, n):
        return Corpus(language, (tuple(NUMBERS[:n]),), (tuple(keys(book, n)),))

    places = dict(en="own.toml, text.dev (en)", es="own.toml, text.dev (es)")
    with pytest.raises(InputError, match=r"own.toml, text.dev \(en\).*\(es\).*share 0"):
        parallel_sentences(dict(en=text("en", "GEN", 12), es=text("es", "MAT", 12)), places)
    with pytest.raises(InputError, match="share 9 sentences, at least 10"):
        parallel_sentences(dict(en=text("en", "GEN", 12), es=text("es", "GEN", 9)), places)
    assert (
        len(
            parallel_sentences(dict(en=text("en", "GEN", 12), es=text("es", "GEN", 10)), places)[
                "en"
            ]
        )
        == 10
    )


def test_texts_without_ids_whose_blank_lines_differ_are_refused():
    one = Corpus("en", (tuple(NUMBERS[:7]), tuple(NUMBERS[7:])))
    other = Corpus("es", (tuple(NUMBERS[:5]), tuple(NUMBERS[5:])))
    with pytest.raises(InputError, match="blank line.*sentence 5"):
        parallel_sentences(dict(en=one, es=other), {})
    assert parallel_sentences(dict(en=one, es=one), {})["es"] == NUMBERS


# --- own text of the probe


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_checkpoint(tiny_checkpoint(tmp_path_factory.mktemp("probe"), words=64))


def two_files(folder, first, second):
    for name, lines in dict(en=first, es=second).items():
        (folder / f"{name}.txt").write_text("".join(line + "\n" for line in lines))
    return dict(en=folder / "en.txt", es=folder / "es.txt")


def retrieval(model, texts):
    table = probe(
        model, {name: encode_text(model, lines, name) for name, lines in texts.items()}, layers=(0,)
    )
    return table[table.measure == "rho"].value.min()


LINES = [f"w{5 + i} w{6 + i} w{(7 * i) % 50 + 5}" for i in range(40)]


def test_a_blank_line_keeps_its_place(tmp_path, model):
    one, other = LINES.copy(), LINES.copy()
    one[2], other[30] = "", " "
    texts, told = load_parallel_sentences(["en", "es"], two_files(tmp_path, one, other))
    assert texts["en"] == texts["es"] == [line for i, line in enumerate(LINES) if i not in (2, 30)]
    assert retrieval(model, texts) == 1
    assert (
        "38 sentences" in told
        and "2 lines left out, empty in one of the languages" in told
        and "(3, 31)" in told
    )


def test_the_microworld_is_for_models_that_have_read_it(monkeypatch):
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    assert "micro/en" in load_parallel_sentences(["en", "es"], sentences=10)[1]
    with pytest.raises(InputError, match="--text en=FILE --text es=FILE"):
        load_parallel_sentences(["en", "es"], micro=False)


def test_a_dictionary_has_ten_pairs_or_more(tmp_path):
    """A word that stands twice counts once: retrieval among one word is always right."""
    lines, file = [f"w{i} v{i}" for i in range(9)], tmp_path / "d.txt"
    file.write_text("\n".join([*lines, "w3 v9"]))
    with pytest.raises(InputError, match="d.txt has 9 pairs of words.*at least 10"):
        parallel_words(["en", "es"], {}, file)
    file.write_text("\n".join([*lines, "w9 v9"]))
    assert parallel_words(["en", "es"], {}, file)["es"] == [f"v{i}" for i in range(10)]


def test_a_blank_line_on_both_sides_parts_documents_and_is_no_fault(tmp_path):
    lines = [*LINES[:20], "", *LINES[20:]]
    texts, told = load_parallel_sentences(
        ["en", "es"], two_files(tmp_path, lines, [*lines, "", ""])
    )
    assert texts["es"] == LINES and "left out" not in told


def test_verses_that_one_file_has_in_one_row_are_no_rows_of_any(tmp_path, model):
    """As eBible's line-aligned files: `<range>` follows the row with the text of all its verses."""
    other = LINES.copy()
    other[5], other[6], other[7] = "w5 w9 w9", "<range>", "<range>"
    texts, told = load_parallel_sentences(["en", "es"], two_files(tmp_path, LINES, other))
    assert texts["en"] == texts["es"] == LINES[:5] + LINES[8:]
    assert retrieval(model, texts) == 1 and "(6, 7, 8)" in told


def test_files_of_one_length_may_end_in_blank_rows_of_their_own(tmp_path):
    """A New Testament beside a whole Bible, row by row."""
    one, other = [*LINES[:25], *[""] * 15], [*LINES[:30], *[""] * 10]
    texts, _ = load_parallel_sentences(["en", "es"], two_files(tmp_path, one, other))
    assert texts["en"] == texts["es"] == LINES[:25]
    with pytest.raises(InputError, match="en.txt has 42 lines and .*es.txt has 43 lines"):
        files = two_files(tmp_path, [*LINES, "", ""], [*LINES, "", "", "more"])
        load_parallel_sentences(["en", "es"], files)


@pytest.mark.parametrize(
    "one, other, says",
    [
        (LINES, LINES[:-1], "en.txt has 40 lines and .*es.txt has 39 lines"),
        ([*LINES[:5], "", *LINES[5:]], LINES, "en.txt has 41 lines and .*es.txt has 40 lines"),
        (LINES[:9], LINES[:9], "9 lines are there in every language, at least 10"),
        ([*[""] * 35, *LINES[35:]], LINES, "5 lines are there in every language"),
    ],
)
def test_what_is_no_line_for_line_translation_is_one_line(tmp_path, one, other, says):
    with pytest.raises(InputError, match=says) as refusal:
        load_parallel_sentences(["en", "es"], two_files(tmp_path, one, other))
    assert "\n" not in str(refusal.value)


def test_verses_of_a_range_are_in_no_pair(tmp_path):
    verses = {f"MAT.5.{n}": f"Lause {n}." for n in range(1, 20)}
    other = {name: text.replace("Lause", "Mening") for name, text in verses.items()}
    other |= {"MAT.5.7": "<range>", "MAT.5.8": "<range>"}
    files = {}
    for language, texts in (("fi", verses), ("sv", other)):
        files[language] = tmp_path / f"{language}.tsv"
        files[language].write_text("".join(f"{name}\t{text}\n" for name, text in texts.items()))
    texts, _ = load_parallel_sentences(["fi", "sv"], files)
    kept = [n for n in range(1, 20) if n not in (6, 7, 8)]
    assert texts["fi"] == [f"Lause {n}." for n in kept]
    assert texts["sv"] == [f"Mening {n}." for n in kept]
