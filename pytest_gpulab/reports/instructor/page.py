"""`--gpulab-report=html:PATH`: the instructor's report, one file that loads no others.

The same gradebook and time of writing give the same bytes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from pytest_gpulab.grading.grade import Grade, Provenance
from pytest_gpulab.reports import formats
from pytest_gpulab.reports.class_statistics import check_rates, commonest, hardest, scores
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.gradebook import Gradebook, Links, SimilarPair
from pytest_gpulab.reports.pages import environment
from pytest_gpulab.reports.pages.views import GradeView
from pytest_gpulab.reports.standings import Standing, exercises_of, standings
from pytest_gpulab.reports.students import NOT_GRADED, NOT_HANDED_IN, counting_grades, weights_text
from pytest_gpulab.reports.terminal.annotated import listings
from pytest_gpulab.reports.terminal.table import timings

from . import plots
from .comparison import RowOfTwo, side_by_side
from .flags import MEANING, Flag, flags, number_of, read_dismissals
from .ladders import ladders
from .people import people
from .speeds import all_series
from .svg import Sheet, inline
from .sweep import sweep_page

MOST_HARD = 12
MOST_FINDINGS = 15
MOST_FLAGS = 12
"""Most flags of a kind that are visible at first; the others are folded."""
MOST_PAIRS = 3
"""Most pairs of similar sources that are listed with their lines."""
LEGEND = ", ".join(f"{environment.SIGNS[verdict]} {verdict}" for verdict in environment.SIGNS if verdict != "missed")

Values = dict[str, Any]


def check(path: Path, context: Context) -> None:
    """Check that matplotlib is there, and that the report can be written."""
    if find_spec("matplotlib") is None:
        raise ReportError("the report html needs matplotlib: python -m pip install 'pytest-gpulab[class]'")
    formats.check_file(path, context)


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write the report."""
    if any(grade.swept for grade in gradebook.grades):
        formats.write_text(path, sweep_page(gradebook.grades, context.finished))
        return
    links = gradebook.drawings.links(path) if gradebook.drawings else None
    formats.write_text(path, page(gradebook, context.finished, context.interrupted, read_dismissals(path), links))


def page(
    gradebook: Gradebook,
    created: datetime,
    interrupted: bool = False,
    dismissals: Mapping[str, str] | None = None,
    links: Links | None = None,
) -> str:
    """Return the report on a whole class; all values are from the gradebook but for the UTC time `created`.

    If the run was interrupted, checks or submissions are missing. `dismissals` are reasons for dismissed flags, by the
    flags' numbers, and `links` addresses of figures.
    """
    grades, sheet = counting_grades(gradebook), Sheet()
    everyone = standings(gradebook, grades)
    reasons, every = dismissals or {}, flags(gradebook, grades)
    found = [flag for flag in every if number_of(flag) not in reasons]
    values = (
        _about(gradebook, grades, everyone)
        | _summary(grades, everyone, sheet)
        | _speeds(gradebook, grades, sheet)
        | _review(gradebook, found)
        | _people(gradebook, grades, everyone, found, interrupted)
    )
    values |= {"figures": _key_figures(gradebook, everyone, found), "parts": _parts(values)}
    values |= {"dismissed": [(flag, reasons[number_of(flag)]) for flag in every if number_of(flag) in reasons]}
    values |= {"created": environment.moment(created), "interrupted": interrupted, "links": links or {}}
    values |= {"has_parts": any(each.row.is_part for each in everyone)}
    return environment.rendered("report.html.jinja", script="table.js", more_style=sheet.text, **values)


def _about(gradebook: Gradebook, grades: Sequence[Grade], everyone: Sequence[Standing]) -> Values:
    has_students = any(grade.student for grade in grades) or bool(gradebook.roster)
    unit = "student" if has_students else "submission"
    grades_of = f"rades of {len(everyone)} {unit}{'s' if len(everyone) != 1 else ''}"
    return {
        "title": f"{gradebook.title}: g{grades_of}" if gradebook.title else f"G{grades_of}",
        "titles": gradebook.titles,
        "has_students": has_students,
        "people_title": "Students" if has_students else "Submissions",
        "devices": list(dict.fromkeys(grade.provenance.device for grade in grades)) or ["Nothing graded"],
        "versions": sorted({grade.provenance.plugin_version for grade in grades}),
        "estimated": any(measured.estimated for grade in grades for measured in timings(grade).values()),
        "provenances": provenances(grades),
        "ungraded": sorted(gradebook.ungraded.items()),
    }


def _summary(grades: Sequence[Grade], everyone: Sequence[Standing], sheet: Sheet) -> Values:
    rates, distributions = check_rates(grades), scores(grades, everyone)
    return {
        "distributions": distributions,
        "score_plot": inline(plots.score_plot(distributions), sheet) if distributions else "",
        "hardest": hardest((rate for rate in rates if rate.required), MOST_HARD),
        "rates_by_exercise": [(name, list(group)) for name, group in groupby(rates, key=lambda rate: rate.exercise)],
        "commonest": commonest(grades, MOST_FINDINGS),
    }


