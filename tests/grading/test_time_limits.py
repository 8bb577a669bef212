"""How long kernels may run on the simulated GPU: a case, a file, and what follows for the other cases."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from doubling import EXERCISE, Bench, codes, kernel, program
from fake_device import FakeDevice

from pytest_gpulab.authoring import mutants
from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault, LaunchOptions, LaunchProfile, SourceLine
from pytest_gpulab.devices.system.processes import Helpers
from pytest_gpulab.exercise import Bound, Case, SafeCheck, SpeedTier, UsesCheck, Variant
from pytest_gpulab.grading import figure_checks, time_limits
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.correctness.smallest_inputs import SmallestInputs
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.smallest_failing import SEARCHED
from pytest_gpulab.grading.time_limits import BESIDE_A_GPU, CaseLimits, OwnCodeLimit, TimeBudget, TimeLimits, limited

PLACE = SourceLine("student.cu", 7)
SIZES = (4, 5, 6, 7, 8, 70)
CASES = tuple(Case(f"n={n}", n, 10) for n in SIZES)
REST = {"speed": (), "safe": (SafeCheck("memory", 40),)}


@pytest.mark.parametrize(
    ("check_s", "case_s", "file_s"),
    [(120, 20, 100), (60, 20, 100), (5, 4, 100), (600, 100, 500), (121, 20 * 121 / 120, 100 * 121 / 120)],
)
def test_limits_follow_the_time_limit_of_checks(check_s: float, case_s: float, file_s: float) -> None:
    limits = TimeLimits.within(check_s)
    assert (limits.case_s, limits.file_s) == pytest.approx((case_s, file_s))


class Slow:
    """A module whose launches take a given part of a second, or up to their limit."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s, self.limits_s, self.now_s = takes_s, list[float | None](), 0.0

    def launch(self, options: LaunchOptions) -> LaunchProfile:
        limit_s = options.time_limit_s
        assert limit_s is not None
        self.limits_s.append(limit_s)
        self.now_s += min(self.takes_s, limit_s)
        if limit_s < self.takes_s:
            raise KernelFault("time-limit", f"time limit: the kernel had not ended after {limit_s} s", PLACE)
        return LaunchProfile("k", (1, 1, 1), (1, 1, 1))


def launch(budget: TimeBudget, run: Callable[[LaunchOptions], LaunchProfile], options: LaunchOptions) -> None:
    module: Any = SimpleNamespace(launch=lambda *args: run(args[-1]), reset_variables=lambda: None)
    limited(module, budget).launch("k", (1,), (1,), [], 0, options)


def launched(budget: TimeBudget, module: Slow) -> str:
    try:
        launch(budget, module.launch, LaunchOptions())
    except KernelFault as fault:
        return f"{fault.where}: {fault.what}"
    return "ended"


