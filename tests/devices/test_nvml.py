"""The facts from NVML, and the values shown without them."""

import ctypes.util
import inspect
import re
import sys
import warnings
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_gpulab.devices.cuda import nvml
from pytest_gpulab.devices.system import processes

pytestmark = pytest.mark.unit

H200 = {
    "uuid": "GPU-5a1e0c6e-0000-4a4a-8b8b-1f2e3d4c5b6a",
    "driver_version": "580.159.04",
    "cuda_version": 13000,
    "memory_total_bytes": 140 * 2**30,
    "memory_used_bytes": 2**30,
    "temperature_c": 31,
    "power_w": 118.4,
    "power_limit_w": 700.0,
    "sm_clock_mhz": 345,
    "max_sm_clock_mhz": 1980,
    "memory_clock_mhz": 3201,
    "max_memory_clock_mhz": 3201,
    "bus_width_bits": 6016,
    "busy_percent": 7,
    "memory_busy_percent": 3,
    "performance_state": 0,
    "reasons_mask": 0x04 | 0x20 | 0x01,
    "ecc": 1,
    "mig": 0,
    "persistence": 1,
    "compute_mode": 0,
    "pcie_generation": 4,
    "max_pcie_generation": 5,
    "pcie_lanes": 16,
    "max_pcie_lanes": 16,
}
needs_no_driver = pytest.mark.skipif(
    ctypes.util.find_library("nvidia-ml") is not None, reason="this machine has the NVIDIA driver"
)


class NotSupported(Exception):
    """Stands for `pynvml.NVMLError_NotSupported`."""


def queries(**overrides):
    return {name: lambda value=value: value for name, value in (H200 | overrides).items()}


def test_the_rows_of_a_gpu_that_answers_everything():
    facts = nvml.facts_from(queries(), NotSupported)
    assert facts.peak_bandwidth_gb_s == pytest.approx(4814, abs=1)  # the vendor says 4.8 TB/s
    assert facts.rows() == {
        "UUID": "GPU-5a1e0c6e-0000-4a4a-8b8b-1f2e3d4c5b6a",
        "driver": "580.159.04, for CUDA up to 13.0",
        "memory": "1 of 140 GiB in use",
        "peak bandwidth": "4814 GB/s",
        "SM clock": "345 of 1980 MHz",
        "memory clock": "3201 of 3201 MHz",
        "clock event reasons": "idle, power cap, too hot (software)",
        "performance state": "P0",
        "power": "118 of 700 W",
        "temperature": "31 C",
        "utilisation": "7 % of the time, memory 3 %",
        "ECC": "on",
        "MIG": "off",
        "persistence": "on",
        "compute mode": "default",
        "PCIe link": "generation 4 of 5, 16 of 16 lanes",
    }
    assert facts.short() == (
        "driver 580.159.04 (CUDA 13.0); SM clock 345 of 1980 MHz (idle, power cap, too hot (software)), 31 C"
    )


def test_a_gpu_that_says_nothing_has_a_row_for_everything_all_the_same() -> None:
    facts = nvml.facts_from(queries(**dict.fromkeys(H200)), NotSupported)
    assert set(facts.rows()) == set(nvml.facts_from(queries(), NotSupported).rows())
    assert all("n/a" in text for text in facts.rows().values())
    assert facts.short() == "driver n/a (CUDA n/a); SM clock n/a of n/a MHz (n/a), n/a C"


@pytest.mark.parametrize(
    ("changed", "label", "text"),
    [
        ({"reasons_mask": 0}, "clock event reasons", "none"),
        ({"reasons_mask": 0x8A}, "clock event reasons", "application clocks, hardware slowdown, power brake"),
        ({"reasons_mask": 0x150}, "clock event reasons", "sync boost, too hot (hardware), display clocks"),
        ({"performance_state": 12}, "performance state", "P12"),
        ({"performance_state": 32}, "performance state", "n/a"),
        ({"compute_mode": 3}, "compute mode", "one process"),
        ({"compute_mode": 2}, "compute mode", "prohibited"),
        ({"compute_mode": 9}, "compute mode", "n/a"),
        ({"mig": 1}, "MIG", "on"),
        ({"cuda_version": 12080}, "driver", "580.159.04, for CUDA up to 12.8"),
    ],
)
def test_numbers_become_words(changed: dict[str, int], label: str, text: str) -> None:
    assert nvml.facts_from(queries(**changed), NotSupported).rows()[label] == text


@pytest.mark.parametrize("name", H200)
def test_a_query_that_is_not_supported_is_none_and_costs_no_other_fact(name):
    def refuse():
        raise NotSupported

    facts = nvml.facts_from(queries() | {name: refuse}, NotSupported)
    assert getattr(facts, name) is None
    assert [other for other in H200 if getattr(facts, other) is None] == [name]
    assert sum("n/a" in text for text in facts.rows().values()) in (1, 2)  # bandwidth depends on two of them


