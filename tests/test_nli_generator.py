"""Natural-logic labels against brute force, balance, and the classifiers that must fail."""

from itertools import product

import numpy as np
import pytest

from xlingual_nb.errors import InputError
from xlingual_nb.microworld import task_records
from xlingual_nb.microworld.nli_edits import (
    FRAMES,
    FRAME_NAMES,
    LABELS,
    SITES,
    SUBSTITUTION_NAMES,
    NO_SAFE_LABEL,
    Design,
    sample_design,
)
from xlingual_nb.microworld.nli_generator import artefact_baselines, nli_pairs
from xlingual_nb.microworld.lexicon import make_lexicon
from xlingual_nb.microworld.semantics import is_in_part
from xlingual_nb.microworld.typology import preset
from xlingual_nb.microworld.world import RandomStream, make_world


def models():
    """Every way in which two things belong to a narrow noun within a wide one and do a narrow deed
    within a wide one; something is of the narrow noun; each thing in turn is the one spoken of.
    """
    kinds = list(
        product([(0, 0), (0, 1), (1, 1)], repeat=2)
    )  # (narrow, wide) noun, (narrow, wide) deed
    for things in product(kinds, repeat=3):
        if any(noun[0] for noun, _ in things):
            for one in things:
                yield things, one


MODELS = list(models())


def true(frame, noun, deed, things, one):
    """Whether a sentence holds; noun and deed are 0 (narrow) or 1 (wide)."""
    doers = [t for t in things if t[0][noun] and t[1][deed]]
    named = [t for t in things if t[0][noun]]
    return dict(
        some=bool(doers),
        no=not doers,
        every=len(doers) == len(named),
        plain=one[0][noun] and one[1][deed],
        negated=one[0][noun] and not one[1][deed],
    )[frame]


def brute(p, h, subject, scope):
    """The label by trying every model; directions -1, 0, 1 as in a design."""
    side = lambda d, hypothesis: int((d > 0) == hypothesis) if d else 0
    left = [bool(true(p, side(subject, False), side(scope, False), *m)) for m in MODELS]
    right = [bool(true(h, side(subject, True), side(scope, True), *m)) for m in MODELS]
    if all(b for a, b in zip(left, right) if a):
        return 0
    return 1 if any(a and b for a, b in zip(left, right)) else 2


def test_labels_agree_with_brute_force():
    checked = 0
    for p, h in product(FRAMES, FRAMES):
        for subject, scope in product((-1, 0, 1), repeat=2):
            sites = np.zeros((1, len(SITES)), int)
            sites[0, SITES.index("hypernym")], sites[0, SITES.index("adverb")] = subject, scope
            label = Design(
                np.array([[FRAME_NAMES.index(p), FRAME_NAMES.index(h)]]), sites, np.array([-1])
            ).labels()[0]
            if label < NO_SAFE_LABEL:
                assert label == brute(p, h, subject, scope), (p, h, subject, scope)
                checked += 1
    assert checked > 90


def test_every_label_and_site_is_drawn():
    design = sample_design(RandomStream("t"), 20_000)
    labels = design.labels()
    assert set(labels) == {0, 1, 2, NO_SAFE_LABEL} and (design.sites != 0).any(0).all()
    drawn = {i for i, name in enumerate(SUBSTITUTION_NAMES) if name != "unrelated"}
    assert set(design.substitution) == {-1} | drawn
    alike = design.substitution >= 0
    assert (design.frames[alike, 0] == design.frames[alike, 1]).all()


@pytest.fixture(scope="module")
def pairs():
    w = make_world(128)
    return w, {
        part: nli_pairs(w, part, n, surplus=5) for part, n in (("train", 1500), ("dev", 900))
    }


def test_balanced_and_within_parts(pairs):
    w, sets = pairs
    for part, p in sets.items():
        assert (
            np.bincount(p.labels).tolist() == [len(p) // 3] * 3
            and (p.labels == p.design.labels()).all()
        )
        for side in (p.premises, p.hypotheses):
            assert is_in_part(w, side.matrix, part).all()
    chinese = make_lexicon(preset("zh"), w)
    seen = {
        part: {r[side] for r in p.records(chinese) for side in ("premise", "hypothesis")}
        for part, p in sets.items()
    }
    assert not seen["train"] & seen["dev"]


def test_edits_are_mixed_alike_in_all_parts(pairs):
    _, sets = pairs

    def shares(design):
        substituted = design.substitution[:, None] == np.arange(len(SUBSTITUTION_NAMES))
        return np.concatenate([(design.sites != 0).mean(0), substituted.mean(0)])

    share = {part: shares(p.design) for part, p in sets.items()}
    assert np.abs(share["train"] - share["dev"]).max() < 0.06


def test_giveaways_are_near_chance(pairs):
    w, sets = pairs
    for name in ("en",):
        floors = artefact_baselines(
            *(p.records(make_lexicon(preset(name), w)) for p in sets.values())
        )
        assert floors.max() < 0.5, floors
        assert floors[["hypothesis alone", "premise alone", "lengths"]].max() < 0.44, floors


def test_identical_sides_only_where_they_entail(pairs):
    w, sets = pairs
    for r in sets["dev"].records(make_lexicon(preset("en"), w)):
        if r["premise"] == r["hypothesis"]:
            assert LABELS[r["label"]] == "entailment"
            assert r["edit"].split()[-1] in ("same", "(negated)", "(some)", "(no)", "(every)")


def test_unrelated_pairs_only_where_asked_for():
    p = nli_pairs(make_world(128), "test", 300, surplus=3, unrelated=0.4)
    stray = p.design.substitution == SUBSTITUTION_NAMES.index("unrelated")
    assert stray.sum() == 40 and (p.labels[stray] == 1).all()
    assert p.design.tags()[np.flatnonzero(stray)[0]] == "unrelated"


@pytest.mark.parametrize("level", ["plain", pytest.param("negated", marks=pytest.mark.ci)])
def test_numbers_of_words_tell_nothing_on_an_easier_level(level):
    """And its frames are those it names."""
    w = make_world(128)
    sets = [nli_pairs(w, part, n, level=level) for part, n in (("train", 1500), ("dev", 900))]
    frames = {FRAME_NAMES[f] for p in sets for f in p.design.frames.ravel()}
    assert frames == ({"plain"} if level == "plain" else {"plain", "negated"})
    floors = artefact_baselines(*(p.records(make_lexicon(preset("en"), w)) for p in sets))
    alone = ["hypothesis alone", "premise alone"] * (level == "negated")
    assert floors[["lengths", "set differences", *alone]].max() < 0.42, floors


def test_a_level_is_a_dial_of_the_task():
    easy, usual = (task_records("nli", size=30, **dials) for dials in (dict(level="plain"), {}))
    assert easy != usual and usual == task_records("nli", size=30, level="quantified")
    with pytest.raises(
        InputError, match="level='hard': the microworld has plain, negated, quantified"
    ):
        task_records("nli", size=30, level="hard")
