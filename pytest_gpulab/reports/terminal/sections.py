"""The sections of the terminal report: a table per exercise, the findings, then the footnotes.

Everything is made from a `Gradebook`; nothing here prints. Modules of sections that few reports have are imported with
them: a run of a single check should not wait for them.
"""

import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from pytest_gpulab.grading.grade import COMPILER_WARNING, RUN_IT, CheckResult, Finding, Grade, SmallestInput
from pytest_gpulab.reports.gradebook import Gradebook

from .hardware import counter_lines, counter_notes, device_tables, occupancy_lines
from .reasons import MAX_NAMED, condensed, reasons
from .table import ESTIMATED, table_lines, timings
from .text import abridged, fitted, width, wrapped, wrapped_command

Section = tuple[str, list[str]]

NEXT_STEP = "hint: Write the code, then delete the file's GPULAB_TODO lines. -v shows them."
COLUMNS = {"step": "speedup over the row above", "total": "over the baseline", "next": "the next tier and its points"}
MAX_PRINTED = 10
"""Most lines of a kernel's output that are shown per check; `-v` shows all that was kept."""


def failure_text(findings: Sequence[Finding], already_shown: set[Finding]) -> str:
    """Return one check's findings, at least one; pytest takes the first line for its short summary.

    Findings that are `already_shown` for other checks of the submission are left out: a compiler's message that ten
    checks share is printed once. The set is updated.
    """
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.code}: {finding.what}")
        details = [f"  at {finding.where}"] if finding.where and not finding.because else []
        is_new = all(finding.smallest != other.smallest for other in already_shown)
        details += _details(finding if is_new else replace(finding, smallest=None), indent="  ")
        lines += ["  (details above)"] if details and finding in already_shown else details
        already_shown.add(finding)
    return "\n".join(lines)


def sections(
    gradebook: Gradebook, verbosity: int, of_class: bool = False, with_output: bool = False
) -> Iterator[Section]:
    """Yield the report's sections, each a title and its lines.

    Lines have at most `width()` columns, except tools' messages and commands. With a negative verbosity, each
    submission has its first finding only. A positive one shows all findings in full, the device, the occupancy, the
    confidence intervals, and the output of kernels that passed. That output is also shown `with_output`. A class has a
    summary, and all that only with a positive verbosity.
    """
    if any(grade.swept for grade in gradebook.grades):
        from .sweep import sweep_sections

        yield from sweep_sections(gradebook.grades)
        yield from _findings_section(gradebook, verbosity, with_output)
        return
    if of_class:
        from .class_summary import class_sections

        yield from class_sections(gradebook)
    if not of_class or verbosity > 0:
        yield from _all_sections(gradebook, verbosity, with_output)


def _all_sections(gradebook: Gradebook, verbosity: int, with_output: bool) -> Iterator[Section]:
    idle = _not_started(gradebook, verbosity)
    grades = [grade for grade in gradebook.grades if grade.submission not in idle]
    if verbosity > 0:
        yield from ((f"gpulab: {name}", lines) for name, lines in device_tables(grades))
    for exercise, group in groupby(grades, key=lambda grade: grade.exercise):
        members = list(group)
        parts = {grade.submission for grade in members if gradebook.is_part(grade)}
        yield f"gpulab: {exercise}{_sizes(members)}", table_lines(members, gradebook.expected, parts)
        if verbosity > 0:
            from .bandwidth import bandwidth_lines

            yield from section(f"gpulab: {exercise}, bandwidth", bandwidth_lines(members))
            yield from section(f"gpulab: {exercise}, occupancy", occupancy_lines(members))
        yield from section(f"gpulab: {exercise}, counters", counter_lines(members, with_simulated=verbosity > 0))
    yield from section("gpulab: timing", list(_timing(grades)) if verbosity > 0 else [])
    yield from _findings_section(gradebook, verbosity, with_output)
    if idle:
        yield "gpulab: not started", [*idle, *wrapped(NEXT_STEP)]


def section(title: str, lines: list[str]) -> Iterator[Section]:
    """Yield a section if it has lines."""
    if lines:
        yield title, lines


def _not_started(gradebook: Gradebook, verbosity: int) -> list[str]:
    """Return the submissions that are only listed, because several are not started."""
    found = [
        grade.submission for grade in gradebook.grades if {check.verdict for check in grade.checks} == {"not started"}
    ]
    return found if len(found) > 1 and verbosity <= 0 else []


