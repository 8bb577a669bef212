"""What the user asked for: command line options and ini keys, read once into one frozen `Settings`.

Knows neither pytest nor the rest of the package: `plugin.py` hands in two look-up functions.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_SEED = 2**32 - 1
REPORT_FORMATS = ("json", "html")
CALIBRATED_FRACTION = 0.85
"""Of the reference solution's speedup: what a calibrated threshold asks for unless told otherwise."""
_DEVICE = re.compile(r"auto|sim|cuda(:\d+)?")


class SettingsError(Exception):
    """An option or ini key that cannot be obeyed, in one line for whoever wrote it."""


@dataclass(frozen=True)
class ReportFile:
    """A report to write: `format` is one of `REPORT_FORMATS`, `path` is absolute."""

    format: str
    path: Path


@dataclass(frozen=True)
class Settings:
    """Everything that can be asked for.

    Attributes:
        device: `auto`, `sim`, `cuda` or `cuda:N`.
        exercises: the instructor's exercises folder.
        seed: from 0 to `MAX_SEED`; what it was drawn or given as makes a run repeatable.
        reports: the files to write.
        expected: the instructor's TOML files of expected verdicts.
        timeout_s: what a check may take; None where it was not given.
        sanitize: whether compute-sanitizer looks at what fails on a GPU.
        annotate: whether to list what each source line does and costs; a page of listings is a report.
        count: whether Nsight Compute counts what timed kernels do on a GPU.
        gpu: which GPU the simulated one describes, by its short name such as `t4`; None for the default.
        architecture: what the simulated GPU tells occupancy for, such as `sm_86`; None for the GPU that it describes.
        calibration: the file with the device's thresholds, as an absolute path; `auto` looks for one among the
            exercises, `none` leaves the exercises' own.
        calibrate: whether to make that file instead of using it.
        fraction: of the reference solution's speedup, for the thresholds of a new calibration.
    """

    device: str
    exercises: Path
    seed: int
    reports: tuple[ReportFile, ...]
    expected: tuple[Path, ...]
    timeout_s: float | None = None
    sanitize: bool = False
    count: bool = False
    annotate: bool = False
    gpu: str | None = None
    architecture: str | None = None
    calibration: str = "auto"
    calibrate: bool = False
    fraction: float = CALIBRATED_FRACTION

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

        Args:
            option: look-up of a command line option by its destination, None or empty where not given.
            ini: look-up of an ini key, empty where not given.
            rootdir: what the ini keys are relative to.
            working_folder: what options are relative to.
            shared: from the process that started this one, which has looked for everything already.

        Raises:
            SettingsError: with one line that names the option and what it accepts.
        """
        given, in_ini = option("gpulab_exercises"), ini("gpulab_exercises")
        exercises = working_folder / given if given else rootdir / (in_ini or "exercises")
        seed = option("gpulab_seed") or ini("gpulab_seed")
        reports = tuple(_report_file(spec, working_folder) for spec in option("gpulab_report"))
        return cls(
            device=_device(option("gpulab_device") or ini("gpulab_device") or "auto"),
            exercises=Path(shared["exercises"]) if shared else _existing_folder(exercises),
            seed=shared["seed"] if shared else _seed(seed),
            reports=reports,
            expected=tuple(Path(path) for path in ini("gpulab_expected")),
            timeout_s=_timeout_s(option("gpulab_timeout") or ini("gpulab_timeout")),
            sanitize=bool(option("gpulab_sanitizer")),
            count=bool(option("gpulab_ncu")),
            annotate=bool(option("gpulab_annotate")) or any(report.format == "html" for report in reports),
            gpu=option("gpulab_gpu") or ini("gpulab_gpu") or None,
            architecture=_architecture(option("gpulab_arch") or ini("gpulab_arch")),
            **_calibration(option, ini, rootdir, working_folder, shared),
        )

    @property
    def shared(self) -> dict[str, Any]:
        """What processes that this one starts must have in common with it, builtins only."""
        return {"exercises": str(self.exercises), "seed": self.seed, "calibration": self.calibration}


def _device(spec: str) -> str:
    if not _DEVICE.fullmatch(spec):
        raise SettingsError(f"--gpulab-device={spec}: a device is auto, sim, cuda or cuda:N with the number of a GPU")
    return spec


def _existing_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise SettingsError(
            f"no exercises folder at {folder}: run from the course's folder, or name it with --gpulab-exercises=DIR"
        )
    return folder.resolve()


def _seed(text: str | None) -> int:
    if not text:
        return secrets.randbelow(MAX_SEED + 1)
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_SEED):
        raise SettingsError(f"--gpulab-seed={text}: a seed is a whole number from 0 to {MAX_SEED}")
    return int(text)


def _timeout_s(text: str | None) -> float | None:
    if not text:
        return None
    if not re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) or float(text) == 0:
        raise SettingsError(f"--gpulab-timeout={text}: a time limit is a number of seconds greater than 0")
    return float(text)


def _architecture(text: str | None) -> str | None:
    if not text:
        return None
    if not re.fullmatch(r"sm_\d+", text, re.ASCII):
        raise SettingsError(f"--gpulab-arch={text}: an architecture is sm_ and its number, such as sm_86")
    return text


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
        raise SettingsError("--gpulab-calibrate writes a calibration: it cannot be combined with a calibration of none")
    return {
        "calibration": shared["calibration"] if shared else calibration,
        "calibrate": calibrate,
        "fraction": _fraction(fraction) if fraction else CALIBRATED_FRACTION,
    }


def _fraction(text: str) -> float:
    if not re.fullmatch(r"0?\.\d+|1(\.0*)?", text, re.ASCII) or float(text) == 0:
        raise SettingsError(f"--gpulab-calibrate-fraction={text}: a fraction is a number above 0 and at most 1")
    return float(text)


def _report_file(spec: str, working_folder: Path) -> ReportFile:
    kind, colon, name = spec.partition(":")
    if not colon or not name or kind not in REPORT_FORMATS:
        formats = ", ".join(REPORT_FORMATS)
        raise SettingsError(f"--gpulab-report={spec}: a report is FORMAT:PATH with FORMAT one of {formats}")
    path = working_folder / name
    _try_to_write(path)
    return ReportFile(kind, path)


def _try_to_write(path: Path) -> None:
    """Fail before grading rather than after it, and leave no trace."""
    is_new = not path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise SettingsError(f"cannot write the report {path}: {error.strerror}") from None
    if is_new:
        path.unlink()
