"""A snapshot of what NVIDIA's management library (NVML) knows of a GPU: clocks, power, temperature, driver.

Any query may be unsupported by a GPU or forbidden to the user, so each can come back as None, shown as `n/a`.
NVML numbers GPUs in PCI order and ignores CUDA_VISIBLE_DEVICES; a CUDA device is therefore found by its PCI address.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .stopwatch import Conditions

# nvml.h, nvmlClocksEventReasons: these make a measured time suspect.
_SLOWDOWNS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}


class NvmlUnavailable(Exception):
    """NVML cannot be asked, and why."""


@dataclass(frozen=True)
class GpuFacts:
    """One GPU at one moment; None where NVML does not say.

    Attributes:
        driver_version: such as `580.159.04`.
        memory_total_bytes, memory_used_bytes: by all processes together.
        temperature_c: of the GPU core.
        power_w, power_limit_w: drawn and allowed.
        sm_clock_mhz, max_sm_clock_mhz, memory_clock_mhz, max_memory_clock_mhz: now and at most.
        bus_width_bits: of the memory interface.
        slowdown_mask: NVML's clock event reasons, a bit mask.
    """

    driver_version: str | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    temperature_c: int | None
    power_w: float | None
    power_limit_w: float | None
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    max_memory_clock_mhz: int | None
    bus_width_bits: int | None
    slowdown_mask: int | None

    @property
    def peak_bandwidth_gb_s(self) -> float | None:
        """Two transfers a clock over the whole bus, in 1e9 bytes a second; a copy reaches some 86 % of it."""
        if self.max_memory_clock_mhz is None or self.bus_width_bits is None:
            return None
        return 2 * self.max_memory_clock_mhz * 1e6 * self.bus_width_bits / 8 / 1e9

    @property
    def slowdowns(self) -> tuple[str, ...] | None:
        """What holds the clocks down at present."""
        if self.slowdown_mask is None:
            return None
        return tuple(words for bit, words in _SLOWDOWNS.items() if self.slowdown_mask & bit)

    def rows(self) -> dict[str, str]:
        """Return label to text, for a report's provenance."""
        gib = 2**30
        return {
            "driver": _shown(self.driver_version),
            "memory": f"{_shown(self.memory_used_bytes, gib)} of {_shown(self.memory_total_bytes, gib)} GiB in use",
            "peak bandwidth": f"{_shown(self.peak_bandwidth_gb_s)} GB/s",
            "SM clock": f"{_shown(self.sm_clock_mhz)} of {_shown(self.max_sm_clock_mhz)} MHz",
            "memory clock": f"{_shown(self.memory_clock_mhz)} of {_shown(self.max_memory_clock_mhz)} MHz",
            "power": f"{_shown(self.power_w)} of {_shown(self.power_limit_w)} W",
            "temperature": f"{_shown(self.temperature_c)} C",
            "held back by": "n/a" if self.slowdowns is None else ", ".join(self.slowdowns) or "nothing",
        }


def _shown(value: str | float | None, unit: float = 1) -> str:
    if value is None:
        return "n/a"
    return value if isinstance(value, str) else f"{value / unit:.0f}"


def rows(pci_bus_id: str) -> dict[str, str]:
    """Return the facts of the GPU at a PCI address (`0000:65:00.0`) as label to text; never raises."""
    try:
        return read_facts(pci_bus_id).rows()
    except NvmlUnavailable as missing:
        return {"NVML": f"n/a: {missing}"}


def read_facts(pci_bus_id: str) -> GpuFacts:
    """Ask NVML for everything that it knows of the GPU at a PCI address.

    Raises:
        NvmlUnavailable: no NVIDIA driver, no permission, or no such GPU.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise NvmlUnavailable("no NVIDIA driver (its library libnvidia-ml was not found)") from None
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML says: {error}") from None
    try:
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        return facts_from(_queries(pynvml, handle), pynvml.NVMLError)
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML does not know the GPU at {pci_bus_id}: {error}") from None
    finally:
        pynvml.nvmlShutdown()


class ConditionsReader:
    """Asks NVML again and again for what may disturb a timing; where there is no NVML, nothing is known.

    Attributes:
        identity: the GPU's UUID, else its PCI address.
    """

    def __init__(self, pci_bus_id: str) -> None:
        import pynvml

        self.identity = pci_bus_id
        self._nvml: Any = pynvml
        self._gpu: Any = None
        self._initialised = self._answer(pynvml.nvmlInit, failed=False) is None
        if self._initialised:
            self._gpu = self._answer(lambda: pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id))
        if self._gpu is not None:
            self.identity = str(self._answer(lambda: pynvml.nvmlDeviceGetUUID(self._gpu)) or pci_bus_id)

    def close(self) -> None:
        """Let NVML go."""
        if self._initialised:
            self._nvml.nvmlShutdown()
            self._initialised, self._gpu = False, None

    def read(self) -> Conditions:
        """Return how things are now."""
        if self._gpu is None:
            return Conditions()
        queries = _queries(self._nvml, self._gpu)
        mask = self._answer(queries["slowdown_mask"]) or 0
        return Conditions(
            sm_clock_mhz=self._answer(queries["sm_clock_mhz"]),
            max_sm_clock_mhz=self._answer(queries["max_sm_clock_mhz"]),
            slowdowns=tuple(words for bit, words in _SLOWDOWNS.items() if mask & bit),
            others=self._others(),
        )

    def _others(self) -> tuple[str, ...]:
        """Name the other processes with a context on the GPU."""
        running = self._answer(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._gpu)) or []
        return other_processes([process.pid for process in running], os.getpid(), self._name)

    def _name(self, pid: int) -> str | None:
        name = self._answer(lambda: self._nvml.nvmlSystemGetProcessName(pid))
        return name.decode(errors="replace") if isinstance(name, bytes) else name

    def _answer(self, query: Callable[[], Any], failed: Any = None) -> Any:
        try:
            return query()
        except self._nvml.NVMLError:
            return failed


def other_processes(running: Sequence[int], own: int, name: Callable[[int], str | None]) -> tuple[str, ...]:
    """Return the processes on a GPU besides one's own, in words.

    In a container NVML may give the host's numbers, among which one's own cannot be told; then it is one of them, and
    the others are only counted.
    """
    if running and own not in running:
        return (f"{len(running) - 1} unknown",) if len(running) > 1 else ()
    return tuple(f"{name(pid) or 'unknown'} (process {pid})" for pid in running if pid != own)


def facts_from(queries: dict[str, Callable[[], Any]], unsupported: type[Exception]) -> GpuFacts:
    """Run one query for each field of `GpuFacts`; those that raise `unsupported` give None."""
    answers: dict[str, Any] = {}
    for field in fields(GpuFacts):
        try:
            answers[field.name] = queries[field.name]()
        except unsupported:
            answers[field.name] = None
    return GpuFacts(**answers)


def _queries(nvml: Any, gpu: Any) -> dict[str, Callable[[], Any]]:
    return {
        "driver_version": nvml.nvmlSystemGetDriverVersion,
        "memory_total_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
        "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "max_sm_clock_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "max_memory_clock_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "bus_width_bits": lambda: nvml.nvmlDeviceGetMemoryBusWidth(gpu),
        "slowdown_mask": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
    }