def _findings_section(gradebook: Gradebook, verbosity: int, with_output: bool) -> Iterator[Section]:
    return section("gpulab: findings", list(_all_findings(gradebook, verbosity, with_output)))


def _legend(grades: Iterable[Grade]) -> str:
    """Return the meaning of the columns that are shown."""
    tables = (table_lines(list(group), set()) for _, group in groupby(grades, key=lambda grade: grade.exercise))
    shown = {name for header, *_ in tables for name in header.split()}
    return "; ".join(f"{name}: {meaning}" for name, meaning in COLUMNS.items() if name in shown) + "."


def footnotes(gradebook: Gradebook, verbosity: int = 0, of_class: bool = False) -> Iterator[str]:
    """Yield the footnotes of the tables, or of a class's grades."""
    if any(grade.swept for grade in gradebook.grades):
        from .sweep import sweep_footnotes

        yield from sweep_footnotes(gradebook.grades)
        return
    parts = [f"{grade.submission} ({part})" for grade in gradebook.grades if (part := gradebook.part_of(grade))]
    if parts:
        yield f"Only some checks were run, and the points are those of these checks: {abridged(parts, MAX_NAMED)}."
    measurements = [measurement for grade in gradebook.grades for measurement in timings(grade).values()]
    has_tables = not of_class or verbosity > 0
    if measurements and has_tables:
        yield from wrapped(_legend(gradebook.grades))
    yield from _thresholds(gradebook.grades)
    if any(measurement.estimated for measurement in measurements) and has_tables:
        yield ESTIMATED
    too_long = "while it timed, so times may be too long"
    others = {other for measurement in measurements for other in measurement.shared_with}
    if others:
        yield f"! other processes used the GPU {too_long}: {abridged(sorted(others), MAX_NAMED)}."
    held_down = {words for measurement in measurements for words in measurement.held_down_by}
    if held_down:
        yield f"! the GPU was slowed down {too_long}: {abridged(sorted(held_down), MAX_NAMED)}."
    yield from (f"! {note}." for note in counter_notes(gradebook.grades))
    if gradebook.expected and has_tables:
        yield "* fails as the instructor's expected verdicts say."


def _thresholds(grades: Iterable[Grade]) -> Iterator[str]:
    """Yield the source of the thresholds, once where all exercises share it; estimates have no other thresholds."""
    sources: dict[str, list[str]] = {}
    for grade in grades:
        if any(not measured.estimated for measured in timings(grade).values()):
            exercises = sources.setdefault(grade.provenance.thresholds, [])
            exercises += [grade.exercise] if grade.exercise not in exercises else []
    for source, exercises in sources.items():
        of = f" of {', '.join(exercises)}" if len(sources) > 1 else ""
        yield from wrapped(f"thresholds{of}: {source}.")


def _timing(grades: Iterable[Grade]) -> Iterator[str]:
    """Yield confidence intervals and sizes, which have no column."""
    for grade in grades:
        timed = [(check.name, check.measurement) for check in grade.checks if check.measurement is not None]
        lines = [f"  {name}: {measured.certainty}" for name, measured in timed if measured.certainty]
        yield from [grade.submission, *lines] if lines else []


def _sizes(grades: Iterable[Grade]) -> str:
    sizes = {measurement.size for grade in grades for measurement in timings(grade).values()}
    return f", speed at {' and '.join(sorted(sizes))}" if sizes else ""


def _all_findings(gradebook: Gradebook, verbosity: int, with_output: bool) -> Iterator[str]:
    for submission, finding in sorted(gradebook.ungraded.items()):
        yield submission
        yield from finding_lines("NOT GRADED", finding)
    idle = _not_started(gradebook, verbosity)
    for grade in gradebook.grades:
        if grade.submission in idle or (grade.swept and verbosity <= 0 and _is_out_of_range(grade)):
            continue
        lines = [
            *_submission_findings(grade, gradebook, verbosity),
            *(_passed_output(grade, with_output or verbosity > 0) if verbosity >= 0 else ()),
        ]
        if lines:
            yield grade.submission
            yield from lines


def _is_out_of_range(grade: Grade) -> bool:
    from .sweep import is_out_of_range

    return is_out_of_range(grade)


