"""What NVML says, and what is shown where it says nothing."""

import ctypes.util

import pytest

from pytest_gpulab.devices import nvml

H200 = {
    "driver_version": "580.159.04",
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
    "slowdown_mask": 0x04 | 0x20 | 0x01,
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
        "driver": "580.159.04",
        "memory": "1 of 140 GiB in use",
        "peak bandwidth": "4814 GB/s",
        "SM clock": "345 of 1980 MHz",
        "memory clock": "3201 of 3201 MHz",
        "power": "118 of 700 W",
        "temperature": "31 C",
        "held back by": "power cap, too hot (software)",
    }


def test_a_gpu_that_runs_freely_is_held_back_by_nothing():
    assert nvml.facts_from(queries(slowdown_mask=1), NotSupported).rows()["held back by"] == "nothing"


@pytest.mark.parametrize("name", H200)
def test_a_query_that_is_not_supported_is_none_and_costs_no_other_fact(name):
    def refuse():
        raise NotSupported

    facts = nvml.facts_from(queries() | {name: refuse}, NotSupported)
    assert getattr(facts, name) is None
    assert [other for other in H200 if getattr(facts, other) is None] == [name]
    assert sum("n/a" in text for text in facts.rows().values()) in (1, 2)  # bandwidth depends on two of them


@needs_no_driver
def test_without_a_driver_the_rows_say_so():
    assert nvml.rows("0000:01:00.0") == {"NVML": "n/a: no NVIDIA driver (its library libnvidia-ml was not found)"}


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
    assert nvml.rows("0000:01:00.0") == {"NVML": "n/a: NVML does not know the GPU at 0000:01:00.0: Not Found"}


def test_an_nvml_that_does_not_start_is_quoted(nvml_that_starts, monkeypatch):
    def refuse():
        raise nvml_that_starts.NVMLError_DriverNotLoaded

    monkeypatch.setattr(nvml_that_starts, "nvmlInit", refuse)
    assert nvml.rows("0000:01:00.0") == {"NVML": "n/a: NVML says: Driver Not Loaded"}


@needs_no_driver
def test_without_a_driver_nothing_is_known_of_what_disturbs():
    reader = nvml.ConditionsReader("0000:65:00.0")
    conditions = reader.read()
    assert (reader.identity, conditions.others, conditions.held_down) == ("0000:65:00.0", (), False)
    reader.close()


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
def test_other_processes_are_named_where_they_can_be_told(running, words):
    assert nvml.other_processes(running, 7, {7: "me", 8: "python"}.get) == words
