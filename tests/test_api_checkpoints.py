"""`xl.pretrain`, what it leaves in a folder, and that it trains as the experiments do."""

import json
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models

import xlingual_nb as xl
from xlingual_nb.models import training
from xlingual_nb.models.checkpoints import tiny_checkpoint
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.store import Store
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec

SMALL = xl.PretrainingConfig(layers=2, hidden=16, epochs=2, vocab_size=200, max_tokens=32)


@pytest.fixture(scope="module")
def texts():
    english = xl.load_text("micro/en", sentences=60)
    return {"en": english, "fake": xl.fake_english(english)}


def weights(folder):
    return load_file(folder / "model.safetensors")


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize("name", ["bert-base-multilingual-cased", "intfloat/multilingual-e5-small"])
def test_a_name_of_the_hub_says_how_its_model_is_downloaded(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(xl.InputError, match=f"hf download {name}"):
        xl.load_checkpoint(name)
    with pytest.raises(xl.InputError) as refused:
        xl.load_checkpoint(tmp_path / "model")
    assert "config.json" in str(refused.value) and "hf download" not in str(refused.value)


def test_it_trains_what_the_engine_trains(texts, tmp_path):
    """The same texts and sizes as specs in a store give the same bits."""
    specs = []
    for language, sentences in texts.items():
        path = tmp_path / f"{language}.txt"
        path.write_text("\n".join(sentences), encoding="utf-8")
        specs.append(CorpusSpec(f"file:{path}"))
    languages = tuple(Language(name, spec) for name, spec in zip(texts, specs))
    spec = PretrainSpec(
        languages,
        TokenizerSpec(specs[0], 200, extra_corpora=(specs[1],)),
        Shape(2, 16, 1, 64, 32),
        Training(2, 32, 2e-3, 50),
    )
    run([spec], store := Store(tmp_path / "runs"), progress=False)
    ours = xl.pretrain(texts, SMALL, progress=False)
    assert equal(weights(store.path(spec)), weights(ours.folder))
    assert ours.loss.tolist() == [line["loss"] for line in training.read_log(store.path(spec))]


def test_a_named_folder_is_found_again_and_never_overwritten(texts, tmp_path):
    folder = tmp_path / "model"
    first = xl.pretrain(texts, SMALL, folder=folder, progress=False)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    again = xl.pretrain(texts, SMALL, folder=folder, progress=False)
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert again.loss.equals(first.loss) and again.config == SMALL
    for other in (dict(texts, fake=texts["en"]), {"en": texts["en"]}):
        with pytest.raises(xl.InputError, match="another folder"):
            xl.pretrain(other, SMALL, folder=folder, progress=False)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(xl.InputError, match="not empty"):
        xl.pretrain(texts, SMALL, folder=tmp_path, progress=False)


def test_a_training_that_was_stopped_goes_on(texts, tmp_path, monkeypatch):
    whole = xl.pretrain(texts, SMALL, progress=False)

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training, "save_checkpoint", stop)
        with pytest.raises(KeyboardInterrupt):
            xl.pretrain(texts, SMALL, folder=tmp_path / "model", progress=False)
    assert not (tmp_path / "model/model.safetensors").exists()
    resumed = xl.pretrain(texts, SMALL, folder=tmp_path / "model", progress=False)
    assert equal(weights(whole.folder), weights(resumed.folder))
    assert resumed.loss.equals(whole.loss) and not (resumed.folder / "resume").exists()


