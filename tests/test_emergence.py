"""Words along a training: the numbers are those of the measures, the picture shows what they say,
and both are to be had from Python and from the command line.
"""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from PIL import Image

import xlingual_nb as xl
from xlingual_nb import cli
from xlingual_nb.api.pretraining_folders import NOTE
from xlingual_nb.errors import InputError
from xlingual_nb.experiments import laboratory
from xlingual_nb.experiments.scales import laboratory_config, laboratory_text
from xlingual_nb.measures.multilinguality import MeasureSpec
from xlingual_nb.measures.trajectories import (
    Trajectory,
    TranslationSpec,
    checkpoint_folders,
    load_trajectory,
    pretraining_checkpoints,
    project_centred,
    project_languages,
)
from xlingual_nb.report import emergence
from xlingual_nb.report.terminal import folder_titles
from xlingual_nb.runs.engine import run
from xlingual_nb.runs.executors import Inline
from xlingual_nb.runs.store import Store


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory):
    """A smoke model of the laboratory with snapshots, and its store."""
    store = Store(tmp_path_factory.mktemp("store"))
    sizes = laboratory_config("smoke", "micro")
    model = replace(laboratory.row_spec("0 original", sizes, 0), snapshots=(0, 50))
    dev = laboratory_text(sizes)[1]
    runs = [TranslationSpec(model, 50), TranslationSpec(model), MeasureSpec(model, dev, 50)]
    run(runs, store, Inline(), progress=False)
    return store, model, runs


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def made_up(rng, name="made up", noise=0.3):
    """Three checkpoints of a cloud of words, and of the same cloud moved and blurred."""
    words = [(f"w{i}", f"::w{i}") for i in range(40)]
    cloud = rng.normal(size=(40, 16))
    copy = cloud + noise * rng.normal(size=(40, 16)) + 3 * rng.normal(size=16)
    vectors = np.array([[share * cloud, share * copy] for share in (0.1, 0.5, 1.0)])
    return Trajectory(name, ("en", "fake"), words, (0, 50, 100), 0, vectors.astype(np.float32))


# --- numbers


def test_tau_is_the_word_translation_of_the_laboratory(pretraining):
    store, _, (half, end, measured) = pretraining
    assert store.read(half)["tau"] == pytest.approx(store.read(measured)["tau_lower"])
    assert store.read(half)["step"] == store.read(measured)["step"] < store.read(end)["step"]


def test_a_trajectory_of_a_run_has_all_its_checkpoints_and_words(pretraining):
    store, model, (_, end, _) = pretraining
    words = load_trajectory(pretraining_checkpoints(model, store))
    assert words.steps[0] == 0 and words.steps[-1] == store.read(end)["step"]
    assert words.tau[-1] == store.read(end)["tau"]
    assert words.centred.tau[-1] == store.read(end)["tau_centred"]
    assert all(copy == f"::{word}" for word, copy in words.words)
    assert load_trajectory(store.path(model)).steps == words.steps, "as a folder"


def test_nearest_words_begin_with_the_hit(rng):
    words = made_up(rng)
    first = words.nearest(1)[..., 0]
    assert ((first == np.arange(40)) == (words.hits == 1)).all()


def test_a_percent_without_a_snapshot_is_refused(pretraining):
    _, model, _ = pretraining
    with pytest.raises(InputError, match="percent=10.*choose one"):
        TranslationSpec(model, 10)


# --- the plane


def test_across_is_the_way_from_one_mean_to_the_other(rng):
    words = made_up(rng)
    plane = project_languages(words)
    means = plane.points[-1].mean(1)
    distance = np.linalg.norm(words.vectors[-1].mean(1)[1] - words.vectors[-1].mean(1)[0])
    assert means[1] - means[0] == pytest.approx([distance, 0], abs=1e-4)
    assert 0 < plane.explained[-1] < 1


