"""The GPU under test; every test here is skipped, with the reason, where there is none."""

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
