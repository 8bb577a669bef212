"""The report of a GPU, with a stand-in for PyCUDA's device; tests/gpu tests a real one."""

from __future__ import annotations

import ctypes.util
import re
from types import SimpleNamespace

import pytest
from doc_pages import ROOT

pytest.importorskip("pynvml")
from pytest_gpulab.devices.compiler.sandbox import PROTECTION
from pytest_gpulab.devices.cuda import report

pytestmark = pytest.mark.unit

ATTRIBUTES = {"MULTIPROCESSOR_COUNT": 132, "MEMORY_CLOCK_RATE": 3_201_000, "GLOBAL_MEMORY_BUS_WIDTH": 6016}
ATTRIBUTES |= {"INTEGRATED": 0}


class Gpu:
    """Stands for `pycuda.driver.Device`."""

    def compute_capability(self) -> tuple[int, int]:
        return 9, 0

    def get_attribute(self, name: str) -> int:
        return ATTRIBUTES[name]

    def pci_bus_id(self) -> str:
        return "0000:65:00.0"

    def total_memory(self) -> int:
        return 140 * 2**30


UNKNOWN = ("UUID", "SM clock", "memory clock", "clock event reasons", "performance state", "power", "temperature")
UNKNOWN += ("utilisation", "ECC", "MIG", "persistence", "compute mode", "PCIe link")
DRIVER = SimpleNamespace(
    device_attribute=SimpleNamespace(**{name: name for name in ATTRIBUTES}), get_driver_version=lambda: 13000
)


@pytest.mark.skipif(ctypes.util.find_library("nvidia-ml") is not None, reason="this machine has the NVIDIA driver")
def test_without_nvml_cuda_says_what_it_knows_and_a_note_says_why_not_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "version", lambda package: "2026.1")
    line, rows = report.describe(DRIVER, Gpu())
    missing = "no NVIDIA driver (its library libnvidia-ml was not found)"
    assert line == f"Hopper, 132 SMs, 140 GiB, 4814 GB/s peak; clocks, power and temperature not known: {missing}"
    assert rows == {
        "generation": "Hopper",
        "compute capability": "9.0",
        "SMs": "132",
        "PCI address": "0000:65:00.0",
        "driver": "n/a, for CUDA up to 13.0",
        "memory": "140 GiB",
        "peak bandwidth": "4814 GB/s",
        **dict.fromkeys(UNKNOWN, "n/a"),
        "NVML": f"n/a: {missing}",
        "PyCUDA": "2026.1",
    }


def test_the_documentation_explains_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "version", lambda package: "2026.1")
    _, rows = report.describe(DRIVER, Gpu())
    table = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8").split("| row | meaning |")[1].split("\n\n")[0]
    explained = [name for line in table.splitlines()[1:] for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
    assert sorted(explained) == sorted({*rows, "NVML", "architecture", "compiler", PROTECTION})


def described(monkeypatch: pytest.MonkeyPatch, gpu: Gpu, **known: str) -> tuple[str, dict[str, str]]:
    """Return what is said of a GPU of which NVML knows something."""
    asked = []

    def describe(pci_address: str) -> tuple[str, dict[str, str]]:
        asked.append(pci_address)
        return "31 C", {"driver": "580.1", "memory": "1 of 140 GiB in use", "peak bandwidth": "4815 GB/s", **known}

    monkeypatch.setattr(report, "version", lambda package: "2026.1")
    monkeypatch.setattr(report.nvml, "describe", describe)
    line, rows = report.describe(DRIVER, gpu)
    assert asked == ["0000:65:00.0"]
    return line, rows


@pytest.mark.parametrize("mode", ["off", "n/a"])
def test_nvml_is_asked_for_the_gpu_at_the_same_address_and_knows_better(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    line, rows = described(monkeypatch, Gpu(), MIG=mode)
    assert line == "Hopper, 132 SMs, 140 GiB, 4814 GB/s peak; 31 C"
    assert (rows["memory"], rows["peak bandwidth"]) == ("1 of 140 GiB in use", "4815 GB/s")


class Slice(Gpu):
    """A seventh of one: of the whole it has the address."""

    def get_attribute(self, name: str) -> int:
        return {"MULTIPROCESSOR_COUNT": 16, "GLOBAL_MEMORY_BUS_WIDTH": 752}.get(name, ATTRIBUTES[name])

    def total_memory(self) -> int:
        return 17 * 2**30


def test_properties_of_a_part_of_a_gpu_come_from_cuda_and_not_from_nvml(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line, rows = described(monkeypatch, Slice(), MIG="on")
    assert line == "Hopper, 16 SMs, 17 GiB, 602 GB/s peak; 31 C"
    assert {label: rows[label] for label in ("SMs", "memory", "peak bandwidth", "driver", "MIG")} == {
        "SMs": "16",
        "memory": "17 GiB",
        "peak bandwidth": "602 GB/s",
        "driver": "580.1",
        "MIG": "on",
    }


@pytest.mark.parametrize(("attribute", "number"), [("MEMORY_CLOCK_RATE", 0), ("INTEGRATED", 1)])
def test_a_bandwidth_that_cuda_does_not_tell_is_not_zero(
    monkeypatch: pytest.MonkeyPatch, attribute: str, number: int
) -> None:
    """For a GPU that shares the CPU's memory, CUDA may report less than the transfer rate."""
    monkeypatch.setitem(ATTRIBUTES, attribute, number)
    line, rows = described(monkeypatch, Gpu(), MIG="on")
    assert (line, rows["peak bandwidth"]) == ("Hopper, 132 SMs, 140 GiB, n/a GB/s peak; 31 C", "n/a GB/s")
