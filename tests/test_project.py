"""The repository itself: settings, packaging, layers, notebooks that survive cleaning and
export.
"""

import ast
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import house

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MODULES = sorted(
    p for p in (ROOT / "xlingual_nb").rglob("*.py") if p.name not in ("__init__.py", "_modidx.py")
)
NOTEBOOKS = sorted((ROOT / "nbs").rglob("*.ipynb"))
FOLDERS = ("xlingual_nb", "tests", "benchmarks")
LONGEST_MODULE = 650  # lines
LONGEST_TEXT_LINE = 120  # characters
IN_ONE_LINE = ("|", "![", "<img")  # rows of a table and pictures cannot be wrapped
LARGEST_NOTEBOOK = 300 * 1024  # bytes
GROUND = ("test_store", "test_engine", "test_kill")
NUMBERED = sorted((ROOT / "nbs").glob("[0-9][0-9]_*.ipynb"))


def tracked():
    """Files under version control; everything but caches where there is no git (a downloaded
    archive).
    """
    try:
        names = (
            subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
            .stdout.decode()
            .split("\0")
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / n for n in names if n and (ROOT / n).is_file()]


# --- settings and packaging


def test_the_two_nbdev_settings_agree():
    settings, mirror = configparser.ConfigParser(), PROJECT["tool"]["nbdev"]
    settings.read(ROOT / "settings.ini", encoding="utf-8")

    def text(value):
        return (
            str(value)
            if isinstance(value, bool)
            else " ".join(value)
            if isinstance(value, list)
            else value
        )

    only_in_ini = {"requirements", "dev_requirements", "console_scripts"}
    expected = {k: v for k, v in settings["DEFAULT"].items() if k not in only_in_ini}
    assert {k: text(v) for k, v in mirror.items()} == expected


def test_version_and_scripts():
    import xlingual_nb

    assert xlingual_nb.__version__ == PROJECT["tool"]["nbdev"]["version"]
    assert PROJECT["project"]["scripts"]["xlingual"] == "xlingual_nb.cli:main"


def constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {
        canonicalize_name(r.name): next(iter(r.specifier))
        for r in map(Requirement, (l for l in lines if l and not l.startswith("#")))
    }


def asked(*extras):
    """Requirements of the package and of these extras, by name; extras of extras among them."""
    of, found, todo = (
        PROJECT["project"]["optional-dependencies"],
        {},
        [*PROJECT["project"]["dependencies"]],
    )
    todo += [r for extra in extras for r in of[extra]]
    while todo:
        requirement = Requirement(todo.pop())
        if requirement.name == "xlingual_nb":
            todo += [r for extra in requirement.extras for r in of[extra]]
        else:
            found[canonicalize_name(requirement.name)] = requirement
    return found


def test_constraints_are_exact_and_satisfy_the_ranges():
    exact = constraints()
    assert all(s.operator == "==" for s in exact.values())
    for name, requirement in asked("all").items():
        assert name in exact, f"constraints.txt lacks {name}"
        assert requirement.specifier.contains(Version(exact[name].version)), (
            f"{name}: {exact[name]} is outside {requirement.specifier}"
        )


def test_one_command_installs_what_a_researcher_expects():
    wanted = {
        "jupyterlab",
        "papermill",
        "torch",
        "transformers",
        "datasets",
        "seaborn",
        "pandas",
        "scikit-learn",
        "nbdev",
        "gensim",
    }
    assert (
        wanted <= set(asked("all"))
        and 'pip install -c constraints.txt -e ".[all]"' in (ROOT / "docs/reproduce.md").read_text()
    )
    assert not {"datasets", "scikit-learn", "gensim", "jupyterlab", "nbdev"} & set(asked()), (
        "who only runs needs none of these"
    )


def test_environment_yml_and_makefile_use_the_constraints():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    torch = f"torch{constraints()['torch']}"
    assert (
        pip[0] == "-c constraints.txt"
        and torch in pip
        and torch in (ROOT / "Makefile").read_text()
        and torch in (ROOT / "docs/reproduce.md").read_text()
    )


