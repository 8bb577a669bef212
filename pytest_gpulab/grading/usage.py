"""The `uses` checks: whether a submission really used the idea, by what the simulated GPU counts of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import Device, DeviceError, LaunchProfile
from pytest_gpulab.exercise import Bound, Problem, Size, Usage, UsesCheck, Variant
from pytest_gpulab.grading.build import Blocked, Builds, VariantKey, variant_key
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.findings import finding, of_error
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.prepare import instructors_code, make_inputs, make_plan, rng_for
from pytest_gpulab.grading.replay import FIRST, Run, replay
from pytest_gpulab.grading.speed import SAMPLED, min_bytes, pattern_of, size_text

COUNTED = replace(FIRST, options=replace(FIRST.options, count=True))
MAX_LINES_NAMED = 3
MANY = 100  # from here on a figure has no fraction


class Usages:
    """What one submission did at each size and variant that is asked for, counted once on the simulated GPU."""

    def __init__(self, loaded: LoadedExercise, simulated: Device, builds: Builds, seed: int) -> None:
        """Count nothing yet.

        Args:
            loaded: the exercise.
            simulated: the device that counts.
            builds: of the submission, on that device.
            seed: of the input data.
        """
        self._loaded, self._device, self._builds, self._seed = loaded, simulated, builds, seed
        self._usages: dict[tuple[Size, VariantKey], tuple[Usage, dict[str, Usage]]] = {}

    def unused(self, check: UsesCheck) -> tuple[Finding, ...]:
        """Return a finding for each bound that is not kept.

        Raises:
            Blocked: the submission cannot be counted, through nobody's fault (`not gradable`) or because a kernel ends
                abnormally at this size (`failed`).
            InstructorsMistake: the exercise's own code is wrong.
        """
        usage, lines = self._usage(check.size, check.variant)
        with instructors_code("uses"):
            broken = [(bound, value) for bound in check.bounds if not kept(bound, value := bound.measure(usage))]
            return tuple(_finding(bound, value, lines) for bound, value in broken)

    def _usage(self, size: Size, variant: Variant) -> tuple[Usage, dict[str, Usage]]:
        key = (size, variant_key(variant))
        if key not in self._usages:
            problem = Problem(size, self._builds.of(variant).tunables, variant)
            profiles = self._run(problem).profiles
            whole = _summed(profiles, problem, min_bytes(self._loaded, problem))
            self._usages[key] = whole, _by_line(profiles, whole)
        return self._usages[key]

    def _run(self, problem: Problem) -> Run:
        exercise, build = self._loaded.exercise, self._builds.of(problem.variant)
        module, names = build.module, build.parameters
        plan = make_plan(exercise, problem)
        rng = rng_for(self._seed, self._loaded.name, "uses", size_text(problem.size), problem.variant.name)
        inputs = make_inputs(exercise, problem, plan, pattern_of(exercise, problem.variant), rng)
        run = replay(self._device, module, plan, inputs, SAMPLED, read_back=False, names=names)
        if run.error is not None:  # a sampled block may have waited for one that was left out: run them all
            run = replay(self._device, module, plan, inputs, COUNTED, read_back=False, names=names)
        if run.error is not None:
            raise Blocked(*of_error(run.error))
        return run


def counting_device() -> Device:
    """Return a simulated GPU: no other device counts.

    Raises:
        Blocked: `not gradable` where there is none.
    """
    try:
        return open_device("sim", isolated=True)[0]
    except DeviceError as error:
        what = f"What the kernels use cannot be counted here: {error}"
        raise Blocked("not gradable", finding("not-counted", what)) from error


def kept(bound: Bound, value: float) -> bool:
    """Return whether a figure keeps to its bound."""
    if bound.at_most is not None:
        return value <= bound.at_most
    assert bound.at_least is not None  # one of the two is given
    return value >= bound.at_least


def _finding(bound: Bound, value: float, lines: Mapping[str, Usage]) -> Finding:
    worst = _worst_lines(bound, lines) if bound.at_most is not None else []
    evidence = [f"{place}: {_figure(figure, bound)} {bound.what}" for place, figure in worst]
    where = worst[0][0] if worst else ""
    limit = f"allows {bound.at_most:g}" if bound.at_most is not None else f"requires {bound.at_least:g}"
    what = f"{bound.title}: {_figure(value, bound)} {bound.what}; this check {limit}."
    return finding("concept", what, where, evidence, bound.hint)


def _figure(value: float, bound: Bound) -> str:
    """Return a figure with two digits, or as many as tell it from the bound."""
    limit = bound.at_most if bound.at_most is not None else bound.at_least
    rounded = (f"{value:.{digits}g}" for digits in (2, 3, 4, 6))
    text = next((text for text in rounded if float(text) != limit), f"{value:g}")
    return f"{value:.0f}" if value >= MANY else text


def _worst_lines(bound: Bound, lines: Mapping[str, Usage]) -> list[tuple[str, float]]:
    """Return the lines that break an upper bound by themselves, worst first."""
    figures = [(place, bound.measure(usage)) for place, usage in lines.items()]
    broken = [(place, figure) for place, figure in figures if not kept(bound, figure)]
    return sorted(broken, key=lambda line: -line[1])[:MAX_LINES_NAMED]


def _summed(profiles: Iterable[LaunchProfile], problem: Problem, least: float | None) -> Usage:
    counters: dict[str, float] = defaultdict(float)
    files: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for profile in profiles:
        _add(counters, profile.counters)
        for line in profile.lines:
            _add(files[PurePath(line.where.file).name], line.counters)
    return Usage(dict(counters), {name: dict(of_file) for name, of_file in files.items()}, problem, least)


def _by_line(profiles: Iterable[LaunchProfile], whole: Usage) -> dict[str, Usage]:
    """Return the usage of each source line; what belongs to no line, such as the number of warps, is the whole's."""
    split: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for profile in profiles:
        for line in profile.lines:
            _add(split[str(line.where)], line.counters)
    in_lines = {name for counters in split.values() for name in counters}
    common = {name: 0.0 if name in in_lines else value for name, value in whole.counters.items()}
    return {place: replace(whole, counters=common | counters, files={}) for place, counters in split.items()}


def _add(total: dict[str, float], counters: Mapping[str, float]) -> None:
    """Add what can be added: sums, not ratios."""
    for name, value in counters.items():
        if name.endswith(".sum"):
            total[name] += value