def test_every_fact_is_asked_of_a_function_that_nvml_has() -> None:
    """A query is only run on a real GPU; a misspelt name would go unnoticed everywhere else."""
    import pynvml

    names = set(re.findall(r"nvml\.(nvml\w+|NVML_\w+)", inspect.getsource(nvml)))
    assert len(names) > 25
    assert [name for name in names if not hasattr(pynvml, name)] == []
    assert set(nvml._queries(pynvml, None)) == {field.name for field in fields(nvml.GpuFacts)} == set(H200)


NO_DRIVER = "no NVIDIA driver (its library libnvidia-ml was not found)"


@needs_no_driver
def test_without_a_driver_the_rows_say_so():
    line, rows = nvml.describe("0000:01:00.0")
    assert line == f"clocks, power and temperature not known: {NO_DRIVER}"
    labels = nvml.facts_from(queries(), NotSupported).rows()
    assert rows == dict.fromkeys(labels, "n/a") | {"NVML": f"n/a: {NO_DRIVER}"}


class FunctionNotFound(Exception):
    """Stands for `pynvml.NVMLError_FunctionNotFound`."""


def not_found(*asked):
    raise FunctionNotFound


OLD_DRIVER = SimpleNamespace(
    nvmlDeviceGetTemperatureV=not_found,
    nvmlDeviceGetTemperature=lambda gpu, sensor: 31,
    NVML_TEMPERATURE_GPU=0,
    nvmlDeviceGetCurrentClocksEventReasons=not_found,
    nvmlDeviceGetCurrentClocksThrottleReasons=lambda gpu: 0x08,
    NVMLError_FunctionNotFound=FunctionNotFound,
    nvmlSystemGetDriverVersion=None,
    nvmlSystemGetCudaDriverVersion_v2=None,
)


@pytest.mark.parametrize(("name", "told"), [("temperature_c", 31), ("reasons_mask", 0x08)])
def test_a_driver_without_the_newer_function_tells_it_too(name: str, told: int) -> None:
    assert nvml._queries(OLD_DRIVER, None)[name]() == told


@pytest.fixture
def nvml_that_starts(monkeypatch):
    """NVML with its start and end taken out, so that the queries can be made to fail as they do on some machines."""
    import pynvml

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    return pynvml


def test_a_gpu_that_nvml_does_not_know_is_named(nvml_that_starts, monkeypatch):
    def refuse(pci_bus_id):
        raise nvml_that_starts.NVMLError_NotFound

    monkeypatch.setattr(nvml_that_starts, "nvmlDeviceGetHandleByPciBusId", refuse)
    assert nvml.describe("0000:01:00.0")[1]["NVML"] == "n/a: NVML does not know the GPU at 0000:01:00.0: Not Found"


def test_an_nvml_that_does_not_start_is_quoted(nvml_that_starts, monkeypatch):
    def refuse():
        raise nvml_that_starts.NVMLError_DriverNotLoaded

    monkeypatch.setattr(nvml_that_starts, "nvmlInit", refuse)
    assert nvml.describe("0000:01:00.0")[1]["NVML"] == "n/a: NVML says: Driver Not Loaded"


