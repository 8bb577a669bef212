"""A second process that runs cases at the same time: its results are those of one process."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

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
from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.correctness import ahead as ahead_module
from pytest_gpulab.grading.correctness.ahead import FoundAhead, counts_early
from pytest_gpulab.grading.correctness.outcomes import CaseLimits
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.grader import Grader

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
    ],
)
def test_errors_of_devices_pass_between_processes(error: DeviceError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)


Ahead = Literal["nothing", "cases", "all"]


def results_of(path: Path, exercise: str, ahead: Ahead, device: Device | None = None) -> list[CheckResult]:
    loaded, device = Catalogue(ROOT / "exercises").load(exercise), device or open_device("sim")[0]
    limits = CaseLimits(smallest="none", ahead=ahead)  # this process searches, whatever the second one does
    with closing(Grader(loaded, path, device, seed=1, limits=limits)) as grader:
        return [replace(grader.run(check), duration_s=0.0) for check in checks_of(loaded.exercise)]


@pytest.mark.parametrize(
    "name",
    ["transpose/missing_barrier.cu", "transpose/guard_of_the_read.cu", "scan/sums_by_all_threads.cu"],
)
def test_outcomes_of_the_second_process_are_those_of_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def take(self: FoundAhead[object], name: str) -> object:
        """Leave every case to the second process."""
        while name not in self._found:
            self._found.update([pickle.load(self._results)])
        taken.append(name)
        return self._found.pop(name)

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    path, exercise = ROOT / "tests/wrong" / name, name.partition("/")[0]
    alone = results_of(path, exercise, "nothing")
    monkeypatch.setattr(FoundAhead, "take", take)
    assert results_of(path, exercise, "cases") == alone
    assert len(taken) == sum(result.kind == "correct" for result in alone)


def test_counts_of_the_second_process_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "solutions/transpose/01_shared_tile.cu"
    taken, take = [], FoundAhead.take

    def noted(self: FoundAhead[object], name: str) -> object:
        found = take(self, name)
        taken.extend([name] * (found is not None))
        return found

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr(FoundAhead, "take", noted)
    monkeypatch.setattr(ahead_module, "counts_early", lambda cases, counts, has_failed: [counts])
    device = open_device("sim")[0]
    alone = results_of(ROOT / path, "transpose", "all", device)  # without known costs of baselines
    assert not taken
    assert results_of(ROOT / path, "transpose", "all", device) == alone
    assert taken == [result.name for result in alone if result.kind in ("uses", "speedup")]


@pytest.mark.unit
def test_counts_come_early_unless_a_case_has_failed() -> None:
    order = counts_early(["a", "b", "c"], ["u", "s"], lambda: False)
    assert [*order] == [("c",), ["u", "s"], ("b",), ("a",), ["u", "s"]]
    assert [*counts_early(["a", "b"], ["u"], lambda: True)] == [("b",), ("a",), ["u"]]


def test_names_of_a_group_are_claimed_together_and_a_failure_is_seen_by_both() -> None:
    proceed = os.pipe()

    def order(ahead: FoundAhead[int]) -> Iterator[Sequence[str]]:
        os.read(proceed[0], 1)
        yield "cd" if ahead.has_failed else "b"
        yield "ab"

    ahead = FoundAhead("abcd", lambda name: os.getpid(), order)
    assert ahead.take("a") is None and not ahead.has_failed
    ahead.note_failure()
    os.write(proceed[1], b" ")
    while not ahead._claims[2]:
        time.sleep(0.001)
    assert {ahead.take("c"), ahead.take("d")} == {ahead._process}
    assert ahead.take("b") is None, "this process has claimed a part of the group"
    ahead.close()


def test_one_core_has_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a second process"))
    results_of(ROOT / "tests/wrong/transpose/guard_of_the_read.cu", "transpose", "cases")
