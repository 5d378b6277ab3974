"""`verdicts.csv` made again from the values by seed with scipy: no line here is the package's."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

ROOT = Path(__file__).resolve().parents[1]
REFUTED = "contradicted", "smaller than the margin"
TESTED = ["reproduced", *REFUTED, "inconclusive"]
CELL = ["table", "row", "column"]
KNOWS_NOTHING = (
    "untrained|^never saw the target|^majority class|^lengths|^set differences|^hypothesis alone"
    "|^true lexicon"
)
OPPOSITE = dict(above="below", below="above", within="outside")
FORTH = dict(difference=lambda x: x, ratio=np.log, correlation=np.arctanh)


def ledger():
    """(paper, stand-ins, claim) of every claim, its floors in each of its tests."""
    for path in sorted(ROOT.glob("xlingual_nb/papers/*/claims.toml")):
        text = tomllib.loads(path.read_text(encoding="utf-8"))
        for claim in text["claim"]:
            claim["tests"] = [
                dict(
                    floor=claim.get("floor", text.get("floor", [])), minus=[], compare="difference"
                )
                | test
                for test in claim["tests"]
            ]
            yield text["paper"], text.get("stand_in", {}), claim


def values_of(scale):
    """Values by seed; models that two notebooks made are those of the notebook that claims them."""
    frames = {p.parent.name: pd.read_csv(p) for p in ROOT.glob(f"results/{scale}/*/seeds.csv")}
    neighbours = frames.pop("08_knn_replace", pd.DataFrame(columns=["paper", "corpus"]))
    return pd.concat(frames.values(), ignore_index=True), neighbours


def cells_of(frame, stand_in):
    """Values and runs by table, row and column; curves whole."""
    last = frame.sort_values("step").drop_duplicates([*CELL, "seed"], keep="last")
    last = last.sort_values("seed").set_index("seed")
    found = {key: part[["value", "run_id"]] for key, part in last.groupby(CELL)}
    for (table, row, column), part in list(found.items()):
        if table in stand_in.get("tables", ()):
            for ours, theirs in stand_in["words"]:
                row, column = row.replace(ours, theirs), column.replace(ours, theirs)
            found.setdefault((table, row, column), part)
    return found


def look(cells, table, row, column):
    """A cell of a table, or of another in the same reading."""
    alike = dict.fromkeys([table, *(t for t, *_ in cells)])
    reading = table.partition("-")[2]
    found = (cells.get((t, row, column)) for t in alike if t.partition("-")[2] == reading)
    return next((cell for cell in found if cell is not None), None)


def filled(floor, row):
    """A floor's label for a row, its places taken by the row's source and target."""
    pair, *rest = row.split(" | ")
    known, two = dict(row=row), pair.split("-")
    if rest and len(two) == 2:
        *setting, target = rest
        target = two[1] if target == "Δ" else target
        setting = " | ".join(setting)
        named = setting.split(" ")[0]
        source = named if named in two else two[two[0] == target]
        known |= dict(source=source, target=target, setting=setting)
    return floor.format_map(defaultdict(str, known))


def highest_floor(cells, test, row, column):
    means = {}
    for name in (filled(floor, row) for floor in test["floor"]):
        if (cell := look(cells, test["table"], name, column)) is not None:
            means[name] = cell.value.mean()
    return (min if "Perpl." in column else max)(means, key=means.get)


def number(curve, name, column):
    """A number of one seed's training curve."""
    step, mu = curve["step"].to_numpy(), curve[column].to_numpy()
    if not mu[-1] > mu[0]:
        return np.nan
    if name == "gain_after_best_dev":
        return (mu[-1] - mu[curve["MLM-Perpl. dev"].argmin()]) / (mu[-1] - mu[0])
    at = (mu >= (mu[0] + mu[-1]) / 2).argmax()
    half = np.interp((mu[0] + mu[-1]) / 2, mu[at - 1 : at + 1], step[at - 1 : at + 1])
    if name == "step_at_half":
        return half
    log = np.log(curve["MLM-Perpl. train"].to_numpy())
    return (log[0] - np.interp(half, step, log)) / (log[0] - log[-1])


