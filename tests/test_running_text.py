"""Running text as input: documents cut where an input is full, openings of training, and whether it
was learnt, against brute force.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from transformers import AutoModelForMaskedLM
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings

from xlingual_nb.errors import InputError
from xlingual_nb.measures.multilinguality import FitSpec, fit_inputs, read_fit
from xlingual_nb.measures.perplexity import unigram_nll
from xlingual_nb.measures.contextual_words import (
    Finder,
    LocatedWords,
    slice_long_sentences,
    word_means,
)
from xlingual_nb.models import training as loop
from xlingual_nb.models.mlm_batches import (
    MASKS,
    SLICES,
    assemble_batch,
    seeded_generator,
    make_batch,
    build_sentence_dataset,
    slice_examples,
)
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.models.encoder import POSITIONS, BatchedModels, sinusoidal_positions
from xlingual_nb.models.pretraining import Language, PretrainSpec, pretraining_dataset, document_ids
from xlingual_nb.models.configs import MASKING, LanguageView, Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.spec import canonical
from xlingual_nb.text import tokenizers
from xlingual_nb.text.sources import CorpusSpec, read_corpus
from xlingual_nb.text.tokenizers import Encoded
from xlingual_nb.text.vocabularies import TokenizerSpec

TEXTS = [
    CorpusSpec(f"micro/{name}", parameters=(("sentences", 60), ("seed", f"text {name}")))
    for name in ("en", "es")
]
DEV = tuple(CorpusSpec(f"micro/{name}", "dev", (("sentences", 30),)) for name in ("en", "es"))
LANGUAGES = tuple(Language(text.source.removeprefix("micro/"), text) for text in TEXTS)
VOCABULARY = TokenizerSpec(TEXTS[0], 160, "wordpiece", (TEXTS[1],))


def spec(longest=12, training=Training(0, 8, steps=3), **rest):
    return PretrainSpec(
        LANGUAGES,
        VOCABULARY,
        Shape(1, 8, 1, 16, longest, 256),
        training,
        **dict(inputs="documents") | rest,
    )


@pytest.fixture(scope="module")
def store(shared_store):
    run([FitSpec(spec(), DEV)], shared_store, Inline(), progress=False)
    return shared_store


@pytest.fixture(scope="module")
def tokenizer(store):
    return tokenizers.read_tokenizer(store.path(VOCABULARY))


# ---- documents


@pytest.mark.parametrize("longest", (7, 12, 22, 256))
def test_inputs_are_the_documents_cut_where_they_are_full(store, tokenizer, longest):
    """Token by token: a list for each document, cut from its beginning on."""
    wanted = []
    for language in LANGUAGES:
        for document in read_corpus(store.path(language.corpus)).documents:
            tokens = [
                i
                for sentence in document
                for i in tokenizer.encode(sentence, add_special_tokens=False).ids
            ]
            while tokens:
                wanted, tokens = [*wanted, tokens[: longest - 2]], tokens[longest - 2 :]
    made = pretraining_dataset(spec(longest), tokenizer, store)
    assert [made.ids[a : a + n].tolist() for a, n in made.first] == wanted
    assert made.language.tolist() == sorted(made.language) and not made.second.any()


def test_fake_english_is_cut_where_english_is(store, tokenizer):
    fake = Language("enfake", TEXTS[0], ("enfake",))
    both = replace(spec(), languages=(LANGUAGES[0], fake))
    plain, shifted = (document_ids(both, language, tokenizer, store) for language in both.languages)
    assert plain.starts.tolist() == shifted.starts.tolist()
    assert set((shifted.ids - plain.ids).tolist()) == {tokenizer.get_vocab_size()}


@pytest.mark.parametrize(
    "wrong, told",
    (
        (dict(inputs="pages"), "inputs='pages': choose sentences, documents, pairs"),
        (
            dict(languages=tuple(replace(l, transforms=("half(0)",)) for l in LANGUAGES)),
            "half of the sentences make no documents: drop half(…)",
        ),
        (
            dict(inputs="pairs", training=Training(opening=1, opening_slice=4)),
            "opening_slice cuts inputs of one segment: set inputs='sentences' or 'documents'",
        ),
    ),
)
def test_what_cannot_be_read_is_refused(wrong, told):
    with pytest.raises(InputError) as error:
        replace(spec(), **wrong)
    assert str(error.value) == told


# ---- openings


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(1, 9), st.integers(0, 99))
def test_slices_lose_nothing_and_are_full_but_for_the_ends(lengths, most, seed):
    texts = [Encoded.of(np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1]))] * 2
    whole = build_sentence_dataset(
        texts, [LanguageView("a"), LanguageView("b")], 999, max_tokens=64
    )
    asked = seeded_generator(0, seed).permutation(len(whole))[:5]
    cut = slice_examples(whole, asked, most, seeded_generator(SLICES, seed))
    at = iter(zip(cut.first.tolist(), cut.language.tolist()))
    for (start, length), language in zip(
        whole.first[asked].tolist(), whole.language[asked].tolist()
    ):
        place, sizes = start, []
        while place < start + length or not sizes:
            (begin, size), spoken = next(at)
            assert begin == place and spoken == language
            place, sizes = place + size, [*sizes, size]
        assert place == start + length and max(sizes) <= most and set(sizes[1:-1]) <= {most}
    assert next(at, None) is None


def test_slices_begin_anywhere():
    whole = build_sentence_dataset(
        [Encoded.of([range(40)])], [LanguageView("a")], 99, max_tokens=64
    )
    heads = [
        int(slice_examples(whole, np.array([0]), 8, seeded_generator(SLICES, seed)).first[0, 1])
        for seed in range(800)
    ]
    assert np.bincount(heads, minlength=9)[1:].min() > 70 and set(heads) == {*range(1, 9)}


def test_an_opening_ends_and_leaves_no_trace(store, tokenizer):
    """Before it ends a batch is the slices' with more masks; from then on it is, array by array,
    what it is without.
    """
    made = pretraining_dataset(spec(64), tokenizer, store)
    job = loop.TrainingJob(made, MASKING["original"], seed=5, tokenizer=None, folder=None)
    usual, opened = (
        Training(batch=16),
        Training(batch=16, opening=2, opening_rate=0.6, opening_slice=5),
    )
    asked, rows = np.arange(16), (24, 64)
    for step in (1, 2):
        cut = slice_examples(made, asked, 5, seeded_generator(SLICES, 5, step))
        whole = make_batch(made, asked, job.masking, rows, seeded_generator(MASKS, 5, step))
        short = make_batch(
            cut,
            np.arange(len(cut)),
            replace(job.masking, rate=0.6),
            rows,
            seeded_generator(MASKS, 5, step),
        )
        read = [loop.job_batch(job, training, asked, step, rows) for training in (usual, opened)]
        for batch, wanted in zip(read, (whole, short if step < 2 else whole)):
            assert all(
                (batch.groups[g][k] == wanted.groups[g][k]).all()
                for g in (0, 1)
                for k in wanted.groups[g]
            )
            assert (batch.labels == wanted.labels).all() and (batch.masked == wanted.masked).all()
    assert short.groups[0]["sentence"].max() + 1 == len(cut) > 100, (
        "five pieces and two special tokens at most fit the short rows"
    )


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 9), st.integers(0, 99))
def test_tokens_of_slices_keep_their_positions(lengths, most, seed):
    """A slice's [CLS] stands where the token before it stands in the whole, its [SEP] where the
    token after it does.
    """
    text = Encoded.of(np.split(np.arange(sum(lengths)) + 5, np.cumsum(lengths)[:-1]))
    whole = build_sentence_dataset(
        [text], [LanguageView("a", position_offset=3)], 999, max_tokens=64
    )
    cut = slice_examples(whole, np.arange(len(whole)), most, seeded_generator(SLICES, seed))
    one, other = (assemble_batch(m, np.arange(len(m))) for m in (whole, cut))
    assert one.ids[one.content].tolist() == other.ids[other.content].tolist()
    assert one.positions[one.content].tolist() == other.positions[other.content].tolist()
    for i in range(len(cut)):
        inside = other.positions[other.sentence == i]
        assert (
            (np.diff(inside) == 1).all()
            and inside.min() >= 3
            and len(inside) == cut.first[i, 1] + 2
        )


def test_a_step_of_an_opening_depends_on_its_number_alone(store, tokenizer):
    """So a training that was stopped within it goes on as it would have."""
    job = loop.TrainingJob(
        pretraining_dataset(spec(64), tokenizer, store),
        MASKING["original"],
        seed=1,
        tokenizer=None,
        folder=None,
    )
    training = Training(batch=8, opening=4, opening_slice=8)
    begun, resumed = (loop.StepBatches([job], training, first, 6) for first in (0, 3))
    for ahead, step in enumerate(range(3, 6)):
        assert torch.equal(begun[step][0].ids, resumed[ahead][0].ids)


def test_what_is_off_is_not_in_the_name_of_a_run():
    assert "opening" not in str(canonical(spec())) and "opening" in str(
        canonical(spec(training=Training(opening=1)))
    )


# ---- positions as waves


def test_waves_are_those_of_the_transformer():
    """As a released library writes them, place by place and column by column."""
    shape = Shape(1, 12, 1, 12, 20)
    theirs = torch.empty(shape.position_table, 12)
    create_sinusoidal_embeddings(n_pos=shape.position_table, dim=12, out=theirs)
    by_hand = [
        [(math.cos if c % 2 else math.sin)(p / 10_000 ** ((c - c % 2) / 12)) for c in range(12)]
        for p in range(40)
    ]
    assert torch.allclose(sinusoidal_positions(shape, 1.0), theirs, atol=1e-6) and torch.allclose(
        sinusoidal_positions(shape, 1.0), torch.tensor(by_hand), atol=1e-5
    )


def test_only_positions_start_otherwise():
    shape = Shape(2, 16, 1, 32, 12)
    noise, other = (
        BatchedModels(shape, 40, [3, 4], sines=sines).weights for sines in (False, True)
    )
    apart = [name for name in noise if not torch.equal(noise[name], other[name])]
    assert apart == [POSITIONS] and torch.equal(other[POSITIONS][0], other[POSITIONS][1])
    assert (
        torch.allclose(other[POSITIONS][1].detach(), sinusoidal_positions(shape, 0.04))
        and other[POSITIONS].requires_grad
    )


def test_waves_are_learnt_from_there(tmp_path, store, tokenizer):
    made = pretraining_dataset(spec(24), tokenizer, store)
    job = loop.TrainingJob(
        made, MASKING["original"], seed=5, tokenizer=tokenizer, folder=tmp_path / "waves"
    )
    shape, training = spec(24).shape, Training(0, 8, 1e-2, 0, steps=2, sines=True)
    loop.pretrain([job], shape, training)
    (table,) = loop.load_stack([job.folder]).weights[POSITIONS].detach()
    moved = (table - sinusoidal_positions(shape, 0.04)).abs().max(1).values
    assert (moved[:24] > 1e-3).all() and (moved[24:] < 1e-4).all(), (
        "no input is longer than 24 tokens"
    )


# ---- fit


def test_the_unigram_is_the_frequencies_of_the_text():
    text = Encoded.of([[5, 5, 5, 9], [], [7, 9]])
    nll, count = unigram_nll(text)
    by_hand = -sum(math.log({5: 3, 9: 2, 7: 1}[i] / 6) for i in text.ids.tolist())
    assert count == 6 and nll == pytest.approx(by_hand)


def test_fit_is_asked_on_inputs_as_in_training(store, tokenizer):
    made = fit_inputs(FitSpec(spec(), DEV), tokenizer, store)
    assert list(made) == ["en", "es"] and made["es"].lengths.max() == 10
    for name, dev in zip(made, DEV):
        said = tokenizers.encode(tokenizer, read_corpus(store.path(dev)).sentences)
        assert made[name].ids.tolist() == said.ids.tolist()
    sentences = fit_inputs(FitSpec(spec(64, inputs="sentences"), DEV), tokenizer, store)
    assert len(sentences["en"]) == 30


def test_a_model_that_knows_nothing_has_the_vocabulary_as_perplexity(store, tokenizer):
    folder = store.path(spec())
    model = AutoModelForMaskedLM.from_pretrained(folder)
    kept = (folder / "model.safetensors").read_bytes()
    with torch.no_grad():
        model.cls.predictions.decoder.weight.zero_()
        model.cls.predictions.decoder.bias.zero_()
    try:
        model.save_pretrained(folder)
        told = read_fit(FitSpec(spec(), DEV), store, "cpu")
    finally:
        (folder / "model.safetensors").write_bytes(kept)
    size = tokenizer.get_vocab_size()
    pooled = [
        np.array(unigram_nll(text))
        for text in fit_inputs(FitSpec(spec(), DEV), tokenizer, store).values()
    ]
    unigram = math.exp(np.sum(pooled, 0)[0] / np.sum(pooled, 0)[1])
    assert told["perplexity"] == pytest.approx(size, rel=1e-4) and told["unigram"] == pytest.approx(
        unigram
    )
    assert (
        told["share"] == pytest.approx(size / unigram, rel=1e-4)
        and told["en"]["share"] != told["es"]["share"]
    )


def test_fit_wants_a_text_a_language():
    with pytest.raises(InputError, match="^dev: 1 texts for 2 languages: give one each$"):
        FitSpec(spec(), DEV[:1])
    with pytest.raises(InputError, match="^inputs='pairs' is not running text"):
        FitSpec(spec(inputs="pairs"), DEV)


# ---- words in slices


@given(
    st.lists(st.lists(st.integers(1, 4), max_size=9), min_size=1, max_size=6),
    st.integers(1, 9),
    st.data(),
)
def test_words_in_slices_are_those_that_no_cut_divides(sentences, most, data):
    """Sentences of words of so many pieces each; every piece is told apart by its id."""
    lengths, words, number = [sum(s) for s in sentences], [], 0
    for i, sizes in enumerate(sentences):
        for at, size in zip(np.cumsum([0, *sizes]).tolist(), sizes):
            if data.draw(st.booleans()):
                words.append((number := number + 1, i, at, at + size))
    text = Encoded.of(np.split(np.arange(sum(lengths)), np.cumsum(lengths)[:-1]))
    found = slice_long_sentences(LocatedWords(text, np.array(words, np.int64).reshape(-1, 4)), most)
    assert (
        found.text.ids.tolist() == text.ids.tolist() and found.text.lengths.max(initial=0) <= most
    )
    read = {
        w: found.text.ids[found.text.starts[row] + first : found.text.starts[row] + after].tolist()
        for w, row, first, after in found.words.tolist()
    }
    whole = {
        w: [*range(text.starts[i] + first, text.starts[i] + after)]
        for w, i, first, after in words
        if first // most == (after - 1) // most
    }
    assert read == whole


def test_late_words_have_vectors_only_where_sentences_are_sliced(tmp_path):
    model = load_checkpoint(tiny_checkpoint(tmp_path, words=64, max_position_embeddings=6))
    sentence, finder = " ".join(f"w{i}" for i in range(5, 15)), Finder(["w6", "w13"])
    cut, sliced = (
        word_means(model, [sentence], finder, "en", (2,), sliced=whether)
        for whether in (False, True)
    )
    assert (
        cut.counts.tolist() == [1, 0]
        and cut.truncated == 1
        and sliced.counts.tolist() == [1, 1]
        and not sliced.truncated
    )
    room = model.max_length(model.view("en"))
    part = word_means(
        model,
        [" ".join(sentence.split()[8 // room * room : 8 // room * room + room])],
        finder,
        "en",
        (2,),
    )
    assert torch.allclose(sliced.vectors[2][1], part.vectors[2][1], atol=1e-6) and torch.equal(
        sliced.vectors[2][0], cut.vectors[2][0]
    )
