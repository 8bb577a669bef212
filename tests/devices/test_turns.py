"""Turns among processes: who times on a GPU."""

import pytest

from pytest_gpulab.devices.cuda.turns import gpu_lock
from pytest_gpulab.devices.protocol import DeviceUnavailable


def test_a_gpu_is_held_by_one_at_a_time(tmp_path):
    with gpu_lock("GPU-1/2:3", folder=tmp_path):
        once_more = gpu_lock("GPU-1/2:3", wait_s=0, folder=tmp_path)
        with pytest.raises(DeviceUnavailable, match="another process has been timing on the GPU for 0 s"), once_more:
            pass
        with gpu_lock("GPU-4", wait_s=0, folder=tmp_path):
            pass
    with gpu_lock("GPU-1/2:3", wait_s=0, folder=tmp_path):
        assert (tmp_path / "pytest-gpulab-GPU-1-2-3.lock").exists()


def test_a_gpu_is_given_back_after_an_error(tmp_path):
    with pytest.raises(KeyboardInterrupt), gpu_lock("GPU-1", folder=tmp_path):
        raise KeyboardInterrupt
    with gpu_lock("GPU-1", wait_s=0, folder=tmp_path):
        pass
