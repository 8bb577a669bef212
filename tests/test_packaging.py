"""The files that `pip install` installs."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest_gpulab

INSTALLED = Path(pytest_gpulab.__file__).parent
CHECKOUT = Path(__file__).parents[1] / "pytest_gpulab"


def files_below(folder):
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path for path in files if "__pycache__" not in path.parts}


def test_the_installed_package_is_complete():
    """Compares two folders after a plain `pip install .`, as .ci/run does it, and one with itself when editable."""
    assert files_below(CHECKOUT) - files_below(INSTALLED) == set()


def test_the_header_for_kernels_is_installed():
    assert "GPULAB_TUNABLE" in (INSTALLED / "include" / "gpulab.cuh").read_text()


def test_pytest_finds_the_plugin():
    (plugin,) = (entry for entry in entry_points(group="pytest11") if entry.name == "gpulab")
    assert plugin.value == "pytest_gpulab.plugin"
