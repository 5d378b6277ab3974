"""Several values bound in one line or in several: the same text where running them does the same."""

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlingual_nb.runs.code_names import Marker, normalised_pieces
from xlingual_nb.runs.code_text import Normaliser, names_inside, unfolded


def text_of(body: str) -> str:
    function = "def make(x, y, self):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    marker = Marker("house", "", lambda name: False)
    return normalised_pieces(ast.parse(function).body[0], marker)[0][0]


SAME = [
    ("a, b = x, y(x)\nreturn a, b", "a = x\nb = y(x)\nreturn a, b"),
    ("self.a, self.b = x(), []", "self.a = x()\nself.b = []"),
    ("if x:\n    a, b = 1, x\n    return a", "if x:\n    a = 1\n    b = x\n    return a"),
    ("a, b, c = x, y, x + y\nreturn c", "first = x\nsecond = y\nthird = x + y\nreturn third"),
    ("with x:\n    a, b = y, 2", "with x:\n    a = y\n    b = 2"),
]
OTHER = [
    ("x, y = y, x\nreturn x", "x = y\ny = x\nreturn x"),
    ("self.a, self.b = x(), y()", "self.a = x()\nself.b = y()"),
    ("f = lambda: a\na, b = x, f()", "f = lambda: a\na = x\nb = f()"),
    ("g = (a for _ in y)\na, b = x, next(g)", "g = (a for _ in y)\na = x\nb = next(g)"),
    ("global a\na, b = x, y()", "global a\na = x\nb = y()"),
    (
        "try:\n    a, b = x, y()\nexcept E:\n    pass\nreturn a",
        "try:\n    a = x\n    b = y()\nexcept E:\n    pass\nreturn a",
    ),
    ("with x:\n    a, b = x, y()\nreturn a", "with x:\n    a = x\n    b = y()\nreturn a"),
    ("a, b = x, y\nreturn a", "b = y\na = x\nreturn a"),
]


@pytest.mark.parametrize("together, apart", SAME)
def test_bound_in_one_line_or_in_several(together, apart):
    assert text_of(together) == text_of(apart)


@pytest.mark.parametrize("together, apart", OTHER)
def test_not_where_the_order_may_count(together, apart):
    assert text_of(together) != text_of(apart)


def test_a_module_and_a_class_bind_as_they_stand():
    for before in ("a, b = 1, 2", "class A:\n    a, b = 1, 2"):
        marker = Marker("house", "", lambda name: False)
        assert "Tuple" in str(normalised_pieces(ast.parse(before).body[0], marker))


VALUES = ["a", "b + 1", "seen()", "box.a", "[a, b]", "next(numbers)", "next(lazy)", "10 // c", "7"]
TARGETS = ["a", "b", "c", "box.a", "box.b"]
FRAME = """
def run(box, numbers):
    a, b, c = 2, 3, 0
    def seen(): return a * 100
    lazy = (b * 1000 for _ in range(9))
    {guard}
        {statement}
    {otherwise}
    return a, b, c, vars(box)
"""


class Box:
    def __init__(self):
        self.a = 5
        self.b = 6


def outcome(source: str):
    names = {}
    exec(compile(source, "run", "exec"), names)
    try:
        return names["run"](Box(), iter(range(20, 40)))
    except ZeroDivisionError:
        return "failed"


@given(
    st.lists(st.sampled_from(TARGETS), min_size=2, max_size=3, unique=True),
    st.lists(st.sampled_from(VALUES), min_size=3, max_size=3),
    st.booleans(),
)
def test_running_both_gives_one_result(targets, values, is_guarded):
    statement = f"{', '.join(targets)} = {', '.join(values[: len(targets)])}"
    frame = dict(guard="if True:", otherwise="")
    if is_guarded:
        frame = dict(guard="try:", otherwise="except ZeroDivisionError: pass")
    source = FRAME.format(statement=statement, **frame)
    seen = names_inside(ast.parse(source).body[0])
    apart = unfolded(ast.parse(statement).body[0], seen, is_guarded)
    lines = "; ".join(ast.unparse(part) for part in apart)
    assert outcome(FRAME.format(statement=lines, **frame)) == outcome(source)


def test_some_of_what_is_drawn_comes_apart():
    frame = FRAME.format(statement="c, b = a, seen()", guard="if True:", otherwise="")
    text = ast.unparse(ast.fix_missing_locations(Normaliser().visit(ast.parse(frame).body[0])))
    assert "c = a\n" in text and "b = seen()\n" in text
