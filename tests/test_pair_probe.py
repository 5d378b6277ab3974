"""Inference over frozen vectors: pools against loops over sentences, what stays frozen, what is
learnt, runs.
"""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from xlingual_nb.errors import InputError
from xlingual_nb.measures.word_retrieval import WordFloorsSpec, WordSpec, supervision_vectors
from xlingual_nb.models.external import ExternalCheckpointSpec
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.models.word_embeddings import EmbedSpec
from xlingual_nb.models.encoders import load_encoder
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import Glove, LanguageView, Readout, Shape, Training
from xlingual_nb.models.static_vectors import save_static, make_static_vectors, word_tokenizer
from xlingual_nb.runs import stages
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.plan import plan
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks import nli, pair_probe
from xlingual_nb.tasks.baselines import FLOORS, NliFloorsSpec
from xlingual_nb.tasks.nli import FrozenNliSpec, frozen_cost
from xlingual_nb.tasks.encoding import Inputs
from xlingual_nb.tasks.pair_probe import (
    MaxPool,
    cache_vectors,
    frozen_sides,
    combine_vectors,
    predict,
    predict_labels,
    mean_and_std,
    train_pair_probe,
)
from xlingual_nb.tasks.metrics import accuracy, majority
from xlingual_nb.text.dictionaries import Dictionary
from xlingual_nb.text.records import LabelledRecords, RecordsSpec
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.tokenizers import Encoded
from xlingual_nb.text.vocabularies import TokenizerSpec

torch.set_num_threads(1)
V, H = 40, 16
VIEWS = {"en": LanguageView("en"), "fake": LanguageView("fake", token_offset=V)}
POOLS = ["lstm", "mean"]


@pytest.fixture
def space():
    """Random vectors of 2 x 40 words; no word of the second language is like one of the first."""
    table = 5 * torch.randn(2 * V, H, generator=torch.Generator().manual_seed(0)) + 3
    return make_static_vectors(
        "toy", table, word_tokenizer(["[UNK]", *(f"w{i}" for i in range(1, V))]), dict(VIEWS)
    )


@pytest.fixture
def bert(tmp_path):
    views = [dict(name="en"), dict(name="fake", token_offset=V, special_offset=V)]
    return load_checkpoint(tiny_checkpoint(tmp_path / "tiny", V, views, num_hidden_layers=2))


def toy(count, seed, language="en", length=1):
    """A word, and the same, the next, or one of three others; with `length` more than 1 after words
    that say nothing.
    """
    rng, shift = np.random.default_rng(seed), VIEWS[language].token_offset
    first, label = rng.integers(5, 20, count), rng.integers(0, 3, count)
    second = np.where(
        label == 0, first, np.where(label == 1, first + 1, rng.integers(37, 40, count))
    )

    def said(words):
        return Encoded.of([*rng.integers(24, 36, rng.integers(length)), w + shift] for w in words)

    return Inputs((said(first), said(second)), label, views=(VIEWS[language],) * 2)


def uneven(count=9, seed=3):
    rng = np.random.default_rng(seed)
    texts = [
        Encoded.of(rng.integers(5, V, rng.integers(1, 14)) for _ in range(count)) for _ in range(2)
    ]
    return Inputs(tuple(texts), rng.integers(0, 3, count), views=(VIEWS["en"],) * 2)


# --- sentences


@pytest.mark.parametrize("layers", [1, 2])
def test_the_greatest_over_time_is_that_of_a_loop(layers):
    """The library's own bidirectional LSTM, a sentence at a time, without padding."""
    torch.manual_seed(0)
    pool, plain = (
        MaxPool(6, Readout(hidden=5, layers=layers)).eval(),
        nn.LSTM(6, 5, layers, bidirectional=True),
    )
    weights = {}
    for k in range(layers):
        for side, end in ((pool.right, ""), (pool.left, "_reverse")):
            weights |= {
                name.replace("_l0", f"_l{k}{end}"): w for name, w in side[k].state_dict().items()
            }
    plain.load_state_dict(weights)
    x, lengths = torch.randn(7, 9, 6), torch.tensor([9, 1, 4, 2, 9, 3, 5])
    with torch.no_grad():
        together, alone = (
            pool(x, lengths),
            [plain(one[:n])[0].max(0).values for one, n in zip(x, lengths)],
        )
    torch.testing.assert_close(together, torch.stack(alone))


