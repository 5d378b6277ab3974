"""The labels of inference pairs against models: every way in which up to three things can be what the two sentences
say. The oracle reads the sentences' meanings, not the design that made them."""
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest

from xlingual_nb.microworld.inference import nli_pairs, raw_pairs
from xlingual_nb.microworld.meanings import AT, SKELETON
from xlingual_nb.microworld.world import make_world

LEFT_OUT = {f"main.subj.{name}" for name in ("quantifier", "article", "plural", "case", "adp")} | {"main.negation"}


def kinds_of(world, noun):
    "A noun's concept and all that is above it."
    above = []
    while noun:
        above.append(int(noun))
        noun = world.parent[noun]
    return above


def claims(world, row, prefix):
    "What a sentence says under a path of its skeleton, as a set of facts; a noun says its hypernyms too."
    said = set()
    for slot in SKELETON:
        value = row[AT[slot.name]]
        if slot.name == "main.tense": value += 1                                # the present is said too
        if not value or not slot.name.startswith(prefix) or slot.name in LEFT_OUT: continue
        if slot.name.endswith(".noun"): said |= {(slot.name, kind) for kind in kinds_of(world, value)}
        elif not slot.name.endswith((".article", ".plural", ".case")): said.add((slot.name, int(value)))
    return frozenset(said)


def exclude(world, one, other):
    "Can one thing not be both? Two numbers of one group, an adjective and its antonym."
    nouns = [{fact for fact in side if fact[0] == "main.subj.noun"} for side in (one, other)]
    if not (nouns[0] <= nouns[1] or nouns[1] <= nouns[0]): return False           # another group
    numbers = [{v for slot, v in side if slot == "main.subj.numeral"} for side in (one, other)]
    if all(numbers) and numbers[0] != numbers[1]: return True
    a, b = ([v - world.first["adjective"] for slot, v in side if slot == "main.subj.adjective"] for side in (one, other))
    return any(x ^ 1 == y for x in a for y in b)


def states(one, other, excluded=False):
    "In which ways a thing can be (what one side says, what the other says)."
    more, fewer = one - other, other - one
    both = [(False, False), (True, True)]
    if fewer: both.append((True, False))
    if more: both.append((False, True))
    return [s for s in both if not (excluded and s == (True, True))]


def holds(frame, things, spoken, side):
    "Whether a sentence is true of things ((noun on either side), (deed on either side))."
    doers = [deed[side] for noun, deed in things if noun[side]]
    if frame == "some": return any(doers)
    if frame == "no": return not any(doers)
    if frame == "every": return all(doers)
    noun, deed = spoken
    return noun[side] and deed[side] == (frame == "plain")


@lru_cache(maxsize=None)
def judged(frames, nouns, deeds, asides):
    "0, 1, 2 by trying every model; each sentence speaks of something, so there is something of either noun."
    both, premises, meets = [], 0, 0
    for many in (1, 2, 3):
        for things in combinations_with_replacement(tuple(product(nouns, deeds)), many):
            if not all(any(noun[side] for noun, _ in things) for side in (0, 1)): continue
            for spoken, aside in product(things, asides):
                p, h = (holds(frames[side], things, spoken, side) and aside[side] for side in (0, 1))
                premises, meets = premises + p, meets + (p and h)
    return 0 if premises == meets else 1 if meets else 2


def frame_of(world, row):
    quantifier = row[AT["main.subj.quantifier"]]
    if quantifier: return world.gloss(quantifier)
    return "negated" if row[AT["main.negation"]] else "plain"


def label_of(world, premise, hypothesis):
    "What the models say of two meanings."
    rows = premise, hypothesis
    def two(prefixes): return [frozenset().union(*(claims(world, row, p) for p in prefixes)) for row in rows]
    subject, aside = two(["main.subj."]), two(["then.", "front."])
    deed = two([s.name for s in SKELETON if s.name.startswith("main.") and not s.name.startswith("main.subj.")])
    frames = tuple(frame_of(world, row) for row in rows)
    return judged(frames, tuple(states(*subject, exclude(world, *subject))), tuple(states(*deed)), tuple(states(*aside)))


def wrong_labels(world, premises, hypotheses, labels):
    return [i for i, (p, h, y) in enumerate(zip(premises, hypotheses, labels)) if label_of(world, p, h) != y]


@pytest.mark.parametrize("seed", [0, 1])
def test_no_label_is_wrong_among_many_thousands(seed):
    world = make_world(128)
    made = raw_pairs(world, "train", 20_000, seed)
    labels = made.design.labels()
    wrong = wrong_labels(world, made.premise, made.hypothesis, labels)
    tags = sorted({made.design.take([i]).tags()[0] for i in wrong})
    assert not wrong, f"{len(wrong)} of {len(labels)}: {tags[:8]}"
