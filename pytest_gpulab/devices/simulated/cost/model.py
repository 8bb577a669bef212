"""A bottleneck model: from what a launch asks of a described GPU to an estimated time.

Each part of the GPU needs a time for its share of the launch's work. Pipes and memories work side by side almost
perfectly, what waits does so less: a norm of their times stands for the whole,

    busy = (sum over pipes and memories of t^8)^(1/8)
    time = launch + (busy^3 + sum over all waits of t^3)^(1/3)

so that one part alone costs its own time, and a wait as long as the work costs a quarter more. docs/cost-model.md has
the formula of each part, gpus.toml the constants with their sources. Every figure made with it is an estimate and is
called one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from pytest_gpulab.devices.hardware.occupancy import WARP, BlockNeeds, blocks_by_resource
from pytest_gpulab.devices.protocol import KernelResources
from pytest_gpulab.devices.simulated.gpus import Gpu

from .demands import Demands
from .pipes import DOUBLE, FLOAT, MULTIPLY, SHUFFLE, SPECIAL

BUSY_OVERLAP, OVERLAP = 8.0, 3.0
SCHEDULERS = 4


@dataclass(frozen=True)
class Estimate:
    """An estimated time.

    Attributes:
        elapsed_ms: of the launch.
        parts_ms: what each part of the GPU would need alone, by its name in words.
        occupancy: theoretical, 0 to 1.
        used_sms: the share of the GPU's multiprocessors that have a block.
    """

    elapsed_ms: float
    parts_ms: Mapping[str, float] = field(default_factory=dict)
    occupancy: float = 0.0
    used_sms: float = 1.0

    @property
    def bottleneck(self) -> str:
        """The part that needs the longest."""
        return max(self.parts_ms, key=lambda part: self.parts_ms[part])


def occupancy(gpu: Gpu, threads: int, shared_bytes: int, resources: KernelResources) -> tuple[float, int]:
    """Return theoretical occupancy and the blocks that one multiprocessor holds (CUDA's occupancy rules)."""
    needs = BlockNeeds(threads, resources.registers, shared_bytes)
    blocks = min(blocks_by_resource(gpu.limits, needs).values())
    return blocks * needs.warps / gpu.limits.warps, blocks


def estimate(
    gpu: Gpu,
    counters: Mapping[str, float],
    asked: Demands,
    blocks: int,
    threads: int,
    shared_bytes: int,
    resources: KernelResources,
) -> Estimate:
    """Return the estimated time of a launch.

    Args:
        gpu: the described GPU.
        counters: of the whole launch.
        asked: what else it asks for.
        blocks, threads: in the grid and in a block.
        shared_bytes: a block, static and dynamic.
        resources: the compiler's figures.
    """
    share, resident = occupancy(gpu, threads, shared_bytes, resources)
    pipes = _pipes(gpu, counters, asked, blocks)
    busy = {**pipes, **_shared_by_all(gpu, asked)}
    block_s = _norm(pipes.values(), BUSY_OVERLAP) / ceil(blocks / gpu.sms)
    waits = _waits(gpu, asked, blocks, max(resident, 1), block_s)
    total_s = _norm([_norm(busy.values(), BUSY_OVERLAP), *waits.values()], OVERLAP)
    parts_ms = {part: 1e3 * seconds for part, seconds in {**busy, **waits}.items()}
    return Estimate(1e3 * total_s + 1e-3 * gpu.launch_us, parts_ms, share, min(blocks / gpu.sms, 1.0))


def _norm(values: object, power: float) -> float:
    return float(sum(value**power for value in values) ** (1 / power))  # type: ignore[attr-defined]


def _pipes(gpu: Gpu, counters: Mapping[str, float], asked: Demands, blocks: int) -> dict[str, float]:
    """Seconds that the busiest SM's pipes need."""
    share = ceil(blocks / gpu.sms) / blocks  # of the work, on the SM that has the most blocks
    read, written, updated = (
        counters[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"] for op in ("ld", "st", "atom")
    )
    shared = read + written * gpu.shared_store_cycles + updated
    cycles = {
        "instruction issue": counters["smsp__inst_executed.sum"] / SCHEDULERS,
        "floating-point units": asked.pipes.get(FLOAT, 0.0) * WARP / gpu.fp32_lanes,
        "double-precision units": asked.pipes.get(DOUBLE, 0.0) * WARP / gpu.fp64_lanes,
        "integer multipliers": asked.pipes.get(MULTIPLY, 0.0) * WARP / gpu.int_multiply_lanes,
        "special function units": asked.pipes.get(SPECIAL, 0.0) * WARP / gpu.special_lanes,
        "load/store unit": shared
        + asked.loop_cycles
        + asked.global_passes
        + asked.stored_lines * gpu.store_cycles
        + asked.pipes.get(SHUFFLE, 0.0),
        "constant memory": counters["idc__requests.sum"] * gpu.constant_cycles
        + asked.missed_constants * gpu.constant_miss_cycles,
        "barriers": counters["gpulab__barriers.sum"] * gpu.barrier_cycles,
    }
    return {part: count * share / (gpu.clock_ghz * 1e9) for part, count in cycles.items()}


def _shared_by_all(gpu: Gpu, asked: Demands) -> dict[str, float]:
    """Seconds that the parts need which all SMs share."""
    return {
        "L2 bandwidth": asked.l2_bytes / (gpu.l2_gb_s * 1e9),
        "memory bandwidth": asked.memory_bytes / (gpu.bandwidth_gb_s * gpu.reachable * 1e9),
    }


def _waits(gpu: Gpu, asked: Demands, blocks: int, resident: int, block_s: float) -> dict[str, float]:
    """Seconds in which something waits: what hardly overlaps with work.

    Args:
        gpu, asked, blocks: as everywhere.
        resident: blocks that fit on an SM.
        block_s: what the pipes need for one block.
    """
    cycle_s = 1e-9 / gpu.clock_ghz
    rounds = max(blocks / (gpu.sms * resident), 1.0)
    alone = (gpu.block_start + asked.block_cycles) * cycle_s + block_s
    longest = (gpu.block_start + asked.longest_block_cycles) * cycle_s
    return {
        "latency": max(alone * rounds, longest),
        "starting blocks": blocks * gpu.block_gap_ns * 1e-9,
        "atomics": max(asked.hot_atomics * gpu.atomic_gap_ns, asked.atomic_passes / gpu.atomics_per_ns) * 1e-9,
        "waiting for other blocks": asked.hops * asked.hop_answers * gpu.l2_latency * cycle_s,
    }
