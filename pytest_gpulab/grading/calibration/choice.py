"""The thresholds for a device: a calibration's, if there is one, else the exercises' own."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.exercise import SpeedTier
from pytest_gpulab.grading.catalogue import LoadedExercise, Thresholds
from pytest_gpulab.grading.grade import OWN
from pytest_gpulab.grading.speed.costs import size_text

from .file import Calibration, CalibrationError, Table, document, read, text

FOLDER = "calibration"


@dataclass
class DeviceThresholds:
    """The speed thresholds of all exercises on one device, used or being calibrated."""

    spec: str  # a calibration file, `none`, or `auto` for the file in the exercises folder that fits the device
    exercises: Path  # the exercises folder; its sub-folder `calibration` holds one file per device
    measuring: bool  # whether the run makes a calibration
    calibration: Calibration | None = None  # the calibration in use; None before `choose`, and without a fitting one
    info: DeviceInfo | None = None  # the device; None before `choose`

    def choose(self, info: DeviceInfo) -> str:
        """Find the device's calibration and return a line about it; empty if times are estimates.

        Raises CalibrationError if a file is wrong or missing, two fit, or the device cannot be calibrated.
        """
        self.info = info
        if self.measuring:
            return f"thresholds: this run measures them for {self._shown(self._target(info)[0])}"
        if info.estimates:
            return ""
        if self.spec == "none":
            return "thresholds: the exercises' own, because of --gpulab-calibration=none"
        return self._find(info)

    def _find(self, info: DeviceInfo) -> str:
        folder = self.exercises / FOLDER
        paths = sorted(folder.glob("*.toml")) if self.spec == "auto" else [Path(self.spec)]
        found = [read(path) for path in paths]
        fitting = [calibration for calibration in found if calibration.fits(info)]
        if len(fitting) > 1:
            raise CalibrationError(f"{fitting[0].path} and {fitting[1].path} are both for {info.name}: remove one")
        if fitting:
            self.calibration = fitting[0]
            return f"thresholds: calibrated for {info.name} ({self._shown(fitting[0].path)})"
        if self.spec == "auto":
            return f"thresholds: the exercises' own; no calibration in {self._shown(folder)} is for this GPU"
        return f"thresholds: the exercises' own; {self._shown(paths[0])} is for {found[0].gpu_text}"

    def applied_to(self, loaded: LoadedExercise) -> LoadedExercise:
        """Return an exercise with its thresholds on the device."""
        if self.measuring:
            return loaded._replace(thresholds=Thresholds(f"{OWN}, while a calibration is measured", measuring=True))
        return loaded._replace(thresholds=self._of(self.calibration, loaded)) if self.calibration else loaded

    def _of(self, calibration: Calibration, loaded: LoadedExercise) -> Thresholds:
        table, version, where = calibration.exercises.get(loaded.name), loaded.exercise.version, calibration.path
        if table is None:
            return Thresholds(f"{OWN}; {self._shown(where)} has no entry for it")
        if table["version"] != version:
            return Thresholds(f"{OWN}; {self._shown(where)} is for its version {table['version']}, this is {version}")
        found = {tier.name: _threshold_or_reason(tier, table["tiers"].get(tier.name)) for tier in loaded.exercise.speed}
        reasons = "".join(f"; {OWN} for {name}, which {why}" for name, why in found.items() if isinstance(why, str))
        date = table["created_utc"].partition("T")[0]
        source = f"calibrated for {calibration.device} on {date} ({self._shown(where)}){reasons}"
        return Thresholds(source, {name: value for name, value in found.items() if isinstance(value, float)})

    def _target(self, info: DeviceInfo) -> tuple[Path, Mapping[str, Table]]:
        """Return the path of the new calibration, and the exercises that the file has already."""
        if info.estimates:
            raise CalibrationError(f"--gpulab-calibrate measures times, but the {info.name} only estimates them")
        slug = re.sub(r"[^a-z0-9]+", "-", info.name.lower()).strip("-")
        path = self.exercises / FOLDER / f"{slug}.toml" if self.spec == "auto" else Path(self.spec)
        folder = path.parent if path.parent.exists() else path.parent.parent
        if not path.exists() and folder.is_dir() and os.access(folder, os.W_OK):
            return path, {}
        if not os.access(path, os.W_OK):
            raise CalibrationError(f"cannot write the calibration {path}")
        there = read(path)
        if not there.fits(info):
            advice = "name another file with --gpulab-calibration=PATH"
            raise CalibrationError(f"{path} is for {there.gpu_text}, but this is {info.name}: {advice}")
        return path, there.exercises

    def write(self, measured: Mapping[str, Table]) -> str:
        """Write the device's file, keep its entries of exercises that were not measured again, and return its path.

        Raises CalibrationError if the existing file is wrong or for another device, and OSError if the file cannot be
        written.
        """
        assert self.info is not None, "a device is opened before anything is measured"
        info = self.info
        path, known = self._target(info)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text(document(info, {**known, **measured})), encoding="utf-8")
        return self._shown(path)

    def _shown(self, path: Path) -> str:
        """Return a path as text, relative to the course's folder if it is inside."""
        course = self.exercises.parent
        return path.relative_to(course).as_posix() if path.is_relative_to(course) else str(path)


def _threshold_or_reason(tier: SpeedTier, table: Table | None) -> float | str:
    """Return a tier's threshold, or the reason for keeping the exercise's own, as a clause after "which"."""
    if table is None:
        return "was not measured"
    for key, value in identity(tier).items():
        if table[key] != value:
            return f"was measured with {key} {table[key]}, not {value}"
    return float(table["threshold"]) if "threshold" in table else "has no threshold there"


def identity(tier: SpeedTier) -> dict[str, str]:
    """Return the identity of a tier's benchmark: besides the exercise's version, its ratios depend on it."""
    return {"baseline": tier.baseline, "size": size_text(tier.size), "variant": tier.variant.name}
