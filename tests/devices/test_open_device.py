"""`open_device`: which device it takes, and what it says when one is missing."""

import sys
import types

import pytest

from pytest_gpulab import devices
from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import DeviceAbsent, DeviceUnavailable


@pytest.fixture
def no_pycuda(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda", None)  # what Python itself does to make an import fail


@pytest.fixture
def pycuda_without_libcuda(monkeypatch, tmp_path):
    """The package as it looks on a machine that has PyCUDA but no driver: importing the extension module fails."""
    package = tmp_path / "pycuda"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "driver.py").write_text(
        "raise ImportError('libcuda.so.1: cannot open shared object file: No such file or directory')"
    )
    _put_first(monkeypatch, tmp_path)
    return package


def _put_first(monkeypatch, folder):
    for name in [name for name in sys.modules if name.split(".")[0] == "pycuda"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(folder)
    # monkeypatch puts these back, so that the fake is gone when the test ends
    for name in ("pycuda", "pycuda.driver"):
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]


class FakeDriverError(Exception):
    """Stands for `pycuda.driver.Error`."""


def refusing(words):
    """Return a `pycuda.driver.init` that fails."""

    def init():
        raise FakeDriverError(f"cuInit failed: {words}")

    return init


@pytest.fixture
def driver_with_nothing(monkeypatch):
    """A driver that loads but finds no GPU; returns it so that a test can say how."""
    driver = types.ModuleType("pycuda.driver")
    driver.Error = FakeDriverError
    driver.init = lambda: None
    driver.Device = types.SimpleNamespace(count=lambda: 0)
    monkeypatch.setitem(sys.modules, "pycuda", types.ModuleType("pycuda"))
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    return driver


def test_sim_is_the_simulated_gpu():
    device, why = open_device("sim")
    assert device.info.kind == "simulated"
    assert why == "it was requested"


def test_auto_takes_a_gpu_that_is_there(monkeypatch):
    gpu = object()
    monkeypatch.setattr(devices, "_open_cuda", lambda ordinal, *more: gpu if ordinal == 0 else None)
    assert open_device("auto") == (gpu, "PyCUDA and an NVIDIA GPU were found")


@pytest.mark.usefixtures("no_pycuda")
def test_auto_falls_back_to_the_simulated_gpu_and_says_why():
    assert_falls_back("PyCUDA is not installed")


@pytest.mark.usefixtures("pycuda_without_libcuda")
def test_auto_falls_back_where_there_is_no_driver():
    assert_falls_back("the NVIDIA driver is not installed")


@pytest.mark.parametrize("words", ["no CUDA-capable device is detected", "CUDA driver is a stub library"])
def test_auto_falls_back_where_the_driver_finds_no_gpu(driver_with_nothing, words):
    driver_with_nothing.init = refusing(words)
    assert_falls_back("no GPU can be used; the NVIDIA driver says: " + words)


@pytest.mark.usefixtures("driver_with_nothing")
def test_auto_falls_back_where_the_driver_shows_no_gpu():
    assert_falls_back("no GPU can be used: the NVIDIA driver is installed but finds no device")


def test_auto_falls_back_where_there_is_no_nvcc(driver_with_nothing, monkeypatch, tmp_path):
    driver_with_nothing.Device.count = lambda: 1
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_falls_back("nvcc was not found on the PATH")


def assert_falls_back(reason):
    device, why = open_device("auto")
    assert device.info.kind == "simulated"
    assert why.startswith(f"no CUDA device: {reason}")
    with pytest.raises(DeviceAbsent):
        open_device("cuda")


@pytest.mark.parametrize(
    "words", ["unknown error", "system has unsupported display driver / cuda driver combination", "out of memory"]
)
def test_auto_does_not_hide_that_the_driver_is_broken(driver_with_nothing, words):
    driver_with_nothing.init = refusing(words)
    with pytest.raises(DeviceUnavailable, match=f"the NVIDIA driver says: {words}$"):
        open_device("auto")


def test_auto_does_not_hide_that_pycuda_is_broken(pycuda_without_libcuda):
    (pycuda_without_libcuda / "driver.py").write_text("raise ImportError('undefined symbol: cuFoo_v2')")
    with pytest.raises(DeviceUnavailable, match="PyCUDA is installed but cannot be loaded"):
        open_device("auto")


def test_auto_does_not_hide_that_the_gpu_cannot_be_had_now(monkeypatch):
    """The GPU is full, takes one process at a time, or does not answer: a class must not get estimates unnoticed."""

    def refuse(*asked):
        raise DeviceUnavailable("not enough GPU memory for another process: out of memory")

    monkeypatch.setattr(devices, "_open_cuda", refuse)
    with pytest.raises(DeviceUnavailable, match="not enough GPU memory for another process"):
        open_device("auto")


@pytest.mark.usefixtures("no_pycuda")
def test_without_pycuda_the_message_says_how_to_get_it():
    with pytest.raises(DeviceUnavailable, match=r"PyCUDA is not installed.*pip install pycuda"):
        open_device("cuda")


@pytest.mark.usefixtures("pycuda_without_libcuda")
def test_without_the_driver_the_message_says_to_install_it():
    with pytest.raises(DeviceUnavailable, match=r"NVIDIA driver is not installed.*libcuda was not found"):
        open_device("cuda")


def test_a_broken_pycuda_is_quoted(pycuda_without_libcuda):
    (pycuda_without_libcuda / "driver.py").write_text("raise ImportError('undefined symbol: cuFoo_v2')")
    with pytest.raises(
        DeviceUnavailable, match=r"PyCUDA is installed but cannot be loaded: undefined symbol: cuFoo_v2"
    ):
        open_device("cuda")


def test_a_driver_that_refuses_is_quoted(driver_with_nothing):
    driver_with_nothing.init = refusing("no CUDA-capable device is detected")
    with pytest.raises(DeviceUnavailable, match=r"the NVIDIA driver says: no CUDA-capable device is detected$"):
        open_device("cuda")


@pytest.mark.usefixtures("driver_with_nothing")
def test_a_driver_without_devices():
    with pytest.raises(DeviceUnavailable, match="the NVIDIA driver is installed but finds no device"):
        open_device("cuda:0")


def test_a_number_that_no_device_has(driver_with_nothing, monkeypatch, tmp_path):
    driver_with_nothing.Device.count = lambda: 2
    (tmp_path / "nvcc").write_text("#!/bin/sh\n")
    (tmp_path / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceUnavailable, match="there is no CUDA device 7: this machine has 2, numbered from 0"):
        open_device("cuda:7")


def test_without_nvcc_the_message_says_what_to_put_on_the_path(driver_with_nothing, monkeypatch, tmp_path):
    driver_with_nothing.Device.count = lambda: 1
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceUnavailable, match="nvcc was not found on the PATH; install the CUDA toolkit"):
        open_device("cuda")


@pytest.mark.parametrize("spec", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "SIM", "cuda:1 "])
def test_a_word_that_names_no_device(spec):
    with pytest.raises(DeviceUnavailable, match=r"unknown device .*; use auto, cuda, cuda:N"):
        open_device(spec)
