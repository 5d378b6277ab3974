"""Staleness by definition: what changes the digests behind a maker, and what does not."""

import importlib
import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from xlingual_nb.runs import code_fingerprint, code_source
from xlingual_nb.runs.code_fingerprint import (
    changes,
    code_digest,
    definitions,
    digest_of,
    edited_modules,
)
from xlingual_nb.runs.call_graph import Sources, source_of

HOUSE = {
    "__init__.py": """
        __version__ = "1"
        from .deep.far import shown
        """,
    "stage.py": """
        "The stage."
        import math as m
        from dataclasses import dataclass, field
        from typing import ClassVar

        import house
        from . import tools
        from .specs import Room, WIDTH
        from .tools import TABLE as table, refused
        from xlingual_nb.errors import InputError

        __all__ = ["make"]

        def make(specs, folders, store, progress):
            "Make it."
            from .deep import lazy as late
            for spec in specs:
                if not spec.size: raise InputError(f"{spec} is empty: fill it")
                late.work(spec, table["one"](m.sqrt(WIDTH)), house.shown())     # in order
                tools.Tool(spec).use()
                tables = [refuse for refuse in refused(spec)]
            return Room("kitchen"), tables

        def beside(): return tools.unused()
        """,
    "specs.py": """
        from dataclasses import dataclass
        from typing import ClassVar
        from xlingual_nb.errors import InputError

        WIDTH: float = 3.0

        @dataclass(frozen=True)
        class Room:
            name: str
            height: float = 2.5

        @dataclass(frozen=True)
        class Plan:
            "A plan."
            stage: ClassVar[str] = "plan"
            rooms: tuple[Room, ...]
            size: int = 3
            def __post_init__(self):
                if self.size < 0: raise InputError("no size")
            def area(self): return self.size * 2
            def source_digests(self): return dict(file=WIDTH)
        """,
    "tools.py": """
        from functools import lru_cache
        from .deep.far import power, note

        def noted(f):
            def inner(*a): return note(f(*a))
            return inner

        @noted
        def double(x): return 2 * x
        def treble(x): return 3 * x
        def refuse(): return "not reached: a loop's own name"
        def refused(spec): return [spec]

        TABLE = {}
        TABLE["one"] = double
        SETTING = 1

        class Tool:
            STEPS = 4
            times = 1
            def __init__(self, spec): self.spec = spec
            def use(self) -> int: return self.spec.area() * self.STEPS
            def never_called(self): return SETTING

        def unused(): return 0
        """,
    "deep/__init__.py": "",
    "deep/lazy.py": """
        from .far import power
        def work(spec, *given):
            assert spec, "a message"
            return power(spec.size, by=EXPONENT)
        EXPONENT = 2
        EXPONENT += 0
        """,
    "deep/far.py": """
        try: from math import fsum as total
        except ImportError: total = sum
        def power(x, by): return x ** by
        def shown(): return total([1])
        def note(x): return x
        def apart(): return power(1, 1)
        """,
}


def without_module(name: str) -> str:
    """A label without its module: from the first capital letter on, else the last part."""
    parts = name.split(".")
    first_class = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    return ".".join(parts[first_class:])


def names(table) -> set[str]:
    return set(map(without_module, table))


@pytest.fixture
def house(tmp_path, monkeypatch):
    """The package above on the import path; returns (digest now, edit(file, old, new))."""

    def write(name, text):
        (tmp_path / "house" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "house" / name).write_text(textwrap.dedent(text))

    for name, text in HOUSE.items():
        write(name, text)
    monkeypatch.syspath_prepend(tmp_path)
    for n in [n for n in sys.modules if n.split(".")[0] == "house"]:
        monkeypatch.delitem(sys.modules, n)
    stage, specs = importlib.import_module("house.stage"), importlib.import_module("house.specs")

    def edit(name, old, new):
        file = tmp_path / "house" / name
        text = file.read_text()
        assert old in text, f"{name} does not hold {old!r}"
        file.write_text(text.replace(old, new))
        os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns + 10**9))

    yield lambda: definitions(stage.make, specs.Plan), edit
    for n in [n for n in sys.modules if n.split(".")[0] == "house"]:
        del sys.modules[n]