def _submission_findings(grade: Grade, gradebook: Gradebook, verbosity: int) -> Iterator[str]:
    shown: set[object] = set()
    is_verbose, has_printed = verbosity > 0, False
    most = None if is_verbose else MAX_PRINTED
    found = reasons(grade, gradebook.expected)
    found = found if is_verbose else condensed(found)
    file = None if gradebook.root is None else gradebook.root / grade.submission
    path = os.path.relpath(file) if file is not None and file.is_file() else ""
    if verbosity < 0:
        found = [reason for reason in found if not reason.is_minor]
        warnings = [reason for reason in found[1:] if reason.finding.code == COMPILER_WARNING]
        found = found[:1] + warnings[:1]  # the first warning may explain the finding
    for reason in found:
        heading = reason.heading(named=None if is_verbose else MAX_NAMED)
        finding = reason.finding.with_file(path) if path else reason.finding
        if reason.is_minor and not is_verbose:
            yield from _headline(heading, finding)
            if "missed" in reason.checks:
                yield from _short_hint(finding.without(shown))
                shown.add(finding.hint)
        else:
            yield from finding_lines(heading, finding.without(shown))
            shown |= {finding.hint, finding.smallest, *((finding.smallest.command,) if finding.smallest else ())}
        if reason.printed and (is_verbose or not has_printed):
            has_printed = True
            yield from _printed(next(iter(reason.checks.values()))[0], reason.printed, most)


def finding_lines(heading: str, finding: Finding) -> Iterator[str]:
    """Yield a finding in full below its heading, such as `FAILED correct[n=33]`."""
    yield from _headline(heading, finding)
    yield from _details(finding, indent="      ")


def _short_hint(finding: Finding) -> Iterator[str]:
    """Yield the first sentence of a hint as one line, without what is in brackets if it is long."""
    if finding.hint:
        first = re.split(r"(?<=[.?]) ", f"hint: {finding.hint}")[0]
        room = width() - len(indent := "      ")
        short = first if len(first) <= room else re.sub(r" \([^)]*\)", "", first)
        yield indent + textwrap.shorten(short, room, placeholder=" ...")


def _passed_output(grade: Grade, is_shown: bool) -> Iterator[str]:
    """Yield the output in checks that passed, or a line that says that there is some."""
    printing = [check for check in grade.checks if check.printed and check.verdict == "passed" and not check.findings]
    if is_shown:
        yield from (line for check in printing for line in _printed(check.name, check.printed, None))
    elif printing:
        names = abridged([check.name for check in printing], MAX_NAMED)
        yield from wrapped(f"There is output of {names}; -s or -v shows it.", "  ", "    ")


def _printed(name: str, printed: str, most: int | None) -> Iterator[str]:
    """Yield the kernels' output in a check, in its own layout."""
    lines = printed.splitlines()
    yield f"      output of {name}:"
    yield from (f"        {line}" for line in lines[:most])
    if most is not None and len(lines) > most:
        yield f"        ... and {len(lines) - most} more lines; -v shows all"


def _headline(heading: str, finding: Finding) -> Iterator[str]:
    place = f" ({finding.where})" if finding.where else ""
    what = f"{finding.code}: {finding.what}{place}"
    if len(f"  {heading}: {what}") <= width():
        yield f"  {heading}: {what}"
    else:
        yield from wrapped(f"{heading}:", "  ", "    ")
        yield from wrapped(what, "      ", "        ")


def _details(finding: Finding, indent: str) -> Iterator[str]:
    if finding.line:
        yield f"{indent}{fitted(finding.quote, width() - len(indent)).rstrip()}"
    for line in finding.evidence:
        parts = line.splitlines()  # more than one: a tool's own layout
        yield from wrapped(line, indent, f"{indent}  ") if len(parts) == 1 else (indent + part for part in parts)
    if finding.smallest is not None:
        yield from smallest_lines(finding.smallest, indent)
    if finding.hint:
        yield from wrapped(f"hint: {finding.hint}", indent, f"{indent}  ")


def smallest_lines(smallest: SmallestInput, indent: str = "      ") -> Iterator[str]:
    """Yield a smallest failing input, its rule and its command."""
    *lines, _ = smallest.lines
    for line in lines:
        yield from wrapped(line, indent, f"{indent}  ")
    if smallest.command:
        yield from wrapped_command(RUN_IT, smallest.command, indent)


def threshold_note(result: CheckResult) -> str:
    """Return this device's threshold of a check if it is not the one in its name; else nothing."""
    other = result.other_threshold
    return "" if other is None else f"on this device {result.name} requires {other:g}x"


def result_reason(result: CheckResult) -> str:
    """Return one line for a check that neither passed nor failed."""
    return ": ".join([result.verdict, *(finding.what for finding in result.findings[:1])])
