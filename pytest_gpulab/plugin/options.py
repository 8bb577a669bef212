"""The command line's options and the ini keys, each with its line of help; `settings` interprets them."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from .settings import REPORT_FORMATS, SettingsError

if TYPE_CHECKING:
    import pytest

ASKS_FOR_GRADES = (
    *("--gpulab-submissions", "--gpulab-workers", "--gpulab-scheduler", "--gpulab-roster", "--gpulab-store"),
    *(
        "--gpulab-adjust",
        "--gpulab-regrade",
        "--gpulab-report",
        "--gpulab-feedback",
        "--gpulab-annotate",
        "--gpulab-sweep",
    ),
)
"""Options that require `--gpulab`; the others only configure grading."""


def add_to(parser: pytest.Parser) -> None:
    """Declare all options and ini keys."""
    group = parser.getgroup("gpulab", "grading of CUDA kernels")
    group.addoption(
        "--gpulab", action="store_true", help="grade .cu files below PATHS; without PATHS your own in exercises/"
    )
    group.addoption("--gpulab-device", metavar="DEVICE", help="auto (default), cuda, cuda:N or sim")
    group.addoption("--gpulab-exercises", metavar="DIR", help="the instructor's exercises (default: ROOTDIR/exercises)")
    group.addoption("--gpulab-seed", metavar="N", help="seed of all random inputs (default: a fresh one, printed)")
    group.addoption("--gpulab-gpu", metavar="NAME", help="the GPU model of the simulated GPU (default: h200)")
    group.addoption(
        "--gpulab-arch",
        metavar="sm_XX",
        help="architecture for which the simulated GPU computes occupancy (default: the modelled GPU)",
    )
    group.addoption(
        "--gpulab-timeout",
        metavar="S",
        help="time limit of a check, in seconds (default: 120 on a GPU and for a class, else none)",
    )
    group.addoption(
        "--gpulab-sanitizer", action="store_true", help="run failed checks under compute-sanitizer, too (GPU only)"
    )
    group.addoption(
        "--gpulab-ncu",
        action="store_true",
        help="read hardware counters of timed kernels with Nsight Compute (GPU only)",
    )
    group.addoption(
        "--gpulab-programs",
        action="store_true",
        help="grade exercises that ask for a whole program: run students' host code natively, in a sandbox",
    )
    _add_calibration_options(group)
    _add_class_options(group)
    group.addoption(
        "--gpulab-annotate", action="store_true", help="list the source with counters and cost of each line"
    )
    group.addoption(
        "--gpulab-sweep",
        metavar="NAME=V1,V2,...",
        action="append",
        default=[],
        help="measure a file at these values of a tunable instead of grading it; given twice, at all pairs of values",
    )
    group.addoption(
        "--gpulab-report",
        metavar="FORMAT:PATH",
        action="append",
        default=[],
        help=f"write a report; FORMAT is one of {', '.join(REPORT_FORMATS)}",
    )
    group.addoption("--gpulab-title", metavar="TEXT", help="the title of the course, for reports and feedback")
    group.addoption("--gpulab-feedback", metavar="DIR", help="write a feedback page per student into this folder")
    _add_ini_keys(parser)


def is_grading_asked_for(config: pytest.Config, given: Namespace) -> bool:
    """Return whether to grade: `--gpulab` is given, or a calibration on the command line.

    Options in a configuration file or in the environment do not count: they apply to other runs, too.
    """
    return bool(given.gpulab) or "--gpulab-calibrate" in map(str, config.invocation_params.args)


def refuse_alone(config: pytest.Config) -> None:
    """Refuse options that need `--gpulab` if it is missing: a course's own tests would run instead.

    Options in a configuration file or in the environment are allowed: they apply to other runs, too.

    Raises:
        SettingsError: the command line has such an option.
    """
    for word in config.invocation_params.args:
        name = str(word).partition("=")[0]
        if name in ASKS_FOR_GRADES:
            raise SettingsError(f"{name} has no effect without --gpulab: add --gpulab")


def _add_calibration_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--gpulab-calibration",
        metavar="PATH",
        help="this GPU's thresholds: auto (default) looks in EXERCISES/calibration, none leaves the exercises' own",
    )
    group.addoption(
        "--gpulab-calibrate",
        action="store_true",
        help="grade ladders of solutions and write that file from their times",
    )
    group.addoption(
        "--gpulab-calibrate-fraction",
        metavar="F",
        help="share of the reference solution's speedup that a tier requires (default: 0.85)",
    )


def _add_class_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--gpulab-submissions",
        metavar="PATH",
        help="grade a class: a folder or ZIP of STUDENT/EXERCISE.cu; PATHS then are names of students or ids of checks",
    )
    group.addoption(
        "--gpulab-workers",
        metavar="N",
        help="number of grading processes (default for a class: one per core, limited by the memory of the GPUs)",
    )
    group.addoption("--gpulab-scheduler", metavar="ADDRESS", help="grade on the workers of this Dask cluster instead")
    group.addoption("--gpulab-roster", metavar="CSV", help="the list of the class: ids and names")
    group.addoption(
        "--gpulab-adjust",
        metavar="CSV",
        help="points to add to students' exercises: student, exercise, points, comment",
    )
    group.addoption(
        "--gpulab-store",
        metavar="PATH",
        help="keep grades in this file, so that a run can be resumed (default for a class: in pytest's cache)",
    )
    group.addoption(
        "--gpulab-regrade", action="store_true", help="grade stored submissions again and list changed points"
    )


def _add_ini_keys(parser: pytest.Parser) -> None:
    parser.addini("gpulab_device", "as --gpulab-device", default="")
    parser.addini("gpulab_exercises", "as --gpulab-exercises, relative to rootdir", default="")
    parser.addini("gpulab_seed", "as --gpulab-seed", default="")
    parser.addini("gpulab_gpu", "as --gpulab-gpu", default="")
    parser.addini("gpulab_arch", "as --gpulab-arch", default="")
    parser.addini("gpulab_timeout", "as --gpulab-timeout", default="")
    parser.addini("gpulab_title", "as --gpulab-title", default="")
    parser.addini("gpulab_calibration", "as --gpulab-calibration, relative to rootdir", default="")
    parser.addini("gpulab_weights", "EXERCISE = NUMBER, a line each: weights in totals", type="linelist", default=[])
    parser.addini("gpulab_programs", "as --gpulab-programs", type="bool", default=False)
    parser.addini("gpulab_expected", "TOML files of expected verdicts", type="paths", default=[])
