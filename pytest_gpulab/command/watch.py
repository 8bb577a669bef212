"""`gpulab watch`: grade a file again whenever it is saved."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_gpulab.devices import LAUNCH_LIMIT_S, open_device
from pytest_gpulab.devices.protocol import Device, DeviceUnavailable
from pytest_gpulab.grading.calibration.choice import DeviceThresholds
from pytest_gpulab.grading.calibration.file import CalibrationError
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import Check, CheckGrader, checks_of
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.time_limits import CaseLimits
from pytest_gpulab.reports.students import points_text
from pytest_gpulab.reports.terminal.text import abridged, wrapped

from . import CommandError
from .submission import exercise_of

SEED = 1
SETTLED_MS = 50
"""Time without a further change after which a file counts as saved; editors write in several steps."""
STEP_MS = 10
LONGEST_MS = 500  # without a message: some file systems send none
NOT_PASSED = ("failed", "not gradable", "not started")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument("file", metavar="FILE.cu", type=Path, help="a submission")
    parser.add_argument("--exercises", type=Path, metavar="FOLDER", help="the exercises' folder (default: exercises)")
    parser.add_argument("--device", default="auto", help="auto (default), cuda, cuda:N or sim")
    parser.add_argument("--seed", type=int, default=SEED, help=f"the seed of random input data (default: {SEED})")
    parser.epilog = "It ends with Ctrl-C."


def run(arguments: argparse.Namespace) -> int:
    """Grade the file now and after each change, until Ctrl-C."""
    if find_spec("watchfiles") is None:
        raise CommandError("watching needs watchfiles: python -m pip install 'pytest-gpulab[watch]'")
    loaded = exercise_of(arguments.file, arguments.exercises)
    try:
        device, reason = open_device(arguments.device, LAUNCH_LIMIT_S)
    except (DeviceUnavailable, ValueError) as error:
        raise CommandError(str(error)) from None
    loaded = _calibrated(loaded, device)
    _say(f"gpulab: {device.info.name}, because {reason.partition('; ')[0]}; seed {arguments.seed}; Ctrl-C ends")
    with suppress(KeyboardInterrupt), _interrupts() as interrupts:
        for _ in _saves(arguments.file.resolve(), lambda: bool(interrupts)):
            _say(f"\n{time.strftime('%H:%M:%S')} {arguments.file}")
            _report(_grader(arguments, loaded, device), loaded, arguments.file)
    return 0


def _calibrated(loaded: LoadedExercise, device: Device) -> LoadedExercise:
    thresholds = DeviceThresholds("auto", loaded.folder.parent, False)
    try:
        thresholds.choose(device.info)
    except CalibrationError as error:
        raise CommandError(str(error)) from None
    return thresholds.applied_to(loaded)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Yield a list with an item per Ctrl-C so far: Python drops one that comes while an object is finalized."""
    found: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        found.append(number)
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, before)


def _saves(file: Path, is_interrupted: Callable[[], bool]) -> Iterator[None]:
    """Yield now, and after each change of the file, until there was an interrupt."""
    graded = None
    for _ in _steps(file.parent):
        if is_interrupted():
            return
        if (contents := _contents(file)) not in (graded, None):
            graded = contents
            yield


def _steps(folder: Path) -> Iterator[None]:
    """Yield now, after each change in the folder, and from time to time.

    The folder is watched, because editors replace the file. Its watcher starts with the second step.
    """
    from watchfiles import watch

    yield
    kept: dict[str, Any] = {"recursive": False, "raise_interrupt": True, "yield_on_timeout": True}
    for _ in watch(folder, debounce=SETTLED_MS, step=STEP_MS, rust_timeout=LONGEST_MS, **kept):
        yield


