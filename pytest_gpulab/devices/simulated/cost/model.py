"""A bottleneck model: the estimated time of a launch from its demands.

Each unit of the GPU needs a time for its part of the work. Pipes and memories overlap almost perfectly, waits overlap
less. Norms of their times model this:

    busy = (sum over pipes and memories of t^8)^(1/8)
    time = launch + (busy^4 + sum over blocks in turn and atomics of t^4)^(1/4) + fences + last block

One unit alone costs its own time. A wait as long as the work adds a fifth. While blocks are in step, the exponent of
waits is 1.4, see `_share_in_step`. At fences, everything stops.
docs/cost-model.md has the formula of each unit, gpus.toml the constants with their sources. Every result is an estimate
and is reported as one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from pytest_gpulab.devices.hardware.occupancy import WARP, BlockNeeds, blocks_by_resource
from pytest_gpulab.devices.protocol import KernelResources
from pytest_gpulab.devices.simulated.gpus import Gpu

from .demands import Demands
from .pipes import BLOCK_FENCE, DOUBLE, FLOAT, JUMP, MULTIPLY, SHUFFLE, SPECIAL, TABLE_JUMP

BUSY_OVERLAP, OVERLAP, IN_STEP_OVERLAP = 8.0, 4.0, 1.4
ATOMICS_OVERLAP = 2.0  # of atomics at one place with those at all others: fitted to times on an H200, see `_waits`
IN_STEP_CYCLES = 10000  # of a block's critical path, after which its warps and other blocks have drifted apart
PIPE = "smsp__inst_executed_pipe_{}.sum"
SWAP_TRIPS = 2  # to L2 and back, between two updates of a word by compare-and-swap: the first one fails
SCHEDULERS = 4  # per SM; each issues one warp instruction per cycle


@dataclass(frozen=True)
class Estimate:
    """An estimated time."""

    elapsed_ms: float
    parts_ms: Mapping[str, float] = field(default_factory=dict)  # time of each unit of the GPU alone, by its name
    occupancy: float = 0.0  # theoretical, 0 to 1
    used_sms: float = 1.0  # share of the multiprocessors that have a block

    @property
    def bottleneck(self) -> str:
        """The unit with the longest time."""
        return max(self.parts_ms, key=lambda part: self.parts_ms[part])


def occupancy(gpu: Gpu, threads: int, shared_bytes: int, resources: KernelResources) -> tuple[float, int]:
    """Return the theoretical occupancy and the blocks per multiprocessor (CUDA's occupancy rules)."""
    needs = BlockNeeds(threads, resources.registers, shared_bytes)
    blocks = min(blocks_by_resource(gpu.limits, needs).values())
    return blocks * needs.warps / gpu.limits.warps, blocks


def estimate(
    gpu: Gpu,
    counters: Mapping[str, float],
    needs: Demands,
    blocks: int,
    threads: int,
    shared_bytes: int,
    resources: KernelResources,
) -> Estimate:
    """Return the estimated time of a launch.

    Args:
        gpu: the modelled GPU.
        counters: counters of the whole launch.
        needs: further demands of the launch.
        blocks, threads: number of blocks, and of threads per block.
        shared_bytes: shared memory per block, static and dynamic.
        resources: the compiler's figures for the kernel.
    """
    share, resident = occupancy(gpu, threads, shared_bytes, resources)
    pipes = _pipes(gpu, counters, needs, blocks)
    busy = {**pipes, **_shared_by_all(gpu, needs)}
    block_s = _norm(pipes.values(), BUSY_OVERLAP) / ceil(blocks / gpu.sms)
    waits, in_turn_s = _waits(gpu, needs, blocks, max(resident, 1), block_s)
    fences_s = _fences(gpu, needs, blocks, max(resident, 1))
    chain_s = needs.chain.cycles(gpu.sms * max(resident, 1)) * 1e-9 / gpu.clock_ghz
    chain_s += max(needs.updates_in_turn * SWAP_TRIPS * gpu.l2_latency * 1e-9 / gpu.clock_ghz - waits["atomics"], 0.0)
    last_s = needs.last_block_cycles * 1e-9 / gpu.clock_ghz
    busy_s, rounds = _norm(busy.values(), BUSY_OVERLAP), max(blocks / (gpu.sms * max(resident, 1)), 1.0)
    _, path_s = _waits(gpu, needs, blocks, max(resident, 1), needs.first_reads_cycles * 1e-9 / gpu.clock_ghz)
    in_step = _share_in_step(gpu, needs, blocks, rounds)
    without_s = in_step * _norm([busy_s, path_s, waits["atomics"]], IN_STEP_OVERLAP)
    without_s += (1 - in_step) * _norm([busy_s, in_turn_s, waits["atomics"]], OVERLAP)
    total_s = _with_chain(without_s, chain_s, rounds) + fences_s + last_s
    waits |= {"waiting for other blocks": chain_s, "memory fences": fences_s, "last block": last_s}
    parts_ms = {part: 1e3 * seconds for part, seconds in {**busy, **waits}.items()}
    return Estimate(1e3 * total_s + 1e-3 * gpu.launch_us, parts_ms, share, min(blocks / gpu.sms, 1.0))


def _norm(values: object, power: float) -> float:
    return float(sum(value**power for value in values) ** (1 / power))  # type: ignore[attr-defined]


def _share_in_step(gpu: Gpu, needs: Demands, blocks: int, rounds: float) -> float:
    """Return the share of a launch in which blocks load, compute and store in step, so that little overlaps.

    They do so in their first round, and alone on an SM. In a long path, warps and blocks drift apart.
    """
    return 1.0 if blocks <= gpu.sms else min(IN_STEP_CYCLES / max(needs.block_cycles, 1.0), 1.0) / rounds


def _with_chain(without_s: float, chain_s: float, rounds: float) -> float:
    """Return the time with the waiting for other blocks; it overlaps with nothing in the first round of blocks."""
    return (without_s + chain_s) / rounds + (1 - 1 / rounds) * _norm([without_s, chain_s], OVERLAP)


def _pipes(gpu: Gpu, counters: Mapping[str, float], needs: Demands, blocks: int) -> dict[str, float]:
    """Return the time of each pipe of the busiest SM in seconds."""
    share = ceil(blocks / gpu.sms) / blocks  # of the work on the SM with most blocks
    wavefronts = sum(counters[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"] for op in ("ld", "st", "atom"))
    by_table = max(needs.pipes.get(TABLE_JUMP, 0.0), counters["gpulab__table_jumps.sum"])
    cycles = {
        "instruction issue": counters["smsp__inst_executed.sum"] / SCHEDULERS,
        "floating-point units": needs.pipes.get(FLOAT, 0.0) * WARP / gpu.fp32_lanes,
        "double-precision units": needs.pipes.get(DOUBLE, 0.0) * WARP / gpu.fp64_lanes,
        "integer multipliers": needs.pipes.get(MULTIPLY, 0.0) * WARP / gpu.int_multiply_lanes,
        # an instruction of the special function units takes a slot of the integer units, too
        "integer units": (counters[PIPE.format("alu")] + counters[PIPE.format("xu")]) * WARP / gpu.integer_lanes,
        "special function units": max(needs.pipes.get(SPECIAL, 0.0), counters[PIPE.format("xu")])
        * WARP
        / gpu.special_lanes,
        "load/store unit": wavefronts
        + _without_lanes(counters)
        + needs.loop_cycles
        + needs.global_passes
        + needs.stored_runs * gpu.store_cycles
        + needs.pipes.get(SHUFFLE, 0.0)
        + needs.pipes.get(BLOCK_FENCE, 0.0) * gpu.block_fence_cycles,
        "branch unit": counters[PIPE.format("cbu")] + counters["smsp__sass_branch_targets.sum"],
        "calls": (needs.pipes.get(JUMP, 0.0) + by_table) * gpu.jump_cycles,
        "constant memory": counters["idc__requests.sum"] * gpu.constant_cycles
        + needs.missed_constants * gpu.constant_miss_cycles,
        "barriers": counters["gpulab__barriers.sum"] * gpu.barrier_cycles,
    }
    return {part: count * share / (gpu.clock_ghz * 1e9) for part, count in cycles.items()}


def _without_lanes(counters: Mapping[str, float]) -> float:
    """Return the accesses to shared memory with a false guard in all lanes: they pass the load/store unit, too."""
    issued = (
        counters[f"smsp__inst_executed_op_shared_{op}.sum"] - counters[f"gpulab__shared_requests_op_{op}.sum"]
        for op in ("ld", "st")
    )
    return sum(max(count, 0.0) for count in issued)


def _shared_by_all(gpu: Gpu, needs: Demands) -> dict[str, float]:
    """Return the time of each unit that all SMs share in seconds."""
    return {
        "L2 bandwidth": needs.l2_bytes / (gpu.l2_gb_s * 1e9),
        "memory bandwidth": needs.memory_bytes / (gpu.bandwidth_gb_s * gpu.reachable * 1e9),
    }


def _waits(gpu: Gpu, needs: Demands, blocks: int, resident: int, further_s: float) -> tuple[dict[str, float], float]:
    """Return the seconds of waiting, and from the start of the first block to the end of the last one.

    A block takes `further_s` beside its critical path. Blocks start one after another: first as many as fit at once,
    then one whenever another ends. So the last block begins after all starts, or after the rounds before its own.
    """
    cycle_s = 1e-9 / gpu.clock_ghz
    at_once = gpu.sms * resident
    alone_s = (gpu.block_start + needs.block_cycles) * cycle_s + further_s
    longest_s = (gpu.block_start + needs.longest_block_cycles) * cycle_s + further_s
    latency_s = max(alone_s * max(blocks / at_once, 1.0), longest_s)
    starting_s, first_s = (count * gpu.block_gap_ns * 1e-9 for count in (blocks, min(blocks, at_once)))
    atomics_ns = needs.hot_atomics * gpu.atomic_gap_ns, needs.atomic_passes / gpu.atomics_per_ns
    waits = {
        "latency": latency_s,
        "starting blocks": starting_s,
        "atomics": 1e-9 * _norm(atomics_ns, ATOMICS_OVERLAP),
    }
    return waits, max(starting_s + alone_s, first_s + latency_s)


def _fences(gpu: Gpu, needs: Demands, blocks: int, resident: int) -> float:
    """Return the time of waiting at memory fences in seconds."""
    rounds = max(blocks / (gpu.sms * resident), 1.0)
    at_once = min(resident, blocks / gpu.sms)
    return rounds * needs.fences.cycles(gpu, at_once) * 1e-9 / gpu.clock_ghz
