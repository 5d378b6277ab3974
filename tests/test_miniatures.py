"""Three experiments in miniature with `xl` alone, as a notebook shows them: the effect is there."""

import pytest

import xlingual_nb as xl

pytestmark = pytest.mark.slow
SMALL = dict(layers=2, tokenizer="words", learning_rate=4e-3, dropout=0.0)


def test_word_order_and_multilinguality():
    """Dufter & Schütze, Table 1, rows 0 and 3: Fake-English read backwards is not found."""
    english = xl.load_text("micro/en", sentences=1500)
    dev = xl.load_text("micro/en", "dev", sentences=200)
    words = sorted(set(" ".join(english).split()))
    config = xl.PretrainingConfig(epochs=15, **SMALL)

    score = {}
    for name, order in {"original": list, "inv-order": xl.invert}.items():

        def fake(sentences):
            return order(xl.fake_english(sentences))

        bert = xl.pretrain({"en": english, "fake": fake(english)}, config)
        score[name] = xl.multilinguality(
            bert, {"en": dev, "fake": fake(dev)}, {"en": words, "fake": fake(words)}
        )
        assert bert.loss.iloc[-1] < 0.8 * bert.loss.iloc[0]
    assert score["original"].mu > 2 * score["inv-order"].mu


def test_permuted_text_and_transfer():
    """K et al., Table 2: pretraining on permuted text, a task in English, asked in Fake-English."""
    english = xl.load_text("micro/en", sentences=1000)
    train = xl.load_records("pos", "micro/en", size=500)
    test = xl.load_records("pos", "micro/en", "test", size=200)
    tests = {"en": test, "fake": xl.transform_records(xl.fake_english, test)}
    config = xl.PretrainingConfig(epochs=15, **SMALL)

    accuracy = {}
    for p in (0.0, 1.0):
        text = {
            "en": xl.permute(english, p, seed=1),
            "fake": xl.permute(xl.fake_english(english), p, seed=2),
        }
        bert = xl.pretrain(text, config)
        tagger = xl.fine_tune("pos", bert, train, language="en")
        accuracy[p] = tagger.evaluate(tests).accuracy
    assert accuracy[0.0]["fake"] > accuracy[1.0]["fake"] + 10
    assert accuracy[0.0]["en"] - accuracy[0.0]["fake"] < accuracy[1.0]["en"] - accuracy[1.0]["fake"]


def test_a_shift_of_the_mean_and_the_language_of_tokens():
    """Liu et al. (2020b), section 4.2: with the shift added, English comes out as Fake-English."""
    english = xl.load_text("micro/en", sentences=800)
    text = {"en": english, "fake": xl.fake_english(english)}
    bert = xl.pretrain(text, xl.PretrainingConfig(epochs=8, **SMALL))
    shift = xl.mean_shift(bert, text, source="en", target="fake")

    dev = xl.load_text("micro/en", "dev", sentences=100)
    table = shift.evaluate({"en": dev, "fake": xl.fake_english(dev)}, layers=[1], weights=[0, 1])
    assert table.converted[0] < 0.1 and table.converted[1] > 0.9
    assert table.bleu1[1] > table.bleu1[0]
    assert set(shift.translate(dev[:1])[0]) <= set("".join(text["fake"])) | set("[]UNK")
