"""The dials: one is turned at a time and all else is held; the presets have words of their own;
trends and contrasts are what other code finds.
"""

from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from xlingual_nb.errors import InputError
from xlingual_nb.experiments import laboratory
from fake_store import FakeStore
from xlingual_nb.experiments.dials_common import (
    PRESETS_WITHOUT_OVERLAP,
    DIALS,
    LANGUAGES,
    ROWS_WITHOUT_OVERLAP,
    EffectTest,
    word_order_agreement,
    effect_tests_frame,
    dial_label,
    fake_english,
    set_typology,
    add_verdicts,
    trend_test,
)
from xlingual_nb.experiments.dials import (
    COLUMNS,
    ENGLISH,
    BASELINES,
    NAMES,
    UNSHARED_WORDS,
    UNTRAINED,
    list_table_entries,
    grid,
    unshared_word_translation,
    dial_tests,
    dial_distances,
)
from xlingual_nb.experiments.config import SCALES
from xlingual_nb.experiments.scales import laboratory_config, laboratory_text
from xlingual_nb.experiments.study import observe
from xlingual_nb.measures.retrieval import precision_at_1
from xlingual_nb.report import tables
from xlingual_nb import microworld
from xlingual_nb.text import records, sources, tokenizers, transforms
from xlingual_nb.microworld import typology

TRAIN, DEV, _ = laboratory_text(laboratory_config("laptop", "micro"))


def sentences(spec):
    return [
        s.split()
        for s in sources.load_corpus(spec.source, part=spec.part, **dict(spec.parameters)).sentences
    ]


def settings_of(scale, *given, **more):
    """{(row, floor, seed): (the run that measures µ, the tagger or None)}, from the cells that are
    drawn from them.
    """
    found = {}
    for c in list_table_entries(scale, *given, **more):
        (run,), key = c.runs, (c.row, c.column in BASELINES.values(), c.seed)
        found.setdefault(key, {})[run.stage] = run
    return {key: (runs["measure"], runs.get("ner")) for key, runs in found.items()}


def by_row(scale="laptop"):
    return {
        row: measure
        for (row, floor, seed), (measure, _) in settings_of(scale).items()
        if seed == 0 and not floor
    }


# ---- the grid


@pytest.mark.parametrize("scale", SCALES)
def test_one_dial_at_a_time_is_what_varies(scale):
    rows = by_row(scale)
    plain = rows["order | SVO"]
    assert rows["overlap | 0"] == rows["scramble | 0"] == plain, "the dials meet in one setting"
    for row, spec in rows.items():
        dial, _, setting = row.partition(" | ")
        if dial == "preset" or spec == plain:
            continue
        first, second = spec.checkpoint.languages
        held = {f.name for f in fields(spec.checkpoint)} - {"languages", "snapshots"}
        assert (
            all(getattr(spec.checkpoint, f) == getattr(plain.checkpoint, f) for f in held)
            and first == plain.checkpoint.languages[0]
        ), row
        assert (spec.dev, spec.words, spec.sentences) == (plain.dev, "content", plain.sentences)
        usual = plain.checkpoint.languages[1]
        if dial == "overlap" or setting == "inverted":
            assert second.corpus == usual.corpus and spec.other is None
            assert second.transforms == (
                ("enfake", "inv_order") if setting == "inverted" else (f"enfake({setting})",)
            )
        else:
            turned_to = ((dial, setting if dial == "order" else float(setting)),)
            assert second == replace(
                usual, corpus=replace(usual.corpus, parameters=usual.corpus.parameters + turned_to)
            )
            assert spec.other == replace(spec.dev, parameters=spec.dev.parameters + turned_to)


@pytest.mark.parametrize("scale", SCALES)
def test_the_plain_setting_is_row_0_of_the_laboratory_and_the_floor_its_untrained_encoder(scale):
    found = {
        (c.row, c.seed): c.runs[0]
        for c in laboratory.list_table_entries(scale, "micro")
        if c.table == "table1"
    }
    mine = {key: measure for key, (measure, _) in settings_of(scale).items()}
    for row, floor, theirs in (
        ("order | SVO", False, "0 original"),
        ("order | SVO", True, "18 untrained"),
    ):
        assert mine[row, floor, 0] == found[theirs, 0]
    assert mine["order | inverted", False, 0] == found["3 inv-order", 0]
    for (row, floor, seed), spec in mine.items():
        if floor:
            trained = mine[row, False, seed]
            assert (
                replace(spec.checkpoint, training=trained.checkpoint.training)
                == replace(trained.checkpoint, snapshots=())
                and not spec.checkpoint.training.epochs
            )
            assert replace(spec, checkpoint=trained.checkpoint) == trained


