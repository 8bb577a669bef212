"""The pytest plugin. Only this package imports pytest.

- `hooks`: the pytest hooks; each delegates.
- `options`, `settings`: the command line's options and ini keys, read once into a frozen `Settings`.
- `session`: the exercises, the device and the thresholds of a session.
- `configuration`: submissions must not configure pytest.
- `items`, `class_items`: the pytest nodes; a `.cu` file yields one item per check.
- `parallel_run`: grading in several processes.
- `class_run`: grading the submissions of a class.
- `report_files`: the files of `--gpulab-report`.
- `summary`: keeps pytest's failure lists from repeating the findings.
"""

from pytest_gpulab.plugin.hooks import pytest_addoption, pytest_configure, pytest_load_initial_conftests

__all__ = ["pytest_addoption", "pytest_configure", "pytest_load_initial_conftests"]