def test_what_is_reached(house):
    now, _ = house
    assert names(now()) - {"InputError"} == {
        "make",
        "Plan",
        "Room",
        "Room.height=",
        "WIDTH",
        "TABLE",
        "double",
        "noted",
        "note",
        "refused",
        "Tool",
        "SETTING",
        "work",
        "power",
        "EXPONENT",
        "shown",
        "total",
    }


COUNTS = [
    ("a helper two modules away", "deep/far.py", "x ** by", "x ** by + 0"),
    (
        "a function imported inside a function",
        "deep/lazy.py",
        "power(spec.size",
        "power(spec.size + 1",
    ),
    ("a constant", "specs.py", "WIDTH: float = 3.0", "WIDTH: float = 4.0"),
    ("a constant changed further down", "deep/lazy.py", "EXPONENT += 0", "EXPONENT += 1"),
    ("an entry of a table", "tools.py", 'TABLE["one"] = double', 'TABLE["one"] = treble'),
    (
        "a new entry of a table",
        "tools.py",
        'TABLE["one"] = double',
        'TABLE["one"] = double\nTABLE.update(two=treble)',
    ),
    ("a table filled by a decorator", "tools.py", "def treble", "@TABLE.setdefault\ndef treble"),
    ("a decorator", "tools.py", "return note(f(*a))", "return f(*a)"),
    ("no decorator any more", "tools.py", "@noted\n", ""),
    ("a method", "tools.py", "self.spec.area() * self.STEPS", "self.spec.area()"),
    ("a class attribute", "tools.py", "STEPS = 4", "STEPS = 5"),
    ("a method that is not called by name", "tools.py", "return SETTING", "return -SETTING"),
    ("what such a method reads", "tools.py", "SETTING = 1", "SETTING = 2"),
    ("a method glued on", "tools.py", "def unused", "Tool.more = treble\ndef unused"),
    ("a re-export that leads elsewhere", "__init__.py", "import shown", "import note as shown"),
    ("the same name of another library", "stage.py", "import math as m", "import cmath as m"),
    (
        "one import of two",
        "deep/far.py",
        "from math import fsum as total",
        "from statistics import mean as total",
    ),
    (
        "a default argument",
        "deep/lazy.py",
        "def work(spec, *given)",
        "def work(spec, *given, way=1)",
    ),
    ("a condition for an error", "stage.py", "if not spec.size", "if spec.size < 1"),
    ("which error", "stage.py", "raise InputError(", "raise ValueError("),
    ("what is asserted", "deep/lazy.py", "assert spec,", "assert not spec,"),
    ("a field of a spec without a default", "specs.py", "name: str", "name: str\n    door: str"),
    ("a stage name", "specs.py", '= "plan"', '= "map"'),
    ("a method of a spec", "specs.py", "self.size * 2", "self.size * 3"),
    ("a field of an ordinary class", "tools.py", "times = 1", "times = 2"),
    (
        "what a module sets up on import",
        "deep/far.py",
        "def apart",
        "import random; random.seed(1)\ndef apart",
    ),
]

