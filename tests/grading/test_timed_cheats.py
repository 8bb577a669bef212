"""Cheats at the timed size: replayed results, recognised inputs, skipped work, overwritten inputs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from clocked_device import SIZE, TIERS, ClockedBench, tier
from doubling import EXERCISE, kernel, plan, program
from fake_device import Program
from searches import examples

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.exercise import Plan, Problem, SpeedTier
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.speed.benchmark import Benchmark
from pytest_gpulab.grading.speed.buffers import BufferPool
from pytest_gpulab.grading.speed.mixing import Mix
from pytest_gpulab.grading.speed.validation import CANDIDATES, CHECKED_OF_A_SET, SETS, SMALL_BYTES, CheckedRuns

pytestmark = pytest.mark.unmeasured
SEEDS = examples(4)


def replaying(costs_ms: float) -> Program:
    """Hand out the first result at the timed size for ever."""
    first: list[Any] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        right = 2 * source.values
        if n == SIZE:
            first.append(right)
            right = first[0]
        out.values[...] = right
        return {"estimated_ms": costs_ms}

    return program(twice)


@pytest.mark.parametrize("costs_ms", [1.0, 0.01])
def test_a_result_that_is_kept_and_replayed_is_wrong(clocked: ClockedBench, costs_ms: float) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    result = tier(clocked, replaying(costs_ms))
    (finding,) = result.findings
    assert (result.verdict, finding.code) == ("failed", "wrong-result")
    assert re.fullmatch(r"At the timed size 2\^10: in a timed run, `out`: .*1024 elements are wrong\.", finding.what)
    assert result.measurement.caches == ("cold" if costs_ms == 1.0 else "warm")


def test_a_result_replayed_where_an_address_repeats_is_wrong(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BufferPool, "move_copies", lambda self, rng: None)  # as if each copy got its old place again
    remembered: dict[int, Any] = {}

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        right = 2 * source.values
        out.values[...] = remembered.setdefault(id(source), right) if n == SIZE else right
        return {"estimated_ms": 1.0}

    (finding,) = tier(clocked, program(twice)).findings
    assert finding.code == "wrong-result"


def recognising(costs_ms: float, looks_at: slice) -> Program:
    """Hand out a stored answer wherever a few elements of the input look like those of an earlier one."""
    answers: dict[bytes, Any] = {}

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        right = 2 * source.values
        out.values[...] = answers.setdefault(source.values[looks_at].tobytes(), right) if n == SIZE else right
        return {"estimated_ms": costs_ms}

    return program(twice)


@pytest.mark.parametrize("costs_ms", [1.0, 0.01])
def test_an_answer_that_was_stored_for_an_input_that_looks_alike_is_wrong(
    clocked: ClockedBench, costs_ms: float
) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    (finding,) = tier(clocked, recognising(costs_ms, slice(40, None, 100))).findings
    assert finding.code == "wrong-result"
    assert tier(clocked, recognising(costs_ms, slice(None))).verdict == "passed"  # who reads it all has gained nothing


@pytest.mark.parametrize("costs_ms", [1.0, 0.01])
def test_an_answer_that_was_stored_for_an_input_that_ends_alike_is_wrong_whatever_the_seed(
    clocked: ClockedBench, costs_ms: float
) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    found = []
    for seed in range(10):
        grader = clocked.grader(recognising(costs_ms, slice(-4, None)), seed, speed=TIERS)
        first, _ = (check for check in checks_of(grader._loaded.exercise) if check.kind == "speedup")
        found.append([finding.code for finding in grader.run(first).findings])
    assert found == [["wrong-result"]] * 10


@pytest.mark.parametrize("costs_ms", [1.0, 0.01])
def test_hardly_any_run_meets_the_contents_of_another(clocked: ClockedBench, costs_ms: float) -> None:
    met: list[bytes] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        met.extend([source.values.tobytes()] if n == SIZE else [])
        return kernel(costs_ms)(options, source, out, n)

    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    assert tier(clocked, program(twice)).verdict == "passed"
    assert len(set(met)) > 0.9 * len(met) / 2  # both sides meet each


def leaving_out(share: float, costs_ms: float, rng: np.random.Generator) -> Program:
    """Leave out half of the work in a random share of the launches at the timed size, which then take half as long."""

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        is_lazy = n == SIZE and rng.random() < share
        done = slice(n // 2 if is_lazy else None)
        out.values[done] = 2 * source.values[done]
        return {"estimated_ms": costs_ms / 2 if is_lazy else costs_ms}

    return program(twice)


@pytest.mark.parametrize(("costs_ms", "small_bytes"), [(2.0, SMALL_BYTES), (2.0, 0), (0.02, SMALL_BYTES)])
@pytest.mark.parametrize("share", [0.3, 0.4, 0.6, 0.8])
def test_work_left_out_at_random_gains_nothing(
    clocked: ClockedBench,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    costs_ms: float,
    small_bytes: int,
) -> None:
    """With all of its work done it would reach 1/1.2 of the threshold, without half of it twice as much."""
    threshold = 1.2 * 3 / costs_ms
    monkeypatch.setattr("pytest_gpulab.grading.speed.validation.SMALL_BYTES", small_bytes)
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    verdicts = []
    for seed in range(SEEDS):
        lazy = leaving_out(share, costs_ms, np.random.default_rng(seed))
        grader = clocked.grader(lazy, seed, speed=(SpeedTier(threshold, 40, SIZE, required=True),))
        (check,) = (check for check in checks_of(grader._loaded.exercise) if check.kind == "speedup")
        verdicts.append(grader.run(check).verdict)
    assert verdicts == ["failed"] * SEEDS


def sparing(the_first: bool, costs_ms: float) -> Program:
    """Write nothing wherever the contents are based on the first run's, or on others: a few elements tell."""
    first: list[Any] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        if n == SIZE:
            is_known = bool(first)
            first.extend([] if is_known else [source.values[37::61].copy()])
            if is_known and (np.mean(source.values[37::61] == first[0]) > 0.5) == the_first:
                return {"estimated_ms": costs_ms / 20}
        out.values[...] = 2 * source.values
        return {"estimated_ms": costs_ms}

    return program(twice)


