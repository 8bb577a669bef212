"""A bottleneck model: from the counts of a launch to an estimated time on a described GPU.

Each resource of the GPU needs a time for the launch's work; the launch takes a little longer than its busiest
resource, because they overlap imperfectly:

    time = overhead + (sum over resources of t^p)^(1/p),  p = 6

The resources are
    issue       warp instructions / (SMs x 4 schedulers x clock x the share of cycles in which one can issue)
    load/store  (shared wavefronts + global requests, at least a pass for every 4 sectors) / (SMs x clock)
    constant    distinct words read a warp / (SMs x clock): a broadcast is one, a scattered index up to 32
    L2          sectors x 32 bytes / L2 bandwidth; a sector that is read again is taken to be in L1
    memory      distinct sectors x 32 bytes / (memory bandwidth x reachable share)
    latency     rounds of blocks that fit at once x the time one warp needs when nobody disturbs it

The latencies, the issue share and L2's bandwidth were fitted to the measured times of 36 launches on an H200
(reductions, scans, divergent arithmetic, a field from global and from constant memory, strided copies). The typical
error is 13 %; the worst are a copy with stride 32 (0.56 of the measured time) and a Hillis-Steele scan (1.34).
Every figure made with it is an estimate and is called one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_gpulab.devices.architectures import Limits
from pytest_gpulab.devices.occupancy import BlockNeeds, blocks_by_supply
from pytest_gpulab.devices.protocol import KernelResources

OVERLAP = 6.0
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
        issue_share: of the cycles in which a scheduler can issue.
        block_latency: cycles that a block takes in any case, its start and first wait for memory included.
        instruction_latency, barrier_latency, shared_latency: further cycles of a warp for each instruction, barrier and
            shared wavefront, as far as they do not overlap.
        load_latency, cached_latency, store_latency: the same for each global load from L2 or beyond, each global load
            from L1, each global store.
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
    issue_share: float = 0.83
    block_latency: float = 1000.0
    instruction_latency: float = 8.0
    barrier_latency: float = 25.0
    shared_latency: float = 60.0
    load_latency: float = 150.0
    cached_latency: float = 65.0
    store_latency: float = 200.0


# SMs, clock, registers, shared memory and memory bandwidth: NVIDIA's H200 data sheet and the CUDA programming guide's
# table of compute capability 9.0; the reachable share and launch time were measured on an H200, the rest fitted.
H200 = Gpu("NVIDIA H200", "90", 132, 1.98, 4800.0, 0.86, 4000.0)


@dataclass(frozen=True)
class Estimate:
    """An estimated time, the resource that takes longest, and the theoretical occupancy (0 to 1)."""

    elapsed_ms: float
    bottleneck: str
    occupancy: float


def occupancy(gpu: Gpu, threads: int, shared_bytes: int, resources: KernelResources) -> tuple[float, int]:
    """Return theoretical occupancy and the blocks that one multiprocessor holds (CUDA's occupancy rules)."""
    limits = Limits("", gpu.blocks, gpu.warps, gpu.shared_bytes, gpu.block_shared_overhead, registers=gpu.registers)
    needs = BlockNeeds(threads, resources.registers, shared_bytes)
    blocks = min(blocks_by_supply(limits, needs).values())
    return blocks * needs.warps / gpu.warps, blocks


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
    read, touched = _sectors(counters, "ld"), counters["gpulab__touched_sectors.sum"]
    beyond_l1 = _sectors(counters, "st") + _sectors(counters, "atom") + min(read, touched)
    seconds["L2 bandwidth"] = beyond_l1 * _SECTOR / (gpu.l2_gb_s * 1e9)
    seconds["memory bandwidth"] = touched * _SECTOR / (gpu.bandwidth_gb_s * gpu.reachable * 1e9)
    busiest = max(seconds, key=lambda what: seconds[what])
    total = sum(value**OVERLAP for value in seconds.values()) ** (1 / OVERLAP)
    return Estimate(1e3 * total + 1e-3 * gpu.launch_us, busiest, share)


def _sectors(counters: Mapping[str, float], op: str) -> float:
    return _global(counters, "sectors", op)


def _requests(counters: Mapping[str, float], op: str) -> float:
    return _global(counters, "requests", op)


def _global(counters: Mapping[str, float], what: str, op: str) -> float:
    """Requests or sectors of an operation; atomics with those whose result nobody wants."""
    ops = ("atom", "red") if op == "atom" else (op,)
    return sum(counters[f"l1tex__t_{what}_pipe_lsu_mem_global_op_{each}.sum"] for each in ops)


def _cycles(gpu: Gpu, counters: Mapping[str, float], blocks: int, resident: int) -> dict[str, float]:
    """Cycles of the whole GPU by resource."""
    shared = sum(counters[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"] for op in ("ld", "st", "atom"))
    requests = sum(_requests(counters, op) for op in ("ld", "st", "atom"))
    sectors = sum(_sectors(counters, op) for op in ("ld", "st", "atom"))
    rounds = max(blocks / (gpu.sms * resident), 1.0)
    return {
        "instruction issue": counters["smsp__inst_executed.sum"] / (gpu.sms * 4 * gpu.issue_share),
        "load/store unit (shared and global accesses)": (shared + max(requests, sectors / 4)) / gpu.sms,
        "constant memory": counters["gpulab__constant_words.sum"] / gpu.sms,
        "latency": _alone(gpu, counters, shared) * rounds,
    }


def _alone(gpu: Gpu, counters: Mapping[str, float], shared_wavefronts: float) -> float:
    """Cycles from the start to the end of a block whose warps do not disturb each other."""
    loads = _requests(counters, "ld") + _requests(counters, "atom")
    read = _sectors(counters, "ld") + _sectors(counters, "atom")
    missing = min(counters["gpulab__touched_sectors.sum"] / read, 1.0) if read else 1.0
    cycles = (
        counters["smsp__inst_executed.sum"] * gpu.instruction_latency
        + counters["gpulab__barriers.sum"] * gpu.barrier_latency
        + shared_wavefronts * gpu.shared_latency
        + loads * (missing * gpu.load_latency + (1 - missing) * gpu.cached_latency)
        + _requests(counters, "st") * gpu.store_latency
    )
    return gpu.block_latency + cycles / max(counters["gpulab__warps.sum"], 1)