def _speeds(gradebook: Gradebook, grades: Sequence[Grade], sheet: Sheet) -> Values:
    series, names = all_series(grades), {student.id: student.name for student in gradebook.roster}
    roofline = plots.roofline_plot(series, names)
    drawn = (plots.speed_plot(each, f"speed-{number}", names) for number, each in enumerate(series))
    return {
        "speed_plots": [inline(drawing, sheet) for drawing in drawn],
        "roofline": inline(roofline, sheet) if roofline else "",
        "ladders": list(ladders(grades)),
    }


def _review(gradebook: Gradebook, found: Sequence[Flag]) -> Values:
    kinds = [(kind, list(group)) for kind, group in groupby(found, key=lambda flag: flag.kind)]
    notes: Values = {"meaning": MEANING, "changes": gradebook.changes, "problems": gradebook.problems}
    notes |= {"number_of": number_of, "compared": partial(_compared, gradebook)}
    return {"flags": kinds, "most_flags": MOST_FLAGS, "most_pairs": MOST_PAIRS, **notes}


def _compared(gradebook: Gradebook, pair: SimilarPair) -> list[RowOfTwo]:
    left, right = (gradebook.sources.get(name, "") for name in pair.submissions)
    return side_by_side(left, right) if left and right else []


def _people(
    gradebook: Gradebook,
    grades: Sequence[Grade],
    everyone: Sequence[Standing],
    found: Sequence[Flag],
    interrupted: bool,
) -> Values:
    exercises = list(exercises_of(grades, gradebook))
    persons = people(everyone, exercises, found, gradebook.expected, interrupted)
    gaps = {cell for person in persons for cell in person.cells if isinstance(cell, str)}
    by_submission = {grade.submission: person for person in persons for grade in person.standing.row.grades}
    listed = {person.standing.row.student.id for person in persons}
    has_names = any(each.row.student.name for each in everyone) or any(student.name for student in gradebook.absent)
    return {
        "exercises": exercises,
        "as_expected": {grade.submission for grade in grades if GradeView(grade, gradebook.expected).as_expected},
        "persons": persons,
        "by_submission": by_submission,
        "absent": [
            (student.name or student.id, student.id) for student in gradebook.absent if student.id not in listed
        ],
        "weights": weights_text(gradebook.weights),
        "has_names": has_names,
        "has_roster": bool(gradebook.roster),
        "has_listings": any(listings(grade) for grade in grades),
        "columns": 4 + has_names + len(exercises),
        "legend": LEGEND,
        "signs_of_gaps": {NOT_GRADED: "…", NOT_HANDED_IN: environment.UNKNOWN},
        "gaps": [gap for gap in (NOT_GRADED, NOT_HANDED_IN) if gap in gaps],
    }


def _key_figures(gradebook: Gradebook, everyone: Sequence[Standing], found: Sequence[Flag]) -> list[tuple[str, str]]:
    shares = [each.share for each in everyone if each.share is not None]
    figures = {
        "submissions graded": str(sum(len(each.row.grades) for each in everyone)),
        "median score": f"{100 * median(shares):.0f} %" if shares else environment.UNKNOWN,
        "with all points": str(sum(share >= 1 for share in shares)),
        "to review": str(len(found)),
        "absent": str(len(gradebook.absent)),
        "not graded at all": str(len(gradebook.ungraded)),
    }
    return [(name, value) for name, value in figures.items() if value != "0" or name == "to review"]


def _parts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    parts = {
        "review": "Review",
        "scores": "Scores",
        "checks": "Checks",
        "findings": "Findings",
        "speed": "Speedups" if values["speed_plots"] else "",
        "roofline": "Roofline" if values["roofline"] else "",
        "ladders": "Ladders" if values["ladders"] else "",
        "people": values["people_title"],
        "handed-in": "Handed in",
        "provenance": "Provenance",
    }
    return [(place, text) for place, text in parts.items() if text]


def provenances(grades: Sequence[Grade]) -> list[tuple[list[tuple[str, str]], int]]:
    """Return the provenance of the grades, names and texts, with the number of grades that share each."""
    groups: dict[tuple[object, ...], list[Provenance]] = {}
    for grade in grades:
        of = grade.provenance
        gpu = (of.device, of.details.get("UUID"), of.details.get("PCI address"))  # NVML's name may be missing
        key = (*gpu, of.architecture, of.compiler, of.plugin_version, of.seed)
        groups.setdefault(key, []).append(of)
    return [(_facts(group), len(group)) for group in groups.values()]


def _facts(group: Sequence[Provenance]) -> list[tuple[str, str]]:
    one = group[0]
    facts = {
        "device": one.device,
        "architecture": one.architecture,
        "compiler": one.compiler,
        **one.details,
        "thresholds": "; ".join(dict.fromkeys(each.thresholds for each in group)),
        "seed": str(one.seed),
        "pytest-gpulab": one.plugin_version,
        "versions of the exercises": ", ".join(dict.fromkeys(each.exercise_version for each in group)),
    }
    return list(facts.items())