def loaded(tree, inside=False):
    """(top-level name, whether only inside a function) of every absolute import."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((a.name.split(".")[0], inside) for a in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0], inside
        else:
            yield from loaded(node, inside or isinstance(node, (ast.FunctionDef, ast.Lambda)))


def test_every_import_is_declared():
    """What a module loads by itself is a requirement; what a function loads when it is called may
    belong to an extra.
    """
    known = dict(sklearn="scikit-learn", yaml="pyyaml", PIL="pillow")
    always, sometimes = set(asked()), set(asked("hub", "lab", "dist", "docs"))
    lacking = [
        (path.name, top)
        for path in MODULES
        for top, inside in loaded(ast.parse(path.read_text(encoding="utf-8")))
        if top not in sys.stdlib_module_names | {"xlingual_nb"}
        and known.get(top, canonicalize_name(top)) not in (sometimes if inside else always)
    ]
    assert lacking == []


# --- lint


def cells(path):
    """Cells of a notebook: (kind, source)."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]


def discarded_comprehensions(tree, last_is_shown=False):
    """Line numbers of statements that build a list and drop it; a notebook shows a cell's last."""
    kinds = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    shown = tree.body[-1] if last_is_shown and tree.body else None
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, kinds) and node is not shown
    ]


def test_what_ruff_does_not_see():
    """`make lint` runs ruff; checked here: lines of text in notebooks, lengths of modules,
    comprehensions for their side effects.
    """
    faults = []
    for path in (p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT)
        faults += [f"{name}:{n}: a loop" for n in discarded_comprehensions(ast.parse(source))]
        if path in MODULES and len(source.splitlines()) > LONGEST_MODULE:
            faults.append(f"{name}: more than {LONGEST_MODULE} lines")
    for path in NOTEBOOKS:
        for at, (kind, source) in enumerate(cells(path)):
            where = f"{path.relative_to(ROOT)} cell {at}"
            if kind == "markdown":
                wide = [line for line in source.splitlines() if len(line) > LONGEST_TEXT_LINE]
                faults += [f"{where}: {line}" for line in wide if not line.startswith(IN_ONE_LINE)]
            elif kind == "code" and not re.search(r"^\s*[%!]", source, re.M):
                tree = ast.parse(source)
                faults += [
                    f"{where}, line {n}: a loop"
                    for n in discarded_comprehensions(tree, last_is_shown=True)
                ]
    assert faults == []


@pytest.mark.parametrize("tests", ["slow", "ci"])
def test_every_listed_test_exists(tests):
    for line in (ROOT / f"tests/{tests}.txt").read_text(encoding="utf-8").splitlines()[1:]:
        module, name, case = re.fullmatch(r"(\w+)::(\w+)(?:\[(.+)\])?", line).groups()
        assert f"def {name}(" in (ROOT / f"tests/{module}.py").read_text(encoding="utf-8"), line
        is_page = name == "test_library_notebook"
        assert not is_page or (ROOT / f"nbs/lib/{case}.ipynb").is_file(), line


def test_the_hook_before_a_commit_is_the_lint_of_the_tests():
    hooks = {
        h["id"]: h
        for r in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
        for h in r["hooks"]
    }
    entries = " ".join(hook["entry"] for hook in hooks.values())
    assert "ruff check" in entries and "ruff format --check" in entries
    assert {h["language"] for h in hooks.values()} == {"system"}, "nothing is fetched"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "ruff check" in makefile and "ruff format --check" in makefile


# --- layers


def test_imports_run_downward():
    """No module imports one of a higher layer."""
    upward = [
        f"{name} imports {other}"
        for name, path in house.modules().items()
        for other in house.imports(path)
        if house.LEVEL[house.part(other)] > house.LEVEL[house.part(name)]
    ]
    assert upward == []


def test_library_notebooks_are_numbered_as_they_build_on_one_another():
    """What a module loads stands in an earlier notebook, so that they can be read in order. (The
    microworld's first page is its front door and leads to what follows it; experiments are numbered
    as the papers are told.)
    """
    library = {
        name: house.notebook(name)
        for name in house.modules()
        if house.part(name) not in ("experiments",)
    }
    found = [
        (library[name], library[other])
        for name in library
        for other in house.imports(house.modules()[name], everywhere=False)
        if library.get(other, "") > library[name] and name != "microworld"
    ]
    assert found == []


