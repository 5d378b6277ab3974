"""`import xlingual_nb as xl`: what is there, what is not, and that every example says what comes out."""

import ast
import doctest
import inspect
import re
import rlcompleter
from pathlib import Path

import pandas as pd
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import xlingual_nb as xl

SOURCE = Path(xl.__file__).read_text(encoding="utf-8")


# --- the surface


def test_dir_and_completion_show_the_surface_and_nothing_else():
    assert dir(xl) == sorted(xl.__all__)
    complete = rlcompleter.Completer({"xl": xl}).attr_matches
    assert {match.rstrip("()").removeprefix("xl.") for match in complete("xl.")} == set(xl.__all__)


def test_editors_and_the_docstring_know_what_python_finds():
    """Names that `__getattr__` finds, imports that only a type checker sees, and the list in the
    docstring are the same.
    """
    guarded = next(node for node in ast.parse(SOURCE).body if isinstance(node, ast.If))
    seen = {alias.name for node in guarded.body for alias in node.names}
    told = set(re.findall(r"`(\w+)`", xl.__doc__))
    assert seen == set(xl.__all__) == told


def test_the_examples_of_the_docstring_hold():
    failures, tries = doctest.testmod(xl, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tries > 1 and failures == 0


def test_what_is_not_there_is_no_attribute():
    with pytest.raises(AttributeError, match="Corpus"):
        xl.Corpus  # noqa: B018
    assert not hasattr(xl, "pandas")


@pytest.mark.parametrize("name", xl.__all__)
def test_every_name_is_documented_and_its_examples_hold(name):
    value = getattr(xl, name)
    document = inspect.getdoc(value)
    assert len(document.splitlines()[0]) > 20
    if name == "InputError":
        return
    assert "Examples\n-----" in document
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in finder.find(value, name, globs={}):
        runner.run(test)
    assert runner.tries > 1 and runner.failures == 0


@pytest.mark.parametrize("name", [n for n in xl.__all__ if inspect.isfunction(getattr(xl, n))])
def test_every_argument_and_result_has_a_type(name):
    signature = inspect.signature(getattr(xl, name))
    untyped = [
        p.name
        for p in signature.parameters.values()
        if p.annotation is p.empty and p.kind is not p.VAR_KEYWORD
    ]
    assert signature.return_annotation is not signature.empty and untyped == []


# --- texts


def test_transforms_of_records_see_all_texts_at_once():
    """A permutation numbers its sentences: those of equal length must not all get one order."""
    records = [dict(premise="a b c d e f", hypothesis="a b c d e f") for _ in range(20)]
    permuted = xl.transform_records(xl.permute, records)
    orders = {record[side] for record in permuted for side in record}
    assert len(orders) > 20
    assert {"".join(sorted(order.replace(" ", ""))) for order in orders} == {"abcdef"}


def test_a_transform_of_records_must_keep_their_number():
    with pytest.raises(xl.InputError, match="keeps their number"):
        xl.transform_records(lambda texts: texts[1:], [dict(premise="a", hypothesis="b")])


def test_fake_english_can_be_looked_at():
    copy = xl.fake_english(["the old house ."])
    assert xl.romanize([f"[CLS] {copy[0]} [SEP]", "über 東"]) == [
        "[CLS] THE OLD HOUSE . [SEP]",
        "über 東",
    ]


@pytest.mark.parametrize(
    "transform", [xl.fake_english, xl.romanize, xl.permute, xl.invert, xl.frequency_corpus]
)
@pytest.mark.parametrize(
    "wrong",
    [
        "a string",
        [],
        ["a", 1],
        Path("text.txt"),
        {"a", "b"},
        {"a": "b"},
        pd.DataFrame({"a": ["b"]}),
    ],
    ids=["string", "empty", "number", "path", "set", "dict", "table"],
)
def test_what_is_no_list_of_sentences_is_refused(transform, wrong):
    with pytest.raises(xl.InputError):
        transform(wrong)


@pytest.mark.parametrize("words", [0, 2.5, "4"])
def test_windows_have_a_whole_number_of_words(words):
    with pytest.raises(xl.InputError, match="words="):
        xl.slice_windows(["the old house by the river"], words)


def test_parallel_texts_keep_what_all_languages_have():
    sources = {"en": "micro/en", "es": "micro/es", "ru": "micro/ru"}
    texts = xl.load_parallel_text(sources, sentences=7)
    assert [len(text) for text in texts.values()] == [7, 7, 7]
    assert texts["ru"] == xl.load_text("micro/ru", sentences=7)


def test_no_number_of_sentences_of_parallel_files_is_all_of_them(tmp_path):
    sources = {}
    for language in ("en", "es"):
        path = tmp_path / f"{language}.txt"
        path.write_text("".join(f"{language} {i}\n" for i in range(12)), encoding="utf-8")
        sources[language] = f"file:{path}"
    assert len(xl.load_parallel_text(sources, sentences=0)["en"]) == 12
    assert len(xl.load_parallel_text(sources, sentences=2)["en"]) == 2
    with pytest.raises(xl.InputError):
        xl.load_parallel_text(sources, sentences=-1)


def test_parallel_files_have_one_part_and_may_lie_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    sources = {}
    for language in ("en", "es"):
        lines = "".join(f"{language} {i}\n" for i in range(12))
        (tmp_path / f"{language}.txt").write_text(lines, encoding="utf-8")
        sources[language] = f"file:~/{language}.txt"
    assert len(xl.load_parallel_text(sources)["es"]) == 12
    with pytest.raises(xl.InputError, match="part='test'"):
        xl.load_parallel_text(sources, "test")


@pytest.fixture
def bibles(tmp_path):
    """Verses 1 to 20 and 11 to 30 of a chapter."""
    sources = {}
    for language, first in (("en", 1), ("es", 11)):
        path = tmp_path / f"{language}.tsv"
        verses = [f"MAT.1.{i}\t{language} {i}\n" for i in range(first, first + 20)]
        path.write_text("".join(verses), encoding="utf-8")
        sources[language] = f"file:{path}"
    return sources


def test_verses_are_counted_after_those_of_one_language_alone_are_out(bibles):
    texts = xl.load_parallel_text(bibles, sentences=4)
    assert texts == {name: [f"{name} {i}" for i in range(11, 15)] for name in ("en", "es")}
    assert len(xl.load_parallel_text(bibles)["en"]) == 10
    with pytest.raises(xl.InputError):
        xl.load_parallel_text(bibles, sentences=-1)


def test_verses_of_which_none_is_shared_are_refused(bibles):
    with pytest.raises(xl.InputError, match="micro/ru"):
        xl.load_parallel_text(bibles | {"ru": "micro/ru"})


# --- tokenizers


def own_tokenizer(words):
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def test_the_first_words_of_a_vocabulary_are_subwords_and_unknown_text_is_none():
    tokenizer = own_tokenizer([",", "de", "la", "el", "en", "un", "[UNK]", "[SEP]"])
    table = xl.subword_overlap({"fr": [", de x [SEP]"], "es": [", la y [SEP]"]}, tokenizer)
    assert table.types[0] == pytest.approx(1 / 3) and table.tokens[0] == 1 / 2


def test_unknown_text_of_a_unigram_model_is_no_shared_subword():
    scores = [(word, -1.0) for word in ("a", "b", "c", "d", "e", "unknown")]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=5))
    assert xl.subword_overlap({"en": ["aax"], "es": ["bby"]}, tokenizer).tokens[0] == 0
    assert xl.subword_overlap({"en": ["aax"], "es": ["aby"]}, tokenizer).tokens[0] == 3 / 4


