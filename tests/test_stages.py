"""The stages: what may share a stack, which text is measured, snapshots, costs; and what is wrong
in a spec is said before anything is trained.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.flop_counter import FlopCounterMode

from xlingual_nb.errors import InputError
from xlingual_nb.measures import multilinguality
from xlingual_nb.runs.engine import run
from xlingual_nb.text.sources import CorpusSpec, read_corpus, write_corpus
from xlingual_nb.models.pretraining import (
    Language,
    PretrainSpec,
    pretraining_cost,
    corpus_share,
    stack_key,
    token_ids,
    language_views,
    drop_transforms,
)
from xlingual_nb.measures.multilinguality import MeasureSpec, measuring_cost, subsample
from xlingual_nb.text.records import RecordsSpec
from xlingual_nb.text.vocabularies import TokenizerSpec
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.store import Store
from xlingual_nb.models.checkpoints import load_checkpoint
from xlingual_nb.measures.perplexity import pooled_perplexity
from xlingual_nb.models import training as loop
from xlingual_nb.models.configs import LanguageView, Shape, Training
from xlingual_nb import microworld
from xlingual_nb.text import sources, tokenizers, transforms
from xlingual_nb.text.corpora import Corpus
from xlingual_nb.text.tokenizers import Encoded

torch.set_num_threads(1)


def text(sentences=41, words=96, part="train"):
    return CorpusSpec("micro/en", part, (("sentences", sentences), ("vocabulary", words)))


TRAIN, DEV = text(), text(15, part="dev")
TOKENIZER = TokenizerSpec(TRAIN, 101, "words")
PAIR = Language("en", TRAIN), Language("enfake", TRAIN, ("enfake",))
HALVES = Language("en", TRAIN, ("half(0)",)), Language("enfake", TRAIN, ("half(1)", "enfake"))
SHAPE = Shape(2, 16, 1, 32, 24)


def spec(languages=PAIR, epochs=2, **rest):
    return PretrainSpec(
        languages,
        **dict(tokenizer=TOKENIZER, shape=SHAPE, training=Training(epochs, 16, 1e-2, 3)) | rest,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store that all tests of this file add to."""
    return Store(tmp_path_factory.mktemp("stages") / "runs")


def made(store, *specs):
    """The specs, made if need be; their folders."""
    run(specs, store, progress=False)
    return [store.path(s) for s in specs]


# ---- text and vocabularies


@given(
    st.lists(st.lists(st.text('abÀ😀\n\u2028" ', max_size=6), max_size=3), min_size=1, max_size=3),
    st.booleans(),
)
def test_a_corpus_is_read_as_it_was_written(tmp_path_factory, documents, numbered):
    documents = tuple(map(tuple, documents))
    ids = (
        tuple(tuple(f"{i}/{j}" for j in range(len(d))) for i, d in enumerate(documents))
        if numbered
        else None
    )
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(corpus := Corpus("en", documents, ids), folder)
    assert read_corpus(folder) == corpus


def test_kinds_of_vocabulary(store, tmp_path):
    words, pieces = TOKENIZER, TokenizerSpec(TRAIN, 90, "wordpiece")
    ours = [tokenizers.read_tokenizer(f).get_vocab() for f in made(store, words, pieces)]
    corpus = read_corpus(store.path(TRAIN)).sentences
    assert (
        set(" ".join(corpus).split()) >= set(ours[0]) - set(tokenizers.SPECIALS)
        and 5 < len(ours[0]) <= 101
    )
    assert (
        len(ours[1]) == 90
        and any(w.startswith("##") for w in ours[1])
        and not any(w.startswith("##") for w in ours[0])
    )
    assert all([v[s] for s in tokenizers.SPECIALS] == [0, 1, 2, 3, 4] for v in ours)
    again = Store(tmp_path / "again")
    for a, b in zip(made(again, words, pieces), made(store, words, pieces)):
        assert (a / "tokenizer.json").read_bytes() == (b / "tokenizer.json").read_bytes()
    assert run_id(TokenizerSpec(TRAIN, 101)) != run_id(words)


