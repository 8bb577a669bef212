"""The pages in a real browser: with keys alone, on paper, in the dark, without scripts, and against hostile text."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from browser import Browser
from browser import browser as browser
from generated_class import PROVENANCE, Made, add
from selenium.webdriver.common.keys import Keys
from test_instructor_page import EVENING, hostile_book

from pytest_gpulab.grading.grade import CheckResult, Grade
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.instructor.page import page
from pytest_gpulab.reports.pages import feedback
from pytest_gpulab.reports.pages.annotated_html import LISTING_STYLE

CONTROLS = "a[href], button, input, summary, [tabindex='0'], svg[role=img]"
IDS = "[...document.querySelectorAll('[id]')].map(each => each.id)"
LANDMARKS = """[...document.querySelectorAll('[role=region], section[aria-labelledby], nav')]
  .filter(each => each.checkVisibility())
  .map(each => each.ariaLabel || document.getElementById(each.getAttribute('aria-labelledby')).textContent)"""
NAMES = "return [...document.querySelectorAll('#students tbody.unit:not([hidden]) > tr:first-child > th')]"
NAMES += ".map(each => each.textContent)"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("class") / "report.html"
    path.write_text(page(Made(36).gradebook(), EVENING), encoding="utf-8")
    return path


def repeated(browser: Browser, texts: str) -> list[str]:
    """Return those of a script's texts that are there more than once."""
    found = browser.run(f"return {texts}")
    assert len(found) > 3
    return [text for text, count in Counter(found).items() if count > 1]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "report.html").write_text(page(hostile_book(), EVENING), encoding="utf-8")
    feedback.write(folder / "feedback", hostile_book(), Context(finished=EVENING))
    return folder


