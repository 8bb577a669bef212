"""A snapshot of a GPU by NVIDIA's management library (NVML): clocks, power, temperature, driver.

Each query may be unsupported by the GPU or forbidden to the user. Its value is then None, shown as `n/a`.
NVML numbers GPUs in PCI order and ignores CUDA_VISIBLE_DEVICES; a CUDA device is therefore found by its PCI address.
"""

import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import PureWindowsPath
from typing import Any

from pytest_gpulab.devices.stopwatch import Conditions
from pytest_gpulab.devices.system import processes

# nvml.h, nvmlClocksEventReasons
_REASONS = {
    0x01: "idle", 0x02: "application clocks", 0x04: "power cap", 0x08: "hardware slowdown", 0x10: "sync boost",
    0x20: "too hot (software)", 0x40: "too hot (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
# Throttling: these reasons make a time unreliable.
_SLOWDOWNS = {bit: words for bit, words in _REASONS.items() if bit & 0xEC}
# nvml.h, nvmlComputeMode_t
_COMPUTE_MODES = ("default", "one thread", "prohibited", "one process")


NOT_KNOWN = "n/a"
# The newest functions in use: the older package named pynvml lacks one of them.
_NEEDED = (
    *("nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"),
    *("NVMLError", "NVMLError_FunctionNotFound", "NVMLError_LibraryNotFound"),
)
_REMEDY = "python -m pip uninstall pynvml, then python -m pip install --force-reinstall nvidia-ml-py"


class NvmlUnavailable(Exception):
    """NVML is unavailable; the message has the cause."""


@dataclass(frozen=True)
class GpuFacts:
    """The state of a GPU at one moment; None if unknown."""

    uuid: str | None  # the same on every machine and in every order
    driver_version: str | None  # such as `580.159.04`
    cuda_version: int | None  # the newest version that the driver supports, 1000 x major + 10 x minor
    memory_total_bytes: int | None
    memory_used_bytes: int | None  # by all processes
    temperature_c: int | None  # of the GPU core
    power_w: float | None
    power_limit_w: float | None
    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    max_memory_clock_mhz: int | None
    bus_width_bits: int | None  # of the memory interface
    busy_percent: int | None  # share of the last second or less in which a kernel ran
    memory_busy_percent: int | None  # share of the last second or less in which memory was accessed
    performance_state: int | None  # 0 (fastest) to 15
    reasons_mask: int | None  # NVML's clock event reasons, a bit mask
    ecc: int | None  # 0 or 1, as the next two
    mig: int | None
    persistence: int | None
    compute_mode: int | None  # an index of `_COMPUTE_MODES`
    pcie_generation: int | None  # at present; an idle link slows down
    max_pcie_generation: int | None
    pcie_lanes: int | None
    max_pcie_lanes: int | None

    @property
    def memory_free_bytes(self) -> int | None:
        """The memory that no process uses."""
        if self.memory_total_bytes is None or self.memory_used_bytes is None:
            return None
        return self.memory_total_bytes - self.memory_used_bytes

    @property
    def peak_bandwidth_gb_s(self) -> float | None:
        """Peak bandwidth in 1e9 bytes per second: two transfers per clock over the whole bus."""
        if self.max_memory_clock_mhz is None or self.bus_width_bits is None:
            return None
        return 2 * self.max_memory_clock_mhz * 1e6 * self.bus_width_bits / 8 / 1e9

    @property
    def reasons(self) -> str:
        """The reasons for the present clocks, in words."""
        mask = self.reasons_mask
        if mask is None:
            return NOT_KNOWN
        return ", ".join(words for bit, words in _REASONS.items() if mask & bit) or "none"

    def rows(self) -> dict[str, str]:
        """Return label to text, for a report's provenance."""
        gib, state, mode = 2**30, self.performance_state, self.compute_mode
        return {
            "UUID": _shown(self.uuid),
            "driver": f"{_shown(self.driver_version)}, for CUDA up to {self._cuda()}",
            "memory": f"{_shown(self.memory_used_bytes, gib)} of {_shown(self.memory_total_bytes, gib)} GiB in use",
            "peak bandwidth": f"{_shown(self.peak_bandwidth_gb_s)} GB/s",
            "SM clock": f"{_shown(self.sm_clock_mhz)} of {_shown(self.max_sm_clock_mhz)} MHz",
            "memory clock": f"{_shown(self.memory_clock_mhz)} of {_shown(self.max_memory_clock_mhz)} MHz",
            "clock event reasons": self.reasons,
            "performance state": NOT_KNOWN if state is None or state > 15 else f"P{state}",
            "power": f"{_shown(self.power_w)} of {_shown(self.power_limit_w)} W",
            "temperature": f"{_shown(self.temperature_c)} C",
            "utilisation": f"{_shown(self.busy_percent)} % of the time, memory {_shown(self.memory_busy_percent)} %",
            "ECC": _on_or_off(self.ecc),
            "MIG": _on_or_off(self.mig),
            "persistence": _on_or_off(self.persistence),
            "compute mode": NOT_KNOWN if mode is None or mode >= len(_COMPUTE_MODES) else _COMPUTE_MODES[mode],
            "PCIe link": f"generation {_shown(self.pcie_generation)} of {_shown(self.max_pcie_generation)}, "
            f"{_shown(self.pcie_lanes)} of {_shown(self.max_pcie_lanes)} lanes",
        }

    def short(self) -> str:
        """Return the most important facts on one line."""
        return (
            f"driver {_shown(self.driver_version)} (CUDA {self._cuda()}); "
            f"SM clock {_shown(self.sm_clock_mhz)} of {_shown(self.max_sm_clock_mhz)} MHz ({self.reasons}), "
            f"{_shown(self.temperature_c)} C"
        )

    def _cuda(self) -> str:
        version = self.cuda_version
        return NOT_KNOWN if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _shown(value: str | float | None, unit: float = 1) -> str:
    if value is None:
        return NOT_KNOWN
    return value if isinstance(value, str) else f"{value / unit:.0f}"


def _on_or_off(mode: int | None) -> str:
    return NOT_KNOWN if mode is None else "on" if mode else "off"


def describe(pci_bus_id: str) -> tuple[str, dict[str, str]]:
    """Describe the GPU at a PCI address (`0000:65:00.0`), in a line and as label to text; never raises."""
    try:
        facts = read_facts(pci_bus_id)
    except NvmlUnavailable as missing:
        unknown = facts_from({field.name: (lambda: None) for field in fields(GpuFacts)}, NvmlUnavailable)
        rows = dict.fromkeys(unknown.rows(), NOT_KNOWN)
        return f"clocks, power and temperature not known: {missing}", rows | {"NVML": f"{NOT_KNOWN}: {missing}"}
    return facts.short(), facts.rows()


def read_facts(pci_bus_id: str) -> GpuFacts:
    """Return NVML's facts about the GPU at a PCI address; raise NvmlUnavailable without driver, permission or GPU."""
    pynvml = _library()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise NvmlUnavailable("no NVIDIA driver (its library libnvidia-ml was not found)") from None
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML says: {_text(partial(str, error))}") from None
    try:
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        return facts_from(_queries(pynvml, handle), pynvml.NVMLError)
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML does not know the GPU at {pci_bus_id}: {_text(partial(str, error))}") from None
    finally:
        pynvml.nvmlShutdown()


def _library() -> Any:
    """Return the module `pynvml` of nvidia-ml-py.

    Raises NvmlUnavailable if it is missing, or another package's module of the same name is installed instead.
    """
    try:
        with warnings.catch_warnings():  # the other package warns on import, and pytest may turn warnings into errors
            warnings.simplefilter("ignore")
            library = importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable(f"{error}: {_REMEDY}") from None
    if not all(hasattr(library, name) for name in _NEEDED):
        place = getattr(library, "__file__", None) or "pynvml"
        raise NvmlUnavailable(f"{place} is not nvidia-ml-py's, or too old: {_REMEDY}")
    return library


def _text(query: Callable[[], Any]) -> Any:
    """Return a query's value. Under WSL2 some texts are not UTF-8, and NVML's bindings fail to decode them."""
    try:
        return query()
    except UnicodeDecodeError as error:
        return bytes(error.object).decode("utf-8", "replace")


class ConditionsReader:
    """A reader of the GPU's state during timing; without NVML all values are unknown."""

    def __init__(self, pci_bus_id: str) -> None:
        self.identity = pci_bus_id  # the GPU's UUID, else its PCI address
        self._gpu: Any = None
        self._initialised = False
        try:
            self._nvml = pynvml = _library()
        except NvmlUnavailable:
            return
        self._initialised = self._answer(pynvml.nvmlInit, failed=False) is None
        if self._initialised:
            self._gpu = self._answer(lambda: pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id))
        if self._gpu is not None:
            self._queries = _queries(pynvml, self._gpu)
            self.identity = str(self._answer(self._queries["uuid"]) or pci_bus_id)
            self._max_sm_clock_mhz = self._answer(self._queries["max_sm_clock_mhz"])

    def close(self) -> None:
        """Shut NVML down."""
        if self._initialised:
            self._nvml.nvmlShutdown()
            self._initialised, self._gpu = False, None

    def read(self) -> Conditions:
        """Return the GPU's present state."""
        if self._gpu is None:
            return Conditions()
        mask = self._answer(self._queries["reasons_mask"]) or 0
        return Conditions(
            sm_clock_mhz=self._answer(self._queries["sm_clock_mhz"]),
            max_sm_clock_mhz=self._max_sm_clock_mhz,
            slowdowns=tuple(words for bit, words in _SLOWDOWNS.items() if mask & bit),
        )

    def others(self) -> tuple[str, ...]:
        """Return the names of other processes that compute or draw on the GPU.

        Graders are left out: the GPU lock keeps them from interfering.
        """
        if self._gpu is None:
            return ()
        lists = (self._nvml.nvmlDeviceGetComputeRunningProcesses, self._nvml.nvmlDeviceGetGraphicsRunningProcesses)
        found = (process.pid for ask in lists for process in self._answer(partial(ask, self._gpu)) or ())
        return other_processes(list(dict.fromkeys(found)), os.getpid(), self._name)

    def _name(self, pid: int) -> str | None:
        name = self._answer(lambda: self._nvml.nvmlSystemGetProcessName(pid))
        return name.decode(errors="replace") if isinstance(name, bytes) else name

    def _answer(self, query: Callable[[], Any], failed: Any = None) -> Any:
        try:
            return _text(query)
        except self._nvml.NVMLError:
            return failed