# ---- views


def test_views_are_those_of_figure_3():
    both = spec(
        (PAIR[0], Language("enfake", TRAIN, ("half(1)", "enfake", "inv_order"))),
        lang_pos=True,
        shift_special=True,
    )
    assert language_views(both, 2048) == [
        LanguageView("en"),
        LanguageView("enfake", 2048, 2048, SHAPE.max_tokens, 1, True),
    ]
    assert language_views(spec(lang_pos=True), 2048)[1] == LanguageView(
        "enfake", 2048, 0, SHAPE.max_tokens, 1
    )
    assert language_views(spec(shift_special=True), 2048)[1] == LanguageView("enfake", 2048, 2048)
    shared = spec((Language("a", TRAIN), Language("b", DEV)), shift_special=True)
    assert language_views(shared, 10) == [LanguageView("a"), LanguageView("b", 0, 10)], (
        "special tokens of its own, behind all pieces"
    )


def test_positions_suffice_for_two_languages(store):
    three = spec((*PAIR, Language("third", DEV)))
    assert [v.name for v in language_views(three, 101)] == ["en", "enfake", "third"]
    with pytest.raises(
        InputError, match="lang_pos .* positions and 3 segments for 3 languages: .*leave it off"
    ):
        language_views(replace(three, lang_pos=True), 101)
    with pytest.raises(InputError, match="3 segments for 3 languages"):
        made(store, replace(three, lang_pos=True))


# ---- groups


def test_switches_share_a_stack_and_sizes_do_not():
    base = spec()
    for one in (
        spec(seed=7),
        spec(lang_pos=True),
        spec(shift_special=True),
        spec(masking="no_random"),
        spec(snapshots=(50,)),
        spec((PAIR[0], Language("enfake", TRAIN, ("enfake", "inv_order")))),
    ):
        assert stack_key(one) == stack_key(base), one
    t = base.training
    for other in (
        spec(shape=replace(SHAPE, layers=3)),
        spec(shape=replace(SHAPE, max_tokens=32)),
        spec(tokenizer=replace(TOKENIZER, size=90)),
        spec(epochs=3),
        spec(epochs=0),
        spec(HALVES),
        *(
            spec(training=replace(t, **{k: v}))
            for k, v in dict(
                batch=8,
                learning_rate=1e-3,
                warmup=4,
                weight_decay=0.0,
                epsilon=1e-8,
                dropout=0.0,
                clip=2.0,
                precision="bfloat16",
            ).items()
        ),
    ):
        assert stack_key(other) != stack_key(base), other
    assert (
        corpus_share(spec(HALVES)) == 0.5
        and corpus_share(base) == 1
        and corpus_share(spec((PAIR[0], HALVES[1]))) == 1
    )
    assert stack_key(spec(HALVES, epochs=4)) != stack_key(base), (
        "half of the text, twice the epochs (D section 3.3): other rows, perhaps other steps"
    )
    assert hash(stack_key(base)) == hash(stack_key(spec(seed=1)))


def test_a_group_of_whole_and_half_texts_trains_every_model_for_its_own_time(tmp_path, monkeypatch):
    """41 sentences: 82 of both languages make 6 steps an epoch; halves of 20 and 21 make 3, twice
    as often.
    """
    store, calls, usual = Store(tmp_path / "runs"), [], loop.pretrain

    def noted(jobs, shape, training, *args, **kw):
        calls.append(([j.seed for j in jobs], training.epochs, loop.total_steps(jobs[0], training)))
        usual(jobs, shape, training, *args, **kw)

    monkeypatch.setattr(loop, "pretrain", noted)
    specs = [
        spec(seed=1),
        spec(seed=2, lang_pos=True),
        spec(HALVES, 4, seed=3),
        spec(HALVES, 4, seed=4, masking="no_random"),
    ]
    made(store, *specs)
    assert sorted(calls) == [([1, 2], 2, 12), ([3, 4], 4, 12)]
    assert [loop.read_log(store.path(s))[-1]["step"] for s in specs] == [12] * 4


