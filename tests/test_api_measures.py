"""Measures and fine-tuning of `xl` on one small checkpoint: what must hold whatever it has learnt."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import xlingual_nb as xl
from xlingual_nb.measures.embeddings import hidden_states, sentence_vectors, word_vectors
from xlingual_nb.measures.mean_shift import decode
from xlingual_nb.measures.perplexity import masked_nll
from xlingual_nb.models.checkpoints import tiny_checkpoint


@pytest.fixture(scope="module")
def texts():
    english = xl.load_text("micro/en", sentences=120)
    return {"en": english, "fake": xl.fake_english(english)}


@pytest.fixture(scope="module")
def bert(texts):
    config = xl.PretrainingConfig(layers=2, hidden=16, epochs=3, tokenizer="words")
    return xl.pretrain(texts, config, progress=False)


@pytest.fixture(scope="module")
def dictionary(texts):
    words = sorted(set(" ".join(texts["en"]).split()))
    return {"en": words, "fake": xl.fake_english(words)}


@pytest.fixture
def twin(tmp_path):
    """A model for which two languages are one: their embeddings are equal."""
    views = [dict(name="en"), dict(name="fake", token_offset=32)]
    model = xl.load_checkpoint(tiny_checkpoint(tmp_path, languages=views))
    weights = model.model.get_input_embeddings().weight
    weights[32:] = weights[:32]
    return model


SENTENCES = [f"w{i} w{i + 7} w{2 * i % 27 + 5}" for i in range(5, 20)]
WORDS = [f"w{i}" for i in range(5, 32)]


# --- measures


def test_a_model_to_which_two_languages_are_one_has_the_highest_score(twin):
    pair = {"en": SENTENCES, "fake": SENTENCES}
    score = xl.multilinguality(twin, pair, {"en": WORDS, "fake": WORDS})
    assert score.to_dict() == pytest.approx(dict(mu=1, rho=1, tau=1))
    assert (xl.word_retrieval(twin, pair, {"en": WORDS, "fake": WORDS})["p@1"] == 1).all()
    assert (abs(xl.language_identity(twin, pair).accuracy - 0.5) < 0.3).all()


def test_the_score_is_that_of_the_probe(bert, texts, dictionary):
    score = xl.multilinguality(bert, texts, dictionary)
    table = xl.probe(bert, texts, dictionary)
    assert score.mu == pytest.approx(table[table.measure == "mu"].value.item())
    assert score.mu == pytest.approx((score.rho + score.tau) / 2)


def test_embeddings_that_share_no_token_tell_their_languages(bert, texts):
    assert xl.language_identity(bert, texts).accuracy[0] > 0.75


@pytest.mark.parametrize(
    "wrong",
    [
        lambda bert, texts, words: xl.multilinguality(bert, {"en": texts["en"]}, words),
        lambda bert, texts, words: xl.multilinguality(bert, dict(texts, en=texts["en"][:3]), words),
        lambda bert, texts, words: xl.multilinguality(bert, texts, dict(words, es=words["en"])),
        lambda bert, texts, words: xl.multilinguality(bert, texts, {"en": words["en"]}),
        lambda bert, texts, words: xl.word_retrieval(bert, texts, {"en": words["en"]}),
        lambda bert, texts, words: xl.word_retrieval(bert, texts, words, layers=3),
        lambda bert, texts, words: xl.language_identity(bert, texts, layers=[3]),
        lambda bert, texts, words: xl.mean_shift(bert, texts, "en", "fake").translate(["fec"], 3),
        lambda bert, texts, words: xl.mean_shift(bert, texts, "en", "fake").evaluate(
            {"en": texts["en"]}
        ),
        lambda bert, texts, words: xl.mean_shift(bert, texts, "en", "fake").evaluate(
            texts, weights="1"
        ),
        lambda bert, texts, words: xl.word_retrieval(bert, texts, dict(words, en=["fec"])),
        lambda bert, texts, words: xl.word_retrieval(bert, texts, dict(en=["xx"], fake=["yy"])),
        lambda bert, texts, words: xl.language_identity(bert, {"en": texts["en"]}),
        lambda bert, texts, words: xl.mean_shift(bert, texts, "en", "es"),
        lambda bert, texts, words: xl.mean_shift(bert, texts, "en", "en"),
    ],
)
def test_what_cannot_be_measured_is_one_error(bert, texts, dictionary, wrong):
    with pytest.raises(xl.InputError):
        wrong(bert, texts, dictionary)


def test_one_layer_may_be_named_without_a_list(bert, texts, dictionary):
    assert xl.word_retrieval(bert, texts, dictionary, layers=0).index.tolist() == [0]
    assert xl.language_identity(bert, texts, layers=1).index.tolist() == [1]
    shift = xl.mean_shift(bert, texts, "en", "fake")
    assert shift.evaluate(texts, layers=0, weights=[1.0]).layer.tolist() == [0]


def test_one_text_for_two_languages_is_told(texts, tmp_path):
    model = xl.load_checkpoint(tiny_checkpoint(tmp_path))
    with pytest.warns(UserWarning, match="same text"):
        xl.probe(model, {"en": SENTENCES, "es": SENTENCES})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*same text")
        xl.probe(model, {"en": SENTENCES, "es": SENTENCES[::-1]})


def test_a_shift_of_weight_zero_leaves_the_model_alone(bert, texts):
    shift = xl.mean_shift(bert, texts, "en", "fake")
    back = xl.mean_shift(bert, texts, "fake", "en")
    for layer, vector in shift.vectors.items():
        assert torch.equal(vector, -back.vectors[layer])
    spoken = {tuple(shift.translate(texts["en"][:5], layer, 0.0)) for layer in shift.vectors}
    assert len(spoken) == 1
    assert shift.translate(texts["en"][:5], weight=3.0) != list(spoken.pop())


# --- what an importer gives first


def test_plain_sentences_give_what_their_ids_give(bert, texts):
    ids = bert.encode(texts["en"], "en")
    plain = xl.sentence_vectors(bert, texts["en"], "en", layers=(0, 2))
    of_ids = sentence_vectors(bert.encoder, ids, "en", (0, 2))
    assert list(plain) == [0, 2]
    for layer, vectors in plain.items():
        torch.testing.assert_close(vectors, of_ids[layer], atol=1e-5, rtol=1e-5)
    assert xl.masked_nll(bert, texts["en"], "en", seed=3) == masked_nll(
        bert.encoder, ids, "en", seed=3
    )
    assert list(xl.sentence_vectors(bert, texts["en"][:2], "en", 1)) == [1]
    with pytest.raises(xl.InputError, match="one string"):
        xl.sentence_vectors(bert, texts["en"][0], "en")


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda bert, text: sentence_vectors(bert.encoder, text, "en", 0), "xl.sentence_vectors"),
        (lambda bert, text: hidden_states(bert.encoder, text, "en", 0), "encode_text"),
        (lambda bert, text: masked_nll(bert.encoder, text, "en"), "xl.masked_nll"),
        (lambda bert, text: word_vectors(bert.encoder, ["fec"], "en", 0), "words where token ids"),
        (lambda bert, text: sentence_vectors(bert, text, "en", 0), "take its `encoder`"),
        (lambda bert, text: xl.sentence_vectors(bert.model, text, "en"), "is a BertForMaskedLM"),
        (
            lambda bert, text: decode(
                bert.encoder, bert.encode(text, "en"), "en", 1, np.zeros(16, np.float32)
            ),
            "torch.as_tensor",
        ),
    ],
)
def test_what_a_function_is_not_made_for_is_one_line_that_helps(bert, texts, call, says):
    with pytest.raises(xl.InputError, match=says) as refusal:
        call(bert, texts["en"][:3])
    assert "\n" not in str(refusal.value)


def test_an_encoder_and_a_checkpoint_do_the_same(bert, texts, dictionary):
    of_encoder = xl.multilinguality(bert.encoder, texts, dictionary)
    assert of_encoder.equals(xl.multilinguality(bert, texts, dictionary))
    table = xl.subword_overlap(texts, bert.tokenizer)
    assert xl.subword_overlap(texts, bert).equals(table)


def test_a_few_words_are_measured_and_told(bert, texts, dictionary, tmp_path):
    few = {language: words[:5] for language, words in dictionary.items()}
    for measure in (xl.multilinguality, xl.word_retrieval, xl.probe):
        with pytest.warns(UserWarning, match="5 pairs of words, and one word is 20 points"):
            measure(bert, texts, few)
    unknown = [f"{word}x" for word in dictionary["en"]]
    many = {"en": few["en"] + unknown, "fake": few["fake"] + xl.fake_english(unknown)}
    with pytest.warns(
        UserWarning, match=f"of {5 + len(unknown)} pairs .* the texts have 5, .* more text"
    ):
        xl.word_retrieval(bert, texts, many)
    path = tmp_path / "en-fi.txt"
    path.write_text("house talo\ndog koira\n")
    with pytest.warns(UserWarning, match=f"{path} has 2 pairs"):
        xl.load_dictionary({"en": "micro/en", "fi": "micro/es"}, f"file:{path}")


def test_words_of_a_language_that_the_model_lacks_are_refused(bert, texts, dictionary):
    with pytest.raises(xl.InputError, match="not 'xx'"):
        xl.word_retrieval(
            bert,
            {"en": texts["en"], "xx": texts["fake"]},
            {"en": dictionary["en"], "xx": dictionary["fake"]},
        )


@pytest.mark.parametrize(
    "measure",
    [
        lambda bert, texts, words: xl.word_retrieval(bert, texts, words, layers=0),
        lambda bert, texts, words: xl.mean_shift(bert, texts, "en", "fake"),
    ],
    ids=["word_retrieval", "mean_shift"],
)
def test_sentences_that_are_cut_are_warned_of(bert, texts, dictionary, measure):
    longer = {language: [*text, " ".join(text)] for language, text in texts.items()}
    with pytest.warns(UserWarning, match="1 of 121 sentences of en .* 1 of 121 sentences of fake"):
        measure(bert, longer, dictionary)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure(bert, texts, dictionary)


def test_one_weight_of_a_shift_needs_no_list(bert, texts):
    shift = xl.mean_shift(bert, texts, "en", "fake")
    pair = {language: text[:5] for language, text in texts.items()}
    of_one = shift.evaluate(pair, layers=1, weights=1)
    assert of_one.equals(shift.evaluate(pair, layers=[1], weights=[1])) and len(of_one) == 1


def test_first_vectors_do_not_keep_those_of_whole_sentences(bert, texts, monkeypatch):
    """A view of a token's vector would hold on to the states of its whole batch."""
    stack = torch.stack
    sizes = []

    def measured(rows):
        sizes.extend(row.untyped_storage().nbytes() for row in rows)
        return stack(rows)

    monkeypatch.setattr(torch, "stack", measured)
    vectors = xl.sentence_vectors(bert, texts["en"], "en", layers=0, pooling="cls")[0]
    assert max(sizes) <= vectors.nbytes