def test_first_page_of_a_package_lists_its_notebooks_in_reading_order():
    names = sorted(p.name for p in (ROOT / "nbs/lib").glob("*.ipynb"))
    assert [n for n in names if not re.fullmatch(r"\d{3}0_[a-z]\w+\.ipynb", n)] == []
    pages = [n for n in names if n[1:4] == "000"]
    assert {n[5:-6] for n in pages} == {
        p.name for p in (ROOT / "xlingual_nb").iterdir() if (p / "__init__.py").is_file()
    } - {"papers"}
    for page in pages:
        _, first = cells(ROOT / "nbs/lib" / page)[0]
        others = [n for n in names if n[0] == page[0] and n != page]
        assert re.findall(r"\]\((\d+_\w+\.ipynb)\)", first) == others, page


def test_floors_know_every_part():
    assert set(map(house.part, house.modules())) == set(house.LEVEL)


def test_no_import_goes_in_a_circle():
    names = house.modules()
    graph = {name: house.imports(path) & set(names) - {name} for name, path in names.items()}
    while graph:
        ready = [n for n, needs in graph.items() if not needs & set(graph)]
        assert ready, f"these import each other: {sorted(graph)}"
        for n in ready:
            del graph[n]


def test_runs_import_errors_alone():
    """`runs` knows nothing of languages, so that it serves any study."""
    outside = [
        f"{name} imports {other}"
        for name, path in house.modules().items()
        if house.part(name) == "runs"
        for other in house.imports(path)
        if house.part(other) not in ("runs", "errors")
    ]
    assert outside == []


def test_the_ground_floor_is_tested_with_toy_stages_alone():
    files = [ROOT / "tests" / f"{name}.py" for name in ("toy_stages", *GROUND)]
    found = {
        part
        for f in files
        for part in re.findall(r"xlingual_nb\.(\w+)", f.read_text(encoding="utf-8"))
    }
    assert found == {"runs", "errors"}


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S
    )
    texts = """texts = {"en": ["The house is old.", "It rains."], "es": ["La casa es vieja.", "Llueve."]}"""
    model = "xl.pretrain(texts, xl.PretrainingConfig(layers=3, hidden=8, epochs=1), folder='path/to/checkpoint')"
    variables = {}
    exec("\n".join(["import xlingual_nb as xl", texts, model, code]), variables)
    assert set(variables["table"].measure) == {"rho", "tau", "mu", "perplexity"}
    assert variables["figure"].axes


