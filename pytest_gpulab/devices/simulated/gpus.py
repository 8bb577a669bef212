"""GPUs of the cost model as data, from gpus.toml with a source for every number, and as described in reports."""

from __future__ import annotations

import sys
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_gpulab.devices.hardware.architectures import LIMITS, SmLimits, generation
from pytest_gpulab.devices.protocol import DeviceUnavailable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from pytest_gpulab.devices.hardware.properties import DeviceProperties

DEFAULT_GPU = "h200"
_MEASURED = {"architectures": ("sm_90", "sm_90"), "gpus": (DEFAULT_GPU, "the H200")}
"""The table of each kind that has all constants, and its name in sentences."""
TOO_OLD = {"v100": "7.0", "p100": "6.0", "k80": "3.7"}
"""Compute capabilities of GPUs that courses have, but that CUDA 13 does not compile for."""


class Gpu(NamedTuple):
    """A GPU as the cost model sees it; latencies are SM cycles from an instruction to another that needs its result."""

    name: str
    architecture: str  # compute capability, such as `sm_90`
    sms: int  # multiprocessors (SMs)
    clock_ghz: float  # of an SM
    bandwidth_gb_s: float  # peak memory bandwidth, 1e9 bytes per second
    reachable: float  # share of it that a copy reaches
    l2_bytes: int  # size of the L2 cache
    l2_gb_s: float  # bandwidth of the L2 cache, 1e9 bytes per second
    l1_bytes: int  # size of L1 and shared memory together, per SM
    # results per cycle and SM
    fp32_lanes: int
    int_multiply_lanes: int
    integer_lanes: int
    fp64_lanes: int
    special_lanes: int
    store_cycles: float  # SM cycles per run of adjacent sectors of a 128-byte line that a warp writes to
    local_sector_cycles: float  # SM cycles per sector of a store to local memory
    constant_cycles: float  # cycles of the constant cache per distinct address that a warp reads
    constant_miss_cycles: float  # additional cycles per miss of the constant cache
    # cycles of the load/store unit for a compare-and-swap loop, which is the machine code of some atomics on shared
    # memory: per lane of the warp, and of the block, at one address; per squared number of passes through one bank
    loop_lane_cycles: float
    loop_block_lane_cycles: float
    loop_bank_cycles: float
    loop_wide_factor: float  # cost of such a loop on 8 bytes, relative to 4 bytes
    swap_trip_cycles: float  # the same per trip of a warp through a loop of the program around a compare-and-swap
    global_swap_passes: float  # of `atomics_per_ns`, of a compare-and-swap on global memory that its loop repeats
    # geometry of the SM's constant cache
    constant_cache_bytes: int
    constant_cache_sets: int
    constant_line_bytes: int
    barrier_cycles: float  # SM cycles per warp at a barrier
    alu_latency: float
    predicate_latency: float  # of a comparison
    branch_latency: float  # cycles from a branch to the next instruction
    special_latency: float
    shuffle_latency: float
    shared_latency: float
    barrier_latency: float
    # SM cycles per warp, and latency, of a jump to an address in a register: of a `switch`, through a pointer to a
    # function, and back from a function
    jump_cycles: float
    jump_latency: float
    block_fence_cycles: float  # SM cycles per warp at a fence of the block's scope
    fence_latency: float  # of a fence of the GPU's scope
    system_fence_latency: float  # of a fence of the system's scope
    system_fence_cycles: float  # SM cycles per warp at such a fence
    l1_latency: float
    l2_latency: float
    memory_latency: float
    block_start: float  # cycles of a block before its first instruction and after its last one
    # the cost model does not use the next three
    memory_bytes: int
    memory_bus_bits: int
    memory_mhz: int
    block_gap_ns: float  # time between the starts of two blocks on the GPU
    atomic_gap_ns: float  # time between two atomics on the same address
    atomics_per_ns: float  # passes of atomics on distinct sectors, on the whole GPU
    float_atomic_passes: float  # duration of a float atomic, in passes of an integer atomic
    # share of the passes within 256 or 1024 bytes that do not overlap
    atomic_share_256: float
    atomic_share_1024: float
    launch_us: float  # shortest duration of a launch

    @property
    def limits(self) -> SmLimits:
        """The limits of one SM."""
        return LIMITS[self.architecture]

    @property
    def target(self) -> str:
        """The architecture as NVRTC names it, such as `90`."""
        return self.architecture.removeprefix("sm_")

    @property
    def properties(self) -> DeviceProperties:
        """The properties that a device query prints."""
        from pytest_gpulab.devices.hardware.occupancy import WARP
        from pytest_gpulab.devices.hardware.properties import DeviceProperties

        limits = self.limits
        return DeviceProperties(
            name=self.name,
            architecture=self.architecture,
            sms=self.sms,
            global_bytes=self.memory_bytes,
            sm_shared_bytes=limits.shared_bytes,
            largest_block_shared_bytes=limits.largest_shared_bytes,
            sm_registers=limits.registers,
            sm_threads=limits.warps * WARP,
            sm_blocks=limits.blocks,
            clock_mhz=round(1000 * self.clock_ghz),
            memory_mhz=self.memory_mhz,
            memory_bus_bits=self.memory_bus_bits,
            l2_bytes=self.l2_bytes,
            peak_bandwidth_gb_s=self.bandwidth_gb_s,
        )


