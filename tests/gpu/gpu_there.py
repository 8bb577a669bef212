"""Whether tests of a GPU may be skipped: only where there is none; one that cannot be used is a failure."""

import ctypes

import pytest

from pytest_gpulab.devices.cuda.device import CudaDevice
from pytest_gpulab.devices.protocol import DeviceUnavailable


def gpus(library="libcuda.so.1"):
    """Return how many GPUs the driver knows of, asked without anything that is under test."""
    count = ctypes.c_int(0)
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return 0
    return 0 if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) else count.value


def opened():
    """Open the GPU under test."""
    try:
        return CudaDevice()
    except DeviceUnavailable as missing:
        if gpus():
            pytest.fail(f"there is a GPU, but {missing}")
        pytest.skip(str(missing))
