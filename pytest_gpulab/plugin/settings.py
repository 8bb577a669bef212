"""Command line options and ini keys, read once into a frozen `Settings`.

Knows neither pytest nor the rest of the package: `hooks` passes two look-up functions.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_gpulab import UserError

MAX_SEED = 2**32 - 1
MAX_WORKERS = 1024  # a larger number is a typing error
REPORT_FORMATS = (
    *("json", "csv", "gradescope", "classroom50", "prairielearn", "github"),
    *("ctrf", "html", "annotated", "feedback", "explain"),
)
_ANNOTATED_FORMATS = ("html", "annotated", "feedback")
WITH_A_VALUE = (
    *("device", "exercises", "seed", "gpu", "arch", "timeout", "calibration", "calibrate_fraction", "feedback"),
    *("submissions", "workers", "scheduler", "roster", "store", "adjust"),
)
CALIBRATED_FRACTION = 0.85
"""Default share of the reference solution's speedup that a calibrated threshold requires."""
SWEEP_FORMATS = ("html", "json")
"""Formats that report a sweep, which has no points."""
MAX_SWEPT = 2
MAX_POINTS = 100
_DEVICES = "a device is auto, sim, cuda or cuda:N with the number of a GPU"


class SettingsError(UserError):
    """An invalid option or ini key, explained in one line."""


@dataclass(frozen=True)
class ReportFile:
    """A report to write: `format` is one of `REPORT_FORMATS`, `path` is absolute."""

    format: str
    path: Path


@dataclass(frozen=True)
class ClassSettings:
    """The settings for a class."""

    submissions: Path | None = None  # the folder or ZIP of the submissions; None if files are given as paths
    workers: int | None = None  # number of grading processes; None for one per core
    roster: Path | None = None  # the list of the class
    adjust: Path | None = None  # the instructor's adjustments of points
    store: Path | None = None  # the file of stored grades; None for the default, which only a class has
    regrade: bool = False  # whether to ignore stored grades
    scheduler: str | None = None  # the address of the Dask cluster that grades; None for this machine

    @property
    def is_asked_for(self) -> bool:
        """True if submissions are graded as jobs in other processes."""
        return any((self.submissions, self.workers, self.store, self.scheduler))


@dataclass(frozen=True)
class Settings:
    """All options and ini keys."""

    device: str  # `auto`, `sim`, `cuda` or `cuda:N`
    exercises: Path  # the instructor's exercises folder
    seed: int  # 0 to `MAX_SEED`; the same seed repeats a run
    reports: tuple[ReportFile, ...]  # the files to write
    expected: tuple[Path, ...]  # the instructor's TOML files of expected verdicts
    timeout_s: float | None = None  # the time limit of a check; None for the default
    sanitize: bool = False  # whether checks that fail on a GPU run under compute-sanitizer
    count: bool = False  # whether Nsight Compute profiles the timed kernels on a GPU
    annotate: bool = False  # whether to make listings with counters and cost per source line
    # the GPU that the cost model describes, by its short name such as `t4`; None for the default
    gpu: str | None = None
    # the architecture for occupancy on the simulated GPU, such as `sm_86`; None for that of `gpu`
    architecture: str | None = None
    # the file with the device's thresholds, as an absolute path; `auto` looks for one among the exercises, `none`
    # leaves the exercises' own
    calibration: str = "auto"
    calibrate: bool = False  # whether to measure a calibration instead of using one
    # the share of the reference solution's speedup that a new calibration requires
    fraction: float = CALIBRATED_FRACTION
    title: str = ""  # the title of the course, for pages
    seed_given: bool = False  # whether an option or ini key gave the seed; else it was drawn
    # whether exercises that ask for a whole program are graded: host code of students runs, in a sandbox
    programs: bool = False
    course: ClassSettings = ClassSettings()  # how a class is graded
    # the tunables to sweep over, with their values; empty to grade
    sweep: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)  # exercise to its weight in totals; 1 for others

    @classmethod
    def read(
        cls,
        option: Callable[[str], Any],
        ini: Callable[[str], Any],
        rootdir: Path,
        working_folder: Path,
        shared: Mapping[str, Any] | None = None,
    ) -> Settings:
        """Read the settings; an option wins over the ini key of its name.

        `option` looks up a command line option by its destination, `ini` an ini key; None or empty where not given.
        Paths in ini keys are relative to `rootdir`, those in options to `working_folder`. `shared` has settings of the
        process that started this one. Raises SettingsError with one line that names the option and what it accepts.
        """
        _refuse_empty(option)

        def either(name: str) -> Any:
            return option(f"gpulab_{name}") or ini(f"gpulab_{name}")

        reports = _reports(option, working_folder)
        settings = cls(
            **(_given(shared) if shared else _own(option, either, ini, rootdir, working_folder)),
            reports=reports,
            expected=tuple(found for path in ini("gpulab_expected") for found in _matching(Path(path))),
            timeout_s=_timeout_s(either("timeout")),
            sanitize=bool(option("gpulab_sanitizer")),
            count=bool(option("gpulab_ncu")),
            annotate=bool(option("gpulab_annotate")) or any(report.format in _ANNOTATED_FORMATS for report in reports),
            gpu=either("gpu") or None,
            architecture=_architecture(either("arch")),
            **_calibration(option, ini, rootdir, working_folder, shared),
            title=either("title") or "",
            seed_given=bool(either("seed")),
            programs=bool(either("programs")),
            course=_class(option, working_folder),
            weights=_weights(ini("gpulab_weights")),
            sweep=_sweep(option("gpulab_sweep")),
        )
        _refuse_with_sweep(settings)
        return settings

    def shared(self, device: str) -> dict[str, Any]:
        """Return the settings that worker processes must share, as builtins only, with the device of this process."""
        return {"device": device, "exercises": str(self.exercises), "seed": self.seed, "calibration": self.calibration}