def test_every_setting_and_preset_is_there_with_every_seed():
    expected = {dial_label(d, s) for d, settings in DIALS.items() for s in settings} | {
        dial_label("preset", l) for l in LANGUAGES
    }
    found, pairs = list_table_entries("laptop"), settings_of("laptop")
    assert {c.row for c in found} == expected and len(
        {(c.table, c.row, c.column, c.seed) for c in found}
    ) == len(found)
    plain = {"order | SVO", "overlap | 0", "scramble | 0"}
    for row in expected:
        assert {c.seed for c in found if c.row == row} == (
            {0, 42, 43, 100, 101} if row in plain else {0, 42, 43}
        )
    measures, taggers = {m for m, _ in pairs.values()}, {t for _, t in pairs.values() if t}
    assert len(measures) == 2 * (3 * (len(expected) - 3) + 5), "the plain setting is one run"
    assert {row for (row, *_), (_, tagger) in pairs.items() if not tagger} == {
        "preset | en"
    } and len(taggers) == 2 * (3 * (len(expected) - 4) + 5)
    assert set(grid("laptop")) == measures | taggers and len(grid("laptop")) == len(measures) + len(
        taggers
    )
    four = settings_of("laptop", seeds=4)
    assert {seed for *_, seed in four} == {0, 42, 43, 100} and len(four) == 2 * 4 * len(expected)
    named = settings_of("laptop", seeds=(200, 201))
    assert {seed for *_, seed in named} == {200, 201} and len(named) == 2 * 2 * len(expected)


@pytest.mark.parametrize("scale", SCALES)
def test_taggers_learn_english_in_the_world_of_the_model_and_meet_its_second_language(scale):
    for (*_, seed), (measure, tagger) in settings_of(scale, seeds=1).items():
        if not tagger:
            continue
        model, (english, other) = tagger.checkpoint, tagger.tests
        assert (
            model == measure.checkpoint
            and tagger.seed == seed
            and [english.language, other.language] == [l.name for l in model.languages]
        )
        assert {l.records.source for l in (tagger.train, tagger.dev, english)} == {"micro/en"} and [
            l.records.part for l in (tagger.train, tagger.dev, english, other)
        ] == ["train", "dev", "test", "test"]
        world, second = (
            dict(t.parameters) for t in (model.languages[0].corpus, model.languages[1].corpus)
        )
        assert dict(english.records.parameters) == {
            k: v for k, v in world.items() if k != "sentences"
        }
        assert other.records.source == model.languages[1].corpus.source and dict(
            other.records.parameters
        ) == {k: v for k, v in second.items() if k != "sentences"}


@pytest.mark.parametrize(
    "row",
    [
        "order | VSO",
        "order | inverted",
        "overlap | 0.5",
        "scramble | 1",
        "preset | es, no cognates",
        "preset | hi",
    ],
)
def test_a_tagged_test_says_the_same_names_in_every_language(row):
    _, tagger = settings_of("laptop", seeds=1)[row, False, 0]
    english, other = (
        records.load_records(r.task, r.source, r.part, 60, **dict(r.parameters))
        for r in (l.records for l in tagger.tests)
    )

    def kinds(found):
        return [sorted(tag[2:] for tag in r["tags"] if tag[0] == "B") for r in found]

    assert kinds(english) == kinds(other) and sum(map(len, kinds(english))) > 30
    trained = {
        tuple(r["tokens"])
        for r in records.load_records(
            "ner", "micro/en", "train", 2000, **dict(tagger.train.records.parameters)
        )
    }
    assert np.mean([tuple(r["tokens"]) in trained for r in english]) < 0.2


# ---- what the dials do to text


