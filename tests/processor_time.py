"""Where the processor time of the tests goes: `pytest --processor-time costs.csv` writes a row a
test and phase, and prints a table by kind of test.

Wall clock says little on a machine that is shared, so what is counted is processor time: of this
process, and of those that it started and saw end. `python tests/processor_time.py costs.csv` writes
from it the list of slow tests, which `make check` leaves out.
"""

import csv
import resource
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median

import pytest

SLOW_LIST = Path(__file__).parent / "slow.txt"
CI_LIST = Path(__file__).parent / "ci.txt"
SLOW = 0.075  # processor seconds
HEAD = (
    f"# Tests that take {SLOW} processor seconds and more: `make check` leaves them out. A name without "
    "brackets means all its cases. Written by `make slow`."
)


@dataclass
class Cost:
    """What one phase of one test has used."""

    seconds: float = 0.0
    in_processes: float = 0.0  # of `seconds`, those of processes that it started
    in_runs: float = 0.0  # of `seconds`, those of making runs (training, measuring) in this process
    in_fixtures: float = 0.0  # of `seconds`, those of fixtures that other tests use as well
    processes: int = 0
    kernels: int = 0

    def __add__(self, other):
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Cost)))

    def __sub__(self, other):
        return Cost(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Cost)))


def processor_seconds(*who) -> float:
    usages = map(resource.getrusage, who)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


EVERYTHING = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN


class Meter:
    """Counts in the process that runs the tests."""

    def __init__(self):
        self.processes = self.kernels = 0
        self.in_runs = self.in_fixtures = 0.0
        self.shared = {}  # fixture: what setting it up took, with those that it uses
        self.depth = 0
        self._count_processes()
        self.last = self.start = self.total()

    def total(self) -> Cost:
        children = processor_seconds(resource.RUSAGE_CHILDREN)
        return Cost(
            processor_seconds(*EVERYTHING),
            children,
            self.in_runs,
            self.in_fixtures,
            self.processes,
            self.kernels,
        )

    def since_last(self) -> Cost:
        total = self.total()
        cost, self.last = total - self.last, total
        return cost

    def _count_processes(self):
        begin = subprocess.Popen.__init__

        def counted(process, args, *more, **kwargs):
            self.processes += 1
            self.kernels += "ipykernel" in str(args)
            begin(process, args, *more, **kwargs)

        subprocess.Popen.__init__ = counted

    def _time_runs(self):
        engine = sys.modules.get("xlingual_nb.runs.engine")
        if engine is None:
            return
        make = engine._make

        def timed(*args):
            began = processor_seconds(resource.RUSAGE_SELF)
            try:
                make(*args)
            finally:
                self.in_runs += processor_seconds(resource.RUSAGE_SELF) - began

        engine._make = timed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session):
        self._time_runs()
        self.last = self.start = self.total()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        if fixturedef.scope == "function":
            return (yield)
        began, self.depth = processor_seconds(*EVERYTHING), self.depth + 1
        try:
            return (yield)
        finally:
            took = processor_seconds(*EVERYTHING) - began
            self.depth -= 1
            self.shared[fixturedef] = max(took, self.shared.get(fixturedef, 0))
            if not self.depth:
                self.in_fixtures += took

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        definitions = item._fixtureinfo.name2fixturedefs.values()
        used = [self.shared.get(definition, 0) for several in definitions for definition in several]
        facts = dict(
            uses=max(used, default=0) if call.when == "setup" else 0,
            hypothesis=bool(getattr(item.function, "is_hypothesis_test", False)),
        )
        report.user_properties.append(("cost", asdict(self.since_last()) | facts))
        return report

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["start"] = asdict(self.start)


def kind_of(test: str, cost: Cost, is_hypothesis: bool) -> str:
    """The first kind that fits."""
    if "test_experiment" in test:
        return "experiment notebooks"
    if "test_library_notebook" in test:
        return "library notebooks"
    if "test_benchmarks" in test:
        return "benchmark scripts"
    if cost.kernels:
        return "others with a kernel"
    if cost.processes:
        return "others with a process"
    if is_hypothesis:
        return "hypothesis"
    if cost.in_runs > 0.05:
        return "others that make runs"
    return "the rest"


