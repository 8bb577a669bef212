"""`--gpulab-report=github:PATH`: JUnit XML and a job summary for GitHub Actions, for one student.

PATH is the XML file, which actions show as annotations. A table is appended to the file that the environment variable
GITHUB_STEP_SUMMARY names, in the Markdown that GitHub shows on the page of the run. Everyone who sees the repository
sees both, so hidden cases show only the kind of a mistake and a hint.
"""

import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from pytest_gpulab.grading.grade import CheckResult, Verdict
from pytest_gpulab.reports import students
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.formats import write_text
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.terminal.check_text import check_text, cleaned, finding_text

SUMMARY = "GITHUB_STEP_SUMMARY"
MARKS: Mapping[Verdict, str] = {
    "passed": "✅ passed",
    "failed": "❌ failed",
    "missed": "➖ bonus missed",
    "inconclusive": "✅ inconclusive",
    "not gradable": "❔ not gradable",
    "not started": "⬜ not started",
}
_ELEMENTS: Mapping[Verdict, str] = {
    "failed": "failure",
    "inconclusive": "skipped",
    "not gradable": "skipped",
    "not started": "skipped",
}


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write the file of one student with a grade of every check, and append to the summary."""
    students.refuse_a_part(gradebook, context)
    row = students.the_only_row(gradebook)
    points = students.graded_points(row)
    if points is None:
        raise ReportError(students.why_no_score(row))
    write_text(path, junit(row))
    _append(context, "\n".join(summary(row, points)))


def not_graded(text: str, context: Context) -> str:
    """Return the XML for a submission without a grade, and append the reason to the summary."""
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", name="gpulab", tests="1", failures="0", errors="1")
    case = ElementTree.SubElement(suite, "testcase", classname="gpulab", name="not graded")
    ElementTree.SubElement(case, "error", message=cleaned(text))
    _append(context, f"**Not graded**, by no fault of yours. {html.escape(cleaned(text))}\n")
    return _xml(suites)


def junit(row: students.Row) -> str:
    """Return the checks as JUnit XML, as the student may see them."""
    suites = ElementTree.Element("testsuites")
    checks = students.shown_checks(row)
    verdicts = [_ELEMENTS.get(check.verdict) for _, check in checks] + ["failure"] * len(row.ungraded)
    counts = {"failures": verdicts.count("failure"), "skipped": verdicts.count("skipped"), "errors": 0}
    suite = ElementTree.SubElement(suites, "testsuite", name="gpulab", tests=str(len(verdicts)))
    suite.attrib.update({name: str(count) for name, count in counts.items()})
    for name, check in checks:
        _case(suite, name, _ELEMENTS.get(check.verdict, ""), check_text(check), check.duration_s)
    for name, finding in row.ungraded:
        _case(suite, name, "failure", finding_text(finding))
    return _xml(suites)


def _case(suite: ElementTree.Element, name: str, element: str, text: str, duration_s: float = 0.0) -> None:
    attributes = {"classname": "gpulab", "name": cleaned(name), "time": f"{duration_s:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    if element:
        ElementTree.SubElement(case, element, message=text.partition("\n")[0]).text = text


def _xml(suites: ElementTree.Element) -> str:
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=False) + "\n"


def summary(row: students.Row, points: students.Points) -> Iterator[str]:
    """Yield the lines of the table, and below it the findings, each at the first check that has it."""
    yield f"### {students.points_text(points.earned)} of {students.points_text(points.graded)} points\n"
    yield "| check | result | points |"
    yield "|---|---|---:|"
    checks = students.shown_checks(row)
    for name, check in checks:
        yield f"| {_code(name)} | {MARKS[check.verdict]} | {_points(check)} |"
    for name, finding in row.ungraded:
        yield from ("", _details(name, finding_text(finding)))
    for name, check in checks:
        if any(not finding.because for finding in check.findings):
            yield from ("", _details(name, check_text(check)))
    yield ""


def _points(check: CheckResult) -> str:
    return (
        f"{students.points_text(check.points)} of {students.points_text(check.max_points)}" if check.max_points else ""
    )


def _code(text: str) -> str:
    return f"<code>{html.escape(cleaned(text)).replace('|', '&#124;')}</code>"


def _details(name: str, text: str) -> str:
    lines = html.escape(text).replace("\n\n", "\n&#8203;\n")  # an empty line would end the block of HTML
    return f"<details><summary>{_code(name)}</summary>\n<pre>{lines}</pre>\n</details>"


def _append(context: Context, text: str) -> None:
    if name := context.environment.get(SUMMARY):
        with Path(name).open("a", encoding="utf-8") as file:
            file.write(text)
