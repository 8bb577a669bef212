"""What all tests share: pytester runs pytest inside a test."""

import pytest

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    """Run each benchmark once, as a test of its kernel, unless benchmarks are what was asked for."""
    if not config.getoption("benchmark_only", False):
        config.option.benchmark_disable = True
