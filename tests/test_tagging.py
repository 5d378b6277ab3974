"""The tagger against seqeval, against the plain way through the model, and against toy tasks whose
answer is known.
"""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB2, Entities

from xlingual_nb.errors import InputError
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.tasks.encoding import encode_words
from xlingual_nb.tasks.metrics import (
    allowed_transitions,
    convert_bio,
    span_f1,
    spans,
    tag_as_bio,
)
from xlingual_nb.tasks.bilstm_crf import (
    BiLSTM,
    Features,
    ScalarMix,
    Tagging,
    first_subword_vectors,
    batches_of_similar_length,
    one_epoch,
    predict,
    tag_words,
    train_tagger,
    overlapping_windows,
)
from xlingual_nb.text import records
from xlingual_nb.text.tokenizers import Encoded, train_wordpiece

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-A-B", "I-A-B"]
corpora = st.lists(
    st.lists(st.tuples(*[st.sampled_from(TAGS)] * 2), min_size=1, max_size=8),
    min_size=1,
    max_size=6,
)


# --- names and their score


@settings(deadline=None, max_examples=300)
@given(corpora)
def test_score_in_both_conventions_against_seqeval(pairs):
    gold, predicted = ([[pair[side] for pair in sentence] for sentence in pairs] for side in (0, 1))
    modes = dict(conll={}, strict=dict(mode="strict", scheme=IOB2))
    for convention, mode in modes.items():
        # seqeval fails without any name
        if convention == "strict" and not any(
            tag[0] == "B" for sentence in gold + predicted for tag in sentence
        ):
            continue
        mine = span_f1(gold, predicted, convention)
        for name, score in dict(
            f1=f1_score, precision=precision_score, recall=recall_score
        ).items():
            assert mine[name] == pytest.approx(score(gold, predicted, zero_division=0, **mode)), (
                convention,
                name,
            )


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(TAGS), min_size=1, max_size=12))
def test_spans_and_bioul_against_seqeval(tags):
    assert [(a, b - 1, kind) for a, b, kind in spans(tags)] == [
        (a, b, kind) for kind, a, b in get_entities(tags)
    ]
    strict = Entities([tags], IOB2).entities[0]
    assert spans(tags, "strict") == [(e.start, e.end, e.tag) for e in strict]
    bioul = convert_bio(tags, "bioul")
    read = Entities([bioul], BILOU).entities[0]
    assert [(e.start, e.end, e.tag) for e in read] == spans(tags)
    assert [tag_as_bio(tag) for tag in bioul] == convert_bio(tags, "bio") and spans(
        convert_bio(tags, "bio"), "strict"
    ) == spans(tags)


def test_score_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG"]]
    assert span_f1(gold, gold) == dict(f1=1, precision=1, recall=1)
    assert span_f1(gold, [["B-PER", "I-PER", "O", "B-ORG"], ["B-ORG", "B-ORG"]]) == dict(
        f1=pytest.approx(4 / 7), precision=0.5, recall=pytest.approx(2 / 3)
    )
    assert (
        span_f1(gold, [["O"] * 4, ["O"] * 2])
        == span_f1([["O"]], [["O"]])
        == dict(f1=0, precision=0, recall=0)
    )
    with pytest.raises(InputError, match="of one text"):
        span_f1(gold, gold[:1])
    with pytest.raises(InputError, match="conll or strict"):
        span_f1(gold, gold, "iob1")


@pytest.mark.parametrize(
    "tag", ["U-PER", "L-PER", "E-PER", "S-PER", "B", "I", "PER", "b-PER", "B-", "", "o"]
)
def test_tags_of_another_scheme_are_refused(tag):
    for gold, predicted in (([[tag]], [["O"]]), ([["O"]], [[tag]])):
        with pytest.raises(InputError, match="not of the scheme BIO") as said:
            span_f1(gold, predicted)
        assert repr(tag) in str(said.value) and "\n" not in str(said.value)