def test_a_vector_file_has_no_special_tokens_among_its_first_words(tmp_path):
    words = [",", "de", "la", "el", "en", "un"]
    rows = [f"{word} {i} 1" for i, word in enumerate(words)]
    (tmp_path / "a.vec").write_text("\n".join(["6 2", *rows]) + "\n")
    vectors = xl.load_checkpoint(tmp_path / "a.vec")
    table = xl.subword_overlap({"fr": [", de x"], "es": [", la y"]}, vectors)
    assert table.tokens[0] == 1 / 2


def test_overlap_is_of_whole_texts_whatever_the_tokenizer_cuts_and_pads():
    tokenizer = xl.train_tokenizer(["a b c d e f"], 50, "words")
    texts = {"en": ["a b c d"], "es": ["e f c d"]}
    whole = xl.subword_overlap(texts, tokenizer)
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=8, pad_id=tokenizer.token_to_id("a"), pad_token="a")
    limits = tokenizer.truncation, tokenizer.padding
    assert xl.subword_overlap(texts, tokenizer).equals(whole) and whole.tokens[0] == 1 / 2
    assert (tokenizer.truncation, tokenizer.padding) == limits


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: xl.PretrainingConfig(epochs=1.5),
        lambda: xl.PretrainingConfig(layers=True),
        lambda: xl.PretrainingConfig(learning_rate="1e-3"),
        lambda: xl.PretrainingConfig(snapshots=50),
        lambda: xl.FineTuningConfig(epochs=2.0),
        lambda: xl.pretrain({"en": ["a"]}, {"epochs": 1}),
        lambda: xl.load_checkpoint(None),
        lambda: xl.load_parallel_text(["micro/en", "micro/es"]),
        lambda: xl.subword_overlap({"en": ["a"], "es": ["b"]}, "a name"),
    ],
)
def test_an_argument_of_another_kind_is_refused_at_once(wrong):
    with pytest.raises(xl.InputError):
        wrong()


