"""Every figure of the reference results can be read on a page, in grey, and by who cannot see it."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from xlingual_nb.report import figure_faults, figures

ROOT = Path(__file__).resolve().parents[1]
SIDECARS = [
    path
    for path in sorted((ROOT / "figures").glob("[0-9]*.json"))
    if path.with_suffix(".png").is_file()
]


@pytest.mark.parametrize("path", SIDECARS, ids=lambda p: p.stem)
def test_nothing_is_wrong_with_a_figure(path):
    note = json.loads(path.read_text(encoding="utf-8"))
    assert note["faults"] == [], "draw it again: xlingual run NOTEBOOK --keep -p make_missing=false"
    assert len(note["alt"]) > len(note["caption"])


@pytest.fixture
def drawn():
    figures.style()
    figure, axes = figures.panels(2)
    for ax in axes:
        ax.plot([0, 1], [0, 1], "o-", color=figures.INK[0], label="trained")
        ax.plot([0, 1], [1, 0], "s--", color=figures.INK[1], label="untrained")
        ax.set(xlabel="share", ylabel="F1, %")
    figures.legend_below(figure, axes)
    yield figure, axes
    plt.close(figure)


def test_a_sound_figure_has_no_faults(drawn):
    assert figures.faults(drawn[0]) == []


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda figure, ax: figure.set_figwidth(9), "inches wide"),
        (lambda figure, ax: ax.set_title("small", fontsize=5), "below 7 points"),
        (lambda figure, ax: [ax.text(0.5, y, "a label") for y in (0.5, 0.51)], "labels on labels"),
        (lambda figure, ax: ax.plot([0, 1], [0.5, 0.5], ":", color="red"), "no legend"),
        (lambda figure, ax: ax.set_xlabel(""), "no name"),
    ],
    ids=["wide", "small", "overlap", "legend", "name"],
)
def test_a_fault_is_found(drawn, spoil, fault):
    figure, axes = drawn
    spoil(figure, axes[0])
    assert any(fault in found for found in figures.faults(figure))


def test_lines_alike_in_grey_are_found(drawn):
    figure, (ax, _) = drawn
    ax.plot([0, 1], [0.2, 0.3], "o-", color="#1d1d1d", label="another")
    figure.legends[0].remove()
    figures.legend_below(figure, figure.axes)
    assert any("grey" in found for found in figures.faults(figure))


def test_names_of_points_lie_apart():
    figures.style()
    figure, ax = plt.subplots(figsize=(3, 3), layout="constrained")
    places = {name: (0.5 + 0.01 * i, 0.5) for i, name in enumerate(("en", "es", "hi", "ru"))}
    ax.plot(*zip(*places.values()), "o", color=figures.INK[0])
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="x", ylabel="y")
    figures.label_points(ax, places)
    figure.draw_without_rendering()
    assert figure_faults.overlapping_texts(figure) == []
    assert {text.get_text() for text in ax.texts} == set(places)
    plt.close(figure)