# --- mapped word vectors


@pytest.fixture(scope="module")
def table():
    return np.random.default_rng(0).normal(size=(60, 8)) ** 3


def test_tables_of_all_kinds_are_mapped_alike(table):
    reverse = np.ascontiguousarray(table[:, ::-1])
    expected = xl.vecmap(table, reverse).first
    for first, second in (
        (table, table[:, ::-1]),
        (pd.DataFrame(table), pd.DataFrame(reverse)),
        (torch.from_numpy(table), reverse),
    ):
        assert torch.equal(xl.vecmap(first, second).first, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, "a"])
def test_a_table_of_anything_but_numbers_is_refused(table, value):
    damaged = pd.DataFrame(table).astype(object if value == "a" else float)
    damaged.iloc[3, 3] = value
    for first, second, name in ((damaged, table, "first"), (table, damaged, "second")):
        with pytest.raises(xl.InputError, match=name):
            xl.vecmap(first, second)
    with pytest.raises(xl.InputError, match="first"):
        xl.vecmap([["a", "b"], ["c", "d"]], table)


# --- fine-tuning


@pytest.fixture(scope="module")
def records():
    return xl.load_records("nli", "micro/en", size=60)


def test_what_is_fine_tuned_is_a_copy_and_depends_on_the_seed(bert, records):
    before = bert.model.get_input_embeddings().weight.clone()
    config = xl.FineTuningConfig(epochs=1, frozen_layers=None)

    def losses(seed):
        tuned = xl.fine_tune(
            "nli", bert, records, "en", config=replace(config, seed=seed), progress=False
        )
        return tuned.loss.tolist()

    assert losses(0) == losses(0) != losses(1)
    assert torch.equal(before, bert.model.get_input_embeddings().weight)