def _given(shared: Mapping[str, Any]) -> dict[str, Any]:
    return {"device": shared["device"], "exercises": Path(shared["exercises"]), "seed": shared["seed"]}


def _own(
    option: Callable[[str], Any], either: Callable[[str], Any], ini: Callable[[str], Any], rootdir: Path, here: Path
) -> dict[str, Any]:
    """Return the settings that a process that was started by another one takes from there."""
    given = option("gpulab_exercises")
    exercises = here / given if given else rootdir / (ini("gpulab_exercises") or "exercises")
    return {
        "device": _matched("device", either("device") or "auto", r"auto|sim|cuda(:\d+)?", _DEVICES),
        "exercises": _existing_folder(exercises),
        "seed": _seed(either("seed")),
    }


def _reports(option: Callable[[str], Any], working_folder: Path) -> tuple[ReportFile, ...]:
    feedback = option("gpulab_feedback")
    specs = [*option("gpulab_report"), *([f"feedback:{feedback}"] if feedback else [])]
    return tuple(_report_file(spec, working_folder) for spec in specs)


def _matching(pattern: Path) -> list[Path]:
    """Return the files that a path with `*` matches; a path without it stays, so that a missing file is an error."""
    first = next((number for number, part in enumerate(pattern.parts) if "*" in part), None)
    if first is None:
        return [pattern]
    return sorted(Path(*pattern.parts[:first]).glob(str(Path(*pattern.parts[first:]))))


