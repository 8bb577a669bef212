"""`--gpulab-feedback=DIR`: a small page per student with that student's visible results only.

A page is named after the student's id: `jdoe42.html`. Figures of failed checks are in `figures/jdoe42.html`.
"""

from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.gradebook import Gradebook, Links
from pytest_gpulab.reports.standings import Standing, exercises_of, standings
from pytest_gpulab.reports.students import Row, file_name, refuse_a_part, rows, unscored, weights_text
from pytest_gpulab.reports.terminal.annotated import listings
from pytest_gpulab.reports.visibility import for_student

from . import environment, explained_page
from .views import GradeView

FIGURES = "figures"


def check(path: Path, context: Context) -> None:
    """Check that the pages can be written."""
    formats.check_folder(path)


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write a page per student who handed something in, or has an adjustment. All checks must be graded."""
    refuse_a_part(gradebook, context)
    path.mkdir(exist_ok=True)
    exercises = exercises_of((grade for grade in gradebook.grades if grade.student), gradebook)
    for standing in standings(gradebook, gradebook.grades):
        name = f"{file_name(standing.row.student.id)}.html"
        links = _figures(path, name, standing, gradebook)
        formats.write_text(path / name, page(standing, context.finished, exercises, gradebook, links))


def _figures(path: Path, name: str, standing: Standing, gradebook: Gradebook) -> Links:
    """Write the student's own page of figures, if the run has figures; return the links to it."""
    if gradebook.drawings is None:
        return {}
    own = gradebook.drawings.of({grade.submission for grade in standing.row.grades}, path / FIGURES / name)
    own.path.parent.mkdir(exist_ok=True)
    if not own.drawn:
        own.path.unlink(missing_ok=True)  # that of an earlier run
        return {}
    formats.write_text(own.path, explained_page.page(own))
    return own.links(path / name)


def readers(gradebook: Gradebook) -> list[Row]:
    """Return the rows of students who handed something in or have an adjustment: each gets a page."""
    return [row for row in rows(gradebook) if row.has_result]


def page(
    standing: Standing,
    created: datetime,
    exercises: Collection[str] = (),
    gradebook: Gradebook | None = None,
    links: Links | None = None,
) -> str:
    """Return a student's page, with the totals of the instructor's report but without expected verdicts.

    `created` is the UTC time. Exercises of the class without a grade of the student are named. The gradebook has the
    titles of the course and the exercises; `links` are addresses of figures.
    """
    row = standing.row
    grades = [for_student(grade) for grade in row.grades]
    views = [GradeView(grade) for grade in grades]
    missing = sorted(set(exercises) - {grade.exercise for grade in grades})
    return environment.rendered(
        "feedback.html.jinja",
        student=row.student,
        title=gradebook.title if gradebook else "",
        titles=gradebook.titles if gradebook else {},
        views=views,
        ungraded=row.ungraded,
        missing=missing,
        left_out=row.left_out if missing else {},
        unscored=unscored(row.grades),
        earned=standing.earned,
        possible=standing.possible,
        ungraded_points=row.points.ungraded,
        adjustments=row.notes_of_adjustments,
        weights=weights_text(row.weights),
        devices=list(dict.fromkeys(grade.provenance.device for grade in grades)),
        has_listings=any(listings(grade) for grade in grades),
        estimated=any(view.estimated for view in views),
        created=environment.moment(created),
        links=links or {},
    )
