"""The GPUs that the cost model can describe, read from gpus.toml, where every number has its source."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pytest_gpulab.devices.hardware.architectures import LIMITS, Limits
from pytest_gpulab.devices.protocol import DeviceUnavailable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_GPU = "h200"


@dataclass(frozen=True)
class Gpu:
    """What the model knows of a GPU.

    Latencies are in cycles of the SM, from an instruction to one that needs its result.

    Attributes:
        architecture: such as `sm_90`; `limits` is what one of its SMs holds.
        sms, clock_ghz: multiprocessors and their clock.
        bandwidth_gb_s: peak memory bandwidth, 1e9 bytes a second; a copy reaches the share `reachable`.
        l2_bytes, l2_gb_s: size and bandwidth of the L2 cache.
        l1_bytes: size of an SM's L1 and shared memory together.
        fp32_lanes, int_multiply_lanes, fp64_lanes, special_lanes: results a cycle and SM.
        shared_store_cycles: of the SM for each wavefront of a store to shared memory.
        store_cycles: of the SM for each 128-byte line that a warp writes to.
        constant_cycles: of the constant cache for each distinct address that a warp reads.
        constant_miss_cycles: more, where the SM's cache does not hold the address.
        loop_lane_cycles, loop_block_lane_cycles: of the load/store unit for an atomic on shared memory that is a loop
            around compare-and-swap: per lane of the warp, and per lane of the block, at the lane's address.
        loop_bank_cycles: of such a loop, per squared number of passes through one bank.
        loop_wide_factor: cost of such a loop on 8 bytes, relative to 4 bytes.
        constant_cache_bytes, constant_cache_sets, constant_line_bytes: the SM's cache for constants.
        barrier_cycles: of the SM for each warp that comes to a barrier.
        block_gap_ns: between the starts of two blocks, wherever on the GPU.
        block_start: cycles of a block before its first instruction and after its last.
        atomic_gap_ns: between two atomics on the same address.
        atomics_per_ns: passes of atomics on the whole GPU, in as many sectors.
        float_atomic_passes: passes of integers that one of floats takes in its sector.
        atomic_share_256, atomic_share_1024: the share of the passes within so many bytes that do not overlap.
        launch_us: shortest time of a launch.
    """

    name: str
    architecture: str
    sms: int
    clock_ghz: float
    bandwidth_gb_s: float
    reachable: float
    l2_bytes: int
    l2_gb_s: float
    l1_bytes: int
    fp32_lanes: int
    int_multiply_lanes: int
    fp64_lanes: int
    special_lanes: int
    shared_store_cycles: float
    store_cycles: float
    constant_cycles: float
    constant_miss_cycles: float
    loop_lane_cycles: float
    loop_block_lane_cycles: float
    loop_bank_cycles: float
    loop_wide_factor: float
    constant_cache_bytes: int
    constant_cache_sets: int
    constant_line_bytes: int
    barrier_cycles: float
    alu_latency: float
    special_latency: float
    shuffle_latency: float
    shared_latency: float
    barrier_latency: float
    l1_latency: float
    l2_latency: float
    memory_latency: float
    block_start: float
    block_gap_ns: float
    atomic_gap_ns: float
    atomics_per_ns: float
    float_atomic_passes: float
    atomic_share_256: float
    atomic_share_1024: float
    launch_us: float

    @property
    def limits(self) -> Limits:
        """What one SM holds at a time."""
        return LIMITS[self.architecture]

    @property
    def target(self) -> str:
        """What the compiler is asked for: `90`."""
        return self.architecture.removeprefix("sm_")


@cache
def tables() -> Any:
    """Return the file as nested dictionaries."""
    return tomllib.loads(files(__package__).joinpath("gpus.toml").read_text(encoding="utf-8"))


def known_gpus() -> tuple[str, ...]:
    """Return the short names, such as `h200`."""
    return tuple(tables()["gpus"])


@cache
def described_gpu(name: str = DEFAULT_GPU) -> Gpu:
    """Return a GPU by its short name.

    Raises:
        DeviceUnavailable: it is not described; says which are.
    """
    found = tables()["gpus"].get(name)
    if found is None:
        raise DeviceUnavailable(f"no GPU is described as {name!r}; described are {', '.join(known_gpus())}")
    values = {**tables()["architectures"][found["architecture"]], **found}
    del values["sources"]
    return Gpu(**values)


def sources(name: str = DEFAULT_GPU) -> dict[str, str]:
    """Return where each constant of a GPU comes from, by the constant's name."""
    found = tables()["gpus"][name]
    return {**tables()["architectures"][found["architecture"]]["sources"], **found["sources"]}
