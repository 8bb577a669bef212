"""`gpulab device`: a modelled GPU, the machine's GPUs, and their absence."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from pytest_gpulab.command import main
from pytest_gpulab.devices.cuda import report
from pytest_gpulab.devices.errors import DeviceAbsent, DeviceUnavailable
from pytest_gpulab.devices.simulated.gpus import known_gpus, modelled_gpu

ASKED = (
    *("compute capability", "global memory", "constant memory", "shared memory per block", "shared memory per SM"),
    *("registers per block", "warp size", "threads per block", "threads per SM", "block dimensions", "grid dimensions"),
    *("multiprocessors (SMs)", "clock", "memory clock", "memory bus", "L2 cache", "peak bandwidth"),
    *("concurrent kernels", "ECC", "compute mode"),
)
ATTRIBUTES = {
    "MULTIPROCESSOR_COUNT": 72,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 102400,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 101376,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_REGISTERS_PER_BLOCK": 65536,
    "MAX_THREADS_PER_MULTIPROCESSOR": 1536,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 16,
    "MAX_THREADS_PER_BLOCK": 1024,
    "CLOCK_RATE": 1_710_000,
    "MEMORY_CLOCK_RATE": 6_251_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 384,
    "L2_CACHE_SIZE": 6 << 20,
    "TOTAL_CONSTANT_MEMORY": 65536,
    "WARP_SIZE": 32,
    "CONCURRENT_KERNELS": 1,
    "ECC_ENABLED": 1,
    "COMPUTE_MODE": 3,
    "INTEGRATED": 0,
    **{f"MAX_{what}_DIM_{axis}": 100 + index for what in ("BLOCK", "GRID") for index, axis in enumerate("XYZ")},
}


class Gpu:
    """A PyCUDA device with `ATTRIBUTES`."""

    def name(self) -> str:
        return "NVIDIA A10"

    def compute_capability(self) -> tuple[int, int]:
        return 8, 6

    def total_memory(self) -> int:
        return 24 << 30

    def pci_bus_id(self) -> str:
        return "0000:01:00.0"

    def get_attribute(self, name: str) -> int:
        return ATTRIBUTES[name]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main.main(["device", *words]) == 0
    return capsys.readouterr().out


def a_machine_with(monkeypatch: pytest.MonkeyPatch, gpus: list[Gpu]) -> None:
    attributes = SimpleNamespace(**{name: name for name in ATTRIBUTES})
    device = type("Device", (), {"__new__": lambda _, ordinal: gpus[ordinal], "count": staticmethod(lambda: len(gpus))})
    driver = SimpleNamespace(Device=device, device_attribute=attributes)
    monkeypatch.setattr(report, "load_driver", lambda: driver)
    monkeypatch.setattr(report.nvml, "describe", lambda _: ("", {"driver": "580.1"}))


@pytest.mark.parametrize("name", known_gpus())
def test_a_modelled_gpu_has_all_that_a_device_query_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--gpu", name).splitlines()
    assert lines[0] == modelled_gpu(name).name
    assert {"origin", *ASKED} <= {line[2:28].rstrip() for line in lines[1:]}


def test_a_modelled_gpus_bus_and_clock_give_its_bandwidth() -> None:
    for name in known_gpus():
        gpu = modelled_gpu(name)
        by_bus = 2 * gpu.memory_mhz * 1e6 * gpu.memory_bus_bits / 8 / 1e9
        assert by_bus == pytest.approx(gpu.bandwidth_gb_s, rel=0.03)


def test_verbose_lists_the_sources_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert "source of sms" not in printed(capsys, "--gpu", "t4")
    assert "source of sms" in printed(capsys, "--gpu", "t4", "-v")


def test_all_gpus_of_the_machine_are_printed_as_cuda_reports_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_machine_with(monkeypatch, [Gpu(), Gpu()])
    text = " ".join(printed(capsys, "-v").split())
    assert "NVIDIA A10 origin CUDA device 0 compute capability 8.6 (Ampere)" in text and "CUDA device 1" in text
    assert "block dimensions at most 100 x 101 x 102" in text and "peak bandwidth 600 GB/s" in text
    assert "ECC on compute mode exclusive process driver 580.1" in text


def test_json_has_the_same_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    a_machine_with(monkeypatch, [Gpu()])
    (facts,) = json.loads(printed(capsys, "--json"))
    assert (facts["name"], facts["sms"], facts["l2_bytes"], facts["ecc"]) == ("NVIDIA A10", 72, 6 << 20, True)


def test_without_a_gpu_the_default_model_is_printed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent() -> None:
        raise DeviceAbsent("no NVIDIA driver")

    monkeypatch.setattr(report, "load_driver", absent)
    text = printed(capsys)
    assert text.startswith("NVIDIA H200\n") and "modelled, because there is no CUDA device: no NVIDIA driver" in text


def test_a_driver_that_does_not_work_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise DeviceUnavailable("the driver does not start")

    monkeypatch.setattr(report, "load_driver", broken)
    assert main.main(["device"]) == 2
    assert capsys.readouterr().err == "gpulab device: the driver does not start\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v100", "it has compute capability 7.0, and CUDA 13 compiles for 7.5 and newer"),
        ("voodoo", "no GPU model is named 'voodoo'; available: h200, h100"),
    ],
)
def test_an_unknown_model_is_refused(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["device", "--gpu", name]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("columns", [60, 80])
def test_the_properties_fit_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main.main(["device", "--gpu", "h200", "-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if "://" not in line) <= columns