def test_bio_to_bioul_and_back_by_brute_force():
    """Every sequence of up to five words; BIOUL as its definition has it, read off the sequence
    letter by letter.
    """
    for n in range(1, 6):
        for tags in itertools.product(["O", "B-X", "I-X", "B-Y", "I-Y"], repeat=n):
            begins = [
                t[0] == "B" or (t[0] == "I" and (i == 0 or tags[i - 1][2:] != t[2:]))
                for i, t in enumerate(tags)
            ]
            ends = [i + 1 == n or begins[i + 1] or tags[i + 1] == "O" for i in range(n)]
            marks = {(True, True): "U", (True, False): "B", (False, False): "I", (False, True): "L"}
            wanted = [t if t == "O" else marks[b, e] + t[1:] for t, b, e in zip(tags, begins, ends)]
            assert convert_bio(tags, "bioul") == wanted
            back = [t if t == "O" else "IB"[b] + t[1:] for t, b in zip(tags, begins)]
            assert [tag_as_bio(t) for t in wanted] == back and convert_bio(back, "bioul") == wanted


@pytest.mark.parametrize("scheme", ["bio", "bioul"])
def test_legal_sequences_are_those_that_a_spelling_can_give(scheme):
    labels = ["O"] + [
        f"{mark}-{kind}" for kind in "XY" for mark in dict(bio="BI", bioul="BILU")[scheme]
    ]
    follow, begin, end = allowed_transitions(labels)
    spelt = {
        tuple(convert_bio(tags, scheme))
        for tags in itertools.product(["O", "B-X", "I-X", "B-Y", "I-Y"], repeat=4)
    }
    for numbers in itertools.product(range(len(labels)), repeat=4):
        allowed = (
            begin[numbers[0]]
            and end[numbers[-1]]
            and all(follow[a, b] for a, b in itertools.pairwise(numbers))
        )
        assert allowed == (tuple(labels[i] for i in numbers) in spelt)


# --- features


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 13))
def test_windows_cover_every_sentence(lengths, limit):
    sentence, first, size = overlapping_windows(np.array(lengths), limit)
    assert (size <= limit).all() and (first >= 0).all()
    for i, n in enumerate(lengths):
        mine = [(a, a + k) for s, a, k in zip(sentence, first, size) if s == i]
        assert set().union(*(range(a, b) for a, b in mine)) == set(range(n))
        assert len(mine) == 1 if n <= limit else all(b - a == limit for a, b in mine)