@pytest.mark.parametrize("share", [1.0, 0.6], ids=["a core", "more than half of a core"])
def test_launches_of_a_case_share_its_time_and_cases_the_files(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    budget, module = TimeBudget(TimeLimits(case_s=0.5, file_s=0.9)), Slow(0.3)
    clock = SimpleNamespace(perf_counter=lambda: module.now_s, thread_time=lambda: share * module.now_s)
    monkeypatch.setattr(time_limits, "time", clock)
    budget.begin()
    assert launched(budget, module) == "ended"
    assert launched(budget, module) == "student.cu:7: time limit: the kernel had not ended after 0.5 s"
    assert launched(budget, module) == "student.cu:7: time limit: the kernel had not ended after 0.5 s"
    assert len(module.limits_s) == 2, "what comes after a stopped launch of a case is not launched"
    budget.begin()
    assert launched(budget, module) == "ended"
    assert not budget.is_used_up
    used_up = "time limit: compilation and kernels of this file have taken 0.9 s in total"
    assert launched(budget, module) == f"student.cu:7: {used_up}"
    assert budget.is_used_up


def test_a_launch_that_cannot_end_in_time_says_why_with_the_limit_of_the_case() -> None:
    limits_s = []

    def too_long(options: LaunchOptions) -> LaunchProfile:
        limits_s.append(options.time_limit_s)
        raise KernelFault("time-limit", "time limit: within 0.4 s", PLACE, remains="5 iterations are left")

    budget = TimeBudget(TimeLimits(case_s=0.5, file_s=0.9))
    for limit_s in (0.5, 0.3):
        budget.begin()
        budget.charge(0.1)
        with pytest.raises(KernelFault) as caught:
            launch(budget, too_long, LaunchOptions())
        assert caught.value.what == f"time limit: the kernel cannot end within {limit_s} s: 5 iterations are left"
        with pytest.raises(KernelFault, match="5 iterations are left"):
            launch(budget, too_long, LaunchOptions())
        budget.charge(0.4)
    assert len(limits_s) == 2, "what comes after a stopped launch of a case is not launched"


@pytest.mark.parametrize(
    ("args", "stall_s"),
    [
        ((), 2),
        ((np.uint32(1024),), 2),
        ((np.zeros(1024), np.int32(-2048), np.float32(1e9)), 4),
        ((np.zeros(4096),), 8),
    ],
)
def test_a_launch_without_progress_ends_sooner_the_smaller_it_is(args: tuple[Any, ...], stall_s: float) -> None:
    granted = []

    def stalled(*launch: Any) -> LaunchProfile:
        granted.append(launch[-1])
        raise KernelFault("time-limit", "time limit: it only repeats lines", PLACE, is_stalled=True)

    budget, module = TimeBudget(TimeLimits()), SimpleNamespace(launch=stalled, reset_variables=lambda: None)
    for _ in range(2):
        with pytest.raises(KernelFault, match="it only repeats lines"):
            limited(cast(Any, module), budget).launch("k", (1,), (1,), args)
    assert [options.stall_limit_s for options in granted] == [stall_s], "the rest of the case is not launched"
    budget.be_short()
    budget.begin()
    with pytest.raises(KernelFault, match="it only repeats lines"):
        limited(cast(Any, module), budget).launch("k", (1,), (1,), args)
    assert granted[-1].stall_limit_s == stall_s / 4, "a later case is stopped sooner"


def test_each_input_pattern_of_a_case_has_the_time_of_a_case(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def slow(options: LaunchOptions, *arguments: Any) -> Any:
        nonlocal now_s
        if options.time_limit_s is not None and options.time_limit_s < 6:
            raise KernelFault("time-limit", "time limit", PLACE)
        now_s += 6
        return kernel()(options, *arguments)

    clock = SimpleNamespace(perf_counter=lambda: now_s, thread_time=lambda: now_s)
    monkeypatch.setattr(time_limits, "time", clock)
    result = bench.result("correct[n=70]", program(slow))
    assert (result.verdict, now_s) == ("passed", 30), "three launches with the first pattern and two with the second"


def test_a_busy_machine_charges_twice_the_processor_time_and_ends_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    budget, module = TimeBudget(TimeLimits(case_s=0.5, file_s=0.9)), Slow(0.3)
    clock = SimpleNamespace(perf_counter=lambda: module.now_s, thread_time=lambda: 0.1 * module.now_s)
    monkeypatch.setattr(time_limits, "time", clock)
    budget.begin()
    assert [launched(budget, module) for _ in range(4)] == ["ended"] * 4, "1.2 s by the clock, 0.24 s charged"
    busy = DeviceUnavailable("the machine is too busy")

    def starved(options: LaunchOptions) -> LaunchProfile:
        raise busy

    for _ in range(2):
        with pytest.raises(DeviceUnavailable, match="too busy"):
            launch(budget, starved, LaunchOptions())


def hanging(*sizes: int) -> Any:
    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        if int(n) in sizes:
            raise KernelFault("time-limit", "time limit", PLACE)
        return kernel()(options, source, out, n)

    return program(twice)


def test_after_three_stopped_cases_the_rest_is_not_run(bench: Bench) -> None:
    results = bench.results(hanging(*SIZES), cases=CASES, **REST)
    assert set(codes(results).values()) == {"time-limit"}
    whats = {name: result.findings[0] for name, result in results.items() if result.kind == "correct"}
    assert [found.because for found in whats.values()] == ["", "", "", *["correct[n=4]"] * 3]
    assert whats["correct[n=4]"].what == "Time limit: the kernel had not ended after 20 s"
    assert whats["correct[n=5]"].what == "Time limit: the kernel had not ended after 2 s"
    assert "with a shorter time limit, because `correct[n=4]` reached it" in whats["correct[n=5]"].evidence
    assert whats["correct[n=7]"].what.startswith("Not graded, because `correct[n=4]` did not pass: Time limit")
    assert whats["correct[n=4]"].hint.startswith("The loop may be finite but very long.")


def test_after_one_stopped_case_the_others_may_still_pass(bench: Bench) -> None:
    results = bench.results(hanging(4), cases=CASES, **REST)
    assert codes(results) == {"correct[n=4]": "time-limit"}
    assert [result.verdict for result in results.values()].count("passed") == len(SIZES) + 1


def test_beside_a_gpu_a_case_that_takes_too_long_says_nothing(bench: Bench) -> None:
    bench.programs["submission"] = hanging(4)
    path = bench.folder / "student.cu"
    path.write_text("submission")
    loaded = LoadedExercise("twice", bench.folder, replace(EXERCISE, cases=CASES, **REST))
    grade = Grader(loaded, path, bench.device, 1, "student", BESIDE_A_GPU).grade()
    verdicts = {check.name: (check.verdict, check.findings[0].code) for check in grade.checks if check.findings}
    assert verdicts["correct[n=4]"] == ("not gradable", "cannot-simulate")
    assert verdicts.get("correct[n=5]") is None


def test_a_gpu_has_no_limit_of_this_kind(tmp_path: Path) -> None:
    bench = Bench(tmp_path, estimates=False)
    bench.result("correct[n=4]", program(kernel()))
    assert {options.time_limit_s for _, options in bench.device.launches} == {None}


def test_every_launch_on_the_simulated_gpu_is_limited(bench: Bench) -> None:
    bench.results(program(kernel()))
    limits_s = [options.time_limit_s for _, options in bench.device.launches]
    assert None not in limits_s
    assert max(limit_s for limit_s in limits_s if limit_s is not None) <= CaseLimits().time.case_s


def clocked(monkeypatch: pytest.MonkeyPatch, *sizes: int) -> Any:
    """Return a program that takes all its time at these sizes, by a clock that only such launches move."""
    now_s = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now_s[0], thread_time=lambda: now_s[0])
    monkeypatch.setattr(time_limits, "time", clock)

    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        if int(n) in sizes:
            now_s[0] += options.time_limit_s
            raise KernelFault("time-limit", "time limit", PLACE)
        return kernel(4.0)(options, source, out, n)

    return program(twice)


def test_a_timed_size_that_takes_too_long_is_launched_once_for_all_tiers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = bench.results(clocked(monkeypatch, 2**10))
    assert time_limits.time.perf_counter() == 20
    first, second = results["speedup[1.5x]"], results["speedup[3x]"]
    assert (first.verdict, second.verdict) == ("failed", "failed")
    assert first.findings[0].what == "Time limit: the kernel had not ended after 20 s"
    assert second.findings[0].because == "speedup[1.5x]"
    assert second.findings[0].what.startswith("Not graded, because `speedup[1.5x]` did not pass: Time limit")


def test_a_counted_size_that_takes_too_long_is_launched_once_for_all_checks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = Bound("barriers", lambda usage: 0.0, at_most=1)
    uses = tuple(UsesCheck(name, (bound,), 5, 2**12) for name in ("one", "two"))
    slow = clocked(monkeypatch, 2**12)
    results = bench.results(slow, uses=uses, speed=(), safe=(SafeCheck("memory", 40),))
    assert codes(results) == {"uses[one]": "time-limit", "uses[two]": "time-limit"}
    assert [results[f"uses[{name}]"].findings[0].because for name in ("one", "two")] == ["", "uses[one]"]
    assert time_limits.time.perf_counter() == 20


def graded(bench: Bench, submission: Any, limits: TimeLimits, annotate: bool = False, **changes: Any) -> Any:
    bench.programs["submission"] = submission
    path = bench.folder / "student.cu"
    path.write_text("submission")
    loaded = LoadedExercise("twice", bench.folder, replace(EXERCISE, **changes))
    grade = Grader(loaded, path, bench.device, 1, "student", CaseLimits(limits), annotate).grade()
    return {check.name: check for check in grade.checks}


def test_tiers_after_the_files_time_is_used_up_fail_because_of_the_one_that_used_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (2**10, 2**11, 2**12)
    speed = tuple(SpeedTier(threshold, 40 / 3, size) for threshold, size in zip((1.5, 2, 3), sizes, strict=True))
    results = graded(bench, clocked(monkeypatch, *sizes), TimeLimits(20, 30), speed=speed)
    assert time_limits.time.perf_counter() == 30
    because = [result.findings[0].because for result in results.values() if result.kind == "speedup"]
    assert because == ["", "speedup[1.5x]", "speedup[1.5x]"]


def test_a_listing_has_no_time_beyond_the_files(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    results = graded(bench, clocked(monkeypatch, 2**10), TimeLimits(20, 20), annotate=True)
    assert time_limits.time.perf_counter() == 20
    listing = results["speedup[1.5x]"].listing
    assert listing is not None
    assert listing.note == "Time limit: compilation and kernels of this file have taken 20 s in total"


@pytest.mark.parametrize("by_compiler", [False, True], ids=["this process", "the compiler's process"])
def test_variants_are_compiled_within_the_files_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, by_compiler: bool
) -> None:
    now_s, compile_text = [0.0], bench.device.compile
    clock = SimpleNamespace(perf_counter=lambda: now_s[0], thread_time=lambda: 0.0 if by_compiler else now_s[0])
    monkeypatch.setattr(time_limits, "time", clock)
    monkeypatch.setattr(Helpers, "processor_s", 0.0)

    def slow(*text: Any) -> Any:
        now_s[0] += 15
        Helpers.processor_s += 15 if by_compiler else 0
        return compile_text(*text)

    monkeypatch.setattr(bench.device, "compile", slow)
    cases = tuple(Case(f"n={n}", n, 15, variant=Variant(f"{n}", {"N": f"{n}"})) for n in range(1, 5))
    results = graded(bench, program(kernel()), TimeLimits(20, 30), cases=cases, **REST)
    assert now_s == [30]
    assert [results[f"correct[n={n}]"].verdict for n in range(1, 5)] == ["passed", "passed", "failed", "failed"]
    told = "compilation and kernels of this file have taken 30 s in total"
    assert all(told in results[name].findings[0].what for name in ("compile", "correct[n=4]"))
    assert "A usual file compiles in a second." in results["compile"].findings[0].hint


@pytest.mark.parametrize(
    "limits", [BESIDE_A_GPU.time, SEARCHED.time, mutants.LIMITS.time], ids=["GPU", "search", "mutant"]
)
def test_short_limits_are_those_of_kernels_only(limits: TimeLimits, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = iter(np.arange(9) * limits.file_s)
    clock = SimpleNamespace(perf_counter=lambda: next(now_s), thread_time=lambda: next(now_s))
    monkeypatch.setattr(time_limits, "time", clock)
    budget, usual = TimeBudget(limits), TimeBudget(limits._replace(has_builds=True))
    for each in (budget, usual):
        with each.charging(is_launch=False):
            pass
    assert usual.ends_builds
    budget.charge(0.9 * limits.file_s)
    assert not budget.is_used_up
    budget.charge(0.2 * limits.file_s)
    assert budget.is_used_up and not budget.ends_builds


@pytest.mark.parametrize(("file_s", "searches"), [(100.0, 3), (0.9, 2)])
def test_searches_take_the_files_time(monkeypatch: pytest.MonkeyPatch, file_s: float, searches: int) -> None:
    clock, budget = SimpleNamespace(now_s=0.0), TimeBudget(TimeLimits(file_s=file_s))
    read = lambda: clock.now_s  # noqa: E731
    monkeypatch.setattr(time_limits, "time", SimpleNamespace(perf_counter=read, thread_time=read))
    searched: list[Finding] = []

    class Slowly:
        def added_to(self, case: Case, found: Finding, same: object) -> Finding:
            clock.now_s += 0.5
            searched.append(found)
            return found

    found = finding("wrong-result", "an element is wrong")
    inputs = SmallestInputs("all", cast(Any, ()), budget, cast(Any, Slowly()))
    failing = found, Case("n=1", 1, 1, ("random",)), ""
    assert inputs.added_to("correct[n=1]", failing, failing, failing) == (found,) * 3
    assert len(searched) == searches
    budget.charge(file_s - 0.5 * searches - 0.1)
    assert not budget.is_used_up
    budget.charge(0.2)
    assert budget.is_used_up


def test_a_launch_that_reaches_a_limit_of_its_own_leaves_the_case_its_time() -> None:
    budget, module = TimeBudget(TimeLimits()), Slow(0.3)
    with pytest.raises(KernelFault, match=r"had not ended after 0\.1 s"):
        launch(budget, module.launch, LaunchOptions(time_limit_s=0.1))
    assert launched(budget, module) == "ended"
    assert module.limits_s == [0.1, pytest.approx(20, abs=5)]


def test_counts_beside_a_gpu_share_the_files_time_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, estimates=False)
    monkeypatch.setattr(figure_checks, "counting_device", lambda device: FakeDevice(bench.programs))
    bound = Bound("barriers", lambda usage: 0.0, at_most=1)
    uses = tuple(UsesCheck(f"n={size}", (bound,), 5, size) for size in (2**11, 2**12))
    slow = clocked(monkeypatch, 2**11, 2**12)
    results = graded(bench, slow, TimeLimits(20, 30), uses=uses, speed=(), safe=(SafeCheck("memory", 40),))
    assert time_limits.time.perf_counter() == 30
    assert [results[f"uses[n={size}]"].findings[0].because for size in (2**11, 2**12)] == ["", "uses[n=2048]"]


def test_a_machine_too_busy_for_the_second_run_at_the_timed_size_costs_no_points(bench: Bench) -> None:
    timed = 0

    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        nonlocal timed
        timed += int(n) == 2**10
        if timed == 3:  # after a sample and all blocks
            raise DeviceUnavailable("the machine is too busy")
        return kernel()(options, source, out, n)

    results = bench.results(program(twice, has_state=True))
    tiers = [results["speedup[1.5x]"], results["speedup[3x]"]]
    assert timed == 3, "what could not be run is not run again"
    assert [(tier.verdict, tier.findings[0].code) for tier in tiers] == [("not gradable", "device-fault")] * 2


def test_the_limit_of_an_exercises_code_counts_from_the_begin_of_its_check() -> None:
    def loop() -> None:
        with OwnCodeLimit(limit_s=0.4, check_began_s=time.perf_counter() - 0.3).of("plan"):
            while True:
                pass

    with pytest.raises(TimeoutError, match=r"it had not ended after 0.1 s"):
        loop()
