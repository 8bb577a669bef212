"""The process of the simulator cross-check: its cases are too large, it is missing, late, broken, ahead, or ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from hang_guard import HANG_S
from lucky_device import ALONE_VARIABLE
from remote_class import KERNEL, READS_BEYOND, Class

from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.isolation import cross_check, worker_process


@pytest.fixture
def bench(lucky: Class) -> Class:
    return lucky


def results(bench: Class, text: str) -> dict[str, CheckResult]:
    return {result.name: result for result in bench.grader(text).grade().checks}


LARGE = 'cases=(Case("n=2^21+1", (1 << 21) + 1, 60),),'


def large(bench: Class, cases: str = LARGE) -> Class:
    """Leave only a case that is too large for the simulated GPU, or others."""
    file = bench.exercise.folder / "exercise.py"
    lines = [cases if line.strip().startswith("cases=") else line for line in file.read_text().splitlines()]
    file.write_text("\n".join(lines))
    bench.exercise = Catalogue(bench.exercise.folder.parent).load("twice")
    bench.checks = {check.name: check for check in checks_of(bench.exercise.exercise)}
    return bench


def test_a_visible_mistake_is_not_explained_by_a_hidden_case(bench: Class) -> None:
    cases = 'cases=(Case("n=2^21+1", (1 << 21) + 1, 40), Case("n=31", 31, 20, hidden=True)),'
    for hidden in (True, False):
        bench = large(bench, cases if hidden else cases.replace(", hidden=True", ""))
        with closing(bench.grader(KERNEL.replace("2 *", "3 *"))) as grader:
            (finding,) = grader.run(bench.checks["correct[n=2^21+1]"]).findings
        assert any("the case n=31 on the simulated GPU" in line for line in finding.evidence) is not hidden


def notes(found: dict[str, CheckResult]) -> list[str]:
    assert {result.verdict for result in found.values()} == {"passed"}
    assert sum(result.points for result in found.values()) == 100
    return [finding.what for result in found.values() for finding in result.findings]


def test_a_case_too_large_to_simulate_keeps_the_gpus_result(bench: Class) -> None:
    (note,) = notes(results(large(bench), READS_BEYOND.replace("[i + 1]", "[n < 10000 ? 0 : i + 1]")))
    assert note.startswith("Checked on the GPU only: Not graded, because `correct[n=2^21+1]` did not pass: ")
    assert note.endswith("The case is too large for the simulated GPU: only the real GPU checks it.")


def test_without_a_simulated_gpu_the_real_ones_word_stands(bench: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALONE_VARIABLE, "1")
    (note,) = notes(results(bench, READS_BEYOND))
    assert note == "Checked on the GPU only: there is no simulated GPU: NVRTC is not installed"


def test_without_room_for_its_process_the_real_ones_word_stands(bench: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(worker_process.Worker):
        def _start(self, under: Sequence[str], program: str) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(cross_check, "Worker", Refused)
    (note,) = notes(results(bench, READS_BEYOND))
    what = "its process cannot be started: the folder for temporary files (TMPDIR) is full: No space left on device"
    assert note == f"Checked on the GPU only: there is no simulated GPU: {what}"


def test_results_before_closing_are_requested_again_after_it(bench: Class) -> None:
    with closing(bench.grader(READS_BEYOND)) as grader:
        check = grader._cross_check
        assert check is not None
        check.prefetch(bench.checks["compile"])
        check.close()
        for name in ("correct[n=31]", "safe[memory]", "correct[n=1]"):
            result = grader.run(bench.checks[name])
            assert (result.verdict, result.findings[0].code) == ("failed", "out-of-bounds")
        assert all(result.name == name for name, result in check._results.items())


def test_after_an_exception_in_one_check_the_next_has_its_cross_check(
    bench: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with closing(bench.grader(READS_BEYOND)) as grader:
        with monkeypatch.context() as patch:
            patch.setattr(grader, "_graded", interrupted)
            with pytest.raises(KeyboardInterrupt):
                grader.run(bench.checks["correct[n=1]"])
        result = grader.run(bench.checks["correct[n=31]"])
        assert (result.verdict, result.findings[0].code) == ("failed", "out-of-bounds")


def test_a_simulated_gpu_that_takes_too_long_costs_no_points(bench: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(worker_process.Worker):
        def answer(self, limit_s: float) -> dict[str, Any]:
            assert 0 <= limit_s <= cross_check.LIMIT_S
            time.sleep(0.01)
            if limit_s <= cross_check.LIMIT_S - 0.02:
                raise worker_process.Hung
            return super().answer(limit_s)

    monkeypatch.setattr(cross_check, "Worker", Slow)
    monkeypatch.setattr(cross_check, "LIMIT_S", 0.05)
    lucky_at_the_third_case = READS_BEYOND.replace("in[i + 1]", "n == 100 ? in[i + 1] : 0")
    (note,) = notes(results(bench, lucky_at_the_third_case))
    assert note == "Checked on the GPU only: the simulated GPU would have taken more than 0.05 s"


def test_a_bug_of_the_simulated_gpu_costs_no_points(bench: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    lucky = worker_process.COMMAND[-1]
    broken = lucky.replace("main(int", "import lucky_device; lucky_device.SimulatedDevice = None; main(int")
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", broken))
    (note,) = notes(results(bench, READS_BEYOND))
    assert note.startswith("Checked on the GPU only: the simulated GPU has a bug: TypeError: ")


def test_a_file_that_does_not_compile_fails_as_ever(bench: Class) -> None:
    found = results(bench, KERNEL.replace(";", ""))
    assert {result.verdict for result in found.values()} == {"failed"}
    assert all(finding.because in ("", "compile") for result in found.values() for finding in result.findings)


def test_the_simulated_gpu_works_ahead_while_the_real_one_is_busy(
    bench: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    class Recorded(worker_process.Worker):
        def send(self, request: dict[str, Any]) -> None:
            asked.append(request)
            super().send(request)

    monkeypatch.setattr(cross_check, "Worker", Recorded)
    with closing(bench.grader()) as grader:
        assert grader.run(bench.checks["compile"]).verdict == "passed"
        task, *requests = asked
        assert task["device"] == "sim"
        wanted = [name for name, check in bench.checks.items() if check.kind in ("compile", "correct", "safe")]
        assert requests == [{"check": name} for name in wanted]
        assert grader.run(bench.checks["correct[n=31]"]).verdict == "passed"
        assert len(asked) == 1 + len(requests)


def test_a_file_that_does_not_compile_is_not_simulated(bench: Class) -> None:
    grader = bench.grader(KERNEL.replace(";", ""))
    with closing(grader):
        assert grader.run(bench.checks["compile"]).verdict == "failed"
        assert grader._cross_check is not None and grader._cross_check._worker is None


def test_closing_ends_both_processes(bench: Class) -> None:
    grader = bench.grader()
    assert grader.run(bench.checks["correct[n=1]"]).verdict == "passed"
    workers: list[Any] = [grader._worker, grader._cross_check._worker]  # type: ignore[union-attr]
    grader.close()
    end_s = time.monotonic() + HANG_S
    while any(worker._process.returncode is None for worker in workers):
        assert time.monotonic() < end_s
        time.sleep(0.02)