@pytest.mark.parametrize(
    "dial, setting", [(d, s) for d in ("order", "scramble") for s in DIALS[d] if s != "inverted"]
)
def test_a_dial_of_order_moves_words_and_changes_none(dial, setting):
    usual = sentences(DEV)
    text, chain = fake_english(dial, setting, DEV)
    moved = sentences(text)
    assert chain == ("enfake",) and [sorted(s) for s in moved] == [sorted(s) for s in usual]
    same = np.mean([a == b for a, b in zip(moved, usual)])
    if dial == "scramble":
        assert abs(same - (1 - setting * 5 / 6)) < 0.1, (
            "of those drawn anew one in six comes out as it was, a few more without an object"
        )
    else:
        assert same == 1 if setting == "SVO" else same < 0.1


@pytest.mark.parametrize("share", DIALS["overlap"])
def test_the_overlap_dial_keeps_that_share_of_types(share):
    text = tokenizers.Encoded(np.arange(5, 131, dtype=np.int32), np.arange(127))
    kept = transforms.apply_transforms(fake_english("overlap", share, DEV)[1], text, 131).ids
    assert fake_english("overlap", share, DEV)[0] == DEV and (kept == text.ids).sum() == round(
        share * 126
    )
    assert set(kept[kept != text.ids]) == set(text.ids[kept != text.ids] + 131)


@pytest.mark.parametrize("label", LANGUAGES)
def test_presets_have_words_of_their_own_in_one_vocabulary(label):
    spec = by_row()[dial_label("preset", label)]
    first, second = spec.checkpoint.languages
    assert (
        first.corpus == TRAIN == spec.checkpoint.tokenizer.corpus
        and spec.checkpoint.tokenizer.extra_corpora == (second.corpus,)
        and not second.transforms
    )
    assert second.corpus.parameters[
        : len(TRAIN.parameters)
    ] == TRAIN.parameters and spec.other == replace(
        second.corpus, part="dev", parameters=DEV.parameters + second.corpus.parameters[2:]
    )
    english, other = ({w for s in sentences(text) for w in s} for text in (TRAIN, second.corpus))
    assert bool(english & other) == (dial_label("preset", label) not in PRESETS_WITHOUT_OVERLAP)
    assert len(english | other) + 5 == spec.checkpoint.tokenizer.size, "every form has a piece"
    assert spec.words == "dictionary"


def test_english_in_other_letters_is_english_word_by_word():
    usual, other = sentences(DEV), sentences(by_row()["preset | en"].other)
    pairs = {(a, b) for s, t in zip(usual, other) for a, b in zip(s, t, strict=True)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


# ---- how far they are turned


def test_agreement_is_kendalls_tau():
    for other in (set_typology(DEV, "ru"), set_typology(DEV, order="OSV"), set_typology(DEV, "hi")):
        said = [
            microworld.annotated_corpus(
                t.source[6:], "dev", **{**dict(t.parameters), "sentences": 40}
            )
            for t in (DEV, other)
        ]
        pairs = pd.DataFrame(microworld.align_words(*said), columns=["here", "there"])
        taus = [
            stats.kendalltau(p.here, p.there).statistic
            for _, p in pairs.groupby(said[0].rows[pairs.here])
            if len(p) > 1
        ]
        assert word_order_agreement(DEV, other, 40) == pytest.approx(np.mean(taus))


def test_rows_say_how_far_they_turn_their_dial():
    table = dial_distances(list_table_entries("smoke", seeds=1)).set_index("row")
    assert (
        table.x["order | SVO"] == 1
        and table.x["order | inverted"] == -1
        and 0 < table.x["order | SOV"] < 1
        and (table.tau.abs() <= 1).all()
    )
    assert (
        table.x["overlap | 0.25"] == 0.25
        and table.tau["overlap | 0.25"] == 1
        and table.x["scramble | 0.5"] == 0.5
        and 0.5 < table.tau["scramble | 0.5"] < 1
    )
    far = {l: table.x[dial_label("preset", l)] for l in LANGUAGES}
    assert far["en"] == 0 < far["es"] == far["es, no cognates"] < far["ru"] < far["hi"]
    assert far["ru"] == typology.typology_distance(typology.preset("en"), typology.preset("ru"))


# ---- reading the numbers


def test_own_words_are_what_translation_finds_without_the_shared():
    """Shared words have one vector in both languages and find themselves; the rest is counted by
    hand.
    """
    rng = np.random.default_rng(0)
    a = rng.normal(size=(98, 6))
    b = np.where(np.arange(98)[:, None] < 49, a, a + rng.normal(size=(98, 6)))
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (a, b)]
    likeness = unit[0] @ unit[1].T
    own = np.r_[
        likeness.argmax(1)[49:] == np.arange(49, 98), likeness.argmax(0)[49:] == np.arange(49, 98)
    ].mean()
    import torch

    tau = precision_at_1(torch.tensor(a), torch.tensor(b))
    assert (
        unshared_word_translation(dict(tau_lower=tau, tau_upper=tau, words=98), 0.5)
        == pytest.approx(own)
        and 0 < own < 1
    )
    assert np.isnan(unshared_word_translation(dict(tau_lower=1.0, tau_upper=1.0, words=98), 1))


