"""What inference pairs give away without a lexicon: against tables counted by hand, and through the
engine.
"""

import importlib.util
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from xlingual_nb.runs.engine import run
from xlingual_nb.runs.stages import stage_of
from xlingual_nb.runs.store import Store
from xlingual_nb.tasks.baselines import (
    FLOORS,
    NliFloorsSpec,
    classify_pairs,
    commonest_words,
    fit_feature_classifier,
    lexical_features,
    set_difference_features,
)
from xlingual_nb.text.formats import LABELS
from xlingual_nb.text.records import LabelledRecords, RecordsSpec, load_records
from xlingual_nb.text.transforms import transform_strings

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks/nli_levels.py"


def micro(part, size, level="negated", language="en"):
    return load_records("nli", f"micro/{language}", part, size, vocabulary=128, level=level)


def test_set_differences_answer_with_the_commonest_label_of_their_class():
    """One mark a pair: the regression is a table, so on the training pairs it must say each class's
    commonest label.
    """
    pairs = load_records("nli", "micro/en", "train", 900, vocabulary=128)

    def seen(r):
        return set_difference_features(r["premise"].split(), r["hypothesis"].split())[0]

    count = Counter((seen(r), r["label"]) for r in pairs)
    said = classify_pairs(fit_feature_classifier(set_difference_features, pairs), pairs)
    for r, label in zip(pairs, said):
        best = max(count[seen(r), name] for name in LABELS)
        many = sum(count[seen(r), name] for name in LABELS)
        if many >= 60:
            assert count[seen(r), LABELS[label]] >= best - 3


def test_floors_are_blind_to_words():
    """All words replaced one to one, and put in another order: no floor moves. The ceiling falls
    down.
    """
    train, test = micro("train", 900), micro("test", 300)

    def turned(text):
        return " ".join(transform_strings(("unicode_shift",), [text])[0].split()[::-1])

    other = [r | {side: turned(r[side]) for side in ("premise", "hypothesis")} for r in test]
    gold = np.array([LABELS.index(r["label"]) for r in test])
    for view in FLOORS.values():
        fitted = fit_feature_classifier(view, train)
        assert (classify_pairs(fitted, test) == classify_pairs(fitted, other)).all()
        assert (classify_pairs(fitted, test) == gold).mean() < 0.45
    words = fit_feature_classifier(partial(lexical_features, common=commonest_words(train)), train)
    assert (
        (classify_pairs(words, test) == gold).mean()
        > 0.75
        > 0.45
        > (classify_pairs(words, other) == gold).mean()
    )


def test_the_run_asks_every_test_and_leaves_out_what_is_not_parallel(tmp_path):
    def part(name, size, language="en", seed=0):
        dials = (("vocabulary", 128), ("level", "plain"), ("seed", seed))
        return LabelledRecords(language, RecordsSpec("nli", f"micro/{language}", name, size, dials))

    en, es, other = part("test", 60), part("test", 60, "es"), part("test", 60, "hi", 1)
    spec = NliFloorsSpec(part("train", 200), ((en, en), (es, es), (en, es), (en, other)), en)
    store = Store(tmp_path)
    run([spec], store, progress=False)
    values = stage_of(spec).values(store.path(spec))
    wanted = {f"{name} {l}" for name in FLOORS for l in ("en|en", "es|es", "en|es")} | {
        "true lexicon en|en"
    }
    assert set(values) == wanted
    assert all(0 <= value <= 1 for value in values.values())


@pytest.fixture(scope="module")
def levels():
    spec = importlib.util.spec_from_file_location("benchmark_nli_levels", SCRIPT)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_lexicon_is_right_for_the_share_that_it_says(levels):
    pairs = micro("test", 90)

    def types(pairs):
        return [w for r in pairs for w in (r["premise"] + " " + r["hypothesis"]).split()]

    for share in (0.0, 0.3, 1.0):
        table = dict(zip(types(pairs), types(levels.mistranslated(pairs, share, 5))))
        right = np.mean([a == b for a, b in table.items()])
        assert right == pytest.approx(share, abs=0.02) and len(set(table.values())) == len(table)


def test_the_simulation_writes_its_table_and_keeps_models_of_before(levels, tmp_path):
    at = tmp_path / "levels.csv"
    at.write_text(
        "what,level,seed,tau,source,target\ntrained,negated,0,.3,.9,.6\n", encoding="utf-8"
    )
    given = [
        "--levels",
        "negated",
        "--draws",
        "1",
        "--train",
        "300",
        "--test",
        "90",
        "--output",
        str(at),
    ]
    frame = levels.main(given)
    again = levels.main(given)
    assert len(again) == len(frame) == 1 + len(FLOORS) + len(levels.TAUS)
    assert frame[frame.what == "trained"].target.tolist() == [0.6]
    assert at.with_suffix(".png").exists() and at.with_suffix(".json").exists()
    line = frame[frame.what == "simulated"].set_index("tau").target
    assert line[1.0] == frame[frame.what == "simulated"].source.iloc[0] > 0.6 > line[0.0]
