"""The GPU under test; every test here is skipped, with the reason, where there is none."""

import shutil

import pytest
from gpu_there import opened
from timed_kernels import SOURCE


@pytest.fixture(scope="session")
def opened_device():
    device = opened()
    yield device
    device.close()


@pytest.fixture
def device(opened_device):
    yield opened_device
    opened_device.reset()


@pytest.fixture(scope="module")
def module(opened_device):
    """The kernels that are timed."""
    return opened_device.compile(SOURCE)


@pytest.fixture(scope="session")
def nvidias_tools(opened_device):
    """Ask for what the toolkit should come with: with a GPU, but without them, tests of them prove nothing."""
    missing = [tool for tool in ("compute-sanitizer", "ncu") if shutil.which(tool) is None]
    assert not missing, f"not on the PATH: {', '.join(missing)}"
