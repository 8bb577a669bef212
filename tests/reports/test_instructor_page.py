"""The instructor's report as a file: strict, the same for the same grades, and safe whatever students write."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest
from any_grades import PROVENANCE, class_books
from generated_class import Made, add
from hypothesis import HealthCheck, given, settings
from without_plots import no_plots as no_plots

from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Measurement, Student
from pytest_gpulab.grading.listing import ListedFile, ListedHazard, ListedLine, Listing
from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.gradebook import Gradebook, SimilarPair, result_properties
from pytest_gpulab.reports.instructor import page as instructor_page
from pytest_gpulab.reports.instructor.page import page, provenances

pytestmark = pytest.mark.unit

EVENING = datetime(2026, 5, 1, 18, 30, tzinfo=timezone.utc)
FEW = Made(6, exercises=("scan",))
FEW_WITHOUT_PROBLEMS = replace(FEW.gradebook(), problems=(), ungraded={})
HOSTILE = "</script></noscript></title><img src=x onerror=alert(1)>{{ 7*7 }}$x$&amp;\u202e\x1b[2J\ud800\"'"
VOID = {"meta", "input", "br", "img", "link"}


class Page(HTMLParser):
    """The tags of a page with their attributes, and the texts of its elements; every tag must be closed but listings'.

    What stands in `noscript` is read as browsers do that run no script.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("tr", "td", "th"):
            while self.open[-1] in ("td", "th") or (tag == "tr" and self.open[-1] == "tr"):
                self.open.pop()
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        while tag in ("thead", "tbody", "table", "tr") and self.open[-1] in ("td", "th", "tr") and self.open[-1] != tag:
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


def hostile_book() -> Gradebook:
    """A class in which whatever a student can choose holds markup."""
    where = Finding(HOSTILE, HOSTILE, f"{HOSTILE}:3", (HOSTILE, f"{HOSTILE}\n{HOSTILE}"), HOSTILE)
    lines = (ListedLine(1, HOSTILE, {"gpulab__time_share.pct": 50.0}), ListedLine(2, HOSTILE), ListedLine(3, ""))
    hazard = ListedHazard(HOSTILE, 2, HOSTILE)
    listing = Listing(HOSTILE, HOSTILE, HOSTILE, 1.0, (ListedFile(HOSTILE, lines),), (hazard,), HOSTILE)
    timed = Measurement(
        HOSTILE, 0.5, 1.0, 2.0, 2.0, False, 100.0, 1.0, 16, HOSTILE, HOSTILE, 1.9, 2.1, shared_with=(HOSTILE,),
        peak_bandwidth_gb_s=4800.0,
    )  # fmt: skip
    checks = (
        CheckResult(f"correct[{HOSTILE}]", "correct", "failed", 0, 10, (where,), printed=HOSTILE),
        CheckResult(f"speedup[2x {HOSTILE}]", "speedup", "passed", 10, 10, (), timed, listing=listing),
    )
    provenance = replace(
        Made(1).gradebook().grades[0].provenance, device=HOSTILE, compiler=HOSTILE, details={HOSTILE: HOSTILE}
    )
    student = Student(HOSTILE, HOSTILE)
    book = Gradebook(
        roster=(student,), absent=(Student(f"2{HOSTILE}", HOSTILE),), problems=(HOSTILE,), changes=(HOSTILE,)
    )
    for name in ("a", "b"):
        add(book, Grade(f"{name}/{HOSTILE}.cu", HOSTILE, checks, provenance, HOSTILE))
    book.duplicates = (SimilarPair(HOSTILE, (f"a/{HOSTILE}.cu", HOSTILE), 0.9),)
    book.ungraded[HOSTILE] = where
    book.owners[HOSTILE] = HOSTILE
    return book


@pytest.fixture(scope="module")
def text() -> str:
    return page(Made(40).gradebook(), EVENING)


