"""Spaces of several languages and what is replaced by neighbours in them: against brute force,
planted tables, shares, bytes.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from scipy.stats import binom

from xlingual_nb.errors import InputError
from xlingual_nb.models.mlm_batches import (
    MASK,
    MASKS,
    assemble_batch,
    seeded_generator,
    mask_tokens,
    build_sentence_dataset,
)
from xlingual_nb.models.word_embeddings import EmbedSpec
from xlingual_nb.models.encoders import load_encoder
from xlingual_nb.models.pretraining import (
    Language,
    PretrainSpec,
    pretraining_dataset,
    model_tokenizer,
    language_views,
)
from xlingual_nb.models.configs import MASKING, Glove, Masking, Shape, Training
from xlingual_nb.models.spaces import (
    SpaceSpec,
    cross_lingual_neighbours,
    dictionary_rows,
    frequent_subwords,
)
from xlingual_nb.runs import engine
from xlingual_nb.runs.spec import canonical, parents
from xlingual_nb.runs.store import Store
from xlingual_nb.text import tokenizers
from xlingual_nb.text.dictionaries import Dictionary
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.tokenizers import SPECIALS, Encoded
from xlingual_nb.text.vocabularies import TokenizerSpec

torch.set_num_threads(1)
TEXT = CorpusSpec("micro/en", parameters=(("sentences", 400), ("vocabulary", 96)))
TOKENIZER = TokenizerSpec(TEXT, 101, "words")
PAIR = Language("en", TEXT), Language("enfake", TEXT, ("enfake",))
GLOVE = Glove(epochs=4)


def part(language, seed, tokenizer=TOKENIZER, method=GLOVE):
    return EmbedSpec((language,), tokenizer, method, size=16, seed=seed)


def space(**fields):
    return SpaceSpec((part(PAIR[0], 0), part(PAIR[1], 1)), **fields)


def model(masking="knn", neighbours=space(), **fields):
    return PretrainSpec(
        PAIR,
        TOKENIZER,
        Shape(1, 8, 1, 16, 24),
        Training(1, 32, 1e-3, 2),
        masking,
        neighbours=neighbours,
        **fields,
    )


@pytest.fixture(scope="module")
def store(shared_store):
    engine.run(
        [
            space(),
            model(seed=3),
            model(seed=4, nearest=5, masking="knn_released"),
            model("original", None, seed=5),
        ],
        shared_store,
        progress=False,
        stack=3,
    )
    return shared_store


def neighbours(store, spec):
    return load_file(store.path(spec) / "neighbours.safetensors")["neighbours"]


# ---- the table of neighbours


def brute_nearest(first, second, k):
    """By a sort of all cosines, one row at a time, in double precision."""

    def cosine(a, b):
        return float(a @ b / np.sqrt((a @ a) * (b @ b)))

    return np.array(
        [sorted(range(len(second)), key=lambda j: -cosine(row, second[j]))[:k] for row in first]
    )


def test_the_table_is_that_of_a_brute_force_search():
    rng = np.random.default_rng(0)
    ids = [np.array([5, 9, 7, 6]), np.array([10, 12, 11]), np.array([20, 22, 21, 25, 24])]
    tables = [rng.normal(size=(len(own), 4)) for own in ids]
    found = cross_lingual_neighbours([torch.tensor(t) for t in tables], ids, 30, 2)
    assert found.shape == (3, 30, 2, 2)
    for one in range(3):
        for place, other in enumerate(n for n in range(3) if n != one):
            expected = ids[other][brute_nearest(tables[one], tables[other], 2)]
            assert (found[one, ids[one], place] == expected).all()
        assert (np.delete(found[one], ids[one], 0) == -1).all(), (
            "a piece of another language has no neighbours here"
        )


def test_only_pieces_that_are_common_enough_have_neighbours(store):
    found, tokenizer = neighbours(store, space()), tokenizers.read_tokenizer(store.path(TOKENIZER))
    size = tokenizer.get_vocab_size()
    counts = np.bincount(tokenizers.encode(tokenizer, store_text(store)).ids, minlength=size)
    common = {i for i in range(len(SPECIALS), size) if counts[i] >= 5}
    assert 5 < len(common) < size - len(SPECIALS), "some of the pieces, and not all"
    for language, shift in ((0, 0), (1, size)):
        have = np.flatnonzero((found[language] >= 0).any((1, 2)))
        assert {int(i) - shift for i in have} == common
        assert {int(i) + shift - size for i in np.unique(found[language, have])} <= common, (
            "and are common themselves"
        )


def store_text(store):
    from xlingual_nb.text.sources import read_corpus

    return read_corpus(store.path(TEXT)).sentences


def test_the_mapped_space_opens_as_an_encoder(store):
    encoder, found = load_encoder(store.path(space())), neighbours(store, space())
    assert encoder.vocabulary == found.shape[1] == len(encoder.tokenizer)
    ids = frequent_subwords(
        space().parts[0], tokenizers.read_tokenizer(store.path(TOKENIZER)), store, 5
    )
    copies = frequent_subwords(
        space().parts[1], tokenizers.read_tokenizer(store.path(TOKENIZER)), store, 5
    )
    vectors = encoder.vectors.numpy()
    expected = copies[brute_nearest(vectors[ids], vectors[copies], 3)]
    assert (found[0, ids, 0, :3] == expected).all()


def planted(tmp_path, monkeypatch, noise, fit="vecmap", **fields):
    """The share of pieces whose nearest neighbour is right, where the second language's vectors are
    the first's, turned.
    """
    spec, store = space(fit=fit, **fields), Store(tmp_path)
    engine.run([*spec.parts], store, progress=False)
    rng = np.random.default_rng(1)
    size = tokenizers.read_tokenizer(store.path(TOKENIZER)).get_vocab_size()
    words = rng.normal(size=(size, 16)) * np.logspace(0, -1, 16) * rng.choice([1, 3], (size, 1))
    turned = (words + noise * rng.normal(size=words.shape)) @ np.linalg.qr(
        rng.normal(size=(16, 16))
    )[0]
    tables = {0: np.concatenate([words, words]), 1: np.concatenate([turned, turned])}
    parts = {
        store.path(part) / "vectors.safetensors": tables[part.seed].astype(np.float32)
        for part in spec.parts
    }
    import safetensors.numpy

    usual = safetensors.numpy.load_file
    monkeypatch.setattr(
        safetensors.numpy,
        "load_file",
        lambda path: {"vectors": parts[path]} if path in parts else usual(path),
    )
    engine.run([spec], store, progress=False)
    ids, found = (
        frequent_subwords(
            spec.parts[0], tokenizers.read_tokenizer(store.path(TOKENIZER)), store, 5
        ),
        neighbours(store, spec),
    )
    return (found[0, ids, 0, 0] == ids + size).mean()


def test_a_planted_turn_is_found_by_known_pairs_and_not_by_nothing(tmp_path, monkeypatch):
    half = Dictionary("same", "even")
    assert planted(tmp_path / "a", monkeypatch, 0.01, "known", dictionary=half) > 0.9
    assert planted(tmp_path / "b", monkeypatch, 0.01, "known", dictionary=half, rotation=True) > 0.9
    assert planted(tmp_path / "c", monkeypatch, 0.01, "nothing") < 0.2


def test_known_pairs_are_pieces_and_their_copies(store):
    spec = space(fit="known", dictionary=Dictionary("same", "even"))
    tokenizer = tokenizers.read_tokenizer(store.path(TOKENIZER))
    ids = [frequent_subwords(one, tokenizer, store, 5) for one in spec.parts]
    places = dictionary_rows(spec, 1, ids, tokenizer)
    assert (
        len(places) > 5
        and (ids[1][places[:, 0]] - tokenizer.get_vocab_size() == ids[0][places[:, 1]]).all()
    )


# ---- replacement


def by_hand(sentences, chosen, u, draws, masking, languages, table, random):
    """What becomes of every chosen token, one at a time."""
    new, (other, rank) = [], draws
    for n, i in enumerate(chosen):
        old, spoken = int(sentences.ids[i]), int(languages[sentences.sentence[i]])
        if u[n] < masking.mask:
            new.append(MASK + int(sentences.special[i]))
        elif u[n] < masking.mask + masking.knn and (spoken == 0 or not masking.first):
            near = int(table[spoken, old, other[n], rank[n]])
            new.append(old if near < 0 else near)
        elif u[n] >= 1 - masking.random:
            new.append(int(random[n]))
        else:
            new.append(old)
    return new


@pytest.fixture(scope="module")
def three():
    """Three languages of ten pieces each, one of which has no neighbours, in 4,000 sentences
    each.
    """
    rng = np.random.default_rng(2)
    texts = [
        Encoded((rng.integers(5, 15, 24000) + 10 * n).astype(np.int32), np.arange(0, 24001, 6))
        for n in range(3)
    ]
    table = np.full((3, 35, 2, 4), -1)
    for n in range(3):
        others = [m for m in range(3) if m != n]
        table[n, 6 + 10 * n : 15 + 10 * n] = np.stack(
            [rng.integers(5, 15, (9, 4)) + 10 * m for m in others], 1
        )
    mixed = build_sentence_dataset(
        texts, [language_views(model("original", None), 15)[0]] * 3, 35, 16
    )
    return mixed, assemble_batch(mixed, np.arange(len(mixed))), mixed.language, table


@pytest.mark.parametrize("name", ["knn", "knn_released", "knn_first"])
def test_replacement_is_that_of_a_loop_over_tokens(three, name):
    _, sentences, languages, table = three
    ids, chosen = mask_tokens(
        sentences, MASKING[name], 35, seeded_generator(MASKS, 1, 2), None, languages, table
    )
    rng = seeded_generator(MASKS, 1, 2)
    assert (
        chosen
        == np.flatnonzero(sentences.content & (rng.random(len(sentences.ids), np.float32) < 0.15))
    ).all()
    u, random = rng.random(len(chosen), np.float32), rng.integers(0, 35, len(chosen))
    draws = rng.integers(0, 2, len(chosen)), rng.integers(0, 4, len(chosen))
    assert ids[chosen].tolist() == by_hand(
        sentences, chosen, u, draws, MASKING[name], languages, table, random
    )
    assert (np.delete(ids, chosen) == np.delete(sentences.ids, chosen)).all(), (
        "nothing else is touched"
    )


@pytest.mark.parametrize("name", ["knn", "knn_released"])
def test_shares_are_those_of_the_split(three, name):
    _, sentences, languages, table = three
    ids, chosen = mask_tokens(
        sentences, MASKING[name], 10**6, seeded_generator(MASKS, 5, 0), None, languages, table
    )
    new, old = ids[chosen], sentences.ids[chosen]
    known, abroad = (
        (old - 5) % 10 > 0,
        ((new - 5) // 10 != (old - 5) // 10) & (new >= 5) & (new < 35),
    )

    def likely(count, n, share):
        return binom.ppf(1e-4, n, share) <= count <= binom.ppf(1 - 1e-4, n, share)

    split = MASKING[name]
    assert likely((new == MASK).sum(), len(new), split.mask) and likely(
        (new >= 35).sum(), len(new), split.random
    )
    assert likely(abroad[known].sum(), known.sum(), split.knn) and not abroad[~known].any()
    assert likely((new == old)[known].sum(), known.sum(), split.keep), "the rest stays"
    assert likely((new == old)[~known].sum(), (~known).sum(), split.keep + split.knn), (
        "what has no neighbour stays too"
    )
    one = (new[abroad & known] - 5) // 10 == (((old[abroad & known] - 5) // 10) == 0)
    assert likely(one.sum(), len(one), 0.5), "either of the two other languages"


def test_whatever_replaces_a_token_is_one_of_its_neighbours(three):
    _, sentences, languages, table = three
    only = Masking(0, 0, 0, knn=1)
    ids, chosen = mask_tokens(
        sentences, only, 35, seeded_generator(MASKS, 5, 0), None, languages, table
    )
    seen = {}
    for old, new in zip(sentences.ids[chosen].tolist(), ids[chosen].tolist()):
        seen.setdefault(old, set()).add(new)
    for old, new in seen.items():
        near = set(table[(old - 5) // 10, old].ravel().tolist())
        assert new == (near if near != {-1} else {old}), "all of them come, and nothing else"


def test_the_first_language_alone(three):
    _, sentences, languages, table = three
    ids, chosen = mask_tokens(
        sentences,
        MASKING["knn_first"],
        10**6,
        seeded_generator(MASKS, 5, 0),
        None,
        languages,
        table,
    )
    new, old = ids[chosen], sentences.ids[chosen]
    moved = (new != old) & (new != MASK) & (new < 35)
    assert moved[old < 15].any() and not moved[old >= 15].any()


def test_without_a_share_of_neighbours_the_draws_are_what_they_were(three):
    _, sentences, languages, table = three
    plain = mask_tokens(sentences, MASKING["original"], 35, seeded_generator(MASKS, 1, 2))
    given = mask_tokens(
        sentences, MASKING["original"], 35, seeded_generator(MASKS, 1, 2), None, languages, table
    )
    assert all((a == b).all() for a, b in zip(plain, given))
    again = mask_tokens(
        sentences, MASKING["knn"], 35, seeded_generator(MASKS, 1, 2), None, languages, table
    )
    assert (again[1] == plain[1]).all(), "the same tokens are chosen"


# ---- as runs


def test_a_stack_trains_each_as_alone(store, tmp_path):
    alone = Store(tmp_path)
    wanted = model(seed=3), model(seed=4, nearest=5, masking="knn_released")
    for spec in wanted:
        engine.run([spec], alone, progress=False, stack=1)
    for spec in wanted:
        mine, theirs = (load_file(s.path(spec) / "model.safetensors") for s in (alone, store))
        for name in mine:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_model_reads_as_many_neighbours_as_it_asks_for(store):
    tokenizer = tokenizers.read_tokenizer(store.path(TOKENIZER))
    for nearest in (1, 5):
        table = pretraining_dataset(model(nearest=nearest), tokenizer, store).neighbours
        assert (
            table.shape[3] == nearest and (table == neighbours(store, space())[..., :nearest]).all()
        )
    assert pretraining_dataset(model("original", None), tokenizer, store).neighbours is None


def test_the_run_is_a_parent_and_its_absence_leaves_no_trace():
    assert space() in parents(model()) and set(space().parts) == set(parents(space())) - {
        TOKENIZER,
        TEXT,
    }
    assert "neighbours" not in canonical(model("original", None)) and "segments" not in canonical(
        model("original", None)
    )


def wrong(says, call):
    with pytest.raises(InputError, match=says):
        call()


def test_what_does_not_fit_is_refused():
    wrong("knn.*with neighbours of nowhere", lambda: model(neighbours=None))
    wrong("original.*with neighbours of another language", lambda: model("original"))
    wrong("the spaces keep 1 to 5", lambda: model(nearest=6))
    wrong(
        "neighbours of en, enfake for a model of enfake, en",
        lambda: replace(model(), languages=PAIR[::-1]),
    )
    wrong("another vocabulary", lambda: replace(model(), tokenizer=replace(TOKENIZER, size=90)))
    wrong("a seed of its own", lambda: SpaceSpec((part(PAIR[0], 1), part(PAIR[1], 1))))
    wrong("two languages or more", lambda: SpaceSpec((part(PAIR[0], 1),)))
    wrong(
        "one re-weighting",
        lambda: SpaceSpec(tuple(part(Language(l, TEXT), n) for n, l in enumerate("abc"))),
    )
    wrong("go together", lambda: space(fit="known"))
    wrong(
        "several vocabularies",
        lambda: SpaceSpec((part(PAIR[0], 1), part(PAIR[1], 2, replace(TOKENIZER, size=90)))),
    )


def test_languages_that_share_pieces_are_refused(tmp_path):
    spec = SpaceSpec((part(PAIR[0], 0), part(Language("again", TEXT), 1)))
    wrong(
        r"is of en and of again: give each language letters of its own",
        lambda: engine.run([spec], Store(tmp_path), progress=False),
    )


def test_too_little_text_is_refused(tmp_path):
    wrong(
        "400 times or more .* give more text",
        lambda: engine.run([space(min_count=400)], Store(tmp_path), progress=False),
    )


# ---- three languages under all modifications


def natural(**fields):
    texts = [
        Language("en", TEXT),
        *(Language(name, replace(TEXT, source=f"micro/{name}")) for name in ("de", "hi")),
    ]
    joint = TokenizerSpec(TEXT, 200, "words", tuple(l.corpus for l in texts[1:]))
    shape = Shape(1, 8, 1, 16, 24, positions=72, segments=3)
    return PretrainSpec(tuple(texts), joint, shape, Training(steps=2, batch=8), **fields)


def test_three_languages_have_positions_segments_and_special_tokens_of_their_own(tmp_path):
    spec, store = natural(lang_pos=True, shift_special=True), Store(tmp_path)
    engine.run([spec], store, progress=False)
    tokenizer = tokenizers.read_tokenizer(store.path(spec.tokenizer))
    size, own = tokenizer.get_vocab_size(), model_tokenizer(spec, tokenizer)
    encoder = load_encoder(store.path(spec))
    assert encoder.vocabulary == own.get_vocab_size() == size + 10
    for n, name in enumerate(("en", "de", "hi")):
        view = encoder.view(name)
        assert (view.position_offset, view.token_type) == (24 * n, n)
        names = [own.id_to_token(i + view.special_offset) for i in range(5)]
        assert names == ([*SPECIALS] if n == 0 else [f"{sign[:-1]}-{name}]" for sign in SPECIALS])
    assert (
        encoder.model.config.type_vocab_size == 3
        and encoder.model.config.max_position_embeddings == 72
    )


def test_a_shape_for_two_refuses_three():
    for shape in (Shape(1, 8, 1, 16, 24), Shape(1, 8, 1, 16, 24, positions=72)):
        wrong(
            "72 positions and 3 segments for 3 languages",
            lambda: replace(natural(lang_pos=True), shape=shape),
        )
