"""A second process that runs cases, counts and estimates at the same time: its results are those of one process."""

from __future__ import annotations

import os
import pickle
from collections.abc import Hashable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.errors import (
    CannotSimulate,
    CompileError,
    DeviceError,
    KernelFault,
    Lane,
    OutOfMemory,
    SourceLine,
)
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.compilation.builds import BuildFailed
from pytest_gpulab.grading.correctness.ahead import FoundAhead
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.time_limits import CaseLimits

ROOT = Path(__file__).resolve().parents[2]


def test_each_process_finds_what_the_other_has_not_begun() -> None:
    begun, proceed = os.pipe(), os.pipe()

    def find(name: str) -> tuple[str, int]:
        if name == "b":
            os.write(begun[1], b" ")
            os.read(proceed[0], 1)
        return name, os.getpid()

    ahead = FoundAhead("abcd", find)
    os.read(begun[0], 1)  # the second process works on "b"
    assert ahead.take("a") is None and ahead.take("unknown") is None
    os.write(proceed[1], b" ")
    found = [ahead.take(name) for name in "bcd"]
    assert [each[0] for each in found if each] == list("bcd")
    assert os.getpid() not in {each[1] for each in found if each}
    ahead.close()


@pytest.mark.parametrize("ending", ["none", "error", "killed"])
def test_after_the_end_of_the_second_process_this_one_finds_the_rest(ending: str) -> None:
    def find(name: str) -> str | None:
        if name == "b":
            if ending == "killed":
                os.kill(os.getpid(), 9)
            return {"none": None}[ending]
        return name

    ahead = FoundAhead("abc", find)
    while ahead._results.peek(1) and "c" not in ahead._found:  # type: ignore[attr-defined]
        ahead._found.update([pickle.load(ahead._results)])
    assert [ahead.take(name) for name in "abc"] == [None, None, "c"]
    ahead.close()


@pytest.mark.unit
@pytest.mark.parametrize(
    "error",
    [
        DeviceError("broken"),
        CompileError("a.cu(1): error"),
        CannotSimulate("a cluster", SourceLine("a.cu", 3)),
        OutOfMemory("no memory"),
        KernelFault("barrier", "stuck", SourceLine("a.cu", 3), Lane((0, 0, 0), (1, 0, 0)), "said", launch="first"),
        BuildFailed("failed", finding("time-limit", "it had not ended"), fits_others=True),
    ],
)
def test_errors_pass_between_processes(error: DeviceError | BuildFailed) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)


def results_of(path: Path, exercise: str, is_ahead: bool) -> list[CheckResult]:
    loaded, device = Catalogue(ROOT / "exercises").load(exercise), open_device("sim")[0]
    limits = CaseLimits(smallest="none", ahead=is_ahead)  # this process searches, whatever the second one does
    with closing(Grader(loaded, path, device, seed=1, limits=limits)) as grader:
        return [replace(grader.run(check), duration_s=0.0) for check in checks_of(loaded.exercise)]


@pytest.mark.parametrize(
    ("name", "barrier"),
    [
        ("tests/wrong/transpose/missing_barrier.cu", ""),
        ("tests/wrong/transpose/guard_of_the_read.cu", ""),
        ("tests/wrong/scan/sums_by_all_threads.cu", ""),
        ("tests/wrong/reduction/copy_never_awaited.cu", ""),
        ("solutions/transpose/01_shared_tile.cu", ""),
        ("solutions/transpose/01_shared_tile.cu", "do __syncthreads(); while (width == 61);"),
    ],
)
def test_results_of_the_second_processes_are_those_of_one(
    name: str, barrier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def take(self: FoundAhead[Hashable, object], name: Hashable) -> object:
        """Leave every case, count and estimate to a second process."""
        while name not in self._found:
            self._found.update([pickle.load(self._results)])
        taken.append(name)
        return self._found.pop(name)

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    path = ROOT / name
    exercise = path.parent.name
    if barrier:
        text = path.read_text()
        path = tmp_path / path.name
        path.write_text(text.replace("__syncthreads();", barrier))
    alone = results_of(path, exercise, is_ahead=False)
    monkeypatch.setattr(FoundAhead, "take", take)
    assert results_of(path, exercise, is_ahead=True) == alone
    counts = 2 if alone[-1].measurement else 0  # the estimate of all tiers comes with the second one
    rest = 1 if barrier else 0  # after a case that does not end, this process runs the others
    assert len(taken) + rest == counts + sum(result.kind == "correct" for result in alone)


def test_one_core_has_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a second process"))
    results_of(ROOT / "tests/wrong/transpose/guard_of_the_read.cu", "transpose", is_ahead=True)
