"""Failures that an exercise's own baseline shares are the exercise's fault, on the simulated GPU and on a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubling import Bench, faulting, program, right
from remote_class import EXERCISE, KERNEL, READS_BEYOND, Class

from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.exercise import Expected
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.correctness.blame import Blame
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.grader import Grader

NAIVE = KERNEL.replace("2 * in", "in[i] + in")
READS_FIRST = "    __shared__ int tile[32];\n    volatile int *cell = tile;\n    int none = cell[threadIdx.x] & 0;\n"
TRAP = ("if (i < n)", "if (n == 31) __trap();\n    if (i < n)")
FAILS_TOO = "The exercise's own baseline naive.cu fails here, too: "
SAFE = ('SafeCheck("memory", 10)', 'SafeCheck("memory", 5), SafeCheck("uninitialised", 5)')


def written(folder: Path, change: tuple[str, str] = ("", ""), naive: str = NAIVE) -> Class:
    """Return the exercise with a mistake."""
    bench = Class(folder)
    assert change[0] in EXERCISE
    text = EXERCISE.replace(*change) if change[0] else EXERCISE
    (bench.exercise.folder / "exercise.py").write_text(f"{text}# changed\n")  # its length tells Python that it is new
    (bench.exercise.folder / "naive.cu").write_text(naive)
    bench.exercise = Catalogue(bench.exercise.folder.parent).load("twice")
    return bench


def graded(bench: Class, text: str) -> dict[str, CheckResult]:
    bench.submission.write_text(text)
    grade = Grader(bench.exercise, bench.submission, SimulatedDevice(), 1).grade()
    return {result.name: result for result in grade.checks}


def blamed(found: dict[str, CheckResult]) -> list[str]:
    """Return the checks that did not pass; all of them must be the exercise's fault."""
    wrong = [name for name, result in found.items() if result.verdict != "passed"]
    assert all(found[name].is_exercises_mistake and not found[name].points for name in wrong), found
    return wrong


@pytest.mark.simulator
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("np.int32(n))", "np.int64(n))"), "Parameter 3 (`n`) of `twice` is `int`"),
        (("np.int32(n))),", "np.int32(n)), 1 << 20),"), "1048576 bytes of shared memory per block"),
        (("cases=(Case(", "headers=('none.cuh',),\n    cases=(Case("), ""),
    ],
    ids=["another parameter", "too much shared memory", "a missing header"],
)
def test_a_plan_that_fits_neither_file_is_at_fault(change: tuple[str, str], reason: str, tmp_path: Path) -> None:
    bench = written(tmp_path, change)
    found = graded(bench, KERNEL)
    assert blamed(found) == list(bench.checks)
    if reason:
        assert found["compile"].findings[0].what.startswith(FAILS_TOO) and reason in found["compile"].findings[0].what
    assert found["safe[memory]"].findings[0].because == "compile"


@pytest.mark.simulator
def test_a_macro_of_a_variant_with_which_neither_file_compiles(tmp_path: Path) -> None:
    variant = (
        'Case("n=1", 1, 20, ("random",), __import__("pytest_gpulab.exercise").exercise.Variant("v", {"int": "itn"}))'
    )
    bench = written(tmp_path, ('Case("n=1", 1, 20)', variant))
    found = graded(bench, KERNEL)
    assert blamed(found) == ["compile", "correct[n=1]", "safe[memory]"]
    assert 'identifier "itn" is undefined' in found["compile"].findings[0].what


@pytest.mark.simulator
def test_a_copy_of_the_baseline_is_no_more_at_fault_than_another_file(tmp_path: Path) -> None:
    bench = written(tmp_path, ('2 * inputs["in"]', '3 * inputs["in"]'))
    assert len(blamed(graded(bench, NAIVE))) == 5
    assert not blamed(graded(written(tmp_path / "right"), NAIVE))


@pytest.mark.simulator
def test_a_hazard_that_the_baseline_has_too(tmp_path: Path) -> None:
    first, second = (
        text.replace("    if", f"{READS_FIRST}    if").replace("out[i] =", "out[i] = none +")
        for text in (KERNEL, NAIVE)
    )
    found = graded(written(tmp_path / "shared", SAFE, second), first)
    assert blamed(found) == ["safe[uninitialised]"]
    assert found["safe[uninitialised]"].findings[0].what.startswith(FAILS_TOO)
    own = graded(written(tmp_path / "own", SAFE), first)
    assert own["safe[uninitialised]"].verdict == "failed"