COUNTS_NOT = [
    ("a comment", "stage.py", "# in order", "# in this order"),
    (
        "layout",
        "deep/far.py",
        "def power(x, by): return x ** by",
        "\n\ndef power(x,\n  by):\n\n    return  (x ** by)",
    ),
    ("a docstring", "stage.py", '"Make it."', '"""Make them,\n\n    one by one."""'),
    ("a docstring of a class", "specs.py", '"A plan."', '"The plan."'),
    ("the docstring of a module", "stage.py", '"The stage."', '"Stage."'),
    ("an annotation", "tools.py", "def use(self) -> int", "def use(self) -> float"),
    (
        "an annotation of an argument",
        "deep/far.py",
        "def power(x, by)",
        "def power(x: float, by: 'int')",
    ),
    ("an annotation of a constant", "specs.py", "WIDTH: float =", "WIDTH ="),
    ("an annotation of a field", "specs.py", "rooms: tuple[Room, ...]", "rooms: tuple[Room, Room]"),
    ("the wording of an error", "stage.py", "is empty: fill it", "is empty"),
    ("the wording of an assertion", "deep/lazy.py", '"a message"', '"another"'),
    ("a version", "__init__.py", '"1"', '"2"'),
    ("a list of exports", "stage.py", '["make"]', '["make", "beside"]'),
    ("a definition that is not reached", "deep/far.py", "return power(1, 1)", "return power(2, 2)"),
    ("one in the maker's own module", "stage.py", "return tools.unused()", "return 1"),
    ("one with the name of a variable", "tools.py", "not reached: a loop's own name", "never"),
    ("a new definition", "tools.py", "def unused", "def new(): pass\ndef unused"),
    ("a new import", "tools.py", "from functools import lru_cache", "import json, random"),
    (
        "a new field of a spec with a default",
        "specs.py",
        "size: int = 3",
        "size: int = 3\n    seed: int = 0",
    ),
    (
        "a new field of a spec inside",
        "specs.py",
        "height: float = 2.5",
        "height: float = 2.5\n    door: bool = True",
    ),
    ("another default, which the manifest tells", "specs.py", "size: int = 3", "size: int = 4"),
    (
        "a new spec beside it",
        "specs.py",
        "@dataclass(frozen=True)\nclass Plan",
        "@dataclass(frozen=True)\nclass Roof:\n    size: int = 1\n\n@dataclass(frozen=True)\nclass Plan",
    ),
    ("what only a run id asks", "specs.py", "return dict(file=WIDTH)", "return dict(file=[WIDTH])"),
    ("a name for a module", "stage.py", "import math as m", "import math as m, json"),
    (
        "what a script does",
        "deep/far.py",
        "def apart",
        'if __name__ == "__main__": print(power(2, 2))\ndef apart',
    ),
]


@pytest.mark.parametrize("file, old, new", [c[1:] for c in COUNTS], ids=[c[0] for c in COUNTS])
def test_what_counts(house, file, old, new):
    now, edit = house
    before = now()
    edit(file, old, new)
    assert digest_of(now()) != digest_of(before) and changes(before, now())


@pytest.mark.parametrize(
    "file, old, new", [c[1:] for c in COUNTS_NOT], ids=[c[0] for c in COUNTS_NOT]
)
def test_what_does_not_count(house, file, old, new):
    now, edit = house
    before = now()
    edit(file, old, new)
    assert digest_of(now()) == digest_of(before) and changes(before, now()) == []


def test_a_changed_default_counts_where_code_relies_on_it(house):
    """`make` calls Room with its default height: no spec in a manifest tells that one."""
    now, edit = house
    before = now()
    edit("specs.py", "height: float = 2.5", "height: float = 2.4")
    assert changes(before, now()) == ["house.specs.Room.height has changed"] and digest_of(
        before
    ) == digest_of(now())


def test_changes_are_named(house):
    now, edit = house
    before = now()
    edit("deep/far.py", "x ** by", "x ** by + base()\ndef base(): return 0")
    edit("tools.py", "@noted\n", "")
    assert changes(before, now()) == [
        "house.deep.far.power has changed",
        "house.tools.double has changed",
        "house.deep.far.note is no longer reached",
        "house.tools.noted is no longer reached",
        "house.deep.far.base is new",
    ]


def test_where_nothing_is_as_it_was_one_line_says_so():
    """As of runs whose fingerprints were hashed from another form of the text."""
    old = {f"house.f{n}": f"old {n}" for n in range(30)}
    new = {f"house.f{n}": f"new {n}" for n in range(5, 35)}
    (line,) = changes(old, new)
    assert "30 definitions" in line
    assert len(changes(old, new | {"house.f7": "old 7"})) == 24 + 5 + 5
    assert changes(old, old) == []


def test_another_order_changes_nothing(house):
    now, edit = house
    before = now()
    edit("tools.py", "def treble(x): return 3 * x\n", "")
    edit("tools.py", "@noted\ndef double", "def treble(x): return 3 * x\n\n@noted\ndef double")
    edit("tools.py", "SETTING = 1\n", "")
    edit("tools.py", "TABLE = {}", "SETTING = 1\nTABLE = {}")
    assert now() == before


