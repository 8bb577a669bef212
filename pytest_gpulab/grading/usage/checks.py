"""The `uses` checks: the simulated GPU's counters of a submission against the exercise's bounds."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath
from typing import SupportsFloat

import numpy as np

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import Device, DeviceError, DisturbedSpace, LaunchProfile
from pytest_gpulab.exercise import Array, Bound, ExerciseError, Plan, Problem, Size, Usage, UsesCheck, Variant
from pytest_gpulab.grading.compilation.builds import BuildFailed, Builds, VariantKey, cases_of, made_once, variant_key
from pytest_gpulab.grading.correctness.checked_launches import (
    CostedRun,
    ReplayInput,
    not_compared,
    run_counted,
    wrong_outputs,
)
from pytest_gpulab.grading.findings import finding, of_error
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, instructors_code, make_inputs, make_plan, rng_for
from pytest_gpulab.grading.speed.costs import min_bytes, pattern_of, size_text
from pytest_gpulab.grading.speed.estimate import EstimatedCosts

from .second_size import jittered
from .used_reads import COUNTERS, used_reads

MAX_LINES_NAMED = 3  # the worst first
MANY = 100  # figures from here on are shown without decimals
SLACK = 0.25  # allowed deviation from a bound at other sizes than its own
SLACK_AT_ZERO = 0.05  # allowed value if the bound is 0


@dataclass(frozen=True)
class _Counted:
    """The counts of a submission at one size, in all and per source line, and the findings of wrong outputs."""

    whole: Usage
    lines: Mapping[str, Usage]
    costed: CostedRun
    wrong: tuple[Finding, ...] = ()

    @property
    def profiles(self) -> Sequence[LaunchProfile]:
        """The profiles of its launches."""
        return self.costed.run.profiles


class Usages:
    """The usage of one submission, counted on the simulated GPU once per size and variant."""

    def __init__(self, builds: Builds, seed: int, costs: EstimatedCosts) -> None:
        """Keep references to the submission's builds and costs on the device that counts."""
        self._builds, self._seed, self._costs = builds, seed, costs
        self._loaded, self._device = builds.loaded, builds.device
        self._usages: dict[tuple[Size, VariantKey], _Counted | BuildFailed] = {}
        self.known: dict[str, tuple[Usage, tuple[Finding, ...]] | BuildFailed] = {}
        """The usage at the size of each check, by its name, and the findings without those of `costs`."""

    def unused(self, check: UsesCheck) -> tuple[Finding, ...]:
        """Return a finding for each bound that is broken, or for wrong outputs of the counted launches.

        At its own size, a bound holds exactly. A kernel may recognise that size. So the bound must also hold, with some
        slack, for the counts per element at a smaller random size, and at the sizes of the speed checks.

        Raises BuildFailed if there are no counts: `not gradable` because of the machine, `failed` if a kernel ends
        abnormally at this size. Raises InstructorsMistake if the exercise's own code is wrong.
        """
        own, found = self.count(check)
        return found or self._broken_when_costed(check, own)

    def count(self, check: UsesCheck) -> tuple[Usage, tuple[Finding, ...]]:
        """Return what `known` holds of a check. Raises as `unused`."""
        return made_once(self.known, check.name, partial(self._found_once, check))

    def _found_once(self, check: UsesCheck) -> tuple[Usage, tuple[Finding, ...]]:
        counted = self._usage(check.size, check.variant)
        found = _at(check.size, counted.wrong) or _broken(check.all_bounds, counted.whole, counted.lines)
        return counted.whole, found or self._broken_elsewhere(check, counted.whole)

    def _broken_elsewhere(self, check: UsesCheck, own: Usage) -> tuple[Finding, ...]:
        """Return the findings at a smaller size, or about unused reads at its own size if none can be derived."""
        variant, tunables = check.variant, self._builds.of(check.variant).tunables
        rng = rng_for(self._seed, self._loaded.name, "near", size_text(check.size), self._builds.sha256)
        try:
            known = [case.problem(tunables).size for case in cases_of(self._loaded.exercise, variant)]
            size = jittered(check.size, known, rng)
            counted = None if size is None else self._usage(size, variant)
        except (InstructorsMistake, IndexError):  # the exercise does not accept the derived size
            size = counted = None
        if size is None or counted is None:
            return self._broken_if_unused(check, check.size, own, 0.0)
        found = counted.wrong or _broken_per_element(check.all_bounds, size, counted.profiles, own)
        per_element = _per_element(size, counted.profiles, own)
        return _at(size, found or self._broken_if_unused(check, size, per_element, SLACK))

    def _broken_if_unused(self, check: UsesCheck, size: Size, whole: Usage, slack: float) -> tuple[Finding, ...]:
        """Return the bounds that are broken without the unused reads of a memory, if bounds depend on such reads."""
        costed = self._usage(size, check.variant).costed
        problem = Problem(size, self._builds.of(check.variant).tunables, check.variant)
        rng = rng_for(self._seed, self._loaded.name, "disturbed", size_text(size), self._builds.sha256)
        for space in COUNTERS:
            if space == "constant" and not costed.plan.constants:
                continue
            if not _broken(check.all_bounds, _with_used(whole, space, 0.0), {}, slack):
                continue
            build = self._builds.of(check.variant)
            replayed = self._device, build, costed.plan, costed.inputs, self._inputs(problem, costed.plan, rng)
            used = used_reads(*replayed, rng, space, check.compared, check.reused)
            if broken := _broken(check.all_bounds, _with_used(whole, space, used.counting), {}, slack):
                return tuple(replace(found, evidence=(*found.evidence, used.evidence)) for found in broken)
        return ()

    def _broken_when_costed(self, check: UsesCheck, own: Usage) -> tuple[Finding, ...]:
        """Return the findings at the sizes of the speed checks, from the launches that are costed anyway."""
        for size, profiles in self._costs.profiles(check.variant).items():
            if found := _broken_per_element(check.all_bounds, size, profiles, own):
                return _at(size, found)
        return ()

    def _usage(self, size: Size, variant: Variant) -> _Counted:
        key = (size, variant_key(variant))
        return made_once(self._usages, key, partial(self._counted_once, size, variant))

    def _counted_once(self, size: Size, variant: Variant) -> _Counted:
        problem = Problem(size, self._builds.of(variant).tunables, variant)
        costed = self._run(problem)
        wrong = not_compared(costed) or wrong_outputs(self._loaded.exercise, problem, costed)
        whole = _summed(costed.run.profiles, problem, min_bytes(self._loaded, problem))
        return _Counted(whole, _by_line(costed.run.profiles, whole), costed, wrong)

    def _inputs(self, problem: Problem, plan: Plan, rng: np.random.Generator) -> Mapping[str, Array]:
        exercise = self._loaded.exercise
        return make_inputs(exercise, problem, plan, pattern_of(exercise, problem.variant), rng)

    def _run(self, problem: Problem) -> CostedRun:
        exercise, build = self._loaded.exercise, self._builds.of(problem.variant)
        plan = make_plan(exercise, problem)
        rng = rng_for(self._seed, self._loaded.name, "uses", size_text(problem.size), problem.variant.name)
        inputs = self._inputs(problem, plan, rng)
        chooser = rng_for(self._seed, self._loaded.name, "sample", size_text(problem.size), self._builds.sha256)
        costed = run_counted(ReplayInput(self._device, build, plan, inputs), int(chooser.integers(1 << 62)))
        if costed.run.error is not None:
            raise BuildFailed(*of_error(costed.run.error))
        return costed