def test_the_same_grades_give_the_same_bytes_but_for_the_time() -> None:
    first, later = (page(FEW.gradebook(), EVENING + timedelta(hours=hours)) for hours in (0, 1))
    assert later != first
    assert later.replace("19:30 UTC", "18:30 UTC") == first


@pytest.mark.unmeasured
def test_a_strict_policy_allows_one_style_and_one_script_by_their_hashes(text: str) -> None:
    found = Page(text)
    policy = next(attrs["content"] for tag, attrs in found.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    (style,), (script,) = found.texts["style"], found.texts["script"]
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (style, script)
    )
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'"
    )
    names = {name for _, attrs in found.tags for name in attrs}
    assert not names & {"style", "src", "srcset", "onclick", "onerror", "action"}
    assert all((attrs.get("href") or "#").startswith("#") for _, attrs in found.tags)
    assert re.findall(r"https?://(?!www\.w3\.org/(?:2000/svg|1999/xlink))", text) == []


def test_ids_are_unique_and_links_lead_somewhere(text: str) -> None:
    found = Page(text)
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    wanted = {(attrs["href"] or "")[1:] for _, attrs in found.tags if "href" in attrs}
    wanted |= {name for _, attrs in found.tags for name in (attrs.get("aria-labelledby") or "").split()}
    wanted |= {name for value in re.findall(r"url\(#([^)]+)\)", text) for name in [value]}
    assert wanted - {""} <= set(ids)


def test_tables_and_figures_are_accessible_to_screen_readers(text: str) -> None:
    found = Page(text)
    tables = sum(tag == "table" for tag, _ in found.tags)
    assert tables > 5 and tables == len(found.texts["caption"]) and all(map(str.strip, found.texts["caption"]))
    assert {attrs.get("scope") for tag, attrs in found.tags if tag == "th"} == {"col", "row"}
    figures = [attrs for tag, attrs in found.tags if tag == "svg"]
    assert figures and all(attrs["role"] == "img" and attrs["aria-labelledby"] for attrs in figures)
    assert len(found.texts["desc"]) == len(figures) and all(
        "%" in each or "reach" in each for each in found.texts["desc"]
    )
    assert ">n = 36</text>" in text  # text in figures stays text


def test_text_of_students_is_shown_and_never_executed() -> None:
    text = page(hostile_book(), EVENING)
    found = Page(text)
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert len(found.texts["script"]) == 1 and len(found.texts["title"]) >= 1
    assert "49" not in "".join(re.findall(r"onerror=alert\(1\)&gt;(.{2})", text))
    assert "\u202e" not in text and "\x1b" not in text and "\ud800" not in text
    shown = "</script></noscript></title><img src=x onerror=alert(1)>{{ 7*7 }}$x$&amp;??[2J?\"'"
    for tag in ("h3", "th", "td", "pre", "caption", "li", "dt", "dd", "summary", "desc", "p", "strong"):
        assert any(shown in each for each in found.texts[tag]), tag
    assert any(each.startswith("</script></noscri") for each in found.texts["text"])
    assert any(shown in (attrs.get("data-words") or "") for _, attrs in found.tags)


def test_without_grades_the_report_says_so() -> None:
    text = page(Gradebook(), EVENING)
    Page(text)
    assert "Grades of 0 submissions" in text and "<svg" not in text
    assert text.count("Nothing could be graded.") == 3 and "was passed" not in text
    assert "Nothing graded. Written 2026-05-01 18:30 UTC by pytest-gpulab.</p>" in text


@pytest.mark.usefixtures("no_plots")
def test_problems_with_files_are_announced_at_the_review(text: str) -> None:
    told = '<p>See also <a href="#handed-in">what was handed in</a>: 2 problems, 1 file not graded at all.</p>'
    assert told in text and "See also" not in page(FEW_WITHOUT_PROBLEMS, EVENING)


@pytest.mark.usefixtures("no_plots")
def test_a_stopped_run_is_marked(text: str) -> None:
    assert "The run was stopped" not in text
    assert "The run was stopped" in page(FEW.gradebook(), EVENING, interrupted=True)