def test_a_move_or_a_new_name_changes_nothing_where_the_table_of_aliases_knows_it(
    house, monkeypatch
):
    now, edit = house
    before = now()
    edit("deep/far.py", "def power(x, by): return x ** by", "from ..tools import raised as power")
    edit("tools.py", "import power, note", "import note\ndef raised(x, by): return x ** by")
    assert set(map(without_module, changes(before, now()))) == {
        "power is no longer reached",
        "raised is new",
        "work has changed",
    }
    table = {"modules": {}, "definitions": {"tools.raised": "deep.far.power"}}
    monkeypatch.setattr(code_fingerprint, "PACKAGE", "house.")
    monkeypatch.setattr(code_fingerprint, "aliases", lambda: table)
    monkeypatch.setattr(code_fingerprint, "_CACHED_CODE", {})  # a process has one table
    first_names = {name.removeprefix("house.") for name in before}
    assert {name.removeprefix("xlingual_nb.") for name in now()} == first_names
    edit("deep/lazy.py", "from .far import power", "from ..tools import raised as power")
    after = now()
    edit("deep/far.py", "from ..tools import raised as power", "")
    assert now() == after


def test_a_module_that_moved_keeps_the_labels_of_its_definitions(monkeypatch):
    table = {
        "modules": {"new.place": "old.place"},
        "definitions": {"new.place.f": "elsewhere.g"},
    }
    monkeypatch.setattr(code_fingerprint, "aliases", lambda: table)
    assert code_fingerprint.first_name("xlingual_nb.new.place", "f") == "elsewhere.g"
    assert code_fingerprint.first_name("xlingual_nb.new.place", "h") == "old.place.h"
    assert code_fingerprint.first_name("xlingual_nb.new.place") == "old.place"
    assert code_fingerprint.first_name("numpy", "array") == "numpy.array"


def test_every_alias_names_something_that_is_there():
    table = code_fingerprint.aliases()
    for module in table["modules"]:
        assert source_of(code_fingerprint.PACKAGE + module), module
    for name in table["definitions"]:
        module, _, definition = name.rpartition(".")
        found = Sources().module(code_fingerprint.PACKAGE + module)
        assert found and found.knows(definition), name


RENAMED = [
    ("def f(x):\n    y = x\n    return y", "def f(x):\n    z = x\n    return z"),
    (
        "def f(xs):\n    out = []\n    for x in xs:\n        out.append(x)\n    return out",
        "def f(xs):\n    rows = []\n    for one in xs:\n        rows.append(one)\n    return rows",
    ),
    (
        "def f(xs): return [x for x in xs], {x: y for x, y in xs}, (lambda a, *b: a + b)",
        "def f(xs): return [a for a in xs], {k: v for k, v in xs}, (lambda n, *m: n + m)",
    ),
    (
        "def f():\n    n = 0\n    def g(a):\n        nonlocal n\n        n += a\n    return g",
        "def f():\n    m = 0\n    def h(a):\n        nonlocal m\n        m += a\n    return h",
    ),
    (
        "def f(x):\n    match x:\n        case {'k': a, **b}: return a, b\n        case [c, *d] as e: return c, d, e",
        "def f(x):\n    match x:\n        case {'k': q, **r}: return q, r\n        case [s, *t] as u: return s, t, u",
    ),
    (
        "def f(x):\n    try: return g(x)\n    except ValueError as b: return b, (c := x), c",
        "def f(x):\n    try: return g(x)\n    except ValueError as k: return k, (m := x), m",
    ),
    (
        "class A:\n    n = 1\n    def f(self):\n        a = self.n\n        return a",
        "class A:\n    n = 1\n    def f(self):\n        b = self.n\n        return b",
    ),
]

NOT_RENAMED = [
    ("def f(x): return x", "def f(y): return y"),
    (
        "def f(x):\n    y = x\n    z = 1\n    return y",
        "def f(x):\n    y = x\n    z = 1\n    return z",
    ),
    ("def f(x):\n    y = x\n    return y", "def f(x):\n    y = x\n    return x"),
    ("def f(x):\n    y = x\n    return locals()", "def f(x):\n    z = x\n    return locals()"),
    ("class A:\n    n = 1", "class A:\n    m = 1"),
    ("def f(x): return x.a", "def f(x): return x.b"),
    ("def f(x): return g(a=x)", "def f(x): return g(b=x)"),
    ("def f(x, n=1): return x", "def f(x, n=2): return x"),
    ("def f(x): return None", "def f(x): return"),
    ("def f(x): return x and True", "def f(x): return x and 1"),
    ("def f(a, b): return a - b", "def f(a, b): return b - a"),
]