def other_processes(running: Sequence[int], own: int, name: Callable[[int], str | None]) -> tuple[str, ...]:
    """Return the names of the processes on a GPU that are not graders.

    This process's parent is left out, too: it waits for this process.

    In a container NVML may return the host's process IDs, which match none in the container. Then the processes beyond
    the known number of graders are counted.
    """
    if own in running or not running:
        others = (pid for pid in running if pid not in (own, os.getppid()) and not processes.is_grader(pid))
        return tuple(f"{_program(name(pid))} (process {pid})" for pid in others)
    excess = len(running) - len(processes.graders_using() | {own}) if len(running) > 1 else 0
    return (f"{excess} unknown",) if excess > 0 else ()


def _program(path: str | None) -> str:
    """Return a program's name without its folder; the separator may be a backslash, too."""
    return PureWindowsPath(path or "").name or "unknown"


def facts_from(queries: dict[str, Callable[[], Any]], unsupported: type[Exception]) -> GpuFacts:
    """Run one query per field of `GpuFacts`; a query that raises `unsupported` gives None."""
    answers: dict[str, Any] = {}
    for field in fields(GpuFacts):
        try:
            answers[field.name] = _text(queries[field.name])
        except unsupported:
            answers[field.name] = None
    return GpuFacts(**answers)


