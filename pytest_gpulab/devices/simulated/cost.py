"""A bottleneck model: from the counts of a launch to an estimated time on a described GPU.

Each resource of the GPU needs a time for the launch's work; the launch takes a little longer than its busiest
resource, because they overlap imperfectly:

    time = overhead + (sum over resources of t^p)^(1/p),  p = 4

The resources are
    issue       warp instructions / (SMs x 4 schedulers x clock)
    load/store  (shared wavefronts + global requests, at least a pass for every 4 sectors) / (SMs x clock)
    constant    distinct words read a warp / (SMs x clock): a broadcast is one, a scattered index up to 32
    L2          sectors x 32 bytes / L2 bandwidth
    memory      distinct sectors x 32 bytes / (memory bandwidth x reachable share)
    latency     rounds of blocks that fit at once x the time one warp needs when nobody disturbs it

Every figure made with it is an estimate and is called one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_gpulab.devices.protocol import KernelResources

OVERLAP = 4.0
_SECTOR = 32


@dataclass(frozen=True)
class Gpu:
    """What the model knows of a GPU.

    Attributes:
        architecture: what the compiler is asked for.
        sms, clock_ghz: multiprocessors and their sustained clock.
        bandwidth_gb_s: peak memory bandwidth, 1e9 bytes a second.
        reachable: the share of it that a copy reaches.
        l2_gb_s: L2 bandwidth.
        registers, shared_bytes, warps, blocks: what a multiprocessor holds.
        block_shared_overhead: shared bytes that each block costs beyond its own.
        launch_us: shortest time of a launch.
        memory_latency, instruction_latency, barrier_latency: cycles.
    """

    name: str
    architecture: str
    sms: int
    clock_ghz: float
    bandwidth_gb_s: float
    reachable: float
    l2_gb_s: float
    registers: int = 65536
    shared_bytes: int = 233472
    warps: int = 64
    blocks: int = 32
    block_shared_overhead: int = 1024
    launch_us: float = 2.0
    memory_latency: float = 600.0
    instruction_latency: float = 4.5
    barrier_latency: float = 25.0


# SMs, clock, registers, shared memory and memory bandwidth: NVIDIA's H200 data sheet and the CUDA programming guide's
# table of compute capability 9.0; the reachable share, launch time and latencies were measured on an H200.
H200 = Gpu("NVIDIA H200", "90", 132, 1.98, 4800.0, 0.86, 5500.0)


@dataclass(frozen=True)
class Estimate:
    """An estimated time, the resource that takes longest, and the theoretical occupancy (0 to 1)."""

    elapsed_ms: float
    bottleneck: str
    occupancy: float


def occupancy(gpu: Gpu, threads: int, shared_bytes: int, resources: KernelResources) -> tuple[float, int]:
    """Return theoretical occupancy and the blocks that one multiprocessor holds (CUDA's occupancy rules)."""
    warps = -(-threads // 32)
    registers = max(resources.registers or 1, 1)
    per_warp = -(-registers * 32 // 256) * 256  # registers come in units of 256 a warp
    shared = -(-(shared_bytes + gpu.block_shared_overhead) // 128) * 128
    blocks = min(gpu.blocks, gpu.warps // warps, gpu.registers // per_warp // warps, gpu.shared_bytes // shared)
    return blocks * warps / gpu.warps, blocks


def estimate(
    gpu: Gpu,
    counters: Mapping[str, float],
    blocks: int,
    threads: int,
    shared_bytes: int,
    resources: KernelResources,
) -> Estimate:
    """Return the estimated time of a launch.

    Args:
        gpu: the described GPU.
        counters: of the whole launch, see `counters.Counters.totals`.
        blocks, threads: in the grid and in a block.
        shared_bytes: a block, static and dynamic.
        resources: the compiler's figures.
    """
    share, resident = occupancy(gpu, threads, shared_bytes, resources)
    cycles = _cycles(gpu, counters, blocks, max(resident, 1))
    seconds = {what: n / (gpu.clock_ghz * 1e9) for what, n in cycles.items()}
    sectors = _global(counters, "sectors")
    seconds["L2 bandwidth"] = sectors * _SECTOR / (gpu.l2_gb_s * 1e9)
    seconds["memory bandwidth"] = (
        counters["gpulab__touched_sectors.sum"] * _SECTOR / (gpu.bandwidth_gb_s * gpu.reachable * 1e9)
    )
    busiest = max(seconds, key=lambda what: seconds[what])
    total = sum(value**OVERLAP for value in seconds.values()) ** (1 / OVERLAP)
    return Estimate(1e3 * total + 1e-3 * gpu.launch_us, busiest, share)


def _global(counters: Mapping[str, float], what: str) -> float:
    return sum(counters[f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"] for op in ("ld", "st", "atom"))


def _cycles(gpu: Gpu, counters: Mapping[str, float], blocks: int, resident: int) -> dict[str, float]:
    """Cycles of the whole GPU by resource."""
    instructions = counters["smsp__inst_executed.sum"]
    shared = sum(counters[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"] for op in ("ld", "st", "atom"))
    requests, sectors = _global(counters, "requests"), _global(counters, "sectors")
    warps = max(counters["gpulab__warps.sum"], 1)
    alone = (
        instructions * gpu.instruction_latency
        + requests * gpu.memory_latency / 4  # a thread has about four loads under way at once
        + counters["gpulab__barriers.sum"] * gpu.barrier_latency
    ) / warps + gpu.memory_latency
    return {
        "instruction issue": instructions / (gpu.sms * 4),
        "load/store unit (shared and global accesses)": (shared + max(requests, sectors / 4)) / gpu.sms,
        "constant memory": counters["gpulab__constant_words.sum"] / gpu.sms,
        "latency": alone * (blocks / (gpu.sms * resident) if blocks > gpu.sms * resident else 1.0),
    }