def test_trends_are_spearmans():
    rng = np.random.default_rng(1)
    for n in (5, 6, 12):
        x, y = rng.integers(0, 5, n), rng.normal(size=n)
        rho, p = trend_test(x, y)
        known = stats.spearmanr(x, y)
        assert rho == pytest.approx(known.statistic)
        if n > 8:
            assert p == pytest.approx(known.pvalue)
            continue
        exact = stats.permutation_test(
            (y,),
            lambda y: stats.spearmanr(x, y).statistic,
            permutation_type="pairings",
            n_resamples=np.inf,
        )
        assert p == pytest.approx(min(exact.pvalue, 1), abs=2e-2)
    assert np.isnan(trend_test([1, 2, 3], [4, 4, 4])).all()


def made_up(mu, own=0.1, seeds=3, f1=None):
    """Observations in which µ is a function of a row's place on its dial, with a little noise; and
    F1 of µ.
    """
    plans, rng = list_table_entries("laptop", seeds=seeds), np.random.default_rng(2)
    settings, found = dial_distances(plans).set_index("row"), []
    for c in plans:
        value = 0.01 if c.column in BASELINES.values() else mu(settings.loc[c.row])
        columns = {"µ": value, UNTRAINED: value, UNSHARED_WORDS: own} | (
            {NAMES: f1(value), BASELINES[NAMES]: f1(value)} if f1 else {}
        )
        if c.column in columns:
            found.append(
                (
                    "ours",
                    c.table,
                    c.row,
                    c.column,
                    "micro",
                    c.seed,
                    columns[c.column] + rng.normal() * 0.003,
                    "run",
                )
            )
    return pd.DataFrame(found, columns=tables.OBSERVED), settings.reset_index()


def answers(observations, settings, scale, score="µ"):
    """The judged answers by question."""
    asked = dial_tests(observations, settings, score)
    assert all(isinstance(a, EffectTest) and not a.verdict for a in asked)
    return effect_tests_frame(add_verdicts(asked, scale)).set_index("question")


def test_verdicts_find_what_was_put_in():
    slopes = dict(order=0.1, overlap=0, scramble=-0.1, preset=-0.3)
    observations, settings = made_up(lambda s: 0.2 + slopes[s.dial] * s.x)
    table = answers(observations, settings, "laptop")
    assert (
        table.verdict["order: does µ rise with agreement in order?"] == "rises"
        and table.verdict["scrambling: does µ fall with it?"] == "falls"
    )
    assert table.verdict["order: SVO against SOV"] == "higher" and table.effect[
        "order: SVO against SOV"
    ] == pytest.approx(0.1 * (1 - settings.set_index("row").x["order | SOV"]), abs=0.01)
    assert (
        table.verdict["presets: does µ fall with distance from English?"] == "falls"
        and table.n["presets: does µ fall with distance from English?"]
        == len(PRESETS_WITHOUT_OVERLAP)
        == 8
    )
    assert (
        table.verdict["overlap: do words that are not shared profit from those that are?"]
        == "inconclusive"
    )
    assert (
        table.verdict["presets: do cognates help Spanish beyond its baseline?"] == "inconclusive"
        and (table["Holm's p"] >= table.p).all()
    )
    assert set(answers(observations, settings, "smoke").verdict) == {"not tested"}
    single = answers(*made_up(lambda s: 0.2 + slopes[s.dial] * s.x, seeds=1), "laptop")
    assert (
        single.verdict["order: SVO against SOV"].startswith("no interval")
        and single.n["order: SVO against SOV"] == 2
    )


