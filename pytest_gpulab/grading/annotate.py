"""Runs of a submission on the simulated GPU for an annotated listing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

import numpy as np

from pytest_gpulab.devices.hardware.metrics import with_ratios
from pytest_gpulab.devices.protocol import Device, Hazard, LaunchProfile, SourceLine
from pytest_gpulab.exercise import DEFAULT_VARIANT, Case, Exercise, Problem, Size, SpeedTier, Variant
from pytest_gpulab.grading.compilation.builds import Build, BuildFailed, Builds, VariantKey, cases_of, variant_key
from pytest_gpulab.grading.correctness.checked_launches import SAMPLED
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, make_inputs, problem_of, rng_for
from pytest_gpulab.grading.plans.replay import FIRST, Repetition, Run, replay
from pytest_gpulab.grading.speed.costs import estimated_plan, pattern_of, size_text
from pytest_gpulab.grading.usage.checks import counting_device

from .catalogue import LoadedExercise
from .checks import Check, checks_of
from .findings import of_error, plain
from .grade import CheckResult
from .listing import TIME_SHARE, ListedFile, ListedHazard, ListedLine, Listing
from .time_limits import TimeBudget

MAX_LINES, MAX_COLUMNS, MAX_HAZARDS = 2000, 400, 100  # a hostile file must not fill the report
MAX_CHECKED_ELEMENTS = 1 << 14  # of the case that runs with hazard checks
COUNTED_SAMPLE = SAMPLED._replace(options=replace(SAMPLED.options, check=False))
COUNTED = FIRST._replace(options=replace(FIRST.options, check=False, estimate=True))
CHECKED = FIRST._replace(options=replace(FIRST.options, check=True))
RATIOS = ".ratio"
UNLISTED = ("empty-source", "not-utf8", "too-large", "not-started")

Figures = Mapping[str, float]


class Annotator:
    """The maker of a submission's listings: one per size and variant of the speed checks."""

    def __init__(self, loaded: LoadedExercise, path: Path, device: Device, seed: int, budget: TimeBudget) -> None:
        self._loaded, self._path, self._device, self._seed, self._budget = loaded, path, device, seed, budget
        self._todo = subjects(loaded.exercise)
        self._has_unlaunched = False

    def added_to(self, result: CheckResult, check: Check) -> CheckResult:
        """Return a check's result, with a listing if it is the first speed check of a size and variant.

        An earlier check that fails takes the listing, because the run may stop there and not reach the speed checks.
        Variants that cannot be launched are listed once, without figures. Files that are not started or not readable
        are not listed.
        """
        subject = self._todo.pop(check.name, None)
        if any("compile" in (found.because, check.kind) for found in result.findings):
            if self._has_unlaunched or check.hidden or result.findings[0].code in UNLISTED:
                return result
            self._has_unlaunched = True
            files = _files(self._path, self._loaded, {})
            return replace(result, listing=Listing("", "", "", None, files, note="This was not run: see the findings."))
        subject = subject or self._early(result, check)
        if subject is None:
            return result
        try:
            device = counting_device(self._device)
            self._budget.begin()
            listing = listing_of(self._loaded, self._path, device, self._seed, *subject, self._budget)
        except (BuildFailed, InstructorsMistake):  # a check reports it
            return result
        return replace(result, listing=listing)

    def _early(self, result: CheckResult, check: Check) -> tuple[Size, Variant] | None:
        """Return the size and variant to list with a failed check: of its own variant, if that is not listed yet."""
        if result.verdict != "failed" or check.hidden or not self._todo:
            return None
        own = getattr(check.subject, "variant", None)
        fitting = (name for name, (_, variant) in self._todo.items() if variant == own)
        return self._todo.pop(next(fitting, next(iter(self._todo))))


def subjects(exercise: Exercise) -> dict[str, tuple[Size, Variant]]:
    """Return the sizes and variants to list, by the check that shows them: each pair of the speed checks once."""
    found: dict[tuple[Size, VariantKey], tuple[str, Size, Variant]] = {}
    for check in checks_of(exercise):
        if isinstance(tier := check.subject, SpeedTier):
            size = tier.size if tier.simulated_size is None else tier.simulated_size
            found.setdefault((size, variant_key(tier.variant)), (check.name, size, tier.variant))
    return {name: (size, variant) for name, size, variant in found.values()}


def listing_of(
    loaded: LoadedExercise,
    path: Path,
    simulated: Device,
    seed: int,
    size: Size,
    variant: Variant,
    budget: TimeBudget | None = None,
) -> Listing:
    """Return the listing of a submission at a size; without figures if it does not compile or run.

    Hazards are searched at the largest small size of the `correct` checks, where all blocks run. A sample of blocks
    would leave memory unwritten that others read, and a timed size rarely ends within a block. Raises
    InstructorsMistake.
    """
    name = "" if variant.name == DEFAULT_VARIANT.name else variant.name
    listing = Listing(size_text(size), name, simulated.info.name, None, ())
    try:
        build = Builds(path, loaded, simulated, budget).of(variant)
    except BuildFailed as blocked:
        return replace(listing, files=_files(path, loaded, {}), note=blocked.finding.what)
    run = _run(loaded, simulated, build, seed, Problem(size, build.tunables, variant), COUNTED_SAMPLE)
    if run.error is not None:  # a sampled block may have waited for one outside the sample: run all blocks
        run = _run(loaded, simulated, build, seed, Problem(size, build.tunables, variant), COUNTED)
    note = of_error(run.error)[1].what if run.error is not None else _too_long(path) or _by_rules(run.profiles)
    small = _largest_small(cases_of(loaded.exercise, variant), build)
    hazards = _hazards(_run(loaded, simulated, build, seed, small, CHECKED)) if small is not None else ()
    ends = [profile.estimated_ms for profile in run.profiles if profile.estimated_ms is not None]
    files = _files(path, loaded, {} if run.error else summed(run.profiles))
    return replace(
        listing,
        estimated_ms=None if run.error else sum(ends),
        files=files,
        hazards=tuple(hazards)[:MAX_HAZARDS],
        note=note,
    )