def words_and_firsts(rng, sizes):
    """Random sentences of words of one to three pieces: pieces, first pieces."""
    words = [[rng.integers(5, 32, rng.integers(1, 4)) for _ in range(n)] for n in sizes]
    return Encoded.of(np.concatenate(s) for s in words), Encoded.of(
        np.cumsum([0, *map(len, s[:-1])]) for s in words
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layer", [None, 0, 2])
def test_features_are_those_of_every_sentence_alone(tmp_path, device, layer):
    fake = dict(name="enfake", token_offset=32, special_offset=32, position_offset=24, token_type=1)
    checkpoint = load_checkpoint(
        tiny_checkpoint(tmp_path, languages=[dict(name="en"), fake], max_position_embeddings=48),
        device,
    )
    pieces, firsts = words_and_firsts(np.random.default_rng(0), [3, 1, 7, 4, 2, 7])
    for view, offset, where, segment in (("en", 0, 0, 0), ("enfake", 32, 24, 1)):
        read = first_subword_vectors(
            checkpoint, Encoded(pieces.ids + offset, pieces.starts), firsts, view, layer
        )
        assert read.vectors.dtype == torch.float32 and np.array_equal(read.starts, firsts.starts)
        for i, ids in enumerate(pieces):
            full = torch.tensor([[2, *ids.tolist(), 3]], device=device) + offset
            with torch.no_grad():
                plain = checkpoint.model(
                    full,
                    position_ids=where + torch.arange(full.shape[1], device=device)[None],
                    token_type_ids=torch.full_like(full, segment),
                    output_hidden_states=True,
                )
            plain = plain.hidden_states[3 if layer is None else layer][0, 1:-1][
                torch.from_numpy(firsts[i].astype(np.int64))
            ]
            torch.testing.assert_close(
                read.vectors[read.starts[i] : read.starts[i + 1]], plain, atol=1e-5, rtol=1e-4
            )


@pytest.mark.parametrize("room", [1, 2, 3, 8, 11])
def test_a_word_of_a_long_sentence_has_context_on_both_sides(tmp_path, room):
    checkpoint = load_checkpoint(tiny_checkpoint(tmp_path, max_position_embeddings=room + 2))
    ids, step = np.random.default_rng(1).integers(5, 32, 30), max(1, room // 2)
    read = first_subword_vectors(
        checkpoint, Encoded.of([ids]), Encoded.of([range(30)]), "any"
    ).vectors
    windows = {
        a: checkpoint.model(
            torch.tensor([[2, *ids[a : a + room].tolist(), 3]]), output_hidden_states=True
        ).hidden_states[-1][0, 1:-1]
        for a in range(30 - room + 1)
    }
    margin = (room - step) // 2
    for place in range(30):
        fitting = [
            a
            for a, states in windows.items()
            if a <= place < a + room and torch.allclose(states[place - a], read[place], atol=1e-5)
        ]
        assert fitting and any(
            min(place - a, a + room - 1 - place) >= min(margin, place, 29 - place) for a in fitting
        ), place


def test_what_features_refuse(tmp_path):
    checkpoint = load_checkpoint(tiny_checkpoint(tmp_path))
    text = Encoded.of([[5, 6], [7]])
    for pieces, firsts, says in (
        (text, Encoded.of([[0, 1]]), "same sentences"),
        (text, Encoded.of([[0], [1]]), "sentence .1. begins outside"),
        (text, Encoded.of([[-1], [0]]), "sentence .0. begins outside"),
        (Encoded.of([[5], []]), Encoded.of([[0], []]), "no tokens"),
        (Encoded.of([[5], [32]]), Encoded.of([[0], [0]]), "token id 32"),
    ):
        with pytest.raises(InputError, match=says):
            first_subword_vectors(checkpoint, pieces, firsts, "any")
    with pytest.raises(InputError, match="layers 0"):
        first_subword_vectors(checkpoint, text, Encoded.of([[0], [0]]), "any", layer=4)


def test_from_records_to_features_of_their_words(tmp_path):
    made = records.load_records("ner", "micro/en", "train", 12)
    tokenizer = train_wordpiece([" ".join(r["tokens"]) for r in made], 60)
    checkpoint = load_checkpoint(tiny_checkpoint(tmp_path, words=60, max_position_embeddings=100))
    read = first_subword_vectors(checkpoint, *encode_words(tokenizer, made), "any")
    assert read.lengths.tolist() == [len(r["tags"]) for r in made]
    for i, r in enumerate(made):
        pieces = [tokenizer.encode(word, add_special_tokens=False).ids for word in r["tokens"]]
        firsts = np.cumsum([0, *map(len, pieces[:-1])])
        plain = checkpoint.model(
            torch.tensor([[2, *itertools.chain(*pieces), 3]]), output_hidden_states=True
        ).hidden_states[-1][0, 1:-1]
        torch.testing.assert_close(
            read.vectors[read.starts[i] : read.starts[i + 1]], plain[firsts], atol=1e-5, rtol=1e-4
        )
    assert max(map(len, pieces)) > 1


# --- network


@pytest.mark.parametrize("device", DEVICES)
def test_network_is_the_librarys_bidirectional_lstm(device):
    settings = Tagging(hidden=5, layers=2)
    net, both = (
        BiLSTM(6, 4, settings).to(device).eval(),
        torch.nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True).to(device),
    )
    for layer, (right, left) in enumerate(zip(net.right, net.left)):
        for name, weight in right.state_dict().items():
            both.state_dict()[name.replace("l0", f"l{layer}")].copy_(weight)
        for name, weight in left.state_dict().items():
            both.state_dict()[name.replace("l0", f"l{layer}") + "_reverse"].copy_(weight)
    x, n = torch.randn(5, 9, 6, device=device), torch.tensor([9, 1, 4, 9, 2])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)
    plain = net.out(torch.nn.utils.rnn.pad_packed_sequence(both(packed)[0], batch_first=True)[0])
    for mine, theirs, k in zip(net(x, n.to(device)), plain, n):
        torch.testing.assert_close(mine[:k], theirs[:k], atol=1e-5, rtol=1e-4)