@cache
def tables() -> Any:
    """Return gpus.toml as nested dictionaries."""
    return tomllib.loads(files(__package__).joinpath("gpus.toml").read_text(encoding="utf-8"))


def known_gpus() -> tuple[str, ...]:
    """Return the short names, such as `h200`."""
    return tuple(tables()["gpus"])


@cache
def modelled_gpu(name: str = DEFAULT_GPU) -> Gpu:
    """Return a GPU by its short name; raise DeviceUnavailable if it is unknown, or too old for the compiler."""
    found = tables()["gpus"].get(name)
    if name in TOO_OLD:
        oldest = min(LIMITS, key=lambda architecture: int(architecture.removeprefix("sm_"))).removeprefix("sm_")
        raise DeviceUnavailable(
            f"no GPU model is named {name!r}: it has compute capability {TOO_OLD[name]}, and CUDA 13 compiles for "
            f"{oldest[:-1]}.{oldest[-1]} and newer; available: {', '.join(known_gpus())}"
        )
    if found is None:
        raise DeviceUnavailable(f"no GPU model is named {name!r}; available: {', '.join(known_gpus())}")
    values = {**_completed("architectures", found["architecture"]), **_completed("gpus", name)}
    del values["sources"]
    return Gpu(**values)


def sources(name: str = DEFAULT_GPU) -> dict[str, str]:
    """Return the source of each constant of a GPU, by the constant's name."""
    gpu = _completed("gpus", name)
    return {**_completed("architectures", gpu["architecture"])["sources"], **gpu["sources"]}


def _completed(kind: str, name: str) -> dict[str, Any]:
    """Return a table, with the constants that it lacks from the table of the kind's measured one."""
    measured, called = _MEASURED[kind]
    own, others = tables()[kind][name], tables()[kind][measured]
    assumed = dict.fromkeys(others["sources"], f"assumed equal to {called}")
    return {**others, **own, "sources": {**assumed, **own["sources"]}}


def describe(gpu: Gpu, occupancy_architecture: str) -> tuple[str, dict[str, str]]:
    """Return the description of a modelled GPU: one line, and rows (label to text)."""
    architecture, limits = gpu.architecture, gpu.limits
    family, clock_mhz = generation(architecture), 1000 * gpu.clock_ghz
    shared = f"{limits.shared_bytes // 1024} KiB shared"
    holds = f"{limits.warps} warps, {limits.blocks} blocks, {limits.registers} registers, {shared}"
    rows = {
        "modelled GPU": gpu.name,
        "modelled generation": f"{family} ({architecture})",
        "modelled SMs": f"{gpu.sms}, each holds {holds}",
        "modelled SM clock": f"{clock_mhz:.0f} MHz",
        "modelled peak bandwidth": f"{gpu.bandwidth_gb_s:.0f} GB/s",
        "occupancy for": f"{occupancy_architecture} ({generation(occupancy_architecture)})",
    }
    speeds = f"{gpu.sms} SMs at {clock_mhz:.0f} MHz, {gpu.bandwidth_gb_s:.0f} GB/s peak"
    line = f"modelled GPU: {gpu.name} ({family}), {speeds}"
    if occupancy_architecture != architecture:
        line += f"; occupancy for {occupancy_architecture}"
    return line, rows


def known_architecture(architecture: str) -> str:
    """Return the architecture, or raise DeviceUnavailable if its limits are not known."""
    if architecture not in LIMITS:
        known = ", ".join(LIMITS)
        raise DeviceUnavailable(f"unknown architecture {architecture!r}; available: {known}")
    return architecture
