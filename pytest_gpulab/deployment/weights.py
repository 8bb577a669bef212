"""Weights of exercises in totals: as pytest's configuration of a course has them, and as a package carries them."""

import configparser
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_gpulab import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WEIGHTS_FILE = "weights.txt"
"""The file of a package, beside the exercises' folders: a weight per line, as in the configuration."""
KEY = "gpulab_weights"
_CONFIGURATIONS = {
    "pytest.toml": ("pytest",),
    ".pytest.toml": ("pytest",),
    "pytest.ini": ("pytest",),
    ".pytest.ini": ("pytest",),
    "pyproject.toml": ("tool.pytest", "tool.pytest.ini_options"),
    "tox.ini": ("pytest",),
    "setup.cfg": ("tool:pytest",),
}
"""The files that pytest reads settings from, with their sections; the first one with settings counts."""
_ALWAYS = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")  # they count without a section, too


class WeightError(UserError):
    """A weight is not written as EXERCISE = NUMBER, or a configuration cannot be read."""


def parsed(lines: Iterable[str]) -> dict[str, float]:
    """Return the weight of each exercise, or raise WeightError if a line is no weight, or a second one."""
    found: dict[str, float] = {}
    for line in filter(None, map(str.strip, lines)):
        name, equals, number = map(str.strip, line.partition("="))
        if not name or not equals or not re.fullmatch(r"\d+(\.\d+)?", number, re.ASCII):
            raise WeightError(f"{KEY}: {line!r} is no weight: write EXERCISE = NUMBER, such as scan = 1.5")
        if name in found:
            raise WeightError(f"{KEY}: {name} has two weights: remove one")
        found[name] = float(number)
    return found


def weights_of_course(folder: Path) -> dict[str, float]:
    """Return the weights in pytest's configuration, of the course's folder or the next one above with any.

    Raises WeightError if the configuration cannot be read.
    """
    files = (parent / name for parent in (folder, *folder.parents) for name in _CONFIGURATIONS)
    for path in filter(Path.is_file, files):
        found = (_section(path, section) for section in _CONFIGURATIONS[path.name])
        settings = next(filter(None, found), {} if path.name in _ALWAYS else None)
        if settings is not None:
            lines = settings.get(KEY, [])
            return parsed(lines.splitlines() if isinstance(lines, str) else lines)
    return {}


def weights_of_package(exercises: Path) -> dict[str, float]:
    """Return the weights that a package carries; empty if it has none."""
    path = exercises / WEIGHTS_FILE
    return parsed(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else {}


def text_of(weights: Mapping[str, float]) -> str:
    """Return weights as lines."""
    return "".join(f"{name} = {weight:g}\n" for name, weight in sorted(weights.items()))


def _section(path: Path, section: str) -> Mapping[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".toml":
            found: Any = tomllib.loads(text)
            for name in section.split("."):
                found = found.get(name) if isinstance(found, dict) else None
            return {key: found[key] for key in found if key != "ini_options"} if isinstance(found, dict) else None
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(text)
        return parser[section] if parser.has_section(section) else None
    except (OSError, ValueError, configparser.Error) as error:
        raise WeightError(f"{path}: {' '.join(str(error).split())}") from error
