"""The registry of report formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.settings import REPORT_FORMATS


def test_every_format_that_can_be_asked_for_has_a_writer() -> None:
    assert tuple(formats.MODULES) == REPORT_FORMATS


@pytest.mark.parametrize("name", REPORT_FORMATS)
def test_what_cannot_be_written_is_said_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "grades.json"
    for attempt in (
        lambda: formats.check(name, path, Context()),
        lambda: formats.write(name, path, Gradebook(), Context()),
    ):
        with pytest.raises(ReportError) as caught:
            attempt()
        assert "\n" not in str(caught.value)


def test_a_file_that_is_there_survives_the_check(tmp_path: Path) -> None:
    path = tmp_path / "grades.json"
    path.write_text("kept")
    formats.check("json", path, Context())
    assert path.read_text() == "kept"