def counting_device(device: Device) -> Device:
    """Return a device with counters: a simulated GPU that runs the code of a real one. Raises BuildFailed."""
    if device.info.kind == "simulated":
        return device
    try:
        return open_device("sim", isolated=True, beside=device.info.architecture)[0]
    except DeviceError as error:
        what = f"The kernels cannot be counted here: {error}"
        raise BuildFailed("not gradable", finding("not-counted", what)) from error


def kept(bound: Bound, value: float, slack: float = 0.0) -> bool:
    """Return True if a figure keeps its bound, or misses it by at most the share `slack` of it."""
    if not isinstance(value, SupportsFloat):
        raise ExerciseError(f"Bound({bound.what!r}): `measure` must return a number, but returns {value!r}")
    if bound.at_most is not None:
        return value <= bound.at_most + slack * (bound.at_most or SLACK_AT_ZERO / SLACK)
    assert bound.at_least is not None  # a bound has one of the two
    return value >= bound.at_least * (1 - slack)


def _broken(
    bounds: Iterable[Bound], whole: Usage, lines: Mapping[str, Usage], slack: float = 0.0
) -> tuple[Finding, ...]:
    with instructors_code("uses"):
        figures = [(bound, bound.measure(whole)) for bound in bounds]
        broken = [(bound, value) for bound, value in figures if not kept(bound, value, slack)]
        return tuple(_finding(bound, value, lines) for bound, value in broken)