def test_many_flags_of_a_kind_wait_behind_a_line(text: str) -> None:
    (number,) = re.findall(r"<h3>Borderline \((\d+)\)", text)
    (borderline,) = re.findall(r"<h3>Borderline.*?</details>", text, re.DOTALL)
    at_once, later = borderline.split(f"<summary>{int(number) - 12} more</summary>")
    assert at_once.count('<th scope="row">') == 12 and later.count('<th scope="row">') == int(number) - 12
    assert "<h3>Near-identical sources (1)" in text and text.count(" more</summary>") == 1


@pytest.mark.usefixtures("no_plots")
def test_a_flag_says_where_sources_are_alike_with_a_few_pairs_at_most() -> None:
    book = FEW.gradebook()
    pair = SimilarPair("scan", ("class/s100/scan.cu", "class/s101/scan.cu"), 0.97, (((3, 20),), ((4, 21),)))
    book.duplicates = (pair,)
    told = "<div>97 % alike: class/s100/scan.cu:3-20 and class/s101/scan.cu:4-21</div>"
    assert f'<td class="l">{told}' in page(book, EVENING)
    book.duplicates += tuple(pair._replace(submissions=(f"class/s{n}/scan.cu", "x.cu")) for n in range(100, 105))
    text = page(book, EVENING)
    assert text.count("97 % alike: class/") == 3 and "and 3 more pairs, which the JSON report lists" in text
    book.duplicates = book.duplicates[:4]
    assert "and 1 more pair, which the JSON report lists" in page(book, EVENING)


def test_a_row_opens_to_its_flags(text: str) -> None:
    opened = dict(re.findall(r'id="(r\d+)-more"(.*?)</noscript>', text, re.DOTALL))
    assert "<strong>Near-identical sources</strong> in scan: 97 % alike" in opened["r1"]
    flags = re.findall(r"<td>(\d*)(?:</td></tr>)?\s*<tr class=\"more\"", text)
    assert [int(count or 0) for count in flags] == [each.count('<li class="flag">') for each in opened.values()]


def test_a_verdict_is_read_out_once(text: str) -> None:
    assert not re.search(r'<span class="sr">([\w ]+)</span></span> \1', text)
    assert re.search(
        r'<td class="level9" data-v="73">73 <span [^>]*><span aria-hidden="true">✓</span><span class="sr">passed<', text
    )
    absent = '<span aria-hidden="true">–</span><span class="sr">not handed in</span>'
    assert absent in text and "– not handed in</small>" in text


@pytest.mark.usefixtures("no_plots")
def test_ungraded_submissions_are_not_shown_as_missing() -> None:
    book = Gradebook(handed_in={"s1": {"scan": True, "sum": True}, "s2": {"sum": True, "scan": False}})
    for student, exercise in (("s1", "scan"), ("s2", "sum")):
        check = CheckResult("a", "correct", "passed", 10.0, 10.0, ())
        graded = Grade(f"{student}/{exercise}.cu", exercise, (check,), PROVENANCE, student)
        book.add(result_properties(graded, 0), is_expected=False)
    text = page(book, EVENING)
    missing = '<span aria-hidden="true">…</span><span class="sr">not graded in this run</span>'
    assert text.count(missing) == 2 and "… not graded in this run</small>" in text
    assert '<td data-v="10">10/10<' in text, "what s1 may still get"
    assert '<td data-v="10">10/20<' in text, "what s2 handed in for scan cannot be graded"


@pytest.mark.usefixtures("no_plots")
def test_the_columns_of_annotated_sources_are_explained_where_there_are_any(text: str) -> None:
    assert "Figures beside the annotated sources: time: share of the estimated time." in text
    book = Gradebook()
    add(book, replace(FEW.gradebook().grades[0], checks=FEW.gradebook().grades[0].checks[:1]))
    assert "annotated sources" not in page(book, EVENING)


