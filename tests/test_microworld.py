"""The microworld: exact annotation in any language, shares that are what they say, parts that share
nothing, the same bytes everywhere.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from xlingual_nb.errors import InputError
from xlingual_nb import microworld as micro
from xlingual_nb.microworld.lexicon import N_BUNDLES, cognate_parameter, make_lexicon, inflections
from xlingual_nb.microworld.semantics import SKELETON, make_meanings
from xlingual_nb.microworld.realisation import BIO, TAGS, align_words, token_columns, realise
from xlingual_nb.microworld.typology import (
    ALLOWED_VALUES,
    PRESETS,
    SCRIPTS,
    STRUCTURAL_PARAMETERS,
    Typology,
    typology_distance,
    halfway_language,
    preset,
)
from xlingual_nb.microworld.world import (
    CLOSED_CLASSES,
    Categorical,
    RandomStream,
    class_sizes,
    make_world,
)

few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
share = st.sampled_from([0.0, 0.3, 1.0])
syllables = st.sampled_from(["CV", "CV CVC", "CCV CVCC"])
grammars = st.fixed_dictionaries(
    {d: st.sampled_from(v) for d, v in ALLOWED_VALUES.items() if d != "script"}
    | dict(scramble=share, pro_drop=share, syllables=syllables)
)
records = st.builds(
    lambda dials, script, name: Typology(name, script, **dials),
    grammars,
    st.sampled_from(list(SCRIPTS)),
    st.sampled_from(["x", "y", "z"]),
)
SMALL = make_world(160)


def digest(corpus):
    lines = "\n".join(f"{i}\t{s}" for i, s in zip(corpus.keys, corpus.sentences))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


# ---------------------------------------------------------------- chance


def test_dice_are_the_documented_generator():
    """PCG64's raw stream is what NumPy promises to keep; the numbers were computed once and written
    down.
    """
    assert RandomStream("a", 1).raw(3).tolist() == [2735031915, 2913441229, 530064124]
    assert RandomStream(0).integers(6, 10).tolist() == [6, 3, 4, 0, 9, 7]


def test_choice_follows_its_weights():
    weights = np.array([[5, 0, 1, 4], [1, 1, 1, 1]])
    got = Categorical(weights).sample(RandomStream("weights"), np.repeat([0, 1], 40_000))
    for row in (0, 1):
        seen = np.bincount(got[row * 40_000 : (row + 1) * 40_000], minlength=4) / 40_000
        assert np.abs(seen - weights[row] / weights[row].sum()).max() < 0.01


def test_same_bytes_on_any_platform():
    assert digest(micro.corpus()) == "3e567d6a92fb4d78"
    assert (
        digest(
            micro.corpus(
                "ru", "dev", 500, 1000, seed=3, order="SOV", cognates_with="en", cognates=0.5
            )
        )
        == "5ed56d63f5263bf9"
    )
    text = "\n".join(str(r) for r in micro.task_records("nli", "hi", "test", 60))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "f86925d25ffcc3ff"


# ---------------------------------------------------------------- any language, any seed


@few
@given(records, st.integers(0, 5), st.sampled_from(["train", "dev", "test"]))
def test_annotation_is_consistent_in_any_language(record, seed, part):
    said = make_meanings(SMALL, part, 60, seed)
    s = realise(said, make_lexicon(record, SMALL))
    assert s.texts() == [" ".join(r["tokens"]) for r in token_columns(s)]
    for row in token_columns(s):
        heads = row["head"]
        assert heads.count(0) == 1 and row["deprel"][heads.index(0)] == "root"
        assert row["upos"][heads.index(0)] == TAGS.index("VERB")
        for i in range(len(heads)):  # every word reaches the root without a circle
            seen = set()
            while i >= 0 and i not in seen:
                seen.add(i)
                i = heads[i] - 1
            assert i == -1
        spans = [BIO[t] for t in row["ner_tags"]]
        assert all(t[0] != "I" or (spans[i - 1][1:] == t[1:] and i) for i, t in enumerate(spans))
        assert all((t == "O") == (TAGS[u] != "PROPN") for t, u in zip(spans, row["upos"]))


@few
@given(records, records)
def test_two_languages_say_the_same(a, b):
    said = make_meanings(SMALL, "train", 60, 1)
    x, y = realise(said, make_lexicon(a, SMALL)), realise(said, make_lexicon(b, SMALL))
    i, j = align_words(x, y).T
    assert (x.rows[i] == y.rows[j]).all() and (
        x.codes[i] // N_BUNDLES == y.codes[j] // N_BUNDLES
    ).all()
    assert len(set(i)) == len(i) and len(set(j)) == len(j)
    open_class = lambda s: (
        sorted(zip(s.rows.tolist(), (s.codes // N_BUNDLES)[...].tolist())) if len(s) else []
    )
    keep = lambda s: [
        p for p in open_class(s) if SMALL.names[SMALL.classes[p[1]]] not in CLOSED_CLASSES
    ]
    assert keep(x) == keep(y)
    content = ~np.isin([SMALL.names[c] for c in x.classes], list(CLOSED_CLASSES))
    assert np.isin(np.flatnonzero(content), i).all()  # every content word has its partner


@few
@given(records)
def test_forms_are_unambiguous_and_in_script(record):
    lex = make_lexicon(record, SMALL)
    kinds = [SMALL.names[c] for c in SMALL.classes]
    forms = [
        f for c in range(1, len(SMALL)) for f in inflections(kinds[c], lex.endings)(lex.stems[c])
    ]
    assert len(forms) == len(set(forms))
    assert set("".join(forms)) <= set("".join(SCRIPTS[record.script]))


@few
@given(grammars, st.integers(0, 3))
def test_words_order_as_the_dials_say(dials, seed):
    lang = Typology("x", **(dials | dict(scramble=0.0, pro_drop=0.0)))
    for row in token_columns(
        realise(make_meanings(SMALL, "train", 80, seed), make_lexicon(lang, SMALL))
    ):
        root = row["head"].index(0) + 1
        core = {
            r: i
            for i, (h, r) in enumerate(zip(row["head"], row["deprel"]))
            if h == root and r in ("nsubj", "obj")
        } | {"root": root - 1}
        if len(core) == 3 and lang.order != "free":
            assert (
                "".join(dict(nsubj="S", root="V", obj="O")[r] for r in sorted(core, key=core.get))
                == lang.order
            )
        for i, (h, r) in enumerate(zip(row["head"], row["deprel"])):
            place = "before" if i + 1 < h else "after"
            if r == "amod":
                assert place == lang.adjective
            if r == "nummod":
                assert place == lang.numeral
            if r == "acl:relcl":
                assert place == lang.relative
            if r == "nmod":
                assert place == lang.genitive
            if r == "advmod" and TAGS[row["upos"][i]] == "PART":
                assert place == lang.negation


def crossing(heads):
    arcs = [(min(i + 1, h), max(i + 1, h)) for i, h in enumerate(heads) if h]
    return any(a < c < b < d for a, b in arcs for c, d in arcs)


@few
@given(records)
def test_trees_do_not_cross(record):
    speech = realise(make_meanings(SMALL, "dev", 40, 2), make_lexicon(record, SMALL))
    assert not any(crossing(r["head"]) for r in token_columns(speech))


# ---------------------------------------------------------------- dials


@pytest.mark.parametrize(
    "dial,kinds", [("cognates", None), ("cognate_names", None), ("cognate_numerals", None)]
)
@pytest.mark.parametrize("value", [0, 0.25, 0.5, 1])
def test_a_share_of_cognates_gives_that_share(dial, kinds, value):
    w = make_world(1500)
    en, ru = (
        make_lexicon(preset("en"), w),
        make_lexicon(preset("ru", cognates_with="en", **{dial: value}), w),
    )
    mine = np.array([n != "nothing" and cognate_parameter(n) == dial for n in w.names])[w.classes]
    same = np.array([a == b for a, b in zip(en.stems, ru.stems)])
    assert same[mine].sum() == round(value * mine.sum()) and not same[~mine][1:].any()


def test_more_cognates_keep_the_fewer_ones_and_the_other_words():
    w = make_world(400)
    low, high = (make_lexicon(preset("hi", cognates_with="en", cognates=c), w) for c in (0.3, 0.6))
    assert (low.cognate <= high.cognate).all()
    assert all(a == b for a, b, c in zip(low.stems, high.stems, high.cognate) if not c)


def test_presets_share_characters_only_where_cognates_say_so():
    none = dict(cognates=0, cognate_names=0, cognate_numerals=0)
    chars = {
        n: set("".join(micro.corpus(n, sentences=300, **none).sentences)) - {" "} for n in PRESETS
    }
    for a in PRESETS:
        for b in PRESETS:
            if PRESETS[a].script != PRESETS[b].script:
                assert not chars[a] & chars[b]


def test_same_script_languages_share_words_only_as_cognates():
    c = [
        set(" ".join(micro.corpus(n, sentences=2000, vocabulary=1000, **d).sentences).split())
        for n, d in (("en", {}), ("vi", dict(cognate_names=0)), ("vi", dict(cognate_names=1)))
    ]
    assert len(c[0] & c[1]) <= 2 + 0.02 * len(c[1]) and len(c[0] & c[2]) > 0.05 * len(c[0])


@pytest.mark.parametrize("value", [0, 0.3, 1])
def test_scrambling_and_pro_drop_are_shares(value):
    s = micro.annotated_corpus("en", sentences=4000, scramble=value, pro_drop=value)
    orders = []
    for row in token_columns(s):
        root = row["head"].index(0) + 1
        core = {
            r: i
            for i, (h, r) in enumerate(zip(row["head"], row["deprel"]))
            if h == root and r in ("nsubj", "obj")
        } | {"root": root - 1}
        letters = dict(nsubj="S", root="V", obj="O")
        if len(core) == 3:
            orders.append("".join(letters[r] for r in sorted(core, key=core.get)))
    assert abs(np.mean([o != "SVO" for o in orders]) - value * 5 / 6) < 0.03 and (
        len(set(orders)) == 6
    ) == (value > 0)
    full = micro.annotated_corpus("en", sentences=4000)
    pron = lambda x: (
        (x.upos == TAGS.index("PRON")).sum()
        - (x.relations[x.upos == TAGS.index("PRON")] == -1).sum()
    )
    marks = sum(SKELETON[p].name.endswith(".mark") for p in full.slots)
    assert abs(1 - (pron(s) - marks) / (pron(full) - marks) - value) < 0.05


def test_one_dial_changes_order_alone():
    a, b = (micro.corpus("en", sentences=300, order=o) for o in ("SVO", "SOV"))
    assert a.sentences != b.sentences
    assert all(sorted(x.split()) == sorted(y.split()) for x, y in zip(a.sentences, b.sentences))


def test_zipf_dial_moves_the_curve():
    def top(z):
        concepts = (
            micro.annotated_corpus("en", sentences=6000, vocabulary=2000, zipf=z).codes // N_BUNDLES
        )
        counts = np.unique(concepts[concepts > 0], return_counts=True)[1]
        return np.sort(counts)[::-1][50:100].sum() / counts.sum()

    assert top(0) < top(0.7) and top(1.5) != top(0)


def test_halfway_lies_between():
    for a in ("en", "ar", "zh"):
        for b in ("hi", "tr", "th"):
            a_, b_ = PRESETS[a], PRESETS[b]
            mid = halfway_language(a_, b_)
            assert all(
                getattr(mid, d) in (getattr(a_, d), getattr(b_, d)) for d in STRUCTURAL_PARAMETERS
            )
            near, far = typology_distance(a_, mid), typology_distance(mid, b_)
            assert (
                abs(near + far - typology_distance(a_, b_)) < 1e-9
                and abs(near - far) <= 1 / 15 + 1e-9
            )


# ---------------------------------------------------------------- parts, sizes, speed


def test_parts_share_no_sentence_in_any_language():
    for lang in ("en", "ru", "zh", Typology("poor", order="free")):
        texts = {p: set(micro.corpus(lang, p, 1500).sentences) for p in ("train", "dev", "test")}
        bags = {p: {tuple(sorted(t.split())) for t in texts[p]} for p in texts}
        assert (
            not bags["train"] & bags["dev"]
            and not bags["train"] & bags["test"]
            and not bags["dev"] & bags["test"]
        )


def test_a_longer_corpus_begins_with_the_shorter():
    long, short = micro.corpus("es", sentences=5000), micro.corpus("es", sentences=700)
    assert long.sentences[:700] == short.sentences and long.keys[:700] == short.keys
    assert micro.corpus("es", sentences=700, seed=1).sentences != short.sentences


@pytest.mark.parametrize("vocabulary", [96, 128, 500, 3000])
def test_vocabulary_is_kept_and_used(vocabulary):
    c = micro.corpus("en", sentences=6000, vocabulary=vocabulary)
    types = set(" ".join(c.sentences).split())
    lengths = np.array([len(s.split()) for s in c.sentences])
    assert 0.5 * vocabulary < len(types) <= vocabulary
    assert 8 < lengths.mean() < 12 and lengths.min() >= 4 and lengths.max() <= 24
    assert sum(class_sizes(vocabulary).values()) > 0


def test_documents_keep_topic_and_cast():
    w = make_world(500)
    m = make_meanings(w, "train", 2000)
    home = w.topic[m.matrix]
    known = home >= 0
    own = (home == m.topic[:, None]) & known
    assert own.sum() / known.sum() > 2.5 / w.topics
    nouns = m.matrix[
        :, [i for i, p in enumerate(SKELETON) if p.name in ("main.subj.noun", "main.obj.noun")]
    ]
    meet = lambda a, b: len(set(a) & set(b) - {0}) > 0
    near = np.mean(
        [meet(a, b) for a, b, d, e in zip(nouns, nouns[1:], m.document, m.document[1:]) if d == e]
    )
    far = np.mean([meet(a, b) for a, b in zip(nouns[:-50], nouns[50:])])
    assert near > 2 * far


# ---------------------------------------------------------------- front door


def test_dictionary_is_exact():
    table = micro.dictionary("en", "ru", sentences=800)
    w = make_world(128)
    stems = {
        make_lexicon(PRESETS[n], w).form(c * N_BUNDLES): c
        for n in ("en", "ru")
        for c in range(1, len(w))
    }
    both = table[table["first"].isin(stems) & table["second"].isin(stems)]
    assert len(both) > 30 and (both["first"].map(stems) == both["second"].map(stems)).all()


def test_tasks_have_the_columns_of_the_real_sets():
    columns = dict(
        nli={"premise", "hypothesis", "label", "edit", "kind"},
        ner={"tokens", "ner_tags", "langs"},
        pos={"tokens", "upos"},
        parsing={"tokens", "upos", "head", "deprel"},
        topics={"text", "label"},
    )
    for name, expected in columns.items():
        rows = micro.task_records(name, "es", "test", 40)
        assert (
            set(rows[0]) == expected == set(micro.task_dataset(name, "es", "test", 40).column_names)
        )
    rows = micro.task_records("langid", ["en", "ru"], "dev", 50)
    assert [r["label"] for r in rows] == [0] * 50 + [1] * 50


def test_tasks_of_one_seed_say_the_same_in_all_languages():
    a, b = (micro.task_records("topics", n, "dev", 100) for n in ("en", "hi"))
    assert [r["label"] for r in a] == [r["label"] for r in b]


@pytest.mark.parametrize(
    "call,says",
    [
        (lambda: micro.corpus("xx"), "presets are"),
        (lambda: micro.corpus(part="all"), "train, dev, test"),
        (lambda: micro.corpus(order="SVX"), "order="),
        (lambda: micro.corpus(scramble=1.5), "between 0 and 1"),
        (lambda: micro.corpus(colour=1), "no such dial"),
        (lambda: micro.corpus(vocabulary=20), "96"),
        (lambda: micro.corpus(sentences=0), "at least 1"),
        (lambda: micro.corpus(sentences=2.5), "whole number"),
        (lambda: micro.corpus(vocabulary="many"), "whole number"),
        (lambda: micro.corpus("ru", cognates=0.5), "cognates_with"),
        (lambda: micro.corpus("ru", cognates_with="klingon", cognates=0.5), "klingon"),
        (lambda: micro.corpus("ru", cognates_with="ru", cognates=0.5), "another language"),
        (lambda: micro.parallel(["en", Typology("x")]), "both written in latin"),
        (lambda: micro.parallel(["en", "en"]), "name of its own"),
        (lambda: micro.parallel(["en", "ru"], order="SOV"), "parameters of the world"),
        (lambda: micro.task_records("chess"), "nli"),
        (lambda: micro.corpus(syllables="VVV"), "syllables"),
        (lambda: micro.corpus(topics=1), "topics"),
    ],
)
def test_bad_parameters_say_what_is_wrong(call, says):
    with pytest.raises(InputError, match=says) as error:
        call()
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- the first page


def test_the_first_page_shows_its_pictures_unrun():
    """A code host shows stored outputs alone; the page must stay light enough for it."""
    page = Path(__file__).resolve().parents[1] / "nbs/lib/3000_microworld.ipynb"
    outputs = [
        o
        for c in json.loads(page.read_text(encoding="utf-8"))["cells"]
        for o in c.get("outputs", [])
    ]
    assert (
        sum("image/png" in o.get("data", {}) for o in outputs) == 5
        and page.stat().st_size < 300_000
    )