def test_answers_need_no_labels_and_are_scored_against_those_there_are(bert, records):
    tuned = xl.fine_tune("nli", bert, records, "en", dev=records[:10], progress=False)
    unlabelled = [{side: r[side] for side in ("premise", "hypothesis")} for r in records]
    answers = tuned.predict(unlabelled, "en")
    right = sum(answer == r["label"] for answer, r in zip(answers, records))
    assert tuned.score(records, "en") == pytest.approx(100 * right / len(records))
    fake = xl.transform_records(xl.fake_english, records)
    table = tuned.evaluate({"en": records, "fake": fake})
    assert table.accuracy["en"] == tuned.score(records, "en")
    assert table.accuracy["fake"] == tuned.score(fake, "fake")


@pytest.mark.parametrize(
    "wrong",
    [
        ["fec hobvo"],
        [{"words": ["fec"]}],
        [{"tokens": "fec hobvo", "tags": "NV"}],
        [{"tokens": ["fec", "hobvo"], "tags": ["N"]}],
        pd.DataFrame({"tokens": [["fec"]], "tags": [["N"]]}),
    ],
    ids=["text", "columns", "one string", "lengths", "table"],
)
def test_what_are_no_records_of_a_task_is_told_by_its_number(bert, wrong):
    right = [{"tokens": ["fec"], "tags": ["N"]}]
    with pytest.raises(xl.InputError, match="record 12 " if type(wrong) is list else "record"):
        wrong = right * 11 + wrong if type(wrong) is list else wrong
        xl.fine_tune("pos", bert, wrong, "en", progress=False)