# ---- checkpoints


def tensors(folder):
    return (folder / "model.safetensors").read_bytes()


def test_untrained_models_of_one_seed_are_equal(store):
    """D's rows 18 and 19 differ in their views alone."""
    switches = (
        dict(seed=3),
        dict(seed=3, masking="no_random"),
        dict(seed=3, lang_pos=True),
        dict(seed=4),
    )
    plain, again, lang_pos, other = made(store, *(spec(epochs=0, **s) for s in switches))
    assert tensors(plain) == tensors(again) == tensors(lang_pos) != tensors(other)
    configs = [json.loads((f / "config.json").read_text()) for f in (plain, lang_pos)]
    assert configs[0].pop("xlingual") != configs[1].pop("xlingual") and configs[0] == configs[1]


def test_snapshots_lie_at_their_percent_of_the_way(store):
    trained = spec(snapshots=(0, 25, 50, 100), seed=5)
    folder, untrained = made(store, trained, spec(epochs=0, seed=5))
    assert sorted(p.name for p in folder.glob("step-*")) == [
        "step-000000",
        "step-000003",
        "step-000006",
        "step-000012",
    ]
    assert tensors(folder / "step-000000") == tensors(untrained) and tensors(
        folder / "step-000012"
    ) == tensors(folder)
    assert [multilinguality.snapshot_folder(folder, p) for p in (None, 0, 50, 100)] == [
        (folder, 12)
    ] + [(folder / f"step-{n:06d}", n) for n in (0, 6, 12)]
    assert multilinguality.snapshot_folder(untrained, None) == (untrained, 0)
    measures = (
        *(MeasureSpec(trained, DEV, percent) for percent in (0, None, 100)),
        MeasureSpec(spec(epochs=0, seed=5), DEV),
    )
    made(store, *measures)
    start, end, last, nothing = map(store.read, measures)
    assert start == nothing and start["step"] == 0 and end == last and end["step"] == 12
    assert end["perplexity_dev"] < start["perplexity_dev"]


def test_a_snapshot_that_was_not_kept_is_the_users(store):
    with pytest.raises(InputError, match="percent=25.*choose"):
        made(store, MeasureSpec(spec(seed=6), DEV, 25))


# ---- measuring


def hand_made(store, language, sentences):
    """Token ids of sentences by a plain dictionary; Fake-English shifted, [UNK] for unknown words
    in both.
    """
    vocabulary = tokenizers.read_tokenizer(store.path(TOKENIZER)).get_vocab()

    def number(word):
        return (
            vocabulary[word] + len(vocabulary) * (language == "enfake") if word in vocabulary else 1
        )

    return Encoded.of([number(w) for w in s.split()] for s in sentences)


def test_perplexity_of_half_a_text_or_of_the_whole(store):
    """`whole` asks for all of the training text in both languages, `seen` for the half that a
    language was trained on; nothing else differs.
    """
    trained = spec(HALVES, 4)
    whole, seen = (MeasureSpec(trained, DEV, train_text=t) for t in ("whole", "seen"))
    folder, *_ = made(store, trained, whole, seen)
    checkpoint, corpus, dev = (
        load_checkpoint(folder),
        read_corpus(store.path(TRAIN)).sentences,
        read_corpus(store.path(DEV)).sentences,
    )
    for measure, first, second in ((whole, corpus, corpus), (seen, corpus[:20], corpus[20:])):
        values = store.read(measure)
        expected = pooled_perplexity(
            checkpoint,
            dict(en=hand_made(store, "en", first), enfake=hand_made(store, "enfake", second)),
        )
        assert values["perplexity_train"] == pytest.approx(expected, rel=1e-6)
        assert values["perplexity_dev"] == pytest.approx(
            pooled_perplexity(checkpoint, {n: hand_made(store, n, dev) for n in ("en", "enfake")}),
            rel=1e-6,
        )
    a, b = (
        {k: v for k, v in store.read(m).items() if k != "perplexity_train"} for m in (whole, seen)
    )
    assert a == b and store.read(whole)["perplexity_train"] != store.read(seen)["perplexity_train"]


