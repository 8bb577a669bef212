"""What all tests share: pytester runs pytest inside a test, and the files that take longest come first."""

import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import unmeasured as not_measured

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parent
# Files that take 25 s and more, the longest first: one that pytest-xdist comes to last leaves all but one core without
# work.
LONGEST = (
    "kernels/test_wrong_kernels.py",
    "docs/test_samples.py",
    "plugin/test_pytest_features.py",
    "plugin/test_annotate.py",
    "kernels/test_solutions.py",
    "plugin/test_calibrate.py",
    "plugin/test_gradebook_reports.py",
    "simulated/test_truth.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Run each benchmark once, as a test of its kernel, unless benchmarks are what was asked for.

    Where the package is not installed, its folder is in PYTHONPATH: any pytest that a test runs is to find the plugin.
    """
    if not entry_points(group="pytest11", name="gpulab"):
        os.environ.setdefault("PYTEST_PLUGINS", "pytest_gpulab.plugin")
    if not config.getoption("benchmark_only", False):
        config.option.benchmark_disable = True
    config.option.loadscopereorder = False  # pytest-xdist would begin with the files that have most tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first."""
    place = {TESTS / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(LONGEST)))


@pytest.fixture(scope="module")
def unmeasured() -> Iterator[None]:
    """Coverage is not measured while a module's tests run."""
    with not_measured.stretch():
        yield
