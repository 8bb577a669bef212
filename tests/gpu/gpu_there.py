"""The condition for skipping GPU tests: there is no GPU. One that cannot be used is a failure."""

import ctypes
import os
from pathlib import Path

import pytest

from pytest_gpulab.devices.cuda.device import CudaDevice
from pytest_gpulab.devices.protocol import DeviceUnavailable


def gpus(library="libcuda.so.1", root=Path("/")):
    """Return how many GPUs the driver or the system knows of, asked without anything that is under test.

    A driver that does not work knows of none. The system then has their device files, and in /proc what the kernel's
    part of the driver found; that is there in containers, too, which were given no GPU and no driver.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles"):
        return 0  # someone wants it so
    files = len(list(root.glob("dev/nvidia[0-9]*")))
    count = ctypes.c_int(0)
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return files
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return max(files, len(list(root.glob("proc/driver/nvidia/gpus/*"))))
    return count.value


def opened():
    """Open the GPU under test."""
    try:
        return CudaDevice()
    except DeviceUnavailable as missing:
        if gpus():
            pytest.fail(f"there is a GPU, but {missing}")
        pytest.skip(str(missing))