def _contents(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:  # for a moment, while an editor replaces it
        return None


def _grader(arguments: argparse.Namespace, loaded: LoadedExercise, device: Device) -> CheckGrader:
    if device.info.kind == "simulated":
        limits = CaseLimits(smallest="later", ahead=True)  # the finding comes before it
        return Grader(loaded, arguments.file, device, arguments.seed, limits=limits)
    from pytest_gpulab.grading.isolation.remote import RemoteGrader

    spec = arguments.device.replace("auto", "cuda")
    return RemoteGrader(loaded, arguments.file, spec, device.info, arguments.seed)


def _report(grader: CheckGrader, loaded: LoadedExercise, file: Path) -> None:
    """Print the first check that does not pass, then its smallest input, the points, the rule of its sizes.

    A hazard is printed as soon as a case shows it, because its check comes after all cases. Counts and times take
    longer than the rest: required ones come first, and if a file fails before them, its points so far. Cases of the
    first variant run before the others are compiled.
    """
    checks = checks_of(loaded.exercise)
    results: dict[str, CheckResult] = {}
    shown: CheckResult | None = None
    hazard: CheckResult | None = None
    graded, is_counted, searched = _contents(file), False, ""
    with closing(grader):
        first = grader.first_checks() if isinstance(grader, Grader) else set()
        # only figures may be a bonus
        for check in sorted(checks, key=lambda check: (check.name not in first, not check.required)):
            if shown is not None and not is_counted and _is_countable(grader, check, shown):
                is_counted = True
                _say(f"so far: {_summary(list(results.values()))}")
            result = results[check.name] = grader.run(check)
            if shown is None and result.verdict in NOT_PASSED:
                shown = result
                if hazard is None or hazard.name != shown.name:
                    searched = _say_failure(grader, shown, file) or searched
            elif shown is None and hazard is None and (hazard := _hazard(grader, check)):
                searched = _say_failure(grader, hazard, file)
        _say(_summary([results[check.name] for check in checks]))
        if searched:
            _say_rule(grader, searched, lambda: _contents(file) != graded)


def _hazard(grader: CheckGrader, check: Check) -> CheckResult | None:
    """Return the failure of a `safe` check that a case so far shows."""
    return grader.unsafe_so_far() if check.kind == "correct" and isinstance(grader, Grader) else None


def _is_countable(grader: CheckGrader, check: Check, shown: CheckResult) -> bool:
    """Return True if a check needs figures that are not those of the failure."""
    has_figures = check.kind in ("uses", "speedup") and shown.kind != "speedup"
    return has_figures and isinstance(grader, Grader) and grader.countable(check).verdict == "passed"


def _say_failure(grader: CheckGrader, result: CheckResult, file: Path) -> str:
    """Print a failure, then its smallest input; return the check's name if there is one."""
    from pytest_gpulab.reports.terminal.sections import finding_lines

    heading = f"{'FAILED' if result.verdict == 'failed' else result.verdict} {result.name}"
    findings = [found.with_file(str(file)) for found in result.findings]
    _say("\n".join(line for found in findings for line in finding_lines(heading, found)))
    return result.name if _say_smallest(grader, result, file) else ""


def _say_smallest(grader: CheckGrader, result: CheckResult, file: Path) -> bool:
    """Print the smallest input that fails as a check does; return False if there is none."""
    from pytest_gpulab.reports.terminal.sections import smallest_lines

    found = grader.smallest_inputs.requested(result) if isinstance(grader, Grader) else None
    if found is None or found.smallest is None:
        return False
    smallest = found.with_file(str(file)).smallest
    assert smallest is not None
    _say("\n".join(smallest_lines(smallest)))
    return True


def _say_rule(grader: CheckGrader, check: str, stopped: Callable[[], bool]) -> None:
    """Print the sizes that fail as the smallest input of a check does, if there is a rule."""
    if isinstance(grader, Grader) and (rule := grader.smallest_inputs.rule(stopped)):
        _say("\n".join(wrapped(f"{check} {rule}")))


def _summary(results: list[CheckResult]) -> str:
    """Return the points, and the checks that cost some."""
    points, possible = sum(result.points for result in results), sum(result.max_points for result in results)
    lost = [result.name for result in results if result.points < result.max_points]
    lost_in = f"; lost in {abridged(lost, 4)}" if lost else ""
    return f"{points_text(points)} of {points_text(possible)} points{lost_in}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
