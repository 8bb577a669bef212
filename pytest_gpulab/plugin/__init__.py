"""The pytest plugin. Only this package imports pytest.

- `hooks`: the pytest hooks; each delegates.
- `configuration`: the options and ini keys; submissions must not configure pytest; requests to end.
- `settings`: options and ini keys, read once into a frozen `Settings`.
- `session`: the exercises, the device and the thresholds of a session.
- `items`, `class_items`: the pytest nodes; a `.cu` file yields one item per check.
- `sweep_items`: the nodes of a sweep over tunables.
- `parallel_run`: grading in several processes.
- `class_run`: grading the submissions of a class.
- `report_files`: the files of `--gpulab-report`.
- `figures`: the figures of `--gpulab-report=explain:PAGE`.
- `colours`: colours of the report.
- `summary`: keeps pytest's failure lists from repeating the findings.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder


class PlainImports:
    """An import hook that loads this package as Python does, ahead of pytest's hook for plugins.

    pytest's hook rewrites assertions, and it reads and writes bytecode of its own. Where it cannot write, in a
    system-wide installation or with PYTHONDONTWRITEBYTECODE, it would rewrite the whole package in each session.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return where Python itself finds a module of this package; None for all other modules."""
        return PathFinder.find_spec(name, path) if name.startswith("pytest_gpulab.") else None


sys.meta_path.insert(0, PlainImports)

from pytest_gpulab.plugin.hooks import pytest_addoption, pytest_configure, pytest_load_initial_conftests  # noqa: E402 - loaded with the import hook in place

__all__ = ["pytest_addoption", "pytest_configure", "pytest_load_initial_conftests"]
