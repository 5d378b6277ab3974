"""Kendall's tau over aligned words: against SciPy, by hand, the microworld's gold and annotators'
links.
"""

import json
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import kendalltau

from xlingual_nb import microworld
from xlingual_nb.errors import InputError
from xlingual_nb.measures import order
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.store import Store
from xlingual_nb.text.corpora import data_folder, find_data_file, read_lines
from xlingual_nb.text.records import RecordsSpec
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec


def told(language, sentences=80, **dials):
    return CorpusSpec(
        f"micro/{language}", "dev", (("sentences", sentences), ("vocabulary", 128), *dials.items())
    )


@settings(deadline=None, max_examples=60)
@given(st.permutations(range(9)), st.integers(2, 9))
def test_the_coefficient_is_kendalls(order_, n):
    links = [(0, i, j) for i, j in enumerate(order_[:n])]
    assert order.order_scores(links)["coefficient"] == pytest.approx(
        kendalltau(range(n), order_[:n]).statistic
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_links_of_one_word_to_many_count_where_they_have_an_order(links):
    turned = counted = 0
    for a, b in links:
        for c, d in links:
            if a < c and b != d:
                turned, counted = turned + (b > d), counted + 1
    found = order.reversed_share(links)
    assert np.isnan(found) if not counted else found == pytest.approx(turned / counted)


def test_scores_are_means_over_sentences_not_over_pairs():
    """A sentence of two words turned round, and one of five in place; a sentence of one link has no
    order.
    """
    links = [(0, 0, 1), (0, 1, 0), (2, 3, 3), *((5, i, i) for i in range(5))]
    assert order.order_scores(links) == dict(root=0.5, coefficient=0.0, share=0.5, sentences=2)
    with pytest.raises(InputError, match="no order"):
        order.order_scores([(0, 1, 1)])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 6))
def test_match_has_the_greatest_similarity_of_all_full_matchings(seed, m, n):
    rng = torch.Generator().manual_seed(seed)
    E, F = (torch.randn(k, 3, generator=rng) for k in (m, n))
    S = torch.nn.functional.cosine_similarity(E[:, None], F[None], dim=2).numpy()
    few, many = sorted((m, n))
    T = S if m <= n else S.T
    best = max(sum(T[i, j] for i, j in enumerate(js)) for js in permutations(range(many), few))
    found = order.match_alignment(E, F)
    assert S[tuple(found.T)].sum() == pytest.approx(best, abs=1e-5)
    assert len(found) == few and all(len({*side}) == few for side in found.T.tolist())


def test_match_is_simaligns():
    """(1 + cosine) / 2 and a full matching by networkx, as the authors of the method have it."""
    nx = pytest.importorskip("networkx")
    for seed in range(10):
        rng = torch.Generator().manual_seed(seed)
        E, F = torch.randn(5, 4, generator=rng), torch.randn(7, 4, generator=rng)
        S = (1 + torch.nn.functional.cosine_similarity(E[:, None], F[None], dim=2)).numpy() / 2
        graph = nx.Graph()
        graph.add_weighted_edges_from(
            (i, 5 + j, float(S[i, j])) for i in range(5) for j in range(7)
        )
        edges = {tuple(sorted(e)) for e in nx.max_weight_matching(graph, maxcardinality=True)}
        assert {(int(i), int(j) + 5) for i, j in order.match_alignment(E, F)} == edges


def test_gold_is_the_order_of_the_skeleton():
    """Every word of English against its own copy, and a language that says subject, object,
    verb.
    """
    same = order.order_scores(order.gold_links((told("en"), told("en"))))
    assert same["root"] == same["coefficient"] == 1

    def turned(**dials):
        return order.order_scores(order.gold_links((told("en"), told("en", **dials))))[
            "coefficient"
        ]

    assert turned(order="SOV") < 1 > turned(adposition="after") and turned(order="OVS") < turned(
        order="SOV"
    )