def focus(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector({selector!r}).focus()")


def column(browser: Browser, number: int) -> list[str]:
    cells = f"#students tbody.unit > tr:first-child > :nth-child({number})"
    return [
        str(text) for text in browser.run(f"return [...document.querySelectorAll({cells!r})].map(x => x.innerText)")
    ]


def test_the_tests_see_what_a_page_asks_for_and_complains_about(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "loads.html").write_text("<img src='http://127.0.0.1:9/x.png'><script>oops()</script>")
    browser.open(tmp_path / "loads.html")
    assert browser.requests() == ["http://127.0.0.1:9/x.png"]
    assert any("oops" in line for line in browser.console())


def test_the_report_opens_without_a_request_or_a_complaint(browser: Browser, report: Path) -> None:
    browser.open(report)
    for button in browser.find("#students .row-button")[:3]:
        button.click()
    assert browser.find("details.student .listing")
    assert browser.requests() == [] and browser.console() == []


def test_a_column_is_sorted_with_the_keyboard(browser: Browser, report: Path) -> None:
    browser.open(report)
    names = browser.run(NAMES)
    focus(browser, "#students thead th:nth-child(1) button")
    browser.press(Keys.ENTER)
    assert browser.find("#students th[aria-sort]")[0].get_attribute("aria-sort") == "ascending"
    ascending = browser.run(NAMES)
    assert sorted(names) == sorted(ascending) and ascending[0].startswith("Ada") and ascending != names
    browser.press(Keys.SPACE)  # the focus has stayed on the button
    assert browser.find("#students th[aria-sort]")[0].get_attribute("aria-sort") == "descending"
    assert browser.run(NAMES) == ascending[::-1]


def test_points_are_sorted_as_numbers_and_missing_ones_are_last(browser: Browser, report: Path) -> None:
    browser.open(report)
    for order in ("ascending", "descending"):
        focus(browser, "#students thead th:nth-child(8) button")
        browser.press(Keys.ENTER)
        shares = [int(text.removesuffix(" %")) for text in column(browser, 8) if text.endswith("%")]
        assert len(shares) > 20 and shares == sorted(shares, reverse=order == "descending")
        assert column(browser, 7)[-2:] == ["absent", "absent"]
        assert len(browser.find("#students th[aria-sort]")) == 1


def test_a_search_shows_the_matches_and_their_number(browser: Browser, report: Path) -> None:
    browser.open(report)
    status = browser.find("#search-count")[0]
    assert status.get_attribute("role") == "status" and status.text == "36 of 36 shown"
    focus(browser, "#search")
    browser.press("compile-error")
    shown = browser.run(NAMES)
    assert 0 < len(shown) < 36 and status.text == f"{len(shown)} of 36 shown"
    browser.press(Keys.CONTROL + "a")
    browser.press("ADA becker")
    assert browser.run(NAMES) == ["Ada Becker"]
    browser.press(Keys.CONTROL + "a")
    browser.press(Keys.DELETE)
    assert status.text == "36 of 36 shown"


def test_a_row_opens_and_closes_with_the_keyboard(browser: Browser, report: Path) -> None:
    browser.open(report)
    button = browser.find("#students .row-button")[1]
    more = browser.find(f"#{button.get_attribute('aria-controls')}")[0]
    assert (button.get_attribute("aria-expanded"), more.is_displayed()) == ("false", False)
    browser.run("document.querySelectorAll('#students .row-button')[1].focus()")
    browser.press(Keys.ENTER)
    assert (button.get_attribute("aria-expanded"), more.is_displayed()) == ("true", True)
    assert "points" in more.text and "Measurements" in more.text
    source = more.find_element("css selector", "details.student details")
    assert not source.find_element("css selector", ".listing").is_displayed()
    source.find_element("css selector", "summary").send_keys(Keys.ENTER)
    assert "GPULAB_TUNABLE(BLOCK_SIZE, 256)" in source.text
    browser.run("document.querySelectorAll('#students .row-button')[1].focus()")
    browser.press(Keys.SPACE)
    assert (button.get_attribute("aria-expanded"), more.is_displayed()) == ("false", False)


def test_a_flag_leads_to_the_student(browser: Browser, report: Path) -> None:
    browser.open(report)
    link = browser.find("section[aria-labelledby=review] th a")[0]
    name = link.text
    focus(browser, "#search")
    browser.press("nobody is called so")
    assert browser.run(NAMES) == []
    link.send_keys(Keys.ENTER)
    browser.wait(f"return document.activeElement.textContent === {name!r}")
    assert len(browser.run(NAMES)) == 36
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "true"


def test_the_first_key_leads_past_the_links(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.find("body")[0].send_keys(Keys.TAB)
    assert browser.run("return document.activeElement.textContent") == "Skip to the report"
    assert browser.run("return document.activeElement.getBoundingClientRect().left") >= 0
    outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    browser.press(Keys.ENTER)
    assert browser.run("return location.hash") == "#main"


def test_everything_that_can_be_used_or_looked_at_has_a_name(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.find("#students .row-button")[1].click()
    controls = [element for element in browser.find(CONTROLS) if element.is_displayed()]
    assert len(controls) > 80
    assert [element.get_attribute("outerHTML")[:80] for element in controls if not element.accessible_name] == []
    assert [each.accessible_name for each in browser.find("#students thead button")][:3] == [
        "student",
        "id",
        "constant_memory",
    ]
    assert browser.find("#students .row-button")[1].accessible_name == "Ada Becker"
    roles = {element.aria_role for element in browser.find("#search, #search-count, main, nav, #students .row-button")}
    assert roles == {"searchbox", "status", "main", "navigation", "button"}
    levels = browser.run("return [...document.querySelectorAll('h1,h2,h3,h4')].map(x => +x.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1
    assert max(np.diff(levels)) == 1  # no level is left out
    assert repeated(browser, LANDMARKS) == repeated(browser, IDS) == []
    assert browser.run("return document.documentElement.lang") == "en"


def test_without_scripts_everything_can_be_read(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.tell("Emulation.setScriptExecutionDisabled", value=True)
    browser.driver.get(report.as_uri() + "?again")
    shown = browser.find("details.student")
    assert len(shown) == 34 and shown[1].find_element("css selector", "summary").text.startswith("Findings, measure")
    shown[1].find_element("css selector", "summary").click()
    assert "Measurements" in shown[1].text
    assert not browser.find("#search")[0].is_displayed() and browser.find("#students button") == []


def test_a_dark_screen_gets_dark_pages_and_paper_never(browser: Browser, report: Path) -> None:
    browser.open(report)
    colours = """const of = selector => getComputedStyle(document.querySelector(selector));
        return [of('body').backgroundColor, of('body').color, of('svg text').fill]"""
    light = browser.run(colours)
    browser.emulate("", "dark")
    dark = browser.run(colours)
    browser.emulate("print", "dark")
    assert browser.run(colours) == light == ["rgb(255, 255, 255)", "rgb(27, 30, 35)", "rgb(27, 30, 35)"]
    assert dark == ["rgb(21, 24, 28)", "rgb(230, 232, 235)", "rgb(230, 232, 235)"]
    assert not browser.find("nav")[0].is_displayed() and not browser.find("#search")[0].is_displayed()


def test_the_report_can_be_printed(browser: Browser, report: Path) -> None:
    browser.open(report)
    closed = browser.pdf()
    browser.find("#students .row-button")[1].click()
    opened = browser.pdf()
    assert closed.startswith(b"%PDF-") and 4 <= pages_of(closed) <= 12
    assert pages_of(opened) > pages_of(closed)
    browser.emulate("print", "light")
    assert browser.run("return document.querySelector('table.rates').getBoundingClientRect().height") > 0
    heads = "return [...document.querySelectorAll('thead button')].map(each => getComputedStyle(each).display)"
    assert set(browser.run(heads)) == {"contents"}  # else a table's second page has a head without words


def pages_of(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_screen_is_wide_enough(browser: Browser, report: Path, width: int) -> None:
    browser.open(report)
    browser.tell("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    browser.find("#students .row-button")[1].click()
    assert browser.run("return document.documentElement.scrollWidth") <= width
    right = browser.run("return document.querySelector('details.student').getBoundingClientRect().right")
    assert right <= width
    browser.find("details.student details > summary")[0].click()
    assert width_of(browser, "details.student .listing td") > 200
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_no_table_scrolls_on_a_wide_screen(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.tell("Emulation.setDeviceMetricsOverride", width=1100, height=800, deviceScaleFactor=1, mobile=False)
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    wide = "[...document.querySelectorAll('.scroll')].filter(each => each.scrollWidth > each.clientWidth)"
    assert browser.run(f"return {wide}.map(each => each.innerText.slice(0, 60))") == []


def test_long_names_stay_above_their_sources(browser: Browser, tmp_path: Path) -> None:
    book = Made(40).gradebook()
    book.sources = dict.fromkeys(book.duplicates[0].submissions, "int a;\n")
    (tmp_path / "report.html").write_text(page(book, EVENING), encoding="utf-8")
    browser.open(tmp_path / "report.html")
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    headers = "[...document.querySelectorAll('.compared th.l')]"
    browser.run(f"{headers}.forEach(each => {{ each.textContent = 'a_long_name'.repeat(9); }})")
    assert browser.run(f"return {headers}.map(each => each.scrollWidth <= each.clientWidth)") == [True, True]


def width_of(browser: Browser, selector: str) -> float:
    return float(browser.run(f"return document.querySelector({selector!r}).getBoundingClientRect().width"))


def test_a_bar_is_as_long_as_its_share(browser: Browser, tmp_path: Path) -> None:
    names = ("all", "half", "none")
    book = Gradebook()
    for student in range(2):
        passes = {"all": True, "half": student == 0, "none": False}
        checks = tuple(CheckResult(name, "correct", "passed" if passes[name] else "failed", 0, 1) for name in names)
        add(book, Grade(f"class/s{student}/scan.cu", "scan", checks, PROVENANCE, f"s{student}"))
    (tmp_path / "report.html").write_text(page(book, EVENING), encoding="utf-8")
    browser.open(tmp_path / "report.html")
    browser.find("#checks ~ details > summary")[0].click()
    widths = "const rows = [...document.querySelectorAll('details .rate')];"
    widths += "return rows.map(bar => bar.firstChild.getBoundingClientRect().width / bar.clientWidth)"
    assert browser.run(widths) == pytest.approx([1.0, 0.5, 0.0], abs=0.02)


def test_hostile_text_runs_nothing(browser: Browser, hostile: Path) -> None:
    pages = [hostile / "report.html", *(hostile / "feedback").iterdir()]
    assert len(pages) == 2
    for path in pages:
        browser.open(path)
        for button in browser.find(".row-button"):
            button.click()
        assert browser.find("img") == [] and len(browser.find("script")) == (path.name == "report.html")
        assert "<img src=x onerror=alert(1)>" in browser.find("h1, #students")[-1].text
        assert browser.requests() == [] and browser.console() == []


def test_a_students_page_stands_alone(browser: Browser, tmp_path: Path) -> None:
    feedback.write(tmp_path, Made(3).gradebook(), Context(finished=EVENING))
    browser.open(tmp_path / "s101.html")
    assert browser.find("h1")[0].text == "Feedback for Ada Becker"
    assert [each for each in browser.find(CONTROLS) if each.is_displayed() and not each.accessible_name] == []
    assert browser.requests() == [] and browser.console() == []


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def colours_of(scheme: int) -> dict[str, str]:
    """Return the light page's colours by name, or the dark one's."""
    style = (Path(feedback.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
    block = re.findall(r":root \{([^}]*)\}", style)[scheme]
    return {
        name: colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])
        for name, colour in re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})\b", block)
    }


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_has_contrast_in_both_schemes(scheme: int) -> None:
    colours = colours_of(scheme)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for name in ("ink", "muted", "accent", "good", "bad", "warn"):
        assert min(contrast(colours[name], colours[back]) for back in ("paper", "panel")) >= 4.5, name
    for name in (f"series-{number}" for number in range(1, 7)):
        assert contrast(colours[name], colours["paper"]) >= 3, name


@pytest.mark.parametrize("scheme", [0, 1])
def test_source_can_be_read_on_its_bar(scheme: int) -> None:
    bar, paper = re.findall(r"--bar: #(\w{8})", LISTING_STYLE)[scheme], colours_of(scheme)["paper"]
    share = int(bar[6:], 16) / 255
    mixed = [share * int(bar[at : at + 2], 16) + (1 - share) * int(paper[at + 1 : at + 3], 16) for at in (0, 2, 4)]
    behind = "#" + "".join(f"{round(channel):02x}" for channel in mixed)
    assert contrast(colours_of(scheme)["ink"], behind) >= 4.5
