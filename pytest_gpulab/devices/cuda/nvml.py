"""A snapshot of what NVIDIA's management library (NVML) knows of a GPU: clocks, power, temperature, driver.

Any query may be unsupported by a GPU or forbidden to the user, so each can come back as None, shown as `n/a`.
NVML numbers GPUs in PCI order and ignores CUDA_VISIBLE_DEVICES; a CUDA device is therefore found by its PCI address.
"""

from __future__ import annotations

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
    0x01: "idle",
    0x02: "application clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}
# These make a measured time suspect.
_SLOWDOWNS = {bit: words for bit, words in _REASONS.items() if bit & 0xEC}
# nvml.h, nvmlComputeMode_t
_COMPUTE_MODES = ("default", "one thread", "prohibited", "one process")


NOT_KNOWN = "n/a"
# The newest that are asked for: an older package called pynvml lacks one of them.
_NEEDED = (
    *("nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"),
    *("NVMLError", "NVMLError_FunctionNotFound", "NVMLError_LibraryNotFound"),
)
_REMEDY = "python -m pip uninstall pynvml, then python -m pip install --force-reinstall nvidia-ml-py"


class NvmlUnavailable(Exception):
    """NVML cannot be asked, and why."""


@dataclass(frozen=True)
class GpuFacts:
    """One GPU at one moment; None where NVML does not say.

    Attributes:
        uuid: the GPU's identity, the same on every machine and in every order.
        driver_version: such as `580.159.04`.
        cuda_version: the newest that the driver runs, 1000 x major + 10 x minor.
        memory_total_bytes, memory_used_bytes: by all processes together.
        temperature_c: of the GPU core.
        power_w, power_limit_w: drawn and allowed.
        sm_clock_mhz, max_sm_clock_mhz, memory_clock_mhz, max_memory_clock_mhz: now and at most.
        bus_width_bits: of the memory interface.
        busy_percent, memory_busy_percent: share of the last second or less in which a kernel ran, memory was in use.
        performance_state: 0 (fastest) to 15.
        reasons_mask: NVML's clock event reasons, a bit mask.
        ecc, mig, persistence: modes, 0 or 1.
        compute_mode: an index of `_COMPUTE_MODES`.
        pcie_generation, max_pcie_generation, pcie_lanes, max_pcie_lanes: now and at most; an idle link slows down.
    """

    uuid: str | None
    driver_version: str | None
    cuda_version: int | None
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
    busy_percent: int | None
    memory_busy_percent: int | None
    performance_state: int | None
    reasons_mask: int | None
    ecc: int | None
    mig: int | None
    persistence: int | None
    compute_mode: int | None
    pcie_generation: int | None
    max_pcie_generation: int | None
    pcie_lanes: int | None
    max_pcie_lanes: int | None

    @property
    def memory_free_bytes(self) -> int | None:
        """What no process has."""
        if self.memory_total_bytes is None or self.memory_used_bytes is None:
            return None
        return self.memory_total_bytes - self.memory_used_bytes

    @property
    def peak_bandwidth_gb_s(self) -> float | None:
        """Two transfers a clock over the whole bus, in 1e9 bytes a second."""
        if self.max_memory_clock_mhz is None or self.bus_width_bits is None:
            return None
        return 2 * self.max_memory_clock_mhz * 1e6 * self.bus_width_bits / 8 / 1e9

    @property
    def reasons(self) -> str:
        """What decides the present clocks, in words."""
        mask = self.reasons_mask
        if mask is None:
            return NOT_KNOWN
        return ", ".join(words for bit, words in _REASONS.items() if mask & bit) or "none"

    def rows(self) -> dict[str, str]:
        """Return label to text, for a report's provenance."""
        gib = 2**30
        return {
            "UUID": _shown(self.uuid),
            "driver": f"{_shown(self.driver_version)}, for CUDA up to {self._cuda()}",
            "memory": f"{_shown(self.memory_used_bytes, gib)} of {_shown(self.memory_total_bytes, gib)} GiB in use",
            "peak bandwidth": f"{_shown(self.peak_bandwidth_gb_s)} GB/s",
            "SM clock": f"{_shown(self.sm_clock_mhz)} of {_shown(self.max_sm_clock_mhz)} MHz",
            "memory clock": f"{_shown(self.memory_clock_mhz)} of {_shown(self.max_memory_clock_mhz)} MHz",
            "clock event reasons": self.reasons,
            "performance state": self._performance_state(),
            "power": f"{_shown(self.power_w)} of {_shown(self.power_limit_w)} W",
            "temperature": f"{_shown(self.temperature_c)} C",
            "utilisation": f"{_shown(self.busy_percent)} % of the time, memory {_shown(self.memory_busy_percent)} %",
            "ECC": _on_or_off(self.ecc),
            "MIG": _on_or_off(self.mig),
            "persistence": _on_or_off(self.persistence),
            "compute mode": self._compute_mode(),
            "PCIe link": f"generation {_shown(self.pcie_generation)} of {_shown(self.max_pcie_generation)}, "
            f"{_shown(self.pcie_lanes)} of {_shown(self.max_pcie_lanes)} lanes",
        }

    def short(self) -> str:
        """Return what matters most beside the GPU's size, on one line."""
        return (
            f"driver {_shown(self.driver_version)} (CUDA {self._cuda()}); "
            f"SM clock {_shown(self.sm_clock_mhz)} of {_shown(self.max_sm_clock_mhz)} MHz ({self.reasons}), "
            f"{_shown(self.temperature_c)} C"
        )

    def _cuda(self) -> str:
        version = self.cuda_version
        return NOT_KNOWN if version is None else f"{version // 1000}.{version % 1000 // 10}"

    def _performance_state(self) -> str:
        state = self.performance_state
        return NOT_KNOWN if state is None or state > 15 else f"P{state}"

    def _compute_mode(self) -> str:
        mode = self.compute_mode
        return NOT_KNOWN if mode is None or mode >= len(_COMPUTE_MODES) else _COMPUTE_MODES[mode]


