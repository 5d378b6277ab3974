"""Joint spaces of word vectors: GloVe against its definition, windows against planted text, runs
against themselves.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from xlingual_nb import cli, microworld
from xlingual_nb.errors import InputError
from xlingual_nb.measures.multilinguality import MeasureSpec, measuring_cost
from xlingual_nb.measures.retrieval import precision_at_1
from xlingual_nb.models import glove, word_embeddings
from xlingual_nb.models.word_embeddings import (
    MAX_GENSIM_TOKENS,
    EmbedSpec,
    train_glove,
    train_gensim,
    mixed_text,
)
from xlingual_nb.models.encoders import load_encoder
from xlingual_nb.models.pretraining import Language, PretrainSpec, split_into_chunks
from xlingual_nb.models.configs import METHODS, Glove, LinearTagging, Shape, Training, Word2Vec
from xlingual_nb.runs import engine, plan
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.sequence_labelling import PosSpec
from xlingual_nb.text import tokenizers
from xlingual_nb.text.records import LabelledRecords, RecordsSpec
from xlingual_nb.text.sources import CorpusSpec, load_spec
from xlingual_nb.text.tokenizers import Encoded
from xlingual_nb.text.vocabularies import TokenizerSpec

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parents[1]
TEXT = CorpusSpec("micro/en", parameters=(("sentences", 80),))
PAIR = Language("en", TEXT), Language("enfake", TEXT, ("enfake",))
PROGRAMS = {
    "word2vec": Word2Vec(),
    "cbow": Word2Vec(skip_gram=False),
    "fasttext": METHODS["fasttext"],
    "glove": Glove(epochs=5),
}


def spec(languages=PAIR, method=Word2Vec(), **fields):
    return EmbedSpec(
        languages, TokenizerSpec(TEXT, 133, "words"), method, **(dict(size=8) | fields)
    )


@pytest.fixture(scope="module")
def store(shared_store):
    engine.run(
        [spec().tokenizer, *(spec(method=method) for method in PROGRAMS.values())],
        shared_store,
        progress=False,
    )
    return shared_store


def train(text, entries, method, **fields):
    """Vectors of a text that is given as lists of ids."""
    names = [f"w{i}" for i in range(entries)]
    by = train_glove if isinstance(method, Glove) else train_gensim
    return torch.as_tensor(
        by(spec(method=method, **fields), Encoded.of(text), names, lambda done, total: None)
    )


# --- GloVe

texts = st.lists(st.lists(st.integers(0, 6), max_size=9), min_size=1, max_size=8)


@given(texts, st.integers(1, 12), st.integers(1, 40))
def test_counts_are_those_of_two_loops(text, window, pairs):
    plain = np.zeros((7, 7))
    for sentence in text:
        for i, first in enumerate(sentence):
            for j, second in enumerate(sentence):
                if 0 < abs(i - j) <= window:
                    plain[first, second] += 1 / abs(i - j)
    assert np.allclose(
        glove.cooccurrences(Encoded.of(text), 7, window, pairs).toarray(), plain, rtol=1e-12
    )


def cells_of(size, count, seed):
    dice = torch.Generator().manual_seed(seed)
    first, second = (torch.randint(size, (count,), generator=dice) for _ in range(2))
    return first, second, *(torch.rand(count, generator=dice, dtype=torch.double) for _ in range(2))


def loss(first, second, bias, other, cells):
    """As the paper writes it: two vectors and two biases a word."""
    i, j, logs, weights = cells
    return (weights * ((first[i] * second[j]).sum(1) + bias[i] + other[j] - logs) ** 2).sum() / 2


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_the_formula(seed):
    """Forty cells on nine words, so that every word has several, some of them twice."""
    cells, tables = cells_of(9, 40, seed), [t.double() for t in glove.initial_tables(9, 4, seed)]
    parts = [
        t.clone().requires_grad_()
        for t in (tables[0][:, :4], tables[1][:, :4], tables[0][:, 4], tables[1][:, 5])
    ]
    loss(*parts, cells).backward()
    wanted = [
        torch.cat([parts[0].grad, parts[2].grad[:, None]], 1),
        torch.cat([parts[1].grad, parts[3].grad[:, None]], 1),
    ]
    for (rows, slope), gradient, own in zip(
        glove.gradients(tables, cells), wanted, ([0, 1, 2, 3, 4], [0, 1, 2, 3, 5])
    ):
        untouched = np.setdiff1d(np.arange(9), rows)
        assert (
            torch.allclose(slope[:, own], gradient[rows], rtol=1e-10, atol=1e-14)
            and not gradient[untouched].any()
        )


def test_a_batch_of_one_is_a_step_a_cell(doubles):
    """AdaGrad written out, one cell after another, on the vectors and biases that the tables
    hold.
    """
    cells, method = cells_of(6, 30, 0), Glove()
    tables, plain = ([t.double() for t in glove.initial_tables(6, 3, 0)] for _ in range(2))
    squares, sums = ([torch.ones(6, 5).double() for _ in range(2)] for _ in range(2))
    for n in range(30):
        glove.adagrad_step(
            tables, squares, [column[n : n + 1] for column in cells], method.learning_rate
        )
        i, j, log, weight = (column[n] for column in cells)
        rest = weight * (plain[0][i] @ plain[1][j] - log)
        for table, total, own, slope, one in zip(
            plain, sums, (i, j), (rest * plain[1][j], rest * plain[0][i]), (-1, -2)
        ):
            slope[one] = 0
            total[own] += slope**2
            table[own] = table[own] - method.learning_rate * slope / total[own].sqrt()
    for ours, theirs in zip(tables, plain):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rank", [2, 4])
def test_planted_counts_of_low_rank_are_recovered(rank):
    from scipy.sparse import csr_array

    dice = np.random.default_rng(rank)
    logs = (
        dice.normal(size=(50, rank)) @ dice.normal(size=(rank, 50))
        + dice.normal(size=(50, 1))
        + dice.normal(size=50)
    )
    seen = dice.random((50, 50)) < 0.6  # a table with holes
    counts = csr_array(np.where(seen, np.exp(logs), 0))
    fitting = Glove(epochs=150, power=0, batch=250, learning_rate=0.2)
    first, second = (table.numpy() for table in glove.train_tables(counts, fitting, rank))
    assert (first @ second.T - logs)[~seen].std() < 0.01 * logs.std(), (
        "the holes are filled as they were planted"
    )
    lacking = glove.train_tables(counts, fitting, rank - 1)
    assert ((lacking[0] @ lacking[1].T).numpy() - logs)[seen].std() > 0.1 * logs.std(), (
        "a column less is not enough"
    )


# --- windows


def planted(distance, pairs=6, fillers=40, repeats=80):
    """Words 2k and 2k + 1 are seen with one and the same third word, `distance` places before it,
    and with noise besides: the ids of all lists are below 3 * pairs + fillers.
    """
    dice, text = np.random.default_rng(0), []
    for n in range(repeats * pairs * 2):
        word = n % (2 * pairs)
        between = dice.integers(3 * pairs, 3 * pairs + fillers, distance - 1)
        text.append([word, *between, 2 * pairs + word // 2])
    return text, np.arange(0, 2 * pairs, 2), 3 * pairs + fillers


@pytest.mark.parametrize("skip_gram", [True, False], ids=["skip-gram", "cbow"])
def test_the_window_is_as_wide_as_it_says(skip_gram):
    """(GloVe's window is in its counts, which are held against two loops above.)"""
    text, words, size = planted(4)
    thorough, found = Word2Vec(epochs=20, sample=0, shrink=False, skip_gram=skip_gram), {}
    for window in (3, 4):
        vectors = train(text, size, thorough, size=16, window=window)
        found[window] = precision_at_1(vectors[words], vectors[words + 1])
    assert found[4] > 0.9 > 0.5 > found[3], found


def test_windows_end_with_sentences_or_with_documents(tmp_path):
    (tmp_path / "two.txt").write_text("a b\nc d\n\ne f\n", encoding="utf-8")
    own = Language("en", CorpusSpec(f"file:{tmp_path / 'two.txt'}"))
    asked = EmbedSpec((own,), TokenizerSpec(own.corpus, 11, "words"), size=4, window=1)
    store = Store(tmp_path / "store")
    engine.run([asked.tokenizer], store, progress=False)
    tokenizer = tokenizers.read_tokenizer(store.path(asked.tokenizer))
    read = {
        inputs: mixed_text(replace(asked, inputs=inputs), tokenizer, store)
        for inputs in ("sentences", "documents")
    }
    said = {
        inputs: sorted("".join(tokenizer.id_to_token(i) for i in ids) for ids in text)
        for inputs, text in read.items()
    }
    assert said == dict(sentences=["ab", "cd", "ef"], documents=["abcd", "ef"])
    near = {inputs: glove.cooccurrences(text, 11, 1).nnz / 2 for inputs, text in read.items()}
    assert near == dict(sentences=3, documents=4)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=9), st.data())
