"""Theoretical occupancy: the number of resident blocks of a kernel per multiprocessor (SM), as pure functions.

A block stays on its SM from its first to its last instruction, with all its registers and shared memory. The scarcest
of four resources limits the resident blocks: warps, blocks, registers, shared memory.

Source of the rules: NVIDIA's `cuda_occupancy.h`; the results were compared with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from .architectures import LIMITS, SmLimits

WARP = 32
MAX_BLOCK_THREADS = 1024
REGISTERS_UNIT = 256  # allocation unit per warp
LEAST_REGISTERS = 16  # Nsight Compute's least figure per thread on an H200; so few are never the limit
PARTITIONS = 4  # of an SM, each with its own share of the registers


@dataclass(frozen=True)
class KernelOccupancy:
    """Theoretical occupancy of a kernel at one launch."""

    kernel: str
    architecture: str  # such as `sm_90`
    block_threads: int  # threads per block
    registers: int | None  # registers per thread; None if unknown
    shared_bytes: int  # static and dynamic shared memory per block
    active_blocks: int  # resident blocks per SM
    active_warps: int  # resident warps per SM
    occupancy: float  # `active_warps` over the SM's limit of warps, 0 to 1
    # the limiting resources: `warps`, `blocks`, `registers`, `shared memory`; only `warps` at occupancy 1; empty if the
    # rules do not explain the driver's figure
    limited_by: tuple[str, ...]
    suggested_block_threads: int | None  # the largest block with the highest occupancy; None if unknown
    # local memory (arrays, spilled registers) per thread, which is no limit; None if unknown
    local_bytes: int | None = None
    constant_bytes: int | None = None  # `__constant__` variables of the kernel's file; None if unknown
    # estimated average of the resident warps over the SM's limit, 0 to 1; None if not estimated
    achieved: float | None = None


@dataclass(frozen=True)
class BlockNeeds:
    """Resources of one block of a launch."""

    threads: int  # threads per block
    registers: int | None  # registers per thread; None if unknown, which counts as none
    shared_bytes: int  # static and dynamic shared memory

    @property
    def warps(self) -> int:
        """Warps per block; the last may be incomplete."""
        return -(-self.threads // WARP)


def blocks_by_resource(limits: SmLimits, needs: BlockNeeds, carve_out_bytes: int | None = None) -> dict[str, int]:
    """Return the number of blocks that each resource of an SM allows.

    `carve_out_bytes` is the shared part of the SM's L1 and shared memory; None for the largest.
    """
    warp_registers = _rounded_up(max(needs.registers or 0, LEAST_REGISTERS) * WARP, REGISTERS_UNIT)
    resident_warps = limits.registers // PARTITIONS // warp_registers * PARTITIONS
    is_too_much = warp_registers * _rounded_up(needs.warps, PARTITIONS) > limits.registers
    shared = _rounded_up(needs.shared_bytes + limits.reserved_bytes, limits.shared_unit)
    available = limits.shared_bytes if carve_out_bytes is None else carve_out_bytes
    return {
        "warps": limits.warps // needs.warps,
        "blocks": limits.blocks,
        "registers": 0 if is_too_much else resident_warps // needs.warps,
        "shared memory": available // shared if shared else limits.warps,
    }


def suggested_block(blocks_of: Callable[[int], int], largest: int = MAX_BLOCK_THREADS) -> int | None:
    """Return the largest block with the highest occupancy, by trying all sizes, as NVIDIA's driver does.

    `blocks_of` gives the resident blocks per SM by threads per block; `largest` is the kernel's limit of threads.
    """
    sizes = (min(size, largest) for size in range(_rounded_up(largest, WARP), 0, -WARP))
    best = max(sizes, key=lambda threads: blocks_of(threads) * threads)  # the first of equals
    return best if blocks_of(best) else None


def occupancy_by_rules(
    architecture: str, kernel: str, needs: BlockNeeds, largest: int = MAX_BLOCK_THREADS
) -> KernelOccupancy:
    """Return the occupancy of a launch on an architecture of `LIMITS`, without a driver.

    All block sizes are assumed to need the same shared memory; `largest` is the kernel's limit of threads per block.
    """
    limits = LIMITS[architecture]

    def blocks_of(threads: int) -> int:
        return min(blocks_by_resource(limits, replace(needs, threads=threads)).values())

    suggested = suggested_block(blocks_of, largest)
    return occupancy_of(architecture, limits, kernel, needs, blocks_of(needs.threads), suggested)


def occupancy_of(
    architecture: str, limits: SmLimits, kernel: str, needs: BlockNeeds, active_blocks: int, suggested: int | None
) -> KernelOccupancy:
    """Return the occupancy of a launch with `active_blocks` resident blocks per SM, by the driver or the rules."""
    active_warps = active_blocks * needs.warps
    by_resource = blocks_by_resource(limits, needs)
    least = min(by_resource.values())
    scarcest = tuple(name for name, blocks in by_resource.items() if blocks == least)
    is_full = active_warps == limits.warps  # then no other resource limits the launch
    return KernelOccupancy(
        kernel=kernel,
        architecture=architecture,
        block_threads=needs.threads,
        registers=needs.registers,
        shared_bytes=needs.shared_bytes,
        active_blocks=active_blocks,
        active_warps=active_warps,
        occupancy=active_warps / limits.warps,
        limited_by=("warps",) if is_full else scarcest if active_blocks == least else (),
        suggested_block_threads=suggested,
    )


def achieved_occupancy(found: KernelOccupancy, sms: int, blocks: int) -> float:
    """Return the estimated average of the resident warps over the SM's limit, while the SM has any.

    All blocks are assumed to take the same time, so that an SM runs them in rounds of `active_blocks`, the last of
    which may be incomplete. Nsight Compute calls it `sm__warps_active.avg.pct_of_peak_sustained_active`; for the 20
    launches in tests/h200 with this counter, the estimate is 0.91 to 1.75 times the counter, 1.10 in the median.
    """
    if not found.active_blocks:
        return 0.0
    least, with_one_more = divmod(blocks, sms)
    rounds = [
        with_one_more * -(-(least + 1) // found.active_blocks),
        (sms - with_one_more) * -(-least // found.active_blocks),
    ]
    return found.occupancy * blocks / (found.active_blocks * sum(rounds))


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