def _shown(value: str | float | None, unit: float = 1) -> str:
    if value is None:
        return NOT_KNOWN
    return value if isinstance(value, str) else f"{value / unit:.0f}"


def _on_or_off(mode: int | None) -> str:
    return NOT_KNOWN if mode is None else "on" if mode else "off"


def describe(pci_bus_id: str) -> tuple[str, dict[str, str]]:
    """Return the facts of the GPU at a PCI address (`0000:65:00.0`), in a line and as label to text; never raises."""
    try:
        facts = read_facts(pci_bus_id)
    except NvmlUnavailable as missing:
        unknown = facts_from({field.name: (lambda: None) for field in fields(GpuFacts)}, NvmlUnavailable)
        rows = dict.fromkeys(unknown.rows(), NOT_KNOWN)
        return f"clocks, power and temperature not known: {missing}", rows | {"NVML": f"{NOT_KNOWN}: {missing}"}
    return facts.short(), facts.rows()


def read_facts(pci_bus_id: str) -> GpuFacts:
    """Ask NVML for everything that it knows of the GPU at a PCI address.

    Raises:
        NvmlUnavailable: no NVIDIA driver, no permission, or no such GPU.
    """
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

    Raises:
        NvmlUnavailable: there is none, or that of another package, which has the same name, is in its place.
    """
    try:
        with warnings.catch_warnings():  # a newer package of that name warns of itself, and warnings may be errors
            warnings.simplefilter("ignore")
            library = importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable(f"{error}: {_REMEDY}") from None
    if not all(hasattr(library, name) for name in _NEEDED):
        place = getattr(library, "__file__", None) or "pynvml"
        raise NvmlUnavailable(f"{place} is not nvidia-ml-py's, or too old: {_REMEDY}")
    return library


def _text(query: Callable[[], Any]) -> Any:
    """Return an answer; under WSL2 some are texts in another encoding than UTF-8, which NVML's bindings do not read."""
    try:
        return query()
    except UnicodeDecodeError as error:
        return bytes(error.object).decode("utf-8", "replace")