def test_dropout_is_on_in_training_only():
    net, x, n = BiLSTM(6, 4, Tagging(hidden=5)), torch.randn(2, 3, 6), torch.tensor([3, 3])
    assert not torch.equal(net(x, n), net(x, n))
    net.eval()
    assert torch.equal(net(x, n), net(x, n))


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=80), st.integers(1, 20), st.integers(0, 100)
)
def test_batches_of_like_length_hold_every_sentence_once(lengths, batch, seed):
    lengths = np.array(lengths)
    groups = batches_of_similar_length(lengths, batch, np.random.default_rng(seed))
    assert sorted(np.concatenate(groups)) == list(range(len(lengths))) and sorted(map(len, groups))[
        1:
    ] == [batch] * (len(groups) - 1)
    bounds = sorted((lengths[g].min(), lengths[g].max()) for g in groups)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(bounds))


def test_batches_are_drawn_anew_each_time():
    rng, lengths = np.random.default_rng(0), np.repeat([3, 5], 40)
    first, second = (
        [set(g.tolist()) for g in batches_of_similar_length(lengths, 8, rng)] for _ in range(2)
    )
    assert not any(group in second for group in first)
    assert any(max(a) > min(b) for a, b in itertools.pairwise(first))  # short and long ones in turn


# --- training


def toy(sentences, seed=0, noise=0.1, device="cpu"):
    """Names of one to three words between markers that are plain to see in the vectors (word type +
    noise): a word's vector says `opens a name`, `nothing`, or `inside if a name is open`, so the
    rest has to come from the neighbours.
    """
    rng, rows, tags = np.random.default_rng(seed), [], []
    for _ in range(sentences):
        sentence = []
        for _ in range(rng.integers(1, 4)):
            kind = rng.choice(["PER", "LOC"])
            sentence += (
                [("O", 0)] * rng.integers(0, 3)
                + [(f"B-{kind}", 1 + (kind == "LOC"))]
                + [(f"I-{kind}", 3)] * rng.integers(0, 3)
            )
        tags.append([tag for tag, _ in sentence])
        rows.append(np.eye(4)[[v for _, v in sentence]])
    x = np.concatenate(rows)
    x = torch.tensor(
        x + noise * rng.standard_normal(x.shape), dtype=torch.get_default_dtype(), device=device
    )
    return Features(x, np.concatenate([[0], np.cumsum([len(t) for t in tags])])), tags


QUICK = Tagging(hidden=12, layers=1, epochs=12, patience=12, learning_rate=2e-2, dropout=0.1)


@pytest.mark.parametrize("scheme", ["bio", "bioul"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_toy_task_is_learnt(scheme, device):
    seen = []
    settings = Tagging(**vars(QUICK) | dict(scheme=scheme))
    tagger = train_tagger(
        *toy(150, 0, device=device),
        *toy(50, 1, device=device),
        settings,
        progress=lambda done, total: seen.append((done, total)),
    )
    test, tags = toy(50, 2, device=device)
    found = predict(tagger, test)
    assert span_f1(tags, found)["f1"] > 0.95, "five seeds came to .98 and more"
    assert [len(t) for t in found] == [len(t) for t in tags]
    assert seen[-1] == (12, 12) and len(seen) == len(tagger.dev_f1) + 1
    assert all(spans(t, "strict") == spans(t) for t in found)


def test_one_seed_gives_one_tagger_whatever_was_drawn_before():
    train, dev, test = toy(40), toy(20, 1), toy(20, 2)[0]
    settings = Tagging(**vars(QUICK) | dict(epochs=2))
    taggers = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(taggers))
        np.random.seed(len(taggers))
        before = torch.random.get_rng_state()
        taggers.append(train_tagger(*train, *dev, settings, seed))
        assert torch.equal(before, torch.random.get_rng_state())
    weights = [t.network.state_dict() for t in taggers]
    assert (
        all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
        and taggers[0].dev_f1 == taggers[1].dev_f1
    )
    assert not torch.equal(weights[0]["out.weight"], weights[2]["out.weight"])
    assert predict(taggers[0], test) == predict(taggers[1], test)


def test_the_best_epoch_is_kept_and_patience_ends_the_training():
    train, dev = toy(60), toy(30, 1, noise=0.8)
    settings = Tagging(
        **vars(QUICK) | dict(epochs=300, patience=3)
    )  # some ends after 4 epochs, some after 20
    tagger = train_tagger(*train, *dev, settings)
    best = max(tagger.dev_f1)
    assert 0 < best < 1 and span_f1(dev[1], predict(tagger, dev[0]))["f1"] == best
    assert tagger.dev_f1.index(best) + 1 == tagger.best == len(tagger.dev_f1) - 3 < 297
    short = train_tagger(*train, *dev, Tagging(**vars(settings) | dict(epochs=tagger.best)))
    assert all(
        torch.equal(a, b)
        for a, b in zip(short.network.state_dict().values(), tagger.network.state_dict().values())
    )


def test_of_equal_epochs_the_first_is_kept():
    train, (dev, tags) = toy(40), toy(10, 1)
    never = [[tag.replace("PER", "MISC").replace("LOC", "MISC") for tag in t] for t in tags]
    tagger = train_tagger(*train, dev, never, Tagging(**vars(QUICK) | dict(patience=2)))
    assert tagger.dev_f1 == (0, 0, 0) and tagger.best == 1
    first = train_tagger(*train, dev, never, Tagging(**vars(QUICK) | dict(epochs=1)))
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.network.state_dict().values(), tagger.network.state_dict().values())
    )


