"""Which language comes out where a token is masked, and nearest to a word vector"""

import numpy as np
import pytest
import torch

from test_measures_embeddings import corpus
from xlingual_nb.errors import InputError
from xlingual_nb.experiments.liu2020_shifts import (
    masked_language_specs,
    parallel_text,
    shift_model_spec,
    shift_study_config,
)
from xlingual_nb.measures.masked_language import (
    MaskedLanguageSpec,
    decode_masked,
    nearest_words,
    share_of_target_only,
)
from xlingual_nb.measures.perplexity import choose_masked_tokens
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.files import load_json
from xlingual_nb.text.tokenizers import Encoded

SIZES = shift_study_config("smoke", "micro")


def test_strings_of_both_languages_count_for_neither():
    assert share_of_target_only(np.array([5, 6, 7, 5]), np.array([6, 7]), np.array([5, 6])) == 0.5


def test_masked_tokens_are_decoded_and_not_read(tmp_path):
    encoder = load_checkpoint(tiny_checkpoint(tmp_path))
    text = corpus(30, seed=3)
    is_masked = choose_masked_tokens(len(text.ids), 0.3, 7)
    decoded = decode_masked(encoder, text, "any", seed=7, rate=0.3)
    assert len(decoded) == is_masked.sum()
    others = Encoded(np.where(is_masked, 5, text.ids).astype(np.int32), text.starts)
    assert decode_masked(encoder, others, "any", seed=7, rate=0.3).tolist() == decoded.tolist()


def test_a_word_is_not_its_own_neighbour():
    vectors = torch.eye(4)[[0, 0, 1, 2]]
    nearest = nearest_words(vectors, np.array([0, 1]), np.arange(4))
    assert nearest.tolist() == [1, 0]


def test_a_spec_needs_two_languages():
    text = parallel_text(SIZES, "zh")
    with pytest.raises(InputError, match="two languages"):
        MaskedLanguageSpec(shift_model_spec(SIZES, 0), ("zh", "zh"), (text, text))


def test_bert_and_word_vectors_are_asked_on_the_same_texts(shared_store):
    specs = masked_language_specs(SIZES, shift_model_spec(SIZES, 0), "zh")
    assert len({(spec.texts, spec.checkpoint.languages) for spec in specs.values()}) == 1
    run([*specs.values()], shared_store, Inline(), progress=False)
    for spec in specs.values():
        values = load_json(shared_store.path(spec) / "measures.json")
        assert 0 <= values["masked"] <= 1 and values["tokens"] > 10