def fingerprint_of(module, text: str) -> list[str]:
    loaded = module(text, "renamed_toy")
    return sorted(definitions(loaded.f if hasattr(loaded, "f") else loaded.A).values())


@pytest.mark.parametrize("one, other", RENAMED)
def test_names_of_local_variables_do_not_count(module, one, other):
    assert fingerprint_of(module, one) == fingerprint_of(module, other)


@pytest.mark.parametrize("one, other", NOT_RENAMED)
def test_other_names_and_values_do(module, one, other):
    assert fingerprint_of(module, one) != fingerprint_of(module, other)


def test_a_tree_is_written_the_same_by_every_python():
    """Texts that `ast.unparse` quotes otherwise from Python 3.12 on, and fields that later ones add."""
    import ast

    from xlingual_nb.runs.code_text import serialise

    tree = ast.parse("def f(x, *a, k=1, **b):\n    return f'{x} {a[0]!r:>{k}}' 'end' f'{b}'").body[
        0
    ]
    assert serialise(tree) == (
        "[FunctionDef name=(str:'f') args=([arguments args=([arg arg=(str:'x')]) vararg=([arg "
        "arg=(str:'a')]) kwonlyargs=([arg arg=(str:'k')]) kw_defaults=([Constant value=(int:1)]) "
        "kwarg=([arg arg=(str:'b')])]) body=([Return value=([JoinedStr values=([FormattedValue "
        "value=(x) conversion=(int:-1)] [Constant value=(str:' ')] [FormattedValue "
        "value=([Subscript value=(a) slice=([Constant value=(int:0)])]) conversion=(int:114) "
        "format_spec=([JoinedStr values=([Constant value=(str:'>')] [FormattedValue value=(k) "
        "conversion=(int:-1)])])] [Constant value=(str:'end')] [FormattedValue value=(b) "
        "conversion=(int:-1)])])])]"
    )
    tree.type_params = []  # as Python 3.12 has it
    split = [ast.Constant("en"), ast.Constant(""), ast.Constant("d")]
    parts = tree.body[0].value.values
    before = serialise(tree)
    parts[3:4] = split  # as another parser may leave neighbouring texts
    assert serialise(tree) == before


def test_two_of_one_name_are_told_apart_and_cannot_be_swapped(tmp_path, monkeypatch):
    for name, by in (("first", 1), ("second", 2)):
        (tmp_path / f"{name}_toy.py").write_text(f"def step(x): return x + {by}\n")

    def digest(one, other):
        text = (
            f"import {one}_toy as a, {other}_toy as b\ndef make(): return a.step(1) - b.step(2)\n"
        )
        (tmp_path / "swap_toy.py").write_text(text)
        monkeypatch.delitem(sys.modules, "swap_toy", raising=False)
        importlib.invalidate_caches()
        return definitions(importlib.import_module("swap_toy").make)

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert set(digest("first", "second")) == {"swap_toy.make", "first_toy.step", "second_toy.step"}
    one, other = digest("first", "second"), digest("second", "first")
    assert one["swap_toy.make"] != other["swap_toy.make"]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module, and get it imported; its name changes with every call."""
    made = []
    monkeypatch.syspath_prepend(tmp_path)

    def write(text, name=None):
        name = name or f"toy_{abs(hash(str(tmp_path)))}_{len(made)}"
        made.append(name)
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    yield write
    for name in made:
        sys.modules.pop(name, None)


ODD = """
    from __future__ import annotations
    from os.path import *
    import json, typing
    if typing.TYPE_CHECKING: from nowhere import Unknown
    from xlingual_nb.errors import require
    N = 1
    def a(): return N
    def b(): return N
    def c(): return N
    def d(): return N
    def e(x): return x
    def caught(x):
        match x:
            case {"k": a, **b}: return a, b
            case [c, *d] as e: return c, d, e
    def looped(xs): return [b for b in xs], {c: d for c, d in xs}, (lambda e: e)(1), [k for k in xs if (a := k)]
    def outer():
        a = 1
        def inner():
            nonlocal a
            a = 2
            return a
        return inner
    def borrowed():
        from xlingual_nb.errors import InputError as k
        def inner():
            nonlocal k
            k = k or 1
            return k
        return inner
    def first(c): return [c for c in c] + [d for d in d()]
    def checked(x: Unknown):
        require(x, f"{a()} is wrong")
        try: return e(x)
        except ValueError as b: return b
    def shared():
        global SHARED
        SHARED = a()
    SHARED = 0
    def joined(x): return join(x, str(exists))
    def mine(module): return module.looped
    class Box:
        a = a
        def get(self): return b
    def boxed(): return Box                 # its method does not see the names of its class
    class Fields:
        a: int
        b = 1
        def c(self): return self.d
    def fielded(): return Fields