def test_the_plane_does_not_depend_on_how_the_space_is_turned(rng):
    words = made_up(rng)
    turn = np.linalg.qr(rng.normal(size=(16, 16)))[0]
    turned = replace(words, vectors=(words.vectors @ turn).astype(np.float32))
    for project in (project_languages, project_centred):
        one, other = project(words).points[-1], project(turned).points[-1]
        assert np.abs(one) == pytest.approx(np.abs(other), abs=1e-3)


def test_with_means_off_both_languages_lie_around_the_middle(rng):
    points = project_centred(made_up(rng)).points
    assert points.mean(2) == pytest.approx(np.zeros((3, 2, 2)), abs=1e-5)


# --- the picture


def lines(ax):
    """Numbers of pale and of dark lines."""
    return [len(c.get_segments()) for c in ax.collections if isinstance(c, LineCollection)]


def test_every_panel_has_a_line_a_word_and_dark_ones_where_it_is_found(rng):
    words = made_up(rng, noise=1.5)
    figure = emergence.draw_emergence([words], percents=(0, 50, 100))
    *panels, centred = figure.axes
    assert len(panels) == 3
    for checkpoint, ax in enumerate(panels):
        hits = int((words.hits[checkpoint, 0] == 1).sum())
        assert lines(ax) == [40 - hits, hits]
    hits = int((words.centred.hits[-1, 0] == 1).sum())
    assert lines(centred) == [40 - hits, hits] and hits > 0
    assert len({ax.get_xlim() for ax in panels}) == 1, "the same axes along a row"
    plt.close(figure)


def test_two_languages_of_one_name_have_a_mark_each_in_the_legend(rng):
    options = dict(percents=(0, 50, 100), labels=("en", "en"))
    figure = emergence.draw_emergence([made_up(rng)], **options)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:2] == ["en", "en"]
    plt.close(figure)


def test_models_at_the_end_stand_beside_each_other_as_they_are_and_with_means_off(rng):
    models = [
        made_up(rng, name, noise) for name, noise in (("near", 0.1), ("far", 9), ("third", 1))
    ]
    figure = emergence.draw_last(models, ncols=2)
    assert len(figure.axes) == 6
    for model, (plane, centred) in zip(models, zip(figure.axes[::2], figure.axes[1::2])):
        for ax, words in ((plane, model), (centred, model.centred)):
            assert lines(ax)[1] == (words.hits[-1, 0] == 1).sum()
            assert f"τ {words.tau[-1]:.2f}" in ax.get_xlabel()
    tops = [ax.get_position().y1 for ax in figure.axes]
    assert tops[0] == pytest.approx(tops[2]) and tops[4] < tops[0], "two a row"
    plt.close(figure)


def test_of_many_words_some_are_drawn_and_the_number_is_of_all(rng):
    words = made_up(rng)
    many = replace(words, words=words.words * 10, vectors=np.tile(words.vectors, (1, 1, 10, 1)))
    figure = emergence.draw_emergence([many], percents=(100,))
    assert sum(lines(figure.axes[0])) <= emergence.MOST_WORDS
    assert figure.axes[0].get_xlabel() == f"τ {many.tau[-1]:.2f}"
    plt.close(figure)


def test_marks_and_lines_stay_apart_in_grey():
    def grey(colour):
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.3 * red + 0.59 * green + 0.11 * blue

    for theme in emergence.THEMES.values():
        for one, other in ((theme.first, theme.second), (theme.hit, theme.miss)):
            assert abs(grey(one) - grey(other)) > 30
        for colour in (theme.first, theme.second, theme.hit, theme.ink):
            assert abs(grey(colour) - grey(theme.page)) > 60


# --- the animation


def test_an_animation_begins_with_the_first_checkpoint_and_rests_on_the_last(rng):
    frames = emergence.animation_frames(3)
    plane = project_languages(made_up(rng))
    first, last = (emergence.points_between(plane, *frames[i]) for i in (0, -1))
    assert (first == plane.points[0]).all() and (last == plane.points[-1]).all()
    halfway = emergence.points_between(plane, 0, 0.5)
    assert halfway == pytest.approx((plane.points[0] + plane.points[1]) / 2)