def test_what_pads_a_batch_reaches_no_sentence():
    pool, x, lengths = (
        MaxPool(6, Readout(hidden=5)).eval(),
        torch.randn(3, 9, 6),
        torch.tensor([9, 1, 4]),
    )
    other = x.clone()
    for row, n in zip(other, lengths):
        row[n:] = 1e4
    assert torch.equal(pool(x, lengths), pool(other, lengths))


@pytest.mark.parametrize("kind, layer", [("space", None), ("bert", None), ("bert", 1), ("bert", 0)])
def test_a_batch_holds_the_vectors_of_its_sentences(request, kind, layer):
    """Static vectors are rows of the table; a layer of BERT is asked sentence by sentence, between
    [CLS] and [SEP].
    """
    encoder, pairs = request.getfixturevalue(kind), uneven()
    groups = [np.array([4, 0]), np.array([8, 2, 3])]
    for side, text in zip(frozen_sides(encoder, pairs, layer), pairs.texts):
        for numbers, (x, lengths) in zip(groups, side.read(groups)):
            assert lengths.tolist() == text.lengths[numbers].tolist()
            for i, row, n in zip(numbers, x, lengths):
                if kind == "space":
                    wanted = encoder.vectors[text[i]]
                else:
                    made = encoder.model(
                        torch.tensor([[2, *text[i], 3]]), output_hidden_states=True
                    )
                    wanted = made.hidden_states[2 if layer is None else layer][0, 1:-1]
                torch.testing.assert_close(row[:n], wanted, atol=1e-5, rtol=1e-5)