"""


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("caught", set()),
        ("looped", set()),
        ("outer", set()),
        ("borrowed", {"InputError"}),
        ("first", {"d", "N"}),
        ("checked", {"e"}),
        ("shared", {"a", "N", "SHARED"}),
        ("joined", set()),
        ("mine", set()),
        ("boxed", {"Box", "a", "b", "N"}),
        ("fielded", {"Fields"}),
    ],
)
def test_a_name_means_what_python_means_by_it(module, name, wanted):
    odd = module(ODD)
    assert names(definitions(getattr(odd, name))) == wanted | {name}


def test_star_imports_circles_and_modules_as_values(module):
    module("def g(): return 2\ndef g2(): return __import__('cycle_a_toy').f()\n", "cycle_b_toy")
    module(
        "import cycle_b_toy\ndef f(): return cycle_b_toy.g()\ndef h(): return 1\nhidden = [1]\n",
        "cycle_a_toy",
    )
    top = module("""
        from cycle_a_toy import *
        import cycle_b_toy as whole
        def make(n): return f() + getattr(whole, n)()
        def only(): return h()
        """)
    assert names(definitions(top.make)) == {"make", "f", "g", "g2"}
    assert names(definitions(top.only)) == {"only", "h"}


def test_imports_in_a_circle_come_to_an_end(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for a, b in ("ab", "ba"):
        (tmp_path / f"round_{a}_toy.py").write_text(f"from round_{b}_toy import x\n")
    assert Sources("round_a_toy").find("round_a_toy", ("x",)) == [(None, "x", ())]


def test_looking_imports_nothing(house):
    now, _ = house
    assert "house.deep.lazy" not in sys.modules and now() and "house.deep.lazy" not in sys.modules
    code = (
        "import sys; from xlingual_nb.runs.call_graph import *; root = 'xlingual_nb.models.training', 'pretrain'; "
        "print(len(reached_definitions([root], Sources())), 'torch' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(told[0]) > 20 and told[1] == "False"


# ---- makers that are more than a function in a file


def test_what_a_factory_binds_counts(module):
    text = """
        from dataclasses import dataclass
        from functools import partial
        from typing import Callable
        def one(x): return 1
        def two(x): return 2
        @dataclass(frozen=True)
        class Task:
            name: str
            run: Callable
            size: int = 1
        def maker(task):
            def make(specs): return [task.run(s) for s in specs]
            return make
        def plain(task, specs): return [task.run(s) for s in specs]
        """
    m = module(text)
    for bind in (m.maker, lambda task: m.partial(m.plain, task)):
        assert {"one", "Task", "()"} <= names(definitions(bind(m.Task("a", m.one))))
        tasks = m.Task("a", m.one), m.Task("a", m.two), m.Task("b", m.one), m.Task("a", m.one, 2)
        assert len({code_digest(bind(task)) for task in tasks}) == 4
        assert code_digest(bind(m.Task("a", m.one))) == code_digest(bind(m.Task("a", m.one)))


NOTEBOOK = """
import numpy as np
from pathlib import Path
from xlingual_nb.text import tokenizers
from xlingual_nb.errors import InputError
from dataclasses import dataclass
N, rows, TABLE = 1, [1], {'a': 1}
@dataclass(frozen=True)
class Spec:
    size: int
    more: int = 2
    def area(self): return self.size + N
def helper(x): return x + TABLE['a']
def make(specs):
    rows.append({3, 4, 'five'})
    return helper(tokenizers.encode(specs, np.array(specs)))