# --- from Python


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A tiny model of plain sentences, kept at three points, and its dictionary."""
    english = xl.load_text("micro/en", sentences=100, vocabulary=96)
    words = sorted(set(" ".join(english).split()))
    config = xl.PretrainingConfig(
        layers=1, hidden=16, epochs=2, tokenizer="words", vocab_size=250, snapshots=(0, 50)
    )
    folder = tmp_path_factory.mktemp("tiny") / "bert"
    bert = xl.pretrain(
        {"en": english, "fake": xl.fake_english(english)}, config, folder=folder, progress=False
    )
    return bert, {"en": words, "fake": xl.fake_english(words)}


def test_a_model_of_ones_own(tiny):
    bert, dictionary = tiny
    words = xl.word_trajectory(bert, dictionary)
    assert len(words.steps) == 3 and len(words.words) == len(dictionary["en"])
    assert bert.config.snapshots == (0, 50)
    figure = xl.plot_emergence({"one": bert, "again": [bert, bert]}, dictionary)
    assert len(figure.axes) == 4 + 3
    plt.close(figure)
    figure = xl.plot_words({"a model without snapshots is one, too": bert.folder}, dictionary)
    assert figure.axes[0].get_xlabel() == f"τ {words.tau[-1]:.2f}", "the end of its training"
    plt.close(figure)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda bert, words: xl.plot_words({"a": bert}, words, theme="blue"),
        lambda bert, words: xl.plot_emergence({"a": bert}, words, theme="blue"),
        lambda bert, words: xl.plot_words({"a": bert}, ["fec"]),
        lambda bert, words: xl.plot_words({"a": bert, "b": bert}, {"a": words}),
        lambda bert, words: xl.plot_words({"a": "no such folder"}, words),
        lambda bert, words: xl.word_trajectory("no such folder", words),
        lambda bert, words: xl.animate_emergence({"a": bert}, bert.folder / "no/a.gif", words),
        lambda bert, words: xl.plot_positions(str(bert.folder)),
    ],
    ids=[
        "theme",
        "theme of many",
        "dictionary",
        "dictionary of one",
        "model",
        "folder",
        "path",
        "title",
    ],
)
def test_what_cannot_be_drawn_is_one_error(tiny, wrong):
    with pytest.raises(InputError):
        wrong(*tiny)


def test_positions_are_drawn_that_were_trained(tiny):
    bert, _ = tiny
    max_tokens = bert.config.max_tokens
    assert len(bert.encoder.positions) == 2 * max_tokens
    for positions, drawn in ((None, max_tokens), (5, 5), (max_tokens + 1, max_tokens + 1)):
        figure = xl.plot_positions({"a": bert}, positions)
        assert figure.axes[0].get_xlim() == (-0.5, drawn - 0.5)
        plt.close(figure)


def test_models_of_other_positions_say_how_they_are_drawn(tiny):
    bert, _ = tiny
    text = {"en": ["fec hobvo"], "fake": ["x y"]}
    config = xl.PretrainingConfig(layers=1, hidden=16, epochs=1, vocab_size=96)
    own = xl.pretrain(text, replace(config, lang_pos=True), progress=False)
    short = xl.pretrain(text, replace(config, max_tokens=20), progress=False)
    with pytest.raises(InputError, match="figure"):
        xl.plot_positions({"a": bert, "b": own}, positions=12)
    with pytest.raises(InputError, match="positions=20"):
        xl.plot_positions({"a": bert, "b": short})
    plt.close(xl.plot_positions({"a": bert, "b": short}, positions=20))


def test_unknown_words_of_a_figure_are_warned_of(tiny):
    bert, dictionary = tiny
    dictionary = {language: [*words, "zzz"] for language, words in dictionary.items()}
    with pytest.warns(UserWarning, match="unknown dictionary words"):
        plt.close(xl.plot_words({"a": bert}, dictionary))


def test_snapshots_change_no_model_and_no_folder_from_before(tiny, tmp_path):
    bert, _ = tiny
    config = replace(bert.config, snapshots=())
    english = xl.load_text("micro/en", sentences=100, vocabulary=96)
    texts = {"en": english, "fake": xl.fake_english(english)}
    plain = xl.pretrain(texts, config, folder=tmp_path / "plain", progress=False)
    assert plain.loss.tolist() == bert.loss.tolist()
    assert '"snapshots"' not in (tmp_path / "plain" / NOTE).read_text(encoding="utf-8")
    with pytest.raises(InputError, match="checkpoint.*snapshots"):
        xl.word_trajectory(plain)


@pytest.mark.parametrize(
    "dictionary, says",
    [
        ({"en": ["a"]}, "two languages"),
        ({"en": ["a", "b"], "fake": ["c"]}, "2 and 1 words"),
    ],
)
def test_what_is_no_dictionary(tiny, dictionary, says):
    with pytest.raises(InputError, match=says):
        xl.word_trajectory(tiny[0], dictionary)


def test_checkpoints_of_transformers_are_found(tiny, tmp_path):
    bert, _ = tiny
    for step in (500, 1000):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "config.json").write_bytes((bert.folder / "config.json").read_bytes())
    (tmp_path / "checkpoint-final").mkdir()
    assert list(checkpoint_folders(tmp_path)) == [500, 1000]


# --- from the command line


def xlingual(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stopped:
        cli.main([*map(str, arguments)])
    return stopped.value.code, out.getvalue(), err.getvalue()


def test_a_picture_and_an_animation_of_a_folder(pretraining, tmp_path):
    store, model, _ = pretraining
    out = tmp_path / "words"
    code, told, _ = xlingual("animate", store.path(model), "--title", "Original", "--out", out)
    assert code == 0 and "words.png" in told and "words.gif" in told
    assert Image.open(f"{out}.png").width > 1000
    animation = Image.open(f"{out}.gif")
    assert animation.n_frames > 3 and Path(f"{out}.gif").stat().st_size < 1e6


def test_checkpoints_of_one_model_by_name(pretraining, tmp_path):
    store, model, _ = pretraining
    folders = pretraining_checkpoints(model, store).values()
    code, _, _ = xlingual("animate", "--checkpoints", *folders, "--out", tmp_path / "one")
    assert code == 0 and (tmp_path / "one.gif").is_file()


def test_folders_of_one_name_have_a_row_each(tmp_path, monkeypatch):
    rows = {}

    def drawn(models, *_, **__):
        rows.update(models)
        raise InputError("enough is known")

    monkeypatch.setattr("xlingual_nb.api.training_figures.plot_emergence", drawn)
    folders = [tmp_path / "original/bert", tmp_path / "inverted/bert", tmp_path / "inverted/other"]
    xlingual("animate", *folders, "--out", tmp_path / "words")
    assert rows == {
        "original/bert": folders[0],
        "inverted/bert": folders[1],
        "inverted/other": folders[2],
    }


def test_titles_of_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert folder_titles([Path("a/bert"), Path("b/roberta")]) == ["bert", "roberta"]
    assert folder_titles([Path("."), Path("a")]) == [tmp_path.name, "a"]
    assert folder_titles([Path("/bert"), Path("/a/bert")]) == ["/bert", "a/bert"]


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["nowhere"], "no checkpoints"),
        (["a", "b", "--title", "one"], "1 titles"),
        (["a", "b", "--title", "one", "--title", "one"], "2 titles"),
        (["a/bert", "b/bert", "a/bert"], "given twice"),
        (["a", "--theme", "grey"], "light or dark"),
        (["a", "--dictionary", "en-es.txt"], "two languages"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_line(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, _, err = xlingual("animate", *arguments)
    assert code == 2 and says in err and len(err.splitlines()) == 1
    assert not list(tmp_path.glob("*.gif"))
