"""The HTML pages' common part: one template environment, a strict policy, and figures as text.

Jinja escapes every value of a template, after invisible characters were replaced, such as those that reverse text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from pytest_gpulab.grading.grade import CheckResult, Measurement
from pytest_gpulab.reports.students import points_text
from pytest_gpulab.reports.terminal.annotated import MEANING, NO_FIGURES
from pytest_gpulab.reports.terminal.table import three_digits
from pytest_gpulab.reports.terminal.text import visible

from .annotated_html import LISTING_STYLE, SHARES

if TYPE_CHECKING:
    from jinja2 import Environment

UNKNOWN = "–"
SIGNS = {"passed": "✓", "failed": "✗", "missed": "–", "inconclusive": "≈", "not gradable": "?", "not started": "○"} | {
    "adjusted": "±"
}
_OPTIONAL = re.compile(r"</t[dhr]>\n?")
"""End tags that HTML makes optional: a sixth of a page with the sources of a whole class."""
_TEMPLATES = Path(__file__).parent / "templates"


def rendered(template: str, script: str = "", more_style: str = "", **values: Any) -> str:
    """Return a page from a template, a child of `base.html.jinja`.

    Without a script, the page's policy allows none; `more_style` are rules besides those of all pages.
    """
    style = text("style.css") + LISTING_STYLE + SHARES + more_style
    code = text(script) if script else ""
    page = {"policy": _policy(style, code), "style": Markup(style), "script": Markup(code)}
    return _OPTIONAL.sub("", _environment().get_template(template).render(page | values))


def fragment(template: str, **values: Any) -> Any:
    """Return a part of a page as HTML (`Markup`)."""
    return Markup(_environment().get_template(template).render(values))


def moment(time: datetime) -> str:
    """Return a time in UTC to the minute."""
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy that allows this style and this script and nothing else."""
    scripts = _hash(script) if script else "'none'"
    return f"default-src 'none'; style-src {_hash(style)}; script-src {scripts}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def text(name: str) -> str:
    """Return the contents of a file beside the templates."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"signs": SIGNS, "listing_columns": f"{MEANING} {NO_FIGURES}"}
    environment.filters |= {
        "counted": lambda count, what: f"{count} {what}{'s' * (count != 1)}",
        "digits": lambda value: UNKNOWN if value is None else three_digits(value),
        "hundredths": lambda value: round(100 * (value or 0.0)),
        "interval": interval,
        "lines": lines,
        "number": lambda value: UNKNOWN if value is None else f"{value:g}",
        "of_peak": of_peak,
        "out_of": points_of_check,
        "percent": lambda value: UNKNOWN if value is None else f"{100 * value:.0f} %",
        "points": lambda value: points_text(round(value, 2)),
        "plain": lambda value: "" if value is None else f"{value:.6g}",
        "speedup": lambda value: UNKNOWN if value is None else f"{value:.2f}x",
    }
    return environment


def points_of_check(check: CheckResult) -> str:
    """Return a check's points of those possible; extra points have no maximum."""
    earned, possible = (points_text(round(points, 2)) for points in (check.points, check.max_points))
    return f"{earned} extra" if possible == "0" and not check.required else f"{earned}/{possible}"


def _shown(value: Any) -> Any:
    return visible(value) if type(value) is str else value  # Markup was made of text that passed through here


def lines(texts: Iterable[str]) -> Any:
    """Return texts as HTML, one per line."""
    return Markup("\n").join(visible(line.expandtabs(4)) for text in texts for line in text.splitlines())


def interval(measurement: Measurement) -> str:
    """Return a speedup's interval, or the error of an estimate from sampled blocks."""
    if measurement.low is not None and measurement.high is not None:
        return f"{measurement.low:.3f}x to {measurement.high:.3f}x"
    return f"±{measurement.sampling_error_pct:.1f} %" if measurement.sampling_error_pct else UNKNOWN


def of_peak(measurement: Measurement) -> str:
    """Return the reached share of the memory's peak bandwidth."""
    reached, peak = measurement.bandwidth_gb_s, measurement.peak_bandwidth_gb_s
    return UNKNOWN if reached is None or not peak else f"{100 * reached / peak:.0f} %"