def test_the_first_experiment_of_the_docs_finds_the_copy():
    text = (ROOT / "docs/start.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    variables = {}
    exec(code, variables)
    assert set(variables["score"].index) == {"mu", "rho", "tau"}
    assert variables["score"].mu > 0.2


def test_the_house_in_the_docs_is_the_house():
    standing = house.standing((ROOT / "docs/extend.md").read_text(encoding="utf-8"))
    assert standing == house.picture(), "the imports have changed: draw it again with `make house`"


TABLES, NETS = {"numpy", "pandas"}, {"torch", "transformers", "safetensors"}
LATE = {
    "datasets",
    "sklearn",
    "scipy",
    "matplotlib",
    "seaborn",
    "papermill",
    "nbformat",
    "nbconvert",
    "nbclient",
    "IPython",
    "gensim",
}
LIGHT = {"xlingual_nb": TABLES, "xlingual_nb.cli": TABLES}
LIGHT |= {
    f"xlingual_nb.{m}": set()
    for m in (
        "runs.spec",
        "runs.stages",
        "runs.store",
        "runs.engine",
        "papers.published",
        "text.sources",
        "text.corpora",
        "text.records",
        "text.casing",
        "text.vocabularies",
        "text.dictionaries",
        "models.pretraining",
        "models.word_embeddings",
        "measures.multilinguality",
        "measures.word_retrieval",
        "measures.order",
        "measures.word_classes",
        "measures.shift_translation",
        "tasks.nli",
        "tasks.shifted_nli",
        "tasks.concept_erasure",
        "measures.language_erasure",
        "tasks.sequence_labelling",
        "tasks.recipes",
        "tasks.zero_shot_tasks",
        "tasks.zero_shot_tagging",
        "tasks.zero_shot_classification",
        "tasks.zero_shot_parsing",
        "tasks.language_identification",
        "tasks.baselines",
    )
}


def fresh(code):
    """What a new interpreter prints that runs `code` here."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_light_modules_import_nothing_heavy():
    """So that `plan`, which loads every study and the specs of every stage, is quick."""
    for also_heavy in (set(), TABLES):
        modules = [name for name, also in LIGHT.items() if also == also_heavy]
        heavy = NETS | LATE | also_heavy
        code = f"""
import importlib, sys
loaded = set()
for name in {modules!r}:
    importlib.import_module(name)
    for package in sorted({heavy!r} & set(sys.modules) - loaded):
        print(name, "loads", package)
    loaded |= set(sys.modules)
"""
        assert fresh(code).splitlines() == []


def test_the_package_itself_loads_nothing():
    told = fresh(
        "import sys; before = set(sys.modules); import xlingual_nb; print(*set(sys.modules) - before)"
    )
    assert {name.split(".")[0] for name in told.split()} <= {"xlingual_nb"}


# --- what computes needs little

FEW = "torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "pandas"


def with_theirs(names):
    """Installed distributions: these and all that they ask for."""
    found, todo = set(), list(names)
    while todo:
        name = canonicalize_name(todo.pop())
        try:
            asked = [] if name in found else map(Requirement, metadata.requires(name) or [])
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        todo += [r.name for r in asked if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


@pytest.mark.ci
def test_store_engine_and_measures_run_with_few_packages():
    """All of runs, text, microworld, models, measures and tasks load, and a model is trained and
    measured, where every other package is missing.
    """
    kept = with_theirs(FEW)
    missing = {
        top
        for top, names in metadata.packages_distributions().items()
        if not {*map(canonicalize_name, names)} & kept
    }
    missing -= {"xlingual_nb"}
    assert {"sklearn", "seaborn", "papermill"} <= missing and not missing & {*FEW}
    told = fresh(f"""
import importlib, sys, tempfile
class Gate:
    def __init__(self, finder): self.finder = finder
    def __getattr__(self, name): return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in {missing!r} else self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Gate, sys.meta_path)
sys.path.insert(0, "tests")
import house
chosen = "runs", "text", "microworld", "models", "measures", "tasks"
for name in house.modules():
    if house.part(name) in chosen: importlib.import_module("xlingual_nb." + name)
from xlingual_nb.models.configs import Shape, Training
from xlingual_nb.measures.multilinguality import MeasureSpec
from xlingual_nb.models.pretraining import Language
from xlingual_nb.models.pretraining import PretrainSpec
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.store import Store
from xlingual_nb.text.sources import CorpusSpec
from xlingual_nb.text.vocabularies import TokenizerSpec
text = CorpusSpec("micro/en", parameters=(("sentences", 40), ("vocabulary", 96)))
pair = Language("en", text), Language("enfake", text, ("enfake",))
model = PretrainSpec(pair, TokenizerSpec(text, 101, "words"), Shape(1, 8, 1, 16, 24), Training(1, 16, 1e-3, 1))
store = Store(tempfile.mkdtemp()); run([MeasureSpec(model, text)], store, progress=False)
loaded = {{name.split(".")[0] for name in sys.modules}}
print(store.read(MeasureSpec(model, text))["sentences"], *set({missing!r}) & loaded)""")
    assert told.split() == ["40"]


# --- notebooks


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the notebooks, settings and package in which nbdev may write."""
    to = tmp_path_factory.mktemp("tree")
    for name in ("nbs", "xlingual_nb"):
        shutil.copytree(
            ROOT / name,
            to / name,
            ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"),
        )
    for name in ("settings.ini", "pyproject.toml"):
        shutil.copy(ROOT / name, to / name)
    return to