class ConditionsReader:
    """Asks NVML again and again for what may disturb a timing; where there is no NVML, nothing is known.

    Attributes:
        identity: the GPU's UUID, else its PCI address.
    """

    def __init__(self, pci_bus_id: str) -> None:
        self.identity = pci_bus_id
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
        """Let NVML go."""
        if self._initialised:
            self._nvml.nvmlShutdown()
            self._initialised, self._gpu = False, None

    def read(self) -> Conditions:
        """Return how things are now."""
        if self._gpu is None:
            return Conditions()
        mask = self._answer(self._queries["reasons_mask"]) or 0
        return Conditions(
            sm_clock_mhz=self._answer(self._queries["sm_clock_mhz"]),
            max_sm_clock_mhz=self._max_sm_clock_mhz,
            slowdowns=tuple(words for bit, words in _SLOWDOWNS.items() if mask & bit),
        )

    def others(self) -> tuple[str, ...]:
        """Name the other processes that compute or draw on the GPU.

        Graders are left out: they do not time at the same time.
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
    """Return the processes on a GPU that are neither one's own nor other graders', in words.

    The process that started this one waits for it, and is no stranger either.

    In a container NVML may give the host's numbers, among which one's own cannot be told; then it is one of them, and
    those that are too many are only counted.
    """
    if own in running or not running:
        strangers = (pid for pid in running if pid not in (own, os.getppid()) and not processes.is_grader(pid))
        return tuple(f"{_program(name(pid))} (process {pid})" for pid in strangers)
    too_many = len(running) - len(processes.graders_using() | {own}) if len(running) > 1 else 0
    return (f"{too_many} unknown",) if too_many > 0 else ()


def _program(path: str | None) -> str:
    """Return a program's name without its folder; a backslash may part them as well as a slash."""
    return PureWindowsPath(path or "").name or "unknown"


def facts_from(queries: dict[str, Callable[[], Any]], unsupported: type[Exception]) -> GpuFacts:
    """Run one query for each field of `GpuFacts`; those that raise `unsupported` give None."""
    answers: dict[str, Any] = {}
    for field in fields(GpuFacts):
        try:
            answers[field.name] = _text(queries[field.name])
        except unsupported:
            answers[field.name] = None
    return GpuFacts(**answers)


def _temperature_c(nvml: Any, gpu: Any) -> int:
    """Return what it is, of drivers that do not have the newer function, too."""
    try:
        return int(nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU))
    except nvml.NVMLError_FunctionNotFound:
        return int(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))


def _reasons_mask(nvml: Any, gpu: Any) -> int:
    """Return what decides the clocks, of drivers before R535, too, which call it by its older name."""
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except nvml.NVMLError_FunctionNotFound:
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))


def _queries(nvml: Any, gpu: Any) -> dict[str, Callable[[], Any]]:
    return {
        "uuid": lambda: nvml.nvmlDeviceGetUUID(gpu),
        "driver_version": nvml.nvmlSystemGetDriverVersion,
        "cuda_version": nvml.nvmlSystemGetCudaDriverVersion_v2,
        "memory_total_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
        "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
        "temperature_c": lambda: _temperature_c(nvml, gpu),
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
        "reasons_mask": lambda: _reasons_mask(nvml, gpu),
        "ecc": lambda: nvml.nvmlDeviceGetEccMode(gpu)[0],  # the present one, then that after the next restart
        "mig": lambda: nvml.nvmlDeviceGetMigMode(gpu)[0],
        "persistence": lambda: nvml.nvmlDeviceGetPersistenceMode(gpu),
        "compute_mode": lambda: nvml.nvmlDeviceGetComputeMode(gpu),
        "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
        "max_pcie_generation": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
        "pcie_lanes": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
        "max_pcie_lanes": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),
    }