def test_gold_by_hand():
    first, second = (microworld.annotated_corpus(l, "dev", 80) for l in ("en", "hi"))
    by_hand = {s: [] for s in range(80)}
    for s in range(80):
        slots = [list(sp.slots[sp.starts[s] : sp.starts[s + 1]]) for sp in (first, second)]
        by_hand[s] = [slots[1].index(slot) for slot in slots[0] if slot in slots[1]]
    taus = [
        kendalltau(range(len(places)), places).statistic
        for places in by_hand.values()
        if len(places) > 1
    ]
    found = order.order_scores(order.gold_links((told("en"), told("hi"))))
    assert found["coefficient"] == pytest.approx(np.mean(taus)) and found["sentences"] == len(taus)


def test_gold_of_other_text_is_refused():
    with pytest.raises(InputError, match="bible/en-bbe is not known"):
        order.gold_links((told("en"), CorpusSpec("bible/en-bbe")))


ENES = Language("en", told("en")), Language("es", told("es"))
MODEL = PretrainSpec(
    ENES,
    TokenizerSpec(told("en"), 180, "words", (told("es"),)),
    Shape(layers=1, hidden=16, heads=1, intermediate=32, max_tokens=32),
    Training(epochs=0, batch=16),
)


def values(store, spec):
    run([spec], store, progress=False)
    return json.loads((store.path(spec) / "measures.json").read_text(encoding="utf-8"))


def test_a_run_of_gold_needs_no_model(tmp_path):
    spec = order.OrderSpec(("en", "hi"), (told("en"), told("hi")))
    assert values(Store(tmp_path), spec) == order.order_scores(order.gold_links(spec.texts))


def test_a_run_of_a_checkpoint_says_how_far_it_is_to_be_believed(tmp_path):
    spec = order.OrderSpec(
        ("en", "es"), (told("en"), told("es")), MODEL, words="spaces", sentences=30
    )
    found = values(Store(tmp_path), spec)
    assert (
        found["gold"] == order.order_scores(order.gold_links(spec.texts, 30))
        and 0 < found["f1"] < 1
    )
    assert found["sentences"] <= 30 and 0 < found["root"] < 1


def test_records_are_read_premise_and_hypothesis_and_no_pair_twice(tmp_path):
    records = [
        RecordsSpec("nli", f"micro/{l}", "dev", 9, (("vocabulary", 128),)) for l in ("en", "es")
    ]
    store = Store(tmp_path)
    run(records, store, progress=False)
    first, second = order.parallel_texts(store, records, 0)
    assert len(first) == len(second) == len({*zip(first, second)}) <= 18 and first[0] != first[1]
    assert [len(side) for side in order.parallel_texts(store, records, 5)] == [5, 5]


def test_the_sentences_of_a_text_stay_beside_their_gold(tmp_path):
    """Of 500 sentences some are said twice; the gold links number all of them."""
    texts, store = (told("en", 500), told("es", 500)), Store(tmp_path / "runs")
    run(texts, store, progress=False)
    said, links = order.parallel_texts(store, texts, 0), order.gold_links(texts)
    assert len(set(zip(*said))) < len(said[0]) == 500 > links[:, 0].max() > 490
    assert [len(side) for side in order.parallel_texts(store, texts, 60)] == [60, 60]
    lengths = [np.array([len(sentence.split()) for sentence in side]) for side in said]
    assert all((links[:, 1 + side] < lengths[side][links[:, 0]]).all() for side in (0, 1)), (
        "every link is within its sentence"
    )


def test_words_without_a_vector_are_not_aligned():
    E, starts = torch.randn(6, 8), np.array([0, 3, 6])
    has = np.array([True, False, True, True, True, True])
    links = order.match_sentences((E, has, starts), (E, np.ones(6, bool), starts))
    assert links.tolist() == [[0, 0, 0], [0, 2, 2], [1, 0, 0], [1, 1, 1], [1, 2, 2]]


@pytest.mark.parametrize(
    "pair, highest", [("en-fr", 1.0), ("ro-en", 0.85), ("zh-en", 0.75), ("ja-en", 0.6)]
)
def test_annotated_sentences_are_ordered_as_their_languages_are(pair, highest):
    """French and English are alike, Japanese puts the verb last."""
    if not data_folder():
        pytest.skip("no data folder")
    lines = list(read_lines(find_data_file(f"alignment/{pair}.gold")))
    links = order.read_links(lines)
    assert highest - 0.2 < order.order_scores(links)["root"] < highest
    assert (links >= 0).all() and links[:, 0].max() < len(lines)