def test_pieces_lose_nothing(lengths, data):
    text = Encoded.of(np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1]))
    cuts = (
        sorted(data.draw(st.sets(st.integers(1, len(text) - 1), max_size=4)))
        if len(text) > 1
        else []
    )
    cut = split_into_chunks(text, np.array([*cuts, len(text)]), 3)
    assert cut.ids.tolist() == text.ids.tolist() and cut.lengths.max(initial=0) <= 3
    assert set(text.starts[cuts]) <= set(cut.starts)


def test_gensim_would_drop_what_lies_beyond_its_longest_text():
    """Words 2 and 3 come after ten thousand others: uncut they stay where they began, whatever the
    number of epochs.
    """
    text = [0, 1] * 5000 + [2, 3] * 500

    def moved(sentences):
        begun, ended = (
            train(sentences, 4, Word2Vec(epochs=n, sample=0, learning_rate=rate))
            for n, rate in ((1, 1e-9), (3, 0.025))
        )
        return ((begun - ended).abs().max(1).values > 1e-4).tolist()

    assert moved([text]) == [True, True, False, False]
    assert moved(split_into_chunks(Encoded.of([text]), [1], MAX_GENSIM_TOKENS)) == [True] * 4


# --- runs


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_is_a_folder_behind_the_one_door(store, name):
    asked = spec(method=PROGRAMS[name])
    encoder, size = (
        load_encoder(store.path(asked)),
        tokenizers.read_tokenizer(store.path(asked.tokenizer)).get_vocab_size(),
    )
    assert (encoder.depth, encoder.width, encoder.vocabulary) == (0, 8, 2 * size)
    assert encoder.view("enfake").token_offset == size
    text = mixed_text(asked, tokenizers.read_tokenizer(store.path(asked.tokenizer)), store)
    assert np.flatnonzero(encoder.vectors.any(1).numpy()).tolist() == np.unique(text.ids).tolist()


