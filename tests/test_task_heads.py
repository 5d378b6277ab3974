"""Fine-tuned words: windows and tags put right against hand-made cases and plain loops, the mix of
layers, families, runs.
"""

import copy
import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, strategies as st
from torch import nn
from transformers import AutoModelForTokenClassification

from xlingual_nb.errors import InputError
from xlingual_nb.measures.embeddings import batches, default_budget
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.store import Store
from xlingual_nb.models.external import ExternalCheckpointSpec
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import read_measures
from xlingual_nb.tasks.encoding import Inputs
from xlingual_nb.tasks import finetuning
from xlingual_nb.tasks.finetuning import (
    LayerMix,
    answer_records,
    fit_network,
    cache_states,
    mean_unit_vector,
    new_network,
    vector_reader,
)
from xlingual_nb.tasks.biaffine_parser import parsing_adapter
from xlingual_nb.tasks.task_heads import (
    REPAIRS,
    WordHead,
    cut_words,
    ner_adapter,
    pos_adapter,
    read_words,
    repair_tags,
    sentence_adapter,
    scoring_windows,
)
from xlingual_nb.tasks.recipes import Feat, Tuning
from xlingual_nb.tasks.metrics import Tree, score_entities, span_f1, spans
from xlingual_nb.tasks.task import Task
from xlingual_nb.tasks.zero_shot_tagging import (
    NameInputs,
    TunedTagsSpec,
    entities_in,
    score_all_and_new,
)
from xlingual_nb.tasks.zero_shot_tasks import centre_task, network_head
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, read_records
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec
from xlingual_nb.text.tokenizers import Encoded

torch.set_num_threads(1)
SIZES = dict(vocab_size=40, max_position_embeddings=26, pad_token_id=0)
WIDE = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)


@pytest.fixture
def tiny(tmp_path):
    return load_checkpoint(tiny_checkpoint(tmp_path / "tiny", 40, num_hidden_layers=2))


