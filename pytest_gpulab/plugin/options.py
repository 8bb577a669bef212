"""The command line's options and the ini keys, each with its line of help; `settings` gives them a meaning."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from .settings import REPORT_FORMATS, SettingsError

if TYPE_CHECKING:
    import pytest

ASKS_FOR_GRADES = (
    *("--gpulab-submissions", "--gpulab-workers", "--gpulab-scheduler", "--gpulab-roster", "--gpulab-store"),
    *("--gpulab-regrade", "--gpulab-report", "--gpulab-feedback", "--gpulab-annotate"),
)
"""Options that require `--gpulab`; the others only configure grading."""


def add_to(parser: pytest.Parser) -> None:
    """Declare all of them."""
    group = parser.getgroup("gpulab", "grading of CUDA kernels")
    group.addoption(
        "--gpulab", action="store_true", help="grade .cu files below PATHS; without PATHS your own in exercises/"
    )
    group.addoption("--gpulab-device", metavar="DEVICE", help="auto (default), cuda, cuda:N or sim")
    group.addoption("--gpulab-exercises", metavar="DIR", help="the instructor's exercises (default: ROOTDIR/exercises)")
    group.addoption("--gpulab-seed", metavar="N", help="seed of all random inputs (default: a fresh one, printed)")
    group.addoption("--gpulab-gpu", metavar="NAME", help="the GPU that the simulated one describes (default: h200)")
    group.addoption(
        "--gpulab-arch", metavar="sm_XX", help="what the simulated GPU tells occupancy for (default: the modelled GPU)"
    )
    group.addoption(
        "--gpulab-timeout",
        metavar="S",
        help="seconds that a check may take (default: 120 on a GPU and for a class, else none)",
    )
    group.addoption(
        "--gpulab-sanitizer", action="store_true", help="run what fails on a GPU under compute-sanitizer as well"
    )
    group.addoption(
        "--gpulab-ncu", action="store_true", help="count what timed kernels do on a GPU with Nsight Compute's ncu"
    )
    _add_calibration_options(group)
    _add_class_options(group)
    group.addoption("--gpulab-annotate", action="store_true", help="list the source with what each line does and costs")
    group.addoption(
        "--gpulab-report",
        metavar="FORMAT:PATH",
        action="append",
        default=[],
        help=f"write a report; FORMAT is one of {', '.join(REPORT_FORMATS)}",
    )
    group.addoption("--gpulab-feedback", metavar="DIR", help="write a page of feedback for each student into a folder")
    _add_ini_keys(parser)


def is_grading_asked_for(config: pytest.Config, given: Namespace) -> bool:
    """Say whether to grade: `--gpulab` asks for it, and so does a calibration on the command line.

    What stands in a configuration file or in the environment is there for other runs, too.
    """
    return bool(given.gpulab) or "--gpulab-calibrate" in map(str, config.invocation_params.args)


def refuse_alone(config: pytest.Config) -> None:
    """Refuse what asks for grades without `--gpulab`: a course's own tests would run instead.

    What stands in a configuration file or in the environment is there for other runs, too, and is left alone.

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
        "--gpulab-calibrate", action="store_true", help="grade ladders of solutions, as --gpulab, to make that file"
    )
    group.addoption(
        "--gpulab-calibrate-fraction",
        metavar="F",
        help="of its reference solution's speedup that a tier is to ask for (default: 0.85)",
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
        help="grade in so many processes (default for a class: one for every core, as far as GPUs have room for them)",
    )
    group.addoption("--gpulab-scheduler", metavar="ADDRESS", help="grade on the workers of a Dask cluster instead")
    group.addoption("--gpulab-roster", metavar="CSV", help="the list of the class: ids and names")
    group.addoption(
        "--gpulab-store",
        metavar="PATH",
        help="keep grades in this file, so that a run can be resumed (default for a class: in pytest's cache)",
    )
    group.addoption("--gpulab-regrade", action="store_true", help="grade again what is kept; list what changes")


def _add_ini_keys(parser: pytest.Parser) -> None:
    parser.addini("gpulab_device", "as --gpulab-device", default="")
    parser.addini("gpulab_exercises", "as --gpulab-exercises, relative to rootdir", default="")
    parser.addini("gpulab_seed", "as --gpulab-seed", default="")
    parser.addini("gpulab_gpu", "as --gpulab-gpu", default="")
    parser.addini("gpulab_arch", "as --gpulab-arch", default="")
    parser.addini("gpulab_timeout", "as --gpulab-timeout", default="")
    parser.addini("gpulab_calibration", "as --gpulab-calibration, relative to rootdir", default="")
    parser.addini("gpulab_expected", "TOML files of expected verdicts", type="paths", default=[])
