"""One thread, no network, no windows: set before anything heavy is imported."""

import gc
import os
import shutil
import sys
from itertools import islice
from pathlib import Path

for name, value in dict(
    OMP_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    MPLBACKEND="Agg",
    HF_HUB_DISABLE_TELEMETRY="1",
).items():
    os.environ.setdefault(name, value)

import hypothesis
import pytest
from filelock import FileLock

import affected
import processor_time

# the grammar of addresses that jsonschema builds when it is imported, and does without
sys.modules.setdefault("rfc3987_syntax", None)
PLUGINS = processor_time, affected


def pytest_addoption(parser):
    for plugin in PLUGINS:
        plugin.pytest_addoption(parser)


def pytest_configure(config):
    for plugin in PLUGINS:
        plugin.pytest_configure(config)


# No test cuts the power: what is written need not reach the disk. An experiment's runs flush it
# thousands of times, a tenth of the time that they take.
os.fsync = lambda handle: None

# processes that tests start use the package that is tested, wherever another one is installed
others = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *others])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """`-n auto`: as many as the cores that we may use, eight at most, for each takes a gigabyte; on a
    server one more, as more tests there wait for processes of theirs. None where a change reaches
    few tests.
    """
    if affected.is_soon_over(config):
        return 0
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    is_ci = config.getoption("--hypothesis-profile") == "ci"
    return min(cores + is_ci, 8)


LISTS = dict(slow=processor_time.listed(), ci=processor_time.listed(processor_time.CI_LIST))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))


# these take longest, and so start first
LONG = (
    "test_experiment",
    "test_the_command_line_knows_it",
    "test_notebooks_say_what_they_need",
    "test_two_processes_and_a_resumed",
    "test_what_ran_was_reached",
    "test_the_race_of_fine_tuning",
    "test_the_whole_race",
    "test_sizes_of_a_world",
    "test_the_cost_of_paper_scale",
    "test_kept_run_ids_on_real_text",
    "test_every_definition_has_one_fingerprint",
    "test_the_api_and_the_probe_need_no_clone",
    "test_a_large_row",
    "test_a_lost_scheduler",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    """Marks the tests that slow.txt and ci.txt name, and puts those that are left in order."""
    for item in items:
        names = processor_time.names(item.nodeid)
        for mark, listed in LISTS.items():
            if names & listed:
                item.add_marker(mark)
    result = yield
    items[:] = dealt(items)
    return result


def dealt(items) -> list:
    """The order of the tests. Every worker is dealt a like part of the list to begin with: here, one
    that starts with its share of the long ones, so that at the end no process waits for one of
    them. The last worker begins with the site, which is built once.
    """
    site = [item for item in items if "built" in item.fixturenames]
    others = [item for item in items if "built" not in item.fixturenames]
    first = [item for item in others if item.originalname.startswith(LONG)]
    rest = iter([item for item in others if not item.originalname.startswith(LONG)])
    order = []
    for n in range(WORKERS):
        if n == WORKERS - 1:
            order += site
        order += first[n::WORKERS]
        order += islice(rest, max(0, (n + 1) * len(items) // WORKERS - len(order)))
    return [*order, *rest]


def pytest_collection_finish(session):
    """What was collected stays: looking through it again and again for garbage took a third of the
    time; and looking for garbage where packages and tables that stay had come since, a seventh.
    """
    gc.collect()
    gc.freeze()
    # by default 700, 10 and 10: all objects were looked through 41 times in 73 seconds
    gc.set_threshold(10_000, 20, 50)


@pytest.fixture(scope="session")
def shared_store(pytestconfig):
    """One store for all, as a user has: what several tests read is made once, also by two processes
    at a time. The next session finds what the code of today would make the same way;
    `pytest --cache-clear` makes everything again. Nothing in it is changed by a test.
    """
    from xlingual_nb.runs.store import Store

    return Store(pytestconfig.cache.mkdir("runs"))


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """`made_once(name, make)`: the folder that `make(folder)` fills, in one worker for all of them."""
    of_worker = tmp_path_factory.getbasetemp()
    root = of_worker.parent if "PYTEST_XDIST_WORKER" in os.environ else of_worker

    def made(name, make):
        folder = root / name
        with FileLock(root / f"{name}.lock"):
            if not (root / f"{name}.made").exists():
                shutil.rmtree(folder, ignore_errors=True)
                make(folder)
                (root / f"{name}.made").touch()
        return folder

    return made


# no test fails because the machine is busy with other things
EVER = dict(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("daily", **EVER, max_examples=30)
hypothesis.settings.register_profile("ci", **EVER, max_examples=100)
hypothesis.settings.load_profile("daily")


@pytest.fixture
def doubles(monkeypatch):
    """Double precision throughout, where the loss asks for single precision too. Two ways to one
    number then part by 1e-12 or so instead of 1e-4, whatever the processor adds first; so a bound
    of 1e-8 tells rounding from a mistake, after many steps as well.
    """
    import torch

    usual = torch.get_default_dtype()
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(usual)


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window: the system's, or the one that `playwright install` brings."""
    playwright = pytest.importorskip("playwright.sync_api")
    names = "chromium", "chromium-browser", "google-chrome"
    with playwright.sync_playwright() as started:
        paths = [*map(shutil.which, names), started.chromium.executable_path]
        path = next((path for path in paths if path and Path(path).is_file()), None)
        if path is None:
            pytest.skip("no Chromium on this machine")
        chromium = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()
