"""How long a study takes on many cards, on random graphs held against what no schedule can beat."""

import numpy as np
import pytest
from toy_stages import Count, Total, make_count, redeclared

from xlingual_nb.runs.engine import run
from xlingual_nb.runs.plan import Node, missing_nodes
from xlingual_nb.runs.schedule import (
    chain_lengths,
    makespan,
    measured_speeds,
    nodes_without,
    row_costs,
)
from xlingual_nb.runs.spec import run_id
from xlingual_nb.runs.staleness import StoreView
from xlingual_nb.runs.store import Store


def random_graph(seed, size=40):
    rng = np.random.default_rng(seed)
    nodes = {}
    for i in range(size):
        parents = (
            {str(p) for p in rng.choice(i, min(i, rng.integers(3)), replace=False)} if i else set()
        )
        nodes[str(i)] = Node(None, str(i), parents, 1, float(rng.integers(1, 20)))
    return nodes


@pytest.mark.parametrize("seed", range(5))
def test_no_schedule_beats_its_bounds(seed):
    nodes = random_graph(seed)
    total = sum(node.weight for node in nodes.values())
    path = max(chain_lengths(nodes).values())
    spans = [makespan(nodes, cards) for cards in (1, 2, 4, 40)]
    assert spans[0] == total and spans[-1] == path, "one after another; each at once"
    for cards, span in zip((1, 2, 4, 40), spans):
        assert max(path, total / cards) <= span <= path + total / cards, cards


@pytest.mark.parametrize("seed", range(3))
def test_runs_that_can_be_shared_end_earlier_on_several_cards(seed):
    nodes = random_graph(seed)
    for n, node in enumerate(nodes.values()):
        node.shards = (1, 4)[n % 2]
    total = sum(node.weight for node in nodes.values())
    paths = [max(chain_lengths(nodes, devices).values()) for devices in (1, 2, 4, 8)]
    assert paths[0] > paths[1] > paths[2] == paths[3]
    assert makespan(nodes, 1, 8) == total, "one card is one card"
    for devices, path in zip((2, 4), paths[1:]):
        assert max(path, total / 8) <= makespan(nodes, 8, devices) <= total
    assert makespan(nodes, 4 * len(nodes), 4) == paths[2]


def test_rows_add_up_and_leave_what_others_need(tmp_path):
    counts = [Count(n) for n in (2, 3, 5)]
    first, second = Total(tuple(counts[:2])), Total(tuple(counts[1:]))
    with redeclared(Count, make_count, cost=lambda s: dict(flops=float(s.upto))):
        nodes = missing_nodes([first, second], StoreView(Store(tmp_path / "runs")))
    wanted = {"first": {run_id(first)}, "second": {run_id(second)}}
    assert row_costs(nodes, wanted).to_dict() == {"second": 6.5, "first": 3.5}
    left = nodes_without(nodes, wanted, ["second"])
    assert set(left) == {run_id(s) for s in (first, *counts[:2])}


def test_measured_speed_is_flops_by_seconds(tmp_path):
    store, spec = Store(tmp_path / "runs"), Count(12, pause=0.1)
    with redeclared(Count, make_count, cost=lambda s: dict(flops=1e6)):
        run([spec, Count(2)], store, progress=False)
        (row,) = measured_speeds([spec, Count(2)], store).to_dict("records")
    assert row["runs"] == 1 and 1e6 / 4 < row["FLOP/s"] < 1e6 / 1.2, "one took less than a second"
