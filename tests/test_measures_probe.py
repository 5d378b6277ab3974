"""The probe's table against the measures it is made of."""

import numpy as np
import pytest
import transformers as hf

from test_measures_embeddings import corpus
from xlingual_nb.errors import InputError
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.measures.embeddings import sentence_vectors
from xlingual_nb.measures.perplexity import pooled_perplexity
from xlingual_nb.measures.probe import encode_text, mu_rows, probe
from xlingual_nb.measures.remarks import remarks
from xlingual_nb.measures.retrieval import multilinguality, precision_at_1
from xlingual_nb.text.tokenizers import Encoded


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_checkpoint(tiny_checkpoint(tmp_path_factory.mktemp("model")))


def test_every_ordered_pair_and_layer(model):
    parallel = {name: corpus(25, seed=seed) for seed, name in enumerate(("en", "de", "ru"))}
    table = probe(
        model,
        parallel,
        dictionary=dict(en=Encoded.of([[5], [6]]), de=Encoded.of([[7, 8], [9]])),
        layers=(0, 3),
    )
    assert list(table.columns) == ["measure", "source", "target", "layer", "value", "n"]
    assert table["measure"].value_counts().to_dict() == dict(rho=12, tau=4, perplexity=3)
    rho = table[table["measure"] == "rho"].set_index(["source", "target", "layer"])["value"]
    vectors = {name: sentence_vectors(model, text, name, (0, 3)) for name, text in parallel.items()}
    for a, b in (("en", "de"), ("ru", "de")):
        assert np.mean([rho[a, b, 3], rho[b, a, 3]]) == pytest.approx(
            precision_at_1(vectors[a][3], vectors[b][3])
        )
    perplexity = table[table["measure"] == "perplexity"].set_index("source")["value"]
    assert perplexity["ru"] == pytest.approx(pooled_perplexity(model, {"ru": parallel["ru"]}))


def test_a_further_measure_leaves_mu_as_it_is():
    def row(measure, source, target, layer, value):
        return dict(measure=measure, source=source, target=target, layer=layer, value=value, n=9)

    rows = []
    for measure, value in (("rho", 0.2), ("tau", 0.6)):
        for source, target in (("en", "de"), ("de", "en")):
            rows += [row(measure, source, target, layer, value) for layer in (0, 2)]
    (mu,) = mu_rows(rows, depth=3)
    assert mu["value"] == pytest.approx(0.4)
    assert mu_rows([row("cka", "en", "de", 0, 1.0), *rows], depth=3) == [mu]


def test_all_layers_by_default(model):
    assert set(probe(model, dict(a=corpus(), b=corpus()))["layer"].dropna()) == {0, 1, 2, 3}


def test_mu_is_the_score_of_the_laboratory(model):
    text, words = (
        [corpus(25, seed=seed) for seed in (0, 1, 2)],
        np.stack([np.arange(5, 20), np.arange(20, 5, -1)], 1),
    )
    table = probe(
        model,
        dict(zip(("en", "de", "ru"), text)),
        {n: Encoded.of(w) for n, w in zip(("en", "de"), words.T[..., None])},
    )
    (row,) = table[table.measure == "mu"].itertuples()
    assert (row.source, row.target, row.n) == ("en", "de", 15) and table.layer.isna()[row.Index]
    assert row.value == pytest.approx(
        multilinguality(model, *text[:2], views=("en", "de"), words=words)["mu"]
    )
    lower = probe(
        model,
        dict(zip(("en", "de"), text)),
        {n: Encoded.of([[5], [6]]) for n in ("en", "de")},
        layers=(0, 1),
    )
    assert "mu" not in set(lower.measure), "without the upper layer"


def test_an_encoder_without_a_head_is_probed_without_perplexity(tmp_path):
    tiny_checkpoint(tmp_path)
    hf.AutoModel.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert set(probe(load_checkpoint(tmp_path), dict(a=corpus(), b=corpus()))["measure"]) == {"rho"}


@pytest.mark.parametrize(
    "parallel, says",
    [
        (dict(a=corpus(2), b=corpus(3)), "same items"),
        ({}, "no language"),
        (dict(a=Encoded.of([[]]), b=corpus(1)), "no tokens"),
        (dict(a=corpus()), "holds a alone: give two languages or more"),
        (dict(a=corpus(2), b=["w5", "w6"]), "of 'b' is no `Encoded`: have encode_text"),
    ],
)
def test_what_is_not_parallel_is_refused(model, parallel, says):
    with pytest.raises(InputError, match=says):
        probe(model, parallel)


def test_text_passes_through_the_checkpoints_own_tokenizer(tmp_path):
    c = load_checkpoint(
        tiny_checkpoint(
            tmp_path, languages=[dict(name="en"), dict(name="x", token_offset=32, inverted=True)]
        )
    )
    assert [s.tolist() for s in encode_text(c, ["w5 w6", "w7 w99"], "en")] == [[5, 6], [7, 1]]
    assert [s.tolist() for s in encode_text(c, ["w5 w6", "w7 w99"], "x")] == [[38, 37], [1, 39]]


@pytest.mark.parametrize(
    "sentences, says",
    [
        ("the house", "'the house' is one string: give a list"),
        ([], "no sentences of 'en': give at least one"),
        (["w5", None], "None is among the sentences of 'en'"),
        (["w5", ["w6"]], r"\['w6'\] is among"),
    ],
)
def test_what_is_no_list_of_sentences_is_refused(model, sentences, says):
    with pytest.raises(InputError, match=says):
        encode_text(model, sentences, "en")


def test_sentences_may_come_one_after_the_other(model):
    assert len(encode_text(model, (s for s in ("w5", "w6 w7")), "en")) == 2


def test_what_is_cut_is_said(model):
    text = dict(en=Encoded.of([[5] * 23, [6] * 22, [7] * 40]), de=Encoded.of([[5]] * 3))
    assert remarks(model, text) == ["2 of 3 sentences of en were cut to 22 pieces"]
    assert remarks(model, text | dict(de=text["en"]))[0].endswith(
        "pieces, 2 of 3 sentences of de were cut to 22 pieces"
    )
