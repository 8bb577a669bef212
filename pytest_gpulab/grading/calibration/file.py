"""The calibration file: speeds of exercises' ladders on one device, and the thresholds derived from them.

It is TOML, to be read and edited by hand. Grading reads a tier's `threshold`, compares the tier's `baseline`, `size`
and `variant` and the exercise's `version` with the exercise, and ignores the rest:

    format = "pytest-gpulab/calibration"
    schema_version = 1
    device = "NVIDIA H200"
    SMs = "132"

    [exercises.reduction]
    version = "1"
    created_utc = "2026-11-20T13:01:00+00:00"

    [exercises.reduction.tiers."1.4x"]
    threshold = 1.34
    baseline = "naive.cu"
    size = "2^26"
    variant = "default"

`fit` makes the other entries.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_gpulab import UserError
from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.grading.expected import read_toml

FORMAT = "pytest-gpulab/calibration"
SCHEMA_VERSION = 1
HEAD = """\
# Speeds of the ladder of solutions on one device, and the thresholds of its speed tiers there, which replace the
# exercise's own. Grading reads `threshold`, which may be edited; a tier without one keeps the exercise's own.
# Written by pytest --gpulab --gpulab-calibrate, which replaces the entries of the exercises that it measures again.
"""

Table = dict[str, Any]


class CalibrationError(UserError):
    """An unusable calibration, explained in one line that names the file or the option."""


@dataclass(frozen=True)
class Calibration:
    """The contents of a calibration file."""

    path: Path
    device: str  # the name of its GPU
    # the number of SMs, as in `DeviceInfo.details`, because GPUs of one name may differ in it; empty if missing
    sms: str
    exercises: Mapping[str, Table]  # tables by exercise name

    def fits(self, info: DeviceInfo) -> bool:
        """Return whether it is for that device."""
        return self.device == info.name and self.sms in ("", info.details.get("SMs", ""))

    @property
    def gpu_text(self) -> str:
        """The GPU in words."""
        return self.device + (f" with {self.sms} SMs" if self.sms else "")


def document(info: DeviceInfo, exercises: Mapping[str, Table]) -> Table:
    """Return the contents of a file for a device, as input of `text`."""
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "device": info.name,
        "SMs": info.details.get("SMs", ""),
        "compute_capability": info.details.get("compute capability", ""),
        "architecture": info.architecture,
        "exercises": dict(sorted(exercises.items())),
    }


def read(path: Path) -> Calibration:
    """Read a file.

    Raises CalibrationError if the file is missing, not TOML, of another version, or lacks keys that grading needs.
    """
    document = read_toml(path, CalibrationError)
    try:
        return _checked(path, document)
    except ValueError as error:
        raise CalibrationError(f"{path}: {error}") from None


def _checked(path: Path, document: Table) -> Calibration:
    if document.get("format") != FORMAT:
        raise ValueError(f"not a calibration: it must say format = {json.dumps(FORMAT)}")
    if document.get("schema_version") != SCHEMA_VERSION:
        version = document.get("schema_version")
        raise ValueError(f"a calibration of schema version {version}; this is version {SCHEMA_VERSION}")
    _need_texts("the file", document, ("device",))
    if not isinstance(document.get("SMs", ""), str):
        raise ValueError("SMs must be a string")
    exercises = _subtables("the file", document, "exercises")
    for name, exercise in exercises.items():
        where = f"[exercises.{name}]"
        _need_texts(where, exercise, ("version", "created_utc"))
        for tier, table in _subtables(where, exercise, "tiers").items():
            _check_tier(f'[exercises.{name}.tiers."{tier}"]', table)
    return Calibration(path, document["device"], document.get("SMs", ""), exercises)


def _check_tier(where: str, table: Table) -> None:
    _need_texts(where, table, ("baseline", "size", "variant"))
    threshold = table.get("threshold", 1)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold < float("inf"):
        raise ValueError(f"{where}: threshold must be a number greater than 0")


def _need_texts(where: str, table: Table, keys: tuple[str, ...]) -> None:
    for key in keys:
        if not isinstance(table.get(key), str):
            raise ValueError(f"{where} needs the key {key}, a string")


def _subtables(where: str, table: Table, key: str) -> dict[str, Table]:
    found = table.get(key)
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise ValueError(f"{where} needs the table {key}, a table of tables")
    return found


def text(document: Table) -> str:
    """Return the text of a file; entries of a table `measured` are inline tables, one per line."""
    return f"{HEAD}\n" + "\n".join(_lines(document, ())) + "\n"


def _lines(table: Table, path: tuple[str, ...]) -> Iterator[str]:
    in_a_line = path[-1:] == ("measured",)
    below = {key: value for key, value in table.items() if isinstance(value, dict) and not in_a_line}
    own = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if key not in below]
    if path and (own or not table):
        yield from ("", f"[{'.'.join(map(_key, path))}]")
    yield from own
    for key, value in below.items():
        yield from _lines(value, (*path, key))


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name) else json.dumps(name, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    return str(value)  # numbers, and dates that were added by hand