def test_dropout_is_back_on_after_each_look_at_the_development_set(monkeypatch):
    modes, forward = [], BiLSTM.forward
    monkeypatch.setattr(
        BiLSTM, "forward", lambda self, *x: modes.append(self.training) or forward(self, *x)
    )
    train_tagger(*toy(32), *toy(10, 1), Tagging(**vars(QUICK) | dict(epochs=3, batch=32)))
    assert modes == [True, False] * 3


def test_training_ends_when_nothing_is_left_to_gain():
    tagger = train_tagger(
        *toy(100, noise=0),
        *toy(20, 1, noise=0),
        Tagging(**vars(QUICK) | dict(epochs=75, patience=75)),
    )
    assert tagger.dev_f1.index(1.0) == len(tagger.dev_f1) - 1 == tagger.best - 1


def test_kinds_that_only_the_development_set_has_are_missed():
    dev, tags = toy(30, 1)
    tagger = train_tagger(
        *toy(80), dev, [[tag.replace("LOC", "MISC") for tag in t] for t in tags], QUICK
    )
    assert {label[2:] for label in tagger.labels} == {"", "PER", "LOC"} and 0 < max(
        tagger.dev_f1
    ) < 0.8


def test_tags_do_not_depend_on_the_batch(doubles):
    """In double precision, where no two paths are as near to each other as rounding reaches."""
    words, tags = toy(40)
    tagger = train_tagger(words, tags, *toy(10, 1), Tagging(**vars(QUICK) | dict(epochs=2)))
    assert tag_words(tagger.network, words, tagger.labels, budget=1) == predict(tagger, words)


def test_what_training_and_tagging_refuse():
    words, tags = toy(10)
    for t, says in (
        (tags[:9], "10 sentences have features, 9 tags"),
        ([tags[0] + ["O"]] + tags[1:], "training set: sentence 0 has"),
        ([["O"] * len(t) for t in tags], "no names"),
    ):
        with pytest.raises(InputError, match=says):
            train_tagger(words, t, words, tags, QUICK)
    with pytest.raises(InputError, match="development set"):
        train_tagger(words, tags, words, tags[1:], QUICK)
    with pytest.raises(InputError, match="loss is nan"):
        train_tagger(Features(words.vectors * torch.nan, words.starts), tags, words, tags, QUICK)
    tagger = train_tagger(words, tags, words, tags, Tagging(**vars(QUICK) | dict(epochs=1)))
    with pytest.raises(InputError, match="5 numbers a word, but the tagger reads 4"):
        predict(tagger, Features(torch.zeros(3, 5), np.array([0, 3])))


@pytest.mark.parametrize(
    "wrong",
    [
        dict(hidden=0),
        dict(layers=0),
        dict(epochs=0),
        dict(patience=0),
        dict(batch=0),
        dict(learning_rate=0.0),
        dict(dropout=1.0),
        dict(clip=0.0),
        dict(scheme="iob"),
    ],
)
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Tagging(**wrong)


def test_defaults_are_those_of_the_released_configuration():
    s = Tagging()
    assert (s.hidden, s.layers, s.epochs, s.patience, s.learning_rate, s.scheme) == (
        200,
        2,
        75,
        25,
        1e-3,
        "bioul",
    )