def test_a_dictionary_is_of_the_words_of_both_texts():
    sources = {"en": "micro/en", "es": "micro/es"}
    words = xl.load_dictionary(sources)
    text = xl.load_parallel_text(sources, sentences=3000)
    for language, side in words.items():
        assert set(side) <= set(" ".join(text[language]).split())
    every = xl.load_dictionary(sources, translations="any")
    assert set(zip(*words.values())) < set(zip(*every.values()))
    with pytest.raises(xl.InputError):
        xl.load_dictionary({"en": "micro/en"})


# --- papers and results


def test_every_listed_table_can_be_asked_for():
    for row in xl.tables().itertuples():
        if row.printed:
            assert len(xl.published(row.table))
        if row.reference:
            assert len(xl.reference_results(row.table))


def test_reference_results_stand_beside_what_is_printed():
    table = xl.reference_results("D Table 1", scale="paper")
    printed = xl.published("D Table 1").set_index(["row", "column"]).value
    beside = table.dropna(subset="published")
    assert len(beside) > 20
    assert (printed[list(zip(beside.row, beside.column))].to_numpy() == beside.published).all()


def test_a_table_of_two_notebooks_says_which_a_row_is_of():
    table = xl.reference_results("D Table 1")
    of_one = table[(table.corpus == "micro") & (table.row == "0 original") & (table.column == "µ")]
    assert of_one.notebook.tolist() == ["07_laboratory", "08_knn_replace"]


def test_claims_are_those_of_all_papers_and_the_tested_ones_have_a_verdict():
    claims = xl.claims()
    of_papers = [set(xl.claims(letter).claim) for letter in ("K", "W", "D", "L1", "L2")]
    assert set(claims.claim) == set.union(*of_papers)
    tested = claims.dropna(subset="effect")
    assert len(tested) > 50 and tested.verdict.notna().all()
    assert set(xl.claims("D").paper) == {"dufter2020"}


@pytest.mark.parametrize("wrong", ["K Table 99", "Table 2", "K", ""])
def test_an_unknown_table_is_one_error(wrong):
    for look_up in (xl.published, xl.reference_results):
        with pytest.raises(xl.InputError, match="table"):
            look_up(wrong)
