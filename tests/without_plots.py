"""The instructor's report without plots, which take most of its time; tests of pages and figures have them."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the HTML report without plots."""
    from pytest_gpulab.reports.instructor import page, plots

    def nothing(*_: object) -> None:
        return None

    for name in ("score_plot", "speed_plot", "roofline_plot"):
        monkeypatch.setattr(plots, name, nothing)
    monkeypatch.setattr(page, "inline", lambda drawing, sheet: "")
