"""Grade one speedup check in a process of its own, and print what came of it as one line of JSON.

Started by `gradings.py`. The exercise is cut down to one correctness case and one speed tier; everything else is what
grading always does: compile both, check the case, race, check what timed runs wrote.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.cuda.nvml import ConditionsReader
from pytest_gpulab.devices.stopwatch import Conditions
from pytest_gpulab.exercise import SpeedTier
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.speed import benchmark

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Task:
    """The specification of a grading.

    Attributes:
        exercise: its name.
        submission, baseline: the files.
        size: of both.
        threshold: None to take rounds for `seconds`, whatever they say, and to print all samples.
        seed: of all inputs.
        seconds: the longest race.
        variant: its name; the first tier's if empty.
    """

    exercise: str
    submission: str
    baseline: str
    size: int
    threshold: float | None
    seed: int
    seconds: float = benchmark.BUDGET_S
    variant: str = ""


def cut_down(loaded: LoadedExercise, task: Task) -> LoadedExercise:
    """Return the exercise with its first case and the tier that is asked for."""
    exercise = loaded.exercise
    variant = next(tier.variant for tier in exercise.speed if task.variant in ("", tier.variant.name))
    case = next(case for case in exercise.cases if case.variant == variant)
    tier = SpeedTier(task.threshold or 1.0, 50, task.size, required=True, baseline=task.baseline, variant=variant)
    cut = replace(exercise, cases=(replace(case, points=50),), safe=(), uses=(), speed=(tier,), compile_points=0)
    return loaded._replace(exercise=cut)


def grade(task: Task) -> dict[str, Any]:
    if task.threshold is None:
        benchmark.decide = lambda ratio, threshold: "undecided"  # type: ignore[assignment]
    benchmark.BUDGET_S = task.seconds
    samples, clocks_mhz = _spied_samples(), _spied_clocks()
    device, _ = open_device("cuda")
    loaded = cut_down(Catalogue(ROOT / "exercises").load(task.exercise), task)
    grader = Grader(loaded, Path(task.submission), device, task.seed)
    begin_s = time.perf_counter()
    (result,) = [grader.run(check) for check in checks_of(loaded.exercise) if check.kind == "speedup"]
    measured = result.measurement
    found: dict[str, Any] = {
        "verdict": result.verdict,
        "findings": [finding.what for finding in result.findings],
        "took_s": round(time.perf_counter() - begin_s, 3),
        "threshold": task.threshold,
    }
    if measured is not None:
        found |= {"ratio": measured.speedup, "low": measured.low, "high": measured.high, "own_ms": measured.elapsed_ms}
        found |= {"baseline_ms": measured.baseline_ms, "rounds": measured.rounds, "dropped": measured.dropped}
        found |= {"caches": measured.caches, "shared_with": list(measured.shared_with), "clocks_mhz": clocks_mhz}
    if task.threshold is None and samples:
        found["samples_us"] = [[round(1000 * ms, 3) for ms in side] for side in samples[-1]]
    device.close()
    return found


def _spied_samples() -> list[tuple[Any, Any]]:
    """Return a list to which the samples of both sides are added whenever a race looks at them."""
    seen: list[tuple[Any, Any]] = []
    judged = benchmark.ratio_of_medians

    def spying(baseline_ms: Any, own_ms: Any, seed: int = 0) -> Any:
        seen.append((baseline_ms, own_ms))
        return judged(baseline_ms, own_ms, seed)

    benchmark.ratio_of_medians = spying
    return seen


def _spied_clocks() -> list[int | None]:
    """Return a list to which each reading of the SM clock is added."""
    seen: list[int | None] = []
    read = ConditionsReader.read

    def spying(reader: ConditionsReader) -> Conditions:
        conditions = read(reader)
        seen.append(conditions.sm_clock_mhz)
        return conditions

    ConditionsReader.read = spying  # type: ignore[method-assign]
    return seen


if __name__ == "__main__":
    print(json.dumps(grade(Task(**json.loads(sys.argv[1])))))
