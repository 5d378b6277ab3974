"""Token translation as a run: gold by loops over words, floors by closed form, and what it
refuses.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from xlingual_nb import load_text, microworld
from xlingual_nb.errors import InputError
from xlingual_nb.measures import mean_shift, shift_translation
from xlingual_nb.measures.shift_translation import ShiftSpec, sentences_and_references
from xlingual_nb.models.external import ExternalCheckpointSpec
from xlingual_nb.models.checkpoints import load_checkpoint
from xlingual_nb.models.encoders import load_encoder
from xlingual_nb.models.pretraining import Language, PretrainSpec
from xlingual_nb.experiments.shifted_sentences import (
    gloss_sentence,
    shifted_sentence,
    shifted_sentences,
    word_glosses,
)
from xlingual_nb.experiments.liu2020_shifts import (
    shift_model_spec,
    shift_study_config,
    translation_spec,
)
from xlingual_nb.models.configs import LanguageView, Shape, Training
from xlingual_nb.models.static_vectors import save_static
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.stages import read_measures
from xlingual_nb.runs.store import Store
from xlingual_nb.text.records import RecordsSpec
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec


def told(name, part="dev", n=60, **more):
    return CorpusSpec(f"micro/{name}", part, (("sentences", n), *more.items()))


def untrained(kind="words", size=300, longest=40):
    languages = Language("en", told("en")), Language("es", told("es"))
    return PretrainSpec(
        languages,
        TokenizerSpec(told("en"), size, kind, (told("es"),)),
        Shape(2, 16, 1, 32, max_tokens=longest),
        Training(epochs=0, batch=16),
    )


WANTED = ShiftSpec(untrained(), ("en", "es"), (told("en"), told("es")), alphas=(0.0, 1.0, 40.0))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"))
    run([WANTED.checkpoint, *WANTED.texts], store, Inline(), progress=False)
    return store


def encoder_of(store, spec=WANTED):
    return load_checkpoint(store.path(spec.checkpoint))


def both(encoder, texts):
    return [
        shift_translation.read_side(encoder, side, (LanguageView(n), None))
        for side, n in zip(texts, ("en", "es"))
    ]


def speeches():
    return [microworld.annotated_corpus(name, "dev", 60) for name in ("en", "es")]


@pytest.mark.parametrize("kind, size", [("words", 300), ("wordpiece", 180)])
def test_gold_is_what_the_microworld_aligns(tmp_path, kind, size):
    """Word by word, with the tokenizer asked about each word alone: whole words, or pieces of which
    few are words.
    """
    spec, store = untrained(kind, size, longest=24), Store(tmp_path)
    run([spec], store, Inline(), progress=False)
    encoder, (en, es) = load_checkpoint(store.path(spec)), speeches()
    sides = both(encoder, [en.texts(), es.texts()])
    found = shift_translation.gold_translations(WANTED.texts, sides)
    starts, wanted, at, pieces = (
        sides[0].text.starts,
        {},
        0,
        [encoder.tokenizer(w, add_special_tokens=False)["input_ids"] for w in en.words],
    )
    links, room = dict(microworld.align_words(en, es).tolist()), encoder.max_length("en")
    for word, ids in enumerate(pieces):
        if word in en.starts:
            at = int(starts[en.rows[word]])
        other = (
            encoder.tokenizer(es.words[links[word]], add_special_tokens=False)["input_ids"]
            if word in links
            else []
        )
        if len(ids) == len(other) == 1 and ids != other and at - starts[en.rows[word]] < room:
            wanted[at] = (
                other[0],
                microworld.TAGS[en.upos[word]] in ("ADJ", "ADV", "NOUN", "PROPN", "VERB"),
            )
        at += len(ids)
    cut = {int(p): (int(i), bool(o)) for p, i, o in zip(found.positions, found.ids, found.open)}
    assert 100 < len(cut) == len(found.positions) and 0 < found.open.mean() < 1
    assert cut == {p: wanted[p] for p in cut} and len(cut) >= len(wanted) - 10, (
        "a few targets may lie beyond what fits"
    )


def test_a_perfect_translation_scores_all_and_a_copy_nothing(store):
    encoder = encoder_of(store)
    sides = both(encoder, [speech.texts() for speech in speeches()])
    gold, ids = shift_translation.gold_translations(WANTED.texts, sides), sides[0].text.ids
    perfect, copied = ids.copy(), np.arange(len(ids)) % 3 == 0
    perfect[gold.positions] = gold.ids
    assert {*shift_translation.gold_accuracy(perfect, gold, copied, copied).values()} == {1.0}
    assert {*shift_translation.gold_accuracy(ids, gold, copied, copied).values()} == {0.0}
    perfect[~copied] = 0
    half = shift_translation.gold_accuracy(perfect, gold, copied, ~copied)
    assert half["gold of copied"] == half["gold open of copied"] == 1 and half[
        "gold"
    ] == pytest.approx(copied[gold.positions].mean())
    assert half["gold of converted"] == half["gold open of converted"] == 0


def test_to_say_unknown_is_no_translation(store):
    """Of two words each, one that the vocabulary has and one that it has not, only the first can be
    right.
    """
    encoder, view = encoder_of(store), LanguageView("es")
    word = str(speeches()[1].words[0])
    half = shift_translation.read_side(encoder, [f"{word} ŋŋ", f"ŋŋ {word}"], (view, None))
    assert (half.text.ids == encoder.tokenizer.unk_token_id).sum() == 2
    assert shift_translation.translation_bleu(WANTED, encoder, half.text.ids, [half, half]) == 50
    assert shift_translation.majority_baseline(WANTED, encoder, [half, half], None)["bleu"] == 50
    none = shift_translation.read_side(encoder, ["ŋŋ"], (view, None))
    assert shift_translation.majority_baseline(WANTED, encoder, [none, none], None)["bleu"] == 0


def test_the_commonest_word_by_counting(store):
    encoder = encoder_of(store)
    sides = both(encoder, [speech.texts() for speech in speeches()])
    gold = shift_translation.gold_translations(WANTED.texts, sides)
    found = shift_translation.majority_baseline(WANTED, encoder, sides, gold)
    en, es = speeches()
    common = max(set(es.words), key=es.words.count)
    matched = sum(
        min(ours, said)
        for ours, said in zip(
            np.diff(en.starts), [words.split().count(common) for words in es.texts()]
        )
    )
    penalty = min(1, np.exp(1 - len(es.words) / len(en.words)))
    assert found["bleu"] == pytest.approx(100 * matched / len(en.words) * penalty)
    assert (
        found["gold"] == max(np.mean(gold.ids == i) for i in set(gold.ids))
        and found["gold open"] < found["gold"]
    )


def test_a_run_holds_every_layer_and_alpha(store):
    spec = WANTED
    run([spec], store, Inline(), progress=False)
    found = read_measures(store.path(spec))
    cells = {name for name in found if name.startswith("layer")}
    assert {" ".join(name.split()[:4]) for name in cells} == {
        f"layer {l} alpha {a}" for l in range(3) for a in ("0", "1", "40")
    }
    assert found["tokens"] == len(speeches()[0].words) and found["sentences"] == 60
    assert found["types source"] == len(set(speeches()[0].words)) and found["types shared"] == len(
        set(speeches()[0].words) & set(speeches()[1].words)
    )
    assert (
        found["layer 0 alpha 0 bleu"] == found["layer 2 alpha 0 bleu"]
        and found["best layer"] in (1, 2)
        and found["best alpha"] in (1, 40)
    )
    sentences = json.loads((store.path(spec) / "sentences.json").read_text())
    assert len(sentences) == 3 * 3 * 3 and {row["alpha"] for row in sentences} == {0.0, 1.0, 40.0}


def test_a_sentence_as_it_turns_has_the_concept_of_each_word(store):
    run([WANTED], store, Inline(), progress=False)
    turned = shifted_sentence(WANTED, store, layer=1).set_index("what")
    assert list(turned.index) == ["en", "α 0", "α 1", "α 40", "es, reference"]
    source, reference = turned.loc["en"], turned.loc["es, reference"]
    assert source.sentence == " ".join(sentences_and_references(WANTED, store)[0][0].split())
    known = word_glosses(told("en"))
    assert source.gloss.split() == [known[word] for word in source.sentence.split()]
    content = {gloss for gloss in source.gloss.split() if gloss.startswith(("noun", "verb"))}
    assert content and content <= set(reference.gloss.split()), "they say the same"
    rates = read_measures(store.path(WANTED))
    assert turned.converted["α 40"] == rates["layer 1 alpha 40 converted"]
    assert turned.converted[["en", "es, reference"]].isna().all()


def test_a_word_of_both_languages_has_both_concepts():
    english, spanish = {"fi": "of", "copa": "noun0"}, {"fi": "it", "copa": "noun0"}
    assert gloss_sentence("copa fi xx", [english, spanish]) == "noun0 of/it ·"
    assert gloss_sentence("copa fi", [english]) == "noun0 of"
    assert gloss_sentence("a house", [{}, {}]) == ""


def test_runs_that_a_store_lacks_turn_no_sentence(store):
    run([WANTED], store, Inline(), progress=False)
    lacking = replace(WANTED, alphas=(2.0,))
    turned = shifted_sentences({"es": WANTED, "en": lacking}, store, layer=1)
    assert set(turned.target) == {"es"}
    assert shifted_sentences({"en": lacking}, store, layer=1).empty


def test_the_sentences_of_the_reference_results_are_of_the_text_that_its_runs_read():
    path = Path(__file__).resolve().parents[1] / "results/laptop/14_language_shift/sentences.json"
    turned = pd.DataFrame(json.loads(path.read_text(encoding="utf-8")))
    sizes = shift_study_config("laptop", "micro")
    model = shift_model_spec(sizes, 0)
    assert list(dict.fromkeys(turned.target)) == list(sizes.shifts.targets[:2])
    for target, part in turned.groupby("target"):
        texts = translation_spec(sizes, model, "en-xx", target).texts
        first, last = part.sentence.iloc[0], part.sentence.iloc[-1]
        for text, sentence in zip(texts, (first, last)):
            parameters = dict(text.parameters)
            assert sentence == " ".join(load_text(text.source, text.part, **parameters)[0].split())
        weights = [f"α {weight:g}" for weight in sizes.shifts.alphas]
        assert sorted(part.what.iloc[1:-1]) == sorted(weights)


def test_text_from_elsewhere_has_no_gloss():
    assert word_glosses(CorpusSpec("bible/en-web")) == {}


def test_a_number_of_the_run_by_hand(store):
    """Layer 1, alpha 40: means and the forward pass by `transformers` alone."""
    encoder, (en, es) = encoder_of(store), speeches()
    run([WANTED], store, Inline(), progress=False)
    table = encoder.tokenizer.get_vocab()

    def ids(text):
        return torch.tensor([[2, *(table[w] for w in text.split()), 3]])

    def states(speech):
        return torch.cat(
            [
                encoder.model(ids(t), output_hidden_states=True).hidden_states[1][0, 1:-1]
                for t in speech.texts()
            ]
        )

    shift, made = 40 * (states(es).mean(0) - states(en).mean(0)), []

    def shifted(_, given, h):
        return (h[0] + shift, *h[1:]) if isinstance(h, tuple) else h + shift

    handle = encoder.model.bert.encoder.layer[0].register_forward_hook(shifted)
    for text in en.texts():
        made += encoder.model(ids(text)).logits[0, 1:-1].argmax(1).tolist()
    handle.remove()
    source, target = ({table[w] for w in speech.words} for speech in (en, es))
    rate = sum(y in target - source for y in made) / sum(y not in source & target for y in made)
    assert read_measures(store.path(WANTED))["layer 1 alpha 40 converted"] == pytest.approx(rate)


def test_along_says_what_is_added(store):
    encoder, said = encoder_of(store), [speech.texts() for speech in speeches()]
    texts = [(side, (LanguageView(n), None)) for side, n in zip(said, ("en", "es"))]
    plain = shift_translation.shift_directions(WANTED, encoder, texts)
    means = [mean_shift.language_means(encoder, side, "en") for side in said]
    assert all(torch.allclose(plain[l], means[1][l] - means[0][l]) for l in range(3))
    floor = shift_translation.shift_directions(replace(WANTED, along="orthogonal"), encoder, texts)
    assert all(
        abs(float(floor[l] @ plain[l])) < 1e-4 * float(plain[l].norm()) ** 2 + 1e-7
        for l in range(3)
    )
    few = shift_translation.shift_directions(replace(WANTED, estimated=5), encoder, texts)
    first = mean_shift.mean_difference_shift(
        *(mean_shift.language_means(encoder, side[:5], "en") for side in said)
    )
    assert all(torch.allclose(few[l], first[l]) for l in range(3)) and not torch.allclose(
        few[1], plain[1]
    )
    alike = shift_translation.shift_directions(replace(WANTED, mean_of="sentences"), encoder, texts)
    assert alike.keys() == plain.keys() and not torch.allclose(alike[1], plain[1])
    third = replace(WANTED, along="other", other=("fr", told("fr")))
    run([told("fr")], store, Inline(), progress=False)
    (_, _), (sentences, _) = shift_translation.texts_of_means(third, encoder, store, said)
    assert sentences == microworld.annotated_corpus("fr", "dev", 60).texts()


def test_records_are_turned_premises_and_hypotheses(store):
    records = tuple(
        RecordsSpec("nli", f"micro/{l}", "dev", 9, (("vocabulary", 128),)) for l in ("en", "es")
    )
    spec = ShiftSpec(
        WANTED.checkpoint, ("en", "es"), records, layers=(1,), alphas=(1.0,), units="words"
    )
    run([spec], store, Inline(), progress=False)
    found = read_measures(store.path(spec))
    assert (
        "layer 1 alpha 1 bleu" in found
        and "layer 1 alpha 1 gold" not in found
        and 9 < found["sentences"] <= 18
    )


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(layers=(1, 3)), "layer 3 is not there: choose 0"),
        (dict(pair=("en", "en")), "name two languages"),
        (dict(along="up"), "choose shift or orthogonal or other"),
        (dict(along="other"), "goes with other="),
        (dict(alphas=()), "no alpha"),
        (dict(means=(told("en"),)), "two names and two texts"),
    ],
)
def test_a_spec_refuses(fields, message):
    with pytest.raises(InputError, match=message):
        replace(WANTED, **fields)


def test_a_run_refuses(store, tmp_path):
    encoder = encoder_of(store)
    with pytest.raises(InputError, match="en and es have the same text"):
        shift_translation.translate(replace(WANTED, texts=(told("en"), told("en"))), encoder, store)
    short = told("en", n=1), told("es", n=1)
    run([*short], store, Inline(), progress=False)
    with pytest.raises(InputError, match="says nothing of a language"):
        shift_translation.translate(replace(WANTED, means=short), encoder, store)
    assert (
        shift_translation.translate(replace(WANTED, estimated=1), encoder, store)[0]["length"][
            "layer 1"
        ]
        > 0
    )
    tokenizer = encoder.tokenizer.backend_tokenizer
    static = ExternalCheckpointSpec(
        str(save_static(tmp_path / "static", np.ones((tokenizer.get_vocab_size(), 4)), tokenizer))
    )
    run([static], store, Inline(), progress=False)
    with pytest.raises(InputError, match="no masked-LM head"):
        shift_translation.translate(
            replace(WANTED, checkpoint=static), load_encoder(store.path(static)), store
        )


def test_a_brought_checkpoint_is_turned_and_priced(store, tmp_path):
    spec = replace(WANTED, checkpoint=ExternalCheckpointSpec(str(store.path(WANTED.checkpoint))))
    run([WANTED, spec], store, Inline(), progress=False)
    assert read_measures(store.path(spec)) == read_measures(store.path(WANTED))
    part, whole, theirs = (
        shift_translation.shift_cost(s)["flops"]
        for s in (replace(WANTED, layers=(1,)), WANTED, spec)
    )
    assert shift_translation.STEP < part < whole and theirs == pytest.approx(whole, rel=0.2)
    assert (
        shift_translation.shift_cost(replace(WANTED, checkpoint=ExternalCheckpointSpec("nowhere")))[
            "flops"
        ]
        == 0
    )