def nbdev(command, cwd):
    # nbdev's notebook tests leave it, and then export does nothing
    environment = {k: v for k, v in os.environ.items() if k != "IN_TEST"}
    code = f"from nbdev.{command[0]} import {command[1]} as f; f()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_export_changes_nothing(copy):
    def modules(at):
        return {
            p.relative_to(at).as_posix(): p.read_text(encoding="utf-8")
            for p in (at / "xlingual_nb").rglob("*.py")
            if p.name != "_modidx.py"
        }

    before = modules(ROOT)
    for path in (copy / "xlingual_nb").rglob(
        "*.py"
    ):  # so that a module without a notebook is seen as well
        if path.name != "__init__.py":
            path.unlink()
    nbdev(("doclinks", "nbdev_export"), copy)
    after = modules(copy)
    assert sorted(after) == sorted(before)
    assert [n for n in after if after[n] != before[n]] == []


def test_cleaning_keeps_the_parameters_tag(copy):
    """nbdev_clean drops cell tags unless told otherwise; papermill then runs the defaults without a
    word.
    """
    kept = 0
    probe = copy / "nbs/99_probe.ipynb"
    cell = dict(
        cell_type="code",
        id="aa",
        metadata=dict(tags=["parameters"], collapsed=True),
        source="n = 0",
        outputs=[],
        execution_count=7,
    )
    probe.write_text(
        json.dumps(dict(cells=[cell], metadata={}, nbformat=4, nbformat_minor=5)), encoding="utf-8"
    )
    nbdev(("clean", "nbdev_clean"), copy)
    cleaned = json.loads(probe.read_text(encoding="utf-8"))["cells"][0]
    assert cleaned["metadata"] == {"tags": ["parameters"]} and cleaned["execution_count"] is None, (
        "cleaning did not run, or took the tag"
    )
    probe.unlink()
    for path in sorted((copy / "nbs").glob("[0-9][0-9]_*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert sum("parameters" in c["metadata"].get("tags", []) for c in cells) == 1, path.name
        kept += 1
    assert kept == len(NUMBERED)


def test_notebooks_are_small_and_clean():
    """A title first, no stored error, and small enough for a code host to render."""
    faults = []
    for path in NOTEBOOKS:
        name = path.relative_to(ROOT)
        notebook = json.loads(path.read_text(encoding="utf-8"))
        kind, title = cells(path)[0]
        outputs = [o for c in notebook["cells"] for o in c.get("outputs", [])]
        if path.stat().st_size > LARGEST_NOTEBOOK:
            faults.append(f"{name}: {path.stat().st_size} bytes")
        if kind != "markdown" or not title.startswith("# "):
            faults.append(f"{name}: no title")
        if any(o["output_type"] == "error" for o in outputs):
            faults.append(f"{name}: an error is stored in an output")
        if any(o.get("name") == "stderr" for o in outputs):
            faults.append(f"{name}: a warning is stored in an output")
    assert faults == []


def test_no_machine_paths_are_tracked():
    own = [re.escape(f"{p.as_posix()}/") for p in {ROOT.parent, Path.home()} if len(p.parts) > 1]
    private = re.compile(
        "|".join(
            [
                r"/(?:home|Users|root)/\w",
                r"file:///\w",
                r"[A-Z]:\\\\Users",
                r"/lib/python3\.\d+/site-packages/",
                *own,
            ]
        )
    )
    here = Path(__file__).name
    found = [
        f"{p.relative_to(ROOT)}: {m[0]}"
        for p in tracked()
        if p.suffix not in (".png", ".svg", ".gz") and p.name != here
        if (m := private.search(p.read_text(encoding="utf-8", errors="ignore")))
    ]
    assert found == []


def test_data_beside_the_code_are_packaged():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["xlingual_nb"]
    shipped = {p for pattern in patterns for p in (ROOT / "xlingual_nb").glob(pattern)}
    assert {
        p for p in (ROOT / "xlingual_nb").rglob("*") if p.suffix in (".csv", ".toml")
    } == shipped
    assert {p.parent.name for p in shipped} >= {"k2020", "dufter2020", "sizes"}


# --- front matter


def test_the_citation_file_is_of_this_version_and_names_the_five_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["tool"]["nbdev"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]
    assert len({paper["title"] for paper in citation["references"]}) == 5
    assert all(
        paper["authors"] and paper["year"] in (2019, 2020) for paper in citation["references"]
    )


def test_the_changelog_has_a_section_for_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", changelog, re.M)
    assert headings[0] == "Unreleased" and PROJECT["tool"]["nbdev"]["version"] in headings