def _either(nvml: Any, newer: str, older: str, *arguments: Any) -> int:
    """Return the answer of NVML's newer function, or of the older one, which alone older drivers have."""
    try:
        return int(getattr(nvml, newer)(*arguments))
    except nvml.NVMLError_FunctionNotFound:
        return int(getattr(nvml, older)(*arguments))


def _queries(nvml: Any, gpu: Any) -> dict[str, Callable[[], Any]]:
    return {
        "uuid": lambda: nvml.nvmlDeviceGetUUID(gpu),
        "driver_version": nvml.nvmlSystemGetDriverVersion,
        "cuda_version": nvml.nvmlSystemGetCudaDriverVersion_v2,
        "memory_total_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
        "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
        "temperature_c": lambda: _either(
            nvml, "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", gpu, nvml.NVML_TEMPERATURE_GPU
        ),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "max_sm_clock_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "max_memory_clock_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "bus_width_bits": lambda: nvml.nvmlDeviceGetMemoryBusWidth(gpu),
        "busy_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        "memory_busy_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).memory,
        "performance_state": lambda: nvml.nvmlDeviceGetPerformanceState(gpu),
        "reasons_mask": lambda: _either(  # before the driver R535
            nvml, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", gpu
        ),
        "ecc": lambda: nvml.nvmlDeviceGetEccMode(gpu)[0],  # the second value is the mode after a restart
        "mig": lambda: nvml.nvmlDeviceGetMigMode(gpu)[0],
        "persistence": lambda: nvml.nvmlDeviceGetPersistenceMode(gpu),
        "compute_mode": lambda: nvml.nvmlDeviceGetComputeMode(gpu),
        "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
        "max_pcie_generation": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
        "pcie_lanes": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
        "max_pcie_lanes": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),
    }
