"""Theoretical occupancy: how many blocks of a kernel a multiprocessor (SM) holds at once, as pure functions.

A block stays on its SM from its first to its last instruction, with all its registers and shared memory. Whichever of
four supplies runs out first sets how many blocks fit: warps, blocks, registers, shared memory.

Source of the rules: NVIDIA's `cuda_occupancy.h`, whose answers these functions were compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .architectures import LIMITS, Limits

WARP = 32
MAX_BLOCK_THREADS = 1024
REGISTERS_UNIT = 256  # for a warp
LEAST_REGISTERS = 16  # Nsight Compute's least figure for a thread on an H200; so few never limit
PARTITIONS = 4  # of an SM, each with its own share of the registers


@dataclass(frozen=True)
class KernelOccupancy:
    """How a kernel fills the SMs at one launch.

    Attributes:
        kernel: its name.
        architecture: such as `sm_90`.
        block_threads: threads in a block.
        registers: a thread; None where the compiler's figure is not known.
        shared_bytes: a block, static and dynamic.
        active_blocks, active_warps: what one SM holds at a time.
        occupancy: `active_warps` over the warps that an SM can hold, 0 to 1.
        limited_by: what runs out first: `warps`, `blocks`, `registers`, `shared memory`; only `warps` at 1; nothing
            where the rules do not explain what the driver says.
        suggested_block_threads: the largest block that gives the highest occupancy; None where not known.
        local_bytes: local memory (arrays, spilled registers) a thread, which limits nothing; None where not known.
        constant_bytes: `__constant__` variables of the kernel's file; None where not known.
    """

    kernel: str
    architecture: str
    block_threads: int
    registers: int | None
    shared_bytes: int
    active_blocks: int
    active_warps: int
    occupancy: float
    limited_by: tuple[str, ...]
    suggested_block_threads: int | None
    local_bytes: int | None = None
    constant_bytes: int | None = None


@dataclass(frozen=True)
class BlockNeeds:
    """What one block of a launch asks for.

    Attributes:
        threads: in a block.
        registers: a thread; None where the compiler's figure is not known, which counts as none.
        shared_bytes: static and dynamic.
    """

    threads: int
    registers: int | None
    shared_bytes: int

    @property
    def warps(self) -> int:
        """Warps of a block; the last may be incomplete."""
        return -(-self.threads // WARP)


def blocks_by_supply(limits: Limits, needs: BlockNeeds, carve_out_bytes: int | None = None) -> dict[str, int]:
    """Return how many blocks fit on an SM as far as each of its supplies goes.

    Args:
        limits: of the SM.
        needs: of a block.
        carve_out_bytes: the part of the SM's memory that is shared memory now; the most there can be if None.
    """
    warp_registers = _rounded_up(max(needs.registers or 0, LEAST_REGISTERS) * WARP, REGISTERS_UNIT)
    resident_warps = limits.registers // PARTITIONS // warp_registers * PARTITIONS
    is_too_much = warp_registers * _rounded_up(needs.warps, PARTITIONS) > limits.registers
    shared = _rounded_up(needs.shared_bytes + limits.reserved_bytes, limits.shared_unit)
    room = limits.shared_bytes if carve_out_bytes is None else carve_out_bytes
    return {
        "warps": limits.warps // needs.warps,
        "blocks": limits.blocks,
        "registers": 0 if is_too_much else resident_warps // needs.warps,
        "shared memory": room // shared if shared else limits.warps,
    }


def suggested_block(blocks_of: Callable[[int], int], largest: int = MAX_BLOCK_THREADS) -> int | None:
    """Return the largest block that gives the highest occupancy, found by trying, as NVIDIA's driver finds it.

    Args:
        blocks_of: how many blocks of so many threads fit on an SM.
        largest: the most threads that a block of the kernel may have.
    """
    sizes = (min(size, largest) for size in range(_rounded_up(largest, WARP), 0, -WARP))
    best = max(sizes, key=lambda threads: blocks_of(threads) * threads)  # the first of equals
    return best if blocks_of(best) else None


def occupancy_by_rules(
    architecture: str, kernel: str, needs: BlockNeeds, largest: int = MAX_BLOCK_THREADS
) -> KernelOccupancy:
    """Return the occupancy of a launch on an architecture of `LIMITS`, with no driver to ask.

    Args:
        architecture, kernel: names.
        needs: of a block; its shared memory is taken to be the same for every size of block.
        largest: the most threads that a block of the kernel may have.
    """
    limits = LIMITS[architecture]

    def blocks_of(threads: int) -> int:
        return min(blocks_by_supply(limits, replace(needs, threads=threads)).values())

    suggested = suggested_block(blocks_of, largest)
    return occupancy_of(architecture, limits, kernel, needs, blocks_of(needs.threads), suggested)


def occupancy_of(
    architecture: str, limits: Limits, kernel: str, needs: BlockNeeds, active_blocks: int, suggested: int | None
) -> KernelOccupancy:
    """Return the occupancy of a launch of which the driver or the rules say that so many blocks fit on an SM."""
    active_warps = active_blocks * needs.warps
    by_supply = blocks_by_supply(limits, needs)
    least = min(by_supply.values())
    first_out = tuple(name for name, blocks in by_supply.items() if blocks == least)
    is_full = active_warps == limits.warps  # no supply could raise that
    return KernelOccupancy(
        kernel=kernel,
        architecture=architecture,
        block_threads=needs.threads,
        registers=needs.registers,
        shared_bytes=needs.shared_bytes,
        active_blocks=active_blocks,
        active_warps=active_warps,
        occupancy=active_warps / limits.warps,
        limited_by=("warps",) if is_full else first_out if active_blocks == least else (),
        suggested_block_threads=suggested,
    )


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