def other(x): raise InputError
"""


def test_a_notebook_has_no_file_and_is_taken_from_memory():
    """As in `__main__` of a kernel whose cells cannot be read back: bytecode, and values of
    constants.
    """

    def table(*edits, maker="make"):
        source = NOTEBOOK
        for old, new in edits:
            assert old in source
            source = source.replace(old, new)
        space = {"__name__": "__main__"}
        main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
        try:
            vars(sys.modules["__main__"]).update(space)
            exec(compile(source, "<cell>", "exec"), space := vars(sys.modules["__main__"]))
            return definitions(space[maker], space["Spec"])
        finally:
            sys.modules["__main__"] = main

    same = table()
    assert {"make", "helper", "TABLE", "Spec", "N", "encode"} <= names(
        same
    ) and "other" not in names(same)

    def changed(*edits):
        return {without_module(n.split()[0]) for n in changes(same, table(*edits))}

    assert (
        changed(
            ("rows, TABLE = 1, [1]", "rows, TABLE = 1, [1, 2]"), ("raise InputError", "return 1")
        )
        == set()
    )
    assert changed(("def helper(x):", "def helper(x):\n    'Why.'\n   ")) == set()
    assert changed(("    more: int = 2\n", "    more: int = 2\n    yet: int = 3\n")) == set()
    assert changed(("    size: int\n", "    size: int\n    yet: int\n")) == {"Spec"}
    assert changed(("size + N", "size - N")) == {"Spec"}
    assert changed(("'a': 1", "'a': 2")) == {"TABLE"} and changed(("x + TABLE", "x - TABLE")) == {
        "helper"
    }
    assert changed(("N, rows, TABLE = 1", "N, rows, TABLE = 2")) == {"N"} and changed(
        ("'five'", "'six'")
    ) == {"make"}


SCRIPT = (
    NOTEBOOK
    + """
import sys, linecache
import toy_stages as t
from xlingual_nb.runs.code_fingerprint import code_digest
sys.modules['__main__'].__spec__ = None         # as in a kernel whose cells cannot be read back
linecache.getlines = lambda *a: []
print(code_digest(make, Spec), code_digest(t.make_count, t.Count))
"""
)


def test_the_digest_is_the_same_in_every_process(tmp_path):
    """Whatever the order of sets is in it."""
    (tmp_path / "note.py").write_text(SCRIPT)
    path = os.pathsep.join([str(Path(__file__).parent), str(source_of("xlingual_nb").parents[1])])

    def told(seed):
        around = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, str(tmp_path / "note.py")]
        return subprocess.run(
            command, capture_output=True, text=True, env=around, check=True
        ).stdout

    import toy_stages

    assert told(1) == told(2) == told(3) and told(1).split()[1] == code_digest(
        toy_stages.make_count, toy_stages.Count
    )


# ---- files that are newer than what is in memory


def test_definitions_edited_after_the_import_are_found(house):
    _, edit = house
    from house.stage import beside, make
    import house.deep.far  # pytest does not rewrite what is no test

    assert edited_modules(make) == [] and edited_modules(beside) == []
    edit("deep/far.py", "def power", "# a comment that moves every line\n\ndef power")
    edit("deep/far.py", "def shown(): return", 'def shown():\n    "What is shown."\n    return')
    edit("deep/far.py", "return power(1, 1)", "return power(2, 2)")
    assert edited_modules(make) == [], "lines, docstrings, and what is not reached"
    edit("deep/far.py", "x ** by", "x ** -by")
    assert edited_modules(make) == ["house.deep.far.power"] and edited_modules(beside) == []
    edit("tools.py", "self.spec.area() * self.STEPS", "self.spec.area()")
    assert edited_modules(make) == ["house.deep.far.power", "house.tools.Tool"]


def test_a_package_without_an_init_file_has_sources(tmp_path, monkeypatch):
    (tmp_path / "bare_toy").mkdir()
    (tmp_path / "bare_toy" / "m.py").write_text("def f(): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    from bare_toy.m import f

    assert source_of("bare_toy.m") == tmp_path / "bare_toy" / "m.py" and names(definitions(f)) == {
        "f"
    }


def test_files_are_read_once_and_again_when_one_is_written(tmp_path, monkeypatch):
    (tmp_path / "shed.py").write_text(
        "from tool import blade\n\n\ndef make():\n    return blade()\n"
    )
    (tmp_path / "tool.py").write_text("def blade():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    make = importlib.import_module("shed").make
    reads = []
    read = code_fingerprint.code_with_full_names

    def counted(*arguments):
        reads.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(code_fingerprint, "code_with_full_names", counted)
    first = definitions(make)
    assert definitions(make) == first and len(reads) == 1
    first.clear()  # what a caller does with a table changes no other
    assert set(definitions(make)) == {"shed.make", "tool.blade"}
    (tmp_path / "tool.py").write_text("def blade():\n    return 10\n")
    assert changes(definitions(make), first) and len(reads) == 2


def test_a_definition_that_moved_twice_is_known_by_each_of_its_names(monkeypatch):
    moved = {
        "modules": {"tasks.second": "tasks.first"},
        "definitions": {"tasks.third.Spec": "tasks.first.Spec"},
    }
    monkeypatch.setattr(code_fingerprint, "aliases", lambda: moved)
    for module in ("first", "second"):
        earlier = f"xlingual_nb.tasks.{module}:Spec"
        assert code_fingerprint.was_called("xlingual_nb.tasks.third", "Spec", earlier)
    other = "xlingual_nb.tasks.second:Other"
    assert not code_fingerprint.was_called("xlingual_nb.tasks.third", "Spec", other)


# ---- what was read is noted beside the byte code


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """`noted(text)`: a module of that text as every process reads it, and the file of its note."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mod.py"

    def read(text):
        file.write_text(text)
        os.utime(file, (1, 1))  # an edit that no time tells
        module = code_source.read_module("mod", file)
        return module, code_source._cache_file(file)

    return read


