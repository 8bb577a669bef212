"""The registry of report formats."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from examples import ENVIRONMENT, check, only

from pytest_gpulab.plugin.settings import REPORT_FORMATS
from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.gradebook import Gradebook

pytestmark = pytest.mark.unit

FILES = [name for name in REPORT_FORMATS if name not in ("html", "annotated", "feedback", "explain")]
CONTEXT = Context(environment=ENVIRONMENT)


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Let every file end there, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_every_format_that_can_be_asked_for_has_a_writer() -> None:
    assert tuple(formats.MODULES) == REPORT_FORMATS


@pytest.mark.parametrize("name", REPORT_FORMATS)
def test_a_report_that_cannot_be_written_has_a_one_line_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "grades.json"
    for attempt in (
        lambda: formats.check(name, path, Context()),
        lambda: formats.write(name, path, Gradebook(), Context()),
    ):
        with pytest.raises(ReportError) as caught:
            attempt()
        assert "\n" not in str(caught.value)


def test_a_link_that_leads_nowhere_survives_the_check(tmp_path: Path) -> None:
    link = tmp_path / "grades.json"
    link.symlink_to(tmp_path / "elsewhere.json")
    formats.check("json", link, Context())
    assert link.is_symlink() and list(tmp_path.iterdir()) == [link]


def test_a_file_that_is_there_survives_the_check(tmp_path: Path) -> None:
    path = tmp_path / "grades.json"
    path.write_text("kept")
    formats.check("json", path, Context())
    assert path.read_text() == "kept"


@pytest.mark.parametrize("name", FILES)
def test_a_full_disk_is_reported_and_leaves_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "grades.json").write_text("an earlier run's")
    with files_of_at_most(20), pytest.raises(ReportError, match=r"cannot write the report .*: File too large$"):
        formats.write(name, tmp_path / "grades.json", only(check("a")), CONTEXT)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FILES)
def test_a_run_that_ends_while_it_writes_leaves_the_file_as_it_was(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path, data: bytes) -> None:
        with path.open("wb") as file:
            file.write(data[:10])
        raise KeyboardInterrupt

    path = tmp_path / "grades.json"
    path.write_text("an earlier run's")
    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        formats.write(name, path, only(check("a")), CONTEXT)
    assert path.read_text() == "an earlier run's" and list(tmp_path.iterdir()) == [path]


def test_a_rewritten_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "grades.csv"
    path.touch(0o600)
    formats.write_text(path, "new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o600


def test_a_link_a_pipe_and_a_mounted_file_are_written_to_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link, pipe = (tmp_path / name for name in ("file", "link", "pipe"))
    link.symlink_to(path)
    formats.write_text(link, "through a link")
    assert link.is_symlink() and path.read_text() == "through a link"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    formats.write_text(pipe, "through a pipe")
    assert os.read(reading, 99) == b"through a pipe"
    os.close(reading)

    def busy(*_: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    formats.write_text(path, "mounted")
    assert path.read_text() == "mounted" and sorted(tmp_path.iterdir()) == [path, link, pipe]


def test_a_table_with_unwritable_details_is_refused_before_grading(tmp_path: Path) -> None:
    (tmp_path / "grades-details.csv").mkdir()
    with pytest.raises(ReportError, match=r"grades-details\.csv: Is a directory$"):
        formats.check("csv", tmp_path / "grades.csv", CONTEXT)


def test_a_report_makes_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "dir" / "grades.csv"
    formats.check("csv", path, Context())
    assert list(tmp_path.iterdir()) == [], "a check leaves no trace"
    formats.write("csv", path, only(check("a")), Context())
    assert {file.name for file in path.parent.iterdir()} == {"grades.csv", "grades-details.csv"}