class Account:
    """Adds up in the process that reports."""

    def __init__(self, path):
        self.path, self.rows, self.starts = path, [], []
        self.ends = {}  # of each worker, when its last test so far ended

    def pytest_runtest_logreport(self, report):
        self.ends[getattr(report, "worker_id", "this process")] = report.stop
        # a report of a phase carries the properties of the phases before it
        costs = [value for name, value in report.user_properties if name == "cost"]
        if costs:
            self.rows.append(
                dict(test=report.nodeid, phase=report.when, outcome=report.outcome) | costs[-1]
            )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        self.starts.append(Cost(**getattr(node, "workeroutput", {}).get("start", {})))

    def pytest_terminal_summary(self, terminalreporter):
        if self.path:
            with open(self.path, "w", newline="", encoding="utf-8") as file:
                names = [f.name for f in fields(Cost)]
                columns = ["test", "phase", "outcome", *names, "uses", "hypothesis"]
                table = csv.DictWriter(file, columns)
                table.writeheader()
                table.writerows(self.rows)
            self.print_kinds(terminalreporter)
            self.print_idle(terminalreporter)
        fast = unlisted(self.rows)
        if fast:
            terminalreporter.section("tests/slow.txt is out of date: `make slow` writes it again")
            for test, seconds in fast.items():
                terminalreporter.write_line(f"{seconds:.1f} s of processor: {test}")

    def print_kinds(self, terminalreporter):
        tests, is_hypothesis = defaultdict(Cost), {}
        for row in self.rows:
            is_hypothesis[row["test"]] = row["hypothesis"]
            tests[row["test"]] += Cost(*(row[f.name] for f in fields(Cost)))
        kinds, counts = defaultdict(Cost), defaultdict(int)
        for test, cost in tests.items():
            kind = kind_of(test, cost, is_hypothesis[test])
            kinds[kind] += cost
            counts[kind] += 1
        if self.starts:
            kinds["starting, importing, collecting"] = sum(self.starts, Cost())
        total = sum(kinds.values(), Cost())
        terminalreporter.section(f"processor time: {total.seconds:.0f} s ({self.path})")
        terminalreporter.write_line(
            "| tests | number | processor s | in processes | making runs here | processes | kernels |"
        )
        terminalreporter.write_line("|---|--:|--:|--:|--:|--:|--:|")
        for kind, c in sorted(kinds.items(), key=lambda pair: -pair[1].seconds):
            terminalreporter.write_line(
                f"| {kind} | {counts[kind] or ''} | {c.seconds:.0f} | {c.in_processes:.0f} | "
                f"{c.in_runs:.0f} | {c.processes} | {c.kernels} |"
            )

    def print_idle(self, terminalreporter):
        """How long workers had nothing left to do while the last test ran."""
        idle = {worker: max(self.ends.values()) - end for worker, end in self.ends.items()}
        told = ", ".join(f"{worker} {seconds:.0f} s" for worker, seconds in sorted(idle.items()))
        terminalreporter.write_line(f"idle at the end, by the clock: {told}")


# ---- the list of slow tests


def listed(path: Path = SLOW_LIST) -> set[str]:
    """What a list names: `module::test`, or one case of it."""
    return set(path.read_text(encoding="utf-8").splitlines()[1:])


def names(test: str) -> set[str]:
    """What the list may call a test, whose id pytest gives."""
    path, name = test.split("::", 1)
    case = f"{Path(path).stem}::{name}"
    return {case, case.partition("[")[0]}


def seconds_alone(rows) -> dict[str, float]:
    """{test: what it takes when it runs alone, with the dearest fixture that it shares with
    others}.
    """
    seconds = defaultdict(float)
    for row in rows:
        seconds[row["test"]] += sum(
            float(row[part]) * sign
            for part, sign in (("seconds", 1), ("in_fixtures", -1), ("uses", 1))
        )
    return dict(seconds)


def unlisted(rows, tolerance: float = 5) -> dict[str, float]:
    """Tests that are clearly slow, and that the list does not name.

    The first test of a worker that reads a study pays for what the others find in a cache, up to a
    second; which test that is differs from run to run.
    """
    known = listed()
    return {
        test: seconds
        for test, seconds in seconds_alone(rows).items()
        if seconds > SLOW * tolerance and not names(test) & known
    }


def slow_list(seconds: dict[str, float]) -> list[str]:
    """The lines of the list: a test by its name where most of its cases are slow, else the cases."""
    cases = defaultdict(dict)
    for test, value in seconds.items():
        cases[min(names(test), key=len)][max(names(test), key=len)] = value
    lines = []
    for name, of_case in cases.items():
        if median(of_case.values()) >= SLOW:
            lines.append(name)
        else:
            lines += [case for case, value in of_case.items() if value >= SLOW]
    return sorted(lines)


# ---- hooks, and the command


def pytest_addoption(parser):
    parser.addoption(
        "--processor-time", metavar="FILE", help="write what each test costs, and print by kind"
    )


def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")
    has_workers = bool(getattr(config.option, "numprocesses", None))
    if is_worker or not has_workers:
        config.pluginmanager.register(Meter())
    if not is_worker:
        config.pluginmanager.register(Account(config.getoption("--processor-time")))


if __name__ == "__main__":
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        lines = slow_list(seconds_alone(csv.DictReader(file)))
    SLOW_LIST.write_text("\n".join([HEAD, *lines, ""]), encoding="utf-8")
    print(f"{len(lines)} lines in {SLOW_LIST}")
