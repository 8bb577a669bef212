"""The GPU under test; every test here is skipped, with the reason, where there is none."""

import tempfile
from pathlib import Path

import pytest

from pytest_gpulab.devices.cuda.device import CudaDevice
from pytest_gpulab.devices.protocol import DeviceUnavailable


@pytest.fixture(scope="session")
def opened_device():
    try:
        device = CudaDevice()
    except DeviceUnavailable as missing:
        pytest.skip(str(missing))
    yield device
    device.close()


@pytest.fixture
def device(opened_device):
    yield opened_device
    opened_device.reset()


@pytest.fixture
def alone():
    """Ask for the GPU while no other test uses it, in whichever process: some are strangers, or hang, on purpose."""


@pytest.fixture(autouse=True)
def beside_others(request, opened_device):
    """Let tests run side by side, but not beside one that asked to be alone."""
    import fcntl

    with (Path(tempfile.gettempdir()) / "gpulab-gpu-tests").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if "alone" in request.fixturenames else fcntl.LOCK_SH)
        yield
