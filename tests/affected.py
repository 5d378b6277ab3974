"""`pytest --affected` runs the tests that a change reaches, and says what it left out.

While tests run, the definitions of the package that each one calls are noted, with the notebooks
and pages that it reads: the package is imported with one statement more in every function, which
says that it is called. (A profiler is asked at every call of every library, and doubled the time of
the tests.)
A test that has passed is left out as long as none of them has changed in more than comments and
docstrings, nor what the modules around them do on import, nor its own file. What lies beside the
code (tables, sizes, settings) and what tests share (conftest.py) count for every test; so does all
of the package for tests that start processes, whose calls are not seen, and for the few that are
about the text of the package itself. What runs when a module is imported counts for all tests of
the session. Not seen is what a test takes from a cache that an earlier one has filled, or from a
run that is found in the store: `make test` leaves nothing out.
"""

import ast
import builtins
import hashlib
import json
import os
import re
import sys
from functools import cache
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "xlingual_nb"
# they read the text of modules and notebooks, or hold its fingerprints against recorded ones
ABOUT_TEXT = (
    "test_project",
    "test_reference_results",
    "test_code_fingerprint",
    "test_call_graph",
    "test_run_ids",
)
EVERYTHING = "*"  # stands for all definitions
# places beside the package whose files count for the tests that read them, and ends of their names
READ_BY_TESTS = ("nbs", "docs", "deploy", ".github", "Makefile")
TEXTS = (
    ".ipynb",
    ".md",
    ".toml",
    ".yml",
    ".yaml",
    ".sbatch",
    ".html",
    ".js",
    "Dockerfile",
    "Makefile",
)


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


# ---- what there is


def without_docstrings(tree) -> str:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", 0), str):
            body[0] = ast.Pass()
    return ast.dump(tree)


def is_export_list(node) -> bool:
    """`__all__`, which nbdev writes and nothing in the package reads."""
    return isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"


def definitions(path: Path) -> dict[str, str]:
    """{definition of a module, `Class.method` for one: digest}; under "" what runs on import."""
    tree, found = ast.parse(path.read_text(encoding="utf-8")), {}

    def take_functions(body, prefix):
        rest = []
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found[prefix + node.name] = digest(
                    without_docstrings(node), found.get(prefix + node.name, "")
                )
            elif not is_export_list(node):
                rest.append(node)
            if isinstance(node, ast.ClassDef):
                node.body = take_functions(node.body, f"{prefix}{node.name}.")
        return rest

    tree.body = take_functions(tree.body, "")
    return found | {"": digest(without_docstrings(tree))}


