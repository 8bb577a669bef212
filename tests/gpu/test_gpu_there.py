"""Tests of a GPU are skipped where there is none, and fail where one cannot be used. (Needs no GPU.)"""

import gpu_there
import pytest

from pytest_gpulab.devices.protocol import DeviceUnavailable


@pytest.fixture
def unusable(monkeypatch):
    def refuse():
        raise DeviceUnavailable("nvcc was not found on the PATH")

    monkeypatch.setattr(gpu_there, "CudaDevice", refuse)


def test_a_gpu_that_cannot_be_used_fails(unusable, monkeypatch):
    monkeypatch.setattr(gpu_there, "gpus", lambda: 1)
    with pytest.raises(pytest.fail.Exception, match="there is a GPU, but nvcc was not found on the PATH"):
        gpu_there.opened()


def test_no_gpu_skips(unusable, monkeypatch):
    monkeypatch.setattr(gpu_there, "gpus", lambda: 0)
    with pytest.raises(pytest.skip.Exception, match="nvcc was not found on the PATH"):
        gpu_there.opened()


def test_without_a_driver_there_is_no_gpu():
    assert gpu_there.gpus("libno-such-driver.so") == 0