@pytest.fixture
def another_pynvml(tmp_path, monkeypatch):
    """A package of that name; a test writes its text."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    return tmp_path / "pynvml.py"


OLD = "class NVMLError(Exception): ...\ndef nvmlInit(): raise SystemExit('used')\n"


@pytest.mark.parametrize("text", [OLD, "", "raise ImportError('no such thing')"])
def test_an_old_package_in_its_place_is_named_and_costs_no_more(another_pynvml, text):
    another_pynvml.write_text(text)
    line, rows = nvml.describe("0000:01:00.0")
    assert line.startswith("clocks, power and temperature not known: ")
    assert "pip uninstall pynvml, then python -m pip install --force-reinstall nvidia-ml-py" in line
    assert "no such thing" in line or f"{another_pynvml} is not nvidia-ml-py's, or too old" in line
    assert rows["driver"] == "n/a"
    reader = nvml.ConditionsReader("0000:65:00.0")
    assert (reader.identity, reader.others(), reader.read().slowdowns) == ("0000:65:00.0", (), ())
    reader.close()


def test_a_package_that_warns_of_itself_is_used(another_pynvml):
    names = "; ".join(f"{name} = None" for name in nvml._NEEDED)
    another_pynvml.write_text(f"import warnings; warnings.warn('deprecated', FutureWarning); {names}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nvml._library().__file__ == str(another_pynvml)


def test_a_text_that_is_no_utf8_is_read_all_the_same():
    """Its bindings decode each text as UTF-8; under WSL2 some are not."""
    facts = nvml.facts_from(queries() | {"driver_version": lambda: b"58\xff.1".decode()}, NotSupported)
    assert facts.driver_version == "58\N{REPLACEMENT CHARACTER}.1" and facts.uuid == H200["uuid"]


def test_a_process_name_that_is_no_utf8_is_readable(nvml_that_starts, monkeypatch):
    monkeypatch.setattr(nvml_that_starts, "nvmlDeviceGetHandleByPciBusId", lambda address: object())
    monkeypatch.setattr(nvml_that_starts, "nvmlDeviceGetUUID", lambda gpu: b"GPU-\xe9".decode())
    monkeypatch.setattr(nvml_that_starts, "nvmlDeviceGetMaxClockInfo", lambda *asked: 1980)
    monkeypatch.setattr(nvml_that_starts, "nvmlSystemGetProcessName", lambda pid: b"caf\xe9".decode())
    reader = nvml.ConditionsReader("0000:65:00.0")
    assert reader._name(7) == "caf\N{REPLACEMENT CHARACTER}"
    assert reader.identity == "GPU-\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("asked", ["nvmlInit", "nvmlDeviceGetHandleByPciBusId"])
def test_an_error_message_that_is_no_utf8_is_quoted(nvml_that_starts, monkeypatch, asked):
    def refuse(*arguments):
        raise nvml_that_starts.NVMLError(nvml_that_starts.NVML_ERROR_UNKNOWN)

    monkeypatch.setattr(nvml_that_starts, asked, refuse)
    monkeypatch.setattr(nvml_that_starts.NVMLError, "__str__", lambda error: b"d\xe9faut".decode())
    assert "d\N{REPLACEMENT CHARACTER}faut" in nvml.describe("0000:01:00.0")[0]


@needs_no_driver
def test_no_interference_is_known_without_a_driver():
    reader = nvml.ConditionsReader("0000:65:00.0")
    conditions = reader.read()
    assert (reader.identity, reader.others(), conditions.held_down_by) == ("0000:65:00.0", (), ())
    reader.close()


def test_only_changing_facts_are_queried_under_the_lock(nvml_that_starts, monkeypatch):
    asked = []

    def answering(name, answer):
        monkeypatch.setattr(nvml_that_starts, name, lambda *_: asked.append(name) or answer)

    answering("nvmlDeviceGetHandleByPciBusId", object())
    answering("nvmlDeviceGetUUID", "GPU-1")
    answering("nvmlDeviceGetMaxClockInfo", 1980)
    answering("nvmlDeviceGetClockInfo", 1500)
    answering("nvmlDeviceGetCurrentClocksEventReasons", 0x08)
    reader = nvml.ConditionsReader("0000:65:00.0")
    assert reader.identity == "GPU-1"
    asked.clear()
    conditions = reader.read()
    assert asked == ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetClockInfo"]
    assert (conditions.sm_clock_mhz, conditions.max_sm_clock_mhz) == (1500, 1980)
    assert conditions.slowdowns == ("hardware slowdown",)


# NVML's clock event reasons, of nvml.h.
HELD_DOWN = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}
AS_EVER = (0x01, 0x02, 0x10, 0x100)


@pytest.mark.parametrize("bit", [*HELD_DOWN, *AS_EVER])
def test_slowdowns_are_noticed_with_an_old_driver_too(nvml_that_starts, monkeypatch, bit):
    """Without them every time would seem to be a good one."""

    def not_there(gpu):
        raise nvml_that_starts.NVMLError_FunctionNotFound

    monkeypatch.setattr(nvml_that_starts, "nvmlDeviceGetHandleByPciBusId", lambda address: object())
    monkeypatch.setattr(nvml_that_starts, "nvmlDeviceGetUUID", lambda gpu: "GPU-1")
    monkeypatch.setattr(nvml_that_starts, "nvmlDeviceGetMaxClockInfo", lambda *asked: 1980)
    monkeypatch.setattr(nvml_that_starts, "nvmlDeviceGetClockInfo", lambda *asked: 1500)
    monkeypatch.setattr(nvml_that_starts, "nvmlDeviceGetCurrentClocksEventReasons", not_there)
    monkeypatch.setattr(nvml_that_starts, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda gpu: bit | 0x01)
    assert nvml.ConditionsReader("0000:65:00.0").read().slowdowns == ((HELD_DOWN[bit],) if bit in HELD_DOWN else ())


@pytest.mark.parametrize(
    ("running", "words"),
    [
        ([], ()),
        ([7], ()),
        ([7, 8, 9], ("python (process 8)", "unknown (process 9)")),
        ([8], ()),  # in a container: the one that is there is oneself
        ([8, 9], ("1 unknown",)),
    ],
)
def test_other_processes_are_named_if_they_are_known(running, words, monkeypatch):
    monkeypatch.setattr(processes, "_PROC", Path("/nonexistent"))
    monkeypatch.setattr(processes, "is_grader", lambda process: False)
    assert nvml.other_processes(running, 7, {7: "me", 8: "/opt/venv/bin/python"}.get) == words


def test_a_program_is_named_without_its_folder(monkeypatch):
    monkeypatch.setattr(processes, "is_grader", lambda process: False)
    assert nvml.other_processes([7, 8], 7, {8: r"C:\Program Files\render.exe"}.get) == ("render.exe (process 8)",)