def test_fake_english_is_not_given_away_by_its_letters(store):
    encoder = load_encoder(store.path(spec(method=METHODS["fasttext"])))
    size = encoder.vocabulary // 2
    known = np.flatnonzero(encoder.vectors[:size].any(1).numpy())
    assert precision_at_1(encoder.vectors[known], encoder.vectors[known + size]) < 0.1


def test_the_probe_takes_it(store, tmp_path, monkeypatch):
    """Languages enter it as they did in training, so Fake-English is read from the same words."""
    (tmp_path / "en.txt").write_text(
        "\n".join(microworld.corpus("en", "dev", sentences=20).sentences), encoding="utf-8"
    )
    texts = [f"--text={name}={tmp_path}/en.txt" for name in ("en", "enfake")]
    told = CliRunner().invoke(
        cli.app, ["probe", str(store.path(spec())), *texts, "--out", str(tmp_path / "out.csv")]
    )
    assert told.exit_code == 0 and "rho en>enfake" in told.output, told.output
    rows = [line.split(",")[:3] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert rows == [
        [measure, *pair]
        for measure in ("rho", "tau")
        for pair in (["en", "enfake"], ["enfake", "en"])
    ] + [["mu", "en", "enfake"]]
    monkeypatch.delenv("XLINGUAL_DATA", raising=False)
    told = CliRunner().invoke(cli.app, ["probe", str(store.path(spec()))])
    assert told.exit_code == 0 and "1000 sentences of micro/en" in told.output, (
        "a run of the microworld's needs no text"
    )


def test_a_task_reads_it_like_a_checkpoint(store):
    def said(part, n):
        return LabelledRecords("en", RecordsSpec("pos", "micro/en", part, n))

    asked = PosSpec(
        spec(), said("train", 60), said("dev", 20), (said("test", 20),), LinearTagging(steps=5)
    )
    engine.run([asked], store, progress=False)
    assert 0 < store.read(asked)["accuracy"]["en"] <= 1


def test_the_measures_of_a_checkpoint_are_those_of_its_table(store):
    """Sentence retrieval of English and Fake-English by means of rows; there is one layer, and
    nothing that predicts words.
    """
    held_out = CorpusSpec("micro/en", "dev", (("sentences", 20),))
    asked, space = MeasureSpec(spec(), held_out), load_encoder(store.path(spec()))
    engine.run([asked], store, progress=False)
    found, size = store.read(asked), space.vocabulary // 2
    text = tokenizers.encode(
        tokenizers.read_tokenizer(store.path(asked.checkpoint.tokenizer)),
        load_spec(held_out).sentences,
    )
    means = [
        torch.stack([space.vectors[torch.as_tensor(ids + offset)].mean(0) for ids in text])
        for offset in (0, size)
    ]
    both = (precision_at_1(*means) + precision_at_1(*means[::-1])) / 2
    assert (
        found["rho_lower"] == found["rho_upper"] == pytest.approx(both, abs=1e-6)
        and found["layer_upper"] == 0
    )
    assert 0 <= found["mu"] <= 1 and not [name for name in found if "perplexity" in name]
    assert measuring_cost(asked)["flops"] == 0
    with pytest.raises(InputError, match="keeps snapshots at .*; choose"):
        replace(asked, percent=50)


TWICE = """
import sys
sys.path.insert(0, "tests")
from test_word_embeddings import PROGRAMS, spec
from xlingual_nb.runs import engine
from xlingual_nb.runs.store import Store
engine.run([spec(method=method) for method in PROGRAMS.values()], Store(sys.argv[1]), progress=False)"""


@pytest.mark.ci
def test_two_processes_give_equal_bytes(store, tmp_path):
    """The hash of a string differs from process to process; no vector does."""
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-c", TWICE, str(tmp_path / "again")],
        cwd=ROOT,
        env=environment,
        check=True,
    )
    again = Store(tmp_path / "again")
    for name, method in PROGRAMS.items():
        for file in ("vectors.safetensors", "tokenizer.json", "config.json"):
            one, other = (kept.path(spec(method=method)) / file for kept in (store, again))
            assert one.read_bytes() == other.read_bytes(), (name, file)


