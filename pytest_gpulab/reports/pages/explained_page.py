"""The page of `gpulab explain`: the figures of a submission on one small input, with its source; no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_gpulab.grading.explanation.figure import Figure
from pytest_gpulab.reports.terminal.text import visible

from . import environment
from .dataflow import STYLE as FLOW_STYLE
from .dataflow import dataflow_svg
from .warp_figures import STYLE as WARP_STYLE
from .warp_figures import access_svg, lanes_svg


@dataclass(frozen=True)
class Explained:
    """The contents of a page.

    Attributes:
        title: the submission and its exercise.
        summary: lines about the input and the result.
        notes: lines about the figure, such as a smaller block.
        source: the submission.
        figures: one per launch and block.
    """

    title: str
    summary: Sequence[str]
    notes: Sequence[str]
    source: str
    figures: Sequence[Figure]


def page(explained: Explained) -> str:
    """Return the page as HTML."""
    from markupsafe import Markup

    figures = [
        {
            "figure": figure,
            "flow": Markup(dataflow_svg(figure)),
            "lanes": [Markup(lanes_svg(runs, warp)) for warp, runs in enumerate(figure.warps) if runs],
            "accesses": [(access, Markup(access_svg(access))) for access in figure.accesses],
        }
        for figure in explained.figures
    ]
    return environment.rendered(
        "explained.html.jinja",
        script="explained.js",
        more_style=FLOW_STYLE + WARP_STYLE + environment.text("explained.css"),
        explained=explained,
        figures=figures,
        source=[visible(line.expandtabs(4)) for line in explained.source.splitlines()],
    )


def summary_lines(figures: Sequence[Figure]) -> list[str]:
    """Return the figures as text for a terminal."""
    found: list[str] = []
    for figure in figures:
        found.append(figure.title)
        for number, (row, caption) in enumerate(zip(figure.rows, figure.captions, strict=True)):
            found.append(f"  {caption}: {figure.active(row)}")
            found += [f"    ! {mark.what}" for mark in figure.marks if mark.row == number][:2]
    return found


def svg(figures: Sequence[Figure], which: int = 0) -> Any:
    """Return one figure as an SVG file."""
    return dataflow_svg(figures[which], is_alone=True)
