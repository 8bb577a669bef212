"""Pages of figures: of a submission on one small input, with its source, or of all that failed in a run; no network."""

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pytest_gpulab.grading.explanation.figure import Figure
from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.gradebook import Drawings, Gradebook
from pytest_gpulab.reports.terminal.text import visible, wrapped

from . import environment
from .dataflow import SHAPES, dataflow_svg
from .dataflow import STYLE as FLOW_STYLE
from .warp_figures import STYLE as WARP_STYLE
from .warp_figures import access_svg, lanes_svg


@dataclass(frozen=True)
class Explained:
    """The contents of a page, or of a section."""

    title: str  # the submission and its exercise
    summary: Sequence[str]  # lines about the input and the result
    notes: Sequence[str]  # lines about the figure, such as a smaller block
    source: str
    figures: Sequence[Figure]  # one per launch and block
    wrong_lines: Container[int] = ()  # numbers of source lines that findings name


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write the page of a run's failed checks."""
    formats.write_text(path, page(gradebook.drawings or Drawings(path)))


def page(drawings: Drawings, title: str = "Figures") -> str:
    """Return a page with a section per failing input."""
    sections = [(drawing.place, drawing.title, Markup(drawing.html)) for drawing in drawings.drawn]
    return _page(title, [each for _, _, each in sections], contents=sections, left_out=drawings.left_out)


def single_page(explained: Explained) -> str:
    """Return a page with the figures of one input."""
    return _page(explained.title, [section(explained)], contents=None, left_out=())


def _page(title: str, sections: Sequence[Any], contents: Sequence[Any] | None, left_out: Sequence[str]) -> str:
    return environment.rendered(
        "explained.html.jinja",
        script="explained.js",
        more_style=FLOW_STYLE + WARP_STYLE + environment.text("explained.css"),
        shapes=Markup(SHAPES),
        heading=title,
        sections=sections,
        contents=contents,
        left_out=left_out,
        is_single=contents is None,
    )


def section(explained: Explained, place: str = "figure", level: int = 1) -> Any:
    """Return the figures of one input as HTML (`Markup`), with an anchor and a heading of this level."""
    figures = [
        {
            "figure": figure,
            "flow": Markup(dataflow_svg(figure)),
            "lanes": [Markup(lanes_svg(runs, warp)) for warp, runs in enumerate(figure.warps) if runs],
            "accesses": [(access, Markup(access_svg(access))) for access in figure.accesses],
        }
        for figure in explained.figures
    ]
    source = [visible(line.expandtabs(4)) for line in explained.source.splitlines()]
    return environment.fragment(
        "explained_section.html.jinja", place=place, level=level, explained=explained, figures=figures, source=source
    )


def summary_lines(figures: Sequence[Figure]) -> list[str]:
    """Return the figures as text for a terminal; equal lines of a step are one, with their number."""
    found: list[str] = []
    for figure in figures:
        found.append(figure.title)
        if not figure.rows:
            found.append("  no thread of the block uses an array")
        for _, rows in groupby(range(len(figure.rows)), key=lambda number: _step(figure, number)):
            numbers = list(rows)
            lines = Counter(f"  {figure.captions[number]}: {figure.active(figure.rows[number])}" for number in numbers)
            found += [f"{line} ({count} times)" if count > 1 else line for line, count in lines.items()]
            mistakes = figure.mistakes(numbers[0])  # a row with mistakes is alone
            found += [line for words in mistakes for line in wrapped(words, "    ! ", "      ")]
    return found


def _step(figure: Figure, number: int) -> tuple[object, ...]:
    """Return a key that neighbouring rows of an array share within a step if none of them has a mistake."""
    row = figure.rows[number]
    return row.array.name, row.step, number if figure.mistakes(number) else -1


def svg(figures: Sequence[Figure]) -> Any:
    """Return the first figure as an SVG file."""
    return dataflow_svg(figures[0], is_alone=True)
