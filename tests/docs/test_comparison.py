"""The comparison of samples with output forgives what may differ, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import blocks, first_difference

TABLE = """\
=============== gpulab: reduction, speed at 2^23 ===============
submission    verdict  points       ms  total  needs  occup.  regs
01_neighbored  failed*  60/100   ~0.103  ~0.88x  1.4x    100%    15
02_strided     passed   70/100  ~0.0541  ~1.68x  1.4x    100%    14
missed speedup[2.4x]: too-slow: An estimated speedup of ~1.68x over naive.cu.
Repeat this run with --gpulab-seed=1323.

=================== 5 passed in 62.62s (0:01:02) ===================
"""


def test_times_estimates_and_seeds_may_differ() -> None:
    other = TABLE.replace("~0.103", "~0.0998 ").replace("1.68x", "1.71x").replace("15\n", "9\n").replace("1323", "7")
    assert first_difference(TABLE.splitlines(), other.replace("62.62s (0:01:02)", "3.01s")) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("60/100", "78/100"),
        ("failed*", "failed"),
        ("1.4x    100%    15", "1.5x    100%    15"),
        ("speedup[2.4x]", "speedup[2x]"),
        ("2^23", "2^20"),
        ("~0.0541", "~0.0701"),  # estimates may differ, but not by so much
        ("~1.68x", "~1.3x"),
        ("02_strided     passed   70/100  ~0.0541  ~1.68x  1.4x    100%    14\n", ""),
        ("5 passed", "5 passed, 1 failed"),
        ("ms  total", "ms  step  total"),
    ],
)
def test_verdicts_points_and_shape_may_not(old: str, new: str) -> None:
    assert old in TABLE
    assert first_difference(TABLE.splitlines(), TABLE.replace(old, new, 1))


def test_three_dots_stand_for_lines_or_text() -> None:
    output = "a\nb\nc is 17\nd\n"
    assert first_difference(["a", "...", "d"], output) == ""
    assert first_difference(["...", "c is ...", "..."], output) == ""
    assert first_difference(["a", "c is ...", "..."], output)
    assert first_difference(["...", "e", "..."], output)
    assert first_difference(["a", "b"], output)


def test_a_difference_names_the_line_that_does_not_fit() -> None:
    assert "line 2 does not fit: x" in first_difference(["a", "x"], "a\nb\n")


def test_a_block_that_does_not_end_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```console\n$ pytest\n")
    with pytest.raises(AssertionError, match="does not end"):
        blocks(page)


def test_a_long_reason_for_the_device_may_be_wrapped() -> None:
    shown = ["gpulab: simulated GPU (x), because no CUDA device: none", "gpulab: seed 1"]
    printed = "gpulab: simulated GPU (x), because no CUDA device: the driver\n  finds no device\ngpulab: seed 2\n"
    assert first_difference(shown, printed) == ""
    assert first_difference(shown, printed.replace("  finds", "finds")) != ""