def test_a_sentence_too_long_for_the_encoder_is_read_in_slices(tmp_path):
    """Slices of four pieces, each between [CLS] and [SEP], one after the other; cut, only the first
    of them.
    """
    short, pairs = (
        load_checkpoint(tiny_checkpoint(tmp_path / "short", V, max_position_embeddings=6)),
        uneven(),
    )
    pairs = Inputs(pairs.texts, pairs.gold, views=(LanguageView("en"),) * 2)
    whole, cut = frozen_sides(short, pairs, 1, "slice")[0], frozen_sides(short, pairs, 1)[0]
    groups = [np.array([4, 0]), np.array([8, 2, 3, 1])]
    for numbers, (x, lengths), (first, few) in zip(groups, whole.read(groups), cut.read(groups)):
        assert (
            lengths.tolist() == pairs.texts[0].lengths[numbers].tolist()
            and few.tolist() == np.minimum(lengths, 4).tolist()
        )
        for i, row, n, begins, m in zip(numbers, x, lengths, first, few):
            text = pairs.texts[0][i]
            made = [
                short.model(
                    torch.tensor([[2, *text[k : k + 4], 3]]), output_hidden_states=True
                ).hidden_states[1][0, 1:-1]
                for k in range(0, len(text), 4)
            ]
            torch.testing.assert_close(row[:n], torch.cat(made), atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(begins[:m], made[0], atol=1e-5, rtol=1e-5)
    assert not torch.equal(mean_and_std((whole,))[0], mean_and_std((cut,))[0])
    settings = Readout("mean", epochs=1, layer=1, beyond="slice")
    reader = train_pair_probe(short, pairs, pairs, settings)
    assert (
        predict(reader, short, pairs).tolist()
        == predict_labels(reader.network, frozen_sides(short, pairs, 1, "slice")).tolist()
    )
    with pytest.raises(InputError, match="beyond='wrap' of a readout: choose cut or slice"):
        Readout(beyond="wrap")


def test_the_mean_and_its_two_numbers_are_numpys(space):
    pairs = uneven(30)
    settings = Readout("mean", units=0, epochs=1, dropout=0.0)
    reader, table = (
        train_pair_probe(space, pairs, pairs, settings),
        space.vectors.numpy().astype(float),
    )
    tokens = np.concatenate([table[text.ids] for text in pairs.texts])
    for ours, theirs in zip(
        mean_and_std(frozen_sides(space, pairs)), (tokens.mean(0), tokens.std(0))
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    u, v = (
        np.stack([(table[ids] - tokens.mean(0)).mean(0) / tokens.std(0) for ids in text])
        for text in pairs.texts
    )
    pair = np.concatenate([u, v, abs(u - v), u * v], 1)
    np.testing.assert_allclose(combine_vectors(torch.from_numpy(u), torch.from_numpy(v)), pair)
    scores = (
        pair @ reader.network.out.weight.numpy().T.astype(float) + reader.network.out.bias.numpy()
    )
    assert predict(reader, space, pairs).tolist() == scores.argmax(1).tolist()


# --- training


def digest(tensors):
    return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()


@pytest.mark.parametrize("pool", POOLS)
def test_a_comparison_is_learnt_and_read_off_equal_vectors(space, pool):
    """Words whose vectors are random, so that pairs are learnt by heart; another language's words
    with the same vectors.
    """
    reader = train_pair_probe(
        space, toy(640, 0, length=2), toy(100, 2, length=2), Readout(pool, 32, epochs=20)
    )
    here, there = toy(300, 1, length=2), toy(300, 1, "fake")
    assert accuracy(predict(reader, space, here), here.gold) > 0.8 > 0.6 > majority(here.gold)
    same = replace(space, vectors=torch.cat([space.vectors[:V]] * 2))
    assert predict(reader, same, there).tolist() == predict(reader, space, toy(300, 1)).tolist()


@pytest.mark.parametrize("kind", ["space", "bert"])
def test_what_is_frozen_stays_to_the_byte(request, kind):
    encoder = request.getfixturevalue(kind)

    def tensors():
        return [encoder.vectors] if kind == "space" else list(encoder.model.state_dict().values())

    before, noise = digest(tensors()), torch.get_rng_state()
    reader = train_pair_probe(encoder, toy(64, 0), toy(20, 2), Readout(hidden=4, epochs=2))
    assert digest(tensors()) == before and torch.equal(torch.get_rng_state(), noise)
    if kind == "bert":
        assert not any(p.requires_grad or p.grad is not None for p in encoder.model.parameters())
    assert (
        not any(p.requires_grad for p in reader.network.parameters())
        and not reader.network.training
    )


@pytest.mark.parametrize("pool", POOLS)
def test_a_seed_decides_everything(space, pool):
    made = []
    for seed, noise in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(noise)
        reader = train_pair_probe(space, toy(64, 0), toy(20, 2), Readout(pool, 8, epochs=3), seed)
        made.append((digest(reader.network.state_dict().values()), reader.dev_accuracy))
    assert made[0] == made[1] and made[0][0] != made[2][0]


def test_answers_do_not_depend_on_batches(bert):
    pairs = uneven(40)
    reader = train_pair_probe(bert, toy(64, 0), toy(20, 2), Readout(hidden=8, epochs=2))
    reader.network.double()
    found = []
    for budget in (1, 10_000):
        sides = frozen_sides(bert, pairs)
        for side in sides:
            object.__setattr__(
                side,
                "read",
                lambda groups, of=side: ((x.double(), n) for x, n in type(of).read(of, groups)),
            )
        found.append(predict_labels(reader.network, sides, budget).tolist())
    assert found[0] == found[1]


def test_the_best_epoch_on_source_pairs_is_kept(space):
    """As many epochs as the best has give the same weights, since there is no schedule."""
    settings, dev = Readout("mean", epochs=9, patience=9, learning_rate=3e-3), toy(60, 3, length=4)
    reader = train_pair_probe(space, toy(200, 0, length=4), dev, settings)
    best = int(np.argmax(reader.dev_accuracy))
    assert 0 < best and accuracy(predict(reader, space, dev), dev.gold) == max(reader.dev_accuracy)
    short = train_pair_probe(space, toy(200, 0, length=4), dev, replace(settings, epochs=best + 1))
    assert digest(short.network.state_dict().values()) == digest(
        reader.network.state_dict().values()
    )


def test_patience_ends_the_training(space):
    dev, heard = replace(toy(60, 3), gold=np.full(60, 2)), []
    settings = Readout("mean", epochs=9, patience=2, learning_rate=1e-9)
    reader = train_pair_probe(space, toy(64, 0), dev, settings, 0, lambda *done: heard.append(done))
    assert len(reader.dev_accuracy) == 3 and heard == [(1, 9), (2, 9), (3, 9), (9, 9)]


# --- runs

TEXT = CorpusSpec("micro/en", parameters=(("sentences", 60), ("vocabulary", 128)))
PAIR, WORDS = (
    (Language("en", TEXT), Language("enfake", TEXT, ("enfake",))),
    TokenizerSpec(TEXT, 133, "words"),
)
MODELS = {
    "static": EmbedSpec(PAIR, WORDS, Glove(epochs=1), size=24, window=3),
    "BERT": PretrainSpec(PAIR, WORDS, Shape(1, 24, 1, 32, 40), Training(epochs=0)),
}


def part(name, size, language="en"):
    dials = (("vocabulary", 128), ("level", "plain"))
    return LabelledRecords(language, RecordsSpec("nli", "micro/en", name, size, dials))


def asked(checkpoint, train=40, epochs=1, languages=("en", "enfake"), **settings):
    tests = tuple((part("test", 300, l), part("test", 300, l)) for l in languages)
    return FrozenNliSpec(
        checkpoint, part("train", train), part("dev", 60), tests, Readout(epochs=epochs, **settings)
    )


@pytest.mark.parametrize("kind", [pytest.param("static", marks=pytest.mark.ci), "BERT"])
def test_inference_does_not_reach_a_copy_of_english(tmp_path, kind):
    """English and a Fake-English without a common piece are two languages apart in a joint space,
    and in a BERT that was never trained: English is learnt, of the copy no more is known than
    without a lexicon.
    """
    spec = asked(MODELS[kind], 900, 14, hidden=48, units=48, learning_rate=2e-3)
    floor, store = NliFloorsSpec(spec.train, spec.tests, spec.tests[0][0]), Store(tmp_path)
    run([spec, floor], store, progress=False)
    found, floors = (stages.stage_of(s).values(store.path(s)) for s in (spec, floor))
    highest = max(floors[f"{name} enfake|enfake"] for name in FLOORS)
    assert found["accuracy en|en"] > 0.55 > 0.5 > max(found["accuracy enfake|enfake"], highest), (
        found,
        floors,
    )


def test_what_was_brought_is_read_as_it_says_itself(tmp_path):
    """The model of a run, brought as a folder, answers as the run's own spec has it, Fake-English
    from its end included.
    """
    languages = (PAIR[0], replace(PAIR[1], transforms=("enfake", "inv_order")))
    for kind, model in MODELS.items():
        ours, store = (
            asked(replace(model, languages=languages), 200, 3, hidden=8, units=8),
            Store(tmp_path / kind),
        )
        run([ours], store, progress=False)
        brought = replace(ours, checkpoint=ExternalCheckpointSpec(str(store.path(ours.checkpoint))))
        run([brought], store, progress=False)
        assert store.read(brought) == store.read(ours)


@pytest.mark.parametrize("beyond", ["cut", "slice"])
def test_vectors_that_are_kept_are_those_that_are_asked_for(tmp_path, monkeypatch, beyond):
    """Of a BERT that takes four pieces at once, and turned; word vectors, and those that do not
    fit, are asked for as they come.
    """
    short = load_checkpoint(tiny_checkpoint(tmp_path / "short", V, max_position_embeddings=6))
    pairs = Inputs(uneven().texts, uneven().gold, views=(LanguageView("en"),) * 2)
    side = replace(
        frozen_sides(short, pairs, overflow=beyond)[0], turn=lambda vectors: 2 * vectors + 1
    )
    kept, groups = cache_vectors(side), [np.array([4, 0]), np.array([8, 2, 3, 1])]
    assert kept.cached is not None and len(kept.cached.vectors) == len(side.sentences.ids)
    for (ours, n), (theirs, m) in zip(kept.read(groups), side.read(groups)):
        assert torch.equal(n, m)
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    monkeypatch.setattr(pair_probe, "MAX_CACHED_VALUES", kept.cached.vectors.numel() - 1)
    assert cache_vectors(side).cached is None


def test_a_readout_learns_alike_from_vectors_that_are_kept(bert, monkeypatch):
    found = []
    for limit in (0, 2**27):
        monkeypatch.setattr(pair_probe, "MAX_CACHED_VALUES", limit)
        found.append(train_pair_probe(bert, toy(64, 0), toy(20, 2), Readout(hidden=8, epochs=2)))
    for ours, theirs in zip(*(reader.network.state_dict().values() for reader in found)):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


def test_a_mapped_language_is_answered_as_english_is(tmp_path, monkeypatch):
    """Fake-English has the vectors of English, turned and moved away: not answered where it lies,
    and answered like English, pair by pair, once half of the words have told the way back.
    """
    generator = torch.Generator().manual_seed(0)
    vocabulary = [f"w{i}" for i in range(1, V)]
    english = torch.randn(V, H, generator=generator)
    hidden = torch.linalg.qr(torch.randn(H, H, generator=generator))[0]
    space = make_static_vectors(
        "toy",
        torch.cat([english, english @ hidden + 2]),
        word_tokenizer(["[UNK]", *vocabulary]),
        dict(VIEWS),
    )
    known = slice(5, 5 + V // 2)
    monkeypatch.setattr(
        nli,
        "supervision_vectors",
        lambda floors, encoder, store: (encoder.vectors[:V][known], encoder.vectors[V:][known]),
    )
    words = WordFloorsSpec(
        WordSpec(MODELS["static"], ("en", "fake"), (TEXT, TEXT), Dictionary("same", "odd"))
    )
    spec = replace(asked(MODELS["static"]), mapped=(words,))
    reader = train_pair_probe(space, toy(400, 0), toy(60, 2), Readout("mean", epochs=9))
    english, fake = (toy(200, 1, language) for language in ("en", "fake"))
    answer = nli.task_with_rotations(spec, None).head.answer
    wanted, plain = predict(reader, space, english), predict(reader, space, fake)
    assert (
        answer(space, reader, fake).tolist()
        == answer(space, reader, english).tolist()
        == wanted.tolist()
    )
    assert (plain != wanted).mean() > 0.2 and accuracy(wanted, english.gold) > 0.6


def test_what_is_learnt_from_is_what_the_floors_of_retrieval_learn_from(tmp_path):
    """A run of both; the rows are parallel, of words that are not asked for, in the tables that are
    rotated there.
    """
    words = WordSpec(MODELS["static"], ("en", "enfake"), (TEXT, TEXT), Dictionary("same", "odd"))
    floors, store = WordFloorsSpec(words), Store(tmp_path)
    mapped = replace(asked(MODELS["static"], pool="mean"), mapped=(floors,))
    run([floors, mapped], store, progress=False)
    ours, theirs = supervision_vectors(floors, load_encoder(store.path(MODELS["static"])), store)
    assert len(ours) == len(theirs) == store.read(floors)["learnt"] > 10
    table = load_encoder(store.path(MODELS["static"])).vectors
    size = len(table) // 2
    at = (table[:size] - ours[0]).abs().sum(1).argmin()
    torch.testing.assert_close(table[size + at], theirs[0])
    plain = replace(mapped, mapped=())
    run([plain], store, progress=False)
    assert store.read(plain)["accuracy"]["en|en"] == store.read(mapped)["accuracy"]["en|en"]


def test_vectors_of_whole_words_from_elsewhere(tmp_path):
    save_static(
        tmp_path / "mine", torch.randn(4, 6), word_tokenizer(["[UNK]", "no", "some", "all"])
    )
    spec, store = (
        asked(ExternalCheckpointSpec(str(tmp_path / "mine")), pool="mean", languages=("en",)),
        Store(tmp_path / "runs"),
    )
    run([spec], store, progress=False)
    assert 0 < store.read(spec)["accuracy"]["en|en"] < 1


def test_a_layer_and_a_pool_are_other_runs_and_a_plan_knows_them(tmp_path):
    specs = [asked(MODELS["BERT"], layer=layer, pool=pool) for layer in (None, 0) for pool in POOLS]
    table = plan(specs, Store(tmp_path), speed=1e9).set_index("stage")
    assert table.loc["frozen_nli", "to make"] == 4 and table.loc["frozen_nli", "FLOPs"] > 0
    larger = replace(specs[0], tests=2 * specs[0].tests)
    assert frozen_cost(larger)["flops"] > frozen_cost(specs[0])["flops"], "answers cost, too"
    static = [frozen_cost(asked(MODELS["static"], pool=pool))["flops"] for pool in POOLS]
    assert frozen_cost(specs[0])["flops"] > static[0] > 5 * static[1]


# --- what is refused

FLOORS_OF = WordFloorsSpec(
    WordSpec(MODELS["static"], ("en", "enfake"), (TEXT, TEXT), Dictionary("same", "odd"))
)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda e: Readout("max"), "pool='max' of a readout: choose lstm or mean"),
        (lambda e: Readout(epochs=0), "epochs=0 of a readout"),
        (lambda e: Readout(units=-1), "units=-1"),
        (lambda e: Readout(learning_rate=0), "learning_rate=0"),
        (lambda e: Readout(dropout=1), "dropout=1"),
        (
            lambda e: FrozenNliSpec("runs/12", None, None, ()),
            "checkpoint='runs/12': give the spec of a run",
        ),
        (
            lambda e: replace(asked(MODELS["BERT"], layer=0), mapped=(FLOORS_OF,)),
            "words are mapped in the last layer: give layer=None",
        ),
        (
            lambda e: replace(asked(MODELS["BERT"]), mapped=(FLOORS_OF,)),
            "('en', 'enfake') are words of another checkpoint",
        ),
        (
            lambda e: replace(
                asked(MODELS["static"]), train=part("train", 9, "enfake"), mapped=(FLOORS_OF,)
            ),
            "words of ('en', 'enfake'): give 'enfake' first",
        ),
        (
            lambda e: train_pair_probe(e, toy(4, 0), toy(4, 1), Readout(layer=1)),
            "toy has layers 0 (embeddings) to 0",
        ),
        (
            lambda e: train_pair_probe(e, replace(toy(4, 0), gold=[0, 1, 2, 3]), toy(4, 1)),
            "label 3: give places in entail",
        ),
        (
            lambda e: train_pair_probe(e, replace(toy(4, 0), gold=[0, 1]), toy(4, 1)),
            "2 labels for 4 sentence pairs",
        ),
        (
            lambda e: train_pair_probe(
                e, toy(4, 0), replace(toy(4, 1), views=(VIEWS["fake"],) * 2)
            ),
            "outside 40..79",
        ),
    ],
)
def test_one_line_for_what_is_wrong(space, call, says):
    with pytest.raises(InputError) as caught:
        call(space)
    assert says in str(caught.value) and "\n" not in str(caught.value)
