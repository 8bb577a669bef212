"""The line that tells how far a long run is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_gpulab.course.progress import Pace, Progress, duration_text, fitted

pytestmark = pytest.mark.unit

BEGUN = Progress(
    total=500, stored=0, graded=0, failing=0, lost=0, running=("a/x.cu", "b/x.cu"), elapsed_s=3.0, quiet_s=0.0
)
HALFWAY = replace(BEGUN, stored=100, graded=150, failing=31, elapsed_s=300.0)


def test_the_first_line_names_the_running_submissions() -> None:
    assert BEGUN.line == "0/500 graded; now a/x.cu, b/x.cu"


def test_progress_shows_the_rate_and_the_time_left() -> None:
    line = "250/500 graded, 31 with failures; 100 of them earlier; 30 per minute, 8 min left; now a/x.cu, b/x.cu"
    assert HALFWAY.line == line
    assert HALFWAY.left_s == 250 * 300 / 150


def test_ungradable_submissions_are_counted_and_not_waited_for() -> None:
    progress = replace(HALFWAY, lost=250)
    assert progress.line.startswith("250/500 graded, 31 with failures, 250 not gradable; ")
    assert progress.left_s == 0


def test_at_the_end_it_tells_how_long_it_took() -> None:
    done = replace(HALFWAY, graded=400, running=())
    assert done.line == "500/500 graded, 31 with failures; 100 of them earlier; 80 per minute, in 5 min"


def test_the_remaining_time_is_omitted_while_a_job_hangs() -> None:
    last = replace(HALFWAY, graded=399, quiet_s=0.7)
    assert last.line.endswith("80 per minute, 1 s left; now a/x.cu, b/x.cu")
    hanging = replace(last, elapsed_s=420.0, quiet_s=120.0)
    assert hanging.left_s is None
    assert hanging.line == "499/500 graded, 31 with failures; 100 of them earlier; 57 per minute; now a/x.cu, b/x.cu"


def test_a_run_that_is_done_is_not_taken_to_hang() -> None:
    assert replace(HALFWAY, graded=400, running=(), quiet_s=9.0).line.endswith("80 per minute, in 5 min")


def test_many_workers_are_not_all_named() -> None:
    assert replace(BEGUN, running=tuple("abcde")).line.endswith("now a, b, c, and 2 more")


def test_slow_grading_is_counted_by_the_hour() -> None:
    assert "18.0 per hour, 2 h 00 min left" in replace(BEGUN, graded=1, total=37, elapsed_s=200.0).line


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (91, "2 min"), (5300, "88 min"), (5500, "1 h 32 min")]
)
def test_durations_have_sensible_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_line_is_cut_to_the_terminal() -> None:
    assert fitted("0123456789", 10) == "0123456789" and fitted("0123456789", 9) == "012345..."


def test_a_line_is_due_once_in_an_interval() -> None:
    pace = Pace(10.0, now_s=100.0)
    assert [pace.is_due(now_s) for now_s in (105.0, 110.0, 111.0, 119.0, 125.0, 130.0, 135.0)] == [
        False, True, False, False, True, False, True,
    ]  # fmt: skip