def test_a_bound_on_sentences_takes_every_kth_of_the_training_text(store):
    measure = MeasureSpec(spec(seed=8), DEV, sentences=10)
    folder, _ = made(store, spec(seed=8), measure)
    few = read_corpus(store.path(TRAIN)).sentences[::5]
    assert len(few) == 9
    expected = pooled_perplexity(
        load_checkpoint(folder), {n: hand_made(store, n, few) for n in ("en", "enfake")}
    )
    assert store.read(measure)["perplexity_train"] == pytest.approx(expected, rel=1e-6)


@given(st.integers(1, 300), st.integers(0, 350))
def test_a_sample_is_even_and_small_enough(sentences, most):
    text = Encoded.of([i] for i in range(sentences))
    kept = [int(i) for (i,) in subsample(text, most)]
    steps = set(np.diff(kept).tolist())
    assert kept[0] == 0 and len(steps) <= 1 and (most == 0 or len(kept) <= most)
    if most == 0 or most >= sentences:
        assert kept == list(range(sentences))
    else:
        assert 2 * len(kept) > min(most, sentences / 2), "no fewer than needed"


def test_development_text_is_said_as_the_language_would(store):
    made(store, TOKENIZER, DEV)
    tokenizer, dev = (
        tokenizers.read_tokenizer(store.path(TOKENIZER)),
        read_corpus(store.path(DEV)).sentences,
    )
    language = Language("enfake", TRAIN, ("half(1)", "enfake", "inv_order"))
    plain, size = tokenizers.encode(tokenizer, dev), tokenizer.get_vocab_size()
    assert any(len(s.split()) > 6 for s in dev)
    ours = token_ids(
        language,
        tokenizer,
        store,
        8,
        drop_transforms(language.transforms, "half("),
        read_corpus(store.path(DEV)),
    )
    assert [list(s) for s in ours] == [
        [i + size * (i != 1) for i in list(s)[:6][::-1]] for s in plain
    ]
    assert (
        len(token_ids(language, tokenizer, store, 8)) == 21
        and len(
            token_ids(language, tokenizer, store, 8, drop_transforms(language.transforms, "half("))
        )
        == 41
    )


@pytest.mark.parametrize(
    "other",
    [
        CorpusSpec("micro/ru", "dev", DEV.parameters),
        CorpusSpec("micro/es", "dev", DEV.parameters),
        replace(DEV, parameters=(*DEV.parameters, ("script", "greek"))),
        replace(DEV, parameters=(*DEV.parameters, ("order", "SOV"))),
        replace(DEV, transforms=("unicode_shift",)),
    ],
    ids=["ru", "es", "letters", "order", "shift"],
)
def test_word_pairs_of_two_microworld_texts_are_its_dictionary(other):
    """Every word of the English text has a partner that the other text says; of English in disguise
    it is the word itself.
    """
    said = {
        part: [
            transforms.apply_text_transforms(
                o.transforms, sources.load_corpus(o.source, part, **dict(o.parameters))
            ).sentences
            for o in (DEV, other)
        ]
        for part in ("train", "dev")
    }
    tokenizer = tokenizers.train_words(
        [s for text in said.values() for side in text for s in side], 2000
    )
    pair = Language("en", DEV), Language("other", other)
    ids = multilinguality.microworld_dictionary(
        MeasureSpec(spec(pair), DEV, words="dictionary", other=other), tokenizer
    )
    pairs = [(tokenizer.id_to_token(a), tokenizer.id_to_token(b)) for a, b in ids.tolist()]
    english, foreign = ({w for sentence in side for w in sentence.split()} for side in said["dev"])
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}) and len(
        english & {a for a, _ in pairs}
    ) > 0.85 * len(english)
    if other.source == "micro/en":
        assert english <= {a for a, _ in pairs} and foreign <= {b for _, b in pairs}
        forms = dict(zip(" ".join(said["dev"][0]).split(), " ".join(said["dev"][1]).split()))
        if "order" not in dict(other.parameters):
            assert all(forms[a] == b for a, b in pairs if a in forms)
        else:
            assert all(a == b for a, b in pairs)
    else:
        exact = microworld.dictionary("en", other.source[-2:], vocabulary=96)
        assert set(pairs) <= set(zip(exact["first"], exact["second"])) and pairs[0] == tuple(
            exact.loc[0, ["first", "second"]]
        )