def _broken_per_element(
    bounds: Iterable[Bound], size: Size, profiles: Sequence[LaunchProfile], own: Usage
) -> tuple[Finding, ...]:
    """Return the bounds that launches at another size break, scaled per element to the bounds' own size."""
    whole = _per_element(size, profiles, own)
    return _broken(bounds, whole, _by_line(profiles, whole, _scale(size, own)), SLACK)


def _per_element(size: Size, profiles: Sequence[LaunchProfile], own: Usage) -> Usage:
    """Return the usage of launches at another size, scaled per element to the size of `own`."""
    return _summed(profiles, own.problem, own.min_bytes, _scale(size, own))


def _scale(size: Size, own: Usage) -> float:
    return float(np.prod(own.problem.size, dtype=float) / np.prod(size, dtype=float))


def _with_used(usage: Usage, space: DisturbedSpace, share: float) -> Usage:
    """Return a usage with only a share of its accesses to a memory."""
    used = {name: share * usage.counters.get(name, 0.0) for name in COUNTERS[space]}
    return replace(usage, counters={**usage.counters, **used})


def _at(size: Size, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(replace(finding, what=f"At size {size_text(size)}: {finding.what}") for finding in findings)


def _finding(bound: Bound, value: float, lines: Mapping[str, Usage]) -> Finding:
    worst = _worst_lines(bound, lines) if bound.at_most is not None else []
    evidence = [f"{place}: {_figure(figure, bound)} {bound.what}" for place, figure in worst]
    where = worst[0][0] if worst else ""
    limit = f"allows {bound.at_most:g}" if bound.at_most is not None else f"requires {bound.at_least:g}"
    what = f"{bound.title}: {_figure(value, bound)} {bound.what}; this check {limit}."
    return finding("concept", what, where, evidence, bound.hint)


def _figure(value: float, bound: Bound) -> str:
    """Return a figure with two digits, or with as many as distinguish it from the bound."""
    limit = bound.at_most if bound.at_most is not None else bound.at_least
    rounded = (f"{value:.{digits}g}" for digits in (2, 3, 4, 6))
    text = next((text for text in rounded if float(text) != limit), f"{value:g}")
    return f"{value:.0f}" if value >= MANY else text


def _worst_lines(bound: Bound, lines: Mapping[str, Usage]) -> list[tuple[str, float]]:
    """Return the lines that alone break an upper bound, worst first."""
    figures = [(place, bound.measure(usage)) for place, usage in lines.items()]
    broken = [(place, figure) for place, figure in figures if not kept(bound, figure)]
    return sorted(broken, key=lambda line: -line[1])[:MAX_LINES_NAMED]


def _summed(profiles: Iterable[LaunchProfile], problem: Problem, least: float | None, scale: float = 1.0) -> Usage:
    counters: dict[str, float] = defaultdict(float)
    files: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for profile in profiles:
        _add(counters, profile.counters, scale)
        for line in profile.lines:
            _add(files[PurePath(line.where.file).name], line.counters, scale)
    return Usage(dict(counters), {name: dict(of_file) for name, of_file in files.items()}, problem, least)


def _by_line(profiles: Iterable[LaunchProfile], whole: Usage, scale: float = 1.0) -> dict[str, Usage]:
    """Return the usage per source line; counters without lines, such as the number of warps, are the total's."""
    split: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for profile in profiles:
        for line in profile.lines:
            _add(split[str(line.where)], line.counters, scale)
    in_lines = {name for counters in split.values() for name in counters}
    common = {name: 0.0 if name in in_lines else value for name, value in whole.counters.items()}
    return {place: replace(whole, counters=common | counters, files={}) for place, counters in split.items()}


def _add(total: dict[str, float], counters: Mapping[str, float], scale: float) -> None:
    """Add the counters that are sums, not the ratios."""
    for name, value in counters.items():
        if name.endswith(".sum"):
            total[name] += value * scale
