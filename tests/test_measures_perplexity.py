"""Perplexity against the library's own loss, and in the two cases where it is known beforehand."""

import math

import numpy as np
import pytest
import torch
import transformers as hf
from scipy.stats import binomtest

from test_measures_embeddings import DEVICES, FAMILIES, corpus
from xlingual_nb.errors import InputError
from xlingual_nb.models.checkpoints import load_checkpoint, tiny_checkpoint
from xlingual_nb.measures.perplexity import (
    choose_masked_tokens,
    masked_nll,
    nll_of_masked_sentences,
    pooled_perplexity,
)
from xlingual_nb.text.tokenizers import Encoded


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_librarys_loss_one_sentence_at_a_time(family, device, tmp_path):
    c, text = (
        load_checkpoint(tiny_checkpoint(tmp_path, config=FAMILIES[family]), device),
        corpus(30, seed=3),
    )
    chosen, total = choose_masked_tokens(len(text.ids), seed=7), 0.0
    for i, sentence in enumerate(text):
        asked = chosen[text.starts[i] : text.starts[i + 1]]
        if not asked.any():
            continue
        ids = torch.tensor([[2, *np.where(asked, 4, sentence), 3]], device=device)
        labels = torch.tensor([[-100, *np.where(asked, sentence, -100), -100]], device=device)
        with torch.no_grad():
            total += c.model(ids, labels=labels).loss.item() * asked.sum()
    nll, count = masked_nll(c, text, "any", seed=7, budget=50)
    assert count == chosen.sum() and nll == pytest.approx(total, rel=1e-4)
    quick, quick_count = nll_of_masked_sentences(c, text, "any", seed=7, budget=50)
    assert quick_count == count and quick == pytest.approx(nll, rel=1e-5)
    assert pooled_perplexity(c, {"any": text}, seed=7) == pytest.approx(
        math.exp(total / count), rel=1e-4
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    fake = dict(name="enfake", token_offset=32, special_offset=32, position_offset=12, token_type=1)
    return load_checkpoint(
        tiny_checkpoint(tmp_path_factory.mktemp("pair"), languages=[dict(name="en"), fake])
    )


def test_the_mask_of_a_language_is_its_own(pair):
    nll, count = masked_nll(pair, Encoded.of([[40, 41]]), "enfake", rate=1)
    place, kind = torch.arange(12, 16)[None], torch.ones(1, 4, dtype=torch.long)
    logits = (
        pair.model(torch.tensor([[34, 36, 36, 35]]), position_ids=place, token_type_ids=kind)
        .logits[0]
        .log_softmax(-1)
    )
    assert count == 2 and nll == pytest.approx(-(logits[1, 40] + logits[2, 41]).item(), rel=1e-5)


def test_languages_pool_token_by_token(pair):
    en, fake = corpus(40, 10), corpus(10, 10, seed=5, offset=32)
    (a, n), (b, m) = masked_nll(pair, en, "en"), masked_nll(pair, fake, "enfake")
    assert pooled_perplexity(pair, dict(en=en, enfake=fake)) == pytest.approx(
        math.exp((a + b) / (n + m))
    )


def test_known_beforehand(tmp_path):
    """An even head gives the size of the vocabulary; a head that is sure of one word gives 1 where
    that word stands.
    """
    c = load_checkpoint(tiny_checkpoint(tmp_path))
    decoder = c.model.cls.predictions.decoder
    decoder.weight.zero_()
    decoder.bias.zero_()
    assert pooled_perplexity(c, {"x": corpus()}) == pytest.approx(32, rel=1e-5)
    decoder.bias[9] = 50
    assert pooled_perplexity(c, {"x": Encoded.of([[9] * 10] * 5)}) == pytest.approx(1)


def test_masks_are_fair_coins_that_depend_on_the_seed_alone():
    chosen = choose_masked_tokens(100_000, seed=1)
    assert binomtest(int(chosen.sum()), 100_000, 0.15).pvalue > 1e-4 and np.array_equal(
        chosen, choose_masked_tokens(100_000, seed=1)
    )
    assert (
        abs(np.corrcoef(chosen[1:], chosen[:-1])[0, 1]) < 0.015
        and abs(np.corrcoef(chosen, choose_masked_tokens(100_000, seed=2))[0, 1]) < 0.015
    )
    assert choose_masked_tokens(5, rate=1).all() and not choose_masked_tokens(0).size


def test_numbers_do_not_depend_on_the_batch_budget(pair):
    values = [masked_nll(pair, corpus(60), "en", budget=budget)[0] for budget in (1, 60, 5000)]
    assert values == pytest.approx([values[0]] * 3, rel=1e-5)


def test_the_model_is_left_as_it_was(pair):
    ids = torch.tensor([[2, 5, 6, 3]])
    before = pair.model(ids).logits
    pooled_perplexity(pair, {"en": corpus()})
    with pytest.raises(InputError):
        pooled_perplexity(pair, {"en": Encoded.of([[99]])})
    assert torch.equal(before, pair.model(ids).logits) and before.shape == (1, 4, 64)


@pytest.mark.parametrize("rate", [0, -1, 1.5])
def test_an_impossible_rate(pair, rate):
    with pytest.raises(InputError, match="rate"):
        pooled_perplexity(pair, {"en": corpus()}, rate=rate)


def test_without_a_head_there_is_no_perplexity(pair, tmp_path):
    tiny_checkpoint(tmp_path)
    hf.AutoModel.from_pretrained(tmp_path).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no masked-LM head"):
        pooled_perplexity(load_checkpoint(tmp_path), {"x": corpus()})
    with pytest.raises(InputError, match="no corpora"):
        pooled_perplexity(pair, {})