def read_off(frame, cells, test, row, column):
    if "curve" not in test:
        return look(cells, test["table"], row, column)
    part = frame[(frame.table == test["table"]) & (frame.row == row) & frame.step.notna()]
    wide = part.pivot(index=["seed", "step"], columns="column", values="value").reset_index()
    wide = wide.dropna(subset=[column])
    numbers = {seed: number(curve, test["curve"], column) for seed, curve in wide.groupby("seed")}
    return pd.Series(numbers).dropna().to_frame("value").assign(run_id=row)


def typical_of(values):
    """The geometric mean variance of each column over rows of trained models, of values and logs."""
    knows_nothing = values.row.str.contains(KNOWS_NOTHING)
    trained, found = values[values.step.isna() & ~knows_nothing], {}
    for is_log in (False, True):
        frame = trained[trained.value > 0] if is_log else trained
        frame = frame.assign(value=np.log(frame.value)) if is_log else frame
        cells = frame.groupby(["column", "table", "row"]).value.agg(["var", "size", "mean"])
        cells = cells[(cells["size"] > 1) & (cells["var"] > 1e-18 * cells["mean"] ** 2)]
        half = (cells["size"] - 1) / 2
        logs = (np.log(cells["var"]) - special.digamma(half) + np.log(half)).groupby("column")
        for column, log in logs.mean()[logs.size() >= 8].items():
            found[column, is_log] = np.exp(log)
    return found


def groups_of(frame, cells, test, typical):
    """Weighted values by seed of each group of models, and the least variance of each."""
    plus, minus, column = test["plus"], test["minus"], test["column"]
    other = test.get("minus_column", column)
    terms = [(1 / len(plus), r, column) for r in plus]
    if minus != "floor":
        terms += [(-test.get("factor", 1) / len(minus), r, other) for r in minus]
    if minus == "floor" or test.get("net"):
        terms += [(-w, highest_floor(cells, test, r, c), c) for w, r, c in terms]
    weights = {}
    for w, r, c in terms:
        weights[r, c] = weights.get((r, c), 0) + w
    groups = []
    for (r, c), w in weights.items():
        if abs(w) < 1e-12:
            continue
        cell = read_off(frame, cells, test, r, c)
        value = w * (np.log(cell.value) if test["compare"] == "ratio" else cell.value)
        runs = set(cell.run_id)
        same = next((g for g in groups if g[1] & runs), None)
        of_no_model = "curve" in test or re.search(KNOWS_NOTHING, r)
        least = 0 if of_no_model else typical.get((c, test["compare"] == "ratio"), 0)
        if same:
            same[0], same[2] = (same[0] + value).dropna(), 0
        else:
            groups.append([value, runs, w**2 * least])
    return [(values.to_numpy(), least) for values, _, least in groups]


def tails(value, variance, squares, margin):
    """p on each side of a margin; the degrees of freedom are Welch's of what was estimated."""
    df = variance**2 / squares if squares else np.inf

    def tail(distance):
        return stats.t.sf(distance / np.sqrt(variance), df)

    return dict(
        above=tail(value - margin),
        below=tail(margin - value),
        within=max(tail(value + margin), tail(margin - value)),
        outside=tail(abs(value) - margin) + tail(abs(value) + margin),
    )


def p_values(frame, cells, test, typical):
    """One-sided p for a test and for its contrary (Welch)."""
    margin = FORTH[test["compare"]](test["margin"])
    if test["compare"] == "correlation":  # over the rows: seeds are no languages
        columns = test["column"], test["minus_column"]
        means = [
            [look(cells, test["table"], r, c).value.mean() for r in test["plus"]] for c in columns
        ]
        z = (np.arctanh(stats.pearsonr(*means).statistic) - margin) * np.sqrt(len(means[0]) - 3)
        p = dict(above=stats.norm.sf(z), below=stats.norm.cdf(z))
        return p[test["test"]], p[OPPOSITE[test["test"]]]
    groups, least = zip(*groups_of(frame, cells, test, typical))
    value = sum(g.mean() for g in groups)
    if min(len(g) for g in groups) < 2:
        return np.nan, np.nan
    parts = np.array([g.var(ddof=1) / len(g) for g in groups])
    if parts.sum() <= 1e-18 * value**2:
        inside = dict(above=value - margin, below=margin - value, within=margin - abs(value))
        inside = inside[test["test"]]
        return (float(inside <= 0), float(inside >= 0)) if test.get("exact") else (np.nan, np.nan)
    floors = np.array([v / len(g) for v, g in zip(least, groups)])
    floored = np.where(parts > 1e-20 * value**2, np.maximum(parts, floors), 0)
    both = []
    for used in (parts, floored):
        own = [(v, g) for v, g, w in zip(used, groups, parts) if v == w]
        squares = sum(v**2 / (len(g) - 1) for v, g in own if v > 0)
        both.append(tails(value, used.sum(), squares, margin))
    p = {name: max(tail[name] for tail in both) for name in both[0]}
    return p[test["test"]], p[OPPOSITE[test["test"]]]