def test_questions_of_transfer_are_answered_from_transfer():
    slopes = dict(order=0.1, overlap=0.1, scramble=-0.1, preset=-0.3)
    # the more µ, the less F1
    observations, settings = made_up(
        lambda s: 0.2 + slopes[s.dial] * s.x, f1=lambda mu: 100 - 100 * mu
    )
    table = answers(observations, settings, "laptop", NAMES)
    assert (
        table.verdict["order: does NER F1 rise with agreement in order?"] == "falls"
        and table.verdict["order: SVO against SOV"] == "lower"
    )
    follows = table.loc["does transfer follow µ where no word is shared?"]
    means = (
        observations[observations.row.isin(ROWS_WITHOUT_OVERLAP)]
        .groupby(["row", "column"])
        .value.mean()
    )
    rows = means.unstack().dropna(subset=NAMES)
    assert (
        follows.verdict == "falls"
        and follows.n == len(ROWS_WITHOUT_OVERLAP) - 1 == len(rows)
        and follows.effect == pytest.approx(stats.spearmanr(rows["µ"], rows[NAMES]).statistic)
    )
    above = table.loc["overlap: do three quarters shared help beyond their baseline?"]
    mean = observations.groupby(["row", "column"]).value.mean().unstack()
    net = mean[NAMES] - mean[BASELINES[NAMES]]
    assert (
        above.effect == pytest.approx(net["overlap | 0.75"] - net["overlap | 0"])
        and above.verdict == "lower"
    )


def test_observations_are_what_the_store_holds(tmp_path):
    """Ours has no published numbers, and tables of it can be written and read."""
    values = (
        {v: i / 10 for i, v in enumerate(laboratory.COLUMNS.values())}
        | dict(words=98)
        | dict(f1={l: 0.25 + 0.5 * (l == "en") for l in ("en", "en2", "enfake", *LANGUAGES)})
    )
    plans = list_table_entries("smoke", seeds=1)
    frame = observe(
        plans,
        FakeStore(
            tmp_path,
            lambda spec: values,
            lambda spec: "hi" not in spec.checkpoint.languages[1].name,
        ),
        "micro",
    )
    tagged = {NAMES, BASELINES[NAMES], ENGLISH}
    assert (
        set(frame[frame.row == "order | SOV"].column) == {*COLUMNS, UNTRAINED} | tagged
        and set(frame[frame.row == "overlap | 0.5"].column)
        == {*COLUMNS, UNTRAINED, UNSHARED_WORDS} | tagged
    )
    assert (
        set(frame.row) == {c.row for c in plans} - {"preset | hi"}
        and not frame[frame.row == "preset | en"].column.isin(tagged).any()
    )
    assert frame[frame.column.isin(tagged)].groupby("column").value.unique().map(
        list
    ).to_dict() == {NAMES: [25], BASELINES[NAMES]: [25], ENGLISH: [75]}
    own = frame[frame.column == UNSHARED_WORDS].set_index("row").value
    assert own["overlap | 0.5"] == unshared_word_translation(values, 0.5) and np.isnan(
        own["overlap | 1"]
    )
    tidy = tables.tidy(frame)
    assert tidy.published.isna().all() and set(tidy.table) == {"dials", "presets"}


def test_tables_are_kept(tmp_path):
    observations, _ = made_up(lambda s: 0.1)
    tidy = tables.tidy(observations)
    again = tables.read(tables.write(tidy, tmp_path / "dials.csv"))
    assert len(again) == len(tidy) and again.value.to_numpy() == pytest.approx(
        tidy.value.to_numpy(), abs=1e-5
    )


# ---- wrong values, other corpora


@pytest.mark.parametrize(
    "given, says",
    [
        (dict(scale="big"), "smoke"),
        (dict(corpus="wiki"), "micro"),
        (dict(seeds=101), "seeds=101"),
        (dict(seeds=-1), "seeds=-1"),
    ],
)
def test_wrong_parameters_are_one_line(given, says):
    with pytest.raises(InputError, match=says) as caught:
        grid(**{"scale": "smoke", **given})
    assert "\n" not in str(caught.value)


def test_another_corpus_has_no_dials():
    assert grid("smoke", "bible") == [] == list_table_entries("gpu", "mix")