def test_word_pairs_of_two_worlds_are_refused():
    other = replace(DEV, parameters=(("sentences", 15), ("vocabulary", 128)))
    with pytest.raises(InputError, match="two worlds"):
        multilinguality.microworld_dictionary(
            MeasureSpec(spec(), DEV, words="dictionary", other=other), None
        )


# ---- costs


def test_costs_are_positive_and_grow_with_what_they_are_costs_of():
    base, small = spec(), pretraining_cost(spec())
    assert small["flops"] > 0 and small["bytes"] > 0
    longer = [
        spec(epochs=4),
        spec(shape=replace(SHAPE, layers=4)),
        spec(shape=replace(SHAPE, hidden=32)),
        spec(shape=replace(SHAPE, intermediate=64)),
        spec(tokenizer=replace(TOKENIZER, size=200)),
        spec((PAIR[0], Language("enfake", text(82), ("enfake",)))),
    ]
    assert all(pretraining_cost(s)["flops"] > small["flops"] for s in longer)
    assert pretraining_cost(spec(epochs=4))["flops"] == pytest.approx(2 * small["flops"])
    assert pretraining_cost(spec(HALVES, 4))["flops"] == pytest.approx(small["flops"]), (
        "half of the text, twice the epochs"
    )
    assert (
        pretraining_cost(spec(epochs=0))["flops"] == 0 < pretraining_cost(spec(epochs=0))["bytes"]
    )
    assert pretraining_cost(spec(snapshots=(0, 50)))["bytes"] == 3 * small["bytes"]
    measure = measuring_cost(MeasureSpec(base, DEV))
    assert (
        measure["flops"] > 0
        and measure["bytes"] > 0
        and measuring_cost(MeasureSpec(base, text(60, part="dev")))["flops"] > measure["flops"]
    )
    assert measuring_cost(MeasureSpec(longer[1], DEV))["flops"] > measure["flops"]


def test_a_bound_on_sentences_makes_measuring_cheaper():
    assert (
        measuring_cost(MeasureSpec(spec(), DEV, sentences=5))["flops"]
        < measuring_cost(MeasureSpec(spec(), DEV))["flops"]
    )


def test_costs_are_what_a_training_takes(tmp_path):
    """FLOPs as torch counts them (within a third: packed rows have empty slots, a vocabulary may be
    smaller than asked for), bytes of the files.
    """
    one, store = spec(training=Training(2, 82, 1e-2, 3, dropout=0.0)), Store(tmp_path / "runs")
    made(store, TOKENIZER)
    with FlopCounterMode(display=False) as counter:
        (folder,) = made(store, one)
    cost = pretraining_cost(one)
    assert 2 / 3 < cost["flops"] / counter.get_total_flops() < 4 / 3
    assert 0.9 < cost["bytes"] / (folder / "model.safetensors").stat().st_size < 1.2


# ---- wrong values


def wrong(name, match, make):
    return pytest.param(match, make, id=name)