@cache
def package() -> dict[str, dict[str, str]]:
    """{module: its definitions}, modules by their file below the package."""
    return {
        p.relative_to(PACKAGE).as_posix(): definitions(p) for p in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def imports(module: str) -> tuple[str, ...]:
    """The modules of the package that a module imports, anywhere in it."""
    path, found = PACKAGE / module, set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            level = path.parents[node.level - 1].relative_to(ROOT).parts if node.level else ()
            base = ".".join([*level, *filter(None, [node.module])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            inside = "/".join(name.split(".")[1:])
            found |= {f"{inside}.py", f"{inside}/__init__.py"}
    return tuple(sorted(found & set(package())))


@cache
def closure(module: str) -> frozenset[str]:
    """A module, and all that are imported with it."""
    seen, todo = set(), [module]
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            todo += imports(at)
    return frozenset(seen)


@cache
def all_of_package() -> str:
    return digest(json.dumps(package(), sort_keys=True))


@cache
def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


@cache
def digest_of_tests(path: Path) -> str:
    """Of a file of tests and of those that it takes helpers from."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    helpers = re.findall(r"^(?:from|import) (test_\w+)", text, re.M)
    return digest(text, *(file_digest(path.parent / f"{name}.py") for name in helpers))


@cache
def beside_the_code() -> str:
    """Of all that counts for every test: files beside the code by size and age, helpers of tests,
    the data folder and the version of Python.
    """
    folders = [PACKAGE, *(ROOT / name for name in ("results", "figures", "data", "benchmarks"))]
    files = [p for folder in folders for p in folder.rglob("*") if p.suffix not in (".py", ".pyc")]
    files += [p for p in ROOT.iterdir() if p.suffix in (".toml", ".txt", ".yml", ".ini", ".md")]
    facts = [f"{p} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in sorted(files) if p.is_file()]
    helpers = [p for p in sorted((ROOT / "tests").iterdir()) if p.suffix in (".py", ".json")]
    facts += [file_digest(p) for p in helpers if not p.name.startswith("test_")]
    return digest(*facts, os.environ.get("XLINGUAL_DATA", ""), sys.version)


@cache
def all_texts() -> set[str]:
    """Every file that would count for a test that reads it."""
    files = {ROOT / "Makefile"}
    for place in READ_BY_TESTS:
        files |= {path for path in (ROOT / place).rglob("*") if path.name.endswith(TEXTS)}
    return {path.relative_to(ROOT).as_posix() for path in files}


@cache
def imported_with(modules: frozenset[str]) -> list[str]:
    """These modules, and all that are imported with them."""
    return sorted(frozenset().union(*map(closure, modules)))


@cache
def digest_of_reached(reached: tuple[str, ...]) -> str:
    """Of definitions, `module:definition` each, and of what runs when their modules are imported.

    Many tests reach the same ones.
    """
    if EVERYTHING in reached:
        return all_of_package()
    pairs = [name.split(":") for name in sorted(reached)]
    facts = [package().get(module, {}).get(name, "gone") for module, name in pairs]
    modules = frozenset(module for module, _ in pairs if module in package())
    return digest(*facts, *(package()[module][""] for module in imported_with(modules)))


def state_of(reached, files_read, test_file: str) -> str:
    """One digest of all that a test depends on."""
    files = [f"{name} {file_digest(ROOT / name)}" for name in sorted(files_read)]
    test = digest_of_tests(ROOT / test_file)
    return digest(beside_the_code(), test, *files, digest_of_reached(tuple(reached)))


# ---- what tests reach

CALLED = set()  # "module:definition", filled by the statements that `NotingLoader` puts in


class Noting(ast.NodeTransformer):
    """Puts into every function of a module, as its first statement, that it is called."""

    def __init__(self, module: str):
        self.module = module
        self.names = []  # of the classes and the function around; functions in functions are theirs
        self.is_in_function = False

    def note(self, at) -> ast.Call:
        name = ".".join(self.names)
        known = name if name in package()[self.module] else ""
        called = ast.Constant(f"{self.module}:{known}")
        note = ast.Call(ast.Name("__reached__", ast.Load()), [called], [])
        return ast.fix_missing_locations(ast.copy_location(note, at))

    def visit_ClassDef(self, node):
        if self.is_in_function:
            return self.generic_visit(node)
        self.names.append(node.name)
        self.generic_visit(node)
        self.names.pop()
        return node

    def visit_FunctionDef(self, node):
        was_in_function = self.is_in_function
        if not was_in_function:
            self.names.append(node.name)
            self.is_in_function = True
        self.generic_visit(node)
        first = node.body[0]
        has_docstring = ast.get_docstring(node, clean=False) is not None
        note = ast.copy_location(ast.Expr(self.note(first)), first)
        node.body.insert(int(has_docstring), note)
        if not was_in_function:
            self.names.pop()
            self.is_in_function = False
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        self.generic_visit(node)
        # both are evaluated, and the second is the value
        both = ast.Tuple([self.note(node.body), node.body], ast.Load())
        last = ast.Subscript(both, ast.Constant(1), ast.Load())
        node.body = ast.fix_missing_locations(ast.copy_location(last, node.body))
        return node


class NotingLoader(SourceFileLoader):
    """Imports a module of the package so that its functions note their calls; keeps no byte code."""

    def get_code(self, fullname):
        path = Path(self.get_filename(fullname))
        tree = ast.parse(path.read_bytes())
        module = path.relative_to(PACKAGE).as_posix()
        CALLED.add(f"{module}:")  # what runs on import
        return compile(Noting(module).visit(tree), path, "exec", dont_inherit=True)


class NotingFinder:
    """Finds the modules of the package that is tested."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname.partition(".")[0] != PACKAGE.name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.origin and Path(spec.origin).is_relative_to(PACKAGE):
            spec.loader = NotingLoader(fullname, spec.origin)
        return spec


class Recorder:
    """Notes, in the process that runs the tests, what is called and what is read."""

    def __init__(self, folder: Path, name: str):
        self.path = folder / f"{name}.json"
        self.reached, self.files_read = set(), set()
        self.of_fixture, self.of_file, self.tests = {}, {}, {}
        self.is_listening = False
        builtins.__reached__ = CALLED.add
        sys.meta_path.insert(0, NotingFinder)
        sys.addaudithook(self.listen)

    def listen(self, event, arguments):
        if not self.is_listening:
            return
        if event == "open" and str(arguments[0]).endswith(TEXTS):
            path = Path(os.fsdecode(arguments[0])).absolute()
            if any(path.is_relative_to(ROOT / place) for place in READ_BY_TESTS):
                self.files_read.add(path.relative_to(ROOT).as_posix())
        elif event == "subprocess.Popen":
            self.reached.add(EVERYTHING)

    def collect(self):
        """Take what was called until now to what is reached."""
        self.reached |= CALLED
        CALLED.clear()

    def during(self):
        """A generator that records what happens until it goes on; gives (reached, files_read)."""
        outer = self.reached, self.files_read
        if self.is_listening:
            self.collect()
        was_listening, self.is_listening = self.is_listening, True
        self.reached, self.files_read = set(), set()
        CALLED.clear()
        yield
        self.collect()
        inner = self.reached, self.files_read
        self.is_listening = was_listening
        self.reached, self.files_read = outer[0] | inner[0], outer[1] | inner[1]
        if not was_listening:
            self.reached, self.files_read = set(), set()
        yield inner

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        if not isinstance(collector, pytest.Module):
            return (yield)
        recording = self.during()
        next(recording)
        try:
            return (yield)
        finally:
            self.of_file[collector.nodeid] = next(recording)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        if fixturedef.scope == "function":
            return (yield)
        recording = self.during()
        next(recording)
        try:
            return (yield)
        finally:
            both = zip(next(recording), self.of_fixture.get(fixturedef, (set(), set())))
            self.of_fixture[fixturedef] = tuple(one | other for one, other in both)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        recording = self.during()
        next(recording)
        try:
            return (yield)
        finally:
            file = item.nodeid.split("::")[0]
            parts = [next(recording), self.of_file.get(file, (set(), set()))]
            used = item._fixtureinfo.name2fixturedefs.values()
            parts += [
                self.of_fixture[f] for several in used for f in several if f in self.of_fixture
            ]
            reached, files_read = (set().union(*side) for side in zip(*parts))
            if item.path.stem in ABOUT_TEXT:
                reached, files_read = {EVERYTHING}, all_texts()
            self.tests[item.nodeid] = reached, files_read

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self):
        on_import = set().union(*(reached for reached, _ in self.of_file.values())) - {EVERYTHING}
        tests = {
            test: (sorted(reached | on_import), sorted(files_read))
            for test, (reached, files_read) in self.tests.items()
        }
        self.path.write_text(json.dumps(tests), encoding="utf-8")


@cache
def known_tests(folder: Path) -> dict:
    """{test that has passed: state, reached, notebooks}, as the last run has left it."""
    path = folder / "known.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


@cache
def unaffected(folder: Path) -> frozenset[str]:
    """The known tests that reach nothing that has changed."""
    return frozenset(
        test
        for test, (state, reached, files_read) in known_tests(folder).items()
        if state == state_of(reached, files_read, test.split("::")[0])
    )


FEW = 500  # tests that one process ends sooner than several have started


def is_soon_over(config) -> bool:
    """Whether so few tests are reached that one process is the fastest."""
    if not config.getoption("--affected") or config.getoption("cacheclear"):
        return False
    # where `config.cache.mkdir` has it, which is not there so early
    folder = config.rootpath / config.getini("cache_dir") / "d/affected"
    known = known_tests(folder)
    return bool(known) and len(known) - len(unaffected(folder)) < FEW


class Choice:
    """Chooses, in every process, and keeps what was learnt, in the process that reports."""

    def __init__(self, folder: Path, is_worker: bool):
        self.folder, self.is_worker = folder, is_worker
        self.known = dict(known_tests(folder))
        self.passed, self.failed = set(), set()
        self.left_out = unaffected(folder)
        files = {test.split("::")[0] for test in self.known}
        wanted = {test.split("::")[0] for test in set(self.known) - self.left_out}
        changed = {f for f in files if f not in wanted and not (ROOT / f).is_file()}
        self.quiet_files = files - wanted - changed

    def pytest_ignore_collect(self, collection_path):
        """Files of which no test is reached are not even imported."""
        is_ours = collection_path.is_relative_to(ROOT)
        # None leaves the answer to others
        return (
            True
            if is_ours and collection_path.relative_to(ROOT).as_posix() in self.quiet_files
            else None
        )

    def pytest_collection_modifyitems(self, config, items):
        again = [item for item in items if item.nodeid not in self.left_out]
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid in self.left_out])
        items[:] = again

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" or report.skipped:
            self.passed.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        if self.is_worker:
            return
        for path in sorted(self.folder.glob("*.json")):
            if path.name == "known.json":
                continue
            for test, (reached, files_read) in json.loads(path.read_text(encoding="utf-8")).items():
                self.known.pop(test, None)
                if test in self.passed - self.failed:
                    state = state_of(reached, files_read, test.split("::")[0])
                    self.known[test] = state, reached, files_read
            path.unlink()
        text = json.dumps(
            {t: v for t, v in self.known.items() if (ROOT / t.split("::")[0]).is_file()}
        )
        (self.folder / "known.json").write_text(text, encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter):
        count = len(self.left_out)
        terminalreporter.write_line(
            f"affected: {count} tests left out, which have passed and reach nothing that has changed "
            "since; `make test` runs all"
            if count
            else "affected: nothing is known yet, or all is reached"
        )


def pytest_addoption(parser):
    parser.addoption(
        "--affected",
        action="store_true",
        help="run the tests that changes since the last such run reach",
    )


def pytest_configure(config):
    if not config.getoption("--affected"):
        return
    folder, is_worker = config.cache.mkdir("affected"), hasattr(config, "workerinput")
    config.pluginmanager.register(Choice(folder, is_worker))
    if is_worker or not getattr(config.option, "numprocesses", None):
        name = config.workerinput["workerid"] if is_worker else "here"
        config.pluginmanager.register(Recorder(folder, name))
