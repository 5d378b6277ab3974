"""Perplexity under replacements: [MASK] alone is the ordinary one, and a model of knn-replace can be
asked under the options that it was trained with
"""

import numpy as np
import pytest

from test_measures_embeddings import corpus
from xlingual_nb.errors import InputError
from xlingual_nb.experiments.knn_replace import table1_spec
from xlingual_nb.experiments.laboratory import row_spec
from xlingual_nb.experiments.scales import laboratory_config, laboratory_text
from xlingual_nb.measures.perplexity import masked_nll
from xlingual_nb.measures.replaced_perplexity import (
    ReplacedPerplexitySpec,
    chosen_nll,
    ordinary_measure,
    replace_tokens,
)
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.models.configs import Masking
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import load_json

SIZES = laboratory_config("smoke", "micro")
DEV = laboratory_text(SIZES)[1]


def test_with_every_chosen_token_masked_it_is_the_ordinary_perplexity(tmp_path):
    encoder = load_checkpoint(tiny_checkpoint(tmp_path))
    text = corpus(30, seed=3)
    all_masked = Masking(1.0, 0.0, 0.0)
    replaced = replace_tokens(text, all_masked, encoder.mask, encoder.vocabulary, seed=7)
    assert chosen_nll(encoder, text, *replaced, "any") == pytest.approx(
        masked_nll(encoder, text, "any", seed=7)
    )


def test_a_token_without_neighbours_stays():
    text = corpus(200, seed=3)
    none = np.full((1, 64, 1, 1), -1)
    all_neighbours = Masking(0.0, 0.0, 0.0, knn=1.0)
    inputs, is_chosen = replace_tokens(text, all_neighbours, 4, 64, neighbours=none)
    assert is_chosen.any() and (inputs.ids == text.ids).all()


def test_what_cannot_be_replaced_is_an_error():
    model = row_spec("0 original", SIZES, 0)
    with pytest.raises(InputError, match="neighbours"):
        ReplacedPerplexitySpec(model, DEV)
    with pytest.raises(InputError, match="masking='half'"):
        ReplacedPerplexitySpec(model, DEV, "half")


def test_row_30_is_measured_on_the_texts_of_its_ordinary_measure(shared_store):
    """At smoke: both readings run on one model, and what is asked for differs in the inputs alone."""
    model = table1_spec("30 knn-replace (released split)", SIZES, 0)
    spec = ReplacedPerplexitySpec(model, DEV, sentences=SIZES.measured)
    run([spec, ordinary_measure(spec)], shared_store, Inline(), progress=False)
    replaced, ordinary = (
        load_json(shared_store.path(each) / "measures.json")
        for each in (spec, ordinary_measure(spec))
    )
    for name, value in replaced.items():
        assert 1 < value != ordinary[name]