def _run(loaded: LoadedExercise, simulated: Device, build: Build, seed: int, problem: Problem, how: Repetition) -> Run:
    plan = estimated_plan(loaded.exercise, problem)
    rng = rng_for(seed, loaded.name, "listing", size_text(problem.size), problem.variant.name)
    inputs = make_inputs(loaded.exercise, problem, plan, pattern_of(loaded.exercise, problem.variant), rng)
    return replay(simulated, build.module, plan, inputs, how, read_back=False)


def _largest_small(cases: Iterable[Case], build: Build) -> Problem | None:
    small: list[tuple[float, Problem]] = []
    for case in cases:
        with suppress(InstructorsMistake):  # the case's own check reports it
            problem = problem_of(case, build.tunables)
            small.append((float(np.prod(problem.size)), problem))
    fitting = [found for found in small if found[0] <= MAX_CHECKED_ELEMENTS]
    return max(fitting, key=lambda found: found[0])[1] if fitting else None


def summed(profiles: Iterable[LaunchProfile]) -> dict[SourceLine, Figures]:
    """Return the figures per line over all launches; shares of the time are weighted by the launches' times."""
    profiles = tuple(profiles)
    whole_ms = sum(profile.estimated_ms or 0 for profile in profiles)
    lines: dict[SourceLine, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for profile in profiles:
        weight = (profile.estimated_ms or 0) / whole_ms if whole_ms else 0
        for line in profile.lines:
            for name, value in line.counters.items():
                if not name.endswith(RATIOS):
                    lines[line.where][name] += value * weight if name == TIME_SHARE else value
    return {where: with_ratios(dict(figures)) for where, figures in lines.items()}


def _files(path: Path, loaded: LoadedExercise, figures: Mapping[SourceLine, Figures]) -> tuple[ListedFile, ...]:
    """Return all lines of the submission, and the lines of other files that have figures.

    Only public headers are quoted, because a `#line` in the submission can name any file.
    """
    by_file: dict[str, dict[int, Figures]] = defaultdict(dict)
    for where, found in figures.items():
        by_file[PurePath(where.file).name][where.line] = {name: value for name, value in found.items() if value}
    own = listed_lines(path, by_file.pop(path.name, {}), also_idle=True)
    public = {name: loaded.folder / name for name in loaded.exercise.headers}
    others = (
        ListedFile(name, listed_lines(public.get(name), found, also_idle=False)) for name, found in by_file.items()
    )
    return (ListedFile(path.name, own), *sorted(others, key=lambda other: other.name))


def listed_lines(path: Path | None, figures: Mapping[int, Figures], also_idle: bool) -> tuple[ListedLine, ...]:
    """Return a file's lines with their figures: all of them, or those with figures only."""
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines() if path and path.is_file() else []
    numbers = range(1, len(texts) + 1) if also_idle else sorted(figures)
    shown = dict(enumerate((plain(text)[:MAX_COLUMNS] for text in texts), start=1))
    return tuple(ListedLine(n, shown.get(n, ""), figures.get(n, {})) for n in list(numbers)[:MAX_LINES])


def _too_long(path: Path) -> str:
    is_long = len(path.read_text(encoding="utf-8", errors="replace").splitlines()) > MAX_LINES
    return f"Only the first {MAX_LINES} lines of {path.name} are listed." if is_long else ""


def _by_rules(profiles: Iterable[LaunchProfile]) -> str:
    """Return a sentence on the kernels with instructions counted by rules, with the reason."""
    sources = {profile.kernel: profile.instruction_source for profile in profiles}
    unread = ", ".join(kernel for kernel, source in sources.items() if source == "rules")
    large = ", ".join(kernel for kernel, source in sources.items() if source == "rules for large code")
    reasons = [f"that of {unread} cannot be read or followed"] if unread else []
    reasons += [f"that of {large} is too large to follow"] if large else []
    return f"Instructions are counted by rules, without machine code: {'; '.join(reasons)}." if reasons else ""


def _hazards(run: Run) -> Iterable[ListedHazard]:
    """Yield each hazard that has a source line once, over all launches."""
    seen: dict[tuple[SourceLine, str], Hazard] = {}
    for hazard in run.hazards:
        if hazard.where is not None:
            seen.setdefault((hazard.where, hazard.what), hazard)
    for hazard in seen.values():
        assert hazard.where is not None
        what = str(replace(hazard, where=None))
        yield ListedHazard(PurePath(hazard.where.file).name, hazard.where.line, plain(what), hazard.harmless)