# --- the released reading of K: all layers mixed, and the loss of a batch summed


def test_scalar_mix_by_hand():
    mix, x = ScalarMix(3).double(), np.random.default_rng(0).normal(size=(2, 5, 3, 4))
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.5, -1.0, 2.0]))
        mix.scale.fill_(1.7)
    share = [np.exp(w) / sum(np.exp(v) for v in (0.5, -1.0, 2.0)) for w in (0.5, -1.0, 2.0)]
    wanted = 1.7 * (share[0] * x[:, :, 0] + share[1] * x[:, :, 1] + share[2] * x[:, :, 2])
    np.testing.assert_allclose(mix(torch.from_numpy(x)).detach().numpy(), wanted, rtol=1e-12)


def test_mixed_features_are_those_of_each_layer_but_the_embeddings(tmp_path):
    tiny = load_checkpoint(
        tiny_checkpoint(tmp_path, num_hidden_layers=3, max_position_embeddings=10)
    )
    text, firsts = Encoded.of([range(5, 25), [7, 8]]), Encoded.of([[0, 3, 19], [1]])
    mixed = first_subword_vectors(tiny, text, firsts, "any", mix=True)
    each = [first_subword_vectors(tiny, text, firsts, "any", layer).vectors for layer in (1, 2, 3)]
    assert torch.equal(mixed.vectors, torch.stack(each, 1)) and (mixed.starts == [0, 3, 4]).all()
    assert first_subword_vectors(tiny, text, firsts, "any", 2, mix=True).vectors.shape[1] == 2


def toy_layers(count, seed):
    """Words of three layers, two of noise; the second says whether a word is a name."""
    rng = np.random.default_rng(seed)
    named, vectors = rng.random(count * 4) < 0.3, rng.normal(size=(count * 4, 3, 6))
    vectors[:, 1, 0] = 4 * named - 2
    tags = [["B-X" if name else "O" for name in named[4 * i : 4 * i + 4]] for i in range(count)]
    return Features(torch.from_numpy(vectors).float(), np.arange(0, 4 * count + 1, 4)), tags


def test_the_layer_that_tells_gets_the_weight():
    settings = Tagging(
        hidden=8, layers=1, epochs=15, patience=15, learning_rate=2e-2, dropout=0, mix=True
    )
    tagger = train_tagger(*toy_layers(80, 0), *toy_layers(30, 1), settings)
    weights = tagger.network.mix.weights.softmax(0)
    assert weights.argmax() == 1 and weights[1] > 0.45
    words, tags = toy_layers(30, 2)
    assert span_f1(tags, predict(tagger, words))["f1"] > 0.9


def stepped(loss, clip, rate):
    """The change of all weights by one plain step on one batch of five sentences."""
    torch.manual_seed(0)
    words = Features(torch.randn(20, 6), np.arange(0, 21, 4))
    settings = Tagging(hidden=4, layers=1, dropout=0, batch=8, clip=clip, loss=loss)
    network = BiLSTM(6, 3, settings)
    before = torch.nn.utils.parameters_to_vector(network.parameters()).clone()
    target = torch.arange(20) % 3
    said = one_epoch(
        network,
        torch.optim.SGD(network.parameters(), rate),
        words,
        target,
        settings,
        np.random.default_rng(0),
    )
    return torch.nn.utils.parameters_to_vector(network.parameters()) - before, said


def test_a_summed_loss_has_the_gradient_of_all_sentences_and_meets_the_clip():
    (mean, one), (total, same) = stepped("mean", 1e9, 1.0), stepped("sum", 1e9, 1.0)
    torch.testing.assert_close(total, 5 * mean)
    assert one == pytest.approx(same)  # what is told is a sentence's
    bound = float(total.detach().norm()) / 2  # between the two gradients' norms
    torch.testing.assert_close(stepped("mean", bound, 1.0)[0], mean)
    assert float(stepped("sum", bound, 1.0)[0].detach().norm()) == pytest.approx(bound, rel=1e-4)


def test_the_reading_of_the_settings_is_checked():
    for wrong in (dict(loss="max"), dict(mix=True, layer=0)):
        with pytest.raises(InputError):
            Tagging(**wrong)
