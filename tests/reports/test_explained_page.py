"""The page of `gpulab explain` in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import Browser
from browser import browser as browser
from selenium.webdriver.common.keys import Keys
from test_pages_in_browser import IDS, contrast, repeated

from pytest_gpulab.command import main
from pytest_gpulab.devices import open_device
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise
from pytest_gpulab.grading.correctness.requests import Request
from pytest_gpulab.grading.explanation.drawing import Subject, drawn
from pytest_gpulab.grading.explanation.figure import Figure
from pytest_gpulab.reports.gradebook import Drawing, Drawings
from pytest_gpulab.reports.pages.dataflow import _lines_of, dataflow_svg
from pytest_gpulab.reports.pages.explained_page import Explained, page, section

ROOT = Path(__file__).resolve().parents[2]
RIGHT = ROOT / "solutions" / "reduction" / "08_shared_sequential.cu"


def page_of(path: str, folder: Path, *words: str) -> Path:
    page = folder / "page.html"
    main.main(["explain", str(ROOT / path), *words, "--exercises", str(ROOT / "exercises"), "--output", str(page)])
    return page


def figures_of(path: Path) -> tuple[Figure, ...]:
    """Return the figures of a right submission of the reduction."""
    loaded, (device, _) = Catalogue(ROOT / "exercises").load("reduction"), open_device("sim")
    assert isinstance(loaded, LoadedExercise)
    return drawn(Subject(loaded, path, device, 1, None), Request()).figures


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of("solutions/reduction/08_shared_sequential.cu", tmp_path_factory.mktemp("tree"))


def shown(browser: Browser) -> tuple[int, int, str]:
    """Return the number of rows shown, the highlighted source line, and the caption."""
    rows = browser.run("return document.querySelectorAll('.row:not(.later)').length")
    line = browser.run("return Number((document.querySelector('.source .now') || {dataset: {line: 0}}).dataset.line)")
    return rows, line, browser.run("return document.querySelector('output').textContent")


def test_the_page_asks_for_nothing_and_complains_of_nothing(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    assert browser.requests() == [] and browser.console() == []
    assert tree.stat().st_size < 2_000_000
    assert shown(browser)[:2] == (8, 23)


def test_keys_buttons_and_the_slider_step(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    browser.run("document.querySelector('section.figure button').focus()")
    browser.press(Keys.ARROW_LEFT)
    assert shown(browser) == (7, 19, "tile, step 5, stride = 1: line 19: 1 of 32 threads write")
    back, further = browser.find("section.figure button")
    back.click()
    assert shown(browser)[0] == 6
    further.click()
    assert shown(browser)[0] == 7
    browser.run("const s = document.querySelector('input'); s.value = 1; s.dispatchEvent(new Event('input'))")
    assert shown(browser) == (2, 15, "tile, step 0: line 15: 32 of 32 threads write")


def test_the_words_of_a_step_have_a_line_of_their_own(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    boxes = "['.steps button', '.steps output'].map(each => document.querySelector(each).getBoundingClientRect())"
    button, words = browser.run(f"return {boxes}.map(box => [box.left, box.top, box.bottom])")
    assert words[0] == button[0] and words[1] >= button[2]


def test_hovering_names_thread_and_line(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    titles = browser.run("return [...document.querySelectorAll('.written title')].map(each => each.textContent)")
    assert "tile[3] = 36, written by thread 3 in line 19" not in titles
    assert "tile[3] = 144, written by thread 3 in line 19" in titles


def test_everything_is_shown_without_scripts_and_on_paper(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    browser.tell("Emulation.setScriptExecutionDisabled", value=True)
    browser.driver.refresh()
    assert not browser.find(".row.later") and len(browser.find(".row")) == 8
    browser.tell("Emulation.setScriptExecutionDisabled", value=False)
    browser.driver.refresh()
    browser.run("const s = document.querySelector('input'); s.value = 0; s.dispatchEvent(new Event('input'))")
    browser.emulate("print", "light")
    opacity = "return [...document.querySelectorAll('.row')].map(each => getComputedStyle(each).opacity)"
    assert set(browser.run(opacity)) == {"1"}


def test_colours_follow_the_scheme(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    fill = "return getComputedStyle(document.querySelector('.written use')).fill"
    light = browser.run(fill)
    browser.emulate("", "dark")
    assert browser.run(fill) != light


def test_mistakes_are_marked_in_the_figure(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of("tests/wrong/reduction/guard_off_by_one.cu", tmp_path))
    (line,) = browser.find(".source .wrong")
    assert "in[i]" in line.text
    assert len(browser.find(".bad .beyond")) == 1
    assert "`in[1]` read" in browser.find(".marks")[0].text
    browser.open(page_of("tests/wrong/reduction/missing_barrier.cu", tmp_path))
    assert len(browser.find(".no-barrier")) >= 2 and browser.find(".bad use")


def test_barriers_that_not_all_threads_reach_are_marked(browser: Browser, tmp_path: Path) -> None:
    """Also for screen readers, and in the order of the steps."""
    page = page_of("tests/wrong/reduction/barrier_in_thread_loop.cu", tmp_path, "--in", "0")
    browser.open(page)
    assert len(browser.find(".missed")) == 5 and len(browser.find("ul.marks li")) == 5
    assert [each.text for each in browser.find(".missed .absent-id")][:16] == [str(t) for t in range(16, 32)]
    back = browser.find("section.figure button")[0]
    for _ in range(4):
        back.click()
    assert len(browser.find(".missed:not(.later)")) == 2
    words = "threads 8 to 31 do not reach the barrier in line 16"
    assert shown(browser)[2] == f"tile, step 2, stride = 8: line 15: 8 of 32 threads write; {words}"
    assert words in browser.run("return document.querySelector('.flow desc').textContent")


def test_each_section_of_a_page_has_its_own_source_and_steps(browser: Browser, tmp_path: Path) -> None:
    figures = figures_of(RIGHT)
    sections = [
        Drawing("a.cu", "", place, place, str(section(Explained(place, [], [], "// line\n" * 30, figures), place, 2)))
        for place in ("one", "two")
    ]
    path = tmp_path / "all.html"
    path.write_text(page(Drawings(path, tuple(sections), ("b.cu: correct[n=1] (too large)",))))
    browser.open(path, "#two")
    assert browser.console() == [] and "b.cu: correct[n=1] (too large)" in browser.find("header")[0].text
    assert len(browser.find("nav a")) == 2
    browser.find("#two section.figure button")[0].click()
    lines = "return [...document.querySelectorAll('.source .now')].map(each => each.dataset.line)"
    assert browser.run(lines) == ["23", "19"]
    assert browser.run("return document.querySelectorAll('#one .row.later').length") == 0


def test_the_figures_of_several_blocks_are_below_each_other(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of("tests/wrong/scan/offset_of_own_block.cu", tmp_path))
    boxes = "[...document.querySelectorAll('section.figure')].map(each => each.getBoundingClientRect())"
    found = browser.run(f"return {boxes}.map(box => [box.left, box.width])")
    names = browser.run("return [...document.querySelectorAll('[role=region]')].map(each => each.ariaLabel)")
    assert len(set(names)) == len(names) > 5
    assert repeated(browser, IDS) == []
    assert (
        browser.find(".source .now")[0].text.strip() == "block_sums[blockIdx.x] = sums[thread];"
    )  # of the first figure
    assert len(found) == 5 and len({left for left, _ in found}) == 1 and min(width for _, width in found) > 600


NAMED = {"button", "slider", "region", "image", "DisclosureTriangle", "columnheader"}
"""Roles with a name that a screen reader says."""


def test_controls_and_figures_have_names_for_screen_readers(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    browser.tell("Accessibility.enable")
    nodes = [node for node in browser.tell("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if "role" in node]
    assert {"button", "slider", "region", "image"} <= {role for role, _ in named}
    assert [role for role, name in named if role in NAMED and not name.strip()] == []


def test_text_in_figures_has_contrast(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    for scheme in ("light", "dark"):
        browser.emulate("", scheme)
        style = "const of = name => getComputedStyle(document.querySelector('.flow')).getPropertyValue(name).trim();"
        ink, soft, paper = browser.run(f"{style} return ['--ink', '--soft', '--paper'].map(of)")
        assert contrast(ink, paper) > 7 and contrast(soft, paper) > 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_number_of_the_current_line_has_contrast(browser: Browser, tree: Path, scheme: str) -> None:
    browser.open(tree)
    browser.emulate("", scheme)
    colours = "getComputedStyle(document.querySelector('.source .now'), '::marker').color, "
    colours += "getComputedStyle(document.body).backgroundColor"
    found = [re.findall(r"\d+", colour) for colour in browser.run(f"return [{colours}]")]
    assert contrast(*("#" + "".join(f"{int(channel):02x}" for channel in channels) for channels in found)) > 7


def test_a_narrow_screen_shows_the_input_and_the_current_line(browser: Browser, tmp_path: Path) -> None:
    words = ("--in", "1000000,-1*9,2000000,-2*9")
    browser.open(page_of("solutions/reduction/10_shuffle_unroll8.cu", tmp_path, *words))
    browser.tell("Emulation.setDeviceMetricsOverride", width=360, height=800, deviceScaleFactor=1, mobile=False)
    browser.driver.refresh()
    assert browser.run("return document.documentElement.scrollWidth") <= 360
    boxes = browser.run(
        "return ['.source', '.source .now'].map(each => document.querySelector(each).getBoundingClientRect())"
    )
    assert boxes[0]["top"] <= boxes[1]["top"] and boxes[1]["bottom"] <= boxes[0]["bottom"]


def test_printed_figures_are_as_wide_as_the_paper(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    browser.emulate("print", "light")
    assert browser.run("return document.documentElement.scrollWidth") <= 1200


@pytest.mark.parametrize("name", ["misaligned_vector", "recursion_without_end"])
def test_long_labels_are_wrapped(browser: Browser, tmp_path: Path, name: str) -> None:
    browser.open(page_of(f"tests/wrong/reduction/{name}.cu", tmp_path))
    lines = browser.run(
        "const right = each => each.closest('svg').parentElement.getBoundingClientRect().right;"
        "return [...document.querySelectorAll('.flow .bad-text tspan')]"
        ".map(each => [each.textContent, each.getBoundingClientRect().right <= right(each)])"
    )
    said = browser.run("return document.querySelector('ul.marks li').textContent")
    assert len(lines) > 1 and all(is_inside for _, is_inside in lines)
    assert " ".join(text for text, _ in lines).startswith(said)


def test_arrows_are_below_the_cells_that_they_pass(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    assert browser.run("return [...document.querySelectorAll('section .flow > g')].map(each => each.classList[0])") == [
        *["arrow"] * 7,
        *["row"] * 8,
    ]
    browser.run("const s = document.querySelector('input'); s.value = 3; s.dispatchEvent(new Event('input'))")
    assert len(browser.find(".arrow:not(.later)")) == 3


def test_long_values_stay_in_their_cells(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of("tests/wrong/reduction/missing_barrier.cu", tmp_path))
    widths = "return [...document.querySelectorAll('.written text')].map(each => each.getBBox().width)"
    assert 20 < max(browser.run(widths)) <= 32


def test_values_in_a_grid_stay_in_their_cells(browser: Browser, tmp_path: Path) -> None:
    words = ("--size", "6x3", "--in", "0.806478977,-123456789,1e-30*16")
    browser.open(page_of("solutions/transpose/02_padded_tile.cu", tmp_path, *words))
    boxes = """const box = each => [each.getBBox().x, each.getBBox().x + each.getBBox().width];
      return [...document.querySelectorAll('.row g > use')].map(each => [box(each),
        box(each.parentNode.querySelector('text'))])"""
    found = browser.run(boxes)
    assert found and all(cell[0] <= text[0] and text[1] <= cell[1] for cell, text in found)
    assert {"0.8065", "-1.2e8", "1e-30"} <= {each.text for each in browser.find(".row g > text")}


def test_marked_elements_of_a_long_array_are_drawn(tmp_path: Path) -> None:
    """No thread of the block uses this one."""
    source = (ROOT / "exercises" / "divergence" / "naive.cu").read_text()
    path = tmp_path / "divergence" / "divergence.cu"
    path.parent.mkdir()
    path.write_text(
        source.replace("path1(in[i])", "path1(in[threadIdx.x])").replace("BLOCK_SIZE, 256", "BLOCK_SIZE, 32")
    )
    page = page_of(str(path), tmp_path, "--case", "two-way n=31", "--n", "66").read_text()
    assert "in[65] reaches no output" in page and "<title>in[65] = " in page


def test_a_figure_of_its_own_has_no_hover_texts() -> None:
    figure = figures_of(RIGHT)[0]
    assert dataflow_svg(figure).count("<title>") > 100 > dataflow_svg(figure, is_alone=True).count("<title>") == 1


def test_captions_are_above_their_rows_on_a_phone(browser: Browser, tree: Path) -> None:
    browser.open(tree)
    browser.tell("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=False)
    shown = browser.run(
        "const seen = each => getComputedStyle(each).display !== 'none';"
        "return ['.side .caption', '.above'].map(each => [...document.querySelectorAll(each)].filter(seen).length)"
    )
    assert shown == [0, 8]
    boxes = browser.run(
        "return [...document.querySelectorAll('.above')].map(each => [each, each.closest('svg').parentElement,"
        " each.closest('.row').querySelector('use')].map(box => box.getBoundingClientRect()))"
    )
    for caption, region, cell in boxes:
        assert region["left"] <= caption["left"] and caption["right"] <= region["right"]
        assert caption["bottom"] <= cell["top"]


def test_a_mark_outside_the_window_is_scrolled_to_and_captions_stay(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of("tests/wrong/stencil/no_halo.cu", tmp_path))
    mark, label, caption, region = browser.run(
        "const figure = document.querySelector('.bad').closest('.scroll');"
        "return [...['.bad', '.bad-text', '.side'].map(each => figure.querySelector(each)), figure]"
        ".map(each => each.getBoundingClientRect())"
    )
    assert all(region["left"] <= box["left"] and box["right"] <= region["right"] for box in (mark, label, caption))
    assert abs(label["left"] - mark["left"]) < 64


def test_labels_have_lines_of_like_length() -> None:
    assert _lines_of("") == []
    assert _lines_of("threads 1 to 31 do not reach the barrier in line 15") == [
        "threads 1 to 31 do not reach",
        "the barrier in line 15",
    ]


def test_of_too_many_arrows_those_to_the_first_element_are_drawn(tmp_path: Path) -> None:
    page = page_of("tests/wrong/stencil/no_halo.cu", tmp_path).read_text()
    ends = [re.findall(r"([\d.]+) [\d.]+\"/>", each) for each in re.findall(r'class="arrow".*?</g>', page)]
    assert [len(set(of)) for of in ends] == [1] * len(ends) and ends


@pytest.mark.parametrize("width", [1280, 400])
def test_open_details_are_as_wide_as_the_window(browser: Browser, tree: Path, width: int) -> None:
    browser.open(tree)
    browser.tell("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert browser.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_ground_of_captions_is_that_of_the_page(browser: Browser, tree: Path, scheme: str) -> None:
    browser.open(tree)
    browser.emulate("screen", scheme)
    ground, page = browser.run(
        "return [getComputedStyle(document.querySelector('.under')).fill,"
        " getComputedStyle(document.body).backgroundColor]"
    )
    assert ground == page