@pytest.mark.simulator
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('2 * inputs["in"]', '2 * inputs["in"] + (problem.size > 2000)'), "all 4096 elements are wrong"),
        (("speed=(", "min_bytes=lambda problem: 80 * problem.size,\n    speed=("), "but `min_bytes` is 0.328 MB"),
    ],
    ids=["a reference that is wrong at the timed size", "bytes that no kernel moves"],
)
def test_a_mistake_at_the_timed_size_only(change: tuple[str, str], reason: str, tmp_path: Path) -> None:
    found = graded(written(tmp_path, change), KERNEL)
    assert blamed(found) == ["speedup[0.5x]"]
    assert reason in found["speedup[0.5x]"].findings[0].what


@pytest.mark.simulator
def test_the_baseline_of_wrong_submissions_runs_a_case_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []
    run = Blame._run_baseline
    monkeypatch.setattr(Blame, "_run_baseline", lambda self, *words: runs.append(words) or run(self, *words))
    bench, device = written(tmp_path), SimulatedDevice()
    for seed, count in ((1, 1), (1, 1), (2, 2)):
        bench.submission.write_text(KERNEL.replace("2 *", "3 *"))
        assert Grader(bench.exercise, bench.submission, device, seed).grade().checks[1].verdict == "failed"
        assert len(runs) == count


def tripled(problem: Any, inputs: Any) -> Expected:
    return Expected({"out": 3.0 * inputs["in"]}, {"out": 1e-5})


class Gpu(Bench):
    """Grading runs in the process with the GPU, for which a fake device stands."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, estimates=False)


def test_results_that_the_baseline_shares_on_a_gpu(tmp_path: Path) -> None:
    bench = Gpu(tmp_path)
    found = bench.results(right(), reference=tripled)
    assert {name for name in found if name.startswith("correct")} <= set(blamed(found))
    assert found["correct[n=4]"].findings[0].what.startswith(FAILS_TOO)
    assert not bench.device.held


def test_a_wrong_result_of_its_own_on_a_gpu_costs_one_run_of_the_baseline(tmp_path: Path) -> None:
    def wrong(options: Any, source: Any, out: Any, n: Any) -> None:
        out.values[:n] = np.float32(7)

    bench = Gpu(tmp_path)
    found = bench.results(program(wrong))
    assert found["correct[n=4]"].verdict == found["correct[n=70]"].verdict == "failed"
    assert [text for text, *_ in bench.device.compiled].count("naive") == 1


def test_the_baseline_does_not_run_after_a_fault_that_breaks_the_gpu(tmp_path: Path) -> None:
    bench = Gpu(tmp_path)
    assert bench.results(faulting("device-fault"), reference=tripled)["correct[n=4]"].verdict == "failed"
    assert "naive" not in [text for text, *_ in bench.device.compiled]


@pytest.mark.parametrize(
    ("change", "naive", "text", "names"),
    [
        (("2 * inputs", "3 * inputs"), NAIVE, KERNEL, ["correct[n=1]", "correct[n=31]", "correct[n=100]"]),
        (
            ("", ""),
            READS_BEYOND,
            READS_BEYOND.replace("2 *", "(1 + 1) *"),
            ["correct[n=1]", "correct[n=31]", "correct[n=100]"],
        ),
        (("", ""), NAIVE.replace(*TRAP), KERNEL.replace(*TRAP), ["correct[n=31]"]),
    ],
    ids=["wrong results", "accesses that hardware tolerates", "a fault that breaks the GPU"],
)
@pytest.mark.usefixtures("lucky_gpu")
def test_a_gpu_and_the_simulated_one_beside_it(
    change: tuple[str, str], naive: str, text: str, names: list[str], tmp_path: Path
) -> None:
    """The GPU's process compares wrong results, the simulated GPU what breaks a GPU or what it tolerates."""
    bench = written(tmp_path, change, naive)
    bench.on_a_gpu()
    found = {result.name: result for result in bench.grader(text).grade().checks}
    wrong = blamed(found)
    assert [name for name in wrong if name.startswith("correct")] == names
    assert "speedup[0.5x]" in wrong and all(FAILS_TOO in found[name].findings[0].what for name in wrong)