def everything(module):
    texts = {name: [tuple(p) for p in module.pieces_of(name)] for name in module.statements}
    return texts, module.imports, module.stars


NOTED = (
    "from math import sqrt as root\nfrom os import *\nimport json\n"
    "T = {}\nT['a'] = lambda x: root(x)\n@T.setdefault\ndef f(a, b=2):\n    c = a\n    return c + b\n"
    "class C:\n    size: int = 3\n    def source_digests(self):\n        return json\nset_up()\n"
)


def test_a_module_is_read_once_for_all_processes(noted, monkeypatch):
    first, note = noted(NOTED)
    assert note.is_file()
    monkeypatch.setattr(code_source, "Module", FromNoteOnly)
    again, _ = noted(NOTED)
    assert everything(again) == everything(first)


class FromNoteOnly(code_source.Module):
    def __init__(self, *arguments):
        raise AssertionError("it was read again")


def test_an_edit_of_equal_length_at_the_same_moment_is_seen(noted):
    first, _ = noted(NOTED)
    second, _ = noted(NOTED.replace("b=2", "b=3"))
    assert everything(second)[0]["f"] != everything(first)[0]["f"]


@pytest.mark.parametrize("changed", ["PARSER_DIGEST", "version"])
def test_a_note_by_other_code_or_another_python_is_not_used(noted, monkeypatch, changed):
    _, note = noted(NOTED)
    note.write_text(note.read_text().replace("sqrt", "cbrt"))
    forged, _ = noted(NOTED)
    assert forged.imports["root"] == {("math", ("cbrt",))}  # else this test says nothing
    monkeypatch.setattr(code_source if changed == "PARSER_DIGEST" else sys, changed, "another")
    module, _ = noted(NOTED)
    assert module.imports["root"] == {("math", ("sqrt",))}


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"key": "x"}', "\x00"])
def test_a_damaged_note_is_written_again(noted, damaged):
    first, note = noted(NOTED)
    whole = note.read_text()
    note.write_text(damaged)
    assert everything(noted(NOTED)[0]) == everything(first) and note.read_text() == whole


def test_nothing_is_noted_where_python_writes_no_byte_code(noted, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module, note = noted(NOTED)
    assert "f" in module.statements and not note.exists()


def test_a_folder_that_takes_no_note_is_read_all_the_same(noted, tmp_path):
    (tmp_path / "__pycache__").write_text("a file where the folder would be")
    module, note = noted(NOTED)
    assert "f" in module.statements and not note.exists()
