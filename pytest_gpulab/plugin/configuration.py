"""pytest's configuration: the options and ini keys with their help, protection from students, requests to end.

Submissions must not configure the run or add code to it. `settings` interprets the options.
"""

import os
import shlex
import signal
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .settings import REPORT_FORMATS, SettingsError

_OF_GRADES = "submissions workers scheduler roster store adjust regrade report feedback annotate sweep"
ASKS_FOR_GRADES = tuple(f"--gpulab-{name}" for name in _OF_GRADES.split())
"""Options that require `--gpulab`; the others only configure grading."""
_OPTIONS: tuple[tuple[str, str, str], ...] = (  # the metavar is empty for a flag
    ("--gpulab", "", "grade .cu files below PATHS; without PATHS your own in exercises/"),
    ("--gpulab-device", "DEVICE", "auto (default), cuda, cuda:N or sim"),
    ("--gpulab-exercises", "DIR", "the instructor's exercises (default: ROOTDIR/exercises)"),
    ("--gpulab-seed", "N", "seed of all random inputs (default: a fresh one, printed)"),
    ("--gpulab-gpu", "NAME", "the GPU model of the simulated GPU (default: h200)"),
    ("--gpulab-arch", "sm_XX",
     "architecture for which the simulated GPU computes occupancy (default: the modelled GPU)"),
    ("--gpulab-timeout", "S", "time limit of a check, in seconds (default: 120 on a GPU and for a class, else none)"),
    ("--gpulab-sanitizer", "", "run failed checks under compute-sanitizer, too (GPU only)"),
    ("--gpulab-ncu", "", "read hardware counters of timed kernels with Nsight Compute (GPU only)"),
    ("--gpulab-programs", "",
     "grade exercises that ask for a whole program: run students' host code natively, in a sandbox"),
    ("--gpulab-calibration", "PATH",
     "this GPU's thresholds: auto (default) looks in EXERCISES/calibration, none leaves the exercises' own"),
    ("--gpulab-calibrate", "", "grade ladders of solutions and write that file from their times"),
    ("--gpulab-calibrate-fraction", "F",
     "share of the reference solution's speedup that a tier requires (default: 0.85)"),
    ("--gpulab-submissions", "PATH",
     "grade a class: a folder or ZIP of STUDENT/EXERCISE.cu; PATHS then are names of students or ids of checks"),
    ("--gpulab-workers", "N",
     "number of grading processes (default for a class: one per core, limited by the memory of the GPUs)"),
    ("--gpulab-scheduler", "ADDRESS", "grade on the workers of this Dask cluster instead"),
    ("--gpulab-roster", "CSV", "the list of the class: ids and names"),
    ("--gpulab-adjust", "CSV", "points to add to students' exercises: student, exercise, points, comment"),
    ("--gpulab-store", "PATH",
     "keep grades in this file, so that a run can be resumed (default for a class: in pytest's cache)"),
    ("--gpulab-regrade", "", "grade stored submissions again and list changed points"),
    ("--gpulab-annotate", "", "list the source with counters and cost of each line"),
    ("--gpulab-sweep", "NAME=V1,V2,...",
     "measure a file at these values of a tunable instead of grading it; given twice, at all pairs of values"),
    ("--gpulab-report", "FORMAT:PATH", f"write a report; FORMAT is one of {', '.join(REPORT_FORMATS)}"),
    ("--gpulab-title", "TEXT", "the title of the course, for reports and feedback"),
    ("--gpulab-feedback", "DIR", "write a feedback page per student into this folder"),
)  # fmt: skip
_REPEATED = ("--gpulab-sweep", "--gpulab-report")


def add_to(parser: pytest.Parser) -> None:
    """Declare all options and ini keys."""
    group = parser.getgroup("gpulab", "grading of CUDA kernels")
    for name, metavar, text in _OPTIONS:
        if not metavar:
            group.addoption(name, action="store_true", help=text)
        elif name in _REPEATED:
            group.addoption(name, metavar=metavar, action="append", default=[], help=text)
        else:
            group.addoption(name, metavar=metavar, help=text)
    for name in ("device", "exercises", "seed", "gpu", "arch", "timeout", "title", "calibration"):
        base = ", relative to rootdir" if name in ("exercises", "calibration") else ""
        parser.addini(f"gpulab_{name}", f"as --gpulab-{name}{base}", default="")
    parser.addini("gpulab_weights", "EXERCISE = NUMBER, a line each: weights in totals", type="linelist", default=[])
    parser.addini("gpulab_programs", "as --gpulab-programs", type="bool", default=False)
    parser.addini("gpulab_expected", "TOML files of expected verdicts", type="paths", default=[])


