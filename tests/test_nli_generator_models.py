"""The labels of inference pairs against models: every way in which up to three things can be what
the two sentences say. The oracle reads the sentences' meanings, not the design that made them.
"""

from functools import cache
from itertools import combinations_with_replacement, product

import pytest

from xlingual_nb.microworld.nli_generator import generate_pairs
from xlingual_nb.microworld.semantics import SKELETON, SLOT_INDEX
from xlingual_nb.microworld.world import make_world

FUNCTION = (
    "quantifier",
    "article",
    "plural",
    "case",
    "adp",
    "negation",
)  # the frame's, or form without meaning
SAID = [
    slot.name
    for slot in SKELETON
    if slot.name.rpartition(".")[2] not in FUNCTION or slot.name == "main.obl.adp"
]
PARTS = dict(
    subject=[n for n in SAID if n.startswith("main.subj.")],
    deed=[n for n in SAID if n.startswith("main.") and not n.startswith("main.subj.")],
    aside=[n for n in SAID if n.startswith(("then.", "front."))],
)


def kinds_of(world, noun):
    """A noun's concept and all that is above it."""
    above = []
    while noun:
        above.append(int(noun))
        noun = world.parent[noun]
    return above


def claims(world, row, part):
    """What a part of a sentence says, as a set of facts; a noun says its hypernyms too, no tense
    the present.
    """
    said = set()
    for name in PARTS[part]:
        value = row[SLOT_INDEX[name]]
        if name == "main.tense":
            said.add((name, int(value)))
        elif value and name.endswith(".noun"):
            said |= {(name, kind) for kind in kinds_of(world, value)}
        elif value:
            said.add((name, int(value)))
    return frozenset(said)


def exclude(world, one, other):
    """Can one thing not be both? Two numbers of one group, an adjective and its antonym."""
    nouns = [{fact for fact in side if fact[0] == "main.subj.noun"} for side in (one, other)]
    if not (nouns[0] <= nouns[1] or nouns[1] <= nouns[0]):
        return False  # another group
    numbers = [{v for slot, v in side if slot == "main.subj.numeral"} for side in (one, other)]
    if all(numbers) and numbers[0] != numbers[1]:
        return True
    a, b = (
        [v - world.first["adjective"] for slot, v in side if slot == "main.subj.adjective"]
        for side in (one, other)
    )
    return any(x ^ 1 == y for x in a for y in b)


def states(one, other, excluded=False):
    """In which ways a thing can be (what one side says, what the other says)."""
    more, fewer = one - other, other - one
    both = [(False, False), (True, True)]
    if fewer:
        both.append((True, False))
    if more:
        both.append((False, True))
    return [s for s in both if not (excluded and s == (True, True))]


def holds(frame, things, spoken, side):
    """Whether a sentence is true of things ((noun on either side), (deed on either side))."""
    doers = [deed[side] for noun, deed in things if noun[side]]
    if frame == "some":
        return any(doers)
    if frame == "no":
        return not any(doers)
    if frame == "every":
        return all(doers)
    noun, deed = spoken
    return noun[side] and deed[side] == (frame == "plain")


@cache
def judged(frames, nouns, deeds, asides):
    """0, 1, 2 by trying every model; each sentence speaks of something, so there is something of
    either noun.
    """
    premises = meets = 0
    for many in (1, 2, 3):
        for things in combinations_with_replacement(tuple(product(nouns, deeds)), many):
            if not all(any(noun[side] for noun, _ in things) for side in (0, 1)):
                continue
            for spoken, aside in product(things, asides):
                p, h = (
                    holds(frames[side], things, spoken, side) and aside[side] for side in (0, 1)
                )
                premises, meets = premises + p, meets + (p and h)
    return 0 if premises == meets else 1 if meets else 2


def frame_of(world, row):
    quantifier = row[SLOT_INDEX["main.subj.quantifier"]]
    if quantifier:
        return world.gloss(quantifier)
    return "negated" if row[SLOT_INDEX["main.negation"]] else "plain"


def exchanged(world, premise, hypothesis):
    """Do subject and object change places, but for a noun made wider or an adjective gone? Then
    they are two groups.
    """

    def same(row, role, other, other_role):
        a, b = (
            [r[SLOT_INDEX[f"main.{x}.{name}"]] for name in ("noun", "numeral", "adjective")]
            for r, x in ((row, role), (other, other_role))
        )
        related = a[0] in kinds_of(world, b[0]) or b[0] in kinds_of(world, a[0])
        return related and a[1] == b[1] and (a[2] == b[2] or not a[2] or not b[2])

    crossed = same(premise, "subj", hypothesis, "obj") and same(premise, "obj", hypothesis, "subj")
    return (
        crossed
        and premise[SLOT_INDEX["main.subj.noun"]] != hypothesis[SLOT_INDEX["main.subj.noun"]]
    )


def label_of(world, premise, hypothesis):
    """What the models say of two meanings."""
    subject, deed, aside = (
        [claims(world, row, part) for row in (premise, hypothesis)] for part in PARTS
    )
    apart = not exchanged(world, premise, hypothesis) and exclude(world, *subject)
    frames = tuple(frame_of(world, row) for row in (premise, hypothesis))
    return judged(
        frames, tuple(states(*subject, apart)), tuple(states(*deed)), tuple(states(*aside))
    )


def wrong_labels(world, premises, hypotheses, labels):
    return [
        i
        for i, (p, h, y) in enumerate(zip(premises, hypotheses, labels))
        if label_of(world, p, h) != y
    ]


@pytest.mark.parametrize(
    "level, count", [("quantified", 16_000), ("negated", 4_000), ("plain", 4_000)]
)
def test_no_label_is_wrong_among_many_thousands(level, count):
    world = make_world(128)
    made = generate_pairs(world, "train", count, 0, level)
    labels = made.design.labels()
    wrong = wrong_labels(world, made.premise, made.hypothesis, labels)
    tags = sorted({made.design.take([i]).tags()[0] for i in wrong})
    assert len(labels) >= count and not wrong, f"{len(wrong)} of {len(labels)}: {tags[:8]}"


def test_the_oracle_finds_labels_that_are_wrong():
    world = make_world(128)
    made = generate_pairs(world, "dev", 2_000, 0)
    assert len(
        wrong_labels(world, made.premise, made.hypothesis, (made.design.labels() + 1) % 3)
    ) == len(made.premise)
