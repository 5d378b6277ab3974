"""Where the processor time of the tests goes: `pytest --processor-time costs.csv`.

Writes a row a test and phase, and prints a table by kind of test. Wall clock says little on a
machine that is shared, so what is counted is processor time: of this process, and of those that it
started and saw end.
"""

import csv
import resource
import subprocess
from collections import defaultdict
from dataclasses import asdict, dataclass, fields

import pytest


@dataclass
class Cost:
    """What one phase of one test has used."""

    seconds: float = 0.0
    in_processes: float = 0.0  # of `seconds`, those of processes that it started
    in_runs: float = 0.0  # of `seconds`, those of making runs (training, measuring) in this process
    processes: int = 0
    kernels: int = 0

    def __add__(self, other):
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Cost)))

    def __sub__(self, other):
        return Cost(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Cost)))


def processor_seconds(who) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


class Meter:
    """Counts in the process that runs the tests."""

    def __init__(self):
        self.processes = self.kernels = 0
        self.in_runs = self.depth = 0
        self._count_processes()
        self._time_runs()
        self.last = self.total()

    def total(self) -> Cost:
        here = processor_seconds(resource.RUSAGE_SELF)
        children = processor_seconds(resource.RUSAGE_CHILDREN)
        return Cost(here + children, children, self.in_runs, self.processes, self.kernels)

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
        from xlingual_nb.runs import engine

        make = engine._make

        def timed(*args):
            began = processor_seconds(resource.RUSAGE_SELF)
            self.depth += 1
            try:
                make(*args)
            finally:
                self.depth -= 1
                if not self.depth:
                    self.in_runs += processor_seconds(resource.RUSAGE_SELF) - began

        engine._make = timed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session):
        """What importing and collecting took goes with the first test."""
        self.start = self.total()
        self.last = self.start

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        cost = asdict(self.since_last())
        is_hypothesis = bool(getattr(item.function, "is_hypothesis_test", False))
        report.user_properties.append(("cost", cost | dict(hypothesis=is_hypothesis)))
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

    def pytest_runtest_logreport(self, report):
        # a report of a phase carries the properties of the phases before it
        costs = [value for name, value in report.user_properties if name == "cost"]
        if costs:
            self.rows.append((report.nodeid, report.when, report.outcome, costs[-1]))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        self.starts.append(Cost(**getattr(node, "workeroutput", {}).get("start", {})))

    def pytest_terminal_summary(self, terminalreporter):
        tests, is_hypothesis = defaultdict(Cost), {}
        with open(self.path, "w", newline="", encoding="utf-8") as file:
            names = [f.name for f in fields(Cost)]
            table = csv.DictWriter(file, ["test", "phase", "outcome", *names, "hypothesis"])
            table.writeheader()
            for test, phase, outcome, cost in self.rows:
                table.writerow(dict(test=test, phase=phase, outcome=outcome) | cost)
                is_hypothesis[test] = cost["hypothesis"]
                tests[test] += Cost(**{name: cost[name] for name in names})
        kinds, counts = defaultdict(Cost), defaultdict(int)
        for test, cost in tests.items():
            kind = kind_of(test, cost, is_hypothesis[test])
            kinds[kind] += cost
            counts[kind] += 1
        if self.starts:
            kinds["starting, importing, collecting"] = sum(self.starts, Cost())
        lines = [
            f"| {kind} | {counts[kind] or ''} | {c.seconds:.0f} | {c.in_processes:.0f} | "
            f"{c.in_runs:.0f} | {c.processes} | {c.kernels} |"
            for kind, c in sorted(kinds.items(), key=lambda pair: -pair[1].seconds)
        ]
        total = sum(kinds.values(), Cost())
        terminalreporter.section(f"processor time: {total.seconds:.0f} s ({self.path})")
        terminalreporter.write_line(
            "| tests | number | processor s | in processes | making runs here | processes | kernels |"
        )
        terminalreporter.write_line("|---|--:|--:|--:|--:|--:|--:|")
        for line in lines:
            terminalreporter.write_line(line)


def pytest_addoption(parser):
    parser.addoption(
        "--processor-time", metavar="FILE", help="write what each test costs, and print by kind"
    )


def pytest_configure(config):
    path = config.getoption("--processor-time")
    if not path:
        return
    is_worker = hasattr(config, "workerinput")
    has_workers = bool(getattr(config.option, "numprocesses", None))
    if is_worker or not has_workers:
        config.pluginmanager.register(Meter())
    if not is_worker:
        config.pluginmanager.register(Account(path))