def shown(path: Path) -> str:
    """Return a path as messages show it: relative to the working folder if it lies there."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _refuse_empty(option: Callable[[str], Any]) -> None:
    """Refuse an option without a value, such as an unset variable of the shell, which would select the default."""
    for name in WITH_A_VALUE:
        if option(f"gpulab_{name}") == "":
            raise SettingsError(f"--gpulab-{name.replace('_', '-')}= has no value: give it one, or leave it out")


def _matched(name: str, text: str, pattern: str, words: str, accepts: Callable[[str], bool] = bool) -> str:
    """Return the text of an option if it has this form; `words` say what the option accepts."""
    if not (re.fullmatch(pattern, text, re.ASCII) and accepts(text)):
        raise SettingsError(f"--gpulab-{name}={text}: {words}")
    return text


def _existing_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise SettingsError(
            f"no exercises folder at {folder}: run from the course's folder, or name it with --gpulab-exercises=DIR"
        )
    return folder.resolve()


def _seed(text: str | None) -> int:
    if not text:
        return secrets.randbelow(MAX_SEED + 1)
    words = f"a seed is a whole number from 0 to {MAX_SEED}"
    return int(_matched("seed", text, r"\d+", words, lambda seed: int(seed) <= MAX_SEED))


def _weights(lines: Sequence[str]) -> Mapping[str, float]:
    if not lines:
        return {}
    from pytest_gpulab.deployment.weights import parsed

    return parsed(lines)


def _timeout_s(text: str | None) -> float | None:
    words = "a time limit is a number of seconds greater than 0"
    return float(_matched("timeout", text, r"\d+(\.\d+)?", words, lambda limit: float(limit) > 0)) if text else None


def _class(option: Callable[[str], Any], working_folder: Path) -> ClassSettings:
    given = {name: option(f"gpulab_{name}") for name in ("submissions", "roster", "store", "adjust")}
    paths = {name: working_folder / path if path else None for name, path in given.items()}
    chosen = ClassSettings(
        **paths,
        workers=_workers(option("gpulab_workers")),
        regrade=bool(option("gpulab_regrade")),
        scheduler=option("gpulab_scheduler") or None,
    )
    if chosen.scheduler and chosen.workers:
        raise SettingsError("--gpulab-workers starts processes on this machine: leave it out with --gpulab-scheduler")
    if chosen.roster and not chosen.submissions:
        raise SettingsError("--gpulab-roster lists the students of a class: it needs --gpulab-submissions")
    if chosen.adjust and not chosen.submissions:
        raise SettingsError("--gpulab-adjust changes points of a class: it needs --gpulab-submissions")
    if chosen.regrade and not (chosen.submissions or chosen.store):
        raise SettingsError("--gpulab-regrade needs a store of grades: --gpulab-submissions has one, or --gpulab-store")
    return chosen


def _workers(text: str | None) -> int | None:
    words = f"the number of processes is from 1 to {MAX_WORKERS}"
    return int(_matched("workers", text, r"\d+", words, lambda count: 0 < int(count) <= MAX_WORKERS)) if text else None


def _architecture(text: str | None) -> str | None:
    return _matched("arch", text, r"sm_\d+", "an architecture is sm_ and its number, such as sm_86") if text else None


def _calibration(
    option: Callable[[str], Any],
    ini: Callable[[str], Any],
    rootdir: Path,
    working_folder: Path,
    shared: Mapping[str, Any] | None,
) -> dict[str, Any]:
    calibrate, fraction = bool(option("gpulab_calibrate")), option("gpulab_calibrate_fraction")
    given, in_ini = option("gpulab_calibration"), ini("gpulab_calibration")
    name, folder = (given, working_folder) if given else (in_ini or "auto", rootdir)
    calibration = name if name in ("auto", "none") else str(folder / name)
    if calibrate and calibration == "none":
        raise SettingsError("--gpulab-calibrate writes a calibration: omit --gpulab-calibration=none")
    return {
        "calibration": shared["calibration"] if shared else calibration,
        "calibrate": calibrate,
        "fraction": _fraction(fraction) if fraction else CALIBRATED_FRACTION,
    }


def _fraction(text: str) -> float:
    words = "a fraction is a number above 0 and at most 1"
    return float(_matched("calibrate-fraction", text, r"0?\.\d+|1(\.0*)?", words, lambda share: float(share) > 0))


def _sweep(specs: Sequence[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for spec in specs:
        name, _, values = spec.partition("=")
        if not name.isidentifier() or not re.fullmatch(r"-?\d+(,-?\d+)*", values, re.ASCII):
            raise SettingsError(f"--gpulab-sweep={spec}: a sweep is NAME=V1,V2,... with a tunable and whole numbers")
        if name in found:
            raise SettingsError(f"--gpulab-sweep={spec}: all values of {name} belong in one option")
        found[name] = tuple(dict.fromkeys(map(int, values.split(","))))
    if len(found) > MAX_SWEPT:
        raise SettingsError(
            f"--gpulab-sweep was given for {len(found)} tunables: at most {MAX_SWEPT} can be swept over"
        )
    if (points := math.prod(map(len, found.values()))) > MAX_POINTS:
        raise SettingsError(f"--gpulab-sweep asks for {points} combinations: at most {MAX_POINTS} are measured")
    return found


def _refuse_with_sweep(settings: Settings) -> None:
    if not settings.sweep:
        return
    for report in settings.reports:
        if report.format not in SWEEP_FORMATS:
            formats = " and ".join(SWEEP_FORMATS)
            raise SettingsError(f"--gpulab-sweep has no points to report as {report.format}: its formats are {formats}")
    if settings.course.is_asked_for or settings.calibrate:
        raise SettingsError("--gpulab-sweep measures single files: omit the options for a class and for a calibration")


def _report_file(spec: str, working_folder: Path) -> ReportFile:
    kind, colon, name = spec.partition(":")
    if not colon or not name or kind not in REPORT_FORMATS:
        formats = ", ".join(REPORT_FORMATS)
        raise SettingsError(f"--gpulab-report={spec}: a report is FORMAT:PATH with FORMAT one of {formats}")
    path = working_folder / name
    if kind == "feedback" and path.is_file():
        raise SettingsError(f"{name} is a file: pages of feedback are written into a folder")
    return ReportFile(kind, path)
