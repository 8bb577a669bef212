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


class Cuda:
    """Stands for the driver's library: how starting it ends, and how many GPUs it knows of."""

    def __init__(self, started, count=0):
        self.started, self.count = started, count

    def cuInit(self, flags):  # noqa: N802 (the driver's name)
        return self.started

    def cuDeviceGetCount(self, count):  # noqa: N802 (the driver's name)
        count._obj.value = self.count
        return 0


NO_DEVICE, UNKNOWN = 100, 999


@pytest.mark.parametrize(
    ("files", "driver", "count"),
    [
        ((), None, 0),
        (("dev/nvidiactl", "dev/nvidia-uvm"), None, 0),
        (("dev/nvidia0", "dev/nvidia11"), None, 2),  # the library is missing
        (("proc/driver/nvidia/gpus/0000:65:00.0",), None, 0),  # of the machine around a container
        ((), Cuda(0, 3), 3),
        (("dev/nvidia0", "dev/nvidia1"), Cuda(0, 1), 1),
        ((), Cuda(NO_DEVICE), 0),
        (("dev/nvidia0",), Cuda(UNKNOWN), 1),  # such as a driver that was updated without a restart
        (("proc/driver/nvidia/gpus/0000:65:00.0",), Cuda(UNKNOWN), 1),
    ],
)
def test_a_gpu_is_there_that_the_driver_or_the_system_knows_of(tmp_path, monkeypatch, files, driver, count):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def load(library):
        if driver is None:
            raise OSError(library)
        return driver

    monkeypatch.setattr(gpu_there.ctypes, "CDLL", load)
    assert gpu_there.gpus(root=tmp_path) == count


@pytest.mark.parametrize("shown", ["", "-1", "NoDevFiles"])
def test_a_gpu_that_someone_hides_is_not_there(tmp_path, monkeypatch, shown):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert gpu_there.gpus("libno-such-driver.so", tmp_path) == 0