@pytest.mark.parametrize("name", PROGRAMS)
def test_another_seed_is_another_space(store, name):
    first, second = spec(method=PROGRAMS[name]), spec(method=PROGRAMS[name], seed=1)
    engine.run([second], store, progress=False)
    one, other = (load_encoder(store.path(s)).vectors for s in (first, second))
    assert one.shape == other.shape and not torch.equal(one, other)


# --- what is refused, before anything is trained


@pytest.mark.parametrize(
    "fields, says",
    [
        (dict(size=0), "size=0"),
        (dict(window=0), "window=0"),
        (dict(max_tokens=2), "max_tokens=2"),
        (dict(seed=-1), "seed=-1"),
        (dict(method="lsa"), "'lsa' is not known"),
        (dict(inputs="pages"), "inputs='pages'"),
        (dict(languages=()), "no language"),
        (dict(languages=PAIR[:1] * 2), "a name of its own"),
        (dict(languages=(Language("en", TEXT, ("half(0)",)),), inputs="documents"), "drop half"),
    ],
)
def test_fields_that_make_no_sense(fields, says):
    with pytest.raises(InputError, match=says) as refusal:
        spec(**fields)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: Word2Vec(epochs=0), "epochs=0"),
        (lambda: Word2Vec(negative=0), "negative=0"),
        (lambda: Word2Vec(sample=1.0), "sample=1"),
        (lambda: Word2Vec(letters=(6, 3)), "letters"),
        (lambda: Word2Vec(letters=(3,)), "letters"),
        (lambda: Word2Vec(buckets=0), "buckets=0"),
        (lambda: Glove(epochs=0), "epochs=0"),
        (lambda: Glove(batch=0), "batch=0"),
        (lambda: Glove(x_max=0.0), "x_max=0"),
        (lambda: Glove(power=-1.0), "power=-1"),
    ],
)
def test_settings_that_make_no_sense(make, says):
    with pytest.raises(InputError, match=says):
        make()