@pytest.mark.parametrize(
    "match, make",
    (
        wrong(
            "transform",
            "'enfaek' is not known: choose from",
            lambda: spec((PAIR[0], Language("enfake", TRAIN, ("enfaek",)))),
        ),
        wrong(
            "source",
            "'nano/en' is not known",
            lambda: spec((PAIR[0], Language("enfake", CorpusSpec("nano/en"), ("enfake",)))),
        ),
        wrong(
            "too few words",
            "leaves no room for words",
            lambda: spec(tokenizer=replace(TOKENIZER, size=5)),
        ),
        wrong(
            "too few pieces",
            "leaves no room for letters",
            lambda: spec(tokenizer=replace(TOKENIZER, size=6, kind="wordpiece")),
        ),
        wrong(
            "too many words",
            "5000 words entries is too large for micro/en, which has",
            lambda: spec(tokenizer=replace(TOKENIZER, size=5000)),
        ),
        wrong("masking", "original.*no_random", lambda: spec(masking="80/10/10")),
        wrong("kind", "wordpiece.*words", lambda: spec(tokenizer=replace(TOKENIZER, kind="bpe"))),
        wrong("heads", "3 heads do not divide", lambda: spec(shape=Shape(2, 16, 3, 32, 24))),
        wrong("max_tokens", "max_tokens|longest", lambda: spec(shape=replace(SHAPE, max_tokens=2))),
        wrong("epochs", "epochs", lambda: spec(epochs=-1)),
        wrong("batch", "batch", lambda: spec(training=Training(1, 0))),
        wrong("dropout", "dropout", lambda: spec(training=Training(1, 16, dropout=1.0))),
        wrong(
            "precision",
            "float32.*bfloat16",
            lambda: spec(training=Training(1, 16, precision="float16")),
        ),
        wrong("seed", "seed", lambda: spec(seed=-1)),
        wrong("snapshots", "snapshots|percent", lambda: spec(snapshots=(150,))),
        wrong("no language", "language", lambda: spec(())),
        wrong("one name twice", "name", lambda: spec((PAIR[0], replace(PAIR[1], name="en")))),
        wrong("words", "content", lambda: MeasureSpec(spec(), DEV, words="evry")),
        wrong("train_text", "whole.*seen", lambda: MeasureSpec(spec(), DEV, train_text="have")),
        wrong("nsp without pairs", "inputs='pairs'", lambda: spec(nsp=True)),
        wrong(
            "segments for two", "choose one of the two", lambda: spec(inputs="pairs", lang_pos=True)
        ),
        wrong("task", "nli or ner", lambda: RecordsSpec("qa", "micro/en")),
        wrong(
            "text transform",
            "'unigramm' is not known",
            lambda: CorpusSpec("micro/en", transforms=("unigramm",)),
        ),
        wrong("one language", "two languages", lambda: MeasureSpec(spec(PAIR[:1]), DEV)),
    ),
)
def test_a_wrong_value_is_one_clear_line_before_any_training(tmp_path, monkeypatch, match, make):
    def trained(*_):
        pytest.fail("was trained")

    monkeypatch.setattr(loop, "training_step", trained)
    with pytest.raises(InputError, match=match) as caught:
        made(Store(tmp_path / "runs"), make())
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ("cuda", "cuda:7", "gpu"))
def test_a_device_that_is_not_there_is_one_clear_line(tmp_path, monkeypatch, name):
    monkeypatch.setenv("XLINGUAL_DEVICE", name)
    with pytest.raises(InputError, match=f"device='{name}'"):
        made(Store(tmp_path / "runs"), spec())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ("cuda", "cuda:7", "gpu"))
def test_a_device_that_is_not_there_for_measuring(store, monkeypatch, name):
    made(store, spec(seed=8))
    monkeypatch.setenv("XLINGUAL_DEVICE", name)
    with pytest.raises(InputError, match=f"device='{name}'"):
        made(store, MeasureSpec(spec(seed=8), DEV, sentences=3))