def sentences(count, seed, longest=9, pieces=2):
    """Words of one or more pieces; a tag says whether the word's first piece is small, middle or
    large.
    """
    rng, texts, firsts, gold = np.random.default_rng(seed), [], [], []
    for _ in range(count):
        words = rng.integers(5, 40, rng.integers(1, longest))
        spelt = [[int(w)] * int(rng.integers(1, pieces + 1)) for w in words]
        texts.append(sum(spelt, []))
        firsts.append(np.cumsum([0, *map(len, spelt[:-1])]))
        gold.append(["ABC"[(w - 5) * 3 // 35] for w in words])
    return Inputs((Encoded.of(texts),), gold, Encoded.of(firsts), views=("any",))


# --- windows


@st.composite
def words_in_windows(draw):
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=40))
    limit = draw(st.integers(4, 12))
    return np.cumsum([0, *sizes[:-1]]).tolist(), sum(sizes), limit, draw(st.integers(0, limit // 2))


@given(words_in_windows())
def test_every_word_is_new_in_one_window_and_begins_in_it(given_):
    firsts, count, limit, context = given_
    found = scoring_windows(*given_)
    assert [word for _, _, first, last in found for word in range(first, last)] == list(
        range(len(firsts))
    )
    for start, stop, first, last in found:
        assert 0 <= start < stop <= count and stop - start <= limit
        assert all(start <= firsts[word] < stop for word in range(first, last))
    for (_, _, _, word), (start, *_) in zip(found, found[1:]):
        assert firsts[word] - start == min(context, firsts[word])


@given(words_in_windows())
def test_a_window_takes_as_many_words_as_it_holds(given_):
    """Words are added one by one, as the paper tells it; the first of a window is taken even where
    it does not fit.
    """
    firsts, count, limit, context = given_
    ends, filled, wanted = [*firsts[1:], count], 0, [[]]
    for word, (a, b) in enumerate(zip(firsts, ends)):
        if wanted[-1] and filled + b - a > limit:
            wanted.append([])
            filled = min(context, a)
        wanted[-1].append(word)
        filled += b - a
    assert [list(range(first, last)) for _, _, first, last in scoring_windows(*given_)] == wanted


def test_128_pieces_and_64_of_context_as_the_paper_has_them():
    assert scoring_windows(range(300), 300, 128, 64) == [
        (0, 128, 0, 128),
        (64, 192, 128, 192),
        (128, 256, 192, 256),
        (192, 300, 256, 300),
    ]


def test_rows_hold_the_words_of_their_sentences(tiny):
    inputs = sentences(30, 0, longest=25)
    rows, owners = cut_words(tiny, inputs, Tuning(pieces=8, context=4), True)
    assert max(rows.texts[0].lengths) <= 8 and list(owners) == sorted(owners) and len(rows) > 40
    for i in range(30):
        of = np.flatnonzero(owners == i)
        assert sum((rows.gold[k] for k in of), []) == inputs.gold[i]
        said = [int(piece) for k in of for piece in rows.texts[0][k][rows.firsts[k]]]
        assert said == inputs.texts[0][i][inputs.firsts[i]].tolist()
    short = sentences(5, 0)
    assert cut_words(tiny, short, Tuning(), True)[0] is short


def test_windows_end_where_the_encoder_ends(tiny):
    """24 positions hold 22 pieces, whatever the settings say."""
    inputs = sentences(10, 1, longest=40)
    rows, _ = cut_words(tiny, inputs, Tuning(), True)
    assert 11 < max(rows.texts[0].lengths) <= 22
    with pytest.raises(InputError, match="hold token id 99"):
        cut_words(
            tiny,
            replace(inputs, texts=(Encoded(inputs.texts[0].ids * 0 + 99, inputs.texts[0].starts),)),
            Tuning(),
            True,
        )


@pytest.mark.parametrize("before", [0, 1])
def test_units_are_the_states_at_first_pieces(tiny, before):
    inputs, numbers = sentences(12, 2), np.array([7, 0, 3])
    said, places, lengths = read_words(tiny, inputs, numbers, Tuning(), before)
    states = tiny.model.base_model(**said).last_hidden_state.flatten(0, 1)[torch.from_numpy(places)]
    for i, row, n in zip(numbers, states, lengths):
        ids = torch.tensor([[2, *inputs.texts[0][i], 3]])
        alone = tiny.model.base_model(input_ids=ids).last_hidden_state[0]
        wanted = [0] * before + [int(place) + 1 for place in inputs.firsts[i]]
        assert n == len(wanted)
        torch.testing.assert_close(row[:n], alone[wanted], atol=1e-5, rtol=1e-5)
        assert (row[n:] == row[n - 1]).all()


# --- tags

TAGS = st.lists(st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]), max_size=8)


@given(TAGS, st.sampled_from(REPAIRS))
def test_repaired_tags_are_well_formed_and_right_ones_stay(tags, how):
    found = repair_tags(tags, how)
    for before, tag in zip(["O", *found], found):
        assert tag[0] != "I" or before[2:] == tag[2:]
    assert repair_tags(found, how) == found and len(found) == len(tags)
    if all(tag[0] != "I" or before[2:] == tag[2:] for before, tag in zip(["O", *tags], tags)):
        assert found == tags


@given(TAGS, TAGS)
def test_what_each_repair_finds(gold, tags):
    """To begin a name is how CoNLL counts a stray I-; to drop it finds what the strict count
    finds.
    """
    n = min(len(gold), len(tags))
    gold, tags = repair_tags(gold[:n]), tags[:n]
    assert span_f1([gold], [repair_tags(tags, "begin")]) == span_f1([gold], [tags], "conll")
    assert span_f1([gold], [repair_tags(tags, "drop")], "strict") == span_f1(
        [gold], [tags], "strict"
    )


def test_other_tags_and_other_ways_are_one_line():
    with pytest.raises(InputError, match="repair='mend': choose begin, drop, join"):
        repair_tags(["O"], "mend")
    with pytest.raises(InputError, match="not of the scheme BIO"):
        repair_tags(["U-PER"])


# --- the mix of layers


def test_the_mix_is_a_loop_over_layers_and_words():
    """Softmax weights, the library's own BiLSTM, a text at a time."""
    torch.manual_seed(1)
    body, plain = (
        LayerMix(6, 3, Feat(hidden=5, dropout=0.0)).eval(),
        nn.LSTM(6, 5, 2, bidirectional=True),
    )
    body.mix.weights.data, body.mix.scale.data = torch.randn(4), torch.tensor(1.7)
    plain.load_state_dict(
        {
            f"{name.replace('_l0', f'_l{k}')}{end}": w
            for k in range(2)
            for side, end in ((body.right, ""), (body.left, "_reverse"))
            for name, w in side[k].state_dict().items()
        }
    )
    layers, places, lengths = (
        torch.randn(4, 3, 7, 6),
        torch.tensor([[1, 3, 6], [8, 8, 8], [15, 20, 20]]),
        torch.tensor([3, 1, 2]),
    )
    made = type("Made", (), dict(hidden_states=tuple(layers)))
    share = [float(w.exp()) for w in body.mix.weights.detach()]
    for row, found, n in zip(places.tolist(), body(made, places, lengths), lengths):
        mixed = torch.stack(
            [
                1.7
                * sum(s * layers[k].flatten(0, 1)[place] for k, s in enumerate(share))
                / sum(share)
                for place in row[:n]
            ]
        )
        torch.testing.assert_close(found[:n], plain(mixed)[0], atol=1e-5, rtol=1e-5)


def digest(model):
    return hashlib.sha256(
        b"".join(w.numpy().tobytes() for w in model.state_dict().values())
    ).hexdigest()


def test_feat_leaves_the_encoder_as_it_is_and_learns(tiny):
    before = digest(tiny.model)
    network = fit_network(
        tiny,
        sentences(300, 0),
        sentences(40, 1),
        pos_adapter(),
        Feat(hidden=12, layers=1, epochs=8, learning_rate=1e-2),
    )
    assert digest(tiny.model) == before and network.encoder is tiny and max(network.scores) > 0.8
    assert network.body.mix.weights.std() > 0


def test_feat_is_as_wide_as_the_encoder(tiny):
    network = new_network(tiny, sentences(5, 0), pos_adapter(), Feat(), 0)
    assert [lstm.hidden_size for lstm in network.body.right] == [
        16,
        16,
    ] and network.head.out.in_features == 32


# --- the encoder of Feat is asked once


def pairs(count, seed):
    """Two sides, the second empty at times; the answer is whether the first begins with a small
    piece.
    """
    rng = np.random.default_rng(seed)
    sides = [
        Encoded.of(rng.integers(5, 40, rng.integers(low, 12)) for _ in range(count))
        for low in (1, 0)
    ]
    return Inputs(
        tuple(sides), np.array([int(row[0] < 20) for row in sides[0]]), views=("any", "any")
    )


def chains(count, seed):
    """Trees in which every word hangs on the one before it."""
    given = sentences(count, seed)
    return replace(
        given,
        gold=[
            Tree(list(range(len(tags))), ["r"] * len(tags), ["X"] * len(tags))
            for tags in given.gold
        ],
    )


ASKED = Feat(hidden=6, epochs=3, batch=4, pieces=14, context=6, learning_rate=1e-2)
FORMS = {
    "words": (pos_adapter, lambda n, seed: sentences(n, seed, longest=20)),
    "pairs": (sentence_adapter, pairs),
    "trees": (parsing_adapter, chains),
}


@pytest.mark.parametrize("kind", FORMS)
def test_kept_states_train_as_those_that_are_made_in_every_epoch(tiny, monkeypatch, kind):
    """In double precision, where the batches that an encoder reads make no difference; with dropout
    of the BiLSTM, none of the encoder.
    """
    (form, drawn), calls = FORMS[kind], []
    tiny.model.double().base_model.register_forward_hook(lambda *told: calls.append(1))
    torch.set_default_dtype(torch.float64)
    try:
        kept, asked = fit_network(tiny, drawn(40, 0), drawn(9, 1), form(), ASKED), len(calls)
        monkeypatch.setattr(finetuning, "cache_limit_bytes", lambda encoder: 0)
        again = fit_network(tiny, drawn(40, 0), drawn(9, 1), form(), ASKED)
    finally:
        torch.set_default_dtype(torch.float32)
    assert asked == 2 < len(kept.losses) < len(calls) - asked
    np.testing.assert_allclose(kept.losses, again.losses, rtol=1e-7)
    assert kept.scores == again.scores and len(set(kept.losses)) > len(kept.losses) / 2
    for one, other in zip(kept.parts, again.parts):
        for mine, theirs in zip(one.parameters(), other.parameters()):
            torch.testing.assert_close(mine, theirs, atol=1e-8, rtol=1e-6)


def test_what_is_kept_is_each_text_alone(tiny):
    """Every layer at the first piece of every word, [CLS] before the text; a window is a text of
    its own.
    """
    given = sentences(30, 2)
    made = cache_states(new_network(tiny, given, pos_adapter(), ASKED, 0), given)
    for i, (ids, firsts) in enumerate(zip(given.texts[0], given.firsts)):
        with torch.no_grad():
            alone = tiny.model.base_model(
                torch.tensor([[tiny.cls, *ids, tiny.sep]]), output_hidden_states=True
            ).hidden_states
        (places,), (n,) = made.positions(np.array([i]))
        assert n == len(firsts)
        for mine, theirs in zip(made.hidden_states, alone):
            torch.testing.assert_close(mine[0, places], theirs[0, firsts + 1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", FORMS)
def test_development_texts_are_read_to_the_byte_as_without(tiny, kind):
    form, drawn = FORMS[kind]
    network = new_network(tiny, drawn(5, 0), form(), ASKED, 0)
    rows, _ = network.form.cut(tiny, drawn(90, 1), ASKED, False)
    groups, read = (
        batches(sum(text.lengths for text in rows.texts), default_budget(tiny)),
        vector_reader(network, rows),
    )
    network.body.eval()
    assert len(groups) > 1 or kind == "trees"
    for numbers in groups:
        for kept, made in zip(read(numbers), network(rows, numbers)):
            assert torch.equal(kept, made)


# --- each language's mean taken off


@pytest.mark.parametrize("kind", ["words", "pairs"])
def test_a_planted_shift_of_a_language_is_taken_off(tiny, kind):
    """The second language is the first, but that its encoder adds a vector to all states: one that
    the head takes for a label.
    """
    form, drawn = FORMS[kind]
    plain = Task(kind, None, None, None, network_head(form))
    moved, test, scores = centre_task(plain), drawn(200, 2), {}
    learnt = moved.head.train(
        tiny, drawn(300, 0), drawn(200, 1), replace(FAST, epochs=16), 0, lambda done, total: None
    )
    network, _ = learnt

    def ask(language):
        for name, task, what in (("plain", plain, network), ("centred", moved, learnt)):
            scores[name, language] = form().score(test, task.head.answer(tiny, what, test))[
                "accuracy"
            ]

    ask("first")
    taken = network.head.out.weight[0] - network.head.out.weight.mean(0)

    def add(module, told, made):
        made.last_hidden_state.add_(20 * taken / taken.norm())

    network.encoder.model.base_model.register_forward_hook(add)
    ask("second")
    assert scores["plain", "first"] > 0.8 and scores["plain", "second"] < 0.65
    for language in ("first", "second"):
        assert abs(scores["centred", language] - scores["plain", "first"]) < 0.06


def test_the_mean_of_units_is_a_loop(tiny):
    network, given = new_network(tiny, sentences(5, 0), pos_adapter(), FAST, 0), sentences(25, 4)
    network.encoder.model.eval()
    vectors = []
    for ids, firsts in zip(given.texts[0], given.firsts):
        with torch.no_grad():
            states = tiny.model.base_model(
                torch.tensor([[tiny.cls, *ids, tiny.sep]])
            ).last_hidden_state[0]
        vectors += list(states[firsts + 1])
    torch.testing.assert_close(
        mean_unit_vector(network, given), torch.stack(vectors).mean(0), atol=1e-5, rtol=1e-4
    )


# --- networks


def learnt(checkpoint, settings, seed=0):
    return fit_network(
        checkpoint, sentences(200, 0), sentences(40, 1), pos_adapter(), settings, seed
    )


FAST = Tuning(epochs=4, learning_rate=5e-3)


def test_seeds_and_what_is_kept(tiny):
    one, same, other = (learnt(tiny, FAST, seed) for seed in (0, 0, 1))
    assert one.losses == same.losses != other.losses and digest(one.encoder.model) == digest(
        same.encoder.model
    )
    score = pos_adapter().score(sentences(40, 1), answer_records(one, sentences(40, 1)))["accuracy"]
    assert score == max(one.scores) > 0.9
    assert not next(one.head.parameters()).requires_grad


@pytest.mark.parametrize("settings", [FAST, Feat(hidden=8, layers=1, epochs=2)])
def test_answers_do_not_depend_on_the_batches(tiny, settings):
    network, test = learnt(tiny, settings), sentences(50, 3, longest=20)
    for part in network.parts:
        part.double()
    network.encoder.model.double()
    assert answer_records(network, test, budget=1) == answer_records(network, test, budget=10_000)


@pytest.mark.parametrize(
    "config",
    [
        transformers.BertConfig(**SIZES, **WIDE),
        transformers.RobertaConfig(**SIZES, **WIDE),
        transformers.XLMRobertaConfig(**SIZES, **WIDE),
        transformers.DistilBertConfig(**SIZES, dim=16, n_layers=2, n_heads=2, hidden_dim=32),
    ],
    ids=lambda c: c.model_type,
)
def test_a_tagger_of_any_family_is_the_librarys(tmp_path, config):
    """The same weights under the library's own head give the same scores of every word."""
    checkpoint = load_checkpoint(
        tiny_checkpoint(tmp_path / "tiny", 40, config=copy.deepcopy(config))
    )
    network = learnt(checkpoint, replace(FAST, epochs=1))
    theirs = AutoModelForTokenClassification.from_config(replace_labels(config, 3)).eval()
    theirs.base_model.load_state_dict(network.encoder.model.base_model.state_dict())
    theirs.classifier.load_state_dict(network.head.out.state_dict())
    test = sentences(9, 4)
    said, places, lengths = read_words(checkpoint, test, np.arange(9), FAST)
    with torch.no_grad():
        scores = theirs(**said).logits.flatten(0, 1)[torch.from_numpy(places)]
    wanted = [["ABC"[k] for k in row[:n]] for row, n in zip(scores.argmax(2).tolist(), lengths)]
    assert answer_records(network, test) == wanted
    ours, _ = network(test, np.arange(9))
    torch.testing.assert_close(network.head(ours), scores, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layer", [0, 1])
def test_what_is_frozen_has_the_bytes_of_the_checkpoint_after_training(tiny, layer):
    before, after = (
        tiny.model.base_model.state_dict(),
        learnt(tiny, replace(FAST, epochs=1, freeze=layer)).encoder.model.base_model.state_dict(),
    )
    same = {
        name for name in before if before[name].numpy().tobytes() == after[name].numpy().tobytes()
    }
    frozen = {
        name
        for name in before
        if name.startswith("embeddings.") or (name.startswith("encoder.layer.0.") and layer)
    }
    assert frozen <= same and not {name for name in same - frozen if "key.bias" not in name}


def replace_labels(config, count):
    config = copy.deepcopy(config)
    config.num_labels = count
    return config


def test_the_loss_is_the_mean_over_words():
    inputs = sentences(4, 5)
    head = WordHead(inputs, 6, 0.5, Tuning(dropout=0.0))
    lengths = torch.tensor([len(tags) for tags in inputs.gold])
    x = torch.randn(4, int(lengths.max()), 6)
    each = [
        nn.functional.cross_entropy(head(x[i, k]), torch.tensor(head.number[tag]))
        for i, tags in enumerate(inputs.gold)
        for k, tag in enumerate(tags)
    ]
    torch.testing.assert_close(head.loss(x, lengths, inputs.gold), torch.stack(each).mean())


# --- runs


def tagged(folder, name, *sentences):
    (folder / name).write_text(
        "\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in s) for s in sentences) + "\n"
    )


@pytest.fixture
def files(tmp_path):
    tiny_checkpoint(tmp_path / "tiny", 40, num_hidden_layers=1)
    names = [[("w7", "B-PER"), ("w8", "I-PER"), ("w20", "O")], [("w21", "O"), ("w9", "B-LOC")]]
    for part in ("train", "dev", "test"):
        tagged(tmp_path, f"{part}.conll", *names * 6)
    tagged(tmp_path, "more.conll", *names, [("w10", "B-MISC")])
    return tmp_path


def asked(folder, test="test", **rest):
    def side(part):
        return LabelledRecords("en", RecordsSpec("ner", f"file:{folder}/{{part}}.conll", part))

    tests = (LabelledRecords("en", RecordsSpec("ner", f"file:{folder}/{test}.conll")),)
    return TunedTagsSpec(
        ExternalCheckpointSpec(str(folder / "tiny")),
        side("train"),
        side("dev"),
        tests,
        Tuning(epochs=12, batch=4, learning_rate=1e-2),
        **rest,
    )


def test_a_brought_checkpoint_is_tuned_and_kinds_that_training_lacks_are_named(files, tmp_path):
    store = Store(tmp_path / "runs")
    spec = asked(files)
    run([spec], store, progress=False)
    assert store.read(spec)["f1"]["en"] == 1.0
    with pytest.raises(
        InputError,
        match="has MISC, which the training set .* lacks: name those that both have as kinds",
    ):
        run([asked(files, "more")], store, progress=False)
    both = asked(files, "more", kinds=("PER", "LOC"))
    run([both], store, progress=False)
    assert store.read(both)["f1"]["en"] > 0.8


def test_a_name_over_two_windows_is_one_name(tiny):
    """I- in the second window goes on with what began in the first."""
    form = ner_adapter()
    assert form.join([["O", "B-PER"], ["I-PER", "O", "I-LOC"]]) == [
        "O",
        "B-PER",
        "I-PER",
        "O",
        "B-LOC",
    ]
    rows = [["O", "B-PER"], ["I-PER", "O", "B-LOC"]]
    assert (
        score_entities(Inputs((Encoded.of([[5]]),), [sum(rows, [])]), [form.join(rows)])["f1"]
        == 1.0
    )


# --- names that training has not seen


def test_new_names_against_a_count_by_hand():
    """Known: Ann Lee (in either order) and Rome. Gold has Ann Lee, Bo and Rome; the answers find
    Ann Lee, Bo and a new Oslo that is none: of the new ones 1 of 1 found, 1 of 2 right.
    """
    known = entities_in(
        (), [dict(tokens=["Ann", "Lee", "saw", "Rome"], tags=["B-PER", "I-PER", "O", "B-LOC"])]
    )
    words = (["Lee", "Ann", "saw", "Bo"], ["Rome", "or", "Oslo"])
    gold = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "O", "O"]]
    given = [["B-PER", "I-PER", "O", "B-PER"], ["O", "O", "B-LOC"]]
    inputs = NameInputs((), gold, words=words)
    found = score_all_and_new(known, inputs, given)
    assert found["new f1"] == pytest.approx(2 * 1 / (1 + 2)) and found["new"] == pytest.approx(
        1 / 3
    )
    assert found["f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert (
        score_all_and_new(frozenset(), inputs, given)["new f1"] == found["f1"]
        and score_all_and_new(frozenset(), inputs, given)["new"] == 1
    )
    everything = entities_in((), [dict(tokens=w, tags=t) for w, t in zip(words, gold)])
    assert (
        score_all_and_new(everything, inputs, gold)["new"]
        == score_all_and_new(everything, inputs, gold)["new f1"]
        == 0
    )


def test_a_run_scores_new_names_as_a_count_over_its_records(tmp_path):
    """The share of new names in English, and in English read from its end, where each is the same
    name.
    """
    text = CorpusSpec("micro/en", parameters=(("sentences", 60),))
    back = Language("back", text, ("inv_order",))
    model = PretrainSpec(
        (Language("en", text), back),
        TokenizerSpec(text, 133, "words"),
        Shape(1, 16, 1, 32, 64),
        Training(0),
    )
    train, dev, test = (
        RecordsSpec("ner", "micro/en", part, 40) for part in ("train", "dev", "test")
    )
    spec = TunedTagsSpec(
        model,
        LabelledRecords("en", train),
        LabelledRecords("en", dev),
        (LabelledRecords("en", test), LabelledRecords("back", test)),
        Tuning(epochs=1),
    )
    store = Store(tmp_path)
    run([spec], store, Inline(), progress=False)
    found = read_measures(store.path(spec))

    def names(records):
        return [
            tuple(r["tokens"][a:b])
            for r in read_records(store.path(records))
            for a, b, _ in spans(r["tags"])
        ]

    seen = set(names(train))
    share = np.mean([name not in seen for name in names(test)])
    assert found["new en"] == pytest.approx(share) == found["new back"] and 0 < share < 1
    assert 0 <= found["new f1 en"] <= 1
