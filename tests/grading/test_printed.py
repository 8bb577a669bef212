"""Output of kernels on a GPU: long output is counted instead of stored, and belongs to one check."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import IO

import pytest

from pytest_gpulab.exercise import Case
from pytest_gpulab.grading.checks import Check
from pytest_gpulab.grading.diagnosis.compare import MAX_PRINTED_CHARS
from pytest_gpulab.grading.isolation import worker
from pytest_gpulab.grading.isolation.worker import PIECE_BYTES, _RequestHandler

pytestmark = pytest.mark.unit

CORRECT, SAFE = Check("correct[n=1]", "correct", 1.0, True, Case("n=1", 1, 1)), Check("safe", "safe", 1.0, True, None)


class Spill:
    """A file that notes the largest piece that was asked of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.largest = file, 0
        self.seek, self.truncate, self.fileno = file.seek, file.truncate, file.fileno

    def read(self, nbytes: int = 1 << 62) -> bytes:
        self.largest = max(self.largest, nbytes)
        return self.file.read(nbytes)


@pytest.fixture
def printed() -> Iterator[Spill]:
    with tempfile.TemporaryFile() as file:
        yield Spill(file)


def answered(printed: Spill, contents: bytes, check: Check) -> str:
    """Return what a check's result says was printed, if the driver writes this meanwhile."""

    def run(check: Check) -> object:
        os.write(printed.fileno(), contents)
        return check.result("passed")

    bench = _RequestHandler.__new__(_RequestHandler)
    bench._printed, bench.device = printed, None  # type: ignore[assignment]
    bench._checks = {check.name: check}
    bench._grader = SimpleNamespace(run=run, countable=None, count=None)  # type: ignore[assignment]
    answer = bench.answer({"check": check.name})
    assert os.fstat(printed.fileno()).st_size == 0
    return str(answer["result"]["printed"])


def test_short_output_is_reported_completely_and_once(printed: Spill) -> None:
    assert answered(printed, "sum = 3 \u00fc\n".encode(), CORRECT) == "sum = 3 \u00fc\n"
    assert answered(printed, b"", CORRECT) == ""


@pytest.mark.parametrize("before", ["", "a"])
def test_the_beginning_of_long_output_is_reported_and_the_rest_counted(printed: Spill, before: str) -> None:
    """Characters of several bytes lie across the pieces' ends, and the last one is cut off."""
    chars = 3 * PIECE_BYTES
    told = answered(printed, (before + chars * "\u00fc").encode() + b"\xc3", CORRECT)
    beginning = (before + chars * "\u00fc")[:MAX_PRINTED_CHARS]
    more = len(before) + chars + 1 - MAX_PRINTED_CHARS
    assert told == f"{beginning}\n... and {more} more characters"
    assert printed.largest == PIECE_BYTES


def test_output_of_other_checks_is_not_read(printed: Spill) -> None:
    assert answered(printed, b"a" * 1000, SAFE) == "" and printed.largest == 0
    assert answered(printed, b"b", CORRECT) == "b"


def test_one_piece_contains_the_reported_output() -> None:
    assert worker.PIECE_BYTES >= 4 * (MAX_PRINTED_CHARS + 1)  # UTF-8