def is_grading_asked_for(config: pytest.Config, given: Namespace) -> bool:
    """Return whether to grade: `--gpulab` is given, or a calibration on the command line.

    Options in a configuration file or in the environment do not count: they apply to other runs, too.
    """
    return bool(given.gpulab) or "--gpulab-calibrate" in map(str, config.invocation_params.args)


def refuse_alone(config: pytest.Config) -> None:
    """Raise SettingsError for options that need `--gpulab` if it is missing: a course's own tests would run instead.

    Options in a configuration file or in the environment are allowed: they apply to other runs, too.
    """
    for word in config.invocation_params.args:
        name = str(word).partition("=")[0]
        if name in ASKS_FOR_GRADES:
            raise SettingsError(f"{name} has no effect without --gpulab: add --gpulab")


@contextmanager
def trusted_only(config: pytest.Config) -> Iterator[None]:
    """Prevent pytest from loading the `conftest.py` of students' folders while it loads the instructor's.

    pytest imports the `conftest.py` of every path on the command line, and those of folders called `test*`. Raises
    pytest.UsageError if the configuration file that pytest found may be a student's.
    """
    known = config.known_args_namespace
    given, unwanted = known.file_or_dir, known.noconftest
    if is_grading_asked_for(config, known):
        _refuse_foreign_configuration(config)
        known.file_or_dir = _own_conftest(config)
        known.noconftest = unwanted or not known.file_or_dir
    try:
        yield
    finally:
        known.file_or_dir, known.noconftest = given, unwanted


def course_folder(config: pytest.Config) -> Path:
    """Return rootdir, or the working folder if pytest derived rootdir from paths of students."""
    is_certain = config.inipath is not None or config.getoption("rootdir") is not None
    return config.rootpath if is_certain else config.invocation_params.dir


def _own_conftest(config: pytest.Config) -> list[str]:
    """Return the conftest.py of the working folder or, if it has none, of the nearest one above it up to rootdir."""
    here = config.invocation_params.dir
    above = here.parents if here.is_relative_to(config.rootpath) else ()
    folders = (folder for folder in (here, *above) if folder.is_relative_to(config.rootpath) or folder == here)
    return [str(folder / "conftest.py") for folder in folders if (folder / "conftest.py").is_file()][:1]


def _refuse_foreign_configuration(config: pytest.Config) -> None:
    """Refuse a configuration file that is neither named with `-c` nor in the working folder or above it.

    pytest would find a `pytest.ini` beside a submission before the instructor's. Raises pytest.UsageError if pytest
    found a file elsewhere, or a class is graded from within its own submissions.
    """
    found, here = config.inipath, config.invocation_params.dir
    submissions = config.known_args_namespace.gpulab_submissions
    if submissions and here.resolve().is_relative_to((here / submissions).resolve()):
        raise pytest.UsageError(
            f"{here} is inside the submissions; no configuration or code is read there: run from the course's folder"
        )
    if submissions and config.rootpath.resolve().is_relative_to((here / submissions).resolve()):
        raise pytest.UsageError(
            f"rootdir would be {config.rootpath}, which is inside the submissions: "
            "write --gpulab-submissions=DIR, with an equals sign"
        )
    is_named = any(word.startswith(("-c", "--config-file")) for word in _typed(config))
    if found and not is_named and found.parent not in (here, *here.parents):
        raise pytest.UsageError(
            f"{found} may be a student's and is not used as configuration: "
            "run from the course's folder, or name the file with -c"
        )


def is_to_grade(session: pytest.Session) -> bool:
    """Return whether the run must grade checks: an `addopts` with `--collect-only` must not look like a success."""
    lists = any(word == "--co" or word.startswith("--collect") for word in _typed(session.config))
    return not lists and any(item.get_closest_marker("gpulab") for item in session.items)


def _typed(config: pytest.Config) -> list[str]:
    """Return the words of the command line; options in a found file are not among them."""
    return [*map(str, config.invocation_params.args), *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]


def stop_as_by_ctrl_c(config: pytest.Config) -> None:
    """Let a request to end (a batch system's time limit, a closed terminal) stop the run as Ctrl-C does.

    Grades are reported, and folders removed. A second request ends the process at once.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    both = (signal.SIGTERM, signal.SIGHUP)
    requests = [number for number in both if signal.getsignal(number) is signal.SIG_DFL]  # `nohup` ignores SIGHUP

    def restore() -> None:
        for number in requests:
            signal.signal(number, signal.SIG_DFL)

    def stop(number: int, _frame: object) -> None:
        restore()
        raise KeyboardInterrupt(signal.Signals(number).name)

    for number in requests:
        signal.signal(number, stop)
    config.add_cleanup(restore)
