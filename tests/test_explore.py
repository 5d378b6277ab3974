"""The page that one can move: its data follow from the study, and a browser plays it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import xlingual_nb as xl
from xlingual_nb.errors import InputError
from xlingual_nb.experiments.emergence import FRONT, TITLES
from xlingual_nb.report import emergence, explorer, explorer_dials, tables
from xlingual_nb.report.reference_results import kept_study
from xlingual_nb.runs.spec import run_id

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/explore"
MODELS = sorted((PAGE / "data").glob("micro-*.js"))


def called(path, name):
    """What a script of data gives to a function of the page."""
    text = path.read_text(encoding="utf-8")
    return json.loads(re.fullmatch(rf"explore\.{name}\((.*)\);\n", text, re.S)[1])


# ---- data


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_a_model_of_the_page_is_one_of_the_study(path):
    data = explorer.read_data(path)
    assert data["title"] == TITLES[data["row"]]
    study = tables.read_seeds(ROOT / "results/laptop/18_emergence/seeds.csv")
    study = study[(study.row == data["row"]) & (study.seed == data["seed"])]
    study = study[study.corpus == data["corpus"]]
    for name, column in (("plane", ""), ("centred", ", means off")):
        view = explorer.read_projection(data, name)
        scores = data["words"]["layers"]["0"][name]["score"]
        assert view.tau == pytest.approx(scores, abs=1e-3), "nearest words and τ say one thing"
        assert 0 < view.explained.min() and view.explained.max() < 1
        of = study[study.column == f"Layer 0 Trans. τ{column}"]
        by_step = dict(zip(data["steps"], scores))
        assert len(of) > 5
        assert [by_step[step] for step in of.step] == pytest.approx(list(of.value), abs=1e-4)
    assert data["curves"]["tau0"] == pytest.approx(
        data["words"]["layers"]["0"]["plane"]["score"], abs=1e-3
    )
    losses = data["loss"]
    assert losses["steps"][-1] == data["steps"][-1] and len(losses["values"]) == len(
        losses["steps"]
    )
    assert losses["values"][-1] < 0.8 * losses["values"][0]


def test_the_page_lists_the_models_that_are_there():
    entries = called(PAGE / "data/index.js", "index")
    there = {path.name for path in (*MODELS, *(PAGE / "data").glob("encoder-*.js"))}
    assert {entry["file"] for entry in entries} == there
    assert set(FRONT) <= {entry["row"] for entry in entries}


def test_dials_are_those_of_the_study():
    data = called(PAGE / "data/dials.js", "dials")
    assert data == explorer_dials.dials_data(kept_study("17_dials", ROOT)), "xlingual run 18 --keep"


def test_every_setting_of_a_dial_has_a_map_of_a_model_of_the_study():
    maps = called(PAGE / "data/dials-words.js", "dialWords")
    dials = called(PAGE / "data/dials.js", "dials")
    rows = [f"{dial['name']} | {one['name']}" for dial in dials for one in dial["settings"]]
    assert set(maps) == set(rows)
    seeds = tables.read_seeds(ROOT / "results/laptop/17_dials/seeds.csv")
    tau = seeds[(seeds.column == "Layer 0 Trans. τ") & (seeds.seed == 0)].set_index("row").value
    for row, measure in explorer_dials.dial_runs().items():
        one = maps[row]
        assert one["run"] == run_id(measure.checkpoint)[:12]
        # the same seed trained anew, by code that is not that of the study to the last digit
        assert one["plane"]["score"] == pytest.approx([tau[row]], abs=0.1)
        nearest = explorer.decode_bytes(one["plane"]["nearest"], (2, -1, explorer.N_NEAREST))
        found = (nearest[..., 0] == np.arange(nearest.shape[1])).mean()
        assert found == pytest.approx(one["plane"]["score"][0], abs=0.02), "ties may go either way"


def test_data_are_small_and_nothing_comes_from_elsewhere():
    assert sum(path.stat().st_size for path in (PAGE / "data").iterdir()) < 2e6
    for name in ("index.html", "explore.js", "explore.css"):
        assert not re.search(r"https?://|//cdn", (PAGE / name).read_text(encoding="utf-8")), name
    assert "ISC" in (PAGE / "vendor/d3.LICENSE").read_text() or "Permission to use" in (
        PAGE / "vendor/d3.LICENSE"
    ).read_text(encoding="utf-8")


def test_the_animation_is_of_all_checkpoints_and_small():
    path = PAGE / "training.gif"
    assert path.stat().st_size < 1e6
    steps = explorer.read_data(PAGE / "data/micro-0.js")["steps"]
    with Image.open(path) as animation:
        assert animation.n_frames == len(emergence.animation_frames(len(steps)))


def test_an_encoder_from_elsewhere_has_its_words(tmp_path):
    """Of the microworld here, opened as a folder that says nothing of its languages."""
    text = xl.load_text("micro/en", sentences=60, vocabulary=96)
    config = xl.PretrainingConfig(layers=2, hidden=16, epochs=1, vocab_size=200)
    bert = xl.pretrain({"en": text, "fake": text}, config, folder=tmp_path / "bert", progress=False)
    words = tmp_path / "words.csv"
    words.write_text("en,fake\n" + "".join(f"{w},{w}\n" for w in text[0].split()[:5]))
    path = tmp_path / "encoder-tiny.js"
    explorer.write_encoder_model(bert.folder, words, ("en", "fake"), "Tiny", path, "made here")
    view = explorer.read_model(path)
    assert view.plane.words == [(w, w) for w in text[0].split()[:5]] and len(view.plane.steps) == 1
    explorer.write_page_index(tmp_path)
    assert called(tmp_path / "index.js", "index")[-1]["title"] == "Tiny"
    with pytest.raises(InputError, match="has no 'es'"):
        explorer.read_closed_classes(words, ("en", "es"))


def test_another_script_is_no_model(tmp_path):
    (tmp_path / "other.js").write_text("alert(1)", encoding="utf-8")
    with pytest.raises(InputError, match="holds no model"):
        explorer.read_data(tmp_path / "other.js")


def test_points_keep_their_place_to_half_a_step():
    points = np.random.default_rng(0).uniform(-3, 3, (4, 2, 5, 2))
    again = explorer.decode_points(explorer.encode_points(points, 3), points.shape, 3)
    assert np.abs(again - points).max() <= 3 / 255 + 1e-9


# ---- in a browser


@pytest.fixture
def opened(browser):
    """Opens the page from the file system; at the end there must have been no error."""
    contexts, errors = [], []

    def open_page(width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        tab.on("pageerror", lambda e: errors.append(str(e)))
        tab.on("requestfailed", lambda r: errors.append(f"not loaded: {r.url}"))
        tab.goto((PAGE / "index.html").as_uri())
        tab.wait_for_function("document.querySelector('#score-right b')")
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


def score(tab, side="left"):
    return float(tab.inner_text(f"#score-{side} b").split()[1])


def picture(tab, side="left"):
    return tab.evaluate(f"document.getElementById('panel-{side}').toDataURL()")


def set_step(tab, value):
    tab.evaluate(
        "v => { const s = document.getElementById('step'); s.value = v;"
        " s.dispatchEvent(new Event('input', {bubbles: true})); }",
        value,
    )
    tab.wait_for_timeout(60)


@pytest.mark.ci
@pytest.mark.parametrize("width", [1280, 390])
def test_every_control_changes_what_it_says(opened, width):
    tab = opened(width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    data = explorer.read_data(PAGE / "data/micro-0.js")
    last = data["words"]["layers"]["0"]
    assert score(tab) == pytest.approx(last["plane"]["score"][-1], abs=0.006)
    end = picture(tab)
    set_step(tab, 0)
    assert "step 0" in tab.inner_text("#when")
    assert score(tab) == pytest.approx(last["plane"]["score"][0], abs=0.006)
    assert picture(tab) != end
    set_step(tab, 16)
    tab.check("input[name=view][value=centred]")
    tab.wait_for_timeout(60)
    assert score(tab) == pytest.approx(last["centred"]["score"][-1], abs=0.006)
    tab.check("input[name=layer][value='1']")
    tab.check("input[name=items][value=sentences]")
    tab.wait_for_timeout(60)
    upper = data["sentences"]["layers"]["2"]["centred"]
    assert score(tab) == pytest.approx(upper["score"][-1], abs=0.006)
    assert tab.inner_text("#score-left").startswith("ρ")
    third = called(PAGE / "data/index.js", "index")[2]
    tab.select_option("#right", third["row"])
    tab.wait_for_function(
        f"document.getElementById('title-right').textContent === {third['title']!r}"
    )
    assert tab.locator("#curves svg").count() == 5
    titles = tab.locator("#curves svg > text").all_text_contents()
    assert titles[0] == "Loss" and "τ, words found, upper layer" in titles, (
        "curves follow the layer"
    )


@pytest.mark.ci
@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_screen_has_both_panels_and_what_came_of_each_model(opened, width):
    tab = opened(width)
    tops = []
    for side, file in (("left", "micro-0.js"), ("right", "micro-3.js")):
        box = tab.locator(f"#panel-{side}").bounding_box()
        assert box["y"] + box["height"] < 900
        tops.append(box["y"])
        view = explorer.read_model(PAGE / "data" / file).plane
        assert tab.inner_text(f"#found-{side} b") == f"{100 * view.tau[-1]:.0f} %"
    assert tops[0] == tops[1], "side by side"


@pytest.mark.ci
def test_a_curve_leads_to_its_step(opened):
    tab = opened()
    tab.locator("#curves svg").first.scroll_into_view_if_needed()
    box = tab.locator("#curves svg").first.bounding_box()
    tab.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    tab.wait_for_timeout(60)
    step = int(re.search(r"step ([\d,]+)", tab.inner_text("#when"))[1].replace(",", ""))
    assert 1200 <= step <= 2400


@pytest.mark.ci
def test_keys_walk_through_words_and_training(opened):
    tab = opened()
    tab.focus("#panel-left")
    tab.keyboard.press("ArrowRight")
    first = tab.inner_text("#chosen")
    assert explorer.read_data(PAGE / "data/micro-0.js")["words"]["texts"][0][0] in first
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#chosen") != first
    tab.focus("#step")
    tab.keyboard.press("ArrowLeft")
    tab.wait_for_timeout(60)
    assert "step 3,600" in tab.inner_text("#when")
    assert tab.get_attribute("#step", "aria-valuetext") == tab.inner_text("#when")


@pytest.mark.ci
def test_a_finger_picks_the_word_beneath_it(opened):
    tab = opened(390, has_touch=True, is_mobile=True)
    view = explorer.read_model(PAGE / "data/micro-0.js").plane
    x, y = (view.points[-1, 0, 0] / view.extent + 1) / 2
    panel = tab.locator("#panel-left")
    panel.scroll_into_view_if_needed()
    box = panel.bounding_box()
    side = box["width"] - 20
    tab.touchscreen.tap(box["x"] + 10 + x * side, box["y"] + 10 + (1 - y) * side)
    tab.wait_for_timeout(60)
    assert re.search("[✓✗]", tab.inner_text("#chosen"))


@pytest.mark.ci
def test_a_sentence_of_ones_own_is_changed_as_the_models_read_it(opened):
    tab = opened()
    tab.fill("#sentence", "one two three")
    right = tab.inner_text("#reading-right").split()
    assert right.index("::three") < right.index("::two") < right.index("::one")
    tab.select_option("#right", "8 lang-pos;shift-special;no-random")
    tab.wait_for_function("document.getElementById('reading-right').innerText.includes('::[CLS]')")
    assert "64" in tab.inner_text("#reading-right") and "64" not in tab.inner_text("#reading-left")


@pytest.mark.ci
def test_playing_moves_to_the_end_and_stops(opened):
    tab = opened()
    set_step(tab, 15)
    tab.click("#play")
    assert tab.inner_text("#play") == "Stop"
    tab.wait_for_function("document.getElementById('play').textContent.startsWith('Play')")
    assert "100 %" in tab.inner_text("#when")


@pytest.mark.ci
def test_who_wants_no_motion_sees_checkpoints_alone(opened):
    tab = opened(reduced_motion="reduce")
    tab.click("#play")
    seen = set()
    for _ in range(15):
        seen.add(tab.evaluate("explore.state.at"))
        tab.wait_for_timeout(100)
    assert all(at == int(at) for at in seen)


@pytest.mark.ci
def test_a_dial_is_turned(opened):
    tab = opened()
    tab.select_option("#dial", label="word order")
    first = tab.inner_text("#spoken")
    tab.focus("#setting")
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#spoken") != first
    assert "µ" in tab.locator("#dials svg").get_attribute("aria-label")
    maps = called(PAGE / "data/dials-words.js", "dialWords")
    tab.select_option("#dial", label=explorer_dials.DIAL_TITLES["overlap"])
    tab.focus("#setting")
    seen = set()
    for share in ("0.25", "0.5", "0.75", "1"):
        tab.keyboard.press("ArrowRight")
        tau = maps[f"overlap | {share}"]["centred"]["score"][0]
        assert f"τ {tau:.2f}" in tab.inner_text("#dial-score-centred")
        seen.add(tab.evaluate("document.getElementById('dial-plane').toDataURL()"))
    assert len(seen) == 4, "the map changes with the dial"


@pytest.mark.ci
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_fault_of_accessibility(browser, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    tab = context.new_page()
    tab.goto((PAGE / "index.html").as_uri())
    tab.wait_for_function("document.querySelector('#score-right b')")
    serious = [
        f"{v['id']}: {node['target']} {node['failureSummary'][:200]}"
        for v in axe.run(tab).response["violations"]
        if v["impact"] in ("serious", "critical")
        for node in v["nodes"]
    ]
    context.close()
    assert serious == []


@pytest.mark.ci
def test_links_lead_to_files_of_the_clone(opened):
    tab = opened()
    named = "[data-notebook], [data-figure]"
    links = tab.eval_on_selector_all(named, "all => all.map(a => a.href)")
    assert len(links) > 2
    for link in links:
        assert Path(link.removeprefix("file://")).is_file(), link


def test_a_model_may_be_chosen_while_a_frame_is_due(opened):
    tab = opened()
    rows = [e["row"] for e in called(PAGE / "data/index.js", "index")]
    both = """row => {
        document.querySelector("input[name=view][value=centred]").click();
        const select = document.getElementById("right");
        select.value = row;
        select.dispatchEvent(new Event("change"));
    }"""
    tab.evaluate(both, rows[-1])
    tab.wait_for_timeout(300)


@pytest.mark.ci
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_real_encoder_beside_a_model(opened, side):
    tab = opened()
    rows = [e["row"] for e in called(PAGE / "data/index.js", "index") if "encoder" in e["file"]]
    for row in rows:
        tab.select_option(f"#{side}", row)
        tab.wait_for_function(f"document.getElementById('{side}').value === {row!r}")
        tab.wait_for_timeout(200)
        for box in ("items][value=sentences", "view][value=centred", "layer][value='1'"):
            tab.check(f"input[name={box}]")
        set_step(tab, 3)
        assert tab.inner_text(f"#score-{side}").startswith("τ")
        tab.check("input[name=items][value=words]")
        tab.focus(f"#panel-{side}")
        tab.keyboard.press("ArrowRight")
        assert re.search("[✓✗]", tab.inner_text("#chosen"))