@pytest.mark.parametrize("is_mixable", [True, False])
@pytest.mark.parametrize(("costs_ms", "small_bytes"), [(2.0, SMALL_BYTES), (2.0, 0), (0.02, SMALL_BYTES)])
@pytest.mark.parametrize("the_first", [True, False])
def test_work_that_one_set_of_contents_is_spared_is_seen_whichever_it_is(
    clocked: ClockedBench,
    monkeypatch: pytest.MonkeyPatch,
    the_first: bool,
    costs_ms: float,
    small_bytes: int,
    is_mixable: bool,
) -> None:
    """A kernel can recognise the set of a run; half of a submission's runs are on each set."""
    monkeypatch.setattr("pytest_gpulab.grading.speed.validation.SMALL_BYTES", small_bytes)
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    tiers = (SpeedTier(1.2 * 3 / costs_ms, 40, SIZE, required=True),)
    found = []
    for seed in range(3):
        grader = clocked.grader(sparing(the_first, costs_ms), seed, speed=tiers, mixable=is_mixable)
        (check,) = (check for check in checks_of(grader._loaded.exercise) if check.kind == "speedup")
        found.append([finding.code for finding in grader.run(check).findings])
    assert found == [["not-written"]] * 3


@pytest.mark.parametrize("costs_ms", [1.0, 0.02])
def test_an_input_that_is_overwritten_at_the_timed_size_only_is_seen(clocked: ClockedBench, costs_ms: float) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[...] = 2 * source.values
        if n == SIZE:
            source.values[7:10] = -1
        return {"estimated_ms": costs_ms}

    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    (finding,) = tier(clocked, program(twice)).findings
    assert finding.code == "input-changed"
    assert finding.what == (
        "At the timed size 2^10: in a timed run, `in`: 3 elements were overwritten; an input must not change."
    )