def at_like_fit(cells, test):
    """The test on the rows that were trained to a like fit, where all of them are there."""
    if "fit" not in test:
        return test
    rows = [*test["plus"], *(() if test["minus"] == "floor" else test["minus"]), *test["fit"]]
    usual, longer = (
        [look(cells, test["table"] + end, r, test["column"]) for r in rows]
        for end in ("", "-matched")
    )
    if any(c is None for c in (*usual, *longer)):
        return test
    as_many = all(len(b) >= len(a) for a, b in zip(usual, longer))
    others = any(set(a.run_id) != set(b.run_id) for a, b in zip(usual, longer))
    return test | dict(table=test["table"] + "-matched") if as_many and others else test


def holm(p):
    ordered, worst, adjusted = p.dropna().sort_values(), 0.0, p.copy()
    for rank, (at, value) in enumerate(ordered.items()):
        worst = max(worst, min(1.0, value * (len(ordered) - rank)))
        adjusted[at] = worst
    return adjusted


def again(scale):
    """The tested claims of a scale: p for and against by family, and the verdict."""
    written = pd.read_csv(ROOT / f"results/{scale}/verdicts.csv")
    tested = written[written.verdict.isin(TESTED)]
    values, neighbours = values_of(scale)
    everything = pd.concat([values, neighbours])
    everything = everything.drop_duplicates(["paper", "corpus", *CELL, "seed", "step"])
    spread = {key: typical_of(part) for key, part in everything.groupby(["paper", "corpus"])}
    rows, cached = [], {}
    for paper, stand_in, claim in ledger():
        about = claim["id"].startswith(("D-knn", "D-xnli"))
        here = tested[tested.claim == claim["id"]]
        for corpus in here.corpus:
            if (paper, corpus, about) not in cached:
                frame = neighbours if about else values
                frame = frame[(frame.paper == paper) & (frame.corpus == corpus)]
                cached[paper, corpus, about] = frame, cells_of(frame, stand_in)
            frame, cells = cached[paper, corpus, about]
            tests = [at_like_fit(cells, test) for test in claim["tests"]]
            ps = np.array([p_values(frame, cells, t, spread[paper, corpus]) for t in tests])
            against = np.nan if np.isnan(ps[:, 1]).all() else min(1, len(ps) * np.nanmin(ps[:, 1]))
            family = paper, corpus, claim.get("whose", "paper")
            rows.append((claim["id"], corpus, family, ps[:, 0].max(), against))
    made = pd.DataFrame(rows, columns=["claim", "corpus", "family", "p", "against"])
    for side in ("p", "against"):
        made[side] = made.groupby("family")[side].transform(holm)
    outcome = [made.p < 0.05, made.against < 0.05]
    made["verdict"] = np.select(outcome, ["reproduced", "refuted"], "inconclusive")
    return made.set_index(["claim", "corpus"]), tested.set_index(["claim", "corpus"])


@pytest.mark.parametrize(
    "scale", sorted(p.parent.name for p in ROOT.glob("results/*/verdicts.csv"))
)
def test_verdicts_follow_from_values_by_seed(scale):
    made, written = again(scale)
    written = written.loc[made.index]
    said = written.verdict.replace(dict.fromkeys(REFUTED, "refuted"))
    assert len(made) >= 10 and (made.verdict == said).all()
    p = made.p.where(written.side == "for", made.against)
    assert np.allclose(p, written.p, rtol=1e-4, atol=1e-12)