@pytest.mark.ci
def test_a_temporary_folder_is_gone_when_python_ends():
    code = """
import xlingual_nb as xl
text = {"en": xl.load_text("micro/en", sentences=20)}
config = xl.PretrainingConfig(layers=1, hidden=8, epochs=1, vocab_size=200)
folder = xl.pretrain(text, config).folder
assert (folder / "model.safetensors").is_file()
print(folder)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and not Path(done.stdout.strip()).exists()


def test_seeds_and_settings_make_other_models(texts):
    models = [
        weights(xl.pretrain(texts, replace(SMALL, **change), progress=False).folder)
        for change in ({}, dict(seed=1), dict(masking="no_random"), dict(whole_words=True))
    ]
    name = "bert.embeddings.word_embeddings.weight"
    assert len({float(model[name].double().sum()) for model in models}) == len(models)


def test_a_small_model_has_one_thread_whatever_torch_has(texts):
    before = torch.get_num_threads()
    models = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            models.append(weights(xl.pretrain(texts, SMALL, progress=False).folder))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert equal(*models)


def test_languages_may_have_positions_and_special_tokens_of_their_own(texts):
    config = replace(SMALL, lang_pos=True, shift_special=True)
    bert = xl.pretrain(texts, config, progress=False)
    en, fake = (bert.encoder.view(language) for language in texts)
    assert (en.position_offset, fake.position_offset) == (0, 32)
    assert (en.token_type, fake.token_type) == (0, 1)
    assert en.special_offset == 0 < fake.special_offset
    first, second = (bert.tokens([texts[l][0]], l)[0].split() for l in texts)
    assert first[0] == "[CLS]" and second[0] == "[CLS-fake]"


def test_what_the_model_reads_and_is_asked_for(texts):
    bert = xl.pretrain(texts, SMALL, progress=False)
    batch = bert.masked({language: text[:10] for language, text in texts.items()}, seed=3)
    assert batch.language.value_counts().to_dict() == {"en": 10, "fake": 10}
    for row, whole in zip(batch.itertuples(), bert.tokens(texts["en"][:10], "en")):
        read, targets = row.input.split(), row.targets.split()
        assert len(read) == len(whole.split())
        changed = [token for token, seen in zip(whole.split(), read) if token != seen]
        assert not Counter(changed) - Counter(targets)
    assert batch.input.str.contains("[MASK]", regex=False).any()
    assert not batch.equals(bert.masked({l: text[:10] for l, text in texts.items()}, seed=4))


def test_words_are_masked_whole_where_the_model_was_pretrained_so(texts):
    config = replace(SMALL, vocab_size=80, whole_words=True)
    bert = xl.pretrain(texts, config, progress=False)
    batch = bert.masked({"en": texts["en"]}, seed=1)
    n_words = 0
    for whole, targets in zip(bert.tokens(texts["en"], "en"), batch.targets.str.split()):
        words = whole.replace(" ##", "##").split()
        masked = " ".join(targets).replace(" ##", "##").split()
        assert not Counter(masked) - Counter(words)
        n_words += len(masked)
    assert n_words > 20 and batch.targets.str.contains("##").any()


def test_masked_is_of_models_with_the_special_tokens_of_pretrain(texts, tmp_path):
    path = tiny_checkpoint(tmp_path) / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    tokenizer["model"]["vocab"] |= {"[MASK]": 5, "w5": 4}
    for token in tokenizer["added_tokens"]:
        token["id"] = tokenizer["model"]["vocab"][token["content"]]
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    other = xl.load_checkpoint(tmp_path)
    vectors = xl.train_word_vectors(texts, size=8, epochs=1, progress=False)
    for model, sentences in ((other, ["w5 w6"]), (vectors, texts["en"])):
        with pytest.raises(xl.InputError, match="pretrain"):
            model.masked({"en": sentences})


def test_the_tokens_of_word_vectors_are_the_words_of_a_sentence(texts, tmp_path):
    vectors = xl.train_word_vectors(texts, size=8, epochs=1, progress=False)
    assert vectors.tokens(texts["fake"][:2], "fake") == texts["fake"][:2]
    (tmp_path / "a.vec").write_text("2 2\nde 0 1\nla 1 1\n")
    of_file = xl.load_checkpoint(tmp_path / "a.vec")
    assert of_file.tokens(["la de el"], "any") == ["la de [UNK]"]


def test_a_model_from_elsewhere_opens_without_a_training_behind_it(tmp_path):
    from xlingual_nb.models.checkpoints import tiny_checkpoint

    bert = xl.load_checkpoint(tiny_checkpoint(tmp_path))
    assert bert.languages == [] and bert.config is None and len(bert.loss) == 0
    table = xl.probe(tmp_path, {"en": ["w5 w6", "w7"], "de": ["w8", "w9 w9"]})
    assert isinstance(table, pd.DataFrame) and set(table.source) == {"en", "de"}


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    tiny_checkpoint(tmp_path / "model")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert xl.load_checkpoint("~/model").folder == tmp_path / "model"


def test_sentences_that_do_not_fit_are_told_before_a_training(texts):
    longer = {"en": [*texts["en"], " ".join(["fec"] * 30)], "fake": texts["fake"]}
    config = xl.PretrainingConfig(layers=1, hidden=16, epochs=1, max_tokens=30, tokenizer="words")
    with pytest.warns(UserWarning, match=f"1 of {len(longer['en'])} sentences of en "):
        xl.pretrain(longer, config, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xl.pretrain(longer, replace(config, max_tokens=32), progress=False)


@pytest.mark.parametrize("train", [xl.pretrain, xl.train_word_vectors])
def test_a_tokenizer_of_another_library_is_refused(texts, train, tmp_path):
    tokenizer = xl.load_checkpoint(tiny_checkpoint(tmp_path)).tokenizer
    with pytest.raises(xl.InputError):
        train(texts, tokenizer=tokenizer)


def test_a_tokenizer_with_other_special_tokens_is_refused_before_training(texts, tmp_path):
    words = sorted(set(" ".join(texts["en"]).split()))
    vocabulary = ["[PAD]", *words, "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    model = models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]")
    folder = tmp_path / "model"
    with pytest.raises(xl.InputError, match="train_tokenizer"):
        xl.pretrain(texts, SMALL, tokenizer=Tokenizer(model), folder=folder, progress=False)
    assert not folder.exists()


@pytest.mark.parametrize("train", [xl.pretrain, xl.train_word_vectors])
def test_what_a_tokenizer_cuts_and_pads_is_trained_on_as_it_is(texts, train):
    settings = dict(config=SMALL) if train is xl.pretrain else dict(size=8, epochs=1)
    trained = []
    for has_limits in (False, True):
        tokenizer = xl.train_tokenizer(texts, 200)
        if has_limits:
            tokenizer.enable_truncation(3)
            tokenizer.enable_padding(length=40, pad_id=7, pad_token="x")
        folder = train(texts, tokenizer=tokenizer, progress=False, **settings).folder
        trained.append(load_file(next(folder.glob("*.safetensors"))))
    assert equal(*trained)
    assert tokenizer.truncation["max_length"] == 3 and tokenizer.padding["length"] == 40


@pytest.mark.parametrize("method", ["word2vec", "fasttext"])
def test_word_vectors_without_gensim_say_how_it_is_installed(texts, method, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim", None)
    with pytest.raises(xl.InputError, match="gensim"):
        xl.train_word_vectors(texts, method, folder=tmp_path / "vectors", progress=False)
    assert not (tmp_path / "vectors").exists()


@pytest.mark.parametrize("method", ["glove", "word2vec"])
def test_word_vectors_are_trained_on_the_end_of_a_long_line_too(method):
    first, second = (" ".join(["a", "b"] * 100 + end) for end in (["c", "d"] * 5, ["d", "d"] * 5))
    tokenizer = xl.train_tokenizer([first], 10, "words")
    vectors = [
        xl.train_word_vectors(
            {"en": [line]}, method, 8, epochs=2, tokenizer=tokenizer
        ).encoder.vectors
        for line in (first, second)
    ]
    assert not torch.equal(*vectors)


def test_unknown_text_is_warned_of_once_for_each_measure(texts):
    bert = xl.pretrain(texts, SMALL, progress=False)
    mixed = {"en": ["Ωμέγα " + s for s in texts["en"][:5]], "fake": texts["fake"][:5]}
    with pytest.warns(UserWarning, match="unknown"):
        xl.probe(bert, mixed)
    with pytest.raises(xl.InputError, match="not 'xx'"):
        xl.probe(bert, {"en": texts["en"], "xx": texts["fake"]})


# --- neighbours and word vectors


def test_neighbours_stand_in_for_words_of_their_language_alone(texts):
    words = sorted(set(" ".join(texts["en"]).split()))
    neighbours = {"en": words, "fake": xl.fake_english(words)}
    config = replace(SMALL, tokenizer="words", vocab_size=300, masking="knn")
    bert = xl.pretrain(texts, config, neighbours=neighbours, progress=False)
    assert bert.config.masking == "knn"
    from xlingual_nb.api.checkpoints import neighbour_table

    tokenizer = xl.train_tokenizer(texts, 300, "words")
    table = neighbour_table(neighbours, tokenizer)
    vocabulary = tokenizer.get_vocab()
    for own, other in zip(words, neighbours["fake"]):
        assert table[0, vocabulary[own], 0, 0] == vocabulary[other]
        assert table[1, vocabulary[other], 0, 0] == vocabulary[own]
    assert (table >= 0).sum() == 2 * len(words)


def test_a_batch_shows_the_neighbours_that_it_is_given(texts):
    words = sorted(set(" ".join(texts["en"]).split()))
    translation = dict(zip(words, xl.fake_english(words)))
    neighbours = {"en": list(translation), "fake": list(translation.values())}
    config = replace(SMALL, tokenizer="words", vocab_size=300, masking="knn")
    bert = xl.pretrain(texts, config, neighbours=neighbours, progress=False)
    shown, plain = (
        table[table.language == "en"].input.str.split().explode().tolist()
        for table in (bert.masked(texts, 3, neighbours), bert.masked(texts, 3))
    )
    replaced = [(old, new) for old, new in zip(plain, shown) if old != new]
    assert replaced and all(new == translation[old] for old, new in replaced)
    unfit = {"en": neighbours["en"], "xx": neighbours["fake"]}
    with pytest.raises(xl.InputError, match="neighbours of en, xx"):
        bert.masked(texts, neighbours=unfit)


def test_a_model_without_neighbours_shows_none(texts):
    bert = xl.pretrain(texts, SMALL, progress=False)
    with pytest.raises(xl.InputError, match="masking='knn'"):
        bert.masked(texts, neighbours={"en": ["fec"], "fake": ["x"]})


@pytest.mark.parametrize(
    ("masking", "neighbours"),
    [
        ("knn", None),
        ("original", {"en": ["fec"], "fake": ["x"]}),
        ("knn", {"en": ["fec"]}),
        ("knn", {"en": ["fec"], "fake": ["x", "y"]}),
        ("knn", {"en": ["no such word"], "fake": ["x y"]}),
    ],
)
def test_neighbours_that_do_not_fit_are_refused(texts, masking, neighbours):
    with pytest.raises(xl.InputError, match="neighbours"):
        xl.pretrain(texts, replace(SMALL, masking=masking), neighbours=neighbours, progress=False)


def test_word_vectors_are_those_of_the_engine(texts, tmp_path):
    from xlingual_nb.models.configs import METHODS
    from xlingual_nb.models.word_embeddings import EmbedSpec

    specs = []
    for language, sentences in texts.items():
        path = tmp_path / f"{language}.txt"
        path.write_text("\n".join(sentences), encoding="utf-8")
        specs.append(CorpusSpec(f"file:{path}"))
    languages = tuple(Language(name, spec) for name, spec in zip(texts, specs))
    tokenizer = TokenizerSpec(specs[0], 250, "words", (specs[1],))
    method = replace(METHODS["glove"], epochs=3)
    spec = EmbedSpec(languages, tokenizer, method, size=8, window=3)
    run([spec], store := Store(tmp_path / "runs"), progress=False)
    ours = xl.train_word_vectors(
        texts,
        size=8,
        window=3,
        epochs=3,
        tokenizer=xl.train_tokenizer(texts, 250, "words"),
        progress=False,
    )
    theirs = load_file(store.path(spec) / "vectors.safetensors")["vectors"]
    assert torch.equal(theirs, load_file(ours.folder / "vectors.safetensors")["vectors"])
    assert xl.load_checkpoint(ours.folder).languages == ["en", "fake"]
    assert ours.loss.empty and ours.config is None


def test_word_vectors_are_measured_like_any_checkpoint(texts):
    words = sorted(set(" ".join(texts["en"]).split()))
    vectors = xl.train_word_vectors(texts, size=8, epochs=2, progress=False)
    table = xl.word_retrieval(vectors, texts, {"en": words, "fake": xl.fake_english(words)})
    assert table.index.tolist() == [0]
    with pytest.raises(xl.InputError):
        xl.fine_tune("pos", vectors, xl.load_records("pos", "micro/en", size=20), "en")