@pytest.mark.usefixtures("no_plots")
def test_points_have_two_digits_at_most() -> None:
    grade = FEW.gradebook().grades[0]
    book = Gradebook()
    add(book, replace(grade, checks=(replace(grade.checks[0], points=10 / 3, max_points=10 / 3),)))
    text = page(book, EVENING)
    assert "scan: 3.33 of 3.33 points" in text and "3.333" not in text.replace('data-v="3.33333"', "")


def test_the_hardest_checks_are_those_that_everyone_must_pass(text: str) -> None:
    hardest = text.split("<caption>Hardest checks")[1].split("</table>")[0]
    assert "speedup[1.4x]" in hardest and "(bonus)" not in hardest and "(bonus)" in text


@pytest.mark.usefixtures("no_plots")
def test_failures_that_the_instructor_expects_are_marked() -> None:
    grades = [
        grade for grade in Made(20).gradebook().grades if any(check.verdict == "failed" for check in grade.checks)
    ]
    book = Gradebook()
    for grade in grades[:2]:
        add(book, grade)
    book.expected = {(grades[0].submission, check.name) for check in grades[0].checks if check.verdict == "failed"}
    assert page(book, EVENING).count("failed, as expected") == 1


@pytest.mark.usefixtures("no_plots")
def test_different_devices_are_separate_groups() -> None:
    one, two = Made(3).gradebook().grades[:2]
    (only,) = provenances([one, two])
    assert only[1] == 2 and ("seed", "7130713") in only[0] and ("driver", "580.65") in only[0]
    other = replace(two, provenance=replace(two.provenance, seed=4))
    assert [count for _, count in provenances([one, other])] == [1, 1]
    places = [
        {**each.provenance.details, "UUID": "n/a", "PCI address": place} for each, place in ((one, "1"), (two, "2"))
    ]
    nameless = [replace(one, provenance=replace(one.provenance, details=details)) for details in places]
    assert [count for _, count in provenances(nameless)] == [1, 1]  # without NVML
    book = Gradebook()
    add(book, one)
    add(book, other)
    assert "Not all grades come from the same device" in page(book, EVENING)


def test_a_class_of_500_stays_below_15_megabytes() -> None:
    classes = (Made(students, source_lines=60, exercises=("scan",)).gradebook() for students in (10, 40))
    few, more = (len(page(book, EVENING).encode()) for book in classes)
    assert 5e6 < (more - few) / 30 * 500 * 4 < 15e6


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(class_books())
def test_any_grades_give_a_page(book: Gradebook) -> None:
    text = page(book, EVENING)
    text.encode()
    found = Page(text)
    assert len(found.texts["script"]) == 1 and not [tag for tag, _ in found.tags if tag == "img"]


def test_a_missing_library_is_named_before_anything_is_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = instructor_page.find_spec
    monkeypatch.setattr(instructor_page, "find_spec", lambda name: None if name == "matplotlib" else there(name))
    with pytest.raises(ReportError, match=r"the report html needs matplotlib: .* 'pytest-gpulab\[class\]'"):
        formats.check("html", tmp_path / "report.html", Context())
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("error", [ImportError("libXau.so.6: failed to map segment from shared object"), MemoryError()])
def test_a_library_that_does_not_load_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def unloadable(*_: object) -> str:
        raise error

    monkeypatch.setattr(instructor_page, "page", unloadable)
    with pytest.raises(ReportError, match=r"^cannot write the report .*/report.html: too little memory, .*$") as caught:
        formats.write("html", tmp_path / "report.html", Gradebook(), Context())
    assert repr(error) in str(caught.value)


@pytest.mark.usefixtures("no_plots")
def test_the_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    context = Context(finished=EVENING)
    formats.check("html", path, context)
    formats.write("html", path, FEW.gradebook(), context)
    assert path.read_text(encoding="utf-8") == page(FEW.gradebook(), EVENING)
