"""What is known of NVIDIA's GPU architectures without having one: a table by the names that the compiler uses.

Sources: the CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability"; the unit in which
shared memory is given out is that of NVIDIA's `cuda_occupancy.h`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_KIB = 1024


@dataclass(frozen=True)
class Limits:
    """What one SM holds.

    Attributes:
        generation: the architecture's name.
        blocks, warps, shared_bytes, registers: resident at a time.
        reserved_bytes: shared memory that the system takes for each block.
        shared_unit: bytes; shared memory is given out in multiples of it.
    """

    generation: str
    blocks: int
    warps: int
    shared_bytes: int
    reserved_bytes: int = 1024
    shared_unit: int = 128
    registers: int = 65536

    @property
    def largest_shared_bytes(self) -> int:
        """The most that one block may have."""
        return self.shared_bytes - self.reserved_bytes


LIMITS: Mapping[str, Limits] = {
    "sm_75": Limits("Turing", 16, 32, 64 * _KIB, reserved_bytes=0, shared_unit=256),
    "sm_80": Limits("Ampere", 32, 64, 164 * _KIB),
    "sm_86": Limits("Ampere", 16, 48, 100 * _KIB),
    "sm_87": Limits("Ampere", 16, 48, 164 * _KIB),
    "sm_88": Limits("Ampere", 16, 48, 100 * _KIB),
    "sm_89": Limits("Ada Lovelace", 24, 48, 100 * _KIB),
    "sm_90": Limits("Hopper", 32, 64, 228 * _KIB),
    "sm_100": Limits("Blackwell", 32, 64, 228 * _KIB),
    "sm_103": Limits("Blackwell", 32, 64, 228 * _KIB),
    "sm_110": Limits("Blackwell", 24, 48, 228 * _KIB),
    "sm_120": Limits("Blackwell", 24, 48, 100 * _KIB),
    "sm_121": Limits("Blackwell", 24, 48, 100 * _KIB),
}
"""By architecture, as the compiler calls it."""


def generation(architecture: str) -> str:
    """Return the name of an architecture's generation, such as `Hopper` for `sm_90`; a newer one is unknown."""
    limits = LIMITS.get(architecture)
    return "unknown generation" if limits is None else limits.generation
