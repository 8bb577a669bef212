"""What all tests share: pytester runs pytest inside a test, and the files that take longest come first."""

from collections.abc import Iterator
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
    """Run each benchmark once, as a test of its kernel, unless benchmarks are what was asked for."""
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