@pytest.mark.parametrize(
    ("task", "column", "entry"),
    [
        ("ner", "tags", 1),
        ("pos", "tags", None),
        ("pos", "tokens", 1),
        ("parsing", "heads", "0"),
        ("parsing", "relations", 1),
    ],
)
def test_entries_of_another_kind_are_told_by_their_column(bert, task, column, entry):
    right = {"tokens": ["fec"], "tags": ["O"], "heads": [0], "relations": ["root"]}
    with pytest.raises(xl.InputError, match=f"{column} of record 12 "):
        records = [right] * 11 + [right | {column: [entry]}]
        xl.fine_tune(task, bert, records, "en", progress=False)


def test_a_parse_is_read_by_the_names_of_its_parts(bert):
    examples = xl.load_records("parsing", "micro/en", size=20)
    config = xl.FineTuningConfig(epochs=1)
    parser = xl.fine_tune("parsing", bert, examples, "en", config=config, progress=False)
    (tree,) = parser.predict([{"tokens": ["fec", "hobvo"]}], "en")
    assert len(tree.heads) == len(tree.relations) == 2


def test_words_in_one_string_are_not_read_letter_by_letter(bert):
    examples = xl.load_records("pos", "micro/en", size=20)
    tagger = xl.fine_tune("pos", bert, examples, "en", progress=False)
    assert len(tagger.predict([{"tokens": ["fec", "hobvo"]}], "en")[0]) == 2
    with pytest.raises(xl.InputError):
        tagger.predict([{"tokens": "fec hobvo"}], "en")
    with pytest.raises(xl.InputError, match="by language"):
        tagger.evaluate(examples)


def test_a_language_that_the_model_lacks_is_refused(bert, records):
    with pytest.raises(xl.InputError, match="not 'es'"):
        xl.fine_tune("nli", bert, records, "es", progress=False)
    tuned = xl.fine_tune("nli", bert, records, "en", progress=False)
    with pytest.raises(xl.InputError, match="not 'es'"):
        tuned.evaluate({"es": records})


def test_a_tagger_is_saved_for_transformers(bert, tmp_path):
    from transformers import AutoModelForTokenClassification

    examples = xl.load_records("pos", "micro/en", size=40)
    tagger = xl.fine_tune("pos", bert, examples, "en", progress=False)
    model = AutoModelForTokenClassification.from_pretrained(tagger.save(tmp_path / "tagger"))
    assert set(model.config.label2id) == {tag for r in examples for tag in r["tags"]}
    for save in (tagger.save, tagger.save_encoder):  # its own checkpoint before all
        before = (bert.folder / "model.safetensors").read_bytes()
        with pytest.raises(xl.InputError, match="not empty"):
            save(bert.folder)
        assert (bert.folder / "model.safetensors").read_bytes() == before
    nli = xl.fine_tune(
        "nli", bert, xl.load_records("nli", "micro/en", size=30), "en", progress=False
    )
    with pytest.raises(xl.InputError, match="none of transformers"):
        nli.save(tmp_path / "nli")


@pytest.mark.parametrize("task", ["nli", "pos", "parsing"])
def test_the_encoder_after_fine_tuning_is_a_checkpoint(bert, dictionary, task):
    """Frozen layers are as they were, what lies above them is not."""
    examples = xl.load_records(task, "micro/en", size=40)
    config = xl.FineTuningConfig(epochs=2, learning_rate=0.01, frozen_layers=1)
    tuned = xl.fine_tune(task, bert, examples, "en", config=config, progress=False)
    after = tuned.save_encoder()
    assert after.languages == bert.languages
    for layer, is_frozen in ((0, True), (1, True), (2, False)):
        vectors = [
            xl.word_trajectory([model], dictionary, layer=layer).vectors for model in (bert, after)
        ]
        assert (vectors[0] == vectors[1]).all() == is_frozen