@pytest.mark.parametrize("method", [Word2Vec(), Glove()], ids=["word2vec", "glove"])
def test_a_language_with_less_text_than_a_window(tmp_path, method, monkeypatch):
    """Told by its words before anything is trained; where those are not asked, by its tokens before
    its space is.
    """
    (tmp_path / "es.txt").write_text("la casa vieja .\n", encoding="utf-8")
    short = Language("es", CorpusSpec(f"file:{tmp_path / 'es.txt'}"))
    trained, made, store = [], spec((PAIR[0], short), method), Store(tmp_path / "store")
    bert = PretrainSpec(PAIR, spec().tokenizer, Shape(1, 8, 1, 8, 32), Training(epochs=1))
    for by in ("train_gensim", "train_glove"):
        monkeypatch.setattr(word_embeddings, by, lambda *args: trained.append(args))
    for call in (
        lambda: plan.plan([bert, made], store, speed=1e9),
        lambda: engine.run([bert, made], store, progress=False),
    ):
        with pytest.raises(
            InputError,
            match="^es: 4 words of text for a window of 5: give more text or a smaller window$",
        ):
            call()
    assert not store.path(bert).exists()
    monkeypatch.setattr(word_embeddings, "check_text_length", lambda spec: None)
    with pytest.raises(InputError, match="es: 4 tokens of text for a window of 5"):
        engine.run([made], store, progress=False)
    assert trained == []


def test_characters_that_stand_alone_are_words_of_a_text(tmp_path):
    (tmp_path / "zh.txt").write_text("我们都是好人们\n", encoding="utf-8")
    word_embeddings.check_text_length(
        spec((PAIR[0], Language("zh", CorpusSpec(f"file:{tmp_path / 'zh.txt'}"))))
    )


def test_without_gensim_what_to_install_is_said_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim", None)
    bert = PretrainSpec(PAIR, spec().tokenizer, Shape(1, 8, 1, 8, 32), Training(epochs=1))
    both, store = [bert, spec()], Store(tmp_path / "store")
    for call in (
        lambda: plan.plan(both, store, speed=1e9),
        lambda: engine.run(both, store, progress=False),
    ):
        with pytest.raises(InputError, match=r"gensim is missing: pip install .*\[lab\]"):
            call()
    assert not store.path(bert).exists()
    engine.run(
        [spec(method=Glove(epochs=1))], Store(tmp_path / "other"), progress=False
    )  # which needs no gensim


def test_a_plan_prices_it(tmp_path):
    many = [spec(method=method, size=size) for method in PROGRAMS.values() for size in (8, 16)]
    priced = plan.plan(many, Store(tmp_path), speed=1e9).set_index("stage").loc["embed"]
    assert priced.runs == len(many) and priced.FLOPs > 0 and priced.gigabytes > 0

    def flops(**fields):
        return word_embeddings.embedding_cost(spec(**fields))["flops"]

    assert (
        flops(size=16) == 2 * flops()
        and flops(window=11) == 2 * flops()
        and flops(method=Word2Vec(epochs=10)) == 2 * flops()
    )