def test_an_input_may_be_overwritten_where_the_plan_says_so(clocked: ClockedBench) -> None:
    def in_place(problem: Problem) -> Plan:
        source, out = plan(problem).buffers
        return replace(plan(problem), buffers=(replace(source, may_change=True), out))

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[...] = 2 * source.values
        source.values[...] = 0
        return {"estimated_ms": 1.0}

    assert tier(clocked, program(twice), plan=in_place).verdict == "passed"


def test_of_large_runs_the_fastest_on_each_set_are_checked(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.validation.SMALL_BYTES", 0)
    costs_ms = iter(np.random.default_rng(1).permutation(np.linspace(1.0, 1.01, 100)))
    added: dict[int, list[float]] = {}
    add = CheckedRuns.add

    def spying(runs: CheckedRuns, elapsed_ms: float, copy: int, mix: Mix) -> bool:
        added.setdefault(mix.base, []).append(elapsed_ms)
        return add(runs, elapsed_ms, copy, mix)

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[...] = 2 * source.values
        return {"estimated_ms": next(costs_ms) if n == SIZE else 1.0}

    results: list[Any] = []
    run = Benchmark.run
    monkeypatch.setattr(Benchmark, "run", lambda race, *args: results.append(run(race, *args)) or results[0])
    monkeypatch.setattr(CheckedRuns, "add", spying)
    clocked.watch.noise = lambda sample: 1.0  # type: ignore[method-assign]
    assert tier(clocked, program(twice)).verdict == "passed"
    assert {base: len(all_ms) for base, all_ms in added.items()} == dict.fromkeys(range(SETS), 1 + CANDIDATES // SETS)
    fastest_ms = [ms for all_ms in added.values() for ms in sorted(all_ms)[:CHECKED_OF_A_SET]]
    assert sorted(run.elapsed_ms for run in results[0].checked) == sorted(fastest_ms)


def test_inputs_that_make_sense_as_a_whole_only_are_not_mixed(clocked: ClockedBench) -> None:
    met: set[bytes] = set()

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        met.update([source.values.tobytes()] if n == SIZE else [])
        return kernel(1.0)(options, source, out, n)

    assert tier(clocked, program(twice), mixable=False).verdict == "passed"
    assert len(met) == 2
    assert tier(clocked, replaying(1.0), mixable=False).findings[0].code == "wrong-result"


def adding(problem: Problem) -> Plan:
    """The exercise's plan as of a kernel that adds to its output."""
    made = plan(problem)
    return replace(made, buffers=tuple(replace(each, zeroed=each.role == "output") for each in made.buffers))


@pytest.mark.parametrize("overflows", [True, False])
def test_counts_at_the_timed_size_are_compared_on_all_patterns(clocked: ClockedBench, overflows: bool) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[...] = 2 * source.values % (4 if n == SIZE and overflows else np.inf)
        return {"estimated_ms": 1.0}

    cases = (replace(EXERCISE.cases[0], patterns=("random", "large")), *EXERCISE.cases[1:])
    result = tier(clocked, program(twice), plan=adding, cases=cases)
    assert result.verdict == ("failed" if overflows else "passed")
    assert [found.evidence[-1] for found in result.findings] == ["in a second run, on other inputs"] * overflows


def test_a_fault_on_other_patterns_at_the_timed_size_fails(clocked: ClockedBench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        if n == SIZE and (source.values > 2).any():
            raise KernelFault("out-of-bounds", "too large a bin")
        return kernel(1.0)(options, source, out, n)

    cases = (replace(EXERCISE.cases[0], patterns=("random", "large")), *EXERCISE.cases[1:])
    result = tier(clocked, program(twice), plan=adding, cases=cases)
    assert (result.verdict, result.findings[0].code) == ("failed", "out-of-bounds")
