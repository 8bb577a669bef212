"""How long the CPU takes for an exercise's reference: measured once on a machine, in full, and of no consequence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from clocked_device import TIERS, ClockedBench
from doubling import reference, right
from hang_guard import HANG_S

from pytest_gpulab.exercise import Array, Expected, Problem, SpeedTier, Variant
from pytest_gpulab.grading.speed import reference_time

SIZE = TIERS[0].size


def taking(took_s: float, calls: list[int]) -> Callable[[Problem, Mapping[str, Array]], Expected]:
    """Return a reference that takes so long at the timed size, and notes when it is asked for that."""

    def slow(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
        if problem.size == SIZE:
            calls.append(len(calls))
            time.sleep(took_s)
        return reference(problem, inputs)

    return slow


def there(problem: Problem, inputs: Mapping[str, Array], places: Mapping[str, Array]) -> Expected:
    return Expected({"out": 2.0 * inputs["in"][places["out"]]}, {"out": 1e-5})


def refused(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.fixture
def clocked(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> ClockedBench:
    """Verdicts take no reference of all elements here."""
    monkeypatch.setattr("pytest_gpulab.grading.speed.sampled_comparison.SAMPLED_ABOVE", SIZE - 1)
    return clocked


def told(clocked: ClockedBench, took_s: float, calls: list[int], costs_ms: float = 1.0, **changes: Any) -> Any:
    changes = {"speed": (SpeedTier(1.5, 40, SIZE),), "reference_at": there, **changes}
    (result,) = (
        result
        for name, result in clocked.results(right(costs_ms), reference=taking(took_s, calls), **changes).items()
        if name.startswith("speedup")
    )
    assert result.verdict == ("passed" if costs_ms == 1.0 else "missed")
    return result.measurement.reference_ms


def test_it_is_measured_in_full_and_once_for_all_submissions(clocked: ClockedBench) -> None:
    calls: list[int] = []
    first = told(clocked, 0.02, calls)
    assert 20.0 <= first < 2000.0
    assert told(clocked, 0.0, calls) == told(clocked, 0.0, calls, costs_ms=3.0) == first
    assert not reference_time.goes_on()
    assert len(calls) == 1


@pytest.mark.parametrize(
    "changes", [{"version": "8"}, {"speed": (SpeedTier(1.5, 40, SIZE, variant=Variant("other", {"N": "1"})),)}]
)
def test_another_exercise_or_variant_is_another_reference(clocked: ClockedBench, changes: Any) -> None:
    calls: list[int] = []
    told(clocked, 0.0, calls)
    told(clocked, 0.0, calls, **changes)
    assert len(calls) == 2


def test_its_code_is_another_reference(clocked: ClockedBench) -> None:
    calls: list[int] = []
    told(clocked, 0.0, calls)
    (clocked.folder / "beside.py").write_text("# changed\n")
    told(clocked, 0.0, calls)
    assert len(calls) == 2


def test_its_code_may_be_in_any_encoding(clocked: ClockedBench) -> None:
    (clocked.folder / "beside.py").write_bytes("# -*- coding: latin-1 -*-\n# ä\n".encode("latin-1"))
    assert told(clocked, 0.0, []) > 0


def test_tiers_of_one_race_ask_once(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float | None] = []

    def counting(*told: Any) -> float | None:
        asked.append(None if not asked else 1.5)
        return asked[-1]

    monkeypatch.setattr("pytest_gpulab.grading.speed.measured.reference_ms", counting)
    tiers = tuple(SpeedTier(factor, 10, SIZE) for factor in (1.2, 1.3, 1.4, 1.5))
    results = clocked.results(right(1.0), speed=tiers)
    known = [result.measurement.reference_ms for result in results.values() if result.measurement is not None]
    assert known == [None, 1.5, 1.5, 1.5]  # unknown for now: it asks again
    assert len(asked) == 2


def test_where_no_further_thread_is_allowed_it_is_measured_another_time(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refused)
        assert told(clocked, 0.0, calls) is None
    assert not calls and told(clocked, 0.0, calls) > 0


def test_where_memory_is_short_it_is_unknown(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*asked: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(reference_time, "expected_of", short)
    assert told(clocked, 0.0, []) is None


def test_a_slow_reference_is_not_waited_for_again(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_time, "LIMIT_S", 0.05)
    calls: list[int] = []
    is_over = threading.Event()
    monkeypatch.setattr(time, "sleep", lambda took_s: is_over.wait(HANG_S) if took_s == 1e9 else None)
    assert told(clocked, 1e9, calls) is None
    assert reference_time.goes_on()
    assert told(clocked, 0.0, calls) is None
    assert len(calls) == 1
    is_over.set()


def test_another_process_that_measures_it_is_not_waited_for(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def measuring(*_: Any) -> str:
        assert told(clocked, 0.0, calls) is None
        return "1.5"

    monkeypatch.setattr(reference_time, "_measured", measuring)
    assert told(clocked, 0.0, calls) == 1.5
    assert not calls
