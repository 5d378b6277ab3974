"""What counts as a change for the tests that `pytest --affected` leaves out."""

import json

import affected

MODULE = '''"""A module."""
LIMIT = 3


def double(x):
    """Twice."""
    return 2 * x  # a comment


class Scale:
    def apply(self, x):
        return double(x)
'''

MORE = """

halve = lambda x: x / 2


def outer():
    def inner():
        return 1

    return inner
"""


def changed(tmp_path, old: str, new: str) -> set[str]:
    """The definitions that differ when `old` becomes `new`; the empty name stands for what runs on
    import.
    """
    assert MODULE.count(old) == 1
    tables = []
    for text in (MODULE, MODULE.replace(old, new)):
        (tmp_path / "module.py").write_text(text, encoding="utf-8")
        tables.append(affected.definitions(tmp_path / "module.py"))
    one, other = tables
    return {name for name in one | other if one.get(name) != other.get(name)}


def test_comments_and_docstrings_are_no_change(tmp_path):
    assert changed(tmp_path, "# a comment", "# another") == set()
    assert changed(tmp_path, '"""Twice."""', '"""Two times."""') == set()
    assert changed(tmp_path, "return 2 * x", "return (2 * x)") == set()


def test_a_change_is_of_the_definition_that_it_stands_in(tmp_path):
    assert changed(tmp_path, "return 2 * x", "return 3 * x") == {"double"}
    assert changed(tmp_path, "return double(x)", "return x") == {"Scale.apply"}
    assert changed(tmp_path, "def double(x):", "@cache\ndef double(x):") == {"double"}
    assert changed(tmp_path, "LIMIT = 3", "LIMIT = 4") == {""}
    assert changed(tmp_path, "class Scale:", "class Scale(dict):") == {""}


def test_a_test_depends_on_what_it_calls_and_on_what_runs_on_import(monkeypatch):
    here, there = "measures/retrieval.py", "tasks/bilstm_crf.py"
    before, imported = affected.package(), affected.closure(here)
    assert "measures/embeddings.py" in imported and there not in imported

    def state(module, name, reached=(f"{here}:rank",)):
        """When one definition has changed."""
        edited = before | {module: before[module] | {name: "changed"}}
        monkeypatch.setattr(affected, "package", lambda: edited)
        affected.digest_of_reached.cache_clear()
        return affected.state_of(reached, (), "tests/test_affected.py")

    usual = affected.state_of((f"{here}:rank",), (), "tests/test_affected.py")
    assert state(here, "rank") != usual
    assert state("measures/embeddings.py", "") != usual, "a constant of a module that is imported"
    assert state(here, "hits") == usual and state(there, "") == usual
    page = "nbs/lib/5030_retrieval.ipynb"
    assert affected.state_of((f"{here}:rank",), (page,), "tests/test_affected.py") != usual


def test_what_is_called_is_noted_and_does_the_same(tmp_path, monkeypatch):
    text = MODULE + MORE
    path = tmp_path / "module.py"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(affected, "package", lambda: {"module.py": affected.definitions(path)})
    called = set()
    names = {"__reached__": called.add}
    tree = affected.Noting("module.py").visit(affected.ast.parse(text))
    exec(compile(tree, path, "exec"), names)
    assert called == set() and names["double"].__doc__ == "Twice."
    for call, value, noted in (
        (lambda: names["double"](2), 4, {"double"}),
        (lambda: names["Scale"]().apply(3), 6, {"Scale.apply", "double"}),
        (lambda: names["halve"](3), 1.5, {""}),
        (lambda: names["outer"]()(), 1, {"outer"}),
    ):
        called.clear()
        assert call() == value
        assert called == {f"module.py:{name}" for name in noted}


def test_a_test_whose_state_has_changed_is_affected(tmp_path, monkeypatch):
    states = {"tests/test_a.py::test_one": "same", "tests/test_a.py::test_two": "before"}
    known = {test: (state, ["x.py:f"], []) for test, state in states.items()}
    (tmp_path / "known.json").write_text(json.dumps(known), encoding="utf-8")
    monkeypatch.setattr(affected, "state_of", lambda reached, notebooks, file: "same")
    assert affected.unaffected(tmp_path) == {"tests/test_a.py::test_one"}


def test_a_page_that_a_test_reads_is_noted_and_a_file_of_the_package_is_not(tmp_path):
    recorder = affected.Recorder.__new__(affected.Recorder)
    recorder.reached, recorder.files_read, recorder.is_listening = set(), set(), True
    inside = ["docs/probe.md", "nbs/answers.toml", "Makefile", "xlingual_nb/papers/k2020/plan.toml"]
    for path in [*(affected.ROOT / name for name in inside), tmp_path / "page.md"]:
        recorder.listen("open", (str(path), "r", 0))
    assert recorder.files_read == {"docs/probe.md", "nbs/answers.toml", "Makefile"}
    assert recorder.files_read <= affected.all_texts()
